"""Why a device did not match: which facts were missing where the verdict was made.

Comes in: a checked tree. Goes out: `Why`, a function of a frame that answers the verdict and the names of missing
facts that are to blame.

Blame follows the logic: of `a && b` the operand that is false is to blame and not one that failed beside it; of `a ||
b` both are. Inside an operand that is not logic, every fact that was looked for in vain is to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.frame import TRACE, UNSET, Frame, Run
from adjoin_allocator.cel.program import Compiler
from adjoin_allocator.cel.syntax import Call, Comprehension, Expr, Macro

Verdict = tuple[bool | None, frozenset[str]]
"""True, False, or None for a failure; and the missing facts that are to blame if it is not True."""
Why = Callable[[Frame], Verdict]

_NOBODY: Final = frozenset[str]()


class Explainer(Compiler):
    """Compiles an expression a second time, to be asked why. Its `facts` must trace."""

    __slots__ = ()

    def why(self, node: Expr) -> Why:
        """`node` as a function that explains its verdict."""
        if isinstance(node, Call):
            if node.function == "_&&_":
                return _all_of([self.why(arg) for arg in node.args])
            if node.function == "_||_":
                return _any_of([self.why(arg) for arg in node.args])
            if node.function == "_?_:_":
                test, positive, negative = (self.why(arg) for arg in node.args)
                return _chosen(test, positive, negative)
        if isinstance(node, Comprehension) and node.macro is Macro.BIND:
            names, slot = self.bind_variable(node)
            self.enter(names)
            result = self.why(node.result)
            self.leave(names)
            return _bound(slot, result)
        return _plain(self.compile(node))


def _plain(run: Run) -> Why:
    def why(frame: Frame) -> Verdict:
        trace: set[str] = frame[TRACE]
        trace.clear()
        try:
            value = run(frame)
        except EvaluationError:
            return None, frozenset(trace)
        if value is True:
            return True, _NOBODY
        return (False if value is False else None), frozenset(trace)

    return why


def _all_of(parts: list[Why]) -> Why:
    def why(frame: Frame) -> Verdict:
        failed, blamed = False, _NOBODY
        for part in parts:
            verdict, missing = part(frame)
            if verdict is False:
                return False, missing
            if verdict is None:
                failed = True
                blamed |= missing
        return (None, blamed) if failed else (True, _NOBODY)

    return why


def _any_of(parts: list[Why]) -> Why:
    def why(frame: Frame) -> Verdict:
        failed, blamed = False, _NOBODY
        for part in parts:
            verdict, missing = part(frame)
            if verdict is True:
                return True, _NOBODY
            failed |= verdict is None
            blamed |= missing
        return None if failed else False, blamed

    return why


def _chosen(test: Why, positive: Why, negative: Why) -> Why:
    def why(frame: Frame) -> Verdict:
        tested, missing = test(frame)
        if tested is None:
            return None, missing
        verdict, more = (positive if tested else negative)(frame)
        return verdict, _NOBODY if verdict is True else missing | more

    return why


def _bound(slot: int, result: Why) -> Why:
    def why(frame: Frame) -> Verdict:
        frame[slot] = UNSET
        return result(frame)

    return why
