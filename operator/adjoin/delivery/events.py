"""Events, as requests for the writer.

In come the object, a reason and a sentence; out goes a request whose name depends only on what is said about which
object, so that saying it again is recognised, by the writer that remembers and by the API server that has it already.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from adjoin.facts import Meta
from adjoin.intents import Kind, Step, Verb
from adjoin.lifecycle import rfc3339

REPORTER = "adjoin.dev/operator"
NORMAL, WARNING = "Normal", "Warning"
_NOTE_LIMIT = 1024
_NAME_LIMIT = 253
_DIGEST_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell the owner of an object, once.

    Attributes:
        reason: One CamelCase word.
        message: A sentence for people.
        warning: Something is wrong, rather than merely so.
        key: What tells this notice from others of the same reason on the same object; the message may change without a
            new Event.
    """

    reason: str
    message: str
    warning: bool = False
    key: str = ""


def event_step(kind: Kind, meta: Meta, notice: Notice, action: str, now: float) -> Step:
    """The request that creates the Event. Events on cluster-scoped objects go into namespace default, as Kubernetes
    expects."""
    digest = blake2b(
        "\0".join((meta.uid, notice.reason, notice.key)).encode(), digest_size=_DIGEST_CHARACTERS // 2
    ).hexdigest()
    name = f"{meta.name[: _NAME_LIMIT - _DIGEST_CHARACTERS - 1]}.{digest}"
    namespace = meta.namespace or "default"
    note = notice.message.encode()[:_NOTE_LIMIT].decode(errors="ignore")
    return Step(
        Verb.CREATE,
        Kind.EVENT,
        namespace,
        name,
        body={
            "apiVersion": Kind.EVENT.value.api_version,
            "kind": Kind.EVENT.value.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": rfc3339(now).replace("Z", ".000000Z"),
            "reportingController": REPORTER,
            "reportingInstance": "adjoin",
            "action": action,
            "reason": notice.reason,
            "regarding": {
                "apiVersion": kind.value.api_version,
                "kind": kind.value.kind,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
            "note": note,
            "type": WARNING if notice.warning else NORMAL,
        },
    )
