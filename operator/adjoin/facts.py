"""API objects, reduced to the few fields that decisions depend on.

In come raw JSON objects as the API server or a file holds them; out go frozen facts. Reading is lenient: a field of
a newer version is
ignored and a malformed object of a foreign kind raises `ValueError` with the field. Nothing here decides anything.

Facts of one object are replaced as a whole when the object changes and are shared between views by identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple

from adjoin.api import DeviceClaim, DevicePool
from adjoin.api.names import (
    ANNOTATION_BINDING,
    ANNOTATION_CONTAINERS,
    ANNOTATION_REPLICA,
    ANNOTATION_RUN,
    GATE,
    GROUP,
    LABEL_CLAIM,
    LABEL_HOOK,
    MEMORY_LIMIT,
    NETWORKS_ANNOTATION,
    VISIBLE_DEVICES,
)
from adjoin.api.parse import parse_lenient
from adjoin_allocator.cel import AttributeValue, Quantity, Version
from adjoin_allocator.model import (
    DeviceID,
    Node,
    RequestPolicy,
    Taint,
)

Raw = Mapping[str, Any]
MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)
"""What reading an object that is not as it should be ends in."""

JOB_INDEX = "batch.kubernetes.io/job-completion-index"
STATEFULSET_INDEX = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class Meta:
    """Identity and version of an object. `version` is its resourceVersion as a number: equal or greater means as new
    or newer."""

    uid: str
    namespace: str
    name: str
    version: int
    generation: int
    created: float | None
    deleting: float | None
    """When deletion was asked (deletionTimestamp, seconds since the epoch), else None."""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def timestamp(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 text, None of None."""
    if not text:
        return None
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def moment(text: object) -> float | None:
    """A time in a status, which anybody may have written; one that cannot be read counts as not known."""
    try:
        return timestamp(text) if isinstance(text, str) else None
    except ValueError:
        return None


