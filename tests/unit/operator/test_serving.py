"""What is served: health tells the truth, and the certificate is shared, renewed and trusted without a gap."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.support.clock import Background, loop_time, until, virtual
from tests.support.fakeapi import FakeApi

from adjoin.cache import Cache
from adjoin.certificates import Bundle, renew
from adjoin.intents import Kind
from adjoin.kube import Conflict, Forbidden, Kube
from adjoin.metrics import Metrics
from adjoin.serving import SECRET, Files, Keeper, Server, status_app
from adjoin.writer import NotLeading, Writer

START = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
HOSTS = ("adjoin-webhook.adjoin-system.svc",)
SYSTEM = "adjoin-system"


class Fence:
    def __init__(self, leading: bool) -> None:
        self.leading = leading


@dataclass
class Replica:
    keeper: Keeper
    fence: Fence
    metrics: Metrics


def replica(kube: Kube, *, leading: bool = True, life: timedelta = timedelta(days=90)) -> Replica:
    fence, metrics = Fence(leading), Metrics()
    writer = Writer(kube, Cache(SYSTEM), fence, metrics)
    keeper = Keeper(
        kube,
        writer,
        metrics,
        namespace=SYSTEM,
        hosts=HOSTS,
        configuration="adjoin",
        serving_life=life,
        authority_life=life * 40,
        wall=lambda: START + timedelta(seconds=loop_time() - 1000),
    )
    return Replica(keeper, fence, metrics)


@asynccontextmanager
async def server() -> AsyncIterator[tuple[FakeApi, Kube]]:
    async with FakeApi() as api, api.client() as kube:
        for kind in (Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK):
            hooks = [{"name": f"{name}.adjoin.dev", "clientConfig": {"url": "https://x/y"}} for name in ("a", "b")]
            api.put(kind, {"metadata": {"name": "adjoin"}, "webhooks": hooks})
        yield api, kube


def stored(api: FakeApi) -> Bundle:
    bundle = Bundle.from_data(api.get(Kind.SECRET, SYSTEM, SECRET)["data"])
    assert bundle is not None
    return bundle


def trusted(api: FakeApi) -> set[str]:
    return {
        hook["clientConfig"].get("caBundle", "")
        for kind in (Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK)
        for hook in api.get(kind, "", "adjoin")["webhooks"]
    }


class TestKeeper:
    @virtual
    async def test_the_first_replica_makes_the_bundle_and_the_trust(self) -> None:
        async with server() as (api, kube):
            one = replica(kube)
            await one.keeper.turn()
            assert one.keeper.tls is not None
            assert one.keeper.trusted
            assert trusted(api) == {base64.b64encode(stored(api).authorities).decode()}
            assert all(hook["clientConfig"]["url"] for hook in api.get(Kind.MUTATING_WEBHOOK, "", "adjoin")["webhooks"])

    @virtual
    async def test_a_second_look_writes_nothing(self) -> None:
        async with server() as (api, kube):
            one = replica(kube)
            await one.keeper.turn()
            before = len(api.writes)
            for _ in range(5):
                await one.keeper.turn()
            assert len(api.writes) == before

    @virtual
    async def test_two_replicas_that_start_at_once_share_one_bundle(self) -> None:
        async with server() as (api, kube):
            one, two = replica(kube), replica(kube, leading=False)
            await asyncio.gather(one.keeper.turn(), two.keeper.turn())
            assert len([call for call in api.calls("POST") if call.path.endswith("/secrets")]) <= 2
            assert one.keeper._installed == two.keeper._installed == stored(api)

    @virtual
    async def test_a_follower_can_serve_before_anybody_leads_but_trust_waits_for_the_leader(self) -> None:
        async with server() as (api, kube):
            two = replica(kube, leading=False)
            await two.keeper.turn()
            assert two.keeper.tls is not None
            assert two.keeper.trusted is False
            assert trusted(api) == {""}
            await replica(kube).keeper.turn()
            await two.keeper.turn()
            assert two.keeper.trusted

    @virtual
    async def test_an_empty_secret_of_the_chart_is_filled_by_the_leader(self) -> None:
        async with server() as (api, kube):
            api.put(Kind.SECRET, {"metadata": {"namespace": SYSTEM, "name": SECRET}})
            with pytest.raises(NotLeading):
                await replica(kube, leading=False).keeper.turn()
            await replica(kube).keeper.turn()
            assert stored(api)

    @virtual
    async def test_g6_a_certificate_of_five_minutes_is_renewed_and_reloaded_by_all(self) -> None:
        async with server() as (api, kube):
            life = timedelta(minutes=5)
            one, two = replica(kube, life=life), replica(kube, leading=False, life=life)
            async with Background(one.keeper.run(), two.keeper.run()):
                await until(lambda: bool(two.keeper.trusted))
                context, first = two.keeper.tls, stored(api)
                for _ in range(60):
                    await asyncio.sleep(60)
                    moment = START + timedelta(seconds=loop_time() - 1000)
                    for each in (one, two):
                        assert each.keeper._installed is not None
                        assert each.keeper._installed.serving.not_valid_after_utc > moment
                assert stored(api).serving.serial_number != first.serving.serial_number
                assert two.keeper.tls is context, "renewed in place: connections and listeners stay"
                assert one.metrics.certificate_expiry._value.get() > loop_time()

    @virtual
    async def test_a_renewal_that_somebody_else_made_first_is_taken_over(self) -> None:
        async with server() as (api, kube):
            one = replica(kube, life=timedelta(hours=1))
            await one.keeper.turn()
            other = renew(stored(api), stored(api).due, HOSTS)
            await asyncio.sleep((stored(api).due - START).total_seconds() + 10)
            api.fail(409, "Conflict", method="PATCH", path="/secrets")
            with pytest.raises(Conflict):
                await one.keeper.turn()
            api.put(Kind.SECRET, {**api.get(Kind.SECRET, SYSTEM, SECRET), "data": dict(other.to_data())})
            await one.keeper.turn()
            assert one.keeper._installed == other

    @virtual
    async def test_a_configuration_that_was_reset_is_filled_again(self) -> None:
        async with server() as (api, kube):
            one = replica(kube)
            await one.keeper.turn()
            api.put(
                Kind.MUTATING_WEBHOOK, {"metadata": {"name": "adjoin"}, "webhooks": [{"name": "n", "clientConfig": {}}]}
            )
            async with Background(one.keeper.run()):
                await until(lambda: "" not in trusted(api), 200)

    @virtual
    async def test_a_missing_configuration_is_no_trust(self) -> None:
        async with server() as (api, kube):
            api.remove(Kind.VALIDATING_WEBHOOK, "", "adjoin")
            one = replica(kube)
            await one.keeper.turn()
            assert one.keeper.trusted is False

    @virtual
    async def test_a_right_that_is_missing_is_asked_for_again(self) -> None:
        async with server() as (api, kube):
            one = replica(kube)
            api.fail(403, "Forbidden", path="/secrets", times=3)
            with pytest.raises(Forbidden):
                await one.keeper.turn()
            async with Background(one.keeper.run()):
                await until(lambda: bool(one.keeper.trusted))


class TestFiles:
    def write(self, folder: Path, bundle: Bundle) -> None:
        (folder / "tls.crt").write_bytes(bundle.certificate)
        (folder / "tls.key").write_bytes(bundle.key)

    def test_files_of_somebody_else_are_served_and_reloaded(self, tmp_path: Path) -> None:
        self.write(tmp_path, renew(None, START, HOSTS))
        files = Files(tmp_path)
        files.turn()
        context = files.tls
        assert context is not None
        self.write(tmp_path, renew(None, START, HOSTS))
        files.turn()
        assert files.tls is context

    @virtual
    async def test_files_that_come_late_are_waited_for(self, tmp_path: Path) -> None:
        files = Files(tmp_path)
        with pytest.raises(OSError, match="No such file"):
            files.turn()
        async with Background(files.run()):
            await asyncio.sleep(5)
            assert files.tls is None
            self.write(tmp_path, renew(None, START, HOSTS))
            await until(lambda: files.tls is not None)


class TestStatus:
    async def get(self, port: int, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    @virtual
    async def test_health_and_readiness_are_told_apart(self) -> None:
        ill: dict[str, str | None] = {"watch": None, "cache": "not listed yet"}
        app = status_app({"watch": lambda: ill["watch"]}, {"cache": lambda: ill["cache"]}, Metrics().text)
        status = Server(app, "127.0.0.1", 0)
        await status.open()
        try:
            assert await self.get(status.port, "/healthz") == (200, "ok\n")
            assert await self.get(status.port, "/readyz") == (503, "cache: not listed yet\n")
            ill.update(cache=None, watch="nothing heard for 400 s")
            assert await self.get(status.port, "/healthz") == (503, "watch: nothing heard for 400 s\n")
            assert (await self.get(status.port, "/readyz"))[0] == 503
            ill.update(watch=None)
            assert await self.get(status.port, "/readyz") == (200, "ok\n")
            code, text = await self.get(status.port, "/metrics")
            assert code == 200
            assert "adjoin_writer_queue 0.0" in text
        finally:
            await status.close()

    @virtual
    async def test_closing_does_not_wait_for_open_connections(self) -> None:
        async def slow(_: web.Request) -> web.Response:
            await asyncio.sleep(3600)
            return web.Response()

        app = web.Application()
        app.add_routes([web.get("/slow", slow)])
        status = Server(app, "127.0.0.1", 0)
        await status.open()
        async with aiohttp.ClientSession() as session:
            request = asyncio.create_task(_get(session, f"http://127.0.0.1:{status.port}/slow"))
            await asyncio.sleep(0.1)
            started = loop_time()
            await status.close()
            assert loop_time() - started < 2
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)


async def _get(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as answer:
        return answer.status


def claim(uid: str, phase: str, *codes: str) -> dict[str, Any]:
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"namespace": "team", "name": uid, "uid": uid, "resourceVersion": "1", "generation": 1},
        "spec": {"poolRef": {"name": "p"}, "requests": [{"name": "gpu", "device": "gpu", "count": 1}]},
        "status": {"phase": phase, "reasons": [{"code": code} for code in codes]},
    }


def test_e15_the_series_of_an_object_end_with_it() -> None:
    cache, metrics = Cache(SYSTEM), Metrics()
    metrics.follow(cache, lambda: 0.0)
    cache.ingest(Kind.DEVICE_CLAIM, claim("c1", "Pending", "InsufficientDevices", "Fragmented"))
    cache.ingest(Kind.DEVICE_CLAIM, claim("c2", "Ready"))
    pool = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": "training", "uid": "p1", "resourceVersion": "1", "generation": 1},
        "spec": {
            "devices": [{"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.nvidia.com"}}}]
        },
        "status": {"devices": {"gpu": {"capacity": 8, "free": 7}}, "fragmentation": {"gpu": 0.25}},
    }
    cache.ingest(Kind.DEVICE_POOL, pool)
    text = metrics.text().decode()
    for line in (
        'adjoin_claims{phase="Pending"} 1.0',
        'adjoin_claims{phase="Ready"} 1.0',
        'adjoin_claims_waiting{reason="Fragmented"} 1.0',
        'adjoin_pool_devices{device="gpu",pool="training",state="free"} 7.0',
        'adjoin_pool_fragmentation{device="gpu",pool="training"} 0.25',
    ):
        assert line in text
    cache.forget(Kind.DEVICE_CLAIM, "c1", 5, 0.0)
    cache.forget(Kind.DEVICE_POOL, "p1", 5, 0.0)
    text = metrics.text().decode()
    assert "Pending" not in text
    assert "Fragmented" not in text
    assert "training" not in text


def test_parts_of_shares_are_told_at_the_scrape_and_end_with_the_share() -> None:
    """As the status counts them; nothing of a share that counts none."""
    cache, metrics = Cache(SYSTEM), Metrics()
    metrics.follow(cache, lambda: 0.0)
    for name, status in (("half", {"units": 4, "free": 1}), ("full", {"units": 2}), ("new", {})):
        share = {
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "generation": 1},
            "spec": {"poolRef": {"name": "p"}, "device": "gpu", "mode": "TimeSliced", "timeSliced": {"slots": 4}},
            "status": status,
        }
        cache.ingest(Kind.DEVICE_SHARE, share)
    labels = 'mode="TimeSliced",pool="p",share="half"'
    text = metrics.text().decode()
    assert f"adjoin_share_units{{{labels}}} 4.0" in text
    assert f"adjoin_share_free{{{labels}}} 1.0" in text
    assert 'adjoin_share_free{mode="TimeSliced",pool="p",share="full"} 0.0' in text
    assert 'share="new"' not in text
    cache.forget(Kind.DEVICE_SHARE, "half", 5, 0.0)
    assert 'share="half"' not in metrics.text().decode()


def test_operations_md_lists_exactly_the_metrics_that_there_are() -> None:
    """Counters under the name that is scraped."""
    metrics = Metrics()
    metrics.follow(Cache(SYSTEM), lambda: 0.0)
    served = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in metrics.registry.collect()
    }
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `adjoin_")]
    listed = [name for row in rows for name in re.findall(r"adjoin_[a-z_]+", row)]
    assert sorted(listed) == sorted(served)
