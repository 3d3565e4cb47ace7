"""Nothing of a node outlives the program that asked for it, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.node import keeper
from tests.support.waiting import eventually

HERE = Path(__file__).resolve().parent
OWNER = """
import time
from tests.controlplane.sandbox import Sandbox
from tests.node.network import own_network
from tests.node.node import within
with own_network():
    sandbox = Sandbox("killed", within("node-k"))
    # A process that was disowned, as containers are, beside one that the supervisor knows.
    command = ("sh", "-c", "sleep 1000 & exec sleep 1000")
    sandbox.start("one", command, sandbox.root / "one.log", {"PATH": "/usr/bin:/bin"})
    print(sandbox.root, sandbox.supervisor_pid, flush=True)
    time.sleep(1000)
"""


@dataclass(frozen=True, slots=True)
class Owned:
    """A program that owns the namespaces of a node, and what belongs to them."""

    program: subprocess.Popen[str]
    keeper: int
    root: Path
    processes: frozenset[int]

    def remains(self) -> list[str]:
        """What is still there."""
        alive = [pid for pid in (self.keeper, *sorted(self.processes)) if running(pid)]
        name = keeper.cgroup_name(self.keeper)
        cgroups = [top / name for top in keeper.hierarchies() if (top / name).exists()]
        folders = [self.root] if self.root.exists() else []
        return [*(f"process {pid}" for pid in alive), *map(str, cgroups), *map(str, folders)]


def running(pid: int) -> bool:
    """Whether it has not ended; one that has may still be listed until its parent asks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> frozenset[int]:
    """All processes below this one."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended meanwhile
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return frozenset(found - {pid})
        found |= more


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Owned]:
    environment = os.environ | {"ADJOIN_TEST_LOGS": str(tmp_path / "logs")}
    program = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=HERE.parents[1], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    root, pid = program.stdout.readline().split()
    # unshare, the first process inside, the supervisor, and the two that were started.
    processes = eventually(lambda: descendants(int(pid)), lambda found: len(found) == 5, what="five processes")
    yield Owned(program, int(pid), Path(root), processes)
    program.kill()
    program.wait()
    program.stdout.close()


def test_what_is_there_is_seen(owned: Owned) -> None:
    """Else the other tests here would prove nothing."""
    assert len(owned.remains()) == 1 + len(owned.processes) + len(keeper.hierarchies()) + 1


def test_nothing_outlives_a_program_that_is_killed(owned: Owned) -> None:
    owned.program.send_signal(signal.SIGKILL)
    eventually(owned.remains, lambda left: not left, what="everything gone")


def test_processes_end_with_a_keeper_that_is_killed_and_the_next_removes_the_rest(owned: Owned) -> None:
    os.kill(owned.keeper, signal.SIGKILL)
    eventually(owned.remains, lambda left: "process" not in " ".join(left), what="every process gone")
    assert owned.remains() != []
    owned.program.kill()
    keeper.remove_stale_cgroups()
    assert [left for left in owned.remains() if "cgroup" in left] == []


def test_nothing_outlives_a_keeper_that_is_asked_to_end(owned: Owned) -> None:
    os.kill(owned.keeper, signal.SIGTERM)
    owned.program.kill()
    eventually(owned.remains, lambda left: not left, what="everything gone")
