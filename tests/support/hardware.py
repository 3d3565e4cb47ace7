"""Machines as Kubernetes sees them: one Node and the ResourceSlices that DRA drivers publish for it, per model and node
name.

Written from what is known of each machine (`p4d` has eight A100 on four root complexes with one EFA NIC each, and so
on), not captured from one. In comes a node name, out come plain objects as `kubectl get -o json` shows them. Uuids and
MAC addresses are functions of node name and device, so that no two nodes share hardware and every run sees the same.
Nothing here is random and nothing touches a cluster.

Used by tests of every kind and by the demo.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Obj = dict[str, Any]
Model = Callable[[str], list[Obj]]

GPU_DRIVER = "gpu.nvidia.com"
AMD_DRIVER = "gpu.amd.com"
NIC_DRIVER = "dra.net"

_NAMESPACE = uuid.UUID("5b1f3f0a-3f0e-5c55-9d0a-0d9e5d7c2a11")


def stable_uuid(*parts: str) -> str:
    """A uuid that depends on `parts` alone."""
    return str(uuid.uuid5(_NAMESPACE, "/".join(parts)))


def _attribute(value: Any) -> Obj:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if isinstance(value, tuple):
        return {"version": value[0]}
    if isinstance(value, list):
        return {"ints" if isinstance(value[0], int) else "strings": value}
    return {"string": value}


def device(name: str, attributes: Mapping[str, Any], capacity: Mapping[str, str] | None = None) -> Obj:
    """One entry of `spec.devices`: plain values become typed ones; a 1-tuple is a version."""
    entry: Obj = {"name": name, "attributes": {key: _attribute(value) for key, value in attributes.items()}}
    if capacity:
        entry["capacity"] = {key: {"value": value} for key, value in capacity.items()}
    return entry


def resource_slice(
    node: str,
    driver: str,
    devices: Sequence[Obj],
    *,
    generation: int | None = 1,
    of: int = 1,
    number: int = 0,
    pool: str | None = None,
) -> Obj:
    """A ResourceSlice of a node-local pool (named like the node unless said otherwise); `number` of `of`. Generation
    None is left out."""
    pool_name = pool or node
    name = f"{node}-{driver}-{stable_uuid(node, driver, pool_name, str(number))[:5]}"
    described: Obj = {"name": pool_name, "resourceSliceCount": of}
    if generation is not None:
        described["generation"] = generation
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": stable_uuid("slice", name)},
        "spec": {"driver": driver, "nodeName": node, "pool": described, "devices": list(devices)},
    }


def node_object(
    name: str,
    instance_type: str,
    *,
    labels: Mapping[str, str] | None = None,
    extended: Mapping[str, int] | None = None,
    cpu: int = 96,
    memory: str = "1152Gi",
) -> Obj:
    """A Ready Node with room for pods and, with `extended`, resources that a device plugin counts."""
    amounts = {
        "cpu": str(cpu),
        "memory": memory,
        "pods": "250",
        **{key: str(count) for key, count in (extended or {}).items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": stable_uuid("node", name),
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": instance_type,
                **(labels or {}),
            },
        },
        "spec": {},
        "status": {
            "capacity": dict(amounts),
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"bootID": stable_uuid("boot", name), "machineID": stable_uuid("machine", name)},
        },
    }


def config_map(name: str, data: Mapping[str, str], namespace: str = "adjoin-system") -> Obj:
    """A ConfigMap, for topology matrices."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": dict(data),
    }


def nvidia_gpu(
    node: str, index: int, product: str, memory: str, bus: str, root: str, architecture: str, compute: str
) -> Obj:
    """A GPU as NVIDIA's driver publishes it: PCI address and root complex, but no NUMA node."""
    return device(
        f"gpu-{index}",
        {
            "type": "gpu",
            "uuid": f"GPU-{stable_uuid(node, 'gpu', str(index))}",
            "productName": product,
            "brand": "Nvidia",
            "architecture": architecture,
            "cudaComputeCapability": (compute,),
            "cudaDriverVersion": ("13.0.0",),
            "driverVersion": ("580.126.9",),
            "resource.kubernetes.io/pciBusID": bus,
            "resource.kubernetes.io/pcieRoot": root,
        },
        {"memory": memory},
    )


def nic_name(bus: str) -> str:
    """The device name that dranet makes of a PCI address."""
    return "pci-" + bus.replace(":", "-").replace(".", "-")


