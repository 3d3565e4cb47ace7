"""Reading files as kubectl does: any mix of YAML documents, JSON and Lists."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from adjoin.cli.documents import Document, UnreadableInput, read_documents

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
OTHER = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}


def read(text: str) -> list[Document]:
    return read_documents(["-"], io.StringIO(text))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(NODE) + "\n" + json.dumps(OTHER), id="JSON values in a row"),
        pytest.param(json.dumps([NODE, OTHER]), id="a JSON array"),
        pytest.param(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, OTHER]}), id="a List"),
        pytest.param(
            '{"apiVersion": "v1", "kind": "NodeList", '
            '"items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}]}',
            id="a typed list, whose items leave out kind and version",
        ),
        pytest.param(
            "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\n---\n# nothing\n---\n"
            "{apiVersion: v1, kind: Node, metadata: {name: n2}}\n",
            id="YAML documents, some of them empty",
        ),
        pytest.param(
            "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [" + json.dumps(NODE) + "]}, "
            + json.dumps(OTHER) + "]}",
            id="Lists in Lists, in YAML that starts with a brace",
        ),
    ],
)  # fmt: skip
def test_every_form_gives_the_same_objects(text: str) -> None:
    assert [dict(document.body) for document in read(text)] == [NODE, OTHER]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z", id="a time stays text"),
        pytest.param("2026-12-01", "2026-12-01", id="a date stays text"),
        pytest.param("10:20", "10:20", id="no numbers in base 60"),
        pytest.param("0000:10:1b.0", "0000:10:1b.0", id="an address"),
        pytest.param("190:20:30.15", "190:20:30.15", id="no floats in base 60"),
        pytest.param("8.0.0", "8.0.0", id="a version"),
        pytest.param("40Gi", "40Gi", id="a quantity"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("010", 8, id="octal"),
        pytest.param("1_000", 1000, id="underscores"),
        pytest.param("-3", -3, id="negative"),
        pytest.param("1.5", 1.5, id="float"),
        pytest.param("1e3", 1000.0, id="exponent"),
        pytest.param("true", True, id="boolean"),
        pytest.param("yes", True, id="boolean in words, as Kubernetes reads it"),
        pytest.param('"yes"', "yes", id="quotes make text"),
        pytest.param("null", None, id="null"),
        pytest.param("~", None, id="null in short"),
        pytest.param("08", "08", id="no octal number, so text"),
    ],
)
def test_yaml_scalars_are_read_as_kubernetes_does(text: str, value: Any) -> None:
    (document,) = read(f"apiVersion: v1\nkind: X\nv: {text}\n")
    assert document.body["v"] == value
    assert type(document.body["v"]) is type(value)


def test_keys_are_text_and_merges_are_merged() -> None:
    (document,) = read("apiVersion: v1\nkind: X\nbase: &b {a: 1, b: 2}\nuse: {<<: *b, b: 3}\n1: one\ntrue: two\n")
    assert document.body["use"] == {"a": 1, "b": 3}
    assert document.body["1"] == "one"
    assert document.body["true"] == "two"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: {", "", id="broken YAML"),
        pytest.param('{"a": 1, "a": 2}', "stands twice", id="a JSON key twice"),
        pytest.param("kind: X\nkind: Y\n", "stands twice", id="a YAML key twice"),
        pytest.param('{"a": NaN}', "NaN", id="NaN in JSON"),
        pytest.param("a: .inf", "not a JSON number", id="infinity in YAML"),
        pytest.param("just text", "expected a Kubernetes object", id="no object"),
        pytest.param("[1, 2]", "expected a Kubernetes object", id="a list of numbers"),
        pytest.param("a: !!python/object:os.system {}", "", id="a Python object"),
        pytest.param("[" * 5000 + "]" * 5000, "nested too deeply", id="nesting without end"),
        pytest.param("? [a, b]\n: c\n", "a key must be text", id="a list as key"),
    ],
)
def test_unreadable_input_is_named(text: str, words: str) -> None:
    with pytest.raises(UnreadableInput) as caught:
        read(text)
    assert str(caught.value).startswith("standard input: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n2}}")
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps(NODE), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "c.yaml").write_text("nor this: {")
    documents = read_documents([str(tmp_path)], io.StringIO())
    assert [document.body["metadata"]["name"] for document in documents] == ["n1", "n2"]
    assert documents[0].place == str(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda folder: str(folder / "absent.yaml"), "No such file", id="an absent file"),
        pytest.param(lambda folder: str(folder), "no .yaml, .yml, .json file", id="an empty directory"),
    ],
)
def test_what_is_not_there_is_an_error(tmp_path: Path, make: Any, words: str) -> None:
    with pytest.raises(UnreadableInput, match=words):
        read_documents([make(tmp_path)], io.StringIO())


def test_places_say_which_document_and_item() -> None:
    documents = read("{apiVersion: v1, kind: A}\n---\n{kind: List, items: [{kind: B}, {kind: C}]}\n")
    assert [document.place for document in documents] == [
        "standard input: document 1",
        "standard input: document 2: item 1",
        "standard input: document 2: item 2",
    ]


def test_standard_input_is_read_once() -> None:
    with pytest.raises(UnreadableInput, match="only once"):
        read_documents(["-", "-"], io.StringIO())
