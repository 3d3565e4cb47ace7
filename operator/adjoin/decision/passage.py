"""A replica's devices on their way in and out: prepared before a pod may have them, cleaned before anybody else may.

In come a replica as reviewed and everything that is known of its node, its pool's hooks and their Jobs; out go the
replica as it should stand (or that it is gone), and the attempts that have to be begun. Whatever fails is fail-closed:
devices that could not be prepared or cleaned stay in the claim's status until the pool's says that they are in
quarantine, so there is no instant at which they look free.

Cleanup covers what was prepared, or may have been used: a device that no hook was begun on and that was never ready for
a pod goes back as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from adjoin.api.claim_status import HookPhase, HookStage
from adjoin.api.defaults import device_of
from adjoin.api.names import DRIVER, job_of_hook_claim
from adjoin.api.pool_policy import Guard, Hook, Recovery
from adjoin.decision.gate import mode_obstacle
from adjoin.decision.made import objection, told_of_parts, with_reports
from adjoin.decision.scene import Scene
from adjoin.delivery import HookDevice, Notice, Task
from adjoin.facts import ClaimFacts, PoolFacts, Raw, moment
from adjoin.holdings import read_placed
from adjoin.intents import Step
from adjoin.inventory import grace_of
from adjoin.lifecycle import (
    Errand,
    Member,
    Progress,
    Run,
    Verdict,
    advance,
    blamed,
    cut_short,
    expel,
    given_out,
    node_gone,
    rfc3339,
    sentence,
)
from adjoin_allocator.model import Device, PlacedDevice
from adjoin_allocator.terms import DeviceType, ReplicaState, Standing

INIT_FAILED: Final = "InitFailed"
NEEDS_RESET: Final = "NeedsReset"
NODE_UNREACHABLE: Final = "NodeUnreachable"
NOT_CLEANED: Final = "NotCleaned"


@dataclass(frozen=True, slots=True)
class Passage:
    """Where a replica stands.

    Attributes:
        member: The replica, None once it is gone from the claim.
        tasks: Attempts to be begun once its records stand.
        notices: What its owner should hear.
        wake_at: When to look again although nothing changed, or None.
        failure: For `status.failures`, when it is gone because its devices could not be prepared.
        waits: Why it cannot go on now, in words, or "".
        removals: Requests that take users away.
    """

    member: Member | None
    tasks: tuple[Task, ...] = ()
    notices: tuple[Notice, ...] = ()
    wake_at: float | None = None
    failure: Mapping[str, object] | None = None
    waits: str = ""
    removals: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """A device that nobody may have until something has happened to it.

    Attributes:
        placed: The device, as the claim's status names it.
        name: Its name in the pool.
        reason: One word.
        message: What was said, for people.
    """

    placed: PlacedDevice
    name: str
    reason: str
    message: str


def parameters_of(pool: PoolFacts, claim: ClaimFacts | None) -> dict[str, str]:
    """What the pool's hooks are told: what the claim chose where the pool lets it, else the pool's default."""
    chosen = claim.claim.spec.lifecycle.parameters if claim is not None and claim.claim.spec.lifecycle else {}
    found: dict[str, str] = {}
    for each in pool.pool.spec.lifecycle.parameters:
        value = chosen.get(each.name)
        if value is not None and value in each.values:
            found[each.name] = value
        elif each.default is not None:
            found[each.name] = each.default
    return found


def names_of(claim: ClaimFacts) -> dict[str, str]:
    """Name in the pool of what each request asks for."""
    return {request.name: device_of(request) for request in claim.claim.spec.requests}


def covers(hook: Hook, name: str) -> bool:
    """Whether a hook is for devices of that name."""
    return not hook.devices or name in hook.devices


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """One replica, with what is looked up of it once."""

    claim: ClaimFacts
    scene: Scene
    pool: PoolFacts | None
    node: str
    entry: Raw
    runs: tuple[Run, ...]
    devices: tuple[tuple[PlacedDevice, str], ...]
    """With their names in the pool."""

    def errand(self) -> Errand:
        assert self.pool is not None
        return errand_of(self.claim, self.entry, self.pool, self.scene.boot_ids.get(self.node, ""))

    def hooks(self, stage: HookStage, devices: Sequence[tuple[PlacedDevice, str]]) -> tuple[Hook, ...]:
        if self.pool is None:
            return ()
        lifecycle = self.pool.pool.spec.lifecycle
        listed: Sequence[Hook] = lifecycle.init if stage is HookStage.INIT else lifecycle.cleanup
        return tuple(hook for hook in listed if any(covers(hook, name) for _, name in devices))

    def dirty(self) -> tuple[tuple[PlacedDevice, str], ...]:
        """Devices that were prepared or may have been used."""
        if self.entry.get("readyAt") or self.entry.get("state") in _USED:
            return self.devices
        begun = {run.hook for run in self.runs if run.stage is HookStage.INIT and _begun(run)}
        listed = self.pool.pool.spec.lifecycle.init if self.pool is not None else ()
        known = {hook.name for hook in listed}
        if begun - known:
            # A hook that the pool does not have any more: it may have been for any of them.
            return self.devices
        done = [hook for hook in listed if hook.name in begun]
        return tuple((placed, name) for placed, name in self.devices if any(covers(hook, name) for hook in done))

    def occupied(self) -> frozenset[str]:
        """Names of the hook Jobs whose ResourceClaims have a device of the replica."""
        current, hook_claims = self.scene.inventory.current, self.scene.relations.hook_claims
        return frozenset(
            job_of_hook_claim(each.meta.name)
            for placed, _ in self.devices
            for device in {placed.id, current(self.node, placed)}
            for each in hook_claims.get(device, ())
        )

    def advance(self, stage: HookStage, hooks: Sequence[Hook], runs: Sequence[Run], obstacle: str) -> Progress:
        """One step of a stage for the replica; nothing is begun while there is an obstacle. A hook that read back other
        parts than it was asked for has failed."""
        scene = self.scene
        cards = {placed.id for placed, _ in self.devices if placed.share is not None}
        me = (self.claim.meta.created or 0.0, self.claim.meta.uid, int(self.entry.get("index") or 0))
        progress = advance(
            self.errand(),
            stage,
            hooks,
            runs,
            scene.relations.workshop,
            scene.now,
            paused=bool(obstacle) or scene.turns.waits(cards, me),
            occupied=self.occupied(),
            objection=lambda hook, reports: objection(self.entry, self.meant(hook), reports),
            rejections=scene.view.rejections,
        )
        if progress.begin is not None:
            scene.turns.begin(cards, me)
        return progress

    def meant(self, hook: Hook) -> list[bool]:
        """Of each device whether the hook is for it."""
        return [covers(hook, name) for _, name in self.devices]

    def missing(self, placed: PlacedDevice) -> bool:
        """Whether its driver does not publish the device now."""
        inventory = self.scene.inventory
        device = inventory.device(self.node, inventory.current(self.node, placed))
        return device is not None and device.standing is Standing.MISSING and placed.id.driver != DRIVER

    def replaced(self, placed: PlacedDevice) -> bool:
        """Whether other hardware is in the device's place: there is nothing left to be cleaned."""
        return self.missing(placed) and self.scene.inventory.replaced_by(self.node, placed) is not None

    def lost_at(self) -> float | None:
        """When devices that are missing count as lost, None while none is, as far as the status remembers."""
        since = moment(self.entry.get("lostSince"))
        return None if since is None or self.pool is None else since + grace_of(self.pool)

    def lost(self) -> tuple[tuple[PlacedDevice, str], ...]:
        """Devices that have been missing for longer than the pool's grace while nobody used them."""
        at = self.lost_at()
        if at is None or at > self.scene.now:
            return ()
        return tuple(
            (placed, name) for placed, name in self.devices if self.missing(placed) and not self.replaced(placed)
        )

    def task(self, run: Run, hooks: Sequence[Hook], devices: Sequence[tuple[PlacedDevice, str]]) -> Task:
        assert self.pool is not None
        hook = next(each for each in hooks if each.name == run.hook)
        inventory = self.scene.inventory
        made = []
        told = told_of_parts(self.entry, self.scene)
        for placed, name in devices:
            if not covers(hook, name):
                continue
            device = inventory.device(self.node, inventory.current(self.node, placed)) or _absent(
                placed, name, self.node, self.pool.meta.name
            )
            share = told[self.devices.index((placed, name))]
            made.append(HookDevice(placed.request, name, device, placed.hardware_id, share))
        return Task(
            errand=self.errand(),
            run=run,
            hook=hook,
            pool=self.pool,
            claim=self.claim.meta.key,
            claim_uid=self.claim.meta.uid,
            node=self.node,
            devices=tuple(made),
            parameters=parameters_of(self.pool, self.claim),
            namespace=self.scene.view.namespace,
            guarded=self.pool.pool.spec.delivery.guard is Guard.DEVICE_TAINT_RULE,
        )


