"""A pool's quarantine: which devices are in it, how they get out.

In come the quarantine as the pool's status records it, devices that claims could not have prepared or cleaned, and what
somebody vouches for; out go the quarantine as it should stand and the attempts at recovery that have to be begun. The
status is the record: a device is in it before the claim lets go of it, and leaves it only when hooks have proven it
sound, somebody vouches for it, other hardware is in its place, or its node came back as another boot after it was gone.
That a Node object is gone proves something of what ran on the machine only then: the same boot may come back with
everything that ran on it, when only its kubelet was away.

Nobody's word but the pool's own decides on devices of the pool, and what others tainted or cordoned is not touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from adjoin.api.claim_status import HookPhase, HookStage
from adjoin.api.names import ANNOTATION_RELEASE, job_of_hook_claim
from adjoin.api.pool_policy import Guard, Hook, Recovery
from adjoin.api.releases import read_releases
from adjoin.api.share import PlacementState
from adjoin.cache import LINGER_SECONDS
from adjoin.decision.entries import NEEDS_REPLACEMENT, entry_of, mode_entry, rule_entry, rule_owner, way_out
from adjoin.decision.idle import decide_idle
from adjoin.decision.passage import NEEDS_RESET, NODE_UNREACHABLE, NOT_CLEANED, covers, faults_of, parameters_of
from adjoin.decision.scene import Scene
from adjoin.delivery import HookDevice, Notice, Task, told_of_device
from adjoin.facts import ClaimFacts, PoolFacts, moment
from adjoin.inventory import IDLE_CLEAN, Locked, Tainted, device_key, read_locked
from adjoin.lifecycle import Errand, Run, Verdict, advance, entries, node_gone, read_runs, rfc3339, run_entry, sentence
from adjoin_allocator.model import Device, DeviceID, PlacedDevice
from adjoin_allocator.terms import Standing

HOLD_DOWN_SECONDS: Final = 60.0
"""So long a device stays in quarantine at least, and after its taint has gone: what made it fail may come in bursts."""
GONE_SECONDS: Final = 7 * 86_400.0
"""A node that has been gone for so long is not waited for any more: names of nodes often never come back."""
GONE_REMEMBERED: Final = 1024
"""So many devices of nodes that are gone are remembered at most: a status must fit into one object."""
LONGEST_PAUSE_SECONDS: Final = 3600.0
"""Longest pause between two attempts at recovery; they never end."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What becomes of a pool's quarantine.

    Attributes:
        entries: `status.quarantined` as it should stand, None where there is nothing to change.
        used: `status.used` as it should stand.
        tasks: Attempts to be begun once that stands.
        notices: What the pool's owner should hear.
        answered: The annotation that asks for a release has been acted on.
        wake_at: When to look again although nothing changed, or None.
    """

    entries: list[dict[str, Any]] | None = None
    used: Sequence[Mapping[str, Any]] = ()
    tasks: tuple[Task, ...] = ()
    notices: tuple[Notice, ...] = ()
    answered: bool = False
    wake_at: float | None = None


def names_device(text: str, locked: Locked) -> bool:
    """Whether `text` means that device: by hardware id, `driver/pool/device` or `pool/device`."""
    device = locked.device
    return text in {locked.hardware_id, "/".join(device), f"{device.pool}/{device.device}"} - {""}


@dataclass(slots=True)
class _Findings:
    """What is gathered while one pool's quarantine is decided."""

    tasks: list[Task]
    wakes: list[float]
    notices: list[Notice]


