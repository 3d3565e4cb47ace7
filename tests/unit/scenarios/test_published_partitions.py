"""Field reports on partitions that drivers publish: planned from objects, as `plan` does it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.support.mig_slices import WHOLE, asking, mig_pool, mig_slices
from tests.support.objects import GPU_DRIVER as GPU
from tests.support.objects import Obj, deviceclaim, devicepool, node, resourceclaim
from tests.support.planning import plan_objects, with_status
from tests.support.shared import needs_shared, shared

APART = pytest.mark.parametrize("apart", [pytest.param(False, id="1.34"), pytest.param(True, id="1.35 and later")])


def claim(name: str, *requests: Obj, **more: Any) -> Obj:
    made = deviceclaim(name, **more)
    made["spec"]["requests"] = list(requests)
    return made


WHOLE_CARD = {"name": "gpu"}


@APART
def test_partitions_are_devices_that_share_a_card(apart: bool) -> None:
    objects = [mig_pool(), node(), *mig_slices(cards=2, apart=apart)]
    claims = [claim("large", asking("mig", "4g")), claim("small", asking("mig", "3g")), claim("whole", WHOLE_CARD)]
    ran = plan_objects([*objects, *claims])
    assert ran.devices("large") == {"mig": ["gpu-0-mig-4g-0"]}
    assert ran.devices("small") == {"mig": ["gpu-0-mig-3g-4"]}
    assert ran.devices("whole") == {"gpu": ["gpu-1"]}
    (device,) = ran.claims["small"]["replicas"][0]["devices"]
    assert device["consumed"]["gpu-0-counter-set"] == {
        **{f"memory-slice-{at}": 1 for at in range(4, 8)},
        "memory": 20,
        "multiprocessors": 42,
    }
    counts = ran.counts("training", "mig")
    assert (counts["capacity"], counts["allocated"], counts["free"]) == (2, 2, 0)


@APART
def test_a7_the_cost_is_what_the_claim_has_recorded(apart: bool) -> None:
    """c1 holds a partition of three; the slices come again without it, or at another cost."""
    claims = [claim("c1", asking("mig", "3g"))]
    before = [mig_pool(), node(), *mig_slices(apart=apart), *claims]
    held = with_status(before, plan_objects(before))[-1]
    c2 = claim("c2", asking("mig", "7g"))
    without = mig_slices(apart=apart, generation=2)
    for each in without:
        gone = [one for one in each["spec"].get("devices", ()) if one["name"] != "gpu-0-mig-3g-4"]
        if "devices" in each["spec"]:
            each["spec"]["devices"] = gone
    ran = plan_objects([mig_pool(), node(), *without, held, c2])
    assert ran.claims["c2"]["phase"] == "Pending"
    whole = plan_objects([mig_pool(), node(), *without, held, claim("c2", WHOLE_CARD)])
    assert whole.claims["c2"]["nearest"] == "fits once DeviceClaim team/c1 ends"
    ran = plan_objects([mig_pool(), node(), *without, held, claim("c3", asking("mig", "4g"))])
    assert ran.devices("c3") == {"mig": ["gpu-0-mig-4g-0"]}, "the rest of the card is free"
    cheaper = mig_slices(apart=apart, generation=2)
    for each in cheaper:
        for one in each["spec"].get("devices", ()):
            if one["name"] == "gpu-0-mig-3g-4":
                one["consumesCounters"][0]["counters"] = {"memory": {"value": "1"}}
    ran = plan_objects([mig_pool(), node(), *cheaper, held, c2])
    assert ran.claims["c2"]["phase"] == "Pending"
    again = plan_objects([mig_pool(), node(), *mig_slices(apart=apart, generation=3), held, c2])
    assert again.claims["c2"]["phase"] == "Pending"


def test_a7_what_somebody_else_has_is_gone_whether_a_pool_selects_it_or_not() -> None:
    theirs = resourceclaim("theirs", owner="", devices=[(GPU, "n1", "gpu-0-mig-1g-0")])
    for pool in (mig_pool(), cards_alone()):
        ran = plan_objects([pool, node(), *mig_slices(cards=2), theirs, claim("c1", WHOLE_CARD)])
        assert ran.devices("c1") == {"gpu": ["gpu-1"]}
        counts = ran.counts("training", "gpu")
        assert (counts["capacity"], counts["allocated"]) == (2, 2)
    ran = plan_objects([mig_pool(), node(), *mig_slices(), theirs, claim("c1", asking("mig", "3g", 2))])
    assert ran.claims["c1"]["phase"] == "Pending"
    ran = plan_objects([mig_pool(), node(), *mig_slices(), theirs, claim("c1", asking("mig", "3g"))])
    assert ran.devices("c1") == {"mig": ["gpu-0-mig-3g-4"]}


def cards_alone() -> Obj:
    source = {"resourceSlices": {"driver": GPU, "selectors": [{"cel": WHOLE}]}}
    return devicepool(devices=[{"name": "gpu", "type": "GPU", "source": source}])


def test_a18_small_partitions_keep_a_place_for_the_large_one() -> None:
    """Three of one slice: the third goes to a hole, and a place for three or four stays."""
    ones = [claim(f"one-{at}", asking("mig", "1g"), creationTimestamp=f"2026-11-30T0{at}:00:00Z") for at in range(3)]
    ran = plan_objects([mig_pool(), node(), *mig_slices(), *ones, claim("large", asking("mig", "4g"))])
    assert ran.devices("large") == {"mig": ["gpu-0-mig-4g-0"]}
    assert sorted(ran.devices(f"one-{at}")["mig"][0] for at in range(3)) == [f"gpu-0-mig-1g-{at}" for at in (4, 5, 6)]


def test_b16_counts_are_of_cards_and_partitions_have_a_name_of_their_own() -> None:
    """Physical cards, whole ones that are free, and partitions are told apart."""
    objects = [mig_pool(), node(), *mig_slices(cards=3), claim("c1", asking("mig", "1g")), claim("c2", WHOLE_CARD)]
    ran = plan_objects(objects)
    for kind in ("gpu", "mig"):
        counts = ran.counts("training", kind)
        assert (counts["capacity"], counts["free"], counts["allocated"]) == (3, 1, 2)


def test_b5_a_partition_is_hard() -> None:
    asked = {**asking("mig", "1g"), "isolation": "Hard"}
    ran = plan_objects([mig_pool(), node(), *mig_slices(), claim("c1", asked)])
    assert ran.devices("c1")["mig"]


def test_partitions_of_a_card_share_its_row_of_a_matrix() -> None:
    """Rows are cards, however many partitions the driver publishes beside them."""
    text = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n"
    pool = mig_pool(spec={"topology": {"matrices": [{"configMapRef": {"name": "m", "key": "topo"}}]}})
    matrix = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"topo": text}}
    ran = plan_objects([pool, node(), *mig_slices(cards=2), matrix, claim("c1", {"name": "gpu", "count": 2})])
    assert ran.devices("c1") == {"gpu": ["gpu-0", "gpu-1"]}
    assert ran.claims["c1"]["replicas"][0]["locality"] == {"gpu-gpu": "NVLink"}
    assert not [each for each in ran.shown["pools"][0]["conditions"] if each["type"] == "TopologyMismatch"]


@needs_shared
def test_a_real_listing_of_all_partitions() -> None:
    """Two machines with eight cards, as a library of the vendor lists what fits on them, read into today's schema."""
    text = shared("data/slices/wg_device_management_dgxa100_partition_pools.yaml").read_text()
    slices = [made for pool in yaml.safe_load(text) for made in _today(pool)]
    assert [len(each["spec"]["devices"]) for each in slices if "devices" in each["spec"]] == [208, 208]
    source = {"resourceSlices": {"driver": GPU, "selectors": [{"cel": f"has(device.attributes['{GPU}'].profile)"}]}}
    pool = devicepool(devices=[{"name": "mig", "type": "GPU", "source": source}])
    ran = plan_objects(
        [pool, *slices, claim("c1", asking("mig", "3g.20gb", 16)), claim("c2", asking("mig", "3g.20gb"))]
    )
    held = ran.devices("c1")["mig"]
    assert len({name.partition("-mig-")[0] for name in held}) == 8
    assert ran.devices("c2"), "the other machine has cards"
    assert ran.counts("training", "mig")["capacity"] == 16


