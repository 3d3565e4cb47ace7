"""Devices that somebody has, in words for tables: each by its name, and of a device in parts which part it is.

In come devices as `status.allocation` has them, out go lines. Nothing here knows claims or plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adjoin_allocator.amounts import size


def device_words(device: Mapping[str, Any]) -> str:
    """`g0`, `g0 (1g.10gb at 6)`, `g1 (2 slots)`, `nic0 (vf 3)`, `g0 (8Gi, 250m)`."""
    part = part_words(device.get("share"))
    return f"{device['device']} ({part})" if part else str(device["device"])


def part_words(share: Mapping[str, Any] | None) -> str:
    """Which part of a device it is, by whatever is said of it; "" for the whole device."""
    if share is None:
        return ""
    told = []
    if share.get("profile") is not None:
        start = share.get("start")
        told.append(share["profile"] if start is None else f"{share['profile']} at {start}")
    if share.get("slots") is not None:
        told.append(f"{share['slots']} slot{'' if share['slots'] == 1 else 's'}")
    if share.get("vf") is not None:
        told.append(f"vf {share['vf']}")
    if share.get("memory") is not None:
        told.append(size(share["memory"]))
    if share.get("compute") is not None:
        told.append(f"{share['compute']}m")
    return ", ".join(told) or f"part of {share['name']}"


def by_request(devices: Iterable[Mapping[str, Any]]) -> str:
    """A line a request with its devices; `-` for none."""
    found: dict[str, list[str]] = {}
    for device in devices:
        found.setdefault(device["request"], []).append(device_words(device))
    return "\n".join(f"{request}: {' '.join(names)}" for request, names in found.items()) or "-"
