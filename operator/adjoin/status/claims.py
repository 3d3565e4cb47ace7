"""Status of a DeviceClaim: facts and what was decided in, the status as it should stand out.

The phase follows from the replicas (semantics §3.4) and never runs ahead of them. Nothing here decides what a claim
gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.api.claim_status import ClaimCondition, HookPhase, HookStage, Phase, ReleasedReason
from adjoin.api.names import LABEL_CLAIM
from adjoin.delivery.events import Notice
from adjoin.facts import ClaimFacts, Raw
from adjoin.holdings import exhausted, read_evictions
from adjoin.lifecycle import Indexes, Member, device_entry, given_out, rfc3339, run_entry, sentence
from adjoin.status.conditions import Condition, compact, conditions
from adjoin_allocator.amounts import counted
from adjoin_allocator.results import ClaimPlan, Code, Reason
from adjoin_allocator.terms import ReplicaState

STALLED: frozenset[str] = frozenset({Code.INVALID_CLAIM, Code.POOL_NOT_FOUND, Code.NOT_ALLOWED})
"""Reasons that only somebody's hand can end; all others may pass by themselves."""

_RISING = (ReplicaState.ALLOCATED, ReplicaState.INITIALIZING, ReplicaState.READY, ReplicaState.IN_USE)
_PHASES = {
    ReplicaState.ALLOCATED: Phase.ALLOCATED,
    ReplicaState.INITIALIZING: Phase.INITIALIZING,
    ReplicaState.READY: Phase.READY,
    ReplicaState.IN_USE: Phase.IN_USE,
}


EVICTIONS_SECONDS = 600.0
"""How long an eviction stays in the status: so long nobody is evicted again for the same claim."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """Replicas that have to give their devices to another claim, from now on.

    Attributes:
        indexes: Which.
        by: UID of the claim that gets the devices.
        key: Its namespace and name.
    """

    indexes: frozenset[int]
    by: str
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class Ailing:
    """Devices of a claim that are not well, in words, by device."""

    missing: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()


WELL = Ailing()


def standing_failures(
    claim: ClaimFacts, members: Sequence[Member], wanted: Indexes, fresh: Sequence[Raw]
) -> list[dict[str, Any]]:
    """`status.failures`: those of the spec as it is now, counted on, less those of replicas that have become ready."""
    kept = {
        int(each.get("index") or 0): dict(each)
        for each in claim.status.get("failures") or ()
        if each.get("generation") == claim.meta.generation
    }
    for failure in fresh:
        index = int(failure["index"])
        kept[index] = {"index": index, "count": kept.get(index, {}).get("count", 0) + 1, **failure}
    ready = {member.index for member in members if member.sound}
    return [compact(kept[index]) for index in sorted(kept) if index not in ready and index in wanted]


def claim_phase(
    claim: ClaimFacts, members: Sequence[Member], wanted: Indexes, released: str, failures: Sequence[Raw] = ()
) -> Phase:
    """The phase, from the replicas that the claim will have."""
    if claim.meta.deleting is not None:
        return Phase.RELEASING
    if claim.claim.spec.suspend:
        return Phase.RELEASING if members else Phase.PENDING
    if released and not wanted:
        return Phase.RELEASING if members else Phase.RELEASED
    states = {member.index: member.state for member in members if member.index in wanted}
    if ReplicaState.FAILED in states.values() or exhausted(failures) is not None:
        return Phase.FAILED
    leaving = [index for index, state in states.items() if state is ReplicaState.RELEASING]
    if leaving and len(leaving) == len(states):
        return Phase.RELEASING
    if len(states) < len(wanted):
        return Phase.PENDING
    rising = [state for state in states.values() if state in _RISING]
    # Of no replicas at all there is nothing to wait for.
    return _PHASES[min(rising, key=_RISING.index)] if rising else Phase.READY


def _entry(member: Member, boot_id: str, now: float) -> dict[str, Any]:
    """The replica's entry in its present state."""
    entry = dict(member.entry)
    before = entry.get("state")
    entry["state"] = member.state.value
    if member.runs:
        entry["hooks"] = [run_entry(run) for run in member.runs]
    else:
        entry.pop("hooks", None)
    if member.state is ReplicaState.READY:
        entry.setdefault("readyAt", rfc3339(now))
        if before != ReplicaState.READY or "idleSince" not in entry:
            entry["idleSince"] = rfc3339(now)
    elif member.state is ReplicaState.INITIALIZING and given_out(entry) and not member.uses:
        entry["idleSince"] = rfc3339(now)
    elif member.state is ReplicaState.IN_USE:
        entry.setdefault("readyAt", rfc3339(now))
        entry.pop("idleSince", None)
    if boot_id and member.sound:
        entry["bootID"] = boot_id
    return entry


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _last_used(stored: Raw, replicas: Sequence[Raw], now: float) -> str | None:
    """When a pod last gave a replica back: `status.lastUsedAt` as it should stand."""
    after = {each.get("index") or 0: each for each in replicas}
    before = (stored.get("allocation") or {}).get("replicas") or ()
    given_back = any(given_out(each) and not given_out(after.get(each.get("index") or 0, {})) for each in before)
    last: str | None = rfc3339(now) if given_back else stored.get("lastUsedAt")
    return last


