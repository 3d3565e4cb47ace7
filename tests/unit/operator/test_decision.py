"""Whole decisions on a small cluster: what is written, in which order, from every place where the operator may die."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.objects import (
    deviceclaim,
    pod,
)
from tests.support.small import cluster
from tests.support.world import Crash, World

from adjoin.decision import Decider, turn
from adjoin.intents import Intent, Kind, Step, Verb

CLAIM = (Verb.PATCH_STATUS, Kind.DEVICE_CLAIM)
TIME = re.compile(r"(?<='eventTime': )'[^']+'|(?<='lastTransitionTime': )'[^']+'")


def requests(world: World) -> list[tuple[Verb, Kind]]:
    """What was asked of the API server, the pool's status aside."""
    return [(step.verb, step.kind) for step in world.writes if step.kind is not Kind.DEVICE_POOL]


def phase(world: World, name: str = "job-a") -> str | None:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    return None if claim is None else (claim.get("status") or {}).get("phase")


def test_a_claim_with_a_waiting_pod_costs_two_status_writes_one_resourceclaim_one_pod_patch_and_one_event() -> None:
    world = cluster()
    world.add(deviceclaim(), pod())
    world.settle(Decider)
    assert requests(world) == [
        CLAIM,
        (Verb.CREATE, Kind.RESOURCE_CLAIM),
        (Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM),
        (Verb.PATCH, Kind.POD),
        (Verb.CREATE, Kind.EVENT),
        CLAIM,
    ]
    assert phase(world) == "InUse"


def test_placing_and_handing_over_is_one_intent_that_begins_with_the_status() -> None:
    world = cluster()
    world.add(deviceclaim(), pod())
    decision = Decider().decide(world.view(), world.now)
    (intent,) = [intent for intent in decision.intents if intent.why == "place"]
    assert [(step.verb, step.kind) for step in intent.steps] == [
        CLAIM,
        (Verb.CREATE, Kind.RESOURCE_CLAIM),
        (Verb.PATCH_STATUS, Kind.RESOURCE_CLAIM),
        (Verb.PATCH, Kind.POD),
        (Verb.CREATE, Kind.EVENT),
    ]
    assert intent.assume is not None
    assert intent.assume["phase"] == "Ready"


def test_what_is_in_the_writers_hands_is_left_alone() -> None:
    world = cluster()
    world.add(deviceclaim(), pod())
    view = world.view(busy=["claim-team-job-a", "pool-training"])
    assert Decider().decide(view, world.now).intents == ()


def test_what_was_withheld_from_a_busy_subject_is_wanted_again_when_it_is_free() -> None:
    """An eviction that a budget forbids waits with its pod; nothing else changes until that is over."""
    world = cluster()
    world.add(deviceclaim(), pod())
    world.settle(Decider)
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"replicas": 0}})
    decider = Decider()
    intents = {each.why: each for each in decider.decide(world.view(), world.now).intents}
    assert set(intents) == {"release", "evict", "show pool"}, "the pool shows at once what is on its way back"
    world.carry_out([intents["release"]])
    assert decider.decide(world.view(busy=["pod-team-worker", "pool-training"]), world.now).intents == ()
    (again,) = decider.decide(world.view(busy=["pool-training"]), world.now).intents
    assert again.subject == "pod-team-worker"


def test_an_eviction_that_is_refused_is_told_once() -> None:
    world = cluster()
    world.add(deviceclaim(), pod())
    world.settle(Decider)
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"replicas": 0}})
    decider = Decider()
    world.carry_out(decider.decide(world.view(), world.now).intents[:1])
    for _ in range(3):
        view = replace(world.view(busy=["pod-team-worker"]), refused=frozenset({"pod-team-worker"}))
        world.carry_out(decider.decide(view, world.now).intents)
    told = [event for event in world.all(Kind.EVENT) if event["reason"] == "EvictionRefused"]
    assert [event["regarding"]["name"] for event in told] == ["job-a"]
    assert "pod worker has to give its devices back" in told[0]["note"]


