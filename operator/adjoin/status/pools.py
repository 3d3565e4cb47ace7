"""Status of a DevicePool: what the inventory and the decision say about it in, the status as it should stand out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from adjoin.api.pool_status import PoolCondition
from adjoin.facts import PoolFacts, Raw
from adjoin.inventory import PoolReport
from adjoin.status.conditions import Condition, compact, conditions
from adjoin_allocator.results import Mismatch, PoolPlan

_NAMED = 5


def _mismatch(mismatches: Sequence[Mismatch]) -> Condition:
    """Nodes on which a matrix is not used, those with the same trouble together."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for each in mismatches:
        nodes.setdefault((each.source, each.message), []).append(each.node)
    texts = []
    for (source, message), names in sorted(nodes.items()):
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        texts.append(f"{source} is not used on {', '.join(names[:_NAMED])}{more}: {message}")
    return Condition(PoolCondition.TOPOLOGY_MISMATCH, True, "MatrixUnusable", "; ".join(texts))


def pool_status(
    pool: PoolFacts,
    report: PoolReport,
    plan: PoolPlan | None,
    fragmentation: Mapping[str, float],
    now: float,
    quarantined: Sequence[Raw] | None = None,
    silent: Sequence[Raw] = (),
    used: Sequence[Raw] = (),
) -> dict[str, Any]:
    """The whole status as it should stand; `quarantined` is None where that list stays as it is."""
    found = [Condition(each.type, each.holds, each.reason, each.message) for each in report.findings]
    if plan is not None and plan.mismatches:
        found.append(_mismatch(plan.mismatches))
    counts = {} if plan is None else {name: asdict(each) for name, each in plan.counts.items()}
    return compact(
        {
            "observedGeneration": pool.meta.generation,
            "conditions": conditions(found, pool.status, pool.meta.generation, now),
            "summary": ", ".join(f"{name} {each['free']}/{each['capacity']}" for name, each in counts.items()),
            "devices": counts,
            "fragmentation": {name: fragmentation[name] for name in counts if name in fragmentation},
            "gap": None if plan is None else plan.gap,
            "tenants": [] if plan is None else _tenants(pool, plan),
            "quarantined": list(pool.status.get("quarantined") or () if quarantined is None else quarantined),
            "silent": [dict(each) for each in silent],
            "used": [dict(each) for each in used],
        }
    )


def _tenants(pool: PoolFacts, plan: PoolPlan) -> list[dict[str, Any]]:
    """What each of the pool's tenants holds, and how much of it is beyond its quota, in devices: parts rounded up."""
    listed = []
    for tenant in pool.pool.spec.tenancy.tenants if pool.pool.spec.tenancy is not None else ():
        held = plan.usage.get(tenant.name, {})
        used = {device: -(-milli // 1000) for device, milli in sorted(held.items()) if milli}
        beyond = {device: amount - tenant.quota.get(device, amount) for device, amount in used.items()}
        borrowed = {device: amount for device, amount in beyond.items() if amount > 0}
        listed.append(compact({"name": tenant.name, "used": used, "borrowed": borrowed}))
    return listed


_COUNTS = ("devices", "summary", "fragmentation", "gap", "tenants", "used")


def pool_gist(status: Raw) -> dict[str, Any]:
    """A pool's status without what changes with every placement."""
    return {key: value for key, value in status.items() if key not in _COUNTS}
