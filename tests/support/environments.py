"""Machines without a driver for their devices, and pods as admission leaves them there.

In come the few facts that a test is about; out go raw objects. Pods go through the project's own admission, so a test
on them holds for both ends.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.objects import node, pod

from adjoin.admission.pods import mutate_pod
from adjoin.admission.variables import Environment

Obj = dict[str, Any]


def uuid(name: str, place: int) -> str:
    """The uuid of a node's GPU."""
    return f"GPU-{name}-{place}"


def counting_pool(name: str = "training", *, delivery: Obj | None = None, **spec: Any) -> Obj:
    """A DevicePool of GPUs that a device plugin counts, with their uuids beside a matrix of one row a GPU."""
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": {
            "name": name,
            "uid": f"pool-{name}",
            "resourceVersion": "1",
            "generation": 1,
            "finalizers": ["adjoin.dev/cleanup"],
        },
        "spec": {
            "devices": [{"name": "gpu", "type": "GPU", "source": {"nodeResource": {"name": "nvidia.com/gpu"}}}],
            "delivery": {"mode": "Environment", **(delivery or {})},
            **spec,
        },
    }


def matrices(nodes: Mapping[str, int]) -> tuple[Obj, list[Obj]]:
    """A ConfigMap with the identities of each node's GPUs, and the pool's entries for it."""
    data = {f"{name}.gpus": "\n".join(uuid(name, place) for place in range(count)) for name, count in nodes.items()}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpus", "namespace": "adjoin-system", "uid": "cm-gpus", "resourceVersion": "1"},
        "data": data,
    }
    entries = [
        {
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": name}},
            "configMapRef": {"name": "gpus", "key": name},
        }
        for name in nodes
    ]
    return config_map, entries


def machine(name: str = "n1", gpus: int = 2, **fields: Any) -> Obj:
    """A node whose device plugin counts GPUs."""
    made = node(name, **fields)
    made["status"]["allocatable"] = {"nvidia.com/gpu": str(gpus)}
    return made


def static_device(name: str, **attributes: Any) -> Obj:
    return {"name": name, "attributes": attributes}


def static_pool(nodes: Mapping[str, Mapping[str, Sequence[Obj]]], *, delivery: Obj | None = None, **spec: Any) -> Obj:
    """A DevicePool that lists its devices: by node, by name (gpu, nic, …)."""
    names = sorted({name for devices in nodes.values() for name in devices})
    types = {"gpu": "GPU", "nic": "RDMA"}
    listed = [
        {
            "name": name,
            "type": types.get(name, "Other"),
            "source": {
                "static": {
                    "nodes": [
                        {"name": node_name, "devices": list(devices[name])}
                        for node_name, devices in nodes.items()
                        if name in devices
                    ]
                }
            },
        }
        for name in names
    ]
    made = counting_pool(delivery=delivery, **spec)
    made["spec"]["devices"] = listed
    return made


def admitted(
    made: Obj | None = None, *, requests: Sequence[str] = ("gpu",), parted: bool = False, **fields: Any
) -> Obj:
    """A pod after admission, for a claim whose devices are handed over as environment."""
    before = made if made is not None else pod(resource_claims=0, gates=(), **fields)
    patch, _ = mutate_pod(before, (), list(requests), Environment(frozenset({"nvidia.com/gpu"}), parted))
    return patched(before, patch)


def patched(obj: Obj, patch: Sequence[Mapping[str, Any]]) -> Obj:
    """The object after a JSON patch that only adds."""
    result = copy.deepcopy(obj)
    for operation in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = result
        for part in parents:
            target = target[int(part) if isinstance(target, list) else part]
        target[int(last) if isinstance(target, list) else last] = operation["value"]
    return result


def listed(text: str) -> list[str]:
    """Device names of an ADJOIN_DEVICES."""
    return [each["device"] for each in json.loads(text)]
