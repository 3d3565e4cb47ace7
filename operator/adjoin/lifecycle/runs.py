"""One set of devices on its way through a stage of its pool's hooks, one hook after the other.

In come the hooks, what is recorded of them in a status and the Jobs that there are; out go the records as they should
stand, whether the stage is over, and the one attempt that has to be begun. A record says that an attempt runs before
its Job is made, and its outcome before the Job may go (the Job carries our finalizer until then): so whoever comes
after a crash finds either the record or the Job, and no attempt is begun twice. A Job that somebody else made is never
believed.

Nothing here knows what a Job looks like, whose devices these are or what becomes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final

from adjoin.api.claim_status import HookPhase, HookStage
from adjoin.api.names import hook_job_name
from adjoin.api.pool_policy import Hook
from adjoin.api.quantity import milliseconds
from adjoin.facts import Raw, moment
from adjoin.jobs import HookPodFacts, JobFacts, Rejection, RunKey
from adjoin.lifecycle.reports import Report, read_reports, without_parts
from adjoin.lifecycle.times import rfc3339

FIRST_RETRY_SECONDS: Final = 10.0
"""Pause before the second attempt; each further one is twice as long. As Kubernetes does between the pods of a Job."""
LONGEST_RETRY_SECONDS: Final = 360.0
MESSAGE_CHARACTERS: Final = 1024
"""As much of a hook's last words as a status keeps: thousands of replicas must fit into one object."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a status records of one hook.

    Attributes:
        hook: Its name.
        stage: Of which stage.
        phase: Pending (before an attempt after the first), Running, Succeeded or Failed (for good).
        boot_id: Boot of the node for which it counts, or "".
        attempt: Number of the attempt, from 1.
        since: Since when it is in this phase, or None.
        message: Last words of the hook.
    """

    hook: str
    stage: HookStage
    phase: HookPhase
    boot_id: str = ""
    attempt: int = 1
    since: float | None = None
    message: str = ""

    @property
    def over(self) -> bool:
        """Nothing more will come of it."""
        return self.phase in (HookPhase.SUCCEEDED, HookPhase.FAILED)


def read_runs(entries: Iterable[Raw] | None) -> tuple[Run, ...]:
    """Runs as a status records them. What cannot be read of one counts as a run that has failed: it was begun."""
    runs = []
    for entry in entries or ():
        phase, stage = entry.get("phase"), entry.get("stage") or HookStage.INIT
        runs.append(
            Run(
                hook=str(entry.get("name") or ""),
                stage=HookStage(stage) if stage in _STAGES else HookStage.INIT,
                phase=HookPhase(phase) if phase in _PHASES else HookPhase.FAILED,
                boot_id=str(entry.get("bootID") or ""),
                attempt=int(entry.get("attempts") or 1),
                since=moment(entry.get("since")),
                message=str(entry.get("message") or ""),
            )
        )
    return tuple(runs)


_STAGES = frozenset(HookStage)
_PHASES = frozenset(HookPhase)


def run_entry(run: Run) -> dict[str, Any]:
    """A run as it stands in a status; fields that say nothing are left out."""
    entry: dict[str, Any] = {"name": run.hook}
    if run.stage is not HookStage.INIT:
        entry["stage"] = run.stage.value
    entry["phase"] = run.phase.value
    if run.boot_id:
        entry["bootID"] = run.boot_id
    if run.attempt > 1:
        entry["attempts"] = run.attempt
    if run.since is not None:
        entry["since"] = rfc3339(run.since)
    if run.message:
        entry["message"] = run.message
    return entry


@dataclass(frozen=True, slots=True)
class Errand:
    """Whose devices a stage of hooks is for, and where.

    Attributes:
        subject: UID of the DeviceClaim, or of the DevicePool for a device that no claim holds.
        index: The claim's replica, or -1.
        device: For a device that no claim holds: its key (hardware id, else `driver/pool/device`); else "".
        allocation: What tells this hold on the devices from an earlier one of the same replica, such as when it began.
        boot_id: The node's present boot, or "".
        owner: UID of the DevicePool whose hooks these are.
    """

    subject: str
    index: int
    device: str
    allocation: str
    boot_id: str
    owner: str

    def outlived(self, run: Run) -> bool:
        """Whether the node has been started anew since the run: what it prepared has to be prepared again."""
        return run.stage is HookStage.INIT and run.boot_id != self.boot_id

    def key(self, run: Run) -> RunKey:
        """What a Job for an attempt says that it is for."""
        return RunKey(self.subject, self.index, self.device, run.stage.value, run.hook, run.attempt)

    def job_name(self, run: Run) -> str:
        """Name of the Job of an attempt: the same whoever asks, and another for every attempt, hold and boot."""
        parts = (self.subject, self.index, self.device, self.allocation, run.stage, run.hook, run.boot_id, run.attempt)
        text = "\0".join(map(str, parts))
        return hook_job_name(run.stage.value.lower(), blake2b(text.encode(), digest_size=10).hexdigest())


class Verdict(StrEnum):
    """How far a stage is."""

    UNDER_WAY = "UnderWay"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a stage.

    Attributes:
        verdict: How far it is, by the records.
        runs: The records as they should stand, those of other stages included.
        begin: The attempt whose Job is missing: to be made once the records stand.
        wake_at: When to look again although nothing changed, or None.
        failed: Devices (their names) that the hook which failed for good holds responsible; empty: it did not say.
        reports: What hooks whose success is new read back of the parts that they made, by key.
        trouble: What keeps the stage from going on that only somebody's hand can end, or "".
        troubled: Name of the Job that this is about, or "".
    """

    verdict: Verdict
    runs: tuple[Run, ...]
    begin: Run | None = None
    wake_at: float | None = None
    failed: frozenset[str] = frozenset()
    trouble: str = ""
    reports: Mapping[str, Report] = field(default_factory=dict)
    troubled: str = ""

    @property
    def current(self) -> Run | None:
        """The hook that the stage is at, or failed at."""
        return next((run for run in self.runs if run.phase is not HookPhase.SUCCEEDED), None)


