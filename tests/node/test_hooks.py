"""Hooks on a real node: real containers that have the very devices, init before the pod and cleanup after its end."""

from __future__ import annotations

from tests.node import journal
from tests.node.containers import devices_within
from tests.node.journal import Line
from tests.node.node import EXAMPLE_DRIVER, Node
from tests.node.pools import chosen, kind, pool
from tests.support.site import Site, reasons
from tests.support.waiting import eventually

DEVICE = kind(EXAMPLE_DRIVER)
COUNT = EXAMPLE_DRIVER.devices


def test_init_runs_before_the_pod_and_cleanup_between_its_end_and_the_next(site: Site, node: Node) -> None:
    journal.clear(node)
    pool(
        site,
        node,
        EXAMPLE_DRIVER,
        lifecycle={
            "init": [{"name": "verify", "template": journal.hook()}],
            "cleanup": [{"name": "scrub", "template": journal.hook("sleep 1")}],
        },
    )
    site.ask("first", {DEVICE: COUNT})
    site.create(journal.worker("one", "first"))
    site.wait_running("one")
    all_devices = tuple(chosen(site, "first"))
    (replica,) = site.claim("first")["status"]["allocation"]["replicas"]
    assert [(each["name"], each["phase"]) for each in replica["hooks"]] == [("verify", "Succeeded")]

    site.ask("second", {DEVICE: COUNT})
    site.create(journal.worker("two", "second"))
    site.delete("DeviceClaim", "first")
    site.wait_gone("DeviceClaim", "first")
    site.wait_running("two")
    assert tuple(devices_within(site.plane, site.namespace, "two", EXAMPLE_DRIVER)) == all_devices

    def hook(phase: str, claim: str) -> list[Line]:
        who = f"{phase} {site.namespace}/{claim}"
        return [Line(who, what, all_devices, all_devices) for what in ("begin", "end")]

    eventually(lambda: journal.read(node)[-1].who, lambda who: who == "two", what="the second pod's line")
    assert journal.read(node) == [
        *hook("init", "first"),
        Line("one", "begin", all_devices),
        Line("one", "end", all_devices),
        *hook("cleanup", "first"),
        *hook("init", "second"),
        Line("two", "begin", all_devices),
    ]


def test_a_device_that_init_finds_broken_is_left_out(site: Site, node: Node) -> None:
    """The container says which of its devices is at fault; the pod gets others, and never that one."""
    journal.clear(node)
    report = """printf '{"message": "gpu-1 does not answer", "failed": ["gpu-1"]}' > /dev/termination-log; exit 1"""
    check = f'case "{journal.DEVICES}" in *gpu-1*) {report};; esac'
    pool(
        site,
        node,
        EXAMPLE_DRIVER,
        lifecycle={"init": [{"name": "verify", "retries": 0, "template": journal.hook(check)}]},
    )
    site.ask("careful", {DEVICE: 2})
    site.create(journal.worker("careful", "careful"))
    site.wait_running("careful")
    has = devices_within(site.plane, site.namespace, "careful", EXAMPLE_DRIVER)
    assert has == chosen(site, "careful")
    assert "gpu-1" not in has
    (held_back,) = site.all("DevicePool")[0]["status"]["quarantined"]
    assert held_back["device"] == "gpu-1"
    assert "gpu-1 does not answer" in str(held_back)
    tried = [line.told for line in journal.read(node) if line.what == "begin" and line.who.startswith("init")]
    assert any("gpu-1" in devices for devices in tried)


def test_a_device_that_could_not_be_cleaned_is_given_to_nobody(site: Site, node: Node) -> None:
    journal.clear(node)
    pool(
        site,
        node,
        EXAMPLE_DRIVER,
        lifecycle={"cleanup": [{"name": "scrub", "retries": 0, "template": journal.hook("false")}]},
    )
    site.ask("dirty", {DEVICE: 1})
    site.create(journal.worker("dirty", "dirty"))
    site.wait_running("dirty")
    (dirty,) = chosen(site, "dirty")
    site.delete("DeviceClaim", "dirty")
    site.wait_gone("DeviceClaim", "dirty")
    site.ask("all", {DEVICE: COUNT})
    eventually(lambda: reasons(site.claim("all")), lambda seen: "Quarantined" in seen, what="who wants it waits")
    site.ask("rest", {DEVICE: COUNT - 1})
    site.create(journal.worker("rest", "rest"))
    site.wait_running("rest")
    assert dirty not in devices_within(site.plane, site.namespace, "rest", EXAMPLE_DRIVER)
