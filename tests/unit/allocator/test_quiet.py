"""Claims of profile Latency that hold parts keep their cards quiet: others go elsewhere, as long as they can."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.support import make
from tests.support.checks import assert_valid

from adjoin_allocator import Claim, Memo, Profile, Snapshot, plan

QUIET = Profile.LATENCY


def _place(snapshot: Snapshot, claim: Claim, memo: Memo | None = None) -> tuple[str, Snapshot]:
    """Node and card of a claim that comes, or "", and the snapshot with it."""
    asked = replace(snapshot, claims=(*snapshot.claims, claim))
    decided = plan(asked, make.NOW, memo)
    assert_valid(asked, decided)
    placements = decided.claims[claim.uid].placements
    where = f"{placements[0].node}/{placements[0].devices[0].id.device}" if placements else ""
    return where, replace(snapshot, claims=(*snapshot.claims, make.after(claim, placements)))


def _through(snapshot: Snapshot, *claims: Claim) -> list[str]:
    """Where claims that come one after the other go; the same with what is remembered and without."""
    memo, warm, places = Memo(), snapshot, []
    for claim in claims:
        cold, snapshot = _place(snapshot, claim)
        remembered, warm = _place(warm, claim, memo)
        assert cold == remembered
        places.append(cold)
    return places


def _claim(name: str, milli: int, profile: Profile = Profile.BALANCED) -> Claim:
    return make.claim(name, make.part(milli=milli), profile=profile)


CARDS = [make.card(f"gpu-{at}", node) for node in ("node-a", "node-b") for at in range(2)]


@pytest.mark.parametrize(
    ("cards", "claims", "where"),
    [
        pytest.param(
            CARDS[:2],
            [_claim("a", 300), _claim("b", 300)],
            ["node-a/gpu-0", "node-a/gpu-0"],
            id="of others, a part joins what is in use already",
        ),
        pytest.param(
            CARDS[:2],
            [_claim("a", 300, QUIET), _claim("b", 300), _claim("c", 300)],
            ["node-a/gpu-0", "node-a/gpu-1", "node-a/gpu-1"],
            id="beside who wants quiet neighbours nobody comes as long as there is another card",
        ),
        pytest.param(
            CARDS[:2],
            [_claim("a", 300, QUIET), _claim("b", 800), _claim("c", 300), _claim("d", 500)],
            ["node-a/gpu-0", "node-a/gpu-1", "node-a/gpu-0", ""],
            id="but rather there than nowhere",
        ),
        pytest.param(
            CARDS[:2],
            [_claim("a", 300, QUIET), _claim("b", 300, QUIET), _claim("c", 600)],
            ["node-a/gpu-0", "node-a/gpu-1", "node-a/gpu-0"],
            id="two who want quiet keep away from each other",
        ),
        pytest.param(
            CARDS,
            [_claim("a", 300, QUIET), _claim("b", 300), _claim("c", 700)],
            ["node-a/gpu-0", "node-a/gpu-1", "node-a/gpu-1"],
            id="the other cards of its node are as good as ever",
        ),
    ],
)
def test_cards_are_kept_quiet(cards: list[make.Device], claims: list[Claim], where: list[str]) -> None:
    assert _through(make.snapshot(cards, shares=[make.share()]), *claims) == where


def test_in_one_decision_who_comes_later_keeps_away_too() -> None:
    """Whoever is served first."""
    claims = (_claim("a", 300, QUIET), _claim("b", 300), _claim("c", 300))
    snapshot = make.snapshot(CARDS[:2], shares=[make.share()], claims=claims)
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    cards = [decided.claims[claim.uid].placements[0].devices[0].id.device for claim in claims]
    assert cards[0] not in cards[1:]


def test_a_card_is_open_to_all_again_when_who_wanted_quiet_has_gone() -> None:
    """With what is remembered, too."""
    memo = Memo()
    _, snapshot = _place(make.snapshot(CARDS[:2], shares=[make.share()]), _claim("a", 300, QUIET), memo)
    _, snapshot = _place(snapshot, _claim("b", 300), memo)
    quiet, other = snapshot.claims
    # Its place is taken by another of the same size who does not mind.
    changed = replace(snapshot, claims=(replace(quiet, uid=make.claim("x").uid, profile=Profile.BALANCED), other))
    where, _ = _place(changed, _claim("c", 400), memo)
    assert where == _place(changed, _claim("c", 400))[0] == "node-a/gpu-0"


def test_a_loaded_node_is_sooner_taken_than_a_card_that_is_kept_quiet() -> None:
    """Load passes; a neighbour stays."""
    cards = [make.card("gpu-0", "node-a"), make.card("gpu-0", "node-b")]
    limits = {"cpu_milli": 10_000}
    nodes = [make.node("node-a", **limits), make.node("node-b", **limits, cpu_load_milli=9_000)]
    snapshot = make.snapshot(cards, nodes=nodes, shares=[make.share()])
    places = _through(snapshot, _claim("a", 200, QUIET), _claim("b", 300), _claim("c", 800))
    assert places == ["node-a/gpu-0", "node-b/gpu-0", "node-a/gpu-0"]


def test_limits_of_the_share_come_first() -> None:
    """A share that may split one card splits no second one for the sake of quiet."""
    snapshot = make.snapshot(CARDS, shares=[make.share(max_devices=1)])
    assert _through(snapshot, _claim("a", 300, QUIET), _claim("b", 300)) == ["node-a/gpu-0", "node-a/gpu-0"]


@pytest.mark.parametrize("seed", range(30))
def test_no_claim_that_fits_is_refused_for_the_sake_of_quiet(seed: int) -> None:
    """Each claim alone, with what the earlier ones hold: it has a place exactly if it has one where nobody minds."""
    rng = random.Random(seed)
    snapshot = make.snapshot(CARDS[: rng.randint(1, 4)], shares=[make.share(max_devices=rng.choice((None, 1, 2)))])
    for number in range(14):
        profile = rng.choice(list(Profile))
        asked = make.part(milli=rng.choice((100, 250, 400, 600, 900)), count=rng.choice((1, 1, 1, 2)))
        claim = make.claim(f"c{number}", asked, profile=profile)
        loud = replace(snapshot, claims=tuple(replace(each, profile=Profile.BALANCED) for each in snapshot.claims))
        where, after = _place(snapshot, claim)
        elsewhere, _ = _place(loud, claim)
        assert bool(where) == bool(elsewhere)
        snapshot = after if where else snapshot