@dataclass(frozen=True, slots=True, eq=False)
class Workshop:
    """Hook Jobs and their pods by what they are for.

    Attributes:
        by_name: Jobs by name.
        by_errand: Jobs by subject, index and device.
        by_subject: Jobs by subject.
        pods: Pods by UID of their Job.
    """

    by_name: Mapping[str, JobFacts]
    by_errand: Mapping[tuple[str, int, str], tuple[JobFacts, ...]]
    by_subject: Mapping[str, tuple[JobFacts, ...]]
    pods: Mapping[str, tuple[HookPodFacts, ...]]

    def of_subject(self, uid: str) -> tuple[JobFacts, ...]:
        """Jobs for a claim, or for a pool's devices that no claim holds."""
        return self.by_subject.get(uid, ())

    def active(self, job: JobFacts) -> bool:
        """Whether something of it may still run: it has not ended, or a pod of it has not."""
        pods = self.pods.get(job.meta.uid, ())
        if any(not pod.finished for pod in pods):
            return True
        return job.succeeded is None and job.meta.deleting is None

    def others(self, errand: Errand, name: str) -> bool:
        """Whether a Job of the errand other than that of `name` may still run."""
        jobs = self.by_errand.get((errand.subject, errand.index, errand.device), ())
        return any(job.meta.name != name and self.active(job) for job in jobs)


def workshop(jobs: Iterable[JobFacts], pods: Iterable[HookPodFacts]) -> Workshop:
    """Joins Jobs and their pods."""
    by_errand: dict[tuple[str, int, str], list[JobFacts]] = {}
    by_subject: dict[str, list[JobFacts]] = {}
    by_name: dict[str, JobFacts] = {}
    for job in sorted(jobs, key=lambda each: each.meta.version):
        by_name[job.meta.name] = job
        if job.run is not None:
            by_errand.setdefault((job.run.subject, job.run.index, job.run.device), []).append(job)
            by_subject.setdefault(job.run.subject, []).append(job)
    by_job: dict[str, list[HookPodFacts]] = {}
    for pod in sorted(pods, key=lambda each: (each.meta.created or 0.0, each.meta.name)):
        by_job.setdefault(pod.job, []).append(pod)
    return Workshop(
        by_name=by_name,
        by_errand={key: tuple(group) for key, group in by_errand.items()},
        by_subject={uid: tuple(group) for uid, group in by_subject.items()},
        pods={uid: tuple(group) for uid, group in by_job.items()},
    )


