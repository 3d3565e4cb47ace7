"""Regular expressions, in linear time.

Comes in: a pattern in RE2's syntax. Goes out: `Pattern`, which remembers what it answered for the texts it has seen
(attribute values repeat), within a bound. Patterns that the expression computes at run time are kept in one small
bounded memo.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import re2

_REMEMBERED: Final = 256


def _options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    return options


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_known", "_regex")

    def __init__(self, pattern: str) -> None:
        # Bytes spare the library the translation of positions, which costs more than the match.
        self._regex = re2.compile(pattern.encode(), _options())
        self._known: dict[str, bool] = {}

    def matches(self, text: str) -> bool:
        """Whether the pattern is found anywhere in `text`."""
        answer = self._known.get(text)
        if answer is None:
            answer = self._regex.search(text.encode()) is not None
            if len(self._known) < _REMEMBERED:
                self._known[text] = answer
        return answer

    def find(self, text: str) -> str:
        """The first match, or empty."""
        match = self._regex.search(text.encode())
        return "" if match is None else str(match.group().decode())

    def find_all(self, text: str, limit: int) -> tuple[str, ...]:
        """All matches from left to right that do not overlap, at most `limit` unless it is negative."""
        data = text.encode()
        found: list[str] = []
        position, last_end = 0, -1
        while position <= len(data) and (limit < 0 or len(found) < limit):
            match = self._regex.search(data, position)
            if match is None:
                break
            start, end = match.span()
            # An empty match right behind a match is none.
            if end > start or start != last_end:
                found.append(data[start:end].decode())
            last_end = end
            position = end if end > start else _next_character(data, end)
        return tuple(found)


def _next_character(data: bytes, position: int) -> int:
    position += 1
    while position < len(data) and data[position] & 0xC0 == 0x80:
        position += 1
    return position


@lru_cache(maxsize=128)
def compiled(pattern: str) -> Pattern:
    """The pattern. Raises `ValueError` for what is none."""
    try:
        return Pattern(pattern)
    except re2.error as error:
        reason = error.args[0]
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"bad regular expression: {shown}") from error
