"""`find` and `findAll`."""

from __future__ import annotations

from typing import Final

from adjoin_allocator.cel.declarations import Function, member
from adjoin_allocator.cel.library.strings import compiled_or_error
from adjoin_allocator.cel.meter import Meter
from adjoin_allocator.cel.types import INT, STRING, list_of


def _find(text: str, pattern: str) -> str:
    return str(compiled_or_error(pattern).find(text))


def _find_all(meter: Meter, text: str, pattern: str, limit: int = -1) -> tuple[str, ...]:
    meter.spend_on_list(len(text))
    found: tuple[str, ...] = compiled_or_error(pattern).find_all(text, limit)
    return found


FUNCTIONS: Final = (
    Function("find", (member("string_find_string", (STRING, STRING), STRING, _find),)),
    Function(
        "findAll",
        (
            member("string_find_all_string", (STRING, STRING), list_of(STRING), _find_all, metered=True),
            member("string_find_all_string_int", (STRING, STRING, INT), list_of(STRING), _find_all, metered=True),
        ),
    ),
)
