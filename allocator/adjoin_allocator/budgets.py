"""Counters that the devices of one piece of hardware share: which of them can still be given beside those that are.

In come devices with what they consume of which counter sets (`Device.consumes`), out comes a `Counters` for the devices
of one pool on one node, or None where nobody consumes anything; and from the state of a node the devices that fit into
what is left. Nothing here knows claims.

**The state of a node** is one integer, as everywhere: its lowest `size` bits are the devices that nobody has and that
may be given. Where there are counters, the next `size` bits are devices that nobody has either, but which may not be
given (an unhealthy one takes no counters). All others are in somebody's hands and take theirs. So whoever takes devices
out of a state, or puts some back, says the right thing about the counters too; only which devices can be given *now*
has to be asked (`usable`).

Devices in quarantine are in somebody's hands: what is left of them may still be on the card.

Amounts are made whole numbers by their common denominator and divided by what all amounts of a counter have in common;
what is left is rounded down to that, which changes no sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, gcd, lcm

from adjoin_allocator.model import Consumed, CounterUse, Device, SetUse
from adjoin_allocator.wiring import bits

MILLI = 1000
"""A whole card."""

EIGHTHS = 8
"""Sizes of partitions that are told apart when it is counted what a choice leaves of a card."""

LOST_BITS = 10
"""Bits for the number of partitions of one size that a choice costs: more than a node has devices."""

SUMS = 20_000
"""Sums that are looked at to know how many devices of a card go together."""

KEPT = 65_536
"""How many states are remembered."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One counter: what of it there is for the devices here, and what each of them takes of it."""

    left: int
    amounts: tuple[tuple[int, int], ...]

    @property
    def mask(self) -> int:
        """The devices that take of it."""
        return sum(1 << device for device, _ in self.amounts)


