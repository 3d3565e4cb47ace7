"""Whether a device matches a list of selectors, and what was missing where it does not.

Comes in: compiled selectors and devices. Goes out: `Match` for one device, `SelectorReport` for many. A selector that
fails on a device does not match it; nothing is ever raised.

Devices of a cluster are many and their kinds are few. What a selector says depends on the facts that it reads, so
verdicts are kept by those facts, and a hundred thousand devices of one kind cost one evaluation. The memory is bounded
and changes nothing but speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from adjoin_allocator.cel import AttributeValue, DeviceView, EvaluationError, Quantity, Selector


@dataclass(frozen=True, slots=True)
class Match:
    """Whether a device matches; `missing` names facts (`domain/name`) whose absence kept it from matching."""

    matched: bool
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SelectorReport:
    """How many devices were looked at and matched, and on how many of the others which fact was missing, by name."""

    devices: int
    matched: int
    missing: tuple[tuple[str, int], ...]


_REMEMBERED: Final = 65_536
"""How many verdicts are kept, of all selectors together."""

_MATCHED: Final = Match(True)

Profile = Callable[[DeviceView], Hashable]
"""All of a device that the verdict of one selector can depend on."""


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    selector: Selector
    profile: Profile
    verdicts: dict[Hashable, Match] = field(default_factory=dict)

    def hear(self, device: DeviceView) -> Match:
        try:
            matched = self.selector.matches(device)
        except EvaluationError:
            matched = False
        return _MATCHED if matched else Match(False, self.selector.missing(device))


class _Court:
    """The judges by expression, with what they have decided so far."""

    def __init__(self) -> None:
        self._judges: dict[str, _Judge] = {}
        self._decided = 0

    def decide(self, selector: Selector, device: DeviceView) -> Match:
        judge = self._judges.get(selector.expression)
        if judge is None:
            judge = self._judges[selector.expression] = _Judge(selector, _profile(selector))
        key = judge.profile(device)
        verdict = judge.verdicts.get(key)
        if verdict is None:
            verdict = judge.hear(device)
            if self._decided >= _REMEMBERED:
                self._judges = {}
                self._decided = 0
            judge.verdicts[key] = verdict
            self._decided += 1
        return verdict


_court: Final = _Court()


def match_all(selectors: Sequence[Selector], device: DeviceView) -> Match:
    """Whether all selectors match; without any, every device does. All that do not match say what was missing."""
    failed: Match | None = None
    for selector in selectors:
        verdict = _court.decide(selector, device)
        if not verdict.matched:
            failed = verdict if failed is None else Match(False, failed.missing | verdict.missing)
    return failed or _MATCHED


def survey(selectors: Sequence[Selector], devices: Iterable[DeviceView]) -> SelectorReport:
    """What the selectors say of many devices."""
    total = matched = 0
    missing: Counter[str] = Counter()
    for device in devices:
        total += 1
        verdict = match_all(selectors, device)
        matched += verdict.matched
        if verdict.missing:
            missing.update(verdict.missing)
    return SelectorReport(total, matched, tuple(sorted(missing.items())))


def _profile(selector: Selector) -> Profile:
    if selector.reads_all:
        return _whole_profile
    names, amounts = tuple(selector.attribute_reads), tuple(selector.capacity_reads)
    if not (amounts or selector.reads_driver or selector.reads_sharing):
        return lambda device: _told_apart(tuple(map(device.attributes.get, names)))
    reads_driver = selector.reads_driver

    def profile(device: DeviceView) -> Hashable:
        return (
            _told_apart(tuple(map(device.attributes.get, names))),
            tuple([_notation(device.capacity.get(name)) for name in amounts]),
            device.driver if reads_driver else "",
            device.allow_multiple_allocations,
        )

    return profile


def _whole_profile(device: DeviceView) -> Hashable:
    names = tuple(sorted(device.attributes))
    return (
        names,
        _told_apart(tuple([device.attributes[name] for name in names])),
        tuple([(name, _notation(device.capacity[name])) for name in sorted(device.capacity)]),
        device.driver,
        device.allow_multiple_allocations,
    )


def _told_apart(values: tuple[AttributeValue | None, ...]) -> Hashable:
    """The values together with their types: to Python True equals 1, to an expression it does not."""
    kinds = tuple(map(type, values))
    if tuple in kinds:
        return values, kinds, tuple([tuple(map(type, value)) for value in values if isinstance(value, tuple)])
    return values, kinds


def _notation(amount: Quantity | None) -> Hashable:
    """How an amount is written: 1 equals 1000m, but to an expression only one of them is an integer."""
    return None if amount is None else (amount.unscaled, amount.scale, amount.fits_int64)
