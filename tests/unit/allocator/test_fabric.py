"""The network as a tree: whatever labels a cloud uses, unknown is never equal to unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from tests.support import make

from adjoin_allocator import FabricLevel, Memo, Node, Snapshot
from adjoin_allocator.fabric import WHOLE, Fabrics, FabricTree

Labels = Mapping[str, str]


def snapshot(levels: Sequence[str], labels: Mapping[str, Labels]) -> Snapshot:
    pool = make.pool(fabric=tuple(FabricLevel(f"level-{at}", key) for at, key in enumerate(levels)))
    nodes = [make.node(name, labels=dict(given)) for name, given in labels.items()]
    return make.snapshot([make.device("gpu-0", name) for name in labels], pools=[pool], nodes=nodes)


def tree(given: Snapshot, fabrics: Fabrics | None = None, memo: Memo | None = None) -> FabricTree:
    index = (memo or Memo()).nodes.index(given)[make.POOL]
    return (fabrics or Fabrics()).tree(index, given.nodes)


def domains(found: FabricTree, level: int) -> list[list[str]]:
    """Names by domain."""
    by_domain: dict[int, list[str]] = {}
    for position, domain in enumerate(found.domains(level)):
        if domain >= 0:
            by_domain.setdefault(int(domain), []).append(found.index.views[position].name)
    return [by_domain[domain] for domain in sorted(by_domain)]


SCHEMES = {
    "topograph": [f"fabric.topograph.run/tier-{at}" for at in (2, 1, 0)],
    "topograph before 1.0": [f"network.topology.nvidia.com/{at}" for at in ("core", "spine", "leaf")],
    "NVLink domain": [
        "accelerator.topograph.run/domain",
        "accelerator.topograph.run/sub-domain",
        "nvidia.com/gpu.clique",
    ],
    "Kueue's sample": [
        "cloud.provider.com/topology-block",
        "cloud.provider.com/topology-rack",
        "kubernetes.io/hostname",
    ],
    "EKS": [f"topology.k8s.aws/network-node-layer-{at}" for at in (1, 2, 3)],
    "GKE": [f"cloud.google.com/gce-topology-{at}" for at in ("block", "subblock", "host")],
    "OKE": [f"oci.oraclecloud.com/rdma.{at}" for at in ("hpc_island_id", "network_block_id", "local_block_id")],
    "Nebius": [f"topology.nebius.com/tier-{at}" for at in (2, 1, 0)],
    "CoreWeave": [f"ib.coreweave.cloud/{at}" for at in ("fabric", "superpod", "leafgroup")],
    "Crusoe": ["topology.kubernetes.io/region", "crusoe.ai/pod.id", "crusoe.ai/ib.partition.id"],
    "Kubernetes": ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "node.coreweave.cloud/rack"],
}


@pytest.mark.parametrize("levels", [pytest.param(levels, id=name) for name, levels in SCHEMES.items()])
def test_any_scheme_of_labels_makes_a_tree(levels: Sequence[str]) -> None:
    values = {"n1": ("a", "x", "1"), "n2": ("a", "x", "2"), "n3": ("a", "y", "1"), "n4": ("b", "x", "1")}
    found = tree(snapshot(levels, {name: dict(zip(levels, given, strict=True)) for name, given in values.items()}))
    assert domains(found, 0) == [["n1", "n2", "n3"], ["n4"]]
    assert domains(found, 1) == [["n1", "n2"], ["n3"], ["n4"]]
    assert domains(found, 2) == [["n1"], ["n2"], ["n3"], ["n4"]]
    assert domains(found, WHOLE) == [["n1", "n2", "n3", "n4"]]
    assert found.children[WHOLE, 0] == (0, 1)
    assert found.told(1, 1) == "level-1 y"


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        pytest.param({"n1": {"b": "1"}, "n2": {"b": "1"}}, [], id="no rack"),
        pytest.param({"n1": {"r": "1"}, "n2": {"r": "1"}}, [], id="no block: which rack 1 it is, is unknown"),
        pytest.param({"n1": {"b": "1", "r": ""}, "n2": {"b": "1", "r": ""}}, [], id="empty labels"),
        pytest.param({"n1": {"b": "1", "r": "7"}, "n2": {"b": "2", "r": "7"}}, [["n1"], ["n2"]], id="rack 7 twice"),
        pytest.param({"n1": {"b": "1", "r": "7"}, "n2": {"b": "1", "r": "7"}}, [["n1", "n2"]], id="rack 7"),
    ],
)
def test_a_domain_is_known_from_the_top_down(labels: Mapping[str, Labels], wanted: list[list[str]]) -> None:
    assert domains(tree(snapshot(["b", "r"], labels)), 1) == wanted


def test_domains_stand_in_natural_order() -> None:
    found = tree(snapshot(["r"], {f"n{at}": {"r": f"rack-{at}"} for at in (10, 9, 1)}))
    assert [path for (path,) in found.layers[0].paths] == ["rack-1", "rack-9", "rack-10"]


def test_what_did_not_change_is_not_built_again() -> None:
    memo, fabrics = Memo(), Fabrics()
    first = snapshot(["r"], {"n1": {"r": "1"}, "n2": {"r": "1"}})
    built = tree(first, fabrics, memo)
    assert tree(first, fabrics, memo) is built
    other: Node = make.node("n2", labels={"r": "1", "kernel": "6.8"})
    assert tree(replace(first, nodes={**first.nodes, "n2": other}), fabrics, memo) is built
    moved = tree(replace(first, nodes={**first.nodes, "n2": make.node("n2", labels={"r": "2"})}), fabrics, memo)
    assert domains(moved, 0) == [["n1"], ["n2"]]
    fabrics.keep({})
    assert tree(first, fabrics, memo) is not built
