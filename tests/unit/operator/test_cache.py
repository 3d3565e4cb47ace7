"""The cache: newest wins, by UID, whatever the order; views never change; only settling ends an assumption."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import allocation, replica

from adjoin.cache import LINGER_SECONDS, READERS, REMEMBERED_ENDS, Cache
from adjoin.facts import ClaimFacts, PodFacts
from adjoin.holdings import read_placed
from adjoin.intents import Intent, Kind, Step, Verb

NOW = 1_000.0
Obj = dict[str, Any]


def meta(name: str, uid: str, version: int, **more: Any) -> Obj:
    return {"namespace": "team", "name": name, "uid": uid, "resourceVersion": str(version), "generation": 1, **more}


def claim(uid: str = "c1", version: int = 1, *, phase: str = "", count: int = 1, **more: Any) -> Obj:
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": meta("job", uid, version, **more),
        "spec": {"poolRef": {"name": "p"}, "requests": [{"name": "gpu", "device": "gpu", "count": count}]},
        **({"status": {"phase": phase}} if phase else {}),
    }


def pod(uid: str = "p1", version: int = 1, *, state: str = "running", phase: str = "Running", **more: Any) -> Obj:
    statuses = [{"name": "main", "state": {state: {}}}] if state else []
    return {
        "metadata": meta("worker", uid, version, labels={"adjoin.dev/claim": "job"}, **more),
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


def node(name: str = "n1", uid: str = "n-1", version: int = 1, **labels: str) -> Obj:
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": str(version), "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": str(version)}]},
    }


def intent(subject: str = "c1", phase: str | None = "Allocated") -> Intent:
    step = Step(Verb.PATCH_STATUS, Kind.DEVICE_CLAIM, "team", "job", subject, 1, {"status": {"phase": phase}})
    return Intent(subject, "allocate", (step,), None if phase is None else {"phase": phase})


class Notified:
    """Counts what the planner would be woken by."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1

    def since(self) -> int:
        count, self.count = self.count, 0
        return count


@pytest.fixture
def told() -> Notified:
    return Notified()


@pytest.fixture
def cache(told: Notified) -> Cache:
    return Cache("adjoin-system", told)


def phase_of(cache: Cache, uid: str = "c1") -> str | None:
    return cache.view(NOW).claims[uid].status.get("phase")


class TestNewestWins:
    def test_an_older_version_changes_nothing(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=5, phase="Ready"))
        assert not cache.ingest(Kind.DEVICE_CLAIM, claim(version=4, phase="Pending"))
        assert phase_of(cache) == "Ready"

    def test_an_echo_of_the_same_version_wakes_nobody(self, cache: Cache, told: Notified) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=5, phase="Ready"))
        told.since()
        assert not cache.ingest(Kind.DEVICE_CLAIM, claim(version=5, phase="Ready"))
        assert told.count == 0

    def test_versions_compare_as_numbers(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=9, phase="Pending"))
        assert cache.ingest(Kind.DEVICE_CLAIM, claim(version=10, phase="Ready"))

    def test_nothing_comes_back_after_its_end(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=5))
        assert cache.ingest_end(Kind.DEVICE_CLAIM, claim(version=8), NOW)
        assert not cache.ingest(Kind.DEVICE_CLAIM, claim(version=7))
        assert cache.view(NOW).claims == {}

    def test_an_end_that_was_overtaken_ends_nothing(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=9))
        assert not cache.forget(Kind.DEVICE_CLAIM, "c1", 8, NOW)
        assert "c1" in cache.view(NOW).claims

    def test_an_end_before_the_first_sight_counts(self, cache: Cache) -> None:
        assert not cache.ingest_end(Kind.DEVICE_CLAIM, claim(version=8), NOW)
        assert not cache.ingest(Kind.DEVICE_CLAIM, claim(version=7))
        assert cache.view(NOW).claims == {}

    def test_what_lost_its_label_and_got_it_back_is_seen_again(self, cache: Cache) -> None:
        cache.ingest(Kind.POD, pod(version=5))
        cache.ingest_end(Kind.POD, pod(version=6), NOW)
        assert cache.ingest(Kind.POD, pod(version=7))

    def test_c14_a_late_end_of_an_older_object_leaves_its_namesake(self, cache: Cache) -> None:
        cache.ingest(Kind.POD, pod("p-old", 5))
        cache.ingest(Kind.POD, pod("p-new", 7))
        cache.ingest_end(Kind.POD, pod("p-old", 9), NOW)
        cache.ingest_end(Kind.POD, pod("p-old", 9), NOW)
        assert set(cache.view(NOW).pods) == {"p-new"}

    def test_ends_are_remembered_within_bounds(self, cache: Cache) -> None:
        for number in range(REMEMBERED_ENDS + 10):
            cache.forget(Kind.POD, f"p{number}", 1, NOW)
        assert len(cache.ended(Kind.POD)) == REMEMBERED_ENDS
        assert "p0" not in cache.ended(Kind.POD)

    @pytest.mark.parametrize(
        ("first", "second"),
        [pytest.param(5, 7, id="in order"), pytest.param(7, 5, id="out of order")],
    )
    def test_two_nodes_of_one_name_show_the_newer(self, cache: Cache, first: int, second: int) -> None:
        for version in (first, second):
            cache.ingest(Kind.NODE, node(uid=f"n-{version}", version=version, made=str(version)))
        assert cache.view(NOW).nodes["n1"].meta.uid == "n-7"
        cache.ingest_end(Kind.NODE, node(uid="n-5", version=9), NOW)
        assert cache.view(NOW).nodes["n1"].meta.uid == "n-7"

    def test_a_name_means_the_newest_object_that_has_it(self, cache: Cache) -> None:
        cache.ingest(Kind.POD, pod("p-new", 7))
        cache.ingest(Kind.POD, pod("p-old", 5))
        found = cache.named(Kind.POD, "team", "worker")
        assert found is not None
        assert found.meta.uid == "p-new"
        cache.ingest_end(Kind.POD, pod("p-old", 9), NOW)
        assert cache.named(Kind.POD, "team", "worker") is found
        cache.ingest_end(Kind.POD, pod("p-new", 10), NOW)
        assert cache.named(Kind.POD, "team", "worker") is None


