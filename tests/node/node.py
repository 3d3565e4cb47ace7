"""`Node`: a real Kubernetes node (kubelet, containerd, DRA drivers) for as long as a `with` block lasts.

Comes in: a running `ControlPlane` with a gateway, in a network namespace of the tests' own (`network.own_network`).
Goes out: a Node object that is Ready, pods that really run, and ways to disturb it. Everything lives in namespaces
behind `keeper.py`, which leaves nothing of it, also when this program is killed. Processes are held by the same
supervisor that holds a control plane's.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.controlplane.build import Report, cache_root, ensure, to_stderr
from tests.controlplane.client import ApiFailure
from tests.controlplane.recipes import NODE
from tests.controlplane.sandbox import Sandbox, SupervisorGone
from tests.controlplane.server import ControlPlane, StartError
from tests.controlplane.system import static_busybox
from tests.node import configuration, image, keeper
from tests.node.calls import UID, Call, read_calls
from tests.node.network import GATEWAY, NODE_ADDRESS, OUTER_LINK, PREFIX_LENGTH

HERE = Path(__file__).resolve().parent
JOURNAL = "/run/journal"
"""A folder on the node that tests may mount into pods; outside it is `journal` below the node's root."""
KUBELET = "kubelet"
CONTAINERD = "containerd"
START_SECONDS = 180.0
POLL_SECONDS = 0.1
LONG_AGO = datetime.min.replace(tzinfo=UTC)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Driver:
    """A DRA driver with so many devices: its name in ResourceSlices and the program behind it."""

    name: str
    program: str
    devices: int = 4


# Kubernetes' own test driver; what it prepared stands in a file inside the container.
TEST_DRIVER = Driver("test-driver.cdi.k8s.io", "dra-test-driver")
# The example driver of SIG Node; what it prepared stands in the container's environment.
EXAMPLE_DRIVER = Driver("gpu.example.com", "dra-example-driver")


def provide(report: Report = to_stderr) -> dict[str, Path]:
    """Every program of a node by name, built or fetched first where it is missing; needs the machine's network then."""
    return {**ensure(*NODE, report=report), "busybox": static_busybox(cache_root())}


def within(hostname: str) -> Callable[[Sandbox, list[str]], list[str]]:
    """How a sandbox is put into namespaces of a node: what its supervisor starts then runs there."""

    def wrapped(sandbox: Sandbox, supervisor: list[str]) -> list[str]:
        logs = sandbox.logs_kept_in.parent
        logs.mkdir(parents=True, exist_ok=True)
        script = [sys.executable, "-I", "-S"]
        return [
            *script, str(HERE / "keeper.py"), str(sandbox.root),
            f"{NODE_ADDRESS}/{PREFIX_LENGTH}", f"{GATEWAY}/{PREFIX_LENGTH}", OUTER_LINK,
            *script, str(HERE / "inside.py"), hostname, str(sandbox.root), str(logs),
            *supervisor,
        ]  # fmt: skip

    return wrapped


