"""Quantities in words: cores and bytes as Kubernetes writes them, and numbers of things."""

from __future__ import annotations

_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def counted(count: int, noun: str) -> str:
    """`1 replica`, `2 replicas`: a number with its noun, in the plural where it is not one."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def cores(milli: int) -> str:
    """`96`, `500m`: thousandths of a core."""
    return f"{milli // 1000}" if milli % 1000 == 0 else f"{milli}m"


def size(amount: int) -> str:
    """`1Ti`, `68Mi`: bytes, in the largest unit in which they are whole; beyond a mebibyte odd ones are cut off."""
    unit = 0
    if amount >= 1 << 20 and amount % (1 << 20):
        amount -= amount % (1 << 20)
    while amount and amount % 1024 == 0 and unit < len(_UNITS) - 1:
        amount //= 1024
        unit += 1
    return f"{amount}{_UNITS[unit]}"


def needed(amount: int) -> str:
    """The same of what is asked for: beyond a mebibyte odd bytes count as one more, so that a need that is larger than
    what is left by a byte does not look equal to it.
    """
    return size(amount if amount < 1 << 20 else -(-amount >> 20 << 20))
