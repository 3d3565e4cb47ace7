"""Who has to go so that a claim can be placed: the smallest legal set of victims.

In come a claim that has no place, a ledger in which everything on its way back counts as free, the pool's accounts and
holders; out comes a `Choice`: what each victim loses and where the claim then is, proven by placing it with the victims
gone. Nothing is evicted without that proof, and the ledger is left as it was.

Who may be sent away (design §3.3, semantics §6):

* in one tenant, claims of lower base priority (`withinTenant: LowerPriority`);
* claims of a tenant that holds more than its quota of a device name that the claim asks for and the victim has, in an
  order in which that is still so for the last of them, by a tenant that is within its quota in every device name when
  the claim is placed and all victims are gone (`reclaim: Any`, or of lower base priority);
* nobody that is `preemptible: false`, that is on its way back already, that has not run for `minRuntime`, or that was
  evicted for this very claim in the last ten minutes. A claim that holds nothing is nobody's victim.

A gang goes whole, or down to `minReplicas`; replicas of a claim without gang go one by one.

Which set: the lowest highest base priority among victims, the fewest claims, the fewest devices, the youngest (of the
two sets' oldest victims the younger is lost, and so on), the smaller UIDs, the higher replica indexes.

A replica needs one node, so its victims, as far as devices are concerned, are there: nodes are looked at best first by
a lower bound of this key, and on each of the few that matter subsets are tried in the order of the key: exact.
Victims elsewhere matter to gangs, and to a tenant that must make room in its quota: while few sets are possible all are
tried in order, else the cheapest nodes are emptied until it fits, and then as much as possible is put back, the most
precious first. All work is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import combinations, islice, product
from math import inf, prod

from adjoin_allocator.holders import Holders, Holding
from adjoin_allocator.model import Claim, ClaimUID
from adjoin_allocator.nodes import Sort
from adjoin_allocator.place import Ask, Placer
from adjoin_allocator.results import Placement
from adjoin_allocator.tenancy import WHOLE, Accounts, Cost, added
from adjoin_allocator.terms import Reclaim

SAME_AGAIN = 600.0
"""Seconds in which a claim is not evicted twice for the same preemptor (design §3.3)."""

STEPS = 20_000
"""Sets of victims that are looked at in one search on nodes."""

SETS = 4_096
"""While no more sets of victims are possible over all nodes, all of them are tried in order."""

PROOFS = 400
"""How often one search tries to place the claim."""

MEMBERS = 6
"""Of so many replicas of a claim on one node every subset may go; of more any one, and the last ones together."""

Attempt = Callable[[], Sequence[Placement] | None]
"""Places a claim in the ledger as it stands, or leaves it alone and says None."""

Key = tuple[int, int, int, tuple[float, ...], tuple[str, ...], tuple[tuple[int, ...], ...]]
"""What a set of victims costs: highest priority, claims, devices, ages, UIDs, replicas."""

_Bound = tuple[int, int, int, float]
"""A lower bound of a key: highest priority, claims, devices, and how young the oldest is at most."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """What one victim loses.

    Attributes:
        replicas: Their indexes.
        places: Position and devices.
        devices: How many these are.
    """

    claim: Claim
    replicas: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    devices: int
    cost: Cost

    def at(self, position: int) -> int:
        """What it loses on one node."""
        mask = 0
        for where, devices in self.places:
            if where == position:
                mask |= devices
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class Stock:
    """What one claim can lose.

    Attributes:
        singles: Replicas that can go by themselves, the highest index first.
        spare: How many of these at most.
        whole: What is lost if it is more.
    """

    claim: Claim
    singles: tuple[Loss, ...]
    spare: int
    whole: Loss | None

    def options(self, singles: Sequence[Loss]) -> list[Loss]:
        """Every way in which it can lose some of `singles`, or everything."""
        most = min(self.spare, len(singles))
        sizes: Iterable[Sequence[Loss]]
        if len(singles) <= MEMBERS:
            sizes = (some for size in range(1, most + 1) for some in combinations(singles, size))
        else:
            ends = (singles[:size] for size in range(2, most + 1))
            sizes = [*([one] for one in singles), *ends] if most else []
        found = [_merged(some) for some in sizes]
        return found if self.whole is None else [*found, self.whole]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Victims, and where the claim is when they are gone.

    Attributes:
        proven: No smaller set exists; else the work allowed did not suffice to tell.
    """

    losses: tuple[Loss, ...]
    placements: tuple[Placement, ...]
    key: Key
    proven: bool


@dataclass(slots=True, eq=False)
class Ground:
    """Bounds of what victims cost on each node, for equal questions of one decision. A bound stays one while nothing
    becomes free; where something does, the node is looked at again.
    """

    heap: list[tuple[_Bound, int]]
    touched: int = 0
    """How many of the touched nodes are in it."""


