"""Parts whose claim asks for another size than it has: `share.memory` and `share.compute` are all of a request that may
change.

In come all claims and what their cards have left; out goes for each such claim which parts get their new size, and why
others keep theirs. No pod is ever stopped for it. A part grows when its card and its tenant's quota have room; it never
shrinks under a pod, and where hooks make the part nothing changes under a pod either: what runs keeps what it was told.
Older claims come first, and what this decision gives to waiting claims is taken before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from adjoin.api.claim_status import HookStage
from adjoin.decision.passage import covers
from adjoin.facts import PoolFacts
from adjoin.lifecycle import Member, rfc3339
from adjoin_allocator.amounts import cores, size
from adjoin_allocator.model import Claim, Device, DeviceID, PlacedDevice, PlacedReplica, PlacedShare, Share, ShareAsk
from adjoin_allocator.results import Plan
from adjoin_allocator.rulebook import rule_for
from adjoin_allocator.sharing import MILLI, part
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import ReplicaState, ShareMode

_AMOUNTS = (ShareMode.FRACTIONAL, ShareMode.MPS)


@dataclass(frozen=True, slots=True)
class Change:
    """The new size of one part.

    Attributes:
        index: The replica.
        place: Which of its devices.
        share: The part as it should be.
        quiet: It waits until nobody uses the replica, because hooks make it anew, or because it shrinks.
    """

    index: int
    place: int
    share: PlacedShare
    quiet: bool


@dataclass(frozen=True, slots=True)
class Resize:
    """What becomes of a claim whose parts are not of the size that it asks.

    Attributes:
        changes: Parts that get their new size.
        waits: Why others keep theirs, in words.
        hooked: Hooks make the parts.
    """

    changes: tuple[Change, ...] = ()
    waits: tuple[str, ...] = ()
    hooked: bool = False


@dataclass(slots=True)
class _Room:
    """What is left while resizes are decided."""

    snapshot: Snapshot
    plan: Plan
    pools: Mapping[str, PoolFacts]
    held: dict[DeviceID, Counter[PlacedShare]] = field(default_factory=dict)
    extra: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Thousandths of devices that tenants have got more in this decision, by pool, tenant and device name."""

    def of(self, device: DeviceID) -> Counter[PlacedShare]:
        """All parts of a device, those that this decision gives included."""
        if device not in self.held:
            groups = [each.devices for claim in self.snapshot.claims for each in claim.placed]
            groups += [each.devices for plan in self.plan.claims.values() for each in plan.placements]
            shares = (one.share for group in groups for one in group if one.id == device)
            self.held[device] = Counter(share for share in shares if share is not None)
        return self.held[device]


def decide_resizes(snapshot: Snapshot, plan: Plan, pools: Mapping[str, PoolFacts]) -> Mapping[str, Resize]:
    """By UID, claims whose parts are not of the size that they ask. `pools` are by name. O(claims), and O(placed and
    planned devices) for each card concerned."""
    found: dict[str, Resize] = {}
    room = _Room(snapshot, plan, pools)
    if not snapshot.shares:
        return found
    for claim in sorted(snapshot.claims, key=lambda each: (each.created or 0.0, each.uid)):
        parts = list(_other_size(claim, snapshot)) if not claim.deleting else []
        if parts:
            found[claim.uid] = _resize(claim, parts, room)
    return found


def _other_size(claim: Claim, snapshot: Snapshot) -> Iterator[tuple[PlacedReplica, int, PlacedShare]]:
    """Parts of wanted replicas whose size is not the one that is asked, with the part as it should be."""
    asked = _asked(claim)
    for replica in claim.placed:
        if replica.state in (ReplicaState.RELEASING, ReplicaState.FAILED):
            continue
        for place, device in enumerate(replica.devices):
            ask, held = asked.get(device.request), device.share
            known = snapshot.shares.get(held.name) if held is not None else None
            if ask is None or held is None or known is None or known.mode not in _AMOUNTS or ask.name != held.name:
                continue
            wanted = replace(held, memory_bytes=ask.memory_bytes, compute_milli=ask.compute_milli)
            if wanted != held:
                yield replica, place, wanted


def _asked(claim: Claim) -> dict[str, ShareAsk]:
    """What each request, and each of its alternatives, asks of a share."""
    found = {request.name: request.share for request in claim.requests if request.share is not None}
    for request in claim.requests:
        for way in request.first_of:
            if way.share is not None:
                found[f"{request.name}/{way.name}"] = way.share
    return found


