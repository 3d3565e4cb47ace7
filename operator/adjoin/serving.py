"""What this process serves: health and metrics in plain HTTP, admission over TLS, and the certificate for it.

In come the admission application, checks as functions, and the bundle in the Secret that all replicas share; out go
listening servers. The keeper makes the first bundle (whichever replica is faster), reloads what another replica renewed
without dropping a connection, and while it leads renews the bundle and fills the authority into our own webhook
configurations where it differs. It writes through the writer alone.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from adjoin.certificates import AUTHORITY_LIFE, SERVING_LIFE, Bundle, install, renew, serving_context
from adjoin.facts import Raw, read_meta
from adjoin.intents import Kind, Step, Verb
from adjoin.kube import AlreadyExists, Kube, KubeError, NotFound
from adjoin.metrics import CONTENT_TYPE, Metrics
from adjoin.writer import NotLeading, Writer

SECRET: Final = "adjoin-webhook-certificates"
CONFIGURATIONS: Final = (Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK)
LOOK_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 1.0

Check = Callable[[], str | None]
"""Says what is wrong, or None."""

_log = structlog.get_logger(__name__)


def status_app(alive: Mapping[str, Check], ready: Mapping[str, Check], metrics: Callable[[], bytes]) -> web.Application:
    """`/healthz` (is it worth going on?), `/readyz` (can it serve?) and `/metrics`."""

    def answer(checks: Mapping[str, Check]) -> web.Response:
        wrong = [f"{name}: {problem}" for name, check in checks.items() if (problem := check()) is not None]
        return web.Response(status=503 if wrong else 200, text="\n".join(wrong or ["ok"]) + "\n")

    async def healthz(_: web.Request) -> web.Response:
        return answer(alive)

    async def readyz(_: web.Request) -> web.Response:
        return answer({**alive, **ready})

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", scrape)])
    return app


class Server:
    """One listening application. `close` ends it within a second, connections included."""

    def __init__(self, app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        self._host = host
        self._port = port
        self._tls = tls

    async def open(self) -> None:
        """Listens. Raises `OSError` when the address is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls, reuse_address=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Ends it."""
        await self._runner.cleanup()


class Keeper:
    """Keeps the certificate that admission is served with, and the trust in it. `run` goes on until cancelled.

    Attributes:
        tls: The TLS settings to serve with; set once there is a certificate, renewed in place.
        trusted: Whether our webhook configurations carry the authority; None while unknown.
    """

    def __init__(
        self,
        kube: Kube,
        writer: Writer,
        metrics: Metrics,
        *,
        namespace: str,
        hosts: Sequence[str],
        configuration: str,
        labels: Mapping[str, str] | None = None,
        serving_life: timedelta = SERVING_LIFE,
        authority_life: timedelta = AUTHORITY_LIFE,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._kube = kube
        self._writer = writer
        self._metrics = metrics
        self._namespace = namespace
        self._hosts = tuple(hosts)
        self._configuration = configuration
        self._labels = dict(labels or {"app.kubernetes.io/name": "adjoin"})
        self._serving_life = serving_life
        self._authority_life = authority_life
        self._wall = wall
        self._sleep = sleep
        self._installed: Bundle | None = None
        self._kicked = asyncio.Event()
        self.tls: ssl.SSLContext | None = None
        self.trusted: bool | None = None

    def soon(self) -> None:
        """Leadership has changed: there may be something to do."""
        self._kicked.set()

    async def run(self) -> None:
        """Looks after it, about once a minute."""
        while True:
            pause = min(LOOK_SECONDS, self._serving_life.total_seconds() / 20)
            try:
                await self.turn()
            except (KubeError, NotLeading) as error:
                _log.info("the webhooks' certificate could not be looked after", error=str(error))
                pause = min(pause, RETRY_SECONDS)
            if not self.trusted:
                pause = min(pause, RETRY_SECONDS)
            try:
                async with asyncio.timeout(pause):
                    await self._kicked.wait()
            except TimeoutError:
                pass
            self._kicked.clear()

    async def turn(self) -> None:
        """Brings everything up to date once. Raises what the API server refuses."""
        bundle = await self._bundle()
        if bundle != self._installed:
            self._install(bundle)
        authority = base64.b64encode(bundle.authorities).decode()
        trusted = True
        for kind in CONFIGURATIONS:
            trusted = await self._trust(kind, authority) and trusted
        self.trusted = trusted

    def _install(self, bundle: Bundle) -> None:
        if self.tls is None:
            self.tls = serving_context(bundle)
        else:
            install(self.tls, bundle)
        self._installed = bundle
        end = bundle.serving.not_valid_after_utc
        self._metrics.certificate_expiry.set(end.timestamp())
        _log.info("serving certificate in use", until=end.isoformat(timespec="seconds"))

    async def _bundle(self) -> Bundle:
        """The bundle in force, made or renewed first if it must be."""
        while True:
            try:
                secret = await self._kube.get(Kind.SECRET, self._namespace, SECRET)
            except NotFound:
                bundle = self._next(None)
                try:
                    await self._writer.perform(self._creation(bundle), fenced=False)
                except AlreadyExists:
                    continue
                return bundle
            present = Bundle.from_data(secret.get("data") or {})
            bundle = self._next(present)
            if bundle is present:
                return bundle
            try:
                await self._writer.perform(_update(secret, bundle))
            except NotLeading:
                if present is None:
                    raise
                # The leader renews; what is there serves until then.
                return present
            return bundle

    def _next(self, present: Bundle | None) -> Bundle:
        return renew(
            present,
            self._wall(),
            self._hosts,
            serving_life=self._serving_life,
            authority_life=self._authority_life,
        )

    def _creation(self, bundle: Bundle) -> Step:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": self._namespace, "name": SECRET, "labels": self._labels},
            "type": "Opaque",
            "data": bundle.to_data(),
        }
        return Step(Verb.CREATE, Kind.SECRET, self._namespace, SECRET, body=body)

    async def _trust(self, kind: Kind, authority: str) -> bool:
        """Whether the configuration trusts us; makes it so while leading."""
        try:
            configuration = await self._kube.get(kind, "", self._configuration)
        except NotFound:
            _log.error("no webhook configuration of that name", kind=kind.value.kind, name=self._configuration)
            return False
        webhooks: list[Any] = list(configuration.get("webhooks") or ())
        wanted = [
            {**webhook, "clientConfig": {**(webhook.get("clientConfig") or {}), "caBundle": authority}}
            for webhook in webhooks
        ]
        if wanted == webhooks:
            return True
        meta = read_meta(configuration)
        step = Step(Verb.PATCH, kind, "", self._configuration, meta.uid, meta.version, {"webhooks": wanted})
        try:
            await self._writer.perform(step)
        except NotLeading:
            return False
        return True


def _update(secret: Raw, bundle: Bundle) -> Step:
    meta = read_meta(secret)
    body = {"data": bundle.to_data()}
    return Step(Verb.PATCH, Kind.SECRET, meta.namespace, SECRET, meta.uid, meta.version, body)


class Files:
    """A certificate that somebody else keeps in files (cert-manager), reloaded when it changes. Used like `Keeper`."""

    def __init__(self, folder: Path) -> None:
        self._certificate = folder / "tls.crt"
        self._key = folder / "tls.key"
        self._seen: tuple[float, float] = (0.0, 0.0)
        self.tls: ssl.SSLContext | None = None
        self.trusted: bool | None = True

    def soon(self) -> None:
        """Nothing here depends on leadership."""

    async def run(self) -> None:
        """Looks at the files, about once a minute."""
        while True:
            try:
                self.turn()
            except (OSError, ssl.SSLError) as error:
                _log.error("the webhooks' certificate cannot be read", file=str(self._certificate), error=str(error))
            await asyncio.sleep(LOOK_SECONDS if self.tls else RETRY_SECONDS)

    def turn(self) -> None:
        """Reloads the files if they changed. Raises `OSError` when they cannot be read or do not fit together."""
        seen = (self._certificate.stat().st_mtime, self._key.stat().st_mtime)
        if seen == self._seen:
            return
        context = self.tls or ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate, self._key)
        self.tls, self._seen = context, seen
        _log.info("serving certificate in use", file=str(self._certificate))