def _why_released(claim: ClaimFacts, reason: str) -> str:
    spec = claim.claim.spec
    if reason == ReleasedReason.IDLE:
        return f"no pod has used it for its idleTimeout of {spec.idle_timeout}"
    if reason == ReleasedReason.PODS_FINISHED:
        return "all its pods have ended"
    return f"its maxRuntime of {spec.max_runtime} is over"


def _conditions(
    claim: ClaimFacts,
    phase: Phase,
    members: Sequence[Member],
    wanted: Indexes,
    reasons: Sequence[Raw],
    ailing: Ailing,
    evicted: Evicted | None,
    released: str,
    failures: Sequence[Raw],
    waits: Sequence[str],
) -> list[Condition]:
    placed = sum(member.index in wanted for member in members)
    lost = [member for member in members if member.lost]
    first = reasons[0] if reasons else {}
    why = str(first.get("code") or phase.value)
    text = str(first.get("message") or "")
    if phase is Phase.PENDING and not reasons:
        why, text = "Planning", f"{placed} of {_count(len(wanted), 'replica')} placed"
    elif phase is Phase.FAILED:
        why, text = _why_failed(members, lost, failures)
    elif phase is Phase.RELEASING:
        users = sum(use.live for member in members for use in member.uses)
        hooks = [run for member in members for run in member.runs if run.stage is HookStage.CLEANUP and not run.over]
        text = "waits for what its pods had to go"
        if users:
            text = f"waits for {_count(users, 'pod')} to end"
        elif hooks:
            text = f"waits for cleanup hook {hooks[0].hook}, attempt {hooks[0].attempt}"
        if waits:
            text = f"{text}; {waits[0]}"
    found: list[Condition] = []
    if phase is Phase.RELEASED:
        anew = "a change of its spec" + (", or a pod that names it," if released == ReleasedReason.IDLE else "")
        text = f"{_why_released(claim, released)}; {anew} starts it anew"
        held = (ClaimCondition.ALLOCATED, ClaimCondition.INITIALIZED, ClaimCondition.READY)
        found += [Condition(each, False, "Released", text) for each in held]
    elif phase in (Phase.PENDING, Phase.FAILED, Phase.RELEASING):
        found += [
            Condition(ClaimCondition.ALLOCATED, False, why, text),
            Condition(ClaimCondition.INITIALIZED, False, why, text),
            Condition(ClaimCondition.READY, False, why, text),
        ]
        stalled = (phase is Phase.PENDING and why in STALLED) or (
            phase is Phase.FAILED and exhausted(failures) is not None
        )
        kind = ClaimCondition.STALLED if stalled else ClaimCondition.RECONCILING
        found.append(Condition(kind, True, why, text))
    elif phase in (Phase.ALLOCATED, Phase.INITIALIZING):
        text = f"{_count(placed, 'replica')} placed"
        hooked = _preparing(members, waits)
        found += [
            Condition(ClaimCondition.ALLOCATED, True, "Placed", text),
            Condition(ClaimCondition.INITIALIZED, False, phase.value, hooked),
            Condition(ClaimCondition.READY, False, phase.value, hooked),
            Condition(ClaimCondition.RECONCILING, True, phase.value, hooked),
        ]
    else:
        text = f"{_count(placed, 'replica')} placed"
        prepared = any(run.stage is HookStage.INIT for member in members for run in member.runs)
        words = (
            ("HooksSucceeded", "all init hooks succeeded") if prepared else ("NoHooks", "the pool has no init hooks")
        )
        found += [
            Condition(ClaimCondition.ALLOCATED, True, "Placed", text),
            Condition(ClaimCondition.INITIALIZED, True, *words),
        ]
        if reasons:
            # It is prepared, and nobody can be given it.
            found.append(Condition(ClaimCondition.READY, False, str(reasons[0]["code"]), str(reasons[0]["message"])))
            found.append(Condition(ClaimCondition.STALLED, True, str(reasons[0]["code"]), str(reasons[0]["message"])))
        else:
            found.append(Condition(ClaimCondition.READY, True, phase.value, text))
    if ailing.missing:
        found.append(Condition(ClaimCondition.DEVICE_MISSING, True, "NotPublished", "; ".join(ailing.missing)))
    if ailing.unhealthy:
        found.append(Condition(ClaimCondition.DEVICE_UNHEALTHY, True, "Tainted", "; ".join(ailing.unhealthy)))
    if lost:
        text = "; ".join(f"replica {member.index}: {member.lost}" for member in lost)
        found.append(Condition(ClaimCondition.CONFLICT, True, "HeldTwice", text))
    if released:
        found.append(Condition(ClaimCondition.RELEASED, True, released, _why_released(claim, released)))
    if evicted is not None:
        which = ", ".join(map(str, sorted(evicted.indexes)))
        text = f"replica {which} gives its devices to DeviceClaim {evicted.key}"
        found.append(Condition(ClaimCondition.EVICTED, True, "Preempted", text))
    elif claim.meta.deleting is None and (
        phase in (Phase.PENDING, Phase.RELEASING) or any(member.state is ReplicaState.RELEASING for member in members)
    ):
        # It was evicted, and has not let go of everything, or not got everything back yet.
        for stored in claim.status.get("conditions") or ():
            if stored.get("type") == ClaimCondition.EVICTED and stored.get("status") == "True":
                text, reason = str(stored.get("message") or ""), str(stored.get("reason") or "Preempted")
                found.append(Condition(ClaimCondition.EVICTED, True, reason, text))
    return found


