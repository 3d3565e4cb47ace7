"""The first process inside of a node's namespaces: makes its file systems, starts the supervisor, reaps what is left.

Run as a script by keeper.py, standard library only: `inside.py HOSTNAME ROOT LOGS SUPERVISOR…`. Standard input and
output are the supervisor's. It ends when the supervisor does, and all other processes of the namespace end with it.

The machine's files are seen read-only, but for ROOT and LOGS; /run, /var/lib and /var/log are empty and in memory. So
the kubelet knows of no disk that could fill, which its log tells every ten seconds.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

MEMORY_LIMIT = "size=4g,mode=755"
# The kubelet insists on these, and they are the whole machine's: it is shown them instead.
SYSCTLS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, stdin=subprocess.DEVNULL)


def make_file_systems(root: Path, logs: Path) -> None:
    # Containers' mounts shall be seen here, and none of it outside.
    mount("--make-rshared", "/")
    for folder in dict.fromkeys((str(logs), str(root))):
        mount("--bind", folder, folder)
    for folder in ("/run", "/var/lib", "/var/log"):
        mount("-t", "tmpfs", "-o", MEMORY_LIMIT, "tmpfs", folder)
    # What containers print is kept with the other logs; what drivers prepare and what pods write down is read by the
    # tests; the test driver wants its folder made.
    for kept, place in (
        ("logs/pods", "/var/log/pods"),
        ("cdi", "/run/cdi"),
        ("journal", "/run/journal"),
        ("plugins", "/var/lib/kubelet/plugins"),
    ):
        (root / kept).mkdir(parents=True, exist_ok=True)
        os.makedirs(place)
        mount("--bind", str(root / kept), place)
    for name, value in SYSCTLS.items():
        shown = root / name.replace("/", "-")
        shown.write_text(f"{value}\n")
        mount("--bind", str(shown), f"/proc/sys/{name}")
    mount("-o", "remount,bind,ro", "/")


def main(hostname: str, root: str, logs: str, *supervisor: str) -> int:
    make_file_systems(Path(root), Path(logs))
    socket.sethostname(hostname)
    child = subprocess.Popen([*supervisor, str(os.getpid())])
    while True:
        ended, status = os.wait()
        if ended == child.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
