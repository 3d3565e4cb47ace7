"""Reading topologies that are no `nvidia-smi topo -m`: what XML and other tables say is read into the same cells, what
they leave open stays open, and what is damaged or dangerous is refused with its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.shared import needs_shared, shared
from tests.support.topologies import HWLOC, NCCL, ROCM

from adjoin_allocator.formats import read_topology
from adjoin_allocator.formats.tree import MOST_ROWS
from adjoin_allocator.matrix import NO_LINK, ONE_CPU, OTHER_ROOT, Matrix, MatrixError
from adjoin_allocator.pci import pci_address, spelling

TOPO = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\tX\tNV4\tPIX\t0-7\t0
GPU1\tNV4\tX\tSYS\t8-15\t1
NIC0\tPIX\tSYS\tX

NIC Legend:

  NIC0: mlx5_0
"""


def row(matrix: Matrix, name: str) -> int:
    """Row of a device by its PCI address, or by its name."""
    titles = [*matrix.gpus, *matrix.nics, *matrix.unsorted]
    return titles.index(name) if name in titles else len(matrix.gpus) + matrix.nic_devices.index(name)


def word(matrix: Matrix, one: str, other: str) -> str | None:
    return matrix.cells[row(matrix, one)][row(matrix, other)]


def refusal(text: str) -> MatrixError:
    with pytest.raises(MatrixError) as refused:
        read_topology(text)
    error: MatrixError = refused.value
    return error


def read_or_refuse(text: str) -> Matrix | MatrixError:
    try:
        return read_topology(text)
    except MatrixError as error:
        return error


def nccl(*cpus: str, version: str = "1") -> str:
    return f'<system version="{version}">\n' + "\n".join(cpus) + "\n</system>\n"


def cpu(*inside: str, node: str = "0") -> str:
    return f'<cpu numaid="{node}">\n' + "\n".join(inside) + "\n</cpu>"


def pci(bus: str, *inside: str, kind: str | None = "0x030200") -> str:
    return f'<pci busid="{bus}"' + (f' class="{kind}"' if kind else "") + ">" + "\n".join(inside) + "</pci>"


def hwloc(*inside: str, nodeset: str = "0x00000003") -> str:
    machine = f'<object type="Machine" nodeset="{nodeset}">\n' + "\n".join(inside) + "\n</object>"
    return f'<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n{machine}\n</topology>\n'


def package(node: str, *inside: str) -> str:
    return f'<object type="Package" nodeset="{node}">\n' + "\n".join(inside) + "\n</object>"


def bridge(kind: str, *inside: str) -> str:
    return f'<object type="Bridge" bridge_type="{kind}">\n' + "\n".join(inside) + "\n</object>"


def device(bus: str, kind: str = "0302 [10de:2330] [10de:16c1] a1", *inside: str) -> str:
    return f'<object type="PCIDev" pci_busid="{bus}" pci_type="{kind}">' + "\n".join(inside) + "</object>"


# One machine, told by two programs.


@pytest.mark.parametrize("text", [pytest.param(NCCL, id="NCCL"), pytest.param(HWLOC, id="hwloc")])
def test_both_kinds_of_xml_tell_the_rows_of_a_machine(text: str) -> None:
    matrix = read_topology(text)
    assert matrix.gpus == ("0000:03:00.0", "0000:04:00.0", "0000:08:00.0", "0000:81:00.0"), "in the order of addresses"
    assert matrix.nic_devices == ("mlx5_0", "mlx5_1", "mlx5_2")
    assert matrix.unsorted == ()
    assert [spelling(address) for address in matrix.addresses] == [*matrix.gpus, *matrix.nics]
    assert matrix.numa == tuple(frozenset({node}) for node in (0, 0, 0, 1, 0, 0, 1))
    for one, other in combinations(range(7), 2):
        assert matrix.cells[one][other] == matrix.cells[other][one]


SAME_IN_BOTH = [
    ("0000:03:00.0", "mlx5_0", "PIX"),
    ("0000:04:00.0", "mlx5_1", "PIX"),
    ("mlx5_0", "mlx5_1", "PIX"),
    ("0000:08:00.0", "mlx5_0", "PXB"),
    ("0000:03:00.0", "0000:08:00.0", "PXB"),
    ("0000:03:00.0", "mlx5_2", "SYS"),
    ("0000:03:00.0", "0000:81:00.0", "SYS"),
]


@pytest.mark.parametrize("text", [pytest.param(NCCL, id="NCCL"), pytest.param(HWLOC, id="hwloc")])
@pytest.mark.parametrize(("one", "other", "expected"), SAME_IN_BOTH)
def test_both_kinds_of_xml_tell_the_same_of_switches_and_numa_nodes(
    text: str, one: str, other: str, expected: str
) -> None:
    assert word(read_topology(text), one, other) == expected


def test_only_hwloc_knows_host_bridges_and_only_nccl_knows_nvlinks() -> None:
    by_nccl, by_hwloc = read_topology(NCCL), read_topology(HWLOC)
    assert word(by_nccl, "0000:81:00.0", "mlx5_2") == ONE_CPU
    assert word(by_hwloc, "0000:81:00.0", "mlx5_2") == "PHB"
    assert word(by_nccl, "0000:03:00.0", "0000:04:00.0") == "NV4"
    assert word(by_hwloc, "0000:03:00.0", "0000:04:00.0") == "PIX"
    assert by_nccl.silent == frozenset()
    assert by_hwloc.silent == frozenset(range(4)), "of its GPUs it is not known which NVLinks they have"


