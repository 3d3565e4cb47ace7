"""DevicePool, how it is run: placement, tenancy, hooks, health and delivery.

Defaults that the API server fills in stand here as field defaults; where a field has none, its absence has a meaning of
its own, which the description states.
"""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, Field

from adjoin.api import pool_rules as checks
from adjoin.api.common import LabelSelector
from adjoin.api.marks import ATOMIC, SET, keyed, model_config, rules
from adjoin.api.scalars import (
    LABEL_KEY,
    LABEL_VALUE,
    NETWORK,
    SPOKEN,
    Bool,
    DeviceName,
    Duration,
    Int,
    Label,
    Namespace,
    PositiveDuration,
    ZeroOrDuration,
)
from adjoin_allocator.terms import Objective, Reclaim, Strategy


class WithinTenant(StrEnum):
    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


class UnreachablePolicy(StrEnum):
    HOLD = "Hold"
    RELEASE = "Release"


class HealthAction(StrEnum):
    IGNORE = "Ignore"
    EVENT = "Event"
    QUARANTINE_UNTIL_RESET = "QuarantineUntilReset"
    QUARANTINE_UNTIL_REPLACED = "QuarantineUntilReplaced"


class Recovery(StrEnum):
    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class DeliveryMode(StrEnum):
    RESOURCE_CLAIM = "ResourceClaim"
    ENVIRONMENT = "Environment"


class Guard(StrEnum):
    DEVICE_TAINT_RULE = "DeviceTaintRule"
    NONE = "None"


class Split(StrEnum):
    SIZE = "Size"
    DRIVER = "Driver"


class TolerationOperator(StrEnum):
    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Backfill(BaseModel):
    """Keeps large gangs from waiting for ever behind small claims."""

    model_config = model_config()

    hold_after: Duration | None = Field(
        default=None, description="A gang that has been blocked for so long has capacity held for it. Absent: no hold."
    )


class Placement(BaseModel):
    """How devices are chosen."""

    model_config = model_config()

    strategy: Strategy = Field(
        default=Strategy.LEAST_FRAGMENTATION,
        description="LeastFragmentation: leave behind what later claims can use. Pack: the fullest node first. Spread: "
        "the emptiest node first. Default: LeastFragmentation.",
    )
    objective: Objective = Field(
        default=Objective.IN_ORDER,
        description="InOrder: no claim is passed over for a later one that fits beside it. Throughput: among equal "
        "priorities place as many devices as can be. Default: InOrder.",
    )
    optimise_for: ZeroOrDuration = Field(
        default="300ms",
        description="Work that the optimiser may spend on one batch, as time on a reference machine; 0: none. Default: "
        "300ms.",
    )
    backfill: Backfill | None = Field(
        default=None, description="Holding capacity for blocked gangs. Absent: nothing is held."
    )


Amounts = Annotated[dict[str, Annotated[Int, Field(ge=0, le=1_000_000)]], Field(max_length=32)]


class Tenant(BaseModel):
    """Namespaces that share a quota."""

    model_config = model_config()

    name: Label = Field(description="Name of the tenant.")
    namespaces: Annotated[tuple[Namespace, ...], Field(max_length=256, json_schema_extra=SET)] = Field(
        default=(), description="Its namespaces; a namespace belongs to one tenant. Absent: none."
    )
    quota: Amounts = Field(
        default_factory=dict,
        description="Devices that the tenant may hold, by device name of the pool. An absent name: no limit; 0: none.",
    )
    borrowing: Amounts = Field(
        default_factory=dict,
        description="Devices beyond the quota, by device name, taken only from what others' quotas leave unused. An "
        "absent name: 0.",
    )
    weight: Annotated[Int, Field(ge=1, le=1_000_000)] = Field(
        default=1,
        description="Share of the pool relative to other tenants when claims of equal priority wait. Default: 1.",
    )


