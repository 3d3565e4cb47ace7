"""The exact search for one replica's devices in one node: dynamic programming over the counts of a device tree.

In come the devices that each request may have, the objective as weights, and the tree of `hierarchy`; out comes the one
best choice. Every part of the objective is a sum over devices, pairs, islands or tree vertices, down to the bits that
stand for stable order, so one integer carries the whole objective, the best choice is unique, and it can be read back
from the integer's order bits.

For each vertex of the tree a table says for every combination of counts (how many devices each request takes below the
vertex) the least cost. Tables of parts are combined pair by pair. What is added where:

- a device alone: performance, priority, order;
- combining parts: distances (or a ban) between devices of one clique, by counts;
- leaving a vertex upwards: pairings. On a tree the least sum of pair distances is the sum over all vertices of the
  devices that find no partner below them, times half the growth of the distance there: who is unpaired in a switch is
  paired in the root complex, and so on. A ban above a vertex means that nobody may be left over in it;
- at the lowest vertex that holds an island: its price, if anything of it is taken; at the lowest that holds what others
  want: the price of the places in it that they lose.

What the tree cannot express is carried in the state as further bits until it is settled: devices of an explicit
relation, values that a Distinct line allows once, sums of counters, islands that lie across branches, and which devices
of a pairing's smaller side take one partner more than the others when the ratio is not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from adjoin_allocator.demand import Stake, places
from adjoin_allocator.hierarchy import NO_PAIRS, Vertex, lowest, walk
from adjoin_allocator.pairing import pair
from adjoin_allocator.topology import bits

BAN = 1 << 40
"""Set in a code when a Required line forbids the pair; below it stand rank and fine."""

PAIRING_STATES = 64
"""What one explicit pairing counts for among the states: it takes about as long."""

Weight = Callable[[int], int]
"""What a code costs."""


class SearchLimit(Exception):
    """The search has seen more states than it may."""


@dataclass(frozen=True, slots=True, eq=False)
class Clique:
    """Pairs within the devices of `requests`; their codes are those of relation number `relation`."""

    requests: tuple[int, ...]
    relation: int
    weight: Weight


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    """Pairs of one device of each side, each of the larger side once; codes as with `Clique`."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    relation: int
    weight: Weight


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What to choose, of one node and for one replica.

    Attributes:
        candidates: By request the mask of devices it may have.
        counts: By request how many it gets.
        tree: Over at least all candidates.
        code: By relation, device and device their code.
        linear: By device its own cost, without order bits.
        islands: Masks that cost something as soon as one of their devices is taken, and what.
        stakes: What others want, as masks of free devices with the count of each in one place, and its price.
        once: Devices of which the given requests may take one together.
        budgets: What may be taken of counters together, and what each device takes. Each alone fits.
        size: Devices in the node. Order takes `size` bits a request at the bottom of a cost, the first request's the
            highest.
        limit: States that may be seen.
    """

    candidates: tuple[int, ...]
    counts: tuple[int, ...]
    tree: Vertex
    code: Callable[[int, int, int], int]
    cliques: tuple[Clique, ...]
    pairings: tuple[Pairing, ...]
    linear: Mapping[int, int]
    islands: tuple[tuple[int, int], ...]
    stakes: tuple[Stake, ...]
    once: tuple[tuple[tuple[int, ...], int], ...]
    size: int
    limit: int
    budgets: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The best choice: its whole cost, a mask for each request, and the states it took to find it."""

    cost: int
    masks: tuple[int, ...]
    states: int


Table = dict[int, int]
"""By state (counts and further bits) the least cost."""


def search(problem: Problem) -> tuple[Choice | None, int]:
    """The best choice or None when none meets the bans, and the states seen.

    Raises:
        SearchLimit: More states than the problem allows.
    """
    run = _Search(problem)
    return run.best(), run.states


class _Layout:
    """Where a state has its fields: limited counters with a guard bit each, then free fields."""

    def __init__(self) -> None:
        self.width = 0
        self.bias = self.guard = self.target = self.limits = 0

    def field(self, width: int) -> int:
        """The shift of a new field."""
        at = self.width
        self.width += width
        return at

    def bounded(self, limit: int) -> tuple[int, int]:
        """Shift and mask (unshifted) of a sum that never exceeds `limit`."""
        width = limit.bit_length()
        at = self.field(width + 1)
        self.bias |= (1 << width) - 1 - limit << at
        self.guard |= 1 << at + width
        return at, (1 << width) - 1

    def limited(self, limit: int) -> tuple[int, int]:
        """Shift and mask (unshifted) of a counter that never exceeds `limit` and ends at it."""
        at, mask = self.bounded(limit)
        self.target |= limit << at
        self.limits |= mask << at
        return at, mask


