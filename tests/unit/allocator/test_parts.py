"""Parts of cards and host resources through `plan`, against a judge that reads the rules anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import make
from tests.support.checks import assert_valid
from tests.support.price_oracle import Cluster

from adjoin_allocator import Claim, Code, HostAsk, Isolation, Memo, Plan, ShareMode, Snapshot, plan
from adjoin_allocator.cel import compile_selector
from adjoin_allocator.fractions import GRAIN

GIB = 1 << 30


def _answer(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    decided = plan(snapshot, make.NOW, memo)
    assert_valid(snapshot, decided)
    return decided


sizes = st.sampled_from((120, 250, 320, 470, 500, 810))


@st.composite
def requests(draw: st.DrawFn) -> Claim:
    """A claim for cards, a part of one, or host resources alone."""
    host = HostAsk(draw(st.sampled_from((0, 500, 2000, 7000))), draw(st.sampled_from((0, GIB, 6 * GIB))))
    kind = draw(st.integers(0, 6))
    if kind < 2:
        asked = make.request("gpu", draw(st.sampled_from((1, 1, 2, 4))))
    elif kind < 4:
        asked = make.part(milli=draw(sizes))
    else:
        asked = make.part(draw(st.integers(1, 24 * GIB)), draw(st.none() | sizes))
    only_host = kind == 6 and host != HostAsk()
    claim = make.claim("x", asked, host=host)
    return replace(claim, requests=()) if only_host else claim


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to four nodes of up to four cards, with and without limits."""
    devices, nodes = [], []
    for number in range(draw(st.integers(1, 4))):
        name = f"node-{number}"
        memory = draw(st.sampled_from(("24Gi", "80Gi")))
        devices += [make.card(f"gpu-{card}", name, memory) for card in range(draw(st.integers(1, 4)))]
        cpu = draw(st.none() | st.integers(2000, 30_000))
        host_bytes = draw(st.none() | st.integers(GIB, 40 * GIB))
        nodes.append(make.node(name, cpu_milli=cpu, memory_bytes=host_bytes))
    share = make.share(reserve_per_million=draw(st.sampled_from((0, 30_000))), min_reserve_bytes=0)
    return make.snapshot(devices, nodes=nodes, shares=[share])


@settings(max_examples=150, deadline=None)
@given(clusters(), st.lists(requests(), min_size=1, max_size=25))
def test_claims_one_by_one_get_the_cheapest_place_or_there_is_none(snapshot: Snapshot, asked: list[Claim]) -> None:
    """Nothing is given twice; what fits is placed; no place is cheaper by more than costs are told apart; with what was
    remembered the answer is that of a new process.
    """
    memo = Memo()
    for number, one in enumerate(asked):
        claim = replace(one, uid=make.claim(f"c{number:02}").uid, name=f"c{number:02}", created=float(number))
        arrived = replace(snapshot, claims=(*snapshot.claims, claim))
        decided = _answer(arrived, memo)
        assert decided.claims == plan(arrived, make.NOW).claims
        answer = decided.claims[claim.uid]
        cluster = Cluster(arrived)
        places = cluster.places(claim)
        assert bool(answer.placements) == bool(places), answer.reasons
        if places:
            (placement,) = answer.placements
            chosen = {device.id for device in placement.devices}
            mine = [place for place in places if place.node == placement.node and set(place.cards) == chosen]
            least = min(place.cost for place in places)
            assert mine
            assert mine[0].cost <= least + 1.5 * GRAIN
            snapshot = replace(arrived, claims=(*snapshot.claims, make.after(claim, answer.placements)))
        else:
            assert answer.reasons


