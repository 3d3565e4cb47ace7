"""One gang on one set of capacities: which node and which devices each missing member gets.

In come a gang, the fabric tree and how many members each node holds (`seats`); out comes a `Trial`: `Member`s, or how
many could be had. Nothing is taken here, and of several values that members may share one has been settled on.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from adjoin_allocator.apart import Apart, Group, Line, TooMany
from adjoin_allocator.card_seats import Bench, CardSeats
from adjoin_allocator.fabric import WHOLE, FabricTree, Integers
from adjoin_allocator.ground import Ground
from adjoin_allocator.model import Claim
from adjoin_allocator.nodes import PoolIndex, Value
from adjoin_allocator.place import Ask
from adjoin_allocator.preferring import Preference
from adjoin_allocator.rationing import Rationing
from adjoin_allocator.seats import Seat, Seats, total
from adjoin_allocator.spread import Lot, Share, Shortage, Spreader, Wish
from adjoin_allocator.terms import ReplicaState

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
class Trial:
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
class Attempt:
    """One gang on one set of capacities."""

    gang: Gang
    tree: FabricTree
    seats: Seats[Any]
    count_only: bool = False
    distinct: tuple[Line, ...] = ()
    preferring: bool = False
    """Better ways come before smaller domains, where that can be told."""
    limits: Mapping[int, int] | None = None
    """By position how many members a node gets at most, 0 for those that are not named; None: as many as it holds."""
    allotted: Mapping[int, Bench] | None = None
    """The only nodes to use, each with what it may divide; None: all, however much they divide together."""
    _keys: dict[int, Hashable] = field(default_factory=dict)
    _groups: list[Integers] = field(default_factory=list)
    """Positions of nodes that hold a member, by state."""

    def run(self) -> Trial:
        """Places what can be placed."""
        trial = self._within_shares()
        if not self.preferring:
            return trial
        trial = self._preferred(trial)
        return replace(trial, rank=(tuple(-number for number in self._ways(trial.members)), *trial.rank))

    def _ways(self, members: Sequence[Member]) -> list[int]:
        """How many of these are served in each way, the best first."""
        found = [0] * len(self.seats.asks)
        for member in members:
            found[member.seat.ask] += 1
        return found

    def _preferred(self, trial: Trial) -> Trial:
        """As many members, as many of them in better ways as can be; the trial itself where nothing better is known."""
        gang, seats, fabric = self.gang, self.seats, self.gang.claim.fabric
        number = len(trial.members)
        if not number or self.distinct or fabric.segment is not None:
            return trial
        if isinstance(seats, CardSeats) and seats.scarce(len(gang.missing)):
            return trial
        whole = Attempt(gang, self.tree, seats)
        ground = Ground(self.tree, whole._capacities(), self._held())
        required = self.tree.level(fabric.required)

        def ways(position: int, members: int) -> Sequence[int]:
            found = [0] * len(seats.asks)
            for seat in seats.choose(whole._keys[position], members):
                found[seat.ask] += 1
            return found

        inside = ground.common(required) if required != WHOLE else None
        limits = Preference(self.tree, ground, number, required, inside, len(seats.asks), ways).best()
        if limits is None:
            return trial
        other = Attempt(gang, self.tree, seats, limits=limits)._run()
        better = len(other.members) == number and self._ways(other.members) > self._ways(trial.members)
        return replace(other, shortage=trial.shortage, nodes=trial.nodes) if better else trial

    def _within_shares(self) -> Trial:
        """Places what can be placed while shares divide no more cards than they may."""
        seats = self.seats
        if not isinstance(seats, CardSeats) or not seats.scarce(len(self.gang.missing)):
            return self._run()
        free = Attempt(self.gang, self.tree, seats, distinct=self.distinct)._run()
        if seats.within_limits([(member.position, member.seat) for member in free.members]):
            return free
        # Together they would divide more cards than a share allows: each node gets its part of what it has left.
        try:
            allotted = self._rationed(seats)
        except TooMany:
            seats.limit = True
            return replace(free, members=())
        trial = Attempt(self.gang, self.tree, seats, self.count_only, self.distinct, allotted=allotted)._run()
        bound = self.distinct or self.gang.claim.fabric.segment is not None
        # Which nodes divide cards was decided by numbers alone.
        seats.limit = seats.limit or (bool(bound) and trial.most < len(self.gang.missing))
        return trial

    def _rationed(self, seats: CardSeats) -> dict[int, Bench]:
        rooms, held = self._capacities(), self._held()
        required = self.tree.level(self.gang.claim.fabric.required)
        ground = Ground(self.tree, rooms, held)
        inside = ground.common(required) if required != WHOLE else None
        keys = {position: key for position, key in self._keys.items() if isinstance(key, Bench)}
        return Rationing(seats, ground, Wish(len(self.gang.missing), 1, required, inside=inside), keys).best()

    def _held(self) -> Integers:
        """By position how many members are in place."""
        held = np.zeros(len(self.tree.index.views), dtype=np.int64)
        for position in self.gang.held.values():
            held[position] += 1
        return held

    def _run(self) -> Trial:
        gang, tree, claim = self.gang, self.tree, self.gang.claim
        rooms = self._capacities()
        nodes, held = int(np.count_nonzero(rooms)), self._held()
        required = tree.level(claim.fabric.required)
        inside = Ground(tree, rooms, held).common(required) if required != WHOLE else None
        if inside == -1:
            return Trial((), 0, (), Shortage(0, 0, int(rooms.sum())), required)
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
            return Trial((), most or shortage.most, (), shortage, nodes=nodes)
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
        return Trial(tuple(members), len(order) if members else shortage.most, rank, shortage, nodes=nodes)

    def _apart(self, ground: Ground, required: int, inside: int | None, nodes: int) -> Trial:
        """Places members no two of which share a value."""
        gang, segment = self.gang, self.gang.claim.fabric.segment
        joining, free = self._by_segment(required)
        wish = Wish(
            number=len(free),
            least=gang.least,
            required=required,
            inside=inside,
            size=segment.size if segment is not None else 0,
            level=self.tree.level(segment.level) if segment is not None else WHOLE,
        )
        spent = {line: _held_values(gang, self.tree.index, line[1], self._requests(line)) for line in self.distinct}
        joined = {domain: len(indexes) for domain, indexes in joining.items()}
        try:
            found = Apart(self.seats, ground, wish, self.distinct, self._keys, spent, joined).best()
        except TooMany:
            self.seats.limit = True
            found = None
        total_ = int(ground.room.sum())
        if found is None:
            return Trial((), 0, (), Shortage(0, 0, total_), nodes=nodes)
        shortage = Shortage(found.members, ground.above(found.level, found.domain, required), total_)
        members: list[Member] = []
        if found.members >= gang.least and not self.count_only:
            places = [(position, seat) for group in found.groups for position, seats in group.seats for seat in seats]
            indexes = list(self._apart_indexes(found.groups, joining, free))
            members = [Member(index, position, seat) for index, (position, seat) in zip(indexes, places, strict=True)]
            members.sort(key=lambda member: member.index)
        cost = self._plain_cost(members)
        return Trial(tuple(members), found.members, (-found.level, found.left, cost), shortage, nodes=nodes)

    def _apart_indexes(
        self, groups: Sequence[Group], joining: Mapping[int, Sequence[int]], free: Sequence[int]
    ) -> Iterator[int]:
        """The members' indexes, group by group: complete segments have the lowest ones."""
        segment = self.gang.claim.fabric.segment
        if segment is None or not any(len(group.pieces) > 1 or group.joining or group.tail for group in groups):
            segmented = segment is not None and self.tree.level(segment.level) > self.tree.level(
                self.gang.claim.fabric.required
            )
            if not segmented:
                yield from free[: sum(group.members for group in groups)]
                return
        assert segment is not None
        whole, last = _segments(free, segment.size)
        names: dict[tuple[int, int], Sequence[int]] = {}
        pieces = [
            (at, place, piece, group.tail and place == len(group.pieces) - 1)
            for at, group in enumerate(groups)
            for place, piece in enumerate(group.pieces)
        ]
        # Complete ones first.
        for at, place, piece, tail in sorted(pieces, key=lambda each: (each[2] < segment.size, each[:2])):
            names[at, place] = (last if tail else whole.pop(0))[:piece]
        for at, group in enumerate(groups):
            yield from joining.get(group.domain, ())[: group.joining]
            for place in range(len(group.pieces)):
                yield from names[at, place]

    def _requests(self, line: Line) -> tuple[str, ...]:
        ask = self.seats.asks[0]
        return tuple(ask.requests[request].name for request in ask.signature.attributes[line[0]].requests)

    def _plain_cost(self, members: Sequence[Member]) -> tuple[int, ...]:
        return tuple(sum(parts) for parts in zip(*(total([member.seat]) for member in members), strict=False))

    def _capacities(self) -> Integers:
        """By position how many members a node holds, as far as it matters."""
        seats, wanted = self.seats, len(self.gang.missing)
        rooms = np.zeros(len(self.tree.index.views), dtype=np.int64)
        groups: Mapping[Any, Sequence[int]] = seats.groups() if self.allotted is None else _by_key(self.allotted)
        for key, positions in groups.items():
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
        if self.limits is not None:
            most = np.zeros_like(rooms)
            for position, number in self.limits.items():
                most[position] = number
            np.minimum(rooms, most, out=rooms)
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
        queues: dict[Hashable, list[tuple[tuple[int, ...], int]]] = {}
        for position in positions:
            queues.setdefault(self._keys[position], []).append((ranks[position] if ranks else (), position))
        heap: list[tuple[tuple[int, ...], tuple[int, ...], float, int, bool, Hashable]] = []

        def push(key: Hashable, exact: bool, objective: tuple[int, ...]) -> None:
            rank, position = queues[key][-1]
            heapq.heappush(heap, (objective, rank, self.seats.load(key), position, exact, key))

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
        whole, last = _segments(indexes, size)
        full = iter(whole)
        numbers: dict[tuple[int, int], list[int]] = {}
        for complete in (True, False):
            for at, (lot, _) in enumerate(picked):
                for place, piece in enumerate(lot.pieces):
                    if lot.tail and place == len(lot.pieces) - 1:
                        numbers[at, place] = last[:piece]
                    elif (piece == size) is complete:
                        numbers[at, place] = next(full)[:piece]
        for at, (lot, places) in enumerate(picked):
            mine = [index for place in range(len(lot.pieces)) for index in numbers[at, place]]
            yield from zip(mine, _walk([(lot, places)]), strict=True)


def _segments(indexes: Sequence[int], size: int) -> tuple[list[list[int]], list[int]]:
    """The full segments among these indexes, and the last, shorter one."""
    by_segment: dict[int, list[int]] = {}
    for index in indexes:
        by_segment.setdefault(index // size, []).append(index)
    last = [members for members in by_segment.values() if len(members) < size]
    return [members for members in by_segment.values() if len(members) == size], last[0] if last else []


def _by_key(allotted: Mapping[int, Bench]) -> dict[Bench, list[int]]:
    found: dict[Bench, list[int]] = {}
    for position in sorted(allotted):
        found.setdefault(allotted[position], []).append(position)
    return found


def _walk(picked: Iterable[tuple[Lot, list[tuple[int, int]]]]) -> Iterator[int]:
    """Positions, each as often as members go there, in rank order."""
    for _, places in picked:
        for position, number in places:
            yield from (position for _ in range(number))


def device_values(gang: Gang, index: PoolIndex, attribute: str, requests: Sequence[str]) -> Iterator[frozenset[Value]]:
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
    return frozenset[Value]().union(*device_values(gang, index, attribute, requests))
