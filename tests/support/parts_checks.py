"""Proof that no part of a device or host is given twice, without trust in the allocator's arithmetic."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, replace
from fractions import Fraction
from math import ceil

from tests.support.partition_checks import can_be, flaw, table_of

from adjoin_allocator import Claim, Device, DeviceID, Isolation, PlacedDevice, Plan, Share, ShareMode, Snapshot
from adjoin_allocator.model import PlacedShare
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
    """No byte, thousandth, slot, partition or function of a card is given twice, and nobody shares what is held
    whole.
    """
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    whole: set[DeviceID] = {device for device, hold in snapshot.holds.items() if hold.lent is None}
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
                    assert devices[given.id].lent is None, f"{given.id} goes whole to {claim.name}, it is lent"
                    whole.add(given.id)
                else:
                    parts[given.id].append(given)
                    fresh.add(given.id)
                    _assert_settled(snapshot, claim, given.share)
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
    given = [each.share for each in held if each.share]
    amounts = share.mode in (ShareMode.FRACTIONAL, ShareMode.MPS)
    assert amounts or device.lent is None, f"{device.id} is lent and given in mode {share.mode}"
    if share.mode in (ShareMode.FRACTIONAL, ShareMode.MPS):
        used, room = sum(each.memory_bytes or 0 for each in given), shareable(share, device)
        if device.lent is not None:
            room = max(0, room - device.lent.memory)
            assert device.lent.parts is None or len(given) <= device.lent.parts, f"{device.id}: too many parts"
        assert used <= room, f"{device.id}: {used} bytes of {room} are given"
        compute = sum(each.compute_milli or 0 for each in given)
        assert compute <= 1000, f"{device.id}: {compute}m are given"
        if share.mode is ShareMode.MPS and share.max_clients is not None:
            assert len(given) <= share.max_clients, f"{device.id}: {len(given)} clients of {share.max_clients}"
    elif share.mode is ShareMode.TIME_SLICED:
        slots = sum(each.slots or 0 for each in given)
        assert slots <= share.slots, f"{device.id}: {slots} of {share.slots} slots are given"
    elif share.mode is ShareMode.VIRTUAL_FUNCTIONS:
        functions = [each.vf for each in given]
        assert len(set(functions)) == len(functions), f"{device.id}: a function is given twice: {functions}"
        assert len(functions) <= share.functions, f"{device.id}: {len(functions)} of {share.functions} functions"
    else:
        _assert_partitions(share, device, given)


def _assert_partitions(share: Share, device: Device, given: list[PlacedShare]) -> None:
    """All partitions can be beside each other, and within the share's layout, if it has one."""
    table = table_of(share, device)
    assert table is not None, f"{device.id}: partitions of a product without a table"
    slices = [(each.profile or "", -1 if each.start is None else each.start) for each in given]
    assert not flaw(table, slices), f"{device.id}: {flaw(table, slices)}: {sorted(slices)}"
    for name, _ in slices:
        assert name in (*share.layout, *share.profiles), f"{device.id}: {name} is no profile of {share.name}"
    if share.layout:
        assert can_be(share, table, slices, ()), f"{device.id}: {sorted(slices)} is not within {dict(share.layout)}"


WEIGHT = {Isolation.NONE: 0, Isolation.COOPERATIVE: 1, Isolation.HARD: 2}
STRONG = {
    ShareMode.TIME_SLICED: 0,
    ShareMode.FRACTIONAL: 1,
    ShareMode.MPS: 1,
    ShareMode.PARTITIONED: 2,
    ShareMode.VIRTUAL_FUNCTIONS: 2,
}
"""How well a mode keeps its users apart."""

_TOLD = {
    ShareMode.TIME_SLICED: ("slots",),
    ShareMode.VIRTUAL_FUNCTIONS: ("vf",),
    ShareMode.PARTITIONED: ("profile", "start"),
}


def _assert_settled(snapshot: Snapshot, claim: Claim, given: PlacedShare) -> None:
    """What is given says what is said of parts of its mode, and nothing else."""
    share = snapshot.shares[given.name]
    told = {field.name for field in fields(given) if field.name != "name" and getattr(given, field.name) is not None}
    if share.mode in _TOLD:
        assert told == set(_TOLD[share.mode]), f"{claim.name}: a part of mode {share.mode} tells {sorted(told)}"
    else:
        assert told, f"{claim.name}: a part of {share.name} is a part of nothing"
        assert told <= {"memory_bytes", "compute_milli"}, f"{claim.name}: {share.mode} tells {sorted(told)}"
    if share.mode is ShareMode.VIRTUAL_FUNCTIONS:
        assert given.vf is not None
        assert 0 <= given.vf < share.functions, f"{claim.name}: function {given.vf} of {share.functions}"


def unsettled(given: PlacedShare | None, share: Share | None) -> PlacedShare | None:
    """The part without what is decided at the end: which partition or function, and how many slots none are."""
    if given is None:
        return None
    slots = None if share is not None and share.mode is ShareMode.TIME_SLICED and given.slots == 1 else given.slots
    return replace(given, slots=slots, start=None, vf=None)
