"""Pods of every common controller get their claim's devices and give them back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import hardware
from tests.support.site import NEAR, Site, devices, pod
from tests.support.waiting import eventually, steadily

pytestmark = pytest.mark.cluster
Manifest = dict[str, Any]


def template(claim: str, **spec: Any) -> Manifest:
    """A pod template that asks for a claim."""
    made = pod("unused", claim)
    return {"metadata": {"labels": {**made["metadata"]["labels"], "app": claim}}, "spec": {**made["spec"], **spec}}


def pods_of(site: Site, claim: str) -> list[Manifest]:
    """Pods that name a claim."""
    return [p for p in site.all("Pod") if p["metadata"]["labels"].get("adjoin.dev/claim") == claim]


def running(site: Site, claim: str, count: int) -> list[Manifest]:
    """Waits until exactly so many of a claim's pods run."""
    return eventually(
        lambda: [p for p in pods_of(site, claim) if p.get("status", {}).get("phase") == "Running"],
        lambda seen: len(seen) == count,
        what=f"{count} pods of {claim} run",
    )


def delivered(site: Site) -> dict[str, set[tuple[str, str]]]:
    """By pod UID the devices that its ResourceClaims give it."""
    found: dict[str, set[tuple[str, str]]] = {}
    for one in site.all("ResourceClaim"):
        for user in one.get("status", {}).get("reservedFor", []):
            results = one["status"].get("allocation", {}).get("devices", {}).get("results", [])
            found.setdefault(user["uid"], set()).update((r["driver"], r["device"]) for r in results)
    return found


def test_deployment_replicas_each_get_a_replica_of_the_claim(site: Site) -> None:
    """Three pods, three pairs; scaling both up and down follows."""
    site.machines(hardware.p4d)
    site.pool()
    site.ask("serve", {"gpu": 1, "nic": 1}, affinity=list(NEAR), replicas=3)
    site.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serve"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "serve"}}, "template": template("serve")},
        }
    )
    pods = running(site, "serve", 3)
    given = delivered(site)
    assert {p["metadata"]["uid"] for p in pods} == set(given)
    assert len(set().union(*given.values())) == 6
    site.patch("DeviceClaim", "serve", {"spec": {"replicas": 4}}, subresource="scale")
    site.patch("Deployment", "serve", {"spec": {"replicas": 4}})
    running(site, "serve", 4)
    site.patch("Deployment", "serve", {"spec": {"replicas": 1}})
    running(site, "serve", 1)
    site.patch("DeviceClaim", "serve", {"spec": {"replicas": 1}}, subresource="scale")
    eventually(lambda: devices(site.claim("serve")), lambda seen: len(seen) <= 2, what="devices are given back")


def test_an_autoscaler_can_read_and_set_the_scale_of_a_claim(site: Site) -> None:
    """It finds the claim's pods by the selector, and brings the number of replicas to its own limits."""
    site.machines(hardware.p4d)
    site.pool()
    site.ask("serve", {"gpu": 1}, replicas=1)
    site.wait_phase("serve", "Ready")
    path = f"/apis/autoscaling/v2/namespaces/{site.namespace}/horizontalpodautoscalers"
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    target = {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceClaim", "name": "serve"}
    body = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "serve"},
        "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4, "metrics": [cpu]},
    }
    site.plane.request("POST", path, body)
    eventually(lambda: devices(site.claim("serve")), lambda seen: len(seen) == 3, what="three replicas", seconds=120)
    scale = site.find(site.path("DeviceClaim", "serve") + "/scale")
    assert scale is not None
    assert scale["status"]["selector"] == "adjoin.dev/claim=serve"
    seen = site.find(f"{path}/serve") or {}
    found = {each["type"]: each for each in seen["status"]["conditions"]}
    assert found["AbleToScale"]["status"] == "True", found


