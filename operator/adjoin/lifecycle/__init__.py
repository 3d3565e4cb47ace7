"""What each claim holds, who uses it, and what has to go: facts and `now` in, the next state of every replica and the
removals out.

Whether a replica serves a pod is recorded in the ResourceClaims that were made for that pod (owner, replica index, pod
UID), and in nothing else, so a fresh process reads the same. A replica is held by its claim's status until it leaves
it, whatever happens to those ResourceClaims. Nothing here chooses devices, serves a pod or writes a status.
"""

from adjoin.lifecycle.absence import given_up
from adjoin.lifecycle.reclaim import Reclaimed, may_lack, reclaim
from adjoin.lifecycle.relations import (
    BUILTIN_FINALIZER,
    LABEL_REPLICA,
    Relations,
    precedence,
    relate,
    seniority,
)
from adjoin.lifecycle.release import release_due
from adjoin.lifecycle.removal import add_finalizer, drop_finalizer, expel, orphans, unreserve
from adjoin.lifecycle.replicas import Member, Review, contested, device_entry, enter, evicting, review, share_entry
from adjoin.lifecycle.reports import Report, difference, part_keys, refusal
from adjoin.lifecycle.runs import (
    Errand,
    Progress,
    Run,
    Verdict,
    Workshop,
    advance,
    blamed,
    cut_short,
    deadline_seconds,
    read_runs,
    run_entry,
    sentence,
)
from adjoin.lifecycle.times import rfc3339
from adjoin.lifecycle.uses import Use, entries, given_out, node_gone, pinned_to, uses_of
from adjoin.lifecycle.wanted import Indexes, asks, followed_pods, follows_pods, wanted_replicas

__all__ = [
    "BUILTIN_FINALIZER",
    "LABEL_REPLICA",
    "Errand",
    "Indexes",
    "Member",
    "Progress",
    "Reclaimed",
    "Relations",
    "Report",
    "Review",
    "Run",
    "Use",
    "Verdict",
    "Workshop",
    "add_finalizer",
    "advance",
    "asks",
    "blamed",
    "contested",
    "cut_short",
    "deadline_seconds",
    "device_entry",
    "difference",
    "drop_finalizer",
    "enter",
    "entries",
    "evicting",
    "expel",
    "followed_pods",
    "follows_pods",
    "given_out",
    "given_up",
    "may_lack",
    "node_gone",
    "orphans",
    "part_keys",
    "pinned_to",
    "precedence",
    "read_runs",
    "reclaim",
    "refusal",
    "relate",
    "release_due",
    "review",
    "rfc3339",
    "run_entry",
    "seniority",
    "sentence",
    "share_entry",
    "unreserve",
    "uses_of",
    "wanted_replicas",
]
