"""Quantities and semantic versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from adjoin_allocator.cel.declarations import Function, member, overload
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.library.parsing import parsed, parses
from adjoin_allocator.cel.quantity import Quantity
from adjoin_allocator.cel.types import BOOL, DOUBLE, INT, QUANTITY, SEMVER, STRING
from adjoin_allocator.cel.values import INT_MAX, INT_MIN
from adjoin_allocator.cel.version import Version


def _quantity(text: str) -> Quantity:
    return parsed(Quantity.parse, text)


def _is_quantity(text: str) -> bool:
    return parses(Quantity.parse, text)


def _semver(text: str, mend: bool = False) -> Version:
    return parsed(Version.parse_tolerant if mend else Version.parse, text)


def _is_semver(text: str, mend: bool = False) -> bool:
    return parses(Version.parse_tolerant if mend else Version.parse, text)


def _as_integer(amount: Quantity) -> int:
    value = amount.exact_int()
    if value is None:
        raise EvaluationError(f"{amount} is no integer")
    return value


def _is_integer(amount: Quantity) -> bool:
    return amount.exact_int() is not None


def _add(left: Quantity, right: Quantity) -> Quantity:
    return left.plus(right)


def _add_int(left: Quantity, right: int) -> Quantity:
    return left.plus(Quantity(right))


def _sub(left: Quantity, right: Quantity) -> Quantity:
    return left.plus(right, -1)


def _sub_int(left: Quantity, right: int) -> Quantity:
    return left.plus(Quantity(right), -1)


def _core(position: int) -> Callable[[Version], int]:
    def number(version: Version) -> int:
        value = version.core[position]
        # Kubernetes lets an unsigned number beyond the signed ones wrap around.
        return value if value <= INT_MAX else value + 2 * INT_MIN

    return number


_QUANTITIES: Final = (QUANTITY, QUANTITY)
_SEMVERS: Final = (SEMVER, SEMVER)


def _greater(left: Quantity | Version, right: Quantity | Version) -> bool:
    return left.compare(right) > 0  # type: ignore[arg-type]  # the guard lets through pairs of one type only


def _less(left: Quantity | Version, right: Quantity | Version) -> bool:
    return left.compare(right) < 0  # type: ignore[arg-type]  # as above


def _compare(left: Quantity | Version, right: Quantity | Version) -> int:
    return left.compare(right)  # type: ignore[arg-type]  # as above


FUNCTIONS: Final = (
    Function("quantity", (overload("string_to_quantity", (STRING,), QUANTITY, _quantity),)),
    Function("isQuantity", (overload("is_quantity_string", (STRING,), BOOL, _is_quantity),)),
    Function("sign", (overload("quantity_sign", (QUANTITY,), INT, Quantity.sign),)),
    Function(
        "isGreaterThan",
        (
            member("quantity_is_greater_than", _QUANTITIES, BOOL, _greater),
            member("semver_is_greater_than", _SEMVERS, BOOL, _greater),
        ),
    ),
    Function(
        "isLessThan",
        (
            member("quantity_is_less_than", _QUANTITIES, BOOL, _less),
            member("semver_is_less_than", _SEMVERS, BOOL, _less),
        ),
    ),
    Function(
        "compareTo",
        (
            member("quantity_compare_to", _QUANTITIES, INT, _compare),
            member("semver_compare_to", _SEMVERS, INT, _compare),
        ),
    ),
    Function("asApproximateFloat", (member("quantity_get_float", (QUANTITY,), DOUBLE, Quantity.approximate),)),
    Function("asInteger", (member("quantity_get_int", (QUANTITY,), INT, _as_integer),)),
    Function("isInteger", (member("quantity_is_integer", (QUANTITY,), BOOL, _is_integer),)),
    Function(
        "add",
        (
            member("quantity_add", _QUANTITIES, QUANTITY, _add),
            member("quantity_add_int", (QUANTITY, INT), QUANTITY, _add_int),
        ),
    ),
    Function(
        "sub",
        (
            member("quantity_sub", _QUANTITIES, QUANTITY, _sub),
            member("quantity_sub_int", (QUANTITY, INT), QUANTITY, _sub_int),
        ),
    ),
    Function(
        "semver",
        (
            overload("string_to_semver", (STRING,), SEMVER, _semver),
            overload("string_bool_to_semver", (STRING, BOOL), SEMVER, _semver),
        ),
    ),
    Function(
        "isSemver",
        (
            overload("is_semver_string", (STRING,), BOOL, _is_semver),
            overload("is_semver_string_bool", (STRING, BOOL), BOOL, _is_semver),
        ),
    ),
    Function("major", (member("semver_major", (SEMVER,), INT, _core(0)),)),
    Function("minor", (member("semver_minor", (SEMVER,), INT, _core(1)),)),
    Function("patch", (member("semver_patch", (SEMVER,), INT, _core(2)),)),
)