@dataclass(slots=True, eq=False)
class Field:
    """What all searches in one pool of one decision share.

    Attributes:
        evicted: Replicas that go already, by claim.
        bound: By position devices that are held for somebody, whoever has them now.
        touched: Positions at which something may have become free, in the order in which that happened.
    """

    holders: Holders
    accounts: Accounts
    now: float
    evicted: dict[ClaimUID, set[int]] = field(default_factory=dict)
    bound: Mapping[int, int] = field(default_factory=dict)
    touched: list[int] = field(default_factory=list)
    grounds: dict[tuple[object, ...], Ground] = field(default_factory=dict)

    def one_tenant(self, one: Claim, other: Claim) -> bool:
        """Whether two claims are of one tenant; without tenants all are."""
        return not self.accounts.pool.tenants or one.tenant == other.tenant

    def record(self, choice: Choice) -> None:
        """The victims go."""
        for loss in choice.losses:
            self.evicted.setdefault(loss.claim.uid, set()).update(loss.replicas)
            self.accounts.evict(loss.claim.tenant, loss.cost)
            self.touched += (position for position, _ in loss.places)


def may_evict(pool_field: Field, preemptor: Claim, victim: Claim) -> bool:
    """Whether base priority and tenants allow it, apart from how much the tenants hold and what the victim has."""
    rules = pool_field.accounts.pool.preemption
    lower = victim.priority < preemptor.priority
    if pool_field.one_tenant(preemptor, victim):
        return rules.within_tenant and lower
    return rules.reclaim is Reclaim.ANY or (rules.reclaim is Reclaim.LOWER_PRIORITY and lower)


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
        self._sorts = placer.sorts(ask)
        self._needs: dict[Sort, _Needs] = {}
        self._allowed_by: dict[tuple[str, int], bool] = {}
        self._stocks: dict[ClaimUID, Stock | None] = {}
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
                    heappush(heap_now, (_key(found), position, found))
                continue
            choice = self._prove(losses, proven=True)
            if choice is not None:
                return choice
        return None

    def anywhere(self) -> Choice | None:
        """A set of victims wherever they are: for gangs, and for room in a quota."""
        stocks = [stock for uid in self._holders.claims if (stock := self._stock(uid)) is not None]
        stocks = [stock for stock in stocks if self._useful(stock)]
        stocks.sort(key=lambda stock: (stock.claim.priority, -_created(stock.claim), stock.claim.uid))
        if not stocks:
            return None
        if prod((_ways(stock) + 1 for stock in islice(stocks, 13)), start=1) <= SETS and len(stocks) <= 13:
            return self._every(stocks)
        return self._reduced(stocks)

    # One node

    def _ground_key(self) -> tuple[object, ...]:
        claim = self._claim
        apart = claim.uid if claim.uid in self._holders.preemptors else ""
        return self._ask.requests, self._ask.affinity, claim.tenant, claim.priority, apart

    def _state(self, position: int) -> tuple[int, Callable[[int], bool], _Needs]:
        """Free devices of a node, whether a replica fits given what is free, and what it needs by counting."""
        view, sort = self._pool.index.views[position], self._sorts[position]
        form, fits = self._ask.form, self._placer.fitter.fits
        needs = self._needs.get(sort)
        if needs is None:
            needs = self._needs[sort] = _needs(self._ask, sort)
        return self._pool.free[position], lambda free: fits(form, (view.shape, sort, free)), needs

    def _offered(self, position: int) -> int:
        """What would be free on a node if everybody had gone."""
        return self._pool.index.views[position].offered & ~self._field.bound.get(position, 0)

    def _bound(self, position: int) -> _Bound | None:
        """A lower bound of the key of victims on a node, or None when all of them would not do. It is made of what each
        holder has there, whatever else would go with it."""
        if position in self._pool.index.closed:
            return None
        free, fits, needs = self._state(position)
        useful = self._offered(position) & needs.union
        gains: dict[ClaimUID, tuple[int, float, int, bool]] = {}
        for holding in self._holders.nodes.get(position, ()):
            claim, mask = holding.claim, holding.mask & useful
            if not mask or holding.back or not self._may(claim):
                continue
            before = gains.get(claim.uid)
            whole = before is None
            gains[claim.uid] = (claim.priority, -_created(claim), mask if before is None else mask | before[2], whole)
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

    def _may(self, victim: Claim) -> bool:
        """Whether base priority and tenants allow to send a claim away."""
        if not victim.preemptible:
            return False
        key = (victim.tenant, victim.priority)
        found = self._allowed_by.get(key)
        if found is None:
            found = self._allowed_by[key] = may_evict(self._field, self._claim, victim)
        return found

    def _here(self, position: int, eligible: int) -> list[tuple[Stock, list[Loss], int]]:
        """Who could lose something useful on a node: how, and what comes free there at most."""
        useful = self._offered(position) & eligible
        found = []
        for uid in dict.fromkeys(holding.claim.uid for holding in self._holders.nodes.get(position, ())):
            stock = self._stock(uid)
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
                for losses in sorted(sets, key=_key):
                    left = free
                    for loss in losses:
                        left |= loss.at(position) & offered
                    self._steps += 1
                    if self._steps > STEPS:
                        return None
                    if needs.met(left) and fits(left) and self._legal(losses, self._need):
                        return losses
        return None

    # All nodes

    def _useful(self, stock: Stock) -> bool:
        costs = [stock.whole] if stock.whole is not None else stock.singles
        return any(loss.cost.get(kind) for loss in costs if loss is not None for kind in self._need)

    def _every(self, stocks: Sequence[Stock]) -> Choice | None:
        """All sets in the order of the key."""
        ways = [[None, *stock.options(stock.singles)] for stock in stocks]
        sets = (tuple(loss for loss in some if loss is not None) for some in product(*ways))
        legal = [losses for losses in sets if losses and self._legal(losses, self._need)]
        for losses in sorted(legal, key=_key):
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
                age = -_created(loss.claim)
                order = (loss.claim.priority, last, first, -loss.devices, age, loss.claim.uid, loss.replicas)
                units.append((order, loss))
        units.sort(key=lambda unit: unit[0])
        losses = self._allowed([loss for _, loss in units])
        if not losses:
            return None
        few = self._prefix(losses)
        if few is None:
            return None
        kept = self._put_back(losses[:few])
        return self._prove(_joined(kept), proven=False)

    def _ranks(self) -> dict[int, int]:
        """Nodes by what victims there cost for one replica, the cheapest first."""
        bounds = [(bound, position) for position in self._holders.nodes if (bound := self._bound(position)) is not None]
        return {position: place for place, (_, position) in enumerate(sorted(bounds))}

    def _allowed(self, losses: Sequence[Loss]) -> list[Loss]:
        """As many of them, in their order, as other tenants may lose."""
        taken: list[Loss] = []
        left: dict[str, dict[str, int]] = {}
        for loss in losses:
            tenant = loss.claim.tenant
            if not self._field.one_tenant(self._claim, loss.claim):
                gone = left.setdefault(tenant, {})
                if not self._above(tenant, loss.cost, gone):
                    continue
                left[tenant] = added(gone, loss.cost)
            taken.append(loss)
        return taken

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
        return self._prove(_joined(losses), proven=False) is not None

    # What is legal, and what suffices

    def _prove(self, losses: tuple[Loss, ...], proven: bool) -> Choice | None:
        """Places the claim with the victims gone."""
        if not self._legal(losses, self._need):
            return None
        self._proofs += 1
        mark = self._ledger.checkpoint()
        bound = self._field.bound
        for loss in losses:
            for position, mask in loss.places:
                self._ledger.vacate(self._ask.pool, position, mask & ~bound.get(position, 0))
        placements = self._attempt()
        self._ledger.roll_back(mark)
        if placements is None:
            return None
        kinds = {request.name: request.kind for request in self._ask.requests}
        cost = added(*(_placed(placement, kinds) for placement in placements))
        if cost != self._need and not self._legal(losses, cost):
            return None
        return Choice(losses, tuple(placements), _key(losses), proven)

    def _legal(self, losses: Sequence[Loss], need: Cost) -> bool:
        """Whether tenants hold what they must hold, with the claim placed and the victims gone."""
        gone: dict[str, dict[str, int]] = {}
        others: dict[str, list[Loss]] = {}
        for loss in losses:
            tenant = loss.claim.tenant
            gone[tenant] = added(gone.get(tenant, {}), loss.cost)
            if not self._field.one_tenant(self._claim, loss.claim):
                others.setdefault(tenant, []).append(loss)
        accounts, mine = self._accounts, self._claim.tenant
        if not accounts.affords(mine, need, gone):
            return False
        if others and not accounts.within_quota(mine, need, gone):
            return False
        for tenant, lost in others.items():
            rest = list(lost)
            while rest:
                # Whoever may go last may go last: before that its tenant holds more.
                for loss in rest:
                    before = added(*(other.cost for other in rest if other is not loss))
                    if self._above(tenant, loss.cost, before):
                        rest.remove(loss)
                        break
                else:
                    return False
        return True

    def _above(self, tenant: str, cost: Cost, gone: Cost) -> bool:
        """Whether a tenant has more than its quota of something that is asked and that a victim has, when `gone` is."""
        mine = self._accounts.pool.tenants.get(tenant)
        return mine is not None and any(
            cost.get(kind, 0) > 0
            and kind in mine.quota
            and self._accounts.staying(tenant, kind) - gone.get(kind, 0) > mine.quota[kind] * WHOLE
            for kind in self._need
        )

    def _stock(self, uid: ClaimUID) -> Stock | None:
        """What a claim can lose to this one; None when it is nothing."""
        if uid not in self._stocks:
            self._stocks[uid] = self._assess(self._holders.claims[uid])
        return self._stocks[uid]

    def _assess(self, holdings: Sequence[Holding]) -> Stock | None:
        victim, now = holdings[0].claim, self._field.now
        if victim is self._claim or victim.deleting or not victim.preemptible:
            return None
        if not may_evict(self._field, self._claim, victim):
            return None
        if any(each.by == self._claim.uid and now - each.at < SAME_AGAIN for each in victim.evictions):
            return None
        going = self._field.evicted.get(victim.uid, set())
        live: dict[int, list[Holding]] = {}
        for holding in holdings:
            if not holding.back and holding.replica.index not in going:
                live.setdefault(holding.replica.index, []).append(holding)
        shortest = self._accounts.pool.preemption.min_runtime
        settled = {index for index, mine in live.items() if _ran(mine[0], now) >= shortest}
        singles = tuple(self._loss(victim, [index], live) for index in sorted(settled, reverse=True))
        if not singles:
            return None
        if victim.gang_min is None:
            return Stock(victim, singles, len(singles), None)
        spare = max(0, len(live) - victim.gang_min)
        whole = self._loss(victim, sorted(live), live) if len(settled) == len(live) else None
        if whole is None and not spare:
            return None
        return Stock(victim, singles if spare else (), spare, whole)

    def _loss(self, victim: Claim, indexes: Sequence[int], live: Mapping[int, Sequence[Holding]]) -> Loss:
        places = tuple((each.position, each.mask) for index in indexes for each in live[index])
        cost: dict[str, int] = {}
        for position, mask in places:
            for kind, devices in self._pool.index.views[position].shape.kinds.items():
                number = (devices & mask).bit_count()
                if number:
                    cost[kind] = cost.get(kind, 0) + number * WHOLE
        return Loss(victim, tuple(indexes), places, sum(mask.bit_count() for _, mask in places), cost)


