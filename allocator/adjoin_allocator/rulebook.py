"""Which rule a share has for which card.

In come a share and a device, or its class; out comes what the one makes of the other (`card_rules`,
`partition_rules`), always the same object for the same share and class.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from adjoin_allocator.card_rules import MANY, CardRule
from adjoin_allocator.geometry import built_in, custom
from adjoin_allocator.model import Device, Lent, PlacedShare, RequestPolicy, Share
from adjoin_allocator.partition_rules import PartitionRule
from adjoin_allocator.partitions import occupied
from adjoin_allocator.policies import memory_policy
from adjoin_allocator.sharing import MILLI, memory_bytes, shareable_bytes
from adjoin_allocator.terms import ShareMode

CardClass = tuple[int, str, tuple[int, ...], tuple[int, ...]]
"""What cards are told apart by: bytes of memory, 0 where they are not known; the product where that matters; in which
amounts the driver lets memory be consumed: default, least, most, step (-1 for none), then values; empty for any; what
others consume of it: memory, and how many parts more there may be (-1 for any number); empty where nobody does.
"""

RULES = 4096
"""How many rules are kept; making one again costs little."""


def clash(held: Mapping[PlacedShare, int], device: Device, share: Share | None) -> bool:
    """Whether not all of these parts can be held of one device, whatever a share gives by now: more memory or compute
    than the device has, one function twice, or partitions on one slice.
    """
    if sum((each.compute_milli or 0) * times for each, times in held.items()) > MILLI:
        return True
    memory = memory_bytes(device)
    if memory is not None and sum((each.memory_bytes or 0) * times for each, times in held.items()) > memory:
        return True
    if any(times > 1 and (each.vf is not None or each.start is not None) for each, times in held.items()):
        return True
    functions = [each.vf for each in held if each.vf is not None]
    if len(set(functions)) < len(functions):
        return True
    made = None if share is None else rule_for(share, device)
    if not isinstance(made, PartitionRule):
        return False
    slots = [made.slot(each.profile or "", each.start) for each in held if each.start is not None]
    return sum(slot.size for slot in slots) > occupied(slots).bit_count()


def class_of(device: Device, products: bool) -> CardClass:
    """The class of a card, with `products` also by its product."""
    policy = memory_policy(device) if device.allow_multiple_allocations else None
    amounts: tuple[int, ...] = ()
    if policy is not None:
        told = (policy.default, policy.least, policy.most, policy.step)
        amounts = (*(-1 if each is None else each for each in told), *policy.values)
    lent = () if device.lent is None else (device.lent.memory, -1 if device.lent.parts is None else device.lent.parts)
    return memory_bytes(device) or 0, product_name(device) if products else "", amounts, lent


def _policy(amounts: tuple[int, ...]) -> RequestPolicy | None:
    if not amounts:
        return None
    default, least, most, step = (None if each < 0 else each for each in amounts[:4])
    return RequestPolicy(default, amounts[4:], least, most, step)


def product_name(device: Device) -> str:
    """A device's product as its driver publishes it (attribute `productName` of any domain), or ""."""
    found = ""
    for name, value in sorted(device.attributes.items()):
        if name.rpartition("/")[2] == "productName" and isinstance(value, str):
            if name.startswith(f"{device.driver}/"):
                return value
            found = found or value
    return found


@lru_cache(RULES)
def rule(share: Share, card: CardClass) -> CardRule:
    """What a share makes of cards of a class."""
    if share.mode is ShareMode.TIME_SLICED:
        return CardRule(share, share.slots)
    if share.mode is ShareMode.VIRTUAL_FUNCTIONS:
        return CardRule(share, share.functions)
    if share.mode is ShareMode.PARTITIONED:
        geometry = custom(share.table) if share.table else built_in(card[1], card[0] or None)
        cap = 0 if geometry is None else geometry.slices
        return PartitionRule(share, cap, card[0], geometry=geometry, product=card[1])
    clients = MANY if share.max_clients is None else share.max_clients
    lent = Lent(card[3][0], None if card[3][1] < 0 else card[3][1]) if card[3] else None
    return CardRule(share, shareable_bytes(share, card[0]), card[0], clients, _policy(card[2]), lent)


def rule_for(share: Share, device: Device) -> CardRule:
    """What a share makes of a device."""
    return rule(share, class_of(device, share.mode is ShareMode.PARTITIONED))
