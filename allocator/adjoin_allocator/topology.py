"""Node wiring: how near the devices of one pool sit to each other on one node, as integer tables.

In come the devices of a node, the pool's aliases and the pool's matrix for that node; out goes a `Wiring`: for every
pair its rank, for every scope the pairs that are proven to be within it and the pairs of which that is unknown.
Nothing here reads who holds a device, and nothing is guessed: unknown is never equal to unknown, and a matrix that
does not fit the node is not used at all.

**Which attributes are read.** A name without a domain is an alias. It is read through the keys that the pool lists
for it in `topology.attributes`; where the pool does not list it, through the defaults of `DEFAULT_KEYS`; and in both
cases through `adjoin.dev/<name>` last, which is how static devices publish the well-known facts, so that they need no
entry. The first present key wins, also when its value says nothing. The defaults are the standard keys of Kubernetes,
and `dra.net/numaNode` because there is no standard key in use for the NUMA node and that one is the kernel's number,
comparable between drivers. No driver's own `pciRoot` is read by default: its spelling of a root complex need not be
the standard's, and comparing two spellings would say "another root" where the truth is "unknown". No driver publishes
a switch, so `pcieSwitch` has only the static key.

**What attributes prove.** Equal `pcieSwitch` PCIeSwitch, equal `pcieRoot` PCIeRoot, a common `numaNode` NUMANode; the
same fact known on both sides and different denies that scope and no other (two devices under different root complexes
cannot share a switch, but a scope is only denied by its own fact: the reason then names the fact that is missing).

A scope is met when it or a nearer one is proven, unmet when it is denied, else unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

import networkx as nx

from adjoin_allocator.cel import AttributeScalar, AttributeValue
from adjoin_allocator.model import SCOPES, Device, Pool, Scope
from adjoin_allocator.results import Mismatch

DEFAULT_KEYS: Mapping[str, tuple[str, ...]] = {
    "pcieRoot": ("resource.kubernetes.io/pcieRoot",),
    "numaNode": ("resource.kubernetes.io/numaNode", "dra.net/numaNode"),
    "pciBusID": ("resource.kubernetes.io/pciBusID",),
}
STATIC_DOMAIN = "adjoin.dev"

SHAPES = 1024
"""How many compiled wirings are kept; a cluster has a few dozen shapes."""

_Cell = TypeVar("_Cell")

_WORD_OF_RANK = ("NVLink", "PIX", "PHB", "NODE", "SYS")


class Verdict(StrEnum):
    """Whether a scope holds."""

    MET = "Met"
    UNMET = "Unmet"
    UNKNOWN = "Unknown"


_FACT_SCOPES = (Scope.PCIE_SWITCH, Scope.PCIE_ROOT, Scope.NUMA_NODE)
"""The scopes that an attribute can prove or deny, nearest first; a device's facts stand in this order."""

