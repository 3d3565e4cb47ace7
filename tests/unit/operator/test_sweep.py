"""The sweep on whole decisions: what statuses lost comes back, what nobody owns goes, and both are said and counted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import NIC_DRIVER, deviceclaim, pod, resourceclaim, resourceslice
from tests.support.pooled import cluster, counts, events, gated, held, phase, steps
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]


def wipe(world: World, name: str = "job-a") -> None:
    """Somebody takes everything out of the status."""
    world.change(Kind.DEVICE_CLAIM, name, {"status": None})


def corrections(world: World) -> list[tuple[str, str]]:
    decision = Decider().decide(world.view(), world.now)
    return sorted(each for intent in decision.intents for each in intent.corrections)


def test_what_a_pod_has_is_its_claims_again_when_the_status_was_wiped() -> None:
    world = cluster(
        resourceslice("n1", NIC_DRIVER, devices=2), deviceclaim(requests={"gpu": 2, "nic": 1}), pod(), devices=4
    )
    world.settle(Decider)
    before = held(world)
    versions = [each["metadata"]["resourceVersion"] for each in world.all(Kind.RESOURCE_CLAIM)]
    wipe(world)
    assert corrections(world) == [("DeviceClaim", "reclaimed")]
    world.settle(Decider)
    assert (held(world), phase(world)) == (before, "InUse")
    (replica,) = world.get(Kind.DEVICE_CLAIM, "job-a")["status"]["allocation"]["replicas"]
    assert {each["request"]: each["id"] for each in replica["devices"]} == {"gpu": "GPU-n1-1", "nic": "NIC-n1-0"}
    assert [each["metadata"]["resourceVersion"] for each in world.all(Kind.RESOURCE_CLAIM)] == versions
    assert len(events(world, "Reclaimed", "DeviceClaim")) == 1
    assert corrections(world) == []


def test_nobody_gives_anything_for_a_claim_that_only_seems_to_lack_it() -> None:
    """A claim of high priority whose status is gone evicts nobody: it has what it needs."""
    preemption = {"preemption": {"withinTenant": "LowerPriority"}}
    high = deviceclaim("high")
    high["spec"]["priority"] = 10
    world = cluster(
        high, deviceclaim("low"), pod("h", claim="high"), pod("l", claim="low", token="abcdefghi1"), tenancy=preemption
    )
    world.settle(Decider)
    before = held(world, "high"), held(world, "low")
    wipe(world, "high")
    world.settle(Decider)
    assert (held(world, "high"), held(world, "low")) == before
    assert not events(world, "Evicted")
    assert world.get(Kind.POD, "l")["status"]["phase"] == "Running"


def test_a_member_is_put_back_among_the_others() -> None:
    claim = deviceclaim(replicas=3)
    claim["spec"]["gang"] = {"minReplicas": 3}
    pods = [pod(f"w-{index}", replica=index, token=f"abcdefghi{index}") for index in range(3)]
    world = cluster(claim, *pods, devices=3)
    world.settle(Decider)
    before = held(world)
    allocation = world.get(Kind.DEVICE_CLAIM, "job-a")["status"]["allocation"]
    left = {**allocation, "replicas": [each for each in allocation["replicas"] if each["index"] != 1]}
    world.change(Kind.DEVICE_CLAIM, "job-a", {"status": {"allocation": left}})
    world.settle(Decider)
    assert (held(world), phase(world)) == (before, "InUse")


def test_what_others_hold_is_not_taken_back() -> None:
    world = cluster(deviceclaim(), pod(), devices=2)
    world.settle(Decider)
    (mine,) = held(world)[0]
    status = world.get(Kind.DEVICE_CLAIM, "job-a")["status"]
    wipe(world)
    world.add(deviceclaim("thief", status=status, creationTimestamp="2026-11-30T07:00:00Z"))
    steps(world, seconds=3)
    assert held(world, "thief") == {0: [mine]}
    assert mine not in held(world).get(0, [])
    assert any("others hold" in note for note in events(world, "NotReclaimed", "Pod"))


def test_a_pod_at_its_gate_has_nothing_to_be_put_back() -> None:
    world = cluster(deviceclaim(), pod(), devices=2)
    world.settle(Decider)
    wipe(world)
    world.finish("worker")
    world.settle(Decider)
    assert phase(world) == "Ready"
    assert events(world, "Reclaimed") == []


def test_a_resourceclaim_whose_deviceclaim_is_gone_is_removed_by_uid_said_and_counted() -> None:
    """One of the same name, whose owner lives, stays."""
    world = cluster(deviceclaim(), pod(), devices=2)
    world.settle(Decider)
    world.add(resourceclaim("adjoin-job-a-left0ver00", owner="claim-of-old", pod_uid="pod-of-old", devices=[]))
    assert ("ResourceClaim", "orphaned") in corrections(world)
    steps(world)
    assert [each["metadata"]["name"] for each in world.all(Kind.RESOURCE_CLAIM)] == ["adjoin-job-a-abcdefghi0"]
    assert phase(world) == "InUse"


def test_a_hook_that_still_runs_for_nobody_is_removed_with_its_pod_said_and_counted() -> None:
    from adjoin.jobs import RunKey, run_text

    run = RunKey("claim-of-old", 0, "", "init", "verify", 1)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "adjoin-init-old",
            "namespace": "adjoin-system",
            "uid": "job-old",
            "labels": {"adjoin.dev/hook": "init"},
            "annotations": {"adjoin.dev/run": run_text(run)},
            "finalizers": ["adjoin.dev/cleanup"],
            "ownerReferences": [{"apiVersion": "adjoin.dev/v1alpha1", "kind": "DevicePool", "uid": "pool-training"}],
        },
        "spec": {"template": {"metadata": {"labels": {"adjoin.dev/hook": "init"}}, "spec": {"containers": []}}},
    }
    world = cluster(job)
    assert corrections(world) == [("Job", "orphaned")]
    world.settle(Decider)
    assert world.all(Kind.JOB) == []
    assert len(events(world, "OrphanRemoved", "Job")) == 1


def test_the_ordinary_end_of_a_claim_is_no_correction() -> None:
    world = cluster(deviceclaim(), pod())
    counted: list[tuple[str, str]] = []
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider, check=lambda world: counted.extend(corrections(world)))
    assert (phase(world), counted, events(world, "OrphanRemoved")) == ("gone", [], [])


@pytest.mark.parametrize("labels", [{}, {"adjoin.dev/claim": "job-a"}], ids=["plain", "with our label, but no owner"])
def test_what_a_foreign_claim_has_is_recognised_and_never_given_out(labels: Obj) -> None:
    foreign = resourceclaim("theirs", owner="", devices=[("gpu.nvidia.com", "n1", "gpu-0")], labels=labels)
    world = cluster(foreign, deviceclaim(requests={"gpu": 2}), deviceclaim("one"), pod(claim="one"))
    world.settle(Decider)
    assert phase(world) == "Pending"
    assert held(world, "one") == {0: ["n1/gpu-1"]}
    assert not gated(world)
    assert counts(world)["capacity"] == 2
    assert world.get(Kind.RESOURCE_CLAIM, "theirs")["status"]["allocation"]
