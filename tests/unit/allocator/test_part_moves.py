"""Moves of replicas that have parts of devices: for a waiting claim, and away from loaded nodes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import pytest
from tests.support import make
from tests.support.checks import assert_valid
from tests.support.mode_sites import gpu

from adjoin_allocator import Claim, HostAsk, PlacedDevice, PlacedReplica, PlacedShare, Profile, Snapshot, plan
from adjoin_allocator.defrag import Advice, Outcome, defragment
from adjoin_allocator.model import Device, DeviceID, ShareAsk
from adjoin_allocator.terms import ReplicaState, ShareMode
from adjoin_allocator.unload import relieve

WHOLE = 1000


def held(name: str, card: Device, milli: int, **more: object) -> Claim:
    """A claim that has a part of a card."""
    part = PlacedDevice("gpu", card.id, card.hardware_id, PlacedShare("half", compute_milli=milli))
    placed = (PlacedReplica(0, card.node, ReplicaState.READY, (part,)),)
    return make.claim(name, make.part(milli=milli), placed=placed, created=make.NOW - 9, **more)


def moved(snapshot: Snapshot, advice: Advice) -> Snapshot:
    """The snapshot with all moves made."""
    places = {(move.uid, move.index): move for move in advice.moves}
    claims = []
    for claim in snapshot.claims:
        placed = tuple(
            replace(each, node=to.to_node, devices=to.to_devices)
            if (to := places.get((claim.uid, each.index)))
            else each
            for each in claim.placed
        )
        claims.append(replace(claim, placed=placed))
    return replace(snapshot, claims=tuple(claims))


def assert_honest(snapshot: Snapshot, advice: Advice) -> None:
    """What it says can be done: nobody has more than there is, and then the claim gets what was said."""
    for move in advice.moves:
        claim = next(each for each in snapshot.claims if each.uid == move.uid)
        assert claim.preemptible
        assert [(each.request, each.share) for each in move.to_devices] != []
    if advice.outcome is not Outcome.MOVES:
        assert not advice.moves
        return
    after = moved(snapshot, advice)
    decided = plan(after, make.NOW)
    assert_valid(after, decided)
    assert advice.uid is not None
    assert not decided.claims[advice.uid].reasons
    assert not any(each.conflicts for each in decided.claims.values())
    assert decided.claims[advice.uid].placements == advice.placements


CARDS = [make.card("gpu-0", "node-a"), make.card("gpu-1", "node-a")]


def test_two_half_used_cards_become_one_for_who_wants_a_whole_one() -> None:
    claims = [held("a", CARDS[0], 500), held("b", CARDS[1], 400), make.claim("waits", make.request("gpu"))]
    snapshot = make.snapshot(CARDS, claims, shares=[make.share()])
    advice = defragment(snapshot, make.NOW, make.POOL)
    assert_honest(snapshot, advice)
    assert (advice.outcome, advice.devices, advice.fewest) == (Outcome.MOVES, 1, True)
    (placement,) = advice.placements
    assert {placement.devices[0].id, advice.moves[0].to_devices[0].id} == {card.id for card in CARDS}


@pytest.mark.parametrize(
    ("claims", "outcome"),
    [
        pytest.param([held("a", CARDS[0], 600), held("b", CARDS[1], 500)], Outcome.NO_MOVES, id="too much is in use"),
        pytest.param(
            [held("a", CARDS[0], 500, preemptible=False), held("b", CARDS[1], 400)],
            Outcome.MOVES,
            id="one of them may not move",
        ),
        pytest.param(
            [held("a", CARDS[0], 500, preemptible=False), held("b", CARDS[1], 400, preemptible=False)],
            Outcome.NO_MOVES,
            id="none of them may move",
        ),
        pytest.param([held("a", CARDS[0], 500)], Outcome.NOTHING_WAITS, id="a card is free"),
    ],
)
def test_what_can_be_done_is_said(claims: list[Claim], outcome: Outcome) -> None:
    snapshot = make.snapshot(CARDS, [*claims, make.claim("waits", make.request("gpu"))], shares=[make.share()])
    advice = defragment(snapshot, make.NOW, make.POOL)
    assert_honest(snapshot, advice)
    assert advice.outcome is outcome
    assert not any(move.uid == "uid-a" for move in advice.moves)


def test_partitions_make_room_for_a_large_one() -> None:
    """On another card: where partitions lie decides what still fits."""
    cards = [gpu(f"gpu-{at}") for at in range(2)]
    share = make.share(mode=ShareMode.PARTITIONED, profiles=("1g.10gb", "7g.80gb"))

    def claim(name: str, profile: str, **more: object) -> Claim:
        return make.claim(name, make.request("gpu", share=ShareAsk("half", profile=profile)), **more)

    def small(name: str, card: Device) -> Claim:
        part = PlacedDevice("gpu", card.id, card.hardware_id, PlacedShare("half", profile="1g.10gb", start=0))
        return claim(name, "1g.10gb", placed=(PlacedReplica(0, card.node, ReplicaState.READY, (part,)),))

    held_ones = [small(f"s{at}", card) for at, card in enumerate(cards)]
    wants = claim("waits", "7g.80gb")
    snapshot = make.snapshot(cards, [*held_ones, wants], shares=[share])
    advice = defragment(snapshot, make.NOW, make.POOL)
    assert_honest(snapshot, advice)
    assert (advice.outcome, advice.devices, advice.fewest) == (Outcome.MOVES, 1, True)


def crowded(seed: int) -> tuple[Snapshot, int, int | None]:
    """A few cards with parts of them given out, and a claim for whole cards of a node or for a part."""
    rng = random.Random(seed)
    sizes = rng.choice(((2,), (3,), (2, 1), (2, 2)))
    cards = [make.card(f"gpu-{at}", f"node-{node}") for node, size in enumerate(sizes) for at in range(size)]
    left = dict.fromkeys((card.id for card in cards), WHOLE)
    claims = []
    for number in range(rng.randint(1, 5)):
        card, milli = rng.choice(cards), rng.choice((200, 300, 400, 500, 700))
        if left[card.id] >= milli:
            left[card.id] -= milli
            claims.append(held(f"h{number}", card, milli, preemptible=rng.random() < 0.85))
    wanted, size = rng.choice(((1, None), (2, None), (1, 600), (1, 800), (2, 700)))
    asked = make.request("gpu", wanted) if size is None else make.part(milli=size, count=wanted)
    return make.snapshot(cards, [*claims, make.claim("waits", asked)], shares=[make.share()]), wanted, size


def fewest(snapshot: Snapshot, wanted: int, size: int | None) -> int | None:
    """The fewest parts that must move, by trying every place of each that may."""
    cards = [device for given in snapshot.inventory.values() for device in given]
    parts = [
        (claim.preemptible, each.devices[0].id, each.devices[0].share.compute_milli or 0)
        for claim in snapshot.claims
        for each in claim.placed
        if each.devices[0].share is not None
    ]
    best: int | None = None
    for places in product(*([card.id for card in cards] if may else [at] for may, at, _ in parts)):
        used: Counter[DeviceID] = Counter()
        for place, (_, _, milli) in zip(places, parts, strict=True):
            used[place] += milli
        if any(each > WHOLE for each in used.values()):
            continue
        need = WHOLE if size is None else size
        room = [card for card in cards if used[card.id] + need <= WHOLE]
        if not any(len({card.node for card in chosen}) == 1 for chosen in combinations(room, wanted)):
            continue
        count = sum(place != at for place, (_, at, _) in zip(places, parts, strict=True))
        best = count if best is None else min(best, count)
    return best


@pytest.mark.parametrize("seeds", [range(start, start + 25) for start in range(0, 125, 25)], ids=str)
def test_the_fewest_parts_move(seeds: range) -> None:
    """As many as trying everything says, or none when that says so."""
    seen: Counter[Outcome] = Counter()
    for seed in seeds:
        snapshot, wanted, size = crowded(seed)
        advice = defragment(snapshot, make.NOW, make.POOL)
        assert_honest(snapshot, advice)
        seen[advice.outcome] += 1
        least = fewest(snapshot, wanted, size)
        if advice.outcome is Outcome.NOTHING_WAITS:
            assert least == 0, f"seed {seed}"
            continue
        expected = (Outcome.NO_MOVES, 0) if least is None else (Outcome.MOVES, least)
        assert (advice.outcome, advice.devices) == expected, f"seed {seed}"
        assert advice.fewest is (least is not None)
    assert seen[Outcome.MOVES]
    assert seen[Outcome.NO_MOVES]


def test_with_many_replicas_choices_on_one_node_are_tried() -> None:
    """And what is said then holds as well."""
    cards = [make.card(f"gpu-{at}", f"node-{node}") for node in "abcd" for at in range(2)]
    claims = [held(f"h{at}-{part}", card, 200) for at, card in enumerate(cards) for part in range(2)]
    snapshot = make.snapshot(cards, [*claims, make.claim("waits", make.request("gpu", 2))], shares=[make.share()])
    advice = defragment(snapshot, make.NOW, make.POOL)
    assert_honest(snapshot, advice)
    assert (advice.outcome, advice.devices, advice.fewest) == (Outcome.MOVES, 4, False)


# Away from loaded nodes

LIMITS = {"cpu_milli": 10_000, "memory_bytes": 100 << 30}
BUSY = {**LIMITS, "cpu_load_milli": 9_000}


def busy_site(*claims: Claim, cards: int = 1, **loads: dict[str, int]) -> Snapshot:
    """Nodes a, b, c with cards."""
    devices = [make.card(f"gpu-{at}", f"node-{name}") for name in "abc" for at in range(cards)]
    nodes = [make.node(f"node-{name}", **loads.get(name, LIMITS)) for name in "abc"]
    return make.snapshot(devices, claims, nodes=nodes, shares=[make.share()])


def on(name: str, node: str, milli: int, **more: object) -> Claim:
    return held(name, make.card("gpu-0", f"node-{node}"), milli, **more)


def test_what_could_leave_loaded_nodes_is_said_and_who_must_stay() -> None:
    """All together: the second one no longer fits where the first one could have gone."""
    snapshot = busy_site(
        on("one", "a", 500), on("two", "a", 400), on("full", "b", 600), on("third", "c", 700), a=BUSY, c=BUSY
    )
    relief = relieve(snapshot, make.NOW, make.POOL)
    assert relief.loaded == ("node-a", "node-c")
    assert [(each.uid, each.node, each.to_node) for each in relief.leaves] == [("uid-two", "node-a", "node-b")]
    assert [(each.uid, each.node) for each in relief.stays] == [("uid-one", "node-a"), ("uid-third", "node-c")]
    assert all(each.why for each in relief.stays)


@pytest.mark.parametrize(
    ("claim", "loads", "goes"),
    [
        pytest.param(on("x", "a", 500), {"a": BUSY}, True, id="measured"),
        pytest.param(on("x", "a", 500), {"a": {**LIMITS, "cpu_used_milli": 9_000}}, True, id="promised to others"),
        pytest.param(
            on("x", "a", 500, host=HostAsk(100)), {"a": {**LIMITS, "cpu_used_milli": 9_000}}, False,
            id="promised to others, and it has said what it needs",
        ),
        pytest.param(on("x", "a", 500, host=HostAsk(100)), {"a": BUSY}, True, id="measured, whatever it needs"),
        pytest.param(on("x", "a", 500), {}, False, id="its node is calm"),
        pytest.param(on("x", "a", 500), {"a": BUSY, "b": BUSY, "c": BUSY}, False, id="no node is calm"),
        pytest.param(on("x", "a", 500, preemptible=False), {"a": BUSY}, False, id="it may not move"),
        pytest.param(make.holding("x", [make.card("gpu-0", "node-a")]), {"a": BUSY}, False, id="it has a whole device"),
    ],
)  # fmt: skip
def test_who_leaves(claim: Claim, loads: dict[str, dict[str, int]], goes: bool) -> None:
    relief = relieve(busy_site(claim, **loads), make.NOW, make.POOL)
    assert [each.to_node for each in relief.leaves] == (["node-b"] if goes else [])


def test_advice_changes_nothing_and_leads_to_a_site_of_which_the_same_advice_says_nothing_more() -> None:
    snapshot = busy_site(*(on(f"x{at}", "a", 300, profile=Profile.LATENCY) for at in range(3)), cards=2, a=BUSY)
    before = snapshot.claims
    relief = relieve(snapshot, make.NOW, make.POOL)
    assert snapshot.claims is before
    assert len(relief.leaves) == 3
    gone = {each.uid: each for each in relief.leaves}
    claims = tuple(
        replace(
            claim,
            placed=(PlacedReplica(0, gone[claim.uid].to_node, ReplicaState.READY, gone[claim.uid].to_devices),),
        )
        for claim in snapshot.claims
    )
    after = replace(snapshot, claims=claims)
    assert_valid(after, plan(after, make.NOW))
    assert relieve(after, make.NOW, make.POOL).leaves == ()
