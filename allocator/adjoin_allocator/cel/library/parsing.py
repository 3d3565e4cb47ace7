"""How a library function makes a value of a text: the value or CEL's error, and whether there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adjoin_allocator.cel.errors import EvaluationError

_T = TypeVar("_T")


def parsed(parse: Callable[[str], _T], text: str) -> _T:
    """What `parse` makes of the text. Raises `EvaluationError` where it raises ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise EvaluationError(str(error)) from error


def parses(parse: Callable[[str], object], text: str) -> bool:
    """Whether `parse` takes the text."""
    try:
        parse(text)
    except ValueError:
        return False
    return True
