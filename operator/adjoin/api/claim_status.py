"""Status of a DeviceClaim: what is held, on which nodes, in which state, and why something is missing.

Written by Adjoin alone, one merge patch at a time; `allocation` is one value to the API server. `plan -o json` prints
the same objects, so its output can be fed back.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from adjoin.api.common import CONDITIONS_TEXT, Conditions, DeviceRef
from adjoin.api.marks import ATOMIC, ATOMIC_MAP, model_config
from adjoin.api.scalars import UID, Int, Known, Timestamp
from adjoin_allocator.results import Code
from adjoin_allocator.terms import ReplicaState

Index = Annotated[Int, Field(ge=0, le=4095)]


class Phase(StrEnum):
    PENDING = "Pending"
    ALLOCATED = "Allocated"
    INITIALIZING = "Initializing"
    READY = "Ready"
    IN_USE = "InUse"
    RELEASING = "Releasing"
    RELEASED = "Released"
    FAILED = "Failed"


class HookPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class HookStage(StrEnum):
    INIT = "Init"
    CLEANUP = "Cleanup"


class ClaimCondition(StrEnum):
    """Condition types of a DeviceClaim."""

    ALLOCATED = "Allocated"
    INITIALIZED = "Initialized"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    DEVICE_MISSING = "DeviceMissing"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    CONFLICT = "Conflict"
    EVICTED = "Evicted"
    RELEASED = "Released"


class ReleasedReason(StrEnum):
    """Why a claim was released although it was neither deleted nor suspended."""

    MAX_RUNTIME = "MaxRuntime"
    IDLE = "Idle"
    PODS_FINISHED = "PodsFinished"


class Reason(BaseModel):
    """One thing that keeps the claim from being placed."""

    model_config = model_config()

    code: Annotated[str, Known(Code)] = Field(description="The reason as one word.")
    nodes: Annotated[Int, Field(ge=0)] = Field(default=0, description="Number of nodes to which it applies.")
    message: Annotated[str, Field(max_length=4096)] = Field(default="", description="The reason with its numbers.")


class AllocatedShare(BaseModel):
    """The part of a device that is held; absent for a whole device."""

    model_config = model_config()

    name: Annotated[str, Field(max_length=253)] = Field(description="Name of the DeviceShare.")
    slots: Annotated[Int, Field(ge=1)] | None = Field(default=None, description="Slots held (TimeSliced).")
    memory: Annotated[Int, Field(ge=1)] | None = Field(default=None, description="Bytes held (Fractional, MPS).")
    compute: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="Thousandths of the card's compute held (Fractional, MPS)."
    )
    profile: Annotated[str, Field(max_length=64)] | None = Field(default=None, description="Profile (Partitioned).")
    start: Annotated[Int, Field(ge=0)] | None = Field(
        default=None, description="First memory slice of the partition (Partitioned)."
    )
    vf: Annotated[Int, Field(ge=0)] | None = Field(default=None, description="Virtual function (VirtualFunctions).")
    id: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="Hardware identity of the part, as a hook reported it: MIG uuid, PCI address of a VF."
    )
    pipe: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="Directory on the node by which the part's MPS daemon is reached, as a hook reported."
    )


class AllocatedDevice(DeviceRef):
    """One device, or part of one, that a replica holds."""

    request: Annotated[str, Field(max_length=127)] = Field(
        description="The request that it serves: `gpu`, or `gpu/half` for an alternative."
    )
    share: AllocatedShare | None = Field(default=None, description="The part held; absent: the whole device.")
    consumed: Annotated[
        dict[str, Annotated[dict[str, Annotated[Int, Field(ge=0)]], Field(max_length=64)]], Field(max_length=16)
    ] = Field(
        default_factory=dict,
        description="What it consumes of the driver's counters, by counter set and counter, as recorded when "
        "allocated.",
    )


Devices = Annotated[tuple[AllocatedDevice, ...], Field(max_length=4096, json_schema_extra=ATOMIC)]


class HookResult(BaseModel):
    """Outcome of one hook of the pool for a set of devices."""

    model_config = model_config()

    name: Annotated[str, Field(max_length=63)] = Field(description="Name of the hook.")
    stage: Annotated[str, Known(HookStage)] | None = Field(default=None, description="Init, or Cleanup. Absent: Init.")
    phase: Annotated[str, Known(HookPhase)] = Field(description="Pending, Running, Succeeded or Failed.")
    boot_id: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, alias="bootID", description="Boot of the node for which it counts."
    )
    attempts: Annotated[Int, Field(ge=1)] | None = Field(
        default=None, description="Number of the attempt that this speaks of. Absent: 1."
    )
    since: Timestamp | None = Field(default=None, description="Since when it is in this phase.")
    message: Annotated[str, Field(max_length=4096)] | None = Field(
        default=None, description="Termination message of its container."
    )


class AllocatedReplica(BaseModel):
    """One placed replica."""

    model_config = model_config()

    index: Index = Field(description="Index of the replica, from 0.")
    node: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="Node of all its devices.")
    state: Annotated[str, Known(ReplicaState)] = Field(
        default=ReplicaState.READY,
        description="Allocated, Initializing, Ready, InUse, Releasing or Failed. Absent: Ready.",
    )
    locality: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] = Field(
        default_factory=dict, description="How near the devices are, by pair of requests, such as gpu-nic: PIX."
    )
    devices: Devices = Field(default=(), description="Devices that it holds.")
    allocated_at: Timestamp | None = Field(default=None, description="When its devices were chosen.")
    ready_at: Timestamp | None = Field(default=None, description="When it became Ready.")
    idle_since: Timestamp | None = Field(default=None, description="Since when no pod uses it.")
    lost_since: Timestamp | None = Field(
        default=None, description="Since when a device of it has been missing while no pod used it."
    )
    served: Annotated[Int, Field(ge=0)] | None = Field(
        default=None, description="How many pods had it and have ended. Absent: none."
    )
    resized_at: Timestamp | None = Field(
        default=None, description="When parts of it last got another size. Absent: never, or nothing had to be made."
    )
    boot_id: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, alias="bootID", description="Boot of the node for which it was prepared."
    )
    hooks: Annotated[tuple[HookResult, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Hooks that ran for it."
    )


class Allocation(BaseModel):
    """What the claim holds."""

    model_config = model_config(ATOMIC_MAP)

    gap: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Proven distance of the placement from the best possible; 0 is optimal."
    )
    replicas: Annotated[tuple[AllocatedReplica, ...], Field(max_length=4096, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Placed replicas, by index."
    )


class Nomination(BaseModel):
    """Devices that are held for this claim until their present holders have left."""

    model_config = model_config()

    index: Index = Field(description="Index of the replica.")
    node: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="Node of the devices.")
    devices: Devices = Field(default=(), description="Devices held for the replica.")


class Eviction(BaseModel):
    """One eviction of this claim."""

    model_config = model_config()

    by_uid: UID = Field(alias="byUID", description="UID of the claim for which it was evicted.")
    at: Timestamp = Field(description="When.")


class InitFailure(BaseModel):
    """Devices that could not be prepared for a replica, which was then planned again."""

    model_config = model_config()

    index: Index = Field(description="Index of the replica.")
    count: Annotated[Int, Field(ge=1)] = Field(description="How often in a row.")
    generation: Annotated[Int, Field(ge=0)] = Field(
        description="metadata.generation of the claim then; a change of the spec begins anew."
    )
    node: Annotated[str, Field(max_length=253)] = Field(description="Node of the last attempt.")
    hook: Annotated[str, Field(max_length=63)] = Field(description="Hook that failed last.")
    message: Annotated[str, Field(max_length=1024)] | None = Field(default=None, description="What it said.")
    at: Timestamp = Field(description="When it failed last.")


class DeviceClaimStatus(BaseModel):
    """What Adjoin has done for the claim."""

    model_config = model_config()

    observed_generation: Annotated[Int, Field(ge=0)] | None = Field(
        default=None, description="metadata.generation that this status speaks of."
    )
    phase: Annotated[str, Known(Phase)] | None = Field(
        default=None,
        description="Summary of the replicas: Pending (one has no place), Allocated, Initializing, Ready, InUse, "
        "Releasing, Released or Failed.",
    )
    conditions: Conditions = Field(default=(), description=CONDITIONS_TEXT)
    replicas: Annotated[Int, Field(ge=0, le=4096)] | None = Field(
        default=None, description="Replicas that hold devices."
    )
    ready_replicas: Annotated[Int, Field(ge=0, le=4096)] | None = Field(
        default=None, description="Replicas whose devices are ready for a pod or in use."
    )
    selector: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="Label selector of the claim's pods, for kubectl scale and autoscalers."
    )
    reasons: Annotated[tuple[Reason, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Why something is missing, the most actionable first; empty when nothing is."
    )
    nearest: Annotated[str, Field(max_length=4096)] | None = Field(
        default=None, description="The smallest change with which the claim would fit."
    )
    nominated: Annotated[tuple[Nomination, ...], Field(max_length=4096, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Devices that are being freed for this claim."
    )
    evictions: Annotated[tuple[Eviction, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Evictions of this claim in the last 10 minutes."
    )
    failures: Annotated[tuple[InitFailure, ...], Field(max_length=4096, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Replicas whose devices could not be prepared, until they are."
    )
    last_used_at: Timestamp | None = Field(
        default=None, description="When a pod last gave a replica back. Absent: none has yet, or the claim is released."
    )
    allocation: Allocation | None = Field(default=None, description="Devices that the claim holds, by replica.")