def _today(pool: Obj) -> list[Obj]:
    """A ResourcePool of before as ResourceSlices: shared capacity is counters, and a card's are one set."""
    name = pool["metadata"]["name"]
    devices = []
    for device in pool["spec"]["devices"]:
        card = "-".join(device["name"].split("-")[:2])
        attributes = {
            {"mig-profile": "profile"}.get(each["name"], each["name"]): {
                key: value for key, value in each.items() if key != "name"
            }
            for each in device["attributes"]
        }
        taken = {
            each["name"].removeprefix(f"{card}-"): {"value": str(each["capacity"])}
            for each in device.get("sharedCapacityConsumed", ())
        }
        consumed = [{"counterSet": card, "counters": taken}] if taken else []
        devices.append(
            {"name": device["name"].replace(".", ""), "attributes": attributes, "consumesCounters": consumed}
        )
    sets: dict[str, dict[str, Any]] = {}
    for shared_ in pool["spec"].get("sharedCapacity", ()):
        card = "-".join(shared_["name"].split("-")[:2])
        sets.setdefault(card, {})[shared_["name"].removeprefix(f"{card}-")] = {"value": str(shared_["capacity"])}
    counters = [{"name": card, "counters": taken} for card, taken in sets.items()]
    spec = {"driver": GPU, "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 2}}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{what}"},
            "spec": {**spec, **body},
        }
        for what, body in (("devices", {"devices": devices}), ("counters", {"sharedCounters": counters}))
    ]


