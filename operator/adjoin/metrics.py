"""All metrics, their names and labels.

In come counts from the loop; out goes the text that Prometheus scrapes. What is told of objects (claims by phase,
devices of a pool) is computed from the cache at the moment of the scrape, so the series of an object end with it.
"""

from __future__ import annotations

import math
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from adjoin.cache import Cache, View
from adjoin.loads import sides

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
GATE_BUCKETS: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Two seconds are what is promised; minutes are what others were found to need."""


class Metrics:
    """One registry; nothing is process-wide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.decision_seconds = Histogram(
            "adjoin_decision_seconds", "Time one decision took.", buckets=BUCKETS, registry=self.registry
        )
        self.decision_failures = Counter(
            "adjoin_decision_failures", "Decisions that failed; nothing was written.", registry=self.registry
        )
        self.writes = Counter(
            "adjoin_writes", "Requests of the writer by outcome.", ["verb", "kind", "outcome"], registry=self.registry
        )
        self.gate_seconds = Histogram(
            "adjoin_gate_seconds",
            "How long a pod was kept at its gate although its replica was ready for it.",
            buckets=GATE_BUCKETS,
            registry=self.registry,
        )
        self.writer_queue = Gauge("adjoin_writer_queue", "Intents that wait or run.", registry=self.registry)
        self.writer_oldest = Gauge(
            "adjoin_writer_oldest_seconds", "Age of the oldest intent in the writer.", registry=self.registry
        )
        self.leader = Gauge("adjoin_leader", "1 while this replica plans and writes.", registry=self.registry)
        self.watch_age = Gauge(
            "adjoin_watch_age_seconds", "Since the API server last spoke of a kind.", ["kind"], registry=self.registry
        )
        self.corrections = Counter(
            "adjoin_sweep_corrections",
            "What was put right: objects that a list showed to be gone (dropped) or newer (refreshed) than any watch "
            "had said, replicas that a status had lost (reclaimed), children without an owner (orphaned).",
            ["kind", "action"],
            registry=self.registry,
        )
        self.load_readings = Counter(
            "adjoin_node_metrics_readings",
            "Readings of the metrics API by outcome: read, stale (all measurements are old), absent (not served), "
            "forbidden, failed.",
            ["outcome"],
            registry=self.registry,
        )
        self.load_age = Gauge(
            "adjoin_node_metrics_age_seconds",
            "Age of the newest measurement of a node that was read; NaN while there was none.",
            registry=self.registry,
        )
        self.load_age.set(math.nan)
        self.certificate_expiry = Gauge(
            "adjoin_certificate_expiry_timestamp_seconds",
            "When the webhooks' serving certificate expires.",
            registry=self.registry,
        )

    def follow(self, cache: Cache, now: Callable[[], float] = time.time) -> None:
        """Reports what the cache holds, at every scrape."""
        self.registry.register(_Objects(cache, now))

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry)


class _Objects(Collector):
    def __init__(self, cache: Cache, now: Callable[[], float]) -> None:
        self._cache = cache
        self._now = now

    def collect(self) -> Iterable[GaugeMetricFamily]:
        view = self._cache.view(self._now())
        phases: Tally[str] = Tally()
        reasons: Tally[str] = Tally()
        for claim in view.claims.values():
            phases[str(claim.status.get("phase") or "Pending")] += 1
            for code in {str(reason.get("code")) for reason in claim.status.get("reasons") or ()}:
                reasons[code] += 1
        by_phase = GaugeMetricFamily("adjoin_claims", "DeviceClaims by phase.", labels=["phase"])
        for phase, count in sorted(phases.items()):
            by_phase.add_metric([phase], count)
        by_reason = GaugeMetricFamily("adjoin_claims_waiting", "DeviceClaims by reason.", labels=["reason"])
        for reason, count in sorted(reasons.items()):
            by_reason.add_metric([reason], count)
        devices = GaugeMetricFamily(
            "adjoin_pool_devices", "Devices of a DevicePool by state.", labels=["pool", "device", "state"]
        )
        fragmentation = GaugeMetricFamily(
            "adjoin_pool_fragmentation",
            "Part of the free devices of a DevicePool that lies outside of whole groups of near devices.",
            labels=["pool", "device"],
        )
        for pool in sorted(view.pools.values(), key=lambda facts: facts.meta.name):
            for name, counts in sorted((pool.status.get("devices") or {}).items()):
                for state, count in counts.items():
                    devices.add_metric([pool.meta.name, name, state], count)
            for name, part in sorted((pool.status.get("fragmentation") or {}).items()):
                fragmentation.add_metric([pool.meta.name, name], part)
        return [by_phase, by_reason, devices, fragmentation, *_parts(view), *_loads(view)]


def _parts(view: View) -> Iterable[GaugeMetricFamily]:
    """How many parts each share has, and how many of them can be given out, as its status says."""
    labels = ["share", "pool", "mode"]
    units = GaugeMetricFamily("adjoin_share_units", "Parts of a DeviceShare.", labels=labels)
    free = GaugeMetricFamily("adjoin_share_free", "Parts of a DeviceShare that can be given out.", labels=labels)
    for facts in sorted(view.shares.values(), key=lambda facts: facts.meta.name):
        if facts.status.get("units") is not None:
            values = [facts.meta.name, facts.share.spec.pool_ref.name, str(facts.share.spec.mode)]
            units.add_metric(values, facts.status["units"])
            free.add_metric(values, facts.status.get("free") or 0)
    return [units, free]


def _loads(view: View) -> Iterable[GaugeMetricFamily]:
    """How many nodes are measured, and how many of these are loaded."""
    measured = [(view.nodes.get(name), load) for name, load in view.loads.items()]
    yield GaugeMetricFamily("adjoin_nodes_measured", "Nodes of which the use is known.", value=len(measured))
    yield GaugeMetricFamily(
        "adjoin_nodes_loaded",
        "Nodes of which most of the CPU or memory is in use: parts of devices go elsewhere if they can.",
        value=sum(any(sides(load, facts) or ()) for facts, load in measured),
    )
