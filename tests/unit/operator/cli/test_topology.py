"""`topology NODE`: the tree, the states and holders, JSON, the picture, and how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import hardware
from tests.support.livecluster import cluster
from tests.support.objects import allocation, deviceclaim, devicepool, node, replica, resourceclaim, resourceslice
from tests.support.planning import Ran, plan_objects, run_plan
from tests.support.shared import needs_shared, shared
from tests.support.topologies import NCCL

from adjoin.cli import main
from adjoin.cli.picture import escape

GPU, NIC = "gpu.nvidia.com", "dra.net"
RDMA = [{"cel": "device.attributes['dra.net'].rdma"}]
SVG = "{http://www.w3.org/2000/svg}"


def pool(name: str = "training", driver: str = GPU, config_map: str = "", **fields: Any) -> dict[str, Any]:
    matrices = [{"configMapRef": {"name": config_map, "key": "topo"}}] if config_map else []
    return devicepool(
        name,
        devices=[
            {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": driver}}},
            {"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": NIC, "selectors": RDMA}}},
        ],
        spec={"topology": {"matrices": matrices}},
        **fields,
    )


def run_topology(*arguments: str, stdin: str = "") -> Ran:
    """Runs `adjoin topology` with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "stdin", io.StringIO(stdin)), redirect_stdout(out), redirect_stderr(err):
        status = main(["topology", *arguments])
    return Ran(status, out.getvalue(), err.getvalue())


def look(objects: Iterable[Mapping[str, Any]], *arguments: str, at: str = "n1") -> Ran:
    text = yaml.safe_dump_all([dict(obj) for obj in objects], sort_keys=False)
    return run_topology(at, "-f", "-", *arguments, stdin=text)


def shown(objects: Iterable[Mapping[str, Any]], at: str = "n1") -> dict[str, Any]:
    ran = look(objects, "-o", "json", at=at)
    assert ran.status == 0, ran.err
    return ran.shown


