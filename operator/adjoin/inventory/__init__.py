"""Inventory: which devices exist, whose pool they belong to, and whether they can be given out.

In comes a View (facts of ResourceSlices, Nodes, DevicePools, DeviceTaintRules, ConfigMaps and of what claims hold), out
goes an `Inventory`. Nothing here decides who gets a device.
"""

from adjoin.inventory.builder import InventoryBuilder
from adjoin.inventory.changes import changed_keys
from adjoin.inventory.pools import asked_pool
from adjoin.inventory.quarantine import IDLE_CLEAN, Locked, device_key, read_locked
from adjoin.inventory.result import Finding, Inventory, PoolReport
from adjoin.inventory.silence import Silence, grace_of, overdue
from adjoin.inventory.taints import Symptom, Tainted
from adjoin.inventory.tenancy import own_tenant

__all__ = [
    "IDLE_CLEAN",
    "Finding",
    "Inventory",
    "InventoryBuilder",
    "Locked",
    "PoolReport",
    "Silence",
    "Symptom",
    "Tainted",
    "asked_pool",
    "changed_keys",
    "device_key",
    "grace_of",
    "overdue",
    "own_tenant",
    "read_locked",
]
