"""Parts of cards through `plan`, from objects to what is printed: what the sentences on sharing say, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
