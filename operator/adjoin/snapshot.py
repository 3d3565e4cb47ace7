"""Facts → allocator Snapshot: the one translator inwards.

In come a View and its Inventory, out goes everything that a decision of the allocator depends on. Claims are translated
once per version and stay the same object while nothing about them changed. The command line feeds views made of files
through the same code.

Nothing here decides; what may not be planned is marked as held back, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import ceil
from types import MappingProxyType

from adjoin.api.claim import ScalingMode
from adjoin.api.defaults import replicas_of
from adjoin.asked import read_share_spec, read_spec
from adjoin.cache import View
from adjoin.environment import ShareFacts
from adjoin.facts import ClaimFacts, PodFacts
from adjoin.holdings import evicted_since, hopeless, is_released, read_evictions, read_nominated, read_placed
from adjoin.inventory import Inventory, asked_pool, own_tenant
from adjoin.modes import ModesReader
from adjoin_allocator.amounts import counted
from adjoin_allocator.cel import Quantity
from adjoin_allocator.model import (
    Claim,
    ClaimHold,
    ClaimUID,
    Counted,
    Device,
    DeviceID,
    Hold,
    HostAsk,
    Lent,
    Mode,
    PlacedReplica,
    Share,
)
from adjoin_allocator.policies import consumption, memory_name
from adjoin_allocator.results import Code
from adjoin_allocator.snapshot import Claims, Snapshot
from adjoin_allocator.terms import HoldKind, ReplicaState

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that the API server puts on every Namespace, known also where its object is not."""

Named = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, eq=False)
class _Translated:
    """A claim as far as its own object tells; pool, hold and today's device names are filled in at every build."""

    facts: ClaimFacts
    claim: Claim


