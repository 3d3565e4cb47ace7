"""The one list of what the API says but Adjoin does not do yet. Such a field is refused, never accepted and ignored.

`REFUSED` names fields that must be absent or hold a value that means the same as absence. `SUPPORTED` names every leaf
that has behaviour. Together they cover the schemas of all three kinds: a field that is in neither is refused too, and a
test says so. Whoever gives a field its behaviour moves it from the first table to the second.

Paths are written with `[]` for any list entry and `{}` for any key of a map.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adjoin.api.errors import ErrorKind, FieldError, path_of
from adjoin.api.names import Kind
from adjoin.api.schema import schema_at

Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A field without behaviour; `unless` are values, beside the schema's default, that mean the same as absence."""

    path: str
    unless: tuple[Any, ...] = ()


REFUSED: Final[dict[Kind, tuple[Refused, ...]]] = {
    Kind.DEVICE_POOL: (),
    Kind.DEVICE_SHARE: (),
    Kind.DEVICE_CLAIM: (),
}

SUPPORTED: Final[dict[Kind, frozenset[str]]] = {
    Kind.DEVICE_POOL: frozenset(
        {
            "spec.nodeSelector.matchLabels{}",
            "spec.nodeSelector.matchExpressions[].key",
            "spec.nodeSelector.matchExpressions[].operator",
            "spec.nodeSelector.matchExpressions[].values[]",
            "spec.devices[].name",
            "spec.devices[].type",
            "spec.devices[].source.resourceSlices.driver",
            "spec.devices[].source.resourceSlices.selectors[].cel",
            "spec.devices[].source.nodeResource.name",
            "spec.devices[].source.static.nodes[].name",
            "spec.devices[].source.static.nodes[].devices[].name",
            "spec.devices[].source.static.nodes[].devices[].attributes{}",
            "spec.devices[].source.static.nodes[].devices[].capacity{}",
            "spec.devices[].classes[].name",
            "spec.devices[].classes[].selectors[].cel",
            "spec.devices[].classes[].performance",
            "spec.devices[].classes[].priority",
            "spec.topology.attributes{}[]",
            "spec.topology.matrices[].nodeSelector.matchLabels{}",
            "spec.topology.matrices[].nodeSelector.matchExpressions[].key",
            "spec.topology.matrices[].nodeSelector.matchExpressions[].operator",
            "spec.topology.matrices[].nodeSelector.matchExpressions[].values[]",
            "spec.topology.matrices[].configMapRef.name",
            "spec.topology.matrices[].configMapRef.key",
            "spec.topology.fabric[].name",
            "spec.topology.fabric[].nodeLabel",
            "spec.placement.strategy",
            "spec.placement.objective",
            "spec.placement.optimiseFor",
            "spec.placement.backfill.holdAfter",
            "spec.tenancy.namespaceSelector.matchLabels{}",
            "spec.tenancy.namespaceSelector.matchExpressions[].key",
            "spec.tenancy.namespaceSelector.matchExpressions[].operator",
            "spec.tenancy.namespaceSelector.matchExpressions[].values[]",
            "spec.tenancy.default",
            "spec.tenancy.tenants[].name",
            "spec.tenancy.tenants[].namespaces[]",
            "spec.tenancy.tenants[].quota{}",
            "spec.tenancy.tenants[].borrowing{}",
            "spec.tenancy.tenants[].weight",
            "spec.tenancy.preemption.withinTenant",
            "spec.tenancy.preemption.reclaim",
            "spec.tenancy.preemption.minRuntime",
            "spec.tenancy.aging.every",
            "spec.tenancy.aging.step",
            "spec.tenancy.aging.max",
            "spec.tolerations[].key",
            "spec.tolerations[].operator",
            "spec.tolerations[].value",
            "spec.tolerations[].effect",
            "spec.lifecycle.init[].name",
            "spec.lifecycle.init[].devices[]",
            "spec.lifecycle.init[].timeout",
            "spec.lifecycle.init[].retries",
            "spec.lifecycle.init[].template{}",
            "spec.lifecycle.cleanup[].name",
            "spec.lifecycle.cleanup[].devices[]",
            "spec.lifecycle.cleanup[].timeout",
            "spec.lifecycle.cleanup[].retries",
            "spec.lifecycle.cleanup[].template{}",
            "spec.lifecycle.parameters[].name",
            "spec.lifecycle.parameters[].values[]",
            "spec.lifecycle.parameters[].default",
            "spec.lifecycle.cleanBetweenRestarts",
            "spec.lifecycle.nodeUnreachable.after",
            "spec.lifecycle.nodeUnreachable.policy",
            "spec.lifecycle.idleClean",
            "spec.lifecycle.sweepEvery",
            "spec.health.driverGrace",
            "spec.health.rules[].taintKey",
            "spec.health.rules[].values[]",
            "spec.health.rules[].action",
            "spec.health.recovery",
            "spec.delivery.mode",
            "spec.delivery.guard",
            "spec.delivery.split",
            "spec.delivery.networks.attachment",
        }
    ),
    Kind.DEVICE_SHARE: frozenset(
        {
            "spec.poolRef.name",
            "spec.device",
            "spec.selectors[].cel",
            "spec.maxDevices",
            "spec.mode",
            "spec.timeSliced.slots",
            "spec.timeSliced.interval",
            "spec.fractional.reserve",
            "spec.fractional.minReserve",
            "spec.prepare",
            "spec.dwell",
            "spec.idleReset",
            "spec.mps.maxClients",
            "spec.mps.reserve",
            "spec.mps.minReserve",
            "spec.partitioned.layout[].profile",
            "spec.partitioned.layout[].count",
            "spec.partitioned.dynamic.profiles[]",
            "spec.partitioned.table[].profile",
            "spec.partitioned.table[].starts[]",
            "spec.partitioned.table[].size",
            "spec.partitioned.table[].compute",
            "spec.partitioned.table[].max",
            "spec.virtualFunctions.count",
        }
    ),
    Kind.DEVICE_CLAIM: frozenset(
        {
            "spec.poolRef.name",
            "spec.requests[].name",
            "spec.requests[].device",
            "spec.requests[].count",
            "spec.requests[].all",
            "spec.requests[].selectors[].cel",
            "spec.affinity[].requests[]",
            "spec.affinity[].scope",
            "spec.affinity[].attribute",
            "spec.affinity[].policy",
            "spec.replicas",
            "spec.affinity[].over",
            "spec.gang.minReplicas",
            "spec.fabric.required",
            "spec.fabric.preferred",
            "spec.fabric.segment.size",
            "spec.fabric.segment.level",
            "spec.host.cpu",
            "spec.host.memory",
            "spec.profile",
            "spec.requests[].firstOf[].name",
            "spec.requests[].firstOf[].count",
            "spec.requests[].firstOf[].all",
            "spec.requests[].firstOf[].selectors[].cel",
            "spec.requests[].share.name",
            "spec.requests[].share.slots",
            "spec.requests[].share.profile",
            "spec.requests[].share.memory",
            "spec.requests[].share.compute",
            "spec.requests[].sameDevice",
            "spec.requests[].isolation",
            "spec.requests[].firstOf[].share.name",
            "spec.requests[].firstOf[].share.slots",
            "spec.requests[].firstOf[].share.profile",
            "spec.requests[].firstOf[].share.memory",
            "spec.requests[].firstOf[].share.compute",
            "spec.requests[].firstOf[].sameDevice",
            "spec.requests[].firstOf[].isolation",
            "spec.deadline",
            "spec.preemptible",
            "spec.maxRuntime",
            "spec.priority",
            "spec.priorityClassName",
            "spec.suspend",
            "spec.scaling.mode",
            "spec.scaling.minReplicas",
            "spec.scaling.maxReplicas",
            "spec.release",
            "spec.idleTimeout",
            "spec.lifecycle.parameters{}",
        }
    ),
}


def unsupported(kind: Kind, obj: Mapping[str, Any], schema: Mapping[str, Any]) -> list[FieldError]:
    """Everything in the object that has no behaviour yet, in the order of the table. `schema` is the kind's own."""
    errors = []
    for refused in REFUSED[kind]:
        for steps, value in _values(obj, _STEP.findall(refused.path), ()):
            default = schema_at(dict(schema), steps).get("default")
            if value is not None and value != default and value not in refused.unless:
                path = path_of(steps)
                errors.append(FieldError(path, value, f"not supported yet: {path}", ErrorKind.UNSUPPORTED))
    return errors


_STEP: Final = re.compile(r"\w+|\[\]|\{\}")


def _values(value: Any, pattern: list[str], steps: Steps) -> Iterator[tuple[Steps, Any]]:
    """All values that lie at a path of the table. What has another shape than the path expects is passed over."""
    if not pattern:
        yield steps, value
        return
    step, *rest = pattern
    if step == "[]":
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _values(item, rest, (*steps, index))
    elif isinstance(value, Mapping):
        for key in list(value) if step == "{}" else [step]:
            if key in value:
                yield from _values(value[key], rest, (*steps, key))
