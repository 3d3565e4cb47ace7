"""An API server on loopback as small as the client needs it, and as unkind as a test wants it.

It keeps objects with UIDs and one growing resourceVersion, answers list (in parts, by label or name), watch, GET, POST,
PUT, merge PATCH (with status as subresource), DELETE and eviction, and checks the preconditions that the real one
checks. On request it refuses, hangs, forgets history, swallows events or cuts connections. What it does not know it
refuses: it stands in for the wire, not for Kubernetes' rules, which are tested on the real control plane.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from adjoin.intents import Kind
from adjoin.kube import Access, Kube, Login

Obj = dict[str, Any]
Key = tuple[str, str]

_PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?$"
)
WITH_STATUS = {Kind.DEVICE_CLAIM, Kind.DEVICE_POOL, Kind.DEVICE_SHARE, Kind.POD, Kind.RESOURCE_CLAIM, Kind.NODE}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    token: str
    at: float


@dataclass
class Fault:
    """What happens instead of, or after, the next matching requests."""

    matches: Callable[[Request], bool]
    times: int
    status: int = 0
    reason: str = ""
    retry_after: int | None = None
    hang: bool = False
    drop: bool = False
    afterwards: bool = False


@dataclass
class _Watch:
    kind: Kind
    namespace: str
    labels: str
    queue: asyncio.Queue[Obj | None] = field(default_factory=asyncio.Queue)
    mute: bool = False


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class Refusal(Exception):
    """An answer of 400 and above."""

    def __init__(self, status: int, reason: str, message: str = "", retry_after: int | None = None) -> None:
        super().__init__(message or reason)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after

    def response(self) -> web.Response:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return web.Response(status=self.status, body=orjson.dumps(self.body()), headers=headers)

    def body(self) -> Obj:
        return {
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": self.status, "reason": self.reason, "message": str(self),
        }  # fmt: skip


class FakeApi:
    """`async with FakeApi() as api`. Versions start at 1 and grow by one with every change."""

    def __init__(self, *, unserved: set[Kind] | None = None) -> None:
        self.objects: dict[Kind, dict[Key, Obj]] = {kind: {} for kind in Kind}
        self.unserved = unserved or set()
        self.version = 1
        self.compacted = 0
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.tokens: set[str] | None = None
        """Authorizations that are accepted; None: all."""
        self._history: list[tuple[int, Kind, Obj]] = []
        self._snapshots: dict[tuple[Kind, str], list[Obj]] = {}
        self._watches: list[_Watch] = []
        self._released = asyncio.Event()
        self._uids = 0
        self._port = 0
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> FakeApi:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        await self.stop()

    async def start(self) -> None:
        """Listens, on the same port as before if there was one."""
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Goes away, with all connections; the objects stay."""
        for watch in list(self._watches):
            watch.queue.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def client(self, token: Callable[[], str] = lambda: "Bearer t") -> Kube:
        """A client of this server; it logs in with what `token` returns at that moment."""
        return Kube(_FixedLogin(self.url, token))

    # What a test does behind the operator's back

    def put(self, kind: Kind, obj: Obj, *, silent: bool = False) -> Obj:
        """Creates or replaces an object as somebody else would; `silent` loses the event."""
        obj = copy.deepcopy(obj)
        meta = obj.setdefault("metadata", {})
        key = (meta.get("namespace", ""), meta["name"])
        old = self.objects[kind].get(key)
        if old is not None and meta.setdefault("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise ValueError("remove the old object of that name first")
        return self._store(kind, key, obj, silent=silent)

    def remove(self, kind: Kind, namespace: str, name: str, *, silent: bool = False) -> Obj:
        """Deletes an object for good; `silent` loses the event."""
        obj = self.objects[kind].pop((namespace, name))
        self.version += 1
        last = merge(obj, {"metadata": {"resourceVersion": str(self.version)}})
        self._tell("DELETED", kind, last, silent)
        return last

    def get(self, kind: Kind, namespace: str, name: str) -> Obj:
        return self.objects[kind][namespace, name]

    def fail(
        self,
        status: int,
        reason: str = "",
        *,
        method: str = "",
        path: str = "",
        times: int = 1,
        retry_after: int | None = None,
        afterwards: bool = False,
    ) -> None:
        """Refuses the next requests; with `afterwards` they are carried out, only the answer is this one."""
        self.faults.append(Fault(_like(method, path), times, status, reason, retry_after, afterwards=afterwards))

    def hang(self, *, method: str = "", path: str = "", times: int = 1, afterwards: bool = False) -> None:
        """Never answers the next requests; with `afterwards` they are carried out first."""
        self.faults.append(Fault(_like(method, path), times, hang=True, afterwards=afterwards))

    def drop(self, *, method: str = "", path: str = "", times: int = 1, afterwards: bool = False) -> None:
        """Closes the connection instead of answering."""
        self.faults.append(Fault(_like(method, path), times, drop=True, afterwards=afterwards))

    def compact(self) -> None:
        """Forgets history: watches and continue tokens of before are gone."""
        self.compacted = self.version
        self._snapshots.clear()

    def bookmark(self, kind: Kind) -> None:
        """Tells watchers of `kind` how far they are."""
        for watch in self._watches:
            if watch.kind is kind and not watch.mute:
                mark = {"metadata": {"resourceVersion": str(self.version)}}
                watch.queue.put_nowait({"type": "BOOKMARK", "object": mark})

    def end_watches(self) -> None:
        """Ends all watches, as the server does when their time is over."""
        for watch in self._watches:
            watch.queue.put_nowait(None)

    def send(self, kind: Kind, event: Obj) -> None:
        """Sends any event to watchers of `kind`."""
        for watch in self._watches:
            if watch.kind is kind:
                watch.queue.put_nowait(event)

    def mute_watches(self) -> None:
        """From now on the present watches hear nothing more and are not closed."""
        for watch in self._watches:
            watch.mute = True

    @property
    def watching(self) -> list[Kind]:
        """Kinds of the watches that are open."""
        return [watch.kind for watch in self._watches]

    def calls(self, method: str, plural: str = "") -> list[Request]:
        """Requests by method, of paths that contain `plural`."""
        return [one for one in self.requests if one.method == method and plural in one.path]

    @property
    def writes(self) -> list[Request]:
        """Everything but GET."""
        return [one for one in self.requests if one.method != "GET"]

    # The server

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        seen = Request(
            request.method,
            request.path,
            dict(request.query),
            orjson.loads(raw) if raw else None,
            request.headers.get("Authorization", ""),
            asyncio.get_running_loop().time(),
        )
        self.requests.append(seen)
        fault = self._fault(seen)
        try:
            if self.tokens is not None and seen.token not in self.tokens:
                raise Refusal(401, "Unauthorized")
            if fault is None or fault.afterwards:
                answer = await self._answer(request, seen)
            if fault is not None:
                return await self._misbehave(request, fault)
            return answer
        except Refusal as refusal:
            return refusal.response()

    def _fault(self, seen: Request) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.matches(seen):
                fault.times -= 1
                return fault
        return None

    async def _misbehave(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
        if fault.hang:
            await self._released.wait()
        if fault.drop or fault.hang:
            if request.transport is not None:
                request.transport.close()
            return web.Response()
        raise Refusal(fault.status, fault.reason, retry_after=fault.retry_after)

    async def _answer(self, request: web.BaseRequest, seen: Request) -> web.StreamResponse:
        match = _PATH.match(seen.path)
        kind = next((one for one in Kind if match and one.value.plural == match["plural"]), None)
        if match is None or kind is None or kind in self.unserved:
            return web.Response(status=404, text="404 page not found")
        namespace, name, sub = match["namespace"] or "", match["name"] or "", match["sub"] or ""
        if seen.method == "GET" and not name:
            if seen.query.get("watch"):
                return await self._watch(request, kind, namespace, seen.query)
            return _json(self._list(kind, namespace, seen))
        if seen.method == "GET":
            return _json(self._existing(kind, namespace, name))
        if seen.method == "POST" and not name:
            return _json(self._create(kind, namespace, seen.body), 201)
        if seen.method == "POST" and sub == "eviction":
            options = seen.body.get("deleteOptions") or {}
            self._delete(kind, namespace, name, options)
            return _json({"kind": "Status", "status": "Success"}, 201)
        if seen.method == "PUT":
            old = self._existing(kind, namespace, name)
            self._check(old, seen.body.get("metadata") or {})
            return _json(self._store(kind, (namespace, name), copy.deepcopy(seen.body)))
        if seen.method == "PATCH":
            return _json(self._patch(kind, namespace, name, sub, seen.body))
        if seen.method == "DELETE":
            return _json(self._delete(kind, namespace, name, seen.body or {}))
        raise Refusal(405, "MethodNotAllowed")

    def _existing(self, kind: Kind, namespace: str, name: str) -> Obj:
        try:
            return self.objects[kind][namespace, name]
        except KeyError:
            raise Refusal(404, "NotFound", f'{kind.value.plural} "{name}" not found') from None

    @staticmethod
    def _check(old: Obj, wanted: Mapping[str, Any]) -> None:
        if wanted.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            raise Refusal(409, "Conflict", "the object has been modified")
        if wanted.get("uid") not in (None, "", old["metadata"]["uid"]):
            raise Refusal(422, "Invalid", "metadata.uid: field is immutable")

    def _create(self, kind: Kind, namespace: str, body: Obj) -> Obj:
        meta = body.get("metadata") or {}
        if (namespace, meta["name"]) in self.objects[kind]:
            raise Refusal(409, "AlreadyExists", f'{kind.value.plural} "{meta["name"]}" already exists')
        obj = merge(copy.deepcopy(body), {"metadata": {"namespace": namespace or None}})
        if kind in WITH_STATUS:
            obj.pop("status", None)
        return self._store(kind, (namespace, meta["name"]), obj)

    def _patch(self, kind: Kind, namespace: str, name: str, sub: str, patch: Obj) -> Obj:
        old = self._existing(kind, namespace, name)
        self._check(old, patch.get("metadata") or {})
        if sub == "status":
            new = {**old, "status": merge(old.get("status"), patch.get("status"))}
        else:
            kept = {"status": patch.get("status")} if kind in WITH_STATUS else {}
            new = merge(old, {key: value for key, value in patch.items() if key not in kept})
        if new == old:
            return old
        return self._store(kind, (namespace, name), copy.deepcopy(new))

    def _delete(self, kind: Kind, namespace: str, name: str, options: Obj) -> Obj:
        old = self._existing(kind, namespace, name)
        wanted = options.get("preconditions") or {}
        if wanted.get("uid") not in (None, old["metadata"]["uid"]):
            raise Refusal(409, "Conflict", "the UID in the precondition differs")
        self._check(old, {"resourceVersion": wanted.get("resourceVersion")})
        if old["metadata"].get("finalizers"):
            deleting = {"metadata": {"deletionTimestamp": "2026-11-30T08:00:00Z"}}
            return self._store(kind, (namespace, name), merge(old, deleting))
        self.remove(kind, namespace, name)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _store(self, kind: Kind, key: Key, obj: Obj, *, silent: bool = False) -> Obj:
        old = self.objects[kind].get(key)
        meta = obj["metadata"]
        self.version += 1
        if old is None:
            self._uids += 1
            meta.setdefault("uid", f"uid-{self._uids}")
            meta.setdefault("creationTimestamp", "2026-11-30T07:00:00Z")
            meta["generation"] = 1
        else:
            meta["uid"] = old["metadata"]["uid"]
            changed = old.get("spec") != obj.get("spec")
            meta["generation"] = old["metadata"].get("generation", 1) + (1 if changed else 0)
        meta["resourceVersion"] = str(self.version)
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and old is not None:
            self.objects[kind].pop(key)
            self._tell("DELETED", kind, obj, silent)
            return obj
        self.objects[kind][key] = obj
        self._tell("ADDED" if old is None else "MODIFIED", kind, obj, silent)
        return obj

    def _tell(self, type_: str, kind: Kind, obj: Obj, silent: bool) -> None:
        if silent:
            return
        event = {"type": type_, "object": copy.deepcopy(obj)}
        self._history.append((self.version, kind, event))
        for watch in self._watches:
            if watch.kind is kind and not watch.mute and _selected(obj, watch.namespace, watch.labels):
                watch.queue.put_nowait(event)

    def _list(self, kind: Kind, namespace: str, seen: Request) -> Obj:
        query = seen.query
        limit = int(query.get("limit") or 0)
        if query.get("continue"):
            version, _, start = query["continue"].partition(":")
            if (kind, version) not in self._snapshots:
                raise Refusal(410, "Expired", "the continue token is too old")
            items, offset = self._snapshots[kind, version], int(start)
        else:
            labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
            items = [
                obj
                for _, obj in sorted(self.objects[kind].items())
                if _selected(obj, namespace, labels) and fields in ("", f"metadata.name={obj['metadata']['name']}")
            ]
            version, offset = str(self.version), 0
            self._snapshots[kind, version] = items
        page = items[offset : offset + limit] if limit else items
        meta: Obj = {"resourceVersion": version}
        if limit and offset + limit < len(items):
            meta["continue"] = f"{version}:{offset + limit}"
        return {"kind": "List", "metadata": meta, "items": page}

    async def _watch(
        self, request: web.BaseRequest, kind: Kind, namespace: str, query: Mapping[str, str]
    ) -> web.StreamResponse:
        since = int(query.get("resourceVersion") or 0)
        response = web.StreamResponse()
        await response.prepare(request)
        if since < self.compacted:
            gone = Refusal(410, "Expired", "too old resource version").body()
            await response.write(orjson.dumps({"type": "ERROR", "object": gone}) + b"\n")
            return response
        watch = _Watch(kind, namespace, query.get("labelSelector", ""))
        for version, of, event in self._history:
            if version > since and of is kind and _selected(event["object"], namespace, watch.labels):
                watch.queue.put_nowait(event)
        self._watches.append(watch)
        try:
            async with asyncio.timeout(float(query.get("timeoutSeconds") or 300)):
                while (event := await watch.queue.get()) is not None:
                    await response.write(orjson.dumps(event) + b"\n")
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._watches.remove(watch)
        return response


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


def _selected(obj: Obj, namespace: str, labels: str) -> bool:
    meta = obj["metadata"]
    if namespace and meta.get("namespace") != namespace:
        return False
    return not labels or labels in (meta.get("labels") or {})


def _like(method: str, path: str) -> Callable[[Request], bool]:
    return lambda seen: (not method or seen.method == method) and path in seen.path


class _FixedLogin(Login):
    def __init__(self, url: str, token: Callable[[], str]) -> None:
        super().__init__()
        self._url = url
        self._token = token

    async def access(self) -> Access:
        return Access(self._url, self._token(), None, None, None, True, None, None)
