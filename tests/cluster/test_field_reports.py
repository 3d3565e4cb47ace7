"""Field reports that need a real control plane: churn, GitOps, cold start, uninstall. Named by the report's id."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane import ControlPlane, Group, ensure
from tests.controlplane.client import ApiFailure
from tests.support import hardware
from tests.support.installation import NAMESPACE, ROOT, Installation, installed
from tests.support.objects import resourceslice
from tests.support.site import NEAR, Site, devices, pod, reasons
from tests.support.waiting import eventually, steadily

pytestmark = pytest.mark.cluster
Manifest = dict[str, Any]


def eight_gpus(node: str) -> list[Manifest]:
    """A machine with eight GPUs."""
    slices = resourceslice(node, devices=8)
    for device in slices["spec"]["devices"]:
        device["attributes"]["type"] = {"string": "gpu"}
    slices["metadata"] = {"name": slices["metadata"]["name"]}
    return [hardware.node_object(node, "eight-gpus"), slices]


@pytest.mark.timeout(600)
def test_a10_in_churn_no_watcher_ever_sees_a_device_in_two_hands(site: Site) -> None:
    """20 nodes of 8 GPUs; 200 claims for one GPU at once, and while they are served claims go and others come. The
    recorder beside this test looks at every instant that a watcher could see.
    """
    site.machines(eight_gpus, 20)
    site.pool()
    chance = random.Random(10)
    alive = [f"c{number}" for number in range(200)]
    site.fill(claim(site, name) for name in alive)
    for number in range(6):
        gone = [alive.pop(chance.randrange(len(alive))) for _ in range(5)]
        for name in gone:
            site.delete("DeviceClaim", name)
        later = [f"{name}-{number}" for name in gone]
        site.fill(claim(site, name) for name in later)
        alive += later

    def settled(seen: list[Manifest]) -> bool:
        """One look: who was deleted is gone, and every GPU is in a hand."""
        return len(seen) == 200 and len({(node, device) for one in seen for _, node, device in devices(one)}) == 160

    seen = eventually(lambda: site.all("DeviceClaim"), settled, what="all 160 GPUs are given out", seconds=180)
    waiting = [one for one in seen if not devices(one)]
    assert len(waiting) == 40
    for name in alive[::2]:
        site.delete("DeviceClaim", name)
    eventually(
        lambda: [one["status"].get("phase") for one in site.all("DeviceClaim")],
        lambda seen: seen == ["Ready"] * 100,
        what="what is left is served",
        seconds=180,
    )


def claim(site: Site, name: str, **spec: Any) -> Manifest:
    """A DeviceClaim of this site's pool for one GPU."""
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name, "namespace": site.namespace},
        "spec": {"poolRef": {"name": site.namespace}, "requests": [{"name": "gpu"}], **spec},
    }


def test_a23_a_pod_whose_devices_do_not_fit_together_waits_gated_and_is_no_failed_pod(site: Site) -> None:
    """A Deployment asks for four GPUs of one NUMA node, and each node has two: one pod, one claim, one reason."""

    def two_and_two(node: str) -> list[Manifest]:
        machine, slices = eight_gpus(node)
        for index, device in enumerate(slices["spec"]["devices"]):
            device["attributes"]["resource.kubernetes.io/numaNode"] = {"int": index // 4}
        slices["spec"]["devices"] = [slices["spec"]["devices"][index] for index in (0, 1, 4, 5)]
        return [machine, slices]

    site.machines(two_and_two)
    site.pool()
    site.ask("train", {"gpu": 4}, affinity=[{"requests": ["gpu"], "scope": "NUMANode", "policy": "Required"}])
    made = pod("unused", "train")
    labels = {**made["metadata"]["labels"], "app": "train"}
    site.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "train"},
            "spec": {
                "selector": {"matchLabels": {"app": "train"}},
                "template": {"metadata": {"labels": labels}, "spec": made["spec"]},
            },
        }
    )
    eventually(lambda: site.all("Pod"), bool, what="the Deployment's pod is there")
    found = eventually(lambda: site.claim("train"), reasons, what="a reason")
    assert list(reasons(found)) == ["TopologyUnsatisfied"]
    steadily(
        lambda: [(one["status"]["phase"], bool(one["spec"].get("schedulingGates"))) for one in site.all("Pod")],
        lambda seen: seen == [("Pending", True)],
        what="one gated pod, none that failed",
        seconds=5,
    )
    told = [one["reason"] for one in site.all("Event") if one.get("regarding", {}).get("name") == "train"]
    assert [reason for reason in told if reason == "TopologyUnsatisfied"] == ["TopologyUnsatisfied"]


