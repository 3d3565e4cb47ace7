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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

from adjoin_allocator.cel import AttributeValue, Quantity, Selector
from adjoin_allocator.geometry import Entry
from adjoin_allocator.terms import (
    DeviceType,
    HoldKind,
    Isolation,
    Objective,
    Policy,
    Profile,
    Reclaim,
    ReplicaState,
    Scope,
    ShareMode,
    Standing,
    Strategy,
)

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
        cpu_milli: Allocatable CPU in thousandths of a core; None where nothing is known, which is no limit.
        memory_bytes: Allocatable memory, likewise.
        cpu_used_milli: What bound pods that have not ended request of it.
        memory_used_bytes: Likewise.
        cpu_load_milli: What everything on it really uses, as measured; None where nobody measures.
        memory_load_bytes: Likewise.
    """

    name: str
    labels: Mapping[str, str]
    ready: bool = True
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    exists: bool = True
    deleting: bool = False
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    cpu_used_milli: int = 0
    memory_used_bytes: int = 0
    cpu_load_milli: int | None = None
    memory_load_bytes: int | None = None


Counted = Mapping[str, Mapping[str, Quantity]]
"""Amounts by counter set and counter."""


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """In which amounts a capacity may be consumed (`requestPolicy` of a capacity, KEP-5075); whole numbers.

    Either `values` or the range counts, which Kubernetes sees to; without both every amount will do.

    Attributes:
        default: What is consumed where nothing is asked for; None: all of it.
        values: The amounts that there are, ascending; what is asked for is rounded up to the next of them.
        least: The least amount of a range, or None.
        most: The greatest, or None.
        step: Amounts are `least` and whole steps above it; None: any.
    """

    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None


class Lent(NamedTuple):
    """What others consume of a device that may be in several allocations, and what that leaves.

    Attributes:
        memory: Bytes of its memory that they consume.
        parts: How many allocations more its other capacities have room for; None: any number.
    """

    memory: int
    parts: int | None = None


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
        policies: In which amounts its capacities may be consumed where it may be in several allocations, by fully
            qualified name; any amount will do of one that has none.
        spelled: Capacities that the driver publishes with its own domain in the name; Kubernetes counts what is
            consumed by the name as it is published.
        consumes: What it takes of the driver's counters while somebody has it, by counter set and counter.
        counters: What those counter sets hold in all, likewise; a set that is not in it holds as much as the greatest
            of its devices takes.
        outside: What is taken of them by holders of devices that are not in the inventory.
        lent: What allocations that are not ours consume of it, where it may be in ours beside them; None where it may
            not, or is in none.
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
    policies: Mapping[str, RequestPolicy] = field(default_factory=dict)
    spelled: tuple[str, ...] = ()
    consumes: Counted = field(default_factory=dict)
    counters: Counted = field(default_factory=dict)
    outside: Counted = field(default_factory=dict)
    lent: Lent | None = None

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
    """The text that tells the wiring of a set of nodes (`formats` says of which kinds), with where it came from.

    Attributes:
        source: For messages, `<configmap>/<key>`.
        text: The text as pasted; empty when the ConfigMap or key is absent.
        gpu_ids: One PCI address or uuid a GPU row, when the ConfigMap has `<key>.gpus`; else empty.
    """

    source: str
    text: str
    gpu_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FabricLevel:
    """A level of the network: nodes with equal values of a label are in one domain. Nodes without it are in none."""

    name: str
    node_label: str


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who shares a quota.

    Attributes:
        quota: Devices by device name; an absent name is unlimited, 0 is none.
        borrowing: Devices above the quota, taken only from what others' quotas leave unused; absent is 0.
        weight: Its share of the pool, relative to other tenants.
    """

    name: str
    quota: Mapping[str, int]
    borrowing: Mapping[str, int]
    weight: int = 1


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """Who may take devices from whom.

    Attributes:
        within_tenant: Claims of lower base priority of the same tenant may be evicted.
        reclaim: Whether, and of which priority, claims of tenants above their quota may be evicted.
        min_runtime: Seconds after which a replica may be evicted at the earliest.
    """

    within_tenant: bool = False
    reclaim: Reclaim = Reclaim.NEVER
    min_runtime: float = 0.0