def test_a_deleted_pod_of_a_deployment_is_replaced_on_the_same_devices(site: Site) -> None:
    """The claim keeps its devices; the next pod gets them once the old one is gone."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("serve", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    site.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serve"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "serve"}}, "template": template("serve")},
        }
    )
    (first,) = running(site, "serve", 1)
    before = devices(site.claim("serve"))
    site.delete("Pod", first["metadata"]["name"])
    eventually(
        lambda: [p for p in pods_of(site, "serve") if p.get("status", {}).get("phase") == "Running"],
        lambda seen: len(seen) == 1 and seen[0]["metadata"]["uid"] != first["metadata"]["uid"],
        what="the replacement runs",
    )
    assert devices(site.claim("serve")) == before


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_job_pods_run_to_their_end(site: Site, mode: str) -> None:
    """More completions than replicas: each replica serves one pod after the other."""
    site.machines(hardware.two_roots)
    site.pool()
    indexed = mode == "Indexed"
    site.ask("train", {"gpu": 1}, replicas=3 if indexed else 2)
    site.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train"},
            "spec": {
                "completions": 3 if indexed else 5,
                "parallelism": 3 if indexed else 2,
                "completionMode": mode,
                "template": template("train", restartPolicy="Never"),
            },
        }
    )
    eventually(
        lambda: site.get("Job", "train"),
        lambda seen: seen["status"].get("succeeded") == (3 if indexed else 5),
        what="all completions succeeded",
        seconds=90,
    )
    if indexed:
        nodes = {r["index"]: r["devices"] for r in site.claim("train")["status"]["allocation"]["replicas"]}
        assert set(nodes) == {0, 1, 2}


def test_statefulset_pods_keep_their_replica(site: Site) -> None:
    """Pod i has replica i, also after it was deleted and came back."""
    site.machines(hardware.p4d)
    site.pool()
    site.ask("shards", {"gpu": 1}, replicas=3)
    site.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "shards"},
            "spec": {
                "replicas": 3,
                "serviceName": "shards",
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": "shards"}},
                "template": template("shards"),
            },
        }
    )
    running(site, "shards", 3)

    def by_index() -> dict[str, set[tuple[str, str]]]:
        given = delivered(site)
        return {
            p["metadata"]["labels"]["apps.kubernetes.io/pod-index"]: given.get(p["metadata"]["uid"], set())
            for p in pods_of(site, "shards")
        }

    before = by_index()
    expected = {
        str(r["index"]): {(d["driver"], d["device"]) for d in r["devices"]}
        for r in site.claim("shards")["status"]["allocation"]["replicas"]
    }
    assert before == expected
    old = site.get("Pod", "shards-1")
    assert old is not None
    site.delete("Pod", "shards-1")
    eventually(
        lambda: site.get("Pod", "shards-1"),
        lambda seen: (
            seen and seen["metadata"]["uid"] != old["metadata"]["uid"] and seen["status"].get("phase") == "Running"
        ),
        what="shards-1 is back",
    )
    assert by_index() == expected


def test_containers_get_the_requests_that_the_annotation_says(site: Site) -> None:
    """The trainer gets both, the loader the NIC alone."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("pair", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    made = pod("pair", "pair", annotations={"adjoin.dev/containers": '{"trainer": ["gpu", "nic"], "loader": ["nic"]}'})
    container = made["spec"]["containers"][0]
    made["spec"]["containers"] = [{**container, "name": name} for name in ("trainer", "loader", "logger")]
    site.create(made)
    seen = site.wait_running("pair")
    given = {
        c["name"]: {claim.get("request", "*") for claim in c.get("resources", {}).get("claims", [])}
        for c in seen["spec"]["containers"]
    }
    assert given["trainer"] in ({"gpu", "nic"}, {"*"})
    assert given["loader"] == {"nic"}
    assert given["logger"] == set()


def test_a26_b18_two_pods_of_one_replica_run_one_after_the_other(site: Site) -> None:
    """The second stays gated with one Event, without hot retries, and runs when the first has ended."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("one", {"gpu": 1, "nic": 1})
    site.create(pod("first", "one"))
    site.wait_running("first")
    site.create(pod("second", "one"))
    events = eventually(
        lambda: [e for e in site.all("Event") if e.get("regarding", {}).get("name") == "second"],
        lambda seen: any("adjoin" in (e.get("reportingController") or "") for e in seen),
        what="an Event on the second pod",
    )
    steadily(
        lambda: site.get("Pod", "second"),
        lambda seen: bool(seen["spec"].get("schedulingGates")),
        what="the second pod is gated",
        seconds=3,
    )
    ours = [e for e in events if "adjoin" in (e.get("reportingController") or "")]
    again = [
        e
        for e in site.all("Event")
        if e.get("regarding", {}).get("name") == "second" and "adjoin" in (e.get("reportingController") or "")
    ]
    assert len(again) == len(ours) == 1
    site.delete("Pod", "first")
    site.wait_running("second")
