"""Which replicas would have to move so that a waiting claim fits, where devices are given in parts.

In comes a `Stage`, out come `Trial`s: spots for replicas that leave, the fewest devices or parts first. Cards that are
divided are no sets that one takes or leaves, so nothing is searched here: choices of replicas are taken out, and
`plan()` is asked to place the claim, and them, at once. Where they can all be is its question, and what it says obeys
all its rules.

With few replicas every choice of them is tried, else choices on one node at a time; work is bounded by counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from adjoin_allocator.hosts import NOTHING
from adjoin_allocator.model import natural_key
from adjoin_allocator.solve import Memo, plan
from adjoin_allocator.stage import Key, Spots, Stage, alike

EVERY: Final = 9
"""With no more replicas than this every choice of them is tried."""
TRIES: Final = 250
"""Otherwise so many choices."""
CROWD: Final = 8
"""Of so many replicas of a node, those with the fewest parts."""
BUDGET: Final = 300
"""Milliseconds' worth of work that `plan()` may spend on one choice, as a pool's `optimiseFor` says."""
FIRST: Final = 1 << 40
"""A priority above all others."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Replicas that leave, and where they go; `certain` while no cheaper choice was passed over unseen."""

    spots: Spots
    certain: bool


def trials(stage: Stage) -> Iterator[Trial]:
    """All that `plan()` agrees with, the fewest devices or parts first."""
    every = {**stage.movable, **stage.shared}
    few = len(every) <= EVERY
    # A gang, and what has alternatives or needs a host, is placed once and not shifted for others.
    certain = few and all(_plain(stage, uid) for uid in {stage.target.uid, *(uid for uid, _ in every)})
    base = replace(
        stage.base,
        pools={**stage.base.pools, stage.pool.name: replace(stage.pool, optimise_milliseconds=BUDGET)},
    )
    memo = Memo()
    for leaving in _every(stage, list(every)) if few else _by_node(stage):
        asking = stage.arranged({}, leaving, [stage.target.uid, *(uid for uid, _ in leaving)], base)
        claims = [replace(claim, priority=FIRST) if claim.uid == stage.target.uid else claim for claim in asking.claims]
        made = plan(replace(asking, claims=tuple(claims)), stage.now, memo)
        answer = made.claims.get(stage.target.uid)
        if answer is None or not stage.satisfied(answer.placements, bool(answer.reasons)):
            continue
        spots = {
            (uid, placement.index): (placement.node, placement.devices)
            for uid in {uid for uid, _ in leaving}
            if uid in made.claims
            for placement in made.claims[uid].placements
            if (uid, placement.index) in leaving
        }
        if len(spots) == len(leaving) and all(alike(every[key].devices, spots[key][1]) for key in leaving):
            yield Trial(spots, certain)


def exhaustive(stage: Stage) -> bool:
    """Whether all there is to try is tried, so that finding nothing proves that there is nothing."""
    every = {**stage.movable, **stage.shared}
    return len(every) <= EVERY and all(_plain(stage, uid) for uid in {stage.target.uid, *(uid for uid, _ in every)})


def _plain(stage: Stage, uid: object) -> bool:
    claim = next(each for key, each in stage.claims.items() if key == uid)
    alone = claim.gang_min is None and claim.host == NOTHING
    return alone and not any(request.first_of or request.all_devices for request in claim.requests)


def _every(stage: Stage, keys: Sequence[Key]) -> Iterator[tuple[Key, ...]]:
    """All choices, the fewest parts first."""
    choices = [chosen for size in range(1, len(keys) + 1) for chosen in combinations(keys, size)]
    choices.sort(key=lambda chosen: (stage.weight(chosen), len(chosen)))
    return iter(choices)


def _by_node(stage: Stage) -> Iterator[tuple[Key, ...]]:
    """Choices of replicas of one node, the fewest parts first."""
    nodes: dict[str, list[Key]] = {}
    for key, replica in (*stage.shared.items(), *stage.movable.items()):
        nodes.setdefault(replica.node, []).append(key)
    choices: list[tuple[int, int, str, tuple[Key, ...]]] = []
    for node, keys in nodes.items():
        keys.sort(key=lambda key: stage.weight([key]))
        for size in range(1, min(CROWD, len(keys)) + 1):
            for chosen in combinations(keys[:CROWD], size):
                choices.append((stage.weight(chosen), size, node, chosen))
        if len(keys) > CROWD:
            choices.append((stage.weight(keys), len(keys), node, tuple(keys)))
    choices.sort(key=lambda each: (each[0], each[1], natural_key(each[2])))
    return iter([chosen for *_, chosen in choices[:TRIES]])