@dataclass(frozen=True, slots=True, eq=False)
class Counters:
    """The counters of a pool's devices on a node.

    Attributes:
        size: Number of devices; bits beyond are as the module's docstring says.
        budgets: The counters that could run out.
        cards: Disjoint masks of devices that share counters: each is one piece of hardware. A device that consumes
            nothing is in none.
        portions: By device its largest part of the card, in thousandths rounded up; 1000 for one without counters.
    """

    size: int
    budgets: tuple[Budget, ...]
    cards: tuple[int, ...]
    portions: tuple[int, ...]
    _of_card: dict[int, tuple[Budget, ...]] = field(default_factory=dict)
    _taken: dict[tuple[int, int], int] = field(default_factory=dict)
    _usable: dict[int, int] = field(default_factory=dict)
    _most: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def whole(self) -> int:
        """Devices that are a whole card, or have no counters."""
        return sum(1 << device for device, portion in enumerate(self.portions) if portion >= MILLI)

    def usable(self, state: int) -> int:
        """The devices of a state that can be given, each for itself."""
        known = self._usable.get(state)
        if known is None:
            known = state & (1 << self.size) - 1
            held = self._held(state)
            for card in self.cards:
                if known & card:
                    known &= ~self._full(card, held & card)
            if len(self._usable) >= KEPT:
                self._usable.clear()
            self._usable[state] = known
        return known

    def only(self, state: int, mask: int) -> int:
        """The state in which of all devices that can be given only these are left, and nobody has the others."""
        mine = state & (1 << self.size) - 1
        return (state & ~mine) | (mine & mask) | (mine & ~mask) << self.size

    def left(self, state: int) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
        """Per counter what is left of it, which may be less than nothing, and what each device takes of it."""
        held = self._held(state)
        for budget in self.budgets:
            yield self._rest(budget, held), budget.amounts

    def enough(self, held: int, taken: int) -> bool:
        """Whether there is enough of what these devices take, which are among those that somebody has."""
        return all(self._rest(budget, held) >= 0 for budget in self.budgets if budget.mask & taken)

    def most(self, state: int, mask: int) -> int:
        """How many of these devices can be given together, whatever they are wired like."""
        mask &= self.usable(state)
        found, held = 0, self._held(state)
        for card in self.cards:
            found += self._together(card, held & card, mask & card)
            mask &= ~card
        return found + mask.bit_count()

    def _together(self, card: int, held: int, mask: int) -> int:
        """`most` of one card, by all sums that can come about; past a limit, as many as there are."""
        if not mask & mask - 1:
            return mask.bit_count()
        known = self._most.get((held, mask))
        if known is None:
            mine = [budget for budget in self.budgets if budget.mask & mask]
            amounts = [dict(budget.amounts) for budget in mine]
            sums: dict[tuple[int, ...], int] = {tuple(self._rest(budget, held) for budget in mine): 0}
            for device in bits(mask):
                takes = tuple(each.get(device, 0) for each in amounts)
                for rest, count in list(sums.items()):
                    left = tuple(have - takes[at] for at, have in enumerate(rest))
                    if min(left, default=0) >= 0:
                        sums[left] = max(count + 1, sums.get(left, 0))
                if len(sums) > SUMS:
                    break
            known = max(sums.values()) if len(sums) <= SUMS else mask.bit_count()
            if len(self._most) >= KEPT:
                self._most.clear()
            self._most[held, mask] = known
        return known

    def rivals(self, mask: int) -> int:
        """These devices and all that share counters with one of them."""
        for card in self.cards:
            if card & mask:
                mask |= card
        return mask

    def losses(self, state: int) -> Iterator[tuple[int, int]]:
        """What a choice may cost others of a card: masks of usable devices, with a price that is due when one of them
        is taken. It counts a device that could be given before and cannot any more, the larger the dearer: no number
        of smaller ones comes to a larger one.
        """
        usable = self.usable(state)
        prices: dict[int, int] = {}
        for card in self.cards:
            here = usable & card
            if here & here - 1:
                kept = {taken: self.usable(state & ~(1 << taken)) & here for taken in bits(here)}
                for device in bits(here):
                    killers = sum(1 << taken for taken, after in kept.items() if not after >> device & 1)
                    prices[killers] = prices.get(killers, 0) + self._price(device)
        yield from sorted(prices.items())

    def lost(self, state: int, taken: int) -> int:
        """What taking these devices out of a state costs others, in the unit of `losses`."""
        return sum(price for mask, price in self.losses(state) if mask & taken)

    def _price(self, device: int) -> int:
        return 1 << LOST_BITS * (-(-self.portions[device] * EIGHTHS // MILLI) - 1)

    def _held(self, state: int) -> int:
        return (1 << self.size) - 1 & ~(state | state >> self.size)

    def _rest(self, budget: Budget, held: int) -> int:
        return budget.left - sum([amount for device, amount in budget.amounts if held >> device & 1])

    def _full(self, card: int, held: int) -> int:
        """Devices of a card that do not fit beside those that somebody has."""
        known = self._taken.get((card, held))
        if known is None:
            mine = self._of_card.get(card)
            if mine is None:
                mine = self._of_card[card] = tuple(budget for budget in self.budgets if budget.mask & card)
            known = 0
            for budget in mine:
                rest = self._rest(budget, held)
                for device, amount in budget.amounts:
                    if amount > rest:
                        known |= 1 << device
            if len(self._taken) >= KEPT:
                self._taken.clear()
            self._taken[card, held] = known
        return known


Key = tuple[int, tuple[Budget, ...], tuple[int, ...], tuple[int, ...]]
"""What makes counters equal."""


def counters_key(devices: Sequence[Device]) -> Key | None:
    """What `Counters` of these devices are made of, equal for nodes that are alike; None where nobody consumes."""
    if not any(device.consumes for device in devices):
        return None
    takers: dict[tuple[str, str, str], dict[str, list[tuple[int, Fraction]]]] = {}
    card_of = list(range(len(devices)))
    for at, device in enumerate(devices):
        for name, amounts in device.consumes.items():
            counters = takers.setdefault((device.driver, device.id.pool, name), {})
            for counter, amount in amounts.items():
                counters.setdefault(counter, []).append((at, amount.value))
    for counters in takers.values():
        together = {card_of[at] for taken in counters.values() for at, _ in taken}
        first = min(together, default=0)
        card_of = [first if card in together else card for card in card_of]
    cards: dict[int, int] = {}
    for at, device in enumerate(devices):
        if device.consumes:
            cards[card_of[at]] = cards.get(card_of[at], 0) | 1 << at
    budgets: list[Budget] = []
    for (_, _, name), counters in takers.items():
        for counter, taken in counters.items():
            one = devices[taken[0][0]]
            total = _total(one, name, counter, taken)
            outside = one.outside.get(name, {}).get(counter)
            left = total - (outside.value if outside is not None else 0)
            if sum(takes for _, takes in taken) > left:
                budgets.append(_budget(left, [each for each in taken if each[1] > 0]))
    milli = tuple(_portion(device) for device in devices)
    ordered = tuple(sorted(dict.fromkeys(budgets), key=lambda budget: (budget.amounts, budget.left)))
    return len(devices), ordered, tuple(cards[card] for card in sorted(cards)), milli


def _portion(device: Device) -> int:
    """The largest part of a counter set that a device takes, in thousandths rounded up.

    Counters that differ in their number alone (`memory-slice-0`, `memory-slice-1`) are one amount. One of which there
    is but a single unit is no measure (whoever needs the only decoder does not need the card), unless there is nothing
    else.
    """
    largest: Fraction | None = None
    for name, amounts in device.consumes.items():
        totals = device.counters.get(name, {})
        taken: dict[str, Fraction] = {}
        there: dict[str, Fraction] = {}
        for counter, total in totals.items():
            group = _NUMBER.sub("#", counter)
            there[group] = there.get(group, Fraction(0)) + total.value
        for counter, amount in amounts.items():
            group = _NUMBER.sub("#", counter)
            taken[group] = taken.get(group, Fraction(0)) + amount.value
        for group, part in taken.items():
            whole = there.get(group, Fraction(0))
            if whole > 1:
                largest = max(largest or Fraction(0), part / whole)
    if not device.consumes or largest is None:
        return MILLI
    return max(1, min(MILLI, ceil(largest * MILLI)))


_NUMBER = re.compile(r"[0-9]+")


def _total(device: Device, name: str, counter: str, taken: Sequence[tuple[int, Fraction]]) -> Fraction:
    held = device.counters.get(name)
    if held is None:
        return max(amount for _, amount in taken)
    total = held.get(counter)
    return total.value if total is not None else Fraction(0)


def _budget(left: Fraction, taken: Sequence[tuple[int, Fraction]]) -> Budget:
    scale = lcm(left.denominator, *(amount.denominator for _, amount in taken))
    amounts = [(at, int(amount * scale)) for at, amount in taken]
    unit = gcd(*(amount for _, amount in amounts)) or 1
    return Budget(int(left * scale) // unit, tuple((at, amount // unit) for at, amount in amounts))


def consumed_by(device: Device) -> Consumed:
    """What a device takes of counters, as it is recorded: whole amounts, rounded up."""
    if not device.consumes:
        return ()
    return tuple(
        SetUse(name, tuple(CounterUse(counter, amount.as_int()) for counter, amount in sorted(amounts.items())))
        for name, amounts in sorted(device.consumes.items())
    )


def recorded(consumed: Consumed) -> dict[str, dict[str, int]]:
    """A record as it stands in a status."""
    return {each.counter_set: {use.counter: use.amount for use in each.uses} for each in consumed}
