"""When a device is free again on a real node: not before the kubelet has let go of it, and then for the next."""

from __future__ import annotations

import pytest
from tests.node.calls import Call, Verb
from tests.node.containers import devices_within
from tests.node.node import EXAMPLE_DRIVER, TEST_DRIVER, Driver, Node
from tests.node.pools import chosen, kind, pool
from tests.support.site import Site, pod
from tests.support.waiting import eventually

BOTH = [pytest.param(EXAMPLE_DRIVER, id="example driver"), pytest.param(TEST_DRIVER, id="Kubernetes' test driver")]


def resource_claim_uids(site: Site) -> set[str]:
    """Of the ResourceClaims that are there now."""
    return {found["metadata"]["uid"] for found in site.all("ResourceClaim")}


@pytest.mark.parametrize("driver", BOTH)
def test_devices_of_a_deleted_pod_are_unprepared_and_given_to_the_next(site: Site, node: Node, driver: Driver) -> None:
    pool(site, node, driver)
    site.ask("all", {kind(driver): driver.devices})
    site.create(pod("worker", "all"))
    site.wait_running("worker")
    before = resource_claim_uids(site)
    assert node.prepared(driver) == before

    site.ask("next", {kind(driver): driver.devices})
    site.create(pod("successor", "next"))
    site.delete("DeviceClaim", "all")
    site.wait_gone("Pod", "worker")
    site.wait_running("successor")
    assert len(devices_within(site.plane, site.namespace, "successor", driver)) == driver.devices
    assert node.prepared(driver) == resource_claim_uids(site)
    assert not node.prepared(driver) & before


def test_devices_of_a_force_deleted_pod_wait_for_the_kubelet(site: Site, node: Node) -> None:
    """The API forgets such a pod at once, while its containers still run: here they do not even listen to SIGTERM."""
    pool(site, node, TEST_DRIVER)
    site.ask("all", {kind(TEST_DRIVER): TEST_DRIVER.devices})
    stubborn = pod("worker", "all")
    stubborn["spec"]["containers"][0]["command"] = ["sh", "-c", "trap '' TERM; while true; do sleep 1; done"]
    site.create(stubborn)
    site.wait_running("worker")
    (given,) = resource_claim_uids(site)

    site.ask("next", {kind(TEST_DRIVER): TEST_DRIVER.devices})
    site.create(pod("successor", "next"))
    site.delete("Pod", "worker", gracePeriodSeconds=0)
    site.delete("DeviceClaim", "all")
    site.wait_gone("Pod", "worker")
    site.wait_running("successor")
    (taken,) = resource_claim_uids(site)
    ours = [call for call in node.calls(TEST_DRIVER) if call.claims & {given, taken}]
    order = [
        Call(Verb.PREPARE, frozenset({given})),
        Call(Verb.UNPREPARE, frozenset({given})),
        Call(Verb.PREPARE, frozenset({taken})),
    ]
    assert list(dict.fromkeys(ours)) == order


def test_a_replacement_of_a_force_deleted_pod_keeps_the_devices_and_waits_its_turn(site: Site, node: Node) -> None:
    pool(site, node, TEST_DRIVER)
    site.ask("kept", {kind(TEST_DRIVER): 2})
    site.create(pod("worker", "kept"))
    site.wait_running("worker")
    had = chosen(site, "kept")
    (given,) = resource_claim_uids(site)
    site.delete("Pod", "worker", gracePeriodSeconds=0)
    site.create(pod("replacement", "kept"))
    site.wait_running("replacement")
    assert chosen(site, "kept") == had
    assert devices_within(site.plane, site.namespace, "replacement", TEST_DRIVER) == had
    # That its devices were unprepared for the first pod by then, the end of every test checks by all calls.
    assert given not in node.prepared(TEST_DRIVER)


def test_a_container_that_restarts_keeps_its_devices(site: Site, node: Node) -> None:
    pool(site, node, EXAMPLE_DRIVER)
    site.ask("kept", {kind(EXAMPLE_DRIVER): 2})
    site.create(pod("worker", "kept"))
    site.wait_running("worker")
    had = devices_within(site.plane, site.namespace, "worker", EXAMPLE_DRIVER)
    # The first process of the container is the shell that waits for signals; what runs beside it dies with it.
    site.plane.kubectl("exec", f"--namespace={site.namespace}", "worker", "--", "sh", "-c", "kill -TERM 1", check=False)
    eventually(
        lambda: site.wait_running("worker")["status"]["containerStatuses"][0],
        lambda status: status["restartCount"] == 1 and status["ready"],
        what="the container restarted",
    )
    assert devices_within(site.plane, site.namespace, "worker", EXAMPLE_DRIVER) == had == chosen(site, "kept")