def devices_in(branch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Devices of a part, nested ones too."""
    yield from branch["devices"]
    for part in branch["parts"]:
        yield from devices_in(part)


def paths(branch: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each device with the parts that it is in, outermost first."""
    here = (*above, f"{branch['scope']} {branch['name']}")
    for device in branch["devices"]:
        yield device["device"], here
    for part in branch["parts"]:
        yield from paths(part, here)


def held(name: str, *devices: str, state: str = "Ready", **fields: Any) -> dict[str, Any]:
    """A claim that has these devices of node n1."""
    entries = [("gpu" if each.startswith("gpu") else "nic", GPU if each.startswith("gpu") else NIC, "n1", each)
               for each in devices]  # fmt: skip
    status = allocation(replica(state=state, devices=entries))
    counts = Counter(request for request, *_ in entries)
    return deviceclaim(name, requests=dict(counts), status=status, **fields)


def states(result: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """State and holder by device."""
    return {
        device["device"]: (device["state"], device["holder"])
        for each in result["pools"]
        for device in devices_in(each["tree"])
    }


# What it shows.


def test_a_tree_for_people() -> None:
    ran = look([pool(), *hardware.two_roots("n1"), held("train", "gpu-0", "pci-0000-10-1b-0")])
    assert ran.status == 0
    assert ran.out == (
        "n1  pool training, wiring from attributes\n"
        "├── NUMA node 0 / root complex pci0000:10\n"
        "│   ├── gpu-0             gpu  0000:10:1c.0  allocated by team/train replica 0\n"
        "│   ├── gpu-1             gpu  0000:10:1d.0  free\n"
        "│   └── pci-0000-10-1b-0  nic  0000:10:1b.0  allocated by team/train replica 0\n"
        "└── NUMA node 1 / root complex pci0000:20\n"
        "    ├── gpu-2             gpu  0000:20:1c.0  free\n"
        "    ├── gpu-3             gpu  0000:20:1d.0  free\n"
        "    └── pci-0000-20-1b-0  nic  0000:20:1b.0  free\n"
        "gpu: 3 free, 1 allocated of 4; nic: 1 free, 1 allocated of 2\n"
    )
    assert ran.err == ""


def test_nvlink_groups_stand_beside_the_tree() -> None:
    config = hardware.config_map("dgx", {"topo": hardware.dgx_h100_matrix(), "topo.gpus": hardware.dgx_h100_gpu_rows()})
    ran = look([pool(config_map="dgx"), *hardware.dgx_h100("n1"), config])
    lines = ran.out.splitlines()
    assert lines[0] == "n1  pool training, wiring from dgx/topo and attributes"
    assert lines[1:5] == [
        "├── NUMA node 0",
        "│   ├── root complex pci0000:18 / switch #0",
        "│   │   ├── gpu-0             gpu  0000:1b:00.0  NVLink A  free",
        "│   │   └── pci-0000-1a-00-0  nic  0000:1a:00.0            free",
    ]
    assert lines[-2] == f"NVLink A: {' '.join(f'gpu-{i}' for i in range(8))}: 18 links between any two"


def test_partners_are_listed_where_not_all_are_joined_alike() -> None:
    """Four GPUs in a ring, one side of it twice as thick."""
    words = {(0, 1): "NV2", (1, 2): "NV1", (2, 3): "NV1", (0, 3): "NV1"}
    names = [f"GPU{index}" for index in range(4)]
    rows = [
        "\t".join([name, *("X" if one == other else words.get((min(one, other), max(one, other)), "SYS")
                           for other in range(4))])
        for one, name in enumerate(names)
    ]  # fmt: skip
    text = "\n".join(["\t".join(["", *names]), *rows])
    gpus = devicepool(
        devices=[{"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": GPU}}}],
        spec={"topology": {"matrices": [{"configMapRef": {"name": "ring", "key": "topo"}}]}},
    )
    ran = look([gpus, *hardware.two_roots("n1"), hardware.config_map("ring", {"topo": text})])
    assert ran.out.splitlines()[-6:-1] == [
        "NVLink A: gpu-0 gpu-1 gpu-2 gpu-3: 4 of 6 pairs joined, 1 to 2 links each",
        "  gpu-0: gpu-1 x2, gpu-3 x1",
        "  gpu-1: gpu-0 x2, gpu-2 x1",
        "  gpu-2: gpu-1 x1, gpu-3 x1",
        "  gpu-3: gpu-0 x1, gpu-2 x1",
    ]


def test_the_whole_object() -> None:
    result = shown([pool(), *hardware.two_roots("n1"), held("train", "gpu-0")])
    assert list(result) == ["node", "notes", "pools"]
    (only,) = result["pools"]
    assert list(only) == ["pool", "topology", "problem", "tree", "nvlink", "levels"]
    assert only["topology"] == {"source": None, "used": False}
    first = only["tree"]["parts"][0]["parts"][0]["devices"][0]
    assert first == {
        "driver": GPU,
        "pool": "n1",
        "device": "gpu-0",
        "id": f"GPU-{hardware.stable_uuid('n1', 'gpu', '0')}",
        "name": "gpu",
        "type": "GPU",
        "address": "0000:10:1c.0",
        "level": "PHB",
        "state": "allocated",
        "holder": "team/train replica 0",
        "detail": None,
        "nvlink": None,
        "parts": [],
        "left": None,
        "neighbours": {},
    }
    names = [device["device"] for device in only["levels"]["devices"]]
    assert only["levels"]["rows"][names.index("gpu-0")][names.index("pci-0000-10-1b-0")] == "PHB"
    assert only["levels"]["rows"][names.index("gpu-0")][names.index("pci-0000-20-1b-0")] == "SYS"


def test_yaml_says_the_same_as_json() -> None:
    objects = [pool(), *hardware.two_roots("n1"), held("train", "gpu-0")]
    assert yaml.safe_load(look(objects, "-o", "yaml").out) == shown(objects)


