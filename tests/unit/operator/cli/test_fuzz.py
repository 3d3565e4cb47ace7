"""Whatever stands in the input, `plan` ends with one of its exit statuses and says why; it never breaks."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from tests.support import hardware
from tests.support.objects import (
    allocation,
    deviceclaim,
    devicepool,
    node,
    pod,
    replica,
    resourceclaim,
    resourceslice,
    taintrule,
)
from tests.support.planning import plan_objects

ODD: tuple[Any, ...] = (
    None,
    "",
    "x",
    0,
    -1,
    2**63,
    1.5,
    True,
    [],
    {},
    [None],
    [{}],
    {"a": None},
    ["x"],
    {"x": {"y": []}},
)


def objects() -> list[Any]:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "team", "ownerReferences": [{"kind": "X", "controller": False}]},
        "spec": {
            "replicas": 1,
            "template": {
                "metadata": {
                    "labels": {"adjoin.dev/claim": "job-a"},
                    "annotations": {"adjoin.dev/containers": '{"main": ["gpu"]}', "adjoin.dev/replica": "0"},
                },
                "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "first"}]},
            },
        },
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": deployment["spec"]}
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"jobTemplate": {"spec": deployment["spec"]}},
    }
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s"},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": deployment["spec"]}}]},
    }
    topology = {
        "matrices": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "configMapRef": {"name": "m", "key": "topo"}}]
    }
    slices = resourceslice(
        "n1", taints={"gpu-1": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]}
    )
    slices["spec"]["devices"][0] |= {
        "capacity": {"memory": {"value": "40Gi"}},
        "consumesCounters": [{"counterSet": "c", "counters": {"memory": {"value": "40Gi"}}}],
    }
    return [
        devicepool(spec={"topology": topology}),
        node(labels={"a": "b"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        slices,
        taintrule(),
        hardware.config_map("m", {"topo": "\tGPU0\nGPU0\t X \n", "topo.gpus": "x"}),
        deviceclaim("job-a", requests={"gpu": 2}, affinity=[{"requests": ["gpu"], "scope": "NVLink"}]),
        deviceclaim("job-b", status=allocation(replica()), replicas=2),
        pod(gates=["x/y"], running=True),
        resourceclaim("theirs", owner="", devices=[("gpu.nvidia.com", "n1", "gpu-1")]),
        deployment,
        job,
        cron,
        jobset,
    ]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into an object."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


def spoil(obj: Any, draw: random.Random) -> None:
    """Puts something odd somewhere, or takes something away; the kind stays, or there is nothing to look at."""
    path = draw.choice([path for path in places(obj) if path[0] not in ("kind", "apiVersion")])
    target = obj
    for step in path[:-1]:
        target = target[step]
    if isinstance(target, dict) and draw.random() < 0.25:
        del target[path[-1]]
    else:
        target[path[-1]] = copy.deepcopy(draw.choice(ODD))


@pytest.mark.parametrize("seed", range(6))
def test_spoilt_objects(seed: int) -> None:
    draw = random.Random(seed)
    sound = objects()
    for _ in range(12):
        given = copy.deepcopy(sound)
        for obj in draw.sample(given, draw.randint(1, 3)):
            spoil(obj, draw)
        ran = plan_objects(given)
        assert ran.status in (0, 2, 3)
        if ran.status == 2:
            assert ran.out == ""
            assert ran.err.startswith("error: ")
        else:
            for pool in ran.shown["pools"]:
                for counts in pool["devices"].values():
                    assert counts["capacity"] == sum(count for name, count in counts.items() if name != "capacity")


def test_the_sound_objects_are_read_as_they_are() -> None:
    ran = plan_objects(objects())
    assert ran.status == 3
    assert "left out" not in ran.err
