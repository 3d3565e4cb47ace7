"""How many members of a gang one node holds where some of what they get are parts of devices, and which they get.

In come asks of which at least one has parts, and a ledger; out come keys of nodes (`Bench`), capacities and choices, as
from `seats`. Members may share a card; the parts of one replica lie on different cards unless it says `sameDevice`.
Nothing is taken here.

Members are placed one after another, each on what the ones before it left. Where that ends short of what counting
allows, one member more is searched for in every way that makes a difference: without a Required line cards of which as
much is left, and that the same requests may have, are one. Steps are counted, and a search that sees too many is given
up. What a part costs (`fractions`) decides between cards as it does for a single replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from adjoin_allocator.card_rules import UNUSED, CardRule, Use
from adjoin_allocator.demand import Stake
from adjoin_allocator.fit import Fit, Misfit, Obstacle, needed
from adjoin_allocator.fractions import Appraiser
from adjoin_allocator.nodes import NodeView, Shape, Sort
from adjoin_allocator.place import Ask
from adjoin_allocator.seats import Filling, Seat, Seats
from adjoin_allocator.sharing import AMOUNTS, MILLI, Part, part
from adjoin_allocator.topology import bits

STEPS = 50_000
"""So many choices of members one search for a node may look at."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What one request takes of each of its cards."""

    share: str
    part: Part
    appraiser: Appraiser
    rules: Sequence[CardRule]
    """By class of card what the share makes of it."""

    def after(self, klass: int, card: Card | None) -> Card | None:
        """A card with the part taken of it, or None when it does not fit; for a whole card None comes in."""
        if card is not None and card.share != self.share:
            return None
        use = self.rules[klass].after(UNUSED if card is None else card.use, self.part)
        return None if use is None else Card(self.share, use)

    def times(self, klass: int, card: Card | None) -> int:
        """How many such parts are left on a card."""
        if card is not None and card.share != self.share:
            return 0
        return self.rules[klass].times(UNUSED if card is None else card.use, self.part)

    def price(self, klass: int, card: Card | None) -> int:
        """What it costs on such a card."""
        rule = self.rules[klass]
        loss = self.appraiser.loss(rule, self.share, UNUSED if card is None else card.use, self.part)
        if loss is not None:
            return loss
        left = MILLI if card is None else rule.left_milli(card.use)
        return self.appraiser.price(klass, left, rule.size(self.part))


@dataclass(frozen=True, slots=True, order=True)
class Card:
    """A divided card: of which share, and what of it is in use."""

    share: str
    use: Use


@dataclass(frozen=True, slots=True)
class Bench:
    """A node as a gang sees it.

    Attributes:
        sorts: By ask which devices its requests may have, whoever holds them.
        free: Devices that are free as wholes.
        lent: Those that are free but for what others consume of them: they are given in parts alone.
        cards: By bit the divided cards of which parts can be given, ascending.
        klasses: By bit the class of a card among those of its kind.
        openings: By share with a limit how many whole cards it may still divide here.
    """

    shape: Shape
    sorts: tuple[Sort, ...]
    free: int
    cards: tuple[tuple[int, Card], ...]
    klasses: tuple[int, ...]
    openings: tuple[tuple[str, int], ...] = ()
    lent: int = 0

    @property
    def fresh(self) -> int:
        """Devices of which nobody's parts are held."""
        return self.free | self.lent

    def opening(self, share: str) -> bool:
        """Whether the share may divide one whole card more."""
        return all(left > 0 for name, left in self.openings if name == share)


