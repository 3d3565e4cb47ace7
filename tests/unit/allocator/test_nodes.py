"""Compiled nodes: what is shared, what is kept, and what makes a node take nothing new."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support import make

from adjoin_allocator import Node, Standing, Taint, Toleration
from adjoin_allocator.nodes import Nodes, Question, closed

TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")


def test_nodes_of_one_model_share_their_shape() -> None:
    index = Nodes().index(make.snapshot([*make.rails("a"), *make.rails("b"), *make.shared_roots("c")]))[make.POOL]
    a, b, c = index.views
    assert a.shape is b.shape
    assert a.shape is not c.shape


def test_performance_and_priority_make_another_shape() -> None:
    devices = [*make.flat("a", 2), *make.flat("b", 2, performance=1), *make.flat("c", 2, priority=1)]
    index = Nodes().index(make.snapshot(devices))[make.POOL]
    assert len({view.shape for view in index.views}) == 3


def test_nodes_stand_in_natural_order() -> None:
    index = Nodes().index(make.snapshot(make.flat("n-10", 1) + make.flat("n-9", 1)))[make.POOL]
    assert [view.name for view in index.views] == ["n-9", "n-10"]


def test_what_did_not_change_is_not_compiled_again() -> None:
    nodes = Nodes()
    snapshot = make.snapshot([*make.rails("a"), *make.rails("b")])
    first = nodes.index(snapshot)[make.POOL]
    assert nodes.index(replace(snapshot, inventory=dict(snapshot.inventory)))[make.POOL] is first
    shorter = {**snapshot.inventory, "a": snapshot.inventory["a"][:-1]}
    second = nodes.index(replace(snapshot, inventory=shorter))[make.POOL]
    assert second.views[1] is first.views[1]
    assert second.views[0] is not first.views[0]


def test_devices_are_found_where_they_are_and_not_where_they_were() -> None:
    nodes = Nodes()
    gpu = make.device("gpu-0", "a")
    snapshot = make.snapshot([gpu, make.device("gpu-0", "b")])
    nodes.index(snapshot)
    found = nodes.locate(gpu.id)
    assert found is not None
    assert found[1:] == (0, 0)
    nodes.index(replace(snapshot, inventory={"b": snapshot.inventory["b"]}))
    assert nodes.locate(gpu.id) is None
    other = nodes.locate(make.device("gpu-0", "b").id)
    assert other is not None
    assert other[1:] == (0, 0)


def test_each_pool_sees_its_own_devices_of_a_node() -> None:
    devices = [make.device("gpu-0"), make.device("gpu-1", pool="other"), make.device("nic-0", pool="other")]
    pools = nodes_of = Nodes().index(make.snapshot(devices, pools=[make.pool(), make.pool("other")]))
    assert [len(nodes_of[name].views[0].devices) for name in sorted(pools)] == [2, 1]


def test_devices_of_a_pool_that_does_not_exist_are_nobodys() -> None:
    index = Nodes().index(make.snapshot([make.device("gpu-0", pool="gone"), make.device("gpu-1")]))
    assert list(index) == [make.POOL]
    assert len(index[make.POOL].views[0].devices) == 1


def test_only_who_shares_a_value_matters_not_which_value_it_is() -> None:
    def rails(node: str, values: list[object]) -> list[object]:
        return [
            make.device(f"nic-{at}", node, attributes={} if value is None else {"dra.net/rail": value})
            for at, value in enumerate(values)
        ]

    nodes = Nodes()
    index = nodes.index(make.snapshot(rails("a", ["x", "y", "x", None]) + rails("b", [7, 3, 7, None])))[make.POOL]  # type: ignore[arg-type]
    one, other = nodes.sorts(index, Question((("nic", ()),), ("dra.net/rail",)))
    assert one is other
    assert one.values == ((0b0010, 0b0101),)


def test_masks_by_standing() -> None:
    standing = [Standing.OFFERED, Standing.UNHEALTHY, Standing.OFFERED, Standing.UNGUARDED]
    devices = [make.device(f"gpu-{at}", standing=stand) for at, stand in enumerate(standing)]
    view = Nodes().index(make.snapshot(devices))[make.POOL].views[0]
    assert view.offered == 0b101
    assert view.standing[Standing.UNHEALTHY] == 0b10


@pytest.mark.parametrize(
    ("node", "tolerations", "word"),
    [
        pytest.param(make.node(), (), None, id="a ready node is open"),
        pytest.param(make.node(ready=False), (), "not ready", id="not ready"),
        pytest.param(make.node(unschedulable=True), (), "cordoned", id="cordoned"),
        pytest.param(make.node(deleting=True), (), "being deleted", id="ready, but being deleted"),
        pytest.param(make.node(deleting=True, ready=False), (), "being deleted", id="not ready, since it goes"),
        pytest.param(make.node(exists=False), (), "gone", id="without object"),
        pytest.param(None, (), "gone", id="unknown"),
        pytest.param(make.node(taints=(TAINT,)), (), "tainted", id="a taint that is not tolerated"),
        pytest.param(make.node(taints=(replace(TAINT, effect="NoExecute"),)), (), "tainted", id="NoExecute too"),
        pytest.param(make.node(taints=(replace(TAINT, effect="PreferNoSchedule"),)), (), None, id="a wish is no ban"),
        pytest.param(
            make.node(taints=(TAINT,)), (Toleration("nvidia.com/gpu", "Exists"),), None, id="a taint that is tolerated"
        ),
        pytest.param(
            make.node(taints=(TAINT,)), (Toleration("other", "Exists"),), "tainted", id="another is tolerated"
        ),
    ],
)
def test_what_closes_a_node(node: Node | None, tolerations: tuple[Toleration, ...], word: str | None) -> None:
    why = closed(node, make.pool(tolerations=tolerations))
    assert (why and why[0]) == word
