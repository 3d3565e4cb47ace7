"""The ResourceClaims that carry a replica's devices to one pod.

In come the replica's devices, the pod and whatever ResourceClaims of that name exist; out go the requests that are
still missing: create with owner, labels and finalizer, then allocation, allocationTimestamp and reservation in one
patch of the status. A ResourceClaim of that name which somebody else made is neither written nor deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any
from uuid import UUID, uuid5

from adjoin.api.names import DEVICE_CLASS, DRIVER, FINALIZER, LABEL_CLAIM, LABEL_POD, resource_claim_name
from adjoin.api.pool_policy import HealthAction, HealthRule
from adjoin.delivery.events import Notice
from adjoin.delivery.guard import GUARD_TAINT
from adjoin.delivery.limits import Holding
from adjoin.delivery.opaque import configs
from adjoin.delivery.parts import Layout, LayoutError, deal
from adjoin.facts import Binding, ClaimFacts, PodFacts, ResourceClaimFacts
from adjoin.intents import FROM_PREVIOUS, Kind, Step, Verb
from adjoin.lifecycle import (
    BUILTIN_FINALIZER,
    LABEL_REPLICA,
    Relations,
    drop_finalizer,
    rfc3339,
    unreserve,
)
from adjoin_allocator.amounts import size
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Device, DeviceID, PlacedShare, Pool
from adjoin_allocator.policies import consumption, rounded

_FOREVER = {"effect": "NoExecute"}
_TOLERATIONS = 16
"""As many tolerations as one result of an allocation may have."""
_SHARE_IDS = UUID("6d1a4b0e-7a52-5d0c-9a39-1f1c0d3d8f5a")
"""Namespace of share ids: any fixed UUID of our own."""


@dataclass(frozen=True, slots=True, eq=False)
class Cargo:
    """What one replica hands to a pod.

    Attributes:
        claim: The DeviceClaim.
        index: The replica.
        node: Where its devices are.
        devices: By request, in the claim's order, as they are called today.
        pool: Name of the DevicePool whose guard the ResourceClaims tolerate.
        guarded: Whether the pool's guard keeps others off; without it our own finalizer holds the allocation.
        bindings: What kube-scheduler waits for before it binds the pod, by device.
        shares: By request the part of each of its devices, None for a whole one; nothing for requests of whole ones.
        alone: Devices of which nobody else has a part.
        excused: Tolerations of device taints that the pool's health rules excuse.
        beside: All devices of the node.
        wired: The DevicePool, with what is known of how its devices are wired.
        holdings: By request, for each of its devices in the same order, the part that is held; None: the whole. A
            request that is absent has whole devices.
    """

    claim: ClaimFacts
    index: int
    node: str
    devices: Mapping[str, tuple[Device, ...]]
    pool: str
    guarded: bool
    bindings: Mapping[DeviceID, Binding] = field(default_factory=dict)
    shares: Mapping[str, tuple[PlacedShare | None, ...]] = field(default_factory=dict)
    alone: frozenset[DeviceID] = frozenset()
    excused: tuple[Mapping[str, str], ...] = ()
    beside: tuple[Device, ...] = ()
    wired: Pool | None = None
    holdings: Mapping[str, tuple[Holding | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Handover:
    """What is missing between a replica and its pod.

    Attributes:
        steps: Requests that bring the ResourceClaims, or the ConfigMap, to be, in order.
        complete: After these steps all of them are allocated and the pod's gate may open.
        notice: What keeps it from being completed, for the pod's owner.
    """

    steps: tuple[Step, ...] = ()
    complete: bool = False
    notice: Notice | None = None


def toleration(pool: str) -> dict[str, str]:
    """What tolerates the guard of a pool."""
    return {"key": GUARD_TAINT, "operator": "Equal", "value": pool, "effect": "NoSchedule"}


def excuses(rules: Sequence[HealthRule]) -> tuple[dict[str, str], ...]:
    """What tolerates the device taints that a pool's health rules excuse: Kubernetes evicts who has a device with a
    NoExecute taint, unless its allocation tolerates it by that very effect (seen on 1.37; nobody looks at NoSchedule
    once the allocation stands). Where that would be more than an allocation can have, keys are tolerated whatever their
    value."""
    found: dict[tuple[str, str | None], dict[str, str]] = {}
    excused = [rule for rule in rules if rule.action in (HealthAction.IGNORE, HealthAction.EVENT)]
    for rule in excused:
        for value in rule.values or (None,):
            each = {"key": rule.taint_key, "operator": "Exists", **_FOREVER}
            if value is not None:
                each = {"key": rule.taint_key, "operator": "Equal", "value": value, **_FOREVER}
            found[rule.taint_key, value] = each
    if len(found) > _TOLERATIONS - 1:
        keys = dict.fromkeys(rule.taint_key for rule in excused)
        return tuple({"key": key, "operator": "Exists", **_FOREVER} for key in keys)[: _TOLERATIONS - 1]
    return tuple(found.values())


def one_node(name: str) -> dict[str, Any]:
    """A NodeSelector that only this node matches, in the shape that kube-scheduler writes."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def allocation_results(
    request: str,
    devices: Iterable[Device],
    pool: str,
    holder: str,
    bindings: Mapping[DeviceID, Binding] | None = None,
    excused: Sequence[Mapping[str, str]] = (),
    shares: Sequence[PlacedShare | None] = (),
) -> list[dict[str, Any]]:
    """Devices as the results of an allocation.

    Args:
        request: The ResourceClaim's request that they serve.
        devices: Which.
        pool: The DevicePool whose guard is tolerated.
        holder: What tells this hold on a device from all others: share ids are made of it.
        bindings: What kube-scheduler waits for before it binds the pod, by device.
        excused: Further tolerations.
        shares: Which part of each, where they are not whole.
    """
    results = []
    times: Counter[DeviceID] = Counter()
    for device, share in zip_longest(devices, shares):
        result: dict[str, Any] = {
            "request": request,
            "driver": device.id.driver,
            "pool": device.id.pool,
            "device": device.id.device,
            "tolerations": [toleration(pool), *map(dict, excused)],
        }
        if binding := (bindings or {}).get(device.id):
            # kube-scheduler reads them from the allocation alone: without them the pod starts before its device is
            # there.
            result |= {"bindingConditions": list(binding.ready), "bindingFailureConditions": list(binding.failed)}
        if device.allow_multiple_allocations:
            # kube-scheduler counts what is consumed: of a whole device that is all of it.
            taken = sorted(device.capacity.items()) if share is None else consumed_of(device, share)
            again = (f"{times[device.id]}",) if times[device.id] else ()
            times[device.id] += 1
            words = (holder, *((request,) if share is not None else ()), *device.id, *again)
            result["shareID"] = str(uuid5(_SHARE_IDS, "/".join(words)))
            if taken:
                result["consumedCapacity"] = {_published(device, key): str(amount) for key, amount in taken}
        results.append(result)
    return results


