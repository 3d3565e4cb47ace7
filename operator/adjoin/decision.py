"""One decision: a view and the time in, the writes that are missing out.

It is the same for a fresh process and one that ran for a month: what is remembered between calls changes speed alone.
Nothing is asked of the API server, nothing is written, and what is in the hands of the writer (a busy subject) is left
alone until it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from zlib import crc32

from adjoin.api.names import FINALIZER
from adjoin.api.pool_policy import Guard
from adjoin.cache import View
from adjoin.delivery import (
    Cargo,
    GuardWork,
    Notice,
    Published,
    assign,
    event_step,
    guard_work,
    hand_over,
    parts,
    pod_patch,
    published,
    release_pool,
    take_down,
)
from adjoin.facts import ClaimFacts, PodFacts, PoolFacts, TaintRuleFacts, read_placed
from adjoin.intents import FROM_PREVIOUS, Intent, Kind, Step, Verb
from adjoin.inventory import Inventory, InventoryBuilder, asked_pool
from adjoin.lifecycle import (
    LABEL_POD,
    Member,
    Relations,
    add_finalizer,
    contested,
    drop_finalizer,
    enter,
    entries,
    orphans,
    relate,
    review,
)
from adjoin.snapshot import SnapshotBuilder
from adjoin.status import (
    Ailing,
    claim_notice,
    claim_status,
    gist,
    merge_patch,
    pool_gist,
    pool_status,
)
from adjoin_allocator import Memo
from adjoin_allocator import plan as make_plan
from adjoin_allocator.model import ClaimUID, Device, DeviceID, Node, PlacedDevice, Pool, ReplicaState, Standing
from adjoin_allocator.results import ClaimPlan, Plan
from adjoin_allocator.snapshot import Snapshot

ORDER_GUARD, ORDER_RELEASE, ORDER_PLACE, ORDER_SHOW, ORDER_TELL = range(5)

CLAIM_WORDS_SECONDS = 10.0
"""How often a waiting claim's words may be brought up to date when nothing but their numbers changed."""
POOL_COUNTS_SECONDS = 1.0
"""The same for a pool's counts, which change with every placement."""
_WINDOW = 0.25
"""The part of such a period in which the write may happen."""


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


def turn(uid: str, period: float, now: float) -> tuple[bool, float]:
    """Whether it is this object's turn to have mere numbers written, and when its next turn is.

    Turns are spread over the period by UID, so that a change that touches a thousand waiting claims is not a thousand
    writes at once. They depend on nothing but UID and time.
    """
    shift = crc32(uid.encode()) % int(period) if period > 1 else 0
    position = (now - shift) % period
    return position < period * _WINDOW, now + period - position


@dataclass(slots=True)
class _Work:
    """Intents and wake-up times gathered while one decision is made."""

    busy: frozenset[str]
    intents: list[Intent] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)

    def want(
        self, subject: str, why: str, steps: Iterable[Step], order: int, assume: Mapping[str, object] | None = None
    ) -> None:
        found = tuple(steps)
        if found and subject not in self.busy:
            self.intents.append(Intent(subject, why, found, assume, order))

    def wake(self, at: float | None) -> None:
        if at is not None:
            self.wakes.append(at)

    def take(self, other: _Work) -> None:
        self.intents += other.intents
        self.wakes += other.wakes


@dataclass(frozen=True, slots=True, eq=False)
class _Settled:
    """A claim that needed nothing: what it depended on, and until when that is so."""

    facts: tuple[object, ...]
    nodes: tuple[str, ...]
    wake_at: float | None

    def over(self, now: float) -> bool:
        return self.wake_at is not None and self.wake_at <= now


@dataclass(frozen=True, slots=True, eq=False)
class _Scene:
    """What is the same for all claims of one decision."""

    view: View
    inventory: Inventory
    plan: Plan
    relations: Relations
    lost: Mapping[str, Mapping[int, str]]
    boot_ids: Mapping[str, str]
    now: float


