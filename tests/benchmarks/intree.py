"""The scheduler's own allocator, beside ours: a Go program around `k8s.io/dynamic-resource-allocation`.

The program is kept beside the repository; it makes clusters of the same nodes with the same part of them partly held,
by its own seed, and measures whole decisions as kube-scheduler takes them (a new allocator, then the filter pass).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.build import cache_root
from tests.support.shared import SHARED

LIMIT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is asked of the program.

    Attributes:
        name: The program's word for the claim.
        busy: The part of the nodes that is partly held. None for eight pairs: with any, the program's decisions take
            seconds or are aborted.
    """

    name: str
    busy: float


SCENARIOS = {"1+1": Scenario("one1", 0.3), "2+2": Scenario("same2", 0.3), "8+8": Scenario("pairs8", 0.0)}


def missing() -> str:
    """Why it cannot be run here, or ""."""
    if SHARED is None or not (SHARED / "bench" / "drabase" / "main.go").is_file():
        return "../shared/bench/drabase is absent: no program of the in-tree allocator to run beside ours"
    if shutil.which("go") is None:
        return "go is not in PATH: the in-tree allocator's program is built from source"
    return ""


def program() -> Path:
    """Builds it, once per change of its sources."""
    assert SHARED is not None
    source = SHARED / "bench" / "drabase"
    target = cache_root() / "drabase"
    newest = max(path.stat().st_mtime for path in source.iterdir())
    if not target.is_file() or target.stat().st_mtime < newest:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            built = Path(scratch) / "drabase"
            environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
            subprocess.run(["go", "build", "-o", str(built), "."], cwd=source, env=environment, check=True)
            built.replace(target)
    return target


def seconds(scenario: Scenario, nodes: int, seed: int = 1) -> float:
    """Median of whole decisions."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.json"
        command = [str(program()), "-nodes", str(nodes), "-scenario", scenario.name, "-frac", str(scenario.busy)]
        command += ["-seed", str(seed), "-decisions", "5", "-samples", "20", "-budget", "20s", "-json", str(out)]
        subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_SECONDS)
        (row,) = json.loads(out.read_text())
    return float(row["filter_pass"]["wall_us"]["Med"]) / 1e6
