"""How many replicas nodes could hold, by counting devices: what a set of victims must bring at least.

In come an ask and a ledger, out come bounds: what counting refutes needs no search. Lines and host resources are not
looked at, so that a "yes" says nothing. Nothing is taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from adjoin_allocator.nodes import Sort
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.victims import Loss

UNBOUNDED: Final = 1 << 40
"""Replicas that need no devices at all: counting never refutes them."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a replica needs of one sort of node, by counting.

    Attributes:
        counts: So many devices of these: for each request, and for all requests for one device name together.
        kinds: The latter alone.
        union: All devices that it may have.
    """

    counts: tuple[tuple[int, int], ...]
    kinds: tuple[tuple[int, int], ...]
    union: int

    def met(self, free: int) -> bool:
        """Whether enough is free."""
        return all((mask & free).bit_count() >= count for count, mask in self.counts)

    def replicas(self, free: int) -> int:
        """How many replicas there are enough devices for."""
        return min([(mask & free).bit_count() // count for count, mask in self.counts], default=UNBOUNDED)

    def missing(self, free: int) -> int:
        """Devices that must come free at least."""
        return sum(max(0, count - (mask & free).bit_count()) for count, mask in self.kinds)

    def fewest(self, free: int, masks: Sequence[int]) -> int:
        """How many of these masks must come free at least."""
        fewest = 0
        for count, mask in self.counts:
            missing = count - (mask & free).bit_count()
            claims = 0
            for gain in sorted([(most & mask).bit_count() for most in masks], reverse=True):
                if missing <= 0:
                    break
                missing -= gain
                claims += 1
            fewest = max(fewest, claims)
        return fewest


def needs_of(ask: Ask, sort: Sort) -> Needs:
    """What a replica of the ask needs of nodes of a sort."""
    counts: list[tuple[int, int]] = []
    kinds: dict[str, tuple[int, int]] = {}
    union = 0
    for request, mask in zip(ask.requests, sort.eligible, strict=True):
        count = mask.bit_count() if request.all_devices else request.count
        before = kinds.get(request.kind, (0, 0))
        kinds[request.kind] = (before[0] + count, before[1] | mask)
        # Of nothing all is not enough.
        counts.append((max(1, count), mask))
        union |= mask
    together = tuple(kinds.values())
    return Needs(tuple(dict.fromkeys((*counts, *together))), together, union)


class Headcount:
    """Whether there are enough devices for so many replicas once some losses are gone, in the ledger as it stands."""

    def __init__(
        self,
        placer: Placer,
        ask: Ask,
        replicas: int,
        needs: Callable[[Sort], Needs],
        offered: Callable[[int], int],
    ) -> None:
        """`offered`: by position what could come free at most. With 0 replicas everything is enough."""
        self._replicas = replicas
        self._pool = placer.ledger.pools[ask.pool]
        self._offered = offered
        classes = placer.states(ask).classes
        self._needs = [needs(sort) for sort in classes.sorts(ask.question)]
        self._class_of = classes.of
        self._known: dict[tuple[int, int], int] = {}
        self._base = 0
        if replicas:
            states = placer.states(ask)
            for number in states.open:
                kind = states.kinds[number]
                self._base += self._needs[kind.number].replicas(kind.masks.free) * len(states.members[number])

    def enough(self, losses: Iterable[Loss]) -> bool:
        """Whether counting allows the replicas when these are gone."""
        return not self._replicas or self._base + self._more(_masks(losses)) >= self._replicas

    def beside(self, losses: Iterable[Loss]) -> Callable[[Loss], bool]:
        """Whether counting allows them when one more is gone than these; of a claim that is not among them."""
        if not self._replicas:
            return lambda one: True
        gone = _masks(losses)
        short = self._replicas - self._base - self._more(gone)

        def reaches(one: Loss) -> bool:
            more = 0
            for position, mask in _masks([one]).items():
                before = gone.get(position, 0)
                more += self._gain(position, before | mask) - self._gain(position, before)
            return more >= short

        return reaches

    def _more(self, masks: dict[int, int]) -> int:
        return sum([self._gain(position, mask) for position, mask in masks.items()])

    def _gain(self, position: int, mask: int) -> int:
        """How many replicas more a node could hold if these devices came free."""
        found = self._known.get((position, mask))
        if found is None:
            pool, found = self._pool, 0
            if position not in pool.index.closed:
                needs, free = self._needs[self._class_of[position]], pool.open[position]
                found = needs.replicas(free | mask & self._offered(position)) - needs.replicas(free)
            self._known[position, mask] = found
        return found


def _masks(losses: Iterable[Loss]) -> dict[int, int]:
    """By position what comes free at most: of a device that others have parts of too, all of it."""
    masks: dict[int, int] = {}
    for loss in losses:
        for position, mask in loss.places:
            masks[position] = masks.get(position, 0) | mask
        for position, bit, _ in loss.parts:
            masks[position] = masks.get(position, 0) | 1 << bit
    return masks
