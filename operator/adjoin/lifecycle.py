"""What each claim holds, who uses it, and what has to go: facts and `now` in, the next state of every replica and the
removals out.

Whether a replica serves a pod is recorded in the ResourceClaims that were made for that pod (owner, replica index, pod
UID), and in nothing else, so a fresh process reads the same. A replica is held by its claim's status until it leaves
it, whatever happens to those ResourceClaims. Nothing here chooses devices, serves a pod or writes a status; nobody is
removed before a decision says so, and a pod of which it is not known that it has ended counts as running.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from adjoin.api.defaults import replicas_of
from adjoin.api.names import ANNOTATION_REPLICA, FINALIZER, GROUP
from adjoin.cache import View
from adjoin.facts import ClaimFacts, PodFacts, PoolFacts, Raw, ResourceClaimFacts, read_placed
from adjoin.intents import Kind, Step, Verb
from adjoin.inventory import Inventory
from adjoin_allocator.model import Claim, DeviceID, Hold, HoldKind, ReplicaState
from adjoin_allocator.results import Placement

LABEL_REPLICA = ANNOTATION_REPLICA
"""On our ResourceClaims: which replica they hand over."""
LABEL_POD = f"{GROUP}/pod"
"""On our ResourceClaims: UID of the pod that they were made for."""
BUILTIN_FINALIZER = "resource.kubernetes.io/delete-protection"
"""Kubernetes' own on ResourceClaims: with it the allocation goes as soon as no pod is left."""

STRAY = -1
"""Index of a use that belongs to no replica that the claim has."""

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Taint by which somebody vouches that nothing runs on the node any more."""

_USED_STATES = (ReplicaState.IN_USE, ReplicaState.RELEASING, ReplicaState.FAILED)
_WANTED_STATES = (ReplicaState.READY, ReplicaState.IN_USE)


def rfc3339(moment: float) -> str:
    """`moment` (seconds since the epoch) as Kubernetes writes times, to the second."""
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, eq=False)
class Relations:
    """The view, joined.

    Attributes:
        claims: DeviceClaims by (namespace, name).
        pools: DevicePools by name.
        pods: Pods by (namespace, name of the claim that they ask for), oldest first.
        owned: Our ResourceClaims by UID of the DeviceClaim that owns them, by name.
        resource_claims: Every ResourceClaim by (namespace, name).
        lingering: Until when a force-deleted pod still holds its devices, by pod UID.
        ghosts: Those pods as they were last seen, by (namespace, name of the claim).
    """

    claims: Mapping[tuple[str, str], ClaimFacts]
    pools: Mapping[str, PoolFacts]
    pods: Mapping[tuple[str, str], tuple[PodFacts, ...]]
    pods_by_uid: Mapping[str, PodFacts]
    owned: Mapping[str, tuple[ResourceClaimFacts, ...]]
    resource_claims: Mapping[tuple[str, str], ResourceClaimFacts]
    lingering: Mapping[str, float]
    ghosts: Mapping[tuple[str, str], tuple[PodFacts, ...]]


def seniority(pod: PodFacts) -> tuple[float, str, str]:
    """Sort key of pods: the older goes first."""
    return (pod.meta.created or 0.0, pod.meta.name, pod.meta.uid)


def precedence(pod: PodFacts) -> tuple[bool, float, str, str]:
    """Sort key of pods that have one replica in hand: one that we let go comes before one at its gate."""
    return (pod.gated, *seniority(pod))


def relate(view: View) -> Relations:
    """Joins what refers to each other. O(objects)."""
    pods: defaultdict[tuple[str, str], list[PodFacts]] = defaultdict(list)
    for pod in view.pods.values():
        pods[pod.meta.namespace, pod.claim].append(pod)
    owned: defaultdict[str, list[ResourceClaimFacts]] = defaultdict(list)
    for resource_claim in view.resource_claims.values():
        # The owner makes it ours: a label alone could be anybody's.
        if resource_claim.owner:
            owned[resource_claim.owner].append(resource_claim)
    ghosts: defaultdict[tuple[str, str], list[PodFacts]] = defaultdict(list)
    for pod in view.ghosts.values():
        ghosts[pod.meta.namespace, pod.claim].append(pod)
    return Relations(
        claims={(claim.meta.namespace, claim.meta.name): claim for claim in view.claims.values()},
        pools={pool.meta.name: pool for pool in view.pools.values()},
        pods={key: tuple(sorted(group, key=seniority)) for key, group in pods.items()},
        pods_by_uid=view.pods,
        owned={uid: tuple(sorted(group, key=lambda each: each.meta.name)) for uid, group in owned.items()},
        resource_claims={(each.meta.namespace, each.meta.name): each for each in view.resource_claims.values()},
        lingering=view.lingering,
        ghosts={key: tuple(sorted(group, key=seniority)) for key, group in ghosts.items()},
    )


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """One pod's hold on one replica, as its ResourceClaims record it.

    Attributes:
        index: The replica, or `STRAY`.
        pod_uid: The pod that the ResourceClaims were made for.
        pod: That pod, or None when it is gone.
        resource_claims: By name; empty when somebody took them away from under a pod that we had let go.
        lingers_until: The pod is gone, but may still run on its node until then; on a node that is lost there is no
            end.
    """

    index: int
    pod_uid: str
    pod: PodFacts | None
    resource_claims: tuple[ResourceClaimFacts, ...]
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

    def over(self, now: float) -> bool:
        """The pod cannot touch the devices any more."""
        return not self.live and (self.lingers_until is None or self.lingers_until <= now)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A replica that keeps its place in the status.

    Attributes:
        entry: Its entry in `status.allocation.replicas` as stored, or as made for a new placement.
        state: The state it is in now.
        uses: Whom it serves; at most one pod unless something went wrong.
        lost: The device or devices that an older holder has too, in words; empty for a sound replica.
    """

    index: int
    entry: Raw
    state: ReplicaState
    uses: tuple[Use, ...] = ()
    lost: str = ""

    @property
    def node(self) -> str:
        """The node of its devices."""
        return str(self.entry.get("node") or "")

    @property
    def sound(self) -> bool:
        """It is wanted and may serve a pod."""
        return self.state in _WANTED_STATES

    @property
    def serves(self) -> PodFacts | None:
        """The live pod that the replica is for, None while it is free or leaving."""
        live = [use.pod for use in self.uses if use.pod is not None and use.live] if self.sound else []
        return min(live, key=precedence, default=None)


