"""Field reports about order, tenants, quotas, preemption and reservations, each named by its id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tests.support import checks, make

from adjoin_allocator import (
    Claim,
    Code,
    Eviction,
    Plan,
    PreemptionRules,
    Reclaim,
    ReplicaState,
    Snapshot,
    plan,
)

NOW = make.NOW
AGO = NOW - 3600


def planned(snapshot: Snapshot, now: float = NOW) -> Plan:
    answer = plan(snapshot, now)
    checks.assert_valid(snapshot, answer, now)
    return answer


def evicted(answer: Plan) -> dict[str, tuple[int, ...]]:
    return {one.uid.removeprefix("uid-"): one.replicas for one in answer.preempted}


def codes(answer: Plan, claim: Claim) -> list[Code]:
    return [reason.code for reason in answer.claims[claim.uid].reasons]


def nodes(answer: Plan, claim: Claim) -> list[str]:
    one = answer.claims.get(claim.uid)
    return [] if one is None else [placement.node for placement in one.placements]


def held_on(answer: Plan, claim: Claim) -> list[str]:
    return [nomination.node for nomination in answer.claims[claim.uid].nominated]


def low(name: str, devices: Iterable[object], **more: object) -> Claim:
    return make.holding(name, list(devices), **{"created": AGO, "ready_at": AGO, **more})  # type: ignore[arg-type]


def going(claim: Claim, by: Claim, at: float = NOW) -> Claim:
    """A victim whose eviction stands in its status."""
    released = tuple(replace(one, state=ReplicaState.RELEASING, releasing_since=at) for one in claim.placed)
    return replace(claim, placed=released, evictions=(Eviction(by.uid, at),))


def test_a11_a_node_that_one_claim_got_in_a_pass_is_no_other_claims() -> None:
    gpus = [*make.flat("x", 8), *make.flat("y", 8)]
    a = make.claim("a", make.request("gpu", 8), replicas=2, created=1.0)
    b = make.claim("b", make.request("gpu", 8))
    answer = planned(make.snapshot([*gpus], [low("y", gpus[8:]), a, b]))
    assert (nodes(answer, a), nodes(answer, b)) == (["x"], [])


def test_f4_reclaim_goes_up_to_the_quota_and_no_further() -> None:
    gpus = make.flat(gpus=8)
    held = [low(f"pair-{at}", gpus[2 * at : 2 * at + 2], tenant="proj-1", created=AGO + at) for at in range(4)]
    pool = make.pool(
        tenants={name: make.tenant(name, gpu=4, borrowing=4) for name in ("proj-1", "proj-2")},
        preemption=make.evicting(within=False),
    )
    asked = {count: make.claim(f"asks-{count}", make.request("gpu", count), tenant="proj-2") for count in (6, 5, 4, 3)}
    for count in (6, 5):
        answer = planned(make.snapshot(gpus, [*held, asked[count]], pools=[pool]))
        assert (evicted(answer), held_on(answer, asked[count])) == ({}, []), count
    answer = planned(make.snapshot(gpus, [*held, asked[4]], pools=[pool]))
    assert evicted(answer) == {"pair-2": (0,), "pair-3": (0,)}
    assert held_on(answer, asked[4]) == [make.NODE]
    # 4 : 4 now; three more would take its own tenant above its quota.
    got = make.after(asked[4], [])
    got = replace(got, placed=(make.placed({"gpu": gpus[4:]}),))
    answer = planned(make.snapshot(gpus, [*held[:2], got, asked[3]], pools=[pool]))
    assert evicted(answer) == {}


def test_f4_nobody_is_evicted_twice_in_ten_minutes_for_the_same_claim() -> None:
    gpus = make.flat(gpus=2)
    high = make.claim("high", make.request("gpu", 2), priority=1)
    for ago, victims in ((599, {}), (600, {"low": (0,)})):
        victim = low("low", gpus, evictions=(Eviction(high.uid, NOW - ago),))
        answer = planned(make.snapshot(gpus, [victim, high], pools=[make.pool(preemption=make.evicting())]))
        assert evicted(answer) == victims, ago


def test_f5_one_victim_makes_room_for_both_replicas() -> None:
    gpus = make.flat(gpus=8)
    victim = low("low", gpus)
    high = make.claim("high", make.request("gpu", 2), replicas=2, priority=1)
    pool = make.pool(preemption=make.evicting())
    answer = planned(make.snapshot(gpus, [victim, high], pools=[pool]))
    assert evicted(answer) == {"low": (0,)}
    assert held_on(answer, high) == [make.NODE, make.NODE]
    waits = make.told(high, answer.claims[high.uid])
    again = planned(make.snapshot(gpus, [going(victim, high), waits], pools=[pool]))
    assert evicted(again) == {}
    assert again.claims[high.uid].nominated == waits.nominated
    bound = planned(make.snapshot(gpus, [waits], pools=[pool]))
    assert nodes(bound, high) == [make.NODE, make.NODE]
    assert bound.pools[make.POOL].counts["gpu"].free == 4


def test_f6_the_lowest_priority_that_suffices_goes_in_one_round() -> None:
    gpus = [*make.flat("a", 1), *make.flat("b", 1)]
    claims = [low("low", gpus[:1], priority=0), low("middle", gpus[1:], priority=5)]
    high = make.claim("high", priority=9)
    pool = make.pool(preemption=make.evicting())
    assert evicted(planned(make.snapshot(gpus, [*claims, high], pools=[pool]))) == {"low": (0,)}


def test_f7_one_replica_of_eleven_goes_when_one_is_needed() -> None:
    gpus = make.flat(gpus=11)
    job = make.members("job", [gpus[at : at + 1] for at in range(11)], created=AGO, gang_min=1)
    high = make.claim("high", priority=1)
    pool = make.pool(preemption=make.evicting())
    for min_members, lost in ((1, (10,)), (None, (10,)), (10, (10,)), (11, tuple(range(11)))):
        snapshot = make.snapshot(gpus, [replace(job, gang_min=min_members), high], pools=[pool])
        assert evicted(planned(snapshot)) == {"job": lost}, min_members


def test_f9_small_claims_pass_a_blocked_one_until_it_has_waited_long_enough() -> None:
    h100 = make.flat("h", 8, attributes={"example.com/model": "h100"})
    a10 = make.flat("a", 4, attributes={"example.com/model": "a10"})
    running = [low(f"runs-{at}", h100[at : at + 1]) for at in range(2)]
    pool = make.pool(hold_after=600.0)

    def asks(name: str, model: str, count: int, **more: object) -> Claim:
        chosen = make.selecting("gpu", f"device.attributes['example.com'].model == '{model}'", count=count)
        return make.claim(name, chosen, **more)

    small = [asks("small-h", "h100", 1), asks("small-a", "a10", 1)]
    early, late = (asks("head", "h100", 8, created=NOW - waited) for waited in (599, 600))
    answer = planned(make.snapshot([*h100, *a10], [*running, early, *small], pools=[pool]))
    assert [nodes(answer, claim) for claim in (early, *small)] == [[], ["h"], ["a"]]
    answer = planned(make.snapshot([*h100, *a10], [*running, late, *small], pools=[pool]))
    assert [nodes(answer, claim) for claim in (late, *small)] == [[], [], ["a"]]
    assert codes(answer, small[0]) == [Code.HELD_FOR_OTHER]
    assert "team/head" in answer.claims[small[0].uid].reasons[0].message
    assert answer.pools[make.POOL].counts["gpu"].reserved == 6
    # Once the two have ended it starts.
    assert nodes(planned(make.snapshot([*h100, *a10], [late, *small], pools=[pool])), late) == ["h"]


def test_f10_nobody_goes_unless_what_comes_free_really_fits() -> None:
    gpus = [*make.flat("a", 2), *make.flat("b", 2)]
    claims = [low("low-a", gpus[:1]), low("high-a", gpus[1:2], priority=9)]
    claims += [low("low-b", gpus[2:3]), low("high-b", gpus[3:], priority=9)]
    pair = make.claim("pair", make.request("gpu", 2), priority=5)
    answer = planned(make.snapshot(gpus, [*claims, pair], pools=[make.pool(preemption=make.evicting())]))
    assert evicted(answer) == {}
    assert held_on(answer, pair) == []


def test_f11_quota_comes_back_with_the_device() -> None:
    gpus = make.flat(gpus=4)
    pool = make.pool(tenants=make.tenants(research=2))
    leaving = low("leaving", gpus[:2], tenant="research", deleting=True)
    new = make.claim("new", make.request("gpu", 2), tenant="research")
    assert codes(planned(make.snapshot(gpus, [leaving, new], pools=[pool])), new) == [Code.QUOTA_EXCEEDED]
    assert nodes(planned(make.snapshot(gpus, [new], pools=[pool])), new) == [make.NODE]


def test_f13_a_gang_is_reclaimed_as_a_whole() -> None:
    gpus = make.flat(gpus=4)
    gang = make.members("gang", [gpus[:2], gpus[2:]], created=AGO, gang_min=2, tenant="over")
    pool = make.pool(tenants=make.tenants(over=2, within=2), preemption=make.evicting(within=False))
    within = make.claim("within", tenant="within")
    assert evicted(planned(make.snapshot(gpus, [gang, within], pools=[pool]))) == {"gang": (0, 1)}


def test_f14_reclaim_never_goes_beyond_the_quota_whatever_the_shares() -> None:
    """The documented mode: a tenant takes back its quota; what is beyond it is nobody's right."""
    gpus = make.flat(gpus=8)
    held = [low(f"held-{at}", gpus[at : at + 1], tenant="rich") for at in range(8)]
    asks = make.claim("asks", make.request("gpu", 2), tenant="poor")
    for quota, victims in ((2, 2), (1, 0)):
        limits = {"rich": make.tenant("rich", gpu=3), "poor": make.tenant("poor", gpu=quota, borrowing=5, weight=9)}
        pool = make.pool(tenants=limits, preemption=make.evicting(within=False))
        assert len(evicted(planned(make.snapshot(gpus, [*held, asks], pools=[pool])))) == victims


