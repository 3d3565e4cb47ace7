"""Facts become the allocator's nouns."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.support.objects import (
    allocation,
    deviceclaim,
    devicepool,
    node,
    pod,
    replica,
    resourceclaim,
    resourceslice,
)
from tests.support.views import view_of

from adjoin.inventory import InventoryBuilder
from adjoin.snapshot import SnapshotBuilder
from adjoin_allocator.model import Claim, DeviceID
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import HoldKind, Policy, Scope

GPU = "gpu.nvidia.com"
FIXED = (devicepool(delivery={"guard": "None"}), node(), resourceslice("n1", GPU, 4))


def snapshot(*objects: Any) -> Snapshot:
    view = view_of(*FIXED, *objects)
    return SnapshotBuilder().build(view, InventoryBuilder().build(view))


def claim(*objects: Any) -> Claim:
    (found,) = snapshot(*objects).claims
    return found


def holding(*devices: str, **fields: Any) -> dict[str, Any]:
    return deviceclaim(status=allocation(replica(devices=[("gpu", GPU, "n1", name) for name in devices])), **fields)


class TestClaims:
    def test_what_is_absent_means_what_the_contract_says(self) -> None:
        bare = deviceclaim(requests=[{"name": "gpu"}], pool=None)
        made = claim(bare)
        (request,) = made.requests
        assert (request.name, request.kind, request.count, request.all_devices) == ("gpu", "gpu", 1, False)
        assert (made.pool, made.replicas, made.priority, made.placed, made.deleting) == ("", 1, 0, (), False)
        assert (made.has_uid, made.hold) == (True, None)

    def test_requests_and_affinity(self) -> None:
        requests = [
            {"name": "g", "device": "gpu", "count": 2, "selectors": [{"cel": "true"}]},
            {"name": "n", "device": "nic", "all": True},
        ]
        lines = [
            {"requests": ["g", "n"], "scope": "PCIeRoot"},
            {"requests": ["g"], "scope": "NVLink", "policy": "Required"},
            {"requests": ["n"], "attribute": "dra.net/rail", "policy": "Distinct"},
        ]
        made = claim(deviceclaim(requests=requests, affinity=lines, replicas=3))
        first, second = made.requests
        assert (first.kind, first.count, len(first.selectors)) == ("gpu", 2, 1)
        assert (second.kind, second.count, second.all_devices) == ("nic", 0, True)
        assert [(line.scope, line.policy, line.attribute) for line in made.affinity] == [
            (Scope.PCIE_ROOT, Policy.PREFERRED, ""),
            (Scope.NVLINK, Policy.REQUIRED, ""),
            (None, Policy.DISTINCT, "dra.net/rail"),
        ]
        assert made.replicas == 3

    def test_what_it_has(self) -> None:
        made = claim(holding("gpu-1", "gpu-2", deletionTimestamp="2026-11-30T09:00:00Z"))
        (placed,) = made.placed
        assert (placed.index, placed.node, placed.state) == (0, "n1", "Ready")
        assert [device.id.device for device in placed.devices] == ["gpu-1", "gpu-2"]
        assert made.deleting

    def test_hardware_under_another_name_is_held_under_that_name(self) -> None:
        held = holding("gpu-9")
        held["status"]["allocation"]["replicas"][0]["devices"][0]["id"] = "GPU-n1-2"
        (placed,) = claim(held).placed
        assert placed.devices[0].id == DeviceID(GPU, "n1", "gpu-2")

    @pytest.mark.parametrize(
        ("annotations", "pool"),
        [
            pytest.param({"adjoin.dev/default-pool": "true"}, "training", id="a default"),
            pytest.param({}, "", id="none"),
        ],
    )
    def test_a_claim_without_a_pool_asks_the_default(self, annotations: dict[str, str], pool: str) -> None:
        view = view_of(devicepool(annotations=annotations), deviceclaim(pool=None))
        (made,) = SnapshotBuilder().build(view, InventoryBuilder().build(view)).claims
        assert made.pool == pool

    def test_a_claim_that_admission_would_refuse_is_held_back(self) -> None:
        broken = deviceclaim()
        broken["spec"]["requests"][0]["share"] = {"name": "quarters", "slots": 1, "profile": "1g.5gb"}
        made = claim(broken)
        assert made.hold is not None
        assert made.hold.code == "InvalidClaim"
        assert "spec.requests[0].share" in made.hold.message
        assert made.requests == ()


class TestGates:
    FOREIGN = "kueue.x-k8s.io/admission"

    @pytest.mark.parametrize(
        ("pods", "gated"),
        [
            pytest.param([pod()], False, id="our own gate"),
            pytest.param([pod(gates=["adjoin.dev/claim", FOREIGN])], True, id="a foreign gate"),
            pytest.param([pod(gates=[FOREIGN], node="n1")], False, id="a bound pod"),
            pytest.param([pod(gates=[FOREIGN], phase="Failed")], False, id="a pod that has ended"),
            pytest.param(
                [pod(gates=[FOREIGN], deletionTimestamp="2026-11-30T09:00:00Z")], False, id="a pod on its way out"
            ),
            pytest.param([pod(gates=[FOREIGN], claim="other")], False, id="a pod of another claim"),
            pytest.param([pod(gates=[FOREIGN], namespace="other")], False, id="a pod of another namespace"),
            pytest.param(
                [pod("old", gates=[FOREIGN]), pod("new", creationTimestamp="2026-11-30T08:00:09Z")],
                False,
                id="only the newest unbound pod counts",
            ),
            pytest.param(
                [pod("old"), pod("new", gates=[FOREIGN], creationTimestamp="2026-11-30T08:00:09Z")],
                True,
                id="the newest is gated",
            ),
        ],
    )
    def test_a_foreign_gate_on_the_newest_unbound_pod_holds_the_claim_back(self, pods: list[Any], gated: bool) -> None:
        hold = claim(deviceclaim(), *pods).hold
        assert (hold is not None) is gated
        if hold is not None:
            assert hold.code == "PodGated"
            assert self.FOREIGN in hold.message

    def test_a_claim_keeps_what_it_has_while_its_pod_is_gated(self) -> None:
        made = claim(holding("gpu-1"), pod(gates=[self.FOREIGN]))
        assert made.hold is not None
        assert len(made.placed) == 1


class TestHolds:
    DEVICE = DeviceID(GPU, "n1", "gpu-0")

    def hold(self, *objects: Any) -> tuple[HoldKind, str] | None:
        found = snapshot(*objects).holds.get(self.DEVICE)
        return (found.kind, found.holder) if found is not None else None

    def test_a_foreign_allocation(self) -> None:
        theirs = resourceclaim("theirs", owner="", devices=[self.DEVICE])
        assert self.hold(theirs) == (HoldKind.FOREIGN, "ResourceClaim team/theirs")

    def test_a_claim_without_an_allocation_holds_nothing(self) -> None:
        assert self.hold(resourceclaim("theirs", owner="")) is None

    def test_admin_access_excludes_nobody(self) -> None:
        theirs = resourceclaim("theirs", owner="", devices=[self.DEVICE])
        theirs["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
        assert self.hold(theirs) is None

    def test_the_delivery_of_what_a_claim_holds_is_that_claims(self) -> None:
        assert self.hold(holding("gpu-0"), resourceclaim(devices=[self.DEVICE])) is None

    def test_what_a_delivery_has_beyond_the_status_is_on_its_way_back(self) -> None:
        found = self.hold(holding("gpu-1"), resourceclaim(devices=[self.DEVICE]))
        assert found is not None
        assert found[0] is HoldKind.RELEASING

    @pytest.mark.parametrize("owner", ["somebody-gone", "claim-team-other"])
    def test_a_delivery_of_no_known_claim_is_on_its_way_back_whatever_its_name(self, owner: str) -> None:
        found = self.hold(holding("gpu-0"), resourceclaim(owner=owner, devices=[self.DEVICE]))
        assert found is not None
        assert found[0] is HoldKind.RELEASING

    def test_a_foreign_allocation_counts_beside_our_own(self) -> None:
        theirs = resourceclaim("theirs", owner="", devices=[self.DEVICE])
        found = self.hold(holding("gpu-0"), theirs, resourceclaim(devices=[self.DEVICE]))
        assert found is not None
        assert found[0] is HoldKind.FOREIGN


class TestIdentity:
    def test_what_did_not_change_stays_the_same_object(self) -> None:
        inventories, snapshots = InventoryBuilder(), SnapshotBuilder()
        objects = [*FIXED, holding("gpu-0"), deviceclaim("b")]
        first_view = view_of(*objects)
        first = snapshots.build(first_view, inventories.build(first_view))
        changed = copy.deepcopy(objects[-1])
        changed["spec"]["priority"] = 5
        second_view = view_of(*objects[:-1], changed, before=first_view)
        second = snapshots.build(second_view, inventories.build(second_view))
        assert second.claims[0] is first.claims[0]
        assert second.claims[1] is not first.claims[1]
        assert second.inventory["n1"] is first.inventory["n1"]
        third = snapshots.build(second_view, inventories.build(second_view))
        assert third.claims is second.claims
        assert third.holds is second.holds

    def test_a_claim_translated_again_without_a_difference_stays_the_same_object(self) -> None:
        inventories, snapshots = InventoryBuilder(), SnapshotBuilder()
        views = [view_of(*FIXED, holding("gpu-0")) for _ in range(2)]
        first, second = (snapshots.build(view, inventories.build(view)) for view in views)
        assert second.claims[0] is first.claims[0]
