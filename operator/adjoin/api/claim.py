"""DeviceClaim: which devices a workload wants, how near to each other, and how often.

Holds the spec as users write it. Where a field has no default of its own, `defaults` says what its absence means.
Immutability is spelled out as rules over `oldSelf`; what needs other objects (the pool, the share) is not checked here.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from adjoin.api import claim_rules as checks
from adjoin.api.claim_status import DeviceClaimStatus
from adjoin.api.common import ObjectMeta, PoolRef, Selectors
from adjoin.api.marks import ATOMIC, keyed, model_config, rules
from adjoin.api.names import API_VERSION, DEVICES_PER_CLAIM
from adjoin.api.scalars import (
    ATTRIBUTE,
    Bool,
    Bytes,
    Compute,
    DeviceName,
    Int,
    Label,
    PositiveDuration,
    Quantity,
    Timestamp,
)
from adjoin_allocator.terms import Isolation, Policy, Profile, Scope

Count = Annotated[Int, Field(ge=1, le=DEVICES_PER_CLAIM)]
Replicas = Annotated[Int, Field(ge=0, le=DEVICES_PER_CLAIM)]


class AffinityOver(StrEnum):
    REPLICA = "Replica"
    GANG = "Gang"


class ScalingMode(StrEnum):
    FIXED = "Fixed"
    FOLLOW_PODS = "FollowPods"


class Release(StrEnum):
    WHEN_DELETED = "WhenDeleted"
    WHEN_PODS_FINISH = "WhenPodsFinish"


class RequestShare(BaseModel):
    """Asks for a part of each device instead of the whole."""

    model_config = model_config(rules(*checks.SHARE))

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="Name of the DeviceShare to take from."
    )
    slots: Annotated[Int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Slots of one device, for a share of mode TimeSliced. Absent: 1."
    )
    memory: Bytes | None = Field(
        default=None,
        description="Device memory, such as 8Gi, for modes Fractional and MPS. Absent: not limited (then `compute` is "
        "needed).",
    )
    compute: Compute | None = Field(
        default=None,
        description="Compute in cards, such as 250m, for modes Fractional and MPS. Absent: not limited (then `memory` "
        "is needed).",
    )
    profile: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Partition profile, such as 3g.40gb, for mode Partitioned. Absent with other modes."
    )


class Alternative(BaseModel):
    """One way of serving a request."""

    model_config = model_config(rules(*checks.COUNT))

    name: Label = Field(description="Name, unique among the alternatives; results show it as <request>/<name>.")
    count: Count | None = Field(default=None, description="Devices per replica. Absent: 1.")
    all: Bool | None = Field(
        default=None,
        description="true: every matching device of the node, all of them free and at least one; `count` is then left "
        "out. Absent: false.",
    )
    selectors: Selectors = Field(
        default=(), description="Conditions on the devices; all must hold. Absent: any device."
    )
    share: RequestShare | None = Field(
        default=None, description="Ask for a part of each device from this DeviceShare. Absent: whole devices."
    )
    same_device: Bool | None = Field(
        default=None, description="true: all parts of this alternative come from one device. Absent: false."
    )
    isolation: Isolation | None = Field(
        default=None,
        description="Least isolation of parts from their neighbours: None, Cooperative or Hard. Absent: any.",
    )


class DeviceRequest(BaseModel):
    """Devices of one kind that every replica needs."""

    model_config = model_config(rules(*checks.REQUEST))

    name: Label = Field(
        description="Name of the request, unique in the claim; affinity lines and the pod annotation "
        "adjoin.dev/containers use it."
    )
    device: DeviceName | None = Field(
        default=None,
        description="Name of the devices in the pool (spec.devices[].name). Absent: the request's own name.",
    )
    count: Count | None = Field(default=None, description="Devices per replica. Absent: 1.")
    all: Bool | None = Field(
        default=None,
        description="true: every matching device of the node, all of them free and at least one; `count` is then left "
        "out. Absent: false.",
    )
    selectors: Selectors = Field(
        default=(), description="Conditions on the devices; all must hold. Absent: any device."
    )
    share: RequestShare | None = Field(
        default=None, description="Ask for a part of each device from this DeviceShare. Absent: whole devices."
    )
    same_device: Bool | None = Field(
        default=None,
        description="true: all parts of this request come from one device. Absent: false, every part from a device of "
        "its own.",
    )
    isolation: Isolation | None = Field(
        default=None,
        description="Least isolation of parts from their neighbours: None, Cooperative or Hard. Absent: any.",
    )
    first_of: Annotated[
        tuple[Alternative, ...], Field(max_length=8, json_schema_extra=ATOMIC | rules(*checks.ALTERNATIVES))
    ] = Field(
        default=(),
        description="Alternatives in order of preference; each replica gets the first that can be had. Whatever is "
        "asked for then stands in the alternatives. Absent: no alternatives.",
    )


class AffinityLine(BaseModel):
    """One wish about how near the devices of a replica are to each other, or about an attribute they share."""

    model_config = model_config(rules(*checks.AFFINITY))

    requests: Annotated[
        tuple[Label, ...],
        Field(min_length=1, max_length=32, json_schema_extra=ATOMIC | rules(*checks.AFFINITY_REQUESTS)),
    ] = Field(
        description="Names of the requests whose devices are meant. One: every pair of its devices. Two: each device "
        "of one is paired with devices of the other, spread evenly. More: each is paired with the first."
    )
    scope: Scope | None = Field(
        default=None,
        description="How near, from near to far: NVLink, PCIeSwitch (one PCIe switch), PCIeRoot (one root complex), "
        "NUMANode, Node. A nearer place always counts. Absent with `attribute`.",
    )
    attribute: Annotated[str, Field(min_length=1, max_length=96, pattern=ATTRIBUTE)] | None = Field(
        default=None,
        description="Attribute to compare: a full name such as dra.net/rail, or a name from the pool's "
        "topology.attributes such as numaNode. Devices without it never match. Absent with `scope`.",
    )
    policy: Policy | None = Field(
        default=None,
        description="With `scope`: Required (never farther) or Preferred (as near as can be, the status says what was "
        "reached); absent: Preferred. With `attribute`, where it must be given: Match (one value in common) or "
        "Distinct (no value twice).",
    )
    over: AffinityOver | None = Field(
        default=None,
        description="Among which devices an attribute is compared: Replica (those of one replica) or Gang (those of "
        "all replicas). Only with `attribute`. Absent: Replica.",
    )


class Gang(BaseModel):
    """All-or-nothing placement of the replicas."""

    model_config = model_config()

    min_replicas: Annotated[Int, Field(ge=1, le=DEVICES_PER_CLAIM)] | None = Field(
        default=None, description="Fewest replicas with which the gang starts. Absent: all of `replicas`."
    )


class Segment(BaseModel):
    """Groups of consecutive replicas that stay together."""

    model_config = model_config()

    size: Annotated[Int, Field(ge=1, le=DEVICES_PER_CLAIM)] = Field(description="Consecutive replicas in one group.")
    level: Label = Field(description="Level of the pool's fabric under which each group lies.")


class ClaimFabric(BaseModel):
    """Where the replicas lie in the network, by levels of the pool's topology.fabric."""

    model_config = model_config(rules(*checks.FABRIC))

    required: Label | None = Field(
        default=None, description="All replicas under one domain of this level. Absent: anywhere."
    )
    preferred: Label | None = Field(
        default=None, description="All replicas under one domain of this level if that can be. Absent: no wish."
    )
    segment: Segment | None = Field(
        default=None, description="Keep groups of consecutive replicas together. Absent: no groups."
    )