def decide_quarantine(pool: PoolFacts, suspects: Iterable[ClaimFacts], scene: Scene) -> Quarantine:
    """The quarantine of one pool. `suspects` are its claims whose status tells of something that failed or is lost.

    1. What claims could not have prepared or cleaned, or lost, and what a health rule says to be a matter of quarantine
       goes in.
    2. What somebody vouches for, what is none of the pool's any more and what has been proven sound comes out.
    3. The others are brought on by one step.
    4. Free devices that nobody used for long go in to be cleaned.
    """
    stored = {locked.key: locked for locked in read_locked(pool.status)}
    found = _Findings([], [], [])
    report = scene.inventory.reports.get(pool.meta.name)
    tainted = {device_key(each.hardware_id, each.device): each for each in (report.tainted if report else ())}
    made = _admit(pool, suspects, stored, tainted, scene, found.notices)
    released, answered = _released(pool, stored.values(), tainted, found.notices)
    kept: list[dict[str, Any]] = []
    held = _held(scene) if stored else frozenset()
    for key, locked in stored.items():
        if key in made:
            # Something graver than what it is in for.
            continue
        if key in released:
            continue
        locked = _with_absence(locked, scene)
        why = _over(locked, scene)
        if why:
            text = f"{locked.device} on {locked.node}: {why}"
            found.notices.append(Notice("QuarantineLifted", text, key=_mark(locked)))
            continue
        entry = _bring_on(pool, locked, tainted.get(key), held, scene, found)
        if entry is not None:
            kept.append(entry)
    idle = decide_idle(pool, stored.keys() | made.keys(), _cleaning(stored.values()), scene)
    found.wakes += [] if idle.wake_at is None else [idle.wake_at]
    listed = [*_remembered(kept, found.notices), *made.values(), *idle.entries]
    changed = listed != [dict(locked.entry) for locked in stored.values()]
    return Quarantine(
        entries=listed if changed else None,
        used=idle.used,
        tasks=tuple(found.tasks),
        notices=tuple(found.notices),
        answered=answered,
        wake_at=min(found.wakes, default=None),
    )


def _mark(locked: Locked) -> str:
    return f"{locked.key}/{locked.since}"


def _cleaning(stored: Iterable[Locked]) -> int:
    return sum(locked.reason == IDLE_CLEAN for locked in stored)


def _rank(reason: str) -> int:
    """The graver reason to be in quarantine stands."""
    return {IDLE_CLEAN: 0, NOT_CLEANED: 1, NEEDS_REPLACEMENT: 3}.get(reason, 2)


def _admit(
    pool: PoolFacts,
    suspects: Iterable[ClaimFacts],
    stored: Mapping[str, Locked],
    tainted: Mapping[str, Tainted],
    scene: Scene,
    notices: list[Notice],
) -> dict[str, dict[str, Any]]:
    """New entries by device key, also of devices that are in quarantine for a lesser reason."""
    made: dict[str, dict[str, Any]] = {}

    def admit(key: str, entry: dict[str, Any]) -> None:
        before = stored.get(key)
        known = str(made[key]["reason"]) if key in made else before.reason if before is not None else None
        if known is not None and _rank(known) >= _rank(entry["reason"]):
            return
        made[key] = entry
        device = f"{entry['driver']}/{entry['pool']}/{entry['device']}"
        text = f"{device} on {entry['node']}: {entry['reason']}: {entry['message']}"
        notices.append(Notice("Quarantined", text, warning=True, key=f"{key}/{entry['since']}"))

    for claim in suspects:
        for each in entries(claim):
            for fault in faults_of(claim, each, read_runs(each.get("hooks")), scene, pool):
                key = device_key(fault.placed.hardware_id, fault.placed.id)
                admit(key, entry_of(fault, pool, claim, each, scene))
    for moded in (one for group in scene.modes.by_share.values() for one in group if one.entry.get("hooks")):
        run = next((run for run in read_runs(moded.entry["hooks"]) if run.phase is HookPhase.FAILED), None)
        if run is not None and moded.share.share.spec.pool_ref.name == pool.meta.name:
            admit(moded.key, mode_entry(moded, run, pool, scene))
    for key, device in tainted.items():
        symptom = device.gravest
        if symptom is not None:
            admit(key, rule_entry(device, symptom, pool, scene))
    return made


