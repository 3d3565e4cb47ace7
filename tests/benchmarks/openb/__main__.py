"""How much of the cards stays unallocated: `python -m tests.benchmarks.openb --list FILE --nodes FILE [--seeds N]`.

Replays a pod list in the format of Alibaba's cluster-trace-gpu-v2023 with Adjoin's allocator (claim by claim, and all
that have arrived as one batch), with fragmentation gradient descent and with best fit in the same orders, and prints
per cent of the cards that nobody has when as much was asked for as there is, beside a bound that nothing can be below.
The batch may choose among claims and plays another game than the others, which decide at once and finally.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median, pstdev

from rich.console import Console
from rich.progress import track
from rich.table import Table
from tests.benchmarks.openb.bound import bound
from tests.benchmarks.openb.literature import BestFit, Fleet, Gradient, replay
from tests.benchmarks.openb.ours import batch, one_by_one
from tests.benchmarks.openb.trace import Machine, Pod, arrivals, read_machines, read_pods

FIRST_SEED = 42
POLICIES = ("adjoin", "fgd", "bestfit", "batch", "bound")


def measure(pods: list[Pod], machines: list[Machine], seed: int) -> tuple[dict[str, float], float]:
    """By policy the unallocated per cent, and the median milliseconds of one of Adjoin's decisions."""
    order = arrivals(pods, machines, seed)
    fleet = Fleet.of(machines, seed)
    online = one_by_one(order, machines)
    found: dict[str, Callable[[], float]] = {
        "adjoin": lambda: online.unallocated,
        "fgd": lambda: replay(order, fleet, Gradient(pods, fleet)),
        "bestfit": lambda: replay(order, Fleet.of(machines, seed), BestFit()),
        "batch": lambda: batch(order, machines).unallocated,
        "bound": lambda: bound(order, machines),
    }
    return {policy: found[policy]() for policy in POLICIES}, online.milliseconds


def main() -> None:
    """Prints the table and, as the last line, the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=Path, required=True, help="CSV file of pods")
    parser.add_argument("--nodes", type=Path, required=True, help="CSV file of nodes")
    parser.add_argument("--seeds", type=int, default=10, help="how many orders of arrival")
    given = parser.parse_args()
    pods, machines = read_pods(given.list), read_machines(given.nodes)
    name = given.list.stem.removeprefix("openb_pod_list_")
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    progress = track(seeds, description=name, console=Console(stderr=True), transient=True)
    runs = [measure(pods, machines, seed) for seed in progress]
    title = f"{name}: unallocated per cent at 100 % arrivals, {given.seeds} orders"
    table = Table("", "mean", "deviation", title=title)
    means = {}
    for policy in POLICIES:
        values = [found[policy] for found, _ in runs]
        means[policy] = fmean(values)
        table.add_row(policy, f"{means[policy]:.2f}", f"{pstdev(values):.2f}")
    table.caption = f"median time of a decision: {median(time for _, time in runs):.2f} ms"
    Console().print(table)
    print(f"{name}: " + " ".join(f"{policy} {means[policy]:.2f}" for policy in POLICIES))


if __name__ == "__main__":
    main()
