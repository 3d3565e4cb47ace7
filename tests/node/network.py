"""A network namespace for everything that the tests start, so that nothing of a node is ever seen in the machine's own.

While `own_network()` lasts, the calling thread and all threads and processes that it starts live in a namespace that
has nothing but a loopback interface. What is sent there reaches nobody else, so addresses need no thought.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator

CLONE_NEWNET = 0x40000000
THIS_THREAD = "/proc/thread-self/ns/net"

GATEWAY = "10.201.77.1"
NODE_ADDRESS = "10.201.77.2"
PREFIX_LENGTH = 30
OUTER_LINK = "node0"


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Threads that ran before stay where they are. Needs CAP_SYS_ADMIN; raises OSError without."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(THIS_THREAD, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "a network namespace of the tests' own is refused")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            if libc.setns(before, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "the way back to the machine's network is refused")
    finally:
        os.close(before)
