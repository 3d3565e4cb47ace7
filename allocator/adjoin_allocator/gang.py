"""Many replicas over the fabric: where all members of a claim go, chosen together.

In come a claim's asks, its missing members and those in place, the pool's fabric tree, a placer and what others want;
out comes an `Outcome`: `Member`s, or how many could be had and where. Nothing is taken here; members see each
other's choices because they are chosen together.

1. Of several ways to serve a member (`firstOf`) only as many count, the best first, as the most members need.
2. How many members each state of nodes holds (`seats`), for each value that members may have to share (`over: Gang`).
3. Where no two members may share a value, they are placed by `apart`.
4. Missing members of segments that have members in place join them.
5. All others are spread over the tree (`spread`): the most members, then the smallest domain, then the least left over.
6. Among equal layouts, and among nodes that hold as many, the objective of the choice in the node decides, then the
   less loaded node, then stable order.
7. Indexes follow the tree: consecutive members share a node, a rack, a block as far as can be.

A gang that has no member in place gets at least `gang_min` or nothing; once it is in place, and for replicas that are
no gang, as many as fit.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from adjoin_allocator.apart import Apart, Line, TooMany
from adjoin_allocator.demand import Demand
from adjoin_allocator.fabric import WHOLE, FabricTree, Integers
from adjoin_allocator.fit import STATE_LIMIT
from adjoin_allocator.ground import Ground
from adjoin_allocator.model import Affinity, Claim, Pool
from adjoin_allocator.nodes import Having, PoolIndex, Value
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.seats import Key, Seat, SeatMemo, Seats, total
from adjoin_allocator.spread import Lot, Share, Shortage, Spreader, Wish
from adjoin_allocator.terms import Policy, ReplicaState

VALUES = 256
"""So many combinations of values that all members share are tried."""

LAYOUTS = 16
"""Of so many layouts that are equal but for the choice in the nodes the objectives are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Gang:
    """A claim whose members are placed together.

    Attributes:
        asks: The ways of serving a member, the best first (`firstOf`); one for a claim without alternatives.
        missing: Indexes without devices, ascending.
        held: By index of a member in place the position of its node.
    """

    claim: Claim
    asks: tuple[Ask, ...]
    missing: tuple[int, ...]
    held: Mapping[int, int]

    @property
    def least(self) -> int:
        """Fewest missing members that may be placed."""
        alive = any(one.index in self.held and one.state is not ReplicaState.RELEASING for one in self.claim.placed)
        return 1 if alive or self.claim.gang_min is None else self.claim.gang_min


@dataclass(frozen=True, slots=True)
class Member:
    """A missing member's place."""

    index: int
    position: int
    seat: Seat


@dataclass(frozen=True, slots=True)
class Outcome:
    """What can be had.

    Attributes:
        members: By index; empty when too few fit.
        most: The most members that could be had, also when they are too few.
        shortage: Where these are; None when every missing member has a place.
        apart: Members in place lie in no one domain of this level, so none can join them; None when that is not so.
        strange: Members in place share no value of this attribute, which all must share; empty when that is not so.
        nodes: Nodes that hold a member.
        states: Search states seen.
        limit: A search was given up on the way.
    """

    members: tuple[Member, ...]
    most: int
    shortage: Shortage | None
    states: int
    limit: bool
    apart: int | None = None
    strange: str = ""
    nodes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """The pool as it might be.

    Attributes:
        spare: By position devices that count as free too.
        opened: Closed nodes that count as open.
        hosts_count: Hosts have the CPU and memory that they have; else any amount.
    """

    spare: Mapping[int, int] = field(default_factory=dict)
    opened: frozenset[int] = frozenset()
    hosts_count: bool = True


AS_IT_IS = WhatIf()


def is_gang(claim: Claim) -> bool:
    """Whether a claim's replicas are chosen together: they are a gang, or a line of the fabric or an attribute binds
    them.
    """
    fabric = claim.fabric
    bound = bool(fabric.required or fabric.preferred or fabric.segment is not None)
    return claim.gang_min is not None or bound or any(line.over_gang for line in claim.affinity)


