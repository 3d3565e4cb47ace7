"""Shares of which more is in use than they may give: they were made smaller since.

In come a snapshot and its plan, out comes a sentence for each such share. Nobody loses anything for that; what a share
then gives is `fractions`' and `packing`'s question. Costs a look at each claim, where there are shares at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from adjoin_allocator.amounts import size
from adjoin_allocator.model import Device, DeviceID
from adjoin_allocator.results import Plan
from adjoin_allocator.sharing import memory_bytes, shareable_bytes
from adjoin_allocator.snapshot import Snapshot


def overdrawn(snapshot: Snapshot, plan: Plan) -> Mapping[str, str]:
    """By share `2 devices are split, maxDevices is 1`, or what of one device is in use and what the share gives."""
    if not snapshot.shares:
        return {}
    used: dict[str, dict[tuple[str, DeviceID], int]] = {}
    for claim in snapshot.claims:
        decided = plan.claims.get(claim.uid)
        # What an older claim keeps is not in use twice.
        lost = () if decided is None else decided.conflicts
        for replica in claim.placed:
            for device in replica.devices if replica.index not in lost else ():
                if device.share is not None and device.share.name in snapshot.shares:
                    mine = used.setdefault(device.share.name, {})
                    key = (replica.node, device.id)
                    mine[key] = mine.get(key, 0) + (device.share.memory_bytes or 0)
    found = {}
    for name, cards in sorted(used.items()):
        share, told = snapshot.shares[name], list[str]()
        if share.max_devices is not None and len(cards) > share.max_devices:
            told.append(f"{len(cards)} devices are split, maxDevices is {share.max_devices}")
        for (node, device_id), in_use in sorted(cards.items()):
            there = _device(snapshot, node, device_id)
            memory = memory_bytes(there) if there is not None else None
            if memory is not None and in_use > (gives := shareable_bytes(share, memory)):
                told.append(f"{size(in_use)} of {node}/{device_id.device} is in use, it gives {size(gives)}")
        if told:
            found[name] = "; ".join(told)
    return found


def _device(snapshot: Snapshot, node: str, wanted: DeviceID) -> Device | None:
    return next((device for device in snapshot.inventory.get(node, ()) if device.id == wanted), None)
