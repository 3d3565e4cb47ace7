"""Which device pairs are how near, as a `Matrix`; and the parser of the text that `nvidia-smi topo -m` prints.

A `Matrix` is what every format of machine topologies (`formats`) is read into. Nothing is read into it that the text
does not say.

Into the parser comes the text as somebody pasted it, out goes a `Matrix` or a `MatrixError` that names the line, the
row and what would be right. The text may hold terminal colours, blank lines, lines that start with `#`, a prompt above
the header, tabs or spaces, and the legends below. NIC columns are named `NIC0` with a legend, or by the device itself
(`mlx5_0`).

The header counts: each of its GPU and NIC columns is one row of the matrix. A NIC row that is not printed is read by
symmetry from the rows that are; what no row says stays unknown. Everything that does not fit the header rejects the
whole text: a row with too few or too many cells, a row without a column, a missing GPU row, a word that is no known
cell, an `X` off the diagonal, two rows that disagree about a pair. A damaged paste is never repaired by shifting cells,
because a matrix that is one column off looks as plausible as the right one.

Of the columns to the right only `NUMA Affinity` is read (`Node Affinity` in one vendor's print of the same table). Its
value is a number, a list or a range; `N/A`, -1 and a row with fewer values than there are such columns are unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import combinations

from adjoin_allocator.amounts import counted
from adjoin_allocator.pci import PciAddress

SELF = "X"
WORDS = frozenset({"XGMI", "PIX", "PXB", "PHB", "NODE", "SYS"})
"""The known words besides X and NV<number>."""

ONE_CPU = "CPU"
"""A cell that no program prints, for texts that say less than one of the words above: one NUMA node and no common
switch, but whether one host bridge is not told."""
OTHER_ROOT = "ROOT"
"""Likewise: two host bridges, but on which NUMA nodes is not told."""
NO_LINK = "PCIE"
"""Likewise: no direct link between two GPUs, and nothing else is told."""

_KNOWN = "X, NV<links>, XGMI, PIX, PXB, PHB, NODE and SYS"
_NVLINK = re.compile(r"NV([1-9][0-9]{0,3})")
# A terminal's control sequences, also those whose escape character was lost on the way through a clipboard.
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\[[0-9]*(?:;[0-9]+)*m")
_GPU = re.compile(r"GPU[0-9]+")
_NUMBERED_NIC = re.compile(r"NIC[0-9]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*")
_SIDE_COLUMN = re.compile(r"(?<!\S)(?:(CPU|NUMA|Node)\s+Affinity|GPU\s+NUMA\s+ID)(?!\S)")
_SIDE_VALUE = re.compile(r"N/A|-?[0-9][0-9,\-]*")
_LEGEND = re.compile(r"\s*([A-Za-z][\w.\-]*):\s+(\S+)(?:\s.*)?")
_NUMA_PART = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_NUMA_LIMIT = 4096
"""More NUMA nodes than any machine has; a longer range is a CPU list in the wrong column."""


class MatrixError(ValueError):
    """The text is not a matrix that can be used.

    Attributes:
        line: Line of the text that shows it, from 1; 0 when it is the text as a whole.
        problem: What is wrong there and what would be right.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.line = line
        self.problem = problem


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A parsed matrix. Index i is row i: the GPUs in the order of the text, then the NICs, then what the text does not
    say the kind of.

    Attributes:
        gpus: Names of the GPU rows, as printed.
        nics: Names of the NIC rows, as printed.
        nic_devices: The device that each NIC row stands for: the legend's name, or the column's own; None where the
            text has only a position.
        cells: The word for each pair, symmetric, `X` on the diagonal; None where the text says nothing.
        numa: NUMA nodes of each row; None is unknown. `nvidia-smi` prints them for GPU rows alone.
        unsorted: Names of rows of which the text does not say whether they are GPUs or NICs.
        addresses: PCI address of each row, empty where the text has none for it; without entries where the text prints
            no addresses at all.
        nic_aliases: What else each NIC row is called; without entries where there is nothing.
        silent: Rows of which the text does not say what NVLinks they have.
        ways: The words over PCIe alone, where the text tells them beside the NVLinks; without entries where it has no
            NVLinks or tells nothing beside them.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    nic_devices: tuple[str | None, ...]
    cells: tuple[tuple[str | None, ...], ...]
    numa: tuple[frozenset[int] | None, ...]
    unsorted: tuple[str, ...] = ()
    addresses: tuple[PciAddress, ...] = ()
    nic_aliases: tuple[tuple[str, ...], ...] = ()
    silent: frozenset[int] = frozenset()
    ways: tuple[tuple[str | None, ...], ...] = ()


