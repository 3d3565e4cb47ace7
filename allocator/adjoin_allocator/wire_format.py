"""Snapshots and plans as plain JSON values and back, exactly.

In comes a `Snapshot` or a `Plan`, out goes a value made of objects, lists, texts, numbers, booleans and null, from
which an equal one can be made again in another process: the same value encoded twice is the same bytes, and a decoded
snapshot plans as the first one did. What is written follows from the dataclasses themselves, field by field, so that a
field added to the model is written without a change here.

- A selector is its text and is compiled anew. A quantity is its digits, scale and notation, a version its text.
- `true` and `1` stay what they are; a list attribute is a list; a mapping whose keys are no texts is a list of pairs.
- A field that a reader does not know is refused: it may matter. One that is missing has its default, if it has one.

Reading raises `FormatError` with the place. Nothing here reads or writes files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import lru_cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Final, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from adjoin_allocator.cel import AttributeValue, CompileError, Quantity, Selector, Version, compile_selector
from adjoin_allocator.results import Plan
from adjoin_allocator.snapshot import Snapshot

FORMAT: Final = "adjoin.dev/allocator-record"
VERSION: Final = 1
"""Raised whenever a record of before would be read as something else than it was."""

Value = Any
"""A JSON value."""
Encode = Callable[[Any], Value]
Decode = Callable[[Value, str], Any]

SELECTORS: Final = 4096
"""How many distinct selectors are kept compiled while reading."""


class FormatError(ValueError):
    """What was read is no record of this format. The text begins with the place."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place or 'the record'}: {problem}")


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A decision that was made.

    Attributes:
        snapshot: What it was made of.
        now: When, seconds since the epoch.
        plan: What came out, as `encode_plan` gives it; None where only the question was recorded.
    """

    snapshot: Snapshot
    now: float
    plan: Value = None


def encode_record(record: Record) -> dict[str, Value]:
    """The record as one JSON object, with the name and version of the format."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "now": record.now,
        "snapshot": encode_snapshot(record.snapshot),
        "plan": record.plan,
    }


