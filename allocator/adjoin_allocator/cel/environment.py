"""What a device selector can name: functions of all libraries, the device, and types.

Comes in: nothing. Goes out: constant tables. This is Kubernetes 1.37's environment for stored selectors, which also
takes everything that 1.34 to 1.36 took, with consumable capacity and list attributes switched on.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from adjoin_allocator.cel.declarations import Function, overload
from adjoin_allocator.cel.library import (
    authorization,
    conversions,
    lists,
    network,
    operators,
    optionals,
    quantities,
    regexes,
    strings,
    times,
)
from adjoin_allocator.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    NULL,
    QUANTITY,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
    variable,
)

_K: Final = variable("K")
_V: Final = variable("V")
_MAP: Final = map_of(_K, _V)

_INSERT: Final = Function(
    "cel.@mapInsert",
    (
        overload("@mapInsert_map_key_value", (_MAP, _K, _V), _MAP),
        overload("@mapInsert_map_map", (_MAP, _MAP), _MAP),
    ),
)


def _merged() -> dict[str, Function]:
    """One function a name; a name that several libraries declare has all their overloads, in the order of the
    libraries."""
    merged: dict[str, Function] = {}
    libraries = (
        operators,
        conversions,
        strings,
        times,
        regexes,
        authorization,
        optionals,
        quantities,
        network,
        lists,
    )
    for function in chain((_INSERT,), *(library.FUNCTIONS for library in libraries)):
        earlier = merged.get(function.name)
        if earlier is not None:
            function = Function(function.name, earlier.overloads + function.overloads)
        merged[function.name] = function
    return merged


FUNCTIONS: Final = _merged()
"""By name."""

DEVICE_FIELDS: Final = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
"""What can be selected from `device`."""

_TYPES: Final = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "google.protobuf.Duration": DURATION,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "net.CIDR": CIDR,
    "net.IP": IP,
    "null_type": NULL,
    "optional_type": optional_of(DYN),
    "string": STRING,
    "google.protobuf.Timestamp": TIMESTAMP,
    "type": Type(TYPE, "type"),
    "uint": UINT,
}

NAMES: Final = {"device": DEVICE, **{name: type_of(type_) for name, type_ in _TYPES.items()}}
"""Types of all names that mean something by themselves."""
