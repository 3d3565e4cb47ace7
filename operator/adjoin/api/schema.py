"""Pydantic model → structural schema, the dialect of OpenAPI that CustomResourceDefinitions speak.

In comes a model class, out goes a plain dictionary: references inlined, optional values without `null`, no titles, list
types on every list. A construct that has no structural form stops the conversion with its path; nothing is dropped
silently but what has the same meaning without it.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from adjoin.api.scalars import PATTERN_WORDS

Schema = dict[str, Any]

_KEEP: Final = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "properties",
    "additionalProperties",
    "items",
)
"""Keys of a structural schema, in the order in which people like to read them; `x-kubernetes-*` follow."""
_DROP: Final = frozenset({"title", "$defs"})


class NotStructural(ValueError):
    """The model uses something that a structural schema cannot say."""


def without_empty(value: Any) -> Any:
    """Leave out what says nothing, at every depth: null, empty lists and empty objects mean the same as absence."""
    if isinstance(value, dict):
        kept = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item is not None and item not in ([], {})}
    if isinstance(value, list | tuple):
        return [without_empty(item) for item in value]
    return value


@cache
def structural_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of a model as the API server wants it. Callers must not change the result."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    # Of metadata the API server has its own schema and takes no other.
    raw.get("properties", {}).pop("metadata", None)
    return _convert(raw, raw.get("$defs", {}), model.__name__, ())


def schema_at(schema: Schema, steps: Iterable[str | int]) -> Schema:
    """The part of a structural schema that describes what lies at these steps; empty where it says nothing."""
    for step in steps:
        if isinstance(step, int):
            schema = schema.get("items", {})
        else:
            schema = schema.get("properties", {}).get(step) or schema.get("additionalProperties", {})
    return schema


def _convert(node: Schema, defs: dict[str, Schema], path: str, seen: tuple[str, ...]) -> Schema:
    node, seen = _inline(node, defs, path, seen)
    if node.get("x-adjoin-spoken"):
        node = _spoken(node)
    if node.get("x-kubernetes-int-or-string"):
        dropped = {"type", *_DROP} if node.get("default") is not None else {"type", "default", *_DROP}
        return _ordered({key: value for key, value in node.items() if key not in dropped})
    out: Schema = {}
    for key, value in node.items():
        if key in _DROP:
            continue
        if key == "default":
            if (literal := without_empty(value)) not in (None, [], {}):
                out[key] = literal
            continue
        if key == "description":
            out[key] = " ".join(value.split())
        elif key == "const":
            out["enum"] = [value]
        elif key == "properties":
            out["properties"] = {name: _convert(sub, defs, f"{path}.{name}", seen) for name, sub in value.items()}
        elif key == "items":
            out["items"] = _convert(value, defs, f"{path}[]", seen)
        elif key == "additionalProperties":
            out |= _additional(value, defs, path, seen)
        elif key in _KEEP or key.startswith("x-kubernetes-"):
            out[key] = value
        else:
            raise NotStructural(f"{path}: {key} has no structural form")
    if "type" not in out:
        # `Any`: the value is checked by admission, the API server keeps it as it is.
        out["x-kubernetes-preserve-unknown-fields"] = True
    if out.get("type") == "integer":
        out.setdefault("format", "int64")
    if out.get("type") == "array" and "x-kubernetes-list-type" not in out:
        raise NotStructural(f"{path}: a list must say its x-kubernetes-list-type")
    return _ordered(out)


def _inline(node: Schema, defs: dict[str, Schema], path: str, seen: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
    """Replace a reference or an optional value by what it stands for; keys beside it win (description, default)."""
    while "$ref" in node or ("anyOf" in node and not node.get("x-kubernetes-int-or-string")):
        if "$ref" in node:
            name = node["$ref"].rsplit("/", 1)[-1]
            if name in seen:
                raise NotStructural(f"{path}: {name} contains itself")
            seen = (*seen, name)
            target = defs[name]
        else:
            choices = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
            if len(choices) != 1:
                raise NotStructural(f"{path}: a value of several types has no structural form")
            target = choices[0]
        node = target | {key: value for key, value in node.items() if key not in {"$ref", "anyOf"}}
    return node, seen


def _spoken(node: Schema) -> Schema:
    """Turn a pattern into a rule that says in words what the value should have been."""
    pattern = node["pattern"]
    test = f"self.matches(r'{pattern}')"
    if node.get("x-kubernetes-int-or-string"):
        test = f"type(self) == int || string(self).matches(r'{pattern}')"
    mark = {"x-kubernetes-validations": [{"rule": test, "message": f"must be {PATTERN_WORDS[pattern]}"}]}
    return {key: value for key, value in node.items() if key not in {"pattern", "x-adjoin-spoken"}} | mark


def _additional(value: Any, defs: dict[str, Schema], path: str, seen: tuple[str, ...]) -> Schema:
    if value is False:
        return {}
    if value is True:
        return {"additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}
    return {"additionalProperties": _convert(value, defs, f"{path}{{}}", seen)}


def _ordered(node: Schema) -> Schema:
    order = {key: position for position, key in enumerate(_KEEP)}
    return dict(sorted(node.items(), key=lambda item: order.get(item[0], len(order))))
