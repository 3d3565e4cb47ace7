"""`plan`: what Adjoin would do with objects from files.

In come paths and options, out go the plan on the standard output, warnings on the standard error, and an exit status.
It decides with the same inventory, snapshot and allocator as the running operator; the time is an argument or comes out
of the input, so that equal input gives equal bytes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adjoin.api.names import DRIVER
from adjoin.api.pool_policy import DeliveryMode
from adjoin.api.pool_status import PoolCondition
from adjoin.cli.documents import UnreadableInput, read_documents
from adjoin.cli.exits import BAD_INPUT, OK, PENDING
from adjoin.cli.objects import BadInput, Input, read_input
from adjoin.cli.outcome import ClaimOutcome, claim_outcomes, pool_outcomes, preempted_outcomes, share_outcomes
from adjoin.cli.output import render
from adjoin.cli.question import pose
from adjoin.cli.workloads import check_workloads, undelivered_pods
from adjoin.delivery.identities import identity_of
from adjoin.facts import ClaimFacts, PoolFacts, timestamp
from adjoin.inventory import Inventory, asked_pool
from adjoin_allocator import Memo
from adjoin_allocator import plan as decide
from adjoin_allocator.model import Claim, ClaimHold, ClaimUID, DeviceID, PlacedReplica
from adjoin_allocator.results import ClaimPlan, Code, Placement, Plan
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import ReplicaState


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan of everything in an input.

    Attributes:
        shown: The object that is printed as JSON.
        waiting: Some claim is Pending, Failed or lacks replicas.
        notes: Sentences for the standard error.
        pod_problems: Pods that would wait for ever, in words.
    """

    shown: dict[str, Any]
    waiting: bool
    notes: tuple[str, ...]
    pod_problems: tuple[str, ...]


def plan_command(sources: Sequence[str], output: str, now: str | None, one_by_one: bool, namespace: str) -> int:
    """The command. Returns its exit status."""
    # A large input is millions of small values that all live to the end: looking through them for garbage again and
    # again takes longer than everything else.
    gc.disable()
    try:
        return _plan(sources, output, now, one_by_one, namespace)
    finally:
        gc.enable()


def _plan(sources: Sequence[str], output: str, now: str | None, one_by_one: bool, namespace: str) -> int:
    try:
        moment = _moment(now)
        given = read_input(read_documents(sources, sys.stdin), namespace)
        planned = make_plan(given, moment, one_by_one=one_by_one)
    except (UnreadableInput, BadInput) as error:
        print(f"error: {error}".replace("\n", "\nerror: "), file=sys.stderr)
        return BAD_INPUT
    for note in planned.notes:
        print(f"warning: {note}", file=sys.stderr)
    for problem in planned.pod_problems:
        print(f"waits: {problem}", file=sys.stderr)
    sys.stdout.write(render(planned.shown, output))
    return PENDING if planned.waiting or planned.pod_problems else OK


def _moment(text: str | None) -> float | None:
    try:
        if text is not None and "T" not in text.upper():
            raise ValueError(text)
        return timestamp(text)
    except ValueError:
        raise UnreadableInput(f"--now {text}: expected a time such as 2026-12-01T08:00:00Z") from None


def make_plan(given: Input, now: float | None = None, *, one_by_one: bool = False) -> Planned:
    """Plans what was read. `now` is the newest time in it unless given, and the epoch when it has none."""
    question = pose(given, now)
    view, inventory, moment = given.view, question.inventory, question.now
    plan = _one_by_one(question.asked, moment) if one_by_one else decide(question.asked, moment)
    claims = claim_outcomes(view, inventory, question.stands, plan, moment)
    pools = pool_outcomes(view.pools, inventory, plan, moment)
    shares = share_outcomes(view.shares, question.stands, plan, moment)
    return Planned(
        shown={
            "claims": [claim.shown for claim in claims],
            "preempted": preempted_outcomes(view.claims, plan),
            "shares": shares,
            "pools": pools,
        },
        waiting=any(claim.waits for claim in claims) or not all(share["accepted"] for share in shares),
        notes=(
            *given.warnings,
            *_notes(inventory, pools),
            *undelivered_pods(
                given.workloads,
                _undelivered(claims, view.claims.values(), _modes(view.pools.values()), inventory),
            ),
        ),
        pod_problems=tuple(check_workloads(given.workloads, (facts.claim for facts in view.claims.values()))),
    )