@settings(max_examples=60, deadline=None)
@given(clusters(), st.lists(requests(), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_claims_together_are_valid_and_their_order_in_the_input_does_not_matter(
    snapshot: Snapshot, asked: list[Claim], chance: object
) -> None:
    """All at once, in any order of the input."""
    claims = [
        replace(one, uid=make.claim(f"c{number:02}").uid, name=f"c{number:02}", created=float(number))
        for number, one in enumerate(asked)
    ]
    decided = _answer(replace(snapshot, claims=tuple(claims)))
    chance.shuffle(claims)  # type: ignore[attr-defined]
    again = _answer(replace(snapshot, claims=tuple(claims)))
    assert dict(decided.claims) == dict(again.claims)


@settings(max_examples=60, deadline=None)
@given(clusters(), st.lists(requests(), min_size=2, max_size=10))
def test_what_is_given_back_is_there_again(snapshot: Snapshot, asked: list[Claim]) -> None:
    """When all claims have gone, the answer to a new one is that of the empty cluster."""
    memo, first = Memo(), make.claim("new", make.part(milli=320))
    empty = replace(snapshot, claims=(first,))
    expected = plan(empty, make.NOW)
    held: list[Claim] = []
    for number, one in enumerate(asked):
        claim = replace(one, uid=make.claim(f"c{number:02}").uid, name=f"c{number:02}", created=float(number))
        decided = plan(replace(snapshot, claims=(*held, claim)), make.NOW, memo)
        held.append(make.after(claim, decided.claims[claim.uid].placements))
    while held:
        del held[len(held) // 2]
        assert_valid(replace(snapshot, claims=tuple(held)), plan(replace(snapshot, claims=tuple(held)), make.NOW, memo))
    after = plan(empty, make.NOW, memo)
    assert after.claims == expected.claims
    assert after.pools == expected.pools


def _one(*devices: object, claims: tuple[Claim, ...] = (), **more: object) -> Snapshot:
    shares = more.pop("shares", [make.share()])
    return make.snapshot(devices, claims, shares=shares, **more)  # type: ignore[arg-type]


def _codes(snapshot: Snapshot, name: str) -> list[Code]:
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    return [reason.code for reason in decided.claims[make.claim(name).uid].reasons]


def test_the_last_byte_is_given_once() -> None:
    """Two parts fill a card to the byte; a third of one byte waits."""
    card = make.card(memory="24Gi")
    claims = tuple(make.claim(f"c{at}", make.part(12 * GIB), created=float(at)) for at in range(2))
    snapshot = _one(card, claims=(*claims, make.claim("late", make.part(1), created=9.0)))
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    assert all(decided.claims[claim.uid].placements for claim in claims)
    assert _codes(snapshot, "late") == [Code.SHARE_UNAVAILABLE]


def test_parts_of_one_request_come_from_devices_of_their_own_unless_it_says_otherwise() -> None:
    """And then they come from one."""
    cards = [make.card("gpu-0"), make.card("gpu-1")]
    apart = _one(*cards, claims=(make.claim("a", make.part(milli=300, count=2)),))
    decided = plan(apart, make.NOW)
    assert_valid(apart, decided)
    (placement,) = decided.claims[make.claim("a").uid].placements
    assert len({device.id for device in placement.devices}) == 2
    together = _one(*cards, claims=(make.claim("a", make.part(milli=300, count=2, same_device=True)),))
    decided = plan(together, make.NOW)
    assert_valid(together, decided)
    (placement,) = decided.claims[make.claim("a").uid].placements
    assert len(placement.devices) == 2
    assert len({device.id for device in placement.devices}) == 1
    placed = make.after(together.claims[0], [placement])
    later = replace(together, claims=(placed, make.claim("b", make.part(milli=401))))
    (second,) = plan(later, make.NOW).claims[make.claim("b").uid].placements
    assert second.devices[0].id != placement.devices[0].id


@pytest.mark.parametrize(
    ("taken", "share", "told"),
    [
        pytest.param(0, {}, "fits with isolation Cooperative instead of Hard in request gpu", id="one step"),
        pytest.param(
            0,
            {"mode": ShareMode.TIME_SLICED, "slots": 4},
            None,
            id="with another reason beside it nothing is promised",
        ),
        pytest.param(1000, {}, None, id="the card is full"),
    ],
)
def test_less_isolation_is_the_nearest_change_when_it_would_fit(
    taken: int, share: dict[str, Any], told: str | None
) -> None:
    cards = [make.card("gpu-0")]
    asked = make.claim("claim", make.part(milli=500, isolation=Isolation.HARD))
    snapshot = make.snapshot(cards, [asked], shares=[make.share(**share)])
    if taken:
        other = make.claim("other", make.part(milli=taken))
        first = replace(snapshot, claims=(other,))
        held = make.after(other, plan(first, make.NOW).claims[other.uid].placements)
        snapshot = replace(snapshot, claims=(held, asked))
    answer = plan(snapshot, make.NOW).claims[asked.uid]
    assert (answer.placements, answer.nearest) == ((), told)
    if told is not None:
        softer = replace(asked, requests=(replace(asked.requests[0], isolation=Isolation.COOPERATIVE),))
        assert plan(replace(snapshot, claims=(softer,)), make.NOW).claims[softer.uid].placements


REFUSALS = {
    "no such share": (make.part(milli=100, share="none"), {}, Code.SHARE_UNAVAILABLE, "no DeviceShare none"),
    "a refused share": (make.part(milli=100), {"refusal": "no layout"}, Code.SHARE_UNAVAILABLE, "no layout"),
    "compute of a share that has slots": (
        make.part(milli=100),
        {"mode": ShareMode.TIME_SLICED, "slots": 4},
        Code.INVALID_CLAIM,
        "memory and compute of DeviceShare half, whose mode is TimeSliced; ask for slots instead",
    ),
    "isolation that the mode does not give": (
        make.part(milli=100, isolation=Isolation.HARD),
        {},
        Code.ISOLATION_UNAVAILABLE,
        "Cooperative",
    ),
    "a part of nothing": (make.part(), {}, Code.INVALID_CLAIM, "no memory and no compute"),
    "a share of another pool": (make.part(milli=100), {"pool": "other"}, Code.SHARE_UNAVAILABLE, "pool other"),
    "a share of other devices": (make.part(milli=100), {"kind": "nic"}, Code.SHARE_UNAVAILABLE, "splits nic"),
    "parts of all devices": (make.part(milli=100, all_devices=True), {}, Code.INVALID_CLAIM, "with count"),
    "more than any card": (
        make.part("200Gi"),
        {},
        Code.SHARE_UNAVAILABLE,
        "needs 200Gi of one gpu, the largest in DeviceShare half gives 80Gi",
    ),
    "more cards than any node": (make.part(milli=1, count=3), {}, Code.INSUFFICIENT_DEVICES, "best node has 2"),
    "no card that the share may split": (
        make.part(milli=1),
        {"selectors": (compile_selector("device.driver == 'other'"),)},
        Code.SELECTOR_UNMATCHED,
        "none of 2 gpu is in DeviceShare half",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_part_says_why(case: str) -> None:
    """One code, and a sentence with what was asked and what there is."""
    request, share, code, words = REFUSALS[case]
    claim = make.claim("c", request)
    snapshot = _one(make.card("gpu-0"), make.card("gpu-1"), claims=(claim,), shares=[make.share(**share)])
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    reason = decided.claims[claim.uid].reasons[0]
    assert reason.code is code
    assert words in reason.message


@pytest.mark.parametrize(
    ("claim", "words", "nearest"),
    [
        pytest.param(
            make.claim("c", make.part(milli=1), host=HostAsk(cpu_milli=9000)),
            "needs 9 CPU, best node has 8 left",
            "fits with host cpu 8 instead of 9",
            id="a part, more processors than any node",
        ),
        pytest.param(
            make.claim("c", make.request("gpu"), host=HostAsk(memory_bytes=65 * GIB)),
            "best has 64Gi",
            "fits with host memory 64Gi instead of 65Gi",
            id="a whole card, more memory than any node",
        ),
        pytest.param(
            replace(make.claim("c", host=HostAsk(cpu_milli=8001)), requests=()),
            "needs 8001m CPU, best has 8",
            "fits with host cpu 8 instead of 8001m",
            id="no card at all",
        ),
    ],
)
def test_a_full_host_says_what_is_left(claim: Claim, words: str, nearest: str) -> None:
    """The code, numbers, and what would fit."""
    node = make.node(cpu_milli=8000, memory_bytes=64 * GIB)
    snapshot = _one(make.card("gpu-0"), make.card("gpu-1"), claims=(claim,), nodes=[node])
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    answer = decided.claims[claim.uid]
    assert answer.reasons[0].code is Code.HOST_RESOURCES
    assert words in answer.reasons[0].message
    assert answer.nearest == nearest


def test_free_parts_that_are_not_together_are_fragmented_and_the_nearest_fits() -> None:
    """Both are said, and so is the largest part that fits, which then does."""
    cards = [make.card("gpu-0", memory="10Gi"), make.card("gpu-1", memory="10Gi")]
    held = [make.claim(f"h{at}", make.part(6 * GIB), created=float(at)) for at in range(2)]
    snapshot = _one(*cards, claims=(*held, make.claim("c", make.part(5 * GIB), created=9.0)))
    decided = plan(snapshot, make.NOW)
    answer = decided.claims[make.claim("c").uid]
    assert [reason.code for reason in answer.reasons] == [Code.SHARE_UNAVAILABLE, Code.FRAGMENTED]
    assert answer.nearest == "fits with memory 4Gi instead of 5Gi in request gpu"
    less = replace(snapshot, claims=(*held, make.claim("c", make.part(4 * GIB), created=9.0)))
    assert not plan(less, make.NOW).claims[make.claim("c").uid].reasons


def test_no_more_devices_are_split_than_the_share_allows() -> None:
    """Who comes later joins those that are, or waits."""
    cards = [make.card(f"gpu-{at}") for at in range(3)]
    claims = tuple(make.claim(f"c{at}", make.part(milli=600), created=float(at)) for at in range(3))
    snapshot = _one(*cards, claims=claims, shares=[make.share(max_devices=2)])
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    assert [bool(decided.claims[claim.uid].placements) for claim in claims] == [True, True, False]
    assert decided.pools[make.POOL].counts["gpu"].free == 1
    joins = replace(snapshot, claims=(*claims[:2], make.claim("small", make.part(milli=400), created=9.0)))
    assert plan(joins, make.NOW).claims[make.claim("small").uid].placements


def test_a_card_in_parts_is_no_whole_card() -> None:
    """A claim for a whole one goes elsewhere or waits, and the device counts once, as allocated."""
    first = _one(make.card("gpu-0"), make.card("gpu-1"), claims=(make.claim("part", make.part(milli=100)),))
    decided = plan(first, make.NOW)
    held = make.after(first.claims[0], decided.claims[first.claims[0].uid].placements)
    pair = replace(first, claims=(held, make.claim("pair", make.request("gpu", 2))))
    assert _codes(pair, "pair") == [Code.INSUFFICIENT_DEVICES]
    counts = plan(pair, make.NOW).pools[make.POOL].counts["gpu"]
    assert (counts.capacity, counts.allocated, counts.free) == (2, 1, 1)
    going = replace(pair, claims=(replace(held, deleting=True), pair.claims[1]))
    counts = plan(going, make.NOW).pools[make.POOL].counts["gpu"]
    assert (counts.allocated, counts.releasing) == (0, 1)


def test_a_part_and_a_nic_are_chosen_together() -> None:
    """The part comes from the card whose root the free NIC is on, though another card would be cheaper."""
    node = make.rails(gpus=4)
    used = make.claim("used", make.part(milli=500), created=1.0)
    start = make.snapshot(node, [used], shares=[make.share()])
    (placement,) = plan(start, make.NOW).claims[used.uid].placements
    assert placement.devices[0].id.device == "gpu-0"
    nics = [device for device in node if device.kind == "nic"]
    busy = make.holding("busy", nics[:2], created=1.0)
    both = make.claim("both", make.part(milli=500), make.request("nic"), make.required("PCIeRoot", "gpu", "nic"))
    snapshot = replace(start, claims=(make.after(used, [placement]), busy, both))
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    (found,) = decided.claims[both.uid].placements
    assert [device.id.device for device in found.devices] == ["gpu-2", "nic-2"]
    near = replace(snapshot, claims=(snapshot.claims[0], both))
    (found,) = plan(near, make.NOW).claims[both.uid].placements
    assert [device.id.device for device in found.devices] == ["gpu-0", "nic-0"]


def test_a_part_by_memory_leaves_the_larger_card_whole() -> None:
    """A third of the small card, not a tenth of the large one; and what is too large for it goes to the large one."""
    cards = (make.card("gpu-0", "node-a", "80Gi"), make.card("gpu-1", "node-a", "24Gi"))
    held: list[Claim] = []
    for number, expected in enumerate(("gpu-1", "gpu-1", "gpu-1", "gpu-0")):
        claim = make.claim(f"c{number}", make.part(8 * GIB), created=float(number))
        answer = _answer(_one(*cards, claims=(*held, claim))).claims[claim.uid]
        assert answer.placements[0].devices[0].id.device == expected
        held.append(make.after(claim, answer.placements))


def test_a_part_that_fits_beside_larger_ones_leaves_the_larger_card_whole_all_the_same() -> None:
    """Beside 60 of 80 GiB parts of 7 cost nothing, so that the small card must not look dear in comparison."""
    cards = (make.card("gpu-0", "node-a", "80Gi"), make.card("gpu-1", "node-a", "24Gi"))
    small = replace(make.claim("small", make.part(7 * GIB), created=0.0), replicas=3)
    middle = make.claim("middle", make.part(30 * GIB, 250), created=1.0)
    large = make.claim("large", make.part(60 * GIB), created=2.0)
    answer = _answer(_one(*cards, claims=(small, middle, large))).claims
    found = [device.id.device for placed in answer[small.uid].placements for device in placed.devices]
    assert found == ["gpu-1"] * 3
    assert [device.id.device for device in answer[middle.uid].placements[0].devices] == ["gpu-0"]