class Decider:
    """Decides on successive views of one cluster."""

    def __init__(self) -> None:
        self._inventory = InventoryBuilder()
        self._snapshots = SnapshotBuilder()
        self._memo = Memo()
        self._slices: Mapping[str, object] | None = None
        self._published = Published({})
        self._devices: Mapping[str, tuple[Device, ...]] = {}
        self._guards: dict[str, tuple[tuple[object, ...], GuardWork]] = {}
        self._settled: dict[str, _Settled] = {}

    def decide(self, view: View, now: float) -> Decision:
        """What is missing between facts and wishes:

        1. Inventory and snapshot of the view; the allocator's plan.
        2. Guards, since nothing is given out before they stand.
        3. Every claim: its replicas reviewed, new ones added, pods served, its status.
        4. What claims left behind: ResourceClaims without an owner, pods without a claim.
        5. Pools: their status; deleted ones let go.
        """
        inventory = self._inventory.build(view)
        snapshot = self._snapshots.build(view, inventory)
        plan = make_plan(snapshot, now, self._memo)
        scene = _Scene(
            view=view,
            inventory=inventory,
            plan=plan,
            relations=relate(view),
            lost=contested(snapshot.claims, {uid: each.conflicts for uid, each in plan.claims.items()}, snapshot.holds),
            boot_ids={name: facts.boot_id for name, facts in view.nodes.items()},
            now=now,
        )
        work = _Work(view.busy)
        self._pools(scene, work)
        self._claims(scene, work)
        for uid, steps in orphans(scene.relations, view.claims, view.busy, now).items():
            work.want(uid, "clear away", steps, ORDER_RELEASE)
        _tell_lost_pods(scene, work)
        intents = tuple(sorted(work.intents, key=lambda each: each.order))
        return Decision(intents, min(work.wakes, default=None), plan, snapshot)

    def _claims(self, scene: _Scene, work: _Work) -> None:
        """Every claim that is not busy. One that needed nothing needs nothing while all that it depends on is the
        same."""
        settled: dict[str, _Settled] = {}
        for claim in sorted(scene.view.claims.values(), key=lambda each: (each.meta.created or 0.0, each.meta.uid)):
            uid = claim.meta.uid
            if uid in scene.view.busy:
                continue
            known = self._settled.get(uid)
            nodes = known.nodes if known is not None and known.facts[0] is claim else _nodes_of(claim)
            facts = _facts_of(claim, nodes, scene)
            if known is None or known.over(scene.now) or not _same(known.facts, facts):
                own = _Work(scene.view.busy)
                _decide_claim(claim, scene, own)
                work.take(own)
                known = None if own.intents else _Settled(facts, nodes, min(own.wakes, default=None))
            else:
                work.wake(known.wake_at)
            if known is not None:
                settled[uid] = known
        self._settled = settled

    def _pools(self, scene: _Scene, work: _Work) -> None:
        rules: dict[str, list[TaintRuleFacts]] = {}
        for rule in scene.view.taint_rules.values():
            if rule.guards:
                rules.setdefault(rule.guards, []).append(rule)
        for pool in sorted(scene.view.pools.values(), key=lambda each: (each.meta.name, each.meta.uid)):
            if pool.meta.uid in scene.view.busy:
                continue
            mine = rules.get(pool.meta.name, [])
            if pool.meta.deleting is not None and not _held(pool, scene):
                work.want(pool.meta.uid, "let go", release_pool(pool, mine), ORDER_GUARD)
                continue
            _show_pool(pool, scene, work)
            guard = self._guard(pool, mine, scene)
            work.wake(guard.wake_at)
            for name, steps in guard.batches.items():
                work.want(f"{pool.meta.uid}/guard/{name}", "guard", steps, ORDER_GUARD)

    def _guard(self, pool: PoolFacts, rules: list[TaintRuleFacts], scene: _Scene) -> GuardWork:
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
        key = (
            (pool.meta.generation, pool.meta.deleting, pool.finalizers),
            self._devices,
            self._published,
            view.nodes,
            *sorted(rules, key=lambda each: each.meta.uid),
        )
        known = self._guards.get(pool.meta.uid)
        if known is not None and _same(known[0], key) and (known[1].wake_at is None or scene.now < known[1].wake_at):
            return known[1]
        mine = [
            device.id
            for group in devices.values()
            for device in group
            if device.device_pool == pool.meta.name and device.standing is not Standing.MISSING
        ]
        result = guard_work(pool, mine, self._published, rules, view.nodes, scene.now)
        self._guards = {uid: each for uid, each in self._guards.items() if uid in view.pools}
        self._guards[pool.meta.uid] = (key, result)
        return result


