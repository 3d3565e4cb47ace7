"""Devices that are in a share's mode although nobody holds a part of them: bound for a while, and preferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.support import make
from tests.support.checks import assert_valid

from adjoin_allocator import Claim, Code, DeviceID, Memo, Mode, Request, ShareMode, Snapshot, plan

CARDS = [make.card(f"gpu-{at}", "node-a") for at in range(3)]
SHARES = [make.share("half"), make.share("slots", mode=ShareMode.TIME_SLICED, slots=2)]


def _bound(card: int, seconds: float | None, share: str = "half") -> Mapping[DeviceID, Mode]:
    until = None if seconds is None else make.NOW + seconds
    return {CARDS[card].id: Mode(share, until)}


def _with(modes: Mapping[DeviceID, Mode], *claims: Claim) -> Snapshot:
    return replace(make.snapshot(CARDS, claims, shares=SHARES), modes=modes)


def _cards(snapshot: Snapshot, name: str, memo: Memo | None = None) -> list[str]:
    decided = plan(snapshot, make.NOW, memo)
    assert_valid(snapshot, decided)
    answer = decided.claims[make.claim(name).uid]
    return [device.id.device for placement in answer.placements for device in placement.devices]


WHOLE = make.request("gpu", 3)
PART = make.part(milli=500)


@pytest.mark.parametrize(
    ("seconds", "fits"),
    [
        pytest.param(60.0, False, id="within its dwell it is not given whole"),
        pytest.param(0.0, True, id="when its dwell is over it is"),
        pytest.param(None, True, id="without one it is as well"),
    ],
)
def test_a_device_is_bound_to_its_share_for_its_dwell(seconds: float | None, fits: bool) -> None:
    snapshot = _with(_bound(0, seconds), make.claim("c", WHOLE))
    assert bool(_cards(snapshot, "c")) is fits
    counts = plan(snapshot, make.NOW).pools[make.POOL].counts["gpu"]
    assert (counts.free, counts.allocated) == ((0, 3) if fits else (3, 0))
    if not fits:
        reasons = plan(snapshot, make.NOW).claims[make.claim("c").uid].reasons
        assert reasons[0].code in (Code.INSUFFICIENT_DEVICES, Code.FRAGMENTED)


def test_what_is_bound_serves_its_own_share_and_no_other() -> None:
    bound = {card.id: Mode("half", make.NOW + 60) for card in CARDS}
    assert _cards(_with(bound, make.claim("c", PART)), "c") == ["gpu-0"]
    other: Request = make.part(share="slots")
    snapshot = _with(bound, make.claim("c", other))
    assert _cards(snapshot, "c") == []
    assert plan(snapshot, make.NOW).claims[make.claim("c").uid].reasons[0].code is Code.SHARE_UNAVAILABLE


def test_parts_go_to_a_device_that_is_in_the_mode_already_and_whole_claims_do_not() -> None:
    """Nothing has to be made of it, or brought back."""
    made = _bound(1, None)
    assert _cards(_with(made, make.claim("c", PART)), "c") == ["gpu-1"]
    assert _cards(_with(_bound(0, None), make.claim("c", make.request("gpu"))), "c") == ["gpu-1"]
    assert _cards(_with(_bound(0, None, "slots"), make.claim("c", PART)), "c") == ["gpu-1"]


def test_what_is_remembered_does_not_outlive_a_dwell() -> None:
    """The same answer as that of a fresh process, before and after."""
    memo = Memo()
    for modes in (_bound(0, 60.0), _bound(0, 0.0), _bound(2, 60.0), {}, _bound(1, None)):
        for request in (WHOLE, PART, make.request("gpu")):
            snapshot = _with(modes, make.claim("c", request))
            assert _cards(snapshot, "c", memo) == _cards(snapshot, "c")
            assert plan(snapshot, make.NOW, memo).pools == plan(snapshot, make.NOW).pools


def test_a_bound_device_counts_among_those_that_a_share_has_split() -> None:
    shares = [make.share("half", max_devices=1)]
    snapshot = replace(make.snapshot(CARDS, [make.claim("c", PART)], shares=shares), modes=_bound(2, 60.0))
    assert _cards(snapshot, "c") == ["gpu-2"]
