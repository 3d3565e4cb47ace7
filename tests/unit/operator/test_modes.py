"""Devices on their way into a share's mode and back, on whole decisions against a simulated API server: what the
share's status records, which hooks run with what they are told, and who waits for whom."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.environments import static_device, static_pool
from tests.support.objects import deviceclaim, devicepool, deviceshare, node, resourceslice
from tests.support.world import Ending, World

from adjoin.decision import Decider
from adjoin.facts import timestamp
from adjoin.intents import Kind
from adjoin_allocator.model import Mode, Slice

Obj = dict[str, Any]
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
GI = 1 << 30


def hook(name: str, **fields: Any) -> Obj:
    return {"name": name, "template": TEMPLATE, **fields}


HOOKED = {"init": [hook("make", retries=0)], "cleanup": [hook("unmake", retries=0)]}


def card(place: int, node_name: str = "n1") -> Obj:
    return {**static_device(f"gpu-{place}", uuid=f"GPU-{node_name}-{place}"), "capacity": {"memory": "80Gi"}}


def cluster(*others: Obj, cards: int = 2, lifecycle: Obj = HOOKED, **spec: Any) -> World:
    world = World()
    pool = static_pool({"n1": {"gpu": [card(place) for place in range(cards)]}}, lifecycle=lifecycle, **spec)
    world.add(pool, node("n1"), *others)
    return world


def part(name: str = "job-a", share: str = "half", memory: str = "20Gi", **fields: Any) -> Obj:
    request = {"name": "gpu", "share": {"name": share, "memory": memory}}
    return deviceclaim(name, requests=[request], **fields)


def told(job: Obj) -> Obj:
    """What a hook was told of its devices, with the phase."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    return {
        "phase": given["ADJOIN_PHASE"],
        "claim": given["ADJOIN_CLAIM"],
        "devices": json.loads(given["ADJOIN_DEVICES"]),
    }


def ran(world: World) -> list[str]:
    """Hooks that ran: phase, claim, device, and whether they were about a part or the whole of it."""
    lines = []
    for job in world.ran:
        given = told(job)
        for device in given["devices"]:
            share = device.get("share")
            what = "whole" if share is None else f"part {share['name']}" if "part" in share else f"mode {share['name']}"
            lines.append(" ".join(filter(None, (given["phase"], given["claim"], device["device"], what))))
    return lines


def ledger(world: World, name: str = "half") -> dict[str, str]:
    share = world.get(Kind.DEVICE_SHARE, name)
    assert share is not None
    return {each["device"]: each["state"] for each in (share.get("status") or {}).get("placements") or ()}


def condition(world: World, kind: str, name: str = "half") -> str | None:
    share = world.get(Kind.DEVICE_SHARE, name)
    assert share is not None
    found = [each for each in share["status"]["conditions"] if each["type"] == kind and each["status"] == "True"]
    return str(found[0]["message"]) if found else None


def devices(world: World, name: str = "job-a") -> list[Obj]:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    replicas = ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or []
    return [device for replica in replicas for device in replica["devices"]]


def state(world: World, name: str = "job-a") -> str:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    replicas = ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or [{"state": "none"}]
    return str(replicas[0]["state"])


def believed_once(world: World) -> None:
    """No device stands in two shares' modes, and nothing is prepared for a claim on one that is in another mode."""
    modes: dict[str, str] = {}
    for share in world.all(Kind.DEVICE_SHARE):
        for each in (share.get("status") or {}).get("placements") or ():
            assert each["device"] not in modes, f"{each['device']} is in two modes"
            modes[each["device"]] = share["metadata"]["name"]
    for claim in world.all(Kind.DEVICE_CLAIM):
        for replica in ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or ():
            for device in replica["devices"]:
                own = (device.get("share") or {}).get("name", "")
                other = modes.get(device["device"], own) != own
                assert not other or replica["state"] in ("Allocated", "Releasing"), (claim["metadata"]["name"], device)


