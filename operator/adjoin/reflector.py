"""List and watch of one kind, straight into the cache.

In comes a client; out go objects, reduced to facts page by page (the raw ones are dropped at once: a node's slices
cost 60 kB raw), and after each complete list the UIDs it named, which repairs lost deletions. Used for kinds of which
there are many or whose objects are large (ResourceSlices, Nodes), and for those that kopf cannot watch as we need it
(one namespace only, or a kind that may not be served).

It never gives up: every error leads to another attempt after a jittered pause, and a watch that falls silent counts as
broken.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from enum import Enum
from typing import Final

import structlog

from adjoin.api.names import LABEL_HOOK, LABEL_POD
from adjoin.cache import Cache
from adjoin.facts import read_meta
from adjoin.intents import Kind
from adjoin.kube import SILENCE_SECONDS, Forbidden, Gone, Kube, KubeError, NotFound, Refused, version_of

REFLECTED: Final = (
    Kind.NODE,
    Kind.RESOURCE_SLICE,
    Kind.TAINT_RULE,
    Kind.CONFIG_MAP,
    Kind.NAMESPACE,
    Kind.PRIORITY_CLASS,
    Kind.GUEST,
    Kind.JOB,
    Kind.HOOK_POD,
    Kind.GRANT,
)
HOME: Final = frozenset({Kind.CONFIG_MAP, Kind.JOB, Kind.HOOK_POD})
"""Kinds of which only those in the operator's own namespace matter."""
LABELLED: Final = {Kind.JOB: LABEL_HOOK, Kind.HOOK_POD: LABEL_HOOK, Kind.GRANT: LABEL_POD}
"""Kinds of which only those with a label matter."""
PAGE = 100
"""Raw objects in memory at a time. Pages of 500 slices leave 70 MB of holes behind, pages of 100 a fifth of that."""
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
UNSERVED_PAUSE = 60.0
"""How often we ask again for a kind that is not served."""
SERVER_SECONDS = 300
"""How long one watch lasts at most; the server ends it, we go on where it stood."""

_log = structlog.get_logger(__name__)


class _Next(Enum):
    LIST = "list"
    WATCH = "watch"


class Reflector:
    """Keeps one kind in the cache as it is on the server. `run` goes on until it is cancelled.

    Attributes:
        heard: When the server last said anything (`clock`), bookmarks included; None before the first list.
        lists: Complete lists so far; more than one means that a watch was lost.
    """

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        page: int = PAGE,
        silence: float = SILENCE_SECONDS,
        on_relist: Callable[[], None] = lambda: None,
        gate: asyncio.Event | None = None,
        renew: bool = False,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self.kind = kind
        self._namespace = namespace
        self._labels = labels
        self._page = page
        self._silence = silence
        self._on_relist = on_relist
        self._gate = gate
        self._renew = renew
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._pause = FIRST_PAUSE
        self._version = ""
        self.heard: float | None = None
        self.lists = 0

    @property
    def idle(self) -> bool:
        """Nobody needs the kind yet."""
        return self._gate is not None and not self._gate.is_set()

    async def run(self) -> None:
        """Lists, watches, and does so again. With a gate, from the moment it opens."""
        step = _Next.LIST
        if self._gate is not None:
            await self._gate.wait()
            self.heard = self._clock()
        while True:
            try:
                step = await (self._list() if step is _Next.LIST else self._watch())
            except Gone:
                step = _Next.LIST
                await self._rest()
            except NotFound as error:
                step = _Next.LIST
                if self.kind is Kind.TAINT_RULE:
                    self._cache.serve_guard(False, self._now())
                else:
                    _log.error("a kind that Adjoin needs is not served", kind=self.kind.value.plural, error=str(error))
                self.heard = self._clock()
                await self._sleep(UNSERVED_PAUSE * self._rng.uniform(0.8, 1.2))
            except KubeError as error:
                # What was seen stays true: the watch goes on from there, and the server says Gone if that is too old.
                if not self._version:
                    step = _Next.LIST
                level = _log.error if isinstance(error, Forbidden) else _log.info
                level("list and watch interrupted", kind=self.kind.value.plural, error=str(error))
                await self._rest(error.retry_after if isinstance(error, Refused) else None)

    async def _list(self) -> _Next:
        present: set[str] = set()
        version = ""
        async with aclosing(
            self._kube.pages(self.kind, namespace=self._namespace, labels=self._labels, limit=self._page)
        ) as pages:
            async for page in pages:
                version = page.version
                for obj in page.items:
                    present.add(read_meta(obj).uid)
                    self._cache.ingest(self.kind, obj)
                self.heard = self._clock()
        if self.kind is Kind.TAINT_RULE:
            self._cache.serve_guard(True, self._now())
        dropped = self._cache.prune(self.kind, present, int(version or 0), self._now())
        self._version = version
        self.lists += 1
        if self.lists > 1:
            _log.info("listed again", kind=self.kind.value.plural, objects=len(present), dropped=dropped)
            self._on_relist()
        self._pause = FIRST_PAUSE
        return _Next.WATCH

    async def _watch(self) -> _Next:
        seconds = int(SERVER_SECONDS * self._rng.uniform(0.8, 1.2))
        watch = self._kube.watch(
            self.kind,
            self._version,
            namespace=self._namespace,
            labels=self._labels,
            server_seconds=seconds,
            silence=self._silence,
        )
        started = self._clock()
        async with aclosing(watch) as events:
            async for event in events:
                self.heard = self._clock()
                self._pause = FIRST_PAUSE
                version = version_of(event.object)
                if event.type in ("ADDED", "MODIFIED"):
                    self._cache.ingest(self.kind, event.object)
                elif event.type == "DELETED":
                    self._cache.ingest_end(self.kind, event.object, self._now())
                elif event.type != "BOOKMARK":
                    continue
                self._version = str(version) if version else self._version
        if self._clock() - started < 1.0:
            # A server that ends every watch at once is in trouble, though it does not say so.
            await self._rest()
        else:
            self.heard = self._clock()
        return _Next.LIST if self._renew else _Next.WATCH

    async def _rest(self, at_least: float | None = None) -> None:
        pause = self._pause * self._rng.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        await self._sleep(max(pause, at_least or 0.0))
