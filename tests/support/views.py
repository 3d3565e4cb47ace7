"""Views made of raw objects, as the cache would hand them out.

In come objects of any kind that the operator reads; out goes a `View` with the facts of each. Unlike the cache it keeps
nothing and checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from adjoin.cache import View
from adjoin.environment import read_guest, read_namespace, read_priority_class, read_share
from adjoin.facts import (
    read_claim,
    read_config_map,
    read_node,
    read_pod,
    read_pool,
    read_resource_claim,
    read_slice,
    read_taint_rule,
)

Obj = Mapping[str, Any]
NAMESPACE = "adjoin-system"


def view_of(*objects: Obj | Iterable[Obj], guard_served: bool = True, before: View | None = None) -> View:
    """A view of exactly these objects. Facts that `before` has of the very same object are shared with it."""
    flat: list[Obj] = []
    for each in objects:
        flat += [each] if isinstance(each, Mapping) else list(each)

    def facts(kind: str, read: Callable[[Obj], Any], known: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for obj in flat:
            if obj["kind"] != kind:
                continue
            uid = (
                obj["metadata"].get("uid") or f"{kind}/{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
            )
            fresh = read(obj)
            if fresh is None:
                continue
            old = known.get(uid)
            made[uid] = old if old is not None and _RAW.get(id(old)) is obj else fresh
            _RAW[id(made[uid])] = obj
            _KEPT.append(made[uid])
        return made

    empty: Mapping[str, Any] = {}
    nodes = facts("Node", read_node, {n.meta.uid: n for n in before.nodes.values()} if before else empty)
    return View(
        claims=facts("DeviceClaim", read_claim, before.claims if before else empty),
        pools=facts("DevicePool", read_pool, before.pools if before else empty),
        pods=facts("Pod", read_pod, before.pods if before else empty),
        resource_claims=facts("ResourceClaim", read_resource_claim, before.resource_claims if before else empty),
        slices=facts("ResourceSlice", read_slice, before.slices if before else empty),
        nodes={each.meta.name: each for each in nodes.values()},
        shares=facts("DeviceShare", read_share, before.shares if before else empty),
        namespaces=facts("Namespace", read_namespace, before.namespaces if before else empty),
        priority_classes=facts("PriorityClass", read_priority_class, before.priority_classes if before else empty),
        guests=facts("Pod", read_guest, before.guests if before else empty),
        taint_rules=facts("DeviceTaintRule", read_taint_rule, before.taint_rules if before else empty),
        config_maps=facts("ConfigMap", read_config_map, before.config_maps if before else empty),
        guard_served=guard_served,
        busy=frozenset(),
        lingering=MappingProxyType({}),
        namespace=NAMESPACE,
    )


_RAW: dict[int, Obj] = {}
_KEPT: list[Any] = []
"""Which object some facts were read from; the facts are kept so that their identity is never somebody else's."""
