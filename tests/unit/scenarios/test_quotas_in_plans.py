"""Quotas through `plan`, from objects to what is printed: how much of a claim a quota lets in, and what is said of the
rest.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import devicepool
from tests.support.planning import plan_objects

Obj = dict[str, Any]
TWO_OR_ONE: Obj = {"name": "gpu", "firstOf": [{"name": "two", "count": 2}, {"name": "one", "count": 1}]}


def pool(count: int, quota: int, **spec: Any) -> Obj:
    """So many cards of one node, of which tenant `team` may have so many."""
    listed = [{"name": "n1", "devices": [{"name": f"gpu-{at}"} for at in range(count)]}]
    devices = [{"name": "gpu", "type": "GPU", "source": {"static": {"nodes": listed}}}]
    tenancy = {"tenants": [{"name": "team", "namespaces": ["team"], "quota": {"gpu": quota}}]}
    return devicepool("p", devices=devices, spec={"tenancy": tenancy, **spec})


def claim(request: Obj, **spec: Any) -> Obj:
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": spec.pop("name", "c"), "namespace": "team"},
        "spec": {"poolRef": {"name": "p"}, "requests": [request], **spec},
    }


@pytest.mark.parametrize(
    ("quota", "spec", "requests", "status"),
    [
        pytest.param(1, {}, [["gpu/one"]], 0, id="the way that the quota allows"),
        pytest.param(3, {"replicas": 2}, [["gpu/two"] * 2, ["gpu/one"]], 0, id="each replica its own"),
        pytest.param(3, {"replicas": 2, "gang": {}}, [["gpu/two"] * 2, ["gpu/one"]], 0, id="each member its own"),
        pytest.param(2, {"replicas": 2, "gang": {}}, [["gpu/one"]] * 2, 0, id="members before better ways"),
        pytest.param(4, {"replicas": 2, "gang": {}}, [["gpu/two"] * 2] * 2, 0, id="the better way where it is allowed"),
        pytest.param(0, {}, [], 3, id="none where none is allowed"),
    ],
)
def test_of_several_ways_the_first_that_the_quota_allows_is_taken(
    quota: int, spec: Obj, requests: list[list[str]], status: int
) -> None:
    ran = plan_objects([pool(8, quota), claim(TWO_OR_ONE, **spec)])
    shown = ran.claims["c"]
    assert [[device["request"] for device in one["devices"]] for one in shown["replicas"]] == requests
    assert ran.status == status
    assert ran.codes("c") == (["QuotaExceeded"] if status else [])


@pytest.mark.parametrize(
    ("fewest", "placed", "codes"),
    [
        pytest.param(2, 5, ["QuotaExceeded", "GangIncomplete"], id="as many members as the quota allows"),
        pytest.param(5, 5, ["QuotaExceeded", "GangIncomplete"], id="just enough"),
        pytest.param(6, 0, ["QuotaExceeded"], id="too few"),
    ],
)
def test_a_gang_gets_all_members_that_its_quota_allows(fewest: int, placed: int, codes: list[str]) -> None:
    ran = plan_objects([pool(8, 5), claim({"name": "gpu"}, replicas=8, gang={"minReplicas": fewest})])
    shown = ran.claims["c"]
    assert [one["index"] for one in shown["replicas"]] == list(range(placed))
    assert ran.codes("c") == codes
    assert shown["nearest"] == "fits with quota 6 instead of 5 of gpu for tenant team"
    if placed:
        assert shown["reasons"][0]["message"] == "tenant team holds 5 of 5 gpu, needs 1"
        assert shown["reasons"][1]["message"].startswith("5 of 8 members are in place")


def test_a_gang_that_its_quota_keeps_small_is_also_told_that_devices_are_few() -> None:
    ran = plan_objects([pool(5, 5), claim({"name": "gpu"}, replicas=8, gang={"minReplicas": 2})])
    assert len(ran.claims["c"]["replicas"]) == 5
    assert ran.codes("c") == ["QuotaExceeded", "InsufficientDevices", "GangIncomplete"]


def test_a_claim_whose_devices_were_changed_is_still_told_what_its_quota_says() -> None:
    """The pair needs the card beside the NIC, so replica 0 of the others moves when all are served."""

    def node(name: str, roots: list[str], prefix: str) -> Obj:
        listed = [
            {"name": f"{prefix}-{at}", "attributes": {"pcieRoot": root} if root else {}}
            for at, root in enumerate(roots)
        ]
        return {"name": name, "devices": listed}

    gpus = [node("n1", ["", "", ""], "gpu"), node("n2", ["", "a", "b"], "gpu"), node("n3", ["", ""], "gpu")]
    nics = [node("n2", ["a", "b"], "nic")]
    devices = [
        {"name": "gpu", "type": "GPU", "source": {"static": {"nodes": gpus}}},
        {"name": "nic", "type": "RDMA", "source": {"static": {"nodes": nics}}},
    ]
    tenants = [
        {"name": "a", "namespaces": ["a"], "quota": {"gpu": 2}, "borrowing": {"gpu": 4}},
        {"name": "b", "namespaces": ["b"], "quota": {"gpu": 4}},
    ]
    three = claim({"name": "gpu", "count": 3}, name="three", profile="Latency")
    ones = claim({"name": "gpu"}, name="ones", replicas=3)
    pair = claim({"name": "gpu", "count": 2}, name="pair")
    pair["spec"]["requests"].append({"name": "nic"})
    pair["metadata"]["creationTimestamp"] = "2026-02-22T13:02:00Z"
    for one, namespace in ((three, "b"), (ones, "a"), (pair, "a")):
        one["metadata"] |= {"namespace": namespace, "uid": one["metadata"]["name"]}
    pool_of_two = devicepool("p", devices=devices, spec={"tenancy": {"tenants": tenants}})
    ran = plan_objects([pool_of_two, three, ones, pair], "--now", "2026-03-01T00:00:00Z")
    waiting = {name: shown for name, shown in ran.claims.items() if shown["phase"] == "Pending"}
    assert waiting
    assert {code for name in waiting for code in ran.codes(name)} == {"QuotaExceeded"}
    assert all(shown["reasons"] for shown in waiting.values())


def test_who_has_to_move_for_more_devices_gets_what_the_others_have_left() -> None:
    """`all` of the larger node are more devices; the pair that was there goes to the smaller one and does not wait."""
    nodes = [
        {"name": name, "devices": [{"name": f"gpu-{at}"} for at in range(count)]}
        for name, count in (("n1", 3), ("n2", 2))
    ]
    devices = [{"name": "gpu", "type": "GPU", "source": {"static": {"nodes": nodes}}}]
    tenants = [{"name": "other", "namespaces": ["other"], "quota": {"gpu": 2}}]
    spec = {"placement": {"objective": "Throughput"}, "tenancy": {"tenants": tenants}}
    everything = claim({"name": "gpu", "all": True}, name="all", priority=5)
    pair = claim({"name": "gpu", "count": 2}, name="pair")
    ran = plan_objects([devicepool("p", devices=devices, spec=spec), pair, everything])
    assert {name: shown["replicas"][0]["node"] for name, shown in ran.claims.items()} == {"all": "n1", "pair": "n2"}
    assert ran.status == 0
