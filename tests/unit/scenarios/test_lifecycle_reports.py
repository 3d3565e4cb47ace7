"""Field reports on lifecycle: who holds a device, until when, and what is left. Named by the report's id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.objects import (
    GPU_DRIVER,
    TOKEN,
    Obj,
    allocation,
    deviceclaim,
    devicepool,
    node,
    pod,
    replica,
    resourceclaim,
    resourceslice,
    taintrule,
)
from tests.support.small import cluster
from tests.support.world import World

from adjoin.cache import LINGER_SECONDS, READERS, Cache
from adjoin.decision import Decider
from adjoin.intents import Kind, Step, Verb


def got(world: World, kind: Kind, name: str) -> Obj:
    found = world.get(kind, name)
    assert found is not None, f"no {kind.value.kind} {name}"
    return found


def phase(world: World, name: str) -> str:
    return str(got(world, Kind.DEVICE_CLAIM, name)["status"]["phase"])


def pod_phase(world: World, name: str) -> str:
    return str(got(world, Kind.POD, name)["status"]["phase"])


def held(world: World, name: str) -> list[str]:
    status = got(world, Kind.DEVICE_CLAIM, name).get("status") or {}
    replicas = (status.get("allocation") or {}).get("replicas") or ()
    return [device["device"] for each in replicas for device in each["devices"]]


def codes(world: World, name: str) -> list[str]:
    return [reason["code"] for reason in got(world, Kind.DEVICE_CLAIM, name)["status"].get("reasons") or ()]


def condition(world: World, name: str, kind: str) -> Obj | None:
    found = got(world, Kind.DEVICE_CLAIM, name)["status"]["conditions"]
    return next((each for each in found if each["type"] == kind), None)


def events(world: World, about: str) -> list[str]:
    return [each["reason"] for each in world.all(Kind.EVENT) if each["regarding"]["name"] == about]


def running_pair(**fields: Any) -> World:
    """A claim whose pod runs, on a node with two GPUs."""
    world = cluster(**fields)
    world.add(deviceclaim("c1"), pod("p1", claim="c1", token="a" * 10))
    world.settle(Decider)
    assert phase(world, "c1") == "InUse"
    return world


@pytest.mark.parametrize("report", ["a26", "b18"])
def test_a26_b18_two_pods_of_one_replica_run_one_after_the_other(report: str) -> None:
    """Allocated once; the second pod stays gated with one Event, and nothing is tried again and again."""
    world = cluster()
    second = "2026-11-30T08:00:01Z"
    world.add(
        deviceclaim("c1"),
        pod("first", claim="c1", token="a" * 10),
        pod("second", claim="c1", token="b" * 10, creationTimestamp=second),
    )
    world.settle(Decider)
    before = held(world, "c1")
    assert (pod_phase(world, "first"), pod_phase(world, "second")) == ("Running", "Pending")
    assert events(world, "second") == ["ReplicaInUse"]
    world.writes.clear()
    for _ in range(20):
        world.now += 30
        world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert world.writes == []
    world.finish("first")
    world.settle(Decider)
    assert pod_phase(world, "second") == "Running"
    assert held(world, "c1") == before


def cards_and_parts(*names: str, counters: bool) -> Obj:
    """Cards with some of their partitions, told to belong together by counters or by uuids."""
    slices = resourceslice("n1", GPU_DRIVER, {name: {} for name in names})
    for device in slices["spec"]["devices"]:
        card, whole = device["name"][:5], "mig" not in device["name"]
        if counters:
            memory = {"value": "80Gi" if whole else "40Gi"}
            device["consumesCounters"] = [{"counterSet": f"{card}-counters", "counters": {"memory": memory}}]
        else:
            device["attributes"] = {"uuid" if whole else "parentUUID": {"string": f"GPU-{card}"}}
    return slices


@pytest.mark.parametrize("counters", [True, False], ids=["by counters", "by uuids"])
def test_a7_nobody_is_given_a_part_of_a_card_that_the_pool_gives_out_whole(counters: bool) -> None:
    """The claim may have no pod yet, and then kube-scheduler does not know that the card is taken."""
    world = World()
    slices = cards_and_parts("gpu-0", "gpu-0-mig-0", "gpu-0-mig-1", "gpu-1", counters=counters)
    selector = {"cel": "!device.attributes['gpu.nvidia.com'].?other.orValue(false)"}
    others = resourceslice("n2", GPU_DRIVER, {"gpu-0": {"other": {"bool": True}}})
    source = {"resourceSlices": {"driver": GPU_DRIVER, "selectors": [selector]}}
    world.add(devicepool(devices=[{"name": "gpu", "type": "GPU", "source": source}]), node(), node("n2"))
    world.add(slices, others, deviceclaim("c1"))
    world.settle(Decider)
    assert held(world, "c1") == ["gpu-0"]
    selected = [rule["spec"]["deviceSelector"] for rule in world.all(Kind.TAINT_RULE)]
    assert selected == [{"driver": GPU_DRIVER, "pool": "n1"}], "the cards with all their parts, and no other device"


@pytest.mark.parametrize("counters", [True, False], ids=["by counters", "by uuids"])
def test_a7_nobody_is_given_the_card_of_a_part_that_a_claim_holds(counters: bool) -> None:
    world = cluster()
    slices = cards_and_parts("gpu-0", "gpu-0-mig-0", "gpu-1", counters=counters)
    part = replica(state="InUse", devices=[("gpu", GPU_DRIVER, "n1", "gpu-0-mig-0")])
    world.add(slices, deviceclaim("c1", status=allocation(part)), deviceclaim("c2"), deviceclaim("c3"))
    world.settle(Decider)
    assert sorted([held(world, "c2"), held(world, "c3")]) == [[], ["gpu-1"]]


@pytest.mark.parametrize("renamed", [True, False], ids=["its node has another name", "its node has another card"])
def test_a8_a_card_that_another_node_publishes_is_still_its_claims(renamed: bool) -> None:
    """Its pod may still run there: what a card is called never makes it two."""
    world = running_pair()
    (slices,) = world.all(Kind.RESOURCE_SLICE)
    if renamed:
        world.delete(Kind.RESOURCE_SLICE, slices["metadata"]["name"], "")
    else:
        other = {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-other"}}}
        devices = [other, *slices["spec"]["devices"][1:]]
        world.change(Kind.RESOURCE_SLICE, slices["metadata"]["name"], {"spec": {"devices": devices}}, "")
    moved = slices["spec"]["devices"][0]["attributes"]
    world.add(node("n2"), resourceslice("n2", GPU_DRIVER, {"gpu-0": moved, "gpu-1": {"uuid": {"string": "GPU-new"}}}))
    world.add(deviceclaim("c2", requests={"gpu": 2}))
    world.settle(Decider)
    assert condition(world, "c1", "DeviceMissing") is not None
    assert held(world, "c2") == []
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.delete(Kind.POD, "p1")
    world.settle(Decider)
    assert len(held(world, "c2")) == 2


def test_a8_a_device_that_vanished_is_a_condition_and_comes_back_by_itself() -> None:
    world = running_pair()
    (slices,) = world.all(Kind.RESOURCE_SLICE)
    devices = slices["spec"]["devices"]
    name = slices["metadata"]["name"]
    world.change(Kind.RESOURCE_SLICE, name, {"spec": {"devices": devices[1:]}}, "")
    world.add(deviceclaim("c2", requests={"gpu": 2}))
    world.settle(Decider)
    missing = condition(world, "c1", "DeviceMissing")
    assert missing is not None
    assert "gpu-0" in missing["message"]
    assert (held(world, "c1"), held(world, "c2")) == (["gpu-0"], [])
    assert "DeviceMissing" in events(world, "c1")
    world.change(Kind.RESOURCE_SLICE, name, {"spec": {"devices": devices}}, "")
    world.settle(Decider)
    assert condition(world, "c1", "DeviceMissing") is None
    assert (phase(world, "c1"), held(world, "c2")) == ("InUse", [])


@pytest.mark.parametrize("at", range(6))
def test_a9_a_new_leader_keeps_what_the_old_one_gave(at: int) -> None:
    """The old one dies anywhere between status and gate."""
    world = cluster()
    world.add(deviceclaim("c1"), pod("p1", claim="c1", token="a" * 10), deviceclaim("c2"))
    world.crash_after(at)
    world.settle(Decider)
    given = {name: held(world, name) for name in ("c1", "c2")}
    world.add(deviceclaim("c5"))
    world.settle(Decider)
    assert {name: held(world, name) for name in ("c1", "c2")} == given
    assert phase(world, "c5") == "Pending"


def test_c4_a_device_is_not_given_on_before_its_user_is_really_gone() -> None:
    world = running_pair(gpus=1)
    world.add(deviceclaim("c2"))
    world.delete(Kind.DEVICE_CLAIM, "c1")
    decider = Decider()
    order = []
    for _ in range(12):
        world.carry_out(decider.decide(world.view(), world.now).intents)
        order.append(
            (world.get(Kind.POD, "p1") is None, world.get(Kind.DEVICE_CLAIM, "c1") is None, bool(held(world, "c2")))
        )
        world.verify()
        world.kubernetes()
    assert order[-1] == (True, True, True)
    assert order == sorted(order), "pod, claim, next holder: in this order"


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(deviceclaim("c1", requests={"gpu": 9}), id="waiting for devices"),
        pytest.param(deviceclaim("c1", pool="nope"), id="of a pool that does not exist"),
    ],
)
def test_c8_a_waiting_claim_and_its_gated_pod_go_at_once(claim: Obj) -> None:
    world = cluster()
    world.add(claim, pod("p1", claim="c1", token="a" * 10))
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None
    assert world.get(Kind.POD, "p1") is not None
    world.delete(Kind.POD, "p1")
    assert world.get(Kind.POD, "p1") is None


@pytest.mark.parametrize("ending", ["Succeeded", "Failed"])
def test_c9_c11_every_terminal_phase_gives_the_replica_on(ending: str) -> None:
    """The ended pod stays; its place is taken all the same, by a pod of any name."""
    world = running_pair()
    world.finish("p1", phase=ending)
    world.add(pod("p2", claim="c1", token="b" * 10))
    world.settle(Decider)
    assert pod_phase(world, "p2") == "Running"
    assert pod_phase(world, "p1") == ending
    assert [each["metadata"]["name"] for each in world.all(Kind.RESOURCE_CLAIM)] == [f"adjoin-c1-{'b' * 10}"]


@pytest.mark.parametrize("ending", ["Failed", "Succeeded", "gone"])
def test_c11_a_pod_of_the_same_name_is_accepted_as_a_replacement(ending: str) -> None:
    """As a StatefulSet makes it: the name is the same, the pod is another one."""
    world = running_pair()
    before = held(world, "c1")
    for number in range(3):
        if ending != "gone":
            world.finish("p1", phase=ending)
        world.delete(Kind.POD, "p1")
        world.settle(Decider)
        assert world.get(Kind.POD, "p1") is None
        world.add(pod("p1", claim="c1", token=str(number) * 10, uid=f"again-{number}"))
        world.writes.clear()
        world.settle(Decider)
        assert pod_phase(world, "p1") == "Running"
        assert held(world, "c1") == before
        made = [step for step in world.writes if step.verb is Verb.CREATE and step.kind is Kind.RESOURCE_CLAIM]
        assert len(made) == 1


def test_c10_after_many_deletions_under_refusals_nothing_is_left() -> None:
    world = cluster(gpus=30)
    for number in range(30):
        world.add(deviceclaim(f"c{number}"), pod(f"p{number}", claim=f"c{number}", token=f"{number:010d}"))
    world.settle(Decider)
    for number in range(30):
        world.delete(Kind.DEVICE_CLAIM, f"c{number}")
    count = iter(range(100_000))

    def one_in_five(step: Step) -> str | None:
        return ("Conflict", "InternalError")[next(count) % 2] if next(count) % 5 == 0 else None

    world.refuse = one_in_five
    world.settle(Decider, rounds=120)
    assert world.all(Kind.DEVICE_CLAIM) == []
    assert world.all(Kind.RESOURCE_CLAIM) == []
    pool = world.objects[Kind.DEVICE_POOL, "", "training"]
    assert pool["status"]["devices"]["gpu"]["free"] == 30


def test_c12_what_was_deleted_while_the_operator_was_away_is_released() -> None:
    """Nobody saw an event: pod and claim are simply not there, or the claim waits with its finalizer."""
    world = running_pair()
    world.add(deviceclaim("c2"), pod("p2", claim="c2", token="b" * 10))
    world.settle(Decider)
    world.delete(Kind.POD, "p1")
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.kubernetes()
    world.delete(Kind.POD, "p2")
    world.kubernetes()
    world.settle(Decider)
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None
    assert phase(world, "c2") == "Ready"
    assert world.all(Kind.RESOURCE_CLAIM) == []


def restarted(world: World) -> Cache:
    """The memory of a process that begins now."""
    cache = Cache(world.namespace)
    for (kind, _, _), obj in world.objects.items():
        if kind in READERS:
            cache.ingest(kind, obj)
    for kind in READERS:
        cache.prune(kind, cache.versions(kind).keys(), 1_000_000, world.now)
    cache.serve_guard(world.guard_served, world.now)
    return cache


@pytest.mark.parametrize("traces", ["its ResourceClaim is there", "nothing is left of it"])
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
def test_c13_a_pod_that_was_force_deleted_while_the_operator_was_away_still_holds_its_device(
    guarded: bool, traces: str
) -> None:
    """Its last state is not known to anybody; the device is not given on before kubelet had the time to let go."""
    world = running_pair(gpus=1, guarded=guarded)
    world.add(deviceclaim("c2"))
    world.settle(Decider)
    world.delete(Kind.POD, "p1", force=True)
    world.kubernetes()
    if traces == "nothing is left of it":
        for each in world.all(Kind.RESOURCE_CLAIM):
            world.add({**each, "metadata": {**each["metadata"], "finalizers": []}})
            world.delete(Kind.RESOURCE_CLAIM, each["metadata"]["name"])
    world.delete(Kind.DEVICE_CLAIM, "c1")
    cache, decider, began = restarted(world), Decider(), world.now
    for second in range(0, 40, 5):
        world.now = began + second
        for _ in range(4):
            memory = cache.view(world.now)
            view = replace(world.view(), lingering=memory.lingering, ghosts=memory.ghosts)
            world.carry_out(decider.decide(view, world.now).intents)
            world.kubernetes()
        assert bool(held(world, "c2")) is (second >= LINGER_SECONDS), f"after {second} s"
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None


def test_c13_a_terminating_pod_is_a_user_also_for_a_fresh_process() -> None:
    world = running_pair(gpus=1)
    world.delete(Kind.POD, "p1")
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.add(deviceclaim("c2"))
    for _ in range(5):
        world.carry_out(Decider().decide(world.view(), world.now).intents)
        world.now += 120
    assert (phase(world, "c1"), held(world, "c2"), codes(world, "c2")[0]) == ("Releasing", [], "DeviceReleasing")
    world.settle(Decider)
    assert held(world, "c2") == ["gpu-0"]


def test_c14_a_claim_made_again_under_its_name_is_another_claim() -> None:
    """What the old one leaves behind is not the new one's, whatever the names."""
    world = cluster()
    old = resourceclaim(
        f"adjoin-c1-{'a' * 10}", owner="dead", claim="c1", devices=[(GPU_DRIVER, "n1", "gpu-0")], pod_uid="u1"
    )
    world.add(
        deviceclaim("c1", uid="new"),
        pod("p1", claim="c1", token="a" * 10, gates=(), node="n1", phase="Running", running=True, uid="u1"),
        old,
    )
    decision = Decider().decide(world.view(), world.now)
    world.carry_out(decision.intents)
    assert held(world, "c1") == ["gpu-1"]
    assert phase(world, "c1") == "Ready"
    assert not got(world, Kind.RESOURCE_CLAIM, old["metadata"]["name"])["metadata"].get("deletionTimestamp")
    world.finish("p1")
    world.settle(Decider)
    assert world.all(Kind.RESOURCE_CLAIM) == []
    assert held(world, "c1") == ["gpu-1"]


