"""The claims of one decision together: who may have other devices so that more, or all, are served better.

In come the replicas that the walk of `solve` places, as it places them, and those that it cannot place. `Batch.room`
moves earlier replicas of the same decision when one does not fit beside them: which devices they get may change, never
whether they get some. `Batch.improve` looks at the whole when all are served: with objective Throughput for a set of
replicas of more devices, then for smaller distances, then for less that is broken up. What comes out are other spots
of `Unit`s, entered in the ledger, and how far from the best possible all is proven to be.

Only what this decision placed is ever moved, and of that only replicas that stand for themselves (`independent`): no
members of gangs, nothing with a fabric. Pools do not touch each other, so each is a lot of its own.

The cheap comes first. A replica that would not fit if all movable ones were gone cannot be helped; moving those of one
node elsewhere helps most others; only what is left over goes to the solver (`joint`), as candidate `patterns` on the
nodes in question. Small lots go there whole, and then an answer is exact, also a negative one; of large ones a bounded
region does. When every replica is as near as it could be if it were alone, there is nothing to solve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from adjoin_allocator.cost import ISLAND_SCOPES, distances
from adjoin_allocator.fit import Fit
from adjoin_allocator.joint import MERGED, Budget, Column, Penalty, Program, Status, Total
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Claim, ClaimUID, HostAsk, Pool
from adjoin_allocator.nodes import Sort, State
from adjoin_allocator.patterns import Meter, Pattern, pattern, patterns
from adjoin_allocator.place import Ask, Placer, Spot
from adjoin_allocator.terms import Objective

NODES = 48
"""Nodes that the solver looks at together."""

COLUMNS = 4_000
"""Candidate patterns that the solver chooses from: what it gets through with the usual budget."""

PATTERNS = 256
"""Candidate patterns of one kind on one node."""

STEPS = 5
"""Searches for candidate patterns, for each millisecond of the pool's budget."""

TRIES = 16
"""Nodes that are tried for room before the solver is."""

Find = Callable[[Claim, Ask], Spot | None]
"""The best place for one replica as the walk would choose it now, or None; takes nothing."""


