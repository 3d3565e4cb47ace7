"""Parts that are to have another size, on whole decisions against a simulated API server: which grow, which shrink,
what is said of those that do neither; and that no pod is stopped for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.environments import admitted, static_device, static_pool
from tests.support.objects import deviceclaim, deviceshare, node
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]
GI = 1 << 30
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
WHOLE = {"fractional": {"reserve": "0%", "minReserve": "0"}}


def part(name: str = "job-a", memory: str = "4Gi", **fields: Any) -> Obj:
    return deviceclaim(name, requests=[{"name": "gpu", "share": {"name": "half", "memory": memory}}], **fields)


def cluster(*others: Obj, hooks: bool = False, cards: int = 1, **spec: Any) -> World:
    listed = [{**static_device(f"gpu-{n}", uuid=f"GPU-{n}"), "capacity": {"memory": "9Gi"}} for n in range(cards)]
    lifecycle = {"init": [{"name": "make", "template": TEMPLATE}]} if hooks else {}
    world = World()
    world.add(static_pool({"n1": {"gpu": listed}}, lifecycle=lifecycle, **spec), node("n1"))
    world.add(deviceshare(**WHOLE), *others)
    world.settle(Decider)
    return world


def edit(world: World, memory: str, name: str = "job-a") -> None:
    requests = [{"name": "gpu", "share": {"name": "half", "memory": memory}}]
    world.change(Kind.DEVICE_CLAIM, name, {"spec": {"requests": requests}})
    world.settle(Decider)


def held(world: World, name: str = "job-a") -> int:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    (replica,) = claim["status"]["allocation"]["replicas"]
    return int(replica["devices"][0]["share"]["memory"]) // GI


def pending(world: World, name: str = "job-a") -> str:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    found = [each["message"] for each in claim["status"]["conditions"] if each["reason"] == "ResizePending"]
    return found[0] if found else ""


def phase(world: World, name: str = "job-a") -> str:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    return str(claim["status"]["phase"])


def limit(world: World) -> int:
    found = world.get(Kind.POD, "worker")
    assert found is not None
    return int(world.environment(found)["ADJOIN_MEMORY_LIMIT_BYTES"]) // GI


def test_b17_a_part_grows_when_there_is_room_and_shrinks_when_its_pod_has_ended() -> None:
    world = cluster(part(), part("job-b", "4Gi"), admitted(parted=True))
    before = world.get(Kind.POD, "worker")
    assert before is not None
    edit(world, "6Gi")
    assert (held(world), phase(world)) == (4, "InUse")
    assert pending(world) == "replica 0 keeps 4Gi of gpu-0, 6Gi is asked: its card has room for 5Gi, 1000m"
    edit(world, "2Gi", "job-b")
    assert (held(world, "job-b"), held(world)) == (2, 6)
    assert pending(world) == ""
    edit(world, "2Gi")
    assert (held(world), phase(world)) == (6, "InUse")
    assert pending(world) == "replica 0 keeps 6Gi of gpu-0, 2Gi is asked: it changes when its pod has ended"
    after = world.get(Kind.POD, "worker")
    assert after is not None
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert limit(world) == 4, "what runs keeps what it was told"
    world.finish("worker")
    world.settle(Decider)
    assert held(world) == 2
    assert pending(world) == ""


def test_of_two_that_want_the_same_room_the_older_has_it() -> None:
    older = part("old", "3Gi", creationTimestamp="2026-11-30T07:00:00Z")
    world = cluster(older, part("new", "3Gi"))
    for name in ("new", "old"):
        requests = [{"name": "gpu", "share": {"name": "half", "memory": "6Gi"}}]
        world.change(Kind.DEVICE_CLAIM, name, {"spec": {"requests": requests}})
    world.settle(Decider)
    assert (held(world, "old"), held(world, "new")) == (6, 3)
    assert "room for 3Gi" in pending(world, "new")


def test_a_part_does_not_grow_beyond_its_tenants_quota() -> None:
    tenants = [{"name": "one", "namespaces": ["team"], "quota": {"gpu": 1}}]
    world = cluster(part(), tenancy={"tenants": tenants}, cards=2)
    edit(world, "6Gi")
    assert held(world) == 6
    other = {"selectors": [{"cel": "device.attributes['adjoin.dev'].uuid == 'GPU-1'"}]}
    world.add(deviceclaim("job-b", requests=[{"name": "gpu", "share": {"name": "half", "memory": "2Gi"}, **other}]))
    world.settle(Decider)
    assert held(world, "job-b") == 2
    edit(world, "7Gi")
    assert held(world) == 6
    assert pending(world).endswith("tenant one would have 1001m of 1 gpu")
    edit(world, "5Gi")
    assert held(world) == 5


def test_where_hooks_make_a_part_they_make_it_anew_with_its_new_size_but_not_under_a_pod() -> None:
    world = cluster(part(), hooks=True)
    edit(world, "6Gi")
    assert (held(world), phase(world), len(world.ran)) == (6, "Ready", 2)
    (container,) = world.ran[-1]["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    assert json.loads(given["ADJOIN_DEVICES"])[0]["share"]["memory"] == 6 * GI
    world.add(admitted(parted=True))
    world.settle(Decider)
    edit(world, "8Gi")
    assert (held(world), phase(world), len(world.ran)) == (6, "InUse", 2)
    world.finish("worker")
    world.settle(Decider)
    assert (held(world), phase(world), len(world.ran)) == (8, "Ready", 3)


@pytest.mark.parametrize("hooks", [False, True], ids=["no hooks", "hooks"])
def test_a_crash_before_any_write_changes_nothing_about_the_end(hooks: bool) -> None:
    def story(crash: int | None) -> tuple[Any, int]:
        world = cluster(part(), part("job-b", "4Gi"), hooks=hooks)
        done = len(world.writes)
        world.crash_after(crash)
        edit(world, "2Gi", "job-b")
        edit(world, "7Gi")
        world.crash_after(None)
        return (held(world), held(world, "job-b"), phase(world), len(world.ran)), len(world.writes) - done

    end, writes = story(None)
    assert end[:3] == (7, 2, "Ready")
    assert writes > 1
    for crash in range(writes):
        assert story(crash)[0] == end, f"crash before write {crash}"