def _released(
    pool: PoolFacts, stored: Iterable[Locked], tainted: Mapping[str, Tainted], notices: list[Notice]
) -> tuple[frozenset[str], bool]:
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
            symptom = tainted[locked.key].gravest if locked.key in tainted else None
            if symptom is not None:
                words = f"{locked.device} on {locked.node} has {symptom.text}, which keeps it in quarantine"
                more = "take the taint off, or change the pool's health rule"
                refusal = f"{version}/{each.device}"
                notices.append(Notice("ReleaseRefused", f"{words}; {more}", warning=True, key=refusal))
                continue
            found.add(locked.key)
            words = f"{locked.device} on {locked.node} was released by hand: {each.reason or 'no reason given'}"
            notices.append(Notice("QuarantineLifted", words, key=_mark(locked)))
    return frozenset(found), True


def _held(scene: Scene) -> frozenset[DeviceID]:
    """Devices that a claim, a ResourceClaim other than a hook's, or a pod's ConfigMap has."""
    placed = {device.id for claim in scene.snapshot.claims for replica in claim.placed for device in replica.devices}
    given = {
        device
        for each in scene.view.resource_claims.values()
        if each.allocated and not (each.hook and each.meta.namespace == scene.view.namespace)
        for device in each.devices
    }
    granted = {device for each in scene.view.grants.values() if each.owner for device in each.devices}
    return frozenset(placed | given | granted)


def _today(locked: Locked, scene: Scene) -> Device | None:
    """The device as it is today, by its hardware."""
    there = scene.inventory.devices.get(locked.node, ())
    known = locked.hardware_id
    by_hardware = (each for each in there if known and scene.inventory.is_hardware(each, known))
    by_name = (each for each in there if not locked.hardware_id and each.id == locked.device)
    return next(by_hardware, None) or next(by_name, None)


def _with_absence(locked: Locked, scene: Scene) -> Locked:
    """The entry with since when its node has been gone, until the node has come back and says which boot it is."""
    node, since = scene.view.nodes.get(locked.node), locked.node_gone_since
    if node is None:
        # That it is forgotten some day is not worth a timer: any later decision does that.
        since = since or rfc3339(scene.now)
    elif since:
        boots = {scene.boot_ids.get(locked.node, ""), locked.boot_id}
        known = "" not in boots
        if len(boots) == 1 if known else scene.inventory.nodes[locked.node].ready:
            since = ""
    left = {key: value for key, value in locked.entry.items() if key != "nodeGoneSince"}
    return replace(locked, node_gone_since=since, entry={**left, **({"nodeGoneSince": since} if since else {})})


def _remembered(entries_: list[dict[str, Any]], notices: list[Notice]) -> list[dict[str, Any]]:
    """The entries without those of the nodes that have been gone for longest, where these are too many."""
    gone = sorted((each for each in entries_ if each.get("nodeGoneSince")), key=lambda each: str(each["nodeGoneSince"]))
    forgotten = gone[: max(0, len(gone) - GONE_REMEMBERED)]
    for each in forgotten:
        words = f"{each['device']} on {each['node']}: the node is gone, and so are many others since"
        notices.append(Notice("QuarantineLifted", words, key=f"{each['node']}/{each['device']}/{each['since']}"))
    dropped = {id(each) for each in forgotten}
    return [each for each in entries_ if id(each) not in dropped]


def _over(locked: Locked, scene: Scene) -> str:
    """Why the device is none of the pool's any more, or ""."""
    boot_id = scene.boot_ids.get(locked.node, "")
    if (locked.node_gone_since or locked.reason == NOT_CLEANED) and boot_id and locked.boot_id not in ("", boot_id):
        return f"node {locked.node} was started anew"
    gone = moment(locked.node_gone_since)
    if locked.node not in scene.view.nodes and gone is not None and gone + GONE_SECONDS <= scene.now:
        return f"node {locked.node} has been gone for {GONE_SECONDS / 86_400:.0f} days"
    if _today(locked, scene) is not None:
        return ""
    placed = PlacedDevice("", locked.device, locked.hardware_id)
    other = scene.inventory.replaced_by(locked.node, placed, locked.address)
    if other is not None:
        return f"{other.hardware_id} is in its place"
    return ""


