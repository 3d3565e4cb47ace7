"""Files → Kubernetes objects: any mix of YAML documents, JSON and Lists.

In come paths and the standard input, out come plain objects, each with the place that it was read from. YAML is read as
kubectl reads it: times and addresses stay text, a key that stands twice is an error. Nothing here knows what the
objects mean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

try:
    from yaml import CSafeLoader as _Base
except ImportError:
    from yaml import SafeLoader as _Base  # type: ignore[assignment]

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
LARGE = 1_000_000
"""More values than this, and than `TIMES` the characters of the text, are made by aliases alone."""
TIMES = 10


class UnreadableInput(Exception):
    """A file that is not there or does not hold YAML or JSON. The text names it."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object and where it stands, for messages (`claims.yaml: document 2`)."""

    place: str
    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its kind, or ""."""
        return str(self.body.get("kind") or "")

    @property
    def group(self) -> str:
        """Its API group; "" for the core group."""
        version = str(self.body.get("apiVersion") or "")
        return version.partition("/")[0] if "/" in version else ""


def read_documents(sources: Sequence[str], stdin: TextIO) -> list[Document]:
    """All objects of the sources (files, directories, `-`), in order. Raises `UnreadableInput`."""
    if sources.count(STDIN) > 1:
        raise UnreadableInput("-f -: the standard input can be read only once")
    documents: list[Document] = []
    for source in sources:
        if source == STDIN:
            documents += _parse("standard input", stdin.read())
            continue
        for path in _files(Path(source)):
            documents += _parse(str(path), _text(path))
    return documents


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and each.is_file())
    if not found:
        raise UnreadableInput(f"{path}: no {', '.join(SUFFIXES)} file in this directory")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableInput(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from None


def _parse(name: str, text: str) -> Iterator[Document]:
    try:
        bodies = list(_bodies(text))
        for number, body in enumerate(bodies, start=1):
            yield from _flatten(name if len(bodies) == 1 else f"{name}: document {number}", body)
    except KeyError as error:
        # PyYAML looks the words of a tagged scalar up in a table (`!!bool maybe`).
        raise UnreadableInput(f"{name}: {error} is no value of its tag") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableInput(f"{name}: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    # There is one text, which has no other name.
    return " ".join(str(error).replace('in "<unicode string>", ', "in ").split())


def _bodies(text: str) -> Iterator[Any]:
    """JSON where the text is JSON (also several values in a row), else the documents of the YAML stream."""
    stripped = text.lstrip()
    if stripped[:1] in ("{", "["):
        decoder = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)
        position, found = 0, []
        try:
            while position < len(stripped):
                value, end = decoder.raw_decode(stripped, position)
                found.append(value)
                position = end + len(stripped[end:]) - len(stripped[end:].lstrip())
        except json.JSONDecodeError:
            # A YAML document may start with a brace too.
            pass
        else:
            yield from found
            return
    for body in yaml.load_all(text, Loader=_Loader):
        if body is not None:
            if "*" in text and _size(body, {}) > max(LARGE, TIMES * len(text)):
                raise ValueError(
                    f"aliases (*name) repeat so much that there are more than {LARGE:,} values; write it out"
                )
            yield body


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values there are when all aliases are written out; `known` has what was counted, by identity."""
    if not isinstance(value, dict | list):
        return 1
    found = known.get(id(value))
    if found is None:
        # A list that holds itself is told when it is read.
        known[id(value)] = 1
        inner = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_size(one, known) for one in inner)
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if any(key == other for other, _ in pairs[:index]))
        raise ValueError(f"key {twice!r} stands twice in one object")
    return made


def _flatten(place: str, body: Any) -> Iterator[Document]:
    """The objects of a document: itself, or the items of a List (a JSON array counts as one)."""
    if isinstance(body, list):
        for index, item in enumerate(body):
            yield from _flatten(f"{place}: item {index + 1}", item)
        return
    if not isinstance(body, Mapping):
        raise UnreadableInput(f"{place}: expected a Kubernetes object, found {type(body).__name__}")
    kind, items = body.get("kind"), body.get("items")
    if not (isinstance(kind, str) and kind.endswith("List") and (isinstance(items, list) or items is None)):
        yield Document(place, body)
        return
    for index, item in enumerate(items or ()):
        if isinstance(item, Mapping) and kind != "List":
            # Items of a typed list may leave out what the list has said.
            item = {"apiVersion": body.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
        yield from _flatten(f"{place}: item {index + 1}", item)


class _Loader(_Base):
    """YAML with the types of JSON, as Kubernetes reads it."""


def _construct_mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    if len(set(written)) != len(written):
        twice = next(key for index, key in enumerate(written) if key in written[:index])
        raise yaml.constructor.ConstructorError(
            None, None, f"key {twice!r} stands twice in one object", node.start_mark
        )
    # Puts the entries of `<<` before the object's own, which override them.
    loader.flatten_mapping(node)
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be text", key_node.start_mark)
        key = loader.construct_object(key_node, deep=True)
        made[key if isinstance(key, str) else json.dumps(key)] = loader.construct_object(value_node, deep=True)
    return made


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float:
    number = float(loader.construct_scalar(node).replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(number):
        raise yaml.constructor.ConstructorError(None, None, f"{node.value} is not a JSON number", node.start_mark)
    return number


def _construct_int(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567"
    return int(f"{sign}0o{digits[1:]}" if octal else text, 0)


# YAML 1.1 also takes 10:20 for a number in base 60 and 2026-12-01 for a date; PCI addresses and times must stay text.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in ("timestamp", "int", "float")]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|Inf|INF))$"
        r"|^\.(nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
