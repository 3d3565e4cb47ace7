"""Devices as environment, on whole decisions against a simulated API server: the ConfigMap, the pod that starts from
it, and who has the replica until that pod has ended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.environments import admitted, counting_pool, machine, matrices, static_device, static_pool, uuid
from tests.support.objects import allocation, deviceclaim, devicepool, node, pod, replica, resourceslice, taintrule
from tests.support.planning import plan_objects
from tests.support.world import LINGER_SECONDS, Ending, World

from adjoin.decision import Decider
from adjoin.intents import Kind
from adjoin.traces import unseen

Obj = dict[str, Any]
CONTAINERS = "adjoin.dev/containers"


def cluster(*others: Obj, gpus: int = 2, nodes: tuple[str, ...] = ("n1",), **spec: Any) -> World:
    """Machines whose GPUs a device plugin counts, with their uuids known."""
    config_map, entries = matrices(dict.fromkeys(nodes, gpus))
    world = World()
    pool = counting_pool(topology={"matrices": entries}, **spec)
    world.add(pool, config_map, *(machine(name, gpus) for name in nodes), *others)
    return world


def grants(world: World) -> list[Obj]:
    return [each for each in world.all(Kind.CONFIG_MAP) if each["metadata"]["name"].startswith("adjoin-")]


def claimed(world: World, name: str = "job-a") -> list[Obj]:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    return ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or []


def ids(world: World, name: str = "job-a") -> list[str]:
    return [device["id"] for replica in claimed(world, name) for device in replica["devices"]]


def got(world: World, name: str = "worker", container: str = "main") -> dict[str, str]:
    found = world.get(Kind.POD, name)
    assert found is not None
    assert found["status"]["phase"] == "Running", found["status"]
    return world.environment(found, container)


def told(world: World, name: str = "worker") -> dict[str, str]:
    return {each["reason"]: each["note"] for each in world.all(Kind.EVENT) if each["regarding"]["name"] == name}


def test_a_pod_starts_with_the_uuids_of_its_replica() -> None:
    world = cluster(deviceclaim(requests={"gpu": 2}), admitted())
    world.settle(Decider)
    (grant,) = grants(world)
    assert got(world)["NVIDIA_VISIBLE_DEVICES"].split(",") == ids(world) == [uuid("n1", 0), uuid("n1", 1)]
    assert got(world)["CUDA_VISIBLE_DEVICES"] == got(world)["NVIDIA_VISIBLE_DEVICES"]
    assert "NCCL_IB_HCA" not in got(world)
    assert grant["immutable"] is True
    meta = grant["metadata"]
    assert meta["labels"] == {
        "adjoin.dev/claim": "job-a",
        "adjoin.dev/replica": "0",
        "adjoin.dev/pod": "pod-team-worker",
    }
    assert [owner["uid"] for owner in meta["ownerReferences"]] == ["claim-team-job-a"]
    assert meta["finalizers"] == ["adjoin.dev/cleanup"]
    (entry,) = claimed(world)
    assert entry["state"] == "InUse"
    assert world.all(Kind.RESOURCE_CLAIM) == []


def test_the_list_of_devices_is_that_of_the_status() -> None:
    world = cluster(deviceclaim(requests={"gpu": 2}), admitted())
    world.settle(Decider)
    (entry,) = claimed(world)
    assert json.loads(got(world)["ADJOIN_DEVICES"]) == [{"name": "gpu", **device} for device in entry["devices"]]


def test_a_pod_that_ended_sets_its_replica_free_for_the_next() -> None:
    world = cluster(deviceclaim(), admitted(), gpus=1)
    world.settle(Decider)
    second = admitted(pod("second", resource_claims=0, gates=()))
    world.add(second)
    world.settle(Decider)
    assert told(world, "second")["ReplicaInUse"]
    assert len(grants(world)) == 1
    world.finish("worker")
    world.settle(Decider)
    (grant,) = grants(world)
    assert grant["metadata"]["labels"]["adjoin.dev/pod"] == "pod-team-second"
    assert got(world, "second")["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)


def test_b18_two_pods_that_name_one_replica_never_have_its_nic_together() -> None:
    nic = static_device("nic-0", rdmaDevice="mlx5_0", pciBusID="0000:1a:00.0")
    world = World()
    first = admitted(pod(resource_claims=0, gates=(), replica=0), requests=("nic",))
    later = pod("second", resource_claims=0, gates=(), replica=0, creationTimestamp="2026-11-30T08:00:01Z")
    second = admitted(later, requests=("nic",))
    world.add(static_pool({"n1": {"nic": [nic]}}), node(), deviceclaim(requests={"nic": 1}), first, second)
    world.settle(Decider)
    assert got(world)["NCCL_IB_HCA"] == "=mlx5_0"
    assert [each["reason"] for each in world.all(Kind.EVENT) if each["regarding"]["name"] == "second"] == [
        "ReplicaInUse"
    ]
    world.finish("worker")
    world.settle(Decider)
    assert got(world, "second")["NCCL_IB_HCA"] == "=mlx5_0"


def test_a_deleted_claim_leaves_nothing_behind() -> None:
    world = cluster(deviceclaim(), admitted())
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert world.get(Kind.DEVICE_CLAIM, "job-a") is None
    assert grants(world) == []
    assert world.get(Kind.POD, "worker") is None


def test_devices_are_cleaned_after_the_pod_and_before_the_next_claim() -> None:
    hook = {"name": "scrub", "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
    world = cluster(deviceclaim(), admitted(), gpus=1, lifecycle={"cleanup": [hook]})
    world.settle(Decider)
    world.hook = lambda job: Ending(None)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.add(deviceclaim("job-b"))
    world.settle(Decider)
    assert grants(world) == []
    assert claimed(world, "job-b") == []
    (job,) = world.all(Kind.JOB)
    variables = {each["name"]: each["value"] for each in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert [each["id"] for each in json.loads(variables["ADJOIN_DEVICES"])] == [uuid("n1", 0)]
    world.hook = lambda job: Ending()
    world.settle(Decider)
    assert ids(world, "job-b") == [uuid("n1", 0)]


def test_a_force_deleted_pod_holds_its_devices_for_a_while() -> None:
    world = cluster(deviceclaim(), admitted(), gpus=1)
    world.settle(Decider)
    world.delete(Kind.POD, "worker", force=True)
    at = world.now
    world.add(admitted(pod("second", resource_claims=0, gates=())))
    freed: list[float] = []

    def check(world: World) -> None:
        second = world.get(Kind.POD, "second")
        if second is not None and not second["spec"].get("schedulingGates"):
            freed[:] = freed or [world.now]

    world.settle(Decider, check=check)
    assert freed[0] >= at + LINGER_SECONDS


def test_a_configmap_that_somebody_deletes_stays_while_its_pod_runs() -> None:
    """Containers that start anew read it again."""
    world = cluster(deviceclaim(), admitted())
    world.settle(Decider)
    (grant,) = grants(world)
    world.delete(Kind.CONFIG_MAP, grant["metadata"]["name"])
    world.settle(Decider)
    assert got(world)["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)
    world.finish("worker")
    world.settle(Decider)
    assert grants(world) == []
    (entry,) = claimed(world)
    assert entry["state"] == "Ready"


def test_a_configmap_that_was_torn_from_under_a_running_pod_is_made_again() -> None:
    world = cluster(deviceclaim(), admitted())
    world.settle(Decider)
    (grant,) = grants(world)
    world.change(Kind.CONFIG_MAP, grant["metadata"]["name"], {"metadata": {"finalizers": []}})
    world.delete(Kind.CONFIG_MAP, grant["metadata"]["name"])
    world.settle(Decider)
    assert got(world)["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)
    (entry,) = claimed(world)
    assert entry["state"] == "InUse"


@pytest.mark.parametrize("labelled", [False, True], ids=["a plain one", "one with our labels"])
def test_g11_a_configmap_of_others_under_our_name_is_never_ours(labelled: bool) -> None:
    worker = admitted()
    token = worker["metadata"]["annotations"]["adjoin.dev/binding"]
    name = f"adjoin-job-a-{token}"
    foreign: Obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "team", "uid": "foreign", "labels": {"mine": "yes"}},
        "data": {"NVIDIA_VISIBLE_DEVICES": "all", "ADJOIN_DEVICES": "[]"},
    }
    if labelled:
        foreign["metadata"]["labels"] |= {"adjoin.dev/pod": "pod-team-worker", "adjoin.dev/replica": "0"}
    world = cluster(deviceclaim(), foreign, worker)
    world.settle(Decider)
    (left,) = grants(world)
    assert (left["metadata"]["uid"], left["data"]) == ("foreign", foreign["data"])
    assert "deletionTimestamp" not in left["metadata"]
    assert told(world)["NameTaken"].startswith(f"ConfigMap {name} exists already")
    waiting = world.get(Kind.POD, "worker")
    assert waiting is not None
    assert waiting["spec"]["schedulingGates"] == [{"name": "adjoin.dev/claim"}]
    world.delete(Kind.CONFIG_MAP, name)
    world.settle(Decider)
    assert got(world)["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)


def test_g11_text_that_is_not_ours_opens_no_gate_though_our_owner_is_written_on_it() -> None:
    worker = admitted()
    token = worker["metadata"]["annotations"]["adjoin.dev/binding"]
    forged: Obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"adjoin-job-a-{token}",
            "namespace": "team",
            "uid": "forged",
            "labels": {"adjoin.dev/pod": "pod-team-worker", "adjoin.dev/replica": "0"},
            "ownerReferences": [
                {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceClaim", "name": "job-a", "uid": "claim-team-job-a"}
            ],
        },
        "immutable": True,
        "data": {"NVIDIA_VISIBLE_DEVICES": "all", "ADJOIN_DEVICES": "{}"},
    }
    world = cluster(deviceclaim(), forged, worker)

    def check(world: World) -> None:
        found = world.get(Kind.POD, "worker")
        assert found is not None
        if not found["spec"].get("schedulingGates"):
            assert world.environment(found)["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)

    world.settle(Decider, check=check)
    assert got(world)["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)


def test_a30_each_pod_has_the_devices_of_its_own_replica_whatever_order_they_come_in() -> None:
    world = cluster(deviceclaim(replicas=4), nodes=("n1", "n2"))
    world.lagging = True
    for index in (3, 1, 0, 2):
        world.add(admitted(pod(f"w-{index}", resource_claims=0, gates=(), replica=index)))
    world.settle(Decider)
    held = {entry["index"]: entry for entry in claimed(world)}
    for index, entry in held.items():
        found = world.get(Kind.POD, f"w-{index}")
        assert found is not None
        assert found["spec"]["nodeName"] == entry["node"]
        assert got(world, f"w-{index}")["NVIDIA_VISIBLE_DEVICES"] == entry["devices"][0]["id"]


IDENTITIES = [
    pytest.param({"uuid": "GPU-a"}, "GPU-a", "GPU-a", id="a uuid"),
    pytest.param({"uuid": "GPU-a", "pciBusID": "0000:3b:00.0"}, "GPU-a", "GPU-a", id="a uuid before a PCI address"),
    pytest.param({"pciBusID": "00000000:3B:00.0"}, "0000:3b:00.0", None, id="a PCI address, which CUDA does not know"),
]


@pytest.mark.parametrize(("attributes", "visible", "cuda"), IDENTITIES)
def test_by_what_a_container_is_told_of_a_card(attributes: Obj, visible: str, cuda: str | None) -> None:
    world = World()
    world.add(static_pool({"n1": {"gpu": [static_device("g0", **attributes)]}}), node(), deviceclaim(), admitted())
    world.settle(Decider)
    assert got(world)["NVIDIA_VISIBLE_DEVICES"] == visible
    assert got(world).get("CUDA_VISIBLE_DEVICES") == cuda


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(lambda: cluster_without_ids(), id="counted, without rows"),
        pytest.param(lambda: cluster_without_ids(rows=3), id="counted, one row too many: nobody knows which is gone"),
        pytest.param(lambda: static_without_ids(), id="listed, with a name alone"),
    ],
)
def test_a_device_whose_identity_is_unknown_is_planned_but_lets_no_pod_go(world: Any) -> None:
    made = world()
    made.settle(Decider)
    claim, waiting = made.get(Kind.DEVICE_CLAIM, "job-a"), made.get(Kind.POD, "worker")
    assert claim["status"]["phase"] == "Ready"
    assert waiting["spec"]["schedulingGates"] == [{"name": "adjoin.dev/claim"}]
    assert grants(made) == []
    assert "has neither uuid nor PCI address" in told(made)["IdentityUnknown"]
    (reason,) = claim["status"]["reasons"]
    assert (reason["code"], reason["nodes"]) == ("IdentityUnknown", 1)
    assert "neither uuid nor PCI address" in reason["message"]
    found = {each["type"]: (each["status"], each["reason"]) for each in claim["status"]["conditions"]}
    assert found["Ready"] == ("False", "IdentityUnknown")
    assert found["Stalled"] == ("True", "IdentityUnknown")


def test_once_identities_are_known_the_reason_goes_and_the_pod_with_it() -> None:
    world = cluster_without_ids()
    world.settle(Decider)
    config_map, entries = matrices({"n1": 2})
    world.add(config_map)
    world.change(Kind.DEVICE_POOL, "training", {"spec": {"topology": {"matrices": entries}}})
    world.settle(Decider)
    claim = world.get(Kind.DEVICE_CLAIM, "job-a")
    assert (claim["status"]["phase"], "reasons" in claim["status"]) == ("InUse", False)


def test_a_plan_says_which_devices_no_container_could_be_told_of() -> None:
    pool = static_pool({"n1": {"gpu": [static_device("g0", numaNode=0), static_device("g1", uuid="GPU-1")]}})
    ran = plan_objects([pool, deviceclaim("one"), deviceclaim("two")])
    assert sorted(ran.codes(name) for name in ("one", "two")) == [[], ["IdentityUnknown"]]
    assert ran.status == 0, "they are placed"


def cluster_without_ids(rows: int = 0) -> World:
    config_map, entries = matrices({"n1": rows})
    world = World()
    world.add(counting_pool(topology={"matrices": entries}), config_map, machine(), deviceclaim(), admitted())
    return world


def static_without_ids() -> World:
    world = World()
    world.add(static_pool({"n1": {"gpu": [static_device("g0", numaNode=0)]}}), node(), deviceclaim(), admitted())
    return world


def two_by_two() -> Obj:
    """Two GPUs and two NICs, crosswise: the first GPU sits beside the second NIC."""
    return static_pool(
        {
            "n1": {
                "gpu": [static_device(f"g{i}", uuid=f"GPU-{i}", pcieRoot=f"pci0000:{i}0") for i in (0, 1)],
                "nic": [
                    static_device(
                        f"c{i}", rdmaDevice=f"mlx5_{i}", pcieRoot=f"pci0000:{1 - i}0", pciBusID=f"0000:{i}a:00.0"
                    )
                    for i in (0, 1)
                ],
            }
        }
    )


def test_hints_name_nics_in_the_order_of_the_gpus_beside_them() -> None:
    world = World()
    world.add(two_by_two(), node(), deviceclaim(requests={"gpu": 2, "nic": 2}), admitted(requests=("gpu", "nic")))
    world.settle(Decider)
    found = got(world)
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert found["NCCL_IB_HCA"] == "=mlx5_1,mlx5_0"
    assert found["UCX_NET_DEVICES"] == "mlx5_1:1,mlx5_0:1"


def test_each_container_has_what_the_annotation_gives_it() -> None:
    made = pod(
        resource_claims=0, gates=(), containers='{"trainer": ["gpu", "nic"], "loader": ["nic"], "warm": ["gpu"]}'
    )
    made["spec"]["containers"] = [{"name": name} for name in ("trainer", "loader", "logger")]
    made["spec"]["initContainers"] = [{"name": "warm"}]
    world = World()
    worker = admitted(made, requests=("gpu", "nic"))
    world.add(two_by_two(), node(), deviceclaim(requests={"gpu": 2, "nic": 1}), worker)
    world.settle(Decider)
    visible = {name: got(world, container=name)["NVIDIA_VISIBLE_DEVICES"] for name in ("trainer", "loader", "warm")}
    assert visible == {"trainer": "GPU-0,GPU-1", "loader": "void", "warm": "GPU-0,GPU-1"}
    assert got(world, container="loader")["NCCL_IB_HCA"] == "=mlx5_0"
    assert "NCCL_IB_HCA" not in got(world, container="warm")
    assert got(world, container="logger") == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert [each["device"] for each in json.loads(got(world, container="loader")["ADJOIN_DEVICES"])] == ["c0"]


@pytest.mark.parametrize(
    ("pool", "worker", "reason"),
    [
        pytest.param("environment", lambda: pod(), "AdmittedOtherwise", id="admitted for ResourceClaims"),
        pytest.param("resourceclaims", lambda: admitted(), "ResourceClaimCount", id="admitted for environment"),
    ],
)
def test_a_pod_that_was_admitted_before_the_pools_mode_changed_waits_and_is_told(
    pool: str, worker: Any, reason: str
) -> None:
    world = World()
    if pool == "environment":
        world = cluster(deviceclaim(), worker())
    else:
        world.add(devicepool(), node(), resourceslice("n1"), taintrule(), deviceclaim(), worker())
    world.settle(Decider)
    assert "delete the pod so that it is made again" in told(world)[reason]
    found = world.get(Kind.POD, "worker")
    assert found is not None
    assert found["spec"]["schedulingGates"]


def test_a_pool_that_changes_its_mode_leaves_running_pods_what_they_have() -> None:
    world = cluster(deviceclaim(), admitted())
    world.settle(Decider)
    before = (grants(world), ids(world))
    world.change(Kind.DEVICE_POOL, "training", {"spec": {"delivery": {"mode": "ResourceClaim"}}}, "")
    world.settle(Decider)
    assert (grants(world), ids(world)) == before
    assert world.all(Kind.RESOURCE_CLAIM) == []
    assert claimed(world)[0]["state"] == "InUse"


def test_published_devices_are_handed_over_behind_their_guard() -> None:
    """Nothing of Kubernetes' own holds them then, so the guard alone keeps kube-scheduler off."""
    world = World()
    pool = devicepool(delivery={"mode": "Environment"})
    world.add(pool, node(), resourceslice("n1"), deviceclaim(), admitted())
    world.settle(Decider)
    assert got(world)["NVIDIA_VISIBLE_DEVICES"] == "GPU-n1-0"
    assert world.all(Kind.TAINT_RULE)
    assert world.all(Kind.RESOURCE_CLAIM) == []


