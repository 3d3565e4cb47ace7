"""XML text → elements with their line numbers, safely.

In comes text from anybody, out goes its tree of elements, or a `MatrixError` with the line. A document type may be
named (hwloc does) and is never fetched; one that brings declarations is refused, and so is every entity but the five
that XML itself names. Text between elements is not kept. The work is linear in the length of the text.
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
    # A character that XML has no place for is told with its line, as everything else that is wrong.
    data = body.encode("utf-8", "surrogatepass")
    try:
        return _read(_without_doctype(data, above), above)
    except expat.ExpatError as error:
        problem = f"no well-formed XML: {expat.ErrorString(error.code)}"
        raise MatrixError(error.lineno + above, problem) from None


class _Enough(Exception):
    """What was looked for was found or cannot come any more."""


def _without_doctype(data: bytes, above: int) -> bytes:
    """The text with blanks for a document type that only names itself.

    With a document type that nobody fetched, a parser takes every unknown entity for one that is declared there and
    drops it, in attributes without a word; without one it is an error.
    """
    end = 0

    def doctype(name: str, _system: str | None, _public: str | None, declares: int) -> None:
        nonlocal end
        if declares:
            raise MatrixError(parser.CurrentLineNumber + above, f"the document type {name} brings declarations")
        end = parser.CurrentByteIndex
        raise _Enough

    def element(_tag: str, _attributes: dict[str, str]) -> None:
        raise _Enough

    # The text is Unicode already, whatever encoding its first line names.
    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler, parser.StartElementHandler = doctype, element
    try:
        parser.Parse(data, True)
    except _Enough:
        pass
    finally:
        # The parser holds on to its handlers, and they to it.
        parser.StartDoctypeDeclHandler = parser.StartElementHandler = None
    if not end:
        return data
    start = data.rindex(b"<!DOCTYPE", 0, end)
    # Line ends stay, for the numbers of the lines below.
    return data[:start] + bytes(each if each == 10 else 32 for each in data[start : end + 1]) + data[end + 1 :]


def _read(data: bytes, above: int) -> Element:
    roots: list[Element] = []
    inside: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber + above)
        if len(inside) >= DEEPEST:
            raise MatrixError(element.line, f"elements are nested more than {DEEPEST} deep")
        (inside[-1].children if inside else roots).append(element)
        inside.append(element)

    def end(_tag: str) -> None:
        inside.pop()

    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(data, True)
    finally:
        parser.StartElementHandler = parser.EndElementHandler = None
    return roots[0]


def _body(text: str) -> tuple[int, str]:
    """The text from its first line on that is neither blank nor starts with `#`, and how many lines stand above."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    above = 0
    while above < len(lines) and (not lines[above].strip() or lines[above].lstrip().startswith("#")):
        above += 1
    return above, "\n".join(lines[above:]).lstrip()
