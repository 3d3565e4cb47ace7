"""Durations and points in time, to the nanosecond, with Go's way of writing them.

Comes in: text. Goes out: `Duration` (a span, a whole number of nanoseconds) and `Timestamp` (a point in time with the
offset it was written with). No clock is read here; there is no `now` in a selector.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.numbers import decimal_text
from adjoin_allocator.cel.values import INT_MAX, INT_MIN

SECOND: Final = 1_000_000_000
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_SECONDS: Final = -62_135_596_800
_MAX_SECONDS: Final = 253_402_300_799
_DIGITS: Final = frozenset("0123456789")


class Duration(int):
    """A span of time in nanoseconds, within 64 bits."""

    __slots__ = ()
    cel_type: ClassVar[str] = "google.protobuf.Duration"
    ordered: ClassVar[bool] = True

    @classmethod
    def of(cls, nanoseconds: int) -> Duration:
        """A span of that length. Raises `EvaluationError` beyond about 292 years."""
        if not INT_MIN <= nanoseconds <= INT_MAX:
            raise EvaluationError("duration overflow")
        return cls(nanoseconds)

    def is_zero(self) -> bool:
        """Whether it has no length."""
        return self == 0

    def text(self) -> str:
        """Seconds, like `90.5s`."""
        return f"{decimal_text(int(self) / SECOND)}s"

    def whole(self, unit: int) -> int:
        """How many whole units it holds, cut off towards zero."""
        count = abs(int(self)) // unit
        return count if self >= 0 else -count


def parse_duration(text: str) -> Duration:
    """`1h30m`, `-1.5s`, `0`: a sign, then numbers with units. Raises `EvaluationError`."""
    sign, rest = (text[0], text[1:]) if text[:1] in ("-", "+") else ("", text)
    if rest == "0":
        return Duration(0)
    total = 0
    position = 0
    while position < len(rest) or not rest:
        stop = position
        while stop < len(rest) and (rest[stop] in _DIGITS or rest[stop] == "."):
            stop += 1
        whole, point, fraction = rest[position:stop].partition(".")
        unit_stop = stop
        while unit_stop < len(rest) and rest[unit_stop] not in _DIGITS and rest[unit_stop] != ".":
            unit_stop += 1
        unit = _UNITS.get(rest[stop:unit_stop])
        if unit is None or "." in fraction or not (whole or fraction):
            raise EvaluationError(f"{text!r} is no duration")
        total += int(whole or "0") * unit
        if point and fraction:
            # Go computes this part in floating point, with what digits fit into 64 bits.
            digits = fraction[:18]
            total += int(float(int(digits)) * (float(unit) / 10.0 ** len(digits)))
        position = unit_stop
    total = -total if sign == "-" else total
    if not INT_MIN <= total <= INT_MAX:
        raise EvaluationError(f"{text!r} is no duration: too long")
    return Duration(total)


class Timestamp:
    """A point in time between the years 1 and 9999. Two are equal when they are the same instant, however they were
    written.

    Attributes:
        nanoseconds: Since 1970-01-01T00:00:00Z.
        offset: Seconds east of UTC of the notation.
    """

    __slots__ = ("nanoseconds", "offset")
    cel_type: ClassVar[str] = "google.protobuf.Timestamp"
    ordered: ClassVar[bool] = True

    def __init__(self, nanoseconds: int, offset: int = 0) -> None:
        if not _MIN_SECONDS <= nanoseconds // SECOND <= _MAX_SECONDS:
            raise EvaluationError("timestamp overflow")
        self.nanoseconds = nanoseconds
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanoseconds == other.nanoseconds

    def __lt__(self, other: Timestamp) -> bool:
        return self.nanoseconds < other.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def seconds(self) -> int:
        """Whole seconds since 1970, rounded down."""
        return self.nanoseconds // SECOND

    def is_zero(self) -> bool:
        """Whether it is the very first instant that there is."""
        return self.nanoseconds == _MIN_SECONDS * SECOND

    def plus(self, span: int) -> Timestamp:
        """The instant that many nanoseconds later."""
        return Timestamp(self.nanoseconds + span, self.offset)

    def local(self, zone: tzinfo) -> datetime:
        """The wall clock there, without the nanoseconds. Raises `EvaluationError` at the edges of the calendar."""
        try:
            return (_EPOCH + timedelta(seconds=self.seconds())).astimezone(zone)
        except (OverflowError, ValueError) as error:
            raise EvaluationError("this time is outside the calendar in that zone") from error

    def text(self) -> str:
        """RFC 3339 with as many decimals as needed, in the offset it was written with."""
        wall = self.local(timezone(timedelta(seconds=self.offset)))
        decimals = f"{self.nanoseconds % SECOND:09d}".rstrip("0")
        stamp = wall.strftime("%m-%dT%H:%M:%S")
        minutes = abs(self.offset) // 60
        zone = f"{'-' if self.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}" if self.offset else "Z"
        return f"{wall.year:04d}-{stamp}{'.' if decimals else ''}{decimals}{zone}"


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339 as Go reads it. Raises `EvaluationError`."""
    try:
        year, month, day = _digits(text, 0, 4), _digits(text, 5, 2), _digits(text, 8, 2)
        # Go lets an hour have one digit.
        hour_length = 1 if text[12] == ":" else 2
        at = 11 + hour_length
        hour, minute, second = _digits(text, 11, hour_length), _digits(text, at + 1, 2), _digits(text, at + 4, 2)
        if text[4] != "-" or text[7] != "-" or text[10] != "T" or text[at] != ":" or text[at + 3] != ":":
            raise ValueError(text)
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError(text)
        days = date(year, month, day).toordinal() - _EPOCH.toordinal()
        nanoseconds, at = _fraction(text, at + 6)
        offset = _offset(text[at:])
    except (ValueError, IndexError) as error:
        raise EvaluationError(f"{text!r} is no timestamp") from error
    instant = ((days * 24 + hour) * 60 + minute) * 60 + second - offset
    return Timestamp(instant * SECOND + nanoseconds, offset)


