"""One claim: everything that it needs now, as one intent, and one for each pod that has to go or be told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from adjoin.api.claim_status import HookPhase, Phase, ReleasedReason
from adjoin.api.names import FINALIZER, NETWORKS_ANNOTATION
from adjoin.api.pool_policy import DeliveryMode, Guard
from adjoin.api.share import DeviceShareSpec
from adjoin.decision.gangs import PATIENCE_SECONDS, disbanded, fewest, incomplete, lacking_since
from adjoin.decision.lost import forsaken, node_trouble, with_loss
from adjoin.decision.made import holdings_of
from adjoin.decision.passage import Passage, pass_on
from adjoin.decision.regain import RECLAIMED
from adjoin.decision.resize import Resize, resized
from adjoin.decision.scene import ORDER_PLACE, ORDER_RELEASE, ORDER_SHOW, ORDER_TELL, Scene, Work, turn
from adjoin.delivery import (
    Cargo,
    Handover,
    Holding,
    Layout,
    NetworksError,
    Notice,
    assign,
    attach,
    begin,
    could_start,
    environment,
    event_step,
    excuses,
    hand_over,
    parse_containers,
    parts,
    pod_patch,
    servable,
)
from adjoin.facts import ClaimFacts, PodFacts, PoolFacts
from adjoin.holdings import read_evictions, read_placed, released_reason
from adjoin.intents import FROM_PREVIOUS, Kind, Step, Verb
from adjoin.inventory import Inventory, asked_pool
from adjoin.lifecycle import (
    Member,
    Review,
    add_finalizer,
    drop_finalizer,
    enter,
    entries,
    evicting,
    read_runs,
    release_due,
    review,
)
from adjoin.status import Ailing, claim_notice, claim_status, gist, merge_patch, standing_failures
from adjoin_allocator.amounts import counted
from adjoin_allocator.model import ClaimUID, Device, DeviceID, PlacedDevice, PlacedShare, Pool
from adjoin_allocator.results import ClaimPlan, Reason
from adjoin_allocator.terms import DeviceType, ReplicaState, Standing

CLAIM_WORDS_SECONDS = 10.0
"""How often a waiting claim's words may be brought up to date when nothing but their numbers changed."""


