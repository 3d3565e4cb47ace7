"""How long a batch takes: `python -m tests.benchmarks.batch [--nodes N] [--claims N]` prints a table.

1,000 waiting claims of mixed sizes are planned together, by the walk alone (`optimiseFor: 0`) and with the usual
budget: on nodes of which a random part is held, and on clusters that are too small for some, or for most of them.
Processor time of whole `plan()` calls; *first* is with nothing remembered of the requests, *again* the next decision of
the kind. Nothing is asserted here; `test_batch` holds the ratio against `ranges.yaml`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table
from tests.benchmarks.decisions import cluster
from tests.support import make

from adjoin_allocator import Claim, Memo, Objective, Plan, Snapshot, plan


@dataclass(frozen=True)
class Measured:
    """One way of planning a batch."""

    first: float
    again: float
    answer: Plan

    @property
    def placed(self) -> int:
        """Claims that have a place."""
        return sum(bool(claim.placements) for claim in self.answer.claims.values())

    @property
    def devices(self) -> int:
        """Devices that they have."""
        claims = self.answer.claims.values()
        return sum(len(placement.devices) for claim in claims for placement in claim.placements)


def mixed(number: int) -> Claim:
    """Claims for 1, 2, 4 or 8 GPUs, alone or with as many NICs, near each other or not, in turn."""
    near = (make.required("PCIeRoot", "gpu", "nic"),)
    name, created = f"m{number}", make.NOW - 2000 + number
    kinds = (
        make.claim(name, created=created),
        make.pairs(name, 1, *near, created=created),
        make.claim(name, make.request("gpu", 2), make.preferred("NUMANode", "gpu"), created=created),
        make.pairs(name, 4, created=created),
        make.pairs(name, 2, *near, created=created),
        make.pairs(name, 8, created=created),
        make.claim(name, make.request("gpu", 4), created=created),
    )
    return kinds[number % len(kinds)]


def measure(snapshot: Snapshot, claims: Sequence[Claim], milliseconds: int, objective: Objective) -> Measured:
    """Plans a batch three times: with a memo that knows the cluster, and twice with one that knows the claims too."""
    pools = {
        name: replace(pool, optimise_milliseconds=milliseconds, objective=objective)
        for name, pool in snapshot.pools.items()
    }
    empty = replace(snapshot, pools=pools)
    given = replace(empty, claims=(*snapshot.claims, *claims))
    memo = Memo()
    plan(empty, make.NOW, memo)
    times = []
    for _ in range(3):
        start = time.process_time()
        answer = plan(given, make.NOW, memo)
        times.append(time.process_time() - start)
    return Measured(times[0], min(times[1:]), answer)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--claims", type=int, default=1_000)
    options = parser.parse_args()
    claims = [mixed(number) for number in range(options.claims)]
    table = Table("nodes", "objective", "optimise", "first", "again", "placed", "devices", "gap", "struck")
    for nodes in (options.nodes, options.claims, options.claims // 5):
        snapshot = cluster(nodes)
        for objective in Objective:
            for milliseconds in (0, 300):
                found = measure(snapshot, claims, milliseconds, objective)
                table.add_row(
                    f"{nodes:,}",
                    objective.value,
                    f"{milliseconds} ms",
                    f"{found.first * 1e3:.0f} ms",
                    f"{found.again * 1e3:.0f} ms",
                    str(found.placed),
                    str(found.devices),
                    f"{found.answer.pools[make.POOL].gap:.4f}",
                    "yes" if found.answer.stats.struck else "no",
                )
    Console().print(table)


if __name__ == "__main__":
    main()
