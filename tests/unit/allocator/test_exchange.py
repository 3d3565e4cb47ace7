"""Bundles that change places: nothing is given twice, and what one change of places can make fit is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin_allocator.exchange import Ground

needs = st.tuples(st.integers(0, 6), st.integers(0, 6))


@st.composite
def grounds(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[list[bool]], list[tuple[int, int]], list[list[int]]]:
    """What up to four hosts have, which cards serve which of two kinds of bundles, bundles and their order of nodes."""
    nodes, columns = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    hosts = [draw(st.tuples(st.integers(0, 12), st.integers(0, 12))) for _ in range(nodes)]
    usable = [draw(st.lists(st.booleans(), min_size=nodes * columns, max_size=nodes * columns)) for _ in range(2)]
    bundles = draw(st.lists(needs, max_size=10))
    kinds = [[draw(st.integers(0, 1)), draw(st.integers(0, nodes - 1))] for _ in bundles]
    return hosts, usable, bundles, kinds


def _ground(hosts: list[tuple[int, int]], usable: list[list[bool]]) -> tuple[Ground, int]:
    tables = np.array(usable, dtype=bool).reshape(len(usable), len(hosts), -1)
    free = np.ones(tables.shape[1:], dtype=bool)
    return Ground(np.array(hosts, dtype=np.int64).T.copy(), free, tables), tables.shape[2]


@settings(max_examples=150, deadline=None)
@given(grounds(), needs, st.integers(0, 1))
def test_every_bundle_keeps_a_card_and_no_host_gives_more_than_it_has(
    case: tuple[list[tuple[int, int]], list[list[bool]], list[tuple[int, int]], list[list[int]]],
    need: tuple[int, int],
    usable: int,
) -> None:
    """Whether a bundle more finds a place or not; without one everybody is where they were."""
    hosts, tables, bundles, kinds = case
    ground, columns = _ground(hosts, tables)
    entered: list[tuple[int, tuple[int, int], int]] = []
    for asked, (kind, position) in zip(bundles, kinds, strict=True):
        cards = np.flatnonzero(ground.free[position] & ground.usable[kind, position])
        if len(cards) and (ground.host[:, position] >= asked).all():
            entered.append((ground.enter(asked, kind, position, int(cards[0])), asked, kind))
    before = [ground.place(number) for number, _, _ in entered]
    found = ground.squeeze(need, usable)
    if found is None:
        assert [ground.place(number) for number, _, _ in entered] == before
    else:
        entered.append((found, need, usable))
    left = np.array(hosts).T.copy()
    taken = set()
    for number, asked, kind in entered:
        position, column = ground.place(number)
        assert tables[kind][position * columns + column]
        assert not ground.free[position, column]
        left[:, position] -= asked
        taken.add((position, column))
    assert len(taken) == len(entered)
    assert (left >= 0).all()
    assert (left == ground.host).all()
    if found is None:
        assert not _one_change_would_do(ground, entered, need, usable)


def _one_change_would_do(
    ground: Ground, entered: list[tuple[int, tuple[int, int], int]], need: tuple[int, int], usable: int
) -> bool:
    """Whether the bundle fits as it is, or with two of the others in each other's places."""
    cards = ground.free & ground.usable[usable]
    for position in np.flatnonzero(cards.any(axis=1)).tolist():
        if (ground.host[:, position] >= need).all():
            return True
        for one, mine, kind in entered:
            if ground.place(one)[0] != position:
                continue
            for other, yours, sort in entered:
                there = ground.place(other)
                gain = np.array(mine) - yours
                if (
                    there[0] != position
                    and ground.usable[kind][there]
                    and ground.usable[sort][ground.place(one)]
                    and (ground.host[:, there[0]] >= gain).all()
                    and (ground.host[:, position] + gain >= need).all()
                ):
                    return True
    return False


@pytest.mark.parametrize(
    ("hosts", "bundles", "need", "places"),
    [
        pytest.param([(10, 9), (10, 9)], [(8, 0), (3, 0)], (6, 0), [1, 0, 0], id="the hungrier one goes"),
        pytest.param([(10, 9), (4, 9)], [(8, 0), (3, 0)], (6, 0), None, id="where it goes there is no more"),
        pytest.param([(10, 4), (10, 9)], [(4, 4), (3, 0)], (6, 4), [1, 0, 0], id="memory is what is short"),
    ],
)
def test_two_change_places(
    hosts: list[tuple[int, int]], bundles: list[tuple[int, int]], need: tuple[int, int], places: list[int] | None
) -> None:
    """Two nodes: the first has a card left and too little beside it, the second has but one card."""
    ground, _ = _ground(hosts, [[True, True, True, False]])
    for position, asked in enumerate(bundles):
        ground.enter(asked, 0, position, 0)
    found = ground.squeeze(need, 0)
    assert (found is None) == (places is None)
    if places is not None:
        assert [ground.place(number)[0] for number in range(3)] == places