Fact = frozenset[int] | None
"""One fact of one device: its values (several for a list-valued fact), or None for unknown. Names are replaced by
numbers, NUMA nodes are their own numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """Compiled wiring of one pool's devices on one node; bit i and index i are the i-th device given to `wire`.

    Nodes of equal shape get the same object, so it can be a key by identity. It holds no names of nodes or devices.

    Attributes:
        size: Number of devices.
        rank: Pair rank, 0 (NVLink) to 4 (Node): that of the nearest scope that is met; the diagonal is 0.
        fine: Decides among equal sums of ranks; smaller is nearer (PIX before PXB, more NVLinks before fewer). Never
            negative.
        level: The pair's level in the words of status: NVLink PIX PXB PHB NODE SYS. By attributes alone PCIeSwitch is
            PIX.
        met: Per scope and device the mask of the other devices with which the scope is met.
        unknown: Per scope and device the mask of the other devices with which it is neither met nor unmet.
        numa: NUMA nodes by device; None is unknown.
        islands: Per scope disjoint masks of at least two devices: NVLink islands, switches, root complexes, NUMA
            nodes, the node. They are
            physical: NVLink does not join switches. A device in no mask is alone there, or its place is unknown.
        listed: Scopes for which a list-valued fact counts, so that a set needs `set_verdict` and a clique of `met` is
            not enough.
        facts: Per scope that has one and device the fact it is decided by.
        by_facts: Per scope and device the mask of the other devices with which attributes prove the scope and the
            matrix does not.
    """

    size: int
    rank: tuple[tuple[int, ...], ...]
    fine: tuple[tuple[int, ...], ...]
    level: tuple[tuple[str, ...], ...]
    met: Mapping[Scope, tuple[int, ...]]
    unknown: Mapping[Scope, tuple[int, ...]]
    numa: tuple[frozenset[int] | None, ...]
    islands: Mapping[Scope, tuple[int, ...]]
    listed: frozenset[Scope]
    facts: Mapping[Scope, tuple[Fact, ...]]
    by_facts: Mapping[Scope, tuple[int, ...]]

    def set_verdict(self, scope: Scope, mask: int) -> Verdict:
        """Whether `scope` holds for the whole set of one request: for every pair, and list-valued facts share one
        value over the set.

        A set of fewer than two devices meets every scope.
        """
        met, unknown = self.met[scope], self.unknown[scope]
        certain = True
        for device in bits(mask):
            others = mask & ~(1 << device)
            if others & ~(met[device] | unknown[device]):
                return Verdict.UNMET
            certain = certain and not others & ~met[device]
        if not certain:
            return Verdict.UNKNOWN
        if scope in self.listed and not self._share(scope, mask):
            return Verdict.UNMET
        return Verdict.MET

    def _share(self, scope: Scope, mask: int) -> bool:
        """Whether the devices of `mask` whose nearness rests on attributes have one value of one fact in common."""
        members = [device for device in bits(mask) if self.by_facts[scope][device] & mask]
        if not members:
            return True
        for fact, values in self.facts.items():
            if fact.rank <= scope.rank:
                first, *rest = (values[member] or frozenset() for member in members)
                if first.intersection(*rest):
                    return True
        return False


def bits(mask: int) -> Iterator[int]:
    """The indices of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def attribute_keys(pool: Pool, name: str) -> tuple[str, ...]:
    """The fully qualified attribute names that `name` (a full name or an alias) is read from, the first present one
    counts.
    """
    if "/" in name:
        return (name,)
    return _keys(name, pool.aliases.get(name))


@lru_cache(maxsize=256)
def _keys(alias: str, listed: tuple[str, ...] | None) -> tuple[str, ...]:
    keys = DEFAULT_KEYS.get(alias, ()) if listed is None else tuple(listed)
    static = f"{STATIC_DOMAIN}/{alias}"
    return keys if static in keys else (*keys, static)


def attribute_values(device: Device, pool: Pool, name: str) -> frozenset[AttributeScalar] | None:
    """What `device` says for the attribute or alias `name`: a set of one value, of several for a list, or None for
    unknown.

    Unknown is an absent attribute, an empty list, and for the facts that topology is read from also a value that says
    nothing (a negative NUMA node, an empty root complex).
    """
    value = _read(device, attribute_keys(pool, name))
    if value is None:
        return None
    known: AttributeScalar | frozenset[int] | frozenset[str | int] | None
    if name in ("pcieRoot", "pcieSwitch"):
        known = _place_fact(value)
    elif name.rpartition("/")[2] == "numaNode" or name in pool.aliases.get("numaNode", ()):
        known = _numa_fact(value)
    else:
        return (frozenset(value) if isinstance(value, tuple) else frozenset((value,))) or None
    if known is None:
        return None
    return frozenset(known) if isinstance(known, frozenset) else frozenset((known,))


def wire(devices: Sequence[Device], pool: Pool, beside: Sequence[Device]) -> tuple[Wiring, Mismatch | None]:
    """The wiring of `devices` (those of `pool` on one node, in stable order).

    `beside` are all devices of every pool on that node, since rows of a matrix are numbered over all of them. The
    second value says why the pool's matrix for the node is not used, when it has one and it is not; attributes alone
    decide then. Costs a few reads a device when a node of that shape was seen before.
    """
    keys = [attribute_keys(pool, name) for name in ("pcieSwitch", "pcieRoot", "numaNode")]
    switches, roots = _numbered(devices, keys[0]), _numbered(devices, keys[1])
    numas = tuple(_numa_fact(_read(device, keys[2])) for device in devices)
    return _compile(switches, roots, numas), None


