"""Decisions of the allocator: ratios of figures taken side by side in one run, held against `ranges.yaml`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.benchmarks import intree
from tests.benchmarks.clusters import cluster, short_of_one
from tests.benchmarks.decisions import (
    KINDS,
    MIXED,
    NEAR,
    Kind,
    compiled,
    local_pairs,
    measure,
    mixed_seconds,
    side_by_side,
    whole_nodes,
)
from tests.support import make

from adjoin_allocator import Claim, HostAsk, Memo, Snapshot

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
RANGES = yaml.safe_load((Path(__file__).parent / "ranges.yaml").read_text())


def most(name: str) -> float:
    """The greatest ratio that is taken as measured."""
    return float(RANGES[name]["value"] + RANGES[name]["margin"])


def least(name: str) -> float:
    """The least ratio that is taken as measured."""
    return float(RANGES[name]["value"] - RANGES[name]["margin"])


def limited(name: str) -> Claim:
    return make.pairs(name, 1, NEAR, host=HostAsk(16_000, 64 << 30))


LOOKS = 5


def of(*cases: tuple[Snapshot, Kind]) -> list[float]:
    """Medians of decisions that find their clusters as they are. All are looked at in turn, and of each the best look
    counts, since other work disturbs.
    """
    memos: dict[int, Memo] = {}
    for snapshot, _ in cases:
        if id(snapshot) not in memos:
            memos[id(snapshot)] = compiled(snapshot)[1]
    looks = [[measure(*case, memos[id(case[0])]).again for case in cases] for _ in range(LOOKS)]
    return [min(each) for each in zip(*looks, strict=True)]


@pytest.mark.parametrize("kind", [*KINDS])
def test_ten_times_the_nodes_cost_a_decision_the_same(kind: str) -> None:
    small, large = of(*((cluster(nodes), KINDS[kind]) for nodes in (1_000, 10_000)))
    assert large / small <= most("decision_growth_1k_10k")


def test_ten_times_the_nodes_cost_a_refusal_the_same() -> None:
    small, large = of(*((short_of_one(nodes), KINDS["8+8"]) for nodes in (1_000, 10_000)))
    assert large / small <= most("refusal_growth_1k_10k")


@pytest.mark.slow
def test_a_hundred_times_the_nodes_cost_a_decision_little_more() -> None:
    small, large = cluster(1_000), cluster(100_000, limits=True)
    base, plain, hosts = of((small, KINDS["1+1"]), (large, KINDS["1+1"]), (large, limited))
    assert plain / base <= most("decision_growth_1k_100k")
    assert hosts / base <= most("decision_growth_1k_100k_host")


@pytest.mark.skipif(bool(intree.missing()), reason=intree.missing() or "it is there")
@pytest.mark.parametrize("kind", [*intree.SCENARIOS])
def test_a_decision_takes_a_part_of_what_the_in_tree_allocator_takes(kind: str) -> None:
    ours, theirs = side_by_side(kind, 10_000)
    assert theirs / ours >= least("decision_in_tree_10k")


def test_many_claims_together_cost_no_more_than_one_by_one() -> None:
    first, again = (min(each) for each in zip(*(mixed_seconds(10_000) for _ in range(2)), strict=True))
    (single,) = of((cluster(10_000), KINDS["1+1"]))
    assert again / (MIXED * single) <= most("mixed_claims_10k")
    assert first / (MIXED * single) <= most("mixed_claims_10k_cold")


@pytest.mark.slow
def test_a_hundred_thousand_nodes_are_kept_in_a_gigabyte() -> None:
    """The allocator's side, beside what the caller keeps of the devices themselves."""
    command = [sys.executable, "-m", "tests.benchmarks.decisions", "--nodes", "100000", "--memory"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1200).stdout
    _, kept = map(int, told.split())
    assert kept / 1e9 <= most("memory_100k")


def test_pairs_end_on_one_root_complex_without_being_told() -> None:
    assert local_pairs() == 1.0


def test_singles_leave_whole_nodes_whole() -> None:
    assert whole_nodes() == 875
