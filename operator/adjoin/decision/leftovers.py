"""Hook Jobs that nobody waits for any more, and their ResourceClaims.

In come the Jobs and what statuses record of them; out go removals. A Job whose record says that it runs stays, ended or
not: its outcome is not recorded yet. Any other goes, with its pods, and our finalizer comes off it only when none of
them can run any more: until then it shows that somebody may be at the devices.
"""

from __future__ import annotations

from collections.abc import Iterable

from adjoin.api.claim_status import HookPhase
from adjoin.api.names import job_of_hook_claim
from adjoin.decision.modes import errand_of_mode
from adjoin.decision.passage import errand_of
from adjoin.decision.scene import ORDER_RELEASE, Scene, Work
from adjoin.delivery import Notice, event_step
from adjoin.facts import PoolFacts
from adjoin.grants import GrantFacts, Record
from adjoin.intents import Kind, Step, Verb
from adjoin.inventory import asked_pool, read_locked
from adjoin.jobs import JobFacts, RunKey, read_run
from adjoin.lifecycle import Errand, Run, drop_finalizer, entries, orphans, read_runs
from adjoin.modes import InMode


def clear_orphans(scene: Scene, work: Work) -> None:
    """Removes our ResourceClaims and ConfigMaps whose DeviceClaim is gone. That one is deleted is said, and counted."""
    view = scene.view
    for uid, steps in orphans(scene.relations, view.claims, view.busy, scene.now).items():
        if all(step.verb is not Verb.DELETE for step in steps):
            work.want(uid, "clear away", steps, ORDER_RELEASE)
            continue
        record: Record = view.resource_claims.get(uid) or view.grants[uid]
        kind = Kind.CONFIG_MAP if isinstance(record, GrantFacts) else Kind.RESOURCE_CLAIM
        text = f"the DeviceClaim that it was made for (UID {record.owner}) is gone"
        told = event_step(kind, record.meta, Notice("OrphanRemoved", text), "Sweep", scene.now)
        work.want(uid, "clear away", (*steps, told), ORDER_RELEASE, corrections=[(kind.value.kind, "orphaned")])


def clear_away(scene: Scene, work: Work) -> None:
    """Removes what is left of hooks."""
    view = scene.view
    for job in sorted(view.jobs.values(), key=lambda each: each.meta.name):
        if job.run is None or not job.owner or job.run.subject in view.busy:
            # What does not say whose run it is was not made by us.
            continue
        if not _needed(job.meta.name, job.run, scene):
            steps = _remove(job, scene)
            known = any(job.run.subject in each for each in (view.claims, view.pools, view.shares))
            if known or job.meta.deleting is not None or not scene.relations.workshop.active(job):
                work.want(job.meta.uid, "clear away", steps, ORDER_RELEASE)
                continue
            # It still runs, for somebody who is gone.
            notice = Notice("OrphanRemoved", f"what it was made for (UID {job.run.subject}) is gone")
            steps = (*steps, event_step(Kind.JOB, job.meta, notice, "Sweep", scene.now))
            found = [(Kind.JOB.value.kind, "orphaned")]
            work.want(job.meta.uid, "clear away", steps, ORDER_RELEASE, corrections=found)
    for claim in sorted(view.resource_claims.values(), key=lambda each: each.meta.name):
        meta = claim.meta
        if not claim.hook or meta.namespace != view.namespace or meta.deleting is not None:
            continue
        made = scene.relations.workshop.by_name.get(job_of_hook_claim(meta.name))
        if made is not None and (made.succeeded is None or scene.relations.workshop.active(made)):
            continue
        run = read_run(claim.run)
        if made is None and run is not None and _awaited(meta.name, run, scene):
            continue
        step = Step(Verb.DELETE, Kind.RESOURCE_CLAIM, meta.namespace, meta.name, meta.uid)
        work.want(meta.uid, "clear away", (step,), ORDER_RELEASE)


def _runs_of(run: RunKey, scene: Scene) -> list[tuple[Errand, tuple[Run, ...]]]:
    """What statuses record of those whose devices a run is for."""
    claim = scene.view.claims.get(run.subject)
    if claim is not None:
        pool = scene.relations.pools.get(asked_pool(claim, scene.inventory.default_pool))
        if pool is None:
            return []
        boot_ids = scene.boot_ids
        return [
            (
                errand_of(claim, entry, pool, boot_ids.get(str(entry.get("node") or ""), "")),
                read_runs(entry.get("hooks")),
            )
            for entry in entries(claim)
            if int(entry.get("index") or 0) == run.index
        ]
    if run.subject in scene.view.shares:
        return _conversions(scene.modes.by_share.get(run.subject, ()), scene)
    owner = scene.view.pools.get(run.subject)
    return _recoveries(owner, scene) if owner is not None else []


def _conversions(devices: Iterable[InMode], scene: Scene) -> list[tuple[Errand, tuple[Run, ...]]]:
    """Devices on their way into a share's mode or back."""
    found = []
    for each in devices:
        pool = scene.relations.pools.get(each.share.share.spec.pool_ref.name)
        if pool is not None and each.entry.get("hooks"):
            boot = scene.boot_ids.get(each.node, "")
            found.append((errand_of_mode(each, pool, boot), read_runs(each.entry["hooks"])))
    return found


def _recoveries(pool: PoolFacts, scene: Scene) -> list[tuple[Errand, tuple[Run, ...]]]:
    return [
        (
            Errand(pool.meta.uid, -1, locked.key, locked.stay, scene.boot_ids.get(locked.node, ""), pool.meta.uid),
            read_runs(locked.entry.get("hooks")),
        )
        for locked in read_locked(pool.status)
    ]


def _needed(name: str, run: RunKey, scene: Scene) -> bool:
    """Whether a status says that the run with the Job of that name is under way. One that prepared in an earlier boot
    is not, though the record of it stays."""
    return any(
        each.phase is HookPhase.RUNNING and not errand.outlived(each) and errand.job_name(each) == name
        for errand, runs in _runs_of(run, scene)
        for each in runs
    )


def _awaited(name: str, run: RunKey, scene: Scene) -> bool:
    """Whether a ResourceClaim without Job belongs to an attempt that is about to be begun."""
    return run.subject in scene.view.busy or _needed(job_of_hook_claim(name), run, scene)


def _remove(job: JobFacts, scene: Scene) -> tuple[Step, ...]:
    meta = job.meta
    active = scene.relations.workshop.active(job)
    if meta.deleting is None:
        # Its pods go first, and end as they must; then the Job.
        body = {"propagationPolicy": "Foreground" if active else "Background"}
        return (Step(Verb.DELETE, Kind.JOB, meta.namespace, meta.name, meta.uid, body=body),)
    if job.held and not active:
        return (drop_finalizer(Kind.JOB, job),)
    return ()
