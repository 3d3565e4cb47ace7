"""Partitions and capacity that drivers publish, on a real control plane: what we allocate is accepted, and
kube-scheduler gives others exactly what is left; and the other way round."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.mig_slices import MIG, WHOLE, asking, mig_slices
from tests.support.site import Site, devices, pod, reasons
from tests.support.waiting import eventually, steadily

pytestmark = pytest.mark.cluster

DRIVER = "gpu.nvidia.com"
NAMES = [
    {"name": name, "type": "GPU", "source": {"resourceSlices": {"driver": DRIVER, "selectors": [{"cel": cel}]}}}
    for name, cel in (("gpu", WHOLE), ("mig", MIG))
]
UNGUARDED = {"guard": "None"}


def partitioned(name: str) -> list[dict[str, Any]]:
    """A machine with one card; its counters stand in a slice of their own, as Kubernetes 1.35 and later want it."""
    return [_node(name), *map(_served, mig_slices(name, apart=True))]


def shareable(name: str) -> list[dict[str, Any]]:
    """A machine with one card that may be in several allocations, by steps of 10Gi."""
    policy = {"default": "10Gi", "validRange": {"min": "10Gi", "max": "80Gi", "step": "10Gi"}}
    device = {
        "name": "gpu-0",
        "attributes": {"type": {"string": "gpu"}},
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}},
    }
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": [device]}
    meta = {"name": f"{name}-shared"}
    return [_node(name), {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}]


def _node(name: str) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    status = {"allocatable": room, "capacity": room}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def _served(made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "metadata": {"name": made["metadata"]["name"]}}


def ordinary(site: Site, name: str, profile: str = "", memory: str = "") -> None:
    """A ResourceClaim that is none of ours, and a pod that uses it."""
    cel = f"device.driver == '{DRIVER}'"
    cel += f" && device.attributes['{DRIVER}'].?profile.orValue('') == '{profile}'" if profile else ""
    if site.get("DeviceClass", site.namespace) is None:
        klass = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": site.namespace}}
        site.create({**klass, "spec": {}})
    exactly: dict[str, Any] = {"deviceClassName": site.namespace, "selectors": [{"cel": {"expression": cel}}]}
    if memory:
        exactly["capacity"] = {"requests": {"memory": memory}}
    site.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
    )
    made = pod(name, "none")
    del made["metadata"]["labels"]
    made["spec"]["nodeSelector"] = {"site": site.namespace}
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    site.create(made)


def results(site: Site, name: str) -> list[dict[str, Any]]:
    """What a ResourceClaim has been allocated."""
    found = site.get("ResourceClaim", name) or {}
    allocation = found.get("status", {}).get("allocation") or {}
    listed: list[dict[str, Any]] = allocation.get("devices", {}).get("results", [])
    return listed


def refused(site: Site, name: str) -> None:
    """Until kube-scheduler has said that there is nothing for a pod, and then for a while."""
    eventually(
        lambda: site.get("Pod", name),
        lambda seen: (
            seen is not None
            and any(each.get("reason") == "Unschedulable" for each in seen.get("status", {}).get("conditions", []))
        ),
        what=f"kube-scheduler has tried pod {name}",
    )
    steadily(lambda: results(site, name), lambda seen: not seen, what=f"nothing for {name}", seconds=2)


def ours(site: Site, *requests: dict[str, Any], name: str = "ours") -> dict[str, Any]:
    """A claim of ours with a pod that runs; what it has."""
    site.ask(name, list(requests))
    site.create(pod(name, name))
    site.wait_running(name)
    return site.wait_phase(name, "InUse")


def test_partitions_of_ours_leave_others_exactly_the_rest_of_the_card(site: Site) -> None:
    """Four slices are ours: kube-scheduler has three more compute parts on the others to give, and no more."""
    site.machines(partitioned)
    site.pool(devices=NAMES, delivery=UNGUARDED)
    claim = ours(site, asking("mig", "4g"))
    assert [device for _, _, device in devices(claim)] == ["gpu-0-mig-4g-0"]
    (held,) = claim["status"]["allocation"]["replicas"][0]["devices"]
    assert held["consumed"]["gpu-0-counter-set"]["multiprocessors"] == 56
    ordinary(site, "fits", "3g")
    site.wait_running("fits")
    assert [each["device"] for each in results(site, "fits")] == ["gpu-0-mig-3g-4"]
    ordinary(site, "none", "1g")
    refused(site, "none")
    counts = eventually(
        lambda: (site.get("DevicePool", site.namespace) or {}).get("status", {}).get("devices", {}),
        lambda seen: seen.get("mig", {}).get("allocated") == 1,
        what="the card counts once",
    )
    assert counts["gpu"]["capacity"] == counts["gpu"]["allocated"] == 1


def test_partitions_of_others_leave_us_exactly_the_rest_of_the_card(site: Site) -> None:
    """kube-scheduler gives the first place of three: four do not fit any more, three do, and a whole card does not."""
    site.machines(partitioned)
    site.pool(devices=NAMES, delivery=UNGUARDED)
    ordinary(site, "theirs", "3g")
    site.wait_running("theirs")
    assert [each["device"] for each in results(site, "theirs")] == ["gpu-0-mig-3g-0"]
    eventually(
        lambda: (site.get("DevicePool", site.namespace) or {}).get("status", {}).get("devices", {}),
        lambda seen: seen.get("gpu", {}).get("allocated") == 1,
        what="the pool has seen it",
    )
    for name, request in (("four", asking("mig", "4g")), ("whole", {"name": "gpu"}), ("two", asking("mig", "3g", 2))):
        site.ask(name, [request])
        claim = eventually(lambda name=name: site.claim(name), reasons, what=f"{name} says why it waits")
        assert claim["status"]["phase"] == "Pending"
    claim = ours(site, asking("mig", "3g"))
    assert [device for _, _, device in devices(claim)] == ["gpu-0-mig-3g-4"]
    ordinary(site, "none", "1g")
    refused(site, "none")


def test_capacity_of_ours_leaves_others_exactly_the_rest(site: Site) -> None:
    """40Gi of 80Gi are ours: kube-scheduler gives 40Gi more, and then nothing."""
    site.machines(shareable)
    site.pool(devices=NAMES, delivery=UNGUARDED)
    share = {"poolRef": {"name": site.namespace}, "device": "gpu", "mode": "Fractional"}
    site.create(
        {
            "apiVersion": "adjoin.dev/v1alpha1",
            "kind": "DeviceShare",
            "metadata": {"name": site.namespace},
            "spec": {**share, "fractional": {"reserve": "0%", "minReserve": "0"}},
        }
    )
    claim = ours(site, {"name": "gpu", "share": {"name": site.namespace, "memory": "40Gi"}})
    assert [device for _, _, device in devices(claim)] == ["gpu-0"]
    (mine,) = [one for one in site.all("ResourceClaim") if one["metadata"]["name"].startswith("adjoin-")]
    (result,) = mine["status"]["allocation"]["devices"]["results"]
    assert result["shareID"]
    assert result["consumedCapacity"] == {"memory": "40Gi"}
    ordinary(site, "fits", memory="31Gi")
    site.wait_running("fits")
    (theirs,) = results(site, "fits")
    assert theirs["consumedCapacity"] == {"memory": "40Gi"}, "rounded up to a step"
    ordinary(site, "none", memory="10Gi")
    refused(site, "none")