def gang_flaw(pool: Pool, claim: Claim) -> str | None:
    """Why what a claim says of its members cannot be read against its pool, or None when it can."""
    if not is_gang(claim):
        return None
    levels = [level.name for level in pool.fabric]
    fabric = claim.fabric
    asked = [("required", fabric.required), ("preferred", fabric.preferred)]
    asked += [("segment", fabric.segment.level)] if fabric.segment is not None else []
    for field_name, level in asked:
        if level and level not in levels:
            listed = ", ".join(levels) or "none"
            return f"fabric.{field_name} names level {level}, which pool {pool.name} does not have (it has: {listed})"
    if fabric.segment is not None and (fabric.segment.size < 1 or not fabric.segment.level):
        return "fabric.segment must have a level and a size of at least 1"
    if claim.gang_min is not None and not 1 <= claim.gang_min <= claim.replicas:
        return f"gang.minReplicas is {claim.gang_min}, which is not between 1 and its {claim.replicas} replicas"
    shares = [request.share for request in claim.requests]
    shares += [one.share for request in claim.requests for one in request.first_of]
    if any(share is not None for share in shares):
        return "its members hold parts of devices (share), which members that are placed together cannot do yet"
    for line in claim.affinity:
        if line.over_gang and line.policy is Policy.DISTINCT and fabric.segment is not None:
            return f"{line.attribute} is Distinct over the gang, which fabric.segment cannot be combined with"
        if line.over_gang and line.scope is not None:
            return f"affinity with scope {line.scope} is over the gang, which only attributes can be"
    return None


def gang_of(placer: Placer, claim: Claim, asks: Sequence[Ask], missing: Sequence[int]) -> Gang:
    """A claim as a gang. Members whose node has gone from the inventory are lost: nobody joins them."""
    index = placer.ledger.pools[claim.pool].index
    absent = set(missing)
    held = {
        one.index: index.position[one.node]
        for one in claim.placed
        if one.index < claim.replicas and one.index not in absent and one.node in index.position
    }
    return Gang(claim, tuple(asks), tuple(missing), held)


def arrange(
    placer: Placer,
    memo: SeatMemo,
    tree: FabricTree,
    gang: Gang,
    demand: Demand = (),
    what_if: WhatIf = AS_IT_IS,
    count_only: bool = False,
) -> Outcome:
    """The best places for the missing members, or with `count_only` how many there are: then `members` is empty and
    `most` what would be placed, or the most that could be had of a gang that would be too small. Costs a step for each
    node and some for each state of nodes, for each value that members may share.
    """
    asks = gang.asks
    states = 0
    if len(asks) > 1 and not count_only:
        # The fewest of the ways, the best first, with which as many members fit as with all of them.
        wanted = _arrange(placer, memo, tree, gang, demand, what_if, True)
        states = wanted.states

        def enough(number: int) -> bool:
            fewer = _arrange(placer, memo, tree, replace(gang, asks=asks[:number]), demand, what_if, True)
            nonlocal states
            states += fewer.states
            return fewer.most >= wanted.most

        asks = asks[: 1 + bisect_left(range(1, len(asks)), True, key=enough)]
    found = _arrange(placer, memo, tree, replace(gang, asks=asks), demand, what_if, count_only)
    return replace(found, states=found.states + states)


