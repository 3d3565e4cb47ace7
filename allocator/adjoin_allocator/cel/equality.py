"""When two values are equal, and which one comes first.

Comes in: any two runtime values. Goes out: True, False, or None where Kubernetes reports an error (`==` then fails,
`!=` is true, and a list literal that has it inside counts the elements as equal: Kubernetes' evaluator does so, and a
selector must mean the same here).
"""

from __future__ import annotations

import math
from typing import Any, Final

from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    Concatenation,
    DomainsValue,
    MapValue,
    Optional,
    UInt,
    is_list,
    no_overload,
)

_NUMBERS: Final = frozenset((int, UInt, float))
_OPEN_LISTS: Final = frozenset((tuple, Concatenation))
_MAPS: Final = frozenset((MapValue, DomainsValue))


def equal(left: Any, right: Any) -> bool | None:
    """`left == right` of CEL; null is equal to null alone."""
    if left is None or right is None:
        return left is right
    return _equal(left, right)


def _equal(left: Any, right: Any) -> bool | None:
    kind, other = type(left), type(right)
    if kind in _NUMBERS:
        return other in _NUMBERS and equal_numbers(left, right)
    if kind in _OPEN_LISTS:
        return is_list(right) and len(left) == len(right) and _equal_lists(left, right)
    if kind in _MAPS:
        return other in _MAPS and len(left) == len(right) and _equal_maps(left, right)
    if kind is Optional:
        if other is not Optional:
            return False
        if left is NONE or right is NONE:
            return left is right
        return equal(left.value, right.value)
    if kind is not other and getattr(kind, "comparable_to_itself_only", False):
        return None
    if kind is other and getattr(right, "computed", False):
        # The result of arithmetic on quantities is not recognised as a quantity on the right hand side.
        return None
    return kind is other and bool(left == right)


def equal_numbers(left: float, right: float) -> bool:
    """Numbers of any two types; NaN equals nothing."""
    if type(left) is not float and type(right) is not float:
        return left == right
    if left != left or right != right:
        return False
    return _compare_numbers(left, right) == 0


def _equal_lists(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool | None:
    doubtful = False
    for first, second in zip(left, right, strict=True):
        answer = equal(first, second)
        if answer is False:
            return False
        doubtful |= answer is None
    return None if doubtful and type(left) is Concatenation else True


def _equal_maps(left: MapValue, right: MapValue) -> bool:
    for key, value in left.items():
        found = right.find(key)
        if found is None or equal(value, found[1]) is False:
            return False
    return True


def contains(elements: tuple[Any, ...], value: Any) -> bool:
    """`value in elements`."""
    return any(equal(value, element) is True for element in elements)


def compare(left: Any, right: Any, function: str) -> int:
    """-1, 0 or 1. Raises `EvaluationError` for types that have no order with each other."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if left != left or right != right:
            raise EvaluationError("NaN has no order")
        return _compare_numbers(left, right)
    if kind is not other or not (kind in _ORDERED or getattr(kind, "ordered", False)):
        raise no_overload(function, left, right)
    if left == right:
        return 0
    return -1 if left < right else 1


_ORDERED: Final = frozenset((bool, str, bytes))


def _compare_numbers(left: float, right: float) -> int:
    """Whole numbers exactly; with a double in it, as doubles, once the whole number's range is left behind."""
    if type(left) is float and type(right) is not float:
        return -_compare_whole_with_double(right, left)
    if type(right) is float and type(left) is not float:
        return _compare_whole_with_double(left, right)
    return (left > right) - (left < right)


def _compare_whole_with_double(whole: float, double: float) -> int:
    low, high = (0, UINT_MAX) if type(whole) is UInt else (INT_MIN, INT_MAX)
    if double < low:
        return 1
    if double > high:
        return -1
    rounded = float(whole)
    return (rounded > double) - (rounded < double)


def is_zero(value: Any) -> bool:
    """Whether `optional.ofNonZeroValue` takes the value for nothing."""
    kind = type(value)
    if value is None:
        return True
    if kind is DomainsValue:
        return False
    if kind in (str, bytes, tuple, Concatenation, MapValue):
        return len(value) == 0
    if kind in (bool, int, UInt, float):
        return value == 0 and not math.isnan(value)
    zero = getattr(value, "is_zero", None)
    return bool(zero()) if zero is not None else False
