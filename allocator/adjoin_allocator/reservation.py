"""When and where a claim that has no place gets one without anybody being sent away: the earliest set that frees up.

In come a ledger in which everything on its way back counts as free, and the pool's holders; out come devices and the
time at which all of them are free at the latest. The ledger is left as it was.

First the holders whose end is known are let go in the order of their ends (`maxRuntime` after the replica was ready,
else after it was given its devices); the earliest end with which the claim fits is the time, so that what is reserved
never waits longer than it must. If it does not fit even then, nobody knows the time, and what is free now and comes
next is kept together: nodes are let go one after the other, those first on which the fewest devices are still with
somebody.
Steps double and are then halved, so that the work follows the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from adjoin_allocator.holders import Holders, Holding
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.preemption import Attempt
from adjoin_allocator.results import Placement


@dataclass(frozen=True, slots=True)
class Prospect:
    """Where a claim will be, and when at the latest; infinity when nobody knows."""

    placements: tuple[Placement, ...]
    at: float


def ends(holding: Holding, now: float) -> float:
    """When a replica gives its devices back at the latest; one that is overdue does so now."""
    if holding.claim.max_runtime is None:
        return inf
    replica = holding.replica
    since = replica.ready_at if replica.ready_at is not None else replica.allocated_at
    return max(now, (now if since is None else since) + holding.claim.max_runtime)


def prospect(
    ledger: Ledger, pool: str, holders: Holders, bound: Mapping[int, int], now: float, attempt: Attempt
) -> Prospect | None:
    """The earliest set for a claim; None when it would not fit even if everybody had gone. `bound` is by position what
    is held for others, whoever has it.
    """
    mark = ledger.checkpoint()
    try:
        found = attempt()
        if found is not None:
            return Prospect(tuple(found), now)
        staying = [holding for here in holders.nodes.values() for holding in here if not holding.back]
        known = sorted(
            (holding for holding in staying if holding.claim.max_runtime is not None),
            key=lambda holding: (ends(holding, now), holding.position, holding.mask),
        )
        # Holders that end at one time go together.
        steps = _grouped(known, lambda holding: ends(holding, now))
        taken = _earliest(ledger, pool, steps, bound, attempt)
        if taken is not None:
            number, placements = taken
            return Prospect(placements, ends(steps[number - 1][0], now))
        busy: dict[int, int] = {}
        for holding in staying:
            if holding.claim.max_runtime is None:
                busy[holding.position] = busy.get(holding.position, 0) + holding.mask.bit_count()
        nodes = sorted(busy, key=lambda position: (busy[position], position))
        unknown = [
            [holding for holding in holders.nodes[position] if not holding.back and holding.claim.max_runtime is None]
            for position in nodes
        ]
        _vacate(ledger, pool, (holding for step in steps for holding in step), bound)
        taken = _earliest(ledger, pool, unknown, bound, attempt)
        return None if taken is None else Prospect(taken[1], inf)
    finally:
        ledger.roll_back(mark)


def _earliest(
    ledger: Ledger, pool: str, steps: Sequence[Sequence[Holding]], bound: Mapping[int, int], attempt: Attempt
) -> tuple[int, tuple[Placement, ...]] | None:
    """How many steps are needed at least, and the place then. The ledger is left as it was."""

    def after(number: int) -> tuple[Placement, ...] | None:
        mark = ledger.checkpoint()
        _vacate(ledger, pool, (holding for step in steps[:number] for holding in step), bound)
        found = attempt()
        ledger.roll_back(mark)
        return None if found is None else tuple(found)

    low, high = 0, 1
    best = None
    while low < len(steps):
        high = min(high, len(steps))
        best = after(high)
        if best is not None:
            break
        low, high = high, high * 2
    if best is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        found = after(middle)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    return high, best


def _vacate(ledger: Ledger, pool: str, holdings: Iterable[Holding], bound: Mapping[int, int]) -> None:
    for holding in holdings:
        kept = bound.get(holding.position, 0)
        ledger.vacate(pool, holding.position, holding.mask & ~kept)
        for bit, share in holding.parts:
            if not kept >> bit & 1:
                ledger.vacate_part(pool, holding.position, bit, share, back=False)


def _grouped(holdings: Sequence[Holding], key: Callable[[Holding], float]) -> list[list[Holding]]:
    groups: list[list[Holding]] = []
    for holding in holdings:
        if groups and key(groups[-1][0]) == key(holding):
            groups[-1].append(holding)
        else:
            groups.append([holding])
    return groups
