"""Facts → allocator Snapshot: the one translator inwards.

In come a View and its Inventory, out goes everything that a decision of the allocator depends on. Claims are translated
once per version and stay the same object while nothing about them changed. The command line feeds views made of files
through the same code.

Nothing here decides; what may not be planned is marked as held back, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from adjoin.api.claim import AffinityLine, DeviceClaimSpec, DeviceRequest
from adjoin.api.defaults import count_of, device_of, policy_of, replicas_of
from adjoin.api.errors import joined
from adjoin.api.names import API_VERSION, Kind
from adjoin.api.validate import validate_claim
from adjoin.cache import View
from adjoin.facts import ClaimFacts, PodFacts, read_placed
from adjoin.inventory import Inventory, asked_pool
from adjoin_allocator.cel import compile_selector
from adjoin_allocator.model import Affinity, Claim, ClaimHold, ClaimUID, DeviceID, Hold, PlacedReplica, Request
from adjoin_allocator.results import Code
from adjoin_allocator.snapshot import Snapshot
from adjoin_allocator.terms import HoldKind, Policy, Scope

SPECS = 4096
"""How many distinct specs are remembered."""

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
        self._tuple: tuple[Claim, ...] = ()
        self._last: tuple[View, Inventory] | None = None
        self._gated: Mapping[Named, str] = {}
        self._holds: Mapping[DeviceID, Hold] = {}

    def build(self, view: View, inventory: Inventory) -> Snapshot:
        """The snapshot of `view`, whose inventory is `inventory`. Claims stand in the view's order."""
        last, self._last = self._last, (view, inventory)
        # While nothing beside a claim has changed that goes into it, its own facts decide.
        steady = (
            last is not None
            and last[0].pods is view.pods
            and last[1].names_as(inventory)
            and last[1].default_pool == inventory.default_pool
        )
        if last is None or last[0].pods is not view.pods:
            self._gated = gated_claims(view.pods)
        translated: dict[str, _Translated] = {}
        claims: dict[str, Claim] = {}
        for uid, facts in view.claims.items():
            known = self._translated.get(uid)
            if known is not None and known.facts is facts:
                translated[uid] = known
                claims[uid] = self._claims[uid] if steady else self._settled(uid, self._complete(known, inventory))
            else:
                own = translated[uid] = _Translated(facts, translate(uid, facts))
                claims[uid] = self._settled(uid, self._complete(own, inventory))
        made = tuple(claims.values())
        if len(made) != len(self._tuple) or any(one is not other for one, other in zip(made, self._tuple, strict=True)):
            self._tuple = made
        self._translated, self._claims = translated, claims
        holds = find_holds(view, inventory, claims)
        if holds != self._holds:
            self._holds = holds
        return Snapshot(
            pools=inventory.pools,
            nodes=inventory.nodes,
            inventory=inventory.devices,
            claims=self._tuple,
            holds=self._holds,
        )

    def _complete(self, own: _Translated, inventory: Inventory) -> Claim:
        claim, facts = own.claim, own.facts
        pool = asked_pool(facts, inventory.default_pool)
        placed = _today(claim.placed, inventory)
        hold = claim.hold or self._pod_gated((claim.namespace, claim.name))
        if (pool, placed, hold) == (claim.pool, claim.placed, claim.hold):
            return claim
        return replace(claim, pool=pool, placed=placed, hold=hold)

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
    asked = _read_spec(spec.model_dump_json(by_alias=True, exclude_unset=True))
    return Claim(
        uid=ClaimUID(uid),
        namespace=facts.meta.namespace,
        name=facts.meta.name,
        created=facts.meta.created,
        pool=spec.pool_ref.name if spec.pool_ref is not None else "",
        requests=asked.requests,
        affinity=asked.affinity,
        replicas=replicas_of(spec),
        priority=spec.priority,
        placed=read_placed(facts.status),
        deleting=facts.meta.deleting is not None,
        has_uid=bool(facts.meta.uid),
        hold=ClaimHold(Code.INVALID_CLAIM, asked.refusal) if asked.refusal else None,
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    requests: tuple[Request, ...]
    affinity: tuple[Affinity, ...]
    refusal: str


@lru_cache(maxsize=SPECS)
def _read_spec(text: str) -> _Asked:
    """What a spec (as JSON) asks of one replica. Most claims of a cluster are written alike, and are read once."""
    claim = {"apiVersion": API_VERSION, "kind": Kind.DEVICE_CLAIM, "metadata": {"name": "x"}, "spec": json.loads(text)}
    # Admission has seen it, but perhaps one of another version, or none at all.
    refusal = joined(validate_claim(claim))
    if refusal:
        return _Asked((), (), refusal)
    spec = DeviceClaimSpec.model_validate(claim["spec"])
    return _Asked(tuple(map(_request, spec.requests)), tuple(map(_affinity, spec.affinity)), "")


def _request(request: DeviceRequest) -> Request:
    count = count_of(request)
    return Request(
        name=request.name,
        kind=device_of(request),
        count=count or 0,
        all_devices=count is None,
        selectors=tuple(compile_selector(selector.cel) for selector in request.selectors),
    )


def _affinity(line: AffinityLine) -> Affinity:
    return Affinity(
        requests=line.requests,
        policy=Policy(policy_of(line)),
        scope=Scope(line.scope) if line.scope is not None else None,
        attribute=line.attribute or "",
    )


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


def _age(pod: PodFacts) -> tuple[float, str]:
    return pod.meta.created or 0.0, pod.meta.uid


def find_holds(view: View, inventory: Inventory, claims: Mapping[str, Claim]) -> Mapping[DeviceID, Hold]:
    """Devices that are taken although no claim's status names them.

    Those in allocated ResourceClaims, other than the delivery of what a known claim holds: a ResourceClaim of ours
    belongs to the DeviceClaim whose UID it is owned by, whatever its name; what it has beyond that claim's status is on
    its way back, and so is everything of one whose DeviceClaim is gone. And other faces of the hardware that a claim
    holds: the card of a partition, and a card that is missing where it is held and published by another node (which was
    renamed, or has the card now).
    """
    holds: dict[DeviceID, Hold] = {}
    # Foreign ones first: where both stand, the device is the foreign claim's. By name, so that the answer has no order.
    allocated = [facts for facts in view.resource_claims.values() if facts.allocated]
    for facts in sorted(allocated, key=lambda facts: (facts.ours, facts.meta.key)):
        kind = HoldKind.RELEASING if facts.ours else HoldKind.FOREIGN
        owner = claims.get(facts.owner) if facts.owner else None
        mine = {device.id for replica in owner.placed for device in replica.devices} if owner is not None else set()
        for device in facts.devices:
            if device not in mine:
                for excluded in inventory.excluded_by(device):
                    holds.setdefault(excluded, Hold(kind, f"ResourceClaim {facts.meta.key}"))
    elsewhere = inventory.published_elsewhere()
    placed = {
        device.id: (claim, device.hardware_id)
        for claim in claims.values()
        for replica in claim.placed
        for device in replica.devices
    }
    for id_, (claim, hardware) in placed.items():
        twin = elsewhere.get(hardware)
        for other in (*inventory.excluded_by(id_)[1:], *((twin,) if twin is not None else ())):
            if other not in placed:
                holds.setdefault(other, Hold(HoldKind.FOREIGN, f"DeviceClaim {claim.namespace}/{claim.name}"))
    return holds
