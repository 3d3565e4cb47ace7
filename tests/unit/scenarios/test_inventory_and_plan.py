"""Field reports on inventory, accounting and offline planning, each test named by the report's id."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.support import hardware
from tests.support.objects import allocation, deviceclaim, devicepool, node, replica, resourceclaim, resourceslice
from tests.support.planning import Ran, plan_objects, with_status
from tests.support.views import view_of

from adjoin.inventory import InventoryBuilder
from adjoin_allocator.model import DeviceID
from adjoin_allocator.terms import Standing

GPU, NIC = "gpu.nvidia.com", "dra.net"
ROOT = "resource.kubernetes.io/pcieRoot"
COUNTS = ("free", "allocated", "reserved", "releasing", "unhealthy", "missing")


def held(name: str, *devices: str, where: str = "n1", ids: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """A claim that holds GPUs."""
    entry = replica(node=where, devices=[("gpu", GPU, where, device) for device in devices], state="InUse")
    for device, hardware_id in zip(entry["devices"], ids, strict=False):
        device["id"] = hardware_id
    return deviceclaim(name, requests={"gpu": len(devices)}, status=allocation(entry, phase="InUse"), **fields)


def gpus(*names: str, where: str = "n1", **fields: Any) -> dict[str, Any]:
    """A slice with these GPUs; each uuid follows from the name."""
    return resourceslice(where, GPU, {name: {"uuid": {"string": f"UUID-{name}"}} for name in names}, **fields)


def conditions(ran: Ran, claim: str) -> dict[str, str]:
    return {each["type"]: each["message"] for each in ran.claims[claim]["conditions"]}


def assert_sums(ran: Ran) -> None:
    """capacity = free + allocated + reserved + releasing + unhealthy + missing, and none of them is negative."""
    for pool in ran.shown["pools"]:
        for counts in pool["devices"].values():
            assert all(counts[name] >= 0 for name in COUNTS)
            assert counts["capacity"] == sum(counts[name] for name in COUNTS)


def test_a7_a_part_and_its_whole_are_never_both_given_out() -> None:
    """A partition whose cost nobody records must not be handed out at all; one that is allocated keeps the whole."""
    slices = gpus("gpu-0", "gpu-0-mig-3g", "gpu-1")
    for device, memory in zip(slices["spec"]["devices"], ("40Gi", "20Gi", "40Gi"), strict=True):
        consumed = {"counterSet": f"set-{device['name'][:5]}", "counters": {"memory": {"value": memory}}}
        device["consumesCounters"] = [consumed]
    foreign = resourceclaim("theirs", owner="", devices=[(GPU, "n1", "gpu-0-mig-3g")])
    ran = plan_objects([devicepool(), slices, foreign, deviceclaim("c1"), deviceclaim("c2")])
    assert ran.devices("c1") == {"gpu": ["gpu-1"]}
    assert ran.claims["c2"]["phase"] == "Pending"
    assert ran.counts("training", "gpu")["capacity"] == 2
    assert "not offered" in ran.shown["pools"][0]["conditions"][0]["message"]


@pytest.mark.parametrize(
    ("published", "waits"),
    [
        pytest.param(("gpu-0", "gpu-0-mig-3g-0", "gpu-0-mig-3g-4"), True, id="published"),
        pytest.param(("gpu-0", "gpu-0-mig-3g-4"), True, id="published without it"),
        pytest.param(("gpu-0",), True, id="published as a whole card alone"),
        pytest.param(("gpu-0", "gpu-0-mig-3g-4", "gpu-1", "gpu-1-mig-3g-0"), False, id="beside another card"),
    ],
)
def test_a7_a_card_is_not_free_because_the_partition_that_somebody_has_is_not_published(
    published: tuple[str, ...], waits: bool
) -> None:
    """c1 is a ResourceClaim with a part of a card; the slices are published again without that part."""
    memory = {True: "80Gi", False: "40Gi"}
    slices = gpus(*published)
    for device in slices["spec"]["devices"]:
        amount = {"memory": {"value": memory["mig" not in device["name"]]}}
        device["consumesCounters"] = [{"counterSet": f"{device['name'][:5]}-counters", "counters": amount}]
    c1 = resourceclaim("c1", owner="", devices=[(GPU, "n1", "gpu-0-mig-3g-0")])
    ran = plan_objects([devicepool(), node(), slices, c1, deviceclaim("c2")])
    assert (ran.claims["c2"]["phase"] == "Pending") == waits
    if not waits:
        assert ran.devices("c2") == {"gpu": ["gpu-1"]}
    again = plan_objects([devicepool(), node(), slices, deviceclaim("c2")])
    assert again.devices("c2") == {"gpu": ["gpu-0"]}, "once c1 is gone the card is free"


def test_a7_a_card_that_died_in_foreign_hands_takes_no_other_down() -> None:
    """It is named like the cards that are there, so it was none of their parts."""
    slices = gpus("gpu-0", "gpu-0-mig-3g-0", "gpu-1")
    for device in slices["spec"]["devices"]:
        amount = {"memory": {"value": "40Gi" if "mig" in device["name"] else "80Gi"}}
        device["consumesCounters"] = [{"counterSet": device["name"][:5], "counters": amount}]
    theirs = resourceclaim("theirs", owner="", devices=[(GPU, "n1", "gpu-7")])
    ran = plan_objects([devicepool(), slices, theirs, deviceclaim("c1", requests={"gpu": 2})])
    assert ran.devices("c1") == {"gpu": ["gpu-0", "gpu-1"]}
    nameless = resourceclaim("theirs", owner="", devices=[(GPU, "n1", "part-of-one-of-them")])
    ran = plan_objects([devicepool(), slices, nameless, deviceclaim("c1")])
    assert ran.claims["c1"]["phase"] == "Pending", "whose part it is nobody knows"


def faces(*entries: tuple[str, str, str, str]) -> dict[str, Any]:
    """A driver without counters: name, type, uuid and uuid of the card that it is a part of."""
    attributes = {
        name: {"type": {"string": kind}, "uuid": {"string": own}}
        | ({"parentUUID": {"string": parent}} if parent else {})
        for name, kind, own, parent in entries
    }
    return resourceslice("n1", GPU, attributes)


CARD = ("gpu-0", "gpu", "GPU-0", "")
PARTS = (("gpu-0-mig-1g-0", "mig", "MIG-0", "GPU-0"), ("gpu-0-mig-1g-1", "mig", "MIG-1", "GPU-0"))
PASSED_THROUGH = ("gpu-vfio-0", "vfio", "GPU-0", "")


class TestA7WithoutCounters:
    """The driver publishes partitions beside their card and tells by uuids alone what belongs together."""

    @pytest.mark.parametrize("turned", [False, True])
    def test_a7_the_whole_is_given_out_and_its_parts_are_not(self, turned: bool) -> None:
        entries = [CARD, *PARTS, ("gpu-1-mig-1g-0", "mig", "MIG-9", "GPU-1")]
        slices = faces(*(reversed(entries) if turned else entries))
        ran = plan_objects([devicepool(), slices, *(deviceclaim(f"c{i}") for i in range(3))])
        assert [ran.devices(name) for name in ("c0", "c1")] == [{"gpu": ["gpu-0"]}, {"gpu": ["gpu-1-mig-1g-0"]}]
        assert ran.claims["c2"]["phase"] == "Pending"
        assert ran.counts("training", "gpu")["capacity"] == 2
        assert "2 parts" in ran.shown["pools"][0]["conditions"][0]["message"]

    def test_a7_parts_alone_are_devices(self) -> None:
        """A pool may select them, and leave a card out that the driver publishes beside them."""
        source = {
            "resourceSlices": {"driver": GPU, "selectors": [{"cel": f"device.attributes['{GPU}'].type == 'mig'"}]}
        }
        pool = devicepool(devices=[{"name": "gpu", "type": "GPU", "source": source}])
        ran = plan_objects([pool, faces(CARD, *PARTS), deviceclaim(requests={"gpu": 2})])
        assert ran.devices("job-a") == {"gpu": ["gpu-0-mig-1g-0", "gpu-0-mig-1g-1"]}

    @pytest.mark.parametrize(
        ("held", "free"),
        [
            pytest.param("gpu-0-mig-1g-0", ["gpu-1"], id="a part keeps the whole"),
            pytest.param("gpu-vfio-0", ["gpu-1"], id="another face keeps the card"),
            pytest.param("gpu-1", ["gpu-0"], id="another card keeps nothing"),
        ],
    )
    def test_a7_what_somebody_has_of_a_card_keeps_it_from_us(self, held: str, free: list[str]) -> None:
        slices = faces(CARD, *PARTS, PASSED_THROUGH, ("gpu-1", "gpu", "GPU-1", ""))
        theirs = resourceclaim("theirs", owner="", devices=[(GPU, "n1", held)])
        ran = plan_objects([devicepool(), slices, theirs, deviceclaim("c0"), deviceclaim("c1")])
        assert ran.devices("c0") == {"gpu": free}
        assert ran.claims["c1"]["phase"] == "Pending"

    def test_a7_a_card_has_two_faces_and_one_user(self) -> None:
        ran = plan_objects([devicepool(), faces(PASSED_THROUGH, CARD), deviceclaim("c0"), deviceclaim("c1")])
        assert ran.devices("c0") == {"gpu": ["gpu-0"]}
        assert ran.claims["c1"]["phase"] == "Pending"
        told = {each["type"]: each["message"] for each in ran.shown["pools"][0]["conditions"]}
        assert told["Overlap"] == "1 device is gpu already: gpu.nvidia.com/n1/gpu-vfio-0"


def test_a8_a_device_that_left_the_inventory_stays_in_the_accounts() -> None:
    c1, c2 = held("c1", "gpu-a"), deviceclaim("c2")
    gone = plan_objects([devicepool(), node(), gpus("gpu-b"), c1, deviceclaim("c0"), c2])
    assert "gpu-a" in conditions(gone, "c1")["DeviceMissing"]
    assert gone.claims["c1"]["phase"] == "InUse"
    assert gone.claims["c2"]["phase"] == "Pending"
    assert gone.counts("training", "gpu") == {
        "capacity": 2, "free": 0, "allocated": 1, "reserved": 0, "releasing": 0, "unhealthy": 0, "missing": 1,
    }  # fmt: skip
    back = plan_objects([devicepool(), node(), gpus("gpu-a", "gpu-b"), c1, deviceclaim("c0"), c2])
    assert "DeviceMissing" not in conditions(back, "c1")
    assert back.devices("c0") == {"gpu": ["gpu-b"]}
    assert back.claims["c2"]["phase"] == "Pending"


class TestA13:
    """One driver publishes its own key, the other the standard one."""

    def objects(self, spec: dict[str, Any]) -> list[Any]:
        def slices(driver: str, prefix: str, key: str) -> dict[str, Any]:
            devices = {f"{prefix}-{i}": {key: {"string": f"pci0000:{i}0"}} for i in range(8)}
            return resourceslice("n1", driver, devices)

        pool = devicepool(
            devices=[
                {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.vendor.com"}}},
                {"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": NIC}}},
            ],
            spec=spec,
        )
        line = {"requests": ["gpu", "nic"], "attribute": "pcieRoot", "policy": "Match"}
        claim = deviceclaim(requests={"gpu": 1, "nic": 1}, affinity=[line])
        return [pool, slices("gpu.vendor.com", "gpu", "gpu.vendor.com/pciRoot"), slices(NIC, "nic", ROOT), claim]

    def test_a13_a_missing_attribute_is_told_as_such_and_counted(self) -> None:
        ran = plan_objects(self.objects({"topology": {"attributes": {"pcieRoot": [ROOT]}}}))
        assert ran.codes("job-a")[0] == "AttributeMissing"
        assert "8 of 16" in ran.claims["job-a"]["reasons"][0]["message"]
        assert "InsufficientDevices" not in ran.codes("job-a")

    def test_a13_the_pool_maps_keys(self) -> None:
        attributes = {"pcieRoot": [ROOT, "gpu.vendor.com/pciRoot"]}
        assert plan_objects(self.objects({"topology": {"attributes": attributes}})).status == 0


def test_a16_capacity_is_what_is_in_the_machine() -> None:
    """A device plugin's configured constant is not looked at where the driver publishes the devices."""
    boaster = node()
    boaster["status"]["allocatable"] = {"rdma/hca": "8", "cpu": "8"}
    ran = plan_objects([devicepool(), boaster, resourceslice("n1", NIC, 1), deviceclaim(requests={"nic": 2})])
    assert ran.counts("training", "nic")["capacity"] == 1
    assert ran.codes("job-a") == ["InsufficientDevices"]


