"""The objective: what is added up, and in which order it counts."""

from __future__ import annotations

import pytest
from tests.support import make

from adjoin_allocator import Affinity, DeviceType, Request
from adjoin_allocator.cost import BALANCED, Part, Term, blocks_lost, packing, signature

GPU, RDMA, OTHER = DeviceType.GPU, DeviceType.RDMA, DeviceType.OTHER


@pytest.mark.parametrize(
    ("requests", "lines", "slots"),
    [
        pytest.param(["gpu", "nic"], [], [[Term((0,))], [Term((0,), (1,))]], id="GPU pairs, then GPU-RDMA pairs"),
        pytest.param(["nic", "gpu"], [], [[Term((1,))], [Term((0,), (1,))]], id="whichever request comes first"),
        pytest.param(["nic"], [], [], id="NICs alone have no distances"),
        pytest.param(["gpu", "more-gpu"], [], [[Term((0, 1))]], id="all GPUs together, whatever request they are for"),
        pytest.param(
            ["gpu", "nic"], [make.preferred("Node", "nic")], [[Term((1,))]], id="a Preferred line replaces the default"
        ),
        pytest.param(
            ["gpu", "nic"],
            [make.required("NUMANode", "gpu")],
            [[Term((0,))], [Term((0,), (1,))]],
            id="a Required line does not",
        ),
        pytest.param(
            ["gpu", "nic"],
            [make.preferred("Node", "nic", "gpu"), make.preferred("NVLink", "gpu")],
            [[Term((0,), (1,))], [Term((0,))]],
            id="Preferred lines count in the order of the list",
        ),
        pytest.param(
            ["gpu", "nic", "nvme"],
            [make.preferred("Node", "gpu", "nic", "nvme")],
            [[Term((0,), (1,)), Term((0,), (2,))]],
            id="of three requests each is paired with the first",
        ),
        pytest.param(
            ["gpu", "nic"],
            [make.preferred("Node", "gpu", "nic"), make.preferred("PCIeRoot", "gpu", "nic")],
            [[Term((0,), (1,))]],
            id="the named scope of a Preferred line changes no sum",
        ),
    ],
)
def test_distance_parts(requests: list[str], lines: list[Affinity], slots: list[list[Term]]) -> None:
    asked = [make.request(name, kind=name.removeprefix("more-")) for name in requests]
    types = [{"gpu": GPU, "nic": RDMA}.get(request.kind, OTHER) for request in asked]
    assert signature(asked, types, lines).slots == tuple(map(tuple, slots))


def test_claims_that_differ_in_selectors_and_names_alone_have_one_signature() -> None:
    one = signature([Request("a", "gpu", 2)], [GPU], [make.required("NVLink", "a")])
    other = signature([Request("b", "gpu", 2)], [GPU], [make.required("NVLink", "b")])
    assert one == other
    assert one != signature([Request("a", "gpu", 3)], [GPU], [make.required("NVLink", "a")])


@pytest.mark.parametrize(
    ("free", "taken", "lost"),
    [
        pytest.param(7, 1, {}, id="seven are three pairs and a single: the single is nobody's pair"),
        pytest.param(2, 1, {2: 1}, id="of two a pair is gone"),
        pytest.param(4, 1, {2: 1, 4: 1}, id="of four a pair and a four"),
        pytest.param(8, 2, {2: 1, 4: 1, 8: 1}, id="of eight also the eight"),
        pytest.param(6, 2, {2: 1}, id="six have a four to spare"),
        pytest.param(5, 0, {}, id="nothing taken, nothing lost"),
    ],
)
def test_places_for_powers_of_two(free: int, taken: int, lost: dict[int, int]) -> None:
    packed = blocks_lost(free, taken)
    assert {1 << power: packed >> 16 * power & 0xFFFF for power in range(9) if packed >> 16 * power & 0xFFFF} == lost


def test_larger_places_weigh_more_than_any_number_of_smaller_ones() -> None:
    assert blocks_lost(8, 1) > blocks_lost(7, 5)


def test_parts_come_back_as_they_were_packed() -> None:
    most = {
        Part.DISTANCES: (64, 480, 64, 480),
        Part.DEMAND: (99,),
        Part.WHOLE: (16,) * 5,
        Part.WASTE: (1000,),
        Part.PRIORITY: (5,),
    }
    packed = packing(BALANCED, most, tail=32)
    values = {
        Part.DISTANCES: (37, 12, 64, 480),
        Part.DEMAND: (98,),
        Part.WHOLE: (8, 2, 4, 8, 16),
        Part.WASTE: (7,),
        Part.PRIORITY: (5,),
    }
    number = sum(
        value << shift for part, mine in values.items() for value, shift in zip(mine, packed.shifts[part], strict=True)
    )
    assert packed.parts(number >> packed.order) == [37, 12, 64, 480, 98, 8, 2, 4, 8, 16, 7, 5]
    assert packed.shifts[Part.BLOCKS] == ()
