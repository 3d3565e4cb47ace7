"""Every name that Adjoin uses in the cluster: group, keys, gates, finalizers, and the names of the objects it makes.

In come names that users chose, out come names that Kubernetes accepts as long as admission's limits hold
(`CLAIM_NAME_MAX`). Nothing here is looked up, and no meaning is ever read back from a name: identity is by UID.
"""

from enum import StrEnum
from typing import Final

GROUP: Final = "adjoin.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "adjoin.dev/v1alpha1"

FINALIZER: Final = f"{GROUP}/cleanup"
GATE: Final = f"{GROUP}/claim"

LABEL_CLAIM: Final = f"{GROUP}/claim"
LABEL_POD: Final = f"{GROUP}/pod"
"""On our ResourceClaims and ConfigMaps: UID of the pod that they were made for."""
ANNOTATION_BINDING: Final = f"{GROUP}/binding"
ANNOTATION_CONTAINERS: Final = f"{GROUP}/containers"
ANNOTATION_REPLICA: Final = f"{GROUP}/replica"
ANNOTATION_DEFAULT_POOL: Final = f"{GROUP}/default-pool"
ANNOTATION_SCHEMA: Final = f"{GROUP}/schema"
ANNOTATION_RELEASE: Final = f"{GROUP}/release-quarantine"
"""On DevicePools: devices that somebody vouches for, with the reason; Adjoin takes it off when it has acted."""
LABEL_HOOK: Final = f"{GROUP}/hook"
"""On hook Jobs, their pods and ResourceClaims, in the operator's namespace: `init` or `cleanup`. Webhooks, ours and
others', tell by it that these need neither claim nor quota."""
ANNOTATION_RUN: Final = f"{GROUP}/run"
"""On hook Jobs and their ResourceClaims: what the run is for, as JSON."""
HOOKS_ACCOUNT: Final = "adjoin-hooks"
"""ServiceAccount of hooks whose template names none; it may do nothing."""

NETWORKS_ANNOTATION: Final = "k8s.v1.cni.cncf.io/networks"
"""On pods: the networks that Multus attaches them to, by the convention of the Network Plumbing Working Group."""
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
"""Tells NVIDIA's container runtime which cards a container gets."""

MEMORY_LIMIT: Final = "ADJOIN_MEMORY_LIMIT_BYTES"
"""Tells a container how much memory it may use of each of its cards."""

DEVICE_CLASS: Final = GROUP
"""Class of our own ResourceClaims; its selector is `false`, so kube-scheduler never allocates them."""
DRIVER: Final = GROUP
"""Driver of devices that no ResourceSlice publishes (static ones and those counted from a node resource)."""
ATTRIBUTE_DOMAIN: Final = GROUP
"""Domain of static attribute and capacity names that carry none."""

CLAIM_NAME_MAX: Final = 40
"""`adjoin-` + claim + `-` + token + `-NN` then stays within the 63 characters of a label value."""
OBJECT_NAME_MAX: Final = 63
"""Names of pools and shares become label values."""
TOKEN_LENGTH: Final = 10
TOKEN_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
DEVICES_PER_RESOURCE_CLAIM: Final = 32
"""Kubernetes' limit of results in one ResourceClaim."""
DEVICES_PER_CLAIM: Final = 4096
"""Most devices (replicas times devices) of one DeviceClaim: its status must fit into one etcd object."""


class Kind(StrEnum):
    """The three kinds of the group."""

    DEVICE_POOL = "DevicePool"
    DEVICE_SHARE = "DeviceShare"
    DEVICE_CLAIM = "DeviceClaim"


PLURALS: Final[dict[Kind, str]] = {
    Kind.DEVICE_POOL: "devicepools",
    Kind.DEVICE_SHARE: "deviceshares",
    Kind.DEVICE_CLAIM: "deviceclaims",
}


def resource_claim_name(claim: str, token: str, part: int = 0) -> str:
    """Name of the ResourceClaim that carries part `part` of a pod's devices: the first without a number, then `-1`, "
    "`-2`."""
    base = f"adjoin-{claim}-{token}"
    return base if part == 0 else f"{base}-{part}"


def hook_job_name(stage: str, digest: str) -> str:
    """Name of a hook's Job, of its first ResourceClaim and of nothing else; `digest` holds no dash."""
    return f"adjoin-{stage}-{digest}"


def hook_claim_name(job: str, part: int) -> str:
    """Name of a ResourceClaim of a hook's Job, which has one for so many devices as one may hold."""
    return job if part == 0 else f"{job}-{part}"


def job_of_hook_claim(name: str) -> str:
    """Name of the Job that the ResourceClaim of that name is for."""
    return "-".join(name.split("-")[:3])


def config_map_name(claim: str, token: str) -> str:
    """Name of the ConfigMap that carries a pod's devices as environment."""
    return f"adjoin-{claim}-{token}"
