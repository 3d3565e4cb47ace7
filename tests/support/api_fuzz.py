"""Random objects of our kinds, made from their schema: mostly right, with a mistake here and there.

Comes in: a seeded random source. Goes out: manifests. Used to find objects on which the API server and `validate`
disagree.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.api_objects import Manifest
from tests.support.odd_numbers import ODD_NUMBERS

from adjoin.api.claim import DeviceClaim
from adjoin.api.pool import DevicePool
from adjoin.api.schema import Schema, structural_schema
from adjoin.api.share import DeviceShare

MODELS = {"DeviceClaim": DeviceClaim, "DevicePool": DevicePool, "DeviceShare": DeviceShare}
NAMES = ("gpu", "nic", "a", "b")
TEXTS = ("gpu", "nic", "a", "b", "a.b", "dra.net/rail", "A_b", "", "x" * 70, "1Gi", "5m", "0", "50%", "a b", "/")
ODD = tuple(value for value in ODD_NUMBERS if not isinstance(value, float) or abs(value) < 1e307)
# Only Adjoin's own admission can tell these, so they are left alone or made right.
BEYOND_THE_CRD = frozenset({"cel", "attributes", "matchLabels", "capacity", "namespaces", "template", "generateName"})

AT_ODDS = (
    ("all", "count"),
    ("scope", "attribute"),
    ("scope", "over"),
    ("replicas", "scaling"),
    ("gang", "scaling"),
    ("firstOf", "count"),
    ("firstOf", "share"),
    ("priority", "priorityClassName"),
    ("layout", "dynamic"),
    ("slots", "memory"),
    ("resourceSlices", "static"),
    ("resourceSlices", "nodeResource"),
    ("nodeResource", "static"),
)
"""Fields that rarely go together; without this hardly any object would be right."""


def fuzzed(source: Random, kind: str, mistakes: float) -> Manifest:
    """One object; `mistakes` is how likely each value is odd."""
    spec = structural_schema(MODELS[kind])["properties"]["spec"]
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "fuzzed"},
        "spec": _value(source, "spec", spec, mistakes, 0),
    }


def _value(source: Random, name: str, schema: Schema, mistakes: float, depth: int) -> Any:
    if name == "cel":
        return "true"
    if source.random() < mistakes:
        return source.choice([source.choice(ODD), source.choice(TEXTS), [], {}, [1], {"a": 1}])
    if "properties" in schema:
        return _object(source, schema, mistakes, depth)
    if "enum" in schema:
        return source.choice(schema["enum"])
    match schema.get("type"):
        case "array":
            count = source.choice([schema.get("minItems", 0), 1, 1, 2, 2, 3])
            return [_value(source, f"{name}[]", schema["items"], mistakes, depth + 1) for _ in range(count)]
        case "object":
            keys = source.sample(NAMES, source.randint(0, 2))
            item = schema.get("additionalProperties", {"type": "string"})
            return {key: _value(source, "", item, mistakes, depth + 1) for key in keys}
        case "boolean":
            return source.random() < 0.5
        case "integer":
            low, high = schema["minimum"], schema["maximum"]
            return source.choice([low, high, low - 1 if mistakes else low, max(low, min(high, source.randint(1, 4)))])
        case "string" if schema.get("format") == "date-time":
            return "2026-12-01T08:00:00Z"
        case "string":
            return _text(source, name, schema)
        case _:
            return source.choice([0, 1, "0", "1", "500m", "1Gi", "5m"])


def _object(source: Random, schema: Schema, mistakes: float, depth: int) -> Manifest:
    made: Manifest = {}
    for field, part in schema["properties"].items():
        if field in BEYOND_THE_CRD and field != "cel":
            if field == "template":
                made[field] = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
            continue
        wanted = field in schema.get("required", ()) or field == "requests"
        if (wanted and source.random() >= mistakes) or source.random() < 0.9 / (len(schema["properties"]) + depth):
            made[field] = _value(source, field, part, mistakes, depth + 1)
    if source.random() < mistakes / 4:
        made["surprise"] = 1
    for one, other in AT_ODDS:
        if one in made and other in made and source.random() < 0.8:
            del made[source.choice([one, other])]
    return made


def _text(source: Random, name: str, schema: Schema) -> str:
    if "x-kubernetes-validations" in schema:
        return source.choice(["5m", "1h30m", "300ms", "50%", "3%", "0s"])
    if name in ("attribute",) or ("/" in schema.get("pattern", "") and "key" not in name.lower()):
        return source.choice(["numaNode", "dra.net/rail", "a.b/c"])
    return source.choice(NAMES)
