"""Drivers that published devices and publish none any more: a kubelet that was started anew, or a driver that is down.

In come what is published, what pools' statuses remember and what claims hold; out go by pool the drivers that are
silent now. When that began is remembered in the pool's status, since nothing else in the cluster tells it; whether it
has lasted too long is for the caller to say, who knows the time. A node that is gone has no silent driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adjoin.api.names import DRIVER
from adjoin.api.quantity import milliseconds
from adjoin.facts import NodeFacts, PoolFacts, Raw, moment
from adjoin.inventory.driver_pools import DriverPool, Key
from adjoin.inventory.held import Found
from adjoin.inventory.pools import PoolRules
from adjoin_allocator.terms import Standing


@dataclass(frozen=True, slots=True)
class Silence:
    """A driver that publishes nothing any more under a name.

    Attributes:
        driver: The driver.
        pool: Its pool's name, for most drivers the node's.
        node: The node.
        since: Since when, as the status remembers; None: it does not yet.
        held: A claim holds a device of it.
    """

    driver: str
    pool: str
    node: str
    since: float | None = None
    held: bool = False

    @property
    def key(self) -> Key:
        """Driver and name of its pool."""
        return self.driver, self.pool


def grace_of(pool: PoolFacts) -> float:
    """`health.driverGrace` in seconds."""
    return milliseconds(pool.pool.spec.health.driver_grace) / 1000


def read_silences(status: Raw) -> tuple[Silence, ...]:
    """What a pool's status remembers. An entry whose time cannot be read counts as not remembered."""
    found: dict[Key, Silence] = {}
    for entry in status.get("silent") or ():
        since = moment(entry.get("since"))
        silence = Silence(
            str(entry.get("driver") or ""), str(entry.get("pool") or ""), str(entry.get("node") or ""), since
        )
        found.setdefault(silence.key, silence)
    return tuple(found.values())


def overdue(pools: Iterable[PoolFacts], now: float) -> tuple[Mapping[str, frozenset[Key]], float | None]:
    """By pool the drivers that have been silent for longer than its grace, by what the statuses remember, and when the
    next one will have been. Whether they still are is not looked at."""
    late: dict[str, frozenset[Key]] = {}
    wakes: list[float] = []
    for pool in pools:
        remembered = read_silences(pool.status)
        if not remembered:
            continue
        grace = grace_of(pool)
        ends = {each.key: each.since + grace for each in remembered if each.since is not None}
        late[pool.meta.name] = frozenset(key for key, end in ends.items() if end <= now)
        wakes += [end for end in ends.values() if end > now]
    return late, min(wakes, default=None)


def silent_drivers(
    pools: Mapping[str, PoolRules],
    published: Mapping[Key, DriverPool],
    vanished: Mapping[Key, Any],
    nodes: Mapping[str, NodeFacts],
    found: Mapping[str, Found],
) -> Mapping[str, tuple[Silence, ...]]:
    """By pool its silent drivers, in order of driver and name.

    Args:
        pools: DevicePools by name.
        published: What drivers publish.
        vanished: By driver and name the nodes of what was published a moment ago and is not remembered yet.
        nodes: Nodes by name.
        found: Held devices by node.
    """
    held: dict[str, dict[Key, str]] = {}
    for node, there in found.items():
        for device in there.devices:
            key = (device.id.driver, device.id.pool)
            if device.standing is Standing.MISSING and device.id.driver != DRIVER and key not in published:
                held.setdefault(device.device_pool, {})[key] = node
    made: dict[str, tuple[Silence, ...]] = {}
    for name, rules in pools.items():
        mine = held.get(name, {})
        candidates = {each.key: each for each in read_silences(rules.facts.status)}
        for key, places in vanished.items():
            for node in places:
                candidates.setdefault(key, Silence(*key, node))
        for key, node in mine.items():
            candidates.setdefault(key, Silence(*key, node))
        silent = [
            Silence(each.driver, each.pool, each.node, each.since, held=key in mine)
            for key, each in sorted(candidates.items())
            if key not in published
            and each.node in nodes
            and (key in mine or (each.driver in rules.published and rules.selects(nodes[each.node].node.labels)))
        ]
        if silent:
            made[name] = tuple(silent)
    return made
