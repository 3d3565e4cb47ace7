"""Status of a DeviceShare: what its pool offers for it in, the status as it should stand out.

What isolates parts from each other is a fact of the mode. Nothing here counts parts or decides who gets one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adjoin.api.share import Enforcement, ShareCondition
from adjoin.environment import ShareFacts
from adjoin.facts import Raw
from adjoin.status.conditions import Condition, compact, conditions
from adjoin.status.units import Units
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
    facts: ShareFacts,
    problem: str,
    over: str,
    now: float,
    report: ShareReport = _NOTHING,
    *,
    placements: Sequence[Raw] = (),
    units: Units | None = None,
    holders: Sequence[str] = (),
    yielded: Sequence[str] = (),
    waits: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole status as it should stand.

    Args:
        facts: The share.
        problem: Why nothing can be given out of it, or "".
        over: Of what more is in use than it may give, or "".
        now: Seconds since the epoch.
        report: How its partitions stand.
        placements: Devices in its mode, as they should stand.
        units: Its parts in numbers.
        holders: Claims that have parts out of it.
        yielded: Devices that it selects too, but an older share has.
        waits: Devices whose hooks cannot go on, in words.
    """
    mode = facts.share.spec.mode
    ready = "; ".join((*((problem,) if problem else ()), *(f"waits for {each}" for each in waits)))
    found = [Condition(ShareCondition.READY, not problem, "Unusable" if problem else "Accepted", ready)]
    if over:
        found.append(Condition(ShareCondition.OVER_SUBSCRIBED, True, "MoreInUse", over))
    if facts.meta.deleting is not None and holders:
        found.append(
            Condition(ShareCondition.IN_USE, True, "Deleted", f"it goes when its parts do: {_listed(holders)}")
        )
    elif report.in_use:
        found.append(Condition(ShareCondition.IN_USE, True, "OtherLayout", report.in_use))
    if yielded:
        text = f"older shares prepare devices that it selects too: {_listed(yielded)}"
        found.append(Condition(ShareCondition.OVERLAP, True, "SelectedTwice", text))
    return compact(
        {
            "observedGeneration": facts.meta.generation,
            "conditions": conditions(found, facts.status, facts.meta.generation, now),
            "accepted": not problem,
            "message": problem,
            "isolation": str(ISOLATION[mode]),
            "enforcement": str(_ENFORCEMENT[mode]),
            "units": units.units if units is not None else None,
            "free": units.free if units is not None else None,
            "placements": [dict(each) for each in placements],
        }
    )


_NAMED = 10
"""As many names as a message lists."""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
