"""The batch: claims of one decision may get other devices so that more are placed, and nearer."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import checks, joint_oracle, make

from adjoin_allocator import (
    Claim,
    ClaimUID,
    Code,
    Device,
    Memo,
    Objective,
    Plan,
    Profile,
    ReplicaState,
    Snapshot,
    Tenant,
    batch,
    joint,
    plan,
)
from adjoin_allocator.lot import independent
from adjoin_allocator.model import Alternative, Fabric, HostAsk, Segment, ShareAsk

SOME = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
EXACT = {"optimise_milliseconds": 5000}
"""Enough for the solver to end by itself."""


def planned(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    answer = plan(snapshot, make.NOW, memo)
    checks.assert_valid(snapshot, answer)
    return answer


def pooled(snapshot: Snapshot, **more: Any) -> Snapshot:
    """The snapshot with another policy of its pool."""
    pools = {name: replace(pool, **{**EXACT, **more}) for name, pool in snapshot.pools.items()}
    return replace(snapshot, pools=pools)


def where(answer: Plan) -> Mapping[str, Sequence[str]]:
    """By claim the nodes of its new replicas."""
    return {
        uid.removeprefix("uid-"): [placement.node for placement in claim.placements]
        for uid, claim in answer.claims.items()
    }


def gap(answer: Plan) -> float:
    return answer.pools[make.POOL].gap


def in_turn(*claims: Claim) -> list[Claim]:
    """The claims, each younger than the one before."""
    return [replace(claim, created=make.NOW - 100 + number) for number, claim in enumerate(claims)]


def near(node: str, gpus: int) -> list[Device]:
    """GPUs on one switch."""
    return [make.device(f"gpu-{number}", node, switch="s", root="r", numa=0) for number in range(gpus)]


def apart(node: str, gpus: int) -> list[Device]:
    """GPUs each on a NUMA node of its own."""
    return [make.device(f"gpu-{number}", node, root=f"r{number}", numa=number) for number in range(gpus)]


# Room for later claims


def test_an_earlier_claim_goes_to_a_worse_place_so_that_a_later_one_fits() -> None:
    """Alone the pair would go where its GPUs are near each other, which is the only node with room for four."""
    devices = [*near("a", 4), *apart("b", 2)]
    claims = in_turn(make.claim("pair", make.request("gpu", 2)), make.claim("four", make.request("gpu", 4)))
    greedy = planned(pooled(make.snapshot(devices, claims), optimise_milliseconds=0))
    assert where(greedy) == {"pair": ["a"], "four": []}
    assert gap(greedy) > 0
    answer = planned(pooled(make.snapshot(devices, claims)))
    assert where(answer) == {"pair": ["b"], "four": ["a"]}
    assert gap(answer) == 0
    assert answer.claims[ClaimUID("uid-pair")].gap == pytest.approx(0.75)
    assert answer.claims[ClaimUID("uid-four")].gap == 0


def test_a_later_claim_never_takes_the_place_of_an_earlier_one() -> None:
    claims = in_turn(make.claim("pair", make.request("gpu", 2)), make.claim("four", make.request("gpu", 4)))
    answer = planned(pooled(make.snapshot(near("a", 5), claims)))
    assert where(answer) == {"pair": ["a"], "four": []}
    assert [reason.code for reason in answer.claims[ClaimUID("uid-four")].reasons] == [Code.INSUFFICIENT_DEVICES]
    assert gap(answer) == 0


def test_the_solver_finds_room_where_no_node_is_simply_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clearing nodes, which would do here, is switched off."""
    devices = [
        *(make.device(f"gpu-{at}", "a", switch="s", attributes={"x.example.com/fast": at < 2}) for at in range(4)),
        *(make.device(f"gpu-{at}", "b", root=f"r{at}", attributes={"x.example.com/fast": at < 1}) for at in range(3)),
        *(make.device(f"gpu-{at}", "c", root=f"r{at}", attributes={"x.example.com/fast": False}) for at in range(2)),
    ]
    fast = make.selecting("gpu", "device.attributes['x.example.com'].fast", count=1)
    claims = in_turn(
        make.claim("fast", fast),
        make.claim("pair", make.request("gpu", 2)),
        make.claim("slow", make.request("gpu", 2)),
        make.claim("four", make.request("gpu", 4)),
    )
    monkeypatch.setattr(batch, "TRIES", 0)
    answer = planned(pooled(make.snapshot(devices, claims)))
    assert all(where(answer).values())
    assert where(answer)["four"] == ["a"]
    assert gap(answer) == 0


