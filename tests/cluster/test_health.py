"""Health on a real control plane: taints by DeviceTaintRule, drivers that fall silent, nodes that go or start anew."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import hardware
from tests.support.installation import NAMESPACE
from tests.support.site import Site, condition, devices, pod, reasons
from tests.support.waiting import eventually, steadily

from adjoin.cli.main import main

pytestmark = pytest.mark.cluster

XID = "gpu.nvidia.com/xid"
TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
TEMPLATE = {
    "spec": {"containers": [{"name": "main", "image": "registry.test/hook:1"}], "tolerations": [TOLERATION]},
}
NOWHERE = {"spec": {**TEMPLATE["spec"], "nodeSelector": {"no-such-label": "x"}}}
"""No node takes such a pod, so its Job runs into its deadline."""
VERIFY = {"name": "verify", "template": TEMPLATE}
SCRUB = {"name": "scrub", "template": TEMPLATE}
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


def rule(site: Site, device: str, value: str, effect: str = "NoSchedule", node: str = "") -> dict[str, Any]:
    """A DeviceTaintRule of somebody else's on one GPU."""
    selector = {"driver": "gpu.nvidia.com", "pool": node or f"{site.namespace}-n0", "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"{site.namespace}-{device}"},
        "spec": {"deviceSelector": selector, "taint": {"key": XID, "value": value, "effect": effect}},
    }


def seen_pool(site: Site) -> dict[str, Any]:
    found = site.get("DevicePool", site.namespace)
    assert found is not None
    return found["status"]


def quarantined(site: Site) -> dict[str, str]:
    return {each["device"]: each["reason"] for each in seen_pool(site).get("quarantined", [])}


def gpus(site: Site) -> dict[str, int]:
    return {key: count for key, count in seen_pool(site)["devices"]["gpu"].items() if count}


def told(site: Site, reason: str, about: str) -> list[str]:
    """Notes of Events about an object of that name, wherever they are."""
    listed = site.find("/apis/events.k8s.io/v1/events")
    return [
        each["note"]
        for each in (listed or {"items": []})["items"]
        if each["reason"] == reason and each["regarding"]["name"] == about
    ]