_USED = (ReplicaState.READY, ReplicaState.IN_USE)
LEAVING: Final = (ReplicaState.RELEASING, ReplicaState.FAILED)
"""States of replicas that are on their way out of the status."""


def _begun(run: Run) -> bool:
    return run.phase is not HookPhase.PENDING or run.attempt > 1


def _absent(placed: PlacedDevice, name: str, node: str, pool: str) -> Device:
    """What is left of a device that nobody offers: its name."""
    return Device(
        id=placed.id,
        node=node,
        device_pool=pool,
        kind=name,
        type=DeviceType.OTHER,
        hardware_id=placed.hardware_id,
        attributes={},
        capacity={},
        standing=Standing.MISSING,
    )


def errand_of(claim: ClaimFacts, entry: Raw, pool: PoolFacts, boot_id: str) -> Errand:
    """What hooks on a replica's devices are for."""
    return Errand(
        subject=claim.meta.uid,
        index=int(entry.get("index") or 0),
        device="",
        # Hooks run once in a hold on the devices, and once more for every pod that they are cleaned after.
        allocation="/".join(
            str(entry[key]) for key in ("node", "allocatedAt", "served", "resizedAt") if entry.get(key)
        ),
        boot_id=boot_id,
        owner=pool.meta.uid,
    )


