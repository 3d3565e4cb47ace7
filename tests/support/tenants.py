"""Proof of what a plan says of tenants: quotas, victims and promises, without trust in the solver.

`assert_tenants` is a part of `checks.assert_valid`. `smallest` is a second preemptor, made to be read rather than fast:
every set of victims, each tried by planning the snapshot without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from math import ceil, inf

from tests.support.partition_checks import partition_fraction
from tests.support.portions import portion

from adjoin_allocator import (
    Claim,
    ClaimUID,
    Code,
    Device,
    DeviceID,
    PlacedDevice,
    Plan,
    Pool,
    Preempted,
    PreemptionRules,
    Reclaim,
    ReplicaState,
    ShareMode,
    Snapshot,
    plan,
)
from adjoin_allocator.sharing import memory_bytes, shareable_bytes

Held = Mapping[str, Counter[str]]
"""By tenant the devices of each name."""


@dataclass(frozen=True)
class Lost:
    """What one claim loses in a set of victims."""

    claim: Claim
    replicas: tuple[int, ...]


def assert_tenants(snapshot: Snapshot, answer: Plan, devices: Mapping[DeviceID, Device], now: float | None) -> None:
    """Everything about tenants that must hold of any plan; rules about time only when `now` is given."""
    claims = {claim.uid: claim for claim in snapshot.claims}
    owned = Counter(given.id for claim in snapshot.claims for replica in claim.placed for given in replica.devices)
    if any(count > 1 for count in owned.values()):
        return  # Who lost a device cannot be told without a ledger.
    for name, pool in snapshot.pools.items():
        before = _held(snapshot, pool, devices, {})
        after: dict[str, Counter[str]] = {tenant: Counter(kinds) for tenant, kinds in before.items()}
        for uid, one in answer.claims.items():
            if claims[uid].pool == name:
                for given in (device for placement in one.placements for device in placement.devices):
                    mine = after.setdefault(claims[uid].tenant, Counter())
                    mine[devices[given.id].kind] += price(snapshot, devices[given.id], given)
        told = {tenant: Counter(kinds) for tenant, kinds in answer.pools[name].usage.items() if any(kinds.values())}
        expected = {tenant: Counter({kind: n for kind, n in kinds.items() if n}) for tenant, kinds in after.items()}
        assert told == {tenant: kinds for tenant, kinds in expected.items() if kinds}, (
            f"{name}: usage is not what is held"
        )
        for tenant in pool.tenants:
            for kind in after.get(tenant, ()):
                if after[tenant][kind] > before.get(tenant, Counter())[kind]:
                    assert _allowed(pool, before, after, tenant, kind), (
                        f"{name}: tenant {tenant} gets more {kind} than it may"
                    )
    gone: dict[ClaimUID, set[int]] = {}
    for one in answer.preempted:
        assert not gone.get(one.uid, set()) & set(one.replicas), f"replicas of {one.uid} are evicted twice"
        gone.setdefault(one.uid, set()).update(one.replicas)
    by = {one.by for one in answer.preempted}
    _assert_promises(snapshot, answer, devices, gone)
    for uid in by:
        assert uid in answer.claims, f"{uid} evicts and is not spoken of"
        assert answer.claims[uid].nominated, f"{uid} evicts and nothing is held for it"
        victims = [Lost(claims[one.uid], one.replicas) for one in answer.preempted if one.by == uid]
        # One replica justifies it; that others find room in what comes free too needs nobody's leave.
        promised = answer.claims[uid].nominated
        some = promised if claims[uid].gang_min else [min(promised, key=lambda one: len(one.devices))]
        nominated = Counter(devices[each.id].kind for one in some for each in one.devices)
        others = [Lost(claims[one.uid], one.replicas) for one in answer.preempted if one.by != uid]
        for victim in victims:
            _assert_victim(snapshot.pools[claims[uid].pool], claims[uid], victim, gone, now)
        assert legal(snapshot, claims[uid], victims, nominated, others, answer), f"{uid} evicts what its tenant may not"


def _held(
    snapshot: Snapshot, pool: Pool, devices: Mapping[DeviceID, Device], less: Mapping[ClaimUID, set[int]]
) -> Held:
    """What tenants hold of a pool, without some replicas."""
    held: dict[str, Counter[str]] = {}
    for claim in snapshot.claims:
        for replica in claim.placed:
            if replica.index not in less.get(claim.uid, ()):
                for each in replica.devices:
                    device = devices.get(each.id)
                    if device is not None and device.device_pool == pool.name:
                        held.setdefault(claim.tenant, Counter())[device.kind] += price(snapshot, device, each)
    return held


def price(snapshot: Snapshot, device: Device, placed: PlacedDevice) -> int:
    """What it costs a quota: the largest fraction of the card that it is, in thousandths, rounded up."""
    if placed.share is None:
        return portion(device)
    share, memory = snapshot.shares.get(placed.share.name), memory_bytes(device)
    if share is None:
        # Of what it is a part nothing says any more.
        only_compute = placed.share.compute_milli is not None and not placed.share.memory_bytes
        return placed.share.compute_milli or 1000 if only_compute else 1000
    fraction = Fraction(placed.share.compute_milli or 0, 1000)
    if share.mode is ShareMode.TIME_SLICED:
        fraction = Fraction(placed.share.slots or 1, share.slots)
    elif share.mode is ShareMode.VIRTUAL_FUNCTIONS:
        fraction = Fraction(1, share.functions)
    elif share.mode is ShareMode.PARTITIONED:
        fraction = partition_fraction(share, device, placed.share.profile or "")
    elif taken := counted_bytes(device, placed.share.memory_bytes):
        gives = memory is not None and shareable_bytes(share, memory)
        fraction = max(fraction, Fraction(taken, memory) if memory and gives else Fraction(1))
    return ceil(min(fraction, Fraction(1)) * 1000)


def counted_bytes(device: Device, asked: int | None) -> int:
    """What of a device's memory Kubernetes counts for a part: the amount, of devices with a policy the next one that
    it has.
    """
    policy = next((each for name, each in device.policies.items() if name.endswith("/memory")), None)
    if policy is None or not device.allow_multiple_allocations:
        return asked or 0
    if asked is None:
        return policy.default if policy.default is not None else memory_bytes(device) or 0
    if policy.values:
        return min(value for value in policy.values if value >= asked)
    above = max(asked - (policy.least or 0), 0)
    return (policy.least or 0) + (-(-above // policy.step) * policy.step if policy.step else above)


def _allowed(pool: Pool, before: Held, held: Held, tenant: str, kind: str) -> bool:
    mine = pool.tenants[tenant]
    if kind not in mine.quota or held[tenant][kind] <= mine.quota[kind] * 1000:
        return True
    limited = [one for one in pool.tenants.values() if kind in one.quota]
    # What others got in the same plan may have come later, out of quotas of their own.
    total = held[tenant][kind] + sum(before.get(one.name, Counter())[kind] for one in limited if one.name != tenant)
    most = (mine.quota[kind] + mine.borrowing.get(kind, 0)) * 1000
    return held[tenant][kind] <= most and total <= sum(one.quota[kind] for one in limited) * 1000


def _assert_promises(
    snapshot: Snapshot, answer: Plan, devices: Mapping[DeviceID, Device], gone: Mapping[ClaimUID, set[int]]
) -> None:
    claims = {claim.uid: claim for claim in snapshot.claims}
    staying = {
        given.id: claim.name
        for claim in snapshot.claims
        for replica in claim.placed
        for given in replica.devices
        if not claim.deleting
        and replica.state is not ReplicaState.RELEASING
        and replica.index not in gone.get(claim.uid, ())
        and replica.index not in (answer.claims[claim.uid].conflicts if claim.uid in answer.claims else ())
    }
    given_now = {
        each.id for one in answer.claims.values() for placement in one.placements for each in placement.devices
    }
    promised: set[DeviceID] = set()
    for uid, one in answer.claims.items():
        what = claims[uid].name
        indexes = [each.index for each in one.nominated]
        lacking = (
            set(range(claims[uid].replicas)) - {p.index for p in claims[uid].placed} - {p.index for p in one.placements}
        )
        assert len(set(indexes)) == len(indexes), f"{what}: one replica is promised devices twice"
        assert set(indexes) <= lacking, f"{what}: devices are promised to a replica that does not lack them"
        if indexes:
            assert any(reason.code is Code.DEVICE_RELEASING for reason in one.reasons), (
                f"{what}: waits, and not said so"
            )
        for each in one.nominated:
            for given in each.devices:
                assert given.id in devices, f"{what}: {given.id} is promised and does not exist"
                assert given.id not in staying, f"{what}: {given.id} is promised, but {staying[given.id]} keeps it"
                assert given.id not in given_now, f"{what}: {given.id} is promised and given away"
                assert given.id not in promised, f"{what}: {given.id} is promised twice"
                promised.add(given.id)


def _assert_victim(
    pool: Pool, preemptor: Claim, victim: Lost, gone: Mapping[ClaimUID, set[int]], now: float | None
) -> None:
    what = f"{victim.claim.name} is evicted for {preemptor.name}"
    live = {one.index: one for one in live_replicas(victim.claim)}
    assert victim.replicas, f"{what}, but loses nothing"
    assert set(victim.replicas) <= set(live), f"{what}, but holds nothing there"
    left = len(live) - len(gone[victim.claim.uid])
    assert may_lose(victim.claim, left), f"{what}: of a gang {left} members are left"
    assert victim.claim.preemptible, f"{what}, but must not be"
    assert rules_allow(pool, preemptor, victim.claim), f"{what} against the rules"
    if now is not None:
        for index in victim.replicas:
            assert ran(live[index].ready_at, live[index].allocated_at, now) >= pool.preemption.min_runtime, (
                f"{what} early"
            )
        again = [one for one in victim.claim.evictions if one.by == preemptor.uid and now - one.at < 600]
        assert not again, f"{what} again"


def ran(ready: float | None, allocated: float | None, now: float) -> float:
    """How long a replica has run."""
    since = ready if ready is not None else allocated
    return 0 if since is None else now - since


def live_replicas(claim: Claim) -> list[object]:
    """Replicas that hold devices and keep them."""
    return [] if claim.deleting else [one for one in claim.placed if one.state is not ReplicaState.RELEASING]


def may_lose(claim: Claim, left: int) -> bool:
    """Whether so many members may be left."""
    return claim.gang_min is None or left == 0 or left >= claim.gang_min


def rules_allow(pool: Pool, preemptor: Claim, victim: Claim) -> bool:
    """Whether base priorities and tenants allow it."""
    if not pool.tenants or victim.tenant == preemptor.tenant:
        return pool.preemption.within_tenant and victim.priority < preemptor.priority
    if pool.preemption.reclaim is Reclaim.LOWER_PRIORITY:
        return victim.priority < preemptor.priority
    return pool.preemption.reclaim is Reclaim.ANY


def legal(
    snapshot: Snapshot,
    preemptor: Claim,
    victims: list[Lost],
    need: Counter[str],
    others: list[Lost],
    answer: Plan | None = None,
) -> bool:
    """Whether tenants hold what they must hold, with the preemptor placed and the victims gone: in some order of the
    victims, the tenant of each is above its quota of something that is asked and that the victim has. What `answer`
    gives a victim's tenant counts there, for it may have been given before.
    """
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    pool = snapshot.pools[preemptor.pool]
    back = {
        claim.uid: {one.index for one in claim.placed if claim.deleting or one.state is ReplicaState.RELEASING}
        for claim in snapshot.claims
    }
    for one in others:
        back[one.claim.uid] |= set(one.replicas)
    after = {claim: set(indexes) for claim, indexes in back.items()}
    for one in victims:
        after[one.claim.uid] |= set(one.replicas)
    strangers = [one for one in victims if pool.tenants and one.claim.tenant != preemptor.tenant]
    mine = pool.tenants.get(preemptor.tenant)
    if strangers and mine is not None:
        held = _held(snapshot, pool, devices, after).get(preemptor.tenant, Counter()) + Counter(
            {k: 1000 * n for k, n in need.items()}
        )
        if any(held[kind] > quota * 1000 for kind, quota in mine.quota.items()):
            return False
    while strangers:
        for one in strangers:
            rest = {claim: set(indexes) for claim, indexes in back.items()}
            for other in victims:
                if other is not one and (other in strangers):
                    rest[other.claim.uid] |= set(other.replicas)
            held = _held(snapshot, pool, devices, rest).get(one.claim.tenant, Counter())
            for claim in snapshot.claims if answer is not None else ():
                if claim.tenant == one.claim.tenant and claim.pool == pool.name and claim.uid in answer.claims:
                    new = (each for p in answer.claims[claim.uid].placements for each in p.devices)
                    for each in new:
                        held[devices[each.id].kind] += price(snapshot, devices[each.id], each)
            quota = pool.tenants[one.claim.tenant].quota if one.claim.tenant in pool.tenants else {}
            has = {devices[each.id].kind for p in one.claim.placed if p.index in one.replicas for each in p.devices}
            if any(kind in has and kind in quota and held[kind] > quota[kind] * 1000 for kind in need):
                strangers.remove(one)
                break
        else:
            return False
    return True


def smallest(snapshot: Snapshot, preemptor: Claim, now: float) -> tuple[object, ...] | None:
    """The key of the best set of victims for a claim with one replica, or a gang that is placed whole or not at all,
    which is the only one that waits.
    """
    pool = snapshot.pools[preemptor.pool]
    need = Counter({request.kind: request.count * preemptor.replicas for request in preemptor.requests})
    best: tuple[object, ...] | None = None
    for victims in _sets(pool, snapshot, preemptor, now):
        key = key_of(victims)
        better = (best is None or key < best) and legal(snapshot, preemptor, victims, need, [])
        if better and fits_without(snapshot, preemptor, victims, now):
            best = key
    return best


def key_of(victims: list[Lost]) -> tuple[object, ...]:
    """What a set costs: highest priority, claims, devices, the age of the oldest and so on, UIDs, indexes."""
    ordered = sorted(victims, key=lambda one: one.claim.uid)
    devices = sum(len(p.devices) for one in victims for p in one.claim.placed if p.index in one.replicas)
    ages = sorted(inf if one.claim.created is None else one.claim.created for one in victims)
    return (
        max(one.claim.priority for one in victims),
        len(victims),
        devices,
        [-age for age in ages],
        [one.claim.uid for one in ordered],
        [sorted(-index for index in one.replicas) for one in ordered],
    )


def victims_of(snapshot: Snapshot, preempted: tuple[Preempted, ...]) -> list[Lost]:
    """A plan's victims."""
    claims = {claim.uid: claim for claim in snapshot.claims}
    return [Lost(claims[one.uid], one.replicas) for one in preempted]


