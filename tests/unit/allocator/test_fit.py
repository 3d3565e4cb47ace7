"""One replica in one node: exactly the choice that trying everything finds, and few steps to find it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support import checks, make, oracle, strategies
from tests.support.shared import SHARED, needs_shared, shared

from adjoin_allocator import (
    Affinity,
    Claim,
    ClaimUID,
    Device,
    MatrixText,
    Memo,
    Placement,
    Plan,
    Request,
    Snapshot,
    plan,
)
from adjoin_allocator import fit as fit_module
from adjoin_allocator.matrix import MatrixError, parse_matrix
from adjoin_allocator.results import Code

Sets = tuple[str, tuple[tuple[object, ...], ...], tuple[str, ...]]

THOROUGH = settings(deadline=None, suppress_health_check=list(HealthCheck))


def chosen(claim: Claim, placement: Placement) -> Sets:
    given_: dict[str, list[object]] = {request.name: [] for request in claim.requests}
    called = dict.fromkeys(given_, "")
    for device in placement.devices:
        name, _, alternative = device.request.partition("/")
        given_[name].append(device.id)
        called[name] = alternative
    return placement.node, tuple(map(tuple, given_.values())), tuple(called.values())


def assert_as_the_oracle(snapshot: Snapshot) -> None:
    answer = plan(snapshot, make.NOW)
    checks.assert_valid(snapshot, answer)
    by_uid = {claim.uid: claim for claim in snapshot.claims}
    for uid, wanted in oracle.decide(snapshot, make.NOW).items():
        placed = [chosen(by_uid[uid], placement) for placement in answer.claims[uid].placements]
        assert placed == [place for place in wanted if place is not None]


@settings(THOROUGH, max_examples=300)
@given(strategies.snapshots())
def test_random_machines_and_claims(snapshot: Snapshot) -> None:
    assert_as_the_oracle(snapshot)


@settings(THOROUGH, max_examples=150)
@given(strategies.uneven())
def test_different_numbers_of_gpus_and_nics(snapshot: Snapshot) -> None:
    assert_as_the_oracle(snapshot)


@settings(THOROUGH, max_examples=150)
@given(strategies.listed())
def test_devices_on_several_numa_nodes(snapshot: Snapshot) -> None:
    assert_as_the_oracle(snapshot)


@pytest.mark.slow
@settings(THOROUGH, max_examples=5000)
@given(st.one_of(strategies.snapshots(), strategies.uneven(), strategies.listed(), strategies.snapshots(1, 10, 1)))
def test_thousands_more(snapshot: Snapshot) -> None:
    assert_as_the_oracle(snapshot)


def names(answer: Plan, claim: str = "claim") -> list[str]:
    (placement,) = answer.claims[ClaimUID(f"uid-{claim}")].placements
    return [given.id.device for given in placement.devices]


def locality(answer: Plan) -> dict[str, str]:
    (placement,) = answer.claims[ClaimUID("uid-claim")].placements
    return dict(placement.locality)


GPU, NIC = make.request("gpu"), make.request("nic")
SWITCHES = make.rails(gpus=4, nics_each=1)
PAIRS_OF_NVLINK = """
	GPU0	GPU1	GPU2	GPU3
