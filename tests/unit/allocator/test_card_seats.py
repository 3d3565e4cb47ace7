"""Gangs whose members hold parts of cards: equal to trying everything, and what is said when they do not fit."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.support import card_gang_oracle, gang_oracle, make
from tests.support.answers import codes, nodes_of, of, planned
from tests.support.strategies import RAIL

from adjoin_allocator import Alternative, Claim, Code, Device, DeviceID, Memo, Node, PlacedDevice, Placement, Snapshot

GIB = 1024**3


def random_snapshot(chance: random.Random, kind: str) -> Snapshot:
    """Up to four nodes with a few cards, parts of some held, and one gang. `kind`: plain, lines, limit or distinct."""
    count = chance.randint(1, 4)
    nodes, devices = [], []
    for at in range(count):
        name = f"n{at + 1}"
        rack = None if chance.random() < 0.15 else chance.choice(("r1", "r2"))
        nodes.append(make.racked(name, rack, chance.choice(("b1", "b1", "b2"))))
        for gpu in range(chance.randint(1, 3)):
            devices.append(
                make.card(f"gpu-{gpu}", name, chance.choice(("8Gi", "8Gi", "16Gi")), numa=chance.choice((0, 0, 1)))
            )
        for nic in range(chance.randint(0, 3)):
            rail = {RAIL: chance.choice((0, 1, 2, 3))} if kind == "distinct" else {}
            devices.append(make.device(f"nic-{nic}", name, numa=chance.choice((0, 0, 1)), attributes=rail))
    amounts = [("4Gi", None), ("3Gi", 300), (None, 500), (None, 400), ("6Gi", 200), ("8Gi", None)]
    memory, milli = chance.choice(amounts)
    together = chance.random() < 0.2
    asked: list[Any] = [make.part(memory, milli, chance.choice((1, 1, 2)), same_device=together)]
    if kind == "distinct" or chance.random() < 0.4:
        asked.append(make.request("nic"))
    elif chance.random() < 0.3:
        asked.append(make.request("whole", kind="gpu"))
    names = [one.name for one in asked]
    if kind == "lines":
        asked.append(make.required("NUMANode", *names[: chance.choice((1, 2))]))
    if kind == "distinct":
        asked.append(make.over_gang(make.distinct(RAIL, "nic")))
    replicas = chance.randint(1, 5)
    claim = make.gang(
        "claim",
        *asked,
        replicas=replicas,
        gang_min=chance.randint(1, replicas),
        required=chance.choice(("", "", "rack", "block")),
        preferred=chance.choice(("", "", "rack")),
        segment=chance.choice((None, None, (2, "rack"), (3, "block"))) if kind != "limit" else None,
    )
    held: list[Claim] = []
    cards = [device for device in devices if device.kind == "gpu"]
    if chance.random() < 0.5:
        held.append(make.holding("whole", [chance.choice(cards)], created=1.0))
    for number in range(chance.randint(0, 3)):
        card = chance.choice(cards)
        if held and any(one.id == card.id for other in held[:1] for r in other.placed for one in r.devices):
            continue
        if sum(one.id == card.id for other in held for r in other.placed for one in r.devices) < 2:
            held.append(holding_part(f"part-{number}", card.id, card.node, "3Gi", 250))
    split = {one.id for other in held for r in other.placed for one in r.devices if one.share is not None}
    limit = len(split) + chance.randint(0, 3) if kind == "limit" else None
    return make.snapshot(
        devices,
        [*held, claim],
        pools=[make.fabric_pool()],
        nodes=nodes,
        shares=[make.share(max_devices=limit)],
    )


def holding_part(name: str, device: DeviceID, node: str, memory: str, milli: int) -> Claim:
    """A claim that has a part of a card."""
    asking = make.claim(name, make.part(memory, milli), created=1.0)
    share = asking.requests[0].share
    assert share is not None
    return make.after(asking, [Placement(0, node, (PlacedDevice("gpu", device, "", share.placed),), {})])


@pytest.mark.parametrize("kind", ["plain", "lines", "limit", "distinct"])
@pytest.mark.parametrize("seed", range(3))
def test_a_gang_of_parts_reaches_what_any_could(seed: int, kind: str) -> None:
    chance = random.Random(seed)
    met = refused = 0
    memo = Memo()
    for _ in range(60):
        snapshot = random_snapshot(chance, kind)
        claim = snapshot.claims[-1]
        answer = planned(snapshot)
        assert planned(snapshot, memo) == answer
        wanted = card_gang_oracle.best(snapshot, claim)
        if wanted is None:
            assert nodes_of(answer) == [], claim
            refused += 1
            continue
        nodes = nodes_of(answer)
        assert len(nodes) == wanted.members, claim
        met += 1
        assert gang_oracle.level_of(snapshot, snapshot.pools[make.POOL], nodes) == wanted.level, claim
    assert met > 15
    assert refused > 3


def cards(**nodes: int) -> tuple[list[Node], list[Device]]:
    """Nodes in one rack with so many cards of 8 GiB each."""
    devices = [make.card(f"gpu-{at}", name, "8Gi") for name, count in nodes.items() for at in range(count)]
    return [make.racked(name, "r1") for name in nodes], devices


def world(site: tuple[list[Node], list[Device]], *claims: Claim, **share: Any) -> Snapshot:
    nodes, devices = site
    return make.snapshot(devices, claims, pools=[make.fabric_pool()], nodes=nodes, shares=[make.share(**share)])


def names(placement: Placement) -> list[str]:
    return [device.id.device for device in placement.devices]


def test_members_share_cards_and_fill_those_that_are_divided_already() -> None:
    """Nine members of a third of a card each take three cards of one node."""
    claim = make.gang("claim", make.part(milli=333), replicas=9)
    held = holding_part("other", make.card("gpu-2", "n1").id, "n1", "1Gi", 334)
    answer = of(planned(world(cards(n1=4, n2=4), held, claim)))
    assert {placement.node for placement in answer.placements} == {"n1"}
    used = sorted(name for placement in answer.placements for name in names(placement))
    assert used.count("gpu-2") == 2
    assert len(set(used)) == 4


def test_two_parts_of_one_replica_lie_on_two_cards_unless_it_says_otherwise() -> None:
    apart = make.gang("claim", make.part(milli=500, count=2), replicas=2)
    answer = of(planned(world(cards(n1=2), apart)))
    assert [names(placement) for placement in answer.placements] == [["gpu-0", "gpu-1"]] * 2
    together = make.gang("claim", make.part(milli=500, count=2, same_device=True), replicas=2)
    answer = of(planned(world(cards(n1=2), together)))
    assert sorted(names(placement) for placement in answer.placements) == [["gpu-0"] * 2, ["gpu-1"] * 2]


def test_a_gang_of_parts_is_placed_whole_or_not_at_all() -> None:
    claim = make.gang("claim", make.part("3Gi"), replicas=5)
    snapshot = world(cards(n1=1, n2=1), claim)
    answer = of(planned(snapshot))
    assert answer.placements == ()
    assert [reason.code for reason in answer.reasons] == [Code.SHARE_UNAVAILABLE, Code.GANG_INCOMPLETE]
    assert answer.reasons[0].message == "needs 5 parts of gpu for 5 members, 4 can be had"
    assert answer.nearest == "fits with 4 replicas instead of 5"
    elastic = replace(claim, gang_min=3)
    assert len(nodes_of(planned(replace(snapshot, claims=(elastic,))))) == 4


def test_a_smaller_part_may_be_the_nearest_change() -> None:
    """One member's part is more than any card has left, and a smaller one is said to do."""
    claim = make.gang("claim", make.part("7Gi"), replicas=2)
    held = [holding_part(f"on-{at}", make.card("gpu-0", f"n{at}").id, f"n{at}", "2Gi", 100) for at in (1, 2)]
    snapshot = world(cards(n1=1, n2=1), *held, claim)
    answer = of(planned(snapshot))
    assert next(reason.code for reason in answer.reasons) is Code.SHARE_UNAVAILABLE
    assert answer.nearest == "fits with memory 6Gi instead of 7Gi in request gpu"
    smaller = replace(claim, requests=(make.part("6Gi"),))
    assert len(nodes_of(planned(replace(snapshot, claims=(*held, smaller))))) == 2


