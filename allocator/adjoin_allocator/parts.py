"""Who holds parts of devices, and what is left of hosts: the side of the ledger that masks cannot tell.

In come the pools of a ledger, the nodes and shares of a snapshot, and claims that come and go; out come what is in use
of each divided device and each host, an `Appraiser` for each kind of card, and the wish of a request. A device of which
anybody holds a part is not free as a whole: `Parts` tells the pool's masks when the first part is given and when the
last one is back. Nothing here chooses.

Cards are put into arrays (`stock`) when they are first asked about, for pools in which that matters: where a share
divides devices, or claims ask for host resources that nodes limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from adjoin_allocator.alternatives import most_wanted
from adjoin_allocator.cel import Selector
from adjoin_allocator.fractions import Appraiser, Demand
from adjoin_allocator.model import Claim, HostAsk, Node, PlacedShare, Pool, Request, Share
from adjoin_allocator.nodes import NodeView, PoolIndex
from adjoin_allocator.prices import Pricer
from adjoin_allocator.sharing import DIVISIBLE, memory_bytes, part
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.stock import NO_LIMIT, Booleans, Stock, Wish
from adjoin_allocator.terms import DeviceType
from adjoin_allocator.topology import bits

_KIB = 1024


class Masks(Protocol):
    """What parts need of a pool's ledger."""

    index: PoolIndex
    free: list[int]
    watcher: Callable[[int], None] | None

    def divide(self, position: int, mask: int, back: bool, add: bool) -> None:
        """These devices are divided (all parts of them on their way back, or not), or no longer."""

    def entire(self, position: int) -> int:
        """Devices of a node that somebody has as wholes."""


