"""What a DeviceClaim or DeviceShare asks, in the allocator's words.

In come specs as models, out go the allocator's requests, lines, gang, fabric and host needs, and its shares. Most
claims of a cluster are written alike: equal specs are read once. Nothing here looks at another object.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from adjoin.api.claim import AffinityLine, AffinityOver, Alternative, DeviceClaimSpec, DeviceRequest, RequestShare
from adjoin.api.defaults import count_of, device_of, over_of, policy_of, replicas_of
from adjoin.api.errors import InvalidObject, joined
from adjoin.api.names import API_VERSION, Kind
from adjoin.api.quantity import bytes_of, milli_of, milliseconds, quantity
from adjoin.api.share import DeviceShareSpec
from adjoin.api.validate import validate_claim
from adjoin.environment import ShareFacts
from adjoin_allocator import model
from adjoin_allocator.cel import compile_selector
from adjoin_allocator.geometry import Entry
from adjoin_allocator.model import Affinity, Fabric, HostAsk, Request, Segment, Share, ShareAsk
from adjoin_allocator.terms import Isolation, Profile, ShareMode

SPECS = 4096
"""How many distinct specs are remembered."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a claim's spec asks. With a refusal, which is why it cannot be read, it asks for nothing."""

    requests: tuple[Request, ...] = ()
    affinity: tuple[Affinity, ...] = ()
    gang_min: int | None = None
    fabric: Fabric = field(default_factory=Fabric)
    host: HostAsk = field(default_factory=HostAsk)
    profile: Profile = Profile.BALANCED
    deadline: float | None = None
    max_runtime: float | None = None
    refusal: str = ""


def read_spec(spec: DeviceClaimSpec) -> Asked:
    """What a claim's spec asks of one replica, and of all of them together."""
    return _read(spec.model_dump_json(by_alias=True, exclude_unset=True))


@lru_cache(maxsize=SPECS)
def _read(text: str) -> Asked:
    claim = {"apiVersion": API_VERSION, "kind": Kind.DEVICE_CLAIM, "metadata": {"name": "x"}, "spec": json.loads(text)}
    # Admission has seen it, but perhaps one of another version, or none at all.
    refusal = joined(validate_claim(claim))
    if refusal:
        return Asked(refusal=refusal)
    spec = DeviceClaimSpec.model_validate(claim["spec"])
    gang = spec.gang
    return Asked(
        requests=tuple(map(_request, spec.requests)),
        affinity=tuple(map(_affinity, spec.affinity)),
        gang_min=None if gang is None else replicas_of(spec) if gang.min_replicas is None else gang.min_replicas,
        fabric=_fabric(spec),
        host=_host(spec),
        profile=spec.profile,
        deadline=None if spec.deadline is None else spec.deadline.timestamp(),
        max_runtime=None if spec.max_runtime is None else milliseconds(spec.max_runtime) / 1000,
    )


def _request(request: DeviceRequest) -> Request:
    count = count_of(request)
    return Request(
        name=request.name,
        kind=device_of(request),
        count=count or 0,
        all_devices=count is None,
        selectors=tuple(compile_selector(selector.cel) for selector in request.selectors),
        share=_part(request.share),
        same_device=bool(request.same_device),
        isolation=request.isolation or Isolation.NONE,
        first_of=tuple(map(_alternative, request.first_of)),
    )


def _alternative(alternative: Alternative) -> model.Alternative:
    count = count_of(alternative)
    return model.Alternative(
        name=alternative.name,
        count=count or 0,
        all_devices=count is None,
        selectors=tuple(compile_selector(selector.cel) for selector in alternative.selectors),
        share=_part(alternative.share),
        same_device=bool(alternative.same_device),
        isolation=alternative.isolation or Isolation.NONE,
    )


def _part(share: RequestShare | None) -> ShareAsk | None:
    if share is None:
        return None
    return ShareAsk(
        name=share.name,
        slots=share.slots,
        memory_bytes=None if share.memory is None else bytes_of(share.memory),
        compute_milli=None if share.compute is None else milli_of(share.compute),
        profile=share.profile or "",
    )


def _affinity(line: AffinityLine) -> Affinity:
    return Affinity(
        requests=line.requests,
        policy=policy_of(line),
        scope=line.scope,
        attribute=line.attribute or "",
        over_gang=over_of(line) is AffinityOver.GANG,
    )


def _fabric(spec: DeviceClaimSpec) -> Fabric:
    fabric = spec.fabric
    if fabric is None:
        return Fabric()
    segment = None if fabric.segment is None else Segment(fabric.segment.size, fabric.segment.level)
    return Fabric(fabric.required or "", fabric.preferred or "", segment)


def _host(spec: DeviceClaimSpec) -> HostAsk:
    host = spec.host
    if host is None:
        return HostAsk()
    return HostAsk(
        cpu_milli=0 if host.cpu is None else milli_of(host.cpu),
        memory_bytes=0 if host.memory is None else bytes_of(host.memory),
    )


def read_share_spec(facts: ShareFacts) -> Share:
    """A DeviceShare in the allocator's words. One whose selectors do not compile gives nothing and says why."""
    spec = facts.share.spec
    refusal = ""
    try:
        selectors = tuple(compile_selector(selector.cel) for selector in spec.selectors)
    except (InvalidObject, ValueError) as error:
        selectors, refusal = (), str(error)
    percent, least = _reserve(spec)
    return Share(
        name=facts.meta.name,
        uid=facts.meta.uid,
        created=facts.meta.created,
        pool=spec.pool_ref.name,
        kind=spec.device,
        mode=spec.mode,
        selectors=selectors,
        max_devices=spec.max_devices,
        slots=spec.time_sliced.slots if spec.time_sliced is not None else 0,
        reserve_per_million=int(quantity(percent.removesuffix("%")) * 10_000),
        min_reserve_bytes=bytes_of(least),
        max_clients=spec.mps.max_clients if spec.mps is not None else None,
        layout=_layout(spec),
        profiles=_dynamic(spec),
        table=_table(spec),
        functions=spec.virtual_functions.count if spec.virtual_functions is not None else 0,
        refusal=refusal or ("it is being deleted" if facts.meta.deleting is not None else ""),
    )


def _layout(spec: DeviceShareSpec) -> dict[str, int]:
    """A static layout as a multiset: its order and repeated entries mean nothing."""
    counts: Counter[str] = Counter()
    for entry in (spec.partitioned.layout or ()) if spec.partitioned is not None else ():
        counts[entry.profile] += entry.count
    return dict(sorted(counts.items()))


def _dynamic(spec: DeviceShareSpec) -> tuple[str, ...]:
    partitioned = spec.partitioned
    return (
        () if partitioned is None or partitioned.dynamic is None else tuple(dict.fromkeys(partitioned.dynamic.profiles))
    )


def _table(spec: DeviceShareSpec) -> tuple[Entry, ...]:
    rows = spec.partitioned.table if spec.partitioned is not None else ()
    return tuple(Entry(row.profile, tuple(row.starts), row.size, row.compute, row.max) for row in rows)


def _reserve(spec: DeviceShareSpec) -> tuple[str, str]:
    """What is kept back of a device's memory: a percentage, and the least of it."""
    stated = spec.mps if spec.mode is ShareMode.MPS else spec.fractional
    return ("3%", "256Mi") if stated is None else (stated.reserve, stated.min_reserve)
