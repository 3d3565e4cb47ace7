"""What one decision works on, and what it gathers.

A `Scene` is the same for everything that is decided at one instant; `Work` collects intents and the times at which to
look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from zlib import crc32

from adjoin.api.share import Prepare
from adjoin.cache import View
from adjoin.decision.regain import Regained
from adjoin.decision.turns import Turns
from adjoin.facts import ClaimFacts, PoolFacts
from adjoin.intents import Intent, Step
from adjoin.inventory import Inventory, device_key, grace_of
from adjoin.lifecycle import Indexes, Relations, wanted_replicas
from adjoin.modes import NO_MODES, Modes
from adjoin.status import Evicted
from adjoin_allocator.model import DeviceID, PlacedDevice
from adjoin_allocator.results import Plan
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import HoldKind

ORDER_GUARD, ORDER_RELEASE, ORDER_PLACE, ORDER_SHOW, ORDER_TELL = range(5)
_NOBODYS = DeviceID("", "", "")
_WINDOW = 0.25
"""The part of such a period in which the write may happen."""


def turn(uid: str, period: float, now: float) -> tuple[bool, float]:
    """Whether it is this object's turn to have mere numbers written, and when its next turn is.

    Turns are spread over the period by UID, so that a change that touches a thousand waiting claims is not a thousand
    writes at once. They depend on nothing but UID and time.
    """
    shift = crc32(uid.encode()) % int(period) if period > 1 else 0
    position = (now - shift) % period
    return position < period * _WINDOW, now + period - position


@dataclass(slots=True)
class Work:
    """Intents and wake-up times gathered while one decision is made.

    `withheld` is set when something was wanted of a busy subject: it will be wanted again when nothing but that has
    changed.
    """

    busy: frozenset[str]
    intents: list[Intent] = field(default_factory=list)
    withheld: bool = False
    wakes: list[float] = field(default_factory=list)

    def want(
        self,
        subject: str,
        why: str,
        steps: Iterable[Step],
        order: int,
        assume: Mapping[str, object] | None = None,
        corrections: Iterable[tuple[str, str]] = (),
        opens: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        found = tuple(steps)
        if found and subject in self.busy:
            self.withheld = True
        elif found:
            words = order >= ORDER_SHOW
            self.intents.append(Intent(subject, why, found, assume, order, words, tuple(corrections), opens))

    def wake(self, at: float | None) -> None:
        if at is not None:
            self.wakes.append(at)

    def take(self, other: Work) -> None:
        self.intents += other.intents
        self.wakes += other.wakes


@dataclass(frozen=True, slots=True)
class Held:
    """A device, or a part of one, that a replica has.

    Attributes:
        uid: UID of the claim.
        claim: Its namespace and name.
        index: The replica.
        node: Its node.
        placed: The device under today's name.
    """

    uid: str
    claim: str
    index: int
    node: str
    placed: PlacedDevice

    @property
    def share(self) -> str:
        """Name of the DeviceShare that a part is out of, "" for a whole device."""
        return self.placed.share.name if self.placed.share is not None else ""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What is the same for all claims of one decision. `fragmentation` is by pool and device name, `evicted` by UID
    of the claim that has to give something, `abandoned` by UID of the claim whose replicas are on nodes that are given
    up, `locked` by UID of the DevicePool whose status has the devices in quarantine, `followed` by UID of the claim
    whose pods say which replicas it wants, `regained` by UID of the claim whose status lost replicas (the view names
    them), `modes` the devices that shares' statuses have in a mode, `turns` who has hooks at work on cards that are
    divided."""

    view: View
    inventory: Inventory
    plan: Plan
    fragmentation: Mapping[str, Mapping[str, float]]
    relations: Relations
    lost: Mapping[str, Mapping[int, str]]
    boot_ids: Mapping[str, str]
    now: float
    evicted: Mapping[str, Evicted]
    snapshot: Snapshot
    abandoned: Mapping[str, frozenset[int]] = field(default_factory=dict)
    locked: Mapping[str, frozenset[str]] = field(default_factory=dict)
    followed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    regained: Mapping[str, Regained] = field(default_factory=dict)
    modes: Modes = NO_MODES
    turns: Turns = field(default_factory=Turns)
    _holders: dict[DeviceID, str] = field(default_factory=dict)
    _users: dict[DeviceID, list[Held]] = field(default_factory=dict)
    _parts: dict[str, dict[DeviceID, list[Held]]] = field(default_factory=dict)

    def holder(self, device: DeviceID) -> ClaimFacts | None:
        """The claim that has the device, by today's name. The first call costs a look at all that is placed."""
        if not self._holders:
            self._holders.update(
                (each.id, claim.uid)
                for claim in self.snapshot.claims
                for replica in claim.placed
                for each in replica.devices
            )
            self._holders.setdefault(_NOBODYS, "")
        return self.view.claims.get(self._holders.get(device, ""))

    @property
    def promised(self) -> frozenset[DeviceID]:
        """Devices that this decision gives to somebody or keeps for somebody. O(plan)."""
        plans = self.plan.claims.values()
        planned = {device.id for plan in plans for placement in plan.placements for device in placement.devices}
        return frozenset(planned | {device.id for plan in plans for each in plan.nominated for device in each.devices})

    def entering(self, pool: str, kind: str, besides: str = "") -> bool:
        """Whether the status of a share that prepares devices of that name by itself is being written: which devices it
        enters is not known before that has ended."""
        busy = (
            share for uid, share in self.view.shares.items() if uid in self.view.busy and share.meta.name != besides
        )
        return any(
            share.share.spec.prepare is Prepare.EAGER
            and share.share.spec.pool_ref.name == pool
            and share.share.spec.device == kind
            for share in busy
        )

    def users(self, device: DeviceID) -> Sequence[Held]:
        """Claims that have the device or parts of it, by today's name, older claims first."""
        return self._all_users().get(device, ())

    def users_of(self, share: str) -> Mapping[DeviceID, Sequence[Held]]:
        """Devices of which somebody has a part out of the share, with those who have."""
        self._all_users()
        return self._parts.get(share, {})

    def _all_users(self) -> Mapping[DeviceID, list[Held]]:
        """The first call costs a look at all that is placed."""
        if not self._users:
            for claim in sorted(self.snapshot.claims, key=lambda each: (each.created or 0.0, each.uid)):
                for replica in claim.placed:
                    for placed in replica.devices:
                        held = Held(claim.uid, f"{claim.namespace}/{claim.name}", replica.index, replica.node, placed)
                        self._users.setdefault(placed.id, []).append(held)
                        if held.share:
                            self._parts.setdefault(held.share, {}).setdefault(placed.id, []).append(held)
            self._users.setdefault(_NOBODYS, [])
        return self._users

    def others(self, uid: str) -> frozenset[DeviceID]:
        """Devices that somebody else than the claim of that UID has. O(placed devices)."""
        return frozenset(
            device.id
            for claim in self.snapshot.claims
            if claim.uid != uid
            for replica in claim.placed
            for device in replica.devices
        ) | {id_ for id_, hold in self.snapshot.holds.items() if hold.kind is HoldKind.FOREIGN}

    def hushed(self, pool: PoolFacts | None) -> Mapping[tuple[str, str], float]:
        """Drivers of the pool that are silent, but not for longer than its grace: until when that may last."""
        silent = self.inventory.silences.get(pool.meta.name, ()) if pool is not None else ()
        if pool is None or not silent:
            return {}
        grace = grace_of(pool)
        ends = {each.key: (self.now if each.since is None else each.since) + grace for each in silent}
        return {key: end for key, end in ends.items() if end > self.now}

    def wanted(self, claim: ClaimFacts) -> Indexes:
        """The replicas that a claim wants now."""
        return wanted_replicas(claim, self.followed)

    def quarantined(self, pool: PoolFacts | None, placed: PlacedDevice) -> bool:
        """Whether the pool's status says already that nobody gets the device."""
        return pool is None or device_key(placed.hardware_id, placed.id) in self.locked.get(pool.meta.uid, ())