def decide_claim(claim: ClaimFacts, scene: Scene, work: Work, resize: Resize | None = None) -> None:
    """Everything that one claim needs now, as one intent, and one for each pod that has to go."""
    meta, now = claim.meta, scene.now
    lost, evicted = scene.lost.get(meta.uid, {}), scene.evicted.get(meta.uid)
    leaving = evicting(claim) | (evicted.indexes if evicted is not None else frozenset())
    given_up = scene.abandoned.get(meta.uid, frozenset()) | forsaken(claim, scene, work)
    wanted = scene.wanted(claim)
    plan = scene.plan.claims.get(ClaimUID(meta.uid))
    anew, anew_at = disbanded(claim, plan, wanted, scene.relations, scene.inventory, now)
    work.wake(anew_at)
    leaving |= anew
    found = review(claim, scene.relations, scene.inventory, lost, now, leaving, given_up, wanted=wanted)
    work.wake(found.wake_at)
    new = _fresh(claim, found.members, plan, scene)
    pool_name = asked_pool(claim, scene.inventory.default_pool)
    pool = scene.relations.pools.get(pool_name)
    standing = sorted((*(_renamed(member, scene.inventory) for member in found.members), *new), key=_index)
    troubles = _troubles(standing, scene.inventory.pools.get(pool_name), pool, scene)
    standing = [with_loss(member, troubles[member.index].absent, pool, scene, work) for member in standing]
    standing = [resized(_with_cause(member, troubles[member.index]), resize, now) for member in standing]
    for trouble in troubles.values():
        work.wake(trouble.wake_at)
    passed = _pass_on(claim, standing, troubles, leaving, pool, scene, work)
    members = tuple(each.member for each in passed if each.member is not None)
    if found.unused and not members and meta.deleting is not None:
        if FINALIZER in claim.finalizers:
            said = [notice for each in passed for notice in each.notices]
            words = [event_step(Kind.DEVICE_CLAIM, meta, notice, "Release", now) for notice in said]
            work.want(meta.uid, "let go", (drop_finalizer(Kind.DEVICE_CLAIM, claim), *words), ORDER_RELEASE)
        return
    fresh = tuple(member for member in members if member.index in {each.index for each in new})
    ailing, blocked = _health(members, troubles, pool is not None, scene)
    short = incomplete(claim, members, blocked, wanted)
    if short:
        blocked = {member.index: blocked.get(member.index) or short for member in members}
    if evicted is not None and evicted.indexes <= evicting(claim):
        evicted = None
    released = _released(claim, found, pool, scene, work)
    failed = [each.failure for each in passed if each.failure is not None]
    failures = standing_failures(claim, members, wanted, failed)
    status = claim_status(
        claim,
        members,
        plan,
        scene.boot_ids,
        ailing,
        now,
        wanted=wanted,
        evicted=evicted,
        released=released,
        failures=failures,
        waits=[each.waits for each in passed if each.waits],
        resizing=resize.waits if resize is not None else (),
        undelivered=_undelivered(members, pool, scene),
    )
    regained = scene.regained.get(meta.uid)
    patch = merge_patch(claim.status if regained is None else regained.stored, status)
    if patch and not fresh and regained is None and gist(status) == gist(claim.status):
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
    begun = [step for each in passed for task in each.tasks for step in begin(task, scene.relations, now)]
    steps += begun
    removals = (*found.removals, *(step for each in passed for step in each.removals))
    steps += [step for step in removals if step.kind is not Kind.POD]
    served, opens = _serve(claim, members, found.users, blocked, pool_name, scene, work)
    steps += served
    notices = [notice for each in passed for notice in each.notices]
    notices += [_requeued(claim)] if anew else []
    notices += regained.notices(meta.version) if regained is not None else []
    notice = claim_notice(claim, status, fresh) if patch else None
    notices += [notice] if notice is not None else []
    steps += [event_step(Kind.DEVICE_CLAIM, meta, each, "Decide", now) for each in notices]
    # A replica that leaves the status sets its devices free: others wait for that.
    freed = len(members) < len(entries(claim))
    held_for = status.get("nominated") != claim.status.get("nominated")
    hooked = begun or any(member.runs != read_runs(member.entry.get("hooks")) for member in members)
    order = ORDER_SHOW
    corrections = [(Kind.DEVICE_CLAIM.value.kind, RECLAIMED)] * (len(regained.found.entries) if regained else 0)
    if fresh or served or held_for or regained:
        order = ORDER_PLACE
    elif removals or freed or hooked:
        order = ORDER_RELEASE
    why = "place" if fresh else "deliver" if served else "release" if removals or freed else "show claim"
    work.want(meta.uid, why, steps, order, status if patch else None, corrections, opens)
    for uid, hitch in regained.found.refused.items() if regained is not None else ():
        text = f"the pod has devices that DeviceClaim {meta.name} does not name any more: {hitch}; delete the pod"
        _tell(scene.view.pods[uid], Notice("NotReclaimed", text, warning=True, key=hitch), scene, work)
    for each in passed:
        for told in each.notices:
            _tell_waiting(claim, told, scene, work)
    for step in removals:
        if step.kind is Kind.POD:
            # By themselves: a PodDisruptionBudget that keeps one pod must not keep the others.
            work.want(step.uid, step.verb.value, (step,), ORDER_RELEASE)
            if step.verb is Verb.EVICT and step.uid in scene.view.refused:
                _tell_refused(claim, step, scene, work)


