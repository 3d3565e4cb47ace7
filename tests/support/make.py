"""Builders of what the allocator reads, with sound defaults: say only what the test is about.

Everything has a name and a place that follow from each other: device `gpu-3` on `node-a` is of kind `gpu`, of type
GPU, in pool `training`, published by the GPU driver in a DRA pool named like the node. A claim's UID is made of its
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adjoin_allocator import (
    Affinity,
    Claim,
    ClaimPlan,
    ClaimUID,
    Device,
    DeviceID,
    DeviceName,
    DeviceType,
    Fabric,
    FabricLevel,
    Hold,
    HoldKind,
    Node,
    Nomination,
    PlacedDevice,
    PlacedReplica,
    Placement,
    Policy,
    Pool,
    PreemptionRules,
    Reclaim,
    ReplicaState,
    Request,
    Scope,
    Segment,
    Share,
    ShareAsk,
    ShareMode,
    Snapshot,
    Standing,
    Tenant,
    natural_key,
)
from adjoin_allocator.cel import Quantity, compile_selector

POOL = "training"
NODE = "node-a"
NOW = 1_000_000.0

ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"
SWITCH = "adjoin.dev/pcieSwitch"

_TYPES = {"gpu": DeviceType.GPU, "nic": DeviceType.RDMA}
_DRIVERS = {DeviceType.GPU: "gpu.nvidia.com", DeviceType.RDMA: "dra.net", DeviceType.OTHER: "other.example.com"}


def device(
    name: str = "gpu-0",
    node: str = NODE,
    *,
    root: Any = None,
    numa: Any = None,
    switch: Any = None,
    kind: str = "",
    role: DeviceType | None = None,
    pool: str = POOL,
    attributes: Mapping[str, Any] | None = None,
    capacity: Mapping[str, Any] | None = None,
    performance: int = 0,
    priority: int = 0,
    standing: Standing = Standing.OFFERED,
    detail: str = "",
) -> Device:
    """A device; `root`, `numa` and `switch` become the attributes that topology is read from."""
    kind = kind or name.rstrip("0123456789").rstrip("-")
    role = role or _TYPES.get(kind, DeviceType.OTHER)
    facts = {key: value for key, value in ((ROOT, root), (NUMA, numa), (SWITCH, switch)) if value is not None}
    return Device(
        id=DeviceID(_DRIVERS[role], node, name),
        node=node,
        device_pool=pool,
        kind=kind,
        type=role,
        hardware_id=f"{node}/{name}",
        attributes={**facts, **(attributes or {})},
        capacity=dict(capacity or {}),
        performance=performance,
        priority=priority,
        standing=standing,
        standing_detail=detail,
    )


def flat(node: str = NODE, gpus: int = 8, nics: int = 0, **more: Any) -> list[Device]:
    """Devices of which nothing is known but their node."""
    return [device(f"gpu-{i}", node, **more) for i in range(gpus)] + [
        device(f"nic-{i}", node, **more) for i in range(nics)
    ]


def rails(node: str = NODE, gpus: int = 8, nics_each: int = 1, sockets: int = 2, **more: Any) -> list[Device]:
    """Every GPU on a switch and root complex of its own with its NICs; sockets are NUMA nodes."""
    devices = []
    for gpu in range(gpus):
        place = {"switch": f"switch-{gpu}", "root": f"root-{gpu}", "numa": gpu * sockets // gpus}
        devices.append(device(f"gpu-{gpu}", node, **place, **more))
        devices += [device(f"nic-{gpu * nics_each + nic}", node, **place, **more) for nic in range(nics_each)]
    return devices


def shared_roots(node: str = NODE, roots: int = 4, gpus_each: int = 2, nics_each: int = 1, **more: Any) -> list[Device]:
    """Root complexes with some GPUs and NICs each, half of them per NUMA node, and nothing known of switches."""
    devices = []
    for root in range(roots):
        place = {"root": f"root-{root}", "numa": root * 2 // roots}
        devices += [device(f"gpu-{root * gpus_each + i}", node, **place, **more) for i in range(gpus_each)]
        devices += [device(f"nic-{root * nics_each + i}", node, **place, **more) for i in range(nics_each)]
    return devices


def node(name: str = NODE, **more: Any) -> Node:
    """A Ready node."""
    return Node(**{"name": name, "labels": {}, **more})


def pool(name: str = POOL, kinds: Sequence[str] = ("gpu", "nic"), **more: Any) -> Pool:
    """A pool that offers devices of these names."""
    names = tuple(DeviceName(kind, _TYPES.get(kind, DeviceType.OTHER)) for kind in kinds)
    return Pool(**{"name": name, "devices": names, "aliases": {}, "matrices": {}, **more})


def tenants(**quotas: int | Tenant) -> Mapping[str, Tenant]:
    """Tenants by name: a number is a quota of GPUs."""
    return {name: one if isinstance(one, Tenant) else tenant(name, gpu=one) for name, one in quotas.items()}


def tenant(name: str, *, borrowing: int = 0, weight: int = 1, **quota: int) -> Tenant:
    """A tenant with a quota by device name, that may borrow so many GPUs."""
    return Tenant(name, quota, {"gpu": borrowing} if borrowing else {}, weight)


def evicting(within: bool = True, reclaim: Reclaim = Reclaim.ANY, min_runtime: float = 0.0) -> PreemptionRules:
    """Rules under which everything is allowed, unless said otherwise."""
    return PreemptionRules(within, reclaim, min_runtime)


def request(name: str = "gpu", count: int = 1, *, kind: str = "", **more: Any) -> Request:
    """A request for devices of the name's kind."""
    return Request(name=name, kind=kind or name, count=count, **more)


