"""What is too long, too deep or too expensive, and that nothing makes the evaluator fall over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.cel_expressions import expression, mutated
from tests.support.cel_sample import DEVICES, GPU, View, view
from tests.support.cel_verdicts import without_cost_limit

from adjoin_allocator.cel import CompileError, EvaluationError, compile_selector
from adjoin_allocator.cel.parser import MAX_DEPTH

_G = "device.attributes['gpu.example.com']"


def test_ten_kibibytes_are_the_longest_expression() -> None:
    """Kubernetes counts bytes, not characters."""
    padding = 10 * 1024 - len("'' == ''")
    compile_selector(f"'{'a' * padding}' == ''")
    for text in (f"'{'a' * padding}a' == ''", f"'{'é' * (padding // 2)}a' == '' "):
        with pytest.raises(CompileError, match=r"the expression has 1024[0-9] bytes, no more than 10240 are allowed"):
            compile_selector(text)


class Cost(NamedTuple):
    sentence: str
    expression: str
    cost: int


COSTS = (
    Cost("a constant costs nothing", "true", 0),
    Cost("a field costs one", "device.driver == 'a'", 3),
    Cost("an attribute costs its steps and its comparison", f"{_G}.model == 'X'", 5),
    Cost("a loop costs its greatest range", "device.attributes.all(d, d == 'x')", 163),
    Cost("loops inside loops multiply", "device.attributes.all(d, device.attributes.all(e, d == e))", 12483),
    Cost("a pattern costs by its length and that of the text", f"{_G}.model.matches('^X[0-9]+$')", 25),
)


@pytest.mark.parametrize("row", COSTS, ids=[row.sentence for row in COSTS])
def test_cost(row: Cost) -> None:
    """The estimate is the one that admission compares with its limit."""
    assert compile_selector(row.expression).max_cost == row.cost


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2, 3, 4, 5].all(a, " + "[1, 2, 3, 4, 5].all(b, " * 8 + "true" + ")" * 9,
        "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, true))))",
        "type(1) == int",
        "['a', 'b'].isSorted()",
    ],
    ids=["loops in loops", "all attributes by all", "sizes that cannot be known", "texts that cannot be known"],
)
def test_what_may_cost_too_much_is_refused(text: str) -> None:
    """Admission refuses it, so it never gets as far as a device."""
    with pytest.raises(CompileError, match=r"too complex: it may cost \d+, the limit is 1000000"):
        compile_selector(text)


def _doubled_text(times: int) -> str:
    """A text that doubles at every step; the estimate does not see it grow."""
    steps = "".join(f"cel.bind(t{n}, '%s%s'.format([t{n - 1}, t{n - 1}]), " for n in range(1, times + 1))
    return f"cel.bind(t0, '0123456789', {steps}t{times}.size() > 0{')' * (times + 1)}"


def _doubled_list(times: int) -> str:
    steps = "".join(f"cel.bind(l{n}, l{n - 1} + l{n - 1}, " for n in range(1, times + 1))
    return f"cel.bind(l0, {_G}.numaNodes, {steps}l{times}.size() > 0{')' * (times + 1)}"


class Explosion(NamedTuple):
    sentence: str
    expression: str


EXPLOSIONS = (
    Explosion("texts that double", _doubled_text(40)),
    Explosion("lists that double", _doubled_list(40)),
    Explosion("ranges in ranges", "lists.range(1000).exists(a, lists.range(1001).exists(b, b < 0))"),
    Explosion("sets of ranges", "sets.contains(lists.range(100000), lists.range(100000).map(x, -x))"),
    Explosion("elements without likeness", "lists.range(100000).distinct().size() == 1"),
    Explosion("an or that is decided does not save it", f"{_doubled_text(40)} || true"),
)


@pytest.mark.parametrize("row", EXPLOSIONS, ids=[row.sentence for row in EXPLOSIONS])
def test_an_evaluation_ends_at_its_budget(row: Explosion) -> None:
    """What the estimate lets pass, or would with no limit, is stopped while it runs; no operator passes over that."""
    with without_cost_limit():
        selector = compile_selector(row.expression)
        with pytest.raises(EvaluationError, match="the evaluation exceeds its cost limit"):
            selector.matches(view(GPU))
        assert selector.missing(view(GPU)) == frozenset()


NESTINGS: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: "(" * n + "true" + ")" * n,
    "lists": lambda n: "[" * n + "1" + "]" * n + " == []",
    "maps": lambda n: "{'a': " * n + "1" + "}" * n + " == {}",
    "sums": lambda n: "1" + " + 1" * n + " > 0",
    "selections": lambda n: "dyn(device)" + ".a" * n + " == 1",
    "calls": lambda n: "dyn(" * n + "true" + ")" * n,
    "negations": lambda n: "!" * n + "true",
    "minus signs": lambda n: "-" * n + "1 == 1",
    "ands": lambda n: "true" + " && true" * n,
    "ors of ands": lambda n: "false" + " || (true && false)" * n,
    "conditionals": lambda n: "true ? true : " * n + "true",
    "indexes": lambda n: "dyn([1])" + "[0]" * n + " == 1",
    "loops": lambda n: "[1].all(x, " * n + "true" + ")" * n,
    "bindings": lambda n: "cel.bind(x, 1, " * n + "true" + ")" * n,
    "chained macros": lambda n: "[1]" + ".map(x, x)" * n + " == [1]",
    "optional macros": lambda n: "optional.of(1)" + ".optMap(x, x)" * n + " == optional.of(1)",
    "comparisons": lambda n: "true" + " == true" * n,
    "opening brackets": lambda n: "(" * n,
    "opening braces": lambda n: "{" * n,
    "question marks": lambda n: "true ? " * n,
    "dots": lambda n: "." * n,
    "everything": lambda n: "(1 + [" * n + "1" + "][0])" * n + " > 0",
}


@pytest.mark.parametrize("make", NESTINGS.values(), ids=list(NESTINGS))
def test_depth_never_exhausts_the_stack(make: Callable[[int], str]) -> None:
    """Deep expressions are refused or evaluated, also when the caller's own stack is deep."""

    def at_depth(levels: int, text: str) -> str:
        if levels:
            return at_depth(levels - 1, text)
        try:
            return str(compile_selector(text).matches(view(GPU)))
        except (CompileError, EvaluationError) as error:
            return str(error)

    with without_cost_limit():
        for count in (40, 75, 76, 149, 151, 500, 3000):
            assert "too deeply" not in at_depth(250, make(count))


