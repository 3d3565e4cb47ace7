"""How broken the free devices of a pool are: the part of them that lies outside of whole groups of near devices.

In come what the allocator remembers of the nodes and its plan; out goes, by pool and device name, a number from 0
(every free device is in a whole group) to 1 (none is). The group of a device is the nearest thing that it shares with
another device of its name: NVLink island, PCIe switch, root complex, NUMA node, else the node; it is whole while all of
its devices of that name are free. A device that is alone on its node is a whole group.

What is kept between two calls changes speed and nothing else: only nodes whose free devices changed are counted again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import ne
from typing import Final, Protocol

from adjoin_allocator import Memo, Plan, Scope

NEAREST_FIRST: Final = (Scope.NVLINK, Scope.PCIE_SWITCH, Scope.PCIE_ROOT, Scope.NUMA_NODE, Scope.NODE)
BOUND: Final = 50_000
"""So many states of nodes are remembered."""
_DIGITS: Final = 2

Parts = tuple[tuple[str, int, int], ...]
"""By device name how many devices of a node are free, and how many of these lie in groups that are not whole."""


class _Wiring(Protocol):
    @property
    def islands(self) -> Mapping[Scope, tuple[int, ...]]: ...


class _Shape(Protocol):
    @property
    def wiring(self) -> _Wiring: ...
    @property
    def kinds(self) -> Mapping[str, int]: ...


@dataclass(slots=True, eq=False)
class _Pool:
    """One pool as it was last counted: its nodes, their free devices, and the sums."""

    index: object
    free: list[int]
    total: Counter[str] = field(default_factory=Counter)
    loose: Counter[str] = field(default_factory=Counter)

    def count(self, parts: Parts, sign: int) -> None:
        for kind, free, loose in parts:
            self.total[kind] += sign * free
            self.loose[kind] += sign * loose


def groups(shape: _Shape) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """By device name its groups on a node: the devices whose nearest group it is, and all devices of it."""
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for kind, everybody in shape.kinds.items():
        left, mine = everybody, []
        for scope in NEAREST_FIRST:
            for island in shape.wiring.islands[scope]:
                group = island & everybody
                if group & left and group.bit_count() > 1:
                    mine.append((group & left, group))
                    left &= ~group
        found[kind] = tuple(mine)
    return found


class Fragmentation:
    """Measures after each decision made with one memo."""

    def __init__(self, memo: Memo) -> None:
        self._memo = memo
        self._pools: dict[str, _Pool] = {}
        self._groups: dict[_Shape, Mapping[str, tuple[tuple[int, int], ...]]] = {}
        self._parts: dict[tuple[_Shape, int], Parts] = {}

    def measure(self, plan: Plan) -> Mapping[str, Mapping[str, float]]:
        """By pool and device name, as it is once `plan`, the last answer of the memo, is carried out."""
        given = self._given(plan)
        pools: dict[str, _Pool] = {}
        for name, ledger in self._memo.ledger.pools.items():
            views = ledger.index.views
            free = list(ledger.free)
            for position, mask in given.get(name, {}).items():
                free[position] &= ~mask
            pool = self._pools.get(name)
            changed: Iterable[int] = range(len(free))
            if pool is None or pool.index is not ledger.index:
                pool = _Pool(ledger.index, free)
            else:
                changed = list(compress(changed, map(ne, pool.free, free)))
                for position in changed:
                    pool.count(self._parts_of(views[position].shape, pool.free[position]), -1)
                pool.free = free
            for position in changed:
                pool.count(self._parts_of(views[position].shape, free[position]), 1)
            pools[name] = pool
        self._pools = pools
        return {
            name: {
                kind: round(pool.loose[kind] / pool.total[kind], _DIGITS) if pool.total[kind] else 0.0
                for kind in plan.pools[name].counts
            }
            for name, pool in pools.items()
            if name in plan.pools
        }

    def _given(self, plan: Plan) -> Mapping[str, Mapping[int, int]]:
        """What the plan takes, by pool and node."""
        given: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for claim in plan.claims.values():
            for placement in claim.placements:
                for device in placement.devices:
                    found = self._memo.nodes.locate(device.id)
                    if found is not None:
                        index, position, bit = found
                        given[index.pool.name][position] |= 1 << bit
        return given

    def _parts_of(self, shape: _Shape, free: int) -> Parts:
        key = (shape, free)
        parts = self._parts.get(key)
        if parts is None:
            if len(self._parts) >= BOUND:
                self._parts.clear()
                self._groups.clear()
            near = self._groups.get(shape)
            if near is None:
                near = self._groups[shape] = groups(shape)
            parts = self._parts[key] = tuple(
                (kind, (everybody & free).bit_count(), _loose(near[kind], free))
                for kind, everybody in shape.kinds.items()
            )
        return parts


def _loose(near: Sequence[tuple[int, int]], free: int) -> int:
    return sum((members & free).bit_count() for members, group in near if group & ~free)
