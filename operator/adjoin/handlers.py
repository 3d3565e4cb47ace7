"""What kopf watches for us, and the list that keeps it honest.

In come kopf's events of DeviceClaims, DevicePools, DeviceShares, ResourceClaims and of pods that name a claim; out they
go into the cache. Every decorator stands in `register`, each function only touches memory. Only `on.event` is used:
kopf then writes nothing to any object, keeps no progress and sets no finalizer.

kopf never reports what was deleted while it was disconnected, and may lose an event without knowing. So every kind is
listed once by ourselves at start (before that, absence means nothing) and compared with a list of metadata as often as
the pools' `lifecycle.sweepEvery` says, at once after signs of a broken connection, and every few seconds while a
comparison still finds something.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, Final

import kopf
import structlog
from kopf._cogs.clients import errors, watching

from adjoin.api.names import GROUP, LABEL_CLAIM, VERSION
from adjoin.cache import Cache
from adjoin.facts import Raw, read_meta
from adjoin.intents import Kind
from adjoin.kube import Access, Kube, KubeError, Refused
from adjoin.metrics import Metrics

WATCHED: Final[Mapping[Kind, str]] = {
    Kind.DEVICE_POOL: "",
    Kind.DEVICE_SHARE: "",
    Kind.DEVICE_CLAIM: "",
    Kind.RESOURCE_CLAIM: "",
    Kind.POD: LABEL_CLAIM,
}
"""The kinds that kopf watches, each with the label selector that the API server filters by."""

INTERVAL_SECONDS: Final = 300.0
SUSPICIOUS_SECONDS: Final = 10.0
"""Until the next comparison after one that found something."""
SOON_SECONDS: Final = 1.0
"""From a sign of a broken connection to the comparison: kopf's own list comes first then."""
GRACE_SECONDS: Final = 2.0
"""So long an event may be on its way before it counts as missed."""
BURST_SECONDS: Final = 5.0
"""Listed objects further apart than this belong to two lists of kopf's."""
ENDURE_SECONDS: Final = 1.0
"""From a watch that ended with an error to the next list."""
HTTP_GONE: Final = 410
HTTP_SERVER_ERROR: Final = 500
FEW: Final = 50
"""Up to so many missed objects are read one by one, beyond that the whole kind is."""
DEAF: Final = 5
"""So many comparisons in a row that found something mean that kopf has stopped hearing of a kind."""

_log = structlog.get_logger(__name__)


class Endless:
    """Pauses between kopf's attempts, for ever. It has no length: kopf counts attempts where it finds one."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.2, 0.5)
        while True:
            yield 1.0


class Uncompared(kopf.DiffBaseStorage):
    """No memory of earlier states: nothing is compared, and the stock storage copies every object deeply for that."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        raise RuntimeError("kopf was about to write to an object")


