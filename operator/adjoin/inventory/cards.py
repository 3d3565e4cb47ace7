"""Cards of which a driver publishes the whole and partitions: which DevicePool has a card, and under which names.

In come what a driver publishes on a node and who selects it, the oldest pool first; out comes a `Cards`. A card is one
piece of hardware, so all that is published of it belongs to one pool: the oldest that selects any of it. A name that
selects the whole of a card has nothing of its partitions; another name may have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from adjoin.facts import PublishedDevice
from adjoin.inventory.driver_pools import DriverPool
from adjoin.inventory.pools import Offer, PoolRules
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Consumed

Wanted = Sequence[tuple[PoolRules, Offer]]


@dataclass(frozen=True, slots=True, eq=False)
class Cards:
    """Who has what of the cards of one driver pool on a node.

    Attributes:
        owners: By counter set the pool that has the card, and its name.
        whole: By counter set the places (in what is wanted) of the names that select the whole of the card.
        parts: Names of the devices that are partitions.
    """

    owners: Mapping[str, tuple[PoolRules, Offer]]
    whole: Mapping[str, frozenset[int]]
    parts: frozenset[str]

    def owner(self, device: PublishedDevice) -> tuple[PoolRules, Offer] | None:
        """Who has the card that the device is of; None for one that shares no counters."""
        return next((self.owners[name] for name in device.consumes if name in self.owners), None)

    def beside_whole(self, device: PublishedDevice, rank: int) -> bool:
        """Whether the device is a partition of a card that the name of this place has as a whole."""
        return device.name in self.parts and any(rank in self.whole.get(name, ()) for name in device.consumes)


NO_CARDS = Cards({}, {}, frozenset())


def share_out(driver_pool: DriverPool, devices: Iterable[PublishedDevice], wanted: Wanted) -> Cards:
    """Decides who has what of the cards on a node."""
    counted = [device for device in devices if device.consumes]
    parts = frozenset(device.name for device in counted if device.name in driver_pool.parts or is_partition(device))
    whole: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    matches = {device.name: [at for at, (_, offer) in enumerate(wanted) if offer.matches(device)] for device in counted}
    for device in counted:
        if device.name not in parts:
            for name in device.consumes:
                whole.setdefault(name, set()).update(matches[device.name])
    for device in counted:
        partition = device.name in parts
        mine = [
            at
            for at in matches[device.name]
            if not partition or not any(at in whole.get(name, ()) for name in device.consumes)
        ]
        for name in device.consumes if mine else ():
            first[name] = min(mine[0], first.get(name, mine[0]))
    # What takes of two sets makes them one card.
    changed = True
    while changed:
        changed = False
        for device in counted:
            least = min((first[name] for name in device.consumes if name in first), default=None)
            for name in device.consumes:
                if least is not None and first.get(name) != least and matches[device.name]:
                    first[name], changed = least, True
    return Cards(
        owners={name: wanted[at] for name, at in first.items()},
        whole={name: frozenset(ranks) for name, ranks in whole.items()},
        parts=parts,
    )


def is_partition(device: PublishedDevice) -> bool:
    """Whether a device says that it is a partition: one may take all that its card has."""
    said = (device.attributes.get(f"{device.driver}/{name}") for name in ("profile", "parentUUID"))
    return any(said) or device.attributes.get(f"{device.driver}/type") == "mig"


def as_counters(consumed: Consumed) -> Mapping[str, Mapping[str, Quantity]]:
    """What a claim's status records of counters."""
    return {each.counter_set: {use.counter: Quantity(use.amount) for use in each.uses} for each in consumed}
