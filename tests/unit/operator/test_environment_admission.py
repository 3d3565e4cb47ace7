"""What admission makes of pods whose claim hands its devices over as environment, and of pools that say so."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.support.environments import Obj, admitted, counting_pool, patched, static_device, static_pool
from tests.support.objects import deviceclaim, devicepool, pod
from tests.unit.operator.test_admission import Apart, apart, plain_pod, token

from adjoin.admission import build_app
from adjoin.admission.pods import Refused, mutate_ephemeral, mutate_pod
from adjoin.admission.variables import Environment
from adjoin.api.validate import validate
from adjoin.facts import PoolFacts, read_pool

__all__ = ["apart"]
ENVIRONMENT = Environment(frozenset({"nvidia.com/gpu"}))
OURS = ("NVIDIA_VISIBLE_DEVICES", "ADJOIN_DEVICES", "CUDA_VISIBLE_DEVICES", "NCCL_IB_HCA", "UCX_NET_DEVICES")


def plain(env: list[Obj] = [], group: str = "containers", **spec: Any) -> Obj:  # noqa: B006
    """A pod before admission with one container of that environment in that group."""
    made = pod(resource_claims=0, gates=())
    del made["metadata"]["annotations"]
    made["spec"] |= {group: [{"name": "x", "env": copy.deepcopy(env)}], **spec}
    return made


def references(made: Obj, group: str = "containers", place: int = 0) -> dict[str, tuple[str, str, bool]]:
    """By variable the name and key in a ConfigMap, and whether it may be absent."""
    return {
        entry["name"]: (reference["name"], reference["key"], reference.get("optional", False))
        for entry in made["spec"][group][place]["env"]
        if (reference := entry.get("valueFrom", {}).get("configMapKeyRef"))
    }


def test_variables_come_from_the_pods_own_configmap() -> None:
    made = admitted(plain())
    name = f"adjoin-job-a-{token(made)}"
    assert references(made) == {
        "NVIDIA_VISIBLE_DEVICES": (name, "NVIDIA_VISIBLE_DEVICES", False),
        "ADJOIN_DEVICES": (name, "ADJOIN_DEVICES", False),
        "CUDA_VISIBLE_DEVICES": (name, "CUDA_VISIBLE_DEVICES", True),
        "NCCL_IB_HCA": (name, "NCCL_IB_HCA", True),
        "UCX_NET_DEVICES": (name, "UCX_NET_DEVICES", True),
    }
    assert made["spec"]["schedulingGates"] == [{"name": "adjoin.dev/claim"}]
    assert "resourceClaims" not in made["spec"] or made["spec"]["resourceClaims"] == []


VISIBLE = "NVIDIA_VISIBLE_DEVICES"
FOREIGN = [
    pytest.param([{"name": VISIBLE, "value": "all"}], id="all"),
    pytest.param([{"name": VISIBLE, "value": "none"}], id="none"),
    pytest.param([{"name": VISIBLE, "value": "0,1"}], id="positions"),
    pytest.param([{"name": VISIBLE, "value": "GPU-of-somebody-else"}], id="a foreign uuid"),
    pytest.param([{"name": VISIBLE, "value": "$(OTHER)"}], id="made of another variable"),
    pytest.param([{"name": VISIBLE, "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}], id="a ConfigMap"),
    pytest.param([{"name": VISIBLE, "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}], id="a Secret"),
    pytest.param([{"name": VISIBLE, "value": "void"}, {"name": VISIBLE, "value": "all"}], id="twice"),
]
SILENT = [
    pytest.param([{"name": VISIBLE, "value": "void"}], id="void"),
    pytest.param(
        [{"name": VISIBLE, "valueFrom": {"configMapKeyRef": {"name": "adjoin-job-b-victimtoke", "key": VISIBLE}}}],
        id="the ConfigMap of another pod, as an earlier run of the webhook would leave it",
    ),
    pytest.param([], id="nothing: what the image or envFrom say yields to an explicit value"),
]


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize("env", [*FOREIGN, *SILENT])
def test_g2_whatever_a_container_says_it_gets_the_cards_of_its_claim(env: list[Obj], group: str) -> None:
    before = plain([{"name": "A", "value": "b"}, *env], group)
    before["spec"][group][0]["envFrom"] = [{"configMapRef": {"name": "everything"}}]
    made = admitted(before)
    entries = made["spec"][group][0]["env"]
    assert entries[0] == {"name": "A", "value": "b"}
    assert [each["name"] for each in entries[1:]] == list(OURS)
    assert references(made, group)[VISIBLE] == (f"adjoin-job-a-{token(made)}", VISIBLE, False)


@pytest.mark.parametrize("env", FOREIGN)
def test_g2_a_replaced_value_is_told(env: list[Obj]) -> None:
    _, warnings = mutate_pod(plain(env), (), ["gpu"], ENVIRONMENT)
    (warning,) = warnings
    assert warning.startswith(f"spec.containers[0].env[{VISIBLE}] ")
    assert warning.endswith("is replaced: the container gets the claim's devices")


@pytest.mark.parametrize("env", SILENT)
def test_g2_a_value_that_gives_nothing_is_not_worth_a_word(env: list[Obj]) -> None:
    assert mutate_pod(plain(env), (), ["gpu"], ENVIRONMENT)[1] == []


@pytest.mark.parametrize("variable", ["CUDA_VISIBLE_DEVICES", "NCCL_IB_HCA", "UCX_NET_DEVICES"])
def test_what_a_container_chooses_among_its_own_devices_stays(variable: str) -> None:
    made = admitted(plain([{"name": variable, "value": "mine"}]))
    (entry,) = [each for each in made["spec"]["containers"][0]["env"] if each["name"] == variable]
    assert entry == {"name": variable, "value": "mine"}


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize("kind", ["limits", "requests"])
@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_g2_a_container_that_asks_a_device_plugin_for_cards_as_well_is_refused(
    name: str, kind: str, group: str
) -> None:
    made = plain(group=group)
    made["spec"][group][0]["resources"] = {kind: {name: "1"}}
    with pytest.raises(Refused, match=r"\.resources\..*its device plugin would add devices of its own choice"):
        admitted(made)


def test_a_container_may_ask_a_device_plugin_for_what_is_no_card() -> None:
    """Without an agent on the node nothing else puts /dev/infiniband into a container."""
    made = plain()
    made["spec"]["containers"][0]["resources"] = {"limits": {"rdma/hca": "1"}}
    assert VISIBLE in references(admitted(made))


def test_each_container_reads_keys_of_its_own_where_requests_are_shared_out() -> None:
    before = plain()
    before["metadata"]["annotations"] = {"adjoin.dev/containers": '{"trainer": ["gpu"]}'}
    before["spec"]["containers"] = [{"name": "trainer"}, {"name": "logger", "env": [{"name": VISIBLE, "value": "all"}]}]
    made = admitted(before)
    name = f"adjoin-job-a-{token(made)}"
    assert references(made)[VISIBLE] == (name, f"trainer.{VISIBLE}", False)
    assert made["spec"]["containers"][1]["env"] == [{"name": VISIBLE, "value": "void"}]


def test_a_sidecar_that_came_in_later_reads_the_new_configmap_and_so_do_the_others() -> None:
    first = admitted(plain([{"name": "NCCL_IB_HCA", "value": "mine"}]))
    first["spec"]["containers"].append({"name": "sidecar"})
    second = admitted(first)
    assert token(second) != token(first)
    for place in (0, 1):
        found = references(second, place=place)
        assert {name for name, _, _ in found.values()} == {f"adjoin-job-a-{token(second)}"}
        names = [each["name"] for each in second["spec"]["containers"][place]["env"]]
        assert len(names) == len(set(names)) == len(OURS)


def test_entries_for_resourceclaims_that_the_user_wrote_under_our_names_go() -> None:
    before = plain(resourceClaims=[{"name": "adjoin-0", "resourceClaimName": "adjoin-job-b-x"}, {"name": "scratch"}])
    before["spec"]["containers"][0]["resources"] = {"claims": [{"name": "adjoin-0"}, {"name": "scratch"}]}
    made = admitted(before)
    assert made["spec"]["resourceClaims"] == [{"name": "scratch"}]
    assert made["spec"]["containers"][0]["resources"] == {"claims": [{"name": "scratch"}]}


def test_g2_an_ephemeral_container_gets_no_card() -> None:
    old = admitted(plain())
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [{"name": "debug", "env": [{"name": VISIBLE, "value": "all"}]}]
    patch, _ = mutate_ephemeral(new, old)
    assert patched(new, patch)["spec"]["ephemeralContainers"][0]["env"] == [{"name": VISIBLE, "value": "void"}]


def by_environment(made: Obj) -> bool:
    return VISIBLE in references(made)


async def test_the_pool_of_the_claim_says_how_its_devices_are_handed_over(apart: Apart) -> None:
    apart.know(devicepool(), counting_pool("counted"), deviceclaim(), deviceclaim("job-b", pool="counted"))
    assert not by_environment(await apart.admit(plain_pod()))
    assert by_environment(await apart.admit(plain_pod("job-b")))


async def test_a_pool_that_memory_does_not_have_yet_is_asked_for_once() -> None:
    """Applied with its claim and the claim's pods: what it says of delivery decides what these are made of."""
    made = Apart()
    made.know(devicepool("other"), deviceclaim())
    asked: list[str] = []

    async def find(name: str) -> PoolFacts:
        asked.append(name)
        await asyncio.sleep(0.01)
        return read_pool(counting_pool(name))

    async with TestClient(TestServer(build_app(made.cache, made.find, made.may, find))) as client:
        made.client = client
        pods = await asyncio.gather(*(made.admit(plain_pod()) for _ in range(5)))
    assert [by_environment(each) for each in pods] == [True] * 5
    assert asked == ["training"]


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        pytest.param([counting_pool()], True, id="all pools do it so"),
        pytest.param([counting_pool(), devicepool("other")], False, id="pools differ"),
        pytest.param([], False, id="there is no pool"),
    ],
)
async def test_a_pod_that_comes_before_its_claim_is_admitted_as_all_pools_have_it(
    apart: Apart,
    pools: list[Obj],
    expected: bool,
) -> None:
    apart.know(*pools)
    assert by_environment(await apart.admit(plain_pod())) is expected


