"""Which claim has which devices: of one pool, by node and by claim, and what that makes for each tenant.

In come what claims hold, one entry for each replica on a node, when the ledger enters it and when it leaves; out come
the holders of a node and the usage of tenants. Who holds what is listed only in pools where somebody may have to give
way (preemption, reservation) or has borrowed what it has; usage is kept for all. Nothing here decides anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from adjoin_allocator.model import Claim, ClaimUID, PlacedReplica, PlacedShare, Pool, Share
from adjoin_allocator.nodes import PoolIndex, Shape
from adjoin_allocator.tenancy import WHOLE, Cost, Usage, part_cost
from adjoin_allocator.terms import Reclaim
from adjoin_allocator.topology import bits


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """Devices of one replica on one node; `back` when they are on their way back."""

    claim: Claim
    replica: PlacedReplica
    position: int
    mask: int
    back: bool
    parts: tuple[tuple[int, PlacedShare], ...] = ()
    """Of which devices it has parts besides, and which."""

    @property
    def touched(self) -> int:
        """All devices of which it has anything."""
        return self.mask | sum({1 << bit for bit, _ in self.parts})


def preempts(pool: Pool) -> bool:
    """Whether anybody may ever be evicted in a pool."""
    return pool.preemption.within_tenant or pool.preemption.reclaim is not Reclaim.NEVER


COSTS = 4096
"""Sets of devices of which it is remembered what they cost."""


def _cost_of(shape: Shape, mask: int) -> Cost:
    """Whole devices cost what they are; a partition that a driver publishes its largest part of the card."""
    cost: dict[str, int] = {}
    for kind, devices in shape.kinds.items():
        here = devices & mask
        if here and shape.counters is None:
            cost[kind] = here.bit_count() * WHOLE
        elif here and shape.counters is not None:
            cost[kind] = sum(shape.counters.portions[device] for device in bits(here))
    return cost


class Holders:
    """The holders of one pool."""

    def __init__(self, index: PoolIndex, shares: Mapping[str, Share]) -> None:
        self.index = index
        self._shares = shares
        self.usage = Usage()
        self.nodes: dict[int, list[Holding]] = {}
        """By position; empty unless the pool may need it."""
        self.claims: dict[ClaimUID, list[Holding]] = {}
        """Likewise, by claim."""
        self.preemptors: Counter[ClaimUID] = Counter()
        """For whom holders were evicted lately, with how many."""
        self._costs: dict[tuple[Shape, int], Cost] = {}
        lends = any(tenant.borrowing for tenant in index.pool.tenants.values())
        self._listed = preempts(index.pool) or index.pool.hold_after is not None or lends

    def enter(
        self,
        claim: Claim,
        replica: PlacedReplica,
        position: int,
        mask: int,
        back: bool,
        parts: tuple[tuple[int, PlacedShare], ...] = (),
    ) -> None:
        """A replica has these devices, and these parts of others."""
        self._count(claim, position, mask, parts, back, 1)
        if self._listed:
            holding = Holding(claim, replica, position, mask, back, parts)
            self.nodes.setdefault(position, []).append(holding)
            mine = self.claims.setdefault(claim.uid, [])
            if not mine:
                self.preemptors.update(eviction.by for eviction in claim.evictions)
            mine.append(holding)

    def leave(
        self, claim: Claim, position: int, mask: int, back: bool, parts: tuple[tuple[int, PlacedShare], ...] = ()
    ) -> None:
        """A replica of the claim no longer has these devices; all of the claim's leave together."""
        self._count(claim, position, mask, parts, back, -1)
        listed = self.claims.pop(claim.uid, ())
        for holding in listed:
            here = self.nodes[holding.position]
            here.remove(holding)
            if not here:
                del self.nodes[holding.position]
        if listed and claim.evictions:
            self.preemptors.subtract(eviction.by for eviction in claim.evictions)
            self.preemptors = +self.preemptors

    def cost(self, position: int, mask: int, parts: Collection[tuple[int, PlacedShare]] = ()) -> Cost:
        """What devices of a node, and parts of others, cost a tenant."""
        view = self.index.views[position]
        known = self._costs.get((view.shape, mask))
        if known is None:
            if len(self._costs) >= COSTS:
                self._costs.clear()
            known = self._costs[view.shape, mask] = _cost_of(view.shape, mask)
        if not parts:
            return known
        cost = dict(known)
        for bit, share in parts:
            device = view.devices[bit]
            cost[device.kind] = cost.get(device.kind, 0) + part_cost(share, device, self._shares)
        return cost

    def _count(
        self,
        claim: Claim,
        position: int,
        mask: int,
        parts: tuple[tuple[int, PlacedShare], ...],
        back: bool,
        sign: int,
    ) -> None:
        for kind, milli in self.cost(position, mask, parts).items():
            self.usage.change(claim.tenant, kind, sign * milli, back)