class Preemption(BaseModel):
    """Who may take devices from whom."""

    model_config = model_config()

    within_tenant: WithinTenant = Field(
        default=WithinTenant.NEVER,
        description="Among claims of one tenant: Never, or LowerPriority (claims of lower priority give way). Default: "
        "Never.",
    )
    reclaim: Reclaim = Field(
        default=Reclaim.NEVER,
        description="From tenants above their quota: Never, LowerPriority or Any. Default: Never.",
    )
    min_runtime: ZeroOrDuration = Field(
        default="0s", description="Nobody is evicted sooner after becoming ready. Default: 0s."
    )


class Aging(BaseModel):
    """Raises the priority of claims that wait."""

    model_config = model_config()

    every: PositiveDuration = Field(description="Waiting time after which the priority rises by one step.")
    step: Annotated[Int, Field(ge=1, le=1_000_000)] = Field(default=1, description="Size of a step. Default: 1.")
    max: Annotated[Int, Field(ge=1, le=1_000_000)] = Field(default=100, description="Most that is added. Default: 100.")


class Tenancy(BaseModel):
    """Who may claim, and how much."""

    model_config = model_config()

    namespace_selector: LabelSelector | None = Field(
        default=None, description="Namespaces that may claim at all. Absent or empty: every namespace."
    )
    default: Annotated[str, Field(max_length=63)] | None = Field(
        default=None,
        description="Tenant of namespaces that are in none. Absent or empty: each is a tenant of its own without "
        "quota.",
    )
    tenants: Annotated[tuple[Tenant, ...], Field(max_length=128, json_schema_extra=keyed("name"))] = Field(
        default=(), description="The tenants. Absent: no quotas."
    )
    preemption: Preemption = Field(default=Preemption(), description="Who may take devices from whom. Default: nobody.")
    aging: Aging | None = Field(default=None, description="Raises the priority of waiting claims. Absent: off.")


class Toleration(BaseModel):
    """A node taint that the pool's pods tolerate."""

    model_config = model_config(rules(*checks.TOLERATION))

    key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)] | None = Field(
        default=None, description="Taint key. Absent: every key, with operator Exists."
    )
    operator: TolerationOperator = Field(
        default=TolerationOperator.EQUAL, description="Exists, or Equal (the value counts too). Default: Equal."
    )
    value: Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)] | None = Field(
        default=None, description="Taint value for Equal. Absent: the empty value."
    )
    effect: TaintEffect | None = Field(
        default=None, description="NoSchedule, PreferNoSchedule or NoExecute. Absent: every effect."
    )


class Hook(BaseModel):
    """A Job that runs on the node for one set of devices."""

    model_config = model_config()

    name: Label = Field(description="Name of the hook.")
    devices: Annotated[tuple[DeviceName, ...], Field(max_length=32, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Device names of the pool for which it runs. Absent: all."
    )
    timeout: PositiveDuration = Field(default="5m", description="How long one attempt may take. Default: 5m.")
    retries: Annotated[Int, Field(ge=0, le=100)] = Field(
        default=2, description="Further attempts after a failure. Default: 2."
    )
    template: Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})] = (
        Field(description="Pod template of the Job (metadata and spec).")
    )


class CleanupHook(Hook):
    """A Job that cleans devices before anybody else may have them."""

    retries: Annotated[Int, Field(ge=0, le=100)] = Field(
        default=5, description="Further attempts after a failure; then the device is quarantined. Default: 5."
    )


class HookParameter(BaseModel):
    """A value that claims may set for hooks."""

    model_config = model_config(rules(*checks.PARAMETER))

    name: Label = Field(description="Name of the parameter.")
    values: Annotated[
        tuple[Annotated[str, Field(max_length=253)], ...], Field(min_length=1, max_length=64, json_schema_extra=SET)
    ] = Field(description="Values that a claim may choose.")
    default: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="Value when a claim says nothing. Absent: the parameter is not set then."
    )


class NodeUnreachable(BaseModel):
    """What becomes of devices on a node that is NotReady."""

    model_config = model_config()

    after: PositiveDuration = Field(
        default="15m", description="How long the node must have been NotReady. Default: 15m."
    )
    policy: UnreachablePolicy = Field(
        default=UnreachablePolicy.HOLD,
        description="Hold: the devices stay taken until the node is back or gone. Release: claims are placed "
        "elsewhere. Default: Hold.",
    )


