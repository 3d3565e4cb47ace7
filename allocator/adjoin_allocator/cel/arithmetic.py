"""The operators + - * / % and unary minus on values of whatever type they have at run time.

Comes in: two values. Goes out: a value, or `EvaluationError` for overflow, division by zero and types that do not go
together.
"""

from __future__ import annotations

import math
from typing import Any, Final

from adjoin_allocator.cel.clock import Duration, Timestamp
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.meter import Meter
from adjoin_allocator.cel.values import INT_MAX, INT_MIN, UINT_MAX, Concatenation, UInt, is_list, no_overload


def whole(value: int) -> int:
    """`value` as an int. Raises `EvaluationError` beyond 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def unsigned(value: int) -> UInt:
    """`value` as a uint. Raises `EvaluationError` below zero and beyond 64 bits."""
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise EvaluationError("unsigned integer overflow")


def add(meter: Meter, left: Any, right: Any) -> Any:
    """`left + right`."""
    kind, other = type(left), type(right)
    if kind is int and other is int:
        return whole(left + right)
    if kind is other and (kind is str or kind is bytes):
        meter.spend_on_text(len(left) + len(right))
        return left + right
    if is_list(left) and is_list(right):
        return concatenate(meter, left, right)
    if kind is float and other is float:
        return left + right
    if kind is UInt and other is UInt:
        return unsigned(int(left) + int(right))
    if kind is Duration:
        if other is Duration:
            return _duration(int(left) + int(right))
        if other is Timestamp:
            return right.plus(int(left))
    if kind is Timestamp and other is Duration:
        return left.plus(int(right))
    raise no_overload("+", left, right)


def concatenate(meter: Meter, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """Both lists, one after the other."""
    if not left or not right:
        return left or right
    meter.spend_on_list(len(left) + len(right))
    return Concatenation((*left, *right))


def subtract(left: Any, right: Any) -> Any:
    """`left - right`."""
    kind, other = type(left), type(right)
    if kind is int and other is int:
        return whole(left - right)
    if kind is float and other is float:
        return left - right
    if kind is UInt and other is UInt:
        return unsigned(int(left) - int(right))
    if kind is Duration and other is Duration:
        return _duration(int(left) - int(right))
    if kind is Timestamp and other is Duration:
        return left.plus(int(_duration(-int(right))))
    if kind is Timestamp and other is Timestamp:
        return _duration(left.nanoseconds - right.nanoseconds)
    raise no_overload("-", left, right)


def multiply(left: Any, right: Any) -> Any:
    """`left * right`."""
    kind, other = type(left), type(right)
    if kind is int and other is int:
        return whole(left * right)
    if kind is float and other is float:
        return left * right
    if kind is UInt and other is UInt:
        return unsigned(int(left) * int(right))
    raise no_overload("*", left, right)


def divide(left: Any, right: Any) -> Any:
    """`left / right`: cut off towards zero for whole numbers, IEEE 754 for doubles."""
    kind, other = type(left), type(right)
    if kind is float and other is float:
        if right == 0.0:
            if left == 0.0 or left != left:
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1.0, right)
        return left / right
    if kind is not other or kind not in _WHOLE:
        raise no_overload("/", left, right)
    if right == 0:
        raise EvaluationError("division by zero")
    if kind is UInt:
        return UInt(int(left) // int(right))
    quotient = abs(left) // abs(right)
    return whole(quotient if (left < 0) is (right < 0) else -quotient)


def modulo(left: Any, right: Any) -> Any:
    """`left % right`, with the sign of `left`."""
    kind = type(left)
    if kind is not type(right) or kind not in _WHOLE:
        raise no_overload("%", left, right)
    if right == 0:
        raise EvaluationError("modulus by zero")
    if kind is UInt:
        return UInt(int(left) % int(right))
    if left == INT_MIN and right == -1:
        raise EvaluationError("integer overflow")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def negate(value: Any) -> Any:
    """`-value`."""
    kind = type(value)
    if kind is int:
        return whole(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return _duration(-int(value))
    raise no_overload("-", value)


_WHOLE: Final = frozenset((int, UInt))


def _duration(nanoseconds: int) -> Duration:
    return Duration.of(nanoseconds)
