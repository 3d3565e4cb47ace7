"""`firstOf`: which ways there are, and that the first that fits anywhere is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support import checks, make

from adjoin_allocator import Affinity, Alternative, Claim, ClaimUID, Code, HostAsk, Plan, Request, Snapshot, plan
from adjoin_allocator.alternatives import WAYS, count_ways, label, most_wanted, ways
from adjoin_allocator.cel import compile_selector

FOUR, TWO, ONE = (Alternative(name, count) for name, count in (("four", 4), ("two", 2), ("one", 1)))


def choice(*alternatives: Alternative, name: str = "gpu") -> Request:
    return Request(name, name, first_of=alternatives)


def planned(snapshot: Snapshot) -> Plan:
    answer = plan(snapshot, make.NOW)
    checks.assert_valid(snapshot, answer)
    return answer


def given(answer: Plan, claim: Claim) -> list[list[str]]:
    """By replica its devices as `request=device`."""
    return [
        [f"{one.request}={one.id.device}" for one in placement.devices]
        for placement in answer.claims[claim.uid].placements
    ]


# Which ways there are


def test_the_first_request_decides_first() -> None:
    requests = (choice(FOUR, TWO), make.request("disk"), choice(TWO, ONE, name="nic"))
    found = [[label(one) for one in way] for way in ways(requests)]
    assert found == [
        ["gpu/four", "disk", "nic/two"],
        ["gpu/four", "disk", "nic/one"],
        ["gpu/two", "disk", "nic/two"],
        ["gpu/two", "disk", "nic/one"],
    ]
    assert ways(requests)[0] == most_wanted(requests)
    assert count_ways(requests) == 4


def test_a_way_asks_for_what_its_alternative_says() -> None:
    selector = compile_selector("true")
    every = Alternative("every", all_devices=True, selectors=(selector,))
    (way,) = ways((choice(every),))
    assert way == (Request("gpu", "gpu", 0, all_devices=True, selectors=(selector,), first_of=(every,)),)
    assert ways(way) == (way,), "what is chosen is chosen"


def test_without_alternatives_there_is_one_way_and_it_is_what_was_asked() -> None:
    requests = (make.request("gpu"),)
    assert ways(requests)[0] is requests
    assert most_wanted(requests) is requests


def test_too_many_ways_are_refused_by_counting() -> None:
    many = tuple(Alternative(f"a{at}") for at in range(8))
    requests = tuple(Request(name, "gpu", first_of=many) for name in "abc")
    assert count_ways(requests) == 512 > WAYS
    with pytest.raises(ValueError, match="512 ways"):
        ways(requests)
    claim = make.claim("claim", *requests)
    (reason,) = planned(make.snapshot(make.flat(), [claim])).claims[claim.uid].reasons
    assert reason.code is Code.INVALID_CLAIM
    assert reason.message == "its alternatives make 512 ways of serving it, and at most 256 are tried"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        pytest.param(choice(ONE, ONE), "request gpu has two alternatives of one name", id="two of one name"),
        pytest.param(choice(Alternative("none", 0)), "request gpu/none asks for 0 devices", id="none of it"),
    ],
)
def test_alternatives_that_cannot_be_read(request_: Request, words: str) -> None:
    claim = make.claim("claim", request_)
    (reason,) = planned(make.snapshot(make.flat(), [claim])).claims[claim.uid].reasons
    assert (reason.code, reason.message) == (Code.INVALID_CLAIM, words)


# Which one is taken


@pytest.mark.parametrize(
    ("gpus", "asked", "replicas", "told"),
    [
        pytest.param(4, [choice(FOUR, TWO)], 1, [["gpu/four"] * 4], id="the first if it fits"),
        pytest.param(3, [choice(FOUR, TWO)], 1, [["gpu/two"] * 2], id="else the next"),
        pytest.param(
            7,
            [choice(FOUR, TWO, ONE)],
            3,
            [["gpu/four"] * 4, ["gpu/two"] * 2, ["gpu/one"]],
            id="each replica for itself",
        ),
        pytest.param(
            3, [choice(FOUR, TWO, ONE)], 3, [["gpu/two"] * 2, ["gpu/one"]], id="as many replicas as fit in any way"
        ),
        pytest.param(
            6,
            [choice(FOUR, ONE), Request("more", "gpu", first_of=(FOUR, TWO))],
            1,
            [["gpu/four"] * 4 + ["more/two"] * 2],
            id="the first request's wish before the second's",
        ),
        pytest.param(
            4,
            [choice(FOUR, TWO), make.required("NVLink", "gpu")],
            1,
            [],
            id="a line holds whatever is chosen",
        ),
        pytest.param(
            4,
            [choice(FOUR, ONE), make.required("NVLink", "gpu")],
            1,
            [["gpu/one"]],
            id="a line over one device is met",
        ),
    ],
)
def test_the_first_that_fits(
    gpus: int, asked: Sequence[Request | Affinity], replicas: int, told: list[list[str]]
) -> None:
    claim = make.claim("claim", *asked, replicas=replicas)
    answer = planned(make.snapshot(make.flat(gpus=gpus), [claim]))
    assert [[one.partition("=")[0] for one in replica] for replica in given(answer, claim)] == told


def test_a_better_way_on_a_far_node_beats_a_worse_one_near() -> None:
    devices = [*make.rails("a", gpus=2), *make.flat("b", gpus=4, nics=4)]
    claim = make.claim("claim", choice(FOUR, TWO), choice(FOUR, TWO, name="nic"))
    (placement,) = planned(make.snapshot(devices, [claim])).claims[claim.uid].placements
    assert placement.node == "b"
    assert placement.locality["gpu-nic"] == "SYS", "levels are told by request, whatever way it is served in"


def test_an_alternative_has_selectors_of_its_own() -> None:
    devices = [make.device(f"gpu-{at}", attributes={"x.io/fast": at == 1}) for at in range(3)]
    fast = Alternative("fast", selectors=(compile_selector("device.attributes['x.io'].fast"),))
    claim = make.claim("claim", choice(fast, ONE), replicas=2)
    assert given(planned(make.snapshot(devices, [claim])), claim) == [["gpu/fast=gpu-1"], ["gpu/one=gpu-0"]]


def test_when_no_way_fits_the_most_wanted_one_says_why_and_any_may_say_what_would_help() -> None:
    claim = make.claim("claim", choice(FOUR, Alternative("three", 3)))
    told = planned(make.snapshot(make.flat(gpus=2), [claim])).claims[claim.uid]
    assert [reason.code for reason in told.reasons] == [Code.INSUFFICIENT_DEVICES]
    assert told.reasons[0].message.startswith(
        "none of 2 ways fits, the most wanted one: needs 4 gpu/four, best node has 2"
    )
    assert told.nearest == "fits with count 2 instead of 4 in request gpu/four"


def test_others_see_what_it_wants_most() -> None:
    """Four are wanted by somebody who would take one: a single spares the node that has four free."""
    devices = [*make.flat("a", 4), *make.flat("b", 3)]
    busy = {one.id: make.hold() for one in make.flat("c", 1)}
    single, waiting = make.claim("single", priority=1), make.claim("waiting", choice(FOUR, ONE))
    answer = planned(make.snapshot(devices, [single, waiting], holds=busy))
    assert [one.node for one in answer.claims[single.uid].placements] == ["b"]
    assert given(answer, waiting)[0][0] == "gpu/four=gpu-0"


# Host resources alone


HOST = HostAsk(cpu_milli=1000)


def test_a_claim_for_host_resources_alone_takes_a_node_and_no_device() -> None:
    claim = replace(make.claim("claim", host=HOST, replicas=2), requests=())
    busy = make.holding("other", make.flat("a", 1), created=1.0)
    snapshot = make.snapshot([*make.flat("a", 2), *make.flat("b", 2)], [busy, claim])
    answer = planned(snapshot)
    assert [(one.node, one.devices) for one in answer.claims[claim.uid].placements] == [("b", ()), ("b", ())]
    assert answer.pools[make.POOL].counts["gpu"].free == 3


def test_where_no_node_is_open_it_waits_for_one() -> None:
    claim = replace(make.claim("claim", host=HOST), requests=())
    cordoned = make.node("a", unschedulable=True)
    told = planned(make.snapshot(make.flat("a", 2), [claim], nodes=[cordoned])).claims[claim.uid]
    assert [(reason.code, reason.nodes) for reason in told.reasons] == [(Code.NODE_UNAVAILABLE, 1)]
    empty = planned(make.snapshot([], [claim])).claims[ClaimUID("uid-claim")]
    assert [(reason.code, reason.message) for reason in empty.reasons] == [
        (Code.NODE_UNAVAILABLE, f"pool {make.POOL} has no nodes")
    ]
