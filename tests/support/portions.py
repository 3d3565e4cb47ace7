"""What part of its card a device is, read from its counters alone."""

from __future__ import annotations

from fractions import Fraction
from itertools import groupby
from math import ceil

from adjoin_allocator import Device


def portion(device: Device) -> int:
    """Thousandths of a card, rounded up: of the counters (those alike but for a number as one) the largest part; 1000
    where no counter of more than one unit tells.
    """
    fractions = []
    for name, taken in device.consumes.items():
        total = device.counters.get(name, {})
        for _, alike in groupby(sorted(total, key=_stem), key=_stem):
            counters = list(alike)
            there = sum((total[each].value for each in counters), Fraction(0))
            mine = sum((taken[each].value for each in counters if each in taken), Fraction(0))
            if there > 1 and any(each in taken for each in counters):
                fractions.append(mine / there)
    return max(1, min(1000, ceil(max(fractions) * 1000))) if fractions else 1000


def _stem(counter: str) -> str:
    return "".join("#" if each.isdigit() else each for each in counter)
