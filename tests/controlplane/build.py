"""Builds the programs of the test control plane into a cache outside the checkout, once per version.

Comes in: the names of groups (`Group`), the Go modules beside this file, `KUBEBUILDER_ASSETS`, `XDG_CACHE_HOME`.
Goes out: the path of every program. Work that was done before is never done again: what is there is returned after a
look at the file system and one `go env`.

Promises: a program appears in the cache whole or not at all (built beside it, then renamed); builders that meet wait
for each other (file lock); while something is built, a line of progress appears at least every 15 seconds. Nothing is
ever written into the checkout, and a program of a wrong version is refused, never used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.controlplane.errors import BuildError
from tests.controlplane.recipes import Group, Recipe, kubernetes_version, recipe
from tests.controlplane.system import seccomp_environment

MINIMUM_GO = (1, 26)
# The oldest etcd that Kubernetes 1.37 is tested with.
MINIMUM_ETCD = (3, 6)
PROGRESS_SECONDS = 10.0

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The go command as it answers inside one module directory."""

    version: str
    platform: str


def to_stderr(line: str) -> None:
    """The default place for progress: standard error, flushed, so that a CI log shows it as it happens."""
    print(line, file=sys.stderr, flush=True)


def ensure(*groups: Group | str, report: Report = to_stderr) -> dict[str, Path]:
    """The programs of these groups by name, built first where they are missing.

    The names: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl; kwok and kwok-stages (a folder
    with one file per stage); helm; celoracle; those of a real node as `recipes` says. Raises `BuildError`.
    """
    found: dict[str, Path] = {}
    for group in dict.fromkeys(Group(group) for group in groups):
        plan = recipe(group)
        ready = _from_assets(plan) if group is Group.CONTROLPLANE else {}
        names = tuple(program.name for program in plan.programs if program.name not in ready)
        if names or plan.files:
            ready |= _from_cache(plan, names, report)
        found |= ready
    return found


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Where everything built is kept: $XDG_CACHE_HOME/adjoin or ~/.cache/adjoin."""
    base = environment.get("XDG_CACHE_HOME", "")
    # The XDG specification says a relative path there is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "adjoin"


# ---------------------------------------------------------------- programs that somebody else built


def _from_assets(plan: Recipe) -> dict[str, Path]:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        return {}
    found = {}
    for program in plan.programs:
        path = Path(assets) / program.name
        if path.is_file() and os.access(path, os.X_OK):
            _check_version(program.name, path.absolute())
            found[program.name] = path.absolute()
    return found


def _check_version(name: str, path: Path) -> None:
    arguments = ["version", "--client"] if name == "kubectl" else ["--version"]
    try:
        run = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"KUBEBUILDER_ASSETS: {path} does not tell its version: {error}") from error
    match = re.search(r"v?(\d+)\.(\d+)\.\d+\S*", run.stdout)
    if match is None:
        said = (run.stdout + run.stderr).strip()[:200]
        raise BuildError(f"KUBEBUILDER_ASSETS: {path} does not tell its version, it says: {said!r}")
    has = (int(match[1]), int(match[2]))
    if name == "etcd":
        wanted = f"{MINIMUM_ETCD[0]}.{MINIMUM_ETCD[1]} or newer"
        fits = has >= MINIMUM_ETCD and has[0] == MINIMUM_ETCD[0]
    else:
        wanted = kubernetes_version().removeprefix("v").rsplit(".", 1)[0]
        fits = f"{has[0]}.{has[1]}" == wanted
    if not fits:
        raise BuildError(
            f"KUBEBUILDER_ASSETS: {path} is {match[0]}, the tests need {name} {wanted}. "
            "Point KUBEBUILDER_ASSETS at fitting programs, or unset it to have them built."
        )


# ---------------------------------------------------------------- programs that we build


def _from_cache(plan: Recipe, names: Sequence[str], report: Report) -> dict[str, Path]:
    toolchain = _toolchain(plan.directory)
    home = cache_root() / f"{plan.group}-{plan.version}-{cache_key(plan, toolchain)}"
    if not _missing(plan, home, names):
        return _paths(plan, home, names)
    home.mkdir(parents=True, exist_ok=True)
    with _lock(home.with_name(home.name + ".lock"), lambda: report(f"{plan.group}: waiting for another build")):
        missing = _missing(plan, home, names)
        if missing:
            _build(plan, toolchain, home, missing, report)
    return _paths(plan, home, names)


def cache_key(plan: Recipe, toolchain: Toolchain) -> str:
    """Changes whenever the same command could yield other programs."""
    digest = hashlib.sha256()
    parts = [toolchain.version, toolchain.platform, repr(plan.programs), repr(plan.link_flags), repr(plan.files)]
    if plan.tags or plan.links_seccomp:
        parts += [repr(plan.tags), repr(plan.links_seccomp)]
    for part in parts:
        digest.update(part.encode() + b"\0")
    for name in ("go.mod", "go.sum", *plan.sources):
        digest.update((plan.directory / name).read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _paths(plan: Recipe, home: Path, names: Sequence[str]) -> dict[str, Path]:
    paths = {name: home / name for name in names}
    for stored, _ in plan.files:
        folder = stored.split("/", 1)[0]
        paths[f"{plan.group}-{folder}"] = home / folder
    return paths


def _missing(plan: Recipe, home: Path, names: Sequence[str]) -> tuple[str, ...]:
    stored = (*names, *(stored for stored, _ in plan.files))
    return tuple(name for name in stored if not (home / name).exists())


def _toolchain(directory: Path) -> Toolchain:
    """Asks go inside the module: with GOTOOLCHAIN=auto an older go fetches the one that the module names."""
    needs = f"Go {MINIMUM_GO[0]}.{MINIMUM_GO[1]} or newer"
    if shutil.which("go") is None:
        raise BuildError(
            f"go is not in PATH: the control plane of the tests is built from source and needs {needs} "
            "(https://go.dev/dl/). Programs that exist already can be named by KUBEBUILDER_ASSETS."
        )
    command = ["go", "env", "GOVERSION", "GOOS", "GOARCH"]
    run = subprocess.run(command, cwd=directory, env=_environment(), capture_output=True, text=True, check=False)
    lines = run.stdout.split("\n")
    if run.returncode != 0 or len(lines) < 3:
        raise BuildError(f"`{' '.join(command)}` failed; {needs} is needed:\n{run.stderr.strip()}")
    version = re.match(r"go(\d+)\.(\d+)", lines[0])
    # A go built from its own repository calls itself "devel …"; its maker knows what it is.
    if version is not None and (int(version[1]), int(version[2])) < MINIMUM_GO:
        raise BuildError(f"{shutil.which('go')} is {lines[0]}; {needs} is needed (https://go.dev/dl/).")
    return Toolchain(lines[0], f"{lines[1]}/{lines[2]}")


def _environment(plan: Recipe | None = None) -> dict[str, str]:
    # A go.work above the checkout would replace our modules' pinned dependencies.
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    if plan is not None and plan.links_seccomp:
        environment |= {"CGO_ENABLED": "1"} | seccomp_environment(cache_root())
    return environment


@contextlib.contextmanager
def _lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Held by one builder at a time; freed by the kernel when its process dies."""
    with path.open("a") as handle:
        last_word = float("-inf")
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - last_word >= PROGRESS_SECONDS:
                    last_word = time.monotonic()
                    on_wait()
                time.sleep(0.2)
        yield