def read_meta(obj: Raw) -> Meta:
    """The metadata of any object; absent fields are empty or 0."""
    meta = obj.get("metadata") or {}
    version = str(meta.get("resourceVersion") or "0")
    return Meta(
        uid=meta.get("uid") or "",
        namespace=meta.get("namespace") or "",
        name=meta.get("name") or "",
        version=int(version) if version.isdigit() else 0,
        generation=meta.get("generation") or 0,
        created=timestamp(meta.get("creationTimestamp")),
        deleting=timestamp(meta.get("deletionTimestamp")),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ClaimFacts:
    """A DeviceClaim: its spec as a model, its status as it stands."""

    meta: Meta
    claim: DeviceClaim
    status: Raw
    finalizers: tuple[str, ...]


def read_claim(obj: Raw) -> ClaimFacts:
    """Facts of a DeviceClaim. Raises `ValueError` (`InvalidObject`) when the spec cannot be read at all."""
    return ClaimFacts(
        meta=read_meta(obj),
        claim=parse_lenient(DeviceClaim, obj),
        status=obj.get("status") or {},
        finalizers=tuple((obj.get("metadata") or {}).get("finalizers") or ()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class PoolFacts:
    """A DevicePool: its spec as a model, its status as it stands."""

    meta: Meta
    pool: DevicePool
    status: Raw
    finalizers: tuple[str, ...]
    annotations: Mapping[str, str]


def read_pool(obj: Raw) -> PoolFacts:
    """Facts of a DevicePool. Raises `ValueError` (`InvalidObject`) when the spec cannot be read at all."""
    meta = obj.get("metadata") or {}
    return PoolFacts(
        meta=read_meta(obj),
        pool=parse_lenient(DevicePool, obj),
        status=obj.get("status") or {},
        finalizers=tuple(meta.get("finalizers") or ()),
        annotations=meta.get("annotations") or {},
    )


@dataclass(frozen=True, slots=True, eq=False)
class PodFacts:
    """A pod that names a DeviceClaim.

    Attributes:
        claim: The DeviceClaim's name (label), in the pod's namespace.
        token: The binding token that admission gave it.
        containers: Raw text of the annotation that says which container gets which request, or "".
        replica: The replica index it names: annotation, else Job completion index, else StatefulSet pod index, else
        None.
        gates: Names of its scheduling gates.
        resource_claims: Names of the ResourceClaims of ours in its spec, in order.
        node: Node it is bound to, or "".
        phase: status.phase.
        started: A container of it was seen started (running or terminated).
        stopped: Every container that was seen is terminated.
        affinity: spec.affinity as it stands.
        controller: UID of the controller that made it, or "".
        ended: When its last container ended, of a pod that has ended; None where that is not known.
        grants: Names of the ConfigMaps of ours that its environment is taken from.
        limited: Every container that takes its cards from there takes the limits of their parts from there too.
        networks: Raw text of the annotation that says which networks it is attached to, or "".
    """

    meta: Meta
    claim: str
    token: str
    containers: str
    replica: int | None
    gates: tuple[str, ...]
    resource_claims: tuple[str, ...]
    node: str
    phase: str
    started: bool
    stopped: bool
    affinity: Raw
    controller: str = ""
    ended: float | None = None
    grants: tuple[str, ...] = ()
    limited: bool = False
    networks: str = ""

    @property
    def controlled(self) -> bool:
        """A controller made it, and makes another when it goes."""
        return bool(self.controller)

    @property
    def finished(self) -> bool:
        """It has ended and will not run again."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def gated(self) -> bool:
        """Our own gate is still on it."""
        return GATE in self.gates

    @property
    def foreign_gates(self) -> tuple[str, ...]:
        """Gates that others put on it."""
        return tuple(gate for gate in self.gates if gate != GATE)


def _index(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int | None:
    for text in (
        annotations.get(ANNOTATION_REPLICA) or labels.get(ANNOTATION_REPLICA),
        labels.get(JOB_INDEX) or annotations.get(JOB_INDEX),
        labels.get(STATEFULSET_INDEX),
    ):
        if text is not None and text.isascii() and text.isdigit():
            return int(text)
    return None


def _ended(states: Iterable[Raw]) -> float | None:
    """When the last of these containers ended."""
    found = [timestamp((state.get("terminated") or {}).get("finishedAt")) for state in states]
    return max((moment for moment in found if moment is not None), default=None)


def read_pod(obj: Raw) -> PodFacts | None:
    """Facts of a pod, or None when it names no DeviceClaim."""
    meta = obj.get("metadata") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    if LABEL_CLAIM not in labels:
        return None
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    states = [
        container.get("state") or {}
        for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for container in status.get(kind) or ()
    ]
    prefix = f"adjoin-{labels[LABEL_CLAIM]}-"
    return PodFacts(
        meta=read_meta(obj),
        claim=labels[LABEL_CLAIM],
        token=annotations.get(ANNOTATION_BINDING, ""),
        containers=annotations.get(ANNOTATION_CONTAINERS, ""),
        replica=_index(labels, annotations),
        gates=tuple(str(gate["name"]) for gate in spec.get("schedulingGates") or ()),
        resource_claims=tuple(
            entry["resourceClaimName"]
            for entry in spec.get("resourceClaims") or ()
            if (entry.get("resourceClaimName") or "").startswith(prefix)
        ),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        started=any("running" in state or "terminated" in state for state in states),
        stopped=bool(states) and all("terminated" in state for state in states),
        affinity=spec.get("affinity") or {},
        controller=next((o.get("uid") or "" for o in meta.get("ownerReferences") or () if o.get("controller")), ""),
        ended=_ended(states) if status.get("phase") in ("Succeeded", "Failed") else None,
        grants=_grants(spec, prefix),
        limited=_limited(spec),
        networks=annotations.get(NETWORKS_ANNOTATION, ""),
    )


def _limited(spec: Raw) -> bool:
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        env = container.get("env") or ()
        taken = {each.get("name") for each in env if (each.get("valueFrom") or {}).get("configMapKeyRef")}
        if VISIBLE_DEVICES in taken and MEMORY_LIMIT not in taken:
            return False
    return True


def _grants(spec: Raw, prefix: str) -> tuple[str, ...]:
    names = (
        str(((entry.get("valueFrom") or {}).get("configMapKeyRef") or {}).get("name") or "")
        for group in ("initContainers", "containers")
        for container in spec.get(group) or ()
        for entry in container.get("env") or ()
        if entry.get("name") == VISIBLE_DEVICES
    )
    return tuple(dict.fromkeys(name for name in names if name.startswith(prefix)))


class Consumption(NamedTuple):
    """What an allocation consumes of a device, by fully qualified name of the capacity."""

    device: DeviceID
    amounts: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True, eq=False)
class ResourceClaimFacts:
    """A ResourceClaim, ours or foreign.

    Attributes:
        owner: UID of the DeviceClaim in its ownerReferences, or "".
        ours: It carries our label or an owner of our group: only Adjoin makes such.
        allocated: status.allocation is set.
        devices: Devices in its allocation, those with adminAccess left out (they exclude nobody).
        requests: For each of them the request of the ResourceClaim that it serves.
        shared: Those of which it has a share, beside which others may have shares too.
        consumed: What it consumes of each of these; of one whose allocation does not say that, nothing is listed.
        reserved: UIDs of the pods in reservedFor.
        labels: Its labels.
        finalizers: Its finalizers.
        hook: UID of the DevicePool whose hook it is for, or "".
        run: Of a hook's: what the run is for, as its annotation says; else "".
    """

    meta: Meta
    owner: str
    ours: bool
    allocated: bool
    devices: tuple[DeviceID, ...]
    reserved: tuple[str, ...]
    labels: Mapping[str, str]
    finalizers: tuple[str, ...]
    hook: str = ""
    requests: tuple[str, ...] = ()
    shared: tuple[DeviceID, ...] = ()
    run: str = ""
    consumed: tuple[Consumption, ...] = ()


def read_resource_claim(obj: Raw) -> ResourceClaimFacts:
    """Facts of a ResourceClaim."""
    meta, status = obj.get("metadata") or {}, obj.get("status") or {}
    labels = meta.get("labels") or {}
    owner = hook = ""
    for reference in meta.get("ownerReferences") or ():
        if not (reference.get("apiVersion") or "").startswith(f"{GROUP}/"):
            continue
        if reference.get("kind") == "DeviceClaim":
            owner = reference.get("uid") or ""
        elif reference.get("kind") == "DevicePool" and LABEL_HOOK in labels:
            hook = reference.get("uid") or ""
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return ResourceClaimFacts(
        meta=read_meta(obj),
        owner=owner,
        ours=bool(owner) or LABEL_CLAIM in labels,
        allocated="allocation" in status and status["allocation"] is not None,
        devices=tuple(DeviceID(r["driver"], r["pool"], r["device"]) for r in results if not r.get("adminAccess")),
        reserved=tuple(r.get("uid") or "" for r in status.get("reservedFor") or ()),
        labels=labels,
        finalizers=tuple(meta.get("finalizers") or ()),
        hook=hook,
        shared=tuple(DeviceID(r["driver"], r["pool"], r["device"]) for r in results if r.get("shareID")),
        consumed=tuple(
            Consumption(DeviceID(r["driver"], r["pool"], r["device"]), _consumed(r))
            for r in results
            if r.get("shareID") and r.get("consumedCapacity")
        ),
        requests=tuple(str(r.get("request") or "").partition("/")[0] for r in results if not r.get("adminAccess")),
        run=str((meta.get("annotations") or {}).get(ANNOTATION_RUN) or "") if hook else "",
    )


def _consumed(result: Raw) -> Mapping[str, Quantity]:
    """What a result of an allocation consumes, by fully qualified name of the capacity."""
    amounts = result["consumedCapacity"].items()
    return _quantities((name if "/" in name else f"{result['driver']}/{name}", each) for name, each in amounts)


@dataclass(frozen=True, slots=True)
class Binding:
    """Conditions that the driver sets on an allocated device: pods bind once all of `ready` hold, and not if one of
    `failed` does."""

    ready: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device as a driver publishes it. Satisfies the selectors' view of a device.

    Attributes:
        name: Its name in the driver's pool.
        driver: The driver.
        attributes: Values by fully qualified name (`domain/name`).
        capacity: Quantities by fully qualified name.
        taints: Taints that the driver put on it.
        allow_multiple_allocations: It can be shared between claims.
        node: The node it sits in where its slice lists devices of several nodes, else "".
        spelled: Capacities that are published with the driver's domain in their name.
        policies: In which amounts its capacities may be consumed, by fully qualified name, where that is limited.
        consumes: What it takes of the driver's counters, by counter set and counter. Two devices with a set in common
            are parts of one piece of hardware, or one is the whole of it.
        binding: What pods wait for before they bind, None for most devices.
    """

    name: str
    driver: str
    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, Quantity]
    taints: tuple[Taint, ...] = ()
    allow_multiple_allocations: bool = False
    node: str = ""
    consumes: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)
    policies: Mapping[str, RequestPolicy] = field(default_factory=dict)
    spelled: tuple[str, ...] = ()
    binding: Binding | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SliceFacts:
    """A ResourceSlice. `node` is "" for devices that are not local to one node."""

    meta: Meta
    driver: str
    pool: str
    generation: int
    slices: int
    """How many slices the pool's generation has in all (resourceSliceCount)."""
    node: str
    devices: tuple[PublishedDevice, ...]
    counters: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)
    """What its counter sets hold (sharedCounters), by counter set and counter."""


