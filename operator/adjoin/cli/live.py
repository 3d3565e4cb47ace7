"""A cluster → what a decision is made of: the same `Input` as files give, read through a kubeconfig.

In come a kubeconfig, a context and the operator's namespace; out goes an `Input`. Every kind that the operator keeps is
listed once, and read by the operator's own cache, so that the view is the one that the operator would decide on. Kinds
that nobody serves are absent, as they are for the operator; kinds that the user may not list are an error that names
them, since absence must not be taken for "nothing there".

Lists are made one beside the other and are not of one instant: an object that changes meanwhile may be seen before or
after its change. Nothing is written. Loaded by live commands alone, as it loads the client.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import structlog

from adjoin.cache import READERS, Cache
from adjoin.cli.documents import Document
from adjoin.cli.objects import Input
from adjoin.facts import Raw, read_meta
from adjoin.intents import Kind, Resource
from adjoin.kube import PAGE, READ_SECONDS, ConfigurationError, Forbidden, Gone, Kube, KubeError, Login, NotFound
from adjoin.loads import PATH, current, read_loads

ATTEMPTS: Final = 3
"""A list that outlasts the server's memory is begun again so often."""

WORKLOADS: Final = (
    Resource("apps", "v1", "deployments", "Deployment", True),
    Resource("apps", "v1", "statefulsets", "StatefulSet", True),
    Resource("apps", "v1", "replicasets", "ReplicaSet", True),
    Resource("batch", "v1", "jobs", "Job", True),
    Resource("batch", "v1", "cronjobs", "CronJob", True),
    Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True),
)
"""Kinds whose pod templates are compared with claims."""

_OURS: Final = frozenset({Kind.DEVICE_CLAIM, Kind.DEVICE_POOL})
_POD_WEBHOOK: Final = "pods.adjoin.dev"
_PLACE: Final = "the cluster"

Heard = Callable[[str, int], None]
"""Called with a kind's plural and how many of its objects have been read so far."""


class LiveError(Exception):
    """The cluster cannot be read. The text says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster.

    Attributes:
        kubeconfig: Path, or several joined as in KUBECONFIG; None: the pod's ServiceAccount.
        context: Context in the kubeconfig; None: its current one.
        operator_namespace: Where the operator runs; "": found through its webhook configuration.
    """

    kubeconfig: str | None
    context: str | None = None
    operator_namespace: str = ""

    @property
    def login(self) -> Login:
        """Credentials for it."""
        return Login(self.kubeconfig, self.context)


def find_target(
    kubeconfig: str | None, context: str | None, operator_namespace: str, environment: Mapping[str, str]
) -> Target:
    """The cluster that kubectl would mean: the given kubeconfig, else $KUBECONFIG, else ~/.kube/config; in a pod that
    has none of these, its ServiceAccount. Raises `LiveError` when a named file is not there."""
    named = kubeconfig or environment.get("KUBECONFIG")
    if named:
        paths = [Path(each).expanduser() for each in named.split(":") if each]
        if not any(path.exists() for path in paths):
            raise LiveError(f"kubeconfig {named}: no such file")
        return Target(named, context, operator_namespace)
    default = Path(environment.get("HOME") or "~").expanduser() / ".kube" / "config"
    if default.exists():
        return Target(str(default), context, operator_namespace)
    if "KUBERNETES_SERVICE_HOST" in environment:
        return Target(None, None, operator_namespace)
    raise LiveError("no cluster: give files with -f, or a kubeconfig with --kubeconfig or in $KUBECONFIG")


def read_cluster(target: Target, *, workloads: bool = False, heard: Heard = lambda kind, count: None) -> Input:
    """Reads a cluster; `newest` of the answer is the time of reading. With `workloads` pods and pod templates are kept
    as objects too. Raises `LiveError`.
    """
    if not structlog.is_configured():
        # What the cache complains of belongs beside our answer, not into it.
        structlog.configure(
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            wrapper_class=structlog.make_filtering_bound_logger("warning"),
        )

    async def read() -> Input:
        async with Kube(target.login, agent="adjoin-cli") as kube:
            return await list_cluster(kube, target.operator_namespace, workloads=workloads, heard=heard)

    try:
        return asyncio.run(read())
    except ConfigurationError as error:
        raise LiveError(str(error)) from None


def current_namespace(target: Target) -> str:
    """The namespace that kubectl would use in this context."""
    try:
        return target.login.namespace()
    except ConfigurationError as error:
        raise LiveError(str(error)) from None


