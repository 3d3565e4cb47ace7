"""Devices in quarantine, as the pools' statuses say: nobody gets them until something has happened to them.

In come facts of DevicePools; out go the devices, by node and by pool. The status is the record: what is in it stays in
it across restarts, and a device is recognised by its hardware, whatever it is called today. Nothing here decides who
gets in or out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from adjoin.facts import PoolFacts, Raw
from adjoin_allocator.model import DeviceID

IDLE_CLEAN: Final = "IdleClean"
"""Reason of an entry that says no more than that a free device is being cleaned: nobody gets it meanwhile."""


def device_key(hardware_id: str, device: DeviceID) -> str:
    """What identifies a device for as long as it exists: its hardware id, else its name."""
    return hardware_id or "/".join(device)


@dataclass(frozen=True, slots=True)
class Locked:
    """One device in quarantine.

    Attributes:
        device: Its name when it was put there.
        hardware_id: Its hardware id, or "".
        node: The node that it was on, or "".
        name: Its name in the pool, or "".
        owner: Who put it there.
        reason: Why, as one word.
        message: Why, as a sentence.
        claim_uid: UID of the claim that held it last, or "".
        claim: Namespace and name of that claim, or "".
        since: Since when, as written.
        clear: Since when no taint has kept it from being recovered, as written, or "".
        address: Its PCI address, or "".
        exit: What ends it, in words.
        boot_id: The boot of the node in which it was used or failed, or "" where that is not known.
        node_gone_since: Since when there has been no Node of that name, as written, or "".
        entry: The entry of the status.
    """

    device: DeviceID
    hardware_id: str
    node: str
    name: str
    owner: str
    reason: str
    message: str
    claim_uid: str
    claim: str
    since: str
    entry: Raw
    clear: str = ""
    address: str = ""
    exit: str = ""
    boot_id: str = ""
    node_gone_since: str = ""

    @property
    def key(self) -> str:
        """See `device_key`."""
        return device_key(self.hardware_id, self.device)

    @property
    def stay(self) -> str:
        """What tells the present attempts at recovery from earlier ones."""
        return f"{self.since}/{self.clear}" if self.clear else self.since


def read_locked(status: Raw) -> tuple[Locked, ...]:
    """The quarantine of a pool's status; the first of two entries of one device counts."""
    found: dict[str, Locked] = {}
    for entry in status.get("quarantined") or ():
        locked = Locked(
            device=DeviceID(
                str(entry.get("driver") or ""), str(entry.get("pool") or ""), str(entry.get("device") or "")
            ),
            hardware_id=str(entry.get("id") or ""),
            node=str(entry.get("node") or entry.get("pool") or ""),
            name=str(entry.get("name") or ""),
            owner=str(entry.get("owner") or ""),
            reason=str(entry.get("reason") or ""),
            message=str(entry.get("message") or ""),
            claim_uid=str(entry.get("claimUID") or ""),
            claim=str(entry.get("claim") or ""),
            since=str(entry.get("since") or ""),
            entry=entry,
            clear=str(entry.get("clear") or ""),
            address=str(entry.get("address") or ""),
            exit=str(entry.get("exit") or ""),
            boot_id=str(entry.get("bootID") or ""),
            node_gone_since=str(entry.get("nodeGoneSince") or ""),
        )
        found.setdefault(locked.key, locked)
    return tuple(found.values())


def locked_by_node(pools: Iterable[PoolFacts]) -> Mapping[str, Mapping[str, str]]:
    """Why devices are in quarantine and what ends that, by node and device key: any pool's word counts."""
    nodes: dict[str, dict[str, str]] = {}
    for pool in sorted(pools, key=lambda each: (each.meta.name, each.meta.version)):
        for locked in read_locked(pool.status):
            text = f"{locked.reason}: {locked.message}" if locked.message else locked.reason
            text += f"; until {locked.exit}" if locked.exit else ""
            nodes.setdefault(locked.node, {})[locked.key] = text
    return nodes