@dataclass(slots=True, eq=False)
class Unit:
    """A replica that stands for itself and has, or waits for, a place in this decision.

    Attributes:
        level: Effective priority of its claim.
        turn: When its claim is served.
    """

    claim: Claim
    ask: Ask
    index: int
    level: int
    turn: int
    spot: Spot | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in the order of service."""
        return self.turn, self.index

    @property
    def place(self) -> Spot:
        """Where it is; it must have a place."""
        assert self.spot is not None, "the replica waits"
        return self.spot


def independent(claim: Claim) -> bool:
    """Whether replicas of the claim stand for themselves: one may be moved without a look at the others, or at anything
    but devices.
    """
    alone = claim.gang_min is None and not claim.fabric.required and not claim.fabric.preferred
    alone = alone and claim.fabric.segment is None and claim.host == HostAsk()
    alone = alone and not any(line.over_gang for line in claim.affinity)
    return alone and not any(request.share or request.first_of for request in claim.requests)


@dataclass(slots=True, eq=False)
class _Kind:
    """Replicas that ask the same: who of them gets which place is all one."""

    ask: Ask
    units: list[Unit] = field(default_factory=list)

    @property
    def level(self) -> int:
        """Their priority, where kinds are split by it."""
        return self.units[0].level

    @property
    def tenant(self) -> str:
        """Their tenant, where kinds are split by it."""
        return self.units[0].claim.tenant

    def cost(self, spot: Spot) -> tuple[int, ...]:
        """Distances of a spot of this kind."""
        return distances(self.ask.signature, spot.fit.objective)


@dataclass(slots=True, eq=False)
class _Lot:
    """What this decision has placed of a pool and may still move.

    Attributes:
        at: By position.
        refused: What did not fit and cannot be made to, and whether that is proven. It stays so, since the decision
            only ever places more.
        unsure: Devices of replicas that wait without such a proof.
        walked: Where the walk placed each unit.
        gap: What is known of the whole after `improve`.
    """

    pool: Pool
    budget: Budget
    meter: Meter
    at: dict[int, list[Unit]] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    walked: dict[Unit, Spot] = field(default_factory=dict)
    refused: dict[object, bool] = field(default_factory=dict)
    unsure: int = 0
    gap: float = 0.0

    @property
    def varying(self) -> bool:
        """Whether somebody takes all that there is on a node, so that it depends on the node how much that is."""
        return any(not count for unit in self.units for count in unit.ask.signature.counts)

    def put(self, unit: Unit, spot: Spot) -> None:
        """A unit has a place."""
        unit.spot = spot
        self.at.setdefault(spot.position, []).append(unit)

    def lift(self, unit: Unit) -> Spot:
        """A unit has none any more; the one it had."""
        spot, unit.spot = unit.place, None
        here = self.at[spot.position]
        here.remove(unit)
        if not here:
            del self.at[spot.position]
        return spot

    def taken(self, position: int) -> int:
        """Devices of a node that could be had by moving."""
        mask = 0
        for unit in self.at.get(position, ()):
            mask |= unit.place.fit.taken
        return mask


@dataclass(slots=True, eq=False)
class _Region:
    """Part of a lot, or all of it, as a program.

    Attributes:
        units: By kind those that have a place on the nodes looked at.
        columns: With the pattern of each, and the position of its node.
        hint: The columns that stand for the places there are.
        complete: Nothing is left out: what the program cannot do cannot be done.
    """

    kinds: list[_Kind]
    units: list[list[Unit]]
    columns: list[Column]
    patterns: list[Pattern]
    positions: list[int]
    hint: list[int]
    complete: bool


class Batch:
    """All lots of one decision."""

    def __init__(self, ledger: Ledger, placer: Placer, find: Find) -> None:
        self.struck = False
        self._ledger = ledger
        self._placer = placer
        self._find = find
        self._lots: dict[str, _Lot] = {}
        self._gaps: dict[ClaimUID, float] = {}

    def placed(self, unit: Unit) -> None:
        """The walk has given a replica its place, and the ledger knows. Nothing, when the replica is not to be
        moved.
        """
        if independent(unit.claim):
            lot = self._lot(unit.ask)
            lot.units.append(unit)
            lot.walked[unit] = unit.place
            lot.put(unit, unit.place)

    def gap(self, claim: ClaimUID) -> float:
        """How far a claim's distances are from the best on devices that were free: 0 is optimal."""
        return self._gaps.get(claim, 0.0)

    def pool_gap(self, pool: str) -> float:
        """How far a pool's batch is from the best possible: 0 is optimal."""
        lot = self._lots.get(pool)
        return 0.0 if lot is None else round(lot.gap, 4)

    def _lot(self, ask: Ask) -> _Lot:
        lot = self._lots.get(ask.pool)
        if lot is None:
            pool = self._ledger.pools[ask.pool].index.pool
            spend = pool.optimise_milliseconds
            lot = self._lots[ask.pool] = _Lot(pool, Budget.of(spend), Meter(STEPS * spend))
        return lot

    # Room for one more

    def room(self, claim: Claim, ask: Ask) -> Spot | None:
        """A place for a replica that fits nowhere, when there is one once others of this decision are moved: then they
        are. Nothing is taken for the replica itself. None changes nothing.
        """
        lot = self._lots.get(ask.pool)
        if lot is None or not lot.at or not independent(claim):
            return None
        key = _same(ask)
        if key not in lot.refused:
            targets = self._targets(lot, ask)
            if not targets or not self._countable(lot, ask):
                lot.refused[key] = True
            else:
                spot = None
                if lot.pool.optimise_milliseconds > 0:
                    spot = self._push(lot, ask, targets) or self._solve(lot, claim, ask, targets)
                if spot is not None:
                    return spot
                lot.refused.setdefault(key, False)
        return None

    def waits(self, claim: Claim, ask: Ask, missing: int) -> None:
        """So many replicas of a claim wait."""
        lot = self._lots.get(ask.pool)
        if lot is not None and independent(claim) and not lot.refused.get(_same(ask), True):
            lot.unsure += missing * max(1, sum(ask.signature.counts))

    def _targets(self, lot: _Lot, ask: Ask) -> list[int]:
        """Nodes where a replica would fit if nothing movable was there, those first where least has to go."""
        free, sorts, index = self._free(lot), self._placer.sorts(ask), self._ledger.pools[ask.pool].index
        found = []
        for position in sorted(lot.at):
            taken = lot.taken(position)
            if self._placer.fitter.fits(
                ask.form, (index.views[position].shape, sorts[position], free[position] | taken)
            ):
                found.append((taken.bit_count(), position))
        return [position for _, position in sorted(found)]

    def _countable(self, lot: _Lot, ask: Ask) -> bool:
        """Whether as many devices are free in the pool as the replica takes: moving others does not make them more.
        Where somebody takes all there are on a node it might.
        """
        if lot.varying:
            return True
        needed: Counter[str] = Counter()
        for kind, count in zip(ask.signature.kinds, ask.signature.counts, strict=True):
            needed[kind] += max(1, count)
        ledger = self._ledger.pools[ask.pool]
        for position, view in enumerate(ledger.index.views):
            if position not in ledger.index.closed and ledger.free[position]:
                for kind in list(needed):
                    needed[kind] -= (ledger.free[position] & view.shape.kinds.get(kind, 0)).bit_count()
                    if needed[kind] <= 0:
                        del needed[kind]
                if not needed:
                    return True
        return False

    def _push(self, lot: _Lot, ask: Ask, targets: Sequence[int]) -> Spot | None:
        """One node is cleared, the latest first, until the replica fits; all who had to go find places elsewhere."""
        sorts, index = self._placer.sorts(ask), self._ledger.pools[ask.pool].index
        for position in targets[:TRIES]:
            mark = self._ledger.checkpoint()
            gone: list[tuple[Unit, Spot]] = []
            fit = None
            for unit in sorted(lot.at[position], key=lambda unit: unit.rank, reverse=True):
                gone.append((unit, self._lift(lot, unit)))
                state = (index.views[position].shape, sorts[position], self._free(lot)[position])
                answer = self._placer.fitter.fit(ask.form, _bare(state))
                if isinstance(answer, Fit):
                    fit = answer
                    break
            if fit is not None:
                self._ledger.take(ask.pool, position, fit.taken)
                moved = 0
                for unit, _ in sorted(gone, key=lambda each: each[0].rank):
                    spot = self._find(unit.claim, unit.ask)
                    if spot is None:
                        break
                    self._put(lot, unit, spot)
                    moved += 1
                if moved == len(gone):
                    self._ledger.give_back(ask.pool, position, fit.taken)
                    return Spot(position, fit)
            for unit, spot in gone:
                if unit.spot is not None:
                    lot.lift(unit)
                lot.put(unit, spot)
            self._ledger.roll_back(mark)
        return None

    def _solve(self, lot: _Lot, claim: Claim, ask: Ask, targets: Sequence[int]) -> Spot | None:
        """Whatever it takes, as far as the budget goes; half of what is left of it, since others may come."""
        if lot.budget.spent:
            return None
        unit = Unit(claim, ask, 0, 0, len(lot.units))
        kinds = _kinds([*lot.units, unit])
        region = self._region(lot, kinds, targets)
        wanted = [len(units) + (unit in kind.units) for kind, units in zip(region.kinds, region.units, strict=True)]
        program = Program(region.columns)
        totals = program.counts([(count, count) for count in wanted])
        answer = program.solve(totals, (), region.hint, lot.budget, lot.budget.work / 2)
        if answer.status is Status.INFEASIBLE:
            lot.refused[_same(ask)] = region.complete
        if not answer.chosen:
            return None
        self._apply(lot, region, answer.chosen, [unit])
        return self._lift(lot, unit)

    # The whole

    def improve(self, waiting: Mapping[str, Sequence[Unit]]) -> list[list[Unit]]:
        """Looks for something better when all are served. `waiting` are by pool replicas without a place that may have
        that of another.

        Gives the units of each claim of which one has another place than it had when the walk placed it, or has none
        any more.
        """
        changed: dict[ClaimUID, list[Unit]] = {}
        for name, lot in self._lots.items():
            units = (*lot.units, *waiting.get(name, ()))
            if lot.pool.objective is Objective.THROUGHPUT:
                self._fill(lot, waiting.get(name, ()))
            self._approach(lot)
            self.struck = self.struck or lot.budget.struck
            touched = {unit.claim.uid for unit in units if unit.spot is not lot.walked.get(unit)}
            for unit in sorted(units, key=lambda unit: unit.rank):
                if unit.claim.uid in touched:
                    changed.setdefault(unit.claim.uid, []).append(unit)
        return list(changed.values())

    def _approach(self, lot: _Lot) -> None:
        """Smaller distances for the same replicas, and the gaps that are left."""
        # The number of devices has been settled before their distances.
        settled = lot.varying and lot.pool.objective is Objective.THROUGHPUT
        kinds = _kinds((unit for unit in lot.units if unit.spot is not None), split=settled)
        ideals = {kind: self._ideal(lot, kind) for kind in kinds if not self._at_best(lot, kind)}
        far = [kind for kind, ideal in ideals.items() if any(kind.cost(unit.place) > ideal for unit in kind.units)]
        bound, exact = _summed((ideals.get(kind), kind) for kind in kinds), not far
        if far and not lot.budget.spent:
            region = self._region(lot, kinds, self._better(lot, far, ideals))
            program = Program(region.columns, self._penalties(lot, region))
            totals = program.counts([(len(units), len(units)) for units in region.units])
            if settled:
                totals += _worth(region)
            least = program.least(totals, len(region.hint), region.hint, lot.budget)
            self._apply(lot, region, least.chosen)
            if region.complete:
                exact, bound = least.proven, max(bound, least.bound)
        own = _summed((None, kind) for kind in kinds)
        lot.gap = 0.0 if exact else _gap(own, bound)
        devices = sum(unit.place.fit.taken.bit_count() for unit in lot.units if unit.spot is not None)
        if lot.unsure:
            lot.gap = max(lot.gap, lot.unsure / (lot.unsure + devices))
        self._tell(lot, kinds, ideals, exact)

    def _tell(self, lot: _Lot, kinds: Sequence[_Kind], ideals: Mapping[_Kind, tuple[int, ...]], exact: bool) -> None:
        """The gap of each claim. Who is alone has the best possible when all have."""
        claims: dict[ClaimUID, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        for kind in kinds:
            for unit in kind.units:
                cost = kind.cost(unit.place)
                own, best = claims.get(unit.claim.uid, ((), ()))
                claims[unit.claim.uid] = (_plus(own, cost), _plus(best, ideals.get(kind, cost)))
        if len(claims) > 1 or not exact:
            self._gaps.update({uid: round(_gap(own, best), 4) for uid, (own, best) in claims.items()})

    def _at_best(self, lot: _Lot, kind: _Kind) -> bool:
        """Whether all of a kind are as near as they would be in an empty node of the pool, or there is nobody else."""
        worst = max(kind.cost(unit.place) for unit in kind.units)
        if not any(worst) or (len(lot.units) == 1 and kind.units[0].spot is lot.walked.get(kind.units[0])):
            return True
        index = self._ledger.pools[lot.pool.name].index
        pairs = dict.fromkeys(zip((view.shape for view in index.views), self._placer.sorts(kind.ask), strict=True))
        return worst <= self._nearest(kind, ((shape, sort, (1 << shape.size) - 1) for shape, sort in pairs))

    def _ideal(self, lot: _Lot, kind: _Kind) -> tuple[int, ...]:
        """The distances that one of a kind would have if nothing movable was there."""
        ledger = self._ledger.pools[lot.pool.name]
        index, sorts, free = ledger.index, self._placer.sorts(kind.ask), ledger.free
        states: dict[State, None] = {}
        for position, view in enumerate(index.views):
            if position not in index.closed:
                states[view.shape, sorts[position], free[position] | lot.taken(position)] = None
        return self._nearest(kind, states)

    def _nearest(self, kind: _Kind, states: Iterable[State]) -> tuple[int, ...]:
        """The least distances in nodes of these states, of which one will do."""
        answers = (self._placer.fitter.fit(kind.ask.form, _bare(state)) for state in states)
        return min(distances(kind.ask.signature, one.objective) for one in answers if isinstance(one, Fit))

    def _better(self, lot: _Lot, far: Sequence[_Kind], ideals: Mapping[_Kind, tuple[int, ...]]) -> list[int]:
        """Nodes that matter for those who are farther apart than they need be: where they are, and where one of them
        would be nearer if nothing movable was there.
        """
        ledger = self._ledger.pools[lot.pool.name]
        here: dict[int, None] = {}
        there: dict[int, None] = {}
        for kind in far:
            worst = max(kind.cost(unit.place) for unit in kind.units)
            here |= dict.fromkeys(unit.place.position for unit in kind.units if kind.cost(unit.place) > ideals[kind])
            sorts = self._placer.sorts(kind.ask)
            for position in sorted(lot.at):
                state = (
                    ledger.index.views[position].shape,
                    sorts[position],
                    ledger.free[position] | lot.taken(position),
                )
                answer = self._placer.fitter.fit(kind.ask.form, _bare(state))
                if isinstance(answer, Fit) and distances(kind.ask.signature, answer.objective) < worst:
                    there[position] = None
        turns = [iter(here), iter(there)]
        mixed: dict[int, None] = {}
        while turns:
            for turn in list(turns):
                position = next(turn, None)
                if position is None:
                    turns.remove(turn)
                else:
                    mixed[position] = None
        return list(mixed)

    # More devices

    def _fill(self, lot: _Lot, waiting: Sequence[Unit]) -> None:
        """Objective Throughput: among claims of one effective priority as many devices as can be, then those who come
        first; a higher priority before a lower one. No tenant gets more of a name than the walk gave it, so quotas
        hold as they did.
        """
        hopeful = [unit for unit in waiting if independent(unit.claim) and self._targets(lot, unit.ask)]
        lot.unsure = 0
        top = max((unit.level for unit in hopeful), default=0)
        spare = self._spare(lot)
        lower = any(unit.level < top for unit in lot.units)
        if not (spare or lower) or not (hopeful or lot.varying):
            return
        kinds = _kinds([*lot.units, *hopeful], split=True)
        focus = dict.fromkeys(position for unit in hopeful for position in self._targets(lot, unit.ask)[:TRIES])
        region = self._region(lot, kinds, list(focus))
        program, chosen = Program(region.columns), tuple(region.hint)
        rules = self._allowed(lot, region)
        extra = [[unit for unit in kind.units if unit.spot is None] for kind in region.kinds]
        bounds = [(0, len(own) + len(more)) for own, more in zip(region.units, extra, strict=True)]
        open_: dict[int, int] = {}
        for level in sorted({kind.level for kind in region.kinds}, reverse=True):
            worth = [
                column.taken.bit_count() if region.kinds[column.kind].level == level else 0 for column in region.columns
            ]
            terms = [(at, each) for at, each in enumerate(worth) if each]
            value, most = sum(worth[at] for at in chosen), None
            if not lot.budget.spent:
                totals = [*program.counts(bounds), *rules]
                least = [(at, -each) for at, each in terms]
                answer = program.solve(totals, least, chosen, lot.budget, lot.budget.work)
                if sum(worth[at] for at in answer.chosen) > value:
                    chosen = answer.chosen
                    value = sum(worth[at] for at in chosen)
                most = -answer.bound if region.complete else None
            open_[level] = MERGED if most is None else most - value
            rules.append((terms, value, MERGED))
        chosen = self._first(lot, program, region, bounds, rules, chosen)
        self._apply(lot, region, chosen, [unit for more in extra for unit in more])
        for level, most in open_.items():
            left = [unit for unit in hopeful if unit.level == level and unit.spot is None]
            devices = sum(max(1, sum(unit.ask.signature.counts)) for unit in left)
            lot.unsure += min(most, devices + spare * lot.varying)

    def _spare(self, lot: _Lot) -> int:
        """How many devices are left over."""
        closed = self._ledger.pools[lot.pool.name].index.closed
        return sum(mask.bit_count() for position, mask in enumerate(self._free(lot)) if position not in closed)

    def _first(
        self,
        lot: _Lot,
        program: Program,
        region: _Region,
        bounds: Sequence[tuple[int, int]],
        rules: Sequence[Total],
        chosen: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Among choices that are worth the same the one that serves who comes first."""
        limits = list(bounds)
        counts = Counter(region.columns[at].kind for at in chosen)
        required: Counter[int] = Counter()
        shut: set[int] = set()
        outside = [set(kind.units) - set(units) for kind, units in zip(region.kinds, region.units, strict=True)]
        queue = sorted(
            (unit.rank, number)
            for number, kind in enumerate(region.kinds)
            for unit in kind.units
            if unit.spot is None or unit not in outside[number]
        )
        for _, number in queue:
            if number in shut:
                continue
            if counts[number] <= required[number]:
                more = list(limits)
                more[number] = (required[number] + 1, limits[number][1])
                answer = None
                if not lot.budget.spent:
                    totals = [*program.counts(more), *rules]
                    answer = program.solve(totals, (), chosen, lot.budget, lot.budget.work / 2)
                if answer is None or not answer.chosen:
                    shut.add(number)
                    continue
                chosen = answer.chosen
                counts = Counter(region.columns[at].kind for at in chosen)
            required[number] += 1
            limits[number] = (required[number], limits[number][1])
        return chosen

    def _allowed(self, lot: _Lot, region: _Region) -> list[Total]:
        """In a pool with tenants: of each device name no tenant more than it has on these nodes."""
        if not lot.pool.tenants:
            return []
        views = self._ledger.pools[lot.pool.name].index.views
        sums: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for at, column in enumerate(region.columns):
            tenant = region.kinds[column.kind].tenant
            for name, mask in views[region.positions[column.node]].shape.kinds.items():
                if mask & column.taken:
                    sums.setdefault((tenant, name), []).append((at, (mask & column.taken).bit_count()))
        hint = set(region.hint)
        return [(terms, 0, sum(number for at, number in terms if at in hint)) for terms in sums.values()]

    # Regions

    def _region(self, lot: _Lot, kinds: Sequence[_Kind], focus: Sequence[int]) -> _Region:
        """The whole lot if it is small, else those nodes of it that matter most, in the order of `focus`."""
        ledger = self._ledger.pools[lot.pool.name]
        sorts = [self._placer.sorts(kind.ask) for kind in kinds]
        number = sum(len(kind.units) for kind in kinds)
        groups = self._untouched(lot, sorts)
        positions, complete = sorted(lot.at), False
        if len(groups) <= 4 * NODES:
            useful = [
                group
                for (shape, free, *here), group in groups.items()
                if any(
                    self._placer.fitter.fits(kind.ask.form, (shape, sort, free))
                    for kind, sort in zip(kinds, here, strict=True)
                )
            ]
            whole = [*positions, *(position for group in useful for position in group[:number])]
            if len(whole) <= NODES:
                positions, complete = sorted(whole), True
        if not complete:
            positions = [*dict.fromkeys((*focus, *positions))][: NODES // 2]
            others = [self._find(kind.units[0].claim, kind.ask) for kind in kinds]
            spots = dict.fromkeys(spot.position for spot in others if spot is not None)
            for position in spots:
                key = self._key(lot, sorts, position)
                share = max(1, NODES // 2 // len(spots))
                positions += groups.get(key, [])[:share]
            positions = sorted(set(positions))[:NODES]
        here = set(positions)
        kept = []
        for kind in kinds:
            units = [unit for unit in kind.units if unit.spot is not None and unit.place.position in here]
            if units or any(unit.spot is None for unit in kind.units):
                kept.append((kind, units))
        bound = min(PATTERNS, max(4, COLUMNS // (len(kept) * len(positions))))
        region = _Region([kind for kind, _ in kept], [units for _, units in kept], [], [], positions, [], complete)
        known: dict[tuple[int, State], tuple[list[Pattern], bool]] = {}
        depth = max(2 * len(kind.ask.signature.slots) for kind in region.kinds)
        for at, kind in enumerate(region.kinds):
            wanted = self._placer.sorts(kind.ask)
            mine: dict[int, list[Spot]] = {}
            for unit in region.units[at]:
                mine.setdefault(unit.place.position, []).append(unit.place)
            for node, position in enumerate(positions):
                free = ledger.free[position] | lot.taken(position)
                state = (ledger.index.views[position].shape, wanted[position], free)
                if (at, state) not in known:
                    known[at, state] = patterns(self._placer.fitter, kind.ask.form, state, bound, lot.meter)
                found, all_ = known[at, state]
                region.complete = region.complete and all_
                now = {spot.fit.taken: pattern(kind.ask.form, spot.fit) for spot in mine.get(position, ())}
                for one in (*now.values(), *(one for one in found if one.fit.taken not in now)):
                    if one.fit.taken in now:
                        region.hint.append(len(region.columns))
                    costs = (*one.distances, *(0,) * (depth - len(one.distances)))
                    region.columns.append(Column(at, node, one.fit.taken, costs))
                    region.patterns.append(one)
        return region

    def _untouched(self, lot: _Lot, sorts: Sequence[Sequence[Sort]]) -> dict[tuple[object, ...], list[int]]:
        """Open nodes with something free on which nothing movable is, those that are equal for all kinds together."""
        index, free = self._ledger.pools[lot.pool.name].index, self._ledger.pools[lot.pool.name].free
        groups: dict[tuple[object, ...], list[int]] = {}
        for position, mask in enumerate(free):
            if mask and position not in lot.at and position not in index.closed:
                groups.setdefault(self._key(lot, sorts, position), []).append(position)
        return groups

    def _key(self, lot: _Lot, sorts: Sequence[Sequence[Sort]], position: int) -> tuple[Any, ...]:
        ledger = self._ledger.pools[lot.pool.name]
        return ledger.index.views[position].shape, ledger.free[position], *(sort[position] for sort in sorts)

    def _penalties(self, lot: _Lot, region: _Region) -> list[Penalty]:
        """What it costs to break up what is wholly free: the devices of it, by level. Not in large regions."""
        if len(region.columns) > COLUMNS // 4:
            return []
        ledger = self._ledger.pools[lot.pool.name]
        by_node: dict[int, list[int]] = {}
        for at, column in enumerate(region.columns):
            by_node.setdefault(column.node, []).append(at)
        found = []
        for node, columns in by_node.items():
            position = region.positions[node]
            free = ledger.free[position] | lot.taken(position)
            for level, scope in enumerate(ISLAND_SCOPES):
                for island in ledger.index.views[position].shape.wiring.islands[scope]:
                    touching = tuple(at for at in columns if region.columns[at].taken & island)
                    if touching and not island & ~free:
                        costs = [0] * len(ISLAND_SCOPES)
                        costs[level] = island.bit_count()
                        found.append(Penalty(touching, tuple(costs)))
        return found

    def _apply(self, lot: _Lot, region: _Region, chosen: Sequence[int], waiting: Sequence[Unit] = ()) -> None:
        """Gives the units of a region, and those that wait, the chosen places: who comes first the nearest. Whoever
        comes last waits when there are fewer than there were.
        """
        if set(chosen) == set(region.hint):
            return
        for units in region.units:
            for unit in units:
                self._lift(lot, unit)
        known, more = set(lot.units), set(waiting)
        for number, (kind, units) in enumerate(zip(region.kinds, region.units, strict=True)):
            mine = sorted(
                (region.columns[at].costs, region.positions[region.columns[at].node], region.columns[at].taken, at)
                for at in chosen
                if region.columns[at].kind == number
            )
            queue = sorted({*units, *(more & set(kind.units))}, key=lambda unit: unit.rank)
            for unit, (_, position, _, at) in zip(queue, mine, strict=False):
                self._put(lot, unit, Spot(position, region.patterns[at].fit))
            # Who comes first has a place before those of the kind that were not looked at.
            elsewhere = sorted({*kind.units} - {*queue}, key=lambda unit: unit.rank)
            for unit in queue[len(mine) :]:
                if elsewhere and elsewhere[-1].rank > unit.rank:
                    lot.put(unit, lot.lift(elsewhere.pop()))
            lot.units += (unit for unit in queue if unit.spot is not None and unit not in known)

    def _lift(self, lot: _Lot, unit: Unit) -> Spot:
        spot = lot.lift(unit)
        self._ledger.give_back(lot.pool.name, spot.position, spot.fit.taken)
        return spot

    def _put(self, lot: _Lot, unit: Unit, spot: Spot) -> None:
        self._ledger.take(lot.pool.name, spot.position, spot.fit.taken)
        lot.put(unit, spot)

    def _free(self, lot: _Lot) -> list[int]:
        return self._ledger.pools[lot.pool.name].free


def _bare(state: State) -> State:
    """The state without what others want."""
    shape, sort, free = state
    return shape, sort.bare or sort, free


def _same(ask: Ask) -> object:
    """Equal for replicas that ask the same."""
    return ask.form, ask.question


def _kinds(units: Iterable[Unit], split: bool = False) -> list[_Kind]:
    """Units that ask the same, in order of service; with `split` only those of one priority and tenant together."""
    kinds: dict[object, _Kind] = {}
    for unit in sorted(units, key=lambda unit: unit.rank):
        key = (_same(unit.ask), unit.level, unit.claim.tenant) if split else _same(unit.ask)
        kinds.setdefault(key, _Kind(unit.ask)).units.append(unit)
    return list(kinds.values())


def _worth(region: _Region) -> list[Total]:
    """As many devices for each priority as there are."""
    terms: dict[int, list[tuple[int, int]]] = {}
    for at, column in enumerate(region.columns):
        terms.setdefault(region.kinds[column.kind].level, []).append((at, column.taken.bit_count()))
    hint = set(region.hint)
    return [(mine, sum(number for at, number in mine if at in hint), MERGED) for mine in terms.values()]


def _plus(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Level by level; missing levels are 0."""
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))


def _summed(costs: Iterable[tuple[tuple[int, ...] | None, _Kind]]) -> tuple[int, ...]:
    """The distances of all units, or of a kind's best times their number where that is given."""
    total: tuple[int, ...] = ()
    for best, kind in costs:
        for unit in kind.units:
            total = _plus(total, kind.cost(unit.place) if best is None else best)
    return total


def _gap(own: tuple[int, ...], best: tuple[int, ...]) -> float:
    """How much of the first sum of ranks that differs is more than it need be."""
    for mine, least in zip(own[::2], best[::2], strict=False):
        if mine != least:
            return max(0.0, (mine - least) / mine) if mine else 0.0
    return 0.0
