"""Who holds what, while one decision is made.

In come the pool indexes and a snapshot's claims and holds; out come free sets, nodes of equal state in buckets, and
counts. The ledger is the only thing that changes during a decision: `take` changes it, `checkpoint` and `roll_back`
undo that exactly. It lives inside one `plan()` and is never shared.

When two statuses name one device, the older claim (creation time, then UID) keeps it. The other's replica loses: it
counts as not placed, its index is in `conflicts`, and what else it names stays taken, as on its way back, until its
status no longer does.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from adjoin_allocator.model import Claim, ClaimUID, HoldKind, PlacedReplica, ReplicaState, Standing
from adjoin_allocator.nodes import Nodes, PoolIndex, Sort, State
from adjoin_allocator.results import DeviceCounts
from adjoin_allocator.snapshot import Snapshot


class Buckets:
    """The open nodes of a pool by state, for one question; every bucket lists positions in ascending order."""

    def __init__(self, sorts: Sequence[Sort], index: PoolIndex, free: Sequence[int]) -> None:
        self.sorts = sorts
        self.states: dict[State, list[int]] = {}
        states, closed = self.states, index.closed
        for position, (view, sort, mask) in enumerate(zip(index.views, sorts, free, strict=True)):
            if position not in closed:
                state = (view.shape, sort, mask)
                bucket = states.get(state)
                if bucket is None:
                    states[state] = [position]
                else:
                    bucket.append(position)

    def move(self, index: PoolIndex, position: int, before: int, after: int) -> None:
        """A node's free devices changed."""
        if position in index.closed:
            return
        shape, sort = index.views[position].shape, self.sorts[position]
        bucket = self.states[shape, sort, before]
        if len(bucket) == 1:
            del self.states[shape, sort, before]
        else:
            del bucket[bisect_left(bucket, position)]
        insort(self.states.setdefault((shape, sort, after), []), position)


class PoolLedger:
    """One pool: by position what is free, and who has the rest."""

    def __init__(self, index: PoolIndex) -> None:
        self.index = index
        self.free = [view.offered for view in index.views]
        self.claimed: dict[int, int] = {}
        """Held by claims, or allocated to somebody else's ResourceClaim."""
        self.releasing: dict[int, int] = {}
        """On their way back."""
        self._buckets: dict[int, Buckets] = {}

    def hold(self, position: int, mask: int, releasing: bool) -> None:
        """Marks devices as held; before any `buckets`."""
        holders = self.releasing if releasing else self.claimed
        holders[position] = holders.get(position, 0) | mask
        self.free[position] &= ~mask

    def buckets(self, sorts: Sequence[Sort]) -> Buckets:
        """Open nodes by state, kept up from now on. `sorts` are a question's, always the same object for it."""
        buckets = self._buckets.get(id(sorts))
        if buckets is None:
            buckets = self._buckets[id(sorts)] = Buckets(sorts, self.index, self.free)
        return buckets

    def change(self, position: int, mask: int, give: bool) -> None:
        """Gives free devices of a node to a claim, or takes such devices back."""
        before = self.free[position]
        self.free[position] = after = before & ~mask if give else before | mask
        held = self.claimed.get(position, 0)
        self.claimed[position] = held | mask if give else held & ~mask
        for buckets in self._buckets.values():
            buckets.move(self.index, position, before, after)

    def counts(self) -> Mapping[str, DeviceCounts]:
        """Devices by name, each counted once. Withheld devices count as unhealthy, unguarded ones as reserved, since
        neither can be given to anybody now.
        """
        index = self.index
        by_standing: Counter[tuple[str, Standing]] = Counter(index.tally)
        claimed: Counter[str] = Counter()
        releasing: Counter[str] = Counter()
        for (shape_kinds, stands, mine, back), nodes in self._held().items():
            for kind, mask in shape_kinds:
                gone = mask & dict(stands)[Standing.MISSING]
                back_here = mask & back & ~gone
                mine_here = mask & mine & ~gone & ~back
                releasing[kind] += back_here.bit_count() * nodes
                claimed[kind] += mine_here.bit_count() * nodes
                for stand, devices in stands:
                    by_standing[kind, stand] -= (devices & (back_here | mine_here)).bit_count() * nodes
        names = dict.fromkeys((*(name.name for name in index.pool.devices), *(kind for kind, _ in index.tally)))
        return {
            name: DeviceCounts(
                capacity=sum(index.tally.get((name, stand), 0) for stand in Standing),
                free=by_standing[name, Standing.OFFERED],
                allocated=claimed[name],
                reserved=by_standing[name, Standing.UNGUARDED],
                releasing=releasing[name],
                unhealthy=by_standing[name, Standing.UNHEALTHY] + by_standing[name, Standing.WITHHELD],
                missing=by_standing[name, Standing.MISSING],
            )
            for name in names
        }

    def _held(self) -> Mapping[tuple[Sequence[tuple[str, int]], Sequence[tuple[Standing, int]], int, int], int]:
        """Nodes with holders, equal ones together: devices by name, by standing, held, on their way back."""
        held: Counter[tuple[Sequence[tuple[str, int]], Sequence[tuple[Standing, int]], int, int]] = Counter()
        for position in {**self.claimed, **self.releasing}:
            view = self.index.views[position]
            held[
                tuple(view.shape.kinds.items()),
                tuple(view.standing.items()),
                self.claimed.get(position, 0),
                self.releasing.get(position, 0),
            ] += 1
        return held