def test_e2_what_gitops_applied_is_what_it_finds(site: Site) -> None:
    """Server-side diff after everything has settled is empty, applying again changes nothing, and nothing but status is
    ever written by the operator."""
    site.machines(hardware.two_roots)
    site.pool()
    site.delete("DevicePool", site.namespace)
    site.wait_gone("DevicePool", site.namespace)
    pool = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": site.namespace, "labels": {"argocd.argoproj.io/instance": "platform"}},
        "spec": {
            "nodeSelector": {"matchLabels": {"site": site.namespace}},
            "devices": [
                {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.nvidia.com"}}},
                {"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": "dra.net"}}},
            ],
        },
    }
    pair = claim(site, "pair", requests=[{"name": "gpu"}, {"name": "nic"}], affinity=list(NEAR))
    manifests = "\n---\n".join(map(json.dumps, (pool, pair)))
    server_side = ("--server-side", "--field-manager=argocd-controller")
    site.plane.kubectl("apply", *server_side, "-f", "-", stdin=manifests)
    site.create(pod("pair", "pair"))
    site.wait_running("pair")
    before = site.wait_phase("pair", "InUse")

    def differences(*options: str) -> str:
        return site.plane.kubectl("diff", *options, "-f", "-", stdin=manifests, check=False).stdout

    assert differences(*server_side) == ""
    settled = eventually(lambda: versions(site), lambda seen: versions(site) == seen, what="nothing moves")
    site.plane.kubectl("apply", *server_side, "-f", "-", stdin=manifests)
    time.sleep(5)
    assert versions(site) == settled
    assert differences(*server_side) == ""
    assert site.claim("pair")["spec"] == before["spec"]
    writers = {
        (entry["manager"] == "argocd-controller", entry.get("subresource"), tuple(sorted(entry["fieldsV1"])))
        for one in (site.claim("pair"), site.get("DevicePool", site.namespace) or {})
        for entry in one["metadata"]["managedFields"]
        if "f:status" in entry["fieldsV1"] or "f:spec" in entry["fieldsV1"]
    }
    assert writers >= {(False, "status", ("f:status",))}
    assert all(theirs or fields == ("f:status",) for theirs, _, fields in writers)
    site.plane.kubectl("delete", "-f", "-", "--wait=false", stdin=manifests)
    site.wait_gone("DeviceClaim", "pair")
    site.wait_gone("DevicePool", site.namespace)


def refused(site: Site, manifest: Manifest) -> str:
    """Why the API server does not create it, or ""."""
    try:
        site.create(manifest)
    except ApiFailure as failure:
        return str(failure)
    return ""


def versions(site: Site) -> tuple[str, str]:
    """Versions of the claim and of the pool."""
    found = site.get("DeviceClaim", "pair"), site.get("DevicePool", site.namespace)
    first, second = (one["metadata"]["resourceVersion"] if one else "" for one in found)
    return first, second


def test_pods_bind_once_a_devices_driver_says_that_it_is_attached(site: Site) -> None:
    """Binding conditions of a device hold for a pod of a DeviceClaim as for any other."""

    def fabric(node: str) -> list[Manifest]:
        machine, slices = eight_gpus(node)
        for device in slices["spec"]["devices"]:
            device["bindsToNode"] = True
            device["bindingConditions"] = ["example.com/attached"]
            device["bindingFailureConditions"] = ["example.com/attach-failed"]
        return [machine, slices]

    site.machines(fabric)
    site.pool()
    site.ask("one", {"gpu": 1})
    site.create(pod("one", "one"))
    (delivery,) = eventually(
        lambda: [one for one in site.all("ResourceClaim") if one.get("status", {}).get("allocation")],
        bool,
        what="the device is handed over",
    )
    steadily(
        lambda: site.get("Pod", "one"),
        lambda seen: bool(seen) and not seen["spec"].get("nodeName"),
        what="the pod is not bound",
        seconds=3,
    )
    (result,) = delivery["status"]["allocation"]["devices"]["results"]
    attached = {"type": "example.com/attached", "status": "True", "reason": "Attached", "message": ""}
    attached["lastTransitionTime"] = "2026-11-30T08:00:00Z"
    status = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [attached]}
    site.patch("ResourceClaim", delivery["metadata"]["name"], {"status": {"devices": [status]}}, subresource="status")
    site.wait_running("one")


