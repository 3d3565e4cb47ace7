"""What proves that nothing runs on a node any more, and what becomes of its devices when that proof turns out wrong.

A Node object that is deleted lets claims go, since somebody says that the machine is no more. When only its kubelet was
away, the machine comes back as the same boot (`bootID`), with the containers of before still on its devices, and
nobody has cleaned anything: then the proof was none.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import deviceclaim, node, pod, resourceslice
from tests.support.pooled import (
    HOOKS,
    TEMPLATE,
    cluster,
    events,
    held,
    phase,
    pool,
    quarantined,
    ran,
    reasons,
    slice_of,
    steps,
)
from tests.support.world import Ending, World

from adjoin.cache import LINGER_SECONDS
from adjoin.decision import Decider
from adjoin.decision.quarantine import GONE_REMEMBERED, GONE_SECONDS
from adjoin.intents import Kind
from adjoin.lifecycle import rfc3339

Obj = dict[str, Any]


def gone(world: World, name: str = "n1") -> None:
    """The Node is deleted, and with it its slices and pods, as Kubernetes' collectors do."""
    world.delete(Kind.NODE, name, "")
    world.delete(Kind.RESOURCE_SLICE, slice_of(name), "")
    for each in world.all(Kind.POD):
        if each["spec"].get("nodeName") == name:
            world.delete(Kind.POD, each["metadata"]["name"], each["metadata"]["namespace"], force=True)


def back(world: World, name: str = "n1", *, boot: str = "boot-1", devices: int = 1) -> None:
    """A kubelet registers a machine of that name."""
    world.add(node(name, boot=boot), resourceslice(name, devices=devices))


