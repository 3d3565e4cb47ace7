"""DeviceShare: how devices of a pool are split into parts. The settings of each mode stand in a field of their own."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from adjoin.api import share_rules as checks
from adjoin.api.claim_status import HookResult
from adjoin.api.common import CONDITIONS_TEXT, Conditions, DeviceRef, ObjectMeta, PoolRef, Selectors
from adjoin.api.marks import ATOMIC, keyed, model_config, rules
from adjoin.api.names import API_VERSION
from adjoin.api.scalars import (
    Bool,
    Bytes,
    DeviceName,
    Int,
    Known,
    Percent,
    PositiveDuration,
    Text,
    Timestamp,
    ZeroOrDuration,
)
from adjoin_allocator.terms import Isolation, ShareMode

ProfileName = Annotated[str, Field(min_length=1, max_length=64)]


class Interval(StrEnum):
    DEFAULT = "Default"
    SHORT = "Short"
    MEDIUM = "Medium"
    LONG = "Long"


class Prepare(StrEnum):
    ON_DEMAND = "OnDemand"
    EAGER = "Eager"


class Enforcement(StrEnum):
    """How far a limit holds: MPS and fractional limits bind each process, not the sum of a pod's processes."""

    NONE = "None"
    PER_PROCESS = "PerProcess"
    HARDWARE = "Hardware"


class ShareCondition(StrEnum):
    """Condition types of a DeviceShare."""

    READY = "Ready"
    OVER_SUBSCRIBED = "OverSubscribed"
    IN_USE = "InUse"
    OVERLAP = "Overlap"


class TimeSliced(BaseModel):
    """Slots that take turns on the device."""

    model_config = model_config()

    slots: Annotated[Int, Field(ge=1, le=1024)] = Field(description="Slots of each device.")
    interval: Interval = Field(
        default=Interval.DEFAULT, description="Length of a turn: Default, Short, Medium or Long. Default: Default."
    )


class Fractional(BaseModel):
    """Parts of memory and compute that processes are trusted to keep to."""

    model_config = model_config()

    reserve: Percent = Field(default="3%", description="Memory of each device that nobody gets. Default: 3%.")
    min_reserve: Bytes = Field(default="256Mi", description="Least that is kept back. Default: 256Mi.")


class MPS(BaseModel):
    """Parts of memory and compute, kept by the MPS daemon per process."""

    model_config = model_config()

    max_clients: Annotated[Int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Most claims on one device. Absent: as many as fit."
    )
    reserve: Percent = Field(default="3%", description="Memory of each device that nobody gets. Default: 3%.")
    min_reserve: Bytes = Field(default="256Mi", description="Least that is kept back. Default: 256Mi.")


class LayoutEntry(BaseModel):
    """Partitions of one profile."""

    model_config = model_config()

    profile: ProfileName = Field(description="Profile, such as 1g.10gb.")
    count: Annotated[Int, Field(ge=1, le=64)] = Field(default=1, description="How many. Default: 1.")


class DynamicPartitions(BaseModel):
    """Partitions made on demand."""

    model_config = model_config()

    profiles: Annotated[tuple[ProfileName, ...], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)] = Field(
        description="Profiles that may be made."
    )


class PartitionPlacement(BaseModel):
    """Where one profile may lie on a device, for products that are not built in."""

    model_config = model_config()

    profile: ProfileName = Field(description="Profile.")
    starts: Annotated[
        tuple[Annotated[Int, Field(ge=0, le=63)], ...], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)
    ] = Field(description="First memory slices at which it may begin.")
    size: Annotated[Int, Field(ge=1, le=64)] = Field(description="Memory slices that it takes.")
    compute: Annotated[Int, Field(ge=1, le=64)] = Field(description="Compute slices that it takes.")
    max: Annotated[Int, Field(ge=1, le=64)] | None = Field(
        default=None, description="Most of it on one device. Absent: as many as fit."
    )


class Partitioned(BaseModel):
    """Partitions in hardware (MIG)."""

    model_config = model_config(rules(*checks.PARTITIONED))

    layout: Annotated[tuple[LayoutEntry, ...], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)] | None = (
        Field(
            default=None,
            description="The same partitions on every device; order is irrelevant. Absent with `dynamic`.",
        )
    )
    dynamic: DynamicPartitions | None = Field(
        default=None, description="Partitions made on demand. Absent with `layout`."
    )
    table: Annotated[tuple[PartitionPlacement, ...], Field(max_length=64, json_schema_extra=keyed("profile"))] = Field(
        default=(), description="Where profiles may lie. Absent: the built-in table of the product."
    )


class VirtualFunctions(BaseModel):
    """SR-IOV functions of a NIC."""

    model_config = model_config()

    count: Annotated[Int, Field(ge=1, le=256)] = Field(description="Functions of each device.")


