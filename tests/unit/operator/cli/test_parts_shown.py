"""Parts of devices in what people see: `topology`, `explain` and `defrag`, of shares of all modes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from tests.support.command import as_text, run
from tests.support.objects import devicepool

Obj = dict[str, Any]
PRODUCT = "NVIDIA H100 80GB HBM3"


def site(mode: str, cards: int = 2, **spec: Any) -> list[Obj]:
    """A node with cards and a share of them."""
    devices = [
        {
            "name": f"gpu-{at}",
            "attributes": {"uuid": f"GPU-{at}", "productName": PRODUCT},
            "capacity": {"memory": "80Gi"},
        }
        for at in range(cards)
    ]
    nodes = [{"name": "n1", "devices": devices}]
    pool = devicepool("p", devices=[{"name": "gpu", "type": "GPU", "source": {"static": {"nodes": nodes}}}])
    share = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceShare",
        "metadata": {"name": "s"},
        "spec": {"poolRef": {"name": "p"}, "device": "gpu", "mode": mode, **spec},
    }
    return [pool, share]


def claim(name: str, part: Obj | None, device: str = "", held: Obj | None = None, **spec: Any) -> Obj:
    """A claim for a part (or a whole card), that holds one of a card if that is named."""
    request = {"name": "gpu", **({"share": {"name": "s", **part}} if part is not None else {})}
    made: Obj = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"poolRef": {"name": "p"}, "requests": [request], **spec},
    }
    if device:
        entry: Obj = {"request": "gpu", "driver": "adjoin.dev", "pool": "n1", "device": device}
        if held is not None:
            entry["share"] = {"name": "s", **held}
        replica = {"index": 0, "node": "n1", "state": "Ready", "devices": [entry]}
        made["status"] = {"phase": "Ready", "allocation": {"replicas": [replica]}}
    return made


GIB = 1 << 30
FRACTIONS = site("Fractional", fractional={"reserve": "0%", "minReserve": 0})
MODES = [
    pytest.param(
        FRACTIONS,
        [({"memory": "20Gi"}, {"memory": 20 * GIB}), ({"memory": "10Gi"}, {"memory": 10 * GIB})],
        ["20Gi", "10Gi"],
        "50Gi, 1000m left",
        id="fractions",
    ),
    pytest.param(
        site("TimeSliced", timeSliced={"slots": 4}),
        [({"slots": 1}, {"slots": 1}), ({"slots": 2}, {"slots": 2})],
        ["1 slot", "2 slots"],
        "1 slot left",
        id="time slices",
    ),
    pytest.param(
        site("MPS", mps={"maxClients": 8, "reserve": "0%", "minReserve": 0}),
        [({"compute": "250m"}, {"compute": 250}), ({"compute": "500m"}, {"compute": 500})],
        ["250m", "500m"],
        "80Gi, 250m left",
        id="MPS",
    ),
    pytest.param(
        site("Partitioned", partitioned={"dynamic": {"profiles": ["1g.10gb", "3g.40gb"]}}),
        [
            ({"profile": "1g.10gb"}, {"profile": "1g.10gb", "start": 0}),
            ({"profile": "3g.40gb"}, {"profile": "3g.40gb", "start": 4}),
        ],
        ["1g.10gb at 0", "3g.40gb at 4"],
        "room for 1g.10gb left",
        id="partitions",
    ),
    pytest.param(
        site("VirtualFunctions", virtualFunctions={"count": 4}),
        [({}, {"vf": 0}), ({}, {"vf": 2})],
        ["vf 0", "vf 2"],
        "2 functions left",
        id="virtual functions",
    ),
]


@pytest.mark.parametrize(("objects", "parts", "told", "left"), MODES)
def test_topology_shows_parts_with_who_has_them_and_what_is_left(
    objects: list[Obj], parts: list[tuple[Obj, Obj]], told: list[str], left: str, tmp_path: Path
) -> None:
    """Below their card, in the tree, as JSON and in the picture; a card that is free says so."""
    (one, had), (other, has) = parts
    claims = [claim("a", one, "gpu-0", had, profile="Latency"), claim("b", other, "gpu-0", has)]
    text = as_text([*objects, *claims])
    tree = run("topology", "n1", "-f", "-", stdin=text).out.splitlines()
    (card,) = [line for line in tree if " gpu-0 " in f" {line.strip('├└─│ ')} "]
    assert "allocated, shared by " in card
    assert left in card
    for words, name in zip(told, "ab", strict=True):
        assert any(f"{words}  allocated by team/{name} replica 0" in line for line in tree)
    assert any("gpu-1" in line and line.endswith("free") for line in tree)

    svg = tmp_path / "n1.svg"
    shown = run("topology", "n1", "-f", "-", "-o", "json", "--svg", str(svg), stdin=text).shown
    leaves = {each["device"]: each for each in _devices(shown["pools"][0]["tree"])}
    entries = [(each["claim"], each["replica"], each["profile"]) for each in leaves["gpu-0"]["parts"]]
    assert entries == [("team/a", 0, "Latency"), ("team/b", 0, "Balanced")]
    assert leaves["gpu-0"]["neighbours"] == {"Latency": 1, "Balanced": 1}
    assert [each["share"]["name"] for each in leaves["gpu-0"]["parts"]] == ["s", "s"]
    assert (leaves["gpu-1"]["parts"], leaves["gpu-1"]["left"], leaves["gpu-1"]["neighbours"]) == ([], None, {})
    titles = [each.text or "" for each in ET.parse(svg).iter("{http://www.w3.org/2000/svg}title")]
    told_there = [f"{words} by team/{name}" for words, name in zip(told, "ab", strict=True)]
    assert any(all(words in each for words in told_there) for each in titles)


def _devices(branch: Obj) -> list[Obj]:
    return [*branch["devices"], *(device for part in branch["parts"] for device in _devices(part))]


@pytest.mark.parametrize(("objects", "parts", "told", "left"), MODES)
def test_explain_names_neighbours_by_profile(
    objects: list[Obj], parts: list[tuple[Obj, Obj]], told: list[str], left: str
) -> None:
    """Of a claim that has a part: who else has one of the same device, and what is left of it."""
    (one, had), (other, has) = parts
    claims = [claim("a", one, "gpu-0", had, profile="Latency"), claim("b", other, "gpu-0", has)]
    text = as_text([*objects, *claims])
    (entry,) = run("explain", "b", "-f", "-", "-o", "json", stdin=text).shown["neighbours"]
    assert (entry["node"], entry["device"]["device"]) == ("n1", "gpu-0")
    assert (entry["profiles"], entry["claims"]) == ({"Latency": 1}, ["team/a"])
    assert f"{entry['left']} left" == left
    out = run("explain", "b", "-f", "-", stdin=text).out
    assert f"gpu-0 ({told[1]})" in out
    assert "1 Latency" in out


def test_explain_of_a_whole_device_has_no_neighbours() -> None:
    text = as_text([*FRACTIONS, claim("a", None, "gpu-0")])
    assert run("explain", "a", "-f", "-", "-o", "json", stdin=text).shown["neighbours"] == []


def test_who_is_in_the_way_of_a_part_is_who_has_too_much_of_each_card() -> None:
    """A card with room for the part counts as free; one on which it is lacking names its holders."""
    held = [
        claim("large", {"memory": "60Gi"}, "gpu-0", {"memory": 60 * GIB}),
        claim("small", {"memory": "50Gi"}, "gpu-1", {"memory": 50 * GIB}),
    ]
    waits = claim("waits", {"memory": "40Gi"})
    shown = run("explain", "waits", "-f", "-", "-o", "json", stdin=as_text([*FRACTIONS, *held, waits])).shown
    assert shown["waits"]
    assert shown["nodes"][0]["requests"] == {"gpu": {"free": 0, "eligible": 2}}
    assert {each["holder"]: each["enough"] for each in shown["holders"]} == {"team/large": True, "team/small": True}
    two = claim("two", {"memory": "30Gi"})
    two["spec"]["requests"][0]["count"] = 2
    shown = run("explain", "two", "-f", "-", "-o", "json", stdin=as_text([*FRACTIONS, *held, two])).shown
    assert shown["nodes"][0]["requests"] == {"gpu": {"free": 1, "eligible": 2}}
    assert {each["holder"]: each["enough"] for each in shown["holders"]} == {"team/large": True, "team/small": False}


def test_defrag_moves_parts_for_who_wants_a_whole_card() -> None:
    """And says what they are."""
    held = [
        claim("a", {"memory": "30Gi"}, "gpu-0", {"memory": 30 * GIB}),
        claim("b", {"memory": "40Gi"}, "gpu-1", {"memory": 40 * GIB}),
    ]
    text = as_text([*FRACTIONS, *held, claim("waits", None)])
    ran = run("defrag", "p", "-f", "-", "-o", "json", stdin=text)
    (move,) = ran.shown["moves"]
    assert (ran.status, ran.shown["outcome"], ran.shown["fewest"]) == (0, "Moves", True)
    assert move["from"]["devices"][0]["share"] == move["to"]["devices"][0]["share"]
    said = f"({move['from']['devices'][0]['share']['memory'] // GIB}Gi)"
    assert run("defrag", "p", "-f", "-", stdin=text).out.count(said) == 2


LOADED = {
    "apiVersion": "metrics.k8s.io/v1beta1",
    "kind": "NodeMetrics",
    "metadata": {"name": "n1"},
    "usage": {"cpu": "9", "memory": "1Gi"},
}


def nodes(*names: str) -> list[Obj]:
    limits = {"allocatable": {"cpu": "10", "memory": "100Gi"}}
    return [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": limits} for name in names]


def two_nodes() -> list[Obj]:
    pool, share = site("Fractional", fractional={"reserve": "0%", "minReserve": 0})
    listed = pool["spec"]["devices"][0]["source"]["static"]["nodes"]
    listed.append({"name": "n2", "devices": [{"name": "gpu-0", "capacity": {"memory": "80Gi"}}]})
    return [pool, share, *nodes("n1", "n2")]


def test_defrag_says_what_could_leave_loaded_nodes() -> None:
    held = [
        claim("a", {"memory": "50Gi"}, "gpu-0", {"memory": 50 * GIB}),
        claim("b", {"memory": "60Gi"}, "gpu-1", {"memory": 60 * GIB}),
        claim("whole", None),
    ]
    ran = run("defrag", "p", "--load", "-f", "-", "-o", "json", stdin=as_text([*two_nodes(), LOADED, *held[:2]]))
    assert (ran.status, ran.shown["loaded"]) == (0, ["n1"])
    (move,), (stay,) = ran.shown["moves"], ran.shown["stay"]
    assert (move["claim"], move["from"]["node"], move["to"]["node"]) == ("team/a", "n1", "n2")
    assert (stay["claim"], stay["node"], bool(stay["why"])) == ("team/b", "n1", True)
    out = run("defrag", "p", "--load", "-f", "-", stdin=as_text([*two_nodes(), LOADED, *held[:2]])).out
    assert out.startswith("1 of 2 replicas with parts of devices could leave 1 loaded node (n1)")
    assert "n1: gpu-0 (50Gi)" in out


@pytest.mark.parametrize(
    ("arguments", "objects", "status", "words"),
    [
        pytest.param(["--load"], [], 0, "no node of pool p is loaded", id="none is loaded"),
        pytest.param(["a", "--load"], [], 2, "--load is about nodes: give it no CLAIM", id="with a claim"),
        pytest.param(
            ["--load"],
            [LOADED, claim("a", {"memory": "50Gi"}, "gpu-0", {"memory": 50 * GIB}, preemptible=False)],
            3,
            "it is not preemptible",
            id="nothing can move",
        ),
    ],
)
def test_how_defrag_of_loaded_nodes_ends(arguments: list[str], objects: list[Obj], status: int, words: str) -> None:
    ran = run("defrag", "p", *arguments, "-f", "-", stdin=as_text([*two_nodes(), *objects]))
    assert ran.status == status
    assert words in ran.out + ran.err


@pytest.mark.parametrize(
    ("objects", "part", "asked"),
    [
        pytest.param(FRACTIONS, {"memory": "20Gi"}, 0.25, id="memory, by the cards that there are"),
        pytest.param(FRACTIONS, {"compute": "500m"}, 0.5, id="compute"),
        pytest.param(site("TimeSliced", timeSliced={"slots": 4}), {"slots": 1}, 0.25, id="slots"),
        pytest.param(FRACTIONS, None, 1, id="a whole device"),
    ],
)
def test_what_a_claim_asks_of_its_quota_is_told_in_devices(objects: list[Obj], part: Obj | None, asked: float) -> None:
    text = as_text([*objects, claim("a", part)])
    (line,) = run("explain", "a", "-f", "-", "-o", "json", stdin=text).shown["quota"]
    assert line["asked"] == asked
