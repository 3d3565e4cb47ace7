"""Verdicts that Kubernetes' evaluator gave, on record: every expression on every device ends as it did there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.cel_sample import view
from tests.support.cel_verdicts import Outcome, answer, without_cost_limit
from tests.support.shared import SHARED

RECORD = None if SHARED is None else SHARED / "cases" / "cel" / "kubernetes-1.37.json"

pytestmark = pytest.mark.skipif(
    RECORD is None or not RECORD.exists(), reason="../shared/cases/cel is absent: no verdicts of Kubernetes on record"
)

_OUTCOMES = {"true": Outcome.TRUE, "false": Outcome.FALSE, "error": Outcome.FAILS}


def _record() -> dict[str, Any]:
    if RECORD is None or not RECORD.exists():
        return {"devices": [], "cases": []}
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record


@pytest.mark.parametrize("case", _record()["cases"], ids=lambda case: case["expr"][:100])
def test_ends_as_in_kubernetes(case: dict[str, Any]) -> None:
    """The record was made without a limit for the estimated cost."""
    views = [view(device["Device"], device["Driver"]) for device in _record()["devices"]]
    expected = (Outcome.REFUSED,) if "compileError" in case else tuple(_OUTCOMES[result] for result in case["results"])
    with without_cost_limit():
        assert answer(case["expr"], views).outcomes == expected


def test_the_record_is_not_empty() -> None:
    """An empty record would let everything pass."""
    record = _record()
    assert len(record["cases"]) > 50
    assert len(record["devices"]) > 3
