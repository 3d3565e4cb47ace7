"""The inventory as a value: devices by node, pools, and what there is to say about each pool.

Made by `builder`; read by the snapshot (devices, nodes, pools), by status and the command line (reports) and by
delivery (devices).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from adjoin.api.pool_status import PoolCondition
from adjoin.facts import Binding
from adjoin.inventory.driver_pools import DriverPool, Key, hardware_keys
from adjoin.inventory.held import Found
from adjoin.inventory.identity import spelled
from adjoin.inventory.node_devices import COUNTED, Overlap
from adjoin.inventory.pools import address_of
from adjoin.inventory.silence import Silence
from adjoin.inventory.taints import Tainted
from adjoin.inventory.tenancy import TenancyRules
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Counted, Device, DeviceID, Node, PlacedDevice, Pool
from adjoin_allocator.terms import Standing

NAMED = 8
"""How many devices a message names before it only counts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition without its times. `holds` is its status."""

    type: PoolCondition
    holds: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PoolReport:
    """What there is to say about one pool, apart from its devices.

    Attributes:
        broken: Why its spec cannot be used, or "".
        deleting: It has a deletionTimestamp.
        guard_unavailable: It wants a guard that this cluster does not serve.
        withheld: Driver pools on which nothing new may be placed, each with the reason.
        overlaps: Devices that it selects and does not have.
        remote: How many devices it selects that are not local to one node.
        parts: How many parts of devices (partitions) it selects.
        beyond: How many devices nodes count beyond those that are offered.
        tainted: Its devices with taints that mean something, by node.
    """

    broken: str = ""
    deleting: bool = False
    guard_unavailable: bool = False
    withheld: tuple[str, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    remote: int = 0
    parts: int = 0
    beyond: int = 0
    tainted: tuple[Tainted, ...] = ()

    @property
    def unavailable(self) -> str:
        """Why nothing new is placed in the pool at all, or ""."""
        if self.broken:
            return self.broken
        if self.deleting:
            return "the pool is being deleted"
        return GUARD_MESSAGE if self.guard_unavailable else ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Its conditions, in a fixed order; abnormal ones only while they hold."""
        notes = list(self.withheld)
        if self.remote:
            notes.append(f"{_count(self.remote, 'device')} not local to one node and therefore not offered")
        if self.parts:
            notes.append(
                f"{_count(self.parts, 'part')} of a larger device of the same name and not offered: what selects parts "
                "alone has them"
            )
        if self.beyond:
            notes.append(f"{_count(self.beyond, 'device')} counted beyond {COUNTED} a node and not offered")
        found = []
        if self.unavailable:
            reason = "InvalidSpec" if self.broken else "Deleting" if self.deleting else "GuardUnavailable"
            found.append(Finding(PoolCondition.READY, False, reason, "; ".join([self.unavailable, *notes])))
        elif self.withheld:
            found.append(Finding(PoolCondition.READY, False, "DriverUnavailable", "; ".join(notes)))
        else:
            found.append(Finding(PoolCondition.READY, True, "InventoryRead", "; ".join(notes)))
        if self.overlaps:
            found.append(Finding(PoolCondition.OVERLAP, True, "DevicesTaken", _overlap_message(self.overlaps)))
        if self.guard_unavailable:
            found.append(Finding(PoolCondition.GUARD_UNAVAILABLE, True, "NotServed", GUARD_MESSAGE))
        return tuple(found)


GUARD_MESSAGE = (
    "this cluster serves no DeviceTaintRules, so nothing keeps others off the devices; "
    "set delivery.guard: None to go without"
)


def _quantity(amount: Fraction) -> Quantity:
    """The amount; what does not end in tenths is rounded up to billionths."""
    return Quantity(ceil(amount * 10**9), -9)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun} is" if number == 1 else f"{number} {noun}s are"


