"""The smallest client that tests need beside the ones they test: blocking requests, and a session for many at once.

Comes in: URL, SSL context, JSON. Goes out: the decoded answer; an answer of 400 and above is an `ApiFailure` that
carries what the API server said. It never retries.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

REQUEST_SECONDS = 60.0


class ApiFailure(Exception):
    """The API server answered, and the answer is no. `status` is the HTTP status, `body` the Status object or text."""

    def __init__(self, request: str, status: int, body: Any) -> None:
        self.status = status
        self.body = body
        message = body.get("message", body) if isinstance(body, dict) else body
        super().__init__(f"{request}: {status}: {message}")

    @property
    def reason(self) -> str:
        """The machine-readable reason of the Status object (NotFound, Invalid, …), or nothing."""
        return str(self.body.get("reason", "")) if isinstance(self.body, dict) else ""


def tls_context(ca: bytes, certificate_file: str | None = None, key_file: str | None = None) -> ssl.SSLContext:
    """Trusts this authority alone; shows a client certificate when files are given."""
    context = ssl.create_default_context(cadata=ca.decode())
    if certificate_file is not None:
        context.load_cert_chain(certificate_file, key_file)
    return context


def call(
    url: str,
    context: ssl.SSLContext | None,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
    timeout: float = REQUEST_SECONDS,
) -> Any:
    """One request on a connection of its own. OSError when nobody answers."""
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.netloc, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
    try:
        sent = {"Accept": "application/json", **(headers or {})}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = content_type
        connection.request(method, path, body=data, headers=sent)
        response = connection.getresponse()
        answer = decode(response.read())
    except http.client.HTTPException as error:
        # A server that is killed in the middle of an answer: for a caller the same as one that is not there.
        raise ConnectionError(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()
    if response.status >= 400:
        raise ApiFailure(f"{method} {path}", response.status, answer)
    return answer


def decode(data: bytes) -> Any:
    """JSON where it is JSON, else text (health endpoints answer `ok`)."""
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def open_session(url: str, context: ssl.SSLContext, *, connections: int) -> aiohttp.ClientSession:
    """A session for many requests at once; to be closed by the caller (`async with`)."""
    return aiohttp.ClientSession(
        base_url=url,
        connector=aiohttp.TCPConnector(ssl=context, limit=connections),
        timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
    )