def test_hwloc_leaves_out_screens_and_knows_all_names_of_a_nic() -> None:
    matrix = read_topology(HWLOC)
    assert "0000:00:02.0" not in matrix.gpus
    assert matrix.nic_aliases == (("ib0",), ("ib1",), ())


@pytest.mark.parametrize(
    "dressed",
    [
        pytest.param("\n\n" + NCCL, id="blank lines above"),
        pytest.param("# node-a, 2026\n\n# dumped by hand\n" + NCCL, id="remarks above"),
        pytest.param("\ufeff" + NCCL, id="byte order mark"),
        pytest.param(NCCL.replace("\n", "\r\n"), id="Windows line ends"),
        pytest.param('<?xml version="1.0" encoding="ISO-8859-1"?>\n' + NCCL, id="another encoding is named"),
        pytest.param("<!-- a <system> -->\n" + NCCL + "\n<!-- end -->\n", id="comments"),
        pytest.param(NCCL.replace("  ", ""), id="no indentation"),
        pytest.param(NCCL.replace('version="1"', 'version="2"'), id="RCCL's version"),
        pytest.param(NCCL.replace("0000:", "00000000:"), id="long PCI domains"),
        pytest.param(NCCL.replace("<nvlink", "<xgmi"), id="XGMI for NVLink"),
        pytest.param(NCCL.replace("<nic>", '<nic><future x="1"/>'), id="an element that is not known"),
    ],
)
def test_dress_of_the_xml_changes_nothing(dressed: str) -> None:
    known, matrix = read_topology(NCCL), read_topology(dressed)
    assert matrix.cells == known.cells
    assert (matrix.gpus, matrix.nic_devices, matrix.numa) == (known.gpus, known.nic_devices, known.numa)


# NCCL.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(nccl(cpu(pci("0000:01:00.0"), pci("0000:02:00.0"))), ONE_CPU, id="one NUMA node, two buses"),
        pytest.param(nccl(cpu(pci("0000:00:05.0"), pci("0000:00:06.0"))), "PHB", id="one bus has one host bridge"),
        pytest.param(nccl(cpu(pci("0000:01:00.0"), pci("0000:01:00.1"))), "PIX", id="two functions of one card"),
        pytest.param(nccl(cpu(pci("0001:00:00.0"), pci("0002:00:00.0"))), "NODE", id="a host bridge has one domain"),
        pytest.param(nccl(cpu(pci("0000:01:00.0")), cpu(pci("0000:02:00.0"), node="1")), "SYS", id="two NUMA nodes"),
        pytest.param(nccl(cpu(pci("0000:01:00.0"), pci("0000:02:00.0"), node="-1")), None, id="no NUMA node is known"),
        pytest.param(
            nccl(cpu(pci("0000:00:05.0"), pci("0000:00:06.0"), node="-1")), "PHB", id="no NUMA node, but one bus"
        ),
        pytest.param(
            nccl(cpu(pci("0001:00:00.0"), pci("0002:00:00.0"), node="-1")), OTHER_ROOT, id="no NUMA node, two domains"
        ),
        pytest.param(
            nccl(cpu(pci("0000:01:00.0")), cpu(pci("0000:02:00.0"), node="-1")), None, id="one NUMA node is known"
        ),
        pytest.param(
            nccl(cpu(pci("ffff:ff:01.0", pci("0000:01:00.0"), pci("0000:02:00.0"), kind="0x060400"))),
            "PIX",
            id="one switch",
        ),
        pytest.param(
            nccl(
                cpu(
                    pci("ffff:ff:01.0", pci("0000:01:00.0"), kind="0x060400"),
                    pci("ffff:ff:02.0", pci("0000:02:00.0"), kind="0x060400"),
                )
            ),
            ONE_CPU,
            id="made-up addresses of switches tell nothing",
        ),
        pytest.param(
            nccl(cpu(pci("0000:10:00.0", pci("0000:01:00.0"), kind="0x060400"), pci("0000:01:01.0"))),
            ONE_CPU,
            id="behind a switch the bus is the switch's",
        ),
    ],
)
def test_what_nccls_tree_tells_of_two_gpus(text: str, expected: str | None) -> None:
    matrix = read_topology(text)
    assert len(matrix.gpus) == 2
    assert matrix.cells[0][1] == matrix.cells[1][0] == expected


def linked(*links: str, second: Sequence[str] = (), third: str = "") -> str:
    one = pci("0000:01:00.0", "<gpu>" + "\n".join(links) + "</gpu>")
    two = pci("0000:02:00.0", "<gpu>" + "\n".join(second) + "</gpu>")
    return nccl(cpu(one, two, third))


def link(target: str, count: int | str, tclass: str = "0x030200") -> str:
    return f'<nvlink target="{target}" count="{count}" tclass="{tclass}"/>'


