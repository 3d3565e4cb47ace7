"""What a share of mode Partitioned makes of a card: which partitions can be there together.

In come the partitions of a card that are somewhere already, and those that this decision gives and whose places are
open; out come whether one more fits, what it costs of what may still come, and in the end a place for each. Places stay
open while claims are served: a partition fits as long as there is any arrangement of all open ones around the fixed
ones, so that the order in which claims come never costs a place. A fixed partition is never moved.

The use of a card (`Use`) is its memory slices in use, nothing, and a number that tells its partitions apart, the same
for the same partitions whatever was asked before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from adjoin_allocator.card_rules import UNUSED, CardRule, Use
from adjoin_allocator.geometry import Geometry
from adjoin_allocator.model import PlacedShare
from adjoin_allocator.partitions import Refusal, Slot, arrange, compute_used, occupied, relayout, starts
from adjoin_allocator.prospects import SCALE, Outlook, outlook
from adjoin_allocator.sharing import MILLI, Part

Held = tuple[tuple[Slot, ...], tuple[tuple[str, int], ...]]
"""Partitions at their places, in order; and of which profiles how many are open, by name."""

EMPTY: Held = ((), ())

UNIT = 1_000_000
"""A whole card, as losses are told."""

KNOWN = 1 << 16
"""How many uses of one kind of card are remembered."""

_MOST = 1 << 8
"""More partitions of a profile than a card has."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionRule(CardRule):
    """A share on one class of card that is cut into partitions.

    Attributes:
        geometry: Where partitions may lie; None for a product that is not known.
        product: The card's product, for messages.
    """

    geometry: Geometry | None = None
    product: str = ""
    _held: dict[Use, Held] = field(default_factory=dict)
    _after: dict[tuple[Use, str, int], Use | None] = field(default_factory=dict)
    _values: dict[tuple[Outlook, Use], int] = field(default_factory=dict)

    # Uses

    def use(self, held: Iterable[tuple[PlacedShare, int]]) -> Use:
        """What these partitions take; one of an unknown profile takes the whole card (see `strangers`)."""
        fixed: list[Slot] = []
        open_: Counter[str] = Counter()
        for placed, times in held:
            name = placed.profile or ""
            if placed.start is None:
                open_[name] += times
            elif times:
                fixed.append(self.slot(name, placed.start))
        return self._number((tuple(sorted(fixed)), tuple(sorted((+open_).items()))))

    def slot(self, profile: str, start: int) -> Slot:
        """A partition at its place; one of an unknown profile has a slice where it begins."""
        known = None if self.geometry is None else self.geometry.profiles.get(profile)
        return Slot(profile=profile, start=start, size=1 if known is None else known.size)

    def strangers(self, fixed: Iterable[Slot]) -> tuple[Slot, ...]:
        """Partitions in use of profiles that the table does not have, by now or ever. How far they reach is not known,
        so that nothing else of their card can be given.
        """
        known = {} if self.geometry is None else self.geometry.profiles
        return tuple(slot for slot in fixed if slot.profile not in known)

    def knows(self, use: Use) -> bool:
        """Whether a use came from this rule."""
        return use == UNUSED or use in self._held

    def held(self, use: Use) -> Held:
        """The partitions of a use. It must have come from this rule."""
        return EMPTY if use == UNUSED else self._held[use]

    def _number(self, held: Held) -> Use:
        if held == EMPTY:
            return UNUSED
        fixed, open_ = held
        names = self._names
        number = 0
        for slot in fixed:
            number |= 1 << (names.get(slot.profile, len(names)) * (self.cap + 1) + min(slot.start, self.cap))
        for name, times in open_:
            number += times << (len(names) + 1) * (self.cap + 1) + 8 * names.get(name, len(names))
        sizes = {} if self.geometry is None else self.geometry.profiles
        taken = occupied(fixed).bit_count() + sum(sizes[name].size * n for name, n in open_ if name in sizes)
        use = (self.cap if self.strangers(fixed) else taken, 0, number)
        if len(self._held) >= KNOWN and use not in self._held:
            self._forget()
        self._held[use] = held
        return use

    @property
    def _names(self) -> Mapping[str, int]:
        return {} if self.geometry is None else {name: at for at, name in enumerate(sorted(self.geometry.profiles))}

    def _forget(self) -> None:
        self._after.clear()
        self._values.clear()

    # What fits

    def after(self, use: Use, asked: Part) -> Use | None:
        """The use of a card with one part more, or None when no arrangement has it."""
        key = (use, asked.profile, asked.number)
        if key not in self._after:
            if len(self._after) >= KNOWN:
                self._forget()
            self._after[key] = self._with(use, asked.profile, asked.number)
        return self._after[key]

    def _with(self, use: Use, profile: str, number: int) -> Use | None:
        if self.geometry is None or profile not in self.geometry.profiles or number >= _MOST:
            return None
        fixed, open_ = self.held(use)
        if self.strangers(fixed):
            return None
        wanted = Counter(dict(open_))
        wanted[profile] += number
        if self.places(fixed, wanted) is None:
            return None
        return self._number((fixed, tuple(sorted(wanted.items()))))

    def places(self, fixed: tuple[Slot, ...], wanted: Mapping[str, int]) -> Mapping[str, tuple[Slot, ...]] | None:
        """Some arrangement of open partitions around fixed ones, by profile in order of place; None without one. Of a
        layout the partitions that nobody has.
        """
        assert self.geometry is not None
        if self.share.layout:
            layout = relayout(self.geometry, fixed, self.share.layout)
            if isinstance(layout, Refusal):
                return None
            spare = _new(layout, fixed)
            found = {name: spare.get(name, ())[:number] for name, number in wanted.items()}
            return found if all(len(found[name]) == number for name, number in wanted.items()) else None
        if any(name not in self.share.profiles for name in wanted):
            return None
        layout = arrange(self.geometry, wanted, fixed)
        if isinstance(layout, Refusal):
            return None
        return _new(layout, fixed)

    def times(self, use: Use, asked: Part) -> int:
        """How many such parts are left on a card."""
        number, now = 0, self.after(use, asked)
        while now is not None:
            number, now = number + 1, self.after(now, asked)
        return number

    # What it costs

    def left_milli(self, use: Use) -> int:
        """Memory slices that are left, in thousandths of the card, rounded down."""
        return max(0, (self.cap - use[0]) * MILLI // self.cap) if self.cap else 0

    def size(self, asked: Part) -> int:
        """Which part of the card's memory slices it takes, in thousandths, rounded down."""
        known = None if self.geometry is None else self.geometry.profiles.get(asked.profile)
        return MILLI if known is None else max(1, min(MILLI, asked.number * known.size * MILLI // self.cap))

    def slices(self, asked: Part) -> tuple[int, int]:
        """How many memory and compute slices it takes; of an unknown profile nothing is known."""
        known = None if self.geometry is None else self.geometry.profiles.get(asked.profile)
        return (0, 0) if known is None else (asked.number * known.size, asked.number * known.compute)

    def left_slices(self, use: Use) -> tuple[int, int]:
        """How many memory and compute slices are left."""
        if self.geometry is None:
            return 0, 0
        fixed, open_ = self.held(use)
        taken = sum(self.slices(Part(profile=name, number=number))[1] for name, number in open_)
        return self.cap - use[0], self.geometry.compute - compute_used(self.geometry, fixed) - taken

    def cost(self, asked: Part) -> int:
        """What it costs of a quota: its largest fraction of the card in thousandths, rounded up; one of an unknown
        profile a whole card.
        """
        known = None if self.geometry is None else self.geometry.profiles.get(asked.profile)
        if known is None or self.geometry is None:
            return MILLI * asked.number
        return min(MILLI, self.geometry.cost_milli(asked.profile)) * asked.number

    def exact(self, asked: Part) -> int | None:
        """None: places decide, not sizes."""
        del asked
        return None

    def loss(self, use: Use, asked: Part, demand: Mapping[str, int]) -> int | None:
        """What a card is worth less with the part on it, in millionths of a card, where profiles are asked for so
        often; None where it does not fit. Of a layout all cards with the partition lose the same. A card of which
        nobody has anything loses more: it is no whole one any longer.
        """
        after = self.after(use, asked)
        if after is None or self.geometry is None:
            return None
        opening = UNIT // 2 if use == UNUSED else 0
        if self.share.layout:
            return self.size(asked) * (UNIT // MILLI) + opening
        view = outlook(self.geometry, self.share.profiles, demand)
        fixed, open_ = self.held(use)
        if not open_ and asked.number == 1:
            choice = view.choose(fixed, asked.profile)
            return None if choice is None else choice.loss * UNIT // SCALE + opening
        return max(0, self._value(view, use) - self._value(view, after)) + opening

    def _value(self, view: Outlook, use: Use) -> int:
        """What a card is worth to those who come, its open partitions where they would be settled."""
        key = (view, use)
        found = self._values.get(key)
        if found is None:
            assert self.geometry is not None
            worth = view.worth(view.state(self._best(view, use)))
            found = self._values[key] = int(worth * UNIT / self.geometry.slices**2)
        return found

    def _best(self, view: Outlook, use: Use) -> tuple[Slot, ...]:
        """The arrangement of open partitions that keeps the largest profiles possible, then the most worth; of these
        the first in order. There must be one.
        """
        best: tuple[object, ...] | None = None
        chosen: tuple[Slot, ...] = ()
        for slots in self._arrangements(use):
            state = view.state(slots)
            value = (view.possible(state), view.worth(state))
            if best is None or value > best:
                best, chosen = value, slots
        assert best is not None, "partitions were given that do not fit"
        return chosen

    def settled(self, use: Use, demand: Mapping[str, int]) -> Mapping[str, tuple[Slot, ...]]:
        """A place for each open partition, by profile in order of place: those that leave the card worth most, and of
        these the first in order. They must fit.
        """
        fixed, open_ = self.held(use)
        assert self.geometry is not None
        if self.share.layout:
            found = self.places(fixed, dict(open_))
            assert found is not None, "partitions were given that do not fit"
            return found
        chosen = self._best(outlook(self.geometry, self.share.profiles, demand), use)
        return _new(chosen, fixed)

    def _arrangements(self, use: Use) -> Iterator[tuple[Slot, ...]]:
        """All ways to have the open partitions around the fixed ones, in order."""
        fixed, open_ = self.held(use)
        geometry = self.geometry
        assert geometry is not None

        def place(slots: tuple[Slot, ...], at: int, left: int, least: int) -> Iterator[tuple[Slot, ...]]:
            while not left:
                at += 1
                if at == len(order):
                    yield slots
                    return
                left, least = order[at][1], 0
            profile = geometry.profiles[order[at][0]]
            for start in starts(geometry, slots, profile.name):
                if start >= least:
                    slot = Slot(profile=profile.name, start=start, size=profile.size)
                    yield from place((*slots, slot), at, left - 1, start + profile.size)

        order = sorted(open_, key=lambda each: (-geometry.profiles[each[0]].size, each[0]))
        yield from place(fixed, -1, 0, 0)

    # Words

    def excess(self, held: Mapping[PlacedShare, int], name: str) -> Iterator[str]:
        """Nothing: partitions that are in use stay, and what a share cannot make of the card is `stuck`."""
        del held, name
        yield from ()

    def stuck(self, use: Use) -> str:
        """Why nothing of the card can be given beside what is in use, though the share could cut it instead; or ""."""
        if self.geometry is None or not self.share.layout:
            return ""
        fixed, _ = self.held(use)
        layout = relayout(self.geometry, fixed, self.share.layout)
        return layout.text if isinstance(layout, Refusal) and layout.busy else ""

    def refusal(self) -> str:
        """Why no card of this class can be cut as the share says, or ""."""
        if self.geometry is None:
            return f"product {self.product or 'without a name'} unknown"
        if self.share.layout:
            found = arrange(self.geometry, self.share.layout)
            return found.text if isinstance(found, Refusal) else ""
        unknown = self.unknown()
        return self.stranger(unknown) if len(unknown) == len(self.share.profiles) else ""

    def unknown(self) -> list[str]:
        """Profiles that may be made on demand, of which this class of card has none."""
        known = {} if self.geometry is None else self.geometry.profiles
        return [name for name in self.share.profiles if name not in known]

    def stranger(self, unknown: Iterable[str]) -> str:
        """That the card does not have these profiles, in words."""
        known = "" if self.geometry is None else ", ".join(self.geometry.profiles)
        return f"profile {', '.join(unknown)} unknown: there are {known}"

    def told(self, use: Use) -> str:
        """What a card has left, in words."""
        if self.geometry is None:
            return f"nothing: product {self.product or 'without a name'} unknown"
        if strangers := self.strangers(self.held(use)[0]):
            return f"no partition ({', '.join(map(str, strangers))}: unknown profile)"
        names = self.share.layout or self.share.profiles
        fitting = [name for name in names if self.after(use, Part(profile=name)) is not None]
        return f"room for {', '.join(fitting)}" if fitting else "no partition"

    def smaller(self, profile: str) -> list[str]:
        """Smaller profiles of the share than this one, the largest first."""
        if self.geometry is None or profile not in self.geometry.profiles:
            return []
        known = self.geometry.profiles
        mine = (known[profile].size, known[profile].compute)
        names = [name for name in (self.share.layout or self.share.profiles) if name in known]
        less = [name for name in names if (known[name].size, known[name].compute) < mine]
        return sorted(less, key=lambda name: (-known[name].size, -known[name].compute, name))


def _new(slots: Iterable[Slot], fixed: Iterable[Slot]) -> dict[str, tuple[Slot, ...]]:
    """The slots beside the fixed ones, by profile in order of place."""
    left = Counter(slots)
    left.subtract(fixed)
    found: dict[str, tuple[Slot, ...]] = {}
    for slot in sorted(left.elements()):
        found[slot.profile] = (*found.get(slot.profile, ()), slot)
    return found
