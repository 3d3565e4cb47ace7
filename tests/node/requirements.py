"""What a machine must have for a real node in namespaces; nothing is changed here.

`python -m tests.node.requirements` says what is missing and ends with 1, or says nothing and ends with 0.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

# Numbers of linux/capability.h, with what each is for.
CAPABILITIES = {
    0: "CAP_CHOWN (container file systems)",
    12: "CAP_NET_ADMIN (network namespaces, veth pairs)",
    18: "CAP_SYS_CHROOT (containers)",
    21: "CAP_SYS_ADMIN (namespaces, mounts, cgroups)",
    27: "CAP_MKNOD (devices of containers)",
}
PROGRAMS = {"ip": "iproute2", "unshare": "util-linux", "mount": "util-linux"}


def missing() -> list[str]:
    """Everything that is missing, in words; empty when a node can be started."""
    if sys.platform != "linux":
        return [f"Linux; this is {sys.platform}"]
    if os.geteuid() != 0:
        return [f"root; this is user {os.geteuid()} (sudo -E make test-node)"]
    found = []
    status = Path("/proc/self/status").read_text()
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    found += [name for number, name in CAPABILITIES.items() if not effective >> number & 1]
    found += [f"{program} (package {package})" for program, package in PROGRAMS.items() if not shutil.which(program)]
    if "\toverlay" not in Path("/proc/filesystems").read_text():
        found.append("the file system overlay in the kernel (modprobe overlay)")
    if not any(" - cgroup" in line for line in Path("/proc/self/mountinfo").read_text().splitlines()):
        found.append("cgroups, mounted below /sys/fs/cgroup")
    elif not os.access("/sys/fs/cgroup", os.W_OK):
        found.append("cgroups that may be written; they are mounted read-only, as in an unprivileged container")
    return found


def refusal() -> str:
    """One text that says what to do, or nothing."""
    lacking = missing()
    return f"the tests on a real node need {'; '.join(lacking)}" if lacking else ""


if __name__ == "__main__":
    if refusal():
        sys.exit(refusal())
