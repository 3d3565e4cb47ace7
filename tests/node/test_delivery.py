"""What a container gets on a real node is what Adjoin has chosen, no more and no less."""

from __future__ import annotations

import pytest
from tests.node.containers import devices_within
from tests.node.node import EXAMPLE_DRIVER, TEST_DRIVER, Driver, Node
from tests.node.pools import chosen, kind, pool
from tests.support.site import Site, pod, reasons
from tests.support.waiting import eventually

BOTH = [pytest.param(EXAMPLE_DRIVER, id="example driver"), pytest.param(TEST_DRIVER, id="Kubernetes' test driver")]


@pytest.mark.parametrize("driver", BOTH)
def test_a_container_has_exactly_the_devices_of_its_claim(site: Site, node: Node, driver: Driver) -> None:
    pool(site, node, driver)
    site.ask("two", {kind(driver): 2})
    site.create(pod("worker", "two"))
    site.wait_running("worker")
    had = chosen(site, "two")
    assert len(had) == 2
    assert devices_within(site.plane, site.namespace, "worker", driver) == had


@pytest.mark.parametrize("driver", BOTH)
def test_pods_on_one_node_never_share_a_device(site: Site, node: Node, driver: Driver) -> None:
    pool(site, node, driver)
    names = ("first", "second", "third", "fourth")
    for name in names:
        site.ask(name, {kind(driver): 1})
        site.create(pod(name, name))
    for name in names:
        site.wait_running(name)
    within = {name: devices_within(site.plane, site.namespace, name, driver) for name in names}
    assert within == {name: chosen(site, name) for name in names}
    assert len({device for devices in within.values() for device in devices}) == driver.devices

    site.ask("late", {kind(driver): 1})
    site.create(pod("late", "late"))
    waiting = eventually(lambda: site.claim("late"), reasons, what="a reason")
    assert set(reasons(waiting)) == {"InsufficientDevices"}
    site.delete("DeviceClaim", "second")
    site.wait_running("late")
    assert devices_within(site.plane, site.namespace, "late", driver) == within["second"]


def test_a_pod_has_devices_of_two_drivers(site: Site, node: Node) -> None:
    # The example driver cannot read a ResourceClaim in which another driver's devices are.
    pool(site, node, EXAMPLE_DRIVER, TEST_DRIVER, delivery={"split": "Driver"})
    site.ask("mixed", {kind(EXAMPLE_DRIVER): 1, kind(TEST_DRIVER): 3})
    site.create(pod("worker", "mixed"))
    site.wait_running("worker")
    for driver, count in ((EXAMPLE_DRIVER, 1), (TEST_DRIVER, 3)):
        within = devices_within(site.plane, site.namespace, "worker", driver)
        assert len(within) == count
        assert within == chosen(site, "mixed", kind(driver))


def test_containers_have_only_the_requests_that_the_pod_gives_them(site: Site, node: Node) -> None:
    pool(site, node, TEST_DRIVER)
    request = {"device": kind(TEST_DRIVER)}
    site.ask("split", [{"name": "compute", "count": 2, **request}, {"name": "feed", "count": 1, **request}])
    manifest = pod(
        "worker",
        "split",
        annotations={"adjoin.dev/containers": '{"trainer": ["compute", "feed"], "loader": ["feed"]}'},
    )
    (main,) = manifest["spec"]["containers"]
    manifest["spec"]["containers"] = [{**main, "name": name} for name in ("trainer", "loader", "sidecar")]
    site.create(manifest)
    site.wait_running("worker")
    within = {
        name: devices_within(site.plane, site.namespace, "worker", TEST_DRIVER, container=name)
        for name in ("trainer", "loader", "sidecar")
    }
    assert within == {
        "trainer": chosen(site, "split"),
        "loader": chosen(site, "split", "feed"),
        "sidecar": [],
    }
