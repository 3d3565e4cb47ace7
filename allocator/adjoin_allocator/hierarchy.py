"""Devices as a tree in which distances depend on the branch alone: what makes an exact search small.

In come relations over the devices of a node (how far two of them are from each other, whether they share an island),
each as codes that grow with distance; out comes a tree of vertices such that two devices of different parts of a
vertex always have the vertex' code. Real machines are such trees (switch, root complex, NUMA node), and on a tree the
cost of a choice depends only on how many devices each vertex gives. A relation that does not fit the tree below some
vertex (an NVLink mesh) is reported there as explicit, and the search then has to remember the devices themselves.

Nothing here knows which devices are free: a tree for many devices is right for any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adjoin_allocator.topology import bits

Codes = Mapping[int, int]
"""Of one device: per code the mask of the devices that it has this code with."""

NO_PAIRS = -1
"""The code of a vertex in which a relation has no pair at all."""


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Codes between the devices of two sides (or within one): by device its `Codes`; symmetric."""

    codes: Mapping[int, Codes]

    @staticmethod
    def of(left: int, right: int, code: Callable[[int, int], int]) -> Relation:
        """The relation that `code` describes between each device of `left` and each of `right`."""
        codes: dict[int, dict[int, int]] = {}
        for one in bits(left):
            for other in bits(right & ~(1 << one)):
                value = code(one, other)
                row, column = codes.setdefault(one, {}), codes.setdefault(other, {})
                row[value] = row.get(value, 0) | 1 << other
                column[value] = column.get(value, 0) | 1 << one
        return Relation(codes)


@dataclass(frozen=True, slots=True, eq=False)
class Vertex:
    """A set of devices and how it falls apart.

    Attributes:
        mask: Its devices.
        parts: Disjoint vertices that make it up; empty for a single device.
        codes: Per relation the code between devices of different parts, which is the greatest in the vertex;
            `NO_PAIRS` when there is no pair, or when the relation is explicit here or above.
        explicit: Relations that no longer follow the tree from this vertex down.
    """

    mask: int
    parts: tuple[Vertex, ...]
    codes: tuple[int, ...]
    explicit: tuple[int, ...]


def grow(mask: int, relations: Sequence[Relation], yielding: Sequence[int]) -> Vertex:
    """The tree of the devices in `mask`.

    Where no way of falling apart suits all relations, they become explicit in the order of `yielding` (indices), one
    alone if that is enough, else more and more of them.
    """
    return _grow(mask, relations, tuple(range(len(relations))), yielding)


def _grow(mask: int, relations: Sequence[Relation], active: tuple[int, ...], yielding: Sequence[int]) -> Vertex:
    if not mask & mask - 1:
        return Vertex(mask, (), (NO_PAIRS,) * len(relations), ())
    codes = {index: _greatest(relations[index], mask) for index in active}
    parts = _split(mask, relations, active, codes)
    dropped: tuple[int, ...] = ()
    if len(parts) == 1:
        candidates = [index for index in yielding if index in active and codes[index] != NO_PAIRS]
        attempts: list[tuple[int, ...]] = [(index,) for index in candidates]
        attempts += [tuple(candidates[:end]) for end in range(2, len(candidates) + 1)]
        for dropped in attempts:
            left = tuple(index for index in active if index not in dropped)
            parts = _split(mask, relations, left, codes)
            if len(parts) > 1:
                active = left
                break
    return Vertex(
        mask=mask,
        parts=tuple(_grow(part, relations, active, yielding) for part in parts),
        codes=tuple(codes[index] if index in active else NO_PAIRS for index in range(len(relations))),
        explicit=dropped,
    )


def _greatest(relation: Relation, mask: int) -> int:
    greatest = NO_PAIRS
    for device in bits(mask):
        for code, others in relation.codes.get(device, _NONE).items():
            if code > greatest and others & mask:
                greatest = code
    return greatest


_NONE: Codes = {}


def _split(
    mask: int, relations: Sequence[Relation], active: Sequence[int], codes: Mapping[int, int]
) -> tuple[int, ...]:
    """The coarsest parts that have the given code between them in every active relation."""
    parts = []
    rest = mask
    while rest:
        part, border = 0, rest & -rest
        while border:
            part |= border
            reached = 0
            for device in bits(border):
                for index in active:
                    greatest = codes[index]
                    for code, others in relations[index].codes.get(device, _NONE).items():
                        if code != greatest:
                            reached |= others
            border = reached & mask & ~part
        parts.append(part)
        rest &= ~part
    return tuple(parts)


def walk(vertex: Vertex) -> Iterator[Vertex]:
    """A vertex and all below it."""
    yield vertex
    for part in vertex.parts:
        yield from walk(part)


def lowest(vertex: Vertex, mask: int) -> Vertex:
    """The lowest vertex that holds all of `mask`."""
    while True:
        for part in vertex.parts:
            if not mask & ~part.mask:
                vertex = part
                break
        else:
            return vertex
