"""One decision: a view and the time in, the writes that are missing out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from adjoin.api.claim_status import HookPhase
from adjoin.api.pool_policy import Guard
from adjoin.cache import View
from adjoin.decision.claims import decide_claim, tell_lost_pods
from adjoin.decision.eager import Selected, decide_eager
from adjoin.decision.health import silent_entries, tell_excused
from adjoin.decision.leftovers import clear_away, clear_orphans
from adjoin.decision.memory import Settled, facts_of, nodes_of, same
from adjoin.decision.modes import Eager
from adjoin.decision.passage import LEAVING
from adjoin.decision.pools import held, show_pool
from adjoin.decision.quarantine import decide_quarantine
from adjoin.decision.regain import regain
from adjoin.decision.resize import decide_resizes
from adjoin.decision.scene import ORDER_GUARD, Scene, Work
from adjoin.decision.shares import Counted, count_share, decide_share
from adjoin.decision.turns import turns
from adjoin.delivery import GuardWork, Published, guard_work, in_force, published, release_pool, take_down
from adjoin.facts import ClaimFacts, PoolFacts, TaintRuleFacts
from adjoin.intents import Intent
from adjoin.inventory import IDLE_CLEAN, InventoryBuilder, asked_pool, changed_keys, overdue, read_locked
from adjoin.lifecycle import contested, entries, followed_pods, given_up, node_gone, relate
from adjoin.modes import ModesReader
from adjoin.snapshot import SnapshotBuilder
from adjoin.status import Evicted, Fragmentation
from adjoin_allocator import Memo
from adjoin_allocator import plan as make_plan
from adjoin_allocator.acceptance import ShareReport, share_reports
from adjoin_allocator.model import Device
from adjoin_allocator.overdrawn import overdrawn
from adjoin_allocator.results import Plan
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import Standing


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What a decision comes to.

    Attributes:
        intents: Writes, those to be started first in front.
        wake_at: When to decide again although nothing changed, or None.
        plan: The allocator's answer.
        snapshot: Its question.
    """

    intents: tuple[Intent, ...]
    wake_at: float | None
    plan: Plan
    snapshot: Snapshot


def _evicted(plan: Plan, view: View) -> dict[str, Evicted]:
    """Who has to give devices to whom, by UID of the claim that gives."""
    found: dict[str, Evicted] = {}
    for each in plan.preempted:
        taker = view.claims.get(each.by)
        known = found.get(each.uid)
        indexes = frozenset(each.replicas) | (known.indexes if known is not None else frozenset())
        found[each.uid] = Evicted(indexes, each.by, taker.meta.key if taker is not None else each.by)
    return found


def _locked(pool: PoolFacts) -> frozenset[str]:
    """Devices that the pool's status says to be in quarantine because something is wrong with them."""
    return frozenset(each.key for each in read_locked(pool.status) if each.reason != IDLE_CLEAN)


