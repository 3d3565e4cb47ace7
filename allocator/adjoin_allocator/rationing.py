"""Which nodes of a gang may divide how many whole cards, where a share says how many in all (`maxDevices`).

In come the nodes with what they hold when each of them may divide as many as the share has left, the fabric tree and a
wish; out come nodes with a limit of their own each, so that together they keep the share's. Nothing is taken here.

A node holds the more members, the more cards it may divide: a knapsack over the nodes of a domain says how many members
its cards are good for, exactly. The smallest domain with the most members gets all of them. Steps are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from adjoin_allocator.apart import TooMany
from adjoin_allocator.card_seats import Bench, CardSeats
from adjoin_allocator.ground import Ground
from adjoin_allocator.spread import Wish

STEPS = 200_000
"""So many steps it may take."""

Openings = tuple[tuple[str, int], ...]
"""By share how many whole cards."""

_State = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Rationing:
    """The search for one gang.

    Attributes:
        keys: By position of a node that holds a member what it is with all that the shares have left.
    """

    seats: CardSeats
    ground: Ground
    wish: Wish
    keys: Mapping[int, Bench]
    steps: int = 0
    _gains: dict[tuple[Bench, int], list[tuple[_State, int]]] = field(default_factory=dict)

    @property
    def limits(self) -> Openings:
        """What the shares have left."""
        return tuple(sorted(self.seats.openings.items()))

    def best(self) -> dict[int, Bench]:
        """By position the nodes to use.

        Raises:
            TooMany: The search took too many steps.
        """
        best: tuple[int, dict[int, Bench]] = (0, {})
        for level in range(self.wish.required, self.ground.depth + 1):
            found = [self._allot(nodes) for nodes in self._domains(level)]
            most = max(found, key=lambda each: each[0], default=best)
            if level > self.wish.required and most[0] < best[0]:
                break
            best = most
        return best[1]

    def _domains(self, level: int) -> Iterator[list[int]]:
        """Nodes by domain of a level in which members may lie: with those in place, and where a required one is."""
        ground, wish = self.ground, self.wish
        common = ground.common(level)
        over, domains = ground.tree.domains(wish.required), ground.tree.domains(level)
        found: dict[int, list[int]] = {}
        for position in map(int, np.flatnonzero(ground.room)):
            where = int(domains[position])
            allowed = over[position] >= 0 if wish.inside is None else over[position] == wish.inside
            if where >= 0 and allowed and (common is None or where == common):
                found.setdefault(where, []).append(position)
        yield from (found[where] for where in sorted(found))

    def _allot(self, nodes: Sequence[int]) -> tuple[int, dict[int, Bench]]:
        """How many members these nodes hold, up to what is wished, and with which limits."""
        none, most = (0,) * len(self.limits), tuple(left for _, left in self.limits)
        members, chosen = 0, dict[int, Bench]()
        reached: dict[_State, tuple[int, tuple[tuple[int, _State], ...]]] = {none: (0, ())}
        seen: dict[tuple[Bench, int], int] = {}
        for position in nodes:
            key = (self.keys[position], self.ground.rooms[position])
            gains = self._gain(*key)
            bare = gains[0][1]
            if bare:
                members += bare
                chosen[position] = self._limited(self.keys[position], none)
            seen[key] = seen.get(key, 0) + 1
            if len(gains) == 1 or seen[key] > sum(most):
                continue
            new = dict(reached)
            for used, (gained, where) in reached.items():
                for opened, capacity in gains[1:]:
                    self.steps += 1
                    if self.steps > STEPS:
                        raise TooMany
                    now = tuple(one + other for one, other in zip(used, opened, strict=True))
                    if any(one > limit for one, limit in zip(now, most, strict=True)):
                        continue
                    total = gained + capacity - bare
                    if now not in new or total > new[now][0]:
                        new[now] = (total, (*where, (position, opened)))
            reached = new
        wanted = self.wish.number
        enough = max(min(wanted, members + gained) for gained, _ in reached.values())
        used = min(used for used, (gained, _) in reached.items() if members + gained >= enough)
        for position, opened in reached[used][1]:
            chosen[position] = self._limited(self.keys[position], opened)
        return enough, chosen

    def _gain(self, key: Bench, room: int) -> list[tuple[_State, int]]:
        """Numbers of cards that a node may divide with the members it then holds, as far as more cards are of use."""
        found = self._gains.get((key, room))
        if found is None:
            found = []
            ranges = [range(min(left, key.shape.size) + 1) for _, left in self.limits]
            for opened in sorted(product(*ranges), key=lambda each: (sum(each), each)):
                self.steps += 1
                capacity = min(room, self.seats.capacity(self._limited(key, opened)))
                smaller = (
                    held for other, held in found if all(one <= two for one, two in zip(other, opened, strict=True))
                )
                if not found or capacity > max(smaller, default=0):
                    found.append((opened, capacity))
            self._gains[key, room] = found
        return found

    def _limited(self, key: Bench, opened: _State) -> Bench:
        return replace(key, openings=tuple((name, own) for (name, _), own in zip(self.limits, opened, strict=True)))
