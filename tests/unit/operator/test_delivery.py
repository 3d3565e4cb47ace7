"""How devices reach pods: layouts, ResourceClaims, pod patches, pairing of pods with replicas, guards."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import (
    GPU_DRIVER,
    NIC_DRIVER,
    TOKEN,
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
from tests.support.small import cluster
from tests.support.world import World

from adjoin.api import DeviceClaim, DevicePool
from adjoin.decision import Decider
from adjoin.delivery import assign, parse_containers, parts, pod_patch
from adjoin.delivery.guard import Target, guard_work, published, targets
from adjoin.delivery.parts import LayoutError, deal
from adjoin.facts import PodFacts, read_claim, read_node, read_pod, read_pool, read_slice, read_taint_rule
from adjoin.intents import FROM_PREVIOUS, Kind, Step, Verb
from adjoin.lifecycle import Member, relate, rfc3339, wanted_replicas
from adjoin_allocator.model import DeviceID
from adjoin_allocator.terms import ReplicaState


def a_pod(**fields: Any) -> PodFacts:
    facts = read_pod(pod(**fields))
    assert facts is not None
    return facts


# Layouts


@pytest.mark.parametrize(
    ("requests", "split", "expected"),
    [
        pytest.param({"gpu": 1, "nic": 1}, "Size", [[("gpu", 1), ("nic", 1)]], id="a pair is one ResourceClaim"),
        pytest.param(
            {"gpu": 8, "nic": 32}, "Size", [[("gpu", 8)], [("nic", 32)]], id="split at the border of requests"
        ),
        pytest.param({"gpu": 16, "nic": 16}, "Size", [[("gpu", 16), ("nic", 16)]], id="32 fit into one"),
        pytest.param(
            {"gpu": 40, "nic": 4}, "Size", [[("gpu", 32)], [("gpu", 8), ("nic", 4)]], id="a request beyond 32 is split"
        ),
        pytest.param({"gpu": 64}, "Size", [[("gpu", 32)], [("gpu", 32)]], id="64 are two full ones"),
        pytest.param(
            {"gpu": 20, "nic": 30, "a": 10}, "Size", [[("gpu", 20), ("a", 10)], [("nic", 30)]], id="first fit"
        ),
        pytest.param({"gpu": 1, "nic": 1}, "Driver", [[("gpu", 1)], [("nic", 1)]], id="one per driver"),
        pytest.param(
            {"nic": 1, "gpu": 33}, "Driver", [[("nic", 1)], [("gpu", 32)], [("gpu", 1)]], id="driver and size"
        ),
    ],
)
def test_layout_of_a_replica(requests: dict[str, int], split: str, expected: list[list[tuple[str, int]]]) -> None:
    claim = DeviceClaim.model_validate(deviceclaim(requests=requests))
    pool = DevicePool.model_validate(devicepool(delivery={"split": split}))
    assert [list(part.requests) for part in parts(claim, pool)] == expected
    assert all(part.size <= 32 for part in parts(claim, pool))


def test_all_of_a_node_takes_a_resourceclaim_of_its_own() -> None:
    claim = DeviceClaim.model_validate(
        deviceclaim(requests=[{"name": "nic", "count": 2}, {"name": "gpu", "all": True}, {"name": "x", "count": 30}])
    )
    assert [part.requests for part in parts(claim, None)] == [(("nic", 2), ("x", 30)), (("gpu", None),)]


def test_an_unknown_claim_is_one_resourceclaim() -> None:
    assert len(parts(None, None)) == 1


@pytest.mark.parametrize(
    ("held", "message"),
    [
        pytest.param({"gpu": range(39)}, "have room for 8", id="too few"),
        pytest.param({"gpu": range(41)}, "more devices than", id="too many"),
    ],
)
def test_devices_that_do_not_fit_the_layout_are_refused(held: dict[str, range], message: str) -> None:
    layout = parts(DeviceClaim.model_validate(deviceclaim(requests={"gpu": 40})), None)
    with pytest.raises(LayoutError, match=message):
        deal(layout, held)


def test_more_than_32_of_all_are_refused() -> None:
    layout = parts(DeviceClaim.model_validate(deviceclaim(requests=[{"name": "gpu", "all": True}])), None)
    assert deal(layout, {"gpu": range(32)}) == ((("gpu", tuple(range(32))),),)
    with pytest.raises(LayoutError, match="more than 32 with all: true"):
        deal(layout, {"gpu": range(33)})


def test_a_request_with_alternatives_may_get_fewer_devices_than_there_is_room_for() -> None:
    ways = [{"name": "many", "count": 40}, {"name": "one", "count": 1}]
    layout = parts(DeviceClaim.model_validate(deviceclaim(requests=[{"name": "gpu", "firstOf": ways}])), None)
    assert [part.requests for part in layout] == [(("gpu", 32),), (("gpu", 8),)]
    assert deal(layout, {"gpu": range(1)}) == ((("gpu", (0,)),), (("gpu", ()),))
    assert deal(layout, {"gpu": range(40)}) == ((("gpu", tuple(range(32))),), (("gpu", tuple(range(32, 40))),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "is not JSON", id="broken JSON"),
        pytest.param('["gpu"]', "must be an object", id="a list"),
        pytest.param('{"main": "gpu"}', "gives container main", id="text instead of a list"),
        pytest.param('{"main": [1]}', "gives container main", id="a number for a request"),
    ],
)
def test_broken_container_annotations_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_containers(text)


def test_container_annotation() -> None:
    assert parse_containers("") == {}
    assert parse_containers('{"a": ["gpu", "gpu", "nic"], "b": []}') == {"a": ("gpu", "nic"), "b": ()}


# ResourceClaims


def delivered(claim: Obj, *others: Obj, guarded: bool = True, gpus: int = 2, pool: Obj | None = None) -> list[Step]:
    """Steps that the first decision makes for a claim and its pods."""
    world = World(guard_served=guarded)
    world.add(pool or devicepool(delivery=None if guarded else {"guard": "None"}), node(), resourceslice(devices=gpus))
    world.add(resourceslice(driver=NIC_DRIVER, devices=40))
    if guarded:
        world.add(taintrule(), taintrule(driver=NIC_DRIVER))
    world.add(claim, *others)
    decision = Decider().decide(world.view(), world.now)
    return [step for intent in decision.intents if intent.subject == claim["metadata"]["uid"] for step in intent.steps]


def of_kind(steps: list[Step], kind: Kind, verb: Verb) -> list[dict[str, Any]]:
    return [dict(step.body or {}) for step in steps if step.kind is kind and step.verb is verb]


def test_resourceclaim_as_it_is_created() -> None:
    steps = delivered(deviceclaim(requests={"gpu": 1, "nic": 2}), pod())
    (body,) = of_kind(steps, Kind.RESOURCE_CLAIM, Verb.CREATE)
    toleration = {"key": "adjoin.dev/guard", "operator": "Equal", "value": "training", "effect": "NoSchedule"}
    assert body["metadata"] == {
        "name": f"adjoin-job-a-{TOKEN}",
        "namespace": "team",
        "labels": {"adjoin.dev/claim": "job-a", "adjoin.dev/replica": "0", "adjoin.dev/pod": "pod-team-worker"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "ownerReferences": [
            {
                "apiVersion": "adjoin.dev/v1alpha1",
                "kind": "DeviceClaim",
                "name": "job-a",
                "uid": "claim-team-job-a",
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
    assert body["spec"]["devices"]["requests"] == [
        {
            "name": name,
            "exactly": {
                "deviceClassName": "adjoin.dev",
                "allocationMode": "ExactCount",
                "count": count,
                "tolerations": [toleration],
            },
        }
        for name, count in (("gpu", 1), ("nic", 2))
    ]


def test_allocation_timestamp_and_reservation_are_one_patch() -> None:
    steps = delivered(deviceclaim(requests={"gpu": 1, "nic": 1}), pod())
    (body,) = of_kind(steps, Kind.RESOURCE_CLAIM, Verb.PATCH_STATUS)
    status = body["status"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "worker", "uid": "pod-team-worker"}]
    assert status["allocation"]["allocationTimestamp"] == "2026-11-30T08:00:00Z"
    assert status["allocation"]["nodeSelector"] == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    }
    results = status["allocation"]["devices"]["results"]
    assert [(each["request"], each["driver"], each["pool"], each["device"]) for each in results] == [
        ("gpu", GPU_DRIVER, "n1", "gpu-0"),
        ("nic", NIC_DRIVER, "n1", "nic-0"),
    ]
    assert all(each["tolerations"][0]["value"] == "training" for each in results)
    (step,) = [step for step in steps if step.kind is Kind.RESOURCE_CLAIM and step.verb is Verb.PATCH_STATUS]
    assert step.version == FROM_PREVIOUS


def test_without_guard_our_own_finalizer_holds_the_allocation() -> None:
    steps = delivered(deviceclaim(), pod(), guarded=False)
    (body,) = of_kind(steps, Kind.RESOURCE_CLAIM, Verb.CREATE)
    assert body["metadata"]["finalizers"] == ["adjoin.dev/cleanup"]


def test_8_gpus_and_32_nics_are_two_resourceclaims_and_the_gate_comes_last() -> None:
    steps = delivered(deviceclaim(requests={"gpu": 8, "nic": 32}), pod(resource_claims=2), gpus=8)
    first, second = of_kind(steps, Kind.RESOURCE_CLAIM, Verb.CREATE)
    assert first["metadata"]["name"] == f"adjoin-job-a-{TOKEN}"
    assert second["metadata"]["name"] == f"adjoin-job-a-{TOKEN}-1"
    statuses = of_kind(steps, Kind.RESOURCE_CLAIM, Verb.PATCH_STATUS)
    sizes = [len(body["status"]["allocation"]["devices"]["results"]) for body in statuses]
    assert sizes == [8, 32]
    assert [step.kind for step in steps][-2:] == [Kind.POD, Kind.EVENT]


def test_a_device_that_can_be_shared_is_consumed_whole() -> None:
    slices = resourceslice()
    slices["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
    world = World()
    world.add(devicepool(), node(), slices, taintrule(), deviceclaim(), pod())
    steps = [step for intent in Decider().decide(world.view(), world.now).intents for step in intent.steps]
    (body,) = of_kind(steps, Kind.RESOURCE_CLAIM, Verb.PATCH_STATUS)
    (result,) = body["status"]["allocation"]["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": "80Gi"}
    assert len(result["shareID"]) == 36
    again = [step for intent in Decider().decide(world.view(), world.now + 9).intents for step in intent.steps]
    (same,) = of_kind(again, Kind.RESOURCE_CLAIM, Verb.PATCH_STATUS)
    assert same["status"]["allocation"]["devices"]["results"] == [result]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param({"static": {"nodes": [{"name": "n1", "devices": [{"name": "gpu-0"}]}]}}, id="listed"),
        pytest.param({"nodeResource": {"name": "nvidia.com/gpu"}}, id="counted"),
    ],
)
def test_a_device_without_a_driver_is_placed_but_lets_no_pod_go(source: Obj) -> None:
    """No kubelet knows a driver of ours: the pod would hang in ContainerCreating, and again when it is deleted."""
    machine = node()
    machine["status"]["allocatable"] = {"nvidia.com/gpu": "1"}
    world = World()
    world.add(devicepool(devices=[{"name": "gpu", "type": "GPU", "source": source}]), machine, deviceclaim(), pod())
    world.settle(Decider)
    claim, waiting = world.get(Kind.DEVICE_CLAIM, "job-a"), world.get(Kind.POD, "worker")
    assert claim is not None
    assert claim["status"]["phase"] == "Ready"
    assert waiting is not None
    assert waiting["spec"]["schedulingGates"] == [{"name": "adjoin.dev/claim"}]
    assert world.all(Kind.RESOURCE_CLAIM) == []
    (told,) = [each for each in world.all(Kind.EVENT) if each["regarding"]["name"] == "worker"]
    assert told["reason"] == "NoDriver"
    assert told["note"] == (
        "device gpu-0 of DeviceClaim job-a has no driver that could give it to a container: "
        "what a pool lists itself or counts needs delivery.mode Environment; the pod waits"
    )


def test_what_pods_wait_for_before_they_bind_is_in_the_allocation() -> None:
    """kube-scheduler looks for a device's binding conditions nowhere else."""
    slices = resourceslice()
    slices["spec"]["devices"][0] |= {
        "bindsToNode": True,
        "bindingConditions": ["example.com/attached"],
        "bindingFailureConditions": ["example.com/attach-failed"],
    }
    world = World()
    world.add(devicepool(), node(), slices, taintrule(), deviceclaim(requests={"gpu": 2}), pod())
    steps = [step for intent in Decider().decide(world.view(), world.now).intents for step in intent.steps]
    (body,) = of_kind(steps, Kind.RESOURCE_CLAIM, Verb.PATCH_STATUS)
    bound, plain = body["status"]["allocation"]["devices"]["results"]
    assert bound["bindingConditions"] == ["example.com/attached"]
    assert bound["bindingFailureConditions"] == ["example.com/attach-failed"]
    assert "bindingConditions" not in plain


