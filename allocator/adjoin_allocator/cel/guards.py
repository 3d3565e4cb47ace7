"""Whether a runtime value is of a declared type, as Kubernetes decides it between overloads.

Only the first element of a list or map is looked at; that is what its evaluator does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from adjoin_allocator.cel.addresses import CIDR as CIDRValue
from adjoin_allocator.cel.addresses import IP as IPValue
from adjoin_allocator.cel.clock import Duration, Timestamp
from adjoin_allocator.cel.formats import NamedFormat
from adjoin_allocator.cel.quantity import Quantity
from adjoin_allocator.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    FORMAT,
    INT,
    IP,
    LIST,
    MAP,
    NULL,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    URL,
    VARIABLE,
    Type,
    contains_dyn,
    optional_value,
)
from adjoin_allocator.cel.urls import URL as URLValue
from adjoin_allocator.cel.values import DomainsValue, MapValue, Optional, TypeValue, UInt, is_list
from adjoin_allocator.cel.version import Version

Guard = Callable[[Any], bool]

_CLASSES: Final[dict[Type, type]] = {
    BOOL: bool,
    INT: int,
    UINT: UInt,
    DOUBLE: float,
    STRING: str,
    BYTES: bytes,
    NULL: type(None),
    DURATION: Duration,
    TIMESTAMP: Timestamp,
    QUANTITY: Quantity,
    SEMVER: Version,
    IP: IPValue,
    CIDR: CIDRValue,
    URL: URLValue,
    FORMAT: NamedFormat,
}


def guard_for(wanted: Type, given: Type | None = None) -> Guard | None:
    """Tells whether a value is of the type `wanted`; None where every value is, or where the static type `given` says
    so already."""
    if given == wanted and not contains_dyn(wanted):
        return None
    if wanted.sort == VARIABLE or wanted.name == "dyn":
        return None
    if wanted.sort == LIST:
        return _list_guard(guard_for(wanted.params[0]))
    if wanted.sort == MAP:
        return _map_guard(guard_for(wanted.params[0]), guard_for(wanted.params[1]))
    if wanted.sort == TYPE:
        return lambda value: type(value) is TypeValue
    if optional_value(wanted) is not None:
        return lambda value: type(value) is Optional
    expected = _CLASSES.get(wanted)
    return lambda value: type(value) is expected


def _list_guard(element: Guard | None) -> Guard:
    if element is None:
        return is_list
    return lambda value: is_list(value) and (not value or element(value[0]))


def _map_guard(key: Guard | None, element: Guard | None) -> Guard:
    def guard(value: Any) -> bool:
        if type(value) is not MapValue and type(value) is not DomainsValue:
            return False
        for first, second in value.items():
            return (key is None or key(first)) and (element is None or element(second))
        return True

    return guard
