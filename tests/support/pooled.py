"""A World with one pool and what tests ask of it again and again: phases, replicas, quarantine, Events, hooks that ran.

In come the World's objects, out go the few words of them that a test compares. Nothing here knows how a decision is
made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tests.support.objects import GPU_DRIVER, devicepool, node, resourceslice
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
VERIFY = {"name": "verify", "template": TEMPLATE}
SCRUB = {"name": "scrub", "template": TEMPLATE, "retries": 1}
HOOKS = {"init": [VERIFY], "cleanup": [SCRUB]}


def cluster(*others: Obj, devices: int = 2, lifecycle: Obj = HOOKS, health: Obj | None = None, **spec: Any) -> World:
    """One node `n1` with so many GPUs, and a pool of them."""
    world = World()
    body = {"lifecycle": lifecycle, **({"health": health} if health is not None else {}), **spec}
    world.add(devicepool(spec=body), node("n1"), resourceslice("n1", devices=devices), *others)
    return world


def slice_of(name: str = "n1", driver: str = GPU_DRIVER) -> str:
    """Name of the ResourceSlice of a node."""
    return f"{name}-{driver}"


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Obj:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def publish(
    world: World, node_name: str = "n1", devices: Any = 2, taints: Mapping[str, Any] = NOTHING, **fields: Any
) -> None:
    """The driver publishes its devices anew."""
    name = slice_of(node_name)
    made = resourceslice(node_name, devices=devices, taints=taints, **fields)
    if world.get(Kind.RESOURCE_SLICE, name) is None:
        world.add(made)
    else:
        world.change(Kind.RESOURCE_SLICE, name, {"spec": made["spec"]})


def steps(world: World, decider: Decider | None = None, *, seconds: int = 5) -> Decider:
    """Operator and components for a few seconds, in which nothing that is due later comes about."""
    decider = decider or Decider()
    for _ in range(seconds):
        world.carry_out(decider.decide(world.view(), world.now).intents)
        world.kubernetes()
        world.verify()
        world.now += 1.0
    return decider


def status(world: World, kind: Kind = Kind.DEVICE_CLAIM, name: str = "job-a") -> Obj:
    obj = world.get(kind, name)
    return {} if obj is None else obj.get("status") or {}


def phase(world: World, name: str = "job-a") -> str:
    return "gone" if world.get(Kind.DEVICE_CLAIM, name) is None else str(status(world, name=name).get("phase") or "")


def replicas(world: World, name: str = "job-a") -> list[Obj]:
    return list((status(world, name=name).get("allocation") or {}).get("replicas") or [])


def held(world: World, name: str = "job-a") -> dict[int, list[str]]:
    """Devices by replica, as `node/device`."""
    return {
        each["index"]: [f"{each['node']}/{device['device']}" for device in each["devices"]]
        for each in replicas(world, name)
    }


def pool(world: World) -> Obj:
    return status(world, Kind.DEVICE_POOL, "training")


def quarantined(world: World) -> dict[str, str]:
    """Reason by device."""
    return {each["device"]: each["reason"] for each in pool(world).get("quarantined") or ()}


def counts(world: World, name: str = "gpu") -> Obj:
    return {key: count for key, count in pool(world)["devices"][name].items() if count}


def conditions(world: World, name: str = "job-a") -> dict[str, str]:
    """Messages of the conditions that hold, by type."""
    return {
        each["type"]: each["message"]
        for each in status(world, name=name).get("conditions") or ()
        if each["status"] == "True"
    }


def reasons(world: World, name: str = "job-a") -> dict[str, str]:
    return {each["code"]: each["message"] for each in status(world, name=name).get("reasons") or ()}


def events(world: World, reason: str, kind: str = "") -> list[str]:
    return [
        event["note"]
        for event in world.all(Kind.EVENT)
        if event["reason"] == reason and kind in ("", event["regarding"]["kind"])
    ]


def variables(job: Obj) -> dict[str, str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def ran(world: World) -> list[str]:
    """Hooks whose pods began to run, in order."""
    return [f"{job['metadata']['labels']['adjoin.dev/hook']} {variables(job)['ADJOIN_HOOK']}" for job in world.ran]


def gated(world: World, name: str = "worker") -> bool:
    found = world.get(Kind.POD, name)
    assert found is not None
    return bool(found["spec"].get("schedulingGates"))
