"""Hook Jobs that the API server does not take, although admission let their template pass: said with its words, tried
again with pauses, and nobody who is to go is kept for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import deviceclaim, pod
from tests.support.world import World
from tests.unit.operator.test_hooks import cluster, events, hook, hooked, phase, quarantined, ran, replicas

from adjoin.decision import Decider
from adjoin.intents import Kind, Step, Verb

Obj = dict[str, Any]


def refusing(reason: str) -> Any:
    """The API server takes no hook's Job."""

    def refuse(step: Step) -> str | None:
        return reason if step.kind is Kind.JOB and step.verb is Verb.CREATE else None

    return refuse


def rounds(world: World, number: int = 12, seconds: float = 63.0) -> None:
    """So many decisions, each by a process of its own, after pauses such as the writer makes."""
    for _ in range(number):
        world.carry_out(Decider().decide(world.view(), world.now).intents)
        world.verify()
        world.kubernetes()
        world.now += seconds


def ready(world: World) -> Obj:
    claim = world.get(Kind.DEVICE_CLAIM, "job-a")
    assert claim is not None
    return next(each for each in claim["status"]["conditions"] if each["type"] == "Ready")


@pytest.mark.parametrize("reason", ["Invalid", "Forbidden"])
def test_an_init_hook_that_cannot_be_begun_is_told_and_no_device_is_blamed(reason: str) -> None:
    world = cluster(hooked((hook("verify", retries=0),)), deviceclaim(), pod())
    world.refuse = refusing(reason)
    rounds(world)
    assert (phase(world), quarantined(world)) == ("Initializing", {})
    assert f"refuses Job {next(iter(world.rejections))}: {reason}: injected" in ready(world)["message"]
    assert len(events(world, "HookBlocked")) == 2, "on the claim and on the pod that waits, once"
    status_writes = [step for step in world.writes if step.kind is Kind.DEVICE_CLAIM]
    assert len(status_writes) <= 3, "what is said already is not written again"
    world.refuse = lambda step: None
    world.settle(Decider)
    assert (phase(world), ran(world)) == ("InUse", ["init verify"])
    assert "message" not in replicas(world)[0]["hooks"][0]


def test_a_claim_goes_although_its_cleanup_hook_is_refused_and_its_device_needs_a_reset() -> None:
    world = cluster(hooked((), (hook("scrub", retries=2),), health={"recovery": "Manual"}), deviceclaim(), pod())
    world.settle(Decider)
    world.refuse = refusing("Invalid")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    rounds(world)
    assert (phase(world), quarantined(world), ran(world)) == ("gone", {"gpu-0": "NeedsReset"}, [])
    assert len(events(world, "HookFailed")) == 3
    assert all("the API server refuses its Job: Invalid: injected" in each for each in events(world, "HookFailed"))


def test_a_claim_whose_cleanup_is_forbidden_for_now_says_so_and_waits() -> None:
    """A quota of the operator's namespace, or a right that is missing: it passes."""
    world = cluster(hooked((), (hook("scrub", retries=0),)), deviceclaim(), pod())
    world.settle(Decider)
    world.refuse = refusing("Forbidden")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    rounds(world)
    assert (phase(world), quarantined(world)) == ("Releasing", {})
    assert "refuses Job" in ready(world)["message"]
    world.refuse = lambda step: None
    world.settle(Decider)
    assert (phase(world), ran(world)) == ("gone", ["cleanup scrub"])


def test_recovery_that_is_refused_goes_on_with_pauses() -> None:
    world = cluster(hooked((hook("verify"),), (hook("scrub", retries=0),)), deviceclaim(), pod())
    world.settle(Decider)
    world.refuse = refusing("Invalid")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    rounds(world, 60, 10.0)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    pool = world.get(Kind.DEVICE_POOL, "training")
    assert pool is not None
    (run,) = pool["status"]["quarantined"][0]["hooks"]
    assert 3 <= run["attempts"] <= 8
    world.refuse = lambda step: None
    world.settle(Decider, rounds=120)
    assert quarantined(world) == {}


def test_a_refused_job_keeps_no_other_replica_waiting() -> None:
    """Two replicas begin in one intent; the Job of one is refused."""
    world = cluster(hooked((hook("verify"),)), deviceclaim(replicas=2), devices=2)
    world.refuse = refusing("Invalid")
    first: list[str] = []

    def refuse(step: Step) -> str | None:
        if step.kind is not Kind.JOB or step.verb is not Verb.CREATE:
            return None
        first[:] = first or [step.name]
        return "Invalid" if step.name == first[0] else None

    world.refuse = refuse
    rounds(world)
    assert sorted(each["state"] for each in replicas(world)) == ["Initializing", "Ready"]


@pytest.mark.parametrize("stage", ["init", "cleanup"])
def test_a_set_of_more_devices_than_one_resourceclaim_takes_is_worked_on_whole(stage: str) -> None:
    stages = ((hook("one"),), ()) if stage == "init" else ((), (hook("one"),))
    world = cluster(hooked(*stages), deviceclaim(requests={"gpu": 70}), devices=70)
    world.settle(Decider)
    assert phase(world) == "Ready"
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert (phase(world), ran(world)) == ("gone", [f"{stage} one"])
    assert len(world.ran[0]["spec"]["template"]["spec"]["resourceClaims"]) == 3
    assert not world.all(Kind.RESOURCE_CLAIM)
