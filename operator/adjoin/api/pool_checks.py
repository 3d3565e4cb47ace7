"""What a DevicePool must hold beyond types and limits: the rules of `pool_rules` in Python, and those for which the API
server has no budget (static devices, keys of maps).

In comes a parsed pool, out come errors in the order of its fields. Nodes, ConfigMaps and other pools are not looked at.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from adjoin.api.common import LabelSelector
from adjoin.api.errors import FieldError, below
from adjoin.api.hook_checks import check_template
from adjoin.api.names import ATTRIBUTE_DOMAIN
from adjoin.api.pool import DevicePool
from adjoin.api.pool_devices import DeviceSource, PoolDevice, StaticDevice
from adjoin.api.pool_policy import (
    Delivery,
    DeliveryMode,
    Guard,
    PoolLifecycle,
    Split,
    Tenancy,
    Toleration,
    TolerationOperator,
)
from adjoin.api.pool_rules import SPLIT_ENVIRONMENT, UNGUARDED_ENVIRONMENT
from adjoin.api.scalars import ATTRIBUTE, DNS_SUBDOMAIN, IDENTIFIER, LABEL_KEY, PATTERN_WORDS

_NEED_VALUES: Final = ("In", "NotIn")


def check_pool(pool: DevicePool) -> Iterator[FieldError]:
    """Everything that is wrong with a pool by itself."""
    spec = pool.spec
    names = [device.name for device in spec.devices]
    yield from check_selector("spec.nodeSelector", spec.node_selector)
    for index, device in enumerate(spec.devices):
        yield from _check_device(f"spec.devices[{index}]", device)
    yield from _check_identities(spec.devices)
    for alias in spec.topology.attributes:
        if not _matches(IDENTIFIER, alias):
            message = f"must be {PATTERN_WORDS[IDENTIFIER]}, such as numaNode; full attribute names are the values"
            yield FieldError(below("spec.topology.attributes", alias), alias, message)
    for index, matrix in enumerate(spec.topology.matrices):
        yield from check_selector(f"spec.topology.matrices[{index}].nodeSelector", matrix.node_selector)
    yield from _unique("spec.topology.fabric", "levels", (level.name for level in spec.topology.fabric))
    if spec.tenancy is not None:
        yield from _check_tenancy(spec.tenancy, names)
    for index, toleration in enumerate(spec.tolerations):
        yield from _check_toleration(f"spec.tolerations[{index}]", toleration)
    yield from _check_lifecycle(spec.lifecycle, names, spec.delivery.guard is Guard.DEVICE_TAINT_RULE)
    yield from _check_delivery(spec.delivery, spec.devices)


def check_selector(path: str, selector: LabelSelector | None) -> Iterator[FieldError]:
    """Everything that Kubernetes would refuse in a label selector."""
    if selector is None:
        return
    for key in selector.match_labels:
        if not _is_label_key(key):
            yield FieldError(below(f"{path}.matchLabels", key), key, f"must be {PATTERN_WORDS[LABEL_KEY]}")
    for index, line in enumerate(selector.match_expressions):
        here = f"{path}.matchExpressions[{index}]"
        if not _is_label_key(line.key):
            yield FieldError(f"{here}.key", line.key, f"must be {PATTERN_WORDS[LABEL_KEY]}")
        if line.operator in _NEED_VALUES and not line.values:
            yield FieldError(f"{here}.values", [], f"operator {line.operator} needs at least one value")
        if line.operator not in _NEED_VALUES and line.values:
            yield FieldError(f"{here}.values", list(line.values), f"operator {line.operator} takes no values")


def _check_device(path: str, device: PoolDevice) -> Iterator[FieldError]:
    yield from _check_source(f"{path}.source", device.source)
    yield from _unique(f"{path}.classes", "classes", (item.name for item in device.classes))


def _check_source(path: str, source: DeviceSource) -> Iterator[FieldError]:
    given = {
        "resourceSlices": source.resource_slices,
        "nodeResource": source.node_resource,
        "static": source.static,
    }
    present = [name for name, value in given.items() if value is not None]
    if len(present) != 1:
        yield FieldError(path, present, "give exactly one of resourceSlices, nodeResource and static")
    if source.static is None:
        return
    for position, node in enumerate(source.static.nodes):
        for index, device in enumerate(node.devices):
            yield from _check_static(f"{path}.static.nodes[{position}].devices[{index}]", device)


def _check_static(path: str, device: StaticDevice) -> Iterator[FieldError]:
    for field, facts in (("attributes", device.attributes), ("capacity", device.capacity)):
        for name in facts:
            domain, _, short = name.rpartition("/")
            if not _matches(ATTRIBUTE, name) or (domain and not _matches(DNS_SUBDOMAIN, domain)):
                yield FieldError(below(f"{path}.{field}", name), name, f"must be {PATTERN_WORDS[ATTRIBUTE]}")
            elif domain == ATTRIBUTE_DOMAIN and short in facts:
                message = f"is given twice: {short} without a domain is {ATTRIBUTE_DOMAIN}/{short}"
                yield FieldError(below(f"{path}.{field}", name), name, message)


def _check_identities(devices: Sequence[PoolDevice]) -> Iterator[FieldError]:
    """Static devices that are named twice on one node under different device names, or are the same hardware."""
    names: dict[tuple[str, str], str] = {}
    uuids: dict[str, str] = {}
    for index, device in enumerate(devices):
        nodes = device.source.static.nodes if device.source.static is not None else ()
        for position, node in enumerate(nodes):
            for place, static in enumerate(node.devices):
                path = f"spec.devices[{index}].source.static.nodes[{position}].devices[{place}]"
                first = names.setdefault((node.name, static.name), path)
                # Within one list the names are keys, and were looked at as such.
                if not path.startswith(first.rpartition(".devices[")[0]):
                    message = (
                        f"is a device of node {node.name} in {first} already; a node's devices need names that differ"
                    )
                    yield FieldError(f"{path}.name", static.name, message)
                for key in ("uuid", f"{ATTRIBUTE_DOMAIN}/uuid"):
                    uuid = static.attributes.get(key)
                    if not isinstance(uuid, str) or not uuid:
                        continue
                    first = uuids.setdefault(uuid, path)
                    if first != path:
                        message = f"is the uuid of {first} too; list each device once, or correct the uuid"
                        yield FieldError(below(f"{path}.attributes", key), uuid, message)


def _check_tenancy(tenancy: Tenancy, devices: list[str]) -> Iterator[FieldError]:
    yield from check_selector("spec.tenancy.namespaceSelector", tenancy.namespace_selector)
    tenants = [tenant.name for tenant in tenancy.tenants]
    if tenancy.default and tenancy.default not in tenants:
        known = ", ".join(tenants) or "none"
        message = f"default {tenancy.default} is none of the tenants; they are {known}"
        yield FieldError("spec.tenancy.default", tenancy.default, message)
    owners: dict[str, str] = {}
    for index, tenant in enumerate(tenancy.tenants):
        path = f"spec.tenancy.tenants[{index}]"
        yield from _amount_keys(f"{path}.quota", tenant.quota, devices)
        yield from _amount_keys(f"{path}.borrowing", tenant.borrowing, devices)
        for position, namespace in enumerate(tenant.namespaces):
            owner = owners.setdefault(namespace, tenant.name)
            if owner != tenant.name:
                message = f"belongs to tenant {owner} already; a namespace has one tenant"
                yield FieldError(f"{path}.namespaces[{position}]", namespace, message)


def _amount_keys(path: str, amounts: Mapping[str, int], devices: list[str]) -> Iterator[FieldError]:
    for name, amount in amounts.items():
        if name not in devices:
            message = f"limits a device that the pool does not have; it has {', '.join(devices)}"
            yield FieldError(below(path, name), amount, message)


def _check_toleration(path: str, toleration: Toleration) -> Iterator[FieldError]:
    if toleration.key is None and toleration.operator is not TolerationOperator.EXISTS:
        message = "without a key the operator must be Exists, which tolerates every taint"
        yield FieldError(f"{path}.operator", str(toleration.operator), message)
    if toleration.operator is TolerationOperator.EXISTS and toleration.value:
        message = f"operator Exists takes no value, found {toleration.value}"
        yield FieldError(f"{path}.value", toleration.value, message)


def _check_lifecycle(lifecycle: PoolLifecycle, devices: list[str], guarded: bool) -> Iterator[FieldError]:
    for phase, hooks in (("init", lifecycle.init), ("cleanup", lifecycle.cleanup)):
        yield from _unique(f"spec.lifecycle.{phase}", "hooks", (hook.name for hook in hooks))
        for index, hook in enumerate(hooks):
            for position, name in enumerate(hook.devices):
                if name not in devices:
                    message = f"the pool has no such device; it has {', '.join(devices)}"
                    yield FieldError(f"spec.lifecycle.{phase}[{index}].devices[{position}]", name, message)
            yield from check_template(f"spec.lifecycle.{phase}[{index}].template", hook.template, guarded)
    for index, parameter in enumerate(lifecycle.parameters):
        if parameter.default is not None and parameter.default not in parameter.values:
            message = f"default {parameter.default} is none of the values {', '.join(parameter.values)}"
            yield FieldError(f"spec.lifecycle.parameters[{index}].default", parameter.default, message)


def _check_delivery(delivery: Delivery, devices: Sequence[PoolDevice]) -> Iterator[FieldError]:
    if delivery.mode is not DeliveryMode.ENVIRONMENT:
        return
    if delivery.guard is Guard.NONE and any(device.source.resource_slices is not None for device in devices):
        yield FieldError("spec.delivery.guard", str(delivery.guard), UNGUARDED_ENVIRONMENT)
    if delivery.split is Split.DRIVER:
        yield FieldError("spec.delivery.split", str(delivery.split), SPLIT_ENVIRONMENT)


def _unique(path: str, what: str, names: Iterable[str]) -> Iterator[FieldError]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        yield FieldError(path, twice, f"names of {what} must differ")


def _is_label_key(key: str) -> bool:
    prefix, _, _ = key.rpartition("/")
    return _matches(LABEL_KEY, key) and (not prefix or _matches(DNS_SUBDOMAIN, prefix))


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None
