"""The operator dies before every single request of several lives: what is left in the end is always the same, no hook
ran twice, and at no instant was a device in two hands (which the simulated cluster checks throughout)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.objects import deviceclaim, node, pod, resourceslice
from tests.support.pooled import cluster, held, phase, quarantined, ran
from tests.support.world import Ending, World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]
Life = Callable[[int | None], World]


def wanting(name: str, **spec: Any) -> Obj:
    claim = deviceclaim(name, uid=name)
    claim["spec"] |= spec
    return claim


def worker(name: str, claim: str, **fields: Any) -> Obj:
    return pod(name, claim=claim, uid=name, token=f"{name.replace('-', ''):x<10}"[:10], **fields)


def gang(crash: int | None) -> World:
    """A gang of two with hooks; one member's pod is made again, then all goes."""
    world = cluster(devices=1)
    world.add(node("n2"), resourceslice("n2", devices=1), wanting("g", replicas=2, gang={"minReplicas": 2}))
    world.add(*(worker(f"g-{index}", "g", replica=index) for index in range(2)))
    world.crash_after(crash)
    world.settle(Decider, rounds=200)
    world.finish("g-1", phase="Failed")
    world.add(worker("h-1", "g", replica=1))
    world.settle(Decider, rounds=200)
    world.delete(Kind.DEVICE_CLAIM, "g")
    world.settle(Decider, rounds=200)
    return world


def preemption(crash: int | None) -> World:
    """A claim is evicted for another of higher priority, and its device is cleaned in between."""
    tenancy = {"preemption": {"withinTenant": "LowerPriority"}}
    world = cluster(wanting("low", priority=1), worker("low-0", "low"), devices=1, tenancy=tenancy)
    world.settle(Decider, rounds=200)
    world.add(wanting("high", priority=9), worker("high-0", "high"))
    world.crash_after(crash)
    world.settle(Decider, rounds=200)
    return world


def surge(crash: int | None) -> World:
    """A rolling update of pods that a claim follows: a new one before the old one goes."""
    world = cluster(wanting("f", scaling={"mode": "FollowPods", "maxReplicas": 3}), devices=3)
    world.add(worker("a-0", "f"), worker("a-1", "f"))
    world.crash_after(crash)
    world.settle(Decider, rounds=200)
    for number in range(2):
        world.add(worker(f"b-{number}", "f"))
        world.settle(Decider, rounds=200)
        world.delete(Kind.POD, f"a-{number}")
        world.settle(Decider, rounds=200)
    return world


def recovery(crash: int | None) -> World:
    """A device cannot be cleaned, goes into quarantine, and recovers by itself."""
    world = cluster(wanting("c"), worker("c-0", "c"), devices=1)
    world.settle(Decider, rounds=200)
    attempts = {"left": 2}

    def end(job: Obj) -> Ending:
        if job["metadata"]["labels"]["adjoin.dev/hook"] == "cleanup" and attempts["left"]:
            attempts["left"] -= 1
            return Ending("Failed", "busy")
        return Ending()

    world.hook = end
    world.delete(Kind.DEVICE_CLAIM, "c")
    world.crash_after(crash)
    world.settle(Decider, rounds=300)
    world.add(wanting("d"))
    world.settle(Decider, rounds=200)
    return world


def left_of(world: World) -> tuple[Any, ...]:
    """What a life comes to."""
    claims = {obj["metadata"]["name"] for obj in world.all(Kind.DEVICE_CLAIM)}
    return (
        {name: (phase(world, name), held(world, name)) for name in sorted(claims)},
        {obj["metadata"]["name"]: obj["status"].get("phase") for obj in world.all(Kind.POD)},
        sorted(obj["metadata"]["name"] for obj in world.all(Kind.RESOURCE_CLAIM)),
        [obj["metadata"]["name"] for obj in world.all(Kind.JOB)],
        quarantined(world),
        sorted(ran(world)),
    )


@pytest.mark.parametrize("life", [gang, preemption, surge, recovery], ids=lambda life: life.__name__)
def test_a_crash_before_any_request_of_a_life_changes_nothing(life: Life) -> None:
    whole = life(None)
    expected = left_of(whole)
    for crash in range(len(whole.writes)):
        assert left_of(life(crash)) == expected, f"died before request {crash}"
