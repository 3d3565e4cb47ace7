"""What would make a claim fit: always true, always there when a single change helps, the mildest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support import make, oracle, strategies

from adjoin_allocator import (
    SCOPES,
    Alternative,
    Claim,
    ClaimUID,
    Device,
    DeviceID,
    Hold,
    HoldKind,
    HostAsk,
    PlacedReplica,
    Plan,
    Policy,
    ReplicaState,
    Request,
    Scope,
    Snapshot,
    plan,
)


def nearest(snapshot: Snapshot) -> str | None:
    return plan(snapshot, make.NOW).claims[ClaimUID("uid-claim")].nearest


GB200 = [make.device(f"gpu-{at}", root=f"gpu-root-{at}") for at in range(4)]
GB200 += [make.device(f"nic-{at}", root=f"nic-root-{at}", numa=at // 2) for at in range(4)]
NICS = [make.device(f"nic-{at}", attributes={"dra.net/rail": 0}) for at in range(4)]


@pytest.mark.parametrize(
    ("devices", "claim", "words"),
    [
        pytest.param(
            GB200,
            make.pairs("claim", 1, make.required("PCIeRoot", "gpu", "nic")),
            "fits with scope Node instead of PCIeRoot",
            id="root complexes that never match: the node",
        ),
        pytest.param(
            GB200,
            make.pairs("claim", 1, make.required("NUMANode", "gpu", "nic")),
            "fits with scope Node instead of NUMANode",
            id="a NUMA node that is not published",
        ),
        pytest.param(
            make.shared_roots(),
            make.pairs("claim", 4, make.required("PCIeSwitch", "gpu", "nic")),
            "fits with scope PCIeRoot instead of PCIeSwitch",
            id="one step farther is enough",
        ),
        pytest.param(
            make.rails(gpus=4),
            make.pairs("claim", 4, make.required("PCIeSwitch", "gpu", "nic"), make.required("NUMANode", "gpu")),
            "fits with scope Node instead of NUMANode over gpu",
            id="which of two lines it is",
        ),
        pytest.param(
            make.flat(gpus=4, nics=4),
            make.pairs("claim", 2, make.required("PCIeSwitch", "gpu", "nic"), make.required("NVLink", "gpu")),
            "fits with policy Preferred instead of Required in every line",
            id="two lines that both must give way",
        ),
        pytest.param(
            NICS,
            make.claim("claim", make.request("nic", 2), make.distinct("dra.net/rail", "nic")),
            "fits without Distinct of dra.net/rail",
            id="a rail for each, where there is one",
        ),
        pytest.param(
            make.flat(gpus=7, nics=8),
            make.claim("claim", make.request("gpu", 8), make.request("nic", 8)),
            "fits with count 7 instead of 8 in request gpu",
            id="one less of one request",
        ),
        pytest.param(
            make.flat(gpus=7, nics=7), make.pairs("claim", 8), "fits with 7 gpu, 7 nic", id="one less of both"
        ),
        pytest.param(
            make.flat(gpus=5, nics=9),
            make.claim("claim", make.request("gpu", 6), make.request("nic", 12)),
            "fits with 4 gpu, 8 nic",
            id="less of both in their ratio",
        ),
        pytest.param(
            make.flat(gpus=2),
            make.claim("claim", make.selecting("gpu", "true", "device.attributes['x.io'].y == 1", count=2)),
            "fits without selector 2 of 2 in request gpu",
            id="the one selector that nobody matches",
        ),
        pytest.param(
            make.flat(gpus=2),
            make.claim("claim", make.selecting("gpu", "false")),
            "fits without its selector in request gpu",
            id="the only selector",
        ),
        pytest.param(make.flat(gpus=0, nics=2), make.pairs(), None, id="nothing that could be changed"),
    ],
)
def test_smallest_change(devices: Sequence[Device], claim: Claim, words: str | None) -> None:
    assert nearest(make.snapshot(devices, [claim])) == words


def test_a_placed_claim_is_told_nothing() -> None:
    assert nearest(make.snapshot(make.flat(), [make.claim()])) is None


def test_all_that_are_left_instead_of_all() -> None:
    gpus = make.flat(gpus=4)
    claims = [make.holding("other", gpus[:1], created=1.0), make.claim("claim", make.everything())]
    assert nearest(make.snapshot(gpus, claims)) == "fits with count 3 instead of all in request gpu"


WAITING = [make.device(f"gpu-{at}", "node-3") for at in range(5)]


def holding(name: str, *at: int, **more: Any) -> Claim:
    return make.holding(name, [WAITING[one] for one in at], created=1.0, **more)


@pytest.mark.parametrize(
    ("claims", "holds", "asked", "words"),
    [
        pytest.param(
            [holding("job-b", 0, 1, 2, 3, deleting=True)],
            {},
            make.request("gpu", 5),
            "fits when team/job-b has given back node-3 gpu-0..gpu-3 (releasing)",
            id="what is on its way back anyway",
        ),
        pytest.param(
            [holding("job-b", 0, deleting=True), holding("job-c", 2, deleting=True)],
            {WAITING[3].id: make.hold(HoldKind.RELEASING)},
            make.request("gpu", 5),
            "fits when team/job-b has given back node-3 gpu-0 and team/job-c has given back node-3 gpu-2 "
            "and ResourceClaim other/theirs has given back node-3 gpu-3 (releasing)",
            id="of all who give something back",
        ),
        pytest.param(
            [holding("a", 0), holding("b", 1, 2), holding("c", 3, 4)],
            {},
            make.request("gpu"),
            "fits once DeviceClaim team/a ends",
            id="of those whose end would do the one with the fewest devices",
        ),
        pytest.param(
            [holding("a", 0, 1, 2)],
            {WAITING[3].id: make.hold(), WAITING[4].id: make.hold()},
            make.request("gpu"),
            "fits once ResourceClaim other/theirs ends",
            id="a claim that is not Adjoin's",
        ),
        pytest.param(
            [holding("a", 0, 1, state=ReplicaState.RELEASING), holding("b", 2, 3, 4)],
            {},
            make.request("gpu"),
            "fits once DeviceClaim team/b ends",
            id="not what an earlier claim gives back and wants again",
        ),
        pytest.param(
            [holding("a", 0, 1, 2, 3, 4), make.claim("first", make.request("gpu"), priority=9)],
            {},
            make.request("gpu"),
            None,
            id="not what somebody who is served earlier would take",
        ),
        pytest.param(
            [holding("a", 0, 1, 2, 3, 4), make.claim("first", make.request("gpu", 6), priority=9)],
            {},
            make.request("gpu"),
            "fits once DeviceClaim team/a ends",
            id="nor is it kept back for somebody whom it does not help",
        ),
        pytest.param(
            [holding("a", 0, 1), holding("b", 2, 3), holding("c", 4)],
            {},
            make.everything(),
            "fits once DeviceClaim team/a and DeviceClaim team/b and DeviceClaim team/c end",
            id="everybody who is in the way",
        ),
    ],
)
def test_waiting_for_others(
    claims: list[Claim], holds: dict[DeviceID, Hold], asked: Request, words: str | None
) -> None:
    assert nearest(make.snapshot(WAITING, [*claims, make.claim("claim", asked)], holds=holds)) == words


@pytest.mark.parametrize(
    ("nodes", "asked", "words"),
    [
        pytest.param(
            [(4000, None), (64000, None)], HostAsk(96000), "fits with host cpu 64 instead of 96", id="less CPU"
        ),
        pytest.param([(250, None)], HostAsk(1500), "fits with host cpu 250m instead of 1500m", id="parts of a core"),
        pytest.param(
            [(None, 1 << 39), (None, 1 << 36)],
            HostAsk(memory_bytes=1 << 40),
            "fits with host memory 512Gi instead of 1Ti",
            id="less memory",
        ),
        pytest.param([(1000, 1 << 30)], HostAsk(2000, 1 << 31), None, id="not less of both"),
        pytest.param([(0, None)], HostAsk(1000), None, id="not nothing at all"),
    ],
)
def test_less_of_the_host(nodes: list[tuple[int | None, int | None]], asked: HostAsk, words: str | None) -> None:
    devices, objects = [], []
    for number, (cpu, memory) in enumerate(nodes):
        devices += make.flat(f"n{number}", 1)
        objects.append(make.node(f"n{number}", cpu_milli=cpu, memory_bytes=memory))
    assert nearest(make.snapshot(devices, [make.claim("claim", host=asked)], nodes=objects)) == words


def test_who_waits_behind_an_equal_claim_is_told_what_it_can_change_itself() -> None:
    claims = [holding("a", 0, 1, 2, deleting=True), *(make.claim(name, make.request("gpu", 4)) for name in "xy")]
    answer = plan(make.snapshot(WAITING, claims), make.NOW)
    told = [answer.claims[ClaimUID(f"uid-{name}")].nearest for name in "xy"]
    assert told == [
        "fits when team/a has given back node-3 gpu-0..gpu-2 (releasing)",
        "fits with count 2 instead of 4 in request gpu",
    ]


# The text says what to change, so a reader can do it and so can a test.


def changed(claim: Claim, words: str) -> Claim:
    """The claim with the change that `words` tell."""
    if found := re.fullmatch(r"fits with scope (\w+) instead of (\w+)(?: over (.+))?", words):
        new, old, over = found.groups()
        lines = [line for line in claim.affinity if line.policy is Policy.REQUIRED and line.scope is Scope(old)]
        lines = [line for line in lines if over in (None, ", ".join(line.requests))]
        return swapped(claim, claim.affinity.index(lines[0]), Scope(new))
    if found := re.fullmatch(r"fits with host (cpu|memory) (\d+)(m|[KMGT]i|) instead of .+", words):
        scale = {"m": 1, "": 1000} if found[1] == "cpu" else {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
        name = {"cpu": "cpu_milli", "memory": "memory_bytes"}[found[1]]
        return replace(claim, host=replace(claim.host, **{name: int(found[2]) * scale[found[3]]}))
    if found := re.fullmatch(r"fits without (?:its selector|selector (\d+) of \d+) in request (.+)", words):
        return unselected(claim, found[2], int(found[1] or 1) - 1)
    if found := re.fullmatch(r"fits without (\w+) of (.+)", words):
        policy, attribute = found.groups()
        kept = [line for line in claim.affinity if (line.policy, line.attribute) != (Policy(policy), attribute)]
        return replace(claim, affinity=tuple(kept))
    if found := re.fullmatch(r"fits with count (\d+) instead of (?:\d+|all) in request (.+)", words):
        return counted(claim, {found[2]: int(found[1])})
    if words.startswith(("fits with policy Preferred", "fits without any")):
        return softened(claim)
    numbers = re.findall(r"(\d+) ([\w/-]+)", words.removeprefix("fits with "))
    return counted(claim, {name: int(count) for count, name in numbers})


def swapped(claim: Claim, at: int, scope: Scope) -> Claim:
    lines = list(claim.affinity)
    lines[at] = replace(lines[at], scope=scope)
    return replace(claim, affinity=tuple(lines))


def softened(claim: Claim) -> Claim:
    lines = [replace(line, policy=Policy.PREFERRED) for line in claim.affinity if line.scope is not None]
    return replace(claim, affinity=tuple(lines))


Edit = Callable[[Request | Alternative], dict[str, Any]]


def edited(claim: Claim, edits: Mapping[str, Edit]) -> Claim:
    """The claim with changes to requests, and to alternatives of them (`gpu/half`)."""
    requests = []
    for one in claim.requests:
        if one.name in edits:
            one = replace(one, **edits[one.name](one))
        ways = [
            replace(way, **edits[f"{one.name}/{way.name}"](way)) if f"{one.name}/{way.name}" in edits else way
            for way in one.first_of
        ]
        requests.append(replace(one, first_of=tuple(ways)))
    return replace(claim, requests=tuple(requests))


def unselected(claim: Claim, name: str, at: int) -> Claim:
    return edited(claim, {name: lambda one: {"selectors": (*one.selectors[:at], *one.selectors[at + 1 :])}})


def counted(claim: Claim, counts: Mapping[str, int]) -> Claim:
    def to(count: int) -> Edit:
        return lambda _: {"count": count, "all_devices": False}

    return edited(claim, {name: to(count) for name, count in counts.items()})


def single_changes(claim: Claim) -> Iterator[Claim]:
    """Every claim that differs by one of the changes that are looked for."""
    for at, line in enumerate(claim.affinity):
        if line.policy is Policy.REQUIRED and line.scope is not None:
            for scope in SCOPES[line.scope.rank + 1 :]:
                yield swapped(claim, at, scope)
        elif line.scope is None:
            yield replace(claim, affinity=(*claim.affinity[:at], *claim.affinity[at + 1 :]))
    for one in claim.requests:
        for at in range(len(one.selectors)):
            yield unselected(claim, one.name, at)
        for count in range(1, 9 if one.all_devices else one.count):
            yield counted(claim, {one.name: count})
    yield softened(claim)


def waited(snapshot: Snapshot, words: str) -> Snapshot:
    """The snapshot once what `words` wait for has happened."""
    if words.startswith("fits when "):
        for name, node in re.findall(r"(\S+) has given back (\S+) ", words):
            snapshot = given_back(snapshot, name, node)
        return snapshot
    names = [name.rpartition(" ")[2] for name in re.sub(r"^fits once | ends?$", "", words).split(" and ")]
    kept = tuple(claim for claim in snapshot.claims if f"{claim.namespace}/{claim.name}" not in names)
    holds = {one: hold for one, hold in snapshot.holds.items() if hold.holder.rpartition(" ")[2] not in names}
    return replace(snapshot, claims=kept, holds=holds)


def given_back(snapshot: Snapshot, name: str, node: str) -> Snapshot:
    def stays(claim: Claim, one: PlacedReplica) -> bool:
        return one.node != node or not (claim.deleting or one.state is ReplicaState.RELEASING)

    claims = []
    for claim in snapshot.claims:
        if f"{claim.namespace}/{claim.name}" == name:
            claim = replace(claim, placed=tuple(one for one in claim.placed if stays(claim, one)))
        claims.append(claim)
    here = {one.id for one in snapshot.inventory[node]}
    holds = {
        one: hold
        for one, hold in snapshot.holds.items()
        if not (one in here and hold.kind is HoldKind.RELEASING and hold.holder.rpartition(" ")[2] == name)
    }
    return replace(snapshot, claims=tuple(claims), holds=holds)


def carried_out(snapshot: Snapshot, answer: Plan) -> Snapshot:
    """The snapshot with what the plan has placed."""
    claims = tuple(
        make.after(claim, answer.claims[claim.uid].placements) if claim.uid in answer.claims else claim
        for claim in snapshot.claims
    )
    return replace(snapshot, claims=claims)


def assert_true(snapshot: Snapshot) -> None:
    """What a plan of the snapshot tells its claims comes true when it is done, and where nothing is told no single
    change of the claim would have helped.
    """
    answer = plan(snapshot, make.NOW)
    done = carried_out(snapshot, answer)
    held = {device.id for claim in done.claims for replica in claim.placed for device in replica.devices}
    held |= set(done.holds)
    rooms = oracle.Rooms(done)
    for claim in done.claims:
        told = answer.claims.get(claim.uid)
        if told is None or not told.reasons:
            continue
        if told.nearest is None:
            for way in oracle.ways(claim):
                # Of a way for itself: the others do not fit either.
                plain = replace(way, requests=tuple(replace(one, first_of=()) for one in way.requests))
                assert all(oracle.best_place(done, other, held, rooms=rooms) is None for other in single_changes(plain))
            continue
        if told.nearest.startswith(("fits when ", "fits once ")):
            after = waited(done, told.nearest)
            assert after.claims != done.claims or after.holds != done.holds
        else:
            other = changed(claim, told.nearest)
            assert (other.requests, other.affinity, other.host) != (claim.requests, claim.affinity, claim.host)
            after = replace(done, claims=tuple(other if one is claim else one for one in done.claims))
        assert plan(after, make.NOW).claims[claim.uid].placements, told.nearest


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.snapshots(waiting=3))
def test_what_is_told_is_true_and_nothing_that_helps_is_kept_back(snapshot: Snapshot) -> None:
    assert_true(snapshot)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.snapshots(waiting=3))
def test_thousands_of_times_what_is_told_is_true(snapshot: Snapshot) -> None:
    assert_true(snapshot)
