"""What a DeviceClaim's status records: who holds what, for whom it is held, what was taken from it.

In comes a status as it stands, out go the allocator's values. Reading is lenient: what cannot be read of a time or a
state counts as not known, but a device that is named is held. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from adjoin.facts import ClaimFacts, Raw, moment
from adjoin_allocator.model import (
    ClaimUID,
    Consumed,
    CounterUse,
    DeviceID,
    Eviction,
    Nomination,
    PlacedDevice,
    PlacedReplica,
    PlacedShare,
    SetUse,
)
from adjoin_allocator.terms import ReplicaState


def read_placed(status: Raw) -> tuple[PlacedReplica, ...]:
    """What a DeviceClaim's status says that it holds, by index; a replica without a state counts as Ready.

    A state of a newer version counts as Ready too: its devices are held, and that is what matters here.
    """
    placed = []
    for replica in (status.get("allocation") or {}).get("replicas") or ():
        state = replica.get("state")
        placed.append(
            PlacedReplica(
                index=replica.get("index") or 0,
                node=replica.get("node") or "",
                state=ReplicaState(state) if state in _STATES else ReplicaState.READY,
                devices=_read_devices(replica.get("devices")),
                allocated_at=moment(replica.get("allocatedAt")),
                ready_at=moment(replica.get("readyAt")),
            )
        )
    return tuple(sorted(placed, key=lambda replica: replica.index))


def _read_devices(devices: Any) -> tuple[PlacedDevice, ...]:
    return tuple(
        PlacedDevice(
            request=device.get("request") or "",
            id=DeviceID(device.get("driver") or "", device.get("pool") or "", device.get("device") or ""),
            hardware_id=device.get("id") or "",
            share=_read_part(device.get("share")),
            consumed=_read_consumed(device.get("consumed")),
        )
        for device in devices or ()
    )


def read_nominated(status: Raw) -> tuple[Nomination, ...]:
    """What a DeviceClaim's status says is held for it."""
    return tuple(
        Nomination(each.get("index") or 0, each.get("node") or "", _read_devices(each.get("devices")))
        for each in status.get("nominated") or ()
    )


def released_reason(claim: ClaimFacts) -> str:
    """Why the claim is released, as its status says of the spec that it has now, or "": it holds nothing any more, or
    is about to, and is not planned again before its spec changes, or a new pod comes for one that was idle."""
    for each in claim.status.get("conditions") or ():
        current = each.get("observedGeneration") == claim.meta.generation
        if current and each.get("type") == "Released" and each.get("status") == "True":
            return str(each.get("reason") or "Released")
    return ""


def is_released(claim: ClaimFacts) -> bool:
    """Whether it is released at all."""
    return bool(released_reason(claim))


INIT_REPLANS: Final = 3
"""So often a replica is planned again whose devices could not be prepared (semantics §7.1)."""


def exhausted(failures: Iterable[Raw]) -> Raw | None:
    """The first failure (of `status.failures`) after which a replica is not planned again."""
    return next((each for each in failures if (each.get("count") or 0) > INIT_REPLANS), None)


def hopeless(claim: ClaimFacts) -> Raw | None:
    """The failure because of which the claim, with the spec that it has now, is not planned again; or None."""
    now = claim.meta.generation
    return exhausted(each for each in claim.status.get("failures") or () if each.get("generation") == now)


def evicted_since(claim: ClaimFacts) -> float | None:
    """Since when replicas of the claim are being evicted, None when none is."""
    for each in claim.status.get("conditions") or ():
        if each.get("type") == "Evicted" and each.get("status") == "True":
            return moment(each.get("lastTransitionTime"))
    return None


def read_evictions(status: Raw) -> tuple[Eviction, ...]:
    """For whom a DeviceClaim was evicted lately, and when; one without a time counts as not remembered."""
    found = []
    for each in status.get("evictions") or ():
        at = moment(each.get("at"))
        if at is not None:
            found.append(Eviction(ClaimUID(each.get("byUID") or ""), at))
    return tuple(found)


_STATES = frozenset(ReplicaState)


def _read_part(share: Raw | None) -> PlacedShare | None:
    """The part of a device that is held, None for the whole."""
    if not share:
        return None
    return PlacedShare(
        share.get("name") or "",
        slots=share.get("slots"),
        memory_bytes=share.get("memory"),
        compute_milli=share.get("compute"),
        profile=share.get("profile"),
        start=share.get("start"),
        vf=share.get("vf"),
    )


def _read_consumed(consumed: Any) -> Consumed:
    """What is recorded of counters; amounts that cannot be read count as absent."""
    return tuple(
        SetUse(
            str(name),
            tuple(CounterUse(str(key), amount) for key, amount in sorted(amounts.items()) if type(amount) is int),
        )
        for name, amounts in sorted((consumed or {}).items())
    )


def holding(stored: Raw, assumed: Raw) -> Raw:
    """The assumed status, and what the stored one has beyond it: that is on its way back until the write has
    succeeded."""

    def replicas(status: Raw) -> Sequence[Raw]:
        return (status.get("allocation") or {}).get("replicas") or ()

    stays = {each.get("index") or 0 for each in replicas(assumed)}
    leaving = [{**each, "state": ReplicaState.RELEASING} for each in replicas(stored)]
    leaving = [each for each in leaving if (each.get("index") or 0) not in stays]
    if not leaving:
        return assumed
    allocation = {**(assumed.get("allocation") or {}), "replicas": [*replicas(assumed), *leaving]}
    return {**assumed, "allocation": allocation}
