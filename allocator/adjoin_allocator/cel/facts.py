"""Reads of the device, compiled, with a record of what is read.

Comes in: paths through the device that constants lead along. Goes out: compiled expressions, and in `reads`,
`reads_all`, `reads_driver` and `reads_sharing` everything about a device that the expression can depend on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from adjoin_allocator.cel.device import device_map, domain_map, domains_map, fact_name, has_domain
from adjoin_allocator.cel.errors import EvaluationError
from adjoin_allocator.cel.frame import ATTRIBUTES, CAPACITY, DEVICE, TRACE, Frame, Run, constant
from adjoin_allocator.cel.values import NONE, Optional

_FAMILIES: Final = {"attributes": ATTRIBUTES, "capacity": CAPACITY}


class Path(NamedTuple):
    """Steps from `device`, at most (family, domain, name); `optional` once one of them had a question mark."""

    steps: tuple[str, ...]
    optional: bool = False

    @property
    def is_map(self) -> bool:
        """Whether it leads to a map of domains or of names."""
        return len(self.steps) in (1, 2) and self.steps[0] in _FAMILIES

    def step(self, name: str, optional: bool) -> Path | None:
        """One step on; None where the device ends."""
        if self.steps and not self.is_map:
            return None
        return Path((*self.steps, name), self.optional or optional)


@dataclass(slots=True)
class FactReader:
    """Compiles reads of the device.

    Attributes:
        trace: Every fact that is looked for and not there is put into the frame's set.
        attributes: Names of attributes that are read.
        capacity: Names of capacity that are read.
        reads_all: A map of facts is read as a whole.
        reads_driver: The driver is read.
        reads_sharing: allowMultipleAllocations is read.
    """

    trace: bool = False
    attributes: set[str] = field(default_factory=set)
    capacity: set[str] = field(default_factory=set)
    reads_all: bool = False
    reads_driver: bool = False
    reads_sharing: bool = False

    def value(self, path: Path) -> Run:
        """What the path leads to."""
        if len(path.steps) == 3:
            family, name = self._fact(path)
            if not name:
                return constant(NONE) if path.optional else _never(path)
            return self._optional(family, name) if path.optional else self._required(family, name)
        run = self._container(path.steps)
        return (lambda frame: Optional(run(frame))) if path.optional else run

    def test(self, path: Path) -> Run:
        """`has()` of the path."""
        if len(path.steps) < 3:
            return constant(True)
        family, name = self._fact(path)
        return self._present(family, name) if name else constant(False)

    def contains(self, path: Path, key: str) -> Run:
        """`key in path` of a map of domains or of names."""
        if len(path.steps) == 2:
            family, name = self._fact(Path((*path.steps, key)))
            return self._present(family, name) if name else constant(False)
        self.reads_all = True
        family = _FAMILIES[path.steps[0]]
        return lambda frame: has_domain(frame[family], key)

    def _fact(self, path: Path) -> tuple[int, str]:
        """Where the fact stands and its full name; no name for a fact that cannot be."""
        family, domain, short = path.steps
        name = fact_name(domain, short)
        if name:
            (self.attributes if family == "attributes" else self.capacity).add(name)
        return _FAMILIES[family], name

    def _container(self, steps: tuple[str, ...]) -> Run:
        if not steps:
            self.reads_all = self.reads_driver = self.reads_sharing = True
            return device_map
        if steps == ("driver",):
            self.reads_driver = True
            return lambda frame: frame[DEVICE].driver
        if steps == ("allowMultipleAllocations",):
            self.reads_sharing = True
            return lambda frame: frame[DEVICE].allow_multiple_allocations
        self.reads_all = True
        family = _FAMILIES[steps[0]]
        if len(steps) == 1:
            return lambda frame: domains_map(frame[family])
        domain = steps[1]
        return lambda frame: domain_map(frame[family], domain)

    # ------------------------------------------------------------ single facts

    def _required(self, family: int, name: str) -> Run:
        message = f"{name} is missing"
        if self.trace:

            def traced(frame: Frame) -> Any:
                value = frame[family].get(name)
                if value is None:
                    frame[TRACE].add(name)
                    raise EvaluationError(message, name)
                return value

            return traced

        def run(frame: Frame) -> Any:
            value = frame[family].get(name)
            if value is None:
                raise EvaluationError(message, name)
            return value

        return run

    def _optional(self, family: int, name: str) -> Run:
        trace = self.trace

        def run(frame: Frame) -> Optional:
            value = frame[family].get(name)
            if value is None:
                if trace:
                    frame[TRACE].add(name)
                return NONE
            return Optional(value)

        return run

    def _present(self, family: int, name: str) -> Run:
        if self.trace:

            def traced(frame: Frame) -> bool:
                present = name in frame[family]
                if not present:
                    frame[TRACE].add(name)
                return present

            return traced
        return lambda frame: name in frame[family]


def _never(path: Path) -> Run:
    def run(_: Frame) -> Any:
        raise EvaluationError(f"no such fact: {'/'.join(path.steps[1:])}")

    return run
