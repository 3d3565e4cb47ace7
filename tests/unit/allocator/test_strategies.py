"""The generator of random cases is itself tested: it reaches what the rules speak of."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support import make, strategies

from adjoin_allocator import Code, Snapshot, plan, search
from adjoin_allocator.search import Problem

REACHED = {
    "placed",
    "several replicas",
    "two claims on one node",
    "all",
    Code.INSUFFICIENT_DEVICES,
    Code.FRAGMENTED,
    Code.TOPOLOGY_UNSATISFIED,
    Code.TOPOLOGY_UNKNOWN,
    Code.ATTRIBUTE_MISSING,
    Code.SELECTOR_UNMATCHED,
    Code.UNHEALTHY,
}

PARTS = {"tree", "explicit clique", "explicit pairing", "value once", "island", "ratio", "ratio with a rest"}


def test_random_snapshots_reach_every_reason_that_they_can_hold() -> None:
    reached: Counter[object] = Counter()

    @settings(max_examples=600, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategies.snapshots())
    def look(snapshot: Snapshot) -> None:
        answer = plan(snapshot, make.NOW)
        for claim in snapshot.claims:
            told = answer.claims.get(claim.uid)
            if told is None:
                continue
            reached.update(reason.code for reason in told.reasons)
            reached["placed"] += bool(told.placements)
            reached["several replicas"] += len(told.placements) > 1
            reached["all"] += bool(told.placements) and any(request.all_devices for request in claim.requests)
        nodes = Counter(placement.node for told in answer.claims.values() for placement in told.placements)
        reached["two claims on one node"] += any(count > 1 for count in nodes.values())

    look()
    assert {what for what in REACHED if not reached[what]} == set()


def test_random_snapshots_reach_every_part_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: Counter[str] = Counter()
    real = search._explicit

    def noted(tree: search.Vertex) -> object:
        explicit = real(tree)
        reached["explicit"] += bool(explicit)
        reached["tree"] += not explicit
        return explicit

    def watched(problem: Problem) -> object:
        relations = set(real(problem.tree))
        reached["explicit clique"] += any(clique.relation in relations for clique in problem.cliques)
        reached["explicit pairing"] += any(pairing.relation in relations for pairing in problem.pairings)
        reached["value once"] += bool(problem.once)
        reached["island"] += bool(problem.islands)
        for pairing in problem.pairings:
            sides = sorted(sum(problem.counts[at] for at in side) for side in (pairing.left, pairing.right))
            reached["ratio"] += sides[0] < sides[1]
            reached["ratio with a rest"] += bool(sides[1] % sides[0])
        return run(problem)

    from adjoin_allocator import fit

    run = fit.search
    monkeypatch.setattr(search, "_explicit", noted)
    monkeypatch.setattr(fit, "search", watched)

    @settings(max_examples=200, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategies.snapshots(), strategies.uneven())
    def look(snapshot: Snapshot, uneven: Snapshot) -> None:
        plan(snapshot, make.NOW)
        plan(uneven, make.NOW)

    look()
    assert {what for what in PARTS if not reached[what]} == set()
