"""`plan`: from a snapshot to a plan.

1. Compile what changed since last time (`nodes`), and enter who holds what (`ledger`).
2. Take the claims that lack replicas, in service order (`order`).
3. Refuse what cannot be read: no such pool, no such device name, a claim that is on hold.
4. For each lacking replica, the best place over all nodes beside what all others want (`demand`, `place`, `fit`); take
   it. Replicas are independent: those
   that fit are placed. Counting comes before searching, and one refusal answers for all further replicas.
5. When all are served, say of those without a place why, and what would make one fit (`diagnosis`, `explain`,
   `nearest`).
6. Count every pool.

What comes in is never changed, and the same input gives the same plan, with or without a memo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from adjoin_allocator.alternatives import label, most_wanted, ways
from adjoin_allocator.bulk import bulk
from adjoin_allocator.demand import Market, Round, want
from adjoin_allocator.diagnosis import diagnose
from adjoin_allocator.explain import nodes_word, reasons
from adjoin_allocator.fit import STATE_LIMIT, Fitter, Obstacle
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Claim, ClaimUID, PlacedDevice
from adjoin_allocator.nearest import nearest
from adjoin_allocator.nodes import Nodes, Shape
from adjoin_allocator.order import service_order
from adjoin_allocator.place import Ask, Effort, Placer, Spot, flaw
from adjoin_allocator.results import ClaimPlan, Code, Placement, Plan, PoolPlan, Reason, Stats
from adjoin_allocator.shortage import share_refusal, shortage
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.tariff import best, grant, granted
from adjoin_allocator.terms import Objective


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
        run = _Run(snapshot, ledger, Placer(memo.nodes, memo.fitter, ledger))
        for _, group in groupby(service_order(ledger.waiting, now), key=lambda claim: claim.priority):
            claims = list(group)
            run.fill(claims)
            for claim in claims:
                run.serve(claim)
        run.explain()
        pools = {
            name: PoolPlan(name=name, counts=pool.counts(), mismatches=pool.index.mismatches)
            for name, pool in ledger.pools.items()
        }
    finally:
        ledger.roll_back(0)
    shapes = frozenset[Shape]().union(*(pool.index.shapes for pool in ledger.pools.values()))
    return Plan(claims=run.answers(), pools=pools, stats=Stats(run.served, run.states, len(shapes)))


@dataclass(slots=True, eq=False)
class _Waiting:
    """A claim of which replicas have no place."""

    claim: Claim
    asks: tuple[Ask, ...]
    placements: tuple[Placement, ...]
    missing: int
    limit: bool


@dataclass(slots=True, eq=False)
class _Run:
    """One decision under way."""

    snapshot: Snapshot
    ledger: Ledger
    placer: Placer
    served: int = 0
    states: int = 0
    _plans: dict[ClaimUID, ClaimPlan] = field(default_factory=dict)
    _waiting: list[_Waiting] = field(default_factory=list)
    _rounds: dict[str, Round] = field(default_factory=dict)
    _early: dict[ClaimUID, dict[int, Placement]] = field(default_factory=dict)

    def serve(self, claim: Claim) -> None:
        """Places what fits of a claim."""
        self.served += 1
        refusal = self._refusal(claim)
        if refusal is not None:
            self._add(ClaimPlan(uid=claim.uid, reasons=(refusal,)))
            return
        pool = self.snapshot.pools[claim.pool]
        asks = tuple(
            self.placer.ask(pool, way, claim.affinity, claim.profile, claim.host)
            for way in ways(claim.requests)
            if share_refusal(claim.pool, way, self.snapshot.shares) is None
        )
        early = self._early.get(claim.uid, {})
        missing = tuple(index for index in self.ledger.lacking[claim.uid] if index not in early)
        several = len(missing) > 1
        effort = Effort(known=set() if several else None)
        placements = list(early.values())
        obstacle: Obstacle | None = None
        demand, wanted = self._demand(claim.pool), want(most_wanted(claim.requests), claim.affinity)
        left = list(asks)
        for index in missing:
            spot = best(self.placer, left[0], effort, demand.beside(wanted))
            # What does not fit now fits none of the replicas after this one either.
            while spot is not Obstacle.LIMIT and not isinstance(spot, Spot) and len(left) > 1:
                del left[0]
                effort = Effort(effort.states, set() if several else None)
                spot = best(self.placer, left[0], effort, demand.beside(wanted))
            if not isinstance(spot, Spot):
                obstacle = spot
                break
            placements.append(self._place(left[0], index, spot))
            if wanted is not None:
                demand.served(wanted)
        placements.sort(key=lambda placement: placement.index)
        self.states += effort.states
        if obstacle is None:
            self._add(ClaimPlan(uid=claim.uid, placements=tuple(placements), gap=0.0))
        else:
            limit = obstacle is Obstacle.LIMIT
            lacking = len(missing) + len(early) - len(placements)
            self._waiting.append(_Waiting(claim, asks, tuple(placements), lacking, limit))

    def fill(self, claims: Sequence[Claim]) -> None:
        """Places what packs best of many claims of one priority, in pools that want the most devices placed."""
        by_pool: dict[str, list[tuple[Claim, int, Ask]]] = {}
        for claim in claims:
            pool = self.snapshot.pools.get(claim.pool)
            if pool is None or pool.objective is not Objective.THROUGHPUT or claim.gang_min is not None:
                continue
            if self._refusal(claim) is None and not any(request.first_of for request in claim.requests):
                ask = self.placer.ask(pool, claim.requests, claim.affinity, claim.profile, claim.host)
                units = by_pool.setdefault(claim.pool, [])
                units += ((claim, index, ask) for index in self.ledger.lacking[claim.uid])
        for units in by_pool.values():
            for at, spot in bulk(self.placer, [ask for _, _, ask in units]):
                claim, index, ask = units[at]
                self._early.setdefault(claim.uid, {})[index] = self._place(ask, index, spot)

    def _demand(self, pool: str) -> Round:
        """What is wanted of a pool in this decision."""
        demand = self._rounds.get(pool)
        if demand is None:
            demand = self._rounds[pool] = self.ledger.markets.get(pool, Market()).open()
        return demand

    def _refusal(self, claim: Claim) -> Reason | None:
        """Why a claim is not even looked at."""
        if claim.hold is not None:
            return Reason(Code(claim.hold.code), 0, claim.hold.message)
        pool = self.snapshot.pools.get(claim.pool)
        if pool is None:
            named = f"there is no DevicePool {claim.pool}" if claim.pool else "no pool is named and none is the default"
            return Reason(Code.POOL_NOT_FOUND, 0, named)
        why = flaw(pool, claim.requests, claim.affinity, claim.host)
        if why is not None:
            return Reason(Code.INVALID_CLAIM, 0, why)
        # One way is enough: a claim is refused when none of its ways can be read.
        refused = [share_refusal(claim.pool, way, self.snapshot.shares) for way in ways(claim.requests)]
        if refused[0] is not None and None not in refused:
            return refused[0]
        if pool.unavailable:
            nodes = len(self.ledger.pools[claim.pool].index.views)
            return Reason(Code.NOT_ALLOWED, nodes, f"pool {pool.name} takes nothing new: {pool.unavailable}")
        return None

    def _place(self, ask: Ask, index: int, spot: Spot) -> Placement:
        view = self.ledger.pools[ask.pool].index.views[spot.position]
        grant(self.placer, ask, spot)
        names = [request.name for request in ask.requests]
        devices = []
        for request, bit in granted(ask, spot.fit.masks):
            device, share = view.devices[bit], None if request.share is None else request.share.placed
            devices.append(PlacedDevice(label(request), device.id, device.hardware_id, share))
        locality = self.placer.fitter.locality(ask.form, view.shape, spot.fit.masks)
        return Placement(
            index=index,
            node=view.name,
            devices=tuple(devices),
            locality={f"{names[one]}-{names[other]}": level for one, other, level in locality},
        )

    def explain(self) -> None:
        """Says why claims wait, against what is left when all are served. Equal asks have equal answers."""
        known: dict[tuple[object, ...], tuple[tuple[Reason, ...], str | None]] = {}
        for waiting in self._waiting:
            if waiting.limit:
                nodes = len(self.ledger.pools[waiting.claim.pool].index.views)
                message = f"the search was given up after {STATE_LIMIT:,} states on {nodes_word(nodes)}"
                answer: tuple[tuple[Reason, ...], str | None] = ((Reason(Code.SEARCH_LIMIT, nodes, message),), None)
            else:
                key = (waiting.claim.pool, waiting.claim.requests, waiting.claim.affinity, waiting.claim.host)
                found = known.get(key)
                if found is None:
                    found = known[key] = self._why(waiting)
                answer = found
            self._add(
                ClaimPlan(
                    uid=waiting.claim.uid,
                    placements=waiting.placements,
                    reasons=answer[0],
                    nearest=answer[1],
                )
            )

    def _why(self, waiting: _Waiting) -> tuple[tuple[Reason, ...], str | None]:
        """Why the most wanted way fits nowhere, and the smallest change to any of them, the most wanted first."""
        asks = waiting.asks
        short = shortage(self.placer, asks[0])
        found = reasons(diagnose(self.placer, asks[0])) if short is None else short[0]
        if len(asks) > 1:
            first, *others = found
            message = f"none of {len(asks)} ways fits, the most wanted one: {first.message}"
            found = (replace(first, message=message), *others)
        changes = (_change(self.placer, ask) for ask in asks)
        return found, next((change for change in changes if change is not None), None)

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


def _change(placer: Placer, ask: Ask) -> str | None:
    """The smallest change that would make an ask fit."""
    short = shortage(placer, ask)
    return nearest(placer, ask) if short is None else short[1]