def switched(*targets: str, count: int = 2) -> tuple[str, ...]:
    return tuple(link(target, count, "0x068000") for target in targets)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(linked(link("0000:02:00.0", 2), second=[link("0000:01:00.0", 2)]), "NV2", id="direct"),
        pytest.param(
            linked(link("0000:02:00.0", 1), link("0000:02:00.0", 1), second=[link("0000:01:00.0", 2)]),
            "NV2",
            id="several elements add up",
        ),
        pytest.param(
            linked(*switched("0005:00:00.0", "0006:00:00.0"), second=switched("0006:00:00.0", "0005:00:00.0")),
            "NV4",
            id="over two NVSwitches",
        ),
        pytest.param(
            linked(*switched("0005:00:00.0", count=4), second=switched("0005:00:00.0", "0006:00:00.0")),
            "NV2",
            id="as many as both have to one NVSwitch",
        ),
        pytest.param(
            linked(*switched("0005:00:00.0"), second=switched("0006:00:00.0")), ONE_CPU, id="two other NVSwitches"
        ),
        pytest.param(
            linked(*switched("fffffff:ffff:ff", count=18), second=switched("fffffff:ffff:ff", count=18)),
            "NV18",
            id="NVSwitches that a virtual machine does not see",
        ),
        pytest.param(
            linked(link("0000:01:00.0", 12), second=[link("0000:02:00.0", 12)]), ONE_CPU, id="a GPU's link to itself"
        ),
        pytest.param(
            linked(link("0000:00:01.0", 3, "0x068001"), second=[link("0000:00:01.0", 3, "0x068001")]),
            ONE_CPU,
            id="links to a CPU",
        ),
        pytest.param(linked(link("0000:09:00.0", 4)), ONE_CPU, id="a link to a GPU that is not there"),
        pytest.param(linked(link("0000:02:00.0", 0), second=[]), ONE_CPU, id="no link, in one direction"),
    ],
)
def test_nvlinks(text: str, expected: str) -> None:
    matrix = read_topology(text)
    assert matrix.cells[0][1] == matrix.cells[1][0] == expected


def test_a_gpu_without_gpu_element_says_nothing_of_its_links() -> None:
    matrix = read_topology(linked(link("0000:03:00.0", 4), third=pci("0000:03:00.0")))
    assert word(matrix, "0000:01:00.0", "0000:03:00.0") == "NV4", "the other end says it"
    assert matrix.silent == {row(matrix, "0000:03:00.0")}


def test_a_nic_that_hangs_from_the_cpu_has_a_name_and_no_place() -> None:
    matrix = read_topology(nccl(cpu(pci("0000:01:00.0"), '<nic><net name="eth0"/></nic>')))
    assert matrix.nic_devices == ("eth0",)
    assert matrix.addresses == (pci_address("0000:01:00.0"), ())
    assert matrix.cells[0][1] is None
    assert matrix.numa == (frozenset({0}), None)


def test_devices_without_a_class_are_of_either_kind() -> None:
    matrix = read_topology(nccl(cpu(pci("0000:00:05.0", kind=None), pci("0000:00:06.0"))))
    assert (matrix.gpus, matrix.unsorted) == (("0000:00:06.0",), ("0000:00:05.0",))
    assert matrix.cells[0][1] == "PHB"


def test_other_devices_have_no_row() -> None:
    kinds = ("0x010802", "0x060400", "0x068000", "0x0c0330")
    text = nccl(cpu(pci("0000:01:00.0"), *(pci(f"0000:0{9 - i}:00.0", kind=kind) for i, kind in enumerate(kinds))))
    assert read_topology(text).addresses == (pci_address("0000:01:00.0"),)


# hwloc.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            hwloc(package("0x1", bridge("0-1", device("0000:01:00.0"), device("0000:02:00.0")))),
            "PHB",
            id="one host bridge",
        ),
        pytest.param(
            hwloc(package("0x1", bridge("0-1", device("0000:01:00.0")), bridge("0-1", device("0000:02:00.0")))),
            "NODE",
            id="two host bridges of one NUMA node",
        ),
        pytest.param(
            hwloc(
                package("0x1", bridge("0-1", device("0000:01:00.0"))),
                package("0x2", bridge("0-1", device("0000:02:00.0"))),
            ),
            "SYS",
            id="two NUMA nodes",
        ),
        pytest.param(
            hwloc(bridge("0-1", device("0000:01:00.0")), bridge("0-1", device("0000:02:00.0"))),
            OTHER_ROOT,
            id="no NUMA node is known",
        ),
        pytest.param(
            hwloc(bridge("0-1", device("0000:01:00.0")), bridge("0-1", device("0000:02:00.0")), nodeset="0x1"),
            "NODE",
            id="the machine is one NUMA node",
        ),
        pytest.param(
            hwloc(
                package("0x3", bridge("0-1", device("0000:01:00.0")), bridge("0-1", device("0000:02:00.0"))),
                nodeset="0xf",
            ),
            "NODE",
            id="a package of two NUMA nodes out of four",
        ),
        pytest.param(
            hwloc(
                bridge("0-1", bridge("1-1", device("0000:01:00.0"), device("0000:01:00.1"))),
            ),
            "PIX",
            id="one root port",
        ),
        pytest.param(
            hwloc(
                bridge("0-1", bridge("1-1", device("0000:01:00.0")), bridge("1-1", device("0000:02:00.0"))),
            ),
            "PHB",
            id="two root ports",
        ),
        pytest.param(
            hwloc(
                bridge(
                    "0-1", bridge("1-1", bridge("1-1", device("0000:01:00.0")), bridge("1-1", device("0000:02:00.0")))
                ),
            ),
            "PIX",
            id="two ports of a switch",
        ),
        pytest.param(
            hwloc(
                bridge(
                    "0-1",
                    bridge(
                        "1-1",
                        bridge("1-1", bridge("1-1", device("0000:01:00.0"))),
                        bridge("1-1", bridge("1-1", device("0000:02:00.0"))),
                    ),
                ),
            ),
            "PXB",
            id="two switches on one port",
        ),
        pytest.param(
            hwloc(package("0x1", device("0000:01:00.0"), device("0000:02:00.0"))),
            ONE_CPU,
            id="bridges were filtered out",
        ),
        pytest.param(
            hwloc(package("0x1", device("0000:01:00.0")), package("0x2", device("0000:02:00.0"))),
            "SYS",
            id="bridges were filtered out, two NUMA nodes",
        ),
        pytest.param(
            hwloc(package("0x1", device("0000:01:00.0"), bridge("0-1", device("0000:02:00.0")))),
            ONE_CPU,
            id="one bridge was filtered out",
        ),
    ],
)
def test_what_hwlocs_tree_tells_of_two_gpus(text: str, expected: str | None) -> None:
    matrix = read_topology(text)
    assert matrix.cells[0][1] == matrix.cells[1][0] == expected


