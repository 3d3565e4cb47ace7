"""Reads the API server's audit log: who asked for what, when, with which answer.

Comes in: the folder of the log (it is rotated, so there may be several files) and what to look for. Goes out: `Request`
values in the order of the log. One value is one request that was answered; a watch appears when it ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})

# Metadata of every request, once, when it has been answered.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request; `received` is when it came in, `code` the HTTP status of the answer."""

    received: datetime
    user: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    user_agent: str
    uri: str

    @property
    def is_write(self) -> bool:
        """Whether it could change an object (refused ones count too)."""
        return self.verb in WRITE_VERBS


def read_requests(folder: Path) -> Iterator[Request]:
    """All requests in the log. A line that is being written just now is left for the next time."""
    # Rotated files carry their time in the name and the current one does not: by age, not by name.
    for path in sorted(folder.glob("audit*.log"), key=lambda path: path.stat().st_mtime_ns):
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield _parse(json.loads(line))


def _parse(event: dict[str, object]) -> Request:
    ref = _mapping(event.get("objectRef"))
    status = _mapping(event.get("responseStatus"))
    code = status.get("code", 0)
    return Request(
        received=datetime.fromisoformat(str(event["requestReceivedTimestamp"])),
        user=str(_mapping(event.get("user")).get("username", "")),
        verb=str(event["verb"]),
        group=str(ref.get("apiGroup", "")),
        resource=str(ref.get("resource", "")),
        subresource=str(ref.get("subresource", "")),
        namespace=str(ref.get("namespace", "")),
        name=str(ref.get("name", "")),
        code=code if isinstance(code, int) else 0,
        user_agent=str(event.get("userAgent", "")),
        uri=str(event.get("requestURI", "")),
    )


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