def test_who_gives_way_to_a_partition_of_its_card_is_named() -> None:
    def small(start: int) -> Obj:
        device = {"request": "mig", "driver": GPU, "pool": "n1", "device": f"gpu-0-mig-1g-{start}"}
        replica = {"index": 0, "node": "n1", "state": "Ready", "devices": [device]}
        return claim(f"x{start}", asking("mig", "1g"), status={"phase": "Ready", "allocation": {"replicas": [replica]}})

    high = claim("high", asking("mig", "4g"))
    high["spec"]["priority"] = 10
    pool = mig_pool(spec={"tenancy": {"preemption": {"withinTenant": "LowerPriority"}}})
    ran = plan_objects([pool, node(), *mig_slices(), high, *map(small, (0, 4, 6))])
    assert [each["name"] for each in ran.shown["preempted"]] == ["x0"]
    (reason,) = ran.claims["high"]["reasons"]
    assert reason["message"] == "1 of 1 device that is held for it is still being released by team/x0"


def holding(name: str, profile: str, start: int, **told: Any) -> Obj:
    """A claim that has a partition of the first card."""
    device = {"request": "mig", "driver": GPU, "pool": "n1", "device": f"gpu-0-mig-{profile}-{start}", **told}
    replica = {"index": 0, "node": "n1", "state": "Ready", "devices": [device]}
    status = {"phase": "Ready", "allocation": {"replicas": [replica]}}
    return claim(name, asking("mig", profile), status=status)


@APART
def test_a7_a_counter_of_which_too_much_is_recorded_is_in_the_way_of_those_alone_that_take_of_it(apart: bool) -> None:
    """Two hold memory slice 4, as after a change of what the driver publishes; others have a place beside them."""
    over = [holding("h", "3g", 4), holding("o", "1g", 4)]
    base = [mig_pool(), node(), *mig_slices(apart=apart), *over]
    placed = plan_objects([*base, claim("c", asking("mig", "1g", 3))]).devices("c")["mig"]
    assert len(placed) == 3
    assert set(placed) < {f"gpu-0-mig-1g-{at}" for at in range(4)}
    assert plan_objects([*base, claim("c", asking("mig", "1g", 4))]).claims["c"]["phase"] == "Pending"
    gang = claim("gang", asking("mig", "1g"))
    gang["spec"] |= {"replicas": 3, "gang": {}}
    assert plan_objects([*base, gang]).claims["gang"]["phase"] == "Allocated"


@pytest.mark.parametrize(
    ("lost", "asked", "told"),
    [
        (("gpu-0-mig-1g-0",), WHOLE_CARD, "1 quarantined where it would fit otherwise: n1/gpu-0-mig-1g-0"),
        (("gpu-0",), asking("mig", "1g"), "1 quarantined where it would fit otherwise: n1/gpu-0 ("),
        (("gpu-0-mig-1g-0", "gpu-0-mig-1g-4"), asking("mig", "3g"), "2 quarantined where it would fit otherwise: n1/g"),
    ],
    ids=["the whole waits for a partition", "a partition waits for the whole", "one waits for others"],
)
def test_what_is_in_quarantine_on_its_card_is_named(lost: tuple[str, ...], asked: Obj, told: str) -> None:
    """Also where it is no device of the asked name itself."""
    owner = {"owner": "adjoin.dev", "reason": "NeedsReset", "exit": "a reset", "node": "n1"}
    pool = mig_pool(status={"quarantined": [{"driver": GPU, "pool": "n1", "device": name, **owner} for name in lost]})
    (first, *_) = plan_objects([pool, node(), *mig_slices(), claim("c", asked)]).claims["c"]["reasons"]
    assert (first["code"], first["nodes"]) == ("Quarantined", 1)
    assert first["message"].startswith(told)
