"""Gangs of real traces on a real InfiniBand fabric: `python -m tests.benchmarks.fabric [--jobs N] [--data DIRECTORY]`
prints how policies do, and how long single decisions take.

The fabric is that of 119 DGX nodes of 8 GPUs in 8 units under two halls, of which some have a rail down; the jobs are
those of Philly with at least two GPUs and those of Kalos, in their order, with arrivals drawn together until they ask
for nine tenths of the GPUs. Every policy sees the same events: whenever a job comes or ends, all that wait are tried in
order, and what fits starts. Jobs either *must* lie in the smallest domain that could hold them when empty, or they
need not, and then it is told what they reached. The second table has times of single decisions.

First fit takes nodes in order, best fit the fullest ones; where a domain is required, the first one that holds the
job. `most free domain` and `best fit of domains` are what Kueue's topology aware scheduling documents (KEP-2724): the
lowest level with a domain that holds all, there the domain with most free capacity or the one with least; within it,
and if no level has one, as many domains as it takes from the most free on, of which the latter chooses the last one by
best fit. Nothing is asserted here.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean, median

from rich.console import Console
from rich.table import Table
from tests.support import make
from tests.support.shared import shared

from adjoin_allocator import (
    Claim,
    ClaimUID,
    FabricLevel,
    Memo,
    Node,
    PlacedReplica,
    ReplicaState,
    Snapshot,
    plan,
)

GPUS = 8
LOAD = 0.9
LEVELS = (FabricLevel("hall", "net/hall"), FabricLevel("unit", "net/unit"))
REACHED = ("node", "unit", "hall", "all")


@dataclass(frozen=True)
class Job:
    """Members of some GPUs each, all at once, for some seconds."""

    number: int
    arrival: float
    seconds: float
    members: int
    gpus: int


@dataclass(frozen=True)
class Site:
    """Nodes by name with their unit and hall."""

    unit: Mapping[str, str]

    @property
    def nodes(self) -> list[str]:
        return list(self.unit)

    def hall(self, node: str) -> str:
        return node[0]

    def level(self, nodes: Sequence[str]) -> str:
        """The smallest domain that all lie in."""
        if len(set(nodes)) == 1:
            return "node"
        if len({self.unit[node] for node in nodes}) == 1:
            return "unit"
        return "hall" if len({self.hall(node) for node in nodes}) == 1 else "all"

    def domains(self, level: str) -> list[list[str]]:
        """Nodes by domain of a level."""
        found: dict[str, list[str]] = {}
        for node in self.nodes:
            found.setdefault({"unit": self.unit[node], "hall": self.hall(node), "all": ""}[level], []).append(node)
        return list(found.values())


def read_site(data: Path) -> Site:
    """The real fabric."""
    with (data / "netopo/dgx_ib_fabric_hca_to_leaf.csv").open() as lines:
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        names = sorted({row["node"] for row in rows if "-su" in row["node"]})
    return Site({name: name.rsplit("-", 1)[0] for name in names})


def read_philly(data: Path, limit: int) -> list[Job]:
    """The first jobs of at least two GPUs."""
    with (data / "traces/philly_jobs.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if int(row["num_gpus"]) > 1]
    rows.sort(key=lambda row: row["timestamp"])
    jobs = []
    for number, row in enumerate(rows[:limit]):
        asked = int(row["num_gpus"])
        gpus = next(size for size in (8, 6, 4, 2, 1) if not asked % size)
        when = datetime.fromisoformat(row["timestamp"]).timestamp()
        jobs.append(Job(number, when, max(60.0, float(row["duration"])), asked // gpus, gpus))
    return jobs


def read_kalos(data: Path, limit: int, nodes: int) -> list[Job]:
    """Those that the site could hold."""
    with (data / "traces/acme_kalos_completed_jobs_converted.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    jobs = []
    for number, row in enumerate(rows):
        step = float(row["iteration_computing_time"]) + float(row["iteration_networking_time"])
        members, gpus = int(row["gpu_workers"]), int(float(row["gpu_per_worker"]))
        if members <= nodes and 0 < gpus <= GPUS:
            jobs.append(
                Job(number, float(row["arrival_time"]), max(60.0, int(row["num_iteration"]) * step), members, gpus)
            )
    return jobs[:limit]


def drawn_together(jobs: Sequence[Job], nodes: int, load: float) -> list[Job]:
    """The jobs with their arrivals scaled to the load."""
    first = min(job.arrival for job in jobs)
    span = max(job.arrival for job in jobs) - first
    work = sum(job.seconds * job.members * job.gpus for job in jobs)
    factor = work / (load * GPUS * nodes) / span
    return [replace(job, arrival=(job.arrival - first) * factor) for job in jobs]


def smallest(site: Site, job: Job) -> str:
    """The smallest level of which a domain could hold the job when it is empty; no condition for a single node."""
    each = GPUS // job.gpus
    for level in ("unit", "hall"):
        if job.members > each and max(map(len, site.domains(level))) * each >= job.members:
            return level
    return ""


# Policies: free GPUs by node, a job and the level it must lie in → nodes of its members, or None

Policy = Callable[[Site, Mapping[str, int], Job, str], list[str] | None]


def fill(free: Mapping[str, int], nodes: Sequence[str], job: Job, members: int) -> list[str]:
    """Up to so many members, node by node in this order."""
    found: list[str] = []
    for node in nodes:
        found += [node] * min(free[node] // job.gpus, members - len(found))
    return found


def held(free: Mapping[str, int], nodes: Sequence[str], job: Job) -> int:
    return sum(free[node] // job.gpus for node in nodes)


def by_node(fullest: bool) -> Policy:
    """First fit and best fit."""

    def policy(site: Site, free: Mapping[str, int], job: Job, required: str) -> list[str] | None:
        for domain in site.domains(required or "all"):
            nodes = sorted(domain, key=lambda node: free[node]) if fullest else domain
            found = fill(free, nodes, job, job.members)
            if len(found) == job.members:
                return found
        return None

    return policy


def by_domain(best_fit: bool) -> Policy:
    """Kueue's two."""

    def order(free: Mapping[str, int], domains: list[list[str]], job: Job, count: int) -> Iterator[list[str]]:
        left = count
        rest = sorted(domains, key=lambda domain: -held(free, domain, job))
        while rest and left > 0:
            enough = [domain for domain in rest if held(free, domain, job) >= left]
            chosen = min(enough, key=lambda domain: held(free, domain, job)) if best_fit and enough else rest[0]
            rest.remove(chosen)
            left -= held(free, chosen, job)
            yield chosen

    def inside(site: Site, free: Mapping[str, int], nodes: list[str], job: Job, count: int, level: str) -> list[str]:
        below = {"all": "hall", "hall": "unit", "unit": "node"}[level]
        if below == "node":
            chosen = order(free, [[node] for node in nodes], job, count)
            return fill(free, [node for (node,) in chosen], job, count)
        within = [[node for node in domain if node in set(nodes)] for domain in site.domains(below)]
        found: list[str] = []
        for domain in order(free, [one for one in within if one], job, count):
            found += inside(site, free, domain, job, min(count - len(found), held(free, domain, job)), below)
        return found

    def policy(site: Site, free: Mapping[str, int], job: Job, required: str) -> list[str] | None:
        levels = ("unit", "hall", "all")
        for level in levels[: levels.index(required) + 1] if required else levels:
            domains = [domain for domain in site.domains(level) if held(free, domain, job) >= job.members]
            if domains:
                chosen = next(order(free, domains, job, job.members))
                return inside(site, free, chosen, job, job.members, level)
        return None

    return policy