def test_c14_a_late_write_for_the_old_claim_meets_the_new_one_and_fails() -> None:
    world = cluster()
    world.add(deviceclaim("c1", uid="old"))
    late = Decider().decide(world.view(), world.now)
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.settle(Decider)
    world.add(deviceclaim("c1", uid="new", requests={"gpu": 9}))
    world.carry_out(late.intents)
    assert "status" not in got(world, Kind.DEVICE_CLAIM, "c1")


def test_c15_a_pool_stays_until_the_last_of_its_claims_is_gone() -> None:
    world = running_pair()
    world.delete(Kind.DEVICE_POOL, "training", "")
    world.settle(Decider)
    assert world.get(Kind.DEVICE_POOL, "training") is not None
    assert world.all(Kind.TAINT_RULE) != []
    world.add(deviceclaim("c2"))
    world.settle(Decider)
    assert held(world, "c2") == []
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.settle(Decider)
    assert world.get(Kind.DEVICE_POOL, "training") is None
    assert world.all(Kind.TAINT_RULE) == []
    assert codes(world, "c2") == ["PoolNotFound"]


def test_c15_a_pool_whose_node_is_gone_can_go() -> None:
    world = running_pair()
    world.delete(Kind.NODE, "n1", "")
    for slices in world.all(Kind.RESOURCE_SLICE):
        world.delete(Kind.RESOURCE_SLICE, slices["metadata"]["name"], "")
    world.delete(Kind.POD, "p1", force=True)
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.delete(Kind.DEVICE_POOL, "training", "")
    world.settle(Decider)
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None
    assert world.get(Kind.DEVICE_POOL, "training") is None


