"""The nodes of a pool in states: nodes that are equal for every decision, and kept so from change to change.

In come compiled nodes and, node by node, what is free and what is not for which reason; out come the states that occur,
each with its nodes. Two nodes are in one state when they are of one class and their masks are equal up to exchanges
that the class allows (`symmetry`). A class is a shape, and for every selector and attribute that was ever asked about,
who matches and who shares a value. Nothing here knows claims.

Numbers of classes and states depend on what came first and decide nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.cel import Selector
from adjoin_allocator.nodes import Nodes, NodeView, PoolIndex, Question, Sort
from adjoin_allocator.symmetry import Symmetry

NOBODY = 1 << 60
"""The first node of a state that has none, or none that is open."""

ASPECTS = 64
"""Selectors and attributes that classes tell apart at once; beyond, only those of the last question."""

STALE = 4096
"""States that have no node any more which are kept at least."""


class Aspect(NamedTuple):
    """What a question looks at in a node beyond its shape: who of `kind` matches selectors, or who shares values."""

    kind: str
    selectors: tuple[Selector, ...]
    attribute: str

    def of(self, view: NodeView) -> tuple[int, ...]:
        """What it shows of a node."""
        return view.values(self.attribute) if self.attribute else (view.eligible(self.kind, self.selectors),)


def aspects(question: Question) -> tuple[Aspect, ...]:
    """All that a question looks at beyond shapes."""
    asked = [*question.requests, *(one for wanted in question.demand for one in wanted.want.requests)]
    names = [
        *question.attributes,
        *(line.attribute for wanted in question.demand for line in wanted.want.lines if line.attribute),
    ]
    found = [Aspect(kind, selectors, "") for kind, selectors in asked if selectors]
    found += [Aspect("", (), name) for name in names]
    return tuple(dict.fromkeys(found))


class Classes:
    """The nodes of a pool by what no claim changes.

    Attributes:
        of: Class by position.
        examples: A view of each class.
    """

    def __init__(self, nodes: Nodes, index: PoolIndex, told: tuple[Aspect, ...] = ()) -> None:
        self.index = index
        self.told = told
        self._nodes = nodes
        self._sorts: dict[Question, tuple[Sort, ...]] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self.examples: list[NodeView] = []
        self.of = array("i", map(self._number, index.views))
        self._symmetries: dict[tuple[int, tuple[Aspect, ...]], Symmetry] = {}

    def _number(self, view: NodeView) -> int:
        key = (view.shape, *[aspect.of(view) for aspect in self.told])
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self.examples):
            self.examples.append(view)
            # Made for all classes at once, and there is one more now.
            self._sorts.clear()
        return number

    def change(self, position: int, view: NodeView) -> bool:
        """A node's devices have changed, their names have not. Returns whether its class is a new one."""
        before = len(self.examples)
        self.of[position] = self._number(view)
        return len(self.examples) > before

    def covers(self, question: Question) -> bool:
        """Whether nodes of one class are equal for the question."""
        return all(aspect in self.told for aspect in aspects(question))

    def refined(self, question: Question) -> Classes:
        """Classes that cover the question too."""
        told = tuple(dict.fromkeys((*self.told, *aspects(question))))
        return Classes(self._nodes, self.index, told if len(told) <= ASPECTS else aspects(question))

    def sorts(self, question: Question) -> tuple[Sort, ...]:
        """By class the sort of its nodes. The question must be covered."""
        found = self._sorts.get(question)
        if found is None:
            if len(self._sorts) >= ASPECTS:
                self._sorts.clear()
            found = self._sorts[question] = tuple(self._nodes.sort(view, question) for view in self.examples)
        return found

    def symmetry(self, number: int, seen: tuple[Aspect, ...]) -> Symmetry:
        """Exchanges in nodes of a class that change nothing of the shape and of what these aspects show."""
        key = (number, seen)
        found = self._symmetries.get(key)
        if found is None:
            view = self.examples[number]
            fixed = [mask for aspect in seen if not aspect.attribute for mask in aspect.of(view)]
            families = [aspect.of(view) for aspect in seen if aspect.attribute]
            found = self._symmetries[key] = self._nodes.symmetry(view.shape).keeping(fixed, families)
        return found


