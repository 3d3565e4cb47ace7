"""What a claim's profile and a pool's strategy change: one example for each sentence of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support import checks, make

from adjoin_allocator import Affinity, ClaimUID, Device, MatrixText, Profile, Request, Strategy, plan
from adjoin_allocator.cost import Part, parts_of, signature
from adjoin_allocator.neighbours import groups, loads
from adjoin_allocator.seats import together
from adjoin_allocator.terms import DeviceType
from adjoin_allocator.topology import wire

BALANCED, COMPUTE, IO, LATENCY = Profile.BALANCED, Profile.COMPUTE, Profile.IO, Profile.LATENCY
LEAST, PACK, SPREAD = Strategy.LEAST_FRAGMENTATION, Strategy.PACK, Strategy.SPREAD
GPU, TWO = make.request("gpu"), make.request("gpu", 2)
PAIR = (GPU, make.request("nic"))


def chosen(
    devices: Sequence[Device],
    asked: Sequence[Request | Affinity],
    busy: Sequence[str] = (),
    profile: Profile = BALANCED,
    strategy: Strategy = LEAST,
) -> list[str]:
    """Node and device names that a claim gets; `busy` are devices that somebody has, as `node/device`."""
    holds = {one.id: make.hold() for one in devices if f"{one.node}/{one.id.device}" in busy}
    matrices = {"a": MatrixText("wires/topo", LINKS)} if devices is LINKED else {}
    pool = make.pool(strategy=strategy, matrices=matrices)
    claim = make.claim("claim", *asked, profile=profile)
    snapshot = make.snapshot(devices, [claim], pools=[pool], holds=holds)
    answer = plan(snapshot, make.NOW)
    checks.assert_valid(snapshot, answer)
    (placement,) = answer.claims[ClaimUID("uid-claim")].placements
    return [placement.node, *(given.id.device for given in placement.devices)]


def switches(node: str, *performance: int, **more: Any) -> list[Device]:
    """Two GPUs a switch, each switch of one performance."""
    return [
        make.device(
            f"gpu-{at}", node, switch=f"s{at // 2}", root=f"r{at // 2}", performance=performance[at // 2], **more
        )
        for at in range(2 * len(performance))
    ]


FAST_AND_SLOW = switches("a", 100, 60)
FAST_NODE, SLOW_NODE = switches("a", 100), switches("b", 60)
NUMA = [make.device(f"gpu-{at}", "a", numa=at // 4) for at in range(8)]
CROSSED = [
    # The GPUs that share a switch have no NIC; those with a NIC on their switch are on two.
    make.device("gpu-0", "a", switch="s0", root="r0"),
    make.device("gpu-1", "a", switch="s0", root="r0"),
    make.device("gpu-2", "a", switch="s1", root="r1"),
    make.device("gpu-3", "a", switch="s2", root="r2"),
    make.device("nic-0", "a", switch="s1", root="r1"),
    make.device("nic-1", "a", switch="s2", root="r2"),
]
LINKED = [make.device(f"gpu-{at}", "a", numa=numa) for at, numa in enumerate((0, 1, 2, 2))]
LINKS = """
	GPU0	GPU1	GPU2	GPU3
