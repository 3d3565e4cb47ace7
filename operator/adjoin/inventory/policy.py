"""A DevicePool's policies in the allocator's words: fabric, placement, tenancy.

In comes a pool's spec, out go the fields of the allocator's Pool that follow from it alone.
"""

from __future__ import annotations

from typing import TypedDict

from adjoin.api.pool import DevicePoolSpec
from adjoin.api.pool_policy import WithinTenant
from adjoin.api.quantity import milliseconds
from adjoin.inventory.tenancy import tenants_of
from adjoin_allocator.model import Aging, FabricLevel, PreemptionRules, Tenant
from adjoin_allocator.terms import Objective, Strategy


class Policy(TypedDict):
    """Fields of `Pool`."""

    fabric: tuple[FabricLevel, ...]
    strategy: Strategy
    objective: Objective
    optimise_milliseconds: int
    hold_after: float | None
    tenants: dict[str, Tenant]
    preemption: PreemptionRules
    aging: Aging | None


def policy_of(spec: DevicePoolSpec) -> Policy:
    """What a pool's spec says of placement and tenancy."""
    placement, tenancy = spec.placement, spec.tenancy
    backfill = placement.backfill
    hold_after = backfill.hold_after if backfill is not None else None
    preemption, aging = PreemptionRules(), None
    if tenancy is not None:
        stated = tenancy.preemption
        preemption = PreemptionRules(
            within_tenant=stated.within_tenant is WithinTenant.LOWER_PRIORITY,
            reclaim=stated.reclaim,
            min_runtime=milliseconds(stated.min_runtime) / 1000,
        )
        if tenancy.aging is not None:
            aging = Aging(milliseconds(tenancy.aging.every) / 1000, tenancy.aging.step, tenancy.aging.max)
    return Policy(
        fabric=tuple(FabricLevel(level.name, level.node_label) for level in spec.topology.fabric),
        strategy=placement.strategy,
        objective=placement.objective,
        optimise_milliseconds=milliseconds(placement.optimise_for),
        hold_after=None if hold_after is None else milliseconds(hold_after) / 1000,
        tenants=dict(tenants_of(tenancy)),
        preemption=preemption,
        aging=aging,
    )
