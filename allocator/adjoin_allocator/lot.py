"""What one decision has placed in a pool and may still move.

In come replicas as the walk places them; a `Lot` knows where they are, moves them in the ledger, and tells what nodes
would be like without them. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from adjoin_allocator.cost import distances
from adjoin_allocator.fit import Fit, Form
from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.joint import Budget
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Claim
from adjoin_allocator.nodes import State
from adjoin_allocator.patterns import Meter, Pattern, patterns
from adjoin_allocator.place import Ask, Placer, Spot

STEPS = 5
"""Searches for candidate patterns, for each millisecond of the pool's budget."""


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


def alone(claim: Claim) -> bool:
    """Whether neither a gang, nor a network, nor a line over all of them ties the claim's replicas together."""
    free = claim.gang_min is None and not claim.fabric.required and not claim.fabric.preferred
    free = free and claim.fabric.segment is None
    return free and not (claim.affinity and any(line.over_gang for line in claim.affinity))


def independent(claim: Claim) -> bool:
    """Whether replicas of the claim stand for themselves: one may be moved without a look at the others, or at anything
    but devices.
    """
    if claim.host is not NOTHING and claim.host != NOTHING:
        return False
    for request in claim.requests:
        if request.share or request.first_of:
            return False
    return alone(claim)


@dataclass(slots=True, eq=False)
class Kind:
    """Replicas that ask the same: who of them gets which place is all one. In order of service."""

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

    def cost(self, fit: Fit) -> tuple[int, ...]:
        """Distances of a choice of this kind."""
        return distances(self.ask.signature, fit.objective)

    @property
    def farthest(self) -> tuple[int, ...]:
        """The greatest distances of those who have a place."""
        return max(self.cost(unit.place.fit) for unit in self.units)


def kinds(units: Iterable[Unit], split: bool = False) -> list[Kind]:
    """Units that ask the same, in order of service; with `split` only those of one priority and tenant together."""
    found: dict[object, Kind] = {}
    for unit in sorted(units, key=lambda unit: unit.rank):
        key = (same(unit.ask), unit.level, unit.claim.tenant) if split else same(unit.ask)
        found.setdefault(key, Kind(unit.ask)).units.append(unit)
    return list(found.values())


def same(ask: Ask) -> object:
    """Equal for replicas that ask the same."""
    return ask.form, ask.question


class Lot:
    """Movable units of one pool.

    Attributes:
        at: By position who is there.
        units: All that have been given a place, in the order in which they were.
        waiting: Those for which the walk has found none.
        walked: Where the walk placed each of them.
        refused: What did not fit and cannot be made to, and whether that is proven. It stays so, since the walk only
            ever places more.
        unsure: Devices of replicas that wait without such a proof.
        gap: What is known of the whole when it has been improved.
        loosened: Something came free after some had been placed.
    """

    def __init__(self, name: str, ledger: Ledger, placer: Placer) -> None:
        self.ledger = ledger
        self.placer = placer
        self.nodes = ledger.pools[name]
        self.pool = self.nodes.index.pool
        self.budget = Budget.of(self.pool.optimise_milliseconds)
        self.meter = Meter(STEPS * self.pool.optimise_milliseconds)
        self.at: dict[int, list[Unit]] = {}
        self.units: list[Unit] = []
        self.waiting: list[Unit] = []
        self.walked: dict[Unit, Spot] = {}
        self.refused: dict[object, bool] = {}
        self._patterns: dict[tuple[Form, State, int], tuple[list[Pattern], bool]] = {}
        self.unsure = 0
        self.gap = 0.0
        self.loosened = False

    @property
    def placed(self) -> list[Unit]:
        """Those who have a place."""
        return [unit for unit in self.units if unit.spot is not None]

    @property
    def spare(self) -> int:
        """How many devices of the pool are left over."""
        closed = self.nodes.index.closed
        return sum(mask.bit_count() for position, mask in enumerate(self.nodes.free) if position not in closed)

    @property
    def varying(self) -> list[Unit]:
        """Those who take all that there is on a node, so that it depends on the node how much that is."""
        return [unit for unit in self.units if not all(unit.ask.signature.counts)]

    def enter(self, unit: Unit) -> None:
        """The walk has given a unit its place; the ledger knows."""
        self.units.append(unit)
        self.walked[unit] = unit.place
        self.at.setdefault(unit.place.position, []).append(unit)

    def put(self, unit: Unit, spot: Spot) -> None:
        """Gives a unit free devices."""
        self.ledger.take(self.pool.name, spot.position, spot.fit.taken)
        unit.spot = spot
        self.at.setdefault(spot.position, []).append(unit)

    def lift(self, unit: Unit) -> Spot:
        """Takes a unit's devices from it."""
        spot = self._leave(unit)
        self.ledger.give_back(self.pool.name, spot.position, spot.fit.taken)
        return spot

    def hand_over(self, unit: Unit, other: Unit) -> None:
        """`other` gets the place of `unit`."""
        other.spot = self._leave(unit)
        self.at.setdefault(other.spot.position, []).append(other)

    def free(self, position: int) -> int:
        """What would be free on a node if nothing movable was there, as part of a state."""
        mask = self.nodes.open[position]
        for unit in self.at.get(position, ()):
            mask |= unit.place.fit.taken
        return mask

    def movable(self, position: int) -> int:
        """How many devices of a node could be had by moving."""
        return sum(unit.place.fit.taken.bit_count() for unit in self.at.get(position, ()))

    def state(self, ask: Ask, position: int, free: int) -> State:
        """A node with these devices free, as the ask sees it."""
        return self.nodes.index.views[position].shape, self.placer.sort(ask, position), free

    def best(self, ask: Ask, position: int) -> Fit | None:
        """The best choice on a node if nothing movable was there."""
        answer = self.placer.fitter.fit(ask.form, self.state(ask, position, self.free(position)))
        return answer if isinstance(answer, Fit) else None

    def patterns(self, ask: Ask, position: int, bound: int, meter: Meter) -> tuple[list[Pattern], bool]:
        """Candidate patterns on a node if nothing movable was there, at most so many, and whether these are all. What
        was found once is found again without further work.
        """
        state = self.state(ask, position, self.free(position))
        key = (ask.form, state, bound)
        if key not in self._patterns:
            self._patterns[key] = patterns(self.placer.fitter, ask.form, state, bound, meter)
        return self._patterns[key]

    def targets(self, ask: Ask) -> list[int]:
        """Nodes where a replica would fit if nothing movable was there, those first where least has to go."""
        fits = self.placer.fitter.fits
        found = [(self.movable(at), at) for at in self.at if fits(ask.form, self.state(ask, at, self.free(at)))]
        return [position for _, position in sorted(found)]

    def _leave(self, unit: Unit) -> Spot:
        spot, unit.spot = unit.place, None
        here = self.at[spot.position]
        here.remove(unit)
        if not here:
            del self.at[spot.position]
        return spot
