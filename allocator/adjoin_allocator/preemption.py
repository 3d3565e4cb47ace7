"""Who has to go so that a claim can be placed: the smallest legal set of victims.

In come a claim that has no place, a ledger in which everything on its way back counts as free, the pool's accounts and
holders; out comes a `Choice`: what each victim loses and where the claim then is, proven by placing it with the victims
gone. Nothing is evicted without that proof, and the ledger is left as it was. Who may go, and which set is the smaller,
is said in `victims`.

A replica needs one node, so its victims, as far as devices are concerned, are there: nodes are looked at best first by
a lower bound of this key, and on each of the few that matter subsets are tried in the order of the key: exact.
Victims elsewhere matter to gangs, and to a tenant that must make room in its quota: while few sets are possible all are
tried in order, else the cheapest nodes are emptied until it fits, and then as much as possible is put back, the most
precious first, and exchanged for what is smaller: such a set has no member that could stay, but may not be the best.
All work is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import combinations, islice, product
from math import prod

from adjoin_allocator.model import Claim, ClaimUID
from adjoin_allocator.nodes import Sort
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.results import Placement
from adjoin_allocator.tenancy import Cost
from adjoin_allocator.victims import (
    Bound,
    Choice,
    Field,
    Ground,
    Law,
    Loss,
    Stock,
    created,
    joined,
    key_of,
    ways,
)

STEPS = 20_000
"""Sets of victims that are looked at in one search on nodes."""

SETS = 4_096
"""While no more sets of victims are possible over all nodes, all of them are tried in order."""

FEW = 64
"""Up to so many victims it is tried to do without some of them, and to find others that lose less."""

PROOFS = 400
"""How often one search tries to place the claim."""

Attempt = Callable[[], Sequence[Placement] | None]
"""Places a claim in the ledger as it stands, or leaves it alone and says None."""


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a replica needs of one sort of node, by counting.

    Attributes:
        counts: So many devices of these: for each request, and for all requests for one device name together.
        kinds: The latter alone.
        union: All devices that it may have.
    """

    counts: tuple[tuple[int, int], ...]
    kinds: tuple[tuple[int, int], ...]
    union: int

    def met(self, free: int) -> bool:
        """Whether enough is free."""
        return all((mask & free).bit_count() >= count for count, mask in self.counts)

    def missing(self, free: int) -> int:
        """Devices that must come free at least."""
        return sum(max(0, count - (mask & free).bit_count()) for count, mask in self.kinds)

    def fewest(self, free: int, masks: Sequence[int]) -> int:
        """How many of these masks must come free at least."""
        fewest = 0
        for count, mask in self.counts:
            missing = count - (mask & free).bit_count()
            claims = 0
            for gain in sorted(((most & mask).bit_count() for most in masks), reverse=True):
                if missing <= 0:
                    break
                missing -= gain
                claims += 1
            fewest = max(fewest, claims)
        return fewest


def _needs(ask: Ask, sort: Sort) -> _Needs:
    counts: list[tuple[int, int]] = []
    kinds: dict[str, tuple[int, int]] = {}
    union = 0
    for request, mask in zip(ask.requests, sort.eligible, strict=True):
        count = mask.bit_count() if request.all_devices else request.count
        before = kinds.get(request.kind, (0, 0))
        kinds[request.kind] = (before[0] + count, before[1] | mask)
        # Of nothing all is not enough.
        counts.append((max(1, count), mask))
        union |= mask
    together = tuple(kinds.values())
    return _Needs(tuple(dict.fromkeys((*counts, *together))), together, union)


