"""What a wish costs on nodes where one number a card is enough to compare them: a wish for no card, for whole cards, or
for a part of one of which thousandths tell all.

In come a `Stock`, what its nodes are worth at certain prices, a wish, and for a part the best card of each node; out
come costs as keys: the cost in the higher bits, then what is left of the cards, the free cards that stay, and the cards
that are opened. A few nodes are looked at one by one (`enter`), many at once (`costs_of`), with the same result to the
last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from adjoin_allocator.appraisal import Floats, Integers, Strand
from adjoin_allocator.prices import UNIT
from adjoin_allocator.stock import Booleans, Stock, Wish

GRAIN = 20_000
"""Costs are compared in so many millionths of a card: smaller differences are within what demand is known to, and then
the fuller card is better."""

FINE = 50
"""The same for what asks for no card, and costs a small part of one at most."""

LEFT = 1 << 13
"""More than the thousandths that are left of all cards of a replica, as far as they are told apart."""
WAYS = 1 << 6
"""More than the free cards of a node, and than the cards that a replica may open, as far as they are told apart."""
TIE = LEFT * WAYS * WAYS
NEVER = 1 << 61
SHIFT = 16
FAR = 1 << 55
"""As the key of a card: it will not do. So many of them together as a node has cards still fit into 63 bits."""

_REST = (1 << SHIFT) - 1


class Scale(NamedTuple):
    """How cards compare for a part of one.

    Attributes:
        keys: By place of a card (`Stock.place`) what it loses, in the higher bits, and what is then left of it.
        mode: How a card stands (`Stock.standing`) that is in the mode of the part's share.
    """

    keys: list[int]
    mode: int


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """A stock at certain prices.

    Attributes:
        strand: What needs of hosts make idle.
        cards: By node what its cards are worth.
        idle: By node how many of these are expected to idle as it is.
    """

    strand: Strand
    cards: Floats
    idle: Floats


def grain(wish: Wish) -> int:
    """In what costs are compared."""
    return GRAIN if wish.count else FINE


@dataclass(slots=True, eq=False)
class Best:
    """The cards that a part of one would be taken from, whatever else of a host is asked for.

    Attributes:
        scale: How cards compare.
        keys: By node the key of the best card in the mode and of the best whole one; `FAR` for none.
        seen: How much of the stock's log was heeded.
    """

    scale: Scale
    keys: Integers
    seen: int

    def look(self, stock: Stock, mask: Booleans | None, positions: Iterable[int]) -> None:
        """Looks at some nodes again; `mask` says which cards will do."""
        for position in positions:
            standing, place, _ = stock.node(position)
            may = None if mask is None else mask[position].tolist()
            (opened, _), (fresh, _) = cheapest(standing, place, may, self.scale)
            self.keys[position, 0], self.keys[position, 1] = opened, fresh


def enter(
    costs: Integers, positions: Iterable[int], stock: Stock, worth: Worth, wish: Wish, cards: Integers | None
) -> None:
    """Writes what the wish costs on these nodes; for a part of a card, `cards` are its `Best.keys`."""
    closed, mask, count = stock.closed, stock.mask(wish), wish.count
    cpu_milli, memory_kib, idle_on, each = wish.cpu_milli, wish.memory_kib, worth.strand.idle_on, grain(wish)
    for position in positions:
        standing, _, (free, _, cpu, memory, _) = stock.node(position)
        left = (cpu - cpu_milli, memory - memory_kib)
        if left[0] < 0 or left[1] < 0 or closed[position]:
            costs[position] = NEVER
            continue
        whole = free.bit_count()
        if cards is not None:
            ways = [(0, 0, cards.item(position, 0)), (1, 1, cards.item(position, 1))]
        else:
            usable = whole
            if mask is not None and count:
                usable = sum([one for one, card in zip(mask[position].tolist(), standing, strict=True) if card == 1])
            ways = [(0, count, count * UNIT << SHIFT if usable >= count else FAR)]
        there, before = worth.cards.item(position), worth.idle.item(position)
        for way, opened, key in ways:
            if key >= FAR:
                costs[position, way] = NEVER
                continue
            cost = key >> SHIFT
            after = there - cost
            idle = idle_on(after / UNIT if after > 0.0 else 0.0, left)
            amount = round((round((idle - before) * UNIT) + cost) / each)
            stays = whole - opened if whole > opened else 0
            costs[position, way] = ((amount * LEFT + (key & _REST)) * WAYS + stays) * WAYS + opened


def costs_of(
    stock: Stock, worth: Worth, wish: Wish, rows: Integers | slice, room: Booleans, cards: Integers | None
) -> Integers:
    """What `enter` writes, of many nodes at once; `room` says which of these have room on the host and, for whole
    cards, enough of them.
    """
    found: Integers = np.full((len(room), 1 if cards is None else 2), NEVER)
    # Most nodes of a cluster that is in use have no room: only the others are looked at closely.
    at = room.nonzero()[0]
    way: Integers | int = 0
    cost: Integers | int = wish.count * UNIT
    rest: Integers | int = 0
    opened: Integers | int = wish.count
    if cards is not None:
        keys = cards[rows][at]
        some, way = (keys < FAR).nonzero()
        at, keys = at[some], keys[some, way]
        cost, rest, opened = keys >> SHIFT, keys & _REST, way
    if not len(at):
        return found
    nodes = at if isinstance(rows, slice) else rows[at]
    after = worth.cards[nodes]
    after -= cost
    np.maximum(after, 0.0, out=after)
    after /= UNIT
    left = stock.host.take(nodes, axis=1)
    left -= np.array(((wish.cpu_milli,), (wish.memory_kib,)))
    amount = worth.strand.idle(after[:, None], left[:, :, None])[:, 0]
    amount -= worth.idle[nodes]
    amount *= UNIT
    np.rint(amount, out=amount)
    amount += cost
    amount /= grain(wish)
    key = np.rint(amount, out=amount).astype(np.int64)
    key *= LEFT
    key += rest
    key *= WAYS
    free = stock.whole[nodes]
    free -= opened
    key += np.maximum(free, 0, out=free)
    key *= WAYS
    key += opened
    found[at, way] = key
    return found


def cheapest(
    standing: Sequence[int], place: Sequence[int], may: Sequence[bool] | None, scale: Scale
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Key and column of the best card in the mode for a part of one, and of the best whole one; `FAR` for none."""
    keys, mode = scale
    opened = fresh = FAR
    opened_at = fresh_at = 0
    for column, card in enumerate(standing):
        if (card == 1 or card == mode) and (may is None or may[column]):
            key = keys[place[column]]
            if card == 1:
                if key < fresh:
                    fresh, fresh_at = key, column
            elif key < opened:
                opened, opened_at = key, column
    return (opened, opened_at), (fresh, fresh_at)
