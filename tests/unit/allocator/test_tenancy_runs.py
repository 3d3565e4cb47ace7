"""Decision after decision on one cluster: victims leave, promises are kept, and everything comes to rest."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from tests.support import checks, make

from adjoin_allocator import (
    Aging,
    Claim,
    ClaimUID,
    Device,
    Eviction,
    Memo,
    Objective,
    PlacedReplica,
    Plan,
    Pool,
    Reclaim,
    ReplicaState,
    Snapshot,
    plan,
)

AGO = make.NOW - 3600


@dataclass
class Cluster:
    """What the API server would hold, and what carries out plans: at once, but for victims, which take a while."""

    devices: list[Device]
    pool: Pool
    claims: list[Claim]
    now: float = make.NOW
    evictions: Counter[tuple[ClaimUID, ClaimUID]] = field(default_factory=Counter)
    memo: Memo = field(default_factory=Memo)

    def snapshot(self) -> Snapshot:
        return make.snapshot(self.devices, self.claims, pools=[self.pool])

    def decide(self) -> Plan:
        """One decision, the same with and without what is remembered, and for any order of the input."""
        snapshot = self.snapshot()
        answer = plan(snapshot, self.now, self.memo)
        checks.assert_valid(snapshot, answer, self.now)
        assert plan(replace(snapshot, claims=snapshot.claims[::-1]), self.now).claims == answer.claims
        return answer

    def carry_out(self, answer: Plan) -> None:
        claims = []
        for claim in self.claims:
            one = answer.claims.get(claim.uid)
            nominated = () if one is None else one.nominated
            new = () if one is None else one.placements
            placed = tuple(old for old in claim.placed if old.index not in {p.index for p in new})
            placed += tuple(
                PlacedReplica(p.index, p.node, ReplicaState.READY, p.devices, ready_at=self.now) for p in new
            )
            evictions = tuple(each for each in claim.evictions if self.now - each.at < 600)
            for gone in (each for each in answer.preempted if each.uid == claim.uid):
                self.evictions[claim.uid, gone.by] += 1
                evictions = (*evictions, Eviction(gone.by, self.now))
                placed = tuple(
                    replace(old, state=ReplicaState.RELEASING, releasing_since=self.now)
                    if old.index in gone.replicas
                    else old
                    for old in placed
                )
            claims.append(replace(claim, placed=placed, nominated=nominated, evictions=evictions))
        self.claims = claims

    def leave(self, rng: random.Random) -> None:
        """Some of those who are leaving have left."""
        self.claims = [
            replace(
                claim,
                placed=tuple(
                    one for one in claim.placed if one.state is not ReplicaState.RELEASING or rng.random() < 0.4
                ),
            )
            for claim in self.claims
        ]

    @property
    def leaving(self) -> bool:
        return any(one.state is ReplicaState.RELEASING for claim in self.claims for one in claim.placed)


def cluster(rng: random.Random) -> Cluster:
    devices = [one for at in range(rng.choice((1, 2, 3))) for one in make.flat(f"node-{at}", rng.choice((2, 4)))]
    names = ("one", "two", "three")
    limits = {
        name: make.tenant(name, gpu=rng.choice((0, 1, 2, 4, 8)), borrowing=rng.choice((0, 2, 8))) for name in names[:2]
    }
    pool = make.pool(
        tenants=limits if rng.random() < 0.8 else {},
        preemption=make.evicting(rng.random() < 0.8, rng.choice(tuple(Reclaim)), rng.choice((0.0, 0.0, 30.0))),
        hold_after=rng.choice((None, 0.0, 60.0)),
        objective=rng.choice((Objective.IN_ORDER, Objective.IN_ORDER, Objective.THROUGHPUT)),
        aging=rng.choice((None, Aging(every=1.0, step=5))),
    )
    return Cluster(devices, pool, [])


def arrival(rng: random.Random, number: int, now: float) -> Claim:
    return make.claim(
        f"c{number}",
        make.request("gpu", rng.choice((1, 1, 2, 2, 4))),
        replicas=rng.choice((1, 1, 1, 2)),
        priority=rng.choice((0, 0, 1, 2)),
        tenant=rng.choice(("one", "two", "three")),
        created=now,
        preemptible=rng.random() < 0.9,
        max_runtime=rng.choice((None, None, 30.0)),
    )


@pytest.mark.parametrize("seed", range(60))
def test_every_run_comes_to_rest(seed: int) -> None:
    """Whatever arrives and leaves: nobody is evicted twice for the same claim, and when nothing arrives any more a
    state is reached in which nothing is evicted or placed. A claim for which somebody was evicted, and which nobody
    of higher standing pushed aside, is placed.
    """
    rng = random.Random(seed)
    run = cluster(rng)
    for step in range(12):
        run.claims += [arrival(rng, 10 * step + at, run.now) for at in range(rng.choice((0, 1, 2)))]
        if run.claims and rng.random() < 0.2:
            done = rng.choice(run.claims)
            run.claims.remove(done)
        run.carry_out(run.decide())
        run.leave(rng)
        run.now += 10
    for _ in range(80):
        answer = run.decide()
        if not run.leaving and not answer.preempted and not any(one.placements for one in answer.claims.values()):
            break
        run.carry_out(answer)
        run.leave(rng)
        run.now += 10
    else:
        pytest.fail("it never comes to rest")
    assert not run.evictions or max(run.evictions.values()) == 1
    assert not any(one.nominated for one in answer.claims.values()), "something is held for ever"


def test_the_runs_reach_what_they_are_for() -> None:
    seen: Counter[str] = Counter()
    for seed in range(40):
        rng = random.Random(seed)
        run = cluster(rng)
        for step in range(12):
            run.claims += [arrival(rng, 10 * step + at, run.now) for at in range(rng.choice((0, 1, 2)))]
            answer = run.decide()
            seen["victims"] += len(answer.preempted)
            for one in answer.claims.values():
                seen["promises"] += bool(one.nominated)
                seen.update(reason.code for reason in one.reasons)
            run.carry_out(answer)
            run.leave(rng)
            run.now += 10
    assert min(seen[what] for what in ("victims", "promises", "QuotaExceeded", "HeldForOther", "DeviceReleasing")) > 2
