"""Devices as environment on a real control plane: pods that start from ConfigMaps, who may write those, and
networks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.controlplane.client import ApiFailure
from tests.controlplane.nodes import simulated_node
from tests.support import hardware
from tests.support.installation import NAMESPACE, Installation
from tests.support.site import NEAR, Site, pod
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
Manifest = dict[str, Any]
GPUS = 4
MATRIX = "\n".join(
    [
        "\t".join(["", *(f"GPU{i}" for i in range(GPUS))]),
        *("\t".join([f"GPU{i}", *("X" if i == k else "NV4" for k in range(GPUS))]) for i in range(GPUS)),
    ]
)
NETWORKS = "k8s.v1.cni.cncf.io/networks"


def counting(site: Site, count: int, **spec: Any) -> list[str]:
    """Machines whose device plugin counts GPUs, each with a matrix of its own that has their uuids; their names."""
    names = [f"{site.namespace}-n{i}" for i in range(count)]
    data = {}
    for name in names:
        data[name] = MATRIX
        data[f"{name}.gpus"] = "\n".join(f"GPU-{name}-{i}" for i in range(GPUS))
    meta = {"name": site.namespace, "namespace": NAMESPACE}
    site.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    site.fill(simulated_node(n, labels={"site": site.namespace, "machine": n}, allocatable=room) for n in names)
    site.nodes_ready(*names)
    matrices = [
        {"nodeSelector": {"matchLabels": {"machine": name}}, "configMapRef": {"name": site.namespace, "key": name}}
        for name in names
    ]
    site.pool(
        devices=[{"name": "gpu", "type": "GPU", "source": {"nodeResource": {"name": "nvidia.com/gpu"}}}],
        topology={"matrices": matrices},
        delivery={"mode": "Environment"},
        **spec,
    )
    return names


def grants(site: Site) -> list[Manifest]:
    """ConfigMaps that hand devices to the site's pods."""
    return [each for each in site.all("ConfigMap") if each["metadata"]["name"].startswith("adjoin-")]


def environment(site: Site, worker: Manifest) -> dict[str, str]:
    """What the kubelet would start the pod's container with."""
    found = {}
    for entry in worker["spec"]["containers"][0]["env"]:
        reference = (entry.get("valueFrom") or {}).get("configMapKeyRef")
        if reference is None:
            found[entry["name"]] = entry["value"]
            continue
        config_map = site.get("ConfigMap", reference["name"])
        assert config_map is not None
        if reference["key"] in config_map["data"]:
            found[entry["name"]] = config_map["data"][reference["key"]]
        else:
            assert reference["optional"]
    return found


def held(claim: Mapping[str, Any]) -> list[str]:
    return [device["id"] for replica in claim["status"]["allocation"]["replicas"] for device in replica["devices"]]


def test_a29_status_configmap_and_pod_of_twenty_claims_name_the_same_cards(site: Site) -> None:
    counting(site, 5)
    names = [f"job-{i}" for i in range(20)]
    for name in names:
        site.ask(name, {"gpu": 1})
        site.create(pod(name, name))
    seen: list[str] = []
    for name in names:
        worker = site.wait_running(name)
        claim = site.wait_phase(name, "InUse")
        (replica,) = claim["status"]["allocation"]["replicas"]
        variables = environment(site, worker)
        assert variables["NVIDIA_VISIBLE_DEVICES"].split(",") == held(claim)
        assert variables["CUDA_VISIBLE_DEVICES"].split(",") == held(claim)
        assert json.loads(variables["ADJOIN_DEVICES"]) == [{"name": "gpu", **each} for each in replica["devices"]]
        assert worker["spec"]["nodeName"] == replica["node"]
        assert held(claim)[0].startswith(f"GPU-{replica['node']}-")
        seen += held(claim)
    assert len(set(seen)) == 20
    by_pod = {each["metadata"]["labels"]["adjoin.dev/pod"] for each in grants(site)}
    assert by_pod == {worker["metadata"]["uid"] for worker in site.all("Pod")}
    for name in names:
        site.delete("DeviceClaim", name)
    for name in names:
        site.wait_gone("DeviceClaim", name)
        assert site.get("Pod", name) is None
    assert grants(site) == []