def test_a_settled_cluster_is_not_written_to() -> None:
    world = cluster(nodes=2)
    world.add(deviceclaim(), pod(), deviceclaim("waits", requests={"gpu": 3}), pod("w", claim="waits", token="w" * 10))
    world.settle(Decider)
    world.writes.clear()
    for _ in range(30):
        world.now += 7.0
        decision = Decider().decide(world.view(), world.now)
        assert decision.intents == ()


def test_a_fresh_process_decides_as_one_that_ran_all_the_time() -> None:
    world = cluster(nodes=2)
    old = Decider()
    for number in range(4):
        world.add(deviceclaim(f"c{number}"), pod(f"p{number}", claim=f"c{number}", token=f"{number}" * 10))
        for _ in range(3):
            view = world.view()
            one, other = old.decide(view, world.now), Decider().decide(view, world.now)
            assert _plain(one.intents) == _plain(other.intents)
            assert one.wake_at == other.wake_at
            world.carry_out(one.intents)
            world.kubernetes()


def _plain(intents: tuple[Intent, ...]) -> list[str]:
    """As text. Words carry the time at which they were first wanted, which a fresh process takes to be now."""
    return [TIME.sub("(then)", str(intent)) if intent.words else str(intent) for intent in intents]


def start(world: World) -> None:
    """A claim of two ResourceClaims, and one of two replicas."""
    world.add(
        deviceclaim("a", requests={"gpu": 2, "nic": 1}),
        pod("a-0", claim="a", token="a" * 10, resource_claims=2),
        deviceclaim("b", requests={"gpu": 1}, replicas=2),
        pod("b-0", claim="b", token="b" * 10),
        pod("b-1", claim="b", token="c" * 10),
    )


def finish_one(world: World) -> None:
    """Pods end while others wait for their replicas."""
    world.add(deviceclaim("a"), pod("a-0", claim="a", token="a" * 10))
    world.settle(Decider)
    world.add(pod("a-1", claim="a", token="b" * 10))
    world.finish("a-0")


def delete_claims(world: World) -> None:
    """Claims are deleted while pods run and others wait."""
    world.add(
        deviceclaim("a"),
        pod("a-0", claim="a", token="a" * 10),
        deviceclaim("b"),
        pod("b-0", claim="b", token="b" * 10),
        pod("b-1", claim="b", token="c" * 10),
    )
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "a")
    world.delete(Kind.DEVICE_CLAIM, "b")
    world.add(deviceclaim("next", requests={"gpu": 2}), pod("next-0", claim="next", token="e" * 10))


def recreate(world: World) -> None:
    """A claim is deleted and made again under its name while its pod runs."""
    world.add(deviceclaim("a"), pod("a-0", claim="a", token="a" * 10))
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "a")
    world.add(pod("a-1", claim="a", token="b" * 10))
    world.settle(Decider)
    world.add(deviceclaim("a", uid="claim-second"))


def shrink(world: World) -> None:
    """A claim of three replicas is scaled to one, and another wants what comes free."""
    world.add(
        deviceclaim("a", replicas=3),
        *(pod(f"a-{i}", claim="a", token=str(i) * 10, replica=i) for i in range(3)),
    )
    world.settle(Decider)
    world.change(Kind.DEVICE_CLAIM, "a", {"spec": {"replicas": 1}})
    world.add(deviceclaim("b", requests={"gpu": 2}), pod("b-0", claim="b", token="b" * 10))


def drop_namespace(world: World) -> None:
    """Everything of a namespace is deleted at once."""
    start(world)
    world.settle(Decider)
    for kind in (Kind.POD, Kind.DEVICE_CLAIM, Kind.RESOURCE_CLAIM):
        for obj in world.all(kind):
            world.delete(kind, obj["metadata"]["name"])


def clear_allocation(world: World) -> None:
    """Somebody clears an allocation while its pod waits for the scheduler."""
    world.add(deviceclaim("a"), pod("a-0", claim="a", token="a" * 10))
    decision = Decider().decide(world.view(), world.now)
    world.carry_out(decision.intents)
    patch = {"status": {"allocation": None, "reservedFor": None}}
    world.change(Kind.RESOURCE_CLAIM, "adjoin-a-aaaaaaaaaa", patch)


