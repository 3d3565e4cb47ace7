"""What a compiled expression is given: one list, positions by name.

A list, since reading a position of one is the fastest thing that Python can do with an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

ATTRIBUTES: Final = 0
"""The device's attributes, flat, by `domain/name`."""
CAPACITY: Final = 1
"""The device's capacity, likewise."""
DEVICE: Final = 2
"""The device itself, for driver and allowMultipleAllocations."""
METER: Final = 3
"""The `Meter` of this evaluation; None for an expression that needs none."""
TRACE: Final = 4
"""A set that missing names are put into, when the expression was compiled for that."""
FIRST_SLOT: Final = 5
"""From here on the variables of macros."""

Frame = list[Any]
Run = Callable[[Frame], Any]
"""A compiled expression."""

UNSET: Final = object()
"""In the slot of a variable that is computed when it is first used."""


def constant(value: object) -> Run:
    """A compiled expression that has always the same value."""
    return lambda _: value
