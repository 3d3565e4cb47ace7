"""`plan`: what it prints and how it ends."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import hardware
from tests.support.objects import allocation, deviceclaim, devicepool, node, pod, replica, resourceclaim, resourceslice
from tests.support.planning import plan_objects, run_plan, with_status

GPU, NIC = "gpu.nvidia.com", "dra.net"
RDMA = {
    "name": "nic",
    "type": "RDMA",
    "source": {"resourceSlices": {"driver": NIC, "selectors": [{"cel": "device.attributes['dra.net'].rdma"}]}},
}
GPUS = {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": GPU}}}
POOL = devicepool(devices=[GPUS, RDMA])


def pair(name: str, scope: str = "PCIeRoot", policy: str = "Required", **fields: Any) -> dict[str, Any]:
    """A claim for a GPU and an RDMA NIC."""
    line = {"requests": ["gpu", "nic"], "scope": scope, "policy": policy}
    return deviceclaim(name, requests={"gpu": 1, "nic": 1}, affinity=[line], **fields)


class TestShape:
    def test_the_whole_object(self) -> None:
        ran = plan_objects([POOL, *hardware.two_roots("n1"), pair("a"), deviceclaim("b", requests={"gpu": 9})])
        assert ran.status == 3
        assert list(ran.shown) == ["claims", "preempted", "shares", "pools"]
        placed, waiting = ran.shown["claims"]
        assert list(placed) == [
            "namespace", "name", "phase", "gap", "replicas", "nominated", "conditions", "reasons", "nearest",
        ]  # fmt: skip
        assert (placed["phase"], placed["gap"], placed["reasons"], placed["nearest"]) == ("Allocated", 0.0, [], None)
        (entry,) = placed["replicas"]
        assert entry == {
            "index": 0,
            "node": "n1",
            "state": "Allocated",
            "locality": {"gpu-nic": "PHB"},
            "devices": [
                {
                    "driver": GPU,
                    "pool": "n1",
                    "device": "gpu-0",
                    "id": f"GPU-{hardware.stable_uuid('n1', 'gpu', '0')}",
                    "request": "gpu",
                    "share": None,
                    "consumed": {},
                },
                {
                    "driver": NIC,
                    "pool": "n1",
                    "device": "pci-0000-10-1b-0",
                    "id": "0000:10:1b.0",
                    "request": "nic",
                    "share": None,
                    "consumed": {},
                },
            ],
            "allocatedAt": "2026-11-30T08:00:00Z",
            "readyAt": None,
            "idleSince": None,
            "lostSince": None,
            "served": None,
            "resizedAt": None,
            "bootID": None,
            "hooks": [],
        }
        assert (waiting["phase"], waiting["gap"], waiting["replicas"], waiting["nominated"]) == (
            "Pending",
            None,
            [],
            [],
        )
        assert [sorted(reason) for reason in waiting["reasons"]] == [["code", "message", "nodes"]]
        (pool,) = ran.shown["pools"]
        assert list(pool) == ["name", "gap", "conditions", "devices"]
        assert pool["devices"]["gpu"] == {
            "capacity": 4, "free": 3, "allocated": 1, "reserved": 0, "releasing": 0, "unhealthy": 0, "missing": 0,
        }  # fmt: skip
        assert [condition["type"] for condition in pool["conditions"]] == ["Ready"]

    def test_a_claim_that_follows_its_pods_has_a_replica_for_each(self) -> None:
        following = deviceclaim("b")
        following["spec"]["scaling"] = {"mode": "FollowPods", "maxReplicas": 3}
        pods = [pod(f"p{number}", claim="b", gates=(), token="") for number in range(2)]
        ran = plan_objects([POOL, *hardware.two_roots("n1"), following, *pods])
        (shown,) = ran.shown["claims"]
        assert (ran.status, shown["phase"], [each["index"] for each in shown["replicas"]]) == (0, "Allocated", [0, 1])

    @pytest.mark.parametrize(
        ("spec", "made", "indexes", "status"),
        [
            pytest.param({"replicas": 3}, (), [0, 1, 2], 0, id="pods that are still to be made"),
            pytest.param({}, (), [0], 0, id="a Deployment that does not say how many"),
            pytest.param({"replicas": 3}, ("p0", "p1"), [0, 1, 2], 0, id="some are there already"),
            pytest.param({"replicas": 1}, ("p0", "p1"), [0, 1], 0, id="more are there than it wants"),
            pytest.param({"replicas": 0}, (), [], 0, id="scaled to nothing"),
            pytest.param({"replicas": 6}, (), [0, 1, 2, 3], 3, id="more than there are devices"),
            pytest.param({"replicas": 9}, (), [0, 1, 2, 3], 3, id="more than the claim has room for"),
        ],
    )
    def test_a_claim_that_follows_its_pods_has_a_replica_for_each_of_a_deployment(
        self, spec: dict[str, Any], made: tuple[str, ...], indexes: list[int], status: int
    ) -> None:
        following = deviceclaim("b")
        following["spec"]["scaling"] = {"mode": "FollowPods", "maxReplicas": 6}
        template = {"metadata": {"labels": {"adjoin.dev/claim": "b"}}, "spec": {"containers": [{"name": "main"}]}}
        meta = {"name": "serve", "namespace": "team"}
        deployment = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": meta, "spec": {"template": template}}
        deployment["spec"] |= spec
        owner = {"kind": "ReplicaSet", "name": "serve-1", "uid": "rs", "controller": True}
        pods = [pod(name, claim="b", gates=(), token="") for name in made]
        for each in pods:
            each["metadata"]["ownerReferences"] = [owner]
        ran = plan_objects([POOL, *hardware.two_roots("n1"), following, deployment, *pods])
        (shown,) = ran.shown["claims"]
        assert ([each["index"] for each in shown["replicas"]], ran.status) == (indexes, status)

    def test_a_claim_that_follows_its_pods_has_the_replicas_that_an_indexed_job_names(self) -> None:
        following = deviceclaim("b")
        following["spec"]["scaling"] = {"mode": "FollowPods", "maxReplicas": 4}
        template = {"metadata": {"labels": {"adjoin.dev/claim": "b"}}, "spec": {"containers": [{"name": "main"}]}}
        spec = {"completionMode": "Indexed", "completions": 4, "parallelism": 3, "template": template}
        meta = {"name": "train", "namespace": "team"}
        job = {"kind": "Job", "apiVersion": "batch/v1", "metadata": meta, "spec": spec}
        there = pod("p1", claim="b", gates=(), token="", replica=1)
        there["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "train", "uid": "j", "controller": True}]
        ran = plan_objects([POOL, *hardware.two_roots("n1"), following, there, job])
        (shown,) = ran.shown["claims"]
        assert ([each["index"] for each in shown["replicas"]], ran.status) == ([0, 1, 2], 0)

    def test_claims_stand_in_input_order_and_pools_by_name(self) -> None:
        objects = [deviceclaim(name, pool="p") for name in ("z", "a", "m")]
        pools = [devicepool(name, devices=[RDMA]) for name in ("p-10", "p-9")]
        ran = plan_objects([*objects, *pools, devicepool("p")])
        assert [claim["name"] for claim in ran.shown["claims"]] == ["z", "a", "m"]
        assert [pool["name"] for pool in ran.shown["pools"]] == ["p", "p-9", "p-10"]

    def test_nothing_at_all(self) -> None:
        ran = plan_objects([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}])
        assert (ran.status, ran.shown) == (0, {"claims": [], "preempted": [], "shares": [], "pools": []})

    def test_yaml_says_the_same_as_json(self, tmp_path: Path) -> None:
        file = tmp_path / "all.yaml"
        file.write_text(yaml.safe_dump_all([POOL, *hardware.two_roots("n1"), pair("a")]))
        shown = run_plan("-f", str(file), "-o", "yaml")
        assert yaml.safe_load(shown.out) == run_plan("-f", str(file), "-o", "json").shown

    def test_the_table_names_devices_localities_and_reasons(self, tmp_path: Path) -> None:
        file = tmp_path / "all.yaml"
        file.write_text(yaml.safe_dump_all([POOL, *hardware.two_roots("n1"), pair("a"), pair("b", "PCIeSwitch")]))
        out = run_plan("-f", str(file)).out
        for words in ("team/a", "Allocated", "gpu: gpu-0", "nic: pci-0000-10-1b-0", "gpu-nic PHB", "team/b", "Pending",
                      "team/b: TopologyUnknown: ", "team/b: nearest: ", "training"):  # fmt: skip
            assert words in out
        assert all(line == line.rstrip() for line in out.splitlines())


def listed_pool() -> dict[str, Any]:
    """A pool that lists its one GPU itself."""
    source = {"static": {"nodes": [{"name": "n1", "devices": [{"name": "g0"}]}]}}
    return devicepool(devices=[{"name": "gpu", "type": "GPU", "source": source}])


class TestExit:
    def test_a_pod_of_devices_that_no_driver_gives_to_containers_is_warned_of(self) -> None:
        """The claim is placed, and that is what the exit status is about; its pod would stay at its gate for ever."""
        assert plan_objects([listed_pool(), deviceclaim()]).status == 0
        found = plan_objects([listed_pool(), deviceclaim(), pod(claim="job-a")])
        assert found.status == 0
        assert "device g0 of DeviceClaim team/job-a has no driver" in found.err

    @pytest.mark.parametrize(
        ("objects", "status"),
        [
            pytest.param([POOL, *hardware.p4d("n1"), pair("a")], 0, id="everything is placed"),
            pytest.param([POOL, *hardware.p4d("n1"), pair("a", replicas=5)], 3, id="a replica waits"),
            pytest.param([POOL, pair("a")], 3, id="no devices"),
            pytest.param([pair("a")], 3, id="no pool"),
            pytest.param([POOL, pair("a", pool=None)], 3, id="no default pool"),
            pytest.param([POOL, pair("a", deletionTimestamp="2026-11-30T09:00:00Z")], 0, id="a claim on its way out"),
            pytest.param([POOL, pair("a", replicas=0)], 0, id="no replicas wanted"),
        ],
    )
    def test_status(self, objects: list[Any], status: int) -> None:
        assert plan_objects(objects).status == status

    @pytest.mark.parametrize(
        ("objects", "words"),
        [
            pytest.param(
                [deviceclaim(requests={"gpu": 0})],
                "DeviceClaim team/job-a: spec.requests[0].count: 0: must be at least 1",
                id="a field of a claim",
            ),
            pytest.param(
                [POOL, deviceclaim("x"), {**deviceclaim("y"), "spec": {"requsts": []}}],
                "standard input: document 3: DeviceClaim team/y: spec.requsts",
                id="the document and the field",
            ),
            pytest.param(
                [deviceclaim(requests=[{"name": "gpu", "selectors": [{"cel": "device.attributes["}]}])],
                "spec.requests[0].selectors[0].cel",
                id="CEL that does not compile",
            ),
            pytest.param(
                [deviceclaim(requests=[{"name": "gpu", "share": {"name": "quarters", "slots": 0}}])],
                "spec.requests[0].share.slots",
                id="no slot",
            ),
            pytest.param(
                [
                    {
                        "apiVersion": "adjoin.dev/v1alpha1",
                        "kind": "DeviceShare",
                        "metadata": {"name": "s"},
                        "spec": {
                            "poolRef": {"name": "p"},
                            "device": "gpu",
                            "mode": "TimeSliced",
                            "timeSliced": {"slots": 0},
                        },
                    }
                ],
                "spec.timeSliced.slots",
                id="a DeviceShare",
            ),
            pytest.param(
                [{"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceQueue", "metadata": {"name": "q"}}],
                "'DeviceQueue' is none of DevicePool, DeviceShare, DeviceClaim",
                id="a kind that the group does not have",
            ),
            pytest.param(
                [{**deviceclaim(), "apiVersion": "adjoin.dev/v1"}], "apiVersion", id="a version that does not exist"
            ),
            pytest.param(
                [deviceclaim(), deviceclaim(requests={"gpu": 2})], "stands in", id="one claim twice, and different"
            ),
            pytest.param([deviceclaim("a", uid="u"), deviceclaim("b", uid="u")], "metadata.uid", id="one UID twice"),
        ],
    )
    def test_bad_input_names_what_and_where(self, objects: list[Any], words: str) -> None:
        ran = plan_objects(objects)
        assert (ran.status, ran.out) == (2, "")
        assert words in ran.err

    def test_every_error_is_told_at_once(self) -> None:
        ran = plan_objects([deviceclaim("a", requests={"gpu": 0}), deviceclaim("b", requests={"gpu": -1})])
        assert [line.startswith("error: standard input: document") for line in ran.err.splitlines()] == [True, True]

    @pytest.mark.parametrize(
        "arguments",
        [
            pytest.param([], id="no file"),
            pytest.param(["-f", "/nowhere.yaml"], id="a file that is not there"),
            pytest.param(["-f", "-", "--now", "yesterday"], id="no time"),
            pytest.param(["-f", "-", "-o", "xml"], id="no format"),
        ],
    )
    def test_bad_arguments(self, arguments: list[str]) -> None:
        assert run_plan(*arguments).status == 2

    def test_help_is_no_error(self) -> None:
        assert run_plan("--help").status == 0


class TestLenience:
    def test_unknown_kinds_are_ignored_with_a_warning(self) -> None:
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
        other = {"apiVersion": "example.com/v1", "kind": "Node", "metadata": {"name": "n"}}
        ran = plan_objects([service, service, other, {"resources": ["pool.yaml"]}])
        assert ran.status == 0
        assert ran.err.splitlines() == [
            "warning: ignored: 1 Node (example.com)",
            "warning: ignored: 2 Service",
            "warning: ignored: 1 object without a kind",
        ]

    @pytest.mark.parametrize(
        "broken",
        [
            pytest.param(
                {"metadata": {"name": "n"}, "spec": {"devices": [{"attributes": {}}]}}, id="a device without name"
            ),
            pytest.param({"metadata": {"name": "n"}, "spec": []}, id="a spec of another type"),
            pytest.param({"metadata": {"name": "n", "creationTimestamp": "soon"}}, id="a time that is none"),
            pytest.param({"metadata": {}}, id="no name"),
            pytest.param({}, id="no metadata"),
        ],
    )
    def test_broken_objects_of_other_kinds_are_left_out_with_a_warning(self, broken: dict[str, Any]) -> None:
        slices = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **broken}
        ran = plan_objects([POOL, *hardware.p4d("n1"), pair("a"), slices])
        assert ran.status == 0
        assert "ResourceSlice" in ran.err
        assert "left out" in ran.err

    def test_an_object_given_twice_counts_once(self) -> None:
        objects = [POOL, *hardware.p4d("n1"), pair("a")]
        assert plan_objects([*objects, *objects]).out == plan_objects(objects).out

    def test_slices_with_one_uid_are_different_slices(self) -> None:
        slices = [resourceslice("n1", GPU, 1, uid="same"), resourceslice("n2", GPU, 1, uid="same")]
        ran = plan_objects([devicepool(), *slices, deviceclaim(replicas=2)])
        assert ran.status == 0

    def test_nodes_are_made_up_where_slices_name_them(self) -> None:
        ran = plan_objects([devicepool(), resourceslice("n1", GPU, 1), deviceclaim()])
        assert ran.claims["job-a"]["replicas"][0]["node"] == "n1"

    def test_an_older_slice_schema_is_read_too(self) -> None:
        slices = resourceslice("n1", GPU, 1)
        slices["apiVersion"] = "resource.k8s.io/v1beta1"
        slices["spec"]["devices"] = [{"name": "gpu-0", "basic": {"attributes": {"uuid": {"string": "U"}}}}]
        assert plan_objects([devicepool(), slices, deviceclaim()]).devices("job-a") == {"gpu": ["gpu-0"]}


class TestTime:
    def planned_at(self, *objects: Any, now: str | None = None) -> str:
        ran = plan_objects(objects, *(["--now", now] if now else []))
        made: str = ran.claims["job-a"]["replicas"][0]["allocatedAt"]
        return made

    def undated(self, *objects: Any) -> list[Any]:
        for obj in objects:
            del obj["metadata"]["creationTimestamp"]
        return list(objects)

    def test_now_is_the_newest_time_in_the_input(self) -> None:
        pool, claim, slices, gone = self.undated(devicepool(), deviceclaim(), resourceslice("n1", GPU, 1), node("n9"))
        objects = [pool, claim, slices, gone]
        assert self.planned_at(*objects) == "1970-01-01T00:00:00Z"
        pool["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
        claim["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        assert self.planned_at(*objects) == "2026-01-02T00:00:00Z"
        slices["spec"]["devices"][0]["taints"] = [{"key": "k", "effect": "None", "timeAdded": "2026-01-03T00:00:00Z"}]
        assert self.planned_at(*objects) == "2026-01-03T00:00:00Z"
        gone["metadata"]["deletionTimestamp"] = "2026-01-04T00:00:00Z"
        assert self.planned_at(*objects) == "2026-01-04T00:00:00Z"
        assert self.planned_at(*objects, now="2030-05-06T07:08:09+02:00") == "2030-05-06T05:08:09Z"


class TestFeedback:
    def objects(self) -> list[Any]:
        claims = [pair(f"c{i}", creationTimestamp=f"2026-11-30T08:00:0{i}Z") for i in range(6)]
        return [
            POOL,
            *hardware.p4d("n1"),
            *hardware.gb200("n2"),
            *claims,
            pair("far", "NUMANode"),
            pair("w", policy="Preferred"),
        ]

    def test_a_plan_fed_back_as_status_gives_the_same_plan(self) -> None:
        objects = self.objects()
        first = plan_objects(objects)
        second = plan_objects(with_status(objects, first))
        assert second.out == first.out
        assert second.status == first.status

    def test_replicas_on_machines_that_are_alike_can_be_fed_back(self) -> None:
        """Their NICs have the same PCI addresses."""
        objects = [POOL, *hardware.p4d("n1"), *hardware.p4d("n2"), pair("a", replicas=5)]
        first = plan_objects(objects)
        second = plan_objects(with_status(objects, first))
        assert {each["node"] for each in first.claims["a"]["replicas"]} == {"n1", "n2"}
        assert (second.status, second.out) == (0, first.out)

    def test_what_is_placed_stays_where_it_is(self) -> None:
        status = allocation(replica(devices=[("gpu", GPU, "n1", "gpu-5")]), phase="InUse")
        ran = plan_objects([POOL, *hardware.p4d("n1"), deviceclaim("old", status=status), deviceclaim("new")])
        assert ran.devices("old") == {"gpu": ["gpu-5"]}
        assert ran.claims["old"]["phase"] == "InUse"
        assert ran.devices("new") != {"gpu": ["gpu-5"]}

    def test_a_replica_without_state_counts_as_ready(self) -> None:
        entry = replica(devices=[("gpu", GPU, "n1", "gpu-5")])
        del entry["state"]
        ran = plan_objects([POOL, *hardware.p4d("n1"), deviceclaim(status={"allocation": {"replicas": [entry]}})])
        assert ran.claims["job-a"]["replicas"][0]["state"] == "Ready"
        assert ran.claims["job-a"]["phase"] == "Ready"

    def test_foreign_allocations_block_their_devices(self) -> None:
        foreign = resourceclaim("theirs", owner="", devices=[(GPU, "n1", f"gpu-{i}") for i in range(7)])
        ran = plan_objects([POOL, *hardware.p4d("n1"), foreign, deviceclaim("a"), deviceclaim("b")])
        assert ran.devices("a") == {"gpu": ["gpu-7"]}
        assert ran.codes("b") == ["InsufficientDevices"]
        assert ran.counts("training", "gpu")["allocated"] == 8

    @pytest.mark.parametrize(
        ("state", "theirs", "gpus", "expected"),
        [
            pytest.param("Failed", [], 2, ("Allocated", ["gpu-1"], []), id="one that failed gets another device"),
            pytest.param(
                "Failed", [], 1, ("Failed", ["gpu-0"], ["DeviceReleasing", "InsufficientDevices"]), id="or reasons"
            ),
            pytest.param(
                "InUse", ["gpu-0"], 2, ("Allocated", ["gpu-1"], []), id="one that lost its device to a stranger"
            ),
            pytest.param(
                "InUse", ["gpu-0"], 1, ("Failed", ["gpu-0"], ["InsufficientDevices"]), id="or a reason for that"
            ),
        ],
    )
    def test_a_replica_that_cannot_stay_is_planned_anew(
        self, state: str, theirs: list[str], gpus: int, expected: tuple[str, list[str], list[str]]
    ) -> None:
        claim = deviceclaim("a", status=allocation(replica(state=state), phase=state))
        foreign = [resourceclaim("theirs", owner="", devices=[(GPU, "n1", name) for name in theirs])] if theirs else []
        objects = [devicepool(), node(), resourceslice(devices=gpus), claim, *foreign]
        ran = plan_objects(objects)
        assert (ran.claims["a"]["phase"], ran.devices("a")["gpu"], ran.codes("a")) == expected
        assert ran.status == (0 if expected[0] == "Allocated" else 3)
        again = plan_objects(with_status(objects, ran))
        assert (again.claims["a"]["phase"], again.devices("a")["gpu"], again.codes("a")) == expected
        counts = ran.counts("training", "gpu")
        assert counts["capacity"] == sum(number for name, number in counts.items() if name != "capacity") == gpus

    def test_what_a_failed_replica_names_is_still_its_holders(self) -> None:
        failed = deviceclaim("a", status=allocation(replica(state="Failed"), phase="Failed"))
        holder = deviceclaim("b", status=allocation(replica(state="InUse"), phase="InUse"))
        ran = plan_objects([devicepool(), node(), resourceslice(devices=1), failed, holder])
        assert (ran.claims["a"]["phase"], ran.claims["b"]["phase"]) == ("Failed", "InUse")
        assert ran.counts("training", "gpu")["allocated"] == 1

    def test_claims_that_share_a_device_are_told_apart_by_age(self) -> None:
        def holder(name: str, moment: str) -> dict[str, Any]:
            status = allocation(replica(devices=[("gpu", GPU, "n1", "gpu-0")]))
            return deviceclaim(name, status=status, creationTimestamp=moment)

        young, old = holder("young", "2026-11-30T08:00:02Z"), holder("old", "2026-11-30T08:00:01Z")
        ran = plan_objects([POOL, *hardware.p4d("n1"), young, old])
        assert ran.devices("old") == {"gpu": ["gpu-0"]}
        assert ran.devices("young") != {"gpu": ["gpu-0"]}
        conflict = [each for each in ran.claims["young"]["conditions"] if each["type"] == "Conflict"]
        assert "gpu-0 is held by DeviceClaim team/old" in conflict[0]["message"]


class TestDeterminism:
    def test_the_output_is_a_function_of_the_set_of_objects(self) -> None:
        claims = [pair(f"c{i}", creationTimestamp=f"2026-11-30T08:00:{i:02}Z") for i in range(8)]
        objects = [POOL, *hardware.fleet(hardware.p4d, 2, "p"), *hardware.gb200("g"), *claims]
        expected = plan_objects(objects).shown
        draw = random.Random(3)
        for _ in range(4):
            draw.shuffle(objects)
            shown = plan_objects(objects).shown
            assert {claim["name"]: claim for claim in shown["claims"]} == {
                claim["name"]: claim for claim in expected["claims"]
            }
            assert shown["pools"] == expected["pools"]

    def test_claims_with_equal_keys_are_served_in_the_order_of_the_input(self) -> None:
        def bare(name: str) -> dict[str, Any]:
            claim = deviceclaim(name)
            claim["metadata"] = {"name": name, "namespace": "team"}
            return claim

        for names in (["b", "a"], ["a", "b"]):
            ran = plan_objects([devicepool(), resourceslice("n1", GPU, 1), *(bare(name) for name in names)])
            assert [claim["phase"] for claim in ran.shown["claims"]] == ["Allocated", "Pending"]


class TestOneByOne:
    def test_the_order_of_the_input_decides_and_not_age_or_priority(self) -> None:
        late = deviceclaim("late", creationTimestamp="2026-11-30T09:00:00Z")
        urgent = deviceclaim("urgent")
        urgent["spec"]["priority"] = 100
        objects = [devicepool(), resourceslice("n1", GPU, 1), late, urgent]
        assert plan_objects(objects).claims["urgent"]["phase"] == "Allocated"
        alone = plan_objects(objects, "--one-by-one")
        assert alone.claims["late"]["phase"] == "Allocated"
        assert alone.codes("urgent") == ["InsufficientDevices"]
        assert alone.counts("training", "gpu")["free"] == 0

    def test_what_a_later_claim_holds_already_is_taken(self) -> None:
        status = allocation(replica(devices=[("gpu", GPU, "n1", "gpu-0")]))
        objects = [
            devicepool(),
            resourceslice("n1", GPU, 2),
            deviceclaim("a"),
            deviceclaim("b", status=status, replicas=2),
        ]
        ran = plan_objects(objects, "--one-by-one")
        assert ran.devices("a") == {"gpu": ["gpu-1"]}
        assert ran.claims["b"]["phase"] == "Pending"
        assert len(ran.claims["b"]["replicas"]) == 1


class TestNotes:
    def test_a_matrix_that_does_not_fit_is_told_on_standard_error_too(self) -> None:
        pool = devicepool(spec={"topology": {"matrices": [{"configMapRef": {"name": "m", "key": "topo"}}]}})
        matrix = hardware.config_map("m", {"topo": "\tGPU0\nGPU0\tNOPE\n"})
        ran = plan_objects([pool, resourceslice("n1", GPU, 1), matrix, deviceclaim()])
        assert "TopologyMismatch" in ran.err
        assert [each["type"] for each in ran.shown["pools"][0]["conditions"]] == ["Ready", "TopologyMismatch"]

    def test_the_namespace_decides_between_config_maps_of_one_name(self) -> None:
        pool = devicepool(spec={"topology": {"matrices": [{"configMapRef": {"name": "m", "key": "topo"}}]}})
        good = hardware.config_map("m", {"topo": "\tGPU0\tCPU Affinity\nGPU0\t X \t0\n"}, namespace="good")
        bad = hardware.config_map("m", {"topo": "?"}, namespace="bad")
        objects = [pool, resourceslice("n1", GPU, 1), good, bad, deviceclaim()]
        assert "TopologyMismatch" not in plan_objects(objects, "--namespace", "good").err
        assert "TopologyMismatch" in plan_objects(objects, "-n", "bad").err
        unsure = plan_objects(objects)
        assert unsure.status == 2
        assert "bad, good" in unsure.err
        assert "TopologyMismatch" not in plan_objects([obj for obj in objects if obj is not bad], "-n", "other").err

    def test_several_default_pools_are_told(self) -> None:
        default = {"annotations": {"adjoin.dev/default-pool": "true"}}
        pools = [devicepool("a", **default), devicepool("b", devices=[RDMA], **default)]
        ran = plan_objects([*pools, resourceslice("n1", GPU, 1), deviceclaim(pool=None)])
        assert ran.claims["job-a"]["phase"] == "Allocated"
        assert "DevicePool a is the default, being the oldest; b are annotated too" in ran.err

    def test_pods_that_would_wait_are_something_pending(self) -> None:
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "team"},
            "spec": {"template": {"metadata": {"labels": {"adjoin.dev/claim": "nobody"}}, "spec": {"containers": []}}},
        }
        ran = plan_objects([deployment])
        assert ran.status == 3
        assert ran.err == "waits: Deployment team/d: label adjoin.dev/claim: no DeviceClaim team/nobody\n"


def test_planning_loads_no_client_no_web_server_and_no_kopf(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps([POOL, *hardware.two_roots("n1"), pair("a")]))
    code = (
        "import sys; from adjoin.cli import main; "
        f"status = main(['plan', '-f', {str(file)!r}]); "
        "heavy = {'kopf', 'kubernetes_asyncio', 'aiohttp'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy or status else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
