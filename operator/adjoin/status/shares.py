"""Status of a DeviceShare: what its pool offers for it in, the status as it should stand out.

What isolates parts from each other is a fact of the mode. Nothing here counts parts or decides who gets one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adjoin.api.share import Enforcement, ShareCondition
from adjoin.environment import ShareFacts
from adjoin.status.conditions import Condition, compact, conditions
from adjoin_allocator.acceptance import ShareReport
from adjoin_allocator.model import Pool, Share
from adjoin_allocator.sharing import ISOLATION
from adjoin_allocator.terms import ShareMode

_ENFORCEMENT = {
    ShareMode.TIME_SLICED: Enforcement.NONE,
    ShareMode.FRACTIONAL: Enforcement.PER_PROCESS,
    ShareMode.MPS: Enforcement.PER_PROCESS,
    ShareMode.PARTITIONED: Enforcement.HARDWARE,
    ShareMode.VIRTUAL_FUNCTIONS: Enforcement.HARDWARE,
}


_NOTHING = ShareReport()


def share_problem(facts: ShareFacts, share: Share, pools: Mapping[str, Pool]) -> str:
    """Why nothing can be given out of a share, or ""."""
    if facts.meta.deleting is not None:
        return "the share is being deleted"
    pool = pools.get(share.pool)
    if pool is None:
        return f"there is no DevicePool {share.pool}"
    known = [device.name for device in pool.devices]
    if share.kind not in known:
        return f"pool {pool.name} has no device {share.kind} (it has: {', '.join(known) or 'none'})"
    return share.refusal


def placement_entries(report: ShareReport) -> list[dict[str, Any]]:
    """The partitions of a share by device, as its status and a plan tell them."""
    return [
        {
            "driver": device.id.driver,
            "pool": device.id.pool,
            "device": device.id.device,
            "id": device.hardware_id,
            "partitions": [{"profile": slot.profile, "start": slot.start, "size": slot.size} for slot in slots],
        }
        for device, slots in report.placements
    ]


def share_status(
    facts: ShareFacts, problem: str, over: str, now: float, report: ShareReport = _NOTHING
) -> dict[str, Any]:
    """The whole status as it should stand. `over` says of what more is in use than the share may give, `report` how its
    partitions stand.
    """
    mode = facts.share.spec.mode
    found = [Condition(ShareCondition.READY, not problem, "Unusable" if problem else "Accepted", problem)]
    if over:
        found.append(Condition(ShareCondition.OVER_SUBSCRIBED, True, "MoreInUse", over))
    if report.in_use:
        found.append(Condition(ShareCondition.IN_USE, True, "OtherLayout", report.in_use))
    return compact(
        {
            "observedGeneration": facts.meta.generation,
            "conditions": conditions(found, facts.status, facts.meta.generation, now),
            "accepted": not problem,
            "message": problem,
            "isolation": str(ISOLATION[mode]),
            "enforcement": str(_ENFORCEMENT[mode]),
        }
    )