def settle(world: World, make: Callable[[], Any] = Decider, rounds: int = 120) -> None:
    world.settle(make, rounds=rounds, check=believed_once)


# A part's life


def test_a_device_is_recorded_in_the_share_before_a_hook_makes_a_part_of_it() -> None:
    world = cluster(deviceshare(), part())
    seen: list[str] = []

    def end(job: Obj) -> Ending:
        seen.append(ledger(world).get("gpu-0", "missing"))
        return Ending()

    world.hook = end
    settle(world)
    assert state(world) == "Ready"
    assert seen == ["Ready"]
    assert ran(world) == ["init team/job-a gpu-0 part half"]
    (device,) = told(world.ran[0])["devices"]
    assert device["share"] == {"name": "half", "mode": "Fractional", "part": "gpu-0", "memory": 20 * GI}


def test_c4_the_cleaning_of_a_part_is_told_of_that_part_and_leaves_the_others_alone() -> None:
    world = cluster(deviceshare(), part(), part("job-b", memory="30Gi"), cards=1)
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    assert ran(world)[2:] == ["cleanup team/job-a gpu-0 part half"]
    (device,) = told(world.ran[-1])["devices"]
    assert (device["share"]["memory"], device["owner"]) == (20 * GI, "claim-team-job-a")
    assert state(world, "job-b") == "Ready"
    assert ledger(world) == {"gpu-0": "Ready"}


# Without a claim


def eager(name: str = "half", **spec: Any) -> Obj:
    return deviceshare(name, prepare="Eager", **spec)


def test_a_share_prepares_devices_by_itself_up_to_its_limit_in_stable_order() -> None:
    world = cluster(eager(maxDevices=2), cards=12)
    settle(world)
    assert ledger(world) == {"gpu-0": "Ready", "gpu-1": "Ready"}
    assert sorted(ran(world)) == ["init gpu-0 mode half", "init gpu-1 mode half"]
    (device,) = told(world.ran[0])["devices"]
    assert device["share"] == {"name": "half", "mode": "Fractional"}


def test_a_device_that_a_claim_has_whole_is_not_prepared_before_it_is_given_back() -> None:
    world = cluster(deviceclaim(), cards=1)
    settle(world)
    world.add(eager())
    settle(world)
    assert ledger(world) == {}
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    assert ledger(world) == {"gpu-0": "Ready"}
    assert ran(world) == ["init team/job-a gpu-0 whole", "cleanup team/job-a gpu-0 whole", "init gpu-0 mode half"]


def test_a_device_that_cannot_be_prepared_goes_into_quarantine_and_is_tried_again_after_it() -> None:
    world = cluster(eager(maxDevices=1), cards=1, health={"recovery": "Manual"})
    world.hook = lambda job: Ending("Failed", "MIG mode cannot be enabled")
    settle(world)
    assert ledger(world) == {"gpu-0": "Failed"}
    pool = world.get(Kind.DEVICE_POOL, "training")
    assert pool is not None
    (entry,) = pool["status"]["quarantined"]
    assert (entry["device"], entry["reason"]) == ("gpu-0", "InitFailed")
    assert "MIG mode cannot be enabled" in entry["message"]
    world.hook = lambda job: Ending()
    told_text = json.dumps([{"device": "GPU-n1-0", "reason": "driver updated"}])
    world.change(
        Kind.DEVICE_POOL, "training", {"metadata": {"annotations": {"adjoin.dev/release-quarantine": told_text}}}
    )
    settle(world)
    assert ledger(world) == {"gpu-0": "Ready"}


def test_after_a_restart_of_its_node_an_idle_device_is_prepared_again() -> None:
    world = cluster(eager(), cards=1)
    world.change(Kind.NODE, "n1", {"status": {"nodeInfo": {"bootID": "one"}}})
    settle(world)
    world.change(Kind.NODE, "n1", {"status": {"nodeInfo": {"bootID": "two"}}})
    settle(world)
    assert ran(world) == ["init gpu-0 mode half"] * 2
    assert ledger(world) == {"gpu-0": "Ready"}


