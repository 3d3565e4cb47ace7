"""Service order: effective priority, the tenant's portion, age, UID, then the order of the input."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from tests.support import make

from adjoin_allocator import Aging, Claim, ClaimUID, Pool
from adjoin_allocator.order import NOTHING, Portion, aged, effective, service, urgency

NOW = make.NOW
HOUR = 3600.0


def one(name: str, uid: str | None = None, **more: object) -> Claim:
    return make.claim(name, uid=ClaimUID(uid or f"made-up-{name}"), has_uid=uid is not None, **more)


def served(claims: list[Claim], **more: object) -> str:
    pools: Mapping[str, Pool] = {make.POOL: make.pool(**more)}
    return "".join(claim.name for claim in service(claims, NOW, pools, lambda pool, tenant: NOTHING))


@pytest.mark.parametrize(
    ("claims", "order"),
    [
        pytest.param([one("a", "1"), one("b", "2", priority=1)], "ba", id="higher priority first"),
        pytest.param([one("a", "1", priority=-1), one("b", "2")], "ba", id="a negative priority is low"),
        pytest.param([one("a", "1", created=NOW), one("b", "2", created=NOW - 5)], "ba", id="then the older"),
        pytest.param([one("a", "1", created=None), one("b", "2", created=NOW - 1)], "ba", id="no age counts as now"),
        pytest.param([one("a", "2"), one("b", "1")], "ba", id="then by UID"),
        pytest.param([one("b"), one("a")], "ba", id="without UID as they come"),
        pytest.param([one("b", "2"), one("a"), one("c", "1")], "bac", id="one missing UID leaves equals as they come"),
        pytest.param([one("b"), one("a", "1", priority=9), one("c", "0", priority=9)], "cab", id="but only its equals"),
        pytest.param([one("a"), one("b", deadline=NOW + HOUR)], "ba", id="a near deadline raises"),
        pytest.param([one("a", priority=97), one("b", deadline=NOW + HOUR)], "ab", id="by 96 an hour before"),
        pytest.param([one("a"), one("b", pool="elsewhere", priority=1)], "ba", id="claims of no pool are served too"),
        pytest.param([], "", id="nobody"),
    ],
)
def test_order(claims: list[Claim], order: str) -> None:
    assert served(claims) == order


def test_waiting_raises_above_a_younger_claim_of_higher_priority() -> None:
    claims = [one("young", priority=2, created=NOW), one("old", created=NOW - 180)]
    assert served(claims) == "youngold"
    assert served(claims, aging=Aging(every=60.0)) == "oldyoung"


@pytest.mark.parametrize(
    ("waiting", "added"),
    [(0, 0), (59.999, 0), (60, 2), (119, 2), (120, 4), (-5, 0), (1e9, 7)],
)
def test_aging_steps_each_time_up_to_its_most(waiting: float, added: int) -> None:
    assert aged(Aging(every=60.0, step=2, max=7), waiting) == added


def test_aging_divides_exactly() -> None:
    assert [aged(Aging(every=0.1), waiting) for waiting in (0.1, 0.2, 0.3, 0.7)] == [1, 2, 3, 7]


def test_without_aging_nothing_is_added() -> None:
    assert aged(None, 1e9) == 0


@pytest.mark.parametrize(
    ("remaining", "added"),
    [
        pytest.param(25 * HOUR, 0, id="more than a day"),
        pytest.param(24 * HOUR, 0, id="a day"),
        pytest.param(24 * HOUR - 1, 1, id="any part of a hundredth counts"),
        pytest.param(12 * HOUR, 50, id="half a day"),
        pytest.param(0, 100, id="now"),
        pytest.param(-50 * HOUR, 100, id="past"),
    ],
)
def test_urgency(remaining: float, added: int) -> None:
    assert urgency(NOW + remaining, NOW) == added


def test_effective_priority_is_the_sum() -> None:
    claim = one("a", priority=-3, created=NOW - 120, deadline=NOW + 12 * HOUR)
    assert effective(claim, make.pool(aging=Aging(every=60.0)), NOW) == -3 + 2 + 50


def test_the_smaller_portion_goes_first_and_is_asked_for_again() -> None:
    """Weight decides: each claim adds a tenth to its tenant, `heavy` counts it half."""
    have = {"light": Fraction(0), "heavy": Fraction(0)}

    def portion(pool: str, tenant: str) -> Portion:
        return 0, have[tenant]

    claims = [one(f"{tenant[0]}{at}", tenant=tenant, created=NOW - at) for tenant in have for at in range(3)]
    order = []
    for claim in service(claims, NOW, {make.POOL: make.pool()}, portion):
        order.append(claim.name)
        have[claim.tenant] += Fraction(1, 20 if claim.tenant == "heavy" else 10)
    assert order == ["l2", "h2", "h1", "l1", "h0", "l0"]


def test_priority_counts_before_the_portion() -> None:
    claims = [one("a", tenant="poor"), one("b", tenant="rich", priority=1)]

    def portion(pool: str, tenant: str) -> Portion:
        return 0, Fraction(tenant == "rich")

    assert [claim.name for claim in service(claims, NOW, {}, portion)] == ["b", "a"]
