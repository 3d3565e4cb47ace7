"""The operator as a process: settings, logging, wiring, and the order of start and stop.

In come the command line and the environment, read once; out goes an exit code. Nothing else reads the environment, and
nothing is decided here.

Start: client → status server → kinds served? → our own tasks → kopf. Stop: planner → writer drained → Lease given back
→ admission → kopf → the rest. Our tasks begin before kopf does, because kopf cancels whatever began after it; and
whatever fails, kopf is told to stop, because a loop that ends while kopf runs hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import math
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import kopf
import structlog
import uvloop
from aiohttp import web

from adjoin import admission, handlers
from adjoin.api.quantity import milliseconds
from adjoin.cache import Cache, Facts, View
from adjoin.decision import Decider, Decision
from adjoin.definitions import Definitions
from adjoin.facts import ClaimFacts, PoolFacts
from adjoin.intents import Kind
from adjoin.kube import ConfigurationError, Kube, Login, NotFound
from adjoin.lease import Elector, LeadershipLost
from adjoin.metering import SECONDS as METER_SECONDS
from adjoin.metering import Meter
from adjoin.metrics import Metrics
from adjoin.planner import Batcher, Planner, PlannerBroken
from adjoin.records import Recorder
from adjoin.reflector import HOME, LABELLED, REFLECTED, Reflector
from adjoin.serving import Files, Keeper, Server, status_app
from adjoin.writer import Writer

SERVICE_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

SWITCH_SECONDS: Final = 0.001
DRAIN_SECONDS: Final = 3.0
KOPF_SECONDS: Final = 3.0
STOP_SECONDS: Final = 9.5
"""After this long a stop that hangs is cut short."""
LEAST_SWEEP_SECONDS: Final = 5.0
"""However often pools want it: the lists of a large cluster take seconds."""
SILENT_SECONDS: Final = 300.0
"""A kind of which the API server has said nothing for so long makes the process unhealthy."""
STUCK_SECONDS: Final = 120.0
"""A decision or a write that takes so long makes the process unhealthy."""

_log = structlog.get_logger(__name__)


class SettingsError(Exception):
    """The command line or the environment cannot be used; the text says what and how to mend it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, read once at start.

    Attributes:
        namespace: The operator's own namespace.
        identity: Who this process is in the Lease; unique among all processes that ever compete for it.
        kubeconfig: Path of a kubeconfig, or None for the pod's ServiceAccount.
        context: Context in the kubeconfig, or None for its current one.
        webhook_host: Address that admission listens on.
        webhook_port: Its port.
        webhook_hosts: Names and addresses that the API server calls admission by.
        webhook_configuration: Name of our own webhook configurations.
        webhook_certificates: Folder with tls.crt and tls.key that somebody else renews, or None to make our own.
        metrics_host: Address that health and metrics listen on.
        metrics_port: Its port.
        log_level: Lowest level that is logged.
        log_format: `json` or `console`.
        resync_seconds: Most seconds between two comparisons with complete lists; pools may want them more often.
        lease: Name of the Lease.
        meter_seconds: Seconds between two readings of what nodes use, or 0: it is not read.
        record_folder: Where SIGUSR1 writes the last decision, or None: it writes nothing.
    """

    namespace: str
    identity: str
    kubeconfig: str | None
    context: str | None
    webhook_host: str
    webhook_port: int
    webhook_hosts: tuple[str, ...]
    webhook_configuration: str
    webhook_certificates: Path | None
    metrics_host: str
    metrics_port: int
    log_level: str
    log_format: str
    resync_seconds: float
    lease: str
    meter_seconds: float = METER_SECONDS
    record_folder: Path | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `adjoin run`. Each may also be given as ADJOIN_<NAME> in the environment; the flag wins."""
    add = parser.add_argument
    add("--namespace", help="the operator's own namespace (default: that of the pod's ServiceAccount)")
    add("--identity", help="name of this replica in the Lease, unique (default: host name and a random part)")
    add("--kubeconfig", help="path of a kubeconfig (default: the pod's ServiceAccount)")
    add("--context", help="context in the kubeconfig (default: its current one)")
    add("--webhook-host", help="address that admission listens on (default: all)")
    add("--webhook-port", help="port that admission listens on (default: 9443)")
    add("--webhook-service", help="name of the Service in front of admission")
    add("--webhook-url", help="URL of admission when it is not behind a Service: https://HOST:PORT")
    add("--webhook-configuration", help="name of Adjoin's webhook configurations (default: adjoin)")
    add("--webhook-cert-dir", help="folder with tls.crt and tls.key kept by somebody else (default: self-made)")
    add("--metrics-host", help="address of /healthz, /readyz and /metrics (default: all)")
    add("--metrics-port", help="port of /healthz, /readyz and /metrics (default: 8080)")
    add("--log-level", choices=("debug", "info", "warning", "error"), help="(default: info)")
    add("--log-format", choices=("json", "console"), help="(default: json)")
    add("--resync-seconds", help="most seconds between two comparisons with complete lists (default: 300)")
    add("--node-metrics-seconds", help="seconds between two readings of the metrics API, 0: never (default: 30)")
    add("--lease-name", help="name of the Lease (default: adjoin)")
    add("--record-dir", help="folder into which SIGUSR1 writes the last decision, for replay (default: nowhere)")


