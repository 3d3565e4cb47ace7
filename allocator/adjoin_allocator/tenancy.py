"""Tenants: what each holds of a pool, and what quota and borrowing leave it.

In come a pool, the devices there are and what claims hold at the beginning of a decision; out come, at any moment of
it, the room that a tenant has, its weighted dominant share, and sentences about a quota that is used up. Amounts are by
device name, in thousandths of a device (a whole one is 1,000). Nothing here places or evicts.

Quota comes back with the device: what is on its way back counts until its status is gone, so that quotas are never
overcommitted. What has been promised to a claim that waits for evicted ones counts against its tenant's quota, not as
its share.

The rule of borrowing. A tenant may hold as much above its quota as `borrowing` says, but all tenants with a quota for
a device name together never hold more of it through borrowing than these quotas add up to: above its own quota a tenant
lives on what the others hold less than theirs. What a lender's claims wait for does not matter, only what it
holds: a large claim of its own that has no place keeps nobody from borrowing. It takes its quota back by being served
within it, if need be by reclaiming.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from adjoin_allocator.model import Device, PlacedShare, Pool, PreemptionRules, Request, Share, ShareAsk, Tenant
from adjoin_allocator.order import NOTHING, Portion
from adjoin_allocator.rulebook import rule_for
from adjoin_allocator.sharing import part

WHOLE = 1000
"""A whole device."""

Cost = Mapping[str, int]
"""Thousandths of a device by device name."""


@lru_cache(maxsize=4096)
def least_cost(requests: tuple[Request, ...], portions: tuple[tuple[str, int], ...] = ()) -> Cost:
    """What one replica takes at least: of `all` one device, of alternatives the cheapest. `portions`: what a device of
    a name costs at least, where that may be less than a whole one.
    """
    cost: dict[str, int] = {}
    least = dict(portions)
    for request in requests:
        if request.first_of:
            ways = [(max(1, way.count) if way.all_devices else way.count, way.share) for way in request.first_of]
        else:
            ways = [(1 if request.all_devices else request.count, request.share)]
        cheapest = min(_parts(*way, least.get(request.kind, WHOLE)) for way in ways)
        cost[request.kind] = cost.get(request.kind, 0) + cheapest
    return cost


def _parts(count: int, share: ShareAsk | None, whole: int) -> int:
    """A part costs its compute at least; what its memory is of a card depends on the card."""
    return whole * count if share is None else max(1, share.compute_milli or 0) * count


def part_cost(placed: PlacedShare, device: Device, shares: Mapping[str, Share]) -> int:
    """What a part of a device costs: its largest fraction of the card in thousandths, rounded up."""
    share = shares.get(placed.name)
    if share is None:
        # Nothing says any more what it is a part of.
        return max(placed.compute_milli or 0, WHOLE if placed.memory_bytes or placed.compute_milli is None else 0)
    return rule_for(share, device).cost(part(placed, share))


def added(*costs: Cost) -> dict[str, int]:
    """The sum of costs."""
    total: dict[str, int] = {}
    for cost in costs:
        for kind, amount in cost.items():
            total[kind] = total.get(kind, 0) + amount
    return total


def amount(milli: int) -> str:
    """`8`, `0.5`: thousandths as a number of devices."""
    whole, rest = divmod(milli, WHOLE)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


class Usage:
    """What tenants hold of a pool, and how much of it is on its way back; kept up from change to change."""

    __slots__ = ("back", "held")

    def __init__(self) -> None:
        self.held: dict[str, dict[str, int]] = {}
        self.back: dict[str, dict[str, int]] = {}

    def change(self, tenant: str, kind: str, milli: int, back: bool) -> None:
        """A tenant holds so much more of a device name, or less."""
        for table in (self.held, self.back) if back else (self.held,):
            # Never changed in place: plans show these tables.
            mine = dict(table.get(tenant, ()))
            mine[kind] = mine.get(kind, 0) + milli
            if not mine[kind]:
                del mine[kind]
            if mine:
                table[tenant] = mine
            else:
                table.pop(tenant, None)


class Accounts:
    """One pool's tenants during one decision.

    Attributes:
        pool: The pool.
        portions: As in `least_cost`.
    """

    def __init__(
        self, pool: Pool, capacity: Mapping[str, int], usage: Usage, portions: tuple[tuple[str, int], ...] = ()
    ) -> None:
        """`capacity` is the pool's devices by name, `usage` what stands at the beginning and is not changed here."""
        self.pool = pool
        self.portions = portions
        self._capacity = capacity
        self._usage = usage
        self._given: dict[tuple[str, str], int] = {}
        self._promised: dict[tuple[str, str], int] = {}
        self._evicted: dict[tuple[str, str], int] = {}
        self._limits: dict[str, int] = {}
        for tenant in pool.tenants.values():
            for kind, quota in tenant.quota.items():
                self._limits[kind] = self._limits.get(kind, 0) + quota * WHOLE
        self._totals: dict[str, int] = {
            kind: sum(self.held(name, kind) for name in self._with_quota(kind)) for kind in self._limits
        }

    def give(self, tenant: str, cost: Cost, sign: int = 1) -> None:
        """This decision gives a tenant so much, or takes that back."""
        self._book(self._given, tenant, cost, sign)
        self._total(tenant, cost, sign)

    def promise(self, tenant: str, cost: Cost, sign: int = 1) -> None:
        """So much is promised to a tenant, or no longer is."""
        self._book(self._promised, tenant, cost, sign)
        self._total(tenant, cost, sign)

    def evict(self, tenant: str, cost: Cost) -> None:
        """This decision sends away claims of a tenant that hold so much. They hold it until it has come back."""
        self._book(self._evicted, tenant, cost, 1)

    def held(self, tenant: str, kind: str) -> int:
        """What a tenant holds."""
        return self._usage.held.get(tenant, {}).get(kind, 0) + self._given.get((tenant, kind), 0)

    def promised(self, tenant: str, kind: str) -> int:
        """What is promised to a tenant."""
        return self._promised.get((tenant, kind), 0)

    def staying(self, tenant: str, kind: str) -> int:
        """What a tenant holds once all that is on its way back, or sent away by this decision, is gone."""
        back = self._usage.back.get(tenant, {}).get(kind, 0) + self._evicted.get((tenant, kind), 0)
        return self.held(tenant, kind) - back

    def usage(self) -> Mapping[str, Mapping[str, int]]:
        """By tenant and device name what is held now; tenants of the pool that hold nothing are listed too."""
        usage: dict[str, Mapping[str, int]] = {**{name: {} for name in self.pool.tenants}, **self._usage.held}
        for (name, kind), milli in self._given.items():
            if milli:
                usage[name] = {**usage.get(name, {}), kind: self.held(name, kind)}
        # Sorted, and copies: what the ledger keeps stands in the order of what came first, and goes on changing.
        return {name: dict(sorted(held.items())) for name, held in sorted(usage.items())}

    def under(self, rules: PreemptionRules) -> Accounts:
        """The same accounts, to be read only, as if the pool had these rules."""
        other = copy(self)
        other.pool = replace(self.pool, preemption=rules)
        return other

    def borrowed(self, tenant: str, kind: str) -> int:
        """What a tenant keeps beyond its quota; without a quota it borrows nothing."""
        mine = self.pool.tenants.get(tenant)
        if mine is None or kind not in mine.quota:
            return 0
        return max(0, self.staying(tenant, kind) - mine.quota[kind] * WHOLE)

    def portion(self, tenant: str) -> Portion:
        """The weighted dominant share. Without tenants there is one, whose share decides nothing."""
        if not self.pool.tenants:
            return NOTHING
        share, mine = self.share(tenant), self.pool.tenants.get(tenant)
        weight = 1 if mine is None else mine.weight
        return (0, share / weight) if weight > 0 else (1, share)

    def share(self, tenant: str) -> Fraction:
        """The dominant share: the greatest part that a tenant has of any device name. Without tenants all are one."""
        kinds = {*self._usage.held.get(tenant, {}), *(kind for who, kind in self._given if who == tenant)}
        if not self.pool.tenants:
            kinds = set(self._capacity)
        parts = [
            Fraction(self.used(tenant, kind), self._capacity[kind] * WHOLE)
            for kind in kinds
            if self._capacity.get(kind)
        ]
        return max(parts, default=Fraction(0))

    def used(self, tenant: str, kind: str) -> int:
        """What a tenant holds; without tenants what all hold together."""
        if self.pool.tenants:
            return self.held(tenant, kind)
        return sum(held.get(kind, 0) for held in self.usage().values())

    def capacity(self, kind: str) -> int:
        """How many devices of a name the pool has."""
        return self._capacity.get(kind, 0)

    def limited(self, tenant: str) -> bool:
        """Whether a tenant has any quota."""
        mine = self.pool.tenants.get(tenant)
        return mine is not None and bool(mine.quota)

    def room(self, tenant: str, kind: str) -> int | None:
        """How much more a tenant may have of a device name; None: any amount."""
        mine = self.pool.tenants.get(tenant)
        if mine is None or kind not in mine.quota:
            return None
        used = self.held(tenant, kind) + self.promised(tenant, kind)
        own = mine.quota[kind] * WHOLE - used
        borrowed = own + mine.borrowing.get(kind, 0) * WHOLE
        return max(0, own, min(borrowed, self._limits[kind] - self._totals[kind]))

    def short(self, tenant: str, cost: Cost) -> tuple[str, ...]:
        """The device names of which quota and borrowing forbid a tenant this much more."""
        if not self.pool.tenants:
            return ()
        found = []
        for kind, milli in cost.items():
            room = self.room(tenant, kind) if milli else None
            if room is not None and room < milli:
                found.append(kind)
        return tuple(found)

    def sentence(self, tenant: str, cost: Cost, kinds: Iterable[str]) -> str:
        """`tenant research holds 16 of 16 gpu, needs 8`."""
        return f"tenant {tenant} " + ", ".join(self._clause(self.pool.tenants[tenant], kind, cost) for kind in kinds)

    def lent(self, tenant: str, cost: Cost, kinds: Iterable[str]) -> tuple[str, dict[str, int]] | None:
        """The tenant that would have to give back so much of what it borrows for the quotas to allow `cost`; None when
        no single one could, or `tenant` itself may not borrow so much.
        """
        lacking: dict[str, int] = {}
        for kind in kinds:
            mine = self.pool.tenants[tenant]
            after = self.held(tenant, kind) + self.promised(tenant, kind) + cost[kind]
            if after > (mine.quota[kind] + mine.borrowing.get(kind, 0)) * WHOLE:
                return None
            lacking[kind] = self._totals[kind] + cost[kind] - self._limits[kind]
        for name in sorted(self.pool.tenants):
            if name != tenant and all(self.borrowed(name, kind) >= milli for kind, milli in lacking.items()):
                return name, lacking
        return None

    def remedy(self, tenant: str, cost: Cost, kinds: Iterable[str]) -> str:
        """`fits with quota 24 instead of 16 of gpu for tenant research`."""
        changes = []
        for kind in kinds:
            after = self.held(tenant, kind) + self.promised(tenant, kind) + cost[kind]
            changes.append(f"{-(-after // WHOLE)} instead of {self.pool.tenants[tenant].quota[kind]} of {kind}")
        return f"fits with quota {' and '.join(changes)} for tenant {tenant}"

    def _clause(self, tenant: Tenant, kind: str, cost: Cost) -> str:
        words = f"holds {amount(self.held(tenant.name, kind))} of {tenant.quota[kind]} {kind}"
        promised = self.promised(tenant.name, kind)
        if promised:
            words += f" with {amount(promised)} more promised"
        borrowing = tenant.borrowing.get(kind, 0)
        if borrowing:
            unused = max(0, self._limits[kind] - self._totals[kind])
            words += f" and may borrow {borrowing} while others leave theirs ({amount(unused)} now)"
        return f"{words}, needs {amount(cost[kind])}"

    def affords(self, tenant: str, cost: Cost, gone: Mapping[str, Cost]) -> bool:
        """Whether quota and borrowing allow a tenant this much once all that is on its way back, and what `gone` lists
        by tenant, has gone.
        """
        mine = self.pool.tenants.get(tenant)
        if mine is None:
            return True
        for kind, milli in cost.items():
            if kind not in mine.quota or not milli:
                continue
            quota = mine.quota[kind] * WHOLE
            after = self.after(tenant, kind, cost, gone)
            if after <= quota:
                continue
            if after > quota + mine.borrowing.get(kind, 0) * WHOLE:
                return False
            total = sum(
                self.staying(name, kind) + self.promised(name, kind) - gone.get(name, {}).get(kind, 0)
                for name in self._with_quota(kind)
            )
            if total + milli > self._limits[kind]:
                return False
        return True

    def after(self, tenant: str, kind: str, cost: Cost, gone: Mapping[str, Cost]) -> int:
        """What a tenant has when it gets `cost`, promises are kept, and all that goes has gone."""
        mine = gone.get(tenant, {}).get(kind, 0)
        return self.staying(tenant, kind) + self.promised(tenant, kind) + cost.get(kind, 0) - mine

    def within_quota(self, tenant: str, cost: Cost, gone: Mapping[str, Cost]) -> bool:
        """Whether a tenant is within its quota in every device name when it gets `cost` and `gone` has gone."""
        mine = self.pool.tenants.get(tenant)
        return mine is None or all(
            self.after(tenant, kind, cost, gone) <= quota * WHOLE for kind, quota in mine.quota.items()
        )

    def _with_quota(self, kind: str) -> list[str]:
        return [name for name, tenant in self.pool.tenants.items() if kind in tenant.quota]

    def _total(self, tenant: str, cost: Cost, sign: int) -> None:
        mine = self.pool.tenants.get(tenant)
        for kind, milli in cost.items():
            if mine is not None and kind in mine.quota:
                self._totals[kind] += sign * milli

    @staticmethod
    def _book(table: dict[tuple[str, str], int], tenant: str, cost: Cost, sign: int) -> None:
        for kind, milli in cost.items():
            table[tenant, kind] = table.get((tenant, kind), 0) + sign * milli
