"""The network as a tree: which nodes lie under one domain of a level.

In come a pool's index, its levels (coarse to fine, each a node label) and the Node objects; out comes a `FabricTree` of
domains by level. A domain is the path of label values down to its level, so that a value of a finer label which occurs
under two values of a coarser one is two domains. A node without the label of a level, or of a coarser one, is in no
domain of that level: unknown never equals unknown. Nothing here knows devices or who holds them.

What was compiled is kept in `Fabrics`; a node whose labels did not change is not read again. Keeping it changes speed
and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from adjoin_allocator.amounts import counted
from adjoin_allocator.model import FabricLevel, Node, Pool, natural_key
from adjoin_allocator.nodes import PoolIndex

Integers = npt.NDArray[np.int64]

Path = tuple[str, ...]
"""Label values from the coarsest level down, up to the first that a node does not have."""

WHOLE = -1
"""The level above all: the pool as a whole is its one domain."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One level of a tree.

    Attributes:
        level: Its name and label.
        paths: By number of a domain its path; numbers follow the natural order of paths.
        parent: By number of a domain that of the domain above it; empty of meaning at the coarsest level (all 0).
        domain: By position of a node the number of its domain, -1 for none.
    """

    level: FabricLevel
    paths: tuple[Path, ...]
    parent: Integers
    domain: Integers

    def name(self, domain: int) -> str:
        """`rack r2`, in words for a message."""
        return f"{self.level.name} {self.paths[domain][-1]}"


@dataclass(frozen=True, slots=True, eq=False)
class FabricTree:
    """The domains of one pool.

    Attributes:
        index: The pool's nodes.
        layers: By level, coarse to fine.
        children: By level and number of a domain the numbers of the domains right below; of the pool as a whole under
            `WHOLE`.
        loose: By level and domain the positions of its nodes that are in no domain of the next finer level (at the
            finest level all of its nodes).
    """

    index: PoolIndex
    layers: tuple[Layer, ...]
    children: Mapping[tuple[int, int], tuple[int, ...]]
    loose: Mapping[tuple[int, int], tuple[int, ...]]

    def level(self, name: str) -> int:
        """The place of a level among the layers; `WHOLE` for no name.

        Raises:
            KeyError: There is no such level.
        """
        if not name:
            return WHOLE
        for place, layer in enumerate(self.layers):
            if layer.level.name == name:
                return place
        raise KeyError(name)

    def domains(self, level: int) -> Integers:
        """By position the domain at a level; `len(layers)` is the level at which each node is a domain of its own."""
        if level == WHOLE:
            return np.zeros(len(self.index.views), dtype=np.int64)
        if level == len(self.layers):
            return np.arange(len(self.index.views), dtype=np.int64)
        return self.layers[level].domain

    def size(self, level: int) -> int:
        """How many domains a level has."""
        if level == WHOLE:
            return 1
        return len(self.index.views) if level == len(self.layers) else len(self.layers[level].paths)

    def unlabelled(self, level: int) -> Integers:
        """Positions of nodes that are in no domain of the level."""
        return np.flatnonzero(self.domains(level) < 0)

    def unlabelled_words(self, level: int, positions: Sequence[int], which: str = "") -> list[str]:
        """Of nodes in no domain of the level, which label they lack: `2 nodes have no label net/rack`.

        Of several labels that a node lacks the coarsest is told: without it no finer one counts.
        """
        lacking: dict[str, int] = {}
        for layer in self.layers[: level + 1]:
            count = sum(int(layer.domain[at]) < 0 for at in positions)
            told = sum(lacking.values())
            if count > told:
                lacking[layer.level.node_label] = count - told
        return [
            f"{counted(count, 'node')}{which} {'has' if count == 1 else 'have'} no label {label}"
            for label, count in lacking.items()
        ]

    def told(self, level: int, domain: int) -> str:
        """A domain in words: `rack r2`, `node n-1`, or `the pool`."""
        if level == WHOLE:
            return "the pool"
        if level == len(self.layers):
            return f"node {self.index.views[domain].name}"
        return self.layers[level].name(domain)


@dataclass(slots=True, eq=False)
class _Kept:
    """What was compiled for one pool, and from what."""

    pool: Pool
    index: PoolIndex
    objects: Mapping[str, Node]
    nodes: list[Node | None]
    paths: list[Path]
    tree: FabricTree


@dataclass(slots=True, eq=False)
class Fabrics:
    """Trees by pool, kept between decisions."""

    _kept: dict[str, _Kept] = field(default_factory=dict)

    def tree(self, index: PoolIndex, objects: Mapping[str, Node]) -> FabricTree:
        """The tree of a pool. Free when index and nodes are those of last time, else one look a node; what is built
        anew is built when a node's path changed, came or went.
        """
        pool = index.pool
        kept = self._kept.get(pool.name)
        if kept is not None and kept.pool is pool and kept.index is index:
            if kept.objects is objects:
                return kept.tree
            nodes = [objects.get(view.name) for view in index.views]
            changed = [at for at, (old, new) in enumerate(zip(kept.nodes, nodes, strict=True)) if old is not new]
            fresh = [(at, path(nodes[at], pool.fabric)) for at in changed]
            if all(kept.paths[at] == now for at, now in fresh):
                kept.objects, kept.nodes = objects, nodes
                return kept.tree
            paths = kept.paths.copy()
            for at, now in fresh:
                paths[at] = now
        else:
            nodes = [objects.get(view.name) for view in index.views]
            known: dict[int, Path] = {}
            if kept is not None and kept.pool.fabric == pool.fabric:
                known = {id(node): was for node, was in zip(kept.nodes, kept.paths, strict=True) if node is not None}
            paths = [
                known[id(node)] if id(node) in known and node is not None else path(node, pool.fabric) for node in nodes
            ]
        if (
            kept is not None
            and kept.pool.fabric == pool.fabric
            and kept.paths == paths
            and [view.name for view in kept.index.views] == [view.name for view in index.views]
        ):
            # Other devices on the same nodes: the tree stands, its nodes are the new ones.
            tree = replace(kept.tree, index=index)
        else:
            tree = grow(index, pool.fabric, paths)
        self._kept[pool.name] = _Kept(pool, index, objects, nodes, paths, tree)
        return tree

    def keep(self, pools: Mapping[str, Pool]) -> None:
        """Forgets pools that are no more."""
        for name in [name for name in self._kept if name not in pools]:
            del self._kept[name]


def path(node: Node | None, levels: Sequence[FabricLevel]) -> Path:
    """A node's label values, up to the first level that it has no (or an empty) label of."""
    found: list[str] = []
    for level in levels:
        value = node.labels.get(level.node_label, "") if node is not None else ""
        if not value:
            break
        found.append(value)
    return tuple(found)


