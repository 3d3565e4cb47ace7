"""Answers in order: ranks compare as keys do, however they come, and the best node is the best by every look."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import make

from adjoin_allocator import Memo
from adjoin_allocator.fit import STATE_LIMIT, Fit, Misfit, Obstacle
from adjoin_allocator.nodes import Question, State
from adjoin_allocator.place import Effort
from adjoin_allocator.scores import RANKS, Key, Order, Scores

GPU = Question((("gpu", ()),), ())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.floats(0, 1)), max_size=60))
def test_ranks_compare_as_their_keys(keys: list[Key]) -> None:
    order = Order()
    for key in keys:
        order.rank(key)
    ranks = {key: order.rank(key)[0] for key in keys}
    for one in keys:
        for other in keys:
            assert (one < other) == (ranks[one] < ranks[other])
    assert all(0 <= rank < RANKS for rank in ranks.values())


def test_ranks_are_given_anew_when_there_is_no_room_between_two() -> None:
    order = Order()
    keys: list[Key] = [((number,), 0.0) for number in range(200, 0, -1)]
    moved = [order.rank(key)[1] for key in keys]
    assert any(moved)
    ranks = [order.rank(key)[0] for key in reversed(keys)]
    assert ranks == sorted(set(ranks))


@pytest.mark.parametrize("seed", range(6))
def test_the_best_node_is_found_whatever_was_asked_and_changed_before(seed: int) -> None:
    """Objectives that mean nothing: what counts is that the least comes out, and of equals the first node."""
    chance = random.Random(seed)
    memo = Memo()
    memo.ledger.enter(make.snapshot([d for at in range(30) for d in make.flat(f"n-{at}", chance.randint(1, 5))]), 0.0)
    ledger = memo.ledger.pools[make.POOL]
    values: dict[int, Fit | Misfit] = {}

    def answer(state: State) -> Fit | Misfit:
        shape, _, free = state
        number = shape.size * 8 + free.bit_count()
        if number not in values:
            misfit = chance.random() < 0.3
            values[number] = Misfit(Obstacle.LINES) if misfit else Fit((chance.randint(0, 3),), (), 0, 1)
        return values[number]

    scores = Scores(ledger.states(GPU), GPU, answer)
    for _ in range(60):
        position = chance.randrange(len(ledger.free))
        free = ledger.free[position]
        if free:
            memo.ledger.take(make.POOL, position, free & -free)
        # States are brought up to date for whoever asks for them, and stay the same object.
        assert scores.states is ledger.states(GPU)
        assert scores.fill()
        looked = []
        for at, (view, mask) in enumerate(zip(ledger.index.views, ledger.free, strict=True)):
            found = answer((view.shape, scores._sorts[ledger.states(GPU).classes.of[at]], mask))
            if isinstance(found, Fit):
                looked.append((found.objective, 1 - mask.bit_count() / view.shape.size, at))
        best = scores.best()
        assert (None if best is None else best[1]) == (min(looked)[2] if looked else None)


def test_work_is_counted_once_for_a_state_however_often_it_is_looked_at() -> None:
    memo = Memo()
    memo.ledger.enter(make.snapshot([*make.flat("a", 2), *make.flat("b", 2), *make.flat("c", 3)]), 0.0)
    states = memo.ledger.pools[make.POOL].states(GPU)
    scores = Scores(states, GPU, lambda state: Fit((0,), (), 0, 7))
    assert scores.fill()
    assert scores.total == 14
    effort = Effort(known=set())
    assert [effort.look(scores), effort.look(scores)] == [14, 14]


def test_answers_stop_where_too_much_was_searched() -> None:
    memo = Memo()
    memo.ledger.enter(make.snapshot([*make.flat("a", 2), *make.flat("b", 3)]), 0.0)
    states = memo.ledger.pools[make.POOL].states(GPU)
    assert not Scores(states, GPU, lambda state: Fit((0,), (), 0, STATE_LIMIT)).fill()
    assert not Scores(states, GPU, lambda state: Misfit(Obstacle.LIMIT, 5)).fill()
