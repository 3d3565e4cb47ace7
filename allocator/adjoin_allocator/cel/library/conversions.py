"""Conversions between types: `int()`, `string()`, `type()` and so on."""

from __future__ import annotations

from typing import Any, Final

from adjoin_allocator.cel.addresses import CIDR as CIDRValue
from adjoin_allocator.cel.addresses import IP as IPValue
from adjoin_allocator.cel.clock import SECOND, Duration, Timestamp, parse_duration, parse_timestamp
from adjoin_allocator.cel.declarations import Function, overload
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.numbers import general_text, parse_double, parse_int, parse_uint
from adjoin_allocator.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    STRING,
    TIMESTAMP,
    UINT,
    type_of,
    variable,
)
from adjoin_allocator.cel.values import INT_MAX, INT_MIN, UINT_MAX, TypeValue, UInt, type_name

_A: Final = variable("A")
_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "FALSE", "False"))


def _same(value: Any) -> Any:
    return value


def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


def _refuse(text: str, wanted: str) -> EvaluationError:
    return EvaluationError(f"{text!r} is no {wanted}")


def _bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _refuse(text, "bool")


def _double(text: str) -> float:
    value = parse_double(text)
    if value is None:
        raise _refuse(text, "double")
    return value


def _int(text: str) -> int:
    value = parse_int(text)
    if value is None:
        raise _refuse(text, "int")
    return value


def _uint(text: str) -> UInt:
    value = parse_uint(text)
    if value is None:
        raise _refuse(text, "uint")
    return UInt(value)


def _double_to_int(value: float) -> int:
    if float(INT_MIN) < value < float(INT_MAX):
        return int(value)
    raise EvaluationError("integer overflow")


def _double_to_uint(value: float) -> UInt:
    if 0 <= value < float(UINT_MAX):
        return UInt(int(value))
    raise EvaluationError("unsigned integer overflow")


def _int_to_uint(value: int) -> UInt:
    if value < 0:
        raise EvaluationError("unsigned integer overflow")
    return UInt(value)


def _uint_to_int(value: UInt) -> int:
    if value > INT_MAX:
        raise EvaluationError("integer overflow")
    return int(value)


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise EvaluationError("these bytes are no UTF-8") from error


def text_of(value: Any) -> str | None:
    """`string(value)`, or None for a type that has no text."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is float:
        return general_text(value)
    if kind is bytes:
        return _utf8(value)
    if kind is Duration or kind is Timestamp:
        return str(value.text())
    if kind is IPValue:
        return str(value.address)
    return str(value) if kind is CIDRValue else None


FUNCTIONS: Final = (
    Function("type", (overload("type", (_A,), type_of(_A)),), _type),
    Function(
        "bool", (overload("bool_to_bool", (BOOL,), BOOL, _same), overload("string_to_bool", (STRING,), BOOL, _bool))
    ),
    Function(
        "bytes",
        (overload("bytes_to_bytes", (BYTES,), BYTES, _same), overload("string_to_bytes", (STRING,), BYTES, str.encode)),
    ),
    Function(
        "double",
        (
            overload("double_to_double", (DOUBLE,), DOUBLE, _same),
            overload("int64_to_double", (INT,), DOUBLE, float),
            overload("string_to_double", (STRING,), DOUBLE, _double),
            overload("uint64_to_double", (UINT,), DOUBLE, float),
        ),
    ),
    Function(
        "duration",
        (
            overload("duration_to_duration", (DURATION,), DURATION, _same),
            overload("string_to_duration", (STRING,), DURATION, parse_duration),
        ),
    ),
    Function("dyn", (overload("to_dyn", (_A,), DYN),), _same),
    Function(
        "int",
        (
            overload("int64_to_int64", (INT,), INT, _same),
            overload("double_to_int64", (DOUBLE,), INT, _double_to_int),
            overload("duration_to_int64", (DURATION,), INT, int),
            overload("string_to_int64", (STRING,), INT, _int),
            overload("timestamp_to_int64", (TIMESTAMP,), INT, Timestamp.seconds),
            overload("uint64_to_int64", (UINT,), INT, _uint_to_int),
        ),
    ),
    Function(
        "string",
        (
            overload("string_to_string", (STRING,), STRING, _same),
            overload("bool_to_string", (BOOL,), STRING, text_of),
            overload("bytes_to_string", (BYTES,), STRING, _utf8),
            overload("double_to_string", (DOUBLE,), STRING, general_text),
            overload("duration_to_string", (DURATION,), STRING, Duration.text),
            overload("int64_to_string", (INT,), STRING, text_of),
            overload("timestamp_to_string", (TIMESTAMP,), STRING, Timestamp.text),
            overload("uint64_to_string", (UINT,), STRING, text_of),
            overload("ip_to_string", (IP,), STRING, text_of),
            overload("cidr_to_string", (CIDR,), STRING, text_of),
        ),
    ),
    Function(
        "timestamp",
        (
            overload("timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP, _same),
            overload("int64_to_timestamp", (INT,), TIMESTAMP, lambda seconds: Timestamp(seconds * SECOND)),
            overload("string_to_timestamp", (STRING,), TIMESTAMP, parse_timestamp),
        ),
    ),
    Function(
        "uint",
        (
            overload("uint64_to_uint64", (UINT,), UINT, _same),
            overload("double_to_uint64", (DOUBLE,), UINT, _double_to_uint),
            overload("int64_to_uint64", (INT,), UINT, _int_to_uint),
            overload("string_to_uint64", (STRING,), UINT, _uint),
        ),
    ),
)

CONVERSIONS: Final = frozenset(function.name for function in FUNCTIONS)
"""Functions that Kubernetes runs at compile time when the argument is constant, and refuses the expression when that
fails."""
