"""What exists and what is asked: the allocator's nouns, as frozen values.

Everything here is plain data made by a caller (the operator's snapshot module, the command line, a test): integers,
strings, tuples and
read-only mappings. Nothing here knows Kubernetes, reads a clock or changes after it was made. Mappings are shared
between snapshots and
must never be mutated.

Identity is stable hardware or object identity, never a position: a device is its (driver, pool, device) triple and
carries the hardware id
that survives renaming; a claim is its UID.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, NewType

from adjoin_allocator.cel import AttributeValue, Quantity, Selector

ClaimUID = NewType("ClaimUID", str)

_DIGITS = re.compile(r"([0-9]+)")
_LONGEST_NUMBER = 4000


def _number(digits: str) -> int:
    """Their value; beyond what Python reads (no name that the API server takes is so long), their first digits'."""
    return int(digits[:_LONGEST_NUMBER])


def natural_key(text: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key of the natural order of names: digits compare as numbers, so `nic-10` comes after `nic-9`.

    The text itself comes last, so that names which differ only in leading zeros are still in one fixed order.
    """
    parts = _DIGITS.split(text)
    return tuple(_number(part) if index % 2 else part for index, part in enumerate(parts)), text


class DeviceID(NamedTuple):
    """A device as Kubernetes names it: the triple that a ResourceClaim's allocation carries."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


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


class Policy(StrEnum):
    """What an affinity line demands. A line with a scope has the first two, one with an attribute the last two."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"
    MATCH = "Match"
    DISTINCT = "Distinct"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node or a device. `effect` is Kubernetes' word: NoSchedule, PreferNoSchedule, NoExecute or None."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A node toleration with Kubernetes' meaning: empty key with Exists tolerates everything, empty effect every
    effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration covers `taint`."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == taint.key
        return self.key == taint.key and self.value == taint.value


@dataclass(frozen=True, slots=True)
class Node:
    """A node as far as placing depends on it.

    Attributes:
        name: The Node's name, also what `Device.node` holds.
        labels: The Node's labels.
        ready: Its Ready condition is True. A node made up for an inventory without Node objects is ready.
        unschedulable: It is cordoned.
        taints: Its taints.
        exists: False when devices name a node for which there is no Node object.
        deleting: Its object is being deleted.
    """

    name: str
    labels: Mapping[str, str]
    ready: bool = True
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    exists: bool = True
    deleting: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One device of one DevicePool on one node. Satisfies the evaluator's `DeviceView`.

    Attributes:
        id: The triple of driver, DRA pool and device name.
        node: The node it sits in.
        device_pool: The DevicePool it belongs to (exactly one).
        kind: The name that claims ask for (`DevicePool.spec.devices[].name`).
        type: The role of that name.
        hardware_id: uuid, else PCI address, else `<node>/<name>`.
        attributes: Values by fully qualified name (`domain/name`).
        capacity: Quantities by fully qualified name.
        performance: From the first class that matches, else 0.
        priority: From the first class that matches, else 0.
        standing: Whether it can be given out now.
        standing_detail: For a standing other than Offered, why, in words for a message (`taint gpu.nvidia.com/xid=31`).
        allow_multiple_allocations: As the driver publishes it.
    """

    id: DeviceID
    node: str
    device_pool: str
    kind: str
    type: DeviceType
    hardware_id: str
    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, Quantity]
    performance: int = 0
    priority: int = 0
    standing: Standing = Standing.OFFERED
    standing_detail: str = ""
    allow_multiple_allocations: bool = False

    @property
    def driver(self) -> str:
        """The driver that published it."""
        return self.id.driver


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A name that claims may ask for in a pool, with its role."""

    name: str
    type: DeviceType


@dataclass(frozen=True, slots=True)
class MatrixText:
    """The text of `nvidia-smi topo -m` for a set of nodes, with where it came from.

    Attributes:
        source: For messages, `<configmap>/<key>`.
        text: The matrix as pasted; empty when the ConfigMap or key is absent.
        gpu_ids: One PCI address or uuid a GPU row, when the ConfigMap has `<key>.gpus`; else empty.
    """

    source: str
    text: str
    gpu_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A DevicePool as far as placing depends on it.

    Attributes:
        name: The DevicePool's name.
        devices: The names that claims may ask for, in the pool's order.
        aliases: Names of facts (`pcieRoot`, `numaNode`, …) to the attribute keys they are read from; the first
        present key wins.
        matrices: For nodes that have one, the matrix that counts there.
        tolerations: Node taints that the pool's pods are expected to tolerate.
        withheld: One message per driver pool whose ResourceSlice generation is incomplete (`gpu.nvidia.com/node-a: 1
        of 2 slices`).
        unavailable: When set, nothing new is placed in this pool at all, and this is why.
    """

    name: str
    devices: tuple[DeviceName, ...]
    aliases: Mapping[str, tuple[str, ...]]
    matrices: Mapping[str, MatrixText]
    tolerations: tuple[Toleration, ...] = ()
    withheld: tuple[str, ...] = ()
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a claim: `count` devices of one name, or all that match on the node.

    `all_devices` is never satisfied by zero devices, and then `count` is 0.
    """

    name: str
    kind: str
    count: int = 1
    all_devices: bool = False
    selectors: tuple[Selector, ...] = ()


@dataclass(frozen=True, slots=True)
class Affinity:
    """One line of a claim's affinity: either a scope or an attribute, over the devices of one or several requests of
    a replica."""

    requests: tuple[str, ...]
    policy: Policy
    scope: Scope | None = None
    attribute: str = ""


class ReplicaState(StrEnum):
    """Where one replica is in its life; written to status as it stands."""

    ALLOCATED = "Allocated"
    INITIALIZING = "Initializing"
    READY = "Ready"
    IN_USE = "InUse"
    RELEASING = "Releasing"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """A device that a replica holds, under the request it was given for."""

    request: str
    id: DeviceID
    hardware_id: str = ""


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A replica that has its devices. They are held until the replica leaves the claim's status, whatever its state."""

    index: int
    node: str
    state: ReplicaState
    devices: tuple[PlacedDevice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A DeviceClaim: what is asked and what it already has.

    Attributes:
        uid: Object UID; offline input without one gets a unique made-up value and `has_uid` False.
        created: Seconds since the epoch, or None where the input has none (counts as now).
        pool: Name of the pool it asks, existing or not; empty when none was named and there is no default.
        replicas: Wanted members.
        placed: Members that hold devices, also those that are releasing.
        deleting: It has a deletionTimestamp: it keeps what it holds and gets nothing.
        hold: When set, the claim is not planned and this is the reason (a foreign scheduling gate, a broken spec, …).
    """

    uid: ClaimUID
    namespace: str
    name: str
    created: float | None
    pool: str
    requests: tuple[Request, ...]
    affinity: tuple[Affinity, ...] = ()
    replicas: int = 1
    priority: int = 0
    placed: tuple[PlacedReplica, ...] = ()
    deleting: bool = False
    has_uid: bool = True
    hold: ClaimHold | None = None


@dataclass(frozen=True, slots=True)
class ClaimHold:
    """Why a claim may not be planned now: a reason code (see `results.Code`) and its message."""

    code: str
    message: str


class HoldKind(StrEnum):
    """How a device that no living DeviceClaim holds is nevertheless taken."""

    FOREIGN = "Foreign"
    """Allocated to a ResourceClaim that is not ours."""
    RELEASING = "Releasing"
    """In an allocated ResourceClaim of ours whose DeviceClaim is gone, or otherwise on its way back."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Who holds a device outside the claims of the snapshot, in words for a message (`ResourceClaim ns/name`)."""

    kind: HoldKind
    holder: str
