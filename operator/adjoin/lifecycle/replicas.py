"""What becomes of the replicas of one claim.

In come the claim, who uses it and what it lost; out go the state of every replica that stays in the status and the
removals of those that may not stay. Nothing here chooses devices or serves a pod.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adjoin.api.claim_status import ClaimCondition, HookStage
from adjoin.api.quantity import milliseconds
from adjoin.facts import ClaimFacts, PodFacts, Raw
from adjoin.holdings import is_released, read_placed
from adjoin.intents import Step
from adjoin.inventory import Inventory
from adjoin.lifecycle.relations import Relations, precedence
from adjoin.lifecycle.removal import end, expel
from adjoin.lifecycle.runs import Run, read_runs
from adjoin.lifecycle.times import rfc3339
from adjoin.lifecycle.uses import STRAY, Use, entries, given_out, uses_of
from adjoin_allocator.budgets import recorded
from adjoin_allocator.model import Claim, DeviceID, Hold, PlacedDevice, PlacedShare
from adjoin_allocator.results import Placement
from adjoin_allocator.terms import HoldKind, ReplicaState

_SOUND = (ReplicaState.READY, ReplicaState.IN_USE)
_KEPT = (ReplicaState.ALLOCATED, ReplicaState.INITIALIZING, *_SOUND)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A replica that keeps its place in the status.

    Attributes:
        entry: Its entry in `status.allocation.replicas` as stored, or as made for a new placement.
        state: The state it is in now.
        uses: Whom it serves; at most one pod unless something went wrong.
        lost: The device or devices that an older holder has too, in words; empty for a sound replica.
        leaving: It does not stay: once nobody has anything of it any more, its devices are cleaned and it goes.
        runs: What is recorded of hooks on its devices.
        cause: Why it is given up, as one word and as a sentence, or empty.
    """

    index: int
    entry: Raw
    state: ReplicaState
    uses: tuple[Use, ...] = ()
    lost: str = ""
    leaving: bool = False
    runs: tuple[Run, ...] = ()
    cause: tuple[str, str] | tuple[()] = ()

    @property
    def node(self) -> str:
        """The node of its devices."""
        return str(self.entry.get("node") or "")

    @property
    def sound(self) -> bool:
        """It is wanted and may serve a pod."""
        return self.state in _SOUND

    @property
    def kept(self) -> bool:
        """It is wanted: who has it keeps it, also while its devices are prepared again."""
        return self.state in _KEPT

    @property
    def serves(self) -> PodFacts | None:
        """The live pod that the replica is for, None while it is free or leaving."""
        live = [use.pod for use in self.uses if use.pod is not None and use.live] if self.kept else []
        return min(live, key=precedence, default=None)


@dataclass(frozen=True, slots=True, eq=False)
class Review:
    """The next step of one claim.

    Attributes:
        members: Replicas of the status, by index; of a leaving one that nobody uses nothing but its devices is left.
        users: UIDs of all pods that have, or had, something of the claim's; strays are among them.
        removals: Requests that take users and their ResourceClaims away, in order.
        unused: Nobody has, or had, anything of the claim's any more.
        wake_at: When this must be looked at again although nothing changed, or None.
    """

    members: tuple[Member, ...]
    users: frozenset[str]
    removals: tuple[Step, ...]
    unused: bool
    wake_at: float | None


def device_entry(device: PlacedDevice) -> dict[str, Any]:
    """A held device as it stands in a status; fields that say nothing are left out."""
    entry: dict[str, Any] = {
        "request": device.request,
        "driver": device.id.driver,
        "pool": device.id.pool,
        "device": device.id.device,
    }
    if device.hardware_id:
        entry["id"] = device.hardware_id
    if device.share is not None:
        entry["share"] = share_entry(device.share)
    if device.consumed:
        entry["consumed"] = recorded(device.consumed)
    return entry


def share_entry(share: PlacedShare) -> dict[str, Any]:
    """The part of a device that is held, as it stands in a status."""
    amounts = {
        "slots": share.slots,
        "memory": share.memory_bytes,
        "compute": share.compute_milli,
        "profile": share.profile,
        "start": share.start,
        "vf": share.vf,
    }
    return {"name": share.name, **{name: amount for name, amount in amounts.items() if amount is not None}}


def enter(placement: Placement, now: float) -> dict[str, Any]:
    """The status entry of a new placement, whose devices nothing has been done to yet."""
    entry: dict[str, Any] = {"index": placement.index, "node": placement.node, "state": ReplicaState.ALLOCATED.value}
    if placement.locality:
        entry["locality"] = dict(placement.locality)
    entry["devices"] = [device_entry(device) for device in placement.devices]
    entry["allocatedAt"] = rfc3339(now)
    return entry


