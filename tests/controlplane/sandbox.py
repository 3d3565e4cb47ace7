"""A folder and a supervisor process of one control plane, seen from the program that uses it.

Comes in: commands to start and stop named processes. Goes out: their process ids and how they ended. The folder and the
processes end with `end()`, and without it when this program ends in any other way: see supervisor.py, which does it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

PREFIX = "adjoin-cp-"
LOCK_NAME = "owned.lock"
# A folder younger than this may belong to somebody who has not come to lock it yet.
STALE_SECONDS = 60.0
# etcd's socket lies in the folder, and a socket's path may have 107 bytes.
LONGEST_FOLDER = 90


class SupervisorGone(Exception):
    """The supervisor process does not answer any more; its processes are dead."""


class Sandbox:
    """Made running; `end()` must be called, and may be called twice. Safe to use from several threads.

    `within` makes the command that starts the supervisor, for one that shall live in namespaces of its own: it is given
    the sandbox and the supervisor's command, which lacks its last argument, the id of the supervisor's parent process.
    """

    def __init__(self, name: str, within: Callable[[Sandbox, list[str]], list[str]] | None = None) -> None:
        remove_stale()
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_parent_folder()))
        self.logs_kept_in = _logs_folder(name, self.root.name.removeprefix(PREFIX))
        self._talking = threading.Lock()
        self._asked = 0
        try:
            # Shared with the supervisor, so it is held until both of us are gone.
            with (self.root / LOCK_NAME).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._supervisor = self._start_supervisor(lock.fileno(), within)
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise

    def _start_supervisor(
        self, lock: int, within: Callable[[Sandbox, list[str]], list[str]] | None
    ) -> subprocess.Popen[str]:
        script = Path(__file__).with_name("supervisor.py")
        command = [sys.executable, "-I", "-S", str(script), str(self.root), str(self.logs_kept_in)]
        with (self.root / "supervisor.log").open("w") as log:
            return subprocess.Popen(
                within(self, command) if within is not None else [*command, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=(lock,),
                start_new_session=True,
            )

    @property
    def _questions(self) -> IO[str]:
        assert self._supervisor.stdin is not None
        return self._supervisor.stdin

    @property
    def _answers(self) -> IO[str]:
        assert self._supervisor.stdout is not None
        return self._supervisor.stdout

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    def start(self, name: str, argv: tuple[str, ...], log: Path, env: dict[str, str]) -> int:
        """Starts a process and returns its id; its output is appended to `log`."""
        return int(self._tell(do="start", name=name, argv=list(argv), log=str(log), env=env)["pid"])

    def stop(self, name: str, number: signal.Signals) -> int:
        """Sends the signal, waits for the end, returns the exit status (negative: the signal it died of)."""
        return int(self._tell(do="stop", name=name, number=int(number))["status"])

    def running(self) -> dict[str, int]:
        """The process ids of those that run."""
        return dict(self._tell(do="poll")["running"])

    def exited(self) -> dict[str, int]:
        """The exit statuses of those that ended without having been stopped."""
        return dict(self._tell(do="poll")["exited"])

    def end(self, *, keep_logs: bool) -> Path | None:
        """Kills every process and removes the folder; returns where the logs are kept, if they are."""
        kept = None
        with contextlib.suppress(SupervisorGone):
            answer = self._tell(do="quit", keep_logs=keep_logs)["kept"]
            kept = Path(answer) if answer else None
        with contextlib.suppress(BrokenPipeError):
            self._questions.close()
        self._supervisor.wait()
        self._answers.close()
        if self.root.exists():  # the supervisor was killed before it could do its work
            if keep_logs and (self.root / "logs").is_dir():
                shutil.copytree(self.root / "logs", self.logs_kept_in, dirs_exist_ok=True)
                kept = self.logs_kept_in
            shutil.rmtree(self.root, ignore_errors=True)
        return kept

    def _tell(self, **command: Any) -> dict[str, Any]:
        with self._talking:
            self._asked += 1
            answer: dict[str, Any] = {}
            try:
                self._questions.write(json.dumps({"id": self._asked, **command}) + "\n")
                self._questions.flush()
                # Ctrl-C may have come between an earlier question and its answer; that answer is nobody's now.
                while answer.get("id") != self._asked:
                    line = self._answers.readline()
                    if not line:
                        raise SupervisorGone(f"the supervisor of {self.root} is gone")
                    answer = json.loads(line)
            except (OSError, ValueError) as error:
                raise SupervisorGone(f"the supervisor of {self.root} is gone") from error
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def remove_stale() -> None:
    """Removes folders whose owner and supervisor were both killed before either could."""
    for folder in _parent_folder().glob(f"{PREFIX}*"):
        try:
            if folder.stat().st_uid != os.getuid() or time.time() - folder.stat().st_mtime < STALE_SECONDS:
                continue
            with (folder / LOCK_NAME).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # in use, or removed by somebody else at this moment


def _parent_folder() -> Path:
    folder = Path(tempfile.gettempdir())
    return folder if len(os.fsencode(folder)) <= LONGEST_FOLDER - len(PREFIX) - 8 else Path("/tmp")


def _logs_folder(name: str, suffix: str) -> Path:
    """Where logs go when something fails: below $ADJOIN_TEST_LOGS, else below the folder for temporary files."""
    label = f"adjoin-logs-{time.strftime('%Y%m%d-%H%M%S')}-{name}-{suffix}"
    base = os.environ.get("ADJOIN_TEST_LOGS", "")
    return (Path(base) if base else Path(tempfile.gettempdir())).absolute() / label
