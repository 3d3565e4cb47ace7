"""What a pool's health rules excuse, and its drivers that are silent: said, and remembered.

In come tainted devices and silent drivers as the inventory sees them; out go notices, and what the pool's status
remembers of silence. A taint that a rule excuses changes nothing for the device; with action Event it is said once, on
the pool and on the claim that has the device. Nothing here takes a device from anybody.
"""

from __future__ import annotations

from typing import Any, Final

from adjoin.api.pool_policy import HealthAction
from adjoin.decision.scene import ORDER_TELL, Scene, Work
from adjoin.delivery import Notice, event_step
from adjoin.facts import PoolFacts
from adjoin.intents import Kind
from adjoin.inventory import device_key, grace_of
from adjoin.lifecycle import rfc3339

SILENCE_SECONDS: Final = 3600.0
"""So long after its grace a driver is remembered none of whose devices anybody holds: then it is taken to have been
taken away on purpose."""
SILENT: Final = 1024
"""As many silent drivers as a status remembers, those that are silent for longest."""


def tell_excused(pool: PoolFacts, scene: Scene, work: Work) -> None:
    """Says which taints a rule of the pool takes note of and no more."""
    report = scene.inventory.reports.get(pool.meta.name)
    for tainted in report.tainted if report is not None else ():
        for symptom in tainted.symptoms:
            if symptom.action is not HealthAction.EVENT:
                continue
            key = f"{device_key(tainted.hardware_id, tainted.device)}/{symptom.text}"
            text = f"{tainted.device} on {tainted.node} has {symptom.text}; by the pool's health rule it stays in use"
            notice = Notice("DeviceTainted", text, warning=True, key=key)
            claim = scene.holder(tainted.device)
            told = [(Kind.DEVICE_POOL, pool.meta)]
            told += [(Kind.DEVICE_CLAIM, claim.meta)] if claim is not None else []
            for kind, meta in told:
                step = event_step(kind, meta, notice, "Watch", scene.now)
                work.want(f"{meta.uid}/{step.name}", "tell", (step,), ORDER_TELL)


def silent_entries(pool: PoolFacts, scene: Scene, work: Work) -> list[dict[str, Any]]:
    """`status.silent` as it should stand."""
    grace = grace_of(pool)
    kept = []
    for each in scene.inventory.silences.get(pool.meta.name, ()):
        since = scene.now if each.since is None else each.since
        forgotten = since + grace + SILENCE_SECONDS
        if not each.held:
            if forgotten <= scene.now:
                continue
            work.wake(forgotten)
        if since + grace > scene.now:
            work.wake(since + grace)
        kept.append((since, each))
    kept.sort(key=lambda pair: (pair[0], pair[1].key))
    return [
        {"driver": each.driver, "pool": each.pool, "node": each.node, "since": rfc3339(since)}
        for since, each in kept[:SILENT]
    ]
