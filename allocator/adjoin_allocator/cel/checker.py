"""Types of everything in a tree, and which overloads every call means.

Comes in: a parsed tree. Goes out: the same tree with `type` on every node and `overloads` on every call, dotted names
joined; what does not fit together is refused with its place. An expression that passes may still fail on a device,
where a type is known at run time only.
"""

from __future__ import annotations

from typing import Final

from adjoin_allocator.cel.declarations import Function
from adjoin_allocator.cel.environment import DEVICE_FIELDS, FUNCTIONS, NAMES
from adjoin_allocator.cel.errors import Refusal
from adjoin_allocator.cel.overloads import closed_overloads, fitting_overloads
from adjoin_allocator.cel.syntax import Call, Comprehension, Expr, Ident, ListNode, Literal, MapNode, Select
from adjoin_allocator.cel.types import (
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DYN,
    INT,
    LIST,
    MAP,
    NULL,
    STRING,
    UINT,
    VARIABLE,
    Bindings,
    Type,
    is_open,
    list_of,
    map_of,
    more_general,
    optional_of,
    optional_value,
)
from adjoin_allocator.cel.values import UInt

_LITERALS: Final[dict[type, Type]] = {
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}


def check(tree: Expr) -> None:
    """Writes types into the tree. Raises `Refusal`."""
    checker = _Checker()
    checker.check(tree)
    checker.settle()


