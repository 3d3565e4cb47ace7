"""Objects beside our own that decisions depend on, reduced to what they depend on: who shares what, in which order, and
what pods use of a node.

In come raw objects as the API server or a file holds them; out go frozen facts. Reading is as lenient as in `facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern

from adjoin.api import DeviceShare
from adjoin.api.names import LABEL_CLAIM
from adjoin.api.parse import parse_lenient
from adjoin.facts import Meta, Raw, read_meta
from adjoin_allocator.cel import Quantity


@dataclass(frozen=True, slots=True, eq=False)
class ShareFacts:
    """A DeviceShare: its spec as a model, its status as it stands."""

    meta: Meta
    share: DeviceShare
    status: Raw
    finalizers: tuple[str, ...]


def read_share(obj: Raw) -> ShareFacts:
    """Facts of a DeviceShare. Raises `ValueError` (`InvalidObject`) when the spec cannot be read at all."""
    return ShareFacts(
        meta=read_meta(obj),
        share=parse_lenient(DeviceShare, obj),
        status=obj.get("status") or {},
        finalizers=tuple((obj.get("metadata") or {}).get("finalizers") or ()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class NamespaceFacts:
    """A Namespace's labels."""

    meta: Meta
    labels: Mapping[str, str]


def read_namespace(obj: Raw) -> NamespaceFacts:
    """Facts of a Namespace."""
    return NamespaceFacts(meta=read_meta(obj), labels=(obj.get("metadata") or {}).get("labels") or {})


@dataclass(frozen=True, slots=True, eq=False)
class PriorityClassFacts:
    """A PriorityClass' value."""

    meta: Meta
    value: int


def read_priority_class(obj: Raw) -> PriorityClassFacts:
    """Facts of a PriorityClass. Raises `ValueError` without a whole number as value."""
    value = obj.get("value", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"value: {value!r} is no whole number")
    return PriorityClassFacts(meta=read_meta(obj), value=value)


@dataclass(frozen=True, slots=True, eq=False)
class GuestFacts:
    """A bound pod that has not ended: what it requests of its node.

    Attributes:
        node: The node it is bound to.
        cpu_milli: Requested CPU in thousandths of a core.
        memory_bytes: Requested memory.
        claim: The DeviceClaim that it names, or "".
    """

    meta: Meta
    node: str
    cpu_milli: int
    memory_bytes: int
    claim: str


def read_guest(obj: Raw) -> GuestFacts | None:
    """What a pod uses of its node; None of one that has none, or has ended."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    node = spec.get("nodeName") or ""
    if not node or status.get("phase") in ("Succeeded", "Failed"):
        return None
    return GuestFacts(
        meta=read_meta(obj),
        node=intern(node),
        cpu_milli=_requested(spec, "cpu", 1000),
        memory_bytes=_requested(spec, "memory", 1),
        claim=((obj.get("metadata") or {}).get("labels") or {}).get(LABEL_CLAIM, ""),
    )


def _requested(spec: Raw, resource: str, scale: int) -> int:
    """What kube-scheduler counts for a pod: all containers and sidecars together, or the most that an init container
    needs beside the sidecars started before it, or what the pod as a whole states; and the overhead.
    """
    sidecars, most = 0, 0
    for container in spec.get("initContainers") or ():
        own = _amount(container, resource, scale)
        if container.get("restartPolicy") == "Always":
            sidecars += own
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + own)
    together = sidecars + sum(_amount(container, resource, scale) for container in spec.get("containers") or ())
    whole = ((spec.get("resources") or {}).get("requests") or {}).get(resource)
    needed = max(most, together) if whole is None else _scaled(whole, scale)
    overhead = (spec.get("overhead") or {}).get(resource)
    return needed + (_scaled(overhead, scale) if overhead is not None else 0)


def _amount(container: Raw, resource: str, scale: int) -> int:
    resources = container.get("resources") or {}
    # A limit without a request is the request, as the API server fills it in.
    for stated in (resources.get("requests") or {}, resources.get("limits") or {}):
        if stated.get(resource) is not None:
            return _scaled(stated[resource], scale)
    return 0


def _scaled(amount: object, scale: int) -> int:
    """The amount times `scale`, rounded up."""
    return scaled(Quantity.parse(str(amount)), scale)


def scaled(amount: Quantity, scale: int) -> int:
    """A quantity times `scale` (1000 for thousandths), rounded up to a whole number."""
    return -int(-amount.value * scale // 1)
