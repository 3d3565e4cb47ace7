"""Gangs whose members hold parts of cards: equal to trying everything, and what is said when they do not fit."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support import card_gang_oracle, make
from tests.support.answers import nodes_of, planned
from tests.support.strategies import RAIL

from adjoin_allocator import Claim, DeviceID, Memo, PlacedDevice, Placement, Snapshot

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
        assert level_of(snapshot, nodes) == wanted.level, claim
    assert met > 15
    assert refused > 3


def level_of(snapshot: Snapshot, nodes: list[str]) -> int:
    """The finest level in one domain of which all of these lie; 2 is a node, -1 none."""
    if len(set(nodes)) == 1:
        return 2
    labels = [level.node_label for level in snapshot.pools[make.POOL].fabric]
    paths = {tuple(snapshot.nodes[node].labels.get(label) for label in labels) for node in nodes}
    same = [at for at in (0, 1) if len({path[: at + 1] for path in paths}) == 1]
    return max((at for at in same if None not in next(iter(paths))[: at + 1]), default=-1)
