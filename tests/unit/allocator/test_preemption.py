"""Who has to go: the smallest legal set, proven against every other set, and never for nothing."""

from __future__ import annotations

import random

import pytest
from tests.support import checks, make, tenants

from adjoin_allocator import (
    Claim,
    ClaimUID,
    Code,
    Eviction,
    Memo,
    Plan,
    Pool,
    Reclaim,
    ReplicaState,
    Scope,
    Snapshot,
    plan,
)

NOW = make.NOW
AGO = NOW - 3600


def planned(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    answer = plan(snapshot, NOW, memo)
    checks.assert_valid(snapshot, answer, NOW)
    return answer


def gone(answer: Plan) -> dict[str, tuple[int, ...]]:
    """By name who loses which replicas."""
    return {one.uid.removeprefix("uid-"): one.replicas for one in answer.preempted}


def low(name: str, devices: list[object], **more: object) -> Claim:
    return make.holding(name, devices, **{"created": AGO, "ready_at": AGO, **more})  # type: ignore[arg-type]


def pool(**more: object) -> Pool:
    return make.pool(**{"preemption": make.evicting(), **more})


# Random cases against every set


def tenanted(rng: random.Random, **more: object) -> Snapshot:
    """A small pool in which everything that decides about victims is drawn, and one claim of one replica waits."""
    nodes = [f"node-{at}" for at in range(rng.choice((1, 1, 2, 2)))]
    devices = []
    for node in nodes:
        size = rng.choice((2, 3, 3))
        devices += [make.device(f"gpu-{at}", node, root=f"r{at // 2}") for at in range(size)]
        devices += [make.device(f"nic-{at}", node, root=f"r{at // 2}") for at in range(rng.choice((0, 0, 2)))]
    names = ("one", "two", "")
    free = list(devices)
    rng.shuffle(free)
    claims: list[Claim] = []
    for number in range(rng.choice((2, 3, 4, 5, 6))):
        claim = _holder(rng, free, f"held-{number}", rng.choice(names))
        if claim is not None:
            claims.append(claim)
    asked = [make.request("gpu", rng.choice((1, 1, 2, 3)))]
    if rng.random() < 0.3:
        asked.append(make.request("nic", 1))
    lines = [make.required(Scope.PCIE_ROOT, "gpu")] if rng.random() < 0.3 else []
    waiting = make.claim("waits", *asked, *lines, priority=rng.choice((1, 2, 2)), tenant=rng.choice(names), **more)
    limited = {}
    for name in names[:2]:
        quota = {"gpu": rng.choice((0, 1, 2, 3, 3, 9))} if rng.random() < 0.8 else {}
        if rng.random() < 0.2:
            quota["nic"] = rng.choice((0, 1))
        limited[name] = make.tenant(name, borrowing=rng.choice((0, 0, 2)), **quota)
    rules = make.evicting(
        rng.random() < 0.9, rng.choice((Reclaim.NEVER, Reclaim.LOWER_PRIORITY, Reclaim.ANY, Reclaim.ANY)), 60.0
    )
    one = pool(tenants=limited if rng.random() < 0.8 else {}, preemption=rules)
    return make.snapshot(devices, [*claims, waiting], pools=[one])


def _holder(rng: random.Random, free: list[object], name: str, tenant: str) -> Claim | None:
    members = rng.choice((1, 1, 1, 2, 3))
    placed = []
    for index in range(members):
        if not free:
            break
        first = free.pop()
        same = [one for one in free if one.node == first.node][: rng.choice((0, 0, 1))]  # type: ignore[attr-defined]
        for one in same:
            free.remove(one)
        by_kind: dict[str, list[object]] = {}
        for one in (first, *same):
            by_kind.setdefault(one.kind, []).append(one)  # type: ignore[attr-defined]
        state = rng.choice((ReplicaState.READY,) * 5 + (ReplicaState.RELEASING,))
        ready = rng.choice((AGO, AGO, AGO, NOW - 10, None))
        placed.append(make.placed(by_kind, index, state=state, ready_at=ready))  # type: ignore[arg-type]
    if not placed:
        return None
    # Who was sent away long ago and is still there would count as stuck.
    at = NOW - 20 if any(one.state is ReplicaState.RELEASING for one in placed) else rng.choice((NOW - 20, NOW - 700))
    again = (Eviction(ClaimUID("uid-waits"), at),) if rng.random() < 0.1 else ()
    return make.claim(
        name,
        make.request("gpu", 1),
        replicas=len(placed),
        placed=tuple(placed),
        tenant=tenant,
        priority=rng.choice((0, 0, 1, 2)),
        created=rng.choice((AGO, AGO + 1, AGO + 2, None)),
        gang_min=rng.choice((None, None, len(placed), max(1, len(placed) - 1))),
        preemptible=rng.random() < 0.9,
        evictions=again,
    )


@pytest.mark.parametrize("seed", range(400))
def test_victims_are_the_best_of_all_sets(seed: int) -> None:
    snapshot = tenanted(random.Random(seed))
    (waiting,) = (claim for claim in snapshot.claims if not claim.placed)
    answer = planned(snapshot)
    one = answer.claims[waiting.uid]
    if one.placements:
        assert not answer.preempted
        return
    came = tenants.fits_without(snapshot, waiting, [], NOW)
    best = None if came else tenants.smallest(snapshot, waiting, NOW)
    victims = tenants.victims_of(snapshot, answer.preempted)
    assert (tenants.key_of(victims) if victims else None) == best
    if victims:
        assert one.reasons[0].code is Code.DEVICE_RELEASING
        assert [nomination.index for nomination in one.nominated] == [0]


@pytest.mark.parametrize("seed", range(400, 600))
def test_victims_of_a_gang_are_the_best_of_all_sets(seed: int) -> None:
    """Two members, both or none; victims may be on several nodes."""
    snapshot = tenanted(random.Random(seed), replicas=2, gang_min=2)
    (waiting,) = (claim for claim in snapshot.claims if not claim.placed)
    answer = planned(snapshot)
    one = answer.claims[waiting.uid]
    if one.placements:
        assert not answer.preempted
        return
    came = tenants.fits_without(snapshot, waiting, [], NOW)
    best = None if came else tenants.smallest(snapshot, waiting, NOW)
    victims = tenants.victims_of(snapshot, answer.preempted)
    assert (tenants.key_of(victims) if victims else None) == best
    if victims:
        assert len(one.nominated) == 2


def test_the_cases_reach_every_rule() -> None:
    """The generator is no use if it never evicts, or only ever one claim."""
    seen = [planned(tenanted(random.Random(seed))) for seed in range(400)]
    assert sum(bool(answer.preempted) for answer in seen) > 30
    assert sum(len(answer.preempted) > 1 for answer in seen) > 2
    assert (
        sum(any(r.code is Code.QUOTA_EXCEEDED for c in answer.claims.values() for r in c.reasons) for answer in seen)
        > 20
    )