def _why_failed(members: Sequence[Member], lost: Sequence[Member], failures: Sequence[Raw]) -> tuple[str, str]:
    if lost:
        return "Conflict", "; ".join(f"replica {member.index}: {member.lost}" for member in lost)
    last = exhausted(failures)
    if last is not None:
        sets = counted(int(last.get("count") or 0), "set")
        text = f"replica {last.get('index')}: hook {last.get('hook')} failed on {sets} of devices"
        said = f": {last['message']}" if last.get("message") else ""
        return "InitFailed", f"{text}, last on node {last.get('node')}{said}; a change of the claim's spec begins anew"
    for member in members:
        failed = next((run for run in member.runs if run.phase is HookPhase.FAILED), None)
        if failed is not None and member.state is ReplicaState.FAILED:
            said = sentence(failed.message)
            where = f"replica {member.index}: hook {failed.hook} failed on node {member.node}"
            return "InitFailed", f"{where}{f': {said}' if said else ''}; it is planned again"
    causes = [(member.cause[0], f"replica {member.index}: {member.cause[1]}") for member in members if member.cause]
    if causes:
        return causes[0][0], f"{'; '.join(text for _, text in causes)}; it is planned again"
    nodes = ", ".join(sorted({member.node for member in members if member.state is ReplicaState.FAILED}))
    return (
        "NodeLost",
        f"node {nodes} cannot be reached; its replicas are planned again" if nodes else "a replica is lost",
    )


def _preparing(members: Sequence[Member], waits: Sequence[str]) -> str:
    """What the replicas that are not ready wait for."""
    if waits:
        return waits[0]
    for member in members:
        run = next((run for run in member.runs if run.stage is HookStage.INIT and not run.over), None)
        if run is not None and member.kept and not member.sound:
            return f"hook {run.hook} on replica {member.index}, node {member.node}, attempt {run.attempt}"
    return "its devices are prepared"


def _evictions(stored: Raw, evicted: Evicted | None, now: float) -> list[dict[str, Any]]:
    """Those of the last ten minutes, as they stand in the status; of one that cannot be read the time is not known."""
    kept = [
        dict(each)
        for each, read in zip(stored.get("evictions") or (), read_evictions(stored), strict=False)
        if now - read.at < EVICTIONS_SECONDS
    ]
    if evicted is not None:
        kept.append({"byUID": evicted.by, "at": rfc3339(now)})
    return kept[-64:]


def nomination_entries(plan: ClaimPlan | None) -> list[dict[str, Any]]:
    """What is held for a claim, as it stands in its status."""
    return [
        {"index": each.index, "node": each.node, "devices": [device_entry(device) for device in each.devices]}
        for each in (plan.nominated if plan is not None else ())
    ]


