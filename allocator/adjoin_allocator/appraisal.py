"""What the demand of a pool says about the use of a card, of a node and of a kind of card.

In come what replicas of a pool's claims ask for, placed and waiting, and how often; out come prices of parts, what a
GPU's worth of work needs of a host, how much of the demand asks for several cards at once, and how much of it can only
use some cards. From these follow the terms of the cost of a place, all in millionths of a card:

1. what the card is worth less (`prices`);
2. cards that are expected to idle since the host runs out of processors or memory before them: the need of work worth f
   cards is taken as normal with mean f·m and deviation √f·s, so that of a host with h left E[(need - h)⁺] / m cards
   idle, at most f;
3. places for k cards on one node that are gone, for each k that is asked for, times k and the probability that they
   will be needed: that more replicas of k cards come than there are places, their number taken as normal with mean and
   variance R, the number that would come until the free cards are used up;
4. scarcity: the worth of what is asked for times the part of these cards that those are expected to use up who can use
   nothing else.

All sums are taken in integers, so that the order in which claims came changes nothing, and what is used for cached
figures is rounded, so that one claim more seldom changes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import erf, exp, frexp, ldexp, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.prices import CARD, UNIT

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_STEPS = 16
"""Into how many steps a doubling of a mean or deviation is divided."""
_SCALE = (2 * _STEPS).bit_length() - 1

_REACH = 8.0
_LAST = 2048
_PER_STEP = _LAST / _REACH


def _loss(z: float) -> float:
    """E[(X - z)⁺] of a standard normal X."""
    return exp(-z * z / 2) / sqrt(2 * pi) - z * (1 - erf(z / sqrt(2))) / 2


_LOST = [*(_loss(at / _PER_STEP) for at in range(_LAST)), 0.0]
_LOSS = np.array(_LOST)


def stepped(amount: float) -> float:
    """Rounded to one of a few steps per doubling."""
    if amount <= 0:
        return 0.0
    part, power = frexp(amount)
    return ldexp(round(part * 2 * _STEPS), power - _SCALE)


@dataclass(frozen=True, slots=True)
class Need:
    """What work worth one card needs of a host resource: mean and deviation, in the resource's unit."""

    mean: float = 0.0
    deviation: float = 0.0


class Strand:
    """Cards that are expected to idle since their hosts run out first, by the needs of several resources."""

    def __init__(self, needs: Sequence[Need]) -> None:
        self._rows = [at for at, need in enumerate(needs) if need.mean]
        some = [need for need in needs if need.mean]
        self._all = len(some) == len(needs)
        self._mean = np.array([need.mean for need in some])[:, None, None]
        # Without deviation the table is left at once on either side.
        deviations = [need.deviation or need.mean * 1e-9 for need in some]
        self._deviation = np.array(deviations)[:, None, None]
        self._each = list(zip(self._rows, (need.mean for need in some), deviations, strict=True))

    def idle(self, worth: Floats, left: Integers) -> Floats:
        """Cards (not millionths) that are expected to idle: `worth` is by node and choice what cards are left, `left`
        by resource, node and choice how much of it.
        """
        if not self._rows:
            return np.zeros(worth.shape)
        gap = worth * self._mean
        gap -= left if self._all else left[self._rows]
        spread = np.sqrt(worth) * self._deviation
        spread += 1e-150
        # Between two points of the table the nearer one: its grain is far below what costs are rounded to.
        place = np.abs(gap)
        place /= spread
        place *= _PER_STEP
        np.minimum(place, _LAST, out=place)
        place += 0.5
        lost = _LOSS[place.astype(np.intp)]
        lost *= spread
        lost += np.maximum(gap, 0.0, out=gap)
        lost /= self._mean
        found: Floats = np.minimum(lost, worth, out=lost).sum(axis=0)
        return found

    def idle_on(self, worth: float, left: tuple[int, int]) -> float:
        """The same of one node and choice, to the last bit: for a few of them arrays cost more than they save."""
        found, root = 0.0, sqrt(worth)
        for at, mean, deviation in self._each:
            gap = worth * mean - left[at]
            spread = root * deviation + 1e-150
            place = (gap if gap > 0.0 else -gap) / spread * _PER_STEP
            lost = _LOST[int(place + 0.5)] * spread if place < _LAST else 0.0
            if gap > 0.0:
                lost += gap
            lost /= mean
            found += lost if lost < worth else worth
        return found


@dataclass(slots=True)
class Sums:
    """What a need follows from, over all replicas: whole numbers, so that the order of changes does not matter.

    Attributes:
        asked: Of the host resource, by replicas that are worth anything.
        squares: The same, each squared.
        crossed: The same, each times what the replica is worth.
    """

    asked: int = 0
    squares: int = 0
    crossed: int = 0

    def add(self, number: int, worth: int, asked: int) -> None:
        """So many replicas more, each worth so much (thousandths of a card) and asking for so much of the host."""
        if worth:
            each = number * asked
            self.asked += each
            self.squares += each * asked
            self.crossed += each * worth

    def need(self, worth: int, worths: int, before: Need) -> Need:
        """What work worth a card needs, of replicas worth so much together, and so much with each squared; the same
        object as before where it is the same.
        """
        mean = deviation = 0.0
        if worth and self.asked:
            each = self.asked / worth
            squares = self.squares - 2 * each * self.crossed + each * each * worths
            mean, deviation = stepped(each * CARD), stepped(sqrt(max(0.0, squares) / worth * CARD))
        return before if before.mean == mean and before.deviation == deviation else Need(mean, deviation)


@lru_cache(maxsize=256)
def _gone(several: int, size: int, opened: tuple[int, ...]) -> Floats:
    """By number of cards opened and free cards how many places for `several` are gone; only smaller numbers count."""
    have = np.arange(size + 1)
    taken = np.minimum(np.array(opened, dtype=np.int64)[:, None], have)
    found: Floats = (have // several - (have - taken) // several).astype(float)
    found[np.array(opened) >= several] = 0
    return found


def reservation(
    free: Mapping[int, int], wanted: Mapping[int, float], size: int, opened: tuple[int, ...]
) -> Floats | None:
    """By number of cards `opened` and free cards of the node, up to `size`, the third term, in millionths; None when it
    is nothing.

    `free` says how many nodes have how many free cards, `wanted` which part of the demand asks for so many at once.
    """
    found: Floats | None = None
    some = [each for each in free.items() if each[0] and each[1]]
    cards = sum([number * count for number, count in some])
    for several in sorted(wanted):
        coming = wanted[several] * cards / several
        if 2 <= several <= size and coming > 0:
            slots = sum([number // several * count for number, count in some])
            above = (1 - erf((slots - 0.5 - coming) / sqrt(2 * coming))) / 2
            if above > 1e-9:
                term = several * above * UNIT * _gone(several, size, opened)
                found = term if found is None else found + term
    return found


def scarcity(free: Floats, allowed: Floats, parts: Floats) -> Floats:
    """By group of nodes the part of its cards, from 0 to 1, that will be used by those who can use nothing else.

    `free` is what the groups have left; `parts` is which part of the demand can only use those groups that are
    `allowed` it (1, else 0), by row.
    """
    there = allowed @ free
    rates = np.divide(parts * free.sum(), there, out=np.zeros(len(parts)), where=there > 0)
    found: Floats = np.minimum(rates @ allowed, 1.0)
    return found
