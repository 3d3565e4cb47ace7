"""The ConfigMap that carries a replica's devices to one pod as environment, where no driver can hand them over.

In come the replica's devices, the pod and whatever ConfigMap of that name exists; out go the requests that are still
missing. The ConfigMap is also the record that this pod has the replica: it carries our finalizer, so that it stays as
long as containers may be started from it, and its text cannot be changed. A ConfigMap of that name which somebody else
made is neither written nor deleted.

Admission wrote which variables a container takes from it: key `<variable>` where every container gets everything, else
`<container>.<variable>`. Devices are named by uuid, or by PCI address where there is none; one of which neither is
known cannot be handed over.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from adjoin.api.names import FINALIZER, LABEL_CLAIM, LABEL_POD, VISIBLE_DEVICES, config_map_name
from adjoin.delivery.events import Notice
from adjoin.delivery.identities import by_rank, hca_of, identity_of, pci_of, uuid_of
from adjoin.delivery.limits import Holding, limits, together
from adjoin.delivery.resourceclaims import Cargo, Handover, owned_by
from adjoin.facts import ClaimFacts, PodFacts
from adjoin.grants import KEY_DEVICES
from adjoin.intents import Kind, Step, Verb
from adjoin.lifecycle import LABEL_REPLICA, Relations, drop_finalizer, share_entry
from adjoin_allocator.model import Device, Pool
from adjoin_allocator.pci import pci_address
from adjoin_allocator.results import Code, Reason
from adjoin_allocator.terms import DeviceType

VOID: Final = "void"
"""Tells NVIDIA's container runtime to add no card of its own accord."""
CUDA: Final = "CUDA_VISIBLE_DEVICES"
NCCL: Final = "NCCL_IB_HCA"
UCX: Final = "UCX_NET_DEVICES"
ALWAYS: Final = (VISIBLE_DEVICES, KEY_DEVICES)
"""Variables that the ConfigMap has for every container: without them it does not start."""
HINTS: Final = (NCCL, UCX)
"""Variables for libraries that choose NICs themselves; what a container sets itself stays."""
OPTIONAL: Final = (CUDA, *HINTS)
"""Variables that the ConfigMap has where they mean something."""


def key_of(variable: str, container: str | None) -> str:
    """The ConfigMap's key of a variable: for one container, or for all of them (None)."""
    return variable if container is None else f"{container}.{variable}"


def obstacle(claim: ClaimFacts, pod: PodFacts, relations: Relations) -> Notice | None:
    """Why the pod cannot be served whatever replica is free, or None."""
    name = config_map_name(claim.meta.name, pod.token)
    if pod.resource_claims or any(each != name for each in pod.grants):
        return Notice(
            "AdmittedOtherwise",
            f"the pod was admitted for ResourceClaims, but the DevicePool of DeviceClaim {claim.meta.name} hands its "
            "devices over as environment; delete the pod so that it is made again",
            warning=True,
            key=claim.meta.uid,
        )
    found = relations.grants.get((claim.meta.namespace, name))
    if found is not None and (found.owner != claim.meta.uid or found.labels.get(LABEL_POD) != pod.meta.uid):
        return Notice(
            "NameTaken",
            f"ConfigMap {name} exists already and is not the one that Adjoin made for this pod; delete the pod so that "
            "it is made again, or the ConfigMap (it is looked at again within ten minutes)",
            warning=True,
            key=found.meta.uid,
        )
    return None


def variables(cargo: Cargo, requests: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """The variables of a container that gets these requests (None: all of them), with their values."""
    given = [each for each in _held(cargo) if requests is None or each[0] in requests]
    # Several parts of one card are one card to a container.
    cards: dict[str, list[tuple[Device, Holding | None]]] = {}
    for _, device, holding in given:
        if device.type is DeviceType.GPU:
            cards.setdefault(_visible(device, holding, cargo), []).append((device, holding))
    gpus = list({device.id: device for group in cards.values() for device, _ in group}.values())
    # What the kernel calls a function of a NIC nobody knows before it is there.
    nics = [each for _, each, part in given if each.type is DeviceType.RDMA and (part is None or not part.by_hardware)]
    yield VISIBLE_DEVICES, ",".join(cards) or VOID
    if cards and not any(pci_address(name) for name in cards):
        # CUDA knows no PCI addresses. In this order it numbers the cards.
        yield CUDA, ",".join(cards)
    yield from limits([together(group[0][0], [part for _, part in group]) for group in cards.values()])
    ranked = [hca_of(nic) for nic in by_rank(gpus, nics, cargo.beside, cargo.wired)]
    if ranked and all(ranked):
        # Without "=" NCCL takes a name for a prefix: mlx5_1 would be mlx5_10 too.
        yield NCCL, "=" + ",".join(ranked)
        yield UCX, ",".join(f"{name}:1" for name in ranked)
    yield KEY_DEVICES, json.dumps([_entry(cargo, *each) for each in given], separators=(",", ":"))


def _held(cargo: Cargo) -> list[tuple[str, Device, Holding | None]]:
    """All that the replica has, request by request."""
    return [
        (request, device, holding)
        for request, devices in cargo.devices.items()
        for device, holding in zip(devices, cargo.holdings.get(request) or (None,) * len(devices), strict=True)
    ]


def _visible(gpu: Device, holding: Holding | None, cargo: Cargo) -> str:
    """What NVIDIA's container runtime knows a card, or a partition of one, by."""
    if holding is not None and holding.by_hardware:
        return holding.id
    return uuid_of(gpu) or pci_of(gpu, cargo.wired)


def _entry(cargo: Cargo, request: str, device: Device, holding: Holding | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "request": request,
        "name": device.kind,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
        "id": identity_of(device, cargo.wired),
    }
    if holding is not None:
        reported = {"id": holding.id} if holding.id else {}
        entry["share"] = {**share_entry(holding.share), **reported}
    return entry


def _data(cargo: Cargo, containers: Mapping[str, tuple[str, ...]] | None) -> dict[str, str]:
    """The ConfigMap's text. The list of all devices is always there: it is the record of what was handed over."""
    data = dict(variables(cargo, None))
    if containers is not None:
        data = {KEY_DEVICES: data[KEY_DEVICES]}
        for container, requests in containers.items():
            if requests:
                data |= {key_of(name, container): value for name, value in variables(cargo, requests)}
    return data


def _object(cargo: Cargo, pod: PodFacts, name: str, data: Mapping[str, str]) -> dict[str, Any]:
    meta = cargo.claim.meta
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {LABEL_CLAIM: meta.name, LABEL_REPLICA: str(cargo.index), LABEL_POD: pod.meta.uid},
            "finalizers": [FINALIZER],
            "ownerReferences": [owned_by(cargo.claim)],
        },
        "immutable": True,
        "data": dict(data),
    }


