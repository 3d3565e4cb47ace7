"""Arithmetic of a shared device, in exact integers: bytes of its memory, thousandths of its compute.

In come a DeviceShare, a device's memory and what is asked or held of it; out come what may be given away in all, what a
part costs and whether it fits. What a mode is capable of stands here and nowhere else. Nothing here knows who holds
what, or chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Device, PlacedShare, Share, ShareAsk
from adjoin_allocator.terms import Isolation, ShareMode

MILLI = 1000
"""Thousandths of a whole card."""

AMOUNTS = frozenset({ShareMode.FRACTIONAL, ShareMode.MPS})
"""Modes that divide memory and compute at will."""

PIECES = frozenset({ShareMode.TIME_SLICED, ShareMode.VIRTUAL_FUNCTIONS})
"""Modes that give a device by the piece, all pieces alike."""

ISOLATION = {
    ShareMode.TIME_SLICED: Isolation.NONE,
    ShareMode.FRACTIONAL: Isolation.COOPERATIVE,
    ShareMode.MPS: Isolation.COOPERATIVE,
    ShareMode.PARTITIONED: Isolation.HARD,
    ShareMode.VIRTUAL_FUNCTIONS: Isolation.HARD,
}
"""How well a mode keeps those apart who share a device."""

STRENGTH = {Isolation.NONE: 0, Isolation.COOPERATIVE: 1, Isolation.HARD: 2}

_PER_MILLION = 1_000_000


def isolates(mode: ShareMode, wanted: Isolation) -> bool:
    """Whether a mode keeps its users as far apart as is wanted."""
    return STRENGTH[ISOLATION[mode]] >= STRENGTH[wanted]


def memory_bytes(device: Device) -> int | None:
    """A device's memory as its driver publishes it (capacity `memory` of any domain); None when it does not."""
    found: Quantity | None = None
    for name, amount in sorted(device.capacity.items()):
        if name.rpartition("/")[2] == "memory" and (found is None or name.startswith(f"{device.driver}/")):
            found = amount
    return None if found is None else _whole(found)


def _whole(amount: Quantity) -> int:
    """A quantity as a whole number of bytes, rounded down."""
    if amount.scale >= 0:
        return amount.unscaled * int(10**amount.scale)
    return amount.unscaled // int(10**-amount.scale)


def reserve_bytes(share: Share, memory: int) -> int:
    """What is kept back of a device's memory: the greater of the least reserve and the part of it, rounded up."""
    return max(share.min_reserve_bytes, -(-memory * share.reserve_per_million // _PER_MILLION))


def shareable_bytes(share: Share, memory: int) -> int:
    """What may be given away of a device's memory in all."""
    return max(0, memory - reserve_bytes(share, memory))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of one device, or several of it. None is not limited, and takes nothing away from others.

    Attributes:
        amount: Bytes of memory, slots, or functions.
        compute_milli: Thousandths of the compute.
        clients: How many of a limited number of clients it is.
        profile: Partitioned: the profile; then nothing else is said of it but the number.
        number: How many partitions.
    """

    amount: int | None = None
    compute_milli: int | None = None
    clients: int = 0
    profile: str = ""
    number: int = 1

    @property
    def units(self) -> int:
        """Bytes, slots or functions that it takes."""
        return self.amount or 0

    @property
    def milli(self) -> int:
        """Thousandths of the compute that it takes."""
        return self.compute_milli or 0

    def times(self, number: int) -> Part:
        """So many of it together."""
        return Part(
            None if self.amount is None else self.amount * number,
            None if self.compute_milli is None else self.compute_milli * number,
            self.clients * number,
            self.profile,
            self.number * number,
        )


def part(ask: ShareAsk | PlacedShare, share: Share) -> Part:
    """The part of one device that is asked of a share, or held."""
    match share.mode:
        case ShareMode.TIME_SLICED:
            return Part(1 if ask.slots is None else ask.slots)
        case ShareMode.VIRTUAL_FUNCTIONS:
            return Part(1)
        case ShareMode.PARTITIONED:
            return Part(profile=ask.profile or "")
        case _:
            return Part(ask.memory_bytes, ask.compute_milli, 0 if share.max_clients is None else 1)
