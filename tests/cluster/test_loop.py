"""The loop on a real API server: what is followed, who leads, what a write may do, and that it survives outages."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.controlplane import ApiFailure, ControlPlane, simulated_node
from tests.controlplane.components import API_SERVER, CONTROLLER_MANAGER
from tests.support import hardware
from tests.support.installation import ACCOUNT, NAMESPACE, Installation, installed
from tests.support.site import NEAR, Site, devices, pod
from tests.support.waiting import eventually

from adjoin.cache import Cache
from adjoin.handlers import WATCHED, Sweep
from adjoin.intents import FROM_PREVIOUS, Intent, Kind, Step, Verb
from adjoin.kube import Conflict, Gone, Invalid, Kube, Login, NotFound, WatchEvent
from adjoin.lease import LEASE_SECONDS, Elector, LeadershipLost
from adjoin.metrics import Metrics
from adjoin.reflector import Reflector
from adjoin.writer import Writer

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Fence:
    leading = True


def account(installation: Installation) -> Kube:
    """A client with the rights of the chart's ServiceAccount."""
    return Kube(Login(str(installation.plane.kubeconfig_for_service_account(NAMESPACE, ACCOUNT))))


async def comes(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Until `condition` holds, without blocking the loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def beside(*coroutines: Any) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Runs coroutines for as long as the block lasts."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def nodes(cache: Cache, prefix: str) -> set[str]:
    return {name for name in cache.view(time.time()).nodes if name.startswith(prefix)}


class TestFollowing:
    async def test_objects_come_in_parts_and_are_followed(self, installation: Installation, namespace: str) -> None:
        plane, cache = installation.plane, Cache(NAMESPACE)
        names = [f"{namespace}-{number}" for number in range(5)]
        for name in names:
            await _away(plane, "POST", "/api/v1/nodes", simulated_node(name))
        try:
            async with account(installation) as kube, beside(Reflector(kube, cache, Kind.NODE, page=2).run()):
                await comes(lambda: nodes(cache, namespace) == set(names))
                await _away(plane, "DELETE", f"/api/v1/nodes/{names[0]}")
                await comes(lambda: nodes(cache, namespace) == set(names[1:]))
                patch = {"metadata": {"labels": {"zone": "a"}}}
                await _away(plane, "PATCH", f"/api/v1/nodes/{names[1]}", patch)
                await comes(lambda: cache.view(0).nodes[names[1]].node.labels.get("zone") == "a")
        finally:
            for name in names[1:]:
                await _away(plane, "DELETE", f"/api/v1/nodes/{name}")

    async def test_what_kopf_watches_is_listed_with_the_rights_of_the_chart(self, installation: Installation) -> None:
        cache = Cache(NAMESPACE)
        async with account(installation) as kube:
            sweep = Sweep(kube, cache, Metrics(), interval=lambda: 1.0)
            async with beside(sweep.run()):
                await comes(lambda: sweep.done is not None)
                first = sweep.done or 0.0
                await comes(lambda: (sweep.done or 0.0) > first)
        unlisted = set(cache.unsynced) - {"pods of hooks"}
        assert not unlisted & {kind.value.plural for kind in WATCHED}

    async def test_metadata_lists_carry_versions_and_the_selector_holds(
        self, installation: Installation, namespace: str
    ) -> None:
        plane = installation.plane
        body = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        async with account(installation) as kube:
            everything = [page async for page in kube.pages(Kind.POD, metadata_only=True)]
            mine = [obj for page in everything for obj in page.items if obj["metadata"]["namespace"] == namespace]
            assert [obj["metadata"]["name"] for obj in mine] == ["plain"]
            assert "spec" not in mine[0]
            assert int(mine[0]["metadata"]["resourceVersion"]) > 0
            labelled = [page async for page in kube.pages(Kind.POD, labels="adjoin.dev/claim")]
            assert all(obj["metadata"]["namespace"] != namespace for page in labelled for obj in page.items)


class TestWriting:
    """What the preconditions of the writer really do."""

    @asynccontextmanager
    async def at_work(self, installation: Installation) -> AsyncIterator[tuple[Writer, Cache]]:
        cache = Cache(NAMESPACE)
        async with account(installation) as kube:
            writer = Writer(kube, cache, Fence(), Metrics())
            async with beside(writer.run()):
                yield writer, cache

    def claim(self, plane: ControlPlane, namespace: str, name: str = "adjoin-x") -> Obj:
        """A ResourceClaim: anybody's writes to it are the API server's business alone."""
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "finalizers": ["x.io/keep"]},
            "spec": {"devices": {"requests": [request]}},
        }
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        made: Obj = plane.request("POST", path, body)
        return made

    def step(self, obj: Obj, verb: Verb = Verb.PATCH, **changes: Any) -> Step:
        meta = obj["metadata"]
        values: dict[str, Any] = {
            "uid": meta["uid"],
            "version": int(meta["resourceVersion"]),
            "body": {"metadata": {"labels": {"a": "b"}}},
            **changes,
        }
        return Step(verb, Kind.RESOURCE_CLAIM, meta["namespace"], meta["name"], **values)

    async def test_a_stale_version_is_a_conflict(self, installation: Installation, namespace: str) -> None:
        obj = self.claim(installation.plane, namespace)
        async with self.at_work(installation) as (writer, _):
            await writer.perform(self.step(obj))
            with pytest.raises(Conflict):
                await writer.perform(self.step(obj, body={"metadata": {"labels": {"a": "c"}}}))
            status = self.step(obj, Verb.PATCH_STATUS, body={"status": {"allocation": None}})
            with pytest.raises(Conflict):
                await writer.perform(status)

    @pytest.mark.parametrize("verb", [Verb.PATCH, Verb.PATCH_STATUS, Verb.DELETE])
    async def test_another_uid_is_never_written_to(
        self, installation: Installation, namespace: str, verb: Verb
    ) -> None:
        obj = self.claim(installation.plane, namespace)
        body = {"status": {}} if verb is Verb.PATCH_STATUS else {}
        async with self.at_work(installation) as (writer, _):
            with pytest.raises((Conflict, Invalid)):
                await writer.perform(self.step(obj, verb, uid="00000000-0000-0000-0000-000000000000", body=body))
            path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/adjoin-x"
            assert await _away(installation.plane, "GET", path) == obj

    async def test_a_delete_waits_for_finalizers_of_others(self, installation: Installation, namespace: str) -> None:
        obj = self.claim(installation.plane, namespace)
        uid = obj["metadata"]["uid"]
        async with self.at_work(installation) as (writer, cache):
            cache.ingest(Kind.RESOURCE_CLAIM, obj)
            drop = self.step(obj, uid="", version=FROM_PREVIOUS, body={"metadata": {"finalizers": None}})
            writer.submit([Intent("s", "release", (self.step(obj, Verb.DELETE, body=None),))])
            await comes(lambda: not cache.view(0).busy)
            facts = cache.view(0).resource_claims[uid]
            assert facts.meta.deleting is not None
            assert facts.finalizers == ("x.io/keep",)
            label = self.step(obj, version=facts.meta.version, body={"metadata": {"labels": {"z": "z"}}})
            writer.submit([Intent("s", "release", (label, drop))])
            await comes(lambda: not cache.view(0).busy)
            path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/adjoin-x"
            with pytest.raises(ApiFailure):
                await _away(installation.plane, "GET", path)

    async def test_an_object_of_ours_is_created_and_allocated_in_two_steps(
        self, installation: Installation, namespace: str
    ) -> None:
        """With the rights of the chart: create, status and binding of ResourceClaims."""
        request = {"name": "gpu", "exactly": {"deviceClassName": "adjoin.dev"}}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": namespace, "name": "adjoin-y"},
            "spec": {"devices": {"requests": [request]}},
        }
        result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        allocation = {"devices": {"results": [result]}, "allocationTimestamp": moment}
        where = (Kind.RESOURCE_CLAIM, namespace, "adjoin-y")
        steps = (
            Step(Verb.CREATE, *where, body=body),
            Step(Verb.PATCH_STATUS, *where, version=FROM_PREVIOUS, body={"status": {"allocation": allocation}}),
        )
        async with self.at_work(installation) as (writer, cache):
            writer.submit([Intent("s", "deliver", steps)])
            await comes(lambda: not cache.view(0).busy)
            (facts,) = cache.view(0).resource_claims.values()
            assert facts.allocated
            assert [str(device) for device in facts.devices] == ["gpu.example.com/n/gpu-0"]

    async def test_absence_is_dated(self, installation: Installation, namespace: str) -> None:
        async with account(installation) as kube:
            found, version = await kube.find(Kind.POD, namespace, "nobody")
            assert found is None
            assert version > 0
            with pytest.raises(NotFound):
                await kube.get(Kind.DEVICE_CLAIM, namespace, "nobody")


