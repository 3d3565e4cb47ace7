"""Raw API objects with sound defaults, as the API server would hand them out.

In come the few fields that a test is about; out go plain dictionaries. UIDs follow from kind, namespace and name unless
given, so that a test can name them; a second object of one name is told apart by `uid`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Obj = dict[str, Any]

TOKEN = "abcdefghi0"
CREATED = "2026-11-30T08:00:00Z"
LONG_AGO = "2026-11-30T07:00:00Z"
GPU_DRIVER = "gpu.nvidia.com"
NIC_DRIVER = "dra.net"


def _meta(kind: str, name: str, namespace: str, fields: Mapping[str, Any]) -> Obj:
    meta: Obj = {"name": name, "uid": f"{kind}-{namespace}-{name}" if namespace else f"{kind}-{name}"}
    if namespace:
        meta["namespace"] = namespace
    meta |= {"resourceVersion": "1", "generation": 1, "creationTimestamp": CREATED}
    return meta | {key: value for key, value in fields.items() if value is not None}


def deviceclaim(
    name: str = "job-a",
    *,
    namespace: str = "team",
    pool: str | None = "training",
    requests: Mapping[str, int] | Sequence[Obj] = {"gpu": 1},
    replicas: int | None = None,
    affinity: Sequence[Obj] = (),
    status: Obj | None = None,
    finalizers: Sequence[str] = ("adjoin.dev/cleanup",),
    **meta: Any,
) -> Obj:
    """A DeviceClaim; `requests` may be counts by name."""
    listed = (
        [{"name": request, "count": count} for request, count in requests.items()]
        if isinstance(requests, Mapping)
        else list(requests)
    )
    spec: Obj = {"requests": listed}
    if pool is not None:
        spec["poolRef"] = {"name": pool}
    if replicas is not None:
        spec["replicas"] = replicas
    if affinity:
        spec["affinity"] = list(affinity)
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": _meta("claim", name, namespace, {"finalizers": list(finalizers), **meta}),
        "spec": spec,
        **({"status": status} if status is not None else {}),
    }


def devicepool(
    name: str = "training",
    *,
    devices: Sequence[Obj] | None = None,
    delivery: Obj | None = None,
    node_selector: Obj | None = None,
    finalizers: Sequence[str] = ("adjoin.dev/cleanup",),
    status: Obj | None = None,
    spec: Mapping[str, Any] = {},
    **meta: Any,
) -> Obj:
    """A DevicePool of GPUs and RDMA NICs from ResourceSlices, unless `devices` says otherwise."""
    if devices is None:
        devices = [
            {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": GPU_DRIVER}}},
            {"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": NIC_DRIVER}}},
        ]
    body: Obj = {"devices": list(devices), **spec}
    if delivery is not None:
        body["delivery"] = delivery
    if node_selector is not None:
        body["nodeSelector"] = node_selector
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": _meta("pool", name, "", {"finalizers": list(finalizers), **meta}),
        "spec": body,
        **({"status": status} if status is not None else {}),
    }


def pod(
    name: str = "worker",
    *,
    namespace: str = "team",
    claim: str = "job-a",
    token: str = TOKEN,
    resource_claims: int = 1,
    gates: Sequence[str] = ("adjoin.dev/claim",),
    node: str = "",
    phase: str = "Pending",
    replica: int | None = None,
    containers: str = "",
    affinity: Obj | None = None,
    labels: Mapping[str, str] = {},
    running: bool = False,
    **meta: Any,
) -> Obj:
    """A pod as admission leaves it: gated, with token and entries for its ResourceClaims."""
    annotations = {"adjoin.dev/binding": token}
    if replica is not None:
        annotations["adjoin.dev/replica"] = str(replica)
    if containers:
        annotations["adjoin.dev/containers"] = containers
    names = [f"adjoin-{claim}-{token}" + (f"-{part}" if part else "") for part in range(resource_claims)]
    spec: Obj = {
        "containers": [{"name": "main", "image": "busybox"}],
        "schedulingGates": [{"name": gate} for gate in gates],
        "resourceClaims": [{"name": f"adjoin-{part}", "resourceClaimName": each} for part, each in enumerate(names)],
    }
    if node:
        spec["nodeName"] = node
    if affinity is not None:
        spec["affinity"] = affinity
    status: Obj = {"phase": phase}
    if running:
        status["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _meta(
            "pod",
            name,
            namespace,
            {"labels": {"adjoin.dev/claim": claim, **labels}, "annotations": annotations, **meta},
        ),
        "spec": spec,
        "status": status,
    }


def resourceclaim(
    name: str = f"adjoin-job-a-{TOKEN}",
    *,
    namespace: str = "team",
    owner: str = "claim-team-job-a",
    claim: str = "job-a",
    replica: int | None = 0,
    pod_uid: str = "pod-team-worker",
    devices: Sequence[tuple[str, str, str]] | None = None,
    reserved: Sequence[str] | None = None,
    finalizers: Sequence[str] = ("resource.kubernetes.io/delete-protection",),
    **meta: Any,
) -> Obj:
    """A ResourceClaim of ours; with `devices` it is allocated, and reserved for its pod unless said otherwise. Without
    owner it is foreign."""
    fields: Obj = {"finalizers": list(finalizers), **meta}
    if owner:
        fields["ownerReferences"] = [
            {
                "apiVersion": "adjoin.dev/v1alpha1",
                "kind": "DeviceClaim",
                "name": claim,
                "uid": owner,
                "controller": True,
            }
        ]
        fields["labels"] = {"adjoin.dev/claim": claim, "adjoin.dev/replica": str(replica), "adjoin.dev/pod": pod_uid}
    obj: Obj = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": _meta("rc", name, namespace, fields),
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "adjoin.dev"}}]}},
    }
    if devices is not None:
        results = [
            {"request": "gpu", "driver": driver, "pool": pool, "device": device} for driver, pool, device in devices
        ]
        holders = [pod_uid] if reserved is None else list(reserved)
        obj["status"] = {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in holders],
        }
    return obj


def allocation(*replicas: Obj, phase: str = "Ready", **fields: Any) -> Obj:
    """A claim's status with these replicas."""
    return {
        "observedGeneration": 1,
        "phase": phase,
        "replicas": len(replicas),
        "allocation": {"replicas": list(replicas)},
        **fields,
    }


