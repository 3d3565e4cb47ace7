"""A snapshot with replicas at other places: what moves are tried on.

In come a snapshot, the plan that was made of it, and the claim that is to fit; a `Stage` says which replicas may move
and which devices are free, asks `plan()` where replicas would go if others were elsewhere, and proves a set of moves.
The snapshot is not changed, and nothing is decided: the answers are for advice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from adjoin_allocator.inquiry import settled
from adjoin_allocator.model import (
    Claim,
    ClaimHold,
    ClaimUID,
    Device,
    DeviceID,
    Fabric,
    Hold,
    PlacedDevice,
    PlacedReplica,
    PlacedShare,
    Pool,
    PreemptionRules,
    natural_key,
)
from adjoin_allocator.nodes import closed
from adjoin_allocator.results import Code, Placement, Plan
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.solve import Memo, plan
from adjoin_allocator.terms import HoldKind, ReplicaState, Standing

Key = tuple[ClaimUID, int]
"""A replica."""
Spots = Mapping[Key, tuple[str, tuple[PlacedDevice, ...]]]
"""Where replicas go: node and devices. Without devices, a replica is nowhere for the moment."""
NOWHERE: Final[tuple[str, tuple[PlacedDevice, ...]]] = ("", ())

SETTLED = frozenset((ReplicaState.ALLOCATED, ReplicaState.INITIALIZING, ReplicaState.READY, ReplicaState.IN_USE))
PASSED_OVER = ClaimHold(Code.POD_GATED, "not asked")
_OTHERS = Hold(HoldKind.FOREIGN, "not asked")


@dataclass(frozen=True, slots=True)
class Move:
    """A replica, where it is, and where it goes."""

    uid: ClaimUID
    index: int
    node: str
    devices: tuple[PlacedDevice, ...]
    to_node: str
    to_devices: tuple[PlacedDevice, ...]


@dataclass(slots=True, eq=False)
class Stage:
    """Where moves are tried.

    Attributes:
        base: What stands once the plan's placements are made; claims that wait are passed over.
        pool: The target's pool, without what would make plan() do more than place.
        movable: The replicas that may move: those of preemptible claims that stand on whole devices and want no others.
        shared: Those of preemptible claims that have parts of devices, or could have been served so.
        devices: The devices that can be given out, whoever holds them.
        free: Those of them that nobody holds.
    """

    snapshot: Snapshot
    now: float
    made: Plan
    target: Claim
    memo: Memo
    base: Snapshot = field(init=False)
    pool: Pool = field(init=False)
    claims: Mapping[ClaimUID, Claim] = field(init=False)
    movable: Mapping[Key, PlacedReplica] = field(init=False)
    shared: Mapping[Key, PlacedReplica] = field(init=False)
    devices: Mapping[DeviceID, Device] = field(init=False)
    free: frozenset[DeviceID] = field(init=False)
    _own_holds: Mapping[ClaimUID, ClaimHold | None] = field(init=False)
    _bare: Pool = field(init=False)
    _free: Mapping[str, frozenset[DeviceID]] = field(init=False)
    _single: Memo = field(default_factory=Memo)
    _small: Memo = field(default_factory=Memo)

    def __post_init__(self) -> None:
        original = self.snapshot.pools[self.target.pool]
        self.pool = replace(original, preemption=PreemptionRules(), hold_after=None, optimise_milliseconds=0)
        self._bare = replace(self.pool, tenants={})
        after = settled(self.snapshot, self.made)
        self._own_holds = {claim.uid: claim.hold for claim in after.claims}
        claims = tuple(replace(claim, hold=claim.hold or PASSED_OVER) for claim in after.claims)
        self.claims = {claim.uid: claim for claim in claims}
        self.base = replace(after, pools={**after.pools, self.pool.name: self.pool}, claims=claims)
        may = {
            (claim.uid, replica.index): replica
            for claim in self.snapshot.claims
            if claim.pool == self.pool.name and claim.uid != self.target.uid
            if claim.preemptible and not claim.deleting and claim.hold is None
            for replica in claim.placed
            if replica.state in SETTLED and replica.index in claim.members
            if replica.index not in self._lost(claim.uid)
        }
        divided = {key for key, held in may.items() if divides(self.claims[key[0]]) or any(map(_is_part, held.devices))}
        self.movable = {key: held for key, held in may.items() if key not in divided}
        self.shared = {key: held for key, held in may.items() if key in divided}
        self.devices = {
            device.id: device
            for name, devices in self.snapshot.inventory.items()
            if closed(self.snapshot.nodes.get(name), self.pool) is None
            for device in devices
            if device.device_pool == self.pool.name and device.standing is Standing.OFFERED
        }
        held = {device.id for claim in claims for replica in claim.placed for device in replica.devices}
        self.free = frozenset(self.devices.keys() - held - after.holds.keys())
        by_node: dict[str, set[DeviceID]] = {device.node: set() for device in self.devices.values()}
        for each in self.free:
            by_node[self.devices[each].node].add(each)
        self._free = {node: frozenset(devices) for node, devices in by_node.items()}

    @property
    def nodes(self) -> Collection[str]:
        """Nodes with devices that can be given out."""
        return self._free.keys()

    def _lost(self, uid: ClaimUID) -> tuple[int, ...]:
        answer = self.made.claims.get(uid)
        return answer.conflicts if answer is not None else ()

    def weight(self, keys: Iterable[Key]) -> int:
        """How many devices and parts these replicas hold."""
        return sum(len((self.movable.get(key) or self.shared[key]).devices) for key in keys)

    def missing(self) -> list[int]:
        """Indexes of the target's replicas that must find room; of a gang no more than it needs to start."""
        claim = self.claims[self.target.uid]
        present = {replica.index for replica in claim.placed}
        missing = [index for index in claim.members if index not in present]
        if claim.gang_min is None:
            return missing
        return missing[: max(1, claim.gang_min - len(present))]

    def free_on(self, node: str, spots: Spots, leaving: Collection[Key]) -> set[DeviceID]:
        """What is free on a node with replicas at `spots`, and `leaving` gone."""
        free = set(self._free[node])
        for key in (*leaving, *spots):
            replica = self.movable.get(key)
            if replica is not None and replica.node == node:
                free |= {device.id for device in replica.devices if device.id in self.devices}
        for where, devices in spots.values():
            if where == node:
                free -= {device.id for device in devices}
        return free

    # What plan() says

    def arranged(
        self, spots: Spots, out: Collection[Key], asks: Collection[ClaimUID], base: Snapshot | None = None
    ) -> Snapshot:
        """The base (or another) with replicas at their spots, those of `out` without any, and only `asks` asking."""
        gone = set(out)
        touched = {uid for uid, _ in (*spots, *gone)} | set(asks)
        changed = (self._changed(self.claims[uid], spots, gone, asking=uid in asks) for uid in touched)
        return (base or self.base).edited(put=changed)

    def _changed(self, claim: Claim, spots: Spots, gone: Collection[Key], *, asking: bool) -> Claim:
        placed = {
            replica.index: replica
            for replica in claim.placed
            if (claim.uid, replica.index) not in gone and (claim.uid, replica.index) not in spots
        }
        for (uid, index), (node, devices) in spots.items():
            if uid == claim.uid and (uid, index) not in gone:
                placed[index] = PlacedReplica(index, node, ReplicaState.ALLOCATED, devices)
        ordered = tuple(placed[index] for index in sorted(placed))
        return replace(claim, placed=ordered, hold=self._own_holds[claim.uid] if asking else claim.hold)

    def fits_without(self, out: Collection[Key]) -> str:
        """Why the target does not fit even if the replicas of `out` were gone, or "" when it does."""
        made = plan(self.arranged({}, out, [self.target.uid]), self.now, self.memo)
        answer = made.claims.get(self.target.uid)
        if answer is None or self.satisfied(answer.placements, bool(answer.reasons)):
            return ""
        return answer.reasons[0].message if answer.reasons else "too few of its replicas have a place"

    def planned(self, keys: Sequence[Key], spots: Spots) -> Spots | None:
        """Where plan() puts these replicas when others are at `spots` and nobody else asks; None when one of them has
        no place."""
        asks = tuple(dict.fromkeys(uid for uid, _ in keys))
        asking = self.arranged(spots, keys, asks)
        # Members of the target that are asked for one by one are no gang yet.
        claims = tuple(
            replace(claim, gang_min=None) if claim.uid == self.target.uid else claim for claim in asking.claims
        )
        made = plan(replace(asking, claims=claims), self.now, self.memo)
        found = {
            (uid, placement.index): (placement.node, placement.devices)
            for uid in asks
            if uid in made.claims
            for placement in made.claims[uid].placements
            if (uid, placement.index) in keys
        }
        return found if len(found) == len(keys) else None

    def alone(self, claim: Claim, node: str, ids: set[DeviceID]) -> tuple[PlacedDevice, ...] | None:
        """What one replica gets on a node where nothing but `ids` is free, whoever else there is."""
        single = replace(
            claim,
            replicas=1,
            placed=(),
            gang_min=None,
            fabric=Fabric(),
            affinity=tuple(line for line in claim.affinity if not line.over_gang),
            hold=None,
            nominated=(),
        )
        devices = self.snapshot.inventory[node]
        small = Snapshot(
            pools={self.pool.name: self._bare},
            nodes={node: self.snapshot.nodes[node]},
            inventory={node: devices},
            claims=(single,),
            holds={device.id: _OTHERS for device in devices if device.id not in ids},
            shares=self.snapshot.shares,
            modes=self.snapshot.modes,
        )
        answer = plan(small, self.now, self._single).claims.get(claim.uid)
        return answer.placements[0].devices if answer is not None and answer.placements else None

    # Proof

    def prove(self, spots: Spots, *, parts: bool = False) -> tuple[Placement, ...] | None:
        """Where the target's replicas go once others are at `spots`; None unless plan() agrees with each of these
        places and then places the target, with everybody asking who asks. With `parts` it is plan() that chose the
        places, beside each other; then nobody may have taken from another what he has.
        """
        for key, (node, devices) in () if parts else spots.items():
            if not self._agrees(key, node, devices, spots):
                return None
        moved = {uid: self._changed(self.claims[uid], spots, (), asking=True) for uid, _ in spots}
        # Of a claim that gets replicas by this very decision only what it has already is placed.
        new = {
            (uid, each.index) for uid, answer in self.made.claims.items() for each in answer.placements if uid in moved
        }
        claims = tuple(
            replace(claim, placed=tuple(each for each in moved[claim.uid].placed if (claim.uid, each.index) not in new))
            if claim.uid in moved
            else claim
            for claim in self.snapshot.claims
        )
        made = plan(replace(self.snapshot, claims=claims), self.now, self.memo).claims
        answer = made.get(self.target.uid)
        if any(uid in made and made[uid].conflicts for uid in moved):
            return None
        if answer is None or not self.satisfied(answer.placements, bool(answer.reasons)):
            return None
        return answer.placements

    def satisfied(self, placements: Sequence[Placement], waits: bool) -> bool:
        """Whether all replicas of the target have a place; of a gang, as many as it needs."""
        if self.target.gang_min is None:
            return not waits
        present = {replica.index for replica in self.target.placed} | {each.index for each in placements}
        return bool(placements) and len(present) >= self.target.gang_min

    def _agrees(self, key: Key, node: str, devices: Sequence[PlacedDevice], spots: Spots) -> bool:
        """Whether plan() gives the replica this place when nothing else is free: on its node, beside its siblings."""
        claim = next(each for each in self.arranged(spots, [key], [key[0]]).claims if each.uid == key[0])
        ids = {device.id for device in devices}
        where = {node, *(each.node for each in claim.placed if each.node in self.snapshot.inventory)}
        inventory = {name: self.snapshot.inventory[name] for name in sorted(where, key=natural_key)}
        mine = {device.id for each in claim.placed for device in each.devices}
        here = [device.id for group in inventory.values() for device in group]
        small = Snapshot(
            pools={self.pool.name: self._bare},
            nodes={name: self.snapshot.nodes[name] for name in inventory},
            inventory=inventory,
            # Who is there too counts with what it needs of the node beside devices.
            claims=(claim, *(each for each in self._beside(spots, where) if each.uid != claim.uid)),
            holds={device: _OTHERS for device in here if device not in ids and device not in mine},
            shares=self.snapshot.shares,
            modes=self.snapshot.modes,
        )
        answer = plan(small, self.now, self._small).claims.get(key[0])
        return answer is not None and any(
            each.index == key[1] and each.node == node and {device.id for device in each.devices} == ids
            for each in answer.placements
        )

    def _beside(self, spots: Spots, where: Collection[str]) -> Iterator[Claim]:
        """Claims that have a replica on one of these nodes, with these replicas alone and without devices."""
        for claim in self.arranged(spots, (), ()).claims:
            placed = tuple(replace(each, devices=()) for each in claim.placed if each.node in where)
            if placed and claim.pool == self.pool.name:
                yield replace(claim, placed=placed, hold=claim.hold or PASSED_OVER)


def divides(claim: Claim) -> bool:
    """Whether some way of serving it takes parts of devices."""
    return any(
        request.share is not None or any(way.share is not None for way in request.first_of)
        for request in claim.requests
    )


def alike(had: Sequence[PlacedDevice], gets: Sequence[PlacedDevice]) -> bool:
    """Whether a replica that moves gets for each request what it had: as many devices, and parts as large."""
    return Counter(map(_kind, had)) == Counter(map(_kind, gets))


def _kind(device: PlacedDevice) -> tuple[str, PlacedShare | None]:
    share = device.share
    return device.request, None if share is None else replace(share, start=None, vf=None)


def _is_part(device: PlacedDevice) -> bool:
    return device.share is not None


def least(claim: Claim) -> Mapping[str, int]:
    """By device name the fewest devices that a replica has."""
    needed: dict[str, int] = {}
    for request in claim.requests:
        fewest = min(max(1, way.count) for way in request.first_of or (request,))
        needed[request.kind] = needed.get(request.kind, 0) + fewest
    return needed