def claim_status(
    claim: ClaimFacts,
    members: Sequence[Member],
    plan: ClaimPlan | None,
    boot_ids: Mapping[str, str],
    ailing: Ailing,
    now: float,
    *,
    wanted: Indexes,
    evicted: Evicted | None = None,
    released: str = "",
    failures: Sequence[Raw] = (),
    waits: Sequence[str] = (),
    resizing: Sequence[str] = (),
    undelivered: Reason | None = None,
) -> dict[str, Any]:
    """The whole status as it should stand, given the replicas that the claim will have.

    Args:
        claim: The claim, with its status as stored.
        members: Its replicas, placed and newly placed, by index.
        plan: What the decision says about it, None when that is nothing.
        boot_ids: Boot id by node.
        ailing: Which of its devices are not well.
        now: For times of what changes.
        wanted: The replicas that it wants.
        evicted: Replicas that this decision takes from it.
        released: Why it is released, from now on or already, or "".
        failures: `status.failures` as it should stand.
        waits: What replicas cannot go on for, in words.
        resizing: Why parts do not have the size that is asked, in words.
        undelivered: Why no pod could be given what is placed, or None.
    """
    stored = claim.status
    phase = claim_phase(claim, members, wanted, released, failures)
    missing = phase is Phase.PENDING
    told = list(plan.reasons) if missing and plan is not None else []
    if undelivered is not None and phase is not Phase.RELEASING:
        told.append(undelivered)
    reasons = [{"code": reason.code.value, "nodes": reason.nodes, "message": reason.message} for reason in told]
    gap = plan.gap if plan is not None and plan.gap is not None else (stored.get("allocation") or {}).get("gap")
    replicas = [_entry(member, boot_ids.get(member.node, ""), now) for member in members]
    allocation = compact({"gap": None if missing else gap, "replicas": replicas}) if replicas else {}
    found = _conditions(claim, phase, members, wanted, reasons, ailing, evicted, released, failures, waits)
    if resizing and phase in (Phase.READY, Phase.IN_USE):
        found.append(Condition(ClaimCondition.RECONCILING, True, "ResizePending", "; ".join(resizing)))
    ready = sum(member.sound and member.index in wanted for member in members)
    # Who begins anew has had no pods yet.
    begins_anew = released or claim.claim.spec.suspend
    return compact(
        {
            "observedGeneration": claim.meta.generation,
            "phase": phase.value,
            "conditions": conditions(found, stored, claim.meta.generation, now),
            "replicas": len(members),
            "readyReplicas": ready,
            "selector": f"{LABEL_CLAIM}={claim.meta.name}",
            "reasons": reasons,
            "nearest": plan.nearest if missing and plan is not None else None,
            "nominated": nomination_entries(plan) if missing else [],
            "evictions": _evictions(stored, evicted, now),
            "failures": list(failures),
            "lastUsedAt": None if begins_anew else _last_used(stored, replicas, now),
            "allocation": allocation,
        }
    )


_WORDS = ("message", "nodes", "nearest")


def gist(status: Raw) -> dict[str, Any]:
    """A claim's status without the words and numbers that describe what it waits for: those change with every
    neighbour."""
    return {
        **{key: value for key, value in status.items() if key not in ("nearest", "reasons", "conditions")},
        "reasons": [reason.get("code") for reason in status.get("reasons") or ()],
        "conditions": [
            {key: value for key, value in condition.items() if key != "message"}
            for condition in status.get("conditions") or ()
        ],
    }


def claim_notice(claim: ClaimFacts, status: Raw, fresh: Sequence[Member]) -> Notice | None:
    """What to say about the change from the stored status to `status`, or None when its owner need not hear of it.

    The version that the change is based on makes every change its own Event, and every repetition of it the same one.
    """
    stored = claim.status
    key = str(claim.meta.version)
    before = {each.get("type") for each in stored.get("conditions") or ()}
    alarms = (
        ClaimCondition.RELEASED,
        ClaimCondition.EVICTED,
        ClaimCondition.CONFLICT,
        ClaimCondition.DEVICE_MISSING,
        ClaimCondition.DEVICE_UNHEALTHY,
    )
    for condition in status.get("conditions") or ():
        if condition["type"] in alarms and condition["type"] not in before:
            return Notice(condition["type"], condition["message"], warning=True, key=key)
    if fresh:
        places = "; ".join(_place(member) for member in fresh[:4])
        more = f" and {len(fresh) - 4} more" if len(fresh) > 4 else ""
        return Notice("Placed", f"{places}{more}", key=key)
    phase = status.get("phase")
    if phase == Phase.PENDING:
        codes = [reason["code"] for reason in status.get("reasons") or ()]
        if codes and codes != [reason.get("code") for reason in stored.get("reasons") or ()]:
            text = "; ".join(reason["message"] for reason in status["reasons"])
            return Notice(codes[0], text, warning=codes[0] in STALLED, key=key)
    elif phase == Phase.FAILED and stored.get("phase") != phase:
        ready = next((each for each in status.get("conditions") or () if each["type"] == ClaimCondition.READY), None)
        if ready is not None:
            return Notice(ready["reason"], ready["message"], warning=True, key=key)
    elif phase == Phase.RELEASING and stored.get("phase") != phase:
        return Notice("Releasing", "its users are being removed", key=key)
    return None


def _place(member: Member) -> str:
    devices = ", ".join(str(device["device"]) for device in member.entry["devices"])
    near = ", ".join(f"{pair} {level}" for pair, level in (member.entry.get("locality") or {}).items())
    return f"replica {member.index} on {member.node}: {devices}" + (f" ({near})" if near else "")
