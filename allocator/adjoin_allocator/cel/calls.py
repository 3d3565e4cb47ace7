"""Compiled forms of plain function calls: the right overload for the values, with as little looking as the types allow.

Comes in: a function, the overloads that the checker found, compiled operands with their types. Goes out: a compiled
expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from adjoin_allocator.cel.declarations import Code, Function, Overload
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.frame import METER, Frame, Run
from adjoin_allocator.cel.guards import Guard, guard_for
from adjoin_allocator.cel.meter import StoppedError
from adjoin_allocator.cel.types import Type
from adjoin_allocator.cel.values import no_overload


def call(function: Function, found: Sequence[Overload], operands: Sequence[Run], types: Sequence[Type]) -> Run:
    """The call of `function` on the operands."""
    chosen = found[0]
    if len(found) == 1 and (chosen.id == "list_distinct" or chosen.id.endswith(_SORTS)):
        operands = [_fatal(operand) for operand in operands]
    if function.singleton is not None:
        return _plain(function.singleton, chosen.metered, operands)
    if len(found) > 1:
        return _plain(_dispatcher(function, len(operands)), True, operands)
    assert chosen.call is not None, chosen.id
    if function.unguarded:
        return _plain(chosen.call, chosen.metered, operands)
    guards = [guard_for(wanted, given) for wanted, given in zip(chosen.args, types, strict=True)]
    return _plain(_guarded(function.name, chosen.call, guards, chosen.metered), chosen.metered, operands)


def is_metered(function: Function, found: Sequence[Overload]) -> bool:
    """Whether the call needs the meter."""
    several = function.singleton is None and len(found) > 1
    return any(overload.metered for overload in (function.overloads if several else found))


_SORTS: Final = ("_sort", "_sortByAssociatedKeys")


def _fatal(operand: Run) -> Run:
    """Kubernetes' meter cannot bear a failed operand of these calls: the whole evaluation ends, whatever stands around
    the call."""

    def run(frame: Frame) -> Any:
        try:
            return operand(frame)
        except EvaluationError as error:
            raise StoppedError(str(error)) from error

    return run


def _plain(code: Code, metered: bool, operands: Sequence[Run]) -> Run:
    """Evaluates the operands, then runs the code on their values."""
    if metered:
        return _plain_metered(code, operands)
    if len(operands) == 1:
        (only,) = operands
        return lambda frame: code(only(frame))
    if len(operands) == 2:
        first, second = operands
        return lambda frame: code(first(frame), second(frame))
    return lambda frame: code(*[operand(frame) for operand in operands])


def _plain_metered(code: Code, operands: Sequence[Run]) -> Run:
    if len(operands) == 2:
        first, second = operands
        return lambda frame: code(frame[METER], first(frame), second(frame))
    return lambda frame: code(frame[METER], *[operand(frame) for operand in operands])


def _guarded(name: str, code: Code, guards: Sequence[Guard | None], metered: bool) -> Code:
    """The code behind a look at those values whose types are not certain."""
    watched = [(position + metered, guard) for position, guard in enumerate(guards) if guard is not None]
    if not watched:
        return code
    if len(watched) == 1 and watched[0][0] == 0:
        return _guarded_first(name, code, watched[0][1], len(guards))

    def run(*values: Any) -> Any:
        for position, guard in watched:
            if not guard(values[position]):
                raise no_overload(name, *values[metered:])
        return code(*values)

    return run


def _guarded_first(name: str, code: Code, guard: Guard, count: int) -> Code:
    """The most frequent case, a method of an attribute, without packing values into a tuple."""
    if count == 1:

        def of_one(value: Any) -> Any:
            if not guard(value):
                raise no_overload(name, value)
            return code(value)

        return of_one
    if count == 2:

        def of_two(value: Any, other: Any) -> Any:
            if not guard(value):
                raise no_overload(name, value, other)
            return code(value, other)

        return of_two

    def of_many(value: Any, *others: Any) -> Any:
        if not guard(value):
            raise no_overload(name, value, *others)
        return code(value, *others)

    return of_many


def _dispatcher(function: Function, count: int) -> Code:
    """Tries all overloads of the function in order, whatever the checker found: the values decide."""
    candidates: list[tuple[list[tuple[int, Guard]], Callable[..., Any], bool]] = []
    for overload in function.overloads:
        if len(overload.args) == count and overload.call is not None:
            guards = enumerate(guard_for(wanted) for wanted in overload.args)
            watched = [(position, guard) for position, guard in guards if guard is not None]
            candidates.append((watched, overload.call, overload.metered))
    name = function.name

    def run(meter: Any, *values: Any) -> Any:
        for watched, code, metered in candidates:
            if all(guard(values[position]) for position, guard in watched):
                return code(meter, *values) if metered else code(*values)
        raise no_overload(name, *values)

    return run
