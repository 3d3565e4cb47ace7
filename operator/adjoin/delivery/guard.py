"""The guard: DeviceTaintRules that keep kube-scheduler from giving a pool's devices to other claims.

In come a pool, the devices that are its own, everything that drivers publish and the rules that stand; out go the
fewest rules that cover exactly its devices: one per driver where the driver publishes nothing else, else one per driver
pool, else one per device. New rules come before the ones they replace go. A rule whose devices are not published at the
moment stays: they may return.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

from adjoin.api.names import DRIVER, FINALIZER, GROUP
from adjoin.facts import LABEL_GUARD, NodeFacts, PoolFacts, SliceFacts, TaintRuleFacts
from adjoin.intents import Kind, Step, Verb
from adjoin.lifecycle import add_finalizer, drop_finalizer
from adjoin_allocator.model import DeviceID

GUARD_TAINT = f"{GROUP}/guard"
EFFECT = "NoSchedule"
BATCHES = 16
"""So many groups of rules are written side by side; a pool of a thousand nodes may need thousands."""
KNOWN_SECONDS = 3.0
"""So long kube-scheduler may take until it knows a new rule and has written what it decided without it. Whole seconds
of a creationTimestamp are cut off, so it is one second less at worst; half a second was seen on a slow machine."""
NEW_NODE_SECONDS = 120.0
"""A node's labels may come a while after its devices. So long a broad rule is not taken apart because of devices on
it."""


class Target(NamedTuple):
    """Devices that one rule selects; "" is any."""

    driver: str
    pool: str
    device: str

    def covers(self, device: DeviceID) -> bool:
        """Whether `device` is among them."""
        return self.driver == device.driver and self.pool in ("", device.pool) and self.device in ("", device.device)

    def within(self, other: Target) -> bool:
        """Whether `other` selects all of these too, and more."""
        return self != other and other.covers(DeviceID(*self))


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """Every device that drivers publish in their newest generation, with its node: by driver, then by driver pool."""

    devices: Mapping[str, Mapping[str, Mapping[DeviceID, str]]]

    def all(self, target: Target) -> Iterable[tuple[DeviceID, str]]:
        """Published devices that `target` selects, with their nodes."""
        by_pool = self.devices.get(target.driver, {})
        for pool, devices in by_pool.items() if not target.pool else ((target.pool, by_pool.get(target.pool, {})),):
            del pool
            for device, node in devices.items():
                if target.device in ("", device.device):
                    yield device, node


def published(slices: Iterable[SliceFacts]) -> Published:
    """What is published now. O(devices)."""
    newest: dict[tuple[str, str], int] = {}
    held = tuple(slices)
    for one in held:
        key = (one.driver, one.pool)
        newest[key] = max(newest.get(key, one.generation), one.generation)
    devices: defaultdict[str, defaultdict[str, dict[DeviceID, str]]] = defaultdict(lambda: defaultdict(dict))
    for one in held:
        if one.generation == newest[one.driver, one.pool]:
            place = devices[one.driver][one.pool]
            for device in one.devices:
                place[DeviceID(one.driver, one.pool, device.name)] = device.node or one.node
    return Published(devices)


def targets(
    mine: Iterable[DeviceID], everything: Published, tolerated: Callable[[str], bool] = lambda node: False
) -> set[Target]:
    """The fewest targets that cover `mine` and no other published device, but for those on nodes that `tolerated`
    excuses."""
    own: defaultdict[str, defaultdict[str, set[DeviceID]]] = defaultdict(lambda: defaultdict(set))
    for device in mine:
        if device.driver != DRIVER:  # kube-scheduler cannot give out what no ResourceSlice publishes
            own[device.driver][device.pool].add(device)

    def exact(target: Target, devices: set[DeviceID]) -> bool:
        return all(device in devices or tolerated(node) for device, node in everything.all(target))

    chosen: set[Target] = set()
    for driver, pools in own.items():
        whole = Target(driver, "", "")
        if exact(whole, set().union(*pools.values())):
            chosen.add(whole)
            continue
        for pool, devices in pools.items():
            narrow = Target(driver, pool, "")
            if exact(narrow, devices):
                chosen.add(narrow)
            else:
                chosen.update(Target(*device) for device in devices)
    return chosen


def in_force(rules: Mapping[str, TaintRuleFacts], now: float) -> tuple[Mapping[str, TaintRuleFacts], float | None]:
    """Rules that kube-scheduler can be taken to obey, and when the next one comes to be; the same mapping when all
    are."""
    young = {
        uid: rule.meta.created + KNOWN_SECONDS
        for uid, rule in rules.items()
        if rule.guards and rule.meta.created is not None and now < rule.meta.created + KNOWN_SECONDS
    }
    if not young:
        return rules, None
    return {uid: rule for uid, rule in rules.items() if uid not in young}, min(young.values())


def rule_name(pool: PoolFacts, target: Target) -> str:
    """Name of the rule of a pool for a target: bound to the pool's UID, so that a pool of the same name starts with its
    own."""
    digest = blake2b("\0".join((pool.meta.uid, *target)).encode(), digest_size=8).hexdigest()
    return f"adjoin-{pool.meta.name}-{digest}"


def _create(pool: PoolFacts, target: Target) -> Step:
    name = rule_name(pool, target)
    body = {
        "apiVersion": Kind.TAINT_RULE.value.api_version,
        "kind": Kind.TAINT_RULE.value.kind,
        "metadata": {
            "name": name,
            "labels": {LABEL_GUARD: pool.meta.name},
            "ownerReferences": [
                {
                    "apiVersion": Kind.DEVICE_POOL.value.api_version,
                    "kind": Kind.DEVICE_POOL.value.kind,
                    "name": pool.meta.name,
                    "uid": pool.meta.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "deviceSelector": {key: value for key, value in target._asdict().items() if value},
            "taint": {"key": GUARD_TAINT, "value": pool.meta.name, "effect": EFFECT},
        },
    }
    return Step(Verb.CREATE, Kind.TAINT_RULE, "", name, body=body)


def _delete(rule: TaintRuleFacts) -> Step:
    return Step(Verb.DELETE, Kind.TAINT_RULE, "", rule.meta.name, rule.meta.uid)


def _sound(rule: TaintRuleFacts, pool: PoolFacts) -> bool:
    taint = rule.taint
    return rule.selects and (taint.key, taint.value, taint.effect) == (GUARD_TAINT, pool.meta.name, EFFECT)


def _may_return(target: Target, pool: PoolFacts, everything: Published, nodes: Mapping[str, NodeFacts]) -> bool:
    """Whether devices of a rule that covers nothing published may come back: their driver pool is silent, but its node
    is there."""
    drivers = {
        device.source.resource_slices.driver for device in pool.pool.spec.devices if device.source.resource_slices
    }
    if target.driver not in drivers:
        return False
    if not target.pool:
        return True
    return target.pool not in everything.devices.get(target.driver, {}) and target.pool in nodes


@dataclass(frozen=True, slots=True)
class GuardWork:
    """What is missing or too much in a pool's guard.

    Attributes:
        repairs: Requests that come first: our finalizer on the pool, and away with rules that somebody changed.
        creations: New rules.
        deletions: Rules that are not needed once all new ones stand.
        wake_at: When to look again although nothing changed, or None.
    """

    repairs: tuple[Step, ...] = ()
    creations: tuple[Step, ...] = ()
    deletions: tuple[Step, ...] = ()
    wake_at: float | None = None

    @property
    def batches(self) -> Mapping[str, tuple[Step, ...]]:
        """What to do now, in batches that may run side by side, by a name that each keeps while it is under way."""
        if self.repairs:
            return {"repair": self.repairs}
        made: dict[str, list[Step]] = {}
        for step in self.creations or self.deletions:
            made.setdefault(f"{step.verb.value} {crc32(step.name.encode()) % BATCHES}", []).append(step)
        return {name: tuple(steps) for name, steps in made.items()}


def guard_work(
    pool: PoolFacts,
    mine: Iterable[DeviceID],
    everything: Published,
    rules: Iterable[TaintRuleFacts],
    nodes: Mapping[str, NodeFacts],
    now: float,
) -> GuardWork:
    """The work on the guard of a pool. `mine` are its published devices, `rules` those that carry its label."""
    own = set(mine)
    settled: list[float] = []

    def new(node: str) -> bool:
        facts = nodes.get(node)
        if facts is None or facts.meta.created is None or facts.meta.created + NEW_NODE_SECONDS <= now:
            return False
        settled.append(facts.meta.created + NEW_NODE_SECONDS)
        return True

    standing: dict[Target, TaintRuleFacts] = {}
    repairs: list[Step] = []
    deletions: list[Step] = []
    for rule in sorted(rules, key=lambda each: each.meta.name):
        target = Target(rule.driver, rule.pool, rule.device)
        if rule.meta.deleting is not None:
            continue
        if _sound(rule, pool) and target not in standing:
            standing[target] = rule
        else:
            repairs.append(_delete(rule))
    wanted = targets(own, everything)
    # A broad rule that stands is kept for the sake of a new node, but never made for it.
    spared = (targets(own, everything, new) - wanted) & standing.keys()
    wanted = {target for target in wanted if not any(target.within(broad) for broad in spared)} | spared
    for target, rule in standing.items():
        if target in wanted:
            continue
        covers_something = next(iter(everything.all(target)), None) is not None
        if (
            covers_something
            or any(target.within(other) for other in wanted)
            or not _may_return(target, pool, everything, nodes)
        ):
            deletions.append(_delete(rule))
    creations = [_create(pool, target) for target in sorted(wanted - standing.keys())]
    if creations and FINALIZER not in pool.finalizers and pool.meta.deleting is None:
        repairs.insert(0, add_finalizer(Kind.DEVICE_POOL, pool))
    wake_at = min(settled, default=None) if spared else None
    _, obeyed_at = in_force({rule.meta.uid: rule for target, rule in standing.items() if target in wanted}, now)
    if deletions and obeyed_at is not None:
        # What new rules take the place of stays until those are obeyed, so that no device is without guard in between.
        return GuardWork(tuple(repairs), tuple(creations), (), obeyed_at)
    return GuardWork(tuple(repairs), tuple(creations), tuple(deletions), wake_at)


def take_down(rules: Iterable[TaintRuleFacts]) -> tuple[Step, ...]:
    """Removes a pool's guard."""
    return tuple(_delete(rule) for rule in sorted(rules, key=lambda each: each.meta.name) if rule.meta.deleting is None)


def release_pool(pool: PoolFacts, rules: Iterable[TaintRuleFacts]) -> tuple[Step, ...]:
    """Removes the guard of a deleted pool and lets the pool go."""
    if FINALIZER not in pool.finalizers:
        return take_down(rules)
    return (*take_down(rules), drop_finalizer(Kind.DEVICE_POOL, pool))
