"""Alibaba's list of pods: others as published, and ours against them, held against `ranges.yaml`."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
import yaml
from tests.benchmarks.clusters import cluster
from tests.benchmarks.decisions import KINDS, compiled, measure
from tests.benchmarks.openb.bound import bound
from tests.benchmarks.openb.literature import BestFit, Fleet, Gradient, replay
from tests.benchmarks.openb.mixed import WAYS, given
from tests.benchmarks.openb.ours import batch, one_by_one
from tests.benchmarks.openb.trace import Machine, Pod, arrivals, read_machines, read_pods, up_to_full
from tests.support.shared import needs_shared, shared

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600), needs_shared]
RANGES = yaml.safe_load((Path(__file__).parent / "ranges.yaml").read_text())
SEEDS = range(42, 46)


def most(name: str) -> float:
    """The greatest figure that is taken as measured."""
    return float(RANGES[name]["value"] + RANGES[name]["margin"])


@pytest.fixture(scope="module")
def machines() -> list[Machine]:
    """The published nodes."""
    return read_machines(shared("data/openb/openb_node_list_gpu_node.csv"))


@pytest.fixture(scope="module")
def pods() -> list[Pod]:
    """The published pods."""
    return read_pods(shared("data/openb/openb_pod_list_default.csv"))


def test_others_do_as_well_as_published(machines: list[Machine], pods: list[Pod]) -> None:
    """Means over some orders."""
    gradient, best = [], []
    for seed in SEEDS:
        order, fleet = arrivals(pods, machines, seed), Fleet.of(machines, seed)
        gradient.append(replay(order, fleet, Gradient(pods, fleet)))
        best.append(replay(order, Fleet.of(machines, seed), BestFit()))
    for name, values in (("openb_fgd_default", gradient), ("openb_bestfit_default", best)):
        assert abs(fmean(values) - RANGES[name]["value"]) <= RANGES[name]["margin"]


def test_claims_one_by_one_leave_less_than_others(machines: list[Machine], pods: list[Pod]) -> None:
    """Through `plan()`, with the demand learnt from the snapshot alone."""
    found = one_by_one(arrivals(pods, machines, 42), machines)
    _, memo = compiled(small := cluster(1_000))
    other = min(measure(small, KINDS["1+1"], memo).again for _ in range(3))
    assert found.unallocated <= most("openb_adjoin_default")
    assert found.milliseconds / 1000 / other <= most("openb_decision")


@pytest.mark.parametrize("name", ["default", "multigpu50"])
def test_a_batch_is_near_what_is_possible_at_all(machines: list[Machine], name: str) -> None:
    """And never below it."""
    order = arrivals(read_pods(shared(f"data/openb/openb_pod_list_{name}.csv")), machines, 43)
    gap = batch(order, machines).unallocated - bound(order, machines)
    assert -1e-6 <= gap <= most(f"openb_batch_{name}")


def test_mixed_modes_place_more_than_any_single_one(machines: list[Machine], pods: list[Pod]) -> None:
    """On a part of the nodes, one order: fractions, else partitions, else whole cards."""
    some = machines[:: len(machines) // 120][:120]
    order = up_to_full(arrivals(pods, some, SEEDS[0]), 1000 * sum(machine.cards for machine in some))
    served = {way: given(order, some, way) for way in WAYS}
    assert all(served["mix"] > served[way] for way in WAYS if way != "mix"), served
