"""Devices on their way into a share's mode, and back to whole.

In come a share, what its status records of devices in its mode, and who has parts of which; out go the records as they
should stand and the attempts of hooks that have to be begun. A device is recorded before anything is done to it: then
the hooks of the first claim that has a part of it may run, or, where the share prepares devices by itself, hooks of its
own. It leaves the record only when it is whole again, and until then nobody is given it whole or by another share.
A device changes its mode only while nobody has any of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adjoin.api.claim_status import HookPhase, HookStage
from adjoin.api.names import job_of_hook_claim
from adjoin.api.pool_policy import Guard, Hook
from adjoin.api.quantity import milliseconds
from adjoin.api.share import PlacementState, Prepare
from adjoin.decision.idle import taken
from adjoin.decision.layouts import slices_of
from adjoin.decision.passage import covers, parameters_of
from adjoin.decision.scene import Held, Scene
from adjoin.delivery import HookDevice, Notice, Task, told_of_device
from adjoin.environment import ShareFacts
from adjoin.facts import PoolFacts
from adjoin.inventory import device_key
from adjoin.lifecycle import (
    Errand,
    Run,
    Verdict,
    advance,
    cut_short,
    node_gone,
    read_runs,
    rfc3339,
    run_entry,
    sentence,
)
from adjoin.modes import InMode
from adjoin_allocator.model import Device, DeviceID, PlacedDevice, Share, Slice, natural_key
from adjoin_allocator.selectors import match_all
from adjoin_allocator.terms import HoldKind, Standing

MOST: Final = 4096
"""As many devices as a share's status records."""


@dataclass(frozen=True, slots=True)
class Eager:
    """What a share with `prepare: Eager` is to have in its mode.

    Attributes:
        wanted: Devices, in stable order.
        yielded: Devices that it selects too, but an older such share has.
    """

    wanted: tuple[Device, ...] = ()
    yielded: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """What becomes of the devices in a share's mode.

    Attributes:
        entries: `status.placements` as it should stand.
        changed: It differs from what stands.
        tasks: Attempts to be begun once that stands.
        notices: What the share's owner should hear.
        wake_at: When to look again although nothing changed, or None.
        waits: What keeps devices in the mode although they should be whole, in words.
    """

    entries: tuple[Mapping[str, Any], ...] = ()
    changed: bool = False
    tasks: tuple[Task, ...] = ()
    notices: tuple[Notice, ...] = ()
    wake_at: float | None = None
    waits: tuple[str, ...] = ()


@dataclass(slots=True)
class _Findings:
    """What is gathered while one share's devices are decided."""

    tasks: list[Task] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """One share, with what is looked up of it once."""

    share: ShareFacts
    known: Share
    pool: PoolFacts | None
    scene: Scene
    eager: Eager
    surplus: frozenset[str]
    """Keys of devices beyond `maxDevices` that nobody has parts of."""

    def hooks(self, stage: HookStage) -> tuple[Hook, ...]:
        if self.pool is None:
            return ()
        lifecycle = self.pool.pool.spec.lifecycle
        listed = lifecycle.init if stage is HookStage.INIT else lifecycle.cleanup
        return tuple(hook for hook in listed if covers(hook, self.known.kind))

    def mine(self, device: DeviceID) -> list[Held]:
        return [each for each in self.scene.users(device) if each.share == self.known.name]

    def slices(self, device: Device | None, mine: Sequence[Held], made: Sequence[Slice]) -> tuple[Slice, ...]:
        held = [each.placed.share for each in mine if each.placed.share is not None]
        return slices_of(self.known, device, held, made)


def decide_modes(share: ShareFacts, known: Share, eager: Eager, scene: Scene) -> Course:
    """The devices in the mode of one share.

    1. Each that is in it is brought on by one step: prepared, kept, returned to whole, or gone.
    2. Devices of which somebody has a part are entered, once no other share's status has them.
    3. Devices that the share is to prepare by itself are entered.
    """
    stored = scene.modes.by_share.get(share.meta.uid, ())
    pool = scene.relations.pools.get(known.pool)
    case = _Case(share, known, pool, scene, eager, _surplus(known, stored, scene))
    found = _Findings()
    made: dict[str, Mapping[str, Any]] = {}
    for each in stored:
        entry = _step(each, case, found)
        if entry is not None:
            made[each.key] = entry
    there = {each.today for each in stored}
    if scene.entering(known.pool, known.kind, known.name):
        # It may be entering the very device: the next look knows.
        there |= {*scene.users_of(known.name), *(one.id for one in eager.wanted)}
    for device, mine in sorted(scene.users_of(known.name).items()):
        if device not in there and device not in scene.modes.by_device and len(made) < MOST:
            entry = _entered(mine, case)
            made.setdefault(device_key(str(entry.get("id") or ""), device), entry)
    if share.meta.deleting is None:
        for one in eager.wanted:
            if one.id not in there and one.id not in scene.modes.by_device and len(made) < MOST:
                made.setdefault(device_key(one.hardware_id, one.id), _prepared(one, case))
    listed = tuple(made.values())
    changed = list(listed) != [dict(each.entry) for each in stored]
    return Course(
        entries=listed,
        changed=changed,
        tasks=tuple(found.tasks),
        notices=tuple(found.notices),
        wake_at=min(found.wakes, default=None),
        waits=tuple(found.waits),
    )


