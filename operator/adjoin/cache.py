"""What the API server holds, in memory.

In come objects and their ends, from watches, lists and the writer's own answers, in any order and as often as they
like; out go frozen views. Everything is keyed by UID, and whatever is not newer than what is known (resourceVersion,
also of things already gone) is ignored: so an echo of an own write, a late event of an earlier object of the same name,
or an event overtaken by a list changes nothing.

On top lies the assumed overlay: from the moment an intent is handed to the writer until it has ended, its subject is
busy and a DeviceClaim shows the status it is about to have, and still what it is about to give back: until that is
written, another claim's write could come first. Only the writer takes it off (`settle`, `hold`), once it has seen how
the write ended; age never does.

Nothing here asks the API server, reads a clock or decides anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache as remembered
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import structlog

from adjoin.environment import (
    GuestFacts,
    NamespaceFacts,
    PriorityClassFacts,
    ShareFacts,
    read_guest,
    read_namespace,
    read_priority_class,
    read_share,
)
from adjoin.facts import (
    MALFORMED,
    ClaimFacts,
    ConfigMapFacts,
    Meta,
    NodeFacts,
    PodFacts,
    PoolFacts,
    Raw,
    ResourceClaimFacts,
    SliceFacts,
    TaintRuleFacts,
    read_claim,
    read_config_map,
    read_meta,
    read_node,
    read_pod,
    read_pool,
    read_resource_claim,
    read_slice,
    read_taint_rule,
)
from adjoin.grants import GrantFacts, read_grant
from adjoin.holdings import holding
from adjoin.intents import Intent, Kind
from adjoin.jobs import HookPodFacts, JobFacts, Rejection, read_hook_pod, read_job
from adjoin.loads import NodeLoad, settled
from adjoin.traces import unseen

LINGER_SECONDS: Final = 30.0
"""So long a pod that vanished while it was seen running still holds its devices: kubelet and driver have to let go."""
REMEMBERED_ENDS: Final = 20_000
"""Objects whose end is remembered, so that a late event does not bring them back. A list repairs what falls out."""


class Facts(Protocol):
    """Facts of any kind."""

    @property
    def meta(self) -> Meta: ...


REMEMBERED_REJECTIONS: Final = 1_000
"""Hook Jobs that the API server refused, of which it is remembered why. What falls out is asked again."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Everything a decision may depend on, at one instant. Mappings are shared with other views and never change.

    Attributes:
        claims: By UID, with the status that is assumed while a write is under way.
        pools: By UID.
        pods: By UID; only pods that name a DeviceClaim.
        resource_claims: By UID; all of the cluster.
        slices: By UID.
        nodes: By name.
        taint_rules: By UID.
        config_maps: By UID; those of the operator's namespace.
        guard_served: Whether this API server serves DeviceTaintRules.
        busy: UIDs of subjects with an intent under way, or waiting out a refusal.
        lingering: UID of a pod that is gone → until when (seconds since the epoch) it still holds its devices.
        forced: The same, kept after that time too, since nobody has seen how such a pod ended.
        namespace: The operator's own.
        ghosts: The pods of `lingering` that were seen, as they were last seen; for those of which there is nothing but
            a status, what that says.
        refused: Those of `busy` that wait out a refusal.
        shares: DeviceShares by UID.
        namespaces: By UID.
        priority_classes: By UID.
        guests: Bound pods that have not ended, by UID; only while some claim asks for host resources.
        guests_listed: `guests` are complete.
        jobs: Hook Jobs of the operator's namespace, by UID.
        hook_pods: Their pods, by UID.
        grants: ConfigMaps that hand devices to pods, by UID; also those of others whose name was found taken.
        loads: What is measured of nodes, by name; none where nobody measures. Numbers stand still as long as a node
            does not become loaded or calm.
        rejections: By name of a hook's Job why the API server does not take it.
    """

    claims: Mapping[str, ClaimFacts]
    pools: Mapping[str, PoolFacts]
    pods: Mapping[str, PodFacts]
    resource_claims: Mapping[str, ResourceClaimFacts]
    slices: Mapping[str, SliceFacts]
    nodes: Mapping[str, NodeFacts]
    taint_rules: Mapping[str, TaintRuleFacts]
    config_maps: Mapping[str, ConfigMapFacts]
    guard_served: bool
    busy: frozenset[str]
    lingering: Mapping[str, float]
    namespace: str
    ghosts: Mapping[str, PodFacts] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    shares: Mapping[str, ShareFacts] = field(default_factory=dict)
    namespaces: Mapping[str, NamespaceFacts] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClassFacts] = field(default_factory=dict)
    guests: Mapping[str, GuestFacts] = field(default_factory=dict)
    guests_listed: bool = True
    forced: Mapping[str, float] = field(default_factory=dict)
    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    hook_pods: Mapping[str, HookPodFacts] = field(default_factory=dict)
    grants: Mapping[str, GrantFacts] = field(default_factory=dict)
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)
    rejections: Mapping[str, Rejection] = field(default_factory=dict)


def _bare(obj: Raw) -> Raw:
    """The object without what no model is made of: parsing our own status would double the cost of every event."""
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": meta}


def _read_claim(obj: Raw) -> ClaimFacts:
    return replace(read_claim(_bare(obj)), status=obj.get("status") or {})


def _read_pool(obj: Raw) -> PoolFacts:
    return replace(read_pool(_bare(obj)), status=obj.get("status") or {})


READERS: Final[Mapping[Kind, Callable[[Raw], Facts | None]]] = MappingProxyType(
    {
        Kind.DEVICE_CLAIM: _read_claim,
        Kind.DEVICE_POOL: _read_pool,
        Kind.POD: read_pod,
        Kind.RESOURCE_CLAIM: read_resource_claim,
        Kind.RESOURCE_SLICE: read_slice,
        Kind.NODE: read_node,
        Kind.TAINT_RULE: read_taint_rule,
        Kind.CONFIG_MAP: read_config_map,
        Kind.DEVICE_SHARE: read_share,
        Kind.NAMESPACE: read_namespace,
        Kind.PRIORITY_CLASS: read_priority_class,
        Kind.GUEST: read_guest,
        Kind.JOB: read_job,
        Kind.HOOK_POD: read_hook_pod,
        Kind.GRANT: read_grant,
    }
)
"""Raw object → facts, for every kind that is kept. None means: not of interest."""

HOLDERS: Final = frozenset({Kind.DEVICE_CLAIM, Kind.RESOURCE_CLAIM})
"""Kinds that say who holds a device: one that cannot be read must stop decisions, not be taken for absent."""

READ_ONLY: Final = frozenset(
    {
        Kind.NODE,
        Kind.RESOURCE_SLICE,
        Kind.CONFIG_MAP,
        Kind.NAMESPACE,
        Kind.PRIORITY_CLASS,
        Kind.GUEST,
        Kind.HOOK_POD,
    }
)
"""Kinds that we never write: a version without new content (a heartbeat) keeps the facts and all made of them."""

ON_DEMAND: Final = frozenset({Kind.GUEST})
"""Kinds that are only listed once something depends on them: all pods of a cluster are many."""

_SPOKEN: Final = {Kind.HOOK_POD: "pods of hooks", Kind.GRANT: "configmaps of pods"}

_F = TypeVar("_F", bound=Facts)
_log = structlog.get_logger(__name__)


@remembered
def _compared(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "meta")


def _same(old: Facts, new: Facts) -> bool:
    """Whether nothing but the version differs. A DeviceClaim's or DevicePool's model is compared by its spec."""
    if type(old) is not type(new) or replace(old.meta, version=0) != replace(new.meta, version=0):
        return False
    for name in _compared(type(new)):
        before, after = getattr(old, name), getattr(new, name)
        if name in ("claim", "pool", "share") and hasattr(before, "spec"):
            before, after = before.spec, after.spec
        if before is not after and before != after:
            return False
    return True


class _Table:
    """Objects of one kind by UID, and the versions at which others of them ended."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.known: dict[str, Facts] = {}
        self.versions: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.names: dict[tuple[str, str], str] = {}
        self.listed = False
        self.changed = True
        self._frozen: Mapping[str, Facts] = MappingProxyType({})

    def version(self, uid: str) -> int:
        """Newest version known of an object, also of one that is gone."""
        return max(self.versions.get(uid, -1), self.ends.get(uid, -1))

    def put(self, facts: Facts) -> bool | None:
        """None: not newer. False: newer, but nothing a decision could see has changed. True: new or changed."""
        uid, version = facts.meta.uid, facts.meta.version
        if version <= self.version(uid):
            return None
        known = self.known.get(uid)
        self.versions[uid] = version
        key = (facts.meta.namespace, facts.meta.name)
        if version >= self.versions.get(self.names.get(key, ""), -1):
            self.names[key] = uid
        same = known is not None and _same(known, facts)
        if not (same and self.kind in READ_ONLY):
            self.known[uid] = facts
            self.changed = True
        return not same

    def drop(self, uid: str, version: int) -> Facts | None:
        """Forgets an object that ended at `version`, unless it was seen later than that."""
        if version < self.versions.get(uid, -1):
            return None
        self.ends.pop(uid, None)
        self.ends[uid] = version
        while len(self.ends) > REMEMBERED_ENDS:
            del self.ends[next(iter(self.ends))]
        self.versions.pop(uid, None)
        gone = self.known.pop(uid, None)
        if gone is not None:
            self.changed = True
            key = (gone.meta.namespace, gone.meta.name)
            if self.names.get(key) == uid:
                del self.names[key]
        return gone

    def freeze(self, overlay: Mapping[str, Facts]) -> Mapping[str, Facts]:
        """The table as a mapping that never changes: copied only when something changed since the last time."""
        if self.changed:
            if self.kind is Kind.NODE:
                # Two Nodes of one name: the old one's end has not been seen yet.
                ordered = sorted(self.known.values(), key=lambda facts: facts.meta.version)
                copy = {facts.meta.name: facts for facts in ordered}
            else:
                copy = {uid: overlay.get(uid, facts) for uid, facts in self.known.items()}
            self._frozen = MappingProxyType(copy)
            self.changed = False
        return self._frozen


