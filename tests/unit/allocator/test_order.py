"""Service order: priority, age, UID, then the order of the input."""

from __future__ import annotations

import pytest
from tests.support import make

from adjoin_allocator import Claim, ClaimUID
from adjoin_allocator.order import service_order

NOW = make.NOW


def one(name: str, uid: str | None = None, **more: object) -> Claim:
    return make.claim(name, uid=ClaimUID(uid or f"made-up-{name}"), has_uid=uid is not None, **more)


@pytest.mark.parametrize(
    ("claims", "served"),
    [
        pytest.param([one("a", "1"), one("b", "2", priority=1)], "ba", id="higher priority first"),
        pytest.param([one("a", "1", priority=-1), one("b", "2")], "ba", id="a negative priority is low"),
        pytest.param([one("a", "1", created=NOW), one("b", "2", created=NOW - 5)], "ba", id="then the older"),
        pytest.param([one("a", "1", created=None), one("b", "2", created=NOW - 1)], "ba", id="no age counts as now"),
        pytest.param([one("a", "2"), one("b", "1")], "ba", id="then by UID"),
        pytest.param([one("b"), one("a")], "ba", id="without UID as they come"),
        pytest.param([one("b", "2"), one("a"), one("c", "1")], "bac", id="one missing UID leaves equals as they come"),
        pytest.param([one("b"), one("a", "1", priority=9), one("c", "0", priority=9)], "cab", id="but only its equals"),
    ],
)
def test_order(claims: list[Claim], served: str) -> None:
    assert "".join(claim.name for claim in service_order(claims, NOW)) == served