class SnapshotBuilder:
    """Builds snapshots of successive views. What is remembered changes speed alone."""

    def __init__(self) -> None:
        self._translated: dict[str, _Translated] = {}
        self._claims: dict[str, Claim] = {}
        self._kept = Claims(())
        self._last: tuple[View, Inventory] | None = None
        self._gated: Mapping[Named, str] = {}
        self._bound: Mapping[Named, tuple[PodFacts, ...]] = {}
        self._priorities: Mapping[str, int] = {}
        self._labels: Mapping[str, Mapping[str, str]] = {}
        self._holds: Mapping[DeviceID, Hold] = {}
        self._counted: dict[str, tuple[tuple[Device, ...], object, tuple[Device, ...]]] = {}
        self._devices: tuple[object, Mapping[str, tuple[Device, ...]]] = (None, {})
        self._shares: dict[str, tuple[ShareFacts, Share]] = {}
        self._shared: Mapping[str, Share] = {}
        self._modes = ModesReader()

    def build(
        self,
        view: View,
        inventory: Inventory,
        followed: Mapping[str, frozenset[int]] = MappingProxyType({}),
        modes: Mapping[DeviceID, Mode] | None = None,
    ) -> Snapshot:
        """The snapshot of `view`, whose inventory is `inventory`. Claims stand in the view's order.

        `followed` says for claims that follow their pods, by UID, which replicas they want; one that is not in it wants
        none. `modes` are the devices that shares' statuses have in a mode; None: to be read here.
        """
        last, self._last = self._last, (view, inventory)
        # While nothing beside a claim has changed that goes into it, its own facts decide.
        steady = last is not None and _same_surroundings(last, (view, inventory))
        if last is None or last[0].pods is not view.pods:
            self._gated, self._bound = gated_claims(view.pods), bound_pods(view.pods)
        if last is None or last[0].priority_classes is not view.priority_classes:
            self._priorities = {each.meta.name: each.value for each in view.priority_classes.values()}
        if last is None or last[0].namespaces is not view.namespaces:
            self._labels = {each.meta.name: each.labels for each in view.namespaces.values()}
        translated: dict[str, _Translated] = {}
        claims: dict[str, Claim] = {}
        for uid, facts in view.claims.items():
            known = self._translated.get(uid)
            if known is not None and known.facts is facts:
                if steady and uid not in followed:
                    translated[uid], claims[uid] = known, self._claims[uid]
                    continue
            else:
                known = _Translated(facts, translate(uid, facts))
            translated[uid] = known
            completed = self._complete(known, view, inventory)
            claims[uid] = self._settled(uid, _leaving(_following(completed, followed.get(uid))))
        self._kept = self._followed(claims)
        self._translated, self._claims = translated, claims
        holds = find_holds(view, inventory, claims)
        if holds != self._holds:
            self._holds = holds
        return Snapshot(
            pools=inventory.pools,
            nodes=inventory.nodes,
            inventory=self._with_others(inventory),
            claims=self._kept,
            holds=self._holds,
            shares=self._share(view),
            modes=self._modes.read(view.shares, inventory).of_allocator if modes is None else modes,
        )

    def _with_others(self, inventory: Inventory) -> Mapping[str, tuple[Device, ...]]:
        """The devices by node, with what is taken of their counters by devices that no pool has, and what others
        consume of them. A node about which nothing changed keeps the same tuple.
        """
        outside = inventory.outside(self._holds)
        lent: defaultdict[str, dict[DeviceID, Lent]] = defaultdict(dict)
        for id_, hold in self._holds.items():
            if hold.lent is not None:
                device = inventory.find(id_)
                if device is not None:
                    lent[device.node][id_] = hold.lent
        if not outside and not lent:
            self._counted = {}
            return inventory.devices
        counted: dict[str, tuple[tuple[Device, ...], object, tuple[Device, ...]]] = {}
        for node in sorted({*outside, *lent}):
            devices, taken = inventory.devices.get(node, ()), (outside.get(node, {}), lent.get(node, {}))
            known = self._counted.get(node)
            if known is None or known[0] is not devices or known[1] != taken:
                known = (devices, taken, tuple(_with_others(device, *taken) for device in devices))
            counted[node] = known
        before, self._counted = self._counted, counted
        same = self._devices[0] is inventory.devices and before.keys() == counted.keys()
        if same and all(before[node][2] is each[2] for node, each in counted.items()):
            return self._devices[1]
        patched = {**inventory.devices, **{node: each[2] for node, each in counted.items() if each[2]}}
        self._devices = (inventory.devices, patched)
        return patched

    def _followed(self, claims: Mapping[str, Claim]) -> Claims:
        """What changed is told apart, so that the allocator need not look for it among thousands."""
        old = self._claims
        drop = [ClaimUID(uid) for uid in old if uid not in claims]
        put = [claim for uid, claim in claims.items() if old.get(uid) is not claim]
        # An edit leaves the others in their order and puts new ones last.
        kept = [uid for uid in old if uid in claims] if drop else list(old)
        if list(claims)[: len(kept)] != kept:
            return Claims(tuple(claims.values()))
        return self._kept.edited(put, drop)

    def _share(self, view: View) -> Mapping[str, Share]:
        """Shares by name; of two objects of one name the newer. A share about which nothing changed stays the same."""
        by_name = {each.meta.name: each for each in sorted(view.shares.values(), key=lambda each: each.meta.version)}
        kept = {name: known for name, known in self._shares.items() if name in by_name and known[0] is by_name[name]}
        if len(kept) != len(by_name) or len(by_name) != len(self._shares):
            self._shares = {
                name: kept.get(name) or (facts, read_share_spec(facts)) for name, facts in sorted(by_name.items())
            }
            self._shared = {name: share for name, (_, share) in self._shares.items()}
        return self._shared

    def _complete(self, own: _Translated, view: View, inventory: Inventory) -> Claim:
        """The claim with what other objects say of it."""
        claim, facts = own.claim, own.facts
        pool = asked_pool(facts, inventory.default_pool)
        rules = inventory.tenancies.get(pool)
        tenant = claim.tenant if rules is None else rules.tenant_of(claim.namespace)
        holds = [] if claim.hold is None else [claim.hold]
        # Who waits for something else is not looked at, and told of it later.
        refusing = not holds or holds[0].code == Code.INVALID_CLAIM
        labels = self._labels.get(claim.namespace) or {NAME_LABEL: claim.namespace}
        if refusing and rules is not None and not rules.allows(labels):
            text = f"namespace {claim.namespace} may not claim from pool {pool}: its labels do not match"
            holds.append(ClaimHold(Code.NOT_ALLOWED, f"{text} tenancy.namespaceSelector"))
        priority, named = claim.priority, facts.claim.spec.priority_class_name
        if named is not None:
            priority = self._priorities.get(named, 0)
            if refusing and named not in self._priorities:
                text = f"there is no PriorityClass {named} (spec.priorityClassName)"
                holds.append(ClaimHold(Code.INVALID_CLAIM, text))
        if refusing and facts.claim.spec.lifecycle is not None:
            wrong = _wrong_parameters(facts.claim.spec.lifecycle.parameters, inventory.parameters.get(pool))
            holds += (ClaimHold(Code.INVALID_CLAIM, each) for each in wrong)
        key = (claim.namespace, claim.name)
        gated = None if holds else self._pod_gated(key)
        holds += [] if gated is None else [gated]
        if not holds and claim.host != HostAsk() and not view.guests_listed:
            holds.append(ClaimHold(Code.HOST_RESOURCES, "what pods use of the nodes is not known yet"))
        placed = _with_bound(_today(claim.placed, inventory), self._bound.get(key, ()))
        hold, more = holds[0] if holds else None, tuple(holds[1:])
        return replace(claim, pool=pool, tenant=tenant, priority=priority, placed=placed, hold=hold, more_holds=more)

    def _pod_gated(self, claim: Named) -> ClaimHold | None:
        message = self._gated.get(claim)
        return ClaimHold(Code.POD_GATED, message) if message is not None else None

    def _settled(self, uid: str, claim: Claim) -> Claim:
        """The claim of the last snapshot where it says the same."""
        known = self._claims.get(uid)
        if known is None or known is claim:
            return claim
        same = all(getattr(known, name) == getattr(claim, name) for name in _CLAIM_FIELDS)
        return known if same else claim


