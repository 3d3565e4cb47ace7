"""Field reports about choosing in a node and about saying why not: profiles, strategies, alternatives. Named by their
ids; what holds whatever a claim favours is asked of every profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.support import checks, make

from adjoin_allocator import (
    Alternative,
    Claim,
    ClaimPlan,
    ClaimUID,
    Code,
    Device,
    HoldKind,
    MatrixText,
    Plan,
    Profile,
    Request,
    Snapshot,
    Standing,
    Strategy,
    plan,
)

EVERY = pytest.mark.parametrize("profile", Profile)


def planned(snapshot: Snapshot) -> Plan:
    answer = plan(snapshot, make.NOW)
    checks.assert_valid(snapshot, answer)
    return answer


def told(snapshot: Snapshot, claim: str = "claim") -> ClaimPlan:
    return planned(snapshot).claims[ClaimUID(f"uid-{claim}")]


def names(answer: Plan, claim: str = "claim") -> list[str]:
    (placement,) = answer.claims[ClaimUID(f"uid-{claim}")].placements
    return [given.id.device for given in placement.devices]


def mesh(links: Sequence[tuple[int, int]], size: int = 8) -> str:
    """The matrix of GPUs of which some are linked, and the rest is far."""
    cells = {pair: "NV12" for one, other in links for pair in ((one, other), (other, one))}
    header = ["", *(f"GPU{at}" for at in range(size))]
    rows = [
        [f"GPU{one}", *("X" if one == at else cells.get((one, at), "SYS") for at in range(size))] for one in range(size)
    ]
    return "\n".join("\t".join(row) for row in (header, *rows))


@EVERY
def test_a6_distinct_holds_over_the_whole_set_in_whatever_way_it_is_asked(profile: Profile) -> None:
    devices = [make.device(f"gpu-{at}", numa=node) for at, node in enumerate((1, 2, 1, 3))]
    four, three = Alternative("four", 4), Alternative("three", 3)
    asked = Request("gpu", "gpu", first_of=(four, three))
    claim = make.claim("claim", asked, make.distinct("numaNode", "gpu"), profile=profile)
    assert names(planned(make.snapshot(devices, [claim]))) in (["gpu-0", "gpu-1", "gpu-3"], ["gpu-1", "gpu-2", "gpu-3"])


@EVERY
def test_a12_no_profile_gives_a_nic_that_required_forbids(profile: Profile) -> None:
    devices = [
        make.device("gpu-0", root="26", numa=0),
        make.device("nic-a", root="48", numa=0, kind="nic"),
        make.device("nic-b", root="26", numa=0, kind="nic"),
    ]
    claim = make.pairs("claim", 1, make.required("PCIeRoot", "gpu", "nic"), profile=profile)
    assert names(planned(make.snapshot(devices, [claim]))) == ["gpu-0", "nic-b"]
    busy = {devices[2].id: make.hold()}
    answer = told(make.snapshot(devices, [claim], holds=busy))
    assert [reason.code for reason in answer.reasons] == [Code.TOPOLOGY_UNSATISFIED]
    assert answer.nearest == "fits with scope NUMANode instead of PCIeRoot"


@EVERY
@pytest.mark.parametrize("strategy", Strategy)
def test_a14_linked_pairs_and_no_others_whatever_is_favoured(profile: Profile, strategy: Strategy) -> None:
    links = ((0, 2), (1, 3), (4, 5), (6, 7))
    pool = make.pool(matrices={make.NODE: MatrixText("wires/topo", mesh(links))}, strategy=strategy)
    claims = [make.claim(f"c{number}", make.request("gpu", 2), profile=profile) for number in range(4)]
    answer = planned(make.snapshot(make.flat(), claims, pools=[pool]))
    assert sorted(names(answer, claim.name) for claim in claims) == [[f"gpu-{a}", f"gpu-{b}"] for a, b in links]


def crowd(busy: Mapping[str, Sequence[int]]) -> tuple[list[Device], list[Claim]]:
    """Nodes of two NUMA nodes with four GPUs each, of which some are somebody's."""
    devices, claims = [], []
    for node, taken in busy.items():
        gpus = [make.device(f"gpu-{at}", node, numa=at // 4) for at in range(8)]
        devices += gpus
        if taken:
            claims.append(make.holding(f"on-{node}", [gpus[at] for at in taken], created=1.0))
    return devices, claims


@pytest.mark.parametrize(
    ("busy", "place"),
    [
        pytest.param({"a": (0, 1, 2, 4)}, ("a", "gpu-5"), id="one node: the emptier NUMA node"),
        pytest.param(
            {"a": (0, 1, 2, 4), "b": (0, 1, 2, 3, 4)},
            ("a", "gpu-5"),
            id="load of the node before that of the NUMA node",
        ),
        pytest.param({"a": (0, 1, 2, 3), "b": (0, 1, 4, 5)}, ("a", "gpu-4"), id="equal nodes: the emptier NUMA node"),
        pytest.param({"a": (0,), "b": ()}, ("b", "gpu-0"), id="an empty node before all"),
    ],
)
def test_a15_spread_looks_at_load_before_it_looks_at_numa_nodes(
    busy: Mapping[str, Sequence[int]], place: tuple[str, str]
) -> None:
    devices, claims = crowd(busy)
    pool = make.pool(strategy=Strategy.SPREAD)
    (placement,) = told(make.snapshot(devices, [*claims, make.claim("claim")], pools=[pool])).placements
    assert (placement.node, placement.devices[0].id.device) == place


def test_a21_latency_never_takes_two_unknown_numa_nodes_for_one() -> None:
    unknown = [make.device(f"gpu-{at}", "a", numa=-1) for at in range(2)]
    known = [make.device(f"gpu-{at}", "b", numa=at // 2) for at in range(4)]
    busy = {known[0].id: make.hold(), known[2].id: make.hold()}
    claim = make.claim("claim", make.request("gpu", 2), profile=Profile.LATENCY)
    (placement,) = told(make.snapshot([*unknown, *known], [claim], holds=busy)).placements
    assert placement.node == "a", "two NUMA nodes here and there, and idle neighbours here"
    (placement,) = told(make.snapshot([*unknown, *known], [claim])).placements
    assert placement.node == "b", "one NUMA node there"


@EVERY
def test_a24_all_of_an_alternative_is_never_met_by_none(profile: Profile) -> None:
    asked = Request("nic", "nic", first_of=(Alternative("every", all_devices=True), Alternative("two", 2)))
    claim = make.claim("claim", asked, profile=profile)
    answer = told(make.snapshot([*make.flat("a", 8, 0), *make.flat("b", 0, 3)], [claim]))
    assert [given.request for given in answer.placements[0].devices] == ["nic/every"] * 3
    busy = {one.id: make.hold() for one in make.flat("b", 0, 1)}
    answer = told(make.snapshot([*make.flat("a", 8, 0), *make.flat("b", 0, 3)], [claim], holds=busy))
    assert [given.request for given in answer.placements[0].devices] == ["nic/two"] * 2
    assert not told(make.snapshot(make.flat("a", 8, 0), [claim])).placements


def test_a25_waiting_for_others_does_not_make_unhealthy_devices_whole() -> None:
    standing = [Standing.UNHEALTHY] * 2 + [Standing.OFFERED] * 6
    devices = [make.device(f"gpu-{at}", standing=stand) for at, stand in enumerate(standing)]
    holder = make.holding("c0", devices, created=1.0)
    answer = told(make.snapshot(devices, [holder, make.claim("claim", make.request("gpu", 6))]))
    assert answer.nearest == "fits once DeviceClaim team/c0 ends"
    answer = told(make.snapshot(devices, [holder, make.claim("claim", make.request("gpu", 7))]))
    assert answer.nearest is None


def test_e9_the_class_of_each_node_and_then_what_would_fit() -> None:
    devices, claims = crowd({"a": (0, 1, 2, 3, 4), "b": range(8), "c": (0, 1, 2, 3)})
    releasing = make.holding("leaving", [one for one in devices if one.node == "b"], created=1.0, deleting=True)
    claims = [*(one for one in claims if one.name != "on-b"), releasing]
    answer = told(make.snapshot(devices, [*claims, make.claim("claim", make.request("gpu", 5))]))
    assert [(reason.code, reason.nodes) for reason in answer.reasons] == [
        (Code.DEVICE_RELEASING, 1),
        (Code.FRAGMENTED, 2),
    ]
    assert answer.reasons[0].message.endswith("; 3 nodes: 2 fragmented (max 4 of 5), 1 releasing")
    assert answer.nearest == "fits when team/leaving has given back b gpu-0..gpu-7 (releasing)"


def test_e10_names_of_holders_and_alternatives_are_told_whole() -> None:
    devices = [make.device(f"nic.{at}", "node.example.com", kind="nic") for at in range(2)]
    holds = {one.id: make.hold(HoldKind.FOREIGN, "ResourceClaim ml.prod/train-0.nics") for one in devices}
    asked = Request("rdma.nic", "nic", first_of=(Alternative("half.rail", 2), Alternative("one/rail")))
    answer = told(make.snapshot(devices, [make.claim("claim", asked)], holds=holds))
    assert answer.nearest == "fits once ResourceClaim ml.prod/train-0.nics ends"
    message = answer.reasons[0].message
    assert "needs 2 rdma.nic/half.rail, 0 of 2 free (2 held by ResourceClaim ml.prod/train-0.nics)" in message
    releasing = {one.id: make.hold(HoldKind.RELEASING, "ResourceClaim ml.prod/train-0.nics") for one in devices}
    answer = told(make.snapshot(devices, [make.claim("claim", asked)], holds=releasing))
    told_back = "ResourceClaim ml.prod/train-0.nics has given back node.example.com nic.0, nic.1"
    assert answer.nearest == f"fits when {told_back} (releasing)"


@EVERY
def test_f20_every_way_sees_the_same_free_devices(profile: Profile) -> None:
    """Two NICs are free beside one GPU: the way that needs two GPUs is out, and none of what it looked at is gone."""
    devices = make.rails(gpus=4)
    busy = make.holding("other", [one for one in devices if one.id.device in ("gpu-0", "gpu-1", "gpu-2")], created=1.0)
    gpu = Request("gpu", "gpu", first_of=(Alternative("two", 2), Alternative("one")))
    claim = make.claim("claim", gpu, make.request("nic", 2), profile=profile)
    answer = planned(make.snapshot(devices, [busy, claim]))
    assert names(answer)[0] == "gpu-3"
    assert answer.pools[make.POOL].counts["nic"].free == 2