def test_c15_a_pool_waits_for_devices_of_a_claim_that_was_forced_away() -> None:
    world = running_pair()
    world.change(Kind.DEVICE_CLAIM, "c1", {"metadata": {"finalizers": [], "deletionTimestamp": "2026-11-30T08:00:00Z"}})
    world.delete(Kind.DEVICE_POOL, "training", "")
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert world.get(Kind.DEVICE_POOL, "training") is not None
    world.finish("p1")
    world.settle(Decider)
    assert world.get(Kind.DEVICE_POOL, "training") is None


def test_c17_c26_slices_that_come_and_go_touch_no_claim() -> None:
    world = running_pair()
    (slices,) = world.all(Kind.RESOURCE_SLICE)
    world.writes.clear()
    for _ in range(3):
        world.delete(Kind.RESOURCE_SLICE, slices["metadata"]["name"], "")
        world.settle(Decider)
        assert phase(world, "c1") == "InUse"
        assert pod_phase(world, "p1") == "Running"
        world.add(resourceslice())
        world.settle(Decider)
    assert condition(world, "c1", "DeviceMissing") is None
    assert [step for step in world.writes if step.kind in (Kind.POD, Kind.RESOURCE_CLAIM, Kind.TAINT_RULE)] == []


def test_c20_pods_of_others_do_not_matter() -> None:
    world = running_pair()
    world.add(
        pod("stranger", claim="other", token="s" * 10, gates=(), node="n1", phase="Pending"),
        pod(
            "elsewhere",
            namespace="other",
            claim="c1",
            token="t" * 10,
            gates=(),
            node="n1",
            phase="Running",
            running=True,
        ),
    )
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.settle(Decider)
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None
    assert world.get(Kind.POD, "elsewhere", "other") is not None