def test_better_ways_first_parts_for_those_who_find_no_whole_card() -> None:
    ask = make.part(milli=500).share
    ways = (Alternative("whole", 1), Alternative("half", 1, share=ask))
    claim = make.gang("claim", replace(make.request("gpu", 0), first_of=ways), replicas=3)
    answer = of(planned(world(cards(n1=1, n2=1), claim)))
    told = sorted(device.request for placement in answer.placements for device in placement.devices)
    assert told == ["gpu/half", "gpu/half", "gpu/whole"]


def test_a_share_divides_no_more_cards_than_it_may() -> None:
    """Two cards may be divided: of four members each node takes the two of one card, not three of two."""
    claim = make.gang("claim", make.part(milli=500), replicas=4)
    snapshot = world(cards(n1=2, n2=1), claim, max_devices=2)
    assert len(nodes_of(planned(snapshot))) == 4
    more = replace(claim, replicas=5, gang_min=5)
    answer = planned(replace(snapshot, claims=(more,)))
    assert nodes_of(answer) == []
    assert codes(answer)[-1] is Code.GANG_INCOMPLETE


def test_a_lost_member_gets_its_part_under_the_conditions_of_the_others() -> None:
    claim = make.gang("claim", make.part(milli=600), replicas=3, required="rack")
    nodes, devices = cards(n1=1, n2=1, n3=1)
    nodes[2] = make.racked("n3", "r2")
    extra = [make.card("gpu-1", "n2", "8Gi"), make.card("gpu-1", "n3", "8Gi")]
    snapshot = world((nodes, [*devices, *extra]), claim)
    first = planned(snapshot)
    settled = make.after(claim, of(first).placements)
    lost = replace(settled, placed=settled.placed[1:])
    answer = planned(replace(snapshot, claims=(lost,)))
    assert [placement.index for placement in of(answer).placements] == [0]
    assert set(nodes_of(answer)) <= {"n1", "n2"}


