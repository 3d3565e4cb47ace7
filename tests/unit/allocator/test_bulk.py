"""Many claims at once: the program is a bound on what trying everything finds, and what it takes is placed validly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import make
from tests.support.checks import assert_valid

from adjoin_allocator import Claim, HostAsk, Objective, Snapshot, plan
from adjoin_allocator.packing_lp import Order, Site, pack

Asked = tuple[int, int]
"""Thousandths of cards, and of a core."""


def _most(cards: int, cpu: int, asked: tuple[Asked, ...]) -> int:
    """The most thousandths that one node can give, by trying every way to put each on a card or leave it out."""

    @cache
    def best(at: int, left: tuple[int, ...], cpu_left: int) -> int:
        if at == len(asked):
            return 0
        milli, need = asked[at]
        found = best(at + 1, left, cpu_left)
        if need <= cpu_left and milli >= 1000:
            whole = [card for card, room in enumerate(left) if room == 1000][: milli // 1000]
            if len(whole) == milli // 1000:
                rest = tuple(0 if card in whole else room for card, room in enumerate(left))
                found = max(found, milli + best(at + 1, tuple(sorted(rest)), cpu_left - need))
        elif need <= cpu_left:
            for card in {room: card for card, room in enumerate(left) if room >= milli}.values():
                rest = tuple(room - milli if other == card else room for other, room in enumerate(left))
                found = max(found, milli + best(at + 1, tuple(sorted(rest)), cpu_left - need))
        return found

    return best(0, (1000,) * cards, cpu)


asks = st.tuples(st.sampled_from((230, 320, 470, 500, 650, 810, 1000, 2000)), st.sampled_from((0, 1000, 3000, 8000)))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.integers(0, 20_000), st.lists(asks, min_size=1, max_size=6))
def test_nothing_gives_more_than_the_bound(cards: int, cpu: int, asked: list[Asked]) -> None:
    """On one node, where everything can be tried."""
    orders = [Order(asked.count(one), one[0], one[1], 0, (True,)) for one in sorted(set(asked))]
    packing = pack([Site(1, cards, cpu, None)], orders)
    assert packing.bound is not None
    assert _most(cards, cpu, tuple(asked)) <= packing.bound + 1e-3
    assert pack([Site(1, cards, cpu, None)], orders, margin=0.1).bound is None


def test_a_bound_knows_models_and_numbers() -> None:
    """Two sites of two cards; half of what is wanted can only use the first."""
    sites = [Site(2, 1, None, None), Site(1, 2, None, None)]
    orders = [
        Order(3, 1000, 0, 0, (True, False)),
        Order(1, 2000, 0, 0, (True, True)),
        Order(9, 600, 0, 0, (True, True)),
    ]
    packing = pack(sites, orders)
    assert packing.milli == pytest.approx(4000)
    assert sum(packing.taken[0]) == pytest.approx(2)
    assert packing.taken[1] == pytest.approx((0, 1))


def _waiting(number: int, milli: int, cpu: int) -> Claim:
    request = make.request("gpu", milli // 1000) if milli >= 1000 else make.part(milli=milli)
    return make.claim(f"c{number:03}", request, created=float(number), host=HostAsk(cpu_milli=cpu))


def _cluster(claims: list[Claim], nodes: int = 10) -> Snapshot:
    names = [f"node-{at}" for at in range(nodes)]
    devices = [make.card(f"gpu-{card}", name) for name in names for card in range(4)]
    hosts = [make.node(name, cpu_milli=32_000, memory_bytes=1 << 40) for name in names]
    pool = make.pool(kinds=("gpu",), objective=Objective.THROUGHPUT)
    return make.snapshot(devices, claims, nodes=hosts, pools=[pool], shares=[make.share()])


def _given(snapshot: Snapshot) -> int:
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    placed = (claim for claim in snapshot.claims if decided.claims[claim.uid].placements)
    return sum(
        request.share.compute_milli if request.share else request.count * 1000
        for claim in placed
        for request in claim.requests
    )  # type: ignore[misc]


def test_parts_that_fill_cards_are_taken_before_older_ones_that_do_not() -> None:
    """Forty cards: first come sixty claims of 600m, of which each spoils a card, then eighty pairs of 300m and 700m."""
    spoiling = [_waiting(at, 600, 0) for at in range(60)]
    filling = [_waiting(60 + at, milli, 0) for at, milli in enumerate((300, 700) * 80)]
    assert _given(_cluster([*spoiling, *filling])) == 40_000
    in_order = _cluster([*spoiling, *filling])
    pools = {name: replace(pool, objective=Objective.IN_ORDER) for name, pool in in_order.pools.items()}
    assert _given(replace(in_order, pools=pools)) < 40_000


@settings(max_examples=15, deadline=None)
@given(st.lists(asks, min_size=70, max_size=140), st.integers(3, 12))
def test_a_batch_is_valid_near_its_bound_and_no_worse_than_in_order(asked: list[Asked], nodes: int) -> None:
    """Whatever waits."""
    claims = [_waiting(at, milli, cpu) for at, (milli, cpu) in enumerate(asked)]
    together = _cluster(claims, nodes)
    pools = {name: replace(pool, objective=Objective.IN_ORDER) for name, pool in together.pools.items()}
    orders = [Order(asked.count(one), one[0], one[1], 0, (True,)) for one in sorted(set(asked))]
    bound = pack([Site(nodes, 4, 32_000, None)], orders).bound
    assert bound is not None
    given_ = _given(together)
    assert given_ <= bound + 1e-3
    assert given_ >= min(_given(replace(together, pools=pools)), bound - 4000)


@pytest.mark.parametrize("few", [1, 63])
def test_few_claims_are_served_in_order(few: int) -> None:
    """A program is not worth it."""
    claims = [_waiting(at, milli, 0) for at, (milli, _) in zip(range(few), product((500,), range(99)), strict=False)]
    assert _given(_cluster(claims)) == 500 * few