def _case(claim: ClaimFacts, entry: Raw, runs: tuple[Run, ...], scene: Scene, pool: PoolFacts | None) -> _Case:
    names = names_of(claim)
    (replica,) = read_placed({"allocation": {"replicas": [entry]}})
    devices = tuple((each, names.get(each.request.partition("/")[0], each.request)) for each in replica.devices)
    return _Case(claim, scene, pool, str(entry.get("node") or ""), entry, runs, devices)


def pass_on(
    claim: ClaimFacts,
    member: Member,
    scene: Scene,
    pool: PoolFacts | None,
    obstacle: str,
    *,
    evicted: bool,
    spoken_for: bool,
) -> Passage:
    """The next step of one replica.

    Args:
        claim: The claim.
        member: The replica, as reviewed or as newly placed.
        scene: Everything else.
        pool: The claim's DevicePool, None where there is none.
        obstacle: Why nothing may be begun on its node or devices now, or "".
        evicted: It has to give its devices to another claim.
        spoken_for: It is recorded for whom the devices of evicted replicas are.
    """
    case = _case(claim, member.entry, member.runs, scene, pool)
    if not member.leaving:
        return _prepare(case, member, obstacle)
    runs = cut_short(member.runs, HookStage.INIT, scene.now)
    member = replace(member, runs=runs)
    abandoned = member.index in scene.abandoned.get(claim.meta.uid, ())
    if member.uses and not abandoned:
        return Passage(member)
    unsaid = (evicted or member.state is ReplicaState.FAILED) and member.entry.get("state") != member.state
    if claim.meta.deleting is None and (unsaid or (evicted and not spoken_for)):
        # Why it leaves stands in the status for one write at least, and by then the devices are spoken for.
        return Passage(member)
    return _clean(replace(case, runs=runs), member, obstacle)


