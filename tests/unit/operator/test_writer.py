"""The writer: bounded, preconditioned, fenced; each error has its one answer and nothing is written twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.support.clock import Background, loop_time, settled, until, virtual
from tests.support.fakeapi import FakeApi

from adjoin.cache import Cache
from adjoin.intents import FROM_PREVIOUS, Intent, Kind, Step, Verb
from adjoin.kube import AlreadyExists, Conflict
from adjoin.metrics import Metrics
from adjoin.writer import FIRST_WAIT, LONGEST_WAIT, WORDS, NotLeading, Writer

NOW = 1_000.0
Obj = dict[str, Any]


class Fence:
    leading = True


class Desk:
    """A writer at work, and everything around it."""

    def __init__(self, api: FakeApi, writer: Writer, cache: Cache, fence: Fence, metrics: Metrics) -> None:
        self.api = api
        self.writer = writer
        self.cache = cache
        self.fence = fence
        self.metrics = metrics

    def claim(self, name: str = "job", **more: Any) -> Obj:
        """A DeviceClaim on the server that the cache knows."""
        body = {
            "apiVersion": "adjoin.dev/v1alpha1",
            "kind": "DeviceClaim",
            "metadata": {"namespace": "team", "name": name, **more},
            "spec": {"poolRef": {"name": "p"}, "requests": [{"name": "gpu", "device": "gpu", "count": 1}]},
        }
        obj = self.api.put(Kind.DEVICE_CLAIM, body)
        self.cache.ingest(Kind.DEVICE_CLAIM, obj)
        return obj

    def shown(self, obj: Obj) -> str | None:
        """The phase that a decision would see."""
        return self.cache.view(NOW).claims[obj["metadata"]["uid"]].status.get("phase")

    def stored(self, name: str = "job") -> str | None:
        """The phase that the server holds."""
        phase: str | None = (self.api.get(Kind.DEVICE_CLAIM, "team", name).get("status") or {}).get("phase")
        return phase

    def busy(self, obj: Obj) -> bool:
        return obj["metadata"]["uid"] in self.cache.view(NOW).busy

    def submit(self, *intents: Intent) -> int:
        return self.writer.submit(intents)

    def sent(self, outcome: str) -> float:
        """How many requests ended so."""
        return sum(
            sample.value
            for metric in self.metrics.writes.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["outcome"] == outcome
        )


@asynccontextmanager
async def desk(concurrency: int = 4) -> AsyncIterator[Desk]:
    cache, fence, metrics = Cache("adjoin-system"), Fence(), Metrics()
    async with FakeApi() as api, api.client() as kube:
        writer = Writer(kube, cache, fence, metrics, concurrency=concurrency, now=lambda: NOW, rng=random.Random(1))
        async with Background(writer.run()):
            yield Desk(api, writer, cache, fence, metrics)


def status(obj: Obj, phase: str, **more: Any) -> Step:
    meta = obj["metadata"]
    return Step(
        Verb.PATCH_STATUS,
        Kind.DEVICE_CLAIM,
        "team",
        meta["name"],
        meta["uid"],
        int(meta["resourceVersion"]),
        {"status": {"phase": phase}, **more},
    )


def set_phase(obj: Obj, phase: str = "Allocated", *, order: int = 0, steps: tuple[Step, ...] = ()) -> Intent:
    return Intent(obj["metadata"]["uid"], "allocate", (status(obj, phase), *steps), {"phase": phase}, order)


def words(obj: Obj, phase: str = "InUse") -> Intent:
    return Intent(obj["metadata"]["uid"], "show claim", (status(obj, phase),), {"phase": phase}, words=True)


def event(name: str = "e1") -> Step:
    body = {"metadata": {"namespace": "team", "name": name}, "reason": "Pending", "note": "waits"}
    return Step(Verb.CREATE, Kind.EVENT, "team", name, body=body)


def job(name: str) -> Step:
    meta = {"namespace": "adjoin-system", "name": name, "labels": {"adjoin.dev/hook": "init"}}
    return Step(Verb.CREATE, Kind.JOB, "adjoin-system", name, body={"metadata": meta, "spec": {}})


def resource_claim(name: str = "adjoin-job-x") -> Step:
    body = {"metadata": {"namespace": "team", "name": name}, "spec": {"devices": {}}}
    return Step(Verb.CREATE, Kind.RESOURCE_CLAIM, "team", name, body=body)


@virtual
async def test_a_write_counts_from_its_handover_and_its_answer_is_known_at_once() -> None:
    async with desk() as at:
        claim = at.claim()
        at.submit(set_phase(claim))
        assert at.shown(claim) == "Allocated"
        assert at.busy(claim)
        await until(lambda: not at.busy(claim))
        assert at.stored() == "Allocated"
        assert at.shown(claim) == "Allocated"
        assert at.cache.view(NOW).claims[claim["metadata"]["uid"]].meta.version == at.api.version


@pytest.mark.parametrize("lost", [False, True], ids=["once it has succeeded", "not when somebody was faster"])
@virtual
async def test_what_an_intent_puts_right_is_counted(lost: bool) -> None:
    async with desk() as at:
        claim = at.claim()
        if lost:
            at.api.put(Kind.DEVICE_CLAIM, {**claim, "spec": {**claim["spec"], "priority": 1}}, silent=True)
        at.submit(replace(set_phase(claim, steps=(event(),)), corrections=(("DeviceClaim", "reclaimed"),)))
        await until(lambda: not at.busy(claim))
        counted = {
            tuple(sample.labels.values()): sample.value
            for metric in at.metrics.corrections.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        }
        assert counted == ({} if lost else {("DeviceClaim", "reclaimed"): 1.0})


@pytest.mark.parametrize("lost", [False, True], ids=["once it is open", "not when somebody was faster"])
@virtual
async def test_d15_how_long_a_pod_was_kept_at_its_gate_is_measured(lost: bool) -> None:
    async with desk() as at:
        claim = at.claim()
        body = {"metadata": {"namespace": "team", "name": "p1", "labels": {"adjoin.dev/claim": "job"}}, "spec": {}}
        pod = at.api.put(Kind.POD, {"apiVersion": "v1", "kind": "Pod", **body})["metadata"]
        version = int(pod["resourceVersion"]) - (1 if lost else 0)
        gate = Step(Verb.PATCH, Kind.POD, "team", "p1", pod["uid"], version, {"spec": {"schedulingGates": []}})
        at.submit(replace(set_phase(claim, steps=(gate, event())), opens={pod["uid"]: NOW - 1.25}))
        await until(lambda: not at.busy(claim))
        text = at.metrics.text().decode()
        assert f"adjoin_gate_seconds_count {0.0 if lost else 1.0}" in text
        assert f"adjoin_gate_seconds_sum {0.0 if lost else 1.25}" in text
        assert f'adjoin_gate_seconds_bucket{{le="2.0"}} {0.0 if lost else 1.0}' in text


@virtual
async def test_every_write_carries_who_and_which_version_it_means() -> None:
    async with desk() as at:
        claim = at.claim()
        meta = claim["metadata"]
        finalizers = Step(
            Verb.PATCH,
            Kind.DEVICE_CLAIM,
            "team",
            "job",
            version=FROM_PREVIOUS,
            body={"metadata": {"finalizers": ["x"]}},
        )
        at.submit(set_phase(claim, steps=(finalizers,)))
        await until(lambda: not at.busy(claim))
        first, second = at.api.calls("PATCH")
        assert first.body["metadata"] == {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        assert second.body["metadata"] == {
            "uid": meta["uid"],
            "resourceVersion": str(int(meta["resourceVersion"]) + 1),
            "finalizers": ["x"],
        }
        assert first.path.endswith("/status")


@virtual
async def test_a_created_object_hands_its_identity_to_the_next_step() -> None:
    async with desk() as at:
        claim = at.claim()
        allocation = {"status": {"allocation": {"devices": {}}}}
        steps = (
            resource_claim(),
            Step(
                Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM, "team", "adjoin-job-x", version=FROM_PREVIOUS, body=allocation
            ),
        )
        at.submit(Intent(claim["metadata"]["uid"], "deliver", steps))
        await until(lambda: not at.busy(claim))
        made = at.api.get(Kind.RESOURCE_CLAIM, "team", "adjoin-job-x")
        assert made["status"] == {"allocation": {"devices": {}}}
        assert at.cache.view(NOW).resource_claims[made["metadata"]["uid"]].allocated


@virtual
async def test_a_subject_has_one_intent_at_a_time() -> None:
    async with desk() as at:
        claim = at.claim()
        assert at.submit(set_phase(claim, "Allocated"), set_phase(claim, "Ready")) == 1
        await until(lambda: not at.busy(claim))
        assert at.stored() == "Allocated"


@virtual
async def test_many_run_side_by_side_but_not_more_than_allowed() -> None:
    async with desk(concurrency=3) as at:
        claims = [at.claim(f"job-{number}") for number in range(10)]
        at.api.hang(method="PATCH", times=3)
        at.submit(*(set_phase(claim) for claim in claims))
        await settled(1)
        assert len(at.api.calls("PATCH")) == 3
        assert at.writer.depth == 10
        assert at.writer.oldest >= 1
        await until(lambda: at.writer.depth == 0)
        assert at.writer.oldest == 0


@virtual
async def test_smaller_order_goes_first() -> None:
    async with desk(concurrency=1) as at:
        claims = [at.claim(f"job-{number}") for number in range(4)]
        at.submit(*(set_phase(claim, order=-number) for number, claim in enumerate(claims)))
        await until(lambda: at.writer.depth == 0)
        assert [one.path.split("/")[-2] for one in at.api.calls("PATCH")] == ["job-3", "job-2", "job-1", "job-0"]


class TestWords:
    """What only tells waits for what does, and never stands in its way."""

    @virtual
    async def test_few_run_while_there_is_something_to_do_and_all_when_there_is_not(self) -> None:
        async with desk(concurrency=8) as at:
            deed, *others = [at.claim(f"job-{number}") for number in range(9)]
            at.api.hang(method="PATCH", times=1 + WORDS, afterwards=True)
            at.submit(set_phase(deed), *(words(claim) for claim in others))
            await settled(1)
            assert len(at.api.calls("PATCH")) == 1 + WORDS
            assert at.writer.depth == 9
            await until(lambda: at.writer.depth == 0)
            assert [at.stored(f"job-{number}") for number in range(1, 9)] == ["InUse"] * 8

    @virtual
    async def test_their_subject_is_free_for_a_deed_until_they_are_sent(self) -> None:
        async with desk(concurrency=1) as at:
            first, second = at.claim("first"), at.claim("second")
            at.api.hang(method="PATCH", times=1)
            at.submit(set_phase(first))
            await settled()
            at.submit(words(second))
            assert not at.busy(second)
            assert at.submit(set_phase(second, "Pending"), words(second)) == 1
            await until(lambda: at.writer.depth == 0)
            assert at.stored("second") == "Pending"
            assert len(at.api.calls("PATCH")) == 2

    @virtual
    async def test_what_the_newest_decision_says_is_said_and_nothing_else(self) -> None:
        async with desk(concurrency=1) as at:
            first, second, third = at.claim("first"), at.claim("second"), at.claim("third")
            at.api.hang(method="PATCH", times=1)
            at.submit(set_phase(first))
            await settled()
            at.submit(words(second, "Allocated"), words(third))
            at.submit(words(second, "InUse"))
            await until(lambda: at.writer.depth == 0)
            assert (at.stored("second"), at.stored("third")) == ("InUse", None)

    @virtual
    async def test_the_events_of_a_deed_do_not_keep_its_subject_nor_a_stop(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.hang(method="POST", path="events", times=1, afterwards=True)
            at.submit(set_phase(claim, steps=(event(),)))
            await until(lambda: not at.busy(claim))
            assert at.writer.depth == 1
            assert await at.writer.drain(60)
            assert len(at.api.objects[Kind.EVENT]) == 1


class TestErrors:
    @virtual
    async def test_a_conflict_forgets_the_intent_and_shows_what_is_there(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.put(Kind.DEVICE_CLAIM, {**claim, "status": {"phase": "Pending"}})
            woken = asyncio.Event()
            at.cache.notify = woken.set
            at.submit(set_phase(claim))
            await until(lambda: not at.busy(claim))
            assert at.shown(claim) == at.stored() == "Pending"
            assert woken.is_set()
            assert len(at.api.calls("PATCH")) == 1

    @virtual
    async def test_a_namesake_is_never_written_to(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.remove(Kind.DEVICE_CLAIM, "team", "job")
            at.api.put(Kind.DEVICE_CLAIM, {**claim, "metadata": {"namespace": "team", "name": "job", "uid": "new"}})
            intent = set_phase(claim)
            unversioned = Intent(intent.subject, "x", (Step(*_fields(intent.steps[0], version=0)),), {"phase": "A"})
            at.submit(unversioned)
            await until(lambda: set(at.cache.view(NOW).claims) == {"new"})
            assert at.stored() is None

    @virtual
    async def test_an_object_that_is_gone_is_forgotten(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.remove(Kind.DEVICE_CLAIM, "team", "job")
            at.submit(set_phase(claim))
            await until(lambda: at.cache.view(NOW).claims == {})
            await until(lambda: not at.cache.view(NOW).busy)

    @virtual
    async def test_what_was_to_be_deleted_and_is_gone_is_done(self) -> None:
        async with desk() as at:
            claim = at.claim()
            meta = claim["metadata"]
            at.api.remove(Kind.DEVICE_CLAIM, "team", "job")
            step = Step(Verb.DELETE, Kind.DEVICE_CLAIM, "team", "job", meta["uid"])
            at.submit(Intent(meta["uid"], "release", (step, resource_claim())))
            await until(lambda: bool(at.api.objects[Kind.RESOURCE_CLAIM]))
            assert at.cache.view(NOW).claims == {}

    @virtual
    async def test_a_delete_names_the_object_and_is_known_at_once(self) -> None:
        async with desk() as at:
            claim = at.claim()
            meta = claim["metadata"]
            step = Step(Verb.DELETE, Kind.DEVICE_CLAIM, "team", "job", meta["uid"], int(meta["resourceVersion"]))
            at.submit(Intent(meta["uid"], "release", (step,)))
            await until(lambda: at.cache.view(NOW).claims == {})
            assert at.api.calls("DELETE")[0].body["preconditions"] == {
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            }

    @virtual
    async def test_a_delete_that_waits_for_finalizers_shows_the_object_going(self) -> None:
        async with desk() as at:
            claim = at.claim(finalizers=["x.io/keep"])
            uid = claim["metadata"]["uid"]
            at.submit(Intent(uid, "release", (Step(Verb.DELETE, Kind.DEVICE_CLAIM, "team", "job", uid),)))
            await until(lambda: not at.busy(claim))
            assert at.cache.view(NOW).claims[uid].meta.deleting is not None

    @virtual
    async def test_a_delete_of_a_namesake_is_refused(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.remove(Kind.DEVICE_CLAIM, "team", "job")
            at.api.put(Kind.DEVICE_CLAIM, {**claim, "metadata": {"namespace": "team", "name": "job", "uid": "new"}})
            uid = claim["metadata"]["uid"]
            at.submit(Intent(uid, "release", (Step(Verb.DELETE, Kind.DEVICE_CLAIM, "team", "job", uid),)))
            await until(lambda: set(at.cache.view(NOW).claims) == {"new"})
            assert at.api.get(Kind.DEVICE_CLAIM, "team", "job")

    @virtual
    async def test_a_name_that_is_taken_is_looked_at(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.put(Kind.RESOURCE_CLAIM, {"metadata": {"namespace": "team", "name": "adjoin-job-x"}})
            at.submit(Intent(claim["metadata"]["uid"], "deliver", (resource_claim(), status(claim, "Ready"))))
            await until(lambda: not at.busy(claim))
            assert len(at.cache.view(NOW).resource_claims) == 1
            assert at.stored() is None, "the steps after it were not sent"

    @pytest.mark.parametrize("status_code", [422, 403, 400, 413])
    @virtual
    async def test_a_refused_subject_waits_longer_each_time(self, status_code: int) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.fail(status_code, "Invalid", method="PATCH", times=1000)
            tried: list[float] = []
            started = loop_time()
            while loop_time() - started < 600:
                if at.submit(set_phase(claim)):
                    tried.append(loop_time() - started)
                await asyncio.sleep(0.1 if loop_time() - started < 60 else 1)
            pauses = [after - before for before, after in pairwise(tried)]
            assert FIRST_WAIT * 0.8 <= pauses[0] < 1
            assert pauses == sorted(pauses) or all(pause > LONGEST_WAIT * 0.75 for pause in pauses[-3:])
            assert max(pauses) <= LONGEST_WAIT + 2
            assert len(tried) < 20
            assert at.shown(claim) is None

    @pytest.mark.parametrize(("status_code", "final"), [(422, True), (400, True), (413, True), (403, False)])
    @virtual
    async def test_a_hooks_job_that_is_refused_is_told_and_the_other_steps_go_on(
        self, status_code: int, final: bool
    ) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.fail(status_code, "Invalid", method="POST", path="/jobs")
            at.submit(Intent(claim["metadata"]["uid"], "begin", (job("a"), job("b"), status(claim, "Initializing"))))
            await until(lambda: at.stored() == "Initializing")
            await settled(0)
            assert at.busy(claim), "it is not asked again at once"
            rejections = at.cache.view(NOW).rejections
            assert {name: each.final for name, each in rejections.items()} == {"a": final}
            assert [each.meta.name for each in at.cache.view(NOW).jobs.values()] == ["b"]
            await until(lambda: not at.busy(claim), 120)
            at.submit(Intent(claim["metadata"]["uid"], "begin", (job("a"),)))
            await until(lambda: not at.busy(claim), 120)
            assert not at.cache.view(NOW).rejections

    @virtual
    async def test_a_hooks_job_is_told_of_only_when_a_server_fails_again_and_again(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.fail(500, "InternalError", method="POST", path="/jobs", times=2)
            for told in (False, True):
                at.submit(Intent(claim["metadata"]["uid"], "begin", (job("a"),)))
                await until(lambda: not at.busy(claim), 120)
                assert bool(at.cache.view(NOW).rejections) is told

    @virtual
    async def test_a_new_spec_ends_the_waiting(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.fail(422, "Invalid", method="PATCH", times=9)
            for _ in range(9):
                at.submit(set_phase(claim))
                await until(lambda: not at.busy(claim), 120)
            at.api.fail(422, "Invalid", method="PATCH")
            at.submit(set_phase(claim))
            await settled(1)
            assert at.busy(claim)
            changed = {**claim, "spec": {**claim["spec"], "requests": [{"name": "gpu", "device": "gpu", "count": 2}]}}
            newer = at.api.put(Kind.DEVICE_CLAIM, changed)
            at.cache.ingest(Kind.DEVICE_CLAIM, newer)
            assert not at.busy(claim)
            assert at.submit(set_phase(newer)) == 1
            await until(lambda: at.stored() == "Allocated")

    @virtual
    async def test_losing_again_and_again_waits_like_a_refusal(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.fail(409, "Conflict", method="PATCH", times=1000)
            tried = 0
            started = loop_time()
            while loop_time() - started < 60:
                tried += at.submit(set_phase(claim))
                await asyncio.sleep(0.05)
            assert tried < 12

    @virtual
    async def test_too_many_requests_are_sent_again_when_the_server_wants_them(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.fail(429, "TooManyRequests", method="PATCH", times=2, retry_after=7)
            at.submit(set_phase(claim))
            started = loop_time()
            await until(lambda: not at.busy(claim))
            assert 14 <= loop_time() - started < 20
            assert at.stored() == "Allocated"

    @virtual
    async def test_an_eviction_that_a_budget_forbids_is_not_sent_again_by_the_writer(self) -> None:
        async with desk() as at:
            pod = at.api.put(Kind.POD, {"metadata": {"namespace": "team", "name": "p"}})
            uid = pod["metadata"]["uid"]
            at.api.fail(429, "TooManyRequests", method="POST", retry_after=10)
            at.submit(Intent(uid, "evict", (Step(Verb.EVICT, Kind.POD, "team", "p", uid),)))
            started = loop_time()
            await until(lambda: uid not in at.cache.view(NOW).busy)
            assert loop_time() - started >= 10
            assert len(at.api.calls("POST")) == 1
            at.submit(Intent(uid, "evict", (Step(Verb.EVICT, Kind.POD, "team", "p", uid),)))
            await until(lambda: at.api.objects[Kind.POD] == {})
            assert at.api.calls("POST")[1].body["deleteOptions"]["preconditions"] == {"uid": uid}

    @virtual
    async def test_a_server_that_is_away_is_waited_for(self) -> None:
        async with desk() as at:
            claim = at.claim()
            await at.api.stop()
            at.submit(set_phase(claim))
            await settled(8)
            assert at.shown(claim) == "Allocated"
            await at.api.start()
            await until(lambda: not at.busy(claim))
            assert at.stored() == "Allocated"

    @pytest.mark.parametrize("written", [True, False], ids=["it was written", "it was not written"])
    @pytest.mark.parametrize("trouble", ["hang", "drop", "500", "504"])
    @virtual
    async def test_an_unknown_outcome_is_looked_at_before_anything_else(self, trouble: str, written: bool) -> None:
        async with desk() as at:
            claim = at.claim()
            match trouble:
                case "hang":
                    at.api.hang(method="PATCH", afterwards=written)
                case "drop":
                    at.api.drop(method="PATCH", afterwards=written)
                case _:
                    at.api.fail(int(trouble), method="PATCH", afterwards=written)
            at.api.fail(503, method="GET", times=3)
            at.submit(set_phase(claim))
            await settled(0.1)
            assert at.shown(claim) == "Allocated", "as long as nobody knows, the devices count as taken"
            await until(lambda: not at.busy(claim))
            assert at.shown(claim) == at.stored() == ("Allocated" if written else None)
            assert len(at.api.calls("PATCH")) == 1

    @virtual
    async def test_a_creation_of_unknown_outcome_is_found(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.drop(method="POST", afterwards=True)
            at.submit(Intent(claim["metadata"]["uid"], "deliver", (resource_claim(),)))
            await until(lambda: not at.busy(claim))
            assert [facts.meta.name for facts in at.cache.view(NOW).resource_claims.values()] == ["adjoin-job-x"]

    @virtual
    async def test_a_fault_of_ours_in_one_intent_leaves_the_others_alone(self) -> None:
        async with desk(concurrency=1) as at:
            broken, fine = at.claim("broken"), at.claim("fine")
            step = Step(*_fields(status(broken, "x"), body={"status": {1, 2}}))
            at.submit(Intent(broken["metadata"]["uid"], "x", (step,)), set_phase(fine))
            await until(lambda: at.stored("fine") == "Allocated")
            assert at.busy(broken)


class TestFence:
    @virtual
    async def test_nothing_is_sent_by_who_does_not_lead(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.fence.leading = False
            at.submit(set_phase(claim))
            await until(lambda: not at.busy(claim))
            assert at.api.writes == []
            assert at.shown(claim) is None

    @virtual
    async def test_leadership_lost_between_two_steps_stops_the_rest(self) -> None:
        async with desk() as at:
            claim = at.claim()

            def lose(seen: Any) -> bool:
                if seen.method == "PATCH":
                    at.fence.leading = False
                return False

            at.api.fail(500)
            at.api.faults[-1].matches = lose
            at.submit(set_phase(claim, steps=(resource_claim(),)))
            await until(lambda: not at.busy(claim))
            assert at.stored() == "Allocated"
            assert at.api.calls("POST") == []

    @virtual
    async def test_leadership_lost_while_waiting_sends_nothing_more(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.fail(429, method="PATCH", retry_after=5)
            at.submit(set_phase(claim))
            await settled(1)
            at.fence.leading = False
            await until(lambda: not at.busy(claim))
            assert len(at.api.calls("PATCH")) == 1

    @virtual
    async def test_a_single_step_is_fenced_too_unless_its_name_is_the_precondition(self) -> None:
        async with desk() as at:
            at.fence.leading = False
            with pytest.raises(NotLeading):
                await at.writer.perform(resource_claim())
            assert (await at.writer.perform(resource_claim(), fenced=False))["metadata"]["name"] == "adjoin-job-x"
            with pytest.raises(AlreadyExists):
                await at.writer.perform(resource_claim(), fenced=False)

    @virtual
    async def test_a_single_step_leaves_its_errors_to_the_caller(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.put(Kind.DEVICE_CLAIM, {**claim, "status": {"phase": "Pending"}})
            with pytest.raises(Conflict):
                await at.writer.perform(status(claim, "Ready"))


class TestDrain:
    @virtual
    async def test_what_runs_ends_and_what_waits_is_dropped(self) -> None:
        async with desk(concurrency=1) as at:
            first, second = at.claim("first"), at.claim("second")
            at.api.fail(429, method="PATCH", retry_after=1)
            at.submit(set_phase(first), set_phase(second))
            await settled(0.1)
            assert await at.writer.drain(5)
            assert at.stored("first") == "Allocated"
            assert at.stored("second") is None
            assert not at.busy(second)
            assert at.submit(set_phase(second)) == 0

    @virtual
    async def test_it_does_not_wait_for_ever(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.hang(times=1000)
            at.submit(set_phase(claim))
            await settled(0.1)
            started = loop_time()
            assert not await at.writer.drain(3)
            assert loop_time() - started < 4


class TestEvents:
    @virtual
    async def test_an_event_is_said_once(self) -> None:
        async with desk() as at:
            claim = at.claim()
            uid = claim["metadata"]["uid"]
            for _ in range(3):
                at.submit(Intent(uid, "tell", (event(),)))
                await settled()
            assert len(at.api.calls("POST", "events")) == 1

    @virtual
    async def test_saying_nothing_new_wakes_nobody(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.submit(Intent(claim["metadata"]["uid"], "tell", (event(),)))
            await settled()
            woken: list[bool] = []
            at.cache.notify = lambda: woken.append(True)
            assert at.submit(Intent(claim["metadata"]["uid"], "tell", (event(),))) == 0
            await settled()
            assert woken == []

    @virtual
    async def test_an_event_that_an_earlier_process_said_is_said(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.put(Kind.EVENT, {"metadata": {"namespace": "team", "name": "e1"}})
            for _ in range(2):
                at.submit(set_phase(claim, steps=(event(),)))
                await settled()
            assert len(at.api.calls("POST", "events")) == 1

    @pytest.mark.parametrize("status_code", [403, 404, 422, 429, 500])
    @virtual
    async def test_an_event_that_cannot_be_said_holds_nothing_up(self, status_code: int) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.fail(status_code, path="/events")
            steps = (event(), Step(*_fields(status(claim, "Ready"), version=0)))
            at.submit(Intent(claim["metadata"]["uid"], "x", (status(claim, "Allocated"), *steps)))
            await until(lambda: not at.busy(claim))
            assert at.stored() == "Ready"
            assert len(at.api.calls("POST", "events")) == 1

    @pytest.mark.parametrize("status_code", [403, 422, 500])
    @virtual
    async def test_events_alone_that_cannot_be_said_are_no_hot_loop(self, status_code: int) -> None:
        """Whoever decides wants the same again as soon as the subject is free."""
        async with desk() as at:
            at.api.fail(status_code, path="/events", times=1000)
            for _ in range(200):
                at.submit(Intent("pod-1", "tell", (event(),)))
                await settled(0.1)
            assert len(at.api.calls("POST", "events")) < 12

    @virtual
    async def test_the_next_decision_does_not_wait_for_events(self) -> None:
        async with desk() as at:
            claim = at.claim()
            at.api.hang(path="/events")
            at.submit(set_phase(claim, steps=(event(),)))
            await until(lambda: at.stored() == "Allocated")
            await settled()
            assert not at.busy(claim)


@virtual
async def test_c10_many_deletes_under_errors_leave_nothing() -> None:
    """300 claims go at once while a fifth of all answers are conflicts and errors: in the end none is left."""
    async with desk(concurrency=32) as at:
        rng = random.Random(7)

        def unlucky(seen: Any) -> bool:
            return seen.method == "DELETE" and rng.random() < 0.2

        at.api.fail(409, "Conflict", times=60)
        at.api.faults[-1].matches = unlucky
        at.api.fail(500, "InternalError", times=60, afterwards=True)
        at.api.faults[-1].matches = unlucky
        claims = [at.claim(f"job-{number}") for number in range(300)]
        rounds = 0
        while at.cache.view(NOW).claims:
            rounds += 1
            assert rounds < 2000
            at.submit(
                *(
                    Intent(uid, "release", (Step(Verb.DELETE, Kind.DEVICE_CLAIM, "team", facts.meta.name, uid),))
                    for uid, facts in at.cache.view(NOW).claims.items()
                )
            )
            await settled(0.2)
        assert at.api.objects[Kind.DEVICE_CLAIM] == {}
        assert len(claims) == 300
        assert at.sent("Conflict") > 10


def _fields(step: Step, **changes: Any) -> tuple[Any, ...]:
    values: Mapping[str, Any] = {
        "verb": step.verb,
        "kind": step.kind,
        "namespace": step.namespace,
        "name": step.name,
        "uid": step.uid,
        "version": step.version,
        "body": step.body,
        **changes,
    }
    return tuple(values.values())
