"""Objects from files → what a decision is made of: facts in a View, and workloads to check against claims.

In come documents in the order in which they were given; out goes an `Input`. Objects of Adjoin's own kinds are
validated as admission does, and every refusal is collected. A broken object of another kind is left out with a warning,
and so is a kind that plays no part.

The outcome depends on the set of objects: an object given twice counts once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from adjoin.api.names import GROUP, Kind
from adjoin.api.validate import validate
from adjoin.cache import View
from adjoin.cli.documents import Document
from adjoin.cli.shapes import misshapen
from adjoin.cli.statuses import repetitions
from adjoin.cli.typed import check_types
from adjoin.environment import read_guest, read_namespace, read_priority_class, read_share
from adjoin.facts import (
    MALFORMED,
    ConfigMapFacts,
    read_claim,
    read_config_map,
    read_node,
    read_pod,
    read_pool,
    read_resource_claim,
    read_slice,
    read_taint_rule,
    timestamp,
)
from adjoin.grants import read_labelled_grant
from adjoin.loads import GROUP as LOADS
from adjoin.loads import KIND as LOAD_KIND
from adjoin.loads import read_node_load

DEFAULT_NAMESPACE = "default"
_CLUSTER_SCOPED = frozenset(
    {"Node", LOAD_KIND, "Namespace", "ResourceSlice", "DeviceTaintRule", "DevicePool", "DeviceShare", "PriorityClass"}
)
_RESOURCE = "resource.k8s.io"
_KNOWN = {
    ("", "Node"),
    ("", "Pod"),
    ("", "Namespace"),
    ("", "ConfigMap"),
    (_RESOURCE, "ResourceSlice"),
    (_RESOURCE, "ResourceClaim"),
    (_RESOURCE, "DeviceTaintRule"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "ReplicaSet"),
    (LOADS, LOAD_KIND),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("jobset.x-k8s.io", "JobSet"),
    *((GROUP, str(kind)) for kind in Kind),
}

Identity = tuple[str, str, str, str]
"""Group, kind, namespace, name."""
Facts = TypeVar("Facts")
WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "Job", "CronJob", "JobSet", "Pod")


class BadInput(Exception):
    """Objects that cannot be planned with; `problems` says which, each with its place and field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """What was read.

    Attributes:
        view: All facts. Claims stand in the order of the input.
        workloads: Objects that make pods, and pods.
        newest: The newest creationTimestamp, deletionTimestamp or taint time in the input, or None.
        warnings: Sentences on what was left out.
    """

    view: View
    workloads: tuple[Document, ...]
    newest: float | None
    warnings: tuple[str, ...]


def read_input(documents: Iterable[Document], namespace: str = "") -> Input:
    """Reads objects. `namespace` says whose ConfigMaps count where several have one name.

    Raises `BadInput` with everything that is wrong with objects of Adjoin's own kinds.
    """
    everything = tuple(documents)
    reader = _Reader()
    reader.sort(everything)
    view = View(
        claims=reader.facts(Kind.DEVICE_CLAIM, read_claim),
        pools=reader.facts(Kind.DEVICE_POOL, read_pool),
        pods=reader.facts("Pod", read_pod),
        resource_claims=reader.facts("ResourceClaim", read_resource_claim),
        slices=reader.facts("ResourceSlice", read_slice),
        nodes={each.meta.name: each for each in reader.facts("Node", read_node).values()},
        taint_rules=reader.facts("DeviceTaintRule", read_taint_rule),
        config_maps=reader.facts("ConfigMap", read_config_map),
        guard_served=False,
        busy=frozenset(),
        lingering=MappingProxyType({}),
        namespace=namespace,
        shares=reader.facts(Kind.DEVICE_SHARE, read_share),
        namespaces=reader.facts("Namespace", read_namespace),
        priority_classes=reader.facts("PriorityClass", read_priority_class),
        guests=reader.facts("Pod", read_guest),
        grants=reader.facts("ConfigMap", read_labelled_grant),
        loads={each.node: each for each in reader.facts(LOAD_KIND, read_node_load).values()},
    )
    view = replace(view, config_maps=_chosen_config_maps(view, reader.problems))
    if reader.problems:
        raise BadInput(reader.problems)
    return Input(
        view=view,
        workloads=tuple(document for kind in WORKLOADS for document in reader.by_kind.get(kind, ())),
        newest=max((moment for document in everything for moment in _times(document.body)), default=None),
        warnings=(*reader.warnings, *(f"ignored: {number} {kind}" for kind, number in sorted(reader.ignored.items()))),
    )