class Host(BaseModel):
    """What the pod itself needs on the node, so that a placed claim can start."""

    model_config = model_config(rules(*checks.HOST))

    cpu: Quantity | None = Field(
        default=None, description="CPU of one replica's pod, in cores, such as 96 or 500m. Absent: not looked at."
    )
    memory: Bytes | None = Field(
        default=None, description="Memory of one replica's pod, such as 1Ti. Absent: not looked at."
    )


class Scaling(BaseModel):
    """How the number of replicas is set."""

    model_config = model_config(rules(*checks.SCALING))

    mode: ScalingMode = Field(
        default=ScalingMode.FIXED,
        description="Fixed: as many as `replicas` says. FollowPods: one replica per live pod. Default: Fixed.",
    )
    min_replicas: Replicas | None = Field(default=None, description="Fewest replicas with FollowPods. Absent: 0.")
    max_replicas: Annotated[Int, Field(ge=1, le=DEVICES_PER_CLAIM)] | None = Field(
        default=None, description="Most replicas with FollowPods, where it must be given. Absent with Fixed."
    )


class ClaimLifecycle(BaseModel):
    """Values for the pool's hooks."""

    model_config = model_config()

    parameters: Annotated[dict[str, Annotated[str, Field(max_length=253)]], Field(max_length=32)] = Field(
        default_factory=dict,
        description="Values by name of a parameter that the pool declares in lifecycle.parameters. Absent: the pool's "
        "defaults.",
    )


