"""Nothing is accepted and ignored: every leaf of the three schemas either has behaviour or is refused."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.api_objects import Manifest, claim, pool, share

from adjoin.api.claim import DeviceClaim
from adjoin.api.errors import ErrorKind
from adjoin.api.names import Kind
from adjoin.api.pool import DevicePool
from adjoin.api.schema import Schema, structural_schema
from adjoin.api.share import DeviceShare
from adjoin.api.supported import REFUSED, SUPPORTED, Refused, unsupported
from adjoin.api.validate import validate_claim, validate_pool

MODELS = {Kind.DEVICE_POOL: DevicePool, Kind.DEVICE_SHARE: DeviceShare, Kind.DEVICE_CLAIM: DeviceClaim}


BUILDERS = {Kind.DEVICE_POOL: pool, Kind.DEVICE_SHARE: share, Kind.DEVICE_CLAIM: claim}


def leaves(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every field that holds a value by itself, as the tables write paths."""
    if "properties" in schema:
        for name, child in schema["properties"].items():
            yield from leaves(child, f"{path}.{name}")
    elif "items" in schema:
        yield from leaves(schema["items"], f"{path}[]")
    elif "additionalProperties" in schema:
        yield from leaves(schema["additionalProperties"], f"{path}{{}}")
    else:
        yield path, schema


def spec_of(kind: Kind) -> Schema:
    spec: Schema = structural_schema(MODELS[kind])["properties"]["spec"]
    return spec


LEAVES = [(kind, path, schema) for kind in Kind for path, schema in leaves(spec_of(kind), "spec")]


def is_refused(kind: Kind, path: str) -> bool:
    return any(
        path == entry.path or path.startswith((f"{entry.path}.", f"{entry.path}[", f"{entry.path}{{"))
        for entry in REFUSED[kind]
    )


@pytest.mark.parametrize("kind", Kind)
def test_the_two_tables_cover_the_schema_and_nothing_else(kind: Kind) -> None:
    known = {path for of, path, _ in LEAVES if of is kind}
    refused = {path for path in known if is_refused(kind, path)}
    assert known - refused == SUPPORTED[kind]
    for entry in REFUSED[kind]:
        assert any(path.startswith(entry.path) for path in refused), f"{entry.path} is no field"


def sample(path: str, schema: Schema) -> Any:
    """A value that is not the default."""
    default = schema.get("default")
    if "enum" in schema:
        return next(value for value in schema["enum"] if value not in (default, "Replica"))
    match schema.get("type"):
        case "integer":
            return schema["minimum"] + (1 if schema["minimum"] == default else 0)
        case "boolean":
            return not default
        case "string" if schema.get("format") == "date-time":
            return "2026-12-01T08:00:00Z"
        case "string":
            return "7m" if "x-kubernetes-validations" in schema else "a/b" if "nodeLabel" in path else "x"
        case None if schema.get("x-kubernetes-int-or-string"):
            return 0
        case _:
            return {"any": "thing"}


def place(obj: Manifest, path: str, value: Any) -> Manifest:
    """Put a value at a path of the tables, into the first entry of every list and under key `x` of every map."""
    steps = path.replace("[]", ".[]").replace("{}", ".{}").split(".")
    obj = copy.deepcopy(obj)
    holder: Any = obj
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        key = {"[]": 0, "{}": "x"}.get(step, step)
        if following is None:
            if isinstance(holder, list):
                holder[:1] = [value]
            else:
                holder[key] = value
            break
        empty: Any = [] if following == "[]" else {}
        if isinstance(holder, list):
            if not holder:
                holder.append(empty)
            holder = holder[0]
        else:
            holder = holder.setdefault(key, empty)
    return obj


