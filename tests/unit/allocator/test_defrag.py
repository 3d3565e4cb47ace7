"""Moves that make a waiting claim fit: the fewest devices where all is tried, and always proven by planning."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

import pytest
from tests.support import make

from adjoin_allocator import (
    Claim,
    ClaimUID,
    Device,
    DeviceID,
    PlacedDevice,
    PlacedReplica,
    ReplicaState,
    Snapshot,
    Standing,
    plan,
)
from adjoin_allocator.defrag import Advice, Outcome, defragment
from adjoin_allocator.rearrange import Exhausted, Piece, rearrangements

ROOT = make.ROOT


def moved(snapshot: Snapshot, advice: Advice) -> Snapshot:
    """The snapshot with the moves made."""
    to = {(move.uid, move.index): move for move in advice.moves}
    claims = []
    for claim in snapshot.claims:
        placed = tuple(
            replace(each, node=to[claim.uid, each.index].to_node, devices=to[claim.uid, each.index].to_devices)
            if (claim.uid, each.index) in to
            else each
            for each in claim.placed
        )
        claims.append(replace(claim, placed=placed))
    return replace(snapshot, claims=tuple(claims))


def assert_honest(snapshot: Snapshot, advice: Advice) -> None:
    """What must hold of any advice: who may move does, to devices that would do, and the claim fits then."""
    claims = {claim.uid: claim for claim in snapshot.claims}
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    after = moved(snapshot, advice)
    held = [device.id for claim in after.claims for each in claim.placed for device in each.devices]
    assert len(set(held)) == len(held), "a device is in two hands"
    for move in advice.moves:
        claim = claims[move.uid]
        assert claim.preemptible
        assert not claim.deleting
        (replica,) = [each for each in claim.placed if each.index == move.index]
        assert (replica.node, replica.devices) == (move.node, move.devices)
        assert {devices[each.id].node for each in move.to_devices} == {move.to_node}
        assert all(devices[each.id].standing is Standing.OFFERED for each in move.to_devices)
        assert [each.request for each in move.to_devices] == [each.request for each in move.devices]
    if advice.outcome is Outcome.MOVES:
        assert advice.moves
        answer = plan(after, make.NOW).claims[advice.uid or ClaimUID("")]
        assert not answer.reasons
        assert answer.placements == advice.placements


def valid(claim: Claim, chosen: Sequence[Device]) -> bool:
    """Whether a set would do for a replica of a claim of these tests: numbers, and one root complex where asked."""
    wanted = sorted(request.kind for request in claim.requests for _ in range(request.count))
    if sorted(device.kind for device in chosen) != wanted or len({device.node for device in chosen}) != 1:
        return False
    roots = {device.attributes.get(ROOT) for device in chosen}
    return not claim.affinity or (len(roots) == 1 and None not in roots)


def fewest(snapshot: Snapshot, target: Claim) -> int | None:
    """The fewest devices that must move, by trying everything; None when nothing helps."""
    devices = [device for given in snapshot.inventory.values() for device in given]
    offered = [device for device in devices if device.standing is Standing.OFFERED]
    replicas = [
        (claim, each)
        for claim in snapshot.claims
        if claim.uid != target.uid and claim.preemptible
        for each in claim.placed
    ]
    held = {device.id for claim in snapshot.claims for each in claim.placed for device in each.devices}

    def room(claims: Sequence[Claim], available: Sequence[Device]) -> bool:
        if not claims:
            return True
        size = sum(request.count for request in claims[0].requests)
        return any(
            valid(claims[0], chosen) and room(claims[1:], [each for each in available if each not in chosen])
            for chosen in combinations(available, size)
        )

    best: int | None = None
    for size in range(len(replicas) + 1):
        for chosen in combinations(replicas, size):
            weight = sum(len(each.devices) for _, each in chosen)
            if best is not None and weight >= best:
                continue
            out = {device.id for _, each in chosen for device in each.devices}
            available = [each for each in offered if each.id not in held or each.id in out]
            missing = [target] * (target.replicas - len(target.placed))
            if room([*missing, *(claim for claim, _ in chosen)], available):
                best = weight
    return best


def crowded(seed: int) -> Snapshot:
    """A few nodes of a few devices, each with some small claims on it, and one claim that wants most of a node."""
    rng = random.Random(seed)
    devices: list[Device] = []
    claims: list[Claim] = []
    mixed = rng.random() < 0.3
    for number, size in enumerate(rng.choice(((4, 3), (4, 4), (3, 2, 2), (4, 2, 1), (3, 3, 2), (4, 2, 2)))):
        node = f"node-{number}"
        here = []
        for index in range(size):
            kind = "nic" if mixed and index == size - 1 else "gpu"
            standing = Standing.UNHEALTHY if rng.random() < 0.03 else Standing.OFFERED
            root = rng.choice(("r0", "r0", "r0", "r1", None))
            here.append(make.device(f"{kind}-{index}", node, root=root, standing=standing))
        devices += here
        rng.shuffle(here)
        busy = rng.choice((0, 1, 1, 2, 2, 3))
        while here and busy > 0:
            count = min(rng.choice((1, 1, 2)), len(here))
            taken, here, busy = here[:count], here[count:], busy - count
            preemptible = rng.random() < 0.9
            claims.append(make.holding(f"holder-{len(claims)}", taken, preemptible=preemptible, created=make.NOW - 9))
    asked = [make.request("gpu", rng.choice((2, 3, 3, 4)))]
    if mixed:
        asked.append(make.request("nic", 1))
    lines = [make.required("PCIeRoot", *(each.name for each in asked))] if rng.random() < 0.15 else []
    replicas = rng.choice((1, 1, 1, 2))
    return make.snapshot(devices, [*claims, make.claim("waits", *asked, *lines, replicas=replicas)])


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 250, 50)], ids=str)
def test_the_fewest_devices_move(seeds: range) -> None:
    """As many as trying everything says, or none when that says so."""
    for seed in seeds:
        snapshot = crowded(seed)
        advice = defragment(snapshot, make.NOW, make.POOL)
        assert_honest(snapshot, advice)
        target = snapshot.claims[-1]
        answer = plan(snapshot, make.NOW).claims[target.uid]
        if advice.outcome in (Outcome.FITS, Outcome.NOTHING_WAITS):
            assert not answer.reasons
            continue
        placed = [
            PlacedReplica(each.index, each.node, ReplicaState.ALLOCATED, each.devices) for each in answer.placements
        ]
        partly = replace(target, placed=tuple(placed))
        least = fewest(replace(snapshot, claims=(*snapshot.claims[:-1], partly)), partly)
        expected = (Outcome.NO_MOVES, 0) if least is None else (Outcome.MOVES, least)
        assert (advice.outcome, advice.devices) == expected, f"seed {seed}"
        assert advice.fewest is (least is not None)


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 150, 50)], ids=str)
def test_the_bounded_search_never_says_too_much(seeds: range) -> None:
    """Without trying everything it may miss moves, but what it says holds, and it never claims that there are none
    where there are."""
    for seed in seeds:
        snapshot = crowded(seed)
        bounded, exact = (defragment(snapshot, make.NOW, make.POOL, sets=limit) for limit in (0, 10_000))
        assert_honest(snapshot, bounded)
        assert not bounded.fewest
        if exact.outcome is Outcome.MOVES:
            assert bounded.outcome in (Outcome.MOVES, Outcome.NOT_FOUND)
            assert bounded.outcome is Outcome.NOT_FOUND or bounded.devices >= exact.devices
        else:
            assert bounded.outcome in (exact.outcome, Outcome.NOT_FOUND)


def test_the_generator_reaches_moves_of_all_kinds() -> None:
    """Devices and replicas that must move."""
    found = {
        (advice.devices, len(advice.moves))
        for seed in range(250)
        for advice in [defragment(crowded(seed), make.NOW, make.POOL)]
    }
    assert found >= {(0, 0), (1, 1), (2, 1), (2, 2), (3, 2)}


def two_halves(**more: object) -> Snapshot:
    """Two nodes of four GPUs with two free each, and a claim that wants four."""
    devices = [*make.flat("node-a", 4), *make.flat("node-b", 4)]
    holders = [make.holding("a", devices[:1]), make.holding("b", devices[1:2]), make.holding("c", devices[4:6])]
    return make.snapshot(devices, [*holders, make.claim("waits", make.request("gpu", 4), **more)])


@pytest.mark.parametrize("sets", [0, 4000], ids=["one node after the other", "everything"])
class TestBothSearches:
    def test_the_cheapest_replica_moves(self, sets: int) -> None:
        snapshot = two_halves()
        advice = defragment(snapshot, make.NOW, make.POOL, sets=sets)
        assert_honest(snapshot, advice)
        assert (advice.outcome, advice.devices, advice.fewest) == (Outcome.MOVES, 2, bool(sets))

    def test_those_who_leave_may_displace_others(self, sets: int) -> None:
        """Two GPUs are free on a node each; who leaves the first node fits nowhere until a single moves on."""
        devices = [*make.flat("node-a", 4), *make.flat("node-b", 2), *make.flat("node-c", 1)]
        holders = [make.holding("pair", devices[:2]), make.holding("single", devices[4:5])]
        snapshot = make.snapshot(devices, [*holders, make.claim("waits", make.request("gpu", 4))])
        advice = defragment(snapshot, make.NOW, make.POOL, sets=sets)
        assert_honest(snapshot, advice)
        assert {move.uid: move.to_node for move in advice.moves} == {"uid-pair": "node-b", "uid-single": "node-c"}
        assert advice.devices == 3

    def test_who_is_not_preemptible_stays(self, sets: int) -> None:
        devices = make.flat("node-a", 4) + make.flat("node-b", 4)
        holders = [make.holding("fixed", devices[:1], preemptible=False), make.holding("loose", devices[4:5])]
        snapshot = make.snapshot(devices, [*holders, make.claim("waits", make.request("gpu", 4))])
        advice = defragment(snapshot, make.NOW, make.POOL, sets=sets)
        assert_honest(snapshot, advice)
        assert [move.uid for move in advice.moves] == ["uid-loose"]

    def test_no_moves_help_where_nobody_may_move(self, sets: int) -> None:
        devices = make.flat("node-a", 2)
        holder = make.holding("fixed", devices[:1], preemptible=False)
        snapshot = make.snapshot(devices, [holder, make.claim("waits", make.request("gpu", 2))])
        advice = defragment(snapshot, make.NOW, make.POOL, sets=sets)
        assert (advice.outcome, advice.moves) == (Outcome.NO_MOVES, ())
        assert advice.why.startswith("not even without the 0 replicas that may move: needs 2 gpu")

    def test_all_replicas_find_room(self, sets: int) -> None:
        devices = [*make.flat("node-a", 3), *make.flat("node-b", 3), *make.flat("node-c", 2)]
        holders = [make.holding("a", devices[:2]), make.holding("b", devices[3:5])]
        claim = make.claim("waits", make.request("gpu", 3), replicas=1)
        snapshot = make.snapshot(devices, [*holders, claim])
        advice = defragment(snapshot, make.NOW, make.POOL, sets=sets)
        assert_honest(snapshot, advice)
        assert (advice.outcome, advice.devices) == (Outcome.MOVES, 2)

    def test_a_node_that_takes_nothing_is_no_room(self, sets: int) -> None:
        devices = [*make.flat("node-a", 2), *make.flat("node-b", 1)]
        shut = make.node("node-b", unschedulable=True)
        snapshot = make.snapshot(
            devices, [make.holding("a", devices[:1]), make.claim("waits", make.request("gpu", 2))], nodes=[shut]
        )
        assert defragment(snapshot, make.NOW, make.POOL, sets=sets).outcome is not Outcome.MOVES

    def test_who_moves_keeps_what_it_asked_for(self, sets: int) -> None:
        """The pair must stay on one root complex, and only one node has such a pair free."""
        devices = [
            *(make.device(f"gpu-{i}", "node-a", root="r0") for i in range(4)),
            *(make.device(f"gpu-{i}", "node-b", root=f"r{i}") for i in range(2)),
            *(make.device(f"gpu-{i}", "node-c", root="r9") for i in range(2)),
        ]
        pair = replace(make.holding("pair", devices[:2]), affinity=(make.required("PCIeRoot", "gpu"),))
        snapshot = make.snapshot(devices, [pair, make.claim("waits", make.request("gpu", 4))])
        advice = defragment(snapshot, make.NOW, make.POOL, sets=sets)
        assert_honest(snapshot, advice)
        assert [move.to_node for move in advice.moves] == ["node-c"]

    def test_what_stands_before_it_in_the_order_is_not_robbed(self, sets: int) -> None:
        """A claim that is served first would take the room, so these moves are no advice."""
        devices = [*make.flat("node-a", 2), *make.flat("node-b", 1)]
        first = make.claim("first", make.request("gpu", 2), priority=9)
        snapshot = make.snapshot(
            devices, [make.holding("a", devices[:1]), first, make.claim("waits", make.request("gpu", 2))]
        )
        advice = defragment(snapshot, make.NOW, make.POOL, ClaimUID("uid-waits"), sets=sets)
        assert (advice.outcome, advice.moves) == (Outcome.NOT_FOUND, ())
        assert defragment(snapshot, make.NOW, make.POOL, ClaimUID("uid-first"), sets=sets).devices == 1


class TestWhich:
    def test_the_largest_that_waits(self) -> None:
        devices = [*make.flat("node-a", 4), *make.flat("node-b", 4)]
        holders = [make.holding("a", devices[:1]), make.holding("b", devices[4:5])]
        wants = [make.claim(f"want-{count}", make.request("gpu", count)) for count in (3, 4)]
        held = [make.holding("c", devices[1:2]), make.holding("d", devices[5:6])]
        snapshot = make.snapshot(devices, [*holders, *held, *wants])
        assert defragment(snapshot, make.NOW, make.POOL).uid == "uid-want-4"
        assert defragment(snapshot, make.NOW, make.POOL, ClaimUID("uid-want-3")).uid == "uid-want-3"

    def test_one_that_fits_needs_no_moves(self) -> None:
        snapshot = make.snapshot(make.flat(gpus=2), [make.claim("fits")])
        advice = defragment(snapshot, make.NOW, make.POOL, ClaimUID("uid-fits"))
        assert (advice.outcome, len(advice.placements)) == (Outcome.FITS, 1)

    def test_nothing_waits(self) -> None:
        snapshot = make.snapshot(make.flat(gpus=2), [make.claim("fits")])
        assert defragment(snapshot, make.NOW, make.POOL).outcome is Outcome.NOTHING_WAITS

    def test_one_that_is_held_back_waits_for_something_else(self) -> None:
        from adjoin_allocator import ClaimHold, Code

        held = make.claim("held", hold=ClaimHold(Code.POD_GATED, "pod w is held back by scheduling gate x"))
        advice = defragment(make.snapshot(make.flat(), [held]), make.NOW, make.POOL, held.uid)
        assert (advice.outcome, advice.why) == (Outcome.NO_MOVES, "pod w is held back by scheduling gate x")


def test_the_input_is_not_changed_and_its_order_does_not_matter() -> None:
    snapshot = two_halves()
    answers = set()
    for claims in permutations(snapshot.claims):
        advice = defragment(replace(snapshot, claims=claims), make.NOW, make.POOL)
        answers.add((advice.devices, frozenset((move.uid, move.to_node) for move in advice.moves)))
    assert len(answers) == 1
    assert snapshot.claims[0].placed[0].devices[0].id == DeviceID("gpu.nvidia.com", "node-a", "gpu-0")


def test_parts_that_their_claim_does_not_ask_for_any_more_stay_where_they_are() -> None:
    """Nobody knows where they could go."""
    from adjoin_allocator import PlacedShare

    devices = [*make.flat("node-a", 2), *make.flat("node-b", 1)]
    part = PlacedDevice("gpu", devices[0].id, "", PlacedShare("small", slots=1))
    holder = make.claim("part", placed=(PlacedReplica(0, "node-a", ReplicaState.READY, (part,)),))
    snapshot = make.snapshot(devices, [holder, make.claim("waits", make.request("gpu", 2))])
    assert defragment(snapshot, make.NOW, make.POOL).outcome is Outcome.NO_MOVES


class TestRearrangements:
    def test_the_cheapest_come_first(self) -> None:
        pieces = [Piece((0b0011, 0b1100)), Piece((0b0001, 0b10000), 0b0001, 3), Piece((0b0100, 0b100000), 0b0100, 1)]
        found = list(rearrangements(pieces, 0b111010, 1000))
        assert [(each.cost, each.taken[0]) for each in found[:2]] == [(1, 0b1100), (3, 0b0011)]

    def test_a_chain(self) -> None:
        pieces = [Piece((0b001,)), Piece((0b001, 0b010), 0b001, 1), Piece((0b010, 0b100), 0b010, 1)]
        (found,) = rearrangements(pieces, 0b100, 1000)
        assert (found.cost, dict(found.taken)) == (2, {0: 0b001, 1: 0b010, 2: 0b100})

    def test_two_that_change_places(self) -> None:
        """Each fits only where the other is."""
        pieces = [Piece((0b01,)), Piece((0b10,), 0b01, 1), Piece((0b01, 0b100), 0b10, 1)]
        (found,) = rearrangements(pieces, 0b100, 1000)
        assert dict(found.taken) == {0: 0b01, 1: 0b10, 2: 0b100}

    def test_none(self) -> None:
        assert list(rearrangements([Piece((0b1,)), Piece((0b1,), 0b1, 1)], 0, 1000)) == []
        assert list(rearrangements([Piece(())], 0b1, 1000)) == []

    def test_a_limit_is_said(self) -> None:
        pieces = [Piece(tuple(1 << bit for bit in range(8))) for _ in range(8)]
        with pytest.raises(Exhausted):
            list(rearrangements(pieces, 0b11111111, 100))


def test_a_claim_for_all_devices_of_a_node_counts_as_these() -> None:
    devices = [*make.flat("n1", gpus=4), *make.flat("n2", gpus=4)]
    busy = [make.holding("busy-1", devices[:1]), make.holding("busy-2", devices[4:5])]
    every = make.claim("every", make.everything("gpu"))
    four = make.claim("four", make.request("gpu", 3), make.request("more", 1, kind="gpu"))
    snapshot = make.snapshot(devices, [*busy, four, every])
    assert defragment(snapshot, make.NOW, make.POOL).uid == four.uid
    snapshot = make.snapshot(
        [*devices, *make.flat("n3", gpus=5)], [*busy, make.holding("busy-3", make.flat("n3", gpus=5)[:2]), four, every]
    )
    assert defragment(snapshot, make.NOW, make.POOL).uid == every.uid
