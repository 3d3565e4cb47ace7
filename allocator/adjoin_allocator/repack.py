"""Room for one more replica where more counts than which devices are free: what this decision has placed is placed
again.

In come the replicas that one decision has placed in a pool, with parts of devices, whole ones, and what they need of
hosts, and one that fits nowhere; out comes a place for that one, and then others have moved, or None, and then nothing
has. Where they can all be is `packing`'s question. Whoever is served in one of several ways stays with that one. What
was placed by earlier decisions never moves, and neither do gangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from adjoin_allocator.card_rules import UNUSED
from adjoin_allocator.fit import Fit
from adjoin_allocator.lot import Lot, Unit
from adjoin_allocator.model import Device, PlacedShare, Share
from adjoin_allocator.packing import CLOSED, FREE, LENT, Card, Packing, Piece, Site
from adjoin_allocator.place import Ask, Spot
from adjoin_allocator.rulebook import rule_for
from adjoin_allocator.sharing import MILLI, memory_bytes, part
from adjoin_allocator.stock import Booleans
from adjoin_allocator.tariff import copies, grant, take_back
from adjoin_allocator.topology import bits

STEPS = 20
"""Choices of devices that are tried, for each millisecond of the pool's budget."""

NODES = 96
"""Nodes that are looked at together."""

UNITS = 64
"""Replicas that are placed again together."""

Find = Callable[[Unit], Spot | None]
"""The best place for one unit as the walk would choose it now, or None; takes nothing."""