def _requeued(claim: ClaimFacts) -> Notice:
    needed = counted(fewest(claim), "member")
    text = (
        f"for {PATIENCE_SECONDS / 60:.0f} minutes the gang has had fewer than the {needed} it needs, "
        "and nobody used any of them: it gives all of its devices back and is planned anew as a whole"
    )
    return Notice("GangRequeued", text, warning=True, key=str(lacking_since(claim)))


def _with_cause(member: Member, trouble: Trouble) -> Member:
    """A replica that was given up, with what of its node or which of its devices is the cause."""
    if member.state is not ReplicaState.FAILED or member.lost or any(r.phase is HookPhase.FAILED for r in member.runs):
        return member
    if trouble.node:
        return replace(member, cause=("NodeLost", trouble.node))
    words = [f"{text} (missing)" for text in trouble.missing] + list(trouble.unhealthy)
    return replace(member, cause=("DeviceLost", "; ".join(words))) if words else member


def _released(claim: ClaimFacts, found: Review, pool: PoolFacts | None, scene: Scene, work: Work) -> str:
    """Why the claim is released, from now on or already, or "". One that was idle comes back for a pod that could have
    a replica of it, once everything of before is gone."""
    pods = scene.relations.pods.get((claim.meta.namespace, claim.meta.name), ())
    before = released_reason(claim)
    awaited = False
    if pool is not None and claim.claim.spec.idle_timeout is not None:
        layout = _layout(claim, pool)
        awaited = any(servable(claim, pod, layout, scene.relations) for pod in pods)
    if before:
        back = before == ReleasedReason.IDLE and awaited and not found.members and found.unused
        return "" if back else before
    reason, wake_at = release_due(claim, found, pods, awaited=awaited, now=scene.now)
    work.wake(wake_at)
    return reason.value if reason is not None else ""


def _undelivered(members: Sequence[Member], pool: PoolFacts | None, scene: Scene) -> Reason | None:
    """Why replicas that nobody has yet could not be handed to a pod, or None."""
    if pool is None or pool.pool.spec.delivery.mode is not DeliveryMode.ENVIRONMENT:
        return None
    idle = (member for member in members if member.kept and member.serves is None)
    held = (device for member in idle for _, device in _devices(member, scene.inventory) if device is not None)
    return environment.identity_reason(held, scene.inventory.pools.get(pool.meta.name))


def _index(member: Member) -> int:
    return member.index


def _pass_on(
    claim: ClaimFacts,
    members: Sequence[Member],
    troubles: Mapping[int, Trouble],
    evicted: frozenset[int],
    pool: PoolFacts | None,
    scene: Scene,
    work: Work,
) -> list[Passage]:
    """Every replica's next step, in order of index."""
    passed = []
    spoken_for = not evicted or _spoken_for(claim, scene)
    for member in members:
        obstacle = troubles[member.index].obstacle
        gives = member.index in evicted
        passed.append(pass_on(claim, member, scene, pool, obstacle, evicted=gives, spoken_for=spoken_for))
        work.wake(passed[-1].wake_at)
    return passed


def _tell_waiting(claim: ClaimFacts, notice: Notice, scene: Scene, work: Work) -> None:
    """Pods that wait at their gate hear of a hook that failed, too."""
    if notice.warning:
        for pod in scene.relations.pods.get((claim.meta.namespace, claim.meta.name), ()):
            if pod.gated and not pod.finished and pod.meta.deleting is None:
                _tell(pod, notice, scene, work)


def _spoken_for(claim: ClaimFacts, scene: Scene) -> bool:
    """Whether the claims for which this one was evicted lately say in their status what is held for them."""
    waiting = [scene.view.claims.get(each.by) for each in read_evictions(claim.status)]
    return all(
        other is None or other.meta.deleting is not None or other.status.get("nominated") or not _waits(other)
        for other in waiting
    )


def _waits(claim: ClaimFacts) -> bool:
    return bool(claim.status.get("phase") == Phase.PENDING)


