"""Kubernetes' quantities (`40Gi`, `1500m`, `2e3`), exactly.

Comes in: text. Goes out: `Quantity`, an immutable value that compares, hashes, adds and writes itself as Kubernetes
does: never finer than a billionth (rounded away from zero), binary suffixes capped at 2^63-1. Unlike Kubernetes' own,
amounts from 10^1000 up are refused: on those its arithmetic runs for hours.
"""

from __future__ import annotations

from fractions import Fraction
from functools import total_ordering
from typing import ClassVar, Final

from adjoin_allocator.cel.values import INT_MAX, INT_MIN

_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIX_OF: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_SUFFIX_OF: Final = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}
_SUFFIX_LETTERS: Final = frozenset("eEinumkKMGTP")
_DIGITS: Final = frozenset("0123456789")

_DECIMAL: Final = "DecimalSI"
_BINARY: Final = "BinarySI"
_EXPONENT: Final = "DecimalExponent"

_NANO: Final = -9
_INT64_DIGITS: Final = 18
_MIN_EXPONENT: Final = 1 << 31
_MAX_POWER: Final = 1000


@total_ordering
class Quantity:
    """An exact amount: `unscaled * 10**scale`.

    Attributes:
        unscaled: The digits, with sign.
        scale: The power of ten they count.
        fits_int64: Kubernetes keeps it as a 64 bit integer and a scale; what it answers for "is it an integer" hangs
            on that.
        notation: The family of suffixes it was written with, for writing it again.
        computed: It is the result of arithmetic in an expression (see `equality`).
    """

    __slots__ = ("computed", "fits_int64", "notation", "scale", "unscaled")
    cel_type: ClassVar[str] = "kubernetes.Quantity"
    comparable_to_itself_only: ClassVar[bool] = True

    def __init__(
        self, unscaled: int, scale: int = 0, fits_int64: bool = True, notation: str = _DECIMAL, computed: bool = False
    ) -> None:
        self.unscaled = unscaled
        self.scale = scale
        self.fits_int64 = fits_int64
        self.notation = notation
        self.computed = computed

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """The quantity that `text` means. Raises `ValueError`."""
        if text == "0":
            return cls(0)
        positive, number, decimals, suffix = _split(text)
        if len(number) + len(decimals) > _MAX_POWER:
            raise ValueError(f"{text[:20]}… is no quantity: too many digits")
        exponent, notation = _interpret(suffix, text)
        digits = number + decimals
        if notation == _BINARY:
            room = 15 - len(number) - int(exponent * 3 / 10) - 1 if not decimals else -1
            multiplier, scale = 1 << exponent, 0
        else:
            room = _INT64_DIGITS - len(digits)
            multiplier, scale = 1, exponent
        if room >= 0 and scale - len(decimals) >= _NANO:
            amount = int(digits) * multiplier
            if amount <= INT_MAX:
                return cls(amount if positive else -amount, scale - len(decimals), True, notation)
        if not any(digit in text for digit in _DIGITS):
            raise ValueError(f"{text!r} is no quantity: it has no digits")
        return _rounded(positive, int(digits) * multiplier, scale - len(decimals), notation)

    @property
    def value(self) -> Fraction:
        """The exact amount."""
        return Fraction(self.unscaled) * Fraction(10) ** self.scale

    def as_int(self) -> int:
        """The amount as an integer, rounded away from zero."""
        if self.scale >= 0:
            return self.unscaled * int(10**self.scale)
        whole = -(-abs(self.unscaled) // int(10**-self.scale))
        return -whole if self.unscaled < 0 else whole

    def exact_int(self) -> int | None:
        """The amount as an integer where Kubernetes says that it is one; 1000m is none, though it is 1."""
        if not self.fits_int64 or self.scale < 0:
            return None
        amount = self.unscaled * int(10**self.scale)
        return amount if INT_MIN <= amount <= INT_MAX else None

    def approximate(self) -> float:
        """The nearest double, as Kubernetes computes it."""
        try:
            base = float(self.unscaled)
        except OverflowError:
            base = float("inf") if self.unscaled > 0 else float("-inf")
        if self.scale == 0:
            return base
        if self.scale < -323:
            return base * 0.0
        return base * (float(f"1e{self.scale}") if self.scale <= 308 else float("inf"))

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    def plus(self, other: Quantity, factor: int = 1) -> Quantity:
        """`self + other`, or `self - other` with factor -1, in the notation of the first that is not zero."""
        notation = self.notation if self.unscaled else other.notation
        if self.fits_int64 and other.fits_int64:
            # The least 64 bit number has no negative: Kubernetes then adds it where it should subtract it.
            addend = factor * other.unscaled
            small = self._plus(addend if addend <= INT_MAX else INT_MIN, other.scale)
            if small is not None:
                return Quantity(*small, True, notation, computed=True)
        mine, theirs, scale = _common_scale(self, other)
        return Quantity(mine + factor * theirs, scale, False, notation, computed=True)

    def _plus(self, addend: int, scale: int) -> tuple[int, int] | None:
        """The sum as digits and scale, None where something on the way exceeds 64 bits."""
        if not addend:
            return self.unscaled, self.scale
        mine, theirs, common = _common_scale(self, Quantity(addend, scale))
        fits = all(INT_MIN <= amount <= INT_MAX for amount in (mine, theirs, mine + theirs))
        return (mine + theirs, common) if fits else None

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1."""
        left, right = self.unscaled, other.unscaled
        if self.scale != other.scale:
            left, right, _ = _common_scale(self, other)
        return (left > right) - (left < right)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.compare(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __hash__(self) -> int:
        digits = str(self.unscaled).rstrip("0") if self.unscaled else "0"
        return hash((digits, self.scale + len(str(self.unscaled)) - len(digits) if self.unscaled else 0))

    def __str__(self) -> str:
        if self.unscaled == 0:
            return "0"
        if self.notation == _BINARY:
            amount = self.as_int()
            if abs(amount) >= 1024 and Quantity(amount) == self:
                power = 0
                while amount % 1024 == 0 and power < 60:
                    amount //= 1024
                    power += 10
                return f"{amount}{_BINARY_SUFFIX_OF.get(power, '')}"
        return self._decimal()

    def _decimal(self) -> str:
        digits = str(self.unscaled).rstrip("0")
        exponent = self.scale + len(str(self.unscaled)) - len(digits)
        padding = exponent % 3
        digits, exponent = digits + "0" * padding, exponent - padding
        if self.notation == _EXPONENT:
            return f"{digits}e{exponent}" if exponent else digits
        return f"{digits}{_SUFFIX_OF.get(exponent, '')}"

    def __repr__(self) -> str:
        return f"Quantity.parse({str(self)!r})"


def _common_scale(left: Quantity, right: Quantity) -> tuple[int, int, int]:
    """Both amounts in units of the smaller scale, and that scale. An amount of zero has any scale."""
    if not left.unscaled or not right.unscaled:
        scale = min(left.scale if left.unscaled else right.scale, right.scale if right.unscaled else left.scale)
    else:
        scale = min(left.scale, right.scale)
    mine = left.unscaled * 10 ** (left.scale - scale) if left.unscaled else 0
    theirs = right.unscaled * 10 ** (right.scale - scale) if right.unscaled else 0
    return mine, theirs, scale


def _split(text: str) -> tuple[bool, str, str, str]:
    """(positive, digits before the point, digits behind it, suffix). Raises `ValueError` where no number can be."""
    position = 1 if text[:1] in ("-", "+") else 0
    positive = not text.startswith("-")
    stop = _run(text, position, _DIGITS)
    number = text[position:stop].lstrip("0")
    decimals = ""
    if text[stop : stop + 1] == ".":
        start = stop + 1
        stop = _run(text, start, _DIGITS)
        decimals = text[start:stop]
    suffix_stop = _run(text, stop, _SUFFIX_LETTERS)
    if text[suffix_stop : suffix_stop + 1] in ("-", "+"):
        suffix_stop += 1
    if _run(text, suffix_stop, _DIGITS) != len(text) or not text:
        raise ValueError(f"{text!r} is no quantity")
    return positive, number or "0", decimals, text[stop:]


def _run(text: str, position: int, allowed: frozenset[str]) -> int:
    while position < len(text) and text[position] in allowed:
        position += 1
    return position


def _interpret(suffix: str, text: str) -> tuple[int, str]:
    """(power, notation) of a suffix; the power is one of two for the binary notation, of ten for the others."""
    if suffix in _DECIMAL_SUFFIXES:
        return _DECIMAL_SUFFIXES[suffix], _DECIMAL
    if suffix in _BINARY_SUFFIXES:
        return _BINARY_SUFFIXES[suffix], _BINARY
    power = suffix[1:]
    digits = power[1:] if power[:1] in ("-", "+") else power
    if suffix[:1] in ("e", "E") and digits and _DIGITS.issuperset(digits) and len(digits) <= 10:
        exponent = int(power)
        if -_MIN_EXPONENT <= exponent <= _MAX_POWER:
            return exponent, _EXPONENT
    raise ValueError(f"{text!r} is no quantity: unknown suffix {suffix!r}")


def _rounded(positive: bool, digits: int, scale: int, notation: str) -> Quantity:
    """The amount that 64 bits cannot hold or that has parts of a billionth: in billionths, rounded up, capped if
    binary."""
    if scale >= _NANO:
        digits *= 10 ** (scale - _NANO)
    elif digits:
        places = _NANO - scale
        # What is far below a billionth rounds up to one without writing the power out.
        digits = -(-digits // 10**places) if places <= 2 * _MAX_POWER else 1
    if notation == _BINARY:
        digits = min(digits, INT_MAX * 10**-_NANO)
        if 0 < digits < 10**-_NANO:
            notation = _DECIMAL
    return Quantity(digits if positive else -digits, _NANO, False, notation)