HELD = allocation(replica())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            None,
            [
                (Verb.CREATE, Kind.RESOURCE_CLAIM),
                (Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM),
                (Verb.PATCH, Kind.POD),
            ],
            id="nothing yet",
        ),
        pytest.param(
            resourceclaim(),
            [(Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM), (Verb.PATCH, Kind.POD)],
            id="created, not allocated",
        ),
        pytest.param(
            resourceclaim(devices=[(GPU_DRIVER, "n1", "gpu-0")]),
            [(Verb.PATCH, Kind.POD)],
            id="allocated, the pod still at its gate",
        ),
        pytest.param(
            resourceclaim(devices=[(GPU_DRIVER, "n1", "gpu-0")], deletionTimestamp="2026-11-30T08:00:00Z"),
            [(Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM)],
            id="being deleted by somebody: let go, so that the name is free again",
        ),
        pytest.param(
            resourceclaim(devices=[(GPU_DRIVER, "n1", "gpu-1")]),
            [(Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM), (Verb.DELETE, Kind.RESOURCE_CLAIM)],
            id="of other devices than the claim holds: taken away",
        ),
    ],
)
def test_what_is_missing_is_derived_from_what_is_there(found: Obj | None, expected: list[tuple[Verb, Kind]]) -> None:
    steps = delivered(deviceclaim(status=HELD), pod(), *([found] if found else []))
    assert [(step.verb, step.kind) for step in steps if step.kind not in (Kind.DEVICE_CLAIM, Kind.EVENT)] == expected


