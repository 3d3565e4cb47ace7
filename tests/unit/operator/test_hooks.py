"""Hooks on whole decisions against a simulated API server: devices are prepared before pods have them, and cleaned
before others do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.objects import GPU_DRIVER, NIC_DRIVER, deviceclaim, devicepool, node, pod, resourceslice
from tests.support.world import Ending, World

from adjoin.decision import Decider
from adjoin.intents import Kind
from adjoin.lifecycle import rfc3339

Obj = dict[str, Any]
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox", "env": [{"name": "MINE", "value": "1"}]}]}}


def hook(name: str, devices: tuple[str, ...] = (), **fields: Any) -> Obj:
    return {"name": name, "template": TEMPLATE, **({"devices": list(devices)} if devices else {}), **fields}


def hooked(init: tuple[Obj, ...] = (), cleanup: tuple[Obj, ...] = (), **spec: Any) -> Obj:
    lifecycle = {"init": list(init), "cleanup": list(cleanup), **spec.pop("lifecycle", {})}
    return devicepool(spec={"lifecycle": lifecycle, **spec})


def cluster(pool: Obj, *others: Obj, devices: int = 2) -> World:
    world = World()
    world.add(pool, node("n1"), resourceslice("n1", devices=devices), *others)
    return world


def replicas(world: World, name: str = "job-a") -> list[Obj]:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    assert claim is not None
    return ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or []


def ran(world: World) -> list[str]:
    return [f"{job['metadata']['labels']['adjoin.dev/hook']} {variables(job)['ADJOIN_HOOK']}" for job in world.ran]


def variables(job: Obj) -> dict[str, str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def test_init_hooks_run_in_order_before_a_pod_has_the_devices_and_cleanup_after_it() -> None:
    world = cluster(hooked((hook("verify"), hook("warm")), (hook("scrub"),)), deviceclaim(), pod())
    before: list[str] = []

    def check(world: World) -> None:
        worker = world.get(Kind.POD, "worker")
        if worker is not None and not worker["spec"].get("schedulingGates"):
            before[:] = before or ran(world)

    world.settle(Decider, check=check)
    (replica,) = replicas(world)
    assert replica["state"] == "InUse"
    assert before == ["init verify", "init warm"]
    assert [(each["name"], each["phase"]) for each in replica["hooks"]] == [
        ("verify", "Succeeded"),
        ("warm", "Succeeded"),
    ]
    assert not world.all(Kind.JOB)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert ran(world) == ["init verify", "init warm", "cleanup scrub"]
    assert world.get(Kind.DEVICE_CLAIM, "job-a") is None
    assert not world.all(Kind.JOB)
    assert not world.all(Kind.RESOURCE_CLAIM)


def quarantined(world: World) -> dict[str, str]:
    pool = world.get(Kind.DEVICE_POOL, "training")
    assert pool is not None
    return {each["device"]: each["reason"] for each in (pool.get("status") or {}).get("quarantined") or ()}


def phase(world: World, name: str = "job-a") -> str:
    claim = world.get(Kind.DEVICE_CLAIM, name)
    return "gone" if claim is None else (claim.get("status") or {}).get("phase", "")


def events(world: World, reason: str) -> list[str]:
    return [event["note"] for event in world.all(Kind.EVENT) if event["reason"] == reason]


def failing(stage: str, *devices: str, message: str = "ECC error") -> Any:
    """Hooks of a stage fail on these devices."""

    def end(job: Obj) -> Ending:
        given = variables(job)
        named = {each["device"] for each in json.loads(given["ADJOIN_DEVICES"])}
        hit = given["ADJOIN_PHASE"] == stage and (not devices or named & set(devices))
        return Ending("Failed", message) if hit else Ending()

    return end


def test_c6_cleanup_covers_only_what_was_prepared() -> None:
    """The GPU's init hook succeeded, the NIC's fails for good; then the claim is deleted."""
    pool = hooked(
        (hook("gpu-ok", ("gpu",)), hook("nic-ok", ("nic",), retries=0)),
        (hook("scrub-gpu", ("gpu",)), hook("scrub-nic", ("nic",))),
        health={"recovery": "Manual"},
    )
    world = cluster(pool, resourceslice("n1", NIC_DRIVER, devices=1), deviceclaim(requests={"gpu": 1, "nic": 1}), pod())

    def end(job: Obj) -> Ending:
        if variables(job)["ADJOIN_HOOK"] == "nic-ok":
            world.delete(Kind.DEVICE_CLAIM, "job-a")
            return Ending("Failed", "link down")
        return Ending()

    world.hook = end
    world.settle(Decider)
    assert ran(world) == ["init gpu-ok", "init nic-ok", "cleanup scrub-gpu", "cleanup scrub-nic"]
    assert phase(world) == "gone"


def test_nothing_is_cleaned_that_no_hook_was_begun_on() -> None:
    pool = hooked((hook("gpu-ok", ("gpu",)),), (hook("scrub-gpu", ("gpu",)), hook("scrub-nic", ("nic",))))
    world = cluster(pool, resourceslice("n1", NIC_DRIVER, devices=1), deviceclaim(requests={"gpu": 1, "nic": 1}))

    def end(job: Obj) -> Ending:
        if variables(job)["ADJOIN_PHASE"] == "init":
            if world.get(Kind.DEVICE_CLAIM, "job-a")["metadata"].get("deletionTimestamp") is None:
                world.delete(Kind.DEVICE_CLAIM, "job-a")
            return Ending(None)
        return Ending()

    world.hook = end
    world.settle(Decider)
    assert ran(world) == ["init gpu-ok", "cleanup scrub-gpu"]
    assert phase(world) == "gone"


def test_a_device_that_cannot_be_prepared_goes_into_quarantine_and_the_replica_elsewhere() -> None:
    pool = hooked((hook("verify", retries=1),), (hook("scrub"),), health={"recovery": "Manual"})
    world = cluster(pool, deviceclaim(), pod())
    world.hook = failing("init", "gpu-0", message="line one\nXID 79")
    world.settle(Decider, rounds=120)
    assert quarantined(world) == {"gpu-0": "InitFailed"}
    (replica,) = replicas(world)
    assert (replica["state"], replica["devices"][0]["device"]) == ("InUse", "gpu-1")
    assert ran(world) == ["init verify", "init verify", "init verify"]
    assert any("XID 79" in note for note in events(world, "HookFailed"))
    assert "failures" not in world.get(Kind.DEVICE_CLAIM, "job-a")["status"]


def test_only_devices_that_the_hook_names_go_into_quarantine() -> None:
    pool = hooked((hook("verify", retries=0),), (hook("scrub"),), health={"recovery": "Manual"})
    world = cluster(pool, deviceclaim(requests={"gpu": 2}), devices=4)
    world.hook = failing("init", "gpu-1", message='{"message": "row remap pending", "failed": ["gpu-1"]}')
    world.settle(Decider, rounds=120)
    assert quarantined(world) == {"gpu-1": "InitFailed"}
    assert "cleanup scrub" in ran(world)
    (replica,) = replicas(world)
    assert "gpu-1" not in {each["device"] for each in replica["devices"]}


def test_replans_after_failed_init_are_bounded_and_a_new_spec_begins_anew() -> None:
    pool = hooked((hook("verify", retries=0),), health={"recovery": "Manual"})
    world = cluster(pool, deviceclaim(), pod(), devices=8)
    world.hook = failing("init", message="no CUDA device")
    world.settle(Decider, rounds=200)
    assert phase(world) == "Failed"
    assert len(ran(world)) == 4
    claim = world.get(Kind.DEVICE_CLAIM, "job-a")
    ready = next(each for each in claim["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["reason"], "no CUDA device" in ready["message"]) == ("InitFailed", True)
    world.hook = lambda job: Ending()
    world.change(Kind.DEVICE_CLAIM, "job-a", {"spec": {"priority": 1}})
    world.settle(Decider)
    assert phase(world) == "InUse"


def test_a_device_that_cannot_be_cleaned_needs_a_reset_and_the_claim_goes_away() -> None:
    pool = hooked((), (hook("scrub", retries=2),), health={"recovery": "Manual"})
    world = cluster(pool, deviceclaim(), pod(), devices=1)
    world.settle(Decider)
    world.hook = failing("cleanup", message="process 4711 holds the device")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider, rounds=120)
    assert phase(world) == "gone"
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    assert ran(world) == ["cleanup scrub"] * 3
    world.add(deviceclaim("job-b"))
    world.settle(Decider)
    assert phase(world, "job-b") == "Pending"
    (reason,) = {each["code"] for each in world.get(Kind.DEVICE_CLAIM, "job-b")["status"]["reasons"]} & {"Quarantined"}
    assert reason


def test_c16_what_a_failed_hook_does_not_name_is_cleaned_by_the_others_and_goes_back() -> None:
    pool = hooked((), (hook("reset", retries=0), hook("scrub", retries=0)), health={"recovery": "Manual"})
    world = cluster(pool, deviceclaim(requests={"gpu": 2}), pod(), devices=2)
    world.settle(Decider)

    def end(job: Obj) -> Ending:
        said = '{"message": "stuck", "failed": ["gpu-1"]}'
        return Ending("Failed", said) if variables(job)["ADJOIN_HOOK"] == "reset" else Ending()

    world.hook = end
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert phase(world) == "gone"
    assert quarantined(world) == {"gpu-1": "NeedsReset"}
    assert ran(world) == ["cleanup reset", "cleanup scrub"]
    assert [each["device"] for each in json.loads(variables(world.ran[1])["ADJOIN_DEVICES"])] == ["gpu-0"]


def test_c4_c5_a_device_is_not_given_on_before_its_cleanup_has_succeeded() -> None:
    world = cluster(hooked((), (hook("scrub"),)), deviceclaim(), pod(), devices=1)
    world.settle(Decider)
    world.hook = lambda job: Ending(None)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.add(deviceclaim("job-b"))
    world.settle(Decider)
    assert (phase(world), phase(world, "job-b")) == ("Releasing", "Pending")
    (job,) = world.all(Kind.JOB)
    assert variables(job)["ADJOIN_CLAIM_UID"] == world.get(Kind.DEVICE_CLAIM, "job-a")["metadata"]["uid"]
    world.hook = lambda job: Ending()
    world.settle(Decider)
    assert (phase(world), phase(world, "job-b")) == ("gone", "Ready")


def test_c18_after_a_reboot_devices_are_prepared_again_before_pods_have_them() -> None:
    world = cluster(hooked((hook("verify"),)), deviceclaim())
    world.settle(Decider)
    assert phase(world) == "Ready"
    world.change(Kind.NODE, "n1", {"status": {"nodeInfo": {"bootID": "boot-2"}}})
    world.add(pod())
    world.settle(Decider)
    assert ran(world) == ["init verify", "init verify"]
    (replica,) = replicas(world)
    assert (replica["state"], replica["bootID"]) == ("InUse", "boot-2")
    assert [each["bootID"] for each in replica["hooks"]] == ["boot-2"]


def test_c29_cleanup_is_skipped_on_a_node_that_is_gone() -> None:
    world = cluster(hooked((), (hook("scrub"),)), deviceclaim(), pod())
    world.settle(Decider)
    world.delete(Kind.NODE, "n1")
    world.objects = {key: obj for key, obj in world.objects.items() if obj["kind"] not in ("ResourceSlice", "Pod")}
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    assert phase(world) == "gone"
    assert ran(world) == []
    assert events(world, "CleanupSkipped")


def test_c30_a_hook_whose_job_was_deleted_after_it_succeeded_does_not_run_again() -> None:
    world = cluster(hooked((hook("verify"),)), deviceclaim())
    world.settle(Decider)
    assert not world.all(Kind.JOB)
    for _ in range(3):
        world.settle(Decider)
    assert ran(world) == ["init verify"]


def test_a_job_that_somebody_deletes_before_its_outcome_is_recorded_still_counts() -> None:
    world = cluster(hooked((hook("verify", retries=0),)), deviceclaim())

    def end(job: Obj) -> Ending:
        if not job["metadata"].get("deletionTimestamp"):
            world.delete(Kind.JOB, job["metadata"]["name"], "adjoin-system")
        return Ending()

    world.hook = end
    world.settle(Decider)
    assert ran(world) == ["init verify"]
    assert phase(world) == "Ready"


def test_g11_a_job_of_the_expected_name_that_somebody_else_made_is_never_believed() -> None:
    def begun(*others: Obj) -> World:
        world = cluster(hooked((hook("verify"),)), deviceclaim(), *others)
        world.hook = lambda job: Ending(None)
        world.settle(Decider)
        return world

    (expected,) = begun().all(Kind.JOB)
    meta = {"name": expected["metadata"]["name"], "namespace": "adjoin-system", "uid": "foreign"}
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "labels": {"adjoin.dev/hook": "init"}},
        "spec": {"template": TEMPLATE},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    world = begun(foreign)
    assert phase(world) == "Initializing"
    assert [job["metadata"]["uid"] for job in world.all(Kind.JOB)] == ["foreign"]
    assert events(world, "HookBlocked")


def test_recovery_runs_cleanup_and_init_and_lifts_the_quarantine() -> None:
    world = cluster(hooked((hook("verify"),), (hook("scrub", retries=0),)), deviceclaim(), pod(), devices=1)
    world.settle(Decider)
    world.hook = failing("cleanup")
    world.delete(Kind.DEVICE_CLAIM, "job-a")

    def heal(world: World) -> None:
        if quarantined(world):
            world.hook = lambda job: Ending()

    world.settle(Decider, rounds=200, check=heal)
    assert quarantined(world) == {}
    assert ran(world) == ["init verify", "cleanup scrub", "cleanup scrub", "init verify"]
    assert not world.all(Kind.JOB)
    assert events(world, "QuarantineLifted")


def test_somebody_vouches_for_a_device() -> None:
    world = cluster(
        hooked((), (hook("scrub", retries=0),), health={"recovery": "Manual"}), deviceclaim(), pod(), devices=1
    )
    world.settle(Decider)
    world.hook = failing("cleanup")
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider, rounds=100)
    assert quarantined(world) == {"gpu-0": "NeedsReset"}
    text = json.dumps([{"device": "n1/gpu-0", "reason": "reset by hand"}, {"device": "n1/gpu-9", "reason": ""}])
    world.change(Kind.DEVICE_POOL, "training", {"metadata": {"annotations": {"adjoin.dev/release-quarantine": text}}})
    world.settle(Decider)
    assert quarantined(world) == {}
    assert "adjoin.dev/release-quarantine" not in world.get(Kind.DEVICE_POOL, "training")["metadata"]["annotations"]
    assert any("reset by hand" in note for note in events(world, "QuarantineLifted"))
    assert events(world, "ReleaseRefused") == ["n1/gpu-9 is not in quarantine"]


def life(crash: int | None) -> tuple[Obj, list[str], int]:
    """One claim's whole life, with the operator dead before request number `crash` of it; what is left, what ran, and
    how many requests it took."""
    pool = hooked((hook("verify"),), (hook("scrub"),))
    world = cluster(pool, deviceclaim(), pod())
    world.crash_after(crash)
    world.settle(Decider)
    world.finish("worker")
    world.settle(Decider)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    left = {
        "/".join(key[1:]): {part: obj.get(part) for part in ("spec",)}
        for key, obj in world.objects.items()
        if key[0] is not Kind.EVENT
    }
    return left, ran(world), len(world.writes)


def test_a_crash_before_or_after_any_single_write_ends_in_the_same_state() -> None:
    """Every write of one claim's life is a place to die at; that before a write is after the one before it."""
    left, hooks_run, count = life(None)
    assert hooks_run == ["init verify", "cleanup scrub"]
    for crash in range(count):
        found = life(crash)
        assert found[:2] == (left, hooks_run), f"died before request {crash}"


