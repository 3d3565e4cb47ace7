"""Field reports on what hooks, quarantine and eviction do when something goes wrong on the way. Named by the id."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.objects import deviceclaim, devicepool, node, pod, resourceslice
from tests.support.pooled import (
    HOOKS,
    SCRUB,
    TEMPLATE,
    VERIFY,
    cluster,
    conditions,
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
    steps,
    taint,
    variables,
)
from tests.support.small import cluster as small
from tests.support.world import Ending, World

from adjoin.decision import Decider
from adjoin.intents import Kind, Step, Verb
from adjoin.lifecycle import rfc3339

Obj = dict[str, Any]


def devices_of(job: Obj) -> list[tuple[str, str]]:
    """Names and identities that a hook was told."""
    return [(each["device"], each["id"]) for each in json.loads(variables(job)["ADJOIN_DEVICES"])]


@pytest.mark.parametrize("deleted", [False, True], ids=["it is tried again", "the claim is deleted meanwhile"])
def test_c7_what_a_hook_that_died_halfway_worked_on_is_written_down_before_it_began(deleted: bool) -> None:
    """The pod dies in the middle, the operator with it, and the driver publishes the device under another name
    meanwhile. The next attempt, or the cleanup, works on the same hardware."""
    world = cluster(deviceclaim(), devices=1)
    recorded: list[str] = []
    original = world.perform

    def perform(step: Step, previous: Obj | None = None) -> Obj:
        if step.verb is Verb.CREATE and step.kind is Kind.JOB and replicas(world):
            recorded.extend(f"{each['name']} {each['phase']}" for each in replicas(world)[0]["hooks"])
        return original(step, previous)

    world.perform = perform  # type: ignore[method-assign]

    def end(job: Obj) -> Ending:
        if len(world.ran) > 1:
            return Ending()
        uuid = world.get(Kind.RESOURCE_SLICE, "n1-gpu.nvidia.com")["spec"]["devices"][0]["attributes"]["uuid"]
        publish(world, devices={"gpu-7": {"uuid": uuid}})
        if deleted:
            world.delete(Kind.DEVICE_CLAIM, "job-a")
        return Ending("Failed", "the node was too busy")

    world.hook = end
    world.settle(Decider, rounds=120)
    assert recorded[0] == "verify Running"
    assert ran(world)[:2] == (["init verify", "cleanup scrub"] if deleted else ["init verify", "init verify"])
    first, second = (devices_of(job)[0] for job in world.ran[:2])
    assert (first[0], second[0]) == ("gpu-0", "gpu-7")
    assert first[1] == second[1]
    assert phase(world) == ("gone" if deleted else "Ready")
    assert not world.all(Kind.JOB)


def test_c19_a_hook_that_fails_runs_a_few_times_with_growing_pauses_however_often_the_operator_starts() -> None:
    world = cluster(
        deviceclaim(), devices=1, lifecycle={"init": [{**VERIFY, "retries": 2}]}, health={"recovery": "Manual"}
    )
    world.hook = lambda job: Ending("Failed")
    began: list[float] = []
    for _ in range(200):
        count = len(world.ran)
        steps(world, Decider(), seconds=1)
        began += [world.now] * (len(world.ran) - count)
    assert ran(world) == ["init verify"] * 3
    first, second, third = began
    assert second - first >= 10
    assert third - second >= 20
    assert quarantined(world) == {"gpu-0": "InitFailed"}


def test_c24_a_quarantine_has_an_owner_a_reason_and_a_way_out_and_no_node_is_touched() -> None:
    """An administrator has cordoned the node; that is lifted by nobody else."""
    rules = [{"taintKey": "x.io/xid", "action": "QuarantineUntilReset"}]
    world = cluster(deviceclaim(), pod(), devices=2, health={"rules": rules})
    world.settle(Decider)
    world.change(Kind.NODE, "n1", {"spec": {"unschedulable": True}})
    world.hook = lambda job: Ending("Failed")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    publish(world, taints={"gpu-1": [taint("x.io/xid", "48")]})
    steps(world, seconds=120)
    entries = pool(world)["quarantined"]
    assert {each["device"] for each in entries} == {"gpu-0", "gpu-1"}
    assert {each["owner"] for each in entries} == {"adjoin.dev", "health rule x.io/xid"}
    assert all(each["reason"] and each["message"] and each["exit"] for each in entries)
    assert len(events(world, "Quarantined", "DevicePool")) == 2
    world.hook = lambda job: Ending()
    publish(world)
    world.settle(Decider, rounds=200)
    assert quarantined(world) == {}
    assert world.get(Kind.NODE, "n1")["spec"]["unschedulable"] is True
    assert not [step for step in world.writes if step.kind is Kind.NODE]


def test_d12_an_object_does_not_grow_with_what_happens_to_it() -> None:
    """Thirty pods come and go on one claim: its annotations and finalizers stay what they are, its status ends as long
    as it began."""
    world = cluster(deviceclaim(), pod(), lifecycle={**HOOKS, "cleanBetweenRestarts": True})
    world.settle(Decider)

    def measured() -> tuple[Any, Any, int]:
        obj = world.get(Kind.DEVICE_CLAIM, "job-a")
        assert obj is not None
        return obj["metadata"].get("annotations"), obj["metadata"]["finalizers"], len(json.dumps(obj))

    before = measured()
    name = "worker"
    for number in range(30):
        world.finish(name)
        world.settle(Decider)
        world.delete(Kind.POD, name)
        name = f"next-{number}"
        world.add(pod(name, token=f"{number:010d}", uid=name))
        world.settle(Decider)
    after = measured()
    assert after[:2] == before[:2]
    assert after[2] < before[2] + 200
    assert len(world.all(Kind.RESOURCE_CLAIM)) == 1


def wanting(name: str, priority: int) -> Obj:
    claim = deviceclaim(name, uid=name)
    claim["spec"]["priority"] = priority
    return claim


def test_d13_a_preemptor_whose_victim_does_not_end_is_planned_elsewhere_after_ten_minutes() -> None:
    """The victim's pod cannot be evicted; what it does not give back keeps nobody waiting for ever."""
    world = small(2, gpus=1)
    tenancy = {"preemption": {"withinTenant": "LowerPriority"}}
    world.change(Kind.DEVICE_POOL, "training", {"spec": {"tenancy": tenancy}}, "")
    for number in range(2):
        world.add(wanting(f"low-{number}", number), pod(f"p{number}", claim=f"low-{number}", token=f"{number:010d}"))
    world.settle(Decider)
    stuck, other = held(world, "low-0"), held(world, "low-1")
    world.refuse = lambda step: "TooManyRequests" if step.verb is Verb.EVICT and step.name == "p0" else None
    world.add(wanting("high", 9))
    decider = Decider()
    steps(world, decider, seconds=300)
    assert (phase(world, "high"), phase(world, "low-0"), phase(world, "low-1")) == ("Pending", "Releasing", "InUse")
    steps(world, decider, seconds=200)
    assert "still being released by team/low-0" in reasons(world, "high")["DeviceReleasing"]
    steps(world, decider, seconds=200)
    assert (phase(world, "high"), held(world, "high")) == ("Ready", other)
    assert held(world, "low-0") == stuck
    assert phase(world, "low-1") == "Pending"
    assert "Evicted" in conditions(world, "low-1")


