"""The claims of one decision together: who may have other devices so that more, or all, are served better.

In come the replicas that the walk of `solve` places, as it places them, and those that it cannot place. `Batch.room`
moves earlier replicas of the same decision when one does not fit beside them: which devices they get may change, never
whether they get some. `Batch.improve` looks at the whole when all are served: with objective Throughput for a set of
replicas of more devices, then for smaller distances, then for less that is broken up. What comes out are other spots
of `Unit`s, entered in the ledger, and how far from the best possible all is proven to be.

Only what this decision placed is ever moved, and of that only replicas that stand for themselves (`lot.independent`):
no members of gangs, nothing with a fabric. Pools do not touch each other, so each is a lot of its own.

The cheap comes first. A replica that would not fit if all movable ones were gone cannot be helped; moving those of one
node elsewhere helps most others; only what is left over goes to the solver (`joint`), as candidate patterns on the
nodes in question (`region`). Small lots go there whole, and then an answer is exact, also a negative one; of large ones
a bounded region does. When every replica is as near as it could be if it were alone, there is nothing to solve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from adjoin_allocator.cost import Part
from adjoin_allocator.fit import Fit
from adjoin_allocator.joint import Program, Status
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.lot import Kind, Lot, Unit, alone, independent, kinds, same
from adjoin_allocator.model import ClaimUID
from adjoin_allocator.nodes import State
from adjoin_allocator.place import Ask, Placer, Spot
from adjoin_allocator.region import Find, apply, build, counted, penalties
from adjoin_allocator.repack import Repack
from adjoin_allocator.terms import Objective
from adjoin_allocator.throughput import fill, settled

TRIES = 16
"""Nodes that are tried for room before the solver is."""

DIGITS = 4
"""Digits of a gap that are told."""

_Costs = tuple[int, ...]
"""Distances, level by level: NUMA nodes, then by slot the sum of ranks and the sum of fine."""


class Batch:
    """All lots of one decision.

    Attributes:
        struck: The wall limit of a budget ended a search.
    """

    def __init__(self, ledger: Ledger, placer: Placer, find: Find) -> None:
        self.struck = False
        self._ledger = ledger
        self._placer = placer
        self._find = find
        self._lots: dict[str, Lot] = {}
        self._others: dict[str, list[Unit]] = {}
        """By pool who has a place and is in no lot."""
        self._repacks: dict[str, Repack] = {}
        self._gaps: dict[ClaimUID, float] = {}

    def placed(self, unit: Unit, spot: Spot) -> None:
        """The walk has given a replica its place, and the ledger knows. Nothing, when the replica is not to be
        moved.
        """
        if independent(unit.claim):
            unit.spot = spot
            self._lot(unit.ask.pool).enter(unit)
        elif alone(unit.claim):
            unit.spot = spot
            self._others.setdefault(unit.ask.pool, []).append(unit)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to improve: nobody has a place that may be another one."""
        return not self._lots and not self._repacks

    @property
    def gaps(self) -> Mapping[ClaimUID, float]:
        """How far claims' distances are from the best on devices that were free; of those not named nothing is: 0."""
        return self._gaps

    def pool_gap(self, pool: str) -> float:
        """How far a pool's batch is from the best possible: 0 is optimal."""
        lot = self._lots.get(pool)
        return 0.0 if lot is None else round(lot.gap, DIGITS)

    # Room for one more

    def room(self, unit: Unit) -> Spot | None:
        """A place for a replica that fits nowhere, when there is one once others of this decision are moved: then they
        are. Nothing is taken for the replica itself. None changes nothing.
        """
        spot = self._room_among_wholes(unit) if independent(unit.claim) else None
        if spot is None and alone(unit.claim) and (self._others.get(unit.ask.pool) or not independent(unit.claim)):
            spot = self._repack(unit.ask.pool).room(unit)
        return spot

    def _lot(self, pool: str) -> Lot:
        lot = self._lots.get(pool)
        if lot is None:
            lot = self._lots[pool] = Lot(pool, self._ledger, self._placer)
        return lot

    def _repack(self, pool: str) -> Repack:
        repack = self._repacks.get(pool)
        if repack is None:
            others = self._others.setdefault(pool, [])
            repack = self._repacks[pool] = Repack(self._lot(pool), others, self._find)
        return repack

    def _room_among_wholes(self, unit: Unit) -> Spot | None:
        """The same where only whole devices move."""
        lot = self._lots.get(unit.ask.pool)
        if lot is None or not lot.at:
            return None
        key = same(unit.ask)
        if key in lot.refused:
            return None
        targets = lot.targets(unit.ask)
        if not targets or not _countable(lot, unit.ask):
            lot.refused[key] = True
            return None
        spot = None
        if lot.pool.optimise_milliseconds > 0:
            spot = self._push(lot, unit.ask, targets) or self._search(lot, unit, targets)
        if spot is None:
            lot.refused.setdefault(key, False)
        return spot

    def waits(self, units: Iterable[Unit]) -> None:
        """The walk has found no place for these replicas of a claim."""
        for unit in units:
            lot = self._lots.get(unit.ask.pool)
            if lot is not None and independent(unit.claim):
                lot.waiting.append(unit)
                key = same(unit.ask)
                if key not in lot.refused:
                    # Nothing was there to be moved, or it may not be tried.
                    lot.refused[key] = not lot.targets(unit.ask)
                if not lot.refused[key]:
                    lot.unsure += sum(max(1, count) for count in unit.ask.signature.counts)

    def _push(self, lot: Lot, ask: Ask, targets: Sequence[int]) -> Spot | None:
        """One node is cleared, the latest first, until the replica fits; all who had to go find places elsewhere."""
        for position in targets[:TRIES]:
            gone: list[tuple[Unit, Spot]] = []
            fit: Fit | None = None
            for unit in sorted(lot.at[position], key=lambda unit: unit.rank, reverse=True):
                gone.append((unit, lot.lift(unit)))
                fit = self._here(lot, ask, position)
                if fit is not None:
                    break
            if fit is not None:
                self._ledger.take(ask.pool, position, fit.taken)
                moved = all(self._move(lot, unit) for unit, _ in reversed(gone))
                self._ledger.give_back(ask.pool, position, fit.taken)
                if moved:
                    return Spot(position, fit)
            for unit, _ in gone:
                if unit.spot is not None:
                    lot.lift(unit)
            for unit, spot in gone:
                lot.put(unit, spot)
        return None

    def _here(self, lot: Lot, ask: Ask, position: int) -> Fit | None:
        """The best choice on a node as it is."""
        answer = self._placer.fitter.fit(ask.form, lot.state(ask, position, lot.nodes.open[position]))
        return answer if isinstance(answer, Fit) else None

    def _move(self, lot: Lot, unit: Unit) -> bool:
        spot = self._find(unit)
        if spot is not None:
            lot.put(unit, spot)
        return spot is not None

    def _search(self, lot: Lot, unit: Unit, targets: Sequence[int]) -> Spot | None:
        """Whatever it takes, as far as the budget goes; half of what is left of it, since others may come."""
        if lot.budget.spent:
            return None
        region = build(lot, kinds([*lot.placed, unit]), targets, self._find)
        numbers = [len(units) + len(more) for units, more in zip(region.units, region.waiting, strict=True)]
        program = Program(region.columns)
        totals = [*program.counts([(number, number) for number in numbers]), *counted(lot, region)]
        answer = program.solve(totals, (), region.hint, lot.budget, lot.budget.work / 2)
        if answer.status is Status.INFEASIBLE:
            lot.refused[same(unit.ask)] = region.complete
        if not answer.chosen:
            return None
        apply(lot, region, answer.chosen)
        lot.units.remove(unit)
        return lot.lift(unit)

    # The whole

    def improve(self, loosened: Collection[str] = ()) -> list[list[Unit]]:
        """Looks for something better when all are served. In the pools of `loosened` something came free on the way,
        which those who had been placed by then could not have.

        Gives the units of each claim of which one has another place than it had when the walk placed it, or has none
        any more.
        """
        changed: dict[ClaimUID, list[Unit]] = {}
        for lot in self._lots.values():
            moved = any(unit.spot is not lot.walked.get(unit) for unit in lot.units)
            lot.loosened = lot.pool.name in loosened
            if not lot.units or (len(lot.units) == 1 and not lot.waiting and not moved and not lot.loosened):
                continue
            units = (*lot.units, *lot.waiting)
            if lot.pool.objective is Objective.THROUGHPUT:
                fill(lot, self._find)
            self._approach(lot)
            self.struck = self.struck or lot.budget.struck
            touched = {unit.claim.uid for unit in units if unit.spot is not lot.walked.get(unit)}
            for unit in sorted(units, key=lambda unit: unit.rank):
                if unit.claim.uid in touched:
                    changed.setdefault(unit.claim.uid, []).append(unit)
        for repack in self._repacks.values():
            for unit in sorted(repack.moved, key=lambda unit: unit.rank):
                changed.setdefault(unit.claim.uid, []).append(unit)
        return list(changed.values())

    def _approach(self, lot: Lot) -> None:
        """Smaller distances for the same replicas, and the gaps that are left."""
        # Where the number of devices counts, and depends on the node, it has been settled before their distances.
        varying = bool(lot.varying) and lot.pool.objective is Objective.THROUGHPUT
        groups = kinds(lot.placed, split=varying)
        ideals = {kind: self._ideal(lot, kind) for kind in groups if not self._at_best(lot, kind)}
        bounds = {kind: _certain(kind, ideal) for kind, ideal in ideals.items()}
        far = [kind for kind in bounds if kind.farthest > bounds[kind]]
        bound = _summed((bounds.get(kind), kind) for kind in groups)
        proven = not far
        if far and not lot.budget.spent:
            region = build(lot, groups, _better(lot, far, bounds), self._find)
            program = Program(region.columns, penalties(lot, region))
            totals = program.counts([(len(units), len(units)) for units in region.units])
            totals += counted(lot, region)
            totals += settled(region) if varying else []
            least = program.least(totals, len(region.hint), region.hint, lot.budget)
            apply(lot, region, least.chosen)
            if region.complete:
                proven, bound = least.proven, max(bound, least.bound)
        lot.gap = 0.0 if proven else _gap(_summed((None, kind) for kind in groups), bound)
        if lot.unsure:
            devices = sum(unit.place.fit.taken.bit_count() for unit in lot.placed)
            more = min(lot.unsure, lot.spare + devices)
            lot.gap = max(lot.gap, more / (more + devices))
        claims: dict[ClaimUID, tuple[_Costs, _Costs]] = {}
        for kind in groups:
            for unit in kind.units:
                cost = kind.cost(unit.place.fit)
                own, best = claims.get(unit.claim.uid, ((), ()))
                claims[unit.claim.uid] = (_plus(own, cost), _plus(best, ideals.get(kind, cost)))
        # Who is alone has the best possible when all have.
        if len(claims) > 1 or not proven:
            self._gaps |= {uid: round(_gap(own, best), DIGITS) for uid, (own, best) in claims.items()}

    def _at_best(self, lot: Lot, kind: Kind) -> bool:
        """Whether all of a kind are as near as they would be in an empty node of the pool, or there is nobody else."""
        worst, first = kind.farthest, kind.units[0]
        alone = len(lot.units) == 1 and not lot.loosened
        if not any(worst) or (alone and first.spot is lot.walked.get(first)):
            return True
        if Part.BUSY in kind.ask.signature.order:
            return False
        classes = self._placer.states(kind.ask).classes
        shapes = [view.shape for view in classes.examples]
        empty = zip(shapes, classes.sorts(kind.ask.question), [(1 << shape.size) - 1 for shape in shapes], strict=True)
        return worst <= self._nearest(kind, empty)

    def _ideal(self, lot: Lot, kind: Kind) -> _Costs:
        """The distances that one of a kind would have if nothing movable was there."""
        states = [lot.state(kind.ask, position, lot.free(position)) for position in sorted(lot.at)]
        return self._nearest(kind, dict.fromkeys((*self._placer.open_states(kind.ask), *states)))

    def _nearest(self, kind: Kind, states: Iterable[State]) -> _Costs:
        """The least distances in nodes of these states, of which one will do."""
        answers = [self._placer.fitter.fit(kind.ask.form, state) for state in states]
        return min(kind.cost(one) for one in answers if isinstance(one, Fit))


