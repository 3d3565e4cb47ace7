"""`status.fragmentation`: which part of what is free lies in groups that somebody has broken."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from tests.support import make
from tests.support.objects import deviceclaim
from tests.support.small import cluster

from adjoin.decision import Decider
from adjoin.intents import Kind
from adjoin.status import Fragmentation
from adjoin_allocator import Claim, Device, MatrixText, Memo, Snapshot, Standing, plan


def measured(snapshot: Snapshot, memo: Memo | None = None) -> Mapping[str, float]:
    memo = memo or Memo()
    decided = plan(snapshot, make.NOW, memo)
    return Fragmentation(memo).measure(decided)[make.POOL]


ROOTS = make.shared_roots(roots=4, gpus_each=2, nics_each=1)
"""gpu-0 and gpu-1 on one root with nic-0, and so on; two roots a NUMA node."""
NAMED = {device.id.device: device for device in ROOTS}


def holding(*names: str) -> list[Claim]:
    return [make.holding("holder", [NAMED[name] for name in names])] if names else []


@pytest.mark.parametrize(
    ("held", "gpu", "nic"),
    [
        pytest.param((), 0.0, 0.0, id="nothing is held"),
        pytest.param(("gpu-0", "gpu-1"), 0.0, 0.0, id="a whole pair is held"),
        pytest.param(("gpu-0",), round(1 / 7, 2), 0.0, id="one of a pair leaves the other alone"),
        pytest.param(("gpu-0", "gpu-2"), round(2 / 6, 2), 0.0, id="one of each of two pairs"),
        pytest.param(("gpu-0", "gpu-2", "gpu-4", "gpu-6"), 1.0, 0.0, id="one of every pair"),
        pytest.param(
            ("nic-0",), 0.0, round(1 / 3, 2), id="NICs are alone on their roots: their NUMA node is the group"
        ),
        pytest.param(tuple(f"gpu-{i}" for i in range(8)), 0.0, 0.0, id="nothing is free"),
    ],
)
def test_the_group_is_the_nearest_thing_that_devices_of_one_name_share(
    held: Sequence[str], gpu: float, nic: float
) -> None:
    assert measured(make.snapshot(ROOTS, holding(*held))) == {"gpu": gpu, "nic": nic}


@pytest.mark.parametrize(
    ("devices", "held", "gpu"),
    [
        pytest.param(make.flat(gpus=4), 1, 1.0, id="nothing but the node is known"),
        pytest.param(make.flat("a", gpus=1) + make.flat("b", gpus=1) + make.flat("c", gpus=1), 1, 0.0, id="one a node"),
        pytest.param(
            make.flat("a", gpus=4) + make.flat("b", gpus=4), 1, round(3 / 7, 2), id="one node of two is broken"
        ),
        pytest.param(
            [*make.flat(gpus=3), make.device("gpu-3", standing=Standing.UNHEALTHY)],
            0,
            1.0,
            id="one of them is unhealthy",
        ),
    ],
)
def test_nodes_are_groups_where_nothing_nearer_is_known(devices: list[Device], held: int, gpu: float) -> None:
    claims = [make.holding("holder", devices[:held])] if held else []
    assert measured(make.snapshot(devices, claims))["gpu"] == gpu


def test_nvlink_is_nearer_than_a_switch() -> None:
    """Two GPUs of different switches are linked: taking one breaks its partner's group, not its neighbour's."""
    devices = [make.device(f"gpu-{i}", switch=f"s{i // 2}", root="r") for i in range(4)]
    matrix = "\tGPU0\tGPU1\tGPU2\tGPU3\n" + "\n".join(
        f"GPU{one}\t" + "\t".join("X" if one == other else "NV4" if one + other == 3 else "PXB" for other in range(4))
        for one in range(4)
    )
    linked = make.pool(matrices={make.NODE: MatrixText("wires/topo", matrix)})
    claims = [make.holding("holder", devices[:1])]
    assert measured(make.snapshot(devices, claims, pools=[linked]))["gpu"] == round(1 / 3, 2)
    assert measured(make.snapshot(devices, claims))["gpu"] == round(1 / 3, 2)
    both = [make.holding("holder", [devices[0], devices[3]])]
    assert measured(make.snapshot(devices, both, pools=[linked]))["gpu"] == 0.0
    assert measured(make.snapshot(devices, both))["gpu"] == 1.0


def test_it_is_that_of_the_cluster_once_the_plan_is_carried_out() -> None:
    waiting = make.claim("waiting", make.request("gpu", 1))
    assert measured(make.snapshot(ROOTS, [waiting])) == {"gpu": round(1 / 7, 2), "nic": 0.0}


@pytest.mark.parametrize("seed", range(8))
def test_following_changes_comes_to_what_counting_anew_does(seed: int) -> None:
    chance = random.Random(seed)
    fleet = [device for number in range(6) for device in make.shared_roots(f"n{number}")]
    by_node = {device.node: [each for each in fleet if each.node == device.node] for device in fleet}
    memo = Memo()
    following = Fragmentation(memo)
    base = make.snapshot(fleet)
    held: dict[str, Claim] = {}
    for step in range(30):
        if held and chance.random() < 0.4:
            held.pop(chance.choice(sorted(held)))
        else:
            taken = {device.id for claim in held.values() for each in claim.placed for device in each.devices}
            free = [each for each in chance.choice(list(by_node.values())) if each.id not in taken]
            if free:
                held[f"h{step}"] = make.holding(f"h{step}", chance.sample(free, min(len(free), chance.randint(1, 3))))
        claims = [*held.values(), make.pairs(f"w{step}", 1)]
        snapshot = Snapshot(base.pools, base.nodes, base.inventory, tuple(claims), base.holds)
        decided = plan(snapshot, make.NOW, memo)
        fresh = Memo()
        assert following.measure(decided) == Fragmentation(fresh).measure(plan(snapshot, make.NOW, fresh))


def test_the_pool_says_it_and_a_settled_pool_is_not_written_to() -> None:
    world = cluster(nodes=2, gpus=4)
    world.add(deviceclaim("c1"))
    world.settle(Decider)
    pool = world.objects[Kind.DEVICE_POOL, "", "training"]
    assert pool["status"]["fragmentation"]["gpu"] == round(3 / 7, 2)
    world.writes.clear()
    for _ in range(10):
        world.now += 7.0
        assert Decider().decide(world.view(), world.now).intents == ()
