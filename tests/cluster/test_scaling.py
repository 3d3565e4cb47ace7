"""Claims that grow and shrink with their pods, and give back what nobody needs any more, on a control plane of their
own where pods of Jobs, hooks among them, run until the test says how they end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane import ControlPlane, Options
from tests.controlplane.options import DEFAULT_STAGES
from tests.support import hardware
from tests.support.double_use import Recorder
from tests.support.installation import NAMESPACE, Installation, installed
from tests.support.metrics_api import MetricsApi, served
from tests.support.site import Site, condition, pod
from tests.support.waiting import eventually, steadily

pytestmark = pytest.mark.cluster
Manifest = dict[str, Any]
HPA_SECONDS = 240.0
"""An autoscaler looks every 15 s, and each of its steps waits for the one before."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Without the stage that ends pods of Jobs."""
    stages = tuple(stage for stage in DEFAULT_STAGES if stage != "pod-complete")
    made = ControlPlane(Options(kwok_stages=stages), name="scaling", report=lambda line: print(line, file=sys.stderr))
    with made:
        yield made


@pytest.fixture(scope="module")
def operators(plane: ControlPlane) -> Iterator[Installation]:
    with installed(plane) as made:
        made.start_operator()
        yield made


@pytest.fixture
def site(operators: Installation) -> Iterator[Site]:
    """A corner of the test's own; a watcher looks for double use as long as it lasts."""
    with Recorder(operators.plane) as recorder:
        made = Site.open(operators.plane, "scale")
        yield made
        made.close()
        recorder.catch_up()
    assert recorder.violations() == []


@pytest.fixture
def metrics(plane: ControlPlane, tmp_path: Path) -> Iterator[MetricsApi]:
    with served(plane, tmp_path) as made:
        yield made


def template(claim: str, **spec: Any) -> Manifest:
    made = pod("unused", claim)
    return {"metadata": {"labels": {**made["metadata"]["labels"], "app": claim}}, "spec": {**made["spec"], **spec}}