def test_a_gang_of_parts_beside_nics_keeps_its_lines() -> None:
    """Parts on the NUMA node of each member's NIC, though the other node's card is emptier."""
    devices = [make.card(f"gpu-{at}", "n1", "8Gi", numa=at) for at in range(2)]
    devices += [make.device(f"nic-{at}", "n1", numa=at // 2) for at in range(4)]
    asked = [make.part(milli=500), make.request("nic"), make.required("NUMANode", "gpu", "nic")]
    claim = make.gang("claim", *asked, replicas=4)
    answer = of(planned(world(([make.racked("n1", "r1")], devices), claim)))
    numa = {"nic-0": "gpu-0", "nic-1": "gpu-0", "nic-2": "gpu-1", "nic-3": "gpu-1"}
    assert len(answer.placements) == 4
    assert all(numa[nic] == gpu for gpu, nic in map(names, answer.placements))


def test_holders_of_parts_give_way_to_a_gang_of_parts() -> None:
    """Both members need more than is left beside the parts of lower priority; who has a card alone stays."""
    claim = make.gang("claim", make.part(milli=600), replicas=2, priority=5)
    low = [holding_part(f"low-{at}", make.card("gpu-0", f"n{at}").id, f"n{at}", "1Gi", 600) for at in (1, 2)]
    high = replace(holding_part("high", make.card("gpu-0", "n3").id, "n3", "1Gi", 600), priority=9)
    nodes, devices = cards(n1=1, n2=1, n3=1)
    pool = make.fabric_pool(preemption=make.evicting())
    snapshot = make.snapshot(devices, [*low, high, claim], pools=[pool], nodes=nodes, shares=[make.share()])
    answer = planned(snapshot)
    assert {victim.uid for victim in answer.preempted} == {one.uid for one in low}
    assert [one.index for one in of(answer).nominated] == [0, 1]
    gone = planned(replace(snapshot, claims=(high, claim)))
    assert sorted(nodes_of(gone)) == ["n1", "n2"]
