"""How functions are declared: names, overloads, and the code behind them.

A library is a tuple of `Function`s; `environment.py` puts the libraries together. An overload's `call` gets the
receiver and arguments as runtime values and answers a value, or raises `EvaluationError`. A function with `singleton`
has one piece of code for all its overloads, which looks at the values itself; operators are like that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adjoin_allocator.cel.types import VARIABLE, Type

Code = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    """One signature of a function.

    Attributes:
        id: Kubernetes' name of it; costs go by it.
        args: Types of receiver and arguments.
        result: Type of the result.
        member: Written as a method (`x.f()`), not as a function (`f(x)`).
        call: The code, None where the function has a singleton or is built into the compiler.
        variables: Names of the type variables in it.
        metered: The code wants the meter as its first argument, since the size of its result has no bound.
    """

    id: str
    args: tuple[Type, ...]
    result: Type
    member: bool
    call: Code | None
    variables: tuple[str, ...]
    metered: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function with all its overloads, in the order in which they are tried.

    Attributes:
        name: As written, dots included; operators have names that cannot be written.
        overloads: In order.
        singleton: Code for all overloads alike, or None.
        unguarded: The code checks its arguments itself even when one overload was chosen beforehand.
    """

    name: str
    overloads: tuple[Overload, ...]
    singleton: Code | None = None
    unguarded: bool = False


def overload(
    id_: str, args: tuple[Type, ...], result: Type, call: Code | None = None, metered: bool = False
) -> Overload:
    """A signature of a plain function."""
    return Overload(id_, args, result, False, call, _variables((*args, result)), metered)


def member(id_: str, args: tuple[Type, ...], result: Type, call: Code | None = None, metered: bool = False) -> Overload:
    """A signature of a method; the first of `args` is the receiver."""
    return Overload(id_, args, result, True, call, _variables((*args, result)), metered)


def _variables(types: tuple[Type, ...]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    pending = list(types)
    while pending:
        candidate = pending.pop()
        if candidate.sort == VARIABLE:
            found[candidate.name] = None
        pending.extend(candidate.params)
    return tuple(found)