class _Reader:
    """Sorts documents by kind and turns them into facts, collecting what is wrong on the way."""

    def __init__(self) -> None:
        self.by_kind: dict[str, list[Document]] = {}
        self.ignored: Counter[str] = Counter()
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._known: dict[Identity, int] = {}

    def sort(self, documents: Iterable[Document]) -> None:
        """Takes the documents of kinds that play a part; those of Adjoin's own kinds are validated."""
        for document in documents:
            group, kind = document.group, document.kind
            if (group, kind) in _KNOWN:
                self._take(document)
            elif group == GROUP:
                self.problems.append(f"{document.place}: kind: {kind!r} is none of {', '.join(Kind)}")
            else:
                self.ignored[f"{kind} ({group})" if group else kind or "object without a kind"] += 1

    def _take(self, document: Document) -> None:
        ours = document.group == GROUP
        if ours:
            errors = [f"{_named(document)}: {error}" for error in validate(document.body)]
            if not errors and document.kind == Kind.DEVICE_CLAIM:
                errors = [f"{_named(document)}: {error}" for error in repetitions(document.body)]
            self.problems += errors
            if errors:
                return
        document = _with_namespace(document)
        meta = document.body.get("metadata")
        name = meta.get("name") if isinstance(meta, Mapping) else None
        if not isinstance(name, str) or not name:
            self._nameless(document, meta, ours)
            return
        namespace = str(meta.get("namespace") or "") if isinstance(meta, Mapping) else ""
        identity = (document.group, document.kind, namespace, name)
        kept = self.by_kind.setdefault(document.kind, [])
        position = self._known.get(identity)
        if position is None:
            self._known[identity] = len(kept)
            kept.append(document)
        elif _canonical(kept[position]) != _canonical(document):
            first = kept[position]
            if ours:
                self.problems.append(f"{_named(document)}: stands in {first.place} too, and differs")
                return
            # Whichever comes first in the input must not matter.
            kept[position] = max(first, document, key=lambda each: (_version(each), _canonical(each)))
            self.warnings.append(f"{_named(document)} stands in {first.place} too, and differs; the newer one counts")

    def _nameless(self, document: Document, meta: Any, ours: bool) -> None:
        generated = isinstance(meta, Mapping) and isinstance(meta.get("generateName"), str)
        if ours:
            self.problems.append(f"{_named(document)}: metadata.name: nothing: is required to plan with it")
        elif generated:
            self.by_kind.setdefault(document.kind, []).append(document)
        else:
            self.warnings.append(f"{document.place}: {document.kind} without a name is left out")

    def facts(self, kind: str, read: Callable[[Mapping[str, Any]], Facts | None]) -> dict[str, Facts]:
        """Facts of all objects of a kind, by UID; one without a UID, or with the UID of another, gets a made-up key."""
        made: dict[str, Facts] = {}
        for document in self.by_kind.get(kind, ()):
            meta = document.body.get("metadata") or {}
            uid = str(meta.get("uid") or "")
            if uid in made and kind == Kind.DEVICE_CLAIM:
                self.problems.append(f"{_named(document)}: metadata.uid: {uid!r}: another DeviceClaim has it too")
                continue
            key = (
                uid
                if uid and uid not in made
                else f"{kind}/{meta.get('namespace') or ''}/{meta.get('name') or document.place}"
            )
            try:
                facts = read(document.body)
                if facts is not None:
                    check_types(facts)
            except MALFORMED as error:
                if kind in set(Kind):
                    self.problems.append(f"{_named(document)}: {error}")
                    continue
                why = misshapen(document.kind, document.body) or _words(error, document.kind)
                self.warnings.append(f"{_named(document)} is left out: {why}")
                continue
            if facts is not None:
                made[key] = facts
        return made


def _words(error: Exception, kind: str) -> str:
    return str(error) if isinstance(error, ValueError) else f"it has not the fields of a {kind} ({error})"


def _named(document: Document) -> str:
    meta = document.body.get("metadata")
    meta = meta if isinstance(meta, Mapping) else {}
    name = meta.get("name") or meta.get("generateName") or ""
    namespace = meta.get("namespace")
    return f"{document.place}: {document.kind} {f'{namespace}/' if namespace else ''}{name}".rstrip()


def _with_namespace(document: Document) -> Document:
    """The document with its namespace spelled out; objects without one are in `default`."""
    meta = document.body.get("metadata")
    if document.kind in _CLUSTER_SCOPED or not isinstance(meta, Mapping) or meta.get("namespace"):
        return document
    return Document(document.place, {**document.body, "metadata": {**meta, "namespace": DEFAULT_NAMESPACE}})


def _canonical(document: Document) -> str:
    return json.dumps(document.body, sort_keys=True, default=str)


def _version(document: Document) -> int:
    text = str((document.body.get("metadata") or {}).get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _chosen_config_maps(view: View, problems: list[str]) -> Mapping[str, ConfigMapFacts]:
    """The ConfigMaps that pools mean: of several with one name that of `view.namespace`."""
    named: dict[str, list[tuple[str, ConfigMapFacts]]] = {}
    for key, facts in view.config_maps.items():
        named.setdefault(facts.meta.name, []).append((key, facts))
    chosen: dict[str, ConfigMapFacts] = {}
    for pool in view.pools.values():
        for name in {entry.config_map_ref.name for entry in pool.pool.spec.topology.matrices}:
            candidates = named.get(name, [])
            if len(candidates) > 1:
                candidates = [each for each in candidates if each[1].meta.namespace == view.namespace]
            if candidates:
                chosen[candidates[0][0]] = candidates[0][1]
            elif name in named:
                namespaces = ", ".join(sorted(facts.meta.namespace for _, facts in named[name]))
                problems.append(
                    f"DevicePool {pool.meta.name}: ConfigMap {name} is in namespaces {namespaces}; "
                    "say with --namespace which one the operator would read"
                )
    return chosen


def _times(body: Mapping[str, Any]) -> Iterator[float]:
    """The times in an object that `now` is at least."""
    meta = body.get("metadata")
    texts = [meta.get("creationTimestamp"), meta.get("deletionTimestamp")] if isinstance(meta, Mapping) else []
    texts += [taint.get("timeAdded") for taint in _taints(body.get("spec")) if isinstance(taint, Mapping)]
    for text in texts:
        try:
            moment = timestamp(text) if isinstance(text, str) else None
        except ValueError:
            continue
        if moment is not None:
            yield moment


def _taints(spec: Any) -> Iterator[Any]:
    """Taints of a Node, a DeviceTaintRule or the devices of a ResourceSlice."""
    if not isinstance(spec, Mapping):
        return
    yield spec.get("taint")
    taints, devices = spec.get("taints"), spec.get("devices")
    yield from taints if isinstance(taints, list) else ()
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, Mapping):
            inner = device.get("basic")
            published = (inner if isinstance(inner, Mapping) else device).get("taints")
            yield from published if isinstance(published, list) else ()
