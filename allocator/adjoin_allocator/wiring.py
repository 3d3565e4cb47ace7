"""Compiled wiring: the integer tables of one node shape, from facts of devices and cells of a matrix.

In come, for devices that are only numbers here, what is known of their place and the words of a matrix between them;
out goes a `Wiring`. Nothing is guessed: unknown is never equal to unknown.

**What attributes prove.** Equal `pcieSwitch` PCIeSwitch, equal `pcieRoot` PCIeRoot, a common `numaNode` NUMANode; the
same fact known on both sides and different denies that scope and no other (two devices under different root complexes
cannot share a switch, but a scope is only denied by its own fact: the reason then names the fact that is missing).

**What a cell of the matrix proves and denies** (the words are `nvidia-smi`'s):

==========  ==============================  ===============================  ==========================================
cell        proves                          denies                           because
==========  ==============================  ===============================  ==========================================
NV#, XGMI   NVLink, PCIeSwitch, PCIeRoot    nothing                          the link is nearer than any way over PCIe;
                                                                             it hides that way, so it says nothing
                                                                             about NUMA nodes
PIX, PXB    PCIeSwitch, PCIeRoot, NUMANode  NVLink                           bridges only, no host bridge on the way
PHB         PCIeRoot, NUMANode              NVLink, PCIeSwitch               up to the host bridge, not past it
NODE        NUMANode                        NVLink, PCIeSwitch, PCIeRoot     between host bridges of one NUMA node
SYS         nothing                         all nearer than Node             over the interconnect of NUMA nodes
none, or    nothing                         nothing                          not said is not known
no row
==========  ==============================  ===============================  ==========================================

Three words are no program's; they stand for what XML files and other tables leave open: CPU proves NUMANode and denies
NVLink and PCIeSwitch; ROOT denies all up to PCIeRoot; PCIE denies NVLink. And where such a text does not say what
NVLinks a GPU has, no cell denies NVLink between it and another GPU.

A scope is met when the matrix or an attribute proves it or (by attributes and over PCIe) a nearer one, unmet when one
of them denies it, else unknown. So where matrix and attributes differ, the nearer of the two counts. Between two GPUs
whose NUMA nodes are both known, those and no NODE or SYS cell decide NUMANode. A GPU's NUMA node is its attribute, else
the matrix's `NUMA Affinity` column.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import NamedTuple, TypeVar

import networkx as nx

from adjoin_allocator.matrix import NO_LINK, ONE_CPU, OTHER_ROOT, nvlinks
from adjoin_allocator.terms import SCOPES, Scope

MOST_LINKS = 64
"""More NVLinks than any pair has, so that `Wiring.fine` of a linked pair stays positive."""

_Cell = TypeVar("_Cell")

LEVELS = ("NVLink", "PIX", "PHB", "NODE", "SYS")
"""The word of each rank, in the terms of `nvidia-smi topo`."""
_PRINTED = frozenset({"PIX", "PXB", "PHB", "NODE", "SYS"})
_RANK_OF_WORD = {"PIX": 1, "PXB": 1, "PHB": 2, "NODE": 3, ONE_CPU: 3, "SYS": 4, OTHER_ROOT: 4, NO_LINK: 4}
_PROVEN_BY_RANK = (
    frozenset({Scope.NVLINK, Scope.PCIE_SWITCH, Scope.PCIE_ROOT}),
    frozenset({Scope.PCIE_SWITCH, Scope.PCIE_ROOT, Scope.NUMA_NODE}),
    frozenset({Scope.PCIE_ROOT, Scope.NUMA_NODE}),
    frozenset({Scope.NUMA_NODE}),
    frozenset[Scope](),
)
"""What a cell proves, by the rank of its word: the table in the module's docstring."""
_DENIED_BY_RANK = (frozenset[Scope](), *(frozenset(SCOPES[:rank]) for rank in range(1, 5)))
"""What a cell denies: everything nearer than its word, except that NVLink denies nothing."""
_DENIED_BY_WORD = {
    ONE_CPU: frozenset({Scope.NVLINK, Scope.PCIE_SWITCH}),
    OTHER_ROOT: frozenset({Scope.NVLINK, Scope.PCIE_SWITCH, Scope.PCIE_ROOT}),
    NO_LINK: frozenset({Scope.NVLINK}),
}
"""What words deny that leave something nearer open."""


