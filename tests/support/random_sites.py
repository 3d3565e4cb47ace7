"""Random clusters and workloads as raw objects, for asking the running operator and `plan` the same thing.

In comes a seed and names that are the caller's own; out go Nodes, a DevicePool of static devices, and DeviceClaims that
use every field which decides a placement. The same seed gives the same objects.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]

SCOPES = ("NVLink", "PCIeSwitch", "PCIeRoot", "NUMANode")


@dataclass(frozen=True)
class RandomSite:
    """Objects of one case. Claims carry no namespace: it is the caller's."""

    nodes: tuple[Obj, ...]
    pool: Obj
    claims: tuple[Obj, ...]


def random_site(seed: int, name: str) -> RandomSite:
    """The case of a seed; `name` is that of the pool, and the prefix of its nodes."""
    chance = random.Random(seed)
    count = chance.randint(1, 4)
    names = [f"{name}-n{number}" for number in range(count)]
    nodes = tuple(_node(chance, each) for each in names)
    devices = [
        {
            "name": kind,
            "type": {"gpu": "GPU", "nic": "RDMA"}[kind],
            "source": {"static": {"nodes": [_devices(chance, node, kind) for node in names]}},
            **({"classes": _classes()} if chance.random() < 0.4 else {}),
        }
        for kind in ("gpu", "nic")
    ]
    pool = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"matchLabels": {"site": name}},
            "devices": devices,
            "topology": {
                "fabric": [{"name": "block", "nodeLabel": "test/block"}, {"name": "rack", "nodeLabel": "test/rack"}]
            },
            "placement": {"strategy": chance.choice(("LeastFragmentation", "LeastFragmentation", "Pack", "Spread"))},
        },
    }
    claims = tuple(_claim(chance, f"c{number}", name) for number in range(chance.randint(2, 7)))
    return RandomSite(
        tuple(
            {**node, "metadata": {**node["metadata"], "labels": {**node["metadata"]["labels"], "site": name}}}
            for node in nodes
        ),
        pool,
        claims,
    )


def _node(chance: random.Random, name: str) -> Obj:
    labels = {"test/block": chance.choice("ab")}
    if chance.random() < 0.9:
        labels["test/rack"] = chance.choice("xyz")
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def _devices(chance: random.Random, node: str, kind: str) -> Obj:
    known = chance.random() < 0.8
    listed = []
    for number in range(chance.randint(1, 6)):
        attributes: Obj = {"model": chance.choice(("big", "small"))}
        if known:
            attributes["numaNode"] = number // 3
            attributes["pcieRoot"] = f"pci0000:{number // 2:02x}"
        if chance.random() < 0.5:
            attributes["rail"] = number % 3
        listed.append({"name": f"{kind}-{number}", "attributes": attributes})
    return {"name": node, "devices": listed}


def _classes() -> list[Obj]:
    return [
        {"name": "big", "selectors": [{"cel": "device.attributes['adjoin.dev'].model == 'big'"}], "performance": 10},
        {"name": "rest", "performance": 5},
    ]


def _claim(chance: random.Random, name: str, pool: str) -> Obj:
    kinds = chance.choice((("gpu",), ("gpu",), ("gpu", "nic"), ("gpu", "nic"), ("nic",)))
    requests = [_request(chance, kind) for kind in kinds]
    spec: Obj = {"poolRef": {"name": pool}, "requests": requests}
    lines = _lines(chance, requests)
    if lines:
        spec["affinity"] = lines
    replicas = chance.choice((1, 1, 1, 2, 3))
    if replicas > 1:
        spec["replicas"] = replicas
        if chance.random() < 0.5:
            spec["gang"] = {"minReplicas": chance.randint(1, replicas)}
        if chance.random() < 0.4:
            spec["fabric"] = {chance.choice(("required", "preferred")): chance.choice(("block", "rack"))}
    if chance.random() < 0.3:
        spec["priority"] = chance.randint(1, 3)
    if chance.random() < 0.3:
        spec["profile"] = chance.choice(("Compute", "IO", "Latency"))
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name},
        "spec": spec,
    }


def _request(chance: random.Random, kind: str) -> Obj:
    if chance.random() < 0.1:
        alternatives = [{"name": "more", "count": 4}, {"name": "less", "count": 1}]
        return {"name": kind, "firstOf": alternatives}
    if chance.random() < 0.05:
        return {"name": kind, "all": True}
    request: Obj = {"name": kind, "count": chance.choice((1, 1, 2, 2, 3, 4))}
    if chance.random() < 0.2:
        request["selectors"] = [
            {"cel": f"device.attributes['adjoin.dev'].model == '{chance.choice(('big', 'small'))}'"}
        ]
    return request


def _lines(chance: random.Random, requests: list[Obj]) -> list[Obj]:
    names = [request["name"] for request in requests]
    lines: list[Obj] = []
    if len(names) > 1 and chance.random() < 0.7:
        policy = chance.choice(("Required", "Preferred"))
        lines.append({"requests": names, "scope": chance.choice(SCOPES[1:]), "policy": policy})
    several = [request["name"] for request in requests if request.get("count", 1) > 1]
    if several and chance.random() < 0.4:
        policy = chance.choice(("Required", "Preferred"))
        lines.append({"requests": several[:1], "scope": chance.choice(SCOPES), "policy": policy})
    if several and chance.random() < 0.2:
        policy = chance.choice(("Match", "Distinct"))
        lines.append({"requests": several[:1], "attribute": "adjoin.dev/rail", "policy": policy})
    return lines
