"""Every example, applied to a real control plane as its README says, ends as its plan says."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.controlplane.nodes import create_objects, simulated_node, wait_nodes_ready
from tests.controlplane.options import Options
from tests.controlplane.server import ControlPlane
from tests.support.double_use import Recorder
from tests.support.installation import ROOT, Installation, installed
from tests.support.site import PATHS, simulated
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/README.md"))
CLAIMS = "/apis/adjoin.dev/v1alpha1/deviceclaims"
Manifest = dict[str, Any]


def load(folder: Path) -> list[Manifest]:
    """All objects in a folder's files."""
    found = [obj for file in sorted(folder.glob("*.yaml")) for obj in yaml.safe_load_all(file.read_text()) if obj]
    return [item for obj in found for item in (obj["items"] if obj["kind"].endswith("List") else [obj])]


def planned(example: Path) -> dict[str, Manifest]:
    """What `adjoin plan` says of the example's claims, by name."""
    files = ["-f", str(example), *(["-f", str(example / "machines")] if (example / "machines").is_dir() else [])]
    done = subprocess.run(
        [sys.executable, "-m", "adjoin", "plan", *files, "-o", "json"], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    return {claim["name"]: claim for claim in json.loads(done.stdout)["claims"]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Installation]:
    """A cluster of its own: the examples' pools take every machine there is."""
    with ControlPlane(Options(), name="examples") as plane, installed(plane) as installation:
        installation.start_operator()
        yield installation


def machines(example: Path, pools: list[Manifest]) -> list[Manifest]:
    """The example's machines; for static devices the nodes that the pool names."""
    made = simulated(load(example / "machines")) if (example / "machines").is_dir() else []
    static = {
        node["name"]
        for pool in pools
        for device in pool["spec"]["devices"]
        for node in device["source"].get("static", {}).get("nodes", [])
    }
    there = {obj["metadata"]["name"] for obj in made if obj["kind"] == "Node"}
    return made + [simulated_node(name) for name in sorted(static - there)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_ends_on_a_cluster_as_its_plan_says(cluster: Installation, example: Path) -> None:
    """Claims that the plan places are placed, equally near, and their pods run; the others wait for the same
    reasons."""
    plane, objects = cluster.plane, load(example)
    fleet = machines(example, [obj for obj in objects if obj["kind"] == "DevicePool"])
    asyncio.run(create_objects(plane, fleet))
    try:
        asyncio.run(wait_nodes_ready(plane, [obj["metadata"]["name"] for obj in fleet if obj["kind"] == "Node"]))
        with Recorder(plane) as recorder:
            plane.kubectl("apply", "-f", example)
            try:
                ends_as_planned(plane, planned(example), example.name)
            finally:
                plane.kubectl("delete", "-f", example, "--timeout=120s", timeout=150)
            eventually(lambda: plane.request("GET", CLAIMS)["items"], lambda left: not left, what="no claim is left")
            recorder.catch_up()
        assert recorder.violations() == []
    finally:
        for obj in fleet:
            root, plural, _ = PATHS[obj["kind"]]
            plane.request("DELETE", f"{root}/{plural}/{obj['metadata']['name']}")


def ends_as_planned(plane: ControlPlane, expected: dict[str, Manifest], example: str) -> None:
    """Waits until claims are as planned and the pods of those that are complete run."""

    def seen() -> dict[str, Manifest]:
        return {claim["metadata"]["name"]: claim.get("status", {}) for claim in plane.request("GET", CLAIMS)["items"]}

    def as_planned(found: dict[str, Manifest]) -> bool:
        for name, plan in expected.items():
            status = found.get(name, {})
            near = sorted(json.dumps(r["locality"], sort_keys=True) for r in plan["replicas"])
            got = status.get("allocation", {}).get("replicas", [])
            if sorted(json.dumps(r.get("locality", {}), sort_keys=True) for r in got) != near:
                return False
            if sorted(len(r["devices"]) for r in got) != sorted(len(r["devices"]) for r in plan["replicas"]):
                return False
            if {r["code"] for r in status.get("reasons", [])} != {r["code"] for r in plan["reasons"]}:
                return False
        return True

    eventually(seen, as_planned, what=f"claims of {example} as planned: {expected}")
    complete = {name for name, plan in expected.items() if not plan["reasons"]}
    eventually(
        lambda: plane.request("GET", "/api/v1/namespaces/default/pods?labelSelector=adjoin.dev/claim")["items"],
        lambda pods: all(
            pod.get("status", {}).get("phase") in ("Running", "Succeeded")
            for pod in pods
            if pod["metadata"]["labels"]["adjoin.dev/claim"] in complete
        ),
        what="pods of complete claims run",
    )
