"""Words that have a fixed set of values, as they stand in the API and in status.

Nothing here knows what the words are applied to.
"""

from __future__ import annotations

from enum import StrEnum


class DeviceType(StrEnum):
    """The role of a device name in its DevicePool; it decides which default distances count."""

    GPU = "GPU"
    RDMA = "RDMA"
    OTHER = "Other"


class Standing(StrEnum):
    """Whether a device can be given to anybody now, apart from who holds it."""

    OFFERED = "Offered"
    UNHEALTHY = "Unhealthy"
    """A taint that no health rule excuses is on it."""
    QUARANTINED = "Quarantined"
    """Nobody gets it until something has happened to it: it could not be prepared or cleaned, or a rule says so."""
    MISSING = "Missing"
    """Held by a claim or known from one, but not in today's inventory."""
    WITHHELD = "Withheld"
    """In the inventory, but its ResourceSlice generation is incomplete: nothing new may be placed on it."""
    UNGUARDED = "Unguarded"
    """In the inventory, but the taint rule that keeps kube-scheduler off it is not seen in place yet."""


class Scope(StrEnum):
    """How near two devices sit, nearest first."""

    NVLINK = "NVLink"
    PCIE_SWITCH = "PCIeSwitch"
    PCIE_ROOT = "PCIeRoot"
    NUMA_NODE = "NUMANode"
    NODE = "Node"

    @property
    def rank(self) -> int:
        """0 (NVLink) to 4 (Node); the number that sums of distances are made of."""
        return _RANKS[self]


_RANKS = {scope: rank for rank, scope in enumerate(Scope)}

SCOPES = tuple(Scope)


class Profile(StrEnum):
    """What a claim favours among places that fit."""

    COMPUTE = "Compute"
    IO = "IO"
    LATENCY = "Latency"
    BALANCED = "Balanced"


class Strategy(StrEnum):
    """Where a pool puts claims among places that are equally near."""

    LEAST_FRAGMENTATION = "LeastFragmentation"
    PACK = "Pack"
    SPREAD = "Spread"


class Objective(StrEnum):
    """What a batch maximises: the order of service, or the number of devices placed among equal priorities."""

    IN_ORDER = "InOrder"
    THROUGHPUT = "Throughput"


class Reclaim(StrEnum):
    """From whom a tenant within its quota may take back: nobody, lower base priorities, anybody above its quota."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"


class ShareMode(StrEnum):
    """How a device is split."""

    TIME_SLICED = "TimeSliced"
    FRACTIONAL = "Fractional"
    MPS = "MPS"
    PARTITIONED = "Partitioned"
    VIRTUAL_FUNCTIONS = "VirtualFunctions"


class Isolation(StrEnum):
    """How well a part is kept from its neighbours, the least first."""

    NONE = "None"
    COOPERATIVE = "Cooperative"
    HARD = "Hard"


class Policy(StrEnum):
    """What an affinity line demands. A line with a scope has the first two, one with an attribute the last two."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"
    MATCH = "Match"
    DISTINCT = "Distinct"


class DeviceState(StrEnum):
    """As what a device counts: the first that applies, in the order in which they stand here."""

    MISSING = "missing"
    RELEASING = "releasing"
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    UNHEALTHY = "unhealthy"
    FREE = "free"


class ReplicaState(StrEnum):
    """Where one replica is in its life; written to status as it stands."""

    ALLOCATED = "Allocated"
    INITIALIZING = "Initializing"
    READY = "Ready"
    IN_USE = "InUse"
    RELEASING = "Releasing"
    FAILED = "Failed"


class HoldKind(StrEnum):
    """How a device that no living DeviceClaim holds is nevertheless taken."""

    FOREIGN = "Foreign"
    """Allocated to a ResourceClaim that is not ours."""
    RELEASING = "Releasing"
    """In an allocated ResourceClaim of ours whose DeviceClaim is gone, or otherwise on its way back."""
