"""Parts of timestamps and durations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from adjoin_allocator.cel.clock import SECOND, Duration, Timestamp, zone_named
from adjoin_allocator.cel.declarations import Function, Overload, member
from adjoin_allocator.cel.types import DURATION, INT, STRING, TIMESTAMP

_MILLISECOND: Final = SECOND // 1000


def _part(name: str, id_: str, read: Callable[[datetime, Timestamp], int], *more: Overload) -> Function:
    def part(stamp: Timestamp, zone: str = "UTC") -> int:
        return read(stamp.local(zone_named(zone)), stamp)

    return Function(
        name,
        (
            member(id_, (TIMESTAMP,), INT, part),
            member(f"{id_}_with_tz", (TIMESTAMP, STRING), INT, part),
            *more,
        ),
    )


def _span(id_: str, unit: int) -> Overload:
    def count(span: Duration) -> int:
        return span.whole(unit)

    return member(id_, (DURATION,), INT, count)


FUNCTIONS: Final = (
    _part("getFullYear", "timestamp_to_year", lambda wall, _: wall.year),
    _part("getMonth", "timestamp_to_month", lambda wall, _: wall.month - 1),
    _part("getDayOfYear", "timestamp_to_day_of_year", lambda wall, _: wall.timetuple().tm_yday - 1),
    _part("getDayOfMonth", "timestamp_to_day_of_month", lambda wall, _: wall.day - 1),
    _part("getDate", "timestamp_to_day_of_month_1_based", lambda wall, _: wall.day),
    _part("getDayOfWeek", "timestamp_to_day_of_week", lambda wall, _: wall.isoweekday() % 7),
    _part("getHours", "timestamp_to_hours", lambda wall, _: wall.hour, _span("duration_to_hours", 3600 * SECOND)),
    _part("getMinutes", "timestamp_to_minutes", lambda wall, _: wall.minute, _span("duration_to_minutes", 60 * SECOND)),
    _part("getSeconds", "timestamp_to_seconds", lambda wall, _: wall.second, _span("duration_to_seconds", SECOND)),
    _part(
        "getMilliseconds",
        "timestamp_to_milliseconds",
        lambda _, stamp: stamp.nanoseconds % SECOND // _MILLISECOND,
        _span("duration_to_milliseconds", _MILLISECOND),
    ),
)
