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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import compress
from math import inf
from operator import is_not
from typing import NamedTuple

from adjoin_allocator.alternatives import most_wanted
from adjoin_allocator.demand import Market, Want, want
from adjoin_allocator.holders import Holders
from adjoin_allocator.hosts import NOTHING, Hosts
from adjoin_allocator.model import (
    Claim,
    ClaimUID,
    Device,
    DeviceID,
    Hold,
    HostAsk,
    PlacedDevice,
    PlacedReplica,
    PlacedShare,
)
from adjoin_allocator.nodes import Nodes, PoolIndex, Question
from adjoin_allocator.parts import Parts
from adjoin_allocator.pool_ledger import PoolLedger
from adjoin_allocator.results import Placement
from adjoin_allocator.rulebook import clash
from adjoin_allocator.snapshot import Claims, Snapshot, path
from adjoin_allocator.tenancy import Accounts, Cost, added
from adjoin_allocator.terms import HoldKind, Profile, ReplicaState
from adjoin_allocator.topology import bits


class _Known(NamedTuple):
    """A claim as it was entered: what it holds, and what its replicas want."""

    claim: Claim
    entries: tuple[_Entry, ...]
    wanted: Want | None


@dataclass(frozen=True, slots=True)
class _Entry:
    """Devices of one replica on one node."""

    replica: PlacedReplica
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


class _Move(Enum):
    """What the journal undoes."""

    TAKE = auto()
    GIVE_BACK = auto()
    VACATE_KEPT = auto()
    VACATE_BACK = auto()
    VACATE_OTHERS = auto()
    HUSH = auto()
    UNHUSH = auto()


