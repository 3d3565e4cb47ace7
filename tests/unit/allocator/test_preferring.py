"""Members by node, better ways first: compared with trying every number of members on every node."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from tests.support import make

from adjoin_allocator.fabric import WHOLE, FabricTree, grow, path
from adjoin_allocator.ground import Ground
from adjoin_allocator.nodes import Nodes
from adjoin_allocator.preferring import Preference


def tree_of(racks: list[str]) -> FabricTree:
    names = [f"n{at}" for at in range(len(racks))]
    nodes = {name: make.racked(name, rack) for name, rack in zip(names, racks, strict=True)}
    devices = [make.device("gpu-0", name) for name in names]
    snapshot = make.snapshot(devices, nodes=nodes.values(), pools=[make.fabric_pool()])
    index = Nodes().index(snapshot)[make.POOL]
    levels = snapshot.pools[make.POOL].fabric
    return grow(index, levels, [path(nodes[view.name], levels) for view in index.views])


@pytest.mark.parametrize("seed", range(60))
def test_the_most_in_the_better_ways_then_the_smallest_domain(seed: int) -> None:
    chance = random.Random(seed)
    racks = sorted(chance.choice(("r1", "r2")) for _ in range(chance.randint(2, 5)))
    tree, count = tree_of(racks), chance.randint(2, 3)
    rooms = [chance.randint(0, 3) for _ in racks]
    table = {}
    for at, room in enumerate(rooms):
        for members in range(1, room + 1):
            numbers = [0] * count
            for _ in range(members):
                numbers[chance.randrange(count)] += 1
            table[at, members] = numbers
    number = chance.randint(1, max(1, sum(rooms)))
    required = chance.choice((WHOLE, tree.level("rack")))
    ground = Ground(tree, np.array(rooms, dtype=np.int64), np.zeros(len(racks), dtype=np.int64))
    found = Preference(tree, ground, number, required, None, count, lambda at, members: table[at, members]).best()
    best = max(
        (
            _worth(table, chosen, count, racks)
            for chosen in product(*(range(room + 1) for room in rooms))
            if sum(chosen) == number
            and (required == WHOLE or len({rack for rack, here in zip(racks, chosen, strict=True) if here}) == 1)
        ),
        default=None,
    )
    if best is None:
        assert found is None
    else:
        assert found is not None
        chosen = tuple(found.get(at, 0) for at in range(len(rooms)))
        assert sum(chosen) == number
        assert all(here <= room for here, room in zip(chosen, rooms, strict=True))
        assert _worth(table, chosen, count, racks) == best


def _worth(
    table: dict[tuple[int, int], list[int]], chosen: tuple[int, ...], count: int, racks: list[str]
) -> tuple[list[int], int]:
    """Members by way, then the level of the smallest domain that takes all."""
    used = [at for at, here in enumerate(chosen) if here]
    numbers = [sum(table[at, chosen[at]][way] for at in used) for way in range(count)]
    level = 2 if len(used) == 1 else 1 if len({racks[at] for at in used}) == 1 else 0
    return numbers, level
