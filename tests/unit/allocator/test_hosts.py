"""Room on nodes beside devices: who counts, that replicas of one decision add up, and what is chosen then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support import checks, make

from adjoin_allocator import Claim, Code, Device, HostAsk, Memo, Node, PlacedReplica, Plan, ReplicaState, Snapshot, plan
from adjoin_allocator.hosts import UNLIMITED
from adjoin_allocator.ledger import Ledger

GIB = 1 << 30
DEVICES = [*make.flat("node-1", 4), *make.flat("node-2", 4)]


def asking(name: str = "claim", count: int = 1, cpu: int = 0, memory: int = 0, **more: object) -> Claim:
    return make.claim(name, make.request("gpu", count), host=HostAsk(cpu, memory), **more)


def limited(*rooms: tuple[int | None, int | None], **more: int) -> list[Node]:
    return [
        make.node(f"node-{number}", cpu_milli=cpu, memory_bytes=memory, **more)
        for number, (cpu, memory) in enumerate(rooms, start=1)
    ]


def planned(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    answer = plan(snapshot, make.NOW, memo)
    checks.assert_valid(snapshot, answer)
    return answer


def places(answer: Plan, name: str = "claim") -> list[str]:
    return [placement.node for placement in answer.claims[make.claim(name).uid].placements]


@pytest.mark.parametrize(
    ("nodes", "ask", "expected"),
    [
        pytest.param(limited((8000, None), (8000, None)), {"cpu": 8000}, ["node-1"], id="exactly enough"),
        pytest.param(limited((7999, None), (8000, None)), {"cpu": 8000}, ["node-2"], id="a thousandth of a core short"),
        pytest.param(limited((None, None), (8000, None)), {"cpu": 10**9}, ["node-1"], id="no limit is known"),
        pytest.param(limited((8000, GIB), (8000, 2 * GIB)), {"memory": 2 * GIB}, ["node-2"], id="memory counts alone"),
        pytest.param(
            limited((9000, GIB), (8000, 2 * GIB)), {"cpu": 9000, "memory": 2 * GIB}, [], id="both must be on one node"
        ),
        pytest.param(
            limited((8000, None), (8000, None), cpu_used_milli=1), {"cpu": 8000}, [], id="pods use it already"
        ),
        pytest.param(
            limited((8000, None), (4000, None)),
            {"cpu": 4000, "replicas": 3},
            ["node-1", "node-1", "node-2"],
            id="replicas of one decision add up",
        ),
        pytest.param(
            limited((8000, None), (4000, None)),
            {"replicas": 2},
            ["node-1", "node-1"],
            id="who asks for nothing needs none",
        ),
    ],
)
def test_a_replica_goes_only_where_the_host_has_room(
    nodes: list[Node], ask: dict[str, int], expected: list[str]
) -> None:
    answer = planned(make.snapshot(DEVICES, [asking(**ask)], nodes=nodes))
    assert places(answer) == expected


def test_room_that_is_short_everywhere_is_told_as_such() -> None:
    answer = planned(make.snapshot(DEVICES, [asking(cpu=9000)], nodes=limited((8000, None), (8000, None))))
    assert Code.HOST_RESOURCES in [reason.code for reason in answer.claims[make.claim().uid].reasons]


def holder(devices: list[Device], **more: object) -> Claim:
    held: Claim = make.holding("holder", devices, **{"host": HostAsk(6000), **more})
    return held


def bound(claim: Claim) -> Claim:
    return replace(claim, placed=tuple(replace(replica, bound=True) for replica in claim.placed))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(holder(DEVICES[:1]), ["node-2"], id="it counts until its pod is bound"),
        pytest.param(bound(holder(DEVICES[:1])), ["node-1"], id="then its pod's requests count, which the node tells"),
        pytest.param(holder(DEVICES[:1], deleting=True), ["node-1"], id="a pod of a deleted claim will not come"),
        pytest.param(
            holder(DEVICES[:1], state=ReplicaState.RELEASING), ["node-1"], id="nor one of a replica that goes"
        ),
        pytest.param(holder(DEVICES[:1], host=HostAsk()), ["node-1"], id="it needs nothing"),
        pytest.param(
            make.claim("holder", host=HostAsk(6000), placed=(PlacedReplica(0, "node-1", ReplicaState.READY, ()),)),
            ["node-2"],
            id="host resources alone",
        ),
    ],
)
def test_what_others_need_until_they_run(other: Claim, expected: list[str]) -> None:
    nodes = limited((8000, None), (8000, None))
    snapshot = make.snapshot(DEVICES, [other, asking(cpu=4000)], nodes=nodes)
    assert places(planned(snapshot)) == expected


def test_pools_share_the_room_of_a_node() -> None:
    devices = [*make.flat("node-1", 1), *make.flat("node-1", 0, 1, pool="other")]
    claims = [asking("a", cpu=5000), make.claim("b", make.request("nic"), pool="other", host=HostAsk(5000))]
    snapshot = make.snapshot(devices, claims, pools=[make.pool(), make.pool("other")], nodes=limited((8000, None)))
    answer = planned(snapshot)
    assert (places(answer, "a"), places(answer, "b")) == (["node-1"], [])


def test_room_is_followed_from_snapshot_to_snapshot() -> None:
    memo = Memo()
    snapshot = make.snapshot(DEVICES, nodes=limited((8000, None), (8000, None)))
    planned(snapshot, memo)
    for used, expected in ((0, ["node-1"]), (4000, ["node-2"]), (0, ["node-1"])):
        nodes = {**snapshot.nodes, "node-1": replace(snapshot.nodes["node-1"], cpu_used_milli=used)}
        snapshot = replace(snapshot, nodes=nodes)
        given = snapshot.edited([asking(cpu=6000)])
        assert places(planned(given, memo)) == expected
        assert planned(given, memo) == planned(given)
    held = snapshot.edited([holder(DEVICES[:1])])
    assert places(planned(held.edited([asking(cpu=6000)]), memo)) == ["node-2"]
    assert places(planned(snapshot.edited([asking(cpu=6000)]), memo)) == ["node-1"]


def test_room_is_counted_in_replicas() -> None:
    snapshot = make.snapshot(DEVICES, nodes=limited((8000, 3 * GIB), (None, None)))
    memo = Memo()
    ledger: Ledger = memo.ledger
    ledger.enter(snapshot, make.NOW)
    pool = snapshot.pools[make.POOL]

    def room(position: int, **host: int) -> int:
        ask = memo.placer.ask(pool, (make.request("gpu"),), (), HostAsk(**host))
        return memo.placer.host_room(ask, position)

    assert room(0, cpu_milli=3000) == 2
    assert room(0, cpu_milli=1000, memory_bytes=2 * GIB) == 1
    assert room(0, cpu_milli=9000) == 0
    assert room(0) == UNLIMITED
    assert room(1, cpu_milli=9000) == UNLIMITED
    ledger.take(make.POOL, 0, 1, HostAsk(6000))
    assert room(0, cpu_milli=1000) == 2
    ledger.roll_back(0)
    assert room(0, cpu_milli=1000) == 8
