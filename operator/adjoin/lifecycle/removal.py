"""Requests that take something away, each only where it is still there.

In come uses that have ended or have to end; out go deletions, evictions and patches of finalizers and reservations.
Objects of others, and what others put on ours, are never touched.
"""

from __future__ import annotations

from collections.abc import Mapping

from adjoin.api.names import FINALIZER, LABEL_POD
from adjoin.environment import ShareFacts
from adjoin.facts import ClaimFacts, PoolFacts, ResourceClaimFacts
from adjoin.intents import Kind, Step, Verb
from adjoin.jobs import JobFacts
from adjoin.lifecycle.relations import Relations
from adjoin.lifecycle.uses import STRAY, Use


def unreserve(resource_claim: ResourceClaimFacts) -> tuple[Step, ...]:
    """Clears the allocation of a ResourceClaim together with its reservation; of one without allocation, nothing."""
    if not resource_claim.allocated:
        return ()
    meta = resource_claim.meta
    body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
    return (Step(Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM, meta.namespace, meta.name, meta.uid, meta.version, body),)


def drop_finalizer(kind: Kind, meta_of: ClaimFacts | PoolFacts | ResourceClaimFacts | ShareFacts | JobFacts) -> Step:
    """Takes our finalizer off and leaves those of others."""
    meta = meta_of.meta
    remaining = [each for each in meta_of.finalizers if each != FINALIZER]
    body = {"metadata": {"finalizers": remaining}}
    return Step(Verb.PATCH, kind, meta.namespace, meta.name, meta.uid, meta.version, body)


def add_finalizer(kind: Kind, meta_of: ClaimFacts | PoolFacts) -> Step:
    """Puts our finalizer beside those of others."""
    meta = meta_of.meta
    body = {"metadata": {"finalizers": [*meta_of.finalizers, FINALIZER]}}
    return Step(Verb.PATCH, kind, meta.namespace, meta.name, meta.uid, meta.version, body)


def _discard(resource_claim: ResourceClaimFacts, *, release: bool) -> tuple[Step, ...]:
    """Deletes a ResourceClaim whose pod has ended; with `release` our finalizer lets it go too."""
    meta = resource_claim.meta
    if meta.deleting is None:
        return (Step(Verb.DELETE, Kind.RESOURCE_CLAIM, meta.namespace, meta.name, meta.uid),)
    if release and FINALIZER in resource_claim.finalizers:
        return (drop_finalizer(Kind.RESOURCE_CLAIM, resource_claim),)
    return ()


def end(use: Use, now: float) -> tuple[Step, ...]:
    """Takes away what is left of a use whose pod has ended."""
    over = use.over(now)
    steps: list[Step] = []
    for resource_claim in use.resource_claims:
        # Kubernetes' own finalizer frees the name as soon as it is deleted, and with it the record that the pod
        # lingers.
        if over or FINALIZER in resource_claim.finalizers:
            steps += _discard(resource_claim, release=over)
    return tuple(steps)


def expel(use: Use, *, deleted: bool) -> tuple[Step, ...]:
    """Takes the devices from a live pod: one that never started keeps waiting at its gate, any other has to go."""
    pod = use.pod
    assert pod is not None
    if pod.gated:
        steps: list[Step] = []
        for resource_claim in use.resource_claims:
            steps += unreserve(resource_claim)
            steps += _discard(resource_claim, release=not resource_claim.allocated)
        return tuple(steps)
    if pod.meta.deleting is not None:
        return ()
    verb = Verb.DELETE if deleted else Verb.EVICT
    return (Step(verb, Kind.POD, pod.meta.namespace, pod.meta.name, pod.meta.uid),)


def orphans(
    relations: Relations, known: Mapping[str, ClaimFacts], busy: frozenset[str], now: float
) -> dict[str, tuple[Step, ...]]:
    """Removals of our ResourceClaims whose DeviceClaim is gone, by UID of the ResourceClaim: as soon as no live pod has
    them.

    Until the object is gone its devices count as releasing.
    """
    found: dict[str, tuple[Step, ...]] = {}
    for owner, group in sorted(relations.owned.items()):
        if owner in known:
            continue
        for resource_claim in group:
            users = {resource_claim.labels.get(LABEL_POD, ""), *resource_claim.reserved} - {""}
            uses = [
                Use(STRAY, uid, relations.pods_by_uid.get(uid), (resource_claim,), relations.lingering.get(uid))
                for uid in sorted(users)
            ]
            if resource_claim.meta.uid in busy or any(use.live for use in uses):
                continue
            steps = _discard(resource_claim, release=all(use.over(now) for use in uses))
            if steps:
                found[resource_claim.meta.uid] = steps
    return found
