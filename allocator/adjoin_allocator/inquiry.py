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
from fractions import Fraction
from typing import Final

from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Claim, ClaimUID, Device, DeviceID, PlacedReplica, Pool, Request, Share, natural_key
from adjoin_allocator.nodes import closed
from adjoin_allocator.order import effective, service, urgency
from adjoin_allocator.results import Plan
from adjoin_allocator.rulebook import class_of, rule_for
from adjoin_allocator.selectors import match_all
from adjoin_allocator.sharers import can_give
from adjoin_allocator.sharing import part
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.solve import Memo, plan
from adjoin_allocator.tenancy import WHOLE, Accounts, least_cost
from adjoin_allocator.terms import HoldKind, ReplicaState, Standing
from adjoin_allocator.victims import Bar, Field, Law

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
        dominant_share: Its tenant's share of the pool, by the device name of which it has most, divided by its weight;
            None for a weight of nothing, which comes last.
        position: 1 for the next one; None when it does not wait.
        waiting: How many claims of its pool wait.
        ahead: The claims that are served before it, the first in front.
    """

    priority: int
    aging: int
    urgency: int
    dominant_share: Fraction | None
    position: int | None
    waiting: int
    ahead: tuple[ClaimUID, ...]

    @property
    def effective(self) -> int:
        """The priority that counts."""
        return self.priority + self.aging + self.urgency


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """What a tenant has of one device name, and what the claim asks for, in thousandths of a device; what it may have,
    in devices.

    `quota` None is no limit; `borrowing` is what it may have beyond, as long as others leave it.
    """

    device: str
    used_milli: int
    asked_milli: int
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


@dataclass(frozen=True, slots=True, eq=False)
class Books:
    """A pool's tenants and holders as a snapshot has them, and whose turn it is: what decisions go by."""

    ledger: Ledger
    accounts: Accounts
    field: Field

    @classmethod
    def of(cls, snapshot: Snapshot, pool: str, now: float, memo: Memo | None = None) -> Books:
        """Opens them. They are those of the memo's ledger, so they hold until it is brought to another snapshot."""
        ledger = (memo or Memo()).ledger
        ledger.enter(snapshot, now)
        accounts = ledger.accounts(pool)
        return cls(ledger, accounts, Field(ledger.holders[pool], accounts, now))


def turn(snapshot: Snapshot, claim: Claim, now: float, memo: Memo | None = None) -> Turn:
    """When `claim` is served among the claims of its pool that wait, as things stand before this decision."""
    pool = snapshot.pools.get(claim.pool)
    if pool is None:
        return Turn(claim.priority, 0, urgency(claim.deadline, now), Fraction(0), None, 0, ())
    books = Books.of(snapshot, pool.name, now, memo)
    waiting = [each for each in books.ledger.waiting if each.pool == pool.name and each.hold is None]
    uids = [
        each.uid for each in service(waiting, now, snapshot.pools, lambda _, tenant: books.accounts.portion(tenant))
    ]
    position = uids.index(claim.uid) if claim.uid in uids else None
    share, mine = books.accounts.share(claim.tenant), pool.tenants.get(claim.tenant)
    weight = 1 if mine is None else mine.weight
    return Turn(
        priority=claim.priority,
        aging=effective(claim, pool, now) - claim.priority - urgency(claim.deadline, now),
        urgency=urgency(claim.deadline, now),
        dominant_share=share / weight if weight > 0 else None,
        position=None if position is None else position + 1,
        waiting=len(waiting),
        ahead=tuple(uids[: position or 0]),
    )


