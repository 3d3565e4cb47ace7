"""Which replicas a claim wants now: so many from 0, or with `scaling.mode: FollowPods` one for every live pod.

In come claims, their pods and who uses which replica; out go indexes. A pod keeps the replica that it has, so what a
claim that follows its pods wants is a set with gaps: the replicas of pods that have ended are exactly those that it
does not want any more. Nothing is remembered, and nothing here takes a device away or gives one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from adjoin.api.claim import ScalingMode
from adjoin.api.defaults import replicas_of
from adjoin.cache import View
from adjoin.facts import ClaimFacts, PodFacts
from adjoin.holdings import is_released, read_nominated
from adjoin.inventory import Inventory
from adjoin.lifecycle.relations import Relations, precedence
from adjoin.lifecycle.uses import entries, uses_of
from adjoin_allocator.terms import ReplicaState

Indexes = range | frozenset[int]
"""Replicas by index."""

_STANDING = (ReplicaState.ALLOCATED, ReplicaState.INITIALIZING, ReplicaState.READY, ReplicaState.IN_USE)


def follows_pods(claim: ClaimFacts) -> bool:
    """Whether its pods decide how many replicas the claim has."""
    return claim.claim.spec.scaling.mode is ScalingMode.FOLLOW_PODS


def dormant(claim: ClaimFacts) -> bool:
    """Whether the claim wants nothing, whoever asks for it: it is deleted, suspended or released."""
    return claim.meta.deleting is not None or claim.claim.spec.suspend or is_released(claim)


def wanted_replicas(claim: ClaimFacts, followed: Mapping[str, frozenset[int]]) -> Indexes:
    """The replicas that the claim wants now. `followed` is what `followed_pods` says."""
    if dormant(claim):
        return range(0)
    if follows_pods(claim):
        return followed.get(claim.meta.uid, frozenset())
    return range(replicas_of(claim.claim.spec))


def followed_pods(view: View, relations: Relations, inventory: Inventory) -> Mapping[str, frozenset[int]]:
    """What claims that follow their pods want, by UID; costs a look at those claims and their pods alone."""
    return {
        uid: _followed(claim, relations, inventory)
        for uid, claim in view.claims.items()
        if follows_pods(claim) and not dormant(claim)
    }


def asks(pod: PodFacts) -> bool:
    """Whether the pod counts as one that lives: it has not ended, and will start or has started."""
    return not pod.finished and not (pod.gated and pod.meta.deleting is not None)


def _followed(claim: ClaimFacts, relations: Relations, inventory: Inventory) -> frozenset[int]:
    """One claim's: pods keep what they have, those that name a replica get that one, and the others the lowest free.

    At most `maxReplicas` in all, the older pods before the younger; at least `minReplicas`, for which replicas stay
    that are there before others are made.
    """
    scaling = claim.claim.spec.scaling
    most = scaling.max_replicas or 0
    least = min(scaling.min_replicas or 0, most)
    held = {int(entry.get("index") or 0): entry for entry in entries(claim)}
    live = [pod for pod in relations.pods.get((claim.meta.namespace, claim.meta.name), ()) if asks(pod)]
    uses = uses_of(claim, relations, inventory) if held else ()
    has = {use.pod_uid: use.index for use in uses if use.live and use.index in held}
    wanted: set[int] = set()

    def take(indexes: Iterable[int], number: int) -> None:
        wanted.update(islice((index for index in indexes if index not in wanted), max(0, number)))

    for pod in sorted(live, key=precedence):
        if pod.meta.uid in has:
            take((has[pod.meta.uid],), most - len(wanted))
    # One without a token has not met admission yet: it stands in a file.
    unserved = (pod for pod in live if pod.meta.uid not in has)
    waiting = [pod for pod in unserved if pod.gated or not (pod.token or pod.node)]
    for pod in waiting:
        if pod.replica is not None and pod.replica < most:
            take((pod.replica,), most - len(wanted))
    served = frozenset(has.values())
    lingering = frozenset(use.index for use in uses if not use.live and use.lingers_until is not None)

    nominated = [each.index for each in read_nominated(claim.status) if each.index < most and each.index not in held]

    def free() -> Iterator[int]:
        """Those that stand and serve nobody, those that something is held for, new ones, those on their way out."""
        standing = [index for index, entry in held.items() if entry.get("state", ReplicaState.READY) in _STANDING]
        ready = [index for index in standing if index not in served and index not in lingering]
        new = (index for index in range(most) if index not in held)
        return chain(sorted(ready), nominated, new, range(most))

    take(free(), min(sum(pod.replica is None for pod in waiting), most - len(wanted)))
    take(free(), least - len(wanted))
    return frozenset(wanted)
