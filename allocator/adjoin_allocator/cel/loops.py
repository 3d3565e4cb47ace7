"""Compiled forms of the macros that go through a list or a map.

Comes in: the compiled range and body, and the slots that the loop's variables have in the frame. Goes out: a compiled
expression. What each turn means is CEL's definition: `all` and `exists` let a deciding element win over one that
fails, the others fail with the first that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.frame import METER, UNSET, Frame, Run
from adjoin_allocator.cel.values import DomainsValue, MapValue, is_list, no_overload, storage_key, type_name

Turns = Callable[[Frame], Iterator[None]]


@dataclass(frozen=True, slots=True)
class Loop:
    """What all loops have: the range and the slots of one or two variables (-1 for a second that is not there)."""

    range: Run
    slot: int
    slot2: int

    def turns(self) -> Turns:
        """Sets the variables and yields, once for every element, and meters each turn."""
        return _single(self.range, self.slot) if self.slot2 < 0 else _double(self.range, self.slot, self.slot2)


def _not_a_range(value: Any) -> EvaluationError:
    return EvaluationError(f"{type_name(value)} cannot be gone through")


def _single(range_: Run, slot: int) -> Turns:
    def turns(frame: Frame) -> Iterator[None]:
        values = range_(frame)
        if not is_list(values) and type(values) is not MapValue and type(values) is not DomainsValue:
            raise _not_a_range(values)
        meter = frame[METER]
        for value in values:
            meter.spend(1)
            frame[slot] = value
            yield

    return turns


def _double(range_: Run, slot: int, slot2: int) -> Turns:
    def turns(frame: Frame) -> Iterator[None]:
        values = range_(frame)
        pairs: Iterable[tuple[Any, Any]]
        if is_list(values):
            pairs = enumerate(values)
        elif type(values) is MapValue or type(values) is DomainsValue:
            pairs = values.items()
        else:
            raise _not_a_range(values)
        meter = frame[METER]
        for first, second in pairs:
            meter.spend(1)
            frame[slot] = first
            frame[slot2] = second
            yield

    return turns


def quantifier(loop: Loop, test: Run, decisive: bool) -> Run:
    """`exists` (decisive True) or `all` (decisive False)."""
    turns = loop.turns()
    passive = not decisive
    symbol = "exists" if decisive else "all"

    def run(frame: Frame) -> Any:
        failure: EvaluationError | None = None
        for _ in turns(frame):
            try:
                value = test(frame)
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if value is not passive:
                failure = failure or no_overload(symbol, value)
        if failure is not None:
            raise failure
        return passive

    return run


def exists_one(loop: Loop, test: Run) -> Run:
    """`exists_one`: never cut short."""
    turns = loop.turns()

    def run(frame: Frame) -> bool:
        found = 0
        for _ in turns(frame):
            value = test(frame)
            if value is True:
                found += 1
            elif value is not False:
                raise no_overload("exists_one", value)
        return found == 1

    return run


def _kept(keep: Run, frame: Frame) -> bool:
    value = keep(frame)
    if value is not True and value is not False:
        raise no_overload("? :", value)
    return value is True


def collect(loop: Loop, body: Run, keep: Run | None) -> Run:
    """`map`, `filter` and `transformList`."""
    turns = loop.turns()

    def run(frame: Frame) -> tuple[Any, ...]:
        return tuple([body(frame) for _ in turns(frame) if keep is None or _kept(keep, frame)])

    return run


def insert(loop: Loop, body: Run, keep: Run | None, key: Run | None) -> Run:
    """`transformMap` and, without `key`, `transformMapEntry`."""
    turns = loop.turns()

    def run(frame: Frame) -> MapValue:
        result = MapValue({})
        for _ in turns(frame):
            if keep is not None and not _kept(keep, frame):
                continue
            value = body(frame)
            if key is not None:
                _put(result, key(frame), value)
                continue
            if type(value) is not MapValue and type(value) is not DomainsValue:
                raise no_overload("transformMapEntry", value)
            for entry_key, entry_value in value.items():
                _put(result, entry_key, entry_value)
        return result

    return run


def _put(target: MapValue, key: Any, value: Any) -> None:
    if target.find(key) is not None:
        raise EvaluationError("a map cannot have a key twice")
    target.entries[storage_key(key)] = (key, value)


def bind(slot: int, result: Run) -> Run:
    """`cel.bind` around `result`: the variable has no value until it is used."""

    def run(frame: Frame) -> Any:
        frame[slot] = UNSET
        return result(frame)

    return run


def bound(slot: int, value: Run) -> Run:
    """A use of a variable of `cel.bind`."""

    def run(frame: Frame) -> Any:
        known = frame[slot]
        if known is UNSET:
            known = frame[slot] = value(frame)
        return known

    return run