def test_c25_the_allocation_tolerates_the_guard_and_users_are_found_by_their_resourceclaim() -> None:
    """A toleration that stands in the request alone does not count once a device is allocated. Who uses a replica is
    read from its ResourceClaim, whatever the pod's labels say by now."""
    world = running_pair()
    (delivery,) = world.all(Kind.RESOURCE_CLAIM)
    taints = {(rule["spec"]["taint"]["key"], rule["spec"]["taint"]["value"]) for rule in world.all(Kind.TAINT_RULE)}
    for result in delivery["status"]["allocation"]["devices"]["results"]:
        assert {(each["key"], each["value"]) for each in result["tolerations"]} == taints
        assert {each["effect"] for each in result["tolerations"]} == {"NoSchedule"}
    world.change(Kind.POD, "p1", {"metadata": {"annotations": {"adjoin.dev/binding": None}}})
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.writes.clear()
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    gone = [step for step in world.writes if step.kind is Kind.POD]
    assert [(step.verb, step.name) for step in gone] == [(Verb.DELETE, "p1")]
    world.settle(Decider)
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None


def test_c27_a_nic_that_is_in_its_pod_is_not_lost_and_nobody_elses() -> None:
    """The driver no longer publishes a NIC that sits in a pod's network namespace; it returns some time after the
    pod."""
    world = cluster(gpus=2, nics=1)
    world.add(deviceclaim("c1", requests={"gpu": 1, "nic": 1}), pod("p1", claim="c1", token="a" * 10))
    world.settle(Decider)
    assert phase(world, "c1") == "InUse"
    slices = next(each for each in world.all(Kind.RESOURCE_SLICE) if each["spec"]["driver"] == "dra.net")
    name, devices = slices["metadata"]["name"], slices["spec"]["devices"]
    world.change(Kind.RESOURCE_SLICE, name, {"spec": {"devices": []}}, "")
    world.add(deviceclaim("c2", requests={"nic": 1}))
    world.settle(Decider)
    assert (phase(world, "c1"), pod_phase(world, "p1"), held(world, "c2")) == ("InUse", "Running", [])
    assert held(world, "c1") == ["gpu-0", "nic-0"]
    counts = world.objects[Kind.DEVICE_POOL, "", "training"]["status"]["devices"]["nic"]
    assert (counts["capacity"], counts.get("free", 0)) == (1, 0)
    world.finish("p1")
    world.add(pod("p2", claim="c1", token="b" * 10))
    world.settle(Decider)
    assert pod_phase(world, "p2") == "Pending", "nobody starts on a NIC that is not back"
    assert held(world, "c2") == []
    world.change(Kind.RESOURCE_SLICE, name, {"spec": {"devices": devices}}, "")
    world.settle(Decider)
    assert pod_phase(world, "p2") == "Running"
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.settle(Decider)
    assert held(world, "c2") == ["nic-0"]


