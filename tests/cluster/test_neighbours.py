"""What a claim gets on a real control plane: neighbouring devices, or a reason with numbers."""

from __future__ import annotations

import pytest
from tests.support import hardware
from tests.support.site import NEAR, Site, devices, pod, reasons
from tests.support.waiting import eventually, steadily

pytestmark = pytest.mark.cluster

PREFERRED = [{**NEAR[0], "policy": "Preferred"}]


def roots(site: Site) -> dict[tuple[str, str], str]:
    """PCIe root of each device of this site's machines, as the slices say."""
    return {
        (piece["spec"]["nodeName"], device["name"]): device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"]
        for piece in site.all("ResourceSlice")
        if piece["spec"]["nodeName"].startswith(f"{site.namespace}-")
        for device in piece["spec"]["devices"]
        if "resource.kubernetes.io/pcieRoot" in device["attributes"]
    }


def rdma(site: Site) -> set[tuple[str, str]]:
    """The devices of this site's machines that are RDMA NICs."""
    return {
        (piece["spec"]["nodeName"], device["name"])
        for piece in site.all("ResourceSlice")
        for device in piece["spec"]["devices"]
        if device["attributes"].get("dra.net/rdma", {}).get("bool") is True
    }


def test_four_pairs_fit_on_a_p4d_each_local_and_the_fifth_says_what_is_missing(site: Site) -> None:
    """Four RDMA NICs, so four pairs, each on one PCIe root and never with an ENA NIC; the fifth waits with counts."""
    site.machines(hardware.p4d)
    site.pool()
    for i in range(4):
        site.ask(f"pair-{i}", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
        site.create(pod(f"pair-{i}", f"pair-{i}"))
    where, nics = roots(site), rdma(site)
    for i in range(4):
        site.wait_running(f"pair-{i}")
        claim = site.wait_phase(f"pair-{i}", "InUse")
        held = {request: (node, device) for request, node, device in devices(claim)}
        assert held["nic"] in nics
        assert where[held["gpu"]] == where[held["nic"]]
        assert claim["status"]["allocation"]["gap"] == 0
        assert site.get("Pod", f"pair-{i}")["spec"]["nodeName"] == held["gpu"][0]  # type: ignore[index]
    for policy, affinity in (("required", list(NEAR)), ("preferred", PREFERRED)):
        site.ask(f"fifth-{policy}", {"gpu": 1, "nic": 1}, affinity=affinity)
        claim = eventually(
            lambda name=f"fifth-{policy}": site.claim(name), reasons, what=f"the fifth ({policy}) says why it waits"
        )
        assert claim["status"]["phase"] == "Pending"
        assert list(reasons(claim)) == ["InsufficientDevices"]
        assert "nic" in reasons(claim)["InsufficientDevices"]
        assert "0" in reasons(claim)["InsufficientDevices"]


def test_eight_claims_for_a_gpu_alone_fit_on_a_p4d(site: Site) -> None:
    """Without a NIC nothing but the number of GPUs limits."""
    site.machines(hardware.p4d)
    site.pool()
    for i in range(8):
        site.ask(f"gpu-{i}", {"gpu": 1})
    held = {device for i in range(8) for _, _, device in devices(site.wait_phase(f"gpu-{i}", "Ready"))}
    assert len(held) == 8


@pytest.mark.parametrize(
    ("scope", "code"),
    [
        pytest.param("PCIeRoot", "TopologyUnsatisfied", id="roots are known and never equal"),
        pytest.param("PCIeSwitch", "TopologyUnknown", id="nobody publishes a switch"),
        pytest.param("NUMANode", "TopologyUnknown", id="the GPUs publish no NUMA node"),
    ],
)
def test_gb200_waits_with_the_true_reason_and_says_that_the_node_would_do(site: Site, scope: str, code: str) -> None:
    """Unknown is never equal to unknown, and what would fit is said."""
    site.machines(hardware.gb200)
    site.pool()
    site.ask("pair", {"gpu": 1, "nic": 1}, affinity=[{**NEAR[0], "scope": scope}])
    claim = eventually(lambda: site.claim("pair"), reasons, what="a reason")
    assert claim["status"]["phase"] == "Pending"
    assert list(reasons(claim)) == [code]
    assert claim["status"]["nearest"] == f"fits with scope Node instead of {scope}"


def test_eight_gpus_and_thirty_two_nics_reach_one_pod(site: Site) -> None:
    """Forty devices do not fit into one ResourceClaim (32 results): the pod gets as many as it takes."""
    site.machines(hardware.p5)
    site.pool()
    site.ask("whole", {"gpu": 8, "nic": 32}, affinity=list(NEAR))
    site.create(pod("whole", "whole"))
    site.wait_running("whole")
    claim = site.wait_phase("whole", "InUse")
    assert len(devices(claim)) == 40
    delivered = [
        (result["driver"], result["device"])
        for one in site.all("ResourceClaim")
        for result in one["status"]["allocation"]["devices"]["results"]
    ]
    assert len(delivered) == len(set(delivered)) == 40
    assert len(site.all("ResourceClaim")) == 2


def test_a_pod_runs_only_on_the_node_of_its_devices(site: Site) -> None:
    """Affinity of the pod's own stays; the node of the devices is added to it."""
    site.machines(hardware.two_roots, 3)
    site.pool()
    site.ask("pair", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    made = pod("pair", "pair")
    own = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    made["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [own]}]}
        }
    }
    site.create(made)
    seen = site.wait_running("pair")
    node = site.wait_phase("pair", "InUse")["status"]["allocation"]["replicas"][0]["node"]
    assert seen["spec"]["nodeName"] == node
    required = seen["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert own in term["matchExpressions"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": [node]}]


def test_an_ordinary_claim_never_gets_a_device_of_a_pool(site: Site) -> None:
    """The guard keeps kube-scheduler off: an ordinary ResourceClaim for free devices of the pool stays unallocated."""
    site.machines(hardware.two_roots)
    site.pool()
    name = f"any-{site.namespace}"
    node = f"{site.namespace}-n0"
    site.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
        }
    )
    site.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "ordinary"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": name}}]}},
        }
    )
    made = pod("ordinary", "none")
    del made["metadata"]["labels"]
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "ordinary"}]
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    site.create(made)
    eventually(
        lambda: site.get("Pod", "ordinary"),
        lambda seen: any(
            c["type"] == "PodScheduled" and c["status"] == "False" for c in seen["status"].get("conditions", [])
        ),
        what="kube-scheduler has tried",
    )
    steadily(
        lambda: site.get("ResourceClaim", "ordinary"),
        lambda seen: not seen.get("status", {}).get("allocation"),
        what="no allocation",
        seconds=2,
    )