def _following(claim: Claim, wanted: frozenset[int] | None) -> Claim:
    """The claim with the replicas that its pods want; None where that is not for its pods to say."""
    if wanted is None:
        return claim
    end = max(wanted, default=-1) + 1
    return replace(claim, replicas=end, skipped=tuple(index for index in range(end) if index not in wanted))


def _leaving(claim: Claim) -> Claim:
    """The claim with the replicas that it does not want any more on their way back, as its status is about to say."""
    kept, wanted = ReplicaState.RELEASING, claim.members
    if all(replica.state is kept or replica.index in wanted for replica in claim.placed):
        return claim
    placed = (each if each.index in wanted else replace(each, state=kept) for each in claim.placed)
    return replace(claim, placed=tuple(placed))


def _with_others(device: Device, outside: Mapping[tuple[str, str], Counted], lent: Mapping[DeviceID, Lent]) -> Device:
    """The device with what others take of its counters and consume of it."""
    if device.consumes:
        device = replace(device, outside=outside.get((device.id.driver, device.id.pool), {}))
    return replace(device, lent=lent[device.id]) if device.id in lent else device


def _wrong_parameters(chosen: Mapping[str, str], declared: Mapping[str, tuple[str, ...]] | None) -> Iterator[str]:
    """What of a claim's hook parameters its pool does not know, in words."""
    for name, value in sorted(chosen.items()) if declared is not None else ():
        assert declared is not None
        field = f"spec.lifecycle.parameters[{name}]"
        if name not in declared:
            yield f"{field}: its pool declares {', '.join(sorted(declared)) or 'no parameters'}"
        elif value not in declared[name]:
            yield f"{field}: {value!r} is none of the values that its pool declares: {', '.join(declared[name])}"


def _same_surroundings(last: tuple[View, Inventory], now: tuple[View, Inventory]) -> bool:
    """Whether everything beside a claim's own object that goes into it is the same."""
    (old, before), (new, after) = last, now
    return (
        old.pods is new.pods
        and old.namespaces is new.namespaces
        and old.priority_classes is new.priority_classes
        and old.guests_listed == new.guests_listed
        and before.names_as(after)
        and before.default_pool == after.default_pool
        and before.tenancies is after.tenancies
        and before.parameters is after.parameters
    )


_CLAIM_FIELDS = tuple(field.name for field in fields(Claim))


def _today(placed: tuple[PlacedReplica, ...], inventory: Inventory) -> tuple[PlacedReplica, ...]:
    """Held devices under the names that their hardware has today."""
    moved = []
    for replica in placed:
        devices = tuple(
            device if (now := inventory.current(replica.node, device)) == device.id else replace(device, id=now)
            for device in replica.devices
        )
        moved.append(replica if devices == replica.devices else replace(replica, devices=devices))
    return tuple(moved)