class DeviceClaimSpec(BaseModel):
    """Devices that a workload asks for."""

    model_config = model_config(rules(*checks.SPEC))

    pool_ref: PoolRef | None = Field(
        default=None,
        description="The pool to take from. Absent: the pool whose annotation adjoin.dev/default-pool is 'true'. "
        "Immutable.",
    )
    requests: Annotated[tuple[DeviceRequest, ...], Field(max_length=32, json_schema_extra=keyed("name"))] = Field(
        default=(),
        description="What every replica gets, all of it on one node. May be absent only if `host` is given. Immutable, "
        "but for memory and compute of a share.",
    )
    affinity: Annotated[tuple[AffinityLine, ...], Field(max_length=32, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="How near to each other the devices of a replica are to be. Required lines always hold; Preferred "
        "lines are served in the order of the list. Absent: near GPUs first, then GPUs near RDMA NICs. Immutable.",
    )
    replicas: Replicas | None = Field(
        default=None,
        description="How many times the requests are wanted, each on one node. replicas times devices is at most 4096. "
        "Absent: 1. Set by kubectl scale and autoscalers; leave it out of manifests where they do so.",
    )
    gang: Gang | None = Field(
        default=None,
        description="Place all replicas or none, from minReplicas up. Absent: every replica is placed on its own. "
        "Immutable.",
    )
    fabric: ClaimFabric | None = Field(
        default=None, description="Where the replicas lie in the network. Absent: anywhere. Immutable."
    )
    host: Host | None = Field(
        default=None,
        description="CPU and memory that each replica's pod needs beside its devices. Absent: not looked at.",
    )
    profile: Profile = Field(
        default=Profile.BALANCED,
        description="What to favour among places that fit: Compute (fast devices), IO (NICs near GPUs first), Latency "
        "(one NUMA node, idle neighbours) or Balanced. Default: Balanced.",
    )
    priority: Annotated[Int, Field(ge=-1_000_000_000, le=1_000_000_000)] = Field(
        default=0, description="Claims with a higher value are served first. Default: 0."
    )
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None,
        description="Take the priority from this PriorityClass; `priority` is then left out. Absent: `priority` "
        "counts.",
    )
    deadline: Timestamp | None = Field(
        default=None,
        description="When the work must be done; urgency rises over the last 24 hours before. Absent: none.",
    )
    preemptible: Bool = Field(
        default=True, description="Whether claims of higher priority may take the devices. Default: true."
    )
    scaling: Scaling = Field(default=Scaling(), description="How the number of replicas is set. Default: mode Fixed.")
    release: Release = Field(
        default=Release.WHEN_DELETED,
        description="When the devices are given back: WhenDeleted, or WhenPodsFinish (all its pods have ended). "
        "Default: WhenDeleted.",
    )
    idle_timeout: PositiveDuration | None = Field(
        default=None,
        description="Release the devices when no pod has used them for so long, such as 30m. Absent: never.",
    )
    max_runtime: PositiveDuration | None = Field(
        default=None,
        description="Release the devices so long after they became ready, such as 4h; short claims may fill gaps. "
        "Absent: never.",
    )
    lifecycle: ClaimLifecycle | None = Field(
        default=None, description="Values for the pool's hooks. Absent: the pool's defaults."
    )
    suspend: Bool = Field(
        default=False, description="true: hold no devices; those held are released as by deletion. Default: false."
    )


class DeviceClaim(BaseModel):
    """Asks for devices of a pool that sit close to each other. A pod uses it by the label adjoin.dev/claim with the
    claim's name."""

    model_config = model_config(rules(*checks.OBJECT))

    api_version: Literal["adjoin.dev/v1alpha1"] = API_VERSION
    kind: Literal["DeviceClaim"] = "DeviceClaim"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: DeviceClaimSpec = Field(description="What is asked for.")
    status: DeviceClaimStatus | None = Field(default=None, description="What was done; written by Adjoin alone.")
