"""DevicePool, what it offers: device names, where devices come from, and how they are wired.

Names, selectors and matrices are taken as written; whether devices, nodes or ConfigMaps exist is not known here.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from adjoin.api import pool_rules as checks
from adjoin.api.common import DeviceType, LabelSelector, Selectors
from adjoin.api.marks import ATOMIC, ATOMIC_MAP, keyed, model_config, rules
from adjoin.api.scalars import (
    CONFIG_KEY,
    DNS_SUBDOMAIN,
    EXTENDED_RESOURCE,
    FULL_ATTRIBUTE,
    LABEL_KEY,
    DeviceName,
    Int,
    Label,
    ObjectName,
    StaticQuantity,
)

_INT64 = 2**63
_TEXT_MAX = 253


def _attribute(value: Any) -> Any:
    """An attribute is a whole number, a boolean, a string, or a list of one of these."""
    if isinstance(value, list | tuple):
        if len({type(item) for item in value}) > 1 or any(isinstance(item, list | tuple) for item in value):
            raise PydanticCustomError("attribute", "a list attribute holds plain values of one type")
        if not 1 <= len(value) <= 64:
            raise PydanticCustomError("attribute", "a list attribute holds 1 to 64 values")
        return tuple(_attribute(item) for item in value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise PydanticCustomError("attribute", "a whole number must fit into 64 bits")
        return value
    if isinstance(value, str):
        if len(value) > _TEXT_MAX:
            raise PydanticCustomError("attribute", "a string has at most {limit} characters", {"limit": _TEXT_MAX})
        return value
    raise PydanticCustomError("attribute", "an attribute is a whole number, a boolean, a string, or a list of these")


AttributeValue = Annotated[Any, BeforeValidator(_attribute)]


class StaticDevice(BaseModel):
    """One device that no driver publishes."""

    model_config = model_config()

    name: Label = Field(description="Name of the device, unique on its node.")
    attributes: Annotated[dict[str, AttributeValue], Field(max_length=64)] = Field(
        default_factory=dict,
        description="Facts: whole numbers, booleans, strings, or lists of these. Names without a domain belong to "
        "adjoin.dev. Known ones: pcieRoot, pcieSwitch, numaNode, pciBusID, uuid, productName. Absent facts are "
        "unknown.",
    )
    capacity: Annotated[dict[str, StaticQuantity], Field(max_length=64)] = Field(
        default_factory=dict,
        description="Quantities such as memory: 80Gi. Names without a domain belong to adjoin.dev. Absent: none.",
    )


class StaticNode(BaseModel):
    """Devices of one node."""

    model_config = model_config()

    name: ObjectName = Field(description="Name of the node.")
    devices: Annotated[tuple[StaticDevice, ...], Field(max_length=512, json_schema_extra=keyed("name"))] = Field(
        default=(), description="Its devices. Absent: none."
    )


class ResourceSlicesSource(BaseModel):
    """Devices that a DRA driver publishes in ResourceSlices."""

    model_config = model_config()

    driver: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_SUBDOMAIN)] = Field(
        description="Name of the DRA driver, such as gpu.nvidia.com."
    )
    selectors: Selectors = Field(
        default=(), description="Conditions on the devices; all must hold. Absent: all of them."
    )


class NodeResourceSource(BaseModel):
    """Devices that a device plugin counts in the node's status."""

    model_config = model_config()

    name: Annotated[str, Field(min_length=3, max_length=317, pattern=EXTENDED_RESOURCE)] = Field(
        description="Resource in node.status.allocatable, such as nvidia.com/gpu."
    )


class StaticSource(BaseModel):
    """Devices listed here."""

    model_config = model_config()

    nodes: Annotated[tuple[StaticNode, ...], Field(min_length=1, max_length=16384, json_schema_extra=keyed("name"))] = (
        Field(description="Devices by node.")
    )


