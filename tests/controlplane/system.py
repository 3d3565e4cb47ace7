"""What is built or packed from the machine's own packages: a static busybox, and libseccomp to link runc with.

Comes in: a folder to keep things in. Goes out: paths, and the environment in which `go build` finds the library. What
is installed is used; else the Debian package is fetched by apt-get and only unpacked into that folder. Nothing is ever
installed, and no list of packages is renewed. `BuildError` says what to install where neither works.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.controlplane.errors import BuildError


def static_busybox(cache: Path) -> Path:
    """A busybox that needs no other file, so that it can be a container's only one."""
    installed = shutil.which("busybox")
    if installed is not None and _is_static(Path(installed)):
        return Path(installed)
    return _only(_unpacked("busybox-static", cache), "bin/busybox", "usr/bin/busybox")


def seccomp_environment(cache: Path) -> dict[str, str]:
    """Variables by which cgo finds libseccomp's header and static library through pkg-config."""
    for tool in ("gcc", "pkg-config"):
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} is not in PATH: runc is linked with libseccomp and needs gcc and pkg-config")
    asked = subprocess.run(
        ["pkg-config", "--variable=libdir", "libseccomp"], capture_output=True, text=True, check=False
    )
    if asked.returncode == 0 and (Path(asked.stdout.strip()) / "libseccomp.a").exists():
        return {}
    root = _unpacked("libseccomp-dev", cache)
    described = _only(root, f"usr/lib/{platform.machine()}-linux-gnu/pkgconfig/libseccomp.pc")
    # As shipped it speaks of /usr; the one beside it speaks of where the files are.
    moved = root / "pkgconfig" / "libseccomp.pc"
    text = re.sub(r"^prefix=.*$", f"prefix={root / 'usr'}", described.read_text(), flags=re.MULTILINE)
    if not moved.exists() or moved.read_text() != text:
        moved.parent.mkdir(exist_ok=True)
        moved.write_text(text)
    return {"PKG_CONFIG_PATH": str(moved.parent)}


def _is_static(program: Path) -> bool:
    """Whether an ELF file asks for no loader (program header PT_INTERP)."""
    asked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return "not a dynamic executable" in asked.stderr + asked.stdout or "statically linked" in asked.stdout


def _only(root: Path, *places: str) -> Path:
    for place in places:
        if (root / place).exists():
            return root / place
    raise BuildError(f"{root} holds none of {', '.join(places)}")


def _unpacked(package: str, cache: Path) -> Path:
    """The folder of an unpacked Debian package; it appears whole or not at all."""
    home = cache / f"debian-{package}"
    if home.is_dir():
        return home
    advice = f"{package} is neither installed nor to be fetched: install it"
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise BuildError(f"{advice} (its name may differ where packages are not Debian's)")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=cache) as scratch:
        # Without the option apt-get warns that its own user may not write here.
        command = ["apt-get", "download", "--quiet", "--option", "APT::Sandbox::User=root", package]
        fetched = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        found = sorted(Path(scratch).glob("*.deb"))
        if fetched.returncode != 0 or not found:
            raise BuildError(f"{advice}, or run `apt-get update` so that it is found:\n{fetched.stderr.strip()}")
        root = Path(scratch) / "root"
        subprocess.run(["dpkg-deb", "--extract", found[-1], root], check=True, capture_output=True)
        try:
            os.rename(root, home)
        except OSError:
            if not home.is_dir():  # else somebody else was first, with the same package
                raise
    return home