def _same(left: Sequence[object], right: Sequence[object]) -> bool:
    """Whether both are the same objects; plain values and the allocator's answers may be equal."""
    return len(left) == len(right) and all(
        one is other or (isinstance(one, _COMPARED) and one == other) for one, other in zip(left, right, strict=True)
    )


_COMPARED = (str, float, tuple, ClaimPlan, dict)


def _nodes_of(claim: ClaimFacts) -> tuple[str, ...]:
    return tuple(str(entry.get("node") or "") for entry in entries(claim))


def _facts_of(claim: ClaimFacts, nodes: tuple[str, ...], scene: _Scene) -> tuple[object, ...]:
    """Everything that a decision on one claim depends on, apart from the time."""
    relations, inventory, meta = scene.relations, scene.inventory, claim.meta
    pool = asked_pool(claim, inventory.default_pool)
    pods = relations.pods.get((meta.namespace, meta.name), ())
    owned = relations.owned.get(meta.uid, ())
    facts: list[object] = [
        claim,
        scene.plan.claims.get(ClaimUID(meta.uid)),
        scene.lost.get(meta.uid),
        pool,
        relations.pools.get(pool),
        inventory.pools.get(pool),
        *pods,
        *owned,
    ]
    for pod in pods:
        for name in pod.resource_claims:
            facts.append(relations.resource_claims.get((meta.namespace, name)))
    if relations.lingering:
        facts += [relations.lingering.get(each.labels.get(LABEL_POD, "")) for each in owned]
        facts += relations.ghosts.get((meta.namespace, meta.name), ())
    for node in nodes:
        facts += (inventory.devices.get(node), inventory.nodes.get(node), scene.boot_ids.get(node))
    return tuple(facts)


def _held(pool: PoolFacts, scene: _Scene) -> bool:
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
        not own.isdisjoint(resource_claim.devices)
        for owner, group in scene.relations.owned.items()
        if owner not in scene.view.claims
        for resource_claim in group
    )


def _show_pool(pool: PoolFacts, scene: _Scene, work: _Work) -> None:
    """The pool's status, where it differs. Counts alone wait for the pool's turn."""
    report = scene.inventory.reports.get(pool.meta.name)
    if report is None:
        return
    status = pool_status(pool, report, scene.plan.pools.get(pool.meta.name), scene.now)
    patch = merge_patch(pool.status, status)
    if not patch:
        return
    if pool_gist(status) == pool_gist(pool.status):
        due, next_turn = turn(pool.meta.uid, POOL_COUNTS_SECONDS, scene.now)
        if not due:
            work.wake(next_turn)
            return
    meta = pool.meta
    step = Step(Verb.PATCH_STATUS, Kind.DEVICE_POOL, "", meta.name, meta.uid, meta.version, {"status": patch})
    work.want(meta.uid, "show pool", (step,), ORDER_SHOW)


