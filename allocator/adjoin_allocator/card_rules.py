"""What a share makes of a card: how much of it there is to give, what parts take, whether one more fits.

In come a share, a class of card, and parts that are asked for or held; out come uses of a card (`Use`), what is left,
and what a part costs. Every mode is a rule of its own here, and everybody else asks the rule: units of a card are bytes
where memory is divided, slots where time is, functions where a NIC is, and memory slices where partitions are made.
Nothing here knows who holds what, or chooses between cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from adjoin_allocator.amounts import size
from adjoin_allocator.model import Device, PlacedShare, Share
from adjoin_allocator.sharing import AMOUNTS, MILLI, PIECES, Part, memory_bytes, part, shareable_bytes
from adjoin_allocator.terms import ShareMode

Use = tuple[int, int, int]
"""What of a card is in use: its units, thousandths of its compute, and what else counts (of MPS how many clients)."""

UNUSED: Use = (0, 0, 0)

CardClass = tuple[int, str]
"""What cards are told apart by: bytes of memory, 0 where they are not known, and the product where that matters."""

RULES = 4096
"""How many rules are kept; making one again costs little."""

MANY = 1 << 40
"""More clients than a device has."""


@dataclass(frozen=True, slots=True, eq=False)
class CardRule:
    """A share on one class of card, where parts add up.

    Attributes:
        share: The share.
        cap: Units that there are to give.
        memory: Bytes of the card's memory, 0 where they are not known.
        clients: Most parts of one card.
    """

    share: Share
    cap: int
    memory: int = 0
    clients: int = MANY

    def use(self, held: Iterable[tuple[PlacedShare, int]]) -> Use:
        """What these parts take together, each with how often it is held."""
        units = milli = clients = 0
        for placed, times in held:
            each = part(placed, self.share)
            units += each.units * times
            milli += each.milli * times
            clients += each.clients * times
        return units, milli, clients

    def after(self, use: Use, asked: Part) -> Use | None:
        """The use of a card with one part more, or None when it does not fit."""
        units, milli, clients = use[0] + asked.units, use[1] + asked.milli, use[2] + asked.clients
        return None if units > self.cap or milli > MILLI or clients > self.clients else (units, milli, clients)

    def left_milli(self, use: Use) -> int:
        """What is left of a card, by its scarcest resource in thousandths, rounded down."""
        left = MILLI - use[1]
        if self.cap:
            left = min(left, (self.cap - use[0]) * MILLI // self.cap)
        if self.clients < MANY:
            left = min(left, (self.clients - use[2]) * MILLI // self.clients)
        return max(0, left)

    def size(self, asked: Part) -> int:
        """Which part of a card a part takes, in thousandths, when remainders are compared: its cost; of pieces rounded
        down, so that as many as there are of them make a card.
        """
        if self.clients < MANY:
            return max(self.cost(asked), asked.clients * MILLI // self.clients)
        pieces = self.share.mode in PIECES and self.cap
        return max(1, min(MILLI, asked.units * MILLI // self.cap)) if pieces else self.cost(asked)

    def exact(self, asked: Part) -> int | None:
        """Its size, where parts fit together just when their sizes do; else None."""
        if asked.clients or (self.share.mode in PIECES and (not self.cap or MILLI % self.cap)):
            return None
        return self.size(asked)

    def cost(self, asked: Part) -> int:
        """What a part costs of a quota: its largest fraction of the card in thousandths, rounded up. One with memory
        costs a whole card that has none to give, or less.
        """
        units = 0
        if asked.units:
            units = MILLI if not self.cap else min(MILLI, -(-asked.units * MILLI // self.cap))
        return max(units, asked.milli)

    def excess(self, held: Mapping[PlacedShare, int], name: str) -> Iterator[str]:
        """Of what of a card more is in use than the share gives by now, in words."""
        units, _, clients = self.use(held.items())
        if units > self.cap and self.share.mode in AMOUNTS:
            # A card whose memory is not known is not the share's doing.
            if self.memory:
                yield f"{size(units)} of {name} is in use, it gives {size(self.cap)}"
        elif units > self.cap:
            yield f"{units}/{self.cap} {self._word(units)} of {name} are in use"
        if clients > self.clients:
            yield f"{clients}/{self.clients} clients of {name} are in use"

    def _word(self, number: int) -> str:
        word = "slot" if self.share.mode is ShareMode.TIME_SLICED else "function"
        return word if number == 1 else f"{word}s"

    def told(self, use: Use) -> str:
        """What a card has left, in words."""
        left = max(0, self.cap - use[0])
        if self.share.mode in AMOUNTS:
            return f"{size(left)}, {max(0, MILLI - use[1])}m"
        return f"{left} {self._word(left)}"

    def smaller(self, profile: str) -> list[str]:
        """Smaller profiles than this one, the largest first."""
        del profile
        return []

    def times(self, use: Use, asked: Part) -> int:
        """How many such parts are left on a card."""
        found = []
        if asked.units:
            found.append((self.cap - use[0]) // asked.units)
        if asked.milli:
            found.append((MILLI - use[1]) // asked.milli)
        if asked.clients:
            found.append((self.clients - use[2]) // asked.clients)
        return max(0, min(found, default=0))


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
    return len(set(functions)) < len(functions)


def class_of(device: Device, products: bool) -> CardClass:
    """The class of a card, with `products` also by its product."""
    return memory_bytes(device) or 0, product_name(device) if products else ""


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
    assert share.mode in AMOUNTS
    clients = MANY if share.max_clients is None else share.max_clients
    return CardRule(share, shareable_bytes(share, card[0]), card[0], clients)


def rule_for(share: Share, device: Device) -> CardRule:
    """What a share makes of a device."""
    return rule(share, class_of(device, share.mode is ShareMode.PARTITIONED))