def selecting(name: str, *expressions: str, count: int = 1, kind: str = "") -> Request:
    """A request for devices that these CEL expressions match."""
    return request(name, count, kind=kind, selectors=tuple(map(compile_selector, expressions)))


def everything(name: str = "gpu", **more: Any) -> Request:
    """A request for all matching devices of a node."""
    return request(name, 0, all_devices=True, **more)


def required(scope: Scope | str, *requests: str) -> Affinity:
    """A Required scope line."""
    return Affinity(requests=requests, policy=Policy.REQUIRED, scope=Scope(scope))


def preferred(scope: Scope | str, *requests: str) -> Affinity:
    """A Preferred scope line."""
    return Affinity(requests=requests, policy=Policy.PREFERRED, scope=Scope(scope))


def match(attribute: str, *requests: str) -> Affinity:
    """One value of the attribute for all devices."""
    return Affinity(requests=requests, policy=Policy.MATCH, attribute=attribute)


def distinct(attribute: str, *requests: str) -> Affinity:
    """No value of the attribute twice."""
    return Affinity(requests=requests, policy=Policy.DISTINCT, attribute=attribute)


def share(name: str = "half", kind: str = "gpu", **more: Any) -> Share:
    """A DeviceShare that divides GPUs at will and keeps nothing back."""
    defaults = {"uid": f"uid-{name}", "created": 0.0, "pool": POOL, "kind": kind, "mode": ShareMode.FRACTIONAL}
    return Share(**{**defaults, "name": name, "reserve_per_million": 0, "min_reserve_bytes": 0, **more})


def part(memory: str | int | None = None, milli: int | None = None, count: int = 1, **more: Any) -> Request:
    """A request for parts of GPUs from the share `half`."""
    amount = memory if memory is None or isinstance(memory, int) else Quantity.parse(memory).as_int()
    ask = ShareAsk(more.pop("share", "half"), memory_bytes=amount, compute_milli=milli)
    return request(more.pop("name", "gpu"), count, kind="gpu", share=ask, **more)


def card(name: str = "gpu-0", node: str = NODE, memory: str = "80Gi", **more: Any) -> Device:
    """A GPU that says how much memory it has."""
    return device(name, node, capacity={"gpu.nvidia.com/memory": Quantity.parse(memory)}, **more)


def claim(name: str = "claim", *asked: Request | Affinity, **more: Any) -> Claim:
    """A claim with these requests and lines; one GPU when none is given."""
    requests = tuple(item for item in asked if isinstance(item, Request)) or (request(),)
    lines = tuple(item for item in asked if isinstance(item, Affinity))
    defaults = {"uid": ClaimUID(f"uid-{name}"), "namespace": "team", "created": NOW, "pool": POOL}
    return Claim(**{**defaults, "name": name, "requests": requests, "affinity": lines, **more})


def pairs(name: str = "claim", count: int = 1, *lines: Affinity, **more: Any) -> Claim:
    """A claim for as many GPUs as NICs."""
    return claim(name, request("gpu", count), request("nic", count), *lines, **more)


def placed(devices: Mapping[str, Sequence[Device]], index: int = 0, **more: Any) -> PlacedReplica:
    """A replica that holds these devices, by request."""
    held = [PlacedDevice(name, one.id, one.hardware_id) for name, given in devices.items() for one in given]
    somewhere = next(one.node for given in devices.values() for one in given)
    state = more.pop("state", ReplicaState.READY)
    return PlacedReplica(**{"index": index, "node": somewhere, "state": state, "devices": tuple(held), **more})


