"""Which overloads of a function fit the types that it is given.

Comes in: a function and types. Goes out: the overloads that fit, in order of declaration, and the type of the result;
None where none fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from adjoin_allocator.cel.declarations import Function, Overload
from adjoin_allocator.cel.types import DYN, VARIABLE, Bindings, Type

Fitting = tuple[tuple[Overload, ...], Type]


def fitting_overloads(function: Function, is_method: bool, given: Sequence[Type], bindings: Bindings) -> Fitting | None:
    """What fits, given what `bindings` know; they learn from what fits."""
    found: list[Overload] = []
    result: Type | None = None
    for candidate in function.overloads:
        if candidate.member is not is_method or len(candidate.args) != len(given):
            continue
        wanted, answer = _fresh(candidate, bindings)
        if not bindings.assignable_all(given, wanted):
            continue
        found.append(candidate)
        answer = bindings.resolve(answer)
        if result is None:
            result = answer
        elif result != DYN and answer != result:
            result = DYN
    return None if result is None else (tuple(found), result)


@lru_cache(maxsize=4096)
def closed_overloads(function: Function, is_method: bool, given: tuple[Type, ...]) -> Fitting | None:
    """What fits types without variables: the same in every expression."""
    return fitting_overloads(function, is_method, given, Bindings())


def _fresh(overload: Overload, bindings: Bindings) -> tuple[Sequence[Type], Type]:
    """The overload's types with new variables in the place of its own."""
    if not overload.variables:
        return overload.args, overload.result
    names = {name: bindings.fresh() for name in overload.variables}
    return [_renamed(arg, names) for arg in overload.args], _renamed(overload.result, names)


def _renamed(candidate: Type, names: dict[str, Type]) -> Type:
    if candidate.sort == VARIABLE:
        return names[candidate.name]
    if not candidate.params:
        return candidate
    return candidate._replace(params=tuple(_renamed(param, names) for param in candidate.params))
