"""Clusters for measuring: nodes of 8 GPUs and 8 NICs, two of each on a root complex, some pairs of them held.

What nodes have in common is in memory once, as it is where devices are compiled from what drivers publish.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.support import make

from adjoin_allocator import Claim, Device, DeviceID, Node, Snapshot

PAIRS = 8
_TEMPLATE = make.shared_roots("node", roots=4, gpus_each=2, nics_each=2)
_GPUS = [device for device in _TEMPLATE if device.kind == "gpu"]
_NICS = [device for device in _TEMPLATE if device.kind == "nic"]
_ORDERED = (*_GPUS, *_NICS)


def devices(name: str) -> tuple[Device, ...]:
    """The devices of one node, GPUs first; pair i are the i-th of each kind, on one root complex."""
    return tuple(
        replace(
            device,
            id=DeviceID(device.id.driver, name, device.id.device),
            node=name,
            hardware_id=f"{name}/{device.id.device}",
        )
        for device in _ORDERED
    )


def cluster(nodes: int, seed: int = 1, busy: float = 1.0, most: int = 7, limits: bool = False) -> Snapshot:
    """Nodes of which a part has between none (one, where not all are busy) and `most` pairs held, each by a claim."""
    chance = random.Random(seed)
    held: list[Claim] = []
    inventory = {}
    for number in range(nodes):
        name = f"node-{number}"
        given = inventory[name] = devices(name)
        if chance.random() < busy:
            for pair in chance.sample(range(PAIRS), chance.randint(0 if busy == 1 else 1, most)):
                mine = [given[pair], given[PAIRS + pair]]
                held.append(make.holding(f"held-{number}-{pair}", mine, created=1.0))
    return _snapshot(inventory, held, limits)


def short_of_one(nodes: int) -> Snapshot:
    """Nodes that each have one NIC too few free for eight pairs."""
    inventory = {f"node-{number}": devices(f"node-{number}") for number in range(nodes)}
    held = [
        make.holding(f"held-{number}", given[PAIRS + 3 : PAIRS + 4], created=1.0)
        for number, given in enumerate(inventory.values())
    ]
    return _snapshot(inventory, held, limits=False)


def _snapshot(inventory: dict[str, tuple[Device, ...]], held: list[Claim], limits: bool) -> Snapshot:
    labels: dict[str, str] = {}
    room = {"cpu_milli": 192_000, "memory_bytes": 2 << 40, "cpu_used_milli": 4_000} if limits else {}
    nodes = {name: Node(name, labels, **room) for name in inventory}
    pool = make.pool(kinds=("gpu", "nic"))
    return Snapshot(pools={pool.name: pool}, nodes=nodes, inventory=inventory, claims=tuple(held), holds={})
