"""The devices of one node: which pool and name each belongs to, and whether it can be given out.

In come the node, what drivers publish there and the pools that select it, the oldest pool first; out go `NodeDevices`.
A device belongs to one name of one pool; whoever selects it too is told. Nothing here knows who holds a device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from adjoin.api.names import DRIVER
from adjoin.facts import PublishedDevice
from adjoin.inventory.cards import NO_CARDS, share_out
from adjoin.inventory.driver_pools import DriverPool, parent_of, same_hardware, uuid_of
from adjoin.inventory.identity import Identity, identify
from adjoin.inventory.pools import Offer, PoolRules, counted_devices
from adjoin.inventory.taints import NO_RULES, DriverPoolRules, Symptom, Tainted, symptoms
from adjoin_allocator.model import Device, DeviceID, Node, natural_key
from adjoin_allocator.terms import Standing

COUNTED = 1024
"""Most devices of one name that are counted on a node."""


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """Everything that decides the devices of one node.

    Attributes:
        node: The node; `exists` is False where devices name a node that has no object.
        pools: The pools that select the node, the oldest first.
        listing: The pools whose static devices count there, the oldest first: those that select it, and for a node
        without an object,
            of which no labels are known, every pool that lists it.
        driver_pools: What drivers publish there, with the taint rules for it.
        own_rules: The taint rules for devices that no driver publishes.
        allocatable: Extended resources of the node.
        gpu_ids: By pool the identities of GPU rows that stand beside its matrix.
        guarding: Devices of guarded pools are offered only once their guard stands.
        locked: Why devices are in quarantine, by device key.
    """

    node: Node
    pools: tuple[PoolRules, ...]
    listing: tuple[PoolRules, ...]
    driver_pools: tuple[tuple[DriverPool, DriverPoolRules], ...]
    own_rules: DriverPoolRules
    allocatable: Mapping[str, int]
    gpu_ids: Mapping[str, tuple[str, ...]]
    guarding: bool
    locked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overlap:
    """A device that a pool selects and another name or pool has."""

    device: DeviceID
    pool: str
    owner: str
    owner_name: str


@dataclass(frozen=True, slots=True, eq=False)
class NodeDevices:
    """The devices of one node in stable order, with what else was seen while they were sorted out.

    Attributes:
        devices: Devices of all pools, without those that are only known from a claim.
        identities: What identifies each.
        overlaps: Devices that were selected a second time.
        parts: By pool how many parts of devices it selects under the name that has the whole.
    """

    devices: tuple[Device, ...]
    identities: Mapping[DeviceID, Identity]
    overlaps: tuple[Overlap, ...]
    parts: Mapping[str, int]
    beyond: Mapping[str, int]
    """By pool how many devices a node counts beyond those that are offered."""
    tainted: tuple[Tainted, ...] = ()
    """Devices with taints that mean something, those in quarantine included."""


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    id: DeviceID
    rules: PoolRules
    offer: Offer
    published: PublishedDevice


@lru_cache(maxsize=1 << 16)
def _natural(text: str) -> tuple[tuple[str | int, ...], str]:
    return natural_key(text)


def stable_order(device: Device) -> tuple[object, ...]:
    """Sort key of devices on one node: natural order of pool and name."""
    return _natural(device.id.pool), _natural(device.id.device), device.id.driver


def node_devices(site: Surroundings) -> NodeDevices:
    """Sorts out the devices of one node. Costs a selector evaluation for every device and name of its driver, less what
    is remembered."""
    devices: list[Device] = []
    identities: dict[DeviceID, Identity] = {}
    overlaps: list[Overlap] = []
    parts: Counter[str] = Counter()
    beyond: Counter[str] = Counter()
    by_drivers: list[_Chosen] = []
    tainted: list[Tainted] = []
    for driver_pool, rules in site.driver_pools:
        chosen = list(_published(site, driver_pool, overlaps, parts))
        for each, identity in zip(chosen, _identify(site, chosen), strict=True):
            found = _symptoms(each, rules)
            tainted += _tainted(site, each, identity, found)
            standing = _locked(site, each, identity) or _standing(site, each, rules, driver_pool.problem, found)
            devices.append(_device(site, each, identity, standing, driver_pool))
            identities[each.id] = identity
        by_drivers += chosen
    unpublished = list(_unpublished(site, by_drivers, overlaps, beyond)) if site.listing else []
    for each, identity in zip(unpublished, _identify(site, unpublished), strict=True):
        found = _symptoms(each, site.own_rules)
        tainted += _tainted(site, each, identity, found)
        standing = _locked(site, each, identity) or _unpublished_standing(site, found)
        devices.append(_device(site, each, identity, standing))
        identities[each.id] = identity
    devices.sort(key=stable_order)
    return NodeDevices(tuple(devices), identities, tuple(overlaps), parts, beyond, tuple(tainted))


def _published(
    site: Surroundings, driver_pool: DriverPool, overlaps: list[Overlap], parts: Counter[str]
) -> Iterator[_Chosen]:
    """Devices of a driver's pool that a DevicePool takes: of several the oldest, in it the first name."""
    wanted = [(rules, offer) for rules in site.pools for offer in rules.published.get(driver_pool.driver, ())]
    if not wanted:
        return
    chosen: list[tuple[int, _Chosen]] = []
    here = driver_pool.devices.get(site.node.name, ())
    cards = share_out(driver_pool, here, wanted) if driver_pool.layered else NO_CARDS
    for published in here:
        owner: _Chosen | None = None
        for rank, (rules, offer) in enumerate(wanted):
            if not offer.matches(published):
                continue
            if cards.beside_whole(published, rank):
                # Who names whole cards and means parts of them too would get parts where cards are asked for.
                parts[rules.name] += 1
                continue
            landlord = cards.owner(published)
            if landlord is not None and landlord[0] is not rules:
                taken = driver_pool.id_of(published)
                overlaps.append(Overlap(taken, rules.name, landlord[0].name, landlord[1].name))
                continue
            if owner is None:
                owner = _Chosen(driver_pool.id_of(published), rules, offer, published)
                chosen.append((rank, owner))
            else:
                overlaps.append(Overlap(owner.id, rules.name, owner.rules.name, owner.offer.name))
    yield from _hardware_once(chosen, overlaps, parts)


