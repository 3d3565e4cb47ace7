"""What nodes have left for pods beside devices: CPU in thousandths of a core, memory in bytes.

In come nodes, what claims need there until their pods are bound, and what a decision gives; out comes room, node by
node. A node without limits has room for everything. Several pools share a node, and its room. Nothing here knows
devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.model import HostAsk, Node
from adjoin_allocator.nodes import PoolIndex

UNLIMITED: Final = 1 << 62
"""Room of a node of which nothing is known."""

LOADED: Final = 80
"""Per cent of a node's CPU or memory from which on it is loaded: parts of devices go elsewhere if they can."""

NOTHING: Final = HostAsk()


class Rooms:
    """The room of each node of a pool, by position; kept up by `Hosts`.

    Attributes:
        cpu_milli: Left of each node's CPU; negative where more is used than there is.
        memory_bytes: Likewise.
        busy: Nodes of which most is in use, as measured.
        full: Nodes of which most is requested.
    """

    def __init__(self, index: PoolIndex) -> None:
        self.index = index
        self.busy: NDArray[np.bool_] = np.zeros(len(index.views), dtype=bool)
        self.full: NDArray[np.bool_] = np.zeros(len(index.views), dtype=bool)
        self.cpu_milli: NDArray[np.int64] = np.zeros(len(index.views), dtype=np.int64)
        self.memory_bytes: NDArray[np.int64] = np.zeros(len(index.views), dtype=np.int64)
        self._calm: dict[bool, NDArray[np.bool_] | None] = {}
        """What `calm` says of asks that say what they need of a host, and of others; as long as that is so."""

    def load(self, position: int, busy: bool, full: bool) -> None:
        """Whether most of a node is in use, and requested, now."""
        if self.busy.item(position) != busy or self.full.item(position) != full:
            self.busy[position], self.full[position] = busy, full
            self._calm.clear()

    def suffices(self, ask: HostAsk) -> NDArray[np.bool_]:
        """By position whether one replica more has room."""
        found: NDArray[np.bool_] = self.cpu_milli >= ask.cpu_milli
        if ask.memory_bytes:
            found &= self.memory_bytes >= ask.memory_bytes
        return found

    def calm(self, ask: HostAsk) -> NDArray[np.bool_] | None:
        """Nodes that are not loaded; None when that tells none apart. What a pod needs beside its devices is known of
        an ask that says so: then requests are a question of room alone.
        """
        alone = ask != NOTHING
        if alone not in self._calm:
            loaded = self.busy if alone else self.busy | self.full
            self._calm[alone] = None if loaded.all() or not loaded.any() else ~loaded
        return self._calm[alone]

    def count(self, position: int, ask: HostAsk) -> int:
        """How many replicas more have room on a node; `UNLIMITED` for any number."""
        found = UNLIMITED
        for left, need in (
            (int(self.cpu_milli[position]), ask.cpu_milli),
            (int(self.memory_bytes[position]), ask.memory_bytes),
        ):
            if need and left < UNLIMITED >> 1:
                found = min(found, max(0, left) // need)
        return found


class Hosts:
    """Room of all nodes, as it stands in a decision.

    Attributes:
        version: Another number whenever something has changed.
    """

    def __init__(self) -> None:
        self.version = 0
        self._nodes: Mapping[str, Node] = {}
        self._claimed: dict[str, tuple[int, int]] = {}
        """By node name what replicas need whose pods are not bound, and what this decision gave."""
        self._rooms: dict[str, Rooms] = {}
        self.watcher: Callable[[str], None] | None = None
        """Called with the name of a node of which what is left has changed."""

    def enter(self, nodes: Mapping[str, Node], *, anew: bool) -> None:
        """The nodes of a snapshot. `anew`: what claims need is entered from nothing."""
        if anew:
            self.version += 1
            self._claimed, self._rooms = {}, {}
        elif nodes is not self._nodes:
            old = self._nodes
            for name, node in nodes.items():
                if old.get(name) is not node:
                    self._fill(name, node)
            for name in old.keys() - nodes.keys():
                self._fill(name, None)
        self._nodes = nodes

    def add(self, node: str, ask: HostAsk, times: int) -> None:
        """So many replicas more need this on a node, or fewer."""
        cpu, memory = self._claimed.get(node, (0, 0))
        now = (cpu + times * ask.cpu_milli, memory + times * ask.memory_bytes)
        if now == (0, 0):
            self._claimed.pop(node, None)
        else:
            self._claimed[node] = now
        self._fill(node, self._nodes.get(node))

    def rooms(self, index: PoolIndex) -> Rooms:
        """The room of each node of a pool, kept up from now on."""
        rooms = self._rooms.get(index.pool.name)
        if rooms is None or rooms.index.position is not index.position:
            rooms = self._rooms[index.pool.name] = Rooms(index)
            for position, view in enumerate(index.views):
                self._put(rooms, position, view.name, self._nodes.get(view.name))
        return rooms

    def _fill(self, name: str, node: Node | None) -> None:
        self.version += 1
        for rooms in self._rooms.values():
            position = rooms.index.position.get(name)
            if position is not None:
                self._put(rooms, position, name, node)
        if self.watcher is not None:
            self.watcher(name)

    def _put(self, rooms: Rooms, position: int, name: str, node: Node | None) -> None:
        if node is None:
            rooms.cpu_milli[position] = rooms.memory_bytes[position] = UNLIMITED
            rooms.load(position, busy=False, full=False)
            return
        cpu, memory = self._claimed.get(name, (0, 0))
        cpu, memory = cpu + node.cpu_used_milli, memory + node.memory_used_bytes
        rooms.cpu_milli[position] = UNLIMITED if node.cpu_milli is None else node.cpu_milli - cpu
        rooms.memory_bytes[position] = UNLIMITED if node.memory_bytes is None else node.memory_bytes - memory
        rooms.load(
            position,
            busy=most(node.cpu_load_milli, node.cpu_milli) or most(node.memory_load_bytes, node.memory_bytes),
            full=most(cpu, node.cpu_milli) or most(memory, node.memory_bytes),
        )


def most(used: int | None, there: int | None) -> bool:
    """Whether so much is in use of what is there that it counts as loaded; not where either is unknown."""
    return used is not None and there is not None and used * 100 >= there * LOADED