def test_a17_a_claim_holds_hardware_and_not_a_position() -> None:
    before = [devicepool(), node(), resourceslice("n1", GPU, {"gpu-0": uuid("A"), "gpu-1": uuid("B")})]
    c1 = held("c1", "gpu-1", ids=("B",))
    drained = [devicepool(), node(), resourceslice("n1", GPU, {"gpu-0": uuid("B")})]
    assert plan_objects([*before, c1, deviceclaim("c2")]).devices("c2") == {"gpu": ["gpu-0"]}
    ran = plan_objects([*drained, c1, deviceclaim("c2")])
    assert ran.claims["c2"]["phase"] == "Pending"
    assert ran.counts("training", "gpu") | {"capacity": 1, "allocated": 1, "free": 0} == ran.counts("training", "gpu")
    assert "DeviceMissing" not in conditions(ran, "c1")


def uuid(value: str) -> dict[str, Any]:
    return {"uuid": {"string": value}}


def test_a17_the_name_that_a_delivery_still_has_is_not_given_out_either() -> None:
    """While the ResourceClaim of c1 is allocated and says gpu-1, a second one on gpu-1 would be refused on the node."""
    slices = resourceslice("n1", GPU, {"gpu-0": uuid("B"), "gpu-1": uuid("C")})
    c1 = held("c1", "gpu-1", ids=("B",))
    delivery = resourceclaim(owner=c1["metadata"]["uid"], claim="c1", devices=[(GPU, "n1", "gpu-1")])
    objects = [devicepool(), node(), slices, c1, deviceclaim("c2")]
    assert plan_objects([*objects, delivery]).claims["c2"]["phase"] == "Pending"
    assert plan_objects(objects).devices("c2") == {"gpu": ["gpu-1"]}