@dataclass(slots=True)
class _Card:
    """Holders of parts of one device, and of these who are on their way back."""

    users: int = 0
    back: int = 0

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
    alike: tuple[bool, bool] = (False, False)
    """All of its cards serve equally well; all pairs of them are equally near."""
    appraiser: Appraiser | None = None

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
        hosted: Replicas of its claims that ask for host resources.
        limited: Nodes of it that limit them.
    """

    masks: Masks
    shares: dict[str, Share]
    cards: dict[tuple[int, int], _Card] = field(default_factory=dict)
    sides: dict[str, _Side] = field(default_factory=dict)
    held: dict[tuple[int, int], dict[PlacedShare, int]] = field(default_factory=dict)
    hosted: int = 0
    limited: int = 0

    def side(self, kind: str) -> _Side:
        """Its cards of this name."""
        found = self.sides.get(kind)
        if found is None:
            found = self.sides[kind] = _Side()
        return found


class Parts:
    """Parts and hosts of all pools of a ledger."""

    def __init__(self) -> None:
        self.shares: Mapping[str, Share] = {}
        self._pools: dict[str, _PoolParts] = {}
        self._nodes: Mapping[str, Node] = {}
        self._used: dict[str, tuple[int, int]] = {}
        """By node what the replicas of claims need of it whose pods are not bound yet: thousandths, bytes."""
        self._pricer = Pricer()

    def same(self, snapshot: Snapshot) -> bool:
        """Whether the shares are still those that it was brought to."""
        old, new = self.shares, snapshot.shares
        return old is new or (len(old) == len(new) and all(old.get(name) is share for name, share in new.items()))

    def reset(self, snapshot: Snapshot, pools: Mapping[str, Masks]) -> None:
        """Nobody holds anything of these pools."""
        self.shares = snapshot.shares
        self._used = {}
        self._pools = {}
        ordered = sorted(snapshot.shares.values(), key=lambda share: share.name)
        for name, masks in pools.items():
            shares = {share.name: share for share in ordered if share.pool == name and share.mode in DIVISIBLE}
            self._pools[name] = _PoolParts(masks, shares)
            masks.watcher = None
        self._nodes = {}
        self.see(snapshot)

    def see(self, snapshot: Snapshot) -> None:
        """Brings hosts to what the nodes of the snapshot offer."""
        self.shares = snapshot.shares
        old, new = self._nodes, snapshot.nodes
        if old is new:
            return
        self._nodes = new
        for pool in self._pools.values():
            index = pool.masks.index
            pool.limited = 0
            for position, view in enumerate(index.views):
                node = new.get(view.name)
                pool.limited += node is not None and (node.cpu_milli is not None or node.memory_bytes is not None)
                if node is not old.get(view.name):
                    self._refresh(pool, position, view.name)

    def prices(self, pool: str) -> bool:
        """Whether places in this pool are told apart by prices: a share divides its devices, or claims ask for host
        resources that its nodes limit.
        """
        found = self._pools[pool]
        return bool(found.shares) or bool(found.hosted and found.limited)

    # Holding

    def hold(self, pool: str, position: int, bit: int, share: PlacedShare, back: bool, add: bool) -> None:
        """Somebody holds a part of a device, or no longer does."""
        parts, sign = self._pools[pool], 1 if add else -1
        key = (position, bit)
        card = parts.cards.setdefault(key, _Card())
        before = card.state
        card.users += sign
        card.back += sign * back
        if card.state != before:
            if before is not None:
                parts.masks.divide(position, 1 << bit, before, add=False)
            if card.state is not None:
                parts.masks.divide(position, 1 << bit, card.state, add=True)
        held = parts.held.setdefault(key, {})
        held[share] = held.get(share, 0) + sign
        if not held[share]:
            del held[share]
        if not card.users:
            del parts.cards[key], parts.held[key]
        kind = parts.masks.index.views[position].devices[bit].kind
        side = parts.sides.get(kind)
        if side is not None and side.appraiser is not None:
            self._use(side, side.appraiser.stock, position, bit, share, sign)

    @staticmethod
    def _use(side: _Side, stock: Stock, position: int, bit: int, share: PlacedShare, times: int) -> None:
        at = stock.share_at.get(share.name)
        if at is not None:
            column = side.columns[position].index(bit)
            for _ in range(abs(times)):
                stock.use(position, column, at, part(share), 1 if times > 0 else -1)

    def host(self, node: str, asked: HostAsk, add: bool) -> None:
        """A replica needs this of a host, or no longer does."""
        if not (asked.cpu_milli or asked.memory_bytes):
            return
        cpu, memory = self._used.get(node, (0, 0))
        sign = 1 if add else -1
        now = cpu + sign * asked.cpu_milli, memory + sign * asked.memory_bytes
        if any(now):
            self._used[node] = now
        else:
            self._used.pop(node, None)
        for pool in self._pools.values():
            position = pool.masks.index.position.get(node)
            if position is not None:
                self._refresh(pool, position, node)

    def claim(self, claim: Claim, add: bool) -> None:
        """A claim of the snapshot, with what its replicas need of hosts and what it wishes for."""
        sign = 1 if add else -1
        for replica in claim.placed:
            if not replica.bound:
                self.host(replica.node, claim.host, add)
        pool = self._pools.get(claim.pool)
        if pool is None or claim.deleting:
            return
        if claim.host.cpu_milli or claim.host.memory_bytes:
            pool.hosted += sign * claim.replicas
        for kind, wish in self._wishes(pool, most_wanted(claim.requests), claim.host):
            pool.side(kind).demand.add(wish, sign * claim.replicas)

    def left(self, node: str) -> tuple[int, int]:
        """What is left of a host: thousandths of cores, and bytes; `NO_LIMIT` of what it does not limit."""
        found = self._nodes.get(node)
        cpu, memory = self._used.get(node, (0, 0))
        if found is None:
            return NO_LIMIT, NO_LIMIT
        return (
            NO_LIMIT if found.cpu_milli is None else found.cpu_milli - found.cpu_used_milli - cpu,
            NO_LIMIT if found.memory_bytes is None else found.memory_bytes - found.memory_used_bytes - memory,
        )

    def _refresh(self, pool: _PoolParts, position: int, node: str) -> None:
        for side in pool.sides.values():
            if side.appraiser is not None:
                cpu, memory = self.left(node)
                side.appraiser.stock.set_host(position, cpu, _kib(memory))

    # Wishing

    def wish(self, pool: str, requests: tuple[Request, ...], host: HostAsk) -> tuple[str, Wish]:
        """The kind of card and the wish that a replica is priced by: those of its cards that the host is needed for."""
        parts = self._pools[pool]
        for kind, wish in self._wishes(parts, requests, host):
            if wish.cpu_milli or wish.memory_kib or not (host.cpu_milli or host.memory_bytes):
                return kind, wish
        kind = _main(parts.masks.index.pool)
        return kind, Wish(0, cpu_milli=host.cpu_milli, memory_kib=-(-host.memory_bytes // _KIB))

    def _wishes(self, pool: _PoolParts, requests: tuple[Request, ...], host: HostAsk) -> list[tuple[str, Wish]]:
        """What a replica wishes for, request by request; the host is needed for its GPUs, else for its first devices.
        A request for all devices of a node wishes for no number of them.
        """
        types = {name.name: name.type for name in pool.masks.index.pool.devices}
        known = [request for request in requests if request.kind in types and request.count > 0]
        main = next(
            (request for request in known if types[request.kind] is DeviceType.GPU), known[0] if known else None
        )
        found = []
        for request in known:
            share = request.share
            found.append(
                (
                    request.kind,
                    Wish(
                        count=request.count,
                        share="" if share is None else share.name,
                        part=None if share is None else part(share),
                        together=request.same_device and share is not None,
                        only=pool.side(request.kind).only(request.selectors),
                        cpu_milli=host.cpu_milli if request is main else 0,
                        memory_kib=-(-host.memory_bytes // _KIB) if request is main else 0,
                    ),
                )
            )
        return found

    # Appraising

    def appraiser(self, pool: str, kind: str) -> Appraiser:
        """Who knows what the cards of this kind cost, brought up to date."""
        parts = self._pools[pool]
        side = parts.side(kind)
        if side.appraiser is None:
            self._stock(parts, kind, side)
        appraiser = side.appraiser
        assert appraiser is not None
        views, stock = parts.masks.index.views, appraiser.stock
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
        side.alike = _alike(masks.index, kind)
        memory = [
            [memory_bytes(view.devices[bit]) or 0 for bit in columns]
            for view, columns in zip(views, side.columns, strict=True)
        ]
        shares = [share for share in parts.shares.values() if share.kind == kind]
        stock = Stock(memory, shares)
        stock.selected = [self._matching(stock, side, views, kind, share.selectors) for share in shares]
        side.appraiser = Appraiser(stock, side.demand, self._pricer)
        for position, view in enumerate(views):
            stock.closed[position] = position in masks.index.closed
            cpu, room = self.left(view.name)
            stock.set_host(position, cpu, _kib(room))
        for (position, bit), held in parts.held.items():
            if views[position].devices[bit].kind == kind:
                for share, times in held.items():
                    self._use(side, stock, position, bit, share, times)

        def watch(position: int) -> None:
            for one in parts.sides.values():
                if one.appraiser is not None:
                    _look(masks, one, one.appraiser.stock, position)

        for position in range(len(views)):
            _look(masks, side, stock, position)
        masks.watcher = watch

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


def _look(masks: Masks, side: _Side, stock: Stock, position: int) -> None:
    """Takes over which cards of a node are free, and which may be given in parts."""
    columns = side.columns[position]
    free = masks.free[position]
    offered = masks.index.views[position].offered & ~masks.entire(position)
    stock.usable[position, : len(columns)] = [bool(offered >> bit & 1) for bit in columns]
    stock.set_free(position, [column for column, bit in enumerate(columns) if free >> bit & 1])


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


def _kib(amount: int) -> int:
    return amount if amount == NO_LIMIT else amount // _KIB
