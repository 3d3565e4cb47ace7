"""Nodes as the solver sees them: the devices of one pool on one node as bits, facts that nodes share as one object.

In come the inventory and the pools of a snapshot, out comes a `PoolIndex` per pool: its nodes in natural order, each
with its shape (wiring and what else decides a choice), masks by standing, and whether it takes anything new. Nothing
here knows who holds a device.

Compiled nodes are kept in `Nodes`, by identity of the tuple of devices they were made of: what did not change between
two snapshots is not looked at again. Keeping them changes speed and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from adjoin_allocator.cel import AttributeScalar, Selector
from adjoin_allocator.demand import Bundle, Demand, Stake, Want, bundles, stakes
from adjoin_allocator.model import Device, DeviceID, Node, Pool, natural_key
from adjoin_allocator.results import Mismatch
from adjoin_allocator.selectors import match_all
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import Standing
from adjoin_allocator.topology import Wiring, attribute_values, bits, wire


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What two nodes must have in common to be the same node for a choice; compared and hashed by identity.

    Attributes:
        wiring: Distances and scopes.
        kinds: By device name the mask of its devices.
        performance: By device.
        priority: By device.
    """

    wiring: Wiring
    kinds: Mapping[str, int]
    performance: tuple[int, ...]
    priority: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.wiring.size


Values = tuple[int, ...]
"""One attribute on one node: per distinct value the mask of the devices that have it, ascending. Which value it is does
not matter, only who shares it; a device in no mask has none."""


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """What else than shape and free devices decides in a node; interned, compared and hashed by identity.

    Attributes:
        eligible: By request the devices that it may have, whoever holds them.
        values: By attribute line who shares a value.
        stakes: What others want of the node.
        assumed: Places that are always assumed to be wanted count with the stakes.
        bare: The sort of the same question without others, when it was asked with them.
    """

    eligible: tuple[int, ...]
    values: tuple[Values, ...]
    stakes: tuple[Stake, ...] = ()
    assumed: bool = False
    bare: Sort | None = None


State = tuple[Shape, Sort, int]
"""Nodes of one state are the same node for a choice: shape, sort and mask of free devices."""


@dataclass(frozen=True, slots=True)
class Question:
    """What makes the sort of a node: the device name and selectors of each request, the attribute of each line, and
    what others want.
    """

    requests: tuple[tuple[str, tuple[Selector, ...]], ...]
    attributes: tuple[str, ...]
    demand: Demand = ()


Tally = tuple[tuple[str, Standing, int], ...]

SELECTIONS = 64
"""How many selector lists, and how many attributes, a node remembers."""

SHAPES = 4096
"""How many shapes are remembered for sharing; a cluster has a few dozen."""


@dataclass(slots=True, eq=False)
class NodeView:
    """One pool's devices on one node, compiled: bit i is the i-th of `devices`, in stable order."""

    name: str
    order: tuple[tuple[str | int, ...], str]
    pool: Pool
    devices: tuple[Device, ...]
    bit: Mapping[DeviceID, int]
    shape: Shape
    standing: Mapping[Standing, int]
    offered: int
    """Devices that may be given to somebody when nobody holds them."""
    tally: Tally
    mismatch: Mismatch | None
    _eligible: dict[tuple[str, tuple[Selector, ...]], int] = field(default_factory=dict)
    _values: dict[str, Values] = field(default_factory=dict)
    _bundles: dict[Want, tuple[Bundle, ...]] = field(default_factory=dict)

    def eligible(self, kind: str, selectors: tuple[Selector, ...]) -> int:
        """Devices of that name that every selector matches, whoever holds them and however they stand."""
        mask = self.shape.kinds.get(kind, 0)
        if not selectors or not mask:
            return mask
        key = (kind, selectors)
        found = self._eligible.get(key)
        if found is None:
            found = 0
            for index, device in enumerate(self.devices):
                if mask >> index & 1 and match_all(selectors, device).matched:
                    found |= 1 << index
            if len(self._eligible) >= SELECTIONS:
                self._eligible.clear()
            self._eligible[key] = found
        return found

    def values(self, name: str) -> Values:
        """Who shares which value of an attribute (full name or alias)."""
        found = self._values.get(name)
        if found is None:
            shared: dict[tuple[type, AttributeScalar], int] = {}
            for index, device in enumerate(self.devices):
                for value in attribute_values(device, self.pool, name) or ():
                    key = (type(value), value)
                    shared[key] = shared.get(key, 0) | 1 << index
            found = tuple(sorted(set(shared.values())))
            if len(self._values) >= SELECTIONS:
                self._values.clear()
            self._values[name] = found
        return found

    def bundles(self, want: Want) -> tuple[Bundle, ...]:
        """Where a want has places on the node, whoever holds the devices."""
        found = self._bundles.get(want)
        if found is None:
            if len(self._bundles) >= SELECTIONS:
                self._bundles.clear()
            found = self._bundles[want] = bundles(
                want,
                [self.eligible(kind, selectors) for kind, selectors in want.requests],
                {line.attribute: self.values(line.attribute) for line in want.lines if line.attribute},
                self.shape.wiring,
            )
        return found


