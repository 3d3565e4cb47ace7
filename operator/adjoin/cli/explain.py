"""`explain`: one claim, in one answer.

In come objects of files or of a cluster and a name; out goes where the claim is, or why it waits, what would make it
fit, when its turn comes, what its tenant has, and who holds what it could have. It is made of the plan of the same
inventory, snapshot and allocator as everything else.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from adjoin.cli.exits import OK, PENDING
from adjoin.cli.explained import told
from adjoin.cli.outcome import claim_outcomes
from adjoin.cli.output import as_text
from adjoin.cli.progress import Tell, progress
from adjoin.cli.question import Question, pose
from adjoin.cli.source import NoAnswer, Source, Where, complain, moment, read_source, warn
from adjoin.facts import ClaimFacts, timestamp
from adjoin.lifecycle import entries, rfc3339
from adjoin_allocator import Memo, plan
from adjoin_allocator.inquiry import (
    Holder,
    Obstruction,
    Turn,
    fabric_level,
    in_the_way,
    quota,
    settled,
    tenant_of,
    turn,
)
from adjoin_allocator.model import Claim, ClaimUID
from adjoin_allocator.results import Plan
from adjoin_allocator.sharers import shared_devices

Json = dict[str, Any]

NEAR_NAMES = 3
"""How many names are offered for one that is not known."""
AHEAD = 5
"""How many of the claims that are served before are named."""


def explain_command(where: Where, name: str, namespace: str, now: str | None, output: str) -> int:
    """The command. Returns its exit status: 0 for a claim that is placed, 3 for one that waits."""
    gc.disable()
    try:
        with progress() as tell:
            at = moment(now)
            source = read_source(where, tell)
            uid = find_claim(source, name, namespace)
            shown = explain(pose(source.given, at, live=source.live), uid, tell)
    except NoAnswer as error:
        return complain(error)
    finally:
        gc.enable()
    warn(source.given.warnings)
    sys.stdout.write(told(shown) if output == "table" else as_text(shown, output))
    return PENDING if shown["waits"] else OK


def find_claim(source: Source, name: str, namespace: str) -> str:
    """The key of a claim among the facts. Raises `NoAnswer` with names that are near to one that is not known.

    A name without a namespace is looked for where kubectl would; in files, wherever the only claim of that name is.
    """
    claims = {facts.meta.key: uid for uid, facts in source.given.view.claims.items()}
    if "/" in name:
        key = name
    else:
        key = f"{namespace or source.namespace}/{name}"
        named = [each for each in claims if each.partition("/")[2] == name]
        if key not in claims and not namespace and not source.live and len(named) == 1:
            key = named[0]
    if key in claims:
        return claims[key]
    # The name counts more than the namespace, which is easily forgotten.
    names = list(dict.fromkeys(each.partition("/")[2] for each in claims))
    close = get_close_matches(key.partition("/")[2], names, NEAR_NAMES)
    near = [each for name in close for each in claims if each.partition("/")[2] == name][:NEAR_NAMES]
    if len(claims) <= NEAR_NAMES:
        near = near or list(claims)
    hint = f"; there is {' and '.join(near)}" if near else f"; there are {len(claims)} others" if claims else ""
    raise NoAnswer(f"there is no DeviceClaim {key}{hint}")


def explain(question: Question, uid: str, tell: Tell) -> Json:
    """The answer as one object, every field present."""
    tell("planning", len(question.asked.claims))
    memo = Memo()
    made = plan(question.asked, question.now, memo)
    view = question.given.view
    outcomes = claim_outcomes(view, question.inventory, question.stands, made, question.now)
    position = list(view.claims).index(uid)
    outcome = outcomes[position]
    claim = next(each for each in question.asked.claims if each.uid == uid)
    answer = made.claims.get(ClaimUID(uid))
    names = {each.uid: f"{each.namespace}/{each.name}" for each in question.asked.claims}
    pool = question.asked.pools.get(claim.pool)
    blocked = outcome.waits and claim.hold is None and not claim.deleting
    tell("looking who is in the way")
    obstruction = in_the_way(question.asked, made, claim, question.now, memo) if blocked else Obstruction((), 0, ())
    shown = outcome.shown
    return {
        "namespace": shown["namespace"],
        "name": shown["name"],
        "pool": claim.pool,
        "tenant": tenant_of(pool, claim) or None if pool is not None else None,
        "phase": shown["phase"],
        "waits": outcome.waits,
        "wanted": claim.size,
        "gang": claim.gang_min,
        "replicas": shown["replicas"],
        "new": [each.index for each in answer.placements] if answer is not None else [],
        "gap": shown["gap"],
        "fabricLevel": _fabric(question, made, uid),
        "conditions": shown["conditions"],
        "reasons": shown["reasons"],
        "nearest": shown["nearest"],
        "nominated": shown["nominated"],
        "victims": _victims(made, claim, names),
        "order": _order(turn(question.asked, claim, question.now, memo), names),
        "quota": [
            {
                "device": line.device,
                "used": line.used_milli / 1000,
                "asked": line.asked_milli / 1000,
                "capacity": line.capacity,
                "quota": line.quota,
                "borrowing": line.borrowing,
            }
            for line in quota(question.asked, claim, question.now, memo)
        ],
        "nodes": [
            {
                "node": node.node,
                "closed": node.closed or None,
                "requests": {
                    request: {"free": free, "eligible": node.eligible[request]} for request, free in node.free.items()
                },
            }
            for node in obstruction.nodes
        ],
        "candidates": obstruction.candidates,
        "holders": [_holder(each, view.claims) for each in obstruction.holders],
        "neighbours": _neighbours(question, made, ClaimUID(uid), memo),
    }


def _neighbours(question: Question, made: Plan, uid: ClaimUID, memo: Memo) -> list[Json]:
    """Of each device of which the claim has a part who else has one, once this decision is made."""
    after = settled(question.asked, made)
    claim = next(each for each in after.claims if each.uid == uid)
    if claim.pool not in after.pools or all(part.share is None for each in claim.placed for part in each.devices):
        return []
    memo.ledger.enter(after, question.now)
    index = memo.ledger.pools[claim.pool].index
    shown = []
    for replica in claim.placed:
        position = index.position.get(replica.node)
        shared = {} if position is None else shared_devices(memo.ledger, claim.pool, position)
        for id_ in dict.fromkeys(device.id for device in replica.devices if device.share is not None):
            here = shared.get(id_)
            if here is None:
                continue
            others = [each for each in here.sharers if (each.claim.uid, each.index) != (uid, replica.index)]
            shown.append(
                {
                    "replica": replica.index,
                    "node": replica.node,
                    "device": {"driver": id_.driver, "pool": id_.pool, "device": id_.device},
                    "left": here.left or None,
                    "profiles": {
                        profile.value: count for profile, count in here.neighbours(uid, replica.index).items()
                    },
                    "claims": list(dict.fromkeys(f"{each.claim.namespace}/{each.claim.name}" for each in others)),
                }
            )
    return shown


def _fabric(question: Question, made: Plan, uid: str) -> str | None:
    after = settled(question.asked, made)
    return fabric_level(after, next(each for each in after.claims if each.uid == uid))


def _victims(made: Plan, claim: Claim, names: Mapping[ClaimUID, str]) -> list[Json]:
    """Who is evicted for this claim, and by whom it is evicted itself."""
    return [
        {"claim": names[each.uid], "replicas": list(each.replicas), "by": names.get(each.by, str(each.by))}
        for each in made.preempted
        if claim.uid in (each.by, each.uid)
    ]


def _order(when: Turn, names: Mapping[ClaimUID, str]) -> Json:
    return {
        "priority": when.priority,
        "aging": when.aging,
        "urgency": when.urgency,
        "effective": when.effective,
        "dominantShare": None if when.dominant_share is None else round(float(when.dominant_share), 6),
        "position": when.position,
        "waiting": when.waiting,
        "ahead": [names[uid] for uid in when.ahead[:AHEAD]],
    }


def _holder(holder: Holder, claims: Mapping[str, ClaimFacts]) -> Json:
    since = holder.since if holder.since is not None else _since(holder, claims)
    return {
        "holder": holder.name,
        "kind": "DeviceClaim" if holder.uid is not None else holder.name.partition(" ")[0],
        "tenant": holder.tenant or None,
        "priority": holder.priority,
        "since": rfc3339(since) if since is not None else None,
        "releasing": holder.releasing,
        "preemptible": holder.preemptible,
        "evictable": holder.evictable,
        "why": holder.why,
        "enough": holder.enough,
        "replicas": list(holder.replicas),
        "nodes": list(holder.nodes),
        "devices": [{"driver": each.driver, "pool": each.pool, "device": each.device} for each in holder.devices],
    }


def _since(holder: Holder, claims: Mapping[str, ClaimFacts]) -> float | None:
    """When its status says that it got the first of these replicas."""
    facts = claims.get(holder.uid or "")
    times = [
        timestamp(entry.get("allocatedAt"))
        for entry in (entries(facts) if facts is not None else ())
        if (entry.get("index") or 0) in holder.replicas
    ]
    return min((each for each in times if each is not None), default=None)
