"""Which devices of a node can trade places without anything of the wiring changing, and free sets up to that.

In come a wiring and what else tells devices apart (colours, fixed masks, families of masks), out comes a `Symmetry`:
blocks of devices, from single ones over switches and root complexes to NUMA nodes, in groups of which any two can be
exchanged as they stand. Each exchange was verified against every table, so two free sets of one canonical form have
choices of equal objectives. Which devices are chosen is never decided on a canonical form.

The blocks are nested (devices in switches in root complexes in NUMA nodes), so sorting the blocks of each group by what
they hold, the smallest blocks first, gives the one representative of all free sets that exchanges can make of each
other: the canonical form of a wreath product acting on its blocks. Exchanges that are no swap of blocks are not found
(the rotations of an NVLink mesh); then more states are told apart than need be, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adjoin_allocator.terms import Scope
from adjoin_allocator.topology import Wiring, bits

_Block = tuple[int, ...]
"""Devices in ascending order; of two blocks of a group the i-th devices take each other's place."""

_Permutation = tuple[int, ...]
"""Where each device goes."""

KEPT = 65_536
"""How many canonical forms a symmetry remembers."""


class Symmetry:
    """Exchanges that change nothing, and canonical forms under them.

    Attributes:
        groups: Groups of exchangeable blocks, those of the smallest blocks first.
    """

    def __init__(self, size: int, groups: Sequence[tuple[_Block, ...]]) -> None:
        self.size = size
        self.groups = tuple(groups)
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def canonical(self, masks: tuple[int, ...]) -> tuple[int, ...]:
        """The representative of all that exchanges, each applied to all of `masks`, can make of them."""
        if not self.groups:
            return masks
        found = self._known.get(masks)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[masks] = self._canonical(masks)
        return found

    def _canonical(self, masks: tuple[int, ...]) -> tuple[int, ...]:
        # What a device is in: one digit of as many bits as there are masks.
        held = [sum((mask >> device & 1) << at for at, mask in enumerate(masks)) for device in range(self.size)]
        for group in self.groups:
            contents = [tuple([held[device] for device in block]) for block in group]
            ordered = sorted(contents, reverse=True)
            if ordered != contents:
                for block, content in zip(group, ordered, strict=True):
                    for device, what in zip(block, content, strict=True):
                        held[device] = what
        found = [0] * len(masks)
        for device, what in enumerate(held):
            for at in bits(what):
                found[at] |= 1 << device
        return tuple(found)

    def keeping(self, fixed: Iterable[int], families: Iterable[Iterable[int]]) -> Symmetry:
        """The exchanges that also map each of the `fixed` masks, and each family of masks as a whole, to itself."""
        masks, sets = tuple(dict.fromkeys(fixed)), tuple(frozenset(family) for family in families)
        if not self.groups or not (masks or sets):
            return self

        def keeps(permutation: _Permutation) -> bool:
            return all(_image(mask, permutation) == mask for mask in masks) and all(
                frozenset(_image(mask, permutation) for mask in family) == family for family in sets
            )

        groups: list[tuple[_Block, ...]] = []
        for group in self.groups:
            groups += _grouped(group, lambda one, other: keeps(_swap(self.size, one, other)))
        return Symmetry(self.size, groups)


def symmetry(wiring: Wiring, colours: Sequence[Hashable]) -> Symmetry:
    """The exchanges that change neither the wiring nor the colour of any device."""
    size = wiring.size
    if size < 2:
        return Symmetry(size, ())
    table = _codes(wiring, colours)
    families = [
        frozenset(
            sum(1 << at for at, values in enumerate(by_device) if values and value in values)
            for value in {value for values in by_device for value in values or ()}
        )
        for by_device in wiring.facts.values()
    ]
    families += [frozenset(masks) for masks in wiring.islands.values()]

    def keeps(one: _Block, other: _Block) -> bool:
        permutation = _swap(size, one, other)
        places = np.array(permutation)
        return bool((table[np.ix_(places, places)] == table).all()) and all(
            frozenset(_image(mask, permutation) for mask in family) == family for family in families
        )

    levels: list[list[_Block]] = [[(device,) for device in range(size)]]
    for scope in (Scope.PCIE_SWITCH, Scope.PCIE_ROOT, Scope.NUMA_NODE, Scope.NODE):
        masks = list(wiring.islands[scope])
        alone = (1 << size) - 1
        for mask in masks:
            alone &= ~mask
        partition = [tuple(bits(mask)) for mask in masks] + [(device,) for device in bits(alone)]
        home = {device: at for at, block in enumerate(partition) for device in block}
        if all(len({home[device] for device in block}) == 1 for block in levels[-1]):
            levels.append(partition)
    groups: list[tuple[_Block, ...]] = []
    for blocks, parents in pairwise(levels):
        if len(blocks) == len(parents):
            continue
        home = {device: at for at, block in enumerate(parents) for device in block}
        for parent in range(len(parents)):
            children = sorted(block for block in blocks if home[block[0]] == parent)
            groups += _grouped(children, keeps)
    return Symmetry(size, groups)


def _grouped(blocks: Iterable[_Block], alike: Callable[[_Block, _Block], bool]) -> list[tuple[_Block, ...]]:
    """Blocks of which any two are alike, together; being alike is an equivalence. Those without a match are left
    out."""
    groups: list[list[_Block]] = []
    for block in blocks:
        for group in groups:
            if len(group[0]) == len(block) and alike(group[0], block):
                group.append(block)
                break
        else:
            groups.append([block])
    return [tuple(group) for group in groups if len(group) > 1]


def _codes(wiring: Wiring, colours: Sequence[Hashable]) -> NDArray[np.int64]:
    """One number per pair of devices: equal where all tables say the same. The diagonal tells what a device is."""
    numbers: dict[Hashable, int] = {}
    size = wiring.size
    table = np.zeros((size, size), dtype=np.int64)
    for one in range(size):
        for other in range(size):
            code: Hashable
            if one == other:
                unknown = tuple(facts[one] is None for facts in wiring.facts.values())
                code = (colours[one], unknown, wiring.numa[one] is None)
            else:
                code = (
                    wiring.rank[one][other],
                    wiring.fine[one][other],
                    wiring.level[one][other],
                    *(
                        masks[one] >> other & 1
                        for tables in (wiring.met, wiring.unknown, wiring.by_facts)
                        for masks in tables.values()
                    ),
                )
            table[one, other] = numbers.setdefault(code, len(numbers))
    return table


def _swap(size: int, one: _Block, other: _Block) -> _Permutation:
    places = list(range(size))
    for a, b in zip(one, other, strict=True):
        places[a], places[b] = b, a
    return tuple(places)


def _image(mask: int, permutation: _Permutation) -> int:
    found = 0
    for device in bits(mask):
        found |= 1 << permutation[device]
    return found
