"""What would make a claim fit: always true, always there when a single change helps, the mildest first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support import make, oracle, strategies

from adjoin_allocator import SCOPES, Claim, ClaimUID, Device, Policy, Scope, Snapshot, plan


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


# The text says what to change, so a reader can do it and so can a test.


def changed(claim: Claim, words: str) -> Claim:
    """The claim with the change that `words` tell."""
    if found := re.fullmatch(r"fits with scope (\w+) instead of (\w+)(?: over (.+))?", words):
        new, old, over = found.groups()
        lines = [line for line in claim.affinity if line.policy is Policy.REQUIRED and line.scope is Scope(old)]
        lines = [line for line in lines if over in (None, ", ".join(line.requests))]
        return swapped(claim, claim.affinity.index(lines[0]), Scope(new))
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
    numbers = re.findall(r"(\d+) ([\w-]+)", words.removeprefix("fits with "))
    return counted(claim, {name: int(count) for count, name in numbers})


def swapped(claim: Claim, at: int, scope: Scope) -> Claim:
    lines = list(claim.affinity)
    lines[at] = replace(lines[at], scope=scope)
    return replace(claim, affinity=tuple(lines))


def softened(claim: Claim) -> Claim:
    lines = [replace(line, policy=Policy.PREFERRED) for line in claim.affinity if line.scope is not None]
    return replace(claim, affinity=tuple(lines))


def unselected(claim: Claim, name: str, at: int) -> Claim:
    requests = [
        replace(one, selectors=(*one.selectors[:at], *one.selectors[at + 1 :])) if one.name == name else one
        for one in claim.requests
    ]
    return replace(claim, requests=tuple(requests))


def counted(claim: Claim, counts: dict[str, int]) -> Claim:
    requests = [
        replace(one, count=counts[one.name], all_devices=False) if one.name in counts else one for one in claim.requests
    ]
    return replace(claim, requests=tuple(requests))


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


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.snapshots(waiting=2))
def test_what_is_told_is_true_and_nothing_that_helps_is_kept_back(snapshot: Snapshot) -> None:
    answer = plan(snapshot, make.NOW)
    held = {device.id for claim in snapshot.claims for replica in claim.placed for device in replica.devices}
    held |= set(snapshot.holds)
    for claim in answer.claims.values():
        held |= {device.id for placement in claim.placements for device in placement.devices}
    for claim in snapshot.claims:
        told = answer.claims.get(claim.uid)
        if told is None or not told.reasons:
            continue
        if told.nearest is not None:
            edited = changed(claim, told.nearest)
            assert (edited.requests, edited.affinity) != (claim.requests, claim.affinity)
            assert oracle.best_place(snapshot, edited, held) is not None
        else:
            for other in single_changes(claim):
                assert oracle.best_place(snapshot, other, held) is None