BASELINES = {
    "first fit": by_node(fullest=False),
    "best fit": by_node(fullest=True),
    "most free domain": by_domain(best_fit=False),
    "best fit of domains": by_domain(best_fit=True),
}


class Counted:
    """A policy that only counts GPUs."""

    def __init__(self, site: Site, policy: Policy) -> None:
        self.site, self.policy = site, policy
        self.free = dict.fromkeys(site.nodes, GPUS)
        self.held: dict[int, list[str]] = {}

    def start(self, jobs: Sequence[Job], required: Mapping[int, str], now: float) -> dict[int, list[str]]:
        """What of the waiting jobs starts, and where."""
        started = {}
        for job in jobs:
            if held(self.free, self.site.nodes, job) < job.members:
                continue
            nodes = self.policy(self.site, self.free, job, required[job.number])
            if nodes is not None:
                started[job.number] = self.held[job.number] = nodes
                for node in nodes:
                    self.free[node] -= job.gpus
        return started

    def end(self, job: Job) -> None:
        """Its devices come back."""
        for node in self.held.pop(job.number):
            self.free[node] += job.gpus


class Planned:
    """`plan()` on the same site."""

    def __init__(self, site: Site) -> None:
        self.site = site
        nodes = [Node(name, {"net/hall": site.hall(name), "net/unit": site.unit[name]}) for name in site.nodes]
        devices = [device for name in site.nodes for device in make.rails(name, GPUS)]
        self.base: Snapshot = make.snapshot(devices, pools=[make.pool(fabric=LEVELS)], nodes=nodes)
        self.memo = Memo()
        self.running: dict[int, Claim] = {}
        self.free = dict.fromkeys(site.nodes, GPUS)

    def start(self, jobs: Sequence[Job], required: Mapping[int, str], now: float) -> dict[int, list[str]]:
        """What of the waiting jobs starts, and where."""
        asked = {
            job.number: make.gang(
                f"job-{job.number}",
                make.request("gpu", job.gpus),
                replicas=job.members,
                required=required[job.number],
                created=job.arrival,
            )
            for job in jobs
            if held(self.free, self.site.nodes, job) >= job.members
        }
        if not asked:
            return {}
        answer = plan(replace(self.base, claims=(*self.running.values(), *asked.values())), now, self.memo)
        started = {}
        for number, claim in asked.items():
            placements = answer.claims[ClaimUID(claim.uid)].placements
            if placements:
                placed = tuple(
                    PlacedReplica(one.index, one.node, ReplicaState.READY, one.devices) for one in placements
                )
                self.running[number] = replace(claim, placed=placed)
                started[number] = [one.node for one in placements]
                for one in placements:
                    self.free[one.node] -= len(one.devices)
        return started

    def end(self, job: Job) -> None:
        """Its devices come back."""
        for one in self.running.pop(job.number).placed:
            self.free[one.node] += len(one.devices)