async def list_cluster(
    kube: Kube,
    operator_namespace: str = "",
    *,
    workloads: bool = False,
    heard: Heard = lambda kind, count: None,
    now: Callable[[], float] = time.time,
) -> Input:
    """`read_cluster` with a client that is connected. Raises `LiveError`."""
    try:
        operator_namespace = operator_namespace or await _operator_namespace(kube)
    except KubeError as error:
        raise LiveError(str(error)) from None
    cache = Cache(operator_namespace)
    pods: list[Document] = []
    kept = [_list_kept(kube, cache, kind, operator_namespace, pods, heard, now) for kind in READERS]
    makers = [_list_workloads(kube, each, heard) for each in WORKLOADS] if workloads else []
    ended = await asyncio.gather(_measure(kube, cache, now), *kept, *makers, return_exceptions=True)
    failed = [each for each in ended if isinstance(each, BaseException)]
    for failure in failed:
        if not isinstance(failure, LiveError | KubeError):
            raise failure
    if failed:
        raise LiveError("; ".join(sorted({str(failure) for failure in failed})))
    found = [each for each in ended if isinstance(each, _Workloads)]
    warnings = [each.warning for each in found if each.warning]
    if cache.unreadable:
        raise LiveError(f"cannot be read, though it may hold devices: {'; '.join(cache.unreadable)}")
    moment = now()
    view = cache.view(moment)
    if not operator_namespace and any(pool.pool.spec.topology.matrices for pool in view.pools.values()):
        warnings.append(
            "the operator's namespace is not known: ConfigMaps of all namespaces count; say --operator-namespace"
        )
    documents = [document for each in found for document in each.documents]
    return Input(
        view=view,
        workloads=(*documents, *(pods if workloads else ())),
        newest=moment,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True, slots=True)
class _Workloads:
    """The objects of a kind that makes pods; or why these, or something else that one can do without, are not known."""

    documents: Sequence[Document] = ()
    warning: str = ""


async def _operator_namespace(kube: Kube) -> str:
    """Where admission of pods is served, or "" where that cannot be known."""
    try:
        page = await kube.page(Kind.MUTATING_WEBHOOK)
    except (Forbidden, NotFound):
        return ""
    for configuration in page.items:
        for webhook in configuration.get("webhooks") or ():
            if webhook.get("name") == _POD_WEBHOOK:
                service = (webhook.get("clientConfig") or {}).get("service") or {}
                return str(service.get("namespace") or "")
    return ""


async def _list_kept(
    kube: Kube,
    cache: Cache,
    kind: Kind,
    operator_namespace: str,
    pods: list[Document],
    heard: Heard,
    now: Callable[[], float],
) -> None:
    """Lists a kind that the operator keeps into the cache; pods also as they are."""
    namespace = operator_namespace if kind is Kind.CONFIG_MAP else ""
    try:
        items, version = await _list(kube, kind.value, namespace, heard)
    except NotFound:
        if kind in _OURS:
            raise LiveError(f"{kind.value.plural}.{kind.value.group} is not served: is Adjoin installed?") from None
        if kind is Kind.TAINT_RULE:
            cache.serve_guard(False, now())
        return
    except Forbidden as error:
        raise LiveError(f"{kind.value.plural} may not be listed, and nothing can be said without: {error}") from None
    for item in items:
        cache.ingest(kind, item)
        if kind is Kind.POD:
            pods.append(_document(kind.value, item))
    if kind is Kind.TAINT_RULE:
        cache.serve_guard(True, now())
    cache.prune(kind, {read_meta(item).uid for item in items}, version, now())


async def _measure(kube: Kube, cache: Cache, now: Callable[[], float]) -> _Workloads:
    """What nodes use, where somebody measures; a warning where we may not know what the operator knows."""
    try:
        answer = await kube.get_path(PATH, seconds=READ_SECONDS)
    except Forbidden as error:
        return _Workloads(warning=f"what nodes use is not known: {error}")
    except KubeError:
        return _Workloads()
    loads, _ = read_loads(answer.get("items") or ())
    cache.measure(current(loads, now()))
    return _Workloads()


async def _list_workloads(kube: Kube, resource: Resource, heard: Heard) -> _Workloads:
    """The objects of a kind that makes pods; where they may not be seen, none and a warning."""
    try:
        items, _ = await _list(kube, resource, "", heard)
    except NotFound:
        return _Workloads()
    except Forbidden as error:
        return _Workloads(warning=f"{resource.plural} are not checked: {error}")
    return _Workloads([_document(resource, item) for item in items])


def _document(resource: Resource, item: Raw) -> Document:
    """Items of a list do not say their kind."""
    return Document(_PLACE, {"apiVersion": resource.api_version, "kind": resource.kind, **item})


async def _list(kube: Kube, resource: Resource, namespace: str, heard: Heard) -> tuple[list[Raw], int]:
    """All objects of a kind and the version of the list."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await _pages(kube, resource, namespace, heard)
        except Gone:
            continue
    return await _pages(kube, resource, namespace, heard)


async def _pages(kube: Kube, resource: Resource, namespace: str, heard: Heard) -> tuple[list[Raw], int]:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace and resource.namespaced else ""
    items: list[Raw] = []
    more = ""
    while True:
        rest = f"&continue={quote(more, safe='')}" if more else ""
        answer = await kube.get_path(f"{root}{within}/{resource.plural}?limit={PAGE}{rest}", seconds=READ_SECONDS)
        items += answer.get("items") or ()
        heard(resource.plural, len(items))
        meta = answer.get("metadata") or {}
        more = str(meta.get("continue") or "")
        if not more:
            version = str(meta.get("resourceVersion") or "0")
            return items, int(version) if version.isdigit() else 0
