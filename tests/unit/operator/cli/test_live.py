"""A cluster that is read gives what files with the same objects give, or says why it cannot be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import hardware
from tests.support.fakeapi import FakeApi
from tests.support.livecluster import cluster, kubeconfig
from tests.support.objects import allocation, deviceclaim, devicepool, pod, replica

from adjoin.cli.documents import Document
from adjoin.cli.live import LiveError, Target, current_namespace, find_target, list_cluster, read_cluster
from adjoin.cli.objects import Input, read_input
from adjoin.facts import Raw
from adjoin.intents import Kind
from adjoin.inventory import InventoryBuilder
from adjoin.kube import Kube, refusal
from adjoin.loads import PATH
from adjoin.snapshot import SnapshotBuilder
from adjoin_allocator import Snapshot

OPEN = {"guard": "None"}
OBJECTS = [
    devicepool(delivery=OPEN),
    *hardware.two_roots("n1"),
    *hardware.two_roots("n2"),
    deviceclaim("waits", requests={"gpu": 9}),
    deviceclaim("fits", requests={"gpu": 1, "nic": 1}),
]


def snapshot(given: Input, *, on_cluster: bool) -> Snapshot:
    inventory = InventoryBuilder(cluster=on_cluster).build(given.view)
    return SnapshotBuilder().build(given.view, inventory)


def from_files(objects: list[dict[str, Any]]) -> Input:
    return read_input([Document(f"object {place}", obj) for place, obj in enumerate(objects)])


def told(given: Snapshot) -> dict[str, Any]:
    """What must be equal, by names: the API server gives objects other versions and perhaps another order."""
    return {
        "claims": sorted((each.namespace, each.name, each.pool, each.requests, each.placed) for each in given.claims),
        "nodes": given.nodes,
        "devices": {
            node: [(each.id, each.kind, each.hardware_id, each.attributes, each.standing) for each in devices]
            for node, devices in given.inventory.items()
        },
        "pools": sorted(given.pools),
        "holds": given.holds,
    }


def test_a_cluster_gives_what_files_give(tmp_path: Path) -> None:
    with cluster(OBJECTS, tmp_path) as (_, path):
        live = read_cluster(Target(path))
    assert told(snapshot(live, on_cluster=True)) == told(snapshot(from_files(OBJECTS), on_cluster=False))
    assert live.warnings == ()
    assert live.view.guard_served


def test_long_lists_are_read_in_parts(tmp_path: Path) -> None:
    many = [deviceclaim(f"c{number}") for number in range(501)]
    seen: list[tuple[str, int]] = []
    with cluster([devicepool(), *many], tmp_path) as (api, path):
        live = read_cluster(Target(path), heard=lambda kind, count: seen.append((kind, count)))
        lists = api.calls("GET", "deviceclaims")
    assert len(live.view.claims) == 501
    assert [count for kind, count in seen if kind == "deviceclaims"] == [500, 501]
    assert len(lists) == 2


def test_a_list_that_the_server_forgot_is_begun_again(tmp_path: Path) -> None:
    with cluster([devicepool(), deviceclaim()], tmp_path) as (api, path):
        api.fail(410, "Expired", path="deviceclaims", times=2)
        assert len(read_cluster(Target(path)).view.claims) == 1
        api.fail(410, "Expired", path="deviceclaims", times=3)
        with pytest.raises(LiveError, match="Expired"):
            read_cluster(Target(path))


def test_kinds_that_nobody_serves_are_absent(tmp_path: Path) -> None:
    with cluster([devicepool(), deviceclaim()], tmp_path, unserved={Kind.TAINT_RULE}) as (_, path):
        live = read_cluster(Target(path), workloads=True)
    assert not live.view.guard_served
    assert len(live.view.claims) == 1


def test_workloads_are_read_only_on_request(tmp_path: Path) -> None:
    with cluster([devicepool(), deviceclaim(), pod()], tmp_path) as (_, path):
        assert read_cluster(Target(path)).workloads == ()
        (document,) = read_cluster(Target(path), workloads=True).workloads
    assert (document.kind, document.body["metadata"]["name"]) == ("Pod", "worker")


def test_workloads_that_may_not_be_seen_are_a_warning(tmp_path: Path) -> None:
    with cluster([devicepool(), deviceclaim()], tmp_path) as (api, path):
        api.fail(403, "Forbidden", path="deployments")
        (warning,) = read_cluster(Target(path), workloads=True).warnings
    assert warning.startswith("deployments are not checked: 403 Forbidden")


@pytest.mark.parametrize(
    ("plural", "status", "words"),
    [
        pytest.param("nodes", 403, "nodes may not be listed", id="nodes may not be seen"),
        pytest.param("resourceclaims", 403, "resourceclaims may not be listed", id="holders may not be seen"),
        pytest.param("deviceclaims", 404, "is Adjoin installed", id="Adjoin is not there"),
        pytest.param("resourceslices", 503, "503", id="the server is in trouble"),
    ],
)
def test_what_is_needed_and_cannot_be_read_is_an_error(tmp_path: Path, plural: str, status: int, words: str) -> None:
    with cluster([devicepool(), deviceclaim()], tmp_path) as (api, path):
        api.fail(status, path=plural, times=9)
        with pytest.raises(LiveError, match=words):
            read_cluster(Target(path))


def test_a_holder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    broken = deviceclaim("odd", status=allocation(replica(devices=[])))
    broken["spec"] = {"requests": "none"}
    with cluster([devicepool(), broken], tmp_path) as (_, path), pytest.raises(LiveError, match="DeviceClaim team/odd"):
        read_cluster(Target(path))


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    with pytest.raises(LiveError, match=r"127\.0\.0\.1"):
        read_cluster(Target(str(path)))


def _config_map(namespace: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": "dgx"}, "data": {}}


def _webhooks(namespace: str) -> dict[str, Any]:
    webhook = {"name": "pods.adjoin.dev", "clientConfig": {"service": {"namespace": namespace, "name": "adjoin"}}}
    return {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "adjoin"}, "webhooks": [webhook]}


class TestOperatorNamespace:
    POOL = devicepool(spec={"topology": {"matrices": [{"configMapRef": {"name": "dgx", "key": "topo"}}]}})
    MAPS = (_config_map("adjoin-system"), _config_map("elsewhere"))

    def test_it_is_where_the_webhooks_are_served(self, tmp_path: Path) -> None:
        with cluster([self.POOL, *self.MAPS, _webhooks("adjoin-system")], tmp_path) as (_, path):
            live = read_cluster(Target(path))
        assert {each.meta.namespace for each in live.view.config_maps.values()} == {"adjoin-system"}
        assert (live.view.namespace, live.warnings) == ("adjoin-system", ())

    def test_what_is_said_counts(self, tmp_path: Path) -> None:
        with cluster([self.POOL, *self.MAPS, _webhooks("adjoin-system")], tmp_path) as (_, path):
            live = read_cluster(Target(path, operator_namespace="elsewhere"))
        assert {each.meta.namespace for each in live.view.config_maps.values()} == {"elsewhere"}

    def test_unknown_it_is_told(self, tmp_path: Path) -> None:
        with cluster([self.POOL, *self.MAPS], tmp_path) as (_, path):
            live = read_cluster(Target(path))
        assert len(live.view.config_maps) == 2
        assert "--operator-namespace" in live.warnings[0]


class TestTarget:
    def test_the_flag_wins(self, tmp_path: Path) -> None:
        one, other = (str(kubeconfig(tmp_path / name, "http://x")) for name in ("one", "other"))
        assert find_target(one, "there", "ns", {"KUBECONFIG": other}) == Target(one, "there", "ns")
        assert find_target(None, None, "", {"KUBECONFIG": other}) == Target(other)

    def test_the_home_of_the_user(self, tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        path = kubeconfig(tmp_path / ".kube" / "config", "http://x")
        assert find_target(None, None, "", {"HOME": str(tmp_path)}) == Target(str(path))

    def test_in_a_pod_its_account(self, tmp_path: Path) -> None:
        environment = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        assert find_target(None, None, "", environment) == Target(None)

    def test_nothing_says_what_to_give(self, tmp_path: Path) -> None:
        with pytest.raises(LiveError, match="-f, or a kubeconfig"):
            find_target(None, None, "", {"HOME": str(tmp_path)})
        with pytest.raises(LiveError, match="no such file"):
            find_target(str(tmp_path / "absent"), None, "", {})

    def test_the_namespace_of_the_context(self, tmp_path: Path) -> None:
        path = str(kubeconfig(tmp_path / "config", "http://x"))
        assert current_namespace(Target(path)) == "team"
        assert current_namespace(Target(path, "there")) == "other"

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("[]")
        with pytest.raises(LiveError, match="no access to a cluster"):
            read_cluster(Target(str(tmp_path / "config")))


def test_offline_commands_load_no_client(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
    script = (
        "import sys; from adjoin.cli import main; main(sys.argv[1:]); "
        "print([each for each in ('kopf', 'kubernetes_asyncio', 'aiohttp') if each in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, "plan", "-f", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.stderr.splitlines()[-1] == "[]"


def test_what_is_not_read_does_not_stand_in_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster([devicepool(), deviceclaim()], tmp_path) as (_, path):
        read_cluster(Target(path))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("status", "loads", "warning"),
    [
        pytest.param(None, {"n1": 9_000}, "", id="it is served"),
        pytest.param(403, {}, "what nodes use is not known: 403", id="it may not be read"),
        pytest.param(404, {}, "", id="nobody serves it"),
        pytest.param(503, {}, "", id="its server is away"),
    ],
)
async def test_what_nodes_use_is_read_where_somebody_measures(
    status: int | None, loads: dict[str, int], warning: str
) -> None:
    """And nothing fails where nobody does."""
    measured = {"metadata": {"name": "n1"}, "timestamp": "1970-01-01T00:16:00Z", "usage": {"cpu": "9", "memory": "1Gi"}}

    class Measured(Kube):
        async def get_path(self, path: str, *, seconds: float = 0.0) -> Raw:
            if not path.startswith(PATH):
                return await super().get_path(path, seconds=seconds)
            if status is not None:
                raise refusal(status, {})
            return {"items": [measured]}

    async with FakeApi() as api:
        login = api.client()._login
        async with Measured(login) as kube:
            given = await list_cluster(kube, "adjoin-system", now=lambda: 1_000.0)
    assert {name: load.cpu_milli for name, load in given.view.loads.items()} == loads
    assert [each for each in given.warnings if "nodes use" in each] == ([] if not warning else list(given.warnings))
    assert all(each.startswith(warning) for each in given.warnings)
