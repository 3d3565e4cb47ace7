"""Snapshots and plans as JSON: nothing is lost or taken for something else, and what is no record is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, NewType, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import make
from tests.support.strategies import snapshots

from adjoin_allocator import Plan, Snapshot, plan
from adjoin_allocator.cel import AttributeValue, Quantity, Selector, Version, compile_selector
from adjoin_allocator.snapshot import Claims
from adjoin_allocator.wire_format import (
    FormatError,
    Record,
    _make,
    decode_plan,
    decode_record,
    decode_snapshot,
    encode_plan,
    encode_record,
    encode_snapshot,
)

SELECTORS = ("true", "device.driver == 'gpu.nvidia.com'", "device.attributes['dra.net'].?rdma == optional.of(true)")
QUANTITIES = ("0", "40Gi", "1.5", "-3m", "1e3", "12345678901234567890123", "0.5Ki", "1n")

SCALARS = (
    st.sampled_from(("", "a", "\u00e9", "1")),
    st.sampled_from((0, 1, -(2**40))),
    st.booleans(),
    st.sampled_from(("1.2.3", "0.0.0-rc.1+b7")).map(Version.parse),
)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: SCALARS[0],
    int: SCALARS[1],
    bool: SCALARS[2],
    float: st.sampled_from((0.0, -1.5, 1e300, 1_000_000.25)),
    type(None): st.none(),
    Selector: st.sampled_from(SELECTORS).map(compile_selector),
    Quantity: st.sampled_from(QUANTITIES).map(Quantity.parse),
    AttributeValue: st.one_of(*SCALARS, *(st.lists(each, max_size=2).map(tuple) for each in SCALARS)),
}


@cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, whatever it is made of: few and small ones, but each field with all it can be."""
    known = next((made for each, made in LEAVES.items() if each == hint), None)
    if known is not None:
        return known
    if isinstance(hint, NewType):
        return values(hint.__supertype__)
    inner = get_args(hint)
    if get_origin(hint) in (tuple, Sequence):
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if get_origin(hint) is Mapping:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=2)
    if inner:
        return st.one_of(*map(values, inner))
    if issubclass(hint, StrEnum):
        return st.sampled_from(tuple(hint))
    return st.builds(hint, **{name: values(each) for name, each in get_type_hints(hint).items()})


def same(one: Any, other: Any) -> bool:
    """Whether two values say the same, types included, at any depth."""
    if isinstance(one, Claims):
        one = tuple(one)
    if isinstance(other, Claims):
        other = tuple(other)
    if type(one) is not type(other) and not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return False
    if isinstance(one, Selector):
        return one.expression == other.expression
    if isinstance(one, Quantity | Version):
        return all(getattr(one, slot) == getattr(other, slot) for slot in type(one).__slots__)
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def through_text(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(values(Snapshot))
def test_any_snapshot_comes_back(snapshot: Snapshot) -> None:
    """Every field of every type of the model, with values that no solver would ever see."""
    value = encode_snapshot(snapshot)
    again = decode_snapshot(through_text(value))
    assert same(snapshot, again)
    assert encode_snapshot(again) == value


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(snapshots())
def test_what_came_back_plans_as_before(snapshot: Snapshot) -> None:
    before = encode_plan(plan(snapshot, make.NOW))
    again = decode_snapshot(through_text(encode_snapshot(snapshot)))
    assert json.dumps(encode_plan(plan(again, make.NOW))) == json.dumps(before)
    assert encode_plan(decode_plan(through_text(before))) == before


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(values(Plan))
def test_any_plan_comes_back_without_its_stats(made: Plan) -> None:
    value = encode_plan(made)
    assert "stats" not in value
    assert encode_plan(decode_plan(through_text(value))) == value


def attribute(value: Any) -> Any:
    """What becomes of an attribute's value."""
    snapshot = make.snapshot([make.device(attributes={"x/y": value})])
    (device,) = decode_snapshot(through_text(encode_snapshot(snapshot))).inventory[make.NODE]
    return device.attributes["x/y"]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(True, id="true is not 1"),
        pytest.param(1, id="1 is not true"),
        pytest.param("1", id="text of digits"),
        pytest.param((), id="an empty list"),
        pytest.param((0, 1), id="a list of numbers"),
        pytest.param((True, False), id="a list of booleans"),
        pytest.param(("a", "b"), id="a list of texts"),
        pytest.param(Version.parse("1.2.3-rc.1"), id="a version"),
        pytest.param((Version.parse("1.2.3"), Version.parse("1.2.4")), id="a list of versions"),
        pytest.param("1.2.3", id="text that looks like a version"),
        pytest.param(2**62, id="a large number"),
        pytest.param("\u00e9\x00\n", id="odd text"),
    ],
)
def test_attributes_keep_their_types(value: Any) -> None:
    assert same(attribute(value), value)


