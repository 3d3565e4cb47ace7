"""When a claim gives everything back although nobody asked for that: its time is over, nobody uses it, its pods have
finished.

In come a claim as reviewed, its pods and the time; out goes the reason, or when to look again. All of it follows from
what the API server holds: since when replicas are idle and when a pod last gave one back stand in the status, how pods
ended in the pods themselves. A pod of which nobody knows how it ended may come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from adjoin.api.claim import Release
from adjoin.api.claim_status import ReleasedReason
from adjoin.api.quantity import milliseconds
from adjoin.facts import ClaimFacts, PodFacts, moment
from adjoin.lifecycle.replicas import Review, runs_out_at
from adjoin.lifecycle.uses import entries, given_out
from adjoin.lifecycle.wanted import asks, dormant

LONGEST_BACKOFF_SECONDS: Final = 360.0
"""Kubernetes' Job controller waits at most so long before it makes another pod in the place of one that failed
(MaxJobBackOff is 6 minutes; the first pause is 10 s, and each is twice the one before)."""
NEXT_POD_SECONDS: Final = 30.0
"""A Job with more completions than pods at a time makes the next ones only after others have succeeded: about a second
later, and never so late as this while its controller works."""


def release_due(
    claim: ClaimFacts, found: Review, pods: Sequence[PodFacts], *, awaited: bool, now: float
) -> tuple[ReleasedReason | None, float | None]:
    """Why the claim is to be released now, and else when that may be the case although nothing changes.

    Args:
        claim: The claim.
        found: Its replicas and their users.
        pods: Pods that name it.
        awaited: A pod that could have a replica waits for one.
        now: Seconds since the epoch.
    """
    if dormant(claim):
        return None, None
    moments = {
        ReleasedReason.MAX_RUNTIME: runs_out_at(claim),
        ReleasedReason.PODS_FINISHED: _finished_at(claim, found, pods),
        ReleasedReason.IDLE: None if awaited else _idle_at(claim, found),
    }
    for reason, due in moments.items():
        if due is not None and due <= now:
            return reason, None
    return None, min((due for due in moments.values() if due is not None), default=None)


def _idle_at(claim: ClaimFacts, found: Review) -> float | None:
    """When nobody has used any replica for `idleTimeout`; None while somebody does, or nothing is ready yet."""
    timeout = claim.claim.spec.idle_timeout
    if timeout is None or not found.unused or not found.members:
        return None
    since = [moment(member.entry.get("idleSince")) for member in found.members]
    known = [each for each in since if each is not None]
    return max(known) + milliseconds(timeout) / 1000 if len(known) == len(since) else None


def _finished_at(claim: ClaimFacts, found: Review, pods: Sequence[PodFacts]) -> float | None:
    """When no further pod has to be expected, all having ended; None while one lives, or before one had a replica."""
    if claim.claim.spec.release is not Release.WHEN_PODS_FINISH:
        return None
    last = moment(claim.status.get("lastUsedAt"))
    if last is None or not found.unused or any(asks(pod) for pod in pods):
        return None
    if any(given_out(entry) for entry in entries(claim)):
        # That the last one has given it back, and when, is about to be written.
        return None
    return last + _pause(claim, pods)


def _pause(claim: ClaimFacts, pods: Sequence[PodFacts]) -> float:
    """How long after the last pod's end another one may still come in its place."""
    ended = [pod for pod in pods if pod.finished and (pod.meta.created or 0.0) >= (claim.meta.created or 0.0)]
    if not ended:
        # They are gone, and how they ended with them.
        return LONGEST_BACKOFF_SECONDS
    made = [pod for pod in ended if pod.controlled]
    if any(pod.phase == "Failed" and not _replaced(pod, made) for pod in made):
        return LONGEST_BACKOFF_SECONDS
    return NEXT_POD_SECONDS if made else 0.0


def _replaced(pod: PodFacts, others: Sequence[PodFacts]) -> bool:
    """Whether its controller has made another pod since it failed. A Job makes all that it wants at once, as soon as
    its pause is over."""
    return any(
        (other.controller, other.replica) == (pod.controller, pod.replica)
        and other.meta.uid != pod.meta.uid
        and pod.ended is not None
        and (other.meta.created or 0.0) >= pod.ended
        for other in others
    )