@pytest.mark.parametrize("running", [False, True], ids=["not started yet", "started, never ready"])
def test_c28_a_pod_that_is_never_ready_holds_its_devices(running: bool) -> None:
    world = cluster(gpus=1)
    held_by = allocation(replica(state="InUse"), phase="InUse")
    world.add(
        deviceclaim("c1", status=held_by),
        pod("p1", claim="c1", token="a" * 10, gates=(), node="n1", phase="Pending", running=running),
        resourceclaim(
            f"adjoin-c1-{'a' * 10}",
            owner="claim-team-c1",
            claim="c1",
            pod_uid="pod-team-p1",
            devices=[(GPU_DRIVER, "n1", "gpu-0")],
        ),
        deviceclaim("c2"),
    )
    for _ in range(5):
        world.now += 600
        world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert (held(world, "c1"), held(world, "c2")) == (["gpu-0"], [])
    assert phase(world, "c1") == "InUse"


def test_c29_a_claim_whose_node_is_gone_is_released() -> None:
    world = running_pair()
    world.delete(Kind.NODE, "n1", "")
    world.delete(Kind.POD, "p1", force=True)
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.settle(Decider)
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None
    assert world.all(Kind.RESOURCE_CLAIM) == []


@pytest.mark.parametrize("sign", ["deleted", "out of service", "ready again"])
def test_c29_on_a_node_that_is_lost_nobody_has_seen_the_pod_end(sign: str) -> None:
    """A forced deletion only takes the object away; somebody has to say that nothing runs there any more."""
    world = running_pair(nodes=2, gpus=1)
    not_ready = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    world.change(Kind.NODE, "n1", {"status": not_ready}, "")
    world.delete(Kind.POD, "p1", force=True)
    world.delete(Kind.DEVICE_CLAIM, "c1")
    for _ in range(10):
        world.now += 600
        world.carry_out(Decider().decide(world.view(), world.now).intents)
        world.kubernetes()
    assert (phase(world, "c1"), len(world.all(Kind.RESOURCE_CLAIM))) == ("Releasing", 1)
    match sign:
        case "deleted":
            world.delete(Kind.NODE, "n1", "")
        case "out of service":
            taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
            world.change(Kind.NODE, "n1", {"spec": {"taints": [taint]}}, "")
        case "ready again":
            world.change(Kind.NODE, "n1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "")
    world.settle(Decider)
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None
    assert world.all(Kind.RESOURCE_CLAIM) == []


def test_c32_a_pod_that_never_had_the_device_takes_nothing_with_it() -> None:
    world = running_pair()
    world.add(pod("p2", claim="c1", token="b" * 10))
    world.settle(Decider)
    world.writes.clear()
    world.delete(Kind.POD, "p2")
    world.settle(Decider)
    assert world.writes == []
    assert (phase(world, "c1"), pod_phase(world, "p1")) == ("InUse", "Running")


def test_c33_a_replacement_is_not_let_go_to_a_node_that_is_lost() -> None:
    world = running_pair()
    world.change(Kind.NODE, "n1", {"spec": {"taints": [{"key": "node/lost", "effect": "NoExecute"}]}}, "")
    world.delete(Kind.POD, "p1")
    for number in range(4):
        world.add(pod(f"next-{number}", claim="c1", token=str(number) * 10))
        world.settle(Decider)
        assert pod_phase(world, f"next-{number}") == "Pending"
        assert got(world, Kind.POD, f"next-{number}")["spec"]["schedulingGates"]
        world.delete(Kind.POD, f"next-{number}")
    assert events(world, "next-0").count("ReplicaUnavailable") == 1
    assert "NodeUnavailable" in codes(world, "c1"), "it has no place any more, and says so"


def test_c35_a_restart_is_invisible_to_claims_that_are_settled() -> None:
    world = running_pair()
    world.writes.clear()
    for _ in range(10):
        world.now += 17
        world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert world.writes == []


def test_conflict_the_younger_claim_fails_loses_its_pod_and_is_placed_elsewhere() -> None:
    """Two statuses name one device: it cannot happen by our hand, but it can be found."""
    world = cluster()
    twice = allocation(replica(state="InUse"), phase="InUse")
    world.add(
        deviceclaim("old", status=allocation(replica())),
        deviceclaim("young", status=twice, creationTimestamp="2026-11-30T08:00:05Z"),
        pod("p1", claim="young", token="a" * 10, gates=(), node="n1", phase="Running", running=True),
        resourceclaim(
            f"adjoin-young-{'a' * 10}",
            owner="claim-team-young",
            claim="young",
            pod_uid="pod-team-p1",
            devices=[(GPU_DRIVER, "n1", "gpu-0")],
        ),
    )
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert phase(world, "young") == "Failed"
    conflict = condition(world, "young", "Conflict")
    assert conflict is not None
    assert "held by DeviceClaim team/old (replica 0)" in conflict["message"]
    assert Verb.EVICT in [step.verb for step in world.writes]
    world.history.clear()
    for _ in range(8):
        world.kubernetes()
        world.now += 1
        world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert (held(world, "old"), held(world, "young")) == (["gpu-0"], ["gpu-1"])
    assert phase(world, "young") == "Ready"
    assert condition(world, "young", "Conflict") is None


@pytest.mark.parametrize("where", [Kind.DEVICE_CLAIM, Kind.RESOURCE_CLAIM, Kind.POD], ids=lambda kind: kind.value.kind)
@pytest.mark.parametrize("report", ["d5", "d6"])
def test_d5_d6_one_claim_whose_writes_fail_holds_nobody_up_and_makes_no_noise(report: str, where: Kind) -> None:
    """Eight claims for a GPU and a NIC of one node at once. There is nothing to lock; seven are served in as many
    rounds as one alone, and for the eighth nothing piles up until its writes go through."""
    world = cluster(gpus=8, nics=8)
    for number in range(8):
        world.add(
            deviceclaim(f"c{number}", requests={"gpu": 1, "nic": 1}),
            pod(f"p{number}", claim=f"c{number}", token=str(number) * 10),
        )

    def fails(step: Step) -> str | None:
        mine = step.name in ("c3", "p3", f"adjoin-c3-{'3' * 10}")
        return "InternalError" if mine and step.kind is where and step.verb is not Verb.CREATE else None

    world.refuse = fails
    decider = Decider()
    for _ in range(3):
        world.carry_out(decider.decide(world.view(), world.now).intents)
        world.verify()
        world.kubernetes()
    others = [number for number in range(8) if number != 3]
    assert [pod_phase(world, f"p{number}") for number in others] == ["Running"] * 7
    for _ in range(60):
        world.now += 5
        world.carry_out(decider.decide(world.view(), world.now).intents)
        world.verify()
        world.kubernetes()
    assert pod_phase(world, "p3") == "Pending"
    assert len(world.all(Kind.RESOURCE_CLAIM)) <= 8
    assert len(events(world, "p3")) + len(events(world, "c3")) <= 2
    world.refuse = lambda step: None
    world.settle(Decider)
    assert pod_phase(world, "p3") == "Running"
    given = [device for number in range(8) for device in held(world, f"c{number}")]
    assert len(given) == 16
    assert len(set(given)) == 16


def test_d10_for_an_owner_that_is_gone_nothing_is_made_again_and_again() -> None:
    """The claim was forced away, and that is seen late: its last pod may still be let go, but then its devices are its
    alone until it has ended, and nothing is made twice."""
    world = running_pair()
    world.finish("p1")
    world.settle(Decider)
    world.add(pod("p2", claim="c1", token="b" * 10))
    late = Decider().decide(world.view(), world.now)
    world.change(Kind.DEVICE_CLAIM, "c1", {"metadata": {"finalizers": [], "deletionTimestamp": "2026-11-30T08:00:00Z"}})
    assert world.get(Kind.DEVICE_CLAIM, "c1") is None
    world.writes.clear()
    for _ in range(4):
        world.carry_out(late.intents)
        world.kubernetes()
        late = Decider().decide(world.view(), world.now)
    made = [step for step in world.writes if step.verb is Verb.CREATE and step.kind is Kind.RESOURCE_CLAIM]
    assert len(made) <= 1
    assert all(each["metadata"].get("deletionTimestamp") for each in world.all(Kind.RESOURCE_CLAIM))
    world.add(deviceclaim("c2", requests={"gpu": 2}))
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert held(world, "c2") == []
    world.finish("p2")
    world.settle(Decider)
    assert len(held(world, "c2")) == 2
    assert world.all(Kind.RESOURCE_CLAIM) == []


def test_e4_foreign_finalizers_stay_and_ours_goes_once() -> None:
    world = cluster()
    world.add(deviceclaim("c1", finalizers=["x.io/keep", "adjoin.dev/cleanup"]))
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "c1")
    world.settle(Decider)
    assert got(world, Kind.DEVICE_CLAIM, "c1")["metadata"]["finalizers"] == ["x.io/keep"]
    world.writes.clear()
    world.add(deviceclaim("c2", requests={"gpu": 2}))
    world.settle(Decider)
    assert [step for step in world.writes if step.name == "c1"] == []
    assert (held(world, "c2"), codes(world, "c2")[0]) == ([], "DeviceReleasing")
    world.change(Kind.DEVICE_CLAIM, "c1", {"metadata": {"finalizers": []}})
    world.settle(Decider)
    assert len(held(world, "c2")) == 2