# Back to whole


def test_a_device_that_nobody_used_for_long_returns_to_whole() -> None:
    world = cluster(deviceshare(idleReset="30m"), part(), cards=1)
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    start = world.now
    settle(world)
    assert ran(world)[-1] == "cleanup gpu-0 mode half"
    assert ledger(world) == {}
    assert world.now >= start + 1800


def test_a_device_in_use_is_not_idle_however_long() -> None:
    world = cluster(deviceshare(idleReset="30m"), part(), cards=1)
    settle(world)
    world.now += 36_000
    settle(world)
    assert ledger(world) == {"gpu-0": "Ready"}
    assert ran(world) == ["init team/job-a gpu-0 part half"]


def test_without_a_time_an_idle_device_stays_until_somebody_needs_it_otherwise() -> None:
    world = cluster(deviceshare(), part(), cards=1)
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    world.now += 36_000
    settle(world)
    assert ledger(world) == {"gpu-0": "Ready"}
    world.add(deviceclaim("job-b"))
    settle(world)
    assert ran(world)[2:] == ["cleanup gpu-0 mode half", "init team/job-b gpu-0 whole"]
    assert ledger(world) == {}
    assert state(world, "job-b") == "Ready"


def test_b14_a_card_changes_its_mode_only_when_nobody_has_any_of_it() -> None:
    other = deviceshare("other", fractional={"reserve": "5%"})
    world = cluster(deviceshare(), other, part(), part("job-b", share="other"), cards=1)
    settle(world)
    assert state(world, "job-b") == "none"
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    assert ran(world) == [
        "init team/job-a gpu-0 part half",
        "cleanup team/job-a gpu-0 part half",
        "cleanup gpu-0 mode half",
        "init team/job-b gpu-0 part other",
    ]
    assert (ledger(world), ledger(world, "other")) == ({}, {"gpu-0": "Ready"})


@pytest.mark.parametrize("lifecycle", [{}, {"init": HOOKED["init"]}], ids=["no hooks", "no cleanup hooks"])
def test_where_nothing_cleans_a_device_is_whole_at_once(lifecycle: Obj) -> None:
    world = cluster(deviceshare(), part(), cards=1, lifecycle=lifecycle)
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    world.add(deviceclaim("job-b"))
    settle(world)
    assert state(world, "job-b") == "Ready"
    assert ledger(world) == {}


def test_c36_a_device_that_does_not_return_to_whole_is_given_to_nobody_and_others_go_on() -> None:
    """A monitoring daemon holds a partition: its destruction fails although no process of a pod is left."""
    lifecycle = {**HOOKED, "cleanup": [hook("unmake", retries=2)]}
    world = cluster(deviceshare(), part(), lifecycle=lifecycle, health={"recovery": "Manual"})
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)

    def end(job: Obj) -> Ending:
        converts = any("part" not in each.get("share", {"part": ""}) for each in told(job)["devices"])
        return Ending("Failed", "in use by dcgm (pid 4711)") if converts else Ending()

    world.hook = end
    world.add(deviceclaim("job-b", requests={"gpu": 2}))
    settle(world)
    world.add(deviceclaim("job-c"))
    world.delete(Kind.DEVICE_CLAIM, "job-b")
    settle(world)
    assert ran(world).count("cleanup gpu-0 mode half") == 3
    assert ledger(world) == {"gpu-0": "Failed"}
    assert any("dcgm (pid 4711)" in each["note"] for each in world.all(Kind.EVENT) if each["reason"] == "HookFailed")
    assert [each["device"] for each in devices(world, "job-c")] == ["gpu-1"]
    assert state(world, "job-c") == "Ready"


# Edits


