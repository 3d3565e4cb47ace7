"""What the replicas of a pool's claims wish for of one kind of card, and what that teaches.

In come wishes that come and go with their claims, and a `Stock` that says how large a part is on which card; out come
prices of parts, what work worth a card needs of a host, which part of the demand asks for several cards at once and
which can use some cards only. All of it is a function of the wishes that are there: sums are taken in whole numbers
and kept up from change to change, and summed anew only when prices change. Nothing here knows nodes, or chooses.
"""

from __future__ import annotations

from collections.abc import Sequence

from adjoin_allocator.appraisal import Need, Sums
from adjoin_allocator.card_rules import UNUSED
from adjoin_allocator.prices import CARD, UNIT, Pricer, Prices, Tally
from adjoin_allocator.sharing import AMOUNTS
from adjoin_allocator.stock import Stock, Wish


class Demand:
    """How many replicas wish for what, placed and waiting.

    Attributes:
        version: Another number whenever anything has changed.
        wishes: All that was ever wished for, in the order in which it came first; nothing depends on that.
        numbers: Likewise how many replicas wish for it.
        changed: Which numbers have changed since `Lessons` looked at them last.
    """

    def __init__(self) -> None:
        self.version = 0
        self.wishes: list[Wish] = []
        self.numbers: list[int] = []
        self.changed: set[int] = set()
        self._at: dict[Wish, int] = {}

    def add(self, wish: Wish, number: int) -> None:
        """So many replicas more, or fewer, wish for this."""
        if number:
            self.version += 1
            at = self._at.get(wish)
            if at is None:
                at = self._at[wish] = len(self.wishes)
                self.wishes.append(wish)
                self.numbers.append(0)
            self.numbers[at] += number
            self.changed.add(at)

    def find(self, wish: Wish) -> int | None:
        """The place of a wish among those that ever were, if it is one of them."""
        return self._at.get(wish)


