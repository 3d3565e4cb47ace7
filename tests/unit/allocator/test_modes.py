"""Shares of all modes on the same cards through `plan`, against a judge that tries everything."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import make, modes_oracle
from tests.support.checks import assert_valid
from tests.support.mode_sites import GIB, claims, gpu, hosted, lent_sites, named, share, sites
from tests.support.parts_checks import STRONG, WEIGHT

from adjoin_allocator import Claim, Code, HostAsk, Memo, Plan, ShareAsk, ShareMode, Snapshot, plan
from adjoin_allocator.model import Lent

HOSTS = st.builds(HostAsk, st.sampled_from((0, 0, 1000, 2000, 4000)), st.sampled_from((0, 0, 1 << 30, 3 << 30)))

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def _answer(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    decided = plan(snapshot, make.NOW, memo)
    assert_valid(snapshot, decided)
    return decided


def _ways(claim: Claim, decided: Plan) -> list[tuple[str, ...]]:
    """By placed replica what its requests are called."""
    return [
        tuple(dict.fromkeys(device.request for device in placement.devices))
        for placement in decided.claims[claim.uid].placements
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_what_fits_is_placed_in_the_first_way_that_fits(data: st.DataObject) -> None:
    """One by one, some of them given back in between: what is held never moves, what was remembered changes nothing,
    and when all have gone the answer is that of an empty cluster.
    """
    empty = data.draw(sites())
    memo, snapshot = Memo(), empty
    for number in range(data.draw(st.integers(1, 7))):
        claim = named(data.draw(claims(snapshot, alternatives=True)), number)
        arrived = replace(snapshot, claims=(*snapshot.claims, claim))
        decided = _answer(arrived, memo)
        assert decided.claims == plan(arrived, make.NOW).claims
        way = modes_oracle.first_way(snapshot, claim)
        answer = decided.claims[claim.uid]
        assert _ways(claim, decided) == ([] if way is None else [way]), answer
        if way is None and not any(one.first_of for one in claim.requests):
            asked = [(one, snapshot.shares[one.share.name]) for one in claim.requests if one.share is not None]
            weak = any(STRONG[share.mode] < WEIGHT[one.isolation] for one, share in asked)
            if all(modes_oracle.accepted(snapshot, share) for _, share in asked):
                assert (answer.reasons[0].code is Code.ISOLATION_UNAVAILABLE) == weak, answer.reasons
        if answer.placements:
            snapshot = replace(arrived, claims=(*snapshot.claims, make.after(claim, answer.placements)))
        if snapshot.claims and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(snapshot.claims))
            snapshot = replace(snapshot, claims=tuple(one for one in snapshot.claims if one is not gone))
    last = named(data.draw(claims(empty)), 99)
    alone = replace(empty, claims=(last,))
    assert plan(alone, make.NOW, memo).claims == plan(alone, make.NOW).claims


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_what_others_leave_of_cards_is_given_and_no_more(data: st.DataObject) -> None:
    """One by one on cards of which others consume parts."""
    snapshot, memo = data.draw(lent_sites()), Memo()
    for number in range(data.draw(st.integers(1, 5))):
        claim = named(data.draw(claims(snapshot, alternatives=True)), number)
        arrived = replace(snapshot, claims=(*snapshot.claims, claim))
        decided = _answer(arrived, memo)
        assert decided.claims == plan(arrived, make.NOW).claims
        way = modes_oracle.first_way(snapshot, claim)
        assert _ways(claim, decided) == ([] if way is None else [way]), decided.claims[claim.uid]
        if decided.claims[claim.uid].placements:
            placed = make.after(claim, decided.claims[claim.uid].placements)
            snapshot = replace(arrived, claims=(*snapshot.claims, placed))


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_together_each_fits_beside_all_before_it(data: st.DataObject) -> None:
    """All at once, in any order of the input: placed is who fits beside all that are placed before, wherever these
    could be, and in the first way that does; also beside what others consume of cards, and where pods need some of the
    host.
    """
    empty = data.draw(sites(cards=3) | lent_sites(cards=3) | hosted(sites(cards=3)))
    asked = [
        replace(named(data.draw(claims(empty, alternatives=True)), number), host=data.draw(HOSTS))
        for number in range(data.draw(st.integers(2, 5)))
    ]
    snapshot = replace(empty, claims=tuple(asked))
    decided = _answer(snapshot)
    names = {one.name: _ways(one, decided)[0] for one in asked if decided.claims[one.uid].placements}
    assert names == modes_oracle.served(empty, asked)
    turned = replace(empty, claims=tuple(data.draw(st.permutations(asked))))
    assert dict(plan(turned, make.NOW).claims) == dict(decided.claims)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_a_gang_has_as_many_members_as_fit_and_as_many_of_them_in_the_better_ways(data: st.DataObject) -> None:
    """Beside one claim that holds something, and now and then on cards of which others consume parts."""
    empty = data.draw(sites(cards=3) | lent_sites(cards=3))
    first = named(data.draw(claims(empty)), 0)
    before = replace(empty, claims=(first,))
    there = make.after(first, plan(before, make.NOW).claims[first.uid].placements)
    snapshot = replace(empty, claims=(there,) if there.placed else ())
    asked = named(data.draw(claims(snapshot, alternatives=True)), 1)
    wanted = data.draw(st.integers(2, 4))
    claim = replace(asked, replicas=wanted, gang_min=data.draw(st.integers(1, wanted)))
    arrived = replace(snapshot, claims=(*snapshot.claims, claim))
    decided = _answer(arrived)
    used = _ways(claim, decided)
    members, *numbers = modes_oracle.gang(snapshot, claim)
    assert len(used) == members, decided.claims[claim.uid]
    assert [used.count(names) for _, names in modes_oracle.ways(claim)] == numbers


def test_partitions_of_other_cards_are_no_clients_of_one_of_which_others_consume_a_part() -> None:
    lent = Lent(GIB, 1)
    cards = [gpu("gpu-0"), replace(gpu("gpu-1"), lent=lent)]
    parts = [ShareAsk("partitioned", profile="3g.40gb"), ShareAsk("partitioned", profile="1g.10gb")]
    asked = [make.request("gpu", share=each) for each in parts]
    asked.append(make.request("gpu", 2, share=ShareAsk("mps", compute_milli=100)))
    waiting = [make.claim(f"c{at}", each, created=float(at)) for at, each in enumerate(asked)]
    both = [share(ShareMode.MPS), share(ShareMode.PARTITIONED)]
    snapshot = make.snapshot(cards, claims=waiting, shares=both)
    snapshot = replace(snapshot, holds={cards[1].id: replace(make.hold(), shared=True, lent=lent)})
    answers = _answer(snapshot).claims
    assert [len(answers[claim.uid].placements) for claim in waiting] == [1, 1, 0]
    assert answers[waiting[2].uid].reasons[0].code is Code.SHARE_UNAVAILABLE
