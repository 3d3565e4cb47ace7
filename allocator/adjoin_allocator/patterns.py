"""Candidate patterns: sets of devices that one replica could have in nodes of one state.

In come what is asked and a node state, out come `Pattern`s with different devices, each with its distances and the best
way to share its devices out among the requests. Where there are no more sets than are wanted all of them are tried;
else the nearest ones are followed from one to the next, by forbidding devices of those found, up to a bound. The work
is counted by a `Meter`, in steps that do not depend on what is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations
from math import comb

from adjoin_allocator.cost import distances
from adjoin_allocator.fit import Fit, Fitter, Form, Obstacle, needed
from adjoin_allocator.nodes import State
from adjoin_allocator.topology import bits


@dataclass(frozen=True, slots=True)
class Pattern:
    """One replica's devices in a node.

    Attributes:
        distances: The parts of the objective that do not depend on anything else, the most important first.
        fit: Devices by request, and all of them; only the distances of its objective count.
    """

    distances: tuple[int, ...]
    fit: Fit


STATES = 100
"""States of a search that are one step, beside the one for the search."""


@dataclass(slots=True)
class Meter:
    """Steps that are left. A search is one, and more where it looks at many states."""

    left: int

    def half(self) -> Meter:
        """A meter of its own with half of what is left, which is gone here."""
        self.left -= max(0, self.left) // 2
        return Meter(self.left)

    def spend(self) -> bool:
        """Whether one more step may be taken."""
        self.left -= 1
        return self.left >= 0

    def count(self, states: int) -> None:
        """A search has looked at so many states, now or when its answer was found."""
        self.left -= states // STATES


def pattern(form: Form, fit: Fit) -> Pattern:
    """A choice as a pattern."""
    return Pattern(distances(form.signature, fit.objective), fit)


def patterns(fitter: Fitter, form: Form, state: State, bound: int, meter: Meter) -> tuple[list[Pattern], bool]:
    """Patterns with different devices, the nearest first, and whether these are all that there are."""
    shape, sort, free = state
    counts = needed(form.signature, sort.eligible)
    eligible = 0
    for mask in sort.eligible:
        eligible |= mask & shape.usable(free)
    if not all(counts) or eligible.bit_count() < sum(counts):
        return [], True
    found: dict[int, Pattern] = {}
    complete = True
    if comb(eligible.bit_count(), sum(counts)) <= bound:
        tried: Iterable[Fit] = _all(fitter, form, state, eligible, sum(counts), meter)
    else:
        tried = _nearest(fitter, form, state, eligible, meter)
    for fit in tried:
        if fit.taken in found:
            continue
        if len(found) >= bound:
            complete = False
            break
        found[fit.taken] = pattern(form, fit)
    ordered = sorted(found.values(), key=lambda each: (each.distances, each.fit.taken))
    return ordered, complete and meter.left >= 0


def _all(fitter: Fitter, form: Form, state: State, eligible: int, count: int, meter: Meter) -> Iterator[Fit]:
    """Every set of so many devices that will do."""
    shape, sort, free = state
    for chosen in combinations([1 << bit for bit in bits(eligible)], count):
        if not meter.spend():
            return
        answer = _look(fitter, form, (shape, sort, shape.only(free, sum(chosen))), meter)
        if answer is not None:
            yield answer


def _look(fitter: Fitter, form: Form, state: State, meter: Meter) -> Fit | None:
    """The best choice; a search that gives up ends the whole enumeration, since then nothing is sure."""
    answer = fitter.fit(form, state)
    meter.count(answer.states)
    if isinstance(answer, Fit):
        return answer
    if answer.obstacle is Obstacle.LIMIT:
        meter.left = -1
    return None


def _nearest(fitter: Fitter, form: Form, state: State, eligible: int, meter: Meter) -> Iterator[Fit]:
    """First the best choices that go together, one after the other; then the best without each of the devices of those
    found, and so on, the nearest first.

    Ends when there is nothing more: every set of devices is the best of those that are left at last when all others
    are forbidden.
    """
    shape, sort, free = state
    known: set[int] = set()
    queue: list[tuple[tuple[int, ...], int, int, Fit]] = []

    def look(left: int) -> Fit | None:
        if left in known or not meter.spend():
            return None
        known.add(left)
        fit = _look(fitter, form, (shape, sort, shape.only(free, left)), meter)
        if fit is not None:
            heappush(queue, (distances(form.signature, fit.objective), len(known), left, fit))
        return fit

    left, fit = eligible, look(eligible)
    while fit is not None:
        yield fit
        left &= ~fit.taken
        fit = look(left)
    while queue:
        _, _, left, fit = heappop(queue)
        yield fit
        for device in bits(fit.taken):
            look(left & ~(1 << device))
