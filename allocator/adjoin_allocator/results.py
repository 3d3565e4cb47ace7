"""What comes out of a decision: placements, reasons and counts, as values.

A `Plan` holds changes and waiting claims only; what already has its devices and keeps them is not repeated. Not
fitting is a normal
value (a `Reason`), never an exception.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from adjoin_allocator.model import ClaimUID, Nomination, PlacedDevice


class Code(StrEnum):
    """The fixed vocabulary of reasons, as they stand in `status.reasons[].code`."""

    INSUFFICIENT_DEVICES = "InsufficientDevices"
    FRAGMENTED = "Fragmented"
    TOPOLOGY_UNSATISFIED = "TopologyUnsatisfied"
    TOPOLOGY_UNKNOWN = "TopologyUnknown"
    ATTRIBUTE_MISSING = "AttributeMissing"
    SELECTOR_UNMATCHED = "SelectorUnmatched"
    UNHEALTHY = "Unhealthy"
    QUARANTINED = "Quarantined"
    DEVICE_RELEASING = "DeviceReleasing"
    QUOTA_EXCEEDED = "QuotaExceeded"
    HOST_RESOURCES = "HostResources"
    NODE_UNAVAILABLE = "NodeUnavailable"
    DRIVER_UNAVAILABLE = "DriverUnavailable"
    GANG_INCOMPLETE = "GangIncomplete"
    SHARE_UNAVAILABLE = "ShareUnavailable"
    ISOLATION_UNAVAILABLE = "IsolationUnavailable"
    NOT_ALLOWED = "NotAllowed"
    IDENTITY_UNKNOWN = "IdentityUnknown"
    SUSPENDED = "Suspended"
    HELD_FOR_OTHER = "HeldForOther"
    POOL_NOT_FOUND = "PoolNotFound"
    INVALID_CLAIM = "InvalidClaim"
    POD_GATED = "PodGated"
    SEARCH_LIMIT = "SearchLimit"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is missing: a code, the number of nodes it speaks of, and a sentence with numbers."""

    code: Code
    nodes: int
    message: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices chosen for one replica that had none.

    Attributes:
        index: Replica index.
        node: Where.
        devices: In the order of the claim's requests, then stable device order.
        locality: For each pair of requests (`gpu-nic`) and each request of several devices (`gpu-gpu`) the farthest
        level among
            the pairs that count, in the words of `nvidia-smi topo` (NVLink, PIX, PXB, PHB, NODE, SYS).
    """

    index: int
    node: str
    devices: tuple[PlacedDevice, ...]
    locality: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """What a decision says about one claim that was not complete before.

    Attributes:
        placements: New replicas, by index.
        gap: Proven distance of the claim's distance sum from the best possible on free devices (0.0 is optimal);
        None while a replica waits.
        reasons: Why replicas are still missing, the most actionable first; empty when none is.
        nearest: The smallest change that would make it fit, or None when there is none or nothing is missing.
        conflicts: Indexes of replicas whose status names a device of an older claim. They are planned anew: a
            placement with the same index takes their place; what else they name stays taken until their status no
            longer does.
        nominated: What is held for replicas that wait until others have given it back.
    """

    uid: ClaimUID
    placements: tuple[Placement, ...] = ()
    gap: float | None = None
    reasons: tuple[Reason, ...] = ()
    nearest: str | None = None
    conflicts: tuple[int, ...] = ()
    nominated: tuple[Nomination, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Physical devices of one name in one pool after the decision. Always capacity = the sum of the six others, all
    ≥ 0."""

    capacity: int = 0
    free: int = 0
    allocated: int = 0
    reserved: int = 0
    releasing: int = 0
    unhealthy: int = 0
    missing: int = 0


class Counts(Mapping[str, DeviceCounts]):
    """Counts by device name, made when they are looked at."""

    __slots__ = ("_made", "_numbers")

    def __init__(self, numbers: Mapping[str, tuple[int, ...]]) -> None:
        """`numbers`: by device name the fields of its `DeviceCounts`, in their order."""
        self._numbers = numbers
        self._made: dict[str, DeviceCounts] = {}

    def __getitem__(self, name: str) -> DeviceCounts:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = DeviceCounts(*self._numbers[name])
        return made

    def reserving(self, numbers: Mapping[str, int]) -> Counts:
        """With so many free devices by name counted as reserved."""
        if not numbers:
            return self
        free, reserved = (DeviceCounts.__match_args__.index(name) for name in ("free", "reserved"))
        changed = {name: list(counts) for name, counts in self._numbers.items()}
        for name, number in numbers.items():
            changed[name][free] -= number
            changed[name][reserved] += number
        return Counts({name: tuple(counts) for name, counts in changed.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A topology matrix that is not used on a node, and why."""

    node: str
    source: str
    message: str


@dataclass(frozen=True, slots=True)
class Preempted:
    """Replicas of a claim that must go so that another claim can have their devices."""

    uid: ClaimUID
    replicas: tuple[int, ...]
    by: ClaimUID


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A pool after the decision.

    Attributes:
        counts: By device name.
        mismatches: The matrices that did not fit.
        gap: Proven distance of the batch from the best possible; 0.0 is optimal.
        usage: By tenant and device name what its claims hold, in thousandths of a device.
    """

    name: str
    counts: Mapping[str, DeviceCounts]
    mismatches: tuple[Mismatch, ...] = ()
    gap: float = 0.0
    usage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stats:
    """Work done for a decision, in steps rather than seconds, so that a test can bound it."""

    claims: int = 0
    states: int = 0
    """Search states visited."""
    shapes: int = 0
    """Distinct node shapes seen."""
    struck: bool = False
    """The optimiser's wall limit ended it before its work was spent: the plan may differ from one made elsewhere."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of `plan()`: by claim UID what changes or waits, by name every pool."""

    claims: Mapping[ClaimUID, ClaimPlan]
    pools: Mapping[str, PoolPlan]
    preempted: tuple[Preempted, ...] = ()
    stats: Stats = field(default_factory=Stats)