def test_the_state_of_every_device_and_who_has_it() -> None:
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    objects = [
        pool(delivery={"guard": "None"}),
        node("n1"),
        resourceslice(devices=6, taints={"gpu-4": [taint]}),
        held("train", "gpu-0"),
        held("leaving", "gpu-1", state="Releasing"),
        held("deleted", "gpu-2", deletionTimestamp="2026-11-30T09:00:00Z"),
        held("lost", "gpu-9"),
        resourceclaim("foreign", owner="", devices=[(GPU, "n1", "gpu-3")]),
    ]
    result = shown(objects)
    assert states(result) == {
        "gpu-0": ("allocated", "team/train replica 0"),
        "gpu-1": ("releasing", "team/leaving replica 0"),
        "gpu-2": ("releasing", "team/deleted replica 0"),
        "gpu-3": ("allocated", "ResourceClaim team/foreign"),
        "gpu-4": ("unhealthy", None),
        "gpu-5": ("free", None),
        "gpu-9": ("missing", "team/lost replica 0"),
    }
    unwell = next(each for each in devices_in(result["pools"][0]["tree"]) if each["device"] == "gpu-4")
    assert unwell["detail"] == "taint gpu.nvidia.com/xid=79"
    assert "gpu-4  gpu  unhealthy (taint gpu.nvidia.com/xid=79)" in look(objects).out


def test_of_two_claims_that_name_one_device_the_older_has_it() -> None:
    younger = held("younger", "gpu-0", "gpu-1", creationTimestamp="2026-11-30T10:00:00Z")
    result = states(shown([pool(), *hardware.two_roots("n1"), younger, held("older", "gpu-0")]))
    assert result["gpu-0"] == ("allocated", "team/older replica 0")
    assert result["gpu-1"] == ("releasing", "team/younger replica 0"), "what it lost a part of is on its way back"


CLAIMS = [
    held("a", "gpu-0", "gpu-1"),
    held("b", "gpu-2", "pci-0000-20-1b-0", state="Releasing"),
    held("c", "gpu-7"),
    resourceclaim("foreign", owner="", devices=[(GPU, "n1", "gpu-3")]),
    resourceclaim("orphan", owner="claim-team-gone", devices=[(NIC, "n1", "pci-0000-10-1b-0")]),
]


@settings(max_examples=20, deadline=None)
@given(chosen=st.lists(st.sampled_from(CLAIMS), unique_by=lambda obj: str(obj["metadata"]["name"])))
def test_states_add_up_to_the_counts_of_the_plan(chosen: Sequence[dict[str, Any]]) -> None:
    """Every claim here has all that it wants, so that the plan gives nothing away."""
    objects = [pool(delivery={"guard": "None"}), *hardware.two_roots("n1"), *chosen]
    planned = plan_objects(objects)
    (only,) = shown(objects)["pools"]
    for name in ("gpu", "nic"):
        found = Counter(device["state"] for device in devices_in(only["tree"]) if device["name"] == name)
        counts = planned.counts("training", name)
        assert {state: found[state] for state in counts if state != "capacity"} == {
            state: count for state, count in counts.items() if state != "capacity"
        }


def test_a_device_of_two_pools_stands_in_each_pools_own_part() -> None:
    gpus = devicepool("gpus", devices=[{"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": GPU}}}])
    nics = devicepool("nics", devices=[{"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": NIC}}}])
    result = shown([gpus, nics, *hardware.two_roots("n1")])
    assert [(each["pool"], len(list(devices_in(each["tree"])))) for each in result["pools"]] == [
        ("gpus", 4),
        ("nics", 3),
    ]
    assert look([gpus, nics, *hardware.two_roots("n1")]).out.count("n1  pool ") == 2


def test_remarks_on_the_node() -> None:
    cordoned = [
        {**obj, "spec": {"unschedulable": True}} if obj["kind"] == "Node" else obj for obj in hardware.p4d("n1")
    ]
    assert shown([pool(), *cordoned])["notes"] == ["the node is cordoned"]
    assert look([pool(), *cordoned]).out.startswith(
        "n1  pool training, wiring from attributes  (the node is cordoned)\n"
    )


def test_a_node_without_devices() -> None:
    ran = look([pool(), node("n1")])
    assert (ran.status, ran.out) == (0, "n1: no pool has a device on this node\n")
    assert shown([pool(), node("n1")])["pools"] == []


# Texts that tell the wiring.