class DeviceSource(BaseModel):
    """Where devices come from; exactly one of the three."""

    model_config = model_config(rules(*checks.SOURCE))

    resource_slices: ResourceSlicesSource | None = Field(
        default=None, description="Devices published by a DRA driver. Absent: another source."
    )
    node_resource: NodeResourceSource | None = Field(
        default=None, description="Devices counted from node.status.allocatable. Absent: another source."
    )
    static: StaticSource | None = Field(
        default=None, description="Devices listed in this pool. Absent: another source."
    )


class DeviceClassRule(BaseModel):
    """Ranks some of the devices."""

    model_config = model_config()

    name: Label = Field(description="Name of the class, unique among the device's classes.")
    selectors: Selectors = Field(
        default=(), description="Conditions on the devices; all must hold. Absent: all of them."
    )
    performance: Annotated[Int, Field(ge=0, le=1_000_000)] = Field(
        default=0, description="Relative speed; a claim gets the slowest devices that satisfy it. Default: 0."
    )
    priority: Annotated[Int, Field(ge=-1_000_000, le=1_000_000)] = Field(
        default=0, description="Among otherwise equal devices those of higher priority are given first. Default: 0."
    )


class PoolDevice(BaseModel):
    """Devices under one name that claims ask for."""

    model_config = model_config()

    name: DeviceName = Field(description="Name that claims use in requests[].device, unique in the pool.")
    type: DeviceType = Field(description="GPU, RDMA or Other; GPUs and RDMA NICs have rows in topology matrices.")
    source: DeviceSource = Field(description="Where the devices come from.")
    classes: Annotated[
        tuple[DeviceClassRule, ...], Field(max_length=32, json_schema_extra=ATOMIC | rules(*checks.CLASSES))
    ] = Field(
        default=(),
        description="Ranks of the devices; the first class whose selectors match counts. Absent, or none matches: "
        "performance 0, priority 0.",
    )


class ConfigMapKey(BaseModel):
    """A text in a ConfigMap of the operator's namespace."""

    model_config = model_config(ATOMIC_MAP)

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=CONFIG_KEY)] = Field(
        description="Key of the text. <key>.gpus may list a PCI address or uuid per GPU row, one a line, in the order "
        "of the rows (of XML: of the GPUs' PCI addresses)."
    )


class TopologyMatrix(BaseModel):
    """The wiring of nodes of one shape."""

    model_config = model_config()

    node_selector: LabelSelector | None = Field(
        default=None,
        description="Nodes of this shape. Absent or empty: every node. The first entry that matches counts.",
    )
    config_map_ref: ConfigMapKey = Field(
        description="Text of `nvidia-smi topo -m` or of `rocm-smi --showtopo`, or XML of hwloc 2 (`lstopo --of xml`) "
        "or NCCL (NCCL_TOPO_DUMP_FILE); the text itself tells which."
    )


class FabricLevel(BaseModel):
    """One level of the network."""

    model_config = model_config()

    name: Label = Field(description="Name of the level, used in claims' fabric.")
    node_label: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)] = Field(
        description="Node label whose value names the domain; nodes without it are in no domain."
    )


class Topology(BaseModel):
    """How devices and nodes are wired."""

    model_config = model_config()

    attributes: Annotated[
        dict[
            str,
            Annotated[
                tuple[Annotated[str, Field(min_length=1, max_length=96, pattern=FULL_ATTRIBUTE)], ...],
                Field(min_length=1, max_length=16, json_schema_extra=ATOMIC),
            ],
        ],
        Field(max_length=32, json_schema_extra=rules(*checks.ALIASES)),
    ] = Field(
        default_factory=dict,
        description="Where a fact is read from: for a short name such as pcieRoot, pcieSwitch or numaNode the full "
        "attribute names, of which the first that a device has counts. Absent: resource.kubernetes.io/<name>, and "
        "adjoin.dev/<name> for static devices.",
    )
    matrices: Annotated[tuple[TopologyMatrix, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Wiring that drivers do not publish, by node shape. Absent: attributes alone decide."
    )
    fabric: Annotated[
        tuple[FabricLevel, ...], Field(max_length=8, json_schema_extra=ATOMIC | rules(*checks.FABRIC))
    ] = Field(default=(), description="Levels of the network, coarse to fine. Absent: nodes are equally near.")
