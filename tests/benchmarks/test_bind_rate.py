"""Adjoin and kube-scheduler's own allocation in one run; the ratio is held against `ranges.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.benchmarks.bind_rate import default_limits, measure, raised_limits
from tests.controlplane.options import Options

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
RANGES = yaml.safe_load((Path(__file__).parent / "ranges.yaml").read_text())


@pytest.mark.parametrize(
    ("name", "options", "nodes"),
    [
        pytest.param("bind_rate_default_limits", default_limits(), 50, id="client limits as shipped"),
        pytest.param("bind_rate_default_limits_many_nodes", default_limits(), 1000, id="as shipped, many nodes"),
        pytest.param("bind_rate_raised_limits", raised_limits(), 50, id="raised client limits"),
    ],
)
def test_pods_with_neighbouring_devices_are_bound_as_fast_as_measured(name: str, options: Options, nodes: int) -> None:
    """Also: every pair that Adjoin placed is local."""
    rival = measure("in-tree", nodes, 200, options)
    ours = measure("adjoin", nodes, 200, options)
    assert ours.local == 200
    assert ours.pods_per_second / rival.pods_per_second >= RANGES[name]["value"] - RANGES[name]["margin"]
