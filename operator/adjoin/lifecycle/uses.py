"""Who uses which replica, as its ResourceClaims record it, or the ConfigMaps where devices are handed over as
environment.

In come a claim, its pods and these records; out go uses: which pod has, or had, which replica, and until when a
pod that is gone may still run. A pod of which it is not known that it has ended counts as running.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from adjoin.api.names import DRIVER, LABEL_POD, config_map_name
from adjoin.cache import LINGER_SECONDS
from adjoin.facts import ClaimFacts, PodFacts, Raw
from adjoin.grants import Record
from adjoin.holdings import read_placed
from adjoin.inventory import Inventory
from adjoin.lifecycle.relations import LABEL_REPLICA, Relations
from adjoin.traces import USED_STATES
from adjoin_allocator.model import DeviceID, Node

STRAY = -1
"""Index of a use that belongs to no replica that the claim has."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Taint by which somebody vouches that nothing runs on the node any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One pod's hold on one replica, as its records say.

    Attributes:
        index: The replica, or `STRAY`.
        pod_uid: The pod that the records were made for.
        pod: That pod, or None when it is gone.
        records: Its ResourceClaims or its ConfigMap, by name; empty when somebody took them away from under a pod that
            we had let go.
        lingers_until: The pod is gone, but may still run on its node until then; on a node that is lost there is no
            end.
    """

    index: int
    pod_uid: str
    pod: PodFacts | None
    records: tuple[Record, ...]
    lingers_until: float | None = None

    @property
    def live(self) -> bool:
        """The pod is there and has not ended. Whether it is ready, or even started, does not matter."""
        return self.pod is not None and not self.pod.finished

    @property
    def bound(self) -> bool:
        """The pod has a node and has not ended."""
        return self.pod is not None and not self.pod.finished and bool(self.pod.node)

    @property
    def at_gate(self) -> bool:
        """The pod still waits at our gate: it has never touched a device."""
        return self.pod is not None and self.pod.gated

    @property
    def had(self) -> bool:
        """The pod has ended and may have had the devices. Of one that is gone nobody knows better."""
        return not self.live and (self.pod is None or bool(self.pod.node))

    def over(self, now: float) -> bool:
        """The pod cannot touch the devices any more."""
        return not self.live and (self.lingers_until is None or self.lingers_until <= now)


def entries(claim: ClaimFacts) -> tuple[Raw, ...]:
    """The replicas in a claim's status, by index; the first of two with one index counts."""
    found: dict[int, Raw] = {}
    for entry in (claim.status.get("allocation") or {}).get("replicas") or ():
        found.setdefault(int(entry.get("index") or 0), entry)
    return tuple(found[index] for index in sorted(found))


def given_out(entry: Raw) -> bool:
    """A pod has, or had, the replica, and has not given it back as far as its entry in the status says."""
    return bool(entry.get("readyAt")) and not entry.get("idleSince")


def _index_of(record: Record, devices: Mapping[int, frozenset[DeviceID]]) -> int:
    """The replica by its label if that has the devices, else by the devices: whoever has a replica's devices uses it,
    whatever is written on the record."""
    text = record.labels.get(LABEL_REPLICA, "")
    index = int(text) if text.isascii() and text.isdigit() else STRAY
    given = record.devices
    if index in devices and devices[index].issuperset(given):
        return index
    return next((index for index, held in sorted(devices.items()) if given and held.issuperset(given)), STRAY)


def _pod_of(uid: str, claim: ClaimFacts, relations: Relations) -> PodFacts | None:
    """The pod of that UID, if it is one that could name the claim."""
    pod = relations.pods_by_uid.get(uid)
    return pod if pod is not None and pod.meta.namespace == claim.meta.namespace else None


