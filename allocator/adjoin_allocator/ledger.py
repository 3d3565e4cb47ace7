"""Who holds what.

In come a snapshot's claims and holds, out come free sets, nodes of equal state in buckets, claims that lack replicas,
and counts. `Ledger.enter` brings it to a snapshot; what did not change since the last one (by identity) is not looked
at again, which changes speed and nothing else. Within a decision `take` gives devices away, `checkpoint` and
`roll_back` undo that exactly; a decision ends by rolling back all of it, since only what stands in a snapshot is
true.

When two statuses name one device, the older claim (creation time, then UID) keeps it. The other's replica loses: it
counts as not placed, its index is in `conflicts`, and what else it names stays taken, as on its way back, until its
status no longer does. So does a replica that names a device twice, and so it is with what a status lists under an index
that it has already given.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from operator import is_not

from adjoin_allocator.alternatives import most_wanted
from adjoin_allocator.demand import Market, want
from adjoin_allocator.model import Claim, ClaimUID, DeviceID, Hold, HostAsk, PlacedReplica, PlacedShare
from adjoin_allocator.nodes import Nodes, PoolIndex, Sort, State
from adjoin_allocator.parts import Parts
from adjoin_allocator.results import DeviceCounts
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import HoldKind, ReplicaState, Standing

QUESTIONS = 32
"""How many questions' buckets are kept up at once."""


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
        self._claims: dict[int, int] = {}
        self._claims_back: dict[int, int] = {}
        self._others: dict[int, int] = {}
        self._others_back: dict[int, int] = {}
        self._given: dict[int, int] = {}
        self._divided: dict[int, int] = {}
        self._divided_back: dict[int, int] = {}
        self.watcher: Callable[[int], None] | None = None
        """Called with a position when who holds devices there has changed."""
        self._buckets: dict[int, Buckets] = {}
        self._tally: Counter[tuple[str, Standing]] = Counter(index.tally)
        """Devices that nobody holds, by name and standing."""
        self._allocated: Counter[str] = Counter()
        self._releasing: Counter[str] = Counter()

    def back(self, position: int) -> int:
        """Devices of a node that are on their way back."""
        back = self._claims_back.get(position, 0) | self._others_back.get(position, 0)
        return back | self._divided_back.get(position, 0)

    @property
    def returning(self) -> frozenset[int]:
        """Positions of nodes with devices on their way back."""
        return frozenset(self._claims_back.keys() | self._others_back.keys() | self._divided_back.keys())

    def held(self, position: int) -> int:
        """Devices of a node that somebody has, those on their way back among them."""
        return self.entire(position) | self.divided(position)

    def entire(self, position: int) -> int:
        """Devices of a node that somebody has as wholes."""
        mine = self._claims.get(position, 0) | self._others.get(position, 0) | self._given.get(position, 0)
        return mine | self._claims_back.get(position, 0) | self._others_back.get(position, 0)

    def divided(self, position: int) -> int:
        """Devices of a node of which somebody has parts."""
        return self._divided.get(position, 0) | self._divided_back.get(position, 0)

    def claims(self, position: int) -> int:
        """Devices of a node that claims of the snapshot have."""
        return self._claims.get(position, 0) | self._claims_back.get(position, 0)

    def claimed(self, position: int, mask: int, back: bool, add: bool) -> None:
        """A claim of the snapshot holds these devices, or no longer does."""
        self._change(self._claims_back if back else self._claims, position, mask, add)

    def taken(self, position: int, mask: int, back: bool, add: bool) -> None:
        """Somebody else holds these devices, or no longer does."""
        self._change(self._others_back if back else self._others, position, mask, add)

    def give(self, position: int, mask: int, add: bool) -> None:
        """This decision gives these devices away, or takes that back."""
        self._change(self._given, position, mask, add)

    def divide(self, position: int, mask: int, back: bool, add: bool) -> None:
        """Somebody holds parts of these devices (all of it on its way back, or not), or nobody does any more."""
        self._change(self._divided_back if back else self._divided, position, mask, add)

    def buckets(self, sorts: Sequence[Sort]) -> Buckets:
        """Open nodes by state, kept up from now on. `sorts` are a question's, always the same object for it."""
        buckets = self._buckets.get(id(sorts))
        if buckets is None:
            while len(self._buckets) >= QUESTIONS:
                del self._buckets[next(iter(self._buckets))]
            buckets = self._buckets[id(sorts)] = Buckets(sorts, self.index, self.free)
        return buckets

    def counts(self) -> Mapping[str, DeviceCounts]:
        """Devices by name, each counted once. Withheld devices count as unhealthy, unguarded ones as reserved, since
        neither can be given to anybody now.
        """
        tally, whole = self._tally, self.index.tally
        names = dict.fromkeys((*(name.name for name in self.index.pool.devices), *(kind for kind, _ in whole)))
        return {
            name: DeviceCounts(
                capacity=sum(whole.get((name, stand), 0) for stand in Standing),
                free=tally[name, Standing.OFFERED],
                allocated=self._allocated[name],
                reserved=tally[name, Standing.UNGUARDED],
                releasing=self._releasing[name],
                unhealthy=tally[name, Standing.UNHEALTHY] + tally[name, Standing.WITHHELD],
                missing=tally[name, Standing.MISSING],
            )
            for name in names
        }

    def _change(self, layer: dict[int, int], position: int, mask: int, add: bool) -> None:
        self._count(position, -1)
        old = layer.get(position, 0)
        new = old | mask if add else old & ~mask
        if new:
            layer[position] = new
        elif old:
            del layer[position]
        self._count(position, 1)
        before, after = self.free[position], self.index.views[position].offered & ~self.held(position)
        if before != after:
            self.free[position] = after
            for buckets in self._buckets.values():
                buckets.move(self.index, position, before, after)
        if self.watcher is not None:
            self.watcher(position)

    def _count(self, position: int, sign: int) -> None:
        """Adds a node's held devices to the counts, or takes them out. A missing device counts as missing whoever holds
        it, and one on its way back as such, whoever else holds it.
        """
        held = self.held(position)
        if not held:
            return
        view, back = self.index.views[position], self.back(position)
        held &= ~view.standing[Standing.MISSING]
        for kind, mask in view.shape.kinds.items():
            here = mask & held
            if here:
                releasing = (here & back).bit_count() * sign
                self._releasing[kind] += releasing
                self._allocated[kind] += here.bit_count() * sign - releasing
                for stand, devices in view.standing.items():
                    if here & devices:
                        self._tally[kind, stand] -= (here & devices).bit_count() * sign