def _arrange(
    placer: Placer, memo: SeatMemo, tree: FabricTree, gang: Gang, demand: Demand, what_if: WhatIf, count_only: bool
) -> Outcome:
    """`arrange` for all the ways of a gang at once."""
    lines = [line for line in gang.claim.affinity if line.scope is None]
    shared = [at for at, line in enumerate(lines) if line.over_gang and line.policy is Policy.MATCH]
    choices: list[list[Value]] = []
    for at in shared:
        shareable = _values(placer, gang, lines[at])
        if shareable is None:
            return Outcome((), 0, Shortage(0, 0, 0), 0, False, strange=lines[at].attribute)
        choices.append(shareable)
    best: _Trial | None = None
    distinct = tuple(
        (at - sum(other < at for other in shared), line.attribute)
        for at, line in enumerate(lines)
        if line.over_gang and line.policy is Policy.DISTINCT
    )
    states, limit = 0, False
    for number, values in enumerate(product(*choices)):
        if number >= VALUES:
            limit = True
            break
        asks = tuple(_sharing(placer, ask, dict(zip(shared, values, strict=True))) for ask in gang.asks)
        room = placer.host_rooms(asks[0]) if what_if.hosts_count else None
        seats = Seats(placer, memo, asks, demand, room, what_if.spare, what_if.opened)
        trial = _Attempt(gang, tree, seats, count_only, distinct).run()
        states, limit = states + seats.states, limit or seats.limit
        if states > STATE_LIMIT:
            return Outcome((), 0, Shortage(0, 0, 0), STATE_LIMIT + 1, True)
        if best is None or trial.key < best.key:
            best = trial
    if best is None:
        best = _Trial((), 0, (), Shortage(0, 0, 0))
    whole = len(best.members) == len(gang.missing)
    return Outcome(
        members=best.members,
        most=best.most,
        shortage=None if whole else best.shortage,
        states=states,
        limit=limit and not whole and best.most < len(gang.missing),
        apart=best.apart,
        nodes=best.nodes,
    )


def _values(placer: Placer, gang: Gang, line: Affinity) -> list[Value] | None:
    """Values that all members may share, in one fixed order; None when those in place have none in common."""
    index = placer.ledger.pools[gang.claim.pool].index
    common: set[Value] | None = None
    for values in _device_values(gang, index, line.attribute, line.requests):
        common = set(values) if common is None else common & values
    if common is None:
        common = {value for view in index.views for value in view.sharing(line.attribute)}
        return sorted(common, key=_value_order)
    return sorted(common, key=_value_order) or None


def _device_values(gang: Gang, index: PoolIndex, attribute: str, requests: Sequence[str]) -> Iterator[frozenset[Value]]:
    """The values of each device of members in place that is still there."""
    for replica in gang.claim.placed:
        if replica.index in gang.held:
            view = index.views[gang.held[replica.index]]
            sharing = view.sharing(attribute)
            for device in replica.devices:
                if device.request.partition("/")[0] in requests and device.id in view.bit:
                    bit = view.bit[device.id]
                    yield frozenset(value for value, mask in sharing.items() if mask >> bit & 1)


def _held_values(gang: Gang, index: PoolIndex, attribute: str, requests: Sequence[str]) -> frozenset[Value]:
    """All values that members in place have."""
    return frozenset[Value]().union(*_device_values(gang, index, attribute, requests))


def _value_order(value: Value) -> tuple[str, object]:
    kind, what = value
    return kind.__name__, what


