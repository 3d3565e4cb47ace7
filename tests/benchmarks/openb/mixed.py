"""How much of the cards is given when parts are fractions, hardware partitions, or whichever of them fits.

`python -m tests.benchmarks.openb.mixed --list FILE --nodes FILE [--seed N] [--machines N]` replays one order of
arrivals, claim by claim and finally, until as much was asked for as there is. Every second card of each node is an A100
of 80 GB and is cut into partitions on demand; the others cannot be cut, and are divided into fractions of compute.
Every second pod that asks for a part of a card (`gpu_milli`) must be kept apart from others by hardware. A part is
served in one of four ways, and a card of its own, of either kind, is what is left where that cannot be:

- whole: only that;
- fraction: so many thousandths of the compute of a card that is not cut, for those that need not be kept apart;
- partition: the smallest profile that has at least so many sevenths of the compute, if one below the whole card has;
- mix (`firstOf`): a fraction for those that need not be kept apart, else a partition.

Pods for whole cards are the same in all of them. Printed is how many pods had a place, and how much of all cards the
thousandths are that these asked for: what a partition or a card has beyond that counts as lost.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.openb.ours import NOW, POOL, SHARE, Claims, cluster, placed
from tests.benchmarks.openb.trace import Machine, Pod, arrivals, read_machines, read_pods, up_to_full

from adjoin_allocator import Claim, Isolation, Memo, Request, Share, ShareAsk, ShareMode, Snapshot, plan
from adjoin_allocator.cel import Quantity, compile_selector
from adjoin_allocator.model import Alternative

WAYS = ("whole", "fraction", "partition", "mix")
PRODUCT = "openb.example.com/productName"
A100 = "NVIDIA A100-SXM4-80GB"
CUT = "cut"
PROFILES = ((143, "1g.10gb"), (286, "2g.20gb"), (429, "3g.40gb"), (572, "4g.40gb"))
"""Thousandths of the compute that a profile has, rounded up, and its name."""


def site(machines: Sequence[Machine]) -> Snapshot:
    """The cluster of the other benchmark, every second card an A100 of 80 GB that can be partitioned."""
    empty = cluster(machines)
    inventory = {
        node: tuple(
            device
            if at % 2
            else replace(
                device,
                attributes={**device.attributes, PRODUCT: A100},
                capacity={"openb.example.com/memory": Quantity.parse("80Gi")},
            )
            for at, device in enumerate(devices)
        )
        for node, devices in empty.inventory.items()
    }
    domain, name = PRODUCT.split("/")
    mine = (compile_selector(f"device.attributes['{domain}'].{name} == '{A100}'"),)
    names = tuple(name for _, name in PROFILES)
    cut = Share(CUT, CUT, 0.0, POOL, "gpu", ShareMode.PARTITIONED, selectors=mine, profiles=names)
    others = (compile_selector(f"!('{name}' in device.attributes['{domain}'])"),)
    fraction = replace(empty.shares[SHARE], selectors=others)
    return replace(empty, inventory=inventory, shares={SHARE: fraction, CUT: cut})


def asked(claim: Claim, pod: Pod, way: str, apart: bool) -> Claim:
    """The claim of a pod in one of the ways."""
    if not pod.shares:
        return claim
    (request,) = claim.requests
    profile = next((name for milli, name in PROFILES if milli >= pod.milli), None)
    ways = []
    if way in ("fraction", "mix") and not apart:
        ways.append(
            Alternative("fraction", selectors=request.selectors, share=ShareAsk(SHARE, compute_milli=pod.milli))
        )
    if way in ("partition", "mix") and profile is not None:
        hard = Isolation.HARD if apart else Isolation.NONE
        cut = ShareAsk(CUT, profile=profile)
        ways.append(Alternative("partition", selectors=request.selectors, share=cut, isolation=hard))
    ways.append(Alternative("whole", selectors=request.selectors))
    return replace(claim, requests=(Request("gpu", "gpu", first_of=tuple(ways)),))


def given(order: Sequence[Pod], machines: Sequence[Machine], way: str) -> tuple[int, int]:
    """How many pods had a place, and the thousandths of cards that they asked for."""
    makes, memo, snapshot = Claims(), Memo(), site(machines)
    served = amount = parts = 0
    for number, pod in enumerate(order):
        parts += pod.shares
        claim = asked(makes.claim(number, pod), pod, way, apart=parts % 2 == 0)
        arrived = snapshot.edited(put=[claim])
        there = placed(claim, plan(arrived, NOW, memo))
        snapshot = arrived.edited(drop=[claim.uid]) if there is None else arrived.edited(put=[there])
        if there is not None:
            served, amount = served + 1, amount + pod.asked
    return served, amount


def main() -> None:
    """Prints a line a way."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.openb.mixed", description=__doc__)
    parser.add_argument("--list", type=Path, required=True, help="CSV file of pods")
    parser.add_argument("--nodes", type=Path, required=True, help="CSV file of nodes")
    parser.add_argument("--seed", type=int, default=42, help="which order of arrivals")
    parser.add_argument("--machines", type=int, default=0, help="of so many machines only, evenly chosen; 0: all")
    asked_for = parser.parse_args()
    machines = read_machines(asked_for.nodes)
    if asked_for.machines:
        machines = machines[:: max(1, len(machines) // asked_for.machines)][: asked_for.machines]
    total = 1000 * sum(machine.cards for machine in machines)
    order = up_to_full(arrivals(read_pods(asked_for.list), machines, asked_for.seed), total)
    for way in WAYS:
        served, amount = given(order, machines, way)
        print(f"{way:10} {served:6} of {len(order)} pods, {100 * amount / total:5.1f} % of the cards", flush=True)


if __name__ == "__main__":
    main()
