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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import erf, exp, floor, log2, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.prices import CARD, UNIT

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_STEPS = 16
"""Into how many steps a doubling of a mean or deviation is divided."""

_REACH = 8.0
_GRID = np.linspace(-_REACH, _REACH, 4097)


def _loss(z: float) -> float:
    """E[(X - z)⁺] of a standard normal X."""
    return exp(-z * z / 2) / sqrt(2 * pi) - z * (1 - erf(z / sqrt(2))) / 2


_LOSS = np.array([_loss(float(z)) for z in _GRID])
_PER_STEP = (len(_GRID) - 1) / (2 * _REACH)


def stepped(amount: float) -> float:
    """Rounded to one of a few steps per doubling."""
    if amount <= 0:
        return 0.0
    step = 2.0 ** (floor(log2(amount)) + 1) / (2 * _STEPS)
    return round(amount / step) * step


@dataclass(frozen=True, slots=True)
class Need:
    """What work worth one card needs of a host resource: mean and deviation, in the resource's unit."""

    mean: float = 0.0
    deviation: float = 0.0

    def idle(self, worth: Floats, left: Floats) -> Floats:
        """Cards (not millionths) that are expected to idle where so much is left for cards worth `worth`."""
        if not self.mean:
            return np.zeros(np.broadcast(worth, left).shape)
        gap = worth * self.mean - left
        if not self.deviation:
            return np.minimum(worth, np.maximum(gap, 0) / self.mean)
        spread = np.sqrt(worth) * self.deviation
        # Between two points of the table the nearer one: its grain is far below what costs are rounded to.
        place = np.divide(gap, spread, out=np.full(gap.shape, -_REACH), where=spread > 0)
        lost = _LOSS[((_REACH - np.clip(place, -_REACH, _REACH)) * _PER_STEP + 0.5).astype(np.intp)]
        lost = np.where(place >= _REACH, gap, lost * spread)
        found: Floats = np.minimum(worth, lost / self.mean)
        return found


def need(number: Integers, worth: Integers, asked: Integers, total: int) -> Need:
    """From replicas of which `number` each are worth `worth` (thousandths of a card; `total` together) and ask for
    `asked` of a host. Those that are worth nothing do not count.
    """
    weights = number * asked * (worth > 0)
    together = int(weights.sum())
    if not total or not together:
        return Need()
    mean = together / total
    squares = int((weights * asked).sum()) - 2 * mean * int((weights * worth).sum())
    squares += mean * mean * int((number * worth * worth).sum())
    return Need(stepped(mean * CARD), stepped(sqrt(max(0.0, squares) / total * CARD)))


@lru_cache(maxsize=64)
def _gone(several: int, size: int) -> Floats:
    """By number of cards opened and free cards how many places for `several` are gone; only smaller numbers count."""
    have = np.arange(size + 1)
    opened = np.minimum(np.arange(size + 1)[:, None], have)
    found: Floats = (have // several - (have - opened) // several).astype(float)
    found[several:] = 0
    return found


def reservation(free: Mapping[int, int], wanted: Mapping[int, float], size: int) -> Floats:
    """By number of cards opened and free cards of the node the third term, in millionths; both up to `size`.

    `free` says how many nodes have how many free cards, `wanted` which part of the demand asks for so many at once.
    """
    found = np.zeros((size + 1, size + 1))
    cards = sum(number * count for number, count in free.items())
    for several, part in sorted(wanted.items()):
        coming = part * cards / several
        if 2 <= several <= size and coming > 0:
            slots = sum(number // several * count for number, count in free.items())
            above = (1 - erf((slots - 0.5 - coming) / sqrt(2 * coming))) / 2
            if above > 1e-9:
                found += several * above * UNIT * _gone(several, size)
    return found


def scarcity(free: Floats, shares: Mapping[tuple[bool, ...], float]) -> Floats:
    """By group of nodes the part of its cards, from 0 to 1, that will be used by those who can use nothing else.

    `free` is what the groups have left; `shares` says which part of the demand can only use which groups.
    """
    found = np.zeros(len(free))
    total = float(free.sum())
    for groups, part in sorted(shares.items()):
        mine = np.array(groups)
        there = float(free[mine].sum())
        if there > 0:
            found[mine] += part * total / there
    smaller: Floats = np.minimum(found, 1.0)
    return smaller
