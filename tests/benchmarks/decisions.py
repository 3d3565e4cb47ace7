"""How long decisions of the allocator take, and how good they are.

    python -m tests.benchmarks.decisions [--nodes N] [--in-tree]

Processor time of whole `plan()` calls: a claim arrives, the snapshot is known, the plan comes out. *first* is the first
claim of its kind; *again* the median of further ones that find the cluster as the first did; *stream* the median of
claims of which each finds those before it placed. With
`--in-tree` the scheduler's own allocator decides beside it, on clusters made the same way (`intree`). With
`--memory` nothing is timed but told what memory a cluster and the allocator's part of it take. Nothing is asserted
here.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table
from tests.benchmarks import intree
from tests.benchmarks.clusters import cluster, short_of_one
from tests.support import make

from adjoin_allocator import Claim, HostAsk, Memo, Plan, Snapshot, plan

SAMPLES = 100
MIXED = 1000
NEAR = make.required("PCIeRoot", "gpu", "nic")

Kind = Callable[[str], Claim]
"""Makes a claim of a name."""

KINDS: dict[str, Kind] = {
    "1+1": lambda name: make.pairs(name, 1, NEAR),
    "2+2": lambda name: make.pairs(name, 2, NEAR),
    "8+8": lambda name: make.pairs(name, 8, NEAR),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of processor time."""

    first: float
    again: float
    stream: float


def mixed(number: int) -> Claim:
    """Singles, pairs of one root complex, four pairs and two GPUs of one NUMA node in turn."""
    kinds = (
        make.claim(f"m{number}"),
        make.pairs(f"m{number}", 1, NEAR),
        make.pairs(f"m{number}", 4),
        make.claim(f"m{number}", make.request("gpu", 2), make.preferred("NUMANode", "gpu")),
    )
    return kinds[number % 4]


def decide(snapshot: Snapshot, memo: Memo) -> tuple[float, Plan]:
    """One decision and what it took."""
    start = time.process_time()
    answer = plan(snapshot, make.NOW, memo)
    return time.process_time() - start, answer


def measure(snapshot: Snapshot, kind: Kind, memo: Memo, samples: int = SAMPLES) -> Timing:
    """Decisions on claims of one kind. `memo` must have seen the snapshot."""
    given = [snapshot.edited([kind(f"new-{number}")]) for number in range(samples + 1)]
    gc.collect()
    gc.freeze()
    first, *again = (decide(each, memo)[0] for each in given)
    stream = []
    for number in range(samples):
        claim = kind(f"next-{number}")
        asked = snapshot.edited([claim])
        seconds, answer = decide(asked, memo)
        stream.append(seconds)
        placements = answer.claims[claim.uid].placements
        snapshot = asked.edited(
            [make.after(claim, placements)] if placements else (), () if placements else [claim.uid]
        )
    gc.unfreeze()
    return Timing(first, median(again), median(stream))


def compiled(snapshot: Snapshot) -> tuple[float, Memo]:
    """A memo that has seen the snapshot, and what that took."""
    memo = Memo()
    return decide(snapshot, memo)[0], memo


def mixed_seconds(nodes: int) -> tuple[float, float]:
    """What it takes to plan many claims of several sizes together: with nothing remembered of them, and again."""
    snapshot = cluster(nodes)
    _, memo = compiled(snapshot)
    claims = [mixed(number) for number in range(MIXED)]
    gc.collect()
    gc.freeze()
    first, *again = (decide(snapshot.edited(claims), memo)[0] for _ in range(4))
    gc.unfreeze()
    return first, min(again)


def side_by_side(kind: str, nodes: int) -> tuple[float, float]:
    """Ours and the in-tree allocator's, on clusters made alike; processor time of both."""
    rival = intree.SCENARIOS[kind]
    snapshot = cluster(nodes, busy=rival.busy, most=8)
    ours = measure(snapshot, KINDS[kind], compiled(snapshot)[1]).again
    return ours, intree.seconds(rival, nodes)


