"""A lot, or the part of it that matters, as a program for the solver.

In come a `Lot`, the kinds of units in question and the nodes that matter most, out comes a `Region`: candidate patterns
of every kind on every node looked at, as columns, with the places there are now among them. A small lot is taken whole,
and then what the program cannot do cannot be done at all; of a large one a bounded part is, so that the model stays
small: building it is part of the work of a decision.

Nodes on which nothing movable is are all one when they are equal for every kind, so of each sort only as many are
looked at as there are units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from adjoin_allocator.cost import ISLAND_SCOPES
from adjoin_allocator.joint import Column, Penalty, Total
from adjoin_allocator.lot import Kind, Lot, Unit
from adjoin_allocator.patterns import Pattern, pattern
from adjoin_allocator.place import Spot

NODES = 96
"""Nodes that the solver looks at together."""

COLUMNS = 4_000
"""Candidate patterns that the solver chooses from: what it gets through with the usual budget."""

PATTERNS = 256
"""Candidate patterns of one kind on one node."""

LEAST = 4
"""Candidate patterns of one kind on one node, however many kinds and nodes there are."""

GROUPS = 200
"""With more different nodes than this a lot is not small."""

WEIGHED = 500
"""With more candidate patterns than this what is left behind is not weighed."""

Find = Callable[[Unit], Spot | None]
"""The best place for one unit as the walk would choose it now, or None; takes nothing."""


@dataclass(slots=True, eq=False)
class Region:
    """Nodes and units that are looked at together.

    Attributes:
        units: By kind those that have a place on these nodes.
        waiting: By kind those that have none.
        columns: Candidate patterns; `patterns` has the devices of each.
        positions: By node of a column where it is, those first that matter most.
        hint: The columns that stand for the places there are.
        complete: Nothing is left out.
    """

    kinds: list[Kind]
    units: list[list[Unit]]
    waiting: list[list[Unit]]
    positions: list[int]
    columns: list[Column]
    patterns: list[Pattern]
    hint: list[int]
    complete: bool


def build(lot: Lot, kinds: Sequence[Kind], focus: Sequence[int], find: Find) -> Region:
    """The whole lot if it is small, else those nodes of it that matter most, in the order of `focus`."""
    groups = _untouched(lot, kinds)
    positions = _whole(lot, kinds, groups)
    complete = positions is not None
    if positions is None:
        positions = _part(lot, kinds, groups, focus, find)
    here = set(positions)
    region = Region([], [], [], positions, [], [], [], complete)
    for kind in kinds:
        units = [unit for unit in kind.units if unit.spot is not None and unit.place.position in here]
        waiting = [unit for unit in kind.units if unit.spot is None]
        if units or waiting:
            region.kinds.append(kind)
            region.units.append(units)
            region.waiting.append(waiting)
    _columns(lot, region)
    return region


def penalties(lot: Lot, region: Region) -> list[Penalty]:
    """What it costs to break up what would be wholly free: the devices of it, by level. Not in large regions."""
    if len(region.columns) > WEIGHED:
        return []
    by_node: dict[int, list[int]] = {}
    for at, column in enumerate(region.columns):
        by_node.setdefault(column.node, []).append(at)
    found = []
    for node, columns in by_node.items():
        position = region.positions[node]
        free, wiring = lot.free(position), lot.nodes.index.views[position].shape.wiring
        for level, scope in enumerate(ISLAND_SCOPES):
            for island in wiring.islands[scope]:
                touching = tuple(at for at in columns if region.columns[at].taken & island)
                if touching and not island & ~free:
                    costs = [0] * len(ISLAND_SCOPES)
                    costs[level] = island.bit_count()
                    found.append(Penalty(touching, tuple(costs)))
    return found


def counted(lot: Lot, region: Region) -> list[Total]:
    """What the columns of each node may take of the counters that its devices share."""
    by_node: dict[int, list[int]] = {}
    if not lot.nodes.index.counted:
        return []
    for at, column in enumerate(region.columns):
        by_node.setdefault(column.node, []).append(at)
    found: list[Total] = []
    for node, columns in by_node.items():
        position = region.positions[node]
        counters = lot.nodes.index.views[position].shape.counters
        if counters is None:
            continue
        for left, amounts in counters.left(lot.free(position)):
            takes = [
                (at, sum(amount for device, amount in amounts if region.columns[at].taken >> device & 1))
                for at in columns
            ]
            terms = [term for term in takes if term[1]]
            if sum(amount for _, amount in terms) > left:
                found.append((terms, 0, left))
    return found


def apply(lot: Lot, region: Region, chosen: Sequence[int]) -> None:
    """Gives the units of a region, also those that wait, the chosen places: who comes first the nearest. Whoever comes
    last waits when there are fewer places than units.
    """
    if set(chosen) == set(region.hint):
        return
    for units in region.units:
        for unit in units:
            lot.lift(unit)
    known = set(lot.units)
    places: list[list[tuple[tuple[int, ...], int, int, int]]] = [[] for _ in region.kinds]
    for at in chosen:
        column = region.columns[at]
        places[column.kind].append((column.costs, region.positions[column.node], column.taken, at))
    for kind, units, waiting, mine in zip(region.kinds, region.units, region.waiting, places, strict=True):
        queue = sorted([*units, *waiting], key=lambda unit: unit.rank)
        for unit, (_, _, _, at) in zip(queue, sorted(mine), strict=False):
            lot.put(unit, Spot(region.positions[region.columns[at].node], region.patterns[at].fit))
        # Who comes first has a place before those of the kind that were not looked at.
        looked = set(queue)
        elsewhere = [unit for unit in kind.units if unit.spot is not None and unit not in looked]
        for unit in queue[len(mine) :]:
            if elsewhere and elsewhere[-1].rank > unit.rank:
                lot.hand_over(elsewhere.pop(), unit)
        lot.units += (unit for unit in queue if unit.spot is not None and unit not in known)


def _untouched(lot: Lot, kinds: Sequence[Kind]) -> list[list[int]] | None:
    """Open nodes with something free on which nothing movable is: lists of those that are equal for all kinds. None
    when the kinds look at too much to tell.
    """
    for kind in kinds:
        states = lot.placer.states(kind.ask)
    if not all(states.classes.covers(kind.ask.question) for kind in kinds):
        return None
    number = sum(len(kind.units) for kind in kinds)
    groups = []
    for state in states.open:
        if states.kinds[state].masks.free:
            untouched = (position for position in states.members[state] if position not in lot.at)
            groups.append([*islice(untouched, number)])
    return sorted(group for group in groups if group)


def _whole(lot: Lot, kinds: Sequence[Kind], groups: Sequence[Sequence[int]] | None) -> list[int] | None:
    """All nodes that could matter, or None when these are too many."""
    if groups is None or len(lot.at) > NODES or len(groups) > GROUPS:
        return None
    fits = lot.placer.fitter.fits
    positions = list(lot.at)
    for group in groups:
        here = [(kind.ask.form, lot.state(kind.ask, group[0], lot.nodes.open[group[0]])) for kind in kinds]
        if any(fits(form, state) for form, state in here):
            positions += group
            if len(positions) > NODES:
                return None
    return sorted(positions)


def _part(
    lot: Lot,
    kinds: Sequence[Kind],
    groups: Sequence[Sequence[int]] | None,
    focus: Sequence[int],
    find: Find,
) -> list[int]:
    """In turn the nodes in focus, and nodes to move to: for each kind some like the one where it would go now."""
    here = [*dict.fromkeys((*focus, *sorted(lot.at)))][: NODES // 2]
    found = [find(kind.units[0]) for kind in kinds]
    spots = dict.fromkeys(spot.position for spot in found if spot is not None)
    alike = [group[: NODES // 2 // len(spots)] for group in groups or () if not spots.keys().isdisjoint(group)]
    there = [*spots, *(position for turn in zip_longest(*alike) for position in turn)]
    turns = zip_longest(here, there)
    return [*dict.fromkeys(position for turn in turns for position in turn if position is not None)][:NODES]


def _columns(lot: Lot, region: Region) -> None:
    """Candidate patterns of each kind on each node, those of the nodes that matter most while there is work left."""
    pairs = max(1, len(region.kinds) * len(region.positions))
    meter = lot.meter.half()
    bound = min(PATTERNS, COLUMNS // pairs)
    if not region.complete:
        bound = min(bound, meter.left // pairs)
    bound = max(LEAST, bound)
    depth = max((1 + 2 * len(kind.ask.signature.slots) for kind in region.kinds), default=0)
    now: dict[tuple[int, int], dict[int, Pattern]] = {}
    for at, (kind, units) in enumerate(zip(region.kinds, region.units, strict=True)):
        for unit in units:
            one = pattern(kind.ask.form, unit.place.fit)
            now.setdefault((at, unit.place.position), {})[one.fit.taken] = one
    for node, position in enumerate(region.positions):
        for at, kind in enumerate(region.kinds):
            found, complete = lot.patterns(kind.ask, position, bound, meter)
            region.complete = region.complete and complete
            mine = now.get((at, position), {})
            for one in (*mine.values(), *(each for each in found if each.fit.taken not in mine)):
                if one.fit.taken in mine:
                    region.hint.append(len(region.columns))
                costs = (*one.distances, *(0,) * (depth - len(one.distances)))
                region.columns.append(Column(at, node, one.fit.taken, costs))
                region.patterns.append(one)
