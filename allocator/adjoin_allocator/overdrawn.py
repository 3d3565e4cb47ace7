"""Shares of which more is in use than they may give: they were made smaller since.

In come a snapshot and its plan, out comes a sentence for each such share. Nobody loses anything for that; what a share
then gives is `fractions`' and `packing`'s question. Costs a look at each claim, where there are shares at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from adjoin_allocator.model import Device, DeviceID, PlacedShare
from adjoin_allocator.results import Plan
from adjoin_allocator.rulebook import rule_for
from adjoin_allocator.snapshot import Snapshot


def overdrawn(snapshot: Snapshot, plan: Plan) -> Mapping[str, str]:
    """By share `2 devices are split, maxDevices is 1`, or what of one device is in use and what the share gives."""
    if not snapshot.shares:
        return {}
    used: dict[str, dict[tuple[str, DeviceID], Counter[PlacedShare]]] = {}
    for claim in snapshot.claims:
        decided = plan.claims.get(claim.uid)
        # What an older claim keeps is not in use twice.
        lost = () if decided is None else decided.conflicts
        for replica in claim.placed:
            for device in replica.devices if replica.index not in lost else ():
                if device.share is not None and device.share.name in snapshot.shares:
                    mine = used.setdefault(device.share.name, {})
                    mine.setdefault((replica.node, device.id), Counter())[device.share] += 1
    found = {}
    for name, cards in sorted(used.items()):
        share, told = snapshot.shares[name], list[str]()
        if share.max_devices is not None and len(cards) > share.max_devices:
            told.append(f"{len(cards)} devices are split, maxDevices is {share.max_devices}")
        for (node, device_id), held in sorted(cards.items(), key=lambda card: card[0]):
            there = _device(snapshot, node, device_id)
            if there is not None:
                told += rule_for(share, there).excess(held, f"{node}/{device_id.device}")
        if told:
            found[name] = "; ".join(told)
    return found


def _device(snapshot: Snapshot, node: str, wanted: DeviceID) -> Device | None:
    return next((device for device in snapshot.inventory.get(node, ()) if device.id == wanted), None)