def _countable(lot: Lot, ask: Ask) -> bool:
    """Whether numbers alone allow one more replica, wherever the movable ones go: as many devices are free in the pool
    as it takes, and there are places for it and for all who take at least as many of each name. Where somebody takes
    all that there are on a node, numbers say nothing.
    """
    if lot.varying or not all(ask.signature.counts):
        return True
    needed = _needed(ask)
    greater = sum(all(_needed(unit.ask)[name] >= count for name, count in needed.items()) for unit in lot.placed)
    short, places = Counter(needed), 0
    index = lot.nodes.index
    states = lot.placer.states(ask)
    touched = Counter(int(states.of[position]) for position in lot.at)
    for position in lot.at:
        named, base = index.views[position].shape.kinds, lot.free(position)
        places += min((base & named.get(name, 0)).bit_count() // count for name, count in needed.items())
    for number in states.open:
        free, members = states.kinds[number].masks.free, len(states.members[number])
        named = states.classes.examples[states.kinds[number].number].shape.kinds
        here = {name: (free & named.get(name, 0)).bit_count() for name in needed}
        places += min(here[name] // count for name, count in needed.items()) * (members - touched[number])
        for name, amount in here.items():
            short[name] -= amount * members
    return places > greater and all(amount <= 0 for amount in short.values())


def _needed(ask: Ask) -> Counter[str]:
    """Devices of each name that a replica takes."""
    needed: Counter[str] = Counter()
    for name, count in zip(ask.signature.kinds, ask.signature.counts, strict=True):
        needed[name] += count
    return needed


def _certain(kind: Kind, ideal: _Costs) -> _Costs:
    """What the distances of a kind cannot be below. Latency puts quiet neighbours before distances: these are then
    known to be the best only beside such neighbours.
    """
    return (ideal[0], *(0 for _ in ideal[1:])) if Part.BUSY in kind.ask.signature.order else ideal


def _better(lot: Lot, far: Sequence[Kind], bounds: Mapping[Kind, _Costs]) -> list[int]:
    """Nodes that matter for those who are farther apart than they need be: in turn where they are, and where one of
    them would be nearer if nothing movable was there.
    """
    here = [unit.place.position for kind in far for unit in kind.units if kind.cost(unit.place.fit) > bounds[kind]]
    there = []
    for kind in far:
        worst = kind.farthest
        for position in sorted(lot.at):
            fit = lot.best(kind.ask, position)
            if fit is not None and kind.cost(fit) < worst:
                there.append(position)
    turns = zip_longest(dict.fromkeys(here), dict.fromkeys(there))
    return [position for turn in turns for position in turn if position is not None]


def _plus(one: _Costs, other: _Costs) -> _Costs:
    """Level by level; missing levels are 0."""
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))


def _summed(costs: Iterable[tuple[_Costs | None, Kind]]) -> _Costs:
    """The distances of all units, or of a kind's best times their number where that is given."""
    total: _Costs = ()
    for best, kind in costs:
        for unit in kind.units:
            total = _plus(total, kind.cost(unit.place.fit) if best is None else best)
    return total


def _gap(own: _Costs, best: _Costs) -> float:
    """How much of the first sum of ranks that differs is more than it need be."""
    for mine, least in zip(own[1::2], best[1::2], strict=False):
        if mine != least:
            return max(0.0, (mine - least) / mine) if mine else 0.0
    return 0.0
