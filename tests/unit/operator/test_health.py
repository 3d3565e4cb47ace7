"""Health on whole decisions against a simulated API server: taints and rules, drivers that are silent, lost devices."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.objects import NIC_DRIVER, deviceclaim, node, pod, resourceslice
from tests.support.pooled import (
    HOOKS,
    SCRUB,
    cluster,
    conditions,
    counts,
    events,
    gated,
    held,
    phase,
    pool,
    publish,
    quarantined,
    ran,
    reasons,
    replicas,
    slice_of,
    steps,
    taint,
    variables,
)
from tests.support.world import Ending, World

from adjoin.api.names import ANNOTATION_RELEASE
from adjoin.decision import Decider
from adjoin.intents import Kind
from adjoin.lifecycle import rfc3339

Obj = dict[str, Any]
XID = "gpu.nvidia.com/xid"
RULES = [
    {"taintKey": XID, "values": ["31"], "action": "Ignore"},
    {"taintKey": XID, "values": ["94"], "action": "Event"},
    {"taintKey": XID, "values": ["109"], "action": "QuarantineUntilReset"},
    {"taintKey": XID, "values": ["79"], "action": "QuarantineUntilReplaced"},
]
TABLE = {"gpu-0": [taint(XID, "31")], "gpu-1": [taint(XID, "94")], "gpu-2": [taint(XID, "109")]}
TABLE |= {"gpu-3": [taint(XID, "79")]}


def vouch(world: World, device: str) -> None:
    text = json.dumps([{"device": device, "reason": "looked at"}])
    world.change(Kind.DEVICE_POOL, "training", {"metadata": {"annotations": {ANNOTATION_RELEASE: text}}})


def entry(world: World, device: str) -> Obj:
    return next(each for each in pool(world)["quarantined"] if each["device"] == device)


# Rules


def test_c23_what_a_taint_costs_is_what_the_table_says() -> None:
    world = cluster(devices=4, health={"rules": RULES})
    publish(world, devices=4, taints=TABLE)
    world.settle(Decider)
    assert quarantined(world) == {"gpu-2": "NeedsReset", "gpu-3": "NeedsReplacement"}
    assert counts(world) == {"capacity": 4, "free": 2, "unhealthy": 2}
    found = entry(world, "gpu-2")
    assert found["owner"] == f"health rule {XID}"
    assert found["message"] == f"taint {XID}=109 (QuarantineUntilReset)"
    assert found["exit"].startswith("the taint is gone and scrub, verify succeed")
    assert entry(world, "gpu-3")["exit"].startswith("other hardware is in its place")
    assert [note.split()[0] for note in events(world, "DeviceTainted")] == ["gpu.nvidia.com/n1/gpu-1"]
    assert ran(world) == []


def test_c23_what_was_reset_comes_back_after_a_positive_check_and_a_pause() -> None:
    """The check is what the hooks say; that the taint has gone is none."""
    world = cluster(devices=4, health={"rules": RULES})
    publish(world, devices=4, taints=TABLE)
    decider = steps(world)
    publish(world, devices=4)
    steps(world, decider, seconds=50)
    assert (ran(world), quarantined(world).keys()) == ([], {"gpu-2", "gpu-3"})
    assert entry(world, "gpu-2")["clear"]
    world.settle(Decider)
    assert ran(world) == ["cleanup scrub", "init verify"]
    assert quarantined(world) == {"gpu-3": "NeedsReplacement"}


def test_a_taint_that_comes_back_while_the_device_recovers_begins_it_anew() -> None:
    world = cluster(devices=4, health={"rules": RULES})
    publish(world, devices=4, taints=TABLE)
    steps(world)
    world.hook = lambda job: Ending(None)
    publish(world, devices=4)
    steps(world, seconds=70)
    assert entry(world, "gpu-2")["hooks"][0]["phase"] == "Running"
    publish(world, devices=4, taints=TABLE)
    steps(world)
    assert not {"hooks", "clear"} & entry(world, "gpu-2").keys()
    world.hook = lambda job: Ending()
    world.settle(Decider)
    assert "gpu-2" in quarantined(world)
    publish(world, devices=4)
    world.settle(Decider)
    assert ran(world) == ["cleanup scrub", "cleanup scrub", "init verify"]
    assert quarantined(world) == {"gpu-3": "NeedsReplacement"}


def test_c21_another_card_at_the_address_ends_a_quarantine_until_replaced() -> None:
    def card(name: str, uuid: str) -> Obj:
        address = {"string": "0000:18:00.0"}
        return {name: {"uuid": {"string": uuid}, "resource.kubernetes.io/pciBusID": address}}

    world = cluster(devices=0, health={"rules": RULES})
    publish(world, devices=card("gpu-0", "GPU-old"), taints={"gpu-0": [taint(XID, "79")]})
    world.settle(Decider)
    assert entry(world, "gpu-0")["address"] == "0000:18:00.0"
    publish(world, devices={})
    world.settle(Decider)
    assert quarantined(world) == {"gpu-0": "NeedsReplacement"}
    publish(world, devices=card("gpu-1", "GPU-new"))
    world.settle(Decider)
    assert quarantined(world) == {}
    assert counts(world) == {"capacity": 1, "free": 1}
    assert events(world, "QuarantineLifted") == ["gpu.nvidia.com/n1/gpu-0 on n1: GPU-new is in its place"]


def test_a17_a_card_that_is_known_by_another_id_today_is_the_same_card() -> None:
    """Its driver did not publish uuids before; its address is what it was."""
    address = {"resource.kubernetes.io/pciBusID": {"string": "0000:18:00.0"}}
    world = cluster(devices=0, health={"rules": RULES, "recovery": "Manual"})
    publish(world, devices={"gpu-0": address}, taints={"gpu-0": [taint(XID, "79")]})
    world.settle(Decider)
    publish(world, devices={"gpu-1": {**address, "uuid": {"string": "GPU-a"}}})
    world.settle(Decider)
    assert quarantined(world) == {"gpu-0": "NeedsReplacement"}
    assert counts(world) == {"capacity": 1, "unhealthy": 1}


def test_the_graver_rule_stands() -> None:
    world = cluster(health={"rules": RULES})
    publish(world, taints={"gpu-0": [taint(XID, "109")]})
    world.settle(Decider)
    publish(world, taints={"gpu-0": [taint(XID, "109"), taint(XID, "79")]})
    world.settle(Decider)
    assert quarantined(world) == {"gpu-0": "NeedsReplacement"}
    publish(world, taints={"gpu-0": [taint(XID, "109")]})
    world.settle(Decider)
    assert quarantined(world) == {"gpu-0": "NeedsReplacement"}


def test_a_rule_speaks_of_a_taint_without_effect_and_nobody_else_does() -> None:
    silent = {"gpu-0": [taint(XID, "79", effect="None")], "gpu-1": [taint("x.io/note", effect="None")]}
    world = cluster(health={"rules": RULES})
    publish(world, taints=silent)
    world.settle(Decider)
    assert quarantined(world) == {"gpu-0": "NeedsReplacement"}
    assert counts(world) == {"capacity": 2, "free": 1, "unhealthy": 1}


def test_keys_of_our_own_are_no_matter_of_health() -> None:
    world = cluster(health={"rules": [{"taintKey": "adjoin.dev/guard", "action": "QuarantineUntilReplaced"}]})
    publish(world, taints={"gpu-0": [taint("adjoin.dev/guard", "training")]})
    world.settle(Decider)
    assert quarantined(world) == {}
    assert counts(world) == {"capacity": 2, "free": 2}


def rule(key: str, value: str, **selector: str) -> Obj:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "broken", "uid": "rule-broken", "creationTimestamp": "2026-11-30T07:00:00Z"},
        "spec": {"deviceSelector": selector, "taint": taint(key, value)},
    }


def test_a_taint_on_a_held_device_is_a_condition_and_takes_it_from_nobody() -> None:
    world = cluster(deviceclaim(), pod(), devices=1, health={"rules": RULES})
    world.settle(Decider)
    world.add(rule(XID, "109", driver="gpu.nvidia.com", pool="n1", device="gpu-0"))
    world.settle(Decider)
    assert phase(world) == "InUse"
    assert conditions(world)["DeviceUnhealthy"] == (
        f"gpu.nvidia.com/n1/gpu-0 on n1: NeedsReset: taint {XID}=109 (QuarantineUntilReset); until the taint is "
        "gone and scrub, verify succeed on it (tried again by itself), or kubectl adjoin release-quarantine"
    )
    assert world.get(Kind.POD, "worker")["status"]["phase"] == "Running"
    assert entry(world, "gpu-0")["claim"] == "team/job-a"
    assert counts(world) == {"capacity": 1, "allocated": 1}
    world.delete(Kind.TAINT_RULE, "broken")
    world.settle(Decider)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    assert ran(world) == ["init verify"]
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert (phase(world), quarantined(world)) == ("gone", {})
    assert ran(world) == ["init verify", "cleanup scrub", "init verify"]


def test_an_excused_taint_is_said_once_on_the_claim_too_and_its_allocation_tolerates_it() -> None:
    world = cluster(deviceclaim(), pod(), devices=1, health={"rules": RULES})
    world.settle(Decider)
    publish(world, devices=1, taints={"gpu-0": [taint(XID, "94", effect="NoExecute")]})
    world.settle(Decider)
    assert len(events(world, "DeviceTainted", "DeviceClaim")) == 1
    assert len(events(world, "DeviceTainted", "DevicePool")) == 1
    assert "DeviceUnhealthy" not in conditions(world)
    (claim,) = world.all(Kind.RESOURCE_CLAIM)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert [(each["key"], each["value"]) for each in result["tolerations"]] == [
        ("adjoin.dev/guard", "training"),
        (XID, "31"),
        (XID, "94"),
    ]


def test_nobody_can_vouch_for_what_the_driver_says_is_broken() -> None:
    world = cluster(health={"rules": RULES, "recovery": "Manual"})
    publish(world, taints={"gpu-0": [taint(XID, "109")]})
    world.settle(Decider)
    vouch(world, "n1/gpu-0")
    world.settle(Decider)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    assert f"taint {XID}=109, which keeps it in quarantine" in events(world, "ReleaseRefused")[0]
    publish(world)
    world.settle(Decider)
    vouch(world, "n1/gpu-0")
    world.settle(Decider)
    assert quarantined(world) == {}


def test_c22_e14_one_dead_card_costs_one_card() -> None:
    world = cluster(devices=4, health={"rules": RULES})
    publish(world, devices=4, taints={"gpu-3": [taint(XID, "79")]})
    world.add(*(deviceclaim(f"job-{number}") for number in range(5)))
    world.settle(Decider)
    assert sorted(phase(world, f"job-{number}") for number in range(5)) == ["Pending", "Pending", *["Ready"] * 3]
    assert counts(world) == {"capacity": 4, "allocated": 3, "unhealthy": 1}
    waits = next(name for name in (f"job-{number}" for number in range(5)) if phase(world, name) == "Pending")
    assert "Quarantined" in reasons(world, waits)
    assert not [each for each in world.all(Kind.POD) if each["status"].get("phase") == "Failed"]


# Silent drivers


def versions(world: World, kind: Kind) -> list[str]:
    return [obj["metadata"]["resourceVersion"] for obj in world.all(kind)]


def test_c17_c26_an_inventory_that_flips_touches_no_claim_and_comes_back_by_itself() -> None:
    world = cluster(deviceclaim(), pod(), deviceclaim("idle"), devices=8)
    decider = Decider()
    world.settle(lambda: decider)
    before = versions(world, Kind.DEVICE_CLAIM), versions(world, Kind.RESOURCE_CLAIM), versions(world, Kind.POD)
    world.delete(Kind.RESOURCE_SLICE, slice_of())
    world.add(deviceclaim("waits"))
    steps(world, decider, seconds=60)
    assert phase(world, "waits") == "Pending"
    assert counts(world) == {"capacity": 2, "missing": 2}
    assert [each["driver"] for each in pool(world)["silent"]] == ["gpu.nvidia.com"]
    world.delete(Kind.DEVICE_CLAIM, "waits")
    publish(world, devices=8)
    steps(world, decider)
    after = versions(world, Kind.DEVICE_CLAIM), versions(world, Kind.RESOURCE_CLAIM), versions(world, Kind.POD)
    assert after == before
    assert counts(world) == {"capacity": 8, "free": 6, "allocated": 2}
    assert "silent" not in pool(world)


@pytest.mark.parametrize("fresh", [False, True], ids=["the same process", "a fresh process each time"])
def test_c17_after_the_grace_the_reason_names_driver_and_pool(fresh: bool) -> None:
    world = cluster(deviceclaim(), pod(), devices=2, health={"driverGrace": "30s"})
    decider = Decider()
    world.settle(lambda: decider)
    world.delete(Kind.RESOURCE_SLICE, slice_of())
    world.add(deviceclaim("waits"))

    def on(seconds: int) -> None:
        for _ in range(seconds):
            steps(world, None if fresh else decider, seconds=1)

    on(20)
    assert "DriverUnavailable" not in reasons(world, "waits")
    assert "DeviceMissing" not in conditions(world)
    on(20)
    assert reasons(world, "waits")["DriverUnavailable"] == "incomplete inventory: gpu.nvidia.com/n1: no ResourceSlices"
    assert "DeviceMissing" in conditions(world)
    ready = next(each for each in pool(world)["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "DriverUnavailable")
    assert phase(world) == "InUse"
    publish(world)
    on(15)
    assert (phase(world), phase(world, "waits")) == ("InUse", "Ready")
    assert "DeviceMissing" not in conditions(world)


def test_a_driver_whose_devices_nobody_holds_is_forgotten_in_the_end() -> None:
    world = cluster(devices=2)
    decider = Decider()
    world.settle(lambda: decider)
    world.delete(Kind.RESOURCE_SLICE, slice_of())
    steps(world, decider, seconds=2)
    assert pool(world)["silent"]
    world.settle(lambda: decider)
    assert "silent" not in pool(world)
    assert next(each for each in pool(world)["conditions"] if each["type"] == "Ready")["status"] == "True"


def test_a_silent_driver_is_no_reason_for_claims_that_ask_for_devices_of_another() -> None:
    world = cluster(devices=1, health={"driverGrace": "30s"})
    world.add(resourceslice("n1", NIC_DRIVER, devices=1), deviceclaim(requests={"gpu": 1, "nic": 1}))
    world.settle(Decider)
    world.delete(Kind.RESOURCE_SLICE, slice_of(driver=NIC_DRIVER))
    world.add(deviceclaim("gpus"), deviceclaim("nics", requests={"nic": 1}))
    steps(world, seconds=40)
    steps(world, seconds=40)
    assert list(reasons(world, "gpus")) == ["InsufficientDevices"]
    assert f"{NIC_DRIVER}/n1: no ResourceSlices" in reasons(world, "nics")["DriverUnavailable"]


def test_a_node_that_is_gone_has_no_silent_driver() -> None:
    world = cluster(node("n2"), resourceslice("n2"))
    decider = Decider()
    world.settle(lambda: decider)
    world.delete(Kind.RESOURCE_SLICE, slice_of("n2"))
    world.delete(Kind.NODE, "n2")
    steps(world, decider)
    assert "silent" not in pool(world)
    assert counts(world) == {"capacity": 2, "free": 2}


def test_c34_missing_and_unused_is_dropped_missing_and_used_is_kept_and_restored() -> None:
    world = cluster(deviceclaim(), pod(), devices=2)
    world.settle(Decider)
    used = held(world)[0][0].partition("/")[2]
    unused = ({"gpu-0", "gpu-1"} - {used}).pop()
    publish(world, devices={})
    world.settle(Decider)
    assert counts(world) == {"capacity": 1, "missing": 1}
    publish(world, devices=2)
    world.add(deviceclaim("job-b", requests={"gpu": 1}))
    world.settle(Decider)
    assert held(world) == {0: [f"n1/{used}"]}
    assert held(world, "job-b") == {0: [f"n1/{unused}"]}


def test_c27_what_does_not_come_back_after_its_release_needs_a_reset() -> None:
    """A driver that does not publish what a pod has: that is no loss, and on release it is waited for."""
    world = cluster(deviceclaim(), pod(), devices=1)
    decider = Decider()
    world.settle(lambda: decider)
    publish(world, devices={})
    steps(world, decider, seconds=200)
    assert phase(world) == "InUse"
    assert "lostSince" not in replicas(world)[0]
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    steps(world, decider, seconds=60)
    assert phase(world) == "Releasing"
    told = world.get(Kind.DEVICE_CLAIM, "job-a")["status"]["conditions"]
    assert any("is missing; it is waited for" in each["message"] for each in told)
    world.settle(lambda: decider)
    assert phase(world) == "gone"
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    assert ran(world) == ["init verify"]
    publish(world, devices=1)
    world.settle(lambda: decider)
    assert ran(world) == ["init verify", "cleanup scrub", "init verify"]
    assert counts(world) == {"capacity": 1, "free": 1}


def test_c27_what_comes_back_after_its_release_is_cleaned_as_ever() -> None:
    world = cluster(deviceclaim(), pod(), devices=1)
    decider = Decider()
    world.settle(lambda: decider)
    publish(world, devices={})
    steps(world, decider, seconds=5)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    steps(world, decider, seconds=20)
    publish(world, devices=1)
    steps(world, decider, seconds=20)
    assert phase(world) == "gone"
    assert (ran(world), quarantined(world)) == (["init verify", "cleanup scrub"], {})


def test_c21_hardware_that_was_replaced_under_a_claim_is_not_cleaned_and_the_new_one_is_free() -> None:
    world = cluster(deviceclaim(), pod(), devices=1)
    world.settle(Decider)
    publish(world, devices={"gpu-0": {"uuid": {"string": "GPU-new"}}})
    world.settle(Decider)
    assert phase(world) == "InUse"
    assert "DeviceMissing" in conditions(world)
    # The pod's allocation has the name that the new card goes by.
    assert counts(world) == {"capacity": 2, "releasing": 1, "missing": 1}
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert (phase(world), quarantined(world), ran(world)) == ("gone", {}, ["init verify"])
    assert counts(world) == {"capacity": 1, "free": 1}


# Lost devices


def gang(size: int = 2, **fields: Any) -> Obj:
    claim = deviceclaim(replicas=size, **fields)
    claim["spec"]["gang"] = {"minReplicas": size}
    return claim


def racks(*names: str, per_rack: int = 2) -> list[Obj]:
    labels = [{"rack": f"r{number // per_rack}"} for number in range(len(names))]
    return [
        each
        for name, label in zip(names, labels, strict=True)
        for each in (node(name, labels=label), resourceslice(name, devices=1))
    ]


def running_gang(*names: str, size: int = 2, health: Obj | None = None) -> World:
    """A gang of one GPU a member, both under one rack; pods serve all members."""
    claim = gang(size)
    claim["spec"]["fabric"] = {"required": "rack"}
    workers = [pod(f"worker-{index}", replica=index, token=f"abcdefghi{index}") for index in range(size)]
    topology = {"fabric": [{"name": "rack", "nodeLabel": "rack"}]}
    world = cluster(devices=0, health=health or {"rules": RULES}, topology=topology)
    world.delete(Kind.NODE, "n1")
    world.delete(Kind.RESOURCE_SLICE, slice_of())
    world.add(*racks(*names, per_rack=3), claim, *workers)
    world.settle(Decider)
    return world


def again(world: World, index: int) -> None:
    """The member's pod fails, and its controller makes another."""
    world.finish(f"worker-{index}", phase="Failed")
    world.settle(Decider)
    world.delete(Kind.POD, f"worker-{index}")
    world.add(pod(f"again-{index}", replica=index, token="abcdefghi9", uid=f"again-{index}"))


