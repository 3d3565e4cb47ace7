"""Room for a waiting claim, on one node after the other: a bounded search where there are too many moves to try all.

In comes a `Stage`, out go spots for the claim's replicas and for whoever leaves for them, or None. Nodes are tried in
order of how few devices are lacking there, and on each of them choices of replicas that would leave, the fewest devices
first; who leaves is planned anew elsewhere, and may displace others in turn, up to a depth. What is found is not proven
here, and not finding anything proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Final

from adjoin_allocator.model import Claim, natural_key
from adjoin_allocator.stage import NOWHERE, Key, Spots, Stage, least

NODES: Final = 24
"""So many nodes are looked at for one replica."""
SUBSETS: Final = 32
"""And on each of them so many choices of replicas that would leave."""
CROWD: Final = 8
"""Of so many replicas of a node, those with the fewest devices."""
DEPTH: Final = 2
"""So deep may those who leave displace others."""


def make_room(stage: Stage) -> Spots | None:
    """Spots for all that the target lacks, and for those who move."""
    spots: Spots = {}
    for index in stage.missing():
        found = _room_for(stage, (stage.target.uid, index), spots, DEPTH)
        if found is None:
            return None
        spots = found
    return spots


def _room_for(stage: Stage, key: Key, spots: Spots, depth: int) -> Spots | None:
    """`spots` with one for `key`, and for those whom it displaces."""
    placed = stage.planned([key], spots)
    if placed is not None:
        return {**spots, **placed}
    if not depth:
        return None
    claim = stage.claims[key[0]]
    elsewhere = {**spots, key: NOWHERE}
    best: tuple[int, Spots] | None = None
    for node, lacking in _nearest(stage, claim, elsewhere)[:NODES]:
        if best is not None and lacking >= best[0]:
            break
        for leaving in _leaving(stage, node, elsewhere, lacking)[:SUBSETS]:
            if best is not None and stage.weight(leaving) >= best[0]:
                break
            devices = stage.alone(claim, node, stage.free_on(node, elsewhere, leaving))
            if devices is None:
                continue
            trial = _settle(stage, {**spots, key: (node, devices)}, leaving, depth)
            if trial is not None:
                total = stage.weight(each for each in trial if each in stage.movable and each not in elsewhere)
                if best is None or total < best[0]:
                    best = (total, trial)
    return best[1] if best is not None else None


def _settle(stage: Stage, spots: Spots, leaving: Sequence[Key], depth: int) -> Spots | None:
    """`spots` with those who leave: all at once, else one after the other."""
    together = stage.planned(leaving, spots)
    if together is not None:
        return {**spots, **together}
    trial: Spots = {**spots, **dict.fromkeys(leaving, NOWHERE)}
    for key in leaving:
        # Who comes later has left already, and has no place yet.
        found = _room_for(stage, key, {each: spot for each, spot in trial.items() if each != key}, depth - 1)
        if found is None:
            return None
        trial = found
    return trial


def _nearest(stage: Stage, claim: Claim, spots: Spots) -> list[tuple[str, int]]:
    """Nodes with enough devices that are free or may become so, and how many are lacking, the fewest first."""
    by_node: dict[str, list[Key]] = {}
    for key, replica in stage.movable.items():
        if key not in spots:
            by_node.setdefault(replica.node, []).append(key)
    needed = least(claim)
    found = []
    for name in stage.nodes:
        free = _count(stage, name, spots, ())
        could = _count(stage, name, spots, by_node.get(name, ()))
        if all(could[kind] >= amount for kind, amount in needed.items()):
            found.append((name, sum(max(0, amount - free[kind]) for kind, amount in needed.items())))
    return sorted(found, key=lambda each: (each[1], natural_key(each[0])))


def _count(stage: Stage, node: str, spots: Spots, leaving: Sequence[Key]) -> Counter[str]:
    return Counter(stage.devices[device].kind for device in stage.free_on(node, spots, leaving))


def _leaving(stage: Stage, node: str, spots: Spots, lacking: int) -> list[tuple[Key, ...]]:
    """Choices of replicas of a node that would leave enough devices, the fewest devices first."""
    here = [key for key, replica in stage.movable.items() if replica.node == node and key not in spots]
    here.sort(key=lambda key: stage.weight([key]))
    choices = [
        chosen
        for size in range(1, CROWD + 1)
        for chosen in combinations(here[:CROWD], size)
        if stage.weight(chosen) >= lacking
    ]
    return sorted(choices, key=lambda chosen: (stage.weight(chosen), len(chosen)))