def test_d15_a_gate_opens_in_the_request_after_the_one_that_says_ready() -> None:
    """Whatever many claims wait for, none is Ready for longer than one decision before its pod goes."""
    world = cluster(devices=60)
    for number in range(60):
        world.add(deviceclaim(f"c{number}"), pod(f"p{number}", claim=f"c{number}", token=f"{number:010d}"))
    decider = Decider()
    for _ in range(40):
        world.carry_out(decider.decide(world.view(), world.now).intents)
        ready = [number for number in range(60) if phase(world, f"c{number}") in ("Ready", "InUse")]
        assert not [number for number in ready if gated(world, f"p{number}")]
        world.kubernetes()
        world.verify()
        world.now += 1
    assert len([number for number in range(60) if phase(world, f"c{number}") == "InUse"]) == 60


def opened(world: World, decider: Decider, *, seconds: int) -> list[tuple[str, float]]:
    """Pods whose gates open within so many seconds, each with how long it was kept, as the metric is told."""
    kept: list[tuple[str, float]] = []
    for _ in range(seconds):
        intents = decider.decide(world.view(), world.now).intents
        names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in world.all(Kind.POD)}
        kept += [(names[uid], world.now - since) for intent in intents for uid, since in intent.opens.items()]
        world.carry_out(intents)
        world.kubernetes()
        world.verify()
        world.now += 1
    return kept


def pod_of(world: World, name: str, token: str = "0123456789") -> Obj:
    """A pod that is created now."""
    made = pod(name, token=token)
    made["metadata"]["creationTimestamp"] = rfc3339(world.now)
    return made