def test_what_was_placed_before_is_never_moved() -> None:
    devices = [*near("a", 4), *apart("b", 2)]
    claims = [make.holding("pair", devices[:2], created=make.NOW - 100), make.claim("four", make.request("gpu", 4))]
    answer = planned(pooled(make.snapshot(devices, claims)))
    assert where(answer) == {"four": []}
    assert gap(answer) == 0


def test_without_a_budget_nobody_moves() -> None:
    devices = [*near("a", 4), *apart("b", 2)]
    claims = in_turn(make.claim("pair", make.request("gpu", 2)), make.claim("four", make.request("gpu", 4)))
    for objective in Objective:
        answer = planned(pooled(make.snapshot(devices, claims), optimise_milliseconds=0, objective=objective))
        assert where(answer) == {"pair": ["a"], "four": []}
        assert gap(answer) > 0


def test_what_waits_is_explained_by_what_is_left_at_the_end() -> None:
    devices = [*near("a", 4), *apart("b", 2)]
    claims = in_turn(
        make.claim("pair", make.request("gpu", 2)),
        make.claim("four", make.request("gpu", 4)),
        make.claim("one more"),
    )
    answer = planned(pooled(make.snapshot(devices, claims)))
    (reason, *_) = answer.claims[ClaimUID("uid-one more")].reasons
    assert (reason.code, reason.message.split(";")[0]) == (Code.INSUFFICIENT_DEVICES, "needs 1 gpu, 0 of 6 free")


@pytest.mark.parametrize(
    ("claim", "alone"),
    [
        pytest.param(make.claim(replicas=3), True, id="independent replicas"),
        pytest.param(make.claim(gang_min=1), False, id="a gang"),
        pytest.param(make.claim(fabric=Fabric(required="rack")), False, id="one rack"),
        pytest.param(make.claim(fabric=Fabric(preferred="rack")), False, id="preferably one rack"),
        pytest.param(make.claim(fabric=Fabric(segment=Segment(2, "rack"))), False, id="segments"),
        pytest.param(make.claim("c", replace(make.match("r", "gpu"), over_gang=True)), False, id="over the gang"),
        pytest.param(make.claim(host=HostAsk(cpu_milli=1)), False, id="host resources"),
        pytest.param(make.claim("c", make.request(share=ShareAsk("s"))), False, id="a part of a card"),
        pytest.param(make.claim("c", make.request(first_of=(Alternative("a"),))), False, id="alternatives"),
    ],
)
def test_only_what_stands_for_itself_is_moved(claim: Claim, alone: bool) -> None:
    assert independent(claim) is alone


# What comes free on the way


def promised(*devices: Device, wanted: int = 2) -> Snapshot:
    """A claim of high standing, and one of low standing to which the first GPU of node `a` is promised, and which finds
    another place on node `c`.
    """
    devices = (*near("a", 2), *devices, make.device("gpu-0", "c", switch="s", root="r", numa=0))
    holder = make.claim("holder", nominated=(make.nomination(devices[:1]),), host=HostAsk(cpu_milli=1000))
    nodes = [make.node(name, cpu_milli=8000) for name in ("a", "b", "c")]
    claims = [make.claim("first", make.request("gpu", wanted), priority=1), holder]
    return make.snapshot(devices, claims, nodes=nodes)


def test_the_gap_counts_what_came_free_while_others_were_served() -> None:
    """Two GPUs of `b` have rank 4 (SYS) between them, those of `a` rank 1 (PIX): three quarters are too much. The pair
    of `a` was held for another claim when this one was served, and is free at the end.
    """
    snapshot = promised(*apart("b", 2))
    greedy = planned(pooled(snapshot, optimise_milliseconds=0))
    assert where(greedy) == {"first": ["b"], "holder": ["c"]}
    assert (gap(greedy), greedy.claims[ClaimUID("uid-first")].gap) == (0.75, 0.75)
    answer = planned(pooled(snapshot))
    assert where(answer) == {"first": ["a"], "holder": ["c"]}
    assert (gap(answer), answer.claims[ClaimUID("uid-first")].gap) == (0, 0)


