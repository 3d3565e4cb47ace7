"""Partitions of a card by the table of its product, read anew: which can be beside each other, by trying every place.

The tables are those of NVIDIA's Multi-Instance GPU User Guide. Nothing is shared with the allocator but the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from adjoin_allocator import Device, Share


class Row(NamedTuple):
    """One profile: where it may begin, memory slices, compute slices, and how many a card has at most."""

    starts: tuple[int, ...]
    size: int
    compute: int
    most: int = 99


class Table(NamedTuple):
    """One product: its memory and compute slices, and its profiles by name."""

    slices: int
    compute: int
    rows: Mapping[str, Row]


def _seven(*names: str) -> Table:
    shapes = (
        Row((0, 1, 2, 3, 4, 5, 6), 1, 1),
        Row((0, 1, 2, 3, 4, 5, 6), 1, 1, 1),
        Row((0, 2, 4, 6), 2, 1),
        Row((0, 2, 4), 2, 2),
        Row((0, 4), 4, 3),
        Row((0,), 4, 4),
        Row((0,), 8, 7),
    )
    return Table(8, 7, dict(zip(names, shapes, strict=True)))


TABLES = {
    "NVIDIA H100 80GB HBM3": _seven("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "NVIDIA A100-SXM4-40GB": _seven("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "NVIDIA A30": Table(
        4,
        4,
        {
            "1g.6gb": Row((0, 1, 2, 3), 1, 1),
            "1g.6gb+me": Row((0, 1, 2, 3), 1, 1, 1),
            "2g.12gb": Row((0, 2), 2, 2),
            "2g.12gb+me": Row((0, 2), 2, 2, 1),
            "4g.24gb": Row((0,), 4, 4),
        },
    ),
}
"""By product name, of those that tests use."""

Slice = tuple[str, int]
"""A partition: its profile and its first memory slice."""


def table_of(share: Share, device: Device) -> Table | None:
    """The table that counts for a card; None for a product that is none of these."""
    if share.table:
        rows = {each.profile: Row(each.starts, each.size, each.compute, each.most or 99) for each in share.table}
        slices = max(start + row.size for row in rows.values() for start in row.starts)
        return Table(slices, max(_divisions(rows, 0, slices)), rows)
    product = next((value for name, value in device.attributes.items() if name.endswith("/productName")), "")
    return TABLES.get(str(product))


def _divisions(rows: Mapping[str, Row], at: int, slices: int) -> Iterator[int]:
    """The compute of every way to cut the slices from one on, whatever the counts say."""
    yield 0
    for first in range(at, slices):
        for row in rows.values():
            if first in row.starts:
                yield from (row.compute + rest for rest in _divisions(rows, first + row.size, slices))


def flaw(table: Table, slices: Sequence[Slice]) -> str:
    """Why these partitions cannot be beside each other, or ""."""
    taken: set[int] = set()
    compute = media = 0
    for profile, start in slices:
        row = table.rows.get(profile)
        if row is None:
            return f"no profile {profile}"
        if start not in row.starts:
            return f"{profile} may not begin at {start}"
        mine = set(range(start, start + row.size))
        if taken & mine:
            return f"{profile} at {start} lies on another partition"
        taken |= mine
        compute += row.compute
        media += profile.endswith("+me")
        if sum(name == profile for name, _ in slices) > row.most:
            return f"more than {row.most} of {profile}"
    if media > 1:
        return "more than one partition has the media engines"
    return f"{compute} of {table.compute} compute slices" if compute > table.compute else ""


@cache
def _ways(key: tuple[object, ...]) -> tuple[tuple[Slice, ...], ...]:
    """Every way to have open partitions (in order of name) beside fixed ones."""
    slices, compute, rows, fixed, open_ = key
    table = Table(slices, compute, dict(rows))  # type: ignore[arg-type,call-overload]
    if flaw(table, fixed):  # type: ignore[arg-type]
        return ()
    if not open_:
        return (tuple(sorted(fixed)),)  # type: ignore[arg-type]
    first, rest = open_[0], open_[1:]  # type: ignore[index]
    row = table.rows.get(first)
    found: set[tuple[Slice, ...]] = set()
    for start in row.starts if row else ():
        found.update(_ways((slices, compute, rows, tuple(sorted((*fixed, (first, start)))), rest)))  # type: ignore[misc]
    return tuple(sorted(found))


def arrangements(table: Table, fixed: Iterable[Slice], open_: Iterable[str]) -> Iterator[tuple[Slice, ...]]:
    """Every way to have open partitions around fixed ones, fixed ones included."""
    rows = tuple(sorted(table.rows.items()))
    yield from _ways((table.slices, table.compute, rows, tuple(sorted(fixed)), tuple(sorted(open_))))


def can_be(share: Share, table: Table, fixed: Iterable[Slice], open_: Iterable[str]) -> bool:
    """Whether these partitions can be on one card of a share: all of them of its profiles, or within its layout, which
    keeps what is fixed.
    """
    there, wanted = list(fixed), list(open_)
    if not share.layout:
        return all(name in share.profiles for name in wanted) and any(arrangements(table, there, wanted))
    left = dict(share.layout)
    for name in [*(name for name, _ in there), *wanted]:
        left[name] = left.get(name, 0) - 1
    if min(left.values()) < 0:
        return False
    rest = [name for name, number in share.layout.items() for _ in range(number)]
    for name, _ in there:
        rest.remove(name)
    return any(arrangements(table, there, rest))


def partition_fraction(share: Share, device: Device, profile: str) -> Fraction:
    """The largest fraction of a card that a partition is; the whole where the table does not know it."""
    table = table_of(share, device)
    row = None if table is None else table.rows.get(profile)
    return (
        Fraction(1)
        if row is None or table is None
        else max(Fraction(row.size, table.slices), Fraction(row.compute, table.compute))
    )
