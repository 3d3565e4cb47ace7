"""Are facts that were read from a file of the types that they say?

The API server checks objects by their schemas; nobody has checked a file. In come facts, out comes nothing, or
`WrongType` with the place. A check is made of each annotation once, so that looking at facts costs less than reading
them did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

Check = Callable[[Any], str | None]
"""Says where and what is wrong with a value (`.devices[0].name: expected text, found 3`), or None."""


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
_checks: dict[Any, Check] = {}


def check_types(facts: Any) -> None:
    """Raises `WrongType` where a field of the dataclass (at any depth) holds what its annotation does not allow."""
    wrong = _check_for(type(facts))(facts)
    if wrong is not None:
        raise WrongType(wrong.removeprefix("."))


def _check_for(expected: Any) -> Check:
    """The check of an annotation, made when it is first asked for."""
    known = _checks.get(expected)
    if known is None:
        known = _checks[expected] = _make(expected)
    return known


def _make(expected: Any) -> Check:
    origin = get_origin(expected)
    if expected is Any:
        return lambda value: None
    if origin in (Union, UnionType):
        return _either([_check_for(option) for option in get_args(expected)])
    if origin is tuple:
        return _items(_check_for(get_args(expected)[0]))
    if origin is frozenset:
        return _members(_check_for(get_args(expected)[0]))
    if origin is not None:
        return _entries(*map(_check_for, get_args(expected)))
    if isinstance(expected, type) and is_dataclass(expected):
        return _parts(expected, tuple(field.name for field in fields(expected)))
    if hasattr(expected, "_fields"):
        return _parts(expected, expected._fields)
    return _plain(expected)


def _wrong(value: Any, expected: Any) -> str:
    return f": expected {_WORDS.get(expected, getattr(expected, '__name__', 'something else'))}, found {value!r}"


def _plain(expected: type) -> Check:
    allowed = (int, float) if expected is float else expected
    no_bool = expected in (int, float)

    def check(value: Any) -> str | None:
        fits = isinstance(value, allowed) and not (no_bool and value.__class__ is bool)
        return None if fits else _wrong(value, expected)

    return check


def _either(options: list[Check]) -> Check:
    def check(value: Any) -> str | None:
        return None if any(option(value) is None for option in options) else f": {value!r} has no place there"

    return check


def _items(inner: Check) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, tuple):
            return _wrong(value, tuple)
        for index, item in enumerate(value):
            wrong = inner(item)
            if wrong is not None:
                return f"[{index}]{wrong}"
        return None

    return check


def _members(of_item: Check) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, frozenset):
            return _wrong(value, frozenset)
        return next((wrong for wrong in map(of_item, value) if wrong is not None), None)

    return check


def _entries(of_key: Check, of_value: Check) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return _wrong(value, Mapping)
        for key, item in value.items():
            wrong = of_key(key) or of_value(item)
            if wrong is not None:
                return f"[{key!r}]{wrong}"
        return None

    return check


def _parts(kind: type, names: tuple[str, ...]) -> Check:
    hints = get_type_hints(kind)
    parts = [(name, _check_for(hints[name])) for name in names]

    def check(value: Any) -> str | None:
        if not isinstance(value, kind):
            return _wrong(value, kind)
        for name, part in parts:
            wrong = part(getattr(value, name))
            if wrong is not None:
                return f".{name}{wrong}"
        return None

    return check