@pytest.mark.parametrize("text", QUANTITIES)
def test_quantities_keep_how_they_were_written(text: str) -> None:
    quantity = Quantity.parse(text)
    snapshot = make.snapshot([make.device(capacity={"x/memory": quantity})])
    (device,) = decode_snapshot(through_text(encode_snapshot(snapshot))).inventory[make.NODE]
    assert same(device.capacity["x/memory"], quantity)
    assert str(device.capacity["x/memory"]) == str(quantity)


def test_a_record_says_what_it_is() -> None:
    snapshot = make.snapshot(make.flat(), [make.claim()])
    made = encode_plan(plan(snapshot, make.NOW))
    value = encode_record(Record(snapshot, make.NOW, made))
    assert (value["format"], value["version"], value["now"]) == ("adjoin.dev/allocator-record", 1, make.NOW)
    again = decode_record(through_text(value))
    assert again.plan == made
    assert same(again.snapshot, snapshot)


def _record(**changed: Any) -> Any:
    value = through_text(encode_record(Record(make.snapshot(make.flat(gpus=1), [make.claim()]), make.NOW)))
    return {key: item for key, item in {**value, **changed}.items() if item != "absent"}


def _snapshot(change: Any) -> Any:
    value = _record()
    change(value["snapshot"])
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param([], "the record: expected an object with format", id="no object"),
        pytest.param({}, "the record: expected an object with format", id="another object"),
        pytest.param({"kind": "List"}, "expected an object with format", id="a Kubernetes object"),
        pytest.param(_record(version=2), "version: 2 is not known, only 1 is", id="an unknown version"),
        pytest.param(_record(version=True), "version: True is not known", id="a version that is no number"),
        pytest.param(_record(version="absent"), "version: None is not known", id="no version"),
        pytest.param(_record(now="today"), "now: expected a number", id="no time"),
        pytest.param(_record(snapshot=None), "snapshot: expected an object", id="no snapshot"),
        pytest.param(
            _snapshot(lambda s: s["claims"][0].update(colour="red")),
            r"snapshot.claims\[0\].colour: is not known: the record was made by a newer version",
            id="a field that is not known",
        ),
        pytest.param(
            _snapshot(lambda s: s["claims"][0].pop("uid")), r"claims\[0\].uid: is missing", id="a field is missing"
        ),
        pytest.param(
            _snapshot(lambda s: s["claims"][0].update(profile="Fast")),
            r"claims\[0\].profile: 'Fast' is none of Compute, IO",
            id="a word that is not known",
        ),
        pytest.param(
            _snapshot(lambda s: s["claims"][0].update(replicas=True)), "expected a whole number", id="true for 1"
        ),
        pytest.param(_snapshot(lambda s: s["claims"][0].update(replicas=1.0)), "expected a whole number", id="1.0"),
        pytest.param(
            _snapshot(lambda s: s["inventory"]["node-a"][0].update(id=["d", "p"])),
            r"inventory.node-a\[0\].id: expected \[driver, pool, device\]",
            id="half a device's name",
        ),
        pytest.param(
            _snapshot(lambda s: s["inventory"]["node-a"][0].update(attributes={"x/y": [1, True]})),
            r"attributes.x/y: the values of a list are of one type",
            id="a mixed list",
        ),
        pytest.param(
            _snapshot(lambda s: s["inventory"]["node-a"][0].update(attributes={"x/y": {"version": "one"}})),
            "no version",
            id="a version that is none",
        ),
        pytest.param(
            _snapshot(lambda s: s["inventory"]["node-a"][0].update(capacity={"x/y": "4Gi"})),
            r"capacity.x/y: expected a quantity",
            id="a quantity as text",
        ),
        pytest.param(
            _snapshot(lambda s: s["claims"][0]["requests"][0].update(selectors=["device."])),
            r"requests\[0\].selectors\[0\]: not a selector",
            id="a selector that does not compile",
        ),
        pytest.param(
            _snapshot(lambda s: s.update(holds=[[["d", "p", "x"]]])),
            r"holds\[0\]: expected a key and a value",
            id="half a hold",
        ),
    ],
)
def test_what_is_no_record_is_refused(value: Any, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode_record(value)


def test_a_field_of_a_later_version_has_its_default() -> None:
    """A record made before a field was there."""
    value = _snapshot(lambda s: s["claims"][0].pop("preemptible"))
    assert decode_record(value).snapshot.claims[0].preemptible is True


@dataclass
class Odd:
    what: set[int]


@pytest.mark.parametrize("hint", [Odd, set[int], int | str, tuple[int, int], object], ids=str)
def test_a_model_that_could_not_be_recorded_is_a_mistake(hint: Any) -> None:
    with pytest.raises(TypeError, match="cannot be recorded"):
        _make(hint)


def test_not_a_number_is_never_written() -> None:
    with pytest.raises(FormatError, match="expected a number"):
        encode_snapshot(make.snapshot([], [make.claim(created=float("nan"))]))


def test_private_fields_stay_at_home() -> None:
    @dataclass
    class Kept:
        shown: int
        _hidden: set[int] | None = None

    globals()["Kept"] = Kept
    codec = _make(Kept)
    assert codec.encode(Kept(1, {2})) == {"shown": 1}
    assert codec.decode({"shown": 1}, "") == Kept(1)
