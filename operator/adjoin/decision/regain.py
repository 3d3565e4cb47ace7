"""Claims whose status lost replicas that pods have: as they would be if it had not, and what is to be said.

In come a view and its inventory; out go claims that name these replicas again, so that nobody is given their devices
and nothing is evicted for what they seem to lack, and for each what its status really says. Their decision then writes
the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from adjoin.cache import View
from adjoin.delivery import Notice
from adjoin.facts import ClaimFacts, Raw
from adjoin.holdings import read_placed
from adjoin.inventory import Inventory
from adjoin.lifecycle import Reclaimed, Relations, may_lack, reclaim
from adjoin_allocator.model import DeviceID

RECLAIMED: Final = "reclaimed"
"""The action by which metrics count a replica that was put back."""


@dataclass(frozen=True, slots=True, eq=False)
class Regained:
    """One such claim.

    Attributes:
        stored: Its status as it is.
        found: What is put back.
    """

    stored: Raw
    found: Reclaimed

    def notices(self, version: int) -> list[Notice]:
        """What the claim's owner should hear."""
        told = []
        for index, entry in self.found.entries.items():
            devices = ", ".join(str(each["device"]) for each in entry["devices"])
            where = f"replica {index} on {entry['node']}"
            text = f"{where} is back in the status, which did not name it: pod {self.found.pods[index]} has {devices}"
            told.append(Notice("Reclaimed", text, warning=True, key=f"{index}/{version}"))
        return told


def regain(
    view: View, relations: Relations, inventory: Inventory, now: float
) -> tuple[Mapping[str, ClaimFacts], Mapping[str, Regained]]:
    """The view's claims with what their statuses lost, and what that was by UID of the claim."""
    found: dict[str, Regained] = {}
    claims: dict[str, ClaimFacts] = {}
    for claim in view.claims.values():
        if not may_lack(claim, relations):
            continue
        got = reclaim(claim, relations, inventory, partial(_taken, view, claim.meta.uid), now)
        if got.entries or got.refused:
            found[claim.meta.uid] = Regained(claim.status, got)
        if got.entries:
            claims[claim.meta.uid] = replace(claim, status=_with(claim.status, got))
    return MappingProxyType({**view.claims, **claims}) if claims else view.claims, found


def _with(status: Raw, got: Reclaimed) -> dict[str, Any]:
    allocation = dict(status.get("allocation") or {})
    replicas = [*(allocation.get("replicas") or ()), *got.entries.values()]
    return {**status, "allocation": {**allocation, "replicas": replicas}}


def _taken(view: View, uid: str) -> frozenset[DeviceID]:
    """Devices that other claims name in their status, and those in allocations that are not ours. O(everything)."""
    placed = {
        device.id
        for other, claim in view.claims.items()
        if other != uid
        for replica in read_placed(claim.status)
        for device in replica.devices
    }
    foreign = {
        device
        for each in view.resource_claims.values()
        if each.allocated and not each.ours and not each.hook
        for device in each.devices
    }
    return frozenset(placed | foreign)
