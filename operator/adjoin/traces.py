"""Pods that a process which has just begun never saw, told by the traces that they left.

In come facts as first listed, out go the pods that may still run although the API server has them no more. How a pod
ended is known only to who saw its last state: one that was force-deleted a moment ago leaves the same traces as one
that ended in good order long before. So it counts as running, unless something proves that it never could: Adjoin's own
finalizer keeps an allocation until Adjoin takes it away, and Adjoin does that only while the pod waits at its gate.

Nothing here knows the time or how long such a pod is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from adjoin.api.names import ANNOTATION_REPLICA, FINALIZER, LABEL_POD
from adjoin.facts import ClaimFacts, Meta, PodFacts, ResourceClaimFacts
from adjoin.grants import GrantFacts
from adjoin.holdings import read_placed
from adjoin_allocator.terms import ReplicaState

USED_STATES: Final = (ReplicaState.IN_USE, ReplicaState.RELEASING, ReplicaState.FAILED)
"""States in which a pod may have been at the devices."""


@dataclass(frozen=True, slots=True)
class Traces:
    """Pods that may still run.

    Attributes:
        named: UIDs of those that a ResourceClaim or ConfigMap of ours names.
        nameless: One for each replica that its status calls used while neither one of these nor a pod is there to say
            by whom: somebody took all of them away meanwhile. Its UID is none that a pod could have.
    """

    named: frozenset[str]
    nameless: tuple[PodFacts, ...]


def unseen(
    claims: Mapping[str, ClaimFacts],
    resource_claims: Mapping[str, ResourceClaimFacts],
    pods: Mapping[str, PodFacts],
    ended: Collection[str],
    grants: Mapping[str, GrantFacts] = MappingProxyType({}),
) -> Traces:
    """The pods of which there are traces, but which are neither in `pods` nor, by UID, among those seen to end."""
    owned: defaultdict[str, set[str]] = defaultdict(set)
    named: set[str] = set()
    idle: set[str] = set()
    for resource_claim in resource_claims.values():
        if not resource_claim.owner:
            continue
        owned[resource_claim.owner].add(resource_claim.labels.get(ANNOTATION_REPLICA, ""))
        users = {resource_claim.labels.get(LABEL_POD, ""), *resource_claim.reserved} - {""}
        named |= users
        if not resource_claim.allocated and FINALIZER in resource_claim.finalizers:
            idle |= users
    for grant in grants.values():
        if grant.owner:
            owned[grant.owner].add(grant.labels.get(ANNOTATION_REPLICA, ""))
            named |= {grant.labels.get(LABEL_POD, "")} - {""}
    homes = {(pod.meta.namespace, pod.claim, pod.node) for pod in pods.values()}
    nameless = tuple(
        _nameless(claim, replica.index, replica.node)
        for uid, claim in claims.items()
        for replica in read_placed(claim.status)
        if replica.state in USED_STATES
        and str(replica.index) not in owned[uid]
        and (claim.meta.namespace, claim.meta.name, replica.node) not in homes
    )
    return Traces(frozenset(named - idle - pods.keys() - set(ended)), nameless)


def _nameless(claim: ClaimFacts, index: int, node: str) -> PodFacts:
    meta = claim.meta
    return PodFacts(
        meta=Meta(f"{meta.uid}/{index}", meta.namespace, "", 0, 0, None, None),
        claim=meta.name,
        token="unknown",
        containers="",
        replica=index,
        gates=(),
        resource_claims=(),
        node=node,
        phase="Running",
        started=True,
        stopped=False,
        affinity={},
    )