class TestNotification:
    def test_a_heartbeat_keeps_the_facts_and_wakes_nobody(self, cache: Cache, told: Notified) -> None:
        cache.ingest(Kind.NODE, node(version=1, zone="a"))
        before = cache.view(NOW).nodes
        told.since()
        assert not cache.ingest(Kind.NODE, node(version=2, zone="a"))
        assert told.count == 0
        assert cache.view(NOW).nodes is before

    def test_a_change_of_a_node_is_told(self, cache: Cache, told: Notified) -> None:
        cache.ingest(Kind.NODE, node(version=1, zone="a"))
        told.since()
        assert cache.ingest(Kind.NODE, node(version=2, zone="b"))
        assert told.count == 1

    def test_a_new_version_without_content_is_kept_for_preconditions(self, cache: Cache, told: Notified) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1, phase="Ready"))
        told.since()
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=2, phase="Ready", labels={"a": "b"}))
        assert told.count == 0
        assert cache.view(NOW).claims["c1"].meta.version == 2

    @pytest.mark.parametrize(
        "changed",
        [
            pytest.param(claim(version=2, phase="Ready"), id="its status"),
            pytest.param(claim(version=2, count=2, generation=2), id="its spec"),
            pytest.param(claim(version=2, finalizers=["x.io/keep"]), id="its finalizers"),
            pytest.param(claim(version=2, deletionTimestamp="2026-11-30T08:00:00Z"), id="its deletion"),
        ],
    )
    def test_a_change_of_a_claim_is_told(self, cache: Cache, told: Notified, changed: Obj) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        told.since()
        assert cache.ingest(Kind.DEVICE_CLAIM, changed)
        assert told.count == 1

    def test_a_pod_without_our_label_is_of_no_interest(self, cache: Cache, told: Notified) -> None:
        plain = pod()
        del plain["metadata"]["labels"]
        assert not cache.ingest(Kind.POD, plain)
        assert told.count == 0
        assert cache.view(NOW).pods == {}


class TestViews:
    def test_a_view_never_changes(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1, phase="Pending"))
        view = cache.view(NOW)
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=2, phase="Ready"))
        cache.ingest(Kind.DEVICE_CLAIM, claim("c2", 3))
        cache.assume(intent())
        assert view.claims["c1"].status["phase"] == "Pending"
        assert set(view.claims) == {"c1"}
        assert view.busy == frozenset()

    def test_only_what_changed_is_copied(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        cache.ingest(Kind.NODE, node())
        before = cache.view(NOW)
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=2, phase="Ready"))
        after = cache.view(NOW)
        assert after.nodes is before.nodes
        assert after.claims is not before.claims

    def test_a_view_cannot_be_written_to(self, cache: Cache) -> None:
        with pytest.raises(TypeError):
            cache.view(NOW).claims["x"] = None  # type: ignore[index]


