"""What a plan means for every claim and pool, as the objects that are printed.

In come facts, the inventory and the allocator's Plan; out go dictionaries with every field, empty ones included.
`replicas` and `reasons` of a claim are exactly those of its status, so that a plan can be fed back as status.

Nothing here decides; what a claim already has is passed through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from adjoin.api.claim_status import AllocatedReplica, ClaimCondition, Nomination, Phase
from adjoin.api.parse import dump, without_nulls
from adjoin.api.pool_policy import DeliveryMode
from adjoin.api.share import Prepare
from adjoin.cache import View
from adjoin.cli.documents import UnreadableInput
from adjoin.decision.resize import Resize, decide_resizes, resized
from adjoin.delivery.environment import identity_reason
from adjoin.environment import ShareFacts
from adjoin.facts import ClaimFacts, PoolFacts
from adjoin.holdings import is_released, read_placed
from adjoin.inventory import Inventory, asked_pool
from adjoin.lifecycle import Member, contested, device_entry, entries, evicting, relate, review, rfc3339
from adjoin.status import nomination_entries, placement_entries, pool_status, share_problem, share_status
from adjoin.status.conditions import Condition, conditions
from adjoin_allocator.acceptance import ShareReport, holders, selected, share_reports
from adjoin_allocator.model import Claim, ClaimUID, Device, DeviceID, PlacedDevice, natural_key
from adjoin_allocator.overdrawn import overdrawn
from adjoin_allocator.results import ClaimPlan, Code, Placement, Plan, Reason
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import ReplicaState, Standing

Json = dict[str, Any]

_RISING = (ReplicaState.ALLOCATED, ReplicaState.INITIALIZING, ReplicaState.READY, ReplicaState.IN_USE)
_KEPT = frozenset((*(Phase(state) for state in _RISING), Phase.RELEASING, Phase.RELEASED))


@dataclass(frozen=True, slots=True, eq=False)
class ClaimOutcome:
    """One claim after the decision.

    Attributes:
        shown: The object that is printed.
        waits: It is Pending, Failed or lacks replicas.
    """

    shown: Json
    waits: bool


@dataclass(frozen=True, slots=True)
class _Resized:
    """What becomes of a placed claim whose parts are not of the size that it asks.

    Attributes:
        entries: Replicas with parts of another size, as they should stand, by index.
        waits: Why others keep theirs, in words.
        anew: Hooks make some of these parts anew.
    """

    entries: Mapping[int, Json]
    waits: tuple[str, ...] = ()
    anew: bool = False

    @classmethod
    def of(cls, members: Iterable[Member], resize: Resize, now: float) -> _Resized:
        after = {member.index: (member, resized(member, resize, now)) for member in members}
        changed = {index: made for index, (member, made) in after.items() if made is not member}
        return cls(
            {index: dict(each.entry) for index, each in changed.items()}, resize.waits, resize.hooked and bool(changed)
        )


_SAME = _Resized({})


def claim_outcomes(view: View, inventory: Inventory, snapshot: Snapshot, plan: Plan, now: float) -> list[ClaimOutcome]:
    """Every claim, in the order of the view. `snapshot` is the one that `plan` was made of."""
    by_environment = {
        pool.meta.name for pool in view.pools.values() if pool.pool.spec.delivery.mode is DeliveryMode.ENVIRONMENT
    }
    lost = contested(snapshot.claims, {uid: each.conflicts for uid, each in plan.claims.items()}, snapshot.holds)
    evicted: dict[str, frozenset[int]] = {}
    for each in plan.preempted:
        evicted[each.uid] = evicted.get(each.uid, frozenset()) | frozenset(each.replicas)
    members = {claim.uid: frozenset(claim.members) for claim in snapshot.claims}
    relations = relate(view)
    resizes = decide_resizes(snapshot, plan, relations.pools)
    sizes = {
        uid: _Resized.of(
            review(
                view.claims[uid],
                relations,
                inventory,
                lost.get(uid, {}),
                now,
                evicted.get(uid, frozenset()) | evicting(view.claims[uid]),
                wanted=members[ClaimUID(uid)],
            ).members,
            resize,
            now,
        )
        for uid, resize in resizes.items()
    }
    return [
        _claim(
            facts,
            members.get(ClaimUID(uid), frozenset()),
            plan.claims.get(ClaimUID(uid)),
            lost.get(uid, {}),
            evicted.get(uid, frozenset()) | evicting(facts),
            _unwell(facts, inventory),
            inventory if asked_pool(facts, inventory.default_pool) in by_environment else None,
            sizes.get(uid, _SAME),
            now,
        )
        for uid, facts in view.claims.items()
    ]


def share_outcomes(shares: Mapping[str, ShareFacts], snapshot: Snapshot, plan: Plan, now: float) -> list[Json]:
    """Every share, by name; of those that cut devices into partitions where these lie."""
    shown, over, reports = [], overdrawn(snapshot, plan), share_reports(snapshot, plan)
    yielded = _yielded(shares.values(), snapshot, plan, reports)
    for facts in sorted(shares.values(), key=lambda facts: natural_key(facts.meta.name)):
        report = reports.get(facts.meta.name, ShareReport())
        problem = share_problem(facts, snapshot.shares[facts.meta.name], snapshot.pools) or report.refusal
        status = share_status(
            facts,
            problem,
            over.get(facts.meta.name, ""),
            now,
            report,
            holders=_holders(facts, snapshot) if facts.meta.deleting is not None else (),
            yielded=yielded.get(facts.meta.name, ()),
        )
        shown.append(
            {
                "name": facts.meta.name,
                "accepted": not problem,
                "message": problem,
                "placements": placement_entries(report),
                "conditions": status["conditions"],
            }
        )
    return shown


def _holders(facts: ShareFacts, snapshot: Snapshot) -> list[str]:
    """Claims that have parts out of a share."""
    found = {
        f"{claim.namespace}/{claim.name}"
        for claim in snapshot.claims
        for replica in claim.placed
        for device in replica.devices
        if device.share is not None and device.share.name == facts.meta.name
    }
    return sorted(found, key=natural_key)


def _devices_of(claim: Claim, plan: Plan) -> Iterator[tuple[PlacedDevice, ...]]:
    """What each replica has, and will have once the plan is carried out."""
    yield from (replica.devices for replica in claim.placed)
    if claim.uid in plan.claims:
        yield from (placement.devices for placement in plan.claims[claim.uid].placements)


def _yielded(
    shares: Iterable[ShareFacts], snapshot: Snapshot, plan: Plan, reports: Mapping[str, ShareReport]
) -> dict[str, list[str]]:
    """Of shares that prepare devices by themselves which of their devices an older such share prepares."""
    eager = [
        facts
        for facts in shares
        if facts.share.spec.prepare is Prepare.EAGER
        and facts.meta.deleting is None
        and not share_problem(facts, snapshot.shares[facts.meta.name], snapshot.pools)
        and not (facts.meta.name in reports and reports[facts.meta.name].refusal)
    ]
    if len(eager) < 2:
        return {}
    eager.sort(key=lambda facts: (facts.meta.created or 0.0, facts.meta.name, facts.meta.uid))
    held = holders(snapshot, plan)
    whole = {
        device.id
        for claim in snapshot.claims
        for devices in _devices_of(claim, plan)
        for device in devices
        if device.share is None
    }
    gone: set[DeviceID] = set()
    found: dict[str, list[str]] = {}
    for facts in eager:
        share = snapshot.shares[facts.meta.name]
        mine = list(selected(share, snapshot))
        found[share.name] = [str(each.id) for each in mine if each.id in gone]
        own: list[Device] = []
        others: list[Device] = []
        for each in mine:
            names = {part.name for _, part in held.get((each.node, each.id), ())}
            mode = snapshot.modes.get(each.id)
            if each.id in gone or each.id in whole or names - {share.name} or each.standing is not Standing.OFFERED:
                continue
            (own if names or (mode is not None and mode.share == share.name) else others).append(each)
        gone |= {each.id for each in (*own, *others)[: share.max_devices]}
    return found


def preempted_outcomes(claims: Mapping[str, ClaimFacts], plan: Plan) -> list[Json]:
    """Which replicas have to go, and for whom."""

    def named(uid: str) -> Json:
        meta = claims[uid].meta
        return {"namespace": meta.namespace, "name": meta.name}

    return [{**named(each.uid), "replicas": list(each.replicas), "by": named(each.by)} for each in plan.preempted]


def pool_outcomes(pools: Mapping[str, PoolFacts], inventory: Inventory, plan: Plan, now: float) -> list[Json]:
    """Every pool, by name."""
    shown = []
    for facts in sorted(pools.values(), key=lambda facts: natural_key(facts.meta.name)):
        decided = plan.pools.get(facts.meta.name)
        status = pool_status(facts, inventory.reports[facts.meta.name], decided, {}, now)
        shown.append(
            {
                "name": facts.meta.name,
                "gap": decided.gap if decided is not None else 0.0,
                "conditions": status.get("conditions", []),
                "devices": {name: asdict(counts) for name, counts in decided.counts.items()} if decided else {},
            }
        )
    return shown


def _claim(
    facts: ClaimFacts,
    members: frozenset[int],
    plan: ClaimPlan | None,
    lost: Mapping[int, str],
    evicted: frozenset[int],
    unwell: Sequence[Condition],
    named_by: Inventory | None,
    sizes: _Resized,
    now: float,
) -> ClaimOutcome:
    """`named_by`: where devices are looked up of which containers are told by name, None where a driver gives them."""
    suspended = facts.claim.spec.suspend
    wanted = frozenset() if suspended or is_released(facts) else members
    deleting = facts.meta.deleting is not None
    replicas: dict[int, Json] = {}
    for entry in entries(facts):
        index = int(entry.get("index") or 0)
        state = entry.get("state") or ReplicaState.READY.value
        if index in lost:
            state = ReplicaState.FAILED.value
        elif deleting or index not in wanted or index in evicted:
            state = ReplicaState.RELEASING.value
        elif index in sizes.entries:
            entry = sizes.entries[index]
            state = entry.get("state") or state
        replicas[index] = {**entry, "state": state}
    placements = plan.placements if plan is not None else ()
    replicas |= {placement.index: _placed(placement, now) for placement in placements}
    states = {index: str(replica["state"]) for index, replica in replicas.items() if index in wanted}
    phase = _phase(facts, len(wanted), states, changed=bool(placements) or sizes.anew)
    if suspended and not deleting:
        phase = Phase.RELEASING if replicas else Phase.PENDING
    waits = not deleting and (phase in (Phase.PENDING, Phase.FAILED) or len(states) < len(wanted))
    reasons = plan.reasons if plan is not None and waits else ()
    if suspended and waits:
        reasons = (Reason(Code.SUSPENDED, 0, "it is suspended: spec.suspend is true"),)
    if named_by is not None and phase is not Phase.RELEASING:
        unnamed = _undelivered(facts, replicas.values(), named_by)
        reasons = (*reasons, unnamed) if unnamed is not None else reasons
    stored = facts.status.get("allocation") or {}
    gap = plan.gap if plan is not None else stored.get("gap")
    found = [*_progress(phase, len(states), len(wanted), reasons), *unwell]
    if sizes.waits and phase in (Phase.READY, Phase.IN_USE):
        found.append(Condition(ClaimCondition.RECONCILING, True, "ResizePending", "; ".join(sizes.waits)))
    if lost:
        text = "; ".join(f"replica {index}: {why}" for index, why in sorted(lost.items()))
        found.append(Condition(ClaimCondition.CONFLICT, True, "HeldTwice", text))
    shown = {
        "namespace": facts.meta.namespace,
        "name": facts.meta.name,
        "phase": phase.value,
        "gap": None if waits else gap,
        "replicas": [_complete(facts, replicas[index]) for index in sorted(replicas)],
        "nominated": [_nominated(each) for each in nomination_entries(plan)] if waits else [],
        "conditions": conditions(found, facts.status, facts.meta.generation, now),
        "reasons": [
            {"code": reason.code.value, "nodes": reason.nodes, "message": reason.message} for reason in reasons
        ],
        "nearest": plan.nearest if plan is not None and waits else None,
    }
    return ClaimOutcome(shown, waits)


def _undelivered(facts: ClaimFacts, replicas: Iterable[Json], inventory: Inventory) -> Reason | None:
    """Why replicas that nobody has yet could not be handed to a pod, or None."""
    idle = [each for each in replicas if each["state"] in _RISING and each["state"] != ReplicaState.IN_USE]
    found = (
        inventory.device(replica.node, inventory.current(replica.node, placed))
        for replica in read_placed({"allocation": {"replicas": idle}})
        for placed in replica.devices
    )
    pool = inventory.pools.get(asked_pool(facts, inventory.default_pool))
    return identity_reason((device for device in found if device is not None), pool)


def _placed(placement: Placement, now: float) -> Json:
    return {
        "index": placement.index,
        "node": placement.node,
        "state": ReplicaState.ALLOCATED.value,
        "locality": dict(placement.locality),
        "devices": [device_entry(device) for device in placement.devices],
        "allocatedAt": rfc3339(now),
    }


def _nominated(entry: Json) -> Json:
    """What is held for a claim, with every field."""
    shown = dump(Nomination.model_validate(entry), empty=True)
    shown["devices"] = [_device(device) for device in shown["devices"]]
    return shown


def _complete(facts: ClaimFacts, replica: Json) -> Json:
    """The replica with every field that its status can have. Raises `UnreadableInput` where a status is none."""
    try:
        shown = dump(AllocatedReplica.model_validate(without_nulls(replica)), empty=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        where = f"DeviceClaim {facts.meta.key}: status.allocation.replicas: index {replica.get('index')}"
        raise UnreadableInput(f"{where}: {place}: {first['msg']}") from None
    # What a device was asked for is what people look for first.
    shown["devices"] = [_device(device) for device in shown["devices"]]
    return shown


_PARTS = (("profile", "start"), ("vf",), ("slots",), ("memory", "compute"))
"""What tells a part of a device, by mode; the first of which something is said."""


def _device(device: Json) -> Json:
    """A held device; of its share only what parts of that mode have."""
    share = device["share"]
    if share is not None:
        told = next((names for names in _PARTS if any(share[name] is not None for name in names)), ())
        share = {"name": share["name"], **{name: share[name] for name in told}}
    return {"request": device["request"], **device, "share": share}


def _phase(facts: ClaimFacts, wanted: int, states: Mapping[int, str], *, changed: bool) -> Phase:
    if facts.meta.deleting is not None:
        return Phase.RELEASING
    if ReplicaState.FAILED in states.values():
        return Phase.FAILED
    leaving = [state for state in states.values() if state == ReplicaState.RELEASING]
    if leaving and len(leaving) == len(states):
        return Phase.RELEASING
    if len(states) < wanted:
        return Phase.PENDING
    stored = facts.status.get("phase")
    if not changed and not leaving and stored in _KEPT:
        return Phase(stored)
    rising = [state for state in _RISING if state in states.values()]
    return Phase(rising[0]) if rising else Phase.READY


def _progress(phase: Phase, placed: int, wanted: int, reasons: Sequence[Any]) -> list[Condition]:
    """Allocated, Initialized, Ready and, where it is not there yet, what it is about to do."""
    text = f"{placed} of {wanted} replica{'' if wanted == 1 else 's'} placed"
    if phase in (Phase.PENDING, Phase.FAILED, Phase.RELEASING):
        why, words = (reasons[0].code.value, reasons[0].message) if reasons else (phase.value, text)
        held = (ClaimCondition.ALLOCATED, ClaimCondition.INITIALIZED, ClaimCondition.READY)
        return [
            *(Condition(each, False, why, words) for each in held),
            Condition(ClaimCondition.RECONCILING, True, why, words),
        ]
    ready = phase in (Phase.READY, Phase.IN_USE)
    found = [
        Condition(ClaimCondition.ALLOCATED, True, "Placed", text),
        Condition(ClaimCondition.INITIALIZED, ready, phase.value, text),
    ]
    if ready and reasons:
        why, words = reasons[0].code.value, reasons[0].message
        return [
            *found,
            Condition(ClaimCondition.READY, False, why, words),
            Condition(ClaimCondition.STALLED, True, why, words),
        ]
    found.append(Condition(ClaimCondition.READY, ready, phase.value, text))
    if not ready:
        found.append(Condition(ClaimCondition.RECONCILING, True, phase.value, text))
    return found


def _unwell(facts: ClaimFacts, inventory: Inventory) -> list[Condition]:
    """Conditions on devices that the claim holds and that are not well."""
    missing: list[str] = []
    unhealthy: list[str] = []
    for replica in read_placed(facts.status):
        for placed in replica.devices:
            device: Device | None = inventory.device(replica.node, inventory.current(replica.node, placed))
            if device is None or device.standing is Standing.MISSING:
                missing.append(f"replica {replica.index}: {placed.id}")
            elif device.standing in (Standing.UNHEALTHY, Standing.QUARANTINED):
                unhealthy.append(f"replica {replica.index}: {placed.id}: {device.standing_detail}")
    found = []
    if missing:
        found.append(Condition(ClaimCondition.DEVICE_MISSING, True, "NotPublished", "; ".join(missing)))
    if unhealthy:
        found.append(Condition(ClaimCondition.DEVICE_UNHEALTHY, True, "Tainted", "; ".join(unhealthy)))
    return found
