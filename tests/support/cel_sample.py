"""Devices for tests of the CEL evaluator: as an API server holds them, and as the evaluator is given them.

Both forms come from the same literal, so that Kubernetes' evaluator and ours judge the same device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from adjoin_allocator.cel import AttributeValue, Quantity, Version


@dataclass(frozen=True, slots=True)
class View:
    """A device as the evaluator sees it."""

    driver: str = "gpu.example.com"
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allow_multiple_allocations: bool = False


Device = dict[str, Any]
"""A device as in ResourceSlice.spec.devices, with the driver beside it."""

GPU: Final[Device] = {
    "driver": "gpu.example.com",
    "name": "gpu-3",
    "attributes": {
        "model": {"string": "X100 SXM"},
        "type": {"string": "gpu"},
        "index": {"int": 3},
        "healthy": {"bool": True},
        "mig": {"bool": False},
        "driverVersion": {"version": "580.95.5"},
        "uuid": {"string": "GPU-1b2c3d4e"},
        "empty": {"string": ""},
        "address": {"string": "10.1.2.3"},
        "serviced": {"string": "2026-03-01T10:00:00Z"},
        "numaNodes": {"ints": [0, 1]},
        "tags": {"strings": ["nvlink", "hbm"]},
        "flags": {"bools": [True, False]},
        "firmwares": {"versions": ["1.2.3", "2.0.0-rc.1"]},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:15"},
        "other.example.com/index": {"int": -1},
    },
    "capacity": {
        "memory": {"value": "80Gi"},
        "cores": {"value": "128"},
        "share": {"value": "1500m"},
        "other.example.com/bandwidth": {"value": "400G"},
    },
    "allowMultipleAllocations": True,
}

NIC: Final[Device] = {
    "driver": "net.example.com",
    "name": "nic-0",
    "attributes": {
        "rdma": {"bool": True},
        "rail": {"int": 1},
        "index": {"string": "1"},
        "speed": {"string": "400"},
        "gpu.example.com/index": {"int": 4},
        "gpu.example.com/tags": {"strings": ["hbm"]},
        "gpu.example.com/type": {"string": "nic"},
    },
    "capacity": {"other.example.com/bandwidth": {"value": "100G"}},
}

ODD: Final[Device] = {
    "driver": "gpu.example.com",
    "name": "odd-0",
    "attributes": {
        "model": {"int": 100},
        "index": {"int": -(2**63)},
        "type": {"bool": True},
        "driverVersion": {"string": "580.95.5"},
        "tags": {"string": "nvlink"},
        "numaNodes": {"ints": []},
        "firmwares": {"version": "1.0.0"},
    },
    "capacity": {"memory": {"value": "0"}, "cores": {"value": "-1.5"}},
}

BARE: Final[Device] = {"driver": "gpu.example.com", "name": "bare-0"}

DEVICES: Final = (GPU, NIC, ODD, BARE)

_READ: Final[dict[str, Callable[[Any], AttributeValue]]] = {
    "string": str,
    "int": int,
    "bool": bool,
    "version": Version.parse,
    "strings": tuple,
    "ints": tuple,
    "bools": tuple,
    "versions": lambda texts: tuple(Version.parse(text) for text in texts),
}


def view(device: Mapping[str, Any], driver: str = "") -> View:
    """The device as the evaluator is given it: names qualified, values typed."""
    driver = driver or device["driver"]

    def qualified(name: str) -> str:
        return name if "/" in name else f"{driver}/{name}"

    attributes: dict[str, AttributeValue] = {}
    for name, value in device.get("attributes", {}).items():
        ((kind, content),) = value.items()
        attributes[qualified(name)] = _READ[kind](content)
    capacity = {qualified(name): Quantity.parse(value["value"]) for name, value in device.get("capacity", {}).items()}
    return View(driver, attributes, capacity, device.get("allowMultipleAllocations", False))
