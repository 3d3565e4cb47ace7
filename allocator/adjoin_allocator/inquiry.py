"""What people ask about one claim beside its reasons: when its turn comes, what its tenant has, and who is in the way.

In come a snapshot, the plan that was made of it, and a claim; out come values for a command to print. "In the way" are
those who hold devices that the claim could have, on the nodes that come nearest to having room for a replica; of each
it is said whether the claim may have it evicted, and whether it would be enough if that holder alone gave its devices
back. That is not guessed: it is `plan()` on the snapshot without the holder.

Nothing here decides anything, and the snapshot is not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from adjoin_allocator.model import Claim, ClaimUID, Device, DeviceID, PlacedReplica, Pool, Request, natural_key
from adjoin_allocator.nodes import closed
from adjoin_allocator.order import effective, urgency
from adjoin_allocator.results import Plan
from adjoin_allocator.selectors import match_all
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.solve import Memo, plan
from adjoin_allocator.tenancy import WHOLE, part_cost
from adjoin_allocator.terms import HoldKind, Reclaim, ReplicaState, Standing
from adjoin_allocator.victims import SAME_AGAIN

NEAR_NODES: Final = 16
"""So many of the nodes that come nearest to having room are looked at."""
PROVEN: Final = 16
"""Of so many holders it is found out whether they alone would be enough."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a claim is served.

    Attributes:
        priority: Its base priority.
        aging: What waiting has added.
        urgency: What its deadline has added.
        dominant_share: Its tenant's share of the pool, by the device name of which it has most, divided by its weight.
        position: 1 for the next one; None when it does not wait.
        waiting: How many claims of its pool wait.
        ahead: The claims that are served before it, the first in front.
    """

    priority: int
    aging: int
    urgency: int
    dominant_share: float
    position: int | None
    waiting: int
    ahead: tuple[ClaimUID, ...]

    @property
    def effective(self) -> int:
        """The priority that counts."""
        return self.priority + self.aging + self.urgency


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """What a tenant has of one device name, in thousandths of a device, and what it may have, in devices.

    `quota` None is no limit; `borrowing` is what it may have beyond, as long as others leave it.
    """

    device: str
    used_milli: int
    asked: int
    capacity: int
    quota: int | None
    borrowing: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who holds devices that a claim could have.

    Attributes:
        uid: A claim of the snapshot, or None for somebody else.
        name: `namespace/name` of the claim, or who else it is (`ResourceClaim ns/name`).
        since: When the first of these devices was given to it, seconds since the epoch, where that is known.
        releasing: They are on their way back.
        preemptible: It lets itself be evicted at all.
        evictable: The claim that asks may have it evicted.
        why: Why it may, or may not.
        replicas: Its replicas that hold such devices.
        nodes: Where.
        devices: Which.
        enough: The claim would have all its replicas if this holder alone gave everything back; None: not looked at.
    """

    uid: ClaimUID | None
    name: str
    tenant: str
    priority: int | None
    since: float | None
    releasing: bool
    preemptible: bool
    evictable: bool
    why: str
    replicas: tuple[int, ...]
    nodes: tuple[str, ...]
    devices: tuple[DeviceID, ...]
    enough: bool | None = None


@dataclass(frozen=True, slots=True)
class Near:
    """A node that comes near to having room for one replica: by request how many devices are free of how many that
    could be had there."""

    node: str
    free: Mapping[str, int]
    eligible: Mapping[str, int]
    closed: str


@dataclass(frozen=True, slots=True)
class Obstruction:
    """Who is in the way, and where that was looked at: `nodes` of `candidates` nodes that have enough such devices."""

    nodes: tuple[Near, ...]
    candidates: int
    holders: tuple[Holder, ...]


def tenant_of(pool: Pool, claim: Claim) -> str:
    """Whose quota and share count for a claim; a pool without tenants has one for all, "" by name."""
    return claim.tenant if pool.tenants else ""


def usage(snapshot: Snapshot, pool: Pool, *, staying: bool = False) -> Mapping[str, Mapping[str, int]]:
    """By tenant and device name what its claims hold of a pool, in thousandths of a device; with `staying` without what
    is on its way back.
    """
    known = {
        device.id: device
        for devices in snapshot.inventory.values()
        for device in devices
        if device.device_pool == pool.name
    }
    held: dict[str, Counter[str]] = {}
    for claim in snapshot.claims:
        if claim.pool != pool.name:
            continue
        mine = held.setdefault(tenant_of(pool, claim), Counter())
        for replica in claim.placed:
            if staying and (claim.deleting or replica.state is ReplicaState.RELEASING):
                continue
            for held_device in replica.devices:
                device = known.get(held_device.id)
                if device is not None:
                    share = held_device.share
                    mine[device.kind] += WHOLE if share is None else part_cost(share, device, snapshot.shares)
    return held


