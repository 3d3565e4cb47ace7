"""Where partitions are put, against others: `python -m tests.benchmarks.partitions [--product P] [--sequences N]`.

Seeded sequences of claims that come and go, each for one partition, on 8 to 16 cards of one product. A claim that finds
no place is refused for good. Of each policy the accepted claims and the memory slices that they took are counted; a
second table has the distance to somebody who knows the future (CP-SAT) on small sequences. Nothing is asserted here.
"""

from __future__ import annotations

import argparse
import heapq
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ortools.sat.python import cp_model
from rich.console import Console
from rich.table import Table

from adjoin_allocator.geometry import Geometry, built_in
from adjoin_allocator.partitions import Slot, starts
from adjoin_allocator.prospects import Outlook, outlook

PRODUCTS = {
    "A30": "NVIDIA A30",
    "A100-40": "NVIDIA A100-SXM4-40GB",
    "A100-80": "NVIDIA A100 80GB PCIe",
    "H100-80": "NVIDIA H100 80GB HBM3",
    "H100-94": "NVIDIA H100 NVL",
    "GH200-144": "NVIDIA GH200 144G HBM3e",
    "H200": "NVIDIA H200",
    "B200": "NVIDIA B200",
    "GB200": "NVIDIA GB200",
    "B300": "NVIDIA B300 SXM6 AC",
    "GB300": "NVIDIA GB300",
}
"""What NVML calls them."""

MIXES: Mapping[int, Mapping[str, tuple[float, ...]]] = {
    # 1g, 1g with media engines, 1g of double memory, 2g, 3g, 4g, 7g
    8: {
        "even": (1, 0, 1, 1, 1, 1, 1),
        "small": (6, 0.5, 1, 3, 1, 0, 0),
        "large": (1, 0, 0, 1, 3, 3, 2),
        "smallest and largest": (6, 0, 0, 0, 2, 0, 1),
        "double memory": (3, 0, 3, 1, 1, 1, 0),
        "two sizes": (4, 0, 0, 0, 3, 0, 0),
        "1-2-3-7": (4, 0, 0, 2, 2, 0, 0.5),
        "1-2-4": (3, 0, 0, 2, 0, 2, 0),
    },
    # 1g, 1g with media engines, 2g, 2g with media engines, 4g
    4: {
        "even": (1, 0, 1, 0, 1),
        "small": (6, 0.5, 3, 0, 1),
        "large": (1, 0, 2, 0, 3),
        "media": (3, 1, 2, 1, 1),
    },
}
"""By number of slices how often each profile is asked for."""

LOADS = (0.8, 1.0, 1.4)
"""Memory slices that would be held on average, if nobody were refused, of those that there are."""

NODE = 4
"""Cards of a node."""

