"""Where some replicas can all be, whole devices and parts: an exact search for any way at all.

In come nodes as they are without them (`Site`) and who is to be placed there (`Piece`), out comes a place for each, or
None. The first piece is placed first; the others come after it, the greatest first, each where it is now as long as
that can be, by a search that goes back when one finds no place. Cards and nodes that are alike are tried once, and what
is known to lead nowhere is not tried again. Steps are counted; nothing here is taken, and no place is better than
another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from adjoin_allocator.card_rules import UNUSED, CardRule, Use
from adjoin_allocator.fit import Form
from adjoin_allocator.hosts import NOTHING, UNLIMITED
from adjoin_allocator.model import Request, Share
from adjoin_allocator.nodes import NodeView
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.rulebook import rule_for
from adjoin_allocator.sharing import AMOUNTS, MILLI, Part, part
from adjoin_allocator.tariff import copies, of_cards
from adjoin_allocator.topology import bits

ROUNDS = (200, 2_000)
"""Steps for each choice of the first piece, the first and the second time; the third time whatever is left."""

Card = tuple[str, Use]
"""The share that a card is split by, and what of it is in use."""

FREE: Card = ("", UNUSED)
LENT: Card = ("", (0, 0, 1))
"""Others than claims consume some of it: there may be parts beside that, and nobody has it whole."""

CLOSED: Card = ("", (1, 0, 0))
"""Nobody who is to be placed can have anything of it."""

Cards = tuple[Card, ...]
"""By bit the devices of one node."""

Place = tuple[int, tuple[int, ...]]
"""A node, and by request which devices."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Who is to be placed: what it asks, where it is now, and its turn among those of one size."""

    ask: Ask
    now: Place | None
    rank: tuple[int, int]


Host = tuple[int, int]
"""Thousandths of a core and bytes of memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One node without those who are to be placed.

    Attributes:
        idle: Devices that nobody gets and that take no counters either.
        host: What the node has for pods beside devices.
        split: How many devices of the pool each share has split.
    """

    position: int
    view: NodeView
    cards: Cards
    idle: int
    host: Host
    split: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """One request: from how many devices something is taken (0: all there are), and which part of each; None for whole
    devices.
    """

    request: Request
    share: Share | None
    cards: int
    part: Part | None


