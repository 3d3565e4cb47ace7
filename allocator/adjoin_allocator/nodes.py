"""Nodes as the solver sees them: the devices of one pool on one node as bits, facts that nodes share as one object.

In come the inventory and the pools of a snapshot, out comes a `PoolIndex` per pool: its nodes in natural order, each
with its shape (wiring and what else decides a choice), masks by standing, and whether it takes anything new. Nothing
here knows who holds a device.

Compiled nodes are kept in `Nodes`, by identity of the tuple of devices they were made of: what did not change between
two snapshots is not looked at again. Keeping them changes speed and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from adjoin_allocator.budgets import MILLI, Counters, counters_key
from adjoin_allocator.cel import AttributeScalar, Selector
from adjoin_allocator.demand import Bundle, Demand, Stake, Want, bundles, stakes
from adjoin_allocator.model import Device, DeviceID, Node, Pool, natural_key
from adjoin_allocator.results import Mismatch
from adjoin_allocator.selectors import match_all
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.symmetry import Symmetry, symmetry
from adjoin_allocator.terms import DeviceState, Standing
from adjoin_allocator.topology import Wiring, attribute_values, bits, wire


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What two nodes must have in common to be the same node for a choice; compared and hashed by identity.

    Attributes:
        wiring: Distances and scopes.
        kinds: By device name the mask of its devices.
        performance: By device.
        priority: By device.
        counters: What devices share counters, or None. A state of such a node says more than which devices are free.
    """

    wiring: Wiring
    kinds: Mapping[str, int]
    performance: tuple[int, ...]
    priority: tuple[int, ...]
    counters: Counters | None = None

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.wiring.size

    def usable(self, state: int) -> int:
        """The devices of a state that can be given now, each for itself: all of them where nothing is shared."""
        return state if self.counters is None else self.counters.usable(state)

    def only(self, state: int, mask: int) -> int:
        """The state in which of all devices that can be given only these are left, and nobody has the others."""
        return state & mask if self.counters is None else self.counters.only(state, mask)

    def most(self, state: int, mask: int) -> int:
        """How many of these devices can be given together, whatever they are wired like."""
        return (state & mask).bit_count() if self.counters is None else self.counters.most(state, mask)

    def rivals(self, mask: int) -> int:
        """These devices and those that cannot be had beside them for sure."""
        return mask if self.counters is None else self.counters.rivals(mask)


Value = tuple[type, AttributeScalar]
"""One value of an attribute, told apart by its type too."""

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
"""Nodes of one state are the same node for a choice: shape, sort and mask of free devices (where the shape has
counters, as `budgets` says: `Shape.usable` has those that can be given)."""


@dataclass(frozen=True, slots=True)
class Having:
    """Devices of a request, by its place, must have a value; `every` one that it matches when it takes them all."""

    request: int
    attribute: str
    value: Value
    every: bool


@dataclass(frozen=True, slots=True)
class Question:
    """What makes the sort of a node: the device name and selectors of each request, the attribute of each line, and
    what others want. `having`: a request may only have devices with this value (among others) of an attribute; where it
    takes all that match on a node, all of them must.
    """

    requests: tuple[tuple[str, tuple[Selector, ...]], ...]
    attributes: tuple[str, ...]
    demand: Demand = ()
    having: tuple[Having, ...] = ()


Counting = Standing | DeviceState
"""As what a device counts: how it stands, or in whose hands it is."""

Tally = tuple[tuple[str, Counting, int], ...]

Layout = Mapping[tuple[str, int, str], int]
"""Where a device stands among those of a node, by driver, number of its DRA pool on the node, and name. Nodes whose
devices are called alike share one."""


class Bits(Mapping[DeviceID, int]):
    """Places of a node's devices, by name; equal for nodes only when all names are."""

    __slots__ = ("layout", "pools")

    def __init__(self, pools: tuple[str, ...], layout: Layout) -> None:
        self.pools = pools
        self.layout = layout

    def __getitem__(self, device: DeviceID) -> int:
        driver, pool, name = device
        try:
            return self.layout[driver, self.pools.index(pool), name]
        except ValueError:
            raise KeyError(device) from None

    def find(self, device: DeviceID) -> int | None:
        """The place of a device, or None where there is no such device."""
        driver, pool, name = device
        return self.layout.get((driver, self.pools.index(pool), name)) if pool in self.pools else None

    def __iter__(self) -> Iterator[DeviceID]:
        return (DeviceID(driver, self.pools[number], name) for driver, number, name in self.layout)

    def __len__(self) -> int:
        return len(self.layout)

    def same(self, other: Bits) -> bool:
        """Whether all devices have the same names and places."""
        return self.pools == other.pools and (self.layout is other.layout or self.layout == other.layout)