class TestA25:
    """The count says enough, the instances are not."""

    def test_a25_unhealthy_instances_do_not_become_free_ones(self) -> None:
        names = [f"gpu-{i}" for i in range(8)]
        taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
        slices = gpus(*names, taints={"gpu-0": [taint], "gpu-1": [taint]})
        c0 = held("c0", *names)
        pool = devicepool(node_selector={"matchLabels": {"zone": "a"}})
        for labels in ({"zone": "a"}, {"zone": "b"}):
            ran = plan_objects([pool, node(labels=labels), slices, c0, deviceclaim("c1", requests={"gpu": 6})])
            assert ran.claims["c1"]["phase"] == "Pending"
            assert ran.devices("c0") == {"gpu": names}
            assert ran.counts("training", "gpu")["allocated"] == 8
            assert_sums(ran)

    def test_a25_a_counter_that_drops_below_what_is_in_use(self) -> None:
        counted = {"name": "gpu", "type": "GPU", "source": {"nodeResource": {"name": "nvidia.com/gpu"}}}
        machine = node()
        machine["status"]["allocatable"] = {"nvidia.com/gpu": "6"}
        c0 = held("c0", *(f"gpu-{i}" for i in range(8)))
        for device in c0["status"]["allocation"]["replicas"][0]["devices"]:
            device["driver"] = "adjoin.dev"
        ran = plan_objects([devicepool(devices=[counted]), machine, c0, deviceclaim("c1", requests={"gpu": 6})])
        assert ran.claims["c1"]["phase"] == "Pending"
        counts = ran.counts("training", "gpu")
        assert (counts["capacity"], counts["allocated"], counts["missing"], counts["free"]) == (8, 6, 2, 0)