class TestSynced:
    def test_synced_once_every_kind_was_listed(self, cache: Cache) -> None:
        kinds = [Kind.DEVICE_CLAIM, Kind.DEVICE_POOL, Kind.POD, Kind.RESOURCE_CLAIM]
        others = [Kind.RESOURCE_SLICE, Kind.NODE, Kind.TAINT_RULE, Kind.NAMESPACE, Kind.PRIORITY_CLASS]
        others += [Kind.JOB, Kind.HOOK_POD, Kind.GRANT]
        for kind in [*kinds, Kind.DEVICE_SHARE, *others]:
            cache.prune(kind, (), 1, NOW)
        assert not cache.synced
        assert cache.unsynced == ("configmaps",)
        cache.prune(Kind.CONFIG_MAP, (), 1, NOW)
        assert cache.synced

    def test_all_pods_of_the_cluster_are_only_wanted_once_a_claim_asks_for_host_resources(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        assert not cache.guests_wanted.is_set()
        assert not cache.view(NOW).guests_listed
        asking = claim("c2", 2)
        asking["spec"]["host"] = {"cpu": "4"}
        cache.ingest(Kind.DEVICE_CLAIM, asking)
        assert cache.guests_wanted.is_set()
        cache.prune(Kind.GUEST, (), 1, NOW)
        assert cache.view(NOW).guests_listed

    def test_a_guard_that_is_not_served_need_not_be_listed(self, cache: Cache) -> None:
        cache.serve_guard(False, NOW)
        assert "devicetaintrules" not in cache.unsynced
        assert not cache.view(NOW).guard_served
        cache.serve_guard(True, NOW)
        assert cache.view(NOW).guard_served

    def test_a_guard_that_is_served_must_be_listed(self, cache: Cache) -> None:
        cache.serve_guard(True, NOW)
        assert "devicetaintrules" in cache.unsynced

    def test_c12_a_list_forgets_what_was_deleted_unseen(self, cache: Cache) -> None:
        for uid in ("c1", "c2", "c3"):
            cache.ingest(Kind.DEVICE_CLAIM, claim(uid, 5))
        assert cache.prune(Kind.DEVICE_CLAIM, {"c2"}, 9, NOW) == 2
        assert set(cache.view(NOW).claims) == {"c2"}

    def test_a_list_leaves_what_is_newer_than_itself(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim("c1", 5))
        cache.ingest(Kind.DEVICE_CLAIM, claim("c2", 12))
        assert cache.prune(Kind.DEVICE_CLAIM, (), 9, NOW) == 1
        assert set(cache.view(NOW).claims) == {"c2"}

    def test_what_a_list_dropped_does_not_come_back_by_a_late_event(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim("c1", 5))
        cache.prune(Kind.DEVICE_CLAIM, (), 9, NOW)
        assert not cache.ingest(Kind.DEVICE_CLAIM, claim("c1", 6))


class TestUnreadable:
    def broken(self, version: int = 2) -> Obj:
        bad = claim(version=version, generation=2)
        bad["spec"]["requests"] = "gpu"
        bad["status"] = {"allocation": {"replicas": []}}
        return bad

    def test_a_holder_that_cannot_be_read_is_reported_until_it_can(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, self.broken())
        assert "DeviceClaim team/job" in cache.unreadable[0]
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=3))
        assert cache.unreadable == ()

    def test_a_holder_that_cannot_be_read_is_reported_until_it_is_gone(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, self.broken())
        cache.ingest_end(Kind.DEVICE_CLAIM, self.broken(4), NOW)
        assert cache.unreadable == ()
        cache.ingest(Kind.DEVICE_CLAIM, {**self.broken(), "metadata": meta("other", "c9", 2)})
        cache.prune(Kind.DEVICE_CLAIM, (), 9, NOW)
        assert cache.unreadable == ()

    def test_a_claim_that_was_read_before_stays_as_it_was(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1, phase="Ready"))
        cache.ingest(Kind.DEVICE_CLAIM, self.broken())
        cache.prune(Kind.DEVICE_CLAIM, {"c1"}, 9, NOW)
        assert cache.unreadable == ()
        assert phase_of(cache) == "Ready"

    def test_a_broken_object_that_holds_nothing_stops_nobody(self, cache: Cache) -> None:
        harmless = self.broken()
        del harmless["status"]
        assert not cache.ingest(Kind.DEVICE_CLAIM, harmless)
        assert cache.unreadable == ()
        assert cache.view(NOW).claims == {}


