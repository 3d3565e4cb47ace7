"""What people ask about a claim: whose turn it is, what its tenant has, who may be evicted, who is in the way."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.support import make

from adjoin_allocator import (
    Aging,
    Alternative,
    Claim,
    ClaimUID,
    Eviction,
    FabricLevel,
    HoldKind,
    Pool,
    PreemptionRules,
    Reclaim,
    Snapshot,
    Standing,
    Tenant,
    plan,
)
from adjoin_allocator.inquiry import Books, fabric_level, in_the_way, may_evict, quota, turn


def tenants(**quotas: int) -> Mapping[str, Tenant]:
    return {name: Tenant(name, {"gpu": limit}, {"gpu": 2}, 2 if name == "b" else 1) for name, limit in quotas.items()}


def crowd(**more: Any) -> Snapshot:
    """Tenant a holds four GPUs, tenant b two; both have claims that wait for more than there is."""
    devices = make.flat("node-a", 8)
    claims = [
        make.holding("of-a", devices[:4], tenant="a", created=make.NOW - 50),
        make.holding("of-b", devices[4:6], tenant="b", created=make.NOW - 50),
        make.claim("next-a", make.request("gpu", 4), tenant="a", created=make.NOW - 20),
        make.claim("next-b", make.request("gpu", 4), tenant="b", created=make.NOW - 10),
    ]
    return make.snapshot(devices, claims, pools=[make.pool(**{"tenants": tenants(a=4, b=4), **more})])


def named(snapshot: Snapshot, name: str) -> Claim:
    return next(claim for claim in snapshot.claims if claim.name == name)


class TestTurn:
    def test_who_has_less_comes_first(self) -> None:
        snapshot = crowd()
        when = {name: turn(snapshot, named(snapshot, name), make.NOW) for name in ("next-a", "next-b")}
        assert (when["next-a"].dominant_share, when["next-b"].dominant_share) == (0.5, 0.125)
        assert (when["next-a"].position, when["next-a"].ahead) == (2, ("uid-next-b",))
        assert (when["next-b"].position, when["next-b"].waiting) == (1, 2)

    def test_without_tenants_age_decides(self) -> None:
        snapshot = crowd(tenants={})
        when = turn(snapshot, named(snapshot, "next-a"), make.NOW)
        assert (when.position, when.dominant_share) == (1, 0.75)

    def test_the_effective_priority_counts_first(self) -> None:
        snapshot = crowd(aging=Aging(15.0, 3))
        when = turn(snapshot, named(snapshot, "next-a"), make.NOW)
        assert (when.position, when.priority, when.aging, when.urgency, when.effective) == (1, 0, 3, 0, 3)

    def test_one_that_is_placed_has_no_turn(self) -> None:
        snapshot = crowd()
        assert turn(snapshot, named(snapshot, "of-a"), make.NOW).position is None

    def test_without_a_pool(self) -> None:
        snapshot = make.snapshot([], [make.claim(pool="none")])
        when = turn(snapshot, snapshot.claims[0], make.NOW)
        assert (when.position, when.waiting) == (None, 0)

    def test_a_weight_of_nothing_comes_last(self) -> None:
        snapshot = crowd(tenants={**tenants(b=4), "a": Tenant("a", {}, {}, 0)})
        when = turn(snapshot, named(snapshot, "next-a"), make.NOW)
        assert (when.dominant_share, when.position) == (None, 2)

    @pytest.mark.parametrize("seed", range(20))
    def test_it_is_the_order_in_which_they_are_served(self, seed: int) -> None:
        """One device frees up at a time: whoever gets it had the first turn, of shares that are thirds too."""
        rng = random.Random(seed)
        devices = make.flat(gpus=7)
        held = [make.holding(f"held-{at}", [devices[at]], tenant=rng.choice("abc")) for at in range(6)]
        waiting = [
            make.claim(f"next-{at}", tenant=rng.choice("abc"), created=make.NOW - rng.choice((1, 1, 2)))
            for at in range(4)
        ]
        weights = {name: Tenant(name, {}, {}, rng.choice((1, 2, 3))) for name in "abc"}
        snapshot = make.snapshot(devices, [*held, *waiting], pools=[make.pool(tenants=weights)])
        placements = {uid for uid, answer in plan(snapshot, make.NOW).claims.items() if answer.placements}
        assert placements == {claim.uid for claim in waiting if turn(snapshot, claim, make.NOW).position == 1}


class TestQuota:
    def test_what_a_tenant_has_and_may_have(self) -> None:
        snapshot = crowd()
        (line,) = quota(snapshot, named(snapshot, "next-a"), make.NOW)
        assert (line.device, line.used_milli, line.asked_milli, line.capacity) == ("gpu", 4000, 4000, 8)
        assert (line.quota, line.borrowing) == (4, 2)

    def test_all_is_what_the_node_with_most_has(self) -> None:
        devices = [*make.flat(gpus=4), *make.flat(node="n2", gpus=2)]
        every, either = make.everything("gpu"), make.request("gpu")
        either = replace(either, first_of=(Alternative("one"), Alternative("every", count=0, all_devices=True)))
        for request in (every, either):
            snapshot = make.snapshot(devices, [make.claim("claim", request, replicas=2)])
            (line,) = quota(snapshot, named(snapshot, "claim"), make.NOW)
            assert line.asked_milli == 8000

    def test_without_tenants_everything_is_everybodys(self) -> None:
        snapshot = crowd(tenants={})
        (line,) = quota(snapshot, named(snapshot, "next-a"), make.NOW)
        assert (line.used_milli, line.quota, line.borrowing) == (6000, None, 0)

    def test_usage_is_that_of_the_pool_alone(self) -> None:
        devices = [*make.flat("node-a", 1), make.device("gpu-9", "node-b", pool="other")]
        claims = [make.holding("here", devices[:1]), make.holding("there", devices[1:], pool="other")]
        pool = make.pool()
        snapshot = make.snapshot(devices, claims, pools=[pool, make.pool("other")])
        (line,) = quota(snapshot, snapshot.claims[0], make.NOW)
        assert (line.used_milli, line.capacity) == (1000, 1)


RULES = PreemptionRules(within_tenant=True, reclaim=Reclaim.ANY, min_runtime=600.0)


def pool_with(rules: PreemptionRules, **quotas: int) -> Pool:
    return make.pool(preemption=rules, tenants=tenants(**quotas) if quotas else {})


@pytest.mark.parametrize(
    ("pool", "claim", "holder", "used", "expected"),
    [
        pytest.param(pool_with(RULES), {"priority": 1}, {}, {}, (True, "its priority is lower"), id="lower priority"),
        pytest.param(pool_with(RULES), {}, {}, {}, (False, "its priority is not lower"), id="equal priority"),
        pytest.param(
            pool_with(RULES), {"priority": 1}, {"preemptible": False}, {}, (False, "it is not preemptible"), id="fixed"
        ),
        pytest.param(
            pool_with(RULES),
            {"priority": 1},
            {"deleting": True},
            {},
            (False, "it is being deleted, or on its way back already"),
            id="leaving",
        ),
        pytest.param(
            pool_with(RULES),
            {"priority": 1},
            {"ready_at": make.NOW - 599},
            {},
            (False, "it has run for less than the 600 s that are sure"),
            id="too young",
        ),
        pytest.param(
            pool_with(RULES),
            {"priority": 1},
            {"ready_at": None},
            {},
            (False, "it has run for less than the 600 s that are sure"),
            id="nobody knows since when",
        ),
        pytest.param(
            pool_with(RULES),
            {"priority": 1},
            {"evictions": (Eviction(ClaimUID("uid-claim"), make.NOW - 599),)},
            {},
            (False, "it was evicted for this claim a moment ago"),
            id="evicted for it already",
        ),
        pytest.param(
            pool_with(RULES),
            {"priority": 1, "tenant": "x"},
            {"ready_at": make.NOW - 600, "tenant": "y"},
            {},
            (True, "its priority is lower"),
            id="without tenants all are one",
        ),
        pytest.param(
            pool_with(PreemptionRules()),
            {"priority": 1},
            {},
            {},
            (False, "preemption.withinTenant is Never"),
            id="off",
        ),
        pytest.param(
            pool_with(PreemptionRules(), a=4, b=4),
            {"tenant": "a"},
            {"tenant": "b"},
            {},
            (False, "preemption.reclaim is Never"),
            id="no reclaim",
        ),
        pytest.param(
            pool_with(RULES, a=4, b=1),
            {"tenant": "a"},
            {"tenant": "b", "priority": 9},
            {"b": {"gpu": 2000}},
            (True, "tenant b is above its quota of gpu"),
            id="above its quota",
        ),
        pytest.param(
            pool_with(RULES, a=4, b=2),
            {"tenant": "a"},
            {"tenant": "b"},
            {"b": {"gpu": 2000}},
            (False, "tenant b is within its quota"),
            id="within its quota",
        ),
        pytest.param(
            pool_with(RULES, a=4, b=1),
            {"tenant": "a"},
            {"tenant": "b"},
            {"a": {"gpu": 4000}, "b": {"gpu": 2000}},
            (False, "tenant a would be above its own quota"),
            id="who takes would have too much itself",
        ),
        pytest.param(
            pool_with(replace(RULES, reclaim=Reclaim.LOWER_PRIORITY), a=4, b=1),
            {"tenant": "a"},
            {"tenant": "b", "priority": 0},
            {"b": {"gpu": 2000}},
            (False, "its priority is not lower"),
            id="reclaim of lower priority alone",
        ),
    ],
)
def test_who_may_be_evicted(
    pool: Pool, claim: dict[str, Any], holder: dict[str, Any], used: Mapping[str, Any], expected: tuple[bool, str]
) -> None:
    since = holder.get("ready_at", 0.0)
    devices = make.flat(gpus=8)
    held = make.holding("holder", devices[:1], **{key: holder[key] for key in holder if key != "ready_at"})
    held = replace(held, placed=tuple(replace(each, ready_at=since) for each in held.placed))
    others, rest = [], devices[1:]
    for tenant, amounts in used.items():
        count = amounts["gpu"] // 1000 - (tenant == holder.get("tenant"))
        others.append(make.holding(f"of-{tenant}", rest[:count], tenant=tenant))
        rest = rest[count:]
    asking = make.claim(**claim)
    books = Books.of(make.snapshot(devices, [held, *others, asking], pools=[pool]), pool.name, make.NOW)
    assert may_evict(books, asking, held) == expected


def contested(seed: int) -> Snapshot:
    """A full node, and a claim that may have some of its holders evicted, or none."""
    rng = random.Random(seed)
    devices = make.flat(gpus=4)
    holders = []
    for number, device in enumerate(devices):
        fields = {
            "tenant": rng.choice("ab"),
            "priority": rng.randrange(3),
            "preemptible": rng.random() < 0.8,
            "deleting": rng.random() < 0.1,
        }
        holder = make.holding(f"holder-{number}", [device], **fields)
        since = rng.choice((None, 0.0, make.NOW - 5))
        holders.append(replace(holder, placed=tuple(replace(each, ready_at=since) for each in holder.placed)))
    claim = make.claim("waits", make.request("gpu", rng.choice((1, 2))), tenant="a", priority=rng.randrange(3))
    rules = PreemptionRules(rng.random() < 0.7, rng.choice(tuple(Reclaim)), rng.choice((0.0, 60.0)))
    quotas = tenants(a=rng.choice((1, 4)), b=rng.choice((0, 1, 4))) if rng.random() < 0.7 else {}
    return make.snapshot(devices, [*holders, claim], pools=[make.pool(preemption=rules, tenants=quotas)])


def test_whom_plan_evicts_may_be_evicted() -> None:
    """The words of one and the deeds of the other. Only when a claim's own tenant gives up something too may more be
    legal than each by itself."""
    evicted = 0
    for seed in range(300):
        snapshot = contested(seed)
        claim, made = snapshot.claims[-1], plan(snapshot, make.NOW)
        books = Books.of(snapshot, make.POOL, make.NOW)
        may = {holder.uid: may_evict(books, claim, holder)[0] for holder in snapshot.claims[:-1]}
        tenants_of = {holder.uid: holder.tenant for holder in snapshot.claims}
        own = any(tenants_of[victim.uid] == claim.tenant for victim in made.preempted)
        for victim in made.preempted:
            assert may[victim.uid] or (own and tenants_of[victim.uid] != claim.tenant), f"seed {seed}: {victim.uid}"
        evicted += bool(made.preempted)
    assert evicted > 20


class TestInTheWay:
    def test_those_who_alone_would_be_enough_come_first(self) -> None:
        devices = [*make.flat("node-a", 4), *make.flat("node-b", 4)]
        holders = [make.holding("a", devices[:1]), make.holding("b", devices[1:2]), make.holding("c", devices[4:7])]
        snapshot = make.snapshot(devices, [*holders, make.claim("waits", make.request("gpu", 4))])
        found = in_the_way(snapshot, plan(snapshot, make.NOW), snapshot.claims[-1], make.NOW)
        assert [(each.name, each.enough) for each in found.holders] == [
            ("team/c", True),
            ("team/a", False),
            ("team/b", False),
        ]
        assert [(each.node, dict(each.free)) for each in found.nodes] == [
            ("node-a", {"gpu": 2}),
            ("node-b", {"gpu": 1}),
        ]

    def test_nobody_is_where_room_is_there_but_wired_otherwise(self) -> None:
        devices = [make.device(f"gpu-{i}", root=f"r{i}") for i in range(3)]
        claim = make.claim("waits", make.request("gpu", 2), make.required("PCIeRoot", "gpu"))
        snapshot = make.snapshot(devices, [make.holding("a", devices[:1]), claim])
        assert in_the_way(snapshot, plan(snapshot, make.NOW), claim, make.NOW).holders == ()

    def test_closed_nodes_come_last(self) -> None:
        devices = [*make.flat("node-a", 2), *make.flat("node-b", 2)]
        shut = make.node("node-a", unschedulable=True)
        snapshot = make.snapshot(
            devices, [make.holding("b", devices[2:3]), make.claim("waits", make.request("gpu", 2))], nodes=[shut]
        )
        found = in_the_way(snapshot, plan(snapshot, make.NOW), snapshot.claims[-1], make.NOW)
        assert [(each.node, bool(each.closed)) for each in found.nodes] == [("node-b", False), ("node-a", True)]

    def test_devices_that_the_selectors_do_not_match_are_in_nobodys_way(self) -> None:
        devices = [make.device(f"gpu-{i}", attributes={"x/fast": i > 0}) for i in range(3)]
        claim = make.claim("waits", make.selecting("gpu", "device.attributes['x'].fast", count=2))
        snapshot = make.snapshot(
            devices, [make.holding("slow", devices[:1]), make.holding("fast", devices[1:2]), claim]
        )
        found = in_the_way(snapshot, plan(snapshot, make.NOW), claim, make.NOW)
        assert [each.name for each in found.holders] == ["team/fast"]

    def test_others_and_what_comes_back(self) -> None:
        devices = make.flat(gpus=2)
        holds = {devices[0].id: make.hold(), devices[1].id: make.hold(HoldKind.RELEASING, "ResourceClaim team/old")}
        snapshot = make.snapshot(devices, [make.claim("waits", make.request("gpu", 2))], holds=holds)
        found = in_the_way(snapshot, plan(snapshot, make.NOW), snapshot.claims[0], make.NOW)
        assert {(each.name, each.releasing, each.why) for each in found.holders} == {
            ("ResourceClaim other/theirs", False, "it is not Adjoin's"),
            ("ResourceClaim team/old", True, "it is on its way back"),
        }

    def test_too_small_a_node_is_no_candidate(self) -> None:
        devices = make.flat(gpus=2)
        snapshot = make.snapshot(devices, [make.holding("a", devices), make.claim("waits", make.request("gpu", 3))])
        found = in_the_way(snapshot, plan(snapshot, make.NOW), snapshot.claims[-1], make.NOW)
        assert (found.candidates, found.holders) == (0, ())

    def test_an_unhealthy_device_is_not_free(self) -> None:
        devices = [make.device("gpu-0", standing=Standing.UNHEALTHY), make.device("gpu-1")]
        snapshot = make.snapshot(devices, [make.claim("waits", make.request("gpu", 2))])
        (near,) = in_the_way(snapshot, plan(snapshot, make.NOW), snapshot.claims[0], make.NOW).nodes
        assert (near.free, near.eligible) == ({"gpu": 1}, {"gpu": 2})


@pytest.mark.parametrize(
    ("nodes", "level"),
    [
        pytest.param(("n1", "n2"), "rack", id="one rack"),
        pytest.param(("n1", "n3"), "block", id="one block"),
        pytest.param(("n1", "n4"), None, id="nothing in common"),
        pytest.param(("n1", "n5"), None, id="a node of which nothing is known"),
        pytest.param((), None, id="nowhere"),
    ],
)
def test_the_level_that_was_reached(nodes: tuple[str, ...], level: str | None) -> None:
    labels = {
        "n1": {"block": "a", "rack": "1"},
        "n2": {"block": "a", "rack": "1"},
        "n3": {"block": "a", "rack": "2"},
        "n4": {"block": "b", "rack": "3"},
        "n5": {},
    }
    devices = [make.device("gpu-0", name) for name in labels]
    by_node = {device.node: device for device in devices}
    placed = tuple(make.placed({"gpu": [by_node[name]]}, index) for index, name in enumerate(nodes))
    pool = make.pool(fabric=(FabricLevel("block", "block"), FabricLevel("rack", "rack")))
    claim = make.claim("gang", replicas=2, placed=placed)
    given = [make.node(name, labels=given) for name, given in labels.items()]
    assert fabric_level(make.snapshot(devices, [claim], pools=[pool], nodes=given), claim) == level
