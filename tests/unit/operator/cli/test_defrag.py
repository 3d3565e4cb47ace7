"""`defrag`: moves in words and as an object, and that nothing is done about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import hardware
from tests.support.command import as_text, run
from tests.support.livecluster import cluster
from tests.support.objects import allocation, deviceclaim, devicepool, replica
from tests.support.planning import plan_objects, with_status

GPU = "gpu.nvidia.com"
POOL = devicepool(delivery={"guard": "None"})
NODES = [*hardware.two_roots("n1"), *hardware.two_roots("n2")]


def holding(name: str, node: str, *devices: str) -> dict[str, Any]:
    """A claim whose status says that it has these GPUs."""
    status = allocation(replica(node=node, devices=[("gpu", GPU, node, device) for device in devices]))
    return deviceclaim(name, requests={"gpu": len(devices)}, status=status)


FRAGMENTED = [
    POOL,
    *NODES,
    holding("a", "n1", "gpu-0"),
    holding("b", "n2", "gpu-0", "gpu-1"),
    deviceclaim("waits", requests={"gpu": 4}),
]


def defrag(objects: list[dict[str, Any]], *arguments: str) -> Any:
    return run("defrag", *arguments, "-f", "-", stdin=as_text(objects))


def test_the_whole_object() -> None:
    ran = defrag(FRAGMENTED, "training", "-o", "json")
    assert ran.status == 0
    shown = ran.shown
    (move,) = shown.pop("moves")
    (placement,) = shown.pop("placements")
    assert shown == {
        "pool": "training",
        "claim": "team/waits",
        "outcome": "Moves",
        "why": None,
        "devices": 1,
        "fewest": True,
    }
    assert (move["claim"], move["replica"]) == ("team/a", 0)
    assert (move["from"]["node"], [each["device"] for each in move["from"]["devices"]]) == ("n1", ["gpu-0"])
    assert move["to"]["node"] == "n2"
    assert list(move["to"]["devices"][0]) == ["request", "driver", "pool", "device", "id", "share"]
    assert (placement["node"], len(placement["devices"])) == ("n1", 4)


def test_the_moves_hold_when_they_are_made() -> None:
    """The status of the moved claim as advised: then plan places the one that waits."""
    (move,) = defrag(FRAGMENTED, "training", "-o", "json").shown["moves"]
    to = [device["device"] for device in move["to"]["devices"]]
    made = [each if each["metadata"]["name"] != "a" else holding("a", move["to"]["node"], *to) for each in FRAGMENTED]
    assert plan_objects(made).claims["waits"]["phase"] == "Allocated"


def test_people_see_from_where_to_where() -> None:
    out = defrag(FRAGMENTED, "training").out.splitlines()
    assert out[0] == "team/waits fits after 1 move of 1 device (no fewer devices would do)"
    assert "Moves, all at once" in out
    assert any(line.startswith("team/a  0        n1: gpu-0  n2: gpu-") for line in out)
    assert "Then team/waits gets" in out


def test_yaml_says_the_same() -> None:
    assert (
        yaml.safe_load(defrag(FRAGMENTED, "training", "-o", "yaml").out)
        == defrag(FRAGMENTED, "training", "-o", "json").shown
    )


@pytest.mark.parametrize(
    ("objects", "arguments", "status", "words"),
    [
        pytest.param(FRAGMENTED, ["training", "b", "-n", "team"], 0, "team/b needs no moves", id="one that is placed"),
        pytest.param(FRAGMENTED[:-1], ["training"], 0, "no claim of pool training waits", id="nothing waits"),
        pytest.param(
            [*FRAGMENTED[:-1], deviceclaim("huge", requests={"gpu": 9})],
            ["training"],
            3,
            "team/huge: no moves would make it fit: not even without the 2 replicas that may move: needs 9 gpu",
            id="no node is large enough",
        ),
        pytest.param(FRAGMENTED, ["trainng"], 2, "there is no DevicePool trainng; there is training", id="no pool"),
        pytest.param(
            FRAGMENTED,
            ["training", "wait"],
            2,
            "there is no DeviceClaim default/wait; there is team/waits",
            id="no claim",
        ),
        pytest.param(
            [POOL, devicepool("other"), *FRAGMENTED[1:]],
            ["other", "team/waits"],
            3,
            "no moves would make it fit",
            id="a claim of another pool",
        ),
    ],
)
def test_other_outcomes(objects: list[dict[str, Any]], arguments: list[str], status: int, words: str) -> None:
    ran = defrag(objects, *arguments)
    assert ran.status == status
    assert words in ran.out + ran.err


def test_a_cluster_is_only_read(tmp_path: Path) -> None:
    with cluster(FRAGMENTED, tmp_path) as (api, path):
        ran = run("defrag", "training", "--kubeconfig", path, "-o", "json")
        assert api.writes == []
    assert (ran.shown["outcome"], ran.shown["devices"]) == ("Moves", 1)


def test_what_plan_placed_is_where_moves_start() -> None:
    before = [POOL, *NODES, deviceclaim("x", requests={"gpu": 3}), deviceclaim("y", requests={"gpu": 3})]
    objects = [*with_status(before, plan_objects(before)), deviceclaim("waits", requests={"gpu": 2})]
    ran = defrag(objects, "training", "-o", "json")
    assert (ran.status, ran.shown["outcome"]) == (3, "NoMoves")
