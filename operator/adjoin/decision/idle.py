"""Free devices that nobody used for long: which were used since they were last cleaned, and whose turn it is now.

In come a pool with `lifecycle.idleClean` and what its status remembers of use; out go that memory as it should stand,
and entries for the quarantine, by which nobody gets a device while it is cleaned. A device is remembered from the
moment somebody has it until it has been cleaned while idle, so what nobody ever used costs nothing, and a restart
forgets nothing. The memory changes only when counts do, and is written with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adjoin.api.quantity import milliseconds
from adjoin.decision.entries import idle_entry
from adjoin.decision.passage import covers
from adjoin.decision.scene import Scene
from adjoin.facts import PoolFacts, Raw, moment
from adjoin.inventory import device_key
from adjoin.lifecycle import rfc3339
from adjoin_allocator.model import Device, DeviceID
from adjoin_allocator.terms import Standing

AT_ONCE: Final = 4
"""So many devices of a pool are cleaned at once: they are out of use meanwhile."""
REMEMBERED: Final = 2048
"""As many devices as a status remembers, those that are in use before those that are idle: it must fit into one
object."""


@dataclass(frozen=True, slots=True)
class Idle:
    """What becomes of a pool's idle devices.

    Attributes:
        used: `status.used` as it should stand.
        entries: Entries of devices whose turn it is.
        wake_at: When the next one's turn is, or None.
    """

    used: Sequence[Mapping[str, Any]] = ()
    entries: tuple[dict[str, Any], ...] = ()
    wake_at: float | None = None


def decide_idle(pool: PoolFacts, locked: Collection[str], cleaning: int, scene: Scene) -> Idle:
    """What becomes of a pool's idle devices.

    Args:
        pool: The pool.
        locked: Keys of its devices that are in quarantine, or on their way there.
        cleaning: How many of these are being cleaned for having been idle.
        scene: Everything else.
    """
    lifecycle, now = pool.pool.spec.lifecycle, scene.now
    if lifecycle.idle_clean is None or not lifecycle.cleanup:
        return Idle()
    after = milliseconds(lifecycle.idle_clean) / 1000
    held = _held(pool, scene)
    memory: dict[str, Raw] = {}
    for entry in pool.status.get("used") or ():
        id_ = DeviceID(str(entry.get("driver") or ""), str(entry.get("pool") or ""), str(entry.get("device") or ""))
        memory.setdefault(device_key(str(entry.get("id") or ""), id_), entry)
    for key, holding in held.items():
        memory[key] = {
            "driver": holding.id.driver,
            "pool": holding.id.pool,
            "device": holding.id.device,
            **({"id": holding.hardware_id} if holding.hardware_id else {}),
            "node": holding.node,
        }
    busy = taken(scene)
    used: list[Raw] = []
    turn: list[dict[str, Any]] = []
    wakes: list[float] = []
    for key, entry in sorted(memory.items()):
        node = str(entry.get("node") or "")
        if key in locked or node not in scene.view.nodes:
            # What is in quarantine is cleaned before it comes out.
            continue
        if key in held:
            used.append(entry)
            continue
        since = moment(entry.get("since"))
        if since is None:
            since, entry = now, {**entry, "since": rfc3339(now)}
        there = scene.inventory.devices.get(node, ())
        device = next((each for each in there if device_key(each.hardware_id, each.id) == key), None)
        ready = scene.inventory.nodes[node].ready if device is not None else False
        free = device is not None and ready and device.standing is Standing.OFFERED and device.id not in busy
        # What is divided is cleaned part by part, and as a whole when it returns from that.
        free = free and device is not None and device.id not in scene.modes.by_device
        if device is None or not any(covers(hook, device.kind) for hook in lifecycle.cleanup) or since + after > now:
            used.append(entry)
            if since + after > now:
                wakes.append(since + after)
        elif free and cleaning + len(turn) < AT_ONCE:
            turn.append(idle_entry(device, pool, scene))
        else:
            used.append(entry)
    used.sort(key=lambda entry: "since" in entry)
    return Idle(used[:REMEMBERED], tuple(turn), min(wakes, default=None))


def _held(pool: PoolFacts, scene: Scene) -> dict[str, Device]:
    """The pool's devices that claims have, by key."""
    found: dict[str, Device] = {}
    for claim in scene.snapshot.claims:
        for replica in claim.placed:
            for placed in replica.devices:
                device = scene.inventory.device(replica.node, placed.id)
                if device is not None and device.device_pool == pool.meta.name:
                    found[device_key(device.hardware_id, device.id)] = device
    return found


def taken(scene: Scene) -> frozenset[DeviceID]:
    """Devices that this decision gives to somebody or keeps for somebody, and those in allocations."""
    return scene.promised | frozenset(scene.snapshot.holds)