def holding(name: str, devices: Sequence[Device], **more: Any) -> Claim:
    """A claim that has exactly these devices, as one replica; its requests are as many of each kind."""
    by_kind: dict[str, list[Device]] = {}
    for one in devices:
        by_kind.setdefault(one.kind, []).append(one)
    told = {key: more.pop(key) for key in ("state", "allocated_at", "ready_at", "releasing_since") if key in more}
    requests = [request(kind, len(given)) for kind, given in by_kind.items()]
    return claim(name, *requests, placed=(placed(by_kind, **told),), **more)


def members(name: str, sets: Iterable[Sequence[Device]], **more: Any) -> Claim:
    """A claim whose replicas have these GPUs, one set each."""
    sets = list(sets)
    placed_ = tuple(placed({"gpu": given}, index) for index, given in enumerate(sets))
    return claim(name, request("gpu", len(sets[0])), replicas=len(sets), placed=placed_, **more)


def nomination(devices: Sequence[Device], index: int = 0) -> Nomination:
    """These GPUs are held for a replica."""
    return Nomination(index, devices[0].node, tuple(PlacedDevice("gpu", one.id, one.hardware_id) for one in devices))


def told(before: Claim, answer: ClaimPlan) -> Claim:
    """The claim once what a plan says of it stands in its status."""
    return replace(after(before, answer.placements), nominated=answer.nominated)


def after(before: Claim, placements: Iterable[Placement], state: ReplicaState = ReplicaState.ALLOCATED) -> Claim:
    """The claim once its placements stand in its status."""
    new = tuple(PlacedReplica(one.index, one.node, state, one.devices) for one in placements)
    kept = tuple(old for old in before.placed if old.index not in {one.index for one in new})
    return replace(before, placed=(*kept, *new))


BLOCK, RACK = FabricLevel("block", "net/block"), FabricLevel("rack", "net/rack")
"""Two levels of a fabric, coarse to fine."""


def racked(name: str, rack: str | None = None, block: str | None = "b1", **more: Any) -> Node:
    """A node under a rack and a block; None is no label."""
    labels = {BLOCK.node_label: block, RACK.node_label: rack}
    return node(name, labels={key: value for key, value in labels.items() if value is not None}, **more)


def fabric_pool(**more: Any) -> Pool:
    """A pool with blocks and racks."""
    return pool(**{"fabric": (BLOCK, RACK), **more})


def gang(name: str = "claim", *asked: Request | Affinity, replicas: int = 2, **more: Any) -> Claim:
    """A claim whose replicas are placed together: all of them, when no `gang_min` is given. `required`, `preferred` and
    `segment` (size and level) are its conditions on the fabric.
    """
    segment = more.pop("segment", None)
    fabric = Fabric(more.pop("required", ""), more.pop("preferred", ""), Segment(*segment) if segment else None)
    return claim(name, *asked, replicas=replicas, fabric=fabric, **{"gang_min": replicas, **more})


def over_gang(line: Affinity) -> Affinity:
    """The line over all members instead of each."""
    return replace(line, over_gang=True)


def hold(kind: HoldKind = HoldKind.FOREIGN, holder: str = "ResourceClaim other/theirs") -> Hold:
    """Somebody else's hand on a device."""
    return Hold(kind, holder)


def snapshot(
    devices: Iterable[Device] = (),
    claims: Iterable[Claim] = (),
    *,
    pools: Iterable[Pool] | None = None,
    nodes: Iterable[Node] = (),
    holds: Mapping[DeviceID, Hold] | None = None,
    shares: Iterable[Share] = (),
) -> Snapshot:
    """A snapshot of these devices and claims; nodes that are not given are Ready, the pool offers the kinds there
    are.
    """
    by_node: dict[str, list[Device]] = {}
    for one in devices:
        by_node.setdefault(one.node, []).append(one)
    known = {one.name: one for one in nodes}
    kinds = dict.fromkeys(("gpu", "nic", *(one.kind for given in by_node.values() for one in given)))
    return Snapshot(
        pools={one.name: one for one in ((pool(kinds=tuple(kinds)),) if pools is None else pools)},
        nodes={**{name: node(name) for name in by_node}, **known},
        inventory={
            name: tuple(sorted(given, key=lambda one: (natural_key(one.id.pool), natural_key(one.id.device))))
            for name, given in by_node.items()
        },
        claims=tuple(claims),
        holds=dict(holds or {}),
        shares={one.name: one for one in shares},
    )