def _build(plan: Recipe, toolchain: Toolchain, home: Path, missing: Sequence[str], report: Report) -> None:
    for stale in home.glob(".build-*"):
        shutil.rmtree(stale, ignore_errors=True)  # left by a builder that was killed; we hold the lock
    with tempfile.TemporaryDirectory(prefix=".build-", dir=home) as scratch_name:
        scratch = Path(scratch_name)
        programs = [program for program in plan.programs if program.name in missing]
        started = time.monotonic()
        if programs:
            report(
                f"{plan.group}: building {', '.join(program.name for program in programs)} {plan.version} "
                f"with {toolchain.version} ({plan.cold_hint} on two cores the first time)"
            )
            # One command for all, so that packages which programs share are compiled once.
            command = ["go", "build", "-v", "-buildvcs=false", "-trimpath"]
            command += [f"-tags={','.join(plan.tags)}"] if plan.tags else []
            command += ["-ldflags", " ".join(("-s", "-w", *plan.link_flags))]
            command += ["-o", f"{scratch}{os.sep}", *(program.package for program in programs)]
            built_as = {program.built_as: program.name for program in programs}
            _run_go(command, plan, lambda: {built_as[n] for n in built_as if (scratch / n).exists()}, report)
        for program in programs:
            os.replace(scratch / program.built_as, home / program.name)
        _take_files(plan, [stored for stored, _ in plan.files if stored in missing], home, scratch)
        report(f"{plan.group}: ready after {_span(time.monotonic() - started)} in {home}")