class Search:
    """Looks for the victims of one claim, or of one replica of it."""

    def __init__(self, placer: Placer, ask: Ask, claim: Claim, need: Cost, attempt: Attempt, ground: Field) -> None:
        """`need` is what the claim costs its tenant at least, `attempt` places it in the ledger as it stands."""
        self._placer = placer
        self._ask = ask
        self._claim = claim
        self._need = need
        self._attempt = attempt
        self._field = ground
        self._accounts = ground.accounts
        self._holders = ground.holders
        self._ledger = placer.ledger
        self._pool = placer.ledger.pools[ask.pool]
        self._needs: dict[Sort, _Needs] = {}
        self._law = Law(ground, claim, need)
        classes = placer.states(ask).classes
        self._sorts, self._class_of = classes.sorts(ask.question), classes.of
        self._steps = 0
        self._proofs = 0

    def on_nodes(self) -> Choice | None:
        """The smallest set whose devices are needed on one node; for one replica that needs victims for devices."""
        key = self._ground_key()
        ground = self._field.grounds.get(key)
        if ground is None:
            heap = [
                (bound, position) for position in self._holders.nodes if (bound := self._bound(position)) is not None
            ]
            heapify(heap)
            ground = self._field.grounds[key] = Ground(heap, len(self._field.touched))
        for position in self._field.touched[ground.touched :]:
            bound = self._bound(position)
            if bound is not None:
                heappush(ground.heap, (bound, position))
        ground.touched = len(self._field.touched)
        # A bound comes before every key that begins like it.
        heap_now: list[tuple[tuple[object, ...], int, tuple[Loss, ...]]] = [
            ((*bound[:3], (bound[3],)), position, ()) for bound, position in ground.heap
        ]
        while heap_now and self._steps <= STEPS and self._proofs <= PROOFS:
            _, position, losses = heappop(heap_now)
            if not losses:
                found = self._at(position)
                if found is not None:
                    heappush(heap_now, (key_of(found), position, found))
                continue
            choice = self._prove(losses, proven=True)
            if choice is not None:
                return choice
        return None

    def anywhere(self) -> Choice | None:
        """A set of victims wherever they are: for gangs, and for room in a quota."""
        stocks = [stock for uid in self._holders.claims if (stock := self._law.stock(uid)) is not None]
        stocks = [stock for stock in stocks if self._useful(stock)]
        stocks.sort(key=lambda stock: (stock.claim.priority, -created(stock.claim), stock.claim.uid))
        if not stocks:
            return None
        if prod((ways(stock) + 1 for stock in islice(stocks, 13)), start=1) <= SETS and len(stocks) <= 13:
            return self._every(stocks)
        return self._reduced(stocks)

    # One node

    def _ground_key(self) -> tuple[object, ...]:
        claim = self._claim
        apart = claim.uid if claim.uid in self._holders.preemptors else ""
        return self._ask, claim.tenant, claim.priority, apart

    def _state(self, position: int) -> tuple[int, Callable[[int], bool], _Needs]:
        """Free devices of a node, whether a replica fits given what is free, and what it needs by counting."""
        view, sort = self._pool.index.views[position], self._sorts[self._class_of[position]]
        form, fits = self._ask.form, self._placer.fitter.fits
        needs = self._needs.get(sort)
        if needs is None:
            needs = self._needs[sort] = _needs(self._ask, sort)
        return self._pool.free[position], lambda free: fits(form, (view.shape, sort, free)), needs

    def _offered(self, position: int) -> int:
        """What would be free on a node if everybody had gone."""
        return self._pool.index.views[position].offered & ~self._field.bound.get(position, 0)

    def _bound(self, position: int) -> Bound | None:
        """A lower bound of the key of victims on a node, or None when all of them would not do. It is made of what each
        holder has there, whatever else would go with it."""
        if position in self._pool.index.closed:
            return None
        free, fits, needs = self._state(position)
        useful = self._offered(position) & needs.union
        gains: dict[ClaimUID, tuple[int, float, int, bool]] = {}
        for holding in self._holders.nodes.get(position, ()):
            claim, mask = holding.claim, holding.mask & useful
            if not mask or holding.back or not self._law.may(claim):
                continue
            before = gains.get(claim.uid)
            whole = before is None
            gains[claim.uid] = (claim.priority, -created(claim), mask if before is None else mask | before[2], whole)
        here = sorted(gains.values())
        everything = free
        for place, (priority, _, mask, _) in enumerate(here):
            everything |= mask
            last = place + 1 == len(here) or here[place + 1][0] > priority
            if not last or not needs.met(everything) or not fits(everything):
                continue
            some = here[: place + 1]
            devices = max(needs.missing(free), 1)
            alone = [
                (mask.bit_count() if whole else devices, age) for _, age, mask, whole in some if needs.met(free | mask)
            ]
            if alone:
                return priority, 1, *min(alone)
            claims = max(needs.fewest(free, [mask for _, _, mask, _ in some]), 2)
            # So many of them go: of the youngest so many, the oldest is no younger than this.
            ages = sorted(age for _, age, _, _ in some)
            return priority, claims, devices, ages[claims - 1]
        return None

    def _here(self, position: int, eligible: int) -> list[tuple[Stock, list[Loss], int]]:
        """Who could lose something useful on a node: how, and what comes free there at most."""
        useful = self._offered(position) & eligible
        found = []
        for uid in dict.fromkeys(holding.claim.uid for holding in self._holders.nodes.get(position, ())):
            stock = self._law.stock(uid)
            if stock is None:
                continue
            options = stock.options([single for single in stock.singles if single.at(position) & useful])
            most = 0
            for option in options:
                most |= option.at(position) & useful
            if most:
                found.append((stock, options, most))
        return found

    def _at(self, position: int) -> tuple[Loss, ...] | None:
        """The best legal set on one node with which a replica fits there."""
        free, fits, needs = self._state(position)
        offered = self._offered(position)
        here = self._here(position, needs.union)
        for level in sorted({stock.claim.priority for stock, _, _ in here}):
            some = [each for each in here if each[0].claim.priority <= level]
            most = free
            for each in some:
                most |= each[2]
            if not needs.met(most) or not fits(most):
                continue
            for claims in range(max(1, needs.fewest(free, [each[2] for each in some])), len(some) + 1):
                sets: list[tuple[Loss, ...]] = []
                for group in combinations(some, claims):
                    most = free
                    for each in group:
                        most |= each[2]
                    self._steps += 1
                    if self._steps > STEPS:
                        return None
                    if needs.met(most):
                        sets += product(*(each[1] for each in group))
                        if len(sets) > STEPS:
                            return None
                for losses in sorted(sets, key=key_of):
                    left = free
                    for loss in losses:
                        left |= loss.at(position) & offered
                    self._steps += 1
                    if self._steps > STEPS:
                        return None
                    if needs.met(left) and fits(left) and self._law.legal(losses, self._need):
                        return losses
        return None

    # All nodes

    def _useful(self, stock: Stock) -> bool:
        costs = [stock.whole] if stock.whole is not None else stock.singles
        return any(loss.cost.get(kind) for loss in costs if loss is not None for kind in self._need)

    def _every(self, stocks: Sequence[Stock]) -> Choice | None:
        """All sets in the order of the key."""
        all_ways = [[None, *stock.options(stock.singles)] for stock in stocks]
        sets = (tuple(loss for loss in some if loss is not None) for some in product(*all_ways))
        legal = [losses for losses in sets if losses and self._law.legal(losses, self._need)]
        for losses in sorted(legal, key=key_of):
            if self._proofs > PROOFS:
                return None
            choice = self._prove(losses, proven=True)
            if choice is not None:
                return choice
        return None

    def _reduced(self, stocks: Sequence[Stock]) -> Choice | None:
        """The cheapest victims until it fits, then as many as possible put back."""
        rank = self._ranks()
        units: list[tuple[tuple[object, ...], Loss]] = []
        for stock in stocks:
            some = stock.singles[: stock.spare]
            for last, loss in [(0, single) for single in some] + ([(1, stock.whole)] if stock.whole else []):
                first = min((rank.get(position, len(rank)) for position, _ in loss.places), default=len(rank))
                age = -created(loss.claim)
                order = (loss.claim.priority, last, first, -loss.devices, age, loss.claim.uid, loss.replicas)
                units.append((order, loss))
        units.sort(key=lambda unit: unit[0])
        losses = self._law.allowed([loss for _, loss in units])
        if not losses:
            return None
        few = self._prefix(losses)
        if few is None:
            return None
        kept = self._used(losses[:few])
        if len(kept) <= FEW:
            kept = self._swapped(self._put_back(kept), losses)
        return self._prove(joined(kept), proven=False)

    def _ranks(self) -> dict[int, int]:
        """Nodes by what victims there cost for one replica, the cheapest first."""
        bounds = [(bound, position) for position in self._holders.nodes if (bound := self._bound(position)) is not None]
        return {position: place for place, (_, position) in enumerate(sorted(bounds))}

    def _prefix(self, losses: Sequence[Loss]) -> int | None:
        """The fewest of the first ones that suffice; None when all do not."""
        low, high = 0, 1
        while not self._suffices(losses[:high]):
            if high >= len(losses) or self._proofs > PROOFS:
                return None
            low, high = high, min(len(losses), high * 2)
        while high - low > 1:
            middle = (low + high) // 2
            if self._suffices(losses[:middle]):
                high = middle
            else:
                low = middle
        return high

    def _used(self, losses: Sequence[Loss]) -> list[Loss]:
        """Those whose devices the claim then has, and as many of its own tenant as its quota asks for besides."""
        choice = self._prove(joined(losses), proven=False)
        assert choice is not None, "it was found to suffice"
        masks: dict[int, int] = {}
        for device in (device for placement in choice.placements for device in placement.devices):
            found = self._placer.nodes.locate(device.id)
            assert found is not None, "a device was placed that is not there"
            masks[found[1]] = masks.get(found[1], 0) | 1 << found[2]
        used = [
            loss
            for loss in losses
            if any(mask & masks.get(at, 0) for at, mask in loss.places)
            or any(masks.get(at, 0) >> bit & 1 for at, bit, _ in loss.parts)
        ]
        if used and self._suffices(used):
            return used
        chosen = set(map(id, used))
        own = [loss for loss in losses if id(loss) not in chosen and self._field.one_tenant(self._claim, loss.claim)]
        low, high = 0, len(own)
        while low < high:
            middle = (low + high) // 2
            some = [*used, *own[:middle]]
            if some and self._law.legal(joined(some), self._need):
                high = middle
            else:
                low = middle + 1
        some = [*used, *own[:high]]
        return some if some and self._suffices(some) else list(losses)

    def _swapped(self, kept: Sequence[Loss], losses: Sequence[Loss]) -> list[Loss]:
        """With victims that lose fewer devices instead, where these do as well."""
        best = list(kept)
        smallest = sorted(losses, key=lambda loss: (loss.devices, -created(loss.claim), loss.claim.uid))
        for at, loss in enumerate(best):
            there = {other.claim.uid for other in best}
            smaller = (one for one in smallest if one.devices < loss.devices and one.claim.uid not in there)
            for one in islice(smaller, FEW):
                if one.claim.priority > loss.claim.priority or self._proofs > PROOFS:
                    continue
                if self._suffices([*best[:at], one, *best[at + 1 :]]):
                    best[at] = one
                    break
        return best

    def _put_back(self, losses: Sequence[Loss]) -> list[Loss]:
        """Without those that are not needed: the last ones are tried first, in blocks that halve."""
        kept = list(losses)
        block = len(kept)
        while block:
            end = len(kept)
            while end > 0 and self._proofs <= PROOFS:
                start = max(0, end - block)
                without = kept[:start] + kept[end:]
                if without and self._suffices(without):
                    kept = without
                end = start
            block //= 2
        return kept

    def _suffices(self, losses: Sequence[Loss]) -> bool:
        return self._prove(joined(losses), proven=False) is not None

    # What is legal, and what suffices

    def _prove(self, losses: tuple[Loss, ...], proven: bool) -> Choice | None:
        """Places the claim with the victims gone."""
        if not self._law.legal(losses, self._need):
            return None
        self._proofs += 1
        mark = self._ledger.checkpoint()
        bound = self._field.bound
        for loss in losses:
            for position, mask in loss.places:
                self._ledger.vacate(self._ask.pool, position, mask & ~bound.get(position, 0), loss.claim.host)
            for position, bit, share in loss.parts:
                if not bound.get(position, 0) >> bit & 1:
                    self._ledger.vacate_part(self._ask.pool, position, bit, share, back=False)
        placements = self._attempt()
        self._ledger.roll_back(mark)
        if placements is None:
            return None
        cost = self._ledger.cost(device for placement in placements for device in placement.devices)
        if cost != self._need and not self._law.legal(losses, cost):
            return None
        return Choice(losses, tuple(placements), key_of(losses), proven)
