"""The device that an expression looks at, and how its parts are read.

Comes in: anything that is a `DeviceView`. Attributes and capacity come flat, by `domain/name`, with names that a
driver publishes without a domain already qualified by it. `device.attributes['dra.net'].rdma` is thereby one look-up
of `dra.net/rdma`; the maps of maps that CEL speaks of are built only for the few expressions that go through them, at
each evaluation, and in the order of names: no verdict hangs on the order in which a driver publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from adjoin_allocator.cel.frame import ATTRIBUTES, CAPACITY, DEVICE, Frame
from adjoin_allocator.cel.quantity import Quantity
from adjoin_allocator.cel.values import EMPTY_MAP, DomainsValue, MapValue, text_map
from adjoin_allocator.cel.version import Version

AttributeScalar = str | int | bool | Version
AttributeValue = AttributeScalar | tuple[str, ...] | tuple[int, ...] | tuple[bool, ...] | tuple[Version, ...]
"""What an attribute can be; a list attribute is a tuple of one scalar type."""


class DeviceView(Protocol):
    """What the evaluator reads of a device. Nothing is ever written."""

    @property
    def driver(self) -> str:
        """The driver that published it."""

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """Attributes by `domain/name`."""

    @property
    def capacity(self) -> Mapping[str, Quantity]:
        """Capacity by `domain/name`."""

    @property
    def allow_multiple_allocations(self) -> bool:
        """Whether several claims may share it."""


def fact_name(domain: str, name: str) -> str:
    """`domain/name`, or empty for a domain that no fact can have: it would be mistaken for another name."""
    return "" if "/" in domain else f"{domain}/{name}"


def has_domain(facts: Mapping[str, Any], domain: str) -> bool:
    """Whether the device has any fact of that domain."""
    prefix = f"{domain}/"
    return "/" not in domain and any(name.startswith(prefix) for name in facts)


def domain_map(facts: Mapping[str, Any], domain: str) -> MapValue:
    """The facts of one domain by their short names."""
    prefix = f"{domain}/"
    if "/" in domain:
        return EMPTY_MAP
    names = sorted(name for name in facts if name.startswith(prefix))
    return text_map({name[len(prefix) :]: facts[name] for name in names})


def domains_map(facts: Mapping[str, Any]) -> DomainsValue:
    """All facts, by domain and short name."""
    domains: dict[str, dict[str, Any]] = {}
    for qualified in sorted(facts):
        domain, _, name = qualified.partition("/")
        domains.setdefault(domain, {})[name] = facts[qualified]
    return DomainsValue({domain: (domain, text_map(inner)) for domain, inner in domains.items()}, text_only=True)


def device_map(frame: Frame) -> MapValue:
    """The whole device as a value."""
    device = frame[DEVICE]
    return text_map(
        {
            "driver": device.driver,
            "allowMultipleAllocations": device.allow_multiple_allocations,
            "attributes": domains_map(frame[ATTRIBUTES]),
            "capacity": domains_map(frame[CAPACITY]),
        }
    )
