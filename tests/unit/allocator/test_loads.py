"""Parts of devices keep away from loaded nodes, and claims of profile Latency from crowded cards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support import make
from tests.support.checks import assert_valid

from adjoin_allocator import Claim, HostAsk, Profile, Snapshot, Strategy, plan

GIB = 1 << 30


def _where(snapshot: Snapshot, claim: Claim) -> str:
    """Node and card of a claim that is added to the snapshot."""
    asked = replace(snapshot, claims=(*snapshot.claims, claim))
    decided = plan(asked, make.NOW)
    assert_valid(asked, decided)
    (placement,) = decided.claims[claim.uid].placements
    return f"{placement.node}/{placement.devices[0].id.device}"


def _held(snapshot: Snapshot, *claims: Claim) -> Snapshot:
    for claim in claims:
        asked = replace(snapshot, claims=(*snapshot.claims, claim))
        answer = plan(asked, make.NOW).claims[claim.uid]
        snapshot = replace(snapshot, claims=(*snapshot.claims, make.after(claim, answer.placements)))
    return snapshot


CARDS = [make.card("gpu-0", "node-a"), make.card("gpu-0", "node-b")]


@pytest.mark.parametrize(
    ("loaded", "host"),
    [
        pytest.param({"cpu_load_milli": 8_000}, HostAsk(), id="its CPU is busy, as measured"),
        pytest.param(
            {"memory_load_bytes": 9 * GIB}, HostAsk(1), id="its memory is busy, whatever the claim says it needs"
        ),
        pytest.param(
            {"cpu_used_milli": 8_000},
            HostAsk(),
            id="its CPU is promised to others, and nobody knows what the pod needs",
        ),
    ],
)
def test_a_part_keeps_away_from_a_loaded_node_as_long_as_it_can(loaded: dict[str, int], host: HostAsk) -> None:
    """But rather there than nowhere."""
    limits = {"cpu_milli": 10_000, "memory_bytes": 10 * GIB}
    nodes = [make.node("node-a", **limits, **loaded), make.node("node-b", **limits)]
    snapshot = make.snapshot(CARDS, nodes=nodes, shares=[make.share()])
    assert _where(snapshot, make.claim("c", make.part(milli=500), host=host)) == "node-b/gpu-0"
    full = _held(snapshot, make.claim("b", make.part(milli=1000), host=host))
    assert _where(full, make.claim("c", make.part(milli=500), host=host)) == "node-a/gpu-0"


def test_whole_devices_do_not_care_for_load() -> None:
    """Only what is shared is steered."""
    nodes = [make.node("node-a", cpu_milli=10_000, cpu_load_milli=9_000), make.node("node-b", cpu_milli=10_000)]
    snapshot = make.snapshot(CARDS, nodes=nodes, shares=[make.share()])
    assert _where(snapshot, make.claim("c", make.request("gpu"))) == "node-a/gpu-0"


def test_a_node_that_says_what_is_promised_is_no_obstacle_to_who_says_what_it_needs() -> None:
    """What a claim needs of the host is a question of room then."""
    nodes = [make.node("node-a", cpu_milli=10_000, cpu_used_milli=8_000), make.node("node-b", cpu_milli=10_000)]
    snapshot = make.snapshot(CARDS[:1], nodes=nodes, shares=[make.share()])
    assert _where(snapshot, make.claim("c", make.part(milli=500), host=HostAsk(2_000))) == "node-a/gpu-0"


def test_latency_gets_the_emptiest_card_and_others_the_fullest() -> None:
    """Who shares a card is its nearest neighbour."""
    cards = [make.card(f"gpu-{at}", "node-a", numa=0) for at in range(3)]
    snapshot = make.snapshot(cards, shares=[make.share(max_devices=2)])
    quiet = make.claim("quiet", make.part(milli=100), profile=Profile.LATENCY)
    snapshot = _held(snapshot, make.claim("a", make.part(milli=600)), make.claim("b", make.part(milli=500)))
    assert _where(snapshot, make.claim("c", make.part(milli=100))) == "node-a/gpu-0"
    assert _where(snapshot, quiet) == "node-a/gpu-1"
    free = replace(snapshot, shares={"half": make.share()})
    assert _where(free, quiet) == "node-a/gpu-2"


def test_latency_prefers_one_large_neighbour_to_two_small_ones() -> None:
    """It is the number of neighbours that makes the tail of latencies."""
    cards = [make.card(f"gpu-{at}", "node-a", numa=0) for at in range(2)]
    snapshot = make.snapshot(cards, shares=[make.share()])
    small = [make.claim(f"s{at}", make.part(milli=100)) for at in range(2)]
    snapshot = _held(snapshot, *small, make.claim("large", make.part(milli=850)))
    assert _where(snapshot, make.claim("quiet", make.part(milli=100), profile=Profile.LATENCY)) == "node-a/gpu-1"


def test_strategy_spread_goes_to_the_node_of_which_least_is_in_use_parts_included() -> None:
    """Half of a card is half of a card."""
    cards = [make.card(f"gpu-{at}", f"node-{name}") for name in "ab" for at in range(2)]
    pool = make.pool(strategy=Strategy.SPREAD)
    snapshot = make.snapshot(cards, shares=[make.share()], pools=[pool])
    order = []
    for at in range(6):
        claim = make.claim(f"c{at}", make.part(milli=300))
        order.append(_where(snapshot, claim))
        snapshot = _held(snapshot, claim)
    assert order == [
        "node-a/gpu-0",
        "node-b/gpu-0",
        "node-a/gpu-1",
        "node-b/gpu-1",
        "node-a/gpu-0",
        "node-b/gpu-0",
    ]
