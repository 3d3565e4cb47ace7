"""Adjoin as a user runs it: charts installed by helm, the operator a process of its own that logs in as the chart's
ServiceAccount.

Comes in: a running `ControlPlane`. Goes out: an `Installation` whose operators can be started, killed and started
again. Rights are those of
the chart, so a missing one fails the test that needs it. The operator listens on loopback only; the chart's
`webhook.url` points there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.controlplane.build import ensure
from tests.controlplane.ports import ReservedPort
from tests.controlplane.server import ControlPlane

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "adjoin-system"
ACCOUNT = "adjoin"
USERNAME = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
READY_SECONDS = 90.0
STOP_SECONDS = 20.0


@dataclass
class Operator:
    """One running operator process."""

    process: subprocess.Popen[bytes]
    log: Path
    metrics_port: ReservedPort
    webhook_port: int

    def kill(self) -> None:
        """kill -9, as a node failure would."""
        self.process.kill()
        self.process.wait()
        self.metrics_port.release()

    def stop(self) -> int:
        """SIGTERM, as Kubernetes asks a pod to end; returns the exit status. Raises when it does not end in time."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.metrics_port.release()

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of its plain HTTP endpoint (/healthz, /readyz, /metrics); status 0 while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port.number}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self) -> None:
        """Until it is ready. Raises with the end of its log when it ended or does not become ready."""
        deadline = time.monotonic() + READY_SECONDS
        while self.get("/readyz")[0] != 200:
            if self.process.poll() is not None or time.monotonic() > deadline:
                state = f"ended with {self.process.returncode}" if self.process.poll() is not None else "is not ready"
                raise RuntimeError(f"the operator {state}\n{self.log.read_text(errors='replace')[-6000:]}")
            time.sleep(0.05)


@dataclass
class Installation:
    """The charts, installed; operators started from here."""

    plane: ControlPlane
    webhook: ReservedPort
    operators: list[Operator] = field(default_factory=list)

    @property
    def webhook_url(self) -> str:
        """Where the API server sends admission requests."""
        return f"https://127.0.0.1:{self.webhook.number}"

    def helm(self, *arguments: str) -> str:
        """Runs helm as administrator; returns what it printed."""
        helm = ensure("helm")["helm"]
        home = self.plane.layout.home
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(self.plane.kubeconfig),
            "HELM_CACHE_HOME": str(home / "helm"),
            "HELM_CONFIG_HOME": str(home / "helm"),
            "HELM_DATA_HOME": str(home / "helm"),
        }
        run = subprocess.run(
            [helm, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=180
        )
        if run.returncode:
            raise RuntimeError(f"helm {' '.join(arguments)}: {run.stderr or run.stdout}")
        return run.stdout

    def install(self) -> None:
        """Both charts, as the README says, with the webhooks pointing to loopback."""
        self.helm(
            "upgrade", "--install", "adjoin-crds", str(ROOT / "helm/adjoin-crds"), "-n", NAMESPACE, "--create-namespace"
        )
        for plural in ("deviceclaims", "devicepools", "deviceshares"):
            self.plane.kubectl("wait", "--for=condition=Established", f"crd/{plural}.adjoin.dev", "--timeout=60s")
        self.helm(
            "upgrade", "--install", "adjoin", str(ROOT / "helm/adjoin"), "-n", NAMESPACE,
            "--set", f"webhook.url={self.webhook_url}",
        )  # fmt: skip

    def start_operator(self, *arguments: str, wait: bool = True, identity: str = "") -> Operator:
        """Starts an operator with a token of the ServiceAccount. Only the first one running serves the webhooks'
        address."""
        metrics = ReservedPort()
        alive = [operator for operator in self.operators if operator.process.poll() is None]
        second = ReservedPort() if any(each.webhook_port == self.webhook.number for each in alive) else None
        port = second.number if second else self.webhook.number
        log = self.plane.logs / f"adjoin-{len(self.operators)}.log"
        command = [
            sys.executable, "-m", "adjoin", "run",
            f"--kubeconfig={self.plane.kubeconfig_for_service_account(NAMESPACE, ACCOUNT)}",
            f"--namespace={NAMESPACE}",
            f"--identity={identity or f'operator-{len(self.operators)}'}",
            "--webhook-host=127.0.0.1",
            f"--webhook-port={port}",
            f"--webhook-url={self.webhook_url}",
            "--webhook-configuration=adjoin",
            "--metrics-host=127.0.0.1",
            f"--metrics-port={metrics.number}",
            *arguments,
        ]  # fmt: skip
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.plane.layout.home,
                env={"PATH": os.environ["PATH"], "HOME": str(self.plane.layout.home), "PYTHONUNBUFFERED": "1"},
                preexec_fn=_die_with_parent,
            )
        operator = Operator(process, log, metrics, port)
        self.operators.append(operator)
        if wait:
            operator.wait_ready()
        return operator

    def stop(self) -> None:
        """Ends every operator that still runs."""
        for operator in self.operators:
            if operator.process.poll() is None:
                try:
                    operator.stop()
                except subprocess.TimeoutExpired:
                    operator.kill()
        self.webhook.release()


def _die_with_parent() -> None:
    """A test run that is killed takes its operators along (Linux)."""
    import ctypes

    with contextlib.suppress(OSError):
        ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def installed(plane: ControlPlane) -> Iterator[Installation]:
    """Adjoin's charts on `plane`; operators are ended when the block is left."""
    installation = Installation(plane, ReservedPort())
    try:
        installation.install()
        yield installation
    finally:
        installation.stop()
