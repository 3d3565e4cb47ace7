"""The most that can be given away at all: the configuration linear program over machines that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.benchmarks.openb.trace import CARD, Machine, Pod, up_to_full

from adjoin_allocator.packing_lp import Order, Site, pack


def bound(order: Sequence[Pod], machines: Sequence[Machine]) -> float:
    """Unallocated per cent at 100 % arrivals that nothing can be below."""
    capacity = CARD * sum(machine.cards for machine in machines)
    alike = Counter((machine.cards, machine.cpu_milli, machine.memory_mib, machine.model) for machine in machines)
    sites = [Site(number, cards, cpu, memory * 1024) for (cards, cpu, memory, _), number in alike.items()]
    orders = [
        Order(
            number,
            pod.asked,
            pod.cpu_milli,
            pod.memory_mib * 1024,
            tuple(not pod.models or model in pod.models for _, _, _, model in alike),
        )
        for pod, number in Counter(up_to_full(order, capacity)).items()
    ]
    found = pack(sites, orders)
    assert found.bound is not None, "the program was given up"
    return 100 * (1 - found.bound / capacity)