Places = Mapping[tuple[str, int], int]
"""Devices by pool and position."""


class Ledger:
    """All pools of a decision.

    Attributes:
        pools: By name.
        conflicts: By claim the indexes of its replicas that name a device of an older claim.
    """

    def __init__(self, nodes: Nodes, snapshot: Snapshot, now: float) -> None:
        self.pools = {name: PoolLedger(index) for name, index in nodes.index(snapshot).items()}
        self.conflicts: dict[ClaimUID, tuple[int, ...]] = {}
        self._journal: list[tuple[PoolLedger, int, int, bool]] = []
        self._nodes = nodes
        placed = [
            (claim, replica, self._places(replica))
            for claim in snapshot.claims
            if claim.placed
            for replica in claim.placed
        ]
        if _overlap(places for _, _, places in placed):
            placed = self._settle(placed, now)
        for claim, replica, places in placed:
            back = claim.deleting or replica.state is ReplicaState.RELEASING
            back = back or replica.index in self.conflicts.get(claim.uid, ())
            for (pool, position), mask in places.items():
                self.pools[pool].hold(position, mask, back)
        for device, hold in snapshot.holds.items():
            found = nodes.locate(device)
            if found is not None:
                index, position, bit = found
                self.pools[index.pool.name].hold(position, 1 << bit, hold.kind is HoldKind.RELEASING)

    def present(self, claim: Claim) -> frozenset[int]:
        """Replicas that have their devices, and need none now."""
        lost = self.conflicts.get(claim.uid, ())
        return frozenset(replica.index for replica in claim.placed if replica.index not in lost)

    def take(self, pool: str, position: int, mask: int) -> None:
        """Gives free devices of one node to a claim."""
        ledger = self.pools[pool]
        assert mask & ~ledger.free[position] == 0, "a device is given that is not free"
        ledger.change(position, mask, give=True)
        self._journal.append((ledger, position, mask, True))

    def give_back(self, pool: str, position: int, mask: int) -> None:
        """Takes back devices that `take` gave."""
        ledger = self.pools[pool]
        assert mask & ledger.free[position] == 0, "a device comes back that was not taken"
        ledger.change(position, mask, give=False)
        self._journal.append((ledger, position, mask, False))

    def checkpoint(self) -> int:
        """A mark to `roll_back` to; equal marks mean that nothing has changed between them."""
        return len(self._journal)

    def roll_back(self, mark: int) -> None:
        """Undoes everything since `mark`."""
        while len(self._journal) > mark:
            ledger, position, mask, given = self._journal.pop()
            ledger.change(position, mask, give=not given)

    def _places(self, replica: PlacedReplica) -> Places:
        places: dict[tuple[str, int], int] = {}
        for device in replica.devices:
            found = self._nodes.locate(device.id)
            if found is not None:
                index, position, bit = found
                key = (index.pool.name, position)
                places[key] = places.get(key, 0) | 1 << bit
        return places

    def _settle(
        self, placed: Sequence[tuple[Claim, PlacedReplica, Places]], now: float
    ) -> list[tuple[Claim, PlacedReplica, Places]]:
        """The same with every device once: the older claim's. Records who lost."""

        def age(entry: tuple[Claim, PlacedReplica, Places]) -> tuple[float, str, int]:
            claim, replica, _ = entry
            return (now if claim.created is None else claim.created), claim.uid, replica.index

        settled: list[tuple[Claim, PlacedReplica, Places]] = []
        taken: dict[tuple[str, int], int] = {}
        for claim, replica, places in sorted(placed, key=age):
            mine = {key: mask & ~taken.get(key, 0) for key, mask in places.items()}
            if mine != places:
                self.conflicts[claim.uid] = (*self.conflicts.get(claim.uid, ()), replica.index)
            for key, mask in places.items():
                taken[key] = taken.get(key, 0) | mask
            settled.append((claim, replica, mine))
        return settled


def _overlap(all_places: Iterable[Places]) -> bool:
    taken: dict[tuple[str, int], int] = {}
    for places in all_places:
        for key, mask in places.items():
            known = taken.get(key, 0)
            if known & mask:
                return True
            taken[key] = known | mask
    return False
