"""Devices in a PCI tree → the `Matrix` that `nvidia-smi topo` would have printed.

In come rows (a GPU or NIC, where it hangs, its NVLinks), out goes a `Matrix` with addresses. Each pair's cell follows
from the last part that the ways to both have in common, in `nvidia-smi`'s words:

- a switch or one of its ports: PIX where no other switch lies on the way, else PXB;
- a host bridge: PHB;
- none, and both hang from host bridges: NODE with a NUMA node in common, SYS without, and `OTHER_ROOT` where one of the
  NUMA nodes is unknown;
- none, and the text does not tell host bridges: SYS between NUMA nodes; in one NUMA node what the addresses tell: one
  bus has one host bridge (PHB; functions of one card PIX), two domains have two (NODE), and otherwise `ONE_CPU`.

An NVLink between two GPUs is nearer than all of that. What a text does not tell stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from adjoin_allocator.matrix import ONE_CPU, OTHER_ROOT, SELF, Matrix, MatrixError
from adjoin_allocator.pci import PciAddress, spelling

MOST_ROWS = 1024
"""More GPUs and NICs, virtual functions included, than a machine has; there is a cell for every pair."""

_GPU_CLASSES = ("03", "12", "0b40")
_NIC_CLASSES = ("02", "0c06")
"""PCI classes (the PCI Code and ID Assignment Specification): display controller, processing accelerator and
co-processor; network controller and InfiniBand host adapter of old."""


class PartKind(StrEnum):
    """What a part of the tree is."""

    HOST_BRIDGE = "HostBridge"
    SWITCH = "Switch"
    """A whole switch: all its ports are one part."""
    PORT = "Port"
    """One port; a switch is the port that leads up and, below it, those that lead down."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A host bridge, a switch or a port: equal only to itself."""

    kind: PartKind


class RowKind(StrEnum):
    """What a device is."""

    GPU = "GPU"
    NIC = "NIC"
    UNSAID = "Unsaid"


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One device.

    Attributes:
        line: Where the text has it.
        kind: What it is.
        address: Its PCI address, or empty.
        names: What a NIC is called, the RDMA device first.
        way: The parts from the top down to it; the same object for all devices that hang from one part.
        numa: Its NUMA nodes, None for unknown.
        placed: False when the text does not say where it hangs.
        silent: The text does not say what NVLinks it has.
    """

    line: int
    kind: RowKind
    address: PciAddress
    names: tuple[str, ...]
    way: tuple[Part, ...]
    numa: frozenset[int] | None
    placed: bool = True
    silent: bool = True

    @property
    def title(self) -> str:
        """Its name in the matrix."""
        return spelling(self.address) if self.address else self.names[0]


def kind_of_class(digits: str) -> RowKind | None:
    """What a PCI class (hexadecimal digits, most significant first) is, None for what has no row."""
    digits = digits.casefold()
    if digits.startswith(_GPU_CLASSES):
        return RowKind.GPU
    return RowKind.NIC if digits.startswith(_NIC_CLASSES) else None


def check_rows(rows: Sequence[Row]) -> None:
    """Raises `MatrixError` for two rows with one address and for more rows than a machine has."""
    if len(rows) > MOST_ROWS:
        raise MatrixError(rows[MOST_ROWS].line, f"more than {MOST_ROWS} GPUs and NICs")
    seen: dict[PciAddress, Row] = {}
    for row in rows:
        first = seen.setdefault(row.address, row) if row.address else row
        if first is not row:
            raise MatrixError(row.line, f"{row.title} is there twice, first in line {first.line}")


def matrix_of(rows: Sequence[Row], links: Mapping[frozenset[Row], int]) -> Matrix:
    """The matrix of `rows`; `links` are the NVLinks of pairs that have any.

    Rows are ordered by address, as `nvidia-smi` orders its own. They have passed `check_rows`.
    """
    ordered = sorted(rows, key=lambda row: (_ORDER[row.kind], not row.address, row.address, row.names))
    ways: list[list[str | None]] = [[SELF] * len(ordered) for _ in ordered]
    between: dict[tuple[int, int, PciAddress, PciAddress], str | None] = {}
    for index, one in enumerate(ordered):
        for column in range(index):
            other = ordered[column]
            if not (one.placed and other.placed):
                word = None
            elif one.way and other.way:
                # Whole bundles of devices hang from one part, and ways are what takes time to compare. Behind a part
                # nothing but the domain counts of an address.
                key = (id(one.way), id(other.way), one.address[:1], other.address[:1])
                if key not in between:
                    between[key] = _by_ways(one, other)
                word = between[key]
            else:
                word = _apart(one, other)
            ways[index][column] = ways[column][index] = word
    cells = [list(row) for row in ways]
    place = {row: index for index, row in enumerate(ordered)}
    for pair, count in links.items():
        index, column = (place[row] for row in pair)
        cells[index][column] = cells[column][index] = f"NV{count}"
    gpus, nics, unsorted = ([row for row in ordered if row.kind is kind] for kind in _ORDER)
    return Matrix(
        gpus=tuple(row.title for row in gpus),
        nics=tuple(row.title for row in nics),
        nic_devices=tuple(row.names[0] if row.names else None for row in nics),
        cells=tuple(map(tuple, cells)),
        numa=tuple(row.numa for row in ordered),
        unsorted=tuple(row.title for row in unsorted),
        addresses=tuple(row.address for row in ordered),
        nic_aliases=tuple(row.names[1:] for row in nics),
        silent=frozenset(index for index, row in enumerate(ordered) if row.silent),
        ways=tuple(map(tuple, ways)) if links else (),
    )


_ORDER = {RowKind.GPU: 0, RowKind.NIC: 1, RowKind.UNSAID: 2}


def _by_ways(one: Row, other: Row) -> str | None:
    """The word for devices that both hang from some part."""
    shared = 0
    for mine, theirs in zip(one.way, other.way, strict=False):
        if mine is not theirs:
            break
        shared += 1
    if not shared:
        return _apart(one, other)
    last = one.way[shared - 1]
    if last.kind is PartKind.HOST_BRIDGE:
        return "PHB"
    return "PIX" if _in_one_switch(one.way[shared:]) and _in_one_switch(other.way[shared:]) else "PXB"


def _in_one_switch(below: Sequence[Part]) -> bool:
    """Whether the way from the common part down to a device leaves no switch: at most the port that leads down."""
    return not below or (len(below) == 1 and below[0].kind is PartKind.PORT)


def _apart(one: Row, other: Row) -> str | None:
    """The word for devices without a common part."""
    bridged = all(bool(row.way) and row.way[0].kind is PartKind.HOST_BRIDGE for row in (one, other))
    if one.numa is None or other.numa is None:
        return OTHER_ROOT if bridged else _by_address(one, other)
    if not one.numa & other.numa:
        return "SYS"
    return "NODE" if bridged else _by_address(one, other)


def _by_address(one: Row, other: Row) -> str | None:
    """The word for devices that may share a host bridge, as far as their addresses tell."""
    together = one.numa is not None and other.numa is not None
    if not one.address or not other.address:
        return ONE_CPU if together else None
    if one.address[0] != other.address[0]:
        return "NODE" if together else OTHER_ROOT
    # Behind a switch the bus is the switch's own.
    if not one.way and not other.way and one.address[1] == other.address[1]:
        return "PIX" if one.address[2] == other.address[2] else "PHB"
    return ONE_CPU if together else None
