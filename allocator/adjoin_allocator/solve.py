"""`plan`: from a snapshot to a plan.

1. Compile what changed since last time (`nodes`), and enter who holds what (`ledger`).
2. Take the claims that lack replicas, in service order (`order`).
3. Refuse what cannot be read: no such pool, no such device name, a claim that is on hold.
4. For each lacking replica, the best place over all nodes beside what all others want (`demand`, `place`, `fit`),
   within its tenant's quota and beside what is held for others; if there is none, victims or a reservation (`arbiter`).
   Replicas are independent: those that fit are placed. Counting comes before searching, and one refusal answers for
   all further replicas. Replicas that the network or an attribute binds together, and gangs, are placed together
   (`gang`). A replica that fits beside the others only if these have other devices gets its place so, and when all are
   served the whole is improved (`batch`).
5. When all are served, say of those without a place why, and what would make one fit (`diagnosis`, `explain`,
   `nearest`).
6. Count every pool.

What comes in is never changed, and the same input gives the same plan, with or without a memo.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace

from adjoin_allocator.alternatives import WAYS, count_ways, ways
from adjoin_allocator.arbiter import Arbiter
from adjoin_allocator.attempts import Attempt, GangAttempt, Stepwise
from adjoin_allocator.batch import Batch
from adjoin_allocator.bulk import bulk
from adjoin_allocator.demand import Market, Round
from adjoin_allocator.diagnosis import diagnose
from adjoin_allocator.explain import nodes_word, reasons
from adjoin_allocator.fabric import Fabrics
from adjoin_allocator.fit import STATE_LIMIT, Fitter, Obstacle
from adjoin_allocator.gang import gang_flaws, gang_of, is_gang
from adjoin_allocator.gang_quota import affordable_parts
from adjoin_allocator.gang_reasons import Desk, explain_gang, incomplete
from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.leaving import leaving
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.lot import Unit as Movable
from adjoin_allocator.members import Gang
from adjoin_allocator.model import Claim, ClaimUID, Nomination, PlacedReplica, Request
from adjoin_allocator.nearest import changed, nearest, waits
from adjoin_allocator.nodes import Nodes, Shape
from adjoin_allocator.order import effective, service
from adjoin_allocator.outlines import Outlines
from adjoin_allocator.parts_wait import nearest_part
from adjoin_allocator.place import Ask, Effort, Placer, Spot
from adjoin_allocator.results import ClaimPlan, Code, Placement, Plan, PoolPlan, Reason, Stats
from adjoin_allocator.seats import SeatMemo
from adjoin_allocator.settling import settled
from adjoin_allocator.shortage import less_isolation, less_of, share_refusals, shortage
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.tariff import best, grant
from adjoin_allocator.tenancy import Cost
from adjoin_allocator.terms import Objective, ReplicaState
from adjoin_allocator.units import Served, Unit
from adjoin_allocator.waitfor import given_to


class Memo:
    """What is kept between decisions: compiled nodes and answers of searches. Bounded; it changes speed and nothing
    else.

    A memo belongs to one caller at a time: two decisions may not use it at once.
    """

    def __init__(self, bound: int = 50_000) -> None:
        """`bound` is how many answers are kept."""
        self.nodes = Nodes()
        self.fitter = Fitter(bound)
        self.ledger = Ledger(self.nodes)
        self.placer = Placer(self.nodes, self.fitter, self.ledger)
        self.fabrics = Fabrics()
        self.seats = SeatMemo(bound)
        self.outlines = Outlines(self.fitter)


def plan(snapshot: Snapshot, now: float, memo: Memo | None = None) -> Plan:
    """Decides who gets which devices, at the time `now` (seconds since the epoch).

    The plan has an entry for each claim that gets something, waits for something, or lost a device to an older claim;
    what already has its devices keeps them and is not repeated. Not fitting is a value (`ClaimPlan.reasons`), never
    an exception. Costs one look a node, a few steps for each holder, and for each lacking replica a step for each
    distinct state of nodes; states that `memo` has not seen yet are searched.
    """
    memo = memo or Memo()
    ledger = memo.ledger
    ledger.enter(snapshot, now)
    try:
        run = _Run(snapshot, memo, Arbiter(memo.placer, now), now)
        memo.fabrics.keep(snapshot.pools)
        levels = run.levels()
        level: int | None = None
        for claim in service(ledger.waiting, now, snapshot.pools, run.arbiter.portion):
            if levels and (now_at := effective(claim, snapshot.pools.get(claim.pool), now)) != level:
                level = now_at
                run.fill(levels.get(level, ()))
            run.serve(claim)
        run.improve()
        run.explain()
        preempted = run.arbiter.preempted
        if preempted:
            with leaving(ledger, preempted):
                pools = run.pools()
        else:
            pools = run.pools()
    finally:
        ledger.roll_back(0)
    shapes: set[Shape] = set()
    for pool in ledger.pools.values():
        shapes |= pool.index.shapes
    stats = Stats(run.served, run.states, len(shapes), run.batch.struck)
    answers = settled(run.answers(), snapshot, ledger)
    run.close()
    return Plan(answers, pools, preempted, stats)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A claim of which replicas have no place."""

    claim: Claim
    asks: tuple[Ask, ...]
    placements: tuple[Placement, ...]
    unit: Unit
    limit: bool
    nominated: tuple[Nomination, ...] = ()
    reasons: tuple[Reason, ...] = ()
    """Known already: what its quota says, what it waits for."""
    remedy: str | None = None
    """What would make it fit if nothing but the quota is in the way."""
    gang: Gang | None = None


