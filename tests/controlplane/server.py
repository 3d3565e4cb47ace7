"""`ControlPlane`: a real Kubernetes control plane on loopback, for as long as a `with` block lasts.

Comes in: `Options`. Goes out: a running API server with everything behind it, kubeconfigs for it, and ways to disturb
it. When `with` is entered, every component is healthy, and the namespace kube-system and the ServiceAccount
default/default exist; single controllers may still need some seconds to begin. When it is left, by whatever way, no
process and no file remains, but the logs, if an exception left it, `failed` was set, or a component died by itself;
where they are is reported.

Several may run side by side. Everything listens on 127.0.0.1 only, and trusts an authority of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.controlplane import audit, client, components, kubeconfig
from tests.controlplane.build import Report, ensure, to_stderr
from tests.controlplane.components import API_SERVER, ETCD, Component, Layout
from tests.controlplane.options import Options
from tests.controlplane.pki import Authority
from tests.controlplane.ports import LOOPBACK, ReservedPort
from tests.controlplane.recipes import Group
from tests.controlplane.sandbox import Sandbox, SupervisorGone

# A start takes seconds; the limit only ends the wait for something that will never come, on the slowest machine.
START_SECONDS = 180.0
POLL_SECONDS = 0.1
START_ATTEMPTS = 3
# TokenRequest grants what is asked for; an hour outlasts every test.
TOKEN_SECONDS = 3600


class StartError(Exception):
    """A component did not come up; the message carries the end of its log."""


class _PortTaken(StartError):
    """Somebody else listens on a port that was ours: possible only where the kernel does not hold it for us."""


class ControlPlane:
    """Used once, as sync or async context manager, or by `start()` and `stop()`.

    `name` appears in the name of the folder of kept logs. `report` takes lines meant for a human.
    """

    def __init__(
        self, options: Options | None = None, *, name: str = "controlplane", report: Report = to_stderr
    ) -> None:
        self.options = options if options is not None else Options()
        self.name = name
        self.failed = False
        """Set by whoever knows that a test failed: the logs are kept then."""
        self._report = report
        self._sandbox: Sandbox | None = None
        self._ports: dict[str, ReservedPort] = {}
        self._components: dict[str, Component] = {}
        self._users = 0
        self._programs: dict[str, Path] = {}
        self._authority = Authority()
        self._context: ssl.SSLContext | None = None

    # ---------------------------------------------------------------- beginning and end

    def start(self) -> None:
        """Builds what is missing and starts everything. After `BuildError` or `StartError` nothing is left behind."""
        groups = [Group.CONTROLPLANE, *([Group.KWOK] if self.options.kwok else [])]
        self._programs = ensure(*groups, report=self._report)
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._start_once()
                return
            except _PortTaken:
                self._end(keep_logs=attempt == START_ATTEMPTS)
                if attempt == START_ATTEMPTS:
                    raise
            except BaseException:
                self._end(keep_logs=True)
                raise

    def stop(self, *, failed: bool = False) -> None:
        """Ends everything; harmless when it has ended. `failed` keeps the logs, as setting `self.failed` does."""
        if self._sandbox is None:
            return
        try:
            died = self._sandbox.exited()
        except SupervisorGone:
            died = dict.fromkeys(self._components, -int(signal.SIGKILL))
        for name, status in died.items():
            self._report(f"control plane {self.name}: {name} ended by itself with status {status}")
        self._end(keep_logs=failed or self.failed or bool(died))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(failed=kind is not None)

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: let it finish, then undo what it did.
            with contextlib.suppress(Exception):
                await starting
            await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop, failed=kind is not None)

    def _start_once(self) -> None:
        self._sandbox = Sandbox(self.name)
        ported = [name for name in components.wanted(self.options) if name != ETCD]
        self._ports = {name: ReservedPort() for name in ported}
        components.write_files(self.layout, self.options, self._authority, self.url, self._programs.get("kwok-stages"))
        numbers = {name: port.number for name, port in self._ports.items()}
        self._components = components.build(self.layout, self.options, self._programs, numbers)
        admin = self.layout.pki / "admin"
        self._context = client.tls_context(self.ca_data, f"{admin}.crt", f"{admin}.key")
        self._launch(ETCD)
        # An API server that finds no socket yet tries again only after a second.
        self._wait_for(ETCD, components.etcd_socket(self.layout).stat)
        self._launch(API_SERVER)
        self._wait_healthy(API_SERVER)
        others = [name for name in self._components if name not in (ETCD, API_SERVER)]
        for name in others:
            self._launch(name)
        self._wait_for("the namespace kube-system", lambda: self.request("GET", "/api/v1/namespaces/kube-system"))
        # Without it no pod is admitted. The controller manager comes to it only after some five seconds of making
        # accounts for its controllers, one by one.
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self._wait_for("the ServiceAccount default/default", lambda: self._ensure_created("default", account))
        for name in others:
            self._wait_healthy(name)

    def _ensure_created(self, namespace: str, account: dict[str, Any]) -> None:
        try:
            self.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        except client.ApiFailure as failure:
            if failure.reason != "AlreadyExists":
                raise

    def _end(self, *, keep_logs: bool) -> None:
        if self._sandbox is not None:
            kept = self._sandbox.end(keep_logs=keep_logs)
            self._sandbox = None
            if kept is not None:
                self._report(f"control plane {self.name}: logs kept in {kept}")
        for port in self._ports.values():
            port.release()

    # ---------------------------------------------------------------- where it is

    @property
    def layout(self) -> Layout:
        """Where its files are."""
        return Layout(self._running().root)

    @property
    def url(self) -> str:
        """Where the API server listens; the same after it was stopped and started again."""
        return f"https://{LOOPBACK}:{self._ports[API_SERVER].number}"

    @property
    def url_for_nodes(self) -> str:
        """Where real kubelets find the API server. Needs `Options.gateway`."""
        if self.options.gateway is None:
            raise RuntimeError("the control plane was started without a gateway for nodes: Options(gateway=…)")
        return f"https://{self.options.gateway}:{self._ports[API_SERVER].number}"

    @property
    def programs(self) -> dict[str, Path]:
        """The programs it runs and those to talk to it, by name."""
        return dict(self._programs)

    @property
    def ca_data(self) -> bytes:
        """The certificate of its authority, PEM."""
        return self._authority.certificate

    @property
    def ca_file(self) -> Path:
        """The same as a file."""
        return self.layout.pki / "ca.crt"

    @property
    def logs(self) -> Path:
        """The folder of its components' logs; gone when it has ended."""
        return self.layout.logs

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Trusts its authority and logs in as admin."""
        assert self._context is not None, "the control plane has not been started"
        return self._context

    # ---------------------------------------------------------------- who one is

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of its administrator (group system:masters, exempt from priority and fairness)."""
        return self.layout.kubeconfig("admin")

    def kubeconfig_for(self, user: str, groups: Iterable[str] = (), *, url: str | None = None) -> Path:
        """A new kubeconfig that logs in as this user in these groups, by certificate; at `url` where that differs."""
        pair = self._authority.issue_client(user, groups=tuple(groups))
        return self._write_kubeconfig(user, kubeconfig.for_certificate(url or self.url, self.ca_data, user, pair))

    def token_for(self, namespace: str, service_account: str, *, seconds: int = TOKEN_SECONDS) -> str:
        """A fresh token of an existing ServiceAccount, by TokenRequest as a kubelet asks for it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        wish = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return str(self.request("POST", path, wish)["status"]["token"])

    def kubeconfig_for_service_account(
        self, namespace: str, service_account: str, *, seconds: int = TOKEN_SECONDS
    ) -> Path:
        """A new kubeconfig with a fresh token of this ServiceAccount."""
        token = self.token_for(namespace, service_account, seconds=seconds)
        user = f"{namespace}.{service_account}"
        return self._write_kubeconfig(user, kubeconfig.for_token(self.url, self.ca_data, user, token))

    def _write_kubeconfig(self, user: str, text: str) -> Path:
        self._users += 1
        path = self.layout.kubeconfig(f"{self._users:03d}-{re.sub(r'[^A-Za-z0-9.-]', '_', user)}")
        path.write_text(text)
        return path

    # ---------------------------------------------------------------- how one talks to it

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """One request as administrator; returns the decoded answer, raises `ApiFailure` from 400 on."""
        return client.call(self.url, self.ssl_context, method, path, body, content_type=content_type)

    def kubectl(
        self,
        *arguments: str | Path,
        stdin: str | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl of the same version, as administrator if no kubeconfig is given.

        With `check` a failure raises CalledProcessError, whose notes carry what kubectl said.
        """
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.layout.home),
            "KUBECONFIG": str(kubeconfig if kubeconfig is not None else self.kubeconfig),
        }
        run = subprocess.run(
            [self._programs["kubectl"], *arguments],
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout,
            check=False,
        )
        if check and run.returncode != 0:
            failure = subprocess.CalledProcessError(run.returncode, run.args, run.stdout, run.stderr)
            failure.add_note(run.stderr.strip() or run.stdout.strip())
            raise failure
        return run

    # ---------------------------------------------------------------- disturbing and watching it

    def stop_process(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends one component; its data and its port stay. Names as in `components`: "kube-apiserver", "etcd", …"""
        self._running().stop(self._known(name), number)

    def start_process(self, name: str, *, wait: bool = True) -> None:
        """Starts a stopped component again as it was, and waits until it is healthy.

        What ended by itself meanwhile is started again too, as a kubelet would: kube-controller-manager gives up when
        the API server goes away while it begins.
        """
        self._launch(self._known(name))
        if wait:
            self._wait_healthy(name, but=self._components.keys() - {name})
        for other in self._running().exited().keys() - {name}:
            self._launch(other)

    @property
    def supervisor_pid(self) -> int:
        """The process that holds the components, and that ends them when this program ends."""
        return self._running().supervisor_pid

    def pids(self) -> dict[str, int]:
        """The process ids of the running components."""
        return self._running().running()

    def resident_bytes(self) -> dict[str, int]:
        """How much memory each running component has (Linux)."""
        page = os.sysconf("SC_PAGE_SIZE")
        pages = {name: Path(f"/proc/{pid}/statm").read_text().split()[1] for name, pid in self.pids().items()}
        return {name: int(count) * page for name, count in pages.items()}

    def requests(self, *, user: str | None = None, since: datetime | None = None) -> list[audit.Request]:
        """All requests answered so far (of one user, received at `since` or later). Needs `Options.audit`."""
        if not self.options.audit:
            raise RuntimeError("the control plane was started without audit log: Options(audit=True)")
        return [
            request
            for request in audit.read_requests(self.layout.audit)
            if (user is None or request.user == user) and (since is None or request.received >= since)
        ]

    def writes(self, *, user: str | None = None, since: datetime | None = None) -> list[audit.Request]:
        """Those of `requests()` that could change an object, refused ones included."""
        return [request for request in self.requests(user=user, since=since) if request.is_write]

    # ---------------------------------------------------------------- within

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("the control plane does not run")
        return self._sandbox

    def _known(self, name: str) -> str:
        if name not in self._components:
            raise ValueError(f"{name} is no component of this control plane: {', '.join(self._components)}")
        return name

    def _launch(self, name: str) -> None:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.layout.home),
            "TMPDIR": str(self.layout.home),
        }
        # A short-lived control plane has a small heap, which Go would clean again and again: memory is cheaper here.
        environment |= {"GOGC": "400"}
        environment |= {key: os.environ[key] for key in ("GOMAXPROCS", "GOMEMLIMIT", "GOGC") if key in os.environ}
        self._running().start(name, self._components[name].argv, self.layout.logs / f"{name}.log", environment)

    def _wait_healthy(self, name: str, *, but: Collection[str] = ()) -> None:
        # etcd has no port to ask at; the API server is ready only with it.
        health = self._components[name].health or self._components[API_SERVER].health
        assert health is not None
        base, path = re.fullmatch(r"(\w+://[^/]+)(/.*)", health).groups()  # type: ignore[union-attr]
        self._wait_for(name, lambda: client.call(base, self.ssl_context, "GET", path, timeout=5.0), but=but)

    def _wait_for(self, what: str, probe: Callable[[], object], *, but: Collection[str] = ()) -> None:
        """Until `probe` answers; a component that ends meanwhile ends the wait, those of `but` aside."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                probe()
                return
            except (OSError, client.ApiFailure) as error:
                last = error
            for name, status in self._running().exited().items():
                if name not in but:
                    self._explain(f"{name} ended with status {status}", name)
            if time.monotonic() > deadline:
                self._explain(f"{what} is not there after {START_SECONDS:.0f} s: {last}", what)
            time.sleep(POLL_SECONDS)

    def _explain(self, problem: str, name: str) -> None:
        log = self.layout.logs / f"{name}.log"
        end = log.read_text(errors="replace")[-4000:] if log.exists() else ""
        kind = _PortTaken if "address already in use" in end else StartError
        raise kind(f"{problem}\n{end}".rstrip())
