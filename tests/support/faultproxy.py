"""An API server as seen through a bad network: a proxy on loopback that fails requests by chance, reproducibly.

Comes in: a running `ControlPlane` and a seed. Goes out: a URL that serves the same API. While `troubled`, requests are
answered with 409, 429, 500 or 503 without being carried out, hang, or are carried out with the answer lost; watches
break off, fall silent, or say that their version is too old. It knows nothing of who asks or what for.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from tests.controlplane.server import ControlPlane

CHANCE = 0.08
"""Part of the requests that fail in one way or another."""
HANG_SECONDS = 3.0
WATCH_SECONDS = (0.5, 20.0)
"""A watch breaks off after a time between these."""
_HOP = frozenset({"connection", "transfer-encoding", "content-length", "content-encoding", "keep-alive", "host"})


def _status(code: int, reason: str, message: str) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**body, "message": message}).encode()


@dataclass
class FaultProxy:
    """Context manager: serves from the moment it is entered. `counts` says what was done to requests."""

    plane: ControlPlane
    seed: int
    troubled: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    url: str = ""
    _ready: threading.Event = field(default_factory=threading.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _ended: asyncio.Event | None = None
    _thread: threading.Thread | None = None

    def __enter__(self) -> FaultProxy:
        self._random = random.Random(self.seed)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True, name="fault proxy")
        self._thread.start()
        assert self._ready.wait(20), "the proxy does not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._ended is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(20)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        # Without a certificate of its own: who asks is told by the token in each request.
        trust = ssl.create_default_context(cafile=str(self.plane.ca_file))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=16 * 2**20)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self._ready.set()
            await self._ended.wait()
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        watch = request.query.get("watch") in ("1", "true")
        # Leases go through: what is tested is what happens to those who lead, not that nobody may.
        exempt = "/leases" in request.path
        fault = self._fault(request.method, watch) if self.troubled and not exempt else ""
        self.counts[fault or "passed"] += 1
        if fault == "conflict":
            return self._say(409, _status(409, "Conflict", "injected: somebody was faster"))
        if fault == "busy":
            return self._say(429, _status(429, "TooManyRequests", "injected: wait"), {"Retry-After": "1"})
        if fault == "broken":
            return self._say(500, _status(500, "InternalError", "injected: internal error"))
        if fault == "away":
            return self._say(503, _status(503, "ServiceUnavailable", "injected: no server"))
        if fault == "expired":
            return self._say(410, _status(410, "Expired", "injected: too old resource version"))
        if fault == "hang":
            await asyncio.sleep(HANG_SECONDS)
            return self._cut(request)
        body = await request.read()
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        upstream = self._session.request(
            request.method,
            self.plane.url + request.raw_path,
            data=body or None,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        try:
            async with upstream as answer:
                if fault == "lost":
                    await answer.read()
                    return self._cut(request)
                return await self._stream(request, answer, watch)
        except (aiohttp.ClientError, ConnectionError):
            return self._cut(request)

    def _fault(self, method: str, watch: bool) -> str:
        if self._random.random() >= CHANCE:
            return ""
        if watch:
            return "expired"
        if method == "GET":
            return self._random.choice(("busy", "broken", "hang"))
        return self._random.choice(("conflict", "busy", "broken", "away", "hang", "lost", "lost"))

    @staticmethod
    def _say(status: int, body: bytes, headers: dict[str, str] | None = None) -> web.Response:
        return web.Response(status=status, body=body, content_type="application/json", headers=headers)

    @staticmethod
    def _cut(request: web.Request) -> web.Response:
        """The connection breaks without an answer."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse, watch: bool) -> web.StreamResponse:
        headers = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
        if "Content-Encoding" in answer.headers:
            headers["Content-Encoding"] = answer.headers["Content-Encoding"]
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._random.uniform(*WATCH_SECONDS) if watch and self.troubled else None
        while True:
            try:
                async with asyncio.timeout_at(ends):
                    chunk = await answer.content.readany()
            except TimeoutError:
                self.counts["watch cut"] += 1
                if request.transport is not None:
                    request.transport.abort()
                return response
            if not chunk:
                break
            await response.write(chunk)
        await response.write_eof()
        return response