def _fresh(claim: ClaimFacts, members: Sequence[Member], plan: ClaimPlan | None, scene: Scene) -> tuple[Member, ...]:
    """Replicas that the plan places now."""
    if plan is None or claim.meta.deleting is not None:
        return ()
    taken = {member.index for member in members}
    return tuple(
        Member(each.index, enter(each, scene.now), ReplicaState.ALLOCATED)
        for each in plan.placements
        if each.index not in taken
    )


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


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a replica's node and devices.

    Attributes:
        missing: Devices that nobody publishes, in words.
        unhealthy: Devices that are tainted or in quarantine, in words.
        blocked: Why no pod may start on it now, None for a sound one; "" where that is not worth telling.
        obstacle: Why nothing may be begun on its devices now, or "".
        absent: A device is missing, whether or not that is worth telling yet.
        wake_at: When what is not worth telling yet will be, or None.
        node: Why its node takes no new pods, or "".
    """

    missing: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()
    blocked: str | None = None
    obstacle: str = ""
    absent: bool = False
    wake_at: float | None = None
    node: str = ""


def _troubles(
    members: Sequence[Member], pool: Pool | None, facts: PoolFacts | None, scene: Scene
) -> dict[int, Trouble]:
    """What is wrong with each replica, by index. Of a driver that is silent for less than its grace nothing is said:
    it publishes nothing while its kubelet is started anew."""
    hushed = scene.hushed(facts)
    found: dict[int, Trouble] = {}
    for member in members:
        if pool is None:
            found[member.index] = Trouble(blocked="its DevicePool does not exist", obstacle="")
            continue
        node = scene.inventory.nodes.get(member.node)
        missing: list[str] = []
        unhealthy: list[str] = []
        why = refusal = node_trouble(member.node, node, pool)
        unguarded, absent = False, ""
        silent_until: list[float] = []
        for placed, device in _devices(member, scene.inventory):
            if device is not None and device.standing is Standing.MISSING:
                absent = absent or f"device {placed} is missing"
                if (placed.driver, placed.pool) in hushed:
                    silent_until.append(hushed[placed.driver, placed.pool])
                    continue
            if device is None or device.standing is Standing.MISSING:
                missing.append(f"{placed} on {member.node}")
                why = why or f"device {placed} is missing"
            elif device.standing in (Standing.UNHEALTHY, Standing.QUARANTINED):
                word = device.standing.value.lower()
                unhealthy.append(f"{placed} on {member.node}: {device.standing_detail}")
                why = why or f"device {placed} is {word} ({device.standing_detail})"
            elif device.standing is Standing.UNGUARDED:
                unguarded = True
        unready = node is None or not node.exists or not node.ready
        obstacle = f"node {member.node} is not ready" if unready else ""
        if unguarded and not obstacle:
            obstacle = "its devices are not guarded yet"
        obstacle = obstacle or absent
        blocked = why or ("" if unguarded or silent_until else None)
        wake_at = min(silent_until, default=None)
        found[member.index] = Trouble(
            tuple(missing), tuple(unhealthy), blocked, obstacle, bool(absent), wake_at, refusal
        )
    return found


def _health(
    members: Sequence[Member], troubles: Mapping[int, Trouble], pooled: bool, scene: Scene
) -> tuple[Ailing, dict[int, str]]:
    """Which devices are not well, and for each replica why no pod may start on it now."""
    missing: list[str] = []
    unhealthy: list[str] = []
    blocked: dict[int, str] = {}
    for member in members:
        trouble = troubles[member.index]
        if not member.kept:
            continue
        if pooled:
            missing += trouble.missing
            unhealthy += trouble.unhealthy
        if trouble.blocked is not None:
            blocked[member.index] = trouble.blocked
        elif not member.sound or _with_hooks(member, scene):
            blocked[member.index] = ""
    return Ailing(tuple(missing), tuple(unhealthy)), blocked


def _with_hooks(member: Member, scene: Scene) -> bool:
    """Whether the ResourceClaim of a hook still has a device of the replica."""
    given = scene.relations.hook_claims
    return bool(given) and any(
        id_ in given or (device is not None and device.id in given) for id_, device in _devices(member, scene.inventory)
    )


def _devices(member: Member, inventory: Inventory) -> list[tuple[DeviceID, Device | None]]:
    """A replica's devices as the status names them, and as they are today."""
    return [(each.id, inventory.device(member.node, inventory.current(member.node, each))) for each in _placed(member)]


