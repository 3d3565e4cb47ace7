"""Where hardware partitions (MIG) may lie on a device: a table for each product, built in or given.

In come a product's name and memory, or the entries of a table; out comes its `Geometry`: how many memory and compute
slices there are, and of each profile at which slices a partition may begin and what it takes. Nothing here knows which
partitions exist, or chooses.

Sources: NVIDIA, Multi-Instance GPU User Guide (supported GPUs, supported profiles, placements as listed by `nvidia-smi
mig -lgipp`), and the tables that NVIDIA's mig-parted ships for boards that the guide does not list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

MILLI = 1000
"""Thousandths of a whole device."""

MEDIA = "+me"
"""Profiles with this end take the media engines that there is one set of."""

GEOMETRIES = 256
"""Of how many given tables the geometry is remembered."""

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of partition.

    Attributes:
        name: Such as `3g.40gb`.
        starts: First memory slices at which it may begin, in order.
        size: Memory slices that it takes, from its first one on.
        compute: Compute slices that it takes.
        most: Most of it on one device; None: as many as fit.
        group: Profiles of one group count together towards `most`, as they share what there is little of. Empty: it
            counts alone.
    """

    name: str
    starts: tuple[int, ...]
    size: int
    compute: int
    most: int | None = None
    group: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """What a device can be divided into. Two are the same only if they are one object.

    Attributes:
        slices: Memory slices.
        compute: Compute slices.
        profiles: By name.
    """

    slices: int
    compute: int
    profiles: Mapping[str, Profile]

    def cost_milli(self, profile: str) -> int:
        """What a partition costs of a quota: its largest fraction of the device in thousandths, rounded up."""
        known = self.profiles[profile]
        return max(-(-known.size * MILLI // self.slices), -(-known.compute * MILLI // self.compute))


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a table that a DeviceShare gives; fields mean what they mean in `Profile`."""

    profile: str
    starts: tuple[int, ...]
    size: int
    compute: int
    most: int | None = None


def _seven(names: str) -> Geometry:
    """Products of seven compute and eight memory slices, by the names of their six profiles, the smallest first. The
    second takes a pair of memory slices with one compute slice.
    """
    small, double, two, three, four, all_of_it = names.split()
    return _geometry(
        8,
        7,
        Profile(small, (0, 1, 2, 3, 4, 5, 6), 1, 1),
        Profile(small + MEDIA, (0, 1, 2, 3, 4, 5, 6), 1, 1, 1, MEDIA),
        Profile(double, (0, 2, 4, 6), 2, 1),
        Profile(two, (0, 2, 4), 2, 2),
        Profile(three, (0, 4), 4, 3),
        Profile(four, (0,), 4, 4),
        Profile(all_of_it, (0,), 8, 7),
    )


def _four(names: str) -> Geometry:
    """Products of four slices of each, by the names of their three profiles."""
    one, two, four = names.split()
    return _geometry(
        4,
        4,
        Profile(one, (0, 1, 2, 3), 1, 1),
        Profile(one + MEDIA, (0, 1, 2, 3), 1, 1, 1, MEDIA),
        Profile(two, (0, 2), 2, 2),
        Profile(two + MEDIA, (0, 2), 2, 2, 1, MEDIA),
        Profile(four, (0,), 4, 4),
    )


def _geometry(slices: int, compute: int, *profiles: Profile) -> Geometry:
    return Geometry(slices, compute, MappingProxyType({profile.name: profile for profile in profiles}))


_AMPERE_40 = _seven("1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb")
_GB_80 = _seven("1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb")
_GB_94 = _seven("1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb")
_GB_96 = _seven("1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb")
_GB_141 = _seven("1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb")
_GB_144 = _seven("1g.18gb 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb")

PRODUCTS: Mapping[str, tuple[tuple[int, Geometry | None], ...]] = MappingProxyType(
    {
        "A30": ((24, _four("1g.6gb 2g.12gb 4g.24gb")),),
        "A100": ((40, _AMPERE_40), (80, _GB_80)),
        "A800": ((40, _AMPERE_40), (80, _GB_80)),
        "H100": ((80, _GB_80), (94, _GB_94), (96, _GB_96)),
        "H800": ((80, _GB_80), (94, _GB_94)),
        # The profiles of the larger board are not known for sure.
        "H20": ((96, _GB_96), (141, None)),
        "GH200": ((96, _GB_96), (144, _GB_144)),
        "H200": ((141, _GB_141),),
        "B200": ((180, _seven("1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb")),),
        "GB200": ((186, _seven("1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb")),),
        "B300": ((269, _seven("1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb")),),
        "GB300": ((278, _seven("1g.35gb 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb")),),
    }
)
"""By model the gigabytes by which its boards go (they are gibibytes, rounded up), and what each can be divided into."""

_NVL_GIGABYTES = {"H100": 94, "H800": 94}
"""Boards called NVL whose memory their name does not tell."""

_TOLERATED = 8
"""Of how many parts of its memory a board may show one more or less: error correction and firmware take some."""

_MODEL = re.compile(r"(?<![A-Z0-9])(" + "|".join(PRODUCTS) + r")(?![A-Z0-9])")
_GIGABYTES = re.compile(r"(?<![A-Z0-9])([0-9]{2,3})\s?GI?B?(?![A-Z0-9])")


def built_in(product: str, memory_bytes: int | None) -> Geometry | None:
    """The geometry of a product by the name that NVML gives it, such as `NVIDIA H100 80GB HBM3`; None if unknown.

    Upper and lower case are alike. Where boards of one model differ in memory, the name decides if it tells (the
    gigabytes of GH200's name are its processor's but for the board of 144), else the memory: the nearest board, if it
    is within an eighth. A model of one board needs neither, but a memory that is none of its boards' is refused.
    """
    text = product.upper().replace("-", " ").replace("_", " ")
    models = set(_MODEL.findall(text))
    if len(models) != 1:
        return None
    (model,) = models
    boards = PRODUCTS[model]
    told = {int(found) for found in _GIGABYTES.findall(text)}
    if not told and "NVL" in text.split() and model in _NVL_GIGABYTES:
        told = {_NVL_GIGABYTES[model]}
    for size, geometry in boards:
        if size in told:
            return geometry
    if memory_bytes is None:
        return boards[0][1] if len(boards) == 1 else None
    size, geometry = min(boards, key=lambda board: abs(board[0] * _GIB - memory_bytes))
    return geometry if abs(size * _GIB - memory_bytes) * _TOLERATED <= size * _GIB else None


def custom(table: Iterable[Entry]) -> Geometry:
    """The geometry that a table describes; its order does not matter, and equal tables give one object.

    A device has as many memory slices as the entry that reaches furthest. A table does not say how many compute slices
    there are, and needs not: what it says of places and counts is the whole truth. They are as many as the partitions
    take that can be had beside each other, so that none is refused for them which the table allows, and a whole device
    is what its best division makes of it.
    """
    return _custom(tuple(sorted(table, key=lambda entry: entry.profile)))


@lru_cache(GEOMETRIES)
def _custom(table: tuple[Entry, ...]) -> Geometry:
    profiles = [
        Profile(entry.profile, tuple(sorted(set(entry.starts))), entry.size, entry.compute, entry.most)
        for entry in table
    ]
    slices = max((profile.starts[-1] + profile.size for profile in profiles), default=0)
    # The most compute of partitions that end by each slice: weighted intervals, from left to right.
    best = [0] * (slices + 1)
    for end in range(1, slices + 1):
        best[end] = best[end - 1]
        for profile in profiles:
            if end - profile.size in profile.starts:
                best[end] = max(best[end], best[end - profile.size] + profile.compute)
    return _geometry(slices, best[slices], *profiles)