def contested(
    claims: Iterable[Claim], conflicts: Mapping[str, Collection[int]], holds: Mapping[DeviceID, Hold]
) -> dict[str, dict[int, str]]:
    """Replicas that cannot keep their devices, by claim UID and replica index, with the reason in words.

    `conflicts` are those that the allocator found to hold a device of an older claim; a device that stands in a foreign
    allocation is the foreign claim's, unless both have parts of it.
    """
    foreign = {device: hold for device, hold in holds.items() if hold.kind is HoldKind.FOREIGN}
    if not foreign and not any(conflicts.values()):
        return {}
    holders: defaultdict[DeviceID, list[str]] = defaultdict(list)
    found: dict[str, dict[int, str]] = {}
    placed = [(claim, replica) for claim in claims for replica in claim.placed]
    for claim, replica in placed:
        for device in replica.devices:
            holders[device.id].append(f"DeviceClaim {claim.namespace}/{claim.name} (replica {replica.index})")
    for claim, replica in placed:
        me = f"DeviceClaim {claim.namespace}/{claim.name} (replica {replica.index})"
        for device in replica.devices:
            others = [holder for holder in holders[device.id] if holder != me]
            lost = replica.index in conflicts.get(claim.uid, ()) and others
            theirs = foreign.get(device.id)
            if theirs is not None and theirs.shared and device.share is not None:
                # Parts of both are in use side by side, as the driver allows.
                theirs = None
            if theirs is not None or lost:
                words = f"{device.id} is held by {theirs.holder if theirs is not None else others[0]}"
                found.setdefault(claim.uid, {}).setdefault(replica.index, words)
        if replica.index in conflicts.get(claim.uid, ()):
            named = [device.id for device in replica.devices]
            for device_id in named:
                if named.count(device_id) > 1:
                    found.setdefault(claim.uid, {}).setdefault(replica.index, f"{device_id} stands in it twice")
            found.setdefault(claim.uid, {}).setdefault(replica.index, "a device of it is held by an older claim")
    return found


def runs_out_at(claim: ClaimFacts) -> float | None:
    """When `maxRuntime` is over, counted from the first replica that became ready; None while nothing counts."""
    if claim.claim.spec.max_runtime is None or is_released(claim):
        return None
    started = [replica.ready_at for replica in read_placed(claim.status) if replica.ready_at is not None]
    return min(started) + milliseconds(claim.claim.spec.max_runtime) / 1000 if started else None


def evicting(claim: ClaimFacts) -> frozenset[int]:
    """Replicas that the claim's status says are being evicted; they go on leaving whatever is decided now."""
    evicted = any(
        each.get("type") == ClaimCondition.EVICTED and each.get("status") == "True"
        for each in claim.status.get("conditions") or ()
    )
    if not evicted:
        return frozenset()
    leaving = (entry for entry in entries(claim) if entry.get("state") == ReplicaState.RELEASING)
    return frozenset(int(entry.get("index") or 0) for entry in leaving)


def _state(entry: Raw, uses: tuple[Use, ...]) -> ReplicaState:
    """State of a wanted replica. It is InUse from the binding of its pod until nothing of that pod is left. Whether its
    devices are prepared is not looked at here."""
    if entry.get("state") in (ReplicaState.ALLOCATED, ReplicaState.INITIALIZING):
        return ReplicaState(entry["state"])
    if any(use.bound or use.had for use in uses):
        return ReplicaState.IN_USE
    if uses and entry.get("state") == ReplicaState.IN_USE:
        return ReplicaState.IN_USE
    return ReplicaState.READY


def _going(entry: Raw, runs: Iterable[Run]) -> bool:
    """Whether a replica that was leaving cannot come back."""
    begun = not entry.get("readyAt") or any(run.stage is HookStage.CLEANUP for run in runs)
    return entry.get("state") == ReplicaState.RELEASING and begun


def _counted(entry: Raw, uses: tuple[Use, ...]) -> Raw:
    """The entry with one pod more that it has served, once nothing of that pod is left."""
    if uses or entry.get("state") not in (ReplicaState.IN_USE, ReplicaState.INITIALIZING) or not given_out(entry):
        return entry
    return {**entry, "served": int(entry.get("served") or 0) + 1}


def review(
    claim: ClaimFacts,
    relations: Relations,
    inventory: Inventory,
    lost: Mapping[int, str],
    now: float,
    evicted: Collection[int] = (),
    given_up: Collection[int] = (),
    *,
    wanted: Collection[int],
) -> Review:
    """What becomes of the replicas that a claim has, and whom that removes.

    Of a deleted claim everything is leaving, and so is a replica that is not `wanted`, one that lost a device or whose
    devices could not be prepared, and one that is `evicted` or `given_up` (its node is out of reach): their users are
    removed, and the replica may go when nothing of them is left. One on whose devices cleaning was begun, or that never
    became ready, goes although it is wanted again meanwhile.
    """
    deleted = claim.meta.deleting is not None
    uses: defaultdict[int, list[Use]] = defaultdict(list)
    for use in uses_of(claim, relations, inventory):
        uses[use.index].append(use)
    members: list[Member] = []
    removals: list[Step] = []
    for entry in entries(claim):
        index = int(entry.get("index") or 0)
        mine = tuple(uses[index])
        loss = lost.get(index, "")
        failed = bool(loss) or index in given_up or entry.get("state") == ReplicaState.FAILED
        runs = read_runs(entry.get("hooks"))
        if deleted or index not in wanted or index in evicted or _going(entry, runs):
            state = ReplicaState.RELEASING
        elif failed:
            state = ReplicaState.FAILED
        else:
            members.append(Member(index, _counted(entry, mine), _state(entry, mine), mine, runs=runs))
            continue
        members.append(Member(index, entry, state, mine, loss, leaving=True, runs=runs))
    served = {member.serves.meta.uid for member in members if member.serves is not None}
    kept = {member.index for member in members if member.kept}
    everybody = [use for index in sorted(uses) for use in uses[index]]
    for use in everybody:
        if not use.live:
            removals += end(use, now)
        elif use.pod_uid not in served and (deleted or use.at_gate or use.index not in (STRAY, *kept)):
            # A stray that runs is left alone: whatever it has is not what this claim holds.
            removals += expel(use, deleted=deleted)
    ends = [use.lingers_until for use in everybody if not use.live and use.lingers_until is not None]
    waits = [end for end in ends if now < end < math.inf]
    return Review(
        members=tuple(members),
        users=frozenset(use.pod_uid for use in everybody),
        removals=tuple(removals),
        unused=not everybody,
        wake_at=min(waits, default=None),
    )
