"""The facts without which an expression is true of no device.

Comes in: a checked tree and the compiler that compiled it. Goes out: names as `domain/name`. Only what the logic alone
makes certain is in it: a device that has all of them may still not match.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from adjoin_allocator.cel.device import fact_name
from adjoin_allocator.cel.facts import Path
from adjoin_allocator.cel.program import Compiler
from adjoin_allocator.cel.syntax import Call, Comprehension, Expr, ListNode, Literal, Macro, Select, children

_NONE: Final = frozenset[str]()


def needed(tree: Expr, compiler: Compiler) -> frozenset[str]:
    """Facts that must be there for `tree` to be true."""
    if isinstance(tree, Call):
        if tree.function == "_&&_":
            return _NONE.union(*(needed(arg, compiler) for arg in tree.args))
        if tree.function == "_||_":
            return _common(needed(arg, compiler) for arg in tree.args)
        if tree.function == "_?_:_":
            test, *answers = tree.args
            return _demanded(test, compiler) | _common(needed(answer, compiler) for answer in answers)
        if tree.function == "@in":
            return _tested(compiler.path_of(tree.args[1]), tree.args[0]) or _demanded(tree, compiler)
    if isinstance(tree, Comprehension) and tree.macro is Macro.BIND:
        return needed(tree.result, compiler)
    if isinstance(tree, Select) and tree.test:
        base = compiler.path_of(tree.operand)
        return _fact(None if base is None else base.step(tree.field, False)) or _demanded(tree.operand, compiler)
    return _demanded(tree, compiler)


def _demanded(tree: Expr, compiler: Compiler) -> frozenset[str]:
    """Facts that must be there for `tree` to have a value at all."""
    path = compiler.path_of(tree)
    if path is not None:
        return _NONE if path.optional else _fact(path)
    if isinstance(tree, Select):
        return _NONE if tree.qualified else _demanded(tree.operand, compiler)
    if isinstance(tree, Comprehension):
        return _demanded(tree.result if tree.macro is Macro.BIND else tree.range, compiler)
    if isinstance(tree, Call):
        if tree.function in ("_&&_", "_||_"):
            return _NONE
        if tree.function in ("_?_:_", "or", "orValue"):
            return _demanded(tree.operands[0], compiler)
        if tree.function == "@in" and isinstance(tree.args[1], ListNode) and not tree.args[1].elements:
            return _NONE
    return _NONE.union(*(_demanded(child, compiler) for child in children(tree)))


def _fact(path: Path | None) -> frozenset[str]:
    if path is None or len(path.steps) < 3:
        return _NONE
    name = fact_name(path.steps[1], path.steps[2])
    return frozenset((name,)) if name else _NONE


def _tested(container: Path | None, key: Expr) -> frozenset[str]:
    """The fact of `'name' in device.attributes['domain']`."""
    if container is None or not container.is_map or not isinstance(key, Literal) or not isinstance(key.value, str):
        return _NONE
    return _fact(container.step(key.value, False))


def _common(parts: Iterable[frozenset[str]]) -> frozenset[str]:
    first, *rest = parts
    return first.intersection(*rest)