def _prepare(case: _Case, member: Member, obstacle: str) -> Passage:
    """A replica that stays: its init hooks, where they are due."""
    scene, entry = case.scene, member.entry
    stored = entry.get("state")
    left, cleaning = _left(case, member), stored == ReplicaState.INITIALIZING and _cleans(member.runs)
    if left or cleaning:
        begun = cleaning or _cleans_between(case)
        cleaned = _clean_between(case, member, obstacle, anew=left) if begun else member
        if isinstance(cleaned, Passage):
            return cleaned
        member = cleaned
    hooks = case.hooks(HookStage.INIT, case.devices)
    boot_id, before = scene.boot_ids.get(member.node, ""), str(entry.get("bootID") or "")
    rebooted = bool(boot_id and before and boot_id != before)
    unready = (ReplicaState.ALLOCATED, ReplicaState.INITIALIZING)
    due = stored in unready or member.state in unready or rebooted
    if not due:
        return Passage(member)
    if not hooks:
        # What is still divided otherwise is nobody's to use, hooks or not.
        turning = mode_obstacle(member.node, tuple(placed for placed, _ in case.devices), False, scene)
        if turning and stored in (None, ReplicaState.ALLOCATED):
            return Passage(replace(member, state=ReplicaState.ALLOCATED), waits=turning)
        return Passage(replace(member, state=_ready(member)))
    if not rebooted:
        obstacle = obstacle or mode_obstacle(member.node, tuple(placed for placed, _ in case.devices), True, scene)
    if any(use.live and not use.at_gate for use in member.uses):
        # Also while its node does not say which boot this is, as one that has just been made anew.
        return _rebooted(member)
    ended = next((use for use in member.uses if not use.live), None)
    if ended is not None:
        # It may still be at the devices, or Kubernetes has not taken them back yet.
        name = f"pod {ended.pod.meta.name}" if ended.pod is not None else "its last pod"
        text = f"waits until {name} on {member.node} has given its devices back"
        return Passage(replace(member, state=_unready(stored, rebooted)), waits=text)
    given = [use for use in member.uses if use.at_gate and any(record.allocated for record in use.records)]
    if given:
        # It gets them again once they are prepared.
        taken = tuple(step for use in given for step in expel(use, deleted=False))
        return Passage(replace(member, state=_unready(stored, rebooted)), removals=taken)
    progress = case.advance(HookStage.INIT, hooks, member.runs, obstacle)
    notices = _said(case, member, progress, hooks, HookStage.INIT)
    passed = replace(member, runs=progress.runs, entry=with_reports(entry, progress.reports))
    if progress.verdict is Verdict.SUCCEEDED:
        return Passage(replace(passed, state=_ready(member)), notices=notices)
    if progress.verdict is Verdict.FAILED:
        return Passage(replace(passed, state=ReplicaState.FAILED, leaving=True), notices=notices)
    begun = any(run.stage is HookStage.INIT and run.boot_id == boot_id for run in progress.runs)
    again = rebooted or bool(entry.get("served"))
    state = ReplicaState.INITIALIZING if begun or again else ReplicaState.ALLOCATED
    tasks = (case.task(progress.begin, hooks, case.devices),) if progress.begin is not None else ()
    waits = progress.trouble or obstacle
    return Passage(replace(passed, state=state), tasks, notices, progress.wake_at, waits=waits)


def _unready(stored: object, rebooted: bool) -> ReplicaState:
    return ReplicaState.ALLOCATED if stored == ReplicaState.ALLOCATED and not rebooted else ReplicaState.INITIALIZING


_HAD = (ReplicaState.IN_USE, ReplicaState.INITIALIZING)
"""States in which a pod may have a replica; the latter while its node was started anew under the pod."""


def _left(case: _Case, member: Member) -> bool:
    """The last pod of a replica that stays has just left it."""
    return member.entry.get("state") in _HAD and given_out(member.entry) and not member.uses


def _cleans(runs: Sequence[Run]) -> bool:
    """The records of a replica that stays tell of a cleaning between two pods. They are there before it is begun."""
    return any(run.stage is HookStage.CLEANUP for run in runs)


def _cleans_between(case: _Case) -> bool:
    return case.pool is not None and case.pool.pool.spec.lifecycle.clean_between_restarts


def _clean_between(case: _Case, member: Member, obstacle: str, *, anew: bool) -> Passage | Member:
    """A replica that stays, between two pods: its devices are cleaned, and then prepared, before the next one may have
    them. Returns the replica as it goes on to be prepared once they are clean, or where nothing cleans them."""
    hooks = case.hooks(HookStage.CLEANUP, case.devices)
    ready = replace(member, runs=(), state=ReplicaState.INITIALIZING)
    if not hooks:
        return member if anew else ready
    runs = (Run(hooks[0].name, HookStage.CLEANUP, HookPhase.PENDING),) if anew else member.runs
    progress = case.advance(HookStage.CLEANUP, hooks, runs, obstacle)
    notices = _said(case, replace(member, runs=runs), progress, hooks, HookStage.CLEANUP)
    passed = replace(member, runs=progress.runs, state=ReplicaState.INITIALIZING)
    if progress.verdict is Verdict.SUCCEEDED:
        return ready
    if progress.verdict is Verdict.FAILED:
        return Passage(replace(passed, state=ReplicaState.FAILED, leaving=True), notices=notices)
    tasks = (case.task(progress.begin, hooks, case.devices),) if progress.begin is not None else ()
    return Passage(passed, tasks, notices, progress.wake_at, waits=progress.trouble or obstacle)