def _sharing(placer: Placer, ask: Ask, values: Mapping[int, Value]) -> Ask:
    """The ask when attribute lines, by their place, have settled on values."""
    if not values:
        return ask
    signature, question = ask.signature, ask.question
    having = tuple(
        Having(request, signature.attributes[at].attribute, value, not signature.counts[request])
        for at, value in values.items()
        for request in signature.attributes[at].requests
    )
    kept = tuple(line for at, line in enumerate(signature.attributes) if at not in values)
    return replace(
        ask,
        form=placer.fitter.form(replace(signature, attributes=kept)),
        question=replace(question, attributes=tuple(line.attribute for line in kept), having=having),
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """What was found for one value of what members share; the less its key, the better."""

    members: tuple[Member, ...]
    most: int
    rank: tuple[object, ...]
    shortage: Shortage
    apart: int | None = None
    nodes: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        return -self.most, self.rank


@dataclass(slots=True, eq=False)
class _Attempt:
    """One gang on one set of capacities."""

    gang: Gang
    tree: FabricTree
    seats: Seats
    count_only: bool = False
    distinct: tuple[Line, ...] = ()
    _keys: dict[int, Key] = field(default_factory=dict)
    _groups: list[Integers] = field(default_factory=list)
    """Positions of nodes that hold a member, by state."""

    def run(self) -> _Trial:
        """Places what can be placed."""
        gang, tree, claim = self.gang, self.tree, self.gang.claim
        rooms = self._capacities()
        nodes = int(np.count_nonzero(rooms))
        held = np.zeros(len(rooms), dtype=np.int64)
        for position in gang.held.values():
            held[position] += 1
        required = tree.level(claim.fabric.required)
        inside = Ground(tree, rooms, held).common(required) if required != WHOLE else None
        if inside == -1:
            return _Trial((), 0, (), Shortage(0, 0, int(rooms.sum())), required)
        if self.distinct:
            return self._apart(Ground(tree, rooms, held), required, inside, nodes)
        joining, free = self._by_segment(required)
        members: list[Member] = []
        taken: dict[int, int] = {}
        order: list[tuple[int, int]] = []
        for domain, indexes in joining.items():
            level = tree.level(claim.fabric.segment.level if claim.fabric.segment else "")
            beside = np.where(tree.domains(level) == domain, held, 0)
            lots = self._place(Spreader(Ground(tree, rooms, beside), Wish(len(indexes), 1, level, inside=domain)))
            places = [] if lots is None else list(_walk(lots[1]))
            for index, position in zip(indexes, places, strict=False):
                order.append((index, position))
                taken[position] = taken.get(position, 0) + 1
                rooms[position] -= 1
                held[position] += 1
        least = max(1, gang.least - len(order))
        segment = claim.fabric.segment
        wish = Wish(
            number=len(free),
            least=least,
            required=required,
            preferred=tree.level(claim.fabric.preferred),
            inside=inside,
            size=segment.size if segment is not None else 0,
            level=tree.level(segment.level) if segment is not None else WHOLE,
        )
        ground = Ground(tree, rooms, held)
        spreader = Spreader(ground, wish)
        shortage = spreader.shortage()
        if self.count_only:
            most = len(order) + (shortage.most if shortage.most >= least else 0)
            return _Trial((), most or shortage.most, (), shortage, nodes=nodes)
        found = self._place(spreader) if free else None
        rank: tuple[object, ...] = ()
        if found is not None:
            rank, picked = found
            order += self._numbered(free, picked)
        together: dict[int, list[int]] = {}
        for index, position in order:
            together.setdefault(position, []).append(index)
        for position, indexes in together.items():
            chosen = self.seats.choose(self._keys[position], len(indexes))
            members += [Member(index, position, seat) for index, seat in zip(sorted(indexes), chosen, strict=True)]
        members.sort(key=lambda member: member.index)
        return _Trial(tuple(members), len(order) if members else shortage.most, rank, shortage, nodes=nodes)

    def _apart(self, ground: Ground, required: int, inside: int | None, nodes: int) -> _Trial:
        """Places members no two of which share a value."""
        gang = self.gang
        wish = Wish(len(gang.missing), gang.least, required, inside=inside)
        spent = {line: _held_values(gang, self.tree.index, line[1], self._requests(line)) for line in self.distinct}
        try:
            found = Apart(self.seats, ground, wish, self.distinct, self._keys, spent).best()
        except TooMany:
            self.seats.limit = True
            found = None
        total_ = int(ground.room.sum())
        if found is None:
            return _Trial((), 0, (), Shortage(0, 0, total_), nodes=nodes)
        shortage = Shortage(found.members, ground.above(found.level, found.domain, required), total_)
        members: list[Member] = []
        if found.members >= gang.least and not self.count_only:
            places = [(position, seat) for position, seats in found.seats for seat in seats]
            members = [
                Member(index, position, seat) for index, (position, seat) in zip(gang.missing, places, strict=False)
            ]
        cost = self._plain_cost(members)
        return _Trial(tuple(members), found.members, (-found.level, found.left, cost), shortage, nodes=nodes)

    def _requests(self, line: Line) -> tuple[str, ...]:
        ask = self.seats.asks[0]
        return tuple(ask.requests[request].name for request in ask.signature.attributes[line[0]].requests)

    def _plain_cost(self, members: Sequence[Member]) -> tuple[int, ...]:
        return tuple(sum(parts) for parts in zip(*(total([member.seat]) for member in members), strict=False))

    def _capacities(self) -> Integers:
        """By position how many members a node holds, as far as it matters."""
        seats, wanted = self.seats, len(self.gang.missing)
        rooms = np.zeros(len(self.tree.index.views), dtype=np.int64)
        for key, positions in seats.groups().items():
            capacity = seats.capacity(key)
            if capacity:
                here = np.asarray(positions)
                rooms[here] = capacity
                self._groups.append(here)
                for position in positions:
                    self._keys[position] = key
        if seats.room is not None:
            for position in map(int, np.flatnonzero(rooms)):
                rooms[position] = max(0, min(int(rooms[position]), seats.room(position)))
        np.minimum(rooms, max(1, wanted), out=rooms)
        return rooms

    def _by_segment(self, required: int) -> tuple[dict[int, list[int]], list[int]]:
        """Missing indexes: those of segments that have members in place by the domain of these, and the rest. Where
        these are in no one domain, nobody can join them.
        """
        segment, gang = self.gang.claim.fabric.segment, self.gang
        if segment is None or not gang.held or self.tree.level(segment.level) <= required:
            return {}, list(gang.missing)
        domains = self.tree.domains(self.tree.level(segment.level))
        places: dict[int, set[int]] = {}
        for index, position in gang.held.items():
            places.setdefault(index // segment.size, set()).add(int(domains[position]))
        joining: dict[int, list[int]] = {}
        free: list[int] = []
        for index in gang.missing:
            where = places.get(index // segment.size)
            if where is None:
                free.append(index)
            elif len(where) == 1 and -1 not in where:
                joining.setdefault(next(iter(where)), []).append(index)
        return joining, free

    # From a layout to nodes

    def _place(
        self, spreader: Spreader
    ) -> tuple[tuple[object, ...], Sequence[tuple[Lot, list[tuple[int, int]]]]] | None:
        """The best layout with its nodes: by lot, in rank order, positions and how many go there."""
        single = spreader.single()
        if single is not None:
            number, nodes, left = single
            position = self._pick_node(number, nodes, left)
            cost = self._cost([(position, number)])
            rank_above = tuple(int(column[position]) for column in left)
            lot = Lot((), False, ((Share((position,), number, number),),))
            return (-spreader.ground.depth, cost, rank_above), [(lot, [(position, number)])]
        layouts = spreader.layouts()
        if not layouts:
            return None
        best: tuple[tuple[object, ...], list[tuple[Lot, list[tuple[int, int]]]]] | None = None
        for layout in layouts[:LAYOUTS]:
            picked = [(lot, self._seat(lot)) for lot in layout.lots]
            cost = self._cost([each for _, places in picked for each in places])
            rank = (-layout.level, layout.rank, cost)
            if best is None or rank < best[0]:
                best = (rank, picked)
        return best

    def _seat(self, lot: Lot) -> list[tuple[int, int]]:
        """Nodes for a lot, in rank order."""
        found: list[tuple[int, int]] = []
        for bench in lot.benches:
            here: list[tuple[int, int]] = []
            for share in bench:
                full, rest = divmod(share.number, share.room)
                nodes = self._pick(share.positions, share.room, full)
                here += [(position, share.room) for position in nodes]
                if rest:
                    left = [position for position in share.positions if position not in set(nodes)]
                    here += [(position, rest) for position in self._pick(left, rest, 1)]
            found += sorted(here)
        return found

    def _pick_node(self, number: int, nodes: Integers, left: Sequence[Integers]) -> int:
        """The best of these nodes for all members: by objective, what is left above, load and stable order."""
        allowed = np.zeros(len(self.tree.index.views), dtype=bool)
        allowed[nodes] = True
        firsts: dict[int, tuple[int, ...]] = {}
        for positions in self._groups:
            mine = positions[allowed[positions]]
            if len(mine):
                order = np.lexsort((mine, *(column[mine] for column in reversed(left))))
                first = int(mine[order[0]])
                firsts[first] = tuple(int(column[first]) for column in left)
        (position,) = self._pick(firsts, number, 1, firsts)
        return position

    def _pick(
        self, positions: Iterable[int], each: int, number: int, ranks: Mapping[int, tuple[int, ...]] | None = None
    ) -> list[int]:
        """The best nodes for so many members each: by objective, rank, load and stable order. Objectives that are only
        bounded are looked at more closely while they could be better.
        """
        queues: dict[Key, list[tuple[tuple[int, ...], int]]] = {}
        for position in positions:
            queues.setdefault(self._keys[position], []).append((ranks[position] if ranks else (), position))
        heap: list[tuple[tuple[int, ...], tuple[int, ...], float, int, bool, Key]] = []

        def push(key: Key, exact: bool, objective: tuple[int, ...]) -> None:
            rank, position = queues[key][-1]
            shape, _, free = key[0]
            heapq.heappush(heap, (objective, rank, 1 - free.bit_count() / shape.size, position, exact, key))

        for key, queue in queues.items():
            queue.sort(reverse=True)
            objective, exact = self.seats.bound(key, each)
            push(key, exact, objective)
        found: list[int] = []
        while heap and len(found) < number:
            objective, _, _, position, exact, key = heapq.heappop(heap)
            if not exact:
                push(key, True, total(self.seats.choose(key, each)))
                continue
            found.append(position)
            queues[key].pop()
            if queues[key]:
                push(key, True, objective)
        return found

    def _cost(self, places: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        costs = [total(self.seats.choose(self._keys[position], number)) for position, number in places]
        return tuple(sum(parts) for parts in zip(*costs, strict=True))

    def _numbered(
        self, indexes: Sequence[int], picked: Sequence[tuple[Lot, list[tuple[int, int]]]]
    ) -> Iterator[tuple[int, int]]:
        """Indexes with their positions: full segments first, then incomplete ones, the last segment where it is."""
        segment = self.gang.claim.fabric.segment
        if segment is None or not any(lot.pieces for lot, _ in picked):
            yield from zip(indexes, _walk(picked), strict=False)
            return
        size = segment.size
        by_segment: dict[int, list[int]] = {}
        for index in indexes:
            by_segment.setdefault(index // size, []).append(index)
        whole = [members for members in by_segment.values() if len(members) == size]
        last = [members for members in by_segment.values() if len(members) < size]
        full = iter(whole)
        numbers: dict[tuple[int, int], list[int]] = {}
        for complete in (True, False):
            for at, (lot, _) in enumerate(picked):
                for place, piece in enumerate(lot.pieces):
                    if lot.tail and place == len(lot.pieces) - 1:
                        numbers[at, place] = last[0][:piece]
                    elif (piece == size) is complete:
                        numbers[at, place] = next(full)[:piece]
        for at, (lot, places) in enumerate(picked):
            mine = [index for place in range(len(lot.pieces)) for index in numbers[at, place]]
            yield from zip(mine, _walk([(lot, places)]), strict=True)


def _walk(picked: Iterable[tuple[Lot, list[tuple[int, int]]]]) -> Iterator[int]:
    """Positions, each as often as members go there, in rank order."""
    for _, places in picked:
        for position, number in places:
            yield from (position for _ in range(number))