def quota(snapshot: Snapshot, claim: Claim, now: float, memo: Memo | None = None) -> tuple[QuotaLine, ...]:
    """What the claim's tenant has and may have of each device name that the claim asks for."""
    pool = snapshot.pools.get(claim.pool)
    if pool is None:
        return ()
    accounts = Books.of(snapshot, pool.name, now, memo).accounts
    tenant = pool.tenants.get(claim.tenant)
    return tuple(
        QuotaLine(
            device=name,
            used_milli=accounts.used(claim.tenant, name),
            asked_milli=amount,
            capacity=accounts.capacity(name),
            quota=tenant.quota.get(name) if tenant is not None else None,
            borrowing=tenant.borrowing.get(name, 0) if tenant is not None else 0,
        )
        for name, amount in asked_milli(snapshot, claim).items()
    )


def asked_milli(snapshot: Snapshot, claim: Claim) -> Mapping[str, int]:
    """By device name how much the replicas want that it has not, in thousandths of a device, in the way of which that
    is most. A part counts as on the card of which it is the least; `all` is what the node has that has most.
    """
    missing = len(frozenset(claim.members) - {each.index for each in claim.placed})
    wanted: Counter[str] = Counter()
    for request in claim.requests:
        most = max(_count(snapshot, claim.pool, way) * _size(snapshot, claim.pool, way) for _, way in _ways(request))
        wanted[request.kind] += most * missing
    return wanted


def _count(snapshot: Snapshot, pool: str, way: Request) -> int:
    """How many devices or parts a way is, on the node of which `all` is most."""
    if not way.all_devices:
        return way.count
    return max(
        (
            sum(device.device_pool == pool and _matches(way, device, snapshot.shares) for device in devices)
            for devices in snapshot.inventory.values()
        ),
        default=0,
    )


def _size(snapshot: Snapshot, pool: str, way: Request) -> int:
    """What one device or part of a way is, in thousandths of a device."""
    share = None if way.share is None else snapshot.shares.get(way.share.name)
    if way.share is None or share is None:
        return WHOLE
    asked = part(way.share, share)
    if asked is None:
        return WHOLE
    classes = {
        class_of(device, products=True): device
        for devices in snapshot.inventory.values()
        for device in devices
        if device.device_pool == pool and _matches(way, device, snapshot.shares)
    }
    return min((rule_for(share, device).cost(asked) for device in classes.values()), default=WHOLE)


def _ways(request: Request) -> Sequence[tuple[int, Request]]:
    """How many devices each way of serving a request takes, with the selectors that count then."""
    if not request.first_of:
        return ((_cards(request), request),)
    return tuple(
        (_cards(way), replace(way, first_of=()))
        for way in (
            replace(
                request,
                count=each.count,
                all_devices=each.all_devices,
                selectors=each.selectors,
                share=each.share,
                same_device=each.same_device,
            )
            for each in request.first_of
        )
    )


def _cards(way: Request) -> int:
    """From how many devices it takes something."""
    return 1 if way.share is not None and way.same_device else way.count


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
    memo, after = memo or Memo(), settled(snapshot, made)
    near = sorted(
        _candidates(after, pool, claim, Books.of(after, pool.name, now, memo).ledger),
        key=lambda each: (each[0], natural_key(each[1].node)),
    )
    chosen = [node for _, node, _ in near[:NEAR_NODES]]
    wanted = {device.id: device for _, _, devices in near[:NEAR_NODES] for device in devices}
    holders = [
        *_claims_in_the_way(after, pool, claim, wanted, Books.of(after, pool.name, now, memo)),
        *_others_in_the_way(after, wanted),
    ]
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


