"""What others want: how much use the devices are that a choice takes away.

In come the requests and lines of claims, how many replicas of each kind wait or are placed, and the devices of a node;
out come `Stake`s: groups of devices in which so many places for others can be had, and what losing one is worth.
Nothing here knows what is free or who asks; `cost` says where the loss stands in the objective.

A claim wants its requests together on one node, and every line of it wants devices together in something smaller: a
scope in what it holds within (root complexes, NVLink islands, …), a Match in the devices of one value. Each of these
is a stake of its own. A place is worth its devices, times the replicas that want one; of these the greatest power of
two counts, so that one claim more or less seldom changes what was remembered.

The losses stand in one integer, the more important in the higher bits: places that waiting replicas need, then nearness
that they prefer, then what all replicas, placed and waiting, show to be asked for, with the places for 2, 4, 8, …
devices of a name that are always assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

from adjoin_allocator.cel import Selector
from adjoin_allocator.model import Affinity, Request
from adjoin_allocator.terms import Policy, Scope
from adjoin_allocator.topology import Wiring, bits

WANTS = 32
"""How many different wants of a pool are weighed at once, those of most weight."""

FIELD = 48
"""Bits of each of the three losses; worth times places stays far below."""

SPECS = 4096
"""How many specs' wants are remembered."""


@dataclass(frozen=True, slots=True)
class Line:
    """Devices that are wanted together: a scope, or one value of an attribute. Requests by their place."""

    requests: tuple[int, ...]
    scope: Scope | None
    attribute: str
    required: bool


@dataclass(frozen=True, slots=True)
class Want:
    """What one replica wants, whatever its requests are called; equal wants are one.

    Attributes:
        requests: Device name and selectors of each request.
        counts: Devices of each; 0 stands for all that match.
        lines: Lines that keep devices together.
        order: Puts wants into an order that depends on nothing but them.
    """

    requests: tuple[tuple[str, tuple[Selector, ...]], ...]
    counts: tuple[int, ...]
    lines: tuple[Line, ...]
    order: tuple[object, ...] = field(compare=False)
    digest: int = field(compare=False, repr=False)

    def __hash__(self) -> int:
        return self.digest

    @property
    def plain(self) -> bool:
        """Shape alone tells where it has places."""
        return not any(selectors for _, selectors in self.requests) and all(line.scope for line in self.lines)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A want with what a place is worth per device: to replicas that wait, and to all of them."""

    want: Want
    waiting: int
    usual: int


Demand = tuple[Wanted, ...]
"""What everybody else in a pool wants, in one fixed order."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Devices of one node in which places for a want can be had: as many as the scarcest mask has times its count."""

    masks: tuple[int, ...]
    counts: tuple[int, ...]
    required: bool


Stake = tuple[tuple[int, ...], tuple[int, ...], int]
"""Masks and counts of a bundle, and the price of each place in it."""


@lru_cache(maxsize=SPECS)
def want(requests: tuple[Request, ...], affinity: tuple[Affinity, ...]) -> Want | None:
    """What a replica with these requests and lines wants; None when it cannot be read."""
    names = [request.name for request in requests]
    if not requests or any(request.count < 1 and not request.all_devices for request in requests):
        return None
    if any(request.share is not None for request in requests):
        # What parts are worth is a matter of prices, not of places.
        return None
    lines: list[Line] = []
    for line in affinity:
        if not all(name in names for name in line.requests):
            return None
        members = [names.index(name) for name in line.requests]
        if line.scope is None:
            if line.policy is Policy.MATCH:
                lines.append(Line(tuple(sorted(members)), None, line.attribute, required=True))
        elif line.scope is not Scope.NODE:
            together = [(members[0],)] if len(members) == 1 else [(members[0], other) for other in members[1:]]
            required = line.policy is Policy.REQUIRED
            lines += (Line(tuple(sorted(pair)), line.scope, "", required) for pair in together)
    asked = tuple((request.kind, request.selectors) for request in requests)
    counts = tuple(0 if request.all_devices else request.count for request in requests)
    unique = tuple(dict.fromkeys(lines))
    order = (
        tuple((kind, tuple(selector.expression for selector in selectors)) for kind, selectors in asked),
        counts,
        tuple((line.requests, line.scope or "", line.attribute, line.required) for line in unique),
    )
    return Want(asked, counts, unique, order, hash(order))


