"""Shares and what nodes use, on a control plane of their own with a metrics API that the test answers for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane import ControlPlane, Options
from tests.support.double_use import Recorder
from tests.support.installation import USERNAME, Installation, Operator, installed
from tests.support.metrics_api import nodes_served
from tests.support.site import Site, devices, simulated
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
Manifest = dict[str, Any]
QUIET_SECONDS = 20.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    made = ControlPlane(Options(audit=True), name="loads", report=lambda line: print(line, file=sys.stderr))
    with made:
        yield made


@pytest.fixture(scope="module")
def adjoin(plane: ControlPlane) -> Iterator[Installation]:
    with installed(plane) as made:
        yield made


@pytest.fixture(scope="module")
def operator(adjoin: Installation) -> Operator:
    """It reads what nodes use every second."""
    return adjoin.start_operator("--node-metrics-seconds=1")


@pytest.fixture
def site(operator: Operator, plane: ControlPlane) -> Iterator[Site]:
    """A corner of the test's own; a watcher looks for double use as long as it lasts."""
    with Recorder(plane) as recorder:
        made = Site.open(plane, "loads")
        yield made
        made.close()
        recorder.catch_up()
    assert recorder.violations() == []


def machines(site: Site, *names: str) -> list[str]:
    """Nodes with ten cores and a card each, and a pool and a share of these."""
    found = [f"{site.namespace}-{name}" for name in names]
    room = {"cpu": "10", "memory": "64Gi", "pods": "110"}
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": room, "capacity": room},
        }
        for name in found
    ]
    site.fill(simulated(objects, {"site": site.namespace}))
    site.nodes_ready(*found)
    cards = [{"name": name, "devices": [{"name": "gpu-0", "capacity": {"memory": "80Gi"}}]} for name in found]
    source = {"static": {"nodes": cards}}
    site.pool(devices=[{"name": "gpu", "type": "GPU", "source": source}], delivery={"guard": "None"})
    site.create(
        {
            "apiVersion": "adjoin.dev/v1alpha1",
            "kind": "DeviceShare",
            "metadata": {"name": site.namespace},
            "spec": {"poolRef": {"name": site.namespace}, "device": "gpu", "mode": "Fractional"},
        }
    )
    return found


def where(site: Site, name: str) -> str:
    """The node of a claim for a quarter of a card, once it has one."""
    site.ask(name, [{"name": "gpu", "share": {"name": site.namespace, "memory": "16Gi"}}])
    found = eventually(lambda: site.claim(name), devices, what=f"{name} has a part")
    return devices(found)[0][1]


def number(operator: Operator, metric: str) -> float:
    lines = operator.get("/metrics")[1].splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{metric} ")), -1.0)


def test_a_shared_claim_goes_to_the_calm_node_and_without_measurements_by_the_other_rules(
    site: Site, operator: Operator, plane: ControlPlane, tmp_path: Path
) -> None:
    """As fits: beside others on the fuller card. And while nodes are measured but none becomes loaded or calm, nothing
    is written."""
    one, two = machines(site, "n1", "n2")
    assert number(operator, "adjoin_nodes_measured") == 0
    assert where(site, "first") == one
    with nodes_served(plane, tmp_path) as api:
        api.cpu.update({one: "9", two: "1"})
        eventually(lambda: number(operator, "adjoin_nodes_loaded"), lambda seen: seen == 1, what="n1 is loaded")
        assert where(site, "second") == two
        api.cpu.update({one: "1", two: "9"})
        eventually(
            lambda: (number(operator, "adjoin_nodes_loaded"), where_again(site, one)), lambda seen: seen[1], what="calm"
        )
        time.sleep(5)
        began = datetime.now(UTC)
        for turn in range(int(QUIET_SECONDS)):
            api.cpu.update({one: f"{1 + turn % 5}", two: f"{8500 + turn}m"})
            time.sleep(1)
        writes = [each for each in plane.writes(user=USERNAME, since=began) if each.resource != "leases"]
        assert writes == []
        assert 0 <= number(operator, "adjoin_node_metrics_age_seconds") < 30
    eventually(lambda: number(operator, "adjoin_nodes_measured"), lambda seen: seen == 0, what="nobody measures")
    assert [devices(site.claim(name))[0][1] for name in ("first", "second")] == [one, two]
    # n1 has two parts and n2 one: by itself a part goes where most is in use already.
    assert where(site, "last") == one
    assert operator.process.poll() is None


_asked = iter(range(1_000))


def where_again(site: Site, node: str) -> bool:
    """Whether a claim that comes now goes to a node; it is deleted again where it does not."""
    name = f"probe-{next(_asked)}"
    if where(site, name) == node:
        return True
    site.delete("DeviceClaim", name)
    site.wait_gone("DeviceClaim", name)
    return False
