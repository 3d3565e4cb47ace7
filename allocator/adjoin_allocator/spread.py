"""How the members of a gang are spread over the network: numbers only, exactly.

In come a fabric tree, by node how many members it holds and how many of the gang are there already, and a `Wish`; out
comes a `Layout`: a domain and how many members each part of it gets, or a `Shortage` with the most that could be had.
Nothing here knows devices.

What is minimised, in this order, among layouts of the most members:

1. the smallest domain that all members lie in (a node, else a domain of the finest level, …);
2. domains of the preferred level that are used;
3. what is left over in the domain, so that whole domains stay whole for others;
4. from the next level to the nodes: the domains used, then what is left over in these.

Below the domain this is a dynamic program over the tree: a table says for each number of members the least cost in a
subtree, and the tables of its children are added up by min-plus convolution (a knapsack in which every child takes some
members). Costs are integers in which each part has bits of its own. Equal nodes of one parent are one summand with a
closed form, and subtrees with equal summands share a table, so the cost follows the number of different subtrees.

Segments are the units of that program above their level: a domain of that level takes whole segments, and the last,
shorter one at most once. A gang that may be smaller than wished may also have incomplete segments; then as many members
as possible are placed, full segments first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from adjoin_allocator.fabric import WHOLE, Integers
from adjoin_allocator.ground import Ground

Costs = npt.NDArray[Any]
"""Least cost by number (of members, or of segments); int64, or Python's integers where those do not suffice."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be spread.

    Attributes:
        number: Members.
        least: So many of them at least, or none.
        required: Level of which all lie in one domain.
        preferred: Level of which they use as few domains as they can, where there is a choice; `WHOLE` for none.
        inside: A domain of the required level that it must be, or None.
        size: Members of a segment; 0: no segments.
        level: Level of which each segment lies in one domain.
    """

    number: int
    least: int
    required: int = WHOLE
    preferred: int = WHOLE
    inside: int | None = None
    size: int = 0
    level: int = WHOLE


@dataclass(frozen=True, slots=True)
class Share:
    """Nodes of one parent that each hold `room` members, `number` of which go to them: to as few nodes as can be."""

    positions: tuple[int, ...]
    room: int
    number: int


@dataclass(frozen=True, slots=True)
class Lot:
    """Members that stay together in rank order.

    Attributes:
        pieces: With segments: how many members of each segment are in this domain, full ones first.
        tail: The last piece is of the last, shorter segment.
        benches: By parent, in the order of the tree, what its nodes get.
    """

    pieces: tuple[int, ...]
    tail: bool
    benches: tuple[tuple[Share, ...], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where members go.

    Attributes:
        level: Level of the domain (`len(tree.layers)`: a node).
        domain: Its number.
        members: How many.
        rank: Parts 2 to 4 of what is minimised, and then what is left over in the domains above; comparable between
            layouts of one level.
    """

    level: int
    domain: int
    members: int
    rank: tuple[int, ...]
    lots: tuple[Lot, ...]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Too few fit.

    Attributes:
        most: The most members that one domain of the required level holds.
        domain: Which.
        total: How many all nodes hold together, whatever domain they are in.
    """

    most: int
    domain: int
    total: int


@dataclass(frozen=True, slots=True)
class Packed:
    """Members of segments in the domains below one, when not all of them fit.

    Attributes:
        members: How many.
        pieces: By domain of the segments' level the sizes of its pieces, full ones first.
        tail: The domain whose last piece is of the last, shorter segment; -1 for none.
    """

    members: int
    pieces: tuple[tuple[int, tuple[int, ...]], ...]
    tail: int


class Spreader:
    """Finds layouts for one wish on one ground."""

    def __init__(self, ground: Ground, wish: Wish) -> None:
        self.ground = ground
        self.wish = wish
        # A coarser (or the same) level in which all lie in one domain has every segment in one domain too.
        self.size = wish.size if wish.size and wish.level > wish.required else 0
        self.fulls, self.tail = divmod(wish.number, self.size) if self.size else (0, 0)
        self._most: dict[int, Integers] = {}

    def most(self, level: int) -> Integers:
        """By domain of a level the most members it takes; 0 where the wish forbids it. Where one takes all of them, the
        others that do not may be given with one less than that.
        """
        found = self._most.get(level)
        if found is None:
            found = self._most[level] = self._count(level)
        return found

    def _count(self, level: int) -> Integers:
        ground, wish = self.ground, self.wish
        found = np.minimum(ground.totals(level), wish.number)
        first = ground.first(level)
        lacking = ground.tree.domains(wish.required)[first] < 0
        if self.size and level >= wish.level:
            lacking |= ground.tree.domains(wish.level)[first] < 0
        if wish.inside is not None:
            lacking |= ground.tree.domains(wish.required)[first] != wish.inside
        found[lacking] = 0
        if self.size and level < wish.level:
            complete = self._complete(level) & (found > 0)
            if complete.any():
                np.minimum(found, wish.number - 1, out=found)
            else:
                for domain in np.flatnonzero(found):
                    found[domain] = self.pack(level, int(domain)).members
            found[complete] = wish.number
        return found

    def _complete(self, level: int) -> npt.NDArray[np.bool_]:
        """By domain whether all segments find places in it."""
        ground, size, tail = self.ground, self.size, self.tail
        rooms = ground.totals(self.wish.level)
        over = ground.tree.domains(level)[ground.first(self.wish.level)]
        known = over >= 0
        fulls = np.zeros(ground.tree.size(level), dtype=np.int64)
        np.add.at(fulls, over[known], rooms[known] // size)
        enough = fulls >= self.fulls
        if tail:
            spare = np.zeros(ground.tree.size(level), dtype=bool)
            spare[over[known & (rooms % size >= tail)]] = True
            enough &= spare | (fulls > self.fulls)
        return enough

    def pack(self, level: int, domain: int) -> Packed:
        """As many members of segments as a domain takes, complete or not: every full segment that has a place, then the
        greatest remainders. The last, shorter segment is tried in each domain of another capacity.
        """
        ground, size = self.ground, self.size
        over = ground.tree.domains(level)[ground.first(self.wish.level)]
        rooms = [(int(at), int(ground.totals(self.wish.level)[at])) for at in np.flatnonzero(over == domain)]
        rooms = [(at, room) for at, room in rooms if room]
        hosts: list[tuple[int, int]] = [(-1, 0)]
        if self.tail:
            hosts += {min(room, self.wish.number): (at, min(self.tail, room)) for at, room in reversed(rooms)}.values()
        best: Packed | None = None
        for host, taken in sorted(hosts):
            left = [(at, room - taken if at == host else room) for at, room in rooms]
            fulls = self.fulls
            pieces: dict[int, list[int]] = {}
            for at, room in sorted(left, key=lambda one: -one[1]):
                whole = min(fulls, room // size)
                fulls -= whole
                pieces[at] = [size] * whole
            for at, room in sorted(left, key=lambda one: -(one[1] % size)):
                if fulls and room % size:
                    fulls -= 1
                    pieces[at].append(room % size)
            if taken:
                pieces[host].append(taken)
            members = sum(map(sum, pieces.values()))
            if best is None or members > best.members:
                kept = tuple((at, tuple(pieces[at])) for at, _ in rooms if pieces[at])
                best = Packed(members, kept, host)
        assert best is not None
        return best

    def shortage(self) -> Shortage:
        """What to say when too few fit."""
        most = self.most(self.wish.required)
        domain = int(np.argmax(most)) if len(most) else 0
        return Shortage(int(most[domain]) if len(most) else 0, domain, int(self.ground.room.sum()))

    def members(self) -> int:
        """The most members that can be placed, up to what is wished."""
        most = self.most(self.wish.required)
        return int(most.max()) if len(most) else 0

    def candidates(self) -> tuple[int, tuple[int, ...]]:
        """The finest level of which a domain takes the most members beside those in place, and these domains."""
        members = self.members()
        for level in range(self.ground.depth, self.wish.required - 1, -1):
            common = self.ground.common(level)
            if common == -1:
                continue
            most = self.most(level)
            enough = np.flatnonzero(most >= members)
            if common is not None:
                enough = enough[enough == common]
            if len(enough):
                return level, tuple(map(int, enough))
        return WHOLE, ()

    def layouts(self) -> list[Layout]:
        """The best layouts, equal in all that is minimised here, in stable order. Empty when fewer than the least fit.
        At the level of nodes all nodes that take all members, with what is left above them.
        """
        members = self.members()
        if members < max(1, self.wish.least):
            return []
        level, domains = self.candidates()
        if level == self.ground.depth:
            return [
                Layout(level, at, members, self._left_above(level, at), (Lot((), False, ((share,),)),))
                for at in domains
                for share in [Share((at,), members, members)]
            ]
        tables = _Tables(self, level, members)
        left = {domain: int(self.ground.totals(level)[domain]) - members for domain in domains}
        if not level < self.wish.preferred < self.ground.depth:
            # What is left over decides first, and tables are only made where it is least.
            domains = tuple(domain for domain in domains if left[domain] == min(left.values()))
        ranked: list[tuple[tuple[int, ...], int]] = []
        for domain in domains:
            preferred, cost = tables.cost(level, domain)
            ranked.append(((preferred, left[domain], cost, *self._left_above(level, domain)), domain))
        least = min(rank for rank, _ in ranked)
        return [
            Layout(level, domain, members, rank, tables.lots(level, domain)) for rank, domain in ranked if rank == least
        ]

    def single(self) -> tuple[int, Integers, list[Integers]] | None:
        """Where one node takes all members: how many they are, such nodes, and by position what is left over in the
        domains above, the finest first. None where no node does, or fewer than the least fit.
        """
        members = self.members()
        if members < max(1, self.wish.least):
            return None
        level, domains = self.candidates()
        if level != self.ground.depth:
            return None
        left = []
        for upper in range(level - 1, WHOLE, -1):
            above = self.ground.tree.domains(upper)
            totals = np.append(self.ground.totals(upper), 0)  # -1, no domain, is the last one.
            left.append(totals[above])
        return members, np.asarray(domains), left

    def _left_above(self, level: int, domain: int) -> tuple[int, ...]:
        """What is left in the domains above, the finest first."""
        found = []
        for upper in range(level - 1, WHOLE, -1):
            above = self.ground.above(level, domain, upper)
            if above >= 0:
                found.append(int(self.ground.totals(upper)[above]))
            else:
                found.append(0)
        return tuple(found)


@dataclass(slots=True, eq=False)
class _Summand:
    """A child, or equal nodes of one parent: least cost by members that go there. In units: with segments, by their
    number, the second one with the last, shorter segment too.
    """

    costs: list[Costs]
    child: tuple[int, int] | None
    positions: tuple[int, ...] = ()
    room: int = 0


@dataclass(slots=True, eq=False)
class _Tables:
    """Tables of the subtrees below one level."""

    spreader: Spreader
    top: int
    members: int
    units: bool = field(init=False)
    packed: bool = field(init=False)
    _used: list[int] = field(init=False)
    _left: list[int] = field(init=False)
    _shift: int = field(init=False)
    _type: Any = field(init=False)
    _known: dict[tuple[object, ...], list[Costs]] = field(default_factory=dict)
    _keys: dict[tuple[int, int], tuple[object, ...]] = field(default_factory=dict)
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spreader = self.spreader
        ground = spreader.ground
        self.units = bool(spreader.size) and self.top < spreader.wish.level
        self.packed = self.units and self.members < spreader.wish.number
        number = self.members + len(ground.held_at)
        self._used, self._left = [0] * (ground.depth + 1), [0] * (ground.depth + 1)
        shift = 0
        for level in range(ground.depth, self.top, -1):
            domains, most = self._bounds(level)
            self._left[level] = 1 << shift
            shift += (min(number, domains) * most).bit_length()
            self._used[level] = 1 << shift
            shift += min(number, domains).bit_length()
        self._shift = shift
        if self.top < spreader.wish.preferred < ground.depth:
            self._used[spreader.wish.preferred] += 1 << shift
            shift += number.bit_length()
        self._type = np.int64 if shift < 62 else object

    def _bounds(self, level: int) -> tuple[int, int]:
        """How many domains of a level (or nodes that are their own) one domain of the top has, and the most that can be
        left in one of them.
        """
        ground = self.spreader.ground
        tree = ground.tree
        used = np.flatnonzero(ground.room)
        above, here = tree.domains(self.top)[used], tree.domains(level)[used]
        loose = np.bincount(above[(here < 0) & (above >= 0)], minlength=1)
        known = np.flatnonzero(np.bincount(here[here >= 0], minlength=1)) if len(here) else here
        over = tree.domains(self.top)[ground.first(level)[known]]
        counts = np.bincount(over[over >= 0], minlength=1)
        most = max(int(ground.totals(level).max(initial=0)), int(ground.room.max(initial=0)))
        spare = 0 if len(ground.held_at) else 1  # Where members are in place, all may be left.
        return int(counts.max() + loose.max()), max(0, most - spare)

    def cost(self, level: int, domain: int) -> tuple[int, int]:
        """Domains of the preferred level that are used, and the cost below, of all members in a domain."""
        if self.packed:
            cost = 0
            for at, pieces in self.spreader.pack(level, domain).pieces:
                cost += int(self._child(self.spreader.wish.level, at, units=False)[0][sum(pieces)])
        else:
            table = self._table(level, domain, self.units)
            cost = int(table[-1][self.spreader.fulls] if self.units else table[0][self.members])
        return cost >> self._shift, cost & (1 << self._shift) - 1

    def lots(self, level: int, domain: int) -> tuple[Lot, ...]:
        """The members of a domain in rank order, the last, shorter segment last."""
        spreader = self.spreader
        if not self.units:
            benches = tuple(self._benches(level, domain, self.members))
            return (Lot((), False, benches),)
        found: list[Lot] = []
        size, under = spreader.size, spreader.wish.level
        if self.packed:
            packed = spreader.pack(level, domain)
            for at, pieces in packed.pieces:
                found.append(Lot(pieces, at == packed.tail, tuple(self._benches(under, at, sum(pieces)))))
        else:
            for at, fulls, tail in self._segments(level, domain, spreader.fulls, bool(spreader.tail)):
                pieces = (size,) * fulls + ((spreader.tail,) if tail else ())
                found.append(Lot(pieces, tail, tuple(self._benches(under, at, sum(pieces)))))
        return tuple(sorted(found, key=lambda lot: lot.tail))

    # Tables

    def _table(self, level: int, domain: int, units: bool) -> list[Costs]:
        key = self._key(level, domain, units)
        found = self._known.get(key)
        if found is None:
            # Above the segments' level a table counts segments.
            found = self._known[key] = self._sums(self._summands(level, domain, units), units)[-1]
        return found

    def _sums(self, summands: Sequence[_Summand], units: bool) -> list[list[Costs]]:
        """Tables of the first none, one, two, … of the summands."""
        nothing = np.zeros(1, dtype=self._type)
        two = units and bool(self.spreader.tail)
        sums: list[list[Costs]] = [[nothing, self._infinite(1)] if two else [nothing]]
        most = self.spreader.fulls if units else self.members
        for summand in summands:
            old = sums[-1]
            new = [self._add(old[0], summand.costs[0], most)]
            if two:
                with_tail = self._add(old[1], summand.costs[0], most)
                new.append(self._least(with_tail, self._add(old[0], summand.costs[1], most)))
            sums.append(new)
        return sums

    def _key(self, level: int, domain: int, units: bool) -> tuple[object, ...]:
        """Equal keys have equal tables."""
        found = self._keys.get((level, domain))
        if found is None:
            ground = self.spreader.ground
            nodes = sorted((room, held, len(at)) for (room, held), at in self._classes(level, domain).items())
            below: list[tuple[int, bool, int]] = []
            for child in ground.tree.children.get((level, domain), ()):
                key = self._key(level + 1, child, units)
                number = self._numbers.setdefault(key, len(self._numbers))
                below.append((number, child in ground.uses(level + 1), int(ground.totals(level + 1)[child])))
            found = self._keys[level, domain] = (level, tuple(nodes), tuple(sorted(below)))
        return (*found, units)

    def _classes(self, level: int, domain: int) -> dict[tuple[int, bool], list[int]]:
        ground = self.spreader.ground
        found: dict[tuple[int, bool], list[int]] = {}
        for position in ground.tree.loose.get((level, domain), ()):
            room, held = ground.rooms[position], bool(ground.held[position])
            if room:
                found.setdefault((room, held), []).append(position)
        return found

    def _summands(self, level: int, domain: int, units: bool) -> list[_Summand]:
        found = [
            _Summand(costs, (level + 1, child))
            for child in self.spreader.ground.tree.children.get((level, domain), ())
            if self.spreader.ground.totals(level + 1)[child]
            for costs in [self._child(level + 1, child, units)]
        ]
        if units:
            return found  # A node in no domain of the segments' level has no segment.
        for (room, held), positions in sorted(self._classes(level, domain).items(), key=lambda each: each[1]):
            number = np.arange(min(room * len(positions), self.members) + 1, dtype=self._type)
            nodes = number * 0 if held else -(-number // room)
            left = (room * len(positions) if held else nodes * room) - number
            # A node below no domain of a level is one of its own there.
            used_weight, left_weight = sum(self._used[level + 1 :]), sum(self._left[level + 1 :])
            found.append(_Summand([nodes * used_weight + left * left_weight], None, tuple(positions), room))
        return found

    def _child(self, level: int, domain: int, units: bool) -> list[Costs]:
        """The table of a domain with what it costs to use it."""
        ground, spreader = self.spreader.ground, self.spreader
        inner = units and level < spreader.wish.level
        held = domain in ground.uses(level)
        total = int(ground.totals(level)[domain])
        found = []
        for tail, table in enumerate(self._table(level, domain, inner)):
            number = np.arange(len(table), dtype=self._type)
            if inner:
                number = number * spreader.size + (spreader.tail if tail else 0)
            costs = table + (total - number) * self._left[level]
            if not held:
                costs = costs + self._used[level]
                costs[number == 0] = 0
            found.append(costs)
        if units and not inner:
            size, tail, costs = spreader.size, spreader.tail, found[0]
            found = [costs[::size]]
            if tail:
                found.append(costs[tail::size] if len(costs) > tail else self._infinite(1))
        return found

    def _infinite(self, size: int) -> Costs:
        worst = 1 << 62 if self._type is np.int64 else 1 << 4096
        return np.full(size, worst, dtype=self._type)

    def _add(self, one: Costs, other: Costs, most: int) -> Costs:
        """Min-plus convolution, up to a number."""
        if len(other) > len(one):
            one, other = other, one
        size = min(len(one) + len(other) - 1, most + 1)
        found = self._infinite(size)
        limit = found[0]
        for number, cost in enumerate(other[:size]):
            if cost < limit:
                end = min(size - number, len(one))
                part = found[number : number + end]
                # An infinite summand stays infinite instead of overflowing.
                np.minimum(part, np.where(one[:end] < limit, one[:end] + cost, limit), out=part)
        return found

    def _least(self, one: Costs, other: Costs) -> Costs:
        size = max(len(one), len(other))
        found = self._infinite(size)
        for costs in (one, other):
            part = found[: len(costs)]
            np.minimum(part, costs, out=part)
        return found

    # Walking back

    def _split(
        self, summands: Sequence[_Summand], units: bool, number: int, tail: bool = False
    ) -> list[tuple[_Summand, int, bool]]:
        """How many go to each summand in a cheapest sum, the first ones as many as can be."""
        sums = self._sums(summands, units)
        found: list[tuple[_Summand, int, bool]] = []
        for at in range(len(summands) - 1, -1, -1):
            wanted, costs = sums[at + 1][int(tail)][number], summands[at].costs
            choice = next(
                (here, with_tail)
                for here in range(number + 1)
                for with_tail in ((False, True) if tail else (False,))
                if here < len(costs[int(with_tail)])
                and number - here < len(sums[at][int(tail and not with_tail)])
                and sums[at][int(tail and not with_tail)][number - here] + costs[int(with_tail)][here] == wanted
            )
            here, with_tail = choice
            if here or with_tail:
                found.append((summands[at], here, with_tail))
            number, tail = number - here, tail and not with_tail
        return found[::-1]

    def _benches(self, level: int, domain: int, number: int) -> list[tuple[Share, ...]]:
        """What goes to nodes below a domain, parent by parent."""
        found: list[tuple[Share, ...]] = []
        here: list[Share] = []
        for summand, part, _ in self._split(self._summands(level, domain, False), False, number):
            if summand.child is None:
                here.append(Share(summand.positions, summand.room, part))
            else:
                found += self._benches(*summand.child, part)
        return [*found, tuple(here)] if here else found

    def _segments(self, level: int, domain: int, number: int, tail: bool) -> list[tuple[int, int, bool]]:
        """Domains of the segments' level with their full segments and whether they have the last, shorter one."""
        if level == self.spreader.wish.level:
            return [(domain, number, tail)]
        found = []
        for summand, part, with_tail in self._split(self._summands(level, domain, True), True, number, tail):
            assert summand.child is not None
            found += self._segments(*summand.child, part, with_tail)
        return found
