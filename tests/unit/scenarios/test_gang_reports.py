"""Field reports on gangs and fabrics: what went wrong elsewhere, and what is right. Named by their ids."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tests.support import make
from tests.support.answers import codes, nodes_of, of, planned

from adjoin_allocator import (
    Claim,
    Code,
    Device,
    Memo,
    Node,
    ReplicaState,
)


def rack(name: str, *nodes: str, block: str = "b1") -> list[Node]:
    return [make.racked(node, name, block) for node in nodes]


def whole(name: str = "claim", *, replicas: int, **more: object) -> Claim:
    """Members that each take a whole node of two GPUs."""
    return make.gang(name, make.request("gpu", 2), replicas=replicas, **more)


def machines(nodes: list[Node]) -> list[Device]:
    return [device for node in nodes for device in make.flat(node.name, 2)]


def test_a20_a_gang_goes_to_the_rack_that_holds_it_and_not_to_the_fullest_one() -> None:
    nodes = [*rack("r1", "n1", "n2", "n3", "n4"), *rack("r2", "n5", "n6", "n7", "n8")]
    devices = machines(nodes)
    busy = [make.holding(f"busy-{node}", [d for d in devices if d.node == node]) for node in ("n1", "n2", "n3")]
    for claim in (whole(replicas=4, required="rack"), whole(replicas=4)):
        answer = planned(make.snapshot(devices, [*busy, claim], pools=[make.fabric_pool()], nodes=nodes))
        assert nodes_of(answer) == ["n5", "n6", "n7", "n8"]


def test_a20_what_fits_in_the_fuller_rack_leaves_the_whole_one_whole() -> None:
    nodes = [*rack("r1", "n1", "n2", "n3", "n4"), *rack("r2", "n5", "n6", "n7", "n8")]
    devices = machines(nodes)
    busy = [make.holding(f"busy-{node}", [d for d in devices if d.node == node]) for node in ("n5", "n6")]
    answer = planned(make.snapshot(devices, [*busy, whole(replicas=2)], pools=[make.fabric_pool()], nodes=nodes))
    assert nodes_of(answer) == ["n7", "n8"]


def test_a21_nodes_without_a_label_are_in_no_rack() -> None:
    nodes = [make.racked("n1"), make.racked("n2"), make.racked("n3"), *rack("r2", "n4", "n5")]
    claim = whole(replicas=3, required="rack")
    answer = planned(make.snapshot(machines(nodes), [claim], pools=[make.fabric_pool()], nodes=nodes))
    assert nodes_of(answer) == []
    assert codes(answer)[0] is Code.TOPOLOGY_UNKNOWN
    reason = of(answer).reasons[0]
    assert reason.nodes == 3
    assert "3 nodes have no label net/rack" in reason.message
    assert codes(answer)[-1] is Code.GANG_INCOMPLETE
    assert of(answer).reasons[-1].message == "2 of 3 members fit, rack r2 has most: 2"


def test_a21_the_label_that_is_missing_is_named_also_when_it_is_a_coarser_one() -> None:
    nodes = [make.racked("n1", "r1", block=None), make.racked("n2", "r1", block=None), make.racked("n3")]
    claim = whole(replicas=3, required="rack")
    answer = planned(make.snapshot(machines(nodes), [claim], pools=[make.fabric_pool()], nodes=nodes))
    assert of(answer).reasons[0].message == (
        "2 nodes have no label net/block and 1 node has no label net/rack, and so lie in no rack: n1, n2, n3"
    )


def test_a21_one_node_lies_in_no_rack() -> None:
    nodes = [make.racked("n1", "r1", block=None), *rack("r1", "n2")]
    claim = whole(replicas=2, required="rack")
    answer = planned(make.snapshot(machines(nodes), [claim], pools=[make.fabric_pool()], nodes=nodes))
    assert of(answer).reasons[0].message == "1 node has no label net/block, and so lies in no rack: n1"


def test_a21_a_gang_without_a_condition_may_use_them() -> None:
    nodes = [make.racked("n1"), make.racked("n2"), make.racked("n3"), *rack("r2", "n4", "n5")]
    answer = planned(make.snapshot(machines(nodes), [whole(replicas=5)], pools=[make.fabric_pool()], nodes=nodes))
    assert len(nodes_of(answer)) == 5


def test_a22_all_subgroups_lie_in_one_block() -> None:
    """Ten members in segments, blocks with 18 and 10 free nodes: one block for all of them, and the smaller one."""
    nodes = [
        node
        for block, racks in (("b1", (6, 6, 6)), ("b2", (4, 3, 3)))
        for number, size in enumerate(racks)
        for node in rack(f"r{number}", *(f"{block}-{number}-{at}" for at in range(size)), block=block)
    ]
    claim = whole(replicas=10, required="block", segment=(3, "rack"))
    answer = planned(make.snapshot(machines(nodes), [claim], pools=[make.fabric_pool()], nodes=nodes))
    assert {node[:2] for node in nodes_of(answer)} == {"b2"}
    larger = planned(
        make.snapshot(
            machines(nodes),
            [whole(replicas=19, required="block", segment=(3, "rack"))],
            pools=[make.fabric_pool()],
            nodes=nodes,
        )
    )
    assert nodes_of(larger) == []
    assert Code.TOPOLOGY_UNSATISFIED in codes(larger)


def test_a26_a_replica_that_has_devices_is_not_placed_again() -> None:
    """However many pods name one replica, the gang has it once: a plan fed back is complete and says nothing."""
    nodes = rack("r1", "n1", "n2", "n3")
    claim = whole(replicas=2)
    snapshot = make.snapshot(machines(nodes), [claim], pools=[make.fabric_pool()], nodes=nodes)
    answer = planned(snapshot)
    settled = replace(snapshot, claims=(make.after(claim, of(answer).placements),))
    assert planned(settled).claims == {}


def test_a27_a_failed_attempt_leaves_nothing_behind() -> None:
    """16 members on a rack of 18 idle nodes, after the same gang did not fit: as a fresh process decides."""
    nodes = rack("r11", *(f"n{number}" for number in range(18)))
    devices = machines(nodes)
    busy = [make.holding(f"busy-{number}", devices[2 * number : 2 * number + 1]) for number in range(3)]
    claim = whole(replicas=16, required="rack")
    memo = Memo()
    full = make.snapshot(devices, [*busy, claim], pools=[make.fabric_pool()], nodes=nodes)
    assert nodes_of(planned(full, memo)) == []
    idle = replace(full, claims=(claim,))
    again = planned(idle, memo)
    assert len(nodes_of(again)) == 16
    assert again == planned(idle)


def test_f8_of_two_gangs_one_runs_and_the_other_holds_nothing() -> None:
    nodes = rack("r1", *(f"n{number}" for number in range(20)))
    gangs = [whole("one", replicas=20, created=1.0), whole("two", replicas=20, created=2.0)]
    answer = planned(make.snapshot(machines(nodes), gangs, pools=[make.fabric_pool()], nodes=nodes))
    assert len(nodes_of(answer, "one")) == 20
    assert nodes_of(answer, "two") == []
    assert Code.GANG_INCOMPLETE in codes(answer, "two")


def test_f9_a_gang_that_waits_keeps_nobody_else_from_what_it_cannot_use() -> None:
    """Six of eight wanted H100 are free: the gang waits and holds none; a claim for an A10 is served."""
    nodes = rack("r1", "n1", "n2", "n3", "n4")
    devices = [*machines(nodes), make.device("a10-0", "n1")]
    busy = make.holding("busy", [device for device in devices if device.node == "n4" and device.kind == "gpu"])
    head = whole("head", replicas=4, created=1.0)
    other = make.claim("other", make.request("a10"), created=2.0)
    pool = make.fabric_pool(kinds=("gpu", "a10"))
    answer = planned(make.snapshot(devices, [busy, head, other], pools=[pool], nodes=nodes))
    assert nodes_of(answer, "head") == []
    assert nodes_of(answer, "other") == ["n1"]


def test_f17_what_is_left_of_a_gang_is_completed_or_told_and_keeps_its_devices() -> None:
    nodes = [*rack("r1", "n1", "n2", "n3"), *rack("r2", "n4", "n5")]
    devices = machines(nodes)
    running = whole(
        replicas=3,
        required="rack",
        placed=tuple(
            make.placed({"gpu": [device for device in devices if device.node == node]}, index)
            for index, node in ((0, "n1"), (2, "n3"))
        ),
    )
    snapshot = make.snapshot(devices, [running], pools=[make.fabric_pool()], nodes=nodes)
    (replaced,) = of(planned(snapshot)).placements
    assert (replaced.index, replaced.node) == (1, "n2")
    taken = make.holding("taken", [device for device in devices if device.node == "n2"], created=1.0)
    answer = planned(replace(snapshot, claims=(taken, running)))
    assert nodes_of(answer) == []
    assert of(answer).reasons[-1].code is Code.GANG_INCOMPLETE
    assert of(answer).reasons[-1].message == "2 of 3 members are in place, member 1 has no place"
    assert of(answer).nearest == "fits with fabric.required block instead of rack"


def test_f17_a_gang_that_is_being_evicted_is_not_begun_anew_in_part() -> None:
    """What is on its way back is no member: the rest does not count as a gang in place."""
    nodes = rack("r1", "n1", "n2", "n3")
    devices = machines(nodes)
    leaving = make.placed({"gpu": devices[:2]}, 0, state=ReplicaState.RELEASING)
    claim = whole(replicas=3, placed=(leaving,))
    answer = planned(make.snapshot(devices, [claim], pools=[make.fabric_pool()], nodes=nodes))
    assert nodes_of(answer) == []


def test_members_of_one_rack_are_neighbours_in_rank() -> None:
    nodes = [*rack("r1", "n1", "n5", "n9"), *rack("r2", "n2", "n6"), *rack("r3", "n3")]
    answer = planned(make.snapshot(machines(nodes), [whole(replicas=6)], pools=[make.fabric_pool()], nodes=nodes))
    racks = [next(node.labels["net/rack"] for node in nodes if node.name == name) for name in nodes_of(answer)]
    assert racks == ["r1", "r1", "r1", "r2", "r2", "r3"]
    assert Counter(racks) == {"r1": 3, "r2": 2, "r3": 1}
