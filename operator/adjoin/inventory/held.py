"""Devices that claims hold, found again in what is there today.

In come the replicas that a claim's status lists and the devices of their node; out goes for every held device where it
is now. A device that is held never leaves the accounts: it may have another name today (its hardware is recognised), it
may be published without being selected any more, or it may be absent, and then it is Missing until it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from adjoin.api.defaults import device_of
from adjoin.api.names import DRIVER
from adjoin.facts import ClaimFacts, PublishedDevice
from adjoin.holdings import read_placed
from adjoin.inventory.cards import as_counters
from adjoin.inventory.changes import changed_keys
from adjoin.inventory.driver_pools import DriverPool
from adjoin.inventory.identity import Identity, identify, spelled
from adjoin.inventory.node_devices import NodeDevices
from adjoin.inventory.pools import PoolRules, asked_pool
from adjoin_allocator.budgets import consumed_by
from adjoin_allocator.model import Device, DeviceID, PlacedDevice
from adjoin_allocator.terms import DeviceType, Standing


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device as a claim's status names it, and under which name it was asked for."""

    placed: PlacedDevice
    pool: str
    kind: str


def held_devices(claim: ClaimFacts, pool: str) -> Mapping[str, frozenset[HeldDevice]]:
    """What a claim of that pool holds, by node."""
    kinds = {request.name: device_of(request) for request in claim.claim.spec.requests}
    held: dict[str, set[HeldDevice]] = {}
    for replica in read_placed(claim.status):
        for placed in replica.devices:
            kind = kinds.get(placed.request.partition("/")[0], placed.request)
            held.setdefault(replica.node, set()).add(HeldDevice(placed, pool, kind))
    return {node: frozenset(devices) for node, devices in held.items()}


class Holders:
    """What all claims hold, kept up to date claim by claim."""

    def __init__(self) -> None:
        self._known: Mapping[str, ClaimFacts] = {}
        self._default = ""
        self._held: dict[str, Mapping[str, frozenset[HeldDevice]]] = {}
        self._of_node: dict[str, dict[str, frozenset[HeldDevice]]] = {}

    def update(self, claims: Mapping[str, ClaimFacts], default: str) -> set[str]:
        """Takes the claims that there are now and returns the nodes on which something is held that was not, or the
        other way round."""
        changed = changed_keys(self._known, claims)
        if default != self._default:
            changed = list({*self._known, *claims})
        self._known, self._default = claims, default
        nodes: set[str] = set()
        for uid in changed:
            claim = claims.get(uid)
            before = self._held.pop(uid, {})
            after = held_devices(claim, asked_pool(claim, default)) if claim is not None else {}
            if after:
                self._held[uid] = after
            for node in before.keys() | after.keys():
                if before.get(node) == after.get(node):
                    continue
                nodes.add(node)
                holders = self._of_node.setdefault(node, {})
                if node in after:
                    holders[uid] = after[node]
                else:
                    del holders[uid]
        return nodes

    def on(self, node: str) -> frozenset[HeldDevice]:
        """Everything that is held on the node."""
        return frozenset().union(*self._of_node.get(node, {}).values())

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes on which something is held."""
        return frozenset(node for node, holders in self._of_node.items() if holders)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Held devices of one node.

    Attributes:
        devices: Those that no pool offers today, as devices of the pool that their claim asks.
        moved: Where devices are now that stand in a status under another triple: by that triple and the recorded
        hardware id.
        nameless: Published devices that are held under a name that the pool has no more, with that pool. Nobody offers
            them.
    """

    devices: tuple[Device, ...]
    moved: Mapping[tuple[DeviceID, str], DeviceID]
    nameless: frozenset[tuple[str, DeviceID]] = frozenset()


NOTHING = Found((), {})


def stand_in(placed: PlacedDevice) -> DeviceID:
    """Identity of hardware that is absent while other hardware has its name. No driver publishes it, so the driver is
    our own, and no driver could publish such a name."""
    return DeviceID(DRIVER, placed.id.pool, f"{placed.id.device}@{placed.hardware_id}")


