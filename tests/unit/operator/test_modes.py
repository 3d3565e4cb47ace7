"""Devices on their way into a share's mode and back, on whole decisions against a simulated API server: what the
share's status records, which hooks run with what they are told, and who waits for whom."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.environments import static_device, static_pool
from tests.support.objects import deviceclaim, deviceshare, node
from tests.support.world import Ending, World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
GI = 1 << 30


def hook(name: str, **fields: Any) -> Obj:
    return {"name": name, "template": TEMPLATE, **fields}


HOOKED = {"init": [hook("make", retries=0)], "cleanup": [hook("unmake", retries=0)]}


def card(place: int, node_name: str = "n1") -> Obj:
    return {**static_device(f"gpu-{place}", uuid=f"GPU-{node_name}-{place}"), "capacity": {"memory": "80Gi"}}


def cluster(*others: Obj, cards: int = 2, lifecycle: Obj = HOOKED, **spec: Any) -> World:
    world = World()
    pool = static_pool({"n1": {"gpu": [card(place) for place in range(cards)]}}, lifecycle=lifecycle, **spec)
    world.add(pool, node("n1"), *others)
    return world


def part(name: str = "job-a", share: str = "half", memory: str = "20Gi", **fields: Any) -> Obj:
    request = {"name": "gpu", "share": {"name": share, "memory": memory}}
    return deviceclaim(name, requests=[request], **fields)


def told(job: Obj) -> Obj:
    """What a hook was told of its devices, with the phase."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    return {
        "phase": given["ADJOIN_PHASE"],
        "claim": given["ADJOIN_CLAIM"],
        "devices": json.loads(given["ADJOIN_DEVICES"]),
    }


def ran(world: World) -> list[str]:
    """Hooks that ran: phase, claim, device, and whether they were about a part or the whole of it."""
    lines = []
    for job in world.ran:
        given = told(job)
        for device in given["devices"]:
            share = device.get("share")
            what = "whole" if share is None else f"part {share['name']}" if "part" in share else f"mode {share['name']}"
            lines.append(" ".join(filter(None, (given["phase"], given["claim"], device["device"], what))))
    return lines


def ledger(world: World, name: str = "half") -> dict[str, str]:
    share = world.get(Kind.DEVICE_SHARE, name)
    assert share is not None
    return {each["device"]: each["state"] for each in (share.get("status") or {}).get("placements") or ()}


def condition(world: World, kind: str, name: str = "half") -> str | None:
    share = world.get(Kind.DEVICE_SHARE, name)
    assert share is not None
    found = [each for each in share["status"]["conditions"] if each["type"] == kind and each["status"] == "True"]
    return str(found[0]["message"]) if found else None


def devices(world: World, name: str = "job-a") -> list[Obj]:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    replicas = ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or []
    return [device for replica in replicas for device in replica["devices"]]


def state(world: World, name: str = "job-a") -> str:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    replicas = ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or [{"state": "none"}]
    return str(replicas[0]["state"])


def believed_once(world: World) -> None:
    """No device stands in two shares' modes, and nothing is prepared for a claim on one that is in another mode."""
    modes: dict[str, str] = {}
    for share in world.all(Kind.DEVICE_SHARE):
        for each in (share.get("status") or {}).get("placements") or ():
            assert each["device"] not in modes, f"{each['device']} is in two modes"
            modes[each["device"]] = share["metadata"]["name"]
    for claim in world.all(Kind.DEVICE_CLAIM):
        for replica in ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or ():
            for device in replica["devices"]:
                own = (device.get("share") or {}).get("name", "")
                other = modes.get(device["device"], own) != own
                assert not other or replica["state"] in ("Allocated", "Releasing"), (claim["metadata"]["name"], device)


def settle(world: World, make: Callable[[], Any] = Decider, rounds: int = 120) -> None:
    world.settle(make, rounds=rounds, check=believed_once)


# A part's life


def test_a_device_is_recorded_in_the_share_before_a_hook_makes_a_part_of_it() -> None:
    world = cluster(deviceshare(), part())
    seen: list[str] = []

    def end(job: Obj) -> Ending:
        seen.append(ledger(world).get("gpu-0", "missing"))
        return Ending()

    world.hook = end
    settle(world)
    assert state(world) == "Ready"
    assert seen == ["Ready"]
    assert ran(world) == ["init team/job-a gpu-0 part half"]
    (device,) = told(world.ran[0])["devices"]
    assert device["share"] == {"name": "half", "mode": "Fractional", "part": "gpu-0", "memory": 20 * GI}


def test_c4_the_cleaning_of_a_part_is_told_of_that_part_and_leaves_the_others_alone() -> None:
    world = cluster(deviceshare(), part(), part("job-b", memory="30Gi"), cards=1)
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    assert ran(world)[2:] == ["cleanup team/job-a gpu-0 part half"]
    (device,) = told(world.ran[-1])["devices"]
    assert (device["share"]["memory"], device["owner"]) == (20 * GI, "claim-team-job-a")
    assert state(world, "job-b") == "Ready"
    assert ledger(world) == {"gpu-0": "Ready"}


def test_the_steady_state_writes_nothing() -> None:
    world = cluster(
        deviceshare(idleReset="1h", dwell="10m"), deviceshare("eager", prepare="Eager", maxDevices=1), part()
    )
    settle(world)
    before = len(world.writes)
    decision = Decider().decide(world.view(), world.now)
    assert [step for intent in decision.intents for step in intent.steps] == []
    assert len(world.writes) == before
