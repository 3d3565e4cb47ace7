"""Which partitions a device has, or is about to have, in a share's mode.

In come a share, the device, the parts that are held of it and the partitions that it has; out go partitions at their
places. What somebody holds is never moved, and what is there already stays where that can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from adjoin_allocator.model import Device, PlacedShare, Share, Slice
from adjoin_allocator.partition_rules import PartitionRule
from adjoin_allocator.partitions import Refusal, relayout
from adjoin_allocator.rulebook import rule_for


def slices_of(
    share: Share, device: Device | None, held: Sequence[PlacedShare], made: Sequence[Slice]
) -> tuple[Slice, ...]:
    """Partitions of a device: on demand those that are held, with a layout all of it.

    `made` are those that it has. They stay as long as they are what the share says and all that is held is among them,
    and where the layout cannot be had beside what is held.
    """
    rule = rule_for(share, device) if device is not None else None
    if not isinstance(rule, PartitionRule):
        return tuple(made)
    fixed = sorted(rule.slot(each.profile or "", each.start) for each in held if each.start is not None)
    there = tuple(Slice(slot.profile, slot.start, slot.size) for slot in fixed)
    if not share.layout:
        return there
    if Counter(each.profile for each in made) == Counter(share.layout) and set(there) <= set(made):
        return tuple(made)
    if rule.geometry is None:
        return tuple(made)
    found = relayout(rule.geometry, fixed, share.layout)
    if isinstance(found, Refusal):
        return tuple(made) or there
    return tuple(Slice(slot.profile, slot.start, slot.size) for slot in found)
