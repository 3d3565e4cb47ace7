"""A compiled device selector.

Comes in: the text of an expression. Goes out: `Selector`, immutable, equal and hashed by its text, safe to use from
several threads at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from adjoin_allocator.cel.checker import check
from adjoin_allocator.cel.cost import MAX_COST, estimate
from adjoin_allocator.cel.device import DeviceView
from adjoin_allocator.cel.errors import CompileError, EvaluationError, Refusal
from adjoin_allocator.cel.explanation import Explainer, Why
from adjoin_allocator.cel.facts import FactReader
from adjoin_allocator.cel.frame import Run
from adjoin_allocator.cel.literals import check_literals
from adjoin_allocator.cel.meter import Meter, StoppedError
from adjoin_allocator.cel.needs import needed
from adjoin_allocator.cel.parser import parse
from adjoin_allocator.cel.program import Compiler
from adjoin_allocator.cel.syntax import Expr
from adjoin_allocator.cel.types import BOOL, DYN
from adjoin_allocator.cel.values import Optional, type_name

MAX_LENGTH: Final = 10 * 1024
"""Bytes of an expression, as Kubernetes limits them."""

_TOO_DEEP: Final = "nested too deeply"


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """A device selector: whether a device matches, and what of the device that depends on.

    Attributes:
        expression: The text.
        reads: Attributes and capacity that it reads by name, as `domain/name`.
        reads_all: It goes through a map of attributes or capacity, so that every one of them may matter.
        attribute_reads: Of `reads`, the attributes.
        capacity_reads: Of `reads`, the capacity.
        reads_driver: The driver matters.
        reads_sharing: allowMultipleAllocations matters.
        needs: Of `reads`, those without which no device matches.
        max_cost: Kubernetes' estimate of what one evaluation may cost.
    """

    expression: str
    reads: frozenset[str]
    reads_all: bool
    attribute_reads: frozenset[str]
    capacity_reads: frozenset[str]
    reads_driver: bool
    reads_sharing: bool
    needs: frozenset[str]
    max_cost: int
    _run: Run = field(repr=False)
    _slots: int = field(repr=False)
    _metered: bool = field(repr=False)
    _tree: Expr = field(repr=False)
    _explained: list[tuple[Why, int]] = field(repr=False, default_factory=list)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    def matches(self, device: DeviceView) -> bool:
        """Whether the device matches. Raises `EvaluationError` where Kubernetes reports an error (and does not take
        the device)."""
        frame = [device.attributes, device.capacity, device, Meter() if self._metered else None, None]
        if self._slots:
            frame += [None] * self._slots
        try:
            value = self._run(frame)
        except StoppedError as stop:
            raise EvaluationError(str(stop)) from None
        except UnicodeError:
            # A JSON string can hold half a character, which no function on text takes.
            raise EvaluationError("a text is no Unicode") from None
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None
        while type(value) is Optional:
            value = value.value
        if value is True or value is False:
            return value
        raise EvaluationError(f"the result is of type {type_name(value)}, not bool")

    def missing(self, device: DeviceView) -> frozenset[str]:
        """Facts whose absence kept the device from matching, as `domain/name`; empty for a device that matches."""
        if not self._explained:
            explainer = Explainer(FactReader(trace=True))
            self._explained.append((explainer.why(self._tree), explainer.slots))
        why, slots = self._explained[0]
        try:
            return why([device.attributes, device.capacity, device, Meter(), set(), *[None] * slots])[1]
        except (StoppedError, UnicodeError, RecursionError):
            return frozenset()


@lru_cache(maxsize=1024)
def compile_selector(expression: str) -> Selector:
    """The selector that `expression` is. Raises `CompileError` where Kubernetes refuses it."""
    try:
        size = len(expression.encode())
    except UnicodeEncodeError as error:
        raise CompileError("the expression is no Unicode text") from error
    if size > MAX_LENGTH:
        raise CompileError(f"the expression has {size} bytes, no more than {MAX_LENGTH} are allowed")
    try:
        return _compile(expression)
    except Refusal as refusal:
        raise _placed(refusal, expression) from None
    except RecursionError:
        raise CompileError(_TOO_DEEP) from None


def _compile(expression: str) -> Selector:
    tree = parse(expression)
    check(tree)
    if tree.type not in (BOOL, DYN):
        raise Refusal(f"the expression must be a bool, it is {tree.type}", tree.offset)
    check_literals(tree)
    facts = FactReader()
    compiler = Compiler(facts)
    run = compiler.compile(tree)
    max_cost = estimate(tree)
    if max_cost > MAX_COST:
        raise Refusal(f"too complex: it may cost {max_cost}, the limit is {MAX_COST}", tree.offset)
    return Selector(
        expression,
        frozenset(facts.attributes | facts.capacity),
        facts.reads_all,
        frozenset(facts.attributes),
        frozenset(facts.capacity),
        facts.reads_driver,
        facts.reads_sharing,
        needed(tree, compiler),
        max_cost,
        run,
        compiler.slots,
        compiler.metered,
        tree,
    )


def _placed(refusal: Refusal, expression: str) -> CompileError:
    before = expression[: refusal.offset]
    line = before.count("\n") + 1
    return CompileError(refusal.reason, line, refusal.offset - (before.rfind("\n") + 1) + 1)