def local_pairs(nodes: int = 1000, claims: int = 1000) -> float:
    """The part of claims for a GPU and a NIC, without any line, that end on one root complex."""
    snapshot = cluster(nodes, busy=0.3, most=8)
    wanted = [make.pairs(f"pair-{number}", 1) for number in range(claims)]
    answer = plan(snapshot.edited(wanted), make.NOW)
    devices = {device.id: device for given in snapshot.inventory.values() for device in given}
    roots = [
        {devices[given.id].attributes[make.ROOT] for given in placement.devices}
        for each in answer.claims.values()
        for placement in each.placements
    ]
    assert len(roots) == claims
    return sum(len(found) == 1 for found in roots) / claims


def whole_nodes(nodes: int = 1000, claims: int = 1000) -> int:
    """Nodes that nobody has anything of after claims for one GPU on an empty cluster."""
    snapshot = cluster(nodes, busy=0.0)
    answer = plan(snapshot.edited([make.claim(f"one-{number}") for number in range(claims)]), make.NOW)
    return nodes - len({placement.node for each in answer.claims.values() for placement in each.placements})


def resident_bytes() -> int:
    """Memory of this process that is in use now."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) * 1024


def memory(nodes: int) -> tuple[int, int]:
    """Bytes that a cluster takes as a snapshot, and those that are kept to decide on it. For a process of its own."""
    before = resident_bytes()
    snapshot = cluster(nodes)
    gc.collect()
    between = resident_bytes()
    _, memo = compiled(snapshot)
    measure(snapshot, KINDS["1+1"], memo, samples=3)
    gc.collect()
    return between - before, resident_bytes() - between


def table(nodes: int, rivals: bool) -> Sequence[Table]:
    """Everything about clusters of one size."""
    times = Table("decision", "first", "again", "stream", title=f"{nodes} nodes of 8 GPUs and 8 NICs")
    busy, short = cluster(nodes), short_of_one(nodes)
    built, memo = compiled(busy)

    def add(words: str, found: Timing) -> None:
        times.add_row(words, *(f"{each * 1e3:.3f} ms" for each in (found.first, found.again, found.stream)))

    for words, kind in KINDS.items():
        add(words, measure(busy, kind, memo))
    add("no, a NIC short on every node", measure(short, KINDS["8+8"], compiled(short)[1]))
    limited = cluster(nodes, limits=True)
    add(
        "1+1 with host limits",
        measure(limited, lambda name: make.pairs(name, 1, NEAR, host=HostAsk(16_000, 64 << 30)), compiled(limited)[1]),
    )
    times.add_section()
    times.add_row("everything compiled and entered anew", f"{built * 1e3:.0f} ms")
    first, again = mixed_seconds(nodes)
    times.add_row(f"{MIXED} claims of four kinds together", f"{first * 1e3:.0f} ms", f"{again * 1e3:.0f} ms")
    found = [times]
    if rivals:
        beside = Table("decision", "Adjoin", "in-tree", "times", title=f"beside the in-tree allocator, {nodes} nodes")
        for words in intree.SCENARIOS:
            ours, theirs = side_by_side(words, nodes)
            beside.add_row(words, f"{ours * 1e3:.3f} ms", f"{theirs * 1e3:.1f} ms", f"{theirs / ours:.0f}")
        found.append(beside)
    quality = Table("how good", "", title="quality")
    quality.add_row("1+1 without a line that end on one root complex", f"{local_pairs():.0%}")
    quality.add_row("whole nodes left of 1,000 after 1,000 claims for one GPU", str(whole_nodes()))
    return [*found, quality]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--in-tree", action="store_true", help="also the scheduler's own allocator; needs Go")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    if options.memory:
        print(*memory(options.nodes))
        return
    if options.in_tree and intree.missing():
        parser.error(intree.missing())
    for each in table(options.nodes, options.in_tree):
        Console().print(each)


if __name__ == "__main__":
    main()
