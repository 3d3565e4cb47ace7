"""Cards that ordinary ResourceClaims have parts of, by consumable capacity: what they leave is given in parts, to the
byte, and nothing of it as a whole or in a mode that does not know amounts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import deviceclaim, devicepool, deviceshare, node, resourceclaim, resourceslice
from tests.support.planning import Ran, plan_objects

Obj = dict[str, Any]
GI = 1 << 30
DRIVER = "gpu.nvidia.com"
STEP = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
NO_RESERVE = {"reserve": "0%", "minReserve": "0"}


def cards(count: int = 1, *, several: bool = True, **capacity: Obj) -> Obj:
    memory = {"memory": {"value": "40Gi", "requestPolicy": STEP}}
    listed = [
        {
            "name": f"gpu-{at}",
            "attributes": {"uuid": {"string": f"GPU-{at}"}},
            "capacity": {**memory, **capacity},
            **({"allowMultipleAllocations": True} if several else {}),
        }
        for at in range(count)
    ]
    made = resourceslice("n1", devices=0)
    made["spec"]["devices"] = listed
    return made


def theirs(name: str, *amounts: Obj | None, device: str = "gpu-0") -> Obj:
    """An ordinary ResourceClaim with so much of a card; None: nothing is said of how much."""
    claim = resourceclaim(name, owner="", devices=[(DRIVER, "n1", device)] * len(amounts))
    for number, (result, each) in enumerate(
        zip(claim["status"]["allocation"]["devices"]["results"], amounts, strict=True)
    ):
        result["shareID"] = f"c15242e6-ce62-442c-a21f-cdfbb8ed5f{number:02}"
        if each is not None:
            result["consumedCapacity"] = each
    return claim


def part(name: str, memory: str | None = None, *, share: str = "half", **more: Any) -> Obj:
    asked = {"name": share, **({"memory": memory} if memory else {})}
    return deviceclaim(name, requests=[{"name": "gpu", "share": {**asked, **more}}])


def planned(*objects: Obj, devices: Obj | None = None, **share: Any) -> Ran:
    spec = share or {"fractional": NO_RESERVE}
    base = [devicepool(delivery={"guard": "None"}), node("n1"), devices or cards(), deviceshare(**spec)]
    return plan_objects([*base, *objects])


def placed(ran: Ran) -> dict[str, list[str]]:
    return {name: ran.devices(name).get("gpu", []) for name, each in ran.claims.items() if each["replicas"]}


def test_what_they_leave_is_given_to_the_byte() -> None:
    busy = [theirs("one", {"memory": "10Gi"}), theirs("two", {"memory": "6Gi"}, {"memory": "4Gi"})]
    ran = planned(*busy, part("first", "12Gi"), part("second", "8Gi"), part("third", "1Gi"))
    assert placed(ran) == {"first": ["gpu-0"], "second": ["gpu-0"]}
    assert ran.codes("third") == ["ShareUnavailable"]
    assert "free 0" in ran.claims["third"]["reasons"][0]["message"]
    assert placed(planned(*busy, part("more", "21Gi"))) == {}


def test_the_reserve_is_kept_beside_what_they_consume() -> None:
    reserve = {"fractional": {"reserve": "10%", "minReserve": "0"}}
    busy = theirs("one", {"memory": "10Gi"})
    assert placed(planned(busy, part("fits", "26Gi"), **reserve)) == {"fits": ["gpu-0"]}
    assert placed(planned(busy, part("large", "27Gi"), **reserve)) == {}


def test_a_card_of_theirs_is_allocated_and_never_given_whole() -> None:
    ran = planned(theirs("one", {"memory": "1Gi"}), deviceclaim("whole"), part("some", "4Gi"))
    assert placed(ran) == {"some": ["gpu-0"]}
    counts = ran.counts("training", "gpu")
    assert (counts["free"], counts["allocated"]) == (0, 1)


@pytest.mark.parametrize(
    ("devices", "amounts"),
    [
        pytest.param(cards(), (None,), id="how much is not said"),
        pytest.param(cards(), ({"memory": "1Gi"}, None), id="not of all of it"),
        pytest.param(cards(), ({"cores": "1"},), id="not of its memory"),
        pytest.param(cards(several=False), ({"memory": "1Gi"},), id="a card that may be in one allocation"),
        pytest.param(
            cards(cores={"value": "100"}), ({"memory": "1Gi", "cores": "1"},), id="other capacity is used up by a part"
        ),
    ],
)
def test_what_cannot_be_counted_is_theirs_as_a_whole(devices: Obj, amounts: tuple[Obj | None, ...]) -> None:
    assert placed(planned(theirs("one", *amounts), part("some", "4Gi"), devices=devices)) == {}


def test_other_capacities_limit_how_many_parts_there_are() -> None:
    cores = {"value": "100", "requestPolicy": {"default": "30", "validRange": {"min": "10"}}}
    busy = theirs("one", {"memory": "1Gi", "cores": "35"})
    ran = planned(busy, *(part(name, "1Gi") for name in ("a", "b", "c")), devices=cards(cores=cores))
    assert list(placed(ran)) == ["a", "b"]


def test_of_several_cards_those_are_used_that_have_room() -> None:
    busy = [theirs("one", {"memory": "30Gi"}), theirs("two", {"memory": "5Gi"}, device="gpu-1")]
    ran = planned(*busy, part("a", "30Gi"), part("b", "10Gi"), deviceclaim("whole"), devices=cards(3))
    assert placed(ran) == {"a": ["gpu-1"], "b": ["gpu-0"], "whole": ["gpu-2"]}


@pytest.mark.parametrize(
    "share",
    [
        pytest.param({"mode": "TimeSliced", "timeSliced": {"slots": 4}}, id="slots"),
        pytest.param({"mode": "VirtualFunctions", "virtualFunctions": {"count": 4}}, id="functions"),
    ],
)
def test_modes_without_amounts_give_nothing_beside_them(share: Obj) -> None:
    assert placed(planned(theirs("one", {"memory": "1Gi"}), part("some"), **share)) == {}
    assert placed(planned(part("some"), **share)) == {"some": ["gpu-0"]}


def test_clients_of_mps_have_what_they_leave() -> None:
    share = {"mode": "MPS", "mps": {"maxClients": 2, **NO_RESERVE}}
    busy = theirs("one", {"memory": "30Gi"})
    ran = planned(busy, part("a", "4Gi"), part("b", "7Gi"), part("c", "6Gi"), part("d", "1Gi"), **share)
    assert list(placed(ran)) == ["a", "c"]


def test_members_of_a_gang_have_what_they_leave() -> None:
    member = part("gang", "8Gi")
    member["spec"] |= {"replicas": 3, "gang": {}}
    ran = planned(theirs("one", {"memory": "30Gi"}), member, devices=cards(2))
    assert ran.claims["gang"]["phase"] == "Allocated"
    used = [each["devices"][0]["device"] for each in ran.claims["gang"]["replicas"]]
    assert sorted(used) in (["gpu-0", "gpu-1", "gpu-1"], ["gpu-1", "gpu-1", "gpu-1"])
    member["spec"]["replicas"] = 7
    assert planned(theirs("one", {"memory": "30Gi"}), member, devices=cards(2)).claims["gang"]["phase"] == "Pending"
    member["spec"]["replicas"] = 6
    assert planned(theirs("one", {"memory": "30Gi"}), member, devices=cards(2)).claims["gang"]["phase"] == "Allocated"


def test_no_more_cards_are_divided_than_the_share_may() -> None:
    limit = {"fractional": NO_RESERVE, "maxDevices": 1}
    busy = [theirs("one", {"memory": "30Gi"}), theirs("two", {"memory": "30Gi"}, device="gpu-1")]
    ran = planned(*busy, part("a", "8Gi"), part("b", "8Gi"), devices=cards(2), **limit)
    assert placed(ran) == {"a": ["gpu-0"]}


def test_what_we_are_yet_to_give_back_of_such_a_card_keeps_it() -> None:
    left = resourceclaim("left", owner="claim-gone", devices=[(DRIVER, "n1", "gpu-0")])
    assert placed(planned(theirs("one", {"memory": "1Gi"}), left, part("some", "4Gi"))) == {}


def test_parts_beside_theirs_are_kept_and_fed_back() -> None:
    objects = [theirs("one", {"memory": "30Gi"}), part("a", "4Gi")]
    first = planned(*objects)
    kept = {**objects[1], "status": {"phase": "Ready", "allocation": {"replicas": first.claims["a"]["replicas"]}}}
    again = planned(objects[0], kept, part("b", "6Gi"), part("c", "1Gi"))
    assert placed(again) == {"a": ["gpu-0"], "b": ["gpu-0"]}


def test_a_card_that_is_large_enough_but_for_what_they_consume_is_not_called_too_small() -> None:
    for memory, free in (("10Gi", "30Gi"), ("50Gi", "0")):
        (reason,) = planned(theirs("one", {"memory": memory}), part("a", "40Gi")).claims["a"]["reasons"]
        assert reason["code"] == "ShareUnavailable"
        assert reason["message"].endswith(f"best node has 0, best gpu has free {free}")
    ran = planned(theirs("one", {"memory": "10Gi"}), part("a", "41Gi"))
    assert ran.codes("a") == ["ShareUnavailable", "InsufficientDevices"]
    assert ran.claims["a"]["reasons"][0]["message"].endswith("the largest in DeviceShare half gives 40Gi, 1000m")


@pytest.mark.parametrize("asked", [{"memory": "1Gi"}, {"compute": "10m"}], ids=["memory", "compute"])
def test_a_card_with_as_many_parts_as_its_other_capacities_allow_is_not_fragmented(asked: Obj) -> None:
    cores = {"value": "100", "requestPolicy": {"default": "30", "validRange": {"min": "10"}}}
    busy = theirs("one", {"memory": "1Gi", "cores": "35"})
    ran = planned(busy, *(part(name, **asked) for name in ("a", "b", "c")), devices=cards(2, cores=cores))
    assert placed(ran).keys() == {"a", "b", "c"}
    ran = planned(busy, *(part(name, **asked) for name in ("a", "b", "c")), devices=cards(cores=cores))
    (reason,) = ran.claims["c"]["reasons"]
    assert reason["code"] == "ShareUnavailable"
    assert reason["message"].endswith("and room for 0 more")
