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
from heapq import heapify, heappop, heappush, nsmallest
from itertools import combinations, islice, product
from math import prod
from operator import itemgetter

from adjoin_allocator.headcount import Headcount, Needs, needs_of
from adjoin_allocator.model import Claim, ClaimUID
from adjoin_allocator.nodes import Sort, State
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

MANY = 14
"""So many holders have more sets among them than that."""

FEW = 64
"""Up to so many victims it is tried to do without some of them, and to find others that lose less."""

PROOFS = 400
"""How often one search tries to place the claim."""

Attempt = Callable[[], Sequence[Placement] | None]
"""Places a claim in the ledger as it stands, or leaves it alone and says None."""


class _Queue:
    """Losses in the order in which they are considered, made level by level as they are needed.

    Attributes:
        losses: Those that are known by now.
    """

    def __init__(self, levels: Sequence[list[ClaimUID]], units: Callable[[Sequence[ClaimUID]], list[Loss]]) -> None:
        self.losses: list[Loss] = []
        self._levels = iter(levels)
        self._units = units

    def reach(self, number: int) -> int:
        """Has so many of them known, if there are so many; how many of these there are."""
        while len(self.losses) < number:
            level = next(self._levels, None)
            if level is None:
                return len(self.losses)
            self.losses += self._units(level)
        return number