def replica(
    index: int = 0,
    *,
    node: str = "n1",
    state: str = "Ready",
    devices: Sequence[tuple[str, str, str, str]] = (("gpu", GPU_DRIVER, "n1", "gpu-0"),),
    **fields: Any,
) -> Obj:
    """One entry of `status.allocation.replicas`; devices are (request, driver, pool, device)."""
    return {
        "index": index,
        "node": node,
        "state": state,
        "devices": [
            {"request": request, "driver": driver, "pool": pool, "device": device}
            for request, driver, pool, device in devices
        ],
        "allocatedAt": CREATED,
        "readyAt": CREATED,
        **({} if state == "InUse" else {"idleSince": CREATED}),
        **fields,
    }


def node(
    name: str = "n1", *, ready: bool = True, labels: Mapping[str, str] = {}, boot: str = "boot-1", **spec: Any
) -> Obj:
    """A Node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta("node", name, "", {"labels": {"kubernetes.io/hostname": name, **labels}}),
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "nodeInfo": {"bootID": boot},
        },
    }


def resourceslice(
    node_name: str = "n1",
    driver: str = GPU_DRIVER,
    devices: Mapping[str, Mapping[str, Any]] | int = 2,
    *,
    taints: Mapping[str, Sequence[Obj]] = {},
    generation: int = 1,
    **meta: Any,
) -> Obj:
    """A ResourceSlice with one pool named like its node; a number makes so many GPUs (or NICs) with a uuid each."""
    prefix = "nic" if driver == NIC_DRIVER else "gpu"
    if isinstance(devices, int):
        devices = {f"{prefix}-{i}": {"uuid": {"string": f"{prefix.upper()}-{node_name}-{i}"}} for i in range(devices)}
    listed = []
    for name, attributes in devices.items():
        device: Obj = {"name": name, "attributes": dict(attributes)}
        if name in taints:
            device["taints"] = list(taints[name])
        listed.append(device)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": _meta("slice", f"{node_name}-{driver}", "", meta),
        "spec": {
            "driver": driver,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": generation, "resourceSliceCount": 1},
            "devices": listed,
        },
    }


def taintrule(pool: str = "training", driver: str = GPU_DRIVER, **meta: Any) -> Obj:
    """The guard of a pool over a whole driver; kube-scheduler knows it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": _meta(
            "rule",
            f"adjoin-{pool}-{driver}",
            "",
            {"labels": {"adjoin.dev/guards-pool": pool}, "creationTimestamp": LONG_AGO, **meta},
        ),
        "spec": {
            "deviceSelector": {"driver": driver},
            "taint": {"key": "adjoin.dev/guard", "value": pool, "effect": "NoSchedule"},
        },
    }


def deviceshare(
    name: str = "half",
    *,
    pool: str = "training",
    device: str = "gpu",
    mode: str = "Fractional",
    finalizers: Sequence[str] = ("adjoin.dev/cleanup",),
    status: Obj | None = None,
    created: str | None = None,
    **spec: Any,
) -> Obj:
    """A DeviceShare; without more it divides memory and compute at will."""
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceShare",
        "metadata": _meta("share", name, "", {"finalizers": list(finalizers), "creationTimestamp": created or CREATED}),
        "spec": {"poolRef": {"name": pool}, "device": device, "mode": mode, **spec},
        **({"status": status} if status is not None else {}),
    }
