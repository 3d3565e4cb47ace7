"""What nodes really use, as the metrics API tells it.

In come NodeMetrics (`metrics.k8s.io`) and the time, out go loads by node, of which those are left out that are too old
to say anything. Where nobody measures there are none: that is not an error, it is not known.

Use changes with every measurement, and all that matters is which nodes are loaded; `settled` keeps what was known of a
node as long as a new measurement says the same. Nothing here asks anybody or reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from adjoin.facts import MALFORMED, NodeFacts, Raw, timestamp
from adjoin_allocator.cel import Quantity
from adjoin_allocator.hosts import most

PATH: Final = "/apis/metrics.k8s.io/v1beta1/nodes"
GROUP: Final = "metrics.k8s.io"
KIND: Final = "NodeMetrics"
STALE_SECONDS: Final = 300.0
"""A measurement that is older says nothing. Metrics servers measure every 15 to 60 s."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What was measured on a node.

    Attributes:
        node: Its name.
        cpu_milli: CPU in use, thousandths of a core, rounded up; None where that was not measured.
        memory_bytes: Memory in use, likewise.
        at: When, seconds since the epoch; None where that is not said.
    """

    node: str
    cpu_milli: int | None
    memory_bytes: int | None
    at: float | None

    def stale(self, now: float) -> bool:
        """Whether it is too old at `now`. What is not dated, or later than `now`, cannot be called old."""
        return self.at is not None and now - self.at > STALE_SECONDS


def read_node_load(obj: Raw) -> NodeLoad:
    """The load that a NodeMetrics tells. Raises `ValueError` for amounts or times that cannot be read."""
    usage = obj.get("usage") or {}
    return NodeLoad(
        node=str((obj.get("metadata") or {}).get("name") or ""),
        cpu_milli=_amount(usage.get("cpu"), 1000),
        memory_bytes=_amount(usage.get("memory"), 1),
        at=timestamp(obj.get("timestamp")),
    )


def _amount(text: object, scale: int) -> int | None:
    return None if text is None else int(-(-Quantity.parse(str(text)).value * scale // 1))


def read_loads(items: Iterable[Raw]) -> tuple[dict[str, NodeLoad], int]:
    """Loads by node, and how many objects could not be read. Of two of one node the later one counts."""
    found: dict[str, NodeLoad] = {}
    broken = 0
    for item in items:
        try:
            load = read_node_load(item)
        except MALFORMED:
            broken += 1
            continue
        known = found.get(load.node)
        if known is None or (known.at or 0.0) <= (load.at or 0.0):
            found[load.node] = load
    return found, broken


def current(loads: Mapping[str, NodeLoad], now: float) -> Mapping[str, NodeLoad]:
    """Those that are not stale; the same object when that is all."""
    fresh = {name: load for name, load in loads.items() if not load.stale(now)}
    return loads if len(fresh) == len(loads) else fresh


def sides(load: NodeLoad, facts: NodeFacts | None) -> tuple[bool, bool] | None:
    """Whether CPU and memory of a node are loaded; None of a node that is not known."""
    if facts is None:
        return None
    return most(load.cpu_milli, facts.node.cpu_milli), most(load.memory_bytes, facts.node.memory_bytes)


def settled(
    before: Mapping[str, NodeLoad], after: Mapping[str, NodeLoad], nodes: Mapping[str, NodeFacts]
) -> Mapping[str, NodeLoad]:
    """`after`, with what `before` has of each node on which neither CPU nor memory came over the limit or below it;
    `before` itself when that is so of all.
    """
    merged: dict[str, NodeLoad] = {}
    for name, load in after.items():
        known, facts = before.get(name), nodes.get(name)
        same = known is not None and sides(known, facts) == sides(load, facts)
        merged[name] = known if same and known is not None else load
    unchanged = len(merged) == len(before) and all(before.get(name) is load for name, load in merged.items())
    return before if unchanged else merged