def translate(uid: str, facts: ClaimFacts) -> Claim:
    """A claim as far as its own object tells. One that admission would refuse asks for nothing and says why."""
    spec = facts.claim.spec
    asked = read_spec(spec)
    placed = read_placed(facts.status)
    hold = None
    if asked.refusal:
        hold = ClaimHold(Code.INVALID_CLAIM, asked.refusal)
    elif spec.suspend:
        # What it still holds is on its way back.
        placed = tuple(replace(replica, state=ReplicaState.RELEASING) for replica in placed)
        hold = ClaimHold(Code.SUSPENDED, "it is suspended: spec.suspend is true")
    elif (failure := hopeless(facts)) is not None:
        said = f": {failure['message']}" if failure.get("message") else ""
        sets = counted(int(failure.get("count") or 0), "set")
        text = f"hook {failure.get('hook')} failed on {sets} of devices for replica"
        where = f"{failure.get('index')}, last on {failure.get('node')}"
        hold = ClaimHold(Code.QUARANTINED, f"{text} {where}{said}; a change of the claim's spec begins anew")
    released = is_released(facts)
    if released:
        placed = tuple(replace(replica, state=ReplicaState.RELEASING) for replica in placed)
    since = facts.meta.deleting or evicted_since(facts)
    if since is not None:
        placed = tuple(
            replace(replica, releasing_since=since)
            if facts.meta.deleting is not None or replica.state is ReplicaState.RELEASING
            else replica
            for replica in placed
        )
    return Claim(
        uid=ClaimUID(uid),
        namespace=facts.meta.namespace,
        name=facts.meta.name,
        created=facts.meta.created,
        pool=spec.pool_ref.name if spec.pool_ref is not None else "",
        requests=asked.requests,
        affinity=asked.affinity,
        replicas=_asked(facts, released=released),
        priority=spec.priority,
        placed=placed,
        deleting=facts.meta.deleting is not None,
        has_uid=bool(facts.meta.uid),
        hold=hold,
        tenant=own_tenant(facts.meta.namespace),
        gang_min=asked.gang_min,
        fabric=asked.fabric,
        host=asked.host,
        profile=asked.profile,
        deadline=asked.deadline,
        preemptible=spec.preemptible,
        max_runtime=asked.max_runtime,
        nominated=read_nominated(facts.status),
        evictions=read_evictions(facts.status),
    )


def _asked(facts: ClaimFacts, *, released: bool) -> int:
    """How many replicas the claim's own object asks for. What follows pods asks for none by itself; where nobody gets
    anything, for one, so that it is said why."""
    spec = facts.claim.spec
    if released:
        return 0
    if spec.scaling.mode is ScalingMode.FOLLOW_PODS:
        return 1 if spec.suspend else 0
    return replicas_of(spec)


def gated_claims(pods: Mapping[str, PodFacts]) -> Mapping[Named, str]:
    """Claims that must not be planned because of a foreign gate on their newest unbound pod, with a message that names
    it."""
    newest: dict[Named, PodFacts] = {}
    for pod in pods.values():
        if pod.node or pod.finished or pod.meta.deleting is not None:
            continue
        key = (pod.meta.namespace, pod.claim)
        known = newest.get(key)
        if known is None or _age(pod) > _age(known):
            newest[key] = pod
    return {
        key: f"pod {pod.meta.name} is held back by scheduling gate {', '.join(pod.foreign_gates)}"
        for key, pod in newest.items()
        if pod.foreign_gates
    }


def bound_pods(pods: Mapping[str, PodFacts]) -> Mapping[Named, tuple[PodFacts, ...]]:
    """By claim its pods that have a node and have not ended: the node counts their requests."""
    found: defaultdict[Named, list[PodFacts]] = defaultdict(list)
    for pod in pods.values():
        if pod.node and not pod.finished:
            found[pod.meta.namespace, pod.claim].append(pod)
    return {key: tuple(sorted(group, key=_age)) for key, group in found.items()}


def _with_bound(placed: tuple[PlacedReplica, ...], pods: tuple[PodFacts, ...]) -> tuple[PlacedReplica, ...]:
    """Replicas with whether a pod of theirs is bound: the one that a pod names, else one on the pod's node."""
    if not pods:
        return placed
    bound: set[int] = set()
    for pod in sorted(pods, key=lambda pod: pod.replica is None):
        there = [replica.index for replica in placed if replica.node == pod.node and replica.index not in bound]
        if pod.replica in there:
            bound.add(pod.replica)
        elif there:
            bound.add(there[0])
    return tuple(replace(replica, bound=True) if replica.index in bound else replica for replica in placed)


def _age(pod: PodFacts) -> tuple[float, str]:
    return pod.meta.created or 0.0, pod.meta.uid


