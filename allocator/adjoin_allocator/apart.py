"""Members of a gang no two of which may have a value in common (`policy: Distinct, over: Gang`).

In come the nodes with what they hold, the fabric tree and the lines; out come nodes and choices for the most members,
in the smallest domain, with the least left over. Nothing is taken here.

Values are few (rails, planes, switches), so they are tried exactly: a node offers sets of values that its members could
use, and a dynamic program over nodes keeps, for each set of values used so far, the most members with it. Values that
occur on one node only keep its own members apart and are no part of that set. Nodes that offer the same, and domains of
the same nodes, are looked at once. Work is counted, and a search that sees too much is given up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np

from adjoin_allocator.fabric import WHOLE
from adjoin_allocator.fit import Fit, needed
from adjoin_allocator.ground import Ground
from adjoin_allocator.nodes import NodeView, Value
from adjoin_allocator.seats import Key, Seat, Seats
from adjoin_allocator.spread import Wish
from adjoin_allocator.topology import bits

STEPS = 200_000
"""So many steps one search may take."""

Line = tuple[int, str]
"""An attribute line over the gang: its place among the signature's attribute lines, and its attribute."""

Offer = tuple[tuple[int, tuple[Seat, ...]], ...]
"""What a node could give: shared values used, and by member its choice; the most useful first."""


class TooMany(Exception):
    """The search saw too much and is given up."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best that was found: by position the choices of its members."""

    level: int
    domain: int
    left: int
    seats: tuple[tuple[int, tuple[Seat, ...]], ...]

    @property
    def members(self) -> int:
        """How many."""
        return sum(len(seats) for _, seats in self.seats)


