"""Proof that no part of a device or host is given twice, without trust in the allocator's arithmetic."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from math import ceil

from adjoin_allocator import Claim, Device, DeviceID, PlacedDevice, Plan, Share, Snapshot
from adjoin_allocator.selectors import match_all


def card_bytes(device: Device) -> int:
    """What the driver says of its memory."""
    found = [amount for name, amount in device.capacity.items() if name.endswith("/memory")]
    return int(Fraction(found[0].unscaled) * Fraction(10) ** found[0].scale) if found else 0


def shareable(share: Share, device: Device) -> int:
    """What a share may give of a device."""
    total = card_bytes(device)
    kept = max(share.min_reserve_bytes, ceil(Fraction(total * share.reserve_per_million, 1_000_000)))
    return max(0, total - kept)


def assert_parts(snapshot: Snapshot, plan: Plan) -> None:
    """No byte, no thousandth of a card and  is given twice, and nobody shares what is held whole."""
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    whole: set[DeviceID] = set(snapshot.holds)
    parts: dict[DeviceID, list[PlacedDevice]] = defaultdict(list)
    fresh: set[DeviceID] = set()
    for claim in snapshot.claims:
        for replica in claim.placed:
            for held in replica.devices:
                if held.share is None:
                    whole.add(held.id)
                else:
                    parts[held.id].append(held)
    for claim in snapshot.claims:
        answer = plan.claims.get(claim.uid)
        for placement in answer.placements if answer else ():
            for given in placement.devices:
                if given.share is None:
                    assert given.id not in parts, f"{given.id} goes whole to {claim.name}, and others have parts of it"
                    whole.add(given.id)
                else:
                    parts[given.id].append(given)
                    fresh.add(given.id)
            _assert_spread(claim, placement.devices)
    split: dict[str, int] = defaultdict(int)
    for device, held_parts in parts.items():
        for each in held_parts:
            assert each.share is not None
        split[held_parts[0].share.name if held_parts[0].share else ""] += 1
        if device in fresh:
            assert device not in whole, f"a part of {device} is given, which somebody has whole"
            _assert_room(snapshot, devices[device], held_parts)
    for name, number in split.items():
        share = snapshot.shares.get(name)
        given_now = any(part.share and part.share.name == name for device in fresh for part in parts[device])
        if share is not None and share.max_devices is not None and given_now:
            assert number <= share.max_devices, f"{number} devices are split as {name}, at most {share.max_devices} may"


def _assert_spread(claim: Claim, given: tuple[PlacedDevice, ...]) -> None:
    for request in claim.requests:
        mine = [each for each in given if each.request.partition("/")[0] == request.name and each.share is not None]
        together = request.same_device or any(each.same_device for each in request.first_of)
        if mine and not together:
            assert len({each.id for each in mine}) == len(mine), f"{claim.name}: two parts on one device"


def _assert_room(snapshot: Snapshot, device: Device, held: list[PlacedDevice]) -> None:
    names = {each.share.name for each in held if each.share}
    assert len(names) == 1, f"{device.id} is split by {names}"
    share = snapshot.shares[names.pop()]
    assert share.kind == device.kind, f"{share.name} does not split {device.kind}"
    assert match_all(share.selectors, device).matched, f"{share.name} does not split {device.id}"
    used = sum(each.share.memory_bytes or 0 for each in held if each.share)
    assert used <= shareable(share, device), f"{device.id}: {used} bytes of {shareable(share, device)} are given"
    compute = sum(each.share.compute_milli or 0 for each in held if each.share)
    assert compute <= 1000, f"{device.id}: {compute}m are given"