def _resize(claim: Claim, parts: list[tuple[PlacedReplica, int, PlacedShare]], room: _Room) -> Resize:
    changes: list[Change] = []
    waits: list[str] = []
    pool = room.pools.get(claim.pool)
    init = pool.pool.spec.lifecycle.init if pool is not None else ()
    kinds = {room.snapshot.shares[wanted.name].kind for _, _, wanted in parts}
    hooked = any(covers(hook, kind) for hook in init for kind in kinds)
    for replica, place, wanted in parts:
        placed = replica.devices[place]
        assert placed.share is not None
        quiet = hooked or _shrinks(placed.share, wanted)
        words = f"replica {replica.index} keeps {_words(placed.share)} of {placed.id.device}, {_words(wanted)} is asked"
        why = _refused(claim, replica, placed, wanted, room)
        if not why and quiet and replica.state is ReplicaState.IN_USE:
            why = "it changes when its pod has ended"
        if why:
            waits.append(f"{words}: {why}")
            continue
        changes.append(Change(replica.index, place, wanted, quiet))
        held = room.of(placed.id)
        held[placed.share] -= 1
        held[wanted] += 1
    return Resize(tuple(changes), tuple(waits), hooked)


def _shrinks(held: PlacedShare, wanted: PlacedShare) -> bool:
    """Whether a part would have less of anything; None is all of it."""
    pairs = ((held.memory_bytes, wanted.memory_bytes), (held.compute_milli, wanted.compute_milli))
    return any(after is not None and (before is None or after < before) for before, after in pairs)


def _refused(claim: Claim, replica: PlacedReplica, placed: PlacedDevice, wanted: PlacedShare, room: _Room) -> str:
    """Why a part cannot have its new size, or ""."""
    share, there = room.snapshot.shares[wanted.name], room.snapshot.inventory.get(replica.node, ())
    device = next((each for each in there if each.id == placed.id), None)
    assert placed.share is not None
    if device is None:
        return "its card is not there"
    held = Counter(room.of(placed.id))
    rule = rule_for(share, device)
    now = rule.use((each, times) for each, times in held.items() if times > 0)
    held[placed.share] -= 1
    before = rule.use((each, times) for each, times in held.items() if times > 0)
    held[wanted] += 1
    units, milli, *_ = rule.use((each, times) for each, times in held.items() if times > 0)
    # Who takes no more of anything is never in the way, also of a card of which more is in use than there is.
    grows = units > now[0] or milli > now[1]
    if grows and (units > rule.room or milli > MILLI):
        return f"its card has room for {rule.told(before)}"
    return _beyond_quota(claim, share, device, placed.share, wanted, room)


def _beyond_quota(
    claim: Claim, share: Share, device: Device, held: PlacedShare, wanted: PlacedShare, room: _Room
) -> str:
    """A part does not grow beyond its tenant's own quota: borrowing is for claims that wait."""
    pool, plan = room.snapshot.pools.get(claim.pool), room.plan.pools.get(claim.pool)
    tenant = pool.tenants.get(claim.tenant) if pool is not None else None
    quota = tenant.quota.get(share.kind) if tenant is not None else None
    rule = rule_for(share, device)
    more = rule.cost(part(wanted, share)) - rule.cost(part(held, share))
    if quota is None or plan is None or more <= 0:
        return ""
    key = (claim.pool, claim.tenant, share.kind)
    used = plan.usage.get(claim.tenant, {}).get(share.kind, 0) + room.extra[key]
    if used + more > quota * MILLI:
        return f"tenant {claim.tenant} would have {cores(used + more)} of {quota} {share.kind}"
    room.extra[key] += more
    return ""


def _words(part: PlacedShare) -> str:
    memory = size(part.memory_bytes) if part.memory_bytes is not None else ""
    compute = f"{part.compute_milli}m" if part.compute_milli is not None else ""
    return " and ".join(filter(None, (memory, compute))) or "no limit"


def resized(member: Member, resize: Resize | None, now: float) -> Member:
    """The replica with the new size of its parts, as far as they get it now; where hooks make them, they do so anew."""
    changes = [each for each in resize.changes if each.index == member.index] if resize is not None else []
    idle = not member.uses and member.state in (ReplicaState.ALLOCATED, ReplicaState.INITIALIZING, ReplicaState.READY)
    running = any(run.stage is HookStage.INIT and not run.over for run in member.runs)
    changes = [each for each in changes if not each.quiet or (idle and not running)]
    if not changes or resize is None or not member.kept:
        return member
    devices = [dict(each) for each in member.entry.get("devices") or ()]
    for change in changes:
        amounts = {"memory": change.share.memory_bytes, "compute": change.share.compute_milli}
        part = {key: value for key, value in devices[change.place]["share"].items() if key not in amounts}
        devices[change.place]["share"] = {**part, **{key: each for key, each in amounts.items() if each is not None}}
    entry = {**member.entry, "devices": devices}
    if not resize.hooked:
        return replace(member, entry=entry)
    left = {key: value for key, value in entry.items() if key != "hooks"}
    runs = tuple(run for run in member.runs if run.stage is not HookStage.INIT)
    state = ReplicaState.ALLOCATED if member.state is ReplicaState.ALLOCATED else ReplicaState.INITIALIZING
    return replace(member, entry={**left, "resizedAt": rfc3339(now), "state": state.value}, runs=runs, state=state)