class Ledger:
    """All pools of a decision.

    Attributes:
        pools: By name.
        conflicts: By claim the indexes of its replicas that name a device of an older claim, or one device twice.
        lacking: By claim the indexes of wanted replicas without devices; claims that lack none, or are being deleted,
            are not in it.
        markets: By pool that is asked what replicas of its claims want; claims that are being deleted want nothing.
        hosts: What nodes have left beside devices.
        holders: By pool which claim has what, and what that makes for each tenant.
        parts: Who holds parts of devices.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.pools: dict[str, PoolLedger] = {}
        self.conflicts: dict[ClaimUID, tuple[int, ...]] = {}
        self.lacking: dict[ClaimUID, tuple[int, ...]] = {}
        self.markets: dict[str, Market] = {}
        self.hosts = Hosts()
        self.holders: dict[str, Holders] = {}
        self.parts = Parts(self.hosts)
        self._nodes = nodes
        self._journal: list[tuple[PoolLedger, int, int, _Move, HostAsk, int, PlacedShare | None]] = []
        """Whose what was moved and how, for whose pod, and which version that was of; with a share a part of the device
        of that bit."""
        self._claims = Claims(())
        self._indexes: Mapping[str, PoolIndex] = {}
        """What the pools were brought to."""
        self._known: dict[ClaimUID, _Known] = {}
        self._hands: dict[tuple[str, int], list[tuple[Claim, _Entry]]] = {}
        """By pool and position what claims hold."""
        self._waiting: list[tuple[int, Claim]] = []
        """The claims in `lacking` with their tickets, which ascend."""
        self._holds: Mapping[DeviceID, Hold] = {}

    def enter(self, snapshot: Snapshot, now: float) -> None:
        """Brings the ledger to the snapshot. Nothing may be given away at this moment."""
        self._enter(snapshot, now)
        modes: dict[str, dict[tuple[int, int], tuple[str, bool]]] = {}
        for device, mode in snapshot.modes.items():
            found = self._nodes.locate(device)
            if found is not None:
                index, position, bit = found
                alone = mode.until is not None and now < mode.until
                modes.setdefault(index.pool.name, {})[position, bit] = (mode.share, alone)
        self.parts.settle(modes)

    def _enter(self, snapshot: Snapshot, now: float) -> None:
        assert not self._journal, "a decision is under way"
        indexes = self._nodes.index(snapshot)
        same = indexes is self._indexes or (
            len(indexes) == len(self.pools)
            and all(
                name in self.pools and (self.pools[name].index is index or self.pools[name].follow(index))
                for name, index in indexes.items()
            )
        )
        self._indexes = indexes
        # A device named twice, or a UID: then what one claim holds cannot be told from what another does.
        mixed = self.conflicts or len(self._known) != len(self._claims)
        if same and not mixed and self.parts.same(snapshot):
            self.hosts.enter(snapshot.nodes, anew=False)
            if self._follow(snapshot):
                return
        self._rebuild(snapshot, indexes, now)

    @property
    def holds(self) -> Mapping[DeviceID, Hold]:
        """What others than the snapshot's claims hold."""
        return self._holds

    def wanted(self, claim: Claim) -> Want | None:
        """What each replica of a claim of the snapshot wants; None where that cannot be read."""
        return self._known[claim.uid].wanted

    def known(self, uid: ClaimUID) -> Claim:
        """A claim of the snapshot."""
        return self._known[uid].claim

    @property
    def waiting(self) -> list[Claim]:
        """The claims in `lacking`, in the order of the input."""
        return [claim for _, claim in self._waiting]

    def hands(self, pool: str, position: int) -> Iterator[tuple[Claim, PlacedReplica, int, bool]]:
        """Which replicas of the snapshot's claims hold what of a node, and whether it is on its way back."""
        for claim, entry in self._hands.get((pool, position), ()):
            yield claim, entry.replica, entry.mask, entry.back

    def part_hands(
        self, pool: str, position: int
    ) -> Iterator[tuple[Claim, PlacedReplica, tuple[tuple[int, PlacedShare], ...], bool]]:
        """The same of parts: which devices each holds parts of, and which parts."""
        for claim, entry in self._hands.get((pool, position), ()):
            if entry.parts:
                yield claim, entry.replica, entry.parts, entry.back

    def hands_and_parts(
        self, pool: str, position: int
    ) -> Iterator[tuple[Claim, PlacedReplica, int, tuple[tuple[int, PlacedShare], ...], bool]]:
        """Both at once: what each replica holds whole, and parts of which devices."""
        for claim, entry in self._hands.get((pool, position), ()):
            yield claim, entry.replica, entry.mask, entry.parts, entry.back

    def users(self, pool: str, position: int) -> Iterator[tuple[Claim, PlacedReplica, int]]:
        """Which replicas of the snapshot's claims have what of a node, whole or a part of it; the oldest first."""
        hands = self._hands.get((pool, position), ())

        def age(hand: tuple[Claim, _Entry]) -> tuple[float, str, int]:
            claim, entry = hand
            return inf if claim.created is None else claim.created, claim.uid, entry.replica.index

        yield from ((claim, entry.replica, entry.mask | entry.divided) for claim, entry in sorted(hands, key=age))

    def take(self, pool: str, position: int, mask: int, host: HostAsk = NOTHING) -> None:
        """Gives free devices of one node away, to a replica whose pod needs this of the node too."""
        ledger = self.pools[pool]
        assert mask & ~ledger.free[position] == 0, "a device is given that is not free"
        self._journal.append((ledger, position, mask, _Move.TAKE, host, ledger.version, None))
        if mask:
            ledger.give(position, mask, add=True)
        if host != NOTHING:
            self.hosts.add(ledger.index.views[position].name, host, 1)

    def take_part(self, pool: str, position: int, bit: int, share: PlacedShare) -> None:
        """Gives a part of one device away."""
        ledger = self.pools[pool]
        self._journal.append((ledger, position, bit, _Move.TAKE, NOTHING, ledger.version, share))
        self.parts.hold(pool, position, bit, share, back=False, add=True)

    def hush(self, pool: str, position: int, bit: int, add: bool) -> None:
        """A part of this device was given to somebody who wants quiet neighbours, or taken back from him."""
        ledger = self.pools[pool]
        move = _Move.HUSH if add else _Move.UNHUSH
        self._journal.append((ledger, position, bit, move, NOTHING, ledger.version, None))
        self.parts.hush(pool, position, bit, 1 if add else -1)

    def give_back_part(self, pool: str, position: int, bit: int, share: PlacedShare) -> None:
        """Takes back a part that `take_part` gave away."""
        ledger = self.pools[pool]
        self._journal.append((ledger, position, bit, _Move.GIVE_BACK, NOTHING, ledger.version, share))
        self.parts.hold(pool, position, bit, share, back=False, add=False)

    def take_placement(self, pool: str, placement: Placement, claim: Claim) -> None:
        """Gives all devices of a claim's placement away, whole or in parts."""
        position, mask = self.pools[pool].index.position[placement.node], 0
        for device in placement.devices:
            found = self._nodes.locate(device.id)
            assert found is not None, f"{device.id} was placed and is not there"
            if device.share is None:
                mask |= 1 << found[2]
            else:
                self.take_part(pool, position, found[2], device.share)
                if claim.profile is Profile.LATENCY:
                    self.hush(pool, position, found[2], add=True)
        self.take(pool, position, mask, claim.host)

    def give_back(self, pool: str, position: int, mask: int, host: HostAsk = NOTHING) -> None:
        """Takes back devices that `take` gave away."""
        ledger = self.pools[pool]
        assert mask & ledger.free[position] == 0, "a device comes back that was not given"
        self._journal.append((ledger, position, mask, _Move.GIVE_BACK, host, ledger.version, None))
        ledger.give(position, mask, add=False)
        if host != NOTHING:
            self.hosts.add(ledger.index.views[position].name, host, -1)

    def vacate(self, pool: str, position: int, mask: int, host: HostAsk = NOTHING) -> None:
        """What if those who have these devices, and whose pods need this of the node, were gone: for asking only, never
        for a plan that stands.
        """
        ledger = self.pools[pool]
        for move, part in (
            (_Move.VACATE_KEPT, ledger.claimed_by(position, back=False)),
            (_Move.VACATE_BACK, ledger.claimed_by(position, back=True)),
            (_Move.VACATE_OTHERS, ledger.others_back(position)),
        ):
            if part & mask:
                self._journal.append((ledger, position, part & mask, move, NOTHING, ledger.version, None))
                _vacate(ledger, position, part & mask, move, add=False)
        if host != NOTHING:
            self._journal.append((ledger, position, 0, _Move.GIVE_BACK, host, ledger.version, None))
            self.hosts.add(ledger.index.views[position].name, host, -1)

    def vacate_part(self, pool: str, position: int, bit: int, share: PlacedShare, back: bool) -> None:
        """What if somebody who has (or gives back) this part of a device were gone, likewise."""
        ledger = self.pools[pool]
        move = _Move.VACATE_BACK if back else _Move.VACATE_KEPT
        self._journal.append((ledger, position, bit, move, NOTHING, ledger.version, share))
        self.parts.hold(pool, position, bit, share, back, add=False)

    def card(self, device: DeviceID) -> tuple[tuple[str, int, int], Device]:
        """Where a device is (pool, position, bit), and what is known of it. It must be there."""
        found = self._nodes.locate(device)
        assert found is not None, f"{device} is not there"
        index, position, bit = found
        return (index.pool.name, position, bit), index.views[position].devices[bit]

    def cost(self, devices: Iterable[PlacedDevice]) -> dict[str, int]:
        """What placed devices, whole or in part, cost a tenant: thousandths of a device by device name."""
        cost: dict[str, int] = {}
        for each in devices:
            found = self._nodes.locate(each.id)
            if found is not None:
                index, position, bit = found
                holders = self.holders[index.pool.name]
                if each.share is None:
                    whole = holders.cost(position, 1 << bit)
                    for kind, milli in whole.items():
                        cost[kind] = cost.get(kind, 0) + milli
                    continue
                for kind, milli in holders.cost(position, 0, ((bit, each.share),)).items():
                    cost[kind] = cost.get(kind, 0) + milli
        return cost

    def cost_since(self, mark: int) -> Cost | None:
        """What everything that was given away since `mark` costs; None when something was taken back as well."""
        cost: Cost = {}
        for ledger, position, devices, move, _, _, share in self._journal[mark:]:
            if move is not _Move.TAKE:
                return None
            holders = self.holders[ledger.index.pool.name]
            # Of a part the number of its device stands in place of a mask.
            here = holders.cost(position, devices) if share is None else holders.cost(position, 0, ((devices, share),))
            if here:
                cost = added(cost, here) if cost else here
        return cost

    def accounts(self, pool: str) -> Accounts:
        """The tenants of a pool as the snapshot has them."""
        index = self.pools[pool].index
        capacity: dict[str, int] = {}
        for (kind, _), count in index.tally.items():
            capacity[kind] = capacity.get(kind, 0) + count
        return Accounts(index.pool, capacity, self.holders[pool].usage, index.portions)

    def checkpoint(self) -> int:
        """A mark to `roll_back` to; equal marks mean that nothing has changed between them."""
        return len(self._journal)

    def roll_back(self, mark: int) -> None:
        """Undoes everything since `mark`."""
        while len(self._journal) > mark:
            ledger, position, mask, move, host, version, share = self._journal.pop()
            if share is not None:
                back, add = move is _Move.VACATE_BACK, move is not _Move.TAKE
                self.parts.hold(ledger.index.pool.name, position, mask, share, back, add)
            elif move is _Move.HUSH or move is _Move.UNHUSH:
                self.parts.hush(ledger.index.pool.name, position, mask, -1 if move is _Move.HUSH else 1)
            elif move is _Move.TAKE or move is _Move.GIVE_BACK:
                if mask:
                    ledger.give(position, mask, add=move is _Move.GIVE_BACK)
            else:
                _vacate(ledger, position, mask, move, add=True)
            ledger.version = version
            if host != NOTHING:
                self.hosts.add(ledger.index.views[position].name, host, -1 if move is _Move.TAKE else 1)

    # Following snapshots

    def _follow(self, snapshot: Snapshot) -> bool:
        """Enters what changed. False when a device is named twice, and then the ledger must be rebuilt."""
        new = snapshot.followable
        steps = path(self._claims, new)
        if steps is None:
            if not self._compare(new):
                return False
        else:
            for step in steps:
                for ticket, claim in step.removed:
                    self._forget(claim)
                    at = bisect_left(self._waiting, ticket, key=_ticket)
                    if at < len(self._waiting) and self._waiting[at][0] == ticket:
                        del self._waiting[at]
                for ticket, claim in step.added:
                    if not self._learn(claim):
                        return False
                    if claim.uid in self.lacking:
                        insort(self._waiting, (ticket, claim), key=_ticket)
        self._claims = new
        for pool in self.pools.values():
            pool.tidy()
        if snapshot.holds is not self._holds:
            for holds, add in ((self._holds, False), (snapshot.holds, True)):
                self._enter_holds(holds, add)
            self._holds = snapshot.holds
        return True

    def _compare(self, claims: Claims) -> bool:
        """Enters what changed between claims of which no common past is known: by looking at each of them."""
        known, old, new = self._known, tuple(self._claims), tuple(claims)
        first = _common(old, new)
        last = _common(old[first:][::-1], new[first:][::-1])
        here = new[first : len(new) - last]
        kept = {claim.uid for claim in here if claim.uid in known and known[claim.uid].claim is claim}
        for claim in old[first : len(old) - last]:
            if claim.uid not in kept:
                self._forget(claim)
        for claim in here:
            if claim.uid not in kept and not self._learn(claim):
                return False
        self._waiting = [(ticket, claim) for ticket, claim in claims.ticketed() if claim.uid in self.lacking]
        return True

    def _forget(self, claim: Claim) -> None:
        known = self._known.pop(claim.uid)
        for entry in known.entries:
            self._hold(entry, add=False)
            place = (entry.pool.index.pool.name, entry.position)
            self._hands[place] = [hand for hand in self._hands[place] if hand[1] is not entry]
            self._hush(claim, entry, -1)
            self.holders[place[0]].leave(claim, entry.position, entry.mask, entry.back, entry.parts)
        self._trade(claim, known.wanted, -1)
        self.lacking.pop(claim.uid, None)

    def _learn(self, claim: Claim) -> bool:
        """Enters a new claim. False when it names what another one has, or something twice."""
        if claim.uid in self._known or _repeats(claim):
            return False
        entries: list[_Entry] = []
        for replica in claim.placed:
            for entry in self._places(replica, claim.deleting or replica.state is ReplicaState.RELEASING):
                if self._taken(entry):
                    return False
                self._hold(entry, add=True)
                entries.append(entry)
        self._remember(claim, tuple(entries))
        return True

    def _rebuild(self, snapshot: Snapshot, indexes: Mapping[str, PoolIndex], now: float) -> None:
        self.pools = {name: PoolLedger(self._nodes, index) for name, index in indexes.items()}
        self.conflicts, self.lacking, self._known, self._holds = {}, {}, {}, snapshot.holds
        self.markets, self._hands = {}, {}
        self.holders = {name: Holders(index, snapshot.shares) for name, index in indexes.items()}
        self.hosts.enter(snapshot.nodes, anew=True)
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
        self._claims = snapshot.followable
        self._waiting = [
            (ticket, claim) for ticket, claim in snapshot.followable.ticketed() if claim.uid in self.lacking
        ]
        for pool in self.pools.values():
            # Whoever asks first should not wait for it.
            pool.states(Question((), ()))

    def _hold(self, entry: _Entry, add: bool) -> None:
        """A replica of the snapshot holds this, or no longer does."""
        if entry.mask:
            entry.pool.claimed(entry.position, entry.mask, entry.back, add)
        for bit, share in entry.parts:
            self.parts.hold(entry.pool.index.pool.name, entry.position, bit, share, entry.back, add)

    def _taken(self, entry: _Entry) -> int:
        """Devices of an entry that claims hold already: any part of one that it wants whole, the whole of one that it
        wants a part of, a part of another share, or more of it than is left of the device itself. That a share gives
        less by now takes nothing from anybody.
        """
        whole, divided = entry.pool.claims(entry.position), entry.pool.divided(entry.position)
        taken = entry.mask & (whole | divided) | entry.divided & (whole | entry.mask)
        if entry.divided & divided:
            devices = entry.pool.index.views[entry.position].devices
            pool = entry.pool.index.pool.name
            for bit in bits(entry.divided & divided):
                held = Counter(share for at, share in entry.parts if at == bit)
                held.update(self.parts.held_of(pool, entry.position, bit))
                names = {share.name for share in held}
                if len(names) > 1 or clash(held, devices[bit], self.parts.shares.get(names.pop())):
                    taken |= 1 << bit
        return taken

    def _hush(self, claim: Claim, entry: _Entry, sign: int) -> None:
        """Who wants quiet neighbours has parts, or no longer has; of who is on its way out nobody need keep away."""
        if claim.profile is Profile.LATENCY and entry.parts and not entry.back:
            for bit, _ in entry.parts:
                self.parts.hush(entry.pool.index.pool.name, entry.position, bit, sign)

    def _remember(self, claim: Claim, entries: tuple[_Entry, ...]) -> None:
        wanted = None if claim.deleting else want(most_wanted(claim.requests), claim.affinity)
        self._known[claim.uid] = _Known(claim, entries, wanted)
        for entry in entries:
            pool = entry.pool.index.pool.name
            self._hands.setdefault((pool, entry.position), []).append((claim, entry))
            self._hush(claim, entry, 1)
            self.holders[pool].enter(claim, entry.replica, entry.position, entry.mask, entry.back, entry.parts)
        if not claim.deleting:
            missing = tuple(claim.members)
            if claim.placed:
                lost = self.conflicts.get(claim.uid, ())
                present = {replica.index for replica in claim.placed if replica.index not in lost}
                missing = tuple([index for index in missing if index not in present])
            if missing:
                self.lacking[claim.uid] = missing
        self._trade(claim, wanted, 1)

    def _trade(self, claim: Claim, wanted: Want | None, sign: int) -> None:
        """What a claim wants is in its pool's market, and what it needs on nodes in their books, or no longer."""
        self.parts.wishes(claim, sign)
        if claim.host != NOTHING and not claim.deleting:
            for replica in claim.placed:
                if not replica.bound and replica.state is not ReplicaState.RELEASING:
                    self.hosts.add(replica.node, claim.host, sign)
        if wanted is not None:
            market = self.markets.setdefault(claim.pool, Market())
            market.add(wanted, sign * claim.size, sign * len(self.lacking.get(claim.uid, ())))

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
            yield _Entry(replica, self.pools[pool], position, mask, back, tuple(parts.get((pool, position), ())))

    def _enter_holds(self, holds: Mapping[DeviceID, Hold], add: bool) -> None:
        for device, hold in holds.items():
            found = self._nodes.locate(device)
            if found is not None:
                index, position, bit = found
                pool = self.pools[index.pool.name]
                if hold.lent is not None:
                    pool.lend(position, 1 << bit, add)
                else:
                    pool.taken(position, 1 << bit, hold.kind is HoldKind.RELEASING, add)


def _vacate(ledger: PoolLedger, position: int, mask: int, move: _Move, add: bool) -> None:
    if move is _Move.VACATE_OTHERS:
        ledger.taken(position, mask, back=True, add=add)
    else:
        ledger.claimed(position, mask, back=move is _Move.VACATE_BACK, add=add)


def _doubled(replica: PlacedReplica) -> bool:
    """Whether it names a device twice, and not only parts of it: it has fewer than it says."""
    whole = [device.id for device in replica.devices if device.share is None]
    return len(set(whole)) < len(whole) or any(device.share and device.id in whole for device in replica.devices)


def _repeats(claim: Claim) -> bool:
    """Whether its status says something twice."""
    if not claim.placed:
        return False
    indexes = {replica.index for replica in claim.placed}
    return len(indexes) < len(claim.placed) or any(map(_doubled, claim.placed))


def _ticket(waiting: tuple[int, Claim]) -> int:
    return waiting[0]


def _common(one: Sequence[Claim], other: Sequence[Claim]) -> int:
    """How many claims both begin with, being the very same objects."""
    length = min(len(one), len(other))
    return next(compress(range(length), map(is_not, one, other)), length)
