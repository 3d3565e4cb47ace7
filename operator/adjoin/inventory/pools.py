"""DevicePools, prepared for choosing: which nodes and devices they select, under which names, in which order of right.

In come facts of DevicePools and ConfigMaps; out go `PoolRules`, whose selectors are compiled and whose static devices
look like published ones. A pool that cannot be prepared (a selector that does not compile) offers nothing and says why;
it never takes another pool down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from adjoin.api.common import LabelSelector, SelectorOperator
from adjoin.api.names import ANNOTATION_DEFAULT_POOL, ATTRIBUTE_DOMAIN, DRIVER
from adjoin.api.pool_devices import PoolDevice, StaticDevice
from adjoin.api.pool_policy import Guard, HealthRule
from adjoin.facts import ClaimFacts, PoolFacts, PublishedDevice, qualified
from adjoin.inventory.matching import Matcher, MatcherError
from adjoin_allocator.cel import AttributeValue, Quantity
from adjoin_allocator.model import Device, DeviceName, MatrixText, Pool, Toleration
from adjoin_allocator.pci import pci_address
from adjoin_allocator.terms import DeviceType

_UUID_KEYS = ("uuid",)
_PCI_KEYS = ("pciBusID", "pciAddress", "pciAddr")
"""Under which names drivers publish what identifies hardware, in their own domain."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClass:
    """Ranks the devices that it matches."""

    matches: Matcher
    performance: int
    priority: int


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """One device name of a pool.

    Attributes:
        name: The name that claims ask for.
        type: Its role.
        matches: Which published devices it takes; always true for devices of other sources.
        classes: Their ranks, first match.
    """

    name: str
    type: DeviceType
    matches: Matcher
    classes: tuple[DeviceClass, ...]

    def rank(self, device: PublishedDevice) -> tuple[int, int]:
        """Performance and priority of a device: of the first class that matches, else 0 and 0."""
        for each in self.classes:
            if each.matches(device):
                return each.performance, each.priority
        return 0, 0


@dataclass(frozen=True, slots=True, eq=False)
class PoolRules:
    """What a DevicePool selects.

    Attributes:
        facts: The pool it was made from.
        names: The names that claims may ask for, in the pool's order.
        published: By driver the names that take devices from ResourceSlices, in the pool's order.
        counted: Names that count a node resource, with its name.
        listed: By node the static devices, each with its name.
        aliases: Names of facts with the attributes that they are read from.
        tolerations: Node taints that the pool's pods are expected to tolerate.
        matrices: Which matrix counts on which nodes, the first match.
        guarded: The pool wants its published devices kept from kube-scheduler by a taint rule.
        broken: Why the pool cannot be used, or "".
        health: What its devices' taints mean, the first match.
    """

    facts: PoolFacts
    names: tuple[DeviceName, ...]
    published: Mapping[str, tuple[Offer, ...]]
    counted: tuple[tuple[Offer, str], ...]
    listed: Mapping[str, tuple[tuple[Offer, PublishedDevice], ...]]
    aliases: Mapping[str, tuple[str, ...]]
    tolerations: tuple[Toleration, ...]
    matrices: tuple[tuple[LabelSelector | None, MatrixText], ...]
    guarded: bool
    broken: str
    health: tuple[HealthRule, ...] = ()

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.facts.meta.name

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether nodes with these labels belong to the pool."""
        return matches_labels(self.facts.pool.spec.node_selector, labels)

    def type_of(self, name: str) -> DeviceType | None:
        """The role of a device name, None where the pool has no such name."""
        return next((each.type for each in self.names if each.name == name), None)

    def matrix_for(self, labels: Mapping[str, str]) -> MatrixText | None:
        """The matrix that counts on nodes with these labels, None where no entry matches."""
        return next((text for selector, text in self.matrices if matches_labels(selector, labels)), None)

    def uuid_of(self, device: PublishedDevice) -> str:
        """The hardware uuid that a device publishes, or ""."""
        return _first_text(device, _identity_keys(self.aliases.get("uuid", ()), device.driver, "uuid", _UUID_KEYS))

    def pci_of(self, device: PublishedDevice) -> str:
        """The PCI address that a device publishes, or ""."""
        return _first_text(
            device, _identity_keys(self.aliases.get("pciBusID", ()), device.driver, "pciBusID", _PCI_KEYS)
        )


def address_of(device: Device, pool: Pool | None) -> str:
    """The PCI address that a device publishes, in one spelling, or "". `pool` says where it is read from."""
    aliases = pool.aliases.get("pciBusID", ()) if pool is not None else ()
    for key in _identity_keys(tuple(aliases), device.id.driver, "pciBusID", _PCI_KEYS):
        value = device.attributes.get(key)
        address = pci_address(value) if isinstance(value, str) else ()
        if address:
            return "{:04x}:{:02x}:{:02x}.{:x}".format(*address)
    return ""


@lru_cache(maxsize=256)
def _identity_keys(listed: tuple[str, ...], driver: str, alias: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """Attributes that tell a hardware identity: those that the pool lists, the standard one, the driver's own."""
    return *listed, f"resource.kubernetes.io/{alias}", *(f"{driver}/{name}" for name in own)


def _first_text(device: PublishedDevice, keys: tuple[str, ...]) -> str:
    attributes = device.attributes
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def seniority(facts: PoolFacts) -> tuple[float, str]:
    """Who keeps a device that several pools select: the older pool, then the name. A pool without an age is the
    youngest."""
    return (math.inf if facts.meta.created is None else facts.meta.created, facts.meta.name)


