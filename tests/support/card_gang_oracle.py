"""How a gang whose members hold parts of cards should be spread, by trying everything: read, not fast.

In comes a snapshot with one gang of which nothing is placed yet; out comes what a best spread reaches. Amounts are
added up anew, member by member; it shares nothing with the allocator but the model and the wiring tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tests.support.gang_oracle import Best, allowed, case_of, reach
from tests.support.oracle import Bench, takes_claims
from tests.support.parts_checks import shareable

from adjoin_allocator import Claim, Device, DeviceID, Policy, Request, Snapshot, natural_key
from adjoin_allocator.selectors import match_all
from adjoin_allocator.topology import attribute_values, wire


@dataclass(frozen=True)
class Way:
    """Members on a node: how many, whole cards that they divide, by share, and their values over the gang."""

    number: int
    divided: tuple[tuple[str, int], ...]
    values: tuple[frozenset[object], ...]


def best(snapshot: Snapshot, claim: Claim) -> Best | None:
    """The best that any way to place the gang reaches, or None when it cannot be placed."""
    names = sorted(snapshot.inventory, key=natural_key)
    ways = [list(_ways(snapshot, claim, name)) for name in names]
    case = case_of(snapshot, claim, names, [max(way.number for way in here) for here in ways])
    found = []
    for chosen in product(*ways):
        counts = [way.number for way in chosen]
        if not max(1, case.least) <= sum(counts) <= case.number or not allowed(case, counts):
            continue
        values = [value for way in chosen for value in way.values]
        if len(frozenset().union(*values)) == sum(map(len, values)) and _within(snapshot, chosen):
            found.append(reach(case, counts))
    return min(found, key=lambda one: (-one.members, -one.level, one.preferred, one.left, one.below), default=None)


def _within(snapshot: Snapshot, chosen: Sequence[Way]) -> bool:
    """Whether no share divides more cards than it may."""
    divided: dict[str, int] = {}
    for way in chosen:
        for share, number in way.divided:
            divided[share] = divided.get(share, 0) + number
    already: dict[str, set[DeviceID]] = {}
    for claim in snapshot.claims:
        for replica in claim.placed:
            for device in replica.devices:
                if device.share is not None:
                    already.setdefault(device.share.name, set()).add(device.id)
    for name, number in divided.items():
        limit = snapshot.shares[name].max_devices
        if limit is not None and number and len(already.get(name, ())) + number > limit:
            return False
    return True


def _ways(snapshot: Snapshot, claim: Claim, node: str) -> Iterator[Way]:
    """Every number of members on a node with what it takes; the same twice is one."""
    pool = snapshot.pools[claim.pool]
    devices = [device for device in snapshot.inventory[node] if device.device_pool == pool.name]
    wiring = wire(devices, pool, snapshot.inventory[node])[0]
    lines = [line for line in claim.affinity if line.over_gang and line.policy is Policy.DISTINCT]
    within = [replace(line, over_gang=False) for line in claim.affinity]
    at_start = _held(snapshot, devices)
    names = [request.name for request in claim.requests]
    found: set[Way] = set()

    def members(requests: Sequence[Request]) -> list[tuple[tuple[int, ...], ...]]:
        cards = [replace(one, count=1) if one.same_device else one for one in requests]
        # Who holds what is looked at below.
        return list(Bench(pool, devices, wiring, set()).choices(cards, within))

    choices = members(claim.requests) if takes_claims(snapshot.nodes[node], pool) else []

    def fill(
        first: int, number: int, held: Mapping[int, tuple[str, int, int]], values: tuple[frozenset[object], ...]
    ) -> None:
        divided: dict[str, int] = {}
        for at, (share, _, _) in held.items():
            if share and at not in at_start:
                divided[share] = divided.get(share, 0) + 1
        found.add(Way(number, tuple(sorted(divided.items())), tuple(sorted(values, key=str))))
        if number == claim.replicas:
            return
        for at in range(first, len(choices)):
            after = _give(snapshot, claim, devices, held, choices[at])
            if after is not None:
                more = tuple(
                    frozenset().union(
                        *(
                            attribute_values(devices[one], pool, line.attribute) or frozenset({("none", node, one)})
                            for name in line.requests
                            for one in choices[at][names.index(name)]
                        )
                    )
                    for line in lines
                )
                if lines and any(
                    attribute_values(devices[one], pool, line.attribute) is None
                    for line in lines
                    for name in line.requests
                    for one in choices[at][names.index(name)]
                ):
                    continue
                fill(at, number + 1, after, (*values, *more))

    fill(0, 0, at_start, ())
    yield from found


def _held(snapshot: Snapshot, devices: Sequence[Device]) -> dict[int, tuple[str, int, int]]:
    """By device who has it: a share with bytes and thousandths in use, or nobody's share when it is held whole."""
    place = {device.id: at for at, device in enumerate(devices)}
    held: dict[int, tuple[str, int, int]] = {place[device]: ("", 0, 0) for device in snapshot.holds if device in place}
    for claim in snapshot.claims:
        for replica in claim.placed:
            for device in replica.devices:
                at = place.get(device.id)
                if at is None:
                    continue
                share = device.share
                _, used, milli = held.get(at, ("", 0, 0))
                held[at] = (
                    ("", 0, 0)
                    if share is None
                    else (share.name, used + (share.memory_bytes or 0), milli + (share.compute_milli or 0))
                )
    return held


def _give(
    snapshot: Snapshot,
    claim: Claim,
    devices: Sequence[Device],
    held: Mapping[int, tuple[str, int, int]],
    sets: Sequence[Sequence[int]],
) -> dict[int, tuple[str, int, int]] | None:
    """Who has what when one member more has these devices; None when it cannot."""
    after = dict(held)
    for request, chosen in zip(claim.requests, sets, strict=True):
        for at in chosen:
            if request.share is None:
                if at in after:
                    return None
                after[at] = ("", 0, 0)
                continue
            share = snapshot.shares[request.share.name]
            times = request.count if request.same_device else 1
            name, used, milli = after.get(at, (share.name, 0, 0))
            used += (request.share.memory_bytes or 0) * times
            milli += (request.share.compute_milli or 0) * times
            selected = match_all(share.selectors, devices[at]).matched
            if name != share.name or not selected or used > shareable(share, devices[at]) or milli > 1000:
                return None
            after[at] = (name, used, milli)
    return after