class TestLeading:
    async def test_of_six_racers_one_leads_and_another_takes_over(self, installation: Installation) -> None:
        """With the rights of the chart. The Lease is the operator's own, which must not run meanwhile."""
        plane = installation.plane
        for operator in installation.operators:
            operator.kill()
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/adjoin"
        with suppress(ApiFailure):
            await _away(plane, "DELETE", path)
        async with account(installation) as kube:
            racers = [
                Elector(kube, namespace=NAMESPACE, name="adjoin", identity=f"racer-{number}") for number in range(6)
            ]
            tasks = [asyncio.create_task(racer.run()) for racer in racers]
            try:
                await comes(lambda: any(racer.leading for racer in racers))
                for _ in range(100):
                    assert sum(racer.leading for racer in racers) <= 1
                    await asyncio.sleep(0.05)
                leader = next(number for number, racer in enumerate(racers) if racer.leading)
                # It vanishes: the others wait until its Lease has run out before their eyes.
                tasks[leader].cancel()
                gone = time.monotonic()
                rest = [racer for number, racer in enumerate(racers) if number != leader]
                await comes(lambda: any(racer.leading for racer in rest))
                assert not racers[leader].leading
                assert time.monotonic() - gone < LEASE_SECONDS + 10
                # It ends in good order: the next one leads at once.
                second = next(racer for racer in rest if racer.leading)
                tasks[racers.index(second)].cancel()
                await second.release()
                released = time.monotonic()
                third = [racer for racer in rest if racer is not second]
                await comes(lambda: any(racer.leading for racer in third))
                assert time.monotonic() - released < 6
                spec = (await _away(plane, "GET", path))["spec"]
                assert spec["leaseTransitions"] == 2
                assert len(spec["renewTime"]) == len("2026-11-30T08:00:00.000000Z")
                # Somebody takes it by force: the leader notices with its next renewal.
                loser = next(racer for racer in third if racer.leading)
                await _away(plane, "PATCH", path, {"spec": {"holderIdentity": "thief"}})
                with pytest.raises(LeadershipLost):
                    await asyncio.wait_for(tasks[racers.index(loser)], 10)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        await _away(plane, "DELETE", path)

    def test_a_second_replica_is_ready_and_takes_over_when_asked_or_when_the_first_dies(
        self, adjoin: Installation
    ) -> None:
        first = next(operator for operator in adjoin.operators if operator.process.poll() is None)
        second = adjoin.start_operator()
        assert "adjoin_leader 1.0" in first.get("/metrics")[1]
        assert "adjoin_leader 0.0" in second.get("/metrics")[1]
        started = time.monotonic()
        assert first.stop() == 0
        assert time.monotonic() - started < 10
        eventually(lambda: second.get("/metrics")[1], lambda text: "adjoin_leader 1.0" in text, what="handover")
        assert time.monotonic() - started < 15
        second.kill()
        third = adjoin.start_operator()
        eventually(lambda: third.get("/metrics")[1], lambda text: "adjoin_leader 1.0" in text, what="takeover")

    def test_two_replicas_both_serve_admission_and_one_takes_over_within_the_contract(
        self, installation: Installation
    ) -> None:
        """Both answer reviews with the same certificate authority. The leader is killed: by what the Lease says, no
        more than 15 seconds lie between its last renewal and the other's acquisition; a claim that came in between is
        served."""
        plane = installation.plane
        for operator in installation.operators:
            operator.kill()
        first = installation.start_operator()
        second = installation.start_operator()
        # The Lease of an operator that was killed before has to run out first.
        ahead = eventually(
            lambda: ["adjoin_leader 1.0" in each.get("/metrics")[1] for each in (first, second)], any, what="a leader"
        )
        leader, follower = (first, second) if ahead[0] else (second, first)
        (configuration,) = plane.request("GET", WEBHOOKS)["items"]
        bundle = base64.b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"]).decode()
        for operator in (leader, follower):
            assert _mutated(operator.webhook_port, bundle), "the claim gets its finalizer from either"
        site = Site.open(plane, "takeover")
        site.machines(hardware.two_roots)
        site.pool()
        site.ask("before", {"gpu": 1})
        site.wait_phase("before", "Ready")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/adjoin"
        held = plane.request("GET", lease)["spec"]
        leader.kill()
        last = plane.request("GET", lease)["spec"]
        assert last["holderIdentity"] == held["holderIdentity"]
        taken = eventually(
            lambda: plane.request("GET", lease)["spec"],
            lambda spec: spec["holderIdentity"] not in ("", held["holderIdentity"]),
            what="takeover",
        )
        between = datetime.fromisoformat(taken["acquireTime"]) - datetime.fromisoformat(last["renewTime"])
        assert timedelta(0) < between <= timedelta(seconds=15)
        assert taken["leaseTransitions"] == last["leaseTransitions"] + 1
        installation.start_operator()
        site.ask("after", {"gpu": 1})
        site.wait_phase("after", "Ready")
        assert devices(site.claim("before")) != devices(site.claim("after"))
        site.close()


