"""Networks of a pod's NICs: the annotation that Multus reads, on whole decisions and by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.environments import admitted, static_device, static_pool
from tests.support.objects import NIC_DRIVER, deviceclaim, devicepool, node, pod, resourceslice
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.delivery.networks import NetworksError, attach, parse_networks
from adjoin.intents import Kind
from adjoin_allocator.model import Device, DeviceID
from adjoin_allocator.terms import DeviceType

Obj = dict[str, Any]
NETWORKS = "k8s.v1.cni.cncf.io/networks"
ATTACHED = {"networks": {"attachment": "rdma/{device}"}}


def nic(name: str = "nic-0", address: str = "0000:1a:00.0") -> Device:
    attributes = {"adjoin.dev/pciBusID": address} if address else {}
    return Device(
        DeviceID("adjoin.dev", "n1", name), "n1", "p", "nic", DeviceType.RDMA, address or f"n1/{name}", attributes, {}
    )


def entry(number: int, name: str, address: str = "0000:1a:00.0") -> Obj:
    made = {"namespace": "rdma", "name": name, "interface": f"adjoin{number}"}
    return {**made, "deviceID": address} if address else made


FOREIGN = {"name": "storage", "namespace": "infra", "interface": "net1", "ips": ["10.0.0.7/24"]}
ANNOTATIONS = [
    pytest.param("", [], id="none"),
    pytest.param("storage", [{"name": "storage"}], id="a name"),
    pytest.param(
        " infra/storage@net1 , other",
        [{"name": "storage", "namespace": "infra", "interface": "net1"}, {"name": "other"}],
        id="names with namespace and interface",
    ),
    pytest.param(json.dumps([FOREIGN]), [FOREIGN], id="JSON with fields of others"),
    pytest.param(
        json.dumps([entry(7, "stolen"), FOREIGN, entry(0, "old")]),
        [FOREIGN],
        id="entries that look like ours are replaced",
    ),
]


@pytest.mark.parametrize(("before", "kept"), ANNOTATIONS)
def test_entries_of_others_stay_and_ours_follow(before: str, kept: list[Obj]) -> None:
    after = attach("rdma/{device}", [nic("nic-0"), nic("nic-1", "")], None, before)
    assert json.loads(after) == [*kept, entry(0, "nic-0"), entry(1, "nic-1", "")]


@pytest.mark.parametrize(("before", "_"), ANNOTATIONS)
def test_writing_it_again_changes_nothing(before: str, _: list[Obj]) -> None:
    once = attach("rdma/{device}", [nic()], None, before)
    assert attach("rdma/{device}", [nic()], None, once) == once


@pytest.mark.parametrize("text", [" storage ", "["])
def test_without_nics_the_annotation_is_left_alone(text: str) -> None:
    assert attach("rdma/{device}", [], None, text) == text


@pytest.mark.parametrize(
    ("template", "device", "expected"),
    [
        pytest.param("rdma/{device}", "mlx5_0", "mlx5-0", id="underscores"),
        pytest.param("rdma/{device}", "Mlx5_0", "mlx5-0", id="upper case"),
        pytest.param("rdma/{device}", "_nic_", "nic", id="ends"),
        pytest.param("rdma/nic-{device}", "0000:1a:00.0", "nic-0000-1a-00.0", id="a PCI address"),
        pytest.param("rdma/shared", "mlx5_0", "shared", id="one network for all"),
    ],
)
def test_a_device_becomes_a_legal_name(template: str, device: str, expected: str) -> None:
    (made,) = json.loads(attach(template, [nic(device)], None, ""))
    assert (made["namespace"], made["name"]) == ("rdma", expected)


@pytest.mark.parametrize(
    ("template", "device"),
    [
        pytest.param("rdma/{device}", "___", id="nothing left"),
        pytest.param("rdma/-{device}", "nic-0", id="a name that starts with a dash"),
        pytest.param("rdma/a..{device}", "nic-0", id="two dots"),
        pytest.param("rdma/" + "x" * 250 + "{device}", "nic-0", id="too long"),
    ],
)
def test_what_is_no_name_is_refused(template: str, device: str) -> None:
    with pytest.raises(NetworksError, match="is no name of a NetworkAttachmentDefinition") as refused:
        attach(template, [nic(device)], None, "")
    assert refused.value.reason == "InvalidNetworkName"


@pytest.mark.parametrize("text", ["[", '{"name": "x"}', '["x"]', '[{"namespace": "x"}]', "a/b/c", "a,,b", "a@b@c"])
def test_an_annotation_that_multus_could_not_read_is_refused(text: str) -> None:
    with pytest.raises(NetworksError) as refused:
        parse_networks(text)
    assert refused.value.reason == "InvalidNetworks"


def site(worker: Obj, **delivery: Any) -> World:
    """A machine with two NICs of a DRA driver, one of which the claim gets."""
    world = World()
    nics = {f"nic-{i}": {"dra.net/pciAddress": {"string": f"0000:{i}a:00.0"}} for i in (0, 1)}
    world.add(
        devicepool(delivery={**ATTACHED, **delivery}),
        node(),
        resourceslice(driver=NIC_DRIVER, devices=nics),
        deviceclaim(requests={"nic": 2}),
        worker,
    )
    return world


def annotation(world: World) -> list[Obj]:
    found = world.get(Kind.POD, "worker")
    assert found is not None
    return json.loads(found["metadata"]["annotations"].get(NETWORKS, "[]"))  # type: ignore[no-any-return]


def with_networks(made: Obj, text: str) -> Obj:
    made["metadata"]["annotations"][NETWORKS] = text
    return made


def test_a_pod_is_attached_before_its_gate_opens() -> None:
    world = site(pod())

    def check(world: World) -> None:
        found = world.get(Kind.POD, "worker")
        assert found is not None
        assert bool(found["spec"].get("schedulingGates")) == (annotation(world) == [])

    world.settle(Decider, check=check)
    assert annotation(world) == [entry(0, "nic-0", "0000:0a:00.0"), entry(1, "nic-1", "0000:1a:00.0")]


def test_what_the_user_asked_for_is_kept() -> None:
    world = site(with_networks(pod(), "storage@net1"))
    world.settle(Decider)
    assert annotation(world)[0] == {"name": "storage", "interface": "net1"}
    assert len(annotation(world)) == 3


@pytest.mark.parametrize(
    ("text", "attachment", "reason"),
    [
        pytest.param("[", "rdma/{device}", "InvalidNetworks", id="the user's part cannot be read"),
        pytest.param("", "rdma/a..{device}", "InvalidNetworkName", id="the pool's template gives no name"),
    ],
)
def test_a_pod_that_cannot_be_attached_waits_and_is_told(text: str, attachment: str, reason: str) -> None:
    world = site(with_networks(pod(), text), networks={"attachment": attachment})
    world.settle(Decider)
    found = world.get(Kind.POD, "worker")
    assert found is not None
    assert found["spec"]["schedulingGates"]
    assert [each["reason"] for each in world.all(Kind.EVENT) if each["regarding"]["name"] == "worker"] == [reason]
    assert world.all(Kind.RESOURCE_CLAIM) == []


def test_a_running_pod_keeps_its_networks_whatever_the_pool_says_later() -> None:
    world = site(pod())
    world.settle(Decider)
    before = annotation(world)
    world.change(
        Kind.DEVICE_POOL, "training", {"spec": {"delivery": {"networks": {"attachment": "other/{device}"}}}}, ""
    )
    world.settle(Decider)
    assert annotation(world) == before


def test_networks_go_with_environment_too() -> None:
    world = World()
    devices = {"n1": {"nic": [static_device("nic-0", pciBusID="0000:1a:00.0", rdmaDevice="mlx5_0")]}}
    worker = admitted(requests=("nic",))
    world.add(static_pool(devices, delivery=ATTACHED), node(), deviceclaim(requests={"nic": 1}), worker)
    world.settle(Decider)
    assert annotation(world) == [entry(0, "nic-0")]
