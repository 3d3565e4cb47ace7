"""Building blocks that the three kinds share: metadata, selectors, conditions, device identities.

Models are values: they hold what was written and compute nothing.
"""

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from adjoin.api.marks import ATOMIC, ATOMIC_MAP, keyed, model_config, rule, rules
from adjoin.api.scalars import DNS_SUBDOMAIN, LABEL_KEY, LABEL_VALUE, REASON_CODE, Int, Known, Timestamp


class DeviceType(StrEnum):
    GPU = "GPU"
    RDMA = "RDMA"
    OTHER = "Other"


class OwnerReference(BaseModel):
    """Owner of an object, told by UID."""

    model_config = model_config()

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(BaseModel):
    """Kubernetes' own metadata, as far as anybody may see it; the API server defines and checks it."""

    model_config = model_config()

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: tuple[dict[str, Any], ...] = ()
    self_link: str | None = None


class CELSelector(BaseModel):
    """One condition on a device."""

    model_config = model_config()

    cel: Annotated[str, Field(min_length=1, max_length=10240)] = Field(
        description="CEL expression over `device` that is true for devices that may be used, with the meaning it has "
        "in a ResourceClaim: device.driver, device.attributes['domain'].name, device.capacity['domain'].name. An "
        "expression that fails on a device does not match it."
    )


Selectors = Annotated[tuple[CELSelector, ...], Field(max_length=32, json_schema_extra=ATOMIC)]


class SelectorOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(BaseModel):
    """One condition on a label."""

    model_config = model_config(
        rules(
            rule(
                "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 "
                ": !has(self.values) || size(self.values) == 0",
                says="(self.operator in ['In', 'NotIn'] ? 'operator %s needs at least one value' "
                ": 'operator %s takes no values').format([self.operator])",
                path=".values",
            )
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)] = Field(description="Label key.")
    operator: SelectorOperator = Field(
        description="In and NotIn compare with `values`, Exists and DoesNotExist look at the key alone."
    )
    values: Annotated[
        tuple[Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)], ...],
        Field(max_length=64, json_schema_extra=ATOMIC),
    ] = Field(default=(), description="Values for In and NotIn. Absent with Exists and DoesNotExist.")


class LabelSelector(BaseModel):
    """Selects objects by their labels; all conditions must hold, an empty selector matches everything."""

    model_config = model_config(ATOMIC_MAP)

    match_labels: Annotated[
        dict[str, Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]], Field(max_length=64)
    ] = Field(default_factory=dict, description="Labels that must have exactly these values. Absent: none.")
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=64, json_schema_extra=ATOMIC)] = Field(
        default=(), description="Further conditions on labels. Absent: none."
    )


class PoolRef(BaseModel):
    """Names a DevicePool."""

    model_config = model_config(ATOMIC_MAP)

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_SUBDOMAIN)] = Field(
        description="Name of the DevicePool."
    )


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(BaseModel):
    """One observed fact about the object."""

    model_config = model_config()

    type: Annotated[str, Field(max_length=316)] = Field(description="What is observed, in CamelCase.")
    status: Annotated[str, Known(ConditionStatus)] = Field(description="True, False or Unknown.")
    observed_generation: Annotated[Int, Field(ge=0)] | None = Field(
        default=None, description="metadata.generation of the object that this condition speaks of."
    )
    last_transition_time: Timestamp = Field(description="When `status` last changed.")
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=REASON_CODE)] = Field(
        description="Why, as one word in CamelCase."
    )
    message: Annotated[str, Field(max_length=32768)] = Field(description="Why, as a sentence for people.")


Conditions = Annotated[tuple[Condition, ...], Field(max_length=32, json_schema_extra=keyed("type"))]
CONDITIONS_TEXT: Final = "Observed facts, one per type."


class DeviceRef(BaseModel):
    """One device, by the identity that its driver publishes."""

    model_config = model_config()

    driver: Annotated[str, Field(max_length=253)] = Field(description="DRA driver.")
    pool: Annotated[str, Field(max_length=253)] = Field(description="The driver's pool, usually the node's name.")
    device: Annotated[str, Field(max_length=253)] = Field(description="Name of the device in that pool.")
    id: Annotated[str, Field(max_length=253)] | None = Field(
        default=None, description="Stable hardware identity: uuid, else PCI address, else <node>/<name>."
    )