def xml_machine() -> list[dict[str, Any]]:
    """The machine of `topologies.NCCL`, as its drivers publish it: addresses and nothing else."""
    address = "resource.kubernetes.io/pciBusID"
    gpus = [
        hardware.device(f"gpu-{index}", {address: f"0000:{bus}:00.0"})
        for index, bus in enumerate(("03", "04", "08", "81"))
    ]
    nics = [
        hardware.device(name, {"dra.net/pciAddress": bus, "dra.net/rdma": True})
        for name, bus in (("nic-a", "0000:05:00.0"), ("nic-b", "0000:05:00.1"), ("nic-c", "0000:82:00.0"))
    ]
    return [
        hardware.node_object("n1", "xml"),
        hardware.resource_slice("n1", GPU, gpus),
        hardware.resource_slice("n1", NIC, nics),
    ]


def test_wiring_from_xml() -> None:
    objects = [pool(config_map="shape"), *xml_machine(), hardware.config_map("shape", {"topo": NCCL})]
    (only,) = shown(objects)["pools"]
    assert only["topology"] == {"source": "shape/topo", "used": True}
    switch = ("Node n1", "NUMANode 0", "PCIeRoot #0", "PCIeSwitch #0")
    assert dict(paths(only["tree"])) == {
        "gpu-0": switch,
        "gpu-1": switch,
        "gpu-2": switch,
        "nic-a": switch,
        "nic-b": switch,
        "gpu-3": ("Node n1", "NUMANode 1"),
        "nic-c": ("Node n1", "NUMANode 1"),
    }
    assert [[each["device"] for each in group["devices"]] for group in only["nvlink"]] == [["gpu-0", "gpu-1"]]
    assert only["nvlink"][0]["pairs"][0]["links"] == 4


def test_a_plan_with_xml_chooses_neighbours_that_attributes_do_not_know() -> None:
    line = {"requests": ["gpu", "nic"], "scope": "PCIeSwitch", "policy": "Required"}
    claim = deviceclaim("pair", requests={"gpu": 3, "nic": 2}, affinity=[line])
    config = hardware.config_map("shape", {"topo": NCCL})
    ran = plan_objects([pool(config_map="shape"), *xml_machine(), config, claim])
    assert ran.status == 0
    assert ran.devices("pair") == {"gpu": ["gpu-0", "gpu-1", "gpu-2"], "nic": ["nic-a", "nic-b"]}
    assert plan_objects([pool(), *xml_machine(), claim]).codes("pair") == ["TopologyUnknown"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(NCCL.replace("</nic>", "", 1), "line 18: no well-formed XML: mismatched tag", id="damaged"),
        pytest.param(
            NCCL.replace("0000:81:00.0", "0000:91:00.0"),
            "GPU gpu-3 sits at 0000:81:00.0, which is not among its 4 GPUs and 3 NICs",
            id="of another machine",
        ),
    ],
)
def test_xml_that_is_not_used_says_why_here_and_in_the_plan(text: str, problem: str) -> None:
    objects = [pool(config_map="shape"), *xml_machine(), hardware.config_map("shape", {"topo": text})]
    ran = look(objects)
    assert ran.status == 0
    assert ran.err == f"warning: DevicePool training: shape/topo is not used: {problem}\n"
    assert ran.out.startswith("n1  pool training, shape/topo is not used\n")
    assert shown(objects)["pools"][0]["problem"] == problem
    planned = plan_objects(objects)
    (condition,) = [each for each in planned.shown["pools"][0]["conditions"] if each["type"] == "TopologyMismatch"]
    assert problem in condition["message"]


