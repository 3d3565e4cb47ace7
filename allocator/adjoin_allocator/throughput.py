"""Objective Throughput: as many devices as can be, among claims of one effective priority.

In come a lot as the walk left it and the replicas that wait, out come other places, also for replicas that waited at
the cost of some that did not. Higher priorities count before lower ones, then the number of devices, and among sets of
as many devices the one that serves who comes first, as without this objective.

Quotas hold as they did: in a pool with tenants no tenant gets more of a device name than the walk gave it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from adjoin_allocator.joint import MERGED, Program, Total
from adjoin_allocator.lot import Lot, kinds, same
from adjoin_allocator.place import Ask
from adjoin_allocator.region import Find, Region, apply, build, counted

TARGETS = 16
"""Nodes where a kind of waiting replicas would fit that are sure to be looked at."""


def fill(lot: Lot, find: Find) -> None:
    """Places other replicas if these have more devices together."""
    asks = {same(unit.ask): unit.ask for unit in lot.waiting}
    targets = {key: lot.targets(ask) for key, ask in asks.items()}
    hopeful = [unit for unit in lot.waiting if targets.get(same(unit.ask))]
    lot.unsure = 0
    greedy = [unit.level for unit in (*hopeful, *lot.varying)]
    if not greedy or not (lot.spare or any(unit.level < max(greedy) for unit in lot.units)):
        return
    if lot.budget.spent:
        lot.unsure = sum(_devices(unit.ask) for unit in hopeful) + lot.spare * bool(lot.varying)
        return
    focus = dict.fromkeys(position for each in targets.values() for position in each[:TARGETS])
    region = build(lot, kinds([*lot.units, *hopeful], split=True), list(focus), find)
    program, chosen, rules = Program(region.columns), tuple(region.hint), [*_quotas(lot, region), *counted(lot, region)]
    bounds = [(0, len(own) + len(more)) for own, more in zip(region.units, region.waiting, strict=True)]
    missed: dict[int, int] = {}
    for level, terms in _by_level(region).items():
        worth = dict(terms)
        value, most = _sum(worth, chosen), MERGED
        if not lot.budget.spent:
            totals = [*program.counts(bounds), *rules]
            fewest = [(at, -each) for at, each in terms]
            answer = program.solve(totals, fewest, chosen, lot.budget, lot.budget.work)
            if _sum(worth, answer.chosen) > value:
                chosen, value = answer.chosen, _sum(worth, answer.chosen)
            most = -answer.bound if region.complete else MERGED
        missed[level] = most - value
        rules.append((terms, value, MERGED))
    apply(lot, region, _in_order(lot, program, region, bounds, rules, chosen))
    for level, most in missed.items():
        left = sum(_devices(unit.ask) for unit in hopeful if unit.level == level and unit.spot is None)
        lot.unsure += min(most, left + lot.spare * bool(lot.varying))


def settled(region: Region) -> list[Total]:
    """As many devices of each priority as there are now."""
    hint = set(region.hint)
    return [(terms, sum(number for at, number in terms if at in hint), MERGED) for terms in _by_level(region).values()]


def _in_order(
    lot: Lot,
    program: Program,
    region: Region,
    bounds: Sequence[tuple[int, int]],
    rules: Sequence[Total],
    chosen: tuple[int, ...],
) -> tuple[int, ...]:
    """Among choices that are worth the same the one that serves who comes first: for one after the other it is asked
    whether it can be, beside those before it.
    """
    limits = list(bounds)
    counts = Counter(region.columns[at].kind for at in chosen)
    required: Counter[int] = Counter()
    shut: set[int] = set()
    queue = sorted(
        (unit.rank, number)
        for number, (units, waiting) in enumerate(zip(region.units, region.waiting, strict=True))
        for unit in (*units, *waiting)
    )
    for _, number in queue:
        if number in shut:
            continue
        if counts[number] <= required[number]:
            more = list(limits)
            more[number] = (required[number] + 1, limits[number][1])
            found: tuple[int, ...] = ()
            if not lot.budget.spent:
                totals = [*program.counts(more), *rules]
                found = program.solve(totals, (), chosen, lot.budget, lot.budget.work / 2).chosen
            if not found:
                shut.add(number)
                continue
            chosen = found
            counts = Counter(region.columns[at].kind for at in chosen)
        required[number] += 1
        limits[number] = (required[number], limits[number][1])
    return chosen


def _quotas(lot: Lot, region: Region) -> list[Total]:
    """In a pool with tenants: of each device name no tenant more than it has on these nodes."""
    if not lot.pool.tenants:
        return []
    views = lot.nodes.index.views
    sums: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for at, column in enumerate(region.columns):
        tenant = region.kinds[column.kind].tenant
        for name, mask in views[region.positions[column.node]].shape.kinds.items():
            if mask & column.taken:
                sums.setdefault((tenant, name), []).append((at, (mask & column.taken).bit_count()))
    hint = set(region.hint)
    return [(terms, 0, sum(number for at, number in terms if at in hint)) for terms in sums.values()]


def _by_level(region: Region) -> dict[int, list[tuple[int, int]]]:
    """By priority, the highest first, how many devices each column of it has."""
    levels: dict[int, list[tuple[int, int]]] = {
        level: [] for level in sorted({kind.level for kind in region.kinds}, reverse=True)
    }
    for at, column in enumerate(region.columns):
        levels[region.kinds[column.kind].level].append((at, column.taken.bit_count()))
    return levels


def _sum(worth: Mapping[int, int], chosen: Sequence[int]) -> int:
    return sum(worth.get(at, 0) for at in chosen)


def _devices(ask: Ask) -> int:
    """How many devices a replica takes, at least."""
    return sum(max(1, count) for count in ask.signature.counts)
