"""Compiled forms of list and map literals that have optional parts or parts that only the evaluation knows.

Comes in: compiled parts. Goes out: a compiled expression.
"""

from __future__ import annotations

from typing import Any

from adjoin_allocator.cel.frame import Frame, Run
from adjoin_allocator.cel.values import NONE, MapValue, Optional, no_overload, storage_key


def literal_list(elements: list[Run], optional: frozenset[int]) -> Run:
    """`[a, ?b]`; `optional` holds the positions of elements that are left out when they are none."""

    def run(frame: Frame) -> tuple[Any, ...]:
        values: list[Any] = []
        for position, element in enumerate(elements):
            value = element(frame)
            if position in optional:
                if type(value) is not Optional:
                    raise no_overload("[?]", value)
                if value is NONE:
                    continue
                value = value.value
            values.append(value)
        return tuple(values)

    return run


def literal_map(parts: list[tuple[Run, Run, bool]]) -> Run:
    """`{key: value, ?key: value}`, of (key, value, whether it is optional)."""

    def run(frame: Frame) -> MapValue:
        entries: dict[object, tuple[Any, Any]] = {}
        for key_of, value_of, optional in parts:
            key, value = key_of(frame), value_of(frame)
            storage = storage_key(key)
            if optional:
                if type(value) is not Optional:
                    raise no_overload("{?}", value)
                if value is NONE:
                    entries.pop(storage, None)
                    continue
                value = value.value
            entries[storage] = (key, value)
        return MapValue(entries)

    return run
