"""The supervisor and the folder it guards, tried with ordinary processes in the place of a control plane."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.controlplane import sandbox
from tests.controlplane.ports import LOOPBACK, ReservedPort
from tests.controlplane.recipes import HERE
from tests.controlplane.sandbox import Sandbox, SupervisorGone, remove_stale
from tests.support.waiting import eventually

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
SLEEP = ("sleep", "600")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folders of sandboxes are made; kept logs go into kept/ below it."""
    # Below /tmp: the folder of pytest may be too deep for a socket, and then /tmp would be used.
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    monkeypatch.setenv("ADJOIN_TEST_LOGS", str(tmp_path / "kept"))
    return made


@pytest.fixture
def box(folder: Path) -> Iterator[Sandbox]:
    made = Sandbox("unit")
    (made.root / "logs").mkdir()
    yield made
    made.end(keep_logs=False)


def log(box: Sandbox) -> Path:
    return box.root / "logs" / "process.log"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_process_runs_until_it_is_stopped(box: Sandbox) -> None:
    pid = box.start("sleeper", SLEEP, log(box), ENVIRONMENT)
    assert box.running() == {"sleeper": pid}
    assert box.stop("sleeper", signal.SIGTERM) == -signal.SIGTERM
    assert (box.running(), box.exited()) == ({}, {})
    assert not alive(pid)


def test_a_process_that_ends_by_itself_is_told_from_one_that_was_stopped(box: Sandbox) -> None:
    box.start("brief", ("sh", "-c", "echo said; exit 3"), log(box), ENVIRONMENT)
    assert eventually(box.exited, bool, what="the process has ended") == {"brief": 3}
    assert log(box).read_text() == "said\n"


def test_a_process_gets_its_environment_and_no_other(box: Sandbox) -> None:
    box.start("env", ("env",), log(box), {"PATH": "/usr/bin:/bin", "ONE": "1"})
    eventually(box.exited, bool, what="the process has ended")
    assert sorted(log(box).read_text().split()) == ["ONE=1", "PATH=/usr/bin:/bin"]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        pytest.param(("/no/such/program",), "second does not start", id="a program that does not exist"),
        pytest.param(SLEEP, "first runs already", id="a name that is taken"),
    ],
)
def test_what_cannot_be_started_is_an_error_and_changes_nothing(
    box: Sandbox, argv: tuple[str, ...], complaint: str
) -> None:
    pid = box.start("first", SLEEP, log(box), ENVIRONMENT)
    with pytest.raises(RuntimeError, match=complaint):
        box.start("second" if "second" in complaint else "first", argv, log(box), ENVIRONMENT)
    assert box.running() == {"first": pid}


def test_the_end_kills_everything_and_removes_the_folder(box: Sandbox) -> None:
    stubborn = ("sh", "-c", "trap '' TERM INT HUP; sleep 600")
    pids = [box.start(str(n), stubborn, log(box), ENVIRONMENT) for n in range(3)]
    assert box.end(keep_logs=False) is None
    assert [pid for pid in pids if alive(pid)] == []
    assert not box.root.exists()
    assert box.end(keep_logs=True) is None
    with pytest.raises(SupervisorGone):
        box.running()


def test_logs_are_kept_on_request(box: Sandbox, tmp_path: Path) -> None:
    log(box).write_text("what happened")
    kept = box.end(keep_logs=True)
    assert kept is not None
    assert kept.parent == tmp_path / "kept"
    assert (kept / "process.log").read_text() == "what happened"


def test_the_owner_cleans_up_after_a_killed_supervisor(box: Sandbox, tmp_path: Path) -> None:
    pid = box.start("sleeper", SLEEP, log(box), ENVIRONMENT)
    os.kill(box.supervisor_pid, signal.SIGKILL)
    eventually(lambda: alive(pid), lambda is_alive: not is_alive, what="the child died with its supervisor")
    with pytest.raises(SupervisorGone):
        box.running()
    kept = box.end(keep_logs=True)
    assert kept is not None
    assert (kept / "process.log").exists()
    assert not box.root.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_supervisor_that_is_asked_to_end_takes_everything_along(box: Sandbox, number: signal.Signals) -> None:
    pid = box.start("sleeper", SLEEP, log(box), ENVIRONMENT)
    os.kill(box.supervisor_pid, number)
    eventually(lambda: alive(pid) or box.root.exists(), lambda left: not left, what="everything gone")


