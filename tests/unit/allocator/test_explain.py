"""Why a claim waits: every reason that applies, with numbers, the most actionable first."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support import checks, make, strategies

from adjoin_allocator import (
    Claim,
    ClaimHold,
    ClaimUID,
    Code,
    Device,
    HoldKind,
    HostAsk,
    Node,
    Reason,
    ReplicaState,
    Snapshot,
    Standing,
    Taint,
    plan,
)

RAIL = "dra.net/rail"
GPUS = make.flat(gpus=4)
MODEL = "device.attributes['gpu.nvidia.com'].model == 'H100'"


def reasons(snapshot: Snapshot, claim: str = "claim") -> tuple[Reason, ...]:
    answer = plan(snapshot, make.NOW)
    checks.assert_valid(snapshot, answer)
    return answer.claims[ClaimUID(f"uid-{claim}")].reasons


def four(*lines: object) -> Claim:
    return make.claim("claim", make.request("gpu", 4), *lines)  # type: ignore[arg-type]


def ill(count: int, standing: Standing = Standing.UNHEALTHY, detail: str = "taint xid=31") -> list[Device]:
    return [make.device(f"gpu-{at}", standing=standing, detail=detail) for at in range(count)]


NO_ROOT = [make.device("gpu-0", numa=0), make.device("nic-0", root="r", numa=1)]
ONE_RAIL = [make.device(f"nic-{at}", attributes={RAIL: 0}) for at in range(2)]


@pytest.mark.parametrize(
    ("snapshot", "told"),
    [
        pytest.param(
            make.snapshot(GPUS, [make.claim("claim", make.request("gpu", 5))]),
            [(Code.INSUFFICIENT_DEVICES, 1, "needs 5 gpu, best node has 4 even when empty")],
            id="more than any node has",
        ),
        pytest.param(
            make.snapshot([make.device("nic-0")], [make.claim()]),
            [(Code.INSUFFICIENT_DEVICES, 1, "needs 1 gpu, the pool has none")],
            id="a kind that the pool has nowhere",
        ),
        pytest.param(
            make.snapshot(make.flat("a", 1) + make.flat("b", 0, 1), [make.pairs()]),
            [(Code.INSUFFICIENT_DEVICES, 2, "needs 1 gpu and 1 nic on one node, no node has these together")],
            id="kinds that no node has together",
        ),
        pytest.param(
            make.snapshot(GPUS, [make.holding("other", GPUS[:1], created=1.0), four()]),
            [(Code.INSUFFICIENT_DEVICES, 1, "needs 4 gpu, 3 of 4 free")],
            id="too few free in the pool",
        ),
        pytest.param(
            make.snapshot(
                [*GPUS, *make.flat("b", 4)],
                [make.holding("x", GPUS[:1], created=1.0), make.holding("y", make.flat("b", 2), created=1.0), four()],
            ),
            [
                (
                    Code.FRAGMENTED,
                    2,
                    "needs 4 gpu, best node has 3 free (5 gpu free on 2 nodes); 2 nodes: 2 fragmented (max 3 of 4)",
                )
            ],
            id="enough free, but not together",
        ),
        pytest.param(
            make.snapshot(GPUS, [make.claim("claim", make.selecting("gpu", MODEL))]),
            [(Code.SELECTOR_UNMATCHED, 1, "none of 4 gpu matches the selectors (gpu.nvidia.com/model missing on 4)")],
            id="a selector for an attribute that nobody publishes",
        ),
        pytest.param(
            make.snapshot(
                [make.device("gpu-0", attributes={"gpu.nvidia.com/model": "T4"}), make.device("gpu-1")],
                [make.claim("claim", make.selecting("gpu", MODEL))],
            ),
            [(Code.SELECTOR_UNMATCHED, 1, "none of 2 gpu matches the selectors (gpu.nvidia.com/model missing on 1)")],
            id="a selector that nobody matches, where one lacks the attribute",
        ),
        pytest.param(
            make.snapshot(
                [
                    *(make.device(f"gpu-{at}", attributes={"gpu.nvidia.com/model": "H100"}) for at in range(2)),
                    make.device("gpu-2"),
                ],
                [make.claim("claim", make.selecting("gpu", MODEL, count=3))],
            ),
            [(Code.INSUFFICIENT_DEVICES, 1, "needs 3 gpu, best node has 2 even when empty")],
            id="a selector that too few match",
        ),
        pytest.param(
            make.snapshot(
                make.flat("a", 2, 2) + make.flat("b", 2, 2),
                [
                    make.holding("x", make.flat("a", 2), created=1.0),
                    make.holding("y", make.flat("b", 0, 2), created=1.0),
                    make.pairs(),
                ],
            ),
            [(Code.FRAGMENTED, 2, "needs 1 gpu and 1 nic, no node has them free together (2 gpu, 2 nic free")],
            id="GPUs here and NICs there",
        ),
        pytest.param(
            make.snapshot(make.rails(gpus=4), [four(make.required("NUMANode", "gpu"))]),
            [(Code.TOPOLOGY_UNSATISFIED, 1, "1 node: no 4 of 4 free gpu are within NUMANode of each other")],
            id="a scope that no set meets",
        ),
        pytest.param(
            make.snapshot(
                [make.device("gpu-0", root="a"), make.device("nic-0", root="b")],
                [make.pairs("claim", 1, make.required("PCIeRoot", "gpu", "nic"))],
            ),
            [(Code.TOPOLOGY_UNSATISFIED, 1, "1 node: no 1 nic within PCIeRoot of 1 gpu (1 gpu free)")],
            id="a scope between two requests that no pair meets",
        ),
        pytest.param(
            make.snapshot(NO_ROOT, [make.pairs("claim", 1, make.required("PCIeRoot", "gpu", "nic"))]),
            [
                (
                    Code.TOPOLOGY_UNKNOWN,
                    1,
                    "1 node: PCIeRoot between gpu and nic is unknown: pcieRoot missing on 1 of 2 candidates",
                )
            ],
            id="a fact that one of them does not publish",
        ),
        pytest.param(
            make.snapshot(make.shared_roots(), [make.pairs("claim", 1, make.required("PCIeSwitch", "gpu", "nic"))]),
            [
                (
                    Code.TOPOLOGY_UNKNOWN,
                    1,
                    "PCIeSwitch between gpu and nic is unknown: pcieSwitch missing on 12 of 12 candidates; "
                    "PCIeRoot would fit",
                )
            ],
            id="a switch, which no driver publishes, with the hint to ask for the root complex",
        ),
        pytest.param(
            make.snapshot(GPUS, [four(make.required("NVLink", "gpu"))]),
            [(Code.TOPOLOGY_UNKNOWN, 1, "NVLink within gpu is unknown: no topology matrix says it")],
            id="NVLink without a matrix",
        ),
        pytest.param(
            make.snapshot(GPUS, [four(make.required("NVLink", "gpu"), make.required("NVLink", "gpu"))]),
            [(Code.TOPOLOGY_UNKNOWN, 1, "NVLink within gpu is unknown: no topology matrix says it")],
            id="the same line twice is one reason",
        ),
        pytest.param(
            make.snapshot(ONE_RAIL, [make.claim("claim", make.request("nic", 2), make.distinct(RAIL, "nic"))]),
            [(Code.TOPOLOGY_UNSATISFIED, 1, "1 of 2 distinct devices available (dra.net/rail)")],
            id="one rail where two are asked for",
        ),
        pytest.param(
            make.snapshot(
                [make.device(f"nic-{at}", attributes={RAIL: at // 3}) for at in range(5)],
                [make.claim("claim", make.request("nic", 4), make.match(RAIL, "nic"))],
            ),
            [(Code.TOPOLOGY_UNSATISFIED, 1, "3 of 4 devices with one value available (dra.net/rail)")],
            id="no rail that has four",
        ),
        pytest.param(
            make.snapshot(
                [*ONE_RAIL[:1], make.device("nic-1")],
                [make.claim("claim", make.request("nic", 2), make.match(RAIL, "nic"))],
            ),
            [(Code.ATTRIBUTE_MISSING, 1, "dra.net/rail missing on 1 of 2 candidates")],
            id="an attribute that one does not publish",
        ),
        pytest.param(
            make.snapshot(GPUS, [make.holding("other", GPUS[:1], deleting=True), four()]),
            [
                (Code.DEVICE_RELEASING, 1, "1 node would fit with devices that are being released: node-a"),
                (Code.INSUFFICIENT_DEVICES, 1, "needs 4 gpu, 3 of 4 free"),
            ],
            id="a device on its way back",
        ),
        pytest.param(
            make.snapshot(GPUS, [four()], holds={GPUS[0].id: make.hold(HoldKind.RELEASING)}),
            [
                (Code.DEVICE_RELEASING, 1, "being released: node-a"),
                (Code.INSUFFICIENT_DEVICES, 1, "needs 4 gpu, 3 of 4 free"),
            ],
            id="a device whose claim is gone",
        ),
        pytest.param(
            make.snapshot(ill(1), [make.claim()]),
            [
                (Code.UNHEALTHY, 1, "1 unhealthy where it would fit otherwise: node-a/gpu-0 (taint xid=31)"),
                (Code.INSUFFICIENT_DEVICES, 1, "needs 1 gpu, 0 of 1 free"),
            ],
            id="an unhealthy device",
        ),
        pytest.param(
            make.snapshot(GPUS, [four()], nodes=[make.node(unschedulable=True)]),
            [(Code.NODE_UNAVAILABLE, 1, "1 node would fit, but node-a is cordoned")],
            id="a cordoned node",
        ),
        pytest.param(
            make.snapshot(GPUS, [four()], nodes=[make.node(taints=(Taint("a/b", "c", "NoSchedule"),))]),
            [(Code.NODE_UNAVAILABLE, 1, "node-a has taint a/b=c:NoSchedule, which the pool does not tolerate")],
            id="a taint",
        ),
        pytest.param(
            make.snapshot(
                ill(1, Standing.WITHHELD), [make.claim()], pools=[make.pool(withheld=("gpu.x/node-a: 1 of 2 slices",))]
            ),
            [
                (Code.DRIVER_UNAVAILABLE, 1, "incomplete inventory: gpu.x/node-a: 1 of 2 slices"),
                (Code.INSUFFICIENT_DEVICES, 1, "0 of 1 free"),
            ],
            id="an incomplete generation",
        ),
        pytest.param(
            make.snapshot(
                make.flat(gpus=0, nics=1), [make.claim()], pools=[make.pool(withheld=("gpu.x/a: 0 of 2 slices",))]
            ),
            [
                (Code.DRIVER_UNAVAILABLE, 0, "incomplete inventory: gpu.x/a: 0 of 2 slices"),
                (Code.INSUFFICIENT_DEVICES, 1, "needs 1 gpu, the pool has none"),
            ],
            id="an incomplete generation of which nothing was seen",
        ),
        pytest.param(
            make.snapshot(
                ill(2, Standing.WITHHELD),
                [make.holding("other", GPUS[:2], created=1.0), make.claim(created=2.0)],
                pools=[make.pool(withheld=("gpu.x/a: 1 of 2 slices",))],
            ),
            [
                (Code.DRIVER_UNAVAILABLE, 0, "incomplete inventory: gpu.x/a: 1 of 2 slices"),
                (Code.INSUFFICIENT_DEVICES, 1, "0 of 2 free"),
            ],
            id="an incomplete generation of which a claim holds what is seen",
        ),
        pytest.param(
            make.snapshot(
                make.flat(gpus=1, nics=0),
                [make.claim("other", created=1.0), make.claim(created=2.0)],
                pools=[
                    make.pool(
                        withheld=("nic.x/a: no ResourceSlices", "gpu.x/b: no ResourceSlices"),
                        withheld_kinds={"nic.x/a: no ResourceSlices": ("nic",), "gpu.x/b: no ResourceSlices": ("gpu",)},
                    )
                ],
            ),
            [
                (Code.DRIVER_UNAVAILABLE, 0, "incomplete inventory: gpu.x/b: no ResourceSlices"),
                (Code.INSUFFICIENT_DEVICES, 1, "0 of 1 free"),
            ],
            id="a silent driver of devices that are not asked for",
        ),
        pytest.param(
            make.snapshot(ill(2, Standing.UNGUARDED), [make.claim()]),
            [
                (Code.DRIVER_UNAVAILABLE, 1, "2 devices are not guarded yet"),
                (Code.INSUFFICIENT_DEVICES, 1, "0 of 2 free"),
            ],
            id="devices whose guard is on its way",
        ),
        pytest.param(
            make.snapshot(GPUS, [make.holding("other", GPUS[:1], created=1.0), make.claim("claim", make.everything())]),
            [(Code.INSUFFICIENT_DEVICES, 1, "needs all gpu, 3 of 4 free")],
            id="all of them where one is taken",
        ),
        pytest.param(
            make.snapshot(
                make.flat(gpus=4, nics=4),
                [make.pairs("claim", 2, make.required("PCIeSwitch", "gpu", "nic"), make.required("NVLink", "gpu"))],
            ),
            [
                (Code.TOPOLOGY_UNKNOWN, 1, "NVLink within gpu is unknown"),
                (Code.TOPOLOGY_UNKNOWN, 1, "PCIeSwitch between gpu and nic is unknown"),
            ],
            id="each of two lines that cannot be met",
        ),
    ],
)
def test_reasons(snapshot: Snapshot, told: Sequence[tuple[Code, int, str]]) -> None:
    found = reasons(snapshot)
    assert [(reason.code, reason.nodes) for reason in found] == [(code, nodes) for code, nodes, _ in told]
    for reason, (_, _, words) in zip(found, told, strict=True):
        assert words in reason.message


def test_a_device_held_by_somebody_else_helps_nobody() -> None:
    """Nobody can look for it among DeviceClaims, so the reason names it (A7)."""
    found = reasons(make.snapshot(GPUS, [four()], holds={GPUS[0].id: make.hold()}))
    assert [reason.code for reason in found] == [Code.INSUFFICIENT_DEVICES]
    assert f"3 of 4 free (1 held by {make.hold().holder})" in found[0].message


def test_unhealthy_devices_that_would_not_be_enough_are_not_blamed() -> None:
    devices = [*ill(1), *GPUS[1:]]
    claims = [make.holding("other", GPUS[1:2], created=1.0), four()]
    assert [reason.code for reason in reasons(make.snapshot(devices, claims))] == [Code.INSUFFICIENT_DEVICES]


@pytest.mark.parametrize(
    ("rails", "most"),
    [
        pytest.param([0, *range(39)], 39, id="forty NICs of which two share a rail"),
        pytest.param([(0, 1), (1, 2), (2, 3), (3, 0)], 2, id="a ring of lists"),
        pytest.param([(0, 1), 0, 1, 5], 3, id="a list that two others fill"),
        pytest.param([(at, at + 1) for at in range(40)], 20, id="a long chain of lists"),
    ],
)
def test_how_many_distinct_devices_there_are(rails: Sequence[object], most: int) -> None:
    nics = [make.device(f"nic-{at}", attributes={"dra.net/rail": rail}) for at, rail in enumerate(rails)]
    asked = make.claim("claim", make.request("nic", len(nics)), make.distinct("dra.net/rail", "nic"))
    (reason,) = reasons(make.snapshot(nics, [asked]))
    assert f"{most} of {len(nics)} distinct devices available" in reason.message


def test_many_nodes_are_counted_and_a_few_named() -> None:
    devices = [device for at in range(6) for device in make.flat(f"n{at}", 1)]
    nodes = [make.node(f"n{at}", ready=False) for at in range(6)]
    (reason,) = reasons(make.snapshot(devices, [make.claim()], nodes=nodes))
    assert reason.nodes == 6
    assert "n0 is not ready, n1 is not ready, n2 is not ready and 3 more" in reason.message


def test_a_node_that_goes_is_said_to_go() -> None:
    devices = [device for name in "ab" for device in make.flat(name, 1)]
    nodes = [make.node("a", deleting=True), make.node("b", ready=False)]
    (reason,) = reasons(make.snapshot(devices, [make.claim()], nodes=nodes))
    assert reason.code is Code.NODE_UNAVAILABLE
    assert "a is being deleted, b is not ready; 2 nodes: 1 not ready, 1 being deleted" in reason.message


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.snapshots())
def test_numbers_add_up_in_every_reason(snapshot: Snapshot) -> None:
    answer = plan(snapshot, make.NOW)
    total = len({device.node for given_ in snapshot.inventory.values() for device in given_})
    for claim in answer.claims.values():
        for place, reason in enumerate(claim.reasons):
            assert 0 <= reason.nodes <= total
            summary = re.search(r"; (\d+) nodes: (.*)$", reason.message)
            assert bool(summary) == (place == 0 and total > 1)
            if summary:
                parts = re.findall(r"(?:^|, )(\d+) ", summary[2])
                assert int(summary[1]) == total == sum(map(int, parts))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.snapshots(waiting=1))
def test_a_claim_that_waits_for_devices_on_their_way_back_fits_once_they_are(snapshot: Snapshot) -> None:
    holds = {one: make.hold(HoldKind.RELEASING) for one in snapshot.holds}
    waiting = make.snapshot(
        [device for given_ in snapshot.inventory.values() for device in given_],
        snapshot.claims,
        pools=snapshot.pools.values(),
        holds=holds,
    )
    leaving = [
        claim
        for claim in snapshot.claims
        if claim.deleting or any(replica.state is ReplicaState.RELEASING for replica in claim.placed)
    ]
    freed = make.snapshot(
        [device for given_ in snapshot.inventory.values() for device in given_],
        [claim for claim in snapshot.claims if claim not in leaving],
        pools=snapshot.pools.values(),
    )
    before, after = plan(waiting, make.NOW), plan(freed, make.NOW)
    for uid, claim in before.claims.items():
        if uid in after.claims and Code.DEVICE_RELEASING in {reason.code for reason in claim.reasons}:
            assert len(after.claims[uid].placements) > len(claim.placements)


def hosts(*limits: tuple[int | None, int | None], busy: Sequence[int] = ()) -> tuple[list[Device], list[Node]]:
    """Nodes with one GPU each (of some of them it is held) and so much CPU and memory."""
    devices = [make.device("gpu-0", f"n{number}") for number in range(len(limits))]
    nodes = [make.node(f"n{number}", cpu_milli=cpu, memory_bytes=memory) for number, (cpu, memory) in enumerate(limits)]
    return devices, nodes


@pytest.mark.parametrize(
    ("limits", "asked", "told"),
    [
        pytest.param(
            [(64000, None), (32000, None), (8000, None), (0, None)],
            HostAsk(96000),
            "4 nodes: needs 96 CPU, best has 64; 4 nodes: 4 without host resources",
            id="CPU",
        ),
        pytest.param([(None, 1 << 30)], HostAsk(1, 1 << 31), "1 node: needs 2Gi memory, best has 1Gi", id="memory"),
        pytest.param(
            [(500, 1 << 20)],
            HostAsk(1500, 3 << 20),
            "1 node: needs 1500m CPU, best has 500m, needs 3Mi memory, best has 1Mi",
            id="both",
        ),
        pytest.param(
            [(2000, 1 << 20), (1000, 1 << 21)],
            HostAsk(2000, 1 << 21),
            "2 nodes: needs 2 CPU and 2Mi memory, none has both; 2 nodes: 2 without host resources",
            id="each on another node",
        ),
    ],
)
def test_what_hosts_lack(limits: Sequence[tuple[int | None, int | None]], asked: HostAsk, told: str) -> None:
    devices, nodes = hosts(*limits)
    (reason,) = reasons(make.snapshot(devices, [make.claim("claim", host=asked)], nodes=nodes))
    assert (reason.code, reason.message) == (Code.HOST_RESOURCES, told)


def test_a_full_node_and_one_without_host_resources_are_two_reasons_to_wait() -> None:
    devices, nodes = hosts((1000, None), (8000, None), (1000, None))
    devices[2] = make.device("gpu-0", "n2", standing=Standing.UNHEALTHY)
    claims = [make.holding("other", devices[1:2], created=1.0), make.claim("claim", host=HostAsk(2000))]
    found = reasons(make.snapshot(devices, claims, nodes=nodes))
    assert [(reason.code, reason.nodes) for reason in found] == [(Code.HOST_RESOURCES, 1)]
    assert found[0].message.endswith("3 nodes: 2 full, 1 without host resources"), (
        "health would not help where it is full"
    )


ALONE = make.flat(gpus=2)
REACHED: dict[Code, Snapshot] = {
    Code.INSUFFICIENT_DEVICES: make.snapshot(ALONE, [make.claim("claim", make.request("gpu", 3))]),
    Code.FRAGMENTED: make.snapshot(
        [*make.flat("a", 2), *make.flat("b", 2)],
        [make.holding("other", [make.device("gpu-0", name)], uid=name, created=1.0) for name in "ab"]
        + [make.claim("claim", make.request("gpu", 2))],
    ),
    Code.TOPOLOGY_UNSATISFIED: make.snapshot(
        [make.device(f"gpu-{at}", numa=at) for at in range(2)],
        [make.claim("claim", make.request("gpu", 2), make.required("NUMANode", "gpu"))],
    ),
    Code.TOPOLOGY_UNKNOWN: make.snapshot(
        ALONE, [make.claim("claim", make.request("gpu", 2), make.required("NUMANode", "gpu"))]
    ),
    Code.ATTRIBUTE_MISSING: make.snapshot(
        ALONE, [make.claim("claim", make.request("gpu", 2), make.match(RAIL, "gpu"))]
    ),
    Code.SELECTOR_UNMATCHED: make.snapshot(ALONE, [make.claim("claim", make.selecting("gpu", "false"))]),
    Code.UNHEALTHY: make.snapshot([make.device(standing=Standing.UNHEALTHY)], [make.claim()]),
    Code.DEVICE_RELEASING: make.snapshot(
        ALONE, [make.claim("claim", make.request("gpu", 2))], holds={ALONE[0].id: make.hold(HoldKind.RELEASING)}
    ),
    Code.HOST_RESOURCES: make.snapshot(ALONE, [make.claim("claim", host=HostAsk(1))], nodes=[make.node(cpu_milli=0)]),
    Code.NODE_UNAVAILABLE: make.snapshot(ALONE, [make.claim()], nodes=[make.node(ready=False)]),
    Code.DRIVER_UNAVAILABLE: make.snapshot([make.device(standing=Standing.UNGUARDED)], [make.claim()]),
    Code.NOT_ALLOWED: make.snapshot(ALONE, [make.claim()], pools=[make.pool(unavailable="not served")]),
    Code.POOL_NOT_FOUND: make.snapshot(ALONE, [make.claim(pool="none")]),
    Code.INVALID_CLAIM: make.snapshot(ALONE, [make.claim("claim", make.request("tpu"))]),
    Code.POD_GATED: make.snapshot(ALONE, [make.claim(hold=ClaimHold(Code.POD_GATED, "gated"))]),
}
"""A claim that waits for the reason, by its code; the search limit is reached in `test_fit`."""


@pytest.mark.parametrize("code", REACHED, ids=str)
def test_a_claim_waits_for_this(code: Code) -> None:
    snapshot = REACHED[code]
    answer = plan(snapshot, make.NOW)
    checks.assert_valid(snapshot, answer)
    assert answer.claims[ClaimUID("uid-claim")].reasons[0].code is code


def test_devices_that_are_not_there_are_named() -> None:
    """Else it looks as if somebody had them."""
    cards = [make.card("gpu-0", standing=Standing.MISSING, detail="has no Node object"), make.card("gpu-1")]
    for request, said in (
        (make.request("gpu", 2), "needs 2 gpu, 1 of 2 free, 1 missing (node-a/gpu-0 has no Node object)"),
        (make.part(milli=100, count=2), "best node has 1, best gpu has free 1000m, 1 missing (node-a/gpu-0 has no"),
    ):
        snapshot = make.snapshot(cards, [make.claim("claim", request)], shares=[make.share()])
        assert said in reasons(snapshot)[0].message
