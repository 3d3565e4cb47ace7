"""Gangs as a whole: equal to trying everything, and what they keep when members come and go."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support import gang_oracle, make
from tests.support.answers import codes, nodes_of, of, planned
from tests.support.strategies import RAIL

from adjoin_allocator import (
    Alternative,
    Claim,
    Code,
    Device,
    Fabric,
    FabricLevel,
    HostAsk,
    MatrixText,
    Memo,
    Node,
    ReplicaState,
    Request,
    Snapshot,
    Standing,
    Tenant,
)


def site(*racks: tuple[str, int], gpus: int = 2, **more: Any) -> tuple[list[Node], list[Device]]:
    """Racks (`r1`, or `b2/r1`) with so many nodes, called n1, n2, … in turn."""
    nodes: list[Node] = []
    for name, count in racks:
        block, _, rack = name.rpartition("/")
        nodes += [make.racked(f"n{len(nodes) + at + 1}", rack, block or "b1") for at in range(count)]
    return nodes, [device for node in nodes for device in make.flat(node.name, gpus, **more)]


def world(nodes: Sequence[Node], devices: Sequence[Device], *claims: Claim, **more: Any) -> Snapshot:
    return make.snapshot(devices, claims, pools=[make.fabric_pool(**more)], nodes=nodes)


def filled(devices: Sequence[Device], node: str, count: int = 2) -> Claim:
    return make.holding(f"busy-{node}", [device for device in devices if device.node == node][:count], created=1.0)


# Against trying everything


def random_snapshot(chance: random.Random, values: bool) -> Snapshot:
    """Up to four nodes of ten devices in all, and one gang."""
    count = chance.randint(1, 4)
    nodes, devices = [], []
    odd = chance.random() < 0.3
    texts = {}
    for at in range(count):
        name = f"n{at + 1}"
        rack = None if chance.random() < 0.15 else chance.choice(("r1", "r2"))
        nodes.append(make.racked(name, rack, None if chance.random() < 0.1 else chance.choice(("b1", "b2"))))
        mine = []
        for gpu in range(chance.randint(1, 10 // count)):
            rail = chance.choice((0, 1, 2, 3, None, (0, 1))) if values else None
            mine.append(
                make.device(
                    f"gpu-{gpu}",
                    name,
                    numa=chance.choice((0, 0, 1, None)),
                    attributes={} if rail is None else {RAIL: rail},
                )
            )
        devices += mine
        if odd and not values:
            cells = [[chance.choice(("NV2", "PIX", "SYS", "SYS")) for _ in mine] for _ in mine]
            for one in range(len(mine)):
                cells[one][one] = "X"
                for other in range(one):
                    cells[one][other] = cells[other][one]
            head = "\t".join(["", *(f"GPU{at}" for at in range(len(mine)))])
            rows = ["\t".join([f"GPU{at}", *row]) for at, row in enumerate(cells)]
            texts[name] = MatrixText("topo/matrix", "\n".join([head, *rows]) + "\n")
    asked: list[Any] = [make.request("gpu", chance.choice((1, 1, 2)))]
    if not values:
        asked += chance.choice(
            (
                [],
                [],
                [make.required("NUMANode", "gpu")],
                [make.required("PCIeSwitch", "gpu")],
                [make.preferred("NVLink", "gpu")],
            )
        )
    else:
        line = chance.choice((make.match, make.distinct))
        asked.append(make.over_gang(line(RAIL, "gpu")))
    replicas = chance.randint(1, 4)
    claim = make.gang(
        "claim",
        *asked,
        replicas=replicas,
        gang_min=chance.randint(1, replicas),
        required=chance.choice(("", "", "rack", "block")),
        preferred=chance.choice(("", "", "rack")),
        segment=chance.choice((None, None, (2, "rack"), (3, "block"))),
    )
    held = [make.holding("busy", devices[:1], created=1.0)] if chance.random() < 0.4 else []
    return make.snapshot(devices, [*held, claim], pools=[make.fabric_pool(matrices=texts)], nodes=nodes)


@pytest.mark.parametrize(
    "values", [pytest.param(False, id="lines in the node"), pytest.param(True, id="over the gang")]
)
@pytest.mark.parametrize("seed", range(4))
def test_a_gang_reaches_what_any_could(seed: int, values: bool) -> None:
    chance = random.Random(seed)
    met = refused = 0
    memo = Memo()
    for _ in range(60):
        snapshot = random_snapshot(chance, values)
        claim = snapshot.claims[-1]
        answer = planned(snapshot)
        assert planned(snapshot, memo) == answer
        placements = of(answer).placements
        wanted = gang_oracle.whole_gang(snapshot, claim)
        if wanted is None:
            assert not placements, claim
            refused += 1
            continue
        assert len(placements) == wanted.members, claim
        met += 1
        level = gang_oracle.level_of(snapshot, snapshot.pools[make.POOL], [placement.node for placement in placements])
        assert level == wanted.level, claim
    assert met > 15
    assert refused > 3


@pytest.mark.parametrize("seed", range(3))
def test_one_free_node_more_never_makes_it_worse(seed: int) -> None:
    chance = random.Random(50 + seed)
    for _ in range(40):
        snapshot = random_snapshot(chance, values=chance.random() < 0.5)
        more = [make.device(f"gpu-{at}", "n9", numa=0, attributes={RAIL: at}) for at in range(2)]
        pool = snapshot.pools[make.POOL]
        wider = make.snapshot(
            [*(device for given in snapshot.inventory.values() for device in given), *more],
            snapshot.claims,
            pools=[pool],
            nodes=[*snapshot.nodes.values(), make.racked("n9", "r1", "b1")],
        )
        assert len(nodes_of(planned(wider))) >= len(nodes_of(planned(snapshot)))


def test_the_order_of_the_input_changes_nothing() -> None:
    chance = random.Random(7)
    for _ in range(40):
        snapshot = random_snapshot(chance, values=chance.random() < 0.5)
        names = chance.sample(sorted(snapshot.inventory), len(snapshot.inventory))
        other = replace(
            snapshot,
            inventory={name: snapshot.inventory[name] for name in names},
            nodes={name: snapshot.nodes[name] for name in reversed(names)},
        )
        assert planned(other) == planned(snapshot)


# How many


def test_an_elastic_gang_takes_as_many_as_fit_from_its_least_up() -> None:
    nodes, devices = site(("r1", 3), ("r2", 2))
    claim = make.gang("claim", make.request("gpu", 2), replicas=8, gang_min=3, required="rack")
    answer = planned(world(nodes, devices, claim))
    assert [placement.index for placement in of(answer).placements] == [0, 1, 2]
    assert nodes_of(answer) == ["n1", "n2", "n3"]
    assert codes(answer)[-1] is Code.GANG_INCOMPLETE
    too_small = planned(world(nodes, devices, replace(claim, gang_min=4)))
    assert nodes_of(too_small) == []
    assert of(too_small).reasons[-1].message == "3 of at least 4 members fit, rack r1 has most: 3"


def test_replicas_without_a_gang_are_placed_as_they_fit_in_the_domain_of_the_first() -> None:
    nodes, devices = site(("r1", 2), ("r2", 3))
    claim = make.claim("claim", make.request("gpu", 2), replicas=4, fabric=Fabric(required="rack"))
    answer = planned(world(nodes, devices, claim))
    assert nodes_of(answer) == ["n3", "n4", "n5"]
    assert of(answer).reasons
    later = make.after(claim, of(answer).placements[:1])
    assert nodes_of(planned(world(nodes, devices, later))) == ["n4", "n5"]


def test_several_members_share_a_node_and_their_indexes_are_neighbours() -> None:
    nodes, devices = site(("r1", 3), gpus=4)
    claim = make.gang("claim", make.request("gpu", 2), replicas=5)
    assert nodes_of(planned(world(nodes, devices, claim))) == ["n1", "n1", "n2", "n2", "n3"]


def test_members_of_a_node_are_chosen_together_where_one_would_be_in_the_way_of_another() -> None:
    """A chain of four GPUs holds two pairs, but not when the first takes the middle: which is the nearest pair."""
    words = {(0, 1): "PIX", (1, 2): "NV4", (2, 3): "PIX"}
    rows = ["\tGPU0\tGPU1\tGPU2\tGPU3"]
    for one in range(4):
        cells = ["X" if one == other else words.get((min(one, other), max(one, other)), "SYS") for other in range(4)]
        rows.append("\t".join([f"GPU{one}", *cells]))
    nodes, devices = site(("r1", 1), gpus=4)
    claim = make.gang("claim", make.request("gpu", 2), make.required("PCIeSwitch", "gpu"), replicas=2)
    snapshot = world(nodes, devices, claim, matrices={"n1": MatrixText("topo/matrix", "\n".join(rows) + "\n")})
    assert len(nodes_of(planned(snapshot))) == 2


# Members come and go


def running(devices: Sequence[Device], *members: tuple[int, str], replicas: int, **more: Any) -> Claim:
    placed = tuple(
        make.placed({"gpu": [device for device in devices if device.node == node]}, index) for index, node in members
    )
    return make.gang("claim", make.request("gpu", 2), replicas=replicas, placed=placed, **more)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        pytest.param({}, "n3", id="the nearest place without a condition"),
        pytest.param({"required": "rack"}, "n3", id="the rack of the others"),
        pytest.param({"segment": (2, "rack")}, "n3", id="the rack of its segment"),
    ],
)
def test_a_lost_member_joins_the_others(condition: dict[str, Any], wanted: str) -> None:
    nodes, devices = site(("r0", 0), ("r1", 3), ("r2", 4))
    claim = running(devices, (0, "n1"), (1, "n2"), replicas=3 if "segment" not in condition else 4, **condition)
    if "segment" in condition:
        claim = running(devices, (0, "n1"), (2, "n4"), (3, "n5"), replicas=4, **condition)
        wanted = "n2"
    (placement,) = of(planned(world(nodes, devices, claim))).placements
    assert placement.node == wanted


def test_a_grown_gang_stays_in_its_domain() -> None:
    nodes, devices = site(("r1", 4), ("r2", 5))
    claim = running(devices, (0, "n1"), (1, "n2"), replicas=4, required="rack", gang_min=2)
    assert nodes_of(planned(world(nodes, devices, claim))) == ["n3", "n4"]
    larger = replace(claim, replicas=6)
    answer = planned(world(nodes, devices, larger))
    assert nodes_of(answer) == ["n3", "n4"]
    assert Code.FRAGMENTED not in codes(answer)
    assert codes(answer) == [Code.TOPOLOGY_UNSATISFIED, Code.GANG_INCOMPLETE]


def test_members_that_lie_apart_are_joined_by_nobody() -> None:
    nodes, devices = site(("r1", 2), ("r2", 2))
    claim = running(devices, (0, "n1"), (1, "n3"), replicas=3, required="rack")
    answer = planned(world(nodes, devices, claim))
    assert nodes_of(answer) == []
    assert codes(answer) == [Code.TOPOLOGY_UNSATISFIED, Code.GANG_INCOMPLETE]
    unlabelled = [make.racked("n1"), *nodes[1:]]
    answer = planned(world(unlabelled, devices, running(devices, (0, "n1"), replicas=2, required="rack")))
    assert codes(answer)[0] is Code.TOPOLOGY_UNKNOWN


def test_a_lost_member_shares_the_value_of_the_others() -> None:
    nodes, _ = site(("r1", 3))
    devices = [make.device(f"nic-{rail}", node.name, attributes={RAIL: rail}) for node in nodes for rail in (0, 1)]
    place = make.placed({"nic": [devices[1]]}, 0)
    line = make.over_gang(make.match(RAIL, "nic"))
    claim = make.gang("claim", make.request("nic"), line, replicas=3, placed=(place,))
    answer = planned(world(nodes, devices, claim))
    assert [given.id.device for one in of(answer).placements for given in one.devices] == ["nic-1", "nic-1"]
    distinct = replace(claim, affinity=(make.over_gang(make.distinct(RAIL, "nic")),), replicas=2, gang_min=2)
    (other,) = of(planned(world(nodes, devices, distinct))).placements
    assert [given.id.device for given in other.devices] == ["nic-0"]


# Values over the gang


def test_rails_that_are_down_decide_which_rail_all_members_share() -> None:
    """Rail 0 is down on one node of each pair: rail 1 is the one that all have."""
    nodes, _ = site(("r1", 4))
    devices = [
        make.device(f"nic-{rail}", node.name, attributes={RAIL: rail})
        for at, node in enumerate(nodes)
        for rail in range(4)
        if rail != 0 or at % 2
    ]
    line = make.over_gang(make.match(RAIL, "nic"))
    answer = planned(world(nodes, devices, make.gang("claim", make.request("nic"), line, replicas=4, required="rack")))
    assert len({given.id.device for one in of(answer).placements for given in one.devices}) == 1
    only = [device for device in devices if device.id.device == "nic-0"]
    short = planned(world(nodes, only, make.gang("claim", make.request("nic"), line, replicas=4)))
    assert nodes_of(short) == []


def test_a_degraded_node_takes_no_member_that_needs_every_rail() -> None:
    nodes, _ = site(("r1", 3))
    devices = [
        make.device(f"nic-{rail}", node.name, attributes={RAIL: rail})
        for node in nodes
        for rail in range(4)
        if (node.name, rail) != ("n1", 3)
    ]
    line = make.distinct(RAIL, "nic")
    claim = make.gang("claim", make.request("nic", 4), line, replicas=2)
    assert nodes_of(planned(world(nodes, devices, claim))) == ["n2", "n3"]


def test_no_two_members_have_one_rail() -> None:
    nodes, _ = site(("r1", 2), ("r2", 2))
    devices = [make.device(f"nic-{rail}", node.name, attributes={RAIL: rail}) for node in nodes for rail in range(2)]
    line = make.over_gang(make.distinct(RAIL, "nic"))
    claim = make.gang("claim", make.request("nic"), line, replicas=2)
    assert len(nodes_of(planned(world(nodes, devices, claim)))) == 2
    answer = planned(world(nodes, devices, replace(claim, replicas=3, gang_min=3)))
    assert nodes_of(answer) == []
    assert codes(answer) == [Code.TOPOLOGY_UNSATISFIED, Code.GANG_INCOMPLETE]
    assert of(answer).nearest == f"fits with Distinct of {RAIL} over Replica instead of Gang"


def test_values_of_one_node_only_keep_nobody_apart() -> None:
    """Thousands of different values are no search: each occurs once."""
    nodes, _ = site(*((f"r{at}", 8) for at in range(8)))
    devices = [
        make.device(f"nic-{at}", node.name, attributes={"dra.net/mac": f"{node.name}-{at}"})
        for node in nodes
        for at in range(4)
    ]
    line = make.over_gang(make.distinct("dra.net/mac", "nic"))
    answer = planned(world(nodes, devices, make.gang("claim", make.request("nic", 2), line, replicas=40)))
    assert len(nodes_of(answer)) == 40


# Why not, and what would do


def changed(snapshot: Snapshot, words: str) -> Snapshot:
    """The snapshot with the change that `nearest` names made to its gang."""
    claim = snapshot.claims[-1]
    fabric, requests, lines = claim.fabric, claim.requests, claim.affinity
    level = words.split(" instead of ")[0].split()[-1]
    if words.startswith("fits with fabric.required "):
        claim = replace(claim, fabric=replace(fabric, required=level))
    elif words.startswith("fits with fabric.preferred "):
        claim = replace(claim, fabric=replace(fabric, required="", preferred=fabric.required))
    elif words.startswith("fits with segments by ") and fabric.segment is not None:
        claim = replace(claim, fabric=replace(fabric, segment=replace(fabric.segment, level=level)))
    elif words == "fits without fabric.segment":
        claim = replace(claim, fabric=replace(fabric, segment=None))
    elif " over Replica instead of Gang" in words:
        claim = replace(claim, affinity=tuple(replace(line, over_gang=False) for line in lines))
    elif words.startswith("fits with scope "):
        scope = words.split()[3]
        claim = replace(claim, affinity=(make.required(scope, "gpu"),))
    elif words.startswith("fits with gang.minReplicas "):
        claim = replace(claim, gang_min=int(level))
    elif " replicas instead of " in words or " replica instead of " in words:
        number = int(words.split()[2])
        claim = replace(claim, replicas=number, gang_min=number)
    elif words.startswith(("fits without M", "fits without D")):
        claim = replace(claim, affinity=tuple(line for line in lines if not line.attribute))
    elif words.startswith("fits without the selectors "):
        claim = replace(claim, requests=tuple(replace(one, selectors=()) for one in requests))
    elif words.startswith("fits with count "):
        claim = replace(claim, requests=(replace(requests[0], count=int(level)),))
    elif words == "fits without fabric.required and fabric.segment":
        claim = replace(claim, fabric=Fabric())
    else:
        raise AssertionError(words)
    return replace(snapshot, claims=(*snapshot.claims[:-1], claim))


@pytest.mark.parametrize("seed", range(3))
def test_the_nearest_change_makes_it_fit(seed: int) -> None:
    chance = random.Random(300 + seed)
    kinds = set()
    for _ in range(80):
        snapshot = random_snapshot(chance, values=chance.random() < 0.5)
        told = of(planned(snapshot))
        if told.nearest is None or told.placements:
            continue
        kinds.add(" ".join(told.nearest.split()[:3]))
        assert nodes_of(planned(changed(snapshot, told.nearest))), told.nearest
    assert len(kinds) > 4, kinds


def nothing_free() -> Snapshot:
    nodes, devices = site(("r1", 2), ("r2", 2))
    busy = [filled(devices, node.name) for node in nodes[:3]]
    return world(nodes, devices, *busy, make.gang("claim", make.request("gpu", 2), replicas=2))


def in_pieces() -> Snapshot:
    nodes, devices = site(("r1", 2), ("r2", 2))
    busy = [filled(devices, node.name, 1) for node in nodes]
    return world(nodes, devices, *busy, make.gang("claim", make.request("gpu", 2), replicas=2))


def across_racks() -> Snapshot:
    nodes, devices = site(("r1", 2), ("r2", 2))
    busy = [filled(devices, "n1"), filled(devices, "n3")]
    return world(nodes, devices, *busy, make.gang("claim", make.request("gpu", 2), replicas=2, required="rack"))


def larger_than_a_rack() -> Snapshot:
    nodes, devices = site(("r1", 2), ("r2", 2))
    return world(nodes, devices, make.gang("claim", make.request("gpu", 2), replicas=3, required="rack"))


def without_labels() -> Snapshot:
    nodes = [make.racked("n1", "r1"), make.racked("n2"), make.racked("n3")]
    devices = [device for node in nodes for device in make.flat(node.name, 2)]
    return world(nodes, devices, make.gang("claim", make.request("gpu", 2), replicas=2, required="rack"))


def in_segments() -> Snapshot:
    nodes, devices = site(("r1", 3), ("r2", 3))
    return world(nodes, devices, make.gang("claim", make.request("gpu", 2), replicas=6, segment=(2, "rack")))


def on_their_way_back() -> Snapshot:
    nodes, devices = site(("r1", 2))
    leaving = replace(filled(devices, "n1"), deleting=True)
    return world(nodes, devices, leaving, make.gang("claim", make.request("gpu", 2), replicas=2, required="rack"))


def unhealthy() -> Snapshot:
    nodes, devices = site(("r1", 2))
    broken = [replace(devices[0], standing=Standing.UNHEALTHY), *devices[1:]]
    return world(nodes, broken, make.gang("claim", make.request("gpu", 2), replicas=2))


def cordoned() -> Snapshot:
    nodes, devices = site(("r1", 2))
    nodes[0] = replace(nodes[0], unschedulable=True)
    return world(nodes, devices, make.gang("claim", make.request("gpu", 2), replicas=2))


def no_rail() -> Snapshot:
    nodes, devices = site(("r1", 2))
    line = make.over_gang(make.match(RAIL, "gpu"))
    return world(nodes, devices, make.gang("claim", make.request("gpu", 2), line, replicas=2))


def far_apart() -> Snapshot:
    nodes, devices = site(("r1", 2))
    spread = [replace(one, attributes={make.NUMA: at % 2}) for at, one in enumerate(devices)]
    line = make.required("NUMANode", "gpu")
    return world(nodes, spread, make.gang("claim", make.request("gpu", 2), line, replicas=2))


def too_many_selectors() -> Snapshot:
    nodes, devices = site(("r1", 2))
    return world(nodes, devices, make.gang("claim", make.selecting("gpu", "device.driver == 'other'"), replicas=2))


@pytest.mark.parametrize(
    ("make_it", "code", "words", "nearest"),
    [
        pytest.param(
            nothing_free,
            Code.INSUFFICIENT_DEVICES,
            "needs 4 gpu for 2 members, 2 of 8 free",
            "fits with 1 replica",
            id="few",
        ),
        pytest.param(in_pieces, Code.FRAGMENTED, "best node has 1 free", "fits with count 1", id="pieces"),
        pytest.param(
            across_racks,
            Code.FRAGMENTED,
            "needs 2 members in one rack, rack r1 has most free: 1 (2 in the pool)",
            "fits with fabric.required block instead of rack",
            id="across racks",
        ),
        pytest.param(
            larger_than_a_rack,
            Code.TOPOLOGY_UNSATISFIED,
            "needs 3 members in one rack, at most 2 fit so even when all is free",
            "fits with fabric.required block instead of rack",
            id="larger than a rack",
        ),
        pytest.param(
            without_labels,
            Code.TOPOLOGY_UNKNOWN,
            "2 nodes have no label net/rack",
            "fits with fabric.required block instead of rack",
            id="no labels",
        ),
        pytest.param(
            in_segments,
            Code.TOPOLOGY_UNSATISFIED,
            "in segments of 2 by rack, at most 5 fit",
            "fits with segments by block instead of rack",
            id="segments",
        ),
        pytest.param(
            on_their_way_back, Code.DEVICE_RELEASING, "being released on n1", "fits with 1 replica", id="back"
        ),
        pytest.param(unhealthy, Code.UNHEALTHY, "1 unhealthy device on n1", "fits with 1 replica", id="unhealthy"),
        pytest.param(cordoned, Code.NODE_UNAVAILABLE, "n1 is cordoned", "fits with 1 replica", id="cordoned"),
        pytest.param(
            no_rail, Code.ATTRIBUTE_MISSING, f"{RAIL} missing on 4 of 4 candidates", "fits without Match", id="no rail"
        ),
        pytest.param(far_apart, Code.TOPOLOGY_UNSATISFIED, "NUMANode", "fits with scope Node", id="far apart"),
        pytest.param(
            too_many_selectors, Code.SELECTOR_UNMATCHED, "matches the selectors", "fits without", id="selectors"
        ),
    ],
)
def test_a_gang_that_waits_says_why_and_what_would_do(make_it: Any, code: Code, words: str, nearest: str) -> None:
    snapshot = make_it()
    answer = planned(snapshot)
    assert nodes_of(answer) == []
    (told, *_) = [reason for reason in of(answer).reasons if reason.code is code]
    assert words in told.message
    assert Code.GANG_INCOMPLETE in codes(answer)
    assert (of(answer).nearest or "").startswith(nearest)
    assert nodes_of(planned(changed(snapshot, of(answer).nearest or "")))


@pytest.mark.parametrize(
    ("fabric", "gang_min", "words"),
    [
        pytest.param(Fabric(required="row"), 2, "names level row", id="required"),
        pytest.param(Fabric(preferred="row"), 2, "names level row", id="preferred"),
        pytest.param(Fabric(), 5, "gang.minReplicas is 5", id="least"),
    ],
)
def test_what_cannot_be_read_is_invalid(fabric: Fabric, gang_min: int, words: str) -> None:
    nodes, devices = site(("r1", 2))
    claim = replace(make.gang("claim", replicas=2), fabric=fabric, gang_min=gang_min)
    answer = planned(world(nodes, devices, claim))
    assert codes(answer) == [Code.INVALID_CLAIM]
    assert words in of(answer).reasons[0].message


def test_segments_of_members_that_share_no_value() -> None:
    """Each rack has two rails: three members need two racks, and segments of two one with both of its rails."""
    nodes, _ = site(("r1", 2), ("r2", 2))
    rails = {"n1": (0, 1), "n2": (0, 1), "n3": (1, 2), "n4": (1, 2)}
    devices = [
        make.device(f"nic-{at}", node, attributes={RAIL: rail})
        for node, two in rails.items()
        for at, rail in enumerate(two)
    ]
    line = make.over_gang(make.distinct(RAIL, "nic"))
    claim = make.gang("claim", make.request("nic"), line, replicas=3, segment=(2, "rack"))
    answer = planned(world(nodes, devices, claim))
    racks = {node.name: node.labels[make.RACK.node_label] for node in nodes}
    first, second, third = (racks[node] for node in nodes_of(answer))
    assert first == second != third
    alone = replace(claim, replicas=4, gang_min=4)
    told = planned(world(nodes, devices, alone))
    assert nodes_of(told) == []
    assert Code.GANG_INCOMPLETE in codes(told)


def test_a_lost_member_of_a_segment_joins_it_and_shares_no_value() -> None:
    nodes, _ = site(("r1", 3), ("r2", 3))
    devices = [make.device(f"nic-{rail}", node.name, attributes={RAIL: rail}) for node in nodes for rail in range(4)]
    line = make.over_gang(make.distinct(RAIL, "nic"))
    asked = make.gang("claim", make.request("nic"), line, replicas=4, segment=(2, "rack"))
    by_name = {(device.node, device.id.device): device for device in devices}
    held = [(0, "n1", "nic-0"), (2, "n4", "nic-1"), (3, "n4", "nic-3")]
    placed = tuple(make.placed({"nic": [by_name[node, name]]}, index) for index, node, name in held)
    busy = make.holding("busy", [device for device in devices if device.node == "n1" and device.id.device != "nic-0"])
    answer = planned(world(nodes, devices, busy, replace(asked, placed=placed)))
    (found,) = of(answer).placements
    assert (found.index, found.node in ("n2", "n3")) == (1, True)
    assert [device.id.device for device in found.devices] == ["nic-2"]


def test_a_member_that_is_leaving_keeps_its_place() -> None:
    nodes, devices = site(("r1", 3))
    claim = running(devices, (0, "n1"), (1, "n2"), replicas=2)
    leaving = tuple(replace(one, state=ReplicaState.RELEASING) for one in claim.placed[:1])
    settled = replace(claim, placed=(*leaving, *claim.placed[1:]))
    assert of(planned(world(nodes, devices, replace(settled, replicas=3)))).placements[0].index == 2


def test_labels_that_change_are_read_again() -> None:
    nodes, devices = site(("r1", 2), ("r2", 1))
    memo = Memo()
    claim = make.gang("claim", make.request("gpu", 2), replicas=3, required="rack")
    first = world(nodes, devices, claim)
    assert nodes_of(planned(first, memo)) == []
    moved = replace(first, nodes={**first.nodes, "n3": make.racked("n3", "r1")})
    assert nodes_of(planned(moved, memo)) == ["n1", "n2", "n3"]
    other = replace(
        first, pools={make.POOL: replace(first.pools[make.POOL], fabric=(FabricLevel("rack", "net/block"),))}
    )
    assert nodes_of(planned(other, memo)) == ["n1", "n2", "n3"]


# Ways of serving a member, and hosts


def two_ways(name: str = "gpu") -> Request:
    return make.request(name, first_of=(Alternative("four", count=4), Alternative("two", count=2)))


@pytest.mark.parametrize(
    ("nodes", "gpus", "replicas", "wanted"),
    [
        pytest.param(2, 4, 2, ["gpu/four", "gpu/four"], id="all the better way"),
        pytest.param(1, 4, 2, ["gpu/two", "gpu/two"], id="more members before the better way"),
        pytest.param(1, 6, 2, ["gpu/four", "gpu/two"], id="the better way for the first"),
    ],
)
def test_a_gang_takes_most_members_then_better_ways(nodes: int, gpus: int, replicas: int, wanted: list[str]) -> None:
    machines, devices = site(("r1", nodes), gpus=gpus)
    claim = make.gang("claim", two_ways(), replicas=replicas)
    answer = planned(world(machines, devices, claim))
    assert [one.devices[0].request for one in of(answer).placements] == wanted


@pytest.mark.parametrize(
    ("gpus", "replicas", "wanted"),
    [
        pytest.param((8, 2), 3, ["n1 four", "n1 four", "n2 two"], id="two fours on two nodes, not one on one"),
        pytest.param((8, 8, 4), 6, ["n1 four", "n1 two", "n1 two", "n2 four", "n2 four", "n3 four"], id="four of six"),
        pytest.param((4, 8, 2, 6), 4, ["n1 four", "n2 four", "n2 four", "n4 four"], id="all of them"),
    ],
)
def test_better_ways_come_before_a_smaller_domain(gpus: Sequence[int], replicas: int, wanted: list[str]) -> None:
    """Members fit closer together when more of them have only two GPUs."""
    devices = [device for at, number in enumerate(gpus, 1) for device in make.flat(f"n{at}", number)]
    nodes = [make.racked(f"n{at}", f"r{at}") for at in range(1, len(gpus) + 1)]
    answer = planned(world(nodes, devices, make.gang("claim", two_ways(), replicas=replicas)))
    told = [f"{one.node} {one.devices[0].request.removeprefix('gpu/')}" for one in of(answer).placements]
    assert told == wanted


def test_a_way_further_down_for_one_leaves_the_best_to_another() -> None:
    """Ten GPUs for three members: four, four and two rather than four, three and three, though that is fewer ways."""
    ways = tuple(Alternative(name, count=count) for name, count in (("four", 4), ("three", 3), ("two", 2)))
    claim = make.gang("claim", make.request("gpu", first_of=ways), replicas=3)
    answer = planned(world([make.racked("n1", "r1")], make.flat("n1", 10), claim))
    assert [one.devices[0].request for one in of(answer).placements] == ["gpu/four", "gpu/four", "gpu/two"]


def test_better_ways_stay_under_the_required_domain() -> None:
    """Rack r2 has three nodes for two fours and a two, r1 one node for a four and two twos."""
    devices = [*make.flat("n1", 8), *(d for node, n in (("n2", 4), ("n3", 4), ("n4", 2)) for d in make.flat(node, n))]
    nodes = [make.racked("n1", "r1"), *(make.racked(f"n{at}", "r2") for at in (2, 3, 4))]
    answer = planned(world(nodes, devices, make.gang("claim", two_ways(), replicas=3, required="rack")))
    assert nodes_of(answer) == ["n2", "n3", "n4"]
    assert [one.devices[0].request for one in of(answer).placements] == ["gpu/four", "gpu/four", "gpu/two"]


@pytest.mark.parametrize(
    ("quota", "gang_min", "wanted"),
    [
        pytest.param(12, 1, ["four", "four", "four"], id="enough for the better way"),
        pytest.param(11, 1, ["four", "four", "two"], id="the better way for the first two"),
        pytest.param(9, 3, ["four", "two", "two"], id="the better way for the first, all needed"),
        pytest.param(7, 3, ["two", "two", "two"], id="the better way for nobody"),
        pytest.param(5, 1, ["two", "two"], id="fewer members"),
        pytest.param(5, 3, [], id="too few"),
    ],
)
def test_a_quota_leaves_the_better_way_to_the_first_members(quota: int, gang_min: int, wanted: list[str]) -> None:
    machines, devices = site(("r1", 3), gpus=4)
    claim = replace(make.gang("claim", two_ways(), replicas=3), gang_min=gang_min, tenant="team")
    answer = planned(world(machines, devices, claim, tenants={"team": Tenant("team", {"gpu": quota}, {})}))
    assert [one.devices[0].request for one in of(answer).placements] == [f"gpu/{way}" for way in wanted]


def test_ways_that_a_quota_mixes_stay_on_one_network() -> None:
    """The better place of the first, in a rack without room for the second, is not taken."""
    machines, devices = site(("r1", 2), ("r2", 2), gpus=4)
    claim = replace(make.gang("claim", two_ways(), replicas=2, required="rack"), tenant="team")
    tenants = {"team": Tenant("team", {"gpu": 6}, {})}
    snapshot = world(machines, devices, filled(devices, "n1", 4), claim, tenants=tenants)
    placements = of(planned(snapshot)).placements
    assert [one.devices[0].request for one in placements] == ["gpu/four", "gpu/two"]
    assert {one.node for one in placements} == {"n3", "n4"}


def test_members_share_what_their_hosts_have() -> None:
    nodes, devices = site(("r1", 2), gpus=4)
    nodes = [replace(node, cpu_milli=cpu) for node, cpu in zip(nodes, (5000, 9000), strict=True)]
    claim = make.gang("claim", make.request("gpu"), replicas=3, host=HostAsk(cpu_milli=4000))
    assert nodes_of(planned(world(nodes, devices, claim))) == ["n1", "n2", "n2"]
    answer = planned(world(nodes, devices, replace(claim, replicas=4, gang_min=4)))
    assert nodes_of(answer) == []
    assert codes(answer) == [Code.HOST_RESOURCES, Code.GANG_INCOMPLETE]


def test_members_that_need_no_device_are_a_gang_too() -> None:
    nodes, devices = site(("r1", 2), gpus=1)
    nodes = [replace(node, cpu_milli=8000) for node in nodes]
    bare = replace(make.gang("claim", replicas=3, host=HostAsk(cpu_milli=4000)), requests=())
    assert nodes_of(planned(world(nodes, devices, bare))) == ["n1", "n1", "n2"]
