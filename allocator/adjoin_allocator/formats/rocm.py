"""The tables of `rocm-smi --showtopo` → `Matrix`.

Only two of them are read: `Link Type between two GPUs` and `Numa Nodes`. XGMI is a direct link; PCIE says that there is
none, and nothing about the way over PCIe. NICs are not printed. As in every table, the header counts: a row with a cell
more or less, a missing row, an unknown word or two rows that disagree reject the text.
"""

from __future__ import annotations

import re

from adjoin_allocator.amounts import counted
from adjoin_allocator.matrix import NO_LINK, SELF, Lines, Matrix, MatrixError, significant_lines

_TITLE = re.compile(r"=+\s*(\S.*?)\s*=+")
_LINKS = "link type between two gpus"
_GPU = re.compile(r"GPU[0-9]{1,4}")
_NUMA = re.compile(r"GPU\[([0-9]{1,4})\]\s*:\s*\(Topology\)\s*Numa Node:\s*(\S+)")
_NODE = re.compile(r"-?[0-9]{1,4}")
_WORDS = {"XGMI": "XGMI", "PCIE": NO_LINK}
_NOTHING = "0"
"""What stands where a GPU meets itself."""


def is_showtopo(text: str) -> bool:
    """Whether the text is the output of `rocm-smi`: it has one of its titles."""
    return any(_is_title(line.strip()) for _, line in significant_lines(text))


def read(text: str) -> Matrix:
    """The matrix of a text of `rocm-smi --showtopo`. Raises `MatrixError` with the line that does not fit."""
    lines = [(number, line.strip()) for number, line in significant_lines(text)]
    start = next((index for index, (_, line) in enumerate(lines) if _title(line) == _LINKS), None)
    if start is None:
        first = next(number for number, line in lines if _is_title(line))
        problem = "no table Link Type between two GPUs follows; `rocm-smi --showtopo` prints it"
        raise MatrixError(first, problem)
    gpus, cells = _table(lines[start][0], lines[start + 1 :])
    numa = _numa(lines, gpus)
    return Matrix(
        gpus=gpus,
        nics=(),
        nic_devices=(),
        cells=cells,
        numa=tuple(numa.get(gpu) for gpu in gpus),
    )


def _is_title(line: str) -> bool:
    title = _title(line) or ""
    return title == "rocm system management interface" or title.endswith(" between two gpus")


def _title(line: str) -> str | None:
    found = _TITLE.fullmatch(line)
    return found[1].casefold() if found else None


def _table(title: int, below: Lines) -> tuple[tuple[str, ...], tuple[tuple[str | None, ...], ...]]:
    """The names and cells of the table under the title in line `title`."""
    body: Lines = []
    for number, line in below:
        if _title(line) is not None:
            break
        if line:
            body.append((number, line))
    if not body:
        raise MatrixError(title, "nothing follows this title")
    header_line, header = body[0]
    columns = tuple(header.split())
    for index, column in enumerate(columns):
        if not _GPU.fullmatch(column):
            raise MatrixError(header_line, f"column {column} in the header is no GPU")
        if column in columns[:index]:
            raise MatrixError(header_line, f"column {column} is there twice in the header")
    rows: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    for number, line in body[1:]:
        name, *words = line.split()
        if name not in columns:
            raise MatrixError(number, f"row {name} has no column in the header (line {header_line})")
        if name in rows:
            raise MatrixError(number, f"row {name} is there twice, first in line {lines[name]}")
        if len(words) != len(columns):
            each = f"one for each of {counted(len(columns), 'column')}"
            raise MatrixError(number, f"row {name} has {counted(len(words), 'cell')}, {each} is needed")
        for column, word in zip(columns, words, strict=True):
            if (word == _NOTHING) != (column == name):
                problem = f"row {name}, column {column}: {word}; 0 belongs where a GPU meets itself and only there"
                raise MatrixError(number, problem)
            if word != _NOTHING and word not in _WORDS:
                problem = f"row {name}, column {column}: unknown word {word}; known are {', '.join(_WORDS)}"
                raise MatrixError(number, problem)
        rows[name], lines[name] = words, number
    for column in columns:
        if column not in rows:
            raise MatrixError(
                header_line, f"row {column} is missing: a row for each of {counted(len(columns), 'GPU')} is needed"
            )
    for index, one in enumerate(columns):
        for place, other in enumerate(columns[:index]):
            if rows[one][place] != rows[other][index]:
                problem = (
                    f"row {one}, column {other}: {rows[one][place]}, but row {other} (line {lines[other]}) has "
                    f"{rows[other][index]} for {one}; both directions must be the same"
                )
                raise MatrixError(lines[one], problem)
    cells = tuple(tuple(_WORDS.get(word, SELF) for word in rows[name]) for name in columns)
    return columns, cells


def _numa(lines: Lines, gpus: tuple[str, ...]) -> dict[str, frozenset[int]]:
    """NUMA nodes by the name of the row; what is not said is left out."""
    found: dict[str, frozenset[int]] = {}
    seen: dict[str, int] = {}
    for number, line in lines:
        entry = _NUMA.fullmatch(line)
        if entry is None:
            continue
        gpu = f"GPU{entry[1]}"
        if gpu not in gpus:
            raise MatrixError(number, f"GPU[{entry[1]}] is not among the {counted(len(gpus), 'GPU')} of the table")
        if gpu in seen:
            raise MatrixError(number, f"GPU[{entry[1]}] is there twice, first in line {seen[gpu]}")
        seen[gpu] = number
        if entry[2] == "N/A":
            continue
        if not _NODE.fullmatch(entry[2]):
            raise MatrixError(number, f"GPU[{entry[1]}]: {entry[2]} is no NUMA node")
        if int(entry[2]) >= 0:
            found[gpu] = frozenset({int(entry[2])})
    return found