def _surplus(known: Share, stored: Sequence[InMode], scene: Scene) -> frozenset[str]:
    if known.max_devices is None or len(stored) <= known.max_devices:
        return frozenset()
    used = [each for each in stored if any(held.share == known.name for held in scene.users(each.today))]
    idle = [each for each in stored if each not in used]
    idle.sort(key=lambda each: (natural_key(each.node), natural_key(each.device.pool), natural_key(each.device.device)))
    return frozenset(each.key for each in idle[max(0, known.max_devices - len(used)) :])


# Entries


def _entry(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value not in ("", None, [], ())}


def _partitions(slices: Sequence[Slice]) -> list[dict[str, Any]]:
    return [each._asdict() for each in slices]


def _entered(mine: Sequence[Held], case: _Case) -> dict[str, Any]:
    """A device of which somebody has a part: their hooks bring it into the mode."""
    placed, node = mine[0].placed, mine[0].node
    device = case.scene.inventory.device(node, placed.id)
    return _entry(
        {
            "driver": placed.id.driver,
            "pool": placed.id.pool,
            "device": placed.id.device,
            "id": placed.hardware_id,
            "node": node,
            "state": PlacementState.READY.value,
            "since": rfc3339(case.scene.now),
            "partitions": _partitions(case.slices(device, mine, ())),
        }
    )


def _prepared(device: Device, case: _Case) -> dict[str, Any]:
    """A device that is about to be brought into the mode without a claim."""
    hooked = bool(case.hooks(HookStage.INIT))
    now = rfc3339(case.scene.now)
    return _entry(
        {
            "driver": device.id.driver,
            "pool": device.id.pool,
            "device": device.id.device,
            "id": device.hardware_id,
            "node": device.node,
            "state": (PlacementState.PREPARING if hooked else PlacementState.READY).value,
            "since": now,
            "idleSince": now,
            "partitions": _partitions(case.slices(device, (), ())),
        }
    )


def _in_state(each: InMode, state: PlacementState, runs: Sequence[Run] = ()) -> dict[str, Any]:
    entry = {**each.entry, "state": state.value}
    entry.pop("hooks", None)
    return {**entry, "hooks": [run_entry(run) for run in runs]} if runs else entry


# One device


def _step(each: InMode, case: _Case, found: _Findings) -> Mapping[str, Any] | None:
    """One device brought on by one step: its entry as it should stand, None once it is whole."""
    scene = case.scene
    device = scene.inventory.device(each.node, each.today)
    runs = read_runs(each.entry.get("hooks"))
    mine = case.mine(each.today)
    gone = _over(each, device, scene)
    if gone and not mine:
        found.notices.append(Notice("DeviceGone", f"{each.device} on {each.node}: {gone}", key=_mark(each)))
        return None
    locked = case.pool is not None and scene.quarantined(case.pool, PlacedDevice("", each.device, each.hardware_id))
    failed = any(run.phase is HookPhase.FAILED for run in runs)
    if each.state is PlacementState.FAILED:
        if locked:
            return each.entry
        # What proved it sound, or vouched for it, left nothing of the mode on it.
        return _in_state(each, PlacementState.READY) if mine else None
    if failed or locked:
        # The pool's quarantine takes it next, or has it.
        return _in_state(each, PlacementState.FAILED) if failed and locked else each.entry
    if each.state is PlacementState.READY:
        return _ready(each, device, mine, runs, case, found)
    if each.state is PlacementState.PREPARING:
        why = _why_whole(each, device, case) if not mine else ""
        if not why:
            return _prepare(each, device, runs, case, found)
        return _reset(each, device, cut_short(runs, HookStage.INIT, scene.now), case, found)
    return _reset(each, device, runs, case, found)


