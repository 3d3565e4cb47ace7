"""A corner of a shared cluster for one test: own namespace, own nodes, own pools; nothing of it is left afterwards.

Comes in: an `Installation` with an operator. Names are the test's own, so tests may share a control plane.
Everything is read back from the API
server; nothing here knows what the operator remembers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.controlplane.client import MERGE_PATCH, ApiFailure
from tests.controlplane.nodes import create_objects, simulate, wait_nodes_ready
from tests.controlplane.server import ControlPlane
from tests.support.waiting import eventually

Manifest = dict[str, Any]
PATHS = {
    "DeviceClaim": ("/apis/adjoin.dev/v1alpha1", "deviceclaims", True),
    "DevicePool": ("/apis/adjoin.dev/v1alpha1", "devicepools", False),
    "DeviceShare": ("/apis/adjoin.dev/v1alpha1", "deviceshares", False),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims", True),
    "ResourceSlice": ("/apis/resource.k8s.io/v1", "resourceslices", False),
    "DeviceTaintRule": ("/apis/resource.k8s.io/v1", "devicetaintrules", False),
    "DeviceClass": ("/apis/resource.k8s.io/v1", "deviceclasses", False),
    "Pod": ("/api/v1", "pods", True),
    "Node": ("/api/v1", "nodes", False),
    "Namespace": ("/api/v1", "namespaces", False),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "Job": ("/apis/batch/v1", "jobs", True),
    "Event": ("/apis/events.k8s.io/v1", "events", True),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
}
_numbers = itertools.count()
NVIDIA_AND_RDMA: tuple[Manifest, ...] = (
    {
        "name": "gpu",
        "type": "GPU",
        "source": {
            "resourceSlices": {
                "driver": "gpu.nvidia.com",
                "selectors": [{"cel": "device.attributes['gpu.nvidia.com'].type == 'gpu'"}],
            }
        },
    },
    {
        "name": "nic",
        "type": "RDMA",
        "source": {
            "resourceSlices": {"driver": "dra.net", "selectors": [{"cel": "device.attributes['dra.net'].rdma == true"}]}
        },
    },
)
NEAR: tuple[Manifest, ...] = ({"requests": ["gpu", "nic"], "scope": "PCIeRoot", "policy": "Required"},)
"""A GPU and its NIC on one PCIe root, or nothing."""


def pod(name: str, claim: str, **metadata: Any) -> Manifest:
    """A pod that asks for a DeviceClaim."""
    labels = {"adjoin.dev/claim": claim, **metadata.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, **metadata},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "registry.test/workload:1"}],
            # Simulated nodes carry this taint in some tests; tolerating it here costs nothing elsewhere.
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
        },
    }


def simulated(objects: Iterable[Manifest], labels: Mapping[str, str] | None = None) -> list[Manifest]:
    """Objects of a hardware model, made fit for a cluster: kwok keeps the nodes alive; nodes carry `labels` too."""
    made = []
    for obj in objects:
        if obj["kind"] == "Node":
            meta, status = obj["metadata"], obj.get("status", {})
            room = {key: value for key, value in status.items() if key in ("allocatable", "capacity")}
            meta = {**meta, "labels": {**meta.get("labels", {}), **(labels or {})}}
            obj = simulate({**obj, "metadata": meta, "status": room})
        made.append(obj)
    return made


@dataclass
class Site:
    """One test's own objects on a shared cluster."""

    plane: ControlPlane
    namespace: str
    _made: list[tuple[str, str, str]] = field(default_factory=list)

    @classmethod
    def open(cls, plane: ControlPlane, purpose: str) -> Site:
        """A fresh namespace whose name starts with `purpose`."""
        site = cls(plane, f"{purpose}-{next(_numbers)}")
        site.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": site.namespace}})
        eventually(
            lambda: site.find(f"/api/v1/namespaces/{site.namespace}/serviceaccounts/default"),
            bool,
            what="the namespace's default ServiceAccount",
        )
        return site

    # ---------------------------------------------------------------- requests

    def path(self, kind: str, name: str = "", namespace: str | None = None) -> str:
        """The path of a kind's collection here, or of one object."""
        root, plural, namespaced = PATHS[kind]
        middle = f"/namespaces/{self.namespace if namespace is None else namespace}" if namespaced else ""
        return f"{root}{middle}/{plural}" + (f"/{name}" if name else "")

    def create(self, manifest: Manifest) -> Manifest:
        """Creates an object (in the site's namespace unless it names one); raises `ApiFailure` when refused."""
        kind, meta = manifest["kind"], manifest["metadata"]
        made: Manifest = self.plane.request("POST", self.path(kind, namespace=meta.get("namespace")), manifest)
        self._made.append((kind, made["metadata"].get("namespace", ""), made["metadata"]["name"]))
        return made

    def fill(self, objects: Iterable[Manifest]) -> None:
        """Creates many objects at once and remembers them for the end."""
        for made in asyncio.run(create_objects(self.plane, objects)):
            self._made.append((made["kind"], made["metadata"].get("namespace", ""), made["metadata"]["name"]))

    def nodes_ready(self, *names: str) -> None:
        """Until kwok has made these nodes Ready."""
        asyncio.run(wait_nodes_ready(self.plane, names))

    def find(self, path: str) -> Manifest | None:
        """An object or list, or None where there is none."""
        try:
            found: Manifest = self.plane.request("GET", path)
            return found
        except ApiFailure as failure:
            if failure.status == 404:
                return None
            raise

    def get(self, kind: str, name: str) -> Manifest | None:
        """An object by name, or None."""
        return self.find(self.path(kind, name))

    def all(self, kind: str) -> list[Manifest]:
        """All objects of a kind (here, if it is namespaced)."""
        listed = self.find(self.path(kind))
        return listed["items"] if listed else []

    def patch(self, kind: str, name: str, patch: Mapping[str, Any], *, subresource: str = "") -> Manifest:
        """A merge patch."""
        path = self.path(kind, name) + (f"/{subresource}" if subresource else "")
        patched: Manifest = self.plane.request("PATCH", path, patch, content_type=MERGE_PATCH)
        return patched

    def delete(self, kind: str, name: str, **options: Any) -> None:
        """Asks for deletion; harmless when it is gone."""
        try:
            self.plane.request(
                "DELETE", self.path(kind, name), {"kind": "DeleteOptions", "apiVersion": "v1", **options}
            )
        except ApiFailure as failure:
            if failure.status != 404:
                raise

    # ---------------------------------------------------------------- machines and claims

    def machines(self, model: Callable[[str], list[Manifest]], count: int = 1) -> list[str]:
        """Simulated machines of a hardware model, Ready; their names. Only pools made by `pool()` see them."""
        names = [f"{self.namespace}-n{i}" for i in range(count)]
        objects = [obj for name in names for obj in model(name)]
        self.fill(simulated(objects, {"site": self.namespace}))
        self.nodes_ready(*names)
        return names

    def pool(self, **spec: Any) -> str:
        """A pool of the GPUs and RDMA NICs of this site's machines; its name. Waits until it offers them."""
        name = self.namespace
        self.create(
            {
                "apiVersion": "adjoin.dev/v1alpha1",
                "kind": "DevicePool",
                "metadata": {"name": name},
                "spec": {
                    "nodeSelector": {"matchLabels": {"site": self.namespace}},
                    "devices": list(NVIDIA_AND_RDMA),
                    **spec,
                },
            }
        )
        eventually(
            lambda: self.get("DevicePool", name),
            lambda seen: seen is not None and condition(seen, "Ready").get("status") == "True" and guarded(seen),
            what=f"DevicePool {name} Ready and guarded",
        )
        return name

    def ask(self, name: str, requests: Mapping[str, int] | list[Manifest], **spec: Any) -> Manifest:
        """A DeviceClaim of this site's pool: `requests` are counts by device name, or the requests themselves."""
        if isinstance(requests, Mapping):
            requests = [{"name": device, "count": count} for device, count in requests.items()]
        return self.create(
            {
                "apiVersion": "adjoin.dev/v1alpha1",
                "kind": "DeviceClaim",
                "metadata": {"name": name},
                "spec": {"poolRef": {"name": self.namespace}, "requests": requests, **spec},
            }
        )

    # ---------------------------------------------------------------- what is seen

    def claim(self, name: str) -> Manifest:
        """A DeviceClaim that must exist."""
        found = self.get("DeviceClaim", name)
        assert found is not None, f"DeviceClaim {name} is gone"
        return found

    def wait_phase(self, name: str, *phases: str) -> Manifest:
        """Until a claim is in one of these phases."""
        return eventually(
            lambda: self.claim(name),
            lambda claim: claim.get("status", {}).get("phase") in phases,
            what=f"DeviceClaim {name} in phase {' or '.join(phases)}",
        )

    def wait_running(self, name: str) -> Manifest:
        """Until a pod runs."""
        found = eventually(
            lambda: self.get("Pod", name),
            lambda pod: pod is not None and pod.get("status", {}).get("phase") == "Running",
            what=f"pod {name} running",
        )
        assert found is not None
        return found

    def wait_gone(self, kind: str, name: str) -> None:
        """Until an object is gone."""
        eventually(lambda: self.get(kind, name), lambda found: found is None, what=f"{kind} {name} gone")

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """Deletes everything made here and waits until nothing of it holds devices any more."""
        # Workloads first, so that nobody makes new pods; then what has finalizers. A namespace that still has such
        # objects
        # when it is deleted is looked at again only after 15 s, so its own end is not waited for.
        if self.get_namespace() is not None:
            for kind in ("Deployment", "StatefulSet", "Job", "DeviceClaim", "Pod", "ResourceClaim"):
                self.plane.request(
                    "DELETE",
                    self.path(kind),
                    {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"},
                )
            for kind in ("Pod", "DeviceClaim", "ResourceClaim"):
                eventually(partial(self.all, kind), lambda left: not left, what=f"every {kind} gone")
            self.delete("Namespace", self.namespace)
        order = {"DevicePool": 0, "DeviceTaintRule": 1}
        for kind, namespace, name in sorted(self._made, key=lambda made: order.get(made[0], 2)):
            if kind != "Namespace" and not namespace:
                self.delete(kind, name)
                if kind == "DevicePool":
                    self.wait_gone(kind, name)

    def get_namespace(self) -> Manifest | None:
        """The site's namespace, unless it is gone or going."""
        found = self.get("Namespace", self.namespace)
        return None if found is None or found["metadata"].get("deletionTimestamp") else found


def devices(claim: Manifest) -> list[tuple[str, str, str]]:
    """(request, node, device) of everything a claim holds."""
    replicas = claim.get("status", {}).get("allocation", {}).get("replicas", [])
    return [
        (device["request"], replica["node"], device["device"]) for replica in replicas for device in replica["devices"]
    ]


def guarded(pool: Manifest) -> bool:
    """Whether no device of a pool waits for its guard any more."""
    return not any(counts.get("reserved") for counts in pool.get("status", {}).get("devices", {}).values())


def reasons(claim: Manifest) -> dict[str, str]:
    """Messages of what a claim waits for, by code."""
    return {reason["code"]: reason["message"] for reason in claim.get("status", {}).get("reasons", [])}


def condition(obj: Manifest, kind: str) -> Manifest:
    """A condition of a status by its type; empty when it is not there."""
    found = [c for c in obj.get("status", {}).get("conditions", []) if c["type"] == kind]
    return found[0] if found else {}