class TestAssumed:
    def test_an_assumed_status_counts_at_once(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        assert cache.assume(intent())
        assert phase_of(cache) == "Allocated"
        assert cache.view(NOW).busy == {"c1"}
        known = cache.known(Kind.DEVICE_CLAIM, "c1")
        assert isinstance(known, ClaimFacts)
        assert known.status == {}

    def test_a10_what_a_write_gives_back_is_its_claims_until_it_is_written(self, cache: Cache) -> None:
        """Another claim's write could be carried out before it: then both would name the device."""
        first, second = (
            replica(0, state="Ready"),
            replica(1, node="n2", state="Ready", devices=[("gpu", "d", "n2", "g")]),
        )
        stored = allocation(first, second)
        cache.ingest(Kind.DEVICE_CLAIM, {**claim(version=1), "status": stored})
        step = Step(Verb.PATCH_STATUS, Kind.DEVICE_CLAIM, "team", "job", "c1", 1, {"status": {}})
        left = {**allocation({**first, "state": "InUse"}), "phase": "Pending"}
        cache.assume(Intent("c1", "release", (step,), left))
        shown = {each.index: (each.state, each.node) for each in read_placed(cache.view(NOW).claims["c1"].status)}
        assert shown == {0: ("InUse", first["node"]), 1: ("Releasing", "n2")}
        assert phase_of(cache) == "Pending"
        cache.ingest(Kind.DEVICE_CLAIM, {**claim(version=2), "status": left})
        cache.settle("c1")
        assert [each.index for each in read_placed(cache.view(NOW).claims["c1"].status)] == [0]

    def test_a_busy_subject_takes_no_second_intent(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        cache.assume(intent())
        assert not cache.assume(intent(phase="Ready"))
        assert phase_of(cache) == "Allocated"

    def test_settling_shows_what_the_server_holds_and_wakes_the_planner(self, cache: Cache, told: Notified) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        cache.assume(intent())
        told.since()
        cache.settle("c1")
        assert phase_of(cache) is None
        assert cache.view(NOW).busy == frozenset()
        assert told.count == 1

    def test_what_changes_meanwhile_keeps_the_assumed_status(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        cache.assume(intent())
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=2, deletionTimestamp="2026-11-30T08:00:00Z"))
        shown = cache.view(NOW).claims["c1"]
        assert shown.status == {"phase": "Allocated"}
        assert shown.meta.deleting is not None

    def test_an_intent_that_assumes_nothing_only_makes_busy(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1, phase="Ready"))
        cache.assume(intent(phase=None))
        assert phase_of(cache) == "Ready"
        assert cache.view(NOW).busy == {"c1"}

    def test_a_claim_that_is_gone_shows_nothing(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        cache.assume(intent())
        cache.ingest_end(Kind.DEVICE_CLAIM, claim(version=3), NOW)
        assert cache.view(NOW).claims == {}
        assert cache.view(NOW).busy == {"c1"}

    def test_holding_back_shows_the_truth_but_stays_busy(self, cache: Cache) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        cache.assume(intent())
        cache.hold("c1")
        assert phase_of(cache) is None
        assert cache.view(NOW).busy == {"c1"}
        assert not cache.assume(intent())

    @pytest.mark.parametrize(
        ("changed", "ends"),
        [
            pytest.param(claim(version=2, count=2, generation=2), True, id="a new generation ends it"),
            pytest.param(claim(version=2, deletionTimestamp="2026-11-30T08:00:00Z"), True, id="deletion ends it"),
            pytest.param(claim(version=2, phase="Pending"), False, id="a status of ours does not"),
        ],
    )
    def test_waiting_out_a_refusal(self, cache: Cache, changed: Obj, ends: bool) -> None:
        cache.ingest(Kind.DEVICE_CLAIM, claim(version=1))
        cache.assume(intent())
        cache.hold("c1")
        cache.ingest(Kind.DEVICE_CLAIM, changed)
        assert ("c1" not in cache.view(NOW).busy) is ends


class TestLingering:
    @pytest.mark.parametrize(
        ("last", "lingers"),
        [
            pytest.param(pod(version=5), True, id="vanished while running"),
            pytest.param(pod(version=5, state="terminated"), False, id="all containers were seen terminated"),
            pytest.param(pod(version=5, state="waiting"), False, id="never started"),
            pytest.param(pod(version=5, phase="Succeeded"), False, id="ended"),
        ],
    )
    def test_a_pod_that_vanishes_holds_its_devices_for_a_while(self, cache: Cache, last: Obj, lingers: bool) -> None:
        cache.ingest(Kind.POD, pod(version=1))
        cache.ingest_end(Kind.POD, last, NOW)
        assert cache.view(NOW).pods == {}
        assert cache.view(NOW).lingering == ({"p1": NOW + LINGER_SECONDS} if lingers else {})
        assert list(cache.view(NOW).ghosts) == (["p1"] if lingers else [])
        assert cache.view(NOW + LINGER_SECONDS).lingering == {}
        assert cache.view(NOW + LINGER_SECONDS).ghosts == {}

    def test_c13_a_pod_that_terminates_slowly_is_still_there(self, cache: Cache) -> None:
        cache.ingest(Kind.POD, pod(version=1, deletionTimestamp="2026-11-30T08:00:00Z"))
        facts = cache.view(NOW).pods["p1"]
        assert isinstance(facts, PodFacts)
        assert facts.meta.deleting is not None
        assert facts.started

    def test_a_list_without_it_lets_it_linger_too(self, cache: Cache) -> None:
        cache.ingest(Kind.POD, pod(version=1))
        cache.prune(Kind.POD, (), 5, NOW)
        assert cache.view(NOW).lingering == {"p1": NOW + LINGER_SECONDS}


class TestBeginning:
    """What a process that has just begun takes for running."""

    def list_everything(self, cache: Cache, now: float = NOW) -> None:
        for kind in READERS:
            cache.prune(kind, cache.versions(kind).keys(), 100, now)

    def resource_claim(self, pod_uid: str = "p1") -> Obj:
        labels = {"adjoin.dev/claim": "job", "adjoin.dev/replica": "0", "adjoin.dev/pod": pod_uid}
        owner = {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceClaim", "name": "job", "uid": "c1"}
        return {"metadata": meta("adjoin-job-x", "rc1", 3, labels=labels, ownerReferences=[owner])}

    def test_a_pod_that_is_named_but_gone_lingers_from_the_first_complete_sight(self, cache: Cache) -> None:
        cache.ingest(Kind.RESOURCE_CLAIM, self.resource_claim())
        assert cache.view(NOW).lingering == {}
        self.list_everything(cache)
        assert cache.view(NOW).lingering == {"p1": NOW + LINGER_SECONDS}
        self.list_everything(cache, NOW + 20)
        assert cache.view(NOW + 20).lingering == {"p1": NOW + LINGER_SECONDS}, "once, not with every list"
        assert cache.view(NOW + LINGER_SECONDS).lingering == {}

    def test_a_replica_in_use_by_nobody_known_lingers_too(self, cache: Cache) -> None:
        used = claim(version=2)
        used["status"] = {"allocation": {"replicas": [{"index": 0, "node": "n1", "state": "InUse", "devices": []}]}}
        cache.ingest(Kind.DEVICE_CLAIM, used)
        self.list_everything(cache)
        view = cache.view(NOW)
        assert list(view.lingering.values()) == [NOW + LINGER_SECONDS]
        assert [(ghost.claim, ghost.node, ghost.replica) for ghost in view.ghosts.values()] == [("job", "n1", 0)]
        later = cache.view(NOW + LINGER_SECONDS)
        assert (later.lingering, later.ghosts) == ({}, {})

    @pytest.mark.parametrize("state", ["running", "terminated"])
    def test_a_pod_that_was_seen_to_go_is_judged_by_how_it_went(self, cache: Cache, state: str) -> None:
        cache.ingest(Kind.RESOURCE_CLAIM, self.resource_claim())
        cache.ingest(Kind.POD, pod(version=4))
        cache.ingest_end(Kind.POD, pod(version=5, state=state), NOW - 5)
        self.list_everything(cache)
        assert cache.view(NOW).lingering == ({"p1": NOW + LINGER_SECONDS - 5} if state == "running" else {})

    def test_a_pod_whose_traces_come_before_itself_does_not_linger(self, cache: Cache) -> None:
        cache.ingest(Kind.RESOURCE_CLAIM, self.resource_claim())
        self.list_everything(cache)
        cache.ingest(Kind.POD, pod(version=101))
        assert cache.view(NOW).lingering == {}

    def test_what_comes_later_is_seen_as_it_goes(self, cache: Cache) -> None:
        self.list_everything(cache)
        cache.ingest(Kind.RESOURCE_CLAIM, self.resource_claim())
        assert cache.view(NOW).lingering == {}
