"""Proof of a plan without trust in the solver: everything that must hold of any plan, whoever made it.

`assert_valid(snapshot, plan)` raises AssertionError with a sentence about the first thing that does not hold. It
does not ask whether the plan is the best one; `oracle` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from tests.support.oracle import Rooms, takes_claims
from tests.support.partitions import assert_card_counts, assert_counters
from tests.support.parts_checks import STRONG, WEIGHT, assert_parts, unsettled
from tests.support.tenants import assert_tenants

from adjoin_allocator import (
    Affinity,
    Claim,
    ClaimPlan,
    Device,
    DeviceID,
    HoldKind,
    Placement,
    Plan,
    Policy,
    ReplicaState,
    Request,
    Snapshot,
    Standing,
)
from adjoin_allocator.selectors import match_all
from adjoin_allocator.topology import Verdict, attribute_values, wire


def assert_valid(snapshot: Snapshot, plan: Plan, now: float | None = None) -> None:
    """Everything that must hold of `plan` as an answer to `snapshot`; rules about time only when `now` is given."""
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    claims = {claim.uid: claim for claim in snapshot.claims}
    # What is lent may be given in parts: `assert_parts` sees to it.
    taken: dict[DeviceID, str] = {
        device: f"hold of {hold.holder}" for device, hold in snapshot.holds.items() if hold.lent is None
    }
    for claim in snapshot.claims:
        for replica in claim.placed:
            for held in replica.devices:
                if held.share is None:
                    taken.setdefault(held.id, f"claim {claim.name}")
    for uid, answer in plan.claims.items():
        assert uid in claims, f"a plan for claim {uid}, which is not in the snapshot"
        assert answer.uid == uid, f"the plan of {uid} is filed under another UID"
        _assert_answer(claims[uid], answer)
        for placement in answer.placements:
            _assert_placement(snapshot, devices, claims[uid], placement)
            for given in placement.devices:
                assert given.id not in taken, f"{given.id} goes to {claims[uid].name} but is taken: {taken[given.id]}"
                if given.share is None:
                    taken[given.id] = f"claim {claims[uid].name}"
        for nomination in answer.nominated:
            promise = Placement(nomination.index, nomination.node, nomination.devices, {})
            _assert_placement(snapshot, devices, claims[uid], promise)
    for uid, answer in plan.claims.items():
        _assert_together(snapshot, devices, claims[uid], answer)
    for claim in snapshot.claims:
        if not claim.deleting and set(claim.members) - {replica.index for replica in claim.placed}:
            assert claim.uid in plan.claims, f"claim {claim.name} lacks replicas and the plan says nothing of it"
    _assert_hosts(snapshot, plan)
    _assert_counts(snapshot, plan, devices)
    assert_tenants(snapshot, plan, devices, now)
    assert_parts(snapshot, plan)
    assert_counters(snapshot, plan)


def _assert_hosts(snapshot: Snapshot, plan: Plan) -> None:
    """What is placed anew has room beside its devices on each node, with all that was there."""
    rooms = Rooms(snapshot)
    claims = {claim.uid: claim for claim in snapshot.claims}
    for uid, answer in plan.claims.items():
        for placement in answer.placements:
            assert rooms.suffice(placement.node, claims[uid]), (
                f"{claims[uid].name}/{placement.index}: {placement.node} has no room beside its devices"
            )
            rooms.use(placement.node, claims[uid])


def _assert_answer(claim: Claim, answer: ClaimPlan) -> None:
    indexes = [placement.index for placement in answer.placements]
    assert len(set(indexes)) == len(indexes), f"{claim.name}: a replica is placed twice"
    present = {replica.index for replica in claim.placed} - set(answer.conflicts)
    assert not present & set(indexes), f"{claim.name}: a replica that has devices is placed again"
    assert set(indexes) <= set(claim.members), f"{claim.name}: a replica is placed that is not wanted"
    assert not (claim.deleting and indexes), f"{claim.name} is being deleted and gets devices"
    complete = not set(claim.members) - present - set(indexes)
    if complete or claim.deleting:
        assert not answer.reasons, f"{claim.name} is complete and has reasons"
        assert answer.nearest is None, f"{claim.name} is complete and is told what would make it fit"
    else:
        assert answer.reasons, f"{claim.name} waits without a reason"
        assert answer.gap is None, f"{claim.name} waits and has a gap"
    for reason in answer.reasons:
        assert reason.message, f"{claim.name}: reason {reason.code} says nothing"
        assert reason.nodes >= 0, f"{claim.name}: reason {reason.code} speaks of {reason.nodes} nodes"


def _assert_placement(
    snapshot: Snapshot, devices: Mapping[DeviceID, Device], claim: Claim, placement: Placement
) -> None:
    what = f"{claim.name}/{placement.index} on {placement.node}"
    pool = snapshot.pools[claim.pool]
    assert takes_claims(snapshot.nodes[placement.node], pool), f"{what}: the node takes nothing new"
    by_request: dict[str, list[Device]] = {request.name: [] for request in claim.requests}
    taken = {given.request.partition("/")[0]: given.request.partition("/")[2] for given in placement.devices}
    requests = [_in_the_way(request, taken.get(request.name, ""), what) for request in claim.requests]
    for given in placement.devices:
        device = devices.get(given.id)
        assert device is not None, f"{what}: {given.id} does not exist"
        assert device.node == placement.node, f"{what}: {given.id} is on {device.node}"
        assert device.device_pool == pool.name, f"{what}: {given.id} is of pool {device.device_pool}"
        assert device.standing is Standing.OFFERED, f"{what}: {given.id} is {device.standing}"
        assert device.hardware_id == given.hardware_id, f"{what}: {given.id} has another hardware id"
        name, _, alternative = given.request.partition("/")
        assert alternative == taken[name], f"{what}: request {name} is served in two ways"
        by_request[name].append(device)
    mine = [device for device in snapshot.inventory[placement.node] if device.device_pool == pool.name]
    for request in requests:
        matching = [
            device for device in mine if device.kind == request.kind and match_all(request.selectors, device).matched
        ]
        given_here = by_request[request.name]
        assert all(device in matching for device in given_here), (
            f"{what}: a device does not match request {request.name}"
        )
        expected = len(matching) if request.all_devices else request.count
        for given in placement.devices:
            if given.request.partition("/")[0] == request.name:
                share = None if request.share is None else snapshot.shares.get(request.share.name)
                asked = None if request.share is None else unsettled(request.share.placed, share)
                got = unsettled(given.share, share)
                assert got == asked, f"{what}: {request.name} is given {given.share}, not {asked}"
                assert share is None or STRONG[share.mode] >= WEIGHT[request.isolation], (
                    f"{what}: {request.name} wants isolation {request.isolation}, {share.mode} gives less"
                )
        assert len(given_here) == expected, f"{what}: {request.name} has {len(given_here)} of {expected} devices"
        assert given_here, f"{what}: request {request.name} has no device at all"
    assert [given.request.partition("/")[0] for given in placement.devices] == [
        request.name for request in claim.requests for _ in by_request[request.name]
    ], f"{what}: devices are not in the order of the requests"
    for line in claim.affinity:
        _assert_line(snapshot, claim, line, placement.node, mine, by_request, what)


def _in_the_way(request: Request, name: str, what: str) -> Request:
    """The request as the alternative of that name wants it."""
    if not request.first_of:
        assert not name, f"{what}: {request.name} has no alternative {name}"
        return request
    found = [each for each in request.first_of if each.name == name]
    assert found, f"{what}: {request.name} has no alternative {name}"
    (one,) = found
    return replace(
        request,
        count=one.count,
        all_devices=one.all_devices,
        selectors=one.selectors,
        share=one.share,
        same_device=one.same_device,
        isolation=one.isolation,
    )


def _assert_line(
    snapshot: Snapshot,
    claim: Claim,
    line: Affinity,
    node: str,
    mine: Sequence[Device],
    given: Mapping[str, Sequence[Device]],
    what: str,
) -> None:
    pool = snapshot.pools[claim.pool]
    # Several parts of one device are one device.
    given = {name: list({device.id: device for device in given[name]}.values()) for name in line.requests}
    together = [device for name in line.requests for device in given[name]]
    if line.scope is None:
        values = [attribute_values(device, pool, line.attribute) for device in together]
        known = [value for value in values if value is not None]
        assert len(known) == len(values), f"{what}: {line.attribute} is unknown on a device"
        if line.policy is Policy.MATCH:
            assert frozenset.intersection(*known), f"{what}: {line.attribute} does not match"
        else:
            repeated = [one & other for one, other in combinations(known, 2) if one & other]
            assert not repeated, f"{what}: {line.attribute} is not distinct"
        return
    if line.policy is not Policy.REQUIRED:
        return
    wiring = wire(mine, pool, snapshot.inventory[node])[0]
    place = {device.id: at for at, device in enumerate(mine)}
    if len(line.requests) == 1:
        verdict = wiring.set_verdict(line.scope, sum(1 << place[device.id] for device in together))
        assert verdict is Verdict.MET, f"{what}: {line.scope} over {line.requests[0]} is {verdict}"
        return
    first, *others = (list(given[name]) for name in line.requests)
    for other in others:
        met = {
            (one.id, two.id)
            for one in first
            for two in other
            if wiring.met[line.scope][place[one.id]] >> place[two.id] & 1
        }
        small, large = sorted((first, other), key=len)
        assert _pairable([d.id for d in small], [d.id for d in large], met), f"{what}: {line.scope} has no pairing"


def _pairable(small: Sequence[DeviceID], large: Sequence[DeviceID], met: set[tuple[DeviceID, DeviceID]]) -> bool:
    """Whether each of `large` finds a partner it is near, every one of `small` taking floor or ceiling of the ratio.

    By augmenting paths. A pairing that leaves nobody below the floor exists exactly when both sides can be served:
    all of `large` with at most the ceiling each, and everybody of `small` with the floor.
    """
    floor, extra = divmod(len(large), len(small))

    def near(one: DeviceID, other: DeviceID) -> bool:
        return (one, other) in met or (other, one) in met

    def served(rows: Sequence[DeviceID], columns: Sequence[DeviceID]) -> bool:
        owner: dict[int, int] = {}

        def find(row: int, seen: set[int]) -> bool:
            for column in range(len(columns)):
                if column not in seen and near(rows[row], columns[column]):
                    seen.add(column)
                    if column not in owner or find(owner[column], seen):
                        owner[column] = row
                        return True
            return False

        return all(find(row, set()) for row in range(len(rows)))

    ceiling = [one for one in small for _ in range(floor + bool(extra))]
    least = [one for one in small for _ in range(floor)]
    return served(large, ceiling) and served(least, large)


def _assert_together(snapshot: Snapshot, devices: Mapping[DeviceID, Device], claim: Claim, answer: ClaimPlan) -> None:
    """What must hold of all members: enough of a gang, one domain, segments, values over all of them."""
    new = {placement.index: (placement.node, placement.devices) for placement in answer.placements}
    if not new:
        return
    lost = set(answer.conflicts)
    old = {
        one.index: (one.node, one.devices)
        for one in claim.placed
        if one.index not in lost and one.index in claim.members and one.index not in new
    }
    alive = [one for one in claim.placed if one.index in old and one.state is not ReplicaState.RELEASING]
    if claim.gang_min is not None and not alive:
        assert len(new) >= claim.gang_min, f"{claim.name}: {len(new)} members of at least {claim.gang_min} are placed"
    members = {**old, **new}
    fabric, pool = claim.fabric, snapshot.pools[claim.pool]

    def domain(index: int, level: str) -> tuple[str | None, ...]:
        node = snapshot.nodes.get(members[index][0])
        names = [one.name for one in pool.fabric]
        return tuple(node.labels.get(one.node_label) if node else None for one in pool.fabric[: names.index(level) + 1])

    def together(indexes: Sequence[int], level: str, what: str) -> None:
        domains = {domain(index, level) for index in indexes}
        assert len(domains) == 1, f"{claim.name}: {what} lie in {len(domains)} domains of level {level}"
        assert all(next(iter(domains))), f"{claim.name}: {what} are in no domain of level {level}"

    if fabric.required:
        together(list(members), fabric.required, "members")
    if fabric.segment is not None:
        for first in range(0, claim.replicas, fabric.segment.size):
            segment = [index for index in members if first <= index < first + fabric.segment.size]
            if any(index in new for index in segment):
                together(segment, fabric.segment.level, f"members {segment}")
    for line in claim.affinity:
        if not line.over_gang:
            continue
        sets = [
            attribute_values(devices[given.id], pool, line.attribute) or frozenset()
            for _, held in members.values()
            for given in held
            if given.id in devices and given.request.partition("/")[0] in line.requests
        ]
        if line.policy is Policy.MATCH:
            assert frozenset.intersection(*sets), f"{claim.name}: members share no value of {line.attribute}"
        else:
            assert all(sets), f"{claim.name}: {line.attribute} is unknown on a device"
            repeated = [one & other for one, other in combinations(sets, 2) if one & other]
            assert not repeated, f"{claim.name}: members are not distinct in {line.attribute}"


def _assert_counts(snapshot: Snapshot, plan: Plan, devices: Mapping[DeviceID, Device]) -> None:
    """Counts of every pool: each device once, as the first of missing, releasing, allocated, reserved, unhealthy, free
    that it is.
    """
    assert set(plan.pools) == set(snapshot.pools), "counts of other pools than there are"
    held: set[DeviceID] = {device for device, hold in snapshot.holds.items() if hold.kind is HoldKind.FOREIGN}
    back: set[DeviceID] = {device for device, hold in snapshot.holds.items() if hold.kind is HoldKind.RELEASING}
    owned = Counter(
        given.id
        for claim in snapshot.claims
        for replica in claim.placed
        for given in replica.devices
        if given.share is None
    )
    parts: set[tuple[DeviceID, bool]] = set()
    contested = any(count > 1 for count in owned.values())
    evicted = {(each.uid, index) for each in plan.preempted for index in each.replicas}
    for claim in snapshot.claims:
        for replica in claim.placed:
            releasing = claim.deleting or replica.state is ReplicaState.RELEASING
            releasing = releasing or (claim.uid, replica.index) in evicted
            (back if releasing else held).update(given.id for given in replica.devices)
            parts.update((given.id, releasing) for given in replica.devices if given.share is not None)
    for answer in plan.claims.values():
        held.update(given.id for placement in answer.placements for given in placement.devices)
        given_parts = (given for placement in answer.placements for given in placement.devices)
        parts.update((given.id, False) for given in given_parts if given.share is not None)
    # A device of which anybody keeps a part is not on its way back.
    back -= {device for device, releasing in parts if not releasing}
    nominated = {
        given.id for answer in plan.claims.values() for nomination in answer.nominated for given in nomination.devices
    }
    for name, pool in plan.pools.items():
        assert pool.name == name, f"the counts of {name} are filed under another name"
        if any(device.consumes for device in devices.values() if device.device_pool == name):
            assert_card_counts(snapshot, plan, name)
            continue
        for kind, counts in pool.counts.items():
            mine = [device for device in devices.values() if device.device_pool == name and device.kind == kind]
            parts = (counts.free, counts.allocated, counts.reserved, counts.releasing, counts.unhealthy, counts.missing)
            assert min(parts) >= 0, f"{name}/{kind}: a count is negative"
            assert counts.capacity == sum(parts) == len(mine), f"{name}/{kind}: counts do not add up to the capacity"
            if contested:
                continue  # Who lost a device gives its others back: without a ledger only the sum can be told.
            rest = [device for device in mine if device.standing is not Standing.MISSING]
            releasing_ = [device for device in rest if device.id in back]
            allocated = [device for device in rest if device.id in held and device.id not in back]
            unheld = [device for device in rest if device.id not in held and device.id not in back]
            free = [device for device in unheld if device.standing is Standing.OFFERED]
            # What is held for somebody is reserved, though nobody has it.
            promised = sum(device.id in nominated for device in free)
            unguarded = sum(device.standing is Standing.UNGUARDED for device in unheld)
            held_back = counts.reserved - unguarded
            if snapshot.pools[name].hold_after is None:
                assert held_back == promised, f"{name}/{kind}: {held_back} are reserved, but {promised} promised"
            else:
                assert held_back >= promised, f"{name}/{kind}: {held_back} are reserved, but {promised} promised"
            expected = (len(free) - held_back, len(allocated), len(releasing_), len(mine) - len(rest))
            told = (counts.free, counts.allocated, counts.releasing, counts.missing)
            assert told == expected, f"{name}/{kind}: free, allocated, releasing, missing are {told}, not {expected}"
