"""Counting refutes only what would not be placed: it changes how long the search for victims takes, not its end."""

from __future__ import annotations

import random

import pytest
from tests.support import checks, make

from adjoin_allocator import Memo, Reclaim, Snapshot, plan
from adjoin_allocator.headcount import Headcount
from adjoin_allocator.preemption import Search
from adjoin_allocator.victims import Choice, Loss

NOW = make.NOW


def crowded(rng: random.Random) -> Snapshot:
    """So many holders that not every set of victims is tried, and a gang that needs several of them gone."""
    devices, claims = [], []
    for number in range(rng.choice((6, 8, 10))):
        node = make.shared_roots(f"node-{number}", roots=2, gpus_each=2, nics_each=2)
        devices += node
        gpus = [device for device in node if device.kind == "gpu"]
        nics = [device for device in node if device.kind == "nic"]
        first = 0
        while first < len(gpus):
            size = rng.choice((1, 1, 2, 4))
            mine = [*gpus[first : first + size], *(nics[first : first + size] if rng.random() < 0.7 else ())]
            first += size
            if rng.random() < 0.9:
                claims.append(
                    make.holding(
                        f"held-{number}-{first}",
                        mine,
                        priority=rng.choice((0, 0, 1, 2, 9)),
                        tenant=rng.choice("ab"),
                        created=NOW - rng.randrange(100_000),
                        ready_at=NOW - 9999,
                    )
                )
    members = rng.choice((2, 3))
    waiting = make.pairs(
        "waits",
        rng.choice((1, 2, 3, 4)),
        *([make.required("PCIeRoot", "gpu", "nic")] if rng.random() < 0.5 else []),
        priority=5,
        tenant="a",
        replicas=members,
        gang_min=members,
    )
    rules = make.evicting(reclaim=rng.choice((Reclaim.NEVER, Reclaim.ANY)))
    limits = make.tenants(a=rng.choice((8, 99)), b=rng.choice((0, 9))) if rng.random() < 0.5 else {}
    return make.snapshot(devices, [*claims, waiting], pools=[make.pool(preemption=rules, tenants=limits)])


@pytest.mark.parametrize("seed", range(60))
def test_counting_changes_no_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = crowded(random.Random(seed))
    counted = plan(snapshot, NOW, Memo())
    checks.assert_valid(snapshot, counted, NOW)
    monkeypatch.setattr(Headcount, "enough", lambda self, losses: True)
    monkeypatch.setattr(Headcount, "beside", lambda self, losses: lambda one: True)
    searched = plan(snapshot, NOW, Memo())
    assert counted.preempted == searched.preempted
    assert counted.claims == searched.claims


def test_the_cases_have_victims_and_counting_refutes_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bool] = []
    enough = Headcount.enough

    def listening(self: Headcount, losses: list[Loss]) -> bool:
        answers.append(enough(self, losses))
        return answers[-1]

    monkeypatch.setattr(Headcount, "enough", listening)
    preempted = [len(plan(crowded(random.Random(seed)), NOW).preempted) for seed in range(60)]
    assert sum(number > 1 for number in preempted) > 10
    assert answers.count(False) > 100
    assert answers.count(True) > 100


def test_a_gang_of_whole_nodes_needs_few_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen of 80 must go; nearly all that is tried is refuted by counting."""
    devices = [make.device(f"gpu-{at}", f"node-{node}") for node in range(40) for at in range(4)]
    held = [
        make.holding(
            f"held-{node}-{part}",
            devices[node * 4 + part * 2 : node * 4 + part * 2 + 2],
            created=NOW - node,
            ready_at=1.0,
        )
        for node in range(40)
        for part in range(2)
    ]
    waiting = make.claim("waits", make.request("gpu", 4), priority=5, replicas=8, gang_min=8)
    snapshot = make.snapshot(devices, [*held, waiting], pools=[make.pool(preemption=make.evicting())])
    proofs = []
    prove = Search._prove

    def listening(self: Search, losses: tuple[Loss, ...], proven: bool) -> Choice | None:
        proofs.append(losses)
        return prove(self, losses, proven)

    monkeypatch.setattr(Search, "_prove", listening)
    answer = plan(snapshot, NOW)
    assert len(answer.preempted) == 16
    assert len(proofs) < 12
