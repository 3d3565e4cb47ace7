"""What a DRA driver publishes under one pool name, read from the ResourceSlices that count.

In come the slices of one (driver, pool); out goes a `DriverPool`: the devices of the newest generation by node, and why
nothing new may be placed on them while that generation is incomplete or contradicts itself. Older generations are read
for one thing only: facts of devices that somebody holds while the newest generation is still on its way.

Drivers publish the whole of a card, its partitions and other faces of it side by side. Which of them are one piece of
hardware is read from counters, and where a driver has none, from the uuids that it publishes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from adjoin.facts import Binding, PublishedDevice, SliceFacts
from adjoin.inventory.changes import changed_keys
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import DeviceID, natural_key

Key = tuple[str, str]
"""Driver and name of a driver pool."""


@dataclass(frozen=True, slots=True, eq=False)
class DriverPool:
    """One driver's pool of devices.

    Attributes:
        driver: The driver.
        name: The pool's name, for most drivers the node's.
        devices: Devices of the newest generation by node.
        parts: Names of devices that are parts of a larger one, as far as counters tell.
        remote: Devices of the newest generation that are not local to one node.
        problem: Why nothing new may be placed on the devices (`gpu.nvidia.com/node-a: 1 of 2 slices`), or "".
        older: While there is a problem, devices of earlier generations by name.
        nodes: Every node that a slice of any generation names.
        bindings: By device name what pods wait for before they bind, where they wait for something.
        layered: Hardware may be published more than once: as a whole and in parts, or with several faces.
        counters: What its counter sets hold, by counter set and counter.
        since: When the newest of its slices was made (seconds since the epoch), or None.
    """

    driver: str
    name: str
    devices: Mapping[str, tuple[PublishedDevice, ...]]
    parts: frozenset[str]
    remote: tuple[PublishedDevice, ...]
    problem: str
    older: Mapping[str, PublishedDevice]
    nodes: frozenset[str]
    bindings: Mapping[str, Binding]
    layered: bool
    since: float | None = None
    counters: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)

    def id_of(self, device: PublishedDevice) -> DeviceID:
        """The triple that Kubernetes knows the device by."""
        return DeviceID(self.driver, self.name, device.name)

    def named(self, node: str, name: str) -> PublishedDevice | None:
        """The device of that name on that node."""
        return next((device for device in self.devices.get(node, ()) if device.name == name), None)

    def relatives(self, name: str) -> tuple[PublishedDevice, ...]:
        """Devices that cannot be in use beside the device of that name, whatever counters say.

        A partition that is not published any more does not say whose it was, so it keeps every card from being given
        out that it may be a part of. What has the name of a card is none: a card that died is no reason to hold the
        others back.
        """
        for devices in self.devices.values():
            device = next((each for each in devices if each.name == name), None)
            if device is not None:
                return tuple(each for each in devices if each is not device and same_hardware(device, each))
        counted = [each for devices in self.devices.values() for each in devices if each.consumes]
        cards = [each for each in counted if each.name not in self.parts]
        if any(_pattern(name) == _pattern(card.name) for card in cards):
            return ()
        own = [card for card in cards if name.startswith(f"{card.name}-")]
        if not own:
            return tuple(counted)
        return tuple(each for each in counted if any(_share_counters(each, card) for card in own))


def hardware_keys(device: PublishedDevice) -> frozenset[str]:
    """What the devices of one card have in common: counter sets, and the uuid of the card."""
    return frozenset((*device.consumes, uuid_of(device), parent_of(device))) - {""}


def _layered(devices: Iterable[PublishedDevice]) -> bool:
    seen: set[str] = set()
    for device in devices:
        keys = hardware_keys(device)
        if device.consumes or not seen.isdisjoint(keys):
            return True
        seen |= keys
    return False


def same_hardware(one: PublishedDevice, other: PublishedDevice) -> bool:
    """Whether two devices of one driver on one node cannot be in use at once whatever counters say: one is a part of
    the other, or they are two faces of one card (as a GPU and as a function for virtual machines). Of devices that take
    of the same counters these tell what can be used side by side.
    """
    if _share_counters(one, other):
        return False
    own, others = uuid_of(one), uuid_of(other)
    if own and own == others:
        return _text(one, "type") != _text(other, "type")
    return bool(own and own == parent_of(other)) or bool(others and others == parent_of(one))


def _share_counters(one: PublishedDevice, other: PublishedDevice) -> bool:
    return not one.consumes.keys().isdisjoint(other.consumes)


def uuid_of(device: PublishedDevice) -> str:
    """The uuid that a device publishes, or ""."""
    return _text(device, "uuid")


def parent_of(device: PublishedDevice) -> str:
    """The uuid of the card that a device says it is a partition of, or ""."""
    return _text(device, "parentUUID")


def _text(device: PublishedDevice, name: str) -> str:
    value = device.attributes.get(f"{device.driver}/{name}")
    return value if isinstance(value, str) else ""


def _pattern(name: str) -> str:
    """A name with its numbers left out: cards of one node are named alike."""
    return re.sub(r"\d+", "0", name)


def read_driver_pool(slices: Iterable[SliceFacts]) -> DriverPool:
    """The pool that `slices` (at least one, all of one driver and pool) describe. Their order does not matter."""
    ordered = sorted(slices, key=lambda facts: (-facts.generation, natural_key(facts.meta.name), facts.meta.uid))
    driver, name, newest = ordered[0].driver, ordered[0].pool, ordered[0].generation
    current = [facts for facts in ordered if facts.generation == newest]
    expected = max(facts.slices for facts in current)
    problem = "" if len(current) == expected else f"{len(current)} of {expected} slices"

    local: dict[str, list[PublishedDevice]] = {}
    remote: list[PublishedDevice] = []
    names: set[str] = set()
    for facts in current:
        for device in facts.devices:
            if device.name in names:
                # Kubernetes takes a pool with one name twice for invalid as a whole, and so the name for nobody's.
                problem = problem or f"device {device.name} is published twice"
                continue
            names.add(device.name)
            node = device.node or facts.node
            if node:
                local.setdefault(node, []).append(device)
            else:
                remote.append(device)
    older: dict[str, PublishedDevice] = {}
    if problem:
        for facts in ordered[len(current) :]:
            for device in facts.devices:
                older.setdefault(device.name, device)
    return DriverPool(
        driver=driver,
        name=name,
        devices={node: tuple(devices) for node, devices in local.items()},
        parts=frozenset(name for devices in local.values() for name in _parts(devices)),
        remote=tuple(remote),
        problem=f"{driver}/{name}: {problem}" if problem else "",
        older=older,
        nodes=frozenset(
            node for facts in ordered for node in (facts.node, *(device.node for device in facts.devices)) if node
        ),
        layered=any(map(_layered, local.values())),
        bindings={device.name: device.binding for facts in current for device in facts.devices if device.binding},
        counters={name: amounts for facts in reversed(current) for name, amounts in facts.counters.items()},
        since=max((facts.meta.created for facts in current if facts.meta.created is not None), default=None),
    )


def _parts(devices: Iterable[PublishedDevice]) -> Iterator[str]:
    """Names of the devices that take less than another one takes of some counter of the same set. The whole of a card
    takes all of its counter set."""
    counted = [device for device in devices if device.consumes]
    if not counted:
        return
    most: dict[tuple[str, str], Quantity] = {}
    for device in counted:
        for counter_set, counters in device.consumes.items():
            for counter, amount in counters.items():
                known = most.get((counter_set, counter))
                if known is None or known < amount:
                    most[counter_set, counter] = amount
    sizes = Counter(counter_set for counter_set, _ in most)
    for device in counted:
        whole = all(
            len(counters) == sizes[counter_set]
            and all(amount == most[counter_set, counter] for counter, amount in counters.items())
            for counter_set, counters in device.consumes.items()
        )
        if not whole:
            yield device.name


class DriverPools:
    """All driver pools, kept up to date slice by slice."""

    def __init__(self) -> None:
        self.by_key: dict[Key, DriverPool] = {}
        """Replaced, never changed in place: inventories share it."""
        self.of_node: dict[str, set[Key]] = {}
        self.troubled: dict[Key, DriverPool] = {}
        """Those with a problem or with devices that are not local to a node."""
        self.vanished: frozenset[Key] = frozenset()
        """Those that the last update took away."""
        self.silenced: dict[Key, frozenset[str]] = {}
        """Those that went away since the first update, with the nodes that they named."""
        self._known: Mapping[str, SliceFacts] = {}
        self._slices: dict[Key, dict[str, SliceFacts]] = {}

    def update(self, slices: Mapping[str, SliceFacts]) -> set[str]:
        """Takes the slices that there are now and returns the nodes whose devices may have changed."""
        stale: set[Key] = set()
        for uid in changed_keys(self._known, slices):
            before, after = self._known.get(uid), slices.get(uid)
            if before is not None:
                key = (before.driver, before.pool)
                self._slices[key].pop(uid)
                stale.add(key)
            if after is not None:
                key = (after.driver, after.pool)
                self._slices.setdefault(key, {})[uid] = after
                stale.add(key)
        self._known = slices
        self.vanished = frozenset(key for key in stale if not self._slices[key])
        if not stale:
            return set()
        self.by_key = dict(self.by_key)
        nodes: set[str] = set()
        for key in stale:
            gone = self.by_key.pop(key, None)
            self.troubled.pop(key, None)
            if gone is not None:
                nodes |= gone.nodes
                for node in gone.nodes:
                    self.of_node[node].discard(key)
            if self._slices[key]:
                self.silenced.pop(key, None)
                made = self.by_key[key] = read_driver_pool(self._slices[key].values())
                if made.problem or made.remote:
                    self.troubled[key] = made
                nodes |= made.nodes
                for node in made.nodes:
                    self.of_node.setdefault(node, set()).add(key)
            else:
                if gone is not None and gone.nodes:
                    self.silenced[key] = gone.nodes
                del self._slices[key]
        return nodes

    def on(self, node: str) -> list[DriverPool]:
        """Driver pools with a slice that names the node, in a fixed order."""
        return [self.by_key[key] for key in sorted(self.of_node.get(node, ()))]
