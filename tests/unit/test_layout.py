"""The shape of the repository: what must hold so that everything else can be found and imported."""

from __future__ import annotations

import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """A command in the repository's root."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("-S",), ("-I",)], ids=["as it comes", "without site", "isolated"])
def test_pythons_own_operator_module_wins_in_the_root(options: tuple[str, ...]) -> None:
    """The folder `operator/` must stay a folder: with an `__init__.py` or an `operator.py` in it, Python itself
    breaks."""
    code = "import operator, collections; print(operator.__file__, operator.itemgetter(0)([7]))"
    done = run(sys.executable, *options, "-c", code)
    assert done.returncode == 0, done.stderr
    where, seven = done.stdout.split()
    assert seven == "7"
    assert not Path(where).is_relative_to(ROOT / "operator")


def test_no_module_stands_directly_in_the_two_folders() -> None:
    """Only packages do."""
    assert operator.__name__ == "operator"
    assert [p.name for folder in ("operator", "allocator") for p in (ROOT / folder).glob("*.py")] == []


def test_every_module_has_its_floor_and_imports_only_from_below() -> None:
    """The import contracts hold, exhaustively."""
    done = run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr


def test_crds_are_as_generated() -> None:
    """The models are the source."""
    done = run(sys.executable, "-m", "adjoin.api.crd", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["adjoin", "kubectl-adjoin"])
def test_both_commands_start(command: str) -> None:
    """`kubectl adjoin` is the same program."""
    done = run(str(Path(sys.executable).parent / command), "--help")
    assert done.returncode == 0, done.stderr
    assert "plan" in done.stdout


def test_versions_agree() -> None:
    """Package and charts are released together."""
    package = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert package is not None
    for chart in ("adjoin", "adjoin-crds"):
        text = (ROOT / "helm" / chart / "Chart.yaml").read_text()
        assert f"\nversion: {package[1]}\n" in text
        assert f"\nappVersion: {package[1]}\n" in text
