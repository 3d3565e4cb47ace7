"""A kubelet, a driver or a node that goes away: running claims stay as they are, new ones wait and are served later."""

from __future__ import annotations

from typing import Any

from tests.node import journal
from tests.node.containers import devices_within
from tests.node.node import TEST_DRIVER, Node
from tests.node.pools import chosen, kind, pool
from tests.support.double_use import Recorder, held
from tests.support.site import Site, pod, reasons
from tests.support.waiting import eventually, steadily

from adjoin.cache import LINGER_SECONDS

DEVICE = kind(TEST_DRIVER)


def running(site: Site, name: str) -> tuple[str, str, int]:
    """What is another when a pod or its container is another: UID, container, restarts."""
    found = site.wait_running(name)
    (status,) = found["status"]["containerStatuses"]
    return found["metadata"]["uid"], status["containerID"], status["restartCount"]


def holdings(recorder: Recorder, site: Site, claim: str) -> set[tuple[Any, ...]]:
    """Every set of devices that a DeviceClaim has held since it held any."""
    uid = site.claim(claim)["metadata"]["uid"]
    recorder.catch_up()
    ours = [tuple(sorted(held(change.obj))) for change in recorder.changes if change.obj["metadata"]["uid"] == uid]
    return set(ours) - {()}


def slices_gone(site: Site, node: Node) -> None:
    eventually(lambda: node.published(TEST_DRIVER), lambda found: not found, what="no ResourceSlice of the driver")


def test_a_restart_of_the_kubelet_leaves_running_claims_alone(site: Site, node: Node, recorder: Recorder) -> None:
    """It deletes all ResourceSlices of its node when it begins; drivers publish them again some time later."""
    pool(site, node, TEST_DRIVER)
    site.ask("kept", {DEVICE: 2})
    site.create(pod("worker", "kept"))
    before = running(site, "worker")
    had = chosen(site, "kept")

    node.stop_kubelet()
    node.start_kubelet()
    slices_gone(site, node)
    site.ask("late", {DEVICE: 1})
    site.create(pod("late", "late"))
    assert chosen(site, "kept") == had
    node.wait_published(TEST_DRIVER)
    site.wait_running("late")

    assert running(site, "worker") == before
    assert devices_within(site.plane, site.namespace, "worker", TEST_DRIVER) == had
    assert len(holdings(recorder, site, "kept")) == 1
    assert not set(chosen(site, "late")) & set(had)


def test_new_claims_wait_for_a_driver_that_is_gone(site: Site, node: Node, recorder: Recorder) -> None:
    pool(site, node, TEST_DRIVER)
    site.ask("kept", {DEVICE: 1})
    site.create(pod("worker", "kept"))
    before = running(site, "worker")

    node.stop_driver(TEST_DRIVER)
    slices_gone(site, node)
    site.ask("late", {DEVICE: 1})
    site.create(pod("late", "late"))
    waiting = eventually(lambda: site.claim("late"), reasons, what="a reason")
    # The API holds nothing any more that tells a driver which is away from one that was never there.
    assert set(reasons(waiting)) & {"DriverUnavailable", "InsufficientDevices"}
    counts = eventually(
        lambda: site.all("DevicePool")[0]["status"]["devices"][DEVICE],
        lambda seen: seen["missing"] == 1,
        what="the device that is held is missing",
    )
    assert (counts["free"], counts["allocated"]) == (0, 0)
    node.start_driver(TEST_DRIVER)
    site.wait_running("late")

    assert devices_within(site.plane, site.namespace, "late", TEST_DRIVER) == chosen(site, "late")
    assert running(site, "worker") == before
    assert len(holdings(recorder, site, "kept")) == 1


def test_a_pod_bound_while_the_driver_is_down_starts_with_its_devices_when_it_returns(site: Site, node: Node) -> None:
    """For half a minute nobody can tell that the driver is down: its ResourceSlices are still there."""
    pool(site, node, TEST_DRIVER)
    node.stop_driver(TEST_DRIVER)
    site.ask("early", {DEVICE: 2})
    site.create(pod("early", "early"))
    eventually(
        lambda: site.get("Pod", "early"),
        lambda found: found is not None and found["spec"].get("nodeName") == node.name,
        what="the pod bound",
    )
    had = chosen(site, "early")
    node.start_driver(TEST_DRIVER)
    site.wait_running("early")
    assert chosen(site, "early") == had
    assert devices_within(site.plane, site.namespace, "early", TEST_DRIVER) == had


def test_the_container_of_a_force_deleted_pod_has_ended_before_another_begins_whatever_the_driver_does(
    site: Site, node: Node
) -> None:
    """The driver is down, so the kubelet cannot unprepare what the container had; the container itself it can end.

    So the devices stay with their claim until the driver has been back for as long as the kubelet may take.
    """
    journal.clear(node)
    pool(site, node, TEST_DRIVER)
    site.ask("all", {DEVICE: TEST_DRIVER.devices})
    site.create(journal.worker("worker", "all"))
    site.wait_running("worker")
    node.stop_driver(TEST_DRIVER)
    site.delete("Pod", "worker", gracePeriodSeconds=0)
    site.delete("DeviceClaim", "all")
    site.ask("next", {DEVICE: TEST_DRIVER.devices})
    site.create(journal.worker("successor", "next"))
    slices_gone(site, node)
    steadily(
        lambda: site.claim("all"),
        lambda held: held["status"]["phase"] == "Releasing",
        seconds=LINGER_SECONDS + 5,
        what="the claim keeps what the kubelet has not given back",
    )
    node.start_driver(TEST_DRIVER)
    site.wait_gone("DeviceClaim", "all")
    site.wait_running("successor")
    assert len(devices_within(site.plane, site.namespace, "successor", TEST_DRIVER)) == TEST_DRIVER.devices
    lines = [(line.who, line.what) for line in journal.read(node)]
    assert lines == [("worker", "begin"), ("worker", "end"), ("successor", "begin")]


def test_claims_of_a_lost_node_end_and_a_new_machine_of_its_name_serves(site: Site, node: Node) -> None:
    """The machine is gone with all that ran on it, and somebody says so by deleting the Node object."""
    pool(site, node, TEST_DRIVER)
    site.ask("lost", {DEVICE: TEST_DRIVER.devices})
    site.create(pod("worker", "lost"))
    site.wait_running("worker")

    node.stop()
    site.plane.request("DELETE", f"/api/v1/nodes/{node.name}")
    site.wait_gone("Pod", "worker")
    site.delete("DeviceClaim", "lost")
    site.wait_gone("DeviceClaim", "lost")
    site.ask("late", {DEVICE: TEST_DRIVER.devices})
    site.create(pod("late", "late"))
    eventually(lambda: site.claim("late"), reasons, what="a reason")

    node.start()
    node.start_driver(TEST_DRIVER)
    site.wait_running("late")
    assert len(devices_within(site.plane, site.namespace, "late", TEST_DRIVER)) == TEST_DRIVER.devices
