"""What others ran into, as far as it is decided when an object of ours is admitted. Named by the report's id."""

import pytest
from tests.support.api_objects import Manifest, claim, pool, share, static
from tests.support.odd_numbers import ODD_NUMBERS, WHOLE_NUMBERS

from adjoin.api.errors import ErrorKind
from adjoin.api.validate import validate, validate_claim, validate_pool

ODD = [pytest.param(value, id=repr(value)) for value in ODD_NUMBERS]


def refusals(obj: Manifest) -> list[str]:
    return [error.path for error in validate(obj) if error.kind is ErrorKind.INVALID]


@pytest.mark.parametrize("value", ODD)
def test_g12_odd_counts_are_refused(value: object) -> None:
    assert refusals(claim(requests=[{"name": "gpu", "count": value}])) == ["spec.requests[0].count"]


@pytest.mark.parametrize("value", [value for value in ODD if value.values[0] != 0])
def test_g12_odd_replicas_are_refused(value: object) -> None:
    assert refusals(claim(replicas=value)) in (["spec.replicas"], ["spec"])


@pytest.mark.parametrize("value", ODD)
def test_g12_odd_parts_of_a_card_are_refused(value: object) -> None:
    request = {"name": "gpu", "share": {"name": "slice", "compute": value}}
    assert refusals(claim(requests=[request])) == ["spec.requests[0].share.compute"]


@pytest.mark.parametrize("value", [value for value in ODD if value.values[0] not in WHOLE_NUMBERS])
def test_g12_odd_bytes_are_refused(value: object) -> None:
    request = {"name": "gpu", "share": {"name": "slice", "memory": value}}
    assert refusals(claim(requests=[request])) == ["spec.requests[0].share.memory"]
    assert refusals(static({"name": "g0", "capacity": {"memory": value}}))


@pytest.mark.parametrize("value", [0, 1, "0.5", 2**31, "1e3", "80Gi", "2147483648", "7Ei"])
def test_g12_ordinary_quantities_pass(value: object) -> None:
    assert refusals(static({"name": "g0", "capacity": {"memory": value}})) == []


@pytest.mark.parametrize("value", ODD)
def test_g12_odd_durations_are_refused(value: object) -> None:
    assert refusals(claim(idleTimeout=value)) == ["spec.idleTimeout"]


@pytest.mark.parametrize("value", [value for value in ODD if value.values[0] != 0])
def test_g12_odd_quotas_are_refused(value: object) -> None:
    assert refusals(pool(tenancy={"tenants": [{"name": "a", "quota": {"gpu": value}}]})) == [
        "spec.tenancy.tenants[0].quota.gpu"
    ]


@pytest.mark.parametrize("compute", ["1500m", "150", 2, "1.5", "100%", "1001m"])
def test_a28_more_than_one_card_is_no_part_of_a_card(compute: object) -> None:
    request = {"name": "gpu", "share": {"name": "slice", "compute": compute}}
    (error,) = [e for e in validate_claim(claim(requests=[request])) if e.kind is ErrorKind.INVALID]
    assert "a part of one card from 1m to 1" in error.message
    assert "ask for more cards by `count`" in error.message


def test_a24_all_is_a_wish_for_at_least_one() -> None:
    """An empty set is no match: the field says so to users, and no count stands beside it."""
    assert refusals(claim(requests=[{"name": "gpu", "all": True}])) == []
    assert refusals(claim(requests=[{"name": "gpu", "all": True, "count": 1}])) == ["spec.requests[0].count"]


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        pytest.param(claim(requests=[{"name": "gpu", "gpumem": 1000}]), "spec.requests[0].gpumem", id="in a request"),
        pytest.param(claim(disableLimit=True), "spec.disableLimit", id="in a claim"),
        pytest.param(pool(delivery={"gaurd": "None"}), "spec.delivery.gaurd", id="in a pool"),
        pytest.param(share(timeSliced={"slots": 4, "replicas": 2}), "spec.timeSliced.replicas", id="in a share"),
    ],
)
def test_b15_no_unknown_key_is_ignored(obj: Manifest, path: str) -> None:
    assert path in refusals(obj)


def test_e10_names_with_dots_and_slashes_stand_whole_in_messages() -> None:
    (error,) = [
        error
        for error in validate_pool(pool(tenancy={"tenants": [{"name": "a", "quota": {"nvidia.com/gpu": 4}}]}))
        if error.kind is ErrorKind.INVALID
    ]
    assert error.path == "spec.tenancy.tenants[0].quota[nvidia.com/gpu]"
    line = {"requests": ["gpu", "nic"], "attribute": "resource.kubernetes.io/pcieRoot"}
    (error,) = validate_claim(claim(affinity=[line]))
    assert "resource.kubernetes.io/pcieRoot" in error.message


def test_e13_changes_of_immutable_fields_are_refused_not_ignored() -> None:
    before, after = claim(poolRef={"name": "a"}), claim(poolRef={"name": "b"})
    (error,) = validate_claim(after, before)
    assert (error.path, error.kind) == ("spec.poolRef", ErrorKind.IMMUTABLE)
    assert error.value == {"name": "b"}


def test_f19_a_quota_that_limits_nothing_is_refused() -> None:
    tenants = [{"name": "a", "quota": {"gpu": 4, "GPU": 8}}]
    assert refusals(pool(tenancy={"tenants": tenants})) == ["spec.tenancy.tenants[0].quota.GPU"]


def test_g10_a_pool_reference_names_no_namespace() -> None:
    assert refusals(claim(poolRef={"name": "training", "namespace": "kube-system"})) == ["spec.poolRef.namespace"]
