"""Where an object of another API is not what that API says: the first field that has a wrong shape, in words.

In comes an object that could not be read, out comes a sentence such as `spec.devices[0]: expected an object, found 5`.
Only what readers rely on is looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_DEVICE = ("", ".name", ".basic", ".attributes", ".attributes{}", ".capacity", ".taints", ".taints[]")
_DEVICES = tuple(f"spec.devices[]{field}" for field in (*_DEVICE, ".consumesCounters", ".consumesCounters[]"))
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "ResourceSlice": ("spec.pool", "spec.pool.name", "spec.driver", "spec.nodeName", "spec.devices", *_DEVICES),
    "ResourceClaim": (
        "status.allocation",
        "status.allocation.devices",
        "status.allocation.devices.results",
        "status.allocation.devices.results[]",
        "status.reservedFor",
        "status.reservedFor[]",
    ),
    "DeviceTaintRule": ("spec.taint", "spec.deviceSelector"),
    "Node": ("metadata.labels", "spec.taints", "spec.taints[]", "status.allocatable", "status.conditions[]"),
    "Pod": ("metadata.labels", "spec.schedulingGates[]", "spec.containers", "spec.containers[]"),
}
_TEXT = ("name", "driver", "nodeName")
_LISTS = ("devices", "taints", "consumesCounters", "results", "reservedFor", "containers")
_NEEDED = {"spec.devices[].name"}
_STEP = re.compile(r"\w+|\[\]|\{\}")


def misshapen(kind: str, body: Mapping[str, Any]) -> str | None:
    """The first field of a wrong shape, or None when all that is known of the kind is as it should be."""
    for field in ("metadata", "spec", "status", *_FIELDS.get(kind, ())):
        steps = _STEP.findall(field)
        last = steps[-1]
        wanted: tuple[type, str] = (Mapping, "an object")
        if last in _TEXT:
            wanted = (str, "text")
        elif last in _LISTS and not field.endswith("allocation.devices"):
            wanted = (list, "a list")
        for path, value in _values(body, steps, ""):
            if value is None and field not in _NEEDED and last != "[]":
                continue
            if not isinstance(value, wanted[0]):
                found = "nothing" if value is None else json.dumps(value, default=str)[:80]
                return f"{path}: expected {wanted[1]}, found {found}"
    return None


def _values(value: Any, steps: list[str], path: str) -> Iterator[tuple[str, Any]]:
    """All values at a path, with where they are; what has another shape on the way is passed over."""
    if not steps:
        yield path, value
        return
    step, *rest = steps
    if step == "[]":
        for place, item in enumerate(value if isinstance(value, list) else ()):
            yield from _values(item, rest, f"{path}[{place}]")
    elif isinstance(value, Mapping):
        for key in list(value) if step == "{}" else [step]:
            yield from _values(
                value.get(key), rest, f"{path}['{key}']" if step == "{}" else f"{path}.{key}".lstrip(".")
            )