def read_settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """Settings of flags and environment. Raises `SettingsError`."""

    def text(name: str, default: str | None = None) -> str | None:
        value = getattr(arguments, name, None) or environment.get(f"ADJOIN_{name.upper()}")
        return value or default

    def number(name: str, default: float, least: float, most: float) -> float:
        given = text(name)
        if given is None:
            return default
        try:
            value = float(given)
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            raise SettingsError(f"--{name.replace('_', '-')}={given}: a number from {least:g} to {most:g} is needed")
        return value

    namespace = text("namespace")
    if namespace is None:
        with suppress(OSError):
            namespace = SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    if not namespace:
        raise SettingsError("the operator's own namespace is not known: give --namespace or ADJOIN_NAMESPACE")
    folder = text("webhook_cert_dir")
    records = text("record_dir")
    if records and not Path(records).is_dir():
        raise SettingsError(f"--record-dir={records}: there is no such folder")
    meter_seconds = number("node_metrics_seconds", METER_SECONDS, 0.0, 3600.0)
    if 0.0 < meter_seconds < 1.0:
        raise SettingsError(f"--node-metrics-seconds={meter_seconds:g}: a number from 1 to 3600 is needed, or 0")
    level, format_ = text("log_level", "info"), text("log_format", "json")
    if level not in ("debug", "info", "warning", "error") or format_ not in ("json", "console"):
        raise SettingsError(f"log level {level} or log format {format_} is not known")
    return Settings(
        namespace=namespace,
        identity=text("identity") or f"{socket.gethostname()}-{secrets.token_hex(4)}",
        kubeconfig=text("kubeconfig"),
        context=text("context"),
        webhook_host=text("webhook_host", "") or "",
        webhook_port=int(number("webhook_port", 9443, 0, 65535)),
        webhook_hosts=_webhook_hosts(text("webhook_url"), text("webhook_service"), namespace, folder),
        webhook_configuration=text("webhook_configuration", "adjoin") or "adjoin",
        webhook_certificates=Path(folder) if folder else None,
        metrics_host=text("metrics_host", "") or "",
        metrics_port=int(number("metrics_port", 8080, 0, 65535)),
        log_level=level,
        log_format=format_,
        resync_seconds=number("resync_seconds", 300.0, 1.0, 86400.0),
        lease=text("lease_name", "adjoin") or "adjoin",
        meter_seconds=meter_seconds,
        record_folder=Path(records) if records else None,
    )


def _webhook_hosts(url: str | None, service: str | None, namespace: str, folder: str | None) -> tuple[str, ...]:
    hosts: list[str] = []
    if url:
        host = urlsplit(url).hostname
        if not url.startswith("https://") or not host:
            raise SettingsError(f"--webhook-url={url}: https://HOST:PORT is needed")
        hosts.append(host)
    if service:
        hosts.append(f"{service}.{namespace}.svc")
    if not hosts and not folder:
        raise SettingsError(
            "how the API server reaches admission is not known: give --webhook-service or --webhook-url"
        )
    return tuple(hosts)


