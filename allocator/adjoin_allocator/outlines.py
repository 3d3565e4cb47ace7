"""What a choice looks like on any node of its shape: a row for each device or part of one, and how near they are.

In come an ask, a shape and a choice in it (masks by request), out comes an `Outline` in places of devices, to be filled
with a node's own devices (`of`). Nothing is chosen here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from adjoin_allocator.alternatives import label
from adjoin_allocator.budgets import consumed_by
from adjoin_allocator.fit import Fitter
from adjoin_allocator.model import Device, PlacedDevice, PlacedShare
from adjoin_allocator.nodes import Shape
from adjoin_allocator.place import Ask
from adjoin_allocator.tariff import granted

OUTLINES: Final = 16_384
"""How many outlines are remembered."""


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """A choice in places.

    Attributes:
        rows: What a device is called by, its place, and the part of it.
        locality: As in `Placement`.
    """

    rows: tuple[tuple[str, int, PlacedShare | None], ...]
    locality: Mapping[str, str]

    def of(self, devices: Sequence[Device]) -> tuple[PlacedDevice, ...]:
        """The choice on a node with these devices."""
        return tuple(
            [
                PlacedDevice(told, (device := devices[place]).id, device.hardware_id, share, consumed_by(device))
                for told, place, share in self.rows
            ]
        )


class Outlines:
    """Outlines, made once."""

    def __init__(self, fitter: Fitter) -> None:
        self._fitter = fitter
        self._known: dict[tuple[Ask, Shape, tuple[int, ...]], Outline] = {}

    def of(self, ask: Ask, shape: Shape, masks: tuple[int, ...]) -> Outline:
        """The outline of a choice."""
        key = (ask, shape, masks)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= OUTLINES:
                self._known.clear()
            found = self._known[key] = self._make(ask, shape, masks)
        return found

    def _make(self, ask: Ask, shape: Shape, masks: tuple[int, ...]) -> Outline:
        rows = []
        for request, place in granted(ask, masks):
            share = None if request.share is None else request.share.placed
            rows.append((label(request), place, share))
        names = [request.name for request in ask.requests]
        reached = self._fitter.locality(ask.form, shape, masks)
        return Outline(tuple(rows), {f"{names[one]}-{names[other]}": level for one, other, level in reached})
