"""Partitions at their places on one device: which may be beside each other, and where there is room.

In come a `Geometry` and the partitions that exist or are wanted; out come places, a layout, or why there is none. The
searches are exact, never depend on the order in which partitions are named, and count their steps. Partitions that
exist are never moved. Who holds them is not known here; which place is the better one is decided in `prospects`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from adjoin_allocator.geometry import Geometry, Profile

STEPS = 100_000
"""How many partial arrangements are looked at before a layout is refused as too intricate. A device of eight slices
needs fewer than a hundred.
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """A partition at its place. They are in order of place.

    Attributes:
        profile: Name of its profile.
        start: First memory slice.
        size: How many it takes.
    """

    profile: str
    start: int
    size: int

    def __lt__(self, other: Slot) -> bool:
        return (self.start, self.size, self.profile) < (other.start, other.size, other.profile)

    @property
    def mask(self) -> int:
        """Its memory slices as bits."""
        return (1 << self.size) - 1 << self.start

    def __str__(self) -> str:
        return f"{self.profile} at {self.start}"


class Lack(StrEnum):
    """What stands in the way of a layout."""

    PROFILE = "profile"
    """The device has no such profile."""
    MOST = "most"
    """More of a profile than one device can have."""
    COMPUTE = "compute slices"
    MEMORY = "memory slices"
    BUSY = "busy partition"
    """It would fit, but for partitions that must stay."""
    STEPS = "steps"
    """It could not be decided in so many steps."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no such layout.

    Attributes:
        lack: What stands in the way; of several the first by which it shows.
        text: The same in words, with numbers.
        busy: The partitions that are in use and cannot be part of the layout, in order of place.
    """

    lack: Lack
    text: str
    busy: tuple[Slot, ...] = ()


def occupied(slots: Iterable[Slot]) -> int:
    """Memory slices that partitions take, as bits."""
    mask = 0
    for slot in slots:
        mask |= slot.mask
    return mask


def compute_used(geometry: Geometry, slots: Iterable[Slot]) -> int:
    """Compute slices that partitions take. What one of a profile that the table does not know takes is not known."""
    profiles = geometry.profiles
    return sum(profiles[slot.profile].compute for slot in slots if slot.profile in profiles)


def counted(geometry: Geometry, profile: Profile, slots: Iterable[Slot]) -> int:
    """How many partitions count towards the most of a profile: its own, or all of its group."""
    if not profile.group:
        return sum(slot.profile == profile.name for slot in slots)
    known = geometry.profiles
    return sum(slot.profile in known and known[slot.profile].group == profile.group for slot in slots)


def starts(geometry: Geometry, held: Collection[Slot], profile: str) -> tuple[int, ...]:
    """At which memory slices a partition of this profile could begin now, in order; none for an unknown profile."""
    known = geometry.profiles.get(profile)
    if known is None or compute_used(geometry, held) + known.compute > geometry.compute:
        return ()
    if known.most is not None and counted(geometry, known, held) >= known.most:
        return ()
    taken, window = occupied(held), (1 << known.size) - 1
    return tuple(start for start in known.starts if not taken >> start & window)


def arrange(geometry: Geometry, wanted: Mapping[str, int], fixed: Iterable[Slot] = ()) -> tuple[Slot, ...] | Refusal:
    """A place for each of the wanted partitions around those that are there; all of them together, in order of place.

    Exact: refused only if there is none (or after `STEPS`). Of several arrangements the one whose partitions begin
    first, the smaller before the larger one.
    """
    there = tuple(sorted(fixed))
    counts = {name: count for name, count in sorted(wanted.items()) if count > 0}
    refusal = _refused(geometry, counts, there)
    if refusal is not None:
        return refusal
    order = sorted((geometry.profiles[name] for name in counts), key=lambda profile: (profile.size, profile.name))
    placed = _search(geometry.slices, order, tuple(counts[profile.name] for profile in order), occupied(there))
    if placed is None:
        return Refusal(Lack.STEPS, f"{_words(counts)}: too intricate, undecided after {STEPS:,} steps")
    if not placed and counts:
        beside = f" beside {_listed(there)}" if there else ""
        needed = sum(profile.size * counts[profile.name] for profile in order)
        free = geometry.slices - occupied(there).bit_count()
        return Refusal(
            Lack.MEMORY, f"memory slices: no arrangement of {_words(counts)}{beside}, which need {needed} of {free}"
        )
    return tuple(sorted((*there, *placed)))


