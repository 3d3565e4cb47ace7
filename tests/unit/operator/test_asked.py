"""What other objects and the newer fields of a claim say reaches the allocator's Snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.views import view_of

from adjoin.environment import read_guest
from adjoin.inventory import InventoryBuilder
from adjoin.snapshot import SnapshotBuilder
from adjoin_allocator import Claim, Fabric, HostAsk, Profile, Reclaim, ReplicaState, Segment, ShareMode, Snapshot

Obj = dict[str, Any]


def pool(**spec: Any) -> Obj:
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": "p", "uid": "pool"},
        "spec": {
            "devices": [
                {
                    "name": "gpu",
                    "type": "GPU",
                    "source": {"static": {"nodes": [{"name": "n1", "devices": [{"name": "g0"}, {"name": "g1"}]}]}},
                }
            ],
            "delivery": {"guard": "None"},
            **spec,
        },
    }


def claim(name: str = "c", namespace: str = "vision", status: Obj | None = None, **spec: Any) -> Obj:
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"poolRef": {"name": "p"}, "requests": [{"name": "gpu"}], **spec},
        **({"status": status} if status else {}),
    }


def node(name: str = "n1", **allocatable: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name},
        "status": {"allocatable": allocatable},
    }


def namespace(name: str, **labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": name, "labels": labels}}


def placed(index: int = 0, state: str = "Ready") -> Obj:
    devices = [{"request": "gpu", "driver": "adjoin.dev", "pool": "n1", "device": f"g{index}"}]
    entry = {"index": index, "node": "n1", "state": state, "devices": devices, "readyAt": "2026-11-30T10:00:00Z"}
    return {"allocation": {"replicas": [entry]}}


def pod(name: str, *, claim: str = "", node: str = "n1", phase: str = "Running", **spec: Any) -> Obj:
    labels = {"adjoin.dev/claim": claim} if claim else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "vision", "uid": name, "labels": labels},
        "spec": {"nodeName": node, **spec},
        "status": {"phase": phase},
    }


def requests(**amounts: str) -> Obj:
    return {"name": "main", "resources": {"requests": amounts}}


def snapshot(*objects: Obj) -> Snapshot:
    view = view_of(*objects)
    return SnapshotBuilder().build(view, InventoryBuilder().build(view))


def only(*objects: Obj) -> Claim:
    (found,) = snapshot(*objects).claims
    return found


TENANCY = {
    "namespaceSelector": {"matchLabels": {"team": "ml"}},
    "tenants": [
        {"name": "research", "namespaces": ["vision"], "quota": {"gpu": 4}, "borrowing": {"gpu": 1}, "weight": 2}
    ],
    "preemption": {"withinTenant": "LowerPriority", "reclaim": "Any", "minRuntime": "10m"},
    "aging": {"every": "1m", "step": 2, "max": 50},
}


def test_a_pools_policies_reach_the_allocator() -> None:
    fabric = [{"name": "rack", "nodeLabel": "example.com/rack"}]
    made = snapshot(
        pool(
            tenancy=TENANCY,
            topology={"fabric": fabric},
            placement={
                "strategy": "Spread",
                "objective": "Throughput",
                "optimiseFor": "0",
                "backfill": {"holdAfter": "10m"},
            },
        )
    ).pools["p"]
    assert [(level.name, level.node_label) for level in made.fabric] == [("rack", "example.com/rack")]
    assert (made.strategy, made.objective, made.optimise_milliseconds, made.hold_after) == (
        "Spread",
        "Throughput",
        0,
        600.0,
    )
    tenant = made.tenants["research"]
    assert (tenant.quota, tenant.borrowing, tenant.weight) == ({"gpu": 4}, {"gpu": 1}, 2)
    assert (made.preemption.within_tenant, made.preemption.reclaim, made.preemption.min_runtime) == (
        True,
        Reclaim.ANY,
        600.0,
    )
    assert made.aging is not None
    assert (made.aging.every, made.aging.step, made.aging.max) == (60.0, 2, 50)


def test_a_claims_fields_reach_the_allocator() -> None:
    asked = only(
        pool(),
        claim(
            replicas=4,
            gang={"minReplicas": 2},
            fabric={"required": "block", "preferred": "rack", "segment": {"size": 2, "level": "rack"}},
            host={"cpu": "1500m", "memory": "1Gi"},
            profile="Compute",
            deadline="2026-12-01T08:00:00Z",
            preemptible=False,
            maxRuntime="4h",
        ),
    )
    assert asked.gang_min == 2
    assert asked.fabric == Fabric("block", "rack", Segment(2, "rack"))
    assert asked.host == HostAsk(1500, 1 << 30)
    assert asked.profile is Profile.COMPUTE
    assert asked.deadline == 1796112000.0
    assert not asked.preemptible
    assert asked.max_runtime == 14400.0


def test_a_gang_without_minimum_wants_all_its_replicas() -> None:
    assert only(pool(), claim(replicas=3, gang={})).gang_min == 3


@pytest.mark.parametrize(
    ("where", "tenancy", "tenant"),
    [
        pytest.param("vision", TENANCY, "research", id="a namespace of a tenant"),
        pytest.param("other", TENANCY, "namespace/other", id="a namespace in no tenant is one of its own"),
        pytest.param("other", {**TENANCY, "default": "research"}, "research", id="unless there is a default"),
        pytest.param("vision", None, "namespace/vision", id="no tenancy at all"),
    ],
)
def test_the_tenant_of_a_claim(where: str, tenancy: Obj | None, tenant: str) -> None:
    more = {} if tenancy is None else {"tenancy": tenancy}
    found = only(pool(**more), namespace(where, team="ml"), claim(namespace=where))
    assert found.tenant == tenant
    assert found.hold is None


def test_a_namespace_that_may_not_claim_is_held_back_with_the_reason() -> None:
    found = only(pool(tenancy=TENANCY), namespace("vision", team="web"), claim())
    assert found.hold is not None
    assert found.hold.code == "NotAllowed"
    assert "vision" in found.hold.message


def test_a_namespace_whose_object_is_not_there_has_its_name_as_label() -> None:
    by_name = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "vision"}}}
    assert only(pool(tenancy=by_name), claim()).hold is None


def test_a_priority_class_gives_the_priority_and_an_unknown_one_is_said() -> None:
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high", "uid": "high"},
        "value": 7,
    }
    assert only(pool(), high, claim(priorityClassName="high")).priority == 7
    unknown = only(pool(), claim(priorityClassName="high"))
    assert unknown.hold is not None
    assert "PriorityClass high" in unknown.hold.message


def test_a_suspended_claim_is_not_planned_and_gives_back_what_it_has() -> None:
    found = only(pool(), node(), claim(suspend=True, status=placed()))
    assert found.hold is not None
    assert found.hold.code == "Suspended"
    assert [replica.state for replica in found.placed] == [ReplicaState.RELEASING]


def test_the_pods_of_a_node_use_its_cpu_and_memory() -> None:
    here = snapshot(
        pool(),
        node(cpu="8", memory="32Gi"),
        pod("a", containers=[requests(cpu="1500m", memory="1Gi")]),
        pod("b", containers=[requests(cpu="500m")], initContainers=[requests(cpu="2", memory="4Gi")]),
        pod("done", phase="Succeeded", containers=[requests(cpu="4")]),
    ).nodes["n1"]
    assert (here.cpu_milli, here.memory_bytes) == (8000, 32 << 30)
    assert (here.cpu_used_milli, here.memory_used_bytes) == (3500, 5 << 30)


def test_a_node_that_says_nothing_of_its_resources_has_no_limit() -> None:
    here = snapshot(pool(), node()).nodes["n1"]
    assert (here.cpu_milli, here.memory_bytes) == (None, None)


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param({"containers": [requests(cpu="1"), requests(cpu="2")]}, 3000, id="containers add up"),
        pytest.param(
            {"containers": [requests(cpu="1")], "initContainers": [requests(cpu="3"), requests(cpu="2")]},
            3000,
            id="of init containers the greatest counts",
        ),
        pytest.param(
            {"containers": [requests(cpu="1")], "initContainers": [{**requests(cpu="2"), "restartPolicy": "Always"}]},
            3000,
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            {
                "containers": [requests(cpu="1")],
                "initContainers": [{**requests(cpu="2"), "restartPolicy": "Always"}, requests(cpu="4")],
            },
            6000,
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {"containers": [requests(cpu="1")], "overhead": {"cpu": "250m"}}, 1250, id="the overhead comes on top"
        ),
        pytest.param(
            {"containers": [requests(cpu="1")], "resources": {"requests": {"cpu": "4"}}},
            4000,
            id="what the pod as a whole states counts instead of its containers",
        ),
        pytest.param(
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]},
            2000,
            id="a limit without a request is the request",
        ),
    ],
)
def test_what_a_pod_requests_is_what_kube_scheduler_counts(spec: Obj, cpu: int) -> None:
    guest = read_guest(pod("x", **spec))
    assert guest is not None
    assert guest.cpu_milli == cpu


def test_the_replica_of_a_bound_pod_is_bound() -> None:
    assert only(pool(), node(), claim(status=placed()), pod("a", claim="c")).placed[0].bound
    assert not only(pool(), node(), claim(status=placed()), pod("a", claim="c", node="n2")).placed[0].bound
    assert not only(pool(), node(), claim(status=placed()), pod("a", claim="c", phase="Failed")).placed[0].bound


def test_shares_reach_the_allocator() -> None:
    share = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceShare",
        "metadata": {"name": "parts", "uid": "parts"},
        "spec": {
            "poolRef": {"name": "p"},
            "device": "gpu",
            "mode": "Fractional",
            "maxDevices": 1,
            "fractional": {"reserve": "2.5%", "minReserve": "0"},
        },
    }
    made = snapshot(pool(), share).shares["parts"]
    assert (made.pool, made.kind, made.mode, made.max_devices) == ("p", "gpu", ShareMode.FRACTIONAL, 1)
    assert (made.reserve_per_million, made.min_reserve_bytes) == (25_000, 0)
