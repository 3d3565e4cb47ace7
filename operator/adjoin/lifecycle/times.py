"""Times as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def rfc3339(moment: float) -> str:
    """`moment` (seconds since the epoch) as Kubernetes writes times, to the second."""
    return _spelled(int(moment))


@lru_cache(maxsize=64)
def _spelled(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