def grow(index: PoolIndex, levels: Sequence[FabricLevel], paths: Sequence[Path]) -> FabricTree:
    """The tree of nodes with these paths. Costs a few steps a node and level."""
    layers: list[Layer] = []
    children: dict[tuple[int, int], list[int]] = {}
    loose: dict[tuple[int, int], list[int]] = {}
    above: dict[Path, int] = {(): 0}
    for place, level in enumerate(levels):
        present = {one[: place + 1] for one in paths if len(one) > place}
        ordered = sorted(present, key=lambda one: tuple(map(natural_key, one)))
        number = {one: at for at, one in enumerate(ordered)}
        for one in ordered:
            children.setdefault((place - 1, above[one[:-1]]), []).append(number[one])
        domain = [number[one[: place + 1]] if len(one) > place else -1 for one in paths]
        for position, one in enumerate(paths):
            if len(one) == place:
                loose.setdefault((place - 1, above[one]), []).append(position)
        layers.append(
            Layer(
                level=level,
                paths=tuple(ordered),
                parent=np.array([above[one[:-1]] for one in ordered], dtype=np.int64),
                domain=np.array(domain, dtype=np.int64),
            )
        )
        above = number
    last = len(levels) - 1
    for position, one in enumerate(paths):
        if len(one) == len(levels):
            loose.setdefault((last, above[one]), []).append(position)
    return FabricTree(
        index=index,
        layers=tuple(layers),
        children={key: tuple(below) for key, below in children.items()},
        loose={key: tuple(positions) for key, positions in loose.items()},
    )