def _bring_on(
    pool: PoolFacts, locked: Locked, tainted: Tainted | None, held: Collection[DeviceID], scene: Scene, found: _Findings
) -> dict[str, Any] | None:
    """One step of a device on its way out: its entry as it should stand, None when it has been proven sound."""
    entry = dict(locked.entry)
    lifecycle, now = pool.pool.spec.lifecycle, scene.now
    device, node = _today(locked, scene), scene.inventory.nodes.get(locked.node)
    there = device is not None and device.standing is not Standing.MISSING and node is not None and node.ready
    there = there and not node_gone(node)
    cleanup = [hook for hook in lifecycle.cleanup if covers(hook, locked.name)]
    if locked.reason == IDLE_CLEAN:
        begun = bool(locked.entry.get("hooks"))
        if not begun and (not there or not cleanup or device is None or device.id in held):
            # Somebody was faster, or there is nothing to do any more.
            return None
        if not there or device is None or device.id in held:
            return entry
        return _through(pool, locked, [(HookStage.CLEANUP, cleanup)], device, scene, found)
    init = [hook for hook in lifecycle.init if covers(hook, locked.name)]
    stages: list[tuple[HookStage, Sequence[Hook]]] = [(HookStage.CLEANUP, cleanup), (HookStage.INIT, init)]
    if (
        locked.reason == NEEDS_REPLACEMENT
        or pool.pool.spec.health.recovery is not Recovery.AUTOMATIC
        or not (cleanup or init or locked.reason == NOT_CLEANED)
    ):
        return entry
    if tainted is not None and tainted.ailing is not None:
        # Whatever was tried before says nothing any more.
        return {key: value for key, value in entry.items() if key not in ("hooks", "clear")}
    if locked.reason in (NOT_CLEANED, NODE_UNREACHABLE):
        return _back(pool, locked, held, stages, there, scene, found)
    if not there or device is None or device.id in held:
        return entry
    if not locked.clear and locked.owner.startswith(rule_owner("")):
        entry["clear"] = rfc3339(now)
        found.wakes.append(now + HOLD_DOWN_SECONDS)
        return entry
    since = max(moment(locked.since) or now, moment(locked.clear or None) or 0.0)
    if now < since + HOLD_DOWN_SECONDS:
        found.wakes.append(since + HOLD_DOWN_SECONDS)
        return entry
    return _through(pool, locked, stages, device, scene, found)


def _back(
    pool: PoolFacts,
    locked: Locked,
    held: Collection[DeviceID],
    stages: Sequence[tuple[HookStage, Sequence[Hook]]],
    there: bool,
    scene: Scene,
    found: _Findings,
) -> dict[str, Any] | None:
    """One step of a device whose node was gone or given up, and may come back as the same boot, with all that ran on
    it. A kubelet that is ready ends what no pod stands for any more, as after a pod was deleted by force, and after the
    same time."""
    entry, device = dict(locked.entry), _today(locked, scene)
    if not there or device is None:
        return {key: value for key, value in entry.items() if key not in ("hooks", "clear")}
    if device.id in held:
        return entry
    if not locked.clear:
        found.wakes.append(scene.now + LINGER_SECONDS)
        return {**entry, "clear": rfc3339(scene.now)}
    # What is written to the second must not make it shorter.
    due = (moment(locked.clear) or scene.now) + LINGER_SECONDS + 1
    if scene.now < due:
        found.wakes.append(due)
        return entry
    return _through(pool, locked, stages, device, scene, found)