@dataclass(slots=True, eq=False)
class CardSeats(Seats[Bench]):
    """The nodes of one pool for one gang whose members hold parts.

    Attributes:
        openings: By share with a limit how many cards more it may divide.
    """

    openings: dict[str, int] = field(init=False, default_factory=dict)
    _slices: tuple[tuple[Slice | None, ...], ...] = field(init=False, default=())
    _fillings: dict[Bench, Filling] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._slices = tuple(tuple(self._slice(ask, at) for at in range(len(ask.requests))) for ask in self.asks)

    def _slice(self, ask: Ask, at: int) -> Slice | None:
        request, parts = ask.requests[at], self.placer.ledger.parts
        if request.share is None:
            return None
        appraiser = parts.appraiser(ask.pool, request.kind)
        stock, name = appraiser.stock, request.share.name
        share_at = stock.share_at[name]
        limit = stock.shares[share_at].max_devices
        if limit is not None:
            self.openings[name] = max(0, limit - stock.in_mode[share_at])
        each = part(request.share, stock.shares[share_at])
        return Slice(name, each.times(request.count) if request.same_device else each, appraiser, stock.rules[share_at])

    # Nodes

    def groups(self) -> Mapping[Bench, Sequence[int]]:
        """The open nodes by key, positions ascending. Costs a look at each node."""
        ledger, nodes = self.placer.ledger.pools[self.asks[0].pool], self.placer.nodes
        sorts = [nodes.sorts(ledger.index, ask.question) for ask in self.asks]
        kinds = sorted({request.kind for ask in self.asks for request in ask.requests if request.share is not None})
        tables = [self._table(kind) for kind in kinds]
        openings = tuple(sorted(self.openings.items()))
        found: dict[object, tuple[Bench, list[int]]] = {}
        for position, view in enumerate(ledger.index.views):
            if position in ledger.index.closed and position not in self.opened:
                continue
            spare = self.spare.get(position, 0)
            free = ledger.free[position] | spare
            seen = tuple(each[position] for each in sorts)
            key = (
                view.shape,
                seen,
                free,
                spare,
                ledger.lent(position),
                *(table[position].tobytes() for table in tables),
            )
            known = found.get(key)
            if known is None:
                bench = self._bench(position, view, seen, free, kinds)
                known = found[key] = (replace(bench, openings=openings), [])
            known[1].append(position)
        groups: dict[Bench, list[int]] = {}
        for bench, positions in found.values():
            groups.setdefault(bench, []).extend(positions)
        return {bench: sorted(positions) for bench, positions in groups.items()}

    def _table(self, kind: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """By node all that is known of its cards, in one row."""
        stock = self.placer.ledger.parts.appraiser(self.asks[0].pool, kind).stock
        usable = stock.usable.astype(np.int64)
        return np.hstack([stock.klass, *stock.used, usable])

    def _bench(self, position: int, view: NodeView, sorts: tuple[Sort, ...], free: int, kinds: Sequence[str]) -> Bench:
        parts, pool = self.placer.ledger.parts, self.asks[0].pool
        cards: dict[int, Card] = {}
        klasses = [0] * view.shape.size
        for kind in kinds:
            stock = parts.appraiser(pool, kind).stock
            for column, bit in enumerate(parts.columns(pool, kind, position)):
                klasses[bit] = int(stock.klass[position, column])
                used = stock.use(position, column)
                if used is not None and stock.usable[position, column] and not free >> bit & 1:
                    cards[bit] = Card(stock.shares[used[0]].name, used[1])
        chosen = []
        for ask, sort in zip(self.asks, sorts, strict=True):
            eligible = list(sort.eligible)
            for at, request in enumerate(ask.requests):
                if request.share is not None:
                    share = parts.shares[request.share.name]
                    eligible[at] &= view.eligible(request.kind, share.selectors)
                    if share.mode not in AMOUNTS:
                        eligible[at] &= ~sum(1 << bit for bit, each in enumerate(view.devices) if each.lent)
            chosen.append(self.placer.nodes.sort_of(tuple(eligible), sort.values, ()))
        lent = self.placer.ledger.pools[pool].lent(position) & ~free
        return Bench(view.shape, tuple(chosen), free, tuple(sorted(cards.items())), tuple(klasses), lent=lent)

    def scarce(self, members: int) -> bool:
        """Whether so many members could together divide more whole cards than a share allows."""
        return any(
            left < members * max(self._cards(at, share) for at in range(len(self.asks)))
            for share, left in self.openings.items()
        )

    def _cards(self, at: int, share: str) -> int:
        counts = self.asks[at].signature.counts
        return sum(count for count, cut in zip(counts, self._slices[at], strict=True) if cut and cut.share == share)

    def within_limits(self, places: Sequence[tuple[int, Seat]]) -> bool:
        """Whether members at these positions together divide no more whole cards than the shares allow."""
        ledger = self.placer.ledger.pools[self.asks[0].pool]
        opened: dict[str, set[tuple[int, int]]] = {}
        for position, seat in places:
            free = ledger.free[position] | self.spare.get(position, 0) | ledger.lent(position)
            for mask, cut in zip(seat.fit.masks, self._slices[seat.ask], strict=True):
                if cut is not None:
                    opened.setdefault(cut.share, set()).update((position, bit) for bit in bits(mask & free))
        return all(len(opened.get(share, ())) <= left for share, left in self.openings.items())

    def load(self, key: Bench) -> float:
        """Which part of the node is not free."""
        return 1 - key.free.bit_count() / key.shape.size

    def could(self, key: Bench, at: int) -> tuple[int, ...]:
        """By request the free devices that will do, and for parts the cards of which enough is left."""
        cards = dict(key.cards)
        found = []
        for request, (mask, cut) in enumerate(zip(key.sorts[at].eligible, self._slices[at], strict=True)):
            if cut is None:
                everything = not self.asks[at].signature.counts[request]
                found.append(0 if everything and mask & ~key.free else mask & key.free)
                continue
            opening = key.opening(cut.share)
            good = 0
            for bit in bits(mask):
                card = cards.get(bit)
                if (card is not None or (opening and key.fresh >> bit & 1)) and cut.after(key.klasses[bit], card):
                    good |= 1 << bit
            found.append(good)
        return tuple(found)

    def needed(self, key: Bench, at: int) -> tuple[int, ...]:
        """By request how many devices it takes."""
        return needed(self.asks[at].signature, key.sorts[at].eligible)

    def supply(self, key: Bench, at: int) -> tuple[int, ...]:
        """By request how many devices, or parts, the node could give."""
        cards = dict(key.cards)
        return tuple(
            mask.bit_count() if cut is None else sum(cut.times(key.klasses[bit], cards.get(bit)) for bit in bits(mask))
            for mask, cut in zip(self.could(key, at), self._slices[at], strict=True)
        )

    def ways(self, key: Bench, at: int, masks: tuple[int, ...]) -> Iterator[Seat]:
        """Every choice among these devices that leaves something else."""
        seen: set[Bench] = set()
        for choice in self.choices(key, at, masks):
            after = self.after(key, Seat(at, choice))
            if after not in seen:
                answer = self.among(key, at, choice.masks)
                if isinstance(answer, Fit):
                    seen.add(after)
                    yield Seat(at, answer)

    def among(self, key: Bench, at: int, masks: tuple[int, ...]) -> Fit | Misfit:
        """The best choice among these devices."""
        counts = self.asks[at].signature.counts
        whole = key.sorts[at].eligible
        eligible = tuple(
            mask if count or mask == all_ else 0 for mask, count, all_ in zip(masks, counts, whole, strict=True)
        )
        return self._fit(key, at, eligible, ())

    def after(self, key: Bench, seat: Seat) -> Bench:
        """The node without what that seat takes."""
        free, lent, cards, openings = key.free, key.lent, dict(key.cards), dict(key.openings)
        for mask, cut in zip(seat.fit.masks, self._slices[seat.ask], strict=True):
            if cut is None:
                free &= ~mask
                continue
            for bit in bits(mask):
                card = cards.get(bit)
                if card is None:
                    free, lent = free & ~(1 << bit), lent & ~(1 << bit)
                    if cut.share in openings:
                        openings[cut.share] -= 1
                after = cut.after(key.klasses[bit], card)
                assert after is not None, "a part is taken that does not fit"
                cards[bit] = after
        left = tuple(sorted(openings.items()))
        return replace(key, free=free, lent=lent, cards=tuple(sorted(cards.items())), openings=left)

    # One member

    def _fit(self, key: Bench, at: int, eligible: tuple[int, ...], stakes: tuple[Stake, ...]) -> Fit | Misfit:
        """The best choice; limits of shares are heeded."""
        form, fitter, usable = self.asks[at].form, self.placer.fitter, 0
        for mask in eligible:
            usable |= mask
        state = (key.shape, self.placer.nodes.sort_of(eligible, key.sorts[at].values, stakes), usable)
        answer = fitter.bound(form, state) if stakes else fitter.fit(form, state)
        if isinstance(answer, Fit) and not answer.exact:
            answer = fitter.weigh(form, state, answer)
        if isinstance(answer, Misfit) or self._allowed(key, at, answer.masks):
            return answer
        # The limit allows fewer whole cards than it took: then none, so that cards are used that are divided already.
        closed = tuple(
            mask if cut is None or not key.openings else mask & ~key.fresh
            for mask, cut in zip(eligible, self._slices[at], strict=True)
        )
        return self._fit(key, at, closed, stakes) if closed != eligible else Misfit(Obstacle.COUNT)

    def _allowed(self, key: Bench, at: int, masks: Sequence[int]) -> bool:
        """Whether no more whole cards are divided than the shares' limits allow."""
        left = dict(key.openings)
        for mask, cut in zip(masks, self._slices[at], strict=True):
            if cut is not None and cut.share in left:
                left[cut.share] -= (mask & key.fresh).bit_count()
        return min(left.values(), default=0) >= 0

    def _fits(self, key: Bench, at: int) -> Sequence[Fit]:
        """The cheapest choice, then the one whose devices are nearest."""
        could, cards = self.could(key, at), dict(key.cards)
        prices: dict[int, int] = {}
        for mask, cut in zip(could, self._slices[at], strict=True):
            for bit in bits(mask) if cut is not None else ():
                assert cut is not None
                prices[bit] = max(prices.get(bit, 0), cut.price(key.klasses[bit], cards.get(bit)))
        stakes: tuple[Stake, ...] = tuple(((1 << bit,), (1,), price) for bit, price in sorted(prices.items()) if price)
        found: list[Fit] = []
        for wanted in (stakes, ()) if stakes else ((),):
            answer = self._fit(key, at, could, wanted)
            if isinstance(answer, Fit) and all(answer.masks != other.masks for other in found):
                found.append(answer)
        return found

    # All members

    def filling(self, key: Bench) -> Filling:
        """The fullest filling of such a node."""
        found = self._fillings.get(key)
        if found is None:
            found = self._fillings[key] = self._fill(key)
        return self._look(key, found)

    def _fill(self, key: Bench) -> Filling:
        best: list[Seat] = []
        states, limit, here = 0, False, key
        while True:
            for at in range(len(self.asks)):
                answer = self._fit(here, at, self.could(here, at), ())
                states += answer.states
                if isinstance(answer, Fit):
                    best.append(Seat(at, answer))
                    here = self.after(here, best[-1])
                    break
                limit = limit or answer.obstacle is Obstacle.LIMIT
            else:
                break
        search = _Search(self)
        while len(best) < search.ceiling(key):
            more = search.find(key, len(best) + 1)
            if more is None:
                break
            best = self._weighed(key, more)
        return Filling(tuple(best), states + search.steps, limit or search.steps > STEPS)

    def _weighed(self, key: Bench, seats: Sequence[Seat]) -> list[Seat]:
        """The same seats with what they are worth."""
        found: list[Seat] = []
        for seat in seats:
            answer = self.among(key, seat.ask, seat.fit.masks)
            assert isinstance(answer, Fit), "a choice was found that is none"
            found.append(Seat(seat.ask, answer))
            key = self.after(key, seat)
        return found

    def choices(self, key: Bench, at: int, could: Sequence[int] | None = None) -> Iterator[Fit]:
        """Every choice of devices for a member among those that it could have, request by request; lines are not
        looked at.
        """
        usable = self.could(key, at) if could is None else could
        counts = self.needed(key, at)
        if not all(counts):
            return

        def pick(request: int, taken: int, masks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if request == len(counts):
                yield masks
                return
            for chosen in combinations([1 << bit for bit in bits(usable[request] & ~taken)], counts[request]):
                mask = sum(chosen)
                yield from pick(request + 1, taken | mask, (*masks, mask))

        for masks in pick(0, 0, ()):
            if self._allowed(key, at, masks):
                yield Fit((), masks, sum(masks), 0)

    def bound_by_lines(self, at: int) -> bool:
        """Whether a line may forbid a choice of devices."""
        wanted = self.asks[at].signature
        return bool(wanted.attributes) or any(line.required for line in wanted.scopes)


@dataclass(slots=True, eq=False)
class _Search:
    """The search for so many members on one node."""

    seats: CardSeats
    steps: int = 0
    _failed: dict[object, int] = field(default_factory=dict)
    """By what is left the fewest members for which it was not enough."""

    def find(self, key: Bench, number: int) -> list[Seat] | None:
        """Seats of so many members; None when there are none, or after too many steps."""
        if not number:
            return []
        known = self._name(key)
        if self._failed.get(known, number + 1) <= number or self.ceiling(key) < number:
            return None
        for seat, after in self._options(key):
            rest = self.find(after, number - 1)
            if rest is not None:
                return [seat, *rest]
            if self.steps > STEPS:
                break
        if self.steps > STEPS:
            return None
        self._failed[known] = min(number, self._failed.get(known, number))
        return None

    def _options(self, key: Bench) -> list[tuple[Seat, Bench]]:
        """What one member could get and what is left then, most whole devices first; what leaves the same is one."""
        seats, found = self.seats, dict[object, tuple[Seat, Bench]]()
        for at in range(len(seats.asks)):
            for choice in seats.choices(key, at):
                self.steps += 1
                if self.steps > STEPS:
                    return list(found.values())
                seat = Seat(at, choice)
                after = seats.after(key, seat)
                name = self._name(after)
                if name in found:
                    continue
                if seats.bound_by_lines(at):
                    answer = seats.among(key, at, choice.masks)
                    self.steps += answer.states
                    if isinstance(answer, Misfit):
                        continue
                found[name] = (seat, after)
        return sorted(found.values(), key=lambda each: -each[1].free.bit_count())

    def ceiling(self, key: Bench) -> int:
        """How many members such a node holds at most, by counting request by request."""
        return sum(self._most(key, at) for at in range(len(self.seats.asks)))

    def _most(self, key: Bench, at: int) -> int:
        seats = self.seats
        could, counts = seats.could(key, at), seats.needed(key, at)
        if not all(counts):
            return 0
        cards, most = dict(key.cards), key.shape.size * MILLI
        for request, (mask, count) in enumerate(zip(could, counts, strict=True)):
            cut = seats._slices[at][request]
            if cut is None:
                alone = not seats.asks[at].signature.counts[request]
                most = min(most, mask.bit_count() // count, 1 if alone else most)
                continue
            each = [cut.times(key.klasses[bit], cards.get(bit)) for bit in bits(mask)]
            while most and sum(min(times, most) for times in each) < most * count:
                most = min(most - 1, sum(min(times, most) for times in each) // count)
        return most

    def _name(self, key: Bench) -> object:
        """Equal for nodes that hold the same members."""
        seats = self.seats
        if any(map(seats.bound_by_lines, range(len(seats.asks)))):
            return key
        cards = dict(key.cards)
        masks = [mask for sort in key.sorts for mask in sort.eligible]
        told: dict[tuple[object, ...], int] = {}
        for bit in range(key.shape.size):
            card = cards.get(bit)
            if card is not None or key.fresh >> bit & 1:
                device = (tuple(mask >> bit & 1 for mask in masks), key.klasses[bit], card, key.lent >> bit & 1)
                told[device] = told.get(device, 0) + 1
        # What takes all that match has them all or is out of the question.
        alone = tuple(
            bool(mask & ~key.free)
            for ask, sort in zip(seats.asks, key.sorts, strict=True)
            for mask, count in zip(sort.eligible, ask.signature.counts, strict=True)
            if not count
        )
        return frozenset(told.items()), key.openings, alone