@dataclass(frozen=True, slots=True, eq=False)
class PoolIndex:
    """The nodes of one pool in natural order of their names; position i everywhere is the i-th.

    Attributes:
        position: By node name.
        closed: By position why a node takes nothing new, as a class and a sentence; absent when it does.
        tally: Devices by name and standing, whoever holds them.
        shapes: All shapes that occur.
        odd: Positions of nodes that are closed or have a device which is not offered.
    """

    pool: Pool
    views: tuple[NodeView, ...]
    position: Mapping[str, int]
    closed: Mapping[int, tuple[str, str]]
    tally: Mapping[tuple[str, Standing], int]
    mismatches: tuple[Mismatch, ...]
    shapes: frozenset[Shape]
    odd: frozenset[int]


GONE = "gone"
DELETING = "being deleted"
NOT_READY = "not ready"
CORDONED = "cordoned"
TAINTED = "tainted"


def closed(node: Node | None, pool: Pool) -> tuple[str, str] | None:
    """Why `node` takes nothing new for `pool`, as a class and a sentence, or None when it does."""
    if node is None or not node.exists:
        return GONE, "has no Node object"
    if node.deleting:
        return DELETING, "is being deleted"
    if not node.ready:
        return NOT_READY, "is not ready"
    if node.unschedulable:
        return CORDONED, "is cordoned"
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(t.tolerates(taint) for t in pool.tolerations):
            value = f"={taint.value}" if taint.value else ""
            return TAINTED, f"has taint {taint.key}{value}:{taint.effect}, which the pool does not tolerate"
    return None


@dataclass(slots=True, eq=False)
class _Compiled:
    """One node: the devices it was compiled from, the pools they name, and a view for each of these that exists."""

    source: tuple[Device, ...]
    pools: tuple[str, ...]
    views: dict[str, NodeView]