def _through(
    pool: PoolFacts,
    locked: Locked,
    stages: Sequence[tuple[HookStage, Sequence[Hook]]],
    device: Device,
    scene: Scene,
    found: _Findings,
) -> dict[str, Any] | None:
    """One step of a device through hooks."""
    entry, idle = dict(locked.entry), locked.reason == IDLE_CLEAN
    errand = Errand(
        subject=pool.meta.uid,
        index=-1,
        device=locked.key,
        allocation=locked.stay,
        boot_id=scene.boot_ids.get(locked.node, ""),
        owner=pool.meta.uid,
    )
    runs = before = read_runs(locked.entry.get("hooks"))
    occupied = [job_of_hook_claim(each.meta.name) for each in scene.relations.hook_claims.get(device.id, ())]
    for stage, hooks in stages:
        if not hooks:
            continue
        progress = advance(
            errand,
            stage,
            hooks,
            runs,
            scene.relations.workshop,
            scene.now,
            occupied=occupied,
            rejections=scene.view.rejections,
            patient=None if idle else LONGEST_PAUSE_SECONDS,
        )
        runs = progress.runs
        if progress.begin is not None:
            found.tasks.append(_task(pool, locked, errand, progress.begin, hooks, device, scene))
        if progress.wake_at is not None:
            found.wakes.append(progress.wake_at)
        if progress.trouble:
            found.notices.append(Notice("HookBlocked", progress.trouble, warning=True, key=progress.troubled))
        if progress.verdict is Verdict.FAILED:
            return _unclean(pool, locked, runs, scene, found)
        if progress.verdict is not Verdict.SUCCEEDED:
            break
    else:
        if occupied:
            # The last hook's ResourceClaim still has the device; nobody else may before it has not.
            return _with_runs(entry, runs)
        if not idle:
            proof = "its hooks succeeded" if any(hooks for _, hooks in stages) else "its node is ready again"
            words = f"{locked.device} on {locked.node}: {proof}"
            found.notices.append(Notice("QuarantineLifted", words, key=_mark(locked)))
        return None
    for run in runs:
        old = next((each for each in before if (each.stage, each.hook) == (run.stage, run.hook)), None)
        if old is not None and run.attempt > old.attempt:
            said = sentence(run.message)
            doing = "cleaning" if idle else "recovery"
            words = f"{doing} of {locked.device} on {locked.node}: hook {run.hook} failed, attempt {old.attempt}"
            key = f"{_mark(locked)}/{run.hook}/{old.attempt}"
            found.notices.append(Notice("HookFailed", f"{words}{f': {said}' if said else ''}", warning=True, key=key))
    return _with_runs(entry, runs)


def _with_runs(entry: dict[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    left = {key: value for key, value in entry.items() if key != "hooks"}
    return {**left, "hooks": [run_entry(run) for run in runs]} if runs else left


def _unclean(pool: PoolFacts, locked: Locked, runs: Sequence[Run], scene: Scene, found: _Findings) -> dict[str, Any]:
    """The entry of an idle device that could not be cleaned."""
    failed = next(run for run in runs if run.phase is HookPhase.FAILED)
    said = sentence(failed.message)
    message = f"hook {failed.hook} failed while nobody used the device{f': {said}' if said else ''}"
    words = f"{locked.device} on {locked.node}: {NEEDS_RESET}: {message}"
    since = rfc3339(scene.now)
    found.notices.append(Notice("Quarantined", words, warning=True, key=f"{locked.key}/{since}"))
    left = {key: value for key, value in locked.entry.items() if key != "hooks"}
    changed = {"reason": NEEDS_RESET, "message": message[:1024], "since": since, "exit": way_out(pool, locked.name)}
    return {**left, **changed}


def _told(device: Device, stage: HookStage, scene: Scene) -> Mapping[str, Any] | None:
    """What a hook is told of the share in whose mode a device is: it is unmade with the cleaning, and made again where
    the device stays in the mode."""
    known = next(iter(scene.modes.by_device.get(device.id, ())), None)
    if known is None or (stage is HookStage.INIT and known.state in (PlacementState.RESETTING, PlacementState.FAILED)):
        return None
    return told_of_device(known.share, known.slices)


def _task(
    pool: PoolFacts, locked: Locked, errand: Errand, run: Run, hooks: Sequence[Hook], device: Device, scene: Scene
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
        devices=(HookDevice("", locked.name, device, locked.hardware_id, _told(device, run.stage, scene)),),
        parameters=parameters_of(pool, claim),
        namespace=scene.view.namespace,
        guarded=pool.pool.spec.delivery.guard is Guard.DEVICE_TAINT_RULE,
    )
