"""Reads what nodes really use, every now and then, from the metrics API.

In comes a client; out go loads into the cache, and counts into the metrics. Nothing waits for it: where the API is not
served, may not be read or does not answer, and where its measurements are old, nobody measures, and everything goes on
without. Which of these it is is logged when it changes, not every time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from adjoin.cache import Cache
from adjoin.facts import Raw
from adjoin.kube import Forbidden, Kube, KubeError, NotFound, Unavailable
from adjoin.loads import PATH, NodeLoad, current, read_loads
from adjoin.metrics import Metrics

SECONDS: Final = 30.0
"""Between two readings: metrics servers measure no more often than every 15 s."""
ANSWER_SECONDS: Final = 20.0
"""So long an answer may take."""
CHUNK: Final = 500
"""So many objects are read before others have their turn."""

_log = structlog.get_logger(__name__)


class Meter:
    """Keeps the loads of all nodes current. `run` goes on until it is cancelled."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        metrics: Metrics,
        *,
        seconds: float = SECONDS,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._metrics = metrics
        self._seconds = seconds
        self._now = now
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._loads: dict[str, NodeLoad] = {}
        self._said = ""
        self._newest: float | None = None

    async def run(self) -> None:
        """Reads, waits, reads again."""
        await self._cache.wait_synced()
        while True:
            await self.read()
            await self._sleep(self._seconds * self._rng.uniform(0.9, 1.1))

    async def read(self) -> None:
        """Reads once. What cannot be reached keeps what was measured last until that is old; where the API server says
        that there is nothing to read, nothing is measured."""
        broken = 0
        try:
            items = list((await self._kube.get_path(PATH, seconds=ANSWER_SECONDS)).get("items") or ())
        except KubeError as error:
            outcome = _OUTCOMES.get(type(error), "failed")
            detail = str(error)
            if isinstance(error, NotFound | Forbidden | Unavailable):
                self._loads = {}
        else:
            self._loads, broken = await self._take(items)
            outcome, detail = "read", ""
        fresh = current(self._loads, self._now())
        if outcome == "read" and self._loads and not fresh:
            outcome, detail = "stale", f"{len(self._loads)} measurements"
        self._metrics.load_readings.labels(outcome).inc()
        self._newest = max((load.at for load in self._loads.values() if load.at is not None), default=self._newest)
        self._tell(outcome, detail, len(fresh), broken)
        self._cache.measure(fresh)

    @property
    def newest(self) -> float | None:
        """When the newest measurement that was ever read was made, seconds since the epoch."""
        return self._newest

    async def _take(self, items: list[Raw]) -> tuple[dict[str, NodeLoad], int]:
        found: dict[str, NodeLoad] = {}
        broken = 0
        for start in range(0, len(items), CHUNK):
            loads, unread = read_loads(items[start : start + CHUNK])
            found |= loads
            broken += unread
            await asyncio.sleep(0)
        # Of what is not dated nobody can say that it is not old.
        return {name: load for name, load in found.items() if load.at is not None}, broken

    def _tell(self, outcome: str, detail: str, count: int, broken: int) -> None:
        if outcome == self._said:
            return
        self._said = outcome
        if outcome == "read":
            _log.info("what nodes use is measured", nodes=count, unreadable=broken)
        else:
            _log.info("what nodes use is not measured", outcome=outcome, detail=detail)


_OUTCOMES: Final[Mapping[type[KubeError], str]] = {NotFound: "absent", Forbidden: "forbidden"}