def _serve(
    claim: ClaimFacts,
    members: Sequence[Member],
    users: frozenset[str],
    blocked: Mapping[int, str],
    pool_name: str,
    scene: Scene,
    work: Work,
) -> tuple[list[Step], dict[str, float]]:
    """Requests that bring replicas to their pods, and since when the pods whose gates open could have started, by UID;
    pods that have to wait for a reason of their own are told."""
    pool = scene.relations.pools.get(pool_name)
    if pool is None:
        return [], {}
    layout = _layout(claim, pool)
    assignment = assign(claim, members, users, blocked, layout, scene.relations, scene.wanted(claim))
    shares = {share.meta.name: share.share.spec for share in scene.view.shares.values()}
    made: list[Step] = []
    opened: list[Step] = []
    opens: dict[str, float] = {}
    notices = list(assignment.notices)
    for member, pod in assignment.pairs:
        cargo = _cargo(claim, member, pool, scene, shares)
        if cargo is None:
            continue
        networks, notice = _networks(pool, cargo, pod)
        handover = Handover(notice=notice) if notice is not None else _hand_over(cargo, pod, layout, scene)
        if handover.notice is not None:
            # A pod that we let go has what it has, whatever the pool says now.
            notices += [(pod, handover.notice)] if pod.gated else []
            continue
        gate = (pod_patch(pod, member.node, networks),) if handover.complete and pod.gated else ()
        if gate:
            opens[pod.meta.uid] = could_start(claim, member, members, pod, scene.now)
        if handover.steps:
            made += [*handover.steps, *gate]
        else:
            # Where only the gate is left, an earlier try may have failed at it: others go first.
            opened += gate
    for pod, notice in notices:
        _tell(pod, notice, scene, work)
    return made + opened, opens


def _layout(claim: ClaimFacts, pool: PoolFacts) -> Layout | None:
    """Into which ResourceClaims a replica's devices go; None where they are handed over as environment."""
    return None if pool.pool.spec.delivery.mode is DeliveryMode.ENVIRONMENT else parts(claim.claim, pool.pool)


def _hand_over(cargo: Cargo, pod: PodFacts, layout: Layout | None, scene: Scene) -> Handover:
    """What is missing between a replica and its pod, in the way in which the pool hands devices over."""
    if layout is not None:
        return hand_over(cargo, pod, layout, scene.relations, scene.now)
    try:
        containers = parse_containers(pod.containers) if pod.containers else None
    except ValueError:
        return Handover()  # whoever changed the annotation of a pod that is served already: it has what it has
    return environment.hand_over(cargo, pod, containers, scene.relations)


def _networks(pool: PoolFacts, cargo: Cargo, pod: PodFacts) -> tuple[str | None, Notice | None]:
    """The annotation by which the pod's NICs are attached to their networks, None where there is nothing to attach; and
    why that cannot be."""
    networks = pool.pool.spec.delivery.networks
    if networks is None or not pod.gated:
        return None, None
    nics = [each for group in cargo.devices.values() for each in group if each.type is DeviceType.RDMA]
    try:
        return attach(networks.attachment, nics, cargo.wired, pod.networks), None
    except NetworksError as error:
        text = f"annotation {NETWORKS_ANNOTATION} {error}" if error.reason == "InvalidNetworks" else str(error)
        return None, Notice(error.reason, f"{text}; the pod waits", warning=True, key=pool.meta.uid)


