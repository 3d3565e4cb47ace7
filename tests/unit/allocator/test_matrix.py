"""Reading the text of `nvidia-smi topo -m`: what is there is read, what is damaged is refused, nothing is shifted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.shared import needs_shared, shared

from adjoin_allocator.matrix import Matrix, MatrixError, nvlinks, parse_matrix

PLAIN = """\
\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tPIX\tSYS\t0-63\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tPXB\t64-127\t1\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tPXB\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""


def shown(matrix: Matrix) -> tuple[object, ...]:
    """Everything a matrix says, to compare two."""
    return matrix.gpus, matrix.nics, matrix.nic_devices, matrix.cells, matrix.numa


def test_reads_all_parts_of_the_table() -> None:
    matrix = parse_matrix(PLAIN)
    assert matrix.gpus == ("GPU0", "GPU1")
    assert matrix.nics == ("NIC0", "NIC1")
    assert matrix.nic_devices == ("mlx5_0", "mlx5_bond_0")
    assert matrix.cells == (
        ("X", "NV12", "PIX", "SYS"),
        ("NV12", "X", "SYS", "PXB"),
        ("PIX", "SYS", "X", "SYS"),
        ("SYS", "PXB", "SYS", "X"),
    )
    assert matrix.numa == (frozenset({0}), frozenset({1}), None, None)


LINES = PLAIN.splitlines(keepends=True)
HEADER = LINES[0].rstrip()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n\n  \n" + PLAIN, id="leading blank lines"),
        pytest.param("# node-a, 2026\n" + PLAIN.replace("NIC1\tSYS", "# a note\nNIC1\tSYS"), id="lines with #"),
        pytest.param(
            PLAIN.replace("\tGPU0\t", "\t\x1b[4mGPU0\t").replace("GPU NUMA ID", "GPU NUMA ID\x1b[0m"), id="ANSI"
        ),
        pytest.param(PLAIN.replace("\tGPU0\t", "\t[4mGPU0\t").replace("GPU NUMA ID", "GPU NUMA ID[0m"), id="ANSI torn"),
        pytest.param(PLAIN.replace("\n", "\r\n"), id="Windows line ends"),
        pytest.param(PLAIN.expandtabs(8), id="tabs turned into spaces"),
        pytest.param(PLAIN.expandtabs(14), id="wide columns"),
        pytest.param(
            re.sub(r"[ \t]+", " ", HEADER) + PLAIN.removeprefix(HEADER), id="header with spaces, rows with tabs"
        ),
        pytest.param(PLAIN.replace("\n", "\n\n"), id="every second line blank"),
        pytest.param("\ufeff" + PLAIN, id="byte order mark"),
        pytest.param("operator@node-a:~$ nvidia-smi topo -m\n" + PLAIN, id="prompt above"),
        pytest.param(PLAIN + "\noperator@node-a:~$ \n", id="prompt below"),
        pytest.param(PLAIN.replace("mlx5_0\n", "mlx5_0 (ib0)\n"), id="a remark behind a legend entry"),
        pytest.param(PLAIN.replace("NIC Legend", "GPU0: hot today\nNIC0: fine\n\nNIC Legend"), id="remarks below"),
        pytest.param(PLAIN + "\n  Source: the rack's wiki\n", id="a remark below the legend"),
    ],
)
def test_dress_of_the_text_changes_nothing(text: str) -> None:
    assert shown(parse_matrix(text)) == shown(parse_matrix(PLAIN))


def test_missing_nic_rows_are_read_by_symmetry_and_what_no_row_says_is_unknown() -> None:
    gpus, nics, names, cells, numa = shown(parse_matrix(PLAIN))
    without_one = parse_matrix("".join(line for line in LINES if not line.startswith("NIC1\t")))
    assert shown(without_one) == (gpus, nics, names, cells, numa)
    without_both = parse_matrix("".join(line for line in LINES if not line.startswith("NIC")))
    assert without_both.nics == nics
    assert without_both.cells == (
        ("X", "NV12", "PIX", "SYS"),
        ("NV12", "X", "SYS", "PXB"),
        ("PIX", "SYS", "X", None),
        ("SYS", "PXB", None, "X"),
    )