def decode_record(value: Value) -> Record:
    """The record that `value` is. Raises `FormatError`, also for a version that is not known."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise FormatError("", f"expected an object with format {FORMAT}")
    if value.get("version") != VERSION or isinstance(value.get("version"), bool):
        raise FormatError("version", f"{value.get('version')!r} is not known, only {VERSION} is")
    now = value.get("now")
    if isinstance(now, bool) or not isinstance(now, int | float):
        raise FormatError("now", f"expected a number, found {now!r}")
    return Record(decode_snapshot(value.get("snapshot")), now, value.get("plan"))


def encode_snapshot(snapshot: Snapshot) -> Value:
    """A snapshot as a JSON value."""
    return _codec(Snapshot).encode(snapshot)


def decode_snapshot(value: Value) -> Snapshot:
    """The snapshot that `value` is. Raises `FormatError`."""
    made: Snapshot = _codec(Snapshot).decode(value, "snapshot")
    return made


def encode_plan(plan: Plan) -> Value:
    """A plan as a JSON value, without `stats`: how much work it took depends on what was known before, and is no part
    of the answer.
    """
    value: dict[str, Value] = _codec(Plan).encode(plan)
    del value["stats"]
    return value


def decode_plan(value: Value) -> Plan:
    """The plan that `value` is, with empty stats. Raises `FormatError`."""
    made: Plan = _codec(Plan).decode(value, "plan")
    return made


@dataclass(frozen=True, slots=True)
class _Codec:
    """Both ways for one type."""

    encode: Encode
    decode: Decode


_Type = TypeVar("_Type")


def _typed(kind: type[_Type], word: str) -> _Codec:
    def decode(value: Value, place: str) -> Any:
        if value.__class__ is not kind:
            raise FormatError(place, f"expected {word}, found {value!r}")
        return value

    return _Codec(lambda value: value, decode)


def _number() -> _Codec:
    def checked(value: Any, place: str) -> Any:
        if value.__class__ not in (int, float) or not isfinite(value):
            raise FormatError(place, f"expected a number, found {value!r}")
        return value

    return _Codec(lambda value: checked(value, ""), checked)


def _nothing() -> _Codec:
    def decode(value: Value, place: str) -> Any:
        if value is not None:
            raise FormatError(place, f"expected null, found {value!r}")
        return None

    return _Codec(lambda value: None, decode)


_TEXT = _typed(str, "a text")
_PLAIN: Final[Mapping[Any, _Codec]] = {
    str: _TEXT,
    int: _typed(int, "a whole number"),
    bool: _typed(bool, "true or false"),
    float: _number(),
    NoneType: _nothing(),
}


def _quantity() -> _Codec:
    parts = (("digits", int), ("scale", int), ("fits in 64 bits", bool), ("notation", str), ("computed", bool))

    def encode(value: Quantity) -> Value:
        return [value.unscaled, value.scale, value.fits_int64, value.notation, value.computed]

    def decode(value: Value, place: str) -> Quantity:
        if not isinstance(value, list) or [each.__class__ for each in value] != [kind for _, kind in parts]:
            raise FormatError(place, f"expected a quantity as [{', '.join(name for name, _ in parts)}]")
        return Quantity(*value)

    return _Codec(encode, decode)


def _attribute() -> _Codec:
    """A version is an object with its text, so that it is not taken for the text."""

    def encode(value: Any) -> Value:
        if isinstance(value, tuple):
            return [encode(item) for item in value]
        return {"version": value.text} if isinstance(value, Version) else value

    def scalar(value: Value, place: str) -> Any:
        if value.__class__ in (str, int, bool):
            return value
        if isinstance(value, dict) and list(value) == ["version"] and isinstance(value["version"], str):
            try:
                return Version.parse(value["version"])
            except ValueError as error:
                raise FormatError(place, str(error)) from None
        raise FormatError(place, f"expected a text, a whole number, true, false or a version, found {value!r}")

    def decode(value: Value, place: str) -> Any:
        if not isinstance(value, list):
            return scalar(value, place)
        items = tuple(scalar(item, f"{place}[{position}]") for position, item in enumerate(value))
        if len({item.__class__ for item in items}) > 1:
            raise FormatError(place, "the values of a list are of one type")
        return items

    return _Codec(encode, decode)


@lru_cache(maxsize=SELECTORS)
def _compiled(text: str) -> Selector:
    return compile_selector(text)


def _selector() -> _Codec:
    def decode(value: Value, place: str) -> Selector:
        text = _TEXT.decode(value, place)
        try:
            return _compiled(text)
        except CompileError as error:
            raise FormatError(place, f"not a selector: {error}") from None

    return _Codec(lambda value: value.expression, decode)


_SPECIAL: Final[tuple[tuple[Any, Callable[[], _Codec]], ...]] = (
    (AttributeValue, _attribute),
    (Quantity, _quantity),
    (Selector, _selector),
)

_codecs: dict[Any, _Codec] = {}


def _codec(hint: Any) -> _Codec:
    """The codec of an annotation, made when it is first asked for."""
    known = _codecs.get(hint)
    if known is None:
        known = _codecs[hint] = _make(hint)
    return known


def _make(hint: Any) -> _Codec:
    """Raises `TypeError` for an annotation that has no place in a record: a model may not hold such a field."""
    for special, made in _SPECIAL:
        if hint == special:
            return made()
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, NewType):
        return _codec(hint.__supertype__)
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _either(hint)
    if origin is tuple:
        return _items(get_args(hint))
    if origin is Sequence:
        return _items((*get_args(hint), Ellipsis))
    if origin is Mapping:
        return _mapping(*get_args(hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _word(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint)
    if hasattr(hint, "_fields"):
        return _row(hint)
    raise TypeError(f"{hint!r} cannot be recorded")


def _either(hint: Any) -> _Codec:
    """Only `X | None` is told apart without looking at what is inside."""
    options = [option for option in get_args(hint) if option is not NoneType]
    if len(options) != 1 or len(options) == len(get_args(hint)):
        raise TypeError(f"{hint!r} cannot be recorded")
    inner = _codec(options[0])
    return _Codec(
        lambda value: None if value is None else inner.encode(value),
        lambda value, place: None if value is None else inner.decode(value, place),
    )


def _listed(value: Value, place: str) -> list[Value]:
    if not isinstance(value, list):
        raise FormatError(place, f"expected a list, found {value!r}")
    return value


def _items(hints: tuple[Any, ...]) -> _Codec:
    if len(hints) != 2 or hints[1] is not Ellipsis:
        raise TypeError(f"a tuple of {hints!r} cannot be recorded")
    inner = _codec(hints[0])
    return _Codec(
        lambda value: [inner.encode(item) for item in value],
        lambda value, place: tuple(
            inner.decode(item, f"{place}[{position}]") for position, item in enumerate(_listed(value, place))
        ),
    )


def _mapping(of_key: Any, of_value: Any) -> _Codec:
    key, inner = _codec(of_key), _codec(of_value)
    if key is not _TEXT and not (isinstance(of_key, type) and issubclass(of_key, StrEnum)):
        return _pairs(key, inner)

    def decode(value: Value, place: str) -> Any:
        if not isinstance(value, dict):
            raise FormatError(place, f"expected an object, found {value!r}")
        return {key.decode(name, place): inner.decode(item, f"{place}.{name}") for name, item in value.items()}

    return _Codec(lambda value: {key.encode(name): inner.encode(item) for name, item in value.items()}, decode)


def _pairs(key: _Codec, inner: _Codec) -> _Codec:
    def decode(value: Value, place: str) -> Any:
        made = {}
        for position, pair in enumerate(_listed(value, place)):
            where = f"{place}[{position}]"
            if not isinstance(pair, list) or len(pair) != 2:
                raise FormatError(where, f"expected a key and a value, found {pair!r}")
            made[key.decode(pair[0], where)] = inner.decode(pair[1], where)
        return made

    return _Codec(lambda value: [[key.encode(name), inner.encode(item)] for name, item in value.items()], decode)


def _word(kind: type[StrEnum]) -> _Codec:
    def decode(value: Value, place: str) -> Any:
        try:
            return kind(_TEXT.decode(value, place))
        except ValueError:
            raise FormatError(place, f"{value!r} is none of {', '.join(kind)}") from None

    return _Codec(lambda value: value.value, decode)


def _row(kind: Any) -> _Codec:
    """A named tuple is a list of its parts."""
    hints = get_type_hints(kind)
    names: tuple[str, ...] = kind._fields
    inner = [_codec(hints[name]) for name in names]

    def decode(value: Value, place: str) -> Any:
        if not isinstance(value, list) or len(value) != len(names):
            raise FormatError(place, f"expected [{', '.join(names)}], found {value!r}")
        return kind(*(each.decode(item, place) for each, item in zip(inner, value, strict=True)))

    return _Codec(lambda value: [each.encode(item) for each, item in zip(inner, value, strict=True)], decode)


def _recorded(kind: Any) -> list[Field[Any]]:
    """Private fields change speed alone and stay at home."""
    return [field for field in fields(kind) if field.init and not field.name.startswith("_")]


def _needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _object(kind: Any) -> _Codec:
    hints = get_type_hints(kind)
    parts = [(field.name, _codec(hints[field.name])) for field in _recorded(kind)]
    needed = [field.name for field in _recorded(kind) if _needed(field)]
    known = dict(parts)

    def encode(value: Any) -> Value:
        return {name: inner.encode(getattr(value, name)) for name, inner in parts}

    def decode(value: Value, place: str) -> Any:
        if not isinstance(value, dict):
            raise FormatError(place, f"expected an object, found {value!r}")
        for name in value:
            if name not in known:
                raise FormatError(f"{place}.{name}", "is not known: the record was made by a newer version")
        for name in needed:
            if name not in value:
                raise FormatError(f"{place}.{name}", "is missing")
        return kind(**{name: known[name].decode(item, f"{place}.{name}") for name, item in value.items()})

    return _Codec(encode, decode)