def test_e4_a_claim_that_came_without_our_finalizer_gets_it_before_it_gets_devices() -> None:
    world = cluster()
    world.add(deviceclaim("c1", finalizers=["x.io/keep"]))
    world.settle(Decider)
    assert got(world, Kind.DEVICE_CLAIM, "c1")["metadata"]["finalizers"] == ["x.io/keep", "adjoin.dev/cleanup"]
    first, second = [step for step in world.writes if step.kind is Kind.DEVICE_CLAIM][:2]
    assert (first.verb, second.verb) == (Verb.PATCH, Verb.PATCH_STATUS)


def test_e11_the_phase_never_runs_ahead_of_the_facts() -> None:
    """Ready is not InUse: that is said once the pod has a node, and taken back once nothing of it is left."""
    world = cluster()
    world.add(deviceclaim("c1"), pod("p1", claim="c1", token="a" * 10))
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert phase(world, "c1") == "Ready"
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert phase(world, "c1") == "Ready"
    world.kubernetes()
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert phase(world, "c1") == "InUse"
    world.finish("p1")
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    assert phase(world, "c1") == "InUse"
    world.settle(Decider)
    assert phase(world, "c1") == "Ready"


def test_g11_an_object_that_has_our_name_but_not_our_owner_is_never_adopted() -> None:
    world = cluster()
    name = f"adjoin-c1-{'a' * 10}"
    squatter = resourceclaim(name, owner="", devices=[(GPU_DRIVER, "n1", "gpu-1")], finalizers=[])
    squatter["metadata"]["labels"] = {
        "adjoin.dev/claim": "c1",
        "adjoin.dev/replica": "0",
        "adjoin.dev/pod": "pod-team-p1",
    }
    world.add(deviceclaim("c1"), pod("p1", claim="c1", token="a" * 10), squatter)
    world.settle(Decider)
    assert got(world, Kind.RESOURCE_CLAIM, name)["status"]["allocation"] == squatter["status"]["allocation"]
    assert [step for step in world.writes if step.kind in (Kind.RESOURCE_CLAIM, Kind.POD)] == []
    assert events(world, "p1") == ["NameTaken"]
    assert pod_phase(world, "p1") == "Pending"
    world.add(pod("p2", claim="c1", token="b" * 10))
    world.settle(Decider)
    assert pod_phase(world, "p2") == "Running", "the pod that cannot be served keeps nothing from others"


