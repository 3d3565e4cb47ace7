"""The cheapest place for cards, whole or in parts, on hosts that have limits.

In come a `Stock` (what is left of cards and hosts), a `Demand` (what replicas of a pool's claims wish for, placed and
waiting) and a wish; out comes the node with the cheapest cards, by the terms of `appraisal`. Costs that depend on
nothing but a node are kept per wish, and only nodes that changed are looked at again; keeping them changes speed and
nothing else.

The cost of a place is compared first; among equal costs the one that leaves less of the cards it uses, then fewer free
cards on the node, then the one that opens fewer cards, then stable order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.appraisal import Floats, Integers, Strand, reservation, scarcity
from adjoin_allocator.card_rules import UNUSED, CardRule, Use
from adjoin_allocator.prices import CARD, LINEAR, UNIT, Pricer, held_worth
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

TABLES = 512
"""How many tables of cards are kept for each of these."""

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
        idle: By node how many of these are expected to idle as it is.
        seen: How much of the log was heeded in both.
        known: What wishes cost.
        keys: By sizes of a part the keys of cards, as `worth` is ordered.
    """

    worth: Integers
    strand: Strand
    cards: Floats
    idle: Floats
    seen: int = 0
    known: dict[tuple[Wish, object], _Costs] = field(default_factory=dict)
    keys: dict[object, tuple[Integers, list[int]]] = field(default_factory=dict)
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
        self._valued_at: tuple[object, ...] = ()
        """The key of that."""
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
        # Whether it may divide as many as it takes of one node, that node is asked.
        if limit is not None and not stock.openings(wish.share):
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
        if self._current is not None and key == self._valued_at:
            return self._current
        self._valued_at = key
        found = self._valuations.get(key)
        if found is None:
            while len(self._valuations) >= VALUATIONS:
                del self._valuations[next(iter(self._valuations))]
            worth: Integers = np.concatenate([each.worth for each in (*lessons.prices, LINEAR)])
            strand = Strand((lessons.cpu, lessons.memory))
            found = _Valuation(worth, strand, *self._as_it_is(worth, strand, slice(None)), len(self.stock.log))
            self._valuations[key] = found
        return found

    def _as_it_is(self, worth: Integers, strand: Strand, rows: Integers | slice) -> tuple[Floats, Floats]:
        """By node what its cards are worth, and how many of them are expected to idle."""
        cards: Floats = worth[self.stock.place[rows]].sum(axis=1, dtype=float)
        return cards, strand.idle((cards / UNIT)[:, None], self.stock.host[:, rows, None])[:, 0]

    def _heed(self, valuation: _Valuation) -> None:
        """Brings what is kept by node up to date."""
        stock, log = self.stock, self.stock.log
        if len(log) - valuation.seen <= FEW:
            for position in {*log[valuation.seen :]}:
                _, place, (_, _, cpu, memory) = stock.node(position)
                cards = float(sum([valuation.listed[each] for each in place]))
                valuation.cards[position] = cards
                valuation.idle[position] = valuation.strand.idle_on(cards / UNIT, (cpu, memory))
        else:
            rows = _recent(log, valuation.seen, stock.shape[0])
            found = self._as_it_is(valuation.worth, valuation.strand, rows)
            valuation.cards[rows], valuation.idle[rows] = found
        valuation.seen = len(log)

    # What a wish costs

    def _costs(self, valuation: _Valuation, wish: Wish) -> Integers:
        """By node and number of cards opened the terms of the node alone, with what decides among equals."""
        # What a card loses that is cut into partitions depends on how often which of them are asked for.
        cut = wish.part is not None and self.stock.cut[self.stock.share_at[wish.share]]
        asked = frozenset(self._lessons.profiles(wish.share).items()) if cut else self._lessons.offers(wish)
        key = (wish, asked)
        log, kept = self.stock.log, valuation.known.get(key)
        if valuation.seen < len(log):
            self._heed(valuation)
        if kept is None:
            if len(valuation.known) >= self._most:
                valuation.known.clear()
            kept = valuation.known[key] = _Costs(self._local(valuation, wish, slice(None)), len(log))
        elif kept.seen < len(log):
            changed = {*log[kept.seen :]} if len(log) - kept.seen <= 2 * FEW else ()
            if 0 < len(changed) <= FEW and self._light(wish):
                for position, found in self._nodes(valuation, wish, changed):
                    kept.costs[position] = found
            else:
                rows = _recent(log, kept.seen, self.stock.shape[0])
                kept.costs[rows] = self._local(valuation, wish, rows)
            kept.seen = len(log)
        return kept.costs

    def _light(self, wish: Wish) -> bool:
        """Whether `_nodes` can tell what it costs."""
        light = not wish.parts or (wish.parts == 1 and not _heavy(wish.of_each) and not self.stock.heavy)
        return light and self.stock.shape[1] < _WAYS and not (wish.parts and self.stock.modes)

    def _nodes(
        self, valuation: _Valuation, wish: Wish, positions: Iterable[int]
    ) -> Iterator[tuple[int, int | list[int]]]:
        """What `_local` says of single nodes, without arrays."""
        stock, strand, closed = self.stock, valuation.strand, self.stock.closed
        parts, count, grain = wish.parts, wish.count, _grain(wish)
        mask = stock.mask(wish)
        table, share = self._scale(valuation, wish) if parts else ([], 0)
        for position in positions:
            standing, place, (free, _, cpu, memory) = stock.node(position)
            left = cpu - wish.cpu_milli, memory - wish.memory_kib
            if left[0] < 0 or left[1] < 0 or closed[position]:
                yield position, _NEVER
                continue
            whole = free.bit_count()
            if parts:
                may = mask[position].tolist() if mask is not None else None
                opened, fresh = _cheapest(standing, place, may, table, share)
                keys = [(opened[0], 0), (fresh[0], 1)]
            else:
                usable = whole
                if mask is not None and count:
                    may = zip(mask[position].tolist(), standing, strict=True)
                    usable = sum(each for each, card in may if card == 1)
                if usable < count:
                    yield position, _NEVER
                    continue
                keys = [(count * UNIT << _SHIFT, count)]
            cards, before = valuation.cards.item(position), valuation.idle.item(position)
            found = []
            for key, cards_opened in keys:
                if key >= _FAR:
                    found.append(_NEVER)
                    continue
                cost = key >> _SHIFT
                idle = strand.idle_on(max(cards - cost, 0.0) / UNIT, left)
                amount = round((round((idle - before) * UNIT) + cost) / grain)
                tie = key & (1 << _SHIFT) - 1
                found.append(((amount * _LEFT + tie) * _WAYS + max(whole - cards_opened, 0)) * _WAYS + cards_opened)
            yield position, found

    def _scale(self, valuation: _Valuation, wish: Wish) -> tuple[list[int], int]:
        """The keys of cards for a part of one, and how a card stands that is in its mode."""
        share = self.stock.share_at[wish.share]
        return self._table(valuation, wish, share)[1], 2 + share

    def _local(self, valuation: _Valuation, wish: Wish, rows: Integers | slice) -> Integers:
        stock = self.stock
        left = stock.host[:, rows] - np.array(((wish.cpu_milli,), (wish.memory_kib,)))
        room = left.min(axis=0) >= 0
        room &= self._open[rows]
        if not wish.parts and wish.count:
            room &= self._usable(wish, rows) >= wish.count
        ways = wish.parts + 1 if wish.parts else 1
        found: Integers = np.full((len(room), ways), _NEVER)
        # Most nodes of a cluster that is in use have no room: only the others are looked at closely.
        at = np.flatnonzero(room)
        rows = at if isinstance(rows, slice) else rows[at]
        if not len(rows):
            return found
        cards = valuation.cards[rows]
        after = np.empty((len(rows), ways))
        after[:] = cards[:, None]
        if wish.parts:
            cost, tie = self._ways(valuation, wish, rows)
            after -= cost
            never = cost >= _FAR >> _SHIFT
            np.minimum(cost, _FAR >> _SHIFT, out=cost)
            opened = np.arange(ways)
            if wish.parts >= _LEFT // MILLI:
                np.minimum(tie, _LEFT - 1, out=tie)
        else:
            after -= wish.count * UNIT
            cost = np.full((1, 1), wish.count * UNIT)
            opened = np.array([wish.count])
            tie = np.zeros((1, 1), dtype=np.int64)
        np.maximum(after, 0.0, out=after)
        after /= UNIT
        amount = valuation.strand.idle(after, left[:, at, None])
        amount -= valuation.idle[rows][:, None]
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
        if wish.parts:
            key[never] = _NEVER
        found[at] = key
        return found

    def _usable(self, wish: Wish, rows: Integers | slice) -> Integers:
        """By node how many free cards will do for a wish for whole ones."""
        mask, stock = self.stock.mask(wish), self.stock
        if mask is None:
            return stock.whole[rows]
        usable = stock.standing[rows] == 1
        usable &= mask[rows]
        found: Integers = usable.sum(axis=1)
        return found

    def _ways(self, valuation: _Valuation, wish: Wish, rows: Integers) -> tuple[Integers, Integers]:
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
        if not stock.classes:
            nothing = np.full(stock.standing[rows].shape, _FAR, dtype=np.int64)
            return nothing, nothing
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
        return np.where(opened, key, _FAR), np.where(fresh, self._prefer_made(share, rows, key), _FAR)

    def _prefer_made(self, share: int, rows: Integers | slice, key: Integers) -> Integers:
        """The keys of whole cards, a little less of those that are in the share's mode already: nothing has to be made
        of them. Those in the mode of another share, from which they would have to be brought back, cost a little more.
        """
        mine, made = self.stock.made(share), self.stock.made(-1)
        if mine is None or made is None:
            return key
        return key - (mine[rows] & (key & (1 << _SHIFT) - 1 > 0)) + (made[rows] & ~mine[rows] & (key < _FAR))

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
        worth = self._valuation().listed

        def key(klass: int, use: Use) -> int:
            rule = rules[klass]
            after = rule.after(use, part) if rule.knows(use) else None
            if after is None:
                return _FAR
            loss = rule.loss(use, part, demand)
            if loss is not None:
                return _loss_key(loss)
            base, left = klass * (CARD + 1), rule.left_milli(after)
            return (worth[base + rule.left_milli(use)] - worth[base + left] << _SHIFT) + left

        whole = np.array([key(klass, UNUSED) for klass in range(len(rules))], dtype=np.int64)
        # Faces of other shares are no uses that this one's rules know; they are masked out below.
        cut = [key(klass, use) for klass, use in stock.faces]
        opened = standing == 2 + share
        fresh = standing == 1
        if mask is not None:
            opened &= mask[rows]
            fresh &= mask[rows]
        faces = np.array(cut or [_FAR], dtype=np.int64)[np.where(mode == share, face, 0)]
        fresh_keys = self._prefer_made(share, rows, whole[klass])
        return np.where(opened, faces, _FAR), np.where(fresh, fresh_keys, _FAR)

    def _table(self, valuation: _Valuation, wish: Wish, share: int) -> tuple[Integers, list[int]]:
        """By class and thousandths left the key of a card; a part that is larger than what is left by that measure, and
        still fits, leaves nothing.
        """
        part = wish.of_each
        sizes = tuple(each.size(part) for each in self.stock.rules[share])
        exact = not _heavy(part) and not self.stock.heavy
        offers = self._lessons.offers(wish)
        at = (exact, offers, sizes)
        found = valuation.keys.get(at)
        if found is None:
            if len(valuation.keys) >= TABLES:
                valuation.keys.clear()
            tables = []
            for klass, size in enumerate(sizes):
                worth = valuation.worth[klass * (CARD + 1) : (klass + 1) * (CARD + 1)]
                if offers:
                    worth = held_worth(offers[klass])
                left = np.arange(CARD + 1)
                after = np.maximum(left - size, 0)
                table = (worth - worth[after] << _SHIFT) + after
                tables.append(np.where(left < size, _FAR, table) if exact else table)
            together = np.concatenate(tables)
            found = valuation.keys[at] = together, together.tolist()
        return found

    def _total(self, valuation: _Valuation, wish: Wish, costs: Integers) -> Integers:
        """All terms together."""
        stock, lessons, ways = self.stock, self._lessons, wish.parts
        total = costs
        if lessons.several and (ways or wish.count):
            size = stock.shape[1]
            openings = range(1, ways + 1) if ways else (wish.count,)
            table = reservation(stock.spread, lessons.several, size, tuple([min(each, size) for each in openings]))
            if table is not None:
                total = costs.copy()
                for at, row in enumerate(_cost(table), 1 if ways else 0):
                    total[:, at] += row.take(stock.whole)
        limit = stock.shares[stock.share_at[wish.share]].max_devices if ways else None
        if limit is not None:
            # Of a share that has split too many already nothing is given, not even of cards that are split.
            total = total.copy()
            for opened in range(total.shape[1]):
                if stock.in_mode[stock.share_at[wish.share]] + opened > limit:
                    total[:, opened] = _NEVER
        if lessons.restricted:
            groups = self._groups
            free: Floats = np.bincount(groups.of, valuation.cards, groups.number).astype(float)
            parts = groups.parts(lessons.restricted) / lessons.total
            scarce = _cost(scarcity(free, groups.allowed, parts) * lessons.worth(wish) * (UNIT // CARD))
            total = total + scarce[groups.of][:, None]
        return total

    def _columns(self, valuation: _Valuation, wish: Wish, position: int, way: int) -> tuple[int, ...]:
        """The cards of a choice, of equal ones the first."""
        stock = self.stock
        if not wish.parts:
            standing, mask = stock.node(position)[0], stock.mask(wish)
            may = standing if mask is None else mask[position].tolist()
            usable = [at for at, card in enumerate(standing) if card == 1 and may[at]]
            made = stock.made(-1)
            if made is not None:
                # What is in no share's mode need not be brought back from it.
                usable.sort(key=lambda at: made.item(position, at))
            return tuple(sorted(usable[: wish.count]))
        if wish.parts == 1 and self._light(wish):
            standing, place, _ = stock.node(position)
            mask = stock.mask(wish)
            may = None if mask is None else mask[position].tolist()
            return (_cheapest(standing, place, may, *self._scale(valuation, wish))[way][1],)
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


def _cheapest(
    standing: Sequence[int], place: Sequence[int], may: Sequence[bool] | None, table: Sequence[int], share: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Key and column of the best card in the mode for a part of one, and of the best whole one; `_FAR` for none."""
    opened = fresh = (_FAR, 0)
    for column, card in enumerate(standing):
        if (card == 1 or card == share) and (may is None or may[column]):
            key = table[place[column]]
            if card == 1:
                if key < fresh[0]:
                    fresh = (key, column)
            elif key < opened[0]:
                opened = (key, column)
    return opened, fresh


def _loss_key(loss: int) -> int:
    """The key of a card that is cut into partitions: what it loses, and by how much less than a grain in place of what
    is left.
    """
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
