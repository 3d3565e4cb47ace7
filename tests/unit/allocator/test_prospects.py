"""Where a partition costs least of what may still come."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.allocator.test_partitions import A30, H100, PAIRS, TIGHT, layouts

from adjoin_allocator.geometry import Entry, Geometry, custom
from adjoin_allocator.partitions import Slot, starts
from adjoin_allocator.prospects import STATES, Outlook, outlook

EVERY = [
    pytest.param(each, id=name) for name, each in (("H100", H100), ("A30", A30), ("given", PAIRS), ("tight", TIGHT))
]
LARGE = custom(
    [Entry("a", tuple(range(40)), 1, 1), Entry("b", tuple(range(0, 40, 3)), 3, 2), Entry("c", (0, 20), 20, 9)]
)
"""More states than can be looked at."""


def best_start(
    geometry: Geometry,
    held: Iterable[Slot],
    profile: str,
    allowed: Collection[str],
    demand: Mapping[str, int] | None = None,
) -> int | None:
    """Where one more partition is put; None if there is no room."""
    choice = outlook(geometry, allowed, demand).choose(held, profile)
    return None if choice is None else choice.start


def rank(geometry: Geometry, held: Iterable[Slot], profile: str, allowed: Collection[str]) -> int | None:
    """What a device loses by it; None if there is no room."""
    choice = outlook(geometry, allowed).choose(held, profile)
    return None if choice is None else choice.loss


def with_one_more(layout: tuple[Slot, ...], geometry: Geometry, profile: str, start: int) -> tuple[Slot, ...]:
    """A layout that has grown."""
    return tuple(sorted((*layout, Slot(profile, start, geometry.profiles[profile].size))))


@cache
def worth(geometry: Geometry, layout: tuple[Slot, ...], demand: tuple[tuple[str, int], ...]) -> Fraction:
    """What a device is worth, by the definition: partition by partition, with no notion of states."""
    total, fitting = Fraction(0), 0
    for profile, weight in demand:
        grown = [
            worth(geometry, with_one_more(layout, geometry, profile, start), demand)
            for start in starts(geometry, layout, profile)
        ]
        if grown and weight:
            fitting += weight
            total += weight * (geometry.profiles[profile].size ** 2 + max(grown))
    return total / fitting if fitting else Fraction(0)


@pytest.mark.parametrize("geometry", EVERY)
def test_a_place_is_found_whenever_there_is_one(geometry: Geometry) -> None:
    """Every layout, every profile; and the place is legal."""
    for layout in layouts(geometry):
        for profile in geometry.profiles:
            room = starts(geometry, layout, profile)
            found = best_start(geometry, layout, profile, tuple(geometry.profiles))
            assert (found is None) is (not room)
            assert (rank(geometry, layout, profile, tuple(geometry.profiles)) is None) is (not room)
            assert found is None or found in room


@pytest.mark.parametrize("geometry", EVERY)
def test_the_largest_profiles_stay_possible(geometry: Geometry) -> None:
    """No other start keeps a larger one; every layout, every profile, and the worth is what it is said to be."""
    allowed = tuple(geometry.profiles)
    demand = tuple((name, 1) for name in allowed)
    order = sorted(geometry.profiles.values(), key=lambda p: (-p.size, -p.compute, p.name))
    view = outlook(geometry, allowed)
    for layout in layouts(geometry):
        for profile in geometry.profiles:
            values = {}
            for start in starts(geometry, layout, profile):
                then = with_one_more(layout, geometry, profile, start)
                possible = [bool(starts(geometry, then, other.name)) for other in order]
                values[start] = (possible, worth(geometry, then, demand))
            choice = view.choose(layout, profile)
            if choice is not None:
                assert values[choice.start] == max(values.values())
                lost = worth(geometry, layout, demand) - values[choice.start][1]
                assert choice.loss == lost * (1 << 40) // geometry.slices**2


@given(st.sampled_from([H100, A30]), st.integers(0, 10**6))
def test_a19_partitions_that_come_and_go_always_find_room_if_there_is_any(geometry: Geometry, seed: int) -> None:
    """On one card, any profiles allowed, a hundred arrivals and departures; nobody moves."""
    chance = random.Random(seed)
    names = list(geometry.profiles)
    allowed = chance.sample(names, chance.randint(1, len(names)))
    held: list[Slot] = []
    for _ in range(100):
        if held and chance.random() < 0.45:
            held.pop(chance.randrange(len(held)))
            continue
        profile = chance.choice(names)
        found = best_start(geometry, held, profile, allowed)
        room = starts(geometry, held, profile)
        assert (found is None) is (not room)
        if found is not None:
            assert found in room
            held.append(Slot(profile, found, geometry.profiles[profile].size))


def test_a19_small_partitions_go_to_the_edge() -> None:
    """The first of 1g leaves the half that 4g needs; none of seven in a row shuts out a larger one that need not be."""
    held: list[Slot] = []
    for number in range(1, 8):
        found = best_start(H100, held, "1g.10gb", ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"))
        assert found is not None
        held.append(Slot("1g.10gb", found, 1))
        assert bool(starts(H100, held, "4g.40gb")) is (number <= 3)
    assert sorted(slot.start for slot in held[:3]) == [4, 5, 6]


def test_a18_the_third_small_partition_prefers_the_half_that_is_broken() -> None:
    """0 and 1 are held: 2 or 3, and 3g keeps the other half."""
    held = [Slot("1g.10gb", 0, 1), Slot("1g.10gb", 1, 1)]
    assert best_start(H100, held, "1g.10gb", ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")) in (2, 3)


def test_an_empty_card_is_not_broken_while_a_started_one_has_a_hole() -> None:
    """Every profile that fits exactly into what is left of a card is put there."""
    allowed = tuple(H100.profiles)
    for held, profile in (
        ([Slot("4g.40gb", 0, 4)], "3g.40gb"),
        ([Slot("3g.40gb", 4, 4), Slot("2g.20gb", 0, 2)], "2g.20gb"),
        ([Slot("1g.10gb", start, 1) for start in (0, 1, 2, 3, 4, 5)], "1g.20gb"),
        ([Slot("2g.20gb", start, 2) for start in (0, 2, 4)], "1g.10gb"),
    ):
        there, empty = rank(H100, held, profile, allowed), rank(H100, (), profile, allowed)
        assert there is not None
        assert empty is not None
        assert there < empty


def test_demand_decides_what_is_kept() -> None:
    """Who never comes needs no place; who comes alone gets all there is."""
    held = (Slot("1g.10gb", 4, 1),)
    allowed = ("1g.10gb", "1g.20gb", "2g.20gb")
    # 1g.20gb alone can lie on the last two slices, 2g cannot.
    assert best_start(H100, held, "1g.10gb", allowed, {"1g.20gb": 1}) == 5
    only = {
        start: len(starts(H100, (*held, Slot("1g.10gb", start, 1)), "1g.20gb"))
        for start in starts(H100, held, "1g.10gb")
    }
    assert max(only.values()) == only[5]


def test_a_demand_that_knows_nobody_is_none() -> None:
    """And small changes of a demand change nothing that is remembered."""
    names = tuple(H100.profiles)
    assert outlook(H100, names, {"other": 3}) is outlook(H100, names)
    assert outlook(H100, reversed(names), {}) is outlook(H100, names)  # type: ignore[arg-type]
    assert outlook(H100, names, {"1g.10gb": 1000, "3g.40gb": 500}) is outlook(
        H100, names, {"1g.10gb": 1001, "3g.40gb": 500}
    )


def test_the_same_is_chosen_with_and_without_memory() -> None:
    """An outlook that has seen everything and one that is new."""
    names = tuple(H100.profiles)
    warm = outlook(H100, names)
    for layout in sorted(layouts(H100), key=repr)[::50]:
        for profile in names:
            cold = Outlook(H100, warm.weights)
            shuffled = tuple(reversed(layout))
            assert cold.choose(shuffled, profile) == warm.choose(layout, profile)


def test_unknown_profiles_find_no_room_and_disturb_nobody() -> None:
    """A partition of another table takes its slices."""
    odd = Slot("5g.50gb", 0, 5)
    assert best_start(H100, (), "5g.50gb", tuple(H100.profiles)) is None
    assert best_start(H100, (odd,), "1g.10gb", ("5g.50gb",)) in (5, 6)
    assert best_start(H100, (odd,), "3g.40gb", tuple(H100.profiles)) is None


def test_a_large_table_is_estimated() -> None:
    """Places are found there, too, always, and the large piece is kept while it can be."""
    view = outlook(LARGE, tuple(LARGE.profiles))
    assert view.exact is False
    held: list[Slot] = []
    chance = random.Random(3)
    for _ in range(400):
        if held and chance.random() < 0.4:
            held.pop(chance.randrange(len(held)))
            continue
        profile = chance.choice("aaab")
        choice = view.choose(held, profile)
        assert (choice is None) is (not starts(LARGE, held, profile))
        if choice is not None:
            held.append(Slot(profile, choice.start, LARGE.profiles[profile].size))
    small = [Slot("a", 21, 1)]
    assert best_start(LARGE, small, "a", tuple(LARGE.profiles)) not in range(20)


@pytest.mark.parametrize("geometry", [H100, A30])
def test_built_in_tables_are_exact(geometry: Geometry) -> None:
    """With few states."""
    view = outlook(geometry, tuple(geometry.profiles))
    assert view.exact
    assert len({view.state(layout) for layout in layouts(geometry)}) < STATES // 4
