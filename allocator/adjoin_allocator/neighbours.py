"""Who is whose neighbour in a node: devices in groups by NUMA node, and how busy each group is.

In come a wiring and which devices are free, out come groups that together hold every device once. Devices are in one
group when they are known to be on one NUMA node (`Wiring.islands`). Those of which that is not known are one group as
well, but each counts as a NUMA node of its own: unknown is never equal to unknown, and neither is it known to be apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from adjoin_allocator.terms import Scope
from adjoin_allocator.wiring import Wiring, bits

WIRINGS = 1024
"""How many wirings' groups are remembered."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The devices of a node by NUMA node.

    Attributes:
        known: Masks of devices that are known to be on one NUMA node; a device that is known to be the only one of
            its node is in a mask of its own.
        unknown: The devices of which no NUMA node is known.
    """

    known: tuple[int, ...]
    unknown: int

    @property
    def every(self) -> tuple[int, ...]:
        """All groups, that of the unknown among them."""
        return (*self.known, self.unknown) if self.unknown else self.known


@lru_cache(maxsize=WIRINGS)
def groups(wiring: Wiring) -> Groups:
    """The groups of a node's devices."""
    islands = wiring.islands[Scope.NUMA_NODE]
    rest = (1 << wiring.size) - 1
    for island in islands:
        rest &= ~island
    alone = [1 << device for device in bits(rest) if wiring.numa[device] is not None]
    for mask in alone:
        rest &= ~mask
    return Groups((*islands, *alone), rest)


def loads(wiring: Wiring, free: int, unit: int) -> tuple[int, ...]:
    """By device how much of its group is not free: nothing is 0, all of it is `unit`."""
    found = [0] * wiring.size
    for group in groups(wiring).every:
        load = (group & ~free).bit_count() * unit // group.bit_count()
        for device in bits(group):
            found[device] = load
    return tuple(found)
