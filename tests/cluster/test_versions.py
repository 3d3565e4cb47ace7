"""Charts of two versions side by side: with definitions of another version the operator says so and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.controlplane import ControlPlane
from tests.support.installation import ROOT, Installation, installed
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
Manifest = dict[str, Any]
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/devicepools.adjoin.dev"
POOL = {
    "apiVersion": "adjoin.dev/v1alpha1",
    "kind": "DevicePool",
    "metadata": {"name": "old"},
    "spec": {"devices": [{"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.nvidia.com"}}}]},
}


def change_definition(plane: ControlPlane, change: Callable[[Manifest], None]) -> None:
    """Puts another version of the DevicePool's definition there."""
    crd = plane.request("GET", CRD)
    crd["metadata"]["annotations"]["adjoin.dev/schema"] = "another"
    change(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])
    plane.request("PUT", CRD, crd)


def warnings(installation: Installation) -> list[str]:
    """What the last operator warned of."""
    lines = (json.loads(line) for line in installation.operators[-1].log.read_text().splitlines() if line[:1] == "{")
    return [line["event"] for line in lines if line["level"] == "warning"]


def test_e7_an_operator_ahead_of_its_definitions_waits_and_one_behind_them_works() -> None:
    """The upgrade in the wrong order, then in the right one; objects of before stay valid throughout."""
    with ControlPlane(name="versions") as plane, installed(plane) as installation:
        first = installation.start_operator()
        plane.request("POST", "/apis/adjoin.dev/v1alpha1/devicepools", POOL)
        first.stop()

        change_definition(plane, lambda spec: spec.pop("topology"))
        second = installation.start_operator(wait=False)
        _, text = eventually(
            lambda: second.get("/readyz"), lambda seen: "older" in seen[1], what="the operator says what is wrong"
        )
        for word in ("devicepools.adjoin.dev", "spec.topology", "upgrade the chart adjoin-crds"):
            assert word in text
        assert second.get("/readyz")[0] == 503
        assert second.get("/healthz")[0] == 200, "waiting is no reason to be restarted"
        assert second.process.poll() is None

        for path in sorted((ROOT / "crds").glob("*.yaml")):
            plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
        second.wait_ready()
        assert not [line for line in warnings(installation) if "CRD" in line]
        second.stop()

        change_definition(plane, lambda spec: spec.update(colour={"type": "string"}))
        installation.start_operator()
        assert [line for line in warnings(installation) if "newer" in line]
        seen = eventually(
            lambda: plane.request("GET", "/apis/adjoin.dev/v1alpha1/devicepools/old"),
            lambda pool: pool.get("status", {}).get("conditions"),
            what="the pool of before is looked after",
        )
        assert seen["spec"]["devices"][0]["name"] == "gpu"
