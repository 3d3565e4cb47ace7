"""Where a partition costs least of what may still come: the start on a device, and the device.

In come a device's partitions, the profile that is wanted next and the profiles that may be wanted later; out come the
start that leaves the most, and what it loses as one number, by which devices are compared. A place is found whenever
there is one. Nothing is moved; nothing here knows who holds what.

A device is **worth** what it will take from the demand if nobody leaves: claims come one after another, each of a
profile drawn from the demand; one that fits is put where the most remains, one that does not goes elsewhere; and each
counts the square of its memory slices, so that a piece is worth more than its parts. This is the expectation of a
finite game and computed exactly, in fractions, by going back from states in which nothing fits any more. Before that
stands a rule: of the starts on a device only those are looked at that keep the largest profile possible, then the next
one, and so on. Devices are compared by what they lose of their worth.

That a place costs what it takes from the typical demand is the idea of Weng et al., "Beware of Fragmentation" (USENIX
ATC 2023), for fractions, and of Zambianco et al., "An Online Fragmentation-Aware GPU Scheduler for Multi-Tenant
MIG-based Clouds" (2025), for partitions. They measure what is free and of no use; what is measured here is what can
still be had together. `docs/sharing.md` has the comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from adjoin_allocator.geometry import Geometry, Profile
from adjoin_allocator.partitions import Slot

STATES = 4096
"""Up to how many states of a device its worth is computed exactly: a device of eight slices has a few hundred. Beyond
it is estimated by how many of each profile there is room for, which is exact for each profile alone.
"""

REMEMBERED = 65_536
"""How many states and choices are remembered for one kind of device and demand."""

OUTLOOKS = 128
"""Of how many kinds of device and demand anything is remembered."""

PARTS = 16
"""Demand is rounded to so many parts, so that one claim more or less does not change what is remembered."""

SCALE = 1 << 40
"""Losses are given in these parts of a whole device's slices, squared."""

State = tuple[int, int, tuple[int, ...]]
"""Occupied slices as bits, compute slices in use, and how many there are of each limited group."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The best place on one device.

    Attributes:
        loss: What the device is worth less with it.
        start: First memory slice.
    """

    loss: int
    start: int