def _rebooted(member: Member) -> Passage:
    """The node was started anew under the replica's pods: their containers began again on devices that nobody has
    verified since. A pod that its controller makes again goes; one that nobody would make again stays, and its owner
    is told."""
    removals: list[Step] = []
    waits = ""
    for use in member.uses:
        if use.pod is None or not use.live or use.at_gate:
            continue
        if use.pod.controlled:
            removals += expel(use, deleted=False)
            waits = waits or f"pod {use.pod.meta.name} goes, since node {member.node} was started anew under it"
        else:
            text = (
                f"pod {use.pod.meta.name} runs on devices that were not verified since node {member.node} was started"
            )
            waits = f"{text} anew; delete it"
    key = f"{member.index}/{member.node}/{member.entry.get('bootID')}"
    notice = Notice("NodeRebooted", waits, warning=True, key=key)
    passed = replace(member, state=ReplicaState.INITIALIZING)
    return Passage(passed, notices=(notice,), waits=waits, removals=tuple(removals))


def _ready(member: Member) -> ReplicaState:
    return ReplicaState.IN_USE if any(use.bound for use in member.uses) else ReplicaState.READY


def _clean(case: _Case, member: Member, obstacle: str) -> Passage:
    """A replica that nobody uses any more: its cleanup hooks, and then it is gone."""
    scene = case.scene
    faults = faults_of(case.claim, {**member.entry, "state": member.state}, member.runs, scene, case.pool)
    at_large = [fault for fault in faults if not scene.quarantined(case.pool, fault.placed)]
    # What is in quarantine is cleaned there, before it comes out.
    spared = {fault.placed.id for fault in faults}
    spared |= {placed.id for placed, _ in case.devices if scene.quarantined(case.pool, placed) or case.replaced(placed)}
    # What another claim has as well is in use: cleaning it would clean that.
    elsewhere = frozenset(scene.others(case.claim.meta.uid)) if member.lost else frozenset()
    dirty = [(placed, name) for placed, name in case.dirty() if placed.id not in elsewhere | spared]
    # One that failed and said on which devices has done its work on the others.
    failed = {run.hook for run in member.runs if run.stage is HookStage.CLEANUP and run.phase is HookPhase.FAILED}
    hooks = tuple(hook for hook in case.hooks(HookStage.CLEANUP, dirty) if hook.name not in failed)
    if failed and at_large:
        return Passage(member)
    gone = node_gone(scene.inventory.nodes.get(member.node))
    skipped: tuple[Notice, ...] = ()
    if gone and case.hooks(HookStage.CLEANUP, [each for each in case.dirty() if each[0].id not in elsewhere]):
        text = f"replica {member.index}: its devices are not cleaned, since node {member.node} is gone"
        skipped = (Notice("CleanupSkipped", text, key=f"{member.index}/{_since(member)}"),)
    lost = {placed.id for placed, _ in case.lost()}
    absent = [placed for placed, _ in dirty if case.missing(placed) and placed.id not in lost]
    if absent and not gone and case.pool is not None:
        # It comes back, or it is lost: nobody has seen yet what became of it.
        text = f"device {absent[0].id} on {member.node} is missing; it is waited for"
        return Passage(member, wake_at=case.lost_at(), waits=text)
    if gone or not hooks or not dirty:
        return Passage(member) if at_large or case.occupied() else _gone(case, member, *skipped)
    progress = case.advance(HookStage.CLEANUP, hooks, member.runs, obstacle)
    notices = _said(case, member, progress, hooks, HookStage.CLEANUP)
    passed = replace(member, runs=progress.runs)
    if progress.verdict is Verdict.SUCCEEDED:
        # The last hook's ResourceClaim may still have the devices; nobody else may before it has not.
        waits = at_large or case.occupied()
        return Passage(passed, notices=notices) if waits else _gone(case, passed, *notices)
    if progress.verdict is Verdict.FAILED:
        # The next look finds these devices among the faults, and waits until they are in quarantine.
        return Passage(passed, notices=notices)
    tasks = (case.task(progress.begin, hooks, dirty),) if progress.begin is not None else ()
    return Passage(passed, tasks, notices, progress.wake_at, waits=progress.trouble or obstacle)


def _since(member: Member) -> str:
    return str(member.entry.get("allocatedAt") or "")


def _gone(case: _Case, member: Member, *notices: Notice) -> Passage:
    """It leaves the status. What kept it from being prepared is remembered there."""
    failed = next((run for run in member.runs if run.stage is HookStage.INIT and run.phase is HookPhase.FAILED), None)
    if failed is None or member.state is not ReplicaState.FAILED or member.lost:
        return Passage(None, notices=notices)
    failure = {
        "index": member.index,
        "generation": case.claim.meta.generation,
        "node": member.node,
        "hook": failed.hook,
        "message": sentence(failed.message),
        "at": rfc3339(failed.since or case.scene.now),
    }
    return Passage(None, notices=notices, failure=failure)


