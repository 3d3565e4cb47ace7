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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

CARD = 1000
"""Thousandths of a card that a whole one has."""

FILL = 1.3
"""How much is asked for in all, as a part of what there is."""

MOST = 1 << 40
"""Greater numbers of thousandths or MiB are taken for a mistake."""

MOST_CARDS = 64
"""Likewise of cards."""


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


class Broken(ValueError):
    """A file cannot be read: where and why."""


def read_machines(path: Path) -> list[Machine]:
    """The node list. Nodes without cards are left out, as in the published runs.

    Raises:
        Broken: The file is not such a list.
    """
    machines: dict[str, Machine] = {}
    for row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        name = row.text("sn")
        if not name or name in machines:
            raise row.broken("sn", "is empty" if not name else "is the name of an earlier node")
        machines[name] = Machine(
            name, row.number("cpu_milli"), row.number("memory_mib"), row.number("gpu", MOST_CARDS), row.text("model")
        )
    found = [machine for machine in machines.values() if machine.cards]
    if not found:
        raise Broken(f"{path}: no node has a card")
    return found


def read_pods(path: Path) -> list[Pod]:
    """The pod list, sorted by name. Whole cards are meant where no thousandths are given.

    Raises:
        Broken: The file is not such a list.
    """
    named: list[tuple[str, Pod]] = []
    for row in _rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        cards = row.number("num_gpu", MOST_CARDS)
        milli = row.number("gpu_milli", CARD, empty=CARD if cards else 0)
        if cards and not milli:
            raise row.broken("gpu_milli", f"asks for nothing of {cards} GPUs")
        if cards > 1 and milli < CARD:
            raise row.broken("gpu_milli", f"asks for parts of {cards} GPUs at once, which is not replayed")
        if milli and not cards:
            raise row.broken("gpu_milli", "asks for a part of no GPU")
        models = (model.strip() for model in row.text("gpu_spec").split("|"))
        pod = Pod(row.number("cpu_milli"), row.number("memory_mib"), cards, milli, frozenset(filter(None, models)))
        named.append((row.text("name"), pod))
    if not any(pod.cards for _, pod in named):
        raise Broken(f"{path}: no pod asks for a GPU")
    return [pod for _, pod in sorted(named, key=lambda each: each[0])]


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a file, by column."""

    path: Path
    line: int
    values: Mapping[str, str]

    def text(self, column: str) -> str:
        """What stands there; nothing where there is no such column."""
        return self.values.get(column, "").strip()

    def number(self, column: str, most: int = MOST, empty: int = 0) -> int:
        """The whole number that stands there, from 0 to `most`; `empty` where nothing does."""
        text = self.text(column)
        if not text:
            return empty
        try:
            found = Decimal(text)
            whole = found == found.to_integral_value()
        except ArithmeticError:
            whole = False
        if not whole or not 0 <= found <= most:
            raise self.broken(column, f"is no whole number from 0 to {most}")
        return int(found)

    def broken(self, column: str, why: str) -> Broken:
        """What is wrong here."""
        return Broken(f"{self.path}, line {self.line}: {column} {self.text(column)!r} {why}")


def _rows(path: Path, needed: Sequence[str]) -> Iterator[_Row]:
    """The lines of a file below its header, whose columns stand in any order, others beside them."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            header = [column.strip() for column in next(reader, [])]
            missing = [column for column in needed if column not in header]
            if missing:
                raise Broken(f"{path}, line 1: no column {', '.join(missing)} in {header}")
            for values in reader:
                if not any(map(str.strip, values)):
                    continue
                if len(values) != len(header):
                    told = f"{len(values)} values under {len(header)} columns: {values}"
                    raise Broken(f"{path}, line {reader.line_num}: {told}")
                yield _Row(path, reader.line_num, dict(zip(header, values, strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Broken(f"{path}: {error}") from error


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