_STANDINGS = tuple(Standing)

IDLE = (Standing.UNHEALTHY, Standing.WITHHELD, Standing.UNGUARDED, Standing.MISSING)
"""Standings of devices that take no counters while nobody has them."""

_Interned = TypeVar("_Interned", bound=Hashable)

FEW = 4
"""Nodes of one DRA pool that are looked through for a device."""

SELECTIONS = 64
"""How many selector lists, and how many attributes, a node remembers."""

SHAPES = 4096
"""How many shapes are remembered for sharing; a cluster has a few dozen."""


@dataclass(slots=True, eq=False)
class _Looks:
    """What was found of a node's devices."""

    eligible: dict[tuple[str, tuple[Selector, ...]], int] = field(default_factory=dict)
    sharing: dict[str, Mapping[Value, int]] = field(default_factory=dict)
    values: dict[str, Values] = field(default_factory=dict)
    bundles: dict[Want, tuple[Bundle, ...]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class NodeView:
    """One pool's devices on one node, compiled: bit i is the i-th of `devices`, in stable order."""

    name: str
    order: tuple[tuple[str | int, ...], str]
    pool: Pool
    devices: tuple[Device, ...]
    bit: Bits
    shape: Shape
    standing: Mapping[Standing, int]
    offered: int
    """Devices that may be given to somebody when nobody holds them."""
    tally: Tally
    mismatch: Mismatch | None
    whole: int
    """All devices."""
    idle: int = 0
    """Devices that may not be given and take no counters either while nobody has them."""
    _known: _Looks | None = None

    @property
    def _looks(self) -> _Looks:
        if self._known is None:
            self._known = _Looks()
        return self._known

    def state(self, held: int) -> int:
        """The node's part of a state where somebody has these devices."""
        if self.shape.counters is None:
            return self.offered & ~held
        return (self.offered & ~held) | (self.idle & ~held) << self.shape.size

    def counted(self, held: int, back: int) -> Tally:
        """As what the node's devices count where somebody has `held`, and `back` of them are on their way back: where
        devices share counters, those of one name on one card are one.
        """
        counters = self.shape.counters
        assert counters is not None, "devices are counted one by one where nothing is shared"
        found: Counter[tuple[str, Counting]] = Counter()
        usable = counters.usable(self.state(held))
        alone = self.whole & ~sum(counters.cards)
        for card in (*counters.cards, *(1 << at for at in bits(alone))):
            for kind, mask in self.shape.kinds.items():
                if mask & card:
                    found[kind, self._counting(card, mask & card, held & card, back, usable)] += 1
        return tuple((kind, stand, number) for (kind, stand), number in found.items())

    def _counting(self, card: int, mine: int, held: int, back: int, usable: int) -> Counting:
        missing = self.standing[Standing.MISSING]
        if not mine & ~missing:
            return Standing.MISSING
        if held & ~missing or held & mine:
            return DeviceState.ALLOCATED if held & ~back else DeviceState.RELEASING
        if mine & usable:
            return Standing.OFFERED
        kept = card if not held and mine & self.offered else mine
        if kept & self.standing[Standing.QUARANTINED]:
            return Standing.QUARANTINED
        if held or mine & self.offered:
            # What keeps it from being given is in the hands of somebody who is not in the inventory.
            return DeviceState.ALLOCATED
        return next(stand for stand, mask in self.standing.items() if mask & mine & ~missing)

    def eligible(self, kind: str, selectors: tuple[Selector, ...]) -> int:
        """Devices of that name that every selector matches, whoever holds them and however they stand."""
        mask = self.shape.kinds.get(kind, 0)
        if not selectors or not mask:
            return mask
        key = (kind, selectors)
        found = self._looks.eligible.get(key)
        if found is None:
            found = 0
            for index, device in enumerate(self.devices):
                if mask >> index & 1 and match_all(selectors, device).matched:
                    found |= 1 << index
            if len(self._looks.eligible) >= SELECTIONS:
                self._looks.eligible.clear()
            self._looks.eligible[key] = found
        return found

    def values(self, name: str) -> Values:
        """Who shares which value of an attribute (full name or alias)."""
        found = self._looks.values.get(name)
        if found is None:
            found = tuple(sorted(set(self.sharing(name).values())))
            if len(self._looks.values) >= SELECTIONS:
                self._looks.values.clear()
            self._looks.values[name] = found
        return found

    def sharing(self, name: str) -> Mapping[Value, int]:
        """Which devices have which value of an attribute (full name or alias)."""
        found = self._looks.sharing.get(name)
        if found is None:
            shared: dict[Value, int] = {}
            for index, device in enumerate(self.devices):
                for value in attribute_values(device, self.pool, name) or ():
                    key = (type(value), value)
                    shared[key] = shared.get(key, 0) | 1 << index
            if len(self._looks.sharing) >= SELECTIONS:
                self._looks.sharing.clear()
            found = self._looks.sharing[name] = shared
        return found

    def bundles(self, want: Want) -> tuple[Bundle, ...]:
        """Where a want has places on the node, whoever holds the devices."""
        found = self._looks.bundles.get(want)
        if found is None:
            if len(self._looks.bundles) >= SELECTIONS:
                self._looks.bundles.clear()
            found = self._looks.bundles[want] = bundles(
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
        uneven: Positions of nodes that have a device which is not offered.
        counted: Some devices share counters.
        portions: By device name the least that a device of it costs, in thousandths, where that is less than a whole.
    """

    pool: Pool
    views: tuple[NodeView, ...]
    position: Mapping[str, int]
    closed: Mapping[int, tuple[str, str]]
    tally: Mapping[tuple[str, Counting], int]
    mismatches: tuple[Mismatch, ...]
    shapes: frozenset[Shape]
    uneven: frozenset[int]
    counted: bool = False
    portions: tuple[tuple[str, int], ...] = ()

    @property
    def odd(self) -> frozenset[int]:
        """Positions of nodes that are closed or have a device which is not offered."""
        return self.uneven | self.closed.keys()


def _portions(shapes: Iterable[Shape]) -> tuple[tuple[str, int], ...]:
    least: dict[str, int] = {}
    for shape in shapes:
        for kind, mask in shape.kinds.items():
            each = (shape.counters.portions[at] for at in bits(mask)) if shape.counters is not None else iter(())
            least[kind] = min(least.get(kind, MILLI), min(each, default=MILLI))
    return tuple((kind, milli) for kind, milli in sorted(least.items()) if milli < MILLI)


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
        self._where: dict[tuple[str, str], tuple[NodeView, ...]] = {}
        """By driver and DRA pool the views that have devices of it, up to `FEW`."""
        self._crowded: dict[DeviceID, NodeView] = {}
        """Devices of DRA pools that span more nodes than that, on the others."""
        self._interned: dict[Hashable, Hashable] = {}
        self._standings: dict[tuple[int, ...], Mapping[Standing, int]] = {}
        self._layouts: dict[tuple[tuple[str, int, str], ...], Layout] = {}
        self._sorts: dict[tuple[tuple[int, ...], tuple[Values, ...], tuple[Stake, ...], bool], Sort] = {}
        self._symmetries: dict[Shape, Symmetry] = {}
        self._slowest: dict[tuple[str, str, tuple[Selector, ...]], tuple[PoolIndex, int]] = {}
        self._sorted: dict[tuple[str, Question], tuple[PoolIndex, tuple[Sort, ...]]] = {}

    def index(self, snapshot: Snapshot) -> Mapping[str, PoolIndex]:
        """The index of every pool of the snapshot.

        Free when inventory, nodes and pools are the very objects of last time; else one look a node, and work for
        those that changed.
        """
        pools = self._pools
        same = snapshot.inventory is self._inventory and len(pools) == len(snapshot.pools)
        if same and all(name in pools and pools[name].pool is pool for name, pool in snapshot.pools.items()):
            if snapshot.nodes is not self._objects:
                self._reopen(self._objects or {}, snapshot.nodes)
                self._objects = snapshot.nodes
            return self._pools
        members = self._members(snapshot)
        self._pools = {
            name: self._gather(pool, members[name], snapshot.nodes) for name, pool in sorted(snapshot.pools.items())
        }
        self._inventory, self._objects = snapshot.inventory, snapshot.nodes
        return self._pools

    def _reopen(self, old: Mapping[str, Node], new: Mapping[str, Node]) -> None:
        """Nodes changed and nothing else: which of them take something new."""
        changed = [name for name, node in new.items() if old.get(name) is not node]
        changed += old.keys() - new.keys()
        for name, index in self._pools.items():
            shut = dict(index.closed)
            for node in changed:
                place = index.position.get(node)
                if place is not None:
                    why = closed(new.get(node), index.pool)
                    shut.pop(place, None)
                    if why is not None:
                        shut[place] = why
            if shut != index.closed:
                self._pools = {**self._pools, name: replace(index, closed=shut)}

    def locate(self, device: DeviceID) -> tuple[PoolIndex, int, int] | None:
        """Where a device is: its pool's index, the position of its node and its bit; None when no pool has it."""
        for view in self._where.get((device[0], device[1]), ()):
            bit = view.bit.find(device)
            if bit is not None:
                index = self._pools[view.pool.name]
                return index, index.position[view.name], bit
        crowded = self._crowded.get(device) if self._crowded else None
        if crowded is None:
            return None
        index = self._pools[crowded.pool.name]
        return index, index.position[crowded.name], crowded.bit[device]

    def sorts(self, index: PoolIndex, question: Question) -> tuple[Sort, ...]:
        """The sort of each node. Costs the evaluation of the selectors on devices that they were not yet tried on."""
        key = (index.pool.name, question)
        known = self._sorted.get(key)
        if known is not None and known[0] is index:
            return known[1]
        plain = not question.attributes and not any(selectors for _, selectors in question.requests)
        plain = plain and not question.having and all(wanted.want.plain for wanted in question.demand)
        by_shape: dict[Shape, Sort] = {}
        sorts = []
        for view in index.views:
            sort = by_shape.get(view.shape) if plain else None
            if sort is None:
                sort = by_shape[view.shape] = self.sort(view, question)
            sorts.append(sort)
        if len(self._sorted) >= SELECTIONS:
            self._sorted.clear()
        self._sorted[key] = (index, tuple(sorts))
        return self._sorted[key][1]

    def slowest(self, index: PoolIndex, kind: str, selectors: tuple[Selector, ...]) -> int:
        """The least performance of the pool's devices of that name that the selectors match; 0 when there is none."""
        key = (index.pool.name, kind, selectors)
        known = self._slowest.get(key)
        if known is not None and known[0] is index:
            return known[1]
        pairs = {(view.shape, view.eligible(kind, selectors)) for view in index.views}
        found = min((shape.performance[at] for shape, mask in pairs for at in bits(mask)), default=0)
        if len(self._slowest) >= SELECTIONS:
            self._slowest.clear()
        self._slowest[key] = (index, found)
        return found

    def sort(self, view: NodeView, question: Question) -> Sort:
        """The sort of one node."""
        eligible = tuple(view.eligible(kind, selectors) for kind, selectors in question.requests)
        for one in question.having:
            narrowed = eligible[one.request] & view.sharing(one.attribute).get(one.value, 0)
            if one.every and narrowed != eligible[one.request]:
                narrowed = 0
            eligible = (*eligible[: one.request], narrowed, *eligible[one.request + 1 :])
        values = tuple(view.values(name) for name in question.attributes)
        wanted_here = stakes([(wanted, view.bundles(wanted.want)) for wanted in question.demand])
        return self._sort(eligible, values, wanted_here, bool(question.demand))

    def symmetry(self, shape: Shape) -> Symmetry:
        """Which devices of a shape can be exchanged."""
        if shape.counters is not None:
            # Partitions of a card are told apart by what they leave of it.
            return Symmetry(shape.size, ())
        found = self._symmetries.get(shape)
        if found is None:
            if len(self._symmetries) >= SHAPES:
                self._symmetries.clear()
            kinds = shape.kinds.items()
            found = self._symmetries[shape] = symmetry(
                shape.wiring,
                [
                    (tuple(mask >> device & 1 for _, mask in kinds), shape.performance[device], shape.priority[device])
                    for device in range(shape.size)
                ],
            )
        return found

    def sort_of(self, eligible: tuple[int, ...], values: tuple[Values, ...], wanted: tuple[Stake, ...]) -> Sort:
        """The one sort of these; equal ones are the same."""
        return self._sort(eligible, values, wanted)

    def _sort(
        self,
        eligible: tuple[int, ...],
        values: tuple[Values, ...],
        wanted: tuple[Stake, ...] = (),
        assumed: bool = False,
    ) -> Sort:
        key = (eligible, values, wanted, assumed)
        sort = self._sorts.get(key)
        if sort is None:
            if len(self._sorts) >= SHAPES:
                self._sorts.clear()
            bare = self._sort(eligible, values) if wanted or assumed else None
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
                node = _Compiled(devices, self._same(tuple(sorted({device.device_pool for device in devices}))), {})
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
        for place in {(device.id.driver, device.id.pool) for device in view.devices}:
            left = tuple(other for other in self._where.get(place, ()) if other is not view)
            if left:
                self._where[place] = left
            else:
                self._where.pop(place, None)
        for device in view.devices if self._crowded else ():
            if self._crowded.get(device.id) is view:
                del self._crowded[device.id]

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
        tally: Counter[tuple[str, Counting]] = Counter()
        for part, times in Counter(view.tally for view in ordered).items():
            for kind, standing, count in part:
                tally[kind, standing] += count * times
        mismatches = tuple(view.mismatch for view in ordered if view.mismatch is not None)
        shapes = frozenset(view.shape for view in ordered)
        uneven = frozenset(place for place, view in enumerate(ordered) if view.offered != view.whole)
        counted = any(shape.counters is not None for shape in shapes)
        portions = _portions(shapes) if counted else ()
        return PoolIndex(pool, ordered, position, shut, tally, mismatches, shapes, uneven, counted, portions)

    def _compile(self, name: str, pool: Pool, beside: tuple[Device, ...]) -> NodeView:
        devices = tuple([device for device in beside if device.device_pool == pool.name])
        devices = beside if len(devices) == len(beside) else devices
        wiring, mismatch = wire(devices, pool, beside)
        kinds: dict[str, int] = {}
        standing = [0] * len(_STANDINGS)
        for index, device in enumerate(devices):
            kinds[device.kind] = kinds.get(device.kind, 0) | 1 << index
            standing[_STANDINGS.index(device.standing)] |= 1 << index
        by_standing = self._standing(tuple(standing))
        view = NodeView(
            name=name,
            order=natural_key(name),
            pool=pool,
            devices=devices,
            bit=self._bits(devices),
            shape=self._shape(wiring, kinds, devices),
            standing=by_standing,
            offered=by_standing[Standing.OFFERED],
            tally=self._same(
                tuple(
                    [
                        (kind, stand, (mask & there).bit_count())
                        for kind, mask in kinds.items()
                        for stand, there in by_standing.items()
                        if mask & there
                    ]
                )
            ),
            mismatch=mismatch,
            whole=(1 << len(devices)) - 1,
            idle=sum(by_standing[stand] for stand in IDLE),
        )
        if view.shape.counters is not None:
            view.tally = self._same(view.counted(0, 0))
        for place in {(device.id.driver, device.id.pool) for device in devices}:
            known = self._where.get(place, ())
            if len(known) < FEW:
                self._where[place] = (view, *known)
            else:
                mine = (device.id for device in devices if (device.id.driver, device.id.pool) == place)
                self._crowded.update(dict.fromkeys(mine, view))
        return view

    def _bits(self, devices: tuple[Device, ...]) -> Bits:
        pools = self._same(tuple(dict.fromkeys(device.id.pool for device in devices)))
        names = tuple([(device.id.driver, pools.index(device.id.pool), device.id.device) for device in devices])
        layout = self._layouts.get(names)
        if layout is None:
            if len(self._layouts) >= SHAPES:
                self._layouts.clear()
            layout = self._layouts[names] = {name: place for place, name in enumerate(names)}
        return Bits(pools, layout)

    def _standing(self, masks: tuple[int, ...]) -> Mapping[Standing, int]:
        known = self._standings.get(masks)
        if known is None:
            if len(self._standings) >= SHAPES:
                self._standings.clear()
            known = self._standings[masks] = dict(zip(_STANDINGS, masks, strict=True))
        return known

    def _same(self, value: _Interned) -> _Interned:
        """The first value that was equal to this one: nodes are alike, and need be in memory once."""
        if len(self._interned) >= SHAPES:
            self._interned.clear()
        return cast(_Interned, self._interned.setdefault(value, value))

    def _shape(self, wiring: Wiring, kinds: Mapping[str, int], devices: tuple[Device, ...]) -> Shape:
        performance = tuple(device.performance for device in devices)
        priority = tuple(device.priority for device in devices)
        shared = counters_key(devices)
        key = (wiring, tuple(sorted(kinds.items())), performance, priority, shared)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            counters = None if shared is None else Counters(*shared)
            shape = self._shapes[key] = Shape(wiring, kinds, performance, priority, counters)
        return shape
