"""What other tenants, or quotas, would have to be otherwise: the edited snapshot is planned, and the claim fits."""

from __future__ import annotations

import random
from dataclasses import replace
from re import findall, fullmatch

import pytest
from tests.support import make
from tests.support.answers import codes, nodes_of, of, planned

from adjoin_allocator import Claim, Code, PreemptionRules, Reclaim, Snapshot


def lent(*more: Claim, reclaim: Reclaim = Reclaim.NEVER, **asked: int) -> Snapshot:
    """Tenant `batch` has four of eight GPUs of one node, two of them borrowed; `web` has two of its six."""
    devices = make.flat(gpus=6)
    claims = [
        make.holding("own", devices[:2], tenant="batch", created=1.0),
        make.holding("more", devices[2:4], tenant="batch", created=2.0),
        make.holding("site", devices[4:], tenant="web", created=3.0),
        make.claim("claim", make.request("gpu", asked.get("count", 2)), tenant="web"),
    ]
    tenants = {
        "batch": make.tenant("batch", borrowing=4, gpu=2),
        "web": make.tenant("web", gpu=asked.get("quota", 6)),
    }
    pool = make.pool(tenants=tenants, preemption=PreemptionRules(False, reclaim, asked.get("young", 0)))
    return make.snapshot(devices, [*claims, *more], pools=[pool])


def test_a_tenant_that_borrows_what_another_one_needs_is_named() -> None:
    """A smaller count would not do: nothing at all is free."""
    snapshot = lent()
    answer = of(planned(snapshot))
    assert answer.nearest == "fits once tenant batch gives back 2 gpu that it borrows (DeviceClaim team/more)"
    assert nodes_of(planned(edited(snapshot, answer.nearest)))


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(lent(count=4), id="more than is borrowed"),
        pytest.param(lent(quota=3), id="more than its own quota"),
        pytest.param(
            lent(make.claim("older", make.request("gpu", 1), tenant="web", created=5.0)),
            id="who waits before would take it",
        ),
        pytest.param(
            lent(make.claim("again", make.request("gpu", 1), tenant="batch")), id="so would the one who gives"
        ),
    ],
)
def test_nothing_is_said_of_a_tenant_that_would_not_help(snapshot: Snapshot) -> None:
    assert "tenant batch" not in (of(planned(snapshot)).nearest or "")


def test_who_may_reclaim_by_the_rules_does_so_and_where_it_is_too_early_it_is_said() -> None:
    assert planned(lent(reclaim=Reclaim.ANY)).preempted
    answer = planned(lent(reclaim=Reclaim.ANY, young=10_000_000))
    assert not answer.preempted
    assert (of(answer).nearest or "").startswith("fits once tenant batch gives back 2 gpu")


def test_what_is_reserved_for_a_claim_is_no_reason_that_it_waits() -> None:
    """The two GPUs that `batch` borrows are held for it, since it has waited so long; it is told who has them."""
    plain = lent()
    pool = replace(plain.pools[make.POOL], hold_after=60.0)
    claims = tuple(replace(one, created=make.NOW - 100) if one.name == "claim" else one for one in plain.claims)
    snapshot = replace(plain, pools={pool.name: pool}, claims=claims)
    answer = of(planned(snapshot))
    assert answer == of(planned(replace(snapshot, pools=plain.pools)))
    assert answer.nearest == "fits once tenant batch gives back 2 gpu that it borrows (DeviceClaim team/more)"
    assert nodes_of(planned(edited(snapshot, answer.nearest)))


@pytest.mark.parametrize(
    ("claim", "reserved", "told"),
    [
        pytest.param(make.claim("claim", make.request("gpu", 4)), 2, "needs 4 gpu, 2 of 4 free", id="one replica"),
        pytest.param(
            make.gang("claim", make.request("gpu"), replicas=4),
            2,
            "needs 4 gpu for 4 members, 2 of 4 free",
            id="a gang",
        ),
    ],
)
def test_what_is_reserved_for_a_claim_counts_as_free_in_its_reasons(claim: Claim, reserved: int, told: str) -> None:
    devices = make.flat(gpus=4)
    claim = replace(claim, created=make.NOW - 100)
    other = make.claim("other")
    pools = [make.pool(hold_after=60.0)]
    answer = planned(make.snapshot(devices, [make.holding("runs", devices[:2]), claim, other], pools=pools))
    assert answer.pools[make.POOL].counts["gpu"].reserved == reserved
    assert of(answer).reasons[0].message == told
    assert codes(answer, "other") == [Code.HELD_FOR_OTHER]