def test_brackets_may_be_as_deep_as_promised() -> None:
    """And no deeper."""
    inside = MAX_DEPTH - 1
    assert compile_selector("(" * inside + "true" + ")" * inside).matches(view(GPU))
    with pytest.raises(CompileError, match=f"nested deeper than {MAX_DEPTH} levels"):
        compile_selector("(" * (inside + 1) + "true" + ")" * (inside + 1))


@pytest.fixture
def _no_cost_limit() -> Iterator[None]:
    with without_cost_limit():
        yield


VIEWS = [view(device) for device in DEVICES]


def _survives(text: str) -> None:
    """Only the two errors that are promised ever come out."""
    try:
        selector = compile_selector(text)
    except CompileError:
        return
    for device in VIEWS:
        matched = None
        with suppress(EvaluationError):
            matched = selector.matches(device)
        missing = selector.missing(device)
        assert matched is None or isinstance(matched, bool)
        assert missing <= selector.reads or selector.reads_all
        assert not (matched and missing)
        if selector.needs - device.attributes.keys() - device.capacity.keys():
            assert not matched, "matched without what it says it needs"


PIECES = (
    *"<>[]{}().,-!?:+*/%",
    *("==", "!=", "<=", ">=", "&&", "||"),
    *("device", ".attributes", ".capacity", "['gpu.example.com']", ".model", "'a'", "b'a'", "1", "2u", "1.5", "null"),
    *("true", "in", ".all(x,", ".map(x,", "cel.bind(x,", "has(", "optional.of(", ".?a", "[?", "r'\\d'", "'''", '"'),
    *("\\", "\n", " ", "//", "`", "é", "\x00", "\ud800", "\U0001f600", "quantity('1')", ".size()", "@in", "@result"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@settings(max_examples=500)
@example("\ud800")
@example("'\ud800' == ''")
def test_any_pieces_are_survived(text: str) -> None:
    """Tokens in any order."""
    _survives(text)


@given(st.text(max_size=60))
@settings(max_examples=300)
def test_any_text_is_survived(text: str) -> None:
    """Characters in any order."""
    _survives(text)


@pytest.mark.usefixtures("_no_cost_limit")
@pytest.mark.parametrize("make", [expression, mutated], ids=["well formed", "damaged"])
def test_random_expressions_are_survived(make: Callable[[int], str]) -> None:
    """And what they say they need, they need."""
    for seed in range(100_000, 101_500):
        _survives(make(seed))


def test_half_a_character_in_an_attribute_is_an_error_of_the_evaluation() -> None:
    """JSON can carry one; no function on text can take it."""
    device = View(attributes={"d/x": "a\ud800"})
    for text in (".matches('a')", ".find('a') == 'a'", ".lastIndexOf('a') == 0"):
        selector = compile_selector(f"device.attributes['d'].x{text}")
        with pytest.raises(EvaluationError):
            selector.matches(device)
        assert selector.missing(device) == frozenset()
    assert not compile_selector("device.attributes['d'].x == 'a'").matches(device)