class Verdict(StrEnum):
    """Whether a scope holds."""

    MET = "Met"
    UNMET = "Unmet"
    UNKNOWN = "Unknown"


FACT_SCOPES = (Scope.PCIE_SWITCH, Scope.PCIE_ROOT, Scope.NUMA_NODE)
"""The scopes that an attribute can prove or deny, nearest first; a device's facts stand in this order."""

Fact = frozenset[int] | None
"""One fact of one device: its values (several for a list-valued fact), or None for unknown. Names are replaced by
numbers, NUMA nodes are their own numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """Compiled wiring of one pool's devices on one node; bit i and index i are the i-th device given to `wire`.

    Nodes of equal shape get the same object, so it can be a key by identity. It holds no names of nodes or devices.

    Attributes:
        size: Number of devices.
        rank: Pair rank, 0 (NVLink) to 4 (Node): that of the nearest scope that is met; the diagonal is 0.
        fine: Decides among equal sums of ranks; smaller is nearer (PIX before PXB, more NVLinks before fewer). Never
            negative.
        level: The pair's level in the words of status: NVLink PIX PXB PHB NODE SYS. By attributes alone PCIeSwitch is
            PIX.
        met: Per scope and device the mask of the other devices with which the scope is met.
        unknown: Per scope and device the mask of the other devices with which it is neither met nor unmet.
        numa: NUMA nodes by device; None is unknown.
        islands: Per scope disjoint masks of at least two devices that are known to be together: NVLink islands,
            switches, root complexes, NUMA nodes, the node. They are physical: NVLink does not join switches. A device
            in no mask is alone there, or its place is unknown.
        listed: Scopes for which a list-valued fact counts, so that a set needs `set_verdict` and a clique of `met` is
            not enough.
        facts: Per scope that has one and device the fact it is decided by.
        by_facts: Per scope and device the mask of the other devices with which attributes prove the scope and the
            matrix does not.
    """

    size: int
    rank: tuple[tuple[int, ...], ...]
    fine: tuple[tuple[int, ...], ...]
    level: tuple[tuple[str, ...], ...]
    met: Mapping[Scope, tuple[int, ...]]
    unknown: Mapping[Scope, tuple[int, ...]]
    numa: tuple[frozenset[int] | None, ...]
    islands: Mapping[Scope, tuple[int, ...]]
    listed: frozenset[Scope]
    facts: Mapping[Scope, tuple[Fact, ...]]
    by_facts: Mapping[Scope, tuple[int, ...]]

    def set_verdict(self, scope: Scope, mask: int) -> Verdict:
        """Whether `scope` holds for the whole set of one request: for every pair, and list-valued facts share one
        value over the set.

        A set of fewer than two devices meets every scope.
        """
        met, unknown = self.met[scope], self.unknown[scope]
        certain = True
        for device in bits(mask):
            others = mask & ~(1 << device)
            if others & ~(met[device] | unknown[device]):
                return Verdict.UNMET
            certain = certain and not others & ~met[device]
        if not certain:
            return Verdict.UNKNOWN
        return Verdict.MET if self.share(scope, mask) else Verdict.UNMET

    def share(self, scope: Scope, mask: int) -> bool:
        """Whether nothing list-valued keeps the whole set from `scope`: the devices of `mask` whose nearness rests on
        attributes have one value of one fact in common."""
        if scope not in self.listed:
            return True
        members = [device for device in bits(mask) if self.by_facts[scope][device] & mask]
        if not members:
            return True
        for fact, values in self.facts.items():
            if fact.rank <= scope.rank:
                first, *rest = (values[member] or frozenset() for member in members)
                if first.intersection(*rest):
                    return True
        return False


def bits(mask: int) -> Iterator[int]:
    """The indices of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Shape(NamedTuple):
    """What a wiring is compiled from; equal shapes give equal wirings.

    Attributes:
        facts: A tuple of facts by device for each of `FACT_SCOPES`, in that order.
        cells: The matrix between the devices, None where it says nothing; empty without a matrix.
        gpus: Mask of the devices that are GPUs and in the matrix.
        silent: Mask of the devices of which the matrix does not say what NVLinks they have.
        ways: The words over PCIe alone, where they are told beside the NVLinks; else empty. They tell which parts two
            devices share, and nothing of how near they are.
    """

    facts: tuple[tuple[Fact, ...], ...]
    cells: tuple[tuple[str | None, ...], ...] = ()
    gpus: int = 0
    silent: int = 0
    ways: tuple[tuple[str | None, ...], ...] = ()