def nvlinks(word: str) -> int | None:
    """How many bonded links an NVLink cell (`NV12`) or XGMI cell (which prints no number: 1) has; None for others."""
    if word == "XGMI":
        return 1
    links = _NVLINK.fullmatch(word)
    return int(links[1]) if links else None


def parse_matrix(text: str) -> Matrix:
    """Reads the text of `nvidia-smi topo -m`.

    Raises:
        MatrixError: With the line number and what is wrong, when any part of the table does not fit its header.
    """
    lines = significant_lines(text)
    if not any(line.strip() for _, line in lines):
        raise MatrixError(0, "the text is empty; paste the output of `nvidia-smi topo -m`")
    header, below = _find_header(lines)
    table = _Table(header)
    legend: dict[str, str] = {}
    adjoining = True
    nic_legend = False
    for number, line in below:
        words = line.split()
        if not words:
            adjoining = False
        elif words[0] in header.columns:
            table.add_row(number, words)
        elif line.strip().lower() in ("legend:", "nic legend:"):
            adjoining = False
            nic_legend = line.strip().lower() == "nic legend:"
        elif nic_legend and (entry := _LEGEND.fullmatch(line)):
            if entry[1] in header.columns or _NUMBERED_NIC.fullmatch(entry[1]):
                _add_to_legend(legend, number, entry[1], entry[2], header)
        elif adjoining or (len(words) > 2 and all(_is_cell(word) for word in words[1:])):
            raise MatrixError(number, f"row {words[0]} has no column in the header ({header.summary()})")
    return table.finish(legend)


@dataclass(frozen=True, slots=True)
class _Header:
    """The line that names the columns: devices first, then what stands beside the matrix."""

    line: int
    columns: tuple[str, ...]
    side: tuple[str, ...]

    def summary(self) -> str:
        """For messages, which columns there are."""
        gpus = sum(1 for column in self.columns if _GPU.fullmatch(column))
        return f"line {self.line} names {counted(gpus, 'GPU')} and {counted(len(self.columns) - gpus, 'NIC')}"


@dataclass(slots=True)
class _Table:
    """The rows found so far."""

    header: _Header
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    numa: dict[str, frozenset[int]] = field(default_factory=dict)

    def add_row(self, line: int, words: list[str]) -> None:
        """Takes one printed row, checked against the header."""
        columns, side = self.header.columns, self.header.side
        name, cells, beside = words[0], words[1 : len(columns) + 1], words[len(columns) + 1 :]
        if name in self.rows:
            raise MatrixError(line, f"row {name} is there twice, first in line {self.lines[name]}")
        for column, word in zip(columns, cells, strict=False):
            if not _is_cell(word):
                if _SIDE_VALUE.fullmatch(word):
                    break
                raise MatrixError(line, f"row {name}, column {column}: unknown word {word}; known are {_KNOWN}")
        found = next((index for index, word in enumerate(cells) if not _is_cell(word)), len(cells))
        if found < len(columns):
            raise MatrixError(
                line,
                f"row {name} has {counted(found, 'cell')}, one for each of {counted(len(columns), 'column')} is needed",
            )
        if len(beside) > len(side):
            such = counted(len(side), "such column")
            problem = f"row {name} has {counted(len(beside), 'value')} beside the matrix, the header has {such}"
            raise MatrixError(line, problem)
        for column, word in zip(columns, cells, strict=True):
            if (word == SELF) != (column == name):
                problem = f"row {name}, column {column}: {word}; X belongs where a device meets itself and only there"
                raise MatrixError(line, problem)
        self.rows[name] = tuple(cells)
        self.lines[name] = line
        # With fewer values than columns one cannot tell which is missing, so none of them is believed.
        if len(beside) == len(side):
            for column, value in zip(side, beside, strict=True):
                if column == "NUMA" and (nodes := _numa_nodes(line, name, value)) is not None:
                    self.numa[name] = nodes

    def finish(self, legend: dict[str, str]) -> Matrix:
        """The matrix, once all lines are read."""
        columns = self.header.columns
        gpus = tuple(column for column in columns if _GPU.fullmatch(column))
        nics = tuple(column for column in columns if not _GPU.fullmatch(column))
        missing = next((gpu for gpu in gpus if gpu not in self.rows), None)
        if missing is not None:
            problem = f"row {missing} is missing: a row for each of the header's {counted(len(gpus), 'GPU')} is needed"
            raise MatrixError(self.header.line, problem)
        names = gpus + nics
        cells: dict[tuple[str, str], str] = {}
        for one, other in combinations(names, 2):
            word = self._pair(one, other)
            if word is not None:
                cells[one, other] = cells[other, one] = word
        return Matrix(
            gpus=gpus,
            nics=nics,
            nic_devices=tuple(legend.get(nic, None if _NUMBERED_NIC.fullmatch(nic) else nic) for nic in nics),
            cells=tuple(tuple(SELF if one == other else cells.get((one, other)) for other in names) for one in names),
            numa=tuple(self.numa.get(name) for name in names),
        )

    def _pair(self, one: str, other: str) -> str | None:
        """What the rows say about a pair; both have to say the same."""
        there = self._cell(one, other)
        back = self._cell(other, one)
        if there is None or back is None or there == back:
            return there or back
        first, second = sorted((one, other), key=lambda name: self.lines[name])
        problem = (
            f"row {second}, column {first}: {self._cell(second, first)}, but row {first} (line {self.lines[first]}) "
            f"has {self._cell(first, second)} for {second}; both directions must be the same"
        )
        raise MatrixError(self.lines[second], problem)

    def _cell(self, row: str, column: str) -> str | None:
        cells = self.rows.get(row)
        return cells[self.header.columns.index(column)] if cells else None


