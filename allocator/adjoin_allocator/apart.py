"""Members of a gang no two of which may have a value in common (`policy: Distinct, over: Gang`).

In come the nodes with what they hold, the fabric tree and the lines; out come nodes and choices for the most members,
in the smallest domain, with the least left over. Nothing is taken here.

Values are few (rails, planes, switches), so they are tried exactly: a node offers sets of values that its members could
use, and a dynamic program over nodes keeps, for each set of values used so far, the most members with it. Values that
occur on one node only keep its own members apart and are no part of that set. Nodes that offer the same, and domains of
the same nodes, are looked at once. Work is counted, and a search that sees too much is given up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np

from adjoin_allocator.fabric import WHOLE
from adjoin_allocator.ground import Ground
from adjoin_allocator.nodes import NodeView, Value
from adjoin_allocator.seats import Seat, Seats
from adjoin_allocator.spread import Wish
from adjoin_allocator.topology import bits

STEPS = 200_000
"""So many steps one search may take."""

Line = tuple[int, str]
"""An attribute line over the gang: its place among the signature's attribute lines, and its attribute."""

Offer = tuple[tuple[int, tuple[Seat, ...]], ...]
"""What a node could give: shared values used, and by member its choice; the most useful first."""


Places = tuple[tuple[int, tuple[Seat, ...]], ...]
"""By position of a node the choices of its members."""


class TooMany(Exception):
    """The search saw too much and is given up."""


@dataclass(frozen=True, slots=True)
class Group:
    """What lies in one domain of the segments' level; without segments all of it.

    Attributes:
        domain: Its number.
        pieces: Members of each segment there; first those that join segments with members in place, then full ones.
        tail: The last of them is of the last, shorter segment.
        seats: By position the choices of its members.
    """

    domain: int
    joining: int
    pieces: tuple[int, ...]
    tail: bool
    seats: Places

    @property
    def members(self) -> int:
        """How many."""
        return sum(len(seats) for _, seats in self.seats)


@dataclass(frozen=True, slots=True)
class Found:
    """The best that was found."""

    level: int
    domain: int
    left: int
    groups: tuple[Group, ...]

    @property
    def members(self) -> int:
        """How many."""
        return sum(group.members for group in self.groups)


@dataclass(frozen=True, slots=True)
class _End:
    """What can be reached with certain values and segments; the greater, the better."""

    members: int = 0
    whole: int = 0
    """Segments of which no member is missing."""
    nodes_left: int = 0
    groups: tuple[Group, ...] = ()

    @property
    def rank(self) -> tuple[int, int, int]:
        """What is compared."""
        return self.members, self.whole, self.nodes_left


_Used = tuple[int, int, int]
"""Values that are used, full segments that are begun, and whether the last, shorter one is."""