def _published(device: Device, capacity: str) -> str:
    """A capacity's name as its driver publishes it: kube-scheduler counts what is consumed by that (seen on 1.37: under
    another spelling it counts for nothing)."""
    return capacity if capacity in device.spelled else capacity.removeprefix(f"{device.driver}/")


def consumed_of(device: Device, share: PlacedShare) -> list[tuple[str, Quantity]]:
    """What a part consumes of a device that may be in several allocations, by capacity."""
    asked = share.memory_bytes
    memory = rounded(device, asked)
    return sorted(consumption(device, asked if memory is None else memory).items())


def owned_by(claim: ClaimFacts) -> dict[str, Any]:
    """The ownerReference by which an object of a DeviceClaim is known to be its."""
    return {
        "apiVersion": Kind.DEVICE_CLAIM.value.api_version,
        "kind": Kind.DEVICE_CLAIM.value.kind,
        "name": claim.meta.name,
        "uid": claim.meta.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def uncarried_parts(cargo: Cargo) -> Notice | None:
    """What the pod's owner hears where the replica has parts of devices that a ResourceClaim cannot carry, or None.

    Kubernetes lets a device be in several allocations only if its driver says so; of one that nobody else has a part
    of there is but one allocation.
    """
    undivided = next(
        (
            (request, device)
            for request, shares in cargo.shares.items()
            for device, share in zip(cargo.devices[request], shares, strict=True)
            if share is not None and not device.allow_multiple_allocations and device.id not in cargo.alone
        ),
        None,
    )
    if undivided is None:
        return _unrounded(cargo)
    claim, (request, device) = cargo.claim.meta, undivided
    text = f"request {request} of DeviceClaim {claim.name} has a part of {device.id}"
    why = (
        "others have parts of it too, and its driver does not let it be in several ResourceClaims; "
        "use delivery.mode Environment, or a driver that publishes consumable capacity"
    )
    return Notice("PartsNotDelivered", f"{text}: {why}; the pod waits", warning=True, key=claim.uid)


def _unrounded(cargo: Cargo) -> Notice | None:
    """A part of an amount that the driver does not give any more."""
    for request, shares in cargo.shares.items():
        for device, share in zip(cargo.devices[request], shares, strict=True):
            if share is None or not device.allow_multiple_allocations:
                continue
            if rounded(device, share.memory_bytes) is None:
                claim, asked = cargo.claim.meta, share.memory_bytes
                text = f"request {request} of DeviceClaim {claim.name} has a part of {device.id}"
                why = "its driver's request policy has no such part by now"
                held = "whatever memory there is" if asked is None else size(asked)
                message = f"{text} with {held}: {why}; ask for an amount that the policy has; the pod waits"
                return Notice("PartsNotDelivered", message, warning=True, key=claim.uid)
    return None


_Held = tuple[Device, PlacedShare | None]
_Hands = tuple[tuple[str, tuple[_Held, ...]], ...]


def _object(cargo: Cargo, pod: PodFacts, name: str, hands: _Hands) -> dict[str, Any]:
    meta = cargo.claim.meta
    return {
        "apiVersion": Kind.RESOURCE_CLAIM.value.api_version,
        "kind": Kind.RESOURCE_CLAIM.value.kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {LABEL_CLAIM: meta.name, LABEL_REPLICA: str(cargo.index), LABEL_POD: pod.meta.uid},
            # There before the allocation is: otherwise its end could be missed.
            "finalizers": [BUILTIN_FINALIZER if cargo.guarded else FINALIZER],
            "ownerReferences": [owned_by(cargo.claim)],
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": request,
                        "exactly": {
                            "deviceClassName": DEVICE_CLASS,
                            "allocationMode": "ExactCount",
                            "count": len(devices),
                            "tolerations": [toleration(cargo.pool)],
                        },
                    }
                    for request, devices in hands
                    if devices
                ]
            }
        },
    }


