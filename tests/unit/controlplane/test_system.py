"""What comes from the machine's own packages: installed, else fetched and unpacked once, else refused in words."""

from __future__ import annotations

import platform
import stat
from pathlib import Path

import pytest
from tests.controlplane.errors import BuildError
from tests.controlplane.system import seccomp_environment, static_busybox

LIBRARIES = f"usr/lib/{platform.machine()}-linux-gnu"
# "Fetches" a package that the folder $FAKE_PACKAGES has, and notes it.
APT_GET = """#!/bin/sh
for package in "$@"; do :; done
echo "$package" >> "$FAKE_PACKAGES/asked"
[ -d "$FAKE_PACKAGES/$package" ] || { echo "E: Unable to locate package $package" >&2; exit 100; }
echo "$FAKE_PACKAGES/$package" > "$package.deb"
"""
DPKG_DEB = """#!/bin/sh
cp -r "$(cat "$2")" "$3"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tools of a machine that has neither package installed; its folder `packages` is what can be fetched."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tmp_path / "packages").mkdir()
    for name, text in {
        "apt-get": APT_GET,
        "dpkg-deb": DPKG_DEB,
        "gcc": "#!/bin/sh\n",
        "pkg-config": "#!/bin/sh\nexit 1\n",
        "ldd": "#!/bin/sh\necho 'libc.so.6 => /lib/libc.so.6'\n",
    }.items():
        tool(tools / name, text)
    for name in ("sh", "cat", "cp"):
        (tools / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("FAKE_PACKAGES", str(tmp_path / "packages"))
    return tmp_path


def tool(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def offered(machine: Path, package: str, **files: str) -> None:
    """A package that can be fetched, with these files."""
    for name, text in files.items():
        path = machine / "packages" / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def asked(machine: Path) -> list[str]:
    log = machine / "packages" / "asked"
    return log.read_text().split() if log.exists() else []


def test_an_installed_busybox_is_taken_if_it_is_static(machine: Path) -> None:
    tool(machine / "tools" / "busybox", "busybox")
    tool(machine / "tools" / "ldd", "#!/bin/sh\necho 'not a dynamic executable' >&2; exit 1\n")
    assert static_busybox(machine / "cache") == machine / "tools" / "busybox"
    assert asked(machine) == []


def test_a_busybox_that_needs_libraries_is_left_alone(machine: Path) -> None:
    tool(machine / "tools" / "busybox", "busybox")
    offered(machine, "busybox-static", **{"bin/busybox": "static"})
    assert static_busybox(machine / "cache").read_text() == "static"


def test_a_package_is_fetched_once(machine: Path) -> None:
    offered(machine, "busybox-static", **{"usr/bin/busybox": "static"})
    first = static_busybox(machine / "cache")
    assert static_busybox(machine / "cache") == first
    assert asked(machine) == ["busybox-static"]
    assert [path.name for path in (machine / "cache").iterdir()] == ["debian-busybox-static"]


def test_what_cannot_be_had_is_said_with_what_to_do(machine: Path) -> None:
    with pytest.raises(BuildError, match=r"busybox-static.*install it, or run `apt-get update`(?s:.)*Unable to locate"):
        static_busybox(machine / "cache")
    assert list((machine / "cache").iterdir()) == []


def test_without_apt_get_nothing_is_fetched(machine: Path) -> None:
    (machine / "tools" / "apt-get").unlink()
    with pytest.raises(BuildError, match=r"busybox-static is neither installed nor to be fetched: install it"):
        static_busybox(machine / "cache")


def test_an_installed_libseccomp_needs_no_words(machine: Path) -> None:
    libraries = machine / "lib"
    libraries.mkdir()
    (libraries / "libseccomp.a").write_text("")
    tool(machine / "tools" / "pkg-config", f"#!/bin/sh\necho {libraries}\n")
    assert seccomp_environment(machine / "cache") == {}


def test_an_unpacked_libseccomp_is_found_where_it_is(machine: Path) -> None:
    described = "prefix=/usr\nlibdir=${prefix}/lib\n"
    offered(machine, "libseccomp-dev", **{f"{LIBRARIES}/pkgconfig/libseccomp.pc": described})
    environment = seccomp_environment(machine / "cache")
    found = (Path(environment["PKG_CONFIG_PATH"]) / "libseccomp.pc").read_text()
    assert found == f"prefix={machine / 'cache' / 'debian-libseccomp-dev' / 'usr'}\nlibdir=${{prefix}}/lib\n"


@pytest.mark.parametrize("name", ["gcc", "pkg-config"])
def test_a_missing_tool_is_named(machine: Path, name: str) -> None:
    (machine / "tools" / name).unlink()
    with pytest.raises(BuildError, match=rf"^{name} is not in PATH"):
        seccomp_environment(machine / "cache")
