"""Operators, and what they are called inside a tree.

`&&`, `||`, `? :`, `==`, `!=`, selections, indexes and `@not_strictly_false` have no code here: they do not evaluate
all their operands, or look at more than the values, so `program` compiles them itself.
"""

from __future__ import annotations

from typing import Any, Final

from adjoin_allocator.cel import arithmetic, equality
from adjoin_allocator.cel.declarations import Code, Function, Overload, member, overload
from adjoin_allocator.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    variable,
)
from adjoin_allocator.cel.values import DomainsValue, MapValue, is_list, no_overload

_A: Final = variable("A")
_B: Final = variable("B")
_K: Final = variable("K")
_V: Final = variable("V")
_LIST: Final = list_of(_A)
_MAP: Final = map_of(_A, _B)

_ORDERED: Final = (
    (BOOL, BOOL, "bool"),
    (INT, INT, "int64"),
    (INT, DOUBLE, "int64_double"),
    (INT, UINT, "int64_uint64"),
    (UINT, UINT, "uint64"),
    (UINT, DOUBLE, "uint64_double"),
    (UINT, INT, "uint64_int64"),
    (DOUBLE, DOUBLE, "double"),
    (DOUBLE, INT, "double_int64"),
    (DOUBLE, UINT, "double_uint64"),
    (STRING, STRING, "string"),
    (BYTES, BYTES, "bytes"),
    (TIMESTAMP, TIMESTAMP, "timestamp"),
    (DURATION, DURATION, "duration"),
)


def _comparison(name: str, prefix: str, code: Code) -> Function:
    overloads = tuple(overload(f"{prefix}_{kind}", (left, right), BOOL) for left, right, kind in _ORDERED)
    return Function(name, overloads, code)


def _binary(name: str, code: Code, *signatures: tuple[str, Type, Type, Type], metered: bool = False) -> Function:
    overloads = tuple(overload(id_, (left, right), result, None, metered) for id_, left, right, result in signatures)
    return Function(name, overloads, code)


def _not(value: Any) -> bool:
    if type(value) is not bool:
        raise no_overload("!", value)
    return not value


def _in(value: Any, container: Any) -> bool:
    kind = type(container)
    if kind is MapValue or kind is DomainsValue:
        return bool(container.contains(value))
    if is_list(container):
        return equality.contains(container, value)
    raise no_overload("in", value, container)


def _size(value: Any) -> int:
    if type(value) in (str, bytes, MapValue, DomainsValue) or is_list(value):
        return len(value)
    raise no_overload("size", value)


_LISTS_AND_MAPS_BY_INDEX: Final[tuple[Overload, ...]] = (
    overload("index_list", (_LIST, INT), _A),
    overload("index_map", (_MAP, _A), _B),
    overload("optional_list_index_int", (optional_of(list_of(_V)), INT), optional_of(_V)),
    overload("optional_map_index_value", (optional_of(map_of(_K, _V)), _K), optional_of(_V)),
)

FUNCTIONS: Final = (
    Function("_?_:_", (overload("conditional", (BOOL, _A, _A), _A),)),
    Function("_&&_", (overload("logical_and", (BOOL, BOOL), BOOL),)),
    Function("_||_", (overload("logical_or", (BOOL, BOOL), BOOL),)),
    Function("!_", (overload("logical_not", (BOOL,), BOOL),), _not),
    Function("@not_strictly_false", (overload("not_strictly_false", (BOOL,), BOOL),)),
    Function("_==_", (overload("equals", (_A, _A), BOOL),)),
    Function("_!=_", (overload("not_equals", (_A, _A), BOOL),)),
    _binary(
        "_+_",
        arithmetic.add,
        ("add_bytes", BYTES, BYTES, BYTES),
        ("add_double", DOUBLE, DOUBLE, DOUBLE),
        ("add_duration_duration", DURATION, DURATION, DURATION),
        ("add_duration_timestamp", DURATION, TIMESTAMP, TIMESTAMP),
        ("add_timestamp_duration", TIMESTAMP, DURATION, TIMESTAMP),
        ("add_int64", INT, INT, INT),
        ("add_list", _LIST, _LIST, _LIST),
        ("add_string", STRING, STRING, STRING),
        ("add_uint64", UINT, UINT, UINT),
        metered=True,
    ),
    _binary(
        "_/_",
        arithmetic.divide,
        ("divide_double", DOUBLE, DOUBLE, DOUBLE),
        ("divide_int64", INT, INT, INT),
        ("divide_uint64", UINT, UINT, UINT),
    ),
    _binary("_%_", arithmetic.modulo, ("modulo_int64", INT, INT, INT), ("modulo_uint64", UINT, UINT, UINT)),
    _binary(
        "_*_",
        arithmetic.multiply,
        ("multiply_double", DOUBLE, DOUBLE, DOUBLE),
        ("multiply_int64", INT, INT, INT),
        ("multiply_uint64", UINT, UINT, UINT),
    ),
    Function(
        "-_",
        (overload("negate_double", (DOUBLE,), DOUBLE), overload("negate_int64", (INT,), INT)),
        arithmetic.negate,
    ),
    _binary(
        "_-_",
        arithmetic.subtract,
        ("subtract_double", DOUBLE, DOUBLE, DOUBLE),
        ("subtract_duration_duration", DURATION, DURATION, DURATION),
        ("subtract_int64", INT, INT, INT),
        ("subtract_timestamp_duration", TIMESTAMP, DURATION, TIMESTAMP),
        ("subtract_timestamp_timestamp", TIMESTAMP, TIMESTAMP, DURATION),
        ("subtract_uint64", UINT, UINT, UINT),
    ),
    _comparison("_<_", "less", lambda left, right: equality.compare(left, right, "<") < 0),
    _comparison("_<=_", "less_equals", lambda left, right: equality.compare(left, right, "<=") <= 0),
    _comparison("_>_", "greater", lambda left, right: equality.compare(left, right, ">") > 0),
    _comparison("_>=_", "greater_equals", lambda left, right: equality.compare(left, right, ">=") >= 0),
    Function("_[_]", _LISTS_AND_MAPS_BY_INDEX),
    Function(
        "_[?_]",
        (
            overload("list_optindex_optional_int", (list_of(_V), INT), optional_of(_V)),
            overload("optional_list_optindex_optional_int", (optional_of(list_of(_V)), INT), optional_of(_V)),
            overload("map_optindex_optional_value", (map_of(_K, _V), _K), optional_of(_V)),
            overload("optional_map_optindex_optional_value", (optional_of(map_of(_K, _V)), _K), optional_of(_V)),
        ),
    ),
    Function(
        "@in",
        (overload("in_list", (_A, _LIST), BOOL), overload("in_map", (_A, _MAP), BOOL)),
        _in,
    ),
    Function(
        "size",
        (
            overload("size_bytes", (BYTES,), INT),
            member("bytes_size", (BYTES,), INT),
            overload("size_list", (_LIST,), INT),
            member("list_size", (_LIST,), INT),
            overload("size_map", (_MAP,), INT),
            member("map_size", (_MAP,), INT),
            overload("size_string", (STRING,), INT),
            member("string_size", (STRING,), INT),
        ),
        _size,
    ),
)
