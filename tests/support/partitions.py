"""Cards with partitions that a driver publishes, and what must hold of their counters, read without the solver.

`mig_card` is a card of eight memory slices and seven parts of compute, with every place of every profile as a device of
its own; `random_cards` are counter sets as no hardware has them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from random import Random
from typing import Any

from tests.support import make

from adjoin_allocator import Device, DeviceID, DeviceType, PlacedDevice, Plan, Snapshot
from adjoin_allocator.budgets import consumed_by
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import Counted

PROFILES: Mapping[str, tuple[tuple[int, ...], int, int]] = {
    "1g": ((0, 1, 2, 3, 4, 5, 6), 1, 1),
    "1g2": ((0, 2, 4, 6), 2, 1),
    "2g": ((0, 2, 4), 2, 2),
    "3g": ((0, 4), 4, 3),
    "4g": ((0,), 4, 4),
    "7g": ((0,), 8, 7),
}
"""By profile the memory slices at which it may begin, how many it takes, and its parts of compute."""


def counted(**sets: Mapping[str, int]) -> Counted:
    """Amounts by counter set and counter."""
    return {name: {counter: Quantity(amount) for counter, amount in amounts.items()} for name, amounts in sets.items()}


def set_of(slices: Iterable[int], compute: int) -> dict[str, int]:
    """What a partition on these memory slices takes."""
    mine = list(slices)
    return {**{f"memory-slice-{at}": 1 for at in mine}, "multiprocessors": 14 * compute, "memory": 5 * len(mine)}


def device(name: str, node: str = make.NODE, kind: str = "gpu", **more: Any) -> Device:
    """A device of the GPU driver that consumes counters."""
    consumes, counters, outside = (more.pop(key, {}) for key in ("consumes", "counters", "outside"))
    base = make.device(name, node, kind=kind, role=DeviceType.GPU, **more)
    return Device(
        **{
            **{field: getattr(base, field) for field in base.__dataclass_fields__},
            "consumes": consumes,
            "counters": counters,
            "outside": outside,
        }
    )


def mig_card(
    number: int = 0,
    node: str = make.NODE,
    profiles: Iterable[str] = PROFILES,
    *,
    whole: bool = True,
    outside: Mapping[str, int] | None = None,
    **more: Any,
) -> list[Device]:
    """A card and every place of these profiles, as devices `gpu` and `mig`."""
    name = f"gpu-{number}-counter-set"
    total = counted(**{name: set_of(range(8), 7)})
    shared = {"counters": total, "outside": counted(**{name: outside}) if outside else {}}
    made = []
    if whole:
        attributes = {"gpu.nvidia.com/type": "gpu", **more.get("attributes", {})}
        made.append(device(f"gpu-{number}", node, consumes=total, **{**more, "attributes": attributes}, **shared))
    for profile in profiles:
        starts, size, compute = PROFILES[profile]
        for start in starts:
            attributes = {"gpu.nvidia.com/type": "mig", "gpu.nvidia.com/profile": profile, **more.get("attributes", {})}
            made.append(
                device(
                    f"gpu-{number}-mig-{profile}-{start}",
                    node,
                    "mig",
                    consumes=counted(**{name: set_of(range(start, start + size), compute)}),
                    **{**more, "attributes": attributes},
                    **shared,
                )
            )
    return made


def random_cards(random: Random, node: str = make.NODE, cards: int = 2, devices: int = 9) -> list[Device]:
    """Devices that take of one or two counter sets, at random; some of nothing."""
    totals = {f"set-{at}": {f"c{n}": random.randint(1, 6) for n in range(random.randint(1, 3))} for at in range(cards)}
    made = []
    for number in range(devices):
        sets = random.sample(sorted(totals), k=min(len(totals), random.choice((0, 1, 1, 1, 2))))
        consumes = {
            name: {counter: random.randint(0, most) for counter, most in totals[name].items() if random.random() < 0.8}
            for name in sets
        }
        made.append(
            device(
                f"gpu-{number}",
                node,
                consumes=counted(**{name: amounts for name, amounts in consumes.items() if amounts}),
                counters=counted(**totals),
                attributes={"gpu.nvidia.com/colour": random.choice(("red", "blue"))},
            )
        )
    return made


def fit_together(devices: Iterable[Device]) -> bool:
    """Whether these can all be in somebody's hands: the sums of what they take against what there is."""
    taken: defaultdict[tuple[str, str, str, str], Fraction] = defaultdict(Fraction)
    total: dict[tuple[str, str, str, str], Fraction] = {}
    for one in devices:
        for name, amounts in one.consumes.items():
            for counter, amount in amounts.items():
                key = (one.driver, one.id.pool, name, counter)
                taken[key] += amount.value
                there = one.counters.get(name, {}).get(counter, Quantity(0)).value
                outside = one.outside.get(name, {}).get(counter, Quantity(0)).value
                total[key] = there - outside
    return all(amount <= total[key] for key, amount in taken.items())


