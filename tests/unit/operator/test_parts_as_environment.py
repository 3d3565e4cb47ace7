"""Parts of devices as environment, on whole decisions against a simulated API server: what containers are told, what
hooks have to read back before, and what is never handed over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.environments import admitted, static_device, static_pool
from tests.support.objects import allocation, deviceclaim, deviceshare, node, pod, replica
from tests.support.world import Ending, World

from adjoin.admission.pods import Refused, mutate_pod
from adjoin.admission.variables import Environment
from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]
GI = 1 << 30
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}


def cluster(*others: Obj, hooks: bool = False, **spec: Any) -> World:
    cards = [{**static_device(f"gpu-{place}", uuid=f"GPU-{place}"), "capacity": {"memory": "80Gi"}} for place in (0, 1)]
    lifecycle = {"init": [{"name": "make", "retries": 1, "template": TEMPLATE}]} if hooks else {}
    world = World()
    world.add(static_pool({"n1": {"gpu": cards}}, lifecycle=lifecycle, **spec), node("n1"), *others)
    return world


def placed(*devices: tuple[str, Obj], state: str = "Ready") -> Obj:
    """A claim that has these parts already, a request for each."""
    listed, requests = [], []
    for number, (name, share) in enumerate(devices):
        request = f"gpu-{number}"
        device = {"request": request, "driver": "adjoin.dev", "pool": "n1", "device": name, "id": name.upper()}
        listed.append({**device, **({"share": share} if share else {})})
        kept = {key: value for key, value in share.items() if key in ("name", "memory", "profile", "slots")}
        compute = {"compute": f"{share['compute']}m"} if "compute" in share else {}
        requests.append({"name": request, "device": "gpu", **({"share": {**kept, **compute}} if share else {})})
    return deviceclaim(requests=requests, status=allocation({**replica(state=state), "devices": listed}))


def environment(world: World) -> dict[str, str]:
    found = world.get(Kind.POD, "worker")
    assert found is not None
    assert found["status"]["phase"] == "Running", events(world)
    return world.environment(found)


def events(world: World) -> dict[str, str]:
    return {each["reason"]: each["note"] for each in world.all(Kind.EVENT)}


def state(world: World) -> str:
    claim = world.get(Kind.DEVICE_CLAIM, "job-a")
    assert claim is not None
    replicas = ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or [{"state": "none"}]
    return str(replicas[0]["state"])


FRACTION = {"name": "half", "memory": 20 * GI, "compute": 250}
LIMITED = {
    "ADJOIN_MEMORY_LIMIT_BYTES": str(20 * GI),
    "ADJOIN_COMPUTE_LIMIT_MILLI": "250",
    "ADJOIN_MEMORY_FRACTION": "0.2500",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2500",
    "CUDA_DEVICE_MEMORY_LIMIT": "20480m",
    "CUDA_DEVICE_SM_LIMIT": "25",
}
MPS = {
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M",
}


@pytest.mark.parametrize(
    ("mode", "devices", "visible", "expected"),
    [
        pytest.param("Fractional", [("gpu-0", FRACTION)], "GPU-0", LIMITED, id="a fraction"),
        pytest.param("MPS", [("gpu-0", FRACTION)], "GPU-0", {**LIMITED, **MPS}, id="a client of MPS"),
        pytest.param(
            "MPS",
            [("gpu-0", {**FRACTION, "pipe": "/run/mps/gpu-0"})],
            "GPU-0",
            {**LIMITED, **MPS, "CUDA_MPS_PIPE_DIRECTORY": "/run/mps/gpu-0"},
            id="whose daemon a hook named",
        ),
        pytest.param(
            "MPS",
            [("gpu-0", FRACTION), ("gpu-1", {**FRACTION, "memory": 10 * GI, "compute": 500})],
            "GPU-0,GPU-1",
            {
                "ADJOIN_MEMORY_LIMIT_BYTES": f"{20 * GI},{10 * GI}",
                "ADJOIN_COMPUTE_LIMIT_MILLI": "250,500",
                "ADJOIN_MEMORY_FRACTION": "0.1250",
                "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1250",
                "CUDA_DEVICE_MEMORY_LIMIT": "10240m",
                "CUDA_DEVICE_SM_LIMIT": "25",
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M,1=10240M",
            },
            id="two cards: the least where a variable knows one",
        ),
        pytest.param(
            "Fractional",
            [("gpu-0", {"name": "half", "memory": 20 * GI})],
            "GPU-0",
            {key: value for key, value in LIMITED.items() if "COMPUTE" not in key and "SM" not in key},
            id="memory alone",
        ),
        pytest.param("TimeSliced", [("gpu-0", {"name": "half", "slots": 1})], "GPU-0", {}, id="a slot has no limits"),
        pytest.param(
            "Partitioned",
            [("gpu-0", {"name": "half", "profile": "1g.10gb", "start": 3, "id": "MIG-3"})],
            "MIG-3",
            {},
            id="a partition is a device of its own",
        ),
        pytest.param("Fractional", [("gpu-0", {})], "GPU-0", {}, id="a whole card"),
    ],
)
def test_a_container_is_told_of_its_part(mode: str, devices: Any, visible: str, expected: dict[str, str]) -> None:
    world = cluster(deviceshare(mode=mode), placed(*devices), admitted(parted=True))
    world.settle(Decider)
    got = environment(world)
    told = json.loads(got.pop("ADJOIN_DEVICES"))
    assert (got.pop("NVIDIA_VISIBLE_DEVICES"), got.pop("CUDA_VISIBLE_DEVICES")) == (visible, visible)
    assert got == expected
    kept = [{key: value for key, value in share.items() if key != "pipe"} for _, share in devices]
    assert [each.get("share", {}) for each in told] == kept


def test_b19_limits_of_a_pod_come_from_its_claim_whatever_the_pod_says() -> None:
    own = pod(resource_claims=0, gates=())
    own["spec"]["containers"][0]["env"] = [
        {"name": "XLA_PYTHON_CLIENT_MEM_FRACTION", "value": ".9"},
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "100"},
        {"name": "MINE", "value": "1"},
    ]
    _, warnings = mutate_pod(own, (), ["gpu"], Environment(parted=True))
    assert [warning.partition(" ")[0] for warning in warnings] == [
        "spec.containers[0].env[CUDA_MPS_ACTIVE_THREAD_PERCENTAGE]",
        "spec.containers[0].env[XLA_PYTHON_CLIENT_MEM_FRACTION]",
    ]
    world = cluster(deviceshare(mode="MPS"), placed(("gpu-0", FRACTION)), admitted(own, parted=True))
    world.settle(Decider)
    got = environment(world)
    assert got["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.2500"
    assert got["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert got["MINE"] == "1"


@pytest.mark.parametrize(
    "name",
    ["CUDA_DISABLE_CONTROL", "GPU_CORE_UTILIZATION_POLICY", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"],
)
def test_b15_a_switch_that_turns_a_part_into_the_whole_card_is_refused(name: str) -> None:
    own = pod(resource_claims=0, gates=())
    own["spec"]["containers"][0]["env"] = [{"name": name, "value": "true"}]
    with pytest.raises(Refused, match=rf"spec\.containers\[0\]\.env\[{name}\].*beyond the claim's part"):
        mutate_pod(own, (), ["gpu"], Environment(parted=True))
    mutate_pod(own, (), ["gpu"], Environment())


@pytest.mark.parametrize(
    ("mode", "share"),
    [
        ("Partitioned", {"name": "half", "profile": "1g.10gb", "start": 0}),
        ("VirtualFunctions", {"name": "half", "vf": 2}),
    ],
)
def test_a_part_that_nobody_has_named_is_not_handed_over_as_the_card(mode: str, share: Obj) -> None:
    world = cluster(deviceshare(mode=mode), placed(("gpu-0", share)), admitted(parted=True))
    world.settle(Decider)
    assert "no init hook has reported the id" in events(world)["IdentityUnknown"]
    assert not [each for each in world.all(Kind.CONFIG_MAP) if "data" in each and "ADJOIN_DEVICES" in each["data"]]


# What hooks read back


def asked(**share: Any) -> Obj:
    return deviceclaim(requests=[{"name": "gpu", "share": {"name": "half", **share}}])


def saying(*reports: Obj) -> Any:
    """A hook that says this of its part, at its first attempt, its second and so on."""
    left = list(reports)

    def key(job: Obj) -> str:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        (device,) = json.loads(next(each["value"] for each in container["env"] if each["name"] == "ADJOIN_DEVICES"))
        return str(device["share"]["part"])

    def end(job: Obj) -> Ending:
        report = left.pop(0) if len(left) > 1 else left[0]
        return Ending(message=json.dumps({"message": "made", "parts": {key(job): report}}))

    return end


def test_b6_a_replica_is_ready_only_when_what_was_read_back_is_what_was_asked() -> None:
    world = cluster(deviceshare(), asked(memory="20Gi", compute="250m"), hooks=True, health={"recovery": "Manual"})
    world.hook = saying({"memory": 80 * GI, "compute": 1000}, {"memory": 20 * GI, "compute": 250, "id": "part-0"})
    world.settle(Decider)
    assert state(world) == "Ready"
    assert len(world.ran) == 2
    assert "memory 81920Mi was read back, 20480Mi is asked" in events(world)["HookFailed"]
    claim = world.get(Kind.DEVICE_CLAIM, "job-a")
    assert claim is not None
    (entry,) = claim["status"]["allocation"]["replicas"]
    assert entry["devices"][0]["share"]["id"] == "part-0"
    assert entry["hooks"][0]["message"] == '{"message":"made"}'


@pytest.mark.parametrize(
    "report",
    [
        pytest.param({"memory": 80 * GI}, id="the whole card"),
        pytest.param({"memory": "20Gi"}, id="text for a number"),
        pytest.param({"compute": 260}, id="a percent more"),
        pytest.param("done", id="no object"),
    ],
)
def test_b6_a_hook_that_never_reads_back_what_was_asked_counts_as_failed(report: Any) -> None:
    world = cluster(
        deviceshare(maxDevices=1), asked(memory="20Gi", compute="250m"), hooks=True, health={"recovery": "Manual"}
    )
    world.hook = saying(report)
    world.settle(Decider, rounds=200)
    assert state(world) != "Ready"
    found = world.get(Kind.DEVICE_POOL, "training")
    assert found is not None
    assert {each["device"] for each in found["status"]["quarantined"]} >= {"gpu-0"}


def test_a_rest_that_no_tool_can_set_is_no_difference() -> None:
    world = cluster(deviceshare(), asked(memory="20G", compute="255m"), hooks=True)
    world.hook = saying({"memory": (20 * 10**9 >> 20) << 20, "compute": 250})
    world.settle(Decider)
    assert state(world) == "Ready"


def test_b6_a_hook_that_says_nothing_of_one_of_its_parts_has_failed() -> None:
    world = cluster(deviceshare(), asked(memory="20Gi"), hooks=True, health={"recovery": "Manual"})
    world.hook = lambda job: Ending(message=json.dumps({"parts": {"gpu-9": {"memory": 20 * GI}}}))
    world.settle(Decider, rounds=200)
    assert state(world) != "Ready"
    assert "nothing was read back" in events(world)["HookFailed"]