def test_a_replica_goes_from_pod_to_pod_while_operators_come_and_go(site: Site, adjoin: Installation) -> None:
    counting(site, 1)
    site.ask("job", {"gpu": 4})
    site.create(pod("first", "job"))
    claim = site.wait_phase("job", "InUse")
    for operator in adjoin.operators:
        operator.kill()
    site.delete("Pod", "first")
    site.wait_gone("Pod", "first")
    assert len(grants(site)) == 1
    adjoin.start_operator()
    site.create(pod("second", "job"))
    worker = site.wait_running("second")
    assert environment(site, worker)["NVIDIA_VISIBLE_DEVICES"].split(",") == held(claim)
    (grant,) = grants(site)
    assert grant["metadata"]["labels"]["adjoin.dev/pod"] == worker["metadata"]["uid"]


def test_g2_a_pod_gets_the_cards_of_its_claim_and_no_others(site: Site) -> None:
    counting(site, 1)
    site.ask("job", {"gpu": 1})
    greedy = pod("greedy", "job")
    greedy["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    with pytest.raises(ApiFailure, match="its device plugin would add devices of its own choice"):
        site.create(greedy)
    worker = pod("worker", "job")
    worker["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    site.create(worker)
    running = site.wait_running("worker")
    assert environment(site, running)["NVIDIA_VISIBLE_DEVICES"].split(",") == held(site.claim("job"))


def config_map(name: str, **metadata: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


def test_configmaps_that_hand_devices_to_pods_are_written_by_adjoin_alone(site: Site) -> None:
    counting(site, 1)
    site.ask("job", {"gpu": 1})
    site.create(pod("worker", "job"))
    site.wait_running("worker")
    (grant,) = grants(site)
    name = grant["metadata"]["name"]
    with pytest.raises(ApiFailure, match="immutable"):
        site.patch("ConfigMap", name, {"data": {"NVIDIA_VISIBLE_DEVICES": "all"}})
    with pytest.raises(ApiFailure, match="written by Adjoin alone"):
        site.patch("ConfigMap", name, {"metadata": {"labels": {"adjoin.dev/pod": "another"}}})
    with pytest.raises(ApiFailure, match="made by Adjoin alone"):
        site.create(config_map("adjoin-job-aaaaaaaaaa"))
    with pytest.raises(ApiFailure, match="written by Adjoin alone"):
        site.create(config_map("mine", labels={"adjoin.dev/pod": "x"}))
    for name in ("mine", "adjoin-notes", "kube-root-ca.crt.2"):
        site.create(config_map(name))
        site.patch("ConfigMap", name, {"data": {"a": "c"}})


def test_a_deleted_configmap_stays_until_its_pod_has_ended(site: Site) -> None:
    counting(site, 1)
    site.ask("job", {"gpu": 1})
    site.create(pod("worker", "job"))
    site.wait_running("worker")
    (grant,) = grants(site)
    site.delete("ConfigMap", grant["metadata"]["name"])
    assert site.get("ConfigMap", grant["metadata"]["name"]) is not None
    site.delete("Pod", "worker")
    site.wait_gone("ConfigMap", grant["metadata"]["name"])
    site.wait_phase("job", "Ready")


def test_nics_are_attached_to_their_networks_before_the_gate_opens(site: Site) -> None:
    """The annotation of a gated pod may be written with its gate and affinity in one patch."""
    site.machines(hardware.two_roots)
    site.pool(delivery={"networks": {"attachment": "rdma/{device}"}})
    site.ask("pair", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    site.create(pod("pair", "pair", annotations={NETWORKS: "storage@net1"}))
    worker = site.wait_running("pair")
    claim = site.claim("pair")
    (nic,) = [
        device["device"]
        for replica in claim["status"]["allocation"]["replicas"]
        for device in replica["devices"]
        if device["request"] == "nic"
    ]
    first, second = json.loads(worker["metadata"]["annotations"][NETWORKS])
    assert first == {"name": "storage", "interface": "net1"}
    assert (second["namespace"], second["name"], second["interface"]) == ("rdma", nic, "adjoin0")
    assert eventually(lambda: site.claim("pair")["status"]["phase"], lambda phase: phase == "InUse", what="in use")
