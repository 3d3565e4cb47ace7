"""What is written on devices by taints: whether one is unhealthy, and whether its guard stands.

In come DeviceTaintRules; out go answers for one device. Rules are kept by what they name, so that a device asks only
those that may mean it. Keys under `adjoin.dev/` are Adjoin's own business and never make a device unhealthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from adjoin.api.names import GROUP
from adjoin.facts import TaintRuleFacts
from adjoin_allocator.model import Taint

_Key = tuple[str, str]


def keeps_off(taint: Taint) -> bool:
    """Whether the taint keeps new users off a device."""
    return taint.effect in ("NoSchedule", "NoExecute")


def is_ours(taint: Taint) -> bool:
    """Whether the taint's key is Adjoin's."""
    return taint.key.startswith(f"{GROUP}/")


@dataclass(frozen=True, slots=True, eq=False)
class DriverPoolRules:
    """The taint rules that can mean devices of one driver pool.

    Attributes:
        taints: Those that hold for every device, then by device name.
        guards: Names of DevicePools whose guard covers every device, and by device name.
    """

    taints: tuple[Taint, ...]
    taints_by_device: Mapping[str, tuple[Taint, ...]]
    guards: frozenset[str]
    guards_by_device: Mapping[str, frozenset[str]]

    def on(self, device: str) -> Iterator[Taint]:
        """Taints that rules put on the device."""
        yield from self.taints
        yield from self.taints_by_device.get(device, ())

    def guarded(self, device: str, pool: str) -> bool:
        """Whether a guard of that DevicePool covers the device."""
        return pool in self.guards or pool in self.guards_by_device.get(device, ())


def scopes(driver: str, pool: str) -> tuple[_Key, ...]:
    """Under which (driver, pool) a rule may stand that means devices of this driver pool."""
    return (driver, pool), (driver, ""), ("", pool), ("", "")


NO_RULES = DriverPoolRules((), {}, frozenset(), {})


class TaintRules:
    """All DeviceTaintRules, by the driver and pool that they name ("" = any)."""

    def __init__(self, rules: Iterable[TaintRuleFacts] = ()) -> None:
        self._rules: dict[_Key, list[TaintRuleFacts]] = {}
        for rule in rules:
            if rule.selects:
                self._rules.setdefault((rule.driver, rule.pool), []).append(rule)

    def for_driver_pool(self, driver: str, pool: str) -> DriverPoolRules:
        """The rules that can mean devices of that driver pool."""
        rules = [rule for key in scopes(driver, pool) for rule in self._rules.get(key, ())]
        if not rules:
            return NO_RULES
        taints: dict[str, set[Taint]] = {}
        guards: dict[str, set[str]] = {}
        for rule in rules:
            if not keeps_off(rule.taint):
                continue
            if not is_ours(rule.taint):
                taints.setdefault(rule.device, set()).add(rule.taint)
            elif rule.guards:
                guards.setdefault(rule.device, set()).add(rule.guards)
        return DriverPoolRules(
            taints=_ordered(taints.pop("", set())),
            guards=frozenset(guards.pop("", set())),
            taints_by_device={device: _ordered(found) for device, found in taints.items()},
            guards_by_device={device: frozenset(found) for device, found in guards.items()},
        )


def _ordered(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    return tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect)))


def ailment(published: Iterable[Taint], ruled: Iterable[Taint]) -> str:
    """What makes a device unhealthy (`taint gpu.nvidia.com/xid=31`), or "". No health rule excuses a taint yet."""
    for taint in (*published, *ruled):
        if keeps_off(taint) and not is_ours(taint):
            return f"taint {taint.key}={taint.value}" if taint.value else f"taint {taint.key}"
    return ""