def _digits(text: str, start: int, length: int) -> int:
    part = text[start : start + length]
    if len(part) != length or not _DIGITS.issuperset(part):
        raise ValueError(text)
    return int(part)


def _fraction(text: str, at: int) -> tuple[int, int]:
    """(nanoseconds, where the zone begins). Digits beyond nanoseconds are cut off."""
    if text[at : at + 1] not in (".", ",") or text[at + 1 : at + 2] not in _DIGITS:
        return 0, at
    stop = at + 1
    while stop < len(text) and text[stop] in _DIGITS:
        stop += 1
    return int(text[at + 1 : min(stop, at + 10)].ljust(9, "0")), stop


def _offset(zone: str) -> int:
    if zone == "Z":
        return 0
    if len(zone) != 6 or zone[0] not in "+-" or zone[3] != ":":
        raise ValueError(zone)
    hours, minutes = _digits(zone, 1, 2), _digits(zone, 4, 2)
    if hours > 24 or minutes > 60:
        raise ValueError(zone)
    return (hours * 60 + minutes) * (-60 if zone[0] == "-" else 60)


def zone_named(name: str) -> tzinfo:
    """A time zone by its IANA name, or as an offset like `-08:00`. Raises `EvaluationError`."""
    hours, colon, minutes = name.partition(":")
    try:
        if colon:
            span = _signed(hours) * 60
            span += -_signed(minutes) if name.startswith("-") else _signed(minutes)
            return timezone(timedelta(minutes=span))
        return UTC if name in ("", "UTC") else ZoneInfo(name)
    except (ValueError, OSError, LookupError, OverflowError) as error:
        raise EvaluationError(f"{name!r} is no time zone") from error


def _signed(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits or not _DIGITS.issuperset(digits):
        raise ValueError(text)
    return int(text)
