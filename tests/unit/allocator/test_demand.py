"""What is left behind is weighed by what others want: who stands aside for whom, and that nothing of it is stale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support import checks, make

from adjoin_allocator import Affinity, Claim, Device, Memo, Plan, Policy, Snapshot, plan
from adjoin_allocator.demand import WANTS, Market, want

NEAR = make.required("PCIeRoot", "gpu", "nic")
P4D = make.shared_roots()
"""Four root complexes of two GPUs and a NIC each."""


def planned(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    answer = plan(snapshot, make.NOW, memo)
    checks.assert_valid(snapshot, answer)
    return answer


def devices_of(answer: Plan, claim: str) -> list[str]:
    found = answer.claims.get(make.claim(claim).uid)
    return [
        f"{given.id.pool}/{given.id.device}" if placement.node != make.NODE else given.id.device
        for placement in (found.placements if found is not None else ())
        for given in placement.devices
    ]


def gpus(name: str, count: int = 1, **more: int) -> Claim:
    return make.claim(name, make.request("gpu", count), **more)


@pytest.mark.parametrize(
    ("devices", "claims", "given"),
    [
        pytest.param(
            P4D,
            [*(gpus(f"a{at}") for at in range(4)), *(make.pairs(f"b{at}", 1, NEAR) for at in range(4))],
            {
                **{f"a{at}": [f"gpu-{2 * at}"] for at in range(4)},
                **{f"b{at}": [f"gpu-{2 * at + 1}", f"nic-{at}"] for at in range(4)},
            },
            id="singles leave a GPU on each root complex for the pairs",
        ),
        pytest.param(
            P4D,
            [gpus("a", replicas=4), make.pairs("b", 4, make.preferred("PCIeRoot", "gpu", "nic"))],
            {
                "a": [f"gpu-{2 * at}" for at in range(4)],
                "b": [*(f"gpu-{2 * at + 1}" for at in range(4)), *(f"nic-{at}" for at in range(4))],
            },
            id="they do so for four pairs in one replica that would only like it",
        ),
        pytest.param(
            P4D,
            [gpus("a"), gpus("b"), make.claim("c", make.request("nic", 4))],
            {"a": ["gpu-0"], "b": ["gpu-1"], "c": [f"nic-{at}" for at in range(4)]},
            id="for NICs alone they keep together",
        ),
        pytest.param(
            [*make.flat("n4", 4), *make.flat("n3", 3)],
            [gpus("a"), gpus("b", 3), gpus("c", 3)],
            {"a": ["n4/gpu-0"], "b": ["n4/gpu-1", "n4/gpu-2", "n4/gpu-3"], "c": ["n3/gpu-0", "n3/gpu-1", "n3/gpu-2"]},
            id="a single leaves two places for three",
        ),
        pytest.param(
            [*make.flat("n4", 4), *make.flat("n3", 3)],
            [gpus("a"), gpus("b", 4)],
            {"a": ["n3/gpu-0"], "b": [f"n4/gpu-{at}" for at in range(4)]},
            id="it leaves the place for four when four are wanted",
        ),
        pytest.param(
            [*make.flat("n4", 4), *make.flat("n3", 3)],
            [gpus("a", 3, replicas=2), gpus("b")],
            {"a": ["n3/gpu-0", "n3/gpu-1", "n3/gpu-2", "n4/gpu-0", "n4/gpu-1", "n4/gpu-2"], "b": ["n4/gpu-3"]},
            id="further replicas of the same claim want places too",
        ),
        pytest.param(
            [*make.flat("n4", 4), *make.flat("m3", 3), *make.flat("n3", 3)],
            [gpus("a"), *(gpus(f"b{at}", 2) for at in range(3)), gpus("c", 3)],
            {"a": ["m3/gpu-0"], "b0": ["m3/gpu-1", "m3/gpu-2"]},
            id="three who want two outweigh one who wants three",
        ),
        pytest.param(
            [make.device(f"gpu-{at}", numa=at // 2, attributes={"dra.net/rail": at % 2}) for at in range(4)],
            [gpus("a"), make.claim("b", make.request("gpu", 2), make.match("dra.net/rail", "gpu"))],
            {"a": ["gpu-0"], "b": ["gpu-1", "gpu-3"]},
            id="one value for all is something to be left",
        ),
        pytest.param(
            [make.device(f"gpu-{at}", attributes={"dra.net/fast": at == 0}) for at in range(2)],
            [gpus("a"), make.claim("b", make.selecting("gpu", "device.attributes['dra.net'].fast"))],
            {"a": ["gpu-1"], "b": ["gpu-0"]},
            id="the only device that another's selector matches is left",
        ),
        pytest.param(
            make.flat(gpus=3, nics=1),
            [make.claim("a", make.request("nic")), make.claim("b", make.everything(), make.request("nic", 2))],
            {"a": ["nic-0"], "b": []},
            id="what could never be placed here is not waited for",
        ),
    ],
)
def test_who_stands_aside(devices: Sequence[Device], claims: Sequence[Claim], given: dict[str, list[str]]) -> None:
    """Claims are served in the order in which they stand; none of the later ones is in the way of an earlier one."""
    ordered = [replace(claim, created=make.NOW + at) for at, claim in enumerate(claims)]
    answer = planned(make.snapshot(devices, ordered))
    assert {claim: devices_of(answer, claim) for claim in given} == given


@pytest.mark.parametrize(
    ("placed", "given"),
    [
        pytest.param(0, "n3", id="with no other demand the smaller node is broken"),
        pytest.param(9, "n4", id="nine placed claims for three show that places for three are asked for"),
    ],
)
def test_placed_claims_count(placed: int, given: str) -> None:
    held = [make.flat(f"held-{number}", 3) for number in range(placed)]
    others = [make.holding(f"held-{number}", devices, created=1.0) for number, devices in enumerate(held)]
    devices = [device for node in (*held, make.flat("n4", 4), make.flat("n3", 3)) for device in node]
    assert devices_of(planned(make.snapshot(devices, [*others, gpus("a")])), "a") == [f"{given}/gpu-0"]


def test_a_claim_that_goes_wants_nothing() -> None:
    devices = [*make.flat("n4", 4), *make.flat("n3", 3)]
    assert devices_of(planned(make.snapshot(devices, [gpus("a"), gpus("b", 3, deleting=True)])), "a") == ["n3/gpu-0"]


def test_a_distance_is_never_given_up_for_others() -> None:
    """Near pairs before all; among equally near ones the single leaves what others want."""
    claims = [
        make.pairs("a", 1, created=1.0),
        *(make.claim(f"b{at}", make.request("nic", 4), created=2.0) for at in range(9)),
    ]
    assert devices_of(planned(make.snapshot(P4D, claims)), "a") == ["gpu-0", "nic-0"]


def test_a_memo_never_serves_a_place_that_was_chosen_beside_others() -> None:
    """The same claim in the same machine, while others come and go; each answer is that of a fresh memo."""
    memo = Memo()
    alone = make.snapshot(P4D, [gpus("a", replicas=2, created=1.0)])
    beside = [make.pairs(f"b{at}", 1, NEAR, created=2.0) for at in range(4)]
    given = []
    for claims in ((), beside, (), beside[:1], beside):
        snapshot = replace(alone, claims=(*alone.claims, *claims))
        given.append(devices_of(planned(snapshot, memo), "a"))
        assert repr(planned(snapshot, memo)) == repr(planned(snapshot))
    assert given == [["gpu-0", "gpu-1"], ["gpu-0", "gpu-2"], ["gpu-0", "gpu-1"], ["gpu-0", "gpu-2"], ["gpu-0", "gpu-2"]]


def test_only_so_many_wants_are_weighed_and_those_of_most_weight() -> None:
    market = Market()
    for count in range(1, WANTS + 9):
        found = want(gpus("a", count).requests, ())
        assert found is not None
        market.add(found, 1 if count < 9 else 2, 0)
    assert [wanted.want.counts for wanted in market.open().beside(None)] == [(count,) for count in range(9, WANTS + 9)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(gpus("a"), make.claim("a", make.request("card", kind="gpu")), True, id="names of requests"),
        pytest.param(gpus("a"), gpus("a", 2), False, id="counts"),
        pytest.param(make.pairs("a"), make.pairs("a", 1, NEAR), False, id="lines"),
        pytest.param(gpus("a"), make.claim("a", make.everything()), False, id="all or one"),
        pytest.param(make.pairs("a"), make.pairs("a", 1, make.required("Node", "gpu", "nic")), True, id="a whole node"),
    ],
)
def test_what_makes_two_wants_one(one: Claim, other: Claim, same: bool) -> None:
    assert (want(one.requests, one.affinity) == want(other.requests, other.affinity)) is same


def test_values_of_a_list_that_the_same_devices_share_count_once() -> None:
    """A GPU with two rails is worth no more to others than one with a single rail, also where a NIC has one of them."""
    rail = "dra.net/rail"
    devices = [
        make.device("gpu-0", root="r0", attributes={rail: (0, 1)}),
        make.device("gpu-1", root="r0", attributes={rail: 2}),
        make.device("nic-0", root="r0", attributes={rail: 0}),
    ]
    asked = make.claim("a", Affinity(("gpu",), Policy.MATCH, None, rail), replicas=2)
    given = plan(make.snapshot(devices, [asked]), make.NOW).claims[asked.uid].placements
    assert [device.id.device for placement in given for device in placement.devices] == ["gpu-0", "gpu-1"]
