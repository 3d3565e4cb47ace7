"""The ledger: who holds what, exactly undone, and the same whether followed or rebuilt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import make

from adjoin_allocator import Claim, ClaimUID, DeviceCounts, HoldKind, ReplicaState, Snapshot, Standing
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.nodes import Nodes, Question

PLAIN = Question((("gpu", ()), ("nic", ())), ())


def entered(snapshot: Snapshot, ledger: Ledger | None = None) -> Ledger:
    ledger = ledger or Ledger(Nodes())
    ledger.enter(snapshot, make.NOW)
    return ledger


def state(ledger: Ledger, nodes: Nodes) -> object:
    """All that can be seen of a ledger."""
    return (
        {
            name: (
                list(pool.free),
                [pool.held(at) for at in range(len(pool.free))],
                [pool.back(at) for at in range(len(pool.free))],
                sorted(
                    (list(positions), sort.eligible, free)
                    for (_, sort, free), positions in pool.buckets(nodes.sorts(pool.index, PLAIN)).states.items()
                ),
                pool.counts(),
            )
            for name, pool in ledger.pools.items()
        },
        ledger.conflicts,
        ledger.lacking,
        [claim.name for claim in ledger.waiting],
    )


def test_what_was_given_comes_back_by_rolling_back() -> None:
    nodes = Nodes()
    ledger = entered(make.snapshot([*make.rails("a"), *make.rails("b")], [make.claim()]), Ledger(nodes))
    before = state(ledger, nodes)
    mark = ledger.checkpoint()
    ledger.take(make.POOL, 0, 0b11)
    between = state(ledger, nodes)
    inner = ledger.checkpoint()
    ledger.take(make.POOL, 1, 0b1100)
    ledger.give_back(make.POOL, 0, 0b01)
    assert state(ledger, nodes) != between
    ledger.roll_back(inner)
    assert state(ledger, nodes) == between
    ledger.roll_back(mark)
    assert state(ledger, nodes) == before


def test_a_device_that_is_not_free_cannot_be_given() -> None:
    ledger = entered(make.snapshot(make.rails()))
    ledger.take(make.POOL, 0, 1)
    with pytest.raises(AssertionError, match="not free"):
        ledger.take(make.POOL, 0, 1)


def test_devices_count_once_as_the_first_of_the_seven_that_they_are() -> None:
    names = (
        "free",
        "held",
        "foreign",
        "back",
        "deleting",
        "orphan",
        "ill",
        "ill-held",
        "gone",
        "gone-held",
        "late",
        "bare",
    )
    standing = {
        "ill": Standing.UNHEALTHY,
        "ill-held": Standing.UNHEALTHY,
        "gone": Standing.MISSING,
        "gone-held": Standing.MISSING,
        "late": Standing.WITHHELD,
        "bare": Standing.UNGUARDED,
    }
    device = {name: make.device(name, kind="gpu", standing=standing.get(name, Standing.OFFERED)) for name in names}
    claims = [
        make.holding("one", [device["held"], device["ill-held"], device["gone-held"]]),
        make.holding("two", [device["back"]], state=ReplicaState.RELEASING),
        make.holding("three", [device["deleting"]], deleting=True),
    ]
    holds = {device["foreign"].id: make.hold(), device["orphan"].id: make.hold(HoldKind.RELEASING)}
    counts = entered(make.snapshot(device.values(), claims, holds=holds)).pools[make.POOL].counts()
    assert counts["gpu"] == DeviceCounts(
        capacity=12, free=1, allocated=3, reserved=1, releasing=3, unhealthy=2, missing=2
    )


def test_a_failed_replica_holds_its_devices() -> None:
    gpus = make.flat(gpus=2)
    ledger = entered(make.snapshot(gpus, [make.holding("one", gpus[:1], state=ReplicaState.FAILED)]))
    assert ledger.pools[make.POOL].free == [0b10]
    assert ledger.lacking == {}


def test_a_device_that_no_pool_has_is_nobodys() -> None:
    gpus = make.flat(gpus=2)
    gone = make.device("gpu-9")
    ledger = entered(make.snapshot(gpus, [make.holding("one", [gone])], holds={make.device("gpu-8").id: make.hold()}))
    assert ledger.pools[make.POOL].free == [0b11]


@pytest.mark.parametrize(
    ("first", "second", "loser"),
    [
        pytest.param({"created": 5.0}, {"created": 4.0}, "first", id="the younger loses"),
        pytest.param({"created": 4.0}, {"created": 5.0}, "second", id="in whatever order they come"),
        pytest.param({"created": None}, {"created": 4.0}, "first", id="no age is the youngest"),
        pytest.param(
            {"created": 4.0, "uid": ClaimUID("b")}, {"created": 4.0, "uid": ClaimUID("a")}, "first", id="by UID"
        ),
    ],
)
def test_of_two_claims_that_name_one_device(first: dict[str, object], second: dict[str, object], loser: str) -> None:
    gpus = make.flat(gpus=4)
    claims = {"first": make.holding("first", gpus[:2], **first), "second": make.holding("second", gpus[1:3], **second)}
    ledger = entered(make.snapshot(gpus, claims.values()))
    assert ledger.conflicts == {claims[loser].uid: (0,)}
    assert ledger.lacking == {claims[loser].uid: (0,)}
    pool = ledger.pools[make.POOL]
    assert pool.free == [0b1000]
    assert pool.back(0) == (0b0001 if loser == "first" else 0b0100)


def test_a_claim_that_names_one_device_in_two_replicas_keeps_it_in_the_first() -> None:
    gpus = make.flat(gpus=2)
    twice = make.claim(placed=(make.placed({"gpu": gpus[:1]}, 1), make.placed({"gpu": gpus[:1]}, 0)), replicas=2)
    assert entered(make.snapshot(gpus, [twice])).lacking == {twice.uid: (1,)}


@pytest.mark.parametrize("follows", [False, True], ids=["a fresh ledger", "a ledger that followed"])
def test_an_index_that_is_listed_twice_holds_both_and_is_the_first(follows: bool) -> None:
    gpus = make.flat(gpus=3)
    twice = make.claim(placed=(make.placed({"gpu": gpus[:1]}), make.placed({"gpu": gpus[:2]})))
    before = entered(make.snapshot(gpus)) if follows else None
    snapshot = make.snapshot(gpus, [twice])
    ledger = entered(snapshot, before) if before is None else entered(replace(snapshot, claims=(twice,)), before)
    pool = ledger.pools[make.POOL]
    assert (ledger.conflicts, ledger.lacking) == ({}, {})
    assert (pool.free, pool.held(0), pool.back(0)) == ([0b100], 0b011, 0b010)


def test_a_replica_that_names_a_device_twice_has_too_few_and_is_planned_anew() -> None:
    gpus = make.flat(gpus=2)
    twice = make.claim("claim", make.request("gpu", 2), placed=(make.placed({"gpu": [gpus[0], gpus[0]]}),))
    ledger = entered(make.snapshot(gpus, [twice]))
    assert (ledger.conflicts, ledger.lacking) == ({twice.uid: (0,)}, {twice.uid: (0,)})
    assert ledger.pools[make.POOL].free == [0b10]


def test_a_conflict_that_is_over_leaves_nothing_behind() -> None:
    gpus = make.flat(gpus=4)
    old, young = make.holding("old", gpus[:2], created=1.0), make.holding("young", gpus[1:3], created=2.0)
    snapshot = make.snapshot(gpus, [old, young])
    ledger = entered(snapshot)
    after = replace(snapshot, claims=(old, make.holding("young", gpus[2:3], created=2.0)))
    entered(after, ledger)
    assert ledger.conflicts == {}
    assert ledger.pools[make.POOL].free == [0b1000]


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Snapshots that follow each other and share what did not change."""
    devices = [*make.rails("a", gpus=2), *make.rails("b", gpus=2), *make.rails("c", gpus=1)]
    snapshot = make.snapshot(devices)
    ids = [device.id for device in devices]
    history = [snapshot]
    for step in range(draw(st.integers(1, 8))):
        claims = list(snapshot.claims)
        what = draw(
            st.sampled_from(("place", "place", "place", "drop", "release", "hold", "node", "device", "wait", "order"))
        )
        if what == "place":
            chosen = draw(st.lists(st.sampled_from(devices), min_size=1, max_size=3, unique_by=lambda one: one.id))
            claims.insert(draw(st.integers(0, len(claims))), make.holding(f"c{step}", chosen, created=float(step)))
        elif what == "wait":
            claims.append(make.pairs(f"c{step}", replicas=draw(st.integers(1, 2))))
        elif what == "drop" and claims:
            claims.pop(draw(st.integers(0, len(claims) - 1)))
        elif what == "order":
            claims = list(draw(st.permutations(claims)))
        elif what == "release" and claims:
            at = draw(st.integers(0, len(claims) - 1))
            claims[at] = replace(claims[at], deleting=True)
        snapshot = replace(snapshot, claims=tuple(claims))
        if what == "hold":
            held = draw(st.lists(st.sampled_from(ids), max_size=3, unique=True))
            snapshot = replace(snapshot, holds={one: make.hold(draw(st.sampled_from(HoldKind))) for one in held})
        elif what == "node":
            cordoned = make.node("b", unschedulable=draw(st.booleans()))
            snapshot = replace(snapshot, nodes={**snapshot.nodes, "b": cordoned})
        elif what == "device":
            shorter = tuple(one for one in snapshot.inventory["a"] if draw(st.integers(0, 4)))
            snapshot = replace(snapshot, inventory={**snapshot.inventory, "a": shorter})
        history.append(snapshot)
    return history


