"""Our evaluator beside Kubernetes' own: same refusals, same costs, same verdict on every device.

The judge is a Go program that is built on first use; where it cannot be built, these tests are skipped. What is known
to differ is named here, and nothing else may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.controlplane import BuildError, Group, ensure
from tests.support.cel_expressions import expression, mutated
from tests.support.cel_language_laws import LANGUAGE
from tests.support.cel_library_laws import LIBRARY
from tests.support.cel_refusals import REFUSALS
from tests.support.cel_sample import DEVICES, view
from tests.support.cel_verdicts import Answer, Judge, Outcome, answer, judge, without_cost_limit

pytestmark = pytest.mark.cluster

VIEWS = [view(device) for device in DEVICES]
STRICTER = frozenset({"messages cannot be made"})
"""Refused by us although Kubernetes takes it: such an expression matches no device anywhere."""
RETRIES = 20
BATCH = 100


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Judge]:
    """Kubernetes' evaluator, with our devices."""
    try:
        program: Path = ensure(Group.CELORACLE)["celoracle"]
    except BuildError as error:
        pytest.skip(f"Kubernetes' evaluator cannot be built here: {error}")
    with without_cost_limit(), judge(program, DEVICES) as process:
        yield process


def differences(kubernetes: Judge, expressions: Sequence[str]) -> Iterator[str]:
    """Everything on which the two do not agree."""
    for text, theirs in zip(expressions, kubernetes.ask(expressions), strict=True):
        ours = answer(text, VIEWS)
        if theirs is None:
            # On this their evaluator falls over, and with it an API server's request: nobody can want it.
            if ours.outcomes != (Outcome.REFUSED,):
                yield f"{text}\n    they crash, we say {ours.outcomes}"
        elif not _agree(ours, theirs) and not _is_a_matter_of_order(kubernetes, text, ours):
            yield f"{text}\n    ours   {ours}\n    theirs {theirs}"


def _agree(ours: Answer, theirs: Answer) -> bool:
    return (ours.outcomes, ours.cost) == (theirs.outcomes, theirs.cost)


def _is_a_matter_of_order(kubernetes: Judge, text: str, ours: Answer) -> bool:
    """Kubernetes goes through a map in another order each time. What hangs on that has several answers; ours must be
    one of them."""
    again = (theirs for theirs in kubernetes.ask([text] * RETRIES) if theirs is not None)
    return any(_agree(ours, theirs) for theirs in again)


def test_laws_are_kubernetes_laws(kubernetes: Judge) -> None:
    """Our tables say of the language what Kubernetes says."""
    laws = [text for law in (*LANGUAGE, *LIBRARY) for text in (*law.true, *law.false, *law.fails)]
    refused = [refusal.expression for refusal in REFUSALS if refusal.sentence not in STRICTER]
    assert list(differences(kubernetes, laws + refused)) == []


@pytest.mark.parametrize("make", [expression, mutated], ids=["well formed", "damaged"])
@pytest.mark.parametrize("first", range(0, 3000, 1000), ids="from {}".format)
def test_random_expressions_end_alike(kubernetes: Judge, make: Callable[[int], str], first: int) -> None:
    """Thousands of expressions on devices that have what they ask for, have it otherwise, or have nothing."""
    expressions = list(dict.fromkeys(make(seed) for seed in range(first, first + 1000)))
    batches = (expressions[start : start + BATCH] for start in range(0, len(expressions), BATCH))
    assert [difference for batch in batches for difference in differences(kubernetes, batch)] == []
