"""What would help a part of a card that cannot be had: cards that could give it if they were not as they are.

In come the placer, a request for parts that no node can serve, and the array of its cards; out come reasons for what
passes or can be repaired: parts and devices on their way back, nodes that take nothing new, cards that are not well,
not published in full or not guarded. Each is asked alone: it would fit if this one thing were the other way. Nothing is
taken here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from adjoin_allocator.card_rules import UNUSED, CardRule, Use
from adjoin_allocator.explain import listed, nodes_word
from adjoin_allocator.model import PlacedShare
from adjoin_allocator.place import Placer
from adjoin_allocator.results import Code, Reason
from adjoin_allocator.stock import Booleans, Stock, Wish
from adjoin_allocator.terms import Standing

_CODES = {
    Standing.UNHEALTHY: Code.UNHEALTHY,
    Standing.QUARANTINED: Code.QUARANTINED,
    Standing.WITHHELD: Code.DRIVER_UNAVAILABLE,
    Standing.UNGUARDED: Code.DRIVER_UNAVAILABLE,
}
_WORDS = {
    Standing.UNHEALTHY: "unhealthy",
    Standing.QUARANTINED: "quarantined",
    Standing.WITHHELD: "with an incomplete inventory",
    Standing.UNGUARDED: "not guarded yet by a DeviceTaintRule",
}


@dataclass(slots=True)
class _Node:
    """By column what is in use of the cards of one node that could give a part now, None for others."""

    rules: list[CardRule]
    uses: list[Use | None]

    def fits(self, wish: Wish) -> bool:
        """Whether enough of them could give a part."""
        each = wish.of_each
        both = zip(self.rules, self.uses, strict=True)
        return sum(use is not None and rule.after(use, each) is not None for rule, use in both) >= wish.parts

    def give(self, column: int, use: Use) -> None:
        """Of a card only so much would be in use."""
        self.uses[column] = use


@dataclass(slots=True, eq=False)
class Cards:
    """The cards of one request.

    Attributes:
        at: Index of its share in the stock.
        mine: Cards that could give something now, as if no node were closed.
    """

    placer: Placer
    pool: str
    kind: str
    stock: Stock
    at: int
    wish: Wish
    mine: Booleans

    def reasons(self) -> Iterator[Reason]:
        """All that would help, what passes first."""
        yield from self._releasing()
        yield from self._closed()
        yield from self._unwell()

    def _node(self, position: int) -> _Node:
        rules = self.stock.rules[self.at]
        uses = [self._left(position, column) if mine else None for column, mine in enumerate(self.mine[position])]
        return _Node([rules[klass] for klass in self.stock.klass[position].tolist()], uses)

    def _closed(self) -> Iterator[Reason]:
        index = self.placer.ledger.pools[self.pool].index
        found = [at for at in sorted(index.closed) if self._node(at).fits(self.wish)]
        if found:
            why = [f"{index.views[at].name} {index.closed[at][1]}" for at in found]
            yield Reason(
                Code.NODE_UNAVAILABLE, len(found), f"{nodes_word(len(found))} would fit, but {listed(why, len(found))}"
            )

    def _chosen(self, position: int) -> list[tuple[int, int]]:
        """The columns and bits of the cards that the request may have."""
        columns = self.placer.ledger.parts.columns(self.pool, self.kind, position)
        eligible = self.stock.selected[self.at][position] & self.stock.eligible[self.wish.only][position]
        return [(column, bit) for column, bit in enumerate(columns) if eligible[column]]

    def _splits(self, back: int) -> bool:
        """Whether the share may split one card more, when so many of its cards are no longer split."""
        limit = self.stock.shares[self.at].max_devices
        return limit is None or self.stock.in_mode[self.at] - back < limit

    def _releasing(self) -> Iterator[Reason]:
        """Nodes where what is on its way back would be enough."""
        ledger = self.placer.ledger.pools[self.pool]
        found = []
        for position in sorted(ledger.returning | self.placer.ledger.parts.returning(self.pool)):
            if position in ledger.index.closed:
                continue
            node, back = self._node(position), ledger.back(position)
            gone: dict[int, list[PlacedShare]] = {}
            for _, _, parts, releasing in self.placer.ledger.part_hands(self.pool, position):
                for bit, share in parts if releasing else ():
                    gone.setdefault(bit, []).append(share)
            entire = ledger.entire(position)
            split = ledger.divided(position)
            for column, bit in self._chosen(position):
                if not ledger.index.views[position].offered >> bit & 1:
                    continue
                if back >> bit & 1 and (entire | split) >> bit & 1:
                    if self._splits(int(self.stock.used[0, position, column] == self.at)):
                        node.give(column, UNUSED)
                elif bit in gone and self.stock.used[0, position, column] == self.at:
                    held = Counter(self.placer.ledger.parts.held_of(self.pool, position, bit))
                    held.subtract(gone[bit])
                    node.give(column, node.rules[column].use(held.items()))
            if node.fits(self.wish):
                found.append(position)
        if found:
            names = listed([ledger.index.views[at].name for at in found], len(found))
            message = f"{nodes_word(len(found))} would fit with devices that are being released: {names}"
            yield Reason(Code.DEVICE_RELEASING, len(found), message)

    def _left(self, position: int, column: int) -> Use:
        """What is in use of a card, if the share has split it."""
        found = self.stock.use(position, column)
        return UNUSED if found is None else found[1]

    def _unwell(self) -> Iterator[Reason]:
        """Nodes where cards that cannot be given for one reason would be enough."""
        ledger = self.placer.ledger.pools[self.pool]
        for standing, code in _CODES.items():
            helped, told = 0, list[str]()
            for position, view in enumerate(ledger.index.views):
                mask = view.standing.get(standing, 0)
                if not mask or position in ledger.index.closed:
                    continue
                node, names, entire = self._node(position), list[str](), ledger.entire(position)
                for column, bit in self._chosen(position):
                    if not mask >> bit & 1 or entire >> bit & 1:
                        continue
                    mode = int(self.stock.used[0, position, column])
                    if mode != self.at and (mode >= 0 or not self._splits(0)):
                        continue
                    node.give(column, self._left(position, column) if mode == self.at else UNUSED)
                    device = view.devices[bit]
                    detail = f" ({device.standing_detail})" if device.standing_detail else ""
                    names.append(f"{view.name}/{device.id.device}{detail}")
                if names and node.fits(self.wish):
                    helped += 1
                    told += names
            if helped:
                message = f"{len(told)} {_WORDS[standing]} where it would fit otherwise: {listed(told)}"
                yield Reason(code, helped, message)