@dataclass(frozen=True, slots=True)
class Aging:
    """Waiting raises the priority: by `step` each `every` seconds, at most by `max`."""

    every: float
    step: int = 1
    max: int = 100


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """A DeviceShare as far as placing depends on it.

    Attributes:
        name: The DeviceShare's name.
        uid: Its UID.
        created: Seconds since the epoch, or None.
        pool: The DevicePool it splits devices of.
        kind: The device name.
        selectors: Which of these devices; all of them when empty.
        max_devices: How many may be in the mode at once; None: any number.
        mode: How a device is split.
        slots: TimeSliced: slots of each device.
        reserve_per_million: Fractional and MPS: part of a device's memory that nobody gets, in millionths.
        min_reserve_bytes: Least that is kept back.
        max_clients: MPS: most parts of one device; None: as many as fit.
        layout: Partitioned, static: profiles with how many of each every device is cut into.
        profiles: Partitioned, dynamic: profiles that may be made on demand, in the share's order.
        table: Partitioned: where profiles may lie, instead of what is known of the product.
        functions: VirtualFunctions: how many each device has.
        refusal: When set, nothing is given out of it, and this is why.
    """

    name: str
    uid: str
    created: float | None
    pool: str
    kind: str
    mode: ShareMode
    selectors: tuple[Selector, ...] = ()
    max_devices: int | None = None
    slots: int = 0
    reserve_per_million: int = 30_000
    min_reserve_bytes: int = 256 << 20
    max_clients: int | None = None
    layout: Mapping[str, int] = field(default_factory=dict)
    profiles: tuple[str, ...] = ()
    table: tuple[Entry, ...] = ()
    functions: int = 0
    refusal: str = ""


class Slice(NamedTuple):
    """A partition that exists on a device: its profile, its first memory slice and how many it takes."""

    profile: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Mode:
    """What a device that is not whole has been made into, as the shares' statuses record it.

    Attributes:
        share: The DeviceShare in whose mode it is.
        until: Until when it serves no other share and is not given whole (seconds since the epoch); None: until
            somebody needs it.
        slots: Partitions that exist on it.
        changing: Hooks are about to bring it into the mode, or back.
    """

    share: str
    until: float | None = None
    slots: tuple[Slice, ...] = ()
    changing: bool = False


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
        withheld_kinds: For these messages the names of the devices that may be among what is not there; of one that is
        not listed that may be any.
        unavailable: When set, nothing new is placed in this pool at all, and this is why.
        fabric: Levels of the network, coarse to fine.
        strategy: Where claims go among places that are equally near.
        objective: What a batch maximises.
        optimise_milliseconds: Work that the optimiser may spend on one batch: 1,000 are one unit of deterministic work.
        hold_after: Seconds after which a blocked gang has capacity held for it; None: never.
        tenants: By name; empty: one tenant without quota.
        preemption: Who may take devices from whom.
        aging: How waiting raises the priority; None: not at all.
    """

    name: str
    devices: tuple[DeviceName, ...]
    aliases: Mapping[str, tuple[str, ...]]
    matrices: Mapping[str, MatrixText]
    tolerations: tuple[Toleration, ...] = ()
    withheld: tuple[str, ...] = ()
    withheld_kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unavailable: str = ""
    fabric: tuple[FabricLevel, ...] = ()
    strategy: Strategy = Strategy.LEAST_FRAGMENTATION
    objective: Objective = Objective.IN_ORDER
    optimise_milliseconds: int = 300
    hold_after: float | None = None
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    preemption: PreemptionRules = PreemptionRules()
    aging: Aging | None = None


@dataclass(frozen=True, slots=True)
class ShareAsk:
    """A part of each device, from a DeviceShare.

    Attributes:
        name: The DeviceShare.
        slots: TimeSliced: slots of one device; None: one.
        memory_bytes: Fractional and MPS: device memory; None: not limited.
        compute_milli: Fractional and MPS: thousandths of the card's compute; None: not limited.
        profile: Partitioned: name of the partition profile.
    """

    name: str
    slots: int | None = None
    memory_bytes: int | None = None
    compute_milli: int | None = None
    profile: str = ""

    @property
    def placed(self) -> PlacedShare:
        """What is held of a device when such a part of it is given; which partition, or function, is open."""
        return PlacedShare(self.name, self.slots, self.memory_bytes, self.compute_milli, self.profile or None)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way of serving a request; fields mean what they mean in `Request`."""

    name: str
    count: int = 1
    all_devices: bool = False
    selectors: tuple[Selector, ...] = ()
    share: ShareAsk | None = None
    same_device: bool = False
    isolation: Isolation = Isolation.NONE


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a claim: `count` devices of one name, or all that match on the node.

    `all_devices` is never satisfied by zero devices, and then `count` is 0.

    Attributes:
        share: A part of each device instead of the whole.
        same_device: All parts of the request come from one device; else each from a device of its own.
        isolation: The least isolation that parts must have.
        first_of: Ways of serving it in order of preference; what they name then stands for count, selectors and share.
    """

    name: str
    kind: str
    count: int = 1
    all_devices: bool = False
    selectors: tuple[Selector, ...] = ()
    share: ShareAsk | None = None
    same_device: bool = False
    isolation: Isolation = Isolation.NONE
    first_of: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Affinity:
    """One line of a claim's affinity: either a scope or an attribute, over the devices of one or several requests of
    a replica; an attribute also over those of all replicas (`over_gang`)."""

    requests: tuple[str, ...]
    policy: Policy
    scope: Scope | None = None
    attribute: str = ""
    over_gang: bool = False


@dataclass(frozen=True, slots=True)
class PlacedShare:
    """The part of a device that is held; quantities as in `ShareAsk`, None where the mode has none.

    Attributes:
        profile: Partitioned: the partition's profile.
        start: Its first memory slice; None while that is open.
        vf: VirtualFunctions: which function; None while that is open.
    """

    name: str
    slots: int | None = None
    memory_bytes: int | None = None
    compute_milli: int | None = None
    profile: str | None = None
    start: int | None = None
    vf: int | None = None


class CounterUse(NamedTuple):
    """How much is taken of one counter."""

    counter: str
    amount: int


class SetUse(NamedTuple):
    """What is taken of a counter set, by counter in order."""

    counter_set: str
    uses: tuple[CounterUse, ...]


Consumed = tuple[SetUse, ...]
"""What is taken of counter sets, these in order."""


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """A device that a replica holds, whole or in part, under the request it was given for (`gpu`, or `gpu/half` for an
    alternative).

    Attributes:
        consumed: What it takes of the driver's counters, as it was when it was given.
    """

    request: str
    id: DeviceID
    hardware_id: str = ""
    share: PlacedShare | None = None
    consumed: Consumed = ()


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A replica that has its devices. They are held until the replica leaves the claim's status, whatever its state.

    Attributes:
        allocated_at: Seconds since the epoch, or None where it is not known.
        ready_at: Likewise; None also before it was ready.
        bound: Its pod is bound to the node: the pod's requests count there instead of the claim's `host`.
        releasing_since: Since when it is on its way back, or None where that is not known or not so.
    """

    index: int
    node: str
    state: ReplicaState
    devices: tuple[PlacedDevice, ...]
    allocated_at: float | None = None
    ready_at: float | None = None
    bound: bool = False
    releasing_since: float | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Every `size` consecutive replicas lie under one domain of the fabric level `level`."""

    size: int
    level: str


@dataclass(frozen=True, slots=True)
class Fabric:
    """Where the replicas of a claim lie in the network; names of the pool's fabric levels, empty for no condition."""

    required: str = ""
    preferred: str = ""
    segment: Segment | None = None


