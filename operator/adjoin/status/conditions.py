"""Conditions and patches: what changes between the status that is stored and the one that should be.

In come two statuses, out goes the merge patch that turns one into the other, or nothing. A condition's
lastTransitionTime moves only when its status does, so that nothing is written because time has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adjoin.facts import Raw
from adjoin.lifecycle import rfc3339

_MESSAGE_LIMIT = 32768


@dataclass(frozen=True, slots=True)
class Condition:
    """One observed fact about an object, without the time of its last change."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def conditions(found: Iterable[Condition], stored: Raw, generation: int, now: float) -> list[dict[str, Any]]:
    """The conditions as they stand in a status, in the order given."""
    before = {each.get("type"): each for each in stored.get("conditions") or ()}
    written = []
    for condition in found:
        status = "True" if condition.holds else "False"
        old = before.get(condition.type) or {}
        kept = old.get("lastTransitionTime") if old.get("status") == status else None
        written.append(
            {
                "type": condition.type,
                "status": status,
                "observedGeneration": generation,
                "lastTransitionTime": kept or rfc3339(now),
                "reason": condition.reason,
                "message": condition.message[:_MESSAGE_LIMIT],
            }
        )
    return written


def merge_patch(old: Raw, new: Raw) -> dict[str, Any]:
    """The merge patch (RFC 7386) from `old` to `new`; empty when they are equal. Lists are replaced as a whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def compact(status: Raw) -> dict[str, Any]:
    """Without null and empty fields, which are not stored."""
    return {key: value for key, value in status.items() if value is not None and value not in ("", [], {}, ())}
