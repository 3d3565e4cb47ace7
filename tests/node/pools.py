"""Pools and claims of the node's drivers, for tests."""

from __future__ import annotations

from typing import Any

from tests.node.node import Driver, Node
from tests.support.site import Site, devices


def pool(site: Site, node: Node, *drivers: Driver, **spec: Any) -> str:
    """A pool of all devices of these drivers, each under the first label of its name; Ready when this returns."""
    return site.pool(
        nodeSelector={"matchLabels": {"kubernetes.io/hostname": node.name}},
        devices=[
            {"name": kind(driver), "type": "Other", "source": {"resourceSlices": {"driver": driver.name}}}
            for driver in drivers
        ],
        **spec,
    )


def kind(driver: Driver) -> str:
    """The name by which claims ask for a driver's devices."""
    return driver.name.split(".")[0]


def chosen(site: Site, claim: str, request: str | None = None) -> list[str]:
    """Names of the devices that a DeviceClaim's status says it has (for one request), sorted."""
    return sorted(name for asked, _, name in devices(site.claim(claim)) if request in (None, asked))
