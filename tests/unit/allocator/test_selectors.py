"""Selectors over devices: a verdict with its cause, and a memory that changes nothing but speed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from adjoin_allocator.cel import AttributeValue, Quantity, compile_selector
from adjoin_allocator.selectors import Match, match_all, survey


@dataclass
class View:
    """A device with facts by full name."""

    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    capacity: dict[str, Quantity] = field(default_factory=dict)
    driver: str = "d"
    allow_multiple_allocations: bool = False


@pytest.mark.parametrize(
    ("expressions", "view", "matched"),
    [
        pytest.param([], View(), True, id="no selector: every device"),
        pytest.param(["device.attributes['d'].x == 1"], View({"d/x": 1}), True, id="one that holds"),
        pytest.param(["true", "device.driver == 'e'"], View(), False, id="all must hold"),
        pytest.param(["device.attributes['d'].x == 1"], View({"d/x": "1"}), False, id="an error is no match"),
        pytest.param(
            ["device.capacity['d'].memory.compareTo(quantity('40Gi')) >= 0"],
            View(capacity={"d/memory": Quantity.parse("40960Mi")}),
            True,
            id="equal quantities in other units",
        ),
    ],
)
def test_a_device_matches_when_every_selector_does(expressions: list[str], view: View, matched: bool) -> None:
    """ANDed; an absent list means all."""
    assert match_all([compile_selector(text) for text in expressions], view).matched is matched


def test_what_was_missing_is_named() -> None:
    """The first selector that does not match says which fact it lacked."""
    rail = compile_selector("device.attributes['dra.net'].rail == 3")
    assert match_all([rail], View()) == Match(False, frozenset({"dra.net/rail"}))
    assert match_all([rail], View({"dra.net/rail": 2})) == Match(False)


def test_a_survey_counts_devices_and_what_they_lack() -> None:
    """For the message of SelectorUnmatched."""
    rail = compile_selector("device.attributes['dra.net'].rail == 3")
    views = [View(), View({"dra.net/rail": 2}), View({"dra.net/rail": 3}), View()]
    report = survey([rail], views)
    assert (report.devices, report.matched, report.missing) == (4, 1, (("dra.net/rail", 2),))


@pytest.mark.parametrize(
    ("expression", "one", "other"),
    [
        pytest.param("device.attributes['d'].x == true", {"d/x": True}, {"d/x": 1}, id="true is not 1"),
        pytest.param("device.attributes['d'].x.includes(true)", {"d/x": (True,)}, {"d/x": (1,)}, id="nor in a list"),
        pytest.param(
            "device.attributes['d'].exists(k, device.attributes['d'][k] == true)",
            {"d/x": True},
            {"d/x": 1},
            id="nor where every attribute is read",
        ),
    ],
)
def test_devices_that_python_takes_for_equal_are_told_apart(
    expression: str, one: dict[str, AttributeValue], other: dict[str, AttributeValue]
) -> None:
    """A verdict is remembered by facts, and facts are compared as CEL does, in either order."""
    selector = compile_selector(expression)
    for _ in range(2):
        assert match_all([selector], View(one)).matched
        assert not match_all([selector], View(other)).matched


def test_sharing_and_driver_belong_to_what_is_remembered() -> None:
    """Two devices with equal facts may differ in these."""
    sharing = compile_selector("device.allowMultipleAllocations")
    driver = compile_selector("device.driver == 'd'")
    assert match_all([sharing], View(allow_multiple_allocations=True)).matched
    assert not match_all([sharing], View()).matched
    assert match_all([driver], View()).matched
    assert not match_all([driver], View(driver="e")).matched