def test_f15_what_comes_free_is_kept_for_the_preemptor_and_its_target_stays() -> None:
    gpus = [*make.flat("n1", 2), *make.flat("n2", 2)]
    claims = [low("n1", gpus[:2], priority=9), low("one", gpus[2:3]), low("two", gpus[3:])]
    s = make.claim("s", make.request("gpu", 2), priority=5)
    pool = make.pool(preemption=make.evicting())
    first = planned(make.snapshot(gpus, [*claims, s], pools=[pool]))
    assert (evicted(first), held_on(first, s)) == ({"one": (0,), "two": (0,)}, ["n2"])
    waits = make.told(s, first.claims[s.uid])
    # One of the two is back, and a small claim comes at this moment; so does n1, on which nothing was evicted.
    small = make.claim("small", created=AGO)
    leaving = replace(claims[0], deleting=True)
    second = planned(make.snapshot(gpus, [leaving, going(claims[2], s), waits, small], pools=[pool]))
    assert (evicted(second), held_on(second, s), nodes(second, small)) == ({}, ["n2"], [])
    assert codes(second, small) == [Code.HELD_FOR_OTHER]
    assert second.pools[make.POOL].counts["gpu"].reserved == 1
    third = planned(make.snapshot(gpus, [claims[0], waits, small], pools=[pool]))
    assert (nodes(third, s), nodes(third, small)) == (["n2"], [])


