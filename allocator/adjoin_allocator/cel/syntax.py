"""The tree of a parsed expression.

The parser makes it, the checker writes types and overloads into it, everything after that only reads. Macros are
already spelled out: what `[1].all(x, x > 0)` means is a `Comprehension`. Nodes compare by identity, so that later
stages can keep facts by node.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from adjoin_allocator.cel.errors import Refusal
from adjoin_allocator.cel.types import DYN, Type

if TYPE_CHECKING:
    from adjoin_allocator.cel.declarations import Overload


class Node:
    """Common to all nodes: the offset in the source that messages point at, and the type once checked."""

    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.type: Type = DYN


class Literal(Node):
    """A constant of type bool, int, uint, double, string, bytes or null, as its runtime value."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: object) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Node):
    """A name: a variable, or the name of a type. The checker puts a dot before it if it is not the variable of a
    macro."""

    __slots__ = ("name",)

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name


class Select(Node):
    """`operand.field`; with `test` it is `has(operand.field)`, with `optional` it is `operand.?field`.

    Attributes:
        qualified: The checker found the dots to be part of a name, like net.IP, and this is the name; else empty.
    """

    __slots__ = ("field", "operand", "optional", "qualified", "test")

    def __init__(self, offset: int, operand: Expr, field: str, test: bool = False, optional: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.test = test
        self.optional = optional
        self.qualified = ""


class Call(Node):
    """A function, operator or method. Operators have names that cannot be written (`_+_`).

    Attributes:
        target: The receiver of a method call. The checker clears it when the dots were part of the function's name
            (`sets.contains`).
        overloads: What the checker found to fit, in order of declaration.
    """

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, args: list[Expr], target: Expr | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target
        self.overloads: tuple[Overload, ...] = ()

    @property
    def operands(self) -> list[Expr]:
        """The receiver, if there is one, and then the arguments."""
        return self.args if self.target is None else [self.target, *self.args]


class ListNode(Node):
    """`[a, ?b]`; `optional` holds the positions written with a question mark."""

    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: list[Expr], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional


class Entry:
    """`key: value` of a map literal, or `?key: value`."""

    __slots__ = ("key", "optional", "value")

    def __init__(self, key: Expr, value: Expr, optional: bool = False) -> None:
        self.key = key
        self.value = value
        self.optional = optional


class MapNode(Node):
    """`{key: value}`."""

    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: list[Entry]) -> None:
        super().__init__(offset)
        self.entries = entries


class Macro(Enum):
    """Which macro a comprehension came from; it decides how the loop is run, never what it means."""

    ALL = auto()
    EXISTS = auto()
    EXISTS_ONE = auto()
    COLLECT = auto()
    """map, filter and transformList: a list of `body`, where `keep` holds."""
    INSERT = auto()
    """transformMap and transformMapEntry: a map, from `body` where `keep` holds."""
    BIND = auto()
    """cel.bind, optMap, optFlatMap and sortBy: `accumulator` has the value `init` inside `result`."""


class Comprehension(Node):
    """A loop over `range`, spelled out as CEL defines it, together with the parts that the macro was given.

    `init`, `condition`, `step` and `result` are what types and costs are derived from; `body`, `keep` and `key` are
    what a loop needs and occur inside `step`. `key` is the key of transformMap; without it `body` is a map that is
    merged in.
    """

    __slots__ = (
        "accumulator",
        "body",
        "condition",
        "init",
        "keep",
        "key",
        "macro",
        "range",
        "result",
        "step",
        "variable",
        "variable2",
    )

    def __init__(
        self,
        offset: int,
        macro: Macro,
        range_: Expr,
        variables: tuple[str, str],
        accumulator: str,
        init: Expr,
        loop: tuple[Expr, Expr, Expr],
        body: Expr,
        keep: Expr | None = None,
        key: Expr | None = None,
    ) -> None:
        super().__init__(offset)
        self.macro = macro
        self.range = range_
        self.variable, self.variable2 = variables
        self.accumulator = accumulator
        self.init = init
        self.condition, self.step, self.result = loop
        self.body = body
        self.keep = keep
        self.key = key


Expr: TypeAlias = Literal | Ident | Select | Call | ListNode | MapNode | Comprehension


def children(node: Expr) -> list[Expr]:
    """The nodes directly below, in order of evaluation."""
    if isinstance(node, Select):
        return [] if node.qualified else [node.operand]
    if isinstance(node, Call):
        return node.operands
    if isinstance(node, ListNode):
        return node.elements
    if isinstance(node, MapNode):
        return [part for entry in node.entries for part in (entry.key, entry.value)]
    if isinstance(node, Comprehension):
        return [node.range, node.init, node.condition, node.step, node.result]
    return []


class Copier:
    """Makes trees of new nodes; for macros that use their receiver twice. Nodes that are shared stay shared in the
    copy.

    Copies of copies grow without bound in a short text, so all copying for one expression goes through one Copier.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit

    def copy(self, node: Expr) -> Expr:
        """A tree like `node`. Raises `Refusal` once more than `limit` nodes were made."""
        return self._copy(node, {})

    def _copy(self, node: Expr, made: dict[Expr, Expr]) -> Expr:
        known = made.get(node)
        if known is None:
            self._left -= 1
            if self._left < 0:
                raise Refusal("too complex: macros inside macros make it too large", node.offset)
            known = made[node] = self._new(node, made)
        return known

    def _new(self, node: Expr, made: dict[Expr, Expr]) -> Expr:
        if isinstance(node, Literal):
            return Literal(node.offset, node.value)
        if isinstance(node, Ident):
            return Ident(node.offset, node.name)
        if isinstance(node, Select):
            return Select(node.offset, self._copy(node.operand, made), node.field, node.test, node.optional)
        if isinstance(node, Call):
            target = None if node.target is None else self._copy(node.target, made)
            return Call(node.offset, node.function, [self._copy(arg, made) for arg in node.args], target)
        if isinstance(node, ListNode):
            return ListNode(node.offset, [self._copy(element, made) for element in node.elements], node.optional)
        if isinstance(node, MapNode):
            entries = [Entry(self._copy(e.key, made), self._copy(e.value, made), e.optional) for e in node.entries]
            return MapNode(node.offset, entries)
        return Comprehension(
            node.offset,
            node.macro,
            self._copy(node.range, made),
            (node.variable, node.variable2),
            node.accumulator,
            self._copy(node.init, made),
            (self._copy(node.condition, made), self._copy(node.step, made), self._copy(node.result, made)),
            self._copy(node.body, made),
            None if node.keep is None else self._copy(node.keep, made),
            None if node.key is None else self._copy(node.key, made),
        )
