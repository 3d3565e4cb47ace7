"""What is refused and what is not, by the table that the API server is asked too (tests/cluster/test_crds.py)."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import api_cases
from tests.support.api_objects import Case, Manifest, claim, pool, share

from adjoin.api.errors import ErrorKind, FieldError
from adjoin.api.validate import validate, validate_claim, validate_pool


def own(errors: list[FieldError]) -> list[FieldError]:
    """Errors but for what is not supported yet."""
    return [error for error in errors if error.kind is not ErrorKind.UNSUPPORTED]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in api_cases.REFUSED])
def test_refused(case: Case) -> None:
    (error,) = own(validate(case.obj))
    assert error.path == case.path
    assert case.says in error.message
    assert error.kind is ErrorKind.INVALID
    assert str(error).startswith(f"{case.path}: ")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in api_cases.REFUSED_CHANGES])
def test_change_refused(case: Case) -> None:
    (error,) = own(validate(case.obj, case.old))
    assert error.path == case.path
    assert case.says in error.message
    assert error.kind is ErrorKind.IMMUTABLE
    assert own(validate(case.obj)) == [], "the change is what is wrong, not the object"


@pytest.mark.parametrize("obj", [pytest.param(obj, id=sentence) for sentence, obj in api_cases.ACCEPTED.items()])
def test_accepted(obj: Manifest) -> None:
    before = copy.deepcopy(obj)
    assert validate(obj) == []
    assert validate(obj, obj) == []
    assert obj == before, "validation changed its input"


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(*pair, id=sentence) for sentence, pair in api_cases.ALLOWED_CHANGES.items()],
)
def test_change_accepted(before: Manifest, after: Manifest) -> None:
    assert validate(after, before) == []


def test_null_is_absence() -> None:
    assert (
        validate_claim(claim() | {"status": None, "spec": {"requests": [{"name": "gpu", "count": None}], "gang": None}})
        == []
    )


def test_a_share_changes_in_memory_and_compute_alone() -> None:
    def asking(**amounts: str) -> Manifest:
        return claim(requests=[{"name": "gpu", "share": {"name": "slice", **amounts}}])

    assert own(validate_claim(asking(memory="16Gi", compute="500m"), asking(memory="8Gi"))) == []


def test_every_wrong_field_is_named() -> None:
    obj = claim(
        requests=[{"name": "gpu", "selectors": [{"cel": "("}]}, {"name": "nic", "count": 2, "all": True}],
        affinity=[{"requests": ["gpu", "gpu"], "scope": "NVLink"}, {"requests": ["cpu"], "scope": "Node"}],
        gang={"minReplicas": 3},
    )
    assert {error.path for error in validate_claim(obj)} == {
        "spec.requests[0].selectors[0].cel",
        "spec.requests[1].count",
        "spec.affinity[0].requests",
        "spec.affinity[1].requests[0]",
        "spec.gang.minReplicas",
    }


def test_a_scope_over_one_device_is_accepted() -> None:
    """It holds by itself; counts that come from templates may be 1."""
    assert list(validate_claim(claim(affinity=[{"requests": ["gpu"], "scope": "NVLink", "policy": "Required"}]))) == []


def test_the_message_of_a_selector_is_that_of_the_compiler() -> None:
    (error,) = validate_claim(claim(requests=[{"name": "gpu", "selectors": [{"cel": "device.driver =="}]}]))
    assert error.value == "device.driver =="
    assert error.message


def test_cel_of_excessive_cost_is_refused() -> None:
    loop = "[0,1,2,3,4,5,6,7,8,9]"
    deep = f"{loop}.all(a, " * 8 + "true" + ")" * 8
    (error,) = validate_claim(claim(requests=[{"name": "gpu", "selectors": [{"cel": deep}]}]))
    assert error.path == "spec.requests[0].selectors[0].cel"
    assert "cost" in error.message


def test_a_hook_template_may_hold_anything() -> None:
    template = {"spec": {"containers": [{"name": "x", "image": "y", "selectors": [{"cel": "no cel here ("}]}]}}
    errors = validate_pool(pool(lifecycle={"init": [{"name": "verify", "template": template}]}))
    assert own(errors) == []


def test_generated_names_count_with_what_the_server_adds() -> None:
    obj = claim()
    obj["metadata"] = {"generateName": "c" * 35}
    assert validate_claim(obj) == []
    obj["metadata"] = {"generateName": "c" * 36}
    (error,) = validate_claim(obj)
    assert (error.path, error.message.split(";")[0]) == ("metadata.name", "name has 41 characters")


@pytest.mark.parametrize("name", [None, "", "Job", "a b", "a..b", "-a"])
def test_a_name_is_needed_and_is_a_dns_name(name: str | None) -> None:
    obj = claim()
    obj["metadata"] = {"name": name}
    (error,) = validate_claim(obj)
    assert error.path == "metadata.name"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        pytest.param({"kind": "DevicePool"}, "kind", id="another kind"),
        pytest.param({"apiVersion": "adjoin.dev/v1"}, "apiVersion", id="another version"),
        pytest.param({"spec": None}, "spec", id="no spec"),
        pytest.param({"spec": []}, "spec", id="a spec that is a list"),
        pytest.param({"sepc": {}}, "sepc", id="an unknown field at the top"),
        pytest.param({"metadata": {"name": "a", "lables": {}}}, "metadata.lables", id="an unknown field of metadata"),
        pytest.param({"status": {"phase": "Runing"}}, "status.phase", id="a status of no known phase"),
    ],
)
def test_the_frame_of_the_object(change: Manifest, path: str) -> None:
    (error,) = validate_claim(claim() | change)
    assert error.path == path


def test_an_object_of_another_kind_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="'Pod' is none of DevicePool, DeviceShare, DeviceClaim"):
        validate({"kind": "Pod"})


def test_objects_as_the_server_holds_them_are_accepted() -> None:
    obj = claim(priority=0, scaling={"mode": "Fixed"})
    obj["metadata"] |= {
        "uid": "0f4d",
        "generation": 2,
        "resourceVersion": "17",
        "creationTimestamp": "2026-11-30T08:00:00Z",
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
        "finalizers": ["adjoin.dev/cleanup"],
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "1", "controller": True}],
    }
    obj["status"] = {
        "phase": "Ready",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": "2026-11-30T08:00:00Z",
                "reason": "AllReady",
                "message": "",
            }
        ],
        "allocation": {
            "gap": 0,
            "replicas": [
                {
                    "index": 0,
                    "node": "n1",
                    "state": "Ready",
                    "locality": {"gpu-nic": "PIX"},
                    "devices": [
                        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "id": "GPU-1"}
                    ],
                    "bootID": "b",
                }
            ],
        },
    }
    assert validate_claim(obj) == []


@pytest.mark.parametrize("held", [True, False], ids=["held by the server", "written by somebody"])
def test_the_status_of_a_newer_version_is_no_mistake_of_whoever_changes_the_spec(held: bool) -> None:
    obj = claim() | {"status": {"phase": "Migrating"}}
    if held:
        obj["metadata"] |= {"uid": "0f4d"}
    assert [error.path for error in validate_claim(obj)] == ([] if held else ["status.phase"])
    assert validate_claim(obj, obj) == []


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(parts=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "apiVersion"]), ANY_JSON))
@pytest.mark.parametrize("obj", [claim(), pool(), share()], ids=lambda obj: str(obj["kind"]))
def test_nothing_that_is_json_breaks_it(obj: Manifest, parts: Manifest) -> None:
    errors = validate(obj | parts)
    assert errors or not parts.keys() & {"metadata", "spec"}
    assert all(str(error) for error in errors)