def faults_of(
    claim: ClaimFacts, entry: Raw, runs: Sequence[Run], scene: Scene, pool: PoolFacts | None
) -> tuple[Fault, ...]:
    """Devices of a replica that must not be given to anybody: a hook failed on them for good, their node cannot be
    reached and they are given up, or they were used and have not come back or their node is gone. `runs` are the
    replica's records."""
    case = _case(claim, entry, tuple(runs), scene, pool)
    found: dict[object, Fault] = {}
    for run in runs:
        if run.phase is not HookPhase.FAILED:
            continue
        lifecycle = pool.pool.spec.lifecycle if pool is not None else None
        listed: Sequence[Hook] = ()
        if lifecycle is not None:
            listed = lifecycle.init if run.stage is HookStage.INIT else lifecycle.cleanup
        hook = next((each for each in listed if each.name == run.hook), None)
        concerned = [(placed, name) for placed, name in case.devices if hook is None or covers(hook, name)]
        named = blamed(run.message)
        guilty = [each for each in concerned if each[0].id.device in named] or concerned
        reason = INIT_FAILED if run.stage is HookStage.INIT else NEEDS_RESET
        said = sentence(run.message)
        text = f"hook {run.hook} failed{f': {said}' if said else ''}"
        for placed, name in guilty:
            found.setdefault(placed.id, Fault(placed, name, reason, text))
    if int(entry.get("index") or 0) in scene.abandoned.get(claim.meta.uid, ()):
        for placed, name in case.devices:
            text = f"node {case.node} could not be reached when the devices were given up"
            found.setdefault(placed.id, Fault(placed, name, NODE_UNREACHABLE, text))
    if claim.meta.deleting is not None or entry.get("state") in LEAVING:
        used = {placed.id for placed, _ in case.dirty()}
        if pool is not None and node_gone(scene.inventory.nodes.get(case.node)):
            for placed, name in case.dirty():
                text = f"node {case.node} was gone when the device was given back, so nobody cleaned it"
                found.setdefault(placed.id, Fault(placed, name, NOT_CLEANED, text))
        for placed, name in case.lost():
            # Where nothing is ever verified or cleaned, there is nothing to be made up for when it is back.
            if placed.id in used and pool is not None and _verified(pool, name):
                grace = pool.pool.spec.health.driver_grace
                text = f"it has been missing for longer than {grace} since it was used last"
                found.setdefault(placed.id, Fault(placed, name, NEEDS_RESET, text))
    return tuple(found.values())


def _verified(pool: PoolFacts, name: str) -> bool:
    """Whether a device of that name is looked at, by hooks or by somebody, before it is given out again."""
    lifecycle = pool.pool.spec.lifecycle
    hooked = any(covers(hook, name) for hook in (*lifecycle.cleanup, *lifecycle.init))
    return hooked or pool.pool.spec.health.recovery is Recovery.MANUAL


def _said(
    case: _Case, member: Member, progress: Progress, hooks: Sequence[Hook], stage: HookStage
) -> tuple[Notice, ...]:
    """Attempts that have failed since the records were written."""
    before = {(run.stage, run.hook): run for run in member.runs}
    retries = {hook.name: hook.retries for hook in hooks}
    notices = []
    for run in progress.runs:
        old = before.get((run.stage, run.hook))
        again = run.phase is HookPhase.PENDING and run.attempt > 1
        failed = run.phase is HookPhase.FAILED
        if run.stage is not stage or not (again or failed) or (old is not None and old == run):
            continue
        number = run.attempt - 1 if again else run.attempt
        said = sentence(run.message)
        text = (
            f"{stage.value.lower()} hook {run.hook} failed on replica {member.index}, node {member.node}, "
            f"attempt {number} of {retries.get(run.hook, 0) + 1}{f': {said}' if said else ''}"
        )
        key = f"{member.index}/{_since(member)}/{stage}/{run.hook}/{run.boot_id}/{number}"
        notices.append(Notice("HookFailed", text, warning=True, key=key))
    if progress.trouble:
        notices.append(Notice("HookBlocked", progress.trouble, warning=True, key=progress.troubled))
    return tuple(notices)
