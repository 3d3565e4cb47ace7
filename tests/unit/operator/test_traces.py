"""Traces of pods: what a process that has just begun has to take for running."""

from __future__ import annotations

import pytest
from tests.support.objects import CREATED, GPU_DRIVER, Obj, allocation, deviceclaim, pod, replica, resourceclaim
from tests.support.world import World

from adjoin.traces import unseen

GPU_0 = (GPU_DRIVER, "n1", "gpu-0")
OURS = ("adjoin.dev/cleanup",)
WORKER = "pod-team-worker"


def in_use(*states: str) -> Obj:
    return allocation(*(replica(index, state=state) for index, state in enumerate(states)), phase="InUse")


def running(**fields: object) -> Obj:
    return pod(gates=(), node="n1", phase="Running", running=True, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("objects", "named"),
    [
        pytest.param([resourceclaim(devices=[GPU_0])], {WORKER}, id="allocated and reserved"),
        pytest.param([resourceclaim(devices=[GPU_0], reserved=[])], {WORKER}, id="its reservation was taken back"),
        pytest.param([resourceclaim()], {WORKER}, id="Kubernetes has cleared its allocation, or it never had one"),
        pytest.param([resourceclaim(finalizers=OURS)], set(), id="behind our own finalizer it never had an allocation"),
        pytest.param([resourceclaim(devices=[GPU_0], finalizers=OURS)], {WORKER}, id="behind our own it has"),
        pytest.param(
            [
                resourceclaim("adjoin-job-a-abcdefghi0", devices=[GPU_0], finalizers=OURS),
                resourceclaim("adjoin-job-a-abcdefghi0-1", finalizers=OURS),
            ],
            set(),
            id="behind our own finalizer one of two never had an allocation",
        ),
        pytest.param([resourceclaim(devices=[GPU_0]), running()], set(), id="its pod is there"),
        pytest.param([resourceclaim(devices=[GPU_0]), pod()], set(), id="its pod waits at the gate"),
        pytest.param(
            [resourceclaim(devices=[GPU_0]), pod(node="n1", phase="Succeeded")], set(), id="its pod has ended and stays"
        ),
        pytest.param(
            [resourceclaim(devices=[GPU_0], reserved=["pod-team-other"])],
            {WORKER, "pod-team-other"},
            id="another pod has reserved it",
        ),
        pytest.param([resourceclaim(owner="", devices=[GPU_0])], set(), id="it is somebody else's"),
    ],
)
def test_pods_that_resourceclaims_name(objects: list[Obj], named: set[str]) -> None:
    world = World()
    world.add(deviceclaim(status=in_use("InUse")), *objects)
    view = world.view()
    assert unseen(view.claims, view.resource_claims, view.pods, ()).named == named


def test_a_pod_that_was_seen_to_end_is_not_unseen() -> None:
    world = World()
    world.add(deviceclaim(status=in_use("InUse")), resourceclaim(devices=[GPU_0]))
    view = world.view()
    assert unseen(view.claims, view.resource_claims, view.pods, {WORKER: 7}).named == frozenset()


@pytest.mark.parametrize(
    ("claim", "others", "nameless"),
    [
        pytest.param(deviceclaim(status=in_use("InUse")), [], [0], id="used, and nothing says by whom"),
        pytest.param(deviceclaim(status=in_use("Ready", "InUse")), [], [1], id="the one that was used"),
        pytest.param(
            deviceclaim(status=in_use("Releasing"), deletionTimestamp=CREATED), [], [0], id="its claim is being deleted"
        ),
        pytest.param(deviceclaim(status=in_use("Ready")), [], [], id="nobody used it"),
        pytest.param(deviceclaim(status=in_use("InUse")), [resourceclaim()], [], id="a ResourceClaim says it"),
        pytest.param(
            deviceclaim(status=in_use("InUse")), [running()], [], id="the pod without its ResourceClaim says it"
        ),
        pytest.param(
            deviceclaim(status=in_use("InUse")), [running(claim="other")], [0], id="the pod of another claim does not"
        ),
    ],
)
def test_replicas_in_use_without_any_name(claim: Obj, others: list[Obj], nameless: list[int]) -> None:
    world = World()
    world.add(claim, *others)
    view = world.view()
    found = unseen(view.claims, view.resource_claims, view.pods, ()).nameless
    assert [(pod.replica, pod.claim, pod.node, pod.gated) for pod in found] == [
        (index, "job-a", "n1", False) for index in nameless
    ]
