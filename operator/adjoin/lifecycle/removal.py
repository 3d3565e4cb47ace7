"""Requests that take something away, each only where it is still there.

In come uses that have ended or have to end; out go deletions, evictions and patches of finalizers and reservations.
Objects of others, and what others put on ours, are never touched.
"""

from __future__ import annotations

from collections.abc import Mapping

from adjoin.api.names import FINALIZER, LABEL_POD
from adjoin.environment import ShareFacts
from adjoin.facts import ClaimFacts, PoolFacts
from adjoin.grants import GrantFacts, Record
from adjoin.intents import Kind, Step, Verb
from adjoin.jobs import JobFacts
from adjoin.lifecycle.relations import Relations
from adjoin.lifecycle.uses import STRAY, Use


def kind_of(record: Record) -> Kind:
    """What kind of object a record is."""
    return Kind.GRANT if isinstance(record, GrantFacts) else Kind.RESOURCE_CLAIM


def unreserve(record: Record) -> tuple[Step, ...]:
    """Clears the allocation of a ResourceClaim together with its reservation; of what has no allocation, nothing."""
    if not record.allocated:
        return ()
    meta = record.meta
    body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
    return (Step(Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM, meta.namespace, meta.name, meta.uid, meta.version, body),)


def drop_finalizer(kind: Kind, meta_of: ClaimFacts | PoolFacts | Record | ShareFacts | JobFacts) -> Step:
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


def _discard(record: Record, *, release: bool) -> tuple[Step, ...]:
    """Deletes a record whose pod has ended; with `release` our finalizer lets it go too."""
    meta = record.meta
    if meta.deleting is None:
        return (Step(Verb.DELETE, kind_of(record), meta.namespace, meta.name, meta.uid),)
    if release and FINALIZER in record.finalizers:
        return (drop_finalizer(kind_of(record), record),)
    return ()


def end(use: Use, now: float) -> tuple[Step, ...]:
    """Takes away what is left of a use whose pod has ended."""
    over = use.over(now)
    steps: list[Step] = []
    for record in use.records:
        # Kubernetes' own finalizer frees the name as soon as it is deleted, and with it the record that the pod
        # lingers.
        if over or FINALIZER in record.finalizers:
            steps += _discard(record, release=over)
    return tuple(steps)


def expel(use: Use, *, deleted: bool) -> tuple[Step, ...]:
    """Takes the devices from a live pod: one that never started keeps waiting at its gate, any other has to go."""
    pod = use.pod
    assert pod is not None
    if pod.gated:
        steps: list[Step] = []
        for record in use.records:
            steps += unreserve(record)
            steps += _discard(record, release=not record.allocated)
        return tuple(steps)
    if pod.meta.deleting is not None:
        return ()
    verb = Verb.DELETE if deleted else Verb.EVICT
    return (Step(verb, Kind.POD, pod.meta.namespace, pod.meta.name, pod.meta.uid),)


def orphans(
    relations: Relations, known: Mapping[str, ClaimFacts], busy: frozenset[str], now: float
) -> dict[str, tuple[Step, ...]]:
    """Removals of our ResourceClaims and ConfigMaps whose DeviceClaim is gone, by UID: as soon as no live pod has
    them.

    Until the object is gone its devices count as releasing.
    """
    found: dict[str, tuple[Step, ...]] = {}
    for owner, group in sorted(relations.owned.items()):
        if owner in known:
            continue
        for record in group:
            users = {record.labels.get(LABEL_POD, ""), *record.reserved} - {""}
            uses = [
                Use(STRAY, uid, relations.pods_by_uid.get(uid), (record,), relations.lingering.get(uid))
                for uid in sorted(users)
            ]
            if record.meta.uid in busy or any(use.live for use in uses):
                continue
            steps = _discard(record, release=all(use.over(now) for use in uses))
            if steps:
                found[record.meta.uid] = steps
    return found