Cards = list[tuple[Slot, ...]]
Policy = Callable[[Cards, str], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One claim."""

    at: float
    profile: str
    until: float


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Claims in order of time, on so many cards."""

    geometry: Geometry
    mix: Mapping[str, float]
    cards: int
    arrivals: tuple[Arrival, ...]


def sequence(product: str, seed: int, cards: Sequence[int] = (8, 12, 16), number: int = 200) -> Run:
    """The sequence of this seed: mix, load, cards and the law of how long claims stay change with it."""
    geometry = built_in(PRODUCTS[product], None)
    assert geometry is not None
    chance = random.Random(f"{product} {seed}")
    mixes = list(MIXES[geometry.slices].values())
    weights = mixes[seed % len(mixes)]
    profiles = list(geometry.profiles.values())
    mix = {profile.name: weight for profile, weight in zip(profiles, weights, strict=True) if weight}
    there, load = chance.choice(cards), chance.choice(LOADS)
    mean = sum(geometry.profiles[name].size * weight for name, weight in mix.items()) / sum(mix.values())
    rate = load * there * geometry.slices / mean
    heavy, now, arrivals = chance.random() < 0.5, 0.0, []
    for _ in range(number):
        now += chance.expovariate(rate)
        # Many short ones and few long ones, or all of one kind; both stay for 1 on average.
        stay = chance.paretovariate(1.5) / 3 if heavy else chance.expovariate(1)
        arrivals.append(Arrival(now, chance.choices(list(mix), list(mix.values()))[0], now + stay))
    return Run(geometry, mix, there, tuple(arrivals))


def replay(given: Run, policy: Policy) -> tuple[int, int]:
    """How many claims found a place, and how many memory slices these took."""
    cards: Cards = [()] * given.cards
    leaving: list[tuple[float, int, int]] = []
    accepted = taken = 0
    for arrival in given.arrivals:
        while leaving and leaving[0][0] <= arrival.at:
            _, card, start = heapq.heappop(leaving)
            cards[card] = tuple(slot for slot in cards[card] if slot.start != start)
        found = policy(cards, arrival.profile)
        if found is not None:
            card, start = found
            size = given.geometry.profiles[arrival.profile].size
            accepted, taken = accepted + 1, taken + size
            # In one order, so that equal cards are found to be equal.
            cards[card] = tuple(sorted((*cards[card], Slot(arrival.profile, start, size))))
            heapq.heappush(leaving, (arrival.until, card, start))
    return accepted, taken


class Rooms:
    """Where partitions could begin, remembered."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.of = lru_cache(1 << 16)(lambda held, profile: starts(geometry, held, profile))


def first_fit(rooms: Rooms) -> Policy:
    """The first card that has room, at the first slice."""

    def policy(cards: Cards, profile: str) -> tuple[int, int] | None:
        return next(((card, found[0]) for card, held in enumerate(cards) if (found := rooms.of(held, profile))), None)

    return policy


def best_fit(rooms: Rooms) -> Policy:
    """The card with the fewest free memory slices that has room, at the first slice."""

    def policy(cards: Cards, profile: str) -> tuple[int, int] | None:
        fitting = [
            (-sum(slot.size for slot in held), card, found[0])
            for card, held in enumerate(cards)
            if (found := rooms.of(held, profile))
        ]
        return min(fitting)[1:] if fitting else None

    return policy


def listing(rooms: Rooms) -> Policy:
    """As Kubernetes does: any node that has room, as all score alike; there the first device in the driver's list,
    which has cards in order and of each its placements in order.
    """
    chance = random.Random(1)

    def policy(cards: Cards, profile: str) -> tuple[int, int] | None:
        fitting = [(card, found[0]) for card, held in enumerate(cards) if (found := rooms.of(held, profile))]
        if not fitting:
            return None
        node = chance.choice(sorted({card // NODE for card, _ in fitting}))
        return next(each for each in fitting if each[0] // NODE == node)

    return policy


def least_stranded(rooms: Rooms) -> Policy:
    """The place after which the fewest free slices are in windows of profiles that are partly taken, in the manner of
    Zambianco et al. (2025): a card's score is the sum of the sizes of all places that are blocked, of profiles for
    which it has free slices enough.
    """
    geometry = rooms.geometry

    @lru_cache(1 << 16)
    def score(held: tuple[Slot, ...]) -> int:
        taken = 0
        for slot in held:
            taken |= slot.mask
        free = geometry.slices - taken.bit_count()
        return sum(
            profile.size
            for profile in geometry.profiles.values()
            if profile.size <= free
            for start in profile.starts
            if taken >> start & (1 << profile.size) - 1
        )

    @lru_cache(1 << 16)
    def best(held: tuple[Slot, ...], profile: str) -> tuple[int, int] | None:
        size = geometry.profiles[profile].size
        return min(
            (
                (score(tuple(sorted((*held, Slot(profile, start, size))))) - score(held), start)
                for start in rooms.of(held, profile)
            ),
            default=None,
        )

    def policy(cards: Cards, profile: str) -> tuple[int, int] | None:
        fitting = [(found[0], card, found[1]) for card, held in enumerate(cards) if (found := best(held, profile))]
        return min(fitting)[1:] if fitting else None

    return policy


def ours(view: Outlook) -> Policy:
    """The card that loses least of its worth."""

    def policy(cards: Cards, profile: str) -> tuple[int, int] | None:
        fitting = [
            (found.loss, card, found.start)
            for card, held in enumerate(cards)
            if (found := view.choose(held, profile)) is not None
        ]
        return min(fitting)[1:] if fitting else None

    return policy


NAMES = ("first fit", "best fit", "listing order", "least stranded", "Adjoin", "Adjoin, demand known")


def policies(given: Run, rooms: Rooms) -> Iterator[Policy]:
    """In the order of `NAMES`."""
    yield first_fit(rooms)
    yield best_fit(rooms)
    yield listing(rooms)
    yield least_stranded(rooms)
    yield ours(outlook(given.geometry, given.mix))
    yield ours(outlook(given.geometry, given.mix, {name: round(100 * weight) for name, weight in given.mix.items()}))


def compare(product: str, sequences: int) -> list[tuple[int, int]]:
    """By policy the sums of accepted claims and of slices that these took."""
    sums = [(0, 0)] * len(NAMES)
    rooms = None
    for seed in range(sequences):
        given = sequence(product, seed)
        rooms = rooms or Rooms(given.geometry)
        for which, policy in enumerate(policies(given, rooms)):
            accepted, taken = replay(given, policy)
            sums[which] = (sums[which][0] + accepted, sums[which][1] + taken)
    return sums


def clairvoyant(given: Run, memory: bool = False, seconds: float = 20.0) -> tuple[int, int]:
    """The most claims that could be accepted, or the most memory slices that could be given to them, if all were known
    in advance and any might be refused; what was found, and a proven bound.
    """
    model = cp_model.CpModel()
    geometry = given.geometry
    places: list[list[tuple[int, int, cp_model.IntVar]]] = []
    for arrival in given.arrivals:
        profile = geometry.profiles[arrival.profile]
        own = [(card, start, model.new_bool_var("")) for card in range(given.cards) for start in profile.starts]
        model.add_at_most_one(taken for _, _, taken in own)
        places.append(own)
    # Who comes meets those who are still there; a slice, and the one set of media engines, has one user at a time.
    for now in given.arrivals:
        present = [at for at, other in enumerate(given.arrivals) if other.at <= now.at < other.until]
        for card in range(given.cards):
            users: dict[int, list[cp_model.IntVar]] = {}
            for at in present:
                profile = geometry.profiles[given.arrivals[at].profile]
                for where, start, taken in places[at]:
                    if where == card:
                        for each in range(start, start + profile.size):
                            users.setdefault(each, []).append(taken)
                        if profile.most == 1:
                            users.setdefault(-1, []).append(taken)
            for each in users.values():
                model.add_at_most_one(each)
    sizes = [geometry.profiles[arrival.profile].size if memory else 1 for arrival in given.arrivals]
    model.maximize(sum(size * taken for size, own in zip(sizes, places, strict=True) for _, _, taken in own))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    solver.solve(model)
    return round(solver.objective_value), round(solver.best_objective_bound)


def distance(product: str, sequences: int, memory: bool = False) -> tuple[list[int], int, int]:
    """On small sequences (two cards, 40 claims) by policy the accepted claims, or the slices that they took, and those
    of the clairvoyant: found, and at most.
    """
    sums, found, most = [0] * len(NAMES), 0, 0
    for seed in range(sequences):
        given = sequence(product, seed, cards=(2,), number=40)
        for which, policy in enumerate(policies(given, Rooms(given.geometry))):
            sums[which] += replay(given, policy)[memory]
        one, bound = clairvoyant(given, memory)
        found, most = found + one, most + bound
    return sums, found, most


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--product", choices=list(PRODUCTS), help="Absent: all.")
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--clairvoyant", type=int, default=40, help="Small sequences solved with the future known.")
    options = parser.parse_args()
    chosen = [options.product] if options.product else list(PRODUCTS)
    table = Table("product", *NAMES, title=f"accepted claims (slices that they took), {options.sequences:,} sequences")
    small = Table(
        "product", "of", *NAMES, "clairvoyant", title=f"{options.clairvoyant} sequences of 40 claims on 2 cards"
    )
    for product in chosen:
        began = time.monotonic()
        table.add_row(product, *(f"{one:,} ({taken:,})" for one, taken in compare(product, options.sequences)))
        for memory in (False, True) if options.clairvoyant else ():
            sums, found, most = distance(product, options.clairvoyant, memory)
            best = str(found) if found == most else f"{found} to {most}"
            small.add_row(product, "slices" if memory else "claims", *map(str, sums), best)
        Console(stderr=True).print(f"{product}: {time.monotonic() - began:.0f} s")
    console = Console(width=160)
    console.print(table)
    if options.clairvoyant:
        console.print(small)


if __name__ == "__main__":
    main()
