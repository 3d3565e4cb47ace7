"""The only module that writes to the API server (but for the Lease, see `lease`).

In come intents; out go requests, at most `CONCURRENCY` at once, the steps of one intent in order, one intent per
subject at a time, each with its precondition and each only while this process leads. Every answer goes into the cache
at once, so the next decision reads its own writes. Nothing is decided here, and no write is sent a second time before
it is known how the first one ended.

What each error leads to:

    Conflict, NotFound    somebody was faster: look at the object, drop the intent, decide anew
                          (a DELETE that finds nothing has succeeded)
    AlreadyExists         an Event: said already; anything else: as a Conflict
    Invalid and the like  the subject waits, each time longer, up to a minute, or until its owner changes it;
                          of a hook's Job the cache is told, and what does not depend on it goes on
    TooManyRequests       wait as asked, send again; an eviction that a PodDisruptionBudget forbids: as Invalid
    Unreachable           nothing was sent: wait, send again
    OutcomeUnknown        look at the object until it is seen, then as a Conflict
    no longer leading     drop everything unsent

An Event that cannot be written is logged and never holds anything else up; an intent of Events alone waits like a
refused one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Final, Protocol

import structlog

from adjoin.cache import READERS, Cache
from adjoin.facts import Raw, read_meta
from adjoin.intents import FROM_PREVIOUS, Intent, Kind, Step, Verb
from adjoin.jobs import Rejection
from adjoin.kube import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Invalid,
    Kube,
    KubeError,
    NotFound,
    OutcomeUnknown,
    Refused,
    TooLarge,
    TooManyRequests,
    Unavailable,
    Unreachable,
    version_of,
)
from adjoin.metrics import Metrics

CONCURRENCY: Final = 32
"""As a ServiceAccount we share a queue of API priority and fairness: 600 writes at once pass, 2,000 do not."""
WORDS: Final = 2
"""So many of these may be words (`Intent.words`) while there is anything else to do. In a burst of claims the API
server's processors are what everybody waits for, and a pod that can start goes before a line that says it did."""
FIRST_WAIT: Final = 0.25
LONGEST_WAIT: Final = 60.0
SHORT_WAIT: Final = 0.2
"""First pause when the API server cannot be reached; doubles up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 5.0
REMEMBERED: Final = 20_000
"""Event names and failure counts kept; older ones are forgotten (the API server still knows the Events)."""

_log = structlog.get_logger(__name__)


class Fence(Protocol):
    """Says whether writes may be sent."""

    @property
    def leading(self) -> bool: ...


class NotLeading(Exception):
    """A write that only the leader may send was asked of a replica that does not lead."""


class _End(Enum):
    """How an intent ended."""

    DONE = "done"
    LOST = "lost"
    REFUSED = "refused"
    FENCED = "fenced"


class _Stop(Exception):
    """Ends an intent early."""

    def __init__(self, end: _End, wait: float = 0.0) -> None:
        super().__init__(end.value)
        self.end = end
        self.wait = wait


class Writer:
    """Carries intents out. `run` goes on until it is cancelled; `submit` never blocks."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        fence: Fence,
        metrics: Metrics,
        *,
        concurrency: int = CONCURRENCY,
        now: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._fence = fence
        self._metrics = metrics
        self._concurrency = concurrency
        self._now = now
        self._rng = rng or random.Random()
        self._deeds: list[tuple[int, int, Intent]] = []
        self._words: dict[str, tuple[int, Intent]] = {}
        self._reports: deque[tuple[int, Intent]] = deque()
        """Events of deeds that are done."""
        self._group: asyncio.TaskGroup | None = None
        self._given = 0
        self._since: dict[int, float] = {}
        self._running = 0
        self._talking = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = True
        self._said: dict[tuple[str, str], None] = {}
        self._failures: dict[str, int] = {}
        self._releases: dict[str, asyncio.TimerHandle] = {}

    # Handing over

    def submit(self, intents: Iterable[Intent]) -> int:
        """Takes all that a decision wants, but for subjects that are busy, and lets the cache assume it. Returns how
        many were taken.

        Words wait without making their subject busy, for no longer than decisions want them: a deed goes first, and
        newer words take their place.
        """
        taken = 0
        words: dict[str, tuple[int, Intent]] = {}
        for intent in intents:
            if not self._open or self._said_all(intent):
                continue
            if intent.words:
                if not self._cache.occupied(intent.subject):
                    waiting = self._words.get(intent.subject)
                    words[intent.subject] = waiting[0] if waiting else self._number(), intent
                    taken += 1
            elif self._cache.assume(intent):
                self._cancel_release(intent.subject)
                heappush(self._deeds, (intent.order, self._number(), intent))
                taken += 1
        for subject, (number, _) in self._words.items():
            if subject not in words:
                del self._since[number]
        self._words = dict(sorted(words.items(), key=lambda each: each[1][0]))
        self._start()
        return taken

    async def perform(self, step: Step, *, fenced: bool = True) -> Raw:
        """Carries out one step for a caller that waits for the answer and answers its errors itself.

        For what is no decision on a subject: the webhooks' certificates. Without fence only for a CREATE, whose name is
        its precondition. Raises `NotLeading`, or any `KubeError`.
        """
        if fenced and not self._fence.leading:
            raise NotLeading
        return await self._send(step, None)

    @property
    def depth(self) -> int:
        """Intents that wait or run."""
        return len(self._since)

    @property
    def oldest(self) -> float:
        """For how long the oldest of them has been here, in seconds."""
        first = next(iter(self._since.values()), None)
        return 0.0 if first is None else asyncio.get_running_loop().time() - first

    async def run(self) -> None:
        """Works until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._start()
                await asyncio.Event().wait()
        finally:
            self._group = None

    async def drain(self, seconds: float) -> bool:
        """Takes nothing more, drops what has not begun but the Events of what is done, and waits for the rest. Whether
        all of it ended in time."""
        self._open = False
        for _, number, intent in self._deeds:
            del self._since[number]
            self._cache.settle(intent.subject)
        self._deeds.clear()
        for number, _ in self._words.values():
            del self._since[number]
        self._words.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        for handle in self._releases.values():
            handle.cancel()
        return not self._running

    # Waiting and starting

    def _number(self) -> int:
        self._given += 1
        self._since[self._given] = asyncio.get_running_loop().time()
        return self._given

    def _start(self) -> None:
        """Starts what may run now."""
        while self._group is not None and self._running < self._concurrency:
            busy = self._deeds or self._running > self._talking
            if (self._words or self._reports) and (not busy or self._talking < WORDS):
                number, intent = self._words.pop(next(iter(self._words))) if self._words else self._reports.popleft()
                if not self._cache.assume(intent):
                    # A deed is under way: what there is to tell after it is not known yet.
                    del self._since[number]
                    continue
            elif self._deeds:
                _, number, intent = heappop(self._deeds)
            else:
                break
            self._running += 1
            self._talking += intent.words
            self._idle.clear()
            self._group.create_task(self._work(number, intent), name=f"write {intent.why}")
        self._metrics.writer_queue.set(self.depth)

    # One intent

    async def _work(self, number: int, intent: Intent) -> None:
        try:
            await self._carry_out(intent)
        except Exception:
            # A fault of ours in one intent must not end the others; its subject waits like one that was refused.
            _log.exception("an intent could not be carried out", subject=intent.subject, why=intent.why)
            self._refuse(intent.subject)
        finally:
            self._running -= 1
            self._talking -= intent.words
            del self._since[number]
            self._start()
            if not self._running:
                self._idle.set()

    async def _carry_out(self, intent: Intent) -> None:
        previous: Raw | None = None
        rejected = False
        try:
            if all(step.kind is Kind.EVENT for step in intent.steps):
                await self._say(intent.steps)
                # The next decision wants to say it again: at once that would be a hot loop.
                if self._said_all(intent) or not self._fence.leading:
                    self._succeed(intent.subject)
                else:
                    self._refuse(intent.subject)
                return
            for position, step in enumerate(intent.steps):
                if step.kind is Kind.EVENT and all(later.kind is Kind.EVENT for later in intent.steps[position:]):
                    report = Intent(f"{intent.subject}/report", "tell", intent.steps[position:], words=True)
                    self._reports.append((self._number(), report))
                    break
                if step.kind is Kind.EVENT:
                    await self._say((step,))
                    continue
                if _makes_job(step):
                    rejected = not await self._make_job(intent, step) or rejected
                    continue
                previous = await self._step(intent, step, previous)
                if step.kind is Kind.POD and step.verb is Verb.PATCH and step.uid in intent.opens:
                    self._metrics.gate_seconds.observe(max(0.0, self._now() - intent.opens[step.uid]))
            self._count(intent)
            if rejected:
                raise _Stop(_End.REFUSED)
            self._succeed(intent.subject)
        except _Stop as stop:
            self._end(intent, stop)

    async def _make_job(self, intent: Intent, step: Step) -> bool:
        """Makes a hook's Job, and says whether that succeeded. One that is refused keeps nothing else from being done:
        the next decision is told why, and says what becomes of it."""
        try:
            await self._step(intent, step, None)
        except _Stop as stop:
            error = stop.__cause__
            # What answers 5xx once may only have been busy.
            often = isinstance(error, Unavailable) and intent.subject in self._failures
            if isinstance(error, Refused) and (often or stop.end is _End.REFUSED):
                final = isinstance(error, BadRequest | TooLarge | Invalid)
                self._cache.reject(step.name, Rejection(error.message, final))
            if stop.end is _End.REFUSED:
                return False
            raise
        self._cache.reject(step.name, None)
        return True

    async def _step(self, intent: Intent, step: Step, previous: Raw | None) -> Raw | None:
        """One step to its end. Raises `_Stop` when the intent must not go on."""
        pause = SHORT_WAIT
        while True:
            if not self._fence.leading:
                raise _Stop(_End.FENCED)
            try:
                answer = await self._send(step, previous)
            except AlreadyExists as error:
                self._note(intent, step, error)
                await self._look(step, previous)
                raise _Stop(_End.LOST) from error
            except NotFound as error:
                await self._look(step, previous)
                if step.verb in (Verb.DELETE, Verb.EVICT):
                    return previous
                self._note(intent, step, error)
                raise _Stop(_End.LOST) from error
            except (Conflict, OutcomeUnknown) as error:
                self._note(intent, step, error)
                await self._look(step, previous)
                raise _Stop(_End.LOST) from error
            except TooManyRequests as error:
                self._note(intent, step, error)
                if step.verb is Verb.EVICT:
                    raise _Stop(_End.REFUSED, error.retry_after or 0.0) from error
                await asyncio.sleep(max(error.retry_after or 0.0, pause) * self._rng.uniform(1.0, 1.2))
            except Unreachable:
                await asyncio.sleep(pause * self._rng.uniform(0.5, 1.0))
            except Refused as error:
                self._note(intent, step, error)
                # A merge patch for another object of that name is refused as invalid, since UIDs never change.
                await self._look(step, previous)
                raise _Stop(_End.REFUSED) from error
            else:
                self._observe(step, answer, previous)
                return answer
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _send(self, step: Step, previous: Raw | None) -> Raw:
        uid, version = _expected(step, previous)
        body = step.body or {}
        outcome = "ok"
        try:
            match step.verb:
                case Verb.CREATE:
                    return await self._kube.create(step.kind, step.namespace, body)
                case Verb.PATCH | Verb.PATCH_STATUS:
                    sub = "status" if step.verb is Verb.PATCH_STATUS else ""
                    patch = {**body, "metadata": {**(body.get("metadata") or {}), **_precondition(uid, version)}}
                    return await self._kube.patch(step.kind, step.namespace, step.name, patch, sub=sub)
                case Verb.DELETE | Verb.EVICT:
                    options = {
                        "apiVersion": "v1",
                        "kind": "DeleteOptions",
                        **body,
                        "preconditions": _precondition(uid, version),
                    }
                    if step.verb is Verb.EVICT:
                        return await self._kube.evict(step.namespace, step.name, options)
                    return await self._kube.delete(step.kind, step.namespace, step.name, options)
        except KubeError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._metrics.writes.labels(step.verb.value, step.kind.value.kind, outcome).inc()

    # What has become of it

    def _observe(self, step: Step, answer: Raw, previous: Raw | None) -> None:
        if step.kind not in READERS or step.verb is Verb.EVICT:
            return
        if step.verb is not Verb.DELETE:
            self._cache.ingest(step.kind, answer)
        elif (answer.get("metadata") or {}).get("deletionTimestamp"):
            # Finalizers, or a kubelet, keep it for now; the watch will tell when it is gone.
            self._cache.ingest(step.kind, answer)
        else:
            uid, _ = _expected(step, previous)
            self._cache.forget(step.kind, uid, self._cache.versions(step.kind).get(uid, 0), self._now())

    async def _look(self, step: Step, previous: Raw | None) -> None:
        """Reads the object until the API server has said what it is now, and tells the cache."""
        if step.kind not in READERS:
            return
        pause = SHORT_WAIT
        while True:
            try:
                obj, version = await self._kube.find(step.kind, step.namespace, step.name)
            except KubeError as error:
                if not self._fence.leading:
                    # The successor looks for itself.
                    raise _Stop(_End.FENCED) from error
                _log.info("an object whose fate is unknown cannot be read", object=step.name, error=str(error))
                after = error.retry_after if isinstance(error, Refused) else None
                await asyncio.sleep(max(pause * self._rng.uniform(0.5, 1.0), after or 0.0))
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            uid, _ = _expected(step, previous)
            if uid and (obj is None or read_meta(obj).uid != uid):
                self._cache.forget(step.kind, uid, version, self._now())
            if obj is not None:
                self._cache.ingest(step.kind, obj)
            return

    def _count(self, intent: Intent) -> None:
        for kind, action in intent.corrections:
            self._metrics.corrections.labels(kind, action).inc()

    def _succeed(self, subject: str) -> None:
        self._failures.pop(subject, None)
        self._cache.settle(subject)

    def _end(self, intent: Intent, stop: _Stop) -> None:
        if stop.end is _End.FENCED:
            self._cache.settle(intent.subject)
        elif stop.end is _End.LOST and intent.subject not in self._failures:
            # Losing once is ordinary; losing again and again is a quarrel, and waits like a refusal.
            _remember(self._failures, intent.subject, 0)
            self._cache.settle(intent.subject)
        else:
            self._refuse(intent.subject, stop.wait)

    def _refuse(self, subject: str, at_least: float = 0.0) -> None:
        """The subject stays busy for a while, longer each time; a change of its spec ends that early."""
        count = self._failures.get(subject, 0)
        _remember(self._failures, subject, count + 1)
        wait = min(FIRST_WAIT * 2 ** min(count, 16), LONGEST_WAIT) * self._rng.uniform(0.8, 1.0)
        self._cache.hold(subject)
        self._cancel_release(subject)
        loop = asyncio.get_running_loop()
        self._releases[subject] = loop.call_later(max(wait, at_least), self._release, subject)

    def _release(self, subject: str) -> None:
        self._releases.pop(subject, None)
        if self._cache.holding(subject):
            self._cache.settle(subject)

    def _cancel_release(self, subject: str) -> None:
        handle = self._releases.pop(subject, None)
        if handle is not None:
            handle.cancel()

    def _note(self, intent: Intent, step: Step, error: KubeError) -> None:
        ordinary = isinstance(error, Conflict | AlreadyExists | NotFound | TooManyRequests)
        level = _log.info if ordinary else _log.warning
        level(
            "a write did not succeed",
            why=intent.why,
            verb=step.verb.value,
            kind=step.kind.value.kind,
            object=f"{step.namespace}/{step.name}" if step.namespace else step.name,
            error=str(error),
        )

    # Events

    def _said_all(self, intent: Intent) -> bool:
        return all(step.kind is Kind.EVENT and (step.namespace, step.name) in self._said for step in intent.steps)

    async def _say(self, steps: Iterable[Step]) -> None:
        for step in steps:
            key = (step.namespace, step.name)
            if key in self._said or not self._fence.leading:
                continue
            try:
                await self._send(step, None)
            except AlreadyExists:
                pass
            except KubeError as error:
                _log.info("an event was not written", name=step.name, namespace=step.namespace, error=str(error))
                continue
            _remember(self._said, key, None)


def _makes_job(step: Step) -> bool:
    return step.verb is Verb.CREATE and step.kind is Kind.JOB


def _expected(step: Step, previous: Raw | None) -> tuple[str, int]:
    """UID and version that the step's object must have; the version is 0 for any."""
    if step.version != FROM_PREVIOUS:
        return step.uid, step.version
    meta = (previous or {}).get("metadata") or {}
    return step.uid or str(meta.get("uid") or ""), version_of(previous or {})


def _precondition(uid: str, version: int) -> Mapping[str, Any]:
    return {**({"uid": uid} if uid else {}), **({"resourceVersion": str(version)} if version else {})}


def _remember(memory: dict[Any, Any], key: Any, value: Any) -> None:
    memory.pop(key, None)
    memory[key] = value
    while len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
