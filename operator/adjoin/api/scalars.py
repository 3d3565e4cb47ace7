"""Scalar types of the API with their limits.

Each is checked by a pattern that the API server and pydantic read alike: ASCII digits only, no NaN, no infinity,
nothing that would not fit into 63 bits. Values keep the text that was written; `quantity` reads it.
"""

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from adjoin.api.marks import Mark

DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
IDENTIFIER: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,31}$"
FULL_ATTRIBUTE: Final = r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]{0,31}$"
ATTRIBUTE: Final = r"^([a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?/)?[A-Za-z_][A-Za-z0-9_]{0,31}$"
LABEL_KEY: Final = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
EXTENDED_RESOURCE: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
NETWORK: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/([-a-z0-9.]|\{device\})+$"
CONFIG_KEY: Final = r"^[-._a-zA-Z0-9]+$"
REASON_CODE: Final = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"

# Every alternative ends below 2^63, so that no reader has to cap a value.
QUANTITY: Final = (
    r"^([0-9]{1,18}(\.[0-9]{1,9})?[num]?"
    r"|[0-9]{1,15}(\.[0-9]{1,9})?(k|Ki)"
    r"|[0-9]{1,12}(\.[0-9]{1,9})?(M|Mi)"
    r"|[0-9]{1,9}(\.[0-9]{1,9})?(G|Gi)"
    r"|[0-9]{1,6}(\.[0-9]{1,9})?(T|Ti)"
    r"|[0-9]{1,3}(\.[0-9]{1,9})?(P|Pi)"
    r"|[0-8](\.[0-9]{1,9})?E|[0-7](\.[0-9]{1,9})?Ei"
    r"|[0-9]{1,3}(\.[0-9]{1,9})?[eE]\+?(1[0-5]|[0-9]))$"
)
BYTES: Final = QUANTITY.replace("[num]?", "")
COMPUTE: Final = (
    r"^(1(\.0{1,3})?|1000m|([1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9])m|0?\.([1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9]))$"
)
_UNIT: Final = r"(h|m|s|ms)"
DURATION: Final = rf"^([0-9]{{1,5}}{_UNIT}){{1,4}}$"
POSITIVE_DURATION: Final = (
    rf"^([0-9]{{1,5}}{_UNIT}){{0,3}}[0-9]{{0,4}}[1-9][0-9]{{0,4}}{_UNIT}([0-9]{{1,5}}{_UNIT}){{0,3}}$"
)
ZERO_OR_DURATION: Final = rf"^(0|([0-9]{{1,5}}{_UNIT}){{1,4}})$"
PERCENT: Final = r"^(100|[0-9]{1,2})(\.[0-9]{1,3})?%$"

PATTERN_WORDS: Final[dict[str, str]] = {
    DNS_LABEL: "a DNS label: lower-case letters, digits and '-', starting and ending with a letter or digit",
    DNS_SUBDOMAIN: "a DNS name: lower-case letters, digits, '-' and '.'",
    IDENTIFIER: "a plain name of at most 32 letters, digits and '_'",
    FULL_ATTRIBUTE: "a full attribute name such as dra.net/rail",
    ATTRIBUTE: "an attribute name such as numaNode or dra.net/rail",
    LABEL_KEY: "a label key such as topology.kubernetes.io/zone",
    LABEL_VALUE: "a label value of at most 63 letters, digits, '-', '_' and '.'",
    EXTENDED_RESOURCE: "an extended resource such as nvidia.com/gpu",
    NETWORK: "<namespace>/<name> of a NetworkAttachmentDefinition; in the name {device} stands for the device's name",
    CONFIG_KEY: "a ConfigMap key: letters, digits, '-', '_' and '.'",
    REASON_CODE: "one word in CamelCase",
    QUANTITY: "a quantity from 0 up to below 8Ei, such as 500m, 16 or 40Gi",
    BYTES: "a number of bytes from 0 up to below 8Ei, such as 1073741824, 256Mi or 40Gi",
    COMPUTE: "a part of one card from 1m to 1, such as 250m or 0.5 (ask for more cards by `count`)",
    DURATION: "a duration such as 300ms, 30s or 1h30m",
    POSITIVE_DURATION: "a duration longer than zero, such as 300ms, 30s or 1h30m",
    ZERO_OR_DURATION: "0 or a duration such as 300ms, 30s or 1h30m",
    PERCENT: "a percentage from 0% to 100%",
}
"""What a value should have been, in words; parsing errors say it."""