@pytest.mark.parametrize(
    ("kind", "path", "schema"), [pytest.param(*leaf, id=f"{leaf[0]}.{leaf[1]}") for leaf in LEAVES]
)
def test_a_field_in_the_table_is_refused_by_its_path(
    kind: Kind, path: str, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever field has no behaviour for a while."""
    obj = place(BUILDERS[kind](), path, value := sample(path, schema))
    monkeypatch.setitem(REFUSED, kind, (Refused(path),))
    errors = unsupported(kind, obj, structural_schema(MODELS[kind]))
    concrete = path.replace("[]", "[0]").replace("{}", ".x")
    mine = [error for error in errors if concrete.startswith(error.path)]
    assert len(mine) == 1
    assert mine[0].kind is ErrorKind.UNSUPPORTED
    assert mine[0].message == f"not supported yet: {mine[0].path}"
    assert mine[0].value == value


@pytest.mark.parametrize(
    ("kind", "path", "schema"),
    [pytest.param(*leaf, id=f"{leaf[0]}.{leaf[1]}") for leaf in LEAVES if not is_refused(leaf[0], leaf[1])],
)
def test_a_field_with_behaviour_is_not(kind: Kind, path: str, schema: Schema) -> None:
    obj = place(BUILDERS[kind](), path, sample(path, schema))
    assert unsupported(kind, obj, structural_schema(MODELS[kind])) == []


@pytest.mark.parametrize("kind", [Kind.DEVICE_POOL, Kind.DEVICE_CLAIM])
def test_defaults_are_no_wishes(kind: Kind) -> None:
    """Every default of the schema, spelled out as the server spells it out, is as good as absence."""
    obj = BUILDERS[kind]()
    for of, path, schema in LEAVES:
        if of is kind and "default" in schema and "[]" not in path and not path.startswith("spec.tenancy"):
            obj = place(obj, path, schema["default"])
    validate = validate_claim if kind is Kind.DEVICE_CLAIM else validate_pool
    assert validate(obj) == []


WITHOUT = {
    Kind.DEVICE_POOL: (),
    Kind.DEVICE_SHARE: (Refused("spec.mode", ("Fractional",)), Refused("spec.timeSliced"), Refused("spec.prepare")),
    Kind.DEVICE_CLAIM: (Refused("spec.requests[].share.slots"), Refused("spec.requests[].share.profile")),
}
"""Fields as if they had no behaviour."""


@pytest.mark.parametrize(
    ("obj", "messages"),
    [
        pytest.param(
            claim(requests=[{"name": "gpu"}, {"name": "nic", "share": {"name": "a", "slots": 2}}]),
            ["not supported yet: spec.requests[1].share.slots"],
            id="the index is that of the entry",
        ),
        pytest.param(
            claim(requests=[{"name": "gpu", "share": {"name": "a", "profile": "1g.10gb", "slots": 2}}]),
            ["not supported yet: spec.requests[0].share.slots", "not supported yet: spec.requests[0].share.profile"],
            id="all are named",
        ),
        pytest.param(claim(fabric=None, suspend=False), [], id="null and the default are none"),
        pytest.param(pool(topology={"fabric": []}, lifecycle={"init": []}), [], id="empty lists are none"),
        pytest.param(
            share(prepare="OnDemand"),
            ["not supported yet: spec.mode", "not supported yet: spec.timeSliced"],
            id="only what differs from the default is named",
        ),
        pytest.param(
            share(),
            ["not supported yet: spec.mode", "not supported yet: spec.timeSliced"],
            id="another value",
        ),
        pytest.param(share(mode="Fractional", timeSliced=None), [], id="a value that means the same as absence"),
    ],
)
def test_messages(obj: Manifest, messages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind(obj["kind"])
    monkeypatch.setitem(REFUSED, kind, WITHOUT[kind])
    errors = unsupported(kind, obj, structural_schema(MODELS[kind]))
    assert [error.message for error in errors] == messages


def test_an_error_tells_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REFUSED, Kind.DEVICE_CLAIM, WITHOUT[Kind.DEVICE_CLAIM])
    asked = claim(requests=[{"name": "gpu", "share": {"name": "quarters", "profile": "1g.10gb"}}])
    (error,) = unsupported(Kind.DEVICE_CLAIM, asked, structural_schema(DeviceClaim))
    assert str(error) == 'not supported yet: spec.requests[0].share.profile (found "1g.10gb")'


def test_what_has_another_shape_than_the_schema_is_passed_over() -> None:
    assert unsupported(Kind.DEVICE_CLAIM, {"spec": {"requests": {"name": "a"}, "gang": None}}, {}) == []