def test_a_job_of_many_pods_runs_through_its_replicas() -> None:
    """Not indexed: two at a time, each replica one after the other."""
    world = cluster()
    world.add(deviceclaim("c1", replicas=2))
    for number in range(6):
        world.add(pod(f"p{number}", claim="c1", token=str(number) * 10))
        if number >= 2:
            world.finish(f"p{number - 2}")
        world.settle(Decider)
        assert pod_phase(world, f"p{number}") == "Running"
    assert sorted(held(world, "c1")) == ["gpu-0", "gpu-1"]


def test_a_namespace_that_goes_takes_everything_along() -> None:
    world = running_pair()
    for kind, name in ((Kind.RESOURCE_CLAIM, f"adjoin-c1-{'a' * 10}"), (Kind.POD, "p1"), (Kind.DEVICE_CLAIM, "c1")):
        world.delete(kind, name)
    world.refuse = lambda step: "Forbidden" if step.verb is Verb.CREATE else None
    world.settle(Decider)
    assert [key for key in world.objects if key[1] == "team" and key[0] is not Kind.EVENT] == []


def test_scaling_up_plans_the_rest_and_down_gives_the_last_back() -> None:
    world = cluster(nodes=2)
    world.add(deviceclaim("c1", replicas=1))
    world.settle(Decider)
    world.change(Kind.DEVICE_CLAIM, "c1", {"spec": {"replicas": 3}})
    world.settle(Decider)
    assert len(held(world, "c1")) == 3
    first = held(world, "c1")[0]
    world.change(Kind.DEVICE_CLAIM, "c1", {"spec": {"replicas": 1}})
    world.settle(Decider)
    assert held(world, "c1") == [first]
    status = got(world, Kind.DEVICE_CLAIM, "c1")["status"]
    assert (status["replicas"], status["readyReplicas"], status["observedGeneration"]) == (1, 1, 3)


