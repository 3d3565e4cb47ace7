"""Gangs that are incomplete: whose pods wait, and when the whole gang begins anew.

In come a claim's replicas and what is wrong with their places; out go why no further pod may start, and the replicas
that give their devices back so that the gang is planned as a whole. A gang of fewer members than it needs can do
nothing: pods let go in it would fail for want of the others, again and again, and devices that nobody uses would wait
for a member that may never find room beside them. Who runs is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from adjoin.api.defaults import replicas_of
from adjoin.decision.lost import in_use
from adjoin.facts import ClaimFacts, moment
from adjoin.inventory import Inventory
from adjoin.lifecycle import Indexes, Member, Relations, entries, uses_of
from adjoin_allocator.amounts import counted
from adjoin_allocator.results import ClaimPlan

PATIENCE_SECONDS: Final = 600.0
"""So long an incomplete gang that nobody uses keeps what it has. As long as a preemptor waits for a victim."""


def fewest(claim: ClaimFacts) -> int:
    """The fewest members with which the claim's gang can do anything; 0 for a claim without gang."""
    spec = claim.claim.spec
    if spec.gang is None:
        return 0
    return spec.gang.min_replicas or replicas_of(spec)


def incomplete(claim: ClaimFacts, members: Sequence[Member], blocked: Mapping[int, str], wanted: Indexes) -> str:
    """Why no further pod of the gang may start, or "". `blocked` says of replicas why no pod may start on them."""
    need = fewest(claim)
    if not need:
        return ""
    there = sum(
        member.index in wanted and member.kept and (not blocked.get(member.index) or in_use(member.uses))
        for member in members
    )
    if there >= need:
        return ""
    short = f"{there} of at least {counted(need, 'member')} {'has' if need == 1 else 'have'}"
    return f"its gang is incomplete: {short} a place where their pods can start"


def lacking_since(claim: ClaimFacts) -> float | None:
    """Since when replicas have had no place, as the status says."""
    found = (each for each in claim.status.get("conditions") or () if each.get("type") == "Allocated")
    return next((moment(each.get("lastTransitionTime")) for each in found if each.get("status") == "False"), None)


def disbanded(
    claim: ClaimFacts,
    plan: ClaimPlan | None,
    wanted: Indexes,
    relations: Relations,
    inventory: Inventory,
    now: float,
) -> tuple[frozenset[int], float | None]:
    """The replicas of a gang that begins anew as a whole, and when that may be, else.

    It has had fewer members than it needs, and nobody has used any of them, for `PATIENCE_SECONDS`, and there is no
    room for the rest beside them. Since when both are so its status says.
    """
    placed = [entry for entry in entries(claim) if int(entry.get("index") or 0) in wanted]
    if not placed or len(placed) >= fewest(claim) or (plan is not None and plan.placements):
        return frozenset(), None
    if in_use(uses_of(claim, relations, inventory)):
        return frozenset(), None
    moments = [lacking_since(claim)]
    moments += [moment(entry.get("idleSince") or entry.get("allocatedAt")) for entry in placed]
    known = [each for each in moments if each is not None]
    if len(known) != len(placed) + 1:
        return frozenset(), None
    due = max(known) + PATIENCE_SECONDS
    if now < due:
        return frozenset(), due
    return frozenset(int(entry.get("index") or 0) for entry in placed), None
