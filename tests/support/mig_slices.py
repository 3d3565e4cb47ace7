"""ResourceSlices of cards that publish the whole and every partition with the counters that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.objects import GPU_DRIVER, Obj, devicepool, resourceslice
from tests.support.partitions import PROFILES, set_of

MIG = f"device.attributes['{GPU_DRIVER}'].type == 'mig'"
WHOLE = f"device.attributes['{GPU_DRIVER}'].type == 'gpu'"


def amounts(taken: Mapping[str, int]) -> dict[str, Any]:
    """Counters as an object of the API has them."""
    return {name: {"value": str(amount)} for name, amount in taken.items()}


def mig_slices(
    node: str = "n1", cards: int = 1, profiles: Iterable[str] = PROFILES, *, apart: bool = False, generation: int = 1
) -> list[Obj]:
    """Slices of a node: counters beside the devices, or `apart` in a slice of their own."""
    devices: dict[str, dict[str, Any]] = {}
    consumes: dict[str, tuple[str, dict[str, int]]] = {}
    for number in range(cards):
        name, counters = f"gpu-{number}", f"gpu-{number}-counter-set"
        uuid = f"GPU-{node}-{number}"
        devices[name] = {"type": {"string": "gpu"}, "uuid": {"string": uuid}}
        consumes[name] = (counters, set_of(range(8), 7))
        for profile in profiles:
            starts, size, compute = PROFILES[profile]
            for start in starts:
                part = f"{name}-mig-{profile}-{start}"
                attributes = {"type": "mig", "parentUUID": uuid, "profile": profile}
                devices[part] = {key: {"string": value} for key, value in attributes.items()}
                consumes[part] = (counters, set_of(range(start, start + size), compute))
    made = resourceslice(node, GPU_DRIVER, devices, generation=generation)
    for device in made["spec"]["devices"]:
        counters, taken = consumes[device["name"]]
        device["consumesCounters"] = [{"counterSet": counters, "counters": amounts(taken)}]
    shared = [
        {"name": f"gpu-{number}-counter-set", "counters": amounts(set_of(range(8), 7))} for number in range(cards)
    ]
    slices = [made]
    if apart:
        slices.append(
            resourceslice(node, GPU_DRIVER, {}, generation=generation, name=f"{node}-counters", uid=f"c-{node}")
        )
        del slices[1]["spec"]["devices"]
    slices[-1]["spec"]["sharedCounters"] = shared
    for each in slices:
        each["spec"]["pool"]["resourceSliceCount"] = len(slices)
    return slices


def mig_pool(**more: Any) -> Obj:
    """A pool that names whole cards and partitions."""
    names = [
        {"name": name, "type": "GPU", "source": {"resourceSlices": {"driver": GPU_DRIVER, "selectors": [{"cel": cel}]}}}
        for name, cel in (("gpu", WHOLE), ("mig", MIG))
    ]
    return devicepool(devices=names, **more)


def asking(name: str, profile: str, count: int = 1) -> Obj:
    """A request for partitions of a profile."""
    cel = f"device.attributes['{GPU_DRIVER}'].profile == '{profile}'"
    return {"name": name, "device": "mig", "count": count, "selectors": [{"cel": cel}]}
