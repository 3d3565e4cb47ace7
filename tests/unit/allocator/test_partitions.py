"""Layouts and places of partitions, held against all that there is by trying everything."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin_allocator.geometry import Entry, Geometry, Profile, built_in, custom
from adjoin_allocator.partitions import Lack, Refusal, Slot, arrange, relayout, starts


def known(name: str) -> Geometry:
    """The geometry of a product."""
    found = built_in(name, None)
    assert found is not None
    return found


H100 = known("NVIDIA H100 80GB HBM3")
A30 = known("NVIDIA A30")
PAIRS = custom([Entry("one", (0, 1, 2, 3, 4), 1, 1), Entry("two", (0, 3), 2, 1, 1), Entry("three", (0, 1, 2), 3, 2)])
TIGHT = Geometry(4, 3, {name: Profile(name, (0, 1, 2, 3), 1, compute) for name, compute in (("a", 1), ("b", 2))})
"""More places than compute slices."""
ALL = [pytest.param(each, id=name) for name, each in (("H100", H100), ("A30", A30), ("given", PAIRS), ("tight", TIGHT))]


def legal(geometry: Geometry, slots: tuple[Slot, ...]) -> bool:
    """Whether these may be beside each other: read from the table again, slice by slice."""
    used: set[int] = set()
    compute = 0
    groups: Counter[str] = Counter()
    for slot in slots:
        profile = geometry.profiles[slot.profile]
        taken = set(range(slot.start, slot.start + profile.size))
        if slot.start not in profile.starts or slot.size != profile.size or used & taken:
            return False
        used |= taken
        compute += profile.compute
        if profile.most is not None:
            groups[profile.group or profile.name] += 1
            if groups[profile.group or profile.name] > profile.most:
                return False
    return compute <= geometry.compute and max(used, default=0) < geometry.slices


@cache
def layouts(geometry: Geometry) -> frozenset[tuple[Slot, ...]]:
    """All legal layouts, those with room included, grown one partition at a time."""
    found, ahead = {()}, [()]
    while ahead:
        layout: tuple[Slot, ...] = ahead.pop()
        for profile in geometry.profiles.values():
            for start in profile.starts:
                grown = tuple(sorted((*layout, Slot(profile.name, start, profile.size))))
                if grown not in found and legal(geometry, grown):
                    found.add(grown)
                    ahead.append(grown)
    return frozenset(found)


@cache
def multisets(geometry: Geometry) -> dict[frozenset[tuple[str, int]], list[tuple[Slot, ...]]]:
    """By what is in a layout the layouts that have it."""
    found: dict[frozenset[tuple[str, int]], list[tuple[Slot, ...]]] = {}
    for layout in layouts(geometry):
        found.setdefault(frozenset(Counter(slot.profile for slot in layout).items()), []).append(layout)
    return found


@pytest.mark.parametrize("geometry", ALL)
def test_exactly_the_placeable_multisets_are_accepted(geometry: Geometry) -> None:
    """Every multiset up to one more of each profile than there ever is. What is accepted is legal and what was wanted;
    what is refused is refused for what is short.
    """
    possible = multisets(geometry)
    greatest = [
        max(dict(each).get(name, 0) for each in possible) + 1  # one more than can be
        for name in geometry.profiles
    ]
    accepted = 0
    for counts in product(*(range(most + 1) for most in greatest)):
        wanted = dict(zip(geometry.profiles, counts, strict=True))
        found = arrange(geometry, wanted)
        key = frozenset((name, count) for name, count in wanted.items() if count)
        if isinstance(found, Refusal):
            assert key not in possible
            profiles = [(geometry.profiles[name], count) for name, count in wanted.items()]
            memory = sum(profile.size * count for profile, count in profiles)
            compute = sum(profile.compute * count for profile, count in profiles)
            over = any(
                profile.most is not None
                and sum(n for p, n in profiles if (p.group or p.name) == (profile.group or profile.name)) > profile.most
                for profile, _ in profiles
            )
            if over:
                assert found.lack is Lack.MOST
            elif memory > geometry.slices or compute <= geometry.compute:
                assert found.lack is Lack.MEMORY
                assert "memory slices" in found.text
                assert f"{memory} of {geometry.slices}" in found.text
            else:
                assert found.lack is Lack.COMPUTE
            if not over and compute > geometry.compute:
                assert "compute slices" in found.text
                assert f"{compute} of {geometry.compute}" in found.text
        else:
            accepted += 1
            assert legal(geometry, found)
            assert frozenset(Counter(slot.profile for slot in found).items()) == key
            # Of several arrangements the first by places.
            order = sorted(possible[key], key=lambda layout: [(s.start, s.size, s.profile) for s in layout])
            assert list(found) == list(order[0])
    assert accepted == len(possible)


def test_the_order_of_listing_is_irrelevant() -> None:
    """The same multiset in every order."""
    wanted = [("1g.10gb", 2), ("2g.20gb", 1), ("3g.40gb", 1), ("1g.10gb+me", 0)]
    answers = {arrange(H100, dict(order)) for order in permutations(wanted)}
    assert len(answers) == 1
    assert answers.pop() == (
        Slot("1g.10gb", 0, 1),
        Slot("1g.10gb", 1, 1),
        Slot("2g.20gb", 2, 2),
        Slot("3g.40gb", 4, 4),
    )


@pytest.mark.parametrize(
    ("wanted", "lack", "text"),
    [
        pytest.param(
            {"4g.40gb": 2}, Lack.COMPUTE, "compute slices: 2 × 4g.40gb need 8 of 7", id="memory fits, compute does not"
        ),
        pytest.param(
            {"7g.80gb": 1, "1g.20gb": 1},
            Lack.MEMORY,
            "memory slices: 1 × 1g.20gb, 1 × 7g.80gb need 10 of 8; "
            "compute slices: 1 × 1g.20gb, 1 × 7g.80gb need 8 of 7",
            id="neither fits",
        ),
        pytest.param(
            {"1g.20gb": 5}, Lack.MEMORY, "memory slices: 5 × 1g.20gb need 10 of 8", id="compute fits, memory does not"
        ),
        pytest.param(
            {"3g.40gb": 1, "2g.20gb": 2, "1g.10gb+me": 0},
            None,
            "",
            id="it fits",
        ),
        pytest.param(
            {"1g.10gb+me": 2},
            Lack.MOST,
            "profiles with +me: 2 wanted, a device has at most 1",
            id="one set of media engines",
        ),
        pytest.param(
            {"3g.20gb": 1},
            Lack.PROFILE,
            "profile 3g.20gb unknown: there are 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb",
            id="another product's profile",
        ),
    ],
)
def test_a_refusal_says_what_does_not_fit(wanted: dict[str, int], lack: Lack | None, text: str) -> None:
    """With numbers."""
    found = arrange(H100, wanted)
    if lack is None:
        assert not isinstance(found, Refusal)
    else:
        assert found == Refusal(lack, text)


def test_every_arrangement_fails_though_the_sums_fit() -> None:
    """Four of four memory slices, but the large one always lies on both places of the small one."""
    table = custom([Entry("three", (0, 1), 3, 1), Entry("one", (1, 2), 1, 1)])
    assert arrange(table, {"three": 1, "one": 1}) == Refusal(
        Lack.MEMORY, "memory slices: no arrangement of 1 × one, 1 × three, which need 4 of 4"
    )
    busy = Slot("one", 1, 1)
    assert arrange(table, {"three": 1}, [busy]) == Refusal(
        Lack.MEMORY, "memory slices: no arrangement of 1 × three beside one at 1, which need 3 of 3"
    )


def test_a_large_table_is_decided_in_few_steps() -> None:
    """Or refused for their number, and never for ever."""
    table = custom([Entry(f"p{size}", tuple(range(64)), size, 1) for size in range(1, 9)])
    assert not isinstance(arrange(table, {f"p{size}": 1 for size in range(1, 9)}), Refusal)
    spread = custom([Entry(f"p{size}", tuple(range(size % 2, 64, 3)), size, 1) for size in range(1, 17)])
    found = arrange(spread, {f"p{size}": 1 for size in range(1, 17) if size not in (3, 8)})
    assert not isinstance(found, Refusal) or found.lack in (Lack.MEMORY, Lack.STEPS)


@pytest.mark.parametrize("geometry", ALL)
def test_room_is_where_a_legal_layout_has_one_more(geometry: Geometry) -> None:
    """Every layout, every profile."""
    for layout in layouts(geometry):
        for profile in geometry.profiles.values():
            room = tuple(
                start for start in profile.starts if legal(geometry, (*layout, Slot(profile.name, start, profile.size)))
            )
            assert starts(geometry, layout, profile.name) == room


def test_no_room_for_an_unknown_profile() -> None:
    """Nor is it an error."""
    assert starts(H100, (), "5g.50gb") == ()


@given(st.data())
def test_a_layout_around_partitions_that_are_there(data: st.DataObject) -> None:
    """Found exactly if some legal layout has them and the wanted ones."""
    geometry = data.draw(st.sampled_from([H100, A30, PAIRS]))
    fixed = data.draw(st.sampled_from(sorted(layouts(geometry), key=repr)))
    wanted = data.draw(st.dictionaries(st.sampled_from(sorted(geometry.profiles)), st.integers(0, 3), max_size=3))
    together = Counter(wanted) + Counter(slot.profile for slot in fixed)
    key = frozenset(together.items())
    exists = any(set(fixed) <= set(layout) for layout in multisets(geometry).get(key, []))
    found = arrange(geometry, wanted, fixed)
    assert exists is not isinstance(found, Refusal)
    if not isinstance(found, Refusal):
        assert legal(geometry, found)
        assert set(fixed) <= set(found)
        assert Counter(slot.profile for slot in found) == together


NOW = (Slot("1g.10gb", 0, 1), Slot("1g.10gb", 1, 1), Slot("2g.20gb", 2, 2), Slot("3g.40gb", 4, 4))
"""2 x 1g, 2g and 3g."""


def test_b12_a_busy_partition_stays_in_place() -> None:
    """Now 2 x 1g, 2g, 3g, with either 1g in use; wanted 7 x 1g: it stays, and the others are made around it."""
    for busy in NOW[:2]:
        found = relayout(H100, [busy], {"1g.10gb": 7})
        assert found == tuple(Slot("1g.10gb", start, 1) for start in range(7))
        assert busy in found


def test_b12_a_target_that_cannot_include_the_busy_partition_names_it() -> None:
    """The 2g in use is not wanted at all; a 1g in the half that 4g needs is wanted, but not there."""
    assert relayout(H100, [NOW[2]], {"1g.10gb": 7}) == Refusal(Lack.BUSY, "not in the layout: 2g.20gb at 2", (NOW[2],))
    assert relayout(H100, [NOW[1]], {"4g.40gb": 1, "1g.10gb": 2}) == Refusal(
        Lack.BUSY, "no arrangement of 2 × 1g.10gb, 1 × 4g.40gb keeps 1g.10gb at 1 in place", (NOW[1],)
    )


def test_of_several_busy_partitions_the_one_in_the_way_is_named() -> None:
    """1g at 6 could stay, 1g at 1 could not."""
    busy = (Slot("1g.10gb", 1, 1), Slot("1g.10gb", 6, 1))
    found = relayout(H100, busy, {"4g.40gb": 1, "1g.10gb": 3})
    assert isinstance(found, Refusal)
    assert found.busy == busy[:1]


def test_more_are_busy_than_are_wanted() -> None:
    """The last ones are named."""
    busy = tuple(Slot("1g.10gb", start, 1) for start in (0, 1, 5))
    found = relayout(H100, reversed(busy), {"1g.10gb": 2, "2g.20gb": 1})
    assert isinstance(found, Refusal)
    assert (found.lack, found.busy) == (Lack.BUSY, busy[2:])


def test_a_target_that_never_fits_is_refused_as_such() -> None:
    """Whoever is busy has nothing to do with it."""
    found = relayout(H100, NOW, {"4g.40gb": 2})
    assert isinstance(found, Refusal)
    assert (found.lack, found.busy) == (Lack.COMPUTE, ())


@given(st.data())
def test_a_new_layout_keeps_all_busy_partitions_or_says_which_it_cannot(data: st.DataObject) -> None:
    """Found exactly if some legal layout of what is wanted has all of them where they are."""
    geometry = data.draw(st.sampled_from([H100, A30]))
    current = data.draw(st.sampled_from(sorted(layouts(geometry), key=repr)))
    busy = data.draw(st.lists(st.sampled_from(current), unique=True)) if current else []
    wanted = dict(data.draw(st.sampled_from(sorted(multisets(geometry), key=sorted))))
    candidates = multisets(geometry)[frozenset(wanted.items())]
    exists = any(set(busy) <= set(layout) for layout in candidates)
    found = relayout(geometry, busy, wanted)
    if isinstance(found, Refusal):
        assert not exists
        assert found.lack is Lack.BUSY
        assert found.busy
        assert set(found.busy) <= set(busy)
    else:
        assert found in candidates
        assert set(busy) <= set(found)