@dataclass(frozen=True)
class Run:
    """What came of one policy."""

    makespan: float
    waits: list[float]
    gang_waits: list[float]
    reached: Mapping[str, int]
    domains: float


def simulate(site: Site, jobs: Sequence[Job], scheduler: Counted | Planned, required: Mapping[int, str]) -> Run:
    """Runs all jobs to their end."""
    events: list[tuple[float, int, int]] = [(job.arrival, 1, at) for at, job in enumerate(jobs)]
    heapq.heapify(events)
    waiting: list[Job] = []
    waits: dict[int, float] = {}
    reached = dict.fromkeys(REACHED, 0)
    units: list[int] = []
    now = 0.0
    while events:
        now, kind, at = heapq.heappop(events)
        if kind:
            waiting.append(jobs[at])
        else:
            scheduler.end(jobs[at])
        started = scheduler.start(waiting, required, now)
        by_number = {job.number: place for place, job in enumerate(jobs)}
        for number, nodes in started.items():
            job = jobs[by_number[number]]
            assert len(nodes) == job.members
            waits[number] = now - job.arrival
            if job.members > 1:
                reached[site.level(nodes)] += 1
                units.append(len({site.unit[node] for node in nodes}))
            heapq.heappush(events, (now + job.seconds, 0, by_number[number]))
        waiting = [job for job in waiting if job.number not in started]
    assert not waiting
    gangs = [waits[job.number] for job in jobs if job.members > 1]
    return Run(now, list(waits.values()), gangs, reached, fmean(units) if units else 0.0)


