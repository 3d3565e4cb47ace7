"""Whether a device matches a list of selectors, and what was missing where it does not.

Devices of a cluster are many and their kinds are few: what a selector says depends on the facts that it reads, so
verdicts are kept by those
facts and a hundred thousand equal devices cost one evaluation. The memory is bounded and changes nothing but speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from adjoin_allocator.cel import DeviceView, EvaluationError, Selector

_REMEMBERED = 65_536


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


_MATCHED = Match(True)
_verdicts: dict[Hashable, Match] = {}


def _essence(selector: Selector, device: DeviceView) -> Hashable:
    """What of the device the selector's verdict depends on."""
    attributes, capacity = device.attributes, device.capacity
    if selector.reads_all:
        facts: Hashable = (frozenset(attributes.items()), frozenset(capacity.items()))
    else:
        # True and 1 are equal in Python and different in CEL, hence the types.
        values = [attributes.get(name) for name in sorted(selector.attribute_reads)]
        values += [capacity.get(name) for name in sorted(selector.capacity_reads)]  # type: ignore[misc]
        facts = tuple((type(value), value) for value in values)
    driver = device.driver if selector.reads_driver or selector.reads_all else ""
    return (selector.expression, facts, driver, selector.reads_sharing and device.allow_multiple_allocations)


def _judge(selector: Selector, device: DeviceView) -> Match:
    key = _essence(selector, device)
    known = _verdicts.get(key)
    if known is None:
        try:
            matched = selector.matches(device)
        except EvaluationError:
            matched = False
        known = _MATCHED if matched else Match(False, selector.missing(device))
        if len(_verdicts) >= _REMEMBERED:
            _verdicts.clear()
        _verdicts[key] = known
    return known


def match_all(selectors: Sequence[Selector], device: DeviceView) -> Match:
    """Whether all selectors match; without any, every device does. The first that does not match says what was
    missing."""
    for selector in selectors:
        verdict = _judge(selector, device)
        if not verdict.matched:
            return verdict
    return _MATCHED


def survey(selectors: Sequence[Selector], devices: Iterable[DeviceView]) -> SelectorReport:
    """What the selectors say of many devices. O(devices)."""
    total = matched = 0
    missing: Counter[str] = Counter()
    for device in devices:
        total += 1
        verdict = match_all(selectors, device)
        matched += verdict.matched
        missing.update(verdict.missing)
    return SelectorReport(total, matched, tuple(sorted(missing.items())))