@dataclass(slots=True, eq=False)
class Outlook:
    """One kind of device and the demand for its partitions.

    Attributes:
        geometry: Where partitions may lie.
        weights: Of the profiles that may come, the largest first, how often each does.
        exact: Whether it has so few states that their worth is computed, not estimated.
    """

    geometry: Geometry
    weights: tuple[tuple[Profile, int], ...]
    exact: bool = True
    _limited: tuple[str, ...] = ()
    _compute_matters: bool = True
    _worth: dict[State, Fraction] = field(default_factory=dict)
    _choices: dict[tuple[State, str], Choice | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        profiles = self.geometry.profiles.values()
        self._limited = tuple(sorted({_group(profile) for profile in profiles if profile.most is not None}))
        self._compute_matters = _greatest_compute(self.geometry) > self.geometry.compute
        self.exact = self._few_states()

    def choose(self, held: Iterable[Slot], profile: str) -> Choice | None:
        """Where a partition of this profile is put, beside these, and what that costs; None if there is no room."""
        key = (self.state(held), profile)
        try:
            return self._choices[key]
        except KeyError:
            pass
        if len(self._choices) >= REMEMBERED:
            self._choices.clear()
        known = self.geometry.profiles.get(profile)
        choice = self._choices[key] = None if known is None else self._choose(key[0], known)
        return choice

    def state(self, held: Iterable[Slot]) -> State:
        """What of a device matters to those who come."""
        profiles, taken, compute = self.geometry.profiles, 0, 0
        counts = [0] * len(self._limited)
        for slot in held:
            taken |= slot.mask
            known = profiles.get(slot.profile)
            if known is not None:
                compute += known.compute
                if known.most is not None:
                    counts[self._limited.index(_group(known))] += 1
        return taken, compute if self._compute_matters else 0, tuple(counts)

    def _choose(self, state: State, profile: Profile) -> Choice | None:
        best: tuple[tuple[bool, ...], Fraction, int] | None = None
        for start in self._starts(state, profile):
            then = self._with(state, profile, start)
            value = (self.possible(then), self.worth(then), start)
            if best is None or value > best:
                best = value
        if best is None:
            return None
        lost = (self.worth(state) - best[1]) * SCALE / self.geometry.slices**2
        return Choice(lost.numerator // lost.denominator, best[2])

    def worth(self, state: State) -> Fraction:
        """What a device in this state is worth: see the module."""
        known = self._worth.get(state)
        if known is None:
            if len(self._worth) >= REMEMBERED:
                self._worth.clear()
            known = self._worth[state] = self._expected(state) if self.exact else self._estimated(state)
        return known

    def _expected(self, state: State) -> Fraction:
        total, fitting = Fraction(0), 0
        for profile, weight in self.weights:
            then = [self.worth(self._with(state, profile, start)) for start in self._starts(state, profile)]
            if then and weight:
                fitting += weight
                total += weight * (profile.size**2 + max(then))
        return total / fitting if fitting else total

    def _estimated(self, state: State) -> Fraction:
        return Fraction(sum(weight * p.size**2 * self._room(state, p) for p, weight in self.weights))

    def _room(self, state: State, profile: Profile) -> int:
        """How many of one profile there is room for: of intervals of one size, those that end first (exact)."""
        number, end = 0, 0
        for start in self._starts(state, profile):
            if start >= end:
                number, end = number + 1, start + profile.size
        if self._compute_matters:
            number = min(number, (self.geometry.compute - state[1]) // profile.compute)
        if profile.most is not None:
            number = min(number, profile.most - state[2][self._limited.index(_group(profile))])
        return number

    def possible(self, state: State) -> tuple[bool, ...]:
        """Which profiles there is room for, the largest first."""
        return tuple(bool(self._starts(state, profile)) for profile, _ in self.weights)

    def _starts(self, state: State, profile: Profile) -> list[int]:
        taken, compute, counts = state
        if self._compute_matters and compute + profile.compute > self.geometry.compute:
            return []
        if profile.most is not None and counts[self._limited.index(_group(profile))] >= profile.most:
            return []
        window = (1 << profile.size) - 1
        return [start for start in profile.starts if not taken >> start & window]

    def _with(self, state: State, profile: Profile, start: int) -> State:
        taken, compute, counts = state
        if profile.most is not None:
            which = self._limited.index(_group(profile))
            counts = (*counts[:which], counts[which] + 1, *counts[which + 1 :])
        window = (1 << profile.size) - 1 << start
        return taken | window, compute + profile.compute if self._compute_matters else 0, counts

    def _few_states(self) -> bool:
        """Whether an empty device can come into no more than `STATES` states."""
        seen = {self.state(())}
        ahead = deque(seen)
        while ahead:
            state = ahead.popleft()
            for profile in self.geometry.profiles.values():
                for start in self._starts(state, profile):
                    then = self._with(state, profile, start)
                    if then not in seen:
                        if len(seen) >= STATES:
                            return False
                        seen.add(then)
                        ahead.append(then)
        return True


def outlook(geometry: Geometry, allowed: Collection[str], demand: Mapping[str, int] | None = None) -> Outlook:
    """What is remembered of this kind of device, where these profiles may come, by demand each so often.

    Without a demand, or with one that knows none of them, each comes as often as any other.
    """
    names = tuple(sorted(set(allowed)))
    if demand is not None:
        wanted = [max(0, demand.get(name, 0)) for name in names]
        if total := sum(wanted):
            return _outlook(geometry, names, tuple(-(-number * PARTS // total) for number in wanted))
    return _outlook(geometry, names, (1,) * len(names))


@lru_cache(OUTLOOKS)
def _outlook(geometry: Geometry, names: tuple[str, ...], parts: tuple[int, ...]) -> Outlook:
    weights = [
        (geometry.profiles[name], weight)
        for name, weight in zip(names, parts, strict=True)
        if name in geometry.profiles
    ]
    weights.sort(key=lambda each: (-each[0].size, -each[0].compute, each[0].name))
    return Outlook(geometry, tuple(weights))


def _group(profile: Profile) -> str:
    return profile.group or profile.name


def _greatest_compute(geometry: Geometry) -> int:
    """The most compute slices that partitions beside each other could take, if their number did not limit them."""
    best = [0] * (geometry.slices + 1)
    for end in range(1, geometry.slices + 1):
        fitting = (p for p in geometry.profiles.values() if end - p.size in p.starts)
        best[end] = max([best[end - 1], *(best[end - p.size] + p.compute for p in fitting)])
    return best[geometry.slices]
