"""Pairings: exact, even, and only over pairs that are allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin_allocator.pairing import pair

Table = list[list[int | None]]


def every_pairing(small: Sequence[int], large: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    floor, extra = divmod(len(large), len(small))
    for favoured in combinations(small, extra):
        slots = [one for one in small for _ in range(floor + (one in favoured))]
        for order in permutations(slots):
            yield list(zip(order, large, strict=True))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    cell = st.one_of(st.integers(0, 9), st.integers(0, 9), st.none())
    return [[draw(cell) for _ in range(columns)] for _ in range(rows)]


@settings(max_examples=400, deadline=None)
@given(tables())
def test_the_cheapest_of_all_even_pairings_is_found(table: Table) -> None:
    left, right = range(len(table)), range(len(table[0]))
    flip = len(left) > len(right)
    costs = []
    for pairs in every_pairing(right if flip else left, left if flip else right):
        values = [table[b][a] if flip else table[a][b] for a, b in pairs]
        if None not in values:
            costs.append(sum(value for value in values if value is not None))
    found = pair(left, right, lambda one, other: table[one][other])
    assert (None if found is None else found[0]) == min(costs, default=None)
    if found is not None:
        assert sum(table[one][other] or 0 for one, other in found[1]) == found[0]


@pytest.mark.parametrize(
    ("left", "right", "shares"),
    [
        pytest.param(2, 6, [3, 3], id="three NICs each"),
        pytest.param(3, 8, [2, 3, 3], id="floor or ceiling of the ratio"),
        pytest.param(8, 3, [2, 3, 3], id="the other way round"),
        pytest.param(1, 4, [4], id="all of them to the only one"),
    ],
)
def test_partners_are_spread_evenly(left: int, right: int, shares: list[int]) -> None:
    found = pair(range(left), range(right), lambda one, other: abs(one - other))
    assert found is not None
    side = 0 if left < right else 1
    assert sorted(sum(p[side] == one for p in found[1]) for one in range(min(left, right))) == shares


def test_nobody_is_paired_with_nobody() -> None:
    assert pair((), (1, 2), lambda one, other: 1) == (0, ())