def _unlimited(cargo: Cargo, pod: PodFacts) -> Notice | None:
    """A pod that was admitted for whole devices would take a part for all of it."""
    if not cargo.holdings or pod.limited:
        return None
    name = cargo.claim.meta.name
    text = f"the pod was admitted before DeviceClaim {name} had parts of devices, and would not be told of their limits"
    return Notice(
        "AdmittedOtherwise", f"{text}; delete the pod so that it is made again", warning=True, key=cargo.claim.meta.uid
    )


def _unmade(cargo: Cargo) -> Notice | None:
    """Parts that are devices of their own, and of which no hook has said which one they are."""
    for _, device, holding in _held(cargo):
        if holding is not None and holding.by_hardware and not holding.id:
            kind = "partition" if holding.share.profile is not None else "virtual function"
            name = cargo.claim.meta.name
            return Notice(
                "IdentityUnknown",
                f"no init hook has reported the id of the {kind} of {device.id.device} on {cargo.node} that "
                f"DeviceClaim {name} holds, so no container can be told which one it is; the pool needs a hook that "
                "makes it; the pod waits",
                warning=True,
                key=cargo.claim.meta.uid,
            )
    return None


def identity_reason(held: Iterable[Device], pool: Pool | None) -> Reason | None:
    """Why devices that a claim holds cannot be handed over as environment, or None where all are known by more than a
    position."""
    nameless = [device for device in held if not identity_of(device, pool)]
    if not nameless:
        return None
    names = [f"{device.node}/{device.id.device}" for device in nameless[:_NAMED]]
    more = f" and {len(nameless) - _NAMED} more" if len(nameless) > _NAMED else ""
    subject = f"device {names[0]} has" if len(nameless) == 1 else f"devices {', '.join(names)}{more} have"
    text = f"{subject} neither uuid nor PCI address, so no container can be told which it is; pods wait"
    return Reason(Code.IDENTITY_UNKNOWN, len({device.node for device in nameless}), text)


_NAMED: Final = 3


def _unknown(cargo: Cargo) -> Notice | None:
    device = next(
        (one for group in cargo.devices.values() for one in group if not identity_of(one, cargo.wired)),
        None,
    )
    if device is None:
        return None
    name = cargo.claim.meta.name
    return Notice(
        "IdentityUnknown",
        f"device {device.id.device} on {cargo.node}, which DeviceClaim {name} holds, has neither uuid nor PCI address, "
        "so no container can be told which one it is; list both in the pool, or counted GPUs one a line beside the "
        "node's matrix (key <key>.gpus); the pod waits",
        warning=True,
        key=cargo.claim.meta.uid,
    )


def hand_over(
    cargo: Cargo, pod: PodFacts, containers: Mapping[str, tuple[str, ...]] | None, relations: Relations
) -> Handover:
    """What is still missing so that `pod` has the replica's devices, its gate aside. `containers` says which container
    gets which requests, None: everybody gets all."""
    claim = cargo.claim.meta
    notice = obstacle(cargo.claim, pod, relations) or _unlimited(cargo, pod) or _unmade(cargo) or _unknown(cargo)
    if notice is not None:
        return Handover(notice=notice)
    name = config_map_name(claim.name, pod.token)
    found = relations.grants.get((claim.namespace, name))
    data = _data(cargo, containers)
    if found is None:
        made = _object(cargo, pod, name, data)
        return Handover((Step(Verb.CREATE, Kind.GRANT, claim.namespace, name, body=made),), complete=True)
    if not pod.gated:
        # Its containers have what it says, whatever the devices are called by now.
        return Handover(complete=True)
    if found.meta.deleting is not None:
        return Handover((drop_finalizer(Kind.GRANT, found),) if FINALIZER in found.finalizers else ())
    if found.data != data or not found.immutable:
        # Made for devices that the replica had before, or by somebody who wrote our owner on it.
        return Handover((Step(Verb.DELETE, Kind.GRANT, claim.namespace, name, found.meta.uid),))
    return Handover(complete=True)