@dataclass(slots=True, eq=False)
class Apart:
    """The search for one gang.

    Attributes:
        keys: By position of a node that holds a member its key.
        spent: Values of members in place, by line.
        joining: By domain of the segments' level how many members must join those in place there.
    """

    seats: Seats[Any]
    ground: Ground
    wish: Wish
    lines: tuple[Line, ...]
    keys: Mapping[int, Hashable]
    spent: Mapping[Line, frozenset[Value]]
    joining: Mapping[int, int] = field(default_factory=dict)
    steps: int = 0
    _bits: dict[tuple[Line, Value], int] = field(default_factory=dict)
    _classes: dict[object, int] = field(default_factory=dict)
    _class: dict[int, int] = field(default_factory=dict)
    _offers: dict[int, Offer] = field(default_factory=dict)
    _most: dict[object, int] = field(default_factory=dict)

    @property
    def segmented(self) -> bool:
        """Whether there are segments that the required level does not keep together already."""
        return bool(self.wish.size) and self.wish.level > self.wish.required

    @property
    def total(self) -> int:
        """All members that are wished."""
        return self.wish.number + sum(self.joining.values())

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
                ends = self._ends(level, domain).values()
                end = max(ends, key=lambda end: (end.rank, [-at for group in end.groups for at, _ in group.seats]))
                return Found(level, domain, left[domain] - most, end.groups)
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

    def _groups(self, level: int, domain: int) -> list[tuple[int, list[int]]]:
        """Its nodes by domain of the segments' level, of those in one that offer the same no more than members are
        wished.
        """
        domains = self.ground.tree.domains(self.wish.level) if self.segmented else None
        found: dict[int, list[int]] = {}
        seen: dict[tuple[int, int], int] = {}
        for position in self._nodes(level, domain):
            where = 0 if domains is None else int(domains[position])
            what = (where, self._class[position])
            seen[what] = seen.get(what, 0) + 1
            if where >= 0 and seen[what] <= self.total:
                found.setdefault(where, []).append(position)
        return sorted(found.items())

    def _members(self, level: int, domain: int) -> int:
        """The most members in a domain."""
        told = []
        for where, nodes in self._groups(level, domain):
            counts = Counter(self._class[position] for position in nodes)
            told.append((self.joining.get(where, 0), tuple(sorted(counts.items()))))
        key = tuple(sorted(told))
        found = self._most.get(key)
        if found is None:
            found = self._most[key] = max(end.members for end in self._ends(level, domain).values())
        return found

    def _ends(self, level: int, domain: int) -> dict[_Used, _End]:
        """What can be reached, by what is used for it."""
        start = 0
        for line, values in self.spent.items():
            for value in values:
                start |= self._bits.get((line, value), 0)
        size = self.wish.size if self.segmented else max(1, self.wish.number)
        fulls, tail = divmod(self.wish.number, size)
        reached: dict[_Used, _End] = {(start, 0, 0): _End()}
        for where, nodes in self._groups(level, domain):
            ways = self._walk(nodes, start)
            joining = self.joining.get(where, 0)
            new = dict(reached)
            for (used, begun, tailed), end in reached.items():
                for mine, places in ways.items():
                    if mine & used & ~start:
                        continue
                    there = sum(len(seats) for _, seats in places)
                    for with_tail in (0, 1) if tail and not tailed else (0,):
                        for more in range(fulls - begun + 1):
                            self._step()
                            group = _group(where, places, joining, size, more, tail if with_tail else 0)
                            if group is not None:
                                now = _End(
                                    end.members + group.members,
                                    end.whole + group.pieces.count(size) + (group.tail and group.pieces[-1] == tail),
                                    end.nodes_left - len(group.seats),
                                    (*end.groups, group),
                                )
                                key = (used | mine, begun + more, tailed + with_tail)
                                if key not in new or now.rank > new[key].rank:
                                    new[key] = now
                            if joining + more * size + (tail if with_tail else 0) >= there:
                                break
            reached = new
        return reached

    def _walk(self, nodes: Sequence[int], start: int) -> dict[int, Places]:
        """By set of values used the most members, on the fewest nodes, and their choices."""
        reached: dict[int, tuple[int, int, Places]] = {start: (0, 0, ())}
        for position in nodes:
            offer = self._offer(position)
            new = dict(reached)
            for used, (members, nodes_left, chosen) in reached.items():
                for values_, seats in offer:
                    self._step()
                    if values_ & used or members + len(seats) > self.total:
                        continue
                    now = (members + len(seats), nodes_left - 1)
                    old = new.get(used | values_)
                    if old is None or now > old[:2]:
                        new[used | values_] = (*now, (*chosen, (position, seats)))
            reached = new
        return {used: chosen for used, (_, _, chosen) in reached.items() if chosen}

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
            # Values used (those of one node only too) and the node as it is then → choices.
            border: dict[tuple[frozenset[tuple[int, int]], Hashable], tuple[Seat, ...]] = {(frozenset(), key): ()}
            for _ in range(min(self.ground.rooms[position], self.total)):
                after: dict[tuple[frozenset[tuple[int, int]], Hashable], tuple[Seat, ...]] = {}
                for (used, here), seats in border.items():
                    for values, seat in self._options(view, here, used):
                        self._step()
                        now = used | values
                        state = (now, self.seats.after(here, seat))
                        if state not in after:
                            after[state] = (*seats, seat)
                            shared = sum(bit for _, bit in now if bit > 0)
                            best.setdefault((shared, len(seats) + 1), after[state])
                border = after
            found = self._offers[what] = tuple((shared, seats) for (shared, _), seats in best.items())
        return found

    def _options(
        self, view: NodeView, key: Hashable, used: frozenset[tuple[int, int]]
    ) -> Iterator[tuple[frozenset[tuple[int, int]], Seat]]:
        """The ways to give one member its devices, one for each set of values that it could use."""
        for at, ask in enumerate(self.seats.asks):
            could, counts = self.seats.could(key, at), self.seats.needed(key, at)
            ways = []
            for number, line in enumerate(self.lines):
                requests = ask.signature.attributes[line[0]].requests
                mine = 0
                for request in requests:
                    mine |= could[request]
                ways.append(list(self._sets(view, number, mine, sum(counts[request] for request in requests), used)))
            for way in product(*ways):
                self._step()
                masks = list(could)
                values: frozenset[tuple[int, int]] = frozenset()
                for (having, mask), line in zip(way, self.lines, strict=True):
                    values |= having
                    for request in ask.signature.attributes[line[0]].requests:
                        masks[request] &= mask
                for seat in self.seats.ways(key, at, tuple(masks)):
                    self._step()
                    yield values, seat

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


def _group(domain: int, places: Places, joining: int, size: int, begun: int, tail: int) -> Group | None:
    """As many members of a domain as these segments have; None when one of them would have none."""
    left = sum(len(seats) for _, seats in places)
    joined = min(left, joining)
    left -= joined
    pieces = []
    for most in (*(size,) * begun, *((tail,) if tail else ())):
        pieces.append(min(left, most))
        left -= pieces[-1]
    if not all(pieces) or not joined + sum(pieces):
        return None
    kept, number = [], joined + sum(pieces)
    for position, seats in places:
        if number:
            kept.append((position, seats[:number]))
            number -= len(kept[-1][1])
    return Group(domain, joined, tuple(pieces), bool(tail), tuple(kept))
