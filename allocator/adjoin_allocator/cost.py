"""The lexicographic objective of a choice, as terms and as one integer.

In comes what a claim asks of one replica, out come the terms whose sums are minimised and the way to add them up in one
integer: each part of the objective has bits of its own, the more important the higher, so that comparing two integers
compares the parts one after the other. Nothing here looks at a node or knows what is free.

The objective of a node (all of it is minimised, in this order):

1. per Preferred scope line, in the order of the list: the sum of ranks over its pairs, then the sum of `fine`; without
   any such line the same over the pairs of GPUs, then over GPU-RDMA pairs;
2. what others lose: places that they need, nearness that they prefer, places that are asked for (`demand`); 0 when
   nobody else asks for anything;
3. what is no longer whole: devices in NVLink islands, then switches, root complexes, NUMA nodes, the node that were
   wholly free and are not any more;
4. blocks: places for 2, 4, 8, … devices of the same name on the node that are gone, the largest first;
5. wasted performance;
6. class priority (higher is better);
7. stable order: the first request's devices in stable order, compared place by place, then the second's, …

Required lines are no part of it: a choice meets them or is none. Across nodes the sums of 1 to 6 are compared, then
the less loaded node wins, then stable order. Since 3 counts what is lost and not what is left, a single device goes
to a node whose islands are broken already, and whole nodes are opened last; 4 is the demand of 1, 2, 4, … devices
that is always assumed (powers of two nest: who takes a single from seven free ones leaves three pairs as there were
before, who takes it from four leaves a pair and a four less), so among broken nodes the one is taken whose remainder
is of least use to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from adjoin_allocator.model import Affinity, Request
from adjoin_allocator.terms import DeviceType, Policy, Scope

ISLAND_SCOPES = (Scope.NVLINK, Scope.PCIE_SWITCH, Scope.PCIE_ROOT, Scope.NUMA_NODE, Scope.NODE)
"""Levels at which devices are kept together, the most valuable first."""


class Mode(StrEnum):
    """How a Required line is read. Placing reads them strictly; the others answer "what if" questions."""

    STRICT = "Strict"
    LENIENT = "Lenient"
    """What is unknown counts as met."""
    OFF = "Off"
    """As if the line were not there."""


@dataclass(frozen=True, slots=True)
class ScopeLine:
    """A scope over one request, or over two or more. Requests are given by their place in the claim."""

    requests: tuple[int, ...]
    scope: Scope
    required: bool
    mode: Mode = Mode.STRICT


@dataclass(frozen=True, slots=True)
class AttributeLine:
    """One value for all devices of the requests (Match), or no value twice (Distinct)."""

    requests: tuple[int, ...]
    attribute: str
    distinct: bool
    mode: Mode = Mode.STRICT


@dataclass(frozen=True, slots=True)
class Term:
    """Pairs whose distances are added up: within `left` when `right` is empty, else pairs of one of each side."""

    left: tuple[int, ...]
    right: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """All of a claim that decides a choice, but for its selectors: two claims of one signature ask the same.

    Attributes:
        kinds: Device name of each request.
        counts: Devices of each request; 0 stands for all that match.
        scopes: Scope lines in the claim's order.
        attributes: Attribute lines in the claim's order.
        slots: The distance parts of the objective, the most important first; each adds up some terms.
    """

    kinds: tuple[str, ...]
    counts: tuple[int, ...]
    scopes: tuple[ScopeLine, ...]
    attributes: tuple[AttributeLine, ...]
    slots: tuple[tuple[Term, ...], ...]


def line_terms(requests: Sequence[int]) -> tuple[Term, ...]:
    """The pairs that a scope line speaks of: those within its only request, or those of the first with each other."""
    first, *others = requests
    if not others:
        return (Term((first,)),)
    return tuple(Term((min(first, other),), (max(first, other),)) for other in others)


def signature(requests: Sequence[Request], types: Sequence[DeviceType], affinity: Sequence[Affinity]) -> Signature:
    """What `requests` (of these types) with these lines ask. Every line names requests that exist, each once."""
    place = {request.name: index for index, request in enumerate(requests)}
    scopes: list[ScopeLine] = []
    attributes: list[AttributeLine] = []
    slots: list[tuple[Term, ...]] = []
    for line in affinity:
        members = tuple(place[name] for name in line.requests)
        if line.scope is None:
            attributes.append(AttributeLine(members, line.attribute, line.policy is Policy.DISTINCT))
        else:
            scopes.append(ScopeLine(members, line.scope, line.policy is Policy.REQUIRED))
            if line.policy is Policy.PREFERRED and line_terms(members) not in slots:
                slots.append(line_terms(members))
    if not slots:
        gpus = tuple(index for index, kind in enumerate(types) if kind is DeviceType.GPU)
        nics = tuple(index for index, kind in enumerate(types) if kind is DeviceType.RDMA)
        if gpus:
            slots.append((Term(gpus),))
            if nics:
                slots.append((_across(gpus, nics),))
    return Signature(
        kinds=tuple(request.kind for request in requests),
        counts=tuple(0 if request.all_devices else request.count for request in requests),
        scopes=tuple(scopes),
        attributes=tuple(attributes),
        slots=tuple(slots),
    )


def _across(gpus: tuple[int, ...], nics: tuple[int, ...]) -> Term:
    return Term(gpus, nics) if gpus < nics else Term(nics, gpus)


def blocks_lost(free: int, taken: int) -> int:
    """How many places for 2, 4, 8, … devices are gone after `taken` of `free` devices, the largest size in the highest
    bits.
    """
    lost, power, left = 0, 1, free - taken
    while 1 << power <= free:
        lost |= ((free >> power) - (left >> power)) << _BLOCK_BITS * power
        power += 1
    return lost


_BLOCK_BITS = 16
"""Bits for one size of block: more devices than a node can hold."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Where each part of the objective has its bits.

    Attributes:
        slots: Per slot the shift of its rank sum and of its fine sum.
        demand: Shift of what others lose.
        islands: Per scope of `ISLAND_SCOPES` its shift.
        performance: Shift of the performance sum.
        priority: Shift of the (inverted) priority sum.
        order: Bits below all others, for stable order.
    """

    slots: tuple[tuple[int, int], ...]
    demand: int
    islands: tuple[int, ...]
    performance: int
    priority: int
    order: int
    widths: tuple[int, ...]

    def parts(self, packed: int) -> tuple[int, ...]:
        """The parts of a packed objective without its order bits, the most important first."""
        found = []
        for width in self.widths:
            found.append(packed & (1 << width) - 1)
            packed >>= width
        return tuple(reversed(found))


def packing(
    slots: int, total: int, size: int, finest: int, performance: int, priority: int, requests: int, demand: int = 0
) -> Packing:
    """Bits for a choice of `total` of `size` devices with `slots` distance parts, pairs of at most `finest` in `fine`,
    values per device of at most `performance` and `priority`, and a loss to others of at most `demand`.
    """
    pairs = max(1, total * total)
    widths = [(priority * total).bit_length() + 1, (performance * total).bit_length() + 1]
    widths += [size.bit_length() + 1] * len(ISLAND_SCOPES)
    widths.append(demand.bit_length() + 1)
    widths += [(finest * pairs).bit_length() + 2, (4 * pairs).bit_length() + 2] * slots
    shift = order = max(1, size * requests)
    shifts = []
    for width in widths:
        shifts.append(shift)
        shift += width
    distance = shifts[3 + len(ISLAND_SCOPES) :]
    return Packing(
        slots=tuple((distance[at + 1], distance[at]) for at in range(len(distance) - 2, -1, -2)),
        demand=shifts[2 + len(ISLAND_SCOPES)],
        islands=tuple(reversed(shifts[2 : 2 + len(ISLAND_SCOPES)])),
        performance=shifts[1],
        priority=shifts[0],
        order=order,
        widths=tuple(widths),
    )
