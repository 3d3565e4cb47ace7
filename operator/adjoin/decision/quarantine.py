"""A pool's quarantine: which devices are in it, how they get out.

In come the quarantine as the pool's status records it, devices that claims could not have prepared or cleaned, and what
somebody vouches for; out go the quarantine as it should stand and the attempts at recovery that have to be begun. The
status is the record: a device is in it before the claim lets go of it, and leaves it only when hooks have proven it
sound, somebody vouches for it, other hardware is in its place, or its node is gone.

Nobody's word but the pool's own decides on devices of the pool, and what others tainted or cordoned is not touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adjoin.api.claim_status import HookStage
from adjoin.api.names import ANNOTATION_RELEASE, GROUP
from adjoin.api.pool_policy import Guard, Hook, Recovery
from adjoin.decision.passage import Fault, covers, faults_of, parameters_of
from adjoin.decision.scene import Scene
from adjoin.delivery import HookDevice, Notice, Task
from adjoin.facts import ClaimFacts, PoolFacts, timestamp
from adjoin.inventory import Locked, device_key, read_locked
from adjoin.lifecycle import Errand, Verdict, advance, entries, node_gone, read_runs, rfc3339, run_entry, sentence
from adjoin_allocator.model import Device, DeviceID
from adjoin_allocator.terms import Standing

OWNER: Final = GROUP
HOLD_DOWN_SECONDS: Final = 60.0
"""So long a device stays in quarantine at least: what made it fail may come in bursts."""
LONGEST_PAUSE_SECONDS: Final = 3600.0
"""Longest pause between two attempts at recovery; they never end."""
BY_HAND: Final = "kubectl adjoin release-quarantine"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What becomes of a pool's quarantine.

    Attributes:
        entries: `status.quarantined` as it should stand, None where there is nothing to change.
        tasks: Attempts to be begun once that stands.
        notices: What the pool's owner should hear.
        answered: The annotation that asks for a release has been acted on.
        wake_at: When to look again although nothing changed, or None.
    """

    entries: list[dict[str, Any]] | None = None
    tasks: tuple[Task, ...] = ()
    notices: tuple[Notice, ...] = ()
    answered: bool = False
    wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A device that somebody vouches for."""

    device: str
    reason: str


def read_releases(text: str) -> tuple[Release, ...]:
    """What the annotation asks for. Raises `ValueError` saying what is wrong with it."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(value, list) or not all(isinstance(each, dict) and each.get("device") for each in value):
        raise ValueError('must be a list such as [{"device": "node-a/gpu-0", "reason": "card reseated"}]')
    return tuple(Release(str(each["device"]), str(each.get("reason") or "")) for each in value)


def names_device(text: str, locked: Locked) -> bool:
    """Whether `text` means that device: by hardware id, `driver/pool/device` or `pool/device`."""
    device = locked.device
    return text in {locked.hardware_id, "/".join(device), f"{device.pool}/{device.device}"} - {""}


def entry_of(fault: Fault, claim: ClaimFacts, node: str, leave: str, now: float) -> dict[str, Any]:
    """A new entry of `status.quarantined`."""
    placed = fault.placed
    entry: dict[str, Any] = {
        "driver": placed.id.driver,
        "pool": placed.id.pool,
        "device": placed.id.device,
        "id": placed.hardware_id,
        "owner": OWNER,
        "reason": fault.reason,
        "message": fault.message[:1024],
        "exit": leave,
        "since": rfc3339(now),
        "claimUID": claim.meta.uid,
        "claim": claim.meta.key,
        "name": fault.name,
        "node": node,
    }
    return {key: value for key, value in entry.items() if value}


def way_out(pool: PoolFacts, name: str) -> str:
    """What ends the quarantine of a device of that name, in words."""
    lifecycle = pool.pool.spec.lifecycle
    hooks = [hook.name for hook in (*lifecycle.cleanup, *lifecycle.init) if covers(hook, name)]
    if pool.pool.spec.health.recovery is Recovery.AUTOMATIC and hooks:
        return f"{', '.join(dict.fromkeys(hooks))} succeed on it (tried again by itself), or {BY_HAND}"
    return BY_HAND


