"""Hook Jobs and their pods, reduced to what decisions depend on.

In come raw objects of the operator's own namespace that carry the hook label; out go frozen facts. What a Job is for
stands in its annotation, written by us when it was made; one whose annotation cannot be read is nobody's run, and is
never believed. Nothing here decides anything.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from adjoin.api.names import ANNOTATION_RUN, FINALIZER, LABEL_HOOK
from adjoin.facts import Meta, Raw, read_meta, timestamp

MESSAGE_LIMIT: Final = 4096
"""Kubernetes' own limit of a termination message, in bytes."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """What a Job was made for.

    Attributes:
        subject: UID of the DeviceClaim, or of the DevicePool for devices that no claim holds.
        index: Replica of the claim, or -1.
        device: For a device of no claim: its key (hardware id, else `driver/pool/device`); else "".
        stage: `init` or `cleanup`.
        hook: Name of the hook.
        attempt: From 1.
    """

    subject: str
    index: int
    device: str
    stage: str
    hook: str
    attempt: int


@dataclass(frozen=True, slots=True, eq=False)
class JobFacts:
    """A hook's Job.

    Attributes:
        run: What it was made for, None where its annotation does not say.
        owner: UID of the DevicePool in its ownerReferences, or "".
        succeeded: True once it is Complete, False once it is Failed, else None.
        ended: When that was (seconds since the epoch), or None.
        reason: Kubernetes' word for a failure, such as DeadlineExceeded.
        finalizers: Its finalizers.
    """

    meta: Meta
    run: RunKey | None
    owner: str
    succeeded: bool | None
    ended: float | None
    reason: str
    finalizers: tuple[str, ...]

    @property
    def held(self) -> bool:
        """Our finalizer keeps it until its outcome stands in a status."""
        return FINALIZER in self.finalizers


@dataclass(frozen=True, slots=True, eq=False)
class HookPodFacts:
    """A pod of a hook's Job.

    Attributes:
        job: UID of its Job, or "".
        node: Node it is bound to, or "".
        phase: status.phase.
        message: Termination message of the container that failed first, else of the first that has one.
    """

    meta: Meta
    job: str
    node: str
    phase: str
    message: str

    @property
    def finished(self) -> bool:
        """It has ended and will not run again."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Rejection:
    """What the API server said to a hook's Job.

    Attributes:
        message: Its words.
        final: It refuses the Job as it is, so that asking again cannot help.
    """

    message: str
    final: bool


def read_job(obj: Raw) -> JobFacts | None:
    """Facts of a Job, or None when it is no hook's."""
    meta = obj.get("metadata") or {}
    if LABEL_HOOK not in (meta.get("labels") or {}):
        return None
    owner = next((str(each.get("uid") or "") for each in meta.get("ownerReferences") or ()), "")
    succeeded: bool | None = None
    ended, reason = None, ""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            succeeded = condition["type"] == "Complete"
            ended = timestamp(condition.get("lastTransitionTime"))
            reason = str(condition.get("reason") or "")
    return JobFacts(
        meta=read_meta(obj),
        run=read_run((meta.get("annotations") or {}).get(ANNOTATION_RUN)),
        owner=owner,
        succeeded=succeeded,
        ended=ended,
        reason=reason,
        finalizers=tuple(meta.get("finalizers") or ()),
    )


def read_run(text: str | None) -> RunKey | None:
    """What the annotation says, None where it says nothing that we wrote."""
    try:
        value: Any = json.loads(text or "")
        return RunKey(
            subject=str(value["subject"]),
            index=int(value["index"]),
            device=str(value["device"]),
            stage=str(value["stage"]),
            hook=str(value["hook"]),
            attempt=int(value["attempt"]),
        )
    except (ValueError, TypeError, KeyError):
        return None


def run_text(run: RunKey) -> str:
    """The annotation for a run; `read_run` reads it back."""
    return json.dumps({name: getattr(run, name) for name in RunKey.__dataclass_fields__}, sort_keys=True)


def read_hook_pod(obj: Raw) -> HookPodFacts | None:
    """Facts of a hook's pod, or None when it is no hook's."""
    meta, status = obj.get("metadata") or {}, obj.get("status") or {}
    if LABEL_HOOK not in (meta.get("labels") or {}):
        return None
    job = next(
        (str(each.get("uid") or "") for each in meta.get("ownerReferences") or () if each.get("kind") == "Job"), ""
    )
    ends: list[tuple[bool, str]] = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            ended = (container.get("state") or {}).get("terminated")
            if ended is not None:
                ends.append((ended.get("exitCode") == 0, str(ended.get("message") or "")))
    failed = [message for well, message in ends if not well]
    said = [message for _, message in ends if message]
    message = failed[0] if failed and failed[0] else said[0] if said else str(status.get("message") or "")
    return HookPodFacts(
        meta=read_meta(obj),
        job=job,
        node=(obj.get("spec") or {}).get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        message=message.encode()[:MESSAGE_LIMIT].decode(errors="ignore"),
    )
