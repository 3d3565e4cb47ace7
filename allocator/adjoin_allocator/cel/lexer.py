"""The text of an expression cut into tokens.

Comes in: source text. Goes out: a list of tokens that ends with an END token; string and bytes tokens carry their
decoded value, numbers their text. White space and `//` comments are dropped. What is no token is refused with its
place; the parser never sees it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from adjoin_allocator.cel.errors import Refusal
from adjoin_allocator.cel.quoting import decode_literal

# Kinds of tokens. Punctuation and the words `in`, `true`, `false`, `null` are their own kind.
IDENT: Final = "name"
ESCAPED: Final = "`name`"
INT: Final = "int"
UINT: Final = "uint"
FLOAT: Final = "double"
STRING: Final = "string"
BYTES: Final = "bytes"
END: Final = "end of expression"

_WORDS: Final = frozenset(("in", "true", "false", "null"))
_TWO: Final = frozenset(("==", "!=", "<=", ">=", "&&", "||"))
_ONE: Final = frozenset("<>[]{}().,-!?:+*/%")
_DIGITS: Final = frozenset("0123456789")
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_NAME_START: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_NAME: Final = _NAME_START | _DIGITS
_ESCAPED_NAME: Final = _NAME | frozenset(".-/ ")
_BLANK: Final = frozenset(" \t\r\n\f")


class Token(NamedTuple):
    """One token: its kind, its text or decoded value, and the offset of its first character."""

    kind: str
    text: str
    offset: int
    data: bytes = b""


def tokenize(source: str) -> list[Token]:
    """All tokens of `source`, END last. Raises `Refusal`."""
    tokens: list[Token] = []
    position, end = 0, len(source)
    while position < end:
        first = source[position]
        if first in _BLANK:
            position += 1
        elif first in _NAME_START:
            stop = _run(source, position + 1, _NAME)
            word = source[position:stop]
            if stop < end and source[stop] in "'\"" and word.lower() in ("r", "b", "br"):
                token, position = _string(source, position, stop)
                tokens.append(token)
            else:
                tokens.append(Token(word if word in _WORDS else IDENT, word, position))
                position = stop
        elif first in "'\"":
            token, position = _string(source, position, position)
            tokens.append(token)
        elif first in _DIGITS or (first == "." and source[position + 1 : position + 2] in _DIGITS):
            token, position = _number(source, position)
            tokens.append(token)
        elif source.startswith("//", position):
            newline = source.find("\n", position)
            position = end if newline < 0 else newline
        elif source[position : position + 2] in _TWO:
            pair = source[position : position + 2]
            tokens.append(Token(pair, pair, position))
            position += 2
        elif first in _ONE:
            tokens.append(Token(first, first, position))
            position += 1
        elif first == "`":
            stop = _run(source, position + 1, _ESCAPED_NAME)
            if stop == position + 1 or source[stop : stop + 1] != "`":
                raise Refusal("a name between ` has letters, digits and . _ - / only", position)
            tokens.append(Token(ESCAPED, source[position + 1 : stop], position))
            position = stop + 1
        else:
            raise Refusal(f"unexpected character {first!r}", position)
    tokens.append(Token(END, "", end))
    return tokens


def _run(source: str, position: int, allowed: frozenset[str]) -> int:
    """The first offset at or after `position` whose character is not allowed."""
    end = len(source)
    while position < end and source[position] in allowed:
        position += 1
    return position


def _number(source: str, start: int) -> tuple[Token, int]:
    if source.startswith("0x", start) and source[start + 2 : start + 3] in _HEX_DIGITS:
        return _whole(source, start, _run(source, start + 2, _HEX_DIGITS))
    stop = _run(source, start, _DIGITS)
    kind = INT
    # A point belongs to the number only with a digit behind it: `1.size()` is a call on 1.
    if source[stop : stop + 1] == "." and source[stop + 1 : stop + 2] in _DIGITS:
        stop = _run(source, stop + 1, _DIGITS)
        kind = FLOAT
    if source[stop : stop + 1] in ("e", "E"):
        power = stop + 2 if source[stop + 1 : stop + 2] in ("+", "-") else stop + 1
        if source[power : power + 1] in _DIGITS:
            stop = _run(source, power, _DIGITS)
            kind = FLOAT
    if kind == INT:
        return _whole(source, start, stop)
    return Token(FLOAT, source[start:stop], start), stop


def _whole(source: str, start: int, stop: int) -> tuple[Token, int]:
    if source[stop : stop + 1] in ("u", "U"):
        return Token(UINT, source[start:stop], start), stop + 1
    return Token(INT, source[start:stop], start), stop


def _string(source: str, start: int, quote_at: int) -> tuple[Token, int]:
    prefix = source[start:quote_at].lower()
    raw = "r" in prefix
    quote = source[quote_at]
    if source.startswith(quote * 3, quote_at):
        stop = _closing(source, quote_at + 3, quote * 3, raw)
        if stop >= 0:
            body = source[quote_at + 3 : stop]
            return _literal(body, prefix, raw, start), stop + 3
        # What opens like a long string and never closes is the empty string and then some.
    stop = _closing(source, quote_at + 1, quote, raw)
    newline = next((i for i in range(quote_at + 1, stop) if source[i] in "\r\n"), -1)
    if stop < 0 or newline >= 0:
        raise Refusal("this string is not closed", start)
    return _literal(source[quote_at + 1 : stop], prefix, raw, start), stop + 1


def _closing(source: str, position: int, quote: str, raw: bool) -> int:
    """Where the closing quote begins, or -1. In a raw string a backslash protects nothing."""
    while True:
        found = source.find(quote, position)
        if found < 0 or raw:
            return found
        backslash = source.find("\\", position, found)
        if backslash < 0:
            return found
        position = backslash + 2


def _literal(body: str, prefix: str, raw: bool, start: int) -> Token:
    text, data = decode_literal(body, raw, "b" in prefix, start)
    if "b" in prefix:
        return Token(BYTES, "", start, data)
    return Token(STRING, text, start)
