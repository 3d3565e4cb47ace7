"""What is placed together or not at all, and what came of it.

A `Unit` is one replica of a claim, or the members of a gang. Whoever makes it says how it is placed in a ledger as it
stands; whoever serves it knows quotas, promises and victims. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from adjoin_allocator.model import Claim, Nomination
from adjoin_allocator.place import Ask
from adjoin_allocator.preemption import Attempt
from adjoin_allocator.results import Placement, Reason
from adjoin_allocator.tenancy import Cost, least_cost

Lesser = Callable[[Callable[[Cost], bool]], Iterator[Attempt]]
"""Ways of placing less of a unit, the most first, for a quota that says which costs it allows."""


def nothing_less(affordable: Callable[[Cost], bool]) -> Iterator[Attempt]:
    """The unit is placed as it is or not at all."""
    del affordable
    yield from ()


@dataclass(slots=True, eq=False)
class Unit:
    """What is placed together or not at all.

    Attributes:
        asks: Ways of serving a replica, the most wanted first.
        indexes: Replicas that it may place.
        attempt: Places it in the ledger as it stands, as well as can be, or leaves the ledger alone and says None.
        least: The same for asking what would be: places the fewest replicas that it accepts.
        members: How many replicas it needs at least.
        single: One replica on one node, whose devices are all that matters: its victims are on that node.
        lesser: What is tried when a quota forbids what `attempt` has placed.
    """

    claim: Claim
    asks: tuple[Ask, ...]
    indexes: tuple[int, ...]
    attempt: Attempt
    least: Attempt
    members: int = 1
    single: bool = True
    lesser: Lesser = nothing_less
    need: Cost = field(init=False)
    """What it costs its tenant at least."""

    def __post_init__(self) -> None:
        one = least_cost(self.claim.requests, self.asks[0].portions if self.asks else ())
        self.need = one if self.members == 1 else {kind: milli * self.members for kind, milli in one.items()}

    @property
    def pool(self) -> str:
        """The pool it asks."""
        return self.claim.pool

    @property
    def divides(self) -> bool:
        """Whether some way takes parts of devices."""
        return any(request.share for ask in self.asks for request in ask.requests)

    @property
    def countable(self) -> int:
        """How many replicas it needs at least of its only way; 0 with several ways, or with parts: then counting
        devices for one way says nothing.
        """
        return self.members if len(self.asks) == 1 and not self.divides else 0

    @property
    def several(self) -> bool:
        """Whether it needs several devices together, so that others can keep it waiting by taking one at a time."""
        asked = sum(2 if request.all_devices else max(1, request.count) for request in self.claim.requests)
        return self.claim.gang_min is not None or asked * self.members > 1


@dataclass(frozen=True, slots=True)
class Served:
    """What came of a unit: its places, or what is held for it, or what its quota says and how much would do."""

    placements: tuple[Placement, ...] = ()
    nominated: tuple[Nomination, ...] = ()
    reasons: tuple[Reason, ...] = ()
    remedy: str | None = None
