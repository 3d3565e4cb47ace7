"""How long decisions of the allocator take: `python -m tests.benchmarks.decisions [--nodes N]` prints a table.

Nodes of 8 GPUs and 8 NICs in pairs, a random part of them held. Processor time of whole `plan()` calls: *first* is with
nothing remembered of the request, *again* the next decision of the kind. Nothing is asserted here.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from tests.support import make

from adjoin_allocator import Claim, Memo, Snapshot, plan


def cluster(nodes: int, seed: int = 1) -> Snapshot:
    """Nodes of which between none and seven pairs are held."""
    chance = random.Random(seed)
    held: list[Claim] = []
    devices = []
    for number in range(nodes):
        node = make.rails(f"node-{number}")
        devices += node
        for pair in chance.sample(range(8), chance.randint(0, 7)):
            held.append(make.holding(f"held-{number}-{pair}", node[2 * pair : 2 * pair + 2], created=1.0))
    return make.snapshot(devices, held)


def short_of_one(nodes: int) -> Snapshot:
    """Nodes that each have one NIC too few free for eight pairs."""
    fleet = [make.rails(f"node-{number}") for number in range(nodes)]
    held = [make.holding(f"held-{number}", node[3:4], created=1.0) for number, node in enumerate(fleet)]
    return make.snapshot([device for node in fleet for device in node], held)


def mixed(number: int) -> Claim:
    """Singles, pairs of one root complex, four pairs and two GPUs of one NUMA node in turn."""
    near = (make.required("PCIeRoot", "gpu", "nic"),)
    kinds = (
        make.claim(f"m{number}"),
        make.pairs(f"m{number}", 1, *near),
        make.pairs(f"m{number}", 4),
        make.claim(f"m{number}", make.request("gpu", 2), make.preferred("NUMANode", "gpu")),
    )
    return kinds[number % 4]


def seconds(snapshot: Snapshot, claims: Sequence[Claim], memo: Memo) -> float:
    """Processor time of one decision."""
    given = snapshot.edited(claims)
    start = time.process_time()
    plan(given, make.NOW, memo)
    return time.process_time() - start


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    table = Table("decision", "first", "again", title=f"{nodes} nodes of 8 GPUs and 8 NICs")
    busy, short = cluster(nodes), short_of_one(nodes)
    cases = [
        ("1+1", busy, [make.pairs("a", 1)]),
        ("2+2", busy, [make.pairs("a", 2)]),
        ("4+4", busy, [make.pairs("a", 4)]),
        ("8+8", busy, [make.pairs("a", 8)]),
        ("200 times 1+1", busy, [make.pairs(f"a{number}", 1) for number in range(200)]),
        ("200 of four kinds, mixed", busy, [mixed(number) for number in range(200)]),
        ("no, a NIC short on every node", short, [make.pairs("a", 8)]),
    ]
    memos = {id(busy): Memo(), id(short): Memo()}
    for snapshot in (busy, short):
        compiled = seconds(snapshot, (), memos[id(snapshot)])
        table.add_row("everything compiled and entered anew", f"{compiled * 1e3:.1f} ms", "")
    for words, snapshot, claims in cases:
        memo = memos[id(snapshot)]
        first, *again = (seconds(snapshot, claims, memo) for _ in range(6))
        table.add_row(words, f"{first * 1e3:.2f} ms", f"{sorted(again)[2] * 1e3:.2f} ms")
    Console().print(table)


if __name__ == "__main__":
    main()
