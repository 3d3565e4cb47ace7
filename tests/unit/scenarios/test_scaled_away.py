"""Replicas that their claims do not want any more: what is said of their devices until they are back, by `plan` and by
the operator alike."""

from __future__ import annotations

from typing import Any

from tests.support.objects import allocation, deviceclaim, devicepool, node, replica
from tests.support.planning import plan_objects
from tests.support.world import World

from adjoin.decision import Decider
from adjoin.intents import Kind

Obj = dict[str, Any]
COUNTS = ("free", "allocated", "releasing")


def pool(cards: int = 2) -> Obj:
    listed = [{"name": f"gpu-{at}", "attributes": {"uuid": f"GPU-{at}"}} for at in range(cards)]
    source = {"static": {"nodes": [{"name": "n1", "devices": listed}]}}
    delivery = {"mode": "Environment", "guard": "None"}
    return devicepool("training", devices=[{"name": "gpu", "type": "GPU", "source": source}], delivery=delivery)


def placed(cards: int = 2) -> Obj:
    """The status of a claim with as many replicas as there are cards."""
    return allocation(*(replica(at, devices=[("gpu", "adjoin.dev", "n1", f"gpu-{at}")]) for at in range(cards)))


def objects(*, wanted: int) -> list[Obj]:
    shrunk = deviceclaim("shrunk", requests={"gpu": 1}, replicas=wanted, status=placed())
    return [pool(), node("n1"), shrunk, deviceclaim("waits", requests={"gpu": 1})]


def test_what_was_scaled_away_is_releasing_and_those_who_wait_for_it_are_told() -> None:
    ran = plan_objects(objects(wanted=1))
    assert [each["state"] for each in ran.claims["shrunk"]["replicas"]] == ["Ready", "Releasing"]
    assert [ran.counts("training", "gpu")[name] for name in COUNTS] == [0, 1, 1]
    assert ran.codes("waits")[0] == "DeviceReleasing"


def test_the_operator_says_the_same_in_the_decision_that_sees_the_edit() -> None:
    world = World()
    world.add(*objects(wanted=2))
    world.settle(Decider)
    world.change(Kind.DEVICE_CLAIM, "shrunk", {"spec": {"replicas": 1}})
    decision = Decider().decide(world.view(), world.now)
    counts = decision.plan.pools["training"].counts["gpu"]
    assert (counts.free, counts.allocated, counts.releasing) == (0, 1, 1)
    (waits,) = (claim.uid for claim in decision.snapshot.claims if claim.name == "waits")
    assert decision.plan.claims[waits].reasons[0].code == "DeviceReleasing"


def test_of_a_claim_that_follows_its_pods_replicas_beyond_the_least_are_releasing() -> None:
    following = deviceclaim("shrunk", requests={"gpu": 1}, status=placed())
    following["spec"]["scaling"] = {"mode": "FollowPods", "minReplicas": 1, "maxReplicas": 2}
    ran = plan_objects([pool(), node("n1"), following])
    assert sorted(each["state"] for each in ran.claims["shrunk"]["replicas"]) == ["Ready", "Releasing"]
    assert [ran.counts("training", "gpu")[name] for name in COUNTS] == [0, 1, 1]