@dataclass(frozen=True, slots=True, eq=False)
class Review:
    """The next step of one claim.

    Attributes:
        members: Replicas that keep their place in the status, by index.
        users: UIDs of all pods that have, or had, something of the claim's; strays are among them.
        removals: Requests that take users and their ResourceClaims away, in order.
        finished: The claim is deleted and nothing is left to wait for: its finalizer may go.
        wake_at: When this must be looked at again although nothing changed, or None.
    """

    members: tuple[Member, ...]
    users: frozenset[str]
    removals: tuple[Step, ...]
    finished: bool
    wake_at: float | None


def entries(claim: ClaimFacts) -> tuple[Raw, ...]:
    """The replicas in a claim's status, by index; the first of two with one index counts."""
    found: dict[int, Raw] = {}
    for entry in (claim.status.get("allocation") or {}).get("replicas") or ():
        found.setdefault(int(entry.get("index") or 0), entry)
    return tuple(found[index] for index in sorted(found))


def wanted_replicas(claim: ClaimFacts) -> int:
    """How many replicas the claim wants now: none once it is deleted."""
    if claim.meta.deleting is not None:
        return 0
    return replicas_of(claim.claim.spec)


def enter(placement: Placement, now: float, boot_id: str) -> dict[str, Any]:
    """The status entry of a new placement. There are no hooks, so it is Ready at once."""
    moment = rfc3339(now)
    entry: dict[str, Any] = {"index": placement.index, "node": placement.node, "state": ReplicaState.READY.value}
    if placement.locality:
        entry["locality"] = dict(placement.locality)
    entry["devices"] = [
        {"request": device.request, "driver": device.id.driver, "pool": device.id.pool, "device": device.id.device}
        | ({"id": device.hardware_id} if device.hardware_id else {})
        for device in placement.devices
    ]
    entry["allocatedAt"] = entry["readyAt"] = entry["idleSince"] = moment
    if boot_id:
        entry["bootID"] = boot_id
    return entry


def contested(
    claims: Iterable[Claim], conflicts: Mapping[str, Collection[int]], holds: Mapping[DeviceID, Hold]
) -> dict[str, dict[int, str]]:
    """Replicas that cannot keep their devices, by claim UID and replica index, with the reason in words.

    `conflicts` are those that the allocator found to hold a device of an older claim; a device that stands in a foreign
    allocation is the foreign claim's.
    """
    foreign = {device: hold.holder for device, hold in holds.items() if hold.kind is HoldKind.FOREIGN}
    if not foreign and not any(conflicts.values()):
        return {}
    holders: defaultdict[DeviceID, list[str]] = defaultdict(list)
    found: dict[str, dict[int, str]] = {}
    placed = [(claim, replica) for claim in claims for replica in claim.placed]
    for claim, replica in placed:
        for device in replica.devices:
            holders[device.id].append(f"DeviceClaim {claim.namespace}/{claim.name} (replica {replica.index})")
    for claim, replica in placed:
        me = f"DeviceClaim {claim.namespace}/{claim.name} (replica {replica.index})"
        for device in replica.devices:
            others = [holder for holder in holders[device.id] if holder != me]
            lost = replica.index in conflicts.get(claim.uid, ()) and others
            if device.id in foreign or lost:
                words = f"{device.id} is held by {foreign.get(device.id) or others[0]}"
                found.setdefault(claim.uid, {}).setdefault(replica.index, words)
        if replica.index in conflicts.get(claim.uid, ()):
            found.setdefault(claim.uid, {}).setdefault(replica.index, "a device of it is held by an older claim")
    return found


