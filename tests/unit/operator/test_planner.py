"""The loop: gathers, decides on a frozen view, hands over what is still true, and never decides blindly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.clock import Inline, loop_time, settled, until, virtual

from adjoin.cache import READERS, Cache, View
from adjoin.intents import Intent, Kind, Step, Verb
from adjoin.metrics import Metrics
from adjoin.planner import FAILURES, IDLE_SECONDS, LEAST_SECONDS, LONGEST_SECONDS, Batcher, Planner, PlannerBroken

Obj = dict[str, Any]


@dataclass
class Decided:
    intents: Sequence[Intent] = ()
    wake_at: float | None = None


@dataclass
class Decider:
    """Remembers what it was shown; answers what the test wants."""

    answer: Decided = field(default_factory=Decided)
    shown: list[tuple[View, float]] = field(default_factory=list)
    broken: int = 0
    meanwhile: Any = None

    def decide(self, view: View, now: float) -> Decided:
        self.shown.append((view, now))
        if self.meanwhile is not None:
            self.meanwhile()
        if self.broken:
            self.broken -= 1
            raise AssertionError("a device in two hands")
        return self.answer


class Fence:
    leading = True


@dataclass
class Loop:
    cache: Cache
    batcher: Batcher
    decider: Decider
    fence: Fence
    handed: list[Intent]
    planner: Planner
    task: asyncio.Task[None]

    def sync(self) -> None:
        self.cache.serve_guard(False, 0.0)
        for kind in READERS:
            self.cache.prune(kind, (), 1, 0.0)


@asynccontextmanager
async def loop(*, synced: bool = True) -> AsyncIterator[Loop]:
    decider, fence, handed, batcher = Decider(), Fence(), [], Batcher()
    cache = Cache("adjoin-system", batcher.notify)

    def submit(intents: Sequence[Intent]) -> int:
        taken = [intent for intent in intents if cache.assume(intent)]
        handed.extend(taken)
        return len(taken)

    planner = Planner(
        cache, decider, submit, fence, batcher, Metrics(), executor=Inline(), now=lambda: loop_time() + 5000
    )
    task = asyncio.create_task(planner.run())
    at = Loop(cache, batcher, decider, fence, handed, planner, task)
    if synced:
        at.sync()
    try:
        yield at
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def claim(version: int = 1, phase: str = "", uid: str = "c1") -> Obj:
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"namespace": "team", "name": "job", "uid": uid, "resourceVersion": str(version), "generation": 1},
        "spec": {"poolRef": {"name": "p"}, "requests": [{"name": "gpu", "device": "gpu", "count": 1}]},
        "status": {"phase": phase} if phase else {},
    }


def write(version: int = 1, uid: str = "c1") -> Intent:
    step = Step(Verb.PATCH_STATUS, Kind.DEVICE_CLAIM, "team", "job", uid, version, {"status": {}})
    return Intent(uid, "allocate", (step,), {"phase": "Allocated"})


class TestBatcher:
    @virtual
    async def test_waits_until_it_is_quiet(self) -> None:
        batcher = Batcher()
        batcher.notify()
        started = loop_time()
        await batcher.wait(None)
        assert loop_time() - started == pytest.approx(IDLE_SECONDS, abs=0.001)

    @virtual
    async def test_but_never_longer_than_the_limit(self) -> None:
        batcher = Batcher()

        async def chatter() -> None:
            while True:
                batcher.notify()
                await asyncio.sleep(IDLE_SECONDS / 2)

        task = asyncio.create_task(chatter())
        await asyncio.sleep(0)
        started = loop_time()
        await batcher.wait(None)
        assert loop_time() - started == pytest.approx(LONGEST_SECONDS, abs=IDLE_SECONDS)
        task.cancel()

    @virtual
    async def test_many_changes_are_one_batch(self) -> None:
        batcher = Batcher()
        for _ in range(100):
            batcher.notify()
        await batcher.wait(None)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await batcher.wait(None)

    @virtual
    async def test_a_timer_ends_the_waiting_without_a_batch(self) -> None:
        batcher = Batcher()
        started = loop_time()
        await batcher.wait(started + 7)
        assert loop_time() - started == pytest.approx(7, abs=0.001)
        batcher.notify()
        await batcher.wait(None)

    @virtual
    async def test_what_comes_while_deciding_is_the_next_batch(self) -> None:
        batcher = Batcher()
        batcher.notify()
        await batcher.wait(None)
        batcher.notify()
        async with asyncio.timeout(1):
            await batcher.wait(None)


class TestDeciding:
    @virtual
    async def test_a_change_leads_to_a_decision_on_what_is_known(self) -> None:
        async with loop() as at:
            await settled(1)
            before = len(at.decider.shown)
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            await until(lambda: len(at.decider.shown) == before + 1)
            view, now = at.decider.shown[-1]
            assert set(view.claims) == {"c1"}
            assert now == pytest.approx(loop_time() + 5000, abs=1)

    @virtual
    async def test_nothing_changes_and_nothing_is_decided(self) -> None:
        async with loop() as at:
            await settled(1)
            before = len(at.decider.shown)
            await settled(3600)
            assert len(at.decider.shown) == before

    @virtual
    async def test_intents_are_handed_over_and_assumed(self) -> None:
        async with loop() as at:
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            at.decider.answer = Decided([write()])
            await until(lambda: len(at.handed) == 1)
            assert at.cache.view(0.0).claims["c1"].status == {"phase": "Allocated"}

    @virtual
    async def test_the_end_of_a_write_leads_to_the_next_decision(self) -> None:
        async with loop() as at:
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            at.decider.answer = Decided([write()])
            await until(lambda: len(at.handed) == 1)
            at.decider.answer = Decided()
            before = len(at.decider.shown)
            at.cache.settle("c1")
            await until(lambda: len(at.decider.shown) > before)
            assert at.decider.shown[-1][0].busy == frozenset()

    @virtual
    async def test_it_wakes_when_the_decision_said(self) -> None:
        async with loop() as at:
            at.decider.answer = Decided(wake_at=loop_time() + 5000 + 30)
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            await until(lambda: len(at.decider.shown) > 0)
            before = len(at.decider.shown)
            at.decider.answer = Decided()
            await settled(25)
            assert len(at.decider.shown) == before
            await settled(10)
            assert len(at.decider.shown) == before + 1

    @virtual
    async def test_a_wake_up_time_in_the_past_is_no_hot_loop_of_its_own(self) -> None:
        async with loop() as at:
            await settled(1)
            at.decider.answer = Decided(wake_at=0.0)
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            await settled(1)
            assert len(at.decider.shown) <= 1 / LEAST_SECONDS + 10

    @virtual
    async def test_what_was_overtaken_while_deciding_is_left_out_and_decided_anew(self) -> None:
        async with loop() as at:
            at.cache.ingest(Kind.DEVICE_CLAIM, claim(1))
            await settled(1)

            def change() -> None:
                at.decider.meanwhile = None
                at.decider.answer = Decided()
                # Nothing a decision could see, yet the version moves on.
                at.cache.ingest(Kind.DEVICE_CLAIM, claim(2))

            stale = Decided([write(1)])
            at.decider.answer, at.decider.meanwhile = stale, change
            original = at.decider.decide

            def decide(view: View, now: float) -> Decided:
                original(view, now)
                at.decider.decide = original  # type: ignore[method-assign]
                return stale

            at.decider.decide = decide  # type: ignore[method-assign]
            before = len(at.decider.shown)
            at.batcher.notify()
            await until(lambda: len(at.decider.shown) >= before + 2)
            assert at.handed == []


class TestMayNot:
    @virtual
    async def test_who_does_not_lead_decides_nothing_until_it_does(self) -> None:
        async with loop() as at:
            await settled(1)
            at.fence.leading = False
            before = len(at.decider.shown)
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            await settled(60)
            assert len(at.decider.shown) == before
            at.fence.leading = True
            await until(lambda: len(at.decider.shown) > before, 3)

    @virtual
    async def test_before_everything_was_listed_nothing_is_decided(self) -> None:
        async with loop(synced=False) as at:
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            await settled(60)
            assert at.decider.shown == []
            at.sync()
            await until(lambda: len(at.decider.shown) > 0, 3)

    @virtual
    async def test_a_holder_of_devices_that_cannot_be_read_stops_decisions(self) -> None:
        async with loop() as at:
            await settled(1)
            broken = claim(5)
            broken["spec"]["requests"] = "gpu"
            broken["status"] = {"allocation": {"replicas": []}}
            before = len(at.decider.shown)
            at.cache.ingest(Kind.DEVICE_CLAIM, broken)
            at.cache.ingest(Kind.DEVICE_CLAIM, {**claim(6, uid="c2")})
            await settled(30)
            assert len(at.decider.shown) == before
            at.cache.ingest(Kind.DEVICE_CLAIM, claim(9))
            await until(lambda: len(at.decider.shown) > before, 3)


class TestBroken:
    @virtual
    async def test_a_failed_decision_writes_nothing_and_is_made_again(self) -> None:
        async with loop() as at:
            await settled(1)
            at.decider.broken = 2
            at.decider.answer = Decided([write()])
            before = len(at.decider.shown)
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            await until(lambda: len(at.handed) == 1, 30)
            assert len(at.decider.shown) == before + 3

    @virtual
    async def test_decisions_that_keep_failing_end_the_process(self) -> None:
        async with loop() as at:
            await settled(1)
            at.decider.broken = 1000
            at.cache.ingest(Kind.DEVICE_CLAIM, claim())
            with pytest.raises(PlannerBroken):
                await at.task
            assert at.decider.broken == 1000 - FAILURES
            assert at.handed == []