class Decider:
    """Decides on successive views of one cluster."""

    def __init__(self) -> None:
        self._inventory = InventoryBuilder()
        self._snapshots = SnapshotBuilder()
        self._memo = Memo()
        self._fragmentation = Fragmentation(self._memo)
        self._slices: Mapping[str, object] | None = None
        self._published = Published({})
        self._devices: Mapping[str, tuple[Device, ...]] = {}
        self._guards: dict[str, tuple[tuple[object, ...], GuardWork]] = {}
        self._settled: dict[str, Settled] = {}
        self._watched: Mapping[str, ClaimFacts] = {}
        self._failed: set[str] = set()
        self._leaving: set[str] = set()
        self._modes = ModesReader()
        self._selected = Selected()
        self._counted: dict[str, Counted] = {}

    def decide(self, view: View, now: float) -> Decision:
        """What is missing between facts and wishes:

        1. Inventory and snapshot of the view; the allocator's plan.
        2. Every pool: its guard, without which nothing is given out, and its status; deleted ones are let go.
        3. Every claim: its replicas reviewed, new ones added, pods served, its status.
        4. What claims left behind: ResourceClaims without an owner, pods without a claim.
        """
        rules, next_in_force = in_force(view.taint_rules, now)
        late, next_late = overdue(view.pools.values(), now)
        seen = view if rules is view.taint_rules else replace(view, taint_rules=rules)
        inventory = self._inventory.build(seen, late)
        relations = relate(view)
        claims, regained = regain(view, relations, inventory, now)
        if claims is not view.claims:
            view, seen = replace(view, claims=claims), replace(seen, claims=claims)
            inventory, relations = self._inventory.build(seen, late), relate(view)
        followed = followed_pods(view, relations, inventory)
        modes = self._modes.read(view.shares, inventory)
        snapshot = self._snapshots.build(view, inventory, followed, modes.of_allocator)
        plan = make_plan(snapshot, now, self._memo)
        abandoned, next_abandoned = given_up(view, inventory, now)
        scene = Scene(
            view=view,
            inventory=inventory,
            plan=plan,
            fragmentation=self._fragmentation.measure(plan),
            relations=relations,
            regained=regained,
            lost=contested(snapshot.claims, {uid: each.conflicts for uid, each in plan.claims.items()}, snapshot.holds),
            boot_ids={name: facts.boot_id for name, facts in view.nodes.items()},
            now=now,
            evicted=_evicted(plan, view),
            snapshot=snapshot,
            abandoned=abandoned,
            locked={uid: _locked(pool) for uid, pool in view.pools.items()},
            followed=followed,
            modes=modes,
            turns=turns(view, snapshot, modes),
        )
        work = Work(view.busy)
        work.wake(next_in_force)
        work.wake(next_abandoned)
        work.wake(next_late)
        self._pools(scene, work)
        self._shares(scene, work)
        self._claims(scene, work)
        clear_orphans(scene, work)
        clear_away(scene, work)
        tell_lost_pods(scene, work)
        intents = tuple(sorted(work.intents, key=lambda each: each.order))
        return Decision(intents, min(work.wakes, default=None), plan, snapshot)

    def _shares(self, scene: Scene, work: Work) -> None:
        """Every share that is not busy."""
        view, snapshot = scene.view, scene.snapshot
        if not view.shares:
            return
        over, reports = overdrawn(snapshot, scene.plan), share_reports(snapshot, scene.plan)
        eager = decide_eager(scene, self._selected, reports)
        counted: dict[str, Counted] = {}
        for share in sorted(view.shares.values(), key=lambda each: (each.meta.name, each.meta.uid)):
            uid, name = share.meta.uid, share.meta.name
            if uid in view.busy:
                if uid in self._counted:
                    counted[uid] = self._counted[uid]
                continue
            known = snapshot.shares.get(name)
            found = count_share(share, known, self._selected, self._counted.get(uid), scene, work)
            if found is not None:
                counted[uid] = found
            report = reports.get(name, ShareReport())
            decide_share(share, known, eager.get(uid, Eager()), found, over.get(name, ""), report, scene, work)
        self._counted = counted

    def _claims(self, scene: Scene, work: Work) -> None:
        """Every claim that is not busy. One that needed nothing needs nothing while all that it depends on is the
        same."""
        settled: dict[str, Settled] = {}
        resizes = decide_resizes(scene.snapshot, scene.plan, scene.relations.pools)
        for claim in sorted(scene.view.claims.values(), key=lambda each: (each.meta.created or 0.0, each.meta.uid)):
            uid = claim.meta.uid
            if uid in scene.view.busy:
                continue
            known = self._settled.get(uid)
            nodes = known.nodes if known is not None and known.facts[0] is claim else nodes_of(claim)
            facts = facts_of(claim, nodes, scene, resizes.get(uid))
            if known is None or known.over(scene.now) or not same(known.facts, facts):
                own = Work(scene.view.busy)
                decide_claim(claim, scene, own, resizes.get(uid))
                work.take(own)
                restless = own.withheld or not all(each.words for each in own.intents)
                known = None if restless else Settled(facts, nodes, min(own.wakes, default=None), tuple(own.intents))
            else:
                work.wake(known.wake_at)
                work.intents += known.words
            if known is not None:
                settled[uid] = known
        self._settled = settled

    def _pools(self, scene: Scene, work: Work) -> None:
        default = scene.inventory.default_pool
        rules: dict[str, list[TaintRuleFacts]] = {}
        for rule in scene.view.taint_rules.values():
            if rule.guards:
                rules.setdefault(rule.guards, []).append(rule)
        for pool in sorted(scene.view.pools.values(), key=lambda each: (each.meta.name, each.meta.uid)):
            if pool.meta.uid in scene.view.busy:
                continue
            mine = rules.get(pool.meta.name, [])
            if pool.meta.deleting is not None and not held(pool, scene):
                work.want(pool.meta.uid, "let go", release_pool(pool, mine), ORDER_GUARD)
                continue
            suspects = [claim for claim in self._suspects(scene) if asked_pool(claim, default) == pool.meta.name]
            show_pool(pool, decide_quarantine(pool, suspects, scene), silent_entries(pool, scene, work), scene, work)
            tell_excused(pool, scene, work)
            guard = self._guard(pool, mine, scene)
            work.wake(guard.wake_at)
            for name, steps in guard.batches.items():
                work.want(f"{pool.meta.uid}/guard/{name}", "guard", steps, ORDER_GUARD)

    def _suspects(self, scene: Scene) -> list[ClaimFacts]:
        """Claims whose status tells of a hook that failed for good or of a device that is lost, or that have something
        on a node that is given up or, and are giving it back, on one that is gone."""
        claims = scene.view.claims
        if claims is not self._watched:
            for uid in changed_keys(self._watched, claims):
                claim = claims.get(uid)
                failed = claim is not None and any(
                    entry.get("lostSince")
                    or any(run.get("phase") == HookPhase.FAILED for run in entry.get("hooks") or ())
                    for entry in entries(claim)
                )
                (self._failed.add if failed else self._failed.discard)(uid)
                leaving = claim is not None and (
                    claim.meta.deleting is not None or any(each.get("state") in LEAVING for each in entries(claim))
                )
                (self._leaving.add if leaving else self._leaving.discard)(uid)
            self._watched = claims
        nodes = scene.inventory.nodes
        stranded = {
            uid
            for uid in self._leaving
            if uid in claims and any(node_gone(nodes.get(str(each.get("node") or ""))) for each in entries(claims[uid]))
        }
        return [claims[uid] for uid in sorted(self._failed | stranded | set(scene.abandoned)) if uid in claims]

    def _guard(self, pool: PoolFacts, rules: list[TaintRuleFacts], scene: Scene) -> GuardWork:
        view = scene.view
        if not view.guard_served:
            return GuardWork()
        if pool.pool.spec.delivery.guard is not Guard.DEVICE_TAINT_RULE:
            return GuardWork(deletions=take_down(rules))
        if self._slices is not view.slices:
            self._slices, self._published = view.slices, published(view.slices.values())
        devices = scene.inventory.devices
        if len(devices) != len(self._devices) or any(
            self._devices.get(node) is not each for node, each in devices.items()
        ):
            self._devices = devices
        nameless = scene.inventory.nameless(pool.meta.name)
        key = (
            (pool.meta.generation, pool.meta.deleting, pool.finalizers, nameless),
            self._devices,
            self._published,
            view.nodes,
            *sorted(rules, key=lambda each: each.meta.uid),
        )
        known = self._guards.get(pool.meta.uid)
        if known is not None and same(known[0], key) and (known[1].wake_at is None or scene.now < known[1].wake_at):
            return known[1]
        mine = {
            device.id
            for group in devices.values()
            for device in group
            if device.device_pool == pool.meta.name and device.standing is not Standing.MISSING
        } | nameless
        # Nobody may have a part of a card either that the pool gives out whole.
        mine |= set(scene.inventory.beside(mine))
        result = guard_work(pool, mine, self._published, rules, view.nodes, scene.now)
        self._guards = {uid: each for uid, each in self._guards.items() if uid in view.pools}
        self._guards[pool.meta.uid] = (key, result)
        return result
