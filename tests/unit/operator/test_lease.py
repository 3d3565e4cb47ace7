"""The elector: at most one leads, nobody leads longer than others can know, and who lost stops."""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.support.clock import Background, loop_time, settled, until, virtual
from tests.support.fakeapi import FakeApi, Request

from adjoin.intents import Kind
from adjoin.kube import Kube
from adjoin.lease import DEADLINE_SECONDS, LEASE_SECONDS, Elector, LeadershipLost, micro_time


def elector(kube: Kube, identity: str = "a", **more: Any) -> Elector:
    return Elector(
        kube, namespace="adjoin-system", name="adjoin", identity=identity, clock=loop_time, rng=random.Random(1), **more
    )


def spec(api: FakeApi) -> dict[str, Any]:
    return dict(api.get(Kind.LEASE, "adjoin-system", "adjoin")["spec"])


def held(by: str, seconds: int = 15, transitions: int = 3) -> dict[str, Any]:
    moment = "2026-11-30T08:00:00.000000Z"
    return {
        "metadata": {"namespace": "adjoin-system", "name": "adjoin"},
        "spec": {
            "holderIdentity": by,
            "leaseDurationSeconds": seconds,
            "acquireTime": moment,
            "renewTime": moment,
            "leaseTransitions": transitions,
        },
    }


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(datetime(2026, 11, 30, 8, 0, tzinfo=UTC), id="no microseconds"),
        pytest.param(datetime(2026, 11, 30, 9, 0, tzinfo=timezone(timedelta(hours=1))), id="another zone"),
    ],
)
def test_times_are_utc_with_microseconds(moment: datetime) -> None:
    assert micro_time(moment) == "2026-11-30T08:00:00.000000Z"


@virtual
async def test_the_first_makes_the_lease() -> None:
    changes: list[bool] = []
    async with FakeApi() as api, api.client() as kube:
        one = elector(kube, on_change=lambda: changes.append(True))
        assert not one.leading
        async with Background(one.run()):
            await until(lambda: one.leading)
        made = spec(api)
    assert made["holderIdentity"] == "a"
    assert made["leaseDurationSeconds"] == LEASE_SECONDS
    assert made["leaseTransitions"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", made["renewTime"])
    assert changes == [True]


@virtual
async def test_a_leader_renews_without_reading() -> None:
    async with FakeApi() as api, api.client() as kube:
        one = elector(kube)
        async with Background(one.run()):
            await until(lambda: one.leading)
            before = len(api.calls("GET"))
            await settled(20)
            assert one.leading
            assert len(api.calls("GET")) == before
            assert 8 <= len(api.calls("PUT")) <= 12
            assert spec(api)["leaseTransitions"] == 0


@virtual
async def test_another_takes_over_only_after_the_lease_ran_out_before_its_own_eyes() -> None:
    async with FakeApi() as api, api.client() as kube:
        # Renewed "now" or years ago by a clock that is not ours: it does not matter.
        api.put(Kind.LEASE, held("dead"))
        one = elector(kube)
        started = loop_time()
        async with Background(one.run()):
            await until(lambda: one.leading)
            assert LEASE_SECONDS <= loop_time() - started < LEASE_SECONDS + 5
            assert spec(api)["leaseTransitions"] == 4


@virtual
async def test_a_lease_that_was_given_up_is_taken_at_once() -> None:
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.LEASE, held(""))
        one = elector(kube)
        started = loop_time()
        async with Background(one.run()):
            await until(lambda: one.leading)
            assert loop_time() - started < 1


@virtual
async def test_the_same_replica_started_again_need_not_wait() -> None:
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.LEASE, held("a"))
        one = elector(kube)
        started = loop_time()
        async with Background(one.run()):
            await until(lambda: one.leading)
            assert loop_time() - started < 1
            assert spec(api)["leaseTransitions"] == 3


@virtual
async def test_of_several_racers_one_leads() -> None:
    async with FakeApi() as api, api.client() as kube:
        racers = [
            elector(
                kube,
                f"racer-{number}",
            )
            for number in range(6)
        ]
        async with Background(*(one.run() for one in racers)):
            for _ in range(200):
                await settled(0.25)
                assert sum(one.leading for one in racers) <= 1
            assert sum(one.leading for one in racers) == 1