def decide_quarantine(pool: PoolFacts, suspects: Iterable[ClaimFacts], scene: Scene) -> Quarantine:
    """The quarantine of one pool. `suspects` are its claims whose status tells of something that failed."""
    stored = {locked.key: locked for locked in read_locked(pool.status)}
    notices: list[Notice] = []
    made: dict[str, dict[str, Any]] = {}
    for claim in suspects:
        for entry in entries(claim):
            node = str(entry.get("node") or "")
            for fault in faults_of(claim, entry, read_runs(entry.get("hooks")), scene, pool):
                key = device_key(fault.placed.hardware_id, fault.placed.id)
                if key not in stored and key not in made:
                    made[key] = entry_of(fault, claim, node, way_out(pool, fault.name), scene.now)
                    text = f"{fault.placed.id} on {node}: {fault.reason}: {fault.message}"
                    notices.append(Notice("Quarantined", text, warning=True, key=f"{key}/{made[key]['since']}"))
    released, answered = _released(pool, stored.values(), notices)
    kept: list[dict[str, Any]] = []
    tasks: list[Task] = []
    wakes: list[float] = []
    held = _held(scene) if stored else frozenset()
    for key, locked in stored.items():
        if key in released:
            continue
        why = _over(locked, scene)
        if why:
            notices.append(Notice("QuarantineLifted", f"{locked.device} on {locked.node}: {why}", key=_mark(locked)))
            continue
        recovered = _recover(pool, locked, scene, held, tasks, wakes, notices)
        if recovered is not None:
            kept.append(recovered)
    listed = [*kept, *made.values()]
    changed = listed != [dict(locked.entry) for locked in stored.values()]
    return Quarantine(
        entries=listed if changed else None,
        tasks=tuple(tasks),
        notices=tuple(notices),
        answered=answered,
        wake_at=min(wakes, default=None),
    )


def _mark(locked: Locked) -> str:
    return f"{locked.key}/{locked.since}"


def _released(pool: PoolFacts, stored: Iterable[Locked], notices: list[Notice]) -> tuple[frozenset[str], bool]:
    """Devices that somebody vouches for, and whether the annotation has been answered."""
    text = pool.annotations.get(ANNOTATION_RELEASE)
    if not text:
        return frozenset(), False
    version = str(pool.meta.version)
    try:
        asked = read_releases(text)
    except ValueError as error:
        words = f"annotation {ANNOTATION_RELEASE} {error}"
        notices.append(Notice("ReleaseRefused", words, warning=True, key=version))
        return frozenset(), True
    known = list(stored)
    found: set[str] = set()
    for each in asked:
        meant = [locked for locked in known if names_device(each.device, locked)]
        if not meant:
            words = f"{each.device} is not in quarantine"
            notices.append(Notice("ReleaseRefused", words, warning=True, key=f"{version}/{each.device}"))
        for locked in meant:
            found.add(locked.key)
            words = f"{locked.device} on {locked.node} was released by hand: {each.reason or 'no reason given'}"
            notices.append(Notice("QuarantineLifted", words, key=_mark(locked)))
    return frozenset(found), True


def _held(scene: Scene) -> frozenset[DeviceID]:
    """Devices that a claim, or a ResourceClaim other than a hook's, has."""
    placed = {device.id for claim in scene.snapshot.claims for replica in claim.placed for device in replica.devices}
    given = {
        device
        for each in scene.view.resource_claims.values()
        if each.allocated and not (each.hook and each.meta.namespace == scene.view.namespace)
        for device in each.devices
    }
    return frozenset(placed | given)


def _today(locked: Locked, scene: Scene) -> Device | None:
    """The device as it is today, by its hardware."""
    there = scene.inventory.devices.get(locked.node, ())
    by_hardware = (each for each in there if locked.hardware_id and each.hardware_id == locked.hardware_id)
    by_name = (each for each in there if not locked.hardware_id and each.id == locked.device)
    return next(by_hardware, None) or next(by_name, None)


