"""How near devices sit: what attributes and matrices prove, what they deny, and what stays unknown."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations, pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.shared import needs_shared, shared
from tests.support.topologies import HWLOC, NCCL, ROCM

from adjoin_allocator.cel import AttributeValue
from adjoin_allocator.model import Device, DeviceID, DeviceName, MatrixText, Pool
from adjoin_allocator.terms import SCOPES, DeviceType, Scope
from adjoin_allocator.topology import Verdict, Wiring, attribute_keys, attribute_values, bits, graph, wire
from adjoin_allocator.wiring import MOST_LINKS

NVLINK, SWITCH, ROOT, NUMA, NODE = SCOPES
MET, UNMET, UNKNOWN = Verdict
STANDARD_ROOT = "resource.kubernetes.io/pcieRoot"
STANDARD_NUMA = "resource.kubernetes.io/numaNode"


def gpu(name: str, driver: str = "adjoin.dev", node: str = "n1", **attributes: AttributeValue) -> Device:
    return _device(name, DeviceType.GPU, driver, node, attributes)


def nic(name: str, driver: str = "adjoin.dev", node: str = "n1", **attributes: AttributeValue) -> Device:
    return _device(name, DeviceType.RDMA, driver, node, attributes)


def _device(name: str, kind: DeviceType, driver: str, node: str, attributes: Mapping[str, AttributeValue]) -> Device:
    """`__` in a keyword stands for the slash of a name with a domain, `_` in its domain for a dot."""
    qualified = {}
    for key, value in attributes.items():
        domain, _, bare = key.rpartition("__")
        qualified[f"{domain.replace('_', '.') or driver}/{bare}"] = value
    return Device(DeviceID(driver, node, name), node, "p", kind.value, kind, f"{node}/{name}", qualified, {})


def pool(
    matrix: str | None = None, gpu_ids: tuple[str, ...] = (), nodes: Sequence[str] = ("n1",), **aliases: tuple[str, ...]
) -> Pool:
    names = (DeviceName("GPU", DeviceType.GPU), DeviceName("RDMA", DeviceType.RDMA))
    matrices = {} if matrix is None else dict.fromkeys(nodes, MatrixText("wires/topo", matrix, gpu_ids))
    return Pool("p", names, aliases, matrices)


def text(
    gpus: int, nics: int, pairs: Mapping[tuple[int, int], str], rest: str = "SYS", numa: Sequence[str] = ()
) -> str:
    """A matrix by the words of some pairs (NICs count on after the GPUs); all others are `rest`."""
    names = [f"GPU{index}" for index in range(gpus)] + [f"NIC{index}" for index in range(nics)]
    lines = ["\t".join(["", *names, *(["CPU Affinity", "NUMA Affinity"] if numa else [])])]
    for row, name in enumerate(names):
        cells = [
            "X" if row == column else pairs.get((min(row, column), max(row, column)), rest)
            for column in range(len(names))
        ]
        lines.append("\t".join([name, *cells, *(["0-7", numa[row]] if numa and row < gpus else [])]))
    return "\n".join(lines)


def pair_verdict(wiring: Wiring, scope: Scope, one: int, other: int) -> Verdict:
    if wiring.met[scope][one] >> other & 1:
        return MET
    return UNKNOWN if wiring.unknown[scope][one] >> other & 1 else UNMET


def verdicts(wiring: Wiring, one: int = 0, other: int = 1) -> tuple[Verdict, ...]:
    """Of all scopes, nearest first."""
    return tuple(pair_verdict(wiring, scope, one, other) for scope in SCOPES)


def wired(devices: Sequence[Device], in_pool: Pool | None = None) -> Wiring:
    """The wiring of devices whose matrix, if there is one, fits."""
    wiring, mismatch = wire(devices, in_pool or pool(), devices)
    assert mismatch is None
    return wiring


# What attributes say.


@pytest.mark.parametrize(
    ("one", "other", "expected", "rank", "level"),
    [
        pytest.param({}, {}, (UNKNOWN,) * 4, 4, "SYS", id="nothing is known"),
        pytest.param({"pcieSwitch": "s"}, {"pcieSwitch": "s"}, (UNKNOWN, MET, MET, MET), 1, "PIX", id="one switch"),
        pytest.param(
            {"pcieSwitch": "s"}, {"pcieSwitch": "t"}, (UNKNOWN, UNMET, UNKNOWN, UNKNOWN), 4, "SYS", id="two switches"
        ),
        pytest.param(
            {"pcieRoot": "r"},
            {"pcieRoot": "r"},
            (UNKNOWN, UNKNOWN, MET, MET),
            2,
            "PHB",
            id="a root complex never proves a switch",
        ),
        pytest.param(
            {"pcieRoot": "r"},
            {"pcieRoot": "s"},
            (UNKNOWN, UNKNOWN, UNMET, UNKNOWN),
            4,
            "SYS",
            id="two root complexes deny their own scope only",
        ),
        pytest.param({"numaNode": 0}, {"numaNode": 0}, (UNKNOWN, UNKNOWN, UNKNOWN, MET), 3, "NODE", id="one NUMA node"),
        pytest.param(
            {"numaNode": 0}, {"numaNode": 1}, (UNKNOWN, UNKNOWN, UNKNOWN, UNMET), 4, "SYS", id="two NUMA nodes"
        ),
        pytest.param(
            {"numaNode": 0, "pcieRoot": "r"},
            {"numaNode": 0, "pcieRoot": "s"},
            (UNKNOWN, UNKNOWN, UNMET, MET),
            3,
            "NODE",
            id="one NUMA node, two root complexes",
        ),
        pytest.param({"pcieRoot": "r"}, {}, (UNKNOWN,) * 4, 4, "SYS", id="known on one side only"),
        pytest.param({"pcieRoot": ""}, {"pcieRoot": ""}, (UNKNOWN,) * 4, 4, "SYS", id="an empty name is unknown"),
        pytest.param({"numaNode": -1}, {"numaNode": -1}, (UNKNOWN,) * 4, 4, "SYS", id="NUMA node -1 is unknown"),
        pytest.param(
            {"numaNode": "0"}, {"numaNode": 0}, (UNKNOWN, UNKNOWN, UNKNOWN, MET), 3, "NODE", id="digits in a string"
        ),
        pytest.param({"numaNode": "N/A"}, {"numaNode": "N/A"}, (UNKNOWN,) * 4, 4, "SYS", id="words are no NUMA node"),
        pytest.param({"numaNode": True}, {"numaNode": 1}, (UNKNOWN,) * 4, 4, "SYS", id="a bool is no NUMA node"),
        pytest.param(
            {"numaNode": (0, 1)},
            {"numaNode": (1, 2)},
            (UNKNOWN, UNKNOWN, UNKNOWN, MET),
            3,
            "NODE",
            id="lists with a common value",
        ),
        pytest.param(
            {"numaNode": (0, 1)},
            {"numaNode": (2, 3)},
            (UNKNOWN, UNKNOWN, UNKNOWN, UNMET),
            4,
            "SYS",
            id="lists without one",
        ),
        pytest.param({"numaNode": (-1,)}, {"numaNode": (-1,)}, (UNKNOWN,) * 4, 4, "SYS", id="a list of unknowns"),
        pytest.param({"numaNode": ()}, {"numaNode": ()}, (UNKNOWN,) * 4, 4, "SYS", id="empty lists"),
        pytest.param(
            {"pcieRoot": ("r", "s")},
            {"pcieRoot": "s"},
            (UNKNOWN, UNKNOWN, MET, MET),
            2,
            "PHB",
            id="a list and a value of it",
        ),
        pytest.param(
            {"pcieRoot": "1"}, {"pcieRoot": 1}, (UNKNOWN, UNKNOWN, UNMET, UNKNOWN), 4, "SYS", id="a string is no number"
        ),
        pytest.param(
            {"pcieSwitch": "s", "numaNode": 0},
            {"pcieSwitch": "s", "numaNode": 1},
            (UNKNOWN, MET, MET, MET),
            1,
            "PIX",
            id="the nearer of two facts that differ",
        ),
    ],
)
def test_what_attributes_prove(
    one: Mapping[str, AttributeValue],
    other: Mapping[str, AttributeValue],
    expected: tuple[Verdict, ...],
    rank: int,
    level: str,
) -> None:
    wiring = wired((gpu("g", **one), nic("n", **other)))
    assert verdicts(wiring) == verdicts(wiring, 1, 0) == (*expected, MET)
    assert wiring.rank == ((0, rank), (rank, 0))
    assert wiring.level == (("X", level), (level, "X"))
    assert [wiring.set_verdict(scope, 0b11) for scope in SCOPES] == [*expected, MET]


def test_a12_one_numa_node_is_not_one_root_complex() -> None:
    devices = (
        gpu("gpu", numaNode=0, pcieRoot="26"),
        nic("a", numaNode=0, pcieRoot="48"),
        nic("b", numaNode=0, pcieRoot="26"),
    )
    wiring = wired(devices)
    assert [pair_verdict(wiring, ROOT, 0, other) for other in (1, 2)] == [UNMET, MET]
    assert [pair_verdict(wiring, NUMA, 0, other) for other in (1, 2)] == [MET, MET]
    assert wiring.level[0][1:] == ("NODE", "PHB")
    assert wiring.rank[0][2] < wiring.rank[0][1]


def test_a13_drivers_with_their_own_keys_meet_through_the_pools_aliases() -> None:
    devices = (
        gpu("gpu", driver="gpu.vendor", pciRoot="pci0000:26"),
        nic("nic", driver="dra.net", resource_kubernetes_io__pcieRoot="pci0000:26"),
    )
    assert pair_verdict(wired(devices), ROOT, 0, 1) is UNKNOWN
    assert attribute_values(devices[0], pool(), "pcieRoot") is None
    mapped = pool(pcieRoot=(STANDARD_ROOT, "gpu.vendor/pciRoot"))
    assert pair_verdict(wired(devices, mapped), ROOT, 0, 1) is MET
    assert attribute_values(devices[0], mapped, "pcieRoot") == {"pci0000:26"}


def test_a21_unknown_numa_nodes_do_not_match_each_other() -> None:
    devices = (gpu("gpu", numaNode=-1), nic("nic", driver="dra.net", numaNode=-1))
    assert pair_verdict(wired(devices), NUMA, 0, 1) is UNKNOWN
    for name in ("numaNode", "dra.net/numaNode", "adjoin.dev/numaNode"):
        assert [attribute_values(device, pool(), name) for device in devices] == [None, None]


def test_gb200_root_complexes_differ_and_the_gpus_numa_node_is_not_published() -> None:
    devices = (
        gpu("gpu-0", driver="gpu.nvidia.com", resource_kubernetes_io__pcieRoot="pci0008:00"),
        nic("nic-0", driver="dra.net", resource_kubernetes_io__pcieRoot="pci0000:00", numaNode=0),
    )
    assert verdicts(wired(devices)) == (UNKNOWN, UNKNOWN, UNMET, UNKNOWN, MET)


# Where a fact is read from.


@pytest.mark.parametrize(
    ("attributes", "aliases", "name", "expected"),
    [
        pytest.param({"x_y__rail": 3}, {}, "x.y/rail", {3}, id="full name"),
        pytest.param({"x_y__rail": (3, 4)}, {}, "x.y/rail", {3, 4}, id="a list is a set"),
        pytest.param({"x_y__rail": ()}, {}, "x.y/rail", None, id="an empty list is unknown"),
        pytest.param({}, {}, "x.y/rail", None, id="absent"),
        pytest.param({"x_y__rail": False}, {}, "x.y/rail", {False}, id="false is a value"),
        pytest.param({"x_y__rail": ""}, {}, "x.y/rail", {""}, id="an empty string of no known meaning is a value"),
        pytest.param({"x_y__rail": -1}, {}, "x.y/rail", {-1}, id="a negative number of no known meaning is a value"),
        pytest.param(
            {"a_b__rail": 1, "x_y__rail": 2},
            {"rail": ("x.y/rail", "a.b/rail")},
            "rail",
            {2},
            id="alias: the first present key",
        ),
        pytest.param({"a_b__rail": 1}, {"rail": ("x.y/rail", "a.b/rail")}, "rail", {1}, id="alias: the second key"),
        pytest.param({"rail": 1}, {}, "rail", {1}, id="a static attribute needs no alias"),
        pytest.param(
            {"rail": 1, "x_y__rail": 2},
            {"rail": ("x.y/rail",)},
            "rail",
            {2},
            id="the alias comes before the static attribute",
        ),
        pytest.param(
            {"numaNode": 1},
            {"numaNode": ("x.y/numa",)},
            "numaNode",
            {1},
            id="well-known static facts count beside an alias",
        ),
        pytest.param({"dra_net__numaNode": 1}, {}, "numaNode", {1}, id="default of numaNode"),
        pytest.param(
            {"dra_net__numaNode": 1, "resource_kubernetes_io__numaNode": 0},
            {},
            "numaNode",
            {0},
            id="the standard key comes first",
        ),
        pytest.param(
            {"dra_net__numaNode": 1},
            {"numaNode": (STANDARD_NUMA,)},
            "numaNode",
            None,
            id="an alias replaces the default",
        ),
        pytest.param(
            {"resource_kubernetes_io__numaNode": -1, "dra_net__numaNode": 1},
            {},
            "numaNode",
            None,
            id="the first present key wins although it says nothing",
        ),
        pytest.param(
            {"resource_kubernetes_io__pcieRoot": "pci0000:10"}, {}, "pcieRoot", {"pci0000:10"}, id="default of pcieRoot"
        ),
        pytest.param(
            {"resource_kubernetes_io__pcieRoot": ""},
            {},
            STANDARD_ROOT,
            None,
            id="an empty root complex under its full name",
        ),
        pytest.param(
            {"x_y__numa": -1},
            {"numaNode": ("x.y/numa",)},
            "x.y/numa",
            None,
            id="-1 under a full name that the alias lists",
        ),
        pytest.param({"x_y__numaNode": (0, -1, 1)}, {}, "x.y/numaNode", {0, 1}, id="-1 in a list is no value"),
        pytest.param({"pcieSwitch": "s"}, {}, "pcieSwitch", {"s"}, id="static switch"),
        pytest.param(
            {"resource_kubernetes_io__pcieSwitch": "s"},
            {},
            "pcieSwitch",
            None,
            id="there is no standard key for a switch",
        ),
    ],
)
def test_reading_of_attributes(
    attributes: Mapping[str, AttributeValue],
    aliases: Mapping[str, tuple[str, ...]],
    name: str,
    expected: set[AttributeValue] | None,
) -> None:
    assert attribute_values(gpu("g", **attributes), pool(**aliases), name) == expected


def test_keys_of_an_alias() -> None:
    assert attribute_keys(pool(), "pcieRoot") == (STANDARD_ROOT, "adjoin.dev/pcieRoot")
    assert attribute_keys(pool(pcieRoot=("a/b", "adjoin.dev/pcieRoot", "c/d")), "pcieRoot") == (
        "a/b",
        "adjoin.dev/pcieRoot",
        "c/d",
    )
    assert attribute_keys(pool(), "x/y") == ("x/y",)


# What cells say.


@pytest.mark.parametrize(
    ("word", "expected", "rank", "level", "fine"),
    [
        pytest.param(
            "NV18",
            (MET, MET, MET, UNKNOWN),
            0,
            "NVLink",
            MOST_LINKS - 18,
            id="NVLink is nearer than PCIe and says nothing about NUMA",
        ),
        pytest.param("NV1", (MET, MET, MET, UNKNOWN), 0, "NVLink", MOST_LINKS - 1, id="one link"),
        pytest.param("XGMI", (MET, MET, MET, UNKNOWN), 0, "NVLink", MOST_LINKS - 1, id="XGMI"),
        pytest.param("PIX", (UNMET, MET, MET, MET), 1, "PIX", 0, id="PIX"),
        pytest.param("PXB", (UNMET, MET, MET, MET), 1, "PXB", 1, id="PXB"),
        pytest.param("PHB", (UNMET, UNMET, MET, MET), 2, "PHB", 0, id="PHB"),
        pytest.param("NODE", (UNMET, UNMET, UNMET, MET), 3, "NODE", 0, id="NODE"),
        pytest.param("SYS", (UNMET, UNMET, UNMET, UNMET), 4, "SYS", 0, id="SYS"),
    ],
)
def test_what_a_cell_proves_between_gpus(
    word: str, expected: tuple[Verdict, ...], rank: int, level: str, fine: int
) -> None:
    wiring = wired((gpu("g0"), gpu("g1")), pool(text(2, 0, {(0, 1): word})))
    assert verdicts(wiring) == verdicts(wiring, 1, 0) == (*expected, MET)
    assert (wiring.rank[0][1], wiring.level[0][1], wiring.fine[0][1]) == (rank, level, fine)


@pytest.mark.parametrize(
    ("word", "one", "other", "expected", "level"),
    [
        pytest.param(
            "SYS", {"pcieRoot": "r"}, {"pcieRoot": "r"}, (UNMET, UNMET, MET, MET), "PHB", id="attributes are nearer"
        ),
        pytest.param(
            "PHB", {"pcieRoot": "r"}, {"pcieRoot": "s"}, (UNMET, UNMET, MET, MET), "PHB", id="the matrix is nearer"
        ),
        pytest.param(
            "NODE", {"pcieSwitch": "s"}, {"pcieSwitch": "s"}, (UNMET, MET, MET, MET), "PIX", id="a switch by attribute"
        ),
        pytest.param(
            "PXB",
            {"pcieSwitch": "s"},
            {"pcieSwitch": "s"},
            (UNMET, MET, MET, MET),
            "PXB",
            id="both: the matrix has the word",
        ),
        pytest.param(
            "NODE",
            {"numaNode": 0},
            {"numaNode": 1},
            (UNMET, UNMET, UNMET, MET),
            "NODE",
            id="NODE between a GPU and a NIC, whatever the attributes",
        ),
        pytest.param(
            "SYS",
            {"numaNode": 0},
            {"numaNode": (0, 1)},
            (UNMET, UNMET, UNMET, MET),
            "NODE",
            id="one NUMA node although the cell says SYS",
        ),
        pytest.param(
            "SYS",
            {"numaNode": -1},
            {"numaNode": -1},
            (UNMET, UNMET, UNMET, UNMET),
            "SYS",
            id="SYS and unknown NUMA nodes",
        ),
    ],
)
def test_matrix_and_attributes_together(
    word: str,
    one: Mapping[str, AttributeValue],
    other: Mapping[str, AttributeValue],
    expected: tuple[Verdict, ...],
    level: str,
) -> None:
    wiring = wired((gpu("g", **one), nic("n", **other)), pool(text(1, 1, {(0, 1): word})))
    assert verdicts(wiring) == (*expected, MET)
    assert wiring.level[0][1] == level


@pytest.mark.parametrize(
    ("word", "attributes", "column", "expected"),
    [
        pytest.param("NV18", ({}, {}), ("0", "0"), MET, id="NVLink, the column says one node"),
        pytest.param("NV18", ({}, {}), ("0", "1"), UNMET, id="NVLink, the column says two nodes"),
        pytest.param("NV18", ({}, {}), ("0", "N/A"), UNKNOWN, id="NVLink, one is not available"),
        pytest.param("NV18", ({}, {}), ("-1", "-1"), UNKNOWN, id="NVLink, both -1"),
        pytest.param("NV18", ({"numaNode": 1}, {}), ("0", "1"), MET, id="the attribute comes before the column"),
        pytest.param(
            "NV18", ({"numaNode": -1}, {}), ("1", "1"), MET, id="an attribute that says nothing leaves it to the column"
        ),
        pytest.param("NV18", ({}, {}), ("0-1", "1,2"), MET, id="range and list with a common node"),
        pytest.param("SYS", ({}, {}), ("0", "0"), MET, id="SYS within one node"),
        pytest.param("NODE", ({}, {}), ("0", "1"), UNMET, id="NODE between two nodes"),
        pytest.param("NODE", ({}, {}), ("0", "N/A"), MET, id="NODE where a node is unknown"),
        pytest.param("PIX", ({}, {}), ("0", "1"), MET, id="one switch is nearer than any number"),
    ],
)
def test_numa_nodes_decide_between_gpus(
    word: str, attributes: tuple[Mapping[str, AttributeValue], ...], column: tuple[str, str], expected: Verdict
) -> None:
    devices = (gpu("g0", **attributes[0]), gpu("g1", **attributes[1]))
    wiring = wired(devices, pool(text(2, 0, {(0, 1): word}, numa=column)))
    assert pair_verdict(wiring, NUMA, 0, 1) is expected
    assert wiring.islands[NUMA] == ((0b11,) if expected is MET else ())


def test_a_gpus_numa_node_from_the_column_meets_a_nics_attribute() -> None:
    # On Grace every GPU-NIC cell is SYS and the column may be a list: the CPU's node and the GPU's own.
    devices = (gpu("g0"), gpu("g1"), nic("n0", driver="dra.net", numaNode=0), nic("n1", driver="dra.net", numaNode=1))
    wiring = wired(devices, pool(text(2, 2, {(0, 1): "NV18"}, numa=("0,2-17", "1,18-33"))))
    assert [[pair_verdict(wiring, NUMA, g, n) for n in (2, 3)] for g in (0, 1)] == [[MET, UNMET], [UNMET, MET]]
    assert wiring.islands[NUMA] == (0b0101, 0b1010)


def test_cells_that_no_row_says_are_unknown() -> None:
    rows = text(2, 2, {(0, 2): "PIX", (1, 3): "PIX"}).splitlines()[:3]
    wiring = wired((gpu("g0"), gpu("g1"), nic("n0"), nic("n1")), pool("\n".join(rows)))
    assert verdicts(wiring, 2, 3) == (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MET)
    assert verdicts(wiring, 2, 0) == (UNMET, MET, MET, MET, MET)


def test_more_links_and_fewer_bridges_are_finer() -> None:
    words = {(0, 1): "NV12", (0, 2): "NV4", (0, 3): "PIX", (1, 3): "PXB"}
    wiring = wired((gpu("g0"), gpu("g1"), gpu("g2"), nic("n")), pool(text(3, 1, words)))
    assert wiring.fine[0][1] < wiring.fine[0][2]
    assert wiring.fine[0][3] < wiring.fine[1][3]


def test_a14_nvlink_partners_are_islands_and_not_neighbours_by_index() -> None:
    linked = {(0, 2): "NV12", (1, 3): "NV12", (4, 5): "NV12", (6, 7): "NV12"}
    wiring = wired([gpu(f"g{index}") for index in range(8)], pool(text(8, 0, linked)))
    for one, other in combinations(range(8), 2):
        assert (pair_verdict(wiring, NVLINK, one, other) is MET) == ((one, other) in linked)
    assert wiring.islands[NVLINK] == (0b101, 0b1010, 0b110000, 0b11000000)


# A set of devices of one request.


@pytest.mark.parametrize(
    ("numas", "expected"),
    [
        pytest.param([0, 0, 0], MET, id="one value"),
        pytest.param([0, 0, 1], UNMET, id="one differs"),
        pytest.param([0, 0, None], UNKNOWN, id="one is unknown"),
        pytest.param([0, 1, None], UNMET, id="what is known suffices to say no"),
        pytest.param([(0, 1), (1, 2), (0, 2)], UNMET, id="every pair shares a value, but the set does not"),
        pytest.param([(0, 1), (1, 2), (1, 3)], MET, id="lists that share a value"),
        pytest.param([(0, 1), 1, (1, 2)], MET, id="lists and a value"),
        pytest.param([(0, 1)], MET, id="one device is with itself"),
        pytest.param([None], MET, id="also when nothing is known of it"),
    ],
)
def test_a_set_of_one_request(numas: Sequence[AttributeValue | None], expected: Verdict) -> None:
    attributes: list[dict[str, AttributeValue]] = [{} if numa is None else {"numaNode": numa} for numa in numas]
    wiring = wired([gpu(f"g{index}", **facts) for index, facts in enumerate(attributes)])
    assert wiring.set_verdict(NUMA, (1 << len(numas)) - 1) is expected


def test_lists_need_no_common_value_where_the_matrix_proves_the_pair() -> None:
    numas = ((0, 1), (1, 2), (0, 2))
    devices = [nic(f"n{index}", numaNode=numa) for index, numa in enumerate(numas)]
    every = wired(devices, pool(text(1, 3, {}, rest="NODE")))
    assert every.set_verdict(NUMA, 0b111) is MET
    # n0 and n1 on one switch have one NUMA node, which can only be 1; n2 is not there.
    one_pair = wired(devices, pool(text(1, 3, {(1, 2): "PIX"})))
    assert one_pair.set_verdict(SWITCH, 0b011) is MET
    assert one_pair.set_verdict(NUMA, 0b011) is MET
    assert one_pair.set_verdict(NUMA, 0b111) is UNMET
    assert NUMA in one_pair.listed


def test_without_lists_a_clique_is_enough() -> None:
    wiring = wired([gpu("a", pcieRoot="r", numaNode=0), gpu("b", pcieRoot="r", numaNode=1)])
    assert wiring.listed == frozenset()


def test_nvlinked_gpus_of_two_root_complexes_meet_pcie_scopes_as_a_set() -> None:
    devices = [gpu(f"g{index}", pcieRoot=f"r{index}") for index in range(4)]
    wiring = wired(devices, pool(text(4, 0, {}, rest="NV18", numa=("0", "0", "1", "1"))))
    assert [wiring.set_verdict(scope, 0b1111) for scope in SCOPES] == [MET, MET, MET, UNMET, MET]
    assert wiring.set_verdict(NUMA, 0b0011) is MET


# Matrices that do not fit.


@pytest.mark.parametrize(
    ("matrix", "gpu_ids", "message"),
    [
        pytest.param("", (), "the ConfigMap or its key is absent, or the text is empty", id="absent"),
        pytest.param(
            text(2, 1, {}).replace("GPU1\tSYS", "GPU1\tHT"),
            (),
            "line 3: row GPU1, column GPU0: unknown word HT; known are X, NV<links>, XGMI, PIX, PXB, PHB, NODE and SYS",
            id="refused with its line",
        ),
        pytest.param(
            text(3, 1, {}), (), "the matrix has 3 GPU rows, the node has 2 GPUs in all pools", id="GPUs do not count up"
        ),
        pytest.param(
            text(2, 2, {}), (), "the matrix has 2 NIC rows, the node has 1 RDMA device in all pools", id="nor do NICs"
        ),
        pytest.param(
            text(2, 1, {}),
            ("0000:01:00.0",),
            "the list of GPUs beside it has 1 entry, the matrix 2 GPU rows",
            id="list of GPUs too short",
        ),
    ],
)
def test_a_matrix_that_does_not_fit_is_not_used(matrix: str, gpu_ids: tuple[str, ...], message: str) -> None:
    devices = (gpu("g0", pcieRoot="r"), gpu("g1", pcieRoot="s"), nic("n", pcieRoot="r"))
    wiring, mismatch = wire(devices, pool(matrix, gpu_ids), devices)
    assert mismatch is not None
    assert (mismatch.node, mismatch.source, mismatch.message) == ("n1", "wires/topo", message)
    assert wiring is wired(devices), "attributes alone decide"


def test_rows_are_counted_over_the_devices_of_all_pools() -> None:
    matrix = text(4, 0, {(0, 1): "NV12", (2, 3): "NV12"})
    beside = [gpu(f"g{index}") for index in range(4)]
    wiring, mismatch = wire(beside[1:3], pool(matrix), beside)
    assert mismatch is None
    assert wiring.level[0][1] == "SYS"
    wiring, mismatch = wire(beside[2:], pool(matrix), beside)
    assert mismatch is None
    assert wiring.level[0][1] == "NVLink"
    wiring, mismatch = wire(beside[2:], pool(matrix), beside[2:])
    assert mismatch is not None
    assert wiring.level[0][1] == "SYS"


def test_other_devices_have_no_row() -> None:
    other = Device(DeviceID("x", "n1", "d"), "n1", "p", "disk", DeviceType.OTHER, "n1/d", {STANDARD_NUMA: 0}, {})
    devices = (other, gpu("g0", numaNode=0), gpu("g1"))
    wiring = wired(devices, pool(text(2, 0, {(0, 1): "PIX"})))
    assert wiring.level[1][2] == "PIX"
    assert verdicts(wiring, 0, 1) == (UNKNOWN, UNKNOWN, UNKNOWN, MET, MET)
    assert verdicts(wiring, 0, 2) == (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MET)


def test_no_devices() -> None:
    wiring, mismatch = wire((), pool("nonsense"), ())
    assert (wiring.size, wiring.rank, mismatch) == (0, (), None)


# One shape, one object.


def test_nodes_of_one_shape_share_one_wiring() -> None:
    matrix = text(4, 4, {(index, index + 4): "PIX" for index in range(4)}, numa=("0", "0", "1", "1"))
    names = [f"node-{index}" for index in range(300)]
    in_pool = pool(matrix, nodes=names)
    found = set()
    for node in names:
        devices = [
            gpu(
                f"gpu-{index}",
                "gpu.nvidia.com",
                node,
                uuid=f"GPU-{node}-{index}",
                resource_kubernetes_io__pcieRoot=f"{node}-{index // 2}",
            )
            for index in range(4)
        ] + [
            nic(f"nic-{index}", "dra.net", node, rdmaDevice=f"mlx5_{index}", mac=f"{node}:{index}")
            for index in range(4)
        ]
        wiring, mismatch = wire(devices, in_pool, devices)
        assert mismatch is None
        found.add(wiring)
    assert len(found) == 1


def test_what_wiring_depends_on_makes_another_shape() -> None:
    base = [gpu("a", pcieRoot="r", numaNode=0), gpu("b", pcieRoot="r", numaNode=0)]
    others = [
        [gpu("a", pcieRoot="r", numaNode=0), gpu("b", pcieRoot="s", numaNode=0)],
        [gpu("a", pcieRoot="r", numaNode=0), gpu("b", pcieRoot="r", numaNode=1)],
        [gpu("a", pcieRoot="r", numaNode=0), gpu("b", pcieRoot="r")],
        [gpu("a", pcieRoot="r", numaNode=0), gpu("b", pcieRoot="r", numaNode=(0, 1))],
        [gpu("a", pcieRoot="r", numaNode=0), gpu("b", pcieRoot="r", numaNode=0, pcieSwitch="s")],
        [*base, gpu("c", pcieRoot="r", numaNode=0)],
    ]
    wirings = {wired(devices) for devices in (base, *others)}
    assert len(wirings) == len(others) + 1
    respelled = [gpu("x", pcieRoot="q", numaNode=0), gpu("y", pcieRoot="q", numaNode=0)]
    assert wired(respelled) is wired(base)


def test_what_is_kept_is_found_by_value_and_type() -> None:
    # True equals 1 in Python: what was found for one must not be the answer for the other.
    assert pair_verdict(wired([gpu("a", numaNode=1), gpu("b", numaNode=1)]), NUMA, 0, 1) is MET
    assert pair_verdict(wired([gpu("a", numaNode=True), gpu("b", numaNode=True)]), NUMA, 0, 1) is UNKNOWN
    assert pair_verdict(wired([gpu("a", numaNode=1), gpu("b", numaNode=1)]), NUMA, 0, 1) is MET


def test_one_matrix_with_uuids_serves_only_the_node_it_lists() -> None:
    matrix = text(2, 1, {(0, 2): "PIX"})
    in_pool = pool(matrix, gpu_ids=("GPU-n1-1", "GPU-n1-0"), nodes=("n1", "n2"))
    for node in ("n1", "n2"):
        devices = [
            *(gpu(f"gpu-{index}", "gpu.nvidia.com", node, uuid=f"GPU-{node}-{index}") for index in range(2)),
            nic("nic", "dra.net", node),
        ]
        wiring, mismatch = wire(devices, in_pool, devices)
        if node == "n1":
            assert mismatch is None
            assert wiring.level[2] == ("SYS", "PIX", "X")
        else:
            assert mismatch is not None
            assert mismatch.message == "GPU gpu-0 is not in the list of GPUs beside it"
            assert verdicts(wiring, 0, 2) == (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, MET)


def test_wiring_follows_the_order_in_which_devices_are_given() -> None:
    beside = [gpu("g0"), gpu("g1"), nic("n0"), nic("n1")]
    in_pool = pool(text(2, 2, {(0, 2): "PIX", (1, 3): "PXB"}))
    wiring, mismatch = wire([beside[3], beside[1], beside[0]], in_pool, beside)
    assert mismatch is None
    assert wiring.level == (("X", "PXB", "SYS"), ("PXB", "X", "SYS"), ("SYS", "SYS", "X"))


# Texts that are no matrix.


XML_MACHINE = [
    gpu("g0", pciBusID="0000:03:00.0"),
    gpu("g1", pciBusID="0000:04:00.0"),
    gpu("g2", pciBusID="0000:08:00.0"),
    gpu("g3", pciBusID="0000:81:00.0"),
    nic("n0", pciBusID="0000:05:00.0"),
    nic("n2", pciBusID="0000:82:00.0"),
]
G0, G1, G2, G3, N0, N2 = range(6)


@pytest.mark.parametrize(
    ("text", "one", "other", "expected", "level"),
    [
        pytest.param(NCCL, G0, G1, (MET, MET, MET, MET), "NVLink", id="NCCL: NVLink"),
        pytest.param(NCCL, G0, G2, (UNMET, MET, MET, MET), "PXB", id="NCCL: two switches, no NVLink"),
        pytest.param(NCCL, G0, N0, (UNMET, MET, MET, MET), "PIX", id="NCCL: one switch"),
        pytest.param(
            NCCL, G3, N2, (UNMET, UNMET, UNKNOWN, MET), "NODE", id="NCCL: one NUMA node leaves the root complex open"
        ),
        pytest.param(NCCL, G0, N2, (UNMET,) * 4, "SYS", id="NCCL: two NUMA nodes"),
        pytest.param(HWLOC, G0, G1, (UNKNOWN, MET, MET, MET), "PIX", id="hwloc says nothing of NVLinks"),
        pytest.param(HWLOC, G0, G3, (UNKNOWN, UNMET, UNMET, UNMET), "SYS", id="hwloc: two NUMA nodes"),
        pytest.param(HWLOC, G3, N2, (UNMET, UNMET, MET, MET), "PHB", id="hwloc: one host bridge"),
        pytest.param(
            HWLOC.replace('nodeset="0x00000001"', 'nodeset="0x00000003"').replace("0x00000002", "0x00000003"),
            G0,
            N2,
            (UNMET, UNMET, UNMET, UNKNOWN),
            "SYS",
            id="hwloc: two host bridges whose NUMA nodes nobody knows",
        ),
    ],
)
def test_what_xml_proves(text: str, one: int, other: int, expected: tuple[Verdict, ...], level: str) -> None:
    wiring = wired(XML_MACHINE, pool(text))
    assert verdicts(wiring, one, other)[:-1] == expected
    assert wiring.level[one][other] == level


def test_numa_nodes_of_xml_are_known_for_nics_too() -> None:
    wiring = wired(XML_MACHINE, pool(NCCL))
    assert wiring.numa == tuple(frozenset({node}) for node in (0, 0, 0, 1, 0, 1))


def test_an_attribute_proves_the_root_complex_that_nccl_leaves_open() -> None:
    devices = [
        gpu("g3", pciBusID="0000:81:00.0", pcieRoot="pci0000:80"),
        nic("n2", pciBusID="0000:82:00.0", pcieRoot="pci0000:80"),
    ]
    assert verdicts(wired(devices, pool(NCCL)))[:-1] == (UNMET, UNMET, MET, MET)


def test_xml_that_does_not_fit_the_node_is_not_used() -> None:
    devices = [*XML_MACHINE, gpu("g9", pciBusID="0000:c1:00.0")]
    wiring, mismatch = wire(devices, pool(NCCL), devices)
    assert mismatch is not None
    assert mismatch.message == "GPU g9 sits at 0000:c1:00.0, which is not among its 4 GPUs and 3 NICs"
    assert wiring.level[G0][G1] == "SYS"


def test_xml_that_is_damaged_is_not_used_and_names_its_line() -> None:
    _, mismatch = wire(XML_MACHINE, pool(NCCL.replace("</nic>", "", 1)), XML_MACHINE)
    assert mismatch is not None
    assert mismatch.message == "line 18: no well-formed XML: mismatched tag"


def test_one_xml_is_read_for_all_nodes_of_its_shape() -> None:
    """Also where devices are known by the address in their hardware id alone, as a card is that has vanished."""
    both = pool(NCCL, nodes=("n1", "n2"))
    made = []
    for node in ("n1", "n2"):
        device = Device(
            DeviceID("gpu.example.com", node, "g"), node, "p", "GPU", DeviceType.GPU, "0000:03:00.0", {}, {}
        )  # fmt: skip
        beside = [device, nic("n0", node=node, pciBusID="0000:05:00.0")]
        made.append(wire(beside, both, beside)[0])
    assert made[0] is made[1]
    assert made[0].level[0][1] == "PIX"


def test_parts_of_a_card_share_its_row_and_are_near_to_each_other() -> None:
    parts = [gpu("g0-part-0", pciBusID="0000:03:00.0"), gpu("g0-part-1", pciBusID="0000:03:00.0")]
    assert verdicts(wired(parts, pool(NCCL)))[:-1] == (UNMET, MET, MET, MET)


def test_rocm_smi_proves_links_and_numa_nodes_only() -> None:
    wiring = wired([gpu("g0"), gpu("g1"), gpu("g2")], pool(ROCM))
    assert verdicts(wiring, 0, 1)[:-1] == (MET, MET, MET, MET)
    assert verdicts(wiring, 0, 2)[:-1] == (UNMET, UNKNOWN, UNKNOWN, UNKNOWN)
    assert wiring.level[0] == ("X", "NVLink", "SYS")
    assert wiring.numa == (frozenset({0}), frozenset({0}), None)


def test_xml_tells_the_switch_of_gpus_that_nvlinks_join() -> None:
    """A matrix has one word for a pair; then the switch shows only by a NIC that shares it."""
    pair = XML_MACHINE[:2]
    wiring = wired(pair, pool(NCCL))
    assert wiring.level[0][1] == "NVLink"
    assert wiring.islands[SWITCH] == wiring.islands[ROOT] == wiring.islands[NUMA] == wiring.islands[NVLINK] == (0b11,)
    without_xml = wired([gpu("g0"), gpu("g1")], pool(text(2, 0, {(0, 1): "NV4"})))
    assert without_xml.islands[SWITCH] == ()


# Islands and the graph.


def test_islands_nest_and_nvlink_does_not_join_switches() -> None:
    words = dict.fromkeys(combinations(range(4), 2), "NV18")
    words |= {(0, 4): "PIX", (1, 4): "PXB", (2, 5): "PHB", (3, 5): "NODE"}
    devices = [gpu(f"g{index}") for index in range(4)] + [nic("n0"), nic("n1")]
    wiring = wired(devices, pool(text(4, 2, words, numa=("0", "0", "1", "1"))))
    assert wiring.islands == {
        NVLINK: (0b001111,),
        SWITCH: (0b010011,),
        ROOT: (0b010011, 0b100100),
        NUMA: (0b010011, 0b101100),
        NODE: (0b111111,),
    }


def test_a_device_between_two_numa_nodes_does_not_join_them() -> None:
    numas: tuple[AttributeValue, ...] = (0, 0, 1, 1, (0, 1), (0, 1))
    wiring = wired([gpu(f"g{index}", numaNode=numa) for index, numa in enumerate(numas)])
    assert wiring.islands[NUMA] == (0b000011, 0b001100, 0b110000)
    assert pair_verdict(wiring, NUMA, 0, 4) is MET


def test_the_graph_is_a_tree_with_nvlink_across_and_its_ways_tell_the_level() -> None:
    words = {(0, 1): "NV18", (0, 2): "PIX", (1, 3): "PHB"}
    devices = [gpu("g0"), gpu("g1"), nic("n0", numaNode=0), nic("n1", numaNode=1), nic("n2", numaNode=1)]
    wiring = wired(devices, pool(text(2, 3, words, numa=("0", "1"))))
    net = graph(devices, wiring)
    linked = [(one, other) for one, other, level in net.edges(data="level") if level == "NVLink"]
    assert [{vertex[1].device for vertex in link} for link in linked] == [{"g0", "g1"}]  # type: ignore[index]
    tree: nx.Graph[Hashable] = nx.Graph(net)
    tree.remove_edges_from(linked)
    assert nx.is_tree(tree)
    words_far = ("PIX", "PHB", "NODE", "SYS")
    for one, other in combinations(range(len(devices)), 2):
        if wiring.level[one][other] != "NVLink":
            way = nx.shortest_path(tree, ("device", devices[one].id), ("device", devices[other].id))
            farthest = max(words_far.index(tree.edges[edge]["level"]) for edge in pairwise(way))
            assert words_far[farthest] == wiring.level[one][other]


# Rules that hold for any node.

FACTS = st.fixed_dictionaries(
    {},
    optional={
        "pcieSwitch": st.sampled_from(["s", "t"]),
        "pcieRoot": st.sampled_from(["r", "q", ""]),
        "numaNode": st.sampled_from([-1, 0, 1, (0, 1), (1, 2), (0, 2)]),
    },
)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[Device], str | None]:
    """Up to four GPUs and three NICs with random facts and, mostly, a random matrix."""
    gpus = [gpu(f"g{index}", **draw(FACTS)) for index in range(draw(st.integers(1, 4)))]
    nics = [nic(f"n{index}", **draw(FACTS)) for index in range(draw(st.integers(0, 3)))]
    count = len(gpus) + len(nics)
    if draw(st.integers(0, 3)) == 0:
        return gpus + nics, None
    word = st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS"])
    words = {
        (one, other): draw(st.one_of(word, st.just("NV4")) if other < len(gpus) else word)
        for one, other in combinations(range(count), 2)
    }
    numa = draw(st.lists(st.sampled_from(["0", "1", "0-1", "N/A", "-1"]), min_size=len(gpus), max_size=len(gpus)))
    return gpus + nics, text(len(gpus), len(nics), words, numa=numa)


def read_again(devices: Sequence[Device], matrix: str | None, scope: Scope, one: int, other: int) -> Verdict:
    """A second reading of the rules, made to be read: from the words and attributes themselves, one scope at a time."""
    lines = [line.split("\t") for line in matrix.splitlines()] if matrix else []
    word = lines[1 + one][1 + other] if matrix else ""
    gpus = sum(device.type is DeviceType.GPU for device in devices)

    def values(fact: str, index: int) -> set[object]:
        value = devices[index].attributes.get(f"adjoin.dev/{fact}")
        known = {part for part in (value if isinstance(value, tuple) else (value,)) if part not in (None, "", -1)}
        if fact == "numaNode" and not known and matrix and index < gpus:
            column = {"0": {0}, "1": {1}, "0-1": {0, 1}}
            return set(column.get(lines[1 + index][-1], set()))
        return known

    own = {SWITCH: ("PIX", "PXB"), ROOT: ("PHB",), NUMA: ("NODE",)}
    facts = {SWITCH: "pcieSwitch", ROOT: "pcieRoot", NUMA: "numaNode"}
    if scope is NODE or (scope is NVLINK and word == "NV4"):
        return MET
    if scope is NVLINK:
        return UNMET if word else UNKNOWN
    both_known = bool(values("numaNode", one) and values("numaNode", other))
    for nearer in (SWITCH, ROOT, NUMA)[: scope.rank]:
        by_numbers = nearer is NUMA and one < gpus and other < gpus and both_known
        if values(facts[nearer], one) & values(facts[nearer], other) or (word in own[nearer] and not by_numbers):
            return MET
    if word == "NV4" and scope is not NUMA:
        return MET
    if values(facts[scope], one) and values(facts[scope], other):
        return UNMET
    return UNMET if word and word != "NV4" else UNKNOWN


@given(node=nodes())
def test_verdicts_agree_with_a_second_reading_of_the_rules(node: tuple[list[Device], str | None]) -> None:
    devices, matrix = node
    wiring = wired(devices, pool(matrix))
    for one in range(len(devices)):
        for other in range(len(devices)):
            if one != other:
                expected = tuple(read_again(devices, matrix, scope, one, other) for scope in SCOPES)
                assert verdicts(wiring, one, other) == expected
                assert wiring.rank[one][other] == expected.index(MET)


@given(node=nodes())
def test_tables_are_consistent(node: tuple[list[Device], str | None]) -> None:
    devices, matrix = node
    wiring = wired(devices, pool(matrix))
    everything = (1 << len(devices)) - 1
    for scope in SCOPES:
        for one in range(len(devices)):
            assert not wiring.met[scope][one] & wiring.unknown[scope][one]
            assert not (wiring.met[scope][one] | wiring.unknown[scope][one]) >> one & 1
            assert wiring.by_facts[scope][one] & ~wiring.met[scope][one] == 0
            assert wiring.met[scope][one] | wiring.unknown[scope][one] <= everything
        members = [device for mask in wiring.islands[scope] for device in bits(mask)]
        assert len(members) == len(set(members))
        for mask in range(1, everything + 1):
            found = wiring.set_verdict(scope, mask)
            pairs = {pair_verdict(wiring, scope, one, other) for one, other in combinations(bits(mask), 2)}
            if UNMET in pairs:
                assert found is UNMET
            elif UNKNOWN in pairs:
                assert found is UNKNOWN
            elif scope not in wiring.listed:
                assert found is MET
    for island in wiring.islands[SWITCH]:
        assert any(island & ~wider == 0 for wider in wiring.islands[ROOT])
    for island in wiring.islands[ROOT]:
        assert any(island & ~wider == 0 for wider in wiring.islands[NUMA])


@given(node=nodes(), data=st.data())
def test_the_order_of_devices_does_not_matter(node: tuple[list[Device], str | None], data: st.DataObject) -> None:
    devices, matrix = node
    places = data.draw(st.permutations(range(len(devices))))
    straight = wired(devices, pool(matrix))
    turned = wired([devices[place] for place in places], pool(matrix))
    for one, first in enumerate(places):
        for other, second in enumerate(places):
            assert turned.rank[one][other] == straight.rank[first][second]
            assert turned.fine[one][other] == straight.fine[first][second]
            assert turned.level[one][other] == straight.level[first][second]
            if one != other:
                assert verdicts(turned, one, other) == verdicts(straight, first, second)


# Captured machines.


@needs_shared
@pytest.mark.parametrize(
    ("name", "gpus", "nics", "nvlink", "switches", "numa_nodes"),
    [
        pytest.param("b200_gke_a4_highgpu_8g.txt", 8, 8, 1, 4, 2, id="B200: two GPUs and two NICs a switch"),
        pytest.param("h100_8gpu_9nic_reversed_rails.txt", 8, 9, 1, 8, 2, id="H100: one NIC a GPU, in reverse"),
        pytest.param("a6000_8gpu_nvlink_pairs_2nic.txt", 8, 2, 4, 1, 2, id="A6000: NVLink pairs, one dual-port NIC"),
        pytest.param("dgx_a100_12nic.txt", 8, 12, 1, 6, 6, id="DGX A100: two storage cards, of unknown NUMA node"),
        pytest.param("h200_8gpu_4nic_baremetal.txt", 8, 4, 1, 4, 2, id="H200: two GPUs a NIC"),
        pytest.param("gb200_oke_bm_gpu_gb200_v3_4.txt", 4, 8, 1, 0, 0, id="GB200: nothing but NVLink"),
        pytest.param("rtx4090_8gpu_2nic.txt", 8, 2, 0, 1, 2, id="RTX 4090: the column is the only sign of NUMA"),
        pytest.param("vm_4gpu_2nic_allsys.txt", 4, 2, 0, 1, 2, id="a flattened machine, NICs of unknown NUMA node"),
    ],
)
def test_islands_of_captured_machines(
    name: str, gpus: int, nics: int, nvlink: int, switches: int, numa_nodes: int
) -> None:
    devices = [gpu(f"gpu-{index}") for index in range(gpus)] + [nic(f"nic-{index}") for index in range(nics)]
    wiring = wired(devices, pool(shared(f"data/topo/{name}").read_text()))
    assert [len(wiring.islands[scope]) for scope in (NVLINK, SWITCH, NUMA)] == [nvlink, switches, numa_nodes]


@needs_shared
def test_reversed_rails_are_found_by_the_matrix() -> None:
    devices = [gpu(f"gpu-{index}") for index in range(8)] + [nic(f"nic-{index}") for index in range(9)]
    matrix = shared("data/topo/h100_8gpu_9nic_reversed_rails.txt").read_text()
    wiring = wired(devices, pool(matrix))
    for index in range(8):
        assert list(bits(wiring.met[SWITCH][index] >> 8)) == [8 - index]