def test_a_share_that_is_deleted_stays_until_its_parts_are_given_back_and_its_devices_whole() -> None:
    world = cluster(deviceshare(), part(), cards=1)
    settle(world)
    world.delete(Kind.DEVICE_SHARE, "half")
    settle(world)
    assert state(world) == "Ready"
    assert condition(world, "InUse") == "it goes when its parts do: team/job-a"
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    assert world.get(Kind.DEVICE_SHARE, "half") is None
    assert ran(world)[-1] == "cleanup gpu-0 mode half"


@pytest.mark.parametrize("first", ["old", "new"])
def test_two_shares_edits_end_in_the_same_state_in_whatever_order(first: str) -> None:
    old = deviceshare("old", created="2026-11-30T07:00:00Z", maxDevices=2)
    new = deviceshare("new", created="2026-11-30T07:30:00Z", maxDevices=2)
    world = cluster(old, new, cards=3)
    settle(world)
    for name in (first, *({"old", "new"} - {first})):
        world.change(Kind.DEVICE_SHARE, name, {"spec": {"prepare": "Eager"}})
        settle(world)
    assert ledger(world, "old") == {"gpu-0": "Ready", "gpu-1": "Ready"}
    assert ledger(world, "new") == {"gpu-2": "Ready"}
    assert "gpu-0" in (condition(world, "Overlap", "new") or "")
    assert condition(world, "Overlap", "old") is None


def test_while_a_shares_status_is_being_written_nobody_else_enters_devices_that_it_may_be_entering() -> None:
    world = cluster(eager("one"), eager("two"), deviceshare("three"), part(share="three"))
    decision = Decider().decide(world.view(busy=["share-one"]), world.now)
    written = {
        step.name: step.body for intent in decision.intents for step in intent.steps if step.kind is Kind.DEVICE_SHARE
    }
    assert "one" not in written
    assert all("placements" not in (body or {}).get("status", {}) for body in written.values())
    settle(world)
    modes = [ledger(world, name) for name in ("one", "two", "three")]
    assert sorted(device for mode in modes for device in mode) == ["gpu-0", "gpu-1"]


def test_an_older_share_has_what_a_younger_one_is_just_preparing() -> None:
    world = published()
    world.add(
        eager("new", created="2026-11-30T07:30:00Z", maxDevices=1), deviceshare("old", created="2026-11-30T07:00:00Z")
    )
    world.change(Kind.DEVICE_SHARE, "old", {"spec": {"maxDevices": 1}})
    met: list[str] = []

    def end(job: Obj) -> Ending:
        if not met:
            met.append(told(job)["devices"][0]["share"]["name"])
            world.change(Kind.DEVICE_SHARE, "old", {"spec": {"prepare": "Eager"}})
            return Ending(None)
        return Ending()

    world.hook = end
    settle(world)
    assert met == ["new"]
    assert (ledger(world, "old"), ledger(world, "new")) == ({"gpu-0": "Ready"}, {"gpu-1": "Ready"})


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        pytest.param({"maxDevices": 1}, {"gpu-0"}, id="fewer devices"),
        pytest.param(
            {"selectors": [{"cel": "device.attributes['adjoin.dev'].uuid != 'GPU-n1-0'"}]}, {"gpu-1"}, id="others"
        ),
        pytest.param({"prepare": "OnDemand"}, {"gpu-0", "gpu-1"}, id="on demand from now on"),
        pytest.param({"prepare": "OnDemand", "idleReset": "1m"}, set(), id="and back when idle"),
    ],
)
def test_idle_devices_follow_an_edit_of_their_share(edit: Obj, left: set[str]) -> None:
    world = cluster(eager())
    settle(world)
    world.change(Kind.DEVICE_SHARE, "half", {"spec": edit})
    settle(world)
    assert ledger(world) == dict.fromkeys(left, "Ready")


# Interrupted anywhere

Story = Callable[[World], None]


def _life(world: World) -> None:
    world.add(deviceshare(), part(), part("job-b"))
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)


def _eager(world: World) -> None:
    world.add(eager())
    settle(world)


def _idle(world: World) -> None:
    world.add(deviceshare(idleReset="1m"), part())
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)


