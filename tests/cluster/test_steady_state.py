"""When nothing changes, nothing is written."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from tests.support import hardware
from tests.support.installation import USERNAME
from tests.support.site import NEAR, Site, pod, reasons
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
WATCHED_SECONDS = 60.0


def test_d9_sixty_quiet_seconds_see_no_write_but_the_lease(site: Site) -> None:
    """Placed, running, waiting and impossible claims, a pod that waits for its turn and one whose claim does not
    exist: all at rest."""
    site.machines(hardware.p4d, 2)
    site.pool()
    for i in range(3):
        site.ask(f"pair-{i}", {"gpu": 1, "nic": 1}, affinity=list(NEAR))
    site.create(pod("runs", "pair-0"))
    site.wait_running("runs")
    site.create(pod("waits-its-turn", "pair-0"))
    site.create(pod("waits-for-ever", "nobody"))
    site.ask("large", {"gpu": 9})
    eventually(lambda: site.claim("large"), reasons, what="a reason")
    site.wait_phase("pair-0", "InUse")
    site.wait_phase("pair-1", "Ready")
    # Counts and words may still be brought up to date for some seconds; what follows must not.
    time.sleep(15)
    began = datetime.now(UTC)
    time.sleep(WATCHED_SECONDS)
    writes = [w for w in site.plane.writes(user=USERNAME, since=began) if w.resource != "leases"]
    assert writes == []
    renewals = [w for w in site.plane.writes(user=USERNAME, since=began) if w.resource == "leases"]
    assert renewals, "the operator lives"
