"""Plans on machines as people have them: p4d.24xlarge, GB200, GB300, MI300X, p5, DGX H100.

Each runs on the hardware models; where slices captured on such a machine are at hand, on those too.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.support import hardware
from tests.support.objects import deviceclaim, devicepool
from tests.support.planning import Ran, plan_objects
from tests.support.shared import needs_shared, shared

GPU, NIC = "gpu.nvidia.com", "dra.net"
ROOT = "resource.kubernetes.io/pcieRoot"


def pool(driver: str = GPU, **fields: Any) -> dict[str, Any]:
    rdma = [{"cel": "device.attributes['dra.net'].rdma == true"}]
    topology = {
        "attributes": {"pcieRoot": [ROOT], "numaNode": ["resource.kubernetes.io/numaNode", "dra.net/numaNode"]},
        **fields,
    }
    return devicepool(
        devices=[
            {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": driver}}},
            {"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": NIC, "selectors": rdma}}},
        ],
        spec={"topology": topology},
    )


def pair(name: str = "job-a", scope: str = "PCIeRoot", policy: str = "Required", **fields: Any) -> dict[str, Any]:
    line = {"requests": ["gpu", "nic"], "scope": scope, "policy": policy}
    return deviceclaim(name, requests={"gpu": 1, "nic": 1}, affinity=[line], **fields)


def captured(*files: str) -> list[Any]:
    """Objects captured on a real machine."""
    return [obj for file in files for obj in yaml.safe_load_all(shared(f"data/slices/{file}").read_text()) if obj]


def devices_of(objects: list[Any]) -> dict[str, dict[str, Any]]:
    """Published devices by name, lists unpacked."""
    found: dict[str, dict[str, Any]] = {}
    for obj in objects:
        for each in obj["items"] if obj["kind"] == "List" else [obj]:
            if each["kind"] == "ResourceSlice":
                found |= {device["name"]: device for device in each["spec"]["devices"]}
    return found


MODEL = pytest.param(lambda: hardware.p4d("n1"), id="model")
CAPTURED = pytest.param(
    lambda: captured("aws_p4d_a100_gpu.yaml", "aws_p4d_a100_dranet.yaml"), id="captured", marks=needs_shared
)


@pytest.mark.parametrize("machine", [MODEL, CAPTURED])
class TestP4d:
    def roots(self, ran: Ran, machine: list[Any], claim: str) -> tuple[str, str, bool]:
        """Root complexes of the GPU and the NIC that a claim got, and whether the NIC does RDMA."""
        published = devices_of(machine)
        (gpu,), (nic,) = (ran.devices(claim)[request] for request in ("gpu", "nic"))
        roots = [published[name]["attributes"][ROOT]["string"] for name in (gpu, nic)]
        return roots[0], roots[1], published[nic]["attributes"]["dra.net/rdma"]["bool"]

    def test_a_pair_shares_its_root_complex_and_never_gets_an_ena_nic(self, machine: Any) -> None:
        objects = machine()
        ran = plan_objects([pool(), *objects, *(pair(f"c{i}") for i in range(4))])
        assert ran.status == 0
        found = [self.roots(ran, objects, f"c{i}") for i in range(4)]
        assert all(gpu == nic and rdma for gpu, nic, rdma in found)
        assert len({gpu for gpu, _, _ in found}) == 4
        assert all(ran.claims[f"c{i}"]["replicas"][0]["locality"] == {"gpu-nic": "PHB"} for i in range(4))
        assert all(ran.claims[f"c{i}"]["gap"] == 0.0 for i in range(4))

    @pytest.mark.parametrize("policy", ["Required", "Preferred"])
    def test_the_fifth_waits_for_nics_and_says_how_many(self, machine: Any, policy: str) -> None:
        ran = plan_objects([pool(), *machine(), *(pair(f"c{i}", policy=policy) for i in range(5))])
        assert ran.status == 3
        assert [claim["phase"] for claim in ran.shown["claims"]] == ["Allocated"] * 4 + ["Pending"]
        assert ran.codes("c4") == ["InsufficientDevices"]
        assert ran.claims["c4"]["reasons"][0]["message"].startswith("needs 1 nic, 0 of 4 free")
        assert ran.counts("training", "nic") == {
            "capacity": 4, "free": 0, "allocated": 4, "reserved": 0, "releasing": 0, "unhealthy": 0, "missing": 0,
        }  # fmt: skip

    def test_eight_gpus_alone_fit_and_the_ninth_does_not(self, machine: Any) -> None:
        ran = plan_objects([pool(), *machine(), *(deviceclaim(f"c{i}") for i in range(9))])
        assert [claim["phase"] for claim in ran.shown["claims"]] == ["Allocated"] * 8 + ["Pending"]
        assert ran.codes("c8") == ["InsufficientDevices"]

    def test_two_gpus_and_their_nic_four_times(self, machine: Any) -> None:
        line = {"requests": ["gpu", "nic"], "scope": "PCIeRoot", "policy": "Required"}
        claims = [deviceclaim(f"c{i}", requests={"gpu": 2, "nic": 1}, affinity=[line]) for i in range(4)]
        assert plan_objects([pool(), *machine(), *claims]).status == 0


@needs_shared
def test_an_allocation_captured_on_the_machine_blocks_its_devices() -> None:
    files = ("aws_p4d_a100_gpu.yaml", "aws_p4d_a100_dranet.yaml", "aws_p4d_resourceclaim_allocated.yaml")
    ran = plan_objects([pool(), *captured(*files), *(pair(f"c{i}") for i in range(4))])
    assert [claim["phase"] for claim in ran.shown["claims"]] == ["Allocated"] * 3 + ["Pending"]
    used = [name for i in range(3) for names in ran.devices(f"c{i}").values() for name in names]
    assert "gpu-6" not in used
    assert "pci-0000-a0-1b-0" not in used
    assert ran.counts("training", "gpu")["allocated"] == 4


class TestGb200:
    """GPUs and NICs never share a root complex, and GPUs tell no NUMA node."""

    @pytest.mark.parametrize(
        ("scope", "code"),
        [
            pytest.param("PCIeRoot", "TopologyUnsatisfied", id="known and different"),
            pytest.param("PCIeSwitch", "TopologyUnknown", id="nobody publishes a switch"),
            pytest.param("NUMANode", "TopologyUnknown", id="the GPUs' NUMA nodes are not known"),
        ],
    )
    def test_a_required_scope_waits_and_nearest_is_the_node(self, scope: str, code: str) -> None:
        ran = plan_objects([pool(), *hardware.gb200("n1"), pair(scope=scope)])
        assert ran.status == 3
        assert ran.codes("job-a") == [code]
        assert ran.claims["job-a"]["nearest"] == f"fits with scope Node instead of {scope}"
        assert ran.claims["job-a"]["reasons"][0]["nodes"] == 1

    def test_preferred_is_placed_and_tells_what_it_reached(self) -> None:
        ran = plan_objects([pool(), *hardware.gb200("n1"), pair(policy="Preferred")])
        assert ran.claims["job-a"]["replicas"][0]["locality"] == {"gpu-nic": "SYS"}

    def test_the_scope_node_is_always_met(self) -> None:
        assert plan_objects([pool(), *hardware.gb200("n1"), pair(scope="Node")]).status == 0

    def test_where_another_machine_can_it_is_chosen(self) -> None:
        ran = plan_objects([pool(), *hardware.gb200("a"), *hardware.p4d("b"), pair()])
        assert ran.claims["job-a"]["replicas"][0]["node"] == "b"


GB300_CAPTURED = pytest.param(
    lambda: captured("azure_gb300_gpu.yaml", "azure_gb300_dranet.yaml"), id="captured", marks=needs_shared
)


@pytest.mark.parametrize("policy", ["Required", "Preferred"])
def test_p4d_keeps_a_pair_on_each_root_complex_while_singles_come_first(policy: str) -> None:
    singles = [
        deviceclaim(f"single-{at}", requests={"gpu": 1}, creationTimestamp=f"2026-01-01T00:00:0{at}Z")
        for at in range(4)
    ]
    pairs = [pair(f"pair-{at}", policy=policy, creationTimestamp=f"2026-01-01T00:01:0{at}Z") for at in range(4)]
    ran = plan_objects([pool(), *hardware.p4d("n1"), *singles, *pairs])
    assert {claim["phase"] for claim in ran.shown["claims"]} == {"Allocated"}
    assert {ran.claims[f"pair-{at}"]["replicas"][0]["locality"]["gpu-nic"] for at in range(4)} == {"PHB"}


@pytest.mark.parametrize("machine", [pytest.param(lambda: hardware.gb300("n1"), id="model"), GB300_CAPTURED])
def test_gb300_tells_a_root_complex_of_gpus_only(machine: Any) -> None:
    """A pool of slices without a generation is read; unknown never equals known, nor unknown."""
    ran = plan_objects([pool(), *machine(), pair()])
    assert ran.codes("job-a") == ["TopologyUnknown"]
    assert ran.counts("training", "nic")["capacity"] == 4
    assert plan_objects([pool(), *machine(), deviceclaim(requests={"gpu": 4, "nic": 4})]).status == 0


def test_mi300x_is_matched_by_a_key_of_its_own_driver() -> None:
    """GPUs tell their NUMA node by a key of their driver, NICs by another; the pool says that both mean one thing."""
    keys = {"numaNode": ["gpu.amd.com/numaNode", "dra.net/numaNode"]}
    objects = [pool("gpu.amd.com", attributes=keys), *hardware.mi300x("n1")]
    line = {"requests": ["gpu", "nic"], "scope": "NUMANode", "policy": "Required"}
    ran = plan_objects([*objects, deviceclaim(requests={"gpu": 4, "nic": 4}, affinity=[line])])
    assert ran.status == 0
    assert ran.claims["job-a"]["replicas"][0]["locality"]["gpu-nic"] == "NODE"


def test_p5_gives_a_whole_machine_with_every_nic_beside_its_gpu() -> None:
    line = {"requests": ["gpu", "nic"], "scope": "PCIeRoot", "policy": "Required"}
    claims = [deviceclaim(f"c{i}", requests={"gpu": 8, "nic": 32}, affinity=[line]) for i in range(2)]
    ran = plan_objects([pool(), *hardware.p5("n1"), *claims])
    assert [claim["phase"] for claim in ran.shown["claims"]] == ["Allocated", "Pending"]
    assert [len(names) for names in ran.devices("c0").values()] == [8, 32]
    assert ran.claims["c0"]["replicas"][0]["locality"]["gpu-nic"] == "PHB"


class TestDgx:
    LINE = {"requests": ["gpu", "nic"], "scope": "PCIeSwitch", "policy": "Required"}  # noqa: RUF012

    def plan(self, *matrices: Any, count: int = 8) -> Ran:
        entries = [{"configMapRef": {"name": "dgx-h100", "key": "topo"}}]
        claim = deviceclaim(requests={"gpu": count, "nic": count}, affinity=[self.LINE])
        return plan_objects([pool(matrices=entries), *hardware.dgx_h100("n1"), *matrices, claim])

    def test_the_matrix_tells_the_switches(self) -> None:
        data = {"topo": hardware.dgx_h100_matrix(), "topo.gpus": hardware.dgx_h100_gpu_rows()}
        ran = self.plan(hardware.config_map("dgx-h100", data))
        assert ran.status == 0
        assert ran.claims["job-a"]["replicas"][0]["locality"]["gpu-nic"] == "PIX"
        assert ran.claims["job-a"]["replicas"][0]["locality"]["gpu-gpu"] == "NVLink"

    def test_without_the_matrix_a_switch_is_unknown_and_a_root_would_fit(self) -> None:
        ran = self.plan(count=1)
        assert ran.codes("job-a") == ["TopologyUnknown"]
        assert "PCIeRoot" in ran.claims["job-a"]["nearest"]
        assert "TopologyMismatch" in ran.err

    def test_a_matrix_of_another_machine_is_not_used(self) -> None:
        matrix = "\n".join(line for line in hardware.dgx_h100_matrix().splitlines() if not line.startswith("GPU7"))
        ran = self.plan(hardware.config_map("dgx-h100", {"topo": matrix}), count=1)
        assert ran.codes("job-a") == ["TopologyUnknown"]
        assert "TopologyMismatch" in ran.err


def test_models_share_no_hardware_between_nodes() -> None:
    for model in hardware.MODELS.values():
        uuids = [
            device["attributes"]["uuid"]["string"]
            for name in ("a", "b")
            for device in devices_of(model(name)).values()
            if "uuid" in device["attributes"]
        ]
        assert len(set(uuids)) == len(uuids)
        assert model("a") == model("a")