def delete_resource_claim(world: World) -> None:
    """A user deletes the ResourceClaim of a pod that is still at its gate, and that of one that runs."""
    world.add(deviceclaim("a"), pod("a-0", claim="a", token="a" * 10))
    world.settle(Decider)
    world.delete(Kind.RESOURCE_CLAIM, "adjoin-a-aaaaaaaaaa")
    world.add(deviceclaim("b"), pod("b-0", claim="b", token="b" * 10))
    decision = Decider().decide(world.view(), world.now)
    world.refuse = lambda step: "Forbidden" if step.kind is Kind.POD else None
    world.carry_out(decision.intents)
    world.refuse = lambda step: None
    world.delete(Kind.RESOURCE_CLAIM, "adjoin-b-bbbbbbbbbb")


def delete_pods(world: World) -> None:
    """Pods are deleted, one of them by force while it runs; others take their place."""
    world.add(
        deviceclaim("a"),
        pod("a-0", claim="a", token="a" * 10),
        deviceclaim("b"),
        pod("b-0", claim="b", token="b" * 10),
    )
    world.settle(Decider)
    world.delete(Kind.POD, "a-0")
    world.delete(Kind.POD, "b-0", force=True)
    world.add(pod("a-1", claim="a", token="c" * 10), pod("b-1", claim="b", token="d" * 10))


SCENES = {
    "claims appear with their pods": start,
    "pods end while others wait": finish_one,
    "claims are deleted": delete_claims,
    "a claim is made again under its name": recreate,
    "a claim is scaled down": shrink,
    "a namespace is deleted": drop_namespace,
    "an allocation is cleared": clear_allocation,
    "ResourceClaims are deleted": delete_resource_claim,
    "pods are deleted": delete_pods,
}


@pytest.mark.parametrize("guarded", [True, False], ids=["behind the guard", "without guard"])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_from_a_crash_after_any_request_the_end_is_the_same_and_no_device_is_in_two_hands(
    scene: Callable[[World], None], guarded: bool
) -> None:
    ends = {}
    for requests_before in (None, *range(40)):
        world = cluster(nodes=2, guarded=guarded, gpus=3, nics=2, split="Driver")
        scene(world)
        world.writes.clear()
        world.crash_after(requests_before)
        world.settle(Decider)
        ends[requests_before] = _end(world)
        if requests_before is not None and requests_before > len(world.writes):
            break
    assert set(map(str, ends.values())) == {str(ends[None])}, ends


def _end(world: World) -> dict[str, object]:
    """What is left in the end, but for times and names that depend on the way there."""
    claims = {
        claim["metadata"]["name"]: (
            claim["status"]["phase"],
            [
                (replica["index"], replica["state"], replica["node"], [d["device"] for d in replica["devices"]])
                for replica in (claim["status"].get("allocation") or {}).get("replicas") or ()
            ],
        )
        for claim in world.all(Kind.DEVICE_CLAIM)
    }
    pods = {
        obj["metadata"]["name"]: (obj["status"]["phase"], obj["spec"].get("nodeName")) for obj in world.all(Kind.POD)
    }
    resource_claims = {
        obj["metadata"]["name"]: bool((obj.get("status") or {}).get("allocation"))
        for obj in world.all(Kind.RESOURCE_CLAIM)
    }
    return {"claims": claims, "pods": pods, "resource claims": resource_claims}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_refused_writes_are_tried_again_until_the_end_is_the_same(scene: Callable[[World], None]) -> None:
    calm = cluster(nodes=2, gpus=3, nics=2, split="Driver")
    scene(calm)
    calm.settle(Decider)
    stormy = cluster(nodes=2, gpus=3, nics=2, split="Driver")
    scene(stormy)
    counted = iter(range(10_000))

    def every_third(step: Step) -> str | None:
        return "Conflict" if step.kind is not Kind.EVENT and next(counted) % 3 == 1 else None

    stormy.refuse = every_third
    stormy.settle(Decider, rounds=120)
    assert _end(stormy) == _end(calm)


