"""`'%s has %d'.format(['x', 3])`: how values are written into text.

Comes in: a format string and a list of values. Goes out: text, or `EvaluationError`. The same walk over a format
string serves the check of literal format calls at compile time (`clauses`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from adjoin_allocator.cel.clock import Duration, Timestamp
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.meter import Meter
from adjoin_allocator.cel.numbers import general_text
from adjoin_allocator.cel.values import DomainsValue, MapValue, TypeValue, UInt, is_list, type_name

_VERBS: Final = frozenset("sdfebxXo")
_DEFAULT_PRECISION: Final = 6
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_NOT_FINITE: Final = frozenset(("NaN", "Infinity", "-Infinity"))
_DIGITS: Final = frozenset("0123456789")
_MAX_PRECISION_DIGITS: Final = 18
_MAX_PRECISION: Final = 10_000

_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_QUOTED: Final = str.maketrans(_ESCAPES)


class Clause(NamedTuple):
    """One piece of a format string: text to copy, or a verb with its precision."""

    text: str
    verb: str = ""
    precision: int | None = None


def clauses(pattern: str) -> Iterator[Clause]:
    """The pieces of a format string. Raises `EvaluationError` where it is malformed."""
    position = 0
    while position < len(pattern):
        percent = pattern.find("%", position)
        if percent < 0:
            yield Clause(pattern[position:])
            return
        if percent > position:
            yield Clause(pattern[position:percent])
        if pattern.startswith("%%", percent):
            yield Clause("%")
            position = percent + 2
            continue
        verb_at, precision = _precision(pattern, percent + 1)
        verb = pattern[verb_at : verb_at + 1]
        if verb not in _VERBS:
            raise EvaluationError(f"format: unknown clause %{verb}")
        yield Clause("", verb, precision)
        position = verb_at + 1


def _precision(pattern: str, position: int) -> tuple[int, int | None]:
    if pattern[position : position + 1] != ".":
        return position, None
    stop = position + 1
    while pattern[stop : stop + 1] in _DIGITS:
        stop += 1
    digits = pattern[position + 1 : stop]
    if not digits or len(digits) > _MAX_PRECISION_DIGITS:
        raise EvaluationError("format: bad precision")
    return stop, int(digits)


def format_text(meter: Meter, pattern: str, values: tuple[Any, ...]) -> str:
    """`pattern.format(values)`."""
    pieces: list[str] = []
    used = 0
    for clause in clauses(pattern):
        if not clause.verb:
            pieces.append(clause.text)
            continue
        if used >= len(values):
            raise EvaluationError(f"format: there is no value number {used + 1}")
        piece = _formatted(clause, values[used])
        meter.spend_on_text(len(piece))
        pieces.append(piece)
        used += 1
    return "".join(pieces)


def _formatted(clause: Clause, value: Any) -> str:
    verb = clause.verb
    if verb == "s":
        return _text(value)
    if verb == "d":
        return _whole(value, verb, "d")
    if verb in "fe":
        return _floating(clause, value)
    if verb == "b":
        return str(int(value)) if type(value) is bool else _whole(value, verb, "b")
    if verb == "o":
        return _whole(value, verb, "o")
    if type(value) is str or type(value) is bytes:
        data = value.encode() if isinstance(value, str) else value
        return data.hex() if verb == "x" else data.hex().upper()
    return _whole(value, verb, verb)


def _mismatch(verb: str, value: Any) -> EvaluationError:
    return EvaluationError(f"format: %{verb} does not take {type_name(value)}")


def _whole(value: Any, verb: str, specification: str) -> str:
    if type(value) is not int and type(value) is not UInt:
        raise _mismatch(verb, value)
    return format(int(value), specification)


def _floating(clause: Clause, value: Any) -> str:
    """Doubles as an English reader expects them: grouped thousands, powers of ten written out."""
    if type(value) is str and value in _NOT_FINITE:
        value = float(value.replace("Infinity", "inf"))
    if type(value) is not float:
        raise _mismatch(clause.verb, value)
    precision = _DEFAULT_PRECISION if clause.precision is None else clause.precision
    if precision > _MAX_PRECISION:
        raise EvaluationError("format: the precision is too large")
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")
        return shown.rjust(precision) if clause.verb == "e" else shown
    if value == 0:
        value = 0.0
    if clause.verb == "f":
        return f"{value:,.{precision}f}"
    # Kubernetes takes what stands behind the point for a width here; decimals are always six.
    mantissa, _, power = f"{value:.6e}".partition("e")
    exponent = f"{int(power):03d}" if power.startswith("-") else f"{int(power):02d}"
    return f"{mantissa}×10{exponent.translate(_SUPERSCRIPT)}".rjust(precision)


def _text(value: Any) -> str:
    kind = type(value)
    if is_list(value):
        return f"[{', '.join(map(_literal, value))}]"
    if kind is MapValue or kind is DomainsValue:
        return _map(value)
    if value is None:
        return "null"
    if kind is TypeValue:
        return str(value.name)
    if kind is float:
        return general_text(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is UInt:
        return str(int(value))
    if kind is str:
        return str(value)
    if kind is bytes:
        try:
            return str(value.decode())
        except UnicodeDecodeError as error:
            raise EvaluationError("format: these bytes are no UTF-8") from error
    if kind is Duration or kind is Timestamp:
        return str(value.text())
    raise _mismatch("s", value)


def _map(value: MapValue) -> str:
    pairs = sorted((_key(key), _literal(element)) for key, element in value.items())
    return f"{{{', '.join(f'{key}:{element}' for key, element in pairs)}}}"


def _key(key: Any) -> str:
    if type(key) not in (str, bool, int, UInt):
        raise _mismatch("s", key)
    return _literal(key)


def _literal(value: Any) -> str:
    """A value inside a list or map: nearly as it would be written in an expression."""
    kind = type(value)
    if kind is str:
        return go_quoted(value)
    if kind is bytes:
        return f"b{go_quoted(_text(value))}"
    if kind is float:
        if not math.isfinite(value):
            return f'"{general_text(value)}"'
        return f"{value:.6f}"
    if kind is Duration:
        return f'duration("{value.text()}")'
    if kind is Timestamp:
        return f'timestamp("{value.text()}")'
    return _text(value)


def go_quoted(text: str) -> str:
    """Text in double quotes with everything escaped that is not printable, as Go's %q does."""
    pieces: list[str] = []
    for char in text:
        escaped = _ESCAPES.get(char)
        if escaped is not None:
            pieces.append(escaped)
        elif char.isprintable():
            pieces.append(char)
        elif char < " " or char == "\x7f":
            pieces.append(f"\\x{ord(char):02x}")
        else:
            pieces.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
    return f'"{"".join(pieces)}"'


def quote_text(text: str) -> str:
    """`strings.quote(text)`: in double quotes, with the usual escapes and nothing else."""
    return f'"{text.translate(_QUOTED)}"'
