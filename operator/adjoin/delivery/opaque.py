"""What NVIDIA's DRA driver is told of parts, as configuration in the allocation.

In come the requests of a ResourceClaim with the parts that they hold; out go entries of `allocation.devices.config`.
The driver decodes them strictly, and turns time slices and MPS on only with its own feature gates (TimeSlicingSettings,
MPSSupport): so nothing is said where nothing is asked for. Other drivers are told nothing.

Source: NVIDIA's driver, api/nvidia.com/resource/v1beta1 (GpuConfig, MigDeviceConfig, GpuSharing).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from adjoin.api.share import Interval
from adjoin.delivery.limits import MEBIBYTE, Holding, percent
from adjoin_allocator.model import Device
from adjoin_allocator.terms import ShareMode

NVIDIA: Final = "gpu.nvidia.com"
_VERSION: Final = "resource.nvidia.com/v1beta1"


def configs(requests: Iterable[tuple[str, Sequence[tuple[Device, Holding | None]]]]) -> list[dict[str, Any]]:
    """Entries for requests whose parts need one. All devices of a request are divided alike."""
    found = []
    for request, devices in requests:
        held = next(((device, part) for device, part in devices if part is not None), None)
        if held is None or held[0].driver != NVIDIA:
            continue
        parameters = _parameters(*held)
        if parameters is not None:
            opaque = {"driver": NVIDIA, "parameters": parameters}
            found.append({"source": "FromClaim", "requests": [request], "opaque": opaque})
    return found


def _parameters(device: Device, part: Holding | None) -> dict[str, Any] | None:
    if part is None:
        return None
    mig = device.attributes.get(f"{NVIDIA}/type") == "mig"
    kind = "MigDeviceConfig" if mig else "GpuConfig"
    if part.mode is ShareMode.MPS:
        return {"apiVersion": _VERSION, "kind": kind, "sharing": {"strategy": "MPS", "mpsConfig": _mps(part)}}
    if part.mode is ShareMode.TIME_SLICED and not mig and part.interval not in ("", Interval.DEFAULT):
        slices = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": str(part.interval)}}
        return {"apiVersion": _VERSION, "kind": kind, "sharing": slices}
    return None


def _mps(part: Holding) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if part.share.compute_milli is not None:
        limits["defaultActiveThreadPercentage"] = percent(part.share.compute_milli)
    if part.share.memory_bytes is not None:
        limits["defaultPinnedDeviceMemoryLimit"] = f"{part.share.memory_bytes // MEBIBYTE}Mi"
    return limits