def _conversion(world: World) -> None:
    world.add(deviceshare(), part())
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    world.add(deviceclaim("job-b", requests={"gpu": 2}))
    settle(world)


def _deleted(world: World) -> None:
    world.add(deviceshare(), part())
    settle(world)
    world.delete(Kind.DEVICE_SHARE, "half")
    settle(world)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)


def _end(world: World) -> Any:
    shares = {
        each["metadata"]["name"]: ledger(world, each["metadata"]["name"]) for each in world.all(Kind.DEVICE_SHARE)
    }
    claims = {each["metadata"]["name"]: state(world, each["metadata"]["name"]) for each in world.all(Kind.DEVICE_CLAIM)}
    return shares, claims, sorted(ran(world)), world.all(Kind.JOB), world.all(Kind.RESOURCE_CLAIM)


def published() -> World:
    """Devices that a driver publishes, behind the guard: hooks get them in ResourceClaims of their own."""
    world = World()
    listed = resourceslice("n1", devices=2)
    for device in listed["spec"]["devices"]:
        device["capacity"] = {"memory": {"value": "80Gi"}}
    world.add(devicepool(spec={"lifecycle": HOOKED}), node("n1"), listed)
    return world


STORIES = pytest.mark.parametrize(
    "story",
    [
        pytest.param(_life, id="a claim with a part"),
        pytest.param(_eager, id="prepared without a claim"),
        pytest.param(_idle, id="idle for long"),
        pytest.param(_conversion, id="needed whole"),
        pytest.param(_deleted, id="share deleted while in use"),
    ],
)


@STORIES
def test_a_crash_before_any_write_changes_nothing_about_the_end(story: Story) -> None:
    """No hook runs twice either: what ran is part of the end."""
    _crashes(story, cluster)


@pytest.mark.parametrize("story", [pytest.param(_life, id="a part"), pytest.param(_conversion, id="needed whole")])
def test_a_crash_leaves_no_card_in_two_resource_claims_of_hooks(story: Story) -> None:
    _crashes(story, published)


def _crashes(story: Story, machine: Callable[[], World]) -> None:
    smooth = machine()
    story(smooth)
    writes = len(smooth.writes)
    assert writes > 5
    for crash in range(writes):
        world = machine()
        world.crash_after(crash)
        story(world)
        assert _end(world) == _end(smooth), f"crash before write {crash}"


@STORIES
def test_a_watch_that_lags_behind_changes_nothing_about_the_end(story: Story) -> None:
    smooth, world = published(), published()
    story(smooth)
    world.lagging = True
    story(world)
    assert _end(world) == _end(smooth)


# Partitions


def h100(place: int) -> Obj:
    device = card(place)
    device["attributes"]["productName"] = "NVIDIA H100 80GB HBM3"
    return device


def sliced(*others: Obj, cards: int = 1) -> World:
    world = World()
    world.add(
        static_pool({"n1": {"gpu": [h100(place) for place in range(cards)]}}, lifecycle=HOOKED), node("n1"), *others
    )
    return world


def layout(**counts: int) -> Obj:
    names = {"one": "1g.10gb", "two": "2g.20gb", "three": "3g.40gb", "seven": "7g.80gb"}
    return {"layout": [{"profile": names[name], "count": count} for name, count in counts.items()]}


def mig(name: str = "job-a", profile: str = "1g.10gb", share: str = "half", **fields: Any) -> Obj:
    return deviceclaim(name, requests=[{"name": "gpu", "share": {"name": share, "profile": profile}}], **fields)


def partitions(world: World, name: str = "half") -> list[tuple[str, int, int]]:
    share = world.get(Kind.DEVICE_SHARE, name)
    assert share is not None
    (entry,) = share["status"]["placements"]
    return [(each["profile"], each["start"], each["size"]) for each in entry.get("partitions") or ()]


