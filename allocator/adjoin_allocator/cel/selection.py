"""Selecting a field or an index from a value whose type only the run time knows.

Comes in: a value and a key. Goes out: the value there, an `Optional` once the way there was optional, or
`EvaluationError`.
"""

from __future__ import annotations

from typing import Any, Final

from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    DomainsValue,
    MapValue,
    Optional,
    UInt,
    is_list,
    type_name,
)

_KEYS: Final = frozenset((str, int, UInt, float, bool))
_ABSENT: Final = object()


def is_key(value: object) -> bool:
    """Whether brackets can hold such a value at all."""
    return type(value) in _KEYS


def select(operand: Any, key: Any) -> Any:
    """`operand[key]` and `operand.key`."""
    if type(operand) is Optional:
        return select_optional(operand, key)
    found = _find(operand, key)
    if found is _ABSENT:
        raise EvaluationError(f"no such key: {_shown(key)}")
    return found


def select_optional(operand: Any, key: Any) -> Any:
    """`operand[?key]` and `operand.?key`: an optional."""
    if type(operand) is Optional:
        if operand is NONE:
            return NONE
        operand = operand.value
    found = _find(operand, key)
    return NONE if found is _ABSENT else Optional(found)


def has(operand: Any, field: str) -> bool:
    """`has(operand.field)`."""
    if type(operand) is Optional:
        return select_optional(operand, field) is not NONE
    return _find(operand, field) is not _ABSENT


def _find(operand: Any, key: Any) -> Any:
    if type(key) not in _KEYS:
        raise EvaluationError(f"{type_name(key)} is no key")
    kind = type(operand)
    if kind is MapValue or kind is DomainsValue:
        found = operand.find(key)
        return _ABSENT if found is None else found[1]
    if is_list(operand):
        position = _position(key)
        return operand[position] if 0 <= position < len(operand) else _ABSENT
    # Whatever has no parts is treated as having none of that name.
    return _ABSENT


def _position(key: Any) -> int:
    kind = type(key)
    if kind is int:
        return int(key)
    if kind is UInt and key <= INT_MAX:
        return int(key)
    if kind is float and key.is_integer() and INT_MIN < key < INT_MAX:
        return int(key)
    raise EvaluationError(f"{_shown(key)} is no position in a list")


def _shown(key: Any) -> str:
    return key if type(key) is str else repr(key)
