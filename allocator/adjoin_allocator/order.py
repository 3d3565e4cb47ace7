"""Who is served next.

In come the claims that wait, the time, and how much of its pool each tenant has; out come the claims one by one, in the
order of service: effective priority (higher first), then the smaller weighted dominant share of the tenant, then age,
then UID, then the order of the input. Effective priority is the claim's own, raised by waiting (`aging`) and by the
nearness of its deadline (`urgency`). It stands still during a decision, and so does the order within a tenant; among
tenants of one priority the share is asked for again whenever one of their claims has been served. A decision therefore
costs one sort and a step of a heap for each claim.

A claim without creation time is as young as can be. A missing UID compares equal to every other; so that the order
stays one order, UIDs decide nothing among claims of one priority and age as soon as one of these has none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import groupby

from adjoin_allocator.model import Aging, Claim, Pool

DAY = 24 * 60 * 60
"""Seconds before a deadline from which on it raises the priority."""

MICRO = 1_000_000
"""Times are compared in whole microseconds: whole numbers divide alike everywhere."""

Portion = tuple[int, Fraction]
"""What a tenant has of a pool, for comparing: whether its weight is nothing, then the weighted dominant share."""

NOTHING: Portion = (0, Fraction(0))


def micro(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * MICRO)


def aged(aging: Aging | None, waiting: float) -> int:
    """What waiting for so many seconds adds to the priority."""
    if aging is None:
        return 0
    steps = max(0, micro(waiting)) // max(1, micro(aging.every))
    return min(aging.max, aging.step * steps)


def urgency(deadline: float | None, now: float) -> int:
    """What a deadline adds to the priority: 0 to 100 over its last 24 hours, 100 when it is past."""
    if deadline is None:
        return 0
    gone = micro(DAY) - micro(deadline - now)
    return min(100, -(-100 * max(0, gone) // micro(DAY)))


def effective(claim: Claim, pool: Pool | None, now: float) -> int:
    """The priority that a claim is served by."""
    waiting = 0.0 if claim.created is None else now - claim.created
    return claim.priority + aged(None if pool is None else pool.aging, waiting) + urgency(claim.deadline, now)


def service(
    claims: Sequence[Claim], now: float, pools: Mapping[str, Pool], portion: Callable[[str, str], Portion]
) -> Iterator[Claim]:
    """`claims` in the order in which they are served; whoever asks for the next one has served the last.

    `portion` tells of a pool's name and a tenant's what it has when it is asked.
    """
    if len(claims) < 2:
        yield from claims
        return
    levels = {claim.uid: effective(claim, pools.get(claim.pool), now) for claim in claims}

    def turn(claim: Claim) -> tuple[int, float]:
        return -levels[claim.uid], now if claim.created is None else claim.created

    ordered: list[Claim] = []
    for _, group in groupby(sorted(claims, key=turn), key=turn):
        equals = list(group)
        if all(claim.has_uid for claim in equals):
            equals.sort(key=lambda claim: claim.uid)
        ordered += equals
    for _, level in groupby(ordered, key=lambda claim: levels[claim.uid]):
        yield from _by_tenant(list(level), portion)


def _by_tenant(level: Sequence[Claim], portion: Callable[[str, str], Portion]) -> Iterator[Claim]:
    """Claims of one effective priority."""
    queues: dict[tuple[str, str], deque[tuple[int, Claim]]] = {}
    for rank, claim in enumerate(level):
        queues.setdefault((claim.pool, claim.tenant), deque()).append((rank, claim))
    if len(queues) == 1:
        yield from level
        return
    heads = [(portion(*who), queue[0][0], who) for who, queue in queues.items()]
    heapify(heads)
    while heads:
        who = heappop(heads)[2]
        queue = queues[who]
        yield queue.popleft()[1]
        if queue:
            heappush(heads, (portion(*who), queue[0][0], who))
