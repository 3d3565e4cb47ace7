"""Parts of cards and the order of service: who fits beside all before it is placed, wherever these were put first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import make
from tests.support.checks import assert_valid
from tests.support.partitions import PROFILES, fit_together, mig_card

from adjoin_allocator import Claim, Code, Device, HostAsk, Memo, Plan, ReplicaState, Request, Scope, Snapshot, plan
from adjoin_allocator.model import Alternative, PlacedDevice, PlacedReplica
from adjoin_allocator.terms import Objective

GIB = 1 << 30
CARD = 80


def _answer(snapshot: Snapshot) -> Plan:
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    return decided


def _placed(decided: Plan, snapshot: Snapshot) -> list[str]:
    return [
        claim.name
        for claim in snapshot.claims
        if claim.uid in decided.claims and len(decided.claims[claim.uid].placements) == claim.replicas
    ]


def _cards(number: int, node: str = make.NODE) -> list[Device]:
    return [make.card(f"gpu-{at}", node, f"{CARD}Gi") for at in range(number)]


def _held(claim: Claim, card: Device) -> PlacedDevice:
    share = claim.requests[0].share
    assert share is not None
    return PlacedDevice("gpu", card.id, card.hardware_id, share.placed)


def _in_turn(*requests: Sequence[Request]) -> list[Claim]:
    return [make.claim(f"c{at}", *asked, created=float(at)) for at, asked in enumerate(requests)]


WHOLE = make.request("gpu", 1)

ROOM = {
    "two halves leave a tenth of each card when they share one": (
        make.part(milli=500),
        make.part(milli=500),
        make.part(milli=100, count=2),
    ),
    "parts that know nothing of each other's amount share a card for a whole one": (
        make.part("10Gi"),
        make.part(milli=250),
        WHOLE,
    ),
    "parts gather so that two on two cards fit": (
        make.part("10Gi"),
        make.part("20Gi", 250),
        make.part("40Gi", 500),
        make.part("10Gi", count=2),
    ),
}


@pytest.mark.parametrize("requests", ROOM.values(), ids=ROOM.keys())
def test_who_fits_beside_all_before_it_is_placed(requests: Sequence[Request]) -> None:
    snapshot = make.snapshot(_cards(2), claims=_in_turn(*([asked] for asked in requests)), shares=[make.share()])
    decided = _answer(snapshot)
    assert _placed(decided, snapshot) == [claim.name for claim in snapshot.claims]


def test_a_whole_card_moves_to_a_smaller_one_for_a_part_that_only_the_larger_one_holds() -> None:
    """There are as many cards afterwards, but more that can be given of them."""
    cards = [make.card("gpu-0", "node-0", "80Gi"), make.card("gpu-0", "node-1", "24Gi")]
    asked = _in_turn([WHOLE], [make.part("30Gi", 100)])
    snapshot = make.snapshot(cards, claims=asked, shares=[make.share()])
    decided = _answer(snapshot)
    assert [decided.claims[claim.uid].placements[0].node for claim in asked] == ["node-1", "node-0"]


@pytest.mark.parametrize(
    ("devices", "first", "then"),
    [
        pytest.param([*_cards(1, "node-0"), *_cards(1, "node-1")], WHOLE, WHOLE, id="whole cards"),
        pytest.param([*_cards(1, "node-0"), *_cards(1, "node-1")], make.part("10Gi"), WHOLE, id="a part and a card"),
        pytest.param(
            [*mig_card(0, "node-0", ("3g",)), *mig_card(1, "node-1", ("3g",))],
            make.part(milli=100),
            make.request("mig", 2),
            id="partitions with counters",
        ),
    ],
)
def test_who_needs_little_of_a_host_moves_for_who_needs_much(
    devices: Sequence[Device], first: Request, then: Request
) -> None:
    little, much = HostAsk(cpu_milli=1000), HostAsk(cpu_milli=8000)
    asked = [make.claim("c0", first, host=little, created=0.0), make.claim("c1", then, host=much, created=1.0)]
    snapshot = make.snapshot(devices, claims=asked, shares=[make.share()])
    rooms = {"node-0": 8000, "node-1": 2000}
    for large, small in (("node-0", "node-1"), ("node-1", "node-0")):
        nodes = {name: replace(node, cpu_milli=rooms[name]) for name, node in snapshot.nodes.items()}
        decided = _answer(replace(snapshot, nodes=nodes))
        assert [decided.claims[claim.uid].placements[0].node for claim in asked] == [small, large]
        rooms = {"node-0": 2000, "node-1": 8000}


@pytest.mark.parametrize("hosts", [("", "8"), ("8", "")])
def test_who_takes_all_of_a_node_moves_for_who_needs_more_of_them(hosts: tuple[str, str]) -> None:
    """There are more free devices afterwards."""
    devices = [*make.flat("a", gpus=2, nics=1), *make.flat("b", gpus=2, nics=2)]
    both = [make.request("gpu", 2), make.everything("nic")], [make.request("nic", 2)]
    asked = [
        make.claim(f"c{at}", *requests, created=float(at), host=HostAsk(cpu_milli=int(host or 0)))
        for at, (requests, host) in enumerate(zip(both, hosts, strict=True))
    ]
    for names in ({}, {"a": "b", "b": "a"}):
        turned = [replace(one, node=names.get(one.node, one.node)) for one in devices]
        snapshot = make.snapshot(turned, claims=asked)
        assert _placed(_answer(snapshot), snapshot) == ["c0", "c1"]


def test_who_has_one_of_several_ways_moves_and_keeps_it() -> None:
    devices = [make.card("gpu-0", root="near"), make.card("gpu-1", root="far"), make.device("nic-0", root="near")]
    either = make.request("gpu", 0, first_of=(Alternative("whole", 1), Alternative("two", 2)))
    near = make.required(Scope.PCIE_ROOT, "gpu", "nic")
    asked = [
        make.claim("c0", either, created=0.0),
        make.claim("c1", make.request("gpu"), make.request("nic"), near, created=1.0),
    ]
    decided = _answer(make.snapshot(devices, claims=asked))
    devices_of = [decided.claims[claim.uid].placements[0].devices for claim in asked]
    assert [(one.request, one.id.device) for each in devices_of for one in each] == [
        ("gpu/whole", "gpu-1"),
        ("gpu", "gpu-0"),
        ("nic", "nic-0"),
    ]


def test_parts_that_were_there_before_do_not_move() -> None:
    asked, cards = _in_turn([make.part("10Gi")], [make.part(milli=250)], [WHOLE]), _cards(2)
    spread = [
        replace(claim, placed=(PlacedReplica(0, make.NODE, ReplicaState.READY, (_held(claim, card),)),))
        for claim, card in zip(asked[:2], cards, strict=True)
    ]
    snapshot = make.snapshot(cards, claims=[*spread, asked[2]], shares=[make.share()])
    assert _placed(_answer(snapshot), snapshot) == []


def test_nothing_moves_without_a_budget() -> None:
    claims = _in_turn([make.part(milli=500)], [make.part(milli=500)], [make.part(milli=100, count=2)])
    pool = make.pool(optimise_milliseconds=0)
    snapshot = make.snapshot(_cards(2), claims=claims, shares=[make.share()], pools=[pool])
    assert _placed(_answer(snapshot), snapshot) == ["c0", "c1"]


def test_a_card_near_a_nic_is_made_free_for_who_must_be_near_it() -> None:
    devices = [
        make.card("gpu-0", memory="80Gi", root="near"),
        make.card("gpu-1", memory="80Gi", root="far"),
        make.device("nic-0", root="near"),
    ]
    near = make.required(Scope.PCIE_ROOT, "gpu", "nic")
    claims = [
        make.claim("c0", make.part("60Gi"), created=0.0),
        make.claim("c1", make.part("60Gi"), make.request("nic"), near, created=1.0),
    ]
    snapshot = make.snapshot(devices, claims=claims, shares=[make.share()])
    decided = _answer(snapshot)
    assert _placed(decided, snapshot) == ["c0", "c1"]
    assert decided.claims[claims[1].uid].placements[0].devices[0].id.device == "gpu-0"


@pytest.mark.parametrize("objective", list(Objective))
def test_parts_of_one_card_that_are_more_than_a_card_wait_and_say_so(objective: Objective) -> None:
    claims = _in_turn([make.part(milli=700, count=2, same_device=True)], [WHOLE], [make.part(milli=700)])
    snapshot = make.snapshot(_cards(2), claims=claims, shares=[make.share()], pools=[make.pool(objective=objective)])
    decided = _answer(snapshot)
    assert _placed(decided, snapshot) == ["c1", "c2"]
    assert decided.claims[claims[0].uid].reasons[0].code is Code.SHARE_UNAVAILABLE


asks = st.one_of(
    st.builds(lambda count: ("whole", count, 0, 0, False), st.sampled_from((1, 1, 2))),
    st.builds(
        lambda count, gib, milli, same: ("part", count, gib, milli if gib or milli else 100, same),
        st.sampled_from((1, 1, 1, 2)),
        st.sampled_from((0, 10, 20, 30, 40, 60)),
        st.sampled_from((0, 100, 250, 500, 700)),
        st.sampled_from((False, False, True)),
    ),
)
_Ask = tuple[str, int, int, int, bool]
_State = tuple[tuple[tuple[int, int, int], ...], ...]
"""By node its cards: what they are (0 free, 1 split, 2 whole), and GiB and thousandths in use."""


def _ways(state: _State, ask: _Ask, limit: int | None) -> Iterator[_State]:
    what, count, gib, milli, same = ask
    for at, node in enumerate(state):
        for chosen in combinations(range(len(node)), 1 if same and what == "part" else count):
            times = count if same else 1
            cards, fits = list(node), True
            for card in chosen:
                now, used_gib, used_milli = cards[card]
                after = (used_gib + times * gib, used_milli + times * milli)
                if what == "whole":
                    fits, cards[card] = fits and now == 0, (2, 0, 0)
                else:
                    fits = fits and now < 2 and after[0] <= CARD and after[1] <= 1000
                    cards[card] = (1, *after)
            new = (*state[:at], tuple(cards), *state[at + 1 :])
            split = sum(card[0] == 1 for each in new for card in each)
            if fits and (limit is None or split <= limit):
                yield new


def _possible(state: _State, asked: Sequence[_Ask], limit: int | None) -> bool:
    return not asked or any(_possible(new, asked[1:], limit) for new in set(_ways(state, asked[0], limit)))


@given(
    nodes=st.lists(st.integers(1, 2), min_size=1, max_size=2),
    asked=st.lists(asks, min_size=2, max_size=5),
    limit=st.sampled_from((None, None, 1, 2)),
)
@settings(max_examples=150)
def test_the_first_in_the_order_that_fit_together_are_placed(
    nodes: list[int], asked: list[_Ask], limit: int | None
) -> None:
    claims = [
        make.claim(
            f"c{at}",
            make.request("gpu", count)
            if what == "whole"
            else make.part(gib * GIB or None, milli or None, count, same_device=same),
            created=float(at),
        )
        for at, (what, count, gib, milli, same) in enumerate(asked)
    ]
    devices = [card for at, number in enumerate(nodes) for card in _cards(number, f"node-{at}")]
    snapshot = make.snapshot(devices, claims=claims, shares=[make.share(max_devices=limit)])
    empty = tuple(((0, 0, 0),) * number for number in nodes)
    kept: list[_Ask] = []
    names = []
    for claim, ask in zip(claims, asked, strict=True):
        if _possible(empty, [*kept, ask], limit):
            kept.append(ask)
            names.append(claim.name)
    decided = _answer(snapshot)
    assert _placed(decided, snapshot) == names
    assert plan(snapshot, make.NOW, Memo()) == decided


_Taken = frozenset[tuple[Device, int]]
"""Devices of which something is in use, and how much of it in thousandths."""


def _selected(device: Device, profile: str) -> bool:
    return device.kind == "mig" and f"-{profile}-" in device.id.device if profile else device.kind == "gpu"


def _counted_ways(taken: _Taken, devices: Sequence[Device], ask: tuple[str, int]) -> Iterator[_Taken]:
    """What is in use when one more has a partition, a whole card, or so many thousandths of one."""
    profile, milli = ask
    for device in devices:
        used = dict(taken).get(device, 0)
        after = used + (milli or 1000)
        if _selected(device, profile) and after <= 1000 and (milli or not used):
            rest = dict(taken) | {device: after}
            if fit_together(rest):
                yield frozenset(rest.items())


def _counted(taken: _Taken, devices: Sequence[Device], asked: Sequence[tuple[str, int]]) -> bool:
    ways = set(_counted_ways(taken, devices, asked[0])) if asked else set()
    return not asked or any(_counted(after, devices, asked[1:]) for after in ways)


@given(
    st.lists(st.sampled_from(("1g2", "2g", "3g", "4g")), min_size=1, max_size=2, unique=True),
    st.integers(1, 2),
    st.lists(st.tuples(st.sampled_from(("", *PROFILES)), st.sampled_from((0, 0, 300, 600))), min_size=2, max_size=6),
)
@settings(max_examples=150)
def test_who_holds_partitions_with_counters_moves_for_others(
    profiles: list[str], number: int, asked: list[tuple[str, int]]
) -> None:
    """Partitions that the driver publishes, whole cards and parts of whole cards beside each other."""
    devices = [each for at in range(number) for each in mig_card(at, f"node-{at}", profiles)]
    asked = [(profile, 0 if profile else milli) for profile, milli in asked if profile in ("", *profiles)]
    claims = [
        make.claim(
            f"c{at}",
            make.part(milli=milli)
            if milli
            else make.selecting("mig", f"device.attributes['gpu.nvidia.com'].profile == '{profile}'")
            if profile
            else make.request("gpu"),
            created=float(at),
        )
        for at, (profile, milli) in enumerate(asked)
    ]
    snapshot = make.snapshot(devices, claims=claims, shares=[make.share()])
    kept: list[tuple[str, int]] = []
    names = []
    for claim, ask in zip(claims, asked, strict=True):
        if _counted(frozenset(), devices, [*kept, ask]):
            kept.append(ask)
            names.append(claim.name)
    decided = _answer(snapshot)
    assert _placed(decided, snapshot) == names
    assert plan(snapshot, make.NOW, Memo()) == decided
