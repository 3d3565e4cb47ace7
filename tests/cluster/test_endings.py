"""However something ends, devices come back exactly once and objects go away."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from tests.support import hardware
from tests.support.installation import Installation
from tests.support.site import NEAR, Site, devices, pod
from tests.support.waiting import eventually

from adjoin.cache import LINGER_SECONDS

pytestmark = pytest.mark.cluster


def free(site: Site) -> dict[str, int]:
    """Free devices of the site's pool by name."""
    pool = site.get("DevicePool", site.namespace)
    assert pool is not None
    return {name: counts.get("free", 0) for name, counts in pool.get("status", {}).get("devices", {}).items()}


def all_free(site: Site, gpus: int, nics: int) -> None:
    """Waits until the whole pool is free again."""
    eventually(lambda: free(site), lambda seen: seen == {"gpu": gpus, "nic": nics}, what="every device is free again")
    eventually(lambda: site.all("ResourceClaim"), lambda seen: not seen, what="no ResourceClaim is left")


@pytest.fixture
def busy(site: Site) -> Site:
    """A claim of two_roots whose pod runs."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("pair", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    site.create(pod("pair", "pair"))
    site.wait_running("pair")
    site.wait_phase("pair", "InUse")
    return site


def test_deleting_the_claim_ends_its_pod_and_frees_its_devices(busy: Site) -> None:
    """The claim waits for its pod, then both are gone."""
    busy.delete("DeviceClaim", "pair")
    busy.wait_gone("Pod", "pair")
    busy.wait_gone("DeviceClaim", "pair")
    all_free(busy, 4, 2)


def test_deleting_the_claim_alone_is_deleting_the_claim(busy: Site) -> None:
    """--cascade=orphan cannot cut the ResourceClaim loose from it: the pod goes and nothing is left, as always."""
    busy.delete("DeviceClaim", "pair", propagationPolicy="Orphan")
    busy.wait_gone("Pod", "pair")
    busy.wait_gone("DeviceClaim", "pair")
    all_free(busy, 4, 2)


def test_deleting_the_pod_leaves_the_claim_ready_for_the_next(busy: Site) -> None:
    """The devices stay with the claim."""
    before = devices(busy.claim("pair"))
    busy.delete("Pod", "pair")
    busy.wait_gone("Pod", "pair")
    busy.wait_phase("pair", "Ready")
    assert devices(busy.claim("pair")) == before
    busy.create(pod("next", "pair"))
    busy.wait_running("next")
    assert devices(busy.claim("pair")) == before


def test_a_budget_keeps_a_pod_and_somebody_is_told(busy: Site) -> None:
    """A replica that is scaled away waits for its pod's eviction; its devices stay with the pod meanwhile."""
    busy.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"adjoin.dev/claim": "pair"}}},
        }
    )
    eventually(
        lambda: busy.get("PodDisruptionBudget", "keep"),
        lambda seen: seen["status"].get("currentHealthy") == 1,
        what="the budget counts the pod",
    )
    busy.patch("DeviceClaim", "pair", {"spec": {"replicas": 0}})
    eventually(
        lambda: [one["note"] for one in busy.all("Event") if one["reason"] == "EvictionRefused"],
        lambda notes: len(notes) == 1 and "pod pair has to give its devices back" in notes[0],
        what="the refusal is told",
    )
    assert len(devices(busy.claim("pair"))) == 2
    busy.delete("PodDisruptionBudget", "keep")
    busy.wait_gone("Pod", "pair")
    all_free(busy, 4, 2)


def test_deleting_the_namespace_takes_everything_along(busy: Site) -> None:
    """Nothing hangs on a finalizer."""
    busy.delete("Namespace", busy.namespace)
    busy.wait_gone("Namespace", busy.namespace)
    eventually(lambda: free(busy), lambda seen: seen == {"gpu": 4, "nic": 2}, what="every device is free again")


