"""Field reports on what becomes of replicas whose node takes nobody any more, and of the gang around them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import deviceclaim, node, pod, resourceslice
from tests.support.pooled import (
    cluster,
    conditions,
    counts,
    events,
    gated,
    held,
    phase,
    quarantined,
    ran,
    reasons,
    slice_of,
    steps,
)
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]


def take_away(world: World, name: str, how: str) -> None:
    """The node takes nobody any more, in one of several ways."""
    if how == "gone":
        world.delete(Kind.NODE, name)
        world.delete(Kind.RESOURCE_SLICE, slice_of(name))
    elif how == "out of service":
        taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
        condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-30T08:00:00Z"}
        world.change(Kind.NODE, name, {"spec": {"taints": taints}, "status": {"conditions": [condition]}})
    elif how == "cordoned":
        world.change(Kind.NODE, name, {"spec": {"unschedulable": True}})
    else:
        world.change(Kind.NODE, name, {"spec": {"taints": [{"key": "node/lost", "effect": "NoExecute"}]}})


WAYS = ["gone", "out of service", "tainted"]


@pytest.mark.parametrize("lifecycle", [{}, None], ids=["without hooks", "with hooks"])
@pytest.mark.parametrize("how", WAYS)
def test_a_replica_whose_node_takes_nobody_any_more_goes_where_there_is_room(how: str, lifecycle: Obj | None) -> None:
    """StatefulSet and Job make the pod again; its devices are where it can start, and what was there was cleaned
    unless nothing can be there any more."""
    more = {} if lifecycle is None else {"lifecycle": lifecycle}
    world = cluster(deviceclaim(), pod(), node("n2"), resourceslice("n2", devices=1), devices=1, **more)
    world.settle(Decider)
    (before,) = held(world)[0]
    first, other = before.partition("/")[0], "n2" if before.startswith("n1") else "n1"
    take_away(world, first, how)
    world.delete(Kind.POD, "worker", force=how in ("gone", "out of service"))
    world.add(pod("again", token="c" * 10))
    world.settle(Decider, rounds=200)
    if how == "tainted" and lifecycle is None:
        # No hook can run there: the device is kept from everybody until one can.
        assert quarantined(world) in ({}, {before.partition("/")[2]: "NeedsReset"})
    assert held(world) == {0: [f"{other}/gpu-0"]}
    assert (phase(world), gated(world, "again")) == ("InUse", False)
    assert len(events(world, "NodeLost", "DeviceClaim")) == 1


@pytest.mark.parametrize("how", ["gone", "out of service"])
def test_a_claim_that_nobody_uses_yet_leaves_a_node_that_is_gone(how: str) -> None:
    """Ready would be a promise that nobody could keep."""
    world = cluster(deviceclaim(), node("n2"), resourceslice("n2", devices=1), devices=1, lifecycle={})
    world.settle(Decider)
    (before,) = held(world)[0]
    take_away(world, before.partition("/")[0], how)
    world.settle(Decider)
    assert held(world)[0] != [before]
    assert phase(world) == "Ready"


@pytest.mark.parametrize("late", [False, True], ids=["a pod waits", "no pod waits"])
def test_a_node_that_is_drained_keeps_what_claims_have_on_it(late: bool) -> None:
    """It comes back; until then its devices are nobody else's."""
    world = cluster(deviceclaim(), pod(), node("n2"), resourceslice("n2", devices=1), devices=1, lifecycle={})
    world.settle(Decider)
    before = held(world)
    name = before[0][0].partition("/")[0]
    take_away(world, name, "cordoned")
    world.settle(Decider)
    world.now += 3600
    world.settle(Decider)
    assert (held(world), phase(world)) == (before, "InUse"), "whoever runs there runs on"
    world.delete(Kind.POD, "worker")
    if not late:
        world.add(pod("again", token="c" * 10))
    world.settle(Decider)
    world.now += 3600
    world.settle(Decider)
    assert held(world) == before
    world.change(Kind.NODE, name, {"spec": {"unschedulable": None}})
    if late:
        world.add(pod("again", token="c" * 10))
    world.settle(Decider)
    assert (held(world), phase(world)) == (before, "InUse")


def gang(*names: str, least: int | None = None) -> World:
    """A gang with a member a node, each with its pod."""
    size = len(names)
    claim = deviceclaim(replicas=size)
    claim["spec"]["gang"] = {"minReplicas": least or size}
    pods = [pod(f"w{index}", replica=index, token=f"abcdefghi{index}") for index in range(size)]
    machines = [each for name in names for each in (node(name), resourceslice(name, devices=1))]
    world = cluster(devices=1, lifecycle={})
    world.delete(Kind.NODE, "n1")
    world.delete(Kind.RESOURCE_SLICE, slice_of())
    world.add(*machines, claim, *pods)
    world.settle(Decider)
    assert phase(world) == "InUse"
    return world


