"""Reading: strict for people, lenient for the cluster, and back without loss."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.api_objects import Manifest, claim, pool, static

from adjoin.api import DeviceClaim, DevicePool, Phase
from adjoin.api.errors import FieldError, InvalidObject, path_of, shown
from adjoin.api.parse import dump, parse_lenient, parse_strict


def errors_of(obj: Manifest) -> list[FieldError]:
    with pytest.raises(InvalidObject) as caught:
        parse_strict(DeviceClaim, obj)
    return list(caught.value.errors)


def test_lenient_passes_over_what_a_newer_version_wrote() -> None:
    obj = claim(newField={"a": 1}, requests=[{"name": "gpu", "colour": "red"}])
    obj["status"] = {
        "phase": "Migrating",
        "novelty": 1,
        "reasons": [{"code": "MoonPhase", "message": "full"}],
        "allocation": {"replicas": [{"index": 0, "node": "n1", "state": "Moving", "devices": []}]},
    }
    read = parse_lenient(DeviceClaim, obj)
    assert read.status is not None
    assert read.status.phase == "Migrating"
    assert read.status.allocation is not None
    assert read.status.allocation.replicas[0].state == "Moving"
    assert {error.path for error in errors_of(obj)} == {
        "spec.newField",
        "spec.requests[0].colour",
        "status.phase",
        "status.novelty",
        "status.reasons[0].code",
        "status.allocation.replicas[0].state",
    }


def test_words_of_the_vocabulary_compare_with_text() -> None:
    read = parse_strict(DeviceClaim, claim() | {"status": {"phase": "Ready"}})
    assert read.status is not None
    assert read.status.phase == Phase.READY


@pytest.mark.parametrize("value", [{"count": "many"}, {"count": 0}, {"name": None}])
def test_lenient_still_refuses_what_a_field_cannot_hold(value: Manifest) -> None:
    with pytest.raises(InvalidObject):
        parse_lenient(DeviceClaim, claim(requests=[{"name": "gpu", **value}]))


def test_models_are_values() -> None:
    read = parse_strict(DeviceClaim, claim())
    with pytest.raises(ValueError, match="frozen"):
        read.spec.replicas = 3  # type: ignore[misc]
    assert read == parse_strict(DeviceClaim, claim())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"priorty": 1}, "unknown field; did you mean priority?", id="a slip of the finger"),
        pytest.param({"Replicas": 1}, "unknown field; did you mean replicas?", id="another case"),
        pytest.param({"idle_timeout": "5m"}, "unknown field; did you mean idleTimeout?", id="snake case"),
        pytest.param(
            {"affinity": [{"requests": ["gpu", "nic"], "scpe": "Node"}]},
            "unknown field; did you mean scope?",
            id="within a list",
        ),
        pytest.param(
            {"host": {"gpus": 8}}, "unknown field; known are cpu, memory", id="nothing near: all that there is"
        ),
        pytest.param({"suspend": "yes"}, "must be true or false", id="text for a boolean"),
        pytest.param({"suspend": 1}, "must be true or false", id="a number for a boolean"),
        pytest.param({"replicas": True}, "must be a whole number", id="a boolean for a number"),
        pytest.param({"replicas": 2.0}, "must be a whole number", id="a fraction for a number"),
        pytest.param({"release": 1}, "must be one of WhenDeleted, WhenPodsFinish", id="a number for a word"),
        pytest.param({"poolRef": "training"}, "must be an object with fields", id="text for an object"),
        pytest.param({"requests": {"name": "gpu"}}, "must be a list", id="an object for a list"),
        pytest.param({"poolRef": {"name": 7}}, "must be text; put quotes around it", id="a number for text"),
        pytest.param({"poolRef": {}}, "is required: Name of the DevicePool.", id="something missing"),
        pytest.param({"host": {"cpu": True}}, "must be a whole number or a string", id="a boolean for a quantity"),
        pytest.param({"host": {"cpu": 0.5}}, "must be a whole number or a string", id="a fraction for a quantity"),
        pytest.param({"deadline": 1764489600}, "must be a time as in RFC 3339", id="seconds for a time"),
        pytest.param({"deadline": "2026-12-01"}, "must be a time as in RFC 3339", id="a day for a time"),
        pytest.param({"requests": [{"name": "g"}] * 33}, "must have at most 32 entries", id="too many"),
    ],
)
def test_messages_say_what_was_meant(change: Manifest, message: str) -> None:
    (error,) = errors_of(claim(**change))
    assert error.message.startswith(message)


def test_quantities_and_times_keep_their_meaning() -> None:
    read = parse_strict(DeviceClaim, claim(host={"cpu": 96, "memory": "1Ti"}, deadline="2026-12-01T09:00:00+01:00"))
    assert read.spec.host is not None
    assert (read.spec.host.cpu, read.spec.host.memory) == ("96", "1Ti")
    assert read.spec.deadline == datetime(2026, 12, 1, 8, tzinfo=UTC)


def test_static_attributes_keep_their_types() -> None:
    facts: Manifest = {"numaNode": [0, 1], "rdma": True, "rail": 3, "uuid": "GPU-1"}
    read = parse_strict(DevicePool, static({"name": "g0", "attributes": facts}))
    source = read.spec.devices[0].source.static
    assert source is not None
    kept = source.nodes[0].devices[0].attributes
    assert kept == {"numaNode": (0, 1), "rdma": True, "rail": 3, "uuid": "GPU-1"}
    assert [type(value) for value in kept.values()] == [tuple, bool, int, str]


def test_dump_is_the_way_back() -> None:
    obj = pool(delivery={"guard": "None"}, topology={"matrices": [{"configMapRef": {"name": "a", "key": "b"}}]})
    read = parse_strict(DevicePool, obj)
    again = dump(read)
    assert parse_strict(DevicePool, again) == read
    assert again["spec"]["topology"] == obj["spec"]["topology"]
    assert "status" not in again
    assert again["spec"]["delivery"] == {"mode": "ResourceClaim", "guard": "None", "split": "Size"}
    assert dump(read, empty=True)["spec"]["tolerations"] == []


def test_odd_names_of_status_fields() -> None:
    status: Manifest = {
        "evictions": [{"byUID": "u", "at": "2026-12-01T08:00:00Z"}],
        "allocation": {
            "replicas": [
                {"index": 0, "node": "n", "bootID": "b", "hooks": [{"name": "h", "phase": "Failed", "bootID": "b"}]}
            ]
        },
    }
    assert dump(parse_strict(DeviceClaim, claim() | {"status": status}))["status"] == {
        "evictions": [{"byUID": "u", "at": "2026-12-01T08:00:00Z"}],
        "allocation": {
            "replicas": [
                {
                    "index": 0,
                    "node": "n",
                    "state": "Ready",
                    "bootID": "b",
                    "hooks": [{"name": "h", "phase": "Failed", "bootID": "b"}],
                }
            ]
        },
    }


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        pytest.param(("spec", "requests", 0, "count"), "spec.requests[0].count", id="lists"),
        pytest.param(("quota", "nvidia.com/gpu"), "quota[nvidia.com/gpu]", id="a key with dots and slashes"),
        pytest.param(("a", "b-c"), "a.b-c", id="a key with a dash"),
    ],
)
def test_paths(steps: tuple[str | int, ...], text: str) -> None:
    assert path_of(steps) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "nothing", id="nothing"),
        pytest.param("a", '"a"', id="text"),
        pytest.param({"a": [1, True]}, '{"a": [1, true]}', id="an object"),
        pytest.param("x" * 300, '"' + "x" * 118 + "…", id="cut where it is long"),
        pytest.param({1, 2}, "{1, 2}", id="what is no JSON"),
    ],
)
def test_values_are_shown(value: Any, text: str) -> None:
    assert shown(value) == text
