"""A compiled selector: what it reads, needs and misses, and that it is a value."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from tests.support.cel_sample import BARE, GPU, NIC, ODD, View, view

from adjoin_allocator.cel import CompileError, EvaluationError, Selector, compile_selector

_D = "device.attributes['a.b']"


class Reads(NamedTuple):
    sentence: str
    expression: str
    reads: tuple[str, ...] = ()
    all: bool = False
    needs: tuple[str, ...] = ()


READS = (
    Reads("a constant reads nothing", "true"),
    Reads("an attribute", f"{_D}.x == 1", ("a.b/x",), needs=("a.b/x",)),
    Reads("an attribute in brackets", f"{_D}['x'] == 1", ("a.b/x",), needs=("a.b/x",)),
    Reads("a name put together of constants", "device.attributes['a' + '.b'].x == 1", ("a.b/x",), needs=("a.b/x",)),
    Reads("capacity", "device.capacity['a.b'].m.isInteger()", ("a.b/m",), needs=("a.b/m",)),
    Reads("both sides of and are needed", f"{_D}.x == 1 && {_D}.y", ("a.b/x", "a.b/y"), needs=("a.b/x", "a.b/y")),
    Reads(
        "of or only what both sides need",
        f"({_D}.x == 1 && {_D}.y) || {_D}.x == 2",
        ("a.b/x", "a.b/y"),
        needs=("a.b/x",),
    ),
    Reads("either side of or may do", f"{_D}.x == 1 || {_D}.y == 1", ("a.b/x", "a.b/y")),
    Reads("has needs what it asks for", f"has({_D}.x) && {_D}.x == 1", ("a.b/x",), needs=("a.b/x",)),
    Reads("not has needs nothing", f"!has({_D}.x)", ("a.b/x",)),
    Reads("in a domain is has", f"'x' in {_D}", ("a.b/x",), needs=("a.b/x",)),
    Reads("an optional read needs nothing", f"{_D}.?x.orValue(1) == 1", ("a.b/x",)),
    Reads("a conditional needs its test", f"{_D}.x ? {_D}.y : {_D}.z", ("a.b/x", "a.b/y", "a.b/z"), needs=("a.b/x",)),
    Reads("a bound domain is not read as a whole", f"cel.bind(d, {_D}, d.x == 1)", ("a.b/x",), needs=("a.b/x",)),
    Reads("the range of a loop is needed", f"{_D}.l.all(v, v != {_D}.x)", ("a.b/l", "a.b/x"), needs=("a.b/l",)),
    Reads("an unused binding reads nothing", f"cel.bind(d, {_D}.x, true)"),
    Reads("going through a domain reads all", f"{_D}.exists(n, n == 'x')", all=True),
    Reads("going through domains reads all", "device.attributes.exists(d, d == 'x')", all=True),
    Reads("a name that only the device knows reads all", "device.attributes[device.driver].x == 1", all=True),
    Reads("asking for a domain reads all", "'a.b' in device.attributes", all=True),
    Reads("comparing a domain reads all", f"{_D} == {{}}", all=True),
    Reads("the device as a value reads all", "dyn(device).driver == ''", all=True),
    Reads("a domain with a slash holds no fact", "device.attributes['a/b'].x == 1"),
)


@pytest.mark.parametrize("row", READS, ids=[row.sentence for row in READS])
def test_reads(row: Reads) -> None:
    """What a verdict can depend on is known before any device is seen."""
    selector = compile_selector(row.expression)
    assert selector.reads == set(row.reads)
    assert selector.reads == selector.attribute_reads | selector.capacity_reads
    assert selector.reads_all is row.all
    assert selector.needs == set(row.needs)


def test_reads_of_driver_and_sharing_are_told_apart() -> None:
    """They are no facts by name."""
    selectors = [compile_selector(f"device.{field}") for field in ("driver == 'x'", "allowMultipleAllocations")]
    assert [(s.reads_driver, s.reads_sharing, s.reads) for s in selectors] == [
        (True, False, frozenset()),
        (False, True, frozenset()),
    ]


class Missing(NamedTuple):
    sentence: str
    expression: str
    missing: tuple[str, ...] = ()


MISSING = (
    Missing("a device that matches misses nothing", "true"),
    Missing("a wrong value is not a missing one", "device.driver == 'x'"),
    Missing("a read that fails", f"{_D}.x == 1", ("a.b/x",)),
    Missing("a guard that says no", f"has({_D}.x) && {_D}.x == 1", ("a.b/x",)),
    Missing("an optional that was none", f"{_D}.?x.orValue(0) == 1", ("a.b/x",)),
    Missing("an optional that was none and did no harm", f"{_D}.?x.orValue(1) == 1"),
    Missing("both sides of or", f"{_D}.x == 1 || {_D}.y == 1", ("a.b/x", "a.b/y")),
    Missing("all failing sides of and", f"{_D}.x == 1 && {_D}.y == 1", ("a.b/x", "a.b/y")),
    Missing("not the failing side when the other is false", f"{_D}.x == 1 && device.driver == 'x'"),
    Missing("what decides inside a binding", f"cel.bind(d, {_D}, d.x == 1)", ("a.b/x",)),
    Missing("what a branch reads", f"true ? {_D}.x == 1 : {_D}.y == 1", ("a.b/x",)),
    Missing("a test that fails", f"{_D}.x ? true : false", ("a.b/x",)),
    Missing("capacity", "device.capacity['a.b'].m.isInteger()", ("a.b/m",)),
    Missing("a loop over what is not there", f"{_D}.l.all(v, v == 1)", ("a.b/l",)),
    Missing("a failure of another kind", "1 / 0 == 1"),
)


@pytest.mark.parametrize("row", MISSING, ids=[row.sentence for row in MISSING])
def test_missing(row: Missing) -> None:
    """Only facts whose absence decided are named."""
    assert compile_selector(row.expression).missing(view(BARE)) == set(row.missing)


def test_a_missing_fact_is_in_the_error() -> None:
    """The caller need not take the message apart."""
    selector = compile_selector(f"{_D}.x == 1")
    with pytest.raises(EvaluationError, match=r"^a\.b/x is missing$") as caught:
        selector.matches(view(BARE))
    assert caught.value.missing == "a.b/x"
    with pytest.raises(EvaluationError) as other:
        compile_selector("1 / 0 == 1").matches(view(BARE))
    assert (str(other.value), other.value.missing) == ("division by zero", "")


def test_an_answer_that_is_no_bool_is_an_error() -> None:
    """Only the device tells the type of an attribute."""
    selector = compile_selector("device.attributes['gpu.example.com'].type")
    assert selector.matches(view(ODD))
    with pytest.raises(EvaluationError, match="the result is of type string, not bool"):
        selector.matches(view(GPU))


def test_names_without_a_domain_are_the_drivers() -> None:
    """The caller qualifies them; the selector reads `domain/name` whoever published it."""
    selector = compile_selector("device.attributes['gpu.example.com'].index == 4")
    assert selector.matches(view(NIC))
    assert not selector.matches(view(GPU))


def test_selectors_are_values() -> None:
    """Equal and hashed by their text, and never changed."""
    compile_selector.cache_clear()
    one = compile_selector("device.driver == 'a'")
    compile_selector.cache_clear()
    two = compile_selector("device.driver == 'a'")
    assert one is not two
    assert one == two
    assert len({one, two, compile_selector("device.driver == 'b'")}) == 2
    assert one != "device.driver == 'a'"
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.expression = "true"  # type: ignore[misc]
    assert repr(one).startswith("Selector(expression=\"device.driver == 'a'\"")


def test_one_selector_serves_several_threads() -> None:
    """Nothing of an evaluation is kept in the selector."""
    text = "[1, 2, 3].map(x, x * device.attributes['d'].n).filter(y, y > 0).size() == 3"
    selector = compile_selector(text)
    views = [View(driver="d", attributes={"d/n": number}) for number in (1, -1)] * 300

    def verdicts(_: int) -> list[bool]:
        return [selector.matches(device) for device in views]

    with ThreadPoolExecutor(4) as pool:
        assert all(found == [True, False] * 300 for found in pool.map(verdicts, range(8)))


def test_nothing_of_the_device_is_written() -> None:
    """Mappings are shared between snapshots."""
    device = view(GPU)
    before = (dict(device.attributes), dict(device.capacity))
    for text in (
        "device.attributes.all(d, m, m.size() > 0)",
        "dyn(device).capacity.size() == 2",
        "device.attributes == {}",
    ):
        compile_selector(text).matches(device)
    assert (device.attributes, device.capacity) == before


def test_the_order_in_which_a_driver_publishes_changes_nothing() -> None:
    """Maps are gone through in the order of names."""
    selector = compile_selector("device.attributes['d'].map(n, n) == ['a', 'b']")
    assert selector.matches(View(attributes={"d/b": 1, "d/a": 1}))
    assert selector.matches(View(attributes={"d/a": 1, "d/b": 1}))


def test_the_message_has_line_and_column() -> None:
    """Both count from 1, in characters."""
    with pytest.raises(CompileError) as caught:
        compile_selector("true &&\n  'é' == 1")
    error = caught.value
    assert (error.line, error.column, str(error)) == (2, 7, f"2:7: {error.reason}")


def test_refusals_are_raised_anew_each_time() -> None:
    """What is kept of an expression is only what compiles."""
    for _ in range(2):
        with pytest.raises(CompileError, match="undeclared reference to 'gpu'"):
            compile_selector("gpu == 1")


def test_a_selector_is_compiled_once() -> None:
    """Controllers ask for the same text again and again."""
    first: Selector = compile_selector("device.driver == 'once'")
    assert compile_selector("device.driver == 'once'") is first
