"""Which row of a matrix stands for which device: identity first, order only where it cannot be wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.topologies import HWLOC, NCCL

from adjoin_allocator.cel import AttributeValue
from adjoin_allocator.formats import read_topology
from adjoin_allocator.model import Device, DeviceID
from adjoin_allocator.pci import pci_address
from adjoin_allocator.rows import Misfit, match_rows, needs_uuid, sight
from adjoin_allocator.terms import DeviceType, Standing
from adjoin_allocator.topology import DEFAULT_KEYS

PCI = "resource.kubernetes.io/pciBusID"
RDMA_DEVICE = "dra.net/rdmaDevice"


def gpu(name: str, hardware_id: str = "", driver: str = "gpu.nvidia.com", **attributes: AttributeValue) -> Device:
    return _device(name, DeviceType.GPU, driver, hardware_id, attributes)


def nic(name: str, driver: str = "dra.net", **attributes: AttributeValue) -> Device:
    return _device(name, DeviceType.RDMA, driver, "", attributes)


def _device(
    name: str, kind: DeviceType, driver: str, hardware_id: str, attributes: dict[str, AttributeValue]
) -> Device:
    """Attributes are given as keywords: `pci` is the standard key, others belong to the driver."""
    names = {"pci": PCI}
    qualified = {names.get(key, f"{driver}/{key}"): value for key, value in attributes.items()}
    return Device(
        DeviceID(driver, "n1", name), "n1", "pool", "x", kind, hardware_id or f"n1/{name}", qualified, {}
    )  # fmt: skip


def text(gpus: int, nics: int, legend: Sequence[str] = ()) -> str:
    """A matrix in which all pairs are SYS."""
    names = [f"GPU{index}" for index in range(gpus)] + [f"NIC{index}" for index in range(nics)]
    lines = ["\t".join(["", *names])]
    lines += ["\t".join([row, *("X" if row == column else "SYS" for column in names)]) for row in names]
    return "\n".join([*lines, "", "NIC Legend:", *(f"  NIC{index}: {name}" for index, name in enumerate(legend))])


def rows(
    matrix: str, beside: Sequence[Device], own: Sequence[Device] | None = None, gpu_ids: tuple[str, ...] = ()
) -> list[int] | str:
    """The rows of `own` (everything unless given), or the message that says why there are none."""
    keys = DEFAULT_KEYS["pciBusID"]
    sightings = [sight(device, keys, with_uuid=needs_uuid(gpu_ids)) for device in beside]
    places = [beside.index(device) for device in (beside if own is None else own)]
    found = match_rows(read_topology(matrix), gpu_ids, sightings, places)
    return found.message if isinstance(found, Misfit) else list(found)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(
            [gpu("gpu-0", pci="0000:b7:00.0"), gpu("gpu-1", pci="0000:07:00.0"), gpu("gpu-2", pci="0000:47:00.0")],
            [2, 0, 1],
            id="GPUs by PCI address, not by name",
        ),
        pytest.param(
            [gpu("a", pci="0001:01:00.0"), gpu("b", pci="0000:ff:00.0"), gpu("c", pci="ff:01.0")],
            [2, 0, 1],
            id="PCI addresses compare as numbers, an absent domain is 0",
        ),
        pytest.param([gpu("a", minor=2), gpu("b", minor=0), gpu("c", minor=10)], [1, 0, 2], id="GPUs by minor number"),
        pytest.param([gpu("a", index=2), gpu("b", index=0), gpu("c", index=1)], [2, 0, 1], id="GPUs by index"),
        pytest.param(
            [gpu("a", pci="0000:01:00.0", minor=1), gpu("b", minor=0), gpu("c", pci="0000:02:00.0", minor=2)],
            [1, 0, 2],
            id="PCI addresses count only when all GPUs have one",
        ),
        pytest.param([gpu("g10"), gpu("g9"), gpu("g2")], [2, 1, 0], id="GPUs by name in natural order"),
    ],
)
def test_order_of_gpus(devices: list[Device], expected: list[int]) -> None:
    assert rows(text(3, 0), devices) == expected
    turned = devices[::-1]
    assert rows(text(3, 0), turned) == expected[::-1]


def test_devices_that_cannot_be_given_out_still_have_their_row() -> None:
    devices = [gpu(f"g{index}") for index in range(4)]
    kept_back = [
        Device(d.id, d.node, "other-pool", d.kind, d.type, d.hardware_id, d.attributes, d.capacity, standing=standing)
        for d, standing in zip(devices[:3], (Standing.MISSING, Standing.UNHEALTHY, Standing.OFFERED), strict=True)
    ]
    beside = [*kept_back, devices[3]]
    assert rows(text(4, 0), beside, own=[devices[3]]) == [3]
    assert rows(text(4, 0), [devices[3]]) == "the matrix has 4 GPU rows, the node has 1 GPU in all pools"


def test_a_vanished_gpu_keeps_its_place_by_the_address_it_is_known_by() -> None:
    """It has no attributes any more; its hardware id says where it sat."""
    gone = gpu("g3", "0000:8d:00.0")
    here = [gpu(f"g{index}", pci=f"0000:{bus}:00.0") for index, bus in enumerate(("90", "8f", "8e"))]
    assert rows(text(4, 0), [*here, gone]) == [3, 2, 1, 0]


def test_where_only_some_tell_their_place_there_is_no_order() -> None:
    """Falling back to names would shift every row after the silent device."""
    silent = gpu("g3", "GPU-3")
    here = [gpu(f"g{index}", pci=f"0000:{bus}:00.0") for index, bus in enumerate(("90", "8f", "8e"))]
    assert rows(text(4, 0), [*here, silent]) == "g3 does not tell its place among the others, so rows have no order"


def test_rows_without_a_device_of_the_pool_are_left_alone() -> None:
    nics = [nic("a", rdmaDevice="mlx5_2"), nic("b", rdmaDevice="mlx5_0")]
    assert rows(text(2, 4, ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_bond_0"]), nics) == [4, 2]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param([nic("a", rdmaDevice="mlx5_3"), nic("b", rdmaDevice="mlx5_0")], [1, 0], id="RDMA device"),
        pytest.param([nic("a", ifName="mlx5_0"), nic("b", rdmaDevice="mlx5_3")], [0, 1], id="interface"),
        pytest.param(
            [nic("a", rdmaDevice="rocep1s0", ifName="mlx5_3"), nic("b", rdmaDevice="mlx5_0")],
            [1, 0],
            id="interface when the RDMA device is not in the legend",
        ),
        pytest.param(
            [nic("a", driver="adjoin.dev", rdmaDevice="mlx5_3"), nic("b", driver="adjoin.dev", ifName="mlx5_0")],
            [1, 0],
            id="static devices",
        ),
        pytest.param([nic("mlx5_3"), nic("mlx5_0")], [1, 0], id="device name"),
        pytest.param(
            [nic("b", rdmaDevice="mlx5_3"), nic("a", rdmaDevice="mlx5_9")],
            [0, 1],
            id="one is not in the legend: none is read from it, order of the RDMA devices",
        ),
        pytest.param(
            [nic("b", rdmaDevice="mlx5_3"), nic("a", rdmaDevice="mlx5_3")],
            [1, 0],
            id="two say to be the same: none is read from it, order of names",
        ),
        pytest.param(
            [nic("a", pciAddress="0000:9c:00.0"), nic("b", pciAddress="0000:0c:00.0")],
            [1, 0],
            id="no names: order of PCI addresses",
        ),
        pytest.param([nic("nic-10"), nic("nic-9")], [1, 0], id="nothing else: natural order of names"),
    ],
)
def test_rows_of_nics(devices: list[Device], expected: list[int]) -> None:
    assert rows(text(1, 2, ["mlx5_0", "mlx5_3"]), devices) == [1 + row for row in expected]


@pytest.mark.parametrize(
    ("legend", "message"),
    [
        pytest.param(
            ["mlx5_0", "mlx5_1", "mlx5_2"],
            "the matrix has 3 NIC rows, the node has 2 RDMA devices in all pools, "
            "and NIC b is not among the names in the matrix",
            id="with a legend the message names the NIC",
        ),
        pytest.param([], "the matrix has 3 NIC rows, the node has 2 RDMA devices in all pools", id="without a legend"),
    ],
)
def test_order_of_nics_needs_equal_counts(legend: list[str], message: str) -> None:
    assert rows(text(1, 3, legend), [nic("a", rdmaDevice="mlx5_0"), nic("b", rdmaDevice="mlx5_7")]) == message


def test_nics_of_a_matrix_without_nics_have_no_row() -> None:
    message = "the matrix has 0 NIC rows, the node has 1 RDMA device in all pools"
    assert rows(text(1, 0), [gpu("g"), nic("n", rdmaDevice="mlx5_0")]) == message


@pytest.mark.parametrize(
    ("gpu_ids", "expected"),
    [
        pytest.param(("0000:02:00.0", "0000:01:00.0"), [1, 0], id="PCI addresses"),
        pytest.param((" 00000000:02:00.0 ", "01:00.0"), [1, 0], id="PCI addresses as another tool spells them"),
        pytest.param(("gpu-BBBB", "GPU-aaaa"), [1, 0], id="uuids, capitals do not count"),
        pytest.param(("0000:02:00.0", "GPU-aaaa"), [1, 0], id="one of each"),
        pytest.param(("0000:02:00.0",), "the list of GPUs beside it has 1 entry, the matrix 2 GPU rows", id="too few"),
        pytest.param(
            ("0000:02:00.0", "0000:03:00.0"),
            "GPU g0 is not in the list of GPUs beside it",
            id="a list that does not know a GPU is not overruled by order",
        ),
        pytest.param(
            ("0000:02:00.0", "2:00.0"), "the list of GPUs beside it names one GPU twice", id="the same GPU twice"
        ),
        pytest.param(
            ("GPU-bbbb", "0000:02:00.0"), "GPU g0 is not in the list of GPUs beside it", id="one GPU under two names"
        ),
    ],
)
def test_list_of_gpus_beside_the_matrix(gpu_ids: tuple[str, ...], expected: list[int] | str) -> None:
    devices = [
        gpu("g0", "GPU-aaaa", pci="0000:01:00.0", uuid="GPU-aaaa"),
        gpu("g1", "GPU-bbbb", pci="0000:02:00.0", uuid="GPU-bbbb"),
    ]
    assert rows(text(2, 0), devices, gpu_ids=gpu_ids) == expected


def test_list_of_gpus_finds_them_without_equal_counts() -> None:
    offered = gpu("g1", pci="0000:02:00.0")
    assert rows(text(3, 0), [offered], gpu_ids=("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")) == [1]


def test_two_gpus_cannot_have_one_row() -> None:
    twins = [gpu("g0", pci="0000:01:00.0"), gpu("g1", pci="0000:01:00.0")]
    message = "two GPUs are entry 1 of the list of GPUs beside it, one is g1"
    assert rows(text(2, 0), twins, gpu_ids=("0000:01:00.0", "0000:02:00.0")) == message


def test_uuids_are_looked_at_only_when_the_list_has_some() -> None:
    # They differ on every node: in the key of what is kept they would make every node a shape of its own.
    device = gpu("g0", "GPU-aaaa", pci="0000:01:00.0", uuid="GPU-aaaa")
    assert "gpu-aaaa" not in sight(device, DEFAULT_KEYS["pciBusID"], with_uuid=False).ids
    assert "gpu-aaaa" in sight(device, DEFAULT_KEYS["pciBusID"], with_uuid=True).ids
    assert not needs_uuid(("0000:01:00.0", "02:00.0"))
    assert needs_uuid(("0000:01:00.0", "GPU-aaaa"))


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("0000:07:00.0", (0, 7, 0, 0)),
        ("00000000:B7:1F.7", (0, 0xB7, 0x1F, 7)),
        ("0008:06:00.0", (8, 6, 0, 0)),
        ("07:00.0", (0, 7, 0, 0)),
        ("0000:07:00", ()),
        ("0000-07-00-0", ()),
        ("GPU-07", ()),
        ("", ()),
    ],
)
def test_pci_addresses(written: str, address: tuple[int, ...]) -> None:
    assert pci_address(written) == address


# Texts with PCI addresses. The GPUs of both XMLs are rows 0 to 3 at buses 03, 04, 08 and 81, the NICs rows 4 to 6.


@pytest.mark.parametrize("text", [pytest.param(NCCL, id="NCCL"), pytest.param(HWLOC, id="hwloc")])
def test_xml_finds_devices_by_address_whatever_their_names_and_number(text: str) -> None:
    devices = [
        nic("mlx5_0", pciAddress="0000:82:00.0"),
        gpu("gpu-3", pci="0000:03:00.0"),
        gpu("gpu-0", pci="00000000:81:00.0"),
        nic("nic-a", pciAddress="0000:05:00.1"),
    ]
    assert rows(text, devices) == [6, 0, 3, 5]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param([nic("a", rdmaDevice="mlx5_1")], [5], id="a NIC without address by its RDMA device"),
        pytest.param([nic("a", ifName="ib1")], [5], id="by its network interface"),
        pytest.param([nic("mlx5_2")], [6], id="by its own name"),
        pytest.param([gpu("a", "0000:08:00.0")], [2], id="a GPU that vanished by the address it is known by"),
        pytest.param(
            [gpu("a", pci="0000:03:00.0"), gpu("b", pci="0000:03:00.0")], [0, 0], id="parts of a card share its row"
        ),
        pytest.param(
            [nic("mlx5_0", pciAddress="0000:99:00.0")],
            "NIC mlx5_0 sits at 0000:99:00.0, which is not among its 4 GPUs and 3 NICs",
            id="a NIC at another address, whatever its name",
        ),
        pytest.param(
            [nic("a", rdmaDevice="mlx5_1"), nic("b", rdmaDevice="mlx5_9")],
            "NIC b publishes no PCI address, nor a name that is in it, so it is not found among its 4 GPUs and 3 NICs",
            id="a NIC of another name",
        ),
        pytest.param([gpu("g10"), gpu("g2"), gpu("g1"), gpu("g0")], [3, 2, 1, 0], id="GPUs that say nothing, by order"),
        pytest.param([nic("c"), nic("a"), nic("b")], [6, 4, 5], id="NICs that say nothing, by order"),
        pytest.param(
            [gpu("g0"), gpu("g1")],
            "the matrix has 4 GPU rows, the node has 2 GPUs in all pools",
            id="by order only with equal counts",
        ),
        pytest.param(
            [nic("a"), nic("b")],
            "the matrix has 3 NIC rows, the node has 2 RDMA devices in all pools, "
            "and NIC a is not among the names in the matrix",
            id="NICs by order only with equal counts",
        ),
        pytest.param(
            [gpu("g0", pci="0000:03:00.0"), gpu("g1"), gpu("g2"), gpu("g3")],
            "GPU g1 publishes no PCI address, so it is not found among its 4 GPUs and 3 NICs",
            id="never by order where one of them says where it is",
        ),
        pytest.param(
            [gpu("g0", pci="0000:05:00.0")],
            "GPU g0 sits at 0000:05:00.0, where the text has a NIC",
            id="a GPU where the text has a NIC",
        ),
        pytest.param(
            [nic("n0", pciAddress="0000:03:00.0")],
            "NIC n0 sits at 0000:03:00.0, where the text has a GPU",
            id="a NIC where the text has a GPU",
        ),
    ],
)
def test_identity_in_xml(devices: Sequence[Device], expected: list[int] | str) -> None:
    assert rows(HWLOC, devices) == expected


@pytest.mark.parametrize(
    ("device", "listed", "expected"),
    [
        pytest.param(gpu("g", uuid="GPU-c"), ("GPU-a", "GPU-b", "GPU-c", "GPU-d"), [2], id="by uuid in the list"),
        pytest.param(
            gpu("g", uuid="GPU-c", pci="0000:08:00.0"), ("GPU-a", "GPU-b", "GPU-c", "GPU-d"), [2], id="both agree"
        ),
        pytest.param(
            gpu("g", uuid="GPU-c", pci="0000:03:00.0"),
            ("GPU-a", "GPU-b", "GPU-c", "GPU-d"),
            "GPU g is entry 3 of the list of GPUs beside it, but sits at 0000:03:00.0, which is entry 1",
            id="both disagree",
        ),
        pytest.param(
            gpu("g", uuid="GPU-c"),
            ("GPU-c",),
            "the list of GPUs beside it has 1 entry, the text 4 GPUs",
            id="too short",
        ),
        pytest.param(
            gpu("g", pci="0000:08:00.0"),
            ("0000:81:00.0", "0000:08:00.0"),
            [2],
            id="a list of addresses is not needed and may be in any order",
        ),
    ],
)
def test_the_list_of_gpus_beside_xml(device: Device, listed: tuple[str, ...], expected: list[int] | str) -> None:
    assert rows(NCCL, [device], gpu_ids=listed) == expected


def test_nics_by_order_follow_the_names_in_the_text() -> None:
    """As `nvidia-smi` numbers them; here the second name belongs to the last address."""
    swapped = NCCL.replace("mlx5_1", "mlx5_x").replace("mlx5_2", "mlx5_1").replace("mlx5_x", "mlx5_2")
    assert rows(swapped, [nic("a"), nic("b"), nic("c")]) == [4, 6, 5]


def test_names_that_two_nics_have_find_neither() -> None:
    twins = NCCL.replace("mlx5_1", "mlx5_0")
    assert rows(twins, [nic("a", rdmaDevice="mlx5_0")]) == (
        "NIC a publishes no PCI address, nor a name that is in it, so it is not found among its 4 GPUs and 3 NICs"
    )


def test_devices_of_a_kind_that_is_not_said_are_found_by_address() -> None:
    unclassed = '<system version="1"><cpu numaid="0"><pci busid="0:1:0.0"/><pci busid="0:2:0.0"/></cpu></system>'
    assert rows(unclassed, [nic("n", pciAddress="0000:02:00.0"), gpu("g", pci="0000:01:00.0")]) == [1, 0]
    assert rows(unclassed, [gpu("g"), gpu("h")]) == (
        "GPU g publishes no PCI address, so it is not found among its 0 GPUs and 0 NICs"
    )