def _candidates(
    snapshot: Snapshot, pool: Pool, claim: Claim, ledger: Ledger
) -> Iterator[tuple[int, Near, tuple[Device, ...]]]:
    """Nodes that have enough devices of each request, whoever holds them; with what is missing there, and the devices
    that the claim could have. A device of which a part is asked for is free as long as that part is left of it."""
    parts = {
        way: can_give(ledger, pool.name, way)
        for request in claim.requests
        for _, way in _ways(request)
        if way.share is not None
    }
    held = {device.id for each in snapshot.claims for replica in each.placed for device in replica.devices}
    for name, devices in snapshot.inventory.items():
        mine = [device for device in devices if device.device_pool == pool.name]
        lacking, free, eligible = 0, {}, {}
        could: dict[DeviceID, Device] = {}
        for request in claim.requests:
            ways = [
                (count, way, [device for device in mine if _matches(way, device, snapshot.shares)])
                for count, way in _ways(request)
            ]
            roomy = [each for each in ways if len(each[2]) >= max(each[0], 1)]
            if not roomy:
                break
            count, chosen, matching = roomy[0]
            available = [
                device
                for device in matching
                if device.standing is Standing.OFFERED and device.id not in snapshot.holds
                if (device.id not in held if chosen.share is None else device.id in parts[chosen])
            ]
            free[request.name], eligible[request.name] = len(available), len(matching)
            need = len(matching) if chosen.all_devices else count
            lacking += max(0, need - len(available))
            could |= {device.id: device for *_, each in roomy for device in each}
        else:
            shut = closed(snapshot.nodes.get(name), pool)
            node = Near(name, free, eligible, shut[1] if shut is not None else "")
            yield lacking + (1_000_000 if shut is not None else 0), node, tuple(could.values())


def _matches(request: Request, device: Device, shares: Mapping[str, Share]) -> bool:
    share = None if request.share is None else shares.get(request.share.name)
    if request.share is not None and (share is None or not match_all(share.selectors, device).matched):
        return False
    return device.kind == request.kind and match_all(request.selectors, device).matched


def _claims_in_the_way(
    snapshot: Snapshot, pool: Pool, claim: Claim, wanted: Mapping[DeviceID, Device], books: Books
) -> Iterator[Holder]:
    for holder in snapshot.claims:
        if holder.uid == claim.uid:
            continue
        here = [each for each in holder.placed if any(device.id in wanted for device in each.devices)]
        if not here:
            continue
        evictable, why = may_evict(books, claim, holder)
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


_BARS = {
    Bar.LEAVING: "it is being deleted, or on its way back already",
    Bar.NOT_PREEMPTIBLE: "it is not preemptible",
    Bar.WITHIN_NEVER: "preemption.withinTenant is Never",
    Bar.RECLAIM_NEVER: "preemption.reclaim is Never",
    Bar.PRIORITY: "its priority is not lower",
    Bar.AGAIN: "it was evicted for this claim a moment ago",
}


def may_evict(books: Books, claim: Claim, holder: Claim) -> tuple[bool, str]:
    """Whether `claim` may have `holder` evicted, and why, or why not, by the rules that preemption goes by."""
    members = max(1, (claim.gang_min or 1) - sum(one.index in claim.members for one in claim.placed))
    need = {kind: milli * members for kind, milli in least_cost(claim.requests, books.accounts.portions).items()}
    law, accounts, pool = Law(books.field, claim, need), books.accounts, books.accounts.pool
    bar = law.bar(holder)
    if bar is Bar.YOUNG:
        return False, f"it has run for less than the {pool.preemption.min_runtime:g} s that are sure"
    if bar is not None:
        return False, _BARS[bar]
    if books.field.one_tenant(claim, holder):
        return True, "its priority is lower"
    stock = law.stock(holder.uid)
    assert stock is not None, "nothing keeps it from losing something"
    lost = stock.singles[0] if stock.singles else stock.whole
    assert lost is not None, "it can lose something"
    if not law.above(holder.tenant, lost.cost, {}):
        return False, f"tenant {holder.tenant} is within its quota"
    if not accounts.within_quota(claim.tenant, need, {}):
        return False, f"tenant {claim.tenant} would be above its own quota"
    over = [kind for kind in need if lost.cost.get(kind) and law.above(holder.tenant, {kind: lost.cost[kind]}, {})]
    return True, f"tenant {holder.tenant} is above its quota of {', '.join(over)}"


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
