"""Reservations: who gets one, for when, and who may use what is reserved."""

from __future__ import annotations

import pytest
from tests.support import checks, make

from adjoin_allocator import Claim, Code, Device, Plan, ReplicaState, Snapshot, plan

NOW = make.NOW
HOUR = 3600.0
POOL = make.pool(hold_after=600.0)


def planned(snapshot: Snapshot) -> Plan:
    answer = plan(snapshot, NOW)
    checks.assert_valid(snapshot, answer, NOW)
    return answer


def runs(name: str, devices: list[Device], left: float | None, **more: object) -> Claim:
    """A claim that runs since an hour and ends in `left` seconds, or nobody knows when."""
    longest = None if left is None else HOUR + left
    return make.holding(name, devices, ready_at=NOW - HOUR, created=1.0, max_runtime=longest, **more)


def head(count: int = 8, waited: float = 600.0, **more: object) -> Claim:
    return make.claim("head", make.request("gpu", count), **{"created": NOW - waited, **more})


def placed(answer: Plan, claim: Claim) -> list[str]:
    return [placement.node for placement in answer.claims[claim.uid].placements]


@pytest.mark.parametrize(
    ("waiting", "kept"),
    [
        pytest.param(head(), 6, id="several devices, long enough"),
        pytest.param(head(waited=599.9), 0, id="not long enough"),
        pytest.param(head(created=None), 0, id="nobody knows since when"),
        pytest.param(head(9), 0, id="what no node has is not waited for"),
    ],
)
def test_who_gets_one(waiting: Claim, kept: int) -> None:
    gpus = make.flat(gpus=8)
    answer = planned(make.snapshot(gpus, [runs("runs", gpus[6:], HOUR), waiting], pools=[POOL]))
    assert answer.pools[make.POOL].counts["gpu"].reserved == kept


def test_one_device_needs_none_whoever_takes_the_others() -> None:
    gpus = make.flat(gpus=1)
    old = make.claim("old", created=1.0)
    answer = planned(make.snapshot(gpus, [runs("runs", gpus, HOUR), old], pools=[POOL]))
    assert answer.pools[make.POOL].counts["gpu"].reserved == 0


def test_without_hold_after_nothing_is_held() -> None:
    gpus = make.flat(gpus=8)
    small = make.claim("small")
    answer = planned(make.snapshot(gpus, [runs("runs", gpus[6:], HOUR), head(), small]))
    assert placed(answer, small) == [make.NODE]


@pytest.mark.parametrize(
    ("longest", "got"),
    [
        pytest.param(HOUR, True, id="it ends when the capacity is needed"),
        pytest.param(HOUR + 1, False, id="it would end too late"),
        pytest.param(None, False, id="nobody knows when it ends"),
    ],
)
def test_only_who_ends_before_may_use_what_is_reserved(longest: float | None, got: bool) -> None:
    gpus = make.flat(gpus=8)
    small = make.claim("small", max_runtime=longest)
    answer = planned(make.snapshot(gpus, [runs("runs", gpus[6:], HOUR), head(), small], pools=[POOL]))
    assert bool(placed(answer, small)) is got
    assert (Code.HELD_FOR_OTHER in [reason.code for reason in answer.claims[small.uid].reasons]) is not got


def test_nobody_passes_while_nobody_knows_when_it_is_needed() -> None:
    gpus = make.flat(gpus=8)
    small = make.claim("small", max_runtime=1.0)
    answer = planned(make.snapshot(gpus, [runs("runs", gpus[6:], None), head(), small], pools=[POOL]))
    assert placed(answer, small) == []


