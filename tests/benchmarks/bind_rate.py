"""How fast pods with a neighbouring GPU and NIC get bound: Adjoin beside kube-scheduler's own allocation.

Both run on control planes of equal limits with the same nodes, and both are asked for the same: one GPU and one RDMA
NIC on one PCIe root, a claim and a pod each, created side by side. The clock runs from the first create to the last
bind that the API server holds.

    python -m tests.benchmarks.bind_rate --nodes 50 --claims 200 [--raised] [--only adjoin|in-tree]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from typing import Any

from tests.controlplane.client import open_session
from tests.controlplane.nodes import create_objects, wait_nodes_ready
from tests.controlplane.options import Options
from tests.controlplane.server import ControlPlane
from tests.support import hardware
from tests.support.double_use import Recorder
from tests.support.installation import installed
from tests.support.site import pod, simulated
from tests.support.waiting import eventually

Manifest = dict[str, Any]
ROOT = "resource.kubernetes.io/pcieRoot"
GPU = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
NIC = "device.driver == 'dra.net' && device.attributes['dra.net'].rdma"
# Enough for the slowest rival on the slowest machine; it only ends a wait that would never end.
LIMIT_SECONDS = 600.0
# The garbage collector learns of new kinds twice a minute. Until then it asks for every owner of a new kind one by one,
# which no cluster does whose CRDs were not installed a moment ago.
GARBAGE_COLLECTOR_SECONDS = 35.0


@dataclass(frozen=True, slots=True)
class Rate:
    """One measurement. CPU seconds by process are those spent between first create and last bind."""

    who: str
    nodes: int
    claims: int
    seconds: float
    pods_per_second: float
    local: int
    cpu: dict[str, float]


def default_limits(audit: bool = False) -> Options:
    """kube-scheduler's client as it comes: 50 requests a second."""
    return Options(node_lease_seconds=600, audit=audit)


def raised_limits() -> Options:
    """The scheduler's client no longer the limit, and the fair rival's choice of looking at one node in a hundred."""
    return Options(
        node_lease_seconds=600,
        scheduler_qps=500,
        scheduler_burst=1000,
        controller_manager_qps=200,
        controller_manager_burst=400,
        percentage_of_nodes_to_score=1,
    )


def pool(name: str = "bench") -> Manifest:
    """All GPUs and all RDMA NICs of the cluster."""
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": name},
        "spec": {
            "devices": [
                {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.nvidia.com", "selectors":
                [{"cel": GPU}]}}},
                {"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": "dra.net", "selectors":
                [{"cel": NIC}]}}},
            ]
        },
    }  # fmt: skip


def device_claim(name: str) -> Manifest:
    """One GPU and one NIC on one PCIe root, asked of Adjoin."""
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "poolRef": {"name": "bench"},
            "requests": [{"name": "gpu", "device": "gpu"}, {"name": "nic", "device": "nic"}],
            "affinity": [{"requests": ["gpu", "nic"], "scope": "PCIeRoot", "policy": "Required"}],
        },
    }


def resource_claim(name: str, constrained: bool = True) -> Manifest:
    """The same, asked of kube-scheduler."""
    spec: Manifest = {
        "requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}},
            {"name": "nic", "exactly": {"deviceClassName": "nic", "count": 1}},
        ]
    }
    if constrained:
        spec["constraints"] = [{"requests": ["gpu", "nic"], "matchAttribute": ROOT}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": spec},
    }