def test_c23_a_rule_puts_a_held_device_into_quarantine_where_it_stays_until_somebody_vouches(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The claim keeps it, and its pod runs on; the taint's end alone does not bring it back."""
    site.machines(hardware.two_roots)
    rules = [{"taintKey": XID, "values": ["109"], "action": "QuarantineUntilReset"}]
    site.pool(health={"rules": rules, "recovery": "Manual"})
    site.ask("one", {"gpu": 1})
    site.create(pod("one", "one"))
    site.wait_running("one")
    ((_, node, device),) = devices(site.wait_phase("one", "InUse"))
    site.create(rule(site, device, "109"))
    eventually(lambda: quarantined(site), lambda found: found == {device: "NeedsReset"}, what="it is in quarantine")
    claim = eventually(
        lambda: site.claim("one"), lambda seen: condition(seen, "DeviceUnhealthy"), what="the claim's condition"
    )
    assert claim["status"]["phase"] == "InUse"
    (entry,) = seen_pool(site)["quarantined"]
    assert (entry["owner"], entry["claim"]) == (f"health rule {XID}", f"{site.namespace}/one")
    site.delete("DeviceTaintRule", f"{site.namespace}-{device}")
    site.delete("DeviceClaim", "one")
    site.wait_gone("DeviceClaim", "one")
    eventually(lambda: gpus(site), lambda seen: seen == {"capacity": 4, "free": 3, "unhealthy": 1}, what="counts")
    config = str(site.plane.kubeconfig)
    assert main(["release-quarantine", f"{node}/gpu-9", "--reason", "x", "--kubeconfig", config]) == 2
    assert f"{node}/{device} (NeedsReset)" in capsys.readouterr().err
    assert main(["release-quarantine", f"{node}/{device}", "--reason", "card reseated", "--kubeconfig", config]) == 0
    eventually(lambda: gpus(site), lambda seen: seen == {"capacity": 4, "free": 4}, what="all are free")
    eventually(
        lambda: told(site, "QuarantineLifted", site.namespace),
        lambda notes: any("card reseated" in note for note in notes),
        what="the Event with the reason",
    )
    annotations = site.get("DevicePool", site.namespace)["metadata"].get("annotations", {})  # type: ignore[index]
    assert "adjoin.dev/release-quarantine" not in annotations


def test_c25_a_taint_that_a_rule_excuses_evicts_nobody_and_is_told(site: Site) -> None:
    """Kubernetes evicts for a NoExecute taint who does not tolerate it; the allocation says that ours do."""
    site.machines(hardware.two_roots)
    site.pool(health={"rules": [{"taintKey": XID, "values": ["94"], "action": "Event"}]})
    site.ask("one", {"gpu": 1})
    site.create(pod("one", "one"))
    site.wait_running("one")
    ((_, _, device),) = devices(site.wait_phase("one", "InUse"))
    site.create(rule(site, device, "94", effect="NoExecute"))
    eventually(lambda: told(site, "DeviceTainted", "one"), bool, what="the Event on the claim")
    assert len(told(site, "DeviceTainted", site.namespace)) == 1
    steadily(
        lambda: site.get("Pod", "one"),
        lambda found: found is not None and not found["metadata"].get("deletionTimestamp"),
        what="the pod runs on",
        seconds=5,
    )
    assert not condition(site.claim("one"), "DeviceUnhealthy")
    assert quarantined(site) == {}


def test_c17_c26_slices_that_go_and_come_touch_no_claim(site: Site) -> None:
    (node,) = site.machines(hardware.two_roots)
    site.pool()
    site.ask("one", {"gpu": 1})
    site.create(pod("one", "one"))
    site.wait_running("one")
    before = site.wait_phase("one", "InUse")["metadata"]["resourceVersion"]
    slices = [each for each in site.all("ResourceSlice") if each["spec"].get("nodeName") == node]
    for each in slices:
        site.delete("ResourceSlice", each["metadata"]["name"])
    site.ask("two", {"gpu": 1})
    eventually(lambda: gpus(site), lambda seen: seen == {"capacity": 1, "missing": 1}, what="only what is held is left")
    eventually(lambda: len(seen_pool(site).get("silent", [])), lambda count: count == 2, what="both drivers are silent")
    site.wait_phase("two", "Pending")
    for each in slices:
        again = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": each["spec"]}
        site.create({**again, "metadata": {"name": each["metadata"]["name"]}})
    site.wait_phase("two", "Ready")
    eventually(lambda: gpus(site), lambda seen: seen == {"capacity": 4, "free": 2, "allocated": 2}, what="all are back")
    eventually(lambda: seen_pool(site), lambda seen: "silent" not in seen, what="no driver is silent")
    assert site.claim("one")["metadata"]["resourceVersion"] == before


def test_c17_a_driver_that_stays_away_is_named_after_the_grace(site: Site) -> None:
    (node,) = site.machines(hardware.two_roots)
    site.pool(health={"driverGrace": "3s"})
    for each in site.all("ResourceSlice"):
        if each["spec"].get("nodeName") == node and each["spec"]["driver"] == "gpu.nvidia.com":
            site.delete("ResourceSlice", each["metadata"]["name"])
    site.ask("one", {"gpu": 1})
    claim = eventually(
        lambda: site.claim("one"), lambda seen: "DriverUnavailable" in reasons(seen), what="the driver is named"
    )
    assert reasons(claim)["DriverUnavailable"] == f"incomplete inventory: gpu.nvidia.com/{node}: no ResourceSlices"


def test_c29_a_node_that_is_deleted_lets_its_claim_go(site: Site) -> None:
    (node,) = site.machines(hardware.two_roots)
    site.pool(lifecycle={"cleanup": [SCRUB]})
    site.ask("one", {"gpu": 1})
    site.create(pod("one", "one"))
    site.wait_running("one")
    site.wait_phase("one", "InUse")
    site.delete("Node", node)
    site.delete("DeviceClaim", "one")
    site.delete("Pod", "one", gracePeriodSeconds=0)
    site.wait_gone("DeviceClaim", "one")
    eventually(lambda: told(site, "CleanupSkipped", "one"), bool, what="the Event that nothing was cleaned")


def test_c18_a_node_that_was_started_anew_has_its_devices_verified_again(site: Site) -> None:
    (node,) = site.machines(hardware.two_roots)
    first, boot = "00000000-1111-2222-3333-444444444444", "11111111-2222-3333-4444-555555555555"
    site.patch("Node", node, {"status": {"nodeInfo": {"bootID": first}}}, subresource="status")
    site.pool(lifecycle={"init": [VERIFY]})
    site.ask("one", {"gpu": 1})
    claim = site.wait_phase("one", "Ready")
    (replica,) = claim["status"]["allocation"]["replicas"]
    assert replica["bootID"] == first
    site.patch("Node", node, {"status": {"nodeInfo": {"bootID": boot}}}, subresource="status")
    claim = eventually(
        lambda: site.claim("one"),
        lambda seen: seen["status"]["allocation"]["replicas"][0].get("bootID") == boot,
        what="the replica is ready for the new boot",
    )
    (after,) = claim["status"]["allocation"]["replicas"]
    assert [each["bootID"] for each in after["hooks"]] == [boot]
    assert [each["device"] for each in after["devices"]] == [each["device"] for each in replica["devices"]]


def test_c5_a_device_whose_cleanup_fails_for_good_needs_a_reset(site: Site) -> None:
    """Others are not held up by it, and the claim goes."""
    site.machines(hardware.two_roots)
    broken = {"name": "scrub", "template": NOWHERE, "timeout": "2s", "retries": 0}
    site.pool(lifecycle={"cleanup": [broken]}, health={"recovery": "Manual"})
    site.ask("one", {"gpu": 1})
    site.create(pod("one", "one"))
    site.wait_running("one")
    ((_, _, device),) = devices(site.wait_phase("one", "InUse"))
    site.delete("DeviceClaim", "one")
    site.wait_gone("DeviceClaim", "one")
    assert quarantined(site) == {device: "NeedsReset"}
    assert "it took too long" in seen_pool(site)["quarantined"][0]["message"]
    site.ask("rest", {"gpu": 3})
    assert device not in {name for _, _, name in devices(site.wait_phase("rest", "Ready"))}
    site.ask("last", {"gpu": 1})
    eventually(lambda: reasons(site.claim("last")), lambda seen: "Quarantined" in seen, what="it says why it waits")


def test_a_member_that_lost_its_device_is_replaced_alone(site: Site) -> None:
    """While its pod runs nothing happens; the pod that follows gets another device, the other member keeps its own."""
    site.machines(hardware.two_roots, 2)
    site.pool(health={"rules": [{"taintKey": XID, "values": ["79"], "action": "QuarantineUntilReplaced"}]})
    site.ask("gang", {"gpu": 1}, replicas=2, gang={"minReplicas": 2})
    for index in range(2):
        site.create(pod(f"w{index}", "gang", annotations={"adjoin.dev/replica": str(index)}))
        site.wait_running(f"w{index}")
    kept, lost = devices(site.wait_phase("gang", "InUse"))
    site.create(rule(site, lost[2], "79", node=lost[1]))
    eventually(lambda: quarantined(site), lambda found: found == {lost[2]: "NeedsReplacement"}, what="in quarantine")
    assert devices(site.claim("gang")) == [kept, lost]
    site.delete("Pod", "w1")
    site.wait_gone("Pod", "w1")
    site.create(pod("again", "gang", annotations={"adjoin.dev/replica": "1"}))
    site.wait_running("again")
    claim = site.wait_phase("gang", "InUse")
    assert devices(claim)[0] == kept
    assert devices(claim)[1] != lost
    assert site.get("Pod", "w0")["status"]["phase"] == "Running"  # type: ignore[index]


def test_an_idle_device_is_cleaned_and_then_free_again(site: Site) -> None:
    site.machines(hardware.two_roots)
    site.pool(lifecycle={"cleanup": [SCRUB], "idleClean": "2s"})
    site.ask("one", {"gpu": 1})
    site.create(pod("one", "one"))
    site.wait_running("one")
    eventually(lambda: seen_pool(site).get("used", []), lambda used: len(used) == 1, what="it is remembered as used")
    site.delete("DeviceClaim", "one")
    site.wait_gone("DeviceClaim", "one")
    eventually(lambda: list(quarantined(site).values()), lambda found: found == ["IdleClean"], what="it is cleaned")
    eventually(
        lambda: (quarantined(site), seen_pool(site).get("used")), lambda seen: seen == ({}, None), what="it is clean"
    )
    eventually(lambda: gpus(site), lambda seen: seen == {"capacity": 4, "free": 4}, what="all are free")
