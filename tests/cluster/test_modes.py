"""Devices in shares' modes on a real control plane: recorded, converted by real Jobs, whole again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import hardware
from tests.support.site import Site, devices
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

TEMPLATE = {
    "spec": {
        "containers": [{"name": "main", "image": "registry.test/hook:1"}],
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
    }
}


@pytest.fixture
def hooked(site: Site) -> Site:
    """A machine of four cards whose pool prepares and cleans."""
    site.machines(hardware.two_roots)
    hooks = {"init": [{"name": "make", "template": TEMPLATE}], "cleanup": [{"name": "unmake", "template": TEMPLATE}]}
    site.pool(lifecycle=hooks)
    return site


def share(site: Site, name: str, **spec: Any) -> str:
    """A DeviceShare of the site's cards; its name."""
    full = f"{site.namespace}-{name}"
    site.create(
        {
            "apiVersion": "adjoin.dev/v1alpha1",
            "kind": "DeviceShare",
            "metadata": {"name": full},
            "spec": {"poolRef": {"name": site.namespace}, "device": "gpu", "mode": "Fractional", **spec},
        }
    )
    return full


def ledger(site: Site, name: str) -> dict[str, str]:
    """State by device, as the share's status records it."""
    found = site.get("DeviceShare", name)
    assert found is not None
    return {each["device"]: each["state"] for each in (found.get("status") or {}).get("placements") or ()}


def wait_ledger(site: Site, name: str, expected: dict[str, str]) -> None:
    eventually(lambda: ledger(site, name), lambda seen: seen == expected, what=f"devices in the mode of {name}")


def test_a_card_that_was_divided_is_whole_again_before_a_claim_has_it_whole(hooked: Site) -> None:
    name = share(hooked, "half")
    part = {"name": "gpu", "share": {"name": name, "memory": "10Gi"}}
    hooked.ask("part", [part])
    ((_, _, card),) = devices(hooked.wait_phase("part", "Ready"))
    wait_ledger(hooked, name, {card: "Ready"})
    hooked.delete("DeviceClaim", "part")
    hooked.wait_gone("DeviceClaim", "part")
    assert ledger(hooked, name) == {card: "Ready"}
    hooked.ask("whole", {"gpu": 4})
    hooked.wait_phase("whole", "Ready")
    assert ledger(hooked, name) == {}


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")], ids=["older first", "younger first"])
def test_two_shares_edits_end_in_the_same_state_in_whatever_order(hooked: Site, order: tuple[str, str]) -> None:
    names = {"old": share(hooked, "old", maxDevices=2)}
    created = hooked.get("DeviceShare", names["old"])
    assert created is not None
    # Ages are told in whole seconds.
    names["new"] = share(hooked, "same", maxDevices=2)
    later = hooked.get("DeviceShare", names["new"])
    assert later is not None
    older = (created["metadata"]["creationTimestamp"], names["old"]) < (
        later["metadata"]["creationTimestamp"],
        names["new"],
    )
    assert older, "by age, else by name"
    for each in order:
        hooked.patch("DeviceShare", names[each], {"spec": {"prepare": "Eager"}})
        eventually(lambda each=each: ledger(hooked, names[each]), lambda seen: len(seen) == 2, what="two devices")
    wait_ledger(hooked, names["old"], {"gpu-0": "Ready", "gpu-1": "Ready"})
    wait_ledger(hooked, names["new"], {"gpu-2": "Ready", "gpu-3": "Ready"})