class DeviceShareSpec(BaseModel):
    """How devices are split."""

    model_config = model_config(rules(*checks.SPEC))

    pool_ref: PoolRef = Field(description="Pool of the devices. Immutable.")
    device: DeviceName = Field(description="Name of the devices in the pool. Immutable.")
    selectors: Selectors = Field(
        default=(), description="Conditions on the devices; all must hold. Absent: any device."
    )
    max_devices: Annotated[Int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Most devices that are split at one time. Absent: no limit."
    )
    mode: ShareMode = Field(
        description="TimeSliced (turns, no isolation), Fractional or MPS (limits that processes keep to), Partitioned "
        "or VirtualFunctions (hardware). Immutable."
    )
    time_sliced: TimeSliced | None = Field(
        default=None, description="Settings of mode TimeSliced. Absent with other modes."
    )
    fractional: Fractional | None = Field(default=None, description="Settings of mode Fractional. Absent: defaults.")
    mps: MPS | None = Field(default=None, description="Settings of mode MPS. Absent: defaults.")
    partitioned: Partitioned | None = Field(
        default=None, description="Settings of mode Partitioned. Absent with other modes."
    )
    virtual_functions: VirtualFunctions | None = Field(
        default=None, description="Settings of mode VirtualFunctions. Absent with other modes."
    )
    prepare: Prepare = Field(
        default=Prepare.ON_DEMAND,
        description="OnDemand: a device is split when a claim first needs a part. Eager: at once. Default: OnDemand.",
    )
    dwell: ZeroOrDuration = Field(default="0s", description="Least time a device stays in a mode. Default: 0s.")
    idle_reset: PositiveDuration | None = Field(
        default=None, description="Devices without users return to whole after so long. Absent: when they are needed."
    )


class PlacementState(StrEnum):
    """Where a device stands on its way into a share's mode, or back."""

    PREPARING = "Preparing"
    READY = "Ready"
    RESETTING = "Resetting"
    FAILED = "Failed"


class PlacedPartition(BaseModel):
    """One partition on a device."""

    model_config = model_config()

    profile: Annotated[str, Field(max_length=64)] = Field(description="Profile.")
    start: Annotated[Int, Field(ge=0)] = Field(description="First memory slice.")
    size: Annotated[Int, Field(ge=1)] = Field(description="Memory slices.")


class SharePlacement(DeviceRef):
    """One device that is in the share's mode, whether or not somebody holds a part of it."""

    node: Annotated[str, Field(max_length=253)] | None = Field(default=None, description="Node that it is on.")
    state: Annotated[str, Known(PlacementState)] | None = Field(
        default=None,
        description="Preparing: hooks bring it into the mode. Ready: parts of it can be given. Resetting: hooks return "
        "it to whole. Failed: they could not, and the device is in its pool's quarantine. Absent: Ready.",
    )
    since: Timestamp | None = Field(default=None, description="Since when it is in the mode, or on its way there.")
    idle_since: Timestamp | None = Field(default=None, description="Since when nobody holds any of it.")
    partitions: Annotated[tuple[PlacedPartition, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Partitions that are on it, or are being made."
    )
    hooks: Annotated[tuple[HookResult, ...], Field(max_length=32, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Hooks that run to bring it into the mode, or to return it to whole."
    )


class DeviceShareStatus(BaseModel):
    """What Adjoin has done for the share."""

    model_config = model_config()

    observed_generation: Annotated[Int, Field(ge=0)] | None = Field(
        default=None, description="metadata.generation that this status speaks of."
    )
    conditions: Conditions = Field(default=(), description=CONDITIONS_TEXT)
    accepted: Bool | None = Field(default=None, description="Whether every selected device can be split this way.")
    message: Text | None = Field(default=None, description="What does not fit, and where.")
    isolation: Annotated[str, Known(Isolation)] | None = Field(
        default=None, description="How far parts are kept apart: None, Cooperative or Hard; a fact of the mode."
    )
    enforcement: Annotated[str, Known(Enforcement)] | None = Field(
        default=None, description="How far limits hold: None, PerProcess or Hardware; a fact of the mode."
    )
    units: Annotated[Int, Field(ge=0)] | None = Field(
        default=None,
        description="Parts that there are or could be: slots, partitions, functions, MPS clients; of a mode that "
        "divides at will, thousandths of cards. Absent with partitions on demand.",
    )
    free: Annotated[Int, Field(ge=0)] | None = Field(default=None, description="Parts that can be given out now.")
    placements: Annotated[tuple[SharePlacement, ...], Field(max_length=4096, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Devices that are in the mode, with their partitions."
    )


class DeviceShare(BaseModel):
    """Splits devices of a pool into parts that claims can ask for."""

    model_config = model_config(rules(*checks.OBJECT))

    api_version: Literal["adjoin.dev/v1alpha1"] = API_VERSION
    kind: Literal["DeviceShare"] = "DeviceShare"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: DeviceShareSpec = Field(description="How the devices are split.")
    status: DeviceShareStatus | None = Field(default=None, description="What was done; written by Adjoin alone.")
