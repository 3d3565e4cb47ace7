"""The writes we may want, as values.

A decision ends in a tuple of intents; the writer is the only module that carries them out. An intent says which
object it means by UID and
which version it was decided on, so that one that comes too late fails instead of doing harm. Steps of one intent run
in order and stop at
the first that fails; different intents run side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from adjoin.api.names import GROUP, VERSION


class Resource(NamedTuple):
    """How the API server names a kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    fields: str = ""
    """Field selector by which the API server filters its objects, also in watches."""

    @property
    def api_version(self) -> str:
        """`group/version`, or the version of the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Kind(Enum):
    """Every kind that the operator reads or writes."""

    DEVICE_CLAIM = Resource(GROUP, VERSION, "deviceclaims", "DeviceClaim", True)
    DEVICE_POOL = Resource(GROUP, VERSION, "devicepools", "DevicePool", False)
    DEVICE_SHARE = Resource(GROUP, VERSION, "deviceshares", "DeviceShare", False)
    POD = Resource("", "v1", "pods", "Pod", True)
    GUEST = Resource("", "v1", "pods", "BoundPod", True, "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
    """Pods that use a node, whether or not they have anything to do with Adjoin."""
    JOB = Resource("batch", "v1", "jobs", "Job", True)
    HOOK_POD = Resource("", "v1", "pods", "HookPod", True)
    """Pods of hook Jobs."""
    NAMESPACE = Resource("", "v1", "namespaces", "Namespace", False)
    PRIORITY_CLASS = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
    CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap", True)
    GRANT = Resource("", "v1", "configmaps", "PodConfigMap", True)
    """ConfigMaps that hand devices to pods."""
    SECRET = Resource("", "v1", "secrets", "Secret", True)
    NODE = Resource("", "v1", "nodes", "Node", False)
    RESOURCE_CLAIM = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True)
    RESOURCE_SLICE = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)
    TAINT_RULE = Resource("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", False)
    EVENT = Resource("events.k8s.io", "v1", "events", "Event", True)
    LEASE = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
    MUTATING_WEBHOOK = Resource(
        "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
    )
    VALIDATING_WEBHOOK = Resource(
        "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
    )


class Verb(StrEnum):
    """What to do with the object."""

    CREATE = "create"
    """POST. An object of that name that is already there is success only for Events; for others it is looked at
    again."""
    PATCH = "patch"
    """Merge patch of the object."""
    PATCH_STATUS = "patch status"
    """Merge patch of the status subresource."""
    DELETE = "delete"
    """DELETE with preconditions on UID (and version when given). An object that is gone already is success."""
    EVICT = "evict"
    """POST to pods/eviction with the UID as precondition, so that PodDisruptionBudgets count."""


FROM_PREVIOUS = -1
"""As `Step.version`: take UID and resourceVersion from the answer to the step before (the object that it created or
changed)."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One request.

    Attributes:
        verb: What.
        kind: On what kind of object.
        namespace: "" for cluster-scoped kinds.
        name: Its name.
        uid: UID that the object must have; "" for CREATE and with `version=FROM_PREVIOUS`.
        version: resourceVersion that it must have (as a number), 0 for any, or FROM_PREVIOUS.
        body: The object to create or the merge patch without metadata.uid/resourceVersion (the writer adds those
        preconditions).
    """

    verb: Verb
    kind: Kind
    namespace: str
    name: str
    uid: str = ""
    version: int = 0
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Intent:
    """A short sequence of requests that belong together.

    Attributes:
        subject: UID of the object that this is about (a DeviceClaim, a DevicePool, a pod); while an intent on a
        subject is under way, no
            second one on it is handed over.
        why: One phrase for logs (`allocate`, `deliver`, `release`).
        steps: In order.
        assume: For a subject that is a DeviceClaim: the status that it will have when the steps succeed, so that the
        next decision
            already counts its devices; None leaves what the cache holds.
        order: Intents are started in this order (smaller first) when more are waiting than may run at once.
        words: It only tells what is so anyway (a status that nobody waits for, an Event): while others are under way,
        few of these are.
        corrections: What it puts right that should not have been wrong, as kind and action, for the metrics.
        opens: By UID of the pods whose gates it opens since when nothing but us kept them (seconds since the epoch),
        for the metrics.
    """

    subject: str
    why: str
    steps: tuple[Step, ...]
    assume: Mapping[str, Any] | None = None
    order: int = 0
    words: bool = False
    corrections: tuple[tuple[str, str], ...] = ()
    opens: Mapping[str, float] = field(default_factory=dict)
