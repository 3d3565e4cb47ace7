"""The pictures of the documentation are what the allocator answers today."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from docs.pictures.draw import FOLDER, PICTURES

PAGE = Path(FOLDER).parent / "allocator.md"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_drawn(name: str) -> None:
    """`python -m docs.pictures.draw` writes them anew."""
    assert (FOLDER / name).read_text() == PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_can_be_read(name: str) -> None:
    root = ET.parse(FOLDER / name).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(root)) > 10


def test_the_page_shows_every_picture_and_no_other() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(pictures/([\w-]+\.svg)\)", PAGE.read_text())
    assert sorted(shown) == sorted(PICTURES)


def test_every_picture_is_shown_by_a_page() -> None:
    pages = "".join(page.read_text() for page in PAGE.parent.glob("*.md"))
    for picture in FOLDER.glob("*.svg"):
        assert f"pictures/{picture.name})" in pages, picture.name


def test_the_page_links_to_what_is_there() -> None:
    for link in re.findall(r"\]\(([\w./-]+)\)", PAGE.read_text()):
        assert (PAGE.parent / link).exists(), link
