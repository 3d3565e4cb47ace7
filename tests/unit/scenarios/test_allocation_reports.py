"""Field reports that the allocator alone answers: what went wrong elsewhere, and what is right. Named by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest
from tests.support import checks, make

from adjoin_allocator import (
    Claim,
    ClaimUID,
    Code,
    Device,
    DeviceID,
    HostAsk,
    MatrixText,
    Memo,
    Placement,
    Plan,
    Reason,
    Scope,
    Snapshot,
    Standing,
    plan,
)


def planned(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    answer = plan(snapshot, make.NOW, memo)
    checks.assert_valid(snapshot, answer)
    return answer


def devices_of(answer: Plan, claim: str = "claim") -> list[str]:
    (placement,) = answer.claims[ClaimUID(f"uid-{claim}")].placements
    return [given.id.device for given in placement.devices]


def reasons(answer: Plan, claim: str = "claim") -> tuple[Reason, ...]:
    return answer.claims[ClaimUID(f"uid-{claim}")].reasons


def codes(answer: Plan, claim: str = "claim") -> list[Code]:
    return [reason.code for reason in reasons(answer, claim)]


def test_a6_distinct_compares_all_devices_and_not_only_the_last_two() -> None:
    numa = {"gpu-1": 1, "gpu-2": 2, "gpu-3": 1, "gpu-4": 3}
    devices = [make.device(name, numa=node) for name, node in numa.items()]
    claim = make.claim("claim", make.request("gpu", 3), make.distinct("numaNode", "gpu"))
    assert devices_of(planned(make.snapshot(devices, [claim]))) in (
        ["gpu-1", "gpu-2", "gpu-4"],
        ["gpu-2", "gpu-3", "gpu-4"],
    )


@pytest.mark.parametrize(
    "order", [pytest.param(order, id=" ".join(map(str, order))) for order in ((1, 2, 1, 3), (3, 1, 2, 1))]
)
def test_a6_in_whatever_order_they_are_listed(order: Sequence[int]) -> None:
    devices = [make.device(f"gpu-{at}", numa=node) for at, node in enumerate(order)]
    claim = make.claim("claim", make.request("gpu", 3), make.distinct("numaNode", "gpu"))
    chosen = devices_of(planned(make.snapshot(devices, [claim])))
    assert sorted(order[int(name.removeprefix("gpu-"))] for name in chosen) == [1, 2, 3]


def test_a8_a_device_that_vanished_is_its_claims_and_nobody_elses_on_return() -> None:
    gone, back = make.device("gpu-0", standing=Standing.MISSING), make.device("gpu-0")
    owner, other = make.holding("owner", [back], created=1.0), make.claim("claim")
    for device in (gone, back):
        answer = planned(make.snapshot([device], [owner, other]))
        assert codes(answer) == [Code.INSUFFICIENT_DEVICES]
    assert planned(make.snapshot([gone], [owner])).pools[make.POOL].counts["gpu"].missing == 1


def test_a9_a_fresh_process_gives_out_nothing_that_was_given_out() -> None:
    memo, devices = Memo(), make.flat(gpus=4)
    snapshot = make.snapshot(devices, [make.claim(f"c{number}") for number in range(4)])
    first = planned(snapshot, memo)
    claims = tuple(make.after(claim, first.claims[claim.uid].placements) for claim in snapshot.claims)
    after = replace(snapshot, claims=(*claims, make.claim("c5")))
    for known in (memo, None):
        answer = planned(after, known)
        assert list(answer.claims) == ["uid-c5"]
        assert codes(answer, "c5") == [Code.INSUFFICIENT_DEVICES]


def test_a11_two_claims_in_one_pass_never_get_the_same_node() -> None:
    claims = [make.claim(name, make.request("gpu", 8)) for name in ("a", "b")]
    answer = planned(make.snapshot(make.flat(), claims))
    assert len(answer.claims[ClaimUID("uid-a")].placements) == 1
    assert codes(answer, "b") == [Code.INSUFFICIENT_DEVICES]


ROOTS = [
    make.device("gpu-0", root="26", numa=0),
    make.device("nic-a", root="48", numa=0, kind="nic"),
    make.device("nic-b", root="26", numa=0, kind="nic"),
]


def test_a12_the_nic_on_the_same_root_complex_and_not_just_the_same_numa_node() -> None:
    for line in (make.required("PCIeRoot", "gpu", "nic"), make.preferred("PCIeRoot", "gpu", "nic")):
        assert devices_of(planned(make.snapshot(ROOTS, [make.pairs("claim", 1, line)]))) == ["gpu-0", "nic-b"]


def test_a12_when_that_one_is_busy_required_waits_and_preferred_says_how_far_it_went() -> None:
    busy = make.holding("other", ROOTS[2:], created=1.0)
    required = make.pairs("claim", 1, make.required("PCIeRoot", "gpu", "nic"))
    answer = planned(make.snapshot(ROOTS, [busy, required]))
    assert codes(answer) == [Code.TOPOLOGY_UNSATISFIED]
    assert answer.claims[required.uid].nearest == "fits with scope NUMANode instead of PCIeRoot"
    answer = planned(make.snapshot(ROOTS, [busy, make.pairs("claim", 1, make.preferred("PCIeRoot", "gpu", "nic"))]))
    (placement,) = answer.claims[ClaimUID("uid-claim")].placements
    assert [given.id.device for given in placement.devices] == ["gpu-0", "nic-a"]
    assert placement.locality == {"gpu-nic": "NODE"}


def test_a13_a_fact_under_another_key_is_missing_and_not_insufficient() -> None:
    devices = [make.device(f"gpu-{at}", attributes={"gpu.vendor/pciRoot": f"r{at}"}) for at in range(8)]
    devices += [make.device(f"nic-{at}", root=f"r{at}") for at in range(8)]
    claim = make.pairs("claim", 1, make.required("PCIeRoot", "gpu", "nic"))
    answer = planned(make.snapshot(devices, [claim]))
    assert codes(answer) == [Code.TOPOLOGY_UNKNOWN]
    assert "pcieRoot missing on 8 of 16 candidates" in reasons(answer)[0].message
    mapped = make.pool(aliases={"pcieRoot": ("gpu.vendor/pciRoot", make.ROOT)})
    assert devices_of(planned(make.snapshot(devices, [claim], pools=[mapped]))) == ["gpu-0", "nic-0"]


LINKED = ((0, 2), (1, 3), (4, 5), (6, 7))


def test_a14_nvlink_partners_need_not_be_neighbours_by_index() -> None:
    names = [f"GPU{at}" for at in range(8)]
    cells = {pair: "NV12" for one, other in LINKED for pair in ((one, other), (other, one))}
    rows = ["\t".join(["", *names])]
    for one in range(8):
        rows.append("\t".join([names[one], *("X" if one == at else cells.get((one, at), "SYS") for at in range(8))]))
    pool = make.pool(matrices={make.NODE: MatrixText("wires/topo", "\n".join(rows))})
    claims = [make.claim(f"c{number}", make.request("gpu", 2)) for number in range(4)]
    answer = planned(make.snapshot(make.flat(), claims, pools=[pool]))
    pairs = {tuple(int(name.removeprefix("gpu-")) for name in devices_of(answer, claim.name)) for claim in claims}
    assert pairs == set(LINKED)


def test_a21_numa_node_minus_one_is_nowhere_and_matches_nothing() -> None:
    devices = [make.device("gpu-0", numa=-1), make.device("nic-0", numa=-1)]
    scope = make.pairs("claim", 1, make.required("NUMANode", "gpu", "nic"))
    assert codes(planned(make.snapshot(devices, [scope]))) == [Code.TOPOLOGY_UNKNOWN]
    attribute = make.pairs("claim", 1, make.match("numaNode", "gpu", "nic"))
    assert codes(planned(make.snapshot(devices, [attribute]))) == [Code.ATTRIBUTE_MISSING]


def test_a23_four_gpus_of_one_numa_node_wait_where_each_has_two() -> None:
    devices = [make.device(f"gpu-{at}", numa=at // 4) for at in range(8)]
    busy = make.holding("other", [devices[at] for at in (0, 1, 4, 5)], created=1.0)
    claim = make.claim("claim", make.request("gpu", 4), make.required("NUMANode", "gpu"))
    assert codes(planned(make.snapshot(devices, [busy, claim]))) == [Code.TOPOLOGY_UNSATISFIED]


def test_a24_all_takes_exactly_the_asked_kind_and_is_never_met_by_none() -> None:
    claim = make.claim("claim", make.everything("gpu"))
    answer = planned(make.snapshot([*make.flat("a", 0, 3), *make.flat("b", 8, 8)], [claim]))
    assert devices_of(answer) == [f"gpu-{at}" for at in range(8)]
    assert codes(planned(make.snapshot(make.flat("a", 0, 3), [claim]))) == [Code.INSUFFICIENT_DEVICES]


def test_a25_what_counts_as_free_is_what_can_be_given() -> None:
    standing = [Standing.UNHEALTHY] * 2 + [Standing.OFFERED] * 6
    devices = [make.device(f"gpu-{at}", standing=stand) for at, stand in enumerate(standing)]
    claims = [make.holding("c0", devices, created=1.0), make.claim("claim", make.request("gpu", 6))]
    for labels in ({}, {"changed": "yes"}):
        answer = planned(make.snapshot(devices, claims, nodes=[make.node(labels=labels)]))
        assert codes(answer) == [Code.INSUFFICIENT_DEVICES]
        counts = answer.pools[make.POOL].counts["gpu"]
        assert (counts.capacity, counts.allocated, counts.free) == (8, 8, 0)


def test_a27_c37_a_failed_attempt_leaves_no_residue() -> None:
    memo = Memo()
    devices = [device for number in range(6) for device in make.rails(f"n{number}")]
    fails = make.pairs("claim", 8, replicas=7)
    planned(make.snapshot(devices, [fails]), memo)
    fits = make.snapshot(devices, [make.pairs("claim", 8, replicas=6)])
    again = planned(fits, memo)
    assert repr(again) == repr(planned(fits))
    assert len(again.claims[fails.uid].placements) == 6


def test_c22_one_dead_card_keeps_the_other_three_in_service() -> None:
    devices = [
        make.device(f"gpu-{at}", standing=Standing.UNHEALTHY if at == 3 else Standing.OFFERED) for at in range(4)
    ]
    answer = planned(make.snapshot(devices, [make.claim("claim", make.request("gpu", 3))]))
    assert devices_of(answer) == ["gpu-0", "gpu-1", "gpu-2"]


def test_d7_odd_inputs_end() -> None:
    odd: Mapping[str, Sequence[Claim]] = {
        "no replicas": [make.claim(replicas=0)],
        "negative priority": [make.claim(priority=-(2**31))],
        "many replicas and no device": [make.claim(replicas=4096)],
        "more than there can be": [make.claim("claim", make.request("gpu", 10**9))],
    }
    for claims in odd.values():
        for given in ([], make.flat(gpus=2)):
            planned(make.snapshot(given, claims))


@pytest.mark.parametrize("report", ["d13", "f9"])
def test_d13_f9_who_waits_for_devices_on_their_way_back_holds_up_nobody_who_fits(report: str) -> None:
    """The first of the queue needs eight and six are free, because a claim does not end. Others, of the same kind and
    of another one, are served, and the counts stay true."""
    gpus, nics = make.flat(), make.flat(gpus=0, nics=2)
    leaving = replace(make.holding("leaving", gpus[:2], created=1.0), deleting=True)
    head = make.claim("head", make.request("gpu", 8), created=2.0, priority=5)
    small = [make.claim(f"small-{number}", created=3.0 + number) for number in range(4)]
    other = make.claim("other", make.request("nic", 2), created=9.0)
    alone = planned(make.snapshot([*gpus, *nics], [leaving, head]))
    assert codes(alone, "head")[0] is Code.DEVICE_RELEASING
    answer = planned(make.snapshot([*gpus, *nics], [leaving, head, *small, other]))
    assert not answer.claims[head.uid].placements
    assert all(answer.claims[one.uid].placements for one in (*small, other))
    counts = answer.pools[make.POOL].counts["gpu"]
    assert (counts.releasing, counts.allocated, counts.free) == (2, 4, 2)


def e9_snapshot() -> Snapshot:
    """Eight nodes of four GPUs each: three full, two with some left, one unhealthy, one cordoned, one wired in
    halves.
    """
    devices, claims = [], []
    for number in range(8):
        halves = 2 if number == 7 else 4
        bad = Standing.UNHEALTHY if number == 5 else Standing.OFFERED
        gpus = [
            make.device(f"gpu-{at}", f"n{number}", numa=at // halves, standing=bad if at == 0 else Standing.OFFERED)
            for at in range(4)
        ]
        devices += gpus
        taken = {0: 4, 1: 4, 2: 4, 3: 1, 4: 2}.get(number, 0)
        if taken:
            claims.append(make.holding(f"other-{number}", gpus[:taken], created=1.0))
    claims.append(make.claim("claim", make.request("gpu", 4), make.required("NUMANode", "gpu")))
    return make.snapshot(devices, claims, nodes=[make.node("n6", unschedulable=True)])


def test_e9_every_node_is_counted_in_a_class_and_each_class_with_a_remedy_has_its_reason() -> None:
    answer = planned(e9_snapshot())
    assert reasons(answer)[0].message.endswith(
        "; 8 nodes: 3 full, 2 fragmented (max 3 of 4), 1 unhealthy, 1 cordoned, 1 topology"
    )
    assert [(reason.code, reason.nodes) for reason in reasons(answer)] == [
        (Code.TOPOLOGY_UNSATISFIED, 1),
        (Code.NODE_UNAVAILABLE, 1),
        (Code.UNHEALTHY, 1),
    ]
    assert answer.claims[ClaimUID("uid-claim")].nearest == "fits with scope Node instead of NUMANode"


def test_e10_names_with_dots_and_slashes_stand_in_messages_as_they_are() -> None:
    attribute = "rdma.example.com/fabric.rail.index"
    devices = [make.device(f"nic-{at}") for at in range(2)]
    claim = make.claim("claim", make.request("nic", 2), make.match(attribute, "nic"))
    (reason,) = reasons(planned(make.snapshot(devices, [claim])))
    assert f"{attribute} missing on 2 of 2 candidates" in reason.message


def test_e11_a_claim_that_waits_has_no_placement() -> None:
    claim = make.claim("claim", make.request("gpu", 9))
    answer = planned(make.snapshot(make.flat(), [claim])).claims[claim.uid]
    assert (answer.placements, answer.gap) == ((), None)


def test_e14_unhealthy_devices_are_not_free_and_no_count_goes_below_zero() -> None:
    for standings in product((Standing.OFFERED, Standing.UNHEALTHY, Standing.MISSING), repeat=3):
        devices = [make.device(f"gpu-{at}", standing=standing) for at, standing in enumerate(standings)]
        for held in (pair for size in range(4) for pair in combinations(devices, size)):
            claims = [make.holding("other", held, created=1.0)] if held else []
            counts = planned(make.snapshot(devices, claims)).pools[make.POOL].counts["gpu"]
            offered = sum(device.standing is Standing.OFFERED and device not in held for device in devices)
            assert (counts.capacity, counts.free) == (3, offered)


def test_a31_a_claim_is_not_bound_where_the_host_has_no_room_for_its_pod() -> None:
    """The one free GPU is on a node without a core left: it is not held, who needs no core gets it, and the reason says
    what is missing. Once a core is free there, the claim gets the GPU.
    """
    devices = [*make.flat("node-1", 1), *make.flat("node-2", 1)]
    other = make.holding("other", [devices[1]], created=1.0)
    claim = make.claim("claim", make.request("gpu"), host=HostAsk(4000, 1 << 30))

    def cluster(used: int, *claims: Claim) -> Snapshot:
        nodes = [
            make.node("node-1", cpu_milli=8000, memory_bytes=1 << 40, cpu_used_milli=used),
            make.node("node-2", cpu_milli=8000, memory_bytes=1 << 40),
        ]
        return make.snapshot(devices, claims, nodes=nodes)

    full = planned(cluster(8000, other, claim))
    assert codes(full) == [Code.HOST_RESOURCES]
    assert full.pools[make.POOL].counts["gpu"].free == 1
    assert devices_of(planned(cluster(8000, other, claim, make.claim("small", make.request("gpu")))), "small")
    assert devices_of(planned(cluster(4000, other, claim))) == [devices[0].id.device]


def test_f20_both_requests_of_a_claim_see_the_same_free_devices() -> None:
    gpus, nics = make.flat(gpus=2), make.flat(gpus=0, nics=2)
    before = [make.holding("old", [gpus[0], nics[0]], created=1.0), make.pairs("claim", 2)]
    assert codes(planned(make.snapshot([*gpus, *nics], before))) == [Code.INSUFFICIENT_DEVICES]
    assert len(devices_of(planned(make.snapshot([*gpus, *nics], before[1:])))) == 4


def first_root(placement: Placement, devices: Mapping[DeviceID, Device]) -> set[object]:
    return {devices[given.id].attributes[make.ROOT] for given in placement.devices}


def test_p4d_four_local_pairs_and_then_no_nic_is_left() -> None:
    """Four RDMA NICs on a node of eight GPUs: four claims are local, the fifth waits, whether it insists or not."""
    node = make.shared_roots()
    by_id = {device.id: device for device in node}
    for line in (make.required("PCIeRoot", "gpu", "nic"), make.preferred("PCIeRoot", "gpu", "nic")):
        answer = planned(make.snapshot(node, [make.pairs(f"c{number}", 1, line) for number in range(5)]))
        for number in range(4):
            (placement,) = answer.claims[ClaimUID(f"uid-c{number}")].placements
            assert len(first_root(placement, by_id)) == 1
        assert codes(answer, "c4") == [Code.INSUFFICIENT_DEVICES]
        assert "0 of 4 free" in reasons(answer, "c4")[0].message
    alone = planned(make.snapshot(node, [make.claim(f"c{number}") for number in range(8)]))
    assert all(claim.placements for claim in alone.claims.values())


GB200 = [make.device(f"gpu-{at}", root=f"gpu-root-{at}") for at in range(4)]
GB200 += [make.device(f"nic-{at}", root=f"nic-root-{at}") for at in range(4)]


@pytest.mark.parametrize(
    ("scope", "code"),
    [
        (Scope.PCIE_ROOT, Code.TOPOLOGY_UNSATISFIED),
        (Scope.PCIE_SWITCH, Code.TOPOLOGY_UNKNOWN),
        (Scope.NUMA_NODE, Code.TOPOLOGY_UNKNOWN),
    ],
)
def test_gb200_says_what_is_denied_what_is_unknown_and_that_the_node_would_do(scope: Scope, code: Code) -> None:
    claim = make.pairs("claim", 1, make.required(scope, "gpu", "nic"))
    answer = planned(make.snapshot(GB200, [claim]))
    assert codes(answer) == [code]
    assert answer.claims[claim.uid].nearest == f"fits with scope Node instead of {scope}"