@pytest.mark.parametrize("milliseconds", [0, 5000])
def test_what_came_free_while_others_were_served_is_given_to_who_waits(milliseconds: int) -> None:
    answer = planned(pooled(promised(), optimise_milliseconds=milliseconds))
    assert where(answer) == {"first": ["a"], "holder": ["c"]}


@pytest.mark.parametrize("going", ["evicted", "releasing"])
def test_the_gap_does_not_count_what_is_still_to_come_free(going: str) -> None:
    """Four near GPUs of `a` are on their way back, or are to be by this decision: neither pair can have them, and one
    of the pairs on `b` has rank 4 (SYS) and one rank 1 (PIX), whoever gets which.
    """
    devices = [*near("a", 4), *near("b", 2), *(make.device(f"gpu-{at}", "b", root=f"r{at}") for at in (2, 3))]
    state = ReplicaState.RELEASING if going == "releasing" else ReplicaState.READY
    low = make.claim("low", make.request("gpu", 4), placed=(make.placed({"gpu": devices[:4]}, state=state),))
    claims = [
        low,
        *(make.claim(name, make.request("gpu", 2), priority=2, created=make.NOW - 5) for name in ("one", "two")),
        make.claim("high", make.request("gpu", 4), priority=1),
    ]
    rules = make.evicting(within=going == "evicted")
    answer = planned(make.snapshot(devices, claims, pools=[make.pool(preemption=rules, **EXACT)]))
    assert bool(answer.preempted) is (going == "evicted")
    assert where(answer) == {"one": ["b"], "two": ["b"], "high": []}
    # Together the distances are 1 + 4, and cannot be less; the one that is 4 could be 1 if the other were not there.
    assert gap(answer) == 0
    assert [answer.claims[ClaimUID(f"uid-{name}")].gap for name in ("one", "two")] == [0, 0.75]


# Throughput


def test_throughput_prefers_more_devices_to_the_elder() -> None:
    """Three GPUs for the eldest leave one of five to nobody; four and one for the others leave none."""
    claims = in_turn(
        make.claim("three", make.request("gpu", 3)),
        make.claim("four", make.request("gpu", 4)),
        make.claim("one", make.request("gpu", 1), make.required("Node", "gpu")),
    )
    snapshot = make.snapshot(near("a", 5), claims)
    assert where(planned(pooled(snapshot))) == {"three": ["a"], "four": [], "one": ["a"]}
    answer = planned(pooled(snapshot, objective=Objective.THROUGHPUT))
    assert where(answer) == {"three": [], "four": ["a"], "one": ["a"]}
    assert gap(answer) == 0


def test_throughput_keeps_to_the_order_among_as_many_devices() -> None:
    claims = in_turn(*(make.claim(name, make.request("gpu", 2)) for name in ("first", "second", "third")))
    answer = planned(pooled(make.snapshot(near("a", 5), claims), objective=Objective.THROUGHPUT))
    assert where(answer) == {"first": ["a"], "second": ["a"], "third": []}


def test_throughput_serves_a_higher_priority_first() -> None:
    claims = in_turn(
        make.claim("high", make.request("gpu", 3), priority=1),
        make.claim("four", make.request("gpu", 4)),
        make.claim("one", make.request("gpu", 1)),
    )
    answer = planned(pooled(make.snapshot(near("a", 5), claims), objective=Objective.THROUGHPUT))
    assert where(answer) == {"high": ["a"], "four": [], "one": ["a"]}


def test_throughput_gives_no_tenant_more_than_the_walk_did() -> None:
    """One tenant's quota was judged by what the walk placed; four GPUs instead of three would go beyond it."""
    claims = in_turn(
        make.claim("three", make.request("gpu", 3), tenant="one"),
        make.claim("four", make.request("gpu", 4), tenant="two"),
        make.claim("one", make.request("gpu", 1), tenant="two"),
    )
    both = {name: Tenant(name, {}, {}) for name in ("one", "two")}
    answer = planned(pooled(make.snapshot(near("a", 5), claims), objective=Objective.THROUGHPUT, tenants=both))
    assert where(answer) == {"three": ["a"], "four": [], "one": ["a"]}


