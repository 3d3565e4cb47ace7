"""What a share makes of a card: how much of it there is to give, what parts take, whether one more fits.

In come a share, what is known of a card, and parts that are asked for or held; out come uses of a card (`Use`), what is
left, and what a part costs. Every mode is a rule of its own, and everybody else asks the rule: units of a card are
bytes where memory is divided, slots where time is, functions where a NIC is, and memory slices where partitions are.
Nothing here knows who holds what, or chooses between cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from adjoin_allocator.amounts import counted, size
from adjoin_allocator.model import Lent, PlacedShare, RequestPolicy, Share
from adjoin_allocator.policies import consumed
from adjoin_allocator.sharing import AMOUNTS, MILLI, PIECES, Part, part
from adjoin_allocator.terms import ShareMode

Use = tuple[int, int, int]
"""What of a card is in use: its units, thousandths of its compute, and what else counts (of MPS how many clients)."""

UNUSED: Use = (0, 0, 0)

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
        policy: In which amounts the driver lets memory be consumed; None for any.
        lent: What others than the share's users consume of the card; None where nobody does.
    """

    share: Share
    cap: int
    memory: int = 0
    clients: int = MANY
    policy: RequestPolicy | None = None
    lent: Lent | None = None

    @property
    def room(self) -> int:
        """Units that the share's users may have together beside what others consume."""
        return self.cap if self.lent is None else max(0, self.cap - self.lent.memory)

    @property
    def most(self) -> int:
        """How many parts they may have together."""
        return self.clients if self.lent is None or self.lent.parts is None else min(self.clients, self.lent.parts)

    def heads(self, asked: Part) -> int:
        """As how many users a part counts where their number is limited."""
        return asked.clients if self.lent is None or self.lent.parts is None else asked.number

    def units(self, asked: Part) -> int | None:
        """What a part takes in units, as the driver counts it; None where the driver gives no such part."""
        if self.policy is None or self.share.mode not in AMOUNTS:
            return asked.units
        each = consumed(self.policy, None if asked.amount is None else asked.amount // asked.number, self.memory)
        return None if each is None else each * asked.number

    def use(self, held: Iterable[tuple[PlacedShare, int]]) -> Use:
        """What these parts take together, each with how often it is held."""
        units = milli = clients = 0
        for placed, times in held:
            each = part(placed, self.share)
            # What is held was given once, whatever the driver would say of it today.
            units += (self.units(each) or each.units) * times
            milli += each.milli * times
            clients += self.heads(each) * times
        return units, milli, clients

    def knows(self, use: Use) -> bool:
        """Whether it can say something of a use."""
        del use
        return True

    def after(self, use: Use, asked: Part) -> Use | None:
        """The use of a card with one part more, or None when it does not fit."""
        taken = self.units(asked)
        if taken is None:
            return None
        units, milli, clients = use[0] + taken, use[1] + asked.milli, use[2] + self.heads(asked)
        return None if units > self.room or milli > MILLI or clients > self.most else (units, milli, clients)

    def left_milli(self, use: Use) -> int:
        """What is left of a card, by its scarcest resource in thousandths, rounded down."""
        left = MILLI - use[1]
        if self.cap:
            left = min(left, (self.room - use[0]) * MILLI // self.cap)
        if self.most < MANY:
            left = min(left, (self.most - use[2]) * MILLI // max(1, self.most))
        return max(0, left)

    def size(self, asked: Part) -> int:
        """Which part of a card a part takes, in thousandths, where remainders are compared: its largest fraction, cut
        off, so that as many as there are of them make a card. One with memory takes all of a card that has less.
        """
        size, units = asked.milli, self.units(asked)
        if units is None:
            return MILLI
        if units:
            size = max(size, min(MILLI, units * MILLI // self.cap) if self.cap else MILLI)
        if asked.clients and self.clients < MANY:
            size = max(size, asked.clients * MILLI // self.clients)
        return max(1, size)

    def exact(self, asked: Part) -> int | None:
        """How many thousandths it takes, where parts of which these are no more than a card's surely fit together; None
        where thousandths do not tell.
        """
        if asked.clients or (self.share.mode in PIECES and (not self.cap or MILLI % self.cap)):
            return None
        return self._part(asked, self.cap)

    def cost(self, asked: Part) -> int:
        """What a part costs of a quota: its largest fraction of the card in thousandths, rounded up; of all its memory,
        whatever the share keeps back. One with memory costs a whole card that has none to give, or less.
        """
        return self._part(asked, self.memory or self.cap if self.share.mode in AMOUNTS else self.cap)

    def _part(self, asked: Part, whole: int) -> int:
        taken, units = self.units(asked), 0
        if taken is None:
            return MILLI
        if taken:
            units = MILLI if not self.cap else min(MILLI, -(-taken * MILLI // whole))
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
            yield f"{clients}/{counted(self.clients, 'client')} of {name} are in use"

    def _word(self, number: int) -> str:
        word = "slot" if self.share.mode is ShareMode.TIME_SLICED else "function"
        return word if number == 1 else f"{word}s"

    def told(self, use: Use) -> str:
        """What a card has left, in words."""
        left = max(0, self.room - use[0])
        if self.share.mode in AMOUNTS:
            return f"{size(left)}, {max(0, MILLI - use[1])}m"
        return f"{left} {self._word(left)}"

    def loss(self, use: Use, asked: Part, demand: Mapping[str, int]) -> int | None:
        """What a card is worth less with the part on it, in millionths of a card, where profiles are asked for so
        often; None where that is a question of prices, or it does not fit.
        """
        del use, asked, demand
        return None

    def smaller(self, profile: str) -> list[str]:
        """Smaller profiles than this one, the largest first."""
        del profile
        return []

    def times(self, use: Use, asked: Part) -> int:
        """How many such parts are left on a card."""
        found, taken = [], self.units(asked)
        if taken is None:
            return 0
        if taken:
            found.append((self.room - use[0]) // taken)
        if asked.milli:
            found.append((MILLI - use[1]) // asked.milli)
        if heads := self.heads(asked):
            found.append((self.most - use[2]) // heads)
        return max(0, min(found, default=0))