def test_d15_a_pod_counts_as_kept_only_while_its_replica_is_there_for_it() -> None:
    """Not while hooks run, not while another pod has the replica, and not before it exists."""
    world = cluster(deviceclaim(), devices=1)
    world.add(pod_of(world, "first"))
    world.hook = lambda job: Ending(None)
    decider = Decider()
    assert opened(world, decider, seconds=100) == []
    world.hook = lambda job: Ending()
    ((name, kept),) = opened(world, decider, seconds=10)
    assert (name, kept <= 1) == ("first", True)
    world.add(pod_of(world, "second", "b" * 10))
    assert opened(world, decider, seconds=200) == []
    world.finish("first")
    ((name, kept),) = opened(world, decider, seconds=20)
    assert (name, kept <= 2) == ("second", True)
    world.delete(Kind.POD, "first")
    world.finish("second")
    opened(world, decider, seconds=400)
    world.add(pod_of(world, "third", "c" * 10))
    ((name, kept),) = opened(world, decider, seconds=5)
    assert (name, kept <= 1) == ("third", True)


def test_d15_a_pod_of_a_gang_does_not_count_as_kept_while_another_member_has_no_place() -> None:
    """Why it waits is said by the claim (`GangIncomplete`); how long we take begins when the gang is whole."""
    claim = deviceclaim(replicas=2)
    claim["spec"]["gang"] = {"minReplicas": 2}
    world = cluster(claim, devices=1)
    world.add(node("n2"), resourceslice("n2", devices=1))
    steps(world, decider := Decider(), seconds=10)
    (spare,) = {each["node"] for each in replicas(world) if each["index"] == 1}
    world.delete(Kind.NODE, spare, "")
    steps(world, decider, seconds=10)
    assert [each["index"] for each in replicas(world)] == [0]
    world.add(pod_of(world, "one"))
    assert opened(world, decider, seconds=100) == []
    assert "GangIncomplete" in reasons(world)
    world.add(node(spare, boot="boot-2"))
    ((name, kept),) = opened(world, decider, seconds=20)
    assert (name, kept <= 2) == ("one", True)


def test_d15_a_pod_that_waits_while_its_ready_replica_may_serve_nobody_counts_as_kept() -> None:
    """The node is cordoned for 100 seconds between the replica's Ready and the pod: that is what the metric is for."""
    world = cluster(deviceclaim(), devices=1)
    steps(world, decider := Decider(), seconds=10)
    assert phase(world) == "Ready"
    world.change(Kind.NODE, "n1", {"spec": {"unschedulable": True}}, "")
    world.add(pod_of(world, "worker"))
    assert opened(world, decider, seconds=100) == []
    world.change(Kind.NODE, "n1", {"spec": {"unschedulable": False}}, "")
    ((name, kept),) = opened(world, decider, seconds=5)
    assert name == "worker"
    assert 100 <= kept <= 102


@pytest.mark.parametrize("recovery", ["Manual", "Automatic"])
def test_e6_a_claim_whose_cleanup_fails_goes_only_once_its_device_is_in_quarantine(recovery: str) -> None:
    lifecycle = {"cleanup": [SCRUB]}
    world = cluster(deviceclaim(), pod(), devices=1, lifecycle=lifecycle, health={"recovery": recovery})
    world.settle(Decider)
    world.hook = lambda job: Ending("Failed")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    seen: list[bool] = []
    for _ in range(60):
        steps(world, Decider(), seconds=1)
        gone = world.get(Kind.DEVICE_CLAIM, "job-a") is None
        seen.append(gone)
        assert gone <= (quarantined(world) == {"gpu-0": "NeedsReset"})
    assert seen[0] is False
    assert seen[-1] is True


def test_g9_nothing_of_ours_selects_everything() -> None:
    """An empty selector means every device, or every pod: the guard names its driver, a release its device."""
    world = cluster(deviceclaim(), pod(), devices=2, lifecycle={"cleanup": [SCRUB]}, health={"recovery": "Manual"})
    world.settle(Decider)
    assert [rule["spec"]["deviceSelector"].get("driver") for rule in world.all(Kind.TAINT_RULE)] == ["gpu.nvidia.com"]
    world.hook = lambda job: Ending("Failed")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    steps(world, seconds=60)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    for text in (
        '[{"device": "", "reason": "all of them"}]',
        '[{"device": "*", "reason": "all"}]',
        "[]",
        '[{"device": "/"}]',
    ):
        world.change(
            Kind.DEVICE_POOL, "training", {"metadata": {"annotations": {"adjoin.dev/release-quarantine": text}}}
        )
        steps(world, seconds=3)
        assert quarantined(world) == {"gpu-0": "NeedsReset"}, text
        assert "adjoin.dev/release-quarantine" not in world.get(Kind.DEVICE_POOL, "training")["metadata"]["annotations"]


def test_g9_a_pool_without_devices_guards_nothing() -> None:
    world = World()
    world.add(devicepool(spec={"lifecycle": {"init": [{"name": "v", "template": TEMPLATE}]}}), node(), node("n2"))
    world.add(resourceslice("n2", "other.example.com", devices=2))
    world.settle(Decider)
    assert all(rule["spec"]["deviceSelector"].get("driver") for rule in world.all(Kind.TAINT_RULE))
