"""Quantities in words."""

from __future__ import annotations

import pytest

from adjoin_allocator.amounts import cores, counted, needed, size


@pytest.mark.parametrize(("milli", "words"), [(96_000, "96"), (1500, "1500m"), (0, "0"), (1, "1m")])
def test_cores(milli: int, words: str) -> None:
    assert cores(milli) == words


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0"),
        (1, "1"),
        (1000, "1000"),
        (1 << 10, "1Ki"),
        (68 << 20, "68Mi"),
        ((68 << 20) + 5, "68Mi"),
        (1 << 40, "1Ti"),
    ],
)
def test_bytes(amount: int, words: str) -> None:
    assert size(amount) == words


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "0"), (1000, "1000"), (68 << 20, "68Mi"), ((68 << 20) + 1, "69Mi"), ((1 << 30) - 1, "1Gi")],
)
def test_what_is_needed_is_never_said_to_be_less(amount: int, words: str) -> None:
    assert needed(amount) == words


@pytest.mark.parametrize(("count", "words"), [(0, "0 replicas"), (1, "1 replica"), (2, "2 replicas")])
def test_numbers_of_things(count: int, words: str) -> None:
    assert counted(count, "replica") == words