class _Pair(NamedTuple):
    """What is known of two devices."""

    met: frozenset[Scope]
    denied: frozenset[Scope]
    by_cell: frozenset[Scope]
    word: str | None


def compile_wiring(shape: Shape) -> Wiring:
    """The tables of one shape. Costs O(size²); what calls it keeps the result."""
    facts = dict(zip(FACT_SCOPES, shape.facts, strict=True))
    size = len(shape.facts[0])
    met = {scope: [0] * size for scope in SCOPES}
    unknown = {scope: [0] * size for scope in SCOPES}
    by_facts = {scope: [0] * size for scope in SCOPES}
    rank = [[0] * size for _ in range(size)]
    fine = [[0] * size for _ in range(size)]
    level = [["X"] * size for _ in range(size)]
    wires: list[tuple[int, int, Scope]] = []
    for one, other in combinations(range(size), 2):
        pair = _pair(shape, facts, one, other)
        nearest = min(scope.rank for scope in pair.met)
        rank[one][other] = rank[other][one] = nearest
        decisive = pair.word if pair.word is not None and _rank_of(pair.word) == nearest else None
        fine[one][other] = fine[other][one] = _fineness(decisive)
        level[one][other] = level[other][one] = decisive if decisive in _PRINTED else LEVELS[nearest]
        if pair.word is not None and SCOPES[_rank_of(pair.word)] in pair.by_cell:
            wires.append((one, other, SCOPES[_rank_of(pair.word)]))
        way = shape.ways[one][other] if shape.ways else None
        if way is not None and way != pair.word and SCOPES[_rank_of(way)] in _PROVEN_BY_RANK[_rank_of(way)]:
            wires.append((one, other, SCOPES[_rank_of(way)]))
        for scope in SCOPES:
            if scope in pair.met:
                _mark(met[scope], one, other)
                if scope not in pair.by_cell:
                    _mark(by_facts[scope], one, other)
            elif scope not in pair.denied:
                _mark(unknown[scope], one, other)
    lists = [scope for scope, values in facts.items() if any(value and len(value) > 1 for value in values)]
    return Wiring(
        size=size,
        rank=_frozen(rank),
        fine=_frozen(fine),
        level=_frozen(level),
        met=_masks(met),
        unknown=_masks(unknown),
        numa=facts[Scope.NUMA_NODE],
        islands=_islands(facts, wires),
        listed=frozenset(scope for scope in FACT_SCOPES if any(fact.rank <= scope.rank for fact in lists)),
        facts=facts,
        by_facts=_masks(by_facts),
    )


def _pair(shape: Shape, facts: Mapping[Scope, tuple[Fact, ...]], one: int, other: int) -> _Pair:
    """Evidence of both kinds about two devices, as the tables in the module's docstring say."""
    word = shape.cells[one][other] if shape.cells else None
    by_cell = {Scope.NODE}
    denied: set[Scope] = set()
    if word is not None:
        by_cell |= _PROVEN_BY_RANK[_rank_of(word)]
        denied |= _DENIED_BY_WORD.get(word) or _DENIED_BY_RANK[_rank_of(word)]
        both_gpus = shape.gpus >> one & shape.gpus >> other & 1
        if both_gpus and (shape.silent >> one | shape.silent >> other) & 1:
            denied.discard(Scope.NVLINK)
        numas = facts[Scope.NUMA_NODE][one], facts[Scope.NUMA_NODE][other]
        if word in ("NODE", ONE_CPU) and both_gpus and None not in numas:
            by_cell.discard(Scope.NUMA_NODE)
    met = set(by_cell)
    for scope, values in facts.items():
        mine, theirs = values[one], values[other]
        if mine is not None and theirs is not None:
            if mine & theirs:
                met.update(SCOPES[scope.rank :])
            else:
                denied.add(scope)
    return _Pair(frozenset(met), frozenset(denied), frozenset(by_cell), word)


