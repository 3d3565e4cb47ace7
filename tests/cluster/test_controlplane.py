"""The control plane that all other cluster tests stand on: it starts, works as a cluster does, and leaves nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane import ApiFailure, ControlPlane, Options, create_objects, simulated_node, wait_nodes_ready
from tests.controlplane.recipes import HERE, kubernetes_version
from tests.support.waiting import eventually

ROOT = HERE.parent.parent
BARE = Options(controller_manager=False, scheduler=False, kwok=False)


# ---------------------------------------------------------------- a cluster that works


def test_versions_are_those_of_go_mod(control_plane: ControlPlane) -> None:
    said = json.loads(control_plane.kubectl("version", "-o", "json").stdout)
    assert said["clientVersion"]["gitVersion"] == kubernetes_version()
    assert said["serverVersion"]["gitVersion"] == kubernetes_version()
    assert said["serverVersion"]["minor"] == kubernetes_version().split(".")[1]
    seen = {request.user: request.user_agent for request in control_plane.requests()}
    assert f"/{kubernetes_version()} " in seen["system:kube-scheduler"]


def test_a_plain_node_becomes_ready_and_runs_a_pod(control_plane: ControlPlane, namespace: str) -> None:
    node = simulated_node(f"{namespace}-node")
    del node["status"]  # nobody but kwok can have made it Ready then
    asyncio.run(create_objects(control_plane, [node]))
    asyncio.run(wait_nodes_ready(control_plane, [node["metadata"]["name"]]))
    pod = pod_on(node["metadata"]["name"])
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod))
    running = wait_phase(control_plane, namespace, "main", "Running")
    assert running["spec"]["nodeName"] == node["metadata"]["name"]
    control_plane.kubectl("delete", "-n", namespace, "pod", "main", "--wait")
    delete_node(control_plane, node)


def test_the_pod_of_a_job_completes(control_plane: ControlPlane, namespace: str) -> None:
    node = simulated_node(f"{namespace}-node")
    asyncio.run(create_objects(control_plane, [node]))
    asyncio.run(wait_nodes_ready(control_plane, [node["metadata"]["name"]]))
    template = {"spec": {**pod_on(node["metadata"]["name"])["spec"], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": {"template": template}}
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(job))
    control_plane.kubectl("wait", "-n", namespace, "--for=condition=Complete", "job/work", "--timeout=60s")
    delete_node(control_plane, node)


def test_kube_scheduler_allocates_an_ordinary_claim_from_a_slice(control_plane: ControlPlane, namespace: str) -> None:
    node = simulated_node(f"{namespace}-node")
    name, driver = node["metadata"]["name"], f"{namespace}.example.com"
    objects = [
        node,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{namespace}-slice"},
            "spec": {
                "driver": driver,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": "gpu-0", "attributes": {"fast": {"bool": False}}},
                    {"name": "gpu-1", "attributes": {"fast": {"bool": True}}},
                ],
            },
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": namespace},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "one", "namespace": namespace},
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "gpu",
                            "exactly": {
                                "deviceClassName": namespace,
                                "selectors": [{"cel": {"expression": f"device.attributes['{driver}'].fast"}}],
                            },
                        }
                    ]
                }
            },
        },
    ]
    asyncio.run(create_objects(control_plane, objects))
    asyncio.run(wait_nodes_ready(control_plane, [name]))
    pod = pod_on(None)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "one"}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod))
    assert wait_phase(control_plane, namespace, "main", "Running")["spec"]["nodeName"] == name
    claim = control_plane.request("GET", f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/one")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["device"]) == (driver, name, "gpu-1")
    control_plane.kubectl("delete", "-n", namespace, "pod", "main", "--wait")
    control_plane.kubectl("delete", f"resourceslice/{namespace}-slice", f"deviceclass/{namespace}")
    delete_node(control_plane, node)


def test_a_new_user_has_no_rights_until_they_are_given(control_plane: ControlPlane, namespace: str) -> None:
    kubeconfig = control_plane.kubeconfig_for("jane", ["team-a"])
    refused = control_plane.kubectl("get", "pods", "-n", namespace, kubeconfig=kubeconfig, check=False)
    assert 'pods is forbidden: User "jane"' in refused.stderr
    control_plane.kubectl("create", "rolebinding", "view", "-n", namespace, "--clusterrole=view", "--group=team-a")
    control_plane.kubectl("get", "pods", "-n", namespace, kubeconfig=kubeconfig)


def test_a_token_is_that_of_the_service_account_and_lasts_an_hour(control_plane: ControlPlane, namespace: str) -> None:
    kubeconfig = control_plane.kubeconfig_for_service_account(namespace, "default")
    who = json.loads(control_plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=kubeconfig).stdout)
    assert who["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"
    token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    assert control_plane.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"][
        "authenticated"
    ]
    assert claims_of(token)["exp"] - time.time() > 3500


def test_writes_of_one_user_are_counted(control_plane: ControlPlane, namespace: str) -> None:
    before = datetime.now(UTC)
    kubeconfig = control_plane.kubeconfig_for("writer")
    control_plane.kubectl("create", "rolebinding", "edit", "-n", namespace, "--clusterrole=edit", "--user=writer")
    control_plane.kubectl("create", "configmap", "one", "-n", namespace, kubeconfig=kubeconfig)
    control_plane.kubectl("get", "configmaps", "-n", namespace, kubeconfig=kubeconfig)
    control_plane.kubectl("create", "namespace", "none", kubeconfig=kubeconfig, check=False)
    writes = control_plane.writes(user="writer", since=before)
    assert [(w.verb, w.resource, w.name, w.code) for w in writes] == [
        ("create", "configmaps", "one", 201),
        ("create", "namespaces", "", 403),  # refused before anybody read the name in its body
    ]
    assert control_plane.writes(user="writer", since=datetime.now(UTC)) == []


def test_everything_listens_on_loopback_only(control_plane: ControlPlane) -> None:
    pids = set(map(str, control_plane.pids().values()))
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [line.split()[3] for line in listening if any(f"pid={pid}," in line for pid in pids)]
    assert ours, "ss sees none of our sockets"
    assert [address for address in ours if not address.startswith(("127.0.0.1:", "[::1]:"))] == []


def test_many_nodes_are_ready_at_once(control_plane: ControlPlane, namespace: str) -> None:
    nodes = [simulated_node(f"{namespace}-{number:03d}", labels={"test": namespace}) for number in range(200)]
    created = asyncio.run(create_objects(control_plane, nodes))
    assert [node["metadata"]["name"] for node in created] == [node["metadata"]["name"] for node in nodes]
    asyncio.run(wait_nodes_ready(control_plane, (node["metadata"]["name"] for node in nodes)))
    listed = json.loads(control_plane.kubectl("get", "nodes", "-l", f"test={namespace}", "-o", "json").stdout)["items"]
    assert len(listed) == 200
    assert [node["metadata"]["name"] for node in listed if node["spec"].get("taints")] == []
    control_plane.request("DELETE", f"/api/v1/nodes?labelSelector=test={namespace}")


def test_a_refused_object_is_named(control_plane: ControlPlane) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(create_objects(control_plane, [simulated_node("Not_A_Name")]))
    [failure] = raised.value.exceptions
    assert isinstance(failure, ApiFailure)
    assert (failure.status, failure.reason) == (422, "Invalid")
    assert "Not_A_Name" in str(failure)


# ---------------------------------------------------------------- disturbing it


def test_a_killed_api_server_comes_back_with_its_data_at_the_same_place() -> None:
    with ControlPlane(BARE) as plane:
        url = plane.url
        plane.kubectl("create", "configmap", "kept")
        plane.stop_process("kube-apiserver")
        with pytest.raises(ConnectionRefusedError):
            plane.request("GET", "/readyz")
        assert set(plane.pids()) == {"etcd"}
        plane.start_process("kube-apiserver")
        assert plane.url == url
        assert "kept" in plane.kubectl("get", "configmaps").stdout
        with pytest.raises(ValueError, match="kube-scheduler is no component"):
            plane.stop_process("kube-scheduler")


def test_what_ended_during_an_outage_comes_back_with_the_api_server() -> None:
    """kube-controller-manager gives up when the API server goes away while it begins, as it does here or not."""
    with ControlPlane(Options(scheduler=False, kwok=False)) as plane:
        manager = plane.pids()["kube-controller-manager"]
        plane.stop_process("kube-apiserver")
        with contextlib.suppress(ProcessLookupError):
            os.kill(manager, signal.SIGKILL)
        eventually(plane.pids, lambda pids: set(pids) == {"etcd"}, what="both are gone")
        plane.start_process("kube-apiserver")
        assert set(plane.pids()) == {"etcd", "kube-apiserver", "kube-controller-manager"}


def test_two_side_by_side_do_not_see_each_other() -> None:
    with ControlPlane(BARE) as one, ControlPlane(BARE) as other:
        one.kubectl("create", "configmap", "here")
        assert "here" in one.kubectl("get", "configmaps").stdout
        assert "here" not in other.kubectl("get", "configmaps").stdout
        # A name is not enough: whoever trusts one does not trust the other.
        assert one.kubectl("--server", other.url, "get", "ns", check=False).returncode != 0


def test_options_reach_the_components() -> None:
    options = Options(
        controller_manager=False,
        kwok=False,
        scheduler_qps=500,
        scheduler_burst=1000,
        percentage_of_nodes_to_score=1,
        feature_gates={"DRAListTypeAttributes": True},
        runtime_config={"resource.k8s.io/v1beta1": True},
    )
    with ControlPlane(options) as plane:
        versions = plane.request("GET", "/apis/resource.k8s.io")["versions"]
        assert "v1beta1" in [version["version"] for version in versions]
        gates = plane.request("GET", "/metrics").splitlines()
        assert any('name="DRAListTypeAttributes"' in gate and gate.endswith(" 1") for gate in gates)
        assert set(plane.pids()) == {"etcd", "kube-apiserver", "kube-scheduler"}
        written = json.loads((plane.layout.config / "scheduler.yaml").read_text())
        assert (written["clientConnection"]["qps"], written["percentageOfNodesToScore"]) == (500, 1)


async def test_it_is_an_async_context_manager_too() -> None:
    async with ControlPlane(BARE) as plane:
        root = plane.layout.root
        await create_objects(plane, [simulated_node("one")])
        assert plane.request("GET", "/api/v1/nodes/one")["metadata"]["name"] == "one"
    assert not root.exists()


# ---------------------------------------------------------------- leaving nothing behind


def test_after_the_block_nothing_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJOIN_TEST_LOGS", str(tmp_path))
    with ControlPlane(BARE) as plane:
        root, pids = plane.layout.root, plane.pids()
    assert_gone(root, pids.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["exception", "flag", "component died"])
def test_logs_are_kept_when_something_failed(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJOIN_TEST_LOGS", str(tmp_path))
    heard: list[str] = []
    plane = ControlPlane(BARE, name="failing", report=heard.append)

    def fail() -> None:
        with plane:
            if how == "exception":
                raise LookupError("the test's own")
            if how == "flag":
                plane.failed = True
            else:
                os.kill(plane.pids()["etcd"], signal.SIGKILL)
                eventually(plane.pids, lambda pids: "etcd" not in pids, what="etcd dead")

    if how == "exception":
        with pytest.raises(LookupError, match="the test's own"):
            fail()
    else:
        fail()
    [kept] = tmp_path.iterdir()
    assert (kept / "kube-apiserver.log").stat().st_size > 0
    assert heard[-1] == f"control plane failing: logs kept in {kept}"
    if how == "component died":
        assert heard[0] == "control plane failing: etcd ended by itself with status -9"


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Another program that has started a control plane, and what it says about it."""
    code = """
import json, signal, sys, time
# What a shell runs in its background inherits SIGINT ignored, and what nohup runs SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from tests.controlplane import ControlPlane, Options
with ControlPlane(Options(controller_manager=False, scheduler=False, kwok=False)) as plane:
    seen = {"root": str(plane.layout.root), "pids": plane.pids(), "supervisor": plane.supervisor_pid}
    print(json.dumps(seen), flush=True)
    time.sleep(600)
"""
    environment = {**os.environ, "ADJOIN_TEST_LOGS": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_when_its_owner_ends_by_a_signal_nothing_remains(
    number: signal.Signals, owner: tuple[subprocess.Popen[str], dict[str, Any]], tmp_path: Path
) -> None:
    process, seen = owner
    process.send_signal(number)
    process.wait()
    assert_gone(Path(seen["root"]), [*seen["pids"].values(), seen["supervisor"]])
    [kept] = tmp_path.iterdir()
    assert (kept / "kube-apiserver.log").exists()


def test_when_the_supervisor_is_killed_the_components_die_and_the_owner_cleans_up(
    owner: tuple[subprocess.Popen[str], dict[str, Any]],
) -> None:
    process, seen = owner
    os.kill(seen["supervisor"], signal.SIGKILL)
    eventually(
        lambda: [pid for pid in seen["pids"].values() if alive(pid)], lambda left: not left, what="components dead"
    )
    process.send_signal(signal.SIGINT)
    process.wait()
    assert_gone(Path(seen["root"]), seen["pids"].values())


# ---------------------------------------------------------------- helpers


def pod_on(node: str | None) -> dict[str, Any]:
    """A pod named main, for this node or for any."""
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "registry.test/workload:1"}],
    }
    if node is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "main"}, "spec": spec}


def wait_phase(plane: ControlPlane, namespace: str, name: str, phase: str) -> dict[str, Any]:
    found: dict[str, Any] = eventually(
        lambda: plane.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}"),
        lambda pod: pod["status"]["phase"] == phase,
        what=f"pod {name} {phase}",
    )
    return found


def delete_node(plane: ControlPlane, node: dict[str, Any]) -> None:
    plane.request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")


def claims_of(token: str) -> dict[str, Any]:
    """The payload of a JSON web token."""
    body = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie that only waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_gone(root: Path, pids: Any) -> None:
    eventually(
        lambda: [*(pid for pid in pids if alive(pid)), *([root] if root.exists() else [])],
        lambda left: not left,
        what="no process and no folder left",
    )