def dominant_share(pool: Pool, used: Mapping[str, int], capacity: Mapping[str, int], tenant: str) -> float:
    """The largest part of a device name that a tenant holds, divided by its weight."""
    shares = (amount / 1000 / capacity[name] for name, amount in used.items() if capacity.get(name))
    weight = pool.tenants[tenant].weight if tenant in pool.tenants else 1
    share = max(shares, default=0.0)
    return share / weight if weight > 0 else inf


def turn(snapshot: Snapshot, made: Plan, claim: Claim, now: float) -> Turn:
    """When `claim` is served among the claims of its pool that wait, as things stand before this decision."""
    pool = snapshot.pools.get(claim.pool)
    if pool is None:
        return Turn(claim.priority, 0, urgency(claim.deadline, now), 0.0, None, 0, ())
    used, capacity = usage(snapshot, pool), _capacity(made, pool.name)
    shares = {
        tenant: dominant_share(pool, used.get(tenant, {}), capacity, tenant)
        for tenant in {tenant_of(pool, each) for each in snapshot.claims if each.pool == pool.name}
    }

    def key(each: Claim) -> tuple[int, float, float, str]:
        age = now if each.created is None else each.created
        return -effective(each, pool, now), shares[tenant_of(pool, each)], age, each.uid if each.has_uid else ""

    waiting = sorted((each for each in snapshot.claims if each.pool == pool.name and _lacks(each)), key=key)
    uids = [each.uid for each in waiting]
    position = uids.index(claim.uid) if claim.uid in uids else None
    return Turn(
        priority=claim.priority,
        aging=effective(claim, pool, now) - claim.priority - urgency(claim.deadline, now),
        urgency=urgency(claim.deadline, now),
        dominant_share=shares.get(tenant_of(pool, claim), 0.0),
        position=None if position is None else position + 1,
        waiting=len(waiting),
        ahead=tuple(uids[: position or 0]),
    )


def _lacks(claim: Claim) -> bool:
    """Whether it is among those that are served: it wants replicas that it has not, and nothing holds it back."""
    present = {replica.index for replica in claim.placed}
    return not claim.deleting and claim.hold is None and any(each not in present for each in claim.members)


def _capacity(made: Plan, pool: str) -> Mapping[str, int]:
    decided = made.pools.get(pool)
    return {name: counts.capacity for name, counts in decided.counts.items()} if decided is not None else {}


def quota(snapshot: Snapshot, made: Plan, claim: Claim) -> tuple[QuotaLine, ...]:
    """What the claim's tenant has and may have of each device name that the claim asks for."""
    pool = snapshot.pools.get(claim.pool)
    if pool is None:
        return ()
    used = usage(snapshot, pool).get(tenant_of(pool, claim), {})
    tenant = pool.tenants.get(claim.tenant)
    capacity = _capacity(made, pool.name)
    return tuple(
        QuotaLine(
            device=name,
            used_milli=used.get(name, 0),
            asked=amount,
            capacity=capacity.get(name, 0),
            quota=tenant.quota.get(name) if tenant is not None else None,
            borrowing=tenant.borrowing.get(name, 0) if tenant is not None else 0,
        )
        for name, amount in asked(claim).items()
    )


def asked(claim: Claim) -> Mapping[str, int]:
    """By device name how many devices the replicas want that it has not."""
    missing = len(frozenset(claim.members) - {each.index for each in claim.placed})
    wanted: Counter[str] = Counter()
    for request in claim.requests:
        wanted[request.kind] += max(_ways(request), key=lambda way: way[0])[0] * missing
    return wanted


def _ways(request: Request) -> Sequence[tuple[int, Request]]:
    """How many devices each way of serving a request takes, with the selectors that count then."""
    if not request.first_of:
        return ((request.count, request),)
    return tuple((way.count, replace(request, selectors=way.selectors)) for way in request.first_of)


