"""What a place costs, read anew from the rules: one node and one card at a time, without arrays, tables or memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import erf, exp, floor, log2, pi, sqrt

from tests.support.parts_checks import card_bytes, shareable

from adjoin_allocator import Claim, Device, DeviceID, Request, Share, Snapshot
from adjoin_allocator.prices import Pricer, Prices
from adjoin_allocator.selectors import match_all

UNIT = 1_000_000


@dataclass
class Place:
    """A node and the cards on it that would be taken."""

    node: str
    cards: tuple[DeviceID, ...]
    cost: float


class Cluster:
    """Everything that counts, from the snapshot. Claims have one request for GPUs; cards are alike; one share."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.share: Share = next(iter(snapshot.shares.values()))
        self.cards = {
            node: [device for device in given if device.kind == "gpu"] for node, given in snapshot.inventory.items()
        }
        self.whole: set[DeviceID] = set()
        self.used: dict[DeviceID, list[int]] = {}
        self.host = {name: [node.cpu_milli, node.memory_bytes] for name, node in snapshot.nodes.items()}
        for claim in snapshot.claims:
            for replica in claim.placed:
                self._spend(replica.node, claim)
                for held in replica.devices:
                    if held.share is None:
                        self.whole.add(held.id)
                    else:
                        used = self.used.setdefault(held.id, [0, 0])
                        used[0] += held.share.memory_bytes or 0
                        used[1] += held.share.compute_milli or 0
        self._learn()

    def _spend(self, node: str, claim: Claim) -> None:
        for at, amount in enumerate((claim.host.cpu_milli, claim.host.memory_bytes)):
            left = self.host[node][at]
            if left is not None:
                self.host[node][at] = left - amount

    def cap(self, card: Device) -> int:
        """What may be given of it."""
        return shareable(self.share, card)

    def size(self, request: Request, card: Device) -> int:
        """Thousandths of the card that a part of a request takes."""
        assert request.share is not None
        fold = request.count if request.same_device else 1
        memory, milli = (request.share.memory_bytes or 0) * fold, (request.share.compute_milli or 0) * fold
        if memory and not self.cap(card):
            return 1000
        return max(1, min(1000, memory * 1000 // self.cap(card)) if memory else 0, milli)

    def left(self, card: Device) -> int:
        """Thousandths that are left of it."""
        if card.id in self.whole:
            return 0
        if card.id not in self.used:
            return 1000
        memory, milli = self.used[card.id]
        cap = self.cap(card)
        return max(0, min(1000 - milli, (cap - memory) * 1000 // cap if cap else 1000))

    def _learn(self) -> None:
        self.prices: dict[int, Prices] = {}
        memories = {card_bytes(card): card for given in self.cards.values() for card in given}
        asked = [(claim.requests[0], claim) for claim in self.snapshot.claims if claim.requests]
        for memory, card in memories.items():
            demand: dict[int, int] = {}
            for request, claim in asked:
                if request.share is not None:
                    size = self.size(request, card)
                    number = claim.replicas * (1 if request.same_device else request.count)
                    demand[size] = demand.get(size, 0) + number
            self.prices[memory] = Pricer().prices(demand)
        weights = dict.fromkeys(memories, 0)
        for given in self.cards.values():
            for card in given:
                weights[card_bytes(card)] += 1
        self.worth: dict[Request, int] = {}
        for request, _ in asked:
            if request.share is None:
                self.worth[request] = request.count * 1000
                continue
            total = sum(
                self.prices[memory].price(self.size(request, card)) * weights[memory]
                for memory, card in memories.items()
            )
            parts = 1 if request.same_device else request.count
            self.worth[request] = parts * total // sum(weights.values()) // 1000
        self.total = sum(claim.replicas * self.worth[request] for request, claim in asked)
        self.needs = [self._need(asked, at) for at in range(2)]
        self.several: dict[int, float] = {}
        for request, claim in asked:
            if request.share is None and request.count > 1 and self.total:
                part = claim.replicas * self.worth[request] / self.total
                self.several[request.count] = self.several.get(request.count, 0) + part

    def _need(self, asked: list[tuple[Request, Claim]], at: int) -> tuple[float, float]:
        def amount(claim: Claim) -> int:
            return claim.host.cpu_milli if at == 0 else -(-claim.host.memory_bytes // 1024)

        counting = [(self.worth[request], amount(claim), claim.replicas) for request, claim in asked]
        counting = [each for each in counting if each[0]]
        if not self.total or not sum(need * number for _, need, number in counting):
            return 0.0, 0.0
        mean = sum(need * number for _, need, number in counting) / self.total
        variance = sum(number * (need - mean * worth) ** 2 for worth, need, number in counting) / self.total
        return _stepped(mean * 1000), _stepped(sqrt(max(0.0, variance) * 1000))

    def value(self, node: str, changed: dict[DeviceID, int] | None = None) -> int:
        """What the cards of a node are worth, some of them with another remainder."""
        lefts = [(card, (changed or {}).get(card.id, self.left(card))) for card in self.cards[node]]
        return sum(int(self.prices[card_bytes(card)].worth[left]) for card, left in lefts)

    def idle(self, value: int, host: list[int | None]) -> float:
        """Cards that are expected to idle."""
        found, worth = 0.0, value / UNIT
        for at, (mean, deviation) in enumerate(self.needs):
            left = host[at]
            if left is None or not mean:
                continue
            left = left if at == 0 else left // 1024
            gap = worth * mean - left
            spread = sqrt(worth) * deviation
            if not spread:
                lost = max(0.0, gap)
            else:
                z = -gap / spread
                lost = spread * (exp(-min(z * z / 2, 700)) / sqrt(2 * pi) - z * (1 - erf(z / sqrt(2))) / 2)
            found += min(worth, max(lost, 0.0) / mean)
        return found

    def places(self, claim: Claim) -> list[Place]:
        """Every node and every smallest set of cards that would do, with its cost; of these those that may be chosen:
        parts do not go to loaded nodes where others will do.
        """
        found = list(self._places(claim))
        if any(request.share is not None for request in claim.requests):
            calm = [place for place in found if not self._loaded(place.node, claim)]
            return calm or found
        return found

    def _lost(self, claim: Claim, node: str, changed: dict[DeviceID, int]) -> int:
        """What the cards of a node are worth less. To who asks for memory, where cards differ in it, a card is worth
        the parts that it holds, at what they are worth on the largest card.
        """
        memories = sorted({card_bytes(card) for given in self.cards.values() for card in given})
        if len(memories) < 2 or not any(each.share and each.share.memory_bytes for each in claim.requests):
            return self.value(node) - self.value(node, changed)
        largest = next(card for given in self.cards.values() for card in given if card_bytes(card) == memories[-1])
        lost = 0
        for card in self.cards[node]:
            offers: dict[int, int] = {}
            for other in self.snapshot.claims:
                for request in other.requests:
                    if request.share is not None and self._fits(request, card):
                        price = self.prices[memories[-1]].price(self.size(request, largest))
                        size = self.size(request, card)
                        offers[size] = max(price, offers.get(size, 0))
            worth = [0] * 1001
            for left in range(1, 1001):
                worth[left] = max(
                    [worth[left - 1], *(p + worth[left - size] for size, p in offers.items() if size <= left)]
                )
            lost += worth[self.left(card)] - worth[changed.get(card.id, self.left(card))]
        return lost

    def _fits(self, request: Request, card: Device) -> bool:
        """Whether a card that is not in use has so much."""
        assert request.share is not None
        fold = request.count if request.same_device else 1
        memory, milli = (request.share.memory_bytes or 0) * fold, (request.share.compute_milli or 0) * fold
        return memory <= self.cap(card) and milli <= 1000

    def _loaded(self, node: str, claim: Claim) -> bool:
        """A node is full of which four fifths are promised, unless the claim says what it needs of it."""
        if claim.host.cpu_milli or claim.host.memory_bytes:
            return False
        there = self.snapshot.nodes[node]
        both = zip(self.host[node], (there.cpu_milli, there.memory_bytes), strict=True)
        return any(left is not None and all_ is not None and (all_ - left) * 5 >= all_ * 4 for left, all_ in both)

    def _places(self, claim: Claim) -> Iterator[Place]:
        free = {
            node: [card for card in given if card.id not in self.whole and card.id not in self.used]
            for node, given in self.cards.items()
        }
        for node in self.snapshot.inventory:
            asks = (claim.host.cpu_milli, claim.host.memory_bytes)
            host = [None if left is None else left - ask for left, ask in zip(self.host[node], asks, strict=True)]
            if any(left is not None and left < 0 for left in host):
                continue
            before = self.value(node)
            choices = [(self._lost(claim, node, each[1]), *each) for each in self._choices(node, claim, free)]
            # Of a node's cards the one that loses least is taken, split ones and whole ones apart; what hosts make idle
            # tells nodes apart.
            least = {
                way: min(lost for lost, _, _, opened in choices if opened == way)
                for way in {opened for _, _, _, opened in choices}
            }
            for lost, cards, _, opened in choices:
                if lost > least[opened]:
                    continue
                cost = lost + UNIT * (self.idle(before - lost, host) - self.idle(before, self.host[node]))
                yield Place(node, cards, cost + self._slots(free, node, opened))

    def _choices(
        self, node: str, claim: Claim, free: dict[str, list[Device]]
    ) -> Iterator[tuple[tuple[DeviceID, ...], dict[DeviceID, int], int]]:
        if not claim.requests:
            yield (), {}, 0
            return
        (request,) = claim.requests
        if request.share is None:
            mine = [card for card in free[node] if match_all(request.selectors, card).matched]
            if len(mine) >= request.count:
                taken = mine[: request.count]
                yield tuple(card.id for card in taken), {card.id: 0 for card in taken}, request.count
            return
        assert request.count == 1
        for card in self.cards[node]:
            memory, milli = request.share.memory_bytes or 0, request.share.compute_milli or 0
            used = self.used.get(card.id, [0, 0])
            if card.id in self.whole or used[0] + memory > self.cap(card) or used[1] + milli > 1000:
                continue
            if match_all(request.selectors, card).matched:
                rest = max(0, self.left(card) - self.size(request, card))
                yield (card.id,), {card.id: rest}, int(card.id not in self.used)

    def _slots(self, free: dict[str, list[Device]], node: str, opened: int) -> float:
        counts = {name: len(given) for name, given in free.items()}
        cost = 0.0
        for several, part in self.several.items():
            slots = sum(count // several for count in counts.values())
            coming = part * sum(counts.values()) / several
            if opened and several > opened and coming > 0:
                chance = (1 - erf((slots - 0.5 - coming) / sqrt(2 * coming))) / 2
                have = counts[node]
                cost += UNIT * several * chance * (have // several - (have - opened) // several)
        return cost


def _stepped(amount: float) -> float:
    if amount <= 0:
        return 0.0
    step = 2.0 ** (floor(log2(amount)) + 1) / 32
    return round(amount / step) * step
