"""Counters that partitions published by a driver take from one device: exact sums.

In come what a device has of each counter, what its partitions take, and what one more would take; out comes whether it
is there, and of which counter how much is not. Amounts are whole numbers or quantities; they are added up as integers,
in billionths, the finest that Kubernetes knows. Nothing here knows who holds partitions. What a holder takes is told by
its own record, whatever the driver publishes today.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from adjoin_allocator.cel import Quantity

NANO = 9
"""Decimal places that amounts are counted in."""

_ONE = 1_000_000_000

Amount = Quantity | int

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Shortfall(Generic[K]):
    """A counter of which there is not enough. Amounts are in billionths.

    Attributes:
        counter: Which.
        asked: What is asked for.
        left: What is left of it: nothing where the device has no such counter, less than nothing where more is held
            than there is.
    """

    counter: K
    asked: int
    left: int


def nano(amount: Amount) -> int:
    """An amount in billionths; finer parts, which no API object can hold, count as one more."""
    if isinstance(amount, int):
        return amount * _ONE
    places = amount.scale + NANO
    if places >= 0:
        return int(amount.unscaled * 10**places)
    return -(-amount.unscaled // int(10**-places))


def left(available: Mapping[K, Amount], consumed: Iterable[Mapping[K, Amount]]) -> dict[K, int]:
    """What is left of each counter in billionths, also of those that only holders know (less than nothing, then)."""
    rest = {counter: nano(amount) for counter, amount in available.items()}
    for taken in consumed:
        for counter, amount in taken.items():
            rest[counter] = rest.get(counter, 0) - nano(amount)
    return rest


def short(
    available: Mapping[K, Amount], consumed: Iterable[Mapping[K, Amount]], asked: Mapping[K, Amount]
) -> tuple[Shortfall[K], ...]:
    """Of which counters there is not enough, in the order in which they are asked for; a counter of which nothing is
    asked never lacks.
    """
    rest = left(available, consumed)
    needs = ((counter, nano(amount), rest.get(counter, 0)) for counter, amount in asked.items())
    return tuple(Shortfall(counter, need, there) for counter, need, there in needs if need > max(there, 0))


def fits(available: Mapping[K, Amount], consumed: Iterable[Mapping[K, Amount]], asked: Mapping[K, Amount]) -> bool:
    """Whether all that is asked is there."""
    return not short(available, consumed, asked)