def test_hooks_are_told_what_they_work_on_and_what_the_claim_chose() -> None:
    parameters = [{"name": "scrub-mode", "values": ["quick", "full"], "default": "quick"}]
    pool = hooked((hook("verify", ("gpu",)),), lifecycle={"parameters": parameters})
    claim = deviceclaim(requests={"gpu": 2})
    claim["spec"]["lifecycle"] = {"parameters": {"scrub-mode": "full"}}
    world = cluster(pool, claim)
    world.settle(Decider)
    (job,) = world.ran
    told = variables(job)
    assert told["ADJOIN_PARAMETER_SCRUB_MODE"] == "full"
    assert (told["ADJOIN_CLAIM"], told["ADJOIN_REPLICA"], told["ADJOIN_NODE"]) == ("team/job-a", "0", "n1")
    assert told["ADJOIN_CLAIM_UID"] == claim["metadata"]["uid"]
    assert [each["device"] for each in json.loads(told["ADJOIN_DEVICES"])] == ["gpu-0", "gpu-1"]
    assert told["MINE"] == "1"
    spec = job["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("adjoin-hooks", False)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert job["spec"]["activeDeadlineSeconds"] == 300


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        pytest.param({"depth": "full"}, "its pool declares scrub", id="a parameter that the pool does not have"),
        pytest.param({"scrub": "deep"}, "'deep' is none of the values", id="a value that the pool does not have"),
    ],
)
def test_what_the_pool_does_not_let_a_claim_choose_is_refused_at_planning_too(chosen: Obj, words: str) -> None:
    pool = hooked((hook("verify"),), lifecycle={"parameters": [{"name": "scrub", "values": ["quick", "full"]}]})
    claim = deviceclaim()
    claim["spec"]["lifecycle"] = {"parameters": chosen}
    world = cluster(pool, claim)
    world.settle(Decider)
    status = world.get(Kind.DEVICE_CLAIM, "job-a")["status"]
    assert [reason["code"] for reason in status["reasons"]] == ["InvalidClaim"]
    assert words in status["reasons"][0]["message"]


