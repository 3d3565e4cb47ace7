"""Pods and scale on whole decisions against a simulated API server: who follows pods holds what live pods need and
nothing else, and what nobody uses or needs any more goes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.objects import deviceclaim, devicepool, node, pod, resourceslice
from tests.support.world import Ending, World

from adjoin.decision import Decider
from adjoin.facts import read_pod
from adjoin.intents import Kind
from adjoin.lifecycle import rfc3339
from adjoin_allocator.wire_format import decode_snapshot, encode_snapshot

Obj = dict[str, Any]
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}


def hook(name: str, **fields: Any) -> Obj:
    return {"name": name, "template": TEMPLATE, **fields}


def pool(*, init: bool = False, cleanup: bool = False, **lifecycle: Any) -> Obj:
    hooks = {"init": [hook("verify")] if init else [], "cleanup": [hook("scrub", retries=0)] if cleanup else []}
    return devicepool(spec={"lifecycle": {**hooks, **lifecycle}, "health": {"recovery": "Manual"}})


def follower(most: int = 3, least: int | None = None, **spec: Any) -> Obj:
    claim = deviceclaim()
    scaling = {"mode": "FollowPods", "maxReplicas": most, **({"minReplicas": least} if least is not None else {})}
    claim["spec"] |= {"scaling": scaling, **spec}
    return claim


def fixed(replicas: int | None = None, **spec: Any) -> Obj:
    claim = deviceclaim(replicas=replicas)
    claim["spec"] |= spec
    return claim


def worker(name: str, *, controller: str = "", created: float | None = None, **fields: Any) -> Obj:
    token = f"{name:0<10}"[:10]
    if controller:
        fields["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": controller, "controller": True}]
    if created is not None:
        fields["creationTimestamp"] = rfc3339(created)
    return pod(name, token=token, **fields)


def cluster(*objects: Obj, devices: int = 4) -> World:
    world = World()
    # Whatever a pod is controlled by must be there, or the pod is collected.
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "j", "namespace": "team", "uid": "job"}}
    world.add(node("n1"), resourceslice("n1", devices=devices), owner, *objects)
    return world


def status(world: World, name: str = "job-a") -> Obj:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    return claim.get("status") or {}


def replicas(world: World) -> dict[int, Obj]:
    return {each["index"]: each for each in (status(world).get("allocation") or {}).get("replicas") or ()}


def states(world: World) -> dict[int, str]:
    return {index: each["state"] for index, each in replicas(world).items()}


def held(world: World) -> dict[int, str]:
    return {index: each["devices"][0]["device"] for index, each in replicas(world).items()}


def gated(world: World) -> set[str]:
    return {each["metadata"]["name"] for each in world.all(Kind.POD) if each["spec"].get("schedulingGates")}


def events(world: World, reason: str) -> list[Obj]:
    return [event for event in world.all(Kind.EVENT) if event["reason"] == reason]


def ran(world: World) -> list[str]:
    return [f"{job['metadata']['labels']['adjoin.dev/hook']}" for job in world.ran]


def released(world: World) -> str:
    return next((each["reason"] for each in status(world).get("conditions") or () if each["type"] == "Released"), "")


def given(world: World, name: str) -> str:
    """The device that a pod has."""
    found = world.get(Kind.POD, name)
    assert found is not None
    (device,) = world._devices_of(found)
    return device.split("/")[0]


def step(world: World, decider: Decider, times: int = 1) -> None:
    """Some rounds, a second each."""
    for _ in range(times):
        world.carry_out(decider.decide(world.view(), world.now).intents)
        world.kubernetes()
        world.now += 1


# A claim that follows its pods


def test_each_pod_has_a_replica_and_the_end_of_one_frees_exactly_its_own() -> None:
    world = cluster(pool(cleanup=True), follower(4), *(worker(f"p{number}") for number in range(3)))
    world.settle(Decider)
    before = held(world)
    assert states(world) == {0: "InUse", 1: "InUse", 2: "InUse"}
    gone = next(index for index, device in before.items() if device == given(world, "p1"))
    world.delete(Kind.POD, "p1")
    world.settle(Decider)
    assert held(world) == {index: device for index, device in before.items() if index != gone}
    assert ran(world) == ["cleanup"]
    (job,) = world.ran
    assert before[gone] in str(job["spec"]["template"])
    world.add(worker("p3"))
    world.settle(Decider)
    assert set(held(world)) == {0, 1, 2}
    assert states(world)[gone] == "InUse"


def test_a_claim_without_pods_holds_nothing_and_is_ready() -> None:
    world = cluster(pool(), follower())
    world.settle(Decider)
    seen = status(world)
    assert (seen["phase"], seen["replicas"], seen["readyReplicas"]) == ("Ready", 0, 0)
    assert seen["selector"] == "adjoin.dev/claim=job-a"


def test_pods_beyond_the_most_wait_with_one_event_until_another_ends() -> None:
    world = cluster(pool(), follower(2), *(worker(f"p{number}", created=world_time(number)) for number in range(3)))
    world.settle(Decider)
    assert gated(world) == {"p2"}
    (event,) = events(world, "ReplicaInUse")
    assert event["regarding"]["name"] == "p2"
    assert "2 in all, its scaling.maxReplicas" in event["note"]
    assert status(world)["phase"] == "InUse"
    count = len(world.writes)
    world.settle(Decider)
    assert len(world.writes) == count
    world.finish("p0")
    world.settle(Decider)
    assert gated(world) == set()
    assert set(states(world)) == {0, 1}


def world_time(seconds: float) -> float:
    return World().now + seconds


def test_the_least_is_there_before_any_pod_and_pods_take_what_is_there() -> None:
    world = cluster(pool(init=True), follower(4, 2))
    world.settle(Decider)
    before = held(world)
    assert states(world) == {0: "Ready", 1: "Ready"}
    world.add(worker("p0"), worker("p1"))
    world.settle(Decider)
    assert held(world) == before
    world.add(worker("p2"))
    world.settle(Decider)
    assert states(world) == {0: "InUse", 1: "InUse", 2: "InUse"}
    for name in ("p0", "p1", "p2"):
        world.finish(name)
        world.settle(Decider)
    assert len(states(world)) == 2
    assert set(states(world).values()) == {"Ready"}


def test_a_lower_most_takes_from_the_youngest() -> None:
    world = cluster(pool(), follower(3), *(worker(f"p{number}", created=world_time(number)) for number in range(3)))
    world.settle(Decider)
    kept = given(world, "p0")
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"scaling": {"maxReplicas": 1}}})
    world.settle(Decider)
    assert list(held(world).values()) == [kept]
    assert [each["metadata"]["name"] for each in world.all(Kind.POD)] == ["p0"]


def test_a_pod_that_names_a_replica_has_that_one_also_beside_older_ones_that_name_none() -> None:
    world = cluster(
        pool(),
        follower(4),
        worker("p0", created=world_time(0)),
        worker("p1", created=world_time(1), replica=0),
        worker("p2", created=world_time(2), replica=3),
        worker("p3", created=world_time(3), replica=4),
        worker("p4", created=world_time(4), replica=3),
    )
    world.settle(Decider)
    found = {
        each["metadata"]["labels"]["adjoin.dev/pod"]: int(each["metadata"]["labels"]["adjoin.dev/replica"])
        for each in world.all(Kind.RESOURCE_CLAIM)
    }
    assert found == {"pod-team-p0": 1, "pod-team-p1": 0, "pod-team-p2": 3}
    assert gated(world) == {"p3", "p4"}
    assert ["numbered from 0" in event["note"] for event in events(world, "NoSuchReplica")] == [True]
    assert [event["regarding"]["name"] for event in events(world, "ReplicaInUse")] == ["p4"]


def test_c8_a_gated_pod_that_goes_takes_its_place_in_the_queue_along() -> None:
    """The pool is full: the pod waits, is deleted, and nothing of it is left."""
    world = cluster(pool(), follower(4), worker("p0"), worker("p1"), devices=1)
    world.settle(Decider)
    (waiting,) = gated(world)
    assert status(world)["phase"] == "Pending"
    world.delete(Kind.POD, waiting)
    world.settle(Decider)
    assert (status(world)["phase"], len(held(world))) == ("InUse", 1)


def test_a_new_pod_does_not_wait_for_a_cleaning_while_other_devices_are_free() -> None:
    world = cluster(pool(cleanup=True), follower(2), worker("p0"))
    world.settle(Decider)
    world.hook = lambda job: Ending(None)
    world.finish("p0")
    world.settle(Decider)
    assert states(world) == {0: "Releasing"}
    world.add(worker("p1"))
    world.settle(Decider)
    assert states(world) == {0: "Releasing", 1: "InUse"}
    assert status(world)["phase"] == "InUse"
    world.add(worker("p2"))
    world.settle(Decider)
    assert gated(world) == {"p2"}
    world.hook = lambda job: Ending()
    world.settle(Decider)
    assert states(world) == {0: "InUse", 1: "InUse"}


def test_without_a_gang_required_binds_to_the_domain_of_the_first() -> None:
    fabric = {"fabric": [{"name": "rack", "nodeLabel": "rack"}]}
    made = devicepool(spec={"topology": fabric})
    world = World()
    for rack, names in (("r1", ("n1", "n2")), ("r2", ("n3", "n4"))):
        for name in names:
            world.add(node(name, labels={"rack": rack}), resourceslice(name, devices=1))
    world.add(made, follower(4, fabric={"required": "rack"}), worker("p0"))
    world.settle(Decider)
    world.add(worker("p1"))
    world.settle(Decider)
    racks = {each["node"] in ("n1", "n2") for each in replicas(world).values()}
    assert (len(replicas(world)), len(racks)) == (2, 1)
    world.add(worker("p2"))
    world.settle(Decider)
    assert gated(world) == {"p2"}
    assert status(world)["phase"] == "Pending"
    assert "rack" in str(status(world)["reasons"])


def test_f15_what_is_freed_for_a_waiting_pod_goes_to_it_and_nobody_else_is_evicted() -> None:
    victims = deviceclaim("job-b", replicas=2)
    low = [pod(f"low{number}", claim="job-b", token=f"low{number:07d}") for number in range(2)]
    preempting = {"preemption": {"withinTenant": "LowerPriority"}}
    made = devicepool(spec={"tenancy": preempting})
    world = cluster(made, victims, *low, devices=3)
    world.settle(Decider)
    world.add(follower(3, priority=10), worker("p0", created=world.now))
    world.settle(Decider)
    world.add(worker("p1", created=world.now + 1))
    world.settle(Decider)
    assert gated(world) == set()
    assert (len(held(world)), len(status(world, "job-b")["allocation"]["replicas"])) == (2, 1)


def test_a_suspended_claim_says_so_and_takes_its_pods_back_afterwards() -> None:
    world = cluster(pool(), follower(suspend=True), worker("p0"))
    world.settle(Decider)
    assert [reason["code"] for reason in status(world)["reasons"]] == ["Suspended"]
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"suspend": False}})
    world.settle(Decider)
    assert states(world) == {0: "InUse"}


def test_a26_two_pods_of_one_replica_run_one_after_the_other_without_a_write_between() -> None:
    world = cluster(pool(), follower(3), worker("p0", replica=0), worker("p1", replica=0))
    world.settle(Decider)
    (second,) = gated(world)
    (first,) = {"p0", "p1"} - {second}
    assert len(events(world, "ReplicaInUse")) == 1
    count = len(world.writes)
    for _ in range(3):
        world.settle(Decider)
    assert len(world.writes) == count
    device = given(world, first)
    world.finish(first)
    world.settle(Decider)
    assert gated(world) == set()
    assert given(world, second) == device


def test_c20_pods_of_others_and_their_state_do_not_matter() -> None:
    other = deviceclaim("job-b")
    stranger = pod("stranger", claim="job-b", token="zzzzzzzzzz", gates=("adjoin.dev/claim", "else"))
    world = cluster(pool(), follower(2), worker("p0"), other, stranger)
    world.settle(Decider)
    world.finish("p0", phase="Failed")
    world.settle(Decider)
    assert held(world) == {}


def test_c32_the_end_of_a_pod_that_never_had_the_replica_touches_nothing() -> None:
    world = cluster(pool(cleanup=True, cleanBetweenRestarts=True), fixed(1), worker("p0"), worker("p1"))
    world.settle(Decider)
    (second,) = gated(world)
    before = replicas(world)
    world.delete(Kind.POD, second)
    world.settle(Decider)
    assert (replicas(world), ran(world)) == (before, [])


def shrink(crash: int | None) -> tuple[Obj, list[str], int]:
    """Two pods come, one goes, one comes: what is held by whom in the end, what ran, and how many requests it took,
    with the operator dead before request number `crash`."""
    world = cluster(
        pool(cleanup=True), follower(2), *(worker(f"p{number}", created=world_time(number)) for number in range(2))
    )
    world.crash_after(crash)
    world.settle(Decider, rounds=100)
    kept = given(world, "p1")
    world.finish("p0")
    world.settle(Decider, rounds=100)
    assert list(held(world).values()) == [kept]
    world.add(worker("p2", created=world_time(2)))
    world.settle(Decider, rounds=100)
    assert given(world, "p1") == kept
    assert sorted(held(world).values()) == sorted([kept, given(world, "p2")])
    return states(world), ran(world), len(world.writes)


def test_scale_down_survives_a_crash_before_every_single_write() -> None:
    left, hooks_run, count = shrink(None)
    assert (left, hooks_run) == ({0: "InUse", 1: "InUse"}, ["cleanup"])
    for crash in range(count):
        assert shrink(crash)[:2] == (left, hooks_run), f"died before request {crash}"


# Between two pods of one replica


def restart(crash: int | None, *, clean: bool) -> tuple[str, str, list[str], list[str], int]:
    """One replica serves two pods: the devices of both, the hooks that ran, when the second was let go, and how many
    requests it took."""
    world = cluster(pool(init=True, cleanup=True, cleanBetweenRestarts=clean), fixed(1), worker("p0"))
    world.crash_after(crash)
    world.settle(Decider)
    first = given(world, "p0")
    world.finish("p0")
    world.add(worker("p1"))
    before: list[str] = []

    def check(world: World) -> None:
        if "p1" not in gated(world):
            before[:] = before or ran(world)

    world.settle(Decider, rounds=100, check=check)
    return first, given(world, "p1"), ran(world), before, len(world.writes)


def test_by_default_nothing_runs_between_two_pods_of_one_replica() -> None:
    first, second, hooks_run, _, _ = restart(None, clean=False)
    assert first == second
    assert hooks_run == ["init"]


def test_devices_are_cleaned_and_prepared_between_two_pods_where_the_pool_says_so() -> None:
    first, second, hooks_run, before, count = restart(None, clean=True)
    assert first == second
    assert hooks_run == before == ["init", "cleanup", "init"]
    for crash in range(count):
        assert restart(crash, clean=True)[:4] == (first, second, hooks_run, before), f"died before request {crash}"


def test_a_replica_cleaned_many_times_runs_its_hooks_every_time() -> None:
    world = cluster(pool(init=True, cleanup=True, cleanBetweenRestarts=True), fixed(1))
    for number in range(3):
        world.add(worker(f"p{number}"))
        world.settle(Decider)
        world.finish(f"p{number}")
        world.settle(Decider)
    assert ran(world) == ["init", "cleanup", "init", "cleanup", "init", "cleanup", "init"]
    assert replicas(world)[0]["served"] == 3
    assert status(world)["phase"] == "Ready"
    assert not world.all(Kind.JOB)


def test_a_device_that_cannot_be_cleaned_between_pods_is_replaced() -> None:
    world = cluster(pool(cleanup=True, cleanBetweenRestarts=True), fixed(1), worker("p0"))
    world.settle(Decider)
    first = given(world, "p0")
    world.hook = lambda job: Ending("Failed", "process 7 is stuck")
    world.finish("p0")
    world.add(worker("p1"))
    world.settle(Decider, rounds=100)
    assert given(world, "p1") != first
    found = world.get(Kind.DEVICE_POOL, "training")
    assert found is not None
    assert [(each["device"], each["reason"]) for each in found["status"]["quarantined"]] == [(first, "NeedsReset")]


def test_a_claim_deleted_while_it_is_cleaned_between_pods_goes_once_that_is_done() -> None:
    world = cluster(pool(init=True, cleanup=True, cleanBetweenRestarts=True), fixed(1), worker("p0"))
    world.settle(Decider)

    def end(job: Obj) -> Ending:
        found = world.get(Kind.DEVICE_CLAIM, "job-a")
        if found is not None and not found["metadata"].get("deletionTimestamp"):
            world.delete(Kind.DEVICE_CLAIM, "job-a")
        return Ending()

    world.hook = end
    world.finish("p0")
    world.settle(Decider)
    assert ran(world) == ["init", "cleanup"]
    assert world.get(Kind.DEVICE_CLAIM, "job-a") is None


# Released without being asked


def test_a_claim_that_nobody_uses_is_released_and_comes_back_for_a_pod() -> None:
    world = cluster(pool(cleanup=True), fixed(2, idleTimeout="30m"))
    start = world.now
    world.settle(Decider)
    assert world.now >= start + 1800
    assert (status(world)["phase"], released(world), held(world)) == ("Released", "Idle", {})
    assert ran(world) == ["cleanup", "cleanup"]
    assert len(events(world, "Released")) == 1
    world.add(worker("p0"))
    world.settle(Decider)
    assert states(world) == {0: "InUse", 1: "Ready"}
    assert released(world) == ""


def test_the_idle_time_counts_from_the_end_of_the_last_pod_and_not_while_one_runs() -> None:
    world = cluster(pool(), fixed(2, idleTimeout="30m"), worker("p0"))
    world.settle(Decider)
    world.now += 7200
    world.settle(Decider)
    assert states(world) == {0: "InUse", 1: "Ready"}
    world.finish("p0")
    ended = world.now
    world.settle(Decider)
    assert released(world) == "Idle"
    assert world.now >= ended + 1800


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param(worker("p0", replica=5), "Idle", id="a replica that there is not"),
        pytest.param(worker("p0", containers='{"main": ["tpu"]}'), "Idle", id="an unknown request"),
        pytest.param(worker("p0"), "", id="for the claim alone"),
    ],
)
def test_a_pod_that_cannot_start_keeps_nothing_from_being_released(waiting: Obj, expected: str) -> None:
    world = cluster(pool(), fixed(1, idleTimeout="30m"))
    step(world, Decider(), 8)
    assert states(world) == {0: "Ready"}
    world.add(waiting)
    world.settle(Decider)
    assert released(world) == expected


def test_a_pod_whose_foreign_gate_goes_brings_an_idle_claim_back() -> None:
    world = cluster(pool(), fixed(1, idleTimeout="30m"))
    world.settle(Decider)
    world.add(worker("p0", gates=("adjoin.dev/claim", "else")))
    world.settle(Decider)
    assert released(world) == "Idle"
    world.change(Kind.POD, "p0", {"spec": {"schedulingGates": [{"name": "adjoin.dev/claim"}]}})
    world.settle(Decider)
    assert (released(world), states(world)) == ("", {0: "InUse"})


def end(world: World, name: str, phase: str) -> None:
    world.finish(name, phase=phase)
    patch = {"state": {"terminated": {"finishedAt": rfc3339(world.now)}}, "name": "main"}
    world.change(Kind.POD, name, {"status": {"containerStatuses": [patch]}})


@pytest.mark.parametrize(
    ("controller", "phases", "pause"),
    [
        pytest.param("", ["Succeeded"], 0, id="a bare pod that succeeded"),
        pytest.param("", ["Failed"], 0, id="a bare pod that failed: nobody makes another"),
        pytest.param("job", ["Succeeded"], 30, id="a Job's pod that succeeded"),
        pytest.param("job", ["Failed"], 360, id="a Job's pod that failed: another may come"),
        pytest.param("job", ["Failed", "Succeeded"], 30, id="a Job's second try succeeded"),
        pytest.param("job", ["gone"], 360, id="a pod that is gone"),
    ],
)
def test_a_claim_is_released_when_no_further_pod_of_it_is_to_be_expected(
    controller: str, phases: list[str], pause: float
) -> None:
    world = cluster(pool(cleanup=True), fixed(1, release="WhenPodsFinish"))
    decider = Decider()
    for number, phase in enumerate(phases):
        name = f"p{number}"
        world.add(worker(name, controller=controller, created=world.now))
        step(world, decider, 12)
        assert name not in gated(world)
        world.now += 60
        if phase == "gone":
            world.delete(Kind.POD, name)
        else:
            end(world, name, phase)
    ended = world.now
    world.settle(Decider)
    assert (status(world)["phase"], released(world), held(world)) == ("Released", "PodsFinished", {})
    assert ended + pause <= world.now < ended + pause + 25
    assert ran(world) == ["cleanup"]


def test_a_jobs_next_try_finds_the_devices_of_the_one_before() -> None:
    world = cluster(pool(), fixed(1, release="WhenPodsFinish"), worker("p0", controller="job"))
    world.settle(Decider)
    device = given(world, "p0")
    end(world, "p0", "Failed")
    step(world, Decider(), 4)
    world.now += 300
    world.add(worker("p1", controller="job", created=world.now))
    world.settle(Decider)
    assert (released(world), given(world, "p1")) == ("", device)


def test_a_claim_that_no_pod_has_had_does_not_finish() -> None:
    world = cluster(pool(), fixed(1, release="WhenPodsFinish"), worker("p0", replica=7))
    world.settle(Decider)
    world.delete(Kind.POD, "p0")
    world.now += 86_400
    world.settle(Decider)
    assert (status(world)["phase"], released(world)) == ("Ready", "")


def test_a_finished_claim_is_planned_again_when_its_spec_changes_and_not_for_a_pod() -> None:
    world = cluster(pool(), fixed(1, release="WhenPodsFinish"), worker("p0"))
    world.settle(Decider)
    world.finish("p0")
    world.settle(Decider)
    assert released(world) == "PodsFinished"
    world.add(worker("p1", created=world.now))
    world.settle(Decider)
    assert (gated(world), held(world)) == ({"p1"}, {})
    (event,) = events(world, "ClaimReleased")
    assert "PodsFinished" in event["note"]
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"priority": 1}})
    world.settle(Decider)
    assert (released(world), states(world)) == ("", {0: "InUse"})


def test_a_follower_is_released_when_its_pods_have_finished() -> None:
    world = cluster(pool(), follower(2, release="WhenPodsFinish"), worker("p0"), worker("p1"))
    world.settle(Decider)
    world.finish("p0")
    world.settle(Decider)
    assert (status(world)["phase"], released(world), len(held(world))) == ("InUse", "", 1)
    world.finish("p1")
    world.settle(Decider)
    assert (status(world)["phase"], released(world)) == ("Released", "PodsFinished")


def test_resuming_a_suspended_claim_gives_its_pods_time_to_come() -> None:
    world = cluster(pool(), fixed(1, release="WhenPodsFinish"), worker("p0"))
    world.settle(Decider)
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"suspend": True}})
    world.settle(Decider)
    world.now += 3600
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"suspend": False}})
    world.settle(Decider)
    assert (status(world)["phase"], released(world)) == ("Ready", "")


def test_a_claim_whose_time_is_over_is_cleaned() -> None:
    world = cluster(pool(cleanup=True), fixed(1, maxRuntime="4h"), worker("p0"))
    start = world.now
    world.settle(Decider)
    assert (released(world), world.get(Kind.POD, "p0"), ran(world)) == ("MaxRuntime", None, ["cleanup"])
    assert world.now >= start + 4 * 3600


def test_the_scale_of_a_claim_comes_back_only_as_a_new_replica_once_cleaning_was_begun() -> None:
    world = cluster(pool(init=True, cleanup=True), fixed(1), worker("p0"))
    world.settle(Decider)
    world.finish("p0")
    world.hook = lambda job: Ending(None)
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"replicas": 0}})
    world.settle(Decider)
    assert (states(world), ran(world)) == ({0: "Releasing"}, ["init", "cleanup"])
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"replicas": 1}})
    world.add(worker("p1"))
    world.settle(Decider)
    assert (states(world), gated(world)) == ({0: "Releasing"}, {"p1"})
    world.hook = lambda job: Ending()
    world.settle(Decider)
    assert (states(world), ran(world)) == ({0: "InUse"}, ["init", "cleanup", "init"])


def test_a_pod_whose_sidecar_runs_on_has_not_stopped() -> None:
    """Compute and IO containers have ended; the sidecar, an init container that goes on, has not."""
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-11-30T08:05:00Z"}}
    made = worker("p0", node="n1", phase="Running")
    made["status"] |= {
        "initContainerStatuses": [{"name": "warm", "state": ended}, {"name": "mesh", "state": {"running": {}}}],
        "containerStatuses": [{"name": "trainer", "state": ended}, {"name": "loader", "state": ended}],
    }
    facts = read_pod(made)
    assert facts is not None
    assert (facts.started, facts.stopped, facts.finished, facts.ended) == (True, False, False, None)
    made["status"]["initContainerStatuses"][1]["state"] = ended
    made["status"]["phase"] = "Succeeded"
    facts = read_pod(made)
    assert facts is not None
    assert (facts.stopped, facts.finished, rfc3339(facts.ended or 0)) == (True, True, "2026-11-30T08:05:00Z")


def test_what_follows_pods_says_so_to_the_planner() -> None:
    """The allocator is asked for a set with gaps."""
    world = cluster(pool(), follower(4), worker("p0"), worker("p1"), worker("p2"))
    world.settle(Decider)
    gone = next(each for each in ("p0", "p1", "p2") if given(world, each) == held(world)[1])
    world.finish(gone)
    decision = Decider().decide(world.view(), world.now)
    (claim,) = decision.snapshot.claims
    assert (tuple(claim.members), claim.size) == ((0, 2), 2)
    assert decode_snapshot(encode_snapshot(decision.snapshot)).claims[0].skipped == (1,)


def idle_life(crash: int | None) -> tuple[object, int]:
    world = cluster(pool(cleanup=True), fixed(1, idleTimeout="30m"), worker("p0"))
    world.crash_after(crash)
    world.settle(Decider, rounds=100)
    world.finish("p0")
    world.settle(Decider, rounds=100)
    first = (status(world)["phase"], released(world), held(world))
    world.add(worker("p1"))
    world.settle(Decider, rounds=100)
    return (first, states(world), sorted(ran(world))), len(world.writes)


def finished_life(crash: int | None) -> tuple[object, int]:
    world = cluster(pool(cleanup=True), fixed(2, release="WhenPodsFinish"), worker("p0"), worker("p1"))
    world.crash_after(crash)
    world.settle(Decider, rounds=100)
    world.finish("p0")
    world.finish("p1", phase="Failed")
    world.settle(Decider, rounds=100)
    return (status(world)["phase"], released(world), held(world), sorted(ran(world))), len(world.writes)


@pytest.mark.parametrize("life", [idle_life, finished_life])
def test_a_release_survives_a_crash_before_every_single_write(
    life: Callable[[int | None], tuple[object, int]],
) -> None:
    left, count = life(None)
    for crash in range(count):
        assert life(crash)[0] == left, f"died before request {crash}"


def test_a_pod_that_ended_before_it_was_seen_running_had_its_replica() -> None:
    """Bound, run and ended between two looks."""
    world = cluster(pool(cleanup=True, cleanBetweenRestarts=True), fixed(1, release="WhenPodsFinish"), worker("p0"))
    decider = Decider()
    for _ in range(20):
        if "p0" in gated(world):
            step(world, decider)
    world.kubernetes()
    world.finish("p0")
    assert states(world) == {0: "Ready"}
    world.settle(Decider)
    assert (released(world), ran(world)) == ("PodsFinished", ["cleanup"])