def _decide_claim(claim: ClaimFacts, scene: _Scene, work: _Work) -> None:
    """Everything that one claim needs now, as one intent, and one for each pod that has to go."""
    meta, now = claim.meta, scene.now
    found = review(claim, scene.relations, scene.inventory, scene.lost.get(meta.uid, {}), now)
    work.wake(found.wake_at)
    if found.finished:
        if FINALIZER in claim.finalizers:
            work.want(meta.uid, "let go", (drop_finalizer(Kind.DEVICE_CLAIM, claim),), ORDER_RELEASE)
        return
    plan = scene.plan.claims.get(ClaimUID(meta.uid))
    fresh = _fresh(claim, found.members, plan, scene)
    kept = [_renamed(member, scene.inventory) for member in found.members]
    members = tuple(sorted((*kept, *fresh), key=lambda each: each.index))
    pool_name = asked_pool(claim, scene.inventory.default_pool)
    ailing, blocked = _health(members, scene.inventory.pools.get(pool_name), scene)
    status = claim_status(claim, members, plan, scene.boot_ids, ailing, now)
    patch = merge_patch(claim.status, status)
    if patch and not fresh and gist(status) == gist(claim.status):
        due, next_turn = turn(meta.uid, CLAIM_WORDS_SECONDS, now)
        if not due:
            work.wake(next_turn)
            patch = {}
    steps: list[Step] = []
    if fresh and FINALIZER not in claim.finalizers:
        steps.append(add_finalizer(Kind.DEVICE_CLAIM, claim))
    if patch:
        version = FROM_PREVIOUS if steps else meta.version
        body = {"status": patch}
        steps.append(Step(Verb.PATCH_STATUS, Kind.DEVICE_CLAIM, meta.namespace, meta.name, meta.uid, version, body))
    steps += [step for step in found.removals if step.kind is not Kind.POD]
    served = _serve(claim, members, found.users, blocked, pool_name, scene, work)
    steps += served
    notice = claim_notice(claim, status, fresh) if patch else None
    if notice is not None:
        steps.append(event_step(Kind.DEVICE_CLAIM, meta, notice, "Decide", now))
    order = ORDER_PLACE if fresh or served else ORDER_RELEASE if found.removals else ORDER_SHOW
    why = "place" if fresh else "deliver" if served else "release" if found.removals else "show claim"
    work.want(meta.uid, why, steps, order, status if patch else None)
    for step in found.removals:
        if step.kind is Kind.POD:
            # By themselves: a PodDisruptionBudget that keeps one pod must not keep the others.
            work.want(step.uid, step.verb.value, (step,), ORDER_RELEASE)


def _fresh(claim: ClaimFacts, members: Sequence[Member], plan: ClaimPlan | None, scene: _Scene) -> tuple[Member, ...]:
    """Replicas that the plan places now."""
    if plan is None or claim.meta.deleting is not None:
        return ()
    taken = {member.index for member in members}
    placed = []
    for placement in plan.placements:
        if placement.index not in taken:
            entry = enter(placement, scene.now, scene.boot_ids.get(placement.node, ""))
            placed.append(Member(placement.index, entry, ReplicaState.READY))
    return tuple(placed)


def _renamed(member: Member, inventory: Inventory) -> Member:
    """The replica with its devices under today's names. While somebody uses them, the names are those that were
    delivered."""
    if member.uses:
        return member
    devices = []
    for raw, placed in zip(member.entry.get("devices") or (), _placed(member), strict=True):
        device = inventory.device(member.node, inventory.current(member.node, placed))
        if device is not None and device.standing is not Standing.MISSING and device.id != placed.id:
            raw = {**raw, "driver": device.id.driver, "pool": device.id.pool, "device": device.id.device}
        devices.append(raw)
    return replace(member, entry={**member.entry, "devices": devices}) if devices else member


def _placed(member: Member) -> tuple[PlacedDevice, ...]:
    return read_placed({"allocation": {"replicas": [member.entry]}})[0].devices


def _health(members: Sequence[Member], pool: Pool | None, scene: _Scene) -> tuple[Ailing, dict[int, str]]:
    """Which devices are not well, and for each replica why no pod may start on it now."""
    missing: list[str] = []
    unhealthy: list[str] = []
    blocked: dict[int, str] = {}
    for member in members:
        if not member.sound:
            continue
        if pool is None:
            blocked[member.index] = "its DevicePool does not exist"
            continue
        why = _node_trouble(member.node, scene.inventory.nodes.get(member.node), pool)
        for placed, device in _devices(member, scene.inventory):
            if device is None or device.standing is Standing.MISSING:
                missing.append(f"{placed} on {member.node}")
                why = why or f"device {placed} is missing"
            elif device.standing is Standing.UNHEALTHY:
                unhealthy.append(f"{placed} on {member.node}: {device.standing_detail}")
                why = why or f"device {placed} is unhealthy ({device.standing_detail})"
            elif device.standing is Standing.UNGUARDED:
                blocked.setdefault(member.index, "")
        if why:
            blocked[member.index] = why
    return Ailing(tuple(missing), tuple(unhealthy)), blocked


