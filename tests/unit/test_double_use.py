"""The check that runs beside every cluster test finds what it looks for, in whatever order events came."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.double_use import Change, violations

GPU = ("gpu.nvidia.com", "n1", "gpu-0")


def claim(revision: int, uid: str, *devices: tuple[str, str, str], gone: bool = False) -> Change:
    """A DeviceClaim whose status names the devices."""
    named = [{"driver": a, "pool": b, "device": c} for a, b, c in devices]
    status = {"allocation": {"replicas": [{"index": 0, "devices": named}]}}
    return Change(revision, "DeviceClaim", gone, {"metadata": _meta(uid), "status": status})


def delivery(
    revision: int, uid: str, owner: str, *devices: tuple[str, str, str], gone: bool = False, admin: bool = False
) -> Change:
    """A ResourceClaim that gives the devices to pods, owned by a DeviceClaim."""
    results = [{"driver": a, "pool": b, "device": c, "adminAccess": admin} for a, b, c in devices]
    owners = [{"kind": "DeviceClaim", "uid": owner}] if owner else []
    status = {"allocation": {"devices": {"results": results}}}
    obj = {"metadata": {**_meta(uid), "ownerReferences": owners}, "status": status}
    return Change(revision, "ResourceClaim", gone, obj)


def _meta(uid: str) -> dict[str, Any]:
    return {"namespace": "team", "name": uid, "uid": uid}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param([claim(1, "a", GPU), delivery(2, "ra", "a", GPU)], 0, id="a claim and its own delivery"),
        pytest.param([claim(1, "a", GPU), claim(2, "b", GPU)], 1, id="two claims"),
        pytest.param([claim(2, "b", GPU), claim(1, "a", GPU)], 1, id="two claims, seen in the other order"),
        pytest.param([claim(1, "a", GPU), claim(2, "a"), claim(3, "b", GPU)], 0, id="one claim after the other"),
        pytest.param([claim(1, "a", GPU), claim(2, "a", gone=True), claim(3, "b", GPU)], 0, id="after the end of one"),
        pytest.param([claim(1, "a", GPU), claim(3, "a"), claim(2, "b", GPU)], 1, id="one claim a moment too early"),
        pytest.param([claim(1, "a", GPU, GPU)], 1, id="one claim twice"),
        pytest.param([delivery(1, "ra", "a", GPU), delivery(2, "rb", "b", GPU)], 1, id="two deliveries"),
        pytest.param([delivery(1, "ra", "a", GPU), delivery(2, "rb", "a", GPU)], 1, id="two deliveries of one claim"),
        pytest.param([delivery(1, "ra", "a", GPU), claim(2, "b", GPU)], 1, id="a delivery and another's claim"),
        pytest.param([claim(1, "b", GPU), delivery(2, "rx", "", GPU)], 1, id="a stranger's ResourceClaim"),
        pytest.param([claim(1, "a", GPU), delivery(2, "rx", "", GPU, admin=True)], 0, id="a stranger with adminAccess"),
        pytest.param(
            [delivery(1, "ra", "a", GPU), delivery(2, "ra", "a", GPU, gone=True), claim(3, "b", GPU)],
            0,
            id="a claim after the delivery's end",
        ),
    ],
)
def test_it_finds_every_instant_at_which_a_device_is_in_two_hands(changes: list[Change], found: int) -> None:
    assert len(violations(changes)) == found
