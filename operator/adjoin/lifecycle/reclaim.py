"""Replicas that a claim's status does not name any more although a pod has their devices: somebody wiped it.

In come a claim, its ResourceClaims or ConfigMaps, its pods and what others hold; out go the replicas as they have to
stand in the status again. These records say which pod has which devices of which request; what a pod has counts only
while it is there and was let go, and only devices that nobody else holds. Nothing here takes anything from a pod.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from adjoin.api.claim import DeviceClaim
from adjoin.api.defaults import most_replicas
from adjoin.api.names import LABEL_POD
from adjoin.facts import ClaimFacts, PodFacts
from adjoin.grants import GrantFacts, Record
from adjoin.inventory import Inventory
from adjoin.lifecycle.relations import LABEL_REPLICA, Relations, seniority
from adjoin.lifecycle.replicas import device_entry
from adjoin.lifecycle.times import rfc3339
from adjoin.lifecycle.uses import entries, pinned_to
from adjoin.lifecycle.wanted import dormant, follows_pods
from adjoin_allocator.model import DeviceID, PlacedDevice
from adjoin_allocator.terms import ReplicaState


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What is to be put back.

    Attributes:
        entries: The replicas as they have to stand in the status, by index.
        pods: Name of the pod that has each, by index.
        refused: Why a pod's devices cannot be its replica's again, in words, by UID of the pod.
    """

    entries: Mapping[int, Mapping[str, Any]]
    pods: Mapping[int, str]
    refused: Mapping[str, str]


NOTHING = Reclaimed({}, {}, {})


def may_lack(claim: ClaimFacts, relations: Relations) -> bool:
    """Whether it is worth looking: the status names fewer replicas than the claim wants, and pods have some. Cheap."""
    owned = relations.owned.get(claim.meta.uid)
    if not owned or dormant(claim):
        return False
    named = (claim.status.get("allocation") or {}).get("replicas") or ()
    return len(named) < most_replicas(claim.claim.spec)


def reclaim(
    claim: ClaimFacts,
    relations: Relations,
    inventory: Inventory,
    others: Callable[[], Collection[DeviceID]],
    now: float,
) -> Reclaimed:
    """The replicas that pods have and the status does not name. `others` says which devices others hold, and is asked
    only where there is something to put back. A claim that follows its pods may have any index."""
    most = most_replicas(claim.claim.spec)
    known = {int(entry.get("index") or 0) for entry in entries(claim)}
    groups: defaultdict[tuple[int, str], list[Record]] = defaultdict(list)
    for each in relations.owned.get(claim.meta.uid, ()):
        text = each.labels.get(LABEL_REPLICA, "")
        index = int(text) if text.isascii() and text.isdigit() else -1
        given = each.immutable and bool(each.devices) if isinstance(each, GrantFacts) else each.allocated
        ours = given and each.meta.namespace == claim.meta.namespace
        if ours and index >= 0 and (index < most or follows_pods(claim)) and index not in known:
            groups[index, each.labels.get(LABEL_POD, "")].append(each)
    if not groups:
        return NOTHING
    taken = others()
    found: dict[int, Mapping[str, Any]] = {}
    pods: dict[int, str] = {}
    refused: dict[str, str] = {}
    mine: set[DeviceID] = set()
    ranked = [
        (seniority(pod), index, pod, group)
        for (index, uid), group in groups.items()
        if (pod := relations.pods_by_uid.get(uid)) is not None and _has(pod, claim, group)
    ]
    for _, index, pod, group in sorted(ranked, key=lambda each: each[:2]):
        devices = [device for each in group for device in each.devices]
        lost = next((device for device in devices if device in taken or device in mine), None)
        places = {pod.node} if pod.node else pinned_to(pod)
        if len(known) + len(found) >= most:
            continue
        if index in found or lost is not None:
            refused[pod.meta.uid] = f"replica {index} serves another pod" if lost is None else f"others hold {lost}"
        elif len(places) == 1:
            mine.update(devices)
            found[index] = _entry(claim, index, next(iter(places)), pod, group, inventory, now)
            pods[index] = pod.meta.name
    return Reclaimed(found, pods, refused)


def _has(pod: PodFacts, claim: ClaimFacts, group: list[Record]) -> bool:
    """Whether the pod was let go with exactly these records, and is there."""
    names = {each.meta.name for each in group}
    there = not pod.gated and not pod.finished and pod.meta.namespace == claim.meta.namespace
    return there and pod.claim == claim.meta.name and names == {*pod.resource_claims, *pod.grants}


def _entry(
    claim: ClaimFacts,
    index: int,
    node: str,
    pod: PodFacts,
    group: list[Record],
    inventory: Inventory,
    now: float,
) -> dict[str, Any]:
    """The replica as it stands in a status, as old as its records are."""
    by_request: defaultdict[str, list[DeviceID]] = defaultdict(list)
    for each in group:
        for device, request in zip(each.devices, each.requests, strict=True):
            by_request[request].append(device)
    devices = []
    for request, ids in by_request.items():
        word = _asked(claim.claim, request, len(ids))
        for id_ in ids:
            known = inventory.device(node, id_)
            devices.append(device_entry(PlacedDevice(word, id_, known.hardware_id if known is not None else "")))
    since = min((each.meta.created for each in group if each.meta.created is not None), default=now)
    return {
        "index": index,
        "node": node,
        "state": (ReplicaState.IN_USE if pod.node else ReplicaState.READY).value,
        "devices": devices,
        "allocatedAt": rfc3339(since),
        "readyAt": rfc3339(since),
    }


def _asked(claim: DeviceClaim, request: str, count: int) -> str:
    """What of the claim the devices are for: the request, or the alternative of it that has so many."""
    asked = next((each for each in claim.spec.requests if each.name == request), None)
    if asked is None or not asked.first_of:
        return request
    fitting = [each for each in asked.first_of if (each.count or 1) == count]
    return f"{request}/{(fitting or list(asked.first_of))[0].name}"