@dataclass(slots=True, eq=False)
class _Run:
    """One decision under way."""

    snapshot: Snapshot
    memo: InitVar[Memo]
    arbiter: Arbiter
    now: float
    ledger: Ledger = field(init=False)
    placer: Placer = field(init=False)
    fabrics: Fabrics = field(init=False)
    seats: SeatMemo = field(init=False)
    outlines: Outlines = field(init=False)
    served: int = 0
    states: int = 0
    improved: bool = False
    """What was placed stays where it is from now on."""
    batch: Batch = field(init=False)
    _plans: dict[ClaimUID, ClaimPlan] = field(default_factory=dict)
    _waiting: list[_Waiting] = field(default_factory=list)
    _strict: list[Claim] = field(default_factory=list)
    """Claims that ask for more isolation than they can have."""
    _rounds: dict[str, Round] = field(default_factory=dict)
    _early: dict[ClaimUID, dict[int, Placement]] = field(default_factory=dict)
    """Replicas that were placed before their claims are served."""
    _turns: dict[ClaimUID, int] = field(default_factory=dict)
    """When each claim was served."""
    _units: dict[ClaimUID, Unit] = field(default_factory=dict)
    """What was asked last for each claim of independent replicas."""

    def __post_init__(self, memo: Memo) -> None:
        self.ledger, self.placer, self.outlines = memo.ledger, memo.placer, memo.outlines
        self.fabrics, self.seats = memo.fabrics, memo.seats
        self.batch = Batch(self.ledger, self.placer, self._elsewhere)

    def serve(self, claim: Claim) -> None:
        """Places what fits of a claim."""
        if claim.uid not in self._turns:
            self.served += 1
            self._turns[claim.uid] = self.served
        asks, refused = self._read(claim)
        if refused:
            self._add(ClaimPlan(uid=claim.uid, reasons=refused))
            if all(reason.code is Code.ISOLATION_UNAVAILABLE for reason in refused):
                self._strict.append(claim)
            return
        early = self._early.get(claim.uid, {})
        if is_gang(claim):
            self._serve_gang(claim, asks, tuple(early.values()))
            return
        missing = self.ledger.lacking[claim.uid]
        if early:
            missing = tuple(index for index in missing if index not in early)
        several = len(missing) > 1
        demand, wanted = self._demand(claim.pool), self.ledger.wanted(claim)
        attempt = Attempt(self, claim, asks, 0, several, demand, wanted)
        cheaper = [
            Attempt(self, claim, asks[at:], 0, several, demand, wanted, what_if=True) for at in range(1, len(asks))
        ]

        def least(index: int) -> Callable[[], tuple[Placement, ...] | None]:
            return lambda: Attempt(self, claim, asks, index, several, demand, wanted, what_if=True)()

        placements = list(early.values())
        without: list[tuple[Unit, Served]] = []
        for index in missing:
            for one in (attempt, *cheaper):
                one.index, one.made = index, None
            unit = Unit(claim, asks, (index,), attempt, least(index), lesser=lambda _: iter(cheaper))
            self._units[claim.uid] = unit
            served = self.arbiter.serve(unit)
            if served.placements:
                placements += served.placements
                made = attempt if attempt.made is served.placements else None
                if made is None and cheaper:
                    made = next((one for one in cheaper if one.made is served.placements), None)
                if made is not None and made.found is not None:
                    self.batch.placed(*made.found)
                if wanted is not None:
                    demand.served(wanted)
                continue
            without.append((unit, served))
            if not served.nominated:
                break
        self.states += attempt.effort.states
        self.arbiter.settle(claim, set(missing) - {placement.index for placement in placements})
        if not without:
            if len(placements) > 1:
                placements.sort(key=lambda placement: placement.index)
            self._add(ClaimPlan(uid=claim.uid, placements=tuple(placements), gap=0.0))
            return
        self._waiting.append(
            _Waiting(
                claim=claim,
                asks=asks,
                placements=tuple(sorted(placements, key=lambda placement: placement.index)),
                unit=without[-1][0],
                limit=attempt.obstacle is Obstacle.LIMIT,
                nominated=tuple(one for _, served in without for one in served.nominated),
                reasons=tuple(dict.fromkeys(reason for _, served in without for reason in served.reasons)),
                remedy=without[-1][1].remedy,
            )
        )

    def levels(self) -> Mapping[int, Sequence[Claim]]:
        """Waiting claims by effective priority, if some pool wants the most devices placed."""
        found: dict[int, list[Claim]] = {}
        if any(pool.objective is Objective.THROUGHPUT for pool in self.snapshot.pools.values()):
            for claim in self.ledger.waiting:
                level = effective(claim, self.snapshot.pools.get(claim.pool), self.now)
                found.setdefault(level, []).append(claim)
        return found

    def fill(self, claims: Sequence[Claim]) -> None:
        """Places what packs best of many claims of one priority, in pools that want the most devices placed."""
        by_pool: dict[str, list[tuple[Claim, int, Ask]]] = {}
        for claim in claims:
            pool = self.snapshot.pools.get(claim.pool)
            # A quota decides claim by claim.
            if pool is None or pool.objective is not Objective.THROUGHPUT or pool.tenants or is_gang(claim):
                continue
            if not self._read(claim)[1] and not any(request.first_of for request in claim.requests):
                ask = self.placer.ask(pool, claim.requests, claim.affinity, claim.host, claim.profile)
                units = by_pool.setdefault(claim.pool, [])
                units += ((claim, index, ask) for index in self.ledger.lacking[claim.uid])
        for units in by_pool.values():
            for at, spot in bulk(self.placer, [ask for _, _, ask in units]):
                claim, index, ask = units[at]
                placement = self.place(ask, index, spot)
                self._early.setdefault(claim.uid, {})[index] = placement
                self.arbiter.rebook(claim, self._early[claim.uid].values())

    def _serve_gang(self, claim: Claim, asks: tuple[Ask, ...], early: tuple[Placement, ...]) -> None:
        """Places the members of a claim together: all that fit, or none of a gang that would be too small."""
        every = gang_of(self.placer, claim, asks, self.ledger.lacking[claim.uid])
        gang = self._rest(every, early)[1] if early else every
        demand, wanted = self._demand(claim.pool), self.ledger.wanted(claim)
        tree = self.fabrics.tree(self.ledger.pools[claim.pool].index, self.snapshot.nodes)
        few = replace(gang, missing=gang.missing[: gang.least])
        attempt = GangAttempt(self, tree, gang, demand, wanted)
        asking = GangAttempt(self, tree, few, demand, wanted)

        def lesser(affordable: Callable[[Cost], bool]) -> Iterator[Callable[[], tuple[Placement, ...] | None]]:
            for parts in affordable_parts(gang, affordable):
                if len(parts) == 1:
                    yield GangAttempt(self, tree, parts[0], demand, wanted)
                else:
                    yield Stepwise(self, tree, parts, demand, wanted, lambda part, beside: self._rest(part, beside)[1])

        unit = Unit(claim, asks, gang.missing, attempt, asking, len(few.missing), single=False, lesser=lesser)
        served = self.arbiter.serve(unit)
        self.states += attempt.states
        if wanted is not None:
            for _ in served.placements:
                demand.served(wanted)
        placements = (*early, *served.placements)
        missing = set(every.missing) - {placement.index for placement in placements}
        self.arbiter.settle(claim, missing)
        if not missing:
            self._add(ClaimPlan(uid=claim.uid, placements=placements, gap=0.0))
            return
        told = served.nominated, served.reasons, served.remedy
        self._waiting.append(_Waiting(claim, asks, placements, unit, attempt.limit, *told, every))

    def movable(self, claim: Claim, ask: Ask, index: int) -> Movable:
        """A replica as the batch knows it."""
        level = effective(claim, self.snapshot.pools.get(claim.pool), self.now)
        return Movable(claim, ask, index, level, self._turns[claim.uid])

    def _elsewhere(self, unit: Movable) -> Spot | None:
        """The best place for one replica that must leave the one it has."""
        demand = self._demand(unit.claim.pool).beside(self.ledger.wanted(unit.claim))
        spot = best(self.placer, unit.ask, Effort(), demand)
        return spot if isinstance(spot, Spot) else None

    def improve(self) -> None:
        """Looks at all claims together when each is served."""
        if not self._waiting and self.batch.idle:
            self.improved = True
            return
        for waiting in self._waiting:
            # What waits for its quota, or for what is held for it, waits for no better arrangement.
            known = waiting.limit or waiting.reasons or waiting.nominated
            if waiting.gang is None and not known and not self.arbiter.limited(waiting.claim):
                claim, placed = waiting.claim, {placement.index for placement in waiting.placements}
                self.batch.waits(
                    self.movable(claim, waiting.asks[-1], index)
                    for index in self.ledger.lacking[claim.uid]
                    if index not in placed
                )
        changed = self.batch.improve(self.arbiter.loosened)
        anew = {units[0].claim.uid for units in changed}
        self._waiting = [waiting for waiting in self._waiting if waiting.claim.uid not in anew]
        for units in changed:
            claim = units[0].claim
            # Who was placed before claims were served has not moved.
            now = dict(self._early.get(claim.uid, {}))
            now |= {unit.index: self._placement(unit.ask, unit.index, unit.place) for unit in units if unit.spot}
            placements = tuple(now[index] for index in sorted(now))
            missing = len(self.ledger.lacking[claim.uid]) - len(placements)
            self.arbiter.rebook(claim, placements)
            self._plans.pop(claim.uid, None)
            if missing:
                over = self.arbiter.over_quota(claim, self.arbiter.least(claim))
                unit = self._units[claim.uid]
                self._waiting.append(
                    _Waiting(claim, unit.asks, placements, unit, False, reasons=over.reasons, remedy=over.remedy)
                )
            else:
                self._add(ClaimPlan(uid=claim.uid, placements=placements, gap=0.0))
        for uid, gap in self.batch.gaps.items():
            if uid in self._plans:
                self._plans[uid] = replace(self._plans[uid], gap=gap)
        self._serve_again({units[0].claim.pool for units in changed} | self.arbiter.loosened)
        self._waiting.sort(key=lambda waiting: self._turns[waiting.claim.uid])

    def _serve_again(self, pools: Collection[str]) -> None:
        """Serves once more who waits in pools where others have moved, or where something is held no longer: what came
        free may do. Nobody moves.
        """
        self.improved = True
        again = [each for each in self._waiting if each.claim.pool in pools and not each.nominated and not each.limit]
        self._waiting = [each for each in self._waiting if each not in again]
        for waiting in sorted(again, key=lambda each: self._turns[each.claim.uid]):
            self._early[waiting.claim.uid] = {placement.index: placement for placement in waiting.placements}
            self.serve(waiting.claim)

    def _demand(self, pool: str) -> Round:
        """What is wanted of a pool in this decision."""
        demand = self._rounds.get(pool)
        if demand is None:
            demand = self._rounds[pool] = self.ledger.markets.get(pool, Market()).open()
        return demand

    def _read(self, claim: Claim) -> tuple[tuple[Ask, ...], tuple[Reason, ...]]:
        """The ways of serving a claim that are looked for; or all reasons why it is not even looked at: first what is
        wrong with the claim, then with its shares, then with its pool.
        """
        if claim.hold is not None:
            return (), tuple(Reason(Code(one.code), 0, one.message) for one in (claim.hold, *claim.more_holds))
        pool = self.snapshot.pools.get(claim.pool)
        if pool is None:
            named = f"there is no DevicePool {claim.pool}" if claim.pool else "no pool is named and none is the default"
            return (), (Reason(Code.POOL_NOT_FOUND, 0, named),)
        reading = self.placer.read(pool, claim)
        asks, choices = reading.asks, reading.ways
        why = [Reason(Code.INVALID_CLAIM, 0, flaw) for flaw in (*reading.flaws, *gang_flaws(pool, claim))]
        if reading.flaws and count_ways(claim.requests) <= WAYS:
            choices = ways(claim.requests)
        if reading.divides or reading.flaws:
            # One way is enough: parts are in the way of a claim when they keep all of its ways from being looked for.
            refused = [self._refused(claim, way) for way in choices]
            if refused and all(refused):
                why += dict.fromkeys(reason for each in refused for reason in each)
            elif asks and any(refused):
                asks = tuple(ask for ask, each in zip(asks, refused, strict=True) if not each)
        if pool.unavailable:
            nodes = len(self.ledger.pools[claim.pool].index.views)
            why.append(Reason(Code.NOT_ALLOWED, nodes, f"pool {pool.name} takes nothing new: {pool.unavailable}"))
        return asks, tuple(why)

    def _refused(self, claim: Claim, way: Sequence[Request]) -> tuple[Reason, ...]:
        """Why one way of serving a claim is not even looked for."""
        return share_refusals(claim, way, self.snapshot.shares, self.ledger.parts.refusal)

    def place(self, ask: Ask, index: int, spot: Spot) -> Placement:
        """Gives a replica the devices of a spot."""
        grant(self.placer, ask, spot)
        return self._placement(ask, index, spot)

    def _placement(self, ask: Ask, index: int, spot: Spot) -> Placement:
        view = self.ledger.pools[ask.pool].index.views[spot.position]
        outline = self.outlines.of(ask, view.shape, spot.fit.masks)
        return Placement(index, view.name, outline.of(view.devices), outline.locality)

    def explain(self) -> None:
        """Says why claims wait, against what is left when all are served. Equal asks have equal answers, but for what
        they wait for: who is served first would have it.
        """
        for claim in self._strict:
            self._soften(claim)
        known: dict[tuple[object, ...], tuple[tuple[Reason, ...], str | None]] = {}
        ahead: list[Ask] = []
        for found_waiting in self._waiting:
            waiting = self._as_it_stands(found_waiting)
            gang, mark = waiting.gang, self.ledger.checkpoint()
            # What is held for a claim is free to it alone.
            own = waiting.claim.uid if self.arbiter.lift(waiting.claim) else ""
            answer: tuple[tuple[Reason, ...], str | None] = ((), waiting.remedy)
            # What a gang that has places already could have besides is not asked here.
            held = None if waiting.reasons or (gang and waiting.placements) else self.arbiter.blocked(waiting.unit)
            if held is not None:
                answer = ((held,), None)
            elif waiting.nominated or (waiting.reasons and self._would_fit(waiting)):
                # It waits for what is held for it, or nothing but its quota is in the way.
                if gang is not None and waiting.placements:
                    answer = ((incomplete(*self._rest(gang, waiting.placements)),), waiting.remedy)
            elif gang is not None:
                found_why = self._explain_gang(gang, waiting.placements)
                answer = (found_why[0], None if waiting.reasons else found_why[1])
            elif waiting.limit:
                nodes = len(self.ledger.pools[waiting.claim.pool].index.views)
                message = f"the search was given up after {STATE_LIMIT:,} states on {nodes_word(nodes)}"
                answer = ((Reason(Code.SEARCH_LIMIT, nodes, message),), None)
            else:
                key = (
                    waiting.claim.pool,
                    waiting.claim.requests,
                    waiting.claim.affinity,
                    waiting.claim.host,
                    own,
                    self.arbiter.rooms(waiting.claim),
                )
                found = known.get(key)
                if found is None:
                    found = self._why(waiting, ahead)
                elif found[1] is not None and waits(found[1]):
                    whole = [ask for ask in waiting.asks if not any(request.share for request in ask.requests)]
                    allowed = self._allowed(waiting.claim)
                    less = (less_of(self.placer, ask, allowed) for ask in waiting.asks)
                    found = (found[0], changed(self.placer, whole, allowed) or next(filter(None, less), None))
                known[key] = found
                # What would fit but for the quota is not what would make it fit.
                answer = (found[0], self._affordable(waiting) if waiting.reasons else found[1])
            if not (waiting.reasons or held or waiting.nominated or waiting.limit) and waits(answer[1] or "fits once "):
                answer = (answer[0], self._given_back(waiting, ahead) or answer[1])
            self.ledger.roll_back(mark)
            ahead += waiting.asks
            self._add(
                ClaimPlan(
                    uid=waiting.claim.uid,
                    placements=waiting.placements,
                    reasons=(*waiting.reasons, *answer[0]),
                    nearest=answer[1],
                    nominated=waiting.nominated,
                )
            )

    def _soften(self, claim: Claim) -> None:
        """Says with how much less isolation a claim would fit. What a gang needs, or one of several ways, is not tried;
        nor is what a tenant may not have, or whose share says no for another reason.
        """
        if is_gang(claim) or any(request.first_of for request in claim.requests):
            return
        if self.snapshot.pools[claim.pool].unavailable:
            return
        shares = self.snapshot.shares
        words = less_isolation(self.placer, claim, shares, lambda requests: self._refused(claim, requests))
        if words is not None and self.arbiter.affordable(claim, claim.requests):
            self._plans[claim.uid] = replace(self._plans[claim.uid], nearest=words)

    def _affordable(self, waiting: _Waiting) -> str | None:
        """Which smaller claim would have a place, and within its tenant's quota; that of today fits neither."""
        whole = [ask for ask in waiting.asks if not any(request.share for request in ask.requests)]
        return changed(self.placer, whole, self._allowed(waiting.claim))

    def _given_back(self, waiting: _Waiting, ahead: Sequence[Ask]) -> str | None:
        """Which tenant would have to give back what it borrows; nobody who waits before, or is of it, may take that."""
        pool = waiting.claim.pool

        def rivals(tenant: str) -> Iterator[Ask]:
            yield from (ask for ask in ahead if ask.pool == pool)
            for other in self._waiting:
                if other.claim is not waiting.claim and other.claim.pool == pool and other.claim.tenant == tenant:
                    yield from other.asks

        return self.arbiter.lenders.given_back(waiting.unit, rivals)

    def _as_it_stands(self, waiting: _Waiting) -> _Waiting:
        """Without promises that a claim of higher standing has taken since."""
        if not waiting.nominated:
            return waiting
        nominated = self.arbiter.standing(waiting.claim, waiting.nominated)
        if len(nominated) == len(waiting.nominated):
            return waiting
        return replace(waiting, nominated=nominated, reasons=waiting.reasons if nominated else ())

    def close(self) -> None:
        """Lets go of what refers back to the run, so that its memory is used again by the next one: at once, and not
        when cycles are looked for.
        """
        self._units.clear()
        self._waiting.clear()
        del self.batch

    def pools(self) -> Mapping[str, PoolPlan]:
        """Every pool after the decision. What is held but free counts as reserved."""
        reserved = self.arbiter.close()
        return {
            name: PoolPlan(
                name=name,
                counts=pool.counts().reserving(reserved.get(name, {})),
                mismatches=pool.index.mismatches,
                gap=self.batch.pool_gap(name),
                usage=self.arbiter.accounts(name).usage(),
            )
            for name, pool in self.ledger.pools.items()
        }

    def _would_fit(self, waiting: _Waiting) -> bool:
        """Whether one more replica, or a gang, has a place in the ledger as it stands."""
        if waiting.gang is None:
            return any(self.placer.fits(ask) for ask in waiting.asks)
        if waiting.placements:
            desk, left = self._rest(waiting.gang, waiting.placements)
            return desk.ask(replace(left, missing=left.missing[:1])).most > 0
        mark = self.ledger.checkpoint()
        placements = waiting.unit.least()
        self.ledger.roll_back(mark)
        return placements is not None

    def _explain_gang(self, gang: Gang, placements: Sequence[Placement]) -> tuple[tuple[Reason, ...], str | None]:
        """Why the rest of a gang waits, beside those that were placed just now."""
        desk, left = self._rest(gang, placements)
        claim, ledger = left.claim, self.ledger.pools[left.claim.pool]
        hosts = self.ledger.hosts.version if claim.host != NOTHING else 0
        key = (
            desk.tree,
            gang.asks,
            tuple(claim.members),
            claim.gang_min,
            claim.fabric,
            left.missing,
            claim.placed,
            hosts,
        )
        return ledger.remembered(
            (key, self.arbiter.rooms(claim)),
            lambda: explain_gang(desk, left, lambda *asked: self.arbiter.affordable(claim, *asked)),
        )

    def _rest(self, gang: Gang, placements: Sequence[Placement]) -> tuple[Desk, Gang]:
        """What is left of a gang beside those that were placed just now, and where to ask about it."""
        claim, now = gang.claim, {placement.index for placement in placements}
        placed = tuple(PlacedReplica(one.index, one.node, ReplicaState.ALLOCATED, one.devices) for one in placements)
        kept = tuple(one for one in claim.placed if one.index not in now)
        rest = replace(claim, placed=(*kept, *placed))
        missing = [index for index in gang.missing if index not in now]
        tree = self.fabrics.tree(self.ledger.pools[claim.pool].index, self.snapshot.nodes)
        return Desk(self.placer, self.seats, tree), gang_of(self.placer, rest, gang.asks, missing)

    def _why(self, waiting: _Waiting, ahead: Sequence[Ask]) -> tuple[tuple[Reason, ...], str | None]:
        """Why the most wanted way fits nowhere, and the smallest change to any of them, the most wanted first; the same
        as last time while all that they depend on is the same.
        """
        asks, claim = waiting.asks, waiting.claim
        # A claim that has nothing is in nobody's way.
        mine = claim.uid if claim.placed or waiting.placements else None
        hosts = self.ledger.hosts.version if claim.host != NOTHING else 0
        key = (asks, frozenset(ahead), mine, hosts, self.arbiter.rooms(claim))
        return self.ledger.pools[claim.pool].remembered(
            key, lambda: self._reasoned(asks, ahead, mine, self._allowed(claim))
        )

    def _allowed(self, claim: Claim) -> Callable[[tuple[Request, ...]], bool]:
        """Whether a claim's tenant could have one more replica that asks this."""
        return lambda requests: self.arbiter.affordable(claim, requests)

    def _reasoned(
        self,
        asks: tuple[Ask, ...],
        ahead: Sequence[Ask],
        mine: ClaimUID | None,
        affordable: Callable[[tuple[Request, ...]], bool],
    ) -> tuple[tuple[Reason, ...], str | None]:
        short = [shortage(self.placer, ask, affordable) for ask in asks]
        found = reasons(diagnose(self.placer, asks[0])) if short[0] is None else short[0][0]
        if len(asks) > 1:
            first, *others = found
            message = f"none of {len(asks)} ways fits, the most wanted one: {first.message}"
            found = (replace(first, message=message), *others)
        # Those of whom it has been said already why the rest of them waits are among the plans, too.
        placed = {waiting.claim.uid: waiting.placements for waiting in self._waiting}
        placed |= {uid: plan.placements for uid, plan in self._plans.items()}
        given = given_to(self.placer, ((self.ledger.known(uid), theirs) for uid, theirs in placed.items() if theirs))
        whole = [ask for ask, why in zip(asks, short, strict=True) if why is None]
        words = nearest(self.placer, whole, ahead, mine, given, affordable) if whole else None
        told = (
            nearest_part(self.placer, ask, why[1], ahead, mine, given) if affordable(ask.requests) else why[1]
            for ask, why in zip(asks, short, strict=True)
            if why is not None
        )
        return found, words or next(filter(None, told), None)

    def _add(self, answer: ClaimPlan) -> None:
        self._plans[answer.uid] = answer

    def answers(self) -> Mapping[ClaimUID, ClaimPlan]:
        """What is said of each claim, in the order of the input. Only who lacks something, or lost it, is spoken of."""
        plans, conflicts = self._plans, self.ledger.conflicts
        answers: dict[ClaimUID, ClaimPlan] = {}
        for claim in self.snapshot.claims if conflicts else self.ledger.waiting:
            if claim.uid in conflicts:
                answer = plans.get(claim.uid, ClaimPlan(uid=claim.uid))
                answers[claim.uid] = replace(answer, conflicts=conflicts[claim.uid])
            elif claim.uid in plans:
                answers[claim.uid] = plans[claim.uid]
        return answers