def test_c8_a_waiting_claim_and_its_gated_pod_go_at_once(site: Site) -> None:
    """Nothing was prepared, so nothing has to be undone."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("large", {"gpu": 5})
    site.create(pod("large", "large"))
    site.wait_phase("large", "Pending")
    site.delete("DeviceClaim", "large")
    site.wait_gone("DeviceClaim", "large")
    site.delete("Pod", "large")
    site.wait_gone("Pod", "large")
    site.create(pod("lost", "nope"))
    site.delete("Pod", "lost")
    site.wait_gone("Pod", "lost")


def test_c14_a_claim_recreated_under_its_name_is_another_claim(busy: Site) -> None:
    """Keyed by UID: what the old one leaves behind never touches the new one."""
    old = busy.claim("pair")["metadata"]["uid"]
    busy.delete("DeviceClaim", "pair")
    busy.wait_gone("DeviceClaim", "pair")
    busy.ask("pair", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    busy.create(pod("pair", "pair"))
    busy.wait_running("pair")
    new = busy.wait_phase("pair", "InUse")
    assert new["metadata"]["uid"] != old
    owners = {o["uid"] for one in busy.all("ResourceClaim") for o in one["metadata"]["ownerReferences"]}
    assert owners == {new["metadata"]["uid"]}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_c9_a_finished_pod_gives_its_replica_to_the_next(busy: Site, phase: str) -> None:
    """Terminal is terminal, whatever the cause; the object may stay as long as it likes."""
    busy.patch("Pod", "pair", {"status": {"phase": phase, "reason": "Evicted"}}, subresource="status")
    busy.create(pod("next", "pair"))
    busy.wait_running("next")
    assert busy.get("Pod", "pair") is not None


def test_a_finished_pod_causes_no_writes(busy: Site) -> None:
    """kube-controller-manager and Adjoin do not write to and fro over a pod that has ended but stays."""
    busy.patch("Pod", "pair", {"status": {"phase": "Succeeded"}}, subresource="status")
    eventually(
        lambda: busy.all("ResourceClaim"), lambda seen: not seen, what="the finished pod's ResourceClaim is gone"
    )
    busy.wait_phase("pair", "Ready")
    settled = datetime.now(UTC)
    time.sleep(5)
    writes = [w for w in busy.plane.writes(since=settled) if f"/namespaces/{busy.namespace}/" in w.uri]
    assert writes == []


def test_c12_deletions_missed_while_the_operator_was_away_are_made_good(busy: Site, adjoin: Installation) -> None:
    """Stopped operator, deleted pod and claim, started operator: everything is released."""
    adjoin.operators[-1].kill()
    busy.delete("Pod", "pair")
    busy.delete("DeviceClaim", "pair")
    adjoin.start_operator()
    busy.wait_gone("DeviceClaim", "pair")
    all_free(busy, 4, 2)


def test_c13_a_pod_force_deleted_while_the_operator_is_away_holds_its_devices_for_a_while(
    site: Site, adjoin: Installation
) -> None:
    """Nobody saw how it ended: its containers may run on, so the devices are not given on before they can have gone."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("old", {"gpu": 4})
    site.create(pod("old", "old"))
    site.wait_running("old")
    site.wait_phase("old", "InUse")
    site.ask("new", {"gpu": 1})
    site.wait_phase("new", "Pending")
    adjoin.operators[-1].kill()
    site.delete("Pod", "old", gracePeriodSeconds=0)
    site.delete("DeviceClaim", "old")
    site.wait_gone("Pod", "old")
    began = time.monotonic()
    adjoin.start_operator()
    site.wait_phase("new", "Ready")
    assert time.monotonic() - began >= LINGER_SECONDS
    site.wait_gone("DeviceClaim", "old")


def test_c13_a_terminating_pod_still_holds_its_devices_after_a_restart(site: Site, adjoin: Installation) -> None:
    """A long grace period is not an end."""
    site.machines(hardware.two_roots)
    site.pool()
    site.ask("old", {"gpu": 4})
    made = pod("old", "old")
    # A finalizer of somebody else keeps the pod Terminating, as a long grace period would.
    made["metadata"]["finalizers"] = ["example.org/hold"]
    site.create(made)
    site.wait_running("old")
    site.delete("DeviceClaim", "old")
    site.wait_phase("old", "Releasing")
    adjoin.operators[-1].kill()
    adjoin.start_operator()
    site.ask("new", {"gpu": 1})
    claim = site.wait_phase("new", "Pending")
    eventually(
        lambda: site.claim("new"),
        lambda seen: [r["code"] for r in seen["status"].get("reasons", [])][:1] == ["DeviceReleasing"],
        what="the new claim waits for devices that are on their way back",
    )
    assert not devices(claim)
    site.patch("Pod", "old", {"metadata": {"finalizers": None}})
    site.wait_phase("new", "Ready")
