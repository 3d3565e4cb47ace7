"""What stands between the quotes of a string or bytes literal, decoded.

Comes in: the raw text between the quotes. Goes out: text, or bytes for a bytes literal. An escape that CEL does not
know is refused.
"""

from __future__ import annotations

from typing import Final

from adjoin_allocator.cel.errors import Refusal

_SIMPLE: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "?": "?",
    "`": "`",
}
_HEX_LENGTH: Final = {"x": 2, "X": 2, "u": 4, "U": 8}


def decode_literal(body: str, raw: bool, is_bytes: bool, offset: int) -> tuple[str, bytes]:
    """(text, bytes) of a literal; the one that does not apply is empty. Line ends become `\\n`."""
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    if raw or "\\" not in body:
        return ("", body.encode()) if is_bytes else (body, b"")
    if is_bytes:
        return "", b"".join(_pieces(body, offset, bytes_literal=True))
    return b"".join(_pieces(body, offset, bytes_literal=False)).decode(), b""


def _pieces(body: str, offset: int, bytes_literal: bool) -> list[bytes]:
    pieces: list[bytes] = []
    position = 0
    while True:
        backslash = body.find("\\", position)
        if backslash < 0:
            pieces.append(body[position:].encode())
            return pieces
        pieces.append(body[position:backslash].encode())
        letter = body[backslash + 1 : backslash + 2]
        simple = _SIMPLE.get(letter)
        if simple is not None:
            pieces.append(simple.encode())
            position = backslash + 2
            continue
        if letter in _HEX_LENGTH:
            length, base, digits_at = _HEX_LENGTH[letter], 16, backslash + 2
            known = not (bytes_literal and letter in "uU")
        else:
            length, base, digits_at = 3, 8, backslash + 1
            known = letter in ("0", "1", "2", "3")
        digits = body[digits_at : digits_at + length]
        allowed = "0123456789abcdefABCDEF" if base == 16 else "01234567"
        if not known or len(digits) < length or any(digit not in allowed for digit in digits):
            raise Refusal(f"unknown escape \\{letter} in a literal", offset)
        pieces.append(_code(int(digits, base), bytes_literal, offset))
        position = digits_at + length


def _code(value: int, bytes_literal: bool, offset: int) -> bytes:
    if bytes_literal:
        return bytes((value,))
    if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        raise Refusal("an escape names no Unicode character", offset)
    return chr(value).encode()
