"""Tokens to tree, by CEL's grammar, with macros spelled out on the way.

Comes in: source text. Goes out: a tree of `syntax` nodes. Nesting is limited, so that nothing that walks the tree ever
runs out of stack. What is no expression is refused with its place.
"""

from __future__ import annotations

from typing import Final

from adjoin_allocator.cel.errors import Refusal
from adjoin_allocator.cel.lexer import BYTES, END, ESCAPED, FLOAT, IDENT, INT, STRING, UINT, Token, tokenize
from adjoin_allocator.cel.macros import Macros
from adjoin_allocator.cel.syntax import Call, Entry, Expr, Ident, ListNode, Literal, MapNode, Select, children
from adjoin_allocator.cel.values import UInt

MAX_DEPTH: Final = 75
"""Levels of brackets. Kubernetes stops at 250."""
MAX_TREE_DEPTH: Final = 150
"""Levels of nodes."""

RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package"),
        *("namespace", "return", "var", "void", "while"),
    )
)
"""Words that CEL keeps to itself: fields may be called so, variables and functions may not."""

_BINARY: Final = {
    "||": (1, "_||_"),
    "&&": (2, "_&&_"),
    "<": (3, "_<_"),
    "<=": (3, "_<=_"),
    ">": (3, "_>_"),
    ">=": (3, "_>=_"),
    "==": (3, "_==_"),
    "!=": (3, "_!=_"),
    "in": (3, "@in"),
    "+": (4, "_+_"),
    "-": (4, "_-_"),
    "*": (5, "_*_"),
    "/": (5, "_/_"),
    "%": (5, "_%_"),
}
_OR_LEVEL: Final = 1