def _modes(pools: Iterable[PoolFacts]) -> dict[str, DeliveryMode]:
    return {pool.meta.name: pool.pool.spec.delivery.mode for pool in pools}


def _undelivered(
    claims: Iterable[ClaimOutcome], facts: Iterable[ClaimFacts], modes: Mapping[str, DeliveryMode], inventory: Inventory
) -> dict[tuple[str, str], str]:
    """By namespace and name, why a device of the claim could not be given to a container in the way of its pool."""
    pools = {(each.meta.namespace, each.meta.name): asked_pool(each, inventory.default_pool) for each in facts}
    found: dict[tuple[str, str], str] = {}
    for claim in claims:
        named = (claim.shown["namespace"], claim.shown["name"])
        pool = pools.get(named, "")
        for replica in claim.shown["replicas"]:
            for each in replica["devices"]:
                text = f"device {each['device']} of DeviceClaim {named[0]}/{named[1]} has"
                if modes.get(pool) is DeliveryMode.ENVIRONMENT:
                    device = inventory.device(replica["node"], DeviceID(each["driver"], each["pool"], each["device"]))
                    if device is not None and not identity_of(device, inventory.pools.get(pool)):
                        found.setdefault(
                            named, f"{text} neither uuid nor PCI address, so no container can be told which one it is"
                        )
                elif each["driver"] == DRIVER:
                    why = "what a pool lists itself or counts needs delivery.mode Environment"
                    found.setdefault(named, f"{text} no driver that could give it to a container: {why}")
    return found


def _notes(inventory: Inventory, pools: Sequence[dict[str, Any]]) -> list[str]:
    notes = []
    if len(inventory.defaults) > 1:
        others = ", ".join(inventory.defaults[1:])
        notes.append(
            f"DevicePool {inventory.default_pool} is the default, being the oldest; {others} are annotated too"
        )
    for pool in pools:
        notes += [
            f"DevicePool {pool['name']}: {condition['type']}: {condition['message']}"
            for condition in pool["conditions"]
            if condition["type"] != PoolCondition.READY or condition["status"] != "True"
        ]
    return notes


def _one_by_one(snapshot: Snapshot, now: float) -> Plan:
    """Each claim as if it arrived alone, in the order of the input: it sees what those before it hold, and of those
    after it only what they hold already."""
    memo = Memo()
    claims = list(snapshot.claims)
    found: dict[ClaimUID, ClaimPlan] = {}
    plan = decide(replace(snapshot, claims=tuple(map(_not_its_turn, claims))), now, memo)
    for position, claim in enumerate(claims):
        arrived = [
            *map(_not_its_turn, claims[:position]),
            claim,
            *(_not_its_turn(later) for later in claims[position + 1 :] if later.placed),
        ]
        plan = decide(replace(snapshot, claims=tuple(arrived)), now, memo)
        answer = plan.claims.get(claim.uid)
        if answer is not None:
            found[claim.uid] = answer
            claims[position] = _with(claim, answer.placements)
    return replace(plan, claims=found)


def _not_its_turn(claim: Claim) -> Claim:
    """The claim as one that keeps what it has and is not planned."""
    return replace(claim, hold=claim.hold or ClaimHold(Code.POD_GATED, "it is not its turn"))


def _with(claim: Claim, placements: Sequence[Placement]) -> Claim:
    fresh = {placement.index for placement in placements}
    kept = [replica for replica in claim.placed if replica.index not in fresh]
    placed = [PlacedReplica(each.index, each.node, ReplicaState.ALLOCATED, each.devices) for each in placements]
    return replace(claim, placed=tuple(sorted((*kept, *placed), key=lambda replica: replica.index)))