def largest_sets(devices: Sequence[Device], held: Sequence[Device], count: int) -> list[tuple[Device, ...]]:
    """All sets of so many devices that fit beside those that are held."""
    return [some for some in combinations(devices, count) if fit_together([*held, *some])]


def placed(request: str, one: Device) -> PlacedDevice:
    """A device as a status has it."""
    return PlacedDevice(request, one.id, one.hardware_id, None, consumed_by(one))


def assert_counters(snapshot: Snapshot, plan: Plan) -> None:
    """No counter is given out beyond what there is, unless that was so before; records say what is taken."""
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    if not any(device.consumes for device in devices.values()):
        return
    before: set[DeviceID] = {device for device in snapshot.holds if device in devices}
    before |= {
        held.id for claim in snapshot.claims for one in claim.placed for held in one.devices if held.id in devices
    }
    given = [each for answer in plan.claims.values() for placement in answer.placements for each in placement.devices]
    for each in given:
        assert each.consumed == consumed_by(devices[each.id]), f"{each.id} records {each.consumed}"
    by_node: defaultdict[str, set[DeviceID]] = defaultdict(set)
    for id_ in before | {each.id for each in given}:
        by_node[devices[id_].node].add(id_)
    new = {each.id for each in given}
    for node, ids in by_node.items():
        if ids & new:
            touched = {name for id_ in ids & new for name in devices[id_].consumes}
            mine = [devices[id_] for id_ in sorted(ids) if touched & devices[id_].consumes.keys()]
            assert fit_together(mine), f"counters of {node} are given out beyond what there is: {sorted(ids)}"


def assert_card_counts(snapshot: Snapshot, plan: Plan, pool: str) -> None:
    """Counts of a pool whose devices share counters: of each name the cards, a card with anything in use allocated."""
    mine = [one for given in snapshot.inventory.values() for one in given if one.device_pool == pool]
    given = {each.id for answer in plan.claims.values() for one in answer.placements for each in one.devices}
    given |= {each.id for claim in snapshot.claims for one in claim.placed for each in one.devices}
    given |= set(snapshot.holds)
    for kind, counts in plan.pools[pool].counts.items():
        parts = (counts.free, counts.allocated, counts.reserved, counts.releasing, counts.unhealthy, counts.missing)
        cards = _cards(mine)
        named = [card for card in cards if any(one.kind == kind for one in card)]
        used = [card for card in named if any(one.id in given for one in card)]
        assert min(parts) >= 0, f"{pool}/{kind}: a count is negative"
        assert counts.capacity == sum(parts) == len(named), f"{pool}/{kind}: {counts} are not {len(named)} cards"
        in_use = counts.allocated + counts.releasing + counts.missing
        assert in_use >= len(used), f"{pool}/{kind}: {in_use} cards count as in use, {len(used)} are"


def _cards(devices: Iterable[Device]) -> list[list[Device]]:
    cards: list[tuple[set[tuple[str, str, str]], list[Device]]] = []
    for one in devices:
        keys = {(one.driver, one.id.pool, name) for name in one.consumes} or {(one.driver, one.id.pool, str(one.id))}
        touching = [card for card in cards if card[0] & keys]
        merged = (keys.union(*(card[0] for card in touching)), [one, *(each for card in touching for each in card[1])])
        cards = [*(card for card in cards if card not in touching), merged]
    return [devices for _, devices in cards]
