"""What the states of a pool are worth to one kind of ask: an answer per state, in order, from decision to decision.

In come states and the solver's answers to them, out come the best state and its first node, by one scan over numbers.
An answer belongs to a state in canonical form and is shared by all nodes that are equal up to exchanges; it says how
good the best choice there is, not which devices it takes.

Answers are brought into one order by their keys (objective, then load), so that comparing two states compares two
integers. Between those that were given out earlier there is room for new ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.fit import STATE_LIMIT, Fit, Misfit, Obstacle
from adjoin_allocator.nodes import Question, State
from adjoin_allocator.states import NOBODY, States, aspects

PLACE_BITS: Final = 24
"""Bits of a position; more nodes than a pool can have."""

RANKS: Final = 1 << 36
"""Ranks lie below; with a position they stay below `NOBODY`."""

NO_RANK: Final = RANKS
"""The rank of a state in which it does not fit."""

FILLINGS: Final = 16
"""So many sets of states are remembered with their rows."""

Key = tuple[tuple[int, ...], float]
"""Objective and load of a choice; smaller is better."""


@dataclass(slots=True, eq=False)
class Row:
    """A state in canonical form, as the ask sees it, and the answer to it."""

    state: State
    answer: Fit | Misfit


class Order:
    """Keys with ranks that compare as they do. Ranks may change when a key is added."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._ranks: list[int] = []

    def rank(self, key: Key) -> tuple[int, bool]:
        """The rank of a key, and whether all others were given new ones."""
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            return self._ranks[at], False
        low = self._ranks[at - 1] if at else 0
        high = self._ranks[at] if at < len(self._ranks) else RANKS
        self._keys.insert(at, key)
        self._ranks.insert(at, (low + high) // 2)
        if high - low > 1:
            return self._ranks[at], False
        step = RANKS // (len(self._keys) + 1)
        self._ranks = [step * (place + 1) for place in range(len(self._keys))]
        return self._ranks[at], True


class Scores:
    """Answers to one kind of ask, beside one demand, for the states of one pool.

    Attributes:
        states: The states.
        question: What they are equal for.
        rows: Answers by row.
    """

    def __init__(self, states: States, question: Question, answer: Callable[[State], Fit | Misfit]) -> None:
        self.states = states
        self.question = question
        self.rows: list[Row] = []
        self._sorts = states.classes.sorts(question)
        self._seen = aspects(question)
        self._answer = answer
        self._numbers: dict[State, int] = {}
        self._order = Order()
        self._row: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        """By state its row, -1 when it has none yet."""
        self._score: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """By state its rank, above the bits of a position."""
        self._cost: list[int] = []
        self._filled = -1
        self._alive: tuple[int, ...] = ()
        self._total = 0
        self._lines = False
        self._fillings: dict[int, tuple[tuple[int, ...], int, bool]] = {}
        """By the states that had nodes the rows of those that are open, their cost, and whether lines are in the way:
        decisions take devices and give them back, so the same states come again."""

    def fill(self) -> bool:
        """Answers for all states that have open nodes. False when the search limit was reached."""
        states = self.states
        if self._filled == states.occupied:
            return self._total <= STATE_LIMIT
        known = self._fillings.get(states.occupied)
        if known is not None:
            self._filled, (self._alive, self._total, self._lines) = states.occupied, known
            return self._total <= STATE_LIMIT
        self._grow(len(states.kinds))
        alive: dict[int, None] = {}
        total = 0
        lines = limit = False
        rows = self._row
        for number in states.open:
            row = int(rows[number])
            if row < 0:
                row = self._enter(number)
            if row not in alive:
                alive[row] = None
                total += self._cost[row]
                answer = self.rows[row].answer
                if isinstance(answer, Misfit):
                    limit = limit or answer.obstacle is Obstacle.LIMIT
                    lines = lines or answer.obstacle is Obstacle.LINES
                if limit or total > STATE_LIMIT:
                    return False
        self._filled, self._alive, self._total, self._lines = states.occupied, tuple(alive), total, lines
        if len(self._fillings) >= FILLINGS:
            self._fillings.clear()
        self._fillings[self._filled] = self._alive, total, lines
        return True

    @property
    def alive(self) -> tuple[int, ...]:
        """Rows of states that have open nodes."""
        return self._alive

    @property
    def total(self) -> int:
        """Search states that the answers to all of `alive` took."""
        return self._total

    @property
    def obstacle(self) -> Obstacle:
        """What is in the way where it fits nowhere: Required lines if a node has enough devices, else their number."""
        return Obstacle.LINES if self._lines else Obstacle.COUNT

    def cost(self, row: int) -> int:
        """Search states that an answer took."""
        return self._cost[row]

    def best(self, open_: NDArray[np.bool_] | None = None) -> tuple[int, int] | None:
        """Row and position of the best node, or None when it fits nowhere; of all nodes, or of those that `open_`
        says by position.
        """
        states, size = self.states, len(self._score)
        if not size:
            return None
        if open_ is None:
            found = self._score + states.first[:size]
            number = int(found.argmin())
            if found[number] >= NO_RANK << PLACE_BITS:
                return None
            return int(self._row[number]), int(states.first[number])
        score = np.where(states.first[:size] < NOBODY, self._score, NO_RANK << PLACE_BITS)
        positions = np.flatnonzero(open_)
        if not len(positions):
            return None
        found = score[states.of[positions]] + positions
        at = int(found.argmin())
        if found[at] >= NO_RANK << PLACE_BITS:
            return None
        position = int(positions[at])
        return int(self._row[states.of[position]]), position

    def improve(self, row: int, answer: Fit) -> None:
        """An answer that was a bound is known exactly now."""
        self.rows[row].answer = answer
        rank = self._rank(row)
        self._score[self._row == row] = rank << PLACE_BITS

    def _enter(self, number: int) -> int:
        """The row of a state."""
        kind = self.states.kinds[number]
        view = self.states.classes.examples[kind.number]
        (free,) = self.states.classes.symmetry(kind.number, self._seen).canonical((kind.masks.free,))
        state: State = (view.shape, self._sorts[kind.number], free)
        row = self._numbers.get(state)
        if row is None:
            answer = self._answer(state)
            row = self._numbers[state] = len(self.rows)
            self.rows.append(Row(state, answer))
            self._cost.append(answer.states)
        self._row[number] = row
        self._score[number] = self._rank(row) << PLACE_BITS
        return row

    def _rank(self, row: int) -> int:
        shape, _, free = self.rows[row].state
        answer = self.rows[row].answer
        if isinstance(answer, Misfit):
            return NO_RANK
        rank, moved = self._order.rank((answer.objective, 1 - shape.usable(free).bit_count() / shape.size))
        if moved:
            for number, other in enumerate(self._row.tolist()):
                if other >= 0:
                    self._score[number] = self._rank(other) << PLACE_BITS
        return rank

    def _grow(self, size: int) -> None:
        more = size - len(self._row)
        if more > 0:
            self._row = np.concatenate((self._row, np.full(more, -1, dtype=np.int32)))
            self._score = np.concatenate((self._score, np.full(more, NO_RANK << PLACE_BITS, dtype=np.int64)))
