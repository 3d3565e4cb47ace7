"""Pod and node lists in the format of Alibaba's cluster-trace-gpu-v2023, and the order in which its pods arrive.

In come two CSV files, out come the machines, and for a seed the pods one after the other: the list sorted by name and
shuffled; then, where it asks for less than 130 % of the GPUs, pods drawn from it with replacement until the next one
would pass that mark; where it asks for more, without randomly chosen pods. This is the protocol of Weng et al., "Beware
of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023, with Python's
generator in place of Go's.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CARD = 1000
"""Thousandths of a card that a whole one has."""

FILL = 1.3
"""How much is asked for in all, as a part of what there is."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: processors in thousandths, memory in MiB, cards of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    model: str


@dataclass(frozen=True, slots=True)
class Pod:
    """What a pod asks for, whatever it is called: equal pods are one value.

    Attributes:
        cards: 0 for a pod that needs no card; 1 also for a part of one.
        milli: Thousandths that it needs of each of its cards.
        models: The models that will do; empty when any will.
    """

    cpu_milli: int
    memory_mib: int
    cards: int
    milli: int
    models: frozenset[str]

    @property
    def asked(self) -> int:
        """Thousandths of a card in all."""
        return self.cards * self.milli

    @property
    def shares(self) -> bool:
        """It needs a part of a card."""
        return self.cards == 1 and self.milli < CARD


def read_machines(path: Path) -> list[Machine]:
    """The node list."""
    with path.open(encoding="utf-8") as lines:
        return [
            Machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(lines)
        ]


def read_pods(path: Path) -> list[Pod]:
    """The pod list, sorted by name."""
    with path.open(encoding="utf-8") as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: row["name"])
    return [
        Pod(
            cpu_milli=int(row["cpu_milli"]),
            memory_mib=int(row["memory_mib"]),
            cards=int(row["num_gpu"]),
            milli=int(row["gpu_milli"] or 0) if int(row["num_gpu"]) else 0,
            models=frozenset(model for model in (row.get("gpu_spec") or "").split("|") if model),
        )
        for row in rows
    ]


def arrivals(pods: Sequence[Pod], machines: Sequence[Machine], seed: int) -> list[Pod]:
    """The pods in the order in which they arrive."""
    chance = random.Random(seed)
    limit = FILL * CARD * sum(machine.cards for machine in machines)
    order = list(pods)
    asked = sum(pod.asked for pod in order)
    while asked > limit:
        asked -= order.pop(chance.randrange(len(order))).asked
    chance.shuffle(order)
    while True:
        pod = pods[chance.randrange(len(pods))]
        # The published runs test with what the pod asks of one card.
        if asked + pod.milli > limit:
            return order
        order.append(pod)
        asked += pod.asked


@dataclass(slots=True)
class Curve:
    """How much of the cards nobody has while pods arrive; the figure at 100 % is the mean over the arrivals at which
    what was asked for so far rounds to that.
    """

    capacity: int
    arrived: int = 0
    given: int = 0
    _sum: float = 0.0
    _events: int = 0

    def event(self, pod: Pod, placed: bool) -> None:
        """A pod has arrived."""
        self.arrived += pod.asked
        self.given += pod.asked if placed else 0
        if round(100 * self.arrived / self.capacity) == 100:
            self._sum += 100 * (1 - self.given / self.capacity)
            self._events += 1

    @property
    def over(self) -> bool:
        """What comes now does not count any more."""
        return 100 * self.arrived / self.capacity > 100.5

    @property
    def unallocated(self) -> float:
        """Per cent of the cards that nobody has at 100 % arrivals."""
        return self._sum / self._events if self._events else 100 * (1 - self.given / self.capacity)


def up_to_full(order: Sequence[Pod], capacity: int) -> list[Pod]:
    """The arrivals that together ask for no more than there is."""
    found, asked = [], 0
    for pod in order:
        asked += pod.asked
        if asked > capacity:
            break
        found.append(pod)
    return found
