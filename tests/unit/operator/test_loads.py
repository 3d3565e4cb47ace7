"""What nodes use, as the metrics API tells it: who is loaded is known, and nothing else makes a difference."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import virtual

from adjoin.cache import Cache
from adjoin.facts import Raw
from adjoin.intents import Kind
from adjoin.inventory import InventoryBuilder
from adjoin.kube import Forbidden, KubeError, NotFound, TimedOut, TooManyRequests, Unavailable
from adjoin.loads import read_loads, read_node_load
from adjoin.metering import Meter
from adjoin.metrics import Metrics

NOW = 1_796_083_200.0
"""2026-12-01T00:00:00Z"""
RECENT, OLD = "2026-11-30T23:59:00Z", "2026-11-30T23:54:00Z"


def measured(name: str, cpu: str = "1", memory: str = "1Gi", at: str | None = RECENT) -> dict[str, Any]:
    usage = {"cpu": cpu, "memory": memory}
    return {"metadata": {"name": name}, "usage": usage, "window": "20s", **({"timestamp": at} if at else {})}


def node(name: str, version: int = 1) -> dict[str, Any]:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "status": {"allocatable": {"cpu": "10", "memory": "10Gi"}}}


class Answers:
    """A client of which only the metrics API is asked."""

    def __init__(self, *answers: list[dict[str, Any]] | KubeError) -> None:
        self.answers = list(answers)

    async def get_path(self, path: str, *, seconds: float) -> Raw:
        assert path == "/apis/metrics.k8s.io/v1beta1/nodes"
        answer = self.answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return {"kind": "NodeMetricsList", "items": answer}


def metered(
    *answers: list[dict[str, Any]] | KubeError, now: float = NOW, names: str = "ab"
) -> tuple[Meter, Cache, Metrics, list[int]]:
    told: list[int] = []
    cache = Cache("adjoin-system", lambda: told.append(1))
    for name in names:
        cache.ingest(Kind.NODE, node(name))
    metrics = Metrics()
    metrics.follow(cache, lambda: now)
    told.clear()
    return Meter(Answers(*answers), cache, metrics, now=lambda: now), cache, metrics, told  # type: ignore[arg-type]


def loads(cache: Cache) -> dict[str, int | None]:
    return {name: load.cpu_milli for name, load in cache.view(NOW).loads.items()}


def refused(kind: Any, status: int) -> KubeError:
    error: KubeError = kind(status, "", "no")
    return error


def test_amounts_are_rounded_up_and_what_is_not_measured_is_not_known() -> None:
    """Nanocores and KiB, as metrics servers write them."""
    load = read_node_load(measured("a", "7999999999n", "123Ki"))
    assert (load.cpu_milli, load.memory_bytes, load.at) == (8_000, 123 * 1024, NOW - 60)
    assert read_node_load({"metadata": {"name": "a"}, "usage": {}}).cpu_milli is None


def test_objects_that_cannot_be_read_are_counted_and_left_out() -> None:
    """And of two measurements of one node the later one counts, in any order."""
    items = [measured("a", "1"), measured("a", "2", at=OLD), measured("b", "much"), {"metadata": {"name": "c"}}]
    for ordered in (items, items[::-1]):
        found, broken = read_loads(ordered)
        assert (sorted(found), found["a"].cpu_milli, broken) == (["a", "c"], 1_000, 1)


@pytest.mark.parametrize(
    ("then", "seen"),
    [
        pytest.param(measured("a", "2"), False, id="another measurement on the same side of the limit"),
        pytest.param(measured("a", "8"), True, id="its CPU becomes loaded"),
        pytest.param(measured("a", "1", "8Gi"), True, id="its memory becomes loaded"),
        pytest.param(measured("b", "1"), True, id="it is no longer measured, and another one is"),
    ],
)
@virtual
async def test_only_a_node_that_becomes_loaded_or_calm_is_a_difference(then: dict[str, Any], seen: bool) -> None:
    meter, cache, _, told = metered([measured("a")], [then])
    await meter.read()
    before = cache.view(NOW).loads
    told.clear()
    await meter.read()
    assert (bool(told), cache.view(NOW).loads is not before) == (seen, seen)


@virtual
async def test_a_node_on_which_nothing_happened_keeps_its_numbers_when_another_becomes_loaded() -> None:
    """So that what was made of it stays good."""
    meter, cache, _, _ = metered([measured("a", "1"), measured("b", "1")], [measured("a", "2"), measured("b", "9")])
    builder = InventoryBuilder()
    await meter.read()
    builder.build(cache.view(NOW))
    await meter.read()
    assert loads(cache) == {"a": 1_000, "b": 9_000}


@pytest.mark.parametrize(
    ("answer", "kept", "outcome"),
    [
        pytest.param(refused(NotFound, 404), False, "absent", id="not served"),
        pytest.param(refused(Forbidden, 403), False, "forbidden", id="may not be read"),
        pytest.param(refused(Unavailable, 503), False, "failed", id="its server is away"),
        pytest.param(refused(TooManyRequests, 429), True, "failed", id="too many requests"),
        pytest.param(TimedOut("late"), True, "failed", id="no answer"),
        pytest.param([measured("a", at=OLD)], False, "stale", id="measured more than five minutes ago"),
        pytest.param([measured("a", at=None)], False, "read", id="nobody knows when it was measured"),
        pytest.param([], False, "read", id="no node is measured"),
    ],
)
@virtual
async def test_where_nobody_measures_nothing_is_known_and_nothing_is_wrong(
    answer: list[dict[str, Any]] | KubeError, kept: bool, outcome: str
) -> None:
    """What could not be asked is not known to have changed: the last measurement counts until it is old."""
    meter, cache, metrics, _ = metered([measured("a", "9")], answer)
    await meter.read()
    text = metrics.text().decode()
    assert "adjoin_nodes_measured 1.0" in text
    assert "adjoin_nodes_loaded 1.0" in text
    await meter.read()
    assert loads(cache) == ({"a": 9_000} if kept else {})
    text = metrics.text().decode()
    assert f'adjoin_node_metrics_readings_total{{outcome="{outcome}"}}' in text
    assert f"adjoin_nodes_loaded {float(kept)}" in text


@virtual
async def test_a_measurement_that_cannot_be_renewed_grows_old() -> None:
    """Five minutes, by its own time."""
    meter, cache, _, _ = metered([measured("a")], TimedOut("late"), TimedOut("late"))
    await meter.read()
    meter._now = lambda: NOW + 240
    await meter.read()
    assert loads(cache) == {"a": 1_000}
    meter._now = lambda: NOW + 241
    await meter.read()
    assert loads(cache) == {}


@virtual
async def test_what_is_measured_reaches_the_allocator_and_leaves_it_again() -> None:
    """Beside what pods ask for; a node that nobody measures is the object that it was."""
    cache = Cache("adjoin-system")
    pool = {
        "metadata": {"name": "p", "uid": "p", "resourceVersion": "1"},
        "spec": {
            "devices": [
                {
                    "name": "gpu",
                    "type": "GPU",
                    "source": {"static": {"nodes": [{"name": "a", "devices": [{"name": "gpu-0"}]}]}},
                }
            ]
        },
    }
    cache.ingest(Kind.DEVICE_POOL, pool)
    cache.ingest(Kind.NODE, node("a"))
    builder = InventoryBuilder()
    before = builder.build(cache.view(NOW)).nodes["a"]
    cache.measure(read_loads([measured("a", "9")])[0])
    after = builder.build(cache.view(NOW)).nodes["a"]
    assert (after.cpu_load_milli, after.memory_load_bytes, before.cpu_load_milli) == (9_000, 1 << 30, None)
    assert InventoryBuilder().build(cache.view(NOW)).nodes["a"] == after
    cache.measure({})
    assert builder.build(cache.view(NOW)).nodes["a"] is before