def qualified(name: str, domain: str) -> str:
    """`name` with its domain; names without one belong to `domain`."""
    return name if "/" in name else f"{domain}/{name}"


def read_attribute(value: Raw) -> AttributeValue:
    """The value of one DeviceAttribute: a scalar, or a tuple of scalars of one type."""
    if not isinstance(value, Mapping):
        raise ValueError(f"attribute value {value!r}: expected an object")
    if (text := value.get("string")) is not None:
        return intern(str(text))
    for key in ("int", "bool"):
        if value.get(key) is not None:
            return value[key]  # type: ignore[no-any-return]
    if value.get("version") is not None:
        return _version(value["version"])
    for key in ("strings", "ints", "bools"):
        if value.get(key) is not None:
            return tuple(value[key])
    if value.get("versions") is not None:
        return tuple(_version(text) for text in value["versions"])
    raise ValueError(
        f"attribute value {dict(value)!r}: expected one of string, int, bool, version, strings, ints, bools, versions"
    )


def read_taint(taint: Raw) -> Taint:
    """A taint of a node, a device or a DeviceTaintRule."""
    return Taint(taint.get("key") or "", taint.get("value") or "", taint.get("effect") or "")


# Amounts and versions are values that repeat on every node: one copy of each, and parsed once.
_quantity = lru_cache(maxsize=4096)(Quantity.parse)
_version = lru_cache(maxsize=4096)(Version.parse)


