"""All input of one decision, frozen.

A snapshot is made by a caller from what it knows and never changes. Parts that did not change are shared by identity
between
consecutive snapshots (the tuple of a node's devices, a Node, a Pool, a Claim), so that whatever is compiled from
them can be kept by
identity; sharing may change speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adjoin_allocator.model import Claim, Device, DeviceID, Hold, Node, Pool, Share


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What exists and what is asked, at one instant.

    Attributes:
        pools: By name.
        nodes: By name; every node that `inventory` names is here (made up where there is no object).
        inventory: By node name every device of every pool there, in stable order, whatever its standing and holder.
        claims: All claims, in input order.
        holds: Devices that are taken although no claim of the snapshot holds them.
        shares: DeviceShares by name.
    """

    pools: Mapping[str, Pool]
    nodes: Mapping[str, Node]
    inventory: Mapping[str, tuple[Device, ...]]
    claims: tuple[Claim, ...]
    holds: Mapping[DeviceID, Hold]
    shares: Mapping[str, Share] = field(default_factory=dict)