def relayout(geometry: Geometry, busy: Iterable[Slot], wanted: Mapping[str, int]) -> tuple[Slot, ...] | Refusal:
    """The wanted layout with every partition that is in use kept where it is; all of its partitions, in order of place.

    A refusal names the partitions in use that cannot be in it: those of which fewer are wanted than are in use (the
    last ones by place), else each one without which alone it would fit, else all of them.
    """
    kept = tuple(sorted(busy))
    whole = arrange(geometry, wanted)
    if isinstance(whole, Refusal) and whole.lack is not Lack.STEPS:
        return whole
    left = Counter({name: count for name, count in wanted.items() if count > 0})
    superfluous = []
    for slot in kept:
        if left[slot.profile] and _belongs(geometry, slot):
            left[slot.profile] -= 1
        else:
            superfluous.append(slot)
    if superfluous:
        return Refusal(Lack.BUSY, f"not in the layout: {_listed(superfluous)}", tuple(superfluous))
    found = arrange(geometry, left, kept)
    if not isinstance(found, Refusal) or found.lack is Lack.STEPS:
        return found
    blockers = []
    for slot in kept:
        others = tuple(other for other in kept if other is not slot)
        if not isinstance(arrange(geometry, left + Counter([slot.profile]), others), Refusal):
            blockers.append(slot)
    named = tuple(blockers or kept)
    return Refusal(Lack.BUSY, f"no arrangement of {_words(wanted)} keeps {_listed(named)} in place", named)


def _belongs(geometry: Geometry, slot: Slot) -> bool:
    """Whether the table allows this partition at its place."""
    profile = geometry.profiles.get(slot.profile)
    return profile is not None and profile.size == slot.size and slot.start in profile.starts


def _refused(geometry: Geometry, counts: Mapping[str, int], there: tuple[Slot, ...]) -> Refusal | None:
    """What can be said by counting alone."""
    profiles = geometry.profiles
    unknown = [name for name in counts if name not in profiles]
    if unknown:
        return Refusal(Lack.PROFILE, f"profile {', '.join(unknown)} unknown: there are {', '.join(profiles)}")
    for name, count in counts.items():
        profile = profiles[name]
        together = counted(geometry, profile, there) + (
            sum(number for other, number in counts.items() if profiles[other].group == profile.group)
            if profile.group
            else count
        )
        if profile.most is not None and together > profile.most:
            which = f"profiles with {profile.group}" if profile.group else name
            return Refusal(Lack.MOST, f"{which}: {together} wanted, a device has at most {profile.most}")
    lacks = []
    beside = f" beside {_listed(there)}" if there else ""
    for lack, needed, free in (
        (
            Lack.MEMORY,
            sum(profiles[name].size * count for name, count in counts.items()),
            geometry.slices - occupied(there).bit_count(),
        ),
        (
            Lack.COMPUTE,
            sum(profiles[name].compute * count for name, count in counts.items()),
            geometry.compute - compute_used(geometry, there),
        ),
    ):
        if needed > free:
            lacks.append((lack, f"{lack}: {_words(counts)}{beside} need {needed} of {free}"))
    return Refusal(lacks[0][0], "; ".join(text for _, text in lacks)) if lacks else None


def _search(slices: int, order: list[Profile], counts: tuple[int, ...], taken: int) -> tuple[Slot, ...] | None:
    """Places from left to right, depth first; empty when there are none, None when it took too many steps.

    At each slice a partition begins, the first in order that leads to an end, or none does. What is left to place and
    the slice decide whether there is an end, so that dead ends are remembered.
    """
    dead: set[tuple[int, tuple[int, ...]]] = set()
    path: list[tuple[int, tuple[int, ...], Slot | None]] = []
    sizes = [profile.size for profile in order]
    ways: list[list[tuple[int, tuple[int, ...], Slot | None]]] = []

    def after(at: int, left: tuple[int, ...]) -> list[tuple[int, tuple[int, ...], Slot | None]]:
        """What may follow, the best last."""
        needed = sum(size * count for size, count in zip(sizes, left, strict=True))
        if at >= slices or (at, left) in dead or needed > slices - at - (taken >> at).bit_count():
            return []
        found: list[tuple[int, tuple[int, ...], Slot | None]] = [(at + 1, left, None)]
        for which in reversed(range(len(order))):
            profile = order[which]
            if left[which] and at in profile.starts and not taken >> at & (1 << profile.size) - 1:
                rest = (*left[:which], left[which] - 1, *left[which + 1 :])
                found.append((at + profile.size, rest, Slot(profile.name, at, profile.size)))
        return found

    if not any(counts):
        return ()
    ways.append(after(0, counts))
    states = [(0, counts)]
    for _ in range(STEPS):
        if not ways:
            return ()
        if not ways[-1]:
            dead.add(states.pop())
            ways.pop()
            if path:
                path.pop()
            continue
        step = ways[-1].pop()
        path.append(step)
        if not any(step[1]):
            return tuple(slot for _, _, slot in path if slot is not None)
        states.append((step[0], step[1]))
        ways.append(after(step[0], step[1]))
    return None


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(counts.items()) if count > 0)


def _listed(slots: Iterable[Slot]) -> str:
    return ", ".join(map(str, slots))
