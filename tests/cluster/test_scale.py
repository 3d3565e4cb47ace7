"""Many claims at once, on few and on many machines, with the operator killed in the middle: all pods run, nothing is
held twice, nothing leaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from tests.benchmarks.bind_rate import create_pairs, device_claim, pool, prepare, wait_pool
from tests.controlplane.options import Options
from tests.controlplane.server import ControlPlane
from tests.support.double_use import Recorder, allocated, held
from tests.support.installation import Installation, installed
from tests.support.site import pod
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
CLAIMS = 200
PATIENCE = 300.0


@pytest.fixture(scope="module", params=[50, 1000], ids=["50 nodes", "1000 nodes"])
def busy_cluster(request: pytest.FixtureRequest) -> Iterator[tuple[Installation, int]]:
    """A cluster of its own: the number of nodes is what is tested."""
    nodes = request.param
    with ControlPlane(Options(node_lease_seconds=600), name=f"scale-{nodes}") as plane:
        prepare(plane, nodes)
        with installed(plane) as installation:
            installation.start_operator()
            plane.request("POST", "/apis/adjoin.dev/v1alpha1/devicepools", pool())
            wait_pool(plane, nodes)
            yield installation, nodes


def items(plane: ControlPlane, path: str) -> list[dict]:  # type: ignore[type-arg]
    """All objects at a path."""
    return plane.request("GET", path)["items"]  # type: ignore[no-any-return]


CLAIMS_PATH = "/apis/adjoin.dev/v1alpha1/namespaces/default/deviceclaims"
RESOURCE_CLAIMS_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS_PATH = "/api/v1/namespaces/default/pods"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "operator killed in the middle"])
def test_a10_two_hundred_pairs_at_once(busy_cluster: tuple[Installation, int], killed: bool) -> None:
    """Every pod runs on the node of its pair; then everything is deleted and every device is free again."""
    installation, nodes = busy_cluster
    plane = installation.plane
    names = [f"c-{i}" for i in range(CLAIMS)]
    try:
        with Recorder(plane) as recorder:
            asyncio.run(create_pairs(plane, [(device_claim(name), pod(name, name)) for name in names]))
            if killed:
                eventually(
                    lambda: sum(bool(one["spec"].get("nodeName")) for one in items(plane, PODS_PATH)),
                    lambda bound: bound >= CLAIMS // 10,
                    what="some pods are bound",
                    seconds=PATIENCE,
                )
                installation.operators[-1].kill()
                time.sleep(1)
                installation.start_operator()
            eventually(
                lambda: sum(one.get("status", {}).get("phase") == "Running" for one in items(plane, PODS_PATH)),
                lambda running: running == CLAIMS,
                what="all pods run",
                seconds=PATIENCE,
            )
            claims = {one["metadata"]["name"]: one for one in items(plane, CLAIMS_PATH)}
            given = {one["metadata"]["labels"]["adjoin.dev/claim"]: one for one in items(plane, RESOURCE_CLAIMS_PATH)}
            for one in items(plane, PODS_PATH):
                name = one["metadata"]["labels"]["adjoin.dev/claim"]
                (replica,) = claims[name]["status"]["allocation"]["replicas"]
                assert one["spec"]["nodeName"] == replica["node"]
                assert sorted(held(claims[name])) == sorted(allocated(given[name]))
            assert len({device for claim in claims.values() for device in held(claim)}) == 2 * CLAIMS
            plane.request("DELETE", PODS_PATH)
            plane.request("DELETE", CLAIMS_PATH)
            eventually(
                lambda: len(items(plane, CLAIMS_PATH)) + len(items(plane, RESOURCE_CLAIMS_PATH)),
                lambda left: left == 0,
                what="no claim and no ResourceClaim is left",
                seconds=PATIENCE,
            )
            recorder.catch_up(60)
        assert recorder.violations() == []
        wait_pool(plane, nodes)
    except BaseException:
        plane.failed = True
        raise