def _outcome(job: JobFacts, there: Workshop) -> bool | None:
    """How an attempt ended, None while it may still run.

    Of a Job that somebody deletes Kubernetes says nothing more; then its pods tell, and one without pods never ran.
    """
    pods = there.pods.get(job.meta.uid, ())
    if any(not pod.finished for pod in pods):
        return None
    if job.succeeded is not None:
        return job.succeeded
    if job.meta.deleting is not None:
        return any(pod.phase == "Succeeded" for pod in pods)
    return None


def _words(job: JobFacts, there: Workshop) -> str:
    """Last words of an attempt: its pod's, else Kubernetes' reason."""
    said = [pod.message for pod in there.pods.get(job.meta.uid, ()) if pod.message]
    if said:
        return said[-1].strip()
    if job.succeeded is False:
        return "it took too long" if job.reason == "DeadlineExceeded" else job.reason
    return "its Job was deleted before it had ended" if job.succeeded is None else ""


def blamed(message: str) -> frozenset[str]:
    """Devices that a hook's JSON message names as at fault; none where it says nothing of the kind."""
    try:
        said = json.loads(message)
    except ValueError:
        return frozenset()
    failed = said.get("failed") if isinstance(said, dict) else None
    return frozenset(str(each) for each in failed) if isinstance(failed, list) else frozenset()


def sentence(message: str) -> str:
    """A hook's last words for people: the `message` of JSON, else the last line."""
    try:
        said = json.loads(message)
    except ValueError:
        said = None
    if isinstance(said, dict) and said.get("message"):
        return str(said["message"])
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def retry_pause(attempt: int, longest: float = LONGEST_RETRY_SECONDS) -> float:
    """Seconds before attempt number `attempt` (from 2)."""
    return float(min(FIRST_RETRY_SECONDS * 2 ** min(attempt - 2, 32), longest))