def test_c7_profile_place_and_parent_stand_in_the_status_before_a_hook_makes_the_partition() -> None:
    dynamic = deviceshare(mode="Partitioned", partitioned={"dynamic": {"profiles": ["1g.10gb", "3g.40gb"]}})
    world = sliced(dynamic, mig(profile="3g.40gb"))
    seen: list[Any] = []

    def end(job: Obj) -> Ending:
        (device,) = devices(world)
        seen.append((device["device"], device["share"]["profile"], device["share"]["start"], partitions(world)))
        (given,) = told(job)["devices"]
        key = given["share"]["part"]
        return Ending(message=json.dumps({"parts": {key: {**given["share"], "id": "MIG-1"}}}))

    world.hook = end
    settle(world)
    ((name, profile, start, recorded),) = seen
    assert (name, profile) == ("gpu-0", "3g.40gb")
    assert recorded == [("3g.40gb", start, 4)]
    (given,) = told(world.ran[0])["devices"]
    assert (given["share"]["start"], given["share"]["size"]) == (start, 4)
    assert devices(world)[0]["share"]["id"] == "MIG-1"
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    assert partitions(world) == []
    assert told(world.ran[-1])["devices"][0]["share"]["id"] == "MIG-1"


def test_hooks_are_told_of_the_whole_layout_with_its_places() -> None:
    world = sliced(eager(mode="Partitioned", partitioned=layout(three=1, one=2)))
    settle(world)
    (given,) = told(world.ran[0])["devices"]
    assert sorted(each["profile"] for each in given["share"]["layout"]) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    assert [(each["profile"], each["start"], each["size"]) for each in given["share"]["layout"]] == partitions(world)
    assert "part" not in given["share"]


def test_b12_slicing_anew_keeps_what_is_in_use_at_its_place_and_rebuilds_the_rest() -> None:
    world = sliced(deviceshare(mode="Partitioned", partitioned=layout(one=2, two=1, three=1)), mig())
    settle(world)
    start = devices(world)[0]["share"]["start"]
    before = len(world.ran)
    world.change(Kind.DEVICE_SHARE, "half", {"spec": {"partitioned": layout(one=7)}})
    settle(world)
    assert len(partitions(world)) == 7
    assert ("1g.10gb", start, 1) in partitions(world)
    assert ran(world)[before:] == ["init gpu-0 mode half"]
    (given,) = told(world.ran[-1])["devices"]
    assert [(each["profile"], each["start"], each["size"]) for each in given["share"]["layout"]] == partitions(world)
    assert condition(world, "InUse") is None
    assert ledger(world) == {"gpu-0": "Ready"}


def test_b12_slicing_anew_that_cannot_keep_what_is_in_use_is_refused_and_names_the_claim() -> None:
    world = sliced(deviceshare(mode="Partitioned", partitioned=layout(one=2, two=1, three=1)), mig())
    settle(world)
    before, hooks = partitions(world), len(world.ran)
    world.change(Kind.DEVICE_SHARE, "half", {"spec": {"partitioned": layout(seven=1)}})
    settle(world)
    assert partitions(world) == before
    assert len(world.ran) == hooks
    assert "team/job-a" in (condition(world, "InUse") or "")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    settle(world)
    assert partitions(world) == [("7g.80gb", 0, 8)]
    assert condition(world, "InUse") is None


def test_b14_a_card_in_one_mode_waits_for_its_users_before_another_one() -> None:
    mps = deviceshare("mps", mode="MPS", mps={"maxClients": 4})
    world = sliced(
        mps, deviceshare(mode="Partitioned", partitioned=layout(one=7)), part("job-m", share="mps"), mig("job-p")
    )
    settle(world)
    held = {name: state(world, name) for name in ("job-m", "job-p")}
    assert sorted(held.values()) == ["Ready", "none"]
    first = next(name for name, found in held.items() if found == "Ready")
    second = "job-p" if first == "job-m" else "job-m"
    world.delete(Kind.DEVICE_CLAIM, first)
    settle(world)
    assert state(world, second) == "Ready"
    assert [line for line in ran(world) if " mode " in line] == [
        f"cleanup gpu-0 mode {'mps' if first == 'job-m' else 'half'}"
    ]


