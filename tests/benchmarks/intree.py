"""The scheduler's own allocator, beside ours: a Go program around `k8s.io/dynamic-resource-allocation`.

The program is kept beside the repository and measures whole decisions as kube-scheduler takes them: a new allocator,
then the filter pass with its 16 workers until enough nodes fit. It makes its clusters by a generator of its own, so
that a seed does not name the same nodes in both. What is the same: the number of nodes; 8 GPUs and 8 NICs on each, two
of each on a root complex; the chance that a node is partly held, and there that 1 to 8 pairs of the i-th GPU and the
i-th NIC are, each number and each set of pairs as likely as any other; the claim, and that it needs pairs of one root
complex.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.build import cache_root
from tests.support.shared import SHARED

LIMIT_SECONDS = 600
DECISIONS = 4, 20
"""So many whole decisions are made in the two runs that are compared."""


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
    """Processor time of a whole decision, all its workers together: what many decisions take more than few do.

    Time on the wall says little on a machine with other work, since a decision keeps all processors busy.
    """
    few, many = (_run(scenario, nodes, seed, decisions) for decisions in DECISIONS)
    assert many.decisions > few.decisions, "the program made no more decisions when it was asked for more"
    # For each decision it also looks once for the first node that fits, with one worker.
    return (many.seconds - few.seconds) / (many.decisions - few.decisions) - many.first_fit


@dataclass(frozen=True, slots=True)
class _Ran:
    """Processor time of one run, how many decisions it made, and what the first node that fits took at best."""

    seconds: float
    decisions: int
    first_fit: float


def _run(scenario: Scenario, nodes: int, seed: int, decisions: int) -> _Ran:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.json"
        command = [str(program()), "-nodes", str(nodes), "-scenario", scenario.name, "-frac", str(scenario.busy)]
        command += ["-seed", str(seed), "-decisions", str(decisions), "-samples", "20", "-json", str(out)]
        before = _children_seconds()
        subprocess.run([*command, "-budget", "120s"], check=True, capture_output=True, timeout=LIMIT_SECONDS)
        spent = _children_seconds() - before
        (row,) = json.loads(out.read_text())
    return _Ran(
        spent, int(row["filter_pass"]["wall_us"]["n"]), float(row["first_fit_sequential"]["wall_us"]["Min"]) / 1e6
    )


def _children_seconds() -> float:
    """Processor time of all programs that were run from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