def _status(cargo: Cargo, pod: PodFacts, hands: _Hands, now: float) -> dict[str, Any]:
    holder = f"{cargo.claim.meta.uid}/{cargo.index}"
    results = [
        result
        for request, devices in hands
        for result in allocation_results(
            request,
            [device for device, _ in devices],
            cargo.pool,
            holder,
            cargo.bindings,
            cargo.excused,
            [share for _, share in devices],
        )
    ]
    told = configs((request, [(one, _part(cargo, request, one)) for one, _ in given]) for request, given in hands)
    return {
        "status": {
            "allocation": {
                "devices": {"results": results, **({"config": told} if told else {})},
                "nodeSelector": one_node(cargo.node),
                # Without it kube-scheduler would add one when it binds, and be refused: the allocation is immutable.
                "allocationTimestamp": rfc3339(now),
            },
            # Spares kube-scheduler a write for every pod.
            "reservedFor": [{"resource": "pods", "name": pod.meta.name, "uid": pod.meta.uid}],
        }
    }


def _part(cargo: Cargo, request: str, device: Device) -> Holding | None:
    """The part that a request holds of a device."""
    held = zip(cargo.devices.get(request, ()), cargo.holdings.get(request, ()), strict=False)
    return next((part for each, part in held if each.id == device.id), None)


