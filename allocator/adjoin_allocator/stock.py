"""The cards of one kind of a pool as arrays: what is left of each, of the parts in use, and of their hosts.

In come what is free, which parts are held and what hosts have left, node by node as it changes; out come arrays with a
row a node and a column a card, and a log of the rows that changed. Nothing here knows claims, or chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.model import Share
from adjoin_allocator.sharing import MILLI, Part, left_milli, shareable_bytes

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

NO_LIMIT = 1 << 50
"""What a host without known limits has of everything."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a replica asks for of one kind of card and of the host.

    Attributes:
        count: Whole cards, or parts.
        share: The DeviceShare of the parts; empty for whole cards.
        part: What each part is; None for whole cards.
        together: All parts come from one card.
        only: Which cards will do: index of a row of the stock's eligibility; 0 is all of them.
        cpu_milli: Thousandths of a core.
        memory_kib: Host memory, rounded up.
    """

    count: int
    share: str = ""
    part: Part | None = None
    together: bool = False
    only: int = 0
    cpu_milli: int = 0
    memory_kib: int = 0

    @property
    def parts(self) -> int:
        """From how many cards parts are taken."""
        return 0 if self.part is None else 1 if self.together else self.count

    @property
    def of_each(self) -> Part:
        """What is taken of each of these cards."""
        assert self.part is not None
        return self.part.times(self.count) if self.together else self.part


Used = tuple[int, int, int, int, bool]
"""What is in use of a card in a mode: its column, index of the share, bytes, thousandths; whether parts of it may be
given to somebody."""

Row = tuple[int, tuple[Used, ...], int, int]
"""A node: which columns are free as wholes, as bits; divided cards; thousandths of a core and KiB that are left."""


class Stock:
    """The cards of one kind of a pool and the hosts they sit in: a row a node, a column a card.

    Attributes:
        selected: By share the cards that it may divide.
        in_mode: By share how many cards it divides.
        standing: 0 for cards of which nothing can be given, 1 for free ones, above that the share of usable parts.
        place: By class and thousandths left: where a card stands in a table of these.
        whole: Free cards of each node.
        spread: By number of free cards how many nodes have so many.
        host: What is left of each host: thousandths of cores, KiB of memory.
        heavy: How many cards have memory in use by parts.
        log: Nodes that have changed, in the order in which they did.
    """

    def __init__(self, memory: Sequence[Sequence[int]], shares: Sequence[Share]) -> None:
        """`memory` has the bytes of each card by node, 0 where they are not known. Nothing is free, no share divides
        anything and no host has a limit, until that is said.
        """
        rows, columns = len(memory), max((len(row) for row in memory), default=0)
        self.shape = (rows, columns)
        sizes = sorted({size for row in memory for size in row})
        self.sizes = sizes
        self.exists = np.zeros(self.shape, dtype=bool)
        self.klass = np.zeros(self.shape, dtype=np.int64)
        for at, row in enumerate(memory):
            self.exists[at, : len(row)] = True
            self.klass[at, : len(row)] = [sizes.index(size) for size in row]
        self.shares = tuple(shares)
        self.share_at = {share.name: at for at, share in enumerate(shares)}
        self._caps = [[shareable_bytes(share, size) for size in sizes] for share in shares]
        self.caps = np.array(self._caps, dtype=np.int64).reshape(len(shares), len(sizes))
        self._classes: list[list[int]] = self.klass.tolist()
        self.selected = [np.zeros(self.shape, dtype=bool) for _ in shares]
        self.in_mode = [0] * len(shares)
        self.standing = np.zeros(self.shape, dtype=np.int64)
        self.place = self.klass * (MILLI + 1)
        self.whole = np.zeros(rows, dtype=np.int64)
        self.spread: dict[int, int] = {0: rows}
        self.host = np.full((2, rows), NO_LIMIT, dtype=np.int64)
        self.closed = np.zeros(rows, dtype=bool)
        self.heavy = 0
        self.log: list[int] = []
        self.eligible: list[Booleans] = [self.exists]
        nothing: Row = (0, (), NO_LIMIT, NO_LIMIT)
        self._known = [nothing] * rows
        """By node what was put there last."""
        self._cards = [([0] * columns, each) for each in self.place.tolist()]
        self._used = np.zeros((3, rows, columns), dtype=np.int64)
        self._used[0] = -1
        self._stale: set[int] = set()
        """Nodes of which that is not in `_used` yet."""
        self._masks: dict[tuple[str, int], Booleans | None] = {}

    def put(self, position: int, row: Row) -> None:
        """What a node has now."""
        before = self._known[position]
        if before == row:
            return
        self._known[position] = row
        free, used, self.host[0, position], self.host[1, position] = row
        self.log.append(position)
        if before[0] == free and before[1] == used:
            return
        classes = self._classes[position]
        standing = [free >> column & 1 for column in range(len(classes))]
        left = [MILLI if each else 0 for each in standing]
        for column, share, memory, milli, usable in used:
            if usable and not standing[column]:
                cap = self._caps[share][classes[column]]
                left[column] = left_milli(cap - memory, MILLI - milli, cap)
                standing[column] = 2 + share
            self.in_mode[share] += 1
            self.heavy += memory > 0
        for _, share, memory, _, _ in before[1]:
            self.in_mode[share] -= 1
            self.heavy -= memory > 0
        place = [klass * (MILLI + 1) + each for klass, each in zip(classes, left, strict=True)]
        self.standing[position], self.place[position] = standing, place
        self._cards[position] = (standing, place)
        self._stale.add(position)
        whole, known = free.bit_count(), before[0].bit_count()
        if known != whole:
            self.spread[known] -= 1
            self.spread[whole] = self.spread.get(whole, 0) + 1
            self.whole[position] = whole

    def node(self, position: int) -> tuple[list[int], list[int], Row]:
        """Standing and place of a node's cards, and what was put there: what the arrays say, without them."""
        return *self._cards[position], self._known[position]

    @property
    def cpu(self) -> Integers:
        """Thousandths of cores that hosts have left."""
        row: Integers = self.host[0]
        return row

    @property
    def memory(self) -> Integers:
        """KiB that hosts have left."""
        row: Integers = self.host[1]
        return row

    @property
    def free(self) -> Booleans:
        """Cards that are free as wholes."""
        found: Booleans = self.standing == 1
        return found

    @property
    def usable(self) -> Booleans:
        """Cards in a mode whose parts may be given to somebody."""
        found: Booleans = self.standing > 1
        return found

    @property
    def used(self) -> Integers:
        """Three tables of cards: the share that divides each, or -1; bytes and thousandths that are in use of it."""
        for position in self._stale:
            self._used[0, position], self._used[1:, position] = -1, 0
            for column, *told, _ in self._known[position][1]:
                self._used[:, position, column] = told
        self._stale.clear()
        return self._used

    def mask(self, wish: Wish) -> Booleans | None:
        """Which cards will do for a wish, as far as selectors go; None for all."""
        key = (wish.share, wish.only)
        if key not in self._masks:
            found = self.eligible[wish.only]
            if wish.share:
                found = found & self.selected[self.share_at[wish.share]]
            self._masks[key] = None if bool((found == self.exists).all()) else found
        return self._masks[key]

    def room(self, wish: Wish) -> Booleans:
        """By node whether its host has room."""
        room: Booleans = (self.cpu >= wish.cpu_milli) & (self.memory >= wish.memory_kib) & ~self.closed
        return room
