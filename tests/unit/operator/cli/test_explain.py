"""`explain`: why a claim waits, in one answer; checked against the models of the API where it shows a status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import hardware
from tests.support.command import as_text, run
from tests.support.livecluster import cluster
from tests.support.objects import deviceclaim, devicepool, pod, resourceclaim
from tests.support.planning import Ran, plan_objects, with_status

from adjoin.api.claim_status import AllocatedReplica, Nomination, Reason
from adjoin.api.parse import without_nulls

POOL = devicepool(delivery={"guard": "None"})
NODES = [*hardware.two_roots("n1"), *hardware.two_roots("n2")]


def occupied(*waiting: dict[str, Any], holders: dict[str, int] | None = None) -> list[dict[str, Any]]:
    """Two nodes of four GPUs, what `holders` have of them in their statuses, and claims that come afterwards."""
    held = [deviceclaim(name, requests={"gpu": count}) for name, count in (holders or {"a": 3, "b": 3}).items()]
    before = [POOL, *NODES, *held]
    return [*with_status(before, plan_objects(before)), *waiting]


def explain(objects: list[dict[str, Any]], name: str, *arguments: str) -> Ran:
    return run("explain", name, "-f", "-", *arguments, stdin=as_text(objects))


def answer(objects: list[dict[str, Any]], name: str, *arguments: str) -> dict[str, Any]:
    return explain(objects, name, "-o", "json", *arguments).shown


class TestWaiting:
    OBJECTS = occupied(deviceclaim("waits", requests={"gpu": 4}))

    def test_the_whole_object(self) -> None:
        ran = explain(self.OBJECTS, "waits", "-o", "json")
        assert ran.status == 3
        shown = ran.shown
        assert list(shown) == [
            "namespace", "name", "pool", "tenant", "phase", "waits", "wanted", "gang", "replicas", "new", "gap",
            "fabricLevel", "conditions", "reasons", "nearest", "nominated", "victims", "order", "quota", "nodes",
            "candidates", "holders", "neighbours",
        ]  # fmt: skip
        assert (shown["namespace"], shown["name"], shown["phase"], shown["waits"]) == ("team", "waits", "Pending", True)
        assert [each["code"] for each in shown["reasons"]] == ["InsufficientDevices"]
        assert shown["nearest"] == "fits with count 1 instead of 4 in request gpu"
        (line,) = shown["quota"]
        assert (line["device"], line["used"], line["asked"], line["capacity"]) == ("gpu", 6, 4, 8)

    def test_reasons_are_those_of_the_status(self) -> None:
        for reason in answer(self.OBJECTS, "waits")["reasons"]:
            Reason.model_validate(reason)

    def test_the_reasons_are_those_of_plan(self) -> None:
        planned = plan_objects(self.OBJECTS).claims["waits"]
        shown = answer(self.OBJECTS, "waits")
        assert {key: shown[key] for key in planned} == planned

    def test_who_is_in_the_way(self) -> None:
        holders = answer(self.OBJECTS, "waits")["holders"]
        assert [(each["holder"], each["kind"], len(each["devices"]), each["enough"]) for each in holders] == [
            ("team/a", "DeviceClaim", 3, True),
            ("team/b", "DeviceClaim", 3, True),
        ]
        (first, _) = holders
        assert first["since"] == "2026-11-30T08:00:00Z"
        assert (first["nodes"], first["replicas"]) == (["n1"], [0])
        assert (first["releasing"], first["preemptible"], first["evictable"]) == (False, True, False)

    def test_what_a_single_holder_would_not_mend_is_said(self) -> None:
        objects = occupied(deviceclaim("waits", requests={"gpu": 4}), holders={"a": 2, "b": 3, "c": 2})
        enough = {each["holder"]: each["enough"] for each in answer(objects, "waits")["holders"]}
        assert enough == {"team/a": False, "team/b": True, "team/c": False}

    def test_nodes_that_come_nearest_come_first(self) -> None:
        objects = occupied(deviceclaim("waits", requests={"gpu": 4}), holders={"a": 4, "b": 2})
        shown = answer(objects, "waits")
        assert [(each["node"], each["requests"]["gpu"]) for each in shown["nodes"]] == [
            ("n2", {"free": 2, "eligible": 4}),
            ("n1", {"free": 0, "eligible": 4}),
        ]
        assert shown["candidates"] == 2

    def test_a_stranger_is_in_the_way(self) -> None:
        stranger = resourceclaim("theirs", owner=None, devices=[("gpu.nvidia.com", "n1", f"gpu-{i}") for i in range(4)])
        holders = answer([POOL, *hardware.two_roots("n1"), stranger, deviceclaim("waits")], "waits")["holders"]
        assert [(each["holder"], each["kind"], each["why"], each["enough"]) for each in holders] == [
            ("ResourceClaim team/theirs", "ResourceClaim", "it is not Adjoin's", True)
        ]

    def test_a_claim_on_its_way_out_is_told_as_such(self) -> None:
        objects = occupied(deviceclaim("waits", requests={"gpu": 4}), holders={"a": 4, "b": 4})
        for each in objects:
            if each["metadata"]["name"] == "a" and each["kind"] == "DeviceClaim":
                each["metadata"]["deletionTimestamp"] = "2026-11-30T08:00:00Z"
        shown = answer(objects, "waits")
        assert {each["holder"]: each["releasing"] for each in shown["holders"]} == {"team/a": True, "team/b": False}
        assert "DeviceReleasing" in [each["code"] for each in shown["reasons"]]

    def test_its_turn(self) -> None:
        first = deviceclaim("first", requests={"gpu": 4}, creationTimestamp="2026-11-30T07:30:00Z")
        order = answer(occupied(first, deviceclaim("waits", requests={"gpu": 4})), "waits")["order"]
        assert (order["position"], order["waiting"], order["ahead"]) == (2, 2, ["team/first"])
        assert order["effective"] == order["priority"] + order["aging"] + order["urgency"] == 0
        assert order["dominantShare"] == 0.75

    def test_one_that_is_held_back_has_nobody_in_its_way(self) -> None:
        gated = pod(claim="waits", gates=("adjoin.dev/claim", "example.com/quota"))
        shown = answer(occupied(deviceclaim("waits", requests={"gpu": 4}), gated), "waits")
        assert [each["code"] for each in shown["reasons"]] == ["PodGated"]
        assert (shown["holders"], shown["nodes"], shown["order"]["position"]) == ([], [], None)

    def test_one_without_a_pool(self) -> None:
        shown = answer([deviceclaim("waits")], "waits")
        assert [each["code"] for each in shown["reasons"]] == ["PoolNotFound"]
        assert (shown["holders"], shown["quota"]) == ([], [])

    def test_people_read_it_from_top_to_bottom(self) -> None:
        out = explain(self.OBJECTS, "waits").out
        titles = [line for line in out.splitlines() if line.startswith(("Why", "What", "When", "Nodes", "Who"))]
        assert titles == [
            "Why it waits",
            "What would make it fit",
            "When its turn comes",
            "Nodes that come nearest (2 have enough devices, whoever holds them)",
            "Who is in the way",
        ]
        assert out.startswith("team/waits: Pending, 0 of 1 replica placed (pool training)\n")
        assert "needs 4 gpu, 2 of 8 free" in out
        assert "team/a: if it gave its devices back" in out
        assert not any(line != line.rstrip() for line in out.splitlines())

    def test_yaml_says_the_same(self) -> None:
        ran = explain(self.OBJECTS, "waits", "-o", "yaml")
        assert yaml.safe_load(ran.out) == answer(self.OBJECTS, "waits")


class TestPlaced:
    OBJECTS = occupied(deviceclaim("new", requests={"gpu": 1, "nic": 1}))

    def test_where_it_is(self) -> None:
        ran = explain(self.OBJECTS, "a", "-o", "json")
        assert ran.status == 0
        (replica,) = ran.shown["replicas"]
        AllocatedReplica.model_validate(without_nulls(replica))
        assert (replica["node"], ran.shown["gap"], ran.shown["new"], ran.shown["holders"]) == ("n1", 0.0, [], [])
        assert ran.shown["order"]["position"] is None

    def test_one_that_the_next_decision_places(self) -> None:
        ran = explain(self.OBJECTS, "new", "-o", "json")
        assert (ran.status, ran.shown["new"], ran.shown["phase"]) == (0, [0], "Allocated")
        assert "(by the next decision)" in explain(self.OBJECTS, "new").out

    def test_people_see_the_level_that_was_reached(self) -> None:
        out = explain(self.OBJECTS, "new").out
        assert "gpu-nic PHB" in out
        assert "gap 0: nothing nearer was free" in out

    def test_what_is_held_for_it_is_a_nomination(self) -> None:
        for each in answer(self.OBJECTS, "a")["nominated"]:
            Nomination.model_validate(each)


class TestNames:
    OBJECTS = (POOL, *NODES, deviceclaim("train-a"), deviceclaim("train-b", namespace="other"))

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            pytest.param(["trein-a"], "there is no DeviceClaim default/trein-a; there is team/train-a", id="misspelt"),
            pytest.param(["-n", "team", "train-b"], "team/train-b; there is other/train-b", id="another namespace"),
            pytest.param(["team/xyz"], "team/xyz; there is team/train-a and other/train-b", id="nothing near"),
        ],
    )
    def test_an_unknown_name(self, arguments: list[str], words: str) -> None:
        ran = run("explain", *arguments, "-f", "-", stdin=as_text(self.OBJECTS))
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("error: ")
        assert words in ran.err

    @pytest.mark.parametrize(
        "arguments",
        [
            pytest.param(["train-a"], id="the only one of that name"),
            pytest.param(["train-a", "-n", "team"], id="by namespace"),
            pytest.param(["team/train-a"], id="in one word"),
        ],
    )
    def test_a_known_name(self, arguments: list[str]) -> None:
        ran = run("explain", *arguments, "-f", "-", "-o", "json", stdin=as_text(self.OBJECTS))
        assert (ran.shown["namespace"], ran.shown["name"]) == ("team", "train-a")

    def test_of_many_only_their_number_is_told(self) -> None:
        many = as_text([deviceclaim(f"train-{number}") for number in range(9)])
        ran = run("explain", "xyz", "-f", "-", stdin=many)
        assert ran.err == "error: there is no DeviceClaim default/xyz; there are 9 others\n"

    def test_no_claim_at_all(self) -> None:
        assert run("explain", "x", "-f", "-", stdin=as_text([POOL])).err == "error: there is no DeviceClaim default/x\n"


class TestErrors:
    def test_a_broken_claim(self) -> None:
        broken = deviceclaim("waits", requests=[{"name": "gpu", "count": -1}])
        ran = explain([POOL, broken], "waits")
        assert ran.status == 2
        assert "spec.requests[0].count" in ran.err

    def test_a_file_that_is_not_there(self) -> None:
        assert run("explain", "x", "-f", "/nowhere/at-all.yaml").status == 2

    def test_a_time_that_is_none(self) -> None:
        ran = run("explain", "x", "-f", "-", "--now", "soon", stdin="")
        assert (ran.status, ran.err) == (2, "error: --now soon: expected a time such as 2026-12-01T08:00:00Z\n")

    def test_a_cluster_that_is_not_there(self, tmp_path: Path) -> None:
        ran = run("explain", "x", "--kubeconfig", str(tmp_path / "absent"))
        assert (ran.status, ran.out) == (1, "")
        assert "no such file" in ran.err


class TestLive:
    def test_a_cluster_gives_the_answer_of_files(self, tmp_path: Path) -> None:
        objects = occupied(deviceclaim("waits", requests={"gpu": 4}))
        with cluster(objects, tmp_path) as (_, path):
            ran = run("explain", "waits", "--kubeconfig", path, "-o", "json", "--now", "2026-11-30T08:00:00Z")
        assert ran.status == 3
        expected = answer(objects, "waits")
        assert {key: value for key, value in ran.shown.items() if key != "conditions"} == {
            key: value for key, value in expected.items() if key != "conditions"
        }

    def test_the_namespace_is_that_of_the_context(self, tmp_path: Path) -> None:
        with cluster([POOL, deviceclaim("x", namespace="other")], tmp_path) as (_, path):
            assert "there is no DeviceClaim team/x; there is other/x" in run("explain", "x", "--kubeconfig", path).err
            there = run("explain", "x", "--kubeconfig", path, "--context", "there", "-o", "json")
        assert there.shown["namespace"] == "other"