@dataclass(slots=True, eq=False)
class Apart:
    """The search for one gang.

    Attributes:
        keys: By position of a node that holds a member its state.
        spent: Values of members in place, by line.
    """

    seats: Seats
    ground: Ground
    wish: Wish
    lines: tuple[Line, ...]
    keys: Mapping[int, Key]
    spent: Mapping[Line, frozenset[Value]]
    steps: int = 0
    _bits: dict[tuple[Line, Value], int] = field(default_factory=dict)
    _classes: dict[object, int] = field(default_factory=dict)
    _class: dict[int, int] = field(default_factory=dict)
    _offers: dict[int, Offer] = field(default_factory=dict)
    _most: dict[tuple[tuple[int, int], ...], int] = field(default_factory=dict)

    def best(self) -> Found | None:
        """The most members, or None when there is no place for one.

        Raises:
            TooMany: The search saw too much.
        """
        self._read()
        most = max((self._members(self.wish.required, at) for at in self._domains(self.wish.required)), default=0)
        if not most:
            return None
        for level in range(self.ground.depth, self.wish.required - 1, -1):
            enough = [at for at in self._domains(level) if self._members(level, at) >= most]
            if enough:
                left = {at: int(self.ground.totals(level)[at]) for at in enough}
                domain = min(enough, key=lambda at: (left[at], at))
                return Found(level, domain, left[domain] - most, self._choose(level, domain, most))
        return None

    def _read(self) -> None:
        """Numbers the values that several nodes share, and groups nodes that offer the same."""
        views = self.ground.tree.index.views
        where: dict[tuple[Line, Value], int] = {}
        for position in self.keys:
            for line in self.lines:
                for value in views[position].sharing(line[1]):
                    where[line, value] = where.get((line, value), 0) + 1
        taken = {(line, value) for line, values in self.spent.items() for value in values}
        common = [each for each, number in where.items() if number > 1 or each in taken]
        common += [each for each in taken if each not in where]
        for line, value in sorted(common, key=lambda each: (each[0], each[1][0].__name__, str(each[1][1]))):
            self._bits[line, value] = 1 << len(self._bits)
        for position, key in self.keys.items():
            shares = tuple(tuple(sorted(self._masks(views[position], line).items())) for line in self.lines)
            self._class[position] = self._classes.setdefault((key, shares), len(self._classes))

    def _masks(self, view: NodeView, line: Line) -> dict[int, int]:
        """By value (its bit; a value of one node has a negative number) who has it."""
        found: dict[int, int] = {}
        for number, (value, mask) in enumerate(view.sharing(line[1]).items()):
            found[self._bits.get((line, value), -1 - number)] = mask
        return found

    def _domains(self, level: int) -> Sequence[int]:
        """Domains in which members may lie: with those in place, and where a required one is."""
        ground, wish = self.ground, self.wish
        common = ground.common(level)
        if common == -1:
            return ()
        first = ground.first(level)
        over = ground.tree.domains(wish.required)[first]
        allowed = (over >= 0) & (ground.totals(level) > 0)
        if wish.inside is not None:
            allowed &= over == wish.inside
        found = list(map(int, np.flatnonzero(allowed)))
        return found if common is None else [at for at in found if at == common]

    def _nodes(self, level: int, domain: int) -> list[int]:
        mine = np.flatnonzero(self.ground.tree.domains(level) == domain) if level != WHOLE else None
        return [
            int(at) for at in (mine if mine is not None else range(len(self.ground.rooms))) if self.ground.rooms[at]
        ]

    def _few(self, level: int, domain: int) -> list[int]:
        """Its nodes, of those that offer the same no more than members are wished."""
        seen: dict[int, int] = {}
        found = []
        for position in self._nodes(level, domain):
            what = self._class[position]
            seen[what] = seen.get(what, 0) + 1
            if seen[what] <= self.wish.number:
                found.append(position)
        return found

    def _members(self, level: int, domain: int) -> int:
        """The most members in a domain."""
        nodes = self._few(level, domain)
        counts: dict[int, int] = {}
        for position in nodes:
            counts[self._class[position]] = counts.get(self._class[position], 0) + 1
        key = tuple(sorted(counts.items()))
        found = self._most.get(key)
        if found is None:
            found = self._most[key] = max(members for members, _, _ in self._walk(nodes).values())
        return found

    def _choose(self, level: int, domain: int, most: int) -> tuple[tuple[int, tuple[Seat, ...]], ...]:
        """The choices of so many members, on as few nodes as can be."""
        ends = self._walk(self._few(level, domain)).values()
        _, _, chosen = min((end for end in ends if end[0] == most), key=lambda end: (-end[1], [at for at, _ in end[2]]))
        return chosen

    def _walk(self, nodes: Sequence[int]) -> dict[int, tuple[int, int, tuple[tuple[int, tuple[Seat, ...]], ...]]]:
        """By set of values used the most members, (less) the nodes for them, and their choices."""
        start = 0
        for line, values in self.spent.items():
            for value in values:
                start |= self._bits.get((line, value), 0)
        reached: dict[int, tuple[int, int, tuple[tuple[int, tuple[Seat, ...]], ...]]] = {start: (0, 0, ())}
        for position in nodes:
            offer = self._offer(position)
            new = dict(reached)
            for used, (members, nodes_left, chosen) in reached.items():
                for values_, seats in offer:
                    self._step()
                    if values_ & used or members + len(seats) > self.wish.number:
                        continue
                    now = (members + len(seats), nodes_left - 1)
                    old = new.get(used | values_)
                    if old is None or now > old[:2]:
                        new[used | values_] = (*now, (*chosen, (position, seats)))
            reached = new
        return reached

    def _step(self) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise TooMany

    # One node

    def _offer(self, position: int) -> Offer:
        """What a node could give to one member, two, …"""
        what = self._class[position]
        found = self._offers.get(what)
        if found is None:
            view, key = self.ground.tree.index.views[position], self.keys[position]
            best: dict[tuple[int, int], tuple[Seat, ...]] = {}
            # Values used (those of one node only too), free devices → choices.
            border: dict[tuple[frozenset[tuple[int, int]], int], tuple[Seat, ...]] = {(frozenset(), key[0][2]): ()}
            for _ in range(min(self.ground.rooms[position], self.wish.number)):
                after: dict[tuple[frozenset[tuple[int, int]], int], tuple[Seat, ...]] = {}
                for (used, free), seats in border.items():
                    for values, seat in self._options(view, key, free, used):
                        self._step()
                        now = used | values
                        state = (now, free & ~seat.fit.taken)
                        if state not in after:
                            after[state] = (*seats, seat)
                            shared = sum(bit for _, bit in now if bit > 0)
                            best.setdefault((shared, len(seats) + 1), after[state])
                border = after
            found = self._offers[what] = tuple((shared, seats) for (shared, _), seats in best.items())
        return found

    def _options(
        self, view: NodeView, key: Key, free: int, used: frozenset[tuple[int, int]]
    ) -> Iterator[tuple[frozenset[tuple[int, int]], Seat]]:
        """The ways to give one member its devices, one for each set of values that it could use."""
        for at, (ask, (shape, sort, _)) in enumerate(zip(self.seats.asks, key, strict=True)):
            base = sort.bare or sort
            counts = needed(ask.signature, base.eligible)
            ways = []
            for number, line in enumerate(self.lines):
                requests = ask.signature.attributes[line[0]].requests
                mine = 0
                for request in requests:
                    mine |= base.eligible[request] & free
                ways.append(list(self._sets(view, number, mine, sum(counts[request] for request in requests), used)))
            for way in product(*ways):
                self._step()
                eligible = list(base.eligible)
                values: frozenset[tuple[int, int]] = frozenset()
                for (having, mask), line in zip(way, self.lines, strict=True):
                    values |= having
                    for request in ask.signature.attributes[line[0]].requests:
                        whole = not ask.signature.counts[request]
                        if whole and eligible[request] & ~mask:
                            eligible[request] = 0
                        eligible[request] &= mask
                narrowed = self.seats.memo.narrowed(tuple(eligible), base.values)
                answer = self.seats.placer.fitter.fit(ask.form, (shape, narrowed, free))
                if isinstance(answer, Fit):
                    yield values, Seat(at, answer)

    def _sets(
        self, view: NodeView, number: int, mine: int, count: int, used: frozenset[tuple[int, int]]
    ) -> Iterator[tuple[frozenset[tuple[int, int]], int]]:
        """Values that `count` devices could use, no two the same and none used before, and who has just these."""
        lists: dict[int, list[int]] = {}
        for bit, mask in self._masks(view, self.lines[number]).items():
            for device in bits(mask & mine):
                lists.setdefault(device, []).append(bit)
        by_list: dict[frozenset[tuple[int, int]], int] = {}
        for device, values in lists.items():
            having = frozenset((number, bit) for bit in values)
            if not having & used:
                by_list[having] = by_list.get(having, 0) | 1 << device
        for chosen in combinations(by_list, count):
            together = frozenset[tuple[int, int]]().union(*chosen)
            if len(together) == sum(map(len, chosen)):
                mask = 0
                for having in chosen:
                    mask |= by_list[having]
                yield together, mask
