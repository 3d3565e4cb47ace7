"""Who is served next.

In come claims and the time, out comes the order of service: effective priority (higher first), then age, then UID, then
the order of the input. With one tenant the dominant share is everybody's, so it decides nothing.

A claim without creation time is as young as can be. A missing UID compares equal to every other; so that the order
stays one order, UIDs decide nothing among claims of one priority and age as soon as one of these has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from adjoin_allocator.model import Claim


def service_order(claims: Sequence[Claim], now: float) -> list[Claim]:
    """`claims` in the order in which they are served."""

    def urgency(claim: Claim) -> tuple[int, float]:
        return -claim.priority, now if claim.created is None else claim.created

    ordered: list[Claim] = []
    for _, group in groupby(sorted(claims, key=urgency), key=urgency):
        equals = list(group)
        if all(claim.has_uid for claim in equals):
            equals.sort(key=lambda claim: claim.uid)
        ordered += equals
    return ordered
