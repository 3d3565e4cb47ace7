"""What the most expensive evaluation of an expression could cost, in Kubernetes' units.

Comes in: a checked tree. Goes out: the estimate that Kubernetes' admission compares with its limit (`MaxCost`); the
same number, since whether a selector is refused hangs on it. `call_costs` has the costs of functions, this module
walks the tree.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from adjoin_allocator.cel.call_costs import Operand, call_cost
from adjoin_allocator.cel.sizes import (
    INDICES,
    ITEMS,
    KEYS,
    NOTHING,
    UNKNOWN,
    VALUES,
    Parts,
    Size,
    device_size,
    exactly,
    plus,
    times,
)
from adjoin_allocator.cel.syntax import Call, Comprehension, Expr, Ident, ListNode, Literal, Macro, MapNode, Select
from adjoin_allocator.cel.types import (
    BOOL,
    DOUBLE,
    DURATION,
    INT,
    LIST,
    MAP,
    STRUCT,
    TIMESTAMP,
    UINT,
    Type,
    optional_value,
)

MAX_COST: Final = 1_000_000
"""Above this an expression is refused."""

_LIST_COST: Final = 10
_MAP_COST: Final = 30
_SCALARS: Final = frozenset((BOOL, DOUBLE, DURATION, INT, TIMESTAMP, UINT))


class _Path:
    """A path through the device, as Kubernetes keeps it: paths with a common beginning may share their memory.

    Where they do, the last one to be made overwrites the last step of the others. That is a mistake, but it is in the
    numbers that admission compares: of `m.all(k, v, …)` the key is charged like a value.
    """

    __slots__ = ("_cells", "_length")

    def __init__(self, cells: list[str], length: int) -> None:
        self._cells = cells
        self._length = length

    def then(self, step: str) -> _Path:
        """This path and one more step."""
        if self._length < len(self._cells):
            self._cells[self._length] = step
            return _Path(self._cells, self._length + 1)
        spare = [""] * max(self._length - 1, 0)
        return _Path([*self._cells, step, *spare], self._length + 1)

    def steps(self) -> tuple[str, ...]:
        """What the path says now."""
        return tuple(self._cells[: self._length])


def _start(name: str) -> _Path:
    return _Path([name], 1)


_NO_PATH: Final = _Path([], 0)


class _Local(NamedTuple):
    """What is known of a variable of a macro."""

    path: _Path
    size: Size | None
    parts: Parts | None


def estimate(tree: Expr) -> int:
    """The greatest cost that one evaluation may have, capped at 2^64-1."""
    return _Estimator().cost(tree)


class _Estimator:
    def __init__(self) -> None:
        self._locals: dict[str, list[_Local]] = {}
        self._paths: dict[Expr, _Path] = {}
        self._sizes: dict[Expr, Size] = {}
        self._parts: dict[Expr, Parts] = {}

    # ------------------------------------------------------------ costs

    def cost(self, node: Expr) -> int:
        """The greatest cost of evaluating `node`."""
        if isinstance(node, Literal):
            return 0
        if isinstance(node, Ident):
            return self._ident(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        return self._bind(node) if node.macro is Macro.BIND else self._loop(node)

    def _ident(self, node: Ident) -> int:
        local = self._local(node.name)
        if local is not None:
            self._paths[node] = local.path
        else:
            name = node.name.removeprefix(".")
            self._paths[node] = _start(node.name if self._locals.get(name) else name)
        return 1

    def _select(self, node: Select) -> int:
        if node.qualified:
            return 1
        cost = self.cost(node.operand)
        if node.test:
            return cost
        if node.optional:
            return plus(cost, 1)
        self._paths[node] = self._path(node.operand).then(node.field)
        target = node.operand.type
        return plus(cost, 1) if target.sort in (MAP, STRUCT) else cost

    def _call(self, node: Call) -> int:
        if node.function == "dyn":
            cost = plus(1, self.cost(node.args[0]))
            self._copy_sizes(node, node.args[0])
            return cost
        args = [(self.cost(arg), self._operand(arg)) for arg in node.args]
        cost = 0 if node.target is None else self.cost(node.target)
        target = None if node.target is None else self._operand(node.target)
        operands = [operand for _, operand in args]
        arg_cost = plus(*(arg for arg, _ in args))
        greatest = 0
        result: Size | None = None
        for overload in node.overloads:
            if overload.id == "conditional":
                return self._conditional(node, args)
            own, size = call_cost(node.function, overload.id, target, operands)
            greatest = max(greatest, own)
            if size is not None:
                result = size if result is None else result.either(size)
            if overload.id in ("index_list", "index_map"):
                container = self._inner(node.args[0])
                result = None if container is None else container.value
                step = ITEMS if overload.id == "index_list" else VALUES
                self._paths[node] = self._path(node.args[0]).then(step)
            if overload.id in ("add_string", "add_bytes", "add_list"):
                self._join_parts(node)
            if result is None:
                result = self._size(node)
        if result is not None:
            self._sizes[node] = result
        return plus(cost, arg_cost, greatest)

    def _conditional(self, node: Call, args: list[tuple[int, Operand]]) -> int:
        (condition, _), (positive, first), (negative, second) = args
        inside = self._inner(node.args[1]), self._inner(node.args[2])
        if inside[0] is not None and inside[1] is not None:
            self._parts[node] = inside[0].either(inside[1])
        self._sizes[node] = (first.size or UNKNOWN).either(second.size or UNKNOWN)
        return plus(condition, max(positive, negative))

    def _join_parts(self, node: Call) -> None:
        first, second = self._inner(node.args[0]), self._inner(node.args[1])
        if first is not None and second is not None:
            self._parts[node] = first.either(second)

    def _list(self, node: ListNode) -> int:
        cost, inside = 0, NOTHING if node.elements else Size(0, 0)
        for element in node.elements:
            cost = plus(cost, self.cost(element))
            inside = inside.either(self._size(element) or UNKNOWN)
        self._parts[node] = Parts(True, exactly(1), inside)
        return plus(cost, _LIST_COST)

    def _map(self, node: MapNode) -> int:
        cost = 0
        keys = values = NOTHING if node.entries else Size(0, 0)
        for entry in node.entries:
            cost = plus(cost, self.cost(entry.key), self.cost(entry.value))
            keys = keys.either(self._size(entry.key) or UNKNOWN)
            values = values.either(self._size(entry.value) or UNKNOWN)
        self._parts[node] = Parts(False, keys, values)
        return plus(cost, _MAP_COST)

    def _bind(self, node: Comprehension) -> int:
        cost = plus(self.cost(node.range), self.cost(node.init))
        self._push(node.accumulator, self._variable(node.init))
        cost = plus(cost, self.cost(node.result))
        self._locals[node.accumulator].pop()
        self._copy_sizes(node, node.result)
        return cost

    def _loop(self, node: Comprehension) -> int:
        cost = plus(self.cost(node.range), self.cost(node.init))
        self._push(node.accumulator, self._variable(node.init))
        names = self._push_loop_variables(node)
        turn = plus(self.cost(node.condition), self.cost(node.step))
        for name in names:
            self._locals[name].pop()
        cost = plus(cost, self.cost(node.result))
        self._locals[node.accumulator].pop()
        turns = self._size(node.range) or UNKNOWN
        if isinstance(node.init, Literal):
            self._sizes[node] = exactly(1)
        else:
            self._sizes[node] = turns
            inside = self._inner(node.step)
            if inside is not None:
                self._parts[node] = inside
        return plus(cost, times(turns.most, turn))

    def _push_loop_variables(self, node: Comprehension) -> tuple[str, ...]:
        inside, path = self._inner(node.range), self._path(node.range)
        is_list = node.range.type.sort == LIST if inside is None else inside.is_list
        key = None if inside is None else inside.key
        value = None if inside is None else inside.value
        if not node.variable2:
            step, size = (ITEMS, value) if is_list else (KEYS, key)
            self._push(node.variable, _Local(path.then(step), size, None))
            return (node.variable,)
        self._push(node.variable, _Local(path.then(INDICES if is_list else KEYS), key, None))
        self._push(node.variable2, _Local(path.then(ITEMS if is_list else VALUES), value, None))
        return node.variable, node.variable2

    # ------------------------------------------------------------ what is known of a node

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _variable(self, node: Expr) -> _Local:
        return _Local(self._path(node), self._size(node), self._inner(node))

    def _local(self, name: str) -> _Local | None:
        known = self._locals.get(name)
        return known[-1] if known else None

    def _path(self, node: Expr) -> _Path:
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is not None:
                return local.path
        return self._paths.get(node, _NO_PATH)

    def _size(self, node: Expr) -> Size | None:
        known = self._sizes.get(node)
        if known is not None:
            return known
        if isinstance(node, Literal):
            return exactly(len(node.value)) if isinstance(node.value, str | bytes) else exactly(1)
        if isinstance(node, ListNode):
            return exactly(len(node.elements))
        if isinstance(node, MapNode):
            return exactly(len(node.entries))
        found = device_size(self._path(node).steps())
        if found is not None:
            self._sizes[node] = found
            return found
        if _is_scalar(node.type):
            return exactly(1)
        local = self._local(node.name) if isinstance(node, Ident) else None
        return None if local is None else local.size

    def _inner(self, node: Expr) -> Parts | None:
        known = self._parts.get(node)
        if known is not None:
            return known
        local = self._local(node.name) if isinstance(node, Ident) else None
        return None if local is None else local.parts

    def _copy_sizes(self, target: Expr, source: Expr) -> None:
        size, inside = self._size(source), self._inner(source)
        if size is not None:
            self._sizes[target] = size
        if inside is not None:
            self._parts[target] = inside

    def _operand(self, node: Expr) -> Operand:
        return Operand(node, self._path(node).steps(), self._size(node))


def _is_scalar(candidate: Type) -> bool:
    inner = optional_value(candidate)
    return candidate in _SCALARS if inner is None else _is_scalar(inner)