class PoolLifecycle(BaseModel):
    """How devices are prepared and cleaned."""

    model_config = model_config()

    init: Annotated[tuple[Hook, ...], Field(max_length=16, json_schema_extra=ATOMIC | rules(*checks.HOOKS))] = Field(
        default=(), description="Jobs, in order, that must succeed before pods may use the devices. Absent: none."
    )
    cleanup: Annotated[
        tuple[CleanupHook, ...], Field(max_length=16, json_schema_extra=ATOMIC | rules(*checks.HOOKS))
    ] = Field(
        default=(), description="Jobs, in order, that must succeed before others may have the devices. Absent: none."
    )
    parameters: Annotated[tuple[HookParameter, ...], Field(max_length=32, json_schema_extra=keyed("name"))] = Field(
        default=(), description="What claims may set in lifecycle.parameters. Absent: nothing."
    )
    idle_clean: PositiveDuration | None = Field(
        default=None, description="Clean free devices that nobody used for so long, such as 24h. Absent: never."
    )
    clean_between_restarts: Bool = Field(
        default=False, description="true: clean also between two pods of the same replica. Default: false."
    )
    sweep_every: PositiveDuration = Field(
        default="60s", description="How often the cluster is compared with the accounting. Default: 60s."
    )
    node_unreachable: NodeUnreachable = Field(
        default=NodeUnreachable(),
        description="What becomes of devices on a node that is NotReady. Default: held, after 15m.",
    )


class HealthRule(BaseModel):
    """What a device taint means."""

    model_config = model_config()

    taint_key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)] = Field(
        description="Key of the device taint, such as gpu.nvidia.com/xid."
    )
    values: Annotated[
        tuple[Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)], ...],
        Field(max_length=64, json_schema_extra=SET),
    ] = Field(default=(), description="Values of the taint. Absent: every value.")
    action: HealthAction = Field(
        description="Ignore; Event (said, no more); QuarantineUntilReset (nobody gets the device until it was reset); "
        "QuarantineUntilReplaced (until another device is in its place)."
    )


class Health(BaseModel):
    """When devices are not given out."""

    model_config = model_config()

    driver_grace: Duration = Field(
        default="2m",
        description="How long a driver may be silent before its devices count as unavailable. Default: 2m.",
    )
    rules: Annotated[tuple[HealthRule, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="What device taints mean; the first match counts. Absent: NoSchedule and NoExecute make a device "
        "unhealthy while they last.",
    )
    recovery: Recovery = Field(
        default=Recovery.AUTOMATIC,
        description="Automatic: cleanup and init hooks must pass before the device is given out again. Manual: "
        "somebody says so. Default: Automatic.",
    )


class DeliveryNetworks(BaseModel):
    """Network attachments for NICs."""

    model_config = model_config()

    attachment: Annotated[str, Field(min_length=1, max_length=253, pattern=NETWORK, json_schema_extra=SPOKEN)] = Field(
        description="Multus network of each NIC of a pod, as <namespace>/<name> of a NetworkAttachmentDefinition; in "
        "the name {device} stands for the device's name."
    )


class Delivery(BaseModel):
    """How pods get the devices."""

    model_config = model_config()

    mode: DeliveryMode = Field(
        default=DeliveryMode.RESOURCE_CLAIM,
        description="ResourceClaim: by Dynamic Resource Allocation. Environment: by environment variables from a "
        "ConfigMap, for devices without a driver. Default: ResourceClaim.",
    )
    guard: Guard = Field(
        default=Guard.DEVICE_TAINT_RULE,
        description="What keeps kube-scheduler from giving the pool's devices to other claims: DeviceTaintRule, or "
        "None. Default: DeviceTaintRule.",
    )
    split: Split = Field(
        default=Split.SIZE,
        description="Size: one ResourceClaim per 32 devices of a pod. Driver: one per driver as well; only with mode "
        "ResourceClaim. Default: Size.",
    )
    networks: DeliveryNetworks | None = Field(default=None, description="Network attachments for NICs. Absent: none.")
