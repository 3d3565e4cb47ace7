"""Cards that ordinary ResourceClaims have parts of, on whole decisions against a simulated API server: what their
share says is left, and that nothing is done to a card that somebody else uses."""

from __future__ import annotations

from typing import Any

from tests.support.environments import admitted
from tests.support.objects import deviceclaim, devicepool, deviceshare, node, resourceclaim, resourceslice
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
HOOKS = {"cleanup": [{"name": "unmake", "template": TEMPLATE}]}


def cluster(*others: Obj) -> World:
    """One card of 40 GiB of which an ordinary ResourceClaim consumes 10."""
    published = resourceslice(devices=1)
    (card,) = published["spec"]["devices"]
    card |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
    gpu = ("gpu.nvidia.com", "n1", "gpu-0")
    theirs = resourceclaim("theirs", namespace="other", owner="", devices=[gpu], reserved=(), finalizers=())
    (result,) = theirs["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": "c15242e6-ce62-442c-a21f-cdfbb8ed5f72", "consumedCapacity": {"memory": "10Gi"}}
    world = World()
    pool = devicepool(delivery={"mode": "Environment", "guard": "None"}, spec={"lifecycle": HOOKS})
    share = deviceshare(fractional={"reserve": "0%", "minReserve": "0"})
    world.add(pool, node("n1"), published, theirs, share, *others)
    world.settle(Decider)
    return world


def part(name: str = "job-a", memory: str = "20Gi") -> Obj:
    return deviceclaim(name, requests=[{"name": "gpu", "share": {"name": "half", "memory": memory}}])


def status(world: World) -> Obj:
    share = world.get(Kind.DEVICE_SHARE, "half")
    assert share is not None
    found: Obj = share["status"]
    return found


def held(world: World, name: str = "job-a") -> list[str]:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    replicas = ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or ()
    return [device["device"] for replica in replicas for device in replica["devices"]]


def leave(world: World) -> None:
    """The others have ended."""
    world.delete(Kind.RESOURCE_CLAIM, "theirs", "other", force=True)
    world.settle(Decider)


def test_what_they_leave_is_given_and_counted() -> None:
    world = cluster()
    assert status(world)["free"] == 750
    world.add(part("job-a"), part("job-b"))
    world.settle(Decider)
    assert (held(world, "job-a"), held(world, "job-b")) == (["gpu-0"], [])
    leave(world)
    assert held(world, "job-b") == ["gpu-0"]


def test_a_pod_is_served_beside_them() -> None:
    world = cluster(part(), admitted(parted=True))
    pod = world.get(Kind.POD, "worker")
    assert pod is not None
    assert world.environment(pod)["ADJOIN_MEMORY_LIMIT_BYTES"] == str(20 << 30)


def test_a_card_is_not_brought_out_of_its_mode_while_they_use_it() -> None:
    world = cluster(part())
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    world.delete(Kind.DEVICE_SHARE, "half")
    before = len(world.ran)
    world.settle(Decider)
    assert [each["device"] for each in status(world)["placements"]] == ["gpu-0"]
    assert len(world.ran) == before, "no hook works on a card that others use"
    leave(world)
    assert world.get(Kind.DEVICE_SHARE, "half") is None
    assert len(world.ran) == before + 1
