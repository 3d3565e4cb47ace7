"""The cheapest place for cards, whole or in parts, on hosts that have limits.

In come a `Stock` (what is left of cards and hosts), a `Demand` (what replicas of a pool's claims wish for, placed and
waiting) and a wish; out comes the node with the cheapest cards, by the terms of `appraisal`. Costs that depend on
nothing but a node are kept per wish, and only nodes that changed are looked at again; keeping them changes speed and
nothing else.

The cost of a place is compared first; among equal costs the one that leaves less of the cards it uses, then fewer free
cards on the node, then the one that opens fewer cards, then stable order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.appraisal import Floats, Integers, Need, need, reservation, scarcity
from adjoin_allocator.prices import CARD, UNIT, Pricer, Prices
from adjoin_allocator.sharing import MILLI, cost_milli
from adjoin_allocator.stock import Stock, Wish

Booleans = NDArray[np.bool_]

GRAIN = 20_000
"""Costs are compared in so many millionths of a card: smaller differences are within what demand is known to, and then
the fuller card is better."""

FINE = 50
"""The same for what asks for no card, and costs a small part of one at most."""

KNOWN = 4096
"""For how many wishes costs are kept."""

LOG = 1 << 20
"""How many changes are logged until all is looked at again."""

VALUATIONS = 4
"""For how many sets of prices costs are kept."""

_LEFT = 1 << 13
"""More than the thousandths that are left of all cards of a replica, as far as they are told apart."""
_WAYS = 1 << 6
"""More than the free cards of a node, and than the cards that a replica may open, as far as they are told apart."""
_TIE = _LEFT * _WAYS * _WAYS
_NEVER = 1 << 61
_SHIFT = 16
_FAR = 1 << 55
"""As the key of a card: it will not do. So many of them together as a node has cards still fit into 63 bits."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a wish costs least: the node's position, the columns of the cards, and the cost in millionths."""

    position: int
    columns: tuple[int, ...]
    cost: int


class Demand:
    """What the replicas of a pool's claims wish for of one kind of card, placed and waiting."""

    def __init__(self) -> None:
        self.version = 0
        self.wishes: list[Wish] = []
        """All that was ever wished for, in the order in which it came first; sums do not depend on it."""
        self.numbers: list[int] = []
        self._at: dict[Wish, int] = {}

    def add(self, wish: Wish, number: int) -> None:
        """So many replicas more, or fewer, wish for this."""
        if number:
            self.version += 1
            at = self._at.get(wish)
            if at is None:
                at = self._at[wish] = len(self.wishes)
                self.wishes.append(wish)
                self.numbers.append(0)
            self.numbers[at] += number


@dataclass(slots=True, eq=False)
class _Costs:
    """What a wish costs on each node, by how many cards it opens, and how much of the log was heeded."""

    costs: Integers
    seen: int


@dataclass(slots=True, eq=False)
class _Valuation:
    """A stock at certain prices.

    Attributes:
        prices: By class of card.
        worth: The same as a table by class and remainder.
        cpu: What work worth a card needs of a host's processors (thousandths).
        memory: Likewise of its memory (KiB).
        cards: By node what its cards are worth.
        idle: By node how many cards are expected to idle.
        seen: How much of the log was heeded.
    """

    prices: tuple[Prices, ...]
    worth: Integers
    cpu: Need
    memory: Need
    cards: Integers
    idle: Floats
    seen: int = 0
    known: dict[Wish, _Costs] = field(default_factory=dict)