def test_a_member_that_lost_its_device_is_replaced_alone_under_the_same_constraints() -> None:
    world = running_gang("a", "b", "c", "d", "e", "f")
    before = held(world)
    broken, kept = before[1][0].partition("/")[0], before[0]
    publish(world, broken, devices=1, taints={"gpu-0": [taint(XID, "79")]})
    world.settle(Decider)
    assert held(world) == before
    assert phase(world) == "InUse"
    again(world, 1)
    world.settle(Decider)
    after = held(world)
    assert after[0] == kept
    assert after[1] != before[1]
    rack = {name: number // 3 for number, name in enumerate("abcdef")}
    assert rack[after[1][0][0]] == rack[kept[0][0]]
    assert not gated(world, "again-1")
    assert quarantined(world) == {"gpu-0": "NeedsReplacement"}
    assert any("replica 1" in note and "NeedsReplacement" in note for note in events(world, "DeviceLost"))


def test_c33_without_room_the_replacement_stays_gated_and_nothing_goes_round() -> None:
    world = running_gang("a", "b")
    before = held(world)
    broken = before[1][0].partition("/")[0]
    publish(world, broken, devices=1, taints={"gpu-0": [taint(XID, "79")]})
    again(world, 1)
    world.settle(Decider)
    assert held(world) == {0: before[0]}
    assert "GangIncomplete" in reasons(world)
    assert gated(world, "again-1")
    count = len(world.writes)
    steps(world, seconds=120)
    assert len(world.writes) == count
    assert world.get(Kind.POD, "worker-0")["status"]["phase"] == "Running"


def test_what_has_been_missing_for_longer_than_the_grace_is_given_up_once_a_pod_waits() -> None:
    world = cluster(deviceclaim(), node("n2"), resourceslice("n2", devices=1), devices=1, health={"driverGrace": "1m"})
    decider = Decider()
    world.settle(lambda: decider)
    (lost,) = held(world)[0]
    name = lost.partition("/")[0]
    world.change(Kind.RESOURCE_SLICE, slice_of(name), {"spec": {"devices": []}})
    world.settle(lambda: decider)
    assert held(world) == {0: [lost]}
    assert phase(world) == "Ready"
    world.add(pod())
    world.settle(lambda: decider)
    (now,) = held(world)[0]
    assert now != lost
    assert not gated(world)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    world.change(Kind.RESOURCE_SLICE, slice_of(name), {"spec": resourceslice(name, devices=1)["spec"]})
    world.settle(lambda: decider)
    assert quarantined(world) == {}
    assert held(world) == {0: [now]}


def test_c34_where_nothing_is_verified_a_lost_device_is_dropped_and_free_on_return() -> None:
    world = cluster(deviceclaim(), pod(), devices=1, lifecycle={})
    world.settle(Decider)
    publish(world, devices={})
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert (phase(world), quarantined(world), counts(world)) == ("gone", {}, {})
    publish(world, devices=1)
    world.settle(Decider)
    assert counts(world) == {"capacity": 1, "free": 1}


@pytest.mark.parametrize(
    ("waiting", "count"),
    [
        pytest.param([pod()], 1, id="a pod that any replica can serve takes the sound one"),
        pytest.param([pod(), pod("other", token="abcdefghi1", uid="other")], 2, id="a second one needs the lost one"),
    ],
)
def test_a_replica_is_given_up_only_where_no_sound_one_serves_the_pod(waiting: list[Obj], count: int) -> None:
    world = cluster(deviceclaim(replicas=2), devices=3, health={"rules": RULES})
    world.settle(Decider)
    publish(world, devices=3, taints={"gpu-0": [taint(XID, "79")]})
    world.settle(Decider)
    before = held(world)
    world.add(*waiting)
    world.settle(Decider)
    moved = {index for index in before if held(world)[index] != before[index]}
    assert len(moved) == count - 1
    assert not any(gated(world, each["metadata"]["name"]) for each in waiting)


def test_a_node_out_of_service_lets_a_release_end_without_cleaning() -> None:
    world = cluster(deviceclaim(), pod(), devices=1)
    world.settle(Decider)
    unready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": rfc3339(world.now)}
    world.change(Kind.NODE, "n1", {"status": {"conditions": [unready]}})
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert phase(world) == "Releasing"
    lost = taint("node.kubernetes.io/out-of-service", effect="NoExecute")
    world.change(Kind.NODE, "n1", {"spec": {"taints": [lost]}})
    world.settle(Decider)
    assert phase(world) == "gone"
    assert ran(world) == ["init verify"]
    assert events(world, "CleanupSkipped")


def test_c36_a_cleanup_that_fails_holds_its_device_alone_and_says_what_it_was_told() -> None:
    world = cluster(deviceclaim(requests={"gpu": 1}), pod(), devices=2, health={"recovery": "Manual"})
    world.settle(Decider)

    def end(job: Obj) -> Ending:
        stuck = variables(job)["ADJOIN_PHASE"] == "cleanup"
        return Ending("Failed", "in use by dcgm (pid 4711)") if stuck else Ending()

    world.hook = end
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.add(deviceclaim("job-b"))
    world.settle(Decider, rounds=100)
    assert phase(world) == "gone"
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    assert phase(world, "job-b") == "Ready"
    assert any("dcgm (pid 4711)" in note for note in events(world, "HookFailed"))


def test_e12_a_device_that_could_not_be_prepared_is_told_to_pod_and_claim_with_its_last_words() -> None:
    world = cluster(deviceclaim(), pod(), devices=2, health={"recovery": "Manual"})
    failed: list[str] = []

    def end(job: Obj) -> Ending:
        failed.append(job["metadata"]["name"])
        return Ending("Failed", "line one\nCUDA error 802") if len(failed) == 1 else Ending()

    world.hook = end
    world.settle(Decider, rounds=100)
    assert any("CUDA error 802" in note for note in events(world, "HookFailed", "Pod"))
    assert any("CUDA error 802" in note for note in events(world, "HookFailed", "DeviceClaim"))


# Idle devices

IDLE = {**HOOKS, "idleClean": "24h"}


def test_an_idle_device_is_cleaned_once_it_was_used_and_nobody_has_it_for_so_long() -> None:
    world = cluster(deviceclaim(), pod(), devices=3, lifecycle=IDLE)
    decider = Decider()
    world.settle(lambda: decider)
    assert [each["device"] for each in pool(world)["used"]] == ["gpu-0"]
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    steps(world, decider, seconds=20)
    (used,) = pool(world)["used"]
    assert used["since"]
    assert ran(world) == ["init verify", "cleanup scrub"]
    released = world.now
    seen: list[dict[str, str]] = []
    world.settle(Decider, check=lambda world: seen.append(quarantined(world)))
    assert world.now >= released + 24 * 3600 - 20
    assert {"gpu-0": "IdleClean"} in seen
    assert ran(world) == ["init verify", "cleanup scrub", "cleanup scrub"]
    assert (quarantined(world), pool(world).get("used")) == ({}, None)
    assert counts(world) == {"capacity": 3, "free": 3}


def test_an_idle_device_that_cannot_be_cleaned_needs_a_reset() -> None:
    world = cluster(deviceclaim(), pod(), devices=1, lifecycle=IDLE, health={"recovery": "Manual"})
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    steps(world, seconds=20)
    world.hook = lambda job: Ending("Failed", "process 7 holds it")
    world.settle(Decider, rounds=100)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    assert "process 7 holds it" in entry(world, "gpu-0")["message"]
    assert ran(world)[2:] == ["cleanup scrub"] * (SCRUB["retries"] + 1)


def test_a_few_idle_devices_are_cleaned_at_a_time_and_nobody_gets_one_meanwhile() -> None:
    world = cluster(deviceclaim(requests={"gpu": 8}), pod(), devices=8, lifecycle=IDLE)
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    steps(world, seconds=20)
    world.now += 24 * 3600
    world.hook = lambda job: Ending(None)
    steps(world, seconds=10)
    assert list(quarantined(world).values()) == ["IdleClean"] * 4
    world.add(deviceclaim("job-b", requests={"gpu": 8}))
    steps(world, seconds=10)
    assert phase(world, "job-b") == "Pending"
    world.hook = lambda job: Ending()
    world.settle(Decider, rounds=100)
    assert phase(world, "job-b") == "Ready"


def idle_life(crash: int | None) -> tuple[list[str], Obj, int]:
    world = cluster(deviceclaim(), pod(), devices=2, lifecycle=IDLE)
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    steps(world, seconds=20)
    before = len(world.writes)
    world.crash_after(crash)
    world.settle(Decider, rounds=100)
    left = {key: pool(world).get(key) for key in ("quarantined", "used", "devices")}
    return ran(world), left, len(world.writes) - before


def test_a_crash_at_any_write_of_an_idle_cleaning_ends_in_the_same_state() -> None:
    *whole, count = idle_life(None)
    assert count > 4
    for crash in range(count):
        assert list(idle_life(crash)[:2]) == whole, f"died before request {crash}"