def find(
    node: str,
    held: Iterable[HeldDevice],
    offered: NodeDevices,
    elsewhere: Callable[[DeviceID], bool],
    driver_pools: Mapping[tuple[str, str], DriverPool],
    pools: Mapping[str, PoolRules],
) -> Found:
    """Finds the held devices of `node` again.

    Args:
        node: The node that the statuses name.
        held: What claims hold there.
        offered: The node's devices.
        elsewhere: Whether a pool offers the device of that triple on another node.
        driver_pools: What drivers publish, by driver and pool name.
        pools: DevicePools by name.
    """
    lost = [
        each
        for each in held
        if (identity := offered.identities.get(each.placed.id)) is None or identity.contradicts(each.placed.hardware_id)
    ]
    if not lost:
        return NOTHING
    proofs = {(id_.driver, proof): id_ for id_, identity in offered.identities.items() for proof in identity.proofs}
    extra: dict[DeviceID, Device] = {}
    moved: dict[tuple[DeviceID, str], DeviceID] = {}
    nameless: set[tuple[str, DeviceID]] = set()
    for each in sorted(lost, key=lambda each: (each.placed.id, each.placed.hardware_id, each.pool, each.kind)):
        placed = each.placed
        contradicted = placed.id in offered.identities
        now = proofs.get((placed.id.driver, spelled(placed.hardware_id)))
        if now is not None:
            moved[placed.id, placed.hardware_id] = now
            continue
        if not contradicted and elsewhere(placed.id):
            continue
        device = _unoffered(node, each, driver_pools, pools, contradicted)
        if device is None:
            driver_pool = driver_pools.get((placed.id.driver, placed.id.pool))
            if driver_pool is not None and driver_pool.named(node, placed.id.device) is not None:
                nameless.add((each.pool, placed.id))
            continue
        extra.setdefault(device.id, device)
        if device.id != placed.id:
            moved[placed.id, placed.hardware_id] = device.id
    return Found(tuple(extra.values()), moved, frozenset(nameless)) if extra or moved or nameless else NOTHING


def _unoffered(
    node: str,
    each: HeldDevice,
    driver_pools: Mapping[tuple[str, str], DriverPool],
    pools: Mapping[str, PoolRules],
    contradicted: bool,
) -> Device | None:
    """A held device that no pool offers, as a device of its claim's pool; None where that pool has no such name any
    more."""
    rules = pools.get(each.pool)
    kind = rules.type_of(each.kind) if rules is not None else None
    if rules is None or kind is None:
        return None
    placed = each.placed
    driver_pool = driver_pools.get((placed.id.driver, placed.id.pool))
    if driver_pool is not None and not contradicted:
        published, identity = _published(node, placed, driver_pool, rules)
        if published is not None:
            detail = driver_pool.problem or "its pool does not select it any more"
            seen = _absent(node, each, kind, placed.id._replace(device=published.name), driver_pool)
            return replace(
                seen,
                hardware_id=identity,
                attributes=published.attributes,
                capacity=published.capacity,
                standing=Standing.WITHHELD,
                standing_detail=detail,
                allow_multiple_allocations=published.allow_multiple_allocations,
                policies=published.policies,
                spelled=published.spelled,
                consumes=as_counters(placed.consumed) or published.consumes,
            )
        if driver_pool.problem:
            # The generation that would tell is still on its way; until then nothing has happened to the device.
            older = driver_pool.older.get(placed.id.device)
            seen = _absent(node, each, kind, placed.id, driver_pool)
            return replace(
                seen,
                attributes=older.attributes if older is not None else {},
                capacity=older.capacity if older is not None else {},
                standing=Standing.WITHHELD,
                standing_detail=driver_pool.problem,
            )
    return _absent(node, each, kind, stand_in(placed) if contradicted else placed.id, driver_pool)


def recorded(devices: Iterable[Device], held: Iterable[HeldDevice]) -> tuple[Device, ...]:
    """The devices, those that are held with what their claims have recorded that they take of counters: a driver that
    publishes other costs meanwhile has not given anything back.
    """
    records = {each.placed.id: each.placed.consumed for each in held if each.placed.consumed}
    return tuple(
        replace(device, consumes=as_counters(records[device.id]))
        if records and device.id in records and consumed_by(device) != records[device.id]
        else device
        for device in devices
    )


def _absent(
    node: str, each: HeldDevice, kind: DeviceType, id_: DeviceID, driver_pool: DriverPool | None = None
) -> Device:
    return Device(
        id=id_,
        node=node,
        device_pool=each.pool,
        kind=each.kind,
        type=kind,
        hardware_id=each.placed.hardware_id or f"{node}/{each.placed.id.device}",
        attributes={},
        capacity={},
        standing=Standing.MISSING,
        standing_detail="not in the inventory",
        consumes=as_counters(each.placed.consumed),
        counters=driver_pool.counters if driver_pool is not None and each.placed.consumed else {},
    )


def _published(
    node: str, placed: PlacedDevice, driver_pool: DriverPool, rules: PoolRules
) -> tuple[PublishedDevice | None, str]:
    """The published device that is the held one, by name unless its hardware says otherwise, else by hardware; and its
    hardware id."""
    devices = driver_pool.devices.get(node, ())
    identities: list[Identity] = identify(node, [(rules, device) for device in devices])
    by_hardware: tuple[PublishedDevice | None, str] = None, ""
    for device, identity in zip(devices, identities, strict=True):
        if device.name == placed.id.device and not identity.contradicts(placed.hardware_id):
            return device, identity.text
        if spelled(placed.hardware_id) in identity.proofs:
            by_hardware = device, identity.text
    return by_hardware
