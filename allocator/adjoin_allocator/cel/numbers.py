"""Numbers and text: how Go writes a double and what it reads as a number.

Comes in: numbers or text. Goes out: text or numbers, None where the text is no such number.
"""

from __future__ import annotations

import math
from typing import Final

from adjoin_allocator.cel.values import INT_MAX, INT_MIN, UINT_MAX

_DIGITS: Final = frozenset("0123456789")
_HEX_DIGITS: Final = frozenset("0123456789abcdef")
_NUMBER: Final = frozenset("0123456789abcdefpx.+-_")


def parse_int(text: str) -> int | None:
    """A decimal integer within 64 bits, sign allowed."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    # Longer texts are out of range unless they are zeros, which nobody writes; int() would be slow on them.
    if not digits or not _DIGITS.issuperset(digits):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > 19:
        return None
    value = -int(digits) if text.startswith("-") else int(digits)
    return value if INT_MIN <= value <= INT_MAX else None


def parse_uint(text: str) -> int | None:
    """A decimal integer without sign, within 64 bits."""
    if not text or not _DIGITS.issuperset(text):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > 20:
        return None
    value = int(digits)
    return value if value <= UINT_MAX else None


def parse_double(text: str) -> float | None:
    """A decimal or hexadecimal floating point number, `inf`, `infinity` or `nan`. Too large is no number."""
    body = text[1:] if text[:1] in ("-", "+") else text
    lower = body.lower()
    if lower in ("inf", "infinity", "nan"):
        return float(text) if lower != "nan" else math.nan
    hexadecimal = lower.startswith("0x")
    if hexadecimal and "p" not in lower:
        return None
    if not _NUMBER.issuperset(lower) or not _separators_fit(lower, hexadecimal):
        return None
    try:
        value = float.fromhex(text.replace("_", "")) if hexadecimal else float(text.replace("_", ""))
    except (ValueError, OverflowError):
        return None
    return None if math.isinf(value) else value


def _separators_fit(lower: str, hexadecimal: bool) -> bool:
    """Whether every underscore stands between two digits, or behind `0x`."""
    digits = _HEX_DIGITS if hexadecimal else _DIGITS
    padded = f"{lower} "
    return all(
        padded[i + 1] in digits and (lower[i - 1 : i] in digits or (hexadecimal and i == 2))
        for i, char in enumerate(lower)
        if char == "_"
    )


def general_text(value: float) -> str:
    """The shortest text that reads back as the same double, with an exponent where Go's %g has one: below 1e-4 and
    from 1e6 up."""
    special = _special(value)
    if special:
        return special
    sign, digits, exponent = _shortest(value)
    if not -4 <= exponent < 6:
        mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
        return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return sign + _positional(digits, exponent)


def decimal_text(value: float) -> str:
    """The same without ever using an exponent."""
    special = _special(value)
    if special:
        return special
    sign, digits, exponent = _shortest(value)
    return sign + _positional(digits, exponent)


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return ""


def _shortest(value: float) -> tuple[str, str, int]:
    """(sign, significant digits, power of ten of the first digit)."""
    mantissa, _, power = repr(value).lower().partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    exponent = int(power or "0") + len(whole) - 1
    digits = whole + fraction
    stripped = digits.lstrip("0")
    if not stripped:
        return sign, "0", 0
    exponent -= len(digits) - len(stripped)
    return sign, stripped.rstrip("0") or "0", exponent


def _positional(digits: str, exponent: int) -> str:
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits.ljust(exponent + 1, "0")
    return f"{digits[: exponent + 1]}.{digits[exponent + 1 :]}"