def deployment(name: str, replicas: int, **spec: Any) -> Manifest:
    selector = {"matchLabels": {"app": name}}
    body = {"replicas": replicas, "selector": selector, "template": template(name), **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


def autoscaler(site: Site, kind: str, name: str, *, least: int, most: int) -> str:
    """An autoscaler of one object after the external metric `queue`, one unit a replica; its path."""
    group = "apps/v1" if kind == "Deployment" else "adjoin.dev/v1alpha1"
    metric = {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    path = f"/apis/autoscaling/v2/namespaces/{site.namespace}/horizontalpodautoscalers"
    site.plane.request(
        "POST",
        path,
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": group, "kind": kind, "name": name},
                "minReplicas": least,
                "maxReplicas": most,
                "metrics": [{"type": "External", "external": metric}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        },
    )
    return f"{path}/{name}"


def held(site: Site, claim: str) -> dict[int, str]:
    """Device by replica."""
    found = site.claim(claim).get("status", {}).get("allocation", {}).get("replicas", [])
    return {each["index"]: f"{each['node']}/{each['devices'][0]['device']}" for each in found}


def delivered(site: Site) -> dict[str, str]:
    """Device by name of the pod that runs with it."""
    names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in site.all("Pod") if runs(each)}
    found = {}
    for each in site.all("ResourceClaim"):
        results = each.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        for user in each.get("status", {}).get("reservedFor", []):
            if user["uid"] in names and results:
                found[names[user["uid"]]] = f"{results[0]['pool']}/{results[0]['device']}"
    return found


def runs(found: Manifest) -> bool:
    return found.get("status", {}).get("phase") == "Running" and not found["metadata"].get("deletionTimestamp")


def free(site: Site, pool: str, count: int) -> None:
    """Until the pool has so many free GPUs; its numbers are written when it is their turn."""
    eventually(
        lambda: (site.get("DevicePool", pool) or {})["status"]["devices"]["gpu"]["free"],
        lambda seen: seen == count,
        what=f"{count} GPUs are free",
    )


def in_step(site: Site, claim: str, count: int, *, seconds: float = 120.0) -> dict[str, str]:
    """Until so many pods run, and the claim holds exactly what they have; device by pod."""

    def look() -> tuple[dict[str, str], dict[int, str], Manifest]:
        return delivered(site), held(site, claim), site.claim(claim).get("status", {})

    def holds(seen: tuple[dict[str, str], dict[int, str], Manifest]) -> bool:
        pods, replicas, status = seen
        counted = (status.get("replicas"), status.get("readyReplicas"))
        return len(pods) == count and sorted(pods.values()) == sorted(replicas.values()) and counted == (count, count)

    return eventually(look, holds, what=f"{count} pods run on what {claim} holds", seconds=seconds)[0]


def end(site: Site, name: str, phase: str, namespace: str = "") -> None:
    """The kubelet's word that a pod has ended."""
    path = f"/api/v1/namespaces/{namespace or site.namespace}/pods/{name}"
    found = site.find(path)
    assert found is not None
    times = {"startedAt": "2026-11-30T08:00:00Z", "finishedAt": "2026-11-30T08:00:01Z"}
    code = 0 if phase == "Succeeded" else 1
    statuses = [
        {**each, "ready": False, "state": {"terminated": {"exitCode": code, **times}}}
        for each in found["status"]["containerStatuses"]
    ]
    site.plane.request(
        "PATCH",
        f"{path}/status",
        {"status": {"phase": phase, "containerStatuses": statuses}},
        content_type="application/merge-patch+json",
    )


def test_an_autoscaler_grows_and_shrinks_a_deployment_whose_claim_follows(site: Site, metrics: MetricsApi) -> None:
    """What the remaining pods have stays theirs; what the others had is free again."""
    site.machines(hardware.p4d)
    name = site.pool()
    site.ask("serve", {"gpu": 1}, scaling={"mode": "FollowPods", "maxReplicas": 4})
    site.create(deployment("serve", 1))
    in_step(site, "serve", 1)
    metrics.values[site.namespace, "queue"] = 4
    path = autoscaler(site, "Deployment", "serve", least=1, most=6)
    four = in_step(site, "serve", 4, seconds=HPA_SECONDS)
    assert set(held(site, "serve")) == {0, 1, 2, 3}
    metrics.values[site.namespace, "queue"] = 2
    two = in_step(site, "serve", 2, seconds=HPA_SECONDS)
    assert {pod: four[pod] for pod in two} == two
    free(site, name, 6)
    metrics.values[site.namespace, "queue"] = 6

    def waiting() -> list[Manifest]:
        return [each for each in site.all("Pod") if each["spec"].get("schedulingGates")]

    eventually(waiting, lambda seen: len(seen) == 2, what="two pods beyond maxReplicas wait", seconds=HPA_SECONDS)
    six = in_step(site, "serve", 4)
    assert {pod: six[pod] for pod in two} == two
    eventually(
        lambda: [each["regarding"]["name"] for each in site.all("Event") if each["reason"] == "ReplicaInUse"],
        lambda seen: {each["metadata"]["name"] for each in waiting()} <= set(seen),
        what="both are told",
    )
    site.plane.request("DELETE", path)


def test_an_autoscaler_scales_a_claim_by_its_scale(site: Site, metrics: MetricsApi) -> None:
    """Of a claim that says nothing of replicas, up and down; the lowest replicas stay."""
    site.machines(hardware.p4d)
    site.pool()
    site.ask("serve", {"gpu": 1})
    site.wait_phase("serve", "Ready")
    metrics.values[site.namespace, "queue"] = 3
    path = autoscaler(site, "DeviceClaim", "serve", least=1, most=4)
    eventually(lambda: held(site, "serve"), lambda seen: len(seen) == 3, what="three", seconds=HPA_SECONDS)
    three = held(site, "serve")
    metrics.values[site.namespace, "queue"] = 1
    eventually(lambda: held(site, "serve"), lambda seen: len(seen) == 1, what="one", seconds=HPA_SECONDS)
    assert held(site, "serve") == {0: three[0]}
    scale = site.find(site.path("DeviceClaim", "serve") + "/scale") or {}
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (1, "adjoin.dev/claim=serve")
    eventually(
        lambda: site.claim("serve"),
        lambda seen: (
            seen["status"]["observedGeneration"] == seen["metadata"]["generation"]
            and condition(seen, "Ready").get("status") == "True"
            and not condition(seen, "Reconciling")
        ),
        what="it is current",
    )
    site.plane.request("DELETE", path)


def test_a_rolling_update_with_surge_moves_from_replica_to_replica(site: Site) -> None:
    """New pods get devices beside those of the old ones; in the end only theirs are held."""
    site.machines(hardware.p4d)
    site.pool()
    site.ask("serve", {"gpu": 1}, scaling={"mode": "FollowPods", "maxReplicas": 4})
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    site.create(deployment("serve", 2, strategy=rolling))
    before = in_step(site, "serve", 2)
    site.patch("Deployment", "serve", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})
    eventually(
        lambda: set(delivered(site)),
        lambda seen: len(seen) == 2 and not seen & set(before),
        what="both pods are new",
    )
    in_step(site, "serve", 2)


def job_pods(site: Site, *, running: bool = True) -> list[str]:
    return [each["metadata"]["name"] for each in site.all("Pod") if not running or runs(each)]


