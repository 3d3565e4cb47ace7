"""What the types leave open but Kubernetes refuses all the same: literals that mix types, and literal format calls
that cannot work.

Comes in: a checked tree. Goes out: nothing, or a refusal with its place. Literal patterns, durations and the like are
refused where they are compiled (`program`).
"""

from __future__ import annotations

from typing import Final

from adjoin_allocator.cel.errors import EvaluationError, Refusal
from adjoin_allocator.cel.formatting import Clause, clauses
from adjoin_allocator.cel.regex import compiled
from adjoin_allocator.cel.syntax import Call, Expr, ListNode, Literal, MapNode, children
from adjoin_allocator.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    optional_value,
)

_PLAIN: Final = frozenset((INT, UINT, DOUBLE, BOOL, STRING, TIMESTAMP, BYTES, DURATION, NULL))
_ACCEPTED: Final = {
    "d": frozenset((INT, UINT)),
    "f": frozenset((DOUBLE, STRING)),
    "e": frozenset((DOUBLE, STRING)),
    "b": frozenset((INT, UINT, BOOL)),
    "x": frozenset((INT, UINT, STRING, BYTES)),
    "X": frozenset((INT, UINT, STRING, BYTES)),
    "o": frozenset((INT, UINT)),
}


def check_literals(tree: Expr) -> None:
    """Raises `Refusal`."""
    # With each node whether it is inside a format call, whose list of values may mix types.
    pending: list[tuple[Expr, bool]] = [(tree, False)]
    while pending:
        node, exempt = pending.pop()
        if isinstance(node, Call):
            if node.function == "format":
                exempt = True
                _check_format(node)
            elif node.function == "matches":
                _check_pattern(node)
        elif isinstance(node, ListNode):
            _check_list(node, exempt)
        elif isinstance(node, MapNode):
            _check_map(node, exempt)
        pending.extend((child, exempt) for child in children(node))


def _part(node: Expr, optional: bool) -> Type:
    if not optional:
        return node.type
    inner = optional_value(node.type)
    if inner is None:
        raise Refusal("an optional element must be known to be an optional", node.offset)
    return inner


def _same(expected: Type, found: Type, node: Expr) -> None:
    if found != expected:
        raise Refusal(f"expected type {expected}, found {found}: a literal cannot mix types", node.offset)


def _check_list(node: ListNode, exempt: bool) -> None:
    types = [_part(element, i in node.optional) for i, element in enumerate(node.elements) if not exempt]
    for found, element in zip(types, node.elements, strict=False):
        _same(types[0], found, element)


def _check_map(node: MapNode, exempt: bool) -> None:
    if exempt or not node.entries:
        return
    first = node.entries[0]
    key, value = first.key.type, _part(first.value, first.optional)
    for entry in node.entries:
        _same(key, entry.key.type, entry.key)
        _same(value, _part(entry.value, entry.optional), entry.value)


def _check_pattern(node: Call) -> None:
    """Kubernetes looks at the first argument in brackets, also in `matches(text, pattern)`, where that is the text."""
    first = node.args[0]
    if isinstance(first, Literal) and isinstance(first.value, str):
        try:
            compiled(first.value)
        except ValueError as error:
            raise Refusal(str(error), first.offset) from error


def _check_format(node: Call) -> None:
    pattern, values = node.target, node.args[0]
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str) or not isinstance(values, ListNode):
        return
    used = 0
    try:
        for clause in clauses(pattern.value):
            if clause.verb:
                if used >= len(values.elements):
                    raise Refusal(f"format: there is no value number {used + 1}", node.offset)
                _check_value(clause, values.elements[used])
                used += 1
    except EvaluationError as error:
        raise Refusal(str(error), node.offset) from error
    if used < len(values.elements):
        raise Refusal(f"format: {len(values.elements)} values for {used} clauses", node.offset)


def _check_value(clause: Clause, node: Expr) -> None:
    if clause.verb == "s":
        _check_text(node)
    elif node.type != DYN and node.type not in _ACCEPTED[clause.verb]:
        raise Refusal(f"format: %{clause.verb} does not take {node.type}", node.offset)


def _check_text(node: Expr) -> None:
    if node.type != DYN and node.type not in _PLAIN and node.type.sort not in (LIST, MAP, TYPE):
        raise Refusal(f"format: %s does not take {node.type}", node.offset)
    if isinstance(node, ListNode | MapNode):
        for child in children(node):
            _check_text(child)
