"""kopf as a pair of eyes: what it must never do, and what is done about what it does not see."""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import kopf
import pytest
from kopf._cogs.clients import errors, watching
from kopf._cogs.structs import references
from tests.support.clock import Background, loop_time, settled, until, virtual
from tests.support.fakeapi import FakeApi

from adjoin import handlers
from adjoin.cache import Cache
from adjoin.handlers import (
    BURST_SECONDS,
    DEAF,
    FEW,
    GRACE_SECONDS,
    SUSPICIOUS_SECONDS,
    WATCHED,
    Endless,
    Feed,
    Sweep,
    register,
)
from adjoin.intents import Kind
from adjoin.kube import Access
from adjoin.metrics import Metrics

NOW = 1_000.0
Obj = dict[str, Any]
ACCESS = Access("https://127.0.0.1:6443", "Bearer secret", "/ca.crt", None, None, True, None, None)


async def access() -> Access:
    return ACCESS


def pod(name: str, uid: str | None = None, version: str | None = None) -> Obj:
    meta: Obj = {"namespace": "team", "name": name, "labels": {"adjoin.dev/claim": "job"}}
    return {"metadata": {**meta, **({"uid": uid, "resourceVersion": version} if uid else {})}}


class TestWatches:
    """What kopf does when a watch ends with an error, with its own endless loop and a watch of ours below it."""

    @pytest.fixture
    def ends(self, monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
        """How the next watches end after their event; None for a timeout of the server."""
        answers: list[BaseException | None] = []

        async def watch(**_: Any) -> AsyncIterator[Any]:
            yield {"type": "ADDED", "object": {}}
            end = answers.pop(0)
            if end is not None:
                raise end

        monkeypatch.setattr(watching, "continuous_watch", watch)
        handlers.endure()
        handlers.endure()
        return answers

    async def watched(self, times: int) -> int:
        """How many events came of so many watches."""
        events = 0
        pods = references.Resource("", "v1", "pods", namespaced=True)
        async for _ in watching.infinite_watch(
            settings=handlers.settings(), resource=pods, namespace=None, _iterations=times
        ):
            events += 1
        return events

    @pytest.mark.parametrize(
        "end",
        [
            pytest.param(errors.APIClientError({"code": 410, "reason": "Expired"}, status=410, headers={}), id="gone"),
            pytest.param(errors.APIServerError(None, status=503, headers={}), id="no server"),
            pytest.param(watching.WatchingError("Error in the watch-stream: etcd"), id="an event of type ERROR"),
        ],
    )
    @virtual
    async def test_one_that_may_pass_is_followed_by_another_watch(
        self, ends: list[BaseException | None], end: BaseException
    ) -> None:
        ends += [end, end, None]
        assert await self.watched(3) == 3

    @virtual
    async def test_one_that_says_that_we_may_not_is_the_end(self, ends: list[BaseException | None]) -> None:
        ends += [errors.APIForbiddenError(None, status=403, headers={}), None]
        with pytest.raises(errors.APIForbiddenError):
            await self.watched(2)


class TestKopf:
    def registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        register(registry, Feed(Cache("adjoin-system")), access)
        return registry

    def test_only_events_are_handled_so_kopf_writes_nothing(self) -> None:
        registry = self.registry()
        assert len(registry._watching.get_all_handlers()) == len(WATCHED)
        for writing in (registry._changing, registry._spawning, registry._indexing, registry._webhooks):
            assert list(writing.get_all_handlers()) == []

    def test_d3_every_handler_is_async(self) -> None:
        for handler in self.registry()._watching.get_all_handlers():
            assert inspect.iscoroutinefunction(handler.fn)

    def test_every_watched_kind_has_its_handler(self) -> None:
        handled = {
            (handler.selector.group, handler.selector.version, handler.selector.any_name)
            for handler in self.registry()._watching.get_all_handlers()
        }
        assert handled == {(kind.value.group, kind.value.version, kind.value.plural) for kind in WATCHED}

    def test_d8_pods_are_filtered_by_the_server(self) -> None:
        found = list(handlers.settings().watching.label_selectors._items.values())
        assert found == ["adjoin.dev/claim"]

    def test_d2_no_peering_object_can_pause_it(self) -> None:
        assert handlers.settings().peering.standalone

    def test_e4_finalizers_of_others_are_never_taken_off(self) -> None:
        name = handlers.settings().persistence.finalizer
        assert name not in ("kopf.zalando.org/KopfFinalizerMarker", "adjoin.dev/cleanup")

    def test_e3_e5_nothing_of_an_object_is_stored(self) -> None:
        storage = handlers.settings().persistence.diffbase_storage
        body = kopf.Body({"metadata": {}, "spec": {"a": 1}})
        assert storage.build(body=body) == {}
        assert storage.fetch(body=body) is None
        with pytest.raises(RuntimeError):
            storage.store(body=body, patch=kopf.Patch(), essence=storage.build(body=body))

    def test_it_posts_no_events_and_scans_nothing(self) -> None:
        chosen = handlers.settings()
        assert not chosen.posting.enabled
        assert chosen.scanning.disabled
        assert not chosen.watching.initial_streaming
        assert chosen.watching.chunk_size is None

    def test_it_never_gives_up_on_errors_that_pass(self) -> None:
        pauses = handlers.settings().networking.error_backoffs
        assert not hasattr(pauses, "__len__")
        assert list(islice(iter(Endless()), 1000))[-1] == 1.0

    async def test_it_logs_in_as_we_do(self) -> None:
        (handler,) = (one for one in self.registry()._activities.get_all_handlers())
        info = await handler.fn()  # type: ignore[call-arg, misc]
        assert isinstance(info, kopf.ConnectionInfo)
        assert (info.server, info.scheme, info.token) == (ACCESS.server, "Bearer", "secret")
        assert info.ca_path == "/ca.crt"


class TestFeed:
    def test_events_go_into_the_cache(self) -> None:
        cache = Cache("adjoin-system")
        feed = Feed(cache, now=lambda: NOW, clock=lambda: 7.0)
        for type_, version in ((None, "1"), ("ADDED", "1"), ("MODIFIED", "2")):
            feed.take(Kind.POD, {"type": type_, "object": pod("p", "u", version)})
        assert cache.view(NOW).pods["u"].meta.version == 2
        feed.take(Kind.POD, {"type": "DELETED", "object": pod("p", "u", "3")})
        assert cache.view(NOW).pods == {}
        assert feed.heard == {Kind.POD: 7.0}

    def test_a_second_list_of_kopf_is_a_sign_of_a_lost_connection(self) -> None:
        clock, relisted = [0.0], []
        feed = Feed(Cache("adjoin-system"), on_relist=relisted.append, clock=lambda: clock[0])

        def listed() -> None:
            feed.take(Kind.POD, {"type": None, "object": pod("p", "u", "1")})

        for _ in range(100):
            listed()
            clock[0] += 0.1
        assert relisted == []
        clock[0] += BURST_SECONDS * 2
        listed()
        listed()
        assert relisted == [Kind.POD]


class At:
    def __init__(self, api: FakeApi, cache: Cache, sweep: Sweep, metrics: Metrics) -> None:
        self.api, self.cache, self.sweep, self.metrics = api, cache, sweep, metrics

    def pods(self) -> set[str]:
        return {facts.meta.name for facts in self.cache.view(NOW).pods.values()}

    def corrected(self) -> dict[str, float]:
        return {
            sample.labels["action"]: sample.value
            for metric in self.metrics.corrections.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["kind"] == "Pod"
        }


@asynccontextmanager
async def sweeping(
    *, pods: int = 0, page: int = 500, interval: Callable[[], float] = lambda: 300.0
) -> AsyncIterator[At]:
    cache, metrics = Cache("adjoin-system"), Metrics()
    async with FakeApi() as api, api.client() as kube:
        for number in range(pods):
            api.put(Kind.POD, pod(f"p{number}"))
        sweep = Sweep(
            kube,
            cache,
            metrics,
            interval=interval,
            page=page,
            clock=loop_time,
            now=lambda: NOW,
            rng=random.Random(1),
        )
        async with Background(sweep.run()):
            await until(lambda: sweep.done is not None)
            yield At(api, cache, sweep, metrics)


class TestSweep:
    @virtual
    async def test_everything_is_listed_once_at_start(self) -> None:
        async with sweeping(pods=5, page=2) as at:
            assert len(at.pods()) == 5
            assert not set(at.cache.unsynced) & {kind.value.plural for kind in WATCHED}

    @virtual
    async def test_d8_only_pods_with_a_claim_are_asked_for(self) -> None:
        async with sweeping() as at:
            await settled(400)
            for call in at.api.calls("GET", "/pods"):
                assert call.query["labelSelector"] == "adjoin.dev/claim"

    @virtual
    async def test_c12_a_lost_delete_is_noticed_within_the_interval(self) -> None:
        async with sweeping(pods=2) as at:
            at.api.remove(Kind.POD, "team", "p0")
            await until(lambda: at.pods() == {"p1"}, 400)
            assert at.corrected()["dropped"] == 1

    @virtual
    async def test_a_pool_that_wants_it_sooner_is_heard_while_the_sweep_pauses(self) -> None:
        wanted = [300.0]
        async with sweeping(pods=2, interval=lambda: wanted[0]) as at:
            await settled(60)
            at.api.remove(Kind.POD, "team", "p0")
            await settled(30)
            assert at.pods() == {"p0", "p1"}
            wanted[0] = 20.0
            await until(lambda: at.pods() == {"p1"}, 40)

    @virtual
    async def test_c12_after_a_sign_of_a_lost_connection_it_is_noticed_in_seconds(self) -> None:
        async with sweeping(pods=2) as at:
            at.api.remove(Kind.POD, "team", "p0")
            at.sweep.soon()
            await until(lambda: at.pods() == {"p1"}, 10)

    @pytest.mark.parametrize("count", [3, FEW + 1])
    @virtual
    async def test_d4_lost_changes_are_read_again(self, count: int) -> None:
        async with sweeping(pods=count) as at:
            for number in range(count):
                at.api.put(Kind.POD, {**pod(f"p{number}"), "spec": {"nodeName": "n"}})
            at.api.put(Kind.POD, pod("new"))
            at.sweep.soon()
            await until(lambda: "new" in at.pods(), 30)
            assert {facts.node for facts in at.cache.view(NOW).pods.values() if facts.meta.name != "new"} == {"n"}
            assert at.corrected()["refreshed"] == count + 1

    @virtual
    async def test_what_is_only_late_counts_as_heard(self) -> None:
        async with sweeping(pods=1) as at:
            newer = at.api.put(Kind.POD, {**pod("p0"), "spec": {"nodeName": "n"}})
            at.sweep.soon()
            await until(lambda: len(at.api.calls("GET", "/pods")) > 1)
            await settled(GRACE_SECONDS / 2)
            at.cache.ingest(Kind.POD, newer)
            await settled(30)
            assert at.corrected() == {}

    @virtual
    async def test_while_something_is_missed_it_looks_more_often(self) -> None:
        async with sweeping(pods=1) as at:
            at.api.put(Kind.POD, pod("lost-1"))
            at.sweep.soon()
            await until(lambda: "lost-1" in at.pods(), 30)
            at.api.put(Kind.POD, pod("lost-2"))
            await until(lambda: "lost-2" in at.pods(), SUSPICIOUS_SECONDS * 2)

    @virtual
    async def test_d2_kopf_that_hears_nothing_more_of_a_kind_is_reported(self) -> None:
        async with sweeping() as at:
            for number in range(DEAF):
                assert list(at.sweep.deaf) == []
                at.api.put(Kind.POD, pod(f"lost-{number}"))
                at.sweep.soon()
                await until(lambda number=number: f"lost-{number}" in at.pods(), 30)  # type: ignore[misc]
            await settled(5)
            assert list(at.sweep.deaf) == ["pods"]
            await settled(60)
            assert list(at.sweep.deaf) == [], "it hears again, or nothing happens"

    @virtual
    async def test_a_server_in_trouble_is_asked_again(self) -> None:
        async with sweeping(pods=1) as at:
            at.api.remove(Kind.POD, "team", "p0")
            at.api.fail(500, method="GET", times=6)
            at.sweep.soon()
            await until(lambda: at.pods() == set(), 60)

    @virtual
    async def test_an_unseen_object_that_was_deleted_meanwhile_stays_away(self) -> None:
        async with sweeping() as at:
            at.api.put(Kind.POD, pod("short"))
            at.sweep.soon()
            await until(lambda: len(at.api.calls("GET", "/pods")) > 1)
            at.api.remove(Kind.POD, "team", "short")
            await settled(30)
            assert at.pods() == set()
