"""`plan`: who is served, what stands and what comes back, and what changes nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import checks, make, oracle, strategies

from adjoin_allocator import (
    Affinity,
    Alternative,
    Claim,
    ClaimHold,
    ClaimUID,
    Code,
    Device,
    DeviceID,
    HoldKind,
    Memo,
    Plan,
    Policy,
    ReplicaState,
    Request,
    Scope,
    ShareAsk,
    Snapshot,
    Standing,
    plan,
)

SOME = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))


def planned(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    answer = plan(snapshot, make.NOW, memo)
    checks.assert_valid(snapshot, answer)
    return answer


def where(answer: Plan) -> Mapping[str, Sequence[tuple[int, str, tuple[str, ...]]]]:
    """By claim its new replicas: index, node, devices."""
    return {
        uid.removeprefix("uid-"): [
            (placement.index, placement.node, tuple(given.id.device for given in placement.devices))
            for placement in claim.placements
        ]
        for uid, claim in answer.claims.items()
    }


def codes(answer: Plan, claim: str) -> list[Code]:
    return [reason.code for reason in answer.claims[ClaimUID(f"uid-{claim}")].reasons]


# Who is served


def test_claims_are_served_by_priority_and_the_rest_waits() -> None:
    claims = [make.claim("low"), make.claim("high", priority=1), make.claim("old", created=1.0)]
    answer = planned(make.snapshot(make.flat(gpus=2), claims))
    assert where(answer) == {"low": [], "high": [(0, make.NODE, ("gpu-0",))], "old": [(0, make.NODE, ("gpu-1",))]}
    assert codes(answer, "low") == [Code.INSUFFICIENT_DEVICES]


def test_a_large_claim_that_does_not_fit_does_not_hold_up_a_small_one() -> None:
    claims = [make.claim("large", make.request("gpu", 3), created=1.0), make.claim("small")]
    assert where(planned(make.snapshot(make.flat(gpus=2), claims)))["small"]


def test_independent_replicas_are_placed_as_far_as_they_fit() -> None:
    claim = make.claim("claim", make.request("gpu", 2), replicas=4)
    answer = planned(make.snapshot([*make.flat("a", 4), *make.flat("b", 3)], [claim]))
    assert [(index, node) for index, node, _ in where(answer)["claim"]] == [(0, "b"), (1, "a"), (2, "a")]
    assert codes(answer, "claim") == [Code.INSUFFICIENT_DEVICES]
    assert answer.claims[claim.uid].gap is None


def test_a_complete_claim_is_not_spoken_of() -> None:
    gpus = make.flat(gpus=2)
    assert planned(make.snapshot(gpus, [make.holding("done", gpus[:1])])).claims == {}


def test_only_the_replicas_that_lack_are_placed() -> None:
    gpus = make.flat(gpus=4)
    claim = make.claim("claim", replicas=3, placed=(make.placed({"gpu": gpus[2:3]}, 1),))
    assert where(planned(make.snapshot(gpus, [claim]))) == {
        "claim": [(0, make.NODE, ("gpu-0",)), (2, make.NODE, ("gpu-1",))]
    }


def test_a_replica_being_released_is_there_until_it_is_gone() -> None:
    gpus = make.flat(gpus=2)
    claim = make.claim(placed=(make.placed({"gpu": gpus[:1]}, state=ReplicaState.RELEASING),))
    answer = planned(make.snapshot(gpus, [claim]))
    assert answer.claims == {}
    assert answer.pools[make.POOL].counts["gpu"].releasing == 1


def test_a_loser_of_a_conflict_is_planned_anew() -> None:
    gpus = make.flat(gpus=4)
    old, young = make.holding("old", gpus[:1], created=1.0), make.holding("young", gpus[:2], created=2.0)
    answer = planned(make.snapshot(gpus, [young, old]))
    assert answer.claims[young.uid].conflicts == (0,)
    assert where(answer) == {"young": [(0, make.NODE, ("gpu-2", "gpu-3"))]}


def test_a_claim_on_hold_waits_for_the_reason_it_has() -> None:
    claim = make.claim("claim", hold=ClaimHold("PodGated", "gate example.com/quota is on pod p"))
    answer = planned(make.snapshot(make.flat(), [claim]))
    (reason,) = answer.claims[claim.uid].reasons
    assert (reason.code, reason.message) == (Code.POD_GATED, "gate example.com/quota is on pod p")
    more = replace(claim, more_holds=(ClaimHold("NotAllowed", "so says its pool"),))
    assert codes(planned(make.snapshot(make.flat(), [more])), "claim") == [Code.POD_GATED, Code.NOT_ALLOWED]


@pytest.mark.parametrize(
    ("claim", "code", "words"),
    [
        pytest.param(make.claim(pool="nope"), Code.POOL_NOT_FOUND, "no DevicePool nope", id="a pool that is not there"),
        pytest.param(make.claim(pool=""), Code.POOL_NOT_FOUND, "no pool is named", id="no pool at all"),
        pytest.param(
            make.claim("claim", make.request("tpu")),
            Code.INVALID_CLAIM,
            "gpu, nic",
            id="a device the pool does not have",
        ),
        pytest.param(
            make.claim("claim", make.request(), make.required("Node", "gpu", "nic")),
            Code.INVALID_CLAIM,
            "names request nic",
            id="a line over a request that is not there",
        ),
        pytest.param(replace(make.claim(), requests=()), Code.INVALID_CLAIM, "no requests", id="no requests"),
        pytest.param(
            make.claim("claim", make.request(), make.request()), Code.INVALID_CLAIM, "one name", id="two of one name"
        ),
        pytest.param(
            make.claim("claim", make.request(), Affinity(("gpu",), Policy.MATCH, scope=Scope.NODE)),
            Code.INVALID_CLAIM,
            "has policy Match, which must be Required or Preferred",
            id="a policy that is not a scope's",
        ),
        pytest.param(make.claim("claim", make.request("gpu", 0)), Code.INVALID_CLAIM, "0 devices", id="none of it"),
    ],
)
def test_a_claim_that_cannot_be_read(claim: Claim, code: Code, words: str) -> None:
    answer = planned(make.snapshot(make.flat(), [claim]))
    (reason,) = answer.claims[claim.uid].reasons
    assert reason.code is code
    assert words in reason.message


ALTERNATIVES = (
    Alternative(name="none", share=ShareAsk("gone", compute_milli=100)),
    Alternative(name="slots", share=ShareAsk("half", slots=2)),
)


@pytest.mark.parametrize(
    ("claim", "pool", "told"),
    [
        pytest.param(
            make.claim("claim", make.request("tpu"), make.request("fpga", 0)),
            {},
            [
                (Code.INVALID_CLAIM, "request tpu asks for device tpu, which"),
                (Code.INVALID_CLAIM, "request fpga asks for device fpga, which"),
                (Code.INVALID_CLAIM, "request fpga asks for 0 devices"),
            ],
            id="two requests",
        ),
        pytest.param(
            make.claim(
                "claim", make.request(), make.required("Node", "gpu", "nic"), make.required("Node", "gpu", "gpu")
            ),
            {},
            [(Code.INVALID_CLAIM, "names request nic"), (Code.INVALID_CLAIM, "names a request twice")],
            id="two lines",
        ),
        pytest.param(
            make.claim("claim", make.required("Node", "nic"), make.required("NUMANode", "nic")),
            {},
            [(Code.INVALID_CLAIM, "names request nic")],
            id="two lines that are wrong in the same way, once",
        ),
        pytest.param(
            make.gang("claim", gang_min=3, required="hall", preferred="rack"),
            {},
            [
                (Code.INVALID_CLAIM, "fabric.required names level hall"),
                (Code.INVALID_CLAIM, "fabric.preferred names level rack"),
                (Code.INVALID_CLAIM, "gang.minReplicas is 3, which is not between 1 and its 2 replicas"),
            ],
            id="levels and members of a gang",
        ),
        pytest.param(
            make.claim("claim", make.part(milli=100, name="a", share="gone"), make.part(name="b")),
            {},
            [(Code.SHARE_UNAVAILABLE, "no DeviceShare gone"), (Code.INVALID_CLAIM, "request b asks for no memory")],
            id="parts of two shares",
        ),
        pytest.param(
            make.claim("claim", make.request(first_of=ALTERNATIVES)),
            {},
            [
                (Code.SHARE_UNAVAILABLE, "no DeviceShare gone"),
                (Code.INVALID_CLAIM, "asks for slots of DeviceShare half"),
            ],
            id="all alternatives",
        ),
        pytest.param(
            make.claim("claim", make.request("tpu"), make.part(milli=100, name="a", share="gone")),
            {"unavailable": "DeviceTaintRule is not served"},
            [
                (Code.INVALID_CLAIM, "request tpu"),
                (Code.SHARE_UNAVAILABLE, "no DeviceShare gone"),
                (Code.NOT_ALLOWED, "DeviceTaintRule is not served"),
            ],
            id="the claim, its share and its pool",
        ),
    ],
)
def test_all_refusals_of_a_claim_are_told(claim: Claim, pool: dict[str, Any], told: list[tuple[Code, str]]) -> None:
    """In a fixed order, so that whoever mends one does not learn of the next one only then."""
    answer = planned(make.snapshot(make.flat(), [claim], pools=[make.pool(**pool)], shares=[make.share()]))
    reasons = answer.claims[claim.uid].reasons
    assert [reason.code for reason in reasons] == [code for code, _ in told]
    for reason, (_, words) in zip(reasons, told, strict=True):
        assert words in reason.message


def test_a_pool_that_takes_nothing_new_says_why() -> None:
    pools = [make.pool(unavailable="DeviceTaintRule is not served")]
    answer = planned(make.snapshot(make.flat(), [make.claim()], pools=pools))
    (reason,) = answer.claims[ClaimUID("uid-claim")].reasons
    assert reason.code is Code.NOT_ALLOWED
    assert "DeviceTaintRule is not served" in reason.message


@pytest.mark.parametrize("standing", [stand for stand in Standing if stand is not Standing.OFFERED])
def test_what_is_not_offered_is_never_given(standing: Standing) -> None:
    snapshot = make.snapshot([make.device("gpu-0", standing=standing), make.device("gpu-1")], [make.claim()])
    assert where(planned(snapshot)) == {"claim": [(0, make.NODE, ("gpu-1",))]}


@pytest.mark.parametrize("kind", list(HoldKind))
def test_what_somebody_else_holds_is_never_given(kind: HoldKind) -> None:
    gpus = make.flat(gpus=2)
    answer = planned(make.snapshot(gpus, [make.claim()], holds={gpus[0].id: make.hold(kind)}))
    assert where(answer) == {"claim": [(0, make.NODE, ("gpu-1",))]}
    counts = answer.pools[make.POOL].counts["gpu"]
    assert (counts.allocated, counts.releasing) == ((2, 0) if kind is HoldKind.FOREIGN else (1, 1))


def test_each_claim_gets_devices_of_the_pool_it_asks() -> None:
    devices = [make.device("gpu-0"), make.device("gpu-1", pool="other")]
    pools = [make.pool(), make.pool("other")]
    claims = [make.claim("one"), make.claim("two", pool="other"), make.claim("three", pool="other")]
    answer = planned(make.snapshot(devices, claims, pools=pools))
    assert where(answer) == {"one": [(0, make.NODE, ("gpu-0",))], "two": [], "three": [(0, make.NODE, ("gpu-1",))]}
    assert [answer.pools[name].counts["gpu"].capacity for name in ("training", "other")] == [1, 1]


# Which node


@pytest.mark.parametrize(
    ("busy", "asked", "node"),
    [
        pytest.param({"b": 1}, make.request("gpu", 1), "b", id="a single goes where the node is broken already"),
        pytest.param(
            {"a": 2, "b": 1}, make.request("gpu", 1), "b", id="of seven free and six free, seven lose no pair"
        ),
        pytest.param({"a": 4, "b": 5}, make.request("gpu", 1), "b", id="three free lose less than four"),
        pytest.param({"a": 5, "b": 3}, make.request("gpu", 1), "b", id="all else equal, the less loaded node"),
        pytest.param({"a": 1, "b": 1, "c": 1}, make.request("gpu", 1), "a", id="all equal, the first by name"),
        pytest.param({"a": 5}, make.request("gpu", 4), "b", id="four do not fit where three are free"),
        pytest.param({"a": 4}, make.request("gpu", 4), "a", id="four fill up the half node"),
    ],
)
def test_node(busy: dict[str, int], asked: Request, node: str) -> None:
    devices = {name: make.flat(name) for name in "abc"}
    others = {device.id: make.hold() for name, count in busy.items() for device in devices[name][:count]}
    given_ = [device for node in devices.values() for device in node]
    answer = planned(make.snapshot(given_, [make.claim("claim", asked)], holds=others))
    assert [place for _, place, _ in where(answer)["claim"]] == [node]


def test_the_near_pair_on_a_whole_node_beats_the_far_pair_on_a_broken_one() -> None:
    devices = {name: make.rails(name, gpus=2) for name in "ab"}
    others = [make.holding("other", [devices["a"][0], devices["a"][3]], created=1.0)]
    answer = planned(make.snapshot([*devices["a"], *devices["b"]], [*others, make.pairs("claim")]))
    assert where(answer)["claim"] == [(0, "b", ("gpu-0", "nic-0"))]


def test_a_thousand_singles_open_as_few_nodes_as_they_can() -> None:
    devices = [device for number in range(40) for device in make.rails(f"n{number}", nics_each=0)]
    answer = planned(make.snapshot(devices, [make.claim(f"c{number}") for number in range(100)]))
    used = {placement.node for claim in answer.claims.values() for placement in claim.placements}
    assert len(used) == 13


def test_whole_pairs_of_one_root_while_there_is_one() -> None:
    devices = [device for number in range(4) for device in make.rails(f"n{number}")]
    answer = planned(make.snapshot(devices, [make.pairs(f"c{number}") for number in range(32)]))
    levels = {placement.locality["gpu-nic"] for claim in answer.claims.values() for placement in claim.placements}
    assert levels == {"PIX"}


# What changes nothing


@SOME
@given(strategies.snapshots())
def test_a_warm_memo_changes_no_byte(snapshot: Snapshot) -> None:
    memo = Memo()
    cold = repr(planned(snapshot))
    assert repr(planned(snapshot, memo)) == cold
    assert repr(planned(snapshot, memo)) == cold
    planned(replace(snapshot, claims=snapshot.claims[:1]), memo)
    assert repr(planned(snapshot, memo)) == cold


@SOME
@given(st.lists(strategies.snapshots(), min_size=2, max_size=4))
def test_a_memo_that_served_others_changes_no_byte(snapshots: list[Snapshot]) -> None:
    memo = Memo()
    for snapshot in snapshots:
        assert repr(planned(snapshot, memo)) == repr(planned(snapshot))


@SOME
@given(strategies.snapshots())
def test_what_comes_in_is_left_as_it_was(snapshot: Snapshot) -> None:
    before = repr(snapshot)
    planned(snapshot)
    assert repr(snapshot) == before


@SOME
@given(strategies.snapshots(), st.integers(0, 10**6))
def test_the_order_of_the_input_changes_nothing(snapshot: Snapshot, seed: int) -> None:
    shuffled = random.Random(seed)

    def mixed(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
        items = list(mapping.items())
        shuffled.shuffle(items)
        return dict(items)

    claims = list(snapshot.claims)
    shuffled.shuffle(claims)
    other = replace(
        snapshot,
        claims=tuple(claims),
        inventory=mixed(snapshot.inventory),
        nodes=mixed(snapshot.nodes),
        holds=mixed(snapshot.holds),
    )
    one, two = planned(snapshot), planned(other)
    assert {uid: repr(claim) for uid, claim in one.claims.items()} == {
        uid: repr(claim) for uid, claim in two.claims.items()
    }
    assert one.pools == two.pools


@SOME
@given(strategies.snapshots())
def test_other_names_in_the_same_order_change_nothing_else(snapshot: Snapshot) -> None:
    def rename(node: str) -> str:
        return f"zone-7-{node}"

    def moved(device: Device) -> Device:
        return replace(
            device, id=DeviceID(device.driver, rename(device.id.pool), device.id.device), node=rename(device.node)
        )

    renamed = Snapshot(
        pools={
            name: replace(pool, matrices={rename(node): text for node, text in pool.matrices.items()})
            for name, pool in snapshot.pools.items()
        },
        nodes={rename(name): replace(node, name=rename(name)) for name, node in snapshot.nodes.items()},
        inventory={rename(node): tuple(map(moved, given)) for node, given in snapshot.inventory.items()},
        claims=tuple(
            replace(
                claim,
                placed=tuple(
                    replace(
                        replica,
                        node=rename(replica.node),
                        devices=tuple(
                            replace(one, id=DeviceID(one.id.driver, rename(one.id.pool), one.id.device))
                            for one in replica.devices
                        ),
                    )
                    for replica in claim.placed
                ),
            )
            for claim in snapshot.claims
        ),
        holds={DeviceID(one.driver, rename(one.pool), one.device): hold for one, hold in snapshot.holds.items()},
    )
    one, two = planned(snapshot), planned(renamed)
    assert where(two) == {
        name: [(index, rename(node), given) for index, node, given in placed] for name, placed in where(one).items()
    }
    assert one.pools == {
        name: replace(pool, mismatches=tuple(replace(m, node=m.node.removeprefix("zone-7-")) for m in pool.mismatches))
        for name, pool in two.pools.items()
    }


@SOME
@given(strategies.snapshots(waiting=1))
def test_a_node_that_nobody_used_could_as_well_not_be_there(snapshot: Snapshot) -> None:
    answer = planned(snapshot)
    used = {place for placed in where(answer).values() for _, place, _ in placed}
    used |= {replica.node for claim in snapshot.claims for replica in claim.placed}
    kept = {node: given for node, given in snapshot.inventory.items() if node in used}
    assert where(planned(replace(snapshot, inventory=kept))) == where(answer)


@SOME
@given(strategies.snapshots(waiting=1), st.sampled_from(("gpu-99", "nic-99")), st.sampled_from(("r0", None)))
def test_one_more_free_device_never_makes_it_farther(snapshot: Snapshot, name: str, root: str | None) -> None:
    # A matrix would no longer fit the node, and `all` would ask for more.
    snapshot = replace(snapshot, pools={make.POOL: make.pool()})
    (claim,) = (claim for claim in snapshot.claims if claim.name == "claim-0")
    ways = [way for request in claim.requests for way in (request, *request.first_of)]
    if any(way.all_devices for way in ways):
        return
    node = next(iter(snapshot.inventory))
    more = make.snapshot([*snapshot.inventory[node], make.device(name, node, root=root)]).inventory[node]
    larger = replace(snapshot, inventory={**snapshot.inventory, node: more})
    held = {one.id for other in snapshot.claims for replica in other.placed for one in replica.devices}
    held |= set(snapshot.holds)
    before, after = (oracle.best_place(given, claim, held) for given in (snapshot, larger))
    placed_before, placed_after = planned(snapshot), planned(larger)
    assert len(placed_after.claims[claim.uid].placements) >= len(placed_before.claims[claim.uid].placements)
    # With several ways a more wanted one may fit now, and that may be farther.
    if before is not None and len(ways) == len(claim.requests):
        assert after is not None
        distances = [part for part in before[0] if isinstance(part, tuple)]
        assert [part for part in after[0] if isinstance(part, tuple)] <= distances


@SOME
@given(strategies.snapshots())
def test_a_plan_that_was_carried_out_leaves_nothing_more_to_do(snapshot: Snapshot) -> None:
    memo = Memo()
    first = planned(snapshot, memo)
    claims = tuple(
        make.after(claim, first.claims[claim.uid].placements) if claim.uid in first.claims else claim
        for claim in snapshot.claims
    )
    second = planned(replace(snapshot, claims=claims), memo)
    assert not any(claim.placements for claim in second.claims.values())
    # A gap is that of one decision.
    assert [replace(pool, gap=0.0) for pool in second.pools.values()] == [
        replace(pool, gap=0.0) for pool in first.pools.values()
    ]
    assert {uid: claim.reasons for uid, claim in second.claims.items()} == {
        uid: claim.reasons for uid, claim in first.claims.items() if claim.reasons
    }


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(make.snapshot(), id="nothing at all"),
        pytest.param(make.snapshot([], [make.claim()]), id="no device"),
        pytest.param(make.snapshot([], [make.claim()], pools=[]), id="no pool"),
        pytest.param(make.snapshot(make.flat(), [make.claim(replicas=0)]), id="no replica wanted"),
        pytest.param(make.snapshot([], [make.claim()], nodes=[make.node("x")]), id="a node without devices"),
    ],
)
def test_little_input_is_no_trouble(snapshot: Snapshot) -> None:
    planned(snapshot)
