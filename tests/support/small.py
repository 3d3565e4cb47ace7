"""A small cluster that has settled: the ground on which tests of whole lifecycles stand.

In come sizes, out goes a `World` of its own, made once and copied.
"""

from __future__ import annotations

import copy
from functools import cache

from tests.support.objects import NIC_DRIVER, devicepool, node, resourceslice, taintrule
from tests.support.world import World

from adjoin.decision import Decider


def cluster(nodes: int = 1, *, guarded: bool = True, gpus: int = 2, nics: int = 0, split: str = "Size") -> World:
    """Nodes with GPUs in one pool whose guard stands, or that goes without."""
    return copy.deepcopy(_cluster(nodes, guarded, gpus, nics, split))


@cache
def _cluster(nodes: int, guarded: bool, gpus: int, nics: int, split: str) -> World:
    world = World(guard_served=guarded)
    delivery = {"guard": "DeviceTaintRule" if guarded else "None", "split": split}
    world.add(devicepool(delivery=delivery))
    if guarded:
        world.add(taintrule(), taintrule(driver=NIC_DRIVER))
    for number in range(1, nodes + 1):
        world.add(node(f"n{number}"), resourceslice(f"n{number}", devices=gpus))
        if nics:
            world.add(resourceslice(f"n{number}", NIC_DRIVER, nics))
    world.settle(Decider)
    world.writes.clear()
    return world