def rdma_nic(
    bus: str,
    rdma_device: str,
    *,
    root: str | None,
    numa: int,
    vendor: str,
    product: str,
    extra: Mapping[str, Any] | None = None,
) -> Obj:
    """A NIC with an RDMA device and no network interface of its own."""
    attributes: dict[str, Any] = {
        "dra.net/pciAddress": bus,
        "dra.net/pciVendor": vendor,
        "dra.net/pciDevice": product,
        "dra.net/rdma": True,
        "dra.net/rdmaDevice": rdma_device,
        "dra.net/numaNode": numa,
        **(extra or {}),
    }
    if root is not None:
        attributes["resource.kubernetes.io/pcieRoot"] = root
    return device(nic_name(bus), attributes)


def ethernet_nic(node: str, bus: str, interface: str, *, root: str, numa: int) -> Obj:
    """An ordinary network card: it sits on the same roots as its RDMA neighbours and has no RDMA device."""
    tail = stable_uuid(node, bus).replace("-", "")
    return device(
        nic_name(bus),
        {
            "dra.net/ifName": interface,
            "dra.net/mac": "02:" + ":".join(tail[i : i + 2] for i in range(0, 10, 2)),
            "dra.net/mtu": 9001,
            "dra.net/encapsulation": "ether",
            "dra.net/state": "up",
            "dra.net/type": "device",
            "dra.net/virtual": False,
            "dra.net/pciAddress": bus,
            "dra.net/pciVendor": "Amazon.com, Inc.",
            "dra.net/pciDevice": "Elastic Network Adapter (ENA)",
            "dra.net/rdma": False,
            "dra.net/numaNode": numa,
            "resource.kubernetes.io/pcieRoot": root,
        },
    )


def _efa(bus: str, rdma_device: str, root: str, numa: int) -> Obj:
    return rdma_nic(
        bus, rdma_device, root=root, numa=numa, vendor="Amazon.com, Inc.", product="Elastic Fabric Adapter (EFA)"
    )


def _mellanox(
    bus: str, rdma_device: str, root: str | None, numa: int, product: str, extra: Mapping[str, Any] | None = None
) -> Obj:
    return rdma_nic(
        bus, rdma_device, root=root, numa=numa, vendor="Mellanox Technologies", product=product, extra=extra
    )


def p4d(node: str = "p4d-0") -> list[Obj]:
    """AWS p4d.24xlarge: 8 A100 40 GB, two on each of the root complexes 10, 20, 90 and a0; one EFA NIC a root (RDMA),
    and one ENA NIC a root that is no RDMA device. GPUs publish no NUMA node; NICs say 0, 0, 1, 1."""
    gpus, nics = [], []
    for position, (root, numa, ena) in enumerate((("10", 0, "00"), ("20", 0, "01"), ("90", 1, "01"), ("a0", 1, "01"))):
        complex_name = f"pci0000:{root}"
        for slot, bus in enumerate((f"0000:{root}:1c.0", f"0000:{root}:1d.0")):
            index = 2 * position + slot
            gpus.append(nvidia_gpu(node, index, "NVIDIA A100-SXM4-40GB", "40Gi", bus, complex_name, "Ampere", "8.0.0"))
        nics.append(
            ethernet_nic(node, f"0000:{root}:{ena}.0", f"ens{32 * (position + 1)}", root=complex_name, numa=numa)
        )
        nics.append(_efa(f"0000:{root}:1b.0", f"rdmap{int(root, 16)}s27", complex_name, numa))
    return [
        node_object(node, "p4d.24xlarge", cpu=96, memory="1152Gi"),
        resource_slice(node, GPU_DRIVER, gpus),
        resource_slice(node, NIC_DRIVER, nics),
    ]


def p5(node: str = "p5-0") -> list[Obj]:
    """AWS p5.48xlarge: 8 H100 80 GB, each on a root complex of its own together with four EFA NICs (32 in all) and four
    ENA NICs."""
    gpus, nics = [], []
    for index, (root, first_ena, first_efa, gpu_bus) in enumerate(
        (
            (0x44, 0x47, 0x4F, 0x53),
            (0x55, 0x58, 0x60, 0x64),
            (0x66, 0x69, 0x71, 0x75),
            (0x77, 0x7A, 0x82, 0x86),
            (0x88, 0x8C, 0x93, 0x97),
            (0x99, 0x9C, 0xA4, 0xA8),
            (0xAA, 0xAD, 0xB5, 0xB9),
            (0xBB, 0xBE, 0xC6, 0xCA),
        )
    ):
        complex_name, numa = f"pci0000:{root:02x}", index // 4
        gpus.append(
            nvidia_gpu(
                node,
                index,
                "NVIDIA H100 80GB HBM3",
                "80Gi",
                f"0000:{gpu_bus:02x}:00.0",
                complex_name,
                "Hopper",
                "9.0.0",
            )
        )
        for port in range(4):
            ena, efa = first_ena + port, first_efa + port
            nics.append(ethernet_nic(node, f"0000:{ena:02x}:00.0", f"enp{ena}s0", root=complex_name, numa=numa))
            nics.append(_efa(f"0000:{efa:02x}:00.0", f"rdmap{efa}s0", complex_name, numa))
    return [
        node_object(node, "p5.48xlarge", cpu=192, memory="2048Gi"),
        resource_slice(node, GPU_DRIVER, gpus),
        resource_slice(node, NIC_DRIVER, nics),
    ]


