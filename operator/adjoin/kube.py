"""The client: one request each, nothing clever.

In come kinds, names and bodies; out go raw JSON objects, pages of a list, events of a watch, or one of the errors
below. Every request has a timeout. Nothing here retries (but for one new login after a 401), remembers objects or
decides what an error means to the caller: each error has one name here and one answer where it is caught.

The only module that knows kubernetes_asyncio, and of that only the reading of its configuration: requests go through
aiohttp and orjson directly, which costs a third of the time.

    KubeError
    ├── Unreachable          nothing was sent
    ├── OutcomeUnknown       it may or may not have happened
    │   ├── TimedOut         no answer in time
    │   ├── Disconnected     the connection broke before the answer was complete
    │   └── Unavailable      5xx
    └── Refused              the API server said no; nothing has changed
        ├── BadRequest       400 and every 4xx without a name of its own
        ├── Unauthorized     401, also with fresh credentials
        ├── Forbidden        403
        ├── NotFound         404
        ├── AlreadyExists    409 on creation
        ├── Conflict         409 on a precondition: somebody was faster
        ├── Gone             410: the version or the continue token is too old
        ├── TooLarge         413
        ├── Invalid          422: the object itself is refused
        └── TooManyRequests  429, with the seconds to wait
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import kubernetes_asyncio.client as kubernetes_client
import kubernetes_asyncio.config as kubernetes_config
import orjson
import yaml

from adjoin.facts import Raw
from adjoin.intents import Kind

READ_SECONDS = 60.0
"""A page of a list: 500 ResourceSlices are 5 MB."""
WRITE_SECONDS = 10.0
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 75.0
"""The API server sends a bookmark about every 60 s: a watch silent for longer is dead, whatever TCP believes."""
PAGE = 500

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


class KubeError(Exception):
    """Anything that a request can end in but its answer."""


class Unreachable(KubeError):
    """No connection: nothing was sent."""


class OutcomeUnknown(KubeError):
    """The request may have been carried out. Look before doing anything else."""


class TimedOut(OutcomeUnknown):
    """No answer in time, or a watch that fell silent."""


class Disconnected(OutcomeUnknown):
    """The connection broke before the answer was complete."""


class Refused(KubeError):
    """The API server said no.

    Attributes:
        status: HTTP status.
        reason: Kubernetes' word, such as `Expired`, or "".
        causes: Reasons of the Status' causes, such as `DisruptionBudget`.
        retry_after: Seconds that the server asks to wait, or None.
    """

    def __init__(
        self, status: int, reason: str, message: str, causes: tuple[str, ...] = (), retry_after: float | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after


class Unavailable(Refused, OutcomeUnknown):
    """5xx: a server or something on the way failed, possibly after it had written."""


class BadRequest(Refused):
    """400 and every 4xx without a name of its own."""


class Unauthorized(Refused):
    """401, also with fresh credentials."""


class Forbidden(Refused):
    """403: a right is missing, a policy or webhook refuses, or the namespace is being deleted."""


class NotFound(Refused):
    """404: no such object, or no such kind."""


class AlreadyExists(Refused):
    """409 on creation."""


class Conflict(Refused):
    """409 on a precondition (UID or resourceVersion): somebody was faster."""


class Gone(Refused):
    """410: the version or the continue token is too old; list again."""


class TooLarge(Refused):
    """413: the body is larger than the server takes."""


class Invalid(Refused):
    """422: the object itself is refused; sending it again cannot help."""


class TooManyRequests(Refused):
    """429: wait `retry_after`; for an eviction also when a PodDisruptionBudget forbids it."""


_BY_STATUS: Mapping[int, type[Refused]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
}


def refusal(status: int, body: Any, retry_after: str | None = None) -> Refused:
    """The error for an HTTP status and its body (a Status object, or text of something on the way)."""
    known = body if isinstance(body, dict) else {}
    reason = str(known.get("reason") or "")
    details = known.get("details") or {}
    seconds = details.get("retryAfterSeconds")
    if retry_after is not None and retry_after.isdigit():
        seconds = int(retry_after)
    kind = Unavailable if status >= 500 else _BY_STATUS.get(status, BadRequest)
    if status == 409 and reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        status,
        reason,
        str(known.get("message") or body or "")[:2000],
        tuple(str(cause.get("reason") or "") for cause in details.get("causes") or ()),
        float(seconds) if seconds is not None else None,
    )


def version_of(obj: Raw) -> int:
    """resourceVersion of an object or a list as a number; 0 when there is none."""
    text = str((obj.get("metadata") or {}).get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0


def path_of(kind: Kind, namespace: str = "", name: str = "", sub: str = "") -> str:
    """Path of a collection, an object or its subresource. A namespaced kind without namespace means all namespaces."""
    resource = kind.value
    parts = [f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"]
    if namespace and resource.namespaced:
        parts.append(f"namespaces/{quote(namespace, safe='')}")
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=""))
    if sub:
        parts.append(sub)
    return "/".join(parts)


class Page(NamedTuple):
    """A part of a list. `version` is that of the whole list; `more` is the token for the next part, or ""."""

    items: list[Raw]
    version: str
    more: str


class WatchEvent(NamedTuple):
    """ADDED, MODIFIED, DELETED or BOOKMARK with its object. Errors are raised instead."""

    type: str
    object: Raw


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is and who we are; what kopf needs to log in as the same user.

    `authorization` is the whole header value, or "" with a client certificate.
    """

    server: str
    authorization: str
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    verify: bool
    server_name: str | None
    proxy: str | None

    def tls(self) -> ssl.SSLContext | None:
        """The client's TLS settings, None for plain HTTP."""
        if not self.server.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class Login:
    """Reads credentials: those of a kubeconfig, else the pod's ServiceAccount. Reading again sees new tokens."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context

    async def access(self) -> Access:
        """Reads now. Raises `ConfigurationError` when nothing usable is there."""
        settings = kubernetes_client.Configuration()
        try:
            if self._kubeconfig:
                await kubernetes_config.load_kube_config(
                    config_file=self._kubeconfig, context=self._context, client_configuration=settings
                )
            else:
                kubernetes_config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            token = await settings.get_api_key_with_prefix("BearerToken")
        except _UNUSABLE as error:
            source = self._kubeconfig or "the pod's ServiceAccount"
            raise ConfigurationError(f"no access to a cluster by {source}: {error}") from error
        return Access(
            server=(settings.host or "").rstrip("/"),
            authorization=(token or "").strip(),
            ca_file=settings.ssl_ca_cert,
            certificate_file=settings.cert_file,
            key_file=settings.key_file,
            verify=settings.verify_ssl,
            server_name=settings.tls_server_name,
            proxy=settings.proxy,
        )

    def namespace(self) -> str:
        """The namespace that this context stands in. Raises `ConfigurationError`."""
        if not self._kubeconfig:
            return "default"
        try:
            contexts, current = kubernetes_config.list_kube_config_contexts(config_file=self._kubeconfig)
            chosen = next((each for each in contexts if each["name"] == self._context), current)
            return str(((chosen or {}).get("context") or {}).get("namespace") or "default")
        except _UNUSABLE as error:
            raise ConfigurationError(f"no access to a cluster by {self._kubeconfig}: {error}") from error


class ConfigurationError(Exception):
    """The kubeconfig or the ServiceAccount cannot be used. Not a `KubeError`: no request was made."""


_UNUSABLE = (
    kubernetes_config.ConfigException,
    OSError,
    yaml.YAMLError,
    # What the reader stumbles over in a file that is no kubeconfig.
    AssertionError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
)


class Kube:
    """A client of one API server. Enter it before use; safe for any number of tasks of one loop."""

    def __init__(self, login: Login, *, agent: str = "adjoin") -> None:
        self._login = login
        self._agent = agent
        self._access: Access | None = None
        self._session: aiohttp.ClientSession | None = None
        self._logging_in = asyncio.Lock()

    async def __aenter__(self) -> Kube:
        access = self._access = await self._login.access()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=access.tls() or True, limit=0),
            headers={
                "User-Agent": self._agent,
                # The API server compresses long answers at more cost than a cluster's network is worth.
                "Accept-Encoding": "identity",
            },
            auto_decompress=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def access(self) -> Access:
        """The credentials in use."""
        if self._access is None:
            raise RuntimeError("the client is used before it was entered")
        return self._access

    async def renew_access(self, stale: str) -> Access:
        """Reads the credentials again unless somebody has done so since `stale` (an `authorization`) was in use."""
        async with self._logging_in:
            if self.access.authorization == stale:
                self._access = await self._login.access()
            return self.access

    # Reading

    async def get(self, kind: Kind, namespace: str, name: str, *, seconds: float = WRITE_SECONDS) -> Raw:
        """One object by GET. Raises `NotFound`."""
        return await self._json("GET", path_of(kind, namespace, name), seconds=seconds)

    async def get_path(self, path: str, *, seconds: float = WRITE_SECONDS) -> Raw:
        """Any other document of the API server, such as `/apis/adjoin.dev/v1alpha1`."""
        return await self._json("GET", path, seconds=seconds)

    async def find(self, kind: Kind, namespace: str, name: str) -> tuple[Raw | None, int]:
        """An object and the version at which this was true; unlike `get` it also dates the absence."""
        page = await self.page(
            kind, namespace=namespace, fields=f"metadata.name={name}", limit=1, seconds=WRITE_SECONDS
        )
        return (page.items[0] if page.items else None), int(page.version) if page.version.isdigit() else 0

    async def page(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
        more: str = "",
        metadata_only: bool = False,
        seconds: float = READ_SECONDS,
    ) -> Page:
        """One part of a list. Raises `Gone` when `more` is too old."""
        query = {"limit": str(limit)}
        if labels:
            query["labelSelector"] = labels
        chosen = ",".join(filter(None, (kind.value.fields, fields)))
        if chosen:
            query["fieldSelector"] = chosen
        if more:
            query["continue"] = more
        accept = METADATA_ONLY if metadata_only else JSON
        answer = await self._json("GET", path_of(kind, namespace), query=query, accept=accept, seconds=seconds)
        meta = answer.get("metadata") or {}
        return Page(answer.get("items") or [], str(meta.get("resourceVersion") or ""), meta.get("continue") or "")

    async def pages(
        self, kind: Kind, *, namespace: str = "", labels: str = "", limit: int = PAGE, metadata_only: bool = False
    ) -> AsyncGenerator[Page, None]:
        """All parts of a list. Raises `Gone` when it took longer than the server remembers: start again then."""
        more = ""
        while True:
            page = await self.page(
                kind, namespace=namespace, labels=labels, limit=limit, more=more, metadata_only=metadata_only
            )
            yield page
            more = page.more
            if not more:
                return

    async def watch(
        self,
        kind: Kind,
        version: str,
        *,
        namespace: str = "",
        labels: str = "",
        server_seconds: int = 300,
        silence: float = SILENCE_SECONDS,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after `version` until the server ends it. Raises `Gone`; `TimedOut` after `silence` seconds."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(server_seconds),
        }
        if labels:
            query["labelSelector"] = labels
        if kind.value.fields:
            query["fieldSelector"] = kind.value.fields
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        response = await self._send("GET", path_of(kind, namespace), query=query, limits=limits)
        try:
            async for line in _lines(response):
                event = orjson.loads(line)
                body = event.get("object") or {}
                if event.get("type") == "ERROR":
                    raise refusal(int(body.get("code") or 500), body)
                yield WatchEvent(event["type"], body)
        except (TimeoutError, aiohttp.ClientError, orjson.JSONDecodeError) as error:
            raise _broken(error) from error
        finally:
            response.close()

    # Writing: for writer.py and lease.py alone

    async def create(self, kind: Kind, namespace: str, body: Raw, *, seconds: float = WRITE_SECONDS) -> Raw:
        """POST of a new object. Raises `AlreadyExists`."""
        return await self._json("POST", path_of(kind, namespace), body=body, seconds=seconds)

    async def may(self, user: Raw, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Whether a user (`username`, `groups`, `uid`, `extra` as in a review) may do something, as the API server's
        own authorizer says."""
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username") or "",
                "groups": list(user.get("groups") or ()),
                "uid": user.get("uid") or "",
                "extra": dict(user.get("extra") or {}),
                "resourceAttributes": {"verb": verb, "group": group, "resource": resource, "namespace": namespace},
            },
        }
        answer = await self._json("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def replace(self, kind: Kind, namespace: str, name: str, body: Raw, *, seconds: float = WRITE_SECONDS) -> Raw:
        """PUT of a whole object; its resourceVersion is the precondition."""
        return await self._json("PUT", path_of(kind, namespace, name), body=body, seconds=seconds)

    async def patch(self, kind: Kind, namespace: str, name: str, body: Raw, *, sub: str = "") -> Raw:
        """Merge patch of an object or subresource; `uid` and `resourceVersion` in its metadata are preconditions."""
        return await self._json("PATCH", path_of(kind, namespace, name, sub), body=body, content=MERGE_PATCH)

    async def delete(self, kind: Kind, namespace: str, name: str, options: Raw) -> Raw:
        """DELETE with DeleteOptions. The answer is the object that is being deleted, or a Status when it is gone."""
        return await self._json("DELETE", path_of(kind, namespace, name), body=options)

    async def evict(self, namespace: str, name: str, options: Raw) -> Raw:
        """POST to a pod's eviction, DeleteOptions inside."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": options,
        }
        return await self._json("POST", path_of(Kind.POD, namespace, name, "eviction"), body=body)

    # The wire

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Raw | None = None,
        content: str = JSON,
        accept: str = JSON,
        seconds: float = WRITE_SECONDS,
    ) -> Raw:
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        response = await self._send(method, path, query=query, body=body, content=content, accept=accept, limits=limits)
        try:
            answer = orjson.loads(await response.read())
        except (TimeoutError, aiohttp.ClientError, orjson.JSONDecodeError) as error:
            raise _broken(error) from error
        finally:
            response.release()
        if not isinstance(answer, dict):
            raise Disconnected(f"{method} {path}: the answer is no object")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Raw | None = None,
        content: str = JSON,
        accept: str = JSON,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Sends one request; an answer below 400 comes back unread."""
        used = self.access
        response = await self._once(used, method, path, query, body, content, accept, limits)
        if response.status == 401:
            response.release()
            renewed = await self.renew_access(used.authorization)
            response = await self._once(renewed, method, path, query, body, content, accept, limits)
        if response.status < 400:
            return response
        try:
            text: Any = await response.read()
        except (TimeoutError, aiohttp.ClientError) as error:
            raise _broken(error) from error
        finally:
            response.release()
        with suppress(orjson.JSONDecodeError):
            text = orjson.loads(text)
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        raise refusal(response.status, text, response.headers.get("Retry-After"))

    async def _once(
        self,
        access: Access,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Raw | None,
        content: str,
        accept: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is used before it was entered")
        headers = {"Accept": accept}
        if access.authorization:
            headers["Authorization"] = access.authorization
        data = None
        if body is not None:
            headers["Content-Type"] = content
            data = orjson.dumps(body)
        try:
            return await self._session.request(
                method,
                access.server + path,
                params=query,
                data=data,
                headers=headers,
                timeout=limits,
                proxy=access.proxy,
                server_hostname=access.server_name,
                allow_redirects=False,
            )
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(f"{method} {path}: {error}") from error
        except aiohttp.ServerTimeoutError as error:
            # A connection that could not be made in time carried nothing.
            kind = Unreachable if isinstance(error, aiohttp.ConnectionTimeoutError) else TimedOut
            raise kind(f"{method} {path}: {error}") from error
        except (TimeoutError, aiohttp.ClientError) as error:
            raise _broken(error) from error


def _broken(error: Exception) -> OutcomeUnknown:
    if isinstance(error, TimeoutError):
        return TimedOut(str(error) or "no answer in time")
    return Disconnected(f"{type(error).__name__}: {error}")


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of a stream. aiohttp's own iterator refuses lines beyond 128 KiB, and objects may be larger."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
