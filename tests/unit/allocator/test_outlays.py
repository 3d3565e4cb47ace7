"""What a replica will cost its tenant: told where the quota forbids it, and nothing is named as enough beside it.

Each kind of claim waits under each quota; whatever is said to make it fit is done, and the claim is planned anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from re import fullmatch

import pytest
from tests.support import make
from tests.support.answers import codes, of, planned

from adjoin_allocator import Alternative, Claim, Code, HostAsk, ReplicaState, Request, Scope, Snapshot
from adjoin_allocator.cel import Quantity

WAYS = (Alternative("six", count=6), Alternative("two", count=2))
FEWER = (Alternative("three", count=3), Alternative("one", count=1))
KINDS: Mapping[str, Callable[[], Claim]] = {
    "devices": lambda: make.claim("claim", make.request("gpu", 3)),
    "all of a node": lambda: make.claim("claim", make.everything()),
    "all that match": lambda: make.claim("claim", make.everything(selectors=_odd("x.example.com"))),
    "two requests, one for all": lambda: make.claim("claim", make.request("gpu", 2), make.everything("nic")),
    "alternatives": lambda: make.claim("claim", make.request(first_of=WAYS)),
    "near each other": lambda: make.claim("claim", make.request("gpu", 3), make.required(Scope.PCIE_ROOT, "gpu")),
    "one value": lambda: make.claim("claim", make.request("gpu", 3), make.match(make.NUMA, "gpu")),
    "beside its host": lambda: make.claim("claim", make.request("gpu"), host=HostAsk(cpu_milli=9000)),
    "a gang": lambda: make.gang("claim", replicas=4),
    "a gang with alternatives": lambda: make.gang("claim", make.request(first_of=FEWER), replicas=3),
    "parts": lambda: make.claim("claim", make.part("60Gi", count=3)),
    "parts with more compute than memory": lambda: make.claim("claim", make.part("8Gi", 700, count=3)),
    "a gang of parts": lambda: make.gang("claim", make.part("60Gi"), replicas=3),
}


def _odd(domain: str) -> tuple[object, ...]:
    return make.selecting("gpu", f"device.attributes['{domain}'].odd").selectors


def waiting(kind: str, quota: int, state: ReplicaState, borrowing: int = 0) -> Snapshot:
    """The claim, whose tenant has a GPU already; others have the rest of two nodes, but for two GPUs."""
    site = [
        make.card(f"gpu-{at}", node, root=f"r{at}", numa=at % 2, attributes={"x.example.com/odd": at % 2 == 1})
        for node, many in (("n1", 6), ("n2", 3))
        for at in range(many)
    ]
    nics = [make.device("nic-0", node) for node in ("n1", "n2")]
    claims = [
        make.holding("own", site[:1], tenant="web"),
        make.claim("big", placed=(make.placed({"gpu": site[1:5]}, state=state),), tenant="batch", replicas=1),
        make.holding("small", site[6:8], tenant="batch"),
        replace(KINDS[kind](), tenant="web"),
    ]
    claims[1] = replace(claims[1], deleting=state is ReplicaState.RELEASING)
    tenants = {
        "web": make.tenant("web", gpu=quota, borrowing=borrowing),
        "batch": make.tenant("batch", gpu=4, borrowing=4),
    }
    nodes = [make.node(name, cpu_milli=8000, memory_bytes=1 << 40) for name in ("n1", "n2")]
    pools = [make.pool(tenants=tenants)]
    return make.snapshot([*site, *nics], claims, pools=pools, nodes=nodes, shares=[make.share()])


def done(snapshot: Snapshot, words: str) -> Snapshot:
    """The snapshot after what a sentence says has been done."""
    claim = next(one for one in snapshot.claims if one.name == "claim")
    for pattern, change in CHANGES.items():
        found = fullmatch(pattern, words)
        if found:
            return change(snapshot, claim, *found.groups())
    raise AssertionError(words)


def _ended(snapshot: Snapshot, _: Claim, names: str) -> Snapshot:
    return replace(snapshot, claims=tuple(one for one in snapshot.claims if one.name not in names))


def _asking(snapshot: Snapshot, claim: Claim, **change: object) -> Snapshot:
    other = replace(claim, **change)  # type: ignore[arg-type]
    return replace(snapshot, claims=tuple(other if one is claim else one for one in snapshot.claims))


def _count(snapshot: Snapshot, claim: Claim, count: str, name: str, way: str | None) -> Snapshot:
    number = int(count)

    def fewer(request: Request) -> Request:
        chosen = tuple(replace(each, count=number) for each in request.first_of if each.name == way)
        return replace(request, count=number, all_devices=False, first_of=chosen)

    requests = tuple(fewer(each) if each.name == name else each for each in claim.requests)
    return _asking(snapshot, claim, requests=requests)


def _part(snapshot: Snapshot, claim: Claim, memory: str | None, compute: str | None) -> Snapshot:
    (request,) = claim.requests
    share = request.share
    assert share is not None
    if memory:
        share = replace(share, memory_bytes=Quantity.parse(memory).as_int())
    if compute:
        share = replace(share, compute_milli=int(compute))
    return _asking(snapshot, claim, requests=(replace(request, share=share),))


def _quota(snapshot: Snapshot, _: Claim, quota: str) -> Snapshot:
    (pool,) = snapshot.pools.values()
    mine = replace(pool.tenants["web"], quota={"gpu": int(quota)})
    return replace(snapshot, pools={pool.name: replace(pool, tenants={**pool.tenants, "web": mine})})


CHANGES: Mapping[str, Callable[..., Snapshot]] = {
    r"fits once (DeviceClaim .*) ends?": _ended,
    r"fits once tenant batch gives back .* \((.*)\)": _ended,
    r"fits when team/(\w+) has given back .* \(releasing\)": _ended,
    r"fits with count (\d+) instead of \w+ in request (\w+)(?:/(\w+))?": _count,
    r"fits with (\d+) replicas? instead of \d+": lambda snapshot, claim, number: _asking(
        snapshot, claim, replicas=int(number), gang_min=int(number)
    ),
    r"fits with host cpu (\d+) instead of 9": lambda snapshot, claim, cpu: _asking(
        snapshot, claim, host=HostAsk(cpu_milli=int(cpu) * 1000)
    ),
    r"fits with (?:memory (\w+) instead of \w+)?(?: and )?(?:compute (\d+)m instead of \w+)? in request gpu": _part,
    r"fits without its selector in request gpu": lambda snapshot, claim: _asking(
        snapshot, claim, requests=(replace(claim.requests[0], selectors=()),)
    ),
    r"fits with scope (\w+) instead of \w+": lambda snapshot, claim, scope: _asking(
        snapshot, claim, affinity=(make.required(scope, "gpu"),)
    ),
    r"fits without Match of \S+": lambda snapshot, claim: _asking(snapshot, claim, affinity=()),
    r"fits with quota (\d+) instead of \d+ of gpu for tenant web": _quota,
}


@pytest.mark.parametrize("state", [ReplicaState.READY, ReplicaState.RELEASING])
@pytest.mark.parametrize("kind", KINDS)
def test_what_would_make_it_fit_is_within_the_quota(kind: str, state: ReplicaState) -> None:
    """With each quota, also with some of it borrowed."""
    told = set()
    for quota in range(11):
        for borrowing in (0, 3):
            snapshot = waiting(kind, quota, state, borrowing)
            answer = of(planned(snapshot))
            if answer.nearest is not None:
                told.add(answer.nearest)
                after = of(planned(done(snapshot, answer.nearest)))
                assert after.placements, f"quota {quota} + {borrowing}: {answer.nearest}"
    assert told


@pytest.mark.parametrize(
    ("kind", "quota", "words"),
    [
        pytest.param("all of a node", 3, "tenant web holds 1 of 3 gpu, needs 3", id="all, of the smaller node"),
        pytest.param("parts", 3, "tenant web holds 1 of 3 gpu, needs 2.25", id="three quarters of three cards"),
        pytest.param("parts with more compute than memory", 3, "holds 1 of 3 gpu, needs 2.1", id="compute"),
        pytest.param("a gang of parts", 3, "tenant web holds 1 of 3 gpu, needs 2.25", id="of all members"),
    ],
)
def test_a_quota_that_forbids_the_least_that_it_can_cost_is_told(kind: str, quota: int, words: str) -> None:
    snapshot = waiting(kind, quota, ReplicaState.READY)
    answer = of(planned(snapshot))
    assert answer.reasons[0].code is Code.QUOTA_EXCEEDED
    assert words in answer.reasons[0].message
    # One more device of quota, and only devices are lacking.
    assert Code.QUOTA_EXCEEDED not in codes(planned(waiting(kind, quota + 1, ReplicaState.READY)))
