"""What a wish costs on single nodes: one by one as all at once; and a decision is gone when it ends."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
from tests.support import make

from adjoin_allocator import Memo, Share, ShareMode, plan
from adjoin_allocator.appraisal import Need, Strand
from adjoin_allocator.arbiter import Arbiter
from adjoin_allocator.batch import Batch
from adjoin_allocator.prices import CARD, UNIT
from adjoin_allocator.sharing import MILLI, Part
from adjoin_allocator.singles import FAR, NEVER, SHIFT, Best, Scale, Worth, costs_of, enter
from adjoin_allocator.stock import Stock, Wish

CARDS = 4
NODES = 40
SHARE = Share("parts", "parts", 0.0, "pool", "gpu", ShareMode.FRACTIONAL, reserve_per_million=0, min_reserve_bytes=0)
WISHES = [
    Wish(0, cpu_milli=3000, memory_kib=100),
    Wish(1, cpu_milli=1000),
    Wish(3, memory_kib=2000),
    Wish(1, "parts", Part(compute_milli=300), cpu_milli=2000, memory_kib=500),
]


def used_stock(chance: random.Random) -> Stock:
    """Nodes on which some cards are whole, some divided and some given, and hosts have little or much left."""
    stock = Stock([[(0, "", (), ())] * CARDS for _ in range(NODES)], [SHARE])
    stock.selected = [stock.exists]
    for position in range(NODES):
        kinds = [chance.choice(("free", "part", "given")) for _ in range(CARDS)]
        free = sum(1 << column for column, kind in enumerate(kinds) if kind == "free")
        used = tuple(
            (column, 0, (0, chance.randrange(50, MILLI, 50), 0), True)
            for column, kind in enumerate(kinds)
            if kind == "part"
        )
        stock.put(position, (free, used, chance.randrange(0, 20_000), chance.randrange(0, 20_000), 0))
    stock.closed[3] = True
    return stock


@pytest.mark.parametrize("wish", WISHES, ids=["no card", "one card", "three cards", "a part"])
@pytest.mark.parametrize("seed", range(5))
def test_nodes_one_by_one_cost_what_they_cost_together(wish: Wish, seed: int) -> None:
    """To the last bit, so that it changes nothing how many have changed since a wish was looked at last."""
    chance = random.Random(seed)
    stock = used_stock(chance)
    strand = Strand((Need(4500.0, 1200.0), Need(5200.0, 0.0)))
    cards = np.array([[chance.random() for _ in range(CARDS)] for _ in range(NODES)]).sum(axis=1) * UNIT
    idle = strand.idle((cards / UNIT)[:, None], stock.host[:, :, None])[:, 0]
    worth = Worth(strand, cards, idle)
    best = None
    if wish.part is not None:
        size = wish.of_each.milli
        lost = [(UNIT // CARD * size + left % 7 << SHIFT) + left - size for left in range(CARD + 1)]
        best = Best(
            Scale([key if left >= size else FAR for left, key in enumerate(lost)], 2), np.full((NODES, 2), -1), 0
        )
        best.look(stock, stock.mask(wish), range(NODES))
    keys = None if best is None else best.keys
    alone = np.zeros((NODES, 1 if keys is None else 2), dtype=np.int64)
    enter(alone, range(NODES), stock, worth, wish, keys)
    room = stock.room(wish)
    if wish.part is None and wish.count:
        room &= stock.whole >= wish.count
    assert (costs_of(stock, worth, wish, slice(None), room, keys) == alone).all()
    some = np.array([7, 3, 12, 30])
    assert (costs_of(stock, worth, wish, some, room[some], keys) == alone[some]).all()
    assert (alone[3] == NEVER).all()
    assert (alone != NEVER).any()


def test_what_a_decision_was_made_with_is_gone_when_it_ends() -> None:
    """It refers to itself nowhere, so that the next one has its memory without looking for cycles."""
    snapshot = make.snapshot(make.flat(gpus=2), claims=[make.claim("job", make.request("gpu", 1))])
    memo = Memo()
    plan(snapshot, make.NOW, memo)
    gc.collect()
    # The record of a test that failed before may hold some.
    before = {id(each) for each in gc.get_objects() if isinstance(each, (Arbiter, Batch))}
    gc.disable()
    try:
        assert plan(snapshot, make.NOW, memo).claims
        left = [each for each in gc.get_objects() if isinstance(each, (Arbiter, Batch)) and id(each) not in before]
    finally:
        gc.enable()
    assert not left