def test_rows_may_stand_in_another_order_than_columns() -> None:
    lines = PLAIN.splitlines()
    lines[1:5] = [lines[4], lines[2], lines[1], lines[3]]
    assert shown(parse_matrix("\n".join(lines))) == shown(parse_matrix(PLAIN))


def test_nic_columns_named_by_the_device_are_their_own_identity() -> None:
    text = PLAIN.split("NIC Legend")[0].replace("NIC0", "mlx5_0").replace("NIC1", "mlx5_bond_0")
    matrix = parse_matrix(text)
    assert matrix.nics == matrix.nic_devices == ("mlx5_0", "mlx5_bond_0")
    assert matrix.cells == parse_matrix(PLAIN).cells


def test_numbered_nic_columns_without_a_legend_have_no_identity() -> None:
    assert parse_matrix(PLAIN.split("NIC Legend")[0]).nic_devices == (None, None)


@pytest.mark.parametrize(
    ("side", "values", "numa"),
    [
        pytest.param("CPU Affinity\tNUMA Affinity", "0-7\t3", {3}, id="one node"),
        pytest.param("CPU Affinity\tNUMA Affinity", "0-7\t0,2", {0, 2}, id="list"),
        pytest.param("CPU Affinity\tNUMA Affinity", "0-7\t0-2", {0, 1, 2}, id="range"),
        pytest.param("CPU Affinity\tNUMA Affinity", "0-7\t0,2-4", {0, 2, 3, 4}, id="list with a range"),
        pytest.param("CPU Affinity\tNUMA Affinity", "0-7\tN/A", None, id="not available"),
        pytest.param("CPU Affinity\tNUMA Affinity", "0-7\t-1", None, id="minus one is unknown"),
        pytest.param("CPU Affinity", "0-7", None, id="old columns without NUMA Affinity"),
        pytest.param("", "", None, id="no columns beside the matrix"),
        pytest.param("NUMA Affinity\tCPU Affinity", "1\t0-7", {1}, id="other order"),
        pytest.param("Node Affinity\tCPU Affinity", "6\t96-111", {6}, id="the other vendor's name"),
        pytest.param(
            "CPU Affinity\tNUMA Affinity\tGPU NUMA ID", "0-7\t1\t\t2", {1}, id="the GPU's own node is another"
        ),
        pytest.param(
            "CPU Affinity\tNUMA Affinity\tGPU NUMA ID",
            "\t1\t\tN/A",
            None,
            id="a missing value moves no other to its place",
        ),
        pytest.param("CPU Affinity\tNUMA Affinity", "0-31,64-950", None, id="two values that grew together are none"),
        pytest.param("CPU Affinity\tNUMA Affinity", "", None, id="no values at all"),
    ],
)
def test_numa_affinity(side: str, values: str, numa: set[int] | None) -> None:
    matrix = parse_matrix(f"\tGPU0\tGPU1\t{side}\nGPU0\tX\tSYS\t{values}\nGPU1\tSYS\tX\t{values}\n")
    assert matrix.numa == (None if numa is None else frozenset(numa),) * 2


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        pytest.param(PLAIN, "", 0, "the text is empty", id="empty"),
        pytest.param(PLAIN, "\n# nothing\n\n", 0, "the text is empty", id="only a comment"),
        pytest.param(PLAIN, "\n\nhello\n", 3, "no line names GPU columns", id="some other text"),
        pytest.param(HEADER + "\n", "", 1, "row GPU0 stands above any header", id="header lost"),
        pytest.param(
            HEADER, HEADER.replace("\t", "| "), 2, "row GPU0 stands above any header", id="header of a markdown table"
        ),
        pytest.param("GPU NUMA ID", "Fan Speed", 1, "unknown column Fan", id="unknown column beside the matrix"),
        pytest.param("GPU1\tNIC0", "GPU0\tNIC0", 1, "column GPU0 is there twice", id="column twice"),
        pytest.param(
            "NIC0\tPIX\tSYS\t X \tSYS",
            "NIC0\tPIX\tSYS\t X",
            4,
            "row NIC0 has 3 cells, one for each of 4",
            id="NIC row cut off",
        ),
        pytest.param(
            "\tPIX\tSYS\t0-63", "\tPIX\t0-63", 2, "row GPU0 has 3 cells, one for each of 4", id="GPU row lost a cell"
        ),
        pytest.param(
            "\tNV12\tPIX\tSYS\t0",
            "\t\tPIX\tSYS\t0",
            2,
            "row GPU0 has 3 cells",
            id="an empty cell does not pull the rest over",
        ),
        pytest.param(
            "\tPIX\tSYS\t0-63", "\tPIX\tSYS\tSYS\t0-63", 2, "4 values beside the matrix", id="GPU row with a cell more"
        ),
        pytest.param(
            "\tSYS\t X \tSYS\n", "\tSYS\t X \tSYS\tSYS\tSYS\tSYS\tSYS\n", 4, "4 values beside", id="NIC row too long"
        ),
        pytest.param(
            "GPU0\t X \tNV12", "GPU0\t X \tHT", 2, "row GPU0, column GPU1: unknown word HT", id="another vendor's word"
        ),
        pytest.param("NV12\tPIX", "NV\tPIX", 2, "unknown word NV;", id="NV without a number"),
        pytest.param("NV12\tPIX", "NV0\tPIX", 2, "unknown word NV0", id="no links"),
        pytest.param("NV12\tPIX", "nv12\tPIX", 2, "unknown word nv12", id="lower case"),
        pytest.param("NV12\tPIX", "NV12\t-", 2, "row GPU0, column NIC0: unknown word -", id="dash"),
        pytest.param(
            "GPU1\tNV12", "GPU1\tNV8", 3, "row GPU1, column GPU0: NV8, but row GPU0 (line 2) has NV12", id="asymmetric"
        ),
        pytest.param(
            "NIC1\tSYS\tPXB",
            "NIC1\tSYS\tPIX",
            5,
            "row NIC1, column GPU1: PIX, but row GPU1 (line 3) has PXB",
            id="asymmetric NIC",
        ),
        pytest.param(
            "GPU0\t X \tNV12", "GPU0\tNV12\t X ", 2, "row GPU0, column GPU0: NV12; X belongs", id="shifted by one"
        ),
        pytest.param(
            "\tPIX\tSYS\t0-63", "\tX\tSYS\t0-63", 2, "row GPU0, column NIC0: X; X belongs", id="X off the diagonal"
        ),
        pytest.param(
            "GPU1\tNV12",
            "GPU7\tNV12",
            3,
            "row GPU7 has no column in the header (line 1 names 2 GPUs and 2 NICs)",
            id="row without a column",
        ),
        pytest.param("GPU1\tNV12", "GPU0\tNV12", 3, "row GPU0 is there twice, first in line 2", id="row twice"),
        pytest.param(
            "GPU1\tNV12\t X \tSYS\tPXB\t64-127\t1\t\tN/A\n", "", 1, "row GPU1 is missing", id="GPU row missing"
        ),
        pytest.param(
            "64-127\t1", "64-127\tone", 3, "row GPU1, column NUMA Affinity: one is no NUMA node", id="NUMA word"
        ),
        pytest.param("64-127\t1", "64-127\t3-1", 3, "3-1 is no NUMA node", id="NUMA range backwards"),
        pytest.param("64-127\t1", "64-127\t0-99999", 3, "0-99999 is no NUMA node", id="NUMA range without end"),
        pytest.param(
            "NIC1: mlx5_bond_0", "NIC0: mlx5_bond_0", 16, "NIC0 is there twice in the legend", id="legend twice"
        ),
        pytest.param(
            "NIC1: mlx5_bond_0",
            "NIC1: mlx5_0",
            16,
            "the legend gives mlx5_0 to NIC1 and",
            id="legend gives one name to two",
        ),
        pytest.param(
            "NIC1: mlx5_bond_0",
            "NIC2: mlx5_bond_0",
            16,
            "the legend's NIC2 is no NIC column",
            id="legend of a lost column",
        ),
    ],
)
def test_damage_is_refused_with_its_line(old: str, new: str, line: int, problem: str) -> None:
    assert PLAIN.count(old) == 1, "the case must change one place"
    with pytest.raises(MatrixError) as refused:
        parse_matrix(PLAIN.replace(old, new))
    assert refused.value.line == line
    assert problem in refused.value.problem
    assert str(refused.value) == (f"line {line}: {refused.value.problem}" if line else refused.value.problem)


