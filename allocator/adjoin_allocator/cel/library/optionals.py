"""Optional values. `or` and `orValue` have no code here: they evaluate their argument only when they need it, so
`program` compiles them."""

from __future__ import annotations

from typing import Any, Final

from adjoin_allocator.cel.declarations import Function, member, overload
from adjoin_allocator.cel.equality import is_zero
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.types import BOOL, list_of, optional_of, variable
from adjoin_allocator.cel.values import NONE, Optional, type_name

_V: Final = variable("V")
_OPTIONAL: Final = optional_of(_V)
_LIST: Final = list_of(_V)


def _of_non_zero(value: Any) -> Optional:
    return NONE if is_zero(value) else Optional(value)


def _none() -> Optional:
    return NONE


def _has_value(optional: Optional) -> bool:
    return optional is not NONE


def _first(values: tuple[Any, ...]) -> Optional:
    return Optional(values[0]) if values else NONE


def _last(values: tuple[Any, ...]) -> Optional:
    return Optional(values[-1]) if values else NONE


def _unwrap(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for value in values:
        if type(value) is not Optional:
            raise EvaluationError(f"a list of optionals has a {type_name(value)}")
    return tuple(value.value for value in values if value is not NONE)


FUNCTIONS: Final = (
    Function("optional.of", (overload("optional_of", (_V,), _OPTIONAL, Optional),)),
    Function("optional.ofNonZeroValue", (overload("optional_ofNonZeroValue", (_V,), _OPTIONAL, _of_non_zero),)),
    Function("optional.none", (overload("optional_none", (), _OPTIONAL, _none),)),
    Function("value", (member("optional_value", (_OPTIONAL,), _V, Optional.get),)),
    Function("hasValue", (member("optional_hasValue", (_OPTIONAL,), BOOL, _has_value),)),
    Function("or", (member("optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL),)),
    Function("orValue", (member("optional_orValue_value", (_OPTIONAL, _V), _V),)),
    Function("last", (member("list_last", (_LIST,), _OPTIONAL, _last),)),
    Function("first", (member("list_first", (_LIST,), _OPTIONAL, _first),)),
    Function("optional.unwrap", (overload("optional_unwrap", (list_of(_OPTIONAL),), _LIST, _unwrap),)),
    Function("unwrapOpt", (member("optional_unwrapOpt", (list_of(_OPTIONAL),), _LIST, _unwrap),)),
)