class Market:
    """How many replicas of a pool's claims want what, and how many of them wait."""

    __slots__ = ("_demands", "_everybody", "_stamp", "_stamps", "_waiting")

    def __init__(self) -> None:
        self._everybody: dict[Want, int] = {}
        self._waiting: dict[Want, int] = {}
        self._stamps: dict[Want, int] = {}
        """How often the weight of a want has changed, also of one that nobody has any more: else two times of different
        weights could look alike."""
        self._stamp = 0
        """How often any has."""
        self._demands: dict[tuple[object, ...], Demand] = {}

    def add(self, wanted: Want, everybody: int, waiting: int) -> None:
        """So many replicas more (or fewer) want it, and so many more of them wait."""
        before = self._everybody.get(wanted, 0)
        if _power(before) != _power(before + everybody):
            self._stamp += 1
            self._stamps[wanted] = self._stamps.get(wanted, 0) + 1
        for counter, number in ((self._everybody, everybody), (self._waiting, waiting)):
            if number:
                now = counter.get(wanted, 0) + number
                if now:
                    counter[wanted] = now
                else:
                    del counter[wanted]
        if len(self._stamps) > SPECS:
            self._stamps, self._stamp, self._demands = {}, 0, {}

    def open(self) -> Round:
        """The demand of one decision, as it stands when it begins; the market must not change meanwhile."""
        return Round(self, self._everybody, self._waiting)

    def remembered(self, mine: Want | None, waiting: frozenset[tuple[Want, int]], make: Callable[[], Demand]) -> Demand:
        """The demand beside one replica that wants `mine`, while others of these weights wait: the same object as long
        as no weight has changed that it is made of.
        """
        number, own = (self._everybody.get(mine, 0), self._stamps.get(mine, 0)) if mine is not None else (0, 0)
        key = (mine, _power(number - 1) if number else 0, self._stamp - own, waiting)
        found = self._demands.get(key)
        if found is None:
            if len(self._demands) >= SPECS:
                self._demands.clear()
            found = self._demands[key] = make()
        return found