def dgx_h100(node: str = "dgx-h100-0") -> list[Obj]:
    """NVIDIA DGX H100: 8 H100 and 8 ConnectX-7 in pairs behind PCIe switches, all GPUs joined by NVLink, two NUMA nodes
    of four pairs.

    Drivers publish no switch, so that only `dgx_h100_matrix()` tells which NIC is behind which GPU's switch: every pair
    has a root complex of its own here, as on the machine.
    """
    gpus, nics = [], []
    for index, bus in enumerate((0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)):
        complex_name, numa = f"pci0000:{bus - 3:02x}", index // 4
        gpus.append(
            nvidia_gpu(
                node, index, "NVIDIA H100 80GB HBM3", "80Gi", f"0000:{bus:02x}:00.0", complex_name, "Hopper", "9.0.0"
            )
        )
        nics.append(
            _mellanox(f"0000:{bus - 1:02x}:00.0", f"mlx5_{index}", complex_name, numa, "MT2910 Family [ConnectX-7]")
        )
    return [
        node_object(node, "dgx-h100", labels={"shape": "dgx-h100"}, cpu=224, memory="2048Gi"),
        resource_slice(node, GPU_DRIVER, gpus),
        resource_slice(node, NIC_DRIVER, nics),
    ]


def dgx_h100_matrix() -> str:
    """What `nvidia-smi topo -m` says there: GPU i and NIC i behind one switch (PIX), NV18 between all GPUs."""
    names = [f"GPU{i}" for i in range(8)] + [f"NIC{i}" for i in range(8)]

    def cell(row: int, column: int) -> str:
        if row == column:
            return " X "
        if row < 8 and column < 8:
            return "NV18"
        if row % 8 == column % 8:
            return "PIX"
        return "NODE" if row % 8 // 4 == column % 8 // 4 else "SYS"

    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for row, name in enumerate(names):
        cells = [name, *(cell(row, column) for column in range(16))]
        if row < 8:
            half = row // 4
            cells += [f"{56 * half}-{56 * half + 55},{112 + 56 * half}-{167 + 56 * half}", str(half), "N/A"]
        lines.append("\t".join(cells))
    legend = ["", "NIC Legend:", "", *(f"  NIC{i}: mlx5_{i}" for i in range(8)), ""]
    return "\n".join(lines + legend)


def dgx_h100_gpu_rows() -> str:
    """The PCI address of each GPU row of `dgx_h100_matrix()`, for the ConfigMap key `<key>.gpus`."""
    return "".join(f"0000:{bus:02x}:00.0\n" for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF))


def gb200(node: str = "gb200-0") -> list[Obj]:
    """OCI GB200: 4 GPUs and 8 ConnectX-8. GPUs and NICs sit on root complexes of different PCI domains, so that
    pcieRoot never matches, and GPUs publish no NUMA node: their neighbourhood is not known from the slices."""
    gpus = [
        nvidia_gpu(
            node, index, "NVIDIA GB200", "189471Mi", f"{domain}:01:00.0", f"pci{domain}:00", "Blackwell", "10.0.0"
        )
        for index, domain in enumerate(("0008", "0009", "0018", "0019"))
    ]
    fabric = {
        "oke.dra.net/hpcIslandId": "island-1",
        "oke.dra.net/networkBlockId": "block-1",
        "oke.dra.net/rackId": "rack-1",
    }
    nics = [
        _mellanox(
            f"{domain}:0{3 + port}:00.0",
            f"mlx5_{2 * position + port}",
            f"pci{domain}:00",
            position // 2,
            "MT4131 Family [ConnectX-8]",
            {"dra.net/ifName": f"rdma{2 * position + port}", **fabric},
        )
        for position, domain in enumerate(("0000", "0002", "0010", "0012"))
        for port in range(2)
    ]
    return [
        node_object(node, "BM.GPU.GB200-v3.4", cpu=144, memory="1024Gi"),
        resource_slice(node, GPU_DRIVER, gpus),
        resource_slice(node, NIC_DRIVER, nics),
    ]


