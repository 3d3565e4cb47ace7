"""ConfigMaps that hand a replica's devices to one pod as environment.

In come raw ConfigMaps; out go frozen facts. What makes one ours is its owner, a DeviceClaim by UID, never its name or
its labels: one without such an owner is somebody else's, and all that is known of it is that the name is taken. Reading
is lenient, since whoever may write ConfigMaps could write one that looks like ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from adjoin.api.names import GROUP, LABEL_POD
from adjoin.facts import Meta, Raw, ResourceClaimFacts, read_meta
from adjoin_allocator.model import DeviceID

KEY_DEVICES: Final = "ADJOIN_DEVICES"
"""All devices of the replica as JSON: the record of what is handed over, and a variable for containers."""
_NAMES: Final = ("driver", "pool", "device")


@dataclass(frozen=True, slots=True, eq=False)
class GrantFacts:
    """A ConfigMap that hands devices to a pod, or has the name of one.

    Attributes:
        owner: UID of the DeviceClaim in its ownerReferences, or "".
        labels: Its labels.
        finalizers: Its finalizers.
        devices: The devices that it names.
        requests: For which request each of them is.
        data: Its text.
        immutable: Its text cannot be changed any more.
    """

    meta: Meta
    owner: str
    labels: Mapping[str, str]
    finalizers: tuple[str, ...]
    devices: tuple[DeviceID, ...]
    requests: tuple[str, ...]
    data: Mapping[str, str]
    immutable: bool

    @property
    def allocated(self) -> bool:
        """There is nothing of Kubernetes' own that would have to be cleared before it may go."""
        return False

    @property
    def reserved(self) -> tuple[str, ...]:
        """Nobody but its label says for whom it is."""
        return ()


Record = ResourceClaimFacts | GrantFacts
"""What records that a pod has a replica: ResourceClaims, or a ConfigMap."""


def read_grant(obj: Raw) -> GrantFacts:
    """Facts of a ConfigMap that has the name, or the labels, of one of ours."""
    meta = obj.get("metadata") or {}
    data = obj.get("data") or {}
    owners = (
        reference.get("uid") or ""
        for reference in meta.get("ownerReferences") or ()
        if (reference.get("apiVersion") or "").startswith(f"{GROUP}/") and reference.get("kind") == "DeviceClaim"
    )
    listed = _devices(data.get(KEY_DEVICES))
    return GrantFacts(
        meta=read_meta(obj),
        owner=next(owners, ""),
        labels=meta.get("labels") or {},
        finalizers=tuple(meta.get("finalizers") or ()),
        devices=tuple(device for device, _ in listed),
        requests=tuple(request for _, request in listed),
        data=data,
        immutable=bool(obj.get("immutable")),
    )


def read_labelled_grant(obj: Raw) -> GrantFacts | None:
    """The same of any ConfigMap; None of one that is for no pod of ours."""
    return read_grant(obj) if LABEL_POD in ((obj.get("metadata") or {}).get("labels") or {}) else None


def _devices(text: Any) -> tuple[tuple[DeviceID, str], ...]:
    try:
        listed = json.loads(text) if isinstance(text, str) else ()
    except (ValueError, RecursionError):
        return ()
    return tuple(
        (DeviceID(each["driver"], each["pool"], each["device"]), str(each.get("request") or ""))
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and all(isinstance(each.get(name), str) for name in _NAMES)
    )