def _quantities(amounts: Iterable[tuple[str, Any]]) -> dict[str, Quantity]:
    """Those of `amounts` that can be read; one that cannot counts as absent."""
    read: dict[str, Quantity] = {}
    for name, amount in amounts:
        try:
            read[intern(name)] = _quantity(str(amount))
        except ValueError:
            continue
    return read


@lru_cache(maxsize=4096)
def _counters(amounts: tuple[tuple[str, str], ...]) -> Mapping[str, Quantity]:
    """Counters by name. The partitions of one model are the same on every card and node, and are kept once."""
    return _quantities(amounts)


def read_device(device: Raw, driver: str) -> PublishedDevice:
    """One entry of `spec.devices` of a ResourceSlice. An attribute or capacity that cannot be read counts as absent."""
    # 1.34's predecessors nest everything but the name under `basic`; drivers of that age are still around in dumps.
    body = device.get("basic") or device
    attributes: dict[str, AttributeValue] = {}
    for name, value in (body.get("attributes") or {}).items():
        try:
            # Names and most values repeat on every node: one copy each keeps 100,000 nodes in memory.
            attributes[intern(qualified(name, driver))] = read_attribute(value)
        except ValueError:
            continue
    return PublishedDevice(
        name=intern(device["name"]),
        driver=driver,
        attributes=attributes,
        capacity=_quantities(
            (qualified(name, driver), value.get("value") if isinstance(value, Mapping) else value)
            for name, value in (body.get("capacity") or {}).items()
        ),
        taints=tuple(read_taint(taint) for taint in body.get("taints") or ()),
        allow_multiple_allocations=bool(body.get("allowMultipleAllocations")),
        node=body.get("nodeName") or "",
        consumes={
            intern(consumed["counterSet"]): _counters(_listed(consumed.get("counters")))
            for consumed in body.get("consumesCounters") or ()
            if consumed.get("counterSet")
        },
        policies={
            qualified(name, driver): _policy(value["requestPolicy"])
            for name, value in (body.get("capacity") or {}).items()
            if isinstance(value, Mapping) and value.get("requestPolicy")
        },
        spelled=tuple(name for name in body.get("capacity") or () if name.startswith(f"{driver}/")),
        binding=_binding(body.get("bindingConditions"), body.get("bindingFailureConditions")),
    )


def _policy(policy: Raw) -> RequestPolicy:
    """A capacity's requestPolicy; an amount that cannot be read counts as absent."""

    def whole(amount: Any) -> int | None:
        found = _quantities([("amount", amount)]) if amount is not None else {}
        return found["amount"].as_int() if found else None

    values = [whole(amount) for amount in policy.get("validValues") or ()]
    valid = policy.get("validRange") or {}
    return RequestPolicy(
        default=whole(policy.get("default")),
        values=tuple(sorted(value for value in values if value is not None)),
        least=whole(valid.get("min")),
        most=whole(valid.get("max")),
        step=whole(valid.get("step")),
    )


def _binding(ready: Iterable[str] | None, failed: Iterable[str] | None) -> Binding | None:
    return Binding(tuple(ready or ()), tuple(failed or ())) if ready or failed else None


