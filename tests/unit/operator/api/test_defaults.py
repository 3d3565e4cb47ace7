"""What absence means where the CRD fills nothing in."""

import pytest
from tests.support.api_objects import Manifest, claim

from adjoin.api import DeviceClaim
from adjoin.api.defaults import count_of, device_of, most_devices, over_of, policy_of, replicas_of
from adjoin.api.parse import parse_strict


def read(**spec: object) -> DeviceClaim:
    return parse_strict(DeviceClaim, claim(**spec))


@pytest.mark.parametrize(
    ("request_", "device", "count", "most"),
    [
        pytest.param({}, "gpu", 1, 1, id="one of the name of the request"),
        pytest.param({"device": "h100", "count": 8}, "h100", 8, 8, id="as said"),
        pytest.param({"all": True}, "gpu", None, 32, id="all of the node, at most a ResourceClaim full"),
        pytest.param({"all": False}, "gpu", 1, 1, id="all: false is no wish"),
        pytest.param(
            {"firstOf": [{"name": "a", "count": 2}, {"name": "b"}]}, "gpu", 1, 2, id="the largest alternative counts"
        ),
    ],
)
def test_requests(request_: Manifest, device: str, count: int | None, most: int) -> None:
    (parsed,) = read(requests=[{"name": "gpu", **request_}]).spec.requests
    assert (device_of(parsed), count_of(parsed), most_devices(parsed)) == (device, count, most)


def test_affinity_and_replicas() -> None:
    spec = read(
        affinity=[
            {"requests": ["gpu", "nic"], "scope": "Node"},
            {"requests": ["nic"], "attribute": "dra.net/rail", "policy": "Distinct", "over": "Gang"},
        ]
    ).spec
    assert [str(policy_of(line)) for line in spec.affinity] == ["Preferred", "Distinct"]
    assert [str(over_of(line)) for line in spec.affinity] == ["Replica", "Gang"]
    assert replicas_of(spec) == 1
    assert replicas_of(read(replicas=0).spec) == 0


def test_everything_else_as_the_rules_say() -> None:
    spec = read().spec
    assert (spec.profile, spec.priority, spec.preemptible, spec.release) == ("Balanced", 0, True, "WhenDeleted")
    assert (spec.scaling.mode, spec.suspend, spec.gang, spec.pool_ref) == ("Fixed", False, None, None)
