"""What NVIDIA's driver is told of parts: as its strict decoder takes it, and nothing where nothing is asked."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.make import card

from adjoin.delivery.limits import Holding
from adjoin.delivery.opaque import configs
from adjoin_allocator.model import PlacedShare
from adjoin_allocator.terms import ShareMode

GI = 1 << 30
VERSION = "resource.nvidia.com/v1beta1"
HALF = PlacedShare("half", memory_bytes=20 * GI, compute_milli=255)
SLOT = PlacedShare("half", slots=1)


@pytest.mark.parametrize(
    ("part", "parameters"),
    [
        pytest.param(
            Holding(HALF, ShareMode.MPS),
            {
                "apiVersion": VERSION,
                "kind": "GpuConfig",
                "sharing": {
                    "strategy": "MPS",
                    "mpsConfig": {
                        "defaultActiveThreadPercentage": 25,
                        "defaultPinnedDeviceMemoryLimit": "20480Mi",
                    },
                },
            },
            id="MPS with both limits",
        ),
        pytest.param(
            Holding(PlacedShare("half", compute_milli=500), ShareMode.MPS),
            {
                "apiVersion": VERSION,
                "kind": "GpuConfig",
                "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}},
            },
            id="MPS with one",
        ),
        pytest.param(
            Holding(SLOT, ShareMode.TIME_SLICED, interval="Short"),
            {
                "apiVersion": VERSION,
                "kind": "GpuConfig",
                "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}},
            },
            id="short turns",
        ),
        pytest.param(Holding(SLOT, ShareMode.TIME_SLICED, interval="Default"), None, id="turns as they are"),
        pytest.param(Holding(HALF, ShareMode.FRACTIONAL), None, id="a fraction"),
        pytest.param(Holding(HALF, None), None, id="a share that is gone"),
        pytest.param(None, None, id="a whole card"),
    ],
)
def test_a_request_is_told_of_its_part(part: Holding | None, parameters: Any) -> None:
    found = configs([("gpu", [(card(), part)])])
    expected = [
        {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}
    ]
    assert found == (expected if parameters is not None else [])
