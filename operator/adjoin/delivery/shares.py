"""What a hook is told of a device that is divided, or about to be: `share` in its entry of `ADJOIN_DEVICES`.

In come a DeviceShare, the part that is held (if one is meant) and the partitions of the device; out goes plain data. An
entry with `part` is about that part of the device and nothing else on it; one without is about the whole device on its
way into the mode or back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adjoin.environment import ShareFacts
from adjoin_allocator.model import PlacedShare, Slice
from adjoin_allocator.terms import ShareMode


def told_of_part(
    share: ShareFacts | None, part: PlacedShare, key: str, slices: Sequence[Slice], hardware_id: str = ""
) -> dict[str, Any]:
    """What a hook is told that works on one part of a device. `key` is by which it reports the part, `hardware_id` what
    an earlier hook reported of it."""
    told = {
        **_settings(share, slices),
        "name": part.name,
        "part": key,
        "slots": part.slots,
        "memory": part.memory_bytes,
        "compute": part.compute_milli,
        "profile": part.profile,
        "start": part.start,
        "size": _size(part, slices),
        "vf": part.vf,
        "id": hardware_id or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def told_of_device(share: ShareFacts, slices: Sequence[Slice]) -> dict[str, Any]:
    """What a hook is told that brings a device into the share's mode, or returns it to whole."""
    told = {"name": share.meta.name, **_settings(share, slices)}
    return {name: value for name, value in told.items() if value is not None}


def _settings(share: ShareFacts | None, slices: Sequence[Slice]) -> Mapping[str, Any]:
    """What holds for every device of the share. Of a share that is not there nothing is known but its name."""
    if share is None:
        return {}
    spec = share.share.spec
    told: dict[str, Any] = {"mode": spec.mode.value}
    match spec.mode:
        case ShareMode.TIME_SLICED if spec.time_sliced is not None:
            told |= {"interval": spec.time_sliced.interval.value, "of": spec.time_sliced.slots}
        case ShareMode.MPS if spec.mps is not None and spec.mps.max_clients is not None:
            told["of"] = spec.mps.max_clients
        case ShareMode.VIRTUAL_FUNCTIONS if spec.virtual_functions is not None:
            told["of"] = spec.virtual_functions.count
        case ShareMode.PARTITIONED if spec.partitioned is not None and spec.partitioned.layout is not None:
            told["layout"] = [each._asdict() for each in slices]
        case _:
            pass
    return told


def _size(part: PlacedShare, slices: Sequence[Slice]) -> int | None:
    return next((each.size for each in slices if (each.profile, each.start) == (part.profile, part.start)), None)