async def test_the_resource_that_the_pool_counts_is_refused_by_its_name(apart: Apart) -> None:
    pool = counting_pool()
    pool["spec"]["devices"][0]["source"]["nodeResource"]["name"] = "amd.com/gpu"
    apart.know(pool, deviceclaim())
    made = plain_pod()
    made["spec"]["containers"][0]["resources"] = {"limits": {"amd.com/gpu": "1"}}
    assert "spec.containers[0].resources.limits[amd.com/gpu]" in await apart.refusal(made)


PUBLISHED = {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.nvidia.com"}}}
LISTED = static_pool({"n1": {"gpu": [static_device("g0", uuid="GPU-a")]}})["spec"]["devices"][0]


@pytest.mark.parametrize(
    ("devices", "delivery", "field"),
    [
        pytest.param([PUBLISHED], {"guard": "None"}, "spec.delivery.guard", id="published, unguarded"),
        pytest.param([LISTED], {"split": "Driver"}, "spec.delivery.split", id="split"),
        pytest.param([PUBLISHED], {}, None, id="published, guarded"),
        pytest.param([LISTED], {"guard": "None"}, None, id="listed, unguarded"),
        pytest.param([LISTED], {"networks": {"attachment": "rdma/{device}"}}, None, id="a network a NIC"),
        pytest.param([LISTED], {"networks": {"attachment": "rdma/nic.{device}-x"}}, None, id="a part of a name"),
        pytest.param(
            [LISTED], {"networks": {"attachment": "{device}"}}, "attachment", id="a network without namespace"
        ),
        pytest.param([LISTED], {"networks": {"attachment": "{device}/x"}}, "attachment", id="a namespace a NIC"),
        pytest.param([LISTED], {"networks": {"attachment": "rdma/{nic}"}}, "attachment", id="an unknown placeholder"),
        pytest.param([LISTED], {"networks": {"attachment": "rdma/Net"}}, "attachment", id="upper case"),
    ],
)
def test_pools_that_hand_devices_over_as_environment(devices: list[Obj], delivery: Obj, field: str | None) -> None:
    errors = [str(error) for error in validate(counting_pool(delivery=delivery, devices=devices), None)]
    assert len(errors) == (field is not None)
    assert field is None or field in errors[0]