class Node:
    """A context manager. `name` is the Node object's. Stopped and started again it is a new machine of that name."""

    def __init__(self, plane: ControlPlane, name: str = "node-a", *, report: Report = to_stderr) -> None:
        self.plane = plane
        self.name = name
        self.failed = False
        """Set by whoever knows that a test failed: the logs are kept then."""
        self._report = report
        self._sandbox: Sandbox | None = None
        self._programs: dict[str, Path] = {}
        self._commands: dict[str, tuple[str, ...]] = {}

    # ---------------------------------------------------------------- beginning and end

    def start(self) -> None:
        """Builds what is missing and starts the node without drivers. After an error nothing is left behind."""
        self._programs = provide(self._report)
        archive = image.oci_archive(self._programs["busybox"], platform.machine())
        try:
            self._sandbox = Sandbox(f"node-{self.name}", within(self.name))
            self._write_files(archive)
            self._launch(CONTAINERD)
            self._import_images()
            self._launch(KUBELET)
            self.wait_ready()
        except SupervisorGone as error:
            said = self._supervisor_log()
            self._end(keep_logs=False)
            raise StartError(f"the node's namespaces were not made:\n{said}") from error
        except BaseException:
            self._end(keep_logs=True)
            raise

    def stop(self, *, failed: bool = False) -> None:
        """Ends everything; harmless when it has ended."""
        if self._sandbox is None:
            return
        died: dict[str, int] = {}
        with contextlib.suppress(SupervisorGone):
            died = {name: status for name, status in self._sandbox.exited().items() if name in self._commands}
        for name, status in died.items():
            self._report(f"node {self.name}: {name} ended by itself with status {status}")
        self._end(keep_logs=failed or self.failed or bool(died))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(failed=kind is not None)

    def _end(self, *, keep_logs: bool) -> None:
        if self._sandbox is not None:
            kept = self._sandbox.end(keep_logs=keep_logs)
            self._sandbox = None
            if kept is not None:
                self._report(f"node {self.name}: logs kept in {kept}")

    def _write_files(self, archive: bytes) -> None:
        config, programs = self.root / "config", self._programs
        for folder in (config / "cni", self.logs, self.root / "home"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.root / "images.tar").write_bytes(archive)
        (config / "cni" / "10-node.conflist").write_text(configuration.network())
        (config / "containerd.toml").write_text(
            configuration.containerd(
                pause_image=image.PAUSE,
                runc=programs["runc"],
                cni_programs=programs["ptp"].parent,
                cni_folder=config / "cni",
            )
        )
        (config / "ca.crt").write_bytes(self.plane.ca_data)
        (config / "kubelet.yaml").write_text(
            configuration.kubelet(
                address=NODE_ADDRESS,
                client_ca=config / "ca.crt",
                cgroup=keeper.cgroup_name(self._running().supervisor_pid),
            )
        )
        logins = {
            "kubelet": (f"system:node:{self.name}", ["system:nodes"]),
            "driver": (f"dra-drivers-of-{self.name}", ["system:masters"]),
        }
        for file, (user, groups) in logins.items():
            login = self.plane.kubeconfig_for(user, groups, url=self.plane.url_for_nodes)
            (config / f"{file}.kubeconfig").write_text(login.read_text())
        self._commands = {
            CONTAINERD: (str(programs["containerd"]), f"--config={config / 'containerd.toml'}"),
            KUBELET: (
                str(programs["kubelet"]),
                f"--config={config / 'kubelet.yaml'}",
                f"--kubeconfig={config / 'kubelet.kubeconfig'}",
                f"--hostname-override={self.name}",
                f"--node-ip={NODE_ADDRESS}",
            ),
        }

    def _import_images(self) -> None:
        """As soon as containerd answers."""
        command = (str(self._programs["ctr"]), "--address", configuration.CONTAINERD_SOCKET, "--namespace", "k8s.io")

        def imported() -> bool:
            self._start("import", (*command, "images", "import", str(self.root / "images.tar")))
            return self._wait_for("the import of images", lambda: self._running().exited().get("import")) == 0

        self._wait_for("containerd", lambda: imported() or None)

    # ---------------------------------------------------------------- where it is

    @property
    def root(self) -> Path:
        """The folder of its files."""
        return self._running().root

    @property
    def logs(self) -> Path:
        """The folder of its logs; those of containers in `pods`."""
        return self.root / "logs"

    def log(self, name: str) -> str:
        """What a process has written so far, over all its starts."""
        path = self.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # ---------------------------------------------------------------- drivers

    def start_driver(self, driver: Driver, *, wait: bool = True) -> None:
        """Starts a driver, or starts it again, and waits until its devices are published."""
        if driver.name not in self._commands:
            kubeconfig = f"--kubeconfig={self.root / 'config' / 'driver.kubeconfig'}"
            node = f"--node-name={self.name}"
            count = f"--num-devices={driver.devices}"
            program = str(self._programs[driver.program])
            if driver.program == TEST_DRIVER.program:
                serve = ("kubelet-plugin", node, f"--cdi-dir={configuration.CDI_FOLDER}", count)
                options = (kubeconfig, f"--drivername={driver.name}", "--v=6")
                self._commands[driver.name] = (program, *options, *serve, "--enable-device-metadata")
            else:
                cdi = f"--cdi-root={configuration.CDI_FOLDER}"
                self._commands[driver.name] = (program, node, cdi, kubeconfig, count, "-v=6")
        (self.root / "plugins" / driver.name).mkdir(exist_ok=True)
        self._launch(driver.name)
        if wait:
            self.wait_published(driver)

    def stop_driver(self, driver: Driver, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends a driver; what it published and prepared stays as it is."""
        self._running().stop(driver.name, number)

    def published(self, driver: Driver) -> list[dict[str, Any]]:
        """The driver's ResourceSlices of this node."""
        query = f"resourceslices?fieldSelector=spec.nodeName={self.name},spec.driver={driver.name}"
        found: list[dict[str, Any]] = self.plane.request("GET", f"/apis/resource.k8s.io/v1/{query}")["items"]
        return found

    def wait_published(self, driver: Driver) -> None:
        """Until the driver's devices are all in ResourceSlices."""

        def all_there() -> bool | None:
            count = sum(len(piece["spec"].get("devices", ())) for piece in self.published(driver))
            return True if count == driver.devices else None

        self._wait_for(f"the ResourceSlices of {driver.name}", all_there)

    def prepared(self, driver: Driver) -> set[str]:
        """UIDs of the ResourceClaims that the driver has prepared and not unprepared: each has a CDI file till then."""
        files = [path.name for path in (self.root / "cdi").iterdir() if driver.name in path.name]
        return {uid for name in files for uid in UID.findall(name)}

    def calls(self, driver: Driver) -> list[Call]:
        """What the kubelet has asked of the driver and got, from the beginning on."""
        return read_calls(self.log(driver.name))

    # ---------------------------------------------------------------- disturbing it

    def stop_kubelet(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends the kubelet; containers run on."""
        self._running().stop(KUBELET, number)

    def start_kubelet(self) -> None:
        """Starts it again, and waits until the node is Ready by its word."""
        since = datetime.now(UTC)
        self._launch(KUBELET)
        self.wait_ready(since)

    def wait_ready(self, since: datetime = LONG_AGO) -> None:
        """Until the Node object is Ready, by a report of the kubelet not older than `since`."""

        def ready() -> bool | None:
            found = self.plane.request("GET", f"/api/v1/nodes/{self.name}")
            for condition in found["status"].get("conditions", ()):
                if condition["type"] == "Ready" and condition["status"] == "True":
                    # Whole seconds stand there.
                    reported = datetime.fromisoformat(condition["lastHeartbeatTime"])
                    return True if reported >= since.replace(microsecond=0) else None
            return None

        self._wait_for(f"node {self.name} Ready", ready)

    def repair(self, *drivers: Driver) -> None:
        """Starts what does not run of kubelet and drivers, and waits until all is as in the beginning."""
        running = self._running().running()
        if KUBELET not in running:
            self.start_kubelet()
        for driver in drivers:
            if driver.name not in running:
                self.start_driver(driver, wait=False)
        self.wait_ready()
        for driver in drivers:
            self.wait_published(driver)

    # ---------------------------------------------------------------- within

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("the node does not run")
        return self._sandbox

    def _launch(self, name: str) -> None:
        self._start(name, self._commands[name])

    def _start(self, name: str, command: tuple[str, ...]) -> None:
        folders = [str(self._programs[program].parent) for program in ("containerd", "runc")]
        environment = {
            "PATH": os.pathsep.join((*folders, os.environ.get("PATH", ""))),
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "home"),
            # The example driver reads it beside its flag, and tells it to containers.
            "NODE_NAME": self.name,
        }
        self._running().start(name, command, self.logs / f"{name}.log", environment)

    def _wait_for(self, what: str, look: Callable[[], T | None]) -> T:
        """What `look` sees once it sees something; a process that ends meanwhile ends the wait."""
        deadline = time.monotonic() + START_SECONDS
        last: object = "nothing"
        while True:
            try:
                seen = look()
                if seen is not None:
                    return seen
            except (OSError, ApiFailure) as error:
                last = error
            for name, status in self._running().exited().items():
                if name in self._commands:
                    raise StartError(f"{name} ended with status {status}\n{self.log(name)[-4000:]}")
            if time.monotonic() > deadline:
                raise StartError(f"{what}: not after {START_SECONDS:.0f} s; last seen: {last}")
            time.sleep(POLL_SECONDS)

    def _supervisor_log(self) -> str:
        path = self.root / "supervisor.log" if self._sandbox is not None else None
        return path.read_text(errors="replace").strip() if path is not None and path.exists() else ""
