"""Parts of a share in numbers: how many there are, and how many are free.

In come a share, the devices that it selects and who has what of them; out go counts, none ever negative. Nothing here
decides who gets one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adjoin_allocator.card_rules import UNUSED
from adjoin_allocator.model import Device, DeviceID, PlacedShare, Share
from adjoin_allocator.rulebook import rule_for
from adjoin_allocator.sharing import AMOUNTS, MILLI
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import ShareMode, Standing


@dataclass(frozen=True, slots=True)
class Units:
    """A share's parts.

    Attributes:
        units: How many there are or could be; None where that depends on which are asked for (partitions on demand).
        free: How many of these can be given out now, or None.
    """

    units: int | None
    free: int | None


def count_units(
    share: Share, devices: Sequence[Device], held: Mapping[DeviceID, Sequence[PlacedShare | None]], snapshot: Snapshot
) -> Units:
    """The parts of `devices`, all that the share selects. `held` says who has what of them, None for the whole.

    Devices that are in the mode count first; others that could be brought into it, as far as `max_devices` allows.
    """
    mine: list[tuple[int, int]] = []
    others: list[int] = []
    known = True
    for device in devices:
        parts = held.get(device.id, ())
        own = [each for each in parts if each is not None and each.name == share.name]
        mode = snapshot.modes.get(device.id)
        node = snapshot.nodes.get(device.node)
        sound = device.standing is Standing.OFFERED and node is not None and node.ready
        gives = capacity(share, device)
        hold = snapshot.holds.get(device.id)
        if hold is not None and (hold.lent is None or share.mode not in AMOUNTS):
            # What others consume is told in amounts: nothing else is given beside it.
            sound = False
        known = known and gives is not None
        if own or (mode is not None and mode.share == share.name):
            used = _used(share, device, own)
            free = max(0, (gives or 0) - used) if sound and len(own) == len(parts) else 0
            mine.append((gives or 0, free))
        elif not parts and mode is None and sound:
            others.append(_whole(share, device, gives or 0))
    room = len(others) if share.max_devices is None else max(0, share.max_devices - len(mine))
    more = sum(sorted(others, reverse=True)[:room])
    excess = share.max_devices is not None and len(mine) > share.max_devices
    if not known:
        return Units(None, None)
    free = 0 if excess else sum(free for _, free in mine) + more
    return Units(sum(gives for gives, _ in mine) + more, free)


def capacity(share: Share, device: Device) -> int | None:
    """How many parts a device gives; None where that depends on which."""
    match share.mode:
        case ShareMode.TIME_SLICED:
            return share.slots
        case ShareMode.VIRTUAL_FUNCTIONS:
            return share.functions
        case ShareMode.PARTITIONED:
            return sum(share.layout.values()) if share.layout else None
        case ShareMode.MPS if share.max_clients is not None:
            return share.max_clients
        case _:
            return MILLI


def _whole(share: Share, device: Device, gives: int) -> int:
    """How many parts a device gives of which no claim has any: of some, others consume a part."""
    if device.lent is None:
        return gives
    rule = rule_for(share, device)
    left = rule.left_milli(UNUSED)
    return min(gives, rule.most) if gives != MILLI else left


def _used(share: Share, device: Device, own: Sequence[PlacedShare]) -> int:
    match share.mode:
        case ShareMode.TIME_SLICED:
            return sum(each.slots or 1 for each in own)
        case ShareMode.VIRTUAL_FUNCTIONS | ShareMode.PARTITIONED:
            return len(own)
        case ShareMode.MPS if share.max_clients is not None:
            return len(own)
        case _:
            rule = rule_for(share, device)
            return MILLI - rule.left_milli(rule.use(Counter(own).items()))