def _over(locked: Locked, scene: Scene) -> str:
    """Why the device is none of the pool's any more, or ""."""
    if node_gone(scene.inventory.nodes.get(locked.node)) and scene.view.nodes.get(locked.node) is None:
        return f"node {locked.node} is gone"
    if _today(locked, scene) is not None:
        return ""
    there = scene.inventory.devices.get(locked.node, ())
    other = next((each for each in there if each.id == locked.device and each.hardware_id != locked.hardware_id), None)
    if other is not None and other.standing is not Standing.MISSING:
        return f"{other.hardware_id} is in its place"
    return ""


def _recover(
    pool: PoolFacts,
    locked: Locked,
    scene: Scene,
    held: frozenset[DeviceID],
    tasks: list[Task],
    wakes: list[float],
    notices: list[Notice],
) -> dict[str, Any] | None:
    """One step of a device's recovery: its entry as it should stand, None when it has been proven sound."""
    entry = dict(locked.entry)
    lifecycle, now = pool.pool.spec.lifecycle, scene.now
    stages: tuple[tuple[HookStage, Sequence[Hook]], ...] = (
        (HookStage.CLEANUP, [hook for hook in lifecycle.cleanup if covers(hook, locked.name)]),
        (HookStage.INIT, [hook for hook in lifecycle.init if covers(hook, locked.name)]),
    )
    if pool.pool.spec.health.recovery is not Recovery.AUTOMATIC or not any(hooks for _, hooks in stages):
        return entry
    device = _today(locked, scene)
    node = scene.inventory.nodes.get(locked.node)
    if device is None or device.id in held or node is None or not node.ready or device.standing is Standing.MISSING:
        return entry
    since = timestamp(locked.since) or now
    if now < since + HOLD_DOWN_SECONDS:
        wakes.append(since + HOLD_DOWN_SECONDS)
        return entry
    errand = Errand(
        subject=pool.meta.uid,
        index=-1,
        device=locked.key,
        allocation=locked.since,
        boot_id=scene.boot_ids.get(locked.node, ""),
        owner=pool.meta.uid,
    )
    runs = read_runs(locked.entry.get("hooks"))
    before = runs
    for stage, hooks in stages:
        if not hooks:
            continue
        progress = advance(
            errand,
            stage,
            hooks,
            runs,
            scene.relations.workshop,
            now,
            occupied=[each.meta.name for each in scene.relations.hook_claims.get(device.id, ())],
            patient=LONGEST_PAUSE_SECONDS,
        )
        runs = progress.runs
        if progress.begin is not None:
            tasks.append(_task(pool, locked, errand, progress.begin, hooks, device, scene))
        if progress.wake_at is not None:
            wakes.append(progress.wake_at)
        if progress.trouble:
            notices.append(Notice("HookBlocked", progress.trouble, warning=True, key=progress.trouble))
        if progress.verdict is not Verdict.SUCCEEDED:
            break
    else:
        words = f"{locked.device} on {locked.node}: its hooks succeeded"
        notices.append(Notice("QuarantineLifted", words, key=_mark(locked)))
        return None
    for run in runs:
        old = next((each for each in before if (each.stage, each.hook) == (run.stage, run.hook)), None)
        if old is not None and run.attempt > old.attempt:
            said = sentence(run.message)
            words = f"recovery of {locked.device} on {locked.node}: hook {run.hook} failed, attempt {old.attempt}"
            key = f"{_mark(locked)}/{run.hook}/{old.attempt}"
            notices.append(Notice("HookFailed", f"{words}{f': {said}' if said else ''}", warning=True, key=key))
    entry["hooks"] = [run_entry(run) for run in runs]
    if not entry["hooks"]:
        del entry["hooks"]
    return entry


def _task(
    pool: PoolFacts, locked: Locked, errand: Errand, run: Any, hooks: Sequence[Hook], device: Device, scene: Scene
) -> Task:
    hook = next(each for each in hooks if each.name == run.hook)
    claim = scene.view.claims.get(locked.claim_uid)
    return Task(
        errand=errand,
        run=run,
        hook=hook,
        pool=pool,
        claim=locked.claim,
        claim_uid=locked.claim_uid,
        node=locked.node,
        devices=(HookDevice("", locked.name, device, locked.hardware_id),),
        parameters=parameters_of(pool, claim),
        namespace=scene.view.namespace,
        guarded=pool.pool.spec.delivery.guard is Guard.DEVICE_TAINT_RULE,
    )
