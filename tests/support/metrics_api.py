"""A metrics API that a test answers for: external metrics, served on loopback and known to the API server by an
APIService, as an adapter of a monitoring system would be.

Comes in: a running control plane and a folder; values are set while it runs. Goes out: what HorizontalPodAutoscalers of
that control plane read. When the block is left, the APIService is gone again: one that does not answer would keep
namespaces from ending.
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
from typing import Any

from tests.controlplane.pki import Authority
from tests.controlplane.ports import LOOPBACK
from tests.controlplane.server import ControlPlane
from tests.support.waiting import eventually

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
NAMESPACE, SERVICE = "default", "metrics"
_API_SERVICE = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"


class MetricsApi:
    """The values, by namespace and name of the metric; one that is not there is answered by no items."""

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
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            item = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(value)}
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
    """The metrics API, once the API server has found it."""
    api, authority = MetricsApi(), Authority("metrics")
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
            _API_SERVICE.rpartition("/")[0],
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{VERSION}.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "version": VERSION,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": {"namespace": NAMESPACE, "name": SERVICE, "port": port},
                },
            },
        )
        eventually(
            lambda: plane.request("GET", _API_SERVICE).get("status", {}).get("conditions", []),
            lambda seen: any(each["type"] == "Available" and each["status"] == "True" for each in seen),
            what="the metrics API is available",
        )
        yield api
    finally:
        for path in (_API_SERVICE, f"{service}/{SERVICE}"):
            plane.request("DELETE", path)
        server.shutdown()
        server.server_close()
        thread.join()
