"""Entries of a pool's quarantine as they are made: whose device, why, and what ends it.

In come a device and what is wrong with it; out go entries of `DevicePool.status.quarantined`. Every one has an owner, a
reason and a way out in words. Nothing here decides who gets in.
"""

from __future__ import annotations

from typing import Any, Final

from adjoin.api.claim_status import HookStage
from adjoin.api.names import GROUP
from adjoin.api.pool_policy import HealthAction, Recovery
from adjoin.cache import LINGER_SECONDS
from adjoin.decision.passage import INIT_FAILED, NEEDS_RESET, NOT_CLEANED, Fault, covers
from adjoin.decision.scene import Scene
from adjoin.facts import ClaimFacts, PoolFacts, Raw
from adjoin.inventory import IDLE_CLEAN, Symptom, Tainted
from adjoin.lifecycle import Run, rfc3339, sentence
from adjoin.modes import InMode
from adjoin_allocator.model import Device

OWNER: Final = GROUP
NEEDS_REPLACEMENT: Final = "NeedsReplacement"
BY_HAND: Final = "kubectl adjoin release-quarantine"


def rule_owner(key: str) -> str:
    """Owner of what a health rule put into quarantine."""
    return f"health rule {key}"


def way_out(pool: PoolFacts, name: str) -> str:
    """What ends the quarantine of a device of that name, in words."""
    lifecycle = pool.pool.spec.lifecycle
    hooks = [hook.name for hook in (*lifecycle.cleanup, *lifecycle.init) if covers(hook, name)]
    if pool.pool.spec.health.recovery is Recovery.AUTOMATIC and hooks:
        return f"{', '.join(dict.fromkeys(hooks))} succeed on it (tried again by itself), or {BY_HAND}"
    return BY_HAND


def _entry(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}


def _way_out_of(fault: Fault, pool: PoolFacts) -> str:
    """What ends the quarantine of a device that a claim gave back, in words."""
    way = way_out(pool, fault.name)
    if fault.reason != NOT_CLEANED:
        return way
    if way == BY_HAND and pool.pool.spec.health.recovery is Recovery.AUTOMATIC:
        way = f"the node is ready again for {LINGER_SECONDS:.0f} s, or {way}"
    return f"its node is started anew, or {way}"


def entry_of(fault: Fault, pool: PoolFacts, claim: ClaimFacts, held: Raw, scene: Scene) -> dict[str, Any]:
    """An entry for what a claim could not have prepared or cleaned, or lost. `held` is the replica in its status."""
    placed, inventory, node = fault.placed, scene.inventory, str(held.get("node") or "")
    device = inventory.device(node, inventory.current(node, placed))
    return _entry(
        {
            "driver": placed.id.driver,
            "pool": placed.id.pool,
            "device": placed.id.device,
            "id": placed.hardware_id,
            "address": inventory.address(device) if device is not None else "",
            "owner": OWNER,
            "reason": fault.reason,
            "message": fault.message[:1024],
            "exit": _way_out_of(fault, pool),
            "since": rfc3339(scene.now),
            "claimUID": claim.meta.uid,
            "claim": claim.meta.key,
            "name": fault.name,
            "node": node,
            # Of a node that is gone only the replica still tells.
            "bootID": scene.boot_ids.get(node) or str(held.get("bootID") or ""),
        }
    )


def rule_entry(tainted: Tainted, symptom: Symptom, pool: PoolFacts, scene: Scene) -> dict[str, Any]:
    """An entry for a device whose taint a health rule says to be a matter of quarantine."""
    replaced = symptom.action is HealthAction.QUARANTINE_UNTIL_REPLACED
    leave = f"other hardware is in its place, or {BY_HAND}" if replaced else f"{way_out(pool, tainted.name)}"
    device = scene.inventory.device(tainted.node, tainted.device)
    claim = scene.holder(tainted.device)
    return _entry(
        {
            **_identity(tainted.device, tainted.hardware_id),
            "address": scene.inventory.address(device) if device is not None else "",
            "owner": rule_owner(symptom.taint.key)[:253],
            "reason": NEEDS_REPLACEMENT if replaced else NEEDS_RESET,
            "message": f"{symptom.text} ({symptom.action})",
            "exit": leave if replaced else f"the taint is gone and {leave}",
            "since": rfc3339(scene.now),
            "claimUID": claim.meta.uid if claim is not None else "",
            "claim": claim.meta.key if claim is not None else "",
            "name": tainted.name,
            "node": tainted.node,
            "bootID": scene.boot_ids.get(tainted.node, ""),
        }
    )


def mode_entry(each: InMode, run: Run, pool: PoolFacts, scene: Scene) -> dict[str, Any]:
    """An entry for a device that could not be brought into a share's mode, or not back."""
    device = scene.inventory.device(each.node, each.today)
    said = sentence(run.message)
    return _entry(
        {
            **_identity(each.device, each.hardware_id),
            "address": scene.inventory.address(device) if device is not None else "",
            "owner": OWNER,
            "reason": INIT_FAILED if run.stage is HookStage.INIT else NEEDS_RESET,
            "message": f"hook {run.hook} failed for DeviceShare {each.share.meta.name}{f': {said}' if said else ''}"[
                :1024
            ],
            "exit": way_out(pool, each.share.share.spec.device),
            "since": rfc3339(scene.now),
            "name": each.share.share.spec.device,
            "node": each.node,
            "bootID": scene.boot_ids.get(each.node, ""),
        }
    )


def idle_entry(device: Device, pool: PoolFacts, scene: Scene) -> dict[str, Any]:
    """An entry for a free device that is about to be cleaned."""
    after = pool.pool.spec.lifecycle.idle_clean
    return _entry(
        {
            **_identity(device.id, device.hardware_id),
            "address": scene.inventory.address(device),
            "owner": OWNER,
            "reason": IDLE_CLEAN,
            "message": f"nobody used it for {after}; it is cleaned",
            "exit": "its cleanup hooks end",
            "since": rfc3339(scene.now),
            "name": device.kind,
            "node": device.node,
            "bootID": scene.boot_ids.get(device.node, ""),
        }
    )


def _identity(device: Any, hardware_id: str) -> dict[str, str]:
    return {"driver": device.driver, "pool": device.pool, "device": device.device, "id": hardware_id}
