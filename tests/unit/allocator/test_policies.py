"""Amounts as Kubernetes counts them: rounded up to what a driver's request policy has, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support import make
from tests.support.checks import assert_valid

from adjoin_allocator import plan
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Device, RequestPolicy
from adjoin_allocator.policies import consumed, consumption, rounded

GI = 1 << 30
STEPS = RequestPolicy(default=10 * GI, least=10 * GI, most=80 * GI, step=10 * GI)
VALUES = RequestPolicy(default=20, values=(10, 20, 40))


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        pytest.param(None, 7, 7, id="no policy: any amount"),
        pytest.param(None, None, 100, id="no policy and nothing asked: all of it"),
        pytest.param(VALUES, None, 20, id="nothing asked: the default"),
        pytest.param(VALUES, 10, 10, id="a value"),
        pytest.param(VALUES, 11, 20, id="between values: the next one"),
        pytest.param(VALUES, 41, None, id="beyond all values"),
        pytest.param(RequestPolicy(least=8, most=64, step=8), 1, 8, id="less than the least"),
        pytest.param(RequestPolicy(least=8, most=64, step=8), 17, 24, id="between steps: the next one"),
        pytest.param(RequestPolicy(least=8, most=64, step=8), 24, 24, id="a step"),
        pytest.param(RequestPolicy(least=5, most=64, step=8), 6, 13, id="steps begin at the least"),
        pytest.param(RequestPolicy(least=8, most=60, step=8), 58, None, id="the next step is beyond the range"),
        pytest.param(RequestPolicy(least=8, most=64), 17, 17, id="a range without steps"),
        pytest.param(RequestPolicy(default=3), 17, 17, id="a default alone limits nothing"),
    ],
)
def test_an_amount_is_rounded_as_kubernetes_does(policy: RequestPolicy | None, asked: int | None, taken: int) -> None:
    assert consumed(policy, asked, 100) == taken


def shareable(policy: RequestPolicy | None = STEPS, **more: str) -> Device:
    card = make.card("gpu-0", memory="80Gi")
    capacity = {**card.capacity, **{f"gpu.nvidia.com/{name}": Quantity.parse(text) for name, text in more.items()}}
    policies = {"gpu.nvidia.com/memory": policy} if policy is not None else {}
    return replace(card, allow_multiple_allocations=True, policies=policies, capacity=capacity)


def test_memory_of_a_device_is_rounded_and_refused_beyond_it() -> None:
    assert rounded(shareable(), 31 * GI) == 40 * GI
    assert rounded(shareable(), None) == 10 * GI
    assert rounded(shareable(), 81 * GI) is None
    assert rounded(shareable(None), 81 * GI) is None


def test_a_device_for_one_allocation_takes_any_amount() -> None:
    card = replace(shareable(), allow_multiple_allocations=False)
    assert rounded(card, 31 * GI) == 31 * GI
    assert rounded(card, None) is None


def test_every_capacity_is_consumed_by_default_or_whole() -> None:
    card = replace(
        shareable(shares="4", engines="7"),
        policies={"gpu.nvidia.com/memory": STEPS, "gpu.nvidia.com/shares": RequestPolicy(default=1)},
    )
    taken = {name: str(amount) for name, amount in consumption(card, 40 * GI).items()}
    assert taken == {"gpu.nvidia.com/memory": "40Gi", "gpu.nvidia.com/shares": "1", "gpu.nvidia.com/engines": "7"}


@pytest.mark.parametrize(
    ("asked", "placed"),
    [
        pytest.param((31, 31), 2, id="two that are each counted as 40 of 80"),
        pytest.param((31, 31, 1), 2, id="and then not even the least part of it"),
        pytest.param((None, 61, 1), 2, id="the default of 10 beside what is counted as 70"),
        pytest.param((81,), 0, id="more than the driver gives"),
    ],
)
def test_parts_take_what_kubernetes_counts(asked: tuple[int | None, ...], placed: int) -> None:
    claims = [
        make.claim(f"c{at}", make.part(None if gib is None else gib * GI, 100), created=float(at))
        for at, gib in enumerate(asked)
    ]
    snapshot = make.snapshot([shareable()], claims, shares=[make.share()])
    decided = plan(snapshot, make.NOW)
    assert_valid(snapshot, decided)
    assert [bool(decided.claims[claim.uid].placements) for claim in claims] == [
        at < placed for at in range(len(claims))
    ]