def _overlap_message(overlaps: tuple[Overlap, ...]) -> str:
    owners: dict[str, list[Overlap]] = {}
    for overlap in overlaps:
        own = overlap.owner == overlap.pool
        owners.setdefault(f"{overlap.owner_name} already" if own else f"of pool {overlap.owner}", []).append(overlap)
    parts = []
    for owner, taken in owners.items():
        names = ", ".join(str(overlap.device) for overlap in taken[:NAMED])
        more = f" and {len(taken) - NAMED} more" if len(taken) > NAMED else ""
        parts.append(f"{_count(len(taken), 'device')} {owner}: {names}{more}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """Which devices there are. Mappings are shared with other inventories and never change.

    Attributes:
        nodes: By name, every node that `devices` names.
        devices: By node the devices of all pools in stable order, held ones that are absent included.
        pools: By name, as the allocator sees them.
        reports: By name, what else there is to say about them.
        default_pool: Name of the pool for claims that name none, or "".
        defaults: Names of all pools that are annotated as default, the one that counts first.
        tenancies: By pool who may claim, as which tenant.
        parameters: By pool what claims may choose for its hooks: values by name.
        silences: By pool its drivers that publish nothing any more.
    """

    nodes: Mapping[str, Node]
    devices: Mapping[str, tuple[Device, ...]]
    pools: Mapping[str, Pool]
    reports: Mapping[str, PoolReport]
    defaults: tuple[str, ...]
    tenancies: Mapping[str, TenancyRules]
    parameters: Mapping[str, Mapping[str, tuple[str, ...]]]
    _found: Mapping[str, Found]
    _driver_pools: Mapping[Key, DriverPool]
    silences: Mapping[str, tuple[Silence, ...]] = field(default_factory=dict)

    @property
    def default_pool(self) -> str:
        """Name of the pool for claims that name none: the oldest of those annotated as default; "" without any."""
        return self.defaults[0] if self.defaults else ""

    def names_as(self, other: Inventory) -> bool:
        """Whether `current` of both says the same, as far as that is known without asking."""
        return self._found is other._found

    def current(self, node: str, placed: PlacedDevice) -> DeviceID:
        """The triple of a held device today: its hardware may have another name than in the status."""
        found = self._found.get(node)
        return found.moved.get((placed.id, placed.hardware_id), placed.id) if found is not None else placed.id

    def nameless(self, pool: str) -> frozenset[DeviceID]:
        """Devices that claims hold under a name that the pool has no more. O(nodes with devices to be found again)."""
        return frozenset(id_ for found in self._found.values() for named, id_ in found.nameless if named == pool)

    def device(self, node: str, id_: DeviceID) -> Device | None:
        """The device of that triple on that node."""
        return next((device for device in self.devices.get(node, ()) if device.id == id_), None)

    def find(self, id_: DeviceID) -> Device | None:
        """The device of that triple that a driver publishes, wherever it is. O(nodes of the driver's pool)."""
        driver_pool = self._driver_pools.get((id_.driver, id_.pool))
        nodes = driver_pool.devices if driver_pool is not None else ()
        return next((device for node in nodes if (device := self.device(node, id_)) is not None), None)

    def address(self, device: Device) -> str:
        """The PCI address that a device publishes, in one spelling, unless another device of its node has the same
        (as the parts of a card do); else ""."""
        pool = self.pools.get(device.device_pool)
        own = address_of(device, pool)
        if not own:
            return ""
        there = (each for each in self.devices.get(device.node, ()) if each.standing is not Standing.MISSING)
        others = sum(address_of(each, self.pools.get(each.device_pool)) == own for each in there)
        return own if others <= 1 else ""

    def is_hardware(self, device: Device, hardware_id: str) -> bool:
        """Whether that is the id of a device, also where it is known by uuid now and was by its PCI address before."""
        if device.hardware_id == hardware_id:
            return True
        return ":" in hardware_id and self.address(device) == spelled(hardware_id)

    def replaced_by(self, node: str, placed: PlacedDevice, address: str = "") -> Device | None:
        """The other hardware that is in a device's place: under its name, or at its PCI address. None while the device
        itself is there, where nothing is, and where what is there does not say what it is."""
        recorded = placed.hardware_id
        if not recorded or "/" in recorded:
            # Only its name is known: whatever has it is the device.
            return None
        there = [each for each in self.devices.get(node, ()) if each.standing is not Standing.MISSING]
        if any(self.is_hardware(each, recorded) for each in there):
            return None
        for each in there:
            told = self.address(each) if ":" in recorded else {":", "/"}.isdisjoint(each.hardware_id)
            if told and (each.id == placed.id or (address and self.address(each) == address)):
                return each
        return None

    def binding(self, id_: DeviceID) -> Binding | None:
        """What a pod with that device waits for before it binds, or None."""
        driver_pool = self._driver_pools.get((id_.driver, id_.pool))
        return driver_pool.bindings.get(id_.device) if driver_pool is not None else None

    def silent(self, node: str, id_: DeviceID) -> bool:
        """Whether the device's driver publishes nothing on the node any more: it, or the kubelet, is down."""
        driver_pool = self._driver_pools.get((id_.driver, id_.pool))
        return driver_pool is None or node not in driver_pool.devices

    def spoken_since(self, id_: DeviceID) -> float | None:
        """Since when the device's driver has published what it publishes, None where it does not or nobody knows."""
        driver_pool = self._driver_pools.get((id_.driver, id_.pool))
        return driver_pool.since if driver_pool is not None else None

    def beside(self, own: Collection[DeviceID]) -> Iterator[DeviceID]:
        """Published devices on the hardware of `own` devices, those themselves left out: partitions of a card, the card
        of a partition, another face of it."""
        for driver_pool in self._driver_pools.values():
            if not driver_pool.layered:
                continue
            for devices in driver_pool.devices.values():
                mine = [device for device in devices if driver_pool.id_of(device) in own]
                keys = frozenset[str]().union(*map(hardware_keys, mine))
                for device in devices:
                    id_ = driver_pool.id_of(device)
                    if id_ not in own and not keys.isdisjoint(hardware_keys(device)):
                        yield id_

    def published_elsewhere(self) -> Mapping[str, DeviceID]:
        """By uuid, held devices that are missing where they are held, and published by another node.

        O(nodes), and O(devices) while a device with a uuid is missing. A PCI address says nothing beyond its node.
        """
        lost = {
            device.hardware_id
            for found in self._found.values()
            for device in found.devices
            if device.standing is Standing.MISSING and not {":", "/"} & set(device.hardware_id)
        } - {""}
        if not lost:
            return {}
        return {
            device.hardware_id: device.id
            for devices in self.devices.values()
            for device in devices
            if device.hardware_id in lost and device.standing is not Standing.MISSING
        }

    def outside(self, taken: Collection[DeviceID]) -> Mapping[str, Mapping[Key, Counted]]:
        """What of their counters is taken by devices that are in somebody's hands and in no pool: by node and driver
        pool. O(taken).
        """
        found: dict[str, dict[Key, dict[str, dict[str, Fraction]]]] = {}
        for id_ in sorted(taken):
            driver_pool = self._driver_pools.get((id_.driver, id_.pool))
            if driver_pool is None or not driver_pool.layered:
                continue
            for node in driver_pool.devices:
                device = driver_pool.named(node, id_.device)
                if device is None or not device.consumes or self.device(node, id_) is not None:
                    continue
                sets = found.setdefault(node, {}).setdefault((id_.driver, id_.pool), {})
                for name, amounts in device.consumes.items():
                    sums = sets.setdefault(name, {})
                    for counter, amount in amounts.items():
                        sums[counter] = sums.get(counter, Fraction(0)) + amount.value
        return {
            node: {
                key: {name: {at: _quantity(sum_) for at, sum_ in sums.items()} for name, sums in sets.items()}
                for key, sets in by_key.items()
            }
            for node, by_key in found.items()
        }

    def excluded_by(self, id_: DeviceID) -> tuple[DeviceID, ...]:
        """Devices that cannot be given out while `id_` is in somebody's allocation: itself, and those that share
        hardware with it."""
        driver_pool = self._driver_pools.get((id_.driver, id_.pool))
        if driver_pool is None or not driver_pool.layered:
            return (id_,)
        sharing = {driver_pool.id_of(other) for other in driver_pool.relatives(id_.device)}
        return (
            id_,
            *(
                device.id
                for node in driver_pool.devices
                for device in self.devices.get(node, ())
                if device.id in sharing
            ),
        )
