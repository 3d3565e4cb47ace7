"""What macros stand for, in terms of loops, as CEL defines it.

Comes in: a call as written. Goes out: the tree that it means; a call that is no macro comes back as a plain `Call`. A
macro with arguments that it cannot take is refused.

Loops keep their running value in a variable whose name cannot be written, so that nothing in the expression can see it
by accident.
"""

from __future__ import annotations

from typing import Final

from adjoin_allocator.cel.errors import Refusal
from adjoin_allocator.cel.syntax import (
    Call,
    Comprehension,
    Copier,
    Expr,
    Ident,
    ListNode,
    Literal,
    Macro,
    MapNode,
    Select,
)

ACCUMULATOR: Final = "@result"
_OLD_ACCUMULATOR: Final = "__result__"
_UNUSED: Final = "#unused"
_SORT_INPUT: Final = "@sorted"
_MAX_COPIED_NODES: Final = 20_000

_QUANTIFIERS: Final = {
    "all": Macro.ALL,
    "exists": Macro.EXISTS,
    "exists_one": Macro.EXISTS_ONE,
    "existsOne": Macro.EXISTS_ONE,
}


class Macros:
    """Spells out the macros of one expression."""

    def __init__(self) -> None:
        self._copier = Copier(_MAX_COPIED_NODES)

    def function(self, offset: int, name: str, args: list[Expr]) -> Expr:
        """`name(args)`; only `has` is a macro here."""
        if name == "has" and len(args) == 1:
            tested = args[0]
            if not isinstance(tested, Select) or tested.optional:
                raise Refusal("has() needs a field selection like has(a.b)", tested.offset)
            return Select(offset, tested.operand, tested.field, test=True)
        return Call(offset, name, args)

    def method(self, offset: int, target: Expr, name: str, args: list[Expr]) -> Expr:
        """`target.name(args)`."""
        count = len(args)
        # existsOne came with the second variable, and takes no fewer.
        if name in _QUANTIFIERS and (count == 3 or (count == 2 and name != "existsOne")):
            return _quantifier(offset, _QUANTIFIERS[name], target, _variables(args[:-1]), args[-1])
        if name == "map" and count in (2, 3):
            return _collect(offset, target, _variables(args[:1]), args[-1], args[1] if count == 3 else None)
        if name == "filter" and count == 2:
            return _collect(offset, target, _variables(args[:1]), args[0], args[1])
        if name == "transformList" and count in (3, 4):
            return _collect(offset, target, _variables(args[:2]), args[-1], args[2] if count == 4 else None)
        if name == "transformMap" and count in (3, 4):
            names = _variables(args[:2])
            key = Ident(args[0].offset, names[0])
            return _insert(offset, target, names, args[-1], args[2] if count == 4 else None, key)
        if name == "transformMapEntry" and count in (3, 4):
            return _insert(offset, target, _variables(args[:2]), args[-1], args[2] if count == 4 else None, None)
        if name == "bind" and count == 3 and isinstance(target, Ident) and target.name == "cel":
            return _bind(offset, _name(args[0]), args[1], args[2])
        if name in ("optMap", "optFlatMap") and count == 2:
            return self._optional(offset, target, args, wrap=name == "optMap")
        if name == "sortBy" and count == 2:
            return self._sort_by(offset, target, args)
        return Call(offset, name, args, target)

    def _optional(self, offset: int, target: Expr, args: list[Expr], wrap: bool) -> Expr:
        name = _name(args[0])
        value = Call(offset, "value", [], self._copier.copy(target))
        body = _bind(offset, name, value, args[1])
        present = Call(offset, "optional.of", [body]) if wrap else body
        test = Call(offset, "hasValue", [], target)
        return Call(offset, "_?_:_", [test, present, Call(offset, "optional.none", [])])

    def _sort_by(self, offset: int, target: Expr, args: list[Expr]) -> Expr:
        if isinstance(target, Literal | MapNode):
            raise Refusal("sortBy() needs a list", target.offset)
        names = _variables(args[:1])
        keys = _collect(offset, Ident(offset, _SORT_INPUT), names, args[1], None)
        ordered = Call(offset, "@sortByAssociatedKeys", [keys], Ident(offset, _SORT_INPUT))
        return _bind(offset, _SORT_INPUT, target, ordered)


def _name(node: Expr) -> str:
    if not isinstance(node, Ident):
        raise Refusal("a variable needs a simple name", node.offset)
    return node.name


def _variables(nodes: list[Expr]) -> tuple[str, str]:
    """One or two names for the variables of a loop; the second is empty when there is one."""
    names = [_name(node) for node in nodes]
    if len(set(names)) < len(names):
        raise Refusal(f"both variables are called {names[0]}", nodes[1].offset)
    for name, node in zip(names, nodes, strict=True):
        if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
            raise Refusal(f"a variable cannot be called {name}", node.offset)
    return names[0], names[1] if len(names) == 2 else ""


def _running(offset: int) -> Ident:
    return Ident(offset, ACCUMULATOR)


def _quantifier(offset: int, macro: Macro, target: Expr, names: tuple[str, str], test: Expr) -> Expr:
    condition: Expr
    result: Expr = _running(offset)
    if macro is Macro.ALL:
        init = Literal(offset, True)
        condition = Call(offset, "@not_strictly_false", [_running(offset)])
        step = Call(offset, "_&&_", [_running(offset), test])
    elif macro is Macro.EXISTS:
        init = Literal(offset, False)
        condition = Call(offset, "@not_strictly_false", [Call(offset, "!_", [_running(offset)])])
        step = Call(offset, "_||_", [_running(offset), test])
    else:
        init = Literal(offset, 0)
        condition = Literal(offset, True)
        more = Call(offset, "_+_", [_running(offset), Literal(offset, 1)])
        step = Call(offset, "_?_:_", [test, more, _running(offset)])
        result = Call(offset, "_==_", [_running(offset), Literal(offset, 1)])
    loop = (condition, step, result)
    return Comprehension(offset, macro, target, names, ACCUMULATOR, init, loop, body=test)


def _loop(
    offset: int,
    macro: Macro,
    target: Expr,
    names: tuple[str, str],
    init: Expr,
    step: Expr,
    body: Expr,
    keep: Expr | None,
    key: Expr | None,
) -> Expr:
    if keep is not None:
        step = Call(offset, "_?_:_", [keep, step, _running(offset)])
    loop = (Literal(offset, True), step, _running(offset))
    return Comprehension(offset, macro, target, names, ACCUMULATOR, init, loop, body, keep, key)


def _collect(offset: int, target: Expr, names: tuple[str, str], body: Expr, keep: Expr | None) -> Expr:
    step = Call(offset, "_+_", [_running(offset), ListNode(offset, [body])])
    return _loop(offset, Macro.COLLECT, target, names, ListNode(offset, []), step, body, keep, None)


def _insert(offset: int, target: Expr, names: tuple[str, str], body: Expr, keep: Expr | None, key: Expr | None) -> Expr:
    parts = [_running(offset), body] if key is None else [_running(offset), key, body]
    step = Call(offset, "cel.@mapInsert", parts)
    return _loop(offset, Macro.INSERT, target, names, MapNode(offset, []), step, body, keep, key)


def _bind(offset: int, name: str, value: Expr, result: Expr) -> Expr:
    loop = (Literal(offset, False), Ident(offset, name), result)
    return Comprehension(offset, Macro.BIND, ListNode(offset, []), (_UNUSED, ""), name, value, loop, body=result)