def test_c17_slices_that_vanish_for_a_while_touch_no_running_claim() -> None:
    c1, waiting = held("c1", "gpu-0"), deviceclaim("c2")
    slices = gpus("gpu-0", "gpu-1")
    steady = plan_objects([devicepool(), node(), slices, c1])
    without = plan_objects([devicepool(), node(), c1, waiting])
    assert without.claims["c1"]["replicas"] == steady.claims["c1"]["replicas"]
    assert without.claims["c1"]["phase"] == "InUse"
    assert without.claims["c2"]["phase"] == "Pending"
    again = plan_objects([devicepool(), node(), slices, c1, waiting])
    assert again.devices("c2") == {"gpu": ["gpu-1"]}


def test_c17_a_generation_that_is_not_complete_offers_nothing_and_says_so() -> None:
    slices = gpus("gpu-0", "gpu-1", generation=2)
    slices["spec"]["pool"]["resourceSliceCount"] = 2
    ran = plan_objects([devicepool(), node(), slices, held("c1", "gpu-0"), deviceclaim("c2")])
    assert ran.codes("c2")[0] == "DriverUnavailable"
    assert "gpu.nvidia.com/n1: 1 of 2 slices" in ran.claims["c2"]["reasons"][0]["message"]
    assert ran.devices("c1") == {"gpu": ["gpu-0"]}
    assert "DeviceMissing" not in conditions(ran, "c1")
    assert_sums(ran)