def parse(source: str) -> Expr:
    """The tree of `source`. Raises `Refusal`."""
    return _Parser(tokenize(source)).whole()


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._token = tokens[0]
        self._depth = 0
        self._macros = Macros()

    def whole(self) -> Expr:
        tree = self._expression()
        if self._token.kind != END:
            raise self._unexpected("end of expression")
        _limit_depth(tree)
        return tree

    # ------------------------------------------------------------ tokens

    def _advance(self) -> Token:
        token = self._token
        self._at += 1
        self._token = self._tokens[min(self._at, len(self._tokens) - 1)]
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._advance() if self._token.kind == kind else None

    def _expect(self, kind: str) -> Token:
        if self._token.kind != kind:
            raise self._unexpected(repr(kind))
        return self._advance()

    def _unexpected(self, wanted: str) -> Refusal:
        token = self._token
        found = token.kind if token.kind in (END, STRING, BYTES) else repr(token.text)
        return Refusal(f"expected {wanted}, found {found}", token.offset)

    # ------------------------------------------------------------ operators

    def _expression(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Refusal(f"nested deeper than {MAX_DEPTH} levels", self._token.offset)
        tree = self._binary(_OR_LEVEL)
        if self._token.kind == "?":
            mark = self._advance()
            # What stands between ? and : is no conditional itself, unless in brackets.
            positive = self._binary(_OR_LEVEL)
            self._expect(":")
            negative = self._expression()
            tree = Call(mark.offset, "_?_:_", [tree, positive, negative])
        self._depth -= 1
        return tree

    def _binary(self, level: int) -> Expr:
        left = self._unary()
        while True:
            found = _BINARY.get(self._token.kind)
            if found is None or found[0] < level:
                return left
            operator = self._advance()
            if found[0] <= 2:
                left = self._logical(left, operator, *found)
            else:
                left = Call(operator.offset, found[1], [left, self._binary(found[0] + 1)])

    def _logical(self, first: Expr, operator: Token, level: int, function: str) -> Expr:
        """A whole chain of && or of || is one node, so that a long chain is not deep."""
        terms = [first, self._binary(level + 1)]
        while self._accept(operator.kind):
            terms.append(self._binary(level + 1))
        return Call(operator.offset, function, terms)

    def _unary(self) -> Expr:
        kind = self._token.kind
        if kind not in ("!", "-"):
            return self._member(self._primary())
        first = self._token
        count = 0
        while self._token.kind == kind:
            # One minus directly before a number is part of the number.
            if kind == "-" and count == 0 and self._tokens[self._at + 1].kind in (INT, FLOAT):
                return self._member(self._primary())
            self._advance()
            count += 1
        if kind == "!" and self._token.kind == "-" and self._tokens[self._at + 1].kind not in (INT, FLOAT):
            raise self._unexpected("an operand")
        operand = self._member(self._primary())
        if count % 2 == 0:
            return operand
        return Call(first.offset, "!_" if kind == "!" else "-_", [operand])

    # ------------------------------------------------------------ members

    def _member(self, operand: Expr) -> Expr:
        while True:
            if self._token.kind == ".":
                operand = self._dot(operand)
            elif self._token.kind == "[":
                bracket = self._advance()
                optional = self._accept("?") is not None
                index = self._expression()
                self._expect("]")
                operand = Call(bracket.offset, "_[?_]" if optional else "_[_]", [operand, index])
            elif self._token.kind == "{":
                raise Refusal("a selector cannot construct messages", self._token.offset)
            else:
                return operand

    def _dot(self, operand: Expr) -> Expr:
        dot = self._advance()
        if self._accept("?"):
            return Select(dot.offset, operand, self._field(), optional=True)
        if self._token.kind == IDENT and self._tokens[self._at + 1].kind == "(":
            name = self._advance()
            bracket = self._advance()
            return self._macros.method(bracket.offset, operand, name.text, self._arguments())
        return Select(dot.offset, operand, self._field())

    def _field(self) -> str:
        if self._token.kind not in (IDENT, ESCAPED):
            raise self._unexpected("a field name")
        return self._advance().text

    def _arguments(self) -> list[Expr]:
        arguments: list[Expr] = []
        if not self._accept(")"):
            arguments.append(self._expression())
            while self._accept(","):
                arguments.append(self._expression())
            self._expect(")")
        return arguments

    # ------------------------------------------------------------ primaries

    def _primary(self) -> Expr:
        token = self._token
        kind = token.kind
        if kind == IDENT or kind == ".":
            return self._name()
        if kind == "(":
            self._advance()
            tree = self._expression()
            self._expect(")")
            return tree
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        return self._literal()

    def _name(self) -> Expr:
        dot = self._accept(".")
        token = self._expect(IDENT)
        name = f".{token.text}" if dot else token.text
        bracket = self._accept("(")
        arguments = self._arguments() if bracket else []
        if token.text in RESERVED:
            raise Refusal(f"{token.text!r} is reserved", token.offset)
        if bracket:
            return self._macros.function(bracket.offset, name, arguments)
        return Ident(token.offset, name)

    def _list(self) -> Expr:
        bracket = self._advance()
        elements: list[Expr] = []
        optional: set[int] = set()
        while self._token.kind not in ("]", ","):
            if self._accept("?"):
                optional.add(len(elements))
            elements.append(self._expression())
            if self._token.kind != "," or self._tokens[self._at + 1].kind == "]":
                break
            self._advance()
            if self._token.kind == ",":
                raise self._unexpected("an element")
        self._accept(",")
        self._expect("]")
        return ListNode(bracket.offset, elements, frozenset(optional))

    def _map(self) -> Expr:
        bracket = self._advance()
        entries: list[Entry] = []
        while self._token.kind not in ("}", ","):
            optional = self._accept("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append(Entry(key, self._expression(), optional))
            if self._token.kind != "," or self._tokens[self._at + 1].kind == "}":
                break
            self._advance()
            if self._token.kind == ",":
                raise self._unexpected("an entry")
        self._accept(",")
        self._expect("}")
        return MapNode(bracket.offset, entries)

    def _literal(self) -> Expr:
        sign = self._accept("-")
        token = self._token
        if sign is not None and token.kind not in (INT, FLOAT):
            raise self._unexpected("a number")
        if token.kind not in (INT, UINT, FLOAT, STRING, BYTES, "true", "false", "null"):
            raise self._unexpected("an expression")
        self._advance()
        return Literal(token.offset if sign is None else sign.offset, _value(token, sign is not None))


def _limit_depth(tree: Expr) -> None:
    """Refuses a tree that is too deep, which brackets alone do not tell: `1 + 1 + …` is one level a sign."""
    level: list[Expr] = [tree]
    for _ in range(MAX_TREE_DEPTH):
        level = [child for node in level for child in children(node)]
        if not level:
            return
    raise Refusal(f"nested deeper than {MAX_TREE_DEPTH} levels", level[0].offset)


def _value(token: Token, negative: bool) -> object:
    if token.kind == STRING:
        return token.text
    if token.kind == BYTES:
        return token.data
    if token.kind == FLOAT:
        number = float(token.text)
        if number == float("inf"):
            raise Refusal("this number is too large for a double", token.offset)
        return -number if negative else number
    if token.kind in (INT, UINT):
        whole = int(token.text, 16) if token.text.startswith("0x") else int(token.text)
        whole = -whole if negative else whole
        if token.kind == UINT:
            if whole >= 1 << 64:
                raise Refusal("this number is too large for a uint", token.offset)
            return UInt(whole)
        if not -(1 << 63) <= whole < 1 << 63:
            raise Refusal("this number is too large for an int", token.offset)
        return whole
    return {"true": True, "false": False, "null": None}[token.kind]
