"""Who waits for parts of cards that others keep parts of: what is on its way back counts, and only that is named."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.objects import CREATED
from tests.support.planning import plan_objects
from tests.unit.scenarios.test_mode_reports import cards, claim, dynamic, held, part, share, slots

Obj = dict[str, Any]
PREEMPTING = {"preemption": {"withinTenant": "LowerPriority"}}


def leaving(obj: Obj) -> Obj:
    """The claim, deleted a moment ago."""
    gone = {"deletionTimestamp": CREATED, "finalizers": ["adjoin.dev/cleanup"]}
    return {**obj, "metadata": {**obj["metadata"], **gone}}


def small(start: int) -> Obj:
    """A claim with a small partition."""
    mine = held("g0", "mig", profile="1g.10gb", start=start)
    return claim(f"x{start}", part("mig", profile="1g.10gb"), status=[mine])


@pytest.mark.parametrize(
    ("share", "goes", "stays", "asked"),
    [
        (
            slots(4),
            claim("a", part("ts", slots=3), status=[held("g0", "ts", slots=3)]),
            [claim("b", part("ts"), status=[held("g0", "ts", slots=1)])],
            part("ts"),
        ),
        (dynamic("1g.10gb", "3g.40gb"), small(5), [small(0), small(1)], part("mig", profile="3g.40gb")),
    ],
    ids=["a slot comes back", "a partition that is in the way comes back"],
)
def test_nobody_is_evicted_while_a_part_that_will_do_is_on_its_way_back(
    share: Obj, goes: Obj, stays: list[Obj], asked: Obj
) -> None:
    pool = cards(1, tenancy=PREEMPTING)
    ran = plan_objects([pool, share, leaving(goes), *stays, claim("high", asked, priority=10)])
    assert ran.shown["preempted"] == []
    assert [ran.claims[each["metadata"]["name"]]["phase"] for each in stays] == ["Ready"] * len(stays)
    assert ran.codes("high")[0] == "DeviceReleasing"


def test_who_keeps_another_part_of_the_card_is_not_said_to_release_it() -> None:
    ran = plan_objects(
        [
            cards(1, tenancy=PREEMPTING),
            dynamic("1g.10gb", "3g.40gb"),
            *map(small, (0, 1, 5)),
            claim("high", part("mig", profile="3g.40gb"), priority=10),
        ]
    )
    assert [each["name"] for each in ran.shown["preempted"]] == ["x5"]
    (reason,) = ran.claims["high"]["reasons"]
    assert reason["message"].endswith("is still being released by team/x5")


def test_a_promised_time_slice_says_how_many_slots_it_is() -> None:
    low = claim("low", part("ts"), status=[held("g0", "ts", slots=1)])
    ran = plan_objects([cards(1, tenancy=PREEMPTING), slots(1), low, claim("high", part("ts"), priority=10)])
    (promise,) = ran.claims["high"]["nominated"]
    assert promise["devices"][0]["share"] == {"name": "ts", "slots": 1}


def test_beside_a_partition_that_the_table_does_not_have_by_now_nothing_is_given() -> None:
    """Its four slices would be given twice: the edited table does not say how far it reaches."""
    table = [{"profile": "one", "starts": list(range(8)), "size": 1, "compute": 1}]
    cut = {"table": table, "dynamic": {"profiles": ["one"]}}
    objects = [cards(1), share("mig", "Partitioned", partitioned=cut), claim("b", part("mig", profile="one"))]
    assert plan_objects(objects).claims["b"]["phase"] == "Allocated"
    big = claim("a", part("mig", profile="big"), status=[held("g0", "mig", profile="big", start=0)])
    waiting = plan_objects([*objects, big]).claims["b"]
    assert waiting["phase"] == "Pending"
    assert waiting["reasons"][0]["message"].endswith("no partition (big at 0: unknown profile)")
    assert waiting["nearest"] == "fits once DeviceClaim team/a ends"
