"""Field reports on what pods are given, what is written, and what is refused. Named by the report's id."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.objects import Obj, deviceclaim, pod
from tests.support.small import cluster
from tests.support.world import World

from adjoin.admission import Refused, mutate_pod
from adjoin.admission.pods import VOID
from adjoin.api import DeviceClaim
from adjoin.decision import Decider
from adjoin.delivery import parts
from adjoin.intents import Kind


def test_a29_status_resourceclaim_reservation_and_pod_name_the_same() -> None:
    """One source of truth, for many claims at once."""
    world = cluster(nodes=5, gpus=8, nics=4)
    for number in range(20):
        world.add(
            deviceclaim(f"c{number}", requests={"gpu": 2, "nic": 1}),
            pod(f"p{number}", claim=f"c{number}", token=f"{number:010d}"),
        )
    world.settle(Decider)
    for number in range(20):
        claim, user = world.get(Kind.DEVICE_CLAIM, f"c{number}"), world.get(Kind.POD, f"p{number}")
        delivery = world.get(Kind.RESOURCE_CLAIM, f"adjoin-c{number}-{number:010d}")
        assert claim is not None
        assert user is not None
        assert delivery is not None
        (entry,) = claim["status"]["allocation"]["replicas"]
        results = delivery["status"]["allocation"]["devices"]["results"]
        keys = ("request", "driver", "pool", "device")
        assert [[each[key] for key in keys] for each in entry["devices"]] == [
            [each[key] for key in keys] for each in results
        ]
        assert delivery["status"]["reservedFor"][0]["uid"] == user["metadata"]["uid"]
        assert user["spec"]["nodeName"] == entry["node"]
        assert delivery["metadata"]["ownerReferences"][0]["uid"] == claim["metadata"]["uid"]


def idle(world: World, decider: Decider, seconds: int) -> None:
    for _ in range(seconds):
        world.now += 1
        world.carry_out(decider.decide(world.view(), world.now).intents)
        world.kubernetes()


def test_d9_five_minutes_of_nothing_are_no_writes() -> None:
    """Placed, running, waiting, refused and guarded objects: none of them is written to."""
    world = cluster(nodes=2)
    world.add(
        deviceclaim("runs"),
        pod("p1", claim="runs", token="a" * 10),
        deviceclaim("idle"),
        deviceclaim("waits", requests={"gpu": 5}),
        deviceclaim("lost", pool="nope"),
        pod("p2", claim="nobody", token="b" * 10),
        pod("p3", claim="waits", token="c" * 10),
    )
    world.settle(Decider)
    world.writes.clear()
    idle(world, Decider(), 300)
    assert world.writes == []
    idle(world, Decider(), 5)
    assert world.writes == []


def test_d11_one_event_per_change_of_reason_however_the_numbers_change() -> None:
    world = cluster(nodes=2, gpus=4)
    world.add(deviceclaim("waits", requests={"gpu": 9}))
    world.settle(Decider)
    for number in range(6):
        world.add(deviceclaim(f"c{number}"))
        world.settle(Decider)
        world.now += 20
    told = Counter((each["regarding"]["name"], each["reason"]) for each in world.all(Kind.EVENT))
    assert all(count == 1 for count in told.values()), told
    about = {reason for name, reason in told if name == "waits"}
    assert len(about) <= 2


def test_d11_numbers_of_many_waiting_claims_do_not_make_a_flood() -> None:
    """One placement changes the numbers of a hundred waiting claims; they are brought up to date in turns."""
    world = cluster(nodes=2, gpus=4)
    for number in range(100):
        world.add(deviceclaim(f"w{number}", requests={"gpu": 9}))
    world.settle(Decider)
    world.writes.clear()
    world.add(deviceclaim("c0"))
    decider = Decider()
    world.carry_out(decider.decide(world.view(), world.now).intents)
    world.writes.clear()
    world.carry_out(decider.decide(world.view(), world.now).intents)
    assert len([step for step in world.writes if step.kind is Kind.DEVICE_CLAIM]) < 50
    idle(world, decider, 12)
    world.writes.clear()
    idle(world, decider, 12)
    assert world.writes == []


# Admission

LAYOUT = parts(DeviceClaim.model_validate(deviceclaim()), None)


def admitted(made: Obj) -> list[dict[str, Any]]:
    """The patch for a pod of a claim for one GPU."""
    patch, _ = mutate_pod(made, LAYOUT, ["gpu"])
    return patch


def env_of(made: Obj) -> dict[str, list[Obj]]:
    """Environment of each container after admission."""
    return {each["path"]: each["value"] for each in admitted(made) if each["path"].endswith("/env")}


SILENT = {"name": "NVIDIA_VISIBLE_DEVICES", "value": VOID}


@pytest.mark.parametrize(
    "env",
    [
        pytest.param([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], id="all"),
        pytest.param([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-of-somebody-else"}], id="a foreign uuid"),
        pytest.param(
            [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}],
            id="from a ConfigMap",
        ),
        pytest.param(
            [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
            id="twice",
        ),
        pytest.param([], id="not set: the image or envFrom may set it, and an explicit value wins over both"),
    ],
)
@pytest.mark.parametrize("group", ["containers", "initContainers"])
def test_g2_no_environment_gives_a_container_more_than_its_claim(env: list[Obj], group: str) -> None:
    made = pod()
    made["spec"][group] = [{"name": "x", "env": [{"name": "A", "value": "b"}, *env], "envFrom": [{"configMapRef": {}}]}]
    assert env_of(made)[f"/spec/{group}/0/env"] == [{"name": "A", "value": "b"}, SILENT]


def test_g2_a_value_that_is_silent_already_is_left_alone() -> None:
    made = pod()
    made["spec"]["containers"][0]["env"] = [SILENT]
    assert env_of(made) == {}


def test_g2_a_replaced_value_is_told() -> None:
    made = pod()
    made["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    _, warnings = mutate_pod(made, LAYOUT, ["gpu"])
    (warning,) = warnings
    assert warning.startswith("spec.containers[0].env[NVIDIA_VISIBLE_DEVICES] is set to void")


def test_g2_a_container_with_cards_of_a_device_plugin_gets_its_environment_from_there() -> None:
    made = pod()
    container = made["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    assert env_of(made) == {}
    container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    with pytest.raises(Refused, match=r"spec.containers\[0\].env\[NVIDIA_VISIBLE_DEVICES\]: \"all\""):
        admitted(made)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"hostPID": True}, "spec.hostPID", id="the node's processes"),
        pytest.param(
            {"containers": [{"name": "x", "securityContext": {"privileged": True}}]},
            "spec.containers[0].securityContext.privileged",
            id="a privileged container",
        ),
        pytest.param(
            {"initContainers": [{"name": "x", "securityContext": {"privileged": True}}]},
            "spec.initContainers[0].securityContext.privileged",
            id="a privileged init container",
        ),
        *(
            pytest.param(
                {"volumes": [{"name": "ok", "emptyDir": {}}, {"name": "v", "hostPath": {"path": path}}]},
                "spec.volumes[1].hostPath.path",
                id=f"the node's {path}",
            )
            for path in (
                "/dev",
                "/dev/nvidia0",
                "/dev/",
                "//dev",
                "/var/../dev/infiniband",
                "/",
                "/tmp/../..",
                "/proc",
                "/proc/1/root/dev",
            )
        ),
        *(
            pytest.param(
                {group: [{"name": "x", "volumeMounts": [{"name": "ok", "mountPath": "/data"}, mount]}]},
                f"spec.{group}[0].volumeMounts[1].mountPath",
                id=f"a mount that names a card to NVIDIA's runtime, in {group}",
            )
            for group in ("containers", "initContainers")
            for mount in ({"name": "v", "mountPath": "/var/run/nvidia-container-devices/all"},)
        ),
    ],
)
def test_g3_a_pod_that_could_reach_other_devices_is_refused(spec: Obj, field: str) -> None:
    made = pod()
    made["spec"] |= spec
    with pytest.raises(Refused) as refused:
        admitted(made)
    assert refused.value.errors[0].startswith(field)
    assert "may reach the devices of its claim alone" in refused.value.errors[0]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"hostNetwork": True}, id="the node's network"),
        pytest.param({"volumes": [{"name": "v", "hostPath": {"path": "/data/devices"}}]}, id="data of the node"),
        pytest.param(
            {"volumes": [{"name": "v", "hostPath": {"path": "/devices"}}]}, id="a path that only begins alike"
        ),
        pytest.param(
            {"containers": [{"name": "x", "volumeMounts": [{"name": "v", "mountPath": "/dev/shm"}]}]},
            id="memory of its own at /dev/shm",
        ),
        pytest.param(
            {
                "containers": [
                    {"name": "x", "securityContext": {"privileged": False, "capabilities": {"add": ["IPC_LOCK"]}}}
                ]
            },
            id="capabilities that RDMA needs",
        ),
    ],
)
def test_g3_what_reaches_no_devices_is_admitted(spec: Obj) -> None:
    made = pod()
    made["spec"] |= spec
    assert admitted(made)


def test_g10_a_pod_gets_nothing_of_a_claim_in_another_namespace() -> None:
    world = cluster()
    world.add(deviceclaim("c1", namespace="other"), pod("p1", claim="c1", token="a" * 10))
    world.settle(Decider)
    assert world.all(Kind.RESOURCE_CLAIM) == []
    (event,) = [each for each in world.all(Kind.EVENT) if each["regarding"]["name"] == "p1"]
    assert event["note"] == "there is no DeviceClaim c1 in namespace team; the pod waits for it"