@pytest.mark.parametrize(
    ("nodeset", "nodes"),
    [
        ("0x00000001", {0}),
        ("0x00000006", {1, 2}),
        ("0x1,0x00000000", {32}),
        ("0x2,,0x1", {0, 65}),
        ("0x0", None),
    ],
)
def test_nodesets(nodeset: str, nodes: set[int] | None) -> None:
    text = hwloc(package(nodeset, bridge("0-1", device("0000:01:00.0"))), nodeset="0xffff,0xffffffff,0xffffffff")
    assert read_topology(text).numa == (None if nodes is None else frozenset(nodes),)


@pytest.mark.parametrize(
    ("kind", "gpu", "nic"),
    [
        ("0302 [10de:2330]", True, False),
        ("0300 [10de:2684] [10de:16f4] a1", True, False),
        ("0380 [1002:740f] [0:0]", True, False),
        ("1200 [1002:74a1] [1002:74a1] 00", True, False),
        ("0300 [1a03:2000] [1a03:2000] 52", False, False),
        ("0200 [1d0f:efa1] [1d0f:efa1] 00", False, True),
        ("0207 [15b3:1021] [15b3:0041] 00", False, True),
        ("0108 [144d:a80a] [144d:a801] 00", False, False),
    ],
)
def test_what_pci_devices_are(kind: str, gpu: bool, nic: bool) -> None:
    matrix = read_topology(hwloc(bridge("0-1", device("0000:09:00.0"), device("0000:01:00.0", kind))))
    assert ("0000:01:00.0" in matrix.gpus, "0000:01:00.0" in matrix.nics) == (gpu, nic)


# rocm-smi.


def test_rocm_smi_tells_links_and_numa_nodes() -> None:
    matrix = read_topology(ROCM)
    assert matrix.gpus == ("GPU0", "GPU1", "GPU2")
    assert matrix.nics == ()
    assert matrix.cells == (("X", "XGMI", NO_LINK), ("XGMI", "X", NO_LINK), (NO_LINK, NO_LINK, "X"))
    assert matrix.numa == (frozenset({0}), frozenset({0}), None)


def test_words_of_rocm_smi_in_a_remark_make_no_table_of_it() -> None:
    remark = "# ROCm System Management Interface was not asked; the link between two GPUs is bonded\n"
    assert read_topology(remark + TOPO).cells == read_topology(TOPO).cells