def lost(lifecycle: Obj = HOOKS, **spec: Any) -> World:
    """A claim was released while its node was gone; another waits."""
    world = cluster(deviceclaim(), pod(), devices=1, lifecycle=lifecycle, **spec)
    world.settle(Decider)
    gone(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert phase(world) == "gone"
    world.ran.clear()
    world.add(deviceclaim("job-b"), pod("next", claim="job-b", token="b" * 10))
    steps(world, seconds=200)
    assert phase(world, "job-b") == "Pending"
    return world


def test_c29_a_machine_that_comes_back_as_the_same_boot_is_cleaned_before_anybody_has_its_devices() -> None:
    world = lost()
    assert events(world, "CleanupSkipped")
    assert quarantined(world) == {"gpu-0": "NotCleaned"}
    back(world)
    steps(world, seconds=int(LINGER_SECONDS))
    assert (phase(world, "job-b"), ran(world)) == ("Pending", [])
    assert "Quarantined" in reasons(world, "job-b")
    world.settle(Decider)
    assert phase(world, "job-b") == "InUse"
    assert ran(world) == ["cleanup scrub", "init verify", "init verify"]
    assert quarantined(world) == {}


def test_c29_a_machine_that_was_started_anew_serves_at_once() -> None:
    """Whatever ran on it does not any more."""
    world = lost()
    back(world, boot="boot-2")
    steps(world, seconds=10)
    assert phase(world, "job-b") == "InUse"
    assert ran(world) == ["init verify"]
    assert quarantined(world) == {}
    assert events(world, "QuarantineLifted") == ["gpu.nvidia.com/n1/gpu-0 on n1: node n1 was started anew"]


def test_c29_without_hooks_the_kubelet_that_is_back_gets_the_time_of_a_forced_deletion() -> None:
    world = lost({})
    back(world)
    steps(world, seconds=int(LINGER_SECONDS))
    assert phase(world, "job-b") == "Pending"
    steps(world, seconds=10)
    assert phase(world, "job-b") == "InUse"


def test_c29_the_time_begins_anew_when_the_kubelet_goes_again() -> None:
    world = lost({})
    back(world)
    steps(world, seconds=20)
    world.change(Kind.NODE, "n1", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "")
    steps(world, seconds=60)
    world.change(Kind.NODE, "n1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "")
    steps(world, seconds=int(LINGER_SECONDS))
    assert phase(world, "job-b") == "Pending"
    steps(world, seconds=10)
    assert phase(world, "job-b") == "InUse"


@pytest.mark.parametrize("boot", ["boot-1", ""], ids=["the same", "not known"])
def test_c29_where_somebody_has_to_vouch_only_another_boot_or_that_ends_it(boot: str) -> None:
    world = lost(health={"recovery": "Manual"})
    back(world, boot=boot)
    steps(world, seconds=600)
    assert (phase(world, "job-b"), quarantined(world)) == ("Pending", {"gpu-0": "NotCleaned"})
    (entry,) = pool(world)["quarantined"]
    assert entry["exit"] == "its node is started anew, or kubectl adjoin release-quarantine"
    text = '[{"device": "n1/gpu-0", "reason": "looked at"}]'
    world.change(Kind.DEVICE_POOL, "training", {"metadata": {"annotations": {"adjoin.dev/release-quarantine": text}}})
    steps(world, seconds=10)
    assert phase(world, "job-b") == "InUse"


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_c24_a_quarantine_outlives_the_node_object_but_not_the_boot(boot: str) -> None:
    """The device failed its cleanup; its Node is deleted and made again."""
    lifecycle = {"cleanup": [{"name": "scrub", "template": TEMPLATE, "retries": 0}]}
    world = cluster(deviceclaim(), pod(), devices=1, lifecycle=lifecycle, health={"recovery": "Manual"})
    world.settle(Decider)
    world.hook = lambda job: Ending("Failed")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    gone(world)
    steps(world, seconds=30)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    assert pool(world)["quarantined"][0]["nodeGoneSince"]
    back(world, boot=boot)
    steps(world, seconds=30)
    same = boot == "boot-1"
    assert quarantined(world) == ({"gpu-0": "NeedsReset"} if same else {})
    if same:
        assert "nodeGoneSince" not in pool(world)["quarantined"][0]


def test_c24_a_node_that_never_comes_back_is_forgotten() -> None:
    world = lost()
    world.now += GONE_SECONDS - 300
    steps(world, seconds=5)
    assert quarantined(world) == {"gpu-0": "NotCleaned"}
    world.now += 300
    steps(world, seconds=5)
    assert quarantined(world) == {}


def test_c24_of_many_nodes_that_are_gone_those_of_late_are_remembered() -> None:
    world = lost()
    (known,) = pool(world)["quarantined"]
    others = [
        {**known, "node": f"old-{number}", "pool": f"old-{number}", "id": f"GPU-{number}"}
        for number in range(GONE_REMEMBERED)
    ]
    for each in others:
        each["nodeGoneSince"] = "2026-11-30T07:00:00Z"
    world.change(Kind.DEVICE_POOL, "training", {"status": {"quarantined": [*others, known]}}, "")
    steps(world, seconds=5)
    left = pool(world)["quarantined"]
    assert len(left) == GONE_REMEMBERED
    assert "n1" in {each["node"] for each in left}


def test_c29_a_replica_on_a_node_that_is_gone_is_placed_elsewhere_at_once() -> None:
    """Its old devices are remembered, and keep nobody waiting."""
    world = cluster(deviceclaim(), pod(), devices=1)
    world.settle(Decider)
    (first,) = held(world)[0]
    assert first == "n1/gpu-0"
    world.add(node("n2"), resourceslice("n2", devices=1))
    gone(world)
    world.add(pod("again", token="c" * 10))
    world.settle(Decider)
    assert (phase(world), held(world)) == ("InUse", {0: ["n2/gpu-0"]})
    assert quarantined(world) == {"gpu-0": "NotCleaned"}


def test_c29_a_taint_that_vouches_for_a_node_that_ran_on_is_no_proof_either() -> None:
    world = cluster(deviceclaim(), pod(), devices=1)
    world.settle(Decider)
    taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
    unready = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    world.change(Kind.NODE, "n1", {"spec": {"taints": taints}, "status": unready}, "")
    world.delete(Kind.POD, "worker", force=True)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert (phase(world), quarantined(world)) == ("gone", {"gpu-0": "NotCleaned"})
    world.ran.clear()
    world.add(deviceclaim("job-b"))
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    world.change(Kind.NODE, "n1", {"spec": {"taints": None}, "status": ready}, "")
    steps(world, seconds=int(LINGER_SECONDS))
    assert (phase(world, "job-b"), ran(world)) == ("Pending", [])
    world.settle(Decider)
    assert phase(world, "job-b") == "Ready"
    assert ran(world)[0] == "cleanup scrub"


@pytest.mark.parametrize("requests", range(12))
def test_c29_a_crash_anywhere_in_the_release_forgets_nothing(requests: int) -> None:
    world = cluster(deviceclaim(), pod(), devices=1)
    world.settle(Decider)
    gone(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.crash_after(requests)
    world.settle(Decider)
    assert (phase(world), quarantined(world)) == ("gone", {"gpu-0": "NotCleaned"})


def test_a_node_that_was_given_up_gets_time_to_end_what_runs_on_it_before_its_devices_are_cleaned() -> None:
    """The kubelet was away for an hour; when it is back the containers of the pod that nobody waited for still run."""
    lifecycle = {**HOOKS, "nodeUnreachable": {"after": "10m", "policy": "Release"}}
    world = cluster(deviceclaim(), pod(), devices=1, lifecycle=lifecycle)
    world.settle(Decider)
    unready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": rfc3339(world.now)}
    world.change(Kind.NODE, "n1", {"status": {"conditions": [unready]}}, "")
    world.delete(Kind.POD, "worker", force=True)
    world.now += 3600
    steps(world, seconds=60)
    assert quarantined(world) == {"gpu-0": "NodeUnreachable"}
    world.ran.clear()
    world.change(Kind.NODE, "n1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "")
    steps(world, seconds=int(LINGER_SECONDS))
    assert ran(world) == []
    world.settle(Decider)
    assert ran(world)[0] == "cleanup scrub"
    assert quarantined(world) == {}


def test_a_device_that_comes_back_with_a_taint_is_not_cleaned_while_that_lasts() -> None:
    world = lost()
    back(world)
    slice_ = resourceslice("n1", devices=1, taints={"gpu-0": [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]})
    world.change(Kind.RESOURCE_SLICE, slice_of("n1"), {"spec": slice_["spec"]}, "")
    steps(world, seconds=200)
    assert (ran(world), quarantined(world)) == ([], {"gpu-0": "NotCleaned"})
    world.change(Kind.RESOURCE_SLICE, slice_of("n1"), {"spec": resourceslice("n1", devices=1)["spec"]}, "")
    world.settle(Decider)
    assert (phase(world, "job-b"), quarantined(world)) == ("InUse", {})
