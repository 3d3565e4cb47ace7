"""Room for bundles of claims on hosts whose cards are free and whose processors or memory are used up.

In come what cards and hosts have left, bundles that have got a card each, and one that finds no host; out comes a place
for it, where some of the others change places: the hungrier of two bundles goes where the host has more to spare. Each
bundle keeps one card and no host gives more than it has. Steps are counted, so the work is bounded. Nothing here knows
claims or shares.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from adjoin_allocator.stock import Booleans, Integers

CHANGES = 6
"""How many bundles of a node change places at most for one more on it."""

NODES = 64
"""How many nodes are tried for one bundle."""


@dataclass(slots=True, eq=False)
class Ground:
    """Nodes, and the bundles of one card each that may change places.

    Attributes:
        host: By resource and node what is left.
        free: Cards that nobody has.
        usable: Which cards will do, by what is asked of them; bundles name a row of it.
        count: How many bundles there are.
    """

    host: Integers
    free: Booleans
    usable: Booleans
    count: int = 0
    _need: Integers = field(init=False)
    _row: Integers = field(init=False)
    """By bundle its row of `usable`, its node and its column."""

    def __post_init__(self) -> None:
        self._need = np.zeros((2, 64), dtype=np.int64)
        self._row = np.zeros((3, 64), dtype=np.int64)

    def enter(self, need: tuple[int, int], usable: int, position: int, column: int) -> int:
        """A bundle has this card, which is taken with what it needs of the host; returns its number."""
        if self.count == self._need.shape[1]:
            self._need = np.concatenate([self._need, np.zeros_like(self._need)], axis=1)
            self._row = np.concatenate([self._row, np.zeros_like(self._row)], axis=1)
        number, self.count = self.count, self.count + 1
        self._need[:, number], self._row[:, number] = need, (usable, position, column)
        self.host[:, position] -= need
        self.free[position, column] = False
        return number

    def place(self, number: int) -> tuple[int, int]:
        """Node and column of a bundle."""
        return int(self._row[1, number]), int(self._row[2, number])

    def squeeze(self, need: tuple[int, int], usable: int) -> int | None:
        """Enters a bundle on a free card, if others can make room for it on its host; None when they cannot."""
        asked = np.array(need)
        cards = self.free & self.usable[usable]
        nodes = np.flatnonzero(cards.any(axis=1))
        short = np.maximum(asked[:, None] - self.host[:, nodes], 0)
        for at in np.lexsort((nodes, short[1], short[0]))[:NODES].tolist():
            position = int(nodes[at])
            done: list[tuple[int, int]] = []
            while (self.host[:, position] < asked).any():
                change = self._change(position, asked - self.host[:, position]) if len(done) < CHANGES else None
                if change is None:
                    break
                self._swap(*change)
                done.append(change)
            else:
                return self.enter(need, usable, position, int(cards[position].argmax()))
            for change in reversed(done):
                self._swap(*change)
        return None

    def _change(self, position: int, short: Integers) -> tuple[int, int] | None:
        """A bundle of the node and one of another node that should change places, so that the node has more left: the
        least that suffices, else the most.
        """
        need, (usable, where, column) = self._need[:, : self.count], self._row[:, : self.count]
        spare = self.host[:, where]
        best: tuple[bool, int, int, int] | None = None
        for mine in np.flatnonzero(where == position).tolist():
            gain = need[:, mine][:, None] - need
            # No host may end with less than nothing, and the node not with less of what it is short of.
            able = (gain <= spare).all(axis=0) & (where != position)
            able &= (gain >= np.minimum(short - 1, 0)[:, None]).all(axis=0) & (gain[short > 0] >= 0).all(axis=0)
            able &= (gain[short > 0] > 0).any(axis=0)
            able &= self.usable[usable[mine], where, column]
            able &= self.usable[usable, position, column[mine]]
            others = np.flatnonzero(able)
            if not len(others):
                continue
            enough = (gain[:, others] >= short[:, None]).all(axis=0)
            lead = gain[int(short.argmax()), others]
            if enough.any():
                at = int(np.where(enough, lead, np.iinfo(np.int64).max).argmin())
                entry = (False, int(lead[at]), mine, int(others[at]))
            else:
                at = int(lead.argmax())
                entry = (True, -int(lead[at]), mine, int(others[at]))
            if best is None or entry < best:
                best = entry
        return None if best is None else best[2:]

    def _swap(self, one: int, other: int) -> None:
        """Two bundles change places."""
        places = self._row[1:, [other, one]]
        for number in (one, other):
            self.host[:, self._row[1, number]] += self._need[:, number]
        self._row[1:, [one, other]] = places
        for number in (one, other):
            self.host[:, self._row[1, number]] -= self._need[:, number]
