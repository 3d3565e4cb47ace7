"""The cards of one kind of a pool as arrays: what is left of each, of the parts in use, and of their hosts.

In come what is free, which parts are held and what hosts have left, node by node as it changes; out come arrays with a
row a node and a column a card, and a log of the rows that changed. Nothing here knows claims, or chooses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.model import Share
from adjoin_allocator.sharing import MILLI, Part, left_milli, shareable_bytes

Booleans = NDArray[np.bool_]

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


class Stock:
    """The cards of one kind of a pool and the hosts they sit in: a row a node, a column a card."""

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
        self.caps = np.array(
            [[shareable_bytes(share, size) for size in sizes] for share in shares], dtype=np.int64
        ).reshape(len(shares), len(sizes))
        self.selected = [np.zeros(self.shape, dtype=bool) for _ in shares]
        """By share the cards that it may divide."""
        self.in_mode = [0] * len(shares)
        self.free = np.zeros(self.shape, dtype=bool)
        self.mode = np.full(self.shape, -1, dtype=np.int64)
        self.used_bytes = np.zeros(self.shape, dtype=np.int64)
        self.used_milli = np.zeros(self.shape, dtype=np.int64)
        self.users = np.zeros(self.shape, dtype=np.int64)
        self.left = np.zeros(self.shape, dtype=np.int64)
        self.usable = np.zeros(self.shape, dtype=bool)
        """Cards in a mode whose parts may be given to somebody."""
        self.whole = np.zeros(rows, dtype=np.int64)
        self.spread: Counter[int] = Counter({0: rows})
        self.cpu = np.full(rows, NO_LIMIT, dtype=np.int64)
        self.memory = np.full(rows, NO_LIMIT, dtype=np.int64)
        self.closed = np.zeros(rows, dtype=bool)
        self.log: list[int] = []
        self.eligible: list[Booleans] = [self.exists]

    def set_free(self, position: int, columns: Iterable[int]) -> None:
        """These cards of a node are free as wholes, and no others."""
        row = self.free[position]
        row[:] = False
        row[list(columns)] = True
        self._touch(position)

    def use(self, position: int, column: int, share: int, part: Part, sign: int) -> None:
        """Somebody holds a part of a card, or no longer does."""
        before = int(self.users[position, column])
        self.users[position, column] += sign
        self.used_bytes[position, column] += sign * part.bytes
        self.used_milli[position, column] += sign * part.milli
        if not before:
            self.mode[position, column] = share
            self.in_mode[share] += 1
        elif before + sign == 0:
            self.in_mode[self.mode[position, column]] -= 1
            self.mode[position, column] = -1
        self._touch(position)

    def set_host(self, position: int, cpu_milli: int, memory_kib: int) -> None:
        """So much is left of a host."""
        self.cpu[position], self.memory[position] = cpu_milli, memory_kib
        self.log.append(position)

    def room(self, wish: Wish) -> Booleans:
        """By node whether its host has room."""
        room: Booleans = (self.cpu >= wish.cpu_milli) & (self.memory >= wish.memory_kib) & ~self.closed
        return room

    def free_of(self, position: int, column: int) -> tuple[int, int]:
        """Bytes and thousandths that are left of a card in a mode."""
        cap = int(self.caps[self.mode[position, column], self.klass[position, column]])
        return cap - int(self.used_bytes[position, column]), MILLI - int(self.used_milli[position, column])

    def _touch(self, position: int) -> None:
        whole = 0
        for column in range(self.shape[1]):
            if self.free[position, column]:
                left, whole = MILLI, whole + 1
            elif self.mode[position, column] >= 0 and self.usable[position, column]:
                cap = int(self.caps[self.mode[position, column], self.klass[position, column]])
                left = left_milli(*self.free_of(position, column), cap)
            else:
                left = 0
            self.left[position, column] = left
        self.spread[int(self.whole[position])] -= 1
        self.spread[whole] += 1
        self.whole[position] = whole
        self.log.append(position)
