"""Which pod gets which replica, and how a pod's gate opens.

In come the pods that ask for a claim and its replicas with their users; out go pairs of replica and pod, and notices
for pods that have to wait for something that the claim's own status does not say. A replica serves one pod at a time;
the oldest pod goes first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adjoin.api.claim_status import ReleasedReason
from adjoin.api.defaults import most_replicas
from adjoin.api.names import ANNOTATION_CONTAINERS, GATE, NETWORKS_ANNOTATION
from adjoin.delivery import environment, resourceclaims
from adjoin.delivery.events import Notice
from adjoin.delivery.parts import Layout
from adjoin.facts import ClaimFacts, PodFacts, moment
from adjoin.holdings import released_reason
from adjoin.intents import Kind, Step, Verb
from adjoin.lifecycle import Indexes, Member, Relations, follows_pods, pinned_to
from adjoin_allocator.terms import ReplicaState

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def parse_containers(text: str) -> dict[str, tuple[str, ...]]:
    """Requests by container, from the annotation that says which container gets which. Empty text says nothing:
    everybody gets all.

    Raises `ValueError` naming what is wrong with the value.
    """
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError('must be an object such as {"trainer": ["gpu", "nic"]}')
    for container, requests in value.items():
        if not isinstance(requests, list) or not all(isinstance(each, str) for each in requests):
            raise ValueError(
                f'gives container {container} {json.dumps(requests)} instead of a list of requests such as ["gpu"]'
            )
    return {container: tuple(dict.fromkeys(requests)) for container, requests in value.items()}


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who gets what.

    Attributes:
        pairs: Replicas and the pods that they serve but do not reach yet, both new pairs and those that a crash cut
            short.
        notices: What to tell the owners of pods that have to wait.
    """

    pairs: tuple[tuple[Member, PodFacts], ...]
    notices: tuple[tuple[PodFacts, Notice], ...]


def _unknown_requests(claim: ClaimFacts, pod: PodFacts) -> Notice | None:
    known = {request.name for request in claim.claim.spec.requests}
    try:
        named = parse_containers(pod.containers)
    except ValueError as error:
        return Notice("InvalidContainers", f"annotation {ANNOTATION_CONTAINERS} {error}", warning=True)
    unknown = sorted({request for requests in named.values() for request in requests} - known)
    if not unknown:
        return None
    return Notice(
        "UnknownRequest",
        f"annotation {ANNOTATION_CONTAINERS} names {', '.join(unknown)}, but the requests of DeviceClaim "
        f"{claim.meta.name} are {', '.join(sorted(known)) or 'none'}; correct the pod template",
        warning=True,
        key=claim.meta.uid,
    )


def _unavailable(pod: PodFacts, why: str) -> list[tuple[PodFacts, Notice]]:
    return [(pod, Notice("ReplicaUnavailable", f"{why}; the pod waits", warning=True, key=why))] if why else []


def servable(claim: ClaimFacts, pod: PodFacts, layout: Layout | None, relations: Relations) -> bool:
    """Whether the pod waits for us alone: it would have a replica as soon as there is one for it. `layout` as in
    `assign`."""
    if not pod.gated or pod.foreign_gates or pod.finished or pod.meta.deleting is not None:
        return False
    if pod.replica is not None and pod.replica >= most_replicas(claim.claim.spec):
        return False
    return (_unknown_requests(claim, pod) or _obstacle(claim, pod, layout, relations)) is None


def _occupied(claim: ClaimFacts, pod: PodFacts, placed: Mapping[int, Member], wanted: Indexes) -> Notice | None:
    """Why the replica that a pod names is not for it now; None where the claim's own status says it."""
    index, name = pod.replica, claim.meta.name
    most = most_replicas(claim.claim.spec)
    if index is not None and index not in wanted and index < most:
        return _all_serve(claim, wanted)
    if index is None or index not in wanted:
        message = f"the pod asks for replica {index}, but DeviceClaim {name} has {most}, numbered from 0"
        return Notice("NoSuchReplica", f"{message}; raise its {_field(claim)}", warning=True, key=str(most))
    holder = placed.get(index)
    user = next((use.pod for use in holder.uses if use.live), None) if holder is not None else None
    if user is None:
        return None
    return Notice(
        "ReplicaInUse", f"replica {index} of DeviceClaim {name} serves pod {user.meta.name}; this pod is next"
    )