def test_an_eviction_that_a_budget_forbids_holds_nobody_else_up() -> None:
    world = cluster(nodes=2)
    world.add(
        deviceclaim("c1", replicas=3), *(pod(f"p{i}", claim="c1", token=str(i) * 10, replica=i) for i in range(3))
    )
    world.settle(Decider)
    world.refuse = lambda step: "TooManyRequests" if step.verb is Verb.EVICT and step.name == "p2" else None
    world.change(Kind.DEVICE_CLAIM, "c1", {"spec": {"replicas": 1}})
    world.finish("p0")
    world.add(pod("p3", claim="c1", token="9" * 10, replica=0))
    decider = Decider()
    for _ in range(12):
        world.carry_out(decider.decide(world.view(), world.now).intents)
        world.kubernetes()
        world.verify()
    assert world.get(Kind.POD, "p1") is None
    assert (pod_phase(world, "p2"), pod_phase(world, "p3")) == ("Running", "Running")
    assert len(held(world, "c1")) == 2
    world.refuse = lambda step: None
    world.settle(Decider)
    assert len(held(world, "c1")) == 1


def test_a_pod_that_names_no_claim_of_its_namespace_is_told_once() -> None:
    world = cluster()
    world.add(pod("lost", claim="nope"), deviceclaim("nope", namespace="other"))
    world.settle(Decider)
    assert events(world, "lost") == ["ClaimNotFound"]
    world.add(deviceclaim("nope"))
    world.settle(Decider)
    assert pod_phase(world, "lost") == "Running"


def test_a_foreign_gate_holds_the_plan_but_not_what_is_placed_already() -> None:
    world = cluster()
    gates = ("kueue.x-k8s.io/admission", "adjoin.dev/claim")
    world.add(deviceclaim("c1"), pod("p1", claim="c1", gates=gates))
    world.settle(Decider)
    assert codes(world, "c1") == ["PodGated"]
    world.change(Kind.POD, "p1", {"spec": {"schedulingGates": [{"name": "adjoin.dev/claim"}]}})
    world.settle(Decider)
    assert pod_phase(world, "p1") == "Running"
    world.delete(Kind.POD, "p1")
    world.settle(Decider)
    world.add(pod("p2", claim="c1", gates=gates, token=TOKEN[::-1]))
    world.settle(Decider)
    assert held(world, "c1")
    assert got(world, Kind.POD, "p2")["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]


def test_nothing_is_placed_in_a_pool_that_cannot_be_guarded() -> None:
    world = World(guard_served=False)
    world.add(devicepool(), node(), resourceslice(), deviceclaim("c1"))
    world.settle(Decider)
    assert held(world, "c1") == []
    pool = world.objects[Kind.DEVICE_POOL, "", "training"]
    assert [each["type"] for each in pool["status"]["conditions"]] == ["Ready", "GuardUnavailable"]
    world.guard_served = True
    world.add(taintrule())
    world.settle(Decider)
    assert held(world, "c1") == ["gpu-0"]
