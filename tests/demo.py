"""`make demo`: a claim becomes a running pod whose GPU and NIC are neighbours, on a real control plane.

Starts the control plane, simulated machines (p4d.24xlarge, DGX H100, GB200), installs the charts with helm, runs the
operator as its own process with the chart's rights, applies `examples/quickstart`, waits, and prints what each pod got,
beside what kube-scheduler's own allocation gave for the same request. Then it stays up to be looked at until Ctrl-C;
with `--once` it exits. Exit status 0 only if every pod of the example runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from tests.controlplane.nodes import create_objects, wait_nodes_ready
from tests.controlplane.options import Options
from tests.controlplane.server import ControlPlane
from tests.support import hardware
from tests.support.double_use import Device, Recorder, allocated
from tests.support.installation import ROOT, Installation, installed
from tests.support.site import simulated
from tests.support.waiting import eventually

Manifest = dict[str, Any]
EXAMPLE = ROOT / "examples" / "quickstart"
RIVAL = "kube-scheduler"
GPU = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
NIC = "device.driver == 'dra.net' && device.attributes['dra.net'].rdma"
ROOT_KEY = "resource.kubernetes.io/pcieRoot"

# Wide enough for the table, also where nobody's terminal tells its width.
console = Console(highlight=False, width=max(150, Console().width))


def machines() -> list[Manifest]:
    """Three kinds of machines, as their drivers describe them."""
    return [
        *hardware.fleet(hardware.p4d, 1, "p4d"),
        *hardware.fleet(hardware.dgx_h100, 1, "dgx-h100"),
        *hardware.fleet(hardware.gb200, 1, "gb200"),
    ]


def manifests(folder: Path) -> list[Manifest]:
    """All objects of an example, in the order of its files."""
    return [obj for file in sorted(folder.glob("*.yaml")) for obj in yaml.safe_load_all(file.read_text()) if obj]


def rival_name(claim: str, index: int) -> str:
    """Name of the rival's claim and pod for a replica."""
    return f"{claim}-{index}"


def rivals(claims: list[Manifest]) -> list[Manifest]:
    """The same requests as ordinary ResourceClaims, without a constraint, on machines that are as empty: in a
    namespace of their own."""
    made: list[Manifest] = [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
         "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        for name, expression in (("gpu", GPU), ("nic", NIC))
    ]  # fmt: skip
    for claim in claims:
        requests = [
            {"name": r["name"], "exactly": {"deviceClassName": r.get("device", r["name"]), "count": r.get("count", 1)}}
            for r in claim["spec"]["requests"]
        ]
        for index in range(claim["spec"].get("replicas", 1)):
            name = rival_name(claim["metadata"]["name"], index)
            container = {
                "name": "main",
                "image": "registry.test/workload:1",
                "resources": {"claims": [{"name": "devices"}]},
            }
            pod_claims = [{"name": "devices", "resourceClaimName": name}]
            made += [
                {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                 "metadata": {"name": name, "namespace": RIVAL}, "spec": {"devices": {"requests": requests}}},
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": RIVAL},
                 "spec": {"resourceClaims": pod_claims, "containers": [container]}},
            ]  # fmt: skip
    return made


def roots(plane: ControlPlane) -> dict[tuple[str, str, str], str]:
    """Where each published device sits, by what the ResourceSlices say."""
    return {
        (published["spec"]["driver"], published["spec"]["pool"]["name"], device["name"]):
        device["attributes"].get(ROOT_KEY, {}).get("string", "?")
        for published in plane.request("GET", "/apis/resource.k8s.io/v1/resourceslices")["items"]
        for device in published["spec"]["devices"]
    }  # fmt: skip


def ask_the_scheduler(plane: ControlPlane, claims: list[Manifest]) -> dict[str, tuple[str, list[Device]]]:
    """By claim name: the node and devices that kube-scheduler chooses by itself for the same requests. Leaves
    nothing behind."""
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": RIVAL}})
    account = f"/api/v1/namespaces/{RIVAL}/serviceaccounts"
    eventually(lambda: plane.request("GET", account)["items"], bool, what="the ServiceAccount of the namespace")
    made = rivals(claims)
    asyncio.run(create_objects(plane, [m for m in made if m["kind"] == "DeviceClass"]))
    asyncio.run(create_objects(plane, [m for m in made if m["kind"] == "ResourceClaim"]))
    asyncio.run(create_objects(plane, [m for m in made if m["kind"] == "Pod"]))
    pods_path = f"/api/v1/namespaces/{RIVAL}/pods"
    pods = eventually(
        lambda: plane.request("GET", pods_path)["items"],
        lambda seen: all(one["spec"].get("nodeName") for one in seen),
        what="kube-scheduler binds the same requests",
    )
    nodes = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in pods}
    claims_path = f"/apis/resource.k8s.io/v1/namespaces/{RIVAL}/resourceclaims"
    found = {
        one["metadata"]["name"]: (
            nodes[one["metadata"]["name"]],
            [(r["driver"], r["pool"], r["device"]) for r in one["status"]["allocation"]["devices"]["results"]],
        )
        for one in plane.request("GET", claims_path)["items"]
    }
    plane.request("DELETE", f"/api/v1/namespaces/{RIVAL}")
    for name in ("gpu", "nic"):
        plane.request("DELETE", f"/apis/resource.k8s.io/v1/deviceclasses/{name}")
    eventually(
        lambda: plane.request("GET", "/apis/resource.k8s.io/v1/resourceclaims")["items"],
        lambda seen: not seen,
        what="its claims are gone",
    )
    return found


