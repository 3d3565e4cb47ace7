"""Counters of one device: exact sums, whatever the notation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.shared import needs_shared, shared

from adjoin_allocator.cel import Quantity
from adjoin_allocator.counters import Amount, Shortfall, fits, left, nano, short
from adjoin_allocator.geometry import built_in
from adjoin_allocator.partitions import Slot, starts

Q = Quantity.parse


@pytest.mark.parametrize(
    ("available", "consumed", "asked", "right"),
    [
        pytest.param({"memory": Q("80Gi")}, [], {"memory": Q("80Gi")}, True, id="all of it"),
        pytest.param({"memory": Q("80Gi")}, [], {"memory": Q("85899345921")}, False, id="one byte too many"),
        pytest.param({"memory": Q("1Gi")}, [{"memory": Q("512Mi")}], {"memory": Q("536870912")}, True, id="notations"),
        pytest.param({"sm": Q("300m")}, [{"sm": Q("100m")}, {"sm": Q("0.1")}], {"sm": Q("100m")}, True, id="tenths"),
        pytest.param({"sm": Q("300m")}, [{"sm": Q("200m")}], {"sm": Q("100000001n")}, False, id="a billionth"),
        pytest.param({"sm": 7}, [{"sm": 3}], {"sm": 4}, True, id="whole numbers"),
        pytest.param({"sm": 7}, [], {"other": 1}, False, id="a counter that is not there"),
        pytest.param({"sm": 7}, [], {"other": 0}, True, id="nothing of it"),
        pytest.param({"sm": 7}, [{"sm": 9}], {"sm": 0}, True, id="nothing, though more is held than there is"),
        pytest.param({"sm": 7, "x": 1}, [{"sm": 9}], {"x": 1}, True, id="another counter is overdrawn"),
        pytest.param({}, [], {}, True, id="nothing at all"),
        pytest.param({"sm": Q("10E")}, [{"sm": Q("9E")}], {"sm": Q("1E")}, True, id="beyond 64 bits"),
    ],
)
def test_whether_it_is_there(
    available: Mapping[str, Amount], consumed: list[Mapping[str, Amount]], asked: Mapping[str, Amount], right: bool
) -> None:
    """To the last unit."""
    assert fits(available, consumed, asked) is right


def test_what_is_short_is_named_with_amounts() -> None:
    """In the order of the ask, those alone of which there is not enough."""
    found = short({"memory": Q("2"), "sm": 3}, [{"sm": 2}], {"sm": 2, "memory": 1, "ofa": Q("1")})
    assert found == (Shortfall("sm", 2 * 10**9, 10**9), Shortfall("ofa", 10**9, 0))


def test_a7_what_a_holder_took_counts_whatever_is_published_today() -> None:
    """Seven units, three held by its own record; the partition is no longer published, or costs less: no 7 fit."""
    record = {"units": 3}
    assert not fits({"units": 7}, [record], {"units": 7})
    assert fits({"units": 7}, [record], {"units": 4})
    assert left({}, [record]) == {"units": -3 * 10**9}


AMOUNTS = st.one_of(
    st.integers(0, 10**12),
    st.builds(
        lambda number, suffix: Q(f"{number}{suffix}"),
        st.integers(0, 10**6),
        st.sampled_from(["", "n", "m", "Ki", "Gi", "E"]),
    ),
)


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_sums_agree_with_fractions(available: Amount, held: Amount, asked: Amount) -> None:
    """No rounding anywhere."""

    def exact(amount: Amount) -> Fraction:
        return Fraction(amount) if isinstance(amount, int) else amount.value

    assert Fraction(nano(available), 10**9) == exact(available)
    room = exact(available) - exact(held)
    assert fits({"c": available}, [{"c": held}], {"c": asked}) is (exact(asked) <= max(room, 0))


class Holders(RuleBasedStateMachine):
    """Partitions of one H100 that are taken and given back by counters alone, as a driver publishes them."""

    geometry = built_in("NVIDIA H100 80GB HBM3", None)
    assert geometry is not None
    available: Mapping[str, Amount] = {
        "multiprocessors": 132,
        "memory": Q("80Gi"),
        "ofa-engines": 1,
        **{f"memory-slice-{slice_}": 1 for slice_ in range(8)},
    }

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Slot, Mapping[str, Amount]]] = []

    def cost(self, slot: Slot) -> Mapping[str, Amount]:
        """What a driver says that it takes."""
        assert self.geometry is not None
        return {
            "multiprocessors": 16 * self.geometry.profiles[slot.profile].compute,
            "memory": Q(f"{slot.size * 9984}Mi"),
            "ofa-engines": int(slot.profile.endswith("+me") or slot.size == 8),
            **{f"memory-slice-{each}": 1 for each in range(slot.start, slot.start + slot.size)},
        }

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        """Any placement: it fits by counters exactly where the table has room."""
        assert self.geometry is not None
        profile = data.draw(st.sampled_from(list(self.geometry.profiles.values())))
        slot = Slot(profile.name, data.draw(st.sampled_from(profile.starts)), profile.size)
        there = fits(self.available, [cost for _, cost in self.held], self.cost(slot))
        assert there is (slot.start in starts(self.geometry, [each for each, _ in self.held], slot.profile))
        if there:
            self.held.append((slot, self.cost(slot)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """Any of them."""
        self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @invariant()
    def what_is_left_and_held_is_what_there_is(self) -> None:
        """Of every counter, and none is ever overdrawn."""
        rest = left(self.available, [cost for _, cost in self.held])
        for counter, amount in self.available.items():
            assert rest[counter] >= 0
            assert rest[counter] + sum(nano(cost.get(counter, 0)) for _, cost in self.held) == nano(amount)


TestHolders = Holders.TestCase


@needs_shared
def test_counters_of_a_real_list_allow_what_the_table_allows() -> None:
    """A DGX A100's first card: every pair of placements is together by counters exactly if it is by the table."""
    text = shared("data/slices/wg_device_management_dgxa100_partition_pools.yaml").read_text()
    pool = yaml.load(text, yaml.CSafeLoader)[0]["spec"]
    available = {each["name"]: Q(each["capacity"]) for each in pool["sharedCapacity"]}
    geometry = built_in("NVIDIA A100-SXM4-40GB", None)
    assert geometry is not None
    placements: list[tuple[Slot, dict[str, Quantity]]] = []
    for device in pool["devices"]:
        match = re.fullmatch(r"gpu-0-mig-(.+?)(-me)?-(\d)", device["name"])
        if match is not None:
            profile = geometry.profiles[match[1] + ("+me" if match[2] else "")]
            cost = {each["name"]: Q(each["capacity"]) for each in device["sharedCapacityConsumed"]}
            placements.append((Slot(profile.name, int(match[3]), profile.size), cost))
    assert len(placements) == 25
    for one, taken in placements:
        for other, cost in placements:
            assert fits(available, [taken], cost) is (other.start in starts(geometry, [one], other.profile))
