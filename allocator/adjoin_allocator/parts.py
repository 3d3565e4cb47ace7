"""Who holds parts of devices: the side of the ledger that masks cannot tell.

In come the pools of a ledger, the shares of a snapshot, and parts and claims that come and go; out come what is in use
of each divided device, an `Appraiser` for each kind of card, and the wish of a request. A device of which anybody holds
a part is not free as a whole: `Parts` tells the pool's masks when the first part is given and when the last one is
back. Nothing here chooses.

Cards are put into arrays (`stock`), with what is left of their hosts, when they are first asked about, in pools of
which a share divides devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from adjoin_allocator.acceptance import refusal
from adjoin_allocator.alternatives import most_wanted
from adjoin_allocator.card_rules import UNUSED, Use
from adjoin_allocator.cel import Selector
from adjoin_allocator.fractions import Appraiser
from adjoin_allocator.hosts import Hosts, Rooms
from adjoin_allocator.model import Claim, DeviceName, HostAsk, PlacedShare, Pool, Request, Share
from adjoin_allocator.nodes import NodeView, PoolIndex
from adjoin_allocator.prices import Pricer
from adjoin_allocator.rulebook import class_of
from adjoin_allocator.sharing import AMOUNTS, MILLI, Part, part
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.stock import NO_LIMIT, Booleans, Row, Stock, Used, Wish
from adjoin_allocator.terms import DeviceType, ShareMode
from adjoin_allocator.topology import bits
from adjoin_allocator.wishes import Demand

WISHES = 4096
"""Of how many requests it is remembered what they wish for."""

_KIB = 1024


class Masks(Protocol):
    """What parts need of a pool's ledger."""

    index: PoolIndex
    free: list[int]
    watcher: Callable[[int], None] | None

    def divide(self, position: int, mask: int, back: bool, add: bool) -> None:
        """These devices are divided (all parts of them on their way back, or not), or no longer."""

    def touch(self) -> None:
        """Somebody holds more or less of a divided device."""

    def entire(self, position: int) -> int:
        """Devices of a node that somebody has as wholes."""

    def lent(self, position: int) -> int:
        """Devices of a node that are free but for what others than claims consume of them."""

    def divided(self, position: int) -> int:
        """Devices of a node of which somebody has parts."""

    def bind(self, position: int, mask: int) -> None:
        """These devices, and no others of the node, serve one share alone for now."""

    def bound(self, position: int) -> int:
        """Devices of a node that serve one share alone for now."""


@dataclass(slots=True)
class _Card:
    """Holders of parts of one device, and of these who are on their way back."""

    users: int = 0
    back: int = 0
    held: dict[PlacedShare, int] = field(default_factory=dict)
    """Which parts, with how often."""
    told: tuple[Stock, tuple[int, Use] | None] | None = None
    """What a stock makes of them, if it was asked since they last changed."""

    @property
    def state(self) -> bool | None:
        """None when nobody holds any of it, else whether all of it is on its way back."""
        return None if not self.users else self.users == self.back


@dataclass(slots=True, eq=False)
class _Side:
    """One kind of card of one pool."""

    demand: Demand = field(default_factory=Demand)
    selections: dict[tuple[Selector, ...], int] = field(default_factory=lambda: {(): 0})
    columns: list[tuple[int, ...]] = field(default_factory=list)
    """By node the bits of its cards."""
    straight: list[bool] = field(default_factory=list)
    """By node whether these are the lowest ones."""
    views: tuple[NodeView, ...] = ()
    closed: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """What the cards were put into arrays from."""
    alike: tuple[bool, bool] = (False, False)
    """All of its cards serve equally well; all pairs of them are equally near."""
    appraiser: Appraiser | None = None
    changed: set[int] = field(default_factory=set)
    """Nodes at which the arrays must be brought up to date."""

    def only(self, selectors: tuple[Selector, ...]) -> int:
        """The index of a selection."""
        return self.selections.setdefault(selectors, len(self.selections))


