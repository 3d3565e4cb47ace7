"""Status as users see it: phase, conditions, reasons, patches and Events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.objects import CREATED, Obj, deviceclaim, devicepool, replica
from tests.support.world import START, merge

from adjoin.api import DeviceClaimStatus, DevicePoolStatus
from adjoin.facts import read_claim, read_pool
from adjoin.holdings import released_reason
from adjoin.inventory import PoolReport
from adjoin.lifecycle import Member, wanted_replicas
from adjoin.status import Ailing, claim_notice, claim_phase, claim_status, gist, merge_patch, pool_gist, pool_status
from adjoin_allocator.model import ClaimUID
from adjoin_allocator.results import ClaimPlan, Code, DeviceCounts, Mismatch, PoolPlan, Reason
from adjoin_allocator.terms import ReplicaState

STATE = ReplicaState
UID = ClaimUID("claim-team-job-a")


def member(index: int = 0, state: ReplicaState = STATE.READY, **fields: Any) -> Member:
    return Member(index, replica(index, state="Ready"), state, **fields)


def waiting(*codes: Code, message: str = "needs 8, best node has 7", nearest: str | None = None) -> ClaimPlan:
    return ClaimPlan(UID, reasons=tuple(Reason(code, 3, message) for code in codes), nearest=nearest)


def status_of(
    claim: Obj, *members: Member, plan: ClaimPlan | None = None, ailing: Ailing | None = None, now: float = START
) -> dict[str, Any]:
    facts = read_claim(claim)
    wanted = wanted_replicas(facts, {})
    made = claim_status(
        facts,
        members,
        plan,
        {"n1": "boot-1"},
        ailing or Ailing(),
        now,
        wanted=wanted,
        released=released_reason(facts),
    )
    DeviceClaimStatus.model_validate(made)
    return made


def conditions(status: Obj) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


@pytest.mark.parametrize(
    ("replicas", "states", "expected"),
    [
        pytest.param(2, [STATE.READY], "Pending", id="one has no place"),
        pytest.param(2, [STATE.READY, STATE.IN_USE], "Ready", id="the least of the states"),
        pytest.param(2, [STATE.IN_USE, STATE.IN_USE], "InUse", id="all in use"),
        pytest.param(2, [STATE.ALLOCATED, STATE.IN_USE], "Allocated", id="allocated is less than in use"),
        pytest.param(2, [STATE.INITIALIZING, STATE.READY], "Initializing", id="initializing is less than ready"),
        pytest.param(2, [STATE.FAILED], "Failed", id="failed comes before pending"),
        pytest.param(1, [STATE.IN_USE, STATE.RELEASING], "InUse", id="what is scaled away does not count"),
        pytest.param(1, [STATE.READY, STATE.FAILED], "Ready", id="nor when it failed"),
        pytest.param(0, [], "Ready", id="nothing is wanted"),
        pytest.param(1, [], "Pending", id="nothing is placed"),
    ],
)
def test_phase_from_replicas(replicas: int, states: list[ReplicaState], expected: str) -> None:
    claim = read_claim(deviceclaim(replicas=replicas))
    wanted = wanted_replicas(claim, {})
    assert claim_phase(claim, [member(index, state) for index, state in enumerate(states)], wanted, "") == expected


def test_a_deleted_claim_is_releasing() -> None:
    claim = read_claim(deviceclaim(deletionTimestamp=CREATED))
    assert claim_phase(claim, [member()], range(0), "") == "Releasing"


@pytest.mark.parametrize(
    ("claim", "members", "plan", "expected"),
    [
        pytest.param(
            deviceclaim(),
            [member()],
            None,
            {"Allocated": ("True", "Placed"), "Initialized": ("True", "NoHooks"), "Ready": ("True", "Ready")},
            id="ready",
        ),
        pytest.param(
            deviceclaim(),
            [member(state=STATE.IN_USE)],
            None,
            {"Allocated": ("True", "Placed"), "Initialized": ("True", "NoHooks"), "Ready": ("True", "InUse")},
            id="in use is ready too",
        ),
        pytest.param(
            deviceclaim(),
            [],
            waiting(Code.INSUFFICIENT_DEVICES),
            {
                "Allocated": ("False", "InsufficientDevices"),
                "Initialized": ("False", "InsufficientDevices"),
                "Ready": ("False", "InsufficientDevices"),
                "Reconciling": ("True", "InsufficientDevices"),
            },
            id="waiting may pass by itself",
        ),
        pytest.param(
            deviceclaim(),
            [],
            waiting(Code.POOL_NOT_FOUND),
            {
                "Allocated": ("False", "PoolNotFound"),
                "Initialized": ("False", "PoolNotFound"),
                "Ready": ("False", "PoolNotFound"),
                "Stalled": ("True", "PoolNotFound"),
            },
            id="somebody has to do something",
        ),
        pytest.param(
            deviceclaim(),
            [member(state=STATE.FAILED, lost="gpu-0 is held by DeviceClaim team/older")],
            None,
            {
                "Allocated": ("False", "Conflict"),
                "Initialized": ("False", "Conflict"),
                "Ready": ("False", "Conflict"),
                "Reconciling": ("True", "Conflict"),
                "Conflict": ("True", "HeldTwice"),
            },
            id="a device is held twice",
        ),
        pytest.param(
            deviceclaim(deletionTimestamp=CREATED),
            [member(state=STATE.RELEASING)],
            None,
            {
                "Allocated": ("False", "Releasing"),
                "Initialized": ("False", "Releasing"),
                "Ready": ("False", "Releasing"),
                "Reconciling": ("True", "Releasing"),
            },
            id="releasing",
        ),
    ],
)
def test_conditions_as_kstatus_reads_them(
    claim: Obj, members: list[Member], plan: ClaimPlan | None, expected: dict[str, tuple[str, str]]
) -> None:
    assert conditions(status_of(claim, *members, plan=plan)) == expected


def test_devices_that_are_not_well_are_conditions_and_the_claim_keeps_them() -> None:
    ailing = Ailing(missing=("gpu-0 on n1",), unhealthy=("gpu-1 on n1: taint x=31",))
    status = status_of(deviceclaim(), member(), ailing=ailing)
    found = {each["type"]: each["message"] for each in status["conditions"]}
    assert found["DeviceMissing"] == "gpu-0 on n1"
    assert found["DeviceUnhealthy"] == "gpu-1 on n1: taint x=31"
    assert status["phase"] == "Ready"
    assert status["allocation"]["replicas"][0]["devices"]


def test_reasons_and_nearest_only_while_something_is_missing() -> None:
    plan = waiting(Code.TOPOLOGY_UNSATISFIED, Code.FRAGMENTED, nearest="fits with scope PCIeRoot instead of PCIeSwitch")
    status = status_of(deviceclaim(), plan=plan)
    assert status["reasons"] == [
        {"code": "TopologyUnsatisfied", "nodes": 3, "message": "needs 8, best node has 7"},
        {"code": "Fragmented", "nodes": 3, "message": "needs 8, best node has 7"},
    ]
    assert status["nearest"] == "fits with scope PCIeRoot instead of PCIeSwitch"
    assert "allocation" not in status
    held = status_of(deviceclaim(), member(), plan=waiting(Code.POD_GATED))
    assert not {"reasons", "nearest"} & held.keys()


def test_a_claim_that_is_partly_placed_lists_what_it_has_and_why_the_rest_waits() -> None:
    status = status_of(deviceclaim(replicas=3), member(0), member(2), plan=waiting(Code.INSUFFICIENT_DEVICES))
    assert (status["phase"], status["replicas"], status["readyReplicas"]) == ("Pending", 2, 2)
    assert [each["index"] for each in status["allocation"]["replicas"]] == [0, 2]
    assert "gap" not in status["allocation"]


def test_counts_and_selector_for_the_scale_subresource() -> None:
    status = status_of(deviceclaim(replicas=1), member(0), member(1, STATE.RELEASING))
    assert (status["replicas"], status["readyReplicas"]) == (2, 1)
    assert status["selector"] == "adjoin.dev/claim=job-a"


def test_gap_is_that_of_the_placement_and_stays() -> None:
    placed = status_of(deviceclaim(), member(), plan=ClaimPlan(UID, gap=0.25))
    assert placed["allocation"]["gap"] == 0.25
    later = status_of(deviceclaim(status=placed), member())
    assert later["allocation"]["gap"] == 0.25


@pytest.mark.parametrize(
    ("before", "state", "idle", "ready"),
    [
        pytest.param("InUse", STATE.READY, "2026-11-30T08:00:10Z", CREATED, id="left by its pod"),
        pytest.param("Ready", STATE.READY, CREATED, CREATED, id="still idle"),
        pytest.param("Ready", STATE.IN_USE, None, CREATED, id="taken"),
    ],
)
def test_times_of_a_replica_change_with_its_state(
    before: str, state: ReplicaState, idle: str | None, ready: str
) -> None:
    status = status_of(deviceclaim(), Member(0, replica(state=before), state), now=START + 10)
    (entry,) = status["allocation"]["replicas"]
    assert entry.get("idleSince") == idle
    assert entry["readyAt"] == ready
    assert entry["bootID"] == "boot-1"


def test_a_plans_output_that_is_fed_back_counts_as_ready() -> None:
    entry = {key: value for key, value in replica().items() if key in ("index", "node", "devices")}
    status = status_of(deviceclaim(), Member(0, entry, STATE.READY))
    assert status["allocation"]["replicas"][0]["state"] == "Ready"


# What is written


def test_nothing_is_written_because_time_has_passed() -> None:
    first = status_of(deviceclaim(), member(), plan=ClaimPlan(UID, gap=0.0))
    again = status_of(
        deviceclaim(status=first), Member(0, first["allocation"]["replicas"][0], STATE.READY), now=START + 999
    )
    assert merge_patch(first, again) == {}


def test_transition_times_move_with_the_condition_alone() -> None:
    pending = status_of(deviceclaim(), plan=waiting(Code.INSUFFICIENT_DEVICES))
    other_reason = status_of(deviceclaim(status=pending), plan=waiting(Code.FRAGMENTED), now=START + 60)
    assert {each["lastTransitionTime"] for each in other_reason["conditions"]} == {CREATED}
    placed = status_of(deviceclaim(status=pending), member(), now=START + 60)
    assert {each["lastTransitionTime"] for each in placed["conditions"]} == {"2026-11-30T08:01:00Z"}


def test_what_vanishes_is_set_to_null() -> None:
    pending = status_of(deviceclaim(), plan=waiting(Code.FRAGMENTED, nearest="fits with 7"))
    placed = status_of(deviceclaim(status=pending), member())
    patch = merge_patch(pending, placed)
    assert patch["reasons"] is None
    assert patch["nearest"] is None
    assert merge(pending, patch) == placed
    back = merge_patch(placed, pending)
    assert back["allocation"] is None
    assert merge(placed, back) == pending


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": {"b": {"c": 3}}}),
        ({"a": [1, 2]}, {"a": [2]}),
        ({"a": 0.0}, {"a": 0}),
        ({"a": {"b": {"c": 1}}, "d": []}, {"a": {"b": {"e": 1}}, "d": [{}]}),
    ],
)
def test_a_merge_patch_leads_from_one_to_the_other(old: Obj, new: Obj) -> None:
    patch = merge_patch(old, new)
    assert merge(old, patch) == new
    assert (patch == {}) is (old == new)


def test_the_gist_of_a_waiting_claim_leaves_its_numbers_out() -> None:
    seven = status_of(deviceclaim(), plan=waiting(Code.FRAGMENTED, message="best node has 7"))
    six = status_of(
        deviceclaim(status=seven), plan=waiting(Code.FRAGMENTED, message="best node has 6", nearest="fits with 6")
    )
    assert gist(seven) == gist(six)
    assert merge_patch(seven, six)
    other = status_of(deviceclaim(status=seven), plan=waiting(Code.UNHEALTHY))
    assert gist(seven) != gist(other)


# What is said


@pytest.mark.parametrize(
    ("claim", "members", "plan", "fresh", "expected"),
    [
        pytest.param(
            deviceclaim(), [member()], None, True, ("Placed", "replica 0 on n1: gpu-0", False), id="devices were found"
        ),
        pytest.param(
            deviceclaim(),
            [],
            waiting(Code.FRAGMENTED),
            False,
            ("Fragmented", "needs 8, best node has 7", False),
            id="a reason to wait",
        ),
        pytest.param(
            deviceclaim(),
            [],
            waiting(Code.INVALID_CLAIM),
            False,
            ("InvalidClaim", "needs 8, best node has 7", True),
            id="a reason that somebody has to remove",
        ),
        pytest.param(deviceclaim(), [member(state=STATE.IN_USE)], None, False, None, id="in use says the pod itself"),
        pytest.param(
            deviceclaim(deletionTimestamp=CREATED),
            [member(state=STATE.RELEASING)],
            None,
            False,
            ("Releasing", "its users are being removed", False),
            id="releasing",
        ),
    ],
)
def test_events_of_a_claim(
    claim: Obj, members: list[Member], plan: ClaimPlan | None, fresh: bool, expected: tuple[str, str, bool] | None
) -> None:
    facts = read_claim(claim)
    notice = claim_notice(facts, status_of(claim, *members, plan=plan), members if fresh else [])
    assert (None if notice is None else (notice.reason, notice.message, notice.warning)) == expected


def test_an_event_is_not_repeated_while_its_reason_stays() -> None:
    first = status_of(deviceclaim(), plan=waiting(Code.FRAGMENTED))
    claim = deviceclaim(status=first)
    second = status_of(claim, plan=waiting(Code.FRAGMENTED, message="best node has 6"))
    assert claim_notice(read_claim(claim), second, []) is None
    third = status_of(claim, plan=waiting(Code.UNHEALTHY, Code.FRAGMENTED))
    notice = claim_notice(read_claim(claim), third, [])
    assert notice is not None
    assert notice.reason == "Unhealthy"


def test_many_placed_replicas_are_one_event() -> None:
    fresh = [member(index) for index in range(9)]
    notice = claim_notice(read_claim(deviceclaim(replicas=9)), status_of(deviceclaim(replicas=9), *fresh), fresh)
    assert notice is not None
    assert notice.message.endswith("and 5 more")


def test_a_missing_device_is_an_alarm_once() -> None:
    ailing = Ailing(missing=("gpu-0 on n1",))
    status = status_of(deviceclaim(), member(), ailing=ailing)
    notice = claim_notice(read_claim(deviceclaim()), status, [])
    assert notice is not None
    assert (notice.reason, notice.warning) == ("DeviceMissing", True)
    assert claim_notice(read_claim(deviceclaim(status=status)), status, []) is None


# Pools


def pool_of(
    plan: PoolPlan | None,
    report: PoolReport | None = None,
    stored: Obj | None = None,
    now: float = START,
    fragmentation: Mapping[str, float] = {},
) -> Obj:
    made = pool_status(read_pool(devicepool(status=stored)), report or PoolReport(), plan, fragmentation, now)
    DevicePoolStatus.model_validate(made)
    return made


COUNTS = {"gpu": DeviceCounts(capacity=8, free=5, allocated=3), "nic": DeviceCounts(capacity=4, free=4)}


def test_a_pool_shows_counts_by_device_name() -> None:
    status = pool_of(PoolPlan("training", COUNTS))
    assert status["devices"]["gpu"] == {
        "capacity": 8,
        "free": 5,
        "allocated": 3,
        "reserved": 0,
        "releasing": 0,
        "unhealthy": 0,
        "missing": 0,
    }
    assert status["summary"] == "gpu 5/8, nic 4/4"
    assert conditions(status) == {"Ready": ("True", "InventoryRead")}


def test_a_pools_status_is_stable_and_its_gist_has_no_counts() -> None:
    first = pool_of(PoolPlan("training", COUNTS))
    assert merge_patch(first, pool_of(PoolPlan("training", COUNTS), stored=first, now=START + 99)) == {}
    fewer = {**COUNTS, "gpu": DeviceCounts(capacity=8, free=4, allocated=4)}
    second = pool_of(PoolPlan("training", fewer), stored=first, fragmentation={"gpu": 0.5, "nic": 0.0})
    assert second["fragmentation"] == {"gpu": 0.5, "nic": 0.0}
    assert pool_gist(first) == pool_gist(second)
    broken = pool_of(PoolPlan("training", COUNTS), PoolReport(guard_unavailable=True), stored=first)
    assert pool_gist(first) != pool_gist(broken)


def test_conditions_of_a_pool() -> None:
    report = PoolReport(guard_unavailable=True)
    mismatches = tuple(Mismatch(f"n{i}", "dgx/topo", "8 GPU rows, 4 GPUs") for i in range(7))
    mismatches += (Mismatch("m0", "dgx/topo", "line 3: unknown cell Q"),)
    status = pool_of(PoolPlan("training", {}, mismatches), report)
    assert conditions(status) == {
        "Ready": ("False", "GuardUnavailable"),
        "GuardUnavailable": ("True", "NotServed"),
        "TopologyMismatch": ("True", "MatrixUnusable"),
    }
    text = status["conditions"][-1]["message"]
    assert "n0, n1, n2, n3, n4 and 2 more: 8 GPU rows, 4 GPUs" in text
    assert "on m0: line 3: unknown cell Q" in text


def test_status_that_is_written_is_what_the_crd_knows() -> None:
    """Every field is declared, so that nothing is pruned and written again (E5)."""
    status = status_of(
        deviceclaim(replicas=2),
        member(),
        plan=waiting(Code.FRAGMENTED, nearest="fits with 7"),
        ailing=Ailing(missing=("x",)),
    )
    assert DeviceClaimStatus.model_validate(status).model_dump(mode="json", exclude_unset=True) == status
    pool = pool_of(PoolPlan("training", COUNTS, (Mismatch("n1", "dgx/topo", "line 3"),)))
    assert DevicePoolStatus.model_validate(pool).model_dump(mode="json", exclude_unset=True) == pool
