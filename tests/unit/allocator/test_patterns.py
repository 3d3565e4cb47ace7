"""Candidate patterns: which sets of devices one replica could have."""

from __future__ import annotations

import pytest
from tests.support import joint_oracle, make

from adjoin_allocator import Affinity, Claim, Device, DeviceID, Memo, plan
from adjoin_allocator.nodes import State
from adjoin_allocator.patterns import STATES, Meter, Pattern, patterns
from adjoin_allocator.place import Ask

PAIR = (make.request("gpu", 2), make.request("nic", 1))
CASES = [
    pytest.param(make.claim(), id="one of eight"),
    pytest.param(make.claim("c", make.request("gpu", 3)), id="three of eight"),
    pytest.param(make.claim("c", *PAIR), id="two kinds"),
    pytest.param(make.claim("c", *PAIR, make.required("PCIeRoot", "gpu", "nic")), id="a line that most do not meet"),
    pytest.param(make.claim("c", make.everything("nic")), id="all there are"),
    pytest.param(make.claim("c", make.request("gpu", 9)), id="more than there are"),
]


def compiled(claim: Claim, devices: list[Device]) -> tuple[Memo, Ask, State]:
    memo = Memo()
    snapshot = make.snapshot(devices)
    plan(snapshot, make.NOW, memo)
    ask = memo.placer.ask(snapshot.pools[make.POOL], claim.requests, claim.affinity)
    ledger = memo.ledger.pools[make.POOL]
    return memo, ask, (ledger.index.views[0].shape, memo.placer.sort(ask, 0), ledger.free[0])


def named(devices: list[Device], found: list[Pattern]) -> dict[frozenset[DeviceID], tuple[int, ...]]:
    ordered = make.snapshot(devices).inventory[make.NODE]
    return {
        frozenset(device.id for at, device in enumerate(ordered) if one.fit.taken >> at & 1): one.distances
        for one in found
    }


def trimmed(distances: tuple[int, ...]) -> tuple[int, ...]:
    """Without slots at the end in which there are no pairs."""
    end = max((at + 1 for at, number in enumerate(distances) if number), default=0)
    return distances[:end]


@pytest.mark.parametrize("claim", CASES)
@pytest.mark.parametrize("bound", [pytest.param(1000, id="by trying all"), pytest.param(119, id="by following")])
def test_all_patterns_are_found_when_there_is_room_for_all(claim: Claim, bound: int) -> None:
    devices = make.shared_roots()
    memo, ask, state = compiled(claim, devices)
    found, complete = patterns(memo.fitter, ask.form, state, bound, Meter(100_000))
    assert complete
    expected = joint_oracle.choices(make.snapshot(devices, [claim]), claim)
    assert {taken: trimmed(distances) for taken, distances in named(devices, found).items()} == {
        taken: trimmed(distances) for taken, distances in expected.items()
    }


def test_the_nearest_come_first_and_those_that_go_together() -> None:
    devices = make.shared_roots()
    claim = make.claim("c", make.request("gpu", 2), make.preferred("PCIeRoot", "gpu"))
    memo, ask, state = compiled(claim, devices)
    found, complete = patterns(memo.fitter, ask.form, state, 4, Meter(1000))
    assert not complete
    assert [one.fit.taken.bit_count() for one in found] == [2] * 4
    together = 0
    for one in found:
        assert not together & one.fit.taken
        together |= one.fit.taken


def test_a_spent_meter_ends_it_and_says_so() -> None:
    memo, ask, state = compiled(make.claim("c", make.request("gpu", 3)), make.flat())
    meter = Meter(5)
    found, complete = patterns(memo.fitter, ask.form, state, 1000, meter)
    assert not complete
    assert len(found) == 5
    assert Meter(9).half().left == 5


def test_a_search_counts_by_what_it_looks_at() -> None:
    """On wires on which a search is long, few are done for the same budget."""
    tangled = [
        make.device(f"gpu-{at}", attributes={"resource.kubernetes.io/numaNode": (at % 4, (at + 1) % 4)})
        for at in range(10)
    ]
    claim = make.claim("c", make.request("gpu", 4), make.required("NUMANode", "gpu"))
    memo, ask, state = compiled(claim, tangled)
    answer = memo.fitter.fit(ask.form, state)
    meter = Meter(1_000_000)
    patterns(memo.fitter, ask.form, state, 1, meter)
    assert answer.states >= STATES
    assert 1_000_000 - meter.left >= 1 + answer.states // STATES


def test_lines_are_met_by_every_pattern() -> None:
    line: Affinity = make.required("NUMANode", "gpu")
    memo, ask, state = compiled(make.claim("c", make.request("gpu", 2), line), make.shared_roots())
    found, _ = patterns(memo.fitter, ask.form, state, 1000, Meter(1000))
    wiring = state[0].wiring
    assert found
    for one in found:
        first, second = (at for at in range(wiring.size) if one.fit.taken >> at & 1)
        assert wiring.met[line.scope][first] >> second & 1 if line.scope else False