def again(world: World, index: int, number: int, *, ending: str = "Failed") -> None:
    """A member's pod ends, and its controller makes the next."""
    name = f"w{index}" if number == 0 else f"w{index}-{number - 1}"
    if world.get(Kind.POD, name)["status"].get("phase") == "Running":
        world.finish(name, phase=ending)
    world.delete(Kind.POD, name)
    world.add(pod(f"w{index}-{number}", replica=index, token=f"{index}{number:09d}", uid=f"w{index}-{number}"))


def test_c33_replacements_stay_gated_while_the_gang_cannot_be_whole_and_then_it_begins_anew() -> None:
    """A member's node takes nobody any more and there is no other; the workload makes its pods again and again. None
    is let go only to fail; after ten minutes that nobody used, the gang queues as a whole, and others may have its
    devices."""
    world = gang("a", "b", "c")
    lost = held(world)[1][0].partition("/")[0]
    take_away(world, lost, "tainted")
    again(world, 1, 0)
    steps(world, seconds=5)
    assert gated(world, "w1-0")
    assert set(held(world)) == {0, 1, 2}
    # The others fail for want of it, and are made again, many times.
    decider = Decider()
    for number in range(8):
        for index in (0, 2) if number == 0 else (0, 1, 2):
            again(world, index, number)
        steps(world, decider, seconds=20)
        assert all(gated(world, f"w{index}-{number}") for index in (0, 2))
    assert "GangIncomplete" in reasons(world)
    assert sorted(held(world)) == [0, 2]
    world.add(deviceclaim("small"))
    steps(world, decider, seconds=300)
    assert (sorted(held(world)), phase(world, "small")) == ([0, 2], "Pending")
    world.settle(lambda: decider)
    assert held(world) == {}
    assert len(events(world, "GangRequeued")) == 1
    assert (phase(world), phase(world, "small")) == ("Pending", "Ready")
    count = len(world.writes)
    steps(world, decider, seconds=120)
    assert len(world.writes) == count, "nothing goes round"
    world.delete(Kind.DEVICE_CLAIM, "small")
    world.change(Kind.NODE, lost, {"spec": {"taints": None}})
    world.settle(lambda: decider)
    assert (sorted(held(world)), phase(world)) == ([0, 1, 2], "InUse")
    assert counts(world) == {"capacity": 3, "allocated": 3}


def test_c33_what_runs_of_an_incomplete_gang_keeps_its_devices() -> None:
    world = gang("a", "b", "c")
    before = held(world)
    take_away(world, before[1][0].partition("/")[0], "gone")
    world.delete(Kind.POD, "w1", force=True)
    world.settle(Decider)
    world.now += 7200
    world.settle(Decider)
    assert held(world) == {0: before[0], 2: before[2]}
    assert "GangIncomplete" in reasons(world)
    assert [world.get(Kind.POD, name)["status"]["phase"] for name in ("w0", "w2")] == ["Running", "Running"]
    world.add(node("d"), resourceslice("d", devices=1))
    world.settle(Decider)
    assert held(world) == {0: before[0], 1: ["d/gpu-0"], 2: before[2]}


def test_c33_a_gang_with_members_to_spare_goes_on() -> None:
    world = gang("a", "b", "c", least=2)
    before = held(world)
    take_away(world, before[1][0].partition("/")[0], "gone")
    world.delete(Kind.POD, "w1", force=True)
    world.settle(Decider)
    again(world, 0, 0)
    world.settle(Decider)
    assert not gated(world, "w0-0")
    assert sorted(held(world)) == [0, 2]
    world.now += 7200
    world.settle(Decider)
    assert sorted(held(world)) == [0, 2]


@pytest.mark.parametrize("crash", range(14))
def test_c33_a_gang_that_begins_anew_survives_a_crash(crash: int) -> None:
    world = gang("a", "b")
    lost = held(world)[1][0].partition("/")[0]
    take_away(world, lost, "gone")
    for index in (0, 1):
        world.delete(Kind.POD, f"w{index}", force=True)
        world.add(pod(f"w{index}-0", replica=index, token=f"{index}{0:09d}", uid=f"w{index}-0"))
    world.crash_after(crash)
    world.settle(Decider, rounds=80)
    assert held(world) == {}
    assert "Allocated" not in conditions(world)
    world.add(node("c"), resourceslice("c", devices=1))
    world.settle(Decider)
    assert (sorted(held(world)), phase(world), ran(world)) == ([0, 1], "InUse", [])