def advance(
    errand: Errand,
    stage: HookStage,
    hooks: Sequence[Hook],
    runs: Sequence[Run],
    there: Workshop,
    now: float,
    *,
    paused: bool = False,
    occupied: Collection[str] = (),
    patient: float | None = None,
    objection: Callable[[Hook, Mapping[str, Report]], str] = lambda hook, reports: "",
    rejections: Mapping[str, Rejection] = MappingProxyType({}),
) -> Progress:
    """One step of `stage` for `errand`.

    Args:
        errand: Whose devices.
        stage: Which stage. Records of Init count for the node's present boot only.
        hooks: The hooks of the stage that apply to the devices, in order.
        runs: What is recorded, of both stages.
        there: The Jobs that there are.
        now: Seconds since the epoch.
        paused: Nothing may be begun now.
        occupied: Names of the hook Jobs whose ResourceClaims still have a device of the set.
        patient: Go on trying for ever, with pauses of at most so many seconds.
        objection: Why parts as a hook reported them are not what was asked, or "": then the attempt failed, whatever
            its Job says.
        rejections: By name of a Job why the API server does not take it. One that it will never take is a failed
            attempt at cleaning, so that whoever is to go can go; at preparing it is waited for, since no device is to
            blame for what somebody wrote into a template.
    """
    kept = {(run.stage, run.hook): run for run in runs}
    names = {hook.name for hook in hooks}
    others = tuple(run for run in runs if run.stage is not stage or run.hook not in names)
    made: list[Run] = []
    reports: dict[str, Report] = {}

    def done(verdict: Verdict, **rest: Any) -> Progress:
        # What was begun in an earlier boot has left its traces until it has run again: whoever is to clean has to know.
        told = {run.hook for run in made}
        earlier = (kept[stage, hook.name] for hook in hooks if (stage, hook.name) in kept and hook.name not in told)
        return Progress(verdict, (*others, *made, *earlier), reports=reports, **rest)

    for hook in hooks:
        run = kept.get((stage, hook.name))
        if run is not None and errand.outlived(run):
            run = None
        if run is not None and run.phase is HookPhase.SUCCEEDED:
            made.append(run)
            continue
        if run is not None and run.phase is HookPhase.FAILED:
            made.append(run)
            return done(Verdict.FAILED, failed=blamed(run.message))
        if run is None or run.phase is HookPhase.PENDING:
            pending = run or Run(hook.name, stage, HookPhase.PENDING, errand.boot_id)
            attempt = pending.attempt
            pause = retry_pause(attempt, patient or LONGEST_RETRY_SECONDS)
            due = 0.0 if attempt == 1 or pending.since is None else pending.since + pause
            name = errand.job_name(replace(pending, phase=HookPhase.RUNNING))
            if paused or now < due or there.others(errand, name) or any(each != name for each in occupied):
                made += [pending] if run is not None else []
                return done(Verdict.UNDER_WAY, wake_at=due if now < due and not paused else None)
            running = replace(pending, phase=HookPhase.RUNNING, since=now, boot_id=errand.boot_id or pending.boot_id)
            made.append(running)
            return done(Verdict.UNDER_WAY, begin=running)
        name = errand.job_name(run)
        job = there.by_name.get(name)
        refused = rejections.get(name) if job is None else None
        counts = stage is HookStage.CLEANUP or patient is not None
        if refused is not None and refused.final and counts:
            outcome, ended, words = (
                False,
                now,
                f"the API server refuses its Job: {refused.message}"[:MESSAGE_CHARACTERS],
            )
        elif job is None:
            made.append(run)
            waits = paused or there.others(errand, name) or any(each != name for each in occupied)
            trouble = ""
            if refused is not None:
                said = refused.message[:MESSAGE_CHARACTERS]
                trouble = f"hook {hook.name} cannot be begun, since the API server refuses Job {name}: {said}"
            return done(Verdict.UNDER_WAY, begin=None if waits else run, trouble=trouble, troubled=name)
        elif job.run != errand.key(run) or job.owner != errand.owner:
            made.append(run)
            trouble = f"Job {name} is there already, and not the one that hook {hook.name} needs; delete it"
            return done(Verdict.UNDER_WAY, trouble=trouble, troubled=name)
        else:
            found = _outcome(job, there)
            if found is None:
                made.append(run)
                return done(Verdict.UNDER_WAY)
            outcome, ended, words = found, job.ended or now, _words(job, there)
        told = read_reports(words) if outcome and stage is HookStage.INIT else {}
        wrong = objection(hook, told) if told else ""
        words = (wrong or without_parts(words))[-MESSAGE_CHARACTERS:]
        if outcome and not wrong:
            reports |= told
            made.append(replace(run, phase=HookPhase.SUCCEEDED, since=ended, message=words))
            continue
        if run.attempt <= hook.retries or patient is not None:
            again = replace(run, phase=HookPhase.PENDING, attempt=run.attempt + 1, since=ended, message=words)
            made.append(again)
            pause = retry_pause(again.attempt, patient or LONGEST_RETRY_SECONDS)
            return done(Verdict.UNDER_WAY, wake_at=ended + pause)
        made.append(replace(run, phase=HookPhase.FAILED, since=ended, message=words))
        return done(Verdict.FAILED, failed=blamed(words))
    return done(Verdict.SUCCEEDED)


def deadline_seconds(hook: Hook) -> int:
    """How long an attempt may take, in whole seconds."""
    return max(1, -(-milliseconds(hook.timeout) // 1000))


def cut_short(runs: Iterable[Run], stage: HookStage, now: float) -> tuple[Run, ...]:
    """Records of a stage that nobody waits for any more: of an attempt that was under way only remains that it was
    begun."""
    return tuple(
        replace(run, phase=HookPhase.PENDING, attempt=run.attempt + 1, since=now)
        if run.stage is stage and run.phase is HookPhase.RUNNING
        else run
        for run in runs
    )
