"""The program for the solver: sets that do not overlap, the least costs level by level, and what a budget does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import pytest

from adjoin_allocator.joint import MERGED, Budget, Column, Penalty, Program, Status


def columns(*given: tuple[int, int, int, tuple[int, ...]]) -> list[Column]:
    return [Column(kind, node, taken, costs) for kind, node, taken, costs in given]


def disjoint(program: Sequence[Column], chosen: Sequence[int]) -> bool:
    return not any(
        program[one].node == program[other].node and program[one].taken & program[other].taken
        for one, other in combinations(chosen, 2)
    )


def test_no_device_goes_to_two() -> None:
    program = Program(columns((0, 0, 0b11, ()), (1, 0, 0b01, ()), (1, 0, 0b100, ())))
    answer = program.solve(program.counts([(1, 1), (1, 1)]), (), (), Budget.of(2000), 2)
    assert (answer.status, answer.chosen) == (Status.OPTIMAL, (0, 2))


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param([(1, 1), (2, 2)], id="devices are short"),
        pytest.param([(0, 0), (0, 0), (1, 1)], id="a kind without columns"),
    ],
)
def test_what_cannot_be_is_said_to_be_impossible(bounds: list[tuple[int, int]]) -> None:
    program = Program(columns((0, 0, 0b11, ()), (1, 0, 0b01, ()), (1, 0, 0b100, ())))
    assert program.solve(program.counts(bounds), (), (), Budget.of(2000), 2).status is Status.INFEASIBLE


@pytest.mark.parametrize("scale", [pytest.param(1, id="merged"), pytest.param(MERGED // 4, id="one after the other")])
def test_costs_are_the_least_level_by_level(scale: int) -> None:
    """Against trying every choice; with numbers that fit one objective, and with such that do not."""
    chance = random.Random(scale)
    for _ in range(30):
        given = [
            Column(
                chance.randrange(2),
                chance.randrange(2),
                chance.choice((1, 2, 3, 4, 6)),
                (chance.randrange(3), chance.randrange(3) * scale, chance.randrange(3)),
            )
            for _ in range(8)
        ]
        program = Program(given)
        choices = [
            chosen
            for chosen in combinations(range(8), 3)
            if disjoint(given, chosen) and sum(given[at].kind for at in chosen) == 1
        ]
        if not choices:
            continue
        totals = program.counts([(2, 2), (1, 1)])
        found = program.least(totals, 3, choices[0], Budget.of(20_000))
        worth = [tuple(map(sum, zip(*(given[at].costs for at in chosen), strict=True))) for chosen in choices]
        assert found.proven
        assert tuple(map(sum, zip(*(given[at].costs for at in found.chosen), strict=True))) == min(worth)
        assert found.bound == min(worth)


def test_penalties_decide_after_costs_and_are_due_once() -> None:
    program = Program(
        columns((0, 0, 0b001, (1,)), (0, 0, 0b010, (1,)), (0, 1, 0b001, (1,)), (0, 2, 0b001, (0,))),
        [Penalty((0, 1), (2,)), Penalty((2,), (1,)), Penalty((3,), (9,))],
    )
    found = program.least(program.counts([(3, 3)]), 3, (0, 1, 2), Budget.of(5000))
    assert set(found.chosen) == {0, 1, 3} or set(found.chosen) == {0, 2, 3} or set(found.chosen) == {1, 2, 3}
    two = program.least(program.counts([(2, 2)]), 2, (0, 1), Budget.of(5000))
    assert set(two.chosen) == {2, 3}


def test_a_spent_budget_leaves_what_there_is() -> None:
    program = Program(columns((0, 0, 1, (5,)), (0, 1, 1, (0,))))
    budget = Budget(work=0.0, wall=1.0)
    assert budget.spent
    found = program.least(program.counts([(1, 1)]), 1, (0,), budget)
    assert (found.chosen, found.proven, found.bound) == ((0,), False, ())
    assert not budget.struck


def test_work_is_counted_and_the_wall_limit_is_told() -> None:
    """A search that ends before its work was done was ended by the clock."""
    chance = random.Random(1)
    given = [
        Column(at % 5, chance.randrange(40), chance.randrange(1, 256), (chance.randrange(9),)) for at in range(1500)
    ]
    program = Program(given)
    totals, costs = program.counts([(8, 300)] * 5), [(at, column.costs[0] - 9) for at, column in enumerate(given)]
    by_work = Budget(work=0.01, wall=1000.0)
    program.solve(totals, costs, (), by_work, by_work.work)
    assert by_work.spent
    assert not by_work.struck
    by_wall = Budget(work=1000.0, wall=0.001)
    program.solve(totals, costs, (), by_wall, by_wall.work)
    assert by_wall.struck