@dataclass(slots=True, eq=False)
class _Ratio:
    """A pairing on the tree: how many partners each device of the smaller side takes."""

    small: tuple[int, ...]
    large: tuple[int, ...]
    floor: int
    extra: tuple[int, int] | None
    relation: int
    weight: Weight


@dataclass(slots=True, eq=False)
class _Loss:
    """A stake: how many places there are, and for each of its masks how many devices it has, how many of them a place
    needs, and the counters whose sum is what is taken of them."""

    price: int
    places: int
    masks: list[tuple[int, int, list[tuple[int, int]]]]

    def of(self, state: int) -> int:
        """What the devices taken in a state cost."""
        left = self.places
        for free, needed, counters in self.masks:
            taken = 0
            for at, mask in counters:
                taken += state >> at & mask
            left = min(left, (free - taken) // needed)
        return self.price * (self.places - left)


@dataclass(slots=True, eq=False)
class _Closing:
    """What is settled when a vertex is complete."""

    breaks: list[tuple[int, int]] = field(default_factory=list)
    """Fields of the state and what it costs when one of them is not 0."""
    meshes: list[tuple[Clique, Mapping[int, int]]] = field(default_factory=list)
    """Explicit cliques, with the bit of each device."""
    losses: list[_Loss] = field(default_factory=list)
    clear: int = 0


class _Search:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.states = 0
        layout = self._layout = _Layout()
        self._counters = [layout.limited(count) for count in problem.counts]
        self._closings: dict[int, _Closing] = {}
        self._marks: list[tuple[tuple[int, ...], int, int]] = []
        """(requests, devices, field): taking one of the devices for one of the requests adds the field."""
        self._all = self._union(range(len(problem.counts)))
        explicit = _explicit(problem.tree)
        self._ratios, self._tracked = self._lay_pairings(explicit)
        self._cliques = self._lay_cliques(explicit)
        self._exclusive = self._lay_once()
        for left, amounts in problem.budgets:
            self._lay_budget(left, amounts)
        for mask, price in problem.islands:
            self._lay_island(mask, price)
        for stake in problem.stakes:
            self._lay_stake(stake)

    def best(self) -> Choice | None:
        table = self._solve(self.problem.tree)
        cost = self._pair_up(table) if self._tracked else table.get(self._layout.target)
        if cost is None:
            return None
        size, requests = self.problem.size, len(self.problem.counts)
        taken = -cost & (1 << size * requests) - 1
        masks = []
        for request in reversed(range(requests)):
            block = taken >> size * request & (1 << size) - 1
            masks.append(sum(1 << size - 1 - bit for bit in bits(block)))
        return Choice(cost, tuple(masks), self.states)

    # Laying out the state

    def _union(self, requests: Sequence[int]) -> int:
        mask = 0
        for request in requests:
            mask |= self.problem.candidates[request]
        return mask

    def _track(self, requests: tuple[int, ...], mask: int) -> Mapping[int, int]:
        """A bit of its own for each device of `mask`, set when one of the requests takes it."""
        tracked = {}
        for device in bits(mask & self._union(requests)):
            tracked[device] = 1 << self._layout.field(1)
            self._marks.append((requests, 1 << device, tracked[device]))
        return tracked

    def _closing(self, vertex: Vertex) -> _Closing:
        return self._closings.setdefault(vertex.mask, _Closing())

    def _lay_pairings(
        self, explicit: Mapping[int, Sequence[Vertex]]
    ) -> tuple[list[_Ratio], list[tuple[Pairing, Mapping[int, int], Mapping[int, int]]]]:
        ratios, tracked = [], []
        for pairing in self.problem.pairings:
            if pairing.relation in explicit:
                sides = [self._track(side, -1) for side in (pairing.left, pairing.right)]
                tracked.append((pairing, sides[0], sides[1]))
                continue
            small, large = sorted((pairing.left, pairing.right), key=self._count)
            floor, extras = divmod(self._count(large), self._count(small))
            extra = self._layout.limited(extras) if extras else None
            ratios.append(_Ratio(small, large, floor, extra, pairing.relation, pairing.weight))
        return ratios, tracked

    def _count(self, requests: Sequence[int]) -> int:
        return sum(self.problem.counts[request] for request in requests)

    def _lay_cliques(self, explicit: Mapping[int, Sequence[Vertex]]) -> list[Clique]:
        cliques = [clique for clique in self.problem.cliques if self._count(clique.requests) > 1]
        for clique in cliques:
            for vertex in explicit.get(clique.relation, ()):
                tracked = self._track(clique.requests, vertex.mask)
                closing = self._closing(vertex)
                closing.meshes.append((clique, tracked))
                closing.clear |= sum(tracked.values())
        return cliques

    def _lay_once(self) -> int:
        exclusive = 0
        for requests, mask in self.problem.once:
            mask &= self._union(requests)
            if mask & mask - 1:
                value = 1 << self._layout.field(1)
                exclusive |= value
                self._marks.append((requests, mask, value))
                self._closing(lowest(self.problem.tree, mask)).clear |= value
        return exclusive

    def _lay_budget(self, left: int, amounts: tuple[tuple[int, int], ...]) -> None:
        takers = {device: amount for device, amount in amounts if self._all >> device & 1}
        most = sum(sorted(takers.values(), reverse=True)[: sum(self.problem.counts)])
        # Of a counter that is overdrawn nobody here takes anything: it is in nobody's way.
        if not takers or most <= left:
            return
        at, mask = self._layout.bounded(left)
        everybody = tuple(range(len(self.problem.counts)))
        for amount in set(takers.values()):
            devices = sum(1 << device for device, each in takers.items() if each == amount)
            self._marks.append((everybody, devices, amount << at))
        self._closing(lowest(self.problem.tree, sum(1 << device for device in takers))).clear |= mask << at

    def _lay_island(self, island: int, price: int) -> None:
        """Finds the lowest vertex that holds what can be taken of an island, and the fields which tell there whether
        something was.
        """
        takeable = island & self._all
        if not takeable:
            return
        vertex = lowest(self.problem.tree, takeable)
        closing = self._closing(vertex)
        test = 0
        for request, candidates in enumerate(self.problem.candidates):
            here = candidates & vertex.mask
            if here & island and here & ~island:
                # The request has devices beside the island here as well: its counter does not tell, count apart.
                width = takeable.bit_count().bit_length()
                at = self._layout.field(width)
                test = (1 << width) - 1 << at
                closing.clear |= test
                self._marks.append((tuple(range(len(self.problem.counts))), takeable, 1 << at))
                break
            if here & island:
                at, counter = self._counters[request]
                test |= counter << at
        closing.breaks.append((test, price))

    def _lay_stake(self, stake: Stake) -> None:
        """Finds the lowest vertex that holds what can be taken of a stake, and the counters that tell there how much
        was.
        """
        masks, counts, price = stake
        takeable = 0
        for mask in masks:
            takeable |= mask & self._all
        if not takeable:
            return
        vertex = lowest(self.problem.tree, takeable)
        closing = self._closing(vertex)
        parts = []
        for mask, needed in zip(masks, counts, strict=True):
            counters = []
            for request, candidates in enumerate(self.problem.candidates):
                here = candidates & vertex.mask
                if here & mask and here & ~mask:
                    # Its counter tells of other devices as well: count apart, for all requests.
                    width = (mask & self._all).bit_count().bit_length()
                    at = self._layout.field(width)
                    closing.clear |= (1 << width) - 1 << at
                    self._marks.append((tuple(range(len(self.problem.counts))), mask & self._all, 1 << at))
                    counters = [(at, (1 << width) - 1)]
                    break
                if here & mask:
                    counters.append(self._counters[request])
            parts.append((mask.bit_count(), needed, counters))
        closing.losses.append(_Loss(price, places(masks, counts, -1), parts))

    # Tables

    def _solve(self, vertex: Vertex) -> Table:
        """The table of a vertex, with everything settled that can be settled in it."""
        if not vertex.parts:
            table = self._device(vertex.mask.bit_length() - 1)
        else:
            parts = [part for part in vertex.parts if part.mask & self._all]
            crossing = self._crossing(vertex)
            table = self._leave(parts[0], vertex)
            merged = parts[0].mask
            for part in parts[1:]:
                merged |= part.mask
                table = self._combine(table, self._leave(part, vertex), crossing, self._least(merged))
        closing = self._closings.get(vertex.mask)
        return self._close(closing, table) if closing else table

    def _device(self, device: int) -> Table:
        problem = self.problem
        table = {0: 0}
        for request, candidates in enumerate(problem.candidates):
            if not candidates >> device & 1:
                continue
            state = 1 << self._counters[request][0]
            for requests, mask, mark in self._marks:
                if request in requests and mask >> device & 1:
                    state += mark
            place = problem.size * (len(problem.counts) - 1 - request) + problem.size - 1 - device
            cost = problem.linear[device] - (1 << place)
            more = [(0, 1 << ratio.extra[0]) for ratio in self._ratios if ratio.extra and request in ratio.small]
            for extras in product(*more):
                at = state + sum(extras)
                if cost < table.get(at, cost + 1):
                    table[at] = cost
        self._seen(len(table))
        return table

    def _least(self, merged: int) -> int:
        """Counts that the merged parts must have, since there are too few devices elsewhere."""
        least = 0
        for (at, _), count, candidates in zip(
            self._counters, self.problem.counts, self.problem.candidates, strict=True
        ):
            short = count - (candidates & ~merged).bit_count()
            if short > 0:
                least |= short << at
        return least

    def _crossing(self, vertex: Vertex) -> list[tuple[int | None, list[tuple[int, int]]]]:
        """Cliques that cost something between parts of this vertex: the weight of a pair (None: banned), counters."""
        crossing: list[tuple[int | None, list[tuple[int, int]]]] = []
        for clique in self._cliques:
            code = vertex.codes[clique.relation]
            if code == NO_PAIRS:
                continue
            weight = None if code & BAN else clique.weight(code)
            if weight != 0:
                crossing.append((weight, [self._counters[request] for request in clique.requests]))
        return crossing

    def _combine(
        self, one: Table, other: Table, crossing: list[tuple[int | None, list[tuple[int, int]]]], least: int
    ) -> Table:
        self._seen(len(one) * len(other) >> 2)
        if len(crossing) > 1 or self._exclusive:
            table = self._combine_all(one, other, crossing, least)
        else:
            table = self._combine_one(one, other, crossing, least)
        self._seen(len(table))
        return table

    def _combine_one(
        self, one: Table, other: Table, crossing: list[tuple[int | None, list[tuple[int, int]]]], least: int
    ) -> Table:
        """`_combine` where at most one clique crosses and no value may be taken once only: most of the time."""
        bias, guard = self._layout.bias, self._layout.guard
        weight, counters = crossing[0] if crossing else (0, [])
        theirs = [(state, cost, sum([state >> at & mask for at, mask in counters])) for state, cost in other.items()]
        table: Table = {}
        known_of = table.get
        for state, cost in one.items():
            amount = sum([state >> at & mask for at, mask in counters])
            banned, each = amount and weight is None, (weight or 0) * amount
            for added, price, partner in theirs:
                total = state + added
                if total + bias & guard or (banned and partner):
                    continue
                if least and ((total | guard) - least) & guard != guard:
                    continue
                price += cost + each * partner
                known = known_of(total)
                if known is None or price < known:
                    table[total] = price
        return table

    def _combine_all(
        self, one: Table, other: Table, crossing: list[tuple[int | None, list[tuple[int, int]]]], least: int
    ) -> Table:
        bias, guard, exclusive = self._layout.bias, self._layout.guard, self._exclusive
        table: Table = {}
        mine = [(state, cost, _amounts(state, crossing)) for state, cost in one.items()]
        theirs = [(state, cost, _amounts(state, crossing)) for state, cost in other.items()]
        for state, cost, amounts in mine:
            for added, price, others in theirs:
                total = state + added
                if total + bias & guard or state & added & exclusive:
                    continue
                if least and ((total | guard) - least) & guard != guard:
                    continue
                more = _across(crossing, amounts, others) if amounts and others else 0
                if more is not None:
                    price += cost + more
                    known = table.get(total)
                    if known is None or price < known:
                        table[total] = price
        return table

    def _leave(self, part: Vertex, vertex: Vertex) -> Table:
        """The table of a part as its vertex sees it: unpaired devices have paid their way up."""
        table = self._solve(part)
        for ratio in self._ratios:
            above, below = vertex.codes[ratio.relation], part.codes[ratio.relation]
            banned = above != NO_PAIRS and above & BAN
            climb = _price(ratio.weight, above) - _price(ratio.weight, below) >> 1
            if not climb and not banned:
                continue
            # Counters and how much each adds to the room that the smaller side has for partners.
            terms = [(*self._counters[request], ratio.floor) for request in ratio.small]
            terms += [(*self._counters[request], -1) for request in ratio.large]
            if ratio.extra:
                terms.append((*ratio.extra, 1))
            paid: Table = {}
            for state, cost in table.items():
                left_over = 0
                for at, mask, times in terms:
                    left_over += (state >> at & mask) * times
                if not left_over:
                    paid[state] = cost
                elif not banned:
                    paid[state] = cost + climb * abs(left_over)
            table = paid
        return table

    def _close(self, closing: _Closing, table: Table) -> Table:
        closed: Table = {}
        keep = ~closing.clear
        for state, cost in table.items():
            for test, price in closing.breaks:
                if state & test:
                    cost += price
            for loss in closing.losses:
                cost += loss.of(state)
            mesh = 0
            for clique, tracked in closing.meshes:
                price_ = self._within(clique, [device for device, bit in tracked.items() if state & bit])
                if price_ is None:
                    break
                mesh += price_
            else:
                state &= keep
                cost += mesh
                known = closed.get(state)
                if known is None or cost < known:
                    closed[state] = cost
        return closed

    def _within(self, clique: Clique, devices: Sequence[int]) -> int | None:
        total = 0
        for one, other in combinations(devices, 2):
            code = self.problem.code(clique.relation, one, other)
            if code & BAN:
                return None
            total += clique.weight(code)
        return total

    def _pair_up(self, table: Table) -> int | None:
        """Settles pairings that do not follow the tree, over complete choices, the most promising first."""
        limits, target = self._layout.limits, self._layout.target
        nearest = [price for pairing, left, right in self._tracked for price in self._nearest(pairing, left, right)]
        complete = []
        for state, cost in table.items():
            if state & limits == target:
                least = cost + sum(price for bit, price in nearest if state & bit)
                complete.append((least, cost, state))
        best: int | None = None
        for least, cost, state in sorted(complete):
            if best is not None and least >= best:
                break
            self._seen(len(self._tracked) * PAIRING_STATES)
            for pairing, left, right in self._tracked:
                paired = self._paired(pairing, state, left, right)
                if paired is None:
                    break
                cost += paired
            else:
                if best is None or cost < best:
                    best = cost
        return best

    def _nearest(
        self, pairing: Pairing, left: Mapping[int, int], right: Mapping[int, int]
    ) -> Iterator[tuple[int, int]]:
        """For each device of the larger side its bit and the least that its pair can cost."""
        small, large = (left, right) if self._count(pairing.left) <= self._count(pairing.right) else (right, left)
        for one, bit in large.items():
            codes = [self.problem.code(pairing.relation, one, other) for other in small if other != one]
            yield bit, min((pairing.weight(code) for code in codes if not code & BAN), default=0)

    def _paired(self, pairing: Pairing, state: int, left: Mapping[int, int], right: Mapping[int, int]) -> int | None:
        def cost(one: int, other: int) -> int | None:
            code = self.problem.code(pairing.relation, one, other)
            return None if code & BAN else pairing.weight(code)

        sides = [[device for device, bit in side.items() if state & bit] for side in (left, right)]
        found = pair(sides[0], sides[1], cost)
        return None if found is None else found[0]

    def _seen(self, states: int) -> None:
        self.states += states
        if self.states > self.problem.limit:
            raise SearchLimit


def _amounts(state: int, crossing: Sequence[tuple[int | None, list[tuple[int, int]]]]) -> tuple[int, ...]:
    """Of each crossing clique how many devices the state has; empty when none has any."""
    amounts = tuple(sum(state >> at & mask for at, mask in counters) for _, counters in crossing)
    return amounts if any(amounts) else ()


def _across(
    crossing: Sequence[tuple[int | None, list[tuple[int, int]]]], amounts: Sequence[int], others: Sequence[int]
) -> int | None:
    """What pairs between two parts cost, by clique and the devices that each part has; None when one is banned."""
    price = 0
    for (weight, _), amount, partner in zip(crossing, amounts, others, strict=True):
        if weight is not None:
            price += weight * amount * partner
        elif amount and partner:
            return None
    return price


def _price(weight: Weight, code: int) -> int:
    return 0 if code == NO_PAIRS else weight(code & BAN - 1)


def _explicit(tree: Vertex) -> Mapping[int, list[Vertex]]:
    """By relation the vertices from which it does not follow the tree."""
    found: dict[int, list[Vertex]] = {}
    for vertex in walk(tree):
        for relation in vertex.explicit:
            found.setdefault(relation, []).append(vertex)
    return found