Lines = list[tuple[int, str]]
"""Lines of a text with their numbers, from 1."""


def significant_lines(text: str) -> Lines:
    """The numbered lines without colours and without lines that start with `#`; blank ones stay, they separate."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = ((number, _COLOUR.sub("", line)) for number, line in enumerate(plain.split("\n"), start=1))
    return [(number, line) for number, line in lines if not line.lstrip().startswith("#")]


def _find_header(lines: Lines) -> tuple[_Header, Lines]:
    """The header and the lines below it. What stands above it (a prompt, a warning) is no part of the table."""
    for index, (number, line) in enumerate(lines):
        words = line.split()
        if not words or not _GPU.fullmatch(words[0]):
            continue
        if any(_is_cell(word) for word in words[1:]):
            raise MatrixError(
                number, f"row {words[0]} stands above any header; a line that names the columns is needed"
            )
        return _read_header(number, line), lines[index + 1 :]
    first = next(number for number, line in lines if line.strip())
    problem = "from here on no line names GPU columns; paste the output of `nvidia-smi topo -m`, header included"
    raise MatrixError(first, problem)


def _read_header(number: int, line: str) -> _Header:
    side = list(_SIDE_COLUMN.finditer(line))
    start = side[0].start() if side else len(line)
    rest = _SIDE_COLUMN.sub(" ", line[start:]).split()
    if rest:
        raise MatrixError(number, f"unknown column {rest[0]} in the header")
    columns = tuple(line[:start].split())
    for index, column in enumerate(columns):
        if not _NAME.fullmatch(column):
            raise MatrixError(number, f"column {column} in the header is no name of a GPU or NIC")
        if column in columns[:index]:
            raise MatrixError(number, f"column {column} is there twice in the header")
    # NUMA and Node Affinity say the same thing; the CPU list and the GPU's own memory node are not read.
    return _Header(number, columns, tuple("NUMA" if found[1] in ("NUMA", "Node") else "other" for found in side))


def _add_to_legend(legend: dict[str, str], line: int, nic: str, device: str, header: _Header) -> None:
    if nic not in header.columns or _GPU.fullmatch(nic):
        raise MatrixError(line, f"the legend's {nic} is no NIC column of the header ({header.summary()})")
    if nic in legend:
        raise MatrixError(line, f"{nic} is there twice in the legend")
    if device in legend.values():
        raise MatrixError(line, f"the legend gives {device} to {nic} and to another NIC")
    legend[nic] = device


def _is_cell(word: str) -> bool:
    return word == SELF or word in WORDS or _NVLINK.fullmatch(word) is not None


def _numa_nodes(line: int, row: str, value: str) -> frozenset[int] | None:
    """`0`, `0,2`, `0-3` or a mix; N/A and -1 are unknown."""
    if value in ("N/A", "-1"):
        return None
    nodes: set[int] = set()
    for part in value.split(","):
        found = _NUMA_PART.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < _NUMA_LIMIT:
            problem = f"row {row}, column NUMA Affinity: {value} is no NUMA node, list (0,1) or range (0-3)"
            raise MatrixError(line, problem)
        nodes.update(range(first, last + 1))
    return frozenset(nodes)