def test_what_the_allocator_is_told_of_modes_is_what_statuses_record() -> None:
    world = sliced(deviceshare(mode="Partitioned", partitioned=layout(seven=1), dwell="5m"), mig(profile="7g.80gb"))
    settle(world)
    share = world.get(Kind.DEVICE_SHARE, "half")
    assert share is not None
    (entry,) = share["status"]["placements"]
    ((device, mode),) = Decider().decide(world.view(), world.now).snapshot.modes.items()
    since = timestamp(entry["since"])
    assert since is not None
    assert (device.device, mode) == ("gpu-0", Mode("half", since + 300, (Slice("7g.80gb", 0, 8),)))


def units(world: World, name: str = "half") -> tuple[Any, Any]:
    share = world.get(Kind.DEVICE_SHARE, name)
    assert share is not None
    return share["status"].get("units"), share["status"].get("free")


@pytest.mark.parametrize(
    ("share", "claim", "before", "after"),
    [
        pytest.param({"mode": "TimeSliced", "timeSliced": {"slots": 4}}, {"slots": 3}, (8, 8), (8, 5), id="slots"),
        pytest.param({"mode": "MPS", "mps": {"maxClients": 3}}, {"memory": "1Gi"}, (6, 6), (6, 5), id="clients"),
        pytest.param({"mode": "MPS"}, {"compute": "250m"}, (2000, 2000), (2000, 1750), id="thousandths"),
        pytest.param(
            {"mode": "Partitioned", "partitioned": layout(one=7)},
            {"profile": "1g.10gb"},
            (14, 14),
            (14, 13),
            id="a layout",
        ),
        pytest.param(
            {"mode": "TimeSliced", "timeSliced": {"slots": 4}, "maxDevices": 1},
            {"slots": 3},
            (4, 4),
            (4, 1),
            id="one card",
        ),
        pytest.param(
            {"mode": "Partitioned", "partitioned": {"dynamic": {"profiles": ["1g.10gb"]}}},
            {"profile": "1g.10gb"},
            (None, None),
            (None, None),
            id="on demand there is no number",
        ),
    ],
)
def test_a_share_says_how_many_parts_there_are_and_are_free(share: Obj, claim: Obj, before: Any, after: Any) -> None:
    world = sliced(deviceshare(**share), cards=2)
    settle(world)
    assert units(world) == before
    world.add(deviceclaim(requests=[{"name": "gpu", "share": {"name": "half", **claim}}]))
    settle(world)
    assert units(world) == after


def test_b11_a_share_made_smaller_evicts_nobody_and_gives_nothing_until_use_has_dropped() -> None:
    slots: Obj = {"mode": "TimeSliced", "timeSliced": {"slots": 4}}
    claims = [
        deviceclaim(f"job-{n}", requests=[{"name": "gpu", "share": {"name": "half", "slots": 1}}]) for n in range(3)
    ]
    world = sliced(deviceshare(**slots), *claims)
    settle(world)
    world.change(Kind.DEVICE_SHARE, "half", {"spec": {"timeSliced": {"slots": 2}}})
    settle(world)
    assert [state(world, f"job-{n}") for n in range(3)] == ["Ready"] * 3
    assert units(world) == (2, 0)
    assert "3/2 slots" in (condition(world, "OverSubscribed") or "")
    world.add(deviceclaim("job-3", requests=[{"name": "gpu", "share": {"name": "half", "slots": 1}}]))
    settle(world)
    assert state(world, "job-3") == "none"
    for number in range(2):
        world.delete(Kind.DEVICE_CLAIM, f"job-{number}")
    settle(world)
    assert state(world, "job-3") == "Ready"
    assert condition(world, "OverSubscribed") is None
    world.change(Kind.DEVICE_SHARE, "half", {"spec": {"timeSliced": {"slots": 6}}})
    settle(world)
    assert units(world) == (6, 4)
