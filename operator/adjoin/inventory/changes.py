"""What is different between two mappings whose values are replaced and never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def updated(before: Mapping[K, V], keys: Iterable[K], values: Mapping[K, V]) -> Mapping[K, V]:
    """`before` with what `values` say of `keys`, a key without a value taken out; the same object when that changes
    nothing."""
    changed = [key for key in keys if before.get(key) is not values.get(key)]
    if not changed:
        return before
    after = dict(before)
    for key in changed:
        if key in values:
            after[key] = values[key]
        else:
            del after[key]
    return after
