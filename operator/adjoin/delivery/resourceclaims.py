"""The ResourceClaims that carry a replica's devices to one pod.

In come the replica's devices, the pod and whatever ResourceClaims of that name exist; out go the requests that are
still missing: create with owner, labels and finalizer, then allocation, allocationTimestamp and reservation in one
patch of the status. A ResourceClaim of that name which somebody else made is neither written nor deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from adjoin_allocator.model import Device, DeviceID, Pool

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
        parts: Requests that hold parts of devices.
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
    parts: tuple[str, ...] = ()
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
) -> list[dict[str, Any]]:
    """Devices as the results of an allocation.

    Args:
        request: The ResourceClaim's request that they serve.
        devices: Which.
        pool: The DevicePool whose guard is tolerated.
        holder: What tells this hold on a device from all others: share ids are made of it.
        bindings: What kube-scheduler waits for before it binds the pod, by device.
        excused: Further tolerations.
    """
    results = []
    for device in devices:
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
            # The whole device is ours: kube-scheduler counts what is consumed, so all of it is.
            result["shareID"] = str(uuid5(_SHARE_IDS, "/".join((holder, *device.id))))
            if device.capacity:
                result["consumedCapacity"] = {key: str(amount) for key, amount in sorted(device.capacity.items())}
        results.append(result)
    return results


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


def undelivered_parts(cargo: Cargo) -> Notice | None:
    """What the pod's owner hears where the replica has parts of devices, or None."""
    if not cargo.parts:
        return None
    claim = cargo.claim.meta
    text = f"request {cargo.parts[0]} of DeviceClaim {claim.name} has parts of devices"
    why = "parts are accounted and placed, but not handed to containers yet"
    return Notice("PartsNotDelivered", f"{text}: {why}; the pod waits", warning=True, key=claim.uid)


_Hands = tuple[tuple[str, tuple[Device, ...]], ...]


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
        for result in allocation_results(request, devices, cargo.pool, holder, cargo.bindings, cargo.excused)
    ]
    told = configs((request, [(device, _part(cargo, request, device)) for device in given]) for request, given in hands)
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
    parts = undelivered_parts(cargo)
    if parts is not None:
        return Handover(notice=parts)
    try:
        dealt = deal(layout, cargo.devices)
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