def test_b15_a_part_of_a_card_never_becomes_the_whole_card() -> None:
    """The pod was admitted for a claim of that name that had whole cards: it would not be told of any limit."""
    part = {"name": "quarter", "memory": 1 << 30}
    device = {"request": "gpu", "driver": "adjoin.dev", "pool": "n1", "device": "g0", "id": "GPU-a", "share": part}
    world = World()
    world.add(
        static_pool({"n1": {"gpu": [static_device("g0", uuid="GPU-a")]}}),
        node(),
        deviceclaim(status=allocation({**replica(), "devices": [device]})),
        admitted(),
    )
    world.settle(Decider)
    assert list(told(world)) == ["AdmittedOtherwise"]
    assert grants(world) == []


def test_devices_of_a_claim_that_was_torn_away_are_its_pods_until_that_has_ended() -> None:
    world = cluster(deviceclaim(), admitted(), gpus=1)
    world.settle(Decider)
    world.change(Kind.DEVICE_CLAIM, "job-a", {"metadata": {"finalizers": []}})
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.kubernetes()  # the garbage collector asks for the ConfigMap's deletion
    world.add(deviceclaim("job-b"))
    decision = Decider().decide(world.view(), world.now)
    world.carry_out(decision.intents)
    waiting = world.get(Kind.DEVICE_CLAIM, "job-b")
    assert waiting is not None
    assert "DeviceReleasing" in {each["code"] for each in waiting["status"]["reasons"]}
    assert got(world)["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)
    world.finish("worker")
    world.settle(Decider)
    assert grants(world) == []
    assert ids(world, "job-b") == [uuid("n1", 0)]


def test_a_status_that_was_wiped_is_written_again_from_the_configmap() -> None:
    world = cluster(deviceclaim(requests={"gpu": 2}), admitted(), gpus=4)
    world.settle(Decider)
    before = ids(world)
    world.change(Kind.DEVICE_CLAIM, "job-a", {"status": {"allocation": None, "phase": None}})
    world.settle(Decider)
    assert ids(world) == before == got(world)["NVIDIA_VISIBLE_DEVICES"].split(",")
    (entry,) = claimed(world)
    assert (entry["state"], {each["request"] for each in entry["devices"]}) == ("InUse", {"gpu"})


def test_a_configmap_whose_claim_is_gone_is_removed() -> None:
    """As a restored backup leaves it."""
    orphan: Obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "adjoin-job-x-aaaaaaaaaa",
            "namespace": "team",
            "uid": "orphan",
            "finalizers": ["adjoin.dev/cleanup"],
            "labels": {"adjoin.dev/pod": "nobody", "adjoin.dev/replica": "0"},
            "ownerReferences": [
                {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceClaim", "name": "job-x", "uid": "long-gone"}
            ],
        },
        "immutable": True,
        "data": {"ADJOIN_DEVICES": "[]"},
    }
    world = cluster(orphan)
    world.settle(Decider)
    assert grants(world) == []