def settings() -> kopf.OperatorSettings:
    """kopf as a watcher that writes nothing and never gives up on an error that may pass."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.peering.standalone = True
    chosen.networking.error_backoffs = Endless()
    chosen.networking.request_timeout = 60
    chosen.networking.connect_timeout = 10
    chosen.watching.server_timeout = 300
    for kind, selector in WATCHED.items():
        if selector:
            chosen.watching.label_selectors[kind.value.group, kind.value.version, kind.value.plural] = selector
    chosen.process.ultimate_exiting_timeout = 20
    # kopf takes a finalizer of this name off every object that has it, since no handler of ours needs one. Under the
    # default name it would take off those of other operators built on kopf.
    chosen.persistence.finalizer = f"{GROUP}/set-by-nobody"
    chosen.persistence.diffbase_storage = Uncompared()
    return chosen


def endure() -> None:
    """Lets kopf list again where a watch ends with an error that may pass: HTTP 410, 5xx, or any event of type ERROR.

    kopf takes only a 410 that comes as an event for that, and ends the whole operator for the rest: nothing would be
    decided until the kubelet has started it anew and a Lease has run out. It has no setting for it, so its generator of
    events is wrapped; what `infinite_watch` does when that ends is the same as after a 410.
    """
    if getattr(watching.continuous_watch, "endures", False):
        return
    watch = watching.continuous_watch

    async def enduring(*, resource: Any, **how: Any) -> AsyncIterator[Any]:
        try:
            async for event in watch(resource=resource, **how):
                yield event
        except (errors.APIError, watching.WatchingError) as error:
            if isinstance(error, errors.APIError) and error.status != HTTP_GONE and error.status < HTTP_SERVER_ERROR:
                raise
            _log.info("a watch ended with an error", kind=resource.plural, error=str(error))
            await asyncio.sleep(ENDURE_SECONDS)

    enduring.endures = True  # type: ignore[attr-defined]
    watching.continuous_watch = enduring


class Feed:
    """Events into the cache. `heard` says when a kind last had one (`clock`)."""

    def __init__(
        self,
        cache: Cache,
        *,
        on_relist: Callable[[Kind], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._on_relist = on_relist
        self._clock = clock
        self._now = now
        self._listed_at: dict[Kind, float] = {}
        self.heard: dict[Kind, float] = {}

    def take(self, kind: Kind, event: Mapping[str, Any]) -> None:
        """One event as kopf hands it over: its type is None for an object that was listed."""
        moment = self.heard[kind] = self._clock()
        obj: Raw = event["object"]
        if event["type"] == "DELETED":
            self._cache.ingest_end(kind, obj, self._now())
            return
        self._cache.ingest(kind, obj)
        if event["type"] is None:
            before = self._listed_at.get(kind)
            self._listed_at[kind] = moment
            if before is not None and moment - before > BURST_SECONDS:
                self._on_relist(kind)


def register(registry: kopf.OperatorRegistry, feed: Feed, access: Callable[[], Awaitable[Access]]) -> None:
    """Puts all of kopf's handlers into `registry`."""

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        found = await access()
        words = found.authorization.split(" ", 1)
        return kopf.ConnectionInfo(
            server=found.server,
            ca_path=found.ca_file,
            insecure=not found.verify,
            scheme=words[0] or None,
            token=words[1] if len(words) > 1 else None,
            certificate_path=found.certificate_file,
            private_key_path=found.key_file,
            proxy_url=found.proxy,
        )

    @kopf.on.event(GROUP, VERSION, "devicepools", registry=registry)
    async def device_pool(event: kopf.RawEvent, **_: Any) -> None:
        feed.take(Kind.DEVICE_POOL, event)

    @kopf.on.event(GROUP, VERSION, "deviceshares", registry=registry)
    async def device_share(event: kopf.RawEvent, **_: Any) -> None:
        feed.take(Kind.DEVICE_SHARE, event)

    @kopf.on.event(GROUP, VERSION, "deviceclaims", registry=registry)
    async def device_claim(event: kopf.RawEvent, **_: Any) -> None:
        feed.take(Kind.DEVICE_CLAIM, event)

    @kopf.on.event("resource.k8s.io", "v1", "resourceclaims", registry=registry)
    async def resource_claim(event: kopf.RawEvent, **_: Any) -> None:
        feed.take(Kind.RESOURCE_CLAIM, event)

    @kopf.on.event("", "v1", "pods", registry=registry, labels={LABEL_CLAIM: kopf.PRESENT})
    async def pod(event: kopf.RawEvent, **_: Any) -> None:
        feed.take(Kind.POD, event)