def prepare(facts: PoolFacts, texts: Mapping[str, Mapping[str, str]]) -> PoolRules:
    """The rules of one DevicePool. `texts` are the data of ConfigMaps by name."""
    spec = facts.pool.spec
    published: dict[str, list[Offer]] = {}
    counted: list[tuple[Offer, str]] = []
    listed: dict[str, list[tuple[Offer, PublishedDevice]]] = {}
    broken = ""
    for device in spec.devices:
        try:
            offer = _offer(device)
        except MatcherError as error:
            broken = broken or f"device {device.name}: {error}"
            continue
        source = device.source
        if source.resource_slices is not None:
            published.setdefault(source.resource_slices.driver, []).append(offer)
        elif source.node_resource is not None:
            counted.append((offer, source.node_resource.name))
        elif source.static is not None:
            for node in source.static.nodes:
                listed.setdefault(node.name, []).extend((offer, static_device(each)) for each in node.devices)
    return PoolRules(
        facts=facts,
        names=tuple(DeviceName(device.name, DeviceType(device.type)) for device in spec.devices),
        published={driver: tuple(offers) for driver, offers in published.items()},
        counted=tuple(counted),
        listed={node: tuple(devices) for node, devices in listed.items()},
        aliases={name: tuple(keys) for name, keys in spec.topology.attributes.items()},
        tolerations=tuple(
            Toleration(each.key or "", each.operator or "Equal", each.value or "", each.effect or "")
            for each in spec.tolerations
        ),
        matrices=read_matrices(facts, texts),
        guarded=spec.delivery.guard is Guard.DEVICE_TAINT_RULE and bool(published),
        broken=broken,
        health=spec.health.rules,
    )


def _offer(device: PoolDevice) -> Offer:
    slices = device.source.resource_slices
    return Offer(
        name=device.name,
        type=DeviceType(device.type),
        matches=Matcher(slices.selectors if slices is not None else ()),
        classes=tuple(DeviceClass(Matcher(each.selectors), each.performance, each.priority) for each in device.classes),
    )


def static_device(device: StaticDevice) -> PublishedDevice:
    """A static device as if a driver published it; names without a domain belong to Adjoin's own."""
    attributes: dict[str, AttributeValue] = {
        qualified(name, ATTRIBUTE_DOMAIN): value for name, value in device.attributes.items()
    }
    capacity = {qualified(name, ATTRIBUTE_DOMAIN): Quantity.parse(value) for name, value in device.capacity.items()}
    return PublishedDevice(name=device.name, driver=DRIVER, attributes=attributes, capacity=capacity)


def counted_devices(offer: Offer, count: int, gpu_ids: tuple[str, ...]) -> tuple[PublishedDevice, ...]:
    """Devices of which only the number is known, `<name>-<i>`. `gpu_ids` identify GPUs row by row, but only when they
    are as many as the
    devices: a device plugin that counts one less does not say which one is gone."""
    known = gpu_ids if offer.type is DeviceType.GPU and len(gpu_ids) == count else ()
    return tuple(
        PublishedDevice(
            name=f"{offer.name}-{index}",
            driver=DRIVER,
            attributes=_identified(known[index]) if known else {},
            capacity={},
        )
        for index in range(count)
    )


def _identified(text: str) -> dict[str, AttributeValue]:
    return {f"{ATTRIBUTE_DOMAIN}/{'pciBusID' if pci_address(text) else 'uuid'}": text}


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Kubernetes' label selector; an absent or empty one matches everything. NotIn holds for an absent label."""
    if selector is None:
        return True
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    for requirement in selector.match_expressions:
        value = labels.get(requirement.key)
        match requirement.operator:
            case SelectorOperator.IN:
                holds = value in requirement.values
            case SelectorOperator.NOT_IN:
                holds = value not in requirement.values
            case SelectorOperator.EXISTS:
                holds = value is not None
            case SelectorOperator.DOES_NOT_EXIST:
                holds = value is None
        if not holds:
            return False
    return True


def read_matrices(
    facts: PoolFacts, texts: Mapping[str, Mapping[str, str]]
) -> tuple[tuple[LabelSelector | None, MatrixText], ...]:
    """The pool's matrices with the nodes that they are for. A text that is absent is an empty one, so that the pool can
    say so."""
    read = []
    for entry in facts.pool.spec.topology.matrices:
        reference = entry.config_map_ref
        data = texts.get(reference.name, {})
        rows = (line.strip() for line in data.get(f"{reference.key}.gpus", "").splitlines())
        text = MatrixText(
            source=f"{reference.name}/{reference.key}",
            text=data.get(reference.key, ""),
            gpu_ids=tuple(row for row in rows if row and not row.startswith("#")),
        )
        read.append((entry.node_selector, text))
    return tuple(read)


def same_rules(
    rules: PoolRules, facts: PoolFacts, matrices: tuple[tuple[LabelSelector | None, MatrixText], ...]
) -> bool:
    """Whether `prepare` would make equal rules of `facts`."""
    known = rules.facts
    if seniority(known) != seniority(facts) or rules.matrices != matrices:
        return False
    same_object = known.meta.uid == facts.meta.uid and known.meta.generation == facts.meta.generation != 0
    return same_object or known.pool.spec == facts.pool.spec


def default_pools(pools: Iterable[PoolFacts]) -> tuple[str, ...]:
    """Names of the pools that are annotated as default. The first, which is the oldest (then by name), is for claims
    that name none."""
    annotated = [facts for facts in pools if facts.annotations.get(ANNOTATION_DEFAULT_POOL) == "true"]
    return tuple(facts.meta.name for facts in sorted(annotated, key=seniority))


def asked_pool(claim: ClaimFacts, default: str) -> str:
    """Name of the pool that a claim asks for, existing or not; "" when it names none and there is no default."""
    reference = claim.claim.spec.pool_ref
    return reference.name if reference is not None else default
