"""A claim of higher priority takes the devices of another one: what the API server holds on the way."""

from __future__ import annotations

from typing import Any

from tests.support.objects import deviceclaim, pod
from tests.support.small import cluster
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.intents import Kind

PREEMPTION = {"preemption": {"withinTenant": "LowerPriority"}}


def status(world: World, name: str) -> dict[str, Any]:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    found: dict[str, Any] = claim.get("status") or {}
    return found


def contested() -> World:
    """A node of which a claim with a running pod has all GPUs, in a pool where lower priorities give way."""
    world = cluster()
    world.change(Kind.DEVICE_POOL, "training", {"spec": {"tenancy": PREEMPTION}}, namespace="")
    gpus = len(gpus_of(world))
    world.add(deviceclaim("low", requests={"gpu": gpus}), pod("low-0", claim="low", token="l" * 10))
    world.settle(Decider)
    assert status(world, "low")["phase"] == "InUse"
    high = deviceclaim("high", requests={"gpu": 1})
    high["spec"]["priority"] = 10
    world.add(high)
    return world


def gpus_of(world: World) -> list[str]:
    """Names of the GPUs that the pool offers."""
    decision = Decider().decide(world.view(), world.now)
    return [
        device.id.device
        for devices in decision.snapshot.inventory.values()
        for device in devices
        if device.kind == "gpu"
    ]


def test_the_devices_are_spoken_for_before_the_victim_has_gone() -> None:
    world = contested()
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    low, high = status(world, "low"), status(world, "high")
    assert low["phase"] == "Releasing"
    assert [replica["state"] for replica in low["allocation"]["replicas"]] == ["Releasing"]
    (evicted,) = [each for each in low["conditions"] if each["type"] == "Evicted"]
    assert (evicted["status"], evicted["reason"]) == ("True", "Preempted")
    assert "team/high" in evicted["message"]
    assert [each["byUID"] for each in low["evictions"]] == ["claim-team-high"]
    assert high["phase"] == "Pending"
    assert [reason["code"] for reason in high["reasons"]] == ["DeviceReleasing"]
    assert [(each["index"], each["node"], len(each["devices"])) for each in high["nominated"]] == [(0, "n1", 1)]


def test_the_preemptor_gets_what_was_held_for_it_and_the_victim_waits() -> None:
    world = contested()
    world.settle(Decider)
    low, high = status(world, "low"), status(world, "high")
    assert high["phase"] == "Ready"
    assert "nominated" not in high
    assert low["phase"] == "Pending"
    assert "allocation" not in low
    assert world.get(Kind.POD, "low-0") is None


def test_a_fresh_process_goes_on_with_an_eviction() -> None:
    world = contested()
    decider = Decider()
    for _ in range(8):
        world.carry_out(decider.decide(world.view(), world.now).intents)
        world.kubernetes()
        world.now += 1.0
        decider = Decider()
    world.settle(Decider)
    assert status(world, "high")["phase"] == "Ready"
    assert len(status(world, "low")["evictions"]) == 1


def test_nobody_gives_way_where_the_pool_does_not_say_so() -> None:
    world = contested()
    world.change(Kind.DEVICE_POOL, "training", {"spec": {"tenancy": None}}, namespace="")
    world.settle(Decider)
    assert status(world, "low")["phase"] == "InUse"
    assert status(world, "high")["phase"] == "Pending"
