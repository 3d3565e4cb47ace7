"""Quantities and durations are read exactly."""

from fractions import Fraction

import pytest

from adjoin.api.quantity import bytes_of, milli_of, milliseconds, quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("0", Fraction(0), id="zero"),
        pytest.param("16", Fraction(16), id="a plain number"),
        pytest.param("500m", Fraction(1, 2), id="thousandths"),
        pytest.param("1.5Gi", Fraction(3 * 2**29), id="a fraction of a binary unit"),
        pytest.param(".5k", Fraction(500), id="no digit before the point"),
        pytest.param("2.", Fraction(2), id="no digit behind the point"),
        pytest.param("40G", Fraction(40 * 10**9), id="a decimal unit"),
        pytest.param("7Ei", Fraction(7 * 2**60), id="the greatest unit"),
        pytest.param("3n", Fraction(3, 10**9), id="the smallest unit"),
        pytest.param("12e3", Fraction(12000), id="an exponent"),
        pytest.param("1E+2", Fraction(100), id="an exponent with sign, not the unit E"),
        pytest.param("2E", Fraction(2 * 10**18), id="the unit E, not an exponent"),
    ],
)
def test_quantity(text: str, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", ".", "Gi", "-1", "1x", "0x10", "NaN", "1 Gi", "1e-3", "٣", "1e308x", "1\n"])
def test_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity(text)


def test_rounding_goes_up() -> None:
    assert bytes_of("100m") == 1
    assert bytes_of("0.3Gi") == 322122548
    assert milli_of("1u") == 1
    assert milli_of("2.5") == 2500


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("0", 0, id="a bare zero"),
        pytest.param("300ms", 300, id="milliseconds are no minutes"),
        pytest.param("1h30m", 5_400_000, id="two parts"),
        pytest.param("24h", 86_400_000, id="hours"),
        pytest.param("1m1s1ms", 61_001, id="every small unit"),
    ],
)
def test_duration(text: str, value: int) -> None:
    assert milliseconds(text) == value


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5 m", "1d", "1.5h", "5m5"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        milliseconds(text)
