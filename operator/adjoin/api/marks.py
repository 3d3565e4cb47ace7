"""What a model tells the API server beyond types: list types, map types and CEL rules.

The marks are plain dictionaries that pydantic merges into its JSON schema; `schema` carries them into the CRD as
they are. They never change how a model parses.
"""

from typing import Any

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

Mark = dict[str, Any]

ATOMIC: Mark = {"x-kubernetes-list-type": "atomic"}
"""A list that one owner writes as a whole; its order may carry meaning."""
SET: Mark = {"x-kubernetes-list-type": "set"}
"""A list of distinct scalars without order."""
ATOMIC_MAP: Mark = {"x-kubernetes-map-type": "atomic"}
"""An object that one owner writes as a whole (keeps managedFields small)."""


def keyed(*keys: str) -> Mark:
    """A list of objects told apart by these keys: duplicates are refused and server-side apply merges by key."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def rule(expression: str, message: str = "", *, says: str = "", path: str = "") -> Mark:
    """One CEL rule. `message` is fixed text, `says` a CEL expression that makes the text, `path` the field to blame."""
    mark: Mark = {"rule": expression}
    if says:
        mark["messageExpression"] = says
    if message:
        mark["message"] = message
    if path:
        mark["fieldPath"] = path
    return mark


def optional(path: str, default: str) -> str:
    """CEL: the value at `path` (such as self.lifecycle.init), or `default` when any step after the first is absent.

    The API server bounds the cost of this form, but not that of CEL's own optional syntax (`.?x.orValue()`), nor of
    `string(x)` in messages: there `'%d'.format([x])` is the bounded form.
    """
    first, *steps = path.split(".")
    present: list[str] = []
    for step in steps:
        first = f"{first}.{step}"
        present.append(f"has({first})")
    return f"({' && '.join(present)} ? {path} : {default})"


def frozen(field: str, kind: str) -> Mark:
    """A field that may not change, nor appear or vanish, once the object exists."""
    return rule(
        # Every look at a field costs the API server a copy of all fields' schemas, at every write of the status too.
        f"has(self.{field}) ? has(oldSelf.{field}) && self.{field} == oldSelf.{field} : !has(oldSelf.{field})",
        f"{field} is immutable; delete the {kind} and create it anew",
        path=f".{field}",
    )


def frozen_list(field: str, kind: str) -> Mark:
    """The same for a list, of which an empty one is as good as none."""
    now, before = optional(f"self.{field}", "[]"), optional(f"oldSelf.{field}", "[]")
    return rule(f"{now} == {before}", f"{field} is immutable; delete the {kind} and create it anew", path=f".{field}")


def rules(*marks: Mark) -> Mark:
    """Rules of a field or model, in the order in which they are shown."""
    return {"x-kubernetes-validations": list(marks)}


def model_config(*marks: Mark) -> ConfigDict:
    """Settings of every model: immutable values, camelCase in YAML, unknown keys ignored unless the caller forbids "
    "them."""
    extra: Mark = {}
    for mark in marks:
        extra |= mark
    return ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        json_schema_extra=extra or None,
    )
