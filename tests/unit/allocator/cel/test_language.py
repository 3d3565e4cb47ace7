"""What expressions mean, law by law, and which are refused; the tables are in `tests/support/cel_*`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.cel_language_laws import LANGUAGE
from tests.support.cel_laws import Law, Refusal
from tests.support.cel_library_laws import LIBRARY
from tests.support.cel_refusals import REFUSALS
from tests.support.cel_sample import GPU, view
from tests.support.cel_verdicts import Outcome, outcome, without_cost_limit

from adjoin_allocator.cel import CompileError, compile_selector
from adjoin_allocator.cel.checker import check
from adjoin_allocator.cel.environment import FUNCTIONS
from adjoin_allocator.cel.parser import parse
from adjoin_allocator.cel.syntax import Call, Expr, children

LAWS = (*LANGUAGE, *LIBRARY)


@pytest.fixture(autouse=True)
def _meaning_before_cost() -> Iterator[None]:
    """Some laws need functions that Kubernetes finds too expensive for an admitted selector."""
    with without_cost_limit():
        yield


@pytest.mark.parametrize("law", LAWS, ids=[law.sentence for law in LAWS])
def test_law(law: Law) -> None:
    """Every expression of the law ends as the law says."""
    device = view(GPU)
    expected = {
        expression: result
        for result, expressions in (
            (Outcome.TRUE, law.true),
            (Outcome.FALSE, law.false),
            (Outcome.FAILS, law.fails),
        )
        for expression in expressions
    }
    assert {expression: outcome(compile_selector(expression), device) for expression in expected} == expected


@pytest.mark.parametrize("refusal", REFUSALS, ids=[refusal.sentence for refusal in REFUSALS])
def test_refused(refusal: Refusal) -> None:
    """The message names the place and what is wrong."""
    with pytest.raises(CompileError) as caught:
        compile_selector(refusal.expression)
    assert str(caught.value) == f"{refusal.place}: {refusal.reason}"
    assert f"{caught.value.line}:{caught.value.column}" == refusal.place


def test_every_signature_of_every_function_is_in_the_tables() -> None:
    """A function that no law speaks of is a gap."""
    spoken_of = {used for law in LAWS for text in (*law.true, *law.false, *law.fails) for used in _overloads(text)}
    declared = {(name, overload.id) for name, function in FUNCTIONS.items() for overload in function.overloads}
    assert declared - spoken_of == set()


def _overloads(text: str) -> Iterator[tuple[str, str]]:
    tree = parse(text)
    check(tree)
    pending: list[Expr] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Call):
            yield from ((node.function, overload.id) for overload in node.overloads)
        pending.extend(children(node))
