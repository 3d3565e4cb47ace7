"""Reads the text of quantities and durations that passed the API's patterns, exactly, into numbers.

In comes text as `scalars` admits it, out come fractions and integers. No floating point, so nothing is rounded but
where a function says so.
"""

import re
from fractions import Fraction
from typing import Final

_SUFFIX: Final[dict[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY: Final = re.compile(r"([0-9]*(?:\.[0-9]*)?)(?:([KMGTPE]i|[numkMGTPE])|[eE]\+?([0-9]{1,2}))?")
_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_PART: Final = re.compile(r"([0-9]+)(ms|h|m|s)")


def quantity(text: str) -> Fraction:
    """The exact value of a quantity: `quantity("1.5Gi") == 1610612736`.

    Raises:
        ValueError: The text is no quantity of the API.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or not any(digit.isdigit() for digit in match[1]):
        raise ValueError(f"{text!r} is no quantity")
    scale = Fraction(10 ** int(match[3])) if match[3] is not None else _SUFFIX[match[2] or ""]
    return Fraction(match[1]) * scale


def bytes_of(text: str) -> int:
    """Bytes, a fraction of one rounded up, as Kubernetes does."""
    return -int(-quantity(text) // 1)


def milli_of(text: str) -> int:
    """Thousandths (of a core, of a card), a fraction of one rounded up, as Kubernetes does."""
    return -int(-quantity(text) * 1000 // 1)


def milliseconds(text: str) -> int:
    """Length of a duration: `milliseconds("1h30m") == 5_400_000`; a bare 0 is no time.

    Raises:
        ValueError: The text is no duration of the API.
    """
    if text == "0":
        return 0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration")
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in parts)
