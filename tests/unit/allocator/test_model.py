"""Order of names."""

from __future__ import annotations

from itertools import permutations

import pytest

from adjoin_allocator.model import natural_key


@pytest.mark.parametrize(
    "ordered",
    [
        pytest.param(("nic-1", "nic-2", "nic-9", "nic-10", "nic-100"), id="digits compare as numbers"),
        pytest.param(("g", "g0", "g1a", "g1b", "g2"), id="the shorter name comes first"),
        pytest.param(("7-b", "10-a", "a-1"), id="names that begin with digits"),
        pytest.param(("n1-g10", "n2-g9"), id="the first number that differs decides"),
        pytest.param(("nic-01", "nic-1"), id="leading zeros still have one fixed order"),
    ],
)
def test_natural_order(ordered: tuple[str, ...]) -> None:
    for given in permutations(ordered):
        assert tuple(sorted(given, key=natural_key)) == ordered


def test_natural_order_takes_numbers_of_any_length() -> None:
    """No name of Kubernetes is so long, but files may hold anything."""
    assert natural_key("a" + "9" * 5000) > natural_key("a1")