@needs_shared
@pytest.mark.parametrize(
    ("slices", "text", "pairs"),
    [
        pytest.param(
            ("aws_p4d_a100_gpu.yaml", "aws_p4d_a100_dranet.yaml"),
            "xml/aws_p4d-24xl-topo.xml",
            {("gpu-0", "pci-0000-10-1b-0"): "PIX", ("gpu-0", "gpu-1"): "PIX", ("gpu-0", "pci-0000-a0-1b-0"): "SYS"},
            id="p4d, NCCL",
        ),
        pytest.param(
            ("aws_p4d_a100_gpu.yaml", "aws_p4d_a100_dranet.yaml"),
            "hwloc/p4d.24xl-topo.xml",
            {("gpu-0", "pci-0000-10-1b-0"): "PHB", ("gpu-0", "gpu-2"): "NODE", ("gpu-0", "pci-0000-a0-1b-0"): "SYS"},
            id="p4d, hwloc",
        ),
    ],
)
def test_captured_slices_with_captured_xml(
    slices: Sequence[str], text: str, pairs: Mapping[tuple[str, str], str]
) -> None:
    objects = [obj for file in slices for obj in yaml.safe_load_all(shared(f"data/slices/{file}").read_text()) if obj]
    config = hardware.config_map("shape", {"topo": shared(f"data/topo/{text}").read_text()})
    (only,) = shown([pool(config_map="shape"), *objects, config], at="node-a.example")["pools"]
    assert only["topology"] == {"source": "shape/topo", "used": True}
    names = [device["device"] for device in only["levels"]["devices"]]
    for (one, other), level in pairs.items():
        assert only["levels"]["rows"][names.index(one)][names.index(other)] == level, (one, other)


@needs_shared
def test_a_hardware_model_with_captured_hwloc_xml() -> None:
    config = hardware.config_map("shape", {"topo": shared("data/topo/hwloc/p5.48xl-topo.xml").read_text()})
    (only,) = shown([pool(config_map="shape"), *hardware.p5("n1"), config])["pools"]
    assert only["topology"]["used"]
    found = dict(paths(only["tree"]))
    for part in set(found.values()):
        members = [name for name, path in found.items() if path == part]
        assert (len(members), sum(name.startswith("gpu") for name in members)) == (5, 1)
        assert part[-1].startswith("PCIeSwitch")


@needs_shared
@pytest.mark.parametrize(
    ("driver", "files"),
    [
        (
            "gpu.nvidia.com",
            ("aws_p4d_a100_gpu.yaml", "aws_p4d_a100_dranet.yaml", "aws_p4d_resourceclaim_allocated.yaml"),
        ),
        ("gpu.nvidia.com", ("azure_gb300_gpu.yaml", "azure_gb300_dranet.yaml")),
        ("gpu.amd.com", ("azure_mi300x_dranet.yaml",)),
        ("gaudi.intel.com", ("intel_gaudi2.yaml",)),
        ("gpu.intel.com", ("intel_gpu.yaml",)),
    ],
)
def test_captured_slices(driver: str, files: Sequence[str], tmp_path: Path) -> None:
    objects = [obj for file in files for obj in yaml.safe_load_all(shared(f"data/slices/{file}").read_text()) if obj]
    slices = [
        each for obj in objects for each in (obj["items"] if obj["kind"] == "List" else [obj])
        if each["kind"] == "ResourceSlice"
    ]  # fmt: skip
    at = slices[0]["spec"]["nodeName"]
    result = shown([pool(driver=driver), *objects], at=at)
    mine = [device for each in result["pools"] for device in devices_in(each["tree"])]
    published = {
        device["name"]
        for each in slices
        for device in each["spec"]["devices"]
        if each["spec"]["driver"] == driver or device["attributes"].get("dra.net/rdma", {}).get("bool")
    }
    assert {device["device"] for device in mine} == published
    ran = look([pool(driver=driver), *objects], "--svg", str(tmp_path / "node.svg"), at=at)
    assert ran.status == 0
    assert tile_names((tmp_path / "node.svg").read_text()).keys() == published


# The picture.


def drawn(objects: Iterable[Mapping[str, Any]], folder: Path, at: str = "n1") -> str:
    path = folder / "node.svg"
    ran = look(objects, "--svg", str(path), at=at)
    assert ran.status == 0, ran.err
    return path.read_text(encoding="utf-8")


def tile_names(text: str) -> dict[str, ET.Element]:
    """Tiles by the name of their device, as their tooltip gives it."""
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    found = {}
    for tile in root.iter(f"{SVG}g"):
        described = (tile.findtext(f"{SVG}title") or "").partition(";")[0]
        found[described.rpartition("/")[2]] = tile
    return found