# What is refused, and where.


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        pytest.param("<system/>", 1, "<system> has no version", id="no version"),
        pytest.param(NCCL.replace('system version="1"', 'system version="7"'), 1, "version 7 of", id="version 7"),
        pytest.param("\n\n<graphs version='1'/>\n", 3, "XML with <graphs> outermost is no topology", id="other XML"),
        pytest.param(nccl(), 1, "there is no GPU and no NIC", id="no devices"),
        pytest.param(NCCL.replace(' numaid="1"', ""), 31, "<cpu> has no numaid", id="no NUMA node"),
        pytest.param(NCCL.replace('numaid="1"', 'numaid="one"'), 31, "numaid one, which is no", id="NUMA word"),
        pytest.param(
            NCCL.replace('numaid="1"', 'numaid="0"'), 31, "numaid=0> is there twice, first in line 2", id="two"
        ),
        pytest.param(NCCL.replace('busid="0000:81:00.0" ', ""), 32, "<pci> has no busid", id="no address"),
        pytest.param(NCCL.replace("0000:81:00.0", "0000:81:00"), 32, "0000:81:00 is no PCI address", id="half address"),
        pytest.param(NCCL.replace("0000:81:00.0", "0000:03:00.0"), 32, "first in line 9", id="an address twice"),
        pytest.param(NCCL.replace("0x020000", "network"), 35, "class network is no PCI class", id="class word"),
        pytest.param(NCCL.replace('name="mlx5_2" ', ""), 37, "<net> has no name", id="NIC without a name"),
        pytest.param(
            NCCL.replace('count="4"', 'count="four"', 1), 6, "count four, which is no number", id="count word"
        ),
        pytest.param(NCCL.replace('count="4"', 'count="-4"', 1), 6, "count -4 is no number of links", id="negative"),
        pytest.param(
            NCCL.replace('count="4"', 'count="2"', 1), 10, "both directions must be the same", id="asymmetric"
        ),
        pytest.param(NCCL.replace('target="0000:03:00.0"', 'target="gpu 0"'), 6, "target gpu 0 is no", id="target"),
        pytest.param(NCCL.replace("</system>", ""), 42, "no element found", id="end cut off"),
        pytest.param(NCCL.replace("</nic>", "", 1), 18, "mismatched tag", id="a tag is not closed"),
        pytest.param(NCCL + "</system>", 42, "no well-formed XML", id="closed twice"),
        pytest.param(NCCL + NCCL, 42, "junk after document element", id="pasted twice"),
        pytest.param(NCCL.replace('sm="90" rank="2"', "sm=90"), 26, "not well-formed", id="quotes lost"),
        pytest.param(NCCL.replace("mlx5_2", "mlx5_\x1b2"), 37, "not well-formed", id="a control character"),
        pytest.param(NCCL.replace("mlx5_2", "mlx5_\ud8002"), 37, "not well-formed", id="half a character"),
        pytest.param(
            nccl(cpu("<nic>", pci("0000:01:00.0"), "</nic>")), 4, "<pci> inside <nic> is not known", id="hidden device"
        ),
        pytest.param(
            nccl("<future>", pci("0000:01:00.0"), "</future>"), 3, "<pci> inside <future> is not known", id="hidden"
        ),
        pytest.param(
            nccl(cpu(pci("0000:01:00.0", "<gpu/>", pci("0000:02:00.0")))), 3, "one of a switch, a GPU", id="two in one"
        ),
        pytest.param(
            "# above\n" + HWLOC.replace('version="2.0"', 'version="3.0"'), 4, "format 3.0 is not read", id="hwloc 3"
        ),
        pytest.param(HWLOC.replace(' version="2.0"', ""), 3, "format 1 is not read", id="hwloc 1"),
        pytest.param(hwloc(device("0000:01:00.0", "network")), 4, "pci_type network does not start", id="pci_type"),
        pytest.param(hwloc(device("1:00")), 4, "pci_busid 1:00 is no PCI address", id="pci_busid"),
        pytest.param(hwloc('<object type="PCIDev" pci_busid="0000:01:00.0"/>'), 4, "has no pci_type", id="no pci_type"),
        pytest.param(hwloc("<object/>"), 4, "<object> has no type", id="no type"),
        pytest.param(hwloc(bridge("2-1")), 4, "bridge_type 2-1 is not known", id="bridge_type"),
        pytest.param(hwloc(package("all")), 4, "nodeset all is no bitmap", id="nodeset"),
        pytest.param(hwloc(package("0x1")), 3, "there is no GPU and no NIC", id="no PCI devices"),
        pytest.param('<topology version="2.0"/>', 1, "0 objects are outermost", id="no machine"),
        pytest.param("<a>" * 200, 1, "nested more than 128 deep", id="too deep"),
        pytest.param(ROCM.replace("Link Type", "Kind of link"), 2, "no table Link Type", id="ROCm without links"),
        pytest.param(ROCM.replace("PCIE\nGPU1", "PCIE PCIE\nGPU1"), 11, "row GPU0 has 4 cells", id="ROCm cell more"),
        pytest.param(ROCM.replace("XGMI         0 ", "XGMI "), 12, "row GPU1 has 2 cells", id="ROCm cell less"),
        pytest.param(ROCM.replace("XGMI         0 ", "PCIE         0 "), 12, "both directions", id="ROCm asymmetric"),
        pytest.param(ROCM.replace("0            XGMI", "XGMI         0"), 11, "belongs where a GPU", id="ROCm shifted"),
        pytest.param(ROCM.replace("XGMI", "HT"), 11, "unknown word HT", id="ROCm unknown word"),
        pytest.param(ROCM.replace("GPU[2]", "GPU[7]"), 20, "GPU[7] is not among", id="ROCm strange GPU"),
        pytest.param(ROCM.replace("Numa Node: -1", "Numa Node: one"), 20, "one is no NUMA node", id="ROCm NUMA word"),
        pytest.param("", 0, "the text is empty", id="empty"),
    ],
)
def test_damage_is_refused_with_its_line(text: str, line: int, problem: str) -> None:
    error = refusal(text)
    assert (error.line, problem in error.problem) == (line, True), str(error)


