"""How many members of a gang each domain of a fabric holds.

In come a fabric tree, by node how many more members it holds and how many of the gang are there already; out come sums
by domain, made once for each level. Nothing here knows devices, or what is wished.
"""

from __future__ import annotations

import numpy as np

from adjoin_allocator.fabric import FabricTree, Integers


class Ground:
    """Capacities of a tree, added up by domain."""

    def __init__(self, tree: FabricTree, room: Integers, held: Integers) -> None:
        self.tree = tree
        self.room = room
        self.held = held
        self.depth = len(tree.layers)
        self.held_at = np.flatnonzero(held)
        self.rooms: list[int] = room.tolist()
        self._totals: dict[int, Integers] = {}
        self._first: dict[int, Integers] = {}
        self._uses: dict[int, frozenset[int]] = {}

    def totals(self, level: int) -> Integers:
        """By domain how many more members its nodes hold."""
        found = self._totals.get(level)
        if found is None:
            domains = self.tree.domains(level)
            known = domains >= 0
            found = np.zeros(self.tree.size(level), dtype=np.int64)
            np.add.at(found, domains[known], self.room[known])
            self._totals[level] = found
        return found

    def first(self, level: int) -> Integers:
        """By domain the position of its first node."""
        found = self._first.get(level)
        if found is None:
            domains = self.tree.domains(level)
            found = np.zeros(self.tree.size(level), dtype=np.int64)
            known = np.flatnonzero(domains >= 0)[::-1]
            found[domains[known]] = known
            self._first[level] = found
        return found

    def above(self, level: int, domain: int, upper: int) -> int:
        """The domain of a coarser level that a domain lies in; -1 for none."""
        return int(self.tree.domains(upper)[self.first(level)[domain]])

    def common(self, level: int) -> int | None:
        """The domain of the level in which all members in place lie: None when there are none, -1 when there is no
        such domain.
        """
        if not len(self.held_at):
            return None
        domains = self.tree.domains(level)[self.held_at]
        return int(domains[0]) if int(domains.min()) == int(domains.max()) else -1

    def uses(self, level: int) -> frozenset[int]:
        """Domains of the level with members in place."""
        found = self._uses.get(level)
        if found is None:
            found = self._uses[level] = frozenset(map(int, self.tree.domains(level)[self.held_at]))
        return found
