"""Whether claims for whole devices and parts of every mode fit, by trying everything: read, not fast.

It reads the rules anew and shares nothing with the allocator but the model and the node's wiring tables. Good for about
four cards. Who holds what is a mapping of devices to parts, or to None where somebody has the whole; a part whose place
is open (`start` and `vf` are None) may go to any place that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from tests.support.oracle import Bench, takes_claims
from tests.support.partition_checks import can_be, table_of
from tests.support.parts_checks import STRONG, WEIGHT, shareable

from adjoin_allocator import Claim, Device, DeviceID, Request, Share, ShareMode, Snapshot, natural_key
from adjoin_allocator.model import PlacedShare
from adjoin_allocator.selectors import match_all
from adjoin_allocator.topology import wire

Held = Mapping[DeviceID, tuple[PlacedShare, ...] | None]


def held(snapshot: Snapshot) -> Held:
    """Who holds what by the statuses of the claims."""
    found: dict[DeviceID, tuple[PlacedShare, ...] | None] = {
        device: None for device, hold in snapshot.holds.items() if hold.lent is None
    }
    for claim in snapshot.claims:
        for replica in claim.placed:
            for device in replica.devices:
                if device.share is None:
                    found[device.id] = None
                else:
                    found[device.id] = (*(found.get(device.id) or ()), device.share)
    return found


def ways(claim: Claim) -> list[tuple[tuple[Request, ...], tuple[str, ...]]]:
    """All ways of serving a claim, the most wanted first, each with what its requests are called then."""
    found = []
    for chosen in product(*(request.first_of or (None,) for request in claim.requests)):
        requests = [
            request
            if each is None
            else replace(
                request,
                count=each.count,
                all_devices=each.all_devices,
                selectors=each.selectors,
                share=each.share,
                same_device=each.same_device,
                isolation=each.isolation,
                first_of=(),
            )
            for request, each in zip(claim.requests, chosen, strict=True)
        ]
        names = [
            request.name if each is None else f"{request.name}/{each.name}"
            for request, each in zip(claim.requests, chosen, strict=True)
        ]
        found.append((tuple(requests), tuple(names)))
    return found


def first_way(snapshot: Snapshot, claim: Claim) -> tuple[str, ...] | None:
    """What the requests of the first way are called that fits beside what is held; None when none does."""
    there = held(snapshot)
    for requests, names in ways(claim):
        if next(places(snapshot, there, claim, requests), None) is not None:
            return names
    return None


def served(snapshot: Snapshot, claims: Sequence[Claim]) -> dict[str, tuple[str, ...]]:
    """Of claims with one replica, in the order in which they are served, those that are placed, by name, and what their
    requests are called: each that fits beside what is held and all before it, wherever these are, in its first way that
    does.
    """
    found: list[tuple[Claim, tuple[Request, ...]]] = []
    names = {}
    for claim in claims:
        for requests, called in ways(claim):
            if _all_fit(snapshot, [*found, (claim, requests)]):
                found.append((claim, requests))
                names[claim.name] = called
                break
    return names


def gang(snapshot: Snapshot, claim: Claim) -> tuple[int, ...]:
    """How many members of a gang without fabric fit, and how many of these are served in each of its ways, the best
    first, where as many as can be are served in the best, then in the second, …; nothing when fewer fit than it needs.
    """
    choices = ways(claim)
    known: dict[object, tuple[int, ...]] = {}

    def best(state: Held, wanted: int) -> tuple[int, ...]:
        none = (0,) * (len(choices) + 1)
        if not wanted:
            return none
        key = (wanted, _name(state))
        if key not in known:
            found = none
            for at, (requests, _) in enumerate(choices):
                for after in places(snapshot, state, claim, requests):
                    rest = best(after, wanted - 1)
                    one = tuple(number + (place in (0, at + 1)) for place, number in enumerate(rest))
                    found = max(found, one)
            known[key] = found
        return known[key]

    found = best(held(snapshot), claim.replicas)
    return found if found[0] >= (claim.gang_min or 1) else (0,) * len(found)


def _name(state: Held) -> object:
    return frozenset(
        (device, None if parts is None else frozenset(Counter(parts).items())) for device, parts in state.items()
    )


def _all_fit(snapshot: Snapshot, claims: Sequence[tuple[Claim, tuple[Request, ...]]]) -> bool:
    dead: set[object] = set()
    order = sorted(claims, key=lambda each: -_weight(each[1]))

    def place(at: int, state: Held, hosts: Counter[tuple[str, str]]) -> bool:
        if at == len(order):
            return True
        key = (at, _name(state), frozenset(hosts.items()))
        if key in dead:
            return False
        claim, requests = order[at]
        for node, after in seats(snapshot, state, claim, requests):
            more = hosts.copy()
            more[node, "cpu"] += claim.host.cpu_milli
            more[node, "memory"] += claim.host.memory_bytes
            if _hosted(snapshot, node, claim, more) and place(at + 1, after, more):
                return True
        dead.add(key)
        return False

    return place(0, held(snapshot), Counter())


def _hosted(snapshot: Snapshot, name: str, claim: Claim, used: Mapping[tuple[str, str], int]) -> bool:
    """Whether a node has what pods need that are there now, of what a claim asks for."""
    node = snapshot.nodes[name]
    for asked, there, before, what in (
        (claim.host.cpu_milli, node.cpu_milli, node.cpu_used_milli, "cpu"),
        (claim.host.memory_bytes, node.memory_bytes, node.memory_used_bytes, "memory"),
    ):
        if asked and there is not None and before + used[name, what] > there:
            return False
    return True


def _weight(requests: Sequence[Request]) -> int:
    return sum(1000 * one.count if one.share is None else one.count for one in requests)


def places(snapshot: Snapshot, state: Held, claim: Claim, requests: Sequence[Request]) -> Iterator[Held]:
    """Who holds what when one replica more has its devices, in every way that it could."""
    return (after for _, after in seats(snapshot, state, claim, requests))


def seats(snapshot: Snapshot, state: Held, claim: Claim, requests: Sequence[Request]) -> Iterator[tuple[str, Held]]:
    """The same, each with the node where these devices are."""
    for request in requests:
        share = None if request.share is None else snapshot.shares.get(request.share.name)
        if request.share is not None and share is None:
            return
        if share is not None and (STRONG[share.mode] < WEIGHT[request.isolation] or not accepted(snapshot, share)):
            return
    pool = snapshot.pools[claim.pool]
    # Parts of one device are one choice of a device.
    asked = [replace(each, count=1) if each.same_device and each.share else each for each in requests]
    for node in sorted(snapshot.inventory, key=natural_key):
        devices = [device for device in snapshot.inventory[node] if device.device_pool == pool.name]
        if not devices or not takes_claims(snapshot.nodes[node], pool):
            continue
        wiring = wire(devices, pool, snapshot.inventory[node])[0]
        for sets in Bench(pool, devices, wiring, set()).choices(asked, claim.affinity):
            after: Held | None = dict(state)
            for request, chosen in zip(requests, sets, strict=True):
                for at in chosen:
                    after = None if after is None else _taken(snapshot, after, request, devices[at])
            if after is not None and _within(snapshot, after, requests):
                yield node, after


def _taken(snapshot: Snapshot, state: Held, request: Request, device: Device) -> Held | None:
    if request.share is None:
        return None if device.id in state or device.lent is not None else {**state, device.id: None}
    there = state.get(device.id, ())
    if there is None:
        return None
    parts = (*there, *[request.share.placed] * (request.count if request.same_device else 1))
    if any(part.name != request.share.name for part in parts):
        return None
    share = snapshot.shares[request.share.name]
    return {**state, device.id: parts} if together(share, device, parts) else None


def _within(snapshot: Snapshot, state: Held, requests: Sequence[Request]) -> bool:
    split = Counter(parts[0].name for parts in state.values() if parts)
    for request in requests:
        limit = None if request.share is None else snapshot.shares[request.share.name].max_devices
        if limit is not None and request.share is not None and split[request.share.name] > limit:
            return False
    return True


def together(share: Share, device: Device, parts: Sequence[PlacedShare]) -> bool:
    """Whether a share may give all these parts of a device."""
    if share.kind != device.kind or not match_all(share.selectors, device).matched:
        return False
    if device.lent is not None:
        # Others consume a part of it: beside them there is room for amounts alone.
        few = device.lent.parts is not None and len(parts) > device.lent.parts
        if few or share.mode not in (ShareMode.FRACTIONAL, ShareMode.MPS):
            return False
    match share.mode:
        case ShareMode.TIME_SLICED:
            return sum(each.slots or 1 for each in parts) <= share.slots
        case ShareMode.VIRTUAL_FUNCTIONS:
            return len(parts) <= share.functions
        case ShareMode.PARTITIONED:
            table = table_of(share, device)
            if table is None:
                return False
            fixed = [(each.profile or "", each.start) for each in parts if each.start is not None]
            return can_be(share, table, fixed, [each.profile or "" for each in parts if each.start is None])
        case _:
            clients = share.max_clients is not None and len(parts) > share.max_clients
            memory = sum(each.memory_bytes or 0 for each in parts)
            compute = sum(each.compute_milli or 0 for each in parts)
            theirs = 0 if device.lent is None else device.lent.memory
            return not clients and memory <= max(0, shareable(share, device) - theirs) and compute <= 1000


def accepted(snapshot: Snapshot, share: Share) -> bool:
    """Whether every device that a share selects, up to as many as it may split, can be split as it says."""
    if share.mode is not ShareMode.PARTITIONED:
        return True
    mine = [
        device
        for node in sorted(snapshot.inventory, key=natural_key)
        for device in snapshot.inventory[node]
        if device.kind == share.kind and match_all(share.selectors, device).matched
    ]
    counted = mine[: share.max_devices]
    tables = [table_of(share, device) for device in counted]
    if any(table is None for table in tables):
        return False
    known = [set(table.rows) for table in tables if table is not None]
    if share.layout:
        empty = replace(share, max_devices=None)
        return all(can_be(empty, table, (), share.layout) for table in tables if table is not None)
    names = set(share.profiles)
    return not counted or (all(rows & names for rows in known) and names <= set().union(*known))


def overdrawn(snapshot: Snapshot) -> set[str]:
    """Shares of which more is in use than they give."""
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    split: Counter[str] = Counter()
    found = set()
    for device, parts in held(snapshot).items():
        share = snapshot.shares.get(parts[0].name) if parts else None
        if share is None or not parts:
            continue
        split[share.name] += 1
        if device in devices and share.mode is not ShareMode.PARTITIONED:
            anywhere = replace(share, selectors=())
            # A card's compute is not the share's to give less of.
            held_parts = [replace(each, compute_milli=None) for each in parts]
            if not together(anywhere, devices[device], held_parts):
                found.add(share.name)
        if share.max_devices is not None and split[share.name] > share.max_devices:
            found.add(share.name)
    return found


def stuck(snapshot: Snapshot) -> set[str]:
    """Shares of which devices that they select keep another layout because of what is in use."""
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    found = set()
    for device, parts in held(snapshot).items():
        share = snapshot.shares.get(parts[0].name) if parts else None
        if share is None or not parts or not share.layout or device not in devices or not accepted(snapshot, share):
            continue
        if match_all(share.selectors, devices[device]).matched:
            table = table_of(share, devices[device])
            busy = [(each.profile or "", each.start or 0) for each in parts]
            if table is not None and not can_be(share, table, busy, ()):
                found.add(share.name)
    return found