BOMB = (
    "<!DOCTYPE system [\n"
    + '<!ENTITY a "aaaaaaaaaa">\n'
    + "".join(f'<!ENTITY {name} "{f"&{below};" * 10}">\n' for name, below in zip("bcdefghij", "abcdefghi", strict=True))
    + "]>\n"
)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        pytest.param(BOMB + NCCL.replace("mlx5_0", "&j;"), 1, "brings declarations", id="entities of entities"),
        pytest.param(
            '<!DOCTYPE system [<!ENTITY x SYSTEM "file:///etc/hostname">]>\n' + NCCL.replace("mlx5_0", "&x;"),
            1,
            "brings declarations",
            id="a file as an entity",
        ),
        pytest.param(
            '<!DOCTYPE system [<!ATTLIST pci class CDATA "0x030200">]>\n' + NCCL,
            1,
            "brings declarations",
            id="defaults",
        ),
        pytest.param(
            '<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">&dtd;</topology>',
            2,
            "undefined entity",
            id="an entity of the document type that is not fetched",
        ),
        pytest.param(HWLOC.replace('name="mlx5_2"', 'name="mlx5_&two;"'), 51, "undefined entity", id="in an attribute"),
        pytest.param(NCCL.replace("mlx5_2", "&x;"), 37, "undefined entity", id="an entity that is not declared"),
    ],
)
def test_entities_are_refused_and_nothing_is_fetched(text: str, line: int, problem: str) -> None:
    error = refusal(text)
    assert (error.line, problem in error.problem) == (line, True), str(error)


def test_a_document_type_that_only_has_a_name_is_accepted() -> None:
    text = '<!DOCTYPE system PUBLIC "-//X//Y" "http://192.0.2.1/no-such.dtd">\n' + NCCL
    assert read_topology(text).cells == read_topology(NCCL).cells


def test_the_five_characters_that_xml_names_are_read() -> None:
    assert read_topology(NCCL.replace("mlx5_0", "a&amp;b&#45;c")).nic_devices[0] == "a&b-c"


def test_more_devices_than_a_machine_has_are_refused() -> None:
    buses = [f"{number >> 8:04x}:{number & 255:02x}:00.0" for number in range(MOST_ROWS + 1)]
    text = nccl(cpu(*map(pci, buses)))
    assert refusal(text).problem == f"more than {MOST_ROWS} GPUs and NICs"
    assert refusal(text).line == MOST_ROWS + 3
    assert len(read_topology(nccl(cpu(*map(pci, buses[:-1])))).gpus) == MOST_ROWS


# Damage of any kind.

TEXTS = (TOPO, NCCL, HWLOC, ROCM)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A text with a few random wounds: characters, words and lines lost, doubled or put in, the end cut off."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        if not text:
            break
        at = draw(st.integers(0, len(text) - 1))
        to = min(len(text), at + draw(st.integers(1, 40)))
        match draw(st.integers(0, 6)):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:to] + text[at:]
            case 2:
                text = text[:at]
            case 3:
                text = text[:at] + draw(st.text(max_size=8)) + text[at:]
            case 4:
                text = (
                    text[:at]
                    + draw(st.sampled_from(["\x1b[0m", "\t", "X", "NV4", "<pci>", "&x;", "\0", "0"]))
                    + text[to:]
                )
            case 5:
                lines = text.splitlines(keepends=True)
                lines.pop(draw(st.integers(0, len(lines) - 1)))
                text = "".join(lines)
            case _:
                words = text.split(" ")
                words.pop(draw(st.integers(0, len(words) - 1)))
                text = " ".join(words)
    return text