def test_usage_is_that_of_the_claims_which_have_places_at_the_end() -> None:
    claims = in_turn(
        make.claim("three", make.request("gpu", 3), tenant="one"),
        make.claim("four", make.request("gpu", 4), tenant="one"),
        make.claim("one", make.request("gpu", 1), tenant="one"),
    )
    answer = planned(pooled(make.snapshot(near("a", 5), claims), objective=Objective.THROUGHPUT))
    assert where(answer) == {"three": [], "four": ["a"], "one": ["a"]}
    assert answer.pools[make.POOL].usage["one"] == {"gpu": 5000}


# The best there is


@st.composite
def contests(draw: st.DrawFn, whole: bool = True) -> Snapshot:
    """Up to four nodes with ten devices together, and claims that want more than there is; `whole`: also all devices of
    a node.
    """
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    devices, left = [], 10
    for number in range(chance.randint(1, 4)):
        size = min(left, chance.choice((2, 3, 4, 5, 8)))
        left -= size
        for at in range(size):
            branch = chance.randint(0, 2)
            devices.append(
                make.device(
                    f"{chance.choice(('gpu', 'gpu', 'gpu', 'nic'))}-{at}",
                    f"node-{number}",
                    root=chance.choice((f"r{branch}", f"r{branch}", None)),
                    numa=chance.choice((branch % 2, branch % 2, None)),
                    switch=chance.choice((f"s{branch}", None)),
                    performance=chance.choice((0, 0, 10)),
                )
            )
    claims = [_contender(chance, number, whole) for number in range(chance.randint(2, 5))]
    objective = chance.choice((Objective.IN_ORDER, Objective.IN_ORDER, Objective.THROUGHPUT))
    return pooled(make.snapshot(devices, claims), objective=objective)


def _contender(chance: random.Random, number: int, whole: bool) -> Claim:
    kinds = chance.choice((("gpu",), ("gpu",), ("gpu",), ("gpu", "nic"), ("nic",)))
    requests = []
    for kind in kinds:
        odd = chance.random()
        if odd < 0.05 and whole:
            requests.append(make.everything(kind))
        elif odd < 0.2:
            on_zero = "device.attributes['resource.kubernetes.io'].?numaNode == optional.of(0)"
            requests.append(make.selecting(kind, on_zero))
        else:
            requests.append(make.request(kind, chance.choice((1, 1, 2, 2, 3, 4))))
    lines = {}
    for _ in range(chance.choice((0, 0, 1, 2))):
        names = tuple(chance.sample(kinds, chance.randint(1, len(kinds))))
        scope = chance.choice(("PCIeSwitch", "PCIeRoot", "NUMANode"))
        line = chance.choice((make.required, make.preferred, make.preferred))(scope, *names)
        lines.setdefault(frozenset(names), line)
    return make.claim(
        f"c{number}",
        *requests,
        *lines.values(),
        priority=chance.choice((0, 0, 1)),
        replicas=chance.choice((1, 1, 1, 2)),
        profile=chance.choice((Profile.BALANCED, Profile.BALANCED, *Profile)),
        created=make.NOW + chance.randint(0, 3) + number / 100,
    )


@SOME
@given(contests())
def test_a_batch_is_the_best_there_is(snapshot: Snapshot) -> None:
    """Who is placed, with how many devices, and all distances: as if everything had been tried. Here the solver always
    ends, so nothing is left open.
    """
    answer = planned(snapshot)
    best, reached = joint_oracle.best(snapshot, make.NOW), joint_oracle.reached(snapshot, answer, make.NOW)
    assert joint_oracle.compared(reached) == joint_oracle.compared(best)
    assert gap(answer) == 0


@SOME
@given(contests())
def test_the_walk_alone_says_when_it_is_not_the_best(snapshot: Snapshot) -> None:
    greedy = planned(pooled(snapshot, optimise_milliseconds=0))
    best, reached = joint_oracle.best(snapshot, make.NOW), joint_oracle.reached(snapshot, greedy, make.NOW)
    assert joint_oracle.compared(reached) <= joint_oracle.compared(best)
    if gap(greedy) == 0:
        assert (reached.devices, reached.placed) == (best.devices, best.placed)
        assert joint_oracle.ranks(reached) == joint_oracle.ranks(best)


