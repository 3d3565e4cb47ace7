"""A second batch optimiser, made to be read: every set of devices for every replica, all of them together.

It reads the rules anew, on the choices and distances of `oracle`. Good for about ten devices. `best` gives what the
best batch is worth: who is placed, and the distances of all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from tests.support.oracle import Bench, takes_claims

from adjoin_allocator import (
    Affinity,
    Claim,
    ClaimUID,
    DeviceID,
    DeviceType,
    Objective,
    Plan,
    Policy,
    Profile,
    Snapshot,
)
from adjoin_allocator.topology import wire

Distances = tuple[int, ...]
"""NUMA nodes of Latency, then by slot the sum of ranks and the sum of fine, of all replicas."""


@dataclass(frozen=True, order=True)
class Worth:
    """What a batch is worth, the better the greater."""

    devices: tuple[int, ...]
    """By priority, the highest first; nothing unless their number counts."""
    placed: tuple[bool, ...]
    """By replica, in order of service."""
    nearness: tuple[int, ...]
    """Distances below zero."""


def order(snapshot: Snapshot, now: float) -> list[Claim]:
    """The claims that are served, in order."""
    waiting = [claim for claim in snapshot.claims if not claim.deleting and len(claim.placed) < claim.replicas]
    return sorted(waiting, key=lambda c: (-c.priority, now if c.created is None else c.created, c.uid))


def best(snapshot: Snapshot, now: float) -> Worth:
    """The worth of the best batch. All claims are of one pool and independent."""
    claims = order(snapshot, now)
    levels = sorted({claim.priority for claim in claims}, reverse=True)
    counted = any(pool.objective is Objective.THROUGHPUT for pool in snapshot.pools.values())
    states = {frozenset[DeviceID](): Worth((0,) * len(levels) if counted else (), (), ())}
    for claim in claims:
        options = choices(snapshot, claim)
        for _ in range(claim.replicas - len(claim.placed)):
            after: dict[frozenset[DeviceID], Worth] = {}
            for used, worth in states.items():
                _keep(after, used, Worth(worth.devices, (*worth.placed, False), worth.nearness))
                for taken, distance in options.items():
                    if not taken & used:
                        gained = len(taken) if counted else 0
                        devices = tuple(
                            number + gained * (level == claim.priority)
                            for number, level in zip(worth.devices, levels, strict=False)
                        )
                        nearness = minus(worth.nearness, distance)
                        _keep(after, used | taken, Worth(devices, (*worth.placed, True), nearness))
            states = after
    return max(states.values(), key=compared)


def reached(snapshot: Snapshot, answer: Plan, now: float) -> Worth:
    """What a plan is worth."""
    claims = order(snapshot, now)
    levels = sorted({claim.priority for claim in claims}, reverse=True)
    counted = any(pool.objective is Objective.THROUGHPUT for pool in snapshot.pools.values())
    devices = dict.fromkeys(levels, 0)
    placed: list[bool] = []
    nearness: tuple[int, ...] = ()
    for claim in claims:
        mine = answer.claims[ClaimUID(claim.uid)].placements
        lacking = claim.replicas - len(claim.placed)
        placed += [True] * len(mine) + [False] * (lacking - len(mine))
        options = choices(snapshot, claim)
        for placement in mine:
            taken = frozenset(device.id for device in placement.devices)
            devices[claim.priority] += len(taken)
            nearness = minus(nearness, options[taken])
    return Worth(tuple(devices.values()) if counted else (), tuple(placed), nearness)


def compared(worth: Worth) -> tuple[object, ...]:
    """Makes worths comparable."""
    nearness = worth.nearness + (0,) * (16 - len(worth.nearness))
    return worth.devices, worth.placed, nearness


def ranks(worth: Worth) -> tuple[int, ...]:
    """Sums of ranks alone, without missing slots at the end."""
    found = list(worth.nearness[1::2])
    while found and not found[-1]:
        del found[-1]
    return tuple(found)


def minus(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """Level by level."""
    return tuple(a - b for a, b in zip_longest(one, other, fillvalue=0))


def _keep(states: dict[frozenset[DeviceID], Worth], used: frozenset[DeviceID], worth: Worth) -> None:
    if used not in states or compared(states[used]) < compared(worth):
        states[used] = worth


def choices(snapshot: Snapshot, claim: Claim) -> Mapping[frozenset[DeviceID], Distances]:
    """Every set of devices that one replica could have, and its distances when they are shared out best."""
    pool = snapshot.pools[claim.pool]
    held = {device.id for one in snapshot.claims for replica in one.placed for device in replica.devices}
    held |= set(snapshot.holds)
    types = {name.name: name.type for name in pool.devices}
    both = {DeviceType.GPU, DeviceType.RDMA} <= {types[request.kind] for request in claim.requests}
    preferred = any(line.scope and line.policy is Policy.PREFERRED for line in claim.affinity)
    found: dict[frozenset[DeviceID], Distances] = {}
    for name, beside in snapshot.inventory.items():
        devices = [device for device in beside if device.device_pool == pool.name]
        if not devices or not takes_claims(snapshot.nodes[name], pool):
            continue
        bench = Bench(pool, devices, wire(devices, pool, beside)[0], held)
        asked = replace(claim, affinity=tuple(_unrepeated(claim.affinity)))
        for sets in bench.choices(claim.requests, claim.affinity):
            taken = frozenset(devices[at].id for one in sets for at in one)
            # GPU pairs and GPU-NIC pairs, where there are both kinds; else what there is comes first.
            pairs = [pair for pair in bench._distances(asked, sets) if preferred or both or pair != (0, 0)]
            used = {at for one in sets for at in one}
            numa = bench._numa_nodes(used) if claim.profile is Profile.LATENCY else 0
            distance = (numa, *(number for pair in pairs for number in pair))
            if taken not in found or distance < found[taken]:
                found[taken] = distance
    return found


def _unrepeated(lines: Sequence[Affinity]) -> list[Affinity]:
    """A Preferred line over the same requests as an earlier one adds nothing: the distances are the same ones."""
    found: dict[object, Affinity] = {}
    for line in lines:
        first, *others = line.requests
        same: object = tuple(frozenset((first, other)) for other in others) or first
        found.setdefault(same if line.policy is Policy.PREFERRED else line, line)
    return list(found.values())
