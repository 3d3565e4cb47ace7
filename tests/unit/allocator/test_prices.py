"""Prices of parts against the linear program with every set of parts written out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from adjoin_allocator.prices import CARD, LINEAR, UNIT, Pricer, contents, knapsack


def _sets(sizes: tuple[int, ...], room: int) -> Iterator[tuple[int, ...]]:
    """Every set of parts that fits on a card."""
    if not sizes:
        yield ()
        return
    for number in range(room // sizes[0] + 1):
        for rest in _sets(sizes[1:], room - number * sizes[0]):
            yield (number, *rest)


def _fewest(demand: dict[int, int]) -> float:
    """The fewest cards (a fraction) that hold all parts, with every set a column."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    sizes = tuple(sorted(demand))
    rows = [solver.Constraint(demand[size], solver.infinity()) for size in sizes]
    for counts in _sets(sizes, CARD):
        column = solver.NumVar(0, solver.infinity(), "")
        solver.Objective().SetCoefficient(column, 1)
        for row, count in zip(rows, counts, strict=True):
            row.SetCoefficient(column, count)
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return float(solver.Objective().Value())


sizes = st.sampled_from((180, 230, 320, 330, 470, 500, 590, 650, 810))
demands = st.dictionaries(sizes, st.integers(1, 50), min_size=1)


@settings(max_examples=60, deadline=None)
@given(demands)
def test_all_parts_at_their_prices_are_worth_the_fewest_cards_that_hold_them(demand: dict[int, int]) -> None:
    """Duality; and no card holds parts that are worth more than a whole one."""
    prices = Pricer().prices(demand)
    worth = sum(number * prices.price(size) for size, number in demand.items())
    assert worth / UNIT == pytest.approx(_fewest(demand), rel=1e-4)
    sizes = tuple(sorted(demand))
    for counts in _sets(sizes, CARD):
        held = sum(size * count for size, count in zip(sizes, counts, strict=True))
        value = sum(prices.price(size) * count for size, count in zip(sizes, counts, strict=True))
        assert value <= int(prices.worth[held]) + len(counts) * 4 <= UNIT + len(counts) * 4


@settings(max_examples=40, deadline=None)
@given(st.lists(demands, min_size=2, max_size=8))
def test_prices_depend_on_the_demand_alone(rounds: list[dict[int, int]]) -> None:
    """A pricer that has seen other demands says the same as a new one."""
    old = Pricer()
    for demand in rounds:
        known, fresh = old.prices(demand), Pricer().prices(dict(reversed(list(demand.items()))))
        assert (known.worth == fresh.worth).all()
        assert all(known.price(size) == fresh.price(size) for size in demand)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(1, 12), st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 25))
def test_a_knapsack_holds_what_trying_everything_finds(values: dict[int, int], room: int) -> None:
    """Value and contents."""
    lengths = sorted(values)
    worth = [float(values[length]) for length in lengths]
    best = knapsack(lengths, worth, room)
    tried = [
        sum(count * value for count, value in zip(counts, worth, strict=True)) for counts in _sets(tuple(lengths), room)
    ]
    assert best[room] == max(tried)
    counts = contents(lengths, worth, best)
    assert sum(count * value for count, value in zip(counts, worth, strict=True)) == max(tried)
    assert sum(count * length for count, length in zip(counts, lengths, strict=True)) <= room


@pytest.mark.parametrize(
    ("demand", "remainder", "worth"),
    [
        pytest.param({}, 400, 400_000, id="nobody asks for parts: a remainder is worth its size"),
        pytest.param({500: 10}, 499, 0, id="halves alone: less than a half is worth nothing"),
        pytest.param({500: 10}, 999, 500_000, id="halves alone: all but one thousandth is worth one of them"),
        pytest.param({810: 10, 160: 1}, 190, 0, id="what large parts leave over is not scarce"),
        pytest.param({800: 1, 200: 10}, 200, 200_000, id="small parts that must open cards of their own have a price"),
    ],
)
def test_a_remainder_is_worth_what_it_can_hold(demand: dict[int, int], remainder: int, worth: int) -> None:
    """In millionths of a card."""
    assert int(Pricer().prices(demand).worth[remainder]) == worth


def test_many_sizes_are_rounded_up_to_a_coarser_grain() -> None:
    """The work stays bounded, and every size has a price that is not above that of a larger one."""
    prices = Pricer().prices({size: 1 + size % 7 for size in range(101, 901, 3)})
    assert list(prices.worth) == sorted(prices.worth)
    assert prices is not LINEAR
    assert int(prices.worth[CARD]) == UNIT