@settings(max_examples=400)
@given(damaged())
def test_a_damaged_text_is_read_or_refused_with_a_line_and_nothing_else(text: str) -> None:
    matrix = read_or_refuse(text)
    if isinstance(matrix, MatrixError):
        assert matrix.problem
        # Colours are no text, also where their first character was lost.
        plain = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\[[0-9]*(?:;[0-9]+)*m", "", text)
        nothing = not any(line.strip() for line in plain.splitlines() if not line.lstrip().startswith("#"))
        assert nothing or 1 <= matrix.line <= text.count("\n") + text.count("\r") + 1
        return
    size = len(matrix.gpus) + len(matrix.nics) + len(matrix.unsorted)
    assert len(matrix.cells) == len(matrix.numa) == size
    for one in range(size):
        assert len(matrix.cells[one]) == size
        assert matrix.cells[one][one] == "X"
        for other in range(one):
            assert matrix.cells[one][other] == matrix.cells[other][one] != "X"


@given(st.sampled_from((TOPO, ROCM)), st.data())
def test_a_lost_or_added_cell_of_a_table_never_shifts_the_others(text: str, data: st.DataObject) -> None:
    lines = text.splitlines()
    # The last table is the one that is read.
    last = max(index for index, line in enumerate(lines) if line.split()[:1] == ["GPU0"] and "X" in line)
    place = data.draw(st.integers(last, last + 1))
    words = lines[place].split()
    where = data.draw(st.integers(1, 3))
    if data.draw(st.booleans()):
        del words[where]
    else:
        # Two cells more, since a column beside the matrix may be empty and so leave room for one value.
        words[where:where] = [data.draw(st.sampled_from(["XGMI", "NV4", "SYS", "X", "0"]))] * 3
    lines[place] = "\t".join(words)
    assert refusal("\n".join(lines)).line == place + 1


@given(st.sampled_from((NCCL, HWLOC)), st.data())
def test_xml_that_is_cut_off_is_always_refused(text: str, data: st.DataObject) -> None:
    end = data.draw(st.integers(text.index("<") + 1, len(text.rstrip()) - 1))
    error = refusal(text[:end])
    assert 1 <= error.line <= text[:end].count("\n") + 1


@given(st.permutations(["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0001:00:00.0"]), st.integers(0, 3))
def test_the_order_of_elements_does_not_matter(order: Sequence[str], split: int) -> None:
    """Devices are what their addresses and places say, in whichever order the file lists them."""
    switch = {"0000:01:00.0", "0000:03:00.0"}
    inside = [pci(bus) for bus in order if bus in switch]
    outside = [pci(bus) for bus in order if bus not in switch]
    outside.insert(min(split, len(outside)), pci("ffff:ff:01.0", *inside, kind="0x060400"))
    matrix = read_topology(nccl(cpu(*outside)))
    assert matrix.gpus == tuple(sorted(order))
    assert matrix.cells == (
        ("X", ONE_CPU, "PIX", "NODE"),
        (ONE_CPU, "X", ONE_CPU, "NODE"),
        ("PIX", ONE_CPU, "X", "NODE"),
        ("NODE", "NODE", "NODE", "X"),
    )


# Files of real machines.


class Read(NamedTuple):
    """What a captured file must be read as. Counts are those of unordered pairs; `pairs` are known from elsewhere
    (vendors' descriptions of the machine), by address or NIC name."""

    gpus: int
    nics: int
    gpu_gpu: Mapping[str | None, int]
    gpu_nic: Mapping[str | None, int]
    pairs: Mapping[tuple[str, str], str | None]
    unsorted: int = 0


CAPTURED: Mapping[str, Read] = {
    "amd_mi308x_8gpu_showtopo.txt": Read(8, 0, {"XGMI": 28}, {}, {("GPU0", "GPU7"): "XGMI"}),
    "hwloc/c5n.18xl-topo.xml": Read(0, 2, {}, {}, {("ens5", "rdmap0s31"): "PHB"}),
    "hwloc/g5.48xl-topo.xml": Read(
        8, 2, {"PHB": 28}, {"PHB": 16},
        {("0000:00:16.0", "0000:00:1d.0"): "PHB", ("0000:00:16.0", "rdmap0s21"): "PHB"},
    ),
    "hwloc/g6.48xl-topo.xml": Read(
        8, 2, {"NODE": 12, "SYS": 16}, {"NODE": 8, "SYS": 8},
        {
            ("0000:9f:00.0", "0000:a1:00.0"): "NODE",
            ("0000:9f:00.0", "rdmap150s0"): "NODE",
            ("0000:ae:00.0", "rdmap150s0"): "SYS",
            ("enp135s0", "rdmap150s0"): "PIX",
        },
    ),
    "hwloc/p3dn.24xl-topo.xml": Read(8, 2, {"PHB": 28}, {"PHB": 16}, {("0000:00:16.0", "rdmap0s21"): "PHB"}),
    "hwloc/p4d.24xl-topo.xml": Read(
        8, 8, {"PHB": 4, "NODE": 8, "SYS": 16}, {"PHB": 16, "NODE": 16, "SYS": 32},
        {
            ("0000:10:1c.0", "rdmap16s27"): "PHB",
            ("0000:10:1c.0", "0000:20:1c.0"): "NODE",
            ("0000:a0:1d.0", "rdmap160s27"): "PHB",
            ("0000:a0:1d.0", "rdmap16s27"): "SYS",
        },
    ),
    "hwloc/p5.48xl-topo.xml": Read(
        8, 64, {"NODE": 12, "SYS": 16}, {"PIX": 64, "NODE": 192, "SYS": 256},
        {
            ("0000:b9:00.0", "rdmap184s0"): "PIX",
            ("0000:ca:00.0", "rdmap184s0"): "NODE",
            ("0000:ca:00.0", "rdmap201s0"): "PIX",
        },
    ),
    "hwloc/p6-b200.48xl-topo.xml": Read(
        8, 18, {"PIX": 4, "NODE": 8, "SYS": 16}, {"PIX": 36, "NODE": 36, "SYS": 72},
        {
            ("0000:51:00.0", "0000:52:00.0"): "PIX",
            ("0000:51:00.0", "rdmap79s0"): "PIX",
            ("0000:51:00.0", "rdmap96s0"): "NODE",
            ("0000:75:00.0", "ibp115s0f0"): "PIX",
            ("0000:86:00.0", "rdmap79s0"): "SYS",
        },
    ),
    "xml/aws_g5.48xl-topo.xml": Read(
        0, 0, {}, {},
        {("0000:00:16.0", "0000:00:19.0"): "PHB", ("0000:00:16.0", "0000:00:1a.0"): "SYS"},
        unsorted=9,
    ),
    "xml/aws_p4d-24xl-topo.xml": Read(
        8, 4, {"PIX": 4, ONE_CPU: 8, "SYS": 16}, {"PIX": 8, ONE_CPU: 8, "SYS": 16},
        {("0000:10:1c.0", "0000:10:1b.0"): "PIX", ("0000:10:1c.0", "0000:20:1b.0"): ONE_CPU,
         ("0000:a0:1d.0", "0000:10:1b.0"): "SYS"},
    ),
    "xml/aws_p4de-24xl-topo.xml": Read(
        8, 4, {"PIX": 4, ONE_CPU: 8, "SYS": 16}, {"PIX": 8, ONE_CPU: 8, "SYS": 16},
        {("0000:90:1c.0", "0000:90:1b.0"): "PIX"},
    ),
    "xml/azure_ncv4-topo.xml": Read(4, 1, {"SYS": 6}, {None: 4}, {("0001:00:00.0", "0002:00:00.0"): "SYS"}),
    "xml/azure_ndv2-topo.xml": Read(
        8, 1, {"NODE": 12, "SYS": 16}, {"NODE": 4, "SYS": 4},
        {("0001:00:00.0", "0101:00:00.0"): "NODE", ("0005:00:00.0", "0101:00:00.0"): "SYS"},
    ),
    "xml/azure_ndv4-topo.xml": Read(
        8, 8, {"PIX": 4, "SYS": 24}, {"PIX": 16, "SYS": 48},
        {("0003:00:00.0", "0103:00:00.0"): "PIX", ("000b:00:00.0", "0105:00:00.0"): "PIX",
         ("000b:00:00.0", "0107:00:00.0"): "SYS"},
    ),
    "xml/elasticflow_azure_ndv4_a100_topo.xml": Read(
        8, 8, {"NV12": 28}, {"PIX": 16, "SYS": 48},
        {("0001:00:00.0", "000e:00:00.0"): "NV12", ("0001:00:00.0", "0102:00:00.0"): "PIX"},
    ),
    "xml/rccl_topo_16p1h.xml": Read(
        16, 8, {"NV4": 8, "NV2": 4, "NV1": 16, "PXB": 10, "SYS": 82}, {"PXB": 32, "SYS": 96},
        {("0000:4e:00.0", "0000:51:00.0"): "NV4", ("0000:4e:00.0", "mlx5_0"): "PXB", ("0000:4e:00.0", "mlx5_2"): "SYS"},
    ),
    "xml/rccl_topo_4p_940.xml": Read(
        4, 4, {"NV1": 6}, {ONE_CPU: 4, "SYS": 12},
        {("0000:82:00.0", "cxi0"): ONE_CPU, ("0000:82:00.0", "cxi1"): "SYS"},
    ),
    "xml/rccl_topo_8p_90a.xml": Read(
        8, 1, {"NV1": 12, ONE_CPU: 16}, {ONE_CPU: 8}, {("0000:c1:00.0", "eth0"): ONE_CPU}
    ),
    "xml/rccl_topo_8p_940.xml": Read(
        8, 8, {"NV1": 28}, {"PXB": 8, ONE_CPU: 24, "SYS": 32},
        {("0000:0c:00.0", "mlx5_0"): "PXB", ("0000:0c:00.0", "mlx5_1"): ONE_CPU, ("0000:9f:00.0", "mlx5_4"): "PXB"},
    ),
    "xml/rccl_topo_8p_940vm.xml": Read(
        8, 8, {"NV1": 28}, {"NODE": 32, "SYS": 32},
        {("0031:00:00.0", "mlx5_0"): "NODE", ("0031:00:00.0", "mlx5_4"): "SYS"},
    ),
    "xml/rccl_topo_8p_rome_4nics.xml": Read(
        8, 4, {"NV1": 12, "SYS": 16}, {"PXB": 8, "SYS": 24},
        {("0000:4a:00.0", "mlx5_1"): "PXB", ("0000:0a:00.0", "mlx5_1"): "SYS", ("0000:4a:00.0", "0000:0f:00.0"): "NV1"},
    ),
}  # fmt: skip


@needs_shared
def test_every_captured_file_is_in_the_table() -> None:
    files = {f"{path.parent.name}/{path.name}" for path in shared("data/topo").glob("*/*")}
    assert files == set(CAPTURED) - {"amd_mi308x_8gpu_showtopo.txt"}


@needs_shared
@pytest.mark.parametrize("name", CAPTURED)
def test_captured_files(name: str) -> None:
    expected = CAPTURED[name]
    matrix = read_topology(shared(f"data/topo/{name}").read_text())
    assert (len(matrix.gpus), len(matrix.nics), len(matrix.unsorted)) == (
        expected.gpus,
        expected.nics,
        expected.unsorted,
    )
    gpus = range(expected.gpus)
    nics = range(expected.gpus, expected.gpus + expected.nics)
    assert Counter(matrix.cells[one][other] for one, other in combinations(gpus, 2)) == expected.gpu_gpu
    assert Counter(matrix.cells[gpu][nic] for gpu in gpus for nic in nics) == expected.gpu_nic
    assert expected.pairs
    for (one, other), level in expected.pairs.items():
        assert word(matrix, one, other) == word(matrix, other, one) == level, (one, other)


@needs_shared
@pytest.mark.parametrize("name", [name for name in CAPTURED if name.endswith(".xml")])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_captured_xml_that_is_cut_off_is_refused(name: str, data: st.DataObject) -> None:
    text = shared(f"data/topo/{name}").read_text()
    root = text.index("<system") if "<system" in text else text.index("<topology")
    end = data.draw(st.integers(root + 1, len(text.rstrip()) - 1))
    assert 1 <= refusal(text[:end]).line <= text.count("\n") + 1
