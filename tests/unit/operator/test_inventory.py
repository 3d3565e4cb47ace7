"""The inventory: which devices there are, whose they are, and whether they can be given out."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support import hardware
from tests.support.objects import allocation, deviceclaim, devicepool, node, replica, resourceslice, taintrule
from tests.support.views import view_of

from adjoin.holdings import read_placed
from adjoin.inventory import Inventory, InventoryBuilder, matching
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import DeviceID
from adjoin_allocator.selectors import match_all
from adjoin_allocator.terms import Standing

GPU = "gpu.nvidia.com"
NO_GUARD = {"guard": "None"}
GPUS = {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": GPU}}}


def build(*objects: Any, cluster: bool = True, guard_served: bool = True) -> Inventory:
    return InventoryBuilder(cluster=cluster).build(view_of(*objects, guard_served=guard_served))


def names(inventory: Inventory, where: str = "n1") -> list[str]:
    return [device.id.device for device in inventory.devices.get(where, ())]


def standings(inventory: Inventory, where: str = "n1") -> dict[str, Standing]:
    return {device.id.device: device.standing for device in inventory.devices.get(where, ())}


def conditions(inventory: Inventory, pool: str = "training") -> dict[str, str]:
    return {finding.type.value: finding.message for finding in inventory.reports[pool].findings}


def gpus(where: str = "n1", count: int = 2, generation: int = 1, of: int = 1, number: int = 0, **fields: Any) -> Any:
    made = resourceslice(where, GPU, count, generation=generation, **fields)
    made["metadata"] |= {"name": f"{where}-{generation}-{number}", "uid": f"slice-{where}-{generation}-{number}"}
    made["spec"]["pool"]["resourceSliceCount"] = of
    return made


def test_devices_stand_in_natural_order_with_what_their_driver_says() -> None:
    inventory = build(devicepool(delivery=NO_GUARD), node(), resourceslice("n1", GPU, 11))
    assert names(inventory) == [f"gpu-{i}" for i in range(11)]
    device = inventory.devices["n1"][10]
    assert (device.device_pool, device.kind, device.hardware_id) == ("training", "gpu", "GPU-n1-10")
    assert device.id == DeviceID(GPU, "n1", "gpu-10")
    assert inventory.nodes["n1"].name == "n1"


def test_the_order_of_the_input_does_not_matter() -> None:
    objects = [devicepool(delivery=NO_GUARD), *hardware.p4d("a"), *hardware.two_roots("b")]
    one, other = build(*objects), build(*reversed(objects))
    assert [[d.id for d in one.devices[n]] for n in ("a", "b")] == [
        [d.id for d in other.devices[n]] for n in ("a", "b")
    ]


class TestGenerations:
    def test_only_the_newest_generation_counts(self) -> None:
        inventory = build(
            devicepool(delivery=NO_GUARD), node(), gpus(count=4, generation=1), gpus(count=2, generation=2)
        )
        assert standings(inventory) == {"gpu-0": Standing.OFFERED, "gpu-1": Standing.OFFERED}

    def test_a_missing_generation_is_0(self) -> None:
        old = gpus(count=4)
        del old["spec"]["pool"]["generation"]
        inventory = build(devicepool(delivery=NO_GUARD), node(), old, gpus(count=2, generation=1))
        assert names(inventory) == ["gpu-0", "gpu-1"]
        assert names(build(devicepool(delivery=NO_GUARD), node(), old)) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]

    def test_an_incomplete_generation_offers_nothing_and_says_how_much_was_seen(self) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), node(), gpus(count=2, generation=3, of=2))
        assert set(standings(inventory).values()) == {Standing.WITHHELD}
        assert inventory.pools["training"].withheld == ("gpu.nvidia.com/n1: 1 of 2 slices",)
        assert "1 of 2 slices" in conditions(inventory)["Ready"]

    def test_what_is_held_is_no_victim_of_an_incomplete_generation(self) -> None:
        claim = deviceclaim(status=allocation(replica(devices=[("gpu", GPU, "n1", "gpu-3")])))
        inventory = build(
            devicepool(delivery=NO_GUARD), node(), claim, gpus(count=4, generation=1), gpus(count=2, generation=2, of=2)
        )
        held = inventory.device("n1", DeviceID(GPU, "n1", "gpu-3"))
        assert held is not None
        assert held.standing is Standing.WITHHELD
        assert held.attributes[f"{GPU}/uuid"] == "GPU-n1-3"

    def test_a_name_that_is_published_twice_makes_the_pool_invalid(self) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), node(), gpus(count=2, of=2), gpus(count=1, of=2, number=1))
        assert set(standings(inventory).values()) == {Standing.WITHHELD}
        assert inventory.pools["training"].withheld == ("gpu.nvidia.com/n1: device gpu-0 is published twice",)

    def test_a_pool_of_another_node_is_not_touched(self) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), node(), node("n2"), gpus(of=2), gpus("n2"))
        assert set(standings(inventory, "n2").values()) == {Standing.OFFERED}

    def test_an_incomplete_pool_on_nodes_of_others_is_not_reported(self) -> None:
        pool = devicepool(delivery=NO_GUARD, node_selector={"matchLabels": {"pool": "a"}})
        inventory = build(pool, node(labels={"pool": "a"}), node("n2"), gpus(), gpus("n2", of=2))
        assert inventory.pools["training"].withheld == ()


class TestNodes:
    @pytest.mark.parametrize(
        ("selector", "chosen"),
        [
            pytest.param(None, True, id="absent"),
            pytest.param({}, True, id="empty"),
            pytest.param({"matchLabels": {"zone": "a"}}, True, id="label"),
            pytest.param({"matchLabels": {"zone": "b"}}, False, id="other value"),
            pytest.param(
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "a"]}]}, True, id="In"
            ),
            pytest.param(
                {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}, False, id="In, label absent"
            ),
            pytest.param(
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}, False, id="NotIn"
            ),
            pytest.param(
                {"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["a"]}]},
                True,
                id="NotIn, label absent",
            ),
            pytest.param({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, True, id="Exists"),
            pytest.param({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, False, id="DoesNotExist"),
            pytest.param(
                {"matchLabels": {"zone": "a"}, "matchExpressions": [{"key": "rack", "operator": "Exists"}]},
                False,
                id="both must hold",
            ),
        ],
    )
    def test_node_selector(self, selector: Mapping[str, Any] | None, chosen: bool) -> None:
        pool = devicepool(delivery=NO_GUARD, node_selector=dict(selector) if selector is not None else None)
        inventory = build(pool, node(labels={"zone": "a"}), gpus())
        assert names(inventory) == (["gpu-0", "gpu-1"] if chosen else [])

    def test_devices_of_a_node_without_object_do_not_exist_in_a_cluster_and_are_made_up_for_files(self) -> None:
        objects = (devicepool(delivery=NO_GUARD), gpus())
        assert not build(*objects).nodes["n1"].exists
        made_up = build(*objects, cluster=False).nodes["n1"]
        assert (made_up.exists, made_up.ready) == (True, True)

    def test_devices_that_are_not_local_to_a_node_are_counted_and_not_offered(self) -> None:
        remote = gpus(count=3)
        del remote["spec"]["nodeName"]
        remote["spec"]["allNodes"] = True
        inventory = build(devicepool(delivery=NO_GUARD), node(), remote)
        assert inventory.devices == {}
        assert "3 devices are not local to one node" in conditions(inventory)["Ready"]

    def test_a_slice_may_name_the_node_of_each_device(self) -> None:
        shared = gpus(count=2)
        del shared["spec"]["nodeName"]
        shared["spec"]["perDeviceNodeSelection"] = True
        for device, where in zip(shared["spec"]["devices"], ("n1", "n2"), strict=True):
            device["nodeName"] = where
        inventory = build(devicepool(delivery=NO_GUARD), node(), node("n2"), shared)
        assert (names(inventory, "n1"), names(inventory, "n2")) == (["gpu-0"], ["gpu-1"])


class TestOwnership:
    def test_the_older_pool_keeps_a_device_and_the_other_is_told_which(self) -> None:
        young = devicepool("abc", delivery=NO_GUARD, creationTimestamp="2026-11-30T08:00:01Z")
        inventory = build(young, devicepool(delivery=NO_GUARD), node(), gpus())
        assert {device.device_pool for device in inventory.devices["n1"]} == {"training"}
        assert conditions(inventory, "abc")["Overlap"] == (
            "2 devices are of pool training: gpu.nvidia.com/n1/gpu-0, gpu.nvidia.com/n1/gpu-1"
        )
        assert "Overlap" not in conditions(inventory)

    def test_of_two_pools_of_one_age_the_name_decides_and_one_without_an_age_is_the_youngest(self) -> None:
        inventory = build(devicepool("b", delivery=NO_GUARD), devicepool("a", delivery=NO_GUARD), node(), gpus())
        assert {device.device_pool for device in inventory.devices["n1"]} == {"a"}
        ageless = devicepool("a", delivery=NO_GUARD)
        del ageless["metadata"]["creationTimestamp"]
        inventory = build(devicepool("b", delivery=NO_GUARD), ageless, node(), gpus())
        assert {device.device_pool for device in inventory.devices["n1"]} == {"b"}

    def test_the_first_name_of_a_pool_takes_a_device(self) -> None:
        big = copy.deepcopy(GPUS) | {"name": "big"}
        big["source"]["resourceSlices"]["selectors"] = [{"cel": f"device.attributes['{GPU}'].uuid.endsWith('0')"}]
        inventory = build(devicepool(devices=[big, GPUS], delivery=NO_GUARD), node(), gpus())
        assert [device.kind for device in inventory.devices["n1"]] == ["big", "gpu"]

    def test_a_message_names_eight_devices_and_counts_the_rest(self) -> None:
        young = devicepool("young", delivery=NO_GUARD, creationTimestamp="2026-11-30T08:00:01Z")
        inventory = build(young, devicepool(delivery=NO_GUARD), node(), gpus(count=11))
        assert conditions(inventory, "young")["Overlap"].endswith("gpu.nvidia.com/n1/gpu-7 and 3 more")

    def test_the_first_class_that_matches_ranks_a_device(self) -> None:
        ranked = copy.deepcopy(GPUS) | {
            "classes": [
                {
                    "name": "first",
                    "selectors": [{"cel": f"device.attributes['{GPU}'].uuid.endsWith('1')"}],
                    "performance": 7,
                    "priority": 3,
                },
                {"name": "rest", "performance": 5},
            ]
        }
        inventory = build(devicepool(devices=[ranked], delivery=NO_GUARD), node(), gpus())
        assert [(d.performance, d.priority) for d in inventory.devices["n1"]] == [(5, 0), (7, 3)]

    def test_a_pool_that_is_being_deleted_offers_nothing_new(self) -> None:
        pool = devicepool(delivery=NO_GUARD, deletionTimestamp="2026-11-30T09:00:00Z")
        inventory = build(pool, node(), gpus())
        assert inventory.pools["training"].unavailable == "the pool is being deleted"
        assert len(inventory.devices["n1"]) == 2


TAINT = {"key": "gpu.nvidia.com/xid", "value": "31", "effect": "NoSchedule"}


class TestTaints:
    @pytest.mark.parametrize(
        ("taint", "detail"),
        [
            pytest.param(TAINT, "taint gpu.nvidia.com/xid=31", id="NoSchedule"),
            pytest.param({"key": "gone", "effect": "NoExecute"}, "taint gone", id="NoExecute without a value"),
            pytest.param({"key": "note", "effect": "None"}, "", id="a taint without effect"),
            pytest.param({"key": "adjoin.dev/guard", "effect": "NoSchedule"}, "", id="our own key"),
        ],
    )
    def test_taints_of_slices(self, taint: dict[str, str], detail: str) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), node(), gpus(taints={"gpu-1": [taint]}))
        sound, tainted = inventory.devices["n1"]
        assert sound.standing is Standing.OFFERED
        assert tainted.standing is (Standing.UNHEALTHY if detail else Standing.OFFERED)
        assert tainted.standing_detail == detail

    @pytest.mark.parametrize(
        ("selector", "tainted"),
        [
            pytest.param({"driver": GPU}, ["gpu-0", "gpu-1"], id="a driver"),
            pytest.param({"driver": GPU, "pool": "n1", "device": "gpu-1"}, ["gpu-1"], id="a device"),
            pytest.param({"device": "gpu-0"}, ["gpu-0"], id="a device name in any pool"),
            pytest.param({"pool": "n2"}, [], id="another pool"),
            pytest.param({"driver": "dra.net"}, [], id="another driver"),
            pytest.param({}, ["gpu-0", "gpu-1"], id="an empty selector selects everything"),
            pytest.param(None, [], id="no selector selects nothing"),
        ],
    )
    def test_taints_of_rules(self, selector: dict[str, str] | None, tainted: list[str]) -> None:
        rule = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "broken", "uid": "broken"},
            "spec": {"taint": TAINT} | ({} if selector is None else {"deviceSelector": selector}),
        }
        inventory = build(devicepool(delivery=NO_GUARD), node(), gpus(), rule)
        assert [name for name, standing in standings(inventory).items() if standing is Standing.UNHEALTHY] == tainted


class TestGuard:
    def test_a_device_waits_for_its_guard(self) -> None:
        assert set(standings(build(devicepool(), node(), gpus())).values()) == {Standing.UNGUARDED}
        assert set(standings(build(devicepool(), node(), gpus(), taintrule())).values()) == {Standing.OFFERED}

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"labels": {"adjoin.dev/guards-pool": "other"}}, id="the guard of another pool"),
            pytest.param({"labels": {}}, id="a rule of somebody else"),
        ],
    )
    def test_only_its_own_guard_counts(self, change: dict[str, Any]) -> None:
        rule = taintrule()
        rule["metadata"] |= change
        assert set(standings(build(devicepool(), node(), gpus(), rule)).values()) == {Standing.UNGUARDED}

    def test_a_guard_may_cover_some_devices_only(self) -> None:
        rule = taintrule()
        rule["spec"]["deviceSelector"] |= {"pool": "n1", "device": "gpu-1"}
        assert standings(build(devicepool(), node(), gpus(), rule)) == {
            "gpu-0": Standing.UNGUARDED,
            "gpu-1": Standing.OFFERED,
        }

    def test_files_need_no_guard(self) -> None:
        inventory = build(devicepool(), node(), gpus(), cluster=False, guard_served=False)
        assert set(standings(inventory).values()) == {Standing.OFFERED}
        assert inventory.pools["training"].unavailable == ""

    def test_a_cluster_that_cannot_guard_places_nothing(self) -> None:
        inventory = build(devicepool(), node(), gpus(), guard_served=False)
        assert "delivery.guard: None" in inventory.pools["training"].unavailable
        assert "GuardUnavailable" in conditions(inventory)
        without = build(devicepool(delivery=NO_GUARD), node(), gpus(), guard_served=False)
        assert without.pools["training"].unavailable == ""


class TestHeld:
    """Devices that claims hold stay in the accounts, whatever the inventory says."""

    HELD = deviceclaim(
        requests={"gpu": 2},
        status=allocation(
            replica(devices=[("gpu", GPU, "n1", "gpu-0"), ("gpu", GPU, "n1", "gpu-1")]),
        ),
    )

    def held(self, *devices: tuple[str, str]) -> dict[str, Any]:
        """A claim that holds devices by name and hardware id."""
        entry = replica(devices=[("gpu", GPU, "n1", name) for name, _ in devices])
        for device, (_, hardware_id) in zip(entry["devices"], devices, strict=True):
            device["id"] = hardware_id
        return deviceclaim(status=allocation(entry))

    def test_what_is_held_and_not_published_is_missing_and_stays(self) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), node(), self.HELD, gpus(count=1))
        assert standings(inventory) == {"gpu-0": Standing.OFFERED, "gpu-1": Standing.MISSING}
        missing = inventory.devices["n1"][1]
        assert (missing.device_pool, missing.kind, missing.node) == ("training", "gpu", "n1")

    def test_what_nobody_holds_is_dropped(self) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), node(), gpus(count=1))
        assert names(inventory) == ["gpu-0"]

    def test_it_is_back_when_it_is_published_again(self) -> None:
        builder = InventoryBuilder()
        fixed = (devicepool(delivery=NO_GUARD), node(), self.HELD)
        assert standings(builder.build(view_of(*fixed))) == {"gpu-0": Standing.MISSING, "gpu-1": Standing.MISSING}
        assert set(standings(builder.build(view_of(*fixed, gpus()))).values()) == {Standing.OFFERED}

    def test_a_node_that_is_gone_keeps_what_is_held_on_it(self) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), self.HELD)
        assert set(standings(inventory).values()) == {Standing.MISSING}
        assert not inventory.nodes["n1"].exists

    def test_hardware_is_recognised_under_another_name(self) -> None:
        claim = self.held(("gpu-1", "GPU-n1-1"))
        renamed = resourceslice("n1", GPU, {"gpu-0": {"uuid": {"string": "GPU-n1-1"}}})
        inventory = build(devicepool(delivery=NO_GUARD), node(), claim, renamed)
        assert names(inventory) == ["gpu-0"]
        placed = view_placed(claim)
        assert inventory.current("n1", placed) == DeviceID(GPU, "n1", "gpu-0")

    def test_other_hardware_of_the_same_name_is_not_held(self) -> None:
        claim = self.held(("gpu-0", "GPU-old"))
        inventory = build(devicepool(delivery=NO_GUARD), node(), claim, gpus(count=1))
        assert [device.standing for device in inventory.devices["n1"]] == [Standing.OFFERED, Standing.MISSING]
        assert inventory.devices["n1"][0].hardware_id == "GPU-n1-0"
        assert inventory.devices["n1"][1].hardware_id == "GPU-old"
        assert inventory.current("n1", view_placed(claim)) == inventory.devices["n1"][1].id

    @pytest.mark.parametrize(
        ("recorded", "published", "same"),
        [
            pytest.param("GPU-A", {"uuid": "GPU-A"}, True, id="the same uuid"),
            pytest.param("GPU-A", {"uuid": "GPU-B"}, False, id="another uuid"),
            pytest.param("0000:10:1c.0", {"pciBusID": "0000:10:1c.0"}, True, id="the same address"),
            pytest.param("00000000:10:1C.0", {"pciBusID": "0000:10:1c.0"}, True, id="one address in two spellings"),
            pytest.param("0000:10:1c.0", {"pciBusID": "0000:20:1c.0"}, False, id="another address"),
            pytest.param(
                "0000:10:1c.0", {"pciBusID": "0000:10:1c.0", "uuid": "GPU-B"}, True, id="a driver that learnt uuids"
            ),
            pytest.param(
                "GPU-A", {"pciBusID": "0000:10:1c.0"}, True, id="a driver that forgot uuids: the name decides"
            ),
            pytest.param("", {"uuid": "GPU-B"}, True, id="nothing recorded: the name decides"),
            pytest.param("n1/gpu-0", {"uuid": "GPU-B"}, True, id="only a name recorded: the name decides"),
        ],
    )
    def test_which_hardware_it_is(self, recorded: str, published: dict[str, str], same: bool) -> None:
        claim = self.held(("gpu-0", recorded))
        attributes = {
            (f"resource.kubernetes.io/{key}" if key == "pciBusID" else key): {"string": value}
            for key, value in published.items()
        }
        inventory = build(devicepool(delivery=NO_GUARD), node(), claim, resourceslice("n1", GPU, {"gpu-0": attributes}))
        assert (Standing.MISSING not in standings(inventory).values()) is same

    def test_parts_of_one_card_are_not_told_apart_by_its_address(self) -> None:
        attributes = {"resource.kubernetes.io/pciBusID": {"string": "0000:10:1c.0"}}
        slices = resourceslice("n1", GPU, {"mig-0": attributes, "mig-1": attributes})
        inventory = build(devicepool(delivery=NO_GUARD), node(), slices)
        assert [device.hardware_id for device in inventory.devices["n1"]] == ["n1/mig-0", "n1/mig-1"]

    def test_a_held_device_that_its_pool_does_not_select_any_more_is_not_missing(self) -> None:
        pool = devicepool(delivery=NO_GUARD, node_selector={"matchLabels": {"zone": "a"}})
        inventory = build(pool, node(labels={"zone": "b"}), self.held(("gpu-1", "GPU-n1-1")), gpus())
        assert standings(inventory) == {"gpu-1": Standing.WITHHELD}

    def test_a_held_device_of_another_pool_today_is_that_pools(self) -> None:
        other = devicepool("other", delivery=NO_GUARD, creationTimestamp="2026-11-30T07:00:00Z")
        inventory = build(devicepool(delivery=NO_GUARD), other, node(), self.held(("gpu-1", "GPU-n1-1")), gpus())
        assert {device.device_pool for device in inventory.devices["n1"]} == {"other"}
        assert len(inventory.devices["n1"]) == 2


def view_placed(claim: dict[str, Any]) -> Any:
    return read_placed(claim["status"])[0].devices[0]


COUNTED = {"name": "gpu", "type": "GPU", "source": {"nodeResource": {"name": "nvidia.com/gpu"}}}


class TestOtherSources:
    def static(self, *nodes: str) -> dict[str, Any]:
        devices = [
            {
                "name": "g0",
                "attributes": {"uuid": "U0", "numaNode": 0, "dra.net/rail": 3},
                "capacity": {"memory": "80Gi"},
            },
            {"name": "g1", "attributes": {"pciBusID": "0000:10:1c.0", "numaNode": [0, 1]}},
            {"name": "g2"},
        ]
        listed = [{"name": each, "devices": devices} for each in nodes]
        return {"name": "gpu", "type": "GPU", "source": {"static": {"nodes": listed}}}

    @pytest.mark.parametrize(
        ("selector", "tainted"),
        [
            pytest.param({"driver": "adjoin.dev"}, ["g0", "g1", "g2"], id="our driver"),
            pytest.param({"driver": "adjoin.dev", "pool": "n1", "device": "g1"}, ["g1"], id="a device"),
            pytest.param({"device": "g2"}, ["g2"], id="a device name in any pool"),
            pytest.param({"pool": "n2"}, [], id="another node"),
            pytest.param({"driver": GPU}, [], id="another driver"),
        ],
    )
    def test_taint_rules_mean_static_devices_too(self, selector: dict[str, str], tainted: list[str]) -> None:
        rule = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "broken", "uid": "broken"},
            "spec": {"taint": TAINT, "deviceSelector": selector},
        }
        pool, builder = devicepool(devices=[self.static("n1")]), InventoryBuilder()
        before = view_of(pool, node())
        builder.build(before)
        after = builder.build(view_of(pool, node(), rule, before=before))
        for inventory in (after, build(pool, node(), rule)):
            found = standings(inventory)
            assert [name for name in found if found[name] is Standing.UNHEALTHY] == tainted

    def counted_node(self, count: int) -> dict[str, Any]:
        made = node()
        made["status"]["allocatable"] = {"nvidia.com/gpu": str(count), "cpu": "8"}
        return made

    def test_static_devices(self) -> None:
        inventory = build(devicepool(devices=[self.static("n1")]), node())
        first, second, third = inventory.devices["n1"]
        assert first.id == DeviceID("adjoin.dev", "n1", "g0")
        assert [device.hardware_id for device in (first, second, third)] == ["U0", "0000:10:1c.0", "n1/g2"]
        assert first.attributes["adjoin.dev/numaNode"] == 0
        assert first.attributes["dra.net/rail"] == 3
        assert second.attributes["adjoin.dev/numaNode"] == (0, 1)
        assert "adjoin.dev/memory" in first.capacity
        assert {device.standing for device in inventory.devices["n1"]} == {Standing.OFFERED}

    @pytest.mark.parametrize("young_first", [False, True], ids=["older pool first", "younger pool first"])
    def test_one_uuid_is_one_device_of_the_older_pool(self, young_first: bool) -> None:
        """Admission looks at one pool alone; two of them may list the same hardware."""
        pools = [
            devicepool(name, devices=[self.listing(device)], creationTimestamp=created)
            for name, device, created in (
                ("old", "g0", "2026-01-01T00:00:00Z"),
                ("young", "h0", "2026-01-02T00:00:00Z"),
            )
        ]
        inventory = build(*(reversed(pools) if young_first else pools), node())
        assert [(each.device_pool, each.id.device) for each in inventory.devices["n1"]] == [("old", "g0")]
        assert "adjoin.dev/n1/h0" in conditions(inventory, "young")["Overlap"]
        assert "Overlap" not in conditions(inventory, "old")

    def test_a_listed_device_that_a_driver_publishes_too_is_the_drivers(self) -> None:
        listed = self.listing("h0")
        listed["name"] = "listed"
        gpu = {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": GPU}}}
        published = resourceslice("n1", GPU, {"gpu-0": {"uuid": {"string": "U0"}}})
        inventory = build(devicepool(devices=[gpu, listed], delivery=NO_GUARD), node(), published)
        assert [each.id.device for each in inventory.devices["n1"]] == ["gpu-0"]
        assert "adjoin.dev/n1/h0" in conditions(inventory)["Overlap"]

    def listing(self, device: str) -> dict[str, Any]:
        listed = [{"name": "n1", "devices": [{"name": device, "attributes": {"uuid": "U0"}}]}]
        return {"name": "gpu", "type": "GPU", "source": {"static": {"nodes": listed}}}

    def test_static_devices_of_a_node_that_does_not_exist(self) -> None:
        pool = devicepool(devices=[self.static("n1", "n2")], node_selector={"matchLabels": {"a": "b"}})
        assert set(standings(build(pool)).values()) == {Standing.MISSING}
        assert set(standings(build(pool, cluster=False)).values()) == {Standing.OFFERED}
        assert build(pool, node()).devices.get("n1") is None

    def test_counted_devices(self) -> None:
        inventory = build(devicepool(devices=[COUNTED]), self.counted_node(3))
        assert [device.id for device in inventory.devices["n1"]] == [
            DeviceID("adjoin.dev", "n1", f"gpu-{i}") for i in range(3)
        ]
        assert inventory.devices["n1"][0].hardware_id == "n1/gpu-0"

    @pytest.mark.parametrize(
        ("count", "known"), [pytest.param(2, True, id="as many"), pytest.param(1, False, id="fewer")]
    )
    def test_counted_devices_are_identified_row_by_row_when_all_are_there(self, count: int, known: bool) -> None:
        topology = {"matrices": [{"configMapRef": {"name": "m", "key": "topo"}}]}
        pool = devicepool(devices=[COUNTED], spec={"topology": topology})
        matrix = hardware.config_map("m", {"topo": "", "topo.gpus": "GPU-A\n0000:10:1c.0\n"})
        inventory = build(pool, self.counted_node(count), matrix)
        ids = [device.hardware_id for device in inventory.devices["n1"]]
        assert ids == (["GPU-A", "0000:10:1c.0"] if known else ["n1/gpu-0"])

    def test_a_count_that_is_no_count_is_cut_and_told(self) -> None:
        inventory = build(devicepool(devices=[COUNTED]), self.counted_node(1_000_000))
        assert len(inventory.devices["n1"]) == 1024
        assert conditions(inventory)["Ready"] == "998976 devices are counted beyond 1024 a node and not offered"

    def test_two_pools_that_count_one_resource_count_the_same_devices(self) -> None:
        other = devicepool("young", devices=[COUNTED | {"name": "card"}], creationTimestamp="2026-11-30T09:00:00Z")
        inventory = build(devicepool(devices=[COUNTED]), other, self.counted_node(2))
        assert {device.device_pool for device in inventory.devices["n1"]} == {"training"}
        assert "Overlap" in conditions(inventory, "young")

    def test_the_first_matrix_that_matches_counts(self) -> None:
        topology = {
            "matrices": [
                {"nodeSelector": {"matchLabels": {"shape": "x"}}, "configMapRef": {"name": "m", "key": "x"}},
                {"configMapRef": {"name": "m", "key": "rest"}},
            ]
        }
        pool = devicepool(delivery=NO_GUARD, spec={"topology": topology})
        matrix = hardware.config_map("m", {"x": "of x"})
        inventory = build(pool, node(labels={"shape": "x"}), node("n2"), gpus(), gpus("n2"), matrix)
        texts = inventory.pools["training"].matrices
        assert (texts["n1"].source, texts["n1"].text) == ("m/x", "of x")
        assert (texts["n2"].source, texts["n2"].text) == ("m/rest", "")


CALLED = f"device.attributes['{GPU}'].called"
OLD = "2026-11-30T06:00:00Z"


def selecting(name: str, cel: str) -> dict[str, Any]:
    """A name for GPUs that this expression matches, which may look at what they are called."""
    return {"name": name, "type": "GPU", "source": {"resourceSlices": {"driver": GPU, "selectors": [{"cel": cel}]}}}


class TestParts:
    def sliced(self) -> dict[str, Any]:
        names = ("gpu-0", "gpu-0-mig-0", "gpu-0-mig-1", "gpu-1", "gpu-2")
        slices = resourceslice("n1", GPU, {name: {"called": {"string": name}} for name in names})
        for device, memory in zip(slices["spec"]["devices"], ("40Gi", "5Gi", "10Gi", "40Gi", None), strict=True):
            if memory is not None:
                counters = {"counterSet": device["name"][:5], "counters": {"memory": {"value": memory}}}
                device["consumesCounters"] = [counters]
        return slices

    def test_parts_of_a_card_are_not_offered_beside_the_whole(self) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), node(), self.sliced())
        assert names(inventory) == ["gpu-0", "gpu-1", "gpu-2"]
        assert conditions(inventory)["Ready"] == (
            "2 parts are of a larger device of the same name and not offered: what selects parts alone has them"
        )

    def test_a_name_that_selects_parts_alone_has_them(self) -> None:
        named = [selecting("whole", f"!{CALLED}.contains('mig')"), selecting("part", f"{CALLED}.contains('mig')")]
        inventory = build(devicepool(devices=named, delivery=NO_GUARD), node(), self.sliced())
        kinds = {device.id.device: device.kind for device in inventory.devices["n1"]}
        assert kinds == {
            "gpu-0": "whole",
            "gpu-0-mig-0": "part",
            "gpu-0-mig-1": "part",
            "gpu-1": "whole",
            "gpu-2": "whole",
        }
        by_name = {device.id.device: device for device in inventory.devices["n1"]}
        assert by_name["gpu-0-mig-1"].consumes["gpu-0"]["memory"] == Quantity.parse("10Gi")

    def test_a_card_is_of_one_pool_with_all_its_parts(self) -> None:
        old = devicepool(
            "old", devices=[selecting("part", f"{CALLED} == 'gpu-0-mig-0'")], delivery=NO_GUARD, creationTimestamp=OLD
        )
        inventory = build(old, devicepool(delivery=NO_GUARD), node(), self.sliced())
        pools = {device.id.device: device.device_pool for device in inventory.devices["n1"]}
        assert pools == {"gpu-0-mig-0": "old", "gpu-1": "training", "gpu-2": "training"}
        assert "gpu-0" in conditions(inventory)["Overlap"]

    @pytest.mark.parametrize(
        "apart", [pytest.param(False, id="one slice"), pytest.param(True, id="slices of their own")]
    )
    def test_counters_stand_in_the_slice_or_in_another(self, apart: bool) -> None:
        devices, counters = self.sliced(), [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
        slices = [devices]
        if apart:
            other = resourceslice("n1", GPU, {}, name="n1-counters", uid="counters")
            other["spec"]["sharedCounters"] = counters
            slices.append(other)
        else:
            devices["spec"]["sharedCounters"] = counters
        for each in slices:
            each["spec"]["pool"]["resourceSliceCount"] = len(slices)
        inventory = build(devicepool(delivery=NO_GUARD), node(), *slices)
        assert inventory.devices["n1"][0].counters["gpu-0"]["memory"] == Quantity.parse("80Gi")

    def test_what_a_part_in_no_pool_takes_is_outside(self) -> None:
        inventory = build(devicepool(delivery=NO_GUARD), node(), self.sliced())
        part, card = DeviceID(GPU, "n1", "gpu-0-mig-0"), DeviceID(GPU, "n1", "gpu-0")
        assert inventory.excluded_by(part) == (part,)
        taken = inventory.outside({part, card})
        assert taken["n1"][GPU, "n1"]["gpu-0"]["memory"].value == Quantity.parse("5Gi").value
        for alone in ("gpu-1", "gpu-2", "gpu-9"):
            assert inventory.excluded_by(DeviceID(GPU, "n1", alone)) == (DeviceID(GPU, "n1", alone),)


class TestDefaultPool:
    def test_the_oldest_annotated_pool_is_the_default(self) -> None:
        default = {"annotations": {"adjoin.dev/default-pool": "true"}}
        old = devicepool("z", creationTimestamp="2026-11-30T07:00:00Z", **default)
        not_one = devicepool(
            "a", annotations={"adjoin.dev/default-pool": "false"}, creationTimestamp="2026-01-01T00:00:00Z"
        )
        inventory = build(devicepool("b", **default), old, not_one)
        assert inventory.default_pool == "z"
        assert inventory.defaults == ("z", "b")
        assert build(not_one).default_pool == ""


def equal(one: Inventory, other: Inventory) -> bool:
    """Whether two inventories say the same."""

    def plain(inventory: Inventory) -> Any:
        fields = ("id", "node", "device_pool", "kind", "hardware_id", "standing", "standing_detail", "performance")
        devices = {
            where: [tuple(getattr(device, field) for field in fields) for device in devices]
            for where, devices in inventory.devices.items()
        }
        pools = {name: (pool.withheld, pool.unavailable, dict(pool.matrices)) for name, pool in inventory.pools.items()}
        return devices, pools, dict(inventory.nodes), inventory.reports, inventory.defaults

    return bool(plain(one) == plain(other))


class TestIncremental:
    def test_what_did_not_change_stays_the_same_object(self) -> None:
        builder = InventoryBuilder()
        fixed = (devicepool(), taintrule(), node(), node("n2"))
        first_slice = gpus()
        before = view_of(*fixed, first_slice, gpus("n2", 2))
        one = builder.build(before)
        after = view_of(*fixed, first_slice, gpus("n2", 3, generation=2), before=before)
        other = builder.build(after)
        assert other.devices["n1"] is one.devices["n1"]
        assert len(one.devices["n2"]) == 2
        assert len(other.devices["n2"]) == 3

    def test_one_changed_slice_costs_a_look_at_its_own_devices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_at: list[str] = []

        def count(selectors: Any, device: Any) -> Any:
            looked_at.append(device.name)
            return match_all(selectors, device)

        monkeypatch.setattr(matching, "match_all", count)
        chosen = copy.deepcopy(GPUS)
        chosen["source"]["resourceSlices"]["selectors"] = [{"cel": f"device.driver == '{GPU}'"}]
        fixed = [devicepool(devices=[chosen], delivery=NO_GUARD), *(node(f"n{i}") for i in range(20))]
        slices = [gpus(f"n{i}", 4) for i in range(20)]
        builder = InventoryBuilder()
        before = view_of(*fixed, *slices)
        builder.build(before)
        assert len(looked_at) == 80
        after = view_of(*fixed, *slices[1:], gpus("n0", 3, generation=2), before=before)
        builder.build(after)
        assert len(looked_at) == 83
        builder.build(after)
        assert len(looked_at) == 83

    def test_a_pool_that_only_got_a_new_status_changes_nothing(self) -> None:
        builder = InventoryBuilder()
        before = builder.build(view_of(devicepool(), taintrule(), node(), gpus()))
        after = builder.build(view_of(devicepool(status={"summary": "gpu 2/2"}), taintrule(), node(), gpus()))
        assert after.devices["n1"] is before.devices["n1"]
        assert after.pools["training"] is before.pools["training"]

    def test_any_sequence_of_changes_ends_where_a_fresh_builder_starts(self) -> None:
        draw = random.Random(7)
        claim = deviceclaim(status=allocation(replica(devices=[("gpu", GPU, "n1", "gpu-1")])))
        choices: list[list[Any]] = [
            [devicepool(delivery=NO_GUARD, generation=1)],
            [devicepool(generation=2)],
            [devicepool(generation=2), taintrule()],
            [devicepool(generation=2), devicepool("old", creationTimestamp="2026-01-01T00:00:00Z", delivery=NO_GUARD)],
            [devicepool(delivery=NO_GUARD, node_selector={"matchLabels": {"zone": "a"}}, generation=3)],
        ]
        nodes: list[list[Any]] = [
            [node()],
            [node(labels={"zone": "a"}), node("n2")],
            [],
            [node("n2", labels={"zone": "a"})],
        ]
        slices: list[list[Any]] = [
            [gpus()],
            [gpus(count=1)],
            [gpus(of=2), gpus("n2")],
            [],
            [gpus(generation=2), gpus("n2", taints={"gpu-0": [TAINT]})],
        ]
        claims: list[list[Any]] = [[], [claim]]
        builder = InventoryBuilder()
        view = None
        for _ in range(60):
            parts = [draw.choice(options) for options in (choices, nodes, slices, claims)]
            view = view_of(*(obj for part in parts for obj in part), guard_served=draw.random() < 0.8, before=view)
            assert equal(builder.build(view), InventoryBuilder().build(view))
