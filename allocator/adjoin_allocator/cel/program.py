"""A checked tree turned into nested functions, which is what evaluates fastest in Python.

Comes in: a checked tree. Goes out: `Program`. What is constant is computed once, here. What Kubernetes refuses when it
makes a program of an expression (a constant text that is no number, a constant pattern that is none) is refused here
with its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from adjoin_allocator.cel import loops, operations, patterns
from adjoin_allocator.cel.calls import call, is_metered
from adjoin_allocator.cel.certainty import certain_type
from adjoin_allocator.cel.construction import literal_list, literal_map
from adjoin_allocator.cel.environment import FUNCTIONS
from adjoin_allocator.cel.errors import EvaluationError, Refusal
from adjoin_allocator.cel.facts import FactReader, Path
from adjoin_allocator.cel.frame import FIRST_SLOT, Frame, Run, constant
from adjoin_allocator.cel.library.conversions import CONVERSIONS
from adjoin_allocator.cel.meter import Meter, StoppedError
from adjoin_allocator.cel.regex import Pattern, compiled
from adjoin_allocator.cel.selection import has, is_key, select, select_optional
from adjoin_allocator.cel.syntax import Call, Comprehension, Expr, Ident, ListNode, Literal, Macro, MapNode, Select
from adjoin_allocator.cel.types import STRING, Type
from adjoin_allocator.cel.values import NONE, TypeValue

_FOLDING_LIMIT: Final = 10_000
"""Units that computing one constant may cost; what costs more is left to the evaluation."""

_PATTERNED: Final = frozenset(("matches", "find", "findAll"))


@dataclass(slots=True)
class Variable:
    """A variable of a macro: how its value is read, and the part of the device that it is another name of."""

    run: Callable[[], Run]
    path: Path | None = None


@dataclass(slots=True)
class Compiler:
    """Compiles the nodes of one expression.

    Attributes:
        facts: Compiles reads of the device, and knows afterwards what is read.
        slots: How many variables the frame must hold.
        metered: An evaluation needs a meter.
    """

    facts: FactReader
    slots: int = 0
    metered: bool = False
    _variables: dict[str, list[Variable]] = field(default_factory=dict)
    _paths: dict[Expr, Path | None] = field(default_factory=dict)
    _values: dict[Expr, Any] = field(default_factory=dict)
    _constants: set[Expr] = field(default_factory=set)

    def compile(self, node: Expr) -> Run:
        """`node` as a function of a frame. Raises `Refusal`."""
        path = self._path(node)
        if path is not None:
            return self.facts.value(path)
        if isinstance(node, Literal):
            return self._constant(node, node.value)
        if isinstance(node, Ident):
            known = self._variables.get(node.name)
            return known[-1].run() if known else self._constant(node, TypeValue(node.name.removeprefix(".")))
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        return self._bind(node) if node.macro is Macro.BIND else self._loop(node)

    # ------------------------------------------------------------ constants

    def _constant(self, node: Expr, value: Any) -> Run:
        """A value that Kubernetes, too, knows before any evaluation."""
        self._constants.add(node)
        return self._known(node, value)

    def _known(self, node: Expr, value: Any) -> Run:
        self._values[node] = value
        return constant(value)

    def _folded(self, node: Call, run: Run) -> Run:
        """The call's value, if all its operands are constant and it has one."""
        operands = node.operands
        if not all(operand in self._values for operand in operands):
            return run
        converts = node.function in CONVERSIONS and operands[0] in self._constants
        try:
            value = run([{}, {}, None, Meter(_FOLDING_LIMIT), set()])
        except EvaluationError as error:
            if converts:
                raise Refusal(str(error), node.offset) from error
            return run
        except StoppedError:
            return run
        return self._constant(node, value) if converts else self._known(node, value)

    # ------------------------------------------------------------ the device

    def path_of(self, node: Expr) -> Path | None:
        """The part of the device that a compiled node is, None for everything else."""
        return self._paths.get(node)

    def _path(self, node: Expr) -> Path | None:
        """The part of the device that `node` is, if constants alone lead there."""
        if node not in self._paths:
            self._paths[node] = self._find_path(node)
        return self._paths[node]

    def _find_path(self, node: Expr) -> Path | None:
        if isinstance(node, Ident):
            known = self._variables.get(node.name)
            if known:
                return known[-1].path
            return Path(()) if node.name == ".device" else None
        if isinstance(node, Select) and not node.test and not node.qualified:
            base = self._path(node.operand)
            return None if base is None else base.step(node.field, node.optional)
        if isinstance(node, Call) and node.function in ("_[_]", "_[?_]"):
            base = self._path(node.args[0])
            if base is not None and base.is_map:
                self.compile(node.args[1])
                key = self._values.get(node.args[1])
                if type(key) is str:
                    return base.step(key, node.function == "_[?_]")
        return None

    def _select(self, node: Select) -> Run:
        if node.qualified:
            return self._constant(node, TypeValue(node.qualified))
        name = node.field
        if node.test:
            base = self._path(node.operand)
            tested = None if base is None else base.step(name, False)
            if tested is not None:
                return self.facts.test(tested)
            operand = self.compile(node.operand)
            return lambda frame: has(operand(frame), name)
        operand = self.compile(node.operand)
        get = select_optional if node.optional else select
        return lambda frame: get(operand(frame), name)

    # ------------------------------------------------------------ calls

    def _call(self, node: Call) -> Run:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        operands = [self.compile(operand) for operand in node.operands]
        if node.function in _PATTERNED:
            pattern = self._pattern(node)
            if node.operands[1] in self._constants and certain_type(node.operands[0]) != STRING:
                operands[0] = patterns.readable(operands[0])
            if pattern is not None and node.function == "matches":
                return patterns.matches(operands[0], pattern, certain_type(node.operands[0]))
        function = FUNCTIONS[node.function]
        self.metered |= is_metered(function, node.overloads)
        run = call(function, node.overloads, operands, [certain_type(operand) for operand in node.operands])
        return self._folded(node, run)

    def _pattern(self, node: Call) -> Pattern | None:
        """The compiled pattern where it is constant."""
        operand = node.operands[1]
        text = self._values.get(operand)
        if type(text) is not str:
            return None
        try:
            return compiled(text)
        except ValueError as error:
            if operand in self._constants:
                raise Refusal(str(error), operand.offset) from error
            return None

    def _operand(self, node: Expr) -> tuple[Run, Type]:
        return self.compile(node), certain_type(node)

    def _value_of(self, node: Expr) -> tuple[Any, ...]:
        """The constant value of a compiled node, or empty."""
        return (self._values[node],) if node in self._values else ()

    def _logic(self, node: Call) -> Run:
        decisive = node.function == "_||_"
        return operations.logic([self.compile(arg) for arg in node.args], decisive, "||" if decisive else "&&")

    def _conditional(self, node: Call) -> Run:
        return operations.conditional(*[self.compile(arg) for arg in node.args])

    def _not(self, node: Call) -> Run:
        return operations.negation(self.compile(node.args[0]))

    def _equality(self, node: Call) -> Run:
        left, right = self._operand(node.args[0]), self._operand(node.args[1])
        known = self._value_of(node.args[1])
        first = self._value_of(node.args[0])
        if first and type(first[0]) is str:
            # A text on the left never objects to what it is compared with.
            left, right, known = (right[0], STRING), (left[0], STRING), first
        run = operations.equality(left, right, known, node.function == "_==_")
        return self._folded(node, run)

    def _comparison(self, node: Call) -> Run:
        left, right = self._operand(node.args[0]), self._operand(node.args[1])
        run = operations.comparison(node.function, left, right, self._value_of(node.args[1]))
        return self._folded(node, run)

    def _membership(self, node: Call) -> Run:
        element, container = node.args
        run = self.compile(element)
        path = self._path(container)
        key = self._values.get(element)
        if path is not None and path.is_map and not path.optional and type(key) is str:
            return self.facts.contains(path, key)
        within = self.compile(container)
        if container in self._constants and [overload.id for overload in node.overloads] == ["in_list"]:
            return operations.membership((run, certain_type(element)), self._values[container])
        return self._folded(node, call(FUNCTIONS["@in"], node.overloads, [run, within], []))

    def _index(self, node: Call) -> Run:
        operand, key = self.compile(node.args[0]), self.compile(node.args[1])
        known = self._value_of(node.args[1])
        if known and node.args[1] in self._constants and not is_key(known[0]):
            raise Refusal(f"a value of type {node.args[1].type} cannot stand in brackets", node.args[1].offset)
        return self._folded(node, _indexed(operand, key, node.function == "_[?_]"))

    def _alternative(self, node: Call) -> Run:
        first, second = (self.compile(operand) for operand in node.operands)
        return operations.alternative(first, second, node.function == "orValue")

    # ------------------------------------------------------------ lists and maps

    def _list(self, node: ListNode) -> Run:
        elements = [self.compile(element) for element in node.elements]
        if node.optional:
            return literal_list(elements, node.optional)
        if all(element in self._constants for element in node.elements):
            return self._constant(node, tuple(self._values[element] for element in node.elements))
        return lambda frame: tuple([element(frame) for element in elements])

    def _map(self, node: MapNode) -> Run:
        parts = [(self.compile(e.key), self.compile(e.value), e.optional) for e in node.entries]
        run = literal_map(parts)
        fixed = all(e.key in self._constants and e.value in self._constants for e in node.entries)
        if not fixed or any(e.optional for e in node.entries):
            return run
        try:
            return self._constant(node, run([{}, {}, None, None, set()]))
        except EvaluationError as error:
            raise Refusal(str(error), node.offset) from error

    # ------------------------------------------------------------ macros

    def _slot(self) -> int:
        self.slots += 1
        return FIRST_SLOT + self.slots - 1

    def enter(self, names: dict[str, Variable]) -> None:
        """From here on the names mean the variables."""
        for name, variable in names.items():
            self._variables.setdefault(name, []).append(variable)

    def leave(self, names: dict[str, Variable]) -> None:
        """The names mean again what they meant before."""
        for name in names:
            self._variables[name].pop()

    def _within(self, names: dict[str, Variable], node: Expr) -> Run:
        self.enter(names)
        run = self.compile(node)
        self.leave(names)
        return run

    def bind_variable(self, node: Comprehension) -> tuple[dict[str, Variable], int]:
        """The variable of a binding, and its slot."""
        slot = self._slot()
        path = self._path(node.init)
        if path is not None:
            # A part of the device is read where it is used, so that `a` of `a.b` is not read as a whole.
            whole = path
            return {node.accumulator: Variable(lambda: self.facts.value(whole), path)}, slot
        use = loops.bound(slot, self.compile(node.init))
        return {node.accumulator: Variable(lambda: use)}, slot

    def _bind(self, node: Comprehension) -> Run:
        names, slot = self.bind_variable(node)
        return loops.bind(slot, self._within(names, node.result))

    def _loop(self, node: Comprehension) -> Run:
        self.metered = True
        slot = self._slot()
        slot2 = self._slot() if node.variable2 else -1
        loop = loops.Loop(self.compile(node.range), slot, slot2)
        names = {node.variable: Variable(lambda: _slot_value(slot))}
        if node.variable2:
            names[node.variable2] = Variable(lambda: _slot_value(slot2))
        body = self._within(names, node.body)
        keep = None if node.keep is None else self._within(names, node.keep)
        if node.macro in (Macro.ALL, Macro.EXISTS):
            return loops.quantifier(loop, body, node.macro is Macro.EXISTS)
        if node.macro is Macro.EXISTS_ONE:
            return loops.exists_one(loop, body)
        if node.macro is Macro.COLLECT:
            return loops.collect(loop, body, keep)
        return loops.insert(loop, body, keep, None if node.key is None else self._within(names, node.key))


_SPECIAL: Final[dict[str, Callable[[Compiler, Call], Run]]] = {
    "_&&_": Compiler._logic,
    "_||_": Compiler._logic,
    "!_": Compiler._not,
    "_?_:_": Compiler._conditional,
    "_==_": Compiler._equality,
    "_!=_": Compiler._equality,
    "_<_": Compiler._comparison,
    "_<=_": Compiler._comparison,
    "_>_": Compiler._comparison,
    "_>=_": Compiler._comparison,
    "@in": Compiler._membership,
    "_[_]": Compiler._index,
    "_[?_]": Compiler._index,
    "or": Compiler._alternative,
    "orValue": Compiler._alternative,
}


def _slot_value(slot: int) -> Run:
    return lambda frame: frame[slot]


def _indexed(operand: Run, key: Run, optional: bool) -> Run:
    get = select_optional if optional else select

    def run(frame: Frame) -> Any:
        value = operand(frame)
        # Nothing has no parts, whatever stands in the brackets: it is not even looked at.
        return NONE if value is NONE else get(value, key(frame))

    return run