def device_class(name: str, expression: str) -> Manifest:
    """A DeviceClass for the rival."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def rival_pod(name: str, claim: str) -> Manifest:
    """A pod with an ordinary ResourceClaim."""
    made = pod(name, claim)
    del made["metadata"]["labels"]
    made["spec"]["resourceClaims"] = [{"name": "devices", "resourceClaimName": claim}]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "devices"}]}
    return made


async def create_pairs(plane: ControlPlane, pairs: list[tuple[Manifest, Manifest]]) -> None:
    """Claim, then its pod, pair after pair, 16 pairs at a time."""
    todo = iter(pairs)
    async with open_session(plane.url, plane.ssl_context, connections=16) as session:

        async def work() -> None:
            for claim, its_pod in todo:
                api = f"/apis/{claim['apiVersion']}"
                plural = claim["kind"].lower() + "s"
                for path, body in (
                    (f"{api}/namespaces/default/{plural}", claim),
                    ("/api/v1/namespaces/default/pods", its_pod),
                ):
                    async with session.post(
                        path, data=json.dumps(body), headers={"Content-Type": "application/json"}
                    ) as answer:
                        if answer.status >= 400:
                            raise RuntimeError(f"{path}: {answer.status}: {await answer.text()}")

        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(work())


async def _all_bound(plane: ControlPlane, count: int) -> None:
    """Follows the pods by a watch until `count` are bound; cheap for the server, exact for the clock.

    A watch that ends before is begun again from a list: what counts is what the API server holds.
    """
    bound: set[str] = set()

    def note(seen: Manifest) -> None:
        if seen.get("spec", {}).get("nodeName"):
            bound.add(seen["metadata"]["name"])

    path = "/api/v1/namespaces/default/pods"
    async with open_session(plane.url, plane.ssl_context, connections=1) as session:
        while True:
            async with session.get(path) as response:
                listed = json.loads(await response.read())
            for seen in listed["items"]:
                note(seen)
            if len(bound) >= count:
                return
            version = listed["metadata"]["resourceVersion"]
            async with session.get(f"{path}?watch=1&resourceVersion={version}", timeout=None) as response:
                buffer = b""
                async for chunk in response.content.iter_any():
                    *lines, buffer = (buffer + chunk).split(b"\n")
                    for line in lines:
                        note(json.loads(line)["object"])
                    if len(bound) >= count:
                        return


def _cpu_seconds(pids: dict[str, int]) -> dict[str, float]:
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for name, pid in pids.items():
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        found[name] = (int(fields[11]) + int(fields[12])) / ticks
    return found


async def _race(plane: ControlPlane, pairs: list[tuple[Manifest, Manifest]]) -> float:
    watching = asyncio.create_task(_all_bound(plane, len(pairs)))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await create_pairs(plane, pairs)
    await asyncio.wait_for(watching, LIMIT_SECONDS)
    return time.monotonic() - began


def _locality(plane: ControlPlane) -> int:
    """How many allocated ResourceClaims have their GPU and NIC on one root, by what the slices say."""
    root = {}
    for published in plane.request("GET", "/apis/resource.k8s.io/v1/resourceslices")["items"]:
        spec = published["spec"]
        for device in spec["devices"]:
            root[spec["driver"], spec["pool"]["name"], device["name"]] = (
                device["attributes"].get(ROOT, {}).get("string")
            )
    local = 0
    for claim in plane.request("GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")["items"]:
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        roots = {root[r["driver"], r["pool"], r["device"]] for r in results}
        local += len(results) == 2 and len(roots) == 1 and None not in roots
    return local


def prepare(plane: ControlPlane, nodes: int) -> None:
    """Simulated machines of 8 GPUs and 8 RDMA NICs, Ready."""
    machines = simulated(hardware.fleet(hardware.dgx_h100, nodes, "node"))
    asyncio.run(create_objects(plane, machines))
    asyncio.run(wait_nodes_ready(plane, [m["metadata"]["name"] for m in machines if m["kind"] == "Node"], seconds=600))


def measure(who: str, nodes: int, claims: int, options: Options, *, constrained: bool = True) -> Rate:
    """One race on a control plane of its own. `who` is "adjoin" or "in-tree"."""
    names = [f"c-{i}" for i in range(claims)]
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(options, name=f"bind-rate-{who}"))
        prepare(plane, nodes)
        pids = plane.pids()
        if who == "adjoin":
            installation = stack.enter_context(installed(plane))
            learned = time.monotonic() + GARBAGE_COLLECTOR_SECONDS
            installation.start_operator()
            plane.request("POST", "/apis/adjoin.dev/v1alpha1/devicepools", pool())
            wait_pool(plane, nodes)
            recorder = stack.enter_context(Recorder(plane, afterwards=True))
            pids["adjoin"] = installation.operators[0].process.pid
            pairs = [(device_claim(name), pod(name, name)) for name in names]
            time.sleep(max(0.0, learned - time.monotonic()))
        else:
            for class_name, expression in (("gpu", GPU), ("nic", NIC)):
                plane.request("POST", "/apis/resource.k8s.io/v1/deviceclasses", device_class(class_name, expression))
            pairs = [(resource_claim(name, constrained), rival_pod(name, name)) for name in names]
        before = _cpu_seconds(pids)
        seconds = asyncio.run(_race(plane, pairs))
        after = _cpu_seconds(pids)
        if who == "adjoin":
            recorder.catch_up()
            found = recorder.violations()
            assert not found, found
        cpu = {name: round(after[name] - before[name], 2) for name in after}
        return Rate(who, nodes, claims, round(seconds, 2), round(claims / seconds, 1), _locality(plane), cpu)


def wait_pool(plane: ControlPlane, nodes: int) -> None:
    """Until the pool offers every GPU of so many machines."""
    eventually(
        lambda: plane.request("GET", "/apis/adjoin.dev/v1alpha1/devicepools/bench"),
        lambda seen: seen.get("status", {}).get("devices", {}).get("gpu", {}).get("free") == 8 * nodes,
        what="the pool offers every GPU",
        seconds=180,
    )


def main() -> None:
    """Prints one JSON line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--claims", type=int, default=200)
    parser.add_argument("--raised", action="store_true", help="raised client limits (scheduler 500/1000)")
    parser.add_argument("--only", choices=["adjoin", "in-tree"])
    given = parser.parse_args()
    options = raised_limits() if given.raised else default_limits()
    for who in [given.only] if given.only else ["in-tree", "adjoin"]:
        print(json.dumps(asdict(measure(who, given.nodes, given.claims, options))), flush=True)


if __name__ == "__main__":
    main()