@dataclass(frozen=True, slots=True, eq=False)
class _Need:
    """What pieces that ask the same need; `weight` is the more, the harder they are to place, `wired` whether it
    matters how devices are.
    """

    ask: Ask
    lines: tuple[_Line, ...]
    form: Form
    weight: int
    wired: bool


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where a piece could be: a node by its place among the sites, by line the devices, and the node with it there."""

    at: int
    masks: tuple[int, ...]
    cards: Cards
    host: Host


class _GivenUp(Exception):
    """The steps are spent."""


class Packing:
    """One question: is there a place for all of them?

    Attributes:
        steps: Choices of devices that have been tried.
    """

    def __init__(self, placer: Placer, pieces: Sequence[Piece], sites: Sequence[Site]) -> None:
        self.steps = 0
        self._limit = 0
        self._placer = placer
        self._shares = placer.ledger.parts.shares
        known: dict[Ask, _Need] = {}
        for piece in pieces:
            if piece.ask not in known:
                known[piece.ask] = self._need(piece.ask)
        self._wired = any(need.wired for need in known.values())
        self._pieces = list(pieces)
        later = sorted(range(1, len(pieces)), key=lambda at: (-known[pieces[at].ask].weight, pieces[at].rank))
        self._order = [0, *later]
        self._needs = [known[piece.ask] for piece in pieces]
        self._sites = sites
        self._at = {site.position: at for at, site in enumerate(sites)}
        self._cards = [site.cards for site in sites]
        self._hosts = [site.host for site in sites]
        self._split = Counter(sites[0].split if sites else {})
        self._candidates: dict[tuple[_Need, int], tuple[int, ...]] = {}
        self._rules: dict[tuple[str, int, int], CardRule] = {}
        marks: dict[object, int] = {}
        self._marks = [self._mark(at, list(known.values()), marks) for at in range(len(sites))]
        self._names: dict[object, int] = {}
        self._named = [self._name(at) for at in range(len(sites))]
        """By node its number as it is now."""
        self._barren: set[tuple[_Need, int]] = set()
        """Who finds nothing on which nodes."""
        self._failed: set[object] = set()
        self._found: list[Place | None] = [None] * len(pieces)

    def solve(self, steps: int) -> list[Place] | None:
        """By piece where it can be; None when there is no such way, or none was found in so many steps."""
        for limit in (*ROUNDS, steps):
            sure = True
            for choice in self._choices(0):
                self._limit = min(steps, self.steps + limit)
                try:
                    if self._place(0, choice):
                        return [place for place in self._found if place is not None]
                except _GivenUp:
                    sure = False
                    if self.steps >= steps:
                        return None
            if sure:
                return None
        return None

    # What is asked

    def _need(self, ask: Ask) -> _Need:
        lines, weight = [], 0
        for request in ask.requests:
            share, each = None, None
            cards = request.count
            if request.share is not None:
                share = self._shares[request.share.name]
                each = part(request.share, share).times(copies(request))
                cards = request.count // copies(request)
                stock = self._placer.ledger.parts.appraiser(ask.pool, request.kind).stock
                sizes = [rule.size(each) for rule in stock.rules[stock.share_at[share.name]]]
                weight += cards * min(sizes, default=MILLI)
            else:
                weight += cards * MILLI
            lines.append(_Line(request, share, cards, each))
        form = of_cards(self._placer, ask).form
        return _Need(ask, tuple(lines), form, weight, form.bound)

    def _eligible(self, need: _Need, at: int) -> tuple[int, ...]:
        """By line the devices of a node that may be taken, whoever has them."""
        found = self._candidates.get((need, at))
        if found is None:
            view, masks = self._sites[at].view, []
            for line in need.lines:
                mask = view.eligible(line.request.kind, line.request.selectors)
                if line.share is not None:
                    mask &= view.eligible(line.share.kind, line.share.selectors)
                    if line.share.mode not in AMOUNTS:
                        mask &= ~sum(1 << bit for bit in bits(mask) if view.devices[bit].lent is not None)
                    if view.shape.counters is not None:
                        mask &= view.shape.counters.whole
                masks.append(mask)
            found = self._candidates[need, at] = tuple(masks)
        return found

    def _mark(self, at: int, needs: Sequence[_Need], marks: dict[object, int]) -> tuple[int, ...]:
        """By bit a number: devices of one number are the same to all pieces. Where wires matter each is its own."""
        found = []
        for bit in range(self._sites[at].view.shape.size):
            use = tuple(mask >> bit & 1 for need in needs for mask in self._eligible(need, at))
            shares = {line.share for need in needs for line in need.lines if line.share is not None}
            rules = tuple(id(self._rule(share, at, bit)) for share in sorted(shares, key=lambda share: share.name))
            shape = self._sites[at].view.shape
            counted = (id(shape), bit) if shape.counters is not None else None
            key = (use, rules, (at, bit) if self._wired else counted)
            found.append(marks.setdefault(key, len(marks)))
        return tuple(found)

    # The search

    def _place(self, depth: int, choice: _Choice) -> bool:
        """Whether all pieces from this one on have places when this one is there."""
        self.steps += 1
        if self.steps > self._limit:
            raise _GivenUp
        which, at = self._order[depth], choice.at
        before, opened = self._cards[at], Counter[str]()
        for line, mask in zip(self._needs[which].lines, choice.masks, strict=True):
            if line.share is not None:
                opened[line.share.name] += sum(before[bit] in (FREE, LENT) for bit in bits(mask))
        for name, number in opened.items():
            limit = self._shares[name].max_devices
            if limit is not None and self._split[name] + number > limit:
                return False
        host, named = self._hosts[at], self._named[at]
        self._cards[at], self._hosts[at] = choice.cards, choice.host
        self._named[at] = self._name(at)
        self._split.update(opened)
        self._found[which] = (self._sites[at].position, choice.masks)
        try:
            return self._rest(depth + 1)
        finally:
            self._cards[at], self._hosts[at], self._named[at] = before, host, named
            self._split.subtract(opened)

    def _rest(self, depth: int) -> bool:
        """Whether all pieces from this one on have places."""
        if depth == len(self._order):
            return True
        key = (depth, tuple(sorted(self._named)))
        if key in self._failed:
            return False
        if any(self._place(depth, choice) for choice in self._choices(self._order[depth])):
            return True
        self._failed.add(key)
        return False

    def _name(self, at: int) -> int:
        """A number for a node as it is now; nodes of one number are alike."""
        key = self._hosts[at], tuple(sorted(zip(self._marks[at], self._cards[at], strict=True)))
        return self._names.setdefault(key, len(self._names))

    def _choices(self, which: int) -> Iterator[_Choice]:
        """Where one piece can be, the place that it has now first."""
        need, now = self._needs[which], self._pieces[which].now
        if now is not None:
            at = self._at[now[0]]
            cards, host = self._after(need, at, now[1]), self._beside(need, at)
            if cards is not None and host is not None:
                yield _Choice(at, now[1], cards, host)
        seen: set[int] = set()
        for at in range(len(self._sites)):
            name = self._named[at]
            if name in seen or (need, name) in self._barren:
                continue
            seen.add(name)
            host, barren = self._beside(need, at), True
            if host is not None:
                for masks in self._ways(need, at, 0, self._cards[at], ()):
                    cards = self._after(need, at, masks)
                    if cards is not None:
                        barren = False
                        yield _Choice(at, masks, cards, host)
            if barren:
                self._barren.add((need, name))

    def _beside(self, need: _Need, at: int) -> Host | None:
        """What a node has left for pods beside a piece, or None when that is too little."""
        ask, (cpu, memory) = need.ask.host, self._hosts[at]
        if ask == NOTHING:
            return cpu, memory
        if cpu < ask.cpu_milli or (ask.memory_bytes and memory < ask.memory_bytes):
            return None
        return _less(cpu, ask.cpu_milli), _less(memory, ask.memory_bytes)

    def _after(self, need: _Need, at: int, masks: tuple[int, ...]) -> Cards | None:
        """A node with a piece on it, or None when these devices cannot be had."""
        cards, eligible, taken = list(self._cards[at]), self._eligible(need, at), 0
        for line, allowed, mask in zip(need.lines, eligible, masks, strict=True):
            if mask & ~allowed or mask & taken or (not line.cards and mask != allowed):
                return None
            taken |= mask
            for bit in bits(mask):
                after = self._part_of(line, at, bit, cards[bit])
                if after is None:
                    return None
                cards[bit] = after
        view = self._sites[at].view
        counters = view.shape.counters
        if counters is not None:
            nobody = sum(1 << bit for bit, card in enumerate(cards) if card in (FREE, LENT)) | self._sites[at].idle
            if not counters.enough(~nobody & (1 << view.shape.size) - 1, taken):
                return None
        if need.wired:
            values = tuple(view.values(name) for name in need.ask.question.attributes)
            sort = self._placer.nodes.sort_of(masks, values, ())
            if not self._placer.fitter.fits(need.form, (view.shape, sort, taken)):
                return None
        return tuple(cards)

    def _part_of(self, line: _Line, at: int, bit: int, card: Card) -> Card | None:
        """A card when a line has taken of it, or None when it cannot."""
        if line.share is None or line.part is None:
            return CLOSED if card == FREE else None
        fresh = card in (FREE, LENT)
        if not fresh and card[0] != line.share.name:
            return None
        used = self._rule(line.share, at, bit).after(UNUSED if fresh else card[1], line.part)
        return None if used is None else (line.share.name, used)

    def _rule(self, share: Share, at: int, bit: int) -> CardRule:
        key = (share.name, at, bit)
        found = self._rules.get(key)
        if found is None:
            found = self._rules[key] = rule_for(share, self._sites[at].view.devices[bit])
        return found

    def _ways(
        self, need: _Need, at: int, which: int, cards: Cards, chosen: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        """Devices for each line, of those that are alike the first; what is full already, and split, comes first."""
        if which == len(need.lines):
            yield chosen
            return
        line, allowed = need.lines[which], self._eligible(need, at)[which]
        if not line.cards:
            if allowed:
                yield from self._ways(need, at, which + 1, cards, (*chosen, allowed))
            return
        for mask in chosen:
            allowed &= ~mask
        groups: dict[tuple[Card, int], list[int]] = {}
        for bit in bits(allowed):
            if self._part_of(line, at, bit, cards[bit]) is not None:
                groups.setdefault((cards[bit], self._marks[at][bit]), []).append(bit)
        alike = [groups[key] for key in sorted(groups, reverse=True)]
        for mask in _combined(alike, line.cards):
            yield from self._ways(need, at, which + 1, cards, (*chosen, mask))


def _less(room: int, taken: int) -> int:
    """What is left of a host's room; of room without a limit as much as before."""
    return room if room >= UNLIMITED >> 1 else room - taken


def _combined(groups: Sequence[Sequence[int]], count: int) -> Iterator[int]:
    """So many devices, of each group the first ones."""
    if not count:
        yield 0
        return
    if sum(map(len, groups)) < count:
        return
    for number in range(min(count, len(groups[0])), -1, -1):
        mine = sum(1 << bit for bit in groups[0][:number])
        for rest in _combined(groups[1:], count - number):
            yield mine | rest