def _hardware_once(
    chosen: Sequence[tuple[int, _Chosen]], overlaps: list[Overlap], parts: Counter[str]
) -> Iterator[_Chosen]:
    """Each card once, where a driver without counters publishes partitions and other faces of it beside it: the whole
    before its parts, and of two faces the one that is selected first."""
    cards: dict[str, _Chosen] = {}
    for _, each in sorted(chosen, key=lambda ranked: (ranked[0], _natural(ranked[1].published.name))):
        if uuid := uuid_of(each.published):
            cards.setdefault(uuid, each)
    for _, each in chosen:
        card = cards.get(uuid_of(each.published), each)
        parent = cards.get(parent_of(each.published))
        if parent is not None and same_hardware(parent.published, each.published):
            parts[each.rules.name] += 1
        elif card is not each and same_hardware(card.published, each.published):
            overlaps.append(Overlap(each.id, each.rules.name, card.rules.name, card.offer.name))
        else:
            yield each


def _unpublished(
    site: Surroundings, published: Sequence[_Chosen], overlaps: list[Overlap], beyond: Counter[str]
) -> Iterator[_Chosen]:
    """Static devices and counted ones. Pools that count one resource count the same devices, under whatever names, and
    one uuid is one device, whoever lists it how often.
    """
    node = site.node.name
    if not any(rules.counted or rules.listed.get(node) for rules in site.listing):
        return
    owners: dict[object, _Chosen] = {each.rules.uuid_of(each.published): each for each in published}
    owners.pop("", None)
    for rules in site.listing:
        candidates: list[tuple[Offer, PublishedDevice, object]] = [
            (offer, device, None) for offer, device in rules.listed.get(node, ())
        ]
        for offer, resource in rules.counted if rules in site.pools else ():
            count = site.allocatable.get(resource, 0)
            if count > COUNTED:
                # A constant that somebody configured, not what is in the machine.
                beyond[rules.name] += count - COUNTED
            made = counted_devices(offer, min(count, COUNTED), site.gpu_ids.get(rules.name, ()))
            candidates += [(offer, device, (resource, index)) for index, device in enumerate(made)]
        for offer, device, slot in candidates:
            chosen = _Chosen(DeviceID(DRIVER, node, device.name), rules, offer, device)
            keys = [key for key in (chosen.id, slot, rules.uuid_of(device)) if key]
            owner = next((owners[key] for key in keys if key in owners), None)
            if owner is not None:
                overlaps.append(Overlap(chosen.id, rules.name, owner.rules.name, owner.offer.name))
                continue
            owners.update(dict.fromkeys(keys, chosen))
            yield chosen


