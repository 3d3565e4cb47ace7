"""DevicePool: which devices there are under which names, how they are wired, and how they are run."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from adjoin.api import pool_rules as checks
from adjoin.api.common import LabelSelector, ObjectMeta
from adjoin.api.marks import ATOMIC, keyed, model_config, rules
from adjoin.api.names import API_VERSION
from adjoin.api.pool_devices import PoolDevice, Topology
from adjoin.api.pool_policy import Delivery, Health, Placement, PoolLifecycle, Tenancy, Toleration
from adjoin.api.pool_status import DevicePoolStatus


class DevicePoolSpec(BaseModel):
    """Devices that may be claimed together."""

    model_config = model_config(rules(*checks.SPEC))

    node_selector: LabelSelector | None = Field(
        default=None, description="Nodes of the pool, by label. Absent or empty: every node."
    )
    devices: Annotated[tuple[PoolDevice, ...], Field(min_length=1, max_length=32, json_schema_extra=keyed("name"))] = (
        Field(
            description="The devices, by the names that claims ask for. A device belongs to one pool; of two that "
            "select it the older keeps it."
        )
    )
    topology: Topology = Field(
        default=Topology(), description="How devices and nodes are wired. Absent: standard attributes alone."
    )
    placement: Placement = Field(default=Placement(), description="How devices are chosen.")
    tenancy: Tenancy | None = Field(
        default=None, description="Who may claim, and how much. Absent: everybody, without limit."
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(),
        description="Node taints that the pool's pods are expected to tolerate. Nodes with another NoSchedule taint "
        "take nothing new. They are not added to pods. Absent: none.",
    )
    lifecycle: PoolLifecycle = Field(default=PoolLifecycle(), description="How devices are prepared and cleaned.")
    health: Health = Field(default=Health(), description="When devices are not given out.")
    delivery: Delivery = Field(default=Delivery(), description="How pods get the devices.")


class DevicePool(BaseModel):
    """Devices that may be claimed together, with their wiring and the rules for giving them out."""

    model_config = model_config(rules(*checks.OBJECT))

    api_version: Literal["adjoin.dev/v1alpha1"] = API_VERSION
    kind: Literal["DevicePool"] = "DevicePool"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: DevicePoolSpec = Field(description="What the pool offers and how.")
    status: DevicePoolStatus | None = Field(default=None, description="What is seen; written by Adjoin alone.")
