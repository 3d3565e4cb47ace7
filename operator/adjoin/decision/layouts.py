"""Which partitions a device has, or is about to have, in a share's mode.

In come a share, the device and the parts that are held of it; out go partitions with the memory slices that they take.
"""

from __future__ import annotations

from collections.abc import Sequence

from adjoin_allocator.model import Device, PlacedShare, Share, Slice


def slices_of(
    share: Share, device: Device | None, held: Sequence[PlacedShare], made: Sequence[Slice]
) -> tuple[Slice, ...]:
    """Partitions of a device: those that are held, with a static layout all of it. `made` are those it has already."""
    return tuple(made)