def compare(site: Site, name: str, jobs: Sequence[Job], console: Console) -> None:
    """Prints how the policies do on one trace, with and without conditions."""
    for bound in (True, False):
        must = {job.number: smallest(site, job) if bound else "" for job in jobs}
        table = Table(
            "policy",
            "makespan",
            "mean wait",
            "mean wait of gangs",
            *REACHED,
            "units a gang",
            title=f"{name}, {len(jobs)} jobs, {'smallest domain required' if bound else 'nothing required'}",
        )
        for policy in (*BASELINES, "adjoin"):
            scheduler = Counted(site, BASELINES[policy]) if policy in BASELINES else Planned(site)
            run = simulate(site, jobs, scheduler, must)
            table.add_row(
                policy,
                f"{run.makespan / 3600:.1f} h",
                f"{fmean(run.waits) / 60:.1f} min",
                f"{fmean(run.gang_waits or [0.0]) / 60:.1f} min",
                *(str(run.reached[level]) for level in REACHED),
                f"{run.domains:.2f}",
            )
        console.print(table)


# Times of decisions


def large(nodes: int, seed: int = 1) -> Snapshot:
    """Nodes of 8 GPUs and 8 NICs in racks of 32, blocks of 16 racks and zones of 4 blocks, a fifth of them in use."""
    chance = random.Random(seed)
    devices, objects, busy = [], [], []
    taken = set(chance.sample(range(nodes), nodes // 5))
    for at in range(nodes):
        mine = make.rails(f"n{at}")
        devices += mine
        rack = at // 32
        labels = {"net/zone": f"z{rack // 64}", "net/block": f"b{rack // 16}", "net/rack": f"r{rack}"}
        objects.append(make.node(f"n{at}", labels=labels))
        if at in taken:
            busy.append(make.holding(f"busy-{at}", mine[:2], created=1.0))
    levels = (FabricLevel("zone", "net/zone"), make.BLOCK, make.RACK)
    return make.snapshot(devices, busy, pools=[make.pool(fabric=levels)], nodes=objects)


def decisions(nodes: int, console: Console) -> None:
    """Prints how long single gangs take."""
    base, memo = large(nodes), Memo()
    plan(base, make.NOW, memo)
    whole = (make.request("gpu", 8), make.request("nic", 8))
    cases = {
        "512 members of 8 GPUs and 8 NICs": make.gang("gang", *whole, replicas=512),
        "the same in segments of 8 by rack": make.gang("gang", *whole, replicas=512, segment=(8, "rack")),
        "512 members of one GPU in one block": make.gang("gang", replicas=512, required="block"),
        "no, and why: 80 members in one rack": make.gang("gang", *whole, replicas=80, required="rack"),
        "no, and why: 80 in one rack, in segments": make.gang(
            "gang", *whole, replicas=80, required="rack", segment=(8, "rack")
        ),
        "no, and why: more than there is": make.gang("gang", *whole, replicas=nodes, gang_min=nodes),
    }
    table = Table("decision", "first", "again", title=f"{nodes} nodes under three levels")
    for words, claim in cases.items():
        given = replace(base, claims=(*base.claims, claim))
        times = []
        for _ in range(6):
            plan(base, make.NOW, memo)
            start = time.process_time()
            plan(given, make.NOW, memo)
            times.append(time.process_time() - start)
        table.add_row(words, f"{times[0] * 1e3:.0f} ms", f"{median(times[1:]) * 1e3:.0f} ms")
    console.print(table)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--load", type=float, default=LOAD, help="part of all GPUs that jobs ask for")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--data", type=Path, help="where netopo/ and traces/ lie; default ../shared/data")
    asked = parser.parse_args()
    console = Console(width=140)
    data = asked.data or shared("data")
    site = read_site(data)
    nodes = len(site.nodes)
    for name, jobs in (("Philly", read_philly(data, asked.jobs)), ("Kalos", read_kalos(data, asked.jobs, nodes))):
        compare(site, name, drawn_together(jobs, nodes, asked.load), console)
    decisions(asked.nodes, console)


if __name__ == "__main__":
    main()
