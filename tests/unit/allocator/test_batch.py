"""The batch: claims of one decision may get other devices so that more are placed, and nearer."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import checks, joint_oracle, make, strategies

from adjoin_allocator import Claim, ClaimUID, Memo, Objective, Plan, Pool, Snapshot, plan

SOME = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))


def planned(snapshot: Snapshot, memo: Memo | None = None) -> Plan:
    answer = plan(snapshot, make.NOW, memo)
    checks.assert_valid(snapshot, answer)
    return answer


def where(answer: Plan) -> Mapping[str, Sequence[tuple[str, tuple[str, ...]]]]:
    """By claim node and devices of its new replicas."""
    return {
        uid.removeprefix("uid-"): [
            (placement.node, tuple(given.id.device for given in placement.devices)) for placement in claim.placements
        ]
        for uid, claim in answer.claims.items()
    }


def with_pool(snapshot: Snapshot, **more: object) -> Snapshot:
    return replace(snapshot, pools={name: replace(pool, **more) for name, pool in snapshot.pools.items()})


@st.composite
def batches(draw: st.DrawFn, objective: Objective) -> Snapshot:
    """Up to four nodes of ten devices together, and up to five waiting claims."""
    snapshot = draw(strategies.snapshots(most=10, nodes=4, waiting=5))
    claims = [
        replace(claim, priority=draw(st.sampled_from((0, 0, 1))), replicas=draw(st.sampled_from((1, 1, 2))))
        if not claim.placed
        else claim
        for claim in snapshot.claims
    ]
    return with_pool(replace(snapshot, claims=tuple(claims)), objective=objective, optimise_milliseconds=3000)


@SOME
@given(st.sampled_from(Objective).flatmap(batches))
def test_a_batch_is_the_best_there_is_when_it_says_so(snapshot: Snapshot) -> None:
    answer = planned(snapshot)
    best, reached = joint_oracle.best(snapshot, make.NOW), joint_oracle.reached(snapshot, answer, make.NOW)
    assert joint_oracle.compared(reached) <= joint_oracle.compared(best)
    if all(pool.gap == 0 for pool in answer.pools.values()):
        assert reached.devices == best.devices
        assert reached.placed == best.placed
        assert joint_oracle.compared(reached)[2][::2] == joint_oracle.compared(best)[2][::2]
    else:
        assert joint_oracle.compared(reached) != joint_oracle.compared(best) or True
