"""One pool: its status, and whether it may go."""

from __future__ import annotations

from collections.abc import Sequence

from adjoin.api.names import ANNOTATION_RELEASE
from adjoin.decision.quarantine import Quarantine
from adjoin.decision.scene import ORDER_RELEASE, ORDER_SHOW, Scene, Work, turn
from adjoin.delivery import begin, event_step
from adjoin.facts import PoolFacts, Raw
from adjoin.holdings import read_placed
from adjoin.intents import FROM_PREVIOUS, Kind, Step, Verb
from adjoin.inventory import asked_pool
from adjoin.lifecycle import entries
from adjoin.status import merge_patch, pool_gist, pool_status

POOL_COUNTS_SECONDS = 1.0
"""The same for a pool's counts, which change with every placement."""


def held(pool: PoolFacts, scene: Scene) -> bool:
    """Whether a claim, living or gone, still holds devices of the pool."""
    name = pool.meta.name
    for claim in scene.view.claims.values():
        if not entries(claim):
            continue
        if asked_pool(claim, scene.inventory.default_pool) == name:
            return True
        for replica in read_placed(claim.status):
            for placed in replica.devices:
                device = scene.inventory.device(replica.node, scene.inventory.current(replica.node, placed))
                if device is not None and device.device_pool == name:
                    return True
    own = {
        device.id for devices in scene.inventory.devices.values() for device in devices if device.device_pool == name
    }
    return any(
        not own.isdisjoint(record.devices)
        for owner, group in scene.relations.owned.items()
        if owner not in scene.view.claims
        for record in group
    )


def show_pool(pool: PoolFacts, quarantine: Quarantine, silent: Sequence[Raw], scene: Scene, work: Work) -> None:
    """The pool's status, where it differs, and what its quarantine needs. Counts alone wait for the pool's turn."""
    report = scene.inventory.reports.get(pool.meta.name)
    if report is None:
        return
    name, meta = pool.meta.name, pool.meta
    work.wake(quarantine.wake_at)
    status = pool_status(
        pool,
        report,
        scene.plan.pools.get(name),
        scene.fragmentation.get(name, {}),
        scene.now,
        quarantine.entries,
        silent,
        quarantine.used,
    )
    patch = merge_patch(pool.status, status)
    urgent = quarantine.entries is not None or bool(quarantine.tasks) or quarantine.answered
    if patch and not urgent and pool_gist(status) == pool_gist(pool.status):
        due, next_turn = turn(meta.uid, POOL_COUNTS_SECONDS, scene.now)
        if not due:
            work.wake(next_turn)
            patch = {}
    steps: list[Step] = []
    if patch:
        steps.append(
            Step(Verb.PATCH_STATUS, Kind.DEVICE_POOL, "", meta.name, meta.uid, meta.version, {"status": patch})
        )
    if quarantine.answered:
        version = FROM_PREVIOUS if steps else meta.version
        body = {"metadata": {"annotations": {ANNOTATION_RELEASE: None}}}
        steps.append(Step(Verb.PATCH, Kind.DEVICE_POOL, "", meta.name, meta.uid, version, body))
    steps += [step for task in quarantine.tasks for step in begin(task, scene.relations, scene.now)]
    steps += [event_step(Kind.DEVICE_POOL, meta, each, "Quarantine", scene.now) for each in quarantine.notices]
    work.want(meta.uid, "show pool", steps, ORDER_RELEASE if urgent else ORDER_SHOW)
