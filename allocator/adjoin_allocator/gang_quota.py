"""As much of a gang as a quota allows.

In come a gang and whether a cost is affordable; out come smaller gangs to try, the most members first, then the better
ways of serving them (`firstOf`), the first members before the others. Nothing is placed here, and whether there is a
place is not looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

from adjoin_allocator.members import Gang
from adjoin_allocator.tenancy import Cost, added, least_cost


def affordable_parts(gang: Gang, affordable: Callable[[Cost], bool]) -> Iterator[tuple[Gang, ...]]:
    """The gang with as many members as are affordable in each way of serving them, leaving out the ways before it; with
    `least` members at the least. Where the most of them are only affordable without the best ways for all, the first
    members have these as far as that goes, and come as gangs of their own, to be placed one after the other. What a
    member costs is known but for `all`, of which one device is assumed.
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
    found.sort()
    if found and found[0][1]:
        yield _mixed(gang, -found[0][0], found[0][1], affordable)
    for fewer, at in found:
        yield (replace(gang, asks=gang.asks[at:], missing=gang.missing[:-fewer]),)


def _mixed(gang: Gang, members: int, last: int, affordable: Callable[[Cost], bool]) -> tuple[Gang, ...]:
    """So many members, each in the best way that is affordable beside those before it while those after it are served
    in the way `last`, which all of them can afford.
    """
    costs = [least_cost(ask.requests) for ask in gang.asks]
    spent: Cost = {}
    chosen: list[int] = []
    for place in range(members):
        rest = {kind: milli * (members - place - 1) for kind, milli in costs[last].items()}
        way = next((at for at in range(last) if affordable(added(spent, costs[at], rest))), last)
        chosen.append(way)
        spent = added(spent, costs[way])
    # That there may be fewer of them in all has been looked at.
    loose = replace(gang.claim, gang_min=None)
    parts: list[Gang] = []
    for way, places in groupby(range(members), key=chosen.__getitem__):
        missing = [gang.missing[place] for place in places]
        parts.append(replace(gang, claim=loose, asks=(gang.asks[way],), missing=tuple(missing)))
    return tuple(parts)
