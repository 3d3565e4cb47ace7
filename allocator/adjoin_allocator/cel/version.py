"""Semantic versions 2.0, as Kubernetes reads and orders them.

Comes in: text. Goes out: `Version`, an immutable value. Build metadata is kept for writing and counts neither in order
nor in equality.
"""

from __future__ import annotations

from functools import total_ordering
from typing import ClassVar, Final

from adjoin_allocator.cel.values import UINT_MAX

_DIGITS: Final = frozenset("0123456789")
_WORD: Final = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")


@total_ordering
class Version:
    """major.minor.patch, with an optional pre-release and build.

    Attributes:
        core: Major, minor, patch.
        pre: Parts of the pre-release: numbers as int, words as str.
        text: As written.
    """

    __slots__ = ("_order", "core", "pre", "text")
    cel_type: ClassVar[str] = "kubernetes.Semver"
    comparable_to_itself_only: ClassVar[bool] = True
    unkeyable: ClassVar[bool] = True

    def __init__(self, core: tuple[int, int, int], pre: tuple[int | str, ...], text: str) -> None:
        self.core = core
        self.pre = pre
        self.text = text
        # No pre-release comes after every pre-release; in one, numbers come before words.
        self._order = (core, not pre, tuple((isinstance(part, str), part) for part in pre))

    @classmethod
    def parse(cls, text: str) -> Version:
        """The version that `text` means, by the letter of the specification. Raises `ValueError`."""
        parts = text.split(".", 2)
        if len(parts) != 3:
            raise ValueError(f"{text!r} is no version: it needs major.minor.patch")
        rest, plus, build = parts[2].partition("+")
        patch, minus, pre = rest.partition("-")
        core = (_number(parts[0], text), _number(parts[1], text), _number(patch, text))
        if plus and not all(word and _WORD.issuperset(word) for word in build.split(".")):
            raise ValueError(f"{text!r} is no version: bad build metadata")
        return cls(core, tuple(_pre(word, text) for word in pre.split(".")) if minus else (), text)

    @classmethod
    def parse_tolerant(cls, text: str) -> Version:
        """The same for `v1.2`, `01.2.3` and the like: a leading v, leading zeros and missing parts are mended."""
        parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
        if len(parts) < 3:
            if any(sign in parts[-1] for sign in "+-"):
                raise ValueError(f"{text!r} is no version: a short version has no pre-release or build")
            parts += ["0"] * (3 - len(parts))
        return cls.parse(".".join(parts))

    def compare(self, other: Version) -> int:
        """-1, 0 or 1."""
        return (self._order > other._order) - (self._order < other._order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._order == other._order

    def __lt__(self, other: Version) -> bool:
        return self._order < other._order

    def __hash__(self) -> int:
        return hash(self._order)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Version.parse({self.text!r})"


def _number(digits: str, text: str) -> int:
    if not digits or not _DIGITS.issuperset(digits):
        raise ValueError(f"{text!r} is no version: {digits!r} is no number")
    if len(digits) > 1 and digits.startswith("0"):
        raise ValueError(f"{text!r} is no version: {digits!r} has a leading zero")
    if len(digits) > 20 or int(digits) > UINT_MAX:
        raise ValueError(f"{text!r} is no version: {digits!r} is too large")
    return int(digits)


def _pre(word: str, text: str) -> int | str:
    if word and _DIGITS.issuperset(word):
        return _number(word, text)
    if not word or not _WORD.issuperset(word):
        raise ValueError(f"{text!r} is no version: bad pre-release")
    return word


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in _DIGITS else f"0{stripped}"