def find_holds(view: View, inventory: Inventory, claims: Mapping[str, Claim]) -> Mapping[DeviceID, Hold]:
    """Devices that are taken although no claim's status names them.

    Those in allocated ResourceClaims, other than the delivery of what a known claim holds: a ResourceClaim of ours
    belongs to the DeviceClaim whose UID it is owned by, whatever its name; what it has beyond that claim's status is on
    its way back, and so is everything of one whose DeviceClaim is gone. So it is with our ConfigMaps. And other faces
    of the hardware that a claim holds: the card of a partition, and a card that is missing where it is held and
    published by another node (which was renamed, or has the card now).
    """
    holds: dict[DeviceID, Hold] = {}
    consumed: dict[tuple[str, DeviceID], Sequence[Mapping[str, Quantity]]] = {}
    untold: set[DeviceID] = set()
    # Foreign ones first: where both stand, the device is the foreign claim's. By name, so that the answer has no order.
    allocated = [facts for facts in view.resource_claims.values() if facts.allocated]
    for facts in sorted(allocated, key=lambda facts: (facts.ours, facts.meta.key)):
        kind = HoldKind.RELEASING if facts.ours else HoldKind.FOREIGN
        owner = claims.get(facts.owner) if facts.owner else None
        mine = {device.id for replica in owner.placed for device in replica.devices} if owner is not None else set()
        if facts.hook and facts.meta.namespace == view.namespace:
            # A hook works on what some claim holds, or on what is in quarantine anyway.
            kind = HoldKind.RELEASING
            mine = {device.id for claim in claims.values() for each in claim.placed for device in each.devices}
        for device in facts.devices:
            if device not in mine:
                for excluded in inventory.excluded_by(device):
                    shared = excluded in facts.shared and not facts.ours
                    holds.setdefault(excluded, Hold(kind, f"ResourceClaim {facts.meta.key}", shared))
                    told = [each.amounts for each in facts.consumed if each.device == excluded] if shared else []
                    if len(told) < facts.devices.count(device) or kind is not HoldKind.FOREIGN:
                        # Nobody says how much of it they have, or they are yet to give it back.
                        untold.add(excluded)
                    elif (facts.meta.key, excluded) not in consumed:
                        consumed[facts.meta.key, excluded] = told
    for grant in sorted(view.grants.values(), key=lambda facts: facts.meta.key):
        owner = claims.get(grant.owner)
        mine = {device.id for replica in owner.placed for device in replica.devices} if owner is not None else set()
        for device in set(grant.devices) - mine if grant.owner else ():
            for excluded in inventory.excluded_by(device):
                holds.setdefault(excluded, Hold(HoldKind.RELEASING, f"ConfigMap {grant.meta.key}"))
                untold.add(excluded)
    elsewhere = inventory.published_elsewhere()
    placed = {
        device.id: (claim, device.hardware_id)
        for claim in claims.values()
        for replica in claim.placed
        for device in replica.devices
    }
    counted = {
        device.id
        for claim in claims.values()
        for replica in claim.placed
        for device in replica.devices
        if device.consumed
    }
    for id_, (claim, hardware) in placed.items():
        twin = elsewhere.get(hardware)
        # What takes counters by its record keeps nothing else from anybody.
        beside = () if id_ in counted else inventory.excluded_by(id_)[1:]
        for other in (*beside, *((twin,) if twin is not None else ())):
            if other not in placed:
                holds.setdefault(other, Hold(HoldKind.FOREIGN, f"DeviceClaim {claim.namespace}/{claim.name}"))
                untold.add(other)
    theirs: defaultdict[DeviceID, list[Mapping[str, Quantity]]] = defaultdict(list)
    for (_, card), amounts in consumed.items():
        theirs[card] += amounts
    for card in sorted(theirs.keys() - untold):
        found = inventory.find(card)
        if found is not None:
            holds[card] = replace(holds[card], lent=_lent(found, theirs[card]))
    return holds


def _lent(device: Device, consumed: Sequence[Mapping[str, Quantity]]) -> Lent | None:
    """What others leave of a device, as kube-scheduler counts it: of each of its capacities what they do not consume.
    None where that cannot be said."""
    memory = memory_name(device)
    if not device.allow_multiple_allocations or memory is None or any(memory not in each for each in consumed):
        return None
    taken = {
        name: sum((each[name].value for each in consumed if name in each), Fraction(0)) for name in device.capacity
    }
    parts: int | None = None
    for name, needed in consumption(device, None).items():
        if name != memory and needed.value > 0:
            more = max(0, int((device.capacity[name].value - taken[name]) // needed.value))
            parts = more if parts is None else min(parts, more)
    return Lent(ceil(taken[memory]), parts)