def _index_of(resource_claim: ResourceClaimFacts) -> int:
    text = resource_claim.labels.get(LABEL_REPLICA, "")
    return int(text) if text.isascii() and text.isdigit() else STRAY


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


def _lingers(entry: Raw | None, pod_uid: str, relations: Relations, inventory: Inventory) -> float | None:
    """Until when a pod that is gone may still run. Nobody has seen its containers end on a node that is not ready: only
    the end of the node, its return, or its out-of-service taint tells."""
    node = inventory.nodes.get(str(entry.get("node") or "")) if entry is not None else None
    used = entry is not None and entry.get("state") in _USED_STATES
    lost = node is not None and node.exists and not node.ready
    if used and lost and node is not None and not any(taint.key == OUT_OF_SERVICE for taint in node.taints):
        return math.inf
    return relations.lingering.get(pod_uid)


def uses_of(claim: ClaimFacts, relations: Relations, inventory: Inventory) -> tuple[Use, ...]:
    """Who uses the claim's replicas.

    A ResourceClaim whose devices are not those of its replica, under today's names or those of the status, is a stray:
    it was written for another placement. A pod without our gate that has no ResourceClaims any more still has its
    devices; it is taken for the user of a replica on its node.
    """
    holding = {int(entry.get("index") or 0): entry for entry in entries(claim)}
    devices = {
        replica.index: {
            name for device in replica.devices for name in (device.id, inventory.current(replica.node, device))
        }
        for replica in read_placed(claim.status)
    }
    groups: defaultdict[tuple[int, str], list[ResourceClaimFacts]] = defaultdict(list)
    for resource_claim in relations.owned.get(claim.meta.uid, ()):
        index = _index_of(resource_claim)
        if index not in devices or not devices[index].issuperset(resource_claim.devices):
            index = STRAY
        pod_uid = resource_claim.labels.get(LABEL_POD) or next(iter(resource_claim.reserved), "")
        groups[index, pod_uid].append(resource_claim)
    uses = [
        Use(
            index=index,
            pod_uid=pod_uid,
            pod=relations.pods_by_uid.get(pod_uid),
            resource_claims=tuple(group),
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
        places = {pod.node} if pod.node else pinned_to(pod)
        fits = (
            index
            for index, entry in sorted(holding.items())
            if index not in taken and entry.get("node") in places and pod.replica in (None, index)
        )
        for index in fits:
            taken.add(index)
            uses.append(Use(index, uid, relations.pods_by_uid.get(uid), (), relations.lingering.get(uid)))
            break
    return tuple(uses)


def unreserve(resource_claim: ResourceClaimFacts) -> tuple[Step, ...]:
    """Clears the allocation of a ResourceClaim together with its reservation; of one without allocation, nothing."""
    if not resource_claim.allocated:
        return ()
    meta = resource_claim.meta
    body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
    return (Step(Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM, meta.namespace, meta.name, meta.uid, meta.version, body),)


def drop_finalizer(kind: Kind, meta_of: ClaimFacts | PoolFacts | ResourceClaimFacts) -> Step:
    """Takes our finalizer off and leaves those of others."""
    meta = meta_of.meta
    remaining = [each for each in meta_of.finalizers if each != FINALIZER]
    body = {"metadata": {"finalizers": remaining}}
    return Step(Verb.PATCH, kind, meta.namespace, meta.name, meta.uid, meta.version, body)


def add_finalizer(kind: Kind, meta_of: ClaimFacts | PoolFacts) -> Step:
    """Puts our finalizer beside those of others."""
    meta = meta_of.meta
    body = {"metadata": {"finalizers": [*meta_of.finalizers, FINALIZER]}}
    return Step(Verb.PATCH, kind, meta.namespace, meta.name, meta.uid, meta.version, body)


def _discard(resource_claim: ResourceClaimFacts, *, release: bool) -> tuple[Step, ...]:
    """Deletes a ResourceClaim whose pod has ended; with `release` our finalizer lets it go too."""
    meta = resource_claim.meta
    if meta.deleting is None:
        return (Step(Verb.DELETE, Kind.RESOURCE_CLAIM, meta.namespace, meta.name, meta.uid),)
    if release and FINALIZER in resource_claim.finalizers:
        return (drop_finalizer(Kind.RESOURCE_CLAIM, resource_claim),)
    return ()


def _end(use: Use, now: float) -> tuple[Step, ...]:
    """Takes away what is left of a use whose pod has ended."""
    over = use.over(now)
    steps: list[Step] = []
    for resource_claim in use.resource_claims:
        # Kubernetes' own finalizer frees the name as soon as it is deleted, and with it the record that the pod
        # lingers.
        if over or FINALIZER in resource_claim.finalizers:
            steps += _discard(resource_claim, release=over)
    return tuple(steps)


def _expel(use: Use, *, deleted: bool) -> tuple[Step, ...]:
    """Takes the devices from a live pod: one that never started keeps waiting at its gate, any other has to go."""
    pod = use.pod
    assert pod is not None
    if pod.gated:
        steps: list[Step] = []
        for resource_claim in use.resource_claims:
            steps += unreserve(resource_claim)
            steps += _discard(resource_claim, release=not resource_claim.allocated)
        return tuple(steps)
    if pod.meta.deleting is not None:
        return ()
    verb = Verb.DELETE if deleted else Verb.EVICT
    return (Step(verb, Kind.POD, pod.meta.namespace, pod.meta.name, pod.meta.uid),)


def _state(entry: Raw, uses: tuple[Use, ...]) -> ReplicaState:
    """State of a wanted, sound replica. It is InUse from the binding of its pod until nothing of that pod is left."""
    if any(use.bound for use in uses):
        return ReplicaState.IN_USE
    if uses and entry.get("state") == ReplicaState.IN_USE:
        return ReplicaState.IN_USE
    return ReplicaState.READY


def review(
    claim: ClaimFacts, relations: Relations, inventory: Inventory, lost: Mapping[int, str], now: float
) -> Review:
    """What becomes of the replicas that a claim has, and whom that removes.

    A deleted claim, a replica beyond `replicas` and a replica that lost a device are leaving: their users are removed,
    and the replica is dropped when nothing of them is left.
    """
    deleted = claim.meta.deleting is not None
    wanted = wanted_replicas(claim)
    uses: defaultdict[int, list[Use]] = defaultdict(list)
    for use in uses_of(claim, relations, inventory):
        uses[use.index].append(use)
    members: list[Member] = []
    removals: list[Step] = []
    for entry in entries(claim):
        index = int(entry.get("index") or 0)
        mine = tuple(uses[index])
        loss = lost.get(index, "")
        failed = bool(loss) or entry.get("state") == ReplicaState.FAILED
        if deleted:
            members.append(Member(index, entry, ReplicaState.RELEASING, mine))
        elif index >= wanted:
            if mine:
                members.append(Member(index, entry, ReplicaState.RELEASING, mine))
        elif failed:
            # It says so for one write at least; without users it is planned anew after that.
            if mine or entry.get("state") != ReplicaState.FAILED:
                members.append(Member(index, entry, ReplicaState.FAILED, mine, loss))
        else:
            members.append(Member(index, entry, _state(entry, mine), mine))
    served = {member.serves.meta.uid for member in members if member.serves is not None}
    sound = {member.index for member in members if member.sound}
    everybody = [use for index in sorted(uses) for use in uses[index]]
    for use in everybody:
        if not use.live:
            removals += _end(use, now)
        elif use.pod_uid not in served and (deleted or use.at_gate or use.index not in (STRAY, *sound)):
            # A stray that runs is left alone: whatever it has is not what this claim holds.
            removals += _expel(use, deleted=deleted)
    ends = [use.lingers_until for use in everybody if not use.live and use.lingers_until is not None]
    waits = [end for end in ends if now < end < math.inf]
    return Review(
        members=tuple(members),
        users=frozenset(use.pod_uid for use in everybody),
        removals=tuple(removals),
        finished=deleted and not everybody,
        wake_at=min(waits, default=None),
    )


def orphans(
    relations: Relations, known: Mapping[str, ClaimFacts], busy: frozenset[str], now: float
) -> dict[str, tuple[Step, ...]]:
    """Removals of our ResourceClaims whose DeviceClaim is gone, by UID of the ResourceClaim: as soon as no live pod has
    them.

    Until the object is gone its devices count as releasing.
    """
    found: dict[str, tuple[Step, ...]] = {}
    for owner, group in sorted(relations.owned.items()):
        if owner in known:
            continue
        for resource_claim in group:
            users = {resource_claim.labels.get(LABEL_POD, ""), *resource_claim.reserved} - {""}
            uses = [
                Use(STRAY, uid, relations.pods_by_uid.get(uid), (resource_claim,), relations.lingering.get(uid))
                for uid in sorted(users)
            ]
            if resource_claim.meta.uid in busy or any(use.live for use in uses):
                continue
            steps = _discard(resource_claim, release=all(use.over(now) for use in uses))
            if steps:
                found[resource_claim.meta.uid] = steps
    return found
