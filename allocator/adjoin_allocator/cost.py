"""The lexicographic objective of a choice, as terms and as one integer.

In comes what a claim asks of one replica, out come the terms whose sums are minimised and the way to add them up in one
integer: each part of the objective has bits of its own, the more important the higher, so that comparing two integers
compares the parts one after the other. Nothing here looks at a node or knows what is free.

The objective of a node (all of it is minimised, in this order; `parts_of` has it as values):

1. Latency alone: NUMA nodes that are used, then who shares the cards of which parts are taken, then devices of these
   NUMA nodes that are not free (busy neighbours);
2. per Preferred scope line, in the order of the list: the sum of ranks over its pairs, then the sum of `fine`; without
   any such line the same over the pairs of GPUs, then over GPU-RDMA pairs (IO: GPU-RDMA pairs first);
3. Compute alone: wasted performance, see 8;
4. Pack: how much of the node is free; Spread: how much of the node is not free, then the same of the NUMA nodes of the
   chosen devices, added up over these;
5. where devices share counters: what others lose of the cards (`budgets`), the largest partitions first;
   then what others lose: places that they need, nearness that they prefer, places that are asked for (`demand`); 0 when
   nobody else asks for anything;
6. what is no longer whole: devices in NVLink islands, then switches, root complexes, NUMA nodes, the node that were
   wholly free and are not any more;
7. blocks: places for 2, 4, 8, … devices of the same name on the node that are gone, the largest first;
8. wasted performance (unless it stood at 3);
9. class priority (higher is better);
10. stable order: the first request's devices in stable order, compared place by place, then the second's, …

Required lines are no part of it: a choice meets them or is none. Across nodes the sums of 1 to 9 are compared, then
the less loaded node wins, then stable order. Since 6 counts what is lost and not what is left, a single device goes
to a node whose islands are broken already, and whole nodes are opened last; 7 is the demand of 1, 2, 4, … devices
that is always assumed (powers of two nest: who takes a single from seven free ones leaves three pairs as there were
before, who takes it from four leaves a pair and a four less), so among broken nodes the one is taken whose remainder
is of least use to others.

What a profile means, where it could be read in two ways:

- **Wasted performance** of a device is its performance less the least that any device of the pool has which the
  request's selectors match, whoever holds it: what is asked for is the yardstick, not what happens to be free. So
  every claim gets the slowest devices that satisfy it, all else being equal, and who needs fast ones says so by a
  selector: then they are the least that satisfies, and not wasted. `Compute` is strict about it: it would sooner break
  an island of the slow ones than take a fast one that it has not asked for, and the fast ones are there for those who
  have. Class priority stays where it is, since it decides among what is equal otherwise.
- **Latency** counts as NUMA nodes the groups of devices that are known to be on one (`wiring.islands`); a device of
  which that is not known is on one of its own, since unknown equals nothing. Busy neighbours are the devices of these
  groups that are not free, for whatever reason; those whose NUMA node is unknown are taken as neighbours of each other,
  as nothing says that they are not. It stands before Preferred lines, which are sums of pairs as well.
- A profile is what the claim wants and a strategy what the pool does with places that are equally good for the claim,
  so 3 stands before 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from adjoin_allocator.model import Affinity, Request
from adjoin_allocator.terms import DeviceType, Policy, Profile, Scope, Strategy

ISLAND_SCOPES = (Scope.NVLINK, Scope.PCIE_SWITCH, Scope.PCIE_ROOT, Scope.NUMA_NODE, Scope.NODE)
"""Levels at which devices are kept together, the most valuable first."""


class Part(StrEnum):
    """A part of the objective; see the list above for what each adds up."""

    NUMA_NODES = "NUMA nodes"
    BUSY = "busy neighbours"
    DISTANCES = "distances"
    NODE_LOAD = "load of the node"
    NUMA_LOAD = "load of NUMA nodes"
    CARDS = "what is lost of cards"
    DEMAND = "what others lose"
    WHOLE = "no longer whole"
    BLOCKS = "blocks"
    WASTE = "wasted performance"
    PRIORITY = "class priority"


OF_THE_NODE = frozenset({Part.NODE_LOAD, Part.BLOCKS})
"""Parts that are the same for every choice in a node, so that a search need not carry them."""


def parts_of(profile: Profile, strategy: Strategy, parts: bool = False, counted: bool = False) -> tuple[Part, ...]:
    """The order in which the parts of the objective count; `parts` where parts of devices are asked for, `counted`
    where some devices share counters.
    """
    first: tuple[Part, ...] = (Part.NUMA_NODES, Part.BUSY) if profile is Profile.LATENCY else ()
    if parts and first:
        # Who shares the card is the nearest neighbour.
        first = (Part.NUMA_NODES, Part.DEMAND, Part.BUSY)
    waste = (Part.WASTE,)
    early, late = (waste, ()) if profile is Profile.COMPUTE else ((), waste)
    where: tuple[Part, ...] = ()
    if strategy is Strategy.PACK:
        where = (Part.NODE_LOAD,)
    elif strategy is Strategy.SPREAD:
        where = (Part.NODE_LOAD, Part.NUMA_LOAD)
    left = (*((Part.CARDS,) if counted else ()), Part.DEMAND, Part.WHOLE, Part.BLOCKS)
    left = tuple(part for part in left if part not in first)
    return (*first, Part.DISTANCES, *early, *where, *left, *late, Part.PRIORITY)


BALANCED = parts_of(Profile.BALANCED, Strategy.LEAST_FRAGMENTATION)

LOAD_UNIT = 1_000_000
"""What a full node or NUMA node counts in parts that compare loads; fractions of it are cut off."""


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
        order: The parts of the objective, the most important first.
        spread: Load is better avoided than sought (strategy Spread).
        least: Of each request for all that match, the least performance in the pool that satisfies it; 0 of others,
            where it is the same for every choice.
    """

    kinds: tuple[str, ...]
    counts: tuple[int, ...]
    scopes: tuple[ScopeLine, ...]
    attributes: tuple[AttributeLine, ...]
    slots: tuple[tuple[Term, ...], ...]
    order: tuple[Part, ...] = BALANCED
    spread: bool = False
    least: tuple[int, ...] = ()

    def place(self, part: Part) -> int:
        """Where the first number of a part stands in an objective."""
        return sum(self._length(before) for before in self.order[: self.order.index(part)])

    @property
    def carried(self) -> int:
        """How many numbers of an objective depend on the choice in a node."""
        return sum(self._length(part) for part in self.order if part not in OF_THE_NODE)

    def _length(self, part: Part) -> int:
        if part is Part.DISTANCES:
            return 2 * len(self.slots)
        return len(ISLAND_SCOPES) if part is Part.WHOLE else 1


