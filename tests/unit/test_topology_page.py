"""Pictures and printed answers in the documentation are what the commands beside them make."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from adjoin.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "topology.md"
SHOWN = re.compile(r"```sh\nkubectl adjoin (?P<command>.*?)```\n\s*```text\n(?P<output>.*?)```", re.DOTALL)


def test_the_page_on_topologies_shows_what_its_command_prints_and_draws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    (shown,) = SHOWN.finditer(PAGE.read_text())
    *arguments, option, picture = shlex.split(shown["command"])
    assert option == "--svg"
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert main([*arguments, option, str(tmp_path / "made.svg")]) == 0
    assert out.getvalue() == shown["output"]
    assert err.getvalue() == ""
    assert (tmp_path / "made.svg").read_text() == (ROOT / picture).read_text(), "run make pictures"


def test_make_pictures_runs_the_command_of_the_page() -> None:
    """What the page shows is what the target runs."""
    said = subprocess.run(["make", "-n", "pictures"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (shown,) = SHOWN.finditer(PAGE.read_text())
    assert f"adjoin {shown['command'].strip()}" in said


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_picture_that_a_page_names_is_there(page: Path) -> None:
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text()):
        assert (page.parent / name).is_file(), name