@SOME
@given(contests(whole=False), st.integers(0, 9))
def test_one_more_free_device_never_makes_a_batch_worse(snapshot: Snapshot, which: int) -> None:
    everything = [device for given in snapshot.inventory.values() for device in given]
    twin = everything[which % len(everything)]
    more = replace(twin, id=twin.id._replace(device=f"{twin.kind}-99"), hardware_id="new")
    inventory = {name: (*given, more) if name == twin.node else given for name, given in snapshot.inventory.items()}
    inventory = {name: make.snapshot(given).inventory[name] for name, given in inventory.items()}
    before = joint_oracle.reached(snapshot, planned(snapshot), make.NOW)
    wider = replace(snapshot, inventory=inventory)
    after = joint_oracle.reached(wider, planned(wider), make.NOW)
    assert (after.devices, after.placed) >= (before.devices, before.placed)


@SOME
@given(contests(), st.randoms(use_true_random=False))
def test_the_same_claims_give_the_same_plan(snapshot: Snapshot, chance: random.Random) -> None:
    """Whatever their order, and whether answers are remembered."""
    claims = list(snapshot.claims)
    chance.shuffle(claims)
    shuffled = replace(
        snapshot,
        claims=tuple(claims),
        inventory=dict(sorted(snapshot.inventory.items(), reverse=True)),
        nodes=dict(sorted(snapshot.nodes.items(), reverse=True)),
    )
    memo = Memo()
    first, again, other = planned(snapshot, memo), planned(snapshot, memo), planned(shuffled)
    assert first == again
    assert first.claims == other.claims
    assert first.pools == other.pools


def test_random_contests_reach_every_way_of_improving(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: Counter[str] = Counter()
    solve, push = joint.Program.solve, batch.Batch._push

    def solved(self: joint.Program, *given: Any) -> joint.Answer:
        answer = solve(self, *given)
        reached[answer.status] += 1
        return answer

    def pushed(self: batch.Batch, *given: Any) -> Any:
        spot = push(self, *given)
        reached["room by clearing a node" if spot else "no room by clearing a node"] += 1
        return spot

    monkeypatch.setattr(joint.Program, "solve", solved)
    monkeypatch.setattr(batch.Batch, "_push", pushed)

    @settings(max_examples=150, derandomize=True, deadline=None, database=None)
    @given(contests())
    def look(snapshot: Snapshot) -> None:
        answer = planned(snapshot)
        greedy = planned(pooled(snapshot, optimise_milliseconds=0))
        better = joint_oracle.reached(snapshot, answer, make.NOW)
        worse = joint_oracle.reached(snapshot, greedy, make.NOW)
        reached["more devices"] += better.devices > worse.devices
        reached["other claims"] += better.placed > worse.placed
        reached["nearer"] += better.placed == worse.placed and better != worse

    look()
    ways = ("room by clearing a node", "no room by clearing a node", joint.Status.OPTIMAL, joint.Status.INFEASIBLE)
    assert {way for way in (*ways, "more devices", "other claims", "nearer") if not reached[way]} == set()


# What it costs

_ROOT = Path(__file__).parents[3]

_LOADED = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/allocator", {root!r} + "/operator"]
from tests.support import make
from adjoin_allocator import plan
claims = [make.claim(f"c{{n}}", make.request("gpu", 2), created=n) for n in range({claims})]
answer = plan(make.snapshot([*make.rails("a"), *make.rails("b")], claims), make.NOW)
print(sum(bool(one.placements) for one in answer.claims.values()), "ortools.sat.python.cp_model_helper" in sys.modules)
"""


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        pytest.param(1, "1 False", id="a claim that arrives alone"),
        pytest.param(8, "8 False", id="claims that all have their best places"),
        pytest.param(11, "8 False", id="more than there is: counting says so"),
    ],
)
def test_a_batch_that_cannot_be_improved_does_not_load_the_solver(claims: int, expected: str) -> None:
    script = _LOADED.format(root=str(_ROOT), claims=claims)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == expected


def test_a_model_is_bounded_whatever_the_batch() -> None:
    """400 claims on 150 nodes: more of both than a region takes."""
    devices = [device for number in range(150) for device in make.shared_roots(f"n{number}", nics_each=2)]
    claims = in_turn(
        *(make.pairs(f"c{number}", 1 + number % 5, make.preferred("PCIeRoot", "gpu", "nic")) for number in range(400))
    )
    answer = planned(pooled(make.snapshot(devices, claims), optimise_milliseconds=300))
    assert sum(bool(claim.placements) for claim in answer.claims.values()) > 300