def test_c21_hardware_that_was_replaced_is_missing_and_the_new_one_is_free() -> None:
    taint = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoExecute"}
    c1 = held("c1", "gpu-0", ids=("GPU-old",))
    old = resourceslice("n1", GPU, {"gpu-0": uuid("GPU-old")}, taints={"gpu-0": [taint]})
    sick = plan_objects([devicepool(), node(), old, c1, deviceclaim("c2")])
    assert "taint gpu.nvidia.com/gpu-lost" in conditions(sick, "c1")["DeviceUnhealthy"]
    new = resourceslice("n1", GPU, {"gpu-0": uuid("GPU-new")})
    ran = plan_objects([devicepool(), node(), new, c1, deviceclaim("c2")])
    assert "DeviceMissing" in conditions(ran, "c1")
    assert "DeviceUnhealthy" not in conditions(ran, "c1")
    assert ran.claims["c2"]["replicas"][0]["devices"][0]["id"] == "GPU-new"
    assert ran.counts("training", "gpu") == {
        "capacity": 2, "free": 0, "allocated": 1, "reserved": 0, "releasing": 0, "unhealthy": 0, "missing": 1,
    }  # fmt: skip


@pytest.mark.parametrize("how", ["tainted", "unreadable", "absent"])
def test_c22_one_dead_card_leaves_the_other_three_allocatable(how: str) -> None:
    slices = gpus("gpu-0", "gpu-1", "gpu-2", "gpu-3")
    dead = slices["spec"]["devices"][3]
    if how == "tainted":
        dead["taints"] = [{"key": "gpu.nvidia.com/unmonitored", "effect": "NoSchedule"}]
    elif how == "unreadable":
        dead["attributes"] = {"type": {"novelty": 1}, "uuid": {"version": "GPU"}, "productName": None}
        dead["capacity"] = {"memory": {"value": "lots"}}
    else:
        slices["spec"]["devices"].pop()
    selectors = [{"cel": f"device.attributes['{GPU}'].uuid.startsWith('UUID')"}]
    ran = plan_objects(
        [devicepool(), slices, deviceclaim(requests=[{"name": "gpu", "selectors": selectors}], replicas=4)]
    )
    assert [ran.devices("job-a", index)["gpu"] for index in range(3)] == [["gpu-0"], ["gpu-1"], ["gpu-2"]]
    assert ran.claims["job-a"]["phase"] == "Pending"
    assert_sums(ran)


def test_c26_an_inventory_that_flips_to_nothing_and_back() -> None:
    builder = InventoryBuilder(cluster=False)
    names = [f"gpu-{i}" for i in range(8)]
    fixed = [devicepool(), node(), held("c1", *names[:5])]
    full = view_of(*fixed, gpus(*names))
    first = builder.build(full)
    empty = builder.build(view_of(*fixed, before=full))
    assert [device.standing for device in empty.devices["n1"]] == [Standing.MISSING] * 5
    back = builder.build(view_of(*fixed, gpus(*names)))
    assert [device.id for device in back.devices["n1"]] == [device.id for device in first.devices["n1"]]
    assert {device.standing for device in back.devices["n1"]} == {Standing.OFFERED}


