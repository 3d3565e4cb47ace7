"""What pods use of each node.

In come the bound pods of successive views; out goes by node what they request together. Only nodes whose pods changed
are summed up again.
"""

from __future__ import annotations

from collections.abc import Mapping

from adjoin.environment import GuestFacts
from adjoin.inventory.changes import changed_keys


class HostUse:
    """Requests of bound pods, by node."""

    def __init__(self) -> None:
        self._guests: Mapping[str, GuestFacts] = {}
        self._used: dict[str, tuple[int, int]] = {}

    def update(self, guests: Mapping[str, GuestFacts]) -> set[str]:
        """Takes the pods of a view; the nodes on which something changed."""
        before, self._guests = self._guests, guests
        nodes: set[str] = set()
        for uid in changed_keys(before, guests):
            for sign, pod in ((-1, before.get(uid)), (1, guests.get(uid))):
                if pod is not None:
                    cpu, memory = self._used.get(pod.node, (0, 0))
                    self._used[pod.node] = (cpu + sign * pod.cpu_milli, memory + sign * pod.memory_bytes)
                    nodes.add(pod.node)
        return nodes

    def used(self, node: str) -> tuple[int, int]:
        """CPU (thousandths of a core) and memory (bytes) that pods on a node request."""
        return self._used.get(node, (0, 0))
