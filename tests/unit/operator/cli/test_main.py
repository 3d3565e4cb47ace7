"""Which command runs, and how the process ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adjoin.cli import main

ROOT = Path(__file__).resolve().parents[4]


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ADJOIN_")}
    return subprocess.run(
        [sys.executable, "-m", "adjoin", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
        env=clean | (environment or {}),
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        pytest.param([], 2, id="no command"),
        pytest.param(["frobnicate"], 2, id="an unknown command"),
        pytest.param(["--help"], 0, id="help"),
        pytest.param(["plan", "--help"], 0, id="help on a command"),
    ],
)
def test_exit_status(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == status
    assert "adjoin" in "".join(capsys.readouterr())


def test_as_a_plugin_it_calls_itself_kubectl_adjoin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-adjoin", "plan", "--help"])
    assert main() == 0
    assert "usage: kubectl adjoin plan" in capsys.readouterr().out


def test_run_knows_the_options_of_the_operator() -> None:
    ran = run("run", "--help")
    assert ran.returncode == 0
    assert "--webhook-port" in ran.stdout


def test_run_without_what_it_needs_says_what() -> None:
    ran = run("run")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: ")
    assert "--namespace" in ran.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    claim = (
        "{apiVersion: adjoin.dev/v1alpha1, kind: DeviceClaim, metadata: {name: c%d}, "
        "spec: {poolRef: {name: p}, requests: [{name: gpu}]}}\n"
    )
    file.write_text("---\n".join(claim % number for number in range(500)))
    command = f"{sys.executable} -m adjoin plan -f {file} -o json | head -n 1; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert ran.stdout == "{\n"
    assert "Traceback" not in ran.stderr
    assert "BrokenPipe" not in ran.stderr
    assert ran.returncode in (3, 141)
