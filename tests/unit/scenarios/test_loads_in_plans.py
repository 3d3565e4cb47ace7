"""What nodes use, in files beside everything else: parts of devices are planned with it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import devicepool
from tests.support.planning import plan_objects

Obj = dict[str, Any]
LISTED = "2026-12-01T08:00:30Z"


def site() -> list[Obj]:
    """Two nodes with a card each, and a claim for a half."""
    names = ("n1", "n2")
    cards = [{"name": name, "devices": [{"name": "gpu-0", "capacity": {"memory": "80Gi"}}]} for name in names]
    pool = devicepool("p", devices=[{"name": "gpu", "type": "GPU", "source": {"static": {"nodes": cards}}}])
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "creationTimestamp": "2026-11-01T00:00:00Z"},
            "status": {"allocatable": {"cpu": "10", "memory": "100Gi"}},
        }
        for name in names
    ]
    share = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceShare",
        "metadata": {"name": "half"},
        "spec": {"poolRef": {"name": "p"}, "device": "gpu", "mode": "Fractional"},
    }
    claim = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": "c", "namespace": "team", "uid": "uid-c"},
        "spec": {
            "poolRef": {"name": "p"},
            "requests": [{"name": "gpu", "share": {"name": "half", "memory": "40Gi"}}],
        },
    }
    return [pool, *nodes, share, claim]


def measured(name: str, cpu: str, at: str | None = "2026-12-01T08:00:00Z", listed: str | None = LISTED) -> Obj:
    meta: Obj = {"name": name, **({"creationTimestamp": listed} if listed else {})}
    usage = {"cpu": cpu, "memory": "1Gi"}
    found: Obj = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": meta, "usage": usage}
    return {**found, "window": "20s", **({"timestamp": at} if at else {})}


@pytest.mark.parametrize(
    ("loads", "arguments", "node"),
    [
        pytest.param([], (), "n1", id="nobody measures"),
        pytest.param([measured("n1", "9"), measured("n2", "1")], (), "n2", id="as the metrics API lists it"),
        pytest.param([measured("n1", "9")], (), "n2", id="only one of them is measured"),
        pytest.param([measured("n1", "7900m")], (), "n1", id="much is in use, and not most"),
        pytest.param([measured("n1", "9"), measured("n2", "9")], (), "n1", id="both are loaded"),
        pytest.param(
            [measured("n1", "9")], ("--now", "2026-12-01T08:05:00Z"), "n2", id="five minutes old, by the time given"
        ),
        pytest.param([measured("n1", "9")], ("--now", "2026-12-01T08:05:01Z"), "n1", id="older than that"),
        pytest.param(
            [measured("n1", "9", at="2026-12-01T07:50:00Z")], (), "n1", id="it was old when it was listed already"
        ),
        pytest.param(
            [measured("n1", "9", listed=None)], (), "n2", id="later than everything else in the input, so not old"
        ),
        pytest.param([measured("n1", "9", at=None, listed=None)], (), "n2", id="written by hand, without a time"),
    ],
)
def test_a_part_goes_to_the_calm_node(loads: list[Obj], arguments: tuple[str, ...], node: str) -> None:
    ran = plan_objects([*site(), *loads], *arguments)
    (entry,) = ran.claims["c"]["replicas"]
    assert (ran.status, ran.err, entry["node"]) == (0, "", node)


def test_a_list_is_taken_apart_and_a_broken_measurement_is_left_out_with_a_warning() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [measured("n1", "9"), measured("n2", "much")]}
    ran = plan_objects([*site(), listed])
    assert ran.claims["c"]["replicas"][0]["node"] == "n2"
    assert "NodeMetrics n2 is left out" in ran.err


def test_who_asks_for_latency_has_a_card_that_others_keep_away_from_as_long_as_they_can() -> None:
    """With both cards in use, rather beside it than nowhere."""
    first, second = (entry["name"] for entry in site()[0]["spec"]["devices"][0]["source"]["static"]["nodes"])

    def claim(name: str, memory: str, profile: str = "Balanced") -> Obj:
        made = site()[-1]
        made["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        made["spec"] |= {"profile": profile}
        made["spec"]["requests"][0]["share"]["memory"] = memory
        return made

    asked = [claim("infer", "10Gi", "Latency"), claim("a", "20Gi"), claim("b", "20Gi"), claim("c", "50Gi")]
    ran = plan_objects([*site()[:-1], *asked], "--one-by-one")
    nodes = {name: each["replicas"][0]["node"] for name, each in ran.claims.items()}
    assert (ran.status, nodes) == (0, {"infer": first, "a": second, "b": second, "c": first})
