"""Quantities and versions as values: reading, comparing, writing."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoin_allocator.cel import Quantity, Version


class Written(NamedTuple):
    text: str
    value: Fraction
    whole: int
    written: str


WRITTEN = (
    Written("0", Fraction(0), 0, "0"),
    Written("40Gi", Fraction(40 * 2**30), 40 * 2**30, "40Gi"),
    Written("1024Ki", Fraction(2**20), 2**20, "1Mi"),
    Written("1500m", Fraction(3, 2), 2, "1500m"),
    Written("-1500m", Fraction(-3, 2), -2, "-1500m"),
    Written("1.5", Fraction(3, 2), 2, "1500m"),
    Written("1.5Gi", Fraction(3 * 2**29), 3 * 2**29, "1536Mi"),
    Written("2e3", Fraction(2000), 2000, "2e3"),
    Written("2E3", Fraction(2000), 2000, "2e3"),
    Written("1E", Fraction(10**18), 10**18, "1E"),
    Written("100k", Fraction(100_000), 100_000, "100k"),
    Written("0.5Ki", Fraction(512), 512, "512"),
    Written("1u", Fraction(1, 10**6), 1, "1u"),
    Written("1n", Fraction(1, 10**9), 1, "1n"),
    Written("0.1n", Fraction(1, 10**9), 1, "1n"),
    Written("+5", Fraction(5), 5, "5"),
    Written(".5", Fraction(1, 2), 1, "500m"),
    Written("5.", Fraction(5), 5, "5"),
    Written("00012", Fraction(12), 12, "12"),
    Written("Gi", Fraction(0), 0, "0"),
)


@pytest.mark.parametrize("row", WRITTEN, ids=[row.text for row in WRITTEN])
def test_quantity_is_read_and_written(row: Written) -> None:
    """Exactly, and in the notation it came in."""
    quantity = Quantity.parse(row.text)
    assert (quantity.value, quantity.as_int(), str(quantity)) == (row.value, row.whole, row.written)
    assert Quantity.parse(str(quantity)) == quantity


@pytest.mark.parametrize(
    "text", ["", "--1", "1 Gi", "1gi", "1KI", "1ki", "1i", "1e", "1e1.5", "0x10", "1_000", "٣", "1Gi ", "1e99999"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """As an API server refuses it."""
    with pytest.raises(ValueError, match="is no quantity"):
        Quantity.parse(text)


def test_equal_amounts_are_one_key() -> None:
    """However they are written."""
    assert len({Quantity.parse(text) for text in ("1", "1000m", "1.0", "1e0", "0.001k")}) == 1
    assert Quantity.parse("1Ki") != Quantity.parse("1k")
    assert sorted(map(Quantity.parse, ("1Gi", "1G", "-1", "1m"))) == list(
        map(Quantity.parse, ("-1", "1m", "1G", "1Gi"))
    )
    assert Quantity.parse("1") != 1
    assert repr(Quantity.parse("1Gi")) == "Quantity.parse('1Gi')"


@given(st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70), st.integers(0, 9), st.integers(0, 9))
def test_quantities_compare_like_fractions(first: int, second: int, scale: int, other: int) -> None:
    """Whatever their size and scale."""
    left, right = (Quantity.parse(f"{number}e-{power}") for number, power in ((first, scale), (second, other)))
    exact = Fraction(first, 10**scale), Fraction(second, 10**other)
    assert (left.value, right.value) == exact
    assert (left < right, left == right, left > right) == (
        exact[0] < exact[1],
        exact[0] == exact[1],
        exact[0] > exact[1],
    )
    assert left != right or hash(left) == hash(right)


VERSIONS = (
    "0.0.0-0",
    "0.0.1",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.9.0",
    "1.10.0",
    "580.95.5",
)


def test_versions_are_ordered_by_semver() -> None:
    """Numbers as numbers, a release after its candidates."""
    assert sorted(map(Version.parse, reversed(VERSIONS))) == list(map(Version.parse, VERSIONS))
    assert list(map(str, map(Version.parse, VERSIONS))) == list(VERSIONS)


def test_build_metadata_counts_for_nothing_but_writing() -> None:
    """One key, two texts."""
    plain, built = Version.parse("1.0.0"), Version.parse("1.0.0+build.5")
    assert plain == built
    assert hash(plain) == hash(built)
    assert (str(built), repr(built)) == ("1.0.0+build.5", "Version.parse('1.0.0+build.5')")
    assert plain != "1.0.0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "v1.2.3",
        "1.2.3.4",
        "01.2.3",
        "1.2.3-",
        "1.2.3+",
        "1.2.3-01",
        "1.2.-3",
        "1.2.3-a..b",
        "1.2.3-é",
        "99999999999999999999.0.0",
    ],
)
def test_what_is_no_version_is_refused(text: str) -> None:
    """By the letter of the specification."""
    with pytest.raises(ValueError, match="is no version"):
        Version.parse(text)
