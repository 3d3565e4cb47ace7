"""Parts of cards through `plan`, from objects to what is printed: what the sentences on sharing say, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.support.objects import devicepool
from tests.support.planning import plan_objects, with_status

Obj = dict[str, Any]


def cards(count: int, node: str = "n1", memory: str = "80Gi") -> Obj:
    """A pool of static cards on one node."""
    devices = [
        {"name": f"gpu-{at}", "attributes": {"uuid": f"GPU-{at}"}, "capacity": {"memory": memory}}
        for at in range(count)
    ]
    source = {"static": {"nodes": [{"name": node, "devices": devices}]}}
    return devicepool("p", devices=[{"name": "gpu", "type": "GPU", "source": source}])


def share(**spec: Any) -> Obj:
    body = {"poolRef": {"name": "p"}, "device": "gpu", "mode": "Fractional", **spec}
    return {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceShare", "metadata": {"name": "half"}, "spec": body}


def claim(name: str, *requests: Mapping[str, Any], **spec: Any) -> Obj:
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"poolRef": {"name": "p"}, "requests": list(requests), **spec},
    }


def part(count: int = 1, **amounts: Any) -> Obj:
    asked = {name: amounts.pop(name) for name in ("memory", "compute") if name in amounts}
    return {"name": "gpu", "count": count, "share": {"name": "half", **asked}, **amounts}


WHOLE: Obj = {"name": "gpu"}


def status(entry: Sequence[Mapping[str, Any]], **more: Any) -> Obj:
    replica = {"index": 0, "node": "n1", "state": "Ready", "devices": list(entry)}
    return {"phase": "Ready", "allocation": {"replicas": [replica]}, **more}


def held(device: str, memory: int | None = None, share_name: str = "half") -> Obj:
    entry: Obj = {"request": "gpu", "driver": "adjoin.dev", "pool": "n1", "device": device}
    return entry if memory is None else {**entry, "share": {"name": share_name, "memory": memory}}


def test_what_a_plan_prints_of_parts_on_one_card_is_a_status() -> None:
    objects = [
        cards(1),
        share(),
        claim("same", part(3, memory="10Gi", sameDevice=True)),
        claim("replicas", part(memory="10Gi"), replicas=2),
    ]
    first = plan_objects(objects)
    assert (first.status, first.devices("same")) == (0, {"gpu": ["gpu-0"] * 3})
    again = plan_objects(with_status(objects, first))
    assert (again.status, again.claims, again.err) == (0, first.claims, "")


def test_a_card_cannot_be_a_whole_and_a_part_in_one_status_nor_of_two_shares() -> None:
    for other, told in (
        (held("gpu-0"), "is the device of status.allocation.replicas[0].devices[0] too"),
        (held("gpu-0", 1 << 30, "other"), "share.name: other: the device is split by half in"),
    ):
        broken = {**claim("c", part(memory="1Gi")), "status": status([held("gpu-0", 1 << 30), other])}
        ran = plan_objects([cards(1), share(), broken])
        assert ran.status == 2
        assert "DeviceClaim team/c: status.allocation.replicas[0].devices[1]" in ran.err
        assert told in ran.err


def test_a_part_that_no_card_can_give_is_said_of_the_share() -> None:
    """16384Mi less the reserve of 3 % are 15892Mi: asked for exactly that, and for one more."""
    for memory, codes in (("15892Mi", []), ("15893Mi", ["ShareUnavailable", "InsufficientDevices"])):
        ran = plan_objects([cards(1, memory="16384Mi"), share(), claim("c", part(memory=memory))])
        assert ran.codes("c") == codes
        assert ran.status == (3 if codes else 0)
    assert ran.claims["c"]["nearest"] == "fits with memory 15892Mi instead of 15893Mi in request gpu"


def test_f12_who_gives_back_parts_is_named() -> None:
    pool = cards(1)
    pool["spec"]["tenancy"] = {"preemption": {"withinTenant": "LowerPriority"}}
    low = {**claim("low", part(memory="60Gi")), "status": status([held("gpu-0", 60 << 30)])}
    objects = [pool, share(), low, claim("high", part(memory="40Gi"), priority=5)]
    for _ in range(2):
        ran = plan_objects(objects)
        assert ran.codes("high") == ["DeviceReleasing"]
        assert ran.claims["high"]["reasons"][0]["message"].endswith("being released by team/low")
        assert ran.claims["high"]["nominated"]
        objects = [
            {**one, "status": {**one["status"], "nominated": ran.claims[one["metadata"]["name"]]["nominated"]}}
            if one["kind"] == "DeviceClaim"
            else one
            for one in with_status(objects, ran)
        ]
    assert ran.claims["low"]["phase"] == "Releasing"
    assert ran.shown["preempted"] == []


def node(name: str = "n1", **spec: Any) -> Obj:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": ready}


def deleting(entry: Obj) -> Obj:
    stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["adjoin.dev/cleanup"]}
    return {**entry, "metadata": {**entry["metadata"], **stamp}}


TAINTED: Obj = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "broken"},
    "spec": {
        "deviceSelector": {"driver": "adjoin.dev", "pool": "n1", "device": "gpu-0"},
        "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
    },
}
SIXTY = 60 << 30
HELPS: Mapping[str, tuple[Sequence[Obj], str, str]] = {
    "the node is cordoned": ([node(unschedulable=True)], "NodeUnavailable", "1 node would fit, but n1 is cordoned"),
    "the card is not well": ([TAINTED], "Unhealthy", "1 unhealthy where it would fit otherwise: n1/gpu-0"),
    "another part is on its way back": (
        [deleting({**claim("old", part(memory="60Gi")), "status": status([held("gpu-0", SIXTY)])})],
        "DeviceReleasing",
        "1 node would fit with devices that are being released: n1",
    ),
    "the whole card is on its way back": (
        [deleting({**claim("old", WHOLE), "status": status([held("gpu-0")])})],
        "DeviceReleasing",
        "1 node would fit with devices that are being released: n1",
    ),
}


@pytest.mark.parametrize("case", HELPS)
def test_a_part_says_what_would_help(case: str) -> None:
    objects, code, words = HELPS[case]
    ran = plan_objects([cards(1), share(), *objects, claim("c", part(memory="40Gi"))])
    first = ran.claims["c"]["reasons"][0]
    assert (first["code"], first["nodes"]) == (code, 1)
    assert first["message"].startswith(words)
    assert ran.codes("c")[-1] == "ShareUnavailable"


def test_what_would_not_be_enough_is_not_said_to_help() -> None:
    kept = {**claim("kept", part(memory="30Gi")), "status": status([held("gpu-0", 30 << 30)])}
    going = deleting({**claim("going", part(memory="10Gi")), "status": status([held("gpu-0", 10 << 30)])})
    ran = plan_objects([cards(1), share(), kept, going, claim("c", part(memory="60Gi"))])
    assert ran.codes("c") == ["ShareUnavailable"]


WAITED: Mapping[str, tuple[Sequence[Obj], Obj, str]] = {
    "a whole card for who has a part of it": (
        [{**claim("old", part(memory="10Gi")), "status": status([held("gpu-0", 10 << 30)])}],
        WHOLE,
        "fits once DeviceClaim team/old ends",
    ),
    "a whole card for who gives a part of it back": (
        [deleting({**claim("old", part(memory="10Gi")), "status": status([held("gpu-0", 10 << 30)])})],
        WHOLE,
        "fits when team/old has given back n1 gpu-0 (releasing)",
    ),
    "a part for who has the whole card": (
        [{**claim("old", WHOLE), "status": status([held("gpu-0")])}],
        part(memory="10Gi"),
        "fits once DeviceClaim team/old ends",
    ),
    "a part for who gives another one back": (
        [deleting({**claim("old", part(memory="60Gi")), "status": status([held("gpu-0", SIXTY)])})],
        part(memory="40Gi"),
        "fits when team/old has given back n1 gpu-0 (releasing)",
    ),
    "a card that this very plan gives to somebody": (
        [claim("old", WHOLE)],
        WHOLE,
        "fits once DeviceClaim team/old ends",
    ),
    "a card that this very plan gives to somebody in part": (
        [claim("old", part(memory="10Gi"))],
        WHOLE,
        "fits once DeviceClaim team/old ends",
    ),
    "parts of which one alone would be enough": (
        [claim("old", part(memory="10Gi")), claim("big", part(memory="60Gi"))],
        part(memory="70Gi"),
        "fits with memory 7782Mi instead of 70Gi in request gpu",
    ),
}


@pytest.mark.parametrize("case", WAITED)
def test_who_waits_for_parts_is_told_for_whom(case: str) -> None:
    objects, asked, words = WAITED[case]
    ran = plan_objects([cards(1), share(), *objects, claim("waits", asked)])
    assert ran.claims["waits"]["phase"] == "Pending"
    assert ran.claims["waits"]["nearest"] == words


def both(*devices: str, memory: int = 10 << 30) -> Obj:
    replicas = [
        {"index": at, "node": "n1", "state": "Ready", "devices": [held(one, memory)]} for at, one in enumerate(devices)
    ]
    return {"phase": "Ready", "allocation": {"replicas": replicas}}


def over_subscribed(shown: Sequence[Mapping[str, Any]]) -> list[str]:
    return [each["message"] for each in shown[0]["conditions"] if each["type"] == "OverSubscribed"]


def test_of_a_share_with_fewer_devices_than_are_split_nothing_new_is_given() -> None:
    old = {**claim("old", part(memory="10Gi"), replicas=2), "status": both("gpu-0", "gpu-1")}
    ran = plan_objects([cards(2), share(maxDevices=1), old, claim("new", part(memory="10Gi"))])
    assert [replica["state"] for replica in ran.claims["old"]["replicas"]] == ["Ready", "Ready"]
    assert ran.codes("new") == ["ShareUnavailable"]
    assert ran.claims["new"]["reasons"][0]["message"].endswith("nothing is given until fewer are")
    assert over_subscribed(ran.shown["shares"]) == ["2 devices are split, maxDevices is 1"]
    as_many = plan_objects([cards(2), share(maxDevices=2), old, claim("new", part(memory="10Gi"))])
    assert (as_many.codes("new"), over_subscribed(as_many.shown["shares"])) == ([], [])


def test_of_a_share_that_keeps_more_back_than_is_left_nobody_loses_a_part() -> None:
    old = {**claim("old", part(memory="60Gi")), "status": status([held("gpu-0", SIXTY)])}
    ran = plan_objects([cards(1), share(fractional={"minReserve": "30Gi"}), old])
    assert ran.claims["old"]["phase"] == "Ready"
    assert over_subscribed(ran.shown["shares"]) == ["60Gi of n1/gpu-0 is in use, it gives 50Gi"]


def test_more_than_a_card_has_is_the_older_claims() -> None:
    def dated(name: str, day: int) -> Obj:
        entry = {**claim(name, part(memory="60Gi")), "status": status([held("gpu-0", SIXTY)])}
        return {**entry, "metadata": {**entry["metadata"], "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}}

    for objects in ([dated("old", 1), dated("young", 2)], [dated("young", 2), dated("old", 1)]):
        ran = plan_objects([cards(2), share(), *objects])
        assert ran.claims["old"]["phase"] == "Ready"
        assert ran.claims["young"]["phase"] == "Allocated"
        assert ran.devices("young") == {"gpu": ["gpu-1"]}
        assert [each["type"] for each in ran.claims["young"]["conditions"] if each["status"] == "True"][
            -1
        ] == "Conflict"
        assert over_subscribed(ran.shown["shares"]) == []


def test_a_part_behind_a_claim_that_got_half_of_its_replicas_waits_for_nobody_whose_card_that_one_would_take() -> None:
    whole = [claim(name, WHOLE, replicas=2) for name in ("a", "b")]
    ran = plan_objects([cards(3), share(), *whole, claim("c", part(memory="60Gi"))])
    assert [len(ran.claims[name]["replicas"]) for name in "abc"] == [2, 1, 0]
    assert (ran.codes("c"), ran.claims["c"]["nearest"]) == (["ShareUnavailable"], None)


@pytest.mark.parametrize("asked", [WHOLE, part(memory="60Gi")], ids=["whole", "part"])
def test_what_this_plan_evicts_counts_as_releasing(asked: Obj) -> None:
    pool = cards(2)
    pool["spec"]["tenancy"] = {"preemption": {"withinTenant": "LowerPriority"}}
    mine = held("gpu-0") if asked is WHOLE else held("gpu-0", SIXTY)
    low = {**claim("low", asked), "status": status([mine])}
    kept = {**claim("kept", WHOLE, preemptible=False), "status": status([held("gpu-1")])}
    ran = plan_objects([pool, share(), low, kept, claim("high", WHOLE, priority=5)])
    assert [each["name"] for each in ran.shown["preempted"]] == ["low"]
    assert ran.claims["low"]["phase"] == "Releasing"
    counts = ran.shown["pools"][0]["devices"]["gpu"]
    assert (counts["capacity"], counts["allocated"], counts["releasing"]) == (2, 1, 1)


def test_a_need_of_one_byte_more_than_is_left_does_not_look_equal_to_it() -> None:
    left = (80 << 30) - -(-(80 << 30) * 3 // 100) - (40 << 30)
    ran = plan_objects([cards(1), share(), claim("a", part(memory="40Gi")), claim("b", part(memory=str(left + 1)))])
    (reason,) = ran.claims["b"]["reasons"]
    assert "needs 38503Mi of 1 gpu" in reason["message"]
    assert "free 38502Mi" in reason["message"]
    assert ran.claims["b"]["nearest"] == "fits with memory 38502Mi instead of 38503Mi in request gpu"


def test_a_card_with_as_many_clients_as_it_may_have_is_not_fragmented() -> None:
    mps = share(mode="MPS", mps={"maxClients": 1})
    ran = plan_objects([cards(1), mps, claim("a", part(memory="1Gi")), claim("b", part(memory="1Gi"))])
    assert ran.codes("b") == ["ShareUnavailable"]
    assert "room for 0 more" in ran.claims["b"]["reasons"][0]["message"]


def test_a31_a_card_with_room_on_a_full_host_is_given_to_nobody() -> None:
    """The only free part is where neither the CPU nor the memory is that its pod needs: it waits and says so, and goes
    where both are."""

    def machine(name: str, cpu: str, memory: str) -> Obj:
        made = node(name)
        made["status"]["allocatable"] = {"cpu": cpu, "memory": memory, "pods": "100"}
        return made

    asked = claim("c", part(memory="8Gi"), host={"cpu": "4", "memory": "16Gi"})
    for cpu, memory in (("2", "64Gi"), ("32", "8Gi")):
        ran = plan_objects([cards(1), share(), machine("n1", cpu, memory), asked])
        assert (ran.status, ran.claims["c"]["phase"], ran.codes("c")) == (3, "Pending", ["HostResources"])
        assert ran.counts("p", "gpu")["free"] == 1
    ran = plan_objects([cards(1), share(), machine("n1", "8", "32Gi"), asked])
    assert (ran.status, ran.devices("c")) == (0, {"gpu": ["gpu-0"]})


def test_parts_for_two_requests_of_one_replica_lie_on_different_cards() -> None:
    """One request with `sameDevice` is how two parts come to lie on one card."""
    two = [{**part(memory="8Gi"), "name": name, "device": "gpu"} for name in ("a", "b")]
    apart = plan_objects([cards(2), share(), claim("c", *two)])
    assert apart.devices("c") == {"a": ["gpu-0"], "b": ["gpu-1"]}
    waits = plan_objects([cards(1), share(), claim("c", *two)])
    assert (waits.status, waits.codes("c")) == (3, ["Fragmented"])
    assert "no node has all parts and devices together" in waits.claims["c"]["reasons"][0]["message"]
    together = plan_objects([cards(1), share(), claim("c", part(2, memory="8Gi", sameDevice=True))])
    assert (together.status, together.devices("c")) == (0, {"gpu": ["gpu-0", "gpu-0"]})


def test_b11_a_card_of_which_too_much_is_in_use_gives_no_compute_either_and_that_is_said() -> None:
    """Nothing new until use has dropped; it is no question of where what is left lies."""
    grown = share(fractional={"reserve": "50%", "minReserve": "0"})
    holder = {**claim("a", part(memory="60Gi")), "status": status([held("gpu-0", 60 << 30)])}
    ran = plan_objects([cards(1), grown, holder, claim("b", part(compute="100m"))])
    (reason,) = ran.claims["b"]["reasons"]
    assert (reason["code"], reason["nodes"]) == ("ShareUnavailable", 1)
    assert reason["message"].endswith("best gpu has free 0m, of 1 device more is in use than it gives by now")
    assert ran.claims["b"]["nearest"] == "fits once DeviceClaim team/a ends"