def test_f16_a_claim_that_only_waits_for_devices_gives_way_first() -> None:
    gpus = make.flat(gpus=2)
    waits = make.claim("waits", make.request("gpu", 2), priority=1, nominated=(make.nomination(gpus),))
    high = make.claim("high", priority=9)
    other = low("other", gpus[1:])
    pool = make.pool(preemption=make.evicting())
    answer = planned(make.snapshot(gpus, [going(other, waits), waits, high], pools=[pool]))
    assert nodes(answer, high) == [make.NODE]
    assert evicted(answer) == {}


def test_f17_a_gang_is_evicted_whole_or_down_to_its_fewest_members() -> None:
    gpus = make.flat(gpus=4)
    high = make.claim("high", make.request("gpu", 2), priority=1)
    pool = make.pool(preemption=make.evicting())
    for fewest, lost in ((2, (2, 3)), (3, (0, 1, 2, 3)), (4, (0, 1, 2, 3))):
        gang = make.members("gang", [gpus[at : at + 1] for at in range(4)], created=AGO, gang_min=fewest)
        assert evicted(planned(make.snapshot(gpus, [gang, high], pools=[pool]))) == {"gang": lost}, fewest


def test_f18_what_the_lender_waits_for_keeps_nobody_from_borrowing() -> None:
    gpus = [*make.flat("a", 4), *make.flat("b", 4)]
    limits = {"lender": make.tenant("lender", gpu=8), "borrower": make.tenant("borrower", gpu=0, borrowing=4)}
    pool = make.pool(tenants=limits)
    large = make.claim("large", make.request("gpu", 8), tenant="lender", created=1.0)
    small = make.claim("small", make.request("gpu", 4), tenant="borrower")
    answer = planned(make.snapshot(gpus, [large, small], pools=[pool]))
    assert (nodes(answer, large), len(nodes(answer, small))) == ([], 1)
    # It can borrow only what the lender does not hold.
    held = low("held", gpus[:3] + gpus[4:7], tenant="lender")
    answer = planned(make.snapshot(gpus, [held, replace(small, requests=(make.request("gpu", 1),))], pools=[pool]))
    assert len(nodes(answer, small)) == 1
    held = low("held", gpus[:7], tenant="lender")
    pair = replace(small, requests=(make.request("gpu", 2),))
    assert codes(planned(make.snapshot(gpus, [held, pair], pools=[pool])), small)[0] is Code.QUOTA_EXCEEDED