def test_all_that_other_objects_say_against_a_claim_is_told() -> None:
    pool = hooked((hook("verify"),), lifecycle={"parameters": [{"name": "scrub", "values": ["quick", "full"]}]})
    pool["spec"]["tenancy"] = {"namespaceSelector": {"matchLabels": {"gpu": "yes"}}}
    claim = deviceclaim()
    claim["spec"] |= {"priorityClassName": "high", "lifecycle": {"parameters": {"depth": "full", "scrub": "deep"}}}
    world = cluster(pool, claim)
    world.settle(Decider)
    told = [(one["code"], one["message"]) for one in world.get(Kind.DEVICE_CLAIM, "job-a")["status"]["reasons"]]
    wanted = [
        ("NotAllowed", "its labels do not match"),
        ("InvalidClaim", "no PriorityClass high"),
        ("InvalidClaim", "parameters[depth]"),
        ("InvalidClaim", "parameters[scrub]"),
    ]
    assert [code for code, _ in told] == [code for code, _ in wanted]
    for (_, message), (_, words) in zip(told, wanted, strict=True):
        assert words in message


def test_replicas_on_a_node_out_of_reach_are_given_up_and_their_devices_wait_for_a_cleaning() -> None:
    unreachable = {"after": "10m", "policy": "Release"}
    pool = hooked((), (hook("scrub"),), lifecycle={"nodeUnreachable": unreachable})
    world = cluster(pool, node("n2"), resourceslice("n2"), deviceclaim(), pod())
    world.settle(Decider)
    first = replicas(world)[0]["node"]
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": rfc3339(world.now)}
    world.change(Kind.NODE, first, {"status": {"conditions": [condition]}})
    world.settle(Decider, rounds=40)
    assert replicas(world)[0]["node"] != first
    assert set(quarantined(world).values()) == {"NodeUnreachable"}
    assert ran(world) == []


def test_a_pod_that_was_taken_away_by_force_holds_its_devices_while_their_driver_is_down() -> None:
    """The kubelet lets go of them through the driver: only when it is back can that happen, and it takes its time."""
    world = cluster(devicepool(), deviceclaim(), pod())
    world.settle(Decider)
    slice_ = world.get(Kind.RESOURCE_SLICE, f"n1-{GPU_DRIVER}")
    assert slice_ is not None
    del world.objects[Kind.RESOURCE_SLICE, "", slice_["metadata"]["name"]]
    world.delete(Kind.POD, "worker", force=True)
    world.delete(Kind.DEVICE_CLAIM, "job-a")
    world.settle(Decider)
    world.now += 600
    world.settle(Decider)
    assert phase(world) == "Releasing"
    back = resourceslice("n1")
    back["metadata"] |= {"uid": "again", "creationTimestamp": rfc3339(world.now)}
    world.add(back)
    moment = world.now
    world.settle(Decider)
    assert phase(world) == "gone"
    assert world.now >= moment + 30