class Cache:
    """The one place where what is known of the cluster is kept. Used from one thread; views may go to another.

    `notify` is called after every change that a decision could see, and when a subject stops being busy.
    """

    def __init__(self, namespace: str, notify: Callable[[], None] = lambda: None) -> None:
        self._namespace = namespace
        self.notify = notify
        self._tables = {kind: _Table(kind) for kind in READERS}
        self._assumed: dict[str, ClaimFacts] = {}
        self._under_way: set[str] = set()
        self._held: set[str] = set()
        self._lingering: dict[str, float] = {}
        self._forced: dict[str, float] = {}
        self._ghosts: dict[str, PodFacts] = {}
        self._unreadable: dict[tuple[Kind, str], str] = {}
        self._rejections: dict[str, Rejection] = {}
        self._loads: Mapping[str, NodeLoad] = MappingProxyType({})
        self._guard_served = False
        self._busy: frozenset[str] | None = None
        self._listed = asyncio.Event()
        self.guests_wanted = asyncio.Event()
        """Set once a claim asks for host resources; what pods use of nodes is only looked at then."""

    # Looking

    @property
    def synced(self) -> bool:
        """Every kind has been listed once: before that, absence means nothing."""
        return not self.unsynced

    async def wait_synced(self) -> None:
        """Returns once `synced` is true."""
        await self._listed.wait()

    @property
    def unsynced(self) -> tuple[str, ...]:
        """Kinds that were never listed."""
        return tuple(
            _SPOKEN.get(kind, kind.value.plural)
            for kind, table in self._tables.items()
            if not table.listed and kind not in ON_DEMAND
        )

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Objects that hold devices but cannot be read, with the error. While there are any, nothing may be decided."""
        return tuple(self._unreadable.values())

    def known(self, kind: Kind, uid: str) -> Facts | None:
        """Facts as the API server last showed them, without what is assumed."""
        return self._tables[kind].known.get(uid)

    def named(self, kind: Kind, namespace: str, name: str) -> Facts | None:
        """The object of that name; of two, the newer."""
        table = self._tables[kind]
        return table.known.get(table.names.get((namespace, name), ""))

    def versions(self, kind: Kind) -> Mapping[str, int]:
        """Newest known version by UID."""
        return MappingProxyType(self._tables[kind].versions)

    def ended(self, kind: Kind) -> Mapping[str, int]:
        """Versions at which objects ended, by UID, as far as that is remembered."""
        return MappingProxyType(self._tables[kind].ends)

    def view(self, now: float) -> View:
        """What is known now. Costs a copy of each kind that has changed since the last view."""
        for uid in [uid for uid, until in self._lingering.items() if until <= now]:
            del self._lingering[uid]
            self._ghosts.pop(uid, None)
        if self._busy is None:
            self._busy = frozenset(self._under_way | self._held)

        def frozen(kind: Kind) -> Mapping[str, Facts]:
            return self._tables[kind].freeze(self._assumed if kind is Kind.DEVICE_CLAIM else {})

        return View(
            claims=frozen(Kind.DEVICE_CLAIM),  # type: ignore[arg-type]
            pools=frozen(Kind.DEVICE_POOL),  # type: ignore[arg-type]
            pods=frozen(Kind.POD),  # type: ignore[arg-type]
            resource_claims=frozen(Kind.RESOURCE_CLAIM),  # type: ignore[arg-type]
            slices=frozen(Kind.RESOURCE_SLICE),  # type: ignore[arg-type]
            nodes=frozen(Kind.NODE),  # type: ignore[arg-type]
            taint_rules=frozen(Kind.TAINT_RULE),  # type: ignore[arg-type]
            config_maps=frozen(Kind.CONFIG_MAP),  # type: ignore[arg-type]
            guard_served=self._guard_served,
            busy=self._busy,
            lingering=MappingProxyType(dict(self._lingering)),
            namespace=self._namespace,
            ghosts=MappingProxyType(dict(self._ghosts)),
            forced=MappingProxyType(dict(self._forced)),
            refused=frozenset(self._held),
            rejections=MappingProxyType(dict(self._rejections)),
            shares=frozen(Kind.DEVICE_SHARE),  # type: ignore[arg-type]
            namespaces=frozen(Kind.NAMESPACE),  # type: ignore[arg-type]
            priority_classes=frozen(Kind.PRIORITY_CLASS),  # type: ignore[arg-type]
            guests=frozen(Kind.GUEST),  # type: ignore[arg-type]
            guests_listed=self._tables[Kind.GUEST].listed,
            jobs=frozen(Kind.JOB),  # type: ignore[arg-type]
            hook_pods=frozen(Kind.HOOK_POD),  # type: ignore[arg-type]
            grants=frozen(Kind.GRANT),  # type: ignore[arg-type]
            loads=self._loads,
        )

    # Observing

    def ingest(self, kind: Kind, obj: Raw) -> bool:
        """Takes a raw object of a kept kind. Returns whether a decision could see a difference."""
        meta = read_meta(obj)
        if meta.version <= self._tables[kind].version(meta.uid):
            return False
        facts = self._read(kind, obj, meta)
        return facts is not None and self.observe(kind, facts)

    def ingest_end(self, kind: Kind, obj: Raw, now: float) -> bool:
        """Takes the last state of an object that is gone; its resourceVersion is that of its end."""
        meta = read_meta(obj)
        last = None
        if kind is Kind.POD and meta.version >= self._tables[kind].version(meta.uid):
            last = self._read(kind, obj, meta)
        return self.forget(kind, meta.uid, meta.version, now, last)

    def observe(self, kind: Kind, facts: Facts) -> bool:
        """Takes the state of an object. Returns whether a decision could see a difference."""
        uid = facts.meta.uid
        before = self._tables[kind].known.get(uid)
        outcome = self._tables[kind].put(facts)
        if outcome is None:
            return False
        self._unreadable.pop((kind, uid), None)
        if isinstance(facts, ClaimFacts) and facts.claim.spec.host is not None:
            self.guests_wanted.set()
        if kind is Kind.POD:
            # Its traces were seen before the pod itself was.
            self._lingering.pop(uid, None)
            self._forced.pop(uid, None)
            self._ghosts.pop(uid, None)
        if isinstance(facts, ClaimFacts) and uid in self._assumed:
            self._assumed[uid] = replace(facts, status=self._assumed[uid].status)
        if outcome and uid in self._held and before is not None and _asked(before) != _asked(facts):
            # The user changed what was refused: there is nothing left to wait out.
            self.settle(uid)
        if outcome:
            self.notify()
        return outcome

    def forget(self, kind: Kind, uid: str, version: int, now: float, last: Facts | None = None) -> bool:
        """Takes the end of an object at `version`; an end that is older than what was seen of the object is ignored."""
        gone = self._tables[kind].drop(uid, version)
        self._unreadable.pop((kind, uid), None)
        if gone is None:
            return False
        self._assumed.pop(uid, None)
        pod = last or gone
        if isinstance(pod, PodFacts) and pod.node and pod.started and not pod.stopped and not pod.finished:
            self._linger((uid,), now)
            self._ghosts[uid] = pod
        self.notify()
        return True

    def prune(self, kind: Kind, present: Collection[str], version: int, now: float) -> int:
        """Takes the UIDs of a complete list made at `version`: what is not in it and was not seen later is gone.

        Returns how many objects were forgotten. The kind counts as listed from now on; its objects were ingested.
        """
        table = self._tables[kind]
        absent = [uid for uid, seen in table.versions.items() if uid not in present and seen <= version]
        dropped = sum(self.forget(kind, uid, version, now) for uid in absent)
        for key in [key for key in self._unreadable if key[0] is kind and key[1] not in present]:
            del self._unreadable[key]
        if not table.listed:
            self._mark_listed(table, now)
        return dropped

    def serve_guard(self, served: bool, now: float) -> None:
        """Says whether DeviceTaintRules are served; where they are not, there is nothing to list."""
        table = self._tables[Kind.TAINT_RULE]
        if served != self._guard_served or (not served and not table.listed):
            self._guard_served = served
            if not served:
                self._mark_listed(table, now)
            self.notify()

    def measure(self, loads: Mapping[str, NodeLoad]) -> bool:
        """Takes what is measured of all nodes. Returns whether a decision could see a difference: a node has become
        loaded or calm, or is measured now and was not, or no longer.
        """
        nodes = {facts.meta.name: facts for facts in self._tables[Kind.NODE].known.values()}
        now = settled(self._loads, loads, nodes)  # type: ignore[arg-type]
        if now is self._loads:
            return False
        self._loads = MappingProxyType(dict(now))
        self.notify()
        return True

    def _mark_listed(self, table: _Table, now: float) -> None:
        table.listed = True
        if self.synced and not self._listed.is_set():
            self._listed.set()
            self._remember_unseen(now)
        self.notify()

    def _remember_unseen(self, now: float) -> None:
        """Lets pods linger that went away while nobody of us was there to see how."""
        known = {kind: table.known for kind, table in self._tables.items()}
        traces = unseen(
            known[Kind.DEVICE_CLAIM],  # type: ignore[arg-type]
            known[Kind.RESOURCE_CLAIM],  # type: ignore[arg-type]
            known[Kind.POD],  # type: ignore[arg-type]
            self._tables[Kind.POD].ends,
            known[Kind.GRANT],  # type: ignore[arg-type]
        )
        self._ghosts |= {pod.meta.uid: pod for pod in traces.nameless}
        lingering = [*sorted(traces.named), *(pod.meta.uid for pod in traces.nameless)]
        self._linger(lingering, now)
        if lingering:
            first = lingering[:5]
            _log.info("pods went while nobody saw how: devices stay held", count=len(lingering), first=first)

    def _linger(self, uids: Iterable[str], now: float) -> None:
        until = dict.fromkeys(uids, now + LINGER_SECONDS)
        self._lingering |= until
        self._forced |= until
        while len(self._forced) > REMEMBERED_ENDS:
            del self._forced[next(iter(self._forced))]

    def _read(self, kind: Kind, obj: Raw, meta: Meta) -> Facts | None:
        known = self._tables[kind].known.get(meta.uid)
        if isinstance(known, ClaimFacts) and known.meta.generation == meta.generation != 0:
            # The same generation is the same spec: the model stays, and with it everything that was made of it.
            finalizers = tuple((obj.get("metadata") or {}).get("finalizers") or ())
            return replace(known, meta=meta, status=obj.get("status") or {}, finalizers=finalizers)
        try:
            return READERS[kind](obj)
        except MALFORMED as error:
            _log.error("an object cannot be read", kind=kind.value.kind, object=meta.key, error=str(error))
            holds = kind in HOLDERS and (obj.get("status") or {}).get("allocation")
            if holds and meta.uid not in self._tables[kind].known:
                self._unreadable[kind, meta.uid] = f"{kind.value.kind} {meta.key}: {error}"
            return None

    # What is assumed

    def assume(self, intent: Intent) -> bool:
        """Marks the subject busy and overlays what is assumed of it. False, and no change, when it is busy already."""
        subject = intent.subject
        if self.occupied(subject):
            return False
        self._under_way.add(subject)
        self._busy = None
        claim = self._tables[Kind.DEVICE_CLAIM].known.get(subject)
        if intent.assume is not None and isinstance(claim, ClaimFacts):
            self._overlay(subject, replace(claim, status=holding(claim.status, intent.assume)))
        return True

    def occupied(self, subject: str) -> bool:
        """Whether the subject has an intent under way or waits out a refusal."""
        return subject in self._under_way or subject in self._held

    def hold(self, subject: str) -> None:
        """Takes the overlay off but keeps the subject busy, until `settle` or until its spec changes."""
        self._overlay(subject, None)
        if subject in self._under_way:
            self._under_way.discard(subject)
            self._held.add(subject)

    def settle(self, subject: str) -> None:
        """Ends what was assumed: the subject's true state has been observed, or nothing was sent."""
        self._overlay(subject, None)
        if self.occupied(subject):
            self._under_way.discard(subject)
            self._held.discard(subject)
            self._busy = None
            self.notify()

    def reject(self, name: str, rejection: Rejection | None) -> None:
        """Remembers why the API server does not take a hook's Job of that name; None: it took it."""
        self._rejections.pop(name, None)
        if rejection is not None:
            self._rejections[name] = rejection
            while len(self._rejections) > REMEMBERED_REJECTIONS:
                del self._rejections[next(iter(self._rejections))]

    def holding(self, subject: str) -> bool:
        """Whether the subject waits out a refusal."""
        return subject in self._held

    def _overlay(self, subject: str, facts: ClaimFacts | None) -> None:
        if facts is not None:
            self._assumed[subject] = facts
        elif self._assumed.pop(subject, None) is None:
            return
        self._tables[Kind.DEVICE_CLAIM].changed = True


def _asked(facts: Facts) -> tuple[int, bool]:
    """What of an object is its owner's wish: the generation of its spec, and whether it is to go."""
    return facts.meta.generation, facts.meta.deleting is not None
