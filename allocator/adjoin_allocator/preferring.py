"""How many members of a gang go to each node so that as many as can be are served in the better ways (`firstOf`).

In come a fabric tree, by node how many members it holds, and by node and number of members in which ways these are
served; out come numbers of members by node. Of all ways to spread so many members those come first that serve the most
in the best way, then in the second, and so on; then the smallest domain, fewest nodes, and least left over on these.
This is a knapsack over the nodes of a domain. Nothing here knows devices, and nothing is placed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from adjoin_allocator.fabric import FabricTree, Integers
from adjoin_allocator.ground import Ground

STEPS = 100_000
"""Looks at a node with some number of members, over which nothing is said."""

CELLS = 20_000_000
"""Likewise numbers that are kept: nodes times members."""

_MOST = 1 << 62

Ways = Callable[[int, int], Sequence[int]]
"""By position and number of members how many of these are served in each way, the best first."""


@dataclass(slots=True, eq=False)
class Preference:
    """One gang on one ground.

    Attributes:
        number: Members to be spread.
        required: Level of which all lie in one domain.
        inside: A domain of that level that it must be, or None.
        count: How many ways there are.
    """

    tree: FabricTree
    ground: Ground
    number: int
    required: int
    inside: int | None
    count: int
    ways: Ways
    _values: dict[tuple[int, int], int] = field(default_factory=dict)

    def best(self) -> Mapping[int, int] | None:
        """By position how many members it gets; None where that would be too much work."""
        room = np.minimum(self.ground.room, self.number)
        nodes = np.flatnonzero(room)
        levels = self.ground.depth + 1 - self.required
        over = int(room[nodes].sum()) + 1
        worth = self.value([self.number, *(0 for _ in range(self.count - 1))])
        if worth * over * (len(nodes) + 1) >= _MOST or len(nodes) * self.number > CELLS:
            return None
        if int((room[nodes] + 1).sum()) * levels > STEPS:
            return None
        found = self._at(self.required, room)
        if not found:
            return None
        wanted = max(value for value, _ in found.values())
        for level in range(self.ground.depth, self.required - 1, -1):
            here = found if level == self.required else self._at(level, room)
            fitting = [domain for domain, (value, _) in here.items() if value == wanted]
            if fitting:
                totals = self.ground.totals(level)
                _, domain = min((int(totals[domain]), domain) for domain in fitting)
                return here[domain][1]
        return None

    def value(self, ways: Sequence[int]) -> int:
        """So many members in each way as one number; the last way counts nothing."""
        total = 0
        for number in ways[: self.count - 1]:
            total = total * (self.number + 1) + number
        return total

    def _at(self, level: int, room: Integers) -> dict[int, tuple[int, Mapping[int, int]]]:
        """By domain of a level that takes all members what they are worth there, and how many go to each node."""
        domains = self.tree.domains(level)
        # Who is in place lies in the domain, too.
        common = self.ground.common(level)
        found: dict[int, tuple[int, Mapping[int, int]]] = {}
        for domain in np.flatnonzero(self.ground.totals(level) >= self.number).tolist():
            if common is not None and common != domain:
                continue
            nodes = np.flatnonzero((domains == domain) & (room > 0)).tolist()
            if self.inside is not None and self.tree.domains(self.required)[nodes[0]] != self.inside:
                continue
            if int(room[nodes].sum()) >= self.number:
                found[domain] = self._spread(nodes, room)
        return found

    def _spread(self, nodes: Sequence[int], room: Integers) -> tuple[int, Mapping[int, int]]:
        """The best numbers for these nodes, which hold all members together."""
        number = self.number
        left = int(room[nodes].sum()) + 1
        each = left * (len(nodes) + 1)
        impossible = -_MOST
        score = np.full(number + 1, impossible, dtype=np.int64)
        score[0] = 0
        chosen = np.zeros((len(nodes), number + 1), dtype=np.int16)
        for place, position in enumerate(nodes):
            most = int(room[position])
            after = score.copy()
            for members in range(1, most + 1):
                gain = self._value(position, members) * each - left - (most - members)
                with_them = np.where(score[: number + 1 - members] > impossible, score[:-members] + gain, impossible)
                better = with_them > after[members:]
                after[members:][better] = with_them[better]
                chosen[place, members:][better] = members
            score = after
        total, numbers, rest = 0, dict[int, int](), number
        for place in range(len(nodes) - 1, -1, -1):
            here = int(chosen[place, rest])
            if here:
                numbers[nodes[place]] = here
                total += self._value(nodes[place], here)
                rest -= here
        return total, numbers

    def _value(self, position: int, members: int) -> int:
        key = (position, members)
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = self.value(self.ways(position, members))
        return found