GPU0	 X 	SYS	NV12	SYS
GPU1	SYS	 X 	SYS	NV12
GPU2	NV12	SYS	 X 	SYS
GPU3	SYS	NV12	SYS	 X
"""


@pytest.mark.parametrize(
    ("devices", "asked", "given_"),
    [
        pytest.param(SWITCHES[1:], (GPU, NIC), ["gpu-1", "nic-1"], id="the NIC on the GPU's switch"),
        pytest.param(
            [*SWITCHES[:1], *SWITCHES[3:]],
            (GPU, NIC),
            ["gpu-2", "nic-2"],
            id="not the first GPU when a later one has a NIC beside it",
        ),
        pytest.param(
            SWITCHES,
            (make.request("gpu", 2), make.request("nic", 1)),
            ["gpu-0", "gpu-1", "nic-0"],
            id="two GPUs in one NUMA node share the NIC of one",
        ),
        pytest.param(
            [make.device("gpu-0", performance=9), make.device("gpu-1", performance=3)],
            (GPU,),
            ["gpu-1"],
            id="the slower device, if nothing else tells them apart",
        ),
        pytest.param(
            [make.device("gpu-0", priority=1), make.device("gpu-1", priority=2)],
            (GPU,),
            ["gpu-1"],
            id="then the class of higher priority",
        ),
        pytest.param(
            make.flat(gpus=12), (make.request("gpu", 11),), [f"gpu-{i}" for i in range(11)], id="natural order"
        ),
        pytest.param(
            make.flat(gpus=3),
            (make.request("a", 2, kind="gpu"), make.request("b", 1, kind="gpu")),
            ["gpu-0", "gpu-1", "gpu-2"],
            id="two requests for one kind get different devices",
        ),
        pytest.param(
            [make.device("gpu-0", numa=0), make.device("gpu-1", numa=1), make.device("gpu-2", numa=1)],
            (make.selecting("gpu", "device.attributes['resource.kubernetes.io'].numaNode == 1"),),
            ["gpu-1"],
            id="only what the selector matches",
        ),
        pytest.param(
            [make.device(f"gpu-{at}", attributes={"x.io/old": at < 2}) for at in range(3)],
            (
                make.request("any", kind="gpu"),
                make.selecting("old", "device.attributes['x.io'].old", count=2, kind="gpu"),
            ),
            ["gpu-2", "gpu-0", "gpu-1"],
            id="a request that is easy to please leaves the others what they need",
        ),
        pytest.param(
            SWITCHES,
            (NIC, make.request("gpu", 2), make.required("PCIeSwitch", "gpu", "nic")),
            None,
            id="one NIC cannot be on the switches of two GPUs",
        ),
        pytest.param(
            make.rails(gpus=2, nics_each=4),
            (make.request("gpu", 2), make.request("nic", 8), make.required("PCIeSwitch", "nic", "gpu")),
            ["gpu-0", "gpu-1", *(f"nic-{i}" for i in range(8))],
            id="four NICs on the switch of each GPU",
        ),
        pytest.param(
            make.shared_roots(roots=3),
            (make.request("gpu", 3), make.request("nic", 3), make.required("PCIeRoot", "gpu", "nic")),
            ["gpu-0", "gpu-2", "gpu-4", "nic-0", "nic-1", "nic-2"],
            id="a GPU per root complex, since each has one NIC",
        ),
    ],
)
def test_choice(devices: Sequence[Device], asked: Sequence[Request | Affinity], given_: list[str] | None) -> None:
    snapshot = make.snapshot(devices, [make.claim("claim", *asked)])
    answer = plan(snapshot, make.NOW)
    checks.assert_valid(snapshot, answer)
    if given_ is None:
        assert not answer.claims[snapshot.claims[0].uid].placements
    else:
        assert names(answer) == given_


def test_facts_that_contradict_each_other_are_no_tree_and_cost_no_choice() -> None:
    """Three GPUs on one switch and three under one root complex, two of them in both; then only two are free."""
    places = [("s0", "r0"), ("s0", "r0"), ("s1", "r0"), ("s0", "r1"), (None, None)]
    gpus = [make.device(f"gpu-{at}", switch=switch, root=root, numa=0) for at, (switch, root) in enumerate(places)]
    for busy in ([0, 1, 2], [0, 1, 3], [1, 2, 3], [4, 3, 2]):
        snapshot = make.snapshot(
            gpus, [make.claim("claim", make.request("gpu", 2))], holds={gpus[at].id: make.hold() for at in busy}
        )
        assert_as_the_oracle(snapshot)
        assert len(names(plan(snapshot, make.NOW))) == 2


@pytest.mark.parametrize(
    ("busy", "asked", "given_"),
    [
        pytest.param([0], (GPU,), ["gpu-1"], id="a single goes where the switch is broken already"),
        pytest.param([0, 1], (GPU,), ["gpu-2"], id="then where the root complex is"),
        pytest.param([4], (GPU,), ["gpu-5"], id="and leaves the whole NUMA node alone"),
        pytest.param([0], (make.request("gpu", 2),), ["gpu-2", "gpu-3"], id="two keep together, on a whole switch"),
    ],
)
def test_what_is_left_behind(busy: list[int], asked: Sequence[Request], given_: list[str]) -> None:
    gpus = [make.device(f"gpu-{at}", switch=f"s{at // 2}", root=f"r{at // 4}", numa=at // 8) for at in range(16)]
    others = [make.holding("other", [gpus[at] for at in busy], created=1.0)]
    assert names(plan(make.snapshot(gpus, [*others, make.claim("claim", *asked)]), make.NOW)) == given_


def test_nvlink_partners_by_matrix() -> None:
    pool = make.pool(matrices={make.NODE: MatrixText("wires/topo", PAIRS_OF_NVLINK)})
    snapshot = make.snapshot(make.flat(gpus=4), [make.claim("claim", make.request("gpu", 2))], pools=[pool])
    answer = plan(snapshot, make.NOW)
    assert names(answer) == ["gpu-0", "gpu-2"]
    assert locality(answer) == {"gpu-gpu": "NVLink"}


@pytest.mark.parametrize(
    ("devices", "asked", "told"),
    [
        pytest.param(
            SWITCHES,
            (make.request("gpu", 2), make.request("nic", 2)),
            {"gpu-gpu": "NODE", "gpu-nic": "PIX", "nic-nic": "NODE"},
            id="of each request and of both together",
        ),
        pytest.param(make.flat(gpus=1, nics=1), (GPU, NIC), {"gpu-nic": "SYS"}, id="nothing known is far"),
        *(
            pytest.param(
                [make.device(f"gpu-{at}", numa=each) for at, each in enumerate(numa)],
                (make.request("gpu", 3), make.preferred("NUMANode", "gpu")),
                {"gpu-gpu": level},
                id=f"lists that meet pair by pair and share {shared}",
            )
            for numa, level, shared in (
                (((0, 1), (1, 2), (0, 2)), "SYS", "no value"),
                (((0, 1), (1, 2), (1, 3)), "NODE", "a value"),
            )
        ),
        pytest.param(
            [
                make.device(f"gpu-{at}", root=root, numa=0)
                for at, root in enumerate((("a", "b"), ("b", "c"), ("a", "c")))
            ],
            (make.request("gpu", 3),),
            {"gpu-gpu": "NODE"},
            id="of one NUMA node without a common root complex",
        ),
        pytest.param(make.flat(gpus=1), (GPU,), {}, id="one device is near nothing"),
        pytest.param(
            make.shared_roots(roots=1), (make.request("gpu", 2), NIC), {"gpu-gpu": "PHB", "gpu-nic": "PHB"}, id="a root"
        ),
    ],
)
def test_locality(devices: Sequence[Device], asked: Sequence[Request], told: dict[str, str]) -> None:
    assert locality(plan(make.snapshot(devices, [make.claim("claim", *asked)]), make.NOW)) == told


def test_more_devices_than_asked_for_are_all_given_with_all() -> None:
    devices = make.flat(gpus=3, nics=2)
    assert names(plan(make.snapshot(devices, [make.claim("claim", make.everything())]), make.NOW)) == [
        "gpu-0",
        "gpu-1",
        "gpu-2",
    ]


MATRICES = sorted(path.name for path in (SHARED / "data/topo").glob("*.txt")) if SHARED else ["none"]

BIG = [
    pytest.param(make.rails(), 1, 1, 300, id="1+1 of 8+8"),
    pytest.param(make.rails(), 4, 4, 800, id="4+4 of 8+8"),
    pytest.param(make.rails(), 8, 8, 150, id="8+8 of 8+8"),
    pytest.param(make.rails(nics_each=2), 4, 4, 1_500, id="4+4 of 8+16"),
    pytest.param(make.rails(nics_each=4), 8, 32, 300, id="8+32 of 8+32"),
    pytest.param(make.rails(nics_each=4), 4, 16, 8_000, id="4+16 of 8+32"),
    pytest.param(make.rails(gpus=16), 8, 8, 8_000, id="8+8 of 16+16"),
    pytest.param(make.rails(gpus=16, nics_each=2), 8, 16, 20_000, id="8+16 of 16+32"),
    pytest.param(make.flat(gpus=64), 32, 0, 4_000, id="32 of 64 equal ones"),
]


@pytest.mark.parametrize(("devices", "gpus", "nics", "most"), BIG)
def test_large_nodes_take_few_states(devices: Sequence[Device], gpus: int, nics: int, most: int) -> None:
    asked = [make.request("gpu", gpus)] + ([make.request("nic", nics)] if nics else [])
    answer = plan(make.snapshot(devices, [make.claim("claim", *asked)]), make.NOW)
    assert len(names(answer)) == gpus + nics
    assert answer.stats.states <= most


@needs_shared
@pytest.mark.parametrize("name", MATRICES)
def test_machines_of_the_field_are_searched_in_few_states(name: str) -> None:
    text = shared(f"data/topo/{name}").read_text()
    try:
        matrix = parse_matrix(text)
    except MatrixError:
        pytest.skip("no matrix of nvidia-smi")
    devices = make.flat(gpus=len(matrix.gpus))
    for at, rdma in enumerate(matrix.nic_devices):
        devices.append(make.device(f"nic-{at}", attributes={"dra.net/rdmaDevice": rdma} if rdma else {}))
    pool = make.pool(matrices={make.NODE: MatrixText("wires/topo", text)})
    memo = Memo()
    for gpus, nics in ((1, 0), (2, 0), (3, 0), (4, 0), (1, 1), (2, 2), (3, 2), (2, 1), (4, 4), (8, 4), (8, 8)):
        if gpus > len(matrix.gpus) or nics > len(matrix.nics):
            continue
        asked = [make.request("gpu", gpus)] + ([make.request("nic", nics)] if nics else [])
        lines = [make.preferred("NVLink", "gpu")] + ([make.preferred("PCIeSwitch", "nic", "gpu")] if nics else [])
        for claim in (make.claim("claim", *asked), make.claim("claim", *asked, *lines)):
            for held in ([], devices[:1], devices[1:3]):
                others = [make.holding("other", held, created=1.0)] if held else []
                snapshot = make.snapshot(devices, [*others, claim], pools=[pool])
                answer = plan(snapshot, make.NOW, memo)
                checks.assert_valid(snapshot, answer)
                assert not answer.pools[make.POOL].mismatches
                assert answer.stats.states < 5_000


def test_a_refusal_by_counting_takes_no_state_at_all() -> None:
    devices = [device for device in make.rails() if device.id.device != "nic-7"]
    answer = plan(make.snapshot(devices, [make.pairs("claim", 8)]), make.NOW)
    assert answer.stats.states == 0


def test_a_search_that_grows_too_large_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_module, "STATE_LIMIT", 100)
    snapshot = make.snapshot(make.rails(), [make.pairs("claim", 4)])
    answer = plan(snapshot, make.NOW)
    checks.assert_valid(snapshot, answer)
    assert [reason.code for reason in answer.claims[snapshot.claims[0].uid].reasons] == [Code.SEARCH_LIMIT]


def test_a_small_memo_answers_like_a_large_one() -> None:
    small = Memo(bound=16)
    devices = [device for number in range(6) for device in make.rails(f"n{number}", gpus=2 + number)]
    claims = [make.pairs(f"c{number}", 1 + number % 3) for number in range(12)]
    snapshot = make.snapshot(devices, claims)
    assert repr(plan(snapshot, make.NOW, small)) == repr(plan(snapshot, make.NOW))


@settings(THOROUGH, max_examples=50)
@given(st.integers(0, 9), st.integers(1, 4))
@example(0, 1)
def test_the_second_of_two_twins_is_never_taken_first(lost: int, count: int) -> None:
    gpus = [gpu for at, gpu in enumerate(make.flat(gpus=10)) if at != lost]
    answer = plan(make.snapshot(gpus, [make.claim("claim", make.request("gpu", count))]), make.NOW)
    assert names(answer) == [gpu.id.device for gpu in gpus[:count]]
