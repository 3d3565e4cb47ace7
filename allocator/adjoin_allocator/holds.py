"""What is held for whom during a decision: devices that a preemptor was promised, and those that a claim reserved.

In come `Held`s, out comes a ledger in which their free devices are taken, so that nobody else gets them, and for every
node what is held at all, free or still with somebody else. Nothing here chooses; a decision ends by lifting everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Claim, Nomination
from adjoin_allocator.tenancy import Cost
from adjoin_allocator.topology import bits


@dataclass(slots=True, eq=False)
class Held:
    """Devices of one pool that are held for a claim.

    Attributes:
        meant: By position the devices, whether free or not.
        cost: What they cost a tenant that gets them.
        nominations: What a preemptor was promised; empty for a reservation.
        fresh: Promised in this decision, for which others have just been sent away.
        needed_at: When a reservation is needed at the latest, seconds since the epoch; infinity when nobody knows.
        taken: By position what of it is kept from others now.
    """

    claim: Claim
    pool: str
    meant: Mapping[int, int]
    cost: Cost
    nominations: tuple[Nomination, ...] = ()
    needed_at: float = inf
    fresh: bool = False
    taken: dict[int, int] = field(default_factory=dict)

    @property
    def reservation(self) -> bool:
        """Whether nobody was sent away for it."""
        return not self.nominations


class Holds:
    """Everything that is held, by pool."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pools: dict[str, list[Held]] = {}

    def of(self, pool: str) -> list[Held]:
        """What is held in a pool, in the order in which it came."""
        return self._pools.get(pool, [])

    def put(self, held: Held) -> None:
        """Holds it from now on."""
        self._pools.setdefault(held.pool, []).append(held)
        self.shut([held])

    def drop(self, held: Held) -> None:
        """Holds it no longer."""
        self.open([held])
        held.taken = {}
        self._pools[held.pool].remove(held)

    def open(self, helds: Iterable[Held]) -> None:
        """Lets others have what is free of it, until it is shut again or the ledger rolls back."""
        for held in helds:
            for position, mask in held.taken.items():
                self._ledger.give_back(held.pool, position, mask)

    def shut(self, helds: Iterable[Held]) -> None:
        """Keeps from others what is free of it."""
        for held in helds:
            free = self._ledger.pools[held.pool].free
            held.taken = {position: mask & free[position] for position, mask in held.meant.items()}
            held.taken = {position: mask for position, mask in held.taken.items() if mask}
            for position, mask in held.taken.items():
                self._ledger.take(held.pool, position, mask)

    def intact(self, held: Held) -> bool:
        """Whether nobody has taken any of it since it was opened."""
        free = self._ledger.pools[held.pool].free
        return all(mask & ~free[position] == 0 for position, mask in held.taken.items())

    def bound(self, pool: str, mine: Claim | None = None) -> dict[int, int]:
        """By position what is held, free or not, for others than the claim `mine`."""
        found: dict[int, int] = {}
        for held in self.of(pool):
            for position, mask in held.meant.items() if held.claim is not mine else ():
                found[position] = found.get(position, 0) | mask
        return found

    def lift(self) -> dict[str, dict[str, int]]:
        """Ends all of it; by pool and device name how many free devices were held."""
        counts: dict[str, dict[str, int]] = {}
        for pool, helds in self._pools.items():
            here = counts.setdefault(pool, {})
            ledger = self._ledger.pools[pool]
            index, before = ledger.index, ledger.counts()
            for held in list(helds):
                for position, mask in held.taken.items():
                    devices = index.views[position].devices
                    for bit in bits(mask):
                        here[devices[bit].kind] = here.get(devices[bit].kind, 0) + 1
                self.drop(held)
            if index.counted:
                # A card of which some is held counts once, under each of its names.
                freed = ((kind, now.free - before[kind].free) for kind, now in ledger.counts().items())
                counts[pool] = {kind: number for kind, number in freed if number}
        return counts
