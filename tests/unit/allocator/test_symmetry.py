"""Symmetry of a node: what may be exchanged, one form for all that exchanges make, and nothing that matters differs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import make, strategies

from adjoin_allocator import Device, Snapshot
from adjoin_allocator.cost import signature
from adjoin_allocator.fit import Fit, Fitter
from adjoin_allocator.nodes import Nodes, NodeView, Question
from adjoin_allocator.states import Classes, aspects
from adjoin_allocator.symmetry import Symmetry, symmetry
from adjoin_allocator.topology import bits


def view(devices: list[Device], nodes: Nodes | None = None) -> NodeView:
    return (nodes or Nodes()).index(make.snapshot(devices))[make.POOL].views[0]


def of(node: NodeView) -> Symmetry:
    return symmetry(node.shape.wiring, [device.kind for device in node.devices])


@pytest.mark.parametrize(
    ("devices", "forms"),
    [
        pytest.param(make.flat(gpus=8), 9, id="eight equal devices: how many are free"),
        pytest.param(make.flat(gpus=4, nics=4), 25, id="two kinds: how many of each"),
        pytest.param(make.rails(), 630, id="eight pairs on two sockets: 35 multisets of pairs a socket, in no order"),
        pytest.param(make.shared_roots(), 231, id="four root complexes of two GPUs and a NIC"),
        pytest.param(
            [make.device("gpu-0", root="a"), make.device("gpu-1", root="a"), make.device("gpu-2", root="b")],
            6,
            id="the lonely one is not like the others",
        ),
        pytest.param([make.device("gpu-0", root="a"), make.device("gpu-1")], 4, id="unknown is not like known"),
        pytest.param([make.device("gpu-0")], 2, id="one device"),
    ],
)
def test_how_many_free_sets_differ(devices: list[Device], forms: int) -> None:
    node = view(devices)
    found = of(node)
    assert len({found.canonical((mask,)) for mask in range(1 << node.shape.size)}) == forms


def test_masks_are_exchanged_together() -> None:
    found = of(view(make.flat(gpus=3)))
    assert found.canonical((0b001, 0b001)) == found.canonical((0b100, 0b100))
    assert found.canonical((0b001, 0b001)) != found.canonical((0b001, 0b100))


def test_what_is_marked_stays_where_it_is() -> None:
    kept = of(view(make.flat(gpus=4))).keeping([0b0011], [])
    assert kept.canonical((0b0001,)) == kept.canonical((0b0010,))
    assert kept.canonical((0b0001,)) != kept.canonical((0b0100,))


def test_a_family_may_be_exchanged_as_a_whole() -> None:
    whole = of(view(make.rails(gpus=4)))
    rails = [0b0001 << at | 0b0001 << at + 4 for at in range(4)]
    assert whole.keeping([], [rails]).canonical((0b0001,)) == whole.canonical((0b0001,))
    assert whole.keeping([], [rails[:1]]).groups != whole.groups


@settings(max_examples=150, deadline=None)
@given(strategies.snapshots(nodes=1, most=8), st.randoms(use_true_random=False))
def test_a_canonical_form_is_the_same_for_all_that_exchanges_make(snapshot: Snapshot, chance: random.Random) -> None:
    (node,) = Nodes().index(snapshot)[make.POOL].views
    found = of(node)
    masks = (chance.getrandbits(node.shape.size), chance.getrandbits(node.shape.size))
    form = found.canonical(masks)
    assert found.canonical(form) == form
    assert [mask.bit_count() for mask in form] == [mask.bit_count() for mask in masks]
    for _ in range(6):
        if found.groups:
            one, other = chance.sample(chance.choice(found.groups), 2)
            there = dict(zip((*one, *other), (*other, *one), strict=True))
            masks = tuple(sum(1 << there.get(at, at) for at in bits(mask)) for mask in masks)
            assert found.canonical(masks) == form


@settings(max_examples=150, deadline=None)
@given(strategies.snapshots(nodes=1, most=8, waiting=1), st.randoms(use_true_random=False))
def test_choices_in_one_canonical_form_are_equally_good(snapshot: Snapshot, chance: random.Random) -> None:
    nodes, fitter = Nodes(), Fitter()
    index = nodes.index(snapshot)[make.POOL]
    (node,) = index.views
    for claim in snapshot.claims:
        if claim.placed or any(request.first_of for request in claim.requests):
            continue
        types = {name.name: name.type for name in index.pool.devices}
        wanted = signature(
            claim.requests,
            [types[request.kind] for request in claim.requests],
            claim.affinity,
            claim.profile,
            index.pool.strategy,
        )
        question = Question(
            tuple((request.kind, request.selectors) for request in claim.requests),
            tuple(line.attribute for line in wanted.attributes),
        )
        classes = Classes(nodes, index, aspects(question))
        (sort,) = classes.sorts(question)
        for _ in range(4):
            free = chance.getrandbits(node.shape.size)
            (form,) = classes.symmetry(0, aspects(question)).canonical((free,))
            raw = fitter.fit(fitter.form(wanted), (node.shape, sort, free))
            alike = fitter.fit(fitter.form(wanted), (node.shape, sort, form))
            if isinstance(raw, Fit):
                assert isinstance(alike, Fit)
                assert raw.objective == alike.objective
            else:
                assert not isinstance(alike, Fit)
                assert raw.obstacle is alike.obstacle