def _rank_of(word: str) -> int:
    return _RANK_OF_WORD.get(word, Scope.NVLINK.rank)


def _fineness(word: str | None) -> int:
    """What decides among pairs of one rank; nearer is smaller."""
    if word is None:
        return 0
    links = nvlinks(word)
    if links is not None:
        return MOST_LINKS - min(links, MOST_LINKS)
    return 1 if word == "PXB" else 0


def _islands(
    facts: Mapping[Scope, tuple[Fact, ...]], wires: Sequence[tuple[int, int, Scope]]
) -> Mapping[Scope, tuple[int, ...]]:
    """Components of the graph of all evidence, laid down from the nearest scope to the farthest.

    Its vertices are devices and the parts that attributes name, its edges say that two of them are together. NVLink is
    a net of its own: it joins GPUs of different switches.
    """
    size = len(facts[Scope.NUMA_NODE])
    links: nx.Graph[Hashable] = nx.Graph()
    links.add_edges_from((one, other) for one, other, scope in wires if scope is Scope.NVLINK)
    islands = {Scope.NVLINK: _components(links)}
    net: nx.Graph[Hashable] = nx.Graph()
    for scope in FACT_SCOPES:
        net.add_edges_from((one, other) for one, other, proven in wires if proven is scope)
        for device, part in enumerate(_parts(facts[scope])):
            if part is not None:
                net.add_edge(device, (scope, part))
        islands[scope] = _components(net)
    islands[Scope.NODE] = ((1 << size) - 1,) if size > 1 else ()
    return islands


def _components(net: nx.Graph[Hashable]) -> tuple[int, ...]:
    """Masks of the connected components with at least two devices, in order of their first device."""
    masks = []
    for component in nx.connected_components(net):
        devices = [vertex for vertex in component if isinstance(vertex, int)]
        if len(devices) > 1:
            masks.append(sum(1 << device for device in devices))
    return tuple(sorted(masks, key=lambda mask: mask & -mask))


def _parts(values: Sequence[Fact]) -> list[Hashable]:
    """Which part (switch, root complex, NUMA node) each device belongs to, such that every device is in one.

    Devices with one value belong to it. A list belongs to the part of the lists and values that it overlaps, unless
    it bridges two that do not overlap each other: a NIC between two NUMA nodes does not make them one, and is a part
    of its own.
    """
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    overlaps: nx.Graph[frozenset[int]] = nx.Graph()
    overlaps.add_nodes_from(distinct)
    overlaps.add_edges_from((one, other) for one, other in combinations(distinct, 2) if one & other)
    bridges = [
        value for value in distinct if any(not one & other for one, other in combinations(overlaps.neighbors(value), 2))
    ]
    overlaps.remove_edges_from(list(overlaps.edges(bridges)))
    part_of = {value: number for number, part in enumerate(nx.connected_components(overlaps)) for value in part}
    return [None if value is None else part_of[value] for value in values]


def _mark(masks: list[int], one: int, other: int) -> None:
    masks[one] |= 1 << other
    masks[other] |= 1 << one


def _masks(tables: Mapping[Scope, list[int]]) -> Mapping[Scope, tuple[int, ...]]:
    return {scope: tuple(masks) for scope, masks in tables.items()}


def _frozen(table: list[list[_Cell]]) -> tuple[tuple[_Cell, ...], ...]:
    return tuple(map(tuple, table))
