"""Matching devices by lists of selectors, and saying why none matched."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cel_expressions import expression
from tests.support.cel_sample import DEVICES, GPU, View, view

from adjoin_allocator import selectors as room
from adjoin_allocator.cel import CompileError, EvaluationError, Quantity, Selector, Version, compile_selector
from adjoin_allocator.selectors import Match, SelectorReport, match_all, survey

_RAIL = compile_selector("device.attributes['net'].rail == 1")
_RDMA = compile_selector("device.attributes['net'].rdma")
_NUMA = compile_selector("has(device.attributes['net'].numa) && device.attributes['net'].numa == 0")


@dataclass(slots=True)
class Counted:
    """How many evaluations there were."""

    evaluations: int = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Counts evaluations, from an empty memory."""
    count = Counted()
    matches = Selector.matches

    def counting(self: Selector, device: View) -> bool:
        count.evaluations += 1
        return matches(self, device)

    monkeypatch.setattr(room, "_court", room._Court())
    monkeypatch.setattr(Selector, "matches", counting)
    return count


def test_without_selectors_every_device_matches() -> None:
    """A request may have none."""
    assert match_all((), view(GPU)) == Match(True)


def test_all_selectors_must_match() -> None:
    """One that says no is enough."""
    device = View(attributes={"net/rail": 1, "net/rdma": True})
    assert match_all((_RAIL, _RDMA), device) == Match(True)
    assert match_all((_RAIL, _RDMA), View(attributes={"net/rail": 2, "net/rdma": True})) == Match(False)
    assert match_all((_RAIL, _RDMA), View(attributes={"net/rail": 1, "net/rdma": False})) == Match(False)


def test_a_failing_selector_matches_nothing() -> None:
    """Kubernetes skips such a device, too."""
    failing = compile_selector("1 / 0 == 1")
    assert match_all((failing,), view(GPU)) == Match(False)
    assert match_all((_RDMA,), View(attributes={"net/rdma": "yes"})) == Match(False)


def test_every_selector_that_says_no_names_what_it_misses() -> None:
    """A user who mends one should not find the next only then."""
    assert match_all((_RAIL, _RDMA, _NUMA), View()) == Match(False, frozenset({"net/rail", "net/rdma", "net/numa"}))
    assert match_all((_RAIL, _RDMA), View(attributes={"net/rail": 1})) == Match(False, frozenset({"net/rdma"}))
    assert match_all((_RAIL, _RDMA), View(attributes={"net/rail": 2})) == Match(False, frozenset({"net/rdma"}))


def test_a_survey_counts_devices_and_missing_facts() -> None:
    """By name, so that a message does not change from pass to pass."""
    devices = [
        View(attributes={"net/rail": 1, "net/rdma": True}),
        *[View(attributes={"net/rail": 1})] * 2,
        *[View()] * 3,
    ]
    assert survey((_RAIL, _RDMA), iter(devices)) == SelectorReport(6, 1, (("net/rail", 3), ("net/rdma", 5)))
    assert survey((), devices) == SelectorReport(6, 6, ())
    assert survey((_RAIL,), []) == SelectorReport(0, 0, ())


def test_equal_devices_cost_one_evaluation(counted: Counted) -> None:
    """What the selector does not read does not tell devices apart."""
    devices = [View(attributes={"net/rail": number % 4, "net/uuid": str(number)}) for number in range(1000)]
    assert survey((_RAIL,), devices).matched == 250
    assert counted.evaluations == 4
    survey((_RAIL,), devices)
    assert counted.evaluations == 4


def test_a_selector_that_reads_all_tells_devices_apart_by_all(counted: Counted) -> None:
    """Any fact may matter to it."""
    selector = compile_selector("device.attributes['net'].exists(n, n == 'rail')")
    devices = [View(attributes={"net/rail": number % 2}) for number in range(10)]
    assert survey((selector,), devices).matched == 10
    assert counted.evaluations == 2
    assert (
        survey(
            (selector,), [View(attributes={"net/numa": 0}), View(capacity={"net/rail": Quantity.parse("1")})]
        ).matched
        == 0
    )


def test_memory_is_bounded(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is full it starts anew, and answers stay right."""
    monkeypatch.setattr(room, "_REMEMBERED", 8)
    devices = [View(attributes={"net/rail": number}) for number in range(100)]
    assert [match_all((_RAIL,), device).matched for device in devices] == [number == 1 for number in range(100)]
    kept = room._court._judges.values()
    assert sum(len(judge.verdicts) for judge in kept) <= 8


_LOOKALIKES = (
    (1, True, "device.attributes['d'].x == 1"),
    (0, False, "device.attributes['d'].x == 0"),
    ((1,), (True,), "device.attributes['d'].x == [1]"),
    ((), (1,), "device.attributes['d'].x == []"),
    ("1.0.0", Version.parse("1.0.0"), "device.attributes['d'].x == '1.0.0'"),
    (1, True, "device.attributes.exists(d, m, m.exists(n, v, v == 1))"),
    ((1,), (True,), "device.attributes.exists(d, m, m.exists(n, v, v == [1]))"),
)


@pytest.mark.parametrize(
    ("first", "second", "text"), _LOOKALIKES, ids=[f"{row[0]!r} in {row[2]}" for row in _LOOKALIKES]
)
def test_values_that_python_takes_for_equal_are_told_apart(first: object, second: object, text: str) -> None:
    """A verdict on one is not handed to the other."""
    selector = compile_selector(text)
    for order in ((first, second), (second, first)):
        verdicts = {repr(x): match_all((selector,), View(attributes={"d/x": x})).matched for x in order}  # type: ignore[dict-item]
        assert verdicts == {repr(first): True, repr(second): False}


def test_quantities_are_told_apart_as_far_as_kubernetes_does() -> None:
    """1 and 1000m are equal, but only one is an integer."""
    selector = compile_selector("device.capacity['d'].x.isInteger()")
    verdicts = [
        match_all((selector,), View(capacity={"d/x": Quantity.parse(text)})).matched for text in ("1", "1000m", "1")
    ]
    assert verdicts == [True, False, True]


def test_driver_and_sharing_tell_devices_apart_where_they_are_read() -> None:
    """They are no attributes."""
    by_driver = compile_selector("device.driver == 'a'")
    by_sharing = compile_selector("device.allowMultipleAllocations")
    devices = [View(driver=driver, allow_multiple_allocations=shared) for driver in "ab" for shared in (True, False)]
    assert [match_all((by_driver,), device).matched for device in devices] == [True, True, False, False]
    assert [match_all((by_sharing,), device).matched for device in devices] == [True, False, True, False]


@given(st.lists(st.integers(200_000, 200_400), min_size=1, max_size=3))
def test_remembered_verdicts_are_the_evaluated_ones(seeds: list[int]) -> None:
    """Whatever was asked before."""
    compiled = []
    for seed in seeds:
        try:
            compiled.append(compile_selector(expression(seed)))
        except CompileError:
            continue
    for device in map(view, DEVICES):
        assert match_all(compiled, device).matched == all(_matches(selector, device) for selector in compiled)


def _matches(selector: Selector, device: View) -> bool:
    try:
        return selector.matches(device)
    except EvaluationError:
        return False
