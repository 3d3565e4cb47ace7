"""Parts that are to have another size, in `plan`: what the operator's next decision does with the same objects is what
is shown."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.environments import static_device, static_pool
from tests.support.objects import allocation, deviceclaim, deviceshare, node, replica
from tests.support.planning import Ran, plan_objects
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]
GI = 1 << 30
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}


def asks(memory: str) -> list[Obj]:
    return [{"name": "gpu", "share": {"name": "half", "memory": memory}}]


def placed(name: str, has: int, wants: str, *, created: str = "2026-11-30T08:00:00Z", state: str = "Ready") -> Obj:
    """A claim with a part of `has` GiB of the card that asks for another size by now."""
    entry = replica(devices=[("gpu", "adjoin.dev", "n1", "gpu-0")], state=state)
    entry["devices"][0] |= {"id": "GPU-0", "share": {"name": "half", "memory": has * GI}}
    status = allocation(entry, phase=state)
    return deviceclaim(name, requests=asks(wants), status=status, creationTimestamp=created)


def base(*, hooks: bool = False, **spec: Any) -> list[Obj]:
    listed = [{**static_device("gpu-0", uuid="GPU-0"), "capacity": {"memory": "9Gi"}}]
    lifecycle = {"init": [{"name": "make", "template": TEMPLATE}]} if hooks else {}
    share = deviceshare(fractional={"reserve": "0%", "minReserve": "0"})
    return [static_pool({"n1": {"gpu": listed}}, lifecycle=lifecycle, **spec), node("n1"), share]


def sizes(claims: dict[str, Obj]) -> dict[str, int]:
    """By claim GiB of the part that it has."""
    return {
        name: int(each["devices"][0]["share"]["memory"]) // GI
        for name, found in claims.items()
        for each in found["replicas"]
    }


def shown(ran: Ran) -> dict[str, int]:
    return sizes(ran.claims)


def pending(conditions: list[Obj]) -> str:
    return "".join(each["message"] for each in conditions if each["reason"] == "ResizePending")


def decided(*objects: Obj) -> tuple[dict[str, int], dict[str, str]]:
    """What one decision of the operator makes of the same objects."""
    world = World()
    world.add(*objects)
    world.carry_out(Decider().decide(world.view(), world.now).intents)
    claims = {each["metadata"]["name"]: each["status"] for each in world.all(Kind.DEVICE_CLAIM)}
    had = {name: {"replicas": each.get("allocation", {}).get("replicas", [])} for name, each in claims.items()}
    return sizes(had), {name: pending(each["conditions"]) for name, each in claims.items()}


CASES = [
    pytest.param([placed("a", 4, "6Gi")], {"a": 6}, {}, id="it grows"),
    pytest.param([placed("a", 4, "2Gi")], {"a": 2}, {}, id="it shrinks while nobody uses it"),
    pytest.param(
        [placed("a", 4, "12Gi")], {"a": 4}, {"a": "12Gi is asked: its card has room for 9Gi, 1000m"}, id="no room"
    ),
    pytest.param(
        [
            placed("young", 3, "6Gi", created="2026-11-30T08:00:00Z"),
            placed("old", 3, "6Gi", created="2026-11-30T07:00:00Z"),
        ],
        {"young": 3, "old": 6},
        {"young": "room for 3Gi"},
        id="the older of two",
    ),
    pytest.param(
        [placed("a", 4, "6Gi"), deviceclaim("waits", requests=asks("4Gi"))],
        {"a": 4, "waits": 4},
        {"a": "room for 5Gi"},
        id="who waits is served first",
    ),
    pytest.param(
        [placed("a", 4, "6Gi"), deviceclaim("waits", requests=asks("3Gi"))],
        {"a": 6, "waits": 3},
        {},
        id="both have room",
    ),
]


@pytest.mark.parametrize(("claims", "has", "waits"), CASES)
def test_a_plan_shows_what_the_operator_makes_of_a_changed_size(
    claims: list[Obj], has: dict[str, int], waits: dict[str, str]
) -> None:
    ran = plan_objects([*base(), *claims])
    assert shown(ran) == has
    theirs, said = decided(*base(), *claims)
    assert theirs == has
    for name, found in ran.claims.items():
        mine = pending(found["conditions"])
        assert waits.get(name, "") in mine
        assert bool(mine) == (name in waits)
        assert mine == said[name]


def test_what_a_plan_shows_of_a_resize_is_what_stands_when_it_is_fed_back() -> None:
    first = plan_objects([*base(), placed("a", 4, "6Gi")])
    grown = placed("a", 6, "6Gi")
    assert (
        plan_objects([*base(), grown]).claims["a"]["replicas"][0]["devices"]
        == first.claims["a"]["replicas"][0]["devices"]
    )
    late = plan_objects([*base(), grown, deviceclaim("late", requests=asks("4Gi"))])
    assert late.codes("late") == ["ShareUnavailable"]


def test_where_hooks_make_a_part_the_replica_is_prepared_again() -> None:
    ran = plan_objects([*base(hooks=True), placed("a", 4, "6Gi")])
    assert shown(ran) == {"a": 6}
    assert (ran.claims["a"]["phase"], ran.claims["a"]["replicas"][0]["state"]) == ("Initializing", "Initializing")


def test_a_part_does_not_grow_beyond_its_tenants_quota_in_a_plan_either() -> None:
    tenancy = {"tenants": [{"name": "one", "namespaces": ["team"], "quota": {"gpu": 1}}]}
    ran = plan_objects([*base(tenancy=tenancy), placed("a", 4, "9Gi")])
    assert shown(ran) == {"a": 9}
    none = {"tenants": [{"name": "one", "namespaces": ["team"], "quota": {"gpu": 0}}]}
    ran = plan_objects([*base(tenancy=none), placed("a", 4, "9Gi")])
    assert shown(ran) == {"a": 4}
    assert "tenant one would have 1 of 0 gpu" in pending(ran.claims["a"]["conditions"])


def test_a_part_shrinks_also_of_a_card_of_which_more_is_in_use_than_there_is() -> None:
    """Nothing else brings use down: the share's reserve has grown since, 5 GiB are left and 9 in use."""
    objects = base()
    objects[-1]["spec"]["fractional"] = {"reserve": "0%", "minReserve": "4Gi"}
    held = [placed("one", 6, "6Gi"), placed("two", 3, "2Gi")]
    ran = plan_objects([*objects, *held])
    assert shown(ran) == decided(*objects, *held)[0] == {"one": 6, "two": 2}
    assert pending(ran.claims["two"]["conditions"]) == ""
    grown = plan_objects([*objects, placed("one", 6, "6Gi"), placed("two", 2, "3Gi")])
    assert shown(grown) == {"one": 6, "two": 2}
    assert pending(grown.claims["two"]["conditions"]).endswith("its card has room for 0, 1000m")
