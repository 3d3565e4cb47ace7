"""Which pieces must move so that others find room: exact, in order of cost.

In come pieces that hold devices and may move, pieces that want devices, and for each the sets of devices that would do
(bitmasks); out come rearrangements, the cheapest first: no rearrangement of those that were not given yet costs less.
Nothing here knows what devices are; that a set would do is decided elsewhere.

The search is A* (Hart, Nilsson, Raphael 1968) over partial rearrangements. A piece that waits takes one of its sets;
whoever sits on it and has not moved yet waits then too, and costs what it weighs. A set of another moved piece is out
of reach. What a piece that waits must displace at least, whatever else happens, never grows less by moving others, so
the greatest such amount over all that wait is a bound. Every rearrangement in which each moved piece was in somebody's
way is reached; one that moves anybody else is never cheapest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain


@dataclass(frozen=True, slots=True)
class Piece:
    """Somebody who holds or wants devices.

    Attributes:
        sets: The sets of devices of which each would do, in order of preference.
        at: What it holds now; 0 for one that waits.
        weight: What it costs to move it.
    """

    sets: tuple[int, ...]
    at: int = 0
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """By place of a piece the set that it takes; of those that held devices, only those that move are in it."""

    cost: int
    taken: Mapping[int, int]


class Exhausted(Exception):
    """The limit of steps was reached: there may be rearrangements that were not found."""


def rearrangements(pieces: Sequence[Piece], free: int, limit: int) -> Iterator[Rearrangement]:
    """All cheapest-first; those that hold nothing (`at` 0) must find room, and `free` is held by nobody.

    Raises `Exhausted` after `limit` steps. Of several ways to end in one arrangement one is given.
    """
    holders = [place for place, piece in enumerate(pieces) if piece.at]
    waiting = tuple(place for place, piece in enumerate(pieces) if not piece.at)
    usable = free
    for place in holders:
        usable |= pieces[place].at
    reachable = [tuple(each for each in piece.sets if not each & ~usable) for piece in pieces]

    sitting = {each: tuple(place for place in holders if pieces[place].at & each) for each in set(chain(*reachable))}

    def displaced(wanted: int, moved: frozenset[int]) -> list[int]:
        return [place for place in sitting[wanted] if place not in moved]

    def bound(pending: Sequence[int], moved: frozenset[int], taken: int) -> int | None:
        """The least that is still to pay, or None when somebody cannot find room any more."""
        least = 0
        for place in pending:
            own = None
            for each in reachable[place]:
                if not each & taken:
                    price = sum(pieces[other].weight for other in displaced(each, moved))
                    if own is None or price < own:
                        own = price
                        if not own:
                            break
            if own is None:
                return None
            least = max(least, own)
        return least

    start = bound(waiting, frozenset(), 0)
    if start is None:
        return
    # Expected cost, moves, pieces that still wait, a running number; then cost, who waits, who moved, what was taken.
    heap: list[tuple[int, int, int, int, int, tuple[int, ...], frozenset[int], tuple[tuple[int, int], ...]]]
    heap = [(start, 0, len(waiting), 0, 0, waiting, frozenset(), ())]
    seen: set[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]] = set()
    number = steps = 0
    while heap:
        _, _, _, _, cost, pending, moved, given = heappop(heap)
        if not pending:
            yield Rearrangement(cost, dict(given))
            continue
        taken = 0
        for _, mask in given:
            taken |= mask
        first, rest = pending[0], pending[1:]
        for each in reachable[first]:
            if each & taken:
                continue
            steps += 1
            if steps > limit:
                raise Exhausted
            out = displaced(each, moved)
            now_moved = moved.union(out)
            now_pending = tuple(sorted((*rest, *out)))
            now_given = tuple(sorted((*given, (first, each))))
            key = (now_pending, now_given)
            if key in seen:
                continue
            seen.add(key)
            now_cost = cost + sum(pieces[place].weight for place in out)
            least = bound(now_pending, now_moved, taken | each)
            if least is not None:
                number += 1
                entry = (now_cost + least, len(now_moved), len(now_pending), number)
                heappush(heap, (*entry, now_cost, now_pending, now_moved, now_given))