def _identify(site: Surroundings, chosen: Sequence[_Chosen]) -> list[Identity]:
    return identify(site.node.name, [(each.rules, each.published) for each in chosen])


def _locked(site: Surroundings, each: _Chosen, identity: Identity) -> tuple[Standing, str] | None:
    """In quarantine, by its hardware id or, where the record has none, by its name."""
    if not site.locked:
        return None
    names = (identity.uuid, identity.pci, identity.text, "/".join(each.id))
    why = next((site.locked[name] for name in names if name in site.locked), None)
    return None if why is None else (Standing.QUARANTINED, why)


def _symptoms(each: _Chosen, rules: DriverPoolRules) -> tuple[Symptom, ...]:
    if not each.published.taints and rules is NO_RULES:
        return ()
    return symptoms((*each.published.taints, *rules.on(each.published.name)), each.rules.health)


def _tainted(site: Surroundings, each: _Chosen, identity: Identity, found: tuple[Symptom, ...]) -> list[Tainted]:
    named = each.offer.name, site.node.name
    return [Tainted(each.id, identity.text, each.rules.name, *named, found)] if found else []


def _ailing(found: Sequence[Symptom]) -> tuple[Standing, str] | None:
    ailing = next((symptom for symptom in found if not symptom.excused), None)
    return (Standing.UNHEALTHY, ailing.text) if ailing is not None else None


def _standing(
    site: Surroundings, each: _Chosen, rules: DriverPoolRules, withheld: str, found: Sequence[Symptom]
) -> tuple[Standing, str]:
    name = each.published.name
    ailing = _ailing(found)
    if ailing is not None:
        return ailing
    if withheld:
        return Standing.WITHHELD, withheld
    if site.guarding and each.rules.guarded and not rules.guarded(name, each.rules.name):
        return Standing.UNGUARDED, "no taint rule guards it yet"
    return Standing.OFFERED, ""


def _unpublished_standing(site: Surroundings, found: Sequence[Symptom]) -> tuple[Standing, str]:
    if not site.node.exists:
        return Standing.MISSING, f"node {site.node.name} is absent"
    return _ailing(found) or (Standing.OFFERED, "")


def _device(
    site: Surroundings,
    each: _Chosen,
    identity: Identity,
    standing: tuple[Standing, str],
    driver_pool: DriverPool | None = None,
) -> Device:
    performance, priority = each.offer.rank(each.published)
    return Device(
        id=each.id,
        node=site.node.name,
        device_pool=each.rules.name,
        kind=each.offer.name,
        type=each.offer.type,
        hardware_id=identity.text,
        attributes=each.published.attributes,
        capacity=each.published.capacity,
        performance=performance,
        priority=priority,
        standing=standing[0],
        standing_detail=standing[1],
        allow_multiple_allocations=each.published.allow_multiple_allocations,
        policies=each.published.policies,
        spelled=each.published.spelled,
        consumes=each.published.consumes,
        counters=driver_pool.counters if driver_pool is not None and each.published.consumes else {},
    )