def test_a_job_keeps_its_devices_from_try_to_try_and_gives_them_back_when_it_is_done(site: Site) -> None:
    """The second try finds the devices of the first; its success releases the claim."""
    site.machines(hardware.two_roots)
    name = site.pool()
    site.ask("train", {"gpu": 1}, release="WhenPodsFinish")
    spec = {"backoffLimit": 3, "template": template("train", restartPolicy="Never")}
    site.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec})
    (first,) = eventually(lambda: job_pods(site), lambda seen: len(seen) == 1, what="the first try runs")
    device = held(site, "train")
    end(site, first, "Failed")
    (second,) = eventually(
        lambda: [each for each in job_pods(site) if each != first],
        lambda seen: len(seen) == 1,
        what="the second try runs",
    )
    assert delivered(site)[second] == device[0]
    assert held(site, "train") == device
    end(site, second, "Succeeded")
    site.wait_phase("train", "Released")
    seen = site.claim("train")
    assert condition(seen, "Released")["reason"] == "PodsFinished"
    assert held(site, "train") == {}
    free(site, name, 4)


def test_an_idle_claim_is_released_and_comes_back_for_a_pod(site: Site) -> None:
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("notebook", {"gpu": 1}, idleTimeout="2s")
    site.wait_phase("notebook", "Released")
    assert condition(site.claim("notebook"), "Released")["reason"] == "Idle"
    site.create(pod("lab", "notebook"))
    site.wait_running("lab")
    site.wait_phase("notebook", "InUse")
    steadily(lambda: site.claim("notebook"), lambda seen: seen["status"]["phase"] == "InUse", what="in use", seconds=4)
    assert not condition(site.claim("notebook"), "Released")


def hook_pods(site: Site) -> list[Manifest]:
    listed = site.find(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=adjoin.dev/hook") or {"items": []}
    return [each for each in listed["items"] if runs(each)]


def test_a_statefulset_keeps_its_devices_over_restarts_cleaned_where_the_pool_says_so(site: Site) -> None:
    """The pod that comes back waits until what it had before is cleaned, and has the same again."""
    site.machines(hardware.two_roots)
    container = {"name": "main", "image": "registry.test/scrub:1"}
    tolerations = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
    scrub = {"name": "scrub", "template": {"spec": {"containers": [container], "tolerations": tolerations}}}
    site.pool(lifecycle={"cleanup": [scrub], "cleanBetweenRestarts": True})
    site.ask("shards", {"gpu": 1}, replicas=2)
    site.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "shards"},
            "spec": {
                "replicas": 2,
                "serviceName": "shards",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "shards"}},
                "template": template("shards"),
            },
        }
    )
    before = in_step(site, "shards", 2)
    uid = (site.get("Pod", "shards-1") or {})["metadata"]["uid"]
    site.delete("Pod", "shards-1")
    (cleaning,) = eventually(lambda: hook_pods(site), lambda seen: len(seen) == 1, what="the cleanup hook runs")
    eventually(
        lambda: site.get("Pod", "shards-1"),
        lambda seen: seen is not None and seen["metadata"]["uid"] != uid,
        what="shards-1 is made again",
    )
    steadily(
        lambda: site.get("Pod", "shards-1"),
        lambda seen: bool(seen and seen["spec"].get("schedulingGates")),
        what="it waits while its devices are cleaned",
        seconds=2,
    )
    assert held(site, "shards") == {0: before["shards-0"], 1: before["shards-1"]}
    end(site, cleaning["metadata"]["name"], "Succeeded", NAMESPACE)
    assert in_step(site, "shards", 2) == before
    # Nobody ends the hooks of the site's own end.
    site.patch("DevicePool", site.namespace, {"spec": {"lifecycle": None}})


def test_containers_of_all_kinds_get_their_requests_and_the_replica_ends_with_the_last(site: Site) -> None:
    """Compute and IO containers, one that runs before them, and a sidecar."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("pair", {"gpu": 1, "nic": 1})
    text = '{"warm": ["gpu"], "mesh": ["nic"], "trainer": ["gpu", "nic"], "loader": ["nic"]}'
    made = pod("pair", "pair", annotations={"adjoin.dev/containers": text})
    main = made["spec"]["containers"][0]
    made["spec"]["containers"] = [{**main, "name": name} for name in ("trainer", "loader", "logger")]
    made["spec"]["initContainers"] = [{**main, "name": "warm"}, {**main, "name": "mesh", "restartPolicy": "Always"}]
    site.create(made)
    seen = site.wait_running("pair")
    given = {
        each["name"]: {claim["request"] for claim in each.get("resources", {}).get("claims", [])}
        for each in (*seen["spec"]["initContainers"], *seen["spec"]["containers"])
    }
    assert given == {
        "warm": {"gpu"},
        "mesh": {"nic"},
        "trainer": {"gpu", "nic"},
        "loader": {"nic"},
        "logger": set(),
    }
    site.wait_phase("pair", "InUse")
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-11-30T08:00:01Z", "startedAt": "2026-11-30T08:00:00Z"}}
    statuses = [{**each, "ready": False, "state": ended} for each in seen["status"]["containerStatuses"]]
    site.patch("Pod", "pair", {"status": {"containerStatuses": statuses}}, subresource="status")
    steadily(lambda: site.claim("pair"), lambda seen: seen["status"]["phase"] == "InUse", what="in use", seconds=2)
    end(site, "pair", "Succeeded")
    site.wait_phase("pair", "Ready")
