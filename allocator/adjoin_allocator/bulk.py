"""Many simple claims at once, for the most devices: what the configuration program takes is placed first.

In come the placer and asks of one priority, each for single replicas whose places are told apart by prices alone; out
come, replica by replica, the spots that the best packing (`packing_lp`) gives them. Parts that fill a card together are
placed together as if they were one whole card, since only then they end on one. Every spot is handed out before the
next is looked for, so that who takes them takes them in turn. What the program does not take, or what does not find a
place as it stands, is left to be placed one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import floor

import numpy as np

from adjoin_allocator.appraisal import Integers
from adjoin_allocator.exchange import Ground
from adjoin_allocator.fit import Fit
from adjoin_allocator.packing_lp import Order, Packing, Site, pack
from adjoin_allocator.place import Ask, Placer, Spot
from adjoin_allocator.sharing import MILLI
from adjoin_allocator.stock import NO_LIMIT, Booleans, Stock, Wish
from adjoin_allocator.tariff import simple

FEWEST = 64
"""Fewer replicas than this are not worth a program."""

MARGINS = (0.02, 0.0, 0.08, 0.01, 0.045, 0.015, 0.03, 0.005, 0.06)
"""Parts of the hosts that the program keeps back, to be tried in turn: without any what it takes may need every core,
and then cannot be dealt out; the one with which most is placed counts."""

NEAR = 0.0005
"""Of what a program takes so little may be left for another try not to be worth its work."""

MILLISECONDS = 100
"""Budget of the pool that each try takes."""

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
    budget = 0 if not asks else placer.ledger.pools[asks[0].pool].index.pool.optimise_milliseconds
    if asks and placer.ledger.pools[asks[0].pool].index.counted:
        # The program knows cards, and no counters that they share.
        return
    if len(asks) < FEWEST or budget < MILLISECONDS or not parts.prices(asks[0].pool):
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
    here = [_site(appraiser.stock, rows) for rows in sites]
    best: tuple[int, list[_Dealt]] = (0, [])
    for margin in MARGINS[: budget // MILLISECONDS]:
        packing = pack(here, orders, margin)
        dealt = list(_deal(appraiser.stock, packing, listed, sites))
        milli = sum(kind.milli for each in dealt for kind in each.kinds)
        if milli > best[0]:
            best = milli, dealt
        if milli >= (1 - NEAR) * packing.milli:
            break
    for kind in listed:
        kind.members.reverse()
    for each in best[1]:
        mask = sum(1 << columns[each.position][column] for column in each.columns)
        for kind in each.kinds:
            yield kind.members.pop(), Spot(each.position, Fit((), (mask,), mask, 0))


def _milli(stock: Stock, wish: Wish) -> int | None:
    """What a wish asks for in thousandths of a card; None where that depends on the card, or thousandths do not tell
    which parts fit together, or several parts are asked for.
    """
    if wish.part is None:
        return wish.count * MILLI
    if wish.parts != 1:
        return None
    share = stock.share_at[wish.share]
    if stock.shares[share].max_devices is not None:
        return None
    sizes = {each.exact(wish.of_each) for each in stock.rules[share]}
    return sizes.pop() if len(sizes) == 1 else None


def _allowed(stock: Stock, wish: Wish) -> Booleans:
    """Which cards will do."""
    chosen = stock.eligible[wish.only]
    found: Booleans = chosen & stock.selected[stock.share_at[wish.share]] if wish.share else chosen
    return found


def _sites(stock: Stock, wishes: Sequence[Wish]) -> list[Booleans]:
    """Nodes that are alike: as many cards, as much host, and the same wishes can use them."""
    rows = stock.shape[0]
    facts = [stock.whole, np.minimum(stock.cpu, NO_LIMIT), np.minimum(stock.memory, NO_LIMIT)]
    kinds = {(wish.only, wish.share) for wish in wishes}
    for only, share in sorted(kinds):
        facts.append(np.array(_allowed(stock, Wish(0, share, only=only)).any(axis=1), dtype=np.int64))
    table = np.column_stack(facts)
    found, of = np.unique(table, axis=0, return_inverse=True)
    usable = ~stock.closed & (stock.whole > 0)
    group: Integers = np.asarray(of, dtype=np.int64).reshape(rows)
    sites: list[Booleans] = []
    for at in range(len(found)):
        mine: Booleans = group == at
        sites.append(mine & usable)
    return sites


def _site(stock: Stock, rows: Booleans) -> Site:
    """All of the nodes have the same, see `_sites`."""
    cpu, memory = (int(left[rows].max(initial=0)) for left in (stock.cpu, stock.memory))
    return Site(
        nodes=int(rows.sum()),
        cards=int(stock.whole[rows].max(initial=0)),
        cpu_milli=None if cpu >= NO_LIMIT else max(0, cpu),
        memory_kib=None if memory >= NO_LIMIT else max(0, memory),
    )


@dataclass(frozen=True, slots=True)
class _Load:
    """What a card of a site is to get of its host on average: the site, thousandths of a core, KiB."""

    rows: int
    cpu_milli: float
    memory_kib: float

    def share(self, bundle: Sequence[_Kind]) -> float:
        """For how many cards a bundle needs its host, by the resource of which it needs most."""
        cpu = sum(kind.wish.cpu_milli for kind in bundle)
        memory = sum(kind.wish.memory_kib for kind in bundle)
        return max(cpu / self.cpu_milli, memory / self.memory_kib)


def _bundles(packing: Packing, kinds: Sequence[_Kind], sites: int) -> Iterator[tuple[_Load, list[_Kind]]]:
    """What is placed together where: replicas of several cards first, then what needs most of its host."""
    found: list[tuple[int, float, _Load, list[_Kind]]] = []
    left = [len(kind.members) for kind in kinds]
    for site in range(sites):
        here: list[tuple[int, list[_Kind]]] = []
        by_size: dict[int, list[_Kind]] = defaultdict(list)
        for size in sorted({kind.milli for kind in kinds}):
            mine = [at for at, kind in enumerate(kinds) if kind.milli == size]
            for at, number in _whole(mine, [packing.taken[at][site] for at in mine], left):
                by_size[size] += [kinds[at]] * number
        for size, members in by_size.items():
            if size >= MILLI:
                here += ((size // MILLI, [kind]) for kind in members)
                continue
        fillings = [filling for filling in packing.fillings if filling.site == site]
        fillings.sort(key=lambda each: (-each.cards, each.sizes))
        sets: list[tuple[tuple[int, int], ...]] = []
        ready = [NO_LIMIT] * len(fillings)
        for at, cards in _whole(range(len(fillings)), [filling.cards for filling in fillings], ready):
            sets += [fillings[at].sizes] * cards
        here += ((1, bundle) for bundle in _dealt(sets, by_size))
        single = [bundle for count, bundle in here if count == 1]
        cards = max(1, len(single))
        load = _Load(
            site,
            max(1.0, sum(kind.wish.cpu_milli for bundle in single for kind in bundle) / cards),
            max(1.0, sum(kind.wish.memory_kib for bundle in single for kind in bundle) / cards),
        )
        found += ((count, load.share(bundle), load, bundle) for count, bundle in here)

    def turn(each: tuple[int, float, _Load, list[_Kind]]) -> tuple[int, float, int]:
        count, share, load, _ = each
        return -count, -share, load.rows

    for _, _, load, bundle in sorted(found, key=turn):
        yield load, bundle


def _dealt(sets: Sequence[tuple[tuple[int, int], ...]], members: Mapping[int, list[_Kind]]) -> Iterator[list[_Kind]]:
    """Sets of parts, filled so that they need about as much of their hosts: the hungriest part of each size goes to the
    set that needs least so far.
    """
    bundles: list[list[_Kind]] = [[] for _ in sets]
    needs = [0] * len(sets)
    for size in sorted(members, reverse=True):
        if size >= MILLI:
            continue
        room = {at: dict(sizes)[size] for at, sizes in enumerate(sets) if size in dict(sizes)}
        heap = [(needs[at], at) for at in room]
        heapify(heap)
        for kind in sorted(members[size], key=lambda kind: (-kind.wish.cpu_milli, -kind.wish.memory_kib)):
            if not heap:
                break
            _, at = heappop(heap)
            bundles[at].append(kind)
            needs[at] += kind.wish.cpu_milli
            room[at] -= 1
            if room[at]:
                heappush(heap, (needs[at], at))
    return (bundle for bundle in bundles if bundle)


def _whole(keys: Sequence[int], amounts: Sequence[float], left: list[int]) -> list[tuple[int, int]]:
    """The amounts as whole numbers with the same sum, those with the largest remainders rounded up; of each key no more
    than is `left`, which goes down by what is given.
    """
    numbers = [min(left[key], floor(amount + _SLACK)) for key, amount in zip(keys, amounts, strict=True)]
    missing = round(sum(amounts)) - sum(numbers)
    for at in sorted(range(len(keys)), key=lambda at: (numbers[at] - amounts[at], at)):
        if missing > 0 and amounts[at] > _SLACK and numbers[at] < left[keys[at]]:
            numbers[at] += 1
            missing -= 1
    for key, number in zip(keys, numbers, strict=True):
        left[key] -= number
    return [(key, number) for key, number in zip(keys, numbers, strict=True) if number]


@dataclass(frozen=True, slots=True)
class _Dealt:
    """Replicas that get the same cards of a node."""

    kinds: tuple[_Kind, ...]
    position: int
    columns: tuple[int, ...]


def _deal(stock: Stock, packing: Packing, kinds: Sequence[_Kind], sites: Sequence[Booleans]) -> Iterator[_Dealt]:
    """Deals out what the program takes: a bundle goes where the host has most for each of its free cards, so that the
    last ones, which need least, find enough wherever cards are left. Bundles of one card that find none then get what
    others can make room for (`exchange`). Nothing of the stock is changed.
    """
    whole = stock.whole.copy()
    usable: dict[frozenset[tuple[int, str]], int] = {}
    bundles = [
        (load, bundle, frozenset(_class(kind) for kind in bundle))
        for load, bundle in _bundles(packing, kinds, len(sites))
    ]
    for _, _, classes in bundles:
        usable.setdefault(classes, len(usable))
    tables = np.array([_all_of(stock, classes) for classes in usable], dtype=bool).reshape(-1, *stock.shape)
    ground = Ground(stock.host.copy(), stock.free, tables)
    singles: list[tuple[list[_Kind], int]] = []
    left: list[tuple[list[_Kind], tuple[int, int], int]] = []
    for load, bundle, classes in bundles:
        count = max(1, bundle[0].milli // MILLI)
        asked = sum(kind.wish.cpu_milli for kind in bundle), sum(kind.wish.memory_kib for kind in bundle)
        cpu, memory = ground.host
        rows = np.flatnonzero(sites[load.rows] & (whole >= count) & (cpu >= asked[0]) & (memory >= asked[1]))
        columns: list[int] = []
        if len(rows):
            spare = np.minimum(cpu[rows] / load.cpu_milli, memory[rows] / load.memory_kib) / whole[rows]
            position = int(rows[spare.argmax()])
            columns = np.flatnonzero(ground.free[position] & tables[usable[classes], position])[:count].tolist()
        # Where cards of one node differ, one that does for the first may not do for the others.
        if not columns or len(columns) < count:
            if count == 1:
                left.append((bundle, asked, usable[classes]))
            continue
        whole[position] -= count
        if count == 1:
            singles.append((bundle, ground.enter(asked, usable[classes], position, columns[0])))
            continue
        ground.host[:, position] -= asked
        ground.free[position, columns] = False
        yield _Dealt(tuple(bundle), position, tuple(columns))
    for bundle, asked, row in left:
        number = ground.squeeze(asked, row)
        if number is not None:
            singles.append((bundle, number))
    for bundle, number in singles:
        position, column = ground.place(number)
        yield _Dealt(tuple(bundle), position, (column,))


def _class(kind: _Kind) -> tuple[int, str]:
    """What decides which cards will do."""
    return kind.wish.only, kind.wish.share


def _all_of(stock: Stock, classes: frozenset[tuple[int, str]]) -> Booleans:
    """Cards that will do for all of them, on nodes that are open."""
    found = np.repeat(~stock.closed[:, None], stock.shape[1], axis=1)
    for only, share in classes:
        found &= _allowed(stock, Wish(0, share, only=only))
    return found