def test_numbers_of_waiting_claims_are_written_in_turns() -> None:
    due = [second for second in range(40) if turn("claim-team-job-a", 10.0, 1_000_000.0 + second)[0]]
    assert len(due) == 12
    for now in (1_000_000.0, 1_000_003.4, 1_000_007.9):
        _, next_turn = turn("claim-team-job-a", 10.0, now)
        assert now < next_turn <= now + 10.01
        assert turn("claim-team-job-a", 10.0, next_turn)[0]


class Churn:
    """Users who create, end, delete and scale at random while the operator dies, its watches lag and its writes are
    refused."""

    def __init__(self, seed: int, guarded: bool) -> None:
        self.rng = random.Random(seed)
        self.world = cluster(nodes=3, guarded=guarded, gpus=2, nics=1)
        self.world.lagging = True
        self.number = 0

    def act(self) -> None:
        """One thing that a user does."""
        world, rng = self.world, self.rng
        claims = [claim for claim in world.all(Kind.DEVICE_CLAIM) if not claim["metadata"].get("deletionTimestamp")]
        pods = world.all(Kind.POD)
        self.number += 1
        match rng.randrange(10):
            case 0 | 1 if len(claims) < 5:
                wish = rng.choice([{"gpu": 1}, {"gpu": 2}, {"gpu": 1, "nic": 1}])
                name = f"c{rng.randrange(4)}"
                if world.get(Kind.DEVICE_CLAIM, name) is None:
                    replicas = rng.choice([None, None, 2])
                    world.add(deviceclaim(name, requests=wish, replicas=replicas, uid=f"claim-{self.number}"))
            case 2 | 3 | 4:
                claim = f"c{rng.randrange(4)}"
                name = f"p{self.number}"
                world.add(pod(name, claim=claim, token=f"{self.number:010d}"))
            case 5 if pods:
                world.delete(Kind.POD, rng.choice(pods)["metadata"]["name"], force=rng.random() < 0.3)
            case 6:
                running = [obj for obj in pods if obj["status"]["phase"] == "Running"]
                if running:
                    world.finish(rng.choice(running)["metadata"]["name"], phase=rng.choice(["Succeeded", "Failed"]))
            case 7 if claims:
                world.delete(Kind.DEVICE_CLAIM, rng.choice(claims)["metadata"]["name"])
            case 8 if claims:
                name = rng.choice(claims)["metadata"]["name"]
                world.change(Kind.DEVICE_CLAIM, name, {"spec": {"replicas": rng.randrange(3)}})
            case 9:
                resource_claims = world.all(Kind.RESOURCE_CLAIM)
                if resource_claims:
                    world.delete(Kind.RESOURCE_CLAIM, rng.choice(resource_claims)["metadata"]["name"])

    def run(self, steps: int) -> None:
        """So many turns of users, watches, operator and Kubernetes, each verified."""
        world, rng = self.world, self.rng
        decider = Decider()
        for _ in range(steps):
            for _ in range(rng.randrange(3)):
                self.act()
            world.catch_up(lambda: rng.random() < 0.6)
            subjects = [obj["metadata"]["uid"] for kind in (Kind.DEVICE_CLAIM, Kind.POD) for obj in world.all(kind)]
            view = world.view(busy=[uid for uid in subjects if rng.random() < 0.2])
            decision = decider.decide(view, world.now)
            assert _plain(Decider().decide(view, world.now).intents) == _plain(decision.intents)
            if rng.random() < 0.15:
                world.crash_after(rng.randrange(6))
            world.refuse = lambda step: "Conflict" if rng.random() < 0.05 and step.kind is not Kind.EVENT else None
            try:
                world.carry_out(decision.intents)
            except Crash:
                decider = Decider()
                world.catch_up()
            world.crash_after(None)
            world.verify()
            if rng.random() < 0.7:
                world.kubernetes()
            world.verify()
            world.now += rng.choice([0.0, 1.0, 5.0])
        world.refuse = lambda step: None