def read_slice(obj: Raw) -> SliceFacts:
    """Facts of a ResourceSlice. A pool without `generation` is of generation 0."""
    spec = obj.get("spec") or {}
    pool = spec.get("pool") or {}
    driver = intern(spec.get("driver") or "")
    if not driver or not pool.get("name"):
        raise ValueError("spec.driver and spec.pool.name: both are required")
    return SliceFacts(
        meta=read_meta(obj),
        driver=driver,
        pool=pool.get("name") or "",
        generation=pool.get("generation") or 0,
        slices=pool.get("resourceSliceCount") or 1,
        node=spec.get("nodeName") or "",
        devices=tuple(read_device(device, driver) for device in spec.get("devices") or ()),
        counters={
            intern(each["name"]): _counters(_listed(each.get("counters")))
            for each in spec.get("sharedCounters") or ()
            if each.get("name")
        },
    )


def _listed(counters: Raw | None) -> tuple[tuple[str, str], ...]:
    """Counters as they are published, in order."""
    return tuple(
        (name, str(amount.get("value") if isinstance(amount, Mapping) else amount))
        for name, amount in sorted((counters or {}).items())
    )


@dataclass(frozen=True, slots=True, eq=False)
class NodeFacts:
    """A Node: what placing needs, its boot id and the extended resources it can give."""

    meta: Meta
    node: Node
    boot_id: str
    allocatable: Mapping[str, int]
    """Extended resources (a name with a domain) by name."""
    unready_since: float | None = None
    """Since when it has not been ready, None while it is, or where nobody says since when."""


def read_node(obj: Raw) -> NodeFacts:
    """Facts of a Node. Without a Ready condition it counts as ready (a node made by hand for `plan`)."""
    meta, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    condition: Raw = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    ready = condition.get("status", "True")
    return NodeFacts(
        meta=read_meta(obj),
        node=Node(
            name=meta.get("name") or "",
            labels=meta.get("labels") or {},
            ready=ready == "True",
            unschedulable=bool(spec.get("unschedulable")),
            taints=tuple(read_taint(taint) for taint in spec.get("taints") or ()),
            deleting=bool(meta.get("deletionTimestamp")),
            cpu_milli=_allocatable(status, "cpu", 1000),
            memory_bytes=_allocatable(status, "memory", 1),
        ),
        boot_id=(status.get("nodeInfo") or {}).get("bootID") or "",
        allocatable={
            name: Quantity.parse(str(amount)).as_int()
            for name, amount in (status.get("allocatable") or {}).items()
            if "/" in name
        },
        unready_since=None if ready == "True" else timestamp(condition.get("lastTransitionTime")),
    )


def _allocatable(status: Raw, resource: str, scale: int) -> int | None:
    """What a node can give of a resource, times `scale` and rounded down; None where it says nothing."""
    amount = (status.get("allocatable") or {}).get(resource)
    return None if amount is None else int(_quantity(str(amount)).value * scale // 1)


@dataclass(frozen=True, slots=True, eq=False)
class TaintRuleFacts:
    """A DeviceTaintRule: which devices ("" = any) get which taint."""

    meta: Meta
    driver: str
    pool: str
    device: str
    taint: Taint
    guards: str
    """Name of the DevicePool whose guard this is (our label), or ""."""
    selects: bool
    """It has a deviceSelector. An empty one selects every device, none at all selects no device."""

    def covers(self, device: DeviceID) -> bool:
        """Whether the rule selects `device`."""
        return (
            self.selects
            and self.driver in ("", device.driver)
            and self.pool in ("", device.pool)
            and self.device in ("", device.device)
        )


LABEL_GUARD = f"{GROUP}/guards-pool"


def read_taint_rule(obj: Raw) -> TaintRuleFacts:
    """Facts of a DeviceTaintRule."""
    spec = obj.get("spec") or {}
    selector = spec.get("deviceSelector") or {}
    return TaintRuleFacts(
        meta=read_meta(obj),
        driver=selector.get("driver") or "",
        pool=selector.get("pool") or "",
        device=selector.get("device") or "",
        taint=read_taint(spec.get("taint") or {}),
        guards=((obj.get("metadata") or {}).get("labels") or {}).get(LABEL_GUARD, ""),
        selects=spec.get("deviceSelector") is not None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ConfigMapFacts:
    """A ConfigMap's text."""

    meta: Meta
    data: Mapping[str, str]


def read_config_map(obj: Raw) -> ConfigMapFacts:
    """Facts of a ConfigMap."""
    return ConfigMapFacts(meta=read_meta(obj), data=obj.get("data") or {})
