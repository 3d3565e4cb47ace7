"""The loop: what changed is gathered, a view is frozen, a decision is made of it, its intents go to the writer.

In come notifications; out go intents. The planner writes nothing and remembers nothing of a decision but when to wake
again: every decision is made of what the API server holds, what is assumed of writes under way, and the clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol

import structlog

from adjoin.cache import READERS, Cache, View
from adjoin.intents import Intent
from adjoin.metrics import Metrics

IDLE_SECONDS: Final = 0.02
LONGEST_SECONDS: Final = 0.25
LEAST_SECONDS: Final = 0.05
"""A decision that wants to be made again at once gets this much rest."""
LOOK_SECONDS: Final = 1.0
"""How often a planner that may not decide looks whether it may."""
FAILURES: Final = 5
"""So many failed decisions in a row end the process: a restart at least begins from what the API server holds."""
LONGEST_WAIT: Final = 30.0

_log = structlog.get_logger(__name__)


class Fence(Protocol):
    """Says whether this process leads."""

    @property
    def leading(self) -> bool: ...


class Decision(Protocol):
    """What a decision comes to: writes, and when to look again although nothing changed."""

    @property
    def intents(self) -> Sequence[Intent]: ...
    @property
    def wake_at(self) -> float | None: ...


class Decides(Protocol):
    """Makes a decision of a view. Called from a worker thread, never twice at once; raises on a broken invariant."""

    def decide(self, view: View, now: float) -> Decision: ...


class PlannerBroken(Exception):
    """Decisions keep failing."""


class Batcher:
    """Gathers notifications: a batch is ready `idle` seconds after the last, at most `longest` after the first."""

    def __init__(self, *, idle: float = IDLE_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        self._idle = idle
        self._longest = longest
        self._first: float | None = None
        self._last = 0.0
        self._woken = asyncio.Event()

    def notify(self) -> None:
        """Something changed."""
        self._last = asyncio.get_running_loop().time()
        if self._first is None:
            self._first = self._last
            self._woken.set()

    async def wait(self, until: float | None) -> None:
        """Returns with a batch, or at `until` (loop time) without one."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(until):
                await self._woken.wait()
        except TimeoutError:
            return
        while self._first is not None:
            due = min(self._last + self._idle, self._first + self._longest)
            if loop.time() >= due:
                break
            await asyncio.sleep(due - loop.time())
        self._first = None
        self._woken.clear()


class Planner:
    """Decides whenever something changed or a timer ran out. `run` ends only by raising `PlannerBroken`.

    Attributes:
        deciding_since: When the decision that is being made began (loop time), else None.
    """

    def __init__(
        self,
        cache: Cache,
        decider: Decides,
        submit: Callable[[Sequence[Intent]], int],
        fence: Fence,
        batcher: Batcher,
        metrics: Metrics,
        *,
        executor: Executor,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._decider = decider
        self._submit = submit
        self._fence = fence
        self._batcher = batcher
        self._metrics = metrics
        self._executor = executor
        self._now = now
        self._wake: float | None = None
        self._failures = 0
        self._complaint: tuple[str, ...] = ()
        self.deciding_since: float | None = None

    async def run(self) -> None:
        """One turn:

        1. Wait for a batch of changes, or for the time that the last decision named.
        2. Not leading, not synced, or blind to a holder of devices? Look again later.
        3. Freeze a view.
        4. Decide, in a worker thread.
        5. Leave out what was overtaken while deciding; hand the rest to the writer, which lets the cache assume it.
        6. Set the timer.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._batcher.wait(self._wake)
            if not self._may_decide():
                self._wake = loop.time() + LOOK_SECONDS
                continue
            now = self._now()
            view = self._cache.view(now)
            decision = await self._decide(view, now)
            if decision is None:
                self._wake = loop.time() + min(2.0**self._failures / 2, LONGEST_WAIT)
                continue
            current = [intent for intent in decision.intents if self._current(intent)]
            taken = self._submit(current)
            if len(current) < len(decision.intents):
                self._batcher.notify()
            if taken:
                _log.debug("handed over", intents=taken)
            rest = None if decision.wake_at is None else decision.wake_at - self._now()
            self._wake = None if rest is None else loop.time() + max(rest, LEAST_SECONDS)

    def _may_decide(self) -> bool:
        if not self._fence.leading or not self._cache.synced:
            return False
        unreadable = self._cache.unreadable
        if unreadable != self._complaint and unreadable:
            _log.error("nothing is decided while a holder of devices cannot be read", objects=unreadable)
        self._complaint = unreadable
        return not unreadable

    async def _decide(self, view: View, now: float) -> Decision | None:
        loop = asyncio.get_running_loop()
        self.deciding_since = started = loop.time()
        try:
            decision = await loop.run_in_executor(self._executor, self._decider.decide, view, now)
        except Exception as error:
            self._failures += 1
            self._metrics.decision_failures.inc()
            _log.exception("a decision failed, nothing is written", failures=self._failures)
            if self._failures >= FAILURES:
                raise PlannerBroken(f"{self._failures} decisions in a row failed") from error
            return None
        finally:
            self.deciding_since = None
        self._failures = 0
        self._metrics.decision_seconds.observe(loop.time() - started)
        return decision

    def _current(self, intent: Intent) -> bool:
        """Whether its first step still meets the version that it was decided on; if not, it is a sure Conflict."""
        if not intent.steps:
            return False
        step = intent.steps[0]
        if step.kind not in READERS or not step.uid or step.version <= 0:
            return True
        return self._cache.versions(step.kind).get(step.uid) == step.version