def _mutated(port: int, bundle: str) -> bool:
    """Whether the replica at that port puts our finalizer on a new claim, over TLS with the bundle's authority."""
    obj = {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceClaim", "metadata": {"name": "x", "namespace": "x"}}
    request = {"uid": "1", "operation": "CREATE", "namespace": "x", "object": {**obj, "spec": {}}}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
    context = ssl.create_default_context(cadata=bundle)
    context.check_hostname = False
    asked = urllib.request.Request(
        f"https://127.0.0.1:{port}/mutate-adjoin", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(asked, timeout=5, context=context) as answer:
        response = json.load(answer)["response"]
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return any("adjoin.dev/cleanup" in str(each.get("value")) for each in patch)


class Forgetful(Kube):
    """Its first watch begins too long ago."""

    asked = 0

    def watch(self, kind: Kind, version: str, **more: Any) -> AsyncGenerator[WatchEvent, None]:
        self.asked += 1
        return super().watch(kind, "1" if self.asked == 1 else version, **more)


class TestOutage:
    """With a control plane of its own: its API server is stopped."""

    async def test_a_version_of_before_is_gone_and_everything_is_listed_again(self) -> None:
        async with ControlPlane(name="gone") as plane:
            # Not needed here, and it ends by itself when the API server goes while it starts.
            await asyncio.to_thread(plane.stop_process, CONTROLLER_MANAGER)
            await asyncio.to_thread(plane.stop_process, API_SERVER)
            await asyncio.to_thread(plane.start_process, API_SERVER)
            cache = Cache(NAMESPACE)
            async with Forgetful(Login(str(plane.kubeconfig))) as kube:
                with pytest.raises(Gone):
                    async for _ in kube.watch(Kind.NODE, "1"):
                        pass
                kube.asked = 0
                reflector = Reflector(kube, cache, Kind.NODE)
                async with beside(reflector.run()):
                    await comes(lambda: reflector.lists == 2)
                    await _away(plane, "POST", "/api/v1/nodes", simulated_node("later"))
                    await comes(lambda: nodes(cache, "later") == {"later"})

    @pytest.mark.slow
    def test_the_api_server_goes_and_comes_back(self) -> None:
        with ControlPlane(name="outage") as plane, installed(plane) as made:
            operator = made.start_operator()
            site = Site.open(plane, "outage")
            site.machines(hardware.two_roots)
            site.pool()
            site.ask("before", {"gpu": 1})
            site.wait_phase("before", "Ready")
            plane.stop_process(API_SERVER)
            time.sleep(3)
            plane.start_process(API_SERVER)
            time.sleep(2)
            if operator.process.poll() is not None:
                # On a slow machine the outage outlasts the Lease; Kubernetes would start it again.
                operator = made.start_operator()
            site.delete("DeviceClaim", "before")
            site.wait_gone("DeviceClaim", "before")
            site.ask("after", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
            site.create(pod("after", "after"))
            site.wait_running("after")
            assert operator.process.poll() is None, operator.log.read_text()[-4000:]
            assert operator.get("/healthz")[0] == 200

    @pytest.mark.slow
    def test_an_outage_longer_than_the_lease_ends_the_leader_and_the_next_one_goes_on(self) -> None:
        with ControlPlane(name="outage") as plane, installed(plane) as made:
            operator = made.start_operator()
            plane.stop_process(API_SERVER)
            assert operator.process.wait(40) == 1
            plane.start_process(API_SERVER)
            made.start_operator()
            site = Site.open(plane, "outage")
            site.machines(hardware.two_roots)
            site.pool()
            site.ask("after", {"gpu": 1})
            site.wait_phase("after", "Ready")


class TestWatcher:
    def test_e5_kopf_sees_no_inconsistency_and_touches_nothing(self, site: Site) -> None:
        """Objects carry nothing of kopf's, and its log knows of no inconsistency."""
        site.machines(hardware.two_roots)
        site.pool()
        site.ask("pair", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
        site.create(pod("pair", "pair"))
        site.wait_running("pair")
        for kind, name in (("DeviceClaim", "pair"), ("Pod", "pair"), ("DevicePool", site.namespace)):
            assert "kopf" not in str(site.get(kind, name))

    def test_d4_the_last_of_many_edits_counts(self, site: Site) -> None:
        """Edits come faster than they can be acted on, with foreign writes to the same object in between."""
        site.machines(hardware.two_roots)
        site.pool()
        site.ask("many", {"gpu": 1}, replicas=1)
        for number in range(5):
            for replicas in (4, 2, 3, 1, 2 + number % 2):
                site.patch("DeviceClaim", "many", {"spec": {"replicas": replicas}})
                site.patch("DeviceClaim", "many", {"metadata": {"labels": {"touch": str(number)}}})

        def settled(claim: Obj) -> bool:
            status, wanted = claim.get("status", {}), claim["spec"]["replicas"]
            placed = (status.get("allocation") or {}).get("replicas") or []
            return (
                status.get("observedGeneration") == claim["metadata"]["generation"]
                and status.get("phase") == "Ready"
                and len(placed) == wanted
                and len(devices(claim)) == wanted
            )

        eventually(lambda: site.claim("many"), settled, what="status says what the last edit asked for")

    def test_e4_foreign_finalizers_stay(self, site: Site) -> None:
        """Also the one that kopf would take off under its default settings."""
        foreign = ["x.io/keep", "kopf.zalando.org/KopfFinalizerMarker"]
        site.machines(hardware.two_roots)
        site.pool()
        site.ask("pair", {"gpu": 1})
        site.wait_phase("pair", "Ready")
        claim = site.get("DeviceClaim", "pair")
        assert claim is not None
        site.patch("DeviceClaim", "pair", {"metadata": {"finalizers": [*claim["metadata"]["finalizers"], *foreign]}})
        site.patch("DeviceClaim", "pair", {"metadata": {"labels": {"touch": "1"}}})
        time.sleep(2)
        kept = (site.get("DeviceClaim", "pair") or {})["metadata"]["finalizers"]
        assert kept == ["adjoin.dev/cleanup", *foreign]
        site.delete("DeviceClaim", "pair")
        eventually(
            lambda: (site.get("DeviceClaim", "pair") or {}).get("metadata", {}).get("finalizers"),
            lambda seen: seen == foreign,
            what="only ours is taken off",
        )
        site.patch("DeviceClaim", "pair", {"metadata": {"finalizers": None}})


async def _away(plane: ControlPlane, method: str, path: str, body: Any = None) -> Any:
    """A blocking request of the administrator, off the loop."""
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return await asyncio.to_thread(plane.request, method, path, body, content_type=content)