def test_a_fresh_process_lets_a_pod_linger_that_it_finds_only_in_its_configmap() -> None:
    world = cluster(deviceclaim(), admitted(), gpus=1)
    world.settle(Decider)
    world.delete(Kind.POD, "worker", force=True)
    view = world.view()
    traces = unseen(view.claims, view.resource_claims, view.pods, (), view.grants)
    assert (traces.named, traces.nameless) == ({"pod-team-worker"}, ())
    # Without the ConfigMap there is nothing but the status to say that somebody was there.
    assert len(unseen(view.claims, view.resource_claims, view.pods, ()).nameless) == 1


def life(crash: int | None) -> tuple[list[tuple[str, str]], int]:
    """A claim's whole life with the operator dead before request number `crash`: what is left, and how many there
    were."""
    hook = {"name": "scrub", "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
    lifecycle = {"init": [{**hook, "name": "verify"}], "cleanup": [hook]}
    config_map, entries = matrices({"n1": 1})
    world = World()
    world.crash_after(crash)
    world.add(counting_pool(topology={"matrices": entries}, lifecycle=lifecycle), config_map, machine("n1", 1))
    worker = admitted(pod(resource_claims=0, gates=(), token="aaaaaaaaaa"))
    world.add(deviceclaim(), worker)
    world.settle(Decider, rounds=200)
    assert got(world)["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)
    world.finish("worker")
    world.add(admitted(pod("second", resource_claims=0, gates=())))
    world.settle(Decider, rounds=200)
    assert got(world, "second")["NVIDIA_VISIBLE_DEVICES"] == uuid("n1", 0)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.add(deviceclaim("job-b"))
    world.settle(Decider, rounds=200)
    assert ids(world, "job-b") == [uuid("n1", 0)]
    left = [(kind.name, name) for kind, _, name in sorted(world.objects, key=str) if kind is not Kind.EVENT]
    return left, len(world.writes)


def test_a_crash_before_any_single_write_ends_in_the_same_state() -> None:
    left, count = life(None)
    assert count > 10
    for crash in range(count):
        assert life(crash)[0] == left, f"died before request {crash}"


def test_d9_nothing_is_written_once_the_pod_runs() -> None:
    world = cluster(deviceclaim(), admitted())
    world.settle(Decider)
    world.writes.clear()
    for _ in range(5):
        world.now += 60
        world.settle(Decider)
    assert world.writes == []