def test_a_borrower_waits_for_another_one() -> None:
    """Six devices are lent in all, and `batch` has four of them."""
    devices = make.flat(gpus=12)
    tenants = {
        "batch": make.tenant("batch", borrowing=6, gpu=2),
        "web": make.tenant("web", borrowing=4, gpu=2),
        "idle": make.tenant("idle", gpu=4),
    }
    claims = [
        make.holding("own", devices[:6], tenant="batch", created=1.0),
        make.claim("claim", make.request("gpu", 4), tenant="web"),
    ]
    snapshot = make.snapshot(devices, claims, pools=[make.pool(tenants=tenants)])
    answer = planned(snapshot)
    assert codes(answer) == [Code.QUOTA_EXCEEDED]
    assert of(answer).nearest == "fits once tenant batch gives back 2 gpu that it borrows"
    less = replace(claims[0], placed=(replace(claims[0].placed[0], devices=claims[0].placed[0].devices[:4]),))
    assert nodes_of(planned(replace(snapshot, claims=(less, claims[1]))))


def test_fewer_devices_where_neither_quota_nor_devices_suffice() -> None:
    devices = make.flat(gpus=4)
    tenants = {"web": make.tenant("web", gpu=4)}
    claims = [
        make.holding("site", devices[:2], tenant="web", created=1.0),
        make.claim("claim", make.request("gpu", 4), tenant="web"),
    ]
    snapshot = make.snapshot(devices, claims, pools=[make.pool(tenants=tenants)])
    answer = planned(snapshot)
    assert codes(answer)[0] is Code.QUOTA_EXCEEDED
    assert of(answer).nearest == "fits with count 2 instead of 4 in request gpu"
    smaller = replace(claims[1], requests=(make.request("gpu", 2),))
    assert nodes_of(planned(replace(snapshot, claims=(claims[0], smaller))))


def edited(snapshot: Snapshot, words: str) -> Snapshot:
    """The snapshot with the change that a sentence speaks of."""
    quota = fullmatch(r"fits with quota (\d+) instead of \d+ of gpu for tenant (\w+)", words)
    if quota:
        (pool,) = snapshot.pools.values()
        mine = replace(pool.tenants[quota[2]], quota={"gpu": int(quota[1])})
        return replace(snapshot, pools={pool.name: replace(pool, tenants={**pool.tenants, quota[2]: mine})})
    count = fullmatch(r"fits with count (\d+) instead of \d+ in request gpu", words)
    if count:
        return replace(
            snapshot,
            claims=tuple(
                replace(each, requests=(replace(each.requests[0], count=int(count[1])),))
                if each.name == "claim"
                else each
                for each in snapshot.claims
            ),
        )
    ended = set(findall(r"DeviceClaim team/([\w-]+)", words))
    given = fullmatch(r"fits once tenant (\w+) gives back (\d+) gpu that it borrows", words)
    if given:
        left = int(given[2])
        for each in sorted(snapshot.claims, key=lambda each: sum(len(one.devices) for one in each.placed)):
            if each.tenant == given[1] and each.placed and left > 0:
                ended.add(each.name)
                left -= sum(len(one.devices) for one in each.placed)
    assert ended, words
    return replace(snapshot, claims=tuple(each for each in snapshot.claims if each.name not in ended))


def crowd(chance: random.Random) -> Snapshot:
    """Two nodes, three tenants that borrow from each other, and some who wait."""
    devices = [*make.flat("n1", 4), *make.flat("n2", 4)]
    tenants = {
        name: make.tenant(name, borrowing=chance.randint(0, 4), gpu=chance.randint(0, 4), weight=chance.randint(1, 2))
        for name in ("a", "b", "c")
    }
    claims: list[Claim] = []
    free = list(devices)
    while free and chance.random() < 0.9:
        count = chance.randint(1, min(3, len(free)))
        here = [device for device in free if device.node == free[0].node][:count]
        free = [device for device in free if device not in here]
        claims.append(
            make.holding(f"held-{len(claims)}", here, tenant=chance.choice("abc"), created=float(len(claims)))
        )
    for at in range(chance.randint(0, 2)):
        asked = make.request("gpu", chance.randint(1, 4))
        claims.append(
            make.claim(f"other-{at}", asked, tenant=chance.choice("abc"), created=make.NOW - chance.randint(1, 9))
        )
    claims.append(make.claim("claim", make.request("gpu", chance.randint(1, 4)), tenant="a", created=make.NOW - 5))
    return make.snapshot(devices, claims, pools=[make.pool(tenants=tenants)])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_said_of_tenants_makes_it_fit(seed: int) -> None:
    chance = random.Random(seed)
    kinds: set[str] = set()
    for number in range(150):
        snapshot = crowd(chance)
        answer = planned(snapshot).claims.get(snapshot.claims[-1].uid)
        if answer is None or answer.nearest is None or answer.placements:
            continue
        words = answer.nearest
        if words.startswith(("fits once DeviceClaim", "fits when")):
            continue  # Who ends is told whatever tenants may then have; see `waitfor`.
        kinds.add(" ".join(words.split()[:3]))
        again = planned(edited(snapshot, words)).claims.get(snapshot.claims[-1].uid)
        assert again is not None, (number, words)
        assert again.placements, (number, words)
    assert {"fits once tenant", "fits with quota"} <= kinds