def configure_logging(level: str, format_: str) -> None:
    """One handler for our own logs and those of the libraries, on stderr."""

    def about(_: Any, __: str, event: Any) -> Any:
        # kopf says which object it speaks of in the record, and nothing more of that record is wanted.
        record = event.get("_record")
        reference = getattr(record, "k8s_ref", None)
        if reference:
            key = "/".join(filter(None, (reference.get("namespace"), reference.get("name"))))
            event["object"] = f"{reference.get('kind')} {key}"
        return event

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    # Tracebacks without local variables: those may be tokens and keys.
    if format_ == "json":
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        tail: list[Any] = [
            structlog.processors.ExceptionRenderer(tracebacks),
            structlog.processors.JSONRenderer(default=str),
        ]
    else:
        plain = structlog.dev.plain_traceback
        tail = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, about],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # One line for every event of every object otherwise.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    for noisy in ("kopf.activities", "asyncio", "aiohttp.access", "kubernetes_asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def configure_interpreter() -> None:
    """A decision is long work in a thread beside the loop that answers admission. The loop loses the interpreter with
    every read and write of a socket and waits so long to get it back; with the 5 ms that Python gives by default, 200
    pods a second wait longer and longer."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(50_000, 20, 100)


class Recorded:
    """A decider whose last decision is kept, to be written on request."""

    def __init__(self, decider: Decider, recorder: Recorder) -> None:
        self._decider = decider
        self._recorder = recorder

    def decide(self, view: View, now: float) -> Decision:
        """What the decider decides."""
        decision = self._decider.decide(view, now)
        self._recorder.keep(decision.snapshot, decision.plan, now)
        return decision


class Operator:
    """One run of the operator: makes the parts, starts them in order, stops them in order."""

    def __init__(self, settings: Settings, kube: Kube) -> None:
        self._settings = settings
        self._kube = kube
        self._started = time.monotonic()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="decision")
        self._serving = False
        self._stopping = asyncio.Event()
        self.definitions = Definitions(kube)
        self.metrics = Metrics()
        self.batcher = Batcher()
        self.cache = Cache(settings.namespace, self.batcher.notify)
        self.metrics.follow(self.cache)
        self.elector = Elector(
            kube,
            namespace=settings.namespace,
            name=settings.lease,
            identity=settings.identity,
            on_change=self._leadership_changed,
        )
        self.writer = Writer(kube, self.cache, self.elector, self.metrics)
        self.recorder = Recorder(settings.record_folder) if settings.record_folder is not None else None
        self._recording: asyncio.Task[None] | None = None
        decider = Decider()
        self.planner = Planner(
            self.cache,
            decider if self.recorder is None else Recorded(decider, self.recorder),
            self.writer.submit,
            self.elector,
            self.batcher,
            self.metrics,
            executor=self._executor,
        )
        self.sweep = handlers.Sweep(kube, self.cache, self.metrics, interval=self._sweep_seconds)
        self.feed = handlers.Feed(self.cache, on_relist=self.sweep.soon)
        self.meter = Meter(kube, self.cache, self.metrics, seconds=settings.meter_seconds)
        self.reflectors = [
            Reflector(
                kube,
                self.cache,
                kind,
                namespace=settings.namespace if kind in HOME else "",
                labels=LABELLED.get(kind, ""),
                on_relist=self.sweep.soon,
                gate=self.cache.guests_wanted if kind is Kind.GUEST else None,
                # The writer may have met a ConfigMap of others under a name of ours; no watch tells when it goes.
                renew=kind is Kind.GRANT,
            )
            for kind in REFLECTED
        ]
        self.keeper: Keeper | Files = (
            Files(settings.webhook_certificates)
            if settings.webhook_certificates
            else Keeper(
                kube,
                self.writer,
                self.metrics,
                namespace=settings.namespace,
                hosts=settings.webhook_hosts,
                configuration=settings.webhook_configuration,
            )
        )

    def _sweep_seconds(self) -> float:
        """Seconds between two comparisons with complete lists: the least that a pool wants."""
        pools = self.cache.view(time.time()).pools.values()
        wanted = [milliseconds(pool.pool.spec.lifecycle.sweep_every) / 1000 for pool in pools]
        return min(self._settings.resync_seconds, max(LEAST_SWEEP_SECONDS, min(wanted, default=math.inf)))

    def _leadership_changed(self) -> None:
        self.batcher.notify()
        self.keeper.soon()

    async def run(self) -> int:
        """Runs until SIGTERM, SIGINT or a failure. Returns the exit code."""
        self._listen_to_signals()
        status = Server(
            status_app(self._alive(), self._ready(), self._scrape),
            self._settings.metrics_host,
            self._settings.metrics_port,
        )
        await status.open()
        try:
            if not await self._unless_stopped(self.definitions.wait()):
                return 0
            return await self._operate()
        finally:
            await status.close()
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _operate(self) -> int:
        names: dict[str, Coroutine[Any, Any, Any]] = {
            "sweep": self.sweep.run(),
            "writer": self.writer.run(),
            "lease": self.elector.run(),
            "planner": self.planner.run(),
            "certificate": self.keeper.run(),
            "admission": self._serve_admission(),
            "memory": self._settle_memory(),
            **({"meter": self.meter.run()} if self._settings.meter_seconds else {}),
            **{f"reflector {one.kind.name}": one.run() for one in self.reflectors},
        }
        tasks = {name: asyncio.create_task(coroutine, name=name) for name, coroutine in names.items()}
        before = asyncio.all_tasks()
        registry, stop_flag = kopf.OperatorRegistry(), asyncio.Event()
        handlers.register(registry, self.feed, self._access_for_kopf)
        handlers.endure()
        roots = await kopf.spawn_tasks(
            registry=registry,
            settings=handlers.settings(),
            clusterwide=True,
            standalone=True,
            stop_flag=stop_flag,
        )
        # kopf has just taken the signals for itself, and would stop before our writes have.
        self._listen_to_signals()
        tasks["kopf"] = asyncio.create_task(kopf.run_tasks(roots, ignored=before), name="kopf")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        code = 1
        try:
            done, _ = await asyncio.wait({stopping, *tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
            code = 0 if stopping in done else self._report(done)
        finally:
            asyncio.get_running_loop().call_later(STOP_SECONDS, _cut_short)
            await self._stop(tasks, stop_flag)
            stopping.cancel()
        return code

    def _report(self, done: set[asyncio.Task[Any]]) -> int:
        for task in done:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, LeadershipLost | PlannerBroken):
                _log.error("stopping", task=task.get_name(), error=str(error))
            else:
                _log.error("stopping: a part of the operator ended", task=task.get_name(), exc_info=error)
        return 1

    async def _stop(self, tasks: Mapping[str, asyncio.Task[Any]], stop_flag: asyncio.Event) -> None:
        """Every step is bounded, and none keeps the next from happening."""
        await _end(tasks["planner"], tasks["sweep"], tasks["certificate"])
        if not await self.writer.drain(DRAIN_SECONDS):
            _log.warning("writes were still under way")
        await _end(tasks["lease"])
        await self.elector.release()
        # Connections of the API server to admission are tasks that began after kopf, which would wait for them.
        await _end(tasks["admission"], tasks["writer"])
        stop_flag.set()
        await asyncio.wait({tasks["kopf"]}, timeout=KOPF_SECONDS)
        await _end(*tasks.values())

    # Parts

    async def _serve_admission(self) -> None:
        app: web.Application = admission.build_app(self.cache, self._find_claim, self._may_run_jobs, self._find_pool)
        server: Server | None = None
        try:
            while True:
                if server is None and self.keeper.tls is not None:
                    server = Server(app, self._settings.webhook_host, self._settings.webhook_port, self.keeper.tls)
                    await server.open()
                    self._serving = True
                await asyncio.sleep(0.1 if server is None else 3600.0)
        finally:
            self._serving = False
            if server is not None:
                await server.close()

    async def _find_claim(self, namespace: str, name: str) -> ClaimFacts | None:
        found = await self._asked_for(Kind.DEVICE_CLAIM, namespace, name)
        return found if isinstance(found, ClaimFacts) else None

    async def _find_pool(self, name: str) -> PoolFacts | None:
        found = await self._asked_for(Kind.DEVICE_POOL, "", name)
        return found if isinstance(found, PoolFacts) else None

    async def _asked_for(self, kind: Kind, namespace: str, name: str) -> Facts | None:
        """What was applied a moment ago with its pods. An API error fails the admission, which is tried again."""
        try:
            self.cache.ingest(kind, await self._kube.get(kind, namespace, name))
        except NotFound:
            return None
        return self.cache.named(kind, namespace, name)

    async def _may_run_jobs(self, user: Mapping[str, Any]) -> bool:
        """Whether a user may create Jobs where hooks run."""
        return await self._kube.may(user, "create", "batch", "jobs", self._settings.namespace)

    async def _access_for_kopf(self) -> Any:
        # kopf logs in anew only after a 401, and gives up when it gets the same token twice.
        return await self._kube.renew_access(self._kube.access.authorization)

    async def _settle_memory(self) -> None:
        """What was read at start stays: the garbage collector need not look at it again and again."""
        await self.cache.wait_synced()
        _log.info("synced", seconds=round(time.monotonic() - self._started, 2))
        gc.collect()
        gc.freeze()
        await asyncio.Event().wait()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether `work` ended before a signal came."""
        task, stopping = asyncio.create_task(work), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            return task.done()
        finally:
            await _end(task, stopping)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        # Without a handler the signal would end the process.
        loop.add_signal_handler(signal.SIGUSR1, self._record)

    def _record(self) -> None:
        """Writes the last decision, beside everything else; one at a time."""
        if self.recorder is None:
            _log.warning("SIGUSR1 writes nothing: no --record-dir is set")
        elif self._recording is None or self._recording.done():
            self._recording = asyncio.create_task(self._write_record(self.recorder), name="record")

    async def _write_record(self, recorder: Recorder) -> None:
        try:
            path = await asyncio.to_thread(recorder.write)
        except OSError as error:
            _log.error("the last decision could not be written", error=str(error))
        else:
            _log.info("no decision to write yet" if path is None else "last decision written", file=str(path or ""))

    # Health

    def _alive(self) -> dict[str, Callable[[], str | None]]:
        def age(since: float | None) -> float:
            return time.monotonic() - max(since or 0.0, self._started)

        def silent(since: float | None, limit: float) -> str | None:
            return f"nothing heard for {age(since):.0f} s" if age(since) > limit else None

        def planner() -> str | None:
            since = self.planner.deciding_since
            spent = 0.0 if since is None else asyncio.get_running_loop().time() - since
            return f"a decision has taken {spent:.0f} s" if spent > STUCK_SECONDS else None

        def writer() -> str | None:
            oldest = self.writer.oldest if self.elector.leading else 0.0
            return f"a write has waited for {oldest:.0f} s" if oldest > STUCK_SECONDS else None

        def deaf() -> str | None:
            kinds = self.sweep.deaf
            return f"kopf does not hear of {', '.join(kinds)}" if kinds else None

        checks: dict[str, Callable[[], str | None]] = {
            f"watch of {one.kind.name}": lambda one=one: None if one.idle else silent(one.heard, SILENT_SECONDS)  # type: ignore[misc]
            for one in self.reflectors
        }
        limit = 3 * self._settings.resync_seconds + SILENT_SECONDS
        return {
            **checks,
            "comparison": lambda: silent(self.sweep.done, limit),
            "events": deaf,
            "planner": planner,
            "writer": writer,
        }

    def _ready(self) -> dict[str, Callable[[], str | None]]:
        return {
            "definitions": lambda: self.definitions.problem,
            "cache": lambda: f"not listed yet: {', '.join(self.cache.unsynced)}" if not self.cache.synced else None,
            "admission": lambda: None if self._serving else "no certificate yet",
            "trust": lambda: None if self.keeper.trusted else "the webhook configurations do not trust us yet",
        }

    def _scrape(self) -> bytes:
        self.metrics.leader.set(self.elector.leading)
        self.metrics.writer_oldest.set(self.writer.oldest)
        if self.meter.newest is not None:
            self.metrics.load_age.set(max(0.0, time.time() - self.meter.newest))
        moment = time.monotonic()
        heard = {one.kind: one.heard for one in self.reflectors} | dict(self.feed.heard)
        for kind, since in heard.items():
            if since is not None:
                self.metrics.watch_age.labels(kind.value.kind).set(moment - since)
        return self.metrics.text()


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancels tasks and waits until they have ended, whatever they end in."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _cut_short() -> None:
    _log.critical("stopping takes too long")
    os._exit(1)


async def _main(settings: Settings) -> int:
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Kube(Login(settings.kubeconfig, settings.context)))
        return await Operator(settings, kube).run()


def run(settings: Settings) -> int:
    """`adjoin run`: returns the exit code: 0 after a signal, 1 after a failure, 2 for settings that cannot work."""
    configure_logging(settings.log_level, settings.log_format)
    configure_interpreter()
    _log.info("starting", identity=settings.identity, namespace=settings.namespace)
    try:
        # TLS and the loop itself in C: a seventh of the operator's processor time under load.
        return uvloop.run(_main(settings))
    except (ConfigurationError, OSError) as error:
        _log.error("cannot start", error=str(error))
        return 2