def _mark(each: InMode) -> str:
    return f"{each.key}/{each.entry.get('since')}"


def _over(each: InMode, device: Device | None, scene: Scene) -> str:
    """Why there is nothing to be returned to whole any more, or ""."""
    if node_gone(scene.inventory.nodes.get(each.node)) and scene.view.nodes.get(each.node) is None:
        return f"node {each.node} is gone"
    if device is None or device.standing is Standing.MISSING:
        other = scene.inventory.replaced_by(each.node, PlacedDevice("", each.device, each.hardware_id))
        if other is not None:
            return f"{other.hardware_id} is in its place"
    return ""


def _ready(
    each: InMode, device: Device | None, mine: Sequence[Held], runs: Sequence[Run], case: _Case, found: _Findings
) -> Mapping[str, Any] | None:
    """A device that is in the mode: kept, or on its way back."""
    scene, spec = case.scene, case.share.share.spec
    slices = case.slices(device, mine, each.slices)
    bound = each.bound_until
    if bound is not None and bound > scene.now:
        # Who waits for the device may have it then.
        found.wakes.append(bound)
    why = _why_whole(each, device, case) if not mine else ""
    if why:
        return _reset(each, device, (), case, found)
    if case.known.layout and slices != each.slices and case.hooks(HookStage.INIT):
        # Another layout: what somebody has of the old one is in it too, at its place.
        anew = {"since": rfc3339(scene.now), "partitions": _partitions(slices)}
        return _entry({**_in_state(each, PlacementState.PREPARING), **anew})
    if mine:
        entry = {**each.entry, "partitions": _partitions(slices)}
        entry.pop("idleSince", None)
        return _entry(entry)
    boot = scene.boot_ids.get(each.node, "")
    stale = any(run.stage is HookStage.INIT and boot and run.boot_id != boot for run in runs)
    if stale and spec.prepare is Prepare.EAGER:
        # What was made on it did not outlive the restart of its node.
        return _prepare(each, device, runs, case, found)
    since = each.idle_since
    entry = _entry({**each.entry, "partitions": _partitions(slices)})
    if since is None:
        since, entry = scene.now, {**entry, "idleSince": rfc3339(scene.now)}
    if spec.idle_reset is not None and spec.prepare is not Prepare.EAGER:
        due = max(since + milliseconds(spec.idle_reset) / 1000, bound or 0.0)
        if due > scene.now:
            found.wakes.append(due)
        elif each.today not in taken(scene):
            return _reset(each, device, (), case, found)
    return entry


def _why_whole(each: InMode, device: Device | None, case: _Case) -> str:
    """Why a device of which nobody has a part does not stay in the mode, or ""."""
    known, scene = case.known, case.scene
    hold = scene.snapshot.holds.get(each.today)
    if hold is not None and hold.kind is HoldKind.FOREIGN:
        # Others than claims use it: nothing is done to it before they have gone.
        return ""
    if case.share.meta.deleting is not None:
        return "the share is being deleted"
    others = scene.users(each.today)
    if others:
        return f"DeviceClaim {others[0].claim} has it"
    if any(one.id == each.today for one in case.eager.yielded):
        return "an older share prepares it"
    if each.key in case.surplus:
        return f"maxDevices is {known.max_devices}"
    if device is not None and device.standing is not Standing.MISSING and not known.refusal:
        if device.device_pool != known.pool or device.kind != known.kind:
            return "it is none of the share's devices any more"
        if not match_all(known.selectors, device).matched:
            return "the share does not select it any more"
    return ""


def _obstacle(each: InMode, device: Device | None, scene: Scene) -> str:
    """Why no hook may be begun on the device now, or ""."""
    node = scene.inventory.nodes.get(each.node)
    if node is None or not node.exists or not node.ready:
        return f"node {each.node} is not ready"
    if device is None or device.standing is Standing.MISSING:
        return f"device {each.device} is missing"
    if device.standing is Standing.UNGUARDED:
        return "it is not guarded yet"
    if device.standing is Standing.QUARANTINED:
        return device.standing_detail
    return ""


def _prepare(
    each: InMode, device: Device | None, runs: Sequence[Run], case: _Case, found: _Findings
) -> Mapping[str, Any] | None:
    """One step into the mode."""
    verdict, runs = _through(each, device, HookStage.INIT, runs, case, found)
    if verdict is not Verdict.SUCCEEDED:
        return _in_state(each, PlacementState.PREPARING, runs)
    ready = _in_state(each, PlacementState.READY, runs)
    return ready if each.state is PlacementState.READY else {**ready, "since": rfc3339(case.scene.now)}