class Sweep:
    """Lists what kopf watches: all of it at start, then metadata to find what no event told. `run` never returns.

    Attributes:
        done: When all kinds were last compared successfully (`clock`), None before the first time.
        deaf: Kinds of which the comparison has found something `DEAF` times in a row.
    """

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        metrics: Metrics,
        *,
        interval: Callable[[], float] = lambda: INTERVAL_SECONDS,
        page: int = 500,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._metrics = metrics
        self._interval = interval
        self._page = page
        self._clock = clock
        self._now = now
        self._rng = rng or random.Random()
        self._kicked = asyncio.Event()
        self._found: dict[Kind, int] = dict.fromkeys(WATCHED, 0)
        self.done: float | None = None

    @property
    def deaf(self) -> Collection[str]:
        return [kind.value.plural for kind, count in self._found.items() if count >= DEAF]

    def soon(self, _: Kind | None = None) -> None:
        """There was a sign that events may have been lost."""
        self._kicked.set()

    async def run(self) -> None:
        """Lists everything once, then compares again and again."""
        for kind in WATCHED:
            await self._persist(self._list, kind)
        self.done = self._clock()
        while True:
            await self._pause()
            self._kicked.clear()
            for kind in WATCHED:
                await self._persist(self._compare, kind)
            self.done = self._clock()

    async def _pause(self) -> None:
        """Returns when the next comparison is due. A pool that wants it sooner is heard meanwhile."""
        begun, jitter = self._clock(), self._rng.uniform(0.8, 1.2)
        while True:
            pause = self._interval()
            if any(self._found.values()):
                pause = min(SUSPICIOUS_SECONDS, pause)
            left = begun + pause * jitter - self._clock()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(min(left, SUSPICIOUS_SECONDS)):
                    await self._kicked.wait()
                return await asyncio.sleep(SOON_SECONDS)
            except TimeoutError:
                continue

    async def _persist(self, action: Callable[[Kind], Awaitable[None]], kind: Kind) -> None:
        pause = 0.2
        while True:
            try:
                return await action(kind)
            except KubeError as error:
                _log.info("a list was interrupted", kind=kind.value.plural, error=str(error))
                after = error.retry_after if isinstance(error, Refused) else None
                await asyncio.sleep(max(pause * self._rng.uniform(0.5, 1.0), after or 0.0))
                pause = min(pause * 2, 30.0)

    async def _list(self, kind: Kind) -> None:
        present: set[str] = set()
        version = 0
        async for page in self._kube.pages(kind, labels=WATCHED[kind], limit=self._page):
            version = int(page.version or 0)
            for obj in page.items:
                present.add(read_meta(obj).uid)
                self._cache.ingest(kind, obj)
        self._cache.prune(kind, present, version, self._now())

    async def _compare(self, kind: Kind) -> None:
        listed: dict[str, tuple[int, str, str]] = {}
        version = 0
        async for page in self._kube.pages(kind, labels=WATCHED[kind], limit=self._page, metadata_only=True):
            version = int(page.version or 0)
            for obj in page.items:
                meta = read_meta(obj)
                listed[meta.uid] = (meta.version, meta.namespace, meta.name)
        missed = self._behind(kind, listed)
        absent = [uid for uid, seen in self._cache.versions(kind).items() if uid not in listed and seen <= version]
        if missed or absent:
            # kopf may be on it: what it brings in the meantime was not missed.
            await asyncio.sleep(GRACE_SECONDS)
            missed = self._behind(kind, listed)
        dropped = self._cache.prune(kind, listed, version, self._now())
        refreshed = 0
        if len(missed) > FEW:
            before = {uid: self._cache.versions(kind).get(uid) for uid in missed}
            await self._list(kind)
            refreshed = sum(self._cache.versions(kind).get(uid) != seen for uid, seen in before.items())
        else:
            for uid in missed:
                _, namespace, name = listed[uid]
                found, _ = await self._kube.find(kind, namespace, name)
                if found is not None and self._cache.ingest(kind, found):
                    refreshed += 1
        self._found[kind] = self._found[kind] + 1 if dropped or refreshed else 0
        if dropped or refreshed:
            _log.warning("events were missed", kind=kind.value.plural, dropped=dropped, refreshed=refreshed)
            self._metrics.corrections.labels(kind.value.kind, "dropped").inc(dropped)
            self._metrics.corrections.labels(kind.value.kind, "refreshed").inc(refreshed)

    def _behind(self, kind: Kind, listed: Mapping[str, tuple[int, str, str]]) -> list[str]:
        known = self._cache.versions(kind)
        ended = self._cache.ended(kind)
        return [
            uid
            for uid, (version, _, _) in listed.items()
            if known.get(uid, -1) < version and ended.get(uid, -1) < version
        ]