def test_line_numbers_count_what_is_skipped() -> None:
    with pytest.raises(MatrixError) as refused:
        parse_matrix("# one\n\n# three\n" + PLAIN.replace("NV12\tPIX", "HT\tPIX"))
    assert refused.value.line == 5


@pytest.mark.parametrize(
    ("word", "links"),
    [("NV1", 1), ("NV18", 18), ("XGMI", 1), ("PIX", None), ("SYS", None), ("NV", None), ("NV0", None), ("X", None)],
)
def test_number_of_links(word: str, links: int | None) -> None:
    assert nvlinks(word) == links


@st.composite
def tables(draw: st.DrawFn) -> tuple[Sequence[str], Mapping[tuple[str, str], str]]:
    """Names and the word of every ordered pair of a random symmetric matrix."""
    gpus = draw(st.integers(1, 5))
    names = [f"GPU{index}" for index in range(gpus)] + [f"mlx5_{index}" for index in range(draw(st.integers(0, 4)))]
    words = st.sampled_from(["NV2", "NV18", "XGMI", "PIX", "PXB", "PHB", "NODE", "SYS"])
    cells = {(name, name): "X" for name in names}
    for one, other in combinations(names, 2):
        cells[one, other] = cells[other, one] = draw(words)
    return names, cells