def test_f20_both_requests_see_what_comes_free() -> None:
    devices = make.flat(gpus=1, nics=1)
    pool = make.pool(preemption=make.evicting())
    high = make.pairs("high", priority=1)
    answer = planned(make.snapshot(devices, [low("low", devices), high], pools=[pool]))
    assert evicted(answer) == {"low": (0,)}
    assert [given.request for given in answer.claims[high.uid].nominated[0].devices] == ["gpu", "nic"]


def test_d7_nothing_to_share_is_shared_without_end() -> None:
    """Weights of nothing, one tenant, no devices, no claims: every shape of nothing has an answer."""
    nobody = make.tenant("nobody", gpu=0, weight=0)
    for tenants in ({}, {"nobody": nobody}):
        pool = make.pool(tenants=tenants, preemption=make.evicting(reclaim=Reclaim.ANY), hold_after=0.0)
        for devices in ((), make.flat(gpus=1)):
            for count in (0, 1, 3):
                claims = [
                    make.claim(f"c{at}", make.request("gpu", 2), tenant="nobody", created=AGO) for at in range(count)
                ]
                answer = planned(make.snapshot(devices, claims, pools=[pool]))
                assert len(answer.claims) == count
                assert not answer.preempted


def test_d13_a_stuck_victim_is_waited_for_no_longer_than_ten_minutes() -> None:
    gpus = [*make.flat("n1", 1), *make.flat("n2", 1)]
    s = make.claim("s", priority=5)
    stuck, other = low("stuck", gpus[:1]), low("other", gpus[1:], priority=1)
    pool = make.pool(preemption=make.evicting())
    waits = replace(s, nominated=(make.nomination(gpus[:1]),))
    for ago, target, victims in ((599, "n1", {}), (600, "n2", {"other": (0,)})):
        answer = planned(make.snapshot(gpus, [going(stuck, s, NOW - ago), other, waits], pools=[pool]))
        assert (held_on(answer, s), evicted(answer)) == ([target], victims), ago
    # Where nothing else can be had it waits on, and says for how long.
    answer = planned(make.snapshot(gpus[:1], [going(stuck, s, NOW - 7200), waits], pools=[pool]))
    assert held_on(answer, s) == ["n1"]
    assert answer.claims[s.uid].reasons[0].message == (
        "1 of 1 device that is held for it is still being released by team/stuck, for 120 minutes by now"
    )


