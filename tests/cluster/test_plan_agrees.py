"""The running operator and `plan` decide the same on the same objects: 50 random clusters and workloads."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.support.installation import Installation
from tests.support.planning import run_plan
from tests.support.random_sites import RandomSite, random_site
from tests.support.site import Site, simulated
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]
GROUP = 10
"""Cases that are looked at together."""


def decided(claim: Obj) -> bool:
    """Whether the operator has said something of the claim since its pool exists."""
    status = claim.get("status", {})
    codes = [reason["code"] for reason in status.get("reasons", [])]
    return bool(status.get("phase")) and "PoolNotFound" not in codes and status.get("observedGeneration") is not None


def answer(claim: Obj) -> Obj:
    """What was decided, as the API server has it."""
    status = claim.get("status", {})
    return {
        "replicas": placed(status.get("allocation", {}).get("replicas", [])),
        "reasons": sorted(reason["code"] for reason in status.get("reasons", [])),
    }


def placed(replicas: list[Obj]) -> list[Any]:
    """Which devices went where, in the order of the replicas."""
    return [
        (replica["index"], replica["node"], [(device["request"], device["device"]) for device in replica["devices"]])
        for replica in sorted(replicas, key=lambda replica: replica["index"])
    ]


@pytest.mark.parametrize("first", range(0, 50, GROUP))
def test_the_running_operator_decides_what_plan_says(adjoin: Installation, first: int) -> None:
    sites: list[tuple[Site, RandomSite]] = []
    try:
        for seed in range(first, first + GROUP):
            site = Site.open(adjoin.plane, f"agrees-{seed}")
            case = random_site(seed, site.namespace)
            sites.append((site, case))
            site.fill(simulated(case.nodes))
            site.nodes_ready(*(node["metadata"]["name"] for node in case.nodes))
            # Claims first: they wait for their pool, and are then decided on together.
            for claim in case.claims:
                site.create(claim)
                time.sleep(0.01)
        for site, case in sites:
            names = [claim["metadata"]["name"] for claim in case.claims]
            eventually(
                lambda site=site, names=names: [site.claim(name) for name in names],  # type: ignore[misc]
                lambda claims: all(claim.get("status", {}).get("reasons") for claim in claims),
                what="every claim waiting for its pool",
            )
            site.create(case.pool)
        for site, case in sites:
            names = [claim["metadata"]["name"] for claim in case.claims]
            claims = eventually(
                lambda site=site, names=names: [site.claim(name) for name in names],  # type: ignore[misc]
                lambda claims: all(map(decided, claims)),
                what=f"every claim of {site.namespace} decided on",
            )
            pool = site.get("DevicePool", site.namespace)
            assert pool is not None
            nodes = [site.get("Node", node["metadata"]["name"]) for node in case.nodes]
            asked = [{**claim, "status": {}} for claim in claims]
            ran = run_plan("-f", "-", "-o", "json", stdin=json.dumps({"kind": "List", "items": [pool, *nodes, *asked]}))
            assert ran.status in (0, 3), ran.err
            planned = {
                name: {
                    "replicas": placed(shown["replicas"]),
                    "reasons": sorted(reason["code"] for reason in shown["reasons"]),
                }
                for name, shown in ran.claims.items()
            }
            assert {claim["metadata"]["name"]: answer(claim) for claim in claims} == planned
    finally:
        for site, _ in sites:
            site.close()
