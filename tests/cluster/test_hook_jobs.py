"""Hooks on a real control plane: real Jobs, bound by kube-scheduler, with devices in ResourceClaims of their own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import hardware
from tests.support.installation import NAMESPACE, Installation
from tests.support.site import NEAR, Site, devices, pod
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

TEMPLATE = {
    "spec": {
        "containers": [{"name": "main", "image": "registry.test/hook:1"}],
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
    }
}
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


def jobs(site: Site) -> list[dict[str, Any]]:
    """Hook Jobs on this site's machines."""
    listed = site.plane.request("GET", f"{JOBS}?labelSelector=adjoin.dev/hook")["items"]
    return [job for job in listed if site.namespace in str(job["spec"]["template"]["spec"]["affinity"])]


@pytest.fixture
def hooked(site: Site) -> Site:
    """Two machines whose pool prepares and cleans."""
    site.machines(hardware.two_roots)
    site.pool(
        lifecycle={
            "init": [{"name": "verify", "template": TEMPLATE}],
            "cleanup": [{"name": "scrub", "template": TEMPLATE}],
        }
    )
    return site


def test_devices_are_prepared_before_the_pod_and_cleaned_after_it(hooked: Site) -> None:
    hooked.ask("pair", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    hooked.create(pod("pair", "pair"))
    hooked.wait_running("pair")
    claim = hooked.wait_phase("pair", "InUse")
    (replica,) = claim["status"]["allocation"]["replicas"]
    assert [(each["name"], each["phase"]) for each in replica["hooks"]] == [("verify", "Succeeded")]
    eventually(lambda: jobs(hooked), lambda left: not left, what="the hook's Job is gone once it is recorded")
    held = devices(claim)
    hooked.delete("DeviceClaim", "pair")
    (job,) = eventually(lambda: jobs(hooked), lambda found: len(found) == 1, what="the cleanup Job")
    told = {each["name"]: each.get("value") for each in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert (told["ADJOIN_PHASE"], told["ADJOIN_CLAIM_UID"]) == ("cleanup", claim["metadata"]["uid"])
    assert hooked.get("Pod", "pair") is None
    hooked.wait_gone("DeviceClaim", "pair")
    eventually(lambda: jobs(hooked), lambda left: not left, what="the cleanup Job is gone")
    hooked.ask("next", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    assert {name for _, _, name in devices(hooked.wait_phase("next", "Ready"))} == {name for _, _, name in held}


def test_an_operator_that_dies_while_a_hook_runs_is_followed_by_one_that_goes_on(
    hooked: Site, adjoin: Installation
) -> None:
    hooked.ask("pair", {"gpu": 1, "nic": 1})
    eventually(lambda: jobs(hooked), lambda found: len(found) == 1, what="the init Job")
    for operator in adjoin.operators:
        operator.kill()
    adjoin.start_operator()
    claim = hooked.wait_phase("pair", "Ready")
    (replica,) = claim["status"]["allocation"]["replicas"]
    assert [each.get("attempts", 1) for each in replica["hooks"]] == [1]
