"""How a replica, or the members of a gang, are placed in the ledger as it stands: what a `Unit` is tried with.

In come a decision under way (`Walk`) and what is asked; each call takes a place and says where, or leaves the ledger
alone and says None. Quotas, promises and victims are for whoever calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adjoin_allocator.arbiter import Arbiter
from adjoin_allocator.batch import Batch
from adjoin_allocator.demand import Round, Want
from adjoin_allocator.fabric import FabricTree
from adjoin_allocator.fit import Obstacle
from adjoin_allocator.gang import arrange
from adjoin_allocator.lot import Unit as Movable
from adjoin_allocator.members import Gang
from adjoin_allocator.model import Claim
from adjoin_allocator.place import Ask, Effort, Placer, Spot
from adjoin_allocator.results import Placement
from adjoin_allocator.seats import SeatMemo
from adjoin_allocator.tariff import best


class Walk(Protocol):
    """One decision under way."""

    placer: Placer
    arbiter: Arbiter
    seats: SeatMemo
    batch: Batch
    improved: bool
    """What was placed stays where it is from now on."""

    def movable(self, claim: Claim, ask: Ask, index: int) -> Movable:
        """A replica as the batch knows it."""

    def place(self, ask: Ask, index: int, spot: Spot) -> Placement:
        """Gives a replica the devices of a spot."""


@dataclass(slots=True, eq=False)
class Attempt:
    """Places a replica of one claim in the ledger as it stands, in the most wanted way that fits.

    Attributes:
        asks: The ways that are left: what does not fit now fits no later replica either.
        what_if: The ledger is another one each time, so that every way is tried anew and work counts for this try.
        obstacle: What kept it from every node when it was last tried.
    """

    run: Walk
    claim: Claim
    asks: tuple[Ask, ...]
    index: int
    several: bool
    demand: Round
    wanted: Want | None
    what_if: bool = False
    effort: Effort = field(init=False)
    left: list[Ask] = field(init=False)
    obstacle: Obstacle | None = None
    found: tuple[Movable, Spot] | None = None
    """What the last try placed, if it did."""
    made: tuple[Placement, ...] | None = None
    """The same as placements."""

    def __post_init__(self) -> None:
        if not self.what_if:
            self._begin()

    def __call__(self) -> tuple[Placement, ...] | None:
        self.found = self.made = None
        if self.what_if:
            self._begin()
        placer, beside = self.run.placer, self.demand.beside(self.wanted)
        while True:
            ask = self.left[0]
            movable = self.run.movable(self.claim, ask, self.index)
            answer = best(placer, ask, self.effort, beside)
            spot = answer if isinstance(answer, Spot) else self._room(movable, answer)
            if spot is not None:
                self.found, self.made = (movable, spot), (self.run.place(ask, self.index, spot),)
                return self.made
            if answer is Obstacle.LIMIT or len(self.left) == 1:
                self.obstacle = answer if isinstance(answer, Obstacle) else None
                return None
            del self.left[0]
            self.effort = Effort(self.effort.states, set() if self.several else None)

    def _room(self, movable: Movable, obstacle: Obstacle) -> Spot | None:
        """A place that there is once others have moved."""
        if obstacle is Obstacle.LIMIT or self.what_if or self.run.improved:
            return None
        # Where the number of devices depends on the node, a quota may take the place back.
        if not all(movable.ask.signature.counts) and self.run.arbiter.limited(self.claim):
            return None
        return self.run.batch.room(movable)

    def _begin(self) -> None:
        self.left, self.effort = list(self.asks), Effort(known=set() if self.several else None)


@dataclass(slots=True, eq=False)
class GangAttempt:
    """Places members of a claim together in the ledger as it stands.

    Attributes:
        states: Search states seen so far.
        limit: A search was given up when it was last tried.
    """

    run: Walk
    tree: FabricTree
    gang: Gang
    demand: Round
    wanted: Want | None
    states: int = 0
    limit: bool = False

    def __call__(self) -> tuple[Placement, ...] | None:
        run, gang = self.run, self.gang
        outcome = arrange(run.placer, run.seats, self.tree, gang, self.demand.beside(self.wanted))
        self.states, self.limit = self.states + outcome.states, outcome.limit
        return (
            tuple(
                run.place(gang.asks[member.seat.ask], member.index, Spot(member.position, member.seat.fit))
                for member in outcome.members
            )
            or None
        )


STARTS = 8
"""How often those who are placed first are placed elsewhere, when the others find no place beside them."""


@dataclass(slots=True, eq=False)
class Stepwise:
    """Places some members of a claim after others, all of them or nobody. Where the first leave the others no place, as
    on a network that is too small for all, their nodes are left out in the next try.

    Attributes:
        parts: Who is placed together, in order.
        beside: A part once placements stand.
    """

    run: Walk
    tree: FabricTree
    parts: Sequence[Gang]
    demand: Round
    wanted: Want | None
    beside: Callable[[Gang, Sequence[Placement]], Gang]

    def __call__(self) -> tuple[Placement, ...] | None:
        ledger, claim = self.run.placer.ledger, self.parts[0].claim
        pool = ledger.pools[claim.pool]
        avoided: set[int] = set()
        mark = ledger.checkpoint()
        for _ in range(STARTS):
            for position in sorted(avoided):
                ledger.take(claim.pool, position, pool.free[position])
            placements = self._placed()
            ledger.roll_back(mark)
            if len(placements) == sum(len(part.missing) for part in self.parts):
                for placement in placements:
                    ledger.take_placement(claim.pool, placement, claim)
                return placements
            if not placements:
                break
            avoided |= {pool.index.position[placement.node] for placement in placements}
        return None

    def _placed(self) -> tuple[Placement, ...]:
        """Those who find a place, part by part, until one does not."""
        placements: tuple[Placement, ...] = ()
        for part in self.parts:
            left = self.beside(part, placements) if placements else part
            found = GangAttempt(self.run, self.tree, left, self.demand, self.wanted)()
            if found is None or len(found) < len(part.missing):
                break
            placements += found
        return placements
