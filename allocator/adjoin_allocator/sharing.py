"""Arithmetic of a shared device, in exact integers: bytes of its memory, thousandths of its compute.

In come a DeviceShare, a device's memory and what is asked or held of it; out come what may be given away in all, what a
part costs and whether it fits. What a mode is capable of stands here and nowhere else. Nothing here knows who holds
what, or chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Device, PlacedShare, Request, Share, ShareAsk
from adjoin_allocator.terms import Isolation, ShareMode

MILLI = 1000
"""Thousandths of a whole card."""

DIVISIBLE = frozenset({ShareMode.FRACTIONAL})
"""Modes whose parts can be given away: those that divide memory and compute at will."""

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
    """A part of one device. None is not limited, and takes nothing away from others."""

    memory_bytes: int | None
    compute_milli: int | None

    @property
    def bytes(self) -> int:
        """Bytes that it takes."""
        return self.memory_bytes or 0

    @property
    def milli(self) -> int:
        """Thousandths of the compute that it takes."""
        return self.compute_milli or 0

    def times(self, number: int) -> Part:
        """So many of it together."""
        return Part(
            None if self.memory_bytes is None else self.memory_bytes * number,
            None if self.compute_milli is None else self.compute_milli * number,
        )


def part(ask: ShareAsk | PlacedShare) -> Part:
    """The part of one device that is asked for, or held."""
    return Part(ask.memory_bytes, ask.compute_milli)


def cost_milli(asked: Part, shareable: int | None) -> int:
    """What a part costs: its largest fraction of the card in thousandths, rounded up.

    `shareable` is what the card has to give in bytes; without it, or when it is too small, a part with memory costs
    the whole card.
    """
    memory = 0
    if asked.memory_bytes:
        memory = MILLI if not shareable else min(MILLI, -(-asked.memory_bytes * MILLI // shareable))
    return max(memory, asked.milli)


def left_milli(free_bytes: int, free_milli: int, shareable: int) -> int:
    """What is left of a card, by its scarcer resource in thousandths, rounded down."""
    return max(0, min(free_milli, free_bytes * MILLI // shareable if shareable else free_milli))


def quota_milli(request: Request, shareable: int | None) -> int:
    """What one replica's request costs of a quota, in thousandths of devices: whole devices each a thousand, parts each
    by their largest fraction on a card that has `shareable` bytes to give.
    """
    if request.share is None:
        return request.count * MILLI
    return request.count * cost_milli(part(request.share), shareable)
