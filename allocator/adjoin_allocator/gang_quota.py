"""As much of a gang as a quota allows.

In come a gang and whether a cost is affordable; out come smaller gangs to try, the most members first, then the better
ways of serving them (`firstOf`). Nothing is placed here, and whether there is a place is not looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace

from adjoin_allocator.members import Gang
from adjoin_allocator.tenancy import Cost, least_cost


def affordable_parts(gang: Gang, affordable: Callable[[Cost], bool]) -> Iterator[Gang]:
    """The gang with as many members as are affordable in each way of serving them, leaving out the ways before it; with
    `least` members at the least. What a member costs is known but for `all`, of which one device is assumed.
    """
    found: list[tuple[int, int]] = []
    for at in range(len(gang.asks)):
        costs = [least_cost(ask.requests, ask.portions) for ask in gang.asks[at:]]
        kinds = {kind for cost in costs for kind in cost}
        dearest = {kind: max(cost.get(kind, 0) for cost in costs) for kind in kinds}

        def too_many(members: int, dearest: Cost = dearest) -> bool:
            return not affordable({kind: milli * members for kind, milli in dearest.items()})

        most = bisect_left(range(1, len(gang.missing) + 1), True, key=too_many)
        if most >= gang.least:
            found.append((-most, at))
    for fewer, at in sorted(found):
        yield replace(gang, asks=gang.asks[at:], missing=gang.missing[:-fewer])