def _cargo(
    claim: ClaimFacts, member: Member, pool: PoolFacts, scene: Scene, shares: Mapping[str, DeviceShareSpec]
) -> Cargo | None:
    """What the replica hands over, or None when a device of it is not there today."""
    inventory = scene.inventory
    by_request: dict[str, list[Device]] = {request.name: [] for request in claim.claim.spec.requests}
    held: dict[str, list[Holding | None]] = {}
    parts: dict[str, list[PlacedShare | None]] = {}
    for each, holding in zip(_placed(member), holdings_of(member.entry, shares), strict=True):
        device = inventory.device(member.node, inventory.current(member.node, each))
        if device is None or device.standing is Standing.MISSING:
            return None
        request = each.request.partition("/")[0]
        by_request.setdefault(request, []).append(device)
        held.setdefault(request, []).append(holding)
        parts.setdefault(request, []).append(each.share)
    divided = {request: tuple(mine) for request, mine in parts.items() if any(mine)}
    devices = {request: tuple(group) for request, group in by_request.items()}
    ids = (device.id for group in by_request.values() for device in group)
    bindings = {id_: binding for id_ in ids if (binding := inventory.binding(id_)) is not None}
    return Cargo(
        claim=claim,
        index=member.index,
        node=member.node,
        devices=devices,
        pool=pool.meta.name,
        guarded=pool.pool.spec.delivery.guard is Guard.DEVICE_TAINT_RULE,
        bindings=bindings,
        shares=divided,
        alone=_alone(claim, member, devices, divided, scene) if divided else frozenset(),
        excused=excuses(pool.pool.spec.health.rules),
        beside=inventory.devices.get(member.node, ()),
        wired=inventory.pools.get(pool.meta.name),
        holdings={request: tuple(group) for request, group in held.items() if any(group)},
    )


def _alone(
    claim: ClaimFacts,
    member: Member,
    devices: Mapping[str, tuple[Device, ...]],
    divided: Iterable[str],
    scene: Scene,
) -> frozenset[DeviceID]:
    """Of the devices that a replica has parts of, those of which nobody else has anything. O(claims)."""
    mine = {device.id for request in divided for device in devices[request]}
    others = {
        device.id
        for each in scene.snapshot.claims
        for replica in each.placed
        if (each.uid, replica.index) != (claim.meta.uid, member.index)
        for device in replica.devices
    }
    return frozenset(mine - others - scene.snapshot.holds.keys())


def _tell(pod: PodFacts, notice: Notice, scene: Scene, work: Work) -> None:
    step = event_step(Kind.POD, pod.meta, notice, "Deliver", scene.now)
    # A subject of its own: an Event that cannot be written must not keep the pod from being evicted.
    work.want(f"{pod.meta.uid}/{step.name}", "tell", (step,), ORDER_TELL)


def _tell_refused(claim: ClaimFacts, eviction: Step, scene: Scene, work: Work) -> None:
    text = (
        f"pod {eviction.name} has to give its devices back, and its eviction is refused, as a PodDisruptionBudget may; "
        "it is tried again, and the devices stay with the pod until it is gone"
    )
    notice = Notice("EvictionRefused", text, warning=True, key=eviction.uid)
    step = event_step(Kind.DEVICE_CLAIM, claim.meta, notice, "Release", scene.now)
    work.want(f"{eviction.uid}/{step.name}", "tell", (step,), ORDER_TELL)


def tell_lost_pods(scene: Scene, work: Work) -> None:
    """Pods that wait for a claim that does not exist."""
    for key, group in scene.relations.pods.items():
        if key in scene.relations.claims:
            continue
        for pod in group:
            if pod.gated and pod.meta.deleting is None and not pod.finished:
                text = f"there is no DeviceClaim {pod.claim} in namespace {pod.meta.namespace}; the pod waits for it"
                _tell(pod, Notice("ClaimNotFound", text, warning=True), scene, work)
