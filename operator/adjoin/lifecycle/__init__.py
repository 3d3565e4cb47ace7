"""What each claim holds, who uses it, and what has to go: facts and `now` in, the next state of every replica and the
removals out.

Whether a replica serves a pod is recorded in the ResourceClaims that were made for that pod (owner, replica index, pod
UID), and in nothing else, so a fresh process reads the same. A replica is held by its claim's status until it leaves
it, whatever happens to those ResourceClaims. Nothing here chooses devices, serves a pod or writes a status.
"""

from adjoin.lifecycle.relations import (
    BUILTIN_FINALIZER,
    LABEL_REPLICA,
    Relations,
    precedence,
    relate,
    rfc3339,
    seniority,
)
from adjoin.lifecycle.removal import add_finalizer, drop_finalizer, orphans, unreserve
from adjoin.lifecycle.replicas import Member, Review, contested, device_entry, enter, evicting, review, runs_out_at
from adjoin.lifecycle.uses import Use, entries, pinned_to, uses_of, wanted_replicas

__all__ = [
    "BUILTIN_FINALIZER",
    "LABEL_REPLICA",
    "Member",
    "Relations",
    "Review",
    "Use",
    "add_finalizer",
    "contested",
    "device_entry",
    "drop_finalizer",
    "enter",
    "entries",
    "evicting",
    "orphans",
    "pinned_to",
    "precedence",
    "relate",
    "review",
    "rfc3339",
    "runs_out_at",
    "seniority",
    "unreserve",
    "uses_of",
    "wanted_replicas",
]