def _devices(member: Member, inventory: Inventory) -> list[tuple[DeviceID, Device | None]]:
    """A replica's devices as the status names them, and as they are today."""
    return [(each.id, inventory.device(member.node, inventory.current(member.node, each))) for each in _placed(member)]


def _node_trouble(name: str, node: Node | None, pool: Pool) -> str:
    """Why the node takes no new pods, or ""."""
    if node is None or not node.exists:
        return f"node {name} does not exist"
    if not node.ready:
        return f"node {name} is not ready"
    if node.unschedulable:
        return f"node {name} is cordoned"
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(each.tolerates(taint) for each in pool.tolerations):
            return f"node {name} has taint {taint.key}"
    return ""


def _serve(
    claim: ClaimFacts,
    members: Sequence[Member],
    users: frozenset[str],
    blocked: Mapping[int, str],
    pool_name: str,
    scene: _Scene,
    work: _Work,
) -> list[Step]:
    """Requests that bring replicas to their pods; pods that have to wait for a reason of their own are told."""
    pool = scene.relations.pools.get(pool_name)
    if pool is None:
        return []
    layout = parts(claim.claim, pool.pool)
    assignment = assign(claim, members, users, blocked, layout, scene.relations)
    guarded = pool.pool.spec.delivery.guard is Guard.DEVICE_TAINT_RULE
    made: list[Step] = []
    opened: list[Step] = []
    notices = list(assignment.notices)
    for member, pod in assignment.pairs:
        cargo = _cargo(claim, member, pool_name, guarded, scene.inventory)
        if cargo is None:
            continue
        handover = hand_over(cargo, pod, layout, scene.relations, scene.now)
        if handover.notice is not None:
            notices.append((pod, handover.notice))
            continue
        gate = (pod_patch(pod, member.node),) if handover.complete and pod.gated else ()
        if handover.steps:
            made += [*handover.steps, *gate]
        else:
            # Where only the gate is left, an earlier try may have failed at it: others go first.
            opened += gate
    for pod, notice in notices:
        _tell(pod, notice, scene, work)
    return made + opened


def _cargo(claim: ClaimFacts, member: Member, pool: str, guarded: bool, inventory: Inventory) -> Cargo | None:
    """What the replica hands over, or None when a device of it is not there today."""
    by_request: dict[str, list[Device]] = {request.name: [] for request in claim.claim.spec.requests}
    for each in _placed(member):
        device = inventory.device(member.node, inventory.current(member.node, each))
        if device is None or device.standing is Standing.MISSING:
            return None
        by_request.setdefault(each.request.partition("/")[0], []).append(device)
    devices = {request: tuple(group) for request, group in by_request.items()}
    return Cargo(claim, member.index, member.node, devices, pool, guarded)


def _tell(pod: PodFacts, notice: Notice, scene: _Scene, work: _Work) -> None:
    step = event_step(Kind.POD, pod.meta, notice, "Deliver", scene.now)
    # A subject of its own: an Event that cannot be written must not keep the pod from being evicted.
    work.want(f"{pod.meta.uid}/{step.name}", "tell", (step,), ORDER_TELL)


def _tell_lost_pods(scene: _Scene, work: _Work) -> None:
    """Pods that wait for a claim that does not exist."""
    for key, group in scene.relations.pods.items():
        if key in scene.relations.claims:
            continue
        for pod in group:
            if pod.gated and pod.meta.deleting is None and not pod.finished:
                text = f"there is no DeviceClaim {pod.claim} in namespace {pod.meta.namespace}; the pod waits for it"
                _tell(pod, Notice("ClaimNotFound", text, warning=True), scene, work)