class Search:
    """Looks for the victims of one claim, or of one replica of it."""

    def __init__(
        self, placer: Placer, ask: Ask, claim: Claim, need: Cost, attempt: Attempt, ground: Field, replicas: int = 0
    ) -> None:
        """`need` is what the claim costs its tenant at least, `attempt` places it in the ledger as it stands: so many
        replicas of `ask` at least, where that is known.
        """
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
        self._needs: dict[Sort, Needs] = {}
        self._fitting: dict[State, bool] = {}
        self._law = Law(ground, claim, need)
        classes = placer.states(ask).classes
        self._sorts, self._class_of = classes.sorts(ask.question), classes.of
        self._steps = 0
        self._proofs = 0
        self._replicas = replicas
        self._counted: Headcount | None = None
        self._rank: dict[int, int] | None = None
        self._left: dict[str, dict[str, int]] = {}
        """What other tenants lose of what was looked at."""

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
        found = (stock for uid in self._holders.claims if (stock := self._law.stock(uid)) is not None)
        stocks = list(islice((stock for stock in found if self._useful(stock)), MANY))
        if not stocks:
            return None
        if len(stocks) < MANY and prod(ways(stock) + 1 for stock in stocks) <= SETS:
            stocks.sort(key=lambda stock: (stock.claim.priority, -created(stock.claim), stock.claim.uid))
            return self._every(stocks)
        return self._reduced()

    # One node

    def _ground_key(self) -> tuple[object, ...]:
        claim = self._claim
        apart = claim.uid if claim.uid in self._holders.preemptors else ""
        return self._ask, claim.tenant, claim.priority, apart

    def _state(self, position: int) -> tuple[int, Callable[[int], bool], Needs]:
        """Free devices of a node, whether a replica fits given what is free, and what it needs by counting."""
        view, sort = self._pool.index.views[position], self._sorts[self._class_of[position]]
        needs = self._needs_at(sort)

        def fits(free: int) -> bool:
            state = (view.shape, sort, free)
            found = self._fitting.get(state)
            if found is None:
                found = self._fitting[state] = self._placer.fitter.fits(self._ask.form, state)
            return found

        return self._pool.open[position], fits, needs

    def _offered(self, position: int) -> int:
        """What would be free on a node if everybody had gone."""
        return self._pool.index.views[position].offered & ~self._field.bound.get(position, 0)

    def _useful_of(self, position: int, needs: Needs) -> int:
        """Devices of a node that would help if they came free: those that are needed, and those that share counters
        with them.
        """
        return self._offered(position) & self._pool.index.views[position].shape.rivals(needs.union)

    def _bound(self, position: int) -> Bound | None:
        """A lower bound of the key of victims on a node, or None when all of them would not do. It is made of what each
        holder has there, whatever else would go with it."""
        if position in self._pool.index.closed:
            return None
        free, fits, needs = self._state(position)
        useful = self._useful_of(position, needs)
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
            if not last or not fits(everything):
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

    def _here(self, position: int, useful: int) -> list[tuple[Stock, list[Loss], int]]:
        """Who could lose something useful on a node: how, and what comes free there at most."""
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
        here = self._here(position, self._useful_of(position, needs))
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
        if self._pool.index.counted:
            # What has another name may be on the same cards.
            return True
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

    def _reduced(self) -> Choice | None:
        """The cheapest victims until it fits, then as many as possible put back."""
        queue = _Queue(self._levels(), self._units)
        few = self._prefix(queue)
        if few is None:
            return None
        losses = queue.losses
        kept = self._used(losses[:few])
        if len(kept) <= FEW:
            kept = self._swapped(self._put_back(kept), losses)
        return self._prove(joined(kept), proven=False)

    def _levels(self) -> list[list[ClaimUID]]:
        """Who may have to go, by base priority, the lowest first."""
        levels: dict[int, list[ClaimUID]] = {}
        for uid, holdings in self._holders.claims.items():
            if self._law.may(holdings[0].claim):
                levels.setdefault(holdings[0].claim.priority, []).append(uid)
        return [levels[priority] for priority in sorted(levels)]

    def _units(self, level: Sequence[ClaimUID]) -> list[Loss]:
        """What claims of one base priority can lose, the cheapest first."""
        if self._rank is None:
            self._rank = self._ranks()
        rank = self._rank
        units: list[tuple[tuple[object, ...], Loss]] = []
        for stock in map(self._law.stock, level):
            if stock is None or not self._useful(stock):
                continue
            some = stock.singles[: stock.spare]
            for last, loss in [(0, single) for single in some] + ([(1, stock.whole)] if stock.whole else []):
                first = min([rank.get(position, len(rank)) for position, _ in loss.places], default=len(rank))
                order = (last, first, -loss.devices, -created(loss.claim), loss.claim.uid, loss.replicas)
                units.append((order, loss))
        units.sort(key=itemgetter(0))
        return self._law.allowed([loss for _, loss in units], self._left)

    def _ranks(self) -> dict[int, int]:
        """Nodes by what victims there cost for one replica, the cheapest first."""
        bounds = [(bound, position) for position in self._holders.nodes if (bound := self._bound(position)) is not None]
        return {position: place for place, (_, position) in enumerate(sorted(bounds))}

    def _prefix(self, queue: _Queue) -> int | None:
        """The fewest of the first ones that suffice; None when all do not."""
        low, high = 0, queue.reach(1)
        if not high:
            return None
        while not self._suffices(queue.losses[:high]):
            further = queue.reach(high * 2)
            if high >= further or self._proofs > PROOFS:
                return None
            low, high = high, further
        while high - low > 1:
            middle = (low + high) // 2
            if self._suffices(queue.losses[:middle]):
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
        order = [(loss.devices, -created(loss.claim), loss.claim.uid, at) for at, loss in enumerate(losses)]
        # Those that are in the set already are passed over.
        smallest = [losses[at] for *_, at in nsmallest(len(best) + FEW, order)]
        for at, loss in enumerate(best):
            there = {other.claim.uid for other in best}
            smaller = (one for one in smallest if one.devices < loss.devices and one.claim.uid not in there)
            others = [*best[:at], *best[at + 1 :]]
            enough = self._headcount.beside(others)
            for one in islice(smaller, FEW):
                if one.claim.priority > loss.claim.priority or self._proofs > PROOFS:
                    continue
                if enough(one) and self._suffices([*best[:at], one, *best[at + 1 :]]):
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
        return self._headcount.enough(losses) and self._prove(joined(losses), proven=False) is not None

    @property
    def _headcount(self) -> Headcount:
        """What counting says of the ledger as it stands when nobody has gone."""
        if self._counted is None:
            self._counted = Headcount(self._placer, self._ask, self._replicas, self._needs_at, self._offered)
        return self._counted

    def _needs_at(self, sort: Sort) -> Needs:
        needs = self._needs.get(sort)
        if needs is None:
            needs = self._needs[sort] = needs_of(self._ask, sort)
        return needs

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
