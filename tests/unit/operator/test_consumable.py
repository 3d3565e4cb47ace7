"""Parts of devices in ResourceClaims: what a driver that publishes consumable capacity sees, and who waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support import make
from tests.support.objects import deviceclaim, resourceclaim

from adjoin.delivery.resourceclaims import Cargo, allocation_results, uncarried_parts
from adjoin.facts import ClaimFacts, read_claim, read_device, read_resource_claim
from adjoin.lifecycle import contested
from adjoin_allocator.model import Device, DeviceID, Hold, PlacedDevice, PlacedReplica, PlacedShare, RequestPolicy
from adjoin_allocator.terms import HoldKind, ReplicaState

GI = 1 << 30
POLICY = {"default": "10Gi", "validRange": {"min": "10Gi", "max": "80Gi", "step": "10Gi"}}


def card(*, several: bool = True) -> Device:
    policy = RequestPolicy(default=10 * GI, least=10 * GI, most=80 * GI, step=10 * GI)
    made = make.card("gpu-0", memory="80Gi")
    return replace(made, allow_multiple_allocations=several, policies={"gpu.nvidia.com/memory": policy})


def claim() -> ClaimFacts:
    return read_claim(deviceclaim("job"))


def cargo(share: PlacedShare, *, several: bool = True, alone: bool = False) -> Cargo:
    device = card(several=several)
    return Cargo(
        claim=claim(),
        index=0,
        node="node-a",
        devices={"gpu": (device,)},
        pool="training",
        guarded=False,
        shares={"gpu": (share,)},
        alone=frozenset({device.id} if alone else ()),
    )


def test_a_published_policy_is_read() -> None:
    device = {"name": "gpu-0", "capacity": {"memory": {"value": "80Gi", "requestPolicy": POLICY}, "own.io/x": "1"}}
    read = read_device(device, "gpu.nvidia.com")
    assert read.policies == {"gpu.nvidia.com/memory": RequestPolicy(10 * GI, (), 10 * GI, 80 * GI, 10 * GI)}
    values = {"name": "g", "capacity": {"memory": {"value": "8", "requestPolicy": {"validValues": ["4", "2"]}}}}
    assert read_device(values, "d").policies["d/memory"].values == (2, 4)


def test_parts_of_a_device_have_share_ids_that_stay_and_differ() -> None:
    half = PlacedShare("half", memory_bytes=40 * GI)

    def results(*shares: PlacedShare, holder: str = "uid/0") -> list[dict[str, Any]]:
        return allocation_results("gpu", [card()] * len(shares), "training", holder, shares=shares)

    one, other = results(half, half)
    assert one["consumedCapacity"] == other["consumedCapacity"] == {"memory": "40Gi"}
    assert one["shareID"] != other["shareID"]
    assert results(half)[0]["shareID"] == one["shareID"]
    assert results(half, holder="uid/1")[0]["shareID"] != one["shareID"]


@pytest.mark.parametrize(
    ("share", "several", "alone", "why"),
    [
        pytest.param(PlacedShare("half", memory_bytes=40 * GI), True, False, "", id="an amount that the policy has"),
        pytest.param(PlacedShare("half", memory_bytes=31 * GI), True, False, "", id="one that is rounded up"),
        pytest.param(PlacedShare("half", compute_milli=500), True, False, "", id="no memory: the default counts"),
        pytest.param(PlacedShare("half", memory_bytes=81 * GI), True, False, "no such part", id="more than there is"),
        pytest.param(PlacedShare("half", memory_bytes=31 * GI), False, True, "", id="one allocation, nobody else"),
        pytest.param(
            PlacedShare("half", memory_bytes=31 * GI), False, False, "Environment", id="one allocation, others too"
        ),
    ],
)
def test_who_waits(share: PlacedShare, several: bool, alone: bool, why: str) -> None:
    notice = uncarried_parts(cargo(share, several=several, alone=alone))
    assert (notice is None) == (not why)
    if notice is not None:
        assert notice.reason == "PartsNotDelivered"
        assert why in notice.message


@pytest.mark.parametrize(
    ("part", "shared", "kept"),
    [
        pytest.param(True, True, True, id="both have parts"),
        pytest.param(True, False, False, id="they have the whole"),
        pytest.param(False, True, False, id="we have the whole"),
    ],
)
def test_whose_a_device_is_that_stands_in_a_foreign_allocation(part: bool, shared: bool, kept: bool) -> None:
    device = card()
    share = PlacedShare("half", memory_bytes=40 * GI) if part else None
    held = PlacedDevice("gpu", device.id, device.hardware_id, share)
    mine = make.claim("mine", placed=(PlacedReplica(0, "node-a", ReplicaState.READY, (held,)),))
    holds = {device.id: Hold(HoldKind.FOREIGN, "ResourceClaim team/theirs", shared)}
    assert (contested([mine], {}, holds) == {}) is kept


def test_a_share_in_a_foreign_allocation_is_told_from_a_whole_device() -> None:
    theirs = resourceclaim("theirs", owner="", devices=[("gpu.nvidia.com", "n1", "gpu-0"), ("d", "n1", "gpu-1")])
    theirs["status"]["allocation"]["devices"]["results"][0]["shareID"] = "c15242e6-ce62-442c-a21f-cdfbb8ed5f72"
    facts = read_resource_claim(theirs)
    assert facts.shared == (DeviceID("gpu.nvidia.com", "n1", "gpu-0"),)
