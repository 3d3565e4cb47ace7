"""The cheapest place for cards, whole or in parts, on hosts that have limits.

In come a `Stock` (what is left of cards and hosts), a `Demand` (what replicas of a pool's claims wish for, placed and
waiting) and a wish; out comes the node with the cheapest cards, by the terms of `appraisal`. Costs that depend on
nothing but a node are kept per wish, and only nodes that changed are looked at again; keeping them changes speed and
nothing else.

The cost of a place is compared first; among equal costs the one that leaves less of the cards it uses, then fewer free
cards on the node, then the one that opens fewer cards, then stable order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.appraisal import Floats, Integers, Strand, reservation, scarcity
from adjoin_allocator.card_rules import UNUSED, CardRule, Use
from adjoin_allocator.prices import CARD, LINEAR, UNIT, Pricer
from adjoin_allocator.sharing import MILLI, Part
from adjoin_allocator.stock import Stock, Wish
from adjoin_allocator.wishes import Demand, Lessons

Booleans = NDArray[np.bool_]

GRAIN = 20_000
"""Costs are compared in so many millionths of a card: smaller differences are within what demand is known to, and then
the fuller card is better."""

FINE = 50
"""The same for what asks for no card, and costs a small part of one at most."""

KNOWN = 1 << 22
"""How many costs of wishes on nodes are kept."""

FEW = 24
"""Up to so many nodes are looked at one by one."""

LOG = 1 << 20
"""How many changes are logged until all is looked at again."""

VALUATIONS = 8
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


@dataclass(slots=True, eq=False)
class _Costs:
    """What a wish costs on each node, by how many cards it opens, and how much of the log was heeded."""

    costs: Integers
    seen: int


@dataclass(slots=True, eq=False)
class _Valuation:
    """A stock at certain prices.

    Attributes:
        worth: By class and thousandths left what a card is worth, one class after the other.
        strand: What needs of hosts make idle.
        cards: By node what its cards are worth.
        seen: How much of the log was heeded there.
        known: What wishes cost.
        keys: By sizes of a part the keys of cards, as `worth` is ordered.
    """

    worth: Integers
    strand: Strand
    cards: Floats
    seen: int = 0
    known: dict[Wish, _Costs] = field(default_factory=dict)
    keys: dict[tuple[int, ...], tuple[Integers, list[int]]] = field(default_factory=dict)
    listed: list[int] = field(init=False)
    """The same as `worth`."""

    def __post_init__(self) -> None:
        self.listed = self.worth.tolist()


class Appraiser:
    """Finds the cheapest place of a wish in a stock, for what a demand shows to be asked for."""

    def __init__(self, stock: Stock, demand: Demand, pricer: Pricer) -> None:
        self.stock = stock
        self._lessons = Lessons(stock, demand, pricer)
        self._valuations: dict[tuple[object, ...], _Valuation] = {}
        self._current: _Valuation | None = None
        self._groups = _Groups(stock, frozenset())
        self._open = ~stock.closed
        self._most = max(16, KNOWN // max(1, 2 * stock.shape[0]))

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
        least = total.item(at)
        if least >= _NEVER // 2:
            return None
        position, way = divmod(at, total.shape[1])
        return Choice(position, self._columns(valuation, wish, position, way), least // _TIE * _grain(wish))

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
        opened, fresh = self._keys(self._valuation(), wish, slice(None))
        limit = stock.shares[stock.share_at[wish.share]].max_devices
        if limit is not None and stock.in_mode[stock.share_at[wish.share]] + wish.parts > limit:
            fresh = np.full_like(fresh, _FAR)
            if stock.in_mode[stock.share_at[wish.share]] > limit:
                opened = fresh
        key = np.minimum(opened, fresh)
        found: Integers = np.where(key >= _FAR, -1, (key >> _SHIFT) // GRAIN)
        return found

    def price(self, klass: int, left: int, size: int) -> int:
        """What so many thousandths of a card of this class cost of which so many are left, in units of `GRAIN`."""
        worth, base = self._valuation().listed, klass * (CARD + 1)
        return (worth[base + left] - worth[base + max(left - size, 0)]) // GRAIN

    def profiles(self, share: str) -> dict[str, int]:
        """How often each profile of a share is asked for."""
        return self._lessons.profiles(share)

    def loss(self, rule: CardRule, share: str, use: Use, part: Part) -> int | None:
        """What a card loses that is cut into partitions, in units of `GRAIN`; None for other cards."""
        loss = rule.loss(use, part, self._lessons.profiles(share)) if part.profile else None
        return None if loss is None else loss // GRAIN

    def _forget(self) -> None:
        """Starts the log anew, and with it all that was kept."""
        self.stock.log.clear()
        self._valuations.clear()
        self._current = None

    # What the demand says

    def _valuation(self) -> _Valuation:
        """The stock at prices and needs of the demand as it is."""
        lessons = self._lessons
        if lessons.learn() or self._current is None:
            if lessons.restricted.keys() != self._groups.mix:
                self._groups = _Groups(self.stock, frozenset(lessons.restricted))
            self._current = self._valued(lessons)
        return self._current

    def _valued(self, lessons: Lessons) -> _Valuation:
        key = (lessons.prices, lessons.cpu, lessons.memory)
        found = self._valuations.get(key)
        if found is None:
            while len(self._valuations) >= VALUATIONS:
                del self._valuations[next(iter(self._valuations))]
            worth: Integers = np.concatenate([each.worth for each in (*lessons.prices, LINEAR)])
            strand = Strand((lessons.cpu, lessons.memory))
            found = _Valuation(worth, strand, self._cards(worth, slice(None)), len(self.stock.log))
            self._valuations[key] = found
        return found

    def _cards(self, worth: Integers, rows: Integers | slice) -> Floats:
        """By node what its cards are worth."""
        found: Floats = worth[self.stock.place[rows]].sum(axis=1, dtype=float)
        return found

    # What a wish costs

    def _costs(self, valuation: _Valuation, wish: Wish) -> Integers:
        """By node and number of cards opened the terms of the node alone, with what decides among equals."""
        log, kept = self.stock.log, valuation.known.get(wish)
        if kept is None:
            if len(valuation.known) >= self._most:
                valuation.known.clear()
            kept = valuation.known[wish] = _Costs(self._local(valuation, wish, slice(None)), len(log))
        elif kept.seen < len(log):
            changed = {*log[kept.seen :]} if len(log) - kept.seen <= 2 * FEW else ()
            if 0 < len(changed) <= FEW and self._light(wish):
                for position in changed:
                    kept.costs[position] = self._node(valuation, wish, position)
            else:
                rows = _recent(log, kept.seen, self.stock.shape[0])
                kept.costs[rows] = self._local(valuation, wish, rows)
            kept.seen = len(log)
        return kept.costs

    def _light(self, wish: Wish) -> bool:
        """Whether `_node` can tell what it costs."""
        light = not wish.parts or (wish.parts == 1 and not _heavy(wish.of_each) and not self.stock.heavy)
        return light and self.stock.shape[1] < _WAYS

    def _node(self, valuation: _Valuation, wish: Wish, position: int) -> list[int]:
        """What `_local` says of one node, without arrays."""
        stock = self.stock
        standing, place, (free, _, cpu, memory) = stock.node(position)
        ways = wish.parts + 1 if wish.parts else 1
        left = cpu - wish.cpu_milli, memory - wish.memory_kib
        if left[0] < 0 or left[1] < 0 or stock.closed[position]:
            return [_NEVER] * ways
        keys = [(wish.count * UNIT << _SHIFT, wish.count)]
        if wish.parts:
            opened, fresh = self._cheapest(valuation, wish, position)
            keys = [(opened[0], 0), (fresh[0], 1)]
        elif wish.count:
            mask = stock.mask(wish)
            usable = free.bit_count()
            if mask is not None:
                usable = sum(each for each, card in zip(mask[position].tolist(), standing, strict=True) if card == 1)
            if usable < wish.count:
                return [_NEVER]
        worth = valuation.listed
        cards = float(sum([worth[each] for each in place]))
        before = valuation.strand.idle_on(cards / UNIT, (cpu, memory))
        found, grain, whole = [], _grain(wish), free.bit_count()
        for key, opened_cards in keys:
            if key >= _FAR:
                found.append(_NEVER)
                continue
            cost = key >> _SHIFT
            idle = valuation.strand.idle_on(max(cards - cost, 0.0) / UNIT, left)
            amount = round((round((idle - before) * UNIT) + cost) / grain)
            tie = key & (1 << _SHIFT) - 1
            found.append(((amount * _LEFT + tie) * _WAYS + max(whole - opened_cards, 0)) * _WAYS + opened_cards)
        return found

    def _cheapest(self, valuation: _Valuation, wish: Wish, position: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Key and column of the best card in the mode for a part of one, and of the best whole one; `_FAR` for none."""
        stock, share = self.stock, self.stock.share_at[wish.share]
        standing, place, _ = stock.node(position)
        table, mask = self._table(valuation, wish, share)[1], stock.mask(wish)
        may = mask[position].tolist() if mask is not None else None
        opened = fresh = (_FAR, 0)
        for column, card in enumerate(standing):
            if (card == 1 or card == 2 + share) and (may is None or may[column]):
                key = table[place[column]]
                if card == 1 and key < fresh[0]:
                    fresh = (key, column)
                elif card != 1 and key < opened[0]:
                    opened = (key, column)
        return opened, fresh

    def _local(self, valuation: _Valuation, wish: Wish, rows: Integers | slice) -> Integers:
        stock, asked = self.stock, np.array(((wish.cpu_milli,), (wish.memory_kib,)))
        host = stock.host[:, rows]
        cards = self._cards(valuation.worth, rows)
        ways = wish.parts + 1 if wish.parts else 1
        # What is left on the host and of the cards, by way; the last column is the node as it is.
        left = np.empty((2, len(cards), ways + 1), dtype=np.int64)
        left[:] = (host - asked)[:, :, None]
        left[:, :, -1] = host
        after = np.empty((len(cards), ways + 1))
        after[:] = cards[:, None]
        room = left[:, :, 0].min(axis=0) >= 0
        room &= self._open[rows]
        if wish.parts:
            cost, rest = self._ways(valuation, wish, rows)
            after[:, :-1] -= cost
            able = cost < _FAR >> _SHIFT
            able &= room[:, None]
            cost = np.minimum(cost, _FAR >> _SHIFT)
            opened = np.arange(ways)
            tie = rest if wish.parts < _LEFT // MILLI else np.minimum(rest, _LEFT - 1)
        else:
            after[:, :-1] -= wish.count * UNIT
            if wish.count:
                usable, mask = stock.standing[rows] == 1, stock.mask(wish)
                if mask is not None:
                    usable &= mask[rows]
                room &= usable.sum(axis=1) >= wish.count
            able = room[:, None]
            cost = np.full((1, 1), wish.count * UNIT)
            opened = np.array([wish.count])
            tie = np.zeros((1, 1), dtype=np.int64)
        np.maximum(after, 0.0, out=after)
        after /= UNIT
        idles = valuation.strand.idle(after, left)
        amount = idles[:, :-1] - idles[:, -1:]
        amount *= UNIT
        np.rint(amount, out=amount)
        amount += cost
        amount /= _grain(wish)
        key = np.rint(amount, out=amount).astype(np.int64)
        key *= _LEFT
        key += tie
        key *= _WAYS
        free = stock.whole[rows][:, None] - opened
        np.maximum(free, 0, out=free)
        if stock.shape[1] >= _WAYS:
            np.minimum(free, _WAYS - 1, out=free)
            opened = np.minimum(opened, _WAYS - 1)
        key += free
        key *= _WAYS
        key += opened
        key[~able] = _NEVER
        return key

    def _ways(self, valuation: _Valuation, wish: Wish, rows: Integers | slice) -> tuple[Integers, Integers]:
        """By node and number of cards opened what the parts are worth, and what is left of their cards."""
        parts = wish.parts
        keys = self._keys(valuation, wish, rows)
        if parts == 1:
            together = np.stack([each.min(axis=1) for each in keys], axis=1)
        else:
            sums = []
            for each in keys:
                found = np.full((len(each), parts + 1), _FAR, dtype=np.int64)
                found[:, 0] = 0
                least = np.sort(each, axis=1)[:, :parts]
                np.cumsum(least, axis=1, out=found[:, 1 : least.shape[1] + 1])
                sums.append(found)
            together = sums[0][:, ::-1] + sums[1]
        return together >> _SHIFT, together & (1 << _SHIFT) - 1

    def _keys(self, valuation: _Valuation, wish: Wish, rows: Integers | slice) -> tuple[Integers, Integers]:
        """By card what a part of it is worth, in the higher bits, and what is then left: of cards in the mode, and of
        whole ones.
        """
        stock, part, share = self.stock, wish.of_each, self.stock.share_at[wish.share]
        if stock.cut[share]:
            return self._cut_keys(wish, share, rows)
        key = self._table(valuation, wish, share)[0][stock.place[rows]]
        standing, mask = stock.standing[rows], stock.mask(wish)
        opened, fresh = standing == 2 + share, standing == 1
        if _heavy(part) or stock.heavy:
            caps, clients = stock.caps[share][stock.klass[rows]], stock.rules[share][0].clients
            fits = (caps >= part.units) & (part.milli <= MILLI and part.clients <= clients)
            used_units, used_milli, used_clients = stock.used[1:, rows]
            opened &= used_units + part.units <= caps
            opened &= used_milli + part.milli <= MILLI
            if part.clients:
                opened &= used_clients + part.clients <= clients
            opened &= fits
            fresh &= fits
        elif part.milli > MILLI:
            opened[:], fresh[:] = False, False
        else:
            opened &= key < _FAR
        if mask is not None:
            opened &= mask[rows]
            fresh &= mask[rows]
        return np.where(opened, key, _FAR), np.where(fresh, key, _FAR)

    def _cut_keys(self, wish: Wish, share: int, rows: Integers | slice) -> tuple[Integers, Integers]:
        """`_keys` of partitions: what a card loses of what may still come."""
        stock = self.stock
        standing, klass, (mode, _, _, face), mask = (
            stock.standing[rows],
            stock.klass[rows],
            stock.used[:, rows],
            stock.mask(wish),
        )
        rules, demand, part = stock.rules[share], self._lessons.profiles(wish.share), wish.of_each
        whole = np.array([_loss_key(rule, UNUSED, part, demand) for rule in rules], dtype=np.int64)
        # Faces of other shares are no uses that this one's rules know; they are masked out below.
        cut = [_loss_key(rules[at], use, part, demand) if rules[at].knows(use) else _FAR for at, use in stock.faces]
        opened = standing == 2 + share
        fresh = standing == 1
        if mask is not None:
            opened &= mask[rows]
            fresh &= mask[rows]
        faces = np.array(cut or [_FAR], dtype=np.int64)[np.where(mode == share, face, 0)]
        return np.where(opened, faces, _FAR), np.where(fresh, whole[klass], _FAR)

    def _table(self, valuation: _Valuation, wish: Wish, share: int) -> tuple[Integers, list[int]]:
        """By class and thousandths left the key of a card; a part that is larger than what is left by that measure, and
        still fits, leaves nothing.
        """
        part = wish.of_each
        sizes = tuple(each.size(part) for each in self.stock.rules[share])
        exact = not _heavy(part) and not self.stock.heavy
        found = valuation.keys.get((exact, *sizes))
        if found is None:
            if len(valuation.keys) >= KNOWN // (CARD + 1):
                valuation.keys.clear()
            tables = []
            for klass, size in enumerate(sizes):
                worth = valuation.worth[klass * (CARD + 1) : (klass + 1) * (CARD + 1)]
                left = np.arange(CARD + 1)
                after = np.maximum(left - size, 0)
                table = (worth - worth[after] << _SHIFT) + after
                tables.append(np.where(left < size, _FAR, table) if exact else table)
            together = np.concatenate(tables)
            found = valuation.keys[exact, *sizes] = together, together.tolist()
        return found

    def _total(self, valuation: _Valuation, wish: Wish, costs: Integers) -> Integers:
        """All terms together."""
        stock, lessons = self.stock, self._lessons
        size = stock.shape[1]
        openings = [*range(1, wish.parts + 1)] if wish.parts else [wish.count]
        total = costs.copy()
        if openings[-1] and lessons.several:
            table = _cost(reservation(stock.spread, lessons.several, size, [min(each, size) for each in openings]))
            if table.any():
                for at, row in enumerate(table, 1 if wish.parts else 0):
                    total[:, at] += row[stock.whole]
        limit = stock.shares[stock.share_at[wish.share]].max_devices if wish.parts else None
        if limit is not None:
            # Of a share that has split too many already nothing is given, not even of cards that are split.
            for opened in range(total.shape[1]):
                if stock.in_mode[stock.share_at[wish.share]] + opened > limit:
                    total[:, opened] = _NEVER
        if lessons.restricted:
            groups, log = self._groups, stock.log
            if valuation.seen < len(log):
                rows = _recent(log, valuation.seen, stock.shape[0])
                valuation.cards[rows] = self._cards(valuation.worth, rows)
                valuation.seen = len(log)
            free: Floats = np.bincount(groups.of, valuation.cards, groups.number).astype(float)
            parts = groups.parts(lessons.restricted) / lessons.total
            scarce = _cost(scarcity(free, groups.allowed, parts) * lessons.worth(wish) * (UNIT // CARD))
            total += scarce[groups.of][:, None]
        return total

    def _columns(self, valuation: _Valuation, wish: Wish, position: int, way: int) -> tuple[int, ...]:
        """The cards of a choice, of equal ones the first."""
        stock = self.stock
        if not wish.parts:
            usable, mask = stock.standing[position] == 1, stock.mask(wish)
            if mask is not None:
                usable = usable & mask[position]
            return tuple(np.flatnonzero(usable)[: wish.count].tolist())
        if wish.parts == 1 and self._light(wish):
            return (self._cheapest(valuation, wish, position)[way][1],)
        opened, fresh = self._keys(valuation, wish, slice(position, position + 1))
        chosen = np.argsort(opened[0], kind="stable")[: wish.parts - way].tolist()
        chosen += np.argsort(fresh[0], kind="stable")[:way].tolist()
        return tuple(sorted(chosen))


class _Groups:
    """Nodes that the same restricted wishes can use.

    Attributes:
        mix: The selections that are told apart.
        of: By node its group.
        number: How many groups there are.
        allowed: Which groups those can use who want certain nodes; these stand in an order that depends on nothing but
            the nodes.
    """

    def __init__(self, stock: Stock, mix: frozenset[int]) -> None:
        self.mix = mix
        rows = stock.shape[0]
        nodes = {only: stock.eligible[only].any(axis=1) for only in mix}
        different = sorted({each.tobytes() for each in nodes.values()})
        self._rows = {only: different.index(each.tobytes()) for only, each in nodes.items()}
        table = np.array([np.frombuffer(each, dtype=bool) for each in different], dtype=bool).reshape(-1, rows)
        self.of: Integers = np.zeros(rows, dtype=np.int64)
        kinds = np.zeros((1, len(different)), dtype=bool)
        if rows and different:
            kinds, of = np.unique(table.T, axis=0, return_inverse=True)
            self.of = np.asarray(of, dtype=np.int64).reshape(rows)
        self.number = len(kinds)
        self.allowed: Floats = kinds.T.astype(float)

    def parts(self, restricted: Mapping[int, int]) -> Floats:
        """What is asked for, by row of `allowed`."""
        found = [0] * len(self.allowed)
        for only, amount in restricted.items():
            found[self._rows[only]] += amount
        return np.array(found, dtype=float)


def _loss_key(rule: CardRule, use: Use, part: Part, demand: Mapping[str, int]) -> int:
    """The key of a card that is cut into partitions: what it loses, and by how much less than a grain in place of what
    is left.
    """
    loss = rule.loss(use, part, demand)
    if loss is None:
        return _FAR
    grains, rest = divmod(loss, GRAIN)
    return grains * GRAIN << _SHIFT | rest * (_LEFT - 1) // GRAIN


def _heavy(part: Part) -> bool:
    """Whether thousandths do not tell whether it fits."""
    return bool(part.units or part.clients or part.profile)


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
    return np.array([*{*log[seen:]}], dtype=np.int64)
