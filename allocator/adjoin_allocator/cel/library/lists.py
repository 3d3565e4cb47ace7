"""Functions on lists and sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from adjoin_allocator.cel import arithmetic, equality
from adjoin_allocator.cel.clock import Duration
from adjoin_allocator.cel.declarations import Code, Function, Overload, member, overload
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.meter import Meter
from adjoin_allocator.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    variable,
)
from adjoin_allocator.cel.values import UInt, is_list, no_overload

_T: Final = variable("T")
_LIST: Final = list_of(_T)

_COMPARABLE: Final = (
    ("int", INT),
    ("uint", UINT),
    ("double", DOUBLE),
    ("bool", BOOL),
    ("duration", DURATION),
    ("timestamp", TIMESTAMP),
    ("string", STRING),
    ("bytes", BYTES),
)
_SUMMABLE: Final = (
    ("int", INT, 0),
    ("uint", UINT, UInt(0)),
    ("double", DOUBLE, 0.0),
    ("duration", DURATION, Duration(0)),
)
_MAX_RANGE: Final = 1_000_000


def _has_order(value: Any) -> bool:
    return type(value) in (bool, int, UInt, float, str, bytes) or getattr(value, "ordered", False)


def _order(left: Any, right: Any) -> int | None:
    """-1, 0 or 1, or None for values that have no order with each other."""
    try:
        return equality.compare(left, right, "compare")
    except EvaluationError:
        return None


def _is_sorted(values: tuple[Any, ...]) -> bool:
    for position, value in enumerate(values):
        if not _has_order(value):
            raise no_overload("isSorted", value)
        if position and _order(values[position - 1], value) == 1:
            return False
    return True


def _sum(zero: Any) -> Code:
    def total(meter: Meter, values: tuple[Any, ...]) -> Any:
        result = zero
        for value in values:
            result = arithmetic.add(meter, result, value)
        return result

    return total


def _extreme(name: str, unwanted: int) -> Code:
    def best(values: tuple[Any, ...]) -> Any:
        if not values:
            raise EvaluationError(f"{name}() of an empty list")
        for value in values:
            if not _has_order(value):
                raise no_overload(name, value)
        result = values[0]
        for value in values[1:]:
            if _order(result, value) == unwanted:
                result = value
        return result

    return best


def _index_of(values: tuple[Any, ...], wanted: Any) -> int:
    return next((i for i, value in enumerate(values) if equality.equal(value, wanted) is True), -1)


def _last_index_of(values: tuple[Any, ...], wanted: Any) -> int:
    return next((i for i in reversed(range(len(values))) if equality.equal(values[i], wanted) is True), -1)


def _includes(container: Any, wanted: Any) -> bool:
    if is_list(container):
        return any(equality.equal(value, wanted) is True for value in container)
    return equality.equal(container, wanted) is True


def _slice(values: tuple[Any, ...], start: int, end: int) -> tuple[Any, ...]:
    if start < 0 or end < 0 or start > end or end > len(values):
        raise EvaluationError(f"slice({start}, {end}) of a list of {len(values)}")
    return tuple(values[start:end])


def _flatten(meter: Meter, values: Any, depth: Any = 1) -> tuple[Any, ...]:
    if not is_list(values) or type(depth) is not int:
        raise no_overload("flatten", values, depth)
    if depth < 0:
        raise EvaluationError("flatten() needs a depth that is not negative")
    flat = list(values)
    # One pass a level; it ends as soon as a pass changes nothing, whatever the depth asked for.
    while depth > 0 and any(map(is_list, flat)):
        flat = [inner for value in flat for inner in (value if is_list(value) else (value,))]
        meter.spend_on_list(len(flat))
        depth -= 1
    return tuple(flat)


def _sort(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return _sort_by(values, values)


def _sort_by(values: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    if not is_list(values) or not is_list(keys):
        raise no_overload("sort", values, keys)
    if len(values) != len(keys):
        raise EvaluationError("there are not as many keys as elements")
    if not values:
        return values
    if not _has_order(keys[0]):
        raise EvaluationError("the elements have no order")
    if len(keys) > 1 and any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("the elements have several types")
    by_key = cmp_to_key(lambda left, right: -1 if _order(left, right) == -1 else 1 if _order(right, left) == -1 else 0)
    positions = sorted(range(len(values)), key=lambda position: by_key(keys[position]))
    return tuple(values[position] for position in positions)


def _range(meter: Meter, count: int) -> tuple[int, ...]:
    if not 0 <= count <= _MAX_RANGE:
        raise EvaluationError(f"lists.range({count}) is out of range")
    meter.spend_on_list(count)
    return tuple(range(count))


def _reverse(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(reversed(values))


def _distinct(meter: Meter, values: tuple[Any, ...]) -> tuple[Any, ...]:
    kept: list[Any] = []
    for value in values:
        meter.spend_on_list(len(kept))
        if not any(equality.equal(value, other) is True for other in kept):
            kept.append(value)
    return tuple(kept)


def _set_contains(meter: Meter, values: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    meter.spend_on_list(len(values) * len(wanted))
    return all(equality.contains(values, value) for value in wanted)


def _set_equivalent(meter: Meter, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return _set_contains(meter, left, right) and _set_contains(meter, right, left)


def _set_intersects(meter: Meter, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    meter.spend_on_list(len(left) * len(right))
    return any(equality.contains(right, value) for value in left)


def _by_type(make: Callable[[str, Type], Overload]) -> tuple[Overload, ...]:
    return tuple(make(name, element) for name, element in _COMPARABLE)


_SET: Final = (_LIST, _LIST)

FUNCTIONS: Final = (
    Function("sets.contains", (overload("list_sets_contains_list", _SET, BOOL, _set_contains, metered=True),)),
    Function("sets.equivalent", (overload("list_sets_equivalent_list", _SET, BOOL, _set_equivalent, metered=True),)),
    Function("sets.intersects", (overload("list_sets_intersects_list", _SET, BOOL, _set_intersects, metered=True),)),
    Function("slice", (member("list_slice", (_LIST, INT, INT), _LIST, _slice),)),
    Function(
        "flatten",
        (
            member("list_flatten", (list_of(_LIST),), _LIST, _flatten, metered=True),
            member("list_flatten_int", (list_of(DYN), INT), list_of(DYN), _flatten, metered=True),
        ),
        unguarded=True,
    ),
    Function("sort", _by_type(lambda name, t: member(f"list_{t.name}_sort", (list_of(t),), list_of(t))), _sort),
    Function(
        "@sortByAssociatedKeys",
        _by_type(lambda name, t: member(f"list_{t.name}_sortByAssociatedKeys", (_LIST, list_of(t)), _LIST)),
        _sort_by,
    ),
    Function("lists.range", (overload("lists_range", (INT,), list_of(INT), _range, metered=True),)),
    Function("reverse", (member("list_reverse", (_LIST,), _LIST, _reverse),)),
    Function("distinct", (member("list_distinct", (_LIST,), _LIST, _distinct, metered=True),)),
    Function(
        "isSorted", _by_type(lambda name, t: member(f"list_{name}_is_sorted_bool", (list_of(t),), BOOL, _is_sorted))
    ),
    Function(
        "sum",
        tuple(
            member(f"list_{name}_sum_{name}", (list_of(t),), t, _sum(zero), metered=True) for name, t, zero in _SUMMABLE
        ),
    ),
    Function("max", _by_type(lambda name, t: member(f"list_{name}_max_{name}", (list_of(t),), t, _extreme("max", -1)))),
    Function("min", _by_type(lambda name, t: member(f"list_{name}_min_{name}", (list_of(t),), t, _extreme("min", 1)))),
    Function("indexOf", (member("list_a_index_of_int", (_LIST, _T), INT, _index_of),)),
    Function("lastIndexOf", (member("list_a_last_index_of_int", (_LIST, _T), INT, _last_index_of),)),
    Function("includes", (member("list_includes_dyn_dyn", (DYN, DYN), BOOL, _includes),)),
)