def settled(snapshot: Snapshot, made: Plan) -> Snapshot:
    """The snapshot once the plan's placements stand in their claims' statuses."""
    claims = []
    for claim in snapshot.claims:
        answer = made.claims.get(claim.uid)
        if answer is not None and answer.placements:
            new = [
                PlacedReplica(each.index, each.node, ReplicaState.ALLOCATED, each.devices) for each in answer.placements
            ]
            indexes = {each.index for each in new}
            kept = [each for each in claim.placed if each.index not in indexes]
            claim = replace(claim, placed=tuple(sorted((*kept, *new), key=lambda each: each.index)))
        claims.append(claim)
    return replace(snapshot, claims=tuple(claims))


def in_the_way(snapshot: Snapshot, made: Plan, claim: Claim, now: float, memo: Memo | None = None) -> Obstruction:
    """Who holds what `claim` could have, those first who alone would be enough, then those whom it may evict, then by
    how much they hold. A claim that nothing of the pool matches has nobody in its way.
    """
    pool = snapshot.pools.get(claim.pool)
    if pool is None:
        return Obstruction((), 0, ())
    after = settled(snapshot, made)
    near = sorted(_candidates(after, pool, claim), key=lambda each: (each[0], natural_key(each[1].node)))
    chosen = [node for _, node, _ in near[:NEAR_NODES]]
    wanted = {device.id: device for _, _, devices in near[:NEAR_NODES] for device in devices}
    holders = [
        *_claims_in_the_way(after, pool, claim, wanted, now),
        *_others_in_the_way(after, wanted),
    ]
    memo = memo or Memo()
    holders.sort(key=lambda each: (each.releasing, not each.evictable, len(each.devices), each.name))
    proven = [
        replace(each, enough=_enough(snapshot, claim, each, now, memo)) if place < PROVEN else each
        for place, each in enumerate(holders)
    ]
    if near and near[0][0] == 0:
        # There is room by numbers: only who is known to keep the claim from it is in its way.
        proven = [each for each in proven if each.enough]
    proven.sort(key=lambda each: (not each.enough, each.releasing, not each.evictable, len(each.devices), each.name))
    return Obstruction(tuple(chosen), len(near), tuple(proven))


def _candidates(snapshot: Snapshot, pool: Pool, claim: Claim) -> Iterator[tuple[int, Near, tuple[Device, ...]]]:
    """Nodes that have enough devices of each request, whoever holds them; with what is missing there, and the devices
    that the claim could have."""
    held = {device.id for each in snapshot.claims for replica in each.placed for device in replica.devices}
    for name, devices in snapshot.inventory.items():
        mine = [device for device in devices if device.device_pool == pool.name]
        lacking, free, eligible = 0, {}, {}
        could: dict[DeviceID, Device] = {}
        for request in claim.requests:
            ways = [(count, [device for device in mine if _matches(way, device)]) for count, way in _ways(request)]
            roomy = [(count, matching) for count, matching in ways if len(matching) >= max(count, 1)]
            if not roomy:
                break
            count, matching = roomy[0]
            available = [
                device
                for device in matching
                if device.standing is Standing.OFFERED and device.id not in held and device.id not in snapshot.holds
            ]
            free[request.name], eligible[request.name] = len(available), len(matching)
            need = len(matching) if request.all_devices else count
            lacking += max(0, need - len(available))
            could |= {device.id: device for _, each in roomy for device in each}
        else:
            shut = closed(snapshot.nodes.get(name), pool)
            node = Near(name, free, eligible, shut[1] if shut is not None else "")
            yield lacking + (1_000_000 if shut is not None else 0), node, tuple(could.values())


def _matches(request: Request, device: Device) -> bool:
    return device.kind == request.kind and match_all(request.selectors, device).matched


def _claims_in_the_way(
    snapshot: Snapshot, pool: Pool, claim: Claim, wanted: Mapping[DeviceID, Device], now: float
) -> Iterator[Holder]:
    used = usage(snapshot, pool, staying=True)
    for holder in snapshot.claims:
        if holder.uid == claim.uid:
            continue
        here = [each for each in holder.placed if any(device.id in wanted for device in each.devices)]
        if not here:
            continue
        evictable, why = may_evict(pool, claim, holder, used, now)
        times = [each.allocated_at for each in here if each.allocated_at is not None]
        yield Holder(
            uid=holder.uid,
            name=f"{holder.namespace}/{holder.name}",
            tenant=tenant_of(pool, holder),
            priority=holder.priority,
            since=min(times, default=None),
            releasing=holder.deleting or all(each.state is ReplicaState.RELEASING for each in here),
            preemptible=holder.preemptible,
            evictable=evictable,
            why=why,
            replicas=tuple(each.index for each in here),
            nodes=tuple(dict.fromkeys(each.node for each in here)),
            devices=tuple(device.id for each in here for device in each.devices if device.id in wanted),
        )