def render(names: Sequence[str], cells: Mapping[tuple[str, str], str], gap: str) -> list[str]:
    return [gap.join(["", *names])] + [gap.join([row, *(cells[row, column] for column in names)]) for row in names]


@given(table=tables(), gap=st.sampled_from(["\t", "  ", " \t"]))
def test_any_matrix_comes_back_as_it_was_written(
    table: tuple[Sequence[str], Mapping[tuple[str, str], str]], gap: str
) -> None:
    names, cells = table
    matrix = parse_matrix("\n".join(render(names, cells, gap)))
    assert (*matrix.gpus, *matrix.nics) == tuple(names)
    assert matrix.cells == tuple(tuple(cells[row, column] for column in names) for row in names)


@given(table=tables(), data=st.data())
def test_one_lost_cell_is_never_read_as_something_else(
    table: tuple[Sequence[str], Mapping[tuple[str, str], str]], data: st.DataObject
) -> None:
    names, cells = table
    lines = render(names, cells, "\t")
    row = data.draw(st.integers(1, len(names)))
    words = lines[row].split("\t")
    del words[data.draw(st.integers(1, len(names)))]
    lines[row] = "\t".join(words)
    with pytest.raises(MatrixError) as refused:
        parse_matrix("\n".join(lines))
    assert refused.value.line == row + 1


class Read(NamedTuple):
    """What a captured matrix must be read as; the pair counts are those of unordered pairs."""

    gpu_gpu: Mapping[str | None, int]
    gpu_nic: Mapping[str | None, int]
    nic_nic: Mapping[str | None, int]
    numa: Sequence[int | None]
    nics: Sequence[str | None]
    pairs: Mapping[tuple[int, int], str]
    """A few cells by row and column, NICs after the GPUs, chosen so that a shifted column would show."""


class Refused(NamedTuple):
    """Where and why a captured text must be refused."""

    line: int
    problem: str


def mlx5(*numbers: int | str) -> list[str | None]:
    return [f"mlx5_{number}" for number in numbers]


