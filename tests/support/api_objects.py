"""Objects of our kinds for tests of admission: builders with sound defaults, and what a refused one looks like.

Comes in: the part of a spec that matters. Goes out: a complete manifest, made fresh each time.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One object that is refused.

    Attributes:
        id: A sentence.
        obj: The object.
        path: The field that `validate` blames.
        says: Part of what `validate` says.
        server: Part of what the API server says by the CRD alone; None when the CRD cannot tell.
        old: The object before, when the change is what is refused.
    """

    id: str
    obj: Manifest
    path: str
    says: str
    server: str | None
    old: Manifest | None = None


def claim(name: str = "job-a", **spec: Any) -> Manifest:
    """A DeviceClaim for one GPU and one NIC, but for what is given."""
    wanted = {"requests": [{"name": "gpu"}, {"name": "nic"}], **spec}
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name},
        "spec": copy.deepcopy({key: value for key, value in wanted.items() if value is not None}),
    }


def pool(name: str = "training", **spec: Any) -> Manifest:
    """A DevicePool of GPUs and NICs, but for what is given."""
    wanted = {
        "devices": [
            {"name": "gpu", "type": "GPU", "source": {"resourceSlices": {"driver": "gpu.nvidia.com"}}},
            {"name": "nic", "type": "RDMA", "source": {"resourceSlices": {"driver": "dra.net"}}},
        ],
        **spec,
    }
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": name},
        "spec": copy.deepcopy({key: value for key, value in wanted.items() if value is not None}),
    }


def share(name: str = "quarter", **spec: Any) -> Manifest:
    """A DeviceShare of time slots, but for what is given."""
    wanted = {
        "poolRef": {"name": "inference"},
        "device": "gpu",
        "mode": "TimeSliced",
        "timeSliced": {"slots": 4},
        **spec,
    }
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceShare",
        "metadata": {"name": name},
        "spec": copy.deepcopy({key: value for key, value in wanted.items() if value is not None}),
    }


def annotated(obj: Manifest, **annotations: str) -> Manifest:
    """The object with annotations of group adjoin.dev; an underscore stands for a dash."""
    keys = {f"adjoin.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {**obj, "metadata": {**obj["metadata"], "annotations": keys}}


def static(*devices: Manifest) -> Manifest:
    """A pool with these devices on one node."""
    source = {"static": {"nodes": [{"name": "n1", "devices": list(devices)}]}}
    return pool(devices=[{"name": "gpu", "type": "GPU", "source": source}])


def line(**fields: Any) -> Manifest:
    """A claim for a GPU and a NIC with one line of affinity."""
    return claim(affinity=[{"requests": ["gpu", "nic"], **fields}])


def request(**fields: Any) -> Manifest:
    """A claim with one request, named gpu."""
    return claim(requests=[{"name": "gpu", **fields}])


def device(**fields: Any) -> Manifest:
    """A pool with one device name, gpu, from ResourceSlices."""
    slices = {"resourceSlices": {"driver": "gpu.nvidia.com"}}
    return pool(devices=[{"name": "gpu", "type": "GPU", "source": slices, **fields}])


def tenancy(**fields: Any) -> Manifest:
    """A pool with tenants."""
    return pool(tenancy=fields)


def hook(**fields: Any) -> Manifest:
    """A hook."""
    return {"name": "verify", "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}, **fields}