def pinned_to(pod: PodFacts) -> frozenset[str]:
    """Nodes that the pod's required node affinity names, in every term that it has; we write one."""
    required = (pod.affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return frozenset(
        node
        for term in required.get("nodeSelectorTerms") or ()
        for field in term.get("matchFields") or ()
        if field.get("key") == "metadata.name" and field.get("operator") == "In"
        for node in field.get("values") or ()
    )


def node_gone(node: Node | None) -> bool:
    """Whether nothing can run on the node any more: it has no object, or somebody vouches for it by a taint."""
    return node is None or not node.exists or any(taint.key == OUT_OF_SERVICE for taint in node.taints)


def _lingers(entry: Raw | None, pod_uid: str, relations: Relations, inventory: Inventory) -> float | None:
    """Until when a pod that is gone may still run. Nobody has seen its containers end on a node that is not ready
    or is being deleted: only the end of the node, its return, or its out-of-service taint tells.

    The end and the taint also tell at once that nothing runs there.
    """
    node = inventory.nodes.get(str(entry.get("node") or "")) if entry is not None else None
    if entry is not None and node is not None:
        if node_gone(node):
            return None
        if entry.get("state") in USED_STATES and (node.deleting or not node.ready):
            return math.inf
    if entry is not None and pod_uid in relations.forced:
        return _unproven(entry, relations.forced[pod_uid], inventory)
    return relations.lingering.get(pod_uid)


def _unproven(entry: Raw, until: float, inventory: Inventory) -> float:
    """Until when a pod that was taken away by force holds its devices. The kubelet lets go of them through their
    drivers: while a driver is down that cannot happen, and when it is back it takes as long as ever."""
    node = str(entry.get("node") or "")
    (replica,) = read_placed({"allocation": {"replicas": [entry]}})
    for placed in replica.devices:
        id_ = inventory.current(node, placed)
        if id_.driver == DRIVER:
            continue  # nobody's driver has it
        if inventory.silent(node, id_):
            return math.inf
        since = inventory.spoken_since(id_)
        if since is not None:
            until = max(until, since + LINGER_SECONDS)
    return until


def uses_of(claim: ClaimFacts, relations: Relations, inventory: Inventory) -> tuple[Use, ...]:
    """Who uses the claim's replicas.

    A record whose devices are not those of any replica, under today's names or those of the status, is a stray: it was
    written for another placement. A pod without our gate that has no records any more still has its devices; it is
    taken for the user of a replica on its node.
    """
    holding = {int(entry.get("index") or 0): entry for entry in entries(claim)}
    devices: dict[int, frozenset[DeviceID]] = {}
    for replica in read_placed(claim.status):
        current = inventory.current
        names = {name for device in replica.devices for name in (device.id, current(replica.node, device))}
        devices.setdefault(replica.index, frozenset(names))
    groups: defaultdict[tuple[int, str], list[Record]] = defaultdict(list)
    for record in relations.owned.get(claim.meta.uid, ()):
        if record.meta.namespace != claim.meta.namespace:
            continue  # its owner is a claim that it cannot have
        index = _index_of(record, devices)
        pod_uid = record.labels.get(LABEL_POD) or next(iter(record.reserved), "")
        groups[index, pod_uid].append(record)
    uses = [
        Use(
            index=index,
            pod_uid=pod_uid,
            pod=_pod_of(pod_uid, claim, relations),
            records=tuple(group),
            lingers_until=_lingers(holding.get(index), pod_uid, relations, inventory),
        )
        for (index, pod_uid), group in sorted(groups.items(), key=lambda item: item[0])
    ]
    recorded = {use.pod_uid for use in uses}
    taken = {use.index for use in uses}
    key = (claim.meta.namespace, claim.meta.name)
    for pod in (*relations.pods.get(key, ()), *relations.ghosts.get(key, ())):
        uid = pod.meta.uid
        if pod.gated or not pod.token or pod.finished or uid in recorded:
            continue
        if any((pod.meta.namespace, name) in relations.resource_claims for name in pod.resource_claims):
            continue  # its devices are those of a claim that had this name before
        grant = relations.grants.get((pod.meta.namespace, config_map_name(pod.claim, pod.token)))
        if grant is not None and grant.owner not in ("", claim.meta.uid):
            continue  # as above
        places = {pod.node} if pod.node else pinned_to(pod)
        fits = (
            index
            for index, entry in sorted(holding.items())
            if index not in taken and entry.get("node") in places and pod.replica in (None, index)
        )
        for index in fits:
            lingers_until = _lingers(holding[index], uid, relations, inventory)
            if uid in relations.pods_by_uid or lingers_until is not None:
                taken.add(index)
                uses.append(Use(index, uid, relations.pods_by_uid.get(uid), (), lingers_until))
            break
    return tuple(uses)
