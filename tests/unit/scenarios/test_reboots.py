"""A node is started anew at an awkward moment: its devices are prepared again, and never while a pod still has them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import deviceclaim, pod
from tests.support.pooled import HOOKS, VERIFY, cluster, conditions, gated, phase, ran, replicas, steps, variables
from tests.support.world import Crash, Ending, World

from adjoin.decision import Decider
from adjoin.intents import Kind, Verb

Obj = dict[str, Any]


def started_anew(world: World) -> None:
    world.change(Kind.NODE, "n1", {"status": {"nodeInfo": {"bootID": "boot-2"}}})


@pytest.mark.parametrize("how", ["it has just ended", "it is force-deleted", "its node was replaced"])
def test_c18_hooks_wait_until_the_last_pods_devices_are_taken_back(how: str) -> None:
    """The pod's ResourceClaim has them until Kubernetes has noticed that the pod is gone."""
    world = cluster(deviceclaim(), pod())
    world.settle(Decider)
    if how == "it has just ended":
        world.finish("worker", phase="Failed")
    else:
        world.delete(Kind.POD, "worker", force=True)
    if how == "its node was replaced":
        before = world.get(Kind.NODE, "n1")
        assert before is not None
        world.delete(Kind.NODE, "n1")
        world.add({**before, "metadata": {**before["metadata"], "uid": "another"}})
    started_anew(world)
    world.settle(Decider)
    assert phase(world) == "Ready"
    assert ran(world) == ["init verify", "init verify"]
    assert [each["bootID"] for each in replicas(world)] == ["boot-2"]


def test_c18_a_pod_at_its_gate_gives_back_what_it_was_about_to_get() -> None:
    world = cluster(deviceclaim(), pod())
    world.refuse = lambda step: "Conflict" if step.kind is Kind.POD and step.verb is Verb.PATCH else None
    decider = Decider()
    for _ in range(8):
        world.carry_out(decider.decide(world.view(), world.now).intents)
        world.kubernetes()
        world.now += 1
    assert gated(world)
    assert any(each.get("status", {}).get("allocation") for each in world.all(Kind.RESOURCE_CLAIM))
    world.refuse = lambda step: None
    started_anew(world)
    world.settle(Decider)
    assert (phase(world), ran(world), gated(world)) == ("InUse", ["init verify", "init verify"], False)


def test_c18_while_a_node_does_not_say_which_boot_it_is_nothing_is_begun_under_a_pod() -> None:
    """A Node that was made anew has no nodeInfo before its kubelet has reported."""
    world = cluster(deviceclaim(), pod())
    world.settle(Decider)
    started_anew(world)
    world.settle(Decider)
    assert phase(world) == "Initializing"
    world.change(Kind.NODE, "n1", {"status": {"nodeInfo": {"bootID": ""}}})
    world.settle(Decider)
    assert (phase(world), ran(world)) == ("Initializing", ["init verify"])
    world.delete(Kind.POD, "worker")
    started_anew(world)
    world.settle(Decider)
    assert (phase(world), ran(world)) == ("Ready", ["init verify", "init verify"])


@pytest.mark.parametrize("crash", range(16))
def test_c18_a_crash_after_the_node_was_started_anew_changes_nothing(crash: int) -> None:
    world = cluster(deviceclaim(), pod())
    world.settle(Decider)
    world.finish("worker", phase="Failed")
    started_anew(world)
    world.add(pod("next", token="n" * 10))
    world.crash_after(crash)
    world.settle(Decider)
    assert (phase(world), ran(world), gated(world, "next")) == ("InUse", ["init verify", "init verify"], False)


def test_a10_what_a_crash_left_allocated_is_taken_back_before_a_hook_has_it() -> None:
    """Crashes at every request, and the node started anew after each."""

    def life(crash: int) -> None:
        world = cluster(deviceclaim(), pod())
        world.crash_after(crash)
        decider = Decider()
        for _ in range(12):
            try:
                world.carry_out(decider.decide(world.view(), world.now).intents)
            except Crash:
                world.crash_after(None)
                started_anew(world)
                decider = Decider()
            world.kubernetes()
            world.now += 1
        world.settle(Decider)
        if "were not verified" in conditions(world).get("Reconciling", ""):
            # The pod had been let go, and nobody would make another: its owner is told, and decides.
            world.delete(Kind.POD, "worker")
            world.settle(Decider)
            assert phase(world) == "Ready"
        else:
            assert phase(world) == "InUse"

    for crash in range(24):
        life(crash)


@pytest.mark.parametrize("second", [False, True], ids=["while the first hook ran", "while the second one ran"])
def test_c6_what_was_begun_in_an_earlier_boot_is_cleaned_when_the_claim_goes_before_it_ran_again(second: bool) -> None:
    """The claim is deleted a moment after the node was started anew: a partition that a hook made outlives that."""
    lifecycle = {**HOOKS, "init": [VERIFY, {**VERIFY, "name": "again"}]}
    world = cluster(deviceclaim(), devices=1, lifecycle=lifecycle)
    world.hook = lambda job: Ending(
        None if variables(job)["ADJOIN_HOOK"] == ("again" if second else "verify") else "Succeeded"
    )
    decider = Decider()
    steps(world, decider, seconds=20)
    assert ran(world) == ["init verify", "init again"][: 1 + second]
    started_anew(world)
    # Whatever is to be begun in the new boot cannot be begun yet.
    unready = {"type": "Ready", "status": "Unknown"}
    world.change(Kind.NODE, "n1", {"status": {"conditions": [unready]}})
    steps(world, decider, seconds=5)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.hook = lambda job: Ending()
    steps(world, decider, seconds=5)
    world.change(Kind.NODE, "n1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    world.settle(Decider)
    assert phase(world) == "gone"
    assert ran(world)[-1] == "cleanup scrub"
