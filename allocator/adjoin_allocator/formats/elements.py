"""XML text → elements with their line numbers, safely.

In comes text from anybody, out goes its tree of elements, or a `MatrixError` with the line. A document type may be named
(hwloc does) and is never fetched; one that brings declarations of its own is refused, and with it every entity that
could be expanded. Text between elements is not kept. The work is linear in the length of the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from adjoin_allocator.matrix import MatrixError

DEEPEST = 128
"""More levels than the object tree of any machine has; walking a tree must not exhaust the stack."""


@dataclass(frozen=True, slots=True, eq=False)
class Element:
    """One element: its tag, its attributes, the line on which it begins, and the elements in it."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def need(self, name: str) -> str:
        """An attribute that must be there. Raises `MatrixError` where it is not."""
        value = self.attributes.get(name)
        if value is None:
            raise MatrixError(self.line, f"<{self.tag}> has no {name}")
        return value


def is_xml(text: str) -> bool:
    """Whether the text is meant to be XML: its first line that is neither blank nor a remark starts with `<`."""
    return _body(text)[1].startswith("<")


def parse_xml(text: str) -> Element:
    """The outermost element. Raises `MatrixError` where the text is no well-formed XML, or more than plain XML."""
    above, body = _body(text)
    reader = _Reader(above)
    parser = reader.parser
    try:
        # A character that XML has no place for is told with its line, as everything else that is wrong.
        parser.Parse(body.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        problem = f"no well-formed XML: {expat.ErrorString(error.code)}"
        raise MatrixError(error.lineno + above, problem) from None
    finally:
        # The parser holds on to its handlers, and they to it.
        parser.StartElementHandler = parser.EndElementHandler = None
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.SkippedEntityHandler = None
    return reader.root[0]


class _Reader:
    """Builds the tree from what the parser meets."""

    def __init__(self, above: int) -> None:
        self.root: list[Element] = []
        self._above = above
        self._open: list[Element] = []
        # The text is Unicode already, whatever encoding its first line names.
        self.parser = parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._skipped

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, self._line())
        if len(self._open) >= DEEPEST:
            raise MatrixError(element.line, f"elements are nested more than {DEEPEST} deep")
        (self._open[-1].children if self._open else self.root).append(element)
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _doctype(self, name: str, _system: str | None, _public: str | None, declares: int) -> None:
        if declares:
            raise MatrixError(self._line(), f"the document type {name} brings declarations; remove them")

    def _entity(self, name: str, *_: object) -> None:
        raise MatrixError(self._line(), f"the entity {name} is declared here; entities are not read")

    def _skipped(self, name: str, _: object) -> None:
        raise MatrixError(self._line(), f"the entity {name} is used here; entities are not read")

    def _line(self) -> int:
        return self.parser.CurrentLineNumber + self._above


def _body(text: str) -> tuple[int, str]:
    """The text from its first line on that is neither blank nor starts with `#`, and how many lines stand above."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    above = 0
    while above < len(lines) and (not lines[above].strip() or lines[above].lstrip().startswith("#")):
        above += 1
    return above, "\n".join(lines[above:]).lstrip()