SPOKEN: Final[Mark] = {"x-adjoin-spoken": True}
"""The CRD says such a pattern as a rule with words, since nobody reads a remedy out of the expression itself."""

Int = Annotated[int, Strict()]
Bool = Annotated[bool, Strict()]
Text = Annotated[str, Field(max_length=4096)]
Label = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
DeviceName = Annotated[str, Field(min_length=1, max_length=48, pattern=DNS_LABEL)]
"""A device name of a pool; short, so that `<name>-<number>` is a DNS label too."""
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
Namespace = Label
Duration = Annotated[str, Field(max_length=32, pattern=DURATION, json_schema_extra=SPOKEN)]
PositiveDuration = Annotated[str, Field(max_length=64, pattern=POSITIVE_DURATION, json_schema_extra=SPOKEN)]
Percent = Annotated[str, Field(max_length=8, pattern=PERCENT, json_schema_extra=SPOKEN)]
UID = Annotated[str, Field(min_length=1, max_length=128)]


def _scalar(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("int_or_string", "must be a whole number or a string")
    return str(value)


def _int_or_string(minimum: int, maximum: int) -> Mark:
    limits = {"minimum": minimum, "maximum": maximum}
    return {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], **limits}


StaticQuantity = Annotated[
    str,
    Field(max_length=48, pattern=QUANTITY, json_schema_extra=_int_or_string(0, 10**18 - 1)),
    BeforeValidator(_scalar),
]
"""A Kubernetes quantity, never negative, kept as it was written; a whole number is read as its digits. This form stands
in lists so long that a rule on each item would be too costly for the API server."""
Quantity = Annotated[
    str,
    Field(max_length=48, pattern=QUANTITY, json_schema_extra=_int_or_string(0, 10**18 - 1) | SPOKEN),
    BeforeValidator(_scalar),
]
"""The same with words of its own when it is refused."""
Bytes = Annotated[
    str,
    Field(max_length=48, pattern=BYTES, json_schema_extra=_int_or_string(0, 10**18 - 1) | SPOKEN),
    BeforeValidator(_scalar),
]
"""A quantity of bytes: no `m`, which would be thousandths of a byte."""
Compute = Annotated[
    str,
    Field(max_length=8, pattern=COMPUTE, json_schema_extra=_int_or_string(1, 1) | SPOKEN),
    BeforeValidator(_scalar),
]
"""A part of one card in whole thousandths."""
ZeroOrDuration = Annotated[
    str,
    Field(max_length=32, pattern=ZERO_OR_DURATION, json_schema_extra=_int_or_string(0, 0) | SPOKEN),
    BeforeValidator(_scalar),
]
"""A duration for which a bare 0 is worth writing."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _timestamp(value: Any) -> Any:
    if isinstance(value, datetime) or (isinstance(value, str) and _RFC3339.fullmatch(value)):
        return value
    raise PydanticCustomError("timestamp", "must be a time as in RFC 3339, such as 2026-12-01T08:00:00Z")


Timestamp = Annotated[AwareDatetime, BeforeValidator(_timestamp)]


class Known:
    """Text from a vocabulary that the API server and strict parsing enforce, but reading the cluster does not: a status
    that a newer version wrote must still be read, or its devices would look free."""

    def __init__(self, values: type[StrEnum]) -> None:
        self.values = tuple(str(value) for value in values)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"enum": list(self.values)}

    def _check(self, value: str, info: core_schema.ValidationInfo) -> str:
        if info.context and info.context.get("strict") and value not in self.values:
            raise PydanticCustomError("enum", "must be one of {expected}", {"expected": ", ".join(self.values)})
        return value
