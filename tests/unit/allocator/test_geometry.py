"""Tables of partitions: which product has which, and what a given table means."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import combinations
from math import ceil

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.shared import needs_shared, shared

from adjoin_allocator.cel import Quantity
from adjoin_allocator.geometry import PRODUCTS, Entry, Geometry, built_in, custom

GIB = 1 << 30
MIB = 1 << 20
BOARDS = [
    pytest.param(model, size, geometry, id=f"{model} {size}")
    for model, boards in PRODUCTS.items()
    for size, geometry in boards
    if geometry is not None
]


def names(geometry: Geometry | None) -> str | None:
    """The profiles without those for media, in the table's order."""
    return geometry and " ".join(name for name in geometry.profiles if not name.endswith("+me"))


@pytest.mark.parametrize(
    ("product", "memory", "profiles"),
    [
        pytest.param(
            "NVIDIA A100-SXM4-40GB", 40 * GIB, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", id="A100 of 40"
        ),
        pytest.param("NVIDIA A100-PCIE-40GB", None, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", id="by its name"),
        pytest.param("NVIDIA A100 80GB PCIe", None, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", id="A100 of 80"),
        pytest.param("nvidia h100 80gb hbm3", None, "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", id="lower case"),
        pytest.param(
            "NVIDIA H100 PCIe",
            81_559 * MIB,
            "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            id="only the memory tells",
        ),
        pytest.param("NVIDIA H100 NVL", None, "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb", id="NVL has 94"),
        pytest.param(
            "NVIDIA GH200 480GB",
            97_871 * MIB,
            "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
            id="the name tells the memory of the processor",
        ),
        pytest.param(
            "NVIDIA GH200 144G HBM3e", None, "1g.18gb 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb", id="GH200 of 144"
        ),
        pytest.param(
            "NVIDIA H20", 97_871 * MIB, "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb", id="H20 is no H200"
        ),
        pytest.param(
            "NVIDIA H200 NVL", 143_771 * MIB, "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", id="H200 NVL"
        ),
        pytest.param("NVIDIA B200", 183_359 * MIB, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb", id="B200"),
        pytest.param("NVIDIA GB200", 189_471 * MIB, "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb", id="GB200"),
        pytest.param(
            "NVIDIA B300 SXM6 AC", 275_040 * MIB, "1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb", id="B300"
        ),
        pytest.param("NVIDIA GB300", 284_208 * MIB, "1g.35gb 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb", id="GB300"),
        pytest.param("NVIDIA A30", 24 * GIB, "1g.6gb 2g.12gb 4g.24gb", id="A30"),
        pytest.param("NVIDIA H100 PCIe", None, None, id="nothing tells which H100"),
        pytest.param("NVIDIA A100-SXM-64GB", 64 * GIB, None, id="a board that no table has"),
        pytest.param("NVIDIA H20-3e", 141 * GIB, None, id="profiles not known for sure"),
        pytest.param("NVIDIA B200", 80 * GIB, None, id="another memory than the model's"),
        pytest.param("NVIDIA L40S", 48 * GIB, None, id="no partitions"),
        pytest.param("", None, None, id="no name"),
    ],
)
def test_a_product_is_known_by_name_and_memory(product: str, memory: int | None, profiles: str | None) -> None:
    """By the name that NVML gives it; what is not known for sure is unknown."""
    assert names(built_in(product, memory)) == profiles


@pytest.mark.parametrize(("model", "size", "geometry"), BOARDS)
def test_every_product_has_one_of_two_shapes(model: str, size: int, geometry: Geometry) -> None:
    """Eight memory and seven compute slices, or four of each; so what is shown of one holds for all of that shape."""
    shape = [(p.name.partition(".")[0], p.starts, p.size, p.compute, p.most) for p in geometry.profiles.values()]
    if model == "A30":
        assert (geometry.slices, geometry.compute) == (4, 4)
        assert shape == [
            ("1g", (0, 1, 2, 3), 1, 1, None),
            ("1g", (0, 1, 2, 3), 1, 1, 1),
            ("2g", (0, 2), 2, 2, None),
            ("2g", (0, 2), 2, 2, 1),
            ("4g", (0,), 4, 4, None),
        ]
    else:
        assert (geometry.slices, geometry.compute) == (8, 7)
        assert shape == [
            ("1g", (0, 1, 2, 3, 4, 5, 6), 1, 1, None),
            ("1g", (0, 1, 2, 3, 4, 5, 6), 1, 1, 1),
            ("1g", (0, 2, 4, 6), 2, 1, None),
            ("2g", (0, 2, 4), 2, 2, None),
            ("3g", (0, 4), 4, 3, None),
            ("4g", (0,), 4, 4, None),
            ("7g", (0,), 8, 7, None),
        ]


@pytest.mark.parametrize(("model", "size", "geometry"), BOARDS)
def test_what_a_partition_costs(model: str, size: int, geometry: Geometry) -> None:
    """Its largest fraction of the card in thousandths, rounded up."""
    for profile in geometry.profiles.values():
        largest = max(Fraction(profile.size, geometry.slices), Fraction(profile.compute, geometry.compute))
        assert geometry.cost_milli(profile.name) == ceil(1000 * largest)


def test_costs_of_an_h100() -> None:
    """By number."""
    geometry = built_in("NVIDIA H100 80GB HBM3", None)
    assert geometry is not None
    assert [geometry.cost_milli(name) for name in geometry.profiles] == [143, 143, 250, 286, 500, 572, 1000]


@pytest.mark.parametrize(("model", "size", "geometry"), BOARDS)
def test_a_table_that_repeats_the_built_in_one_means_the_same(model: str, size: int, geometry: Geometry) -> None:
    """As many slices of both kinds, whatever the order of the entries; and equal tables give one object."""
    table = [Entry(p.name, p.starts, p.size, p.compute, p.most) for p in geometry.profiles.values()]
    found = custom(table)
    assert (found.slices, found.compute) == (geometry.slices, geometry.compute)
    assert {name: (p.starts, p.size, p.compute, p.most) for name, p in found.profiles.items()} == {
        name: (p.starts, p.size, p.compute, p.most) for name, p in geometry.profiles.items()
    }
    assert custom(reversed(table)) is found


ENTRIES = st.lists(
    st.builds(
        Entry,
        st.sampled_from("abc"),
        st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
        st.integers(1, 4),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda entry: entry.profile,
)


@given(ENTRIES)
def test_compute_slices_of_a_table_are_what_partitions_beside_each_other_take(table: list[Entry]) -> None:
    """The most of any of them, found by trying all; so that compute never forbids what the table allows."""
    places = sorted(
        {(start, start + entry.size, entry.compute) for entry in table for start in entry.starts},
    )
    most = max(
        sum(compute for _, _, compute in chosen)
        for number in range(1, len(places) + 1)
        for chosen in combinations(places, number)
        if all(one[1] <= other[0] for one, other in combinations(chosen, 2))
    )
    found = custom(table)
    assert found.compute == most
    assert found.slices == max(end for _, end, _ in places)


@needs_shared
def test_placements_are_those_that_a_driver_published() -> None:
    """A DGX A100's list of every placement with its counters."""
    text = shared("data/slices/wg_device_management_dgxa100_partition_pools.yaml").read_text()
    devices = yaml.load(text, yaml.CSafeLoader)[0]["spec"]["devices"]
    geometry = built_in("Mock NVIDIA A100-SXM4-40GB", None)
    assert geometry is not None
    seen = set()
    for device in devices:
        match = re.fullmatch(r"gpu-0-mig-(.+?)(-me)?-(\d)", device["name"])
        if match is None:
            continue
        profile = geometry.profiles[match[1] + ("+me" if match[2] else "")]
        start = int(match[3])
        consumed = {each["name"]: each["capacity"] for each in device["sharedCapacityConsumed"]}
        slices = {name for name in consumed if name.startswith("gpu-0-memory-slices-")}
        assert slices == {f"gpu-0-memory-slices-{each}" for each in range(start, start + profile.size)}
        assert Quantity.parse(consumed["gpu-0-multiprocessors"]) == Quantity.parse(str(14 * profile.compute))
        seen.add((profile.name, start))
    assert seen == {(profile.name, start) for profile in geometry.profiles.values() for start in profile.starts}


@needs_shared
@pytest.mark.parametrize(
    ("file", "profiles"),
    [
        pytest.param("aws_p4d_a100_gpu.yaml", "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", id="p4d"),
        pytest.param("azure_gb300_gpu.yaml", "1g.35gb 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb", id="GB300"),
    ],
)
def test_captured_cards_are_known(file: str, profiles: str) -> None:
    """By what their driver says of them."""
    found = 0
    for document in yaml.load_all(shared(f"data/slices/{file}").read_text(), yaml.CSafeLoader):
        for item in document.get("items", [document]):
            for device in item["spec"]["devices"]:
                attributes, capacity = device["attributes"], device["capacity"]
                memory = Quantity.parse(capacity["memory"]["value"]).as_int()
                assert names(built_in(attributes["productName"]["string"], memory)) == profiles
                found += 1
    assert found >= 4
