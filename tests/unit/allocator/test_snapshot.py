"""Snapshots made of others by edits: the same claims as a list would have, and the way from one to another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import checks, make, strategies

from adjoin_allocator import Claim, ClaimUID, HoldKind, Memo, Snapshot, Standing, plan
from adjoin_allocator.snapshot import FOLDED, REMEMBERED, Claims, path


def names(claims: Claims) -> list[str]:
    assert len(claims) == len(list(claims))
    return [claim.name for claim in claims]


def some(*called: str, **more: int) -> list[Claim]:
    return [make.claim(name, **more) for name in called]


BASE = Claims(tuple(some("a", "b", "c")))


@pytest.mark.parametrize(
    ("put", "drop", "expected"),
    [
        pytest.param([], [], ["a", "b", "c"], id="nothing"),
        pytest.param(["d", "e"], [], ["a", "b", "c", "d", "e"], id="new ones come last"),
        pytest.param(["b"], [], ["a", "b", "c"], id="one of the same UID takes the place"),
        pytest.param([], ["uid-b"], ["a", "c"], id="dropped"),
        pytest.param(["b"], ["uid-b"], ["a", "c", "b"], id="dropped and put is a new one"),
        pytest.param(["d", "d"], [], ["a", "b", "c", "d"], id="put twice is put once"),
    ],
)
def test_what_an_edit_makes(put: list[str], drop: list[str], expected: list[str]) -> None:
    new = some(*put, priority=1)
    made = BASE.edited(new, map(ClaimUID, drop))
    assert names(made) == expected
    assert [claim.priority for claim in made] == [int(name in put) for name in expected]
    assert names(BASE) == ["a", "b", "c"]


def test_an_edit_that_changes_nothing_is_no_edit() -> None:
    assert BASE.edited([BASE[1]], []) is BASE
    snapshot = make.snapshot(claims=BASE)
    assert snapshot.edited() is snapshot


def test_a_claim_that_is_not_there_cannot_be_dropped() -> None:
    with pytest.raises(KeyError, match="uid-x"):
        BASE.edited([], [ClaimUID("uid-x")])
    twins = Claims(tuple(some("a", "a")))
    with pytest.raises(KeyError, match="uid-x"):
        twins.edited([], [ClaimUID("uid-x")])


def test_of_two_claims_of_one_uid_both_are_meant() -> None:
    twins = Claims(tuple(some("a", "b", "a")))
    assert names(twins.edited([], [ClaimUID("uid-a")])) == ["b"]
    assert names(twins.edited(some("a", "c"), [])) == ["a", "b", "c"]


def test_many_edits_later_the_claims_are_still_the_same() -> None:
    made = BASE
    for number in range(FOLDED + 40):
        made = made.edited(some(f"x{number}"), [ClaimUID(f"uid-x{number - 3}")] if number > 2 else [])
    last = FOLDED + 39
    assert names(made) == ["a", "b", "c", f"x{last - 2}", f"x{last - 1}", f"x{last}"]
    assert len(made.history) == REMEMBERED
    assert made.edited([], [ClaimUID("uid-b")])[1].name == "c"


def test_no_way_leads_to_claims_of_another_origin() -> None:
    assert path(BASE, Claims(tuple(some("a")))) is None
    far = BASE
    for number in range(REMEMBERED + 1):
        far = far.edited(some(f"x{number}"), [])
    assert path(BASE, far) is None
    assert path(far, BASE) is None


@st.composite
def trees(draw: st.DrawFn) -> list[Claims]:
    """Collections that were edited from one another, each with any earlier one as its origin."""
    made = [BASE]
    for step in range(draw(st.integers(1, 10))):
        origin = draw(st.sampled_from(made))
        present = [claim.name for claim in origin]
        put = draw(st.lists(st.sampled_from([*"abcdef"]), max_size=3, unique=True))
        drop = draw(st.lists(st.sampled_from(present), max_size=2, unique=True)) if present else []
        made.append(origin.edited(some(*put, priority=step), [ClaimUID(f"uid-{name}") for name in drop]))
    return made


@settings(max_examples=200, deadline=None)
@given(trees(), st.data())
def test_the_way_from_one_to_another_leads_there(made: list[Claims], data: st.DataObject) -> None:
    old, new = data.draw(st.sampled_from(made)), data.draw(st.sampled_from(made))
    steps = path(old, new)
    assert steps is not None
    now = dict(old.ticketed())
    for step in steps:
        for ticket, claim in step.removed:
            assert now.pop(ticket) is claim
        for ticket, claim in step.added:
            assert ticket not in now
            now[ticket] = claim
    assert sorted(now.items(), key=lambda entry: entry[0]) == list(new.ticketed())


@settings(max_examples=120, deadline=None)
@given(strategies.snapshots(waiting=3), st.data())
def test_the_plan_of_an_edited_snapshot_is_that_of_the_same_claims(snapshot: Snapshot, data: st.DataObject) -> None:
    """Whatever was planned before with the memo: claims placed, taken away, changed, and back to where it began."""
    memo = Memo()
    made = [snapshot]
    for step in range(data.draw(st.integers(1, 6))):
        base = data.draw(st.sampled_from(made))
        answer = plan(base, make.NOW, memo)
        what = data.draw(st.sampled_from(("place", "place", "drop", "new", "release", "node", "device", "hold")))
        claims = list(base.claims)
        if what == "place":
            edited = base.edited(
                make.after(claim, answer.claims[claim.uid].placements)
                for claim in claims
                if claim.uid in answer.claims and answer.claims[claim.uid].placements
            )
        elif what == "node":
            name = data.draw(st.sampled_from(sorted(base.nodes)))
            changed = replace(base.nodes[name], unschedulable=data.draw(st.booleans()), ready=data.draw(st.booleans()))
            edited = replace(base, nodes={**base.nodes, name: changed})
        elif what == "device":
            name = data.draw(st.sampled_from(sorted(base.inventory)))
            first, *others = base.inventory[name]
            ill = replace(first, standing=data.draw(st.sampled_from(Standing)))
            edited = replace(base, inventory={**base.inventory, name: (ill, *others)})
        elif what == "hold":
            one = data.draw(st.sampled_from([device.id for given in base.inventory.values() for device in given]))
            edited = replace(base, holds={one: make.hold(data.draw(st.sampled_from(HoldKind)))})
        elif what == "new" or not claims:
            edited = base.edited([data.draw(strategies.claims(f"new-{step}", step))])
        else:
            claim = data.draw(st.sampled_from(claims))
            gone = replace(claim, deleting=True)
            edited = base.edited(drop=[claim.uid]) if what == "drop" else base.edited([gone])
        made.append(edited)
    for each in made:
        warm = plan(each, make.NOW, memo)
        checks.assert_valid(each, warm)
        anew = replace(each, claims=tuple(each.claims))
        assert warm == plan(anew, make.NOW)