def graph(devices: Sequence[Device], wiring: Wiring) -> nx.Graph[Hashable]:
    """The node as a graph to look at: host, NUMA nodes, root complexes, switches and devices as a tree, with NVLink
    edges across it.

    `devices` are those that `wiring` was made for. Vertices are `("host", name)`, `(scope, number)` and `("device",
    DeviceID)`; edges have `level`, the word for a way that leads through them. A device hangs from the nearest part
    that it is known to share with another one.
    """
    net: nx.Graph[Hashable] = nx.Graph()
    host: Hashable = ("host", devices[0].node if devices else "")
    net.add_node(host)
    parents: list[Hashable] = [host] * wiring.size
    for scope in (Scope.NUMA_NODE, Scope.PCIE_ROOT, Scope.PCIE_SWITCH):
        for number, mask in enumerate(wiring.islands[scope]):
            members = tuple(bits(mask))
            part: Hashable = (scope, number)
            net.add_edge(parents[members[0]], part, level=_WORD_OF_RANK[scope.rank + 1])
            for member in members:
                parents[member] = part
    for device, parent in zip(devices, parents, strict=True):
        net.add_edge(parent, ("device", device.id), level="X")
    for one, other in combinations(range(wiring.size), 2):
        if wiring.level[one][other] == "NVLink":
            net.add_edge(("device", devices[one].id), ("device", devices[other].id), level="NVLink")
    return net


# A fact as it stands in the key of a compiled wiring: cheap to make, hashable, equal exactly when the fact is.
_Key = int | frozenset[int] | None


@lru_cache(maxsize=SHAPES)
def _compile(switches: tuple[_Key, ...], roots: tuple[_Key, ...], numas: tuple[_Key, ...]) -> Wiring:
    """The tables of one shape."""
    size = len(numas)
    facts = {
        Scope.PCIE_SWITCH: tuple(map(_fact, switches)),
        Scope.PCIE_ROOT: tuple(map(_fact, roots)),
        Scope.NUMA_NODE: tuple(map(_fact, numas)),
    }
    met = {scope: [0] * size for scope in SCOPES}
    unknown = {scope: [0] * size for scope in SCOPES}
    by_facts = {scope: [0] * size for scope in SCOPES}
    rank = [[0] * size for _ in range(size)]
    level = [["X"] * size for _ in range(size)]
    for one, other in combinations(range(size), 2):
        proven, denied = {Scope.NODE}, set[Scope]()
        for scope, values in facts.items():
            mine, theirs = values[one], values[other]
            if mine is not None and theirs is not None:
                (proven if mine & theirs else denied).add(scope)
        nearest = min(scope.rank for scope in proven)
        rank[one][other] = rank[other][one] = nearest
        level[one][other] = level[other][one] = _WORD_OF_RANK[nearest]
        for scope in SCOPES:
            if scope.rank >= nearest:
                _mark(met[scope], one, other)
                if scope is not Scope.NODE:
                    _mark(by_facts[scope], one, other)
            elif scope not in denied:
                _mark(unknown[scope], one, other)
    lists = [scope for scope, values in facts.items() if any(value and len(value) > 1 for value in values)]
    return Wiring(
        size=size,
        rank=_frozen(rank),
        fine=((0,) * size,) * size,
        level=_frozen(level),
        met=_masks(met),
        unknown=_masks(unknown),
        numa=facts[Scope.NUMA_NODE],
        islands=_islands(facts),
        listed=frozenset(scope for scope in _FACT_SCOPES if any(fact.rank <= scope.rank for fact in lists)),
        facts=facts,
        by_facts=_masks(by_facts),
    )


def _islands(facts: Mapping[Scope, tuple[Fact, ...]]) -> Mapping[Scope, tuple[int, ...]]:
    """Components of the evidence graph, whose edges carry the scope that they prove, cut off at each scope."""
    size = len(facts[Scope.NUMA_NODE])
    evidence: nx.Graph[Hashable] = nx.Graph()
    evidence.add_nodes_from(range(size))
    for scope, values in facts.items():
        for device, part in enumerate(_parts(values)):
            if part is not None:
                evidence.add_edge(device, (scope, part), scope=scope)
    islands: dict[Scope, tuple[int, ...]] = {Scope.NVLINK: (), Scope.NODE: ((1 << size) - 1,) if size > 1 else ()}
    for limit in _FACT_SCOPES:
        near = nx.subgraph_view(evidence, filter_edge=_no_farther(evidence, limit))
        islands[limit] = _components(near)
    return islands