CAPTURED: Mapping[str, Read | Refused] = {
    "a100_8gpu_10nic_litgpt.txt": Read(
        {"NV12": 28}, {"PXB": 16, "SYS": 64}, {"PIX": 2, "PXB": 3, "SYS": 40},
        [0, 0, 0, 0, 1, 1, 1, 1], mlx5(*range(10)),
        {(0, 10): "PXB", (0, 8): "SYS", (2, 8): "PXB", (7, 13): "PXB", (5, 17): "PXB", (8, 9): "PIX", (14, 15): "PIX"},
    ),
    "a100_8gpu_16nic_bond_cloud.txt": Read(
        {"NV12": 28}, {"PXB": 32, "SYS": 104}, {"PIX": 8, "PXB": 16, "SYS": 112},
        [0] * 8, mlx5(*range(2, 18), "bond_0"),
        {(0, 8): "PXB", (0, 11): "PXB", (0, 12): "SYS", (7, 23): "PXB", (7, 24): "SYS", (8, 9): "PIX", (8, 10): "PXB"},
    ),
    "a6000_8gpu_nvlink_pairs_2nic.txt": Read(
        {"NV4": 4, "NODE": 8, "SYS": 16}, {"PHB": 2, "NODE": 6, "SYS": 8}, {"PIX": 1},
        [0, 0, 0, 0, 1, 1, 1, 1], mlx5(0, 1),
        {(0, 1): "NV4", (1, 2): "NODE", (6, 7): "NV4", (6, 8): "PHB", (6, 9): "PHB", (7, 9): "NODE", (3, 8): "SYS"},
    ),
    "a800_8gpu_2nic.txt": Read(
        {"NV8": 28}, {"PXB": 4, "NODE": 4, "SYS": 8}, {"SYS": 1},
        [0, 0, 0, 0, 1, 1, 1, 1], mlx5(0, 1),
        {(1, 8): "PXB", (2, 8): "NODE", (4, 8): "SYS", (4, 9): "PXB", (7, 9): "NODE"},
    ),
    "b200_gke_a4_highgpu_8g.txt": Read(
        {"NV18": 28}, {"PIX": 16, "NODE": 16, "SYS": 32}, {"PIX": 4, "NODE": 8, "SYS": 16},
        [0, 0, 0, 0, 1, 1, 1, 1], mlx5(*range(8)),
        {(0, 9): "PIX", (1, 8): "PIX", (0, 10): "NODE", (7, 15): "PIX", (6, 13): "NODE", (3, 12): "SYS"},
    ),
    "desktop_2gpu_nv2.txt": Read({"NV2": 1}, {}, {}, [None, None], [], {}),
    "desktop_2gpu_phb.txt": Read({"PHB": 1}, {}, {}, [None, None], [], {}),
    "dgx1_v100_topo_mp.txt": Read(
        {"PIX": 4, "PHB": 8, "SYS": 16}, {"PIX": 8, "PHB": 8, "SYS": 16}, {"PHB": 2, "SYS": 4},
        [0, 0, 0, 0, 1, 1, 1, 1], mlx5(*range(4)),
        {(0, 1): "PIX", (1, 2): "PHB", (3, 9): "PIX", (3, 8): "PHB", (7, 11): "PIX", (0, 11): "SYS"},
    ),
    "dgx_a100_12nic.txt": Read(
        {"NV12": 28}, {"PXB": 16, "SYS": 80}, {"PIX": 2, "PXB": 4, "SYS": 60},
        [3, 3, 1, 1, 7, 7, 5, 5], mlx5(*range(12)),
        {(0, 8): "PXB", (2, 10): "PXB", (5, 14): "PXB", (5, 12): "SYS", (7, 17): "PXB", (12, 13): "PIX"},
    ),
    "gb200_oke_bm_gpu_gb200_v3_4.txt": Read(
        {"NV18": 6}, {"SYS": 32}, {None: 28}, [None] * 4, [None] * 8, {(0, 3): "NV18", (3, 11): "SYS"}
    ),
    "gb300_aks_nd128isr_v6.txt": Read(
        {"NV18": 6}, {"NODE": 8, "SYS": 8}, {None: 6}, [None] * 4, [None] * 4,
        {(0, 4): "NODE", (1, 5): "NODE", (1, 6): "SYS", (3, 7): "NODE"},
    ),
    "h100_8gpu_9nic_reversed_rails.txt": Read(
        {"NV18": 28}, {"PIX": 8, "NODE": 24, "SYS": 40}, {"NODE": 12, "SYS": 24},
        [0, 0, 0, 0, 1, 1, 1, 1], [None] * 9,
        {(0, 16): "PIX", (1, 15): "PIX", (4, 12): "PIX", (7, 9): "PIX", (0, 8): "SYS", (3, 14): "NODE"},
    ),
    "h100_8gpu_nv18_nonic.txt": Read({"NV18": 28}, {}, {}, [0, 0, 0, 0, 1, 1, 1, 1], [], {}),
    "h100_vm_4gpu_8nic_all_phb.txt": Read(
        {"NV18": 6}, {"PHB": 32}, {"PHB": 28}, [0] * 4, mlx5(*range(8)), {(3, 4): "PHB", (4, 11): "PHB"}
    ),
    "h200_8gpu_4nic_baremetal.txt": Read(
        {"NV18": 28}, {"PIX": 4, "PXB": 4, "NODE": 8, "SYS": 16}, {"NODE": 2, "SYS": 4},
        [0, 0, 0, 0, 2, 2, 2, 2], [None] * 4,
        {(0, 8): "PXB", (1, 8): "PIX", (3, 9): "PIX", (4, 10): "PXB", (7, 11): "PIX", (7, 10): "NODE"},
    ),
    "h800_8gpu_8nic_bond.txt": Read(
        {"NV8": 28}, {"PIX": 8, "NODE": 28, "SYS": 36}, {"NODE": 16, "SYS": 20},
        [0, 0, 0, 0, 1, 1, 1, 1], mlx5(0, 3, 4, 5, 6, 7, 8, 9, "bond_0"),
        {(0, 8): "PIX", (3, 11): "PIX", (7, 15): "PIX", (0, 16): "NODE", (7, 16): "SYS"},
    ),
    "l40s_4gpu_2nic.txt": Read(
        {"NODE": 2, "SYS": 4}, {"NODE": 4, "SYS": 4}, {"PIX": 1}, [0, 0, 1, 1], mlx5(0, 1),
        {(0, 1): "NODE", (1, 2): "SYS", (2, 4): "NODE", (1, 5): "SYS", (4, 5): "PIX"},
    ),
    "metax_8gpu_ht.txt": Refused(4, "row GPU0, column GPU1: unknown word HT"),
    "pcie_8gpu_nonic_allsys.txt": Read({"SYS": 28}, {}, {}, [0, 0, 0, 0, 1, 1, 1, 1], [], {}),
    "quirk_h800_8gpu_4nic_header_without_nic_columns.txt": Refused(12, "row NIC0 has no column in the header (line 3"),
    "rtx4090_8gpu_2nic.txt": Read(
        {"SYS": 28}, {"PHB": 2, "SYS": 14}, {"PIX": 1}, [0, 0, 0, 0, 1, 1, 1, 1], [None] * 2,
        {(6, 8): "PHB", (6, 9): "PHB", (7, 9): "SYS", (8, 9): "PIX"},
    ),
    "vm_4gpu_2nic_allsys.txt": Read({"SYS": 6}, {"SYS": 8}, {"PIX": 1}, [0] * 4, mlx5(0, 1), {(4, 5): "PIX"}),
    "vm_4gpu_phb_nonic.txt": Read({"PHB": 6}, {}, {}, [0] * 4, [], {}),
}  # fmt: skip


