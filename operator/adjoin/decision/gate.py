"""What keeps a device, or a part of one, from being prepared or handed over: it is in another mode, or on its way.

In come a replica's devices and what shares' statuses record; out goes a sentence. So no device is ever believed to be
divided in two ways, whoever decides and whenever it was interrupted.
"""

from __future__ import annotations

from collections.abc import Collection

from adjoin.api.share import PlacementState
from adjoin.decision.scene import Scene
from adjoin_allocator.model import PlacedDevice


def mode_obstacle(node: str, devices: Collection[PlacedDevice], hooked: bool, scene: Scene) -> str:
    """Why devices, or parts of them, may not be prepared or handed over yet, or "": one of them is still in another
    mode, or on its way, or (where hooks would make the part) not recorded in its share's status yet."""
    for placed in devices:
        name = placed.share.name if placed.share is not None else ""
        known = scene.modes.by_device.get(placed.id, ())
        other = next((each for each in known if each.share.meta.name != name), None)
        if other is not None:
            text = f"device {placed.id} on {node} returns to whole first"
            return f"{text}: it is in the mode of DeviceShare {other.share.meta.name}"
        own = next(iter(known), None)
        if own is not None and own.state is not PlacementState.READY:
            doing = "is being prepared" if own.state is PlacementState.PREPARING else "is not divided any more"
            return f"device {placed.id} on {node} {doing} for DeviceShare {name}"
        if own is None and name and hooked and any(each.meta.name == name for each in scene.view.shares.values()):
            return f"device {placed.id} on {node} is not recorded yet in DeviceShare {name}"
        device = scene.inventory.device(node, placed.id)
        if own is None and device is not None and scene.entering(device.device_pool, device.kind, name):
            return f"device {placed.id} on {node}: a DeviceShare's status is being written"
    return ""
