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

# kube-controller-manager adds the old names to nodes that have only the new ones, a write for each node.
PLATFORM_LABELS = {
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": "amd64",
}
DEFAULT_ROOM = {"cpu": "1k", "memory": "1Ti", "pods": "1M"}
CONDITIONS = (
    ("Ready", "True", "KubeletReady"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
)
NODE_INFO = {"kubeletVersion": "simulated", "operatingSystem": "linux", "architecture": "amd64"}
CONDITION_TAINTS = "node.kubernetes.io/"

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
    """A Node that kwok keeps alive and runs pods on; without `allocatable` it has room for everything."""
    room = dict(allocatable or DEFAULT_ROOM)
    return simulate(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": {"taints": [dict(taint) for taint in taints]},
            "status": {"capacity": room, "allocatable": room},
        }
    )


def simulate(node: Manifest) -> Manifest:
    """The Node as a kubelet would register it, handed to kwok; what the manifest says itself stays as it is.

    It says that it is Ready from the start. kwok makes any node Ready that it looks after, but one by one, with three
    writes for each; of 1,000 nodes that is a minute on two cores.
    """
    meta, status = node["metadata"], node.get("status", {})
    name, (key, value) = meta["name"], SIMULATED_NODE
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [
        {"type": kind, "status": holds, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now}
        for kind, holds, reason in CONDITIONS
    ]
    room = status.get("allocatable", DEFAULT_ROOM)
    return {
        **node,
        "metadata": {
            **meta,
            "annotations": {key: value, **meta.get("annotations", {})},
            "labels": {"kubernetes.io/hostname": name, **PLATFORM_LABELS, **meta.get("labels", {})},
        },
        "status": {
            "phase": "Running",
            "capacity": room,
            "allocatable": room,
            "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": NODE_INFO,
            **status,
        },
    }


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
    """Until these nodes are Ready and the scheduler may use them. TimeoutError names those that are not.

    Every new node is tainted not-ready. kube-controller-manager would take the taint off a Ready node, but only from
    some ten nodes a second (its client's limit), so here it is taken off as soon as the node is Ready.
    """
    waiting = set(names)
    deadline = time.monotonic() + seconds
    async with client.open_session(server.url, server.ssl_context, connections=CONNECTIONS) as session:
        while True:
            listed = await _send(session, "GET", "/api/v1/nodes?resourceVersion=0", None)
            ready = [node for node in listed["items"] if node["metadata"]["name"] in waiting and _is_ready(node)]
            async with asyncio.TaskGroup() as group:
                for node in ready:
                    group.create_task(_untaint(session, node))
            waiting -= {node["metadata"]["name"] for node in ready}
            if not waiting:
                return
            if time.monotonic() > deadline:
                some = ", ".join(sorted(waiting)[:5])
                raise TimeoutError(f"{len(waiting)} nodes are not Ready after {seconds:.0f} s: {some}")
            await asyncio.sleep(0.2)


def _is_ready(node: Manifest) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def _untaint(session: aiohttp.ClientSession, node: Manifest) -> None:
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    while True:
        taints = node.get("spec", {}).get("taints", [])
        kept = [taint for taint in taints if not taint["key"].startswith(CONDITION_TAINTS)]
        if kept == taints:
            return
        # With the version, so that a taint that somebody adds meanwhile is not lost.
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "spec": {"taints": kept}}
        try:
            await _send(session, "PATCH", path, patch, client.MERGE_PATCH)
            return
        except client.ApiFailure as failure:
            if failure.status != 409:
                raise
        node = await _send(session, "GET", path, None)


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


async def _send(
    session: aiohttp.ClientSession, method: str, path: str, body: Manifest | None, kind: str = "application/json"
) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {} if data is None else {"Content-Type": kind}
    async with session.request(method, path, data=data, headers=headers) as response:
        answer = client.decode(await response.read())
        if response.status >= 400:
            name = f" {body['metadata'].get('name', '')}" if method == "POST" and body is not None else ""
            raise client.ApiFailure(f"{method} {path}{name}", response.status, answer)
        return answer