@needs_shared
def test_every_captured_text_is_in_the_table() -> None:
    files = {path.name for path in shared("data/topo").glob("*.txt")}
    assert files == set(CAPTURED) | {"amd_mi308x_8gpu_showtopo.txt"}, "that one is another table, see test_formats"


@needs_shared
@pytest.mark.parametrize("name", CAPTURED)
def test_captured_texts_are_read_or_refused(name: str) -> None:
    text = shared(f"data/topo/{name}").read_text()
    expected = CAPTURED[name]
    if isinstance(expected, Refused):
        with pytest.raises(MatrixError) as refused:
            parse_matrix(text)
        assert refused.value.line == expected.line
        assert expected.problem in refused.value.problem
        return
    matrix = parse_matrix(text)
    gpus = range(len(matrix.gpus))
    nics = range(len(matrix.gpus), len(matrix.cells))
    assert Counter(matrix.cells[one][other] for one, other in combinations(gpus, 2)) == expected.gpu_gpu
    assert Counter(matrix.cells[gpu][nic] for gpu in gpus for nic in nics) == expected.gpu_nic
    assert Counter(matrix.cells[one][other] for one, other in combinations(nics, 2)) == expected.nic_nic
    assert matrix.gpus == tuple(f"GPU{index}" for index in gpus)
    assert list(matrix.nic_devices) == list(expected.nics)
    assert [None if nodes is None else set(nodes) for nodes in matrix.numa] == [
        *(None if node is None else {node} for node in expected.numa),
        *(None for _ in nics),
    ]
    for (row, column), word in expected.pairs.items():
        assert matrix.cells[row][column] == matrix.cells[column][row] == word