def _others_in_the_way(snapshot: Snapshot, wanted: Mapping[DeviceID, Device]) -> Iterator[Holder]:
    by_holder: dict[tuple[str, HoldKind], list[DeviceID]] = {}
    for device, hold in snapshot.holds.items():
        if device in wanted:
            by_holder.setdefault((hold.holder, hold.kind), []).append(device)
    for (name, kind), devices in by_holder.items():
        releasing = kind is HoldKind.RELEASING
        yield Holder(
            uid=None,
            name=name,
            tenant="",
            priority=None,
            since=None,
            releasing=releasing,
            preemptible=False,
            evictable=False,
            why="it is on its way back" if releasing else "it is not Adjoin's",
            replicas=(),
            nodes=tuple(dict.fromkeys(wanted[device].node for device in devices)),
            devices=tuple(devices),
        )


def _enough(snapshot: Snapshot, claim: Claim, holder: Holder, now: float, memo: Memo) -> bool:
    """Whether the claim is placed whole in a plan without the holder."""
    edited = replace(
        snapshot,
        claims=tuple(each for each in snapshot.claims if holder.uid is None or each.uid != holder.uid),
        holds={
            device: hold
            for device, hold in snapshot.holds.items()
            if holder.uid is not None or hold.holder != holder.name
        },
    )
    answer = plan(edited, now, memo).claims.get(claim.uid)
    return answer is None or not answer.reasons


def may_evict(
    pool: Pool, claim: Claim, holder: Claim, used: Mapping[str, Mapping[str, int]], now: float
) -> tuple[bool, str]:
    """Whether `claim` may have `holder` evicted, and why, or why not. `used` is what tenants hold that stays."""
    rules = pool.preemption
    if not holder.preemptible:
        return False, "it is not preemptible"
    if holder.deleting:
        return False, "it is being deleted"
    if any(each.by == claim.uid and now - each.at < SAME_AGAIN for each in holder.evictions):
        return False, "it was evicted for this claim a moment ago"
    if all(_ran(each, now) < rules.min_runtime for each in holder.placed):
        return False, f"it has run for less than the {rules.min_runtime:g} s that are sure"
    if tenant_of(pool, holder) == tenant_of(pool, claim):
        if not rules.within_tenant:
            return False, "preemption.withinTenant is Never"
        lower = holder.priority < claim.priority
        return lower, "its priority is lower" if lower else "its priority is not lower"
    if rules.reclaim is Reclaim.NEVER:
        return False, "preemption.reclaim is Never"
    # Only of what the claim asks for, and the holder has, does it matter that its tenant has too much.
    shared = {request.kind for request in claim.requests} & {request.kind for request in holder.requests}
    over = [name for name in _over(pool, holder.tenant, used.get(holder.tenant, {}), {}) if name in shared]
    if not over:
        return False, f"tenant {holder.tenant} is within its quota"
    if _over(pool, claim.tenant, used.get(claim.tenant, {}), asked(claim)):
        return False, f"tenant {claim.tenant} would be above its own quota"
    if rules.reclaim is Reclaim.LOWER_PRIORITY and holder.priority >= claim.priority:
        return False, "its priority is not lower"
    return True, f"tenant {holder.tenant} is above its quota of {', '.join(over)}"


def _ran(replica: PlacedReplica, now: float) -> float:
    """Seconds since it was ready, else since it was given its devices; when neither is known, it just began."""
    since = replica.ready_at if replica.ready_at is not None else replica.allocated_at
    return 0.0 if since is None else now - since


def _over(pool: Pool, tenant: str, used: Mapping[str, int], more: Mapping[str, int]) -> list[str]:
    """Device names of which a tenant has more than its quota."""
    limits = pool.tenants[tenant].quota if tenant in pool.tenants else {}
    return [name for name, limit in limits.items() if used.get(name, 0) + 1000 * more.get(name, 0) > 1000 * limit]


def fabric_level(snapshot: Snapshot, claim: Claim) -> str | None:
    """The finest level of the pool's fabric in which all placed replicas lie in one domain; None: they share none."""
    pool = snapshot.pools.get(claim.pool)
    nodes = {replica.node for replica in claim.placed}
    if pool is None or not nodes:
        return None
    for level in reversed(pool.fabric):
        domains = {
            snapshot.nodes[node].labels.get(level.node_label) if node in snapshot.nodes else None for node in nodes
        }
        if len(domains) == 1 and None not in domains:
            return level.name
    return None