def line_terms(requests: Sequence[int]) -> tuple[Term, ...]:
    """The pairs that a scope line speaks of: those within its only request, or those of the first with each other."""
    first, *others = requests
    if not others:
        return (Term((first,)),)
    return tuple(Term((min(first, other),), (max(first, other),)) for other in others)


def signature(
    requests: Sequence[Request],
    types: Sequence[DeviceType],
    affinity: Sequence[Affinity],
    profile: Profile = Profile.BALANCED,
    strategy: Strategy = Strategy.LEAST_FRAGMENTATION,
    least: tuple[int, ...] = (),
    counted: bool = False,
) -> Signature:
    """What `requests` (of these types) with these lines ask. Every line names requests that exist, each once.

    Claims of different profiles that come to the same have one signature.
    """
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
            if profile is Profile.IO:
                slots.reverse()
    return Signature(
        kinds=tuple(request.kind for request in requests),
        counts=tuple(0 if request.all_devices else request.count for request in requests),
        scopes=tuple(scopes),
        attributes=tuple(attributes),
        slots=tuple(slots),
        order=parts_of(profile, strategy, any(request.share is not None for request in requests), counted),
        spread=strategy is Strategy.SPREAD,
        least=least,
    )


def distances(signature: Signature, objective: tuple[int, ...]) -> tuple[int, ...]:
    """The parts of a node's objective that say how far its devices are from each other, whatever else is there: NUMA
    nodes (of Latency, else 0), then for each slot a sum of ranks and a sum of `fine`.
    """
    numa = objective[signature.place(Part.NUMA_NODES)] if Part.NUMA_NODES in signature.order else 0
    at = signature.place(Part.DISTANCES)
    return numa, *objective[at : at + 2 * len(signature.slots)]


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
        shifts: By part the shift of each of its numbers.
        widths: Per number its bits, the least important first.
        order: Bits below all others, for stable order.
    """

    shifts: Mapping[Part, tuple[int, ...]]
    widths: tuple[int, ...]
    order: int

    @property
    def slots(self) -> tuple[tuple[int, int], ...]:
        """Per slot the shift of its rank sum and of its fine sum."""
        shifts = self.shifts[Part.DISTANCES]
        return tuple(zip(shifts[::2], shifts[1::2], strict=True))

    def parts(self, packed: int) -> list[int]:
        """The numbers of a packed objective without its order bits, the most important first."""
        found = []
        for width in self.widths:
            found.append(packed & (1 << width) - 1)
            packed >>= width
        return found[::-1]


def packing(order: Sequence[Part], most: Mapping[Part, Sequence[int]], tail: int) -> Packing:
    """Bits for the numbers of each part, of which `most` has the greatest values, above `tail` bits."""
    shifts: dict[Part, tuple[int, ...]] = {}
    widths: list[int] = []
    shift = max(1, tail)
    for part in reversed(order):
        mine = []
        for value in reversed(most.get(part, ())):
            mine.append(shift)
            widths.append(value.bit_length() + 1)
            shift += widths[-1]
        shifts[part] = tuple(reversed(mine))
    return Packing(shifts, tuple(widths), max(1, tail))
