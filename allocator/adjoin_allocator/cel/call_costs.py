"""What one call costs, by function and overload, as Kubernetes charges it.

Comes in: the function, one of its overloads, and what is known of its operands. Goes out: the greatest cost of the
call itself, without that of its operands, and the size of its result where there is something to say about it.

The figures are Kubernetes': a tenth of a unit for a character gone over, and so on. They are facts to keep to, not
choices.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from adjoin_allocator.cel.sizes import (
    ITEMS,
    PATTERN,
    TRAVERSAL,
    UNBOUNDED,
    UNKNOWN,
    Size,
    device_size,
    exactly,
    plus,
    scaled,
    times,
)
from adjoin_allocator.cel.syntax import Expr, Literal
from adjoin_allocator.cel.types import BYTES, CIDR, FORMAT, IP, QUANTITY, SEMVER, STRING, URL, Type

Cost = tuple[int, Size | None]

_ALLOCATION: Final = 10
_MAX_FORMAT_LENGTH: Final = 64
_MAX_FORMAT_PATTERN: Final = 128
_ADDRESS_BYTES: Final = 16


class Operand(NamedTuple):
    """A receiver or argument: the node, the path through the device that it is, and its size if that is known."""

    node: Expr
    path: tuple[str, ...]
    size: Size | None

    @property
    def bounds(self) -> Size:
        """Its size, or the widest there is."""
        return self.size or UNKNOWN


def call_cost(function: str, overload: str, target: Operand | None, args: list[Operand]) -> Cost:
    """(cost, size of the result or None)."""
    library = _list_library(overload, target, args)
    if library is None:
        library = _kubernetes(function, overload, target, args)
    return _core(overload, target, args) if library is None else library


def _literal_count(operand: Operand, otherwise: int) -> int:
    """The value of a literal count, not below zero."""
    node = operand.node
    if not isinstance(node, Literal) or type(node.value) is not int:
        return otherwise
    return max(node.value, 0)


def _built(size: Size, factor: float = 1.0) -> Cost:
    """A list that is built, with a cost that goes with its size."""
    return plus(scaled(size.most, factor), 1, _ALLOCATION), size


# ---------------------------------------------------------------- lists and sets


def _list_library(overload: str, target: Operand | None, args: list[Operand]) -> Cost | None:
    if overload.startswith("list_sets_"):
        product = args[0].bounds.product(args[1].bounds)
        factor = 2.0 if overload == "list_sets_equivalent_list" else 1.0
        return plus(scaled(product.most, factor), 1), None
    if overload == "lists_range":
        return _built(exactly(_literal_count(args[0], UNBOUNDED)))
    if target is None:
        return None
    if overload == "list_slice":
        start = _literal_count(args[0], 0)
        end = _literal_count(args[1], target.bounds.most)
        # A slice that runs backwards wraps around in Kubernetes' arithmetic and is refused as too expensive.
        return _built(exactly((end - start) & UNBOUNDED))
    if overload in ("list_flatten", "list_flatten_int"):
        depth = _literal_count(args[0], UNBOUNDED) if args else 1
        return _built(target.bounds, float(depth))
    if overload == "list_reverse":
        return _built(target.bounds)
    if overload == "list_distinct":
        return _built(target.bounds.product(target.bounds), 2.0)
    if overload.startswith("list_") and overload.endswith("_sort"):
        return _sorted(target.bounds, overload.removeprefix("list_").removesuffix("_sort"))
    if overload.startswith("list_") and overload.endswith("_sortByAssociatedKeys"):
        return _sorted(args[0].bounds, overload.removeprefix("list_").removesuffix("_sortByAssociatedKeys"))
    return None


def _sorted(size: Size, element: str) -> Cost:
    factor = 2.0 + (TRAVERSAL if element in ("string", "bytes") else 0.0)
    return _built(size.product(size), factor)


# ---------------------------------------------------------------- Kubernetes' own functions

_ONE_UNIT: Final = frozenset(
    (
        *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name"),
        *("allowed", "reason", "error", "errored"),
        *("masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast"),
        *("isLinkLocalUnicast", "isGlobalUnicast", "format.named"),
        *("sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo"),
        *("add", "sub", "major", "minor", "patch"),
        *("getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
    )
)
_OVER_ELEMENTS: Final = frozenset(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"))
_OVER_ARGUMENT: Final = frozenset(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"))
_SAME_LENGTH: Final = frozenset(("lowerAscii", "upperAscii", "substring", "trim"))
_CHECK: Final = 350_000


def _kubernetes(function: str, overload: str, target: Operand | None, args: list[Operand]) -> Cost | None:
    if function in _ONE_UNIT:
        return 1, None
    if function in _OVER_ARGUMENT:
        return scaled(args[0].bounds.most, TRAVERSAL), None
    if function == "_==_":
        return _equality(args)
    if function == "url":
        return scaled(args[0].bounds.most, TRAVERSAL), args[0].bounds
    if function == "ip":
        return (1, None) if overload == "cidr_ip" else (scaled(args[0].bounds.most, TRAVERSAL), None)
    if function == "ip.isCanonical":
        return scaled(args[0].bounds.most, 2 * TRAVERSAL), None
    if function == "check":
        return _CHECK, None
    if function in ("fieldSelector", "labelSelector"):
        return _selector(args[0].bounds), None
    if target is None:
        return None
    if function in _OVER_ELEMENTS:
        return _over_elements(function, target), None
    if function in _SAME_LENGTH:
        return scaled(target.bounds.most, TRAVERSAL), target.bounds
    if function == "replace":
        return scaled(target.bounds.most, 2 * TRAVERSAL), _replaced(target.bounds, args[0].bounds, args[1].bounds)
    if function == "split":
        return scaled(target.bounds.most, 2 * TRAVERSAL), Size(0, _parts_of_split(target, args))
    if function == "join":
        joined = _joined(target, args)
        return scaled(joined.most, TRAVERSAL), joined
    if function in ("find", "findAll"):
        return _pattern_cost(target.bounds, args[0].bounds), Size(0, target.bounds.most)
    if function in ("containsIP", "containsCIDR"):
        return _containment(overload, args[0]), None
    if function == "validate":
        text = scaled(args[0].bounds.most, TRAVERSAL)
        return scaled(text, _MAX_FORMAT_PATTERN * PATTERN), None
    return None


def _equality(args: list[Operand]) -> Cost | None:
    left, right = (operand.node.type for operand in args)
    if left.name != right.name:
        return None
    if left in (IP, CIDR, QUANTITY, SEMVER):
        return 1, None
    if left == FORMAT:
        return scaled(_MAX_FORMAT_LENGTH, TRAVERSAL), None
    if left == URL:
        size = args[1].size or exactly(1)
        return scaled(size.most, TRAVERSAL), None
    return None


def _selector(length: Size) -> int:
    requirements = scaled(scaled(length.most, 0.5), 50.0)
    return plus(_ALLOCATION, scaled(length.most, TRAVERSAL), requirements)


def _element(operand: Operand) -> tuple[Type, Size] | None:
    """Type and size of what the operand has inside, None where it is not known to have anything inside."""
    params = operand.node.type.params
    if not params:
        return None
    path = (*operand.path, ITEMS) if operand.path else ()
    return params[0], device_size(path) or UNKNOWN


def _over_elements(function: str, target: Operand) -> int:
    element = _element(target)
    if element is None:
        if function == "includes":
            return target.bounds.most
        # A text: the same names mean a search in it.
        return scaled(target.bounds.most, TRAVERSAL)
    kind, size = element
    each = plus(1, scaled(size.most, TRAVERSAL)) if kind in (STRING, BYTES) else 1
    return times(target.bounds.most, each)


def _replaced(text: Size, old: Size, new: Size) -> Size:
    """The size after all replacements: the shortest old texts, each replaced by the longest new one, and the
    reverse."""
    if old.least == 0:
        most = plus(times(plus(text.most, 1), new.most), text.most)
    elif new.most <= old.least:
        most = text.most
    else:
        most = times(-(-text.most // old.least), new.most)
    if old.most == 0:
        least = plus(times(plus(text.least, 1), new.least), text.least)
    elif old.most <= new.least:
        least = text.least
    else:
        least = times(-(-text.least // old.most), new.least)
    return Size(least, most)


def _parts_of_split(target: Operand, args: list[Operand]) -> int:
    if len(args) > 1:
        node = args[1].node
        if isinstance(node, Literal) and type(node.value) is int:
            return node.value & UNBOUNDED
    return target.bounds.most


def _joined(target: Operand, args: list[Operand]) -> Size:
    count = target.bounds
    element = _element(target)
    size = Size(0, 0) if element is None else count.product(element[1])
    if args:
        gaps = Size(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.joined(args[0].bounds.product(gaps))
    return size


def _pattern_cost(text: Size, pattern: Size) -> int:
    return times(scaled(plus(text.most, 1), TRAVERSAL), scaled(pattern.most, PATTERN))


def _containment(overload: str, other: Operand) -> int:
    cost = scaled(2 * _ADDRESS_BYTES, TRAVERSAL)
    if overload.startswith("cidr_contains_cidr"):
        cost += scaled(_ADDRESS_BYTES, TRAVERSAL) + 1
    if overload.endswith("_string"):
        cost = plus(cost, scaled(other.bounds.most, TRAVERSAL))
    return cost


# ---------------------------------------------------------------- the language itself

_COMPARISONS: Final = frozenset(
    (
        *("equals", "not_equals"),
        *("less_string", "less_equals_string", "greater_string", "greater_equals_string"),
        *("less_bytes", "less_equals_bytes", "greater_bytes", "greater_equals_bytes"),
    )
)


def _core(overload: str, target: Operand | None, args: list[Operand]) -> Cost:
    if overload in _COMPARISONS:
        return scaled(min(args[0].bounds.most, args[1].bounds.most), TRAVERSAL), None
    if overload in ("logical_and", "logical_or"):
        return 0, None
    if overload in ("add_string", "add_bytes", "add_list"):
        size = args[0].bounds.joined(args[1].bounds)
        return (1 if overload == "add_list" else scaled(size.most, TRAVERSAL)), size
    if overload == "in_list":
        return scaled(args[1].bounds.most, 1.0), None
    if overload == "matches":
        return _pattern_cost(args[0].bounds, args[1].bounds), None
    if overload == "string_to_bytes":
        size = args[0].bounds
        return scaled(size.most, TRAVERSAL), Size(size.least, _wrapped(size.most, 4, 0))
    if overload == "bytes_to_string":
        size = args[0].bounds
        return scaled(size.most, TRAVERSAL), Size(size.least // 4, size.most)
    if overload == "strings_quote":
        size = args[0].bounds
        return scaled(size.most, TRAVERSAL), Size(_wrapped(size.least, 1, 2), _wrapped(size.most, 2, 2))
    if target is None:
        return 1, None
    if overload == "string_format":
        return scaled(target.bounds.most, TRAVERSAL), None
    if overload in ("starts_with_string", "ends_with_string"):
        return scaled(args[0].bounds.most, TRAVERSAL), None
    if overload == "matches_string":
        return _pattern_cost(target.bounds, args[0].bounds), None
    if overload == "contains_string":
        return times(scaled(target.bounds.most, TRAVERSAL), scaled(args[0].bounds.most, TRAVERSAL)), None
    return 1, None


def _wrapped(size: int, factor: int, more: int) -> int:
    """64 bit arithmetic without a cap, as Kubernetes has it in these two places."""
    return (size * factor + more) & UNBOUNDED