class Lessons:
    """What a demand teaches about a stock. One of them at a time follows a demand.

    Attributes:
        prices: By class of card.
        cpu: What work worth a card needs of a host's processors, in thousandths.
        memory: Likewise of its memory, in KiB.
        several: By number of whole cards asked for at once which part of the demand asks so.
        restricted: By selection of cards what those are worth, in thousandths of a card, who can use nothing else.
        total: What all of the demand is worth.
    """

    def __init__(self, stock: Stock, demand: Demand, pricer: Pricer) -> None:
        classes = range(len(stock.classes))
        self._stock = stock
        self._demand = demand
        self._tallies = [Tally(pricer) for _ in classes]
        self._weights = [int((stock.klass[stock.exists] == klass).sum()) for klass in classes]
        self._version = -1
        self._numbers: list[int] = []
        self._worths: list[int] = []
        self._sizes: list[tuple[int, ...]] = []
        self.prices: tuple[Prices, ...] = ()
        self.cpu = self.memory = Need()
        self.several: dict[int, float] = {}
        self.restricted: dict[int, int] = {}
        self.total = 0
        self._offers: tuple[tuple[tuple[int, int], ...], ...] = ()
        self._offered_at = -1
        """At which version of the demand."""
        self._forget()
        demand.changed.update(range(len(demand.wishes)))

    def learn(self) -> bool:
        """Brings everything up to date; says whether anything has changed."""
        demand = self._demand
        if self._version == demand.version:
            return False
        self._version = demand.version
        moves = [(at, move) for at in sorted(demand.changed) if (move := self._move(at))]
        demand.changed.clear()
        for at, move in moves:
            parts = demand.wishes[at].parts
            for tally, size in zip(self._tallies, self._sizes[at], strict=True) if parts else ():
                if size:
                    tally.add(size, move * parts)
        prices = tuple([tally.prices() for tally in self._tallies])
        if prices != self.prices:
            self.prices = prices
            self._forget()
            moves = [(at, number) for at, number in enumerate(self._numbers) if number]
            self._worths = [self._rate(wish, self._sizes[at]) for at, wish in enumerate(demand.wishes)]
        elif not moves:
            return True
        for at, move in moves:
            self._sum(at, move)
        self._conclude()
        return True

    def profiles(self, share: str) -> dict[str, int]:
        """How many partitions of each profile of a share are asked for, placed and waiting; of each at least one, since
        any may come.
        """
        found: dict[str, int] = {}
        for wish, number in zip(self._demand.wishes, self._demand.numbers, strict=True):
            if wish.share == share and number > 0 and wish.part is not None:
                found[wish.part.profile] = found.get(wish.part.profile, 0) + number * wish.count
        at = self._stock.share_at[share]
        for name in self._stock.shares[at].profiles:
            found[name] = found.get(name, 0) + 1
        return found

    def offers(self, wish: Wish) -> tuple[tuple[tuple[int, int], ...], ...]:
        """By class of card sizes of parts in thousandths, ascending, and what each is worth, in millionths of a card of
        the last class, which is the largest: where a wish is for memory, by which cards of different classes can be
        compared. A smaller card is then worth what it holds. Empty where nothing is to be compared.
        """
        classes, at = self._stock.classes, self._stock.share_at.get(wish.share)
        amount = wish.part is not None and wish.part.amount is not None
        if len(classes) < 2 or at is None or not amount or self._stock.shares[at].mode not in AMOUNTS:
            return ()
        if self._offered_at != self._version:
            best: list[dict[int, int]] = [{} for _ in classes]
            for at, (number, sizes) in enumerate(zip(self._numbers, self._sizes, strict=True)):
                price = self.prices[-1].price(sizes[-1]) if number and sizes[-1] else 0
                for size, fits, known in zip(sizes, self._fits(at), best, strict=True) if price else ():
                    if fits:
                        known[size] = max(price, known.get(size, 0))
            self._offers = tuple(tuple(sorted(each.items())) for each in best)
            self._offered_at = self._version
        return self._offers

    def worth(self, wish: Wish) -> int:
        """What a replica is worth, in thousandths of a card."""
        at = self._demand.find(wish)
        known = at is not None and at < len(self._worths)
        return self._worths[at] if known and at is not None else self._rate(wish, self._parts(wish))

    def _move(self, at: int) -> int:
        """By how much a number has changed."""
        number = self._demand.numbers[at]
        while at >= len(self._numbers):
            wish = self._demand.wishes[len(self._numbers)]
            self._numbers.append(0)
            self._sizes.append(self._parts(wish))
            self._worths.append(self._rate(wish, self._sizes[-1]) if self.prices else 0)
        move = number - self._numbers[at]
        self._numbers[at] = number
        return move

    def _parts(self, wish: Wish) -> tuple[int, ...]:
        """By class of card how many thousandths of it each part takes."""
        share = self._stock.share_at.get(wish.share)
        if not wish.parts or share is None:
            return (0,) * len(self._stock.classes)
        # Several parts of one card may be more than a card: no card has that, and it is priced like a whole one.
        return tuple(min(CARD, each.size(wish.of_each)) for each in self._stock.rules[share])

    def _fits(self, at: int) -> list[bool]:
        """By class of card whether one that is not in use has room for the part of a wish."""
        wish = self._demand.wishes[at]
        rules = self._stock.rules[self._stock.share_at[wish.share]]
        return [rule.after(UNUSED, wish.of_each) is not None for rule in rules]

    def _rate(self, wish: Wish, sizes: Sequence[int]) -> int:
        if not wish.parts:
            return wish.count * CARD
        # Cards of different memory differ in what a part of them is; what counts is what there are many of.
        each = zip(self.prices, sizes, self._weights, strict=True)
        value = sum(price.price(size) * weight for price, size, weight in each)
        return wish.parts * value // max(1, sum(self._weights)) // (UNIT // CARD)

    def _forget(self) -> None:
        self.total = self._squares = 0
        self._cpu, self._memory = Sums(), Sums()
        self._several: dict[int, int] = {}
        self.restricted = {}

    def _sum(self, at: int, number: int) -> None:
        """So many replicas more wish for this."""
        wish, worth = self._demand.wishes[at], self._worths[at]
        together = number * worth
        self.total += together
        self._squares += together * worth
        self._cpu.add(number, worth, wish.cpu_milli)
        self._memory.add(number, worth, wish.memory_kib)
        if wish.count > 1 and not wish.parts:
            self._several[wish.count] = self._several.get(wish.count, 0) + together
        if wish.only and wish.count:
            self.restricted[wish.only] = self.restricted.get(wish.only, 0) + together
            if not self.restricted[wish.only]:
                del self.restricted[wish.only]

    def _conclude(self) -> None:
        total = self.total
        cpu, memory = self._cpu.need(total, self._squares), self._memory.need(total, self._squares)
        # Equal needs stay the same object, and are then compared without a look.
        self.cpu = self.cpu if cpu == self.cpu else cpu
        self.memory = self.memory if memory == self.memory else memory
        self.several = {count: each / total for count, each in self._several.items() if each}
