"""What is written on devices by taints: what that means for a device, and whether its guard stands.

In come taints of ResourceSlices, DeviceTaintRules and a pool's health rules; out go answers for one device. Rules are
kept by what they name, so that a device asks only those that may mean it. Keys under `adjoin.dev/` are Adjoin's own
business and never say anything about a device's health. Nothing here puts a device into quarantine or tells anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adjoin.api.names import GROUP
from adjoin.api.pool_policy import HealthAction, HealthRule
from adjoin.facts import TaintRuleFacts
from adjoin_allocator.model import DeviceID, Taint

_Key = tuple[str, str]


def keeps_off(taint: Taint) -> bool:
    """Whether the taint keeps new users off a device."""
    return taint.effect in ("NoSchedule", "NoExecute")


def is_ours(taint: Taint) -> bool:
    """Whether the taint's key is Adjoin's."""
    return taint.key.startswith(f"{GROUP}/")


@dataclass(frozen=True, slots=True)
class Symptom:
    """A taint on a device, and what the device's pool makes of it.

    Attributes:
        taint: The taint.
        action: What the first health rule that matches says; None: no rule does, and the device is unhealthy while it
            has the taint.
    """

    taint: Taint
    action: HealthAction | None

    @property
    def excused(self) -> bool:
        """The device can be given out all the same."""
        return self.action in (HealthAction.IGNORE, HealthAction.EVENT)

    @property
    def quarantines(self) -> bool:
        """The device stays out of use when the taint has gone."""
        return self.action in (HealthAction.QUARANTINE_UNTIL_RESET, HealthAction.QUARANTINE_UNTIL_REPLACED)

    @property
    def text(self) -> str:
        """`taint gpu.nvidia.com/xid=31`."""
        return f"taint {self.taint.key}={self.taint.value}" if self.taint.value else f"taint {self.taint.key}"


@dataclass(frozen=True, slots=True)
class Tainted:
    """A device with taints that mean something to its pool.

    Attributes:
        device: Its name today.
        hardware_id: Its hardware id.
        pool: The DevicePool that has it.
        name: Its name there.
        node: Where it is.
        symptoms: What it has, those of its driver first.
    """

    device: DeviceID
    hardware_id: str
    pool: str
    name: str
    node: str
    symptoms: tuple[Symptom, ...]

    @property
    def ailing(self) -> Symptom | None:
        """The first taint that keeps the device out of use."""
        return next((each for each in self.symptoms if not each.excused), None)

    @property
    def gravest(self) -> Symptom | None:
        """The taint that puts the device into quarantine, of several the one with the longer way out."""
        found = [each for each in self.symptoms if each.quarantines]
        replaced = (each for each in found if each.action is HealthAction.QUARANTINE_UNTIL_REPLACED)
        return next(replaced, found[0] if found else None)


def action_of(taint: Taint, rules: Sequence[HealthRule]) -> HealthAction | None:
    """What the first rule that matches says of a taint, None where none does."""
    for rule in rules:
        if rule.taint_key == taint.key and (not rule.values or taint.value in rule.values):
            return rule.action
    return None


def symptoms(taints: Iterable[Taint], rules: Sequence[HealthRule]) -> tuple[Symptom, ...]:
    """What the taints of one device mean. A rule speaks of a taint whatever its effect; where none does, a taint
    without NoSchedule or NoExecute means nothing."""
    found: dict[Symptom, None] = {}
    for taint in taints:
        if is_ours(taint):
            continue
        action = action_of(taint, rules)
        if action is not None or keeps_off(taint):
            found[Symptom(taint, action)] = None
    return tuple(found)


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
            if not is_ours(rule.taint):
                taints.setdefault(rule.device, set()).add(rule.taint)
            elif rule.guards and keeps_off(rule.taint):
                guards.setdefault(rule.device, set()).add(rule.guards)
        return DriverPoolRules(
            taints=_ordered(taints.pop("", set())),
            guards=frozenset(guards.pop("", set())),
            taints_by_device={device: _ordered(found) for device, found in taints.items()},
            guards_by_device={device: frozenset(found) for device, found in guards.items()},
        )


def _ordered(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    return tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect)))
