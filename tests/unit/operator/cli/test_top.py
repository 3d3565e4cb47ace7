"""`top`: who has what, from files and of a cluster."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.support.command import as_text, run
from tests.support.livecluster import cluster
from tests.support.objects import (
    GPU_DRIVER,
    allocation,
    deviceclaim,
    devicepool,
    node,
    pod,
    replica,
    resourceclaim,
    resourceslice,
)
from tests.support.planning import Ran

from adjoin.cli import top
from adjoin.cli.source import NoAnswer

GPU_1 = (GPU_DRIVER, "n1", "gpu-1")
HELD = allocation(replica(state="InUse", devices=[("gpu", *GPU_1)]))
OBJECTS = [
    devicepool(delivery={"guard": "None"}),
    node("n1"),
    node("n2", unschedulable=True),
    resourceslice("n1", devices=3, taints={"gpu-2": [{"key": "x.io/broken", "effect": "NoSchedule"}]}),
    resourceslice("n2", devices=1),
    deviceclaim("train", uid="claim-train", status=HELD),
    pod("worker-7", claim="train", uid="u7", gates=(), node="n1", phase="Running", running=True),
    resourceclaim("adjoin-train-x", owner="claim-train", claim="train", devices=[GPU_1], pod_uid="u7"),
    resourceclaim("theirs", owner="", claim=None, devices=[(GPU_DRIVER, "n1", "gpu-0")]),
]


def shown(*arguments: str, objects: list[dict[str, Any]] = OBJECTS) -> Ran:
    return run("top", "-f", "-", *arguments, stdin=as_text(objects))


def test_the_whole_object() -> None:
    ran = shown("-o", "json")
    assert (ran.status, list(ran.shown)) == (0, ["now", "pools", "nodes", "devices"])
    (pool,) = ran.shown["pools"]
    assert (pool["name"], pool["nodes"]) == ("training", 2)
    assert {name: count for name, count in pool["devices"]["gpu"].items() if count} == {
        "capacity": 4, "free": 1, "allocated": 2, "unhealthy": 1,
    }  # fmt: skip
    assert [(each["node"], each["notes"], each["devices"]) for each in ran.shown["nodes"]] == [
        ("n1", [], {"gpu": {"allocated": 2, "unhealthy": 1}}),
        ("n2", ["cordoned"], {"gpu": {"free": 1}}),
    ]
    devices = {(each["node"], each["device"]): each for each in ran.shown["devices"]}
    assert list(devices[("n1", "gpu-1")]) == [
        "node", "devicePool", "name", "driver", "pool", "device", "id", "state", "detail", "holders",
    ]  # fmt: skip
    (holder,) = devices[("n1", "gpu-1")]["holders"]
    assert (holder["claim"], holder["replica"], holder["state"]) == ("team/train", 0, "InUse")
    assert (holder["pod"], holder["since"]) == ("worker-7", HELD["allocation"]["replicas"][0]["allocatedAt"])
    (foreign,) = devices[("n1", "gpu-0")]["holders"]
    assert "theirs" in foreign["claim"]
    assert "x.io/broken" in devices[("n1", "gpu-2")]["detail"]
    assert devices[("n2", "gpu-0")]["holders"] == []


def test_the_tables_say_who_has_what() -> None:
    out = shown().out
    for words in ("training", "n2", "cordoned", "team/train replica 0", "worker-7", "unhealthy (", "2 allocated"):
        assert words in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_a_node_or_a_pool_alone() -> None:
    (one,) = shown("--node", "n2", "-o", "json").shown["devices"]
    assert (one["node"], one["device"]) == ("n2", "gpu-0")
    assert len(shown("training", "-o", "yaml").out.splitlines()) > 20
    unknown = shown("nope")
    assert (unknown.status, "there is no DevicePool nope; there are training" in unknown.err) == (2, True)
    unknown = shown("--node", "n9")
    assert (unknown.status, "has a device on node n9" in unknown.err) == (2, True)
    assert shown("--interval", "0.1").status == 2


def test_nothing_at_all_is_no_error() -> None:
    ran = shown("-o", "json", objects=[node("n1")])
    assert (ran.status, ran.shown["pools"], ran.shown["devices"]) == (0, [], [])


def test_of_a_cluster_it_says_the_same(tmp_path: Path) -> None:
    with cluster(OBJECTS, tmp_path) as (_, path):
        ran = run("top", "--kubeconfig", path, "-o", "json")
        assert run("top", "--kubeconfig", path, "--once").out.count("team/train replica 0") == 1
    assert ran.status == 0
    assert ran.shown["devices"] == shown("-o", "json").shown["devices"]


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    assert run("top", "--kubeconfig", str(tmp_path / "absent")).status == 1


def test_on_a_terminal_it_looks_again_until_it_is_interrupted() -> None:
    """A cluster that cannot be read for a while is said, and what was known stays."""
    found = shown("-o", "json").shown
    looks: list[int] = []

    def look() -> Any:
        looks.append(len(looks))
        if len(looks) == 2:
            raise NoAnswer("the server is away")
        return None, found

    def sleep(seconds: float) -> None:
        assert seconds == 2.0
        if len(looks) == 3:
            raise KeyboardInterrupt

    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=140, height=8)
    assert top.watch(found, look, 2.0, console, sleep) == 0
    assert len(looks) == 3
    assert "error: the server is away" in written.getvalue()
    assert "more lines: name a pool, or --node" in written.getvalue()