class Appraiser:
    """Finds the cheapest place of a wish in a stock, for what a demand shows to be asked for."""

    def __init__(self, stock: Stock, demand: Demand, pricer: Pricer) -> None:
        self.stock = stock
        self.demand = demand
        self._pricer = pricer
        self._valuations: dict[tuple[object, ...], _Valuation] = {}
        self._current: _Valuation | None = None
        self._version = -1
        self._facts: _Facts = _Facts(stock, [])
        self._several: dict[int, float] = {}
        self._parts: dict[tuple[bool, ...], float] = {}
        self._groups = _Groups(stock, ())

    def best(self, wish: Wish, among: Booleans | None = None) -> Choice | None:
        """The cheapest place, among some nodes or all of them; None when there is none."""
        if not self.stock.shape[0] or max(wish.parts, 1) > self.stock.shape[1]:
            return None
        if len(self.stock.log) > LOG:
            self._forget()
        valuation = self._valuation()
        total = self._total(valuation, wish, self._costs(valuation, wish))
        if among is not None:
            total = np.where(among[:, None], total, _NEVER)
        at = int(total.argmin())
        if total.flat[at] >= _NEVER // 2:
            return None
        position, way = divmod(at, total.shape[1])
        cost = int(total.flat[at]) // _TIE * _grain(wish)
        return Choice(position, self._columns(valuation, wish, position, way), cost)

    def tariff(self, wish: Wish) -> tuple[list[int], list[bool]]:
        """By node what a wish for whole cards costs there, in units of `GRAIN`, and whether the host has room; which
        cards will do, and whether enough of them are free, is not looked at.
        """
        room = self.stock.room(wish)
        if not self.stock.shape[0]:
            return [], []
        valuation = self._valuation()
        bare = Wish(wish.count, cpu_milli=wish.cpu_milli, memory_kib=wish.memory_kib)
        total = self._total(valuation, bare, self._costs(valuation, bare))[:, 0]
        return (total // _TIE).tolist(), room.tolist()

    def cards(self, wish: Wish) -> Integers:
        """By node and column what a part costs as far as its card goes, in units of `GRAIN`; -1 if too small."""
        stock = self.stock
        opened, fresh = self._keys(self._valuation(), wish, np.arange(stock.shape[0]))
        limit = stock.shares[stock.share_at[wish.share]].max_devices
        if limit is not None and stock.in_mode[stock.share_at[wish.share]] + wish.parts > limit:
            fresh = np.full_like(fresh, _FAR)
            if stock.in_mode[stock.share_at[wish.share]] > limit:
                opened = fresh
        key = np.minimum(opened, fresh)
        found: Integers = np.where(key >= _FAR, -1, (key >> _SHIFT) // GRAIN)
        return found

    def _forget(self) -> None:
        """Starts the log anew, and with it all that was kept."""
        self.stock.log.clear()
        self._valuations.clear()
        self._current, self._version = None, -1

    # What the demand says

    def _valuation(self) -> _Valuation:
        """Prices and needs of the demand as it is, and the stock at these."""
        if self._version != self.demand.version:
            self._version = self.demand.version
            self._current = self._learn()
        valuation = self._current
        assert valuation is not None
        log = self.stock.log
        if valuation.seen < len(log):
            self._appraise(valuation, _recent(log, valuation.seen, self.stock.shape[0]))
            valuation.seen = len(log)
        return valuation

    def _learn(self) -> _Valuation:
        stock, demand = self.stock, self.demand
        facts = self._facts
        if len(facts.wishes) != len(demand.wishes):
            facts = self._facts = _Facts(stock, demand.wishes)
        numbers = np.array(demand.numbers, dtype=np.int64)
        prices = tuple(self._pricer.prices(sizes) for sizes in facts.sizes(numbers))
        worth = facts.worth(prices)
        weights = numbers * worth
        total = int(weights.sum())
        cpu = need(numbers, worth, facts.cpu, total)
        memory = need(numbers, worth, facts.memory, total)
        self._several = {several: int(weights[rows].sum()) / total for several, rows in facts.several.items() if total}
        restricted = {only: int(weights[rows].sum()) / total for only, rows in facts.only.items() if total}
        restricted = {only: part for only, part in restricted.items() if part}
        if tuple(sorted(restricted)) != self._groups.mix:
            self._groups = _Groups(stock, tuple(sorted(restricted)))
        self._parts = {self._groups.members[only]: part for only, part in restricted.items()}
        key = (prices, cpu, memory)
        found = self._valuations.get(key)
        if found is None:
            while len(self._valuations) >= VALUATIONS:
                del self._valuations[next(iter(self._valuations))]
            rows = stock.shape[0]
            table = np.array([each.worth for each in prices]).reshape(len(prices), CARD + 1)
            found = _Valuation(prices, table, cpu, memory, np.zeros(rows, dtype=np.int64), np.zeros(rows))
            self._appraise(found, np.arange(rows))
            found.seen = len(stock.log)
            self._valuations[key] = found
        return found

    def _appraise(self, valuation: _Valuation, rows: Integers) -> None:
        """Brings what nodes are worth up to date."""
        stock = self.stock
        cards = valuation.worth[stock.klass[rows], stock.left[rows]].sum(axis=1)
        valuation.cards[rows] = cards
        valuation.idle[rows] = self._idle(valuation, cards, stock.cpu[rows], stock.memory[rows])

    @staticmethod
    def _idle(valuation: _Valuation, cards: Integers, cpu: Integers, memory: Integers) -> Floats:
        worth = cards / UNIT
        return valuation.cpu.idle(worth, cpu.astype(float)) + valuation.memory.idle(worth, memory.astype(float))

    # What a wish costs

    def _costs(self, valuation: _Valuation, wish: Wish) -> Integers:
        """By node and number of cards opened the terms of the node alone, with what decides among equals."""
        log, kept = self.stock.log, valuation.known.get(wish)
        if kept is None:
            if len(valuation.known) >= KNOWN:
                valuation.known.clear()
            rows = np.arange(self.stock.shape[0])
            kept = valuation.known[wish] = _Costs(self._local(valuation, wish, rows), len(log))
        elif kept.seen < len(log):
            rows = _recent(log, kept.seen, self.stock.shape[0])
            kept.costs[rows] = self._local(valuation, wish, rows)
            kept.seen = len(log)
        return kept.costs

    def _local(self, valuation: _Valuation, wish: Wish, rows: Integers) -> Integers:
        stock = self.stock
        cpu, memory = stock.cpu[rows] - wish.cpu_milli, stock.memory[rows] - wish.memory_kib
        room = (cpu >= 0) & (memory >= 0) & ~stock.closed[rows]
        whole = stock.whole[rows]
        if wish.parts:
            worth, left, opened = self._ways(valuation, wish, rows)
        else:
            count = wish.count
            worth = np.full((len(rows), 1), count * UNIT, dtype=np.int64)
            left = np.zeros((len(rows), 1), dtype=np.int64)
            opened = np.array([count])
            if count:
                usable = stock.free[rows]
                if wish.only:
                    usable = usable & stock.eligible[wish.only][rows]
                room &= usable.sum(axis=1) >= count
        cards = valuation.cards[rows][:, None]
        idle = self._idle(valuation, np.maximum(cards - worth, 0), cpu[:, None], memory[:, None])
        cost = np.minimum(worth, _FAR >> _SHIFT) + np.rint((idle - valuation.idle[rows][:, None]) * UNIT).astype(
            np.int64
        )
        cost = np.rint(cost / _grain(wish)).astype(np.int64)
        free = np.minimum(whole[:, None] - opened, _WAYS - 1)
        tie = (np.minimum(left, _LEFT - 1) * _WAYS + np.maximum(free, 0)) * _WAYS + np.minimum(opened, _WAYS - 1)
        found: Integers = np.where(room[:, None] & (worth < _FAR >> _SHIFT), cost * _TIE + tie, _NEVER)
        return found

    def _ways(self, valuation: _Valuation, wish: Wish, rows: Integers) -> tuple[Integers, Integers, Integers]:
        """By node and number of cards opened what the parts are worth, what is left of their cards, and that number."""
        parts = wish.parts
        sums = []
        for keys in self._keys(valuation, wish, rows):
            found = np.full((len(rows), parts + 1), _FAR, dtype=np.int64)
            found[:, 0] = 0
            least = np.sort(keys, axis=1)[:, :parts]
            np.cumsum(least, axis=1, out=found[:, 1 : least.shape[1] + 1])
            sums.append(found)
        together = sums[0][:, ::-1] + sums[1]
        return together >> _SHIFT, together & (1 << _SHIFT) - 1, np.arange(parts + 1)

    def _keys(self, valuation: _Valuation, wish: Wish, rows: Integers) -> tuple[Integers, Integers]:
        """By card what a part of it is worth, in the higher bits, and what is then left: of cards in the mode, and of
        whole ones.
        """
        stock, part, share = self.stock, wish.of_each, self.stock.share_at[wish.share]
        klass, left = stock.klass[rows], stock.left[rows]
        caps = stock.caps[share]
        size = np.array([cost_milli(part, cap) for cap in caps.tolist()], dtype=np.int64)[klass]
        cap = caps[klass]
        selected = stock.selected[share][rows]
        if wish.only:
            selected = selected & stock.eligible[wish.only][rows]
        fits = selected & (part.milli <= MILLI) & (part.bytes <= cap)
        opened = stock.mode[rows] == share
        opened &= fits & stock.usable[rows]
        opened &= stock.used_bytes[rows] + part.bytes <= cap
        opened &= stock.used_milli[rows] + part.milli <= MILLI
        fresh = fits & stock.free[rows]
        after = np.maximum(left - size, 0)
        worth = valuation.worth
        key = (worth[klass, left] - worth[klass, after] << _SHIFT) + after
        return np.where(opened, key, _FAR), np.where(fresh, key, _FAR)

    def _total(self, valuation: _Valuation, wish: Wish, costs: Integers) -> Integers:
        """All terms together."""
        stock = self.stock
        whole = stock.whole
        table = reservation(stock.spread, self._several, stock.shape[1])
        scarce: Integers | None = None
        if self._parts:
            worth = self._facts.worth_of(wish, valuation.prices)
            weights = valuation.cards.astype(float)
            free = np.bincount(self._groups.of, weights=weights, minlength=len(self._groups.kinds)).astype(float)
            scarce = _cost(scarcity(free, self._parts) * worth * (UNIT // CARD))[self._groups.of]
        if not wish.parts:
            total = costs[:, 0]
            if wish.count:
                total = total + _cost(table[min(wish.count, stock.shape[1])])[whole]
            if scarce is not None:
                total = total + scarce
            return total[:, None]
        total = costs.copy()
        limit = stock.shares[stock.share_at[wish.share]].max_devices
        for opened in range(wish.parts + 1):
            # Of a share that has split too many already nothing is given, not even of cards that are split.
            if limit is not None and stock.in_mode[stock.share_at[wish.share]] + opened > limit:
                total[:, opened] = _NEVER
            elif opened:
                total[:, opened] += _cost(table[min(opened, stock.shape[1])])[whole]
        if scarce is not None:
            total += scarce[:, None]
        return total

    def _columns(self, valuation: _Valuation, wish: Wish, position: int, way: int) -> tuple[int, ...]:
        """The cards of a choice, of equal ones the first."""
        stock = self.stock
        if not wish.parts:
            usable = stock.free[position] & stock.eligible[wish.only][position]
            return tuple(np.flatnonzero(usable)[: wish.count].tolist())
        opened, fresh = self._keys(valuation, wish, np.array([position]))
        chosen = np.argsort(opened[0], kind="stable")[: wish.parts - way].tolist()
        chosen += np.argsort(fresh[0], kind="stable")[:way].tolist()
        return tuple(sorted(chosen))


class _Facts:
    """What of a demand's wishes does not change with their number, as arrays."""

    def __init__(self, stock: Stock, wishes: Sequence[Wish]) -> None:
        self.wishes = tuple(wishes)
        self._stock = stock
        self.cpu = np.array([wish.cpu_milli for wish in wishes], dtype=np.int64)
        self.memory = np.array([wish.memory_kib for wish in wishes], dtype=np.int64)
        self.several: dict[int, list[int]] = {}
        self.only: dict[int, list[int]] = {}
        self._at = {wish: at for at, wish in enumerate(wishes)}
        self._parts: list[tuple[int, list[int]]] = []
        self._prices: tuple[Prices, ...] = ()
        self._worth: Integers = np.zeros(0, dtype=np.int64)
        self._weights = [int((stock.klass[stock.exists] == klass).sum()) for klass in range(len(stock.sizes))]
        for at, wish in enumerate(wishes):
            if wish.parts:
                self._parts.append((at, self._sizes(wish)))
            elif wish.count > 1:
                self.several.setdefault(wish.count, []).append(at)
            if wish.only and wish.count:
                self.only.setdefault(wish.only, []).append(at)

    def _sizes(self, wish: Wish) -> list[int]:
        """By class of card how many thousandths of it each part takes."""
        share = self._stock.share_at.get(wish.share)
        if share is None:
            return [0] * len(self._stock.sizes)
        # Several parts of one card may be more than a card: no card has that, and it is priced like a whole one.
        return [min(MILLI, cost_milli(wish.of_each, cap)) for cap in self._stock.caps[share].tolist()]

    def sizes(self, numbers: Integers) -> Iterator[dict[int, int]]:
        """By class of card how many parts of which size are asked for."""
        counts = numbers.tolist()
        for klass in range(len(self._stock.sizes)):
            found: dict[int, int] = {}
            for at, sizes in self._parts:
                number = counts[at] * self.wishes[at].parts
                if number and sizes[klass]:
                    found[sizes[klass]] = found.get(sizes[klass], 0) + number
            yield found

    def worth(self, prices: tuple[Prices, ...]) -> Integers:
        """By wish what a replica is worth, in thousandths of a card."""
        if prices != self._prices:
            self._prices = prices
            self._worth = np.array([self._rate(wish, prices) for wish in self.wishes], dtype=np.int64)
        return self._worth

    def worth_of(self, wish: Wish, prices: tuple[Prices, ...]) -> int:
        """The same of one wish, known or not."""
        at = self._at.get(wish)
        return self._rate(wish, prices) if at is None else int(self.worth(prices)[at])

    def _rate(self, wish: Wish, prices: tuple[Prices, ...]) -> int:
        if not wish.parts:
            return wish.count * CARD
        # Cards of different memory differ in what a part of them is; what counts is what there are many of.
        each = zip(prices, self._sizes(wish), self._weights, strict=True)
        value = sum(price.price(size) * weight for price, size, weight in each)
        return wish.parts * value // max(1, sum(self._weights)) // (UNIT // CARD)


class _Groups:
    """Nodes that the same restricted wishes can use.

    Attributes:
        mix: The restrictions that are told apart.
        of: By node its group.
        kinds: By group which of the restrictions allow it.
        members: By restriction which groups it allows.
    """

    def __init__(self, stock: Stock, mix: tuple[int, ...]) -> None:
        self.mix = mix
        rows = stock.shape[0]
        allowed = np.array([stock.eligible[only].any(axis=1) for only in mix], dtype=bool).reshape(len(mix), rows)
        kinds, of = np.unique(allowed.T, axis=0, return_inverse=True) if mix and rows else (np.zeros((1, 0)), None)
        self.of: Integers = np.zeros(rows, dtype=np.int64) if of is None else of.reshape(rows)
        self.kinds = [tuple(bool(each) for each in kind) for kind in kinds]
        self.members = {only: tuple(kind[at] for kind in self.kinds) for at, only in enumerate(mix)}


def _grain(wish: Wish) -> int:
    """In what costs are compared."""
    return GRAIN if wish.count else FINE


def _cost(amount: Floats) -> Integers:
    """Millionths in the place of the cost in a key."""
    found: Integers = np.rint(amount / GRAIN).astype(np.int64) * _TIE
    return found


def _recent(log: Sequence[int], seen: int, rows: int) -> Integers:
    """The rows that changed since."""
    if len(log) - seen > rows:
        return np.arange(rows)
    return np.array(sorted(set(log[seen:])), dtype=np.int64)