def gb300(node: str = "gb300-0") -> list[Obj]:
    """Azure ND GB300 v6: 4 GPUs with a root complex and no NUMA node, 4 InfiniBand functions with a NUMA node and no
    root complex; pools carry no generation."""
    gpus = [
        nvidia_gpu(
            node, index, "NVIDIA GB300", "284208Mi", f"{domain}:06:00.0", f"pci{domain}:00", "Blackwell", "10.3.0"
        )
        for index, domain in enumerate(("0008", "0009", "0018", "0019"))
    ]
    azure = {
        "azure.dra.net/placementGroupId": stable_uuid("placement"),
        "azure.dra.net/vmSize": "Standard_ND128isr_GB300_v6",
    }
    nics = [
        _mellanox(
            f"010{index + 1}:00:00.0",
            f"mlx5_{index}",
            None,
            index // 2,
            "ConnectX Family mlx5Gen Virtual Function",
            azure,
        )
        for index in range(4)
    ]
    return [
        node_object(node, "Standard_ND128isr_GB300_v6", cpu=128, memory="900Gi"),
        resource_slice(node, GPU_DRIVER, gpus, generation=None),
        resource_slice(node, NIC_DRIVER, nics, generation=None),
    ]


def mi300x(node: str = "mi300x-0") -> list[Obj]:
    """Azure ND MI300X v5: 8 GPUs of another vendor that tell root complex and NUMA node by keys of their own, 8
    InfiniBand functions that tell a NUMA node and no root complex."""
    gpus = [
        device(
            f"gpu-{index}-{128 + index}",
            {
                "type": "amdgpu",
                "cardIndex": index,
                "renderIndex": 128 + index,
                "productName": "AMD_Instinct_MI300X_VF",
                "family": "AI",
                "partitionProfile": "spx_nps1",
                "pciAddr": f"000{index + 1}:00:00.0",
                "numaNode": index // 4,
                "resource.kubernetes.io/pcieRoot": f"pci000{index + 1}:00",
            },
            {"memory": "196592Mi", "computeUnits": "304", "simdUnits": "1216"},
        )
        for index in range(8)
    ]
    azure = {
        "azure.dra.net/placementGroupId": stable_uuid("placement"),
        "azure.dra.net/vmSize": "Standard_ND96isr_MI300X_v5",
    }
    nics = [
        _mellanox(
            f"010{index + 1}:00:00.0",
            f"mlx5_{index}",
            None,
            index // 4,
            "ConnectX Family mlx5Gen Virtual Function",
            azure,
        )
        for index in range(8)
    ]
    return [
        node_object(node, "Standard_ND96isr_MI300X_v5", cpu=96, memory="1850Gi"),
        resource_slice(node, AMD_DRIVER, gpus),
        resource_slice(node, NIC_DRIVER, nics),
    ]


def two_roots(node: str = "two-roots-0") -> list[Obj]:
    """A small machine for tests: roots 10 and 20, on each two GPUs and one RDMA NIC; the second root has a card without
    RDMA too."""
    gpus = [
        nvidia_gpu(
            node, index, "NVIDIA A100-SXM4-40GB", "40Gi", f"0000:{root}:{slot}.0", f"pci0000:{root}", "Ampere", "8.0.0"
        )
        for index, (root, slot) in enumerate((("10", "1c"), ("10", "1d"), ("20", "1c"), ("20", "1d")))
    ]
    nics = [
        _efa("0000:10:1b.0", "rdmap16s27", "pci0000:10", 0),
        ethernet_nic(node, "0000:20:01.0", "ens65", root="pci0000:20", numa=1),
        _efa("0000:20:1b.0", "rdmap32s27", "pci0000:20", 1),
    ]
    return [
        node_object(node, "two-roots", cpu=32, memory="256Gi"),
        resource_slice(node, GPU_DRIVER, gpus),
        resource_slice(node, NIC_DRIVER, nics),
    ]


MODELS: Mapping[str, Model] = {
    "p4d.24xlarge": p4d,
    "p5.48xlarge": p5,
    "dgx-h100": dgx_h100,
    "gb200": gb200,
    "gb300": gb300,
    "mi300x": mi300x,
    "two-roots": two_roots,
}
"""Every machine by the name that people call it."""


def fleet(model: Model, count: int, prefix: str) -> list[Obj]:
    """`count` machines of one model, named `<prefix>-<number>`."""
    return [obj for number in range(count) for obj in model(f"{prefix}-{number}")]


def of_kind(objects: Iterable[Obj], kind: str) -> list[Obj]:
    """Those of `objects` that are of that kind."""
    return [obj for obj in objects if obj["kind"] == kind]
