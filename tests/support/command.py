"""Runs a command line in a test: arguments and standard input in, what it printed and how it ended out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from tests.support.planning import Ran

from adjoin.cli import main

Obj = Mapping[str, Any]


def run(*arguments: str, stdin: str = "") -> Ran:
    """Runs `adjoin` with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "stdin", io.StringIO(stdin)), redirect_stdout(out), redirect_stderr(err):
        status = main(list(arguments))
    return Ran(status, out.getvalue(), err.getvalue())


def as_text(objects: Iterable[Obj]) -> str:
    """Objects as a YAML stream."""
    return yaml.safe_dump_all([dict(obj) for obj in objects], sort_keys=False)


def written(objects: Iterable[Obj], path: Path) -> str:
    """Objects as a file, whose path comes back."""
    path.write_text(as_text(objects))
    return str(path)