def frame(element: ET.Element) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a rectangle."""
    x, y = int(element.get("x", "0")), int(element.get("y", "0"))
    return x, y, x + int(element.get("width", "0")), y + int(element.get("height", "0"))


MACHINES = [
    pytest.param([pool(), *hardware.two_roots("n1"), held("train", "gpu-0", "pci-0000-10-1b-0")], id="two-roots"),
    pytest.param([pool(), *hardware.p5("n1")], id="p5"),
    pytest.param([pool(), *hardware.gb200("n1")], id="gb200"),
    pytest.param([pool(driver="gpu.amd.com"), *hardware.mi300x("n1")], id="mi300x"),
    pytest.param(
        [
            pool(config_map="dgx"),
            *hardware.dgx_h100("n1"),
            hardware.config_map("dgx", {"topo": hardware.dgx_h100_matrix()}),
            held("train", *(f"gpu-{index}" for index in range(5))),
        ],
        id="dgx-h100",
    ),
    pytest.param([pool(config_map="shape"), *xml_machine(), hardware.config_map("shape", {"topo": NCCL})], id="xml"),
    pytest.param([pool(), node("n1")], id="no devices"),
]


@pytest.mark.parametrize("objects", MACHINES)
def test_the_picture_holds_every_device_once_and_says_who_has_it(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    tiles = tile_names(drawn(objects, tmp_path))
    expected = states(shown(objects))
    assert tiles.keys() == expected.keys()
    for name, (state, holder) in expected.items():
        told = tiles[name].findtext(f"{SVG}title") or ""
        assert f"{state} by {holder}" in told if holder else f"; {state}" in told
        texts = [each.text or "" for each in tiles[name].iter(f"{SVG}text")]
        assert texts[0] == name
        assert texts[-1].rstrip("…") in (holder or state)


@pytest.mark.parametrize("objects", MACHINES)
def test_boxes_nest_and_nothing_lies_on_anything_else(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    root = ET.fromstring(drawn(objects, tmp_path))
    whole = (0, 0, int(root.get("width", "0")), int(root.get("height", "0")))
    frames = [frame(each) for each in root.iter(f"{SVG}rect") if each.get("rx")]
    for left, top, right, bottom in frames:
        assert 0 <= left < right <= whole[2]
        assert 0 <= top < bottom <= whole[3]
    for place, one in enumerate(frames):
        for other in frames[place + 1 :]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            within = one[0] <= other[0] and one[1] <= other[1] and other[2] <= one[2] and other[3] <= one[3]
            assert apart or within, (one, other)
    tiles = [frame(each) for each in root.iter(f"{SVG}rect") if each.get("rx") == "3"]
    assert all(
        one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        for place, one in enumerate(tiles)
        for other in tiles[place + 1 :]
    )


@pytest.mark.parametrize("objects", MACHINES)
def test_the_picture_is_a_function_of_the_set_of_objects(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    assert drawn(objects, tmp_path) == drawn(reversed(objects), tmp_path)


def test_nvlink_groups_are_told_by_colour_and_name(tmp_path: Path) -> None:
    objects = [pool(config_map="shape"), *xml_machine(), hardware.config_map("shape", {"topo": NCCL})]
    text = drawn(objects, tmp_path)
    root = ET.fromstring(text)
    words = [each.text for each in root.iter(f"{SVG}text")]
    assert words[words.index("NVLink A") + 1 :][:2] == ["4 links", "gpu-0 gpu-1"]
    tiles = tile_names(text)
    marks = {
        name: [each.get("fill") for each in tile.iter(f"{SVG}rect") if each.get("width") == "5"]
        for name, tile in tiles.items()
    }
    assert marks["gpu-0"] == marks["gpu-1"] != []
    assert marks["gpu-2"] == marks["nic-a"] == []
    assert "NVLink A to gpu-1 x4" in (tiles["gpu-0"].findtext(f"{SVG}title") or "")


def test_names_are_escaped(tmp_path: Path) -> None:
    """Devices from files may be called anything; the drawing must stay a drawing."""
    odd = "</title><script>alert(1)</script>&\"'"
    objects = [pool(), node("n1"), resourceslice(devices={odd: {}})]
    text = drawn(objects, tmp_path)
    assert "<script" not in text
    root = ET.fromstring(text)
    assert [each.tag for each in root.iter() if "script" in each.tag] == []
    assert any(odd in (each.text or "") for each in root.iter(f"{SVG}title"))


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_whatever_a_name_holds_the_picture_is_well_formed(name: str) -> None:
    element = ET.fromstring(f"<t a='{escape(name)}'>{escape(name)}</t>")
    assert element.get("a") == (element.text or "")


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    ran = look([pool(), *hardware.two_roots("n1")], "--svg", str(tmp_path / "no" / "where.svg"))
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"error: {tmp_path / 'no' / 'where.svg'}: No such file or directory\n"


# How it ends.


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        pytest.param([pool(), *hardware.two_roots("n2"), node("n10")], "nodes are n2, n10", id="others"),
        pytest.param([pool()], "there are no nodes at all", id="none"),
        pytest.param(
            [node(f"n{index}") for index in range(2, 30)],
            f"nodes are {', '.join(f'n{index}' for index in range(2, 12))} and 18 more",
            id="many",
        ),
    ],
)
def test_an_unknown_node(objects: list[dict[str, Any]], message: str) -> None:
    ran = look(objects)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"error: there is no node n1; {message}\n"


def test_bad_input() -> None:
    ran = look([devicepool(devices=[{"name": "gpu"}])])
    assert ran.status == 2
    assert ran.err.startswith("error: ")


def test_a_terminal_that_has_no_such_characters_gets_others() -> None:
    class Plain(io.StringIO):
        encoding = "ascii"  # type: ignore[assignment]

    out = Plain()
    text = yaml.safe_dump_all([pool(), *hardware.two_roots("n1")])
    with patch.object(sys, "stdin", io.StringIO(text)), redirect_stdout(out):
        assert main(["topology", "n1", "-f", "-"]) == 0
    assert out.getvalue().encode("ascii").splitlines()[1] == b"|-- NUMA node 0 / root complex pci0000:10"


def test_offline_it_loads_no_client_no_web_server_and_no_kopf(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps([pool(), *hardware.two_roots("n1")]))
    code = (
        "import sys; from adjoin.cli import main; "
        f"status = main(['topology', 'n1', '-f', {str(file)!r}, '--svg', {str(tmp_path / 'n1.svg')!r}]); "
        "heavy = {'kopf', 'kubernetes_asyncio', 'aiohttp'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy or status else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr


# Live.


def test_a_cluster_shows_what_files_show(tmp_path: Path) -> None:
    objects = [
        pool(config_map="shape", delivery={"guard": "None"}),
        *xml_machine(),
        hardware.config_map("shape", {"topo": NCCL}),
        held("train", "gpu-0"),
    ]
    with cluster(objects, tmp_path) as (_, kubeconfig):
        arguments = ("--kubeconfig", kubeconfig, "-n", "adjoin-system")
        live = run_topology("n1", *arguments, "-o", "json", "--svg", str(tmp_path / "live.svg"))
        unknown = run_topology("n9", *arguments)
    assert live.status == 0, live.err
    assert live.shown == shown(objects)
    assert (tmp_path / "live.svg").read_text() == drawn(objects, tmp_path)
    assert (unknown.status, unknown.err) == (2, "error: there is no node n9; nodes are n1\n")


def test_without_a_cluster_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    ran = run_topology("n1")
    assert ran.status == 1
    assert ran.err.startswith("error: no cluster: give files with -f")


def test_the_example_of_the_documentation_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim is placed by a plan first; here it still waits, so everything is free."""
    monkeypatch.chdir(Path(__file__).resolve().parents[4])
    sources = ("-f", "examples/topology-matrix", "-f", "examples/topology-matrix/machines")
    assert run_plan(*sources).status == 0
    assert run_topology("dgx-h100-0", *sources).out.endswith("gpu: 8 free of 8; nic: 8 free of 8\n")
