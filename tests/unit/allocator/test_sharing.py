"""Arithmetic of a shared device: reserve, parts, costs."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import make

from adjoin_allocator.card_rules import CardRule
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Request
from adjoin_allocator.sharing import Part, isolates, memory_bytes, part, reserve_bytes
from adjoin_allocator.sharing import shareable_bytes as shareable
from adjoin_allocator.terms import Isolation, ShareMode

GIB = 1 << 30
MIB = 1 << 20


@pytest.mark.parametrize(
    ("percent", "least", "memory", "kept"),
    [
        pytest.param(30_000, 256 * MIB, 80 * GIB, 2_576_980_378, id="three per cent of a large card, rounded up"),
        pytest.param(30_000, 256 * MIB, 4 * GIB, 256 * MIB, id="the least reserve of a small card"),
        pytest.param(0, 0, 80 * GIB, 0, id="no reserve is legal"),
        pytest.param(25_000, 0, 1001, 26, id="a broken byte is kept back"),
        pytest.param(1_000_000, 0, GIB, GIB, id="everything is kept back"),
    ],
)
def test_the_reserve_is_exact(percent: int, least: int, memory: int, kept: int) -> None:
    """The greater of both, and what may be given away is the rest."""
    share = make.share(reserve_per_million=percent, min_reserve_bytes=least)
    assert reserve_bytes(share, memory) == kept
    assert shareable(share, memory) == memory - kept


def test_a_reserve_greater_than_the_card_leaves_nothing() -> None:
    """And never less than nothing."""
    assert shareable(make.share(min_reserve_bytes=GIB), GIB // 2) == 0


@given(st.integers(0, 10**13), st.integers(0, 1_000_000), st.integers(0, 10**12))
def test_the_reserve_agrees_with_fractions(memory: int, per_million: int, least: int) -> None:
    """No rounding but the one that is said."""
    share = make.share(reserve_per_million=per_million, min_reserve_bytes=least)
    assert reserve_bytes(share, memory) == max(least, ceil(Fraction(memory * per_million, 1_000_000)))


@given(st.integers(1, 10**12), st.integers(0, 10**12), st.integers(0, 1000))
def test_a_part_costs_its_largest_fraction_rounded_up(cap: int, memory: int, milli: int) -> None:
    """In thousandths of the card; and what is left is rounded down, so that together they are never more than it."""
    memory = min(memory, cap)
    rule = CardRule(make.share(), cap)
    cost = rule.cost(Part(memory, milli))
    assert cost == max(ceil(Fraction(memory * 1000, cap)), milli)
    assert rule.left_milli((memory, milli, 0)) <= 1000 - max(cost - 1, 0)


@pytest.mark.parametrize(
    ("request_", "cap", "milli"),
    [
        pytest.param(make.part(milli=250, count=2), 0, 500, id="compute of two cards"),
        pytest.param(make.part(GIB, count=3), 3 * GIB, 1002, id="a third of three cards each, rounded up each"),
        pytest.param(make.part(GIB, 500), 10 * GIB, 500, id="compute is the larger fraction"),
        pytest.param(make.part(GIB), 0, 1000, id="memory of a card of which nothing is known costs all of it"),
    ],
)
def test_a_request_costs_quota_by_its_largest_fraction(request_: Request, cap: int, milli: int) -> None:
    """In thousandths of devices."""
    assert request_.share is not None
    share = make.share()
    assert request_.count * CardRule(share, cap).cost(part(request_.share, share)) == milli


@pytest.mark.parametrize(
    ("amount", "found"),
    [
        pytest.param("80Gi", 80 * GIB, id="binary"),
        pytest.param("1500m", 1, id="rounded down"),
        pytest.param("2G", 2 * 10**9, id="decimal"),
    ],
)
def test_memory_is_read_from_the_capacity_of_that_name(amount: str, found: int) -> None:
    """Of any domain, the driver's own first."""
    device = make.device(capacity={"gpu.nvidia.com/memory": Quantity.parse(amount), "a/memory": Quantity.parse("1Ki")})
    assert memory_bytes(device) == found
    assert memory_bytes(make.device()) is None


def test_isolation_is_a_fact_of_the_mode() -> None:
    """Who asks for Hard never gets less."""
    hard = [mode for mode in ShareMode if isolates(mode, Isolation.HARD)]
    assert hard == [ShareMode.PARTITIONED, ShareMode.VIRTUAL_FUNCTIONS]
    assert not isolates(ShareMode.TIME_SLICED, Isolation.COOPERATIVE)
    assert all(isolates(mode, Isolation.NONE) for mode in ShareMode)
