"""Fragmentation gradient descent and best fit, from the literature, as what others are measured against.

Both look at one pod at a time and take the node of the highest score, an integer from 0 to 100, so that ties are many;
the first node wins, and the nodes stand in an order that the seed has shuffled. Sources: Weng et al., "Beware of
Fragmentation", USENIX ATC 2023 (scores, typical pods, best fit's weights and norms).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tests.benchmarks.openb.trace import CARD, Curve, Machine, Pod

POPULAR = 0.95
"""Typical pods are the most frequent ones that make up this part of the list."""
GREATEST_CPU = 128_000
GREATEST_CARDS = 8 * CARD

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Fleet:
    """What is left on each machine: cards are columns, those that a machine does not have hold nothing."""

    models: list[str]
    model: Integers
    cpu: Integers
    memory: Integers
    cards: Integers

    @classmethod
    def of(cls, machines: Sequence[Machine], seed: int) -> Fleet:
        """Empty machines in the order of the seed."""
        order = list(machines)
        random.Random(seed).shuffle(order)
        models = sorted({machine.model for machine in order})
        cards = np.zeros((len(order), max(machine.cards for machine in order)), dtype=np.int64)
        for row, machine in enumerate(order):
            cards[row, : machine.cards] = CARD
        return cls(
            models,
            np.array([models.index(machine.model) for machine in order]),
            np.array([machine.cpu_milli for machine in order]),
            np.array([machine.memory_mib for machine in order]),
            cards,
        )

    def allowed(self, pod: Pod) -> NDArray[np.bool_]:
        """By model whether it will do."""
        return np.array([not pod.models or model in pod.models for model in self.models])

    def fits(self, pod: Pod, rows: Integers) -> NDArray[np.bool_]:
        """Which machines have room."""
        room = (self.cpu[rows] >= pod.cpu_milli) & (self.memory[rows] >= pod.memory_mib)
        if pod.cards:
            room &= self.allowed(pod)[self.model[rows]]
            room &= (self.cards[rows] >= pod.milli).sum(axis=1) >= pod.cards
        return room

    def take(self, pod: Pod, row: int, card: int) -> None:
        """Puts the pod there; `card` counts for a part of one."""
        self.cpu[row] -= pod.cpu_milli
        self.memory[row] -= pod.memory_mib
        if pod.shares:
            self.cards[row, card] -= pod.milli
        elif pod.cards:
            self.cards[row, np.flatnonzero(self.cards[row] == CARD)[: pod.cards]] = 0


class Scorer:
    """A policy: scores and the card for some rows of a fleet, all of which have room."""

    def score(self, fleet: Fleet, pod: Pod, rows: Integers) -> tuple[Integers, Integers]:
        """By row the score (greater is better) and the card."""
        raise NotImplementedError


class BestFit(Scorer):
    """The machine with the least left, processors and cards weighed alike; the fullest card of it."""

    def score(self, fleet: Fleet, pod: Pod, rows: Integers) -> tuple[Integers, Integers]:
        """See the class."""
        cards = fleet.cards[rows]
        left = (fleet.cpu[rows] - pod.cpu_milli) / GREATEST_CPU * 0.5
        left = left + (cards.sum(axis=1) - pod.asked) / GREATEST_CARDS * 0.5
        best = np.where(cards >= pod.milli, cards, 2 * CARD).argmin(axis=1)
        return ((1.0 - left) * 100).astype(np.int64), best


class Gradient(Scorer):
    """Where the expected number of card parts that typical pods cannot use grows least."""

    def __init__(self, pods: Sequence[Pod], fleet: Fleet) -> None:
        specs = Counter((pod.cpu_milli, pod.cards, pod.milli, pod.models) for pod in pods)
        ranked = sorted(specs.items(), key=lambda each: (-each[1], each[0][:3], sorted(each[0][3])))
        typical: list[tuple[tuple[int, int, int, frozenset[str]], int]] = []
        while sum(number for _, number in typical) < POPULAR * len(pods):
            typical.append(ranked[len(typical)])
        total = sum(number for _, number in typical)
        self._idle = sum(number for (_, cards, _, _), number in typical if not cards) / total
        asking = [(spec, number / total) for spec, number in typical if spec[1]]
        self._cpu = np.array([spec[0] for spec, _ in asking])
        self._number = np.array([spec[1] for spec, _ in asking])
        self._weight = np.array([weight for _, weight in asking])
        sizes = sorted({spec[2] for spec, _ in asking})
        self._sizes = np.array(sizes)
        self._size = np.array([sizes.index(spec[2]) for spec, _ in asking])
        self._allowed = np.array([[not spec[3] or model in spec[3] for spec, _ in asking] for model in fleet.models])

    def fragments(self, model: Integers, cpu: Integers, cards: Integers) -> Floats:
        """By state the expected thousandths of cards that are of no use to a typical pod."""
        total = cards.sum(axis=1)
        large = cards[:, None, :] >= self._sizes[None, :, None]
        number = large.sum(axis=2)
        small = total[:, None] - (cards[:, None, :] * large).sum(axis=2)
        runs = number[:, self._size] >= self._number
        runs &= cpu[:, None] >= self._cpu
        runs &= self._allowed[model]
        useless = np.where(runs, small[:, self._size], total[:, None])
        found: Floats = useless @ self._weight + total * self._idle
        return found

    def score(self, fleet: Fleet, pod: Pod, rows: Integers) -> tuple[Integers, Integers]:
        """See the class."""
        model, cpu, cards = fleet.model[rows], fleet.cpu[rows], fleet.cards[rows]
        before = self.fragments(model, cpu, cards)
        if not pod.shares:
            after = cards.copy()
            if pod.cards:
                whole = cards == CARD
                after[whole & (whole.cumsum(axis=1) <= pod.cards)] = 0
            return self._rate(before - self.fragments(model, cpu - pod.cpu_milli, after)), np.zeros_like(rows)
        scores = np.full(cards.shape, -1, dtype=np.int64)
        at, card = np.nonzero(cards >= pod.milli)
        after = cards[at]
        after[np.arange(len(at)), card] -= pod.milli
        scores[at, card] = self._rate(before[at] - self.fragments(model[at], cpu[at] - pod.cpu_milli, after))
        return scores.max(axis=1), scores.argmax(axis=1)

    def _rate(self, gain: Floats) -> Integers:
        return (100 / (1 + np.exp(-gain / 1000))).astype(np.int64)


def replay(order: Sequence[Pod], fleet: Fleet, scorer: Scorer) -> float:
    """Unallocated per cent at 100 % arrivals. Machines that did not change keep their score for equal pods."""
    curve = Curve(int(fleet.cards.sum()))
    changed: list[int] = []
    everybody = np.arange(len(fleet.cpu))
    known: dict[Pod, tuple[Integers, Integers, int]] = {}
    for pod in order:
        scores, cards, seen = known.get(pod, (np.zeros_like(everybody), np.zeros_like(everybody), -1))
        rows = everybody if seen < 0 else np.unique(np.array(changed[seen:], dtype=np.int64))
        if len(rows):
            room = fleet.fits(pod, rows)
            scores[rows] = -1
            if room.any():
                scores[rows[room]], cards[rows[room]] = scorer.score(fleet, pod, rows[room])
        known[pod] = (scores, cards, len(changed))
        row = int(scores.argmax())
        placed = bool(scores[row] >= 0)
        if placed:
            fleet.take(pod, row, int(cards[row]))
            changed.append(row)
        curve.event(pod, placed)
        if curve.over:
            break
    return curve.unallocated