def _field(claim: ClaimFacts) -> str:
    """The field that says how many replicas there are."""
    return "scaling.maxReplicas" if follows_pods(claim) else "replicas"


def _all_serve(claim: ClaimFacts, wanted: Indexes) -> Notice:
    limit = f"{len(wanted)} in all" + (", its scaling.maxReplicas" if follows_pods(claim) else "")
    message = f"every replica of DeviceClaim {claim.meta.name} serves another pod ({limit})"
    return Notice("ReplicaInUse", f"{message}; this pod waits until one is free")


def _released(claim: ClaimFacts, reason: str) -> Notice:
    message = f"DeviceClaim {claim.meta.name} is released ({reason}) and holds no devices"
    return Notice("ClaimReleased", f"{message}; a change of its spec starts it anew", warning=True, key=claim.meta.uid)


def _only_on(pod: PodFacts) -> frozenset[str]:
    """The nodes that the pod may run on at all, where it names them, as a DaemonSet does; empty: no such limit."""
    required = (pod.affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    terms = required.get("nodeSelectorTerms") or ()
    return pinned_to(pod) if terms and all(term.get("matchFields") for term in terms) else frozenset()


def _elsewhere(claim: ClaimFacts, nodes: Collection[str], places: Collection[str]) -> Notice:
    message = (
        f"the pod may run on {', '.join(sorted(nodes))} alone, and the free replicas of DeviceClaim {claim.meta.name} "
        f"are on {', '.join(sorted(set(places)))}; it waits for one there"
    )
    return Notice("ReplicaElsewhere", message, warning=True)


def _obstacle(claim: ClaimFacts, pod: PodFacts, layout: Layout | None, relations: Relations) -> Notice | None:
    if layout is None:
        return environment.obstacle(claim, pod, relations)
    return resourceclaims.obstacle(claim, pod, layout, relations)


def assign(
    claim: ClaimFacts,
    members: Sequence[Member],
    users: Collection[str],
    blocked: Mapping[int, str],
    layout: Layout | None,
    relations: Relations,
    wanted: Indexes,
) -> Assignment:
    """Pairs waiting pods with free replicas. A pod among `users` (by UID) has, or loses, something already. `layout` is
    None where devices are handed over as environment.

    `blocked` says for a replica why no pod may start on it now, "" where that is not worth telling. Pods that are bound
    are looked at too: their ResourceClaims may need to be made whole. A pod that cannot be served as it was admitted
    keeps no replica from others. Of pods that follow no index, none gets
    one that is there for another pod by its index.
    """
    if claim.meta.deleting is not None:
        return Assignment((), ())
    pairs: list[tuple[Member, PodFacts]] = []
    notices: list[tuple[PodFacts, Notice]] = []
    for member in members:
        pod = member.serves
        if pod is None or (pod.gated and pod.meta.deleting is not None):
            continue
        if pod.gated and member.index in blocked:
            notices += _unavailable(pod, blocked[member.index])
        else:
            pairs.append((member, pod))
    released = released_reason(claim)
    placed = {member.index: member for member in members}
    free = {index: member for index, member in placed.items() if member.sound and not member.uses}
    unplaced = sum(index not in placed for index in wanted)
    ending = any(not use.live for member in members for use in member.uses)
    waiting = [
        pod
        for pod in relations.pods.get((claim.meta.namespace, claim.meta.name), ())
        if pod.gated and not pod.finished and pod.meta.deleting is None and pod.meta.uid not in users
    ]
    # Where pods decide which replicas there are, each of these is there for the pod that names it.
    named = {pod.replica for pod in waiting if follows_pods(claim) and servable(claim, pod, layout, relations)}
    for pod in waiting:
        notice = _unknown_requests(claim, pod) or _obstacle(claim, pod, layout, relations)
        nodes = _only_on(pod)
        fitting = [
            index for index in sorted(free) if pod.replica == index or (pod.replica is None and index not in named)
        ]
        choices = [index for index in fitting if not nodes or free[index].node in nodes]
        index = next((index for index in choices if index not in blocked), None)
        if notice is not None:
            notices.append((pod, notice))
        elif index is not None:
            pairs.append((free.pop(index), pod))
        elif choices:
            notices += _unavailable(pod, blocked[choices[0]])
        elif fitting:
            notices.append((pod, _elsewhere(claim, nodes, [free[index].node for index in fitting])))
        elif claim.claim.spec.suspend or released == ReleasedReason.IDLE:
            continue  # the status of a suspended claim says so too, and one that was idle comes back
        elif released:
            notices.append((pod, _released(claim, released)))
        elif pod.replica is not None:
            notice = _occupied(claim, pod, placed, wanted)
            notices += [(pod, notice)] if notice is not None else []
        elif unplaced > 0:
            unplaced -= 1  # the claim's own status says what this pod waits for
        elif not wanted:
            message = f"DeviceClaim {claim.meta.name} has no replicas; raise its {_field(claim)}"
            notices.append((pod, Notice("NoSuchReplica", message, warning=True, key="0")))
        elif not ending:
            notices.append((pod, _all_serve(claim, wanted)))
    return Assignment(tuple(pairs), tuple(notices))


def could_start(claim: ClaimFacts, member: Member, members: Sequence[Member], pod: PodFacts, now: float) -> float:
    """Since when nothing but us has kept the pod at its gate (seconds since the epoch): it was there, its replica was
    ready and nobody else's, and of a gang every member had its place. As statuses are written to the second, this may
    be up to one second too early."""
    moments = [moment(member.entry.get("readyAt"))]
    if claim.claim.spec.gang is not None:
        moments += [moment(each.entry.get("allocatedAt")) for each in members if each.kept]
    if member.entry.get("state") == ReplicaState.READY:
        moments.append(moment(member.entry.get("idleSince")))
    else:
        # The pod before it has only just left; where this one has its ResourceClaims already, it left earlier.
        moments.append(moment(claim.status.get("lastUsedAt")) if member.uses else now)
    known = [each for each in (*moments, pod.meta.created) if each is not None]
    return min(now, max(known, default=now))


def _pinned_terms(terms: Sequence[Mapping[str, Any]], node: str) -> list[dict[str, Any]]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    if not terms:
        return [{"matchFields": [field]}]
    # Terms are alternatives, so each is narrowed. An empty one matches no node, and would match this one if it were
    # touched.
    return [
        {**term, "matchFields": [*(term.get("matchFields") or ()), field]}
        if term.get("matchExpressions") or term.get("matchFields")
        else dict(term)
        for term in terms
    ]


def pod_patch(pod: PodFacts, node: str, networks: str | None = None) -> Step:
    """Pins the pod to the node and opens our gate, in one request; gates and affinity of others stay as they are.
    `networks` is the annotation of its networks where that changes."""
    required = (pod.affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    terms = required.get("nodeSelectorTerms") or ()
    spec: dict[str, Any] = {"schedulingGates": [{"name": gate} for gate in pod.gates if gate != GATE]}
    if node not in pinned_to(pod):
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": _pinned_terms(terms, node)}}}
    # Lists are replaced as a whole. Where there is nothing of others in them, nothing can have come since: gates are
    # only ever taken off a pod, and affinity that was added would have to be kept or the API server refuses.
    body: dict[str, Any] = {"spec": spec}
    attached = networks is not None and networks != pod.networks
    if attached:
        # Seen with the open gate or not at all. What others put into it in the meantime must not be lost.
        body["metadata"] = {"annotations": {NETWORKS_ANNOTATION: networks}}
    exact = bool(pod.foreign_gates) or bool(terms) or attached
    version = pod.meta.version if exact else 0
    return Step(Verb.PATCH, Kind.POD, pod.meta.namespace, pod.meta.name, pod.meta.uid, version, body)
