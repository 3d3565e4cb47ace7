"""What one decision works on, and what it gathers.

A `Scene` is the same for everything that is decided at one instant; `Work` collects intents and the times at which to
look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from adjoin.cache import View
from adjoin.facts import PoolFacts
from adjoin.intents import Intent, Step
from adjoin.inventory import Inventory, device_key
from adjoin.lifecycle import Relations
from adjoin.status import Evicted
from adjoin_allocator.model import PlacedDevice
from adjoin_allocator.results import Plan
from adjoin_allocator.snapshot import Snapshot

ORDER_GUARD, ORDER_RELEASE, ORDER_PLACE, ORDER_SHOW, ORDER_TELL = range(5)
_WINDOW = 0.25
"""The part of such a period in which the write may happen."""


def turn(uid: str, period: float, now: float) -> tuple[bool, float]:
    """Whether it is this object's turn to have mere numbers written, and when its next turn is.

    Turns are spread over the period by UID, so that a change that touches a thousand waiting claims is not a thousand
    writes at once. They depend on nothing but UID and time.
    """
    shift = crc32(uid.encode()) % int(period) if period > 1 else 0
    position = (now - shift) % period
    return position < period * _WINDOW, now + period - position


@dataclass(slots=True)
class Work:
    """Intents and wake-up times gathered while one decision is made.

    `withheld` is set when something was wanted of a busy subject: it will be wanted again when nothing but that has
    changed.
    """

    busy: frozenset[str]
    intents: list[Intent] = field(default_factory=list)
    withheld: bool = False
    wakes: list[float] = field(default_factory=list)

    def want(
        self, subject: str, why: str, steps: Iterable[Step], order: int, assume: Mapping[str, object] | None = None
    ) -> None:
        found = tuple(steps)
        if found and subject in self.busy:
            self.withheld = True
        elif found:
            self.intents.append(Intent(subject, why, found, assume, order, words=order >= ORDER_SHOW))

    def wake(self, at: float | None) -> None:
        if at is not None:
            self.wakes.append(at)

    def take(self, other: Work) -> None:
        self.intents += other.intents
        self.wakes += other.wakes


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What is the same for all claims of one decision. `fragmentation` is by pool and device name, `evicted` by UID
    of the claim that has to give something, `abandoned` by UID of the claim whose replicas are on nodes that are given
    up, `locked` by UID of the DevicePool whose status has the devices in quarantine."""

    view: View
    inventory: Inventory
    plan: Plan
    fragmentation: Mapping[str, Mapping[str, float]]
    relations: Relations
    lost: Mapping[str, Mapping[int, str]]
    boot_ids: Mapping[str, str]
    now: float
    evicted: Mapping[str, Evicted]
    snapshot: Snapshot
    abandoned: Mapping[str, frozenset[int]] = field(default_factory=dict)
    locked: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def quarantined(self, pool: PoolFacts | None, placed: PlacedDevice) -> bool:
        """Whether the pool's status says already that nobody gets the device."""
        return pool is None or device_key(placed.hardware_id, placed.id) in self.locked.get(pool.meta.uid, ())
