"""Many simple claims at once, for the most devices: what the configuration program takes is placed first.

In come the placer and asks of one priority, each for single replicas whose places are told apart by prices alone; out
come, replica by replica, the spots that the best packing (`packing_lp`) gives them. Parts that fill a card together are
placed together as if they were one whole card, since only then they end on one. Every spot is handed out before the
next is looked for, so that who takes them takes them in turn. What the program does not take, or what does not find a
place as it stands, is left to be placed one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from adjoin_allocator.fit import Fit
from adjoin_allocator.fractions import Appraiser
from adjoin_allocator.packing_lp import Order, Packing, Site, pack
from adjoin_allocator.place import Ask, Placer, Spot
from adjoin_allocator.sharing import MILLI, cost_milli
from adjoin_allocator.stock import NO_LIMIT, Booleans, Stock, Wish
from adjoin_allocator.tariff import simple

FEWEST = 64
"""Fewer replicas than this are not worth a program."""

_SLACK = 1e-6


@dataclass(slots=True, eq=False)
class _Kind:
    """Replicas that ask alike: their places in the list of asks, the next one last."""

    wish: Wish
    milli: int
    members: list[int]


def bulk(placer: Placer, asks: Sequence[Ask]) -> Iterator[tuple[int, Spot]]:
    """By place in `asks` the spots of those that the best packing takes; all asks are of one pool."""
    parts = placer.ledger.parts
    if len(asks) < FEWEST or not parts.prices(asks[0].pool):
        return
    kinds: dict[Wish, _Kind] = {}
    name = share = ""
    for at, ask in enumerate(asks):
        if not ask.requests:
            continue
        device, wish = parts.wish(ask.pool, ask.requests, ask.host)
        name = name or device
        appraiser = parts.appraiser(ask.pool, device)
        milli = _milli(appraiser.stock, wish)
        share = share or wish.share
        alike = device == name and wish.share in ("", share)
        if alike and milli is not None and simple(placer, ask, device):
            kinds.setdefault(wish, _Kind(wish, milli, [])).members.append(at)
    if not kinds:
        return
    appraiser = parts.appraiser(asks[0].pool, name)
    columns = [parts.columns(asks[0].pool, name, position) for position in range(appraiser.stock.shape[0])]
    listed = sorted(kinds.values(), key=lambda kind: kind.members[0])
    sites = _sites(appraiser.stock, [kind.wish for kind in listed])
    orders = [
        Order(
            number=len(kind.members),
            milli=kind.milli,
            cpu_milli=kind.wish.cpu_milli,
            memory_kib=kind.wish.memory_kib,
            sites=tuple(bool(_allowed(appraiser.stock, kind.wish)[rows].any()) for rows in sites),
        )
        for kind in listed
    ]
    for kind in listed:
        kind.members.reverse()
    packing = pack([_site(appraiser.stock, rows) for rows in sites], orders)
    for among, bundle in _bundles(packing, listed, sites):
        yield from _spots(appraiser, columns, among, [(kind, kind.members) for kind in bundle])


def _milli(stock: Stock, wish: Wish) -> int | None:
    """What a wish asks for in thousandths of a card; None where that depends on the card, or several parts are asked
    for.
    """
    if wish.part is None:
        return wish.count * MILLI
    if wish.parts != 1:
        return None
    share = stock.share_at[wish.share]
    if stock.shares[share].max_devices is not None:
        return None
    sizes = {cost_milli(wish.of_each, cap) for cap in stock.caps[share].tolist()}
    return sizes.pop() if len(sizes) == 1 else None


def _allowed(stock: Stock, wish: Wish) -> Booleans:
    """Which cards will do."""
    chosen = stock.eligible[wish.only]
    found: Booleans = chosen & stock.selected[stock.share_at[wish.share]] if wish.parts else chosen
    return found


def _sites(stock: Stock, wishes: Sequence[Wish]) -> list[Booleans]:
    """Nodes that are alike: as many cards, as much host, and the same wishes can use them."""
    rows = stock.shape[0]
    facts = [stock.whole, np.minimum(stock.cpu, NO_LIMIT), np.minimum(stock.memory, NO_LIMIT)]
    kinds = {(wish.only, wish.share) for wish in wishes}
    facts += [_allowed(stock, Wish(1, share, only=only)).any(axis=1) for only, share in sorted(kinds)]
    table = np.column_stack([np.asarray(fact, dtype=np.int64).reshape(rows) for fact in facts])
    found, of = np.unique(table, axis=0, return_inverse=True)
    usable = ~stock.closed & (stock.whole > 0)
    return [np.asarray((of.reshape(rows) == at) & usable, dtype=bool) for at in range(len(found))]


def _site(stock: Stock, rows: Booleans) -> Site:
    cpu, memory = stock.cpu[rows], stock.memory[rows]
    return Site(
        cards=int(stock.whole[rows].sum()),
        largest=int(stock.whole[rows].max(initial=0)),
        cpu_milli=None if (cpu >= NO_LIMIT).any() else int(cpu.sum()),
        memory_kib=None if (memory >= NO_LIMIT).any() else int(memory.sum()),
    )


def _bundles(
    packing: Packing, kinds: Sequence[_Kind], sites: Sequence[Booleans]
) -> Iterator[tuple[Booleans, list[_Kind]]]:
    """What is placed together where: replicas of several cards first, then what needs most of its host."""
    found: list[tuple[int, int, int, list[_Kind]]] = []
    for site in range(len(sites)):
        by_size: dict[int, list[_Kind]] = defaultdict(list)
        for kind, taken in zip(kinds, packing.taken, strict=True):
            number = min(len(kind.members), floor(taken[site] + _SLACK))
            if kind.milli >= MILLI:
                found += [(site, kind.milli, kind.wish.cpu_milli, [kind])] * number
            elif number or taken[site] > _SLACK:
                by_size[kind.milli] += [kind] * max(number, round(taken[site]))
        for size, members in by_size.items():
            members.sort(key=lambda kind: (kind.wish.cpu_milli, kind.wish.memory_kib))
            # Hungry and frugal ones in turn, so that cards need about as much of their hosts.
            half = len(members) // 2
            by_size[size] = [each for pair in zip(members[half:][::-1], members[:half], strict=False) for each in pair]
            by_size[size] += members[half : len(members) - half]
        for filling in sorted(packing.fillings, key=lambda each: (-each.cards, each.sizes)):
            if filling.site != site:
                continue
            for _ in range(max(floor(filling.cards + _SLACK), round(filling.cards))):
                bundle = [by_size[size].pop() for size, count in filling.sizes for _ in range(count) if by_size[size]]
                if bundle:
                    found.append((site, MILLI, sum(kind.wish.cpu_milli for kind in bundle), bundle))
    for site, _, _, bundle in sorted(found, key=lambda each: (-each[1], -each[2], each[0])):
        yield sites[site], bundle


def _spots(
    appraiser: Appraiser,
    columns: Sequence[tuple[int, ...]],
    among: Booleans,
    bundle: Sequence[tuple[_Kind, list[int]]],
) -> Iterator[tuple[int, Spot]]:
    """The spots of replicas that are placed together."""
    ready = [(kind, members) for kind, members in bundle if members]
    if not ready:
        return
    only = {kind.wish.only for kind, _ in ready}
    wish = Wish(
        count=ready[0][0].wish.count if ready[0][0].milli >= MILLI else 1,
        only=only.pop() if len(only) == 1 else 0,
        cpu_milli=sum(kind.wish.cpu_milli for kind, _ in ready),
        memory_kib=sum(kind.wish.memory_kib for kind, _ in ready),
    )
    choice = appraiser.best(wish, among)
    if choice is None:
        return
    # Where cards of one node differ, one that does for the first may not do for the others.
    cards = [(choice.position, column) for column in choice.columns]
    if not all(_allowed(appraiser.stock, kind.wish)[card] for kind, _ in ready for card in cards):
        return
    mask = sum(1 << columns[choice.position][column] for column in choice.columns)
    for _, members in ready:
        if members:
            yield members.pop(), Spot(choice.position, Fit((choice.cost,), (mask,), mask, 0))