class TestC34:
    def test_c34_what_is_missing_and_unused_is_dropped(self) -> None:
        ran = plan_objects([devicepool(), node(), gpus("gpu-1"), deviceclaim()])
        assert ran.counts("training", "gpu")["capacity"] == 1
        assert ran.counts("training", "gpu")["missing"] == 0

    def test_c34_what_is_missing_and_used_is_kept_counted_and_never_offered(self) -> None:
        objects = [devicepool(), node(), gpus("gpu-1"), held("c1", "gpu-0"), deviceclaim("c2", requests={"gpu": 2})]
        ran = plan_objects(objects)
        assert ran.counts("training", "gpu")["missing"] == 1
        assert ran.claims["c2"]["phase"] == "Pending"
        builder = InventoryBuilder(cluster=False)
        missing = builder.build(view_of(*objects)).device("n1", DeviceID(GPU, "n1", "gpu-0"))
        assert missing is not None
        assert missing.standing is Standing.MISSING
        released = builder.build(view_of(*objects[:3]))
        assert released.device("n1", DeviceID(GPU, "n1", "gpu-0")) is None


def test_e9_the_message_says_how_many_where() -> None:
    full = held("c1", "gpu-0", "gpu-1")
    ran = plan_objects(
        [
            devicepool(),
            gpus("gpu-0", "gpu-1"),
            gpus("gpu-0", "gpu-1", where="n2"),
            full,
            deviceclaim("c2", requests={"gpu": 3}),
        ]
    )
    assert ran.codes("c2") == ["InsufficientDevices"]
    message = ran.claims["c2"]["reasons"][0]["message"]
    assert message == "needs 3 gpu, best node has 2 even when empty; 2 nodes: 2 too small"


def test_e10_names_with_dots_and_slashes_are_not_cut() -> None:
    request = {"name": "gpu", "selectors": [{"cel": "device.attributes['gpu.nvidia.com'].sm > 5"}]}
    ran = plan_objects([devicepool(), gpus("gpu-0"), deviceclaim(requests=[request])])
    assert ran.codes("job-a")[0] == "SelectorUnmatched"
    assert "gpu.nvidia.com/sm" in ran.claims["job-a"]["reasons"][0]["message"]


def test_e13_a_reference_to_nothing_is_a_condition_and_not_silence() -> None:
    pool = devicepool(spec={"topology": {"matrices": [{"configMapRef": {"name": "absent", "key": "topo"}}]}})
    ran = plan_objects([pool, gpus("gpu-0"), deviceclaim()])
    found = {each["type"]: each["message"] for each in ran.shown["pools"][0]["conditions"]}
    assert "absent/topo" in found["TopologyMismatch"]
    assert ran.claims["job-a"]["phase"] == "Allocated"


def test_e14_counts_are_never_negative_and_always_add_up() -> None:
    taint = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]
    names = [f"gpu-{i}" for i in range(4)]
    foreign = resourceclaim("theirs", owner="", devices=[(GPU, "n1", "gpu-2"), (GPU, "n1", "gone")])
    orphan = resourceclaim("ours", owner="nobody", devices=[(GPU, "n1", "gpu-1")])
    leaving = held("leaving", "gpu-0", "gpu-8", deletionTimestamp="2026-11-30T09:00:00Z")
    for tainted in ([], names, ["gpu-0", "gpu-3"]):
        slices = gpus(*names, taints=dict.fromkeys(tainted, taint))
        for objects in ([], [leaving], [foreign], [orphan], [leaving, foreign, orphan, held("both", "gpu-2", "gpu-9")]):
            ran = plan_objects([devicepool(), node(), slices, *copy.deepcopy(objects), deviceclaim("more", replicas=3)])
            assert_sums(ran)


def test_a29_a_plan_and_its_feedback_name_the_same_devices() -> None:
    claims = [deviceclaim(f"c{i}", creationTimestamp=f"2026-11-30T08:00:{i:02}Z") for i in range(20)]
    objects = [devicepool(), *hardware.fleet(hardware.p4d, 3, "p"), *claims]
    first = plan_objects(objects)
    assert plan_objects(with_status(objects, first)).shown["claims"] == first.shown["claims"]
    given = [device["id"] for claim in first.claims.values() for device in claim["replicas"][0]["devices"]]
    assert len(set(given)) == 20
