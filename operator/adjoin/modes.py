"""Devices that are in a share's mode, as the DeviceShares' statuses record it.

In come shares and the inventory; out go the devices of each share under the names that they have today. The status is
the record: a device is in it before anything is done to it, and leaves it only when it is whole again. Nothing here
decides what becomes of a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import is_
from types import MappingProxyType

from adjoin.api.quantity import milliseconds
from adjoin.api.share import PlacementState
from adjoin.environment import ShareFacts
from adjoin.facts import Raw, moment
from adjoin.inventory import Inventory, device_key
from adjoin_allocator.model import DeviceID, Mode, PlacedDevice, Slice


@dataclass(frozen=True, slots=True, eq=False)
class InMode:
    """One device in a share's mode.

    Attributes:
        share: The DeviceShare.
        device: Its name when it was brought into the mode.
        today: Its name today.
        hardware_id: Its hardware id, or "".
        node: Its node.
        state: Where it stands.
        since: Since when it is in the mode, or None where that cannot be read.
        idle_since: Since when nobody holds any of it, or None.
        slices: Partitions that exist on it.
        entry: The entry of the status.
    """

    share: ShareFacts
    device: DeviceID
    today: DeviceID
    hardware_id: str
    node: str
    state: PlacementState
    since: float | None
    idle_since: float | None
    slices: tuple[Slice, ...]
    entry: Raw

    @property
    def key(self) -> str:
        """See `device_key`."""
        return device_key(self.hardware_id, self.device)

    @property
    def bound_until(self) -> float | None:
        """Until when it serves this share alone, or None."""
        dwell = milliseconds(self.share.share.spec.dwell) / 1000
        return self.since + dwell if self.since is not None and dwell > 0 else None

    @property
    def mode(self) -> Mode:
        """The same in the allocator's words."""
        changing = self.state is not PlacementState.READY
        return Mode(self.share.meta.name, self.bound_until, self.slices, changing)


@dataclass(frozen=True, slots=True, eq=False)
class Modes:
    """All devices that are in some share's mode.

    Attributes:
        by_share: By UID of the share, in the order of its status.
        by_device: By today's name, the older share's first: more than one only if somebody else wrote a status.
        of_allocator: In the allocator's words.
    """

    by_share: Mapping[str, tuple[InMode, ...]] = field(default_factory=dict)
    by_device: Mapping[DeviceID, tuple[InMode, ...]] = field(default_factory=dict)
    of_allocator: Mapping[DeviceID, Mode] = field(default_factory=dict)


NO_MODES = Modes()


class ModesReader:
    """Reads successive views; the answer is the same object while nothing about it changed."""

    def __init__(self) -> None:
        self._shares: Mapping[str, ShareFacts] = {}
        self._surroundings: tuple[object, ...] = ()
        self._modes = NO_MODES

    def read(self, shares: Mapping[str, ShareFacts], inventory: Inventory) -> Modes:
        """Devices in modes, by share and by device. O(shares and their nodes), and O(devices in modes) after a
        change."""
        if not any(share.status.get("placements") for share in shares.values()):
            self._modes = NO_MODES
            return NO_MODES
        there = self._around(inventory)
        same = len(there) == len(self._surroundings) and all(map(is_, there, self._surroundings))
        if self._modes is NO_MODES or shares is not self._shares or not same:
            self._shares, self._modes = shares, _read(shares, inventory)
            self._surroundings = self._around(inventory)
        return self._modes

    def _around(self, inventory: Inventory) -> tuple[object, ...]:
        nodes = sorted({each.node for group in self._modes.by_share.values() for each in group})
        return tuple(inventory.devices.get(node) for node in nodes)


def _read(shares: Mapping[str, ShareFacts], inventory: Inventory) -> Modes:
    by_share: dict[str, tuple[InMode, ...]] = {}
    by_device: dict[DeviceID, list[InMode]] = {}
    ordered = sorted(shares.values(), key=lambda share: (share.meta.created or 0.0, share.meta.name, share.meta.uid))
    for share in ordered:
        found: dict[str, InMode] = {}
        for entry in share.status.get("placements") or ():
            each = _in_mode(share, entry, inventory)
            found.setdefault(each.key, each)
        if found:
            by_share[share.meta.uid] = tuple(found.values())
        for each in found.values():
            by_device.setdefault(each.today, []).append(each)
    return Modes(
        MappingProxyType(by_share),
        MappingProxyType({device: tuple(group) for device, group in by_device.items()}),
        MappingProxyType({device: group[0].mode for device, group in by_device.items()}),
    )


_STATES = frozenset(PlacementState)


def _in_mode(share: ShareFacts, entry: Raw, inventory: Inventory) -> InMode:
    device = DeviceID(str(entry.get("driver") or ""), str(entry.get("pool") or ""), str(entry.get("device") or ""))
    hardware, node, state = str(entry.get("id") or ""), str(entry.get("node") or device.pool), entry.get("state")
    return InMode(
        share=share,
        device=device,
        today=_today(node, device, hardware, inventory),
        hardware_id=hardware,
        node=node,
        state=PlacementState(state) if state in _STATES else PlacementState.READY,
        since=moment(entry.get("since")),
        idle_since=moment(entry.get("idleSince")),
        slices=tuple(
            Slice(str(each.get("profile") or ""), int(each.get("start") or 0), int(each.get("size") or 0))
            for each in entry.get("partitions") or ()
        ),
        entry=entry,
    )


def _today(node: str, device: DeviceID, hardware: str, inventory: Inventory) -> DeviceID:
    """The device's name today; while it is not there, the one that it had."""
    there = inventory.devices.get(node, ())
    if hardware:
        known = next((each.id for each in there if inventory.is_hardware(each, hardware)), None)
        if known is not None:
            return known
    return inventory.current(node, PlacedDevice("", device, hardware))