GPU0	 X 	NV4	SYS	SYS
GPU1	NV4	 X 	SYS	SYS
GPU2	SYS	SYS	 X 	NODE
GPU3	SYS	SYS	NODE	 X
"""
"""Two GPUs with a link between NUMA nodes, and two of one NUMA node without."""


@pytest.mark.parametrize(
    ("devices", "asked", "busy", "profile", "given"),
    [
        pytest.param(FAST_AND_SLOW, [GPU], [], BALANCED, ["a", "gpu-2"], id="the slower card, all else being equal"),
        pytest.param(
            FAST_AND_SLOW,
            [GPU],
            ["a/gpu-0"],
            BALANCED,
            ["a", "gpu-1"],
            id="Balanced: a broken switch before a slow one",
        ),
        pytest.param(
            FAST_AND_SLOW,
            [GPU],
            ["a/gpu-0"],
            COMPUTE,
            ["a", "gpu-2"],
            id="Compute: no fast card is wasted to spare a switch",
        ),
        pytest.param(
            [*FAST_NODE, *SLOW_NODE], [GPU], ["a/gpu-0"], BALANCED, ["a", "gpu-1"], id="Balanced: nor a node, of two"
        ),
        pytest.param(
            [*FAST_NODE, *SLOW_NODE], [GPU], ["a/gpu-0"], COMPUTE, ["b", "gpu-0"], id="Compute: of two nodes likewise"
        ),
        pytest.param(
            FAST_AND_SLOW,
            [make.selecting("gpu", "device.attributes['resource.kubernetes.io'].pcieRoot == 'r0'")],
            ["a/gpu-0"],
            COMPUTE,
            ["a", "gpu-1"],
            id="Compute: who asks for the fast cards does not waste them",
        ),
        pytest.param(
            [make.device(f"gpu-{at}", "a", priority=at) for at in range(3)],
            [GPU],
            [],
            COMPUTE,
            ["a", "gpu-2"],
            id="Compute: of equally fast ones the class of higher priority",
        ),
        pytest.param(
            switches("a", 60, 100),
            [TWO],
            ["a/gpu-0"],
            COMPUTE,
            ["a", "gpu-2", "gpu-3"],
            id="Compute: distances come before what is wasted",
        ),
        pytest.param(
            CROSSED,
            [TWO, make.request("nic", 2)],
            [],
            BALANCED,
            ["a", "gpu-0", "gpu-1", "nic-0", "nic-1"],
            id="Balanced: GPU pairs first",
        ),
        pytest.param(
            CROSSED,
            [TWO, make.request("nic", 2)],
            [],
            IO,
            ["a", "gpu-2", "gpu-3", "nic-0", "nic-1"],
            id="IO: GPU-NIC pairs first",
        ),
        pytest.param(
            CROSSED,
            [TWO, make.request("nic", 2), make.preferred("PCIeSwitch", "gpu")],
            [],
            IO,
            ["a", "gpu-0", "gpu-1", "nic-0", "nic-1"],
            id="IO: a Preferred line says itself what is near",
        ),
        pytest.param(LINKED, [TWO], [], BALANCED, ["a", "gpu-0", "gpu-1"], id="Balanced: the nearest pair"),
        pytest.param(LINKED, [TWO], [], LATENCY, ["a", "gpu-2", "gpu-3"], id="Latency: one NUMA node before that"),
        pytest.param(
            LINKED,
            [TWO, make.preferred("NVLink", "gpu")],
            [],
            LATENCY,
            ["a", "gpu-2", "gpu-3"],
            id="Latency: and before Preferred lines",
        ),
        pytest.param(
            LINKED,
            [TWO, make.required("NVLink", "gpu")],
            [],
            LATENCY,
            ["a", "gpu-0", "gpu-1"],
            id="Latency: never before Required lines",
        ),
        pytest.param(NUMA, [GPU], ["a/gpu-0"], BALANCED, ["a", "gpu-1"], id="Balanced: the NUMA node in use"),
        pytest.param(NUMA, [GPU], ["a/gpu-0"], LATENCY, ["a", "gpu-4"], id="Latency: idle neighbours"),
        pytest.param(
            NUMA,
            [make.request("gpu", 4)],
            ["a/gpu-4", "a/gpu-5", "a/gpu-0"],
            LATENCY,
            ["a", "gpu-1", "gpu-2", "gpu-3", "gpu-6"],
            id="Latency: of as many NUMA nodes no choice is left but the nearest pairs",
        ),
        pytest.param(
            [
                make.device("gpu-0", "a"),
                make.device("gpu-1", "a"),
                *[make.device(f"gpu-{at}", "a", numa=0) for at in (2, 3)],
            ],
            [TWO],
            [],
            LATENCY,
            ["a", "gpu-2", "gpu-3"],
            id="Latency: two unknown NUMA nodes are two",
        ),
    ],
)
def test_profile(
    devices: Sequence[Device],
    asked: Sequence[Request | Affinity],
    busy: Sequence[str],
    profile: Profile,
    given: list[str],
) -> None:
    assert chosen(devices, asked, busy, profile) == given


THREE = [device for node in "abc" for device in make.flat(node, 4)]
HALF = ["a/gpu-0", "b/gpu-0", "b/gpu-1", "b/gpu-2"]
RAILS = [device for node in "ab" for device in make.rails(node, gpus=2)]


@pytest.mark.parametrize(
    ("devices", "asked", "busy", "strategy", "given"),
    [
        pytest.param(
            THREE,
            [GPU],
            HALF,
            LEAST,
            ["a", "gpu-1"],
            id="LeastFragmentation: a single of broken nodes, and of two the emptier",
        ),
        pytest.param(THREE, [TWO], HALF, PACK, ["a", "gpu-1", "gpu-2"], id="Pack: the fullest node that has two"),
        pytest.param(THREE, [GPU], HALF, PACK, ["b", "gpu-3"], id="Pack: the fullest node"),
        pytest.param(THREE, [GPU], HALF, SPREAD, ["c", "gpu-0"], id="Spread: the emptiest node"),
        pytest.param(
            [*make.flat("a", 4), *make.flat("b", 8)],
            [GPU],
            ["a/gpu-0", "b/gpu-0", "b/gpu-1"],
            SPREAD,
            ["a", "gpu-1"],
            id="Spread: a quarter of each is taken, and then what is left behind decides",
        ),
        pytest.param(
            [*make.flat("a", 4), *make.flat("b", 8)],
            [GPU],
            ["a/gpu-0", "b/gpu-0"],
            SPREAD,
            ["b", "gpu-1"],
            id="Spread: how full a node is, not how many devices are taken",
        ),
        pytest.param(NUMA, [GPU], ["a/gpu-0"], SPREAD, ["a", "gpu-4"], id="Spread: then the emptiest NUMA node"),
        pytest.param(NUMA, [GPU], ["a/gpu-0"], PACK, ["a", "gpu-1"], id="Pack says nothing about NUMA nodes"),
        pytest.param(
            RAILS,
            PAIR,
            ["a/nic-0", "a/gpu-1", "b/gpu-0"],
            PACK,
            ["b", "gpu-1", "nic-1"],
            id="distances come before the strategy",
        ),
    ],
)
def test_strategy(
    devices: Sequence[Device],
    asked: Sequence[Request | Affinity],
    busy: Sequence[str],
    strategy: Strategy,
    given: list[str],
) -> None:
    assert chosen(devices, asked, busy, strategy=strategy) == given


def test_what_a_claim_wants_comes_before_what_its_pool_does() -> None:
    given = chosen([*FAST_NODE, *SLOW_NODE], [GPU], ["a/gpu-0"], COMPUTE, PACK)
    assert given == ["b", "gpu-0"]


def test_all_of_few_fast_devices_can_waste_more_than_all_of_many_slow_ones() -> None:
    disks = {"a": (100, 100), "b": (60, 60, 60), "c": (50, 50)}
    devices = [
        make.device(f"disk-{at}", node, performance=each)
        for node, all_ in disks.items()
        for at, each in enumerate(all_)
    ]
    holds = {devices[-1].id: make.hold()}
    claim = make.claim("claim", make.everything("disk"), profile=COMPUTE)
    (placement,) = plan(make.snapshot(devices, [claim], holds=holds), make.NOW).claims[claim.uid].placements
    assert placement.node == "b", "three times ten above the slowest of the pool, and not twice fifty"


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("strategy", Strategy)
def test_every_part_counts_once(profile: Profile, strategy: Strategy) -> None:
    order = parts_of(profile, strategy)
    assert len(set(order)) == len(order)
    assert {Part.DISTANCES, Part.DEMAND, Part.WHOLE, Part.BLOCKS, Part.WASTE, Part.PRIORITY} <= set(order)


def test_profiles_that_come_to_the_same_are_one_signature() -> None:
    asked, types = [make.request("gpu")], [DeviceType.GPU]
    assert signature(asked, types, [], IO) == signature(asked, types, [], BALANCED)
    assert signature(asked, types, [], COMPUTE) != signature(asked, types, [], BALANCED)


def test_who_is_whose_neighbour() -> None:
    numa = [0, 0, 1, None, None, (0, 1)]
    devices = [make.device(f"gpu-{at}", numa=node) for at, node in enumerate(numa)]
    wiring = wire(devices, make.pool(), devices)[0]
    found = groups(wiring)
    assert set(found.known) == {0b11, 0b100, 0b100000}
    assert found.unknown == 0b11000
    assert loads(wiring, 0b101110, 100) == (50, 50, 0, 50, 50, 0)


@pytest.mark.parametrize(
    ("profile", "given"), [(BALANCED, {"gpu-1", "gpu-2"}), (COMPUTE, {"gpu-2", "gpu-3"})], ids=["Balanced", "Compute"]
)
def test_members_that_share_a_node_are_chosen_together_by_the_profile(profile: Profile, given: set[str]) -> None:
    gpus = FAST_AND_SLOW
    holds = {one.id: make.hold() for one in gpus if one.id.device == "gpu-0"}
    claim = make.claim("claim", GPU, profile=profile, replicas=2, gang_min=2)
    answer = plan(make.snapshot(gpus, [claim], holds=holds), make.NOW)
    placed = answer.claims[claim.uid].placements
    assert {device.id.device for placement in placed for device in placement.devices} == given


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("profile", Profile)
def test_members_taken_as_one_have_the_order_of_each(profile: Profile, strategy: Strategy) -> None:
    one = signature([make.everything()], [DeviceType.GPU], [], profile, strategy, least=(7,))
    two = together(one, 2)
    assert (two.order, two.spread, two.least) == (one.order, one.spread, (7, 7))
