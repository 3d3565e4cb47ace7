"""Status of a DevicePool: counts, tenants, quarantine. Written by Adjoin alone."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from adjoin.api.claim_status import HookResult
from adjoin.api.common import CONDITIONS_TEXT, Conditions, DeviceRef
from adjoin.api.marks import ATOMIC, keyed, model_config
from adjoin.api.scalars import UID, Int, Text, Timestamp

Amount = Annotated[Int, Field(ge=0)]


class PoolCondition(StrEnum):
    """Condition types of a DevicePool."""

    READY = "Ready"
    OVERLAP = "Overlap"
    TOPOLOGY_MISMATCH = "TopologyMismatch"
    GUARD_UNAVAILABLE = "GuardUnavailable"


class DeviceCounts(BaseModel):
    """Physical devices of one name, each counted once: capacity is the sum of the other six."""

    model_config = model_config()

    capacity: Amount = Field(default=0, description="All devices.")
    free: Amount = Field(default=0, description="Devices that can be given out now.")
    allocated: Amount = Field(default=0, description="Devices of which a claim holds all or a part.")
    reserved: Amount = Field(default=0, description="Devices held for a claim that waits.")
    releasing: Amount = Field(default=0, description="Devices that are being freed or cleaned.")
    unhealthy: Amount = Field(default=0, description="Devices that are tainted or quarantined.")
    missing: Amount = Field(default=0, description="Devices that a claim holds but nobody publishes any more.")


class TenantUsage(BaseModel):
    """What one tenant holds."""

    model_config = model_config()

    name: Annotated[str, Field(max_length=63)] = Field(description="Name of the tenant.")
    used: Annotated[dict[str, Amount], Field(max_length=32)] = Field(
        default_factory=dict, description="Devices held, by device name; parts count in thousandths, rounded up."
    )
    borrowed: Annotated[dict[str, Amount], Field(max_length=32)] = Field(
        default_factory=dict, description="Of these, devices beyond the quota."
    )


class QuarantinedDevice(DeviceRef):
    """One device that is given to nobody."""

    owner: Annotated[str, Field(max_length=253)] = Field(description="Who put it there.")
    reason: Annotated[str, Field(max_length=1024)] = Field(description="Why, such as NeedsReset.")
    message: Annotated[str, Field(max_length=1024)] | None = Field(default=None, description="Why, as a sentence.")
    exit: Text = Field(description="What ends the quarantine.")
    since: Timestamp | None = Field(default=None, description="Since when.")
    clear: Timestamp | None = Field(
        default=None, description="Since when no taint keeps it from being recovered, where a taint put it here."
    )
    address: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="PCI address: by it other hardware in its place is recognised."
    )
    claim_uid: UID | None = Field(default=None, alias="claimUID", description="UID of the claim that held it last.")
    claim: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="Namespace and name of that claim."
    )
    name: Annotated[str, Field(max_length=63)] | None = Field(
        default=None, description="Name of the device in the pool, such as gpu."
    )
    node: Annotated[str, Field(max_length=253)] | None = Field(default=None, description="Node that it is on.")
    boot_id: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, alias="bootID", description="Boot of the node in which it was used or failed."
    )
    node_gone_since: Timestamp | None = Field(default=None, description="Since when there has been no such Node.")
    hooks: Annotated[tuple[HookResult, ...], Field(max_length=32, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Hooks that ran to recover it."
    )


class UsedDevice(DeviceRef):
    """One device that was used since it was last cleaned while idle."""

    node: Annotated[str, Field(max_length=253)] | None = Field(default=None, description="Node that it is on.")
    since: Timestamp | None = Field(default=None, description="Since when nobody uses it. Absent: somebody does.")


class SilentDriver(BaseModel):
    """A driver that published devices on a node and publishes none any more."""

    model_config = model_config()

    driver: Annotated[str, Field(max_length=253)] = Field(description="DRA driver.")
    pool: Annotated[str, Field(max_length=253)] = Field(description="The driver's pool, usually the node's name.")
    node: Annotated[str, Field(max_length=253)] = Field(description="The node.")
    since: Timestamp = Field(description="Since when.")


class DevicePoolStatus(BaseModel):
    """What Adjoin sees in the pool."""

    model_config = model_config()

    observed_generation: Amount | None = Field(
        default=None, description="metadata.generation that this status speaks of."
    )
    conditions: Conditions = Field(default=(), description=CONDITIONS_TEXT)
    summary: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="Free and all devices by name for people, such as gpu 12/16, nic 30/32."
    )
    devices: Annotated[dict[str, DeviceCounts], Field(max_length=32)] = Field(
        default_factory=dict, description="Counts by device name."
    )
    fragmentation: Annotated[dict[str, Annotated[float, Field(ge=0, le=1)]], Field(max_length=32)] = Field(
        default_factory=dict,
        description="Part of the free devices that lies outside of whole groups of near devices, by device name: 0 "
        "none, 1 all.",
    )
    gap: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Proven distance of the last batch from the best possible; 0 is optimal."
    )
    tenants: Annotated[tuple[TenantUsage, ...], Field(max_length=1024, json_schema_extra=keyed("name"))] = Field(
        default=(), description="What each tenant holds."
    )
    quarantined: Annotated[tuple[QuarantinedDevice, ...], Field(max_length=4096, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Devices that are given to nobody until something happens."
    )
    silent: Annotated[tuple[SilentDriver, ...], Field(max_length=1024, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Drivers that publish nothing any more."
    )
    used: Annotated[tuple[UsedDevice, ...], Field(max_length=2048, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="With lifecycle.idleClean: devices that were used since they were last cleaned while idle.",
    )
