"""What `plan` accepts and only warns of: sentences of the contract on exits and on lines that hold by themselves."""

from __future__ import annotations

from typing import Any

from tests.support.objects import devicepool
from tests.support.planning import plan_objects

Obj = dict[str, Any]


def pool(cards: int = 2, **spec: Any) -> Obj:
    devices = [{"name": f"gpu-{at}"} for at in range(cards)]
    source = {"static": {"nodes": [{"name": "n1", "devices": devices}]}}
    return devicepool("p", devices=[{"name": "gpu", "type": "GPU", "source": source}], **spec)


def claim(name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"poolRef": {"name": "p"}, "requests": [{"name": "gpu"}], **spec},
    }


def test_a_scope_over_one_device_holds() -> None:
    for line in ({"scope": "NVLink", "policy": "Required"}, {"scope": "NUMANode"}):
        ran = plan_objects([pool(), claim("c", affinity=[{"requests": ["gpu"], **line}])])
        assert (ran.status, ran.claims["c"]["phase"], ran.err) == (0, "Allocated", "")


def test_pods_of_devices_without_a_driver_are_warned_of() -> None:
    template = {
        "metadata": {"labels": {"adjoin.dev/claim": "c"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"template": template},
    }
    ran = plan_objects([pool(), claim("c"), job])
    assert ran.status == 0
    assert ran.err.startswith("warning: Job team/train: device gpu-0 of DeviceClaim team/c has no driver")