def _reset(
    each: InMode, device: Device | None, runs: Sequence[Run], case: _Case, found: _Findings
) -> Mapping[str, Any] | None:
    """One step back to whole: None once it is."""
    prepared = [run for run in runs if run.stage is HookStage.INIT]
    begun = any(run.phase is not HookPhase.PENDING or run.attempt > 1 for run in prepared)
    if each.state is PlacementState.PREPARING and not begun:
        return None
    hooks = case.hooks(HookStage.CLEANUP)
    own = [run for run in runs if run.stage is HookStage.CLEANUP]
    if not hooks:
        return None
    verdict, after = _through(each, device, HookStage.CLEANUP, own, case, found)
    if verdict is Verdict.SUCCEEDED and not case.scene.relations.hook_claims.get(each.today):
        return None
    return _in_state(each, PlacementState.RESETTING, after)


def _through(
    each: InMode, device: Device | None, stage: HookStage, runs: Sequence[Run], case: _Case, found: _Findings
) -> tuple[Verdict, Sequence[Run]]:
    """One step of a device through a stage of its pool's hooks."""
    scene, pool = case.scene, case.pool
    hooks = case.hooks(stage)
    if pool is None or not hooks:
        return Verdict.SUCCEEDED, runs
    obstacle = _obstacle(each, device, scene)
    errand = errand_of_mode(each, pool, scene.boot_ids.get(each.node, ""))
    occupied = [job_of_hook_claim(one.meta.name) for one in scene.relations.hook_claims.get(each.today, ())]
    me = (each.share.meta.created or 0.0, each.share.meta.uid, -1)
    progress = advance(
        errand,
        stage,
        hooks,
        runs,
        scene.relations.workshop,
        scene.now,
        paused=bool(obstacle) or scene.turns.waits((each.today,), me),
        occupied=occupied,
        rejections=scene.view.rejections,
    )
    if progress.wake_at is not None:
        found.wakes.append(progress.wake_at)
    if progress.begin is not None and device is not None:
        scene.turns.begin((each.today,), me)
        found.tasks.append(_task(each, errand, progress.begin, hooks, device, pool, case))
    if progress.trouble:
        found.notices.append(Notice("HookBlocked", progress.trouble, warning=True, key=progress.troubled))
    if progress.verdict is not Verdict.SUCCEEDED and (obstacle or progress.trouble):
        found.waits.append(f"{each.device} on {each.node}: {obstacle or progress.trouble}")
    found.notices += _failures(each, stage, runs, progress.runs)
    return progress.verdict, progress.runs


def _failures(each: InMode, stage: HookStage, before: Sequence[Run], after: Sequence[Run]) -> list[Notice]:
    old = {(run.stage, run.hook): run for run in before}
    told = []
    for run in after:
        again = run.phase is HookPhase.PENDING and run.attempt > 1
        known = old.get((run.stage, run.hook))
        if run.stage is not stage or not (again or run.phase is HookPhase.FAILED) or known is None or known == run:
            continue
        number = run.attempt - 1 if again else run.attempt
        said = sentence(run.message)
        doing = "to be divided" if stage is HookStage.INIT else "to be whole again"
        text = f"{stage.value.lower()} hook {run.hook} failed on {each.device}, node {each.node}, which is {doing}"
        key = f"{_mark(each)}/{stage}/{run.hook}/{number}"
        told.append(Notice("HookFailed", f"{text}{f': {said}' if said else ''}", warning=True, key=key))
    return told


def errand_of_mode(each: InMode, pool: PoolFacts, boot_id: str) -> Errand:
    """What a hook Job says that brings a device into a mode or back."""
    since = str(each.entry.get("since") or "")
    return Errand(each.share.meta.uid, -1, each.key, since, boot_id, pool.meta.uid)


def _task(
    each: InMode, errand: Errand, run: Run, hooks: Sequence[Hook], device: Device, pool: PoolFacts, case: _Case
) -> Task:
    told = told_of_device(each.share, each.slices)
    return Task(
        errand=errand,
        run=run,
        hook=next(hook for hook in hooks if hook.name == run.hook),
        pool=pool,
        claim="",
        claim_uid="",
        node=each.node,
        devices=(HookDevice("", case.known.kind, device, each.hardware_id, told),),
        parameters=parameters_of(pool, None),
        namespace=case.scene.view.namespace,
        guarded=pool.pool.spec.delivery.guard is Guard.DEVICE_TAINT_RULE,
    )