class Nodes:
    """Compiled nodes, kept between decisions; holds what the last snapshot had and no more."""

    def __init__(self) -> None:
        self._inventory: Mapping[str, tuple[Device, ...]] | None = None
        self._objects: Mapping[str, Node] | None = None
        self._nodes: dict[str, _Compiled] = {}
        self._pools: dict[str, PoolIndex] = {}
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._where: dict[DeviceID, NodeView] = {}
        self._sorts: dict[tuple[tuple[int, ...], tuple[Values, ...], tuple[Stake, ...], bool], Sort] = {}
        self._sorted: dict[tuple[str, Question], tuple[PoolIndex, tuple[Sort, ...]]] = {}

    def index(self, snapshot: Snapshot) -> Mapping[str, PoolIndex]:
        """The index of every pool of the snapshot.

        Free when inventory, nodes and pools are the very objects of last time; else one look a node, and work for
        those that changed.
        """
        same = snapshot.inventory is self._inventory and snapshot.nodes is self._objects
        pools = self._pools
        same = same and len(pools) == len(snapshot.pools)
        if same and all(name in pools and pools[name].pool is pool for name, pool in snapshot.pools.items()):
            return pools
        members = self._members(snapshot)
        self._pools = {
            name: self._gather(pool, members[name], snapshot.nodes) for name, pool in sorted(snapshot.pools.items())
        }
        self._inventory, self._objects = snapshot.inventory, snapshot.nodes
        return self._pools

    def locate(self, device: DeviceID) -> tuple[PoolIndex, int, int] | None:
        """Where a device is: its pool's index, the position of its node and its bit; None when no pool has it."""
        view = self._where.get(device)
        if view is None:
            return None
        index = self._pools[view.pool.name]
        return index, index.position[view.name], view.bit[device]

    def sorts(self, index: PoolIndex, question: Question) -> tuple[Sort, ...]:
        """The sort of each node. Costs the evaluation of the selectors on devices that they were not yet tried on."""
        key = (index.pool.name, question)
        known = self._sorted.get(key)
        if known is not None and known[0] is index:
            return known[1]
        demand = question.demand
        plain = not question.attributes and not any(selectors for _, selectors in question.requests)
        plain = plain and all(wanted.want.plain for wanted in demand)
        assumed = bool(demand)
        by_shape: dict[Shape, Sort] = {}
        sorts = []
        for view in index.views:
            sort = by_shape.get(view.shape) if plain else None
            if sort is None:
                eligible = tuple(view.eligible(kind, selectors) for kind, selectors in question.requests)
                values = tuple(view.values(name) for name in question.attributes)
                wanted_here = stakes([(wanted, view.bundles(wanted.want)) for wanted in demand])
                sort = self.sort(eligible, values, wanted_here, assumed)
                by_shape[view.shape] = sort
            sorts.append(sort)
        if len(self._sorted) >= SELECTIONS:
            self._sorted.clear()
        self._sorted[key] = (index, tuple(sorts))
        return self._sorted[key][1]

    def slowest(self, index: PoolIndex, kind: str, selectors: tuple[Selector, ...]) -> int:
        """The least performance of the pool's devices of that name that the selectors match; 0 when there is none."""
        sorts = self.sorts(index, Question(((kind, selectors),), ()))
        pairs = {(view.shape, sort.eligible[0]) for view, sort in zip(index.views, sorts, strict=True)}
        return min((shape.performance[at] for shape, mask in pairs for at in bits(mask)), default=0)

    def sort(
        self,
        eligible: tuple[int, ...],
        values: tuple[Values, ...],
        wanted: tuple[Stake, ...] = (),
        assumed: bool = False,
    ) -> Sort:
        """The one sort of these: equal ones are the same."""
        key = (eligible, values, wanted, assumed)
        sort = self._sorts.get(key)
        if sort is None:
            if len(self._sorts) >= SHAPES:
                self._sorts.clear()
            bare = self.sort(eligible, values) if wanted or assumed else None
            sort = self._sorts[key] = Sort(eligible, values, wanted, assumed, bare)
        return sort

    def _members(self, snapshot: Snapshot) -> Mapping[str, list[NodeView]]:
        """Brings the compiled nodes up to the snapshot; by pool its views."""
        members: dict[str, list[NodeView]] = {name: [] for name in snapshot.pools}
        nodes = self._nodes
        for name in [name for name in nodes if name not in snapshot.inventory]:
            self._drop(nodes.pop(name))
        for name, devices in snapshot.inventory.items():
            node = nodes.get(name)
            if node is None or node.source is not devices:
                if node is not None:
                    self._drop(node)
                node = _Compiled(devices, tuple(sorted({device.device_pool for device in devices})), {})
                nodes[name] = node
            for pool_name in node.pools:
                pool, view = snapshot.pools.get(pool_name), node.views.get(pool_name)
                if view is not None and view.pool is not pool:
                    self._drop_view(node.views.pop(pool_name))
                    view = None
                if pool is not None:
                    if view is None:
                        view = node.views[pool_name] = self._compile(name, pool, devices)
                    members[pool_name].append(view)
        return members

    def _drop(self, node: _Compiled) -> None:
        for view in node.views.values():
            self._drop_view(view)

    def _drop_view(self, view: NodeView) -> None:
        for device in view.bit:
            if self._where.get(device) is view:
                del self._where[device]

    def _gather(self, pool: Pool, views: list[NodeView], objects: Mapping[str, Node]) -> PoolIndex:
        old = self._pools.get(pool.name)
        ordered = tuple(sorted(views, key=lambda view: view.order))
        position = {view.name: place for place, view in enumerate(ordered)}
        shut = {}
        for place, view in enumerate(ordered):
            why = closed(objects.get(view.name), pool)
            if why is not None:
                shut[place] = why
        if old is not None and old.pool is pool and old.closed == shut and old.views == ordered:
            return old
        tally: Counter[tuple[str, Standing]] = Counter()
        for part, times in Counter(view.tally for view in ordered).items():
            for kind, standing, count in part:
                tally[kind, standing] += count * times
        mismatches = tuple(view.mismatch for view in ordered if view.mismatch is not None)
        shapes = frozenset(view.shape for view in ordered)
        odd = {place for place, view in enumerate(ordered) if view.offered != (1 << view.shape.size) - 1}
        return PoolIndex(pool, ordered, position, shut, tally, mismatches, shapes, frozenset(odd | shut.keys()))

    def _compile(self, name: str, pool: Pool, beside: tuple[Device, ...]) -> NodeView:
        devices = tuple(device for device in beside if device.device_pool == pool.name)
        wiring, mismatch = wire(devices, pool, beside)
        kinds: dict[str, int] = {}
        standing = dict.fromkeys(Standing, 0)
        for index, device in enumerate(devices):
            kinds[device.kind] = kinds.get(device.kind, 0) | 1 << index
            standing[device.standing] |= 1 << index
        view = NodeView(
            name=name,
            order=natural_key(name),
            pool=pool,
            devices=devices,
            bit={device.id: index for index, device in enumerate(devices)},
            shape=self._shape(wiring, kinds, devices),
            standing=standing,
            offered=standing[Standing.OFFERED],
            tally=tuple(
                (kind, stand, (mask & devices_).bit_count())
                for kind, mask in kinds.items()
                for stand, devices_ in standing.items()
                if mask & devices_
            ),
            mismatch=mismatch,
        )
        for device in devices:
            self._where[device.id] = view
        return view

    def _shape(self, wiring: Wiring, kinds: Mapping[str, int], devices: tuple[Device, ...]) -> Shape:
        performance = tuple(device.performance for device in devices)
        priority = tuple(device.priority for device in devices)
        key = (wiring, tuple(sorted(kinds.items())), performance, priority)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            shape = self._shapes[key] = Shape(wiring, kinds, performance, priority)
        return shape
