"""Field reports about parts of cards: each test is named by the id of its report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support import make
from tests.support.checks import assert_valid

from adjoin_allocator import Code, Memo, Tenant, plan
from adjoin_allocator.card_rules import CardRule
from adjoin_allocator.model import Request
from adjoin_allocator.sharing import Part, part, reserve_bytes, shareable_bytes

GIB = 1 << 30
MIB = 1 << 20


def test_a28_more_than_a_card_is_refused_and_nothing_is_booked() -> None:
    """Three cards, two claims of 1500m: refused, and the cards stay free; one and a half cards are two requests."""
    cards = [make.card(f"gpu-{at}") for at in range(3)]
    claims = [make.claim(f"c{at}", make.part(milli=1500)) for at in range(2)]
    decided = plan(make.snapshot(cards, claims, shares=[make.share()]), make.NOW)
    for claim in claims:
        (reason,) = decided.claims[claim.uid].reasons
        assert reason.code is Code.INVALID_CLAIM
        assert "1500m" in reason.message
        assert "count" in reason.message
    assert decided.pools[make.POOL].counts["gpu"].free == 3
    both = make.claim("both", make.request("whole", kind="gpu"), make.part(milli=500, name="half"))
    snapshot = make.snapshot(cards, [both], shares=[make.share()])
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    (placement,) = decided.claims[both.uid].placements
    assert [device.share is None for device in placement.devices] == [True, False]


def test_b7_what_the_driver_needs_is_kept_back_before_anything_is_shared() -> None:
    """16384 MiB with 3 %, at least 256 MiB: 492 MiB are kept, rounded up to the byte, and parts add up to the rest."""
    share = make.share(reserve_per_million=30_000, min_reserve_bytes=256 * MIB)
    total = 16384 * MIB
    rest = shareable_bytes(share, total)
    assert reserve_bytes(share, total) == 515_396_076
    card = make.card(memory="16384Mi")
    first = make.claim("first", make.part(rest - 68 * MIB), created=1.0)
    fits, late = make.claim("fits", make.part(68 * MIB), created=2.0), make.claim("late", make.part(69 * MIB))
    snapshot = make.snapshot([card], [first, late], shares=[share])
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    (reason,) = decided.claims[late.uid].reasons
    assert reason.code is Code.SHARE_UNAVAILABLE
    assert "free 68Mi" in reason.message
    full = make.snapshot([card], [first, fits], shares=[share])
    decided = plan(full, make.NOW)
    assert_valid(full, decided)
    assert decided.claims[fits.uid].placements
    whole = make.snapshot([card], [make.claim("all", make.part(total))], shares=[share])
    assert plan(whole, make.NOW).claims[make.claim("all").uid].reasons[0].code is Code.SHARE_UNAVAILABLE


def _quota(request: Request, cap: int) -> int:
    """What a request for parts costs of a quota, on cards with so much to give."""
    assert request.share is not None
    return request.count * CardRule(make.share(), cap).cost(part(request.share, make.share()))


def test_b8_a_waiting_claim_costs_what_it_costs_on_a_real_card() -> None:
    """8 GiB are a third of 24 GiB and a tenth of 80 GiB, and a card that says nothing of its memory is left out."""
    assert CardRule(make.share(), 24 * GIB).cost(Part(8 * GIB)) == 334
    assert CardRule(make.share(), 80 * GIB).cost(Part(8 * GIB)) == 100
    claim = make.claim("c", make.part(8 * GIB))
    silent = make.snapshot([make.device("gpu-0", "node-a")], [claim], shares=[make.share()])
    (reason, *_) = plan(silent, make.NOW).claims[claim.uid].reasons
    assert reason.code is Code.SHARE_UNAVAILABLE
    cards = [make.device("gpu-0", "node-a"), make.card("gpu-0", "node-b", "24Gi")]
    snapshot = make.snapshot(cards, [claim], shares=[make.share()])
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    assert decided.claims[claim.uid].placements[0].node == "node-b"


def test_b9_a_shared_card_counts_once_before_and_after_a_restart() -> None:
    """One card, three sharers, the third after a restart: one device used, each byte once, and the same answer."""
    claims = [make.claim(f"c{at}", make.part(20 * GIB), created=float(at)) for at in range(3)]
    snapshot = make.snapshot([make.card()], shares=[make.share()])
    memo = Memo()
    for claim in claims[:2]:
        snapshot = replace(snapshot, claims=(*snapshot.claims, claim))
        decided = plan(snapshot, make.NOW, memo)
        placed = make.after(claim, decided.claims[claim.uid].placements)
        snapshot = replace(snapshot, claims=(*snapshot.claims[:-1], placed))
    third = replace(snapshot, claims=(*snapshot.claims, claims[2]))
    warm, cold = plan(third, make.NOW, memo), plan(third, make.NOW)
    assert_valid(third, cold)
    assert warm.claims == cold.claims
    assert warm.pools == cold.pools
    assert cold.pools[make.POOL].counts["gpu"].allocated == 1
    (placement,) = cold.claims[claims[2].uid].placements
    full = replace(snapshot, claims=(*snapshot.claims, make.after(claims[2], [placement])))
    last = make.claim("last", make.part(20 * GIB))
    more = replace(full, claims=(*full.claims, last, make.claim("over", make.part(1))))
    decided = plan(more, make.NOW)
    assert_valid(more, decided)
    assert decided.claims[last.uid].placements
    assert decided.claims[make.claim("over").uid].reasons


def test_b10_quota_counts_every_card_of_a_claim() -> None:
    """Two cards with a fifth of the cores and half of the memory each cost two halves."""
    request = make.part(2048 * MIB, 200, count=2)
    assert _quota(request, 4096 * MIB) == 1000
    assert _quota(replace(request, count=1), 4096 * MIB) == 500
    assert _quota(make.part(2049 * MIB, 200, count=2), 4096 * MIB) == 1002


@pytest.mark.parametrize(
    ("percent", "admitted"),
    [pytest.param(60, False, id="1.2 of one card"), pytest.param(50, True, id="twice a half")],
)
def test_f3_a_claim_is_charged_for_all_of_its_cards(percent: int, admitted: bool) -> None:
    """Who deserves one card may have two halves, and not twice 60 %."""
    request = make.part(80 * GIB * percent // 100, count=2)
    assert (_quota(request, 80 * GIB) <= 1000) is admitted


@pytest.mark.parametrize("reserve", [0, 30_000])
@pytest.mark.parametrize(
    ("gib", "placed"),
    [pytest.param(48, False, id="two parts of 60 %"), pytest.param(40, True, id="two halves")],
)
def test_f3_quota_of_one_card_admits_what_costs_one_card(gib: int, placed: bool, reserve: int) -> None:
    """Through a plan, whatever the share keeps back: the claim above its tenant's quota waits, and usage is told in
    thousandths.
    """
    tenant = Tenant("team", quota={"gpu": 1}, borrowing={})
    pool = make.pool(kinds=("gpu",), tenants={"team": tenant})
    claim = make.claim("c", make.part(gib * GIB, count=2), tenant="team")
    cards = [make.card("gpu-0"), make.card("gpu-1")]
    snapshot = make.snapshot(cards, [claim], pools=[pool], shares=[make.share(reserve_per_million=reserve)])
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    answer = decided.claims[claim.uid]
    assert bool(answer.placements) is placed
    assert decided.pools[make.POOL].usage["team"] == ({"gpu": 1000} if placed else {})
    if not placed:
        assert answer.reasons[0].code is Code.QUOTA_EXCEEDED


def test_b10_every_part_of_a_claim_counts_before_and_after_it_is_placed() -> None:
    """Two cards' worth of quota: two claims of two halves fill it, and a thousandth more waits."""
    tenant = Tenant("team", quota={"gpu": 2}, borrowing={})
    pool = make.pool(kinds=("gpu",), tenants={"team": tenant})
    cards = [make.card(f"gpu-{at}") for at in range(4)]
    first = make.claim("first", make.part(40 * GIB, count=2), tenant="team", created=1.0)
    start = make.snapshot(cards, [first], pools=[pool], shares=[make.share()])
    held = make.after(first, plan(start, make.NOW).claims[first.uid].placements)
    second = make.claim("second", make.part(milli=500, count=2), tenant="team", created=2.0)
    third = make.claim("third", make.part(milli=1), tenant="team", created=3.0)
    snapshot = replace(start, claims=(held, second, third))
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    assert decided.claims[second.uid].placements
    assert decided.claims[third.uid].reasons[0].code is Code.QUOTA_EXCEEDED
    assert decided.pools[make.POOL].usage["team"] == {"gpu": 2000}
