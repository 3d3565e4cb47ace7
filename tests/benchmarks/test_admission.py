"""D14: admission answers in time also while decisions are made."""

from __future__ import annotations

import pytest
from tests.benchmarks.admission import measure

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]


def test_d14_of_200_pods_a_second_99_in_100_are_admitted_within_100_ms() -> None:
    """For a quiet machine: whatever else runs there adds to it, so the best of three runs counts.

    Measured on two cores that had other work too (2026-11): 86 ms, and 760 ms with Python's own switch interval.
    """
    found = [measure(pods_per_second=200, seconds=15.0) for _ in range(3)]
    assert all(each.decisions > 1 for each in found)
    assert min(each.p99 for each in found) < 0.1, found
