"""How large values may get, as far as that can be told before any device is seen.

Sizes count characters, bytes, elements or entries. Everything is capped at `UNBOUNDED`, which nothing exceeds and
nothing takes away from.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

UNBOUNDED: Final = (1 << 64) - 1

TRAVERSAL: Final = 0.1
"""Cost of going over one character."""
PATTERN: Final = 0.25
"""Cost of one character of a regular expression, for every unit of text."""


def plus(*amounts: int) -> int:
    """Their sum, capped."""
    return min(sum(amounts), UNBOUNDED)


def times(first: int, second: int) -> int:
    """Their product, capped."""
    return min(first * second, UNBOUNDED)


def scaled(amount: int, factor: float) -> int:
    """`amount * factor`, rounded up and capped."""
    product = float(amount) * factor
    return UNBOUNDED if product >= UNBOUNDED else math.ceil(product)


class Size(NamedTuple):
    """The least and the greatest size."""

    least: int
    most: int

    def joined(self, other: Size) -> Size:
        """The size of both together."""
        return Size(plus(self.least, other.least), plus(self.most, other.most))

    def product(self, other: Size) -> Size:
        """One for each of the other."""
        return Size(times(self.least, other.least), times(self.most, other.most))

    def either(self, other: Size) -> Size:
        """What covers both."""
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN: Final = Size(0, UNBOUNDED)
NOTHING: Final = Size(UNBOUNDED, 0)
"""Covers no value: where a search for the smallest and greatest begins."""


def exactly(size: int) -> Size:
    """A size that is known."""
    return Size(size, size)


class Parts(NamedTuple):
    """Sizes of what is inside a list or map.

    Attributes:
        is_list: A list; else a map.
        key: Of the keys of a map; 1 for a list.
        value: Of the elements or values.
    """

    is_list: bool
    key: Size
    value: Size

    def either(self, other: Parts) -> Parts:
        """What covers both."""
        return Parts(self.is_list, self.key.either(other.key), self.value.either(other.value))


# What the API allows at most: Kubernetes' limits for names, values and numbers of attributes.
_DOMAIN_LENGTH: Final = 63
_NAME_LENGTH: Final = 32
_DRIVER_LENGTH: Final = 63
_VALUE_LENGTH: Final = 64
_PER_DEVICE: Final = 32

_FIELDS: Final = {"driver": _DRIVER_LENGTH, "allowMultipleAllocations": 1}
_MAPS: Final = frozenset(("attributes", "capacity"))
KEYS: Final = "@keys"
VALUES: Final = "@values"
ITEMS: Final = "@items"
INDICES: Final = "@indices"


def device_size(path: tuple[str, ...]) -> Size | None:
    """The size of what a path through `device` leads to, None where that says nothing.

    A path is a variable and then fields, KEYS, VALUES or ITEMS.
    """
    if not path or path[0] != "device":
        return None
    steps = path[1:]
    if not steps:
        return Size(0, 0)
    if steps[0] in _FIELDS:
        return Size(0, _FIELDS[steps[0]]) if len(steps) == 1 else None
    if steps[0] not in _MAPS:
        return None
    return _inside_domains(steps[1:], steps[0] == "attributes")


def _inside_domains(steps: tuple[str, ...], attributes: bool) -> Size | None:
    if not steps:
        return Size(0, _PER_DEVICE)
    if steps[0] == KEYS:
        return Size(0, _DOMAIN_LENGTH) if len(steps) == 1 else None
    if steps[0] not in (VALUES, ITEMS):
        return None
    if len(steps) == 1:
        return Size(0, _PER_DEVICE)
    if steps[1] == KEYS:
        return Size(0, _NAME_LENGTH) if len(steps) == 2 else None
    if len(steps) > 2 or (not attributes and steps[1] not in (VALUES, ITEMS)):
        return None
    return Size(0, _VALUE_LENGTH if attributes else 0)