def test_an_allocation_that_was_cleared_under_a_running_pod_is_written_again() -> None:
    """The pod is bound: its devices are its own whatever the ResourceClaim says."""
    running = pod(gates=(), node="n1", phase="Running", running=True)
    steps = delivered(deviceclaim(status=allocation(replica(state="InUse"), phase="InUse")), running, resourceclaim())
    assert [(step.verb, step.kind) for step in steps if step.kind is not Kind.DEVICE_CLAIM] == [
        (Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM)
    ]


def test_a_device_that_was_renamed_is_delivered_under_todays_name() -> None:
    """Status and ResourceClaim say the same, and the hardware is the one that the claim had all the time."""
    held = allocation(replica(devices=(("gpu", GPU_DRIVER, "n1", "gpu-1"),)))
    held["allocation"]["replicas"][0]["devices"][0]["id"] = "GPU-n1-1"
    world = World()
    renamed = resourceslice(devices={"gpu-0": {"uuid": {"string": "GPU-n1-1"}}})
    world.add(devicepool(), node(), renamed, taintrule(), deviceclaim(status=held), pod())
    world.settle(Decider)
    delivery, claim = world.get(Kind.RESOURCE_CLAIM, f"adjoin-job-a-{TOKEN}"), world.get(Kind.DEVICE_CLAIM, "job-a")
    assert delivery is not None
    assert claim is not None
    (result,) = delivery["status"]["allocation"]["devices"]["results"]
    (device,) = claim["status"]["allocation"]["replicas"][0]["devices"]
    assert (result["device"], device["device"], device["id"]) == ("gpu-0", "gpu-0", "GPU-n1-1")
    world.delete(Kind.RESOURCE_SLICE, renamed["metadata"]["name"])
    world.add(resourceslice(devices={"gpu-3": {"uuid": {"string": "GPU-n1-1"}}}))
    world.writes.clear()
    world.settle(Decider)
    assert [step for step in world.writes if step.kind is not Kind.DEVICE_POOL] == []


