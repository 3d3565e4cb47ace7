"""Waiting for a state, not for a time: poll until it holds, and say what was seen last when it never does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Long, since it only ends a wait that would never end; a machine may be slow, a state that never comes is the failure.
SECONDS = 120.0


def eventually(look: Callable[[], T], holds: Callable[[T], object], *, what: str, seconds: float = SECONDS) -> T:
    """Looks until `holds`; returns what was seen then. AssertionError with the last sight when it does not come."""
    deadline = time.monotonic() + seconds
    pause = 0.02
    while True:
        seen = look()
        if holds(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not after {seconds:.0f} s; last seen: {seen!r}"[:8000])
        time.sleep(pause)
        pause = min(0.25, pause * 1.5)


def steadily(look: Callable[[], T], holds: Callable[[T], object], *, what: str, seconds: float) -> T:
    """Looks for as long as said; AssertionError as soon as it does not hold."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if not holds(seen):
            raise AssertionError(f"{what}: no longer; seen: {seen!r}"[:8000])
        if time.monotonic() > deadline:
            return seen
        time.sleep(0.1)
