"""Devices that share counters: what fits is given and nothing else, small partitions keep large ones possible."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from tests.support import make
from tests.support.checks import assert_valid
from tests.support.partitions import (
    PROFILES,
    counted,
    device,
    fit_together,
    largest_sets,
    mig_card,
    placed,
    random_cards,
)

from adjoin_allocator import Claim, Code, Device, Memo, PlacedReplica, Plan, ReplicaState, Request, Standing, plan
from adjoin_allocator.budgets import Counters, counters_key
from adjoin_allocator.terms import HoldKind, Isolation, Objective


def profile(name: str, count: int = 1, called: str = "mig") -> Request:
    return make.selecting(called, f"device.attributes['gpu.nvidia.com'].profile == '{name}'", count=count, kind="mig")


def colour(value: str, count: int = 1, called: str = "gpu") -> Request:
    return make.selecting(called, f"device.attributes['gpu.nvidia.com'].colour == '{value}'", count=count, kind="gpu")


def named(plan_: Plan, name: str) -> list[str]:
    return [each.id.device for one in plan_.claims[f"uid-{name}"].placements for each in one.devices]


def having(name: str, devices: list[Device], **more: object) -> Claim:
    """A claim that has these devices, and records what they take."""
    held = make.holding(name, devices)
    by_name = {one.id: one for one in devices}
    replica = held.placed[0]
    told = tuple(placed(each.request, by_name[each.id]) for each in replica.devices)
    return replace(held, placed=(replace(replica, devices=told),), **more)  # type: ignore[arg-type]


def decided(devices: list[Device], *claims: Claim, **more: object) -> Plan:
    snapshot = make.snapshot(devices, claims, **more)  # type: ignore[arg-type]
    answer = plan(snapshot, make.NOW)
    assert_valid(snapshot, answer, make.NOW)
    return answer


# One after the other


@pytest.mark.parametrize(
    ("held", "asked", "given"),
    [
        pytest.param([], ("7g", 1), ["gpu-0-mig-7g-0"], id="the whole card as one partition"),
        pytest.param(["1g-0"], ("7g", 1), [], id="one slice in use keeps the whole from being given"),
        pytest.param(["1g-0"], ("4g", 1), [], id="a large one whose place is in use"),
        pytest.param(["1g-0"], ("3g", 1), ["gpu-0-mig-3g-4"], id="the place that is left"),
        pytest.param(["4g-0"], ("3g", 1), ["gpu-0-mig-3g-4"], id="four and three fill the card"),
        pytest.param(["3g-0", "3g-4"], ("1g", 1), [], id="slices are gone, though compute is left"),
        pytest.param(["2g-0"], ("1g", 1), ["gpu-0-mig-1g-2"], id="a small one into the hole beside"),
        pytest.param(["1g-4"], ("1g", 1), ["gpu-0-mig-1g-5"], id="small ones keep a place for the large one"),
        pytest.param(["1g-0", "1g-1", "1g-5"], ("3g", 1), [], id="test a18: four slices are left and not together"),
        pytest.param([], ("1g", 7), [f"gpu-0-mig-1g-{at}" for at in range(7)], id="as many as there are"),
        pytest.param([], ("1g", 8), [], id="more than there are"),
        pytest.param([], ("2g", 3), ["gpu-0-mig-2g-0", "gpu-0-mig-2g-2", "gpu-0-mig-2g-4"], id="three pairs"),
        pytest.param(["1g-6"], ("2g", 3), ["gpu-0-mig-2g-0", "gpu-0-mig-2g-2", "gpu-0-mig-2g-4"], id="and one left"),
        pytest.param([], ("3g", 3), [], id="compute would do for two"),
    ],
)
def test_a_card_gives_what_its_counters_allow(held: list[str], asked: tuple[str, int], given: list[str]) -> None:
    devices = mig_card()
    taken = [one for one in devices if one.id.device.removeprefix("gpu-0-mig-") in held]
    holders = [having("holder", taken)] if taken else []
    answer = decided(devices, *holders, make.claim("new", profile(*asked)))
    assert named(answer, "new") == given


def test_small_partitions_go_to_cards_that_are_partitioned_already() -> None:
    devices = [*mig_card(0), *mig_card(1)]
    used = next(one for one in devices if one.id.device == "gpu-1-mig-1g-4")
    answer = decided(devices, having("holder", [used]), make.claim("new", profile("1g", 2)))
    assert named(answer, "new") == ["gpu-1-mig-1g-5", "gpu-1-mig-1g-6"]


def test_whole_cards_and_partitions_of_one_request_list() -> None:
    devices = [one for number in range(3) for one in mig_card(number)]
    answer = decided(devices, make.claim("new", make.request("gpu", 2), profile("3g", 2)))
    assert named(answer, "new") == ["gpu-0", "gpu-1", "gpu-2-mig-3g-0", "gpu-2-mig-3g-4"]


def test_all_that_match_must_go_together() -> None:
    devices = mig_card(profiles=("1g", "3g"), whole=False)
    every = make.everything("mig", kind="mig")
    answer = decided(devices, make.claim("new", every))
    assert not named(answer, "new")
    assert answer.claims["uid-new"].reasons
    ones = mig_card(profiles=("1g",), whole=False)
    assert len(named(decided(ones, make.claim("new", every)), "new")) == 7


def test_a_reason_counts_what_goes_together() -> None:
    answer = decided(mig_card(), make.claim("new", profile("3g", 3)))
    (reason,) = answer.claims["uid-new"].reasons
    assert reason.code in (Code.INSUFFICIENT_DEVICES, Code.FRAGMENTED)
    assert "2" in reason.message
    every = make.claim("new", make.request("mig", 8, kind="mig"))
    assert decided(mig_card(), every).claims["uid-new"].nearest == "fits with count 7 instead of 8 in request mig"


def test_what_others_take_beside_the_inventory_is_gone() -> None:
    devices = mig_card(outside={"memory-slice-6": 1, "multiprocessors": 14, "memory": 5})
    answer = decided(devices, make.claim("large", profile("7g")), make.claim("small", profile("4g")))
    assert named(answer, "large") == []
    assert named(answer, "small") == ["gpu-0-mig-4g-0"]
    assert answer.pools[make.POOL].counts["gpu"].allocated == 1


def test_a_foreign_partition_takes_its_counters() -> None:
    devices = mig_card()
    theirs = next(one.id for one in devices if one.id.device == "gpu-0-mig-1g-6")
    answer = decided(devices, make.claim("new", profile("3g", 2)), holds={theirs: make.hold(HoldKind.FOREIGN)})
    assert named(answer, "new") == []


@pytest.mark.parametrize(
    ("standing", "fits"),
    [
        pytest.param(Standing.UNHEALTHY, True, id="what is tainted takes nothing while nobody has it"),
        pytest.param(Standing.QUARANTINED, False, id="what could not be cleaned may still be on the card"),
    ],
)
def test_standings(standing: Standing, fits: bool) -> None:
    devices = [
        replace(one, standing=standing) if one.id.device == "gpu-0-mig-1g-6" else one for one in mig_card(whole=False)
    ]
    answer = decided(devices, make.claim("new", profile("7g")))
    assert bool(named(answer, "new")) is fits


def test_partitions_are_hard_and_cost_their_part() -> None:
    devices = [one for number in range(2) for one in mig_card(number)]
    pool = make.pool(kinds=("gpu", "nic", "mig"), tenants={"team": make.tenant("team", mig=1)})
    ask = replace(profile("3g"), isolation=Isolation.HARD)
    claims = [make.claim(name, ask, tenant="team", created=float(at)) for at, name in enumerate("abc")]
    answer = decided(devices, *claims, pools=[pool])
    # Half of the card's memory each: the third one would be more than the quota.
    assert [bool(named(answer, name)) for name in "abc"] == [True, True, False]
    assert answer.claims["uid-c"].reasons[0].code is Code.QUOTA_EXCEEDED


def test_the_smallest_victims_are_those_on_the_card() -> None:
    devices = mig_card()
    low = [one for one in devices if one.id.device in ("gpu-0-mig-1g-0", "gpu-0-mig-1g-4")]
    holders = [having(f"low-{at}", [one]) for at, one in enumerate(low)]
    pool = make.pool(kinds=("gpu", "nic", "mig"), preemption=make.evicting())
    answer = decided(devices, *holders, make.claim("high", profile("4g"), priority=5), pools=[pool])
    assert [each.uid for each in answer.preempted] == ["uid-low-0"]
    answer = decided(devices, *holders, make.claim("high", make.request("gpu"), priority=5), pools=[pool])
    assert sorted(each.uid for each in answer.preempted) == ["uid-low-0", "uid-low-1"]


def test_what_is_coming_back_is_told() -> None:
    devices = mig_card()
    small = next(one for one in devices if one.id.device == "gpu-0-mig-1g-0")
    leaving = having("leaving", [small])
    leaving = replace(leaving, placed=(replace(leaving.placed[0], state=ReplicaState.RELEASING),), deleting=True)
    answer = decided(devices, leaving, make.claim("new", make.request("gpu")))
    assert answer.claims["uid-new"].reasons[0].code is Code.DEVICE_RELEASING
    assert answer.pools[make.POOL].counts["gpu"].releasing == 1


def test_gangs_hold_what_cards_hold_together() -> None:
    devices = [one for node in ("node-a", "node-b") for one in mig_card(0, node)]
    answer = decided(devices, make.gang("gang", profile("3g"), replicas=4))
    assert len(named(answer, "gang")) == 4
    answer = decided(devices, make.gang("gang", profile("3g"), replicas=5))
    assert not named(answer, "gang")


# Against an oracle


def _fits(devices: list[Device], held: list[Device], groups: list[tuple[list[Device], int]]) -> bool:
    """Whether so many of each group can be had together, by looking at all."""
    free = [one for one in devices if one not in held and one.standing is Standing.OFFERED]

    def rest(at: int, taken: list[Device]) -> bool:
        if at == len(groups):
            return True
        candidates = [one for one in groups[at][0] if one in free and one not in taken]
        return any(rest(at + 1, [*taken, *some]) for some in largest_sets(candidates, [*held, *taken], groups[at][1]))

    return rest(0, [])


@pytest.mark.parametrize("seed", range(150))
def test_exactly_what_fits_is_given(seed: int) -> None:
    random = Random(seed)
    devices = random_cards(random, cards=random.randint(1, 3), devices=random.randint(3, 8))
    held: list[Device] = []
    for one in random.sample(devices, k=random.randint(0, 3)):
        if fit_together([*held, one]):
            held.append(one)
    holders = [having(f"holder-{at}", [one]) for at, one in enumerate(held)]
    asks = [
        colour(value, random.randint(1, 3), value) for value in random.sample(("red", "blue"), k=random.randint(1, 2))
    ]
    groups = [
        ([one for one in devices if one.attributes["gpu.nvidia.com/colour"] == ask.name], ask.count) for ask in asks
    ]
    replicas = random.choice((1, 1, 2))
    claim = make.gang("new", *asks, replicas=replicas) if replicas > 1 else make.claim("new", *asks)
    answer = decided(devices, *holders, claim)
    assert bool(named(answer, "new")) == _fits(devices, held, groups * replicas), answer.claims["uid-new"].reasons


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_is_served_in_order_and_more_of_it_is_never_found_by_hand(seed: int) -> None:
    """Throughput places as many devices as can be placed; in order, the lexicographically best set."""
    random = Random(seed)
    devices = mig_card(profiles=random.sample(sorted(PROFILES), k=3))
    claims = [
        make.claim(f"c{at}", profile(random.choice(sorted(PROFILES)), random.randint(1, 2)), created=float(at))
        for at in range(3)
    ]
    groups = [
        [one for one in devices if one.attributes["gpu.nvidia.com/type"] == "mig" and _asks(claim.requests[0], one)]
        for claim in claims
    ]
    answers = [
        [at for at, chosen in enumerate(some) if chosen]
        for some in product((True, False), repeat=len(claims))
        if _fits(devices, [], [(groups[at], claims[at].requests[0].count) for at, chosen in enumerate(some) if chosen])
    ]
    best = answers[0]
    answer = decided(devices, *claims)
    assert [at for at in range(len(claims)) if named(answer, f"c{at}")] == best
    pool = make.pool(kinds=("gpu", "nic", "mig"), objective=Objective.THROUGHPUT)
    answer = decided(devices, *claims, pools=[pool])
    most = max(sum(claims[at].requests[0].count for at in some) for some in answers)
    assert sum(len(named(answer, f"c{at}")) for at in range(len(claims))) == most


def _asks(request: Request, one: Device) -> bool:
    return f"'{one.attributes['gpu.nvidia.com/profile']}'" in request.selectors[0].expression


@pytest.mark.parametrize("seed", range(25))
def test_counters_are_kept_over_any_sequence(seed: int) -> None:
    """A solver that has seen all that went before decides as one that has not, and never gives a counter out twice."""
    random = Random(seed)
    devices = [one for node in ("node-a", "node-b") for one in random_cards(random, node, 2, 7)]
    memo = Memo()
    claims: list[Claim] = []
    for step in range(25):
        claims = [claim for claim in claims if random.random() < 0.8]
        if random.random() < 0.8:
            ask = colour(random.choice(("red", "blue")), random.randint(1, 2))
            claims.append(make.claim(f"c{step}", ask, created=float(step)))
        snapshot = make.snapshot(devices, claims)
        answer = plan(snapshot, make.NOW, memo)
        assert_valid(snapshot, answer, make.NOW)
        assert plan(snapshot, make.NOW).claims == answer.claims
        claims = [
            make.after(claim, answer.claims[claim.uid].placements) if claim.uid in answer.claims else claim
            for claim in claims
        ]


# The arithmetic itself


def test_amounts_are_exact() -> None:
    devices = [
        device(f"gpu-{at}", consumes={"set": {"c": make.Quantity.parse(text)}}, counters=_total("1"))
        for at, text in enumerate(("100m", "300m", "700m", "0.61"))
    ]
    key = counters_key(devices)
    assert key is not None
    counters = Counters(*key)
    assert counters.usable(0b0111) == 0b0011
    assert counters.most(0b1111, 0b1111) == 2
    assert counters.portions == (1000, 1000, 1000, 1000)


def _total(text: str) -> dict[str, dict[str, make.Quantity]]:
    return {"set": {"c": make.Quantity.parse(text)}}


def test_a_set_that_is_not_published_holds_what_its_greatest_device_takes() -> None:
    devices = [
        device("gpu-0", consumes=counted(set={"slices": 4})),
        device("gpu-1", consumes=counted(set={"slices": 2})),
        device("gpu-2", consumes=counted(set={"slices": 3})),
    ]
    key = counters_key(devices)
    assert key is not None
    counters = Counters(*key)
    assert counters.usable(0b101) == 0
    assert counters.usable(0b110) == 0
    assert counters.usable(0b011) == 0
    assert counters.usable(0b111) == 0b111


def test_devices_without_counters_have_none() -> None:
    assert counters_key([make.device("gpu-0")]) is None


def test_replicas_of_one_claim_share_a_card() -> None:
    claim = make.claim("many", profile("1g"), replicas=8)
    answer = decided(mig_card(), claim)
    placed_ = answer.claims["uid-many"].placements
    assert isinstance(placed_, tuple)
    assert len(placed_) == 7
    assert all(isinstance(one.index, int) for one in placed_)
    replicas = [PlacedReplica(one.index, one.node, ReplicaState.READY, one.devices) for one in placed_]
    again = decided(mig_card(), replace(claim, placed=tuple(replicas)))
    assert not again.claims["uid-many"].placements
