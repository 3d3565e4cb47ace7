"""What a claim's decision depends on, so that one that needed nothing to be done is not looked at again while all of
that is the same. Words that wait for their turn are asked for again as they are.

This changes speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adjoin.api.names import LABEL_POD, config_map_name
from adjoin.decision.resize import Resize
from adjoin.decision.scene import Scene
from adjoin.facts import ClaimFacts
from adjoin.holdings import read_evictions, read_placed
from adjoin.intents import Intent
from adjoin.inventory import asked_pool
from adjoin.lifecycle import Relations, entries
from adjoin.status import Evicted
from adjoin_allocator.model import ClaimUID
from adjoin_allocator.results import ClaimPlan

_COMPARED = (str, float, tuple, frozenset, ClaimPlan, Evicted, Resize, dict)


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """A claim that needed nothing, or nothing but words: what it depended on, and until when that is so."""

    facts: tuple[object, ...]
    nodes: tuple[str, ...]
    wake_at: float | None
    words: tuple[Intent, ...] = ()

    def over(self, now: float) -> bool:
        return self.wake_at is not None and self.wake_at <= now


def same(left: Sequence[object], right: Sequence[object]) -> bool:
    """Whether both are the same objects; plain values and the allocator's answers may be equal."""
    return len(left) == len(right) and all(
        one is other or (isinstance(one, _COMPARED) and one == other) for one, other in zip(left, right, strict=True)
    )


def nodes_of(claim: ClaimFacts) -> tuple[str, ...]:
    return tuple(str(entry.get("node") or "") for entry in entries(claim))


def _uid(relations: Relations, pool: str) -> str:
    known = relations.pools.get(pool)
    return known.meta.uid if known is not None else ""


def facts_of(claim: ClaimFacts, nodes: tuple[str, ...], scene: Scene, resize: Resize | None) -> tuple[object, ...]:
    """Everything that a decision on one claim depends on, apart from the time."""
    relations, inventory, meta = scene.relations, scene.inventory, claim.meta
    pool = asked_pool(claim, inventory.default_pool)
    pods = relations.pods.get((meta.namespace, meta.name), ())
    owned = relations.owned.get(meta.uid, ())
    facts: list[object] = [
        claim,
        scene.plan.claims.get(ClaimUID(meta.uid)),
        scene.lost.get(meta.uid),
        scene.evicted.get(meta.uid),
        scene.followed.get(meta.uid),
        *(scene.view.claims.get(each.by) for each in read_evictions(claim.status)),
        pool,
        relations.pools.get(pool),
        inventory.pools.get(pool),
        *pods,
        *owned,
    ]
    for pod in pods:
        for name in pod.resource_claims:
            facts.append(relations.resource_claims.get((meta.namespace, name)))
        if relations.grants:
            facts.append(relations.grants.get((meta.namespace, config_map_name(pod.claim, pod.token))))
    if relations.forced:
        users = [each.labels.get(LABEL_POD, "") for each in owned]
        facts += [relations.lingering.get(uid) for uid in users] + [relations.forced.get(uid) for uid in users]
        facts += relations.ghosts.get((meta.namespace, meta.name), ())
    facts += [
        scene.abandoned.get(meta.uid),
        inventory.silences.get(pool),
        scene.locked.get(pool_uid) if (pool_uid := _uid(relations, pool)) else None,
    ]
    if scene.modes.by_device:
        for replica in read_placed(claim.status):
            for device in replica.devices:
                now = inventory.current(replica.node, device)
                facts += (each.entry for each in scene.modes.by_device.get(now, ()))
                facts.append(tuple(scene.turns.working.get(now, ())))
    facts.append(resize)
    facts.append(any(uid in scene.view.busy for uid in scene.view.shares))
    if relations.hook_claims:
        for replica in read_placed(claim.status):
            for device in replica.devices:
                facts += relations.hook_claims.get(device.id, ())
    for job in relations.workshop.of_subject(meta.uid):
        facts += (job, *relations.workshop.pods.get(job.meta.uid, ()))
    for node in nodes:
        facts += (inventory.devices.get(node), inventory.nodes.get(node), scene.boot_ids.get(node))
    return tuple(facts)