@virtual
async def test_leadership_is_never_believed_longer_than_others_wait() -> None:
    async with FakeApi() as api, api.client() as kube:
        old, new = elector(kube, "old"), elector(kube, "new")
        overlap: list[float] = []
        async with asyncio.TaskGroup() as group:

            async def watch() -> None:
                while not new.leading:
                    await asyncio.sleep(0.05)
                    if old.leading and new.leading:
                        overlap.append(loop_time())

            first = group.create_task(_swallow(old))
            await until(lambda: old.leading)
            second = group.create_task(_swallow(new))
            # From here on every renewal of the old one hangs; the new one's requests pass.
            api.hang(times=100)
            api.faults[-1].matches = _renewal_of_old
            await group.create_task(watch())
            first.cancel()
            second.cancel()
        assert overlap == []


def _renewal_of_old(seen: Request) -> bool:
    return seen.method == "PUT" and bool(seen.body["spec"]["holderIdentity"] == "old")


async def _swallow(one: Elector) -> None:
    with suppress(LeadershipLost):
        await one.run()


@pytest.mark.parametrize("trouble", ["refused", "hang", "503", "429", "403"])
@virtual
async def test_who_cannot_renew_in_time_stops(trouble: str) -> None:
    async with FakeApi() as api, api.client() as kube:
        one = elector(kube)
        task = asyncio.create_task(one.run())
        await until(lambda: one.leading)
        cut = loop_time()
        if trouble == "refused":
            await api.stop()
        elif trouble == "hang":
            api.hang(path="/leases", times=1000)
        else:
            api.fail(int(trouble), path="/leases", times=1000)
        assert one.deadline - cut <= DEADLINE_SECONDS
        with pytest.raises(LeadershipLost, match="not renewed for 9 s"):
            await task
        assert not one.leading
        assert loop_time() - cut <= LEASE_SECONDS + 1


@pytest.mark.parametrize("trouble", ["503", "drop", "drop after writing", "hang after writing"])
@virtual
async def test_a_passing_trouble_costs_no_leadership(trouble: str) -> None:
    async with FakeApi() as api, api.client() as kube:
        one = elector(kube)
        async with Background(one.run()):
            await until(lambda: one.leading)
            await settled(5)
            match trouble:
                case "503":
                    api.fail(503, path="/leases", times=2)
                case "drop":
                    api.drop(method="PUT", times=2)
                case "drop after writing":
                    api.drop(method="PUT", afterwards=True)
                case "hang after writing":
                    api.hang(method="PUT", afterwards=True)
            for _ in range(120):
                await settled(0.25)
                assert one.leading


@virtual
async def test_who_lost_the_lease_to_another_stops_at_once() -> None:
    async with FakeApi() as api, api.client() as kube:
        one = elector(kube)
        task = asyncio.create_task(one.run())
        await until(lambda: one.leading)
        api.put(Kind.LEASE, held("thief"))
        with pytest.raises(LeadershipLost, match="thief"):
            await task
        assert not one.leading
        assert spec(api)["holderIdentity"] == "thief"


@virtual
async def test_a_clean_end_gives_the_lease_back() -> None:
    async with FakeApi() as api, api.client() as kube:
        old, new = elector(kube, "old"), elector(kube, "new")
        async with Background(old.run()):
            await until(lambda: old.leading)
        async with Background(new.run()):
            await settled(1)
            await old.release()
            assert not old.leading
            released = loop_time()
            await until(lambda: new.leading)
            assert loop_time() - released < 3
            assert spec(api)["leaseTransitions"] == 1


@virtual
async def test_giving_back_what_another_holds_changes_nothing() -> None:
    async with FakeApi() as api, api.client() as kube:
        one = elector(kube)
        async with Background(one.run()):
            await until(lambda: one.leading)
        api.put(Kind.LEASE, held("thief"))
        await one.release()
        assert spec(api)["holderIdentity"] == "thief"


@virtual
async def test_a_renewal_that_was_under_way_does_not_keep_the_lease() -> None:
    async with FakeApi() as api, api.client() as kube:
        one = elector(kube)
        async with Background(one.run()):
            await until(lambda: one.leading)
        # The renewal reached the server, its answer did not reach us.
        api.put(Kind.LEASE, {**api.get(Kind.LEASE, "adjoin-system", "adjoin")})
        await one.release()
        assert spec(api)["holderIdentity"] == ""