class _Checker:
    def __init__(self) -> None:
        self._bindings = Bindings()
        self._scopes: list[dict[str, Type]] = []
        self._open: list[Expr] = []

    def settle(self) -> None:
        """What no use has told by now is known at run time only."""
        for node in self._open:
            node.type = self._bindings.resolve(node.type, unknown_is_dyn=True)

    def check(self, node: Expr) -> None:
        """Types `node` and all below."""
        if isinstance(node, Literal):
            node.type = _LITERALS[type(node.value)]
        elif isinstance(node, Ident):
            node.type = self._name(node)
        elif isinstance(node, Select):
            node.type = self._qualified(node) or self._select(node)
        elif isinstance(node, Call):
            node.type = self._call(node)
        elif isinstance(node, ListNode):
            node.type = self._list(node)
        elif isinstance(node, MapNode):
            node.type = self._map(node)
        else:
            node.type = self._comprehension(node)
        if is_open(node.type):
            self._open.append(node)

    # ------------------------------------------------------------ names

    def _local(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            found = scope.get(name)
            if found is not None:
                return found
        return None

    def _name(self, node: Ident) -> Type:
        found = None if node.name.startswith(".") else self._local(node.name)
        if found is not None:
            return found
        name = node.name.removeprefix(".")
        if name not in NAMES:
            raise Refusal(f"undeclared reference to {name!r}", node.offset)
        node.name = f".{name}"
        return NAMES[name]

    def _qualified(self, node: Select) -> Type | None:
        """The type of the one name that a chain of selections is, like net.IP; None where it is a chain of
        selections."""
        path = qualified_name(node)
        if path is None or path.removeprefix(".") not in NAMES or self._local(path.partition(".")[0]) is not None:
            return None
        node.qualified = path.removeprefix(".")
        return NAMES[node.qualified]

    # ------------------------------------------------------------ selections

    def _select(self, node: Select) -> Type:
        self.check(node.operand)
        operand = self._bindings.resolve(node.operand.type)
        inner = optional_value(operand)
        target = operand if inner is None else inner
        if target.sort == MAP:
            result = target.params[1]
        elif target == DEVICE:
            field = DEVICE_FIELDS.get(node.field)
            if field is None:
                raise Refusal(f"undefined field {node.field!r} of device", node.offset)
            result = field
        elif target == DYN or target.sort == VARIABLE:
            self._bindings.assignable(DYN, target)
            result = DYN
        else:
            raise Refusal(f"type {target} has no fields", node.offset)
        if node.test:
            return BOOL
        result = result if inner is None and not node.optional else optional_of(result)
        return self._bindings.resolve(result)

    # ------------------------------------------------------------ calls

    def _call(self, node: Call) -> Type:
        for arg in node.args:
            self.check(arg)
        if node.target is None:
            function = self._function(node)
            node.function = function.name
            return self._resolve(node, function)
        prefix = qualified_name(node.target)
        whole = None if prefix is None else FUNCTIONS.get(f"{prefix}.{node.function}".removeprefix("."))
        if whole is not None:
            node.target, node.function = None, whole.name
            return self._resolve(node, whole)
        self.check(node.target)
        return self._resolve(node, self._function(node))

    def _function(self, node: Call) -> Function:
        function = FUNCTIONS.get(node.function.removeprefix("."))
        if function is None:
            raise Refusal(f"undeclared reference to {node.function!r}", node.offset)
        return function

    def _resolve(self, node: Call, function: Function) -> Type:
        given = [operand.type for operand in node.operands]
        is_method = node.target is not None
        if function.name in ("_&&_", "_||_"):
            for arg in node.args:
                self._require(BOOL, arg)
            node.overloads = function.overloads
            return BOOL
        if any(map(is_open, given)):
            fitting = fitting_overloads(function, is_method, given, self._bindings)
        else:
            fitting = closed_overloads(function, is_method, tuple(given))
            if fitting is not None and is_open(fitting[1]):
                # What is unknown of the result belongs to this expression alone.
                fitting = fitting_overloads(function, is_method, given, self._bindings)
        if fitting is None:
            raise self._no_overload(node, function, given)
        node.overloads, result = fitting
        return result

    def _no_overload(self, node: Call, function: Function, given: list[Type]) -> Refusal:
        shown = [str(self._bindings.resolve(type_, unknown_is_dyn=True)) for type_ in given]
        receiver = "" if node.target is None else f"{shown.pop(0)}."
        signature = f"{receiver}({', '.join(shown)})"
        # Operators are called `_+_` and the like.
        written = function.name.replace("_", "").replace("@", "")
        return Refusal(f"no overload of {written!r} takes {signature}", node.offset)

    def _require(self, wanted: Type, node: Expr) -> None:
        if not self._bindings.assignable(wanted, node.type):
            raise self._mismatch(wanted, node)

    def _mismatch(self, wanted: Type, node: Expr) -> Refusal:
        expected, found = (self._bindings.resolve(type_, unknown_is_dyn=True) for type_ in (wanted, node.type))
        return Refusal(f"expected type {expected}, found {found}", node.offset)

    # ------------------------------------------------------------ lists and maps

    def _list(self, node: ListNode) -> Type:
        element: Type | None = None
        for position, child in enumerate(node.elements):
            self.check(child)
            found = self._part(child, position in node.optional)
            element = self._join(element, found)
        return list_of(element or self._bindings.fresh())

    def _map(self, node: MapNode) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            self.check(entry.key)
            key = self._join(key, entry.key.type)
            self.check(entry.value)
            value = self._join(value, self._part(entry.value, entry.optional))
        return map_of(key or self._bindings.fresh(), value or self._bindings.fresh())

    def _part(self, node: Expr, optional: bool) -> Type:
        """The type that an element or entry contributes; with a question mark it must be an optional."""
        if not optional:
            return node.type
        inner = optional_value(node.type)
        if inner is None and node.type != DYN:
            raise self._mismatch(optional_of(node.type), node)
        return node.type if inner is None else inner

    def _join(self, known: Type | None, found: Type) -> Type:
        """The type of both. Literals may mix types here; `literals` refuses what they may not mix."""
        if known is None:
            return found
        return more_general(known, found) if self._bindings.assignable(known, found) else DYN

    # ------------------------------------------------------------ loops

    def _comprehension(self, node: Comprehension) -> Type:
        self.check(node.range)
        self.check(node.init)
        first, second = self._loop_types(node)
        self._scopes.append({node.accumulator: node.init.type})
        names = {node.variable: first}
        if node.variable2:
            names[node.variable2] = second
        self._scopes.append(names)
        self.check(node.condition)
        self._require(BOOL, node.condition)
        self.check(node.step)
        self._require(node.init.type, node.step)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        return self._bindings.resolve(node.result.type)

    def _loop_types(self, node: Comprehension) -> tuple[Type, Type]:
        """Types of the one or two variables of a loop."""
        range_ = self._bindings.resolve(node.range.type)
        if range_.sort == LIST:
            return (INT, range_.params[0]) if node.variable2 else (range_.params[0], DYN)
        if range_.sort == MAP:
            return range_.params[0], range_.params[1]
        if range_ == DYN or range_.sort == VARIABLE:
            self._bindings.assignable(DYN, range_)
            return DYN, DYN
        raise Refusal(f"type {range_} cannot be gone through, it is neither list nor map", node.range.offset)


def qualified_name(node: Expr) -> str | None:
    """`a.b.c` for plain selections from a name, else None."""
    fields: list[str] = []
    while isinstance(node, Select):
        if node.test or node.optional:
            return None
        fields.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name, *reversed(fields)))
