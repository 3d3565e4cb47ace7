"""What is refused and what is not: one table for `validate` and for a real API server.

`server` in a case is what the API server alone says (schema and rules of the CRD); a case without it needs Adjoin's own
admission.
"""

from __future__ import annotations

from tests.support.api_claim_cases import CLAIM_CASES, IMMUTABLE_CASES
from tests.support.api_objects import Manifest, claim, device, pool, static
from tests.support.api_pool_cases import POOL_CASES, SHARE_CASES

REFUSED = (*CLAIM_CASES, *POOL_CASES, *SHARE_CASES)
"""Objects that are refused."""

REFUSED_CHANGES = IMMUTABLE_CASES
"""Changes that are refused."""

ACCEPTED: dict[str, Manifest] = {
    "one GPU": claim(requests=[{"name": "gpu"}]),
    "a GPU and the NIC beside it": claim(
        poolRef={"name": "training"}, affinity=[{"requests": ["gpu", "nic"], "scope": "PCIeRoot", "policy": "Required"}]
    ),
    "eight GPUs in one clique": claim(
        requests=[{"name": "gpu", "count": 8}], affinity=[{"requests": ["gpu"], "scope": "NVLink"}]
    ),
    "all GPUs of a node, wherever they are": claim(
        requests=[{"name": "gpu", "all": True}], affinity=[{"requests": ["gpu"], "scope": "NUMANode"}]
    ),
    "eight GPUs and 32 NICs": claim(requests=[{"name": "gpu", "count": 8}, {"name": "nic", "count": 32}]),
    "count beside all: false": claim(requests=[{"name": "gpu", "count": 2, "all": False}]),
    "an attribute of one device": claim(
        requests=[{"name": "gpu"}], affinity=[{"requests": ["gpu"], "attribute": "numaNode", "policy": "Match"}]
    ),
    "attributes by alias and full name": claim(
        affinity=[
            {"requests": ["gpu", "nic"], "attribute": "numaNode", "policy": "Match", "over": "Replica"},
            {"requests": ["nic"], "attribute": "dra.net/rail", "policy": "Distinct"},
        ]
    ),
    "a device under another name": claim(requests=[{"name": "trainer", "device": "gpu", "count": 2}]),
    "4096 devices": claim(requests=[{"name": "gpu", "count": 8}], replicas=512),
    "no replica": claim(replicas=0),
    "the lowest priority": claim(priority=-1_000_000_000),
    "values that mean absence": claim(
        suspend=False,
        preemptible=True,
        profile="Balanced",
        release="WhenDeleted",
        scaling={"mode": "Fixed"},
        priority=0,
    ),
    "a name of 40 characters": claim("c" * 40),
    "a small pool": pool(),
    "a pool by label": pool(
        nodeSelector={
            "matchLabels": {"example.com/pool": "training"},
            "matchExpressions": [
                {"key": "gpu", "operator": "In", "values": ["h100", ""]},
                {"key": "x", "operator": "Exists"},
            ],
        }
    ),
    "a pool with classes": device(
        classes=[
            {
                "name": "h100",
                "selectors": [{"cel": "device.attributes['gpu.nvidia.com'].productName.contains('H100')"}],
                "performance": 100,
                "priority": -10,
            },
            {"name": "rest"},
        ]
    ),
    "counted devices": device(source={"nodeResource": {"name": "nvidia.com/gpu"}}),
    "static devices": static(
        {
            "name": "g0",
            "attributes": {"numaNode": [0, 1], "pcieRoot": "pci0000:10", "dra.net/rdma": True, "uuid": "GPU-1"},
            "capacity": {"memory": "80Gi", "slots": 4},
        },
        {"name": "g1"},
    ),
    "aliases and matrices": pool(
        topology={
            "attributes": {"numaNode": ["resource.kubernetes.io/numaNode", "dra.net/numaNode"]},
            "matrices": [
                {
                    "nodeSelector": {"matchLabels": {"shape": "dgx-h100"}},
                    "configMapRef": {"name": "dgx-h100", "key": "topo"},
                },
                {"configMapRef": {"name": "other.shapes", "key": "topo.txt"}},
            ],
        }
    ),
    "tolerations": pool(
        tolerations=[
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoSchedule"},
            {"operator": "Exists"},
        ]
    ),
    "delivery without guard, split by driver": pool(delivery={"guard": "None", "split": "Driver"}),
    "delivery as environment, with a network a NIC": pool(
        delivery={"mode": "Environment", "networks": {"attachment": "rdma/{device}"}}
    ),
}
"""Objects that are accepted by `validate` and by the API server."""

ALLOWED_CHANGES: dict[str, tuple[Manifest, Manifest]] = {
    "more replicas": (claim(), claim(replicas=3)),
    "another priority": (claim(), claim(priority=5)),
    "requests in another order": (
        claim(requests=[{"name": "gpu"}, {"name": "nic"}]),
        claim(requests=[{"name": "nic"}, {"name": "gpu"}]),
    ),
    "nothing": (claim(affinity=[{"requests": ["gpu", "nic"], "scope": "Node"}]),) * 2,
    "an empty affinity for none": (claim(), claim(affinity=[])),
    "another source of a pool": (pool(), device(source={"nodeResource": {"name": "nvidia.com/gpu"}})),
}
"""Changes (before, after) that are accepted."""