@pytest.mark.parametrize("guarded", [True, False], ids=["behind the guard", "without guard"])
@pytest.mark.parametrize("seed", range(6))
def test_a10_in_any_churn_no_device_is_in_two_hands_and_nothing_is_left_behind(seed: int, guarded: bool) -> None:
    churn = Churn(seed, guarded)
    churn.run(120)
    world = churn.world
    world.settle(Decider, rounds=200)
    for kind in (Kind.POD, Kind.DEVICE_CLAIM):
        for obj in world.all(kind):
            world.delete(kind, obj["metadata"]["name"])
    world.settle(Decider, rounds=200)
    left = [
        (kind, name) for kind, _, name in world.objects if kind in (Kind.POD, Kind.DEVICE_CLAIM, Kind.RESOURCE_CLAIM)
    ]
    assert left == []
    pool = world.get(Kind.DEVICE_POOL, "training")
    assert pool is not None
    assert pool["status"]["summary"] == "gpu 6/6, nic 3/3"


def test_a_suspended_claim_gives_back_what_it_has_and_waits() -> None:
    world = cluster()
    world.add(deviceclaim(), pod())
    world.settle(Decider)
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"suspend": True}})
    release, evict, _ = Decider().decide(world.view(), world.now).intents
    assert [step.verb for step in evict.steps] == [Verb.EVICT]
    world.carry_out([release])
    assert phase(world) == "Releasing"
    world.settle(Decider)
    claim = world.get(Kind.DEVICE_CLAIM, "job-a")
    assert claim is not None
    assert phase(world) == "Pending"
    assert [reason["code"] for reason in claim["status"]["reasons"]] == ["Suspended"]
    assert "allocation" not in claim["status"]
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"suspend": False}})
    world.settle(Decider)
    assert phase(world) == "Ready"


def test_a_claim_whose_runtime_is_over_is_released_until_its_spec_changes() -> None:
    world = cluster()
    asked = deviceclaim()
    asked["spec"]["maxRuntime"] = "1h"
    world.add(asked, pod())
    for _ in range(4):
        world.carry_out(Decider().decide(world.view(), world.now).intents)
        world.kubernetes()
    assert phase(world) == "InUse"
    decision = Decider().decide(world.view(), world.now)
    assert decision.wake_at is not None
    assert 0 < decision.wake_at - world.now <= 3600
    world.settle(Decider)
    assert world.now >= 3600
    claim = world.get(Kind.DEVICE_CLAIM, "job-a")
    assert claim is not None
    assert phase(world) == "Released"
    assert "allocation" not in claim["status"]
    assert "reasons" not in claim["status"]
    (condition,) = [each for each in claim["status"]["conditions"] if each["type"] == "Released"]
    assert (condition["status"], condition["reason"]) == ("True", "MaxRuntime")
    world.now += 600
    world.settle(Decider)
    assert phase(world) == "Released"
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"maxRuntime": None}})
    world.settle(Decider)
    assert phase(world) == "Ready"


def test_a_pools_status_says_what_its_tenants_hold_and_borrow() -> None:
    world = cluster(gpus=4)
    tenants = [
        {"name": "research", "namespaces": ["team"], "quota": {"gpu": 1}, "borrowing": {"gpu": 2}},
        {"name": "product", "namespaces": ["other"], "quota": {"gpu": 3}},
    ]
    world.change(Kind.DEVICE_POOL, "training", {"spec": {"tenancy": {"tenants": tenants}}}, namespace="")
    world.add(deviceclaim(requests={"gpu": 3}))
    world.settle(Decider)
    pool = world.get(Kind.DEVICE_POOL, "training")
    assert pool is not None
    assert pool["status"]["tenants"] == [
        {"name": "research", "used": {"gpu": 3}, "borrowed": {"gpu": 2}},
        {"name": "product"},
    ]