def _merged(losses: Sequence[Loss]) -> Loss:
    """Several replicas of one claim as one loss."""
    if len(losses) == 1:
        return losses[0]
    return Loss(
        losses[0].claim,
        tuple(sorted(index for loss in losses for index in loss.replicas)),
        tuple(place for loss in losses for place in loss.places),
        sum(loss.devices for loss in losses),
        added(*(loss.cost for loss in losses)),
    )


def _joined(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """One loss for each claim; a whole one stands for its parts."""
    by_claim: dict[ClaimUID, list[Loss]] = {}
    for loss in losses:
        by_claim.setdefault(loss.claim.uid, []).append(loss)
    found = []
    for some in by_claim.values():
        largest = max(some, key=lambda loss: len(loss.replicas))
        parts = [loss for loss in some if not set(loss.replicas) <= set(largest.replicas)]
        found.append(_merged([largest, *parts]))
    return tuple(found)


def _key(losses: Sequence[Loss]) -> Key:
    ordered = sorted(losses, key=lambda loss: loss.claim.uid)
    return (
        max(loss.claim.priority for loss in losses),
        len(losses),
        sum(loss.devices for loss in losses),
        tuple(sorted(-_created(loss.claim) for loss in losses)[::-1]),
        tuple(loss.claim.uid for loss in ordered),
        tuple(tuple(-index for index in reversed(loss.replicas)) for loss in ordered),
    )


def _placed(placement: Placement, kinds: Mapping[str, str]) -> dict[str, int]:
    cost: dict[str, int] = {}
    for device in placement.devices:
        kind = kinds[device.request.partition("/")[0]]
        cost[kind] = cost.get(kind, 0) + WHOLE
    return cost


def _created(claim: Claim) -> float:
    """Of two claims the greater is the younger; one without creation time is the youngest."""
    return inf if claim.created is None else claim.created


def _ran(holding: Holding, now: float) -> float:
    """Seconds since a replica was ready, else since it was given its devices; one of which neither is known just
    began."""
    replica = holding.replica
    since = replica.ready_at if replica.ready_at is not None else replica.allocated_at
    return 0.0 if since is None else now - since


def _ways(stock: Stock) -> int:
    """In how many ways a claim can lose something, at most."""
    return 2 ** len(stock.singles) if len(stock.singles) <= MEMBERS else 2 * len(stock.singles)


def replicas_of(losses: Sequence[Loss]) -> Iterator[tuple[Claim, tuple[int, ...]]]:
    """Claims with the indexes of the replicas that they lose, by claim in a fixed order."""
    for loss in sorted(losses, key=lambda loss: loss.claim.uid):
        yield loss.claim, loss.replicas
