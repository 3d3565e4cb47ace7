"""Compiled forms of the functions whose pattern is constant: what selectors ask of texts most.

Comes in: the compiled operand and the pattern. Goes out: a compiled expression.
"""

from __future__ import annotations

from typing import Any

from adjoin_allocator.cel.frame import Frame, Run
from adjoin_allocator.cel.regex import Pattern
from adjoin_allocator.cel.types import STRING, Type
from adjoin_allocator.cel.values import NONE, Optional, TypeValue, no_overload


def readable(operand: Run) -> Run:
    """Kubernetes looks constant patterns up in the text that a value holds: in an optional, or the name of a type."""

    def run(frame: Frame) -> Any:
        value = operand(frame)
        while type(value) is Optional and value is not NONE:
            value = value.value
        return value.name if type(value) is TypeValue else value

    return run


def matches(operand: Run, pattern: Pattern, static: Type) -> Run:
    """`operand.matches(pattern)`; `static` is the type that the operand certainly has."""
    answer = pattern.matches
    if static == STRING:
        return lambda frame: answer(operand(frame))

    def run(frame: Frame) -> bool:
        text = operand(frame)
        if type(text) is not str:
            raise no_overload("matches", text)
        return answer(text)

    return run
