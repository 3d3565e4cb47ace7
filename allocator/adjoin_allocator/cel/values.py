"""What a value is while an expression is evaluated.

Most values are Python's own: bool, int, float, str, bytes, None for null, tuple for lists. The rest has a class of its
own, here or in a module of its name: `UInt`, `Duration`, `Timestamp`, `Optional`, `MapValue`, `TypeValue`, `Quantity`,
`Version`, addresses, URLs, formats.

Python takes True for 1 and 1 for 1.0; CEL does not take a bool for a number. Whoever compares or looks up must go
through `equality`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from adjoin_allocator.cel.errors import EvaluationError

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
UINT_MAX: Final = (1 << 64) - 1


class UInt(int):
    """An unsigned 64 bit integer. Arithmetic answers plain ints; `arithmetic` turns them back."""

    __slots__ = ()


class Concatenation(tuple[Any, ...]):
    """A list made by `+` of two that are not empty. Kubernetes compares such lists a little differently (see
    `equality`)."""

    __slots__ = ()


class Optional:
    """An optional with a value. `NONE` is the one without."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def get(self) -> object:
        """The value; an error without one."""
        if self is NONE:
            raise EvaluationError("optional.none() has no value")
        return self.value


NONE: Final = Optional(None)


class TypeValue:
    """A type as a value, like `int` in `type(1) == int`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class MapValue:
    """A map: keys in order of insertion, found across numeric types (1, 1u and 1.0 find each other, true finds none of
    them).

    `entries` holds (key, value) by storage key. Strings are their own storage key, which makes the common lookup one
    dict access. A map that is `text_only` cannot have other keys, and is not even searched for them.
    """

    __slots__ = ("entries", "text_only")

    def __init__(self, entries: dict[object, tuple[Any, Any]], text_only: bool = False) -> None:
        self.entries = entries
        self.text_only = text_only

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[object]:
        return (key for key, _ in self.entries.values())

    def items(self) -> list[tuple[Any, Any]]:
        """All (key, value)."""
        return list(self.entries.values())

    def find(self, key: object) -> tuple[Any, Any] | None:
        """(key, value) for a key that the map has, else None."""
        if type(key) is str:
            return self.entries.get(key)
        if self.text_only or not self.entries:
            return None
        for storage in storage_keys(key):
            found = self.entries.get(storage)
            if found is not None:
                return found
        return None

    def contains(self, key: object) -> bool:
        """Whether `key in map` is true."""
        return self.find(key) is not None


def text_map(values: dict[str, Any]) -> MapValue:
    """A map of facts of the device."""
    return MapValue({key: (key, value) for key, value in values.items()}, text_only=True)


EMPTY_MAP: Final = MapValue({}, text_only=True)


class DomainsValue(MapValue):
    """`device.attributes` and `device.capacity`: selecting a domain that the device has nothing in gives an empty map.

    `in`, size() and iteration see only the domains that are there.
    """

    __slots__ = ()

    def find(self, key: object) -> tuple[Any, Any] | None:
        """As in any map, but never None."""
        return super().find(key) or (key, EMPTY_MAP)

    def contains(self, key: object) -> bool:
        """Whether the device has anything in this domain."""
        return super().find(key) is not None


def storage_key(key: object) -> object:
    """Under which key a map keeps `key`. Raises `EvaluationError` for what cannot be a key."""
    kind = type(key)
    if kind is str:
        return key
    if kind is bytes or getattr(kind, "unkeyable", False):
        raise EvaluationError(f"{type_name(key)} cannot be a key of a map")
    if kind in _IDENTITY or (kind is float and key != key):
        # Such a key is only ever found by going through the map.
        return object()
    return kind, key


_IDENTITY: Final = frozenset((tuple, Concatenation, MapValue, DomainsValue, Optional))


def storage_keys(key: object) -> Iterator[object]:
    """Under which keys a map may keep what `key`, which is no string, finds."""
    kind = type(key)
    if kind is float:
        yield float, key
        if isinstance(key, float) and key.is_integer():
            whole = int(key)
            if INT_MIN < whole < INT_MAX:
                yield int, whole
            if 0 <= whole <= UINT_MAX:
                yield UInt, UInt(whole)
    elif kind is int:
        yield int, key
        if isinstance(key, int) and key >= 0:
            yield UInt, UInt(key)
    elif kind is UInt:
        yield UInt, key
        if isinstance(key, int) and key <= INT_MAX:
            yield int, int(key)
    elif kind not in _IDENTITY:
        yield storage_key(key)


_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    Concatenation: "list",
    MapValue: "map",
    DomainsValue: "map",
    Optional: "optional_type",
    TypeValue: "type",
}


def type_name(value: object) -> str:
    """The name of a value's type, as `type(value)` shows it. Classes outside this module name themselves in
    `cel_type`."""
    kind = type(value)
    name = _NAMES.get(kind)
    return str(getattr(kind, "cel_type", "unknown")) if name is None else name


def is_list(value: object) -> bool:
    """Whether the value is a list."""
    kind = type(value)
    return kind is tuple or kind is Concatenation


def no_overload(function: str, *args: object) -> EvaluationError:
    """The error of a function that was given types it cannot take."""
    return EvaluationError(f"{function} does not take ({', '.join(map(type_name, args))})")
