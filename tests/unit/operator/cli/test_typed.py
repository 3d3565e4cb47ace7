"""Facts of files are of the types that their annotations promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from adjoin.cli.typed import WrongType, check_types


class Pair(NamedTuple):
    left: str
    right: int


@dataclass(frozen=True)
class Inner:
    text: str
    maybe: float | None = None


@dataclass(frozen=True)
class Outer:
    number: int = 0
    flag: bool = False
    inner: Inner = Inner("")
    many: tuple[Inner, ...] = ()
    names: tuple[str, ...] = ()
    amounts: Mapping[str, int] = None  # type: ignore[assignment]
    anything: Any = None
    pair: Pair = Pair("", 0)  # noqa: RUF009


def outer(**fields: Any) -> Outer:
    return Outer(**({"amounts": {}} | fields))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        pytest.param(outer(), "", id="sound"),
        pytest.param(outer(anything=object()), "", id="anything"),
        pytest.param(outer(inner=Inner("a", 1)), "", id="a whole number is a number"),
        pytest.param(outer(number="1"), "number: expected a whole number, found '1'", id="text for a number"),
        pytest.param(outer(number=True), "number: expected a whole number, found True", id="a boolean is no number"),
        pytest.param(outer(flag=1), "flag: expected true or false, found 1", id="a number is no boolean"),
        pytest.param(outer(inner=Inner(3)), "inner.text: expected text, found 3", id="a field of a field"),  # type: ignore[arg-type]
        pytest.param(outer(inner="x"), "inner: expected Inner, found 'x'", id="no dataclass"),
        pytest.param(outer(inner=Inner("a", "b")), "inner.maybe: 'b' has no place there", id="none of several"),  # type: ignore[arg-type]
        pytest.param(outer(many=(Inner("a"), Inner(3))), "many[1].text: expected text, found 3", id="an item"),  # type: ignore[arg-type]
        pytest.param(outer(names="abc"), "names: expected a list, found 'abc'", id="text is no list"),
        pytest.param(outer(amounts={"a": []}), "amounts['a']: expected a whole number, found []", id="an entry"),
        pytest.param(outer(amounts={1: 1}), "amounts[1]: expected text, found 1", id="a key"),
        pytest.param(outer(amounts=[]), "amounts: expected a map, found []", id="no map"),
        pytest.param(outer(pair=Pair("a", "b")), "pair.right: expected a whole number, found 'b'", id="a named tuple"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_named_with_its_place(facts: Outer, words: str) -> None:
    if not words:
        check_types(facts)
        return
    with pytest.raises(WrongType) as caught:
        check_types(facts)
    assert str(caught.value) == words
