"""What a DeviceClaim's status in a file must not say: the same replica twice, or the same device in two places.

In comes a validated object, out come sentences with field and value. Parts of one device may stand in several places.
The API server does not look at this, and the operator reads such a status with care; in a file it is a mistake that
somebody can mend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_REPLICAS = "status.allocation.replicas"


def repetitions(body: Mapping[str, Any]) -> Iterator[str]:
    """Every index, and every device that is not a part of one, that stands in the status a second time."""
    status = body.get("status")
    allocation = status.get("allocation") if isinstance(status, Mapping) else None
    replicas = allocation.get("replicas") if isinstance(allocation, Mapping) else None
    indexes: dict[int, str] = {}
    devices: dict[tuple[str, ...], tuple[str, str]] = {}
    for place, replica in _maps(replicas):
        path = f"{_REPLICAS}[{place}]"
        index = replica.get("index") or 0
        first = indexes.setdefault(index, path) if isinstance(index, int) else path
        if first != path:
            yield f"{path}.index: {index}: is the index of {first} too; keep the one that holds the devices"
        for position, device in _maps(replica.get("devices")):
            here = f"{path}.devices[{position}]"
            triple = tuple(str(device.get(part) or "") for part in ("driver", "pool", "device"))
            hardware = str(device.get("id") or "")
            share = device.get("share")
            part = str(share.get("name") or "") if isinstance(share, Mapping) else ""
            first, other = devices.setdefault(triple, (here, part))
            if first == here and hardware:
                # A PCI address, unlike a uuid, is one of its node alone.
                node = str(replica.get("node") or "") if ":" in hardware else ""
                first, other = devices.setdefault((triple[0], node, hardware, "id"), (here, part))
            if first == here:
                continue
            if not part or not other:
                yield f"{here}: {'/'.join(triple)}: is the device of {first} too; a device is in one place"
            elif part != other:
                yield f"{here}.share.name: {part}: the device is split by {other} in {first}; it has one at a time"


def _maps(entries: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The entries of a list that are maps, with their place; what else stands there is told by others."""
    for place, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, Mapping):
            yield place, entry
