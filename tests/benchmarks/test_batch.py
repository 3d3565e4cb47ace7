"""The batch with and without its optimiser in one run; the ratios are held against `ranges.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.benchmarks.batch import measure, mixed
from tests.benchmarks.decisions import cluster

from adjoin_allocator import Objective

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
RANGES = yaml.safe_load((Path(__file__).parent / "ranges.yaml").read_text())


def test_a_batch_that_cannot_be_improved_takes_no_longer_than_the_walk_alone() -> None:
    snapshot, claims = cluster(10_000), [mixed(number) for number in range(1_000)]
    walk = measure(snapshot, claims, 0, Objective.IN_ORDER)
    improved = measure(snapshot, claims, 300, Objective.IN_ORDER)
    assert improved.placed == walk.placed == 1_000
    known = RANGES["batch_without_need"]
    assert walk.again / improved.again >= known["value"] - known["margin"]


@pytest.mark.parametrize(
    ("name", "objective", "nodes"),
    [
        pytest.param("batch_room", Objective.IN_ORDER, 1_000, id="some find no place"),
        pytest.param("batch_throughput", Objective.THROUGHPUT, 200, id="most find no place"),
    ],
)
def test_a_batch_places_as_many_more_devices_as_measured(name: str, objective: Objective, nodes: int) -> None:
    snapshot, claims = cluster(nodes), [mixed(number) for number in range(1_000)]
    walk = measure(snapshot, claims, 0, objective)
    improved = measure(snapshot, claims, 300, objective)
    assert improved.devices / walk.devices >= RANGES[name]["value"] - RANGES[name]["margin"]
