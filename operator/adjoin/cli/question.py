"""An `Input` → the question that is put to the allocator, as `plan` puts it for files and the operator for a cluster.

In come facts, the time, and whether they are a cluster's; out go the inventory and the snapshot made of them. Nothing
here decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from adjoin.cli.expected import expected_pods
from adjoin.cli.objects import Input
from adjoin.delivery import in_force
from adjoin.inventory import Inventory, InventoryBuilder, overdue
from adjoin.lifecycle import followed_pods, relate
from adjoin.loads import current
from adjoin.snapshot import SnapshotBuilder
from adjoin_allocator.model import Claim, DeviceID, Hold, PlacedDevice
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import HoldKind, ReplicaState


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What the allocator is asked.

    Attributes:
        inventory: The devices and pools that the snapshot was made of.
        stands: The snapshot of what stands in the objects.
        asked: The snapshot that is planned: for files the one in which what cannot stay has no place.
        now: The time of the decision, seconds since the epoch.
    """

    given: Input
    inventory: Inventory
    stands: Snapshot
    asked: Snapshot
    now: float


def pose(given: Input, now: float | None = None, *, live: bool = False) -> Question:
    """The question that `given` comes to. `now` is the newest time in it unless given, and the epoch when it has none.

    Of a cluster (`live`) it is the question that the operator would put; of files, nobody else gives out devices, nodes
    that are only named are made up, and what failed is planned anew at once.
    """
    moment = now if now is not None else given.newest or 0.0
    view = replace(given.view, loads=current(given.view.loads, moment))
    if not live:
        view = replace(view, pods={**view.pods, **expected_pods(given.workloads, view)})
    else:
        view = replace(view, taint_rules=in_force(view.taint_rules, moment)[0])
    inventory = InventoryBuilder(cluster=live).build(view, overdue(view.pools.values(), moment)[0])
    snapshot = SnapshotBuilder().build(view, inventory, followed_pods(view, relate(view), inventory))
    return Question(given, inventory, snapshot, snapshot if live else anew(snapshot), moment)


def anew(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which replicas that failed, or of which a foreign allocation has a device, have no place: the
    operator plans them anew once it has said so. What else they name is on its way back until then.
    """
    foreign = {device: hold.shared for device, hold in snapshot.holds.items() if hold.kind is HoldKind.FOREIGN}

    def theirs(device: PlacedDevice) -> bool:
        """Whether it is somebody else's, and both have not just parts of it."""
        return device.id in foreign and not (foreign[device.id] and device.share is not None)

    claims: list[Claim] = []
    leaving: dict[DeviceID, Hold] = {}
    for claim in snapshot.claims:
        gone = [
            replica
            for replica in claim.placed
            if replica.index in claim.members
            and (replica.state is ReplicaState.FAILED or any(map(theirs, replica.devices)))
        ]
        if gone and not claim.deleting:
            hold = Hold(HoldKind.RELEASING, f"DeviceClaim {claim.namespace}/{claim.name}")
            leaving |= {device.id: hold for replica in gone for device in replica.devices}
            claim = replace(claim, placed=tuple(replica for replica in claim.placed if replica not in gone))
        claims.append(claim)
    if not leaving:
        return snapshot
    held = {device.id for claim in claims for replica in claim.placed for device in replica.devices}
    back = {device: hold for device, hold in leaving.items() if device not in held}
    return replace(snapshot, claims=tuple(claims), holds=back | dict(snapshot.holds))