@settings(max_examples=300, deadline=None)
@given(histories())
def test_a_ledger_that_followed_equals_one_made_anew(history: list[Snapshot]) -> None:
    nodes = Nodes()
    followed = Ledger(nodes)
    for snapshot in history:
        followed.enter(snapshot, make.NOW)
        fresh_nodes = Nodes()
        assert state(followed, nodes) == state(entered(snapshot, Ledger(fresh_nodes)), fresh_nodes)
        mark = followed.checkpoint()
        for position, free in enumerate(followed.pools[make.POOL].free):
            if free:
                followed.take(make.POOL, position, free & -free)
        followed.roll_back(mark)


def test_a_uid_that_comes_twice_leaves_nothing_behind() -> None:
    gpus = make.flat(gpus=4)
    twins = [make.holding("twin", gpus[:1]), make.holding("twin", gpus[1:2])]
    ledger = entered(make.snapshot(gpus, twins))
    after = make.snapshot(gpus, [make.holding("other", gpus[3:])])
    assert entered(after, ledger).pools[make.POOL].free == [0b0111]


def test_a_claim_that_is_being_deleted_lacks_nothing() -> None:
    gone: Claim = make.claim(deleting=True, replicas=3)
    assert entered(make.snapshot(make.flat(), [gone])).lacking == {}