class Repack:
    """Movable replicas of one pool."""

    def __init__(self, lot: Lot, units: Sequence[Unit], find: Find) -> None:
        """`units` are those that have a place and are not in the lot, also those that the walk will place."""
        self._lot = lot
        self._units = units
        self._find = find
        self._walked: dict[Unit, Spot] = {}
        """Where the walk placed those that have moved."""
        self._steps = STEPS * lot.pool.optimise_milliseconds
        self._refused: set[object] = set()

    @property
    def moved(self) -> list[Unit]:
        """All units outside the lot of claims of which one has another place than the walk gave it."""
        touched = {unit.claim.uid for unit, spot in self._walked.items() if unit.spot is not spot}
        return [unit for unit in self._units if unit.claim.uid in touched]

    def room(self, unit: Unit) -> Spot | None:
        """A place for a replica that fits nowhere, when there is one once others have moved: then they have."""
        ask = unit.ask
        key = ask.requests, ask.affinity, ask.profile, ask.host
        if not self._steps or key in self._refused:
            return None
        others = [*self._units, *self._lot.placed]
        spot = self._placed_anew(unit, others) if others and self._countable(ask, others) else None
        if spot is None:
            self._refused.add(key)
        return spot

    def _placed_anew(self, unit: Unit, others: Sequence[Unit]) -> Spot | None:
        # What a part or a partition costs of a quota depends on the card, and nobody may be moved out of a quota.
        if self._lot.pool.tenants and (self._lot.nodes.index.counted or self._uneven([*others, unit])):
            return None
        positions = self._positions(others)
        here = set(positions)
        units = [unit, *(other for other in others if other.place.position in here)]
        packing = Packing(self._lot.placer, [self._piece(each) for each in units], self._sites(positions, units[1:]))
        budget = (self._steps + 1) // 2
        found = packing.solve(budget)
        self._steps -= min(budget, packing.steps)
        return None if found is None else self._apply(unit, list(zip(units, found, strict=True)))

    @staticmethod
    def _piece(unit: Unit) -> Piece:
        now = None if unit.spot is None else (unit.spot.position, unit.spot.fit.masks)
        return Piece(unit.ask, now, unit.rank)

    def _uneven(self, units: Sequence[Unit]) -> bool:
        """Whether cards that parts are taken of differ in size."""
        kinds = {request.kind for unit in units for request in unit.ask.requests if request.share}
        sizes = {
            memory_bytes(view.devices[bit])
            for view in self._lot.nodes.index.views
            for kind in kinds
            for bit in bits(view.shape.kinds.get(kind, 0))
        }
        return len(sizes) > 1

    def _countable(self, ask: Ask, others: Sequence[Unit]) -> bool:
        """Whether numbers alone allow one more replica, whichever cards the others have."""
        if self._lot.nodes.index.counted or not all(all(unit.ask.signature.counts) for unit in others):
            # Who has all that there are of a node has more or fewer elsewhere.
            return True
        if not self._lot.ledger.parts.prices(ask.pool):
            return self._enough(ask)
        for kind in {request.kind for request in ask.requests if request.count}:
            stock, milli, units = self._lot.ledger.parts.appraiser(ask.pool, kind).stock, 0, Counter[int]()
            for request in ask.requests:
                if request.kind == kind:
                    at = None if request.share is None else stock.share_at[request.share.name]
                    each = None if at is None or request.share is None else part(request.share, stock.shares[at])
                    milli += request.count * (MILLI if each is None else each.milli)
                    if at is not None and each is not None:
                        units[at] += request.count * each.units
            open_ = ~stock.closed[:, None]
            mode, used_units, used_milli, _ = stock.used
            divided = open_ & stock.usable
            free = open_ & stock.fresh
            if milli > int(free.sum()) * MILLI + int((MILLI - used_milli)[divided].sum()):
                return False
            # Who has a card whole can have another one, and this one may be worth more parts.
            whole = self._wholes(others, kind, free)
            for at, needed in units.items():
                caps = stock.caps[at][stock.klass]
                there = np.sort(caps[free | divided | whole])[int(whole.sum()) :]
                if needed > int(there.sum()) - int(used_units[divided & (mode == at)].sum()):
                    return False
        return True

    def _enough(self, ask: Ask) -> bool:
        """The same where nothing is divided."""
        nodes, asked = self._lot.nodes, Counter[str]()
        for request in ask.requests:
            asked[request.kind] += request.count
        for kind, count in asked.items():
            free = (
                mask & nodes.index.views[at].shape.kinds.get(kind, 0)
                for at, mask in enumerate(nodes.free)
                if at not in nodes.index.closed
            )
            if sum(mask.bit_count() for mask in free) < count:
                return False
        return True

    def _wholes(self, others: Sequence[Unit], kind: str, like: Booleans) -> Booleans:
        """The cards of a kind that replicas hold which may move."""
        found = np.zeros_like(like)
        for unit in others:
            place = unit.place
            for request, mask in zip(unit.ask.requests, place.fit.masks, strict=True):
                if request.share is None and request.kind == kind:
                    columns = self._lot.ledger.parts.columns(self._lot.pool.name, kind, place.position)
                    found[place.position, [columns.index(bit) for bit in bits(mask)]] = True
        return found

    def _positions(self, others: Sequence[Unit]) -> list[int]:
        """Nodes that are looked at: those where something may move, those first on which least is; then others with
        something to give. Not so many that more than `UNITS` are on them.
        """
        nodes, number = self._lot.nodes, Counter(unit.place.position for unit in others)
        divided = {position for position, _ in self._lot.ledger.parts.holding(self._lot.pool.name)}
        open_ = [
            at
            for at, free in enumerate(nodes.free)
            if at not in nodes.index.closed and (free or at in divided or at in number)
        ]
        found, left = [], UNITS
        for at in sorted(open_, key=lambda at: (not number[at], number[at], at))[:NODES]:
            if number[at] <= left:
                found.append(at)
                left -= number[at]
        return sorted(found)

    def _sites(self, positions: Sequence[int], units: Sequence[Unit]) -> list[Site]:
        """The nodes without these units, and how many devices are split everywhere without them."""
        nodes, name = self._lot.nodes, self._lot.pool.name
        parts, modes = self._lot.ledger.parts.holding(name), self._lot.ledger.parts.mode
        rooms = self._lot.ledger.hosts.rooms(nodes.index)
        cards = {key: Counter(held) for key, held in parts.items()}
        split = Counter(next(iter(held)).name for held in parts.values())
        free = {position: nodes.open[position] for position in positions}
        host = {position: (int(rooms.cpu_milli[position]), int(rooms.memory_bytes[position])) for position in positions}
        for unit in units:
            position, asked = unit.place.position, unit.ask.host
            cpu, memory = host[position]
            host[position] = (cpu + asked.cpu_milli, memory + asked.memory_bytes)
            for request, mask in zip(unit.ask.requests, unit.place.fit.masks, strict=True):
                if request.share is None:
                    free[position] |= mask
                    continue
                for bit in bits(mask):
                    held = cards[position, bit]
                    held[request.share.placed] -= copies(request)
                    if not held.total():
                        del cards[position, bit]
                        split[request.share.name] -= 1
                        if not nodes.outside(position) >> bit & 1:
                            free[position] |= 1 << bit
        sites, shares = [], self._lot.ledger.parts.shares
        for position in positions:
            view, lent = nodes.index.views[position], nodes.outside(position)
            usable = view.offered & ~(nodes.entire(position) & ~free[position])
            now: list[Card] = []
            for bit in range(view.shape.size):
                users = cards.get((position, bit))
                if not usable >> bit & 1:
                    now.append(CLOSED)
                elif users is not None:
                    now.append(_split_card(users, shares, view.devices[bit]))
                elif (mode := modes(name, position, bit)) is not None and mode[1]:
                    now.append((mode[0], UNUSED) if mode[0] in shares else CLOSED)
                elif lent >> bit & 1:
                    now.append(LENT)
                else:
                    now.append(FREE if free[position] >> bit & 1 else CLOSED)
            sites.append(Site(position, view, tuple(now), free[position] >> view.shape.size, host[position], split))
        return sites

    def _apply(self, newcomer: Unit, found: Sequence[tuple[Unit, tuple[int, tuple[int, ...]]]]) -> Spot | None:
        """Moves who has to; whoever has moved, and the newcomer, then gets the best place that is left."""
        placer = self._lot.placer
        meant: dict[Unit, Spot] = {}
        for unit, (position, masks) in found:
            if unit.spot is None or (unit.spot.position, unit.spot.fit.masks) != (position, masks):
                taken = 0
                for mask in masks:
                    taken |= mask
                meant[unit] = Spot(position, Fit((), masks, taken, 0))
        before = {unit: self._lift(unit) for unit in meant if unit is not newcomer}
        for unit, spot in meant.items():
            grant(placer, unit.ask, spot)
        better: dict[Unit, Spot] = {}
        for unit in sorted(meant, key=lambda unit: unit.rank):
            take_back(placer, unit.ask, meant[unit])
            best = self._find(unit)
            # A search that is given up finds nothing, though there is a place.
            if best is not None:
                better[unit] = meant[unit] = best
            grant(placer, unit.ask, meant[unit])
        for unit, spot in meant.items():
            take_back(placer, unit.ask, spot)
        done = len(better) == len(meant)
        for unit, spot in before.items():
            self._put(unit, better[unit] if done else spot)
        return better[newcomer] if done else None

    def _lift(self, unit: Unit) -> Spot:
        if unit in self._lot.walked:
            return self._lot.lift(unit)
        self._walked.setdefault(unit, unit.place)
        spot, unit.spot = unit.place, None
        take_back(self._lot.placer, unit.ask, spot)
        return spot

    def _put(self, unit: Unit, spot: Spot) -> None:
        if unit in self._lot.walked:
            self._lot.put(unit, spot)
        else:
            unit.spot = spot
            grant(self._lot.placer, unit.ask, spot)


def _split_card(users: Counter[PlacedShare], shares: Mapping[str, Share], device: Device) -> Card:
    """A divided card as `packing` knows it; of a share that is gone nobody can have anything."""
    share = shares.get(next(iter(users)).name)
    return CLOSED if share is None else (share.name, rule_for(share, device).use(users.items()))