def _take_files(plan: Recipe, wanted: Sequence[str], home: Path, scratch: Path) -> None:
    """Copies files of the group's main module, which go has verified by go.sum and keeps in its module cache."""
    if not wanted:
        return
    command = ["go", "list", "-m", "-f", "{{.Dir}}", plan.main_module]
    run = subprocess.run(command, cwd=plan.directory, env=_environment(), capture_output=True, text=True, check=False)
    if run.returncode != 0 or not run.stdout.strip():
        raise BuildError(f"`{' '.join(command)}` failed:\n{run.stderr.strip()}")
    for stored, path in plan.files:
        if stored in wanted:
            (home / stored).parent.mkdir(exist_ok=True)
            copy = scratch / "file"
            copy.write_bytes((Path(run.stdout.strip()) / path).read_bytes())
            os.replace(copy, home / stored)


@dataclass(slots=True)
class _Progress:
    """What the output of `go build -v` has told so far; written by the reading thread."""

    compiled: int = 0
    downloaded: int = 0
    at: str = ""
    other: deque[str] = field(default_factory=lambda: deque(maxlen=40))

    def read(self, stream: Iterable[str]) -> None:
        for line in map(str.rstrip, stream):
            if line.startswith("go: downloading "):
                self.downloaded += 1
                self.at = line.removeprefix("go: downloading ")
            elif re.fullmatch(r"[\w.~/-]+", line):
                self.compiled += 1
                self.at = line
            elif line:
                self.other.append(line)


def _run_go(command: Sequence[str], plan: Recipe, done: Callable[[], set[str]], report: Report) -> None:
    progress = _Progress()
    # A session of its own: Ctrl-C reaches only us, and we end go together with the compilers it started.
    process = subprocess.Popen(
        command, cwd=plan.directory, env=_environment(plan), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    reader = threading.Thread(target=progress.read, args=(process.stderr,))
    reader.start()
    started = last_word = time.monotonic()
    announced: set[str] = set()
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=min(1.0, PROGRESS_SECONDS))
            now = time.monotonic()
            for name in sorted(done() - announced):
                announced.add(name)
                last_word = now
                report(f"{plan.group}: {_span(now - started)}, {name} is built")
            if process.returncode is not None:
                break
            if now - last_word >= PROGRESS_SECONDS:
                last_word = now
                report(
                    f"{plan.group}: {_span(now - started)}, {progress.downloaded} modules fetched, "
                    f"{progress.compiled} packages compiled, now {progress.at or 'looking what is cached'}"
                )
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()
        process.stderr.close()
    if process.returncode != 0:
        tail = "\n".join(progress.other) or f"exit status {process.returncode}"
        raise BuildError(f"{plan.group}: `go build` in {plan.directory} failed:\n{tail}")


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
