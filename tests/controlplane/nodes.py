"""Fills a control plane quickly: many objects at once, and nodes that kwok keeps alive.

Comes in: a running `ControlPlane` and objects as plain dicts, as in a manifest. Goes out: the objects as the API server
returned them, in the order given. What such objects contain is the caller's affair.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import aiohttp
from tests.controlplane import client
from tests.controlplane.components import SIMULATED_NODE

# More connections make nothing faster: the API server has the same few cores.
CONNECTIONS = 32

Manifest = dict[str, Any]


class Server(Protocol):
    """What this module needs of a `ControlPlane`."""

    @property
    def url(self) -> str: ...

    @property
    def ssl_context(self) -> Any: ...


def simulated_node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> Manifest:
    """A Node that kwok will make Ready and run pods on; without `allocatable` it has room for everything."""
    key, value = SIMULATED_NODE
    node: Manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {key: value},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})},
        },
        "spec": {"taints": [dict(taint) for taint in taints]},
    }
    if allocatable is not None:
        node["status"] = {"capacity": dict(allocatable), "allocatable": dict(allocatable)}
    return node


async def create_objects(
    server: Server, objects: Iterable[Manifest], *, connections: int = CONNECTIONS
) -> list[Manifest]:
    """Creates the objects, many at a time, in no particular order; so none may need another to exist first.

    A status is dropped by the API server as usual (Nodes are the exception). Raises `ApiFailure` at the first
    refusal, when some of the objects may exist already.
    """
    wanted = list(objects)
    created: list[Manifest | None] = [None] * len(wanted)
    async with client.open_session(server.url, server.ssl_context, connections=connections) as session:
        paths = _Paths(session)
        todo = iter(enumerate(wanted))

        async def work() -> None:
            for position, item in todo:
                path = await paths.of(item)
                created[position] = await _send(session, "POST", path, item)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(connections, len(wanted))):
                group.create_task(work())
    return [item for item in created if item is not None]


async def wait_nodes_ready(server: Server, names: Iterable[str], *, seconds: float = 120.0) -> None:
    """Until these nodes are Ready and the scheduler may use them. TimeoutError names those that are not."""
    waiting = set(names)
    deadline = time.monotonic() + seconds
    async with client.open_session(server.url, server.ssl_context, connections=1) as session:
        while True:
            listed = await _send(session, "GET", "/api/v1/nodes?resourceVersion=0", None)
            waiting -= {node["metadata"]["name"] for node in listed["items"] if _is_usable(node)}
            if not waiting:
                return
            if time.monotonic() > deadline:
                some = ", ".join(sorted(waiting)[:5])
                raise TimeoutError(f"{len(waiting)} nodes are not Ready after {seconds:.0f} s: {some}")
            await asyncio.sleep(0.2)


def _is_usable(node: Manifest) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = node.get("spec", {}).get("taints", [])
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)


class _Paths:
    """Where objects of a kind are created; asks discovery once for each API version."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._known: dict[str, asyncio.Task[dict[str, tuple[str, bool]]]] = {}

    async def of(self, item: Manifest) -> str:
        version, kind = item["apiVersion"], item["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self._known:
            self._known[version] = asyncio.ensure_future(self._discover(root))
        kinds = await self._known[version]
        if kind not in kinds:
            raise LookupError(f"the API server serves no {kind} in {version}")
        plural, namespaced = kinds[kind]
        if not namespaced:
            return f"{root}/{plural}"
        return f"{root}/namespaces/{item['metadata'].get('namespace', 'default')}/{plural}"

    async def _discover(self, root: str) -> dict[str, tuple[str, bool]]:
        resources = (await _send(self._session, "GET", root, None))["resources"]
        return {r["kind"]: (r["name"], r["namespaced"]) for r in resources if "/" not in r["name"]}


async def _send(session: aiohttp.ClientSession, method: str, path: str, body: Manifest | None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {} if data is None else {"Content-Type": "application/json"}
    async with session.request(method, path, data=data, headers=headers) as response:
        answer = client.decode(await response.read())
        if response.status >= 400:
            name = "" if body is None else f" {body['kind']} {body['metadata'].get('name', '')}"
            raise client.ApiFailure(f"{method} {path}{name}", response.status, answer)
        return answer
