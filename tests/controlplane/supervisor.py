"""The process that owns a control plane's processes, so that nothing outlives the program that asked for them.

Run as a script (`python -I -S supervisor.py DIRECTORY KEEP_LOGS_IN OWNER_PID`), standard library only. Comes in: one
JSON command a line on standard input (start, stop, poll, quit). Goes out: one JSON answer a line on standard output.

Promises: when its owner ends, however it ends (exit, signal, kill -9), the end of standard input or a new parent
process is noticed within half a second; then every process is killed, the logs are copied to KEEP_LOGS_IN, since
nobody said that all went well, and DIRECTORY is removed. When the supervisor itself is killed, the kernel kills its
children (Linux), and the owner, or the next control plane that starts, removes DIRECTORY. Ctrl-C in a terminal does
not reach it, since it runs in a session of its own.

Single-threaded, on purpose: the kernel's parent-death signal is tied to the thread that started the child.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

PARENT_CHECK_SECONDS = 0.5
# How long a process that was asked politely may take before it is killed.
POLITE_SECONDS = 30.0
PR_SET_PDEATHSIG = 1


class Supervisor:
    """Starts, stops and reaps; every process it started is in `running` or in `exited`, never in both."""

    def __init__(self, directory: str, keep_logs_in: str, owner: int) -> None:
        self.directory = directory
        self.keep_logs_in = keep_logs_in
        self.owner = owner
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.exited: dict[str, int] = {}

    def start(self, name: str, argv: list[str], log: str, env: dict[str, str]) -> dict[str, Any]:
        if name in self.running:
            return {"error": f"{name} runs already"}
        self.exited.pop(name, None)
        try:
            with open(log, "ab") as output:
                self.running[name] = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=env,
                    cwd=self.directory,
                    start_new_session=True,
                    preexec_fn=die_with_parent(),
                )
        except OSError as error:
            return {"error": f"{name} does not start: {error}"}
        return {"pid": self.running[name].pid}

    def stop(self, name: str, number: int) -> dict[str, Any]:
        process = self.running.pop(name, None)
        if process is None:
            return {"error": f"{name} does not run"}
        process.send_signal(number)
        try:
            status = process.wait(POLITE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        return {"status": status}

    def poll(self) -> dict[str, Any]:
        self.reap()
        return {"running": {name: process.pid for name, process in self.running.items()}, "exited": self.exited}

    def reap(self) -> None:
        for name, process in list(self.running.items()):
            status = process.poll()
            if status is not None:
                del self.running[name]
                self.exited[name] = status

    def end(self, keep_logs: bool) -> dict[str, Any]:
        """Kills everything (there is no state worth a polite goodbye), keeps the logs if asked, removes the folder."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        self.running.clear()
        kept = None
        if keep_logs:
            try:
                shutil.copytree(os.path.join(self.directory, "logs"), self.keep_logs_in, dirs_exist_ok=True)
                kept = self.keep_logs_in
            except (OSError, shutil.Error) as error:
                print(f"logs could not be kept in {self.keep_logs_in}: {error}", file=sys.stderr, flush=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        return {"kept": kept}

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        do = command.pop("do")
        if do == "start":
            return self.start(**command)
        if do == "stop":
            return self.stop(**command)
        if do == "poll":
            return self.poll()
        return {"error": f"unknown command {do!r}"}

    def serve(self, commands: int, stop_requested: Callable[[], bool], wakeup: int) -> None:
        """Until told to quit, or until the owner is gone."""
        buffer = b""
        while True:
            readable, _, _ = select.select([commands, wakeup], [], [], PARENT_CHECK_SECONDS)
            self.reap()
            if stop_requested() or os.getppid() != self.owner:
                self.end(keep_logs=True)
                return
            if wakeup in readable:
                os.read(wakeup, 4096)
            if commands not in readable:
                continue
            chunk = os.read(commands, 65536)
            if not chunk:
                self.end(keep_logs=True)
                return
            buffer += chunk
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                command = json.loads(line)
                number, last = command.pop("id"), command["do"] == "quit"
                reply = self.end(command["keep_logs"]) if last else self.answer(command)
                print(json.dumps({"id": number, **reply}), flush=True)
                if last:
                    return


def die_with_parent() -> Callable[[], None] | None:
    """What a child does before it becomes the program: ask the kernel to be killed when the supervisor is."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    supervisor = os.getpid()

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # it died before we asked
            os._exit(1)

    return ask


def main(directory: str, keep_logs_in: str, owner: str) -> None:
    wakeup, wakeup_end = os.pipe()
    os.set_blocking(wakeup_end, False)
    received: list[int] = []
    # Handlers must be Python functions for the wakeup descriptor to be written to.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: received.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # An owner that is gone must not kill us by a broken pipe before we have cleaned up.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.set_wakeup_fd(wakeup_end, warn_on_full_buffer=False)
    supervisor = Supervisor(directory, keep_logs_in, int(owner))
    try:
        supervisor.serve(sys.stdin.fileno(), lambda: bool(received), wakeup)
    except BaseException:
        supervisor.end(keep_logs=True)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
