"""The form of the tables of what expressions mean: a sentence and the expressions that show it.

All are judged on the device `cel_sample.GPU`.
"""

from __future__ import annotations

from typing import NamedTuple


class Law(NamedTuple):
    """A sentence about the language with expressions that are true, are false, and fail by it."""

    sentence: str
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()


class Refusal(NamedTuple):
    """An expression that is refused, where (`line:column`), and a part of the reason."""

    sentence: str
    expression: str
    place: str
    reason: str