def _sets(pool: Pool, snapshot: Snapshot, preemptor: Claim, now: float) -> Iterator[list[Lost]]:
    ways: list[list[Lost | None]] = []
    for claim in snapshot.claims:
        live = live_replicas(claim)
        again = any(one.by == preemptor.uid and now - one.at < 600 for one in claim.evictions)
        if claim is preemptor or again or not claim.preemptible or not rules_allow(pool, preemptor, claim):
            continue
        settled = [one.index for one in live if ran(one.ready_at, one.allocated_at, now) >= pool.preemption.min_runtime]
        subsets = [some for size in range(1, len(settled) + 1) for some in combinations(sorted(settled), size)]
        ways.append([None, *(Lost(claim, some) for some in subsets if may_lose(claim, len(live) - len(some)))])
    for choice in product(*ways):
        victims = [one for one in choice if one is not None]
        if victims:
            yield victims


def fits_without(snapshot: Snapshot, preemptor: Claim, victims: list[Lost], now: float) -> bool:
    gone = {one.claim.uid: set(one.replicas) for one in victims}
    claims = []
    for claim in snapshot.claims:
        # Whatever is on its way back has come, nobody else asks for anything.
        kept = tuple(one for one in live_replicas(claim) if one.index not in gone.get(claim.uid, ()))
        if claim is preemptor or kept:
            claims.append(replace(claim, placed=kept, replicas=claim.replicas if claim is preemptor else 0))
    quiet = replace(snapshot.pools[preemptor.pool], preemption=PreemptionRules(), hold_after=None)
    without = replace(snapshot, claims=tuple(claims), pools={**snapshot.pools, quiet.name: quiet})
    return bool(plan(without, now).claims[preemptor.uid].placements)
