"""What is different between two mappings whose values are replaced and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def changed_keys(before: Mapping[K, V], after: Mapping[K, V]) -> list[K]:
    """Keys whose value is another object than before, or that came or went."""
    if before is after:
        return []
    keys = [key for key, value in after.items() if before.get(key) is not value]
    added = sum(key not in before for key in keys)
    if len(before) + added != len(after):
        keys += [key for key in before if key not in after]
    return keys