# Pods

ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
PINNED = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def required(*terms: Obj) -> Obj:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    ("affinity", "terms"),
    [
        pytest.param(None, [{"matchFields": [PINNED]}], id="no affinity"),
        pytest.param(
            required({"matchExpressions": [ZONE]}),
            [{"matchExpressions": [ZONE], "matchFields": [PINNED]}],
            id="a term of the user's is narrowed",
        ),
        pytest.param(
            required({"matchExpressions": [ZONE]}, {"matchFields": [{**PINNED, "values": ["n2"]}]}),
            [
                {"matchExpressions": [ZONE], "matchFields": [PINNED]},
                {"matchFields": [{**PINNED, "values": ["n2"]}, PINNED]},
            ],
            id="every alternative is narrowed",
        ),
        pytest.param(
            required({}, {"matchExpressions": [ZONE]}),
            [{}, {"matchExpressions": [ZONE], "matchFields": [PINNED]}],
            id="an empty term matches nothing and stays so",
        ),
    ],
)
def test_affinity_is_narrowed_to_the_node(affinity: Obj | None, terms: list[Obj]) -> None:
    body = pod_patch(a_pod(affinity=affinity), "n1").body
    assert body is not None
    assert body["spec"]["affinity"] == required(*terms)


def test_foreign_parts_of_affinity_and_gates_are_not_touched() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [ZONE]}}]
    affinity = {
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
    }
    facts = a_pod(affinity=affinity, gates=("kueue.x-k8s.io/topology", "adjoin.dev/claim", "other.io/gate"))
    world = World()
    world.add(pod(affinity=affinity, gates=("kueue.x-k8s.io/topology", "adjoin.dev/claim", "other.io/gate")))
    facts = next(iter(world.view().pods.values()))
    world.perform(pod_patch(facts, "n1"))
    after = world.get(Kind.POD, "worker")
    assert after is not None
    assert after["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}, {"name": "other.io/gate"}]
    assert after["spec"]["affinity"]["podAntiAffinity"] == affinity["podAntiAffinity"]
    assert after["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred


def test_a_pod_patch_that_replaces_foreign_parts_meets_the_version_it_was_made_for() -> None:
    assert pod_patch(a_pod(resourceVersion="7"), "n1").version == 0
    assert pod_patch(a_pod(resourceVersion="7", gates=("adjoin.dev/claim", "x.io/y")), "n1").version == 7
    assert pod_patch(a_pod(resourceVersion="7", affinity=required({"matchExpressions": [ZONE]})), "n1").version == 7


def test_a_pod_that_is_pinned_already_only_loses_its_gate() -> None:
    body = pod_patch(a_pod(affinity=required({"matchFields": [PINNED]})), "n1").body
    assert body == {"spec": {"schedulingGates": []}}


# Who gets which replica


def members(*indexes: int) -> list[Member]:
    return [Member(index, replica(index), ReplicaState.READY) for index in indexes]


def pairing(
    claim: Obj, pods: list[Obj], having: list[Member], blocked: dict[int, str] | None = None, *others: Obj
) -> tuple[dict[str, int], dict[str, str]]:
    """Pods with the replicas that they get, and pods with what they are told."""
    world = World()
    world.add(*pods, *others)
    facts = read_claim(claim)
    layout = parts(facts.claim, None)
    assignment = assign(
        facts, having, frozenset(), blocked or {}, layout, relate(world.view()), wanted_replicas(facts, {})
    )
    return (
        {each.meta.name: member.index for member, each in assignment.pairs},
        {each.meta.name: notice.reason for each, notice in assignment.notices},
    )


def waiting(name: str, created: str = "2026-11-30T08:00:00Z", **fields: Any) -> Obj:
    return pod(name, token=name[0] * 10, creationTimestamp=created, **fields)


@pytest.mark.parametrize(
    ("pods", "replicas", "having", "pairs", "told"),
    [
        pytest.param(
            [waiting("b", "2026-11-30T08:00:02Z"), waiting("a", "2026-11-30T08:00:03Z")],
            1,
            [0],
            {"b": 0},
            {"a": "ReplicaInUse"},
            id="the older pod goes first",
        ),
        pytest.param([waiting("b"), waiting("a")], 2, [0, 1], {"a": 0, "b": 1}, {}, id="of equal age by name"),
        pytest.param(
            [waiting("a", replica=2), waiting("b")], 3, [0, 1, 2], {"a": 2, "b": 0}, {}, id="a named index is kept"
        ),
        pytest.param(
            [waiting("a", labels={"batch.kubernetes.io/job-completion-index": "1"})],
            2,
            [0, 1],
            {"a": 1},
            {},
            id="a Job's completion index",
        ),
        pytest.param(
            [waiting("a", labels={"apps.kubernetes.io/pod-index": "1"})], 2, [0, 1], {"a": 1}, {}, id="a StatefulSet's"
        ),
        pytest.param(
            [waiting("a", replica=0, labels={"apps.kubernetes.io/pod-index": "1"})],
            2,
            [0, 1],
            {"a": 0},
            {},
            id="the annotation wins over an index label",
        ),
        pytest.param([waiting("a", replica=4)], 2, [0, 1], {}, {"a": "NoSuchReplica"}, id="an index beyond replicas"),
        pytest.param([waiting("a", replica=1)], 2, [0], {}, {}, id="a replica without a place: the claim says why"),
        pytest.param(
            [waiting("a"), waiting("b")], 2, [0], {"a": 0}, {}, id="a second pod waits for the second replica"
        ),
        pytest.param([waiting("a")], 0, [], {}, {"a": "NoSuchReplica"}, id="a claim of no replicas"),
        pytest.param(
            [waiting("a", gates=("x.io/y", "adjoin.dev/claim"))], 1, [0], {"a": 0}, {}, id="foreign gates do not matter"
        ),
        pytest.param(
            [waiting("a", resource_claims=2), waiting("b")],
            1,
            [0],
            {"b": 0},
            {"a": "ResourceClaimCount"},
            id="a pod with entries for too many keeps nothing from others",
        ),
        pytest.param(
            [waiting("a", containers='{"main": ["disk"]}'), waiting("b")],
            1,
            [0],
            {"b": 0},
            {"a": "UnknownRequest"},
            id="an unknown request",
        ),
        pytest.param([waiting("a", containers="{")], 1, [0], {}, {"a": "InvalidContainers"}, id="a broken annotation"),
        pytest.param(
            [waiting("a", phase="Failed"), waiting("b", gates=())], 1, [0], {}, {}, id="ended or let go: not waiting"
        ),
        pytest.param(
            [waiting("a", deletionTimestamp="2026-11-30T08:00:09Z", finalizers=["x.io/y"]), waiting("b")],
            1,
            [0],
            {"b": 0},
            {},
            id="a pod that is being deleted gets nothing",
        ),
        pytest.param(
            [waiting("a", affinity=required({"matchFields": [{**PINNED, "values": ["n2"]}]})), waiting("b")],
            1,
            [0],
            {"b": 0},
            {"a": "ReplicaElsewhere"},
            id="a DaemonSet's pod of another node keeps nothing from others",
        ),
        pytest.param(
            [waiting("a", affinity=required({"matchFields": [PINNED]}))], 1, [0], {"a": 0}, {}, id="of this node"
        ),
        pytest.param(
            [
                waiting(
                    "a",
                    affinity=required({"matchFields": [{**PINNED, "values": ["n2"]}]}, {"matchExpressions": [ZONE]}),
                )
            ],
            1,
            [0],
            {"a": 0},
            {},
            id="a pod that may also run elsewhere",
        ),
    ],
)
def test_which_pod_gets_which_replica(
    pods: list[Obj], replicas: int, having: list[int], pairs: dict[str, int], told: dict[str, str]
) -> None:
    assert pairing(deviceclaim(replicas=replicas), pods, members(*having)) == (pairs, told)


def test_a_pod_that_shares_parts_out_to_containers_must_have_been_admitted_for_this_very_claim() -> None:
    """Its containers name parts of the claim that had the name before, and those may be cut differently."""
    claim = deviceclaim(requests={"gpu": 40}, creationTimestamp="2026-11-30T08:00:05Z")
    early = waiting("a", resource_claims=2, containers='{"main": ["gpu"]}')
    late = waiting("b", "2026-11-30T08:00:06Z", resource_claims=2, containers='{"main": ["gpu"]}')
    whole = waiting("c", resource_claims=2)
    assert pairing(claim, [early, late], members(0)) == ({"b": 0}, {"a": "AdmittedEarlier"})
    assert pairing(claim, [whole], members(0)) == ({"c": 0}, {})


def test_a_replica_whose_devices_are_not_well_takes_no_new_pod() -> None:
    claim = deviceclaim(replicas=2)
    assert pairing(claim, [waiting("a")], members(0, 1), {0: "device gpu-0 is missing"}) == ({"a": 1}, {})
    assert pairing(claim, [waiting("a")], members(0), {0: "device gpu-0 is missing"}) == (
        {},
        {"a": "ReplicaUnavailable"},
    )
    assert pairing(claim, [waiting("a")], members(0), {0: ""}) == ({}, {})


@pytest.mark.parametrize("node_fields", [{"ready": False}, {"unschedulable": True}], ids=["not ready", "cordoned"])
def test_no_pod_is_let_go_to_a_node_that_takes_none(node_fields: dict[str, Any]) -> None:
    world = World()
    world.add(devicepool(), node(**node_fields), resourceslice(), taintrule(), deviceclaim(status=HELD), pod())
    world.settle(Decider)
    waiting_pod = world.get(Kind.POD, "worker")
    assert waiting_pod is not None
    assert waiting_pod["spec"]["schedulingGates"] == [{"name": "adjoin.dev/claim"}]
    assert [event["reason"] for event in world.all(Kind.EVENT)] == ["ReplicaUnavailable"]


def test_a_pod_is_told_that_its_node_is_being_deleted() -> None:
    world = World()
    going = node()
    going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/drain"]}
    world.add(devicepool(), going, resourceslice(), taintrule(), deviceclaim(status=HELD), pod())
    world.settle(Decider)
    (event,) = world.all(Kind.EVENT)
    assert "node n1 is being deleted" in event["note"]


def test_a_pool_that_is_split_differently_later_leaves_running_pods_alone() -> None:
    world = World()
    world.add(devicepool(), node(), resourceslice(), resourceslice(driver=NIC_DRIVER, devices=2))
    world.add(taintrule(), taintrule(driver=NIC_DRIVER), deviceclaim(requests={"gpu": 1, "nic": 1}), pod())
    world.settle(Decider)
    world.change(Kind.DEVICE_POOL, "training", {"spec": {"delivery": {"split": "Driver"}}})
    world.add(pod("late", token="l" * 10))
    world.writes.clear()
    world.settle(Decider)
    events = {(each["regarding"]["name"], each["reason"]) for each in world.all(Kind.EVENT)}
    assert ("late", "ResourceClaimCount") in events
    assert not any(name == "worker" for name, _ in events)
    assert [step for step in world.writes if step.kind in (Kind.RESOURCE_CLAIM, Kind.POD)] == []


# Guards


def rules(*found: Obj) -> list[Any]:
    return [read_taint_rule(obj) for obj in found]


def ids(node_name: str, count: int, driver: str = GPU_DRIVER) -> list[DeviceID]:
    prefix = "nic" if driver == NIC_DRIVER else "gpu"
    return [DeviceID(driver, node_name, f"{prefix}-{i}") for i in range(count)]


def seen(*slices: Obj) -> Any:
    return published([read_slice(obj) for obj in slices])


@pytest.mark.parametrize(
    ("mine", "slices", "expected"),
    [
        pytest.param(
            ids("n1", 2), [resourceslice("n1")], {Target(GPU_DRIVER, "", "")}, id="all of the driver: one rule"
        ),
        pytest.param(
            ids("n1", 2),
            [resourceslice("n1"), resourceslice("n2")],
            {Target(GPU_DRIVER, "n1", "")},
            id="another node is not the pool's: one rule a node",
        ),
        pytest.param(
            ids("n1", 1),
            [resourceslice("n1")],
            {Target(GPU_DRIVER, "n1", "gpu-0")},
            id="a device is not the pool's: one rule a device",
        ),
        pytest.param(
            [*ids("n1", 2), *ids("n1", 1, NIC_DRIVER)],
            [resourceslice("n1"), resourceslice("n1", NIC_DRIVER, 2)],
            {Target(GPU_DRIVER, "", ""), Target(NIC_DRIVER, "n1", "nic-0")},
            id="drivers are looked at one by one",
        ),
        pytest.param(
            ids("n1", 2),
            [resourceslice("n1", generation=2), resourceslice("n1", devices=3, name="old", uid="old")],
            {Target(GPU_DRIVER, "", "")},
            id="devices of an old generation do not count",
        ),
        pytest.param([DeviceID("adjoin.dev", "n1", "g0")], [], set(), id="nobody else gives out static devices"),
        pytest.param([], [resourceslice("n1")], set(), id="nothing to guard"),
    ],
)
def test_fewest_rules_that_cover_exactly_the_pools_devices(
    mine: list[DeviceID], slices: list[Obj], expected: set[Target]
) -> None:
    found = targets(mine, seen(*slices))
    assert found == expected
    everything = {device for obj in slices for device in _published(obj)}
    assert {device for device in everything if any(target.covers(device) for target in found)} == set(mine) & everything


def _published(obj: Obj) -> list[DeviceID]:
    spec = obj["spec"]
    current = obj["metadata"]["name"] != "old"
    return [DeviceID(spec["driver"], spec["pool"]["name"], each["name"]) for each in spec["devices"] if current]


POOL = read_pool(devicepool())
NODES = {name: read_node(node(name)) for name in ("n1", "n2")}
NOW = 1_796_025_600.0 + 3600


def work(mine: list[DeviceID], slices: list[Obj], standing: list[Obj], nodes: Any = NODES) -> list[tuple[Verb, Any]]:
    """What is done to rules now: creations by what they select, deletions by name."""
    result = guard_work(POOL, mine, seen(*slices), rules(*standing), nodes, NOW)
    return [
        (step.verb, step.body["spec"]["deviceSelector"] if step.body else step.name)
        for steps in result.batches.values()
        for step in steps
    ]


def standing_rule(name: str, **selector: str) -> Obj:
    rule = taintrule(name=name)
    rule["spec"]["deviceSelector"] = selector
    return rule


def test_a_broader_rule_goes_only_when_the_new_ones_stand() -> None:
    slices = [resourceslice("n1"), resourceslice("n2")]
    assert work(ids("n1", 2), slices, [taintrule()]) == [(Verb.CREATE, {"driver": GPU_DRIVER, "pool": "n1"})]
    narrow = standing_rule("narrow", driver=GPU_DRIVER, pool="n1")
    assert work(ids("n1", 2), slices, [taintrule(), narrow]) == [(Verb.DELETE, f"adjoin-training-{GPU_DRIVER}")]
    assert work(ids("n1", 2), slices, [narrow]) == []


def test_a_rule_stays_until_kube_scheduler_obeys_those_that_take_its_place() -> None:
    slices = [resourceslice("n1"), resourceslice("n2")]
    narrow = standing_rule("narrow", driver=GPU_DRIVER, pool="n1")
    narrow["metadata"]["creationTimestamp"] = rfc3339(NOW - 2)
    result = guard_work(POOL, ids("n1", 2), seen(*slices), rules(taintrule(), narrow), NODES, NOW)
    assert not result.batches
    assert result.wake_at == NOW + 1
    later = guard_work(POOL, ids("n1", 2), seen(*slices), rules(taintrule(), narrow), NODES, NOW + 1)
    assert [step.verb for step in later.deletions] == [Verb.DELETE]


def test_narrower_rules_go_once_a_broader_one_stands() -> None:
    narrow = standing_rule("narrow", driver=GPU_DRIVER, pool="n1")
    slices = [resourceslice("n1"), resourceslice("n2")]
    mine = [*ids("n1", 2), *ids("n2", 2)]
    assert work(mine, slices, [narrow]) == [(Verb.CREATE, {"driver": GPU_DRIVER})]
    assert work(mine, slices, [narrow, taintrule()]) == [(Verb.DELETE, "narrow")]


def test_many_rules_are_written_in_batches_that_keep_their_names() -> None:
    slices = [resourceslice(f"n{i}", devices=2) for i in range(200)]
    mine = [DeviceID(GPU_DRIVER, f"n{i}", "gpu-0") for i in range(200)]
    result = guard_work(POOL, mine, seen(*slices), [], NODES, NOW)
    assert len(result.batches) == 16
    assert sum(len(steps) for steps in result.batches.values()) == 200
    first = next(iter(result.batches.values()))
    made = [
        read_taint_rule({**step.body, "metadata": {**step.body["metadata"], "uid": step.name}})
        for step in first
        if step.body
    ]
    rest = guard_work(POOL, mine, seen(*slices), made, NODES, NOW)
    for name, steps in rest.batches.items():
        assert [step.name for step in steps] == [step.name for step in result.batches[name]]


def test_a_guard_that_stands_is_left_alone() -> None:
    assert work(ids("n1", 2), [resourceslice("n1")], [taintrule()]) == []


@pytest.mark.parametrize(
    ("slices", "nodes", "kept"),
    [
        pytest.param([], NODES, True, id="nothing of the driver is published at the moment: it may return"),
        pytest.param([resourceslice("n2", NIC_DRIVER, 1)], NODES, True, id="other drivers do not matter"),
    ],
)
def test_devices_that_vanished_stay_guarded(slices: list[Obj], nodes: Any, kept: bool) -> None:
    assert (work([], slices, [taintrule()], nodes) == []) is kept


def test_a_rule_of_a_node_that_is_gone_goes() -> None:
    assert work([], [], [standing_rule("gone", driver=GPU_DRIVER, pool="n9")]) == [(Verb.DELETE, "gone")]
    assert work([], [], [standing_rule("silent", driver=GPU_DRIVER, pool="n1")]) == []


def test_a_rule_that_somebody_changed_is_made_anew() -> None:
    changed = taintrule()
    changed["spec"]["taint"]["effect"] = "None"
    slices = [resourceslice("n1")]
    assert work(ids("n1", 2), slices, [changed]) == [(Verb.DELETE, f"adjoin-training-{GPU_DRIVER}")]
    assert work(ids("n1", 2), slices, []) == [(Verb.CREATE, {"driver": GPU_DRIVER})]


def test_a_broad_rule_is_not_taken_apart_because_of_a_node_that_has_no_labels_yet() -> None:
    nodes = {**NODES, "n2": read_node(node("n2") | {"metadata": {**node("n2")["metadata"]}})}
    young = node("n2")
    young["metadata"]["creationTimestamp"] = "2026-11-30T08:59:30Z"
    nodes["n2"] = read_node(young)
    slices = [resourceslice("n1"), resourceslice("n2")]
    result = guard_work(POOL, ids("n1", 2), seen(*slices), rules(taintrule()), nodes, NOW)
    assert result.batches == {}
    assert result.wake_at == NOW - 30 + 120
    later = guard_work(POOL, ids("n1", 2), seen(*slices), rules(taintrule()), nodes, NOW + 90)
    assert (len(later.creations), len(later.deletions)) == (1, 1)
    assert work(ids("n1", 2), slices, [], nodes) == [(Verb.CREATE, {"driver": GPU_DRIVER, "pool": "n1"})]


def test_rule_names_are_bound_to_the_pools_uid_and_short_enough() -> None:
    name = "p" * 63
    long = read_pool(devicepool(name))
    other = read_pool(devicepool(name, uid="another"))
    results = [guard_work(each, ids("n1", 2), seen(resourceslice()), [], NODES, NOW) for each in (long, other)]
    names = [step.name for result in results for step in result.creations]
    assert len(set(names)) == 2
    assert all(len(each) <= 253 for each in names)


def test_a_pool_without_our_finalizer_gets_it_before_its_guard() -> None:
    bare = read_pool(devicepool(finalizers=["x.io/keep"]))
    ((step,),) = guard_work(bare, ids("n1", 2), seen(resourceslice()), [], NODES, NOW).batches.values()
    assert (step.verb, step.kind, step.body) == (
        Verb.PATCH,
        Kind.DEVICE_POOL,
        {"metadata": {"finalizers": ["x.io/keep", "adjoin.dev/cleanup"]}},
    )


def test_nothing_is_placed_before_the_guard_stands() -> None:
    world = World()
    world.add(devicepool(), node(), resourceslice(), deviceclaim(), pod())
    decision = Decider().decide(world.view(), world.now)
    assert [intent.why for intent in decision.intents] == ["guard", "show pool", "show claim"]
    world.settle(Decider)
    first_rule = next(i for i, step in enumerate(world.writes) if step.kind is Kind.TAINT_RULE)
    first_allocation = next(i for i, step in enumerate(world.writes) if step.kind is Kind.RESOURCE_CLAIM)
    assert first_rule < first_allocation


def test_nothing_is_placed_before_kube_scheduler_obeys_the_guard() -> None:
    """It goes on for a moment with what it knew before."""
    world = World()
    new = taintrule(creationTimestamp=rfc3339(world.now - 1))
    world.add(devicepool(), node(), resourceslice(), new, deviceclaim())
    decision = Decider().decide(world.view(), world.now)
    assert not [intent for intent in decision.intents if intent.why == "place"]
    assert decision.wake_at is not None
    assert decision.wake_at <= world.now + 2
    assert [i.why for i in Decider().decide(world.view(), world.now + 2).intents if i.why == "place"] == ["place"]


def test_a_held_device_stays_guarded_when_its_pool_has_its_name_no_more() -> None:
    """Otherwise kube-scheduler could give it away while no pod has it. It is let go with the claim."""
    world = cluster(nics=1)
    world.add(deviceclaim())
    world.settle(Decider)
    spec = world.get(Kind.DEVICE_POOL, "training")["spec"]  # type: ignore[index]
    world.change(
        Kind.DEVICE_POOL, "training", {"spec": {"devices": spec["devices"][1:]}, "metadata": {"generation": 2}}
    )
    world.settle(Decider)
    guarded = [rule["spec"]["deviceSelector"] for rule in world.all(Kind.TAINT_RULE)]
    assert {"driver": GPU_DRIVER, "pool": "n1", "device": "gpu-0"} in guarded
    assert {"driver": GPU_DRIVER} not in guarded
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert [rule["spec"]["deviceSelector"]["driver"] for rule in world.all(Kind.TAINT_RULE)] == [NIC_DRIVER]


def test_a_pool_that_goes_without_guard_loses_its_rules() -> None:
    world = World()
    world.add(devicepool(delivery={"guard": "None"}), node(), resourceslice(), taintrule())
    world.settle(Decider)
    assert world.all(Kind.TAINT_RULE) == []
