"""Decisions about victims: ratios of processor time in one run, held against `ranges.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.benchmarks.preemption import asks, full, measured
from tests.support import make

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
RANGES = yaml.safe_load((Path(__file__).parent / "ranges.yaml").read_text())


def test_victims_of_a_gang_cost_little_more_than_those_of_one_replica() -> None:
    """1,000 full nodes; the best of three looks at each, since other work disturbs."""
    base = full(1_000, make.pool(preemption=make.evicting()))
    single = [measured(base, [asks(0, 8)]) for _ in range(3)]
    gang = [measured(base, [asks(0, 8, replicas=8, gang_min=8)]) for _ in range(3)]
    assert {victims for _, victims in single} == {2}
    assert {victims for _, victims in gang} == {16}
    known = RANGES["preemption_gang"]
    assert min(gang)[0] / min(single)[0] <= known["value"] + known["margin"]