@dataclass(frozen=True, slots=True)
class _Entry:
    """Devices of one replica on one node."""

    pool: PoolLedger
    position: int
    mask: int
    back: bool
    parts: tuple[tuple[int, PlacedShare], ...] = ()

    @property
    def divided(self) -> int:
        """Devices of which it has parts."""
        mask = 0
        for bit, _ in self.parts:
            mask |= 1 << bit
        return mask

    def without(self, gone: int, back: bool) -> _Entry:
        """The same without these devices."""
        left = tuple(each for each in self.parts if not gone >> each[0] & 1)
        return replace(self, mask=self.mask & ~gone, parts=left, back=back)


class Ledger:
    """All pools of a decision.

    Attributes:
        pools: By name.
        conflicts: By claim the indexes of its replicas that name a device of an older claim, or one device twice.
        lacking: By claim the indexes of wanted replicas without devices; claims that lack none, or are being deleted,
            are not in it.
        markets: By pool that is asked what replicas of its claims want; claims that are being deleted want nothing.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.pools: dict[str, PoolLedger] = {}
        self.conflicts: dict[ClaimUID, tuple[int, ...]] = {}
        self.lacking: dict[ClaimUID, tuple[int, ...]] = {}
        self.markets: dict[str, Market] = {}
        self.parts = Parts()
        self._nodes = nodes
        self._journal: list[Callable[[], None]] = []
        self._claims: tuple[Claim, ...] = ()
        self._known: dict[ClaimUID, tuple[Claim, tuple[_Entry, ...]]] = {}
        self._waiting: list[int] = []
        """Places among the claims of those in `lacking`."""
        self._holds: Mapping[DeviceID, Hold] = {}

    def enter(self, snapshot: Snapshot, now: float) -> None:
        """Brings the ledger to the snapshot. Nothing may be given away at this moment."""
        assert not self._journal, "a decision is under way"
        indexes = self._nodes.index(snapshot)
        same = len(indexes) == len(self.pools) and all(
            name in self.pools and self.pools[name].index is index for name, index in indexes.items()
        )
        # A device named twice, or a UID: then what one claim holds cannot be told from what another does.
        mixed = self.conflicts or len(self._known) != len(self._claims)
        if not same or mixed or not self.parts.same(snapshot) or not self._follow(snapshot):
            self._rebuild(snapshot, indexes, now)

    @property
    def holds(self) -> Mapping[DeviceID, Hold]:
        """What others than the snapshot's claims hold."""
        return self._holds

    @property
    def waiting(self) -> list[Claim]:
        """The claims in `lacking`, in the order of the input."""
        return [self._claims[at] for at in self._waiting]

    def take(self, pool: str, position: int, mask: int) -> None:
        """Gives free devices of one node away."""
        ledger = self.pools[pool]
        assert mask & ~ledger.free[position] == 0, "a device is given that is not free"
        ledger.give(position, mask, add=True)
        self._journal.append(partial(ledger.give, position, mask, add=False))

    def take_part(self, pool: str, position: int, bit: int, share: PlacedShare) -> None:
        """Gives a part of one device away."""
        self.parts.hold(pool, position, bit, share, back=False, add=True)
        self._journal.append(partial(self.parts.hold, pool, position, bit, share, back=False, add=False))

    def take_host(self, node: str, asked: HostAsk) -> None:
        """Gives host resources of a node away."""
        self.parts.host(node, asked, add=True)
        self._journal.append(partial(self.parts.host, node, asked, add=False))

    def give_back(self, pool: str, position: int, mask: int) -> None:
        """Takes back devices that `take` gave away."""
        ledger = self.pools[pool]
        assert mask & ledger.free[position] == 0, "a device comes back that was not given"
        ledger.give(position, mask, add=False)
        self._journal.append(partial(ledger.give, position, mask, add=True))

    def checkpoint(self) -> int:
        """A mark to `roll_back` to; equal marks mean that nothing has changed between them."""
        return len(self._journal)

    def roll_back(self, mark: int) -> None:
        """Undoes everything since `mark`."""
        while len(self._journal) > mark:
            self._journal.pop()()

    # Following snapshots

    def _follow(self, snapshot: Snapshot) -> bool:
        """Enters what changed. False when a device is named twice, and then the ledger must be rebuilt."""
        known, old, new = self._known, self._claims, snapshot.claims
        self.parts.see(snapshot)
        first = _common(old, new)
        last = _common(old[first:][::-1], new[first:][::-1])
        here = new[first : len(new) - last]
        kept = {claim.uid for claim in here if claim.uid in known and known[claim.uid][0] is claim}
        for claim in old[first : len(old) - last]:
            if claim.uid not in kept:
                for entry in known.pop(claim.uid)[1]:
                    self._hold(entry, add=False)
                self._trade(claim, -1)
                self.lacking.pop(claim.uid, None)
        for claim in here:
            if claim.uid in kept:
                continue
            if claim.uid in known or _repeats(claim):
                return False
            entries: list[_Entry] = []
            for replica in claim.placed:
                for entry in self._places(replica, claim.deleting or replica.state is ReplicaState.RELEASING):
                    if self._taken(entry):
                        return False
                    self._hold(entry, add=True)
                    entries.append(entry)
            self._remember(claim, tuple(entries))
        before = bisect_left(self._waiting, first)
        after = bisect_left(self._waiting, len(old) - last)
        self._waiting = [
            *self._waiting[:before],
            *(at for at, claim in enumerate(here, start=first) if claim.uid in self.lacking),
            *(at + len(new) - len(old) for at in self._waiting[after:]),
        ]
        self._claims = new
        if snapshot.holds is not self._holds:
            for holds, add in ((self._holds, False), (snapshot.holds, True)):
                self._enter_holds(holds, add)
            self._holds = snapshot.holds
        return True

    def _rebuild(self, snapshot: Snapshot, indexes: Mapping[str, PoolIndex], now: float) -> None:
        self.pools = {name: PoolLedger(index) for name, index in indexes.items()}
        self.conflicts, self.lacking, self._known, self._holds = {}, {}, {}, snapshot.holds
        self.markets = {}
        self.parts.reset(snapshot, self.pools)

        def age(claim: Claim) -> tuple[float, str]:
            return now if claim.created is None else claim.created, claim.uid

        for claim in sorted(snapshot.claims, key=age):
            entries: list[_Entry] = []
            lost = []
            seen: set[int] = set()
            for replica in sorted(claim.placed, key=lambda replica: replica.index):
                again = replica.index in seen
                seen.add(replica.index)
                back = claim.deleting or again or replica.state is ReplicaState.RELEASING
                mine = list(self._places(replica, back))
                if again:
                    mine = [entry.without(self._taken(entry), back) for entry in mine]
                elif _doubled(replica) or any(map(self._taken, mine)):
                    lost.append(replica.index)
                    mine = [entry.without(self._taken(entry), back=True) for entry in mine]
                for entry in mine:
                    self._hold(entry, add=True)
                entries += mine
            if lost:
                self.conflicts[claim.uid] = tuple(lost)
            self._remember(claim, tuple(entries))
        self._enter_holds(snapshot.holds, add=True)
        self._claims = snapshot.claims
        self._waiting = [at for at, claim in enumerate(snapshot.claims) if claim.uid in self.lacking]

    def _hold(self, entry: _Entry, add: bool) -> None:
        """A replica of the snapshot holds this, or no longer does."""
        if entry.mask:
            entry.pool.claimed(entry.position, entry.mask, entry.back, add)
        for bit, share in entry.parts:
            self.parts.hold(entry.pool.index.pool.name, entry.position, bit, share, entry.back, add)

    @staticmethod
    def _taken(entry: _Entry) -> int:
        """Devices of an entry that claims hold already: any part of one that it wants whole, the whole of one that it
        wants a part of.
        """
        whole, divided = entry.pool.claims(entry.position), entry.pool.divided(entry.position)
        return entry.mask & (whole | divided) | entry.divided & (whole | entry.mask)

    def _remember(self, claim: Claim, entries: tuple[_Entry, ...]) -> None:
        self._known[claim.uid] = (claim, entries)
        if not claim.deleting:
            lost = self.conflicts.get(claim.uid, ())
            present = {replica.index for replica in claim.placed if replica.index not in lost}
            missing = tuple(index for index in range(claim.replicas) if index not in present)
            if missing:
                self.lacking[claim.uid] = missing
        self._trade(claim, 1)

    def _trade(self, claim: Claim, sign: int) -> None:
        """What a claim wants is in its pool's market, or no longer, and what it needs of hosts."""
        self.parts.claim(claim, sign > 0)
        wanted = None if claim.deleting else want(most_wanted(claim.requests), claim.affinity)
        if wanted is not None:
            market = self.markets.setdefault(claim.pool, Market())
            market.add(wanted, sign * claim.replicas, sign * len(self.lacking.get(claim.uid, ())))

    def _places(self, replica: PlacedReplica, back: bool) -> Iterator[_Entry]:
        """What a replica's status names, as far as it exists; of a device that is named twice once."""
        masks: dict[tuple[str, int], int] = {}
        parts: dict[tuple[str, int], list[tuple[int, PlacedShare]]] = {}
        for device in replica.devices:
            found = self._nodes.locate(device.id)
            if found is not None:
                index, position, bit = found
                key = (index.pool.name, position)
                masks[key] = masks.get(key, 0) | (1 << bit if device.share is None else 0)
                if device.share is not None:
                    parts.setdefault(key, []).append((bit, device.share))
        for (pool, position), mask in masks.items():
            yield _Entry(self.pools[pool], position, mask, back, tuple(parts.get((pool, position), ())))

    def _enter_holds(self, holds: Mapping[DeviceID, Hold], add: bool) -> None:
        for device, hold in holds.items():
            found = self._nodes.locate(device)
            if found is not None:
                index, position, bit = found
                self.pools[index.pool.name].taken(position, 1 << bit, hold.kind is HoldKind.RELEASING, add)


def _doubled(replica: PlacedReplica) -> bool:
    """Whether it names a device twice, and not only parts of it: it has fewer than it says."""
    whole = [device.id for device in replica.devices if device.share is None]
    parted = {device.id for device in replica.devices if device.share is not None}
    return len(set(whole)) < len(whole) or not parted.isdisjoint(whole)


def _repeats(claim: Claim) -> bool:
    """Whether its status says something twice."""
    indexes = {replica.index for replica in claim.placed}
    return len(indexes) < len(claim.placed) or any(map(_doubled, claim.placed))


def _common(one: Sequence[Claim], other: Sequence[Claim]) -> int:
    """How many claims both begin with, being the very same objects."""
    length = min(len(one), len(other))
    return next(compress(range(length), map(is_not, one, other)), length)