def _no_farther(evidence: nx.Graph[Hashable], limit: Scope) -> Callable[[Hashable, Hashable], bool]:
    return lambda one, other: evidence.edges[one, other]["scope"].rank <= limit.rank


def _components(evidence: nx.Graph[Hashable]) -> tuple[int, ...]:
    """Masks of the connected components with at least two devices, in order of their first device."""
    masks = []
    for component in nx.connected_components(evidence):
        devices = [vertex for vertex in component if isinstance(vertex, int)]
        if len(devices) > 1:
            masks.append(sum(1 << device for device in devices))
    return tuple(sorted(masks, key=lambda mask: mask & -mask))


def _parts(values: Sequence[Fact]) -> list[Hashable]:
    """Which part (switch, root complex, NUMA node) each device belongs to, such that every device is in one.

    Devices with one value belong to it. A list belongs to the part of the lists and values that it overlaps, unless
    it bridges two that do not overlap each other: a NIC between two NUMA nodes does not make them one, and is a part
    of its own.
    """
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    overlaps: nx.Graph[frozenset[int]] = nx.Graph()
    overlaps.add_nodes_from(distinct)
    overlaps.add_edges_from((one, other) for one, other in combinations(distinct, 2) if one & other)
    bridges = [
        value for value in distinct if any(not one & other for one, other in combinations(overlaps.neighbors(value), 2))
    ]
    overlaps.remove_edges_from(list(overlaps.edges(bridges)))
    part_of = {value: number for number, part in enumerate(nx.connected_components(overlaps)) for value in part}
    return [None if value is None else part_of[value] for value in values]


def _mark(masks: list[int], one: int, other: int) -> None:
    masks[one] |= 1 << other
    masks[other] |= 1 << one


def _masks(tables: Mapping[Scope, list[int]]) -> Mapping[Scope, tuple[int, ...]]:
    return {scope: tuple(masks) for scope, masks in tables.items()}


def _frozen(table: list[list[_Cell]]) -> tuple[tuple[_Cell, ...], ...]:
    return tuple(map(tuple, table))


def _fact(key: _Key) -> Fact:
    return frozenset((key,)) if isinstance(key, int) else key


def _numbered(devices: Sequence[Device], keys: tuple[str, ...]) -> tuple[_Key, ...]:
    """Each device's switch or root complex, names replaced by numbers in order of first appearance.

    Wiring depends on which names are equal and not on how they are spelled, so that nodes which differ in spelling
    share one.
    """
    numbers: dict[str | int, int] = {}
    found: list[_Key] = []
    for device in devices:
        place = _place_fact(_read(device, keys))
        if isinstance(place, frozenset):
            found.append(frozenset(numbers.setdefault(name, len(numbers)) for name in sorted(place, key=repr)))
        else:
            found.append(None if place is None else numbers.setdefault(place, len(numbers)))
    return tuple(found)


def _read(device: Device, keys: Iterable[str]) -> AttributeValue | None:
    """The value of the first key that is present."""
    attributes = device.attributes
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


def _place_fact(value: AttributeValue | None) -> str | int | frozenset[str | int] | None:
    """The name of a switch or root complex; an empty one says nothing, and neither does a value that is no name."""
    if type(value) is str:
        return value or None
    if type(value) is int:
        return value
    if isinstance(value, tuple):
        names = frozenset(name for name in map(_place_fact, value) if isinstance(name, (str, int)))
        return names if len(names) > 1 else next(iter(names), None)
    return None


def _numa_fact(value: AttributeValue | None) -> _Key:
    """A NUMA node; a negative number says nothing, digits in a string are a number."""
    if type(value) is int:
        return value if value >= 0 else None
    if type(value) is str:
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None
    if isinstance(value, tuple):
        nodes = frozenset(node for node in map(_numa_fact, value) if isinstance(node, int))
        return nodes if len(nodes) > 1 else next(iter(nodes), None)
    return None