def _side(node: str, chosen: list[Device], where: Mapping[Device, str]) -> list[str]:
    by_driver = {"gpu.nvidia.com": "", "dra.net": ""}
    for driver, _, device in chosen:
        by_driver[driver] = f"{by_driver[driver]} {device.removeprefix('pci-')}".strip()
    sits = {where.get(device, "?") for device in chosen}
    if len(chosen) < 2:
        locality = "-"
    elif len(sits) == 1 and "?" not in sits:
        locality = "same root"
    else:
        locality = "roots " + " / ".join(sorted(root.removeprefix("pci") for root in sits))
    return [node, by_driver["gpu.nvidia.com"] or "-", by_driver["dra.net"] or "-", locality]


def show(plane: ControlPlane, namespace: str, rival: Mapping[str, tuple[str, list[Device]]]) -> bool:
    """Prints the table; True when every pod that names a claim runs."""
    where = roots(plane)
    table = Table(title="What each pod got, and what kube-scheduler's own allocation gave for the same request")
    for column in ("claim", "pod", "phase", "node", "GPU", "NIC", "locality"):
        table.add_column(column, overflow="fold")
    for column in ("kube-scheduler:\nnode", "GPU", "NIC", "locality"):
        table.add_column(column, overflow="fold", style="dim")
    given: dict[str, list[Device]] = {}
    for one in plane.request("GET", f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]:
        for user in one.get("status", {}).get("reservedFor", []):
            given.setdefault(user["uid"], []).extend(allocated(one))
    running = True
    seen: Counter[str] = Counter()
    for one in plane.request("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=adjoin.dev/claim")["items"]:
        name = one["metadata"]["labels"]["adjoin.dev/claim"]
        phase = one.get("status", {}).get("phase", "Pending")
        running = running and phase == "Running"
        ours = _side(one["spec"].get("nodeName", "-"), given.get(one["metadata"]["uid"], []), where)
        theirs = _side(*rival.get(rival_name(name, seen[name]), ("-", [])), where)
        seen[name] += 1
        table.add_row(name, one["metadata"]["name"], phase, *ours, *theirs)
    console.print(table)
    for one in plane.request("GET", f"/apis/adjoin.dev/v1alpha1/namespaces/{namespace}/deviceclaims")["items"]:
        for reason in one.get("status", {}).get("reasons", []):
            console.print(f"{one['metadata']['name']} waits: {reason['code']}: {reason['message']}")
    return running


def apply(plane: ControlPlane, installation: Installation) -> str:
    """Applies the example as its README says; returns the namespace it lives in."""
    plane.kubectl("apply", "-f", EXAMPLE)
    objects = manifests(EXAMPLE)
    namespace = next((o["metadata"]["namespace"] for o in objects if o["metadata"].get("namespace")), "default")
    eventually(
        lambda: plane.request("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=adjoin.dev/claim")["items"],
        lambda seen: seen and all(one.get("status", {}).get("phase") == "Running" for one in seen),
        what="every pod of the example runs",
    )
    return namespace


def _interrupt(*_: object) -> None:
    """Leaves through the context managers, which end everything. Once: a terminal and `uv run` may both send the
    signal, and a second one would cut the cleaning up short."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _look_around(plane: ControlPlane, namespace: str) -> None:
    """Says how, and waits until somebody has seen enough."""
    kubectl = plane.programs["kubectl"]
    console.print(
        "\nLook around:\n"
        f"  export KUBECONFIG={plane.kubeconfig}\n"
        f"  {kubectl} get dpool,dclaim -A -o wide\n"
        f"  {kubectl} explain dclaim.spec.affinity\n"
        f"  {kubectl} describe dclaim -n {namespace}\n"
        f"  {kubectl} get resourceclaims,devicetaintrules,pods -A\n\n"
        "Up until Ctrl-C.",
        soft_wrap=True,
    )
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    console.print("ended")


def main() -> int:
    """The demo. Returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="exit when the table is printed")
    given = parser.parse_args()
    # Set also where whoever started us in the background had SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.1f} s[/dim]  {text}")

    claims = [o for o in manifests(EXAMPLE) if o["kind"] == "DeviceClaim"]
    try:
        say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok on loopback")
        with ControlPlane(Options(), name="demo") as plane:
            fleet = simulated(machines())
            names = [m["metadata"]["name"] for m in fleet if m["kind"] == "Node"]
            say(f"simulated machines: {', '.join(names)}")
            asyncio.run(create_objects(plane, fleet))
            asyncio.run(wait_nodes_ready(plane, names))
            say("the same requests, first left to kube-scheduler's own allocation")
            rival = ask_the_scheduler(plane, claims)
            say("helm install adjoin-crds, helm install adjoin; adjoin run")
            with installed(plane) as installation:
                installation.start_operator()
                with Recorder(plane) as recorder:
                    say(f"kubectl apply -f {EXAMPLE.relative_to(ROOT)}")
                    namespace = apply(plane, installation)
                    say("all pods run")
                    running = show(plane, namespace, rival)
                    recorder.catch_up()
                    twice = recorder.violations()
                    for problem in twice:
                        console.print(f"[red]{problem}[/red]")
                    console.print(
                        f"{len(recorder.changes)} changes watched; no device was ever in two hands."
                        if not twice
                        else ""
                    )
                if not given.once:
                    _look_around(plane, namespace)
                return 0 if running and not twice else 1
    except KeyboardInterrupt:
        console.print("ended")
        return 0


if __name__ == "__main__":
    sys.exit(main())
