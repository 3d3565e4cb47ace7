"""How much of the cards stays unallocated: `python -m tests.benchmarks.openb --list FILE --nodes FILE [--seeds N]`.

Replays a pod list in the format of Alibaba's cluster-trace-gpu-v2023 through Adjoin's `plan()` (claim by claim, and all
that have arrived as one batch), with fragmentation gradient descent and with best fit in the same orders, and prints
per cent of the cards that nobody has when as much was asked for as there is, beside a bound that nothing can be below.
The batch may choose among claims and plays another game than the others, which decide at once and finally.

Both files are CSV with a header. Pods have name, cpu_milli, memory_mib, num_gpu, gpu_milli and may have gpu_spec
(models separated by |, of which none need be there); nodes have sn, cpu_milli, memory_mib, gpu, model. Further columns
are not looked at, empty numbers are 0. Exit status 2: a file cannot be read as such, with the line and what it says.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from statistics import fmean, median, pstdev

from rich.console import Console
from rich.progress import track
from rich.table import Table
from tests.benchmarks.openb.bound import bound
from tests.benchmarks.openb.literature import BestFit, Fleet, Gradient, replay
from tests.benchmarks.openb.ours import batch, one_by_one
from tests.benchmarks.openb.trace import Broken, Machine, Pod, arrivals, read_machines, read_pods

FIRST_SEED = 42
POLICIES = ("adjoin", "fgd", "bestfit", "batch", "bound")
TIMES = ("decision", "following")


def measure(pods: list[Pod], machines: list[Machine], seed: int) -> dict[str, float]:
    """By policy the unallocated per cent; the median milliseconds of one of Adjoin's decisions and of following it."""
    order = arrivals(pods, machines, seed)
    fleet = Fleet.of(machines, seed)
    online = one_by_one(order, machines)
    return {
        "adjoin": online.unallocated,
        "fgd": replay(order, fleet, Gradient(pods, fleet)),
        "bestfit": replay(order, Fleet.of(machines, seed), BestFit()),
        "batch": batch(order, machines).unallocated,
        "bound": bound(order, machines),
        "decision": online.milliseconds,
        "following": online.following,
    }


def main() -> None:
    """Prints the table and, as the last line, the means."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.openb",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", type=Path, required=True, help="CSV file of pods")
    parser.add_argument("--nodes", type=Path, required=True, help="CSV file of nodes")
    parser.add_argument("--seeds", type=int, default=10, help="how many orders of arrival")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many orders at once")
    given = parser.parse_args()
    if given.seeds < 1 or given.jobs < 1:
        parser.error("--seeds and --jobs are at least 1")
    try:
        pods, machines = read_pods(given.list), read_machines(given.nodes)
    except Broken as broken:
        parser.error(str(broken))
    unknown = {model for pod in pods for model in pod.models} - {machine.model for machine in machines}
    if unknown:
        print(f"no node has a GPU of model {', '.join(sorted(unknown))}", file=sys.stderr)
    name = given.list.stem.removeprefix("openb_pod_list_")
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    with ProcessPoolExecutor(min(given.jobs, given.seeds)) as workers:
        going = workers.map(measure, repeat(pods), repeat(machines), seeds)
        console = Console(stderr=True)
        runs = list(track(going, description=name, total=len(seeds), console=console, transient=True))
    title = f"{name}: unallocated per cent at 100 % arrivals, {given.seeds} orders"
    table = Table("", "mean", "deviation", title=title)
    means = {}
    for policy in POLICIES:
        values = [found[policy] for found in runs]
        means[policy] = fmean(values)
        table.add_row(policy, f"{means[policy]:.2f}", f"{pstdev(values):.2f}")
    decision, following = (median(found[what] for found in runs) for what in TIMES)
    table.caption = f"median time of a decision {decision:.2f} ms, of seeing it carried out {following:.2f} ms"
    Console().print(table)
    print(f"{name}: " + " ".join(f"{policy} {means[policy]:.2f}" for policy in POLICIES))


if __name__ == "__main__":
    main()
