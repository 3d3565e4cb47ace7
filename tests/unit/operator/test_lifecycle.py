"""What becomes of replicas, their users and what they leave behind."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import (
    CREATED,
    GPU_DRIVER,
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
from tests.support.world import START, World

from adjoin.decision import Decider
from adjoin.facts import read_claim
from adjoin.intents import Kind, Step, Verb
from adjoin.inventory import InventoryBuilder
from adjoin.lifecycle import (
    Review,
    contested,
    drop_finalizer,
    enter,
    followed_pods,
    orphans,
    pinned_to,
    relate,
    review,
    rfc3339,
    wanted_replicas,
)
from adjoin_allocator.model import Claim, ClaimUID, DeviceID, Hold, PlacedDevice, PlacedReplica
from adjoin_allocator.results import Placement
from adjoin_allocator.terms import HoldKind, ReplicaState

GPU_0 = (GPU_DRIVER, "n1", "gpu-0")
OURS = ("adjoin.dev/cleanup",)
DELETED: dict[str, Any] = {"deletionTimestamp": CREATED}


def in_use(**fields: Any) -> Obj:
    return allocation(replica(state="InUse"), phase="InUse", **fields)


def running(name: str = "worker", **fields: Any) -> Obj:
    return pod(name, gates=(), node="n1", phase="Running", running=True, **fields)


def delivered(**fields: Any) -> Obj:
    return resourceclaim(devices=[GPU_0], **fields)


def reviewed(
    claim: Obj, *others: Obj, lost: dict[int, str] | None = None, lingering: float | None = None, on: Obj | None = None
) -> Review:
    """The review of a claim beside its pods and ResourceClaims; `on` is its node."""
    world = World()
    world.add(devicepool(), claim, on or node(), resourceslice(), taintrule(), *others)
    if lingering is not None:
        world.lingering["pod-team-worker"] = lingering
    view = world.view()
    inventory = InventoryBuilder().build(view)
    facts, relations = read_claim(claim), relate(view)
    wanted = wanted_replicas(facts, followed_pods(view, relations, inventory))
    return review(facts, relations, inventory, lost or {}, START, wanted=wanted)


def states(found: Review) -> dict[int, str]:
    return {member.index: member.state.value for member in found.members}


def what(steps: tuple[Step, ...]) -> list[tuple[str, str]]:
    return [(step.verb.value, step.kind.value.kind) for step in steps]


EVICT, DELETE_POD = ("evict", "Pod"), ("delete", "Pod")
DELETE, CLEAR, LET_GO = ("delete", "ResourceClaim"), ("patch status", "ResourceClaim"), ("patch", "ResourceClaim")


@pytest.mark.parametrize(
    ("claim", "others", "expected", "removed"),
    [
        pytest.param(deviceclaim(), [], {}, [], id="nothing placed yet"),
        pytest.param(deviceclaim(status=allocation(replica())), [], {0: "Ready"}, [], id="placed, no pod"),
        pytest.param(
            deviceclaim(status=allocation(replica())),
            [pod(), delivered()],
            {0: "Ready"},
            [],
            id="the pod is not bound yet",
        ),
        pytest.param(
            deviceclaim(status=allocation(replica())), [running(), delivered()], {0: "InUse"}, [], id="the pod is bound"
        ),
        pytest.param(
            deviceclaim(status=in_use()),
            [running(**DELETED), delivered()],
            {0: "InUse"},
            [],
            id="the pod is terminating",
        ),
        pytest.param(
            deviceclaim(status=in_use()),
            [pod(gates=(), node="n1", phase="Succeeded"), delivered()],
            {0: "InUse"},
            [DELETE],
            id="the pod has ended: InUse until its ResourceClaim is gone",
        ),
        pytest.param(
            deviceclaim(status=in_use()),
            [pod(gates=(), node="n1", phase="Failed"), resourceclaim(**DELETED)],
            {0: "InUse"},
            [],
            id="Kubernetes lets the ResourceClaim go",
        ),
        pytest.param(
            deviceclaim(status=in_use()),
            [delivered()],
            {0: "InUse"},
            [DELETE],
            id="the pod is gone, missed by everybody",
        ),
        pytest.param(deviceclaim(status=in_use()), [], {0: "Ready"}, [], id="nothing of the pod is left"),
        pytest.param(
            deviceclaim(status=in_use()),
            [delivered(finalizers=OURS, **DELETED)],
            {0: "InUse"},
            [LET_GO],
            id="our own finalizer goes when the pod is gone",
        ),
        pytest.param(
            deviceclaim(replicas=0, status=in_use()),
            [running(), delivered()],
            {0: "Releasing"},
            [EVICT],
            id="scaled away: the user is evicted",
        ),
        pytest.param(
            deviceclaim(replicas=0, status=in_use()),
            [running(**DELETED), delivered()],
            {0: "Releasing"},
            [],
            id="scaled away: the user is leaving",
        ),
        pytest.param(
            deviceclaim(replicas=0, status=allocation(replica())),
            [],
            {0: "Releasing"},
            [],
            id="scaled away without users",
        ),
        pytest.param(
            deviceclaim(replicas=0, status=allocation(replica())),
            [pod(), delivered()],
            {0: "Releasing"},
            [CLEAR, DELETE],
            id="scaled away: a pod at its gate stays there",
        ),
        pytest.param(
            deviceclaim(status=allocation(replica(state="Releasing"), phase="Releasing"), replicas=1),
            [running(), delivered()],
            {0: "InUse"},
            [],
            id="scaled up again before it was gone",
        ),
        pytest.param(
            deviceclaim(status=in_use(), **DELETED),
            [running(), delivered()],
            {0: "Releasing"},
            [DELETE_POD],
            id="deleted: pods with devices are deleted",
        ),
        pytest.param(
            deviceclaim(status=in_use(), **DELETED),
            [running(), delivered(), pod("waits", token="w" * 10)],
            {0: "Releasing"},
            [DELETE_POD],
            id="deleted: waiting pods are left alone",
        ),
        pytest.param(
            deviceclaim(status=in_use()),
            [running(), delivered(), pod("late", token="l" * 10), delivered(name="late", pod_uid="pod-team-late")],
            {0: "InUse"},
            [CLEAR, DELETE],
            id="of two pods with one replica the one that was let go keeps it",
        ),
        pytest.param(
            deviceclaim(status=allocation(replica(devices=(("gpu", GPU_DRIVER, "n1", "gpu-1"),)))),
            [running(), delivered()],
            {0: "Ready"},
            [],
            id="a pod that runs on other devices than the claim's is left alone",
        ),
        pytest.param(
            deviceclaim(status=in_use()),
            [running()],
            {0: "InUse"},
            [],
            id="a pod that runs keeps its replica when its ResourceClaim was taken away",
        ),
        pytest.param(
            deviceclaim(status=in_use()),
            [running(), delivered(replica=7)],
            {0: "InUse"},
            [],
            id="a pod that has a replica's devices uses it, whatever the label says",
        ),
        pytest.param(
            deviceclaim(status=allocation(replica())),
            [resourceclaim(namespace="other")],
            {0: "Ready"},
            [],
            id="a ResourceClaim in another namespace is nothing of the claim's",
        ),
    ],
)
def test_next_state_of_a_replica(
    claim: Obj, others: list[Obj], expected: dict[int, str], removed: list[tuple[str, str]]
) -> None:
    found = reviewed(claim, *others)
    assert states(found) == expected
    assert what(found.removals) == removed


@pytest.mark.parametrize(
    ("claim", "others", "finished"),
    [
        pytest.param(deviceclaim(**DELETED), [], True, id="nothing was ever placed"),
        pytest.param(deviceclaim(status=allocation(replica()), **DELETED), [], True, id="placed, never used"),
        pytest.param(deviceclaim(status=in_use(), **DELETED), [running(), delivered()], False, id="its pod runs"),
        pytest.param(
            deviceclaim(status=in_use(), **DELETED),
            [pod(gates=(), node="n1", phase="Succeeded"), delivered()],
            False,
            id="its ResourceClaim is there",
        ),
        pytest.param(
            deviceclaim(status=in_use(), **DELETED),
            [pod(gates=(), node="n1", phase="Succeeded")],
            True,
            id="its pod has ended and stays",
        ),
        pytest.param(
            deviceclaim(**DELETED), [running(), delivered()], False, id="its status was lost but its pod runs"
        ),
        pytest.param(deviceclaim(status=in_use()), [], False, id="it is not deleted at all"),
    ],
)
def test_when_a_deleted_claim_may_go(claim: Obj, others: list[Obj], finished: bool) -> None:
    found = reviewed(claim, *others)
    assert (bool(claim["metadata"].get("deletionTimestamp")) and found.unused) is finished


def test_a_pod_of_another_namespace_is_never_removed() -> None:
    """Whatever UID is written on a ResourceClaim here."""
    found = reviewed(
        deviceclaim(status=in_use(), **DELETED),
        running(namespace="other"),
        resourceclaim(pod_uid="pod-other-worker"),
    )
    assert [(step.verb, step.kind, step.namespace) for step in found.removals] == [
        (Verb.DELETE, Kind.RESOURCE_CLAIM, "team")
    ]


def test_a_force_deleted_pod_holds_its_devices_for_a_while() -> None:
    claim = deviceclaim(status=in_use())
    early = reviewed(claim, delivered(), lingering=START + 42)
    assert (states(early), early.removals, early.wake_at) == ({0: "InUse"}, (), START + 42)
    late = reviewed(claim, delivered(), lingering=START)
    assert what(late.removals) == [DELETE]


@pytest.mark.parametrize(
    ("on", "held"),
    [
        pytest.param(node(), True, id="ready"),
        pytest.param(node(ready=False), True, id="lost"),
        pytest.param(node(taints=[{"key": "node.kubernetes.io/out-of-service"}]), False, id="ready, vouched for"),
        pytest.param(
            node(ready=False, taints=[{"key": "node.kubernetes.io/out-of-service"}]), False, id="lost, vouched for"
        ),
        pytest.param(node("n2"), False, id="gone"),
    ],
)
def test_a_force_deleted_pod_holds_nothing_where_nothing_runs(on: Obj, held: bool) -> None:
    found = reviewed(deviceclaim(status=in_use()), delivered(), lingering=START + 12, on=on)
    assert what(found.removals) == ([] if held else [DELETE])


def test_without_guard_the_resourceclaim_is_deleted_at_once_but_let_go_only_when_the_pod_is_really_gone() -> None:
    claim = deviceclaim(status=in_use())
    assert what(reviewed(claim, delivered(finalizers=OURS), lingering=START + 12).removals) == [DELETE]
    assert reviewed(claim, delivered(finalizers=OURS, **DELETED), lingering=START + 12).removals == ()
    assert what(reviewed(claim, delivered(finalizers=OURS, **DELETED)).removals) == [LET_GO]


def test_a_replica_that_lost_a_device_fails_until_its_users_are_gone() -> None:
    lost = {0: "gpu-0 is held by DeviceClaim team/older"}
    claim = deviceclaim(status=in_use())
    found = reviewed(claim, running(), delivered(), lost=lost)
    assert (states(found), what(found.removals)) == ({0: "Failed"}, [EVICT])
    assert found.members[0].lost == lost[0]
    assert states(reviewed(claim, lost=lost)) == {0: "Failed"}
    failed = deviceclaim(status=allocation(replica(state="Failed"), phase="Failed"))
    assert states(reviewed(failed, running(), delivered())) == {0: "Failed"}
    alone = reviewed(failed)
    assert (states(alone), alone.unused, alone.members[0].leaving) == ({0: "Failed"}, True, True)


def test_evictions_and_deletions_mean_the_pod_by_uid() -> None:
    for claim in (deviceclaim(replicas=0, status=in_use()), deviceclaim(status=in_use(), **DELETED)):
        (step,) = reviewed(claim, running(), delivered()).removals
        assert (step.name, step.uid) == ("worker", "pod-team-worker")


def test_only_our_finalizer_is_taken_off_and_only_from_the_version_that_was_seen() -> None:
    claim = read_claim(deviceclaim(finalizers=["x.io/keep", "adjoin.dev/cleanup", "y.io/z"], resourceVersion="41"))
    step = drop_finalizer(Kind.DEVICE_CLAIM, claim)
    assert (step.verb, step.uid, step.version) == (Verb.PATCH, "claim-team-job-a", 41)
    assert step.body == {"metadata": {"finalizers": ["x.io/keep", "y.io/z"]}}


# What claims leave behind


@pytest.mark.parametrize(
    ("left", "others", "removed"),
    [
        pytest.param(delivered(), [], [DELETE], id="nobody uses it"),
        pytest.param(delivered(), [running()], [], id="its pod runs on"),
        pytest.param(delivered(), [pod(gates=(), node="n1", phase="Failed")], [DELETE], id="its pod has ended"),
        pytest.param(delivered(**DELETED), [], [], id="on its way"),
        pytest.param(delivered(finalizers=OURS, **DELETED), [], [LET_GO], id="held by our own finalizer"),
        pytest.param(delivered(reserved=["pod-team-other"]), [running("other")], [], id="another pod has reserved it"),
        pytest.param(resourceclaim(owner="", devices=[GPU_0]), [], [], id="it is not ours, whatever its name"),
    ],
)
def test_resourceclaims_whose_claim_is_gone(left: Obj, others: list[Obj], removed: list[tuple[str, str]]) -> None:
    world = World()
    world.add(left, *others)
    found = orphans(relate(world.view()), {}, frozenset(), START)
    assert [step for steps in found.values() for step in what(steps)] == removed
    assert orphans(relate(world.view()), {}, frozenset(found), START) == {}


# Pieces


def claims_of(*placed: tuple[str, int, str]) -> list[Claim]:
    """Claims that hold one device each: (uid, replica, device)."""
    return [
        Claim(
            uid=ClaimUID(uid),
            namespace="team",
            name=uid,
            created=0.0,
            pool="training",
            requests=(),
            placed=(
                PlacedReplica(
                    index, "n1", ReplicaState.READY, (PlacedDevice("gpu", DeviceID(GPU_DRIVER, "n1", device)),)
                ),
            ),
        )
        for uid, index, device in placed
    ]


def test_who_lost_a_device_and_to_whom() -> None:
    claims = claims_of(("old", 0, "gpu-0"), ("new", 2, "gpu-0"), ("other", 0, "gpu-1"))
    assert contested(claims, {"new": (2,)}, {}) == {
        "new": {2: f"{GPU_DRIVER}/n1/gpu-0 is held by DeviceClaim team/old (replica 0)"}
    }
    assert contested(claims, {}, {}) == {}


def held_names(world: World, name: str) -> list[tuple[int, list[str]]]:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    entries = ((claim or {}).get("status", {}).get("allocation") or {}).get("replicas") or []
    return [(entry["index"], [device["device"] for device in entry["devices"]]) for entry in entries]


def test_a_status_that_lists_an_index_twice_holds_both_until_it_is_written_anew() -> None:
    one, other = (replica(0, devices=[("gpu", GPU_DRIVER, "n1", f"gpu-{at}")]) for at in range(2))
    world = World()
    world.add(devicepool(), node(), resourceslice(devices=2), taintrule())
    world.add(deviceclaim("twice", status=allocation(one, other)), deviceclaim("next"))
    first = Decider().decide(world.view(), world.now)
    assert not any(answer.placements for answer in first.plan.claims.values())
    world.settle(Decider)
    assert held_names(world, "twice") == [(0, ["gpu-0"])]
    assert held_names(world, "next") == [(0, ["gpu-1"])]


def test_a_replica_that_lists_a_device_twice_fails_and_gets_what_it_asked_for() -> None:
    doubled = replica(devices=[("gpu", GPU_DRIVER, "n1", "gpu-0"), ("gpu", GPU_DRIVER, "n1", "gpu-0")])
    world = World()
    world.add(devicepool(), node(), resourceslice(devices=3), taintrule())
    world.add(deviceclaim("twice", requests={"gpu": 2}, status=allocation(doubled)))
    first = Decider().decide(world.view(), world.now)
    words = [
        condition["message"]
        for intent in first.intents
        for step in intent.steps
        if step.kind is Kind.DEVICE_CLAIM
        for condition in step.body["status"].get("conditions", ())
        if condition["type"] == "Conflict"
    ]
    assert words == ["replica 0: gpu.nvidia.com/n1/gpu-0 stands in it twice"]
    for _ in range(3):
        world.carry_out(Decider().decide(world.view(), world.now).intents)
        world.catch_up()
    ((index, devices),) = held_names(world, "twice")
    assert (index, len(set(devices))) == (0, 2)


def test_a_device_in_a_foreign_allocation_is_the_foreign_claims() -> None:
    device = DeviceID(GPU_DRIVER, "n1", "gpu-1")
    claims = claims_of(("mine", 0, "gpu-1"))
    foreign = {device: Hold(HoldKind.FOREIGN, "ResourceClaim x/y")}
    assert contested(claims, {}, foreign) == {"mine": {0: f"{device} is held by ResourceClaim x/y"}}
    assert contested(claims, {}, {device: Hold(HoldKind.RELEASING, "ResourceClaim x/y")}) == {}


def test_entry_of_a_new_placement() -> None:
    device = PlacedDevice("gpu", DeviceID(GPU_DRIVER, "n1", "gpu-0"), "GPU-1")
    entry = enter(Placement(3, "n1", (device,), {"gpu-gpu": "PIX"}), START + 0.7)
    assert entry == {
        "index": 3,
        "node": "n1",
        "state": "Allocated",
        "locality": {"gpu-gpu": "PIX"},
        "devices": [{"request": "gpu", "driver": GPU_DRIVER, "pool": "n1", "device": "gpu-0", "id": "GPU-1"}],
        "allocatedAt": "2026-11-30T08:00:00Z",
    }
    assert "locality" not in enter(Placement(0, "n1", (), {}), START)


def test_times_are_utc_seconds() -> None:
    assert rfc3339(START + 0.999) == "2026-11-30T08:00:00Z"


def test_nodes_that_a_pod_is_pinned_to() -> None:
    world = World()
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}, {"matchExpressions": []}]}
    world.add(pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}))
    assert pinned_to(next(iter(world.view().pods.values()))) == {"n1"}
