"""Where partitions are put, against others: counts of accepted claims, held against `ranges.yaml`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from tests.benchmarks.partitions import NAMES, compare, distance, sequence

from adjoin_allocator.partitions import Slot, starts
from adjoin_allocator.prospects import outlook

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
RANGES = yaml.safe_load((Path(__file__).parent / "ranges.yaml").read_text())


def least(name: str) -> float:
    """The smallest figure that is taken as measured."""
    return float(RANGES[name]["value"] - RANGES[name]["margin"])


@pytest.mark.parametrize("product", ["H100-80", "A30"])
def test_no_other_policy_accepts_more(product: str) -> None:
    """In sum over the sequences, in claims and in the memory that they got."""
    sums = dict(zip(NAMES, compare(product, 200), strict=True))
    others = [value for name, value in sums.items() if not name.startswith("Adjoin")]
    for name in NAMES:
        if name.startswith("Adjoin"):
            assert sums[name][0] >= max(accepted for accepted, _ in others) * least(f"partitions_accepted_{product}")
            assert sums[name][1] >= max(taken for _, taken in others) * least(f"partitions_memory_{product}")


def test_the_distance_to_somebody_who_knows_the_future() -> None:
    """On small sequences; he may also turn claims away that would fit."""
    sums, _, most = distance("H100-80", 40)
    assert dict(zip(NAMES, sums, strict=True))["Adjoin"] / most >= least("partitions_clairvoyant")


def test_a_decision_on_one_card_costs_little() -> None:
    """What is remembered is found again in less time than room is looked for."""
    geometry = sequence("H100-80", 0).geometry
    view = outlook(geometry, tuple(geometry.profiles))
    held = (Slot("1g.10gb", 0, 1), Slot("1g.10gb", 1, 1), Slot("2g.20gb", 4, 2))

    def spent(remembered: bool) -> float:
        begun = time.process_time()
        for _ in range(20_000):
            if remembered:
                view.choose(held, "1g.10gb")
            else:
                starts(geometry, held, "1g.10gb")
        return time.process_time() - begun

    known = RANGES["partitions_decision"]
    assert min(spent(True) for _ in range(5)) / min(spent(False) for _ in range(5)) <= known["value"] + known["margin"]