class Masks(NamedTuple):
    """What is free in a node, and what is not and why (`diagnosis` asks: what if it were).

    Attributes:
        shut: Why the node takes nothing new, as a class, or "".
        free: Devices that can be given; where devices share counters, as `budgets` says.
        back: Devices on their way back that could be given then.
        standing: Devices that nobody has and that cannot be given, by each standing of `ledger.STANDINGS`.
    """

    shut: str
    free: int
    back: int
    standing: tuple[int, ...]


class NodeState(NamedTuple):
    """A state: its class, and masks in canonical form."""

    number: int
    masks: Masks


class States:
    """Nodes by state.

    Attributes:
        kinds: By number of a state what it is.
        members: By number its nodes' positions, ascending.
        of: By position the number.
        first: By number the smallest position of an open node, `NOBODY` when there is none; longer than `kinds`.
        occupied: The states that have nodes, as bits; equal numbers mean that the same states have some.
    """

    def __init__(self, classes: Classes, masks: Iterable[Masks]) -> None:
        self.classes = classes
        self.kinds: list[NodeState] = []
        self.members: list[array[int]] = []
        self.first: NDArray[np.int64] = np.full(64, NOBODY, dtype=np.int64)
        self._numbers: dict[NodeState, int] = {}
        self._known: dict[tuple[int, Masks], int] = {}
        self._live: tuple[int, list[int]] = (-1, [])
        self._open: tuple[int, list[int]] = (-1, [])
        numbers = array("i")
        for position, each in enumerate(masks):
            number = self._number(classes.of[position], each)
            numbers.append(number)
            self.members[number].append(position)
        self.of: NDArray[np.int32] = np.array(numbers, dtype=np.int32)
        for number, positions in enumerate(self.members):
            self._settle(number, positions)
        # Every state was found on a node.
        self.occupied = (1 << len(self.kinds)) - 1

    def move(self, position: int, masks: Masks) -> None:
        """A node has other masks now."""
        number = self._number(self.classes.of[position], masks)
        before = int(self.of[position])
        if number == before:
            return
        self.of[position] = number
        left, joined = self.members[before], self.members[number]
        del left[bisect_left(left, position)]
        if not joined or position > joined[-1]:
            joined.append(position)
        else:
            joined.insert(bisect_left(joined, position), position)
        if not left:
            self.occupied ^= 1 << before
        if len(joined) == 1:
            self.occupied ^= 1 << number
        self._settle(before, left)
        self._settle(number, joined)

    @property
    def live(self) -> list[int]:
        """The states that have nodes, open ones or not."""
        if self._live[0] != self.occupied:
            self._live = (self.occupied, [number for number, positions in enumerate(self.members) if positions])
        return self._live[1]

    @property
    def open(self) -> list[int]:
        """The states that have open nodes."""
        if self._open[0] != self.occupied:
            kinds = self.kinds
            self._open = (self.occupied, [number for number in self.live if not kinds[number].masks.shut])
        return self._open[1]

    @property
    def stale(self) -> bool:
        """Most of what is kept has no node any more."""
        return len(self.kinds) > STALE + 4 * len(self.live)

    def _settle(self, number: int, positions: Sequence[int]) -> None:
        if not self.kinds[number].masks.shut:
            self.first[number] = positions[0] if positions else NOBODY

    def _number(self, number: int, masks: Masks) -> int:
        found = self._known.get((number, masks))
        if found is None:
            shut, free, back, standing = masks
            whole = self.classes.symmetry(number, self.classes.told).canonical((free, back, *standing))
            kind = NodeState(number, Masks(shut, whole[0], whole[1], whole[2:]))
            found = self._numbers.get(kind)
            if found is None:
                found = self._numbers[kind] = len(self.kinds)
                self.kinds.append(kind)
                self.members.append(array("i"))
                if found == len(self.first):
                    self.first = np.concatenate((self.first, np.full(found, NOBODY, dtype=np.int64)))
            self._known[number, masks] = found
        return found
