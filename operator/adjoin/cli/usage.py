"""Who has what, as a value that can be shown: pools, nodes, and every device with its holders.

In comes an `Input`, and whether it is a cluster's; out goes one object of plain values. It says what is and plans
nothing; the counts are the allocator's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from adjoin.cli.objects import Input
from adjoin.cli.question import pose
from adjoin.holdings import read_placed
from adjoin.lifecycle import entries, relate, rfc3339, uses_of
from adjoin_allocator import Memo
from adjoin_allocator.ledger import Ledger
from adjoin_allocator.model import Device, DeviceID, natural_key
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import DeviceState
from adjoin_allocator.topology import bits

Json = dict[str, Any]
Users = Mapping[tuple[str, int], str]
"""Names of pods by UID of the claim and index of the replica."""


def usage(given: Input, *, live: bool, pools: Collection[str] = (), nodes: Collection[str] = ()) -> Json:
    """Everything there is, or only what is of these pools and on these nodes."""
    question = pose(given, live=live)
    snapshot, inventory = question.stands, question.inventory
    ledger: Ledger = Memo().ledger
    ledger.enter(snapshot, question.now)
    pods = _pods(given, question.inventory)
    since = {
        (claim.meta.uid, int(entry.get("index") or 0)): str(entry.get("allocatedAt") or "")
        for claim in given.view.claims.values()
        for entry in entries(claim)
    }
    chosen = [name for name in sorted(snapshot.pools, key=natural_key) if not pools or name in pools]
    devices: list[Json] = []
    for node in sorted(snapshot.inventory, key=natural_key):
        if nodes and node not in nodes:
            continue
        here = snapshot.inventory[node]
        for pool in chosen:
            mine = [device for device in here if device.device_pool == pool]
            if mine:
                devices += _devices(ledger, pool, node, mine, pods, since)
    where = {each["node"] for each in devices}
    return {
        "now": rfc3339(question.now),
        "pools": [
            {
                "name": name,
                "nodes": len({each["node"] for each in devices if each["devicePool"] == name}),
                "devices": {kind: asdict(counts) for kind, counts in ledger.pools[name].counts().items()},
                "notes": [found.message for found in inventory.reports[name].findings if found.message],
            }
            for name in chosen
        ],
        "nodes": [
            {
                "node": name,
                "notes": _notes(snapshot, name),
                "devices": _tallies(each for each in devices if each["node"] == name),
            }
            for name in sorted(where, key=natural_key)
        ],
        "devices": devices,
    }


def _pods(given: Input, inventory: Any) -> Users:
    relations = relate(given.view)
    found: dict[tuple[str, int], str] = {}
    for claim in given.view.claims.values():
        if not read_placed(claim.status):
            continue
        for use in uses_of(claim, relations, inventory):
            if use.pod is not None and use.live:
                found.setdefault((claim.meta.uid, use.index), use.pod.meta.name)
    return found


def _devices(
    ledger: Ledger, pool: str, node: str, mine: Iterable[Device], pods: Users, since: Mapping[tuple[str, int], str]
) -> Iterable[Json]:
    """The pool's devices on a node, each with everybody who has it or a part of it."""
    there = ledger.pools[pool]
    position = there.index.position[node]
    bit_of = there.index.views[position].bit
    holders: dict[int, list[Json]] = {}
    for claim, replica, mask in ledger.users(pool, position):
        key = (str(claim.uid), replica.index)
        entry = {
            "claim": f"{claim.namespace}/{claim.name}",
            "replica": replica.index,
            "state": replica.state.value,
            "since": since.get(key) or None,
            "pod": pods.get(key),
        }
        for bit in bits(mask):
            holders.setdefault(bit, []).append(entry)
    for device in sorted(mine, key=lambda each: natural_key(each.id.device)):
        bit = bit_of[device.id]
        state = there.state(position, bit)
        hold = ledger.holds.get(device.id)
        known = holders.get(bit, [])
        if not known and hold is not None:
            known = [{"claim": hold.holder, "replica": None, "state": None, "since": None, "pod": None}]
        yield {
            "node": node,
            "devicePool": pool,
            "name": device.kind,
            **_identity(device.id, device.hardware_id),
            "state": state.value,
            "detail": device.standing_detail,
            "holders": known,
        }


def _identity(device: DeviceID, hardware_id: str) -> Json:
    return {"driver": device.driver, "pool": device.pool, "device": device.device, "id": hardware_id}


def _notes(snapshot: Snapshot, name: str) -> list[str]:
    node = snapshot.nodes.get(name)
    if node is None:
        return []
    notes = {
        "there is no Node object": not node.exists,
        "not ready": not node.ready,
        "cordoned": node.unschedulable,
        "being deleted": node.deleting,
    }
    taints = [f"taint {taint.key}" for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute")]
    return [*(note for note, holds in notes.items() if holds), *taints]


def _tallies(devices: Iterable[Json]) -> Json:
    """By name how many devices are in which state; states that none is in are left out."""
    found: dict[str, Counter[str]] = {}
    for each in devices:
        found.setdefault(each["name"], Counter())[each["state"]] += 1
    return {name: {state.value: tally[state] for state in DeviceState if tally[state]} for name, tally in found.items()}