def test_g5_a_cluster_starts_cold_with_the_webhooks_there_and_adjoin_not(site: Site, adjoin: Installation) -> None:
    """The network's pods, and Adjoin's own, never wait for Adjoin."""
    adjoin.operators[-1].kill()
    try:
        site.machines(hardware.two_roots)
        made = []
        for namespace in ("kube-system", NAMESPACE):
            plain = pod(f"cold-{site.namespace}", "none")
            plain["metadata"] = {
                "name": plain["metadata"]["name"],
                "namespace": namespace,
                "labels": {"app.kubernetes.io/name": "adjoin"},
            }
            plain["spec"]["nodeName"] = f"{site.namespace}-n0"
            made.append(site.create(plain))
        for one in made:
            path = site.path("Pod", one["metadata"]["name"], one["metadata"]["namespace"])
            eventually(
                lambda path=path: site.find(path),
                lambda seen: bool(seen) and seen["status"].get("phase") == "Running",
                what=f"{path} runs",
            )
        for namespace in ("kube-system", NAMESPACE):
            stray = pod(f"stray-{site.namespace}", "none")
            stray["metadata"]["namespace"] = namespace
            with pytest.raises(ApiFailure, match=namespace) as said:
                site.create(stray)
            assert said.value.status == 403, "said by the policy, without asking the webhook"
    finally:
        adjoin.start_operator()


@pytest.mark.timeout(300)
def test_e8_after_an_uninstall_with_live_claims_nothing_blocks_and_the_documented_lines_clean_up() -> None:
    """Operator, rights and webhooks are gone while ten claims live: pods and metadata can still be written, and what
    the documentation says takes the finalizers off, so that the namespace ends."""
    with ControlPlane(name="uninstall") as plane, installed(plane) as made:
        made.start_operator()
        site = Site.open(plane, "live")
        site.machines(eight_gpus, 2)
        site.pool()
        for number in range(10):
            site.ask(f"c{number}", {"gpu": 1})
            site.create(pod(f"p{number}", f"c{number}"))
        for number in range(10):
            site.wait_running(f"p{number}")
        made.stop()
        made.helm("uninstall", "adjoin", "-n", NAMESPACE)
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies"):
            assert "adjoin" not in plane.kubectl("get", kind, "-o", "name").stdout
        site.patch("DeviceClaim", "c0", {"metadata": {"labels": {"a": "b"}}})
        eventually(lambda: refused(site, pod("late", "c0")), lambda said: said == "", what="the policies are forgotten")
        site.delete("Namespace", site.namespace)
        eventually(
            lambda: site.claim("c0")["metadata"].get("deletionTimestamp"), bool, what="the namespace's claims are going"
        )
        rescue = re.findall(r"```console\n(.*?)```", (ROOT / "docs/operations.md").read_text(), flags=re.DOTALL)
        claims_and_pools, resource_claims = (block for block in rescue if "finalizers" in block)
        script = re.sub(r"^\$ ", "", f"{claims_and_pools}\n{resource_claims}", flags=re.MULTILINE)
        kubectl = Path(ensure(Group.CONTROLPLANE)["kubectl"]).parent
        environment = {
            "PATH": f"{kubectl}:{os.environ['PATH']}",
            "HOME": str(plane.layout.home),
            "KUBECONFIG": str(plane.kubeconfig),
        }
        run = subprocess.run(["bash", "-ec", script], env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        site.delete("DevicePool", site.namespace)
        site.wait_gone("Namespace", site.namespace)
        site.wait_gone("DevicePool", site.namespace)
        assert site.all("DeviceTaintRule") == []
