"""Functions on strings. Positions count characters."""

from __future__ import annotations

from typing import Any, Final

from adjoin_allocator.cel.declarations import Function, member, overload
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.formatting import format_text, quote_text
from adjoin_allocator.cel.meter import Meter
from adjoin_allocator.cel.regex import compiled
from adjoin_allocator.cel.types import BOOL, DYN, INT, STRING, list_of
from adjoin_allocator.cel.values import no_overload

_BLANK: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005"
    "\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _texts(function: str, text: Any, other: Any) -> None:
    if type(text) is not str or type(other) is not str:
        raise no_overload(function, text, other)


def _contains(text: Any, part: Any) -> bool:
    _texts("contains", text, part)
    return part in text


def _starts_with(text: Any, start: Any) -> bool:
    _texts("startsWith", text, start)
    return bool(text.startswith(start))


def _ends_with(text: Any, end: Any) -> bool:
    _texts("endsWith", text, end)
    return bool(text.endswith(end))


def _matches(text: Any, pattern: Any) -> bool:
    _texts("matches", text, pattern)
    return bool(compiled_or_error(pattern).matches(text))


def compiled_or_error(pattern: str) -> Any:
    """The compiled pattern; what is no pattern is an error of the evaluation."""
    try:
        return compiled(pattern)
    except ValueError as error:
        raise EvaluationError(str(error)) from error


def _outside(position: int) -> EvaluationError:
    return EvaluationError(f"position {position} is outside the text")


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _outside(position)
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _outside(start)
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    if not part:
        return len(text)
    return -1 if len(text.encode()) < len(part.encode()) else _last_index_of_before(text, part, len(text) - 1)


def _last_index_of_before(text: str, part: str, start: int) -> int:
    if start < 0:
        raise _outside(start)
    if not part:
        return min(start, len(text))
    if start >= len(text):
        return -1
    return text.rfind(part, 0, start + len(part))


def _lower(text: str) -> str:
    return text.translate(_LOWER)


def _upper(text: str) -> str:
    return text.translate(_UPPER)


def _replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    found = text.count(old)
    count = found if limit < 0 else min(found, limit)
    meter.spend_on_text(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


def _split(meter: Meter, text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    if limit == 0:
        return ()
    if separator:
        parts = text.split(separator, limit - 1 if limit > 0 else -1)
    elif limit < 0 or limit >= len(text):
        parts = list(text)
    else:
        parts = [*text[: limit - 1], text[limit - 1 :]]
    meter.spend_on_list(len(parts))
    return tuple(parts)


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _outside(start)
    return text[start:]


def _substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"a substring from {start} to {end} runs backwards")
    if not (0 <= start <= len(text) and 0 <= end <= len(text)):
        raise _outside(start if not 0 <= start <= len(text) else end)
    return text[start:end]


def _trim(text: str) -> str:
    return text.strip(_BLANK)


def _join(meter: Meter, parts: tuple[Any, ...], separator: str = "") -> str:
    if any(type(part) is not str for part in parts):
        raise EvaluationError("join() takes a list of strings")
    meter.spend_on_text(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


FUNCTIONS: Final = (
    Function("contains", (member("contains_string", (STRING, STRING), BOOL, _contains),), unguarded=True),
    Function("endsWith", (member("ends_with_string", (STRING, STRING), BOOL, _ends_with),), unguarded=True),
    Function("startsWith", (member("starts_with_string", (STRING, STRING), BOOL, _starts_with),), unguarded=True),
    Function(
        "matches",
        (overload("matches", (STRING, STRING), BOOL), member("matches_string", (STRING, STRING), BOOL)),
        _matches,
    ),
    Function("charAt", (member("string_char_at_int", (STRING, INT), STRING, _char_at),)),
    Function(
        "indexOf",
        (
            member("string_index_of_string", (STRING, STRING), INT, _index_of),
            member("string_index_of_string_int", (STRING, STRING, INT), INT, _index_of),
        ),
    ),
    Function(
        "lastIndexOf",
        (
            member("string_last_index_of_string", (STRING, STRING), INT, _last_index_of),
            member("string_last_index_of_string_int", (STRING, STRING, INT), INT, _last_index_of_before),
        ),
    ),
    Function("lowerAscii", (member("string_lower_ascii", (STRING,), STRING, _lower),)),
    Function(
        "replace",
        (
            member("string_replace_string_string", (STRING, STRING, STRING), STRING, _replace, metered=True),
            member("string_replace_string_string_int", (STRING, STRING, STRING, INT), STRING, _replace, metered=True),
        ),
    ),
    Function(
        "split",
        (
            member("string_split_string", (STRING, STRING), list_of(STRING), _split, metered=True),
            member("string_split_string_int", (STRING, STRING, INT), list_of(STRING), _split, metered=True),
        ),
    ),
    Function(
        "substring",
        (
            member("string_substring_int", (STRING, INT), STRING, _substring),
            member("string_substring_int_int", (STRING, INT, INT), STRING, _substring_range),
        ),
    ),
    Function("trim", (member("string_trim", (STRING,), STRING, _trim),)),
    Function("upperAscii", (member("string_upper_ascii", (STRING,), STRING, _upper),)),
    Function("format", (member("string_format", (STRING, list_of(DYN)), STRING, format_text, metered=True),)),
    Function("strings.quote", (overload("strings_quote", (STRING,), STRING, quote_text),)),
    Function(
        "join",
        (
            member("list_join", (list_of(STRING),), STRING, _join, metered=True),
            member("list_join_string", (list_of(STRING), STRING), STRING, _join, metered=True),
        ),
    ),
)
