"""A metrics API that a test answers for, served on loopback and known to the API server by an APIService: external
metrics, as of an adapter of a monitoring system, or what nodes use, as of a metrics server.

Comes in: a running control plane and a folder; values are set while it runs. Goes out: what HorizontalPodAutoscalers of
that control plane read, or what Adjoin reads of nodes. When the block is left, the APIService is gone again: one that
does not answer would keep namespaces from ending.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from tests.controlplane.pki import Authority
from tests.controlplane.ports import LOOPBACK
from tests.controlplane.server import ControlPlane
from tests.support.waiting import eventually

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
NODES_GROUP = "metrics.k8s.io"
NAMESPACE, SERVICE = "default", "metrics"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


class Api(Protocol):
    """What answers for a group."""

    group: str

    def answer(self, path: str) -> dict[str, Any] | None:
        """The object at a path, or None."""


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class NodeMetricsApi:
    """CPU in use by node, as a quantity; a node that is not there is not measured."""

    group = NODES_GROUP

    def __init__(self) -> None:
        self.cpu: dict[str, str] = {}

    def answer(self, path: str) -> dict[str, Any] | None:
        """The object at a path, or None."""
        parts = path.partition("?")[0].strip("/").split("/")
        version = f"{self.group}/{VERSION}"
        if parts == ["apis", self.group, VERSION]:
            kind = {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics"}
            resources = [{**kind, "verbs": ["get", "list"]}]
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
        if parts == ["apis", self.group, VERSION, "nodes"]:
            items = [
                {
                    "metadata": {"name": name, "creationTimestamp": _now()},
                    "timestamp": _now(),
                    "window": "20s",
                    "usage": {"cpu": cpu, "memory": "1Gi"},
                }
                for name, cpu in sorted(self.cpu.items())
            ]
            return {"kind": "NodeMetricsList", "apiVersion": version, "metadata": {}, "items": items}
        return None


class MetricsApi:
    """The values, by namespace and name of the metric; one that is not there is answered by no items."""

    group = GROUP

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], int] = {}

    def answer(self, path: str) -> dict[str, Any] | None:
        """The object at a path, or None."""
        parts = path.partition("?")[0].strip("/").split("/")
        if parts == ["apis", GROUP, VERSION]:
            kind = {"name": "*", "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList"}
            resources = [{**kind, "verbs": ["get"]}]
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": resources,
            }
        if len(parts) == 6 and parts[:4] == ["apis", GROUP, VERSION, "namespaces"]:
            namespace, name = parts[4:]
            value = self.values.get((namespace, name))
            item = {"metricName": name, "metricLabels": {}, "timestamp": _now(), "value": str(value)}
            items = [] if value is None else [item]
            return {
                "kind": "ExternalMetricValueList",
                "apiVersion": f"{GROUP}/{VERSION}",
                "metadata": {},
                "items": items,
            }
        return None


@contextlib.contextmanager
def served(plane: ControlPlane, folder: Path) -> Iterator[MetricsApi]:
    """External metrics, once the API server has found them."""
    api = MetricsApi()
    with serving(plane, folder, api):
        yield api


@contextlib.contextmanager
def nodes_served(plane: ControlPlane, folder: Path) -> Iterator[NodeMetricsApi]:
    """What nodes use, once the API server has found it."""
    api = NodeMetricsApi()
    with serving(plane, folder, api):
        yield api


@contextlib.contextmanager
def serving(plane: ControlPlane, folder: Path, api: Api) -> Iterator[None]:
    """An API, once the API server has found it."""
    authority = Authority("metrics")
    service_path = f"{_API_SERVICES}/{VERSION}.{api.group}"
    pair = authority.issue_server(SERVICE, hosts=[f"{SERVICE}.{NAMESPACE}.svc"])
    for name, data in (("crt", pair.certificate), ("key", pair.key)):
        (folder / f"metrics.{name}").write_bytes(data)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = api.answer(self.path)
            body = json.dumps(found if found is not None else {"kind": "Status", "status": "Failure"}).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "metrics.crt", folder / "metrics.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    port = server.server_address[1]
    service = f"/api/v1/namespaces/{NAMESPACE}/services"
    try:
        # The API server reaches a Service of this type by the name, which is loopback.
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        plane.request(
            "POST", service, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": spec}
        )
        plane.request(
            "POST",
            _API_SERVICES,
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{VERSION}.{api.group}"},
                "spec": {
                    "group": api.group,
                    "version": VERSION,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": {"namespace": NAMESPACE, "name": SERVICE, "port": port},
                },
            },
        )
        eventually(
            lambda: plane.request("GET", service_path).get("status", {}).get("conditions", []),
            lambda seen: any(each["type"] == "Available" and each["status"] == "True" for each in seen),
            what="the metrics API is available",
        )
        yield
    finally:
        for path in (service_path, f"{service}/{SERVICE}"):
            plane.request("DELETE", path)
        server.shutdown()
        server.server_close()
        thread.join()