@dataclass(frozen=True, slots=True)
class HostAsk:
    """What a replica's pod needs on the node beside its devices; 0 is nothing."""

    cpu_milli: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Nomination:
    """Devices that are held for a replica until those who have them have given them back."""

    index: int
    node: str
    devices: tuple[PlacedDevice, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A claim was evicted for another one, at this time (seconds since the epoch)."""

    by: ClaimUID
    at: float


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A DeviceClaim: what is asked and what it already has.

    Attributes:
        uid: Object UID; offline input without one gets a unique made-up value and `has_uid` False.
        created: Seconds since the epoch, or None where the input has none (counts as now).
        pool: Name of the pool it asks, existing or not; empty when none was named and there is no default.
        replicas: Wanted members have indexes below this, less those that are skipped.
        placed: Members that hold devices, also those that are releasing.
        deleting: It has a deletionTimestamp: it keeps what it holds and gets nothing.
        hold: When set, the claim is not planned and this is the reason (a foreign scheduling gate, a broken spec, …).
        priority: Base priority.
        tenant: Name of its tenant: one of the pool's, or one of its own that has no quota.
        gang_min: Fewest replicas that are placed together; None: replicas are independent.
        fabric: Where its replicas lie in the network.
        host: What each replica's pod needs beside its devices.
        profile: What it favours among places that fit.
        deadline: When the work must be done, seconds since the epoch.
        preemptible: Whether others may take its devices.
        max_runtime: Seconds after which it gives its devices back.
        nominated: What its status says is held for it.
        evictions: Those of the last ten minutes that its status names.
        skipped: Indexes below `replicas` that are not wanted, in order.
        more_holds: What else keeps it from being planned, beside `hold`.
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
    tenant: str = ""
    gang_min: int | None = None
    fabric: Fabric = Fabric()
    host: HostAsk = HostAsk()
    profile: Profile = Profile.BALANCED
    deadline: float | None = None
    preemptible: bool = True
    max_runtime: float | None = None
    nominated: tuple[Nomination, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    skipped: tuple[int, ...] = ()
    more_holds: tuple[ClaimHold, ...] = ()

    @property
    def members(self) -> Sequence[int]:
        """Indexes of the wanted members, in order."""
        if not self.skipped:
            return range(self.replicas)
        skipped = frozenset(self.skipped)
        return tuple(index for index in range(self.replicas) if index not in skipped)

    @property
    def size(self) -> int:
        """How many members are wanted."""
        return self.replicas if not self.skipped else len(self.members)


@dataclass(frozen=True, slots=True)
class ClaimHold:
    """Why a claim may not be planned now: a reason code (see `results.Code`) and its message."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Who holds a device outside the claims of the snapshot, in words for a message (`ResourceClaim ns/name`).

    Attributes:
        shared: They have a part of a device that may be in several allocations: who has parts of it too keeps them.
        lent: What they consume of such a device, where what is left of it may be given in parts; the same as the
            device's own. None: nothing of it is given.
    """

    kind: HoldKind
    holder: str
    shared: bool = False
    lent: Lent | None = None
