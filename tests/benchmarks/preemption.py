"""How long decisions about victims and reservations take: `python -m tests.benchmarks.preemption [--nodes N]`.

Full nodes of 8 GPUs and 8 NICs, held in parts of 1, 2 and 4 pairs by claims of three tenants and three priorities.
Processor time of whole `plan()` calls, nothing remembered of the claim that waits. Nothing is asserted here.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from tests.support import make

from adjoin_allocator import Claim, Memo, Pool, Reclaim, Snapshot, plan


def full(nodes: int, pool: Pool, seed: int = 1) -> Snapshot:
    """A cluster in which nothing is free."""
    chance = random.Random(seed)
    devices, held = [], []
    for number in range(nodes):
        node = make.rails(f"node-{number}")
        devices += node
        pairs, first = list(zip(node[::2], node[1::2], strict=True)), 0
        while first < len(pairs):
            part = [one for pair in pairs[first : first + chance.choice((1, 1, 1, 2, 4))] for one in pair]
            held.append(
                make.holding(
                    f"held-{number}-{first}",
                    part,
                    priority=chance.choice((0, 0, 1, 2)),
                    tenant=chance.choice("abc"),
                    created=make.NOW - chance.randrange(100_000),
                    ready_at=make.NOW - 9999,
                )
            )
            first += len(part) // 2
    return make.snapshot(devices, held, pools=[pool])


def asks(number: int, count: int, **more: object) -> Claim:
    """A claim of high priority for so many pairs."""
    return make.pairs(f"asks-{number}", count, **{"priority": 5, **more})


def measured(base: Snapshot, claims: Sequence[Claim]) -> tuple[float, int]:
    """Milliseconds of processor time of the decision, and its victims."""
    memo = Memo()
    plan(base, make.NOW, memo)
    given = base.edited(claims)
    start = time.process_time()
    answer = plan(given, make.NOW, memo)
    return (time.process_time() - start) * 1000, len(answer.preempted)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    evicting = make.pool(preemption=make.evicting())
    quotas = make.pool(preemption=make.evicting(), tenants=make.tenants(a=9 * nodes, b=nodes // 10, c=9 * nodes))
    # The tenant is at its quota exactly, so that room in it must be made.
    own = make.pool(preemption=make.evicting(reclaim=Reclaim.NEVER), tenants=make.tenants(a=0))
    used = plan(full(nodes, own), make.NOW).pools[make.POOL].usage["a"]["gpu"] // 1000
    own = make.pool(preemption=make.evicting(reclaim=Reclaim.NEVER), tenants=make.tenants(a=used))
    rows: list[tuple[str, Pool, list[Claim]]] = [
        *((f"{count}+{count}", evicting, [asks(0, count)]) for count in (1, 4, 8)),
        ("4+4, reclaimed", quotas, [asks(0, 4, tenant="a")]),
        ("4+4, quota full", own, [asks(0, 4, tenant="a")]),
        ("gang of 8 x 8+8", evicting, [asks(0, 8, replicas=8, gang_min=8)]),
        ("50 of 4+4", evicting, [asks(number, 4) for number in range(50)]),
        ("50 that nobody goes for", evicting, [asks(number, 4, priority=-1) for number in range(50)]),
        ("8+8, reserved", make.pool(hold_after=0.0), [asks(0, 8, created=1.0)]),
    ]
    table = Table("decision", "ms", "victims", title=f"{nodes:,} full nodes")
    for title, pool, claims in rows:
        spent, victims = measured(full(nodes, pool), claims)
        table.add_row(title, f"{spent:.1f}", str(victims))
    Console().print(table)


if __name__ == "__main__":
    main()
