"""Nodes that have been out of reach for so long that their pool gives up waiting for them.

In come nodes, pools and what claims have there; out go the replicas that are to be placed elsewhere, and when the next
ones may be. What they had is not free by that: nobody has seen its users end.
"""

from __future__ import annotations

from collections.abc import Mapping

from adjoin.api.pool_policy import UnreachablePolicy
from adjoin.api.quantity import milliseconds
from adjoin.cache import View
from adjoin.inventory import Inventory, asked_pool
from adjoin.lifecycle.uses import entries, node_gone


def given_up(view: View, inventory: Inventory, now: float) -> tuple[Mapping[str, frozenset[int]], float | None]:
    """Replicas on nodes that are given up, by claim UID, and when to look again although nothing changed."""
    silent = {
        name: facts.unready_since
        for name, facts in view.nodes.items()
        if facts.unready_since is not None and not node_gone(inventory.nodes.get(name))
    }
    limits = {
        pool.meta.name: milliseconds(pool.pool.spec.lifecycle.node_unreachable.after) / 1000
        for pool in view.pools.values()
        if pool.pool.spec.lifecycle.node_unreachable.policy is UnreachablePolicy.RELEASE
    }
    if not silent or not limits:
        return {}, None
    found: dict[str, frozenset[int]] = {}
    wakes: list[float] = []
    for uid, claim in view.claims.items():
        limit = limits.get(asked_pool(claim, inventory.default_pool))
        if limit is None:
            continue
        indexes: set[int] = set()
        for entry in entries(claim):
            since = silent.get(str(entry.get("node") or ""))
            if since is None:
                continue
            if since + limit <= now:
                indexes.add(int(entry.get("index") or 0))
            else:
                wakes.append(since + limit)
        if indexes:
            found[uid] = frozenset(indexes)
    return found, min(wakes, default=None)
