"""The lists as Adjoin's objects, and what `plan()` makes of them: claim by claim, and all at once.

Every machine is a node with limits, every card a GPU whose model is an attribute; pods that need a part of a card ask a
DeviceShare without reserve for compute. The allocator knows the claims of the snapshot and nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tests.benchmarks.openb.trace import Curve, Machine, Pod, up_to_full

from adjoin_allocator import (
    Claim,
    ClaimUID,
    Device,
    DeviceID,
    DeviceName,
    DeviceType,
    HostAsk,
    Memo,
    Node,
    Objective,
    PlacedReplica,
    Plan,
    Pool,
    ReplicaState,
    Request,
    Share,
    ShareAsk,
    ShareMode,
    Snapshot,
    plan,
)
from adjoin_allocator.cel import Selector, compile_selector

POOL = "openb"
SHARE = "parts"
MODEL = "openb.example.com/model"
NOW = 1_000_000.0
MIB = 1 << 20


def cluster(machines: Sequence[Machine], objective: Objective = Objective.IN_ORDER) -> Snapshot:
    """The empty cluster."""
    inventory = {
        machine.name: tuple(
            Device(
                id=DeviceID("openb.example.com", machine.name, f"gpu-{card}"),
                node=machine.name,
                device_pool=POOL,
                kind="gpu",
                type=DeviceType.GPU,
                hardware_id=f"{machine.name}/gpu-{card}",
                attributes={MODEL: machine.model} if machine.model else {},
                capacity={},
            )
            for card in range(machine.cards)
        )
        for machine in machines
    }
    nodes = {
        machine.name: Node(
            name=machine.name,
            labels={},
            cpu_milli=machine.cpu_milli,
            memory_bytes=machine.memory_mib * MIB,
        )
        for machine in machines
    }
    names = (DeviceName("gpu", DeviceType.GPU),)
    pool = Pool(POOL, names, aliases={}, matrices={}, objective=objective, optimise_milliseconds=1000)
    share = Share(SHARE, SHARE, 0.0, POOL, "gpu", ShareMode.FRACTIONAL, reserve_per_million=0, min_reserve_bytes=0)
    return Snapshot({POOL: pool}, nodes, inventory, (), {}, {SHARE: share})


class Claims:
    """Makes claims of pods; equal whitelists become one selector."""

    def __init__(self) -> None:
        self._selectors: dict[frozenset[str], tuple[Selector, ...]] = {frozenset(): ()}

    def claim(self, number: int, pod: Pod) -> Claim:
        """The claim of the pod that arrives as the `number`-th."""
        selectors = self._selectors.get(pod.models)
        if selectors is None:
            names = ", ".join(json.dumps(model) for model in sorted(pod.models))
            domain, name = MODEL.split("/")
            text = f"device.attributes['{domain}'].{name} in [{names}]"
            selectors = self._selectors[pod.models] = (compile_selector(text),)
        ask = ShareAsk(SHARE, compute_milli=pod.milli) if pod.shares else None
        request = Request("gpu", "gpu", pod.cards, selectors=selectors, share=ask)
        return Claim(
            uid=ClaimUID(f"{number:06}"),
            namespace="openb",
            name=f"pod-{number}",
            created=float(number),
            pool=POOL,
            requests=(request,) if pod.cards else (),
            host=HostAsk(pod.cpu_milli, pod.memory_mib * MIB),
        )


def placed(claim: Claim, decided: Plan) -> Claim | None:
    """The claim with what the plan gives it; None when that is nothing."""
    given = decided.claims[claim.uid].placements
    replicas = tuple(PlacedReplica(each.index, each.node, ReplicaState.READY, each.devices) for each in given)
    return replace(claim, placed=replicas) if replicas else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an order of arrivals.

    Attributes:
        unallocated: Per cent at 100 % arrivals.
        milliseconds: Processor time of the median decision.
        following: The same of seeing what it gave as placed, when nobody waits.
        claims: Those that are placed.
    """

    unallocated: float
    milliseconds: float
    following: float
    claims: tuple[Claim, ...]


def one_by_one(order: Sequence[Pod], machines: Sequence[Machine]) -> Outcome:
    """Each pod's claim arrives alone and is decided; who finds no place is not tried again. Between two arrivals the
    allocator sees what has become of the first.
    """
    snapshot, memo, claims = cluster(machines), Memo(), Claims()
    curve = Curve(1000 * sum(machine.cards for machine in machines))
    times, others = [], []
    plan(snapshot, NOW, memo)
    for number, pod in enumerate(order):
        claim = claims.claim(number, pod)
        asked = snapshot.edited(put=[claim])
        start = time.process_time()
        decided = plan(asked, NOW, memo)
        times.append(time.process_time() - start)
        found = placed(claim, decided)
        snapshot = asked.edited(drop=[claim.uid]) if found is None else asked.edited(put=[found])
        start = time.process_time()
        plan(snapshot, NOW, memo)
        others.append(time.process_time() - start)
        curve.event(pod, found is not None)
        if curve.over:
            break
    return Outcome(curve.unallocated, 1000 * median(times), 1000 * median(others), tuple(snapshot.claims))


def batch(order: Sequence[Pod], machines: Sequence[Machine]) -> Outcome:
    """All that have arrived at 100 % are decided together, for the most devices."""
    claims, capacity = Claims(), 1000 * sum(machine.cards for machine in machines)
    pods = up_to_full(order, capacity)
    asked = tuple(claims.claim(number, pod) for number, pod in enumerate(pods))
    start = time.process_time()
    decided = plan(replace(cluster(machines, Objective.THROUGHPUT), claims=asked), NOW)
    elapsed = time.process_time() - start
    found = tuple(filter(None, (placed(claim, decided) for claim in asked)))
    given = sum(pod.asked for pod, claim in zip(pods, asked, strict=True) if decided.claims[claim.uid].placements)
    return Outcome(100 * (1 - given / capacity), 1000 * elapsed, 0.0, found)