def test_the_node_that_is_free_first_is_kept_and_the_other_is_not() -> None:
    """Six are free on each node; what is left of `b` ends first."""
    a, b = make.flat("a", 8), make.flat("b", 8)
    running = [runs("long", a[6:], 2 * HOUR), runs("short", b[6:], HOUR)]
    small = make.claim("small", make.request("gpu", 6), created=NOW - 10)
    answer = planned(make.snapshot([*a, *b], [*running, head(), small], pools=[POOL]))
    assert placed(answer, small) == ["a"]
    more = make.claim("more", max_runtime=HOUR)
    late = make.claim("late", max_runtime=2 * HOUR)
    answer = planned(make.snapshot([*a, *b], [*running, head(), small, more, late], pools=[POOL]))
    assert (placed(answer, more), placed(answer, late)) == (["b"], [])


def test_where_nobody_knows_the_node_with_least_to_come_is_kept() -> None:
    a, b = make.flat("a", 8), make.flat("b", 8)
    running = [runs("three", a[5:], None), runs("one", b[7:], None)]
    small = make.claim("small", make.request("gpu", 5))
    answer = planned(make.snapshot([*a, *b], [*running, head(), small], pools=[POOL]))
    assert (placed(answer, small), answer.pools[make.POOL].counts["gpu"].reserved) == (["a"], 7)


def test_what_is_on_its_way_back_is_waited_for_first() -> None:
    a, b = make.flat("a", 8), make.flat("b", 8)
    leaving = runs("leaving", a[:4], None, state=ReplicaState.RELEASING)
    answer = planned(make.snapshot([*a, *b], [leaving, runs("runs", b[7:], HOUR), head()], pools=[POOL]))
    assert answer.pools[make.POOL].counts["gpu"].reserved == 4


def test_there_is_one_a_pool_for_the_first_in_the_order() -> None:
    a, b = make.flat("a", 8), make.flat("b", 8)
    running = [runs("on-a", a[7:], HOUR), runs("on-b", b[6:], 2 * HOUR)]
    second = make.claim("second", make.request("gpu", 8), created=NOW - 700, priority=-1)
    small = make.claim("small", make.request("gpu", 6), priority=-2)
    answer = planned(make.snapshot([*a, *b], [*running, head(), second, small], pools=[POOL]))
    assert (placed(answer, small), answer.pools[make.POOL].counts["gpu"].reserved) == (["b"], 7)


def test_who_comes_before_in_the_order_is_not_kept_waiting() -> None:
    gpus = make.flat(gpus=8)
    first = make.claim("first", priority=1)
    answer = planned(make.snapshot(gpus, [runs("runs", gpus[6:], HOUR), head(), first], pools=[POOL]))
    assert placed(answer, first) == [make.NODE]


def test_no_victim_is_taken_from_what_is_reserved() -> None:
    """`late` could evict, but the devices that its victim has are needed by `head` when that ends."""
    gpus = make.flat(gpus=2)
    pool = make.pool(hold_after=600.0, preemption=make.evicting())
    running = [runs("low", gpus[:1], HOUR, priority=-5), runs("same", gpus[1:], HOUR, priority=5)]
    first = head(2, priority=4, deadline=NOW)
    late = make.claim("late", priority=6)
    answer = planned(make.snapshot(gpus, [*running, first, late], pools=[pool]))
    assert answer.preempted == ()


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        pytest.param(head(), "6", id="a replica"),
        pytest.param(head(2, replicas=4, gang_min=4), "6 of 8 free", id="a gang"),
    ],
)
def test_what_is_held_for_a_claim_is_free_in_its_reasons(waiting: Claim, words: str) -> None:
    """Two of eight devices run; the six others are held for who waits, and for nobody else."""
    gpus = make.flat(gpus=8)
    other = make.claim("other", make.request("gpu", 2), priority=-1)
    answer = planned(make.snapshot(gpus, [runs("runs", gpus[6:], HOUR), waiting, other], pools=[POOL]))
    assert answer.pools[make.POOL].counts["gpu"].reserved == 6
    messages = " ".join(reason.message for reason in answer.claims[waiting.uid].reasons)
    assert words in messages
    assert [reason.code for reason in answer.claims[other.uid].reasons] == [Code.HELD_FOR_OTHER]