@pytest.mark.parametrize("how", ["raise SystemExit(0)", "os._exit(1)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_however_the_owner_ends_nothing_remains(folder: Path, how: str) -> None:
    code = f"""
import json, os, sys, tempfile
tempfile.tempdir = {str(folder)!r}
from tests.controlplane.sandbox import Sandbox
box = Sandbox("unit")
(box.root / "logs").mkdir()
pid = box.start("sleeper", {SLEEP!r}, box.root / "logs" / "log", {ENVIRONMENT!r})
print(json.dumps([pid, box.supervisor_pid]), flush=True)
{how}
"""
    pids = run_owner(code)
    eventually(lambda: [pid for pid in pids if alive(pid)], lambda left: not left, what="no process left")
    assert list(folder.glob("adjoin-cp-*")) == []


def run_owner(code: str) -> list[int]:
    """Runs a program that starts a sandbox and ends; returns the process ids it printed."""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE.parent.parent, capture_output=True, text=True, check=False
    )
    pids: list[int] = json.loads(run.stdout)
    return pids


def test_a_process_that_the_owner_forked_does_not_keep_everything_alive(folder: Path) -> None:
    # A forked child inherits the pipe to the supervisor, which then never reads its end.
    code = f"""
import json, os, tempfile, time
tempfile.tempdir = {str(folder)!r}
from tests.controlplane.sandbox import Sandbox
box = Sandbox("unit")
(box.root / "logs").mkdir()
pid = box.start("sleeper", {SLEEP!r}, box.root / "logs" / "log", {ENVIRONMENT!r})
child = os.fork()
if child == 0:
    os.close(1)
    os.close(2)
    time.sleep(600)
    os._exit(0)
print(json.dumps([pid, box.supervisor_pid, child]), flush=True)
os._exit(0)
"""
    *pids, child = run_owner(code)
    try:
        eventually(lambda: [pid for pid in pids if alive(pid)], lambda left: not left, what="no process left")
    finally:
        os.kill(child, signal.SIGKILL)


def test_folders_that_nobody_holds_any_more_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "STALE_SECONDS", -1.0)
    for name in ("adjoin-cp-held", "adjoin-cp-left", "adjoin-cp-unknown", "somebody-elses"):
        (folder / name).mkdir()
    for name in ("adjoin-cp-held", "adjoin-cp-left", "somebody-elses"):
        (folder / name / "owned.lock").touch()
    with (folder / "adjoin-cp-held" / "owned.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_stale()
    # One without a lock was not made by us, or is being made at this moment.
    assert sorted(path.name for path in folder.iterdir()) == ["adjoin-cp-held", "adjoin-cp-unknown", "somebody-elses"]


def test_a_young_folder_is_left_alone(folder: Path) -> None:
    (folder / "adjoin-cp-young").mkdir()
    (folder / "adjoin-cp-young" / "owned.lock").touch()
    remove_stale()
    assert (folder / "adjoin-cp-young").exists()


def test_a_folder_whose_path_is_too_long_for_a_socket_is_avoided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    box = Sandbox("unit")
    try:
        assert len(str(box.root / "etcd.sock")) <= 107
    finally:
        box.end(keep_logs=False)


# ---------------------------------------------------------------- ports


def listen(port: int) -> socket.socket:
    """Listens as Go's servers do."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((LOOPBACK, port))
    server.listen()
    return server


def test_a_reserved_port_can_be_listened_on_again_and_again() -> None:
    port = ReservedPort()
    for _ in range(3):
        with listen(port.number) as server, socket.create_connection((LOOPBACK, port.number)) as client:
            accepted, _ = server.accept()
            accepted.close()
            assert client.recv(1) == b""
    port.release()


def test_reserved_ports_differ_and_are_given_to_nobody_else() -> None:
    ports = [ReservedPort() for _ in range(200)]
    numbers = {port.number for port in ports}
    assert len(numbers) == 200
    others = [socket.create_server((LOOPBACK, 0)) for _ in range(200)]
    assert numbers.isdisjoint(other.getsockname()[1] for other in others)
    for port in ports:
        port.release()
    for other in others:
        other.close()