def test_b10_a_quota_counts_cards_times_their_part() -> None:
    """Two cards at 20 % of compute and half of the memory each are one card of the quota; 1 MiB more is refused."""
    cards = [make.card(f"gpu-{at}", memory="4096Mi") for at in range(4)]
    pool = make.pool(tenants=make.tenants(research=1))
    two = make.claim("two", make.part("2048Mi", 200, count=2), tenant="research", created=1.0)
    more = make.claim("more", make.part("1Mi"), tenant="research")
    answer = planned(make.snapshot(cards, [two, more], pools=[pool], shares=[make.share()]))
    assert answer.pools[make.POOL].usage == {"research": {"gpu": 1000}}
    assert nodes(answer, two) == [make.NODE]
    assert codes(answer, more)[0] is Code.QUOTA_EXCEEDED
    # The same when the two stand in a status.
    held = make.after(two, answer.claims[two.uid].placements)
    answer = planned(make.snapshot(cards, [held, more], pools=[pool], shares=[make.share()]))
    assert answer.pools[make.POOL].usage == {"research": {"gpu": 1000}}
    assert codes(answer, more)[0] is Code.QUOTA_EXCEEDED


def test_f3_parts_of_several_cards_add_up() -> None:
    cards = [make.card(f"gpu-{at}") for at in range(2)]
    pool = make.pool(tenants=make.tenants(research=1))
    for memory, got in (("48Gi", False), ("40Gi", True)):
        claim = make.claim("c", make.part(memory, count=2), tenant="research", preemptible=False)
        answer = planned(make.snapshot(cards, [claim], pools=[pool], shares=[make.share()]))
        assert bool(nodes(answer, claim)) is got, memory
        told = [reason.message for reason in answer.claims[claim.uid].reasons]
        assert told == ([] if got else ["tenant research holds 0 of 1 gpu, needs 1.2"])


def test_f12_a_victims_part_counts_as_free() -> None:
    """One card, all of it with a low claim: a high one for half of it evicts it, and so does one for the whole card."""
    card = make.card()
    share = make.share()
    pool = make.pool(preemption=make.evicting())
    low_ = make.claim("low", make.part(milli=1000), created=AGO)
    placed = planned(make.snapshot([card], [low_], pools=[pool], shares=[share])).claims[low_.uid].placements
    held = make.after(low_, placed)
    held = replace(held, placed=tuple(replace(one, ready_at=AGO) for one in held.placed))
    for asked in (make.part(milli=500), make.request("gpu")):
        high = make.claim("high", asked, priority=1)
        answer = planned(make.snapshot([card], [held, high], pools=[pool], shares=[share]))
        assert evicted(answer) == {"low": (0,)}
        assert held_on(answer, high) == [make.NODE]
        waits = make.told(high, answer.claims[high.uid])
        again = planned(make.snapshot([card], [going(held, high), waits], pools=[pool], shares=[share]))
        assert (evicted(again), held_on(again, high)) == ({}, [make.NODE])
        assert nodes(planned(make.snapshot([card], [waits], pools=[pool], shares=[share])), high) == [make.NODE]


def test_who_gives_way_for_quota_alone_is_named() -> None:
    """Two GPUs are free, and the tenant has one too many: no device is waited for, but the claim that gives its own."""
    devices = [*make.flat("n0", 1), *make.flat("n1", 2)]
    lo = low("lo", devices[:1], tenant="ta")
    hi = make.claim("hi", make.request("gpu", 2), created=NOW, priority=5, tenant="ta")
    pool = make.pool(tenants=make.tenants(ta=2), preemption=PreemptionRules(within_tenant=True))
    answer = planned(make.snapshot(devices, [lo, hi], pools=[pool]))
    assert evicted(answer) == {"lo": (0,)}
    (reason,) = answer.claims[hi.uid].reasons
    assert reason.code is Code.DEVICE_RELEASING
    assert reason.message == (
        "2 devices are held for it; quota or host resources are still to be given back by team/lo"
    )