def _renew(found: ResourceClaimFacts) -> tuple[Step, ...]:
    """Lets go of a ResourceClaim that is being deleted while its pod still waits, so that the name is free again."""
    steps = unreserve(found)
    if not steps and FINALIZER in found.finalizers:
        steps = (drop_finalizer(Kind.RESOURCE_CLAIM, found),)
    return steps


def obstacle(claim: ClaimFacts, pod: PodFacts, layout: Layout, relations: Relations) -> Notice | None:
    """Why the pod cannot be served whatever replica is free, or None."""
    names = _names(claim, pod, layout)
    if sorted(names) != sorted(pod.resource_claims):
        return Notice(
            "ResourceClaimCount",
            f"the pod was admitted with {len(pod.resource_claims)} ResourceClaims, DeviceClaim {claim.meta.name} needs "
            f"{len(names)}; delete the pod so that it is made again",
            warning=True,
            key=claim.meta.uid,
        )
    if pod.containers and len(layout) > 1 and (pod.meta.created or 0.0) < (claim.meta.created or 0.0):
        # Which container gets which part was written for what had this name before.
        return Notice(
            "AdmittedEarlier",
            f"the pod is older than DeviceClaim {claim.meta.name} and says which container gets which request; delete "
            "the pod so that it is made again",
            warning=True,
            key=claim.meta.uid,
        )
    for name in names:
        found = relations.resource_claims.get((claim.meta.namespace, name))
        if found is not None and (found.owner != claim.meta.uid or found.labels.get(LABEL_POD) != pod.meta.uid):
            return Notice(
                "NameTaken",
                f"ResourceClaim {name} exists already and is not the one that Adjoin made for this pod; delete it",
                warning=True,
                key=found.meta.uid,
            )
    return None


def _names(claim: ClaimFacts, pod: PodFacts, layout: Layout) -> list[str]:
    return [resource_claim_name(claim.meta.name, pod.token, part) for part in range(len(layout))]


def hand_over(cargo: Cargo, pod: PodFacts, layout: Layout, relations: Relations, now: float) -> Handover:
    """What is still missing so that `pod` has the replica's devices, its gate aside."""
    notice = obstacle(cargo.claim, pod, layout, relations)
    if notice is not None:
        return Handover(notice=notice)
    claim = cargo.claim.meta
    undriven = next((one.id for group in cargo.devices.values() for one in group if one.id.driver == DRIVER), None)
    if undriven is not None:
        # The kubelet would wait for our driver for ever, with the pod and with its end.
        text = f"device {undriven.device} of DeviceClaim {claim.name} has no driver that could give it to a container"
        why = "what a pool lists itself or counts needs delivery.mode Environment"
        return Handover(notice=Notice("NoDriver", f"{text}: {why}; the pod waits", warning=True, key=claim.uid))
    parts = uncarried_parts(cargo)
    if parts is not None:
        return Handover(notice=parts)
    try:
        dealt = deal(
            layout,
            {
                request: tuple(zip(devices, cargo.shares.get(request, (None,) * len(devices)), strict=True))
                for request, devices in cargo.devices.items()
            },
        )
    except LayoutError as error:
        return Handover(notice=Notice("TooManyDevices", f"DeviceClaim {claim.name}: {error}", warning=True))
    steps: list[Step] = []
    complete = True
    for name, hands in zip(_names(cargo.claim, pod, layout), dealt, strict=True):
        found = relations.resource_claims.get((claim.namespace, name))
        if found is not None and found.meta.deleting is not None:
            complete = False
            steps += _renew(found) if not pod.node else ()
        elif found is None or not found.allocated:
            uid, version = (found.meta.uid, found.meta.version) if found is not None else ("", FROM_PREVIOUS)
            if found is None:
                body = _object(cargo, pod, name, hands)
                steps.append(Step(Verb.CREATE, Kind.RESOURCE_CLAIM, claim.namespace, name, body=body))
            status = _status(cargo, pod, hands, now)
            steps.append(Step(Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM, claim.namespace, name, uid, version, status))
    return Handover(tuple(steps), complete)
