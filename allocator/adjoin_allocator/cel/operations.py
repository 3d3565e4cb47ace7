"""Compiled forms of the operators that are not plain functions: logic, conditionals, equality, comparisons.

Comes in: compiled operands and what is known of their types. Goes out: a compiled expression. `&&` and `||` let a
decided operand win over one that fails; being stopped by the meter is never passed over.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from adjoin_allocator.cel.equality import compare, contains, equal
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.frame import Frame, Run, constant
from adjoin_allocator.cel.types import BOOL, BYTES, INT, STRING, Type
from adjoin_allocator.cel.values import NONE, Optional, UInt, no_overload

_EXACT: Final = frozenset((STRING, INT, BOOL, BYTES))
"""Types whose values Python compares as CEL does, as long as both are of that type."""

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}


def logic(terms: Sequence[Run], decisive: bool, symbol: str) -> Run:
    """`||` (decisive True) or `&&` (decisive False) of all terms."""
    if len(terms) == 2:
        return _logic_of_two(terms[0], terms[1], decisive, symbol)
    passive = not decisive

    def run(frame: Frame) -> Any:
        failure: EvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if value is not passive:
                failure = failure or no_overload(symbol, value)
        if failure is not None:
            raise failure
        return passive

    return run


def _logic_of_two(first: Run, second: Run, decisive: bool, symbol: str) -> Run:
    passive = not decisive

    def run(frame: Frame) -> Any:
        try:
            left = first(frame)
        except EvaluationError:
            if second(frame) is decisive:
                return decisive
            raise
        if left is decisive:
            return decisive
        right = second(frame)
        if right is decisive:
            return decisive
        if left is not passive or right is not passive:
            raise no_overload(symbol, left, right)
        return passive

    return run


def negation(operand: Run) -> Run:
    """`!operand`."""

    def run(frame: Frame) -> bool:
        value = operand(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise no_overload("!", value)

    return run


def conditional(test: Run, positive: Run, negative: Run) -> Run:
    """`test ? positive : negative`."""

    def run(frame: Frame) -> Any:
        value = test(frame)
        if value is True:
            return positive(frame)
        if value is False:
            return negative(frame)
        raise no_overload("? :", value)

    return run


def equality(left: tuple[Run, Type], right: tuple[Run, Type], known: tuple[Any, ...], wanted: bool) -> Run:
    """`==` (wanted True) or `!=` (wanted False); `known` holds the constant that the right side is, or is empty."""
    (first, first_type), (second, second_type) = left, right
    if first_type == second_type and first_type in _EXACT:
        return _exact_constant(first, known[0], wanted) if known else _exact(first, second, wanted)
    if known and type(known[0]) is str:
        return _text_constant(first, known[0], wanted)
    return _general(first, second, wanted)


def _exact(first: Run, second: Run, wanted: bool) -> Run:
    if wanted:
        return lambda frame: first(frame) == second(frame)
    return lambda frame: first(frame) != second(frame)


def _exact_constant(operand: Run, value: Any, wanted: bool) -> Run:
    if wanted:
        return lambda frame: operand(frame) == value
    return lambda frame: operand(frame) != value


_PLAIN: Final = frozenset((str, int, bool))


def _text_constant(operand: Run, text: str, wanted: bool) -> Run:
    """A value of unknown type against a constant text: what attributes are mostly asked."""

    def run(frame: Frame) -> bool:
        value = operand(frame)
        if value == text:
            return wanted
        if type(value) in _PLAIN:
            return not wanted
        return _decided(equal(value, text), wanted, value, text)

    return run


def _general(first: Run, second: Run, wanted: bool) -> Run:
    def run(frame: Frame) -> bool:
        left = first(frame)
        right = second(frame)
        return _decided(equal(left, right), wanted, left, right)

    return run


def _decided(answer: bool | None, wanted: bool, left: Any, right: Any) -> bool:
    if answer is None:
        if wanted:
            raise no_overload("==", left, right)
        return True
    return answer is wanted


def comparison(function: str, left: tuple[Run, Type], right: tuple[Run, Type], known: tuple[Any, ...]) -> Run:
    """`<`, `<=`, `>` or `>=`; `known` holds the constant that the right side is, or is empty."""
    (first, first_type), (second, second_type) = left, right
    decide = _ORDER[function]
    symbol = function.strip("_")
    if first_type == second_type and first_type in (INT, STRING):
        return lambda frame: decide(first(frame), second(frame))
    if known and type(known[0]) is int:
        return _against_whole(first, known[0], decide, symbol)
    return lambda frame: decide(compare(first(frame), second(frame), symbol), 0)


def _against_whole(operand: Run, limit: int, decide: Callable[[Any, Any], bool], symbol: str) -> Run:
    def run(frame: Frame) -> bool:
        value = operand(frame)
        if type(value) is int:
            return decide(value, limit)
        return decide(compare(value, limit, symbol), 0)

    return run


def membership(operand: tuple[Run, Type], elements: tuple[Any, ...]) -> Run:
    """`operand in elements` of a constant list."""
    run, static = operand
    if not elements:
        # Kubernetes does not even look at the operand then.
        return constant(False)
    kinds = set(map(type, elements))
    if kinds == {str}:
        return _text_membership(run, static, frozenset(elements))
    if not kinds <= _HASHED:
        return lambda frame: contains(elements, run(frame))

    def find(frame: Frame) -> bool:
        value = run(frame)
        _refuse_unhashed(value)
        return contains(elements, value)

    return find


_HASHED: Final = frozenset((str, int, bool, UInt, float))


def _refuse_unhashed(value: Any) -> None:
    """Kubernetes looks such a list up in a hash table, and fails where the value has no hash."""
    if type(value) is bytes or getattr(value, "unkeyable", False):
        raise no_overload("in", value)


def _text_membership(run: Run, static: Type, texts: frozenset[str]) -> Run:
    if static == STRING:
        return lambda frame: run(frame) in texts

    def find(frame: Frame) -> bool:
        value = run(frame)
        if type(value) is str:
            return value in texts
        _refuse_unhashed(value)
        return False

    return find


def alternative(first: Run, second: Run, unwrap: bool) -> Run:
    """`first.or(second)`, or with `unwrap` `first.orValue(second)`; the second is evaluated only when it is needed."""

    def run(frame: Frame) -> Any:
        value = first(frame)
        if type(value) is not Optional:
            raise no_overload("orValue" if unwrap else "or", value)
        if value is NONE:
            return second(frame)
        return value.value if unwrap else value

    return run