@dataclass(slots=True, eq=False)
class _PoolParts:
    """One pool.

    Attributes:
        shares: Those that divide its devices, by name.
        cards: By node and bit who holds parts.
        sides: By device name.
        modes: By node and bit the share in whose mode a device is, and whether it serves that one alone for now.
        hushed: By node and bit how many parts are held by those who want quiet neighbours.
        wishes: What replicas with these requests and this need of a host wish for, as long as the pool's `devices` are
            these.
    """

    masks: Masks
    shares: dict[str, Share]
    cards: dict[tuple[int, int], _Card] = field(default_factory=dict)
    sides: dict[str, _Side] = field(default_factory=dict)
    modes: dict[tuple[int, int], tuple[str, bool]] = field(default_factory=dict)
    hushed: dict[tuple[int, int], int] = field(default_factory=dict)
    wishes: dict[tuple[tuple[Request, ...], HostAsk], tuple[tuple[str, Wish], ...]] = field(default_factory=dict)
    devices: tuple[DeviceName, ...] = ()

    def side(self, kind: str) -> _Side:
        """Its cards of this name."""
        found = self.sides.get(kind)
        if found is None:
            found = self.sides[kind] = _Side()
        return found


class Parts:
    """Parts of devices of all pools of a ledger."""

    def __init__(self, hosts: Hosts) -> None:
        self.shares: Mapping[str, Share] = {}
        self._hosts = hosts
        self._pools: dict[str, _PoolParts] = {}
        self._pricer = Pricer()
        self._refusals: dict[str, tuple[Share, tuple[NodeView, ...], str]] = {}

    def same(self, snapshot: Snapshot) -> bool:
        """Whether the shares are still those that it was brought to."""
        old, new = self.shares, snapshot.shares
        return old is new or (len(old) == len(new) and all(old.get(name) is share for name, share in new.items()))

    def reset(self, snapshot: Snapshot, pools: Mapping[str, Masks]) -> None:
        """Nobody holds anything of these pools."""
        self.shares = snapshot.shares
        self._pools = {}
        self._hosts.watcher = None
        ordered = sorted(snapshot.shares.values(), key=lambda share: share.name)
        for name, masks in pools.items():
            shares = {share.name: share for share in ordered if share.pool == name}
            self._pools[name] = _PoolParts(masks, shares)
            masks.watcher = None

    def prices(self, pool: str) -> bool:
        """Whether places in this pool are told apart by prices: a share divides its devices."""
        return bool(self._pools[pool].shares)

    def refusal(self, share: Share) -> str:
        """Why a share cannot split the devices that it selects, or ""."""
        pool = self._pools.get(share.pool)
        if share.mode is not ShareMode.PARTITIONED or pool is None:
            return ""
        views = pool.masks.index.views
        known = self._refusals.get(share.name)
        if known is None or known[0] is not share or known[1] is not views:
            devices = (view.devices[bit] for view in views for bit in bits(view.eligible(share.kind, share.selectors)))
            known = self._refusals[share.name] = (share, views, refusal(share, devices))
        return known[2]

    def settle(self, modes: Mapping[str, dict[tuple[int, int], tuple[str, bool]]]) -> None:
        """By pool, position and bit the share in whose mode a device is, and whether it serves that alone for now."""
        for name, pool in self._pools.items():
            new = modes.get(name, {})
            if new == pool.modes:
                continue
            changed = {key[0] for key in new.keys() | pool.modes.keys() if new.get(key) != pool.modes.get(key)}
            pool.modes = new
            masks = dict.fromkeys(changed, 0)
            for (position, bit), (share, alone) in new.items():
                if position in changed and alone and share in pool.shares:
                    masks[position] |= 1 << bit
            for position, mask in masks.items():
                pool.masks.bind(position, mask)
            for side in pool.sides.values():
                side.changed |= changed

    def mode(self, pool: str, position: int, bit: int) -> tuple[str, bool] | None:
        """The share in whose mode a device is, and whether it serves that one alone for now."""
        return self._pools[pool].modes.get((position, bit))

    # Holding

    def holding(self, pool: str) -> Mapping[tuple[int, int], Mapping[PlacedShare, int]]:
        """By position and bit of divided devices which parts are held, and how often."""
        return {key: card.held for key, card in self._pools[pool].cards.items()}

    def returning(self, pool: str) -> set[int]:
        """Positions of nodes where parts are on their way back, whether others of the same device stay or not."""
        return {position for (position, _), card in self._pools[pool].cards.items() if card.back}

    def held_of(self, pool: str, position: int, bit: int) -> Mapping[PlacedShare, int]:
        """The same of one divided device."""
        return self._pools[pool].cards[position, bit].held

    def held(self, pool: str, position: int, bit: int) -> Mapping[PlacedShare, int]:
        """The same of one device, whether anybody has parts of it or not."""
        card = self._pools[pool].cards.get((position, bit))
        return {} if card is None else card.held

    def used_milli(self, pool: str, kind: str, position: int, bit: int) -> int:
        """Which part of a device is in use, in thousandths; of a free one nothing."""
        held = self.held(pool, position, bit)
        if not held:
            return 0
        stock = self.appraiser(pool, kind).stock
        column = self.columns(pool, kind, position).index(bit)
        used = stock.use(position, column)
        if used is None:
            return MILLI
        share, use = used
        return MILLI - stock.rules[share][stock.klass.item(position, column)].left_milli(use)

    def crowd(self, pool: str, kind: str, position: int, bit: int) -> int:
        """How crowded a device is: by who shares it, then by what is in use of it."""
        card = self._pools[pool].cards.get((position, bit))
        return 0 if card is None else card.users * (MILLI + 1) + self.used_milli(pool, kind, position, bit)

    def hold(self, pool: str, position: int, bit: int, share: PlacedShare, back: bool, add: bool) -> None:
        """Somebody holds a part of a device, or no longer does."""
        parts, sign = self._pools[pool], 1 if add else -1
        key = (position, bit)
        card = parts.cards.get(key)
        if card is None:
            card = parts.cards[key] = _Card()
        before = card.state
        card.users += sign
        card.back += sign * back
        card.told = None
        now = card.state
        if now is not before:
            if before is not None:
                parts.masks.divide(position, 1 << bit, before, add=False)
            if now is not None:
                parts.masks.divide(position, 1 << bit, now, add=True)
        if not card.users:
            del parts.cards[key]
        elif add and card.users == 1:
            card.held[share] = 1
        else:
            times = card.held.get(share, 0) + sign
            if times:
                card.held[share] = times
            else:
                del card.held[share]
        parts.masks.touch()
        for side in parts.sides.values():
            side.changed.add(position)

    def hush(self, pool: str, position: int, bit: int, times: int) -> None:
        """Somebody who wants quiet neighbours holds so many parts more of a device, or fewer."""
        parts = self._pools[pool]
        now = parts.hushed.get((position, bit), 0) + times
        if now:
            parts.hushed[position, bit] = now
        else:
            del parts.hushed[position, bit]
        for side in parts.sides.values():
            side.changed.add(position)

    def quiet(self, pool: str) -> bool:
        """Whether there are devices that others should keep away from."""
        return bool(self._pools[pool].hushed)

    def wishes(self, claim: Claim, sign: int) -> None:
        """A claim of the snapshot wishes for something, or no longer does."""
        pool = self._pools.get(claim.pool)
        if pool is not None and pool.shares and not claim.deleting:
            for kind, wish in self._wishes(pool, most_wanted(claim.requests), claim.host):
                pool.side(kind).demand.add(wish, sign * claim.size)

    def _refresh(self, node: str) -> None:
        """What is left of a host has changed."""
        for pool in self._pools.values():
            position = pool.masks.index.position.get(node)
            if position is not None:
                for side in pool.sides.values():
                    side.changed.add(position)

    # Wishing

    def wish(self, pool: str, requests: tuple[Request, ...], host: HostAsk) -> tuple[str, Wish]:
        """The kind of card and the wish that a replica is priced by: those of its cards that the host is needed for."""
        parts = self._pools[pool]
        for kind, wish in self._wishes(parts, requests, host):
            if wish.cpu_milli or wish.memory_kib or not (host.cpu_milli or host.memory_bytes):
                return kind, wish
        kind = _main(parts.masks.index.pool)
        return kind, Wish(0, cpu_milli=host.cpu_milli, memory_kib=-(-host.memory_bytes // _KIB))

    def _wishes(self, pool: _PoolParts, requests: tuple[Request, ...], host: HostAsk) -> tuple[tuple[str, Wish], ...]:
        """What a replica wishes for, request by request; the host is needed for its GPUs, else for its first devices.
        A request for all devices of a node wishes for no number of them.
        """
        devices = pool.masks.index.pool.devices
        if pool.devices is not devices or len(pool.wishes) >= WISHES:
            pool.devices = devices
            pool.wishes.clear()
        known = pool.wishes.get((requests, host))
        if known is None:
            known = pool.wishes[requests, host] = tuple(self._listed(pool, requests, host))
        return known

    @staticmethod
    def _listed(pool: _PoolParts, requests: tuple[Request, ...], host: HostAsk) -> Iterator[tuple[str, Wish]]:
        types = {name.name: name.type for name in pool.masks.index.pool.devices}
        known = [request for request in requests if request.kind in types and request.count > 0]
        main = next(
            (request for request in known if types[request.kind] is DeviceType.GPU), known[0] if known else None
        )
        for request in known:
            share = None if request.share is None else pool.shares.get(request.share.name)
            asked = None if request.share is None or share is None else part(request.share, share)
            yield (
                request.kind,
                Wish(
                    count=request.count,
                    share="" if request.share is None else request.share.name,
                    part=Part() if asked is None and request.share is not None else asked,
                    together=request.same_device and request.share is not None,
                    only=pool.side(request.kind).only(request.selectors),
                    cpu_milli=host.cpu_milli if request is main else 0,
                    memory_kib=-(-host.memory_bytes // _KIB) if request is main else 0,
                ),
            )

    # Appraising

    def appraiser(self, pool: str, kind: str) -> Appraiser:
        """Who knows what the cards of this kind cost, brought up to date."""
        parts = self._pools[pool]
        side = parts.side(kind)
        index = parts.masks.index
        if side.appraiser is None or side.views is not index.views or side.closed is not index.closed:
            self._stock(parts, kind, side)
        appraiser = side.appraiser
        assert appraiser is not None
        views, stock = index.views, appraiser.stock
        if side.changed:
            rooms = self._hosts.rooms(index)
            for position in sorted(side.changed):
                stock.put(position, _row(parts, side, stock, rooms, position))
                if parts.hushed or stock.hushed:
                    columns = enumerate(side.columns[position])
                    stock.hush(position, sum(1 << at for at, bit in columns if (position, bit) in parts.hushed))
            side.changed.clear()
        if len(side.selections) > len(stock.eligible):
            for selectors in list(side.selections)[len(stock.eligible) :]:
                stock.eligible.append(self._matching(stock, side, views, kind, selectors))
        return appraiser

    def columns(self, pool: str, kind: str, position: int) -> tuple[int, ...]:
        """The bits of a node's cards, by column."""
        return self._pools[pool].sides[kind].columns[position]

    def alike(self, pool: str, kind: str, pairs: bool) -> bool:
        """Whether it does not matter which cards of this kind are taken, but for what is left: all serve equally well,
        and with `pairs` also all pairs of them on one node are equally near. To be asked after `appraiser`.
        """
        single, paired = self._pools[pool].sides[kind].alike
        return single and (paired or not pairs)

    def _stock(self, parts: _PoolParts, kind: str, side: _Side) -> None:
        masks = parts.masks
        views = masks.index.views
        side.columns = [tuple(bits(view.shape.kinds.get(kind, 0))) for view in views]
        side.straight = [columns == tuple(range(len(columns))) for columns in side.columns]
        side.views, side.closed = masks.index.views, masks.index.closed
        side.alike = _alike(masks.index, kind)
        shares = [share for share in parts.shares.values() if share.kind == kind]
        # Others do not care what the product is, and fewer classes are fewer prices.
        products = any(share.mode is ShareMode.PARTITIONED for share in shares)
        cards = [
            [class_of(view.devices[bit], products) for bit in columns]
            for view, columns in zip(views, side.columns, strict=True)
        ]
        stock = Stock(cards, shares)
        stock.selected = [self._matching(stock, side, views, kind, share.selectors) for share in shares]
        # What others consume is told in amounts, so only what is given in amounts is given beside it.
        lent = np.array([bool(each[3]) for each in stock.classes] or [False])[stock.klass]
        for mine, share in zip(stock.selected, shares, strict=True):
            if share.mode not in AMOUNTS:
                mine &= ~lent
        # The appraiser looks at them once.
        for position in masks.index.closed:
            stock.closed[position] = True
        side.appraiser = Appraiser(stock, side.demand, self._pricer)
        side.changed = set(range(len(views)))

        def watch(position: int) -> None:
            for one in parts.sides.values():
                one.changed.add(position)

        masks.watcher = watch
        self._hosts.watcher = self._refresh

    @staticmethod
    def _matching(
        stock: Stock, side: _Side, views: tuple[NodeView, ...], kind: str, selectors: tuple[Selector, ...]
    ) -> Booleans:
        found = np.zeros(stock.shape, dtype=bool)
        for position, (view, columns) in enumerate(zip(views, side.columns, strict=True)):
            mask = view.eligible(kind, selectors)
            for column, bit in enumerate(columns):
                found[position, column] = mask >> bit & 1
        return found


def _row(parts: _PoolParts, side: _Side, stock: Stock, rooms: Rooms, position: int) -> Row:
    """What a node has: free cards, parts in use, and what is left of the host."""
    masks, columns = parts.masks, side.columns[position]
    free, lent = masks.free[position], masks.lent(position)
    counters = masks.index.views[position].shape.counters
    if counters is not None:
        # A partition that a driver publishes is given as it is; only whole cards are divided.
        free &= counters.whole
    if side.straight[position]:
        free &= (1 << len(columns)) - 1
        lent &= (1 << len(columns)) - 1
    else:
        free = sum(1 << column for column, bit in enumerate(columns) if free >> bit & 1)
        lent = sum(1 << column for column, bit in enumerate(columns) if lent >> bit & 1)
    used: list[Used] = []
    if masks.divided(position):
        offered = masks.index.views[position].offered & ~masks.entire(position)
        for column, bit in enumerate(columns):
            card = parts.cards.get((position, bit))
            if card is not None:
                if card.told is None or card.told[0] is not stock:
                    card.told = (stock, _used(card, stock, (position, column)))
                if (told := card.told[1]) is not None:
                    used.append((column, *told, bool(offered >> bit & 1)))
    made: tuple[tuple[int, int], ...] = ()
    if parts.modes:
        bound = masks.bound(position)
        found = []
        for column, bit in enumerate(columns):
            share, _ = parts.modes.get((position, bit), ("", False))
            at = stock.share_at.get(share)
            if at is None or (position, bit) in parts.cards:
                continue
            found.append((column, at))
            if bound >> bit & 1:
                offered = masks.index.views[position].offered & ~masks.entire(position)
                used.append((column, at, UNUSED, bool(offered >> bit & 1)))
        made = tuple(found)
    stock.make(position, made)
    cpu, memory = rooms.cpu_milli.item(position), rooms.memory_bytes.item(position)
    return free, tuple(used), min(cpu, NO_LIMIT), NO_LIMIT if memory >= NO_LIMIT else memory // _KIB, lent


def _used(card: _Card, stock: Stock, place: tuple[int, int]) -> tuple[int, Use] | None:
    """What is in use of a card, if a share of the pool divides it, and which: of two, should there be two, the first
    one.
    """
    mode = min((at for share in card.held if (at := stock.share_at.get(share.name)) is not None), default=None)
    if mode is None:
        return None
    name = stock.shares[mode].name
    mine = [(share, times) for share, times in card.held.items() if share.name == name]
    return mode, stock.rules[mode][stock.klass.item(place)].use(mine)


def _alike(index: PoolIndex, kind: str) -> tuple[bool, bool]:
    """See `_Side.alike`."""
    ranks: set[tuple[int, int]] = set()
    levels: set[tuple[int, int]] = set()
    for shape in index.shapes:
        cards = list(bits(shape.kinds.get(kind, 0)))
        ranks.update((shape.performance[card], shape.priority[card]) for card in cards)
        levels.update(
            (shape.wiring.rank[one][other], shape.wiring.fine[one][other])
            for at, one in enumerate(cards)
            for other in cards[at + 1 :]
        )
    return len(ranks) <= 1, len(levels) <= 1


def _main(pool: Pool) -> str:
    """The cards that hosts are kept for: the pool's GPUs, else its first devices."""
    gpus = [name.name for name in pool.devices if name.type is DeviceType.GPU]
    return (gpus or [name.name for name in pool.devices] or [""])[0]
