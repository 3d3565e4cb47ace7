"""The reflector: whatever the API server does, the cache ends up holding what it holds."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.clock import Background, Sleeps, loop_time, settled, until, virtual
from tests.support.fakeapi import FakeApi

from adjoin.cache import Cache
from adjoin.intents import Kind
from adjoin.kube import SILENCE_SECONDS, Kube
from adjoin.reflector import LONGEST_PAUSE, UNSERVED_PAUSE, Reflector

NOW = 1_000.0


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def make(kube: Kube, cache: Cache, kind: Kind = Kind.NODE, **more: Any) -> Reflector:
    return Reflector(kube, cache, kind, clock=loop_time, now=lambda: NOW, rng=random.Random(1), **more)


def names(cache: Cache) -> set[str]:
    return set(cache.view(NOW).nodes)


@virtual
async def test_lists_in_parts_then_follows() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        for number in range(5):
            api.put(Kind.NODE, node(f"n{number}"))
        async with Background(make(kube, cache, page=2).run()):
            await until(lambda: "nodes" not in cache.unsynced)
            assert names(cache) == {"n0", "n1", "n2", "n3", "n4"}
            api.put(Kind.NODE, node("n5"))
            api.put(Kind.NODE, node("n1", zone="a"))
            api.remove(Kind.NODE, "", "n0")
            await settled()
            assert names(cache) == {"n1", "n2", "n3", "n4", "n5"}
            assert cache.view(NOW).nodes["n1"].node.labels == {"zone": "a"}


@virtual
async def test_goes_on_where_a_watch_ended_without_listing_again() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        reflector = make(kube, cache)
        async with Background(reflector.run()):
            await until(lambda: api.watching == [Kind.NODE])
            await settled(5)
            api.end_watches()
            api.put(Kind.NODE, node("n1"))
            await until(lambda: names(cache) == {"n1"})
        assert reflector.lists == 1


@virtual
async def test_a_bookmark_moves_the_place_to_go_on_from() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        reflector = make(kube, cache)
        async with Background(reflector.run()):
            await until(lambda: api.watching == [Kind.NODE])
            api.put(Kind.POD, {"metadata": {"namespace": "a", "name": "unrelated"}})
            api.bookmark(Kind.NODE)
            await settled(5)
            api.compact()
            api.end_watches()
            await until(lambda: len(api.watching) == 1)
            await settled()
        assert reflector.lists == 1


@virtual
async def test_c12_what_was_deleted_while_away_is_dropped_by_the_next_list() -> None:
    cache = Cache("adjoin-system")
    relisted: list[bool] = []
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.NODE, node("stays"))
        api.put(Kind.NODE, node("goes"))
        async with Background(make(kube, cache, on_relist=lambda: relisted.append(True)).run()):
            await until(lambda: api.watching == [Kind.NODE])
            await api.stop()
            api.remove(Kind.NODE, "", "goes")
            api.put(Kind.NODE, node("comes"))
            api.compact()
            await settled(3)
            await api.start()
            await until(lambda: names(cache) == {"stays", "comes"})
    assert relisted == [True]


@virtual
async def test_c12_a_lost_event_is_repaired_by_the_next_list() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.NODE, node("goes"))
        async with Background(make(kube, cache).run()):
            await until(lambda: api.watching == [Kind.NODE])
            api.remove(Kind.NODE, "", "goes", silent=True)
            await settled(2)
            assert names(cache) == {"goes"}
            api.compact()
            api.end_watches()
            await until(lambda: names(cache) == set())


@virtual
async def test_a_list_whose_token_expired_is_begun_anew() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        for number in range(4):
            api.put(Kind.NODE, node(f"n{number}"))
        api.fail(410, "Expired", path="/nodes", times=0)
        api.faults[-1].matches = lambda seen: "continue" in seen.query
        api.faults[-1].times = 2
        async with Background(make(kube, cache, page=2).run()):
            await until(lambda: "nodes" not in cache.unsynced)
        assert len(names(cache)) == 4


@virtual
async def test_d2_a_watch_that_is_cut_silently_is_noticed() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        reflector = make(kube, cache)
        async with Background(reflector.run()):
            await until(lambda: api.watching == [Kind.NODE])
            api.mute_watches()
            api.put(Kind.NODE, node("unheard"))
            cut = loop_time()
            await until(lambda: names(cache) == {"unheard"}, 200)
            assert loop_time() - cut < SILENCE_SECONDS + 5
        assert reflector.lists == 1


@virtual
async def test_says_when_it_last_heard_anything() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        reflector = make(kube, cache)
        assert reflector.heard is None
        async with Background(reflector.run()):
            await until(lambda: api.watching == [Kind.NODE])
            await settled(30)
            api.bookmark(Kind.NODE)
            await settled()
            assert loop_time() - (reflector.heard or 0) < 1


@pytest.mark.parametrize("status", [429, 500, 503, 403])
@virtual
async def test_an_error_leads_to_another_attempt(status: int) -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.NODE, node("n"))
        api.fail(status, path="/nodes", times=8)
        async with Background(make(kube, cache).run()):
            await until(lambda: names(cache) == {"n"}, 300)


@virtual
async def test_pauses_grow_up_to_a_limit_and_obey_the_server() -> None:
    cache, sleeps = Cache("adjoin-system"), Sleeps()
    async with FakeApi() as api, api.client() as kube:
        api.fail(503, path="/nodes", times=14)
        api.fail(429, path="/nodes", times=1, retry_after=77)
        async with Background(make(kube, cache, sleep=sleeps).run()):
            await until(lambda: "nodes" not in cache.unsynced, 2000)
    assert all(pause <= LONGEST_PAUSE for pause in sleeps.asked[:-1])
    assert sleeps.asked[0] < 0.3
    assert max(sleeps.asked[:-1]) > LONGEST_PAUSE / 2
    assert sleeps.asked[-1] == 77


@virtual
async def test_a_guard_that_is_not_served_is_asked_for_again_now_and_then() -> None:
    cache = Cache("adjoin-system")
    api = FakeApi(unserved={Kind.TAINT_RULE})
    async with api, api.client() as kube, Background(make(kube, cache, Kind.TAINT_RULE).run()):
        await until(lambda: "devicetaintrules" not in cache.unsynced)
        assert not cache.view(NOW).guard_served
        await settled(UNSERVED_PAUSE * 10)
        assert 8 <= len(api.requests) <= 14
        api.unserved.clear()
        await until(lambda: cache.view(NOW).guard_served, UNSERVED_PAUSE * 2)


@virtual
async def test_one_namespace_alone() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.CONFIG_MAP, {"metadata": {"namespace": "adjoin-system", "name": "topo"}, "data": {"a": "b"}})
        api.put(Kind.CONFIG_MAP, {"metadata": {"namespace": "other", "name": "topo"}})
        async with Background(make(kube, cache, Kind.CONFIG_MAP, namespace="adjoin-system").run()):
            await until(lambda: api.watching == [Kind.CONFIG_MAP])
            assert [facts.data for facts in cache.view(NOW).config_maps.values()] == [{"a": "b"}]
        assert {request.path for request in api.requests} == {"/api/v1/namespaces/adjoin-system/configmaps"}


@virtual
async def test_an_object_that_cannot_be_read_keeps_nobody_from_the_rest() -> None:
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.NODE, {"metadata": {"name": "broken"}, "spec": {"taints": "none"}})
        api.put(Kind.NODE, node("fine"))
        async with Background(make(kube, cache).run()):
            await until(lambda: api.watching == [Kind.NODE])
            assert names(cache) == {"fine"}
            api.put(Kind.NODE, {"metadata": {"name": "broken-too"}, "spec": {"taints": "none"}})
            api.put(Kind.NODE, node("later"))
            await until(lambda: "later" in names(cache))


@virtual
async def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    cache, sleeps = Cache("adjoin-system"), Sleeps()
    async with FakeApi() as api, api.client() as kube:
        async with Background(make(kube, cache, sleep=sleeps).run()):
            for _ in range(10):
                await until(lambda: api.watching == [Kind.NODE])
                api.end_watches()
                await until(lambda: api.watching == [])
        assert len(sleeps.asked) >= 9


def test_kinds_that_are_one_resource_have_names_of_their_own() -> None:
    """Tasks, metrics and health checks go by these names: of two with one name only the last would run."""
    names = [kind.value.kind for kind in Kind]
    assert len(set(names)) == len(names)


@virtual
async def test_what_no_watch_tells_the_end_of_is_forgotten_by_listing_again() -> None:
    """The writer met a ConfigMap of others under a name of ours; the watch, which selects by label, never hears of
    it."""
    cache = Cache("adjoin-system")
    async with FakeApi() as api, api.client() as kube:
        reflector = make(kube, cache, Kind.GRANT, labels="adjoin.dev/pod", renew=True)
        async with Background(reflector.run()):
            await until(lambda: api.watching == [Kind.CONFIG_MAP])
            meta = {"name": "adjoin-job-a-x", "namespace": "team", "uid": "foreign", "resourceVersion": "1"}
            cache.ingest(Kind.GRANT, {"metadata": meta})
            assert set(cache.view(NOW).grants) == {"foreign"}
            api.put(
                Kind.CONFIG_MAP, {"metadata": {"name": "other", "namespace": "team", "labels": {"adjoin.dev/pod": "p"}}}
            )
            await until(lambda: len(cache.view(NOW).grants) == 2)
            api.end_watches()
            await until(lambda: "foreign" not in cache.view(NOW).grants)
        assert len(cache.view(NOW).grants) == 1
