"""Tenants: usage, quota, borrowing, dominant share, and what is said when a quota is used up."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.support import checks, make

from adjoin_allocator import Alternative, Claim, Code, Plan, ReplicaState, Snapshot, Tenant, plan
from adjoin_allocator.tenancy import Accounts, Usage, amount, least_cost

NOW = make.NOW


def accounts(*tenants: Tenant, held: dict[str, dict[str, int]] | None = None, gpus: int = 16) -> Accounts:
    usage = Usage()
    for name, kinds in (held or {}).items():
        for kind, number in kinds.items():
            usage.change(name, kind, number * 1000, back=False)
    pool = make.pool(tenants={one.name: one for one in tenants})
    return Accounts(pool, {"gpu": gpus, "nic": 4}, usage)


def planned(snapshot: Snapshot) -> Plan:
    answer = plan(snapshot, NOW)
    checks.assert_valid(snapshot, answer, NOW)
    return answer


@pytest.mark.parametrize(
    ("tenants", "held", "room"),
    [
        pytest.param([make.tenant("a")], {}, None, id="a name that has no quota is unlimited"),
        pytest.param([make.tenant("b", gpu=1)], {}, None, id="so is a tenant that the pool does not know"),
        pytest.param([make.tenant("a", gpu=0)], {}, 0, id="a quota of nothing is nothing"),
        pytest.param([make.tenant("a", gpu=4)], {"a": {"gpu": 1}}, 3, id="what is left of the quota"),
        pytest.param([make.tenant("a", gpu=4)], {"a": {"gpu": 9}}, 0, id="above a quota that was lowered"),
        pytest.param([make.tenant("a", gpu=4, borrowing=9)], {}, 4, id="nobody else has a quota to lend"),
        pytest.param(
            [make.tenant("a", gpu=4, borrowing=3), make.tenant("b", gpu=8)], {}, 7, id="no more than it may borrow"
        ),
        pytest.param(
            [make.tenant("a", gpu=4, borrowing=9), make.tenant("b", gpu=8)],
            {"b": {"gpu": 6}},
            6,
            id="no more than others leave",
        ),
        pytest.param(
            [make.tenant("a", gpu=4, borrowing=9), make.tenant("b", gpu=4, borrowing=9), make.tenant("c", gpu=4)],
            {"b": {"gpu": 6}},
            6,
            id="what others borrow is lent already",
        ),
        pytest.param(
            [make.tenant("a", gpu=4, borrowing=9), make.tenant("b", gpu=4)],
            {"b": {"gpu": 8}, "": {"gpu": 3}},
            4,
            id="its own quota stays its own",
        ),
        pytest.param(
            [make.tenant("a", gpu=4, borrowing=9), make.tenant("b", nic=4)], {}, 4, id="a quota of nics lends no gpus"
        ),
    ],
)
def test_room(tenants: list[Tenant], held: dict[str, dict[str, int]], room: int | None) -> None:
    found = accounts(*tenants, held=held).room("a", "gpu")
    assert found == (None if room is None else room * 1000)


def test_what_is_given_and_promised_counts_until_it_is_taken_back() -> None:
    one = accounts(make.tenant("a", gpu=4))
    one.give("a", {"gpu": 1000})
    one.promise("a", {"gpu": 2000})
    assert (one.room("a", "gpu"), one.held("a", "gpu")) == (1000, 1000)
    one.promise("a", {"gpu": 2000}, -1)
    one.give("a", {"gpu": 1000}, -1)
    assert (one.room("a", "gpu"), one.usage()) == (4000, {"a": {}})


@pytest.mark.parametrize(
    ("tenant", "held", "portion"),
    [
        pytest.param(make.tenant("a"), {"gpu": 4, "nic": 1}, Fraction(1, 4), id="the greatest part of any name"),
        pytest.param(make.tenant("a"), {"gpu": 4, "nic": 2}, Fraction(1, 2), id="which may be another one"),
        pytest.param(make.tenant("a", weight=3), {"gpu": 4}, Fraction(1, 12), id="over the weight, exactly"),
        pytest.param(make.tenant("a"), {"tape": 7}, Fraction(0), id="of what the pool does not have nothing is a part"),
    ],
)
def test_dominant_share(tenant: Tenant, held: dict[str, int], portion: Fraction) -> None:
    assert accounts(tenant, held={"a": held}).portion("a") == (0, portion)


def test_a_weight_of_nothing_comes_last() -> None:
    one = accounts(make.tenant("a", weight=0), make.tenant("b"), held={"b": {"gpu": 16}})
    assert one.portion("a") > one.portion("b")


def test_without_tenants_shares_decide_nothing() -> None:
    assert accounts(held={"a": {"gpu": 9}}).portion("a") == accounts().portion("b")


@pytest.mark.parametrize(
    ("milli", "words"), [(8000, "8"), (500, "0.5"), (1250, "1.25"), (0, "0"), (1, "0.001")], ids=str
)
def test_amounts(milli: int, words: str) -> None:
    assert amount(milli) == words


def test_least_cost_is_that_of_the_cheapest_alternative() -> None:
    first_of = (
        Alternative("many", count=4),
        Alternative("all", count=0, all_devices=True),
        Alternative("few", count=2),
    )
    requests = (make.request("gpu", 1, first_of=first_of), make.request("more", 3, kind="gpu"), make.everything("nic"))
    assert least_cost(requests) == {"gpu": 4000, "nic": 1000}


# In decisions


def tight(**more: object) -> object:
    return make.pool(tenants={"research": make.tenant("research", gpu=16)}, **more)


def full(name: str = "held", tenant: str = "research") -> list[Claim]:
    gpus = [*make.flat("a", 8), *make.flat("b", 8)]
    return [make.holding(f"{name}-{at}", gpus[8 * at : 8 * at + 8], tenant=tenant) for at in range(2)]


NODES = [*make.flat("a", 8), *make.flat("b", 8), *make.flat("c", 8)]


def test_a_used_up_quota_is_told_with_numbers_and_what_would_do() -> None:
    claim = make.claim("new", make.request("gpu", 8), tenant="research")
    snapshot = make.snapshot(NODES, [*full(), claim], pools=[tight()])
    one = planned(snapshot).claims[claim.uid]
    assert [(reason.code, reason.message) for reason in one.reasons] == [
        (Code.QUOTA_EXCEEDED, "tenant research holds 16 of 16 gpu, needs 8")
    ]
    assert one.nearest == "fits with quota 24 instead of 16 of gpu for tenant research"
    more = make.pool(tenants={"research": make.tenant("research", gpu=24)})
    assert planned(replace(snapshot, pools={more.name: more})).claims[claim.uid].placements


def test_who_may_borrow_is_told_how_much() -> None:
    tenants = {"research": make.tenant("research", gpu=16, borrowing=8), "other": make.tenant("other", gpu=4)}
    claim = make.claim("new", make.request("gpu", 8), tenant="research")
    answer = planned(make.snapshot(NODES, [*full(), claim], pools=[make.pool(tenants=tenants)]))
    assert answer.claims[claim.uid].reasons[0].message == (
        "tenant research holds 16 of 16 gpu and may borrow 8 while others leave theirs (4 now), needs 8"
    )


def test_a_quota_and_a_full_pool_are_both_told() -> None:
    claim = make.claim("new", make.request("gpu", 8), tenant="research")
    answer = planned(make.snapshot(NODES[:16], [*full(), claim], pools=[tight()]))
    codes = [reason.code for reason in answer.claims[claim.uid].reasons]
    assert codes == [Code.QUOTA_EXCEEDED, Code.INSUFFICIENT_DEVICES]
    assert answer.claims[claim.uid].nearest is None


def test_replicas_are_placed_as_far_as_the_quota_goes() -> None:
    claim = make.claim("new", make.request("gpu", 4), replicas=6, tenant="research")
    one = planned(make.snapshot(NODES, [claim], pools=[tight()])).claims[claim.uid]
    assert len(one.placements) == 4
    assert [reason.code for reason in one.reasons] == [Code.QUOTA_EXCEEDED]


def test_all_of_a_node_is_given_only_where_the_quota_allows_so_many() -> None:
    devices = [*make.flat("large", 8), *make.flat("small", 2)]
    pool = make.pool(tenants={"research": make.tenant("research", gpu=3)})
    claim = make.claim("new", make.everything(), tenant="research")
    answer = planned(make.snapshot(devices, [claim], pools=[pool]))
    assert [placement.node for placement in answer.claims[claim.uid].placements] == ["small"]
    none = make.pool(tenants={"research": make.tenant("research", gpu=1)})
    answer = planned(make.snapshot(devices, [claim], pools=[none]))
    assert [reason.message for reason in answer.claims[claim.uid].reasons] == [
        "tenant research holds 0 of 1 gpu, needs 2"
    ]


def test_usage_is_told_by_tenant_with_what_is_on_its_way_back() -> None:
    devices = make.flat("a", 8)
    back = make.holding("back", devices[:2], tenant="x", state=ReplicaState.RELEASING)
    new = make.claim("new", make.request("gpu", 3), tenant="y")
    pool = make.pool(tenants={"x": make.tenant("x", gpu=8), "idle": make.tenant("idle", gpu=8)})
    answer = planned(make.snapshot(devices, [back, new], pools=[pool]))
    assert answer.pools[make.POOL].usage == {"idle": {}, "x": {"gpu": 2000}, "y": {"gpu": 3000}}


def test_tenants_of_one_priority_share_by_weight() -> None:
    """Both want everything: 12 devices are shared 2 to 1, though one tenant's claims are all older."""
    tenants = {"a": make.tenant("a", weight=2), "b": make.tenant("b")}
    claims = [
        make.claim(f"{who}{at}", tenant=who, created=NOW - (9 if who == "b" else 1)) for who in "ab" for at in range(12)
    ]
    answer = planned(make.snapshot(make.flat(gpus=12), claims, pools=[make.pool(tenants=tenants)]))
    assert answer.pools[make.POOL].usage == {"a": {"gpu": 8000}, "b": {"gpu": 4000}}


def test_a_lender_takes_its_quota_back_by_reclaiming() -> None:
    tenants = {"lender": make.tenant("lender", gpu=8), "borrower": make.tenant("borrower", gpu=0, borrowing=8)}
    gpus = make.flat(gpus=8)
    held = [make.holding(f"h{at}", gpus[2 * at : 2 * at + 2], tenant="borrower", created=NOW - at) for at in range(4)]
    claim = make.claim("mine", make.request("gpu", 4), tenant="lender")
    pool = make.pool(tenants=tenants, preemption=make.evicting(within=False))
    answer = planned(make.snapshot(gpus, [*held, claim], pools=[pool]))
    assert sorted(one.uid for one in answer.preempted) == ["uid-h0", "uid-h1"]
