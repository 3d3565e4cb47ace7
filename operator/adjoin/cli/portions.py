"""Parts of devices in words.

In comes the `share` of a held device, as a status has it; out goes what it is, for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def amount(count: int) -> str:
    """Bytes in the largest binary unit in which they are a whole number."""
    unit, size = next(((unit, size) for unit, size in _UNITS if count and not count % size), ("", 1))
    return f"{count // size}{unit}"


def words(share: Mapping[str, Any] | None) -> str:
    """Such as `half 40Gi 500m`, `mig 1g.10gb at 3`, `turns 2 slots`; "" of a whole device."""
    if share is None:
        return ""
    told = [str(share["name"])]
    if (slots := share.get("slots")) is not None:
        told.append(f"{slots} slot{'' if slots == 1 else 's'}")
    if (memory := share.get("memory")) is not None:
        told.append(amount(memory))
    if (compute := share.get("compute")) is not None:
        told.append(f"{compute}m")
    if (profile := share.get("profile")) is not None:
        told.append(str(profile))
    if (start := share.get("start")) is not None:
        told.append(f"at {start}")
    if (function := share.get("vf")) is not None:
        told.append(f"function {function}")
    return " ".join(told)
