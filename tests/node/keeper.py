"""The process that keeps one node: makes its cgroups and its network, runs everything in namespaces, removes all of it.

Run as a script, standard library only: `keeper.py ROOT ADDRESS/BITS GATEWAY/BITS LINK COMMAND…`. Standard input and
output are the command's. The network namespace it is started in gets a link named LINK with GATEWAY, the node's
own gets eth0 with ADDRESS.

Promises: however the command ends, and with SIGTERM, no process, cgroup, link or file of the node remains. When the
keeper itself is killed, the kernel kills the command and with it every process of its pid namespace; links and mounts
go with their namespaces; cgroups are removed by the next keeper that starts, the folder ROOT by the next sandbox.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CGROUP_PREFIX = "adjoin-node-"
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
# The kernel frees a killed process' cgroup within moments.
REMOVE_SECONDS = 10.0


def hierarchies() -> list[Path]:
    """Where cgroup hierarchies are mounted: one for version 2, one per controller for version 1."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] in ("cgroup", "cgroup2"):
            found.append(Path(before.split(" ")[4]))
    return found


def cgroup_name(keeper: int) -> str:
    """The cgroup below which everything of the node of this keeper is."""
    return f"{CGROUP_PREFIX}{keeper}"


def remove_cgroups(name: str, seconds: float = REMOVE_SECONDS) -> bool:
    """Removes the cgroup and all below it, in every hierarchy; whether nothing is left."""
    deadline = time.monotonic() + seconds
    while True:
        left = [folder for top in hierarchies() for folder in _remove(top / name)]
        if not left:
            return True
        if time.monotonic() > deadline:
            print(f"cgroups that still have processes: {', '.join(map(str, left))}", file=sys.stderr, flush=True)
            return False
        time.sleep(0.05)


def _remove(folder: Path) -> Iterator[Path]:
    """Removes what is empty, the deepest first; yields what is not."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError:
            yield Path(path)


def remove_stale_cgroups() -> None:
    """Those of keepers that were killed."""
    names = {path.name for top in hierarchies() for path in top.glob(f"{CGROUP_PREFIX}*")}
    for name in names:
        keeper = name.removeprefix(CGROUP_PREFIX)
        try:
            alive = Path(__file__).name.encode() in Path(f"/proc/{keeper}/cmdline").read_bytes()
        except OSError:
            alive = False
        if not alive:
            remove_cgroups(name, seconds=1.0)


def enter_network(address: str, gateway: str, link: str) -> None:
    """Leaves for a new network namespace; a pair of links connects it with the one left behind."""
    # That of a node before it goes away a moment after its namespace.
    subprocess.run(["ip", "link", "delete", link], check=False, stderr=subprocess.DEVNULL)
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    _system("unshare", CLONE_NEWNET)
    inside = os.open("/proc/self/ns/net", os.O_RDONLY)
    _ip("link", "add", "eth0", "type", "veth", "peer", "name", link, "netns", f"/proc/self/fd/{outside}", keep=outside)
    _ip("link", "set", "lo", "up")
    _ip("addr", "add", address, "dev", "eth0")
    _ip("link", "set", "eth0", "up")
    _ip("route", "add", "default", "via", gateway.partition("/")[0])
    _system("setns", outside, CLONE_NEWNET)
    _ip("addr", "add", gateway, "dev", link)
    _ip("link", "set", link, "up")
    _system("setns", inside, CLONE_NEWNET)
    os.close(outside)
    os.close(inside)


def _ip(*arguments: str, keep: int | None = None) -> None:
    subprocess.run(["ip", *arguments], check=True, stdin=subprocess.DEVNULL, pass_fds=() if keep is None else (keep,))


def _system(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name} is refused: {os.strerror(ctypes.get_errno())}")


def _die_with_keeper() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(root: str, address: str, gateway: str, link: str, *command: str) -> int:
    remove_stale_cgroups()
    name = cgroup_name(os.getpid())
    process: subprocess.Popen[bytes] | None = None
    try:
        for top in hierarchies():
            (top / name).mkdir()
        enter_network(address, gateway, link)
        # Its child is killed when unshare is, and with the first process of a pid namespace all the others are.
        namespaces = ("--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL", "--mount-proc")
        process = subprocess.Popen(["unshare", *namespaces, *command], preexec_fn=_die_with_keeper)
        signal.signal(signal.SIGTERM, lambda *_: process.kill() if process is not None else None)
        return process.wait()
    finally:
        if process is not None:
            process.kill()
            process.wait()
            shutil.rmtree(root, ignore_errors=True)
        # Without a process the folder is left to the sandbox, which tells from it what went wrong.
        remove_cgroups(name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
