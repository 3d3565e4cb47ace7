"""Parts that hooks make of devices, and what they say of them.

In come a replica's entry in a claim's status and what hooks reported; out go what hooks are told of each part, what of
their reports is not as asked, and the entry with what is to be kept: the part's own identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adjoin.api.share import DeviceShareSpec
from adjoin.decision.scene import Scene
from adjoin.delivery import Holding, told_of_part
from adjoin.facts import Raw
from adjoin.holdings import read_placed
from adjoin.lifecycle import Report, difference, part_keys, refusal
from adjoin_allocator.model import PlacedDevice, Slice


def _placed(entry: Raw) -> tuple[PlacedDevice, ...]:
    (replica,) = read_placed({"allocation": {"replicas": [entry]}})
    return replica.devices


def told_of_parts(entry: Raw, scene: Scene) -> tuple[Mapping[str, Any] | None, ...]:
    """What hooks are told of each device of a replica, None of a whole one."""
    placed = _placed(entry)
    shares = {each.meta.name: each for each in scene.view.shares.values()}
    told: list[Mapping[str, Any] | None] = []
    for each, key, raw in zip(placed, part_keys(placed), entry.get("devices") or (), strict=True):
        if each.share is None:
            told.append(None)
            continue
        now = scene.inventory.current(str(entry.get("node") or ""), each)
        known = next(
            (one for one in scene.modes.by_device.get(now, ()) if one.share.meta.name == each.share.name), None
        )
        slices: tuple[Slice, ...] = known.slices if known is not None else ()
        identity = str((raw.get("share") or {}).get("id") or "")
        told.append(told_of_part(shares.get(each.share.name), each.share, key, slices, identity))
    return tuple(told)


def objection(entry: Raw, meant: Sequence[bool], reports: Mapping[str, Report]) -> str:
    """What a status keeps of a hook that read back other parts than the replica has, or "". One that reports parts
    reports all that it was `meant` for."""
    placed = _placed(entry)
    wrong: dict[str, str] = {}
    guilty: list[str] = []
    for each, key, mine in zip(placed, part_keys(placed), meant, strict=True):
        report = reports.get(key)
        if each.share is None or not mine:
            continue
        text = "nothing was read back" if report is None else difference(each.share, report)
        if text:
            wrong[key] = text
            guilty.append(each.id.device)
    return refusal(wrong, guilty) if wrong else ""


def with_reports(entry: Raw, reports: Mapping[str, Report]) -> Raw:
    """The replica's entry with the identity of its parts as they are now."""
    if not reports:
        return entry
    placed = _placed(entry)
    devices = []
    for raw, each, key in zip(entry.get("devices") or (), placed, part_keys(placed), strict=True):
        report = reports.get(key)
        if each.share is None or report is None:
            devices.append(raw)
            continue
        told = {"id": report.id, "pipe": report.pipe}
        devices.append({**raw, "share": {**raw["share"], **{name: text for name, text in told.items() if text}}})
    return {**entry, "devices": devices}


def holdings_of(entry: Raw, shares: Mapping[str, DeviceShareSpec]) -> tuple[Holding | None, ...]:
    """The part of each device that a replica has, None of a whole one. `shares` are by name."""
    found: list[Holding | None] = []
    for each, raw in zip(_placed(entry), entry.get("devices") or (), strict=True):
        if each.share is None:
            found.append(None)
            continue
        reported = raw["share"]
        identity, pipe = str(reported.get("id") or ""), str(reported.get("pipe") or "")
        spec = shares.get(each.share.name)
        interval = spec.time_sliced.interval.value if spec is not None and spec.time_sliced is not None else ""
        found.append(Holding(each.share, spec.mode if spec is not None else None, identity, pipe, interval))
    return tuple(found)
