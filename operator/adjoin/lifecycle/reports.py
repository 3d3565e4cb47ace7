"""What init hooks say they made, read back from the devices, and whether that is what was asked.

In come a hook's last words and the parts that it was given; out go the parts as reported, and what differs. A tool that
returns success has set nothing until that was read back: whatever a hook reports counts, and nothing is assumed of what
it does not report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adjoin_allocator.model import PlacedDevice, PlacedShare

MEBIBYTE: Final = 1 << 20
"""The unit in which tools set and show limits of memory: a rest below it is no difference."""
PERCENT: Final = 10
"""Thousandths in the unit in which tools set and show limits of compute."""


@dataclass(frozen=True, slots=True)
class Report:
    """One part as a hook reports it; None of what it does not say.

    Attributes:
        id: Hardware identity of the part: MIG uuid, PCI address of a virtual function.
        memory: Bytes.
        compute: Thousandths of the card.
        profile: Partition profile.
        start: First memory slice.
        vf: Number of the virtual function.
        pipe: Directory by which the part's MPS daemon is reached.
        wrong: What of it cannot be read, in words, or "".
    """

    id: str | None = None
    memory: int | None = None
    compute: int | None = None
    profile: str | None = None
    start: int | None = None
    vf: int | None = None
    pipe: str | None = None
    wrong: str = ""


_TEXTS: Final = ("id", "profile", "pipe")
_NUMBERS: Final = ("memory", "compute", "start", "vf")


def part_keys(devices: Sequence[PlacedDevice]) -> tuple[str, ...]:
    """By which key a hook reports each device of a replica: the device's name, and `/1`, `/2` with the second and third
    entry of one name."""
    seen: dict[str, int] = {}
    keys = []
    for placed in devices:
        number = seen.get(placed.id.device, 0)
        seen[placed.id.device] = number + 1
        keys.append(f"{placed.id.device}/{number}" if number else placed.id.device)
    return tuple(keys)


def read_reports(message: str) -> Mapping[str, Report]:
    """The parts in a hook's JSON message, by key; none where it says nothing of the kind."""
    try:
        said = json.loads(message)
    except ValueError:
        return {}
    parts = said.get("parts") if isinstance(said, dict) else None
    return {str(key): _read(value) for key, value in parts.items()} if isinstance(parts, dict) else {}


def _read(value: Any) -> Report:
    if not isinstance(value, dict):
        return Report(wrong=f"reported {value!r}, which is no object")
    for name in (*_TEXTS, *_NUMBERS):
        given = value.get(name)
        if given is None:
            continue
        sound = isinstance(given, str) and given if name in _TEXTS else type(given) is int and given >= 0
        if not sound:
            return Report(wrong=f"reported {name} {given!r}")
    return Report(**{name: value[name] for name in (*_TEXTS, *_NUMBERS) if value.get(name) is not None})


def difference(asked: PlacedShare, report: Report) -> str:
    """What of a part was read back otherwise than asked, in words, or "". Memory counts to the mebibyte, compute to the
    percent, as no tool sets them finer."""
    if report.wrong:
        return report.wrong
    if asked.memory_bytes is not None and report.memory is not None:
        wanted, got = asked.memory_bytes // MEBIBYTE, report.memory // MEBIBYTE
        if wanted != got:
            return f"memory {got}Mi was read back, {wanted}Mi is asked"
    if asked.compute_milli is not None and report.compute is not None:
        wanted, got = max(1, asked.compute_milli // PERCENT), report.compute // PERCENT
        if wanted != got:
            return f"compute {got}% was read back, {wanted}% is asked"
    for name in ("profile", "start", "vf"):
        before, after = getattr(asked, name), getattr(report, name)
        if before is not None and after is not None and before != after:
            return f"{name} {after} was read back, {before} is asked"
    return ""


def without_parts(message: str) -> str:
    """A hook's message without what stands elsewhere in the status."""
    try:
        said = json.loads(message)
    except ValueError:
        return message
    if not isinstance(said, dict) or "parts" not in said:
        return message
    left = {key: value for key, value in said.items() if key != "parts"}
    return json.dumps(left, separators=(",", ":")) if left else ""


def refusal(differences: Mapping[str, str], devices: Sequence[str]) -> str:
    """What a status keeps of a hook whose parts are not as asked: `devices` are at fault."""
    text = "; ".join(f"{key}: {why}" for key, why in differences.items())
    return json.dumps({"message": text[:400], "failed": list(devices)[:16]}, separators=(",", ":"))
