"""Devices that a claim lost: since when, and which replicas are given up for it.

In come a claim's replicas, what is missing or in quarantine, and its pods; out go since when a replica has been without
a device while nobody used it, and the replicas that are to have others. A replica whose pod runs is never given up, and
none is as long as no pod waits for it: devices come back, and a pod that is there may know better than we do. What a
replica had when it is given up is not free by that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from adjoin.decision.scene import Scene, Work
from adjoin.facts import ClaimFacts, PodFacts, PoolFacts, Raw, moment
from adjoin.holdings import read_placed
from adjoin.inventory import asked_pool, grace_of
from adjoin.lifecycle import Member, Use, entries, node_gone, rfc3339, uses_of
from adjoin_allocator.model import Node, Pool, Taint
from adjoin_allocator.terms import ReplicaState, Standing


def in_use(uses: Iterable[Use]) -> bool:
    """Whether somebody may be at the devices: a pod that waits at its gate never was."""
    return any(not use.at_gate for use in uses)


def with_loss(member: Member, absent: bool, pool: PoolFacts | None, scene: Scene, work: Work) -> Member:
    """The replica with since when it has been without a device. While somebody uses it that does not count: some
    drivers do not publish what a pod has."""
    known = member.entry.get("lostSince")
    if not absent or in_use(member.uses) or pool is None:
        left = {key: value for key, value in member.entry.items() if key != "lostSince"}
        return replace(member, entry=left) if known else member
    hushed = scene.hushed(pool)
    if not known:
        if any((each.get("driver"), each.get("pool")) in hushed for each in member.entry.get("devices") or ()):
            return member
        member = replace(member, entry={**member.entry, "lostSince": rfc3339(_since(member, pool, scene))})
    lost = (moment(member.entry["lostSince"]) or scene.now) + grace_of(pool)
    if lost > scene.now:
        work.wake(lost)
    return member


def _since(member: Member, pool: PoolFacts, scene: Scene) -> float:
    """From when the loss counts: with the driver's silence, if that is it."""
    devices = {(each.get("driver"), each.get("pool")) for each in member.entry.get("devices") or ()}
    silent = scene.inventory.silences.get(pool.meta.name, ())
    return min((each.since for each in silent if each.since is not None and each.key in devices), default=scene.now)


def node_trouble(name: str, node: Node | None, pool: Pool) -> str:
    """Why the node takes no new pods, or ""."""
    if node is None or not node.exists:
        return f"node {name} does not exist"
    if node.deleting:
        return f"node {name} is being deleted"
    if not node.ready:
        return f"node {name} is not ready"
    if node.unschedulable:
        return f"node {name} is cordoned"
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(each.tolerates(taint) for each in pool.tolerations):
            return f"node {name} has taint {taint.key}"
    return ""


def forsaken(claim: ClaimFacts, scene: Scene, work: Work) -> frozenset[int]:
    """Replicas that are to be placed anew and that nobody uses: their node is gone; or a pod waits, and their node
    drives pods out and nobody has used them for longer than the pool's grace, or a device of theirs is in quarantine or
    has been missing for longer than that."""
    if claim.meta.deleting is not None:
        return frozenset()
    pool = scene.relations.pools.get(asked_pool(claim, scene.inventory.default_pool))
    wanted = scene.wanted(claim)
    placed = [entry for entry in entries(claim) if int(entry.get("index") or 0) in wanted]
    if pool is None or all(_bad(entry, pool, scene, work) is Bad.NOT for entry in placed):
        return frozenset()
    uses: dict[int, list[Use]] = {}
    for use in uses_of(claim, scene.relations, scene.inventory):
        uses.setdefault(use.index, []).append(use)
    candidates: list[int] = []
    gone: set[int] = set()
    spare = 0
    """Sound replicas that nobody has."""
    for entry in placed:
        index = int(entry.get("index") or 0)
        mine = uses.get(index, [])
        if in_use(mine) or entry.get("state") in (ReplicaState.FAILED, ReplicaState.RELEASING):
            continue
        bad = _bad(entry, pool, scene, work)
        if bad is Bad.GONE:
            gone.add(index)
        elif bad is Bad.NOW:
            candidates.append(index)
        else:
            spare += not mine
    served = {use.pod_uid for index, group in uses.items() if index not in candidates for use in group}
    waiting = [
        pod
        for pod in scene.relations.pods.get((claim.meta.namespace, claim.meta.name), ())
        if pod.meta.uid not in served and _waits(pod)
    ]
    if waiting and claim.claim.spec.gang is not None:
        # Without this member the others cannot do anything either.
        return frozenset(gone | set(candidates))
    anywhere = sum(pod.replica is None for pod in waiting) - spare - len(gone)
    found = gone
    for index in candidates:
        if any(pod.replica == index for pod in waiting):
            found.add(index)
        elif anywhere > 0:
            found.add(index)
            anywhere -= 1
    return frozenset(found)


def _waits(pod: PodFacts) -> bool:
    return pod.gated and not pod.foreign_gates and not pod.finished and pod.meta.deleting is None


def _drives_out(taint: Taint, pool: Pool) -> bool:
    return taint.effect == "NoExecute" and not any(each.tolerates(taint) for each in pool.tolerations)


class Bad(Enum):
    """How little can be done with a place."""

    NOT = "it can be used, or that is not known yet"
    NOW = "nobody can be given it"
    GONE = "its node is gone"


def _bad(entry: Raw, pool: PoolFacts, scene: Scene, work: Work) -> Bad:
    """Whether nobody can be given the replica. That a node is not ready says nothing about that: it may come back, and
    how long that is waited for is `nodeUnreachable`."""
    node = scene.inventory.nodes.get(str(entry.get("node") or ""))
    if node_gone(node):
        return Bad.GONE
    if node is None or not node.ready:
        return Bad.NOT
    rules = scene.inventory.pools.get(pool.meta.name)
    if rules is not None and any(_drives_out(taint, rules) for taint in node.taints):
        # A node that only takes nobody new, as one that is drained, is waited for: what is on it stays the claim's.
        idle = moment(entry.get("idleSince"))
        if idle is not None and idle + grace_of(pool) <= scene.now:
            return Bad.NOW
        work.wake(None if idle is None else idle + grace_of(pool))
    since = moment(entry.get("lostSince"))
    late = since is not None and since + grace_of(pool) <= scene.now
    (replica,) = read_placed({"allocation": {"replicas": [entry]}})
    for placed in replica.devices:
        device = scene.inventory.device(node.name, scene.inventory.current(node.name, placed))
        if device is None:
            continue
        if scene.quarantined(pool, placed) or (late and device.standing is Standing.MISSING):
            return Bad.NOW
    return Bad.NOT
