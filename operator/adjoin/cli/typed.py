"""Are facts that were read from a file of the types that they say?

The API server checks objects by their schemas; nobody has checked a file. In come facts, out comes nothing, or
`WrongType` with the place. Facts are small, so that looking at all of them costs less than reading them did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


class WrongType(ValueError):
    """A value of another type than the one that belongs there."""


_WORDS = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    tuple: "a list",
    Mapping: "a map",
}


def check_types(value: Any, place: str = "") -> None:
    """Raises `WrongType` where a field of a dataclass (at any depth) holds what its annotation does not allow."""
    for name, expected in _hints(type(value)):
        _check(getattr(value, name), expected, f"{place}.{name}" if place else name)


_known: dict[type, tuple[tuple[str, Any], ...]] = {}


def _hints(kind: type) -> tuple[tuple[str, Any], ...]:
    """Fields of a dataclass with their types."""
    if kind not in _known:
        hints = get_type_hints(kind)
        _known[kind] = tuple((each.name, hints[each.name]) for each in fields(kind))
    return _known[kind]


def _check(value: Any, expected: Any, place: str) -> None:
    origin = get_origin(expected)
    if expected is Any:
        return
    if origin in (Union, UnionType):
        for option in get_args(expected):
            try:
                return _check(value, option, place)
            except WrongType:
                continue
        raise WrongType(f"{place}: {value!r} has no place there")
    if origin is tuple:
        _demand(isinstance(value, tuple), value, tuple, place)
        inner = get_args(expected)[0]
        for index, item in enumerate(value):
            _check(item, inner, f"{place}[{index}]")
    elif origin is not None and issubclass(origin, Mapping):
        _demand(isinstance(value, Mapping), value, Mapping, place)
        key_type, inner = get_args(expected)
        for key, item in value.items():
            _check(key, key_type, f"{place}[{key!r}]")
            _check(item, inner, f"{place}[{key!r}]")
    elif isinstance(expected, type):
        if expected in (int, float):
            fits = isinstance(value, (int, float) if expected is float else int) and not isinstance(value, bool)
        else:
            fits = isinstance(value, expected)
        _demand(fits, value, expected, place)
        if is_dataclass(value) and not isinstance(value, Enum):
            check_types(value, place)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            for name, hint in get_type_hints(type(value)).items():
                _check(getattr(value, name), hint, f"{place}.{name}")


def _demand(fits: bool, value: Any, expected: type, place: str) -> None:
    if not fits:
        raise WrongType(f"{place}: expected {_WORDS.get(expected, expected.__name__)}, found {value!r}")