class Round:
    """What is wanted in one decision. Weights stay as they are at its beginning, so that what was found for one claim
    holds for the next; who is served waits no longer.
    """

    def __init__(self, market: Market, everybody: Mapping[Want, int], waiting: Mapping[Want, int]) -> None:
        self._market = market
        self._everybody = everybody
        self._waiting = waiting
        self._left = dict(waiting)
        self._known: dict[tuple[Want | None, bool], Demand] = {}

    def served(self, wanted: Want) -> None:
        """One replica that wants this waits no longer."""
        self._left[wanted] -= 1
        if not self._left[wanted]:
            self._known.clear()

    def beside(self, mine: Want | None) -> Demand:
        """What everybody wants but one waiting replica that wants `mine`."""
        key = (mine, mine is not None and self._left.get(mine, 0) > 1)
        found = self._known.get(key)
        if found is None:
            waiting = frozenset(
                (one, _power(self._waiting[one] - (one == mine)))
                for one, left in self._left.items()
                if left > (one == mine)
            )
            found = self._known[key] = self._market.remembered(mine, waiting, lambda: self._beside(mine))
        return found

    def _beside(self, mine: Want | None) -> Demand:
        weights = []
        for one, number in self._everybody.items():
            self_ = one == mine
            waits = self._left.get(one, 0) > self_
            weights.append((one, _power(self._waiting[one] - self_) if waits else 0, _power(number - self_)))
        # Of those who wait only how they compare matters, and then the last ones of many are weighed like the first.
        least = min((waiting for _, waiting, _ in weights if waiting), default=1)
        found = [Wanted(one, waiting // least, usual) for one, waiting, usual in weights if usual]
        if len(found) > WANTS:
            found.sort(key=lambda each: (-each.waiting, -each.usual, each.want.order))
            del found[WANTS:]
        return tuple(sorted(found, key=lambda each: each.want.order))


def _power(number: int) -> int:
    """The greatest power of two that is not greater; 0 of 0."""
    return 1 << number.bit_length() - 1 if number else 0


def bundles(
    wanted: Want, eligible: Sequence[int], values: Mapping[str, Sequence[int]], wiring: Wiring
) -> tuple[Bundle, ...]:
    """Where on a node `wanted` has places; nowhere when the node could not hold it even when empty. `eligible` is by
    request, `values` by attribute who shares a value.
    """
    counts = [count or mask.bit_count() for count, mask in zip(wanted.counts, eligible, strict=True)]
    whole = _bundle(eligible, counts, required=True)
    if whole is None:
        return ()
    found = [whole]
    for line in wanted.lines:
        masks, needed = [eligible[at] for at in line.requests], [counts[at] for at in line.requests]
        if line.scope is None:
            groups = values[line.attribute]
        elif len(masks) == 1:
            if needed[0] < 2:
                continue
            groups = _together(wiring.met[line.scope], masks[0], masks[0])
        else:
            # One of the smaller side with as many as it has partners at least.
            needed = [max(1, count // min(needed)) for count in needed]
            groups = _together(wiring.met[line.scope], masks[0], masks[1])
        here = [_bundle([mask & group for mask in masks], needed, line.required) for group in groups]
        if line.required and not any(here):
            return ()
        # Values of a list that the same devices share are one way for them to be together.
        found += (bundle for bundle in dict.fromkeys(here) if bundle is not None)
    return tuple(found)


def _bundle(masks: Sequence[int], counts: Sequence[int], required: bool) -> Bundle | None:
    """The bundle, or None when there is not one place in it."""
    if all(count and mask.bit_count() >= count for mask, count in zip(masks, counts, strict=True)):
        return Bundle(tuple(masks), tuple(counts), required)
    return None


def _together(met: Sequence[int], left: int, right: int) -> list[int]:
    """The devices of both sides in groups: who is near one of the other side is in its group."""
    groups, rest = [], left | right
    while rest:
        group, border = 0, rest & -rest
        while border:
            group |= border
            reached = 0
            for device in bits(border):
                reached |= met[device] & ((right if left >> device & 1 else 0) | (left if right >> device & 1 else 0))
            border = reached & ~group
        groups.append(group)
        rest &= ~group
    return groups


def stakes(wanted: Sequence[tuple[Wanted, Sequence[Bundle]]]) -> tuple[Stake, ...]:
    """The bundles of a node with what a place in each is worth to all who want it."""
    prices: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for each, places in wanted:
        for bundle in places:
            worth = (each.waiting << (2 * FIELD if bundle.required else FIELD)) + each.usual
            key = (bundle.masks, bundle.counts)
            prices[key] = prices.get(key, 0) + worth * sum(bundle.counts)
    return tuple((masks, counts, price) for (masks, counts), price in sorted(prices.items()))


def places(masks: Sequence[int], counts: Sequence[int], free: int) -> int:
    """How many places there are in a bundle."""
    least = inf
    for mask, count in zip(masks, counts, strict=True):
        least = min(least, (mask & free).bit_count() // count)
    return int(least)


def lost(stake: Stake, free: int, taken: int) -> int:
    """What is lost of a stake when `taken` of the free devices go."""
    masks, counts, price = stake
    if not any(mask & taken for mask in masks):
        return 0
    return price * (places(masks, counts, free) - places(masks, counts, free & ~taken))


def assumed(free: int, taken: int) -> int:
    """What is lost of places for 2, 4, 8, … devices of one name, that are always wanted, when `taken` of `free` go."""
    loss, power, left = 0, 1, free - taken
    while 1 << power <= free:
        loss += (free >> power) - (left >> power) << power
        power += 1
    return loss
