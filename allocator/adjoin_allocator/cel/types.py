"""Static types of expressions, with parameters, and when one fits where another is wanted.

A `Type` is a value: equal types compare equal. `Bindings` holds what is known about type variables while one
expression is checked, and answers whether a type is assignable to another, binding variables on the way; a failed
question binds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

PRIMITIVE: Final = "primitive"
STRUCT: Final = "struct"
OPAQUE: Final = "opaque"
LIST: Final = "list"
MAP: Final = "map"
TYPE: Final = "type"
VARIABLE: Final = "variable"


class Type(NamedTuple):
    """A type: what sort it is, its name, its parameters.

    Sorts: PRIMITIVE (bool … bytes, also dyn and null), STRUCT (named, with or without readable fields), OPAQUE (named,
    null fits), LIST, MAP,
    TYPE (the type of a type) and VARIABLE (to be found out).
    """

    sort: str
    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name


DYN: Final = Type(PRIMITIVE, "dyn")
BOOL: Final = Type(PRIMITIVE, "bool")
INT: Final = Type(PRIMITIVE, "int")
UINT: Final = Type(PRIMITIVE, "uint")
DOUBLE: Final = Type(PRIMITIVE, "double")
STRING: Final = Type(PRIMITIVE, "string")
BYTES: Final = Type(PRIMITIVE, "bytes")
NULL: Final = Type(PRIMITIVE, "null_type")
DURATION: Final = Type(PRIMITIVE, "google.protobuf.Duration")
TIMESTAMP: Final = Type(PRIMITIVE, "google.protobuf.Timestamp")
QUANTITY: Final = Type(STRUCT, "kubernetes.Quantity")
SEMVER: Final = Type(STRUCT, "kubernetes.Semver")
URL: Final = Type(STRUCT, "kubernetes.URL")
FORMAT: Final = Type(STRUCT, "kubernetes.NamedFormat")
DEVICE: Final = Type(STRUCT, "kubernetes.DRADevice")
IP: Final = Type(OPAQUE, "net.IP")
CIDR: Final = Type(OPAQUE, "net.CIDR")
OPTIONAL_NAME: Final = "optional_type"


def list_of(element: Type) -> Type:
    """`list(element)`."""
    return Type(LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type(MAP, "map", (key, value))


def optional_of(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type(OPAQUE, OPTIONAL_NAME, (value,))


def type_of(value: Type) -> Type:
    """The type of the type `value`."""
    return Type(TYPE, "type", (value,))


def variable(name: str) -> Type:
    """A type to be found out."""
    return Type(VARIABLE, name)


def optional_value(candidate: Type) -> Type | None:
    """T of an optional T, else None."""
    return candidate.params[0] if candidate.name == OPTIONAL_NAME and candidate.sort == OPAQUE else None


def contains_dyn(candidate: Type) -> bool:
    """Whether the value, or an element at any depth, has a type that only the run time knows."""
    return candidate == DYN or candidate.sort == VARIABLE or any(map(contains_dyn, candidate.params))


def is_open(candidate: Type) -> bool:
    """Whether anything of the type is still to be found out."""
    if candidate.params:
        return any(map(is_open, candidate.params))
    return candidate.sort == VARIABLE


class Bindings:
    """What is known about type variables."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._undo: list[tuple[str, Type | None]] = []
        self._fresh = 0

    def fresh(self) -> Type:
        """A new variable that nothing is known about."""
        self._fresh += 1
        return Type(VARIABLE, f"_{self._fresh}")

    def assignable(self, given: Type, wanted: Type) -> bool:
        """Whether `given` fits where `wanted` stands; what that says about variables is kept only if it does."""
        return self.assignable_all((given,), (wanted,))

    def assignable_all(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """The same for several at once, all or none."""
        self._undo.clear()
        if self._fits_all(given, wanted):
            return True
        for name, before in reversed(self._undo):
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before
        return False

    def resolve(self, candidate: Type, unknown_is_dyn: bool = False) -> Type:
        """`candidate` with all that is known put in, the rest left as variables or turned into dyn."""
        while candidate.sort == VARIABLE:
            bound = self._bound.get(candidate.name)
            if bound is None:
                return DYN if unknown_is_dyn else candidate
            candidate = bound
        if not candidate.params:
            return candidate
        params = tuple(self.resolve(param, unknown_is_dyn) for param in candidate.params)
        return candidate if params == candidate.params else candidate._replace(params=params)

    def _bind(self, name: str, value: Type) -> None:
        self._undo.append((name, self._bound.get(name)))
        self._bound[name] = value

    def _fits_all(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        return len(given) == len(wanted) and all(map(self._fits, given, wanted))

    def _fits(self, given: Type, wanted: Type) -> bool:
        if wanted.sort == VARIABLE:
            fits, known = self._substitutes(given, wanted)
            if fits or known:
                return fits
        if given.sort == VARIABLE:
            return self._substitutes(wanted, given)[0]
        if given == DYN or wanted == DYN:
            return True
        if given == NULL:
            return _nullable(wanted)
        if wanted == NULL:
            return _nullable(given)
        if given.sort == TYPE:
            return wanted.sort == TYPE
        return given.sort == wanted.sort and given.name == wanted.name and self._fits_all(given.params, wanted.params)

    def _substitutes(self, candidate: Type, unknown: Type) -> tuple[bool, bool]:
        """Whether `candidate` can stand for the variable `unknown`, and whether something was known of it before."""
        if candidate == unknown:
            return True, True
        known = self._bound.get(unknown.name)
        if known is None:
            if not self._free_of(unknown, candidate):
                return False, False
            self._bind(unknown.name, candidate)
            return True, False
        if candidate == known:
            return True, True
        if not self._fits(candidate, known):
            return False, True
        # Both agree: keep the one that says less, as long as the variable does not come to stand for itself.
        wider = more_general(candidate, known)
        if self._free_of(unknown, wider):
            self._bind(unknown.name, wider)
        return True, True

    def _free_of(self, unknown: Type, candidate: Type) -> bool:
        """Whether the variable `unknown` occurs nowhere in `candidate`."""
        if candidate == unknown:
            return False
        if candidate.sort == VARIABLE:
            bound = self._bound.get(candidate.name)
            return bound is None or self._free_of(unknown, bound)
        return all(self._free_of(unknown, param) for param in candidate.params)


def more_general(first: Type, second: Type) -> Type:
    """Of two types that agree, the one that says less."""
    return first if _says_no_more(first, second) else second


def _says_no_more(first: Type, second: Type) -> bool:
    if first == DYN or first.sort == VARIABLE:
        return True
    if second == DYN or second.sort == VARIABLE or first.sort != second.sort:
        return False
    if first.sort == TYPE:
        return True
    return (
        first.name == second.name
        and len(first.params) == len(second.params)
        and all(map(_says_no_more, first.params, second.params))
    )


def _nullable(candidate: Type) -> bool:
    return candidate.sort in (OPAQUE, STRUCT) or candidate in (DURATION, TIMESTAMP, NULL)
