"""What a claim can lose, who may take it, and what a set of losses costs.

In come the holders and accounts of a pool and a claim that looks for victims; out come, for each holder, what it can
lose to that claim (`Stock`), whether a set of losses is legal, and its key. Nothing is placed here, and nobody sent
away.

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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from itertools import combinations
from math import inf

from adjoin_allocator.holders import Holders, Holding
from adjoin_allocator.model import Claim, ClaimUID, PlacedShare
from adjoin_allocator.results import Placement
from adjoin_allocator.tenancy import WHOLE, Accounts, Cost, added
from adjoin_allocator.terms import Reclaim

SAME_AGAIN = 600.0
"""Seconds in which a claim is not evicted twice for the same preemptor (design §3.3)."""

MEMBERS = 6
"""Of so many replicas of a claim on one node every subset may go; of more any one, and the last ones together."""

Key = tuple[int, int, int, tuple[float, ...], tuple[str, ...], tuple[tuple[int, ...], ...]]
"""What a set of victims costs: highest priority, claims, devices, ages, UIDs, replicas."""


Bound = tuple[int, int, int, float]
"""A lower bound of a key: highest priority, claims, devices, and how young the oldest is at most."""


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
    parts: tuple[tuple[int, int, PlacedShare], ...] = ()
    """Position, bit and part of devices that others have a part of too."""

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
        found = [merged(some) for some in sizes]
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

    heap: list[tuple[Bound, int]]
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


class Bar(StrEnum):
    """What keeps a claim from being sent away for another one, how much tenants hold left aside."""

    LEAVING = auto()
    NOT_PREEMPTIBLE = auto()
    WITHIN_NEVER = auto()
    RECLAIM_NEVER = auto()
    PRIORITY = auto()
    AGAIN = auto()
    YOUNG = auto()


def barred(pool_field: Field, preemptor: Claim, victim: Claim) -> Bar | None:
    """What of base priority and tenants forbids it, apart from how much the tenants hold and what the victim has."""
    rules = pool_field.accounts.pool.preemption
    one_tenant = pool_field.one_tenant(preemptor, victim)
    if one_tenant and not rules.within_tenant:
        return Bar.WITHIN_NEVER
    if not one_tenant and rules.reclaim is not Reclaim.LOWER_PRIORITY:
        return None if rules.reclaim is Reclaim.ANY else Bar.RECLAIM_NEVER
    return None if victim.priority < preemptor.priority else Bar.PRIORITY


def may_evict(pool_field: Field, preemptor: Claim, victim: Claim) -> bool:
    """Whether base priority and tenants allow it, apart from how much the tenants hold and what the victim has."""
    return barred(pool_field, preemptor, victim) is None


class Law:
    """What the rules say of one claim that looks for victims, and of everybody else."""

    def __init__(self, pool_field: Field, claim: Claim, need: Cost) -> None:
        """`need` is what the claim costs its tenant at least."""
        self._field = pool_field
        self._claim = claim
        self._need = need
        self._allowed_by: dict[tuple[str, int], bool] = {}
        self._stocks: dict[ClaimUID, Stock | Bar] = {}

    def may(self, victim: Claim) -> bool:
        """Whether base priority and tenants allow to send a claim away."""
        if not victim.preemptible:
            return False
        key = (victim.tenant, victim.priority)
        found = self._allowed_by.get(key)
        if found is None:
            found = self._allowed_by[key] = may_evict(self._field, self._claim, victim)
        return found

    def legal(self, losses: Sequence[Loss], need: Cost) -> bool:
        """Whether tenants hold what they must hold, with the claim placed and the victims gone."""
        gone: dict[str, dict[str, int]] = {}
        others: dict[str, list[Loss]] = {}
        for loss in losses:
            tenant = loss.claim.tenant
            gone[tenant] = added(gone.get(tenant, {}), loss.cost)
            if not self._field.one_tenant(self._claim, loss.claim):
                others.setdefault(tenant, []).append(loss)
        accounts, mine = self._field.accounts, self._claim.tenant
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
                    if self.above(tenant, loss.cost, before):
                        rest.remove(loss)
                        break
                else:
                    return False
        return True

    def above(self, tenant: str, cost: Cost, gone: Cost) -> bool:
        """Whether a tenant has more than its quota of something that is asked and that a victim has, when `gone` is."""
        mine = self._field.accounts.pool.tenants.get(tenant)
        return mine is not None and any(
            cost.get(kind, 0) > 0
            and kind in mine.quota
            and self._field.accounts.staying(tenant, kind) - gone.get(kind, 0) > mine.quota[kind] * WHOLE
            for kind in self._need
        )

    def stock(self, uid: ClaimUID) -> Stock | None:
        """What a claim can lose to this one; None when it is nothing."""
        found = self._assessed(self._field.holders.claims[uid][0].claim)
        return None if isinstance(found, Bar) else found

    def bar(self, victim: Claim) -> Bar | None:
        """What keeps a claim from losing anything to this one; None when it can lose something."""
        found = self._assessed(victim)
        return found if isinstance(found, Bar) else None

    def _assessed(self, victim: Claim) -> Stock | Bar:
        found = self._stocks.get(victim.uid)
        if found is None:
            found = self._stocks[victim.uid] = self._assess(victim)
        return found

    def _assess(self, victim: Claim) -> Stock | Bar:
        now = self._field.now
        if victim is self._claim or victim.deleting:
            return Bar.LEAVING
        if not victim.preemptible:
            return Bar.NOT_PREEMPTIBLE
        bar = None if self.may(victim) else barred(self._field, self._claim, victim)
        if bar is not None:
            return bar
        if victim.evictions and any(
            each.by == self._claim.uid and now - each.at < SAME_AGAIN for each in victim.evictions
        ):
            return Bar.AGAIN
        holdings = self._field.holders.claims.get(victim.uid, ())
        going = self._field.evicted.get(victim.uid, ())
        shortest = self._field.accounts.pool.preemption.min_runtime
        if len(holdings) == 1 and victim.gang_min is None:
            (only,) = holdings
            index = only.replica.index
            if only.back or index in going:
                return Bar.LEAVING
            if _ran(only, now) < shortest:
                return Bar.YOUNG
            return Stock(victim, (self._loss(victim, (index,), {index: holdings}),), 1, None)
        live: dict[int, list[Holding]] = {}
        for holding in holdings:
            if not holding.back and holding.replica.index not in going:
                live.setdefault(holding.replica.index, []).append(holding)
        settled = {index for index, mine in live.items() if _ran(mine[0], now) >= shortest}
        singles = tuple(self._loss(victim, [index], live) for index in sorted(settled, reverse=True))
        if not live:
            return Bar.LEAVING
        if not singles:
            return Bar.YOUNG
        if victim.gang_min is None:
            return Stock(victim, singles, len(singles), None)
        spare = max(0, len(live) - victim.gang_min)
        whole = self._loss(victim, sorted(live), live) if len(settled) == len(live) else None
        if whole is None and not spare:
            return Bar.YOUNG
        return Stock(victim, singles if spare else (), spare, whole)

    def _loss(self, victim: Claim, indexes: Sequence[int], live: Mapping[int, Sequence[Holding]]) -> Loss:
        holdings = [each for index in indexes for each in live[index]]
        if len(holdings) == 1 and not holdings[0].parts:
            (only,) = holdings
            cost = self._field.holders.cost(only.position, only.mask)
            return Loss(victim, tuple(indexes), ((only.position, only.mask),), only.mask.bit_count(), cost)
        places = tuple((each.position, each.mask) for each in holdings)
        parts = tuple((each.position, bit, share) for each in holdings for bit, share in each.parts)
        cost = added(*(self._field.holders.cost(each.position, each.mask, each.parts) for each in holdings))
        devices = sum(mask.bit_count() for _, mask in places) + len(parts)
        return Loss(victim, tuple(indexes), places, devices, cost, parts)

    def allowed(self, losses: Sequence[Loss], left: dict[str, dict[str, int]]) -> list[Loss]:
        """As many of them, in their order, as other tenants may lose beside what they lose already; that is added up in
        `left`.
        """
        taken: list[Loss] = []
        for loss in losses:
            tenant = loss.claim.tenant
            if not self._field.one_tenant(self._claim, loss.claim):
                gone = left.setdefault(tenant, {})
                if not self.above(tenant, loss.cost, gone):
                    continue
                left[tenant] = added(gone, loss.cost)
            taken.append(loss)
        return taken


def merged(losses: Sequence[Loss]) -> Loss:
    """Several replicas of one claim as one loss."""
    if len(losses) == 1:
        return losses[0]
    return Loss(
        losses[0].claim,
        tuple(sorted(index for loss in losses for index in loss.replicas)),
        tuple(place for loss in losses for place in loss.places),
        sum(loss.devices for loss in losses),
        added(*(loss.cost for loss in losses)),
        tuple(part for loss in losses for part in loss.parts),
    )


def joined(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """One loss for each claim; a whole one stands for its parts."""
    by_claim: dict[ClaimUID, list[Loss]] = {}
    for loss in losses:
        by_claim.setdefault(loss.claim.uid, []).append(loss)
    found = []
    for some in by_claim.values():
        largest = max(some, key=lambda loss: len(loss.replicas))
        parts = [loss for loss in some if not set(loss.replicas) <= set(largest.replicas)]
        found.append(merged([largest, *parts]))
    return tuple(found)


def key_of(losses: Sequence[Loss]) -> Key:
    ordered = sorted(losses, key=lambda loss: loss.claim.uid)
    return (
        max(loss.claim.priority for loss in losses),
        len(losses),
        sum(loss.devices for loss in losses),
        tuple(sorted(-created(loss.claim) for loss in losses)[::-1]),
        tuple(loss.claim.uid for loss in ordered),
        tuple(tuple(-index for index in reversed(loss.replicas)) for loss in ordered),
    )


def created(claim: Claim) -> float:
    """Of two claims the greater is the younger; one without creation time is the youngest."""
    return inf if claim.created is None else claim.created


def _ran(holding: Holding, now: float) -> float:
    """Seconds since a replica was ready, else since it was given its devices; one of which neither is known just
    began."""
    replica = holding.replica
    since = replica.ready_at if replica.ready_at is not None else replica.allocated_at
    return 0.0 if since is None else now - since


def ways(stock: Stock) -> int:
    """In how many ways a claim can lose something, at most."""
    return 2 ** len(stock.singles) if len(stock.singles) <= MEMBERS else 2 * len(stock.singles)
